/* The slow reference that reductions are tested against: one element at a time, in long double and
 * 128-bit integers, from the definitions and not from the library's own conversions. */
#ifndef GPR_TEST_NAIVE_H
#define GPR_TEST_NAIVE_H

#include <complex.h>
#include <math.h>
#include <string.h>

#include "lib/rules/rules.h"

typedef __int128 naive_int;

typedef struct naive_value {
    int is_float;
    naive_int i;
    long double f, im; /* of complex numbers, im too */
} naive_value;

static inline gpr_kind naive_kind(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind;
}

static inline int naive_is_complex(gpr_dtype dtype)
{
    return naive_kind(dtype) == GPR_KIND_COMPLEX;
}

/* Complex numbers are floats with another one beside. */
static inline int naive_is_float(gpr_dtype dtype)
{
    return naive_kind(dtype) == GPR_KIND_FLOAT || naive_is_complex(dtype);
}

static inline gpr_dtype naive_part(gpr_dtype dtype)
{
    return dtype == GPR_COMPLEX64 ? GPR_FLOAT32 : dtype == GPR_COMPLEX128 ? GPR_FLOAT64 : dtype;
}

/* Significand bits and least exponent of a float type. */
static inline void naive_format(gpr_dtype dtype, int *digits, int *least, int *most)
{
    *digits = dtype == GPR_FLOAT16    ? 11
              : dtype == GPR_BFLOAT16 ? 8
              : dtype == GPR_FLOAT32  ? 24
                                      : 53;
    *least = dtype == GPR_FLOAT16    ? -24
             : dtype == GPR_BFLOAT16 ? -133
             : dtype == GPR_FLOAT32  ? -149
                                     : -1074;
    *most = dtype == GPR_FLOAT16 ? 16 : dtype == GPR_FLOAT64 ? 1024 : 128;
}

/* x rounded to the nearest value of a float type, ties to even. */
static inline long double naive_round(long double x, gpr_dtype dtype)
{
    int digits, least, most, exponent;
    long double step;

    naive_format(naive_part(dtype), &digits, &least, &most);
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

    naive_format(naive_part(dtype), &digits, &least, &most);
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
    naive_value v = {naive_is_float(dtype), 0, 0, 0};
    const size_t bytes = gpr_dtype_rows[dtype].bytes;
    uint64_t bits = 0;
    float f32;
    double f64;

    if (naive_is_complex(dtype)) {
        v = naive_load(naive_part(dtype), address);
        v.im = naive_load(naive_part(dtype), (const char *)address + bytes / 2).f;
        return v;
    }
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
        if (naive_kind(dtype) == GPR_KIND_SIGNED && bits >> (bytes * 8 - 1))
            v.i -= (naive_int)1 << (bytes * 8);
    }
    return v;
}

/* An int64 as it is reduced where NaT is to be the largest. */
static inline void naive_put_nat_last(char *element)
{
    uint64_t bits;

    memcpy(&bits, element, sizeof bits);
    bits--;
    memcpy(element, &bits, sizeof bits);
}

static inline int naive_truth(naive_value v)
{
    return v.is_float ? v.f != 0 || v.im != 0 : v.i != 0;
}

