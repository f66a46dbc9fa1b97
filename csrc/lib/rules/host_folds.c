/* The folds on the host: they merge the accumulators of chunks, pieces and rows. The expressions
 * are those of shared/folds.h, which kernels and the loops of the CPU backend share. A fold's
 * identity is in its row of registry/folds.def; gpr_identity (accumulators.c) makes an accumulator
 * of it. */
#include "lib/rules/accumulators.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#include "lib/base/convert.h"

/* The folds over one real accumulator type: T is the type, U the unsigned type its sums and
 * products are computed in, so that they wrap without undefined behaviour (for floats, the type
 * itself). */
#define DEFINE_FOLD(T, U, member)                                                        \
    static void fold_##member(gpr_fold fold, const void *a, const void *b, void *result) \
    {                                                                                    \
        T x, y, value;                                                                   \
        memcpy(&x, a, sizeof x);                                                         \
        memcpy(&y, b, sizeof y);                                                         \
        switch (fold) {                                                                  \
        case GPR_FOLD_prod: value = (T)GPR_COMBINE_prod((U)x, (U)y); break;              \
        case GPR_FOLD_min: value = GPR_COMBINE_min(x, y); break;                         \
        case GPR_FOLD_max: value = GPR_COMBINE_max(x, y); break;                         \
        case GPR_FOLD_fmin: value = GPR_COMBINE_fmin(x, y); break;                       \
        case GPR_FOLD_fmax: value = GPR_COMBINE_fmax(x, y); break;                       \
        default: value = (T)GPR_COMBINE_sum((U)x, (U)y); break;                          \
        }                                                                                \
        memcpy(result, &value, sizeof value);                                            \
    }

DEFINE_FOLD(int8_t, uint8_t, i8)
DEFINE_FOLD(uint8_t, uint8_t, u8)
DEFINE_FOLD(int16_t, uint16_t, i16)
DEFINE_FOLD(uint16_t, uint16_t, u16)
DEFINE_FOLD(int32_t, uint32_t, i32)
DEFINE_FOLD(uint32_t, uint32_t, u32)
DEFINE_FOLD(int64_t, uint64_t, i64)
DEFINE_FOLD(uint64_t, uint64_t, u64)
DEFINE_FOLD(float, float, f32)
DEFINE_FOLD(double, double, f64)

static int is_nan(double _Complex x)
{
    return isnan(creal(x)) || isnan(cimag(x));
}

static int is_less(double _Complex x, double _Complex y)
{
    return !is_nan(x) && !is_nan(y) && GPR_COMPLEX_LESS(creal(x), cimag(x), creal(y), cimag(y));
}

static int is_greater(double _Complex x, double _Complex y)
{
    return is_less(y, x);
}

static double _Complex fold_complex(gpr_fold fold, double _Complex x, double _Complex y)
{
    switch (fold) {
    /* By hand: C's own product tests for infinities first, NumPy's does not. */
    case GPR_FOLD_prod:
        return gpr_complex(creal(x) * creal(y) - cimag(x) * cimag(y),
                           creal(x) * cimag(y) + cimag(x) * creal(y));
    case GPR_FOLD_min: return GPR_EXTREME(x, y, is_less, is_nan);
    case GPR_FOLD_max: return GPR_EXTREME(x, y, is_greater, is_nan);
    case GPR_FOLD_fmin: return GPR_EXTREME_NUMBER(x, y, is_less, is_nan);
    case GPR_FOLD_fmax: return GPR_EXTREME_NUMBER(x, y, is_greater, is_nan);
    default: return gpr_complex(creal(x) + creal(y), cimag(x) + cimag(y));
    }
}

static void widen_complex(gpr_dtype acc, const void *a, const void *b, double _Complex wide[2])
{
    gpr_convert(acc, a, GPR_COMPLEX128, &wide[0], 1);
    gpr_convert(acc, b, GPR_COMPLEX128, &wide[1], 1);
}

/* a fold b for numbers of type acc, at any address. */
static void fold_numbers(gpr_fold fold, gpr_dtype acc, const void *a, const void *b, void *result)
{
    double _Complex wide[2];

    switch (acc) {
    case GPR_INT8: fold_i8(fold, a, b, result); break;
    case GPR_UINT8: fold_u8(fold, a, b, result); break;
    case GPR_INT16: fold_i16(fold, a, b, result); break;
    case GPR_UINT16: fold_u16(fold, a, b, result); break;
    case GPR_INT32: fold_i32(fold, a, b, result); break;
    case GPR_UINT32: fold_u32(fold, a, b, result); break;
    case GPR_INT64: fold_i64(fold, a, b, result); break;
    case GPR_UINT64: fold_u64(fold, a, b, result); break;
    case GPR_FLOAT32: fold_f32(fold, a, b, result); break;
    case GPR_FLOAT64: fold_f64(fold, a, b, result); break;
    default:
        widen_complex(acc, a, b, wide);
        wide[0] = fold_complex(fold, wide[0], wide[1]);
        gpr_convert(GPR_COMPLEX128, &wide[0], acc, result, 1);
        break;
    }
}

static int is_bits_fold(gpr_fold fold)
{
    return gpr_is_bitwise(fold) || fold == GPR_FOLD_any || fold == GPR_FOLD_all ||
           fold == GPR_FOLD_odd;
}

