/* Number rules; see rules.h. NumPy decides what an operator computes in and returns; this file says so for every
 * operator and dtype, and nothing else in the library repeats it. */
#include "lib/rules/rules.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#include "lib/base/convert.h"
#include "lib/base/status.h"

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

/* Whether the numbers have a fraction, an infinity and NaN. */
static int is_inexact(gpr_dtype dtype)
{
    return kind_of(dtype) == GPR_KIND_FLOAT || kind_of(dtype) == GPR_KIND_COMPLEX;
}

static gpr_dtype real_part_of(gpr_dtype dtype)
{
    if (dtype == GPR_COMPLEX64) return GPR_FLOAT32;
    return dtype == GPR_COMPLEX128 ? GPR_FLOAT64 : dtype;
}

static int is_mean(gpr_operator op)
{
    return op == GPR_OP_MEAN;
}

static int is_variance(gpr_operator op)
{
    return gpr_operator_rows[op].fold == GPR_FOLD_moments;
}

/* Whether op sums or multiplies, and so has an accumulator wider than its elements. */
static int accumulates(gpr_operator op)
{
    const gpr_fold fold = gpr_operator_rows[op].fold;

    return fold == GPR_FOLD_sum || fold == GPR_FOLD_prod;
}

/* Whether what becomes of an element is true or false. */
static int is_truth(gpr_fold fold)
{
    return fold == GPR_FOLD_any || fold == GPR_FOLD_all || fold == GPR_FOLD_odd;
}

static int is_bits(gpr_fold fold)
{
    return fold == GPR_FOLD_bit_and || fold == GPR_FOLD_bit_or || fold == GPR_FOLD_bit_xor;
}

static gpr_dtype default_compute(gpr_operator op, gpr_dtype element)
{
    const gpr_kind kind = kind_of(element);

    if (is_inexact(element)) return element;
    if (is_variance(op)) return GPR_FLOAT64;
    if (!accumulates(op)) return element;
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

    if (is_truth(fold)) return GPR_BOOL;
    if (fold == GPR_FOLD_count || gpr_fold_rows[fold].acc_kind == GPR_ACC_INDEXED) return GPR_INT64;
    if (is_variance(op)) return real_part_of(compute);
    if (is_mean(op) && requested == GPR_DTYPE_DEFAULT && !is_inexact(element)) return GPR_FLOAT64;
    return compute;
}

/* Numbers in the accumulator of `fold` over `compute`: sums of floats are at least as wide as `narrowest_sum`. */
static gpr_dtype accumulator_of(gpr_fold fold, gpr_dtype compute, gpr_dtype narrowest_sum)
{
    const gpr_kind kind = kind_of(compute);
    const gpr_acc_kind acc_kind = gpr_fold_rows[fold].acc_kind;
    const int summed = fold == GPR_FOLD_sum || fold == GPR_FOLD_prod || fold == GPR_FOLD_sum_count;

    if (is_truth(fold)) return GPR_UINT32;
    if (fold == GPR_FOLD_count) return GPR_UINT64;
    if (fold == GPR_FOLD_moments) return kind == GPR_KIND_COMPLEX ? GPR_COMPLEX128 : GPR_FLOAT64;
    if (kind == GPR_KIND_COMPLEX)
        return bytes_of(compute) == 16 || narrowest_sum == GPR_FLOAT64 ? GPR_COMPLEX128 : GPR_COMPLEX64;
    /* A position or a count has 8 bytes: with a number of as many beside it there is no gap between them. */
    const int is_wide = bytes_of(compute) == 8 || acc_kind == GPR_ACC_INDEXED || acc_kind == GPR_ACC_SUM_COUNT;
    if (kind == GPR_KIND_FLOAT) {
        if (is_wide) return GPR_FLOAT64;
        return summed ? narrowest_sum : GPR_FLOAT32;
    }
    if (summed) return GPR_UINT64;
    if (is_bits(fold) || kind != GPR_KIND_SIGNED) return is_wide ? GPR_UINT64 : GPR_UINT32;
    return is_wide ? GPR_INT64 : GPR_INT32;
}