/* v as a value of `dtype`; floats that become integers are expected in range. */
static inline naive_value naive_cast(naive_value v, gpr_dtype dtype)
{
    naive_value out = {naive_is_float(dtype), 0, 0, 0};

    if (dtype == GPR_BOOL) {
        out.i = naive_truth(v);
    } else if (out.is_float) {
        out.f = naive_round(v.is_float ? v.f : (long double)v.i, dtype);
        if (naive_is_complex(dtype)) out.im = naive_round(v.im, dtype);
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
    naive_value acc, high; /* of ranges, the smallest and the largest */
    long double magnitude; /* sum of |x|, for the error bound */
    uint64_t seen, count;  /* elements passed, and those of them that were not left out */
    uint64_t position;     /* of acc */
    long double mean, mean_im, squares;
} naive_fold;

static inline int naive_is_nan(naive_value v)
{
    return v.is_float && (isnan(v.f) || isnan(v.im));
}

/* Whether x is less than y: complex numbers by their real parts first. */
static inline int naive_less(naive_value x, naive_value y)
{
    if (!x.is_float) return x.i < y.i;
    return x.f < y.f || (x.f == y.f && x.im < y.im);
}

/* Whether x replaces `kept`, which is before it. */
static inline int naive_takes(naive_value x, naive_value kept, int largest)
{
    if (naive_is_nan(kept)) return 0;
    return naive_is_nan(x) || (largest ? naive_less(kept, x) : naive_less(x, kept));
}

/* Magnitude of the finite parts of x. */
static inline long double naive_size(naive_value x)
{
    return (isfinite(x.f) ? fabsl(x.f) : 0) + (isfinite(x.im) ? fabsl(x.im) : 0);
}

/* Passes an element that a mask leaves out. */
static inline void naive_pass(naive_fold *fold)
{
    fold->seen++;
}

static inline void naive_step_fold(naive_fold *fold, const gpr_rule *rule, naive_value element)
{
    const uint64_t position = fold->seen++;
    const gpr_operator op = rule->op;
    naive_value *acc = &fold->acc;
    long double re;

    if (rule->skip_nan && naive_is_nan(element)) return;
    const naive_value x =
        rule->compute == rule->element ? element : naive_cast(element, rule->compute);
    const int first = fold->count++ == 0;
    switch (op) {
    case GPR_OP_ANY:
    case GPR_OP_ALL:
    case GPR_OP_LOGICAL_XOR:
    case GPR_OP_COUNT_NONZERO: {
        const int truth = naive_truth(element);
        const naive_int before = first ? op == GPR_OP_ALL : acc->i;
        *acc = (naive_value){.i = op == GPR_OP_ANY           ? before || truth
                                  : op == GPR_OP_ALL         ? before && truth
                                  : op == GPR_OP_LOGICAL_XOR ? before != truth
                                                             : before + truth};
        return;
    }
    case GPR_OP_BITWISE_AND: acc->i = first ? x.i : acc->i & x.i; return;
    case GPR_OP_BITWISE_OR: acc->i = first ? x.i : acc->i | x.i; return;
    case GPR_OP_BITWISE_XOR: acc->i = first ? x.i : acc->i ^ x.i; return;
    case GPR_OP_VAR:
    case GPR_OP_STD:
        re = x.is_float ? x.f : (long double)x.i;
        {
            const long double apart = re - fold->mean, apart_im = x.im - fold->mean_im;
            fold->mean += apart / (long double)fold->count;
            fold->mean_im += apart_im / (long double)fold->count;
            fold->squares += apart * (re - fold->mean) + apart_im * (x.im - fold->mean_im);
            fold->magnitude += re * re + x.im * x.im;
        }
        return;
    case GPR_OP_MIN:
    case GPR_OP_MAX:
    case GPR_OP_ARGMIN:
    case GPR_OP_ARGMAX:
    case GPR_OP_PTP:
    case GPR_OP_MINMAX:
        if (first || naive_takes(x, *acc, op == GPR_OP_MAX || op == GPR_OP_ARGMAX)) {
            *acc = x;
            fold->position = position;
        }
        if (first || naive_takes(x, fold->high, 1)) fold->high = x;
        return;
    default: break;
    }
    if (rule->compute == GPR_BOOL) {
        *acc = (naive_value){.i = first ? x.i : op == GPR_OP_PROD ? acc->i && x.i : acc->i || x.i};
    } else if (first) {
        *acc = x;
        fold->magnitude = naive_size(x);
    } else if (x.is_float) {
        const naive_value y = *acc;
        acc->f = op == GPR_OP_PROD ? y.f * x.f - (naive_is_complex(rule->compute) ? y.im * x.im : 0)
                                   : y.f + x.f;
        acc->im = op == GPR_OP_PROD ? y.f * x.im + y.im * x.f : y.im + x.im;
        if (!naive_is_complex(rule->compute)) acc->im = 0;
        fold->magnitude += naive_size(x);
    } else {
        /* 64 bits are all that any result sees. */
        const uint64_t a = (uint64_t)acc->i, b = (uint64_t)x.i;
        acc->i = op == GPR_OP_PROD ? a * b : a + b;
    }
}

/* Whether `got` is `want` rounded to the type, or as near as `slack`. */
static inline int naive_near(long double got, long double want, long double slack, gpr_dtype dtype)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    if (got == naive_round(want, dtype)) return 1;
    return got >= naive_round(want - slack, dtype) && got <= naive_round(want + slack, dtype);
}

