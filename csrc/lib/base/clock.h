/* Wall time, and passing it. */
#ifndef GPR_LIB_CLOCK_H
#define GPR_LIB_CLOCK_H

#include <time.h>

static inline double gpr_seconds_on(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds on a clock that only goes forward. */
static inline double gpr_seconds(void)
{
    return gpr_seconds_on(CLOCK_MONOTONIC);
}

/* The same within a few milliseconds, where the system has a clock that takes less time to read. */
static inline double gpr_coarse_seconds(void)
{
#ifdef CLOCK_MONOTONIC_COARSE
    return gpr_seconds_on(CLOCK_MONOTONIC_COARSE);
#else
    return gpr_seconds();
#endif
}

/* A hint to the processor that this loop waits. */
static inline void gpr_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
