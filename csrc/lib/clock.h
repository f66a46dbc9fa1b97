/* Wall time. */
#ifndef GPR_LIB_CLOCK_H
#define GPR_LIB_CLOCK_H

#include <time.h>

/* Seconds on a clock that only goes forward. */
static inline double gpr_seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
