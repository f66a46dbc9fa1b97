/* Number rules; see rules.h. NumPy decides what an operator computes in and returns; this file says so for every
 * operator and dtype, and nothing else in the library repeats it. */
#include "rules.h"

#include <math.h>
#include <string.h>

#include "convert.h"
#include "status.h"

/* ---------------------------------------------------------------- types ---------------------- */

static gpr_kind kind_of(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind;
}

static size_t bytes_of(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].bytes;
}

static int valid_dtype(gpr_dtype dtype)
{
    return (int)dtype >= 0 && (int)dtype < GPR_DTYPE_COUNT;
}

static int is_mean(gpr_operator op)
{
    return op == GPR_OP_MEAN;
}

/* Whether op sums or multiplies, and so has an accumulator wider than its elements and takes a dtype. */
static int accumulates(gpr_operator op)
{
    const gpr_fold fold = gpr_operator_rows[op].fold;

    return fold == GPR_FOLD_sum || fold == GPR_FOLD_prod;
}

static gpr_dtype default_compute(gpr_operator op, gpr_dtype element)
{
    const gpr_kind kind = kind_of(element);

    if (!accumulates(op) || kind == GPR_KIND_FLOAT) return element;
    /* Means of small integers are summed exactly; a sum of wider ones could wrap, where NumPy's double does not. */
    if (is_mean(op) && bytes_of(element) > 2) return GPR_FLOAT64;
    return kind == GPR_KIND_UNSIGNED ? GPR_UINT64 : GPR_INT64;
}

/* Bool addition is "or" and bool multiplication "and", whichever operator asked for it. */
static gpr_fold fold_of(gpr_operator op, gpr_dtype compute)
{
    const gpr_fold fold = gpr_operator_rows[op].fold;

    if (compute == GPR_BOOL && fold == GPR_FOLD_sum) return GPR_FOLD_any;
    if (compute == GPR_BOOL && fold == GPR_FOLD_prod) return GPR_FOLD_all;
    return fold;
}

static gpr_dtype result_of(gpr_operator op, gpr_dtype element, gpr_dtype requested, gpr_dtype compute)
{
    const gpr_fold fold = gpr_operator_rows[op].fold;

    if (fold == GPR_FOLD_any || fold == GPR_FOLD_all) return GPR_BOOL;
    if (is_mean(op) && requested == GPR_DTYPE_DEFAULT && kind_of(element) != GPR_KIND_FLOAT) return GPR_FLOAT64;
    return compute;
}

/* Accumulator of `fold` over `compute`: floats at least as wide as `narrowest`. */
static gpr_dtype accumulator_of(gpr_fold fold, gpr_dtype compute, gpr_dtype narrowest_sum)
{
    const gpr_kind kind = kind_of(compute);
    const int summed = fold == GPR_FOLD_sum || fold == GPR_FOLD_prod;

    if (fold == GPR_FOLD_any || fold == GPR_FOLD_all) return GPR_UINT32;
    if (kind == GPR_KIND_FLOAT) {
        if (bytes_of(compute) == 8) return GPR_FLOAT64;
        return summed ? narrowest_sum : GPR_FLOAT32;
    }
    if (summed) return GPR_UINT64;
    if (kind == GPR_KIND_SIGNED) return bytes_of(compute) == 8 ? GPR_INT64 : GPR_INT32;
    return bytes_of(compute) == 8 ? GPR_UINT64 : GPR_UINT32;
}

gpr_status gpr_make_rule(gpr_operator op, gpr_dtype element, gpr_dtype requested, gpr_rule *rule)
{
    if ((int)op < 0 || (int)op >= GPR_OP_COUNT) return gpr_fail(GPR_ERROR_VALUE, "there is no operator %d", (int)op);
    if (!valid_dtype(element)) return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d", (int)element);
    if (requested != GPR_DTYPE_DEFAULT && !valid_dtype(requested))
        return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d to compute in", (int)requested);
    if (requested != GPR_DTYPE_DEFAULT && !accumulates(op))
        return gpr_fail(GPR_ERROR_TYPE, "%s computes in the elements' type: it does not take another",
                        gpr_operator_rows[op].name);

    rule->op = op;
    rule->element = element;
    rule->compute = requested == GPR_DTYPE_DEFAULT ? default_compute(op, element) : requested;
    rule->fold = fold_of(op, rule->compute);
    rule->device_acc = accumulator_of(rule->fold, rule->compute, GPR_FLOAT32);
    rule->host_acc = accumulator_of(rule->fold, rule->compute, GPR_FLOAT64);
    rule->result = result_of(op, element, requested, rule->compute);
    rule->divide = is_mean(op);
    return GPR_OK;
}

gpr_dtype gpr_result_dtype(gpr_operator op, gpr_dtype dtype, gpr_dtype compute)
{
    gpr_rule rule = {.result = GPR_DTYPE_DEFAULT};

    return gpr_make_rule(op, dtype, compute, &rule) == GPR_OK ? rule.result : GPR_DTYPE_DEFAULT;
}

/* ---------------------------------------------------------------- values --------------------- */

gpr_value gpr_convert_acc(gpr_value value, gpr_dtype from, gpr_dtype to)
{
    gpr_value converted = {.u64 = 0};

    if (from == to) return value;
    gpr_convert(from, value.bytes, to, converted.bytes, 1);
    return converted;
}

