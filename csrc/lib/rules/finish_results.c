/* From accumulators to results: quotients, variances, distances, positions, and the rounding to
 * the result's type. */
#include "lib/rules/rules.h"

#include <assert.h>
#include <complex.h>
#include <math.h>
#include <string.h>

#include "lib/base/convert.h"
#include "lib/rules/accumulators.h"

enum { AT_ONCE = GPR_WIDE_ELEMENTS / 2 }; /* accumulators whose blocks fit a small stack */

/* A block of accumulators on its way to results. */
typedef struct results_block {
    gpr_wide_block first, second; /* numbers: of a range, the smallest and the largest */
    uint64_t position[AT_ONCE];   /* or count */
    double squares[AT_ONCE];
} results_block;

static void load_block(gpr_acc_kind acc_kind, gpr_dtype acc, const char *packed, uint64_t count,
                       results_block *block)
{
    const size_t bytes = gpr_acc_bytes(acc_kind, acc), number_bytes = gpr_bytes_of(acc);
    uint8_t first[AT_ONCE * sizeof(double _Complex)], second[sizeof first];

    if (acc_kind == GPR_ACC_NUMBER) {
        gpr_load_wide(acc, packed, count, &block->first);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const gpr_value value = gpr_read_acc(acc_kind, acc, packed + i * bytes);

        memcpy(first + i * number_bytes, value.bytes, number_bytes);
        if (acc_kind == GPR_ACC_RANGE)
            memcpy(second + i * number_bytes, value.high, number_bytes);
        else
            block->position[i] = value.position;
        block->squares[i] = value.squares;
    }
    gpr_load_wide(acc, first, count, &block->first);
    if (acc_kind == GPR_ACC_RANGE) gpr_load_wide(acc, second, count, &block->second);
}

/* Adds sums to a start of +0, as NumPy's: nothing but -0 comes to +0. */
static void start_at_zero(gpr_wide wide, uint64_t count, results_block *block)
{
    gpr_wide_block *sums = &block->first;

    for (uint64_t i = 0; i < count && wide == GPR_WIDE_FLOAT; i++) sums->f64[i] += 0.0;
    for (uint64_t i = 0; i < count && wide == GPR_WIDE_COMPLEX; i++)
        sums->c128[i] = gpr_complex(creal(sums->c128[i]) + 0.0, cimag(sums->c128[i]) + 0.0);
}

/* Turns a block of sums of a mean into doubles, or complex numbers, divided by n each, or by their
 * counts. A sum of integers is first read as the type it was computed in: NumPy's would have
 * wrapped there, and its sign is not the accumulator's. */
static gpr_wide divide_block(const gpr_rule *rule, gpr_wide wide, uint64_t count, uint64_t n,
                             results_block *block)
{
    gpr_wide_block *sums = &block->first;
    uint8_t narrow[AT_ONCE * sizeof(uint64_t)];

    if (!gpr_is_inexact(rule->compute)) {
        gpr_store_wide(wide, sums, count, rule->compute, narrow);
        gpr_load_wide(rule->compute, narrow, count, sums);
        wide = gpr_wide_of(rule->compute);
    }
    if (wide != GPR_WIDE_COMPLEX) {
        gpr_widen_to_double(wide, count, sums);
        wide = GPR_WIDE_FLOAT;
    }
    for (uint64_t i = 0; i < count; i++) {
        const double divisor =
            (double)(rule->acc_kind == GPR_ACC_SUM_COUNT ? block->position[i] : n);

        if (wide == GPR_WIDE_FLOAT)
            sums->f64[i] /= divisor;
        else
            sums->c128[i] =
                gpr_complex(creal(sums->c128[i]) / divisor, cimag(sums->c128[i]) / divisor);
    }
    return wide;
}

/* Makes block->first the distances from the smallest to the largest. Integers wrap, as NumPy's
 * do. */
