/* The slow reference that reductions are tested against: one element at a time, in long double and 128-bit integers,
 * from the definitions and not from the library's own conversions. */
#ifndef GPR_TEST_NAIVE_H
#define GPR_TEST_NAIVE_H

#include <math.h>
#include <string.h>

#include "rules.h"

typedef __int128 naive_int;

typedef struct naive_value {
    int is_float;
    naive_int i;
    long double f;
} naive_value;

static inline gpr_kind naive_kind(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind;
}

static inline int naive_is_float(gpr_dtype dtype)
{
    return naive_kind(dtype) == GPR_KIND_FLOAT;
}

/* Significand bits and least exponent of a float type. */
static inline void naive_format(gpr_dtype dtype, int *digits, int *least, int *most)
{
    *digits = dtype == GPR_FLOAT16 ? 11 : dtype == GPR_BFLOAT16 ? 8 : dtype == GPR_FLOAT32 ? 24 : 53;
    *least = dtype == GPR_FLOAT16 ? -24 : dtype == GPR_BFLOAT16 ? -133 : dtype == GPR_FLOAT32 ? -149 : -1074;
    *most = dtype == GPR_FLOAT16 ? 16 : dtype == GPR_FLOAT64 ? 1024 : 128;
}

/* x rounded to the nearest value of a float type, ties to even. */
static inline long double naive_round(long double x, gpr_dtype dtype)
{
    int digits, least, most, exponent;
    long double step;

    naive_format(dtype, &digits, &least, &most);
    if (x == 0 || isnan(x) || isinf(x)) return x;
    (void)frexpl(x, &exponent);
    step = ldexpl(1, exponent - digits > least ? exponent - digits : least);
    x = nearbyintl(x / step) * step;
    return fabsl(x) >= ldexpl(1, most) ? copysignl(INFINITY, x) : x;
}

/* Distance between neighbours of a float type at x. */
static inline long double naive_step(long double x, gpr_dtype dtype)
{
    int digits, least, most, exponent;

    naive_format(dtype, &digits, &least, &most);
    if (x == 0 || isnan(x) || isinf(x)) return ldexpl(1, least);
    (void)frexpl(x, &exponent);
    return ldexpl(1, exponent - digits > least ? exponent - digits : least);
}

static inline long double naive_decode16(uint16_t bits, int fraction, int bias)
{
    const int exponent = (bits & 0x7fff) >> fraction, top = (1 << (15 - fraction)) - 1;
    const int low = bits & ((1 << fraction) - 1);
    long double value;

    if (exponent == top)
        value = low != 0 ? (long double)NAN : (long double)INFINITY;
    else if (exponent == 0)
        value = ldexpl(low, 1 - bias - fraction);
    else
        value = ldexpl(low + (1 << fraction), exponent - bias - fraction);
    return bits & 0x8000 ? -value : value;
}

static inline naive_value naive_load(gpr_dtype dtype, const void *address)
{
    naive_value v = {naive_is_float(dtype), 0, 0};
    const size_t bytes = gpr_dtype_rows[dtype].bytes;
    uint64_t bits = 0;
    float f32;
    double f64;

    memcpy(&bits, address, bytes);
    memcpy(&f32, address, bytes < 4 ? bytes : 4);
    memcpy(&f64, &bits, 8);
    if (dtype == GPR_FLOAT16)
        v.f = naive_decode16((uint16_t)bits, 10, 15);
    else if (dtype == GPR_BFLOAT16)
        v.f = naive_decode16((uint16_t)bits, 7, 127);
    else if (dtype == GPR_FLOAT32)
        v.f = f32;
    else if (dtype == GPR_FLOAT64)
        v.f = f64;
    else if (dtype == GPR_BOOL)
        v.i = bits != 0;
    else {
        v.i = bits;
        if (naive_kind(dtype) == GPR_KIND_SIGNED && bits >> (bytes * 8 - 1)) v.i -= (naive_int)1 << (bytes * 8);
    }
    return v;
}

static inline int naive_truth(naive_value v)
{
    return v.is_float ? v.f != 0 : v.i != 0;
}

/* v as a value of `dtype`; floats that become integers are expected in range. */
static inline naive_value naive_cast(naive_value v, gpr_dtype dtype)
{
    naive_value out = {naive_is_float(dtype), 0, 0};

    if (dtype == GPR_BOOL) {
        out.i = naive_truth(v);
    } else if (out.is_float) {
        out.f = naive_round(v.is_float ? v.f : (long double)v.i, dtype);
    } else {
        const int bits = (int)gpr_dtype_rows[dtype].bytes * 8;
        const naive_int range = (naive_int)1 << bits;

        out.i = v.is_float ? (naive_int)v.f : v.i;
        out.i = (out.i % range + range) % range;
        if (naive_kind(dtype) == GPR_KIND_SIGNED && out.i >= range / 2) out.i -= range;
    }
    return out;
}

