/* The bits of floats as integers, and the reverse. */
#ifndef GPR_LIB_FLOAT_BITS_H
#define GPR_LIB_FLOAT_BITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "an integer's first bytes are its lowest, also in the files of exact sums");

static inline uint32_t gpr_bits_of_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float gpr_float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t gpr_bits_of_double(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double gpr_double_of_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The i-th of elements of up to eight bytes: one instruction where their size is a constant. */
static inline uint64_t gpr_load_bits(const char *elements, size_t bytes, uint64_t i)
{
    uint64_t bits = 0;

    memcpy(&bits, elements + i * bytes, bytes);
    return bits;
}

#endif