/* Whether op takes elements of this type, converted as requested. */
static gpr_status check_types(gpr_operator op, gpr_dtype element, gpr_dtype requested)
{
    const gpr_operator_row *row = &gpr_operator_rows[op];

    if (is_bits(row->fold) && is_inexact(element))
        return gpr_fail(GPR_ERROR_TYPE, "ufunc '%s' not supported for elements of type %s: it takes bool and integers",
                        row->ufunc, gpr_dtype_name(element));
    if (op == GPR_OP_PTP && element == GPR_BOOL)
        return gpr_fail(GPR_ERROR_TYPE, "ptp subtracts, which bool does not: reduce with logical_xor, or convert");
    if (requested == GPR_DTYPE_DEFAULT) return GPR_OK;
    if (!accumulates(op) && !is_variance(op))
        return gpr_fail(GPR_ERROR_TYPE, "%s computes in the elements' type: it does not take another", row->name);
    if (is_variance(op) && !is_inexact(requested))
        return gpr_fail(GPR_ERROR_TYPE, "%s computes in a float or complex type, not in %s", row->name,
                        gpr_dtype_name(requested));
    return GPR_OK;
}

gpr_status gpr_make_rule(gpr_operator op, gpr_dtype element, gpr_dtype requested, gpr_rule *rule)
{
    gpr_status status = GPR_OK;

    if ((int)op < 0 || (int)op >= GPR_OP_COUNT) return gpr_fail(GPR_ERROR_VALUE, "there is no operator %d", (int)op);
    if (!valid_dtype(element)) return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d", (int)element);
    if (requested != GPR_DTYPE_DEFAULT && !valid_dtype(requested))
        return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d to compute in", (int)requested);
    GPR_TRY(check_types(op, element, requested));
    *rule = (gpr_rule){.op = op,
                       .element = element,
                       .divide = is_mean(op),
                       .outputs = op == GPR_OP_MINMAX ? 2 : 1,
                       .finish = gpr_operator_rows[op].finish};
    rule->compute = requested == GPR_DTYPE_DEFAULT ? default_compute(op, element) : requested;
    rule->fold = fold_of(op, rule->compute);
    rule->acc_kind = gpr_fold_rows[rule->fold].acc_kind;
    rule->device_acc = accumulator_of(rule->fold, rule->compute, GPR_FLOAT32);
    rule->host_acc = accumulator_of(rule->fold, rule->compute, GPR_FLOAT64);
    rule->result = result_of(op, element, requested, rule->compute);
done:
    return status;
}

/* How much a sum of products has that its result must hold: integers, then fractions, then two numbers. */
static int rank_of(gpr_dtype dtype)
{
    switch (kind_of(dtype)) {
    case GPR_KIND_COMPLEX: return 2;
    case GPR_KIND_FLOAT: return 1;
    default: return 0;
    }
}

gpr_status gpr_make_product_rule(gpr_dtype a, gpr_dtype b, gpr_dtype factor, gpr_dtype requested, gpr_rule *rule)
{
    const gpr_dtype result = requested == GPR_DTYPE_DEFAULT ? factor : requested, dtypes[] = {a, b, factor, result};

    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (!valid_dtype(dtypes[i])) return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d", (int)dtypes[i]);
    if (rank_of(result) < rank_of(factor) || (result == GPR_BOOL && factor != GPR_BOOL))
        return gpr_fail(GPR_ERROR_TYPE, "dot does not make a sum of products of %s one of %s: convert the elements",
                        gpr_dtype_name(factor), gpr_dtype_name(result));
    *rule = (gpr_rule){.op = GPR_NO_OPERATOR,
                       .fold = GPR_FOLD_exact_products,
                       .acc_kind = gpr_fold_rows[GPR_FOLD_exact_products].acc_kind,
                       .element = a,
                       .second = b,
                       .compute = factor,
                       .device_acc = factor,
                       .host_acc = factor,
                       .result = result,
                       .outputs = 1,
                       .finish = "number"};
    return GPR_OK;
}