static gpr_value fold_bits(gpr_fold fold, gpr_value a, gpr_value b)
{
    gpr_value value = {.bytes = {0}};

    switch (fold) {
    case GPR_FOLD_any: value.u64 = GPR_COMBINE_any(a.u64, b.u64); break;
    case GPR_FOLD_all: value.u64 = GPR_COMBINE_all(a.u64, b.u64); break;
    case GPR_FOLD_odd: value.u64 = GPR_COMBINE_odd(a.u64, b.u64); break;
    case GPR_FOLD_bit_and: value.u64 = GPR_COMBINE_bit_and(a.u64, b.u64); break;
    case GPR_FOLD_bit_or: value.u64 = GPR_COMBINE_bit_or(a.u64, b.u64); break;
    default: value.u64 = GPR_COMBINE_bit_xor(a.u64, b.u64); break;
    }
    return value;
}

#define DEFINE_PREFERS(member)                                                         \
    static int prefers_##member(gpr_fold fold, const gpr_value *a, const gpr_value *b) \
    {                                                                                  \
        return fold == GPR_FOLD_argmin                                                 \
                   ? GPR_PREFERS(a->member, b->member, GPR_LESS, GPR_IS_NAN)           \
                   : GPR_PREFERS(a->member, b->member, GPR_GREATER, GPR_IS_NAN);       \
    }

/* Numbers beside a position have 8 bytes or more. */
DEFINE_PREFERS(i64)
DEFINE_PREFERS(u64)
DEFINE_PREFERS(f64)

/* Whether argmin or argmax prefer the number of a to that of b, whatever their positions. */
static int prefers(gpr_fold fold, gpr_dtype acc, const gpr_value *a, const gpr_value *b)
{
    double _Complex wide[2];

    switch (acc) {
    case GPR_INT64: return prefers_i64(fold, a, b);
    case GPR_UINT64: return prefers_u64(fold, a, b);
    case GPR_FLOAT64: return prefers_f64(fold, a, b);
    default:
        widen_complex(acc, a->bytes, b->bytes, wide);
        return fold == GPR_FOLD_argmin ? GPR_PREFERS(wide[0], wide[1], is_less, is_nan)
                                       : GPR_PREFERS(wide[0], wide[1], is_greater, is_nan);
    }
}

static gpr_value fold_indexed(gpr_fold fold, gpr_dtype acc, gpr_value a, gpr_value b)
{
#define PREFERS(x, y) prefers(fold, acc, &(x), &(y))
    return GPR_KEEPS(a, a.position, b, b.position, PREFERS) ? a : b;
#undef PREFERS
}

/* Merges the moments of two sets (shared/folds.h). */
static gpr_value fold_moments(gpr_dtype acc, gpr_value a, gpr_value b)
{
    gpr_value value = {.count = a.count + b.count};
    double squared_distance;

    if (a.count == 0) return b;
    if (b.count == 0) return a;

    const double share = gpr_moments_share(a.count, b.count);

    if (acc == GPR_FLOAT64) {
        const double apart = gpr_mean_distance(a.mean[0], a.mean[1], b.mean[0], b.mean[1]);
        value.mean[0] = a.mean[0];
        value.mean[1] = a.mean[1] + apart * share;
        squared_distance = apart * apart;
    } else {
        const double re = creal(b.c128) - creal(a.c128), im = cimag(b.c128) - cimag(a.c128);
        value.c128 = gpr_complex(creal(a.c128) + re * share, cimag(a.c128) + im * share);
        squared_distance = re * re + im * im;
    }
    value.squares =
        a.squares + b.squares +
        gpr_squares_between(squared_distance, gpr_moments_share(b.count, a.count), b.count);
    return value;
}

gpr_value gpr_fold_acc(gpr_fold fold, gpr_dtype acc, gpr_value a, gpr_value b)
{
    gpr_value value = {.bytes = {0}};

    if (is_bits_fold(fold)) return fold_bits(fold, a, b);
    switch (gpr_acc_kind_of(fold)) {
    case GPR_ACC_NUMBER: fold_numbers(fold, acc, a.bytes, b.bytes, value.bytes); break;
    case GPR_ACC_INDEXED: return fold_indexed(fold, acc, a, b);
    case GPR_ACC_MOMENTS: return fold_moments(acc, a, b);
    case GPR_ACC_RANGE:
        fold_numbers(GPR_FOLD_min, acc, a.bytes, b.bytes, value.bytes);
        fold_numbers(GPR_FOLD_max, acc, a.high, b.high, value.high);
        break;
    case GPR_ACC_SUM_COUNT:
        fold_numbers(GPR_FOLD_sum, acc, a.bytes, b.bytes, value.bytes);
        value.count = GPR_COMBINE_count(a.count, b.count);
        break;
    case GPR_ACC_EXACT:
    case GPR_ACC_EXACT_MOMENTS:
    case GPR_ACC_EXACT_PRODUCTS: break; /* no gpr_value holds one: exact.c adds them */
    }
    return value;
}

gpr_value gpr_fold_partials(gpr_fold fold, gpr_dtype compute, gpr_dtype acc, gpr_value *values,
                            uint64_t count)
{
    if (count == 0) return gpr_identity(fold, compute, acc);
    /* Neighbours pair up until one is left: each level is packed to the front, so that memory
     * is read in sequence. */
    while (count > 1) {
        const uint64_t pairs = count / 2;

        for (uint64_t i = 0; i < pairs; i++)
            values[i] = gpr_fold_acc(fold, acc, values[2 * i], values[2 * i + 1]);
        if (count % 2 != 0) values[pairs] = values[count - 1];
        count = pairs + count % 2;
    }
    return values[0];
}
