/* Sizes of parts: what several rooms compute of counts. */
#ifndef GPR_LIB_INTEGERS_H
#define GPR_LIB_INTEGERS_H

#include <stdint.h>

static inline uint64_t gpr_divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint64_t gpr_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t gpr_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