gpr_status gpr_leave_out(gpr_rule *rule, int skip_nan, int masked)
{
    const gpr_operator op = rule->op;
    const int skips =
        accumulates(op) || is_variance(op) || rule->acc_kind == GPR_ACC_INDEXED || op == GPR_OP_MIN || op == GPR_OP_MAX;

    if (skip_nan && !skips) return gpr_fail(GPR_ERROR_VALUE, "%s does not leave out NaN", gpr_operator_rows[op].name);
    if (masked && rule->acc_kind == GPR_ACC_INDEXED)
        return gpr_fail(GPR_ERROR_VALUE, "%s takes no mask", gpr_operator_rows[op].name);
    rule->skip_nan = skip_nan && is_inexact(rule->element);
    if (rule->skip_nan && op == GPR_OP_MIN) rule->fold = GPR_FOLD_fmin;
    if (rule->skip_nan && op == GPR_OP_MAX) rule->fold = GPR_FOLD_fmax;
    if (is_mean(op) && (masked || rule->skip_nan)) {
        rule->fold = GPR_FOLD_sum_count;
        rule->acc_kind = GPR_ACC_SUM_COUNT;
        rule->device_acc = accumulator_of(rule->fold, rule->compute, GPR_FLOAT32);
        rule->host_acc = accumulator_of(rule->fold, rule->compute, GPR_FLOAT64);
    }
    return GPR_OK;
}

gpr_status gpr_take_mean(gpr_rule *rule, gpr_dtype mean)
{
    const gpr_dtype element = rule->element;

    if (!is_variance(rule->op))
        return gpr_fail(GPR_ERROR_VALUE, "%s takes no mean: var and std do", gpr_operator_rows[rule->op].name);
    if (!valid_dtype(mean)) return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d for a mean", (int)mean);
    if (kind_of(mean) == GPR_KIND_COMPLEX && kind_of(element) != GPR_KIND_COMPLEX)
        return gpr_fail(GPR_ERROR_TYPE, "mean is complex, of elements of dtype %s", gpr_dtype_name(element));
    if (kind_of(element) == GPR_KIND_COMPLEX && kind_of(rule->compute) != GPR_KIND_COMPLEX)
        return gpr_fail(GPR_ERROR_TYPE, "%s of complex elements is computed in a complex dtype, not in %s",
                        gpr_operator_rows[rule->op].name, gpr_dtype_name(rule->compute));
    rule->compute = default_compute(rule->op, element);
    rule->device_acc = accumulator_of(rule->fold, rule->compute, GPR_FLOAT32);
    rule->host_acc = accumulator_of(rule->fold, rule->compute, GPR_FLOAT64);
    rule->has_given_mean = 1;
    rule->mean = mean;
    return GPR_OK;
}

int gpr_kernel_for(int kernel, const gpr_rule *rule)
{
    if (kernel >= 0 && kernel != GPR_KERNEL_auto) return kernel;
    if (rule->op != GPR_OP_SUM && rule->op != GPR_OP_MEAN) return GPR_KERNEL_fast;
    return kind_of(rule->element) == GPR_KIND_FLOAT && kind_of(rule->result) == GPR_KIND_FLOAT ? GPR_KERNEL_exact
                                                                                               : GPR_KERNEL_fast;
}

int gpr_choose_kernel(int kernel, gpr_operator op, gpr_dtype dtype, gpr_dtype compute)
{
    gpr_rule rule = {.op = op};

    if (kernel >= 0 && kernel != GPR_KERNEL_auto) return kernel;
    if (gpr_make_rule(op, dtype, compute, &rule) != GPR_OK) return GPR_KERNEL_fast; /* which fails in the same way */
    return gpr_kernel_for(kernel, &rule);
}

void gpr_fit_rule(const gpr_kernel_row *row, gpr_rule *rule)
{
    if (row->family == GPR_FAMILY_PLANNER) rule->device_acc = rule->host_acc;
    if ((row->flags & GPR_SUMS_EXACTLY) == 0) return;
    if (rule->fold == GPR_FOLD_sum || rule->fold == GPR_FOLD_sum_count) {
        rule->fold = GPR_FOLD_exact;
    } else if (rule->fold == GPR_FOLD_moments &&
               (kind_of(rule->element) != GPR_KIND_COMPLEX || kind_of(rule->compute) == GPR_KIND_COMPLEX)) {
        rule->fold = GPR_FOLD_exact_moments;
    } else {
        return;
    }
    rule->acc_kind = gpr_fold_rows[rule->fold].acc_kind;
    rule->compute = rule->device_acc = rule->host_acc = rule->element;
}

