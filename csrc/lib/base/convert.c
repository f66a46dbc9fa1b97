/* Element conversions in blocks, and the half-precision conversions that their loops inline; see
 * convert.h. */
#include "lib/base/convert.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#include "lib/base/float_bits.h"

/* ---------------------------------------------------------------- half precision ------------- */

float gpr_half_to_float(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13;
    /* Scaling by 2^112 moves the exponent's bias, and makes subnormals normal. */
    uint32_t result = gpr_bits_of_float(gpr_float_of_bits(magnitude) * 0x1p112f);

    if (magnitude >= 0x0f800000u) result = magnitude | 0x7f800000u;
    return gpr_float_of_bits(result | sign);
}

float gpr_bfloat_to_float(uint16_t bits)
{
    return gpr_float_of_bits((uint32_t)bits << 16);
}

/* A 16-bit float of a sign, an exponent of EXPONENT bits and a fraction. `smallest` is the smallest
 * normal number, `scale` brings the subnormals' step to 1, `overflow` is the least magnitude that
 * rounds to infinity. */
static uint16_t double_to_16(double value, int fraction, int bias, double smallest, double scale,
                             double overflow)
{
    const uint64_t bits = gpr_bits_of_double(value);
    const uint16_t sign = (uint16_t)(bits >> 63 << 15);
    const uint64_t magnitude_bits = bits & ~(UINT64_C(1) << 63);
    const double magnitude = fabs(value);
    const int shift = 52 - fraction;
    uint16_t result;

    if (isnan(value)) {
        result = (uint16_t)(((1u << (15 - fraction)) - 1) << fraction | 1u << (fraction - 1));
    } else if (magnitude >= overflow) {
        result = (uint16_t)(((1u << (15 - fraction)) - 1) << fraction);
    } else if (magnitude < smallest) {
        /* Adding 2^52 leaves the rounded integer in the low bits of the sum. */
        result = (uint16_t)gpr_bits_of_double(magnitude * scale + 0x1p52);
    } else {
        const uint64_t half = (UINT64_C(1) << (shift - 1)) - 1 + (magnitude_bits >> shift & 1);
        result = (uint16_t)((magnitude_bits + half) >> shift) -
                 (uint16_t)((1023u - (unsigned)bias) << fraction);
    }
    return (uint16_t)(result | sign);
}

uint16_t gpr_double_to_half(double value)
{
    return double_to_16(value, 10, 15, 0x1p-14, 0x1p24, 65520.0);
}

uint16_t gpr_float_to_half(float value)
{
    return gpr_double_to_half(value); /* the double is exact: one rounding */
}

uint16_t gpr_double_to_bfloat(double value)
{
    return double_to_16(value, 7, 127, 0x1p-126, 0x1p133, 0x1.ffp127);
}

/* ---------------------------------------------------------------- one element ---------------- */

/* Out of range and NaN become as the processor's conversion instruction converts them, without the
 * undefined cast. */
