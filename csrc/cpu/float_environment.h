/* The floating point environment of a task: rounding, traps, and the flags by which the processor
 * reports what additions and multiplications lost. Private to csrc/cpu.
 *
 * A program may run with subnormal numbers flushed to zero, with another rounding, or with traps,
 * in its own threads and so in the pool's. On x86-64 the environment of vectors is all there is to
 * doubles; fenv.h's functions serve the other floating point unit of the processor, too, which
 * takes ten times as long. */
#ifndef GPR_CPU_FLOAT_ENVIRONMENT_H
#define GPR_CPU_FLOAT_ENVIRONMENT_H

#include <fenv.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

typedef unsigned gpr_float_environment;

/* The environment of IEEE 754's defaults, with all flags lowered, until leave_ieee. */
static inline gpr_float_environment enter_ieee(void)
{
    const gpr_float_environment before = _mm_getcsr();

    _mm_setcsr(_MM_MASK_MASK | _MM_ROUND_NEAREST);
    return before;
}

static inline void leave_ieee(gpr_float_environment before)
{
    _mm_setcsr(before);
}

static inline void lower_flags(void)
{
    _mm_setcsr(_mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK);
}

static inline int was_inexact(void)
{
    return (_mm_getcsr() & _MM_EXCEPT_INEXACT) != 0;
}

/* Whether a number was too large for its type, or so small that it lost bits. */
static inline int left_range(void)
{
    return (_mm_getcsr() & (_MM_EXCEPT_OVERFLOW | _MM_EXCEPT_UNDERFLOW)) != 0;
}
#else
typedef fenv_t gpr_float_environment;

static inline gpr_float_environment enter_ieee(void)
{
    gpr_float_environment before;

    (void)fegetenv(&before);
    (void)fesetenv(FE_DFL_ENV);
    return before;
}

static inline void leave_ieee(gpr_float_environment before)
{
    (void)fesetenv(&before);
}

static inline void lower_flags(void)
{
    (void)feclearexcept(FE_ALL_EXCEPT);
}

static inline int was_inexact(void)
{
    return fetestexcept(FE_INEXACT) != 0;
}

static inline int left_range(void)
{
    return fetestexcept(FE_OVERFLOW | FE_UNDERFLOW) != 0;
}
#endif

#endif