/* Whether an exact sum of the rule's elements becomes the rule's result by one rounding, or none. */
static gpr_status check_exact(const gpr_kernel_row *row, const gpr_rule *rule)
{
    const gpr_kind from = kind_of(rule->element), to = kind_of(rule->result);
    const int is_narrower =
        (from == GPR_KIND_COMPLEX && to != GPR_KIND_COMPLEX) || (from == GPR_KIND_FLOAT && !is_inexact(rule->result));

    if (rule->has_given_mean)
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' makes variances about the exact mean, not about one that is given; 'auto' does",
                        row->name);
    if (rule->acc_kind == GPR_ACC_EXACT_MOMENTS) return GPR_OK; /* results of variances are float types, and real */
    if (rule->acc_kind != GPR_ACC_EXACT)
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' sums numbers: it takes sum, mean, var and std, not %s of %s as %s; 'auto' does",
                        row->name, gpr_operator_rows[rule->op].name, gpr_dtype_name(rule->element),
                        gpr_dtype_name(rule->result));
    if (is_narrower)
        return gpr_fail(GPR_ERROR_TYPE, "kernel '%s' does not make a sum of %s one of %s: convert the elements",
                        row->name, gpr_dtype_name(rule->element), gpr_dtype_name(rule->result));
    return GPR_OK;
}

gpr_status gpr_check_kernel_folds(const gpr_kernel_row *row, const gpr_rule *rule)
{
    enum { MOST_SWAPPED_BYTES = 8 };
    const char *operator_name = gpr_operator_rows[rule->op].name;

    if ((row->flags & GPR_SUMS_EXACTLY) != 0) return check_exact(row, rule);
    const size_t bytes = gpr_acc_bytes(rule->acc_kind, rule->device_acc);
    if (row->finish == GPR_ATOMIC && bytes > MOST_SWAPPED_BYTES && rule->fold != GPR_FOLD_sum &&
        rule->fold != GPR_FOLD_sum_count)
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' folds by atomics, which swap %d bytes: %s of %s accumulates in %zu. Kernels that "
                        "write partials take it, as 'shfl_two_pass', 'last_block' and 'auto' do",
                        row->name, MOST_SWAPPED_BYTES, operator_name, gpr_dtype_name(rule->element), bytes);
    if (row->family == GPR_FAMILY_LIBRARY && rule->acc_kind == GPR_ACC_INDEXED)
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' does not tell where in a row an element is, which %s needs; 'shfl_two_pass', "
                        "'last_block' and 'auto' do",
                        row->name, operator_name);
    return GPR_OK;
}

gpr_dtype gpr_result_dtype(gpr_operator op, gpr_dtype dtype, gpr_dtype compute)
{
    gpr_rule rule = {.result = GPR_DTYPE_DEFAULT};

    return gpr_make_rule(op, dtype, compute, &rule) == GPR_OK ? rule.result : GPR_DTYPE_DEFAULT;
}

/* ---------------------------------------------------------------- packed accumulators -------- */

enum { SECOND_BYTES = 8 }; /* of a position or a count; of the moments' squares too */

/* Bytes of an accumulator's first member. */
static size_t first_bytes(gpr_acc_kind acc_kind, gpr_dtype acc)
{
    return acc_kind == GPR_ACC_MOMENTS ? sizeof(double[2]) : bytes_of(acc);
}

size_t gpr_acc_bytes(gpr_acc_kind acc_kind, gpr_dtype acc)
{
    switch (acc_kind) {
    case GPR_ACC_NUMBER: return bytes_of(acc);
    case GPR_ACC_RANGE: return 2 * bytes_of(acc);
    case GPR_ACC_EXACT:
    case GPR_ACC_EXACT_MOMENTS:
    case GPR_ACC_EXACT_PRODUCTS: return gpr_exact_acc_bytes(acc_kind, acc);
    case GPR_ACC_MOMENTS: return first_bytes(acc_kind, acc) + 2 * (size_t)SECOND_BYTES;
    default: return bytes_of(acc) + SECOND_BYTES;
    }
}

gpr_value gpr_read_acc(gpr_acc_kind acc_kind, gpr_dtype acc, const void *packed)
{
    const char *second = (const char *)packed + first_bytes(acc_kind, acc);
    gpr_value value = {.bytes = {0}};

    memcpy(value.bytes, packed, first_bytes(acc_kind, acc));
    if (acc_kind == GPR_ACC_RANGE) memcpy(value.high, second, bytes_of(acc));
    if (acc_kind == GPR_ACC_INDEXED) memcpy(&value.position, second, sizeof value.position);
    if (acc_kind == GPR_ACC_SUM_COUNT) memcpy(&value.count, second, sizeof value.count);
    if (acc_kind == GPR_ACC_MOMENTS) {
        memcpy(&value.squares, second, sizeof value.squares);
        memcpy(&value.count, second + SECOND_BYTES, sizeof value.count);
    }
    return value;
}

