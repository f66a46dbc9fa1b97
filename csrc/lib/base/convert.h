/* Element conversions in blocks: any dtype to any other, as NumPy's astype does it.
 *
 * Every pair of dtypes would be 225 loops. A conversion goes through a wide block instead (64-bit
 * integers, doubles or pairs of them, which hold every element exactly), so that it takes one loop
 * in for each dtype and one loop out for each dtype and sort of wide block. Addresses need no
 * alignment. Pure; any thread. */
#ifndef GPR_LIB_CONVERT_H
#define GPR_LIB_CONVERT_H

#include "lib/base/registry.h"

typedef enum gpr_wide {
    GPR_WIDE_SIGNED,
    GPR_WIDE_UNSIGNED,
    GPR_WIDE_FLOAT,
    GPR_WIDE_COMPLEX
} gpr_wide;

/* elements of a wide block: it and its neighbours stay in the first cache, and a small stack has
 * room for several */
enum { GPR_WIDE_ELEMENTS = 128 };

typedef union gpr_wide_block {
    int64_t i64[GPR_WIDE_ELEMENTS];
    uint64_t u64[GPR_WIDE_ELEMENTS];
    double f64[2 * GPR_WIDE_ELEMENTS]; /* the parts of c128, too */
    double _Complex c128[GPR_WIDE_ELEMENTS];
} gpr_wide_block;

/* The sort of wide block that holds `dtype` exactly. */
gpr_wide gpr_wide_of(gpr_dtype dtype);

/* Reads count <= GPR_WIDE_ELEMENTS elements into a block of sort gpr_wide_of(dtype). */
void gpr_load_wide(gpr_dtype dtype, const void *elements, uint64_t count, gpr_wide_block *block);

/* Writes count <= GPR_WIDE_ELEMENTS values of a block of sort `wide` as elements: integers wrap,
 * floats round once, a float becomes an integer by truncation (one that does not fit gives what
 * x86-64's C casts give), bool is "not zero", a complex number becomes a real one by losing its
 * imaginary part. */
void gpr_store_wide(gpr_wide wide, const gpr_wide_block *block, uint64_t count, gpr_dtype dtype,
                    void *elements);

/* Turns a block of real numbers of any sort into doubles in place. */
void gpr_widen_to_double(gpr_wide wide, uint64_t count, gpr_wide_block *block);

/* Converts `count` elements; source and destination do not overlap. */
void gpr_convert(gpr_dtype from, const void *source, gpr_dtype to, void *destination,
                 uint64_t count);

/* Conversions with round to nearest, ties to even; NaN stays NaN. */
float gpr_half_to_float(uint16_t bits);
uint16_t gpr_float_to_half(float value);
uint16_t gpr_double_to_half(double value);
float gpr_bfloat_to_float(uint16_t bits);
uint16_t gpr_double_to_bfloat(double value);

/* CMPLX, which the headers of some C libraries keep from compilers other than GCC. */
static inline double _Complex gpr_complex(double re, double im)
{
    return __builtin_complex(re, im);
}

#endif