/* Largest (sign > 0) or smallest element, as a wide value: infinities for floats. */
static gpr_wide extreme(gpr_dtype dtype, int largest, gpr_wide_block *block)
{
    const uint64_t bits = bytes_of(dtype) * 8;

    switch (kind_of(dtype)) {
    case GPR_KIND_FLOAT: block->f64[0] = largest ? INFINITY : -INFINITY; break;
    case GPR_KIND_SIGNED: block->u64[0] = (UINT64_C(1) << (bits - 1)) - (largest ? 1 : 0); break;
    default: block->u64[0] = largest ? UINT64_MAX : 0; break;
    }
    return gpr_wide_of(dtype);
}

gpr_value gpr_neutral_element(gpr_fold fold, gpr_dtype element)
{
    gpr_value value = {.u64 = 0};
    gpr_wide wide = GPR_WIDE_UNSIGNED;
    gpr_wide_block block;

    block.u64[0] = fold == GPR_FOLD_prod || fold == GPR_FOLD_all;
    if (fold == GPR_FOLD_min || fold == GPR_FOLD_max) wide = extreme(element, fold == GPR_FOLD_min, &block);
    gpr_store_wide(wide, &block, 1, element, value.bytes);
    return value;
}

gpr_value gpr_identity(gpr_fold fold, gpr_dtype compute, gpr_dtype acc)
{
    return gpr_convert_acc(gpr_neutral_element(fold, compute), compute, acc);
}

/* The folds over one accumulator type: T is the type, U the unsigned type its sums and products are computed in, so
 * that they wrap without undefined behaviour (for floats, the type itself). x != x asks for NaN, and is never true of
 * integers. */
#define DEFINE_FOLD(T, U, member)                                           \
    static gpr_value fold_##member(gpr_fold fold, gpr_value a, gpr_value b) \
    {                                                                       \
        const T x = a.member, y = b.member;                                 \
        gpr_value value = {.u64 = 0};                                       \
        switch (fold) {                                                     \
        case GPR_FOLD_sum: value.member = (T)((U)x + (U)y); break;          \
        case GPR_FOLD_prod: value.member = (T)((U)x * (U)y); break;         \
        case GPR_FOLD_min: value.member = x < y || x != x ? x : y; break;   \
        case GPR_FOLD_max: value.member = x > y || x != x ? x : y; break;   \
        case GPR_FOLD_any: value.member = (T)(x != 0 || y != 0); break;     \
        case GPR_FOLD_all: value.member = (T)(x != 0 && y != 0); break;     \
        case GPR_FOLD_COUNT: break;                                         \
        }                                                                   \
        return value;                                                       \
    }

DEFINE_FOLD(int32_t, uint32_t, i32)
DEFINE_FOLD(uint32_t, uint32_t, u32)
DEFINE_FOLD(int64_t, uint64_t, i64)
DEFINE_FOLD(uint64_t, uint64_t, u64)
DEFINE_FOLD(float, float, f32)
DEFINE_FOLD(double, double, f64)

gpr_value gpr_fold_acc(gpr_fold fold, gpr_dtype acc, gpr_value a, gpr_value b)
{
    switch (acc) {
    case GPR_INT32: return fold_i32(fold, a, b);
    case GPR_UINT32: return fold_u32(fold, a, b);
    case GPR_INT64: return fold_i64(fold, a, b);
    case GPR_UINT64: return fold_u64(fold, a, b);
    case GPR_FLOAT32: return fold_f32(fold, a, b);
    default: return fold_f64(fold, a, b);
    }
}

gpr_value gpr_fold_partials(gpr_fold fold, gpr_dtype compute, gpr_dtype acc, gpr_value *values, uint64_t count)
{
    if (count == 0) return gpr_identity(fold, compute, acc);
    /* Neighbours pair up until one is left: each level is packed to the front, so the walk stays sequential. */
    while (count > 1) {
        const uint64_t pairs = count / 2;

        for (uint64_t i = 0; i < pairs; i++) values[i] = gpr_fold_acc(fold, acc, values[2 * i], values[2 * i + 1]);
        if (count % 2 != 0) values[pairs] = values[count - 1];
        count = pairs + count % 2;
    }
    return values[0];
}

/* ---------------------------------------------------------------- results -------------------- */

/* Turns a block of sums of a mean into doubles divided by n. A sum of integers is first read as the type it was
 * computed in: NumPy's would have wrapped there, and its sign is not the accumulator's. */
static void divide_block(const gpr_rule *rule, gpr_wide wide, uint64_t count, uint64_t n, gpr_wide_block *block)
{
    gpr_value narrow[GPR_WIDE_ELEMENTS];

    if (kind_of(rule->compute) != GPR_KIND_FLOAT) {
        gpr_store_wide(wide, block, count, rule->compute, narrow);
        gpr_load_wide(rule->compute, narrow, count, block);
        wide = gpr_wide_of(rule->compute);
    }
    gpr_widen_to_double(wide, count, block);
    for (uint64_t i = 0; i < count; i++) block->f64[i] /= (double)n;
}

void gpr_finish_results(const gpr_rule *rule, gpr_dtype acc, const void *accumulators, uint64_t count, uint64_t n,
                        void *results)
{
    const size_t acc_bytes = bytes_of(acc), result_bytes = bytes_of(rule->result);
    gpr_wide_block block;

    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done;
        const uint64_t step = left < GPR_WIDE_ELEMENTS ? left : GPR_WIDE_ELEMENTS;
        gpr_wide wide = gpr_wide_of(acc);

        gpr_load_wide(acc, (const char *)accumulators + done * acc_bytes, step, &block);
        if (rule->divide) {
            divide_block(rule, wide, step, n, &block);
            wide = GPR_WIDE_FLOAT;
        }
        gpr_store_wide(wide, &block, step, rule->result, (char *)results + done * result_bytes);
        done += step;
    }
}