void gpr_write_acc(gpr_acc_kind acc_kind, gpr_dtype acc, const gpr_value *value, void *packed)
{
    char *second = (char *)packed + first_bytes(acc_kind, acc);

    memcpy(packed, value->bytes, first_bytes(acc_kind, acc));
    if (acc_kind == GPR_ACC_RANGE) memcpy(second, value->high, bytes_of(acc));
    if (acc_kind == GPR_ACC_INDEXED) memcpy(second, &value->position, sizeof value->position);
    if (acc_kind == GPR_ACC_SUM_COUNT) memcpy(second, &value->count, sizeof value->count);
    if (acc_kind == GPR_ACC_MOMENTS) {
        memcpy(second, &value->squares, sizeof value->squares);
        memcpy(second + SECOND_BYTES, &value->count, sizeof value->count);
    }
}

/* ---------------------------------------------------------------- values --------------------- */

static gpr_acc_kind acc_kind_of(gpr_fold fold)
{
    return gpr_fold_rows[fold].acc_kind;
}

gpr_value gpr_convert_acc(gpr_fold fold, gpr_value value, gpr_dtype from, gpr_dtype to)
{
    gpr_value converted = value;

    if (from == to) return value;
    gpr_convert(from, value.bytes, to, converted.bytes, 1);
    if (acc_kind_of(fold) == GPR_ACC_RANGE) gpr_convert(from, value.high, to, converted.high, 1);
    return converted;
}

/* Largest or smallest element, as a wide value: infinities for floats. */
static gpr_wide extreme(gpr_dtype dtype, int largest, gpr_wide_block *block)
{
    const uint64_t bits = bytes_of(dtype) * 8;
    const double infinity = largest ? INFINITY : -INFINITY;

    switch (kind_of(dtype)) {
    case GPR_KIND_COMPLEX: block->c128[0] = gpr_complex(infinity, infinity); break;
    case GPR_KIND_FLOAT: block->f64[0] = infinity; break;
    case GPR_KIND_SIGNED: block->u64[0] = (UINT64_C(1) << (bits - 1)) - (largest ? 1 : 0); break;
    default: block->u64[0] = largest ? UINT64_MAX : 0; break;
    }
    return gpr_wide_of(dtype);
}

static void store_extreme(gpr_dtype dtype, int largest, uint8_t *element)
{
    gpr_wide_block block;
    const gpr_wide wide = extreme(dtype, largest, &block);

    gpr_store_wide(wide, &block, 1, dtype, element);
}

/* NaN of a float or complex type. */
static void store_nan(gpr_dtype dtype, uint8_t *element)
{
    gpr_wide_block block;

    block.f64[0] = NAN;
    gpr_store_wide(GPR_WIDE_FLOAT, &block, 1, dtype, element);
}

/* What leaves a sum as it is, also one of -0. */
static void store_minus_zero(gpr_dtype element, uint8_t *bytes)
{
    const size_t part = gpr_part_bytes(element);

    for (size_t end = part; end <= bytes_of(element); end += part) bytes[end - 1] = 0x80;
}

gpr_value gpr_neutral_element(gpr_fold fold, gpr_dtype element)
{
    gpr_value value = {.bytes = {0}};
    gpr_wide_block block;

    block.u64[0] = fold == GPR_FOLD_prod || fold == GPR_FOLD_all;
    if (fold == GPR_FOLD_bit_and) block.u64[0] = UINT64_MAX;
    if (fold == GPR_FOLD_exact && is_inexact(element))
        store_minus_zero(element, value.bytes);
    else if (fold == GPR_FOLD_min || fold == GPR_FOLD_argmin)
        store_extreme(element, 1, value.bytes);
    else if (fold == GPR_FOLD_max || fold == GPR_FOLD_argmax)
        store_extreme(element, 0, value.bytes);
    else if (fold == GPR_FOLD_fmin || fold == GPR_FOLD_fmax)
        store_nan(element, value.bytes);
    else
        gpr_store_wide(GPR_WIDE_UNSIGNED, &block, 1, element, value.bytes);
    return value;
}