static void subtract_block(gpr_wide wide, uint64_t count, results_block *block)
{
    gpr_wide_block *low = &block->first, *high = &block->second;

    for (uint64_t i = 0; i < count; i++) {
        if (wide == GPR_WIDE_COMPLEX)
            low->c128[i] = gpr_complex(creal(high->c128[i]) - creal(low->c128[i]),
                                       cimag(high->c128[i]) - cimag(low->c128[i]));
        else if (wide == GPR_WIDE_FLOAT)
            low->f64[i] = high->f64[i] - low->f64[i];
        else
            low->u64[i] = high->u64[i] - low->u64[i];
    }
}

/* Makes block->first the variances or their roots. Where there are too few elements for the
 * divisor, the result is that of the division by 0; where NaN are left out, it is NaN. */
static void vary_block(const gpr_rule *rule, uint64_t count, results_block *block)
{
    for (uint64_t i = 0; i < count; i++) {
        const double left = (double)block->position[i] - rule->ddof,
                     divisor = left > 0 ? left : 0; /* fmax is a call */
        const double squares = rule->skip_nan && divisor == 0 ? 0 : block->squares[i];
        const double variance = squares / divisor;

        block->first.f64[i] = rule->op == GPR_OP_STD ? sqrt(variance) : variance;
    }
}

void gpr_finish_exact(const gpr_rule *rule, gpr_exact_part *parts, void *result)
{
    const int components = gpr_exact_parts(rule->host_acc);

    if (rule->acc_kind == GPR_ACC_EXACT) /* which starts at +0 */
        for (int p = 0; p < components; p++) parts[p].flags |= GPR_EXACT_NOT_MINUS_ZERO;
    if (rule->acc_kind == GPR_ACC_EXACT_MOMENTS)
        gpr_exact_variance(parts, components, &parts[components], rule->ddof,
                           rule->op == GPR_OP_STD, rule->result, result);
    else if (rule->takes_root)
        gpr_exact_root(parts, rule->result, result);
    else
        gpr_exact_finish(parts, rule->host_acc, rule->divide, rule->result, result);
}

void gpr_finish_squares(const gpr_rule *rule, const double *squares, const uint64_t *counts,
                        uint64_t count, uint64_t n, void *results)
{
    const size_t bytes = gpr_bytes_of(rule->result);
    const double divisor = fmax((double)n - rule->ddof, 0);
    results_block block;

    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done;
        const uint64_t step = left < AT_ONCE ? left : AT_ONCE;

        if (counts != NULL) {
            memcpy(block.squares, squares + done, step * sizeof *squares);
            memcpy(block.position, counts + done, step * sizeof *counts);
            vary_block(rule, step, &block);
        } else {
            for (uint64_t i = 0; i < step; i++) block.first.f64[i] = squares[done + i] / divisor;
            if (rule->op == GPR_OP_STD)
                for (uint64_t i = 0; i < step; i++) block.first.f64[i] = sqrt(block.first.f64[i]);
        }
        gpr_store_wide(GPR_WIDE_FLOAT, &block.first, step, rule->result,
                       (char *)results + done * bytes);
        done += step;
    }
}

void gpr_finish_means(const gpr_rule *rule, gpr_dtype acc, const void *sums, const void *counts,
                      uint64_t count, void *results)
{
    const size_t bytes = gpr_bytes_of(acc), result_bytes = gpr_bytes_of(rule->result);
    results_block block;

    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done;
        const uint64_t step = left < AT_ONCE ? left : AT_ONCE;
        gpr_wide wide = gpr_wide_of(acc);

        gpr_load_wide(acc, (const char *)sums + done * bytes, step, &block.first);
        memcpy(block.position, (const uint64_t *)counts + done, step * sizeof *block.position);
        start_at_zero(wide, step, &block);
        wide = divide_block(rule, wide, step, 0, &block);
        gpr_store_wide(wide, &block.first, step, rule->result,
                       (char *)results + done * result_bytes);
        done += step;
    }
}

static int is_integer(gpr_dtype dtype)
{
    return !gpr_is_inexact(dtype) && dtype != GPR_BOOL;
}