static int64_t truncate_to_int64(double value)
{
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

static int32_t truncate_to_int32(double value)
{
    return value > -0x1p31 - 1 && value < 0x1p31 ? (int32_t)value : INT32_MIN;
}

/* The instruction is signed: the upper half of the range is brought down to it and back up. */
static uint64_t truncate_to_uint64(double value)
{
    if (value >= 0x1p63) return (uint64_t)truncate_to_int64(value - 0x1p63) ^ UINT64_C(1) << 63;
    return (uint64_t)truncate_to_int64(value);
}

/* How a dtype's stored form widens (IN_) and how each sort of wide value becomes it (FROM_INT_,
 * FROM_FLOAT_). Rows that share a rule share it by kind; the two 16-bit floats and the sizes of
 * integers differ by name. */
#define IN_int8(x) (x)
#define IN_int16(x) (x)
#define IN_int32(x) (x)
#define IN_int64(x) (x)
#define IN_uint8(x) (x)
#define IN_uint16(x) (x)
#define IN_uint32(x) (x)
#define IN_uint64(x) (x)
#define IN_bool(x) ((x) != 0)
#define IN_float16(x) gpr_half_to_float(x)
#define IN_bfloat16(x) gpr_bfloat_to_float(x)
#define IN_float32(x) (x)
#define IN_float64(x) (x)
#define IN_complex64(x) (x)
#define IN_complex128(x) (x)

#define FROM_INT_int8(x) ((int8_t)(uint8_t)(x))
#define FROM_INT_int16(x) ((int16_t)(uint16_t)(x))
#define FROM_INT_int32(x) ((int32_t)(uint32_t)(x))
#define FROM_INT_int64(x) ((int64_t)(x))
#define FROM_INT_uint8(x) ((uint8_t)(x))
#define FROM_INT_uint16(x) ((uint16_t)(x))
#define FROM_INT_uint32(x) ((uint32_t)(x))
#define FROM_INT_uint64(x) ((uint64_t)(x))
#define FROM_INT_bool(x) ((x) != 0)
#define FROM_INT_float16(x) gpr_double_to_half((double)(x))
#define FROM_INT_bfloat16(x) gpr_double_to_bfloat((double)(x))
#define FROM_INT_float32(x) ((float)(x))
#define FROM_INT_float64(x) ((double)(x))
#define FROM_INT_complex64(x) ((float _Complex)(float)(x))
#define FROM_INT_complex128(x) ((double _Complex)(double)(x))

#define FROM_FLOAT_int8(x) ((int8_t)(uint8_t)(uint32_t)truncate_to_int32(x))
#define FROM_FLOAT_int16(x) ((int16_t)(uint16_t)(uint32_t)truncate_to_int32(x))
#define FROM_FLOAT_int32(x) truncate_to_int32(x)
#define FROM_FLOAT_int64(x) truncate_to_int64(x)
#define FROM_FLOAT_uint8(x) ((uint8_t)(uint32_t)truncate_to_int32(x))
#define FROM_FLOAT_uint16(x) ((uint16_t)(uint32_t)truncate_to_int32(x))
#define FROM_FLOAT_uint32(x) ((uint32_t)(uint64_t)truncate_to_int64(x))
#define FROM_FLOAT_uint64(x) truncate_to_uint64(x)
#define FROM_FLOAT_bool(x) ((x) != 0)
#define FROM_FLOAT_float16(x) gpr_double_to_half(x)
#define FROM_FLOAT_bfloat16(x) gpr_double_to_bfloat(x)
#define FROM_FLOAT_float32(x) ((float)(x))
#define FROM_FLOAT_float64(x) (x)
#define FROM_FLOAT_complex64(x) ((float _Complex)(float)(x))
#define FROM_FLOAT_complex128(x) ((double _Complex)(x))

/* Of a complex number its real part, except where both parts count. */
#define FROM_COMPLEX_bool(x) (creal(x) != 0 || cimag(x) != 0)
#define FROM_COMPLEX_complex64(x) ((float _Complex)(x))
#define FROM_COMPLEX_complex128(x) (x)
#define FROM_COMPLEX_int8(x) FROM_FLOAT_int8(creal(x))
#define FROM_COMPLEX_int16(x) FROM_FLOAT_int16(creal(x))
#define FROM_COMPLEX_int32(x) FROM_FLOAT_int32(creal(x))
#define FROM_COMPLEX_int64(x) FROM_FLOAT_int64(creal(x))
#define FROM_COMPLEX_uint8(x) FROM_FLOAT_uint8(creal(x))
#define FROM_COMPLEX_uint16(x) FROM_FLOAT_uint16(creal(x))
#define FROM_COMPLEX_uint32(x) FROM_FLOAT_uint32(creal(x))
#define FROM_COMPLEX_uint64(x) FROM_FLOAT_uint64(creal(x))
#define FROM_COMPLEX_float16(x) FROM_FLOAT_float16(creal(x))
#define FROM_COMPLEX_bfloat16(x) FROM_FLOAT_bfloat16(creal(x))
#define FROM_COMPLEX_float32(x) FROM_FLOAT_float32(creal(x))
#define FROM_COMPLEX_float64(x) FROM_FLOAT_float64(creal(x))

/* ---------------------------------------------------------------- blocks --------------------- */

#define WIDE_GPR_KIND_BOOL u64
#define WIDE_GPR_KIND_SIGNED i64
#define WIDE_GPR_KIND_UNSIGNED u64
#define WIDE_GPR_KIND_FLOAT f64
#define WIDE_GPR_KIND_COMPLEX c128
#define JOIN_(a, b) a##b
#define WIDE_MEMBER(kind) JOIN_(WIDE_, kind)

gpr_wide gpr_wide_of(gpr_dtype dtype)
{
    const gpr_kind kind = gpr_dtype_rows[dtype].kind;

    if (kind == GPR_KIND_COMPLEX) return GPR_WIDE_COMPLEX;
    if (kind == GPR_KIND_FLOAT) return GPR_WIDE_FLOAT;
    return kind == GPR_KIND_SIGNED ? GPR_WIDE_SIGNED : GPR_WIDE_UNSIGNED;
}

void gpr_load_wide(gpr_dtype dtype, const void *elements, uint64_t count, gpr_wide_block *block)
{
    const char *bytes = elements;

    switch (dtype) {
#define GPR_DTYPE(ID, name, size, kind, c_type, ...)          \
    case GPR_##ID:                                            \
        for (uint64_t i = 0; i < count; i++) {                \
            c_type element;                                   \
            memcpy(&element, bytes + i * size, size);         \
            block->WIDE_MEMBER(kind)[i] = IN_##name(element); \
        }                                                     \
        break;
#include "dtypes.def"
#undef GPR_DTYPE
    default: break;
    }
}

#define STORE_LOOP(member, convert, size, c_type)         \
    for (uint64_t i = 0; i < count; i++) {                \
        const c_type element = convert(block->member[i]); \
        memcpy(bytes + i * size, &element, size);         \
    }

/* complex64 part by part, as compilers do not convert complex numbers in vectors. */
static void store_pairs(const gpr_wide_block *block, uint64_t count, char *elements)
{
    for (uint64_t i = 0; i < 2 * count; i++) {
        const float part = (float)block->f64[i];
        memcpy(elements + i * sizeof part, &part, sizeof part);
    }
}

void gpr_store_wide(gpr_wide wide, const gpr_wide_block *block, uint64_t count, gpr_dtype dtype,
                    void *elements)
{
    char *bytes = elements;

    if (wide == GPR_WIDE_COMPLEX && dtype == GPR_COMPLEX64) {
        store_pairs(block, count, elements);
        return;
    }
    switch (dtype) {
#define GPR_DTYPE(ID, name, size, kind, c_type, ...)            \
    case GPR_##ID:                                              \
        if (wide == GPR_WIDE_COMPLEX) {                         \
            STORE_LOOP(c128, FROM_COMPLEX_##name, size, c_type) \
        } else if (wide == GPR_WIDE_FLOAT) {                    \
            STORE_LOOP(f64, FROM_FLOAT_##name, size, c_type)    \
        } else if (wide == GPR_WIDE_SIGNED) {                   \
            STORE_LOOP(i64, FROM_INT_##name, size, c_type)      \
        } else {                                                \
            STORE_LOOP(u64, FROM_INT_##name, size, c_type)      \
        }                                                       \
        break;
#include "dtypes.def"
#undef GPR_DTYPE
    default: break;
    }
}

void gpr_widen_to_double(gpr_wide wide, uint64_t count, gpr_wide_block *block)
{
    if (wide == GPR_WIDE_SIGNED) {
        for (uint64_t i = 0; i < count; i++) block->f64[i] = (double)block->i64[i];
    } else if (wide == GPR_WIDE_UNSIGNED) {
        for (uint64_t i = 0; i < count; i++) block->f64[i] = (double)block->u64[i];
    }
}

/* Conversions that are one instruction of vectors, and one rounding, as the long way is. */
#define DEFINE_DIRECT(name, From, To, MADE)                                                   \
    static void name(const void *restrict source, void *restrict destination, uint64_t count) \
    {                                                                                         \
        for (uint64_t i = 0; i < count; i++) {                                                \
            From x;                                                                           \
            memcpy(&x, (const char *)source + i * sizeof x, sizeof x);                        \
            const To y = MADE;                                                                \
            memcpy((char *)destination + i * sizeof y, &y, sizeof y);                         \
        }                                                                                     \
    }
#define DIRECT_PAIRS(PAIR)                  \
    PAIR(INT8, int8_t, FLOAT32, float)      \
    PAIR(UINT8, uint8_t, FLOAT32, float)    \
    PAIR(INT16, int16_t, FLOAT32, float)    \
    PAIR(UINT16, uint16_t, FLOAT32, float)  \
    PAIR(INT32, int32_t, FLOAT32, float)    \
    PAIR(INT8, int8_t, FLOAT64, double)     \
    PAIR(UINT8, uint8_t, FLOAT64, double)   \
    PAIR(INT16, int16_t, FLOAT64, double)   \
    PAIR(UINT16, uint16_t, FLOAT64, double) \
    PAIR(INT32, int32_t, FLOAT64, double)   \
    PAIR(FLOAT32, float, FLOAT64, double)   \
    PAIR(FLOAT64, double, FLOAT32, float)
#define DEFINE_PAIR(FROM, From, TO, To) DEFINE_DIRECT(convert_##FROM##_##TO, From, To, (To)x)
DIRECT_PAIRS(DEFINE_PAIR)

/* To complex numbers as pairs: compilers make no vectors of conversions of complex numbers. */
typedef struct pair_of_floats {
    float re, im;
} pair_of_floats;
typedef struct pair_of_doubles {
    double re, im;
} pair_of_doubles;
DEFINE_DIRECT(convert_FLOAT32_COMPLEX64, float, pair_of_floats, {.re = x})
DEFINE_DIRECT(convert_FLOAT32_COMPLEX128, float, pair_of_doubles, {.re = (double)x})
DEFINE_DIRECT(convert_FLOAT64_COMPLEX128, double, pair_of_doubles, {.re = x})

static void convert_COMPLEX64_COMPLEX128(const void *restrict source, void *restrict destination,
                                         uint64_t count)
{
    convert_FLOAT32_FLOAT64(source, destination, 2 * count);
}

typedef void (*direct_conversion)(const void *restrict source, void *restrict destination,
                                  uint64_t count);

/* NULL where there is none. */
static direct_conversion direct_of(gpr_dtype from, gpr_dtype to)
{
    static const direct_conversion direct[GPR_DTYPE_COUNT][GPR_DTYPE_COUNT] = {
#define PAIR_OF(FROM, From, TO, To) [GPR_##FROM][GPR_##TO] = convert_##FROM##_##TO,
        [GPR_FLOAT32][GPR_COMPLEX64] = convert_FLOAT32_COMPLEX64,
        [GPR_FLOAT32][GPR_COMPLEX128] = convert_FLOAT32_COMPLEX128,
        [GPR_FLOAT64][GPR_COMPLEX128] = convert_FLOAT64_COMPLEX128,
        [GPR_COMPLEX64][GPR_COMPLEX128] = convert_COMPLEX64_COMPLEX128,
        DIRECT_PAIRS(PAIR_OF)};

    return direct[from][to];
}

void gpr_convert(gpr_dtype from, const void *source, gpr_dtype to, void *destination,
                 uint64_t count)
{
    const direct_conversion direct = direct_of(from, to);

    if (direct != NULL) {
        direct(source, destination, count);
        return;
    }
    const size_t from_bytes = gpr_dtype_rows[from].bytes, to_bytes = gpr_dtype_rows[to].bytes;
    const gpr_wide wide = gpr_wide_of(from);
    gpr_wide_block block;

    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done;
        const uint64_t step = left < GPR_WIDE_ELEMENTS ? left : GPR_WIDE_ELEMENTS;

        gpr_load_wide(from, (const char *)source + done * from_bytes, step, &block);
        gpr_store_wide(wide, &block, step, to, (char *)destination + done * to_bytes);
        done += step;
    }
}