gpr_value gpr_identity(gpr_fold fold, gpr_dtype compute, gpr_dtype acc)
{
    gpr_value value = gpr_neutral_element(fold, compute);

    if (fold == GPR_FOLD_bit_and) { /* all bits of the accumulator, not only the element's */
        memset(value.bytes, 0xff, bytes_of(acc));
        return value;
    }
    if (acc_kind_of(fold) == GPR_ACC_RANGE) {
        store_extreme(compute, 1, value.bytes);
        store_extreme(compute, 0, value.high);
    }
    /* Nothing was summed, and counts and squares are 0: the sums' types do not matter. */
    if (fold == GPR_FOLD_moments) return (gpr_value){.bytes = {0}};
    value = gpr_convert_acc(fold, value, compute, acc);
    if (acc_kind_of(fold) == GPR_ACC_INDEXED) value.position = GPR_NOWHERE;
    return value;
}

/* ---------------------------------------------------------------- folding -------------------- */

/* The folds over one real accumulator type: T is the type, U the unsigned type its sums and products are computed in, so
 * that they wrap without undefined behaviour (for floats, the type itself). x != x asks for NaN, and is never true of
 * integers. */
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
        return gpr_complex(creal(x) * creal(y) - cimag(x) * cimag(y), creal(x) * cimag(y) + cimag(x) * creal(y));
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
    return memcmp(kept.bytes, b->bytes, bytes_of(acc)) != 0;
}

/* Of two indexed numbers the one that min or max keeps; of equals, and of two NaN, the one found first. */
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

/* Chan, Golub and LeVeque's way to join the moments of two sets: the means' distance makes up for their being two. */
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
        value.squares = a.squares + b.squares + apart * apart * ((double)a.count / count) * (double)b.count;
    } else {
        const double re = creal(b.c128) - creal(a.c128), im = cimag(b.c128) - cimag(a.c128);
        const double share = (double)b.count / count;
        value.c128 = gpr_complex(creal(a.c128) + re * share, cimag(a.c128) + im * share);
        value.squares = a.squares + b.squares + (re * re + im * im) * ((double)a.count / count) * (double)b.count;
    }
    return value;
}

