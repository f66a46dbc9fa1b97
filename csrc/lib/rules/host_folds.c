/* The folds on the host: what merges the accumulators of chunks, pieces and rows. Kernels have
 * theirs in kernels/core, the CPU backend loops over elements in cpu/loops_template.h. */
#include "lib/rules/rules.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#include "lib/base/convert.h"

/* The folds over one real accumulator type: T is the type, U the unsigned type its sums and
 * products are computed in, so that they wrap without undefined behaviour (for floats, the type
 * itself). x != x asks for NaN, and is never true of integers. */
#define DEFINE_FOLD(T, U, member)                                                        \
    static void fold_##member(gpr_fold fold, const void *a, const void *b, void *result) \
    {                                                                                    \
        T x, y, value = 0;                                                               \
        memcpy(&x, a, sizeof x);                                                         \
        memcpy(&y, b, sizeof y);                                                         \
        switch (fold) {                                                                  \
        case GPR_FOLD_prod: value = (T)((U)x * (U)y); break;                             \
        case GPR_FOLD_min: value = x < y || x != x ? x : y; break;                       \
        case GPR_FOLD_max: value = x > y || x != x ? x : y; break;                       \
        case GPR_FOLD_fmin: value = x < y || y != y ? x : y; break;                      \
        case GPR_FOLD_fmax: value = x > y || y != y ? x : y; break;                      \
        case GPR_FOLD_any: value = (T)(x != 0 || y != 0); break;                         \
        case GPR_FOLD_all: value = (T)(x != 0 && y != 0); break;                         \
        case GPR_FOLD_odd: value = (T)((x != 0) != (y != 0)); break;                     \
        default: value = (T)((U)x + (U)y); break;                                        \
        }                                                                                \
        memcpy(result, &value, sizeof value);                                            \
    }

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

/* Whether x comes before y: real parts first, then imaginary ones. */
static int precedes(double _Complex x, double _Complex y)
{
    return creal(x) < creal(y) || (creal(x) == creal(y) && cimag(x) < cimag(y));
}

static double _Complex fold_complex(gpr_fold fold, double _Complex x, double _Complex y)
{
    switch (fold) {
    /* By hand: C's own product asks for infinities first, NumPy's does not. */
    case GPR_FOLD_prod:
        return gpr_complex(creal(x) * creal(y) - cimag(x) * cimag(y),
                           creal(x) * cimag(y) + cimag(x) * creal(y));
    case GPR_FOLD_min: return is_nan(x) || (!is_nan(y) && precedes(x, y)) ? x : y;
    case GPR_FOLD_max: return is_nan(x) || (!is_nan(y) && precedes(y, x)) ? x : y;
    case GPR_FOLD_fmin: return is_nan(y) || (!is_nan(x) && precedes(x, y)) ? x : y;
    case GPR_FOLD_fmax: return is_nan(y) || (!is_nan(x) && precedes(y, x)) ? x : y;
    default: return gpr_complex(creal(x) + creal(y), cimag(x) + cimag(y));
    }
}

/* a fold b for numbers of type acc, at any address. */
static void fold_numbers(gpr_fold fold, gpr_dtype acc, const void *a, const void *b, void *result)
{
    double _Complex wide[2];

    switch (acc) {
    case GPR_INT32: fold_i32(fold, a, b, result); break;
    case GPR_UINT32: fold_u32(fold, a, b, result); break;
    case GPR_INT64: fold_i64(fold, a, b, result); break;
    case GPR_UINT64: fold_u64(fold, a, b, result); break;
    case GPR_FLOAT32: fold_f32(fold, a, b, result); break;
    case GPR_FLOAT64: fold_f64(fold, a, b, result); break;
    default:
        gpr_convert(acc, a, GPR_COMPLEX128, &wide[0], 1);
        gpr_convert(acc, b, GPR_COMPLEX128, &wide[1], 1);
        wide[0] = fold_complex(fold, wide[0], wide[1]);
        gpr_convert(GPR_COMPLEX128, &wide[0], acc, result, 1);
        break;
    }
}

static gpr_value fold_bits(gpr_fold fold, gpr_value a, gpr_value b)
{
    gpr_value value = {.u64 = a.u64 ^ b.u64};

    if (fold == GPR_FOLD_bit_and) value.u64 = a.u64 & b.u64;
    if (fold == GPR_FOLD_bit_or) value.u64 = a.u64 | b.u64;
    return value;
}

/* Whether the number of one accumulator is better than another's, and not its equal. */
static int beats(gpr_fold fold, gpr_dtype acc, const gpr_value *a, const gpr_value *b)
{
    gpr_value kept;

    fold_numbers(fold, acc, a->bytes, b->bytes, kept.bytes); /* of equals the second */
    return memcmp(kept.bytes, b->bytes, gpr_bytes_of(acc)) != 0;
}

/* Of two indexed numbers the one that min or max keeps; of equals, and of two NaN, the one found
 * first. */
static gpr_value fold_indexed(gpr_fold fold, gpr_dtype acc, gpr_value a, gpr_value b)
{
    const gpr_fold extreme_fold = fold == GPR_FOLD_argmin ? GPR_FOLD_min : GPR_FOLD_max;
    double _Complex x, y;

    gpr_convert(acc, a.bytes, GPR_COMPLEX128, &x, 1);
    gpr_convert(acc, b.bytes, GPR_COMPLEX128, &y, 1);
    if (is_nan(x) != is_nan(y)) return is_nan(x) ? a : b;
    if (!is_nan(x) && beats(extreme_fold, acc, &a, &b)) return a;
    if (!is_nan(x) && beats(extreme_fold, acc, &b, &a)) return b;
    return a.position < b.position ? a : b;
}

/* Chan, Golub and LeVeque's way to join the moments of two sets: the means' distance makes up
 * for their being two. */
static gpr_value fold_moments(gpr_dtype acc, gpr_value a, gpr_value b)
{
    const double count = (double)a.count + (double)b.count;
    gpr_value value = {.count = a.count + b.count};

    if (a.count == 0) return b;
    if (b.count == 0) return a;
    if (acc == GPR_FLOAT64) {
        const double apart = (b.mean[0] - a.mean[0]) + (b.mean[1] - a.mean[1]);
        value.mean[0] = a.mean[0];
        value.mean[1] = a.mean[1] + apart * ((double)b.count / count);
        value.squares =
            a.squares + b.squares + apart * apart * ((double)a.count / count) * (double)b.count;
    } else {
        const double re = creal(b.c128) - creal(a.c128), im = cimag(b.c128) - cimag(a.c128);
        const double share = (double)b.count / count;
        value.c128 = gpr_complex(creal(a.c128) + re * share, cimag(a.c128) + im * share);
        value.squares = a.squares + b.squares +
                        (re * re + im * im) * ((double)a.count / count) * (double)b.count;
    }
    return value;
}

gpr_value gpr_fold_acc(gpr_fold fold, gpr_dtype acc, gpr_value a, gpr_value b)
{
    gpr_value value = {.bytes = {0}};

    if (gpr_is_bitwise(fold)) return fold_bits(fold, a, b);
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
        value.count = a.count + b.count;
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
    /* Neighbours pair up until one is left: each level is packed to the front, so the walk stays
     * sequential. */
    while (count > 1) {
        const uint64_t pairs = count / 2;

        for (uint64_t i = 0; i < pairs; i++)
            values[i] = gpr_fold_acc(fold, acc, values[2 * i], values[2 * i + 1]);
        if (count % 2 != 0) values[pairs] = values[count - 1];
        count = pairs + count % 2;
    }
    return values[0];
}