int gpr_is_result(const gpr_rule *rule, gpr_dtype acc)
{
    const gpr_dtype result = rule->result;

    if (rule->acc_kind != GPR_ACC_NUMBER || rule->divide) return 0;
    if (acc == result) return 1;
    /* Bytes are accumulators of truths, which extremes of bools are, too. */
    if (result == GPR_BOOL)
        return acc == GPR_UINT8 && (gpr_is_truth(rule->fold) || rule->element == GPR_BOOL);
    return is_integer(acc) && is_integer(result) && gpr_bytes_of(acc) == gpr_bytes_of(result);
}

/* Distances in the numbers' own type. Differences of integers wrap; those of float32 are rounded
 * once, as through doubles. */
#define DEFINE_SUBTRACT(name, T)                                                                  \
    static void subtract_##name(const void *low, const void *high, uint64_t count, void *results) \
    {                                                                                             \
        const T *a = low, *b = high;                                                              \
        for (uint64_t i = 0; i < count; i++) {                                                    \
            const T distance = (T)(b[i] - a[i]);                                                  \
            memcpy((char *)results + i * sizeof distance, &distance, sizeof distance);            \
        }                                                                                         \
    }
DEFINE_SUBTRACT(1, uint8_t)
DEFINE_SUBTRACT(2, uint16_t)
DEFINE_SUBTRACT(4, uint32_t)
DEFINE_SUBTRACT(8, uint64_t)
DEFINE_SUBTRACT(float32, float)
DEFINE_SUBTRACT(float64, double)

/* 0, and nothing stored, where results are of another type than the numbers, or complex. */
static int subtract_alike(const gpr_rule *rule, gpr_dtype acc, const void *low, const void *high,
                          uint64_t count, void *results)
{
    if (rule->op != GPR_OP_PTP || rule->outputs != 1 || rule->result != acc) return 0;
    if (acc == GPR_FLOAT32)
        subtract_float32(low, high, count, results);
    else if (acc == GPR_FLOAT64)
        subtract_float64(low, high, count, results);
    else if (!is_integer(acc))
        return 0;
    else if (gpr_bytes_of(acc) == sizeof(uint8_t))
        subtract_1(low, high, count, results);
    else if (gpr_bytes_of(acc) == sizeof(uint16_t))
        subtract_2(low, high, count, results);
    else if (gpr_bytes_of(acc) == sizeof(uint32_t))
        subtract_4(low, high, count, results);
    else
        subtract_8(low, high, count, results);
    return 1;
}

void gpr_finish_ranges(const gpr_rule *rule, gpr_dtype acc, const void *low, const void *high,
                       uint64_t count, void *results, uint64_t output_stride)
{
    const size_t bytes = gpr_bytes_of(acc), result_bytes = gpr_bytes_of(rule->result);
    const gpr_wide wide = gpr_wide_of(acc);
    results_block block;

    if (subtract_alike(rule, acc, low, high, count, results)) return;
    if (rule->outputs == 2 && acc == rule->result) {
        memcpy(results, low, count * bytes);
        memcpy((char *)results + output_stride, high, count * bytes);
        return;
    }
    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done;
        const uint64_t step = left < AT_ONCE ? left : AT_ONCE;
        char *at = (char *)results + done * result_bytes;

        gpr_load_wide(acc, (const char *)low + done * bytes, step, &block.first);
        gpr_load_wide(acc, (const char *)high + done * bytes, step, &block.second);
        if (rule->op == GPR_OP_PTP) subtract_block(wide, step, &block);
        gpr_store_wide(wide, &block.first, step, rule->result, at);
        if (rule->outputs == 2)
            gpr_store_wide(wide, &block.second, step, rule->result, at + output_stride);
        done += step;
    }
}

/* Numbers that become results by rounding alone. 0, and nothing stored, where there is more to
 * do. */