gpr_value gpr_fold_acc(gpr_fold fold, gpr_dtype acc, gpr_value a, gpr_value b)
{
    gpr_value value = {.bytes = {0}};

    if (is_bits(fold)) return fold_bits(fold, a, b);
    switch (acc_kind_of(fold)) {
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

/* A block of accumulators on its way to results. */
typedef struct results_block {
    gpr_wide_block first, second;         /* numbers: of a range, the smallest and the largest */
    uint64_t position[GPR_WIDE_ELEMENTS]; /* or count */
    double squares[GPR_WIDE_ELEMENTS];
} results_block;

static void load_block(gpr_acc_kind acc_kind, gpr_dtype acc, const char *packed, uint64_t count, results_block *block)
{
    const size_t bytes = gpr_acc_bytes(acc_kind, acc), number_bytes = bytes_of(acc);
    uint8_t first[GPR_WIDE_ELEMENTS * sizeof(double _Complex)], second[sizeof first];

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

/* Turns a block of sums of a mean into doubles, or complex numbers, divided by n each, or by their counts. A sum of
 * integers is first read as the type it was computed in: NumPy's would have wrapped there, and its sign is not the
 * accumulator's. */
static gpr_wide divide_block(const gpr_rule *rule, gpr_wide wide, uint64_t count, uint64_t n, results_block *block)
{
    gpr_wide_block *sums = &block->first;
    uint8_t narrow[GPR_WIDE_ELEMENTS * sizeof(uint64_t)];

    if (!is_inexact(rule->compute)) {
        gpr_store_wide(wide, sums, count, rule->compute, narrow);
        gpr_load_wide(rule->compute, narrow, count, sums);
        wide = gpr_wide_of(rule->compute);
    }
    if (wide != GPR_WIDE_COMPLEX) {
        gpr_widen_to_double(wide, count, sums);
        wide = GPR_WIDE_FLOAT;
    }
    for (uint64_t i = 0; i < count; i++) {
        const double divisor = (double)(rule->acc_kind == GPR_ACC_SUM_COUNT ? block->position[i] : n);

        if (wide == GPR_WIDE_FLOAT)
            sums->f64[i] /= divisor;
        else
            sums->c128[i] = gpr_complex(creal(sums->c128[i]) / divisor, cimag(sums->c128[i]) / divisor);
    }
    return wide;
}

/* Makes block->first the distances from the smallest to the largest. Integers wrap, as NumPy's do. */
static void subtract_block(gpr_wide wide, uint64_t count, results_block *block)
{
    gpr_wide_block *low = &block->first, *high = &block->second;

    for (uint64_t i = 0; i < count; i++) {
        if (wide == GPR_WIDE_COMPLEX)
            low->c128[i] =
                gpr_complex(creal(high->c128[i]) - creal(low->c128[i]), cimag(high->c128[i]) - cimag(low->c128[i]));
        else if (wide == GPR_WIDE_FLOAT)
            low->f64[i] = high->f64[i] - low->f64[i];
        else
            low->u64[i] = high->u64[i] - low->u64[i];
    }
}

/* Makes block->first the variances or their roots. Too few elements for the divisor make what the division by 0 does; where NaN are left
 * out, always NaN. */
static void vary_block(const gpr_rule *rule, uint64_t count, results_block *block)
{
    for (uint64_t i = 0; i < count; i++) {
        const double divisor = fmax((double)block->position[i] - rule->ddof, 0);
        const double squares = rule->skip_nan && divisor == 0 ? 0 : block->squares[i];
        const double variance = squares / divisor;

        block->first.f64[i] = rule->op == GPR_OP_STD ? sqrt(variance) : variance;
    }
}

void gpr_finish_exact(const gpr_rule *rule, const gpr_exact_part *parts, void *result)
{
    const int components = gpr_exact_parts(rule->host_acc);

    if (rule->acc_kind == GPR_ACC_EXACT_MOMENTS)
        gpr_exact_variance(parts, components, &parts[components], rule->ddof, rule->op == GPR_OP_STD, rule->result,
                           result);
    else
        gpr_exact_finish(parts, rule->host_acc, rule->divide, rule->result, result);
}

/* Exact sums know of how many elements they are. */
static void finish_exact_sums(const gpr_rule *rule, const char *accumulators, uint64_t count, char *results)
{
    const size_t acc_bytes = gpr_acc_bytes(rule->acc_kind, rule->host_acc);
    gpr_exact_part parts[GPR_EXACT_MOST_PARTS];

    for (uint64_t i = 0; i < count; i++) {
        gpr_exact_read_acc(rule->acc_kind, rule->host_acc, accumulators + i * acc_bytes, parts);
        gpr_finish_exact(rule, parts, results + i * bytes_of(rule->result));
    }
}

void gpr_finish_results(const gpr_rule *rule, gpr_dtype acc, const void *accumulators, uint64_t count, uint64_t n,
                        void *results, uint64_t output_stride)
{
    const size_t acc_bytes = gpr_acc_bytes(rule->acc_kind, acc), result_bytes = bytes_of(rule->result);
    results_block block;

    if (gpr_is_exact(rule->acc_kind)) {
        finish_exact_sums(rule, accumulators, count, results);
        return;
    }

    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done;
        const uint64_t step = left < GPR_WIDE_ELEMENTS ? left : GPR_WIDE_ELEMENTS;
        char *at = (char *)results + done * result_bytes;
        gpr_wide wide = gpr_wide_of(acc);

        load_block(rule->acc_kind, acc, (const char *)accumulators + done * acc_bytes, step, &block);
        if (rule->acc_kind == GPR_ACC_INDEXED) {
            memcpy(block.first.u64, block.position, step * sizeof *block.position);
            wide = GPR_WIDE_UNSIGNED;
        } else if (rule->acc_kind == GPR_ACC_MOMENTS) {
            vary_block(rule, step, &block);
            wide = GPR_WIDE_FLOAT;
        } else if (rule->op == GPR_OP_PTP) {
            subtract_block(wide, step, &block);
        } else if (rule->divide) {
            wide = divide_block(rule, wide, step, n, &block);
        }
        gpr_store_wide(wide, &block.first, step, rule->result, at);
        if (rule->outputs == 2) gpr_store_wide(wide, &block.second, step, rule->result, at + output_stride);
        done += step;
    }
}