static inline int naive_same(naive_value got, naive_value want)
{
    if (!want.is_float) return got.i == want.i;
    if (naive_is_nan(want)) return naive_is_nan(got);
    return got.f == want.f && got.im == want.im;
}

/* Bounds of the fold's variance or deviation before rounding, if the divisor is positive. */
typedef struct naive_range {
    long double low, high;
} naive_range;

static inline naive_range naive_spread(const naive_fold *fold, const gpr_rule *rule)
{
    const long double n = (long double)fold->count, divisor = n > rule->ddof ? n - rule->ddof : 0;
    /* Roundings of elements folded one after the other add up as a random walk. */
    const long double error = ldexpl(1, -53) * fold->magnitude * (32 + 4 * sqrtl(n));
    const long double low = fold->squares > error ? (fold->squares - error) / divisor : 0;
    const long double high = (fold->squares + error) / divisor;

    if (rule->op == GPR_OP_VAR) return (naive_range){low, high};
    return (naive_range){sqrtl(low) * (1 - 0x1p-50L), sqrtl(high) * (1 + 0x1p-50L)};
}

/* NumPy's promotion of sums and products, in words. */
static inline gpr_dtype naive_sum_dtype(gpr_dtype dtype)
{
    switch (naive_kind(dtype)) {
    case GPR_KIND_FLOAT:
    case GPR_KIND_COMPLEX: return dtype;
    case GPR_KIND_UNSIGNED: return GPR_UINT64;
    default: return GPR_INT64;
    }
}

/* The dtype of NumPy's result; GPR_DTYPE_DEFAULT where NumPy refuses the elements. */
static inline gpr_dtype naive_result_dtype(gpr_operator op, gpr_dtype dtype)
{
    const gpr_dtype mean = naive_is_float(dtype) ? dtype : GPR_FLOAT64;

    switch (op) {
    case GPR_OP_SUM:
    case GPR_OP_PROD: return naive_sum_dtype(dtype);
    case GPR_OP_MIN:
    case GPR_OP_MAX:
    case GPR_OP_MINMAX: return dtype;
    case GPR_OP_PTP: return dtype == GPR_BOOL ? GPR_DTYPE_DEFAULT : dtype;
    case GPR_OP_MEAN: return mean;
    case GPR_OP_VAR:
    case GPR_OP_STD: return naive_part(mean);
    case GPR_OP_ANY:
    case GPR_OP_ALL:
    case GPR_OP_LOGICAL_XOR: return GPR_BOOL;
    case GPR_OP_ARGMIN:
    case GPR_OP_ARGMAX:
    case GPR_OP_COUNT_NONZERO: return GPR_INT64;
    case GPR_OP_BITWISE_AND:
    case GPR_OP_BITWISE_OR:
    case GPR_OP_BITWISE_XOR: return naive_is_float(dtype) ? GPR_DTYPE_DEFAULT : dtype;
    case GPR_OP_COUNT: break;
    }
    return GPR_DTYPE_DEFAULT;
}

/* The result of no elements, of an operator that has one and divides by nothing. */
static inline naive_value naive_of_nothing(const gpr_rule *rule)
{
    const int one = rule->op == GPR_OP_PROD || rule->op == GPR_OP_ALL;

    if (rule->op == GPR_OP_BITWISE_AND) return naive_cast((naive_value){.i = -1}, rule->result);
    return (naive_value){
        .is_float = naive_is_float(rule->compute) && rule->result != GPR_BOOL, .i = one, .f = one};
}

/* Whether `result` (and the one `output_stride` behind it) is the fold's. Float sums may err by
 * their accumulation in doubles and by one rounding. */