static int narrow_alike(const gpr_rule *rule, gpr_dtype acc, const void *accumulators,
                        uint64_t count, void *results)
{
    const uint64_t parts = (uint64_t)gpr_exact_parts(acc);
    const char *from = accumulators;
    char *to = results;

    if (rule->acc_kind != GPR_ACC_NUMBER || rule->divide || rule->op == GPR_OP_SUM) return 0;
    if (gpr_real_dtype(acc) != GPR_FLOAT64 || gpr_real_dtype(rule->result) != GPR_FLOAT32) return 0;
    if (gpr_exact_parts(rule->result) != gpr_exact_parts(acc)) return 0;
    for (uint64_t i = 0; i < count * parts; i++) {
        double number;
        float rounded;

        memcpy(&number, from + i * sizeof number, sizeof number);
        rounded = (float)number;
        memcpy(to + i * sizeof rounded, &rounded, sizeof rounded);
    }
    return 1;
}

/* Extremes of bfloat16 that were widened to float32: their upper halves, and one NaN of each sign.
 * 0, and nothing stored, for others. */
static int shorten_extremes(const gpr_rule *rule, gpr_dtype acc, const void *accumulators,
                            uint64_t count, void *results)
{
    const int32_t most = INT32_MAX, infinite = 0x7f800000, nan = 0x7fc00000;
    const char *from = accumulators;
    char *to = results;

    if (rule->acc_kind != GPR_ACC_NUMBER || !gpr_is_extreme(rule->fold) || acc != GPR_FLOAT32 ||
        rule->element != GPR_BFLOAT16 || rule->result != GPR_BFLOAT16)
        return 0;
    for (uint64_t i = 0; i < count; i++) {
        int32_t bits;
        uint16_t upper;

        memcpy(&bits, from + i * sizeof bits, sizeof bits);
        bits = (bits & most) > infinite ? ((bits & ~most) | nan) : bits;
        upper = (uint16_t)((uint32_t)bits >> 16);
        memcpy(to + i * sizeof upper, &upper, sizeof upper);
    }
    return 1;
}

void gpr_finish_results(const gpr_rule *rule, gpr_dtype acc, const void *accumulators,
                        uint64_t count, uint64_t n, void *results, uint64_t output_stride)
{
    const size_t acc_bytes = gpr_acc_bytes(rule->acc_kind, acc),
                 result_bytes = gpr_bytes_of(rule->result);
    const int starts_at_zero = rule->op == GPR_OP_SUM && gpr_is_inexact(acc);
    results_block block;

    assert(!gpr_is_exact(rule->acc_kind));
    if (gpr_is_result(rule, acc) && !starts_at_zero) {
        memcpy(results, accumulators, count * result_bytes);
        return;
    }
    if (narrow_alike(rule, acc, accumulators, count, results)) return;
    if (shorten_extremes(rule, acc, accumulators, count, results)) return;
    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done;
        const uint64_t step = left < AT_ONCE ? left : AT_ONCE;
        char *at = (char *)results + done * result_bytes;
        gpr_wide wide = gpr_wide_of(acc);

        load_block(rule->acc_kind, acc, (const char *)accumulators + done * acc_bytes, step,
                   &block);
        if (rule->acc_kind == GPR_ACC_INDEXED) {
            memcpy(block.first.u64, block.position, step * sizeof *block.position);
            wide = GPR_WIDE_UNSIGNED;
        } else if (rule->acc_kind == GPR_ACC_MOMENTS) {
            vary_block(rule, step, &block);
            wide = GPR_WIDE_FLOAT;
        } else if (rule->op == GPR_OP_SUM || rule->divide) {
            start_at_zero(wide, step, &block);
            if (rule->divide) wide = divide_block(rule, wide, step, n, &block);
        } else if (rule->op == GPR_OP_PTP) {
            subtract_block(wide, step, &block);
        }
        gpr_store_wide(wide, &block.first, step, rule->result, at);
        if (rule->outputs == 2)
            gpr_store_wide(wide, &block.second, step, rule->result, at + output_stride);
        done += step;
    }
}