/* A reduction in progress. */
typedef struct naive_fold {
    naive_value acc;
    long double magnitude; /* sum of |x|, for the error bound */
    uint64_t count;
} naive_fold;

static inline void naive_step_fold(naive_fold *fold, const gpr_rule *rule, naive_value element)
{
    const naive_value x = naive_cast(element, rule->compute);
    naive_value *acc = &fold->acc;
    const gpr_operator op = rule->op;
    const int first = fold->count++ == 0;

    if (op == GPR_OP_ANY || op == GPR_OP_ALL) {
        const int truth = naive_truth(element);
        *acc = (naive_value){0, first ? truth : op == GPR_OP_ANY ? acc->i || truth : acc->i && truth, 0};
    } else if (rule->compute == GPR_BOOL && op != GPR_OP_MIN && op != GPR_OP_MAX) {
        *acc = (naive_value){0, first ? x.i : op == GPR_OP_PROD ? acc->i && x.i : acc->i || x.i, 0};
    } else if (first) {
        *acc = x;
        fold->magnitude = fabsl(x.f);
    } else if (op == GPR_OP_MIN || op == GPR_OP_MAX) {
        const int better = x.is_float ? (op == GPR_OP_MIN ? x.f < acc->f : x.f > acc->f)
                                      : (op == GPR_OP_MIN ? x.i < acc->i : x.i > acc->i);
        if (better || (x.is_float && isnan(x.f) && !isnan(acc->f))) *acc = x;
        if (acc->is_float && isnan(acc->f)) acc->f = NAN;
    } else if (x.is_float) {
        acc->f = op == GPR_OP_PROD ? acc->f * x.f : acc->f + x.f;
        fold->magnitude += fabsl(x.f);
    } else {
        /* 64 bits are all that any result sees. */
        const uint64_t a = (uint64_t)acc->i, b = (uint64_t)x.i;
        acc->i = op == GPR_OP_PROD ? a * b : a + b;
    }
}

/* Whether `result` is what the fold comes to. Float sums may err by their accumulation in doubles and by one
 * rounding. */
static inline int naive_agrees(const naive_fold *fold, const gpr_rule *rule, const void *result)
{
    const naive_value got = naive_load(rule->result, result);
    naive_value want = fold->acc;
    long double slack = 0;

    if (rule->op == GPR_OP_MIN || rule->op == GPR_OP_MAX) {
        if (!want.is_float) return got.i == want.i;
        return isnan(want.f) ? isnan(got.f) : got.f == want.f;
    }
    if (fold->acc.is_float) {
        const long double n = (long double)fold->count;
        const long double scale = rule->op == GPR_OP_PROD ? fabsl(want.f) : fold->magnitude;
        slack = ldexpl(1, -53) * scale * (rule->op == GPR_OP_PROD ? 2 * n + 4 : 700);
        if (n < 100) slack = ldexpl(1, -53) * scale * (2 * n + 4);
    } else {
        want = naive_cast(want, rule->compute);
    }
    if (rule->divide) {
        if (want.is_float)
            want.f /= (long double)fold->count;
        else
            want.f = (double)want.i / (double)fold->count; /* as NumPy divides integers */
        slack = slack / (long double)fold->count + fabsl(want.f) * ldexpl(1, -52);
        want.is_float = 1;
    }
    if (!naive_is_float(rule->result)) {
        /* A wrapped sum of negative numbers, read unsigned and divided, may round to what no integer type holds. */
        if (want.is_float && want.f >= 0x1p64L) return 1;
        want = want.is_float && rule->result != GPR_BOOL ? (naive_value){0, (naive_int)(double)want.f, 0}
                                                         : naive_cast(want, rule->result);
        return got.i == naive_cast(want, rule->result).i;
    }
    if (!want.is_float) want.f = (long double)want.i;
    if (isnan(want.f)) return isnan(got.f);
    if (isinf(want.f)) return got.f == want.f;
    if (got.f == naive_round(want.f, rule->result)) return 1;
    return got.f >= naive_round(want.f - slack, rule->result) && got.f <= naive_round(want.f + slack, rule->result);
}

#endif
