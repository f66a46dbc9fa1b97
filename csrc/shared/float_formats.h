/* Formats of floats as constants, from the registry, and what follows from them. A binary
 * floating-point format has `fraction` stored bits of the significand and `exponent` bits of the
 * exponent. */
#ifndef GPR_SHARED_FLOAT_FORMATS_H
#define GPR_SHARED_FLOAT_FORMATS_H

#include "language.h"

/* GPR_FLOAT32_FRACTION, GPR_FLOAT32_EXPONENT and so on; 0 for dtypes that are no floats. */
enum {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, fraction, exponent) \
    GPR_##ID##_FRACTION = fraction, GPR_##ID##_EXPONENT = exponent,
#include "dtypes.def"
#undef GPR_DTYPE
};

/* Every finite number of a format is a multiple of 2^lowest below 2^highest. */
GPR_CONSTANT_FUNCTION int gpr_float_lowest(int fraction, int exponent)
{
    return 2 - (1 << (exponent - 1)) - fraction;
}

GPR_CONSTANT_FUNCTION int gpr_float_highest(int exponent)
{
    return 1 << (exponent - 1);
}

/* Whether every sum of at most 2^count_bits finite numbers of a format is a float64. The sum is an
 * integer in units of 2^lowest below 2^(highest - lowest + count_bits) in magnitude. False for
 * dtypes that are no floats. */
GPR_CONSTANT_FUNCTION int gpr_sum_is_float64(int fraction, int exponent, int count_bits)
{
    return exponent > 0 &&
           gpr_float_highest(exponent) - gpr_float_lowest(fraction, exponent) + count_bits <=
               GPR_FLOAT64_FRACTION + 1;
}

/* Whether every product of two numbers of a format is a float64: its 2 * (fraction + 1) bits fit
 * the significand of a float64, and its exponent fits, too. False for dtypes that are no floats. */
GPR_CONSTANT_FUNCTION int gpr_product_is_float64(int fraction, int exponent)
{
    return exponent > 0 && 2 * (fraction + 1) <= GPR_FLOAT64_FRACTION + 1 &&
           2 * gpr_float_lowest(fraction, exponent) >=
               gpr_float_lowest(GPR_FLOAT64_FRACTION, GPR_FLOAT64_EXPONENT) &&
           2 * gpr_float_highest(exponent) <= gpr_float_highest(GPR_FLOAT64_EXPONENT);
}

/* A product of two float64 is p + r: p the product rounded, r the rest. Where |p| is 2^-967 or
 * more, r is a float64: the product's first bit is 2^-968 or more, its last bit is at most
 * 2 * GPR_FLOAT64_FRACTION + 1 = 105 places lower, and float64 reaches down to 2^-1074. */
enum { GPR_LEAST_SPLIT_PRODUCT = -967 };

#endif