static inline int naive_agrees(const naive_fold *fold, const gpr_rule *rule, const void *result,
                               uint64_t output_stride)
{
    const naive_value got = naive_load(rule->result, result);
    const long double n = (long double)fold->count;
    naive_value want = fold->acc;
    long double slack = 0;

    switch (rule->op) {
    case GPR_OP_ARGMIN:
    case GPR_OP_ARGMAX: return got.i == (fold->count > 0 ? (naive_int)fold->position : -1);
    case GPR_OP_COUNT_NONZERO:
    case GPR_OP_LOGICAL_XOR: return got.i == want.i;
    case GPR_OP_BITWISE_AND:
        if (fold->count == 0) return got.i == naive_of_nothing(rule).i;
        return got.i == want.i;
    case GPR_OP_VAR:
    case GPR_OP_STD: {
        const naive_range range = naive_spread(fold, rule);
        const int divides = n > rule->ddof;
        if (n == 0 || isnan(fold->squares)) return isnan(got.f);
        /* as NumPy's nanvar, with any squares */
        if (!divides && rule->skip_nan) return isnan(got.f);
        if (!divides) return fold->squares == 0 ? isnan(got.f) || isinf(got.f) : isinf(got.f);
        return got.f >= naive_round(range.low, rule->result) &&
               got.f <= naive_round(range.high, rule->result);
    }
    case GPR_OP_MIN:
    case GPR_OP_MAX:
        if (fold->count == 0 && rule->skip_nan) return naive_is_nan(got);
        return fold->count == 0 || naive_same(got, want);
    case GPR_OP_MINMAX:
        return fold->count == 0 ||
               (naive_same(got, want) &&
                naive_same(naive_load(rule->result, (const char *)result + output_stride),
                           fold->high));
    case GPR_OP_PTP:
        if (fold->count == 0) return 1;
        if (!want.is_float)
            return got.i == naive_cast((naive_value){.i = fold->high.i - want.i}, rule->result).i;
        if (naive_is_nan(want)) return naive_is_nan(got);
        slack = ldexpl(1, -52) *
                (fabsl(fold->high.f) + fabsl(want.f) + fabsl(fold->high.im) + fabsl(want.im));
        return naive_near(got.f, fold->high.f - want.f, slack, rule->result) &&
               naive_near(got.im, fold->high.im - want.im, slack, rule->result);
    default: break;
    }
    if (fold->count == 0) want = naive_of_nothing(rule);
    if (want.is_float) {
        const long double scale =
            rule->op == GPR_OP_PROD ? fabsl(want.f) + fabsl(want.im) : fold->magnitude;
        slack = ldexpl(1, -53) * scale * (rule->op == GPR_OP_PROD ? 4 * n + 8 : 700);
        if (n < 100) slack = ldexpl(1, -53) * scale * (4 * n + 8);
    } else {
        want = naive_cast(want, rule->compute);
    }
    if (rule->divide) {
        if (want.is_float) {
            want.f /= n;
            want.im /= n;
        } else {
            want.f = (double)want.i / (double)fold->count; /* as NumPy divides integers */
        }
        slack = slack / n + naive_size(want) * ldexpl(1, -52);
        want.is_float = 1;
    }
    if (!naive_is_float(rule->result)) {
        /* A wrapped sum of negative numbers, read unsigned and divided, may round to what no
         * integer type holds. */
        if (want.is_float && (want.f >= 0x1p64L || isnan(want.f))) return 1;
        want = want.is_float && rule->result != GPR_BOOL
                   ? (naive_value){.i = (naive_int)(double)want.f}
                   : naive_cast(want, rule->result);
        return got.i == naive_cast(want, rule->result).i;
    }
    if (!want.is_float) want.f = (long double)want.i;
    /* Products of infinite complex numbers, or near the end of double's range and beyond, depend on
     * the order: they may be infinite or NaN. */
    if (rule->op == GPR_OP_PROD && naive_is_complex(rule->result) &&
        !(fabsl(want.f) < 0x1p1020L && fabsl(want.im) < 0x1p1020L) &&
        (!isfinite(got.f) || !isfinite(got.im)))
        return 1;
    return naive_near(got.f, want.f, slack, rule->result) &&
           (!naive_is_complex(rule->result) || naive_near(got.im, want.im, slack, rule->result));
}

#endif
