/* Number rules; see rules.h. NumPy's rules for the dtype that an operator computes in and returns,
 * for every operator and dtype; no other file of the library has them. The dtypes of accumulators
 * are in accumulators.c, checks of kernels in kernel_checks.c. */
#include "lib/rules/rules.h"

#include "lib/base/status.h"
#include "lib/rules/accumulators.h"

static int valid_dtype(gpr_dtype dtype)
{
    return (int)dtype >= 0 && (int)dtype < GPR_DTYPE_COUNT;
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

static gpr_dtype default_compute(gpr_operator op, gpr_dtype element)
{
    const gpr_kind kind = gpr_kind_of(element);

    if (gpr_is_inexact(element)) return element;
    if (is_variance(op)) return GPR_FLOAT64;
    if (!accumulates(op)) return element;
    /* Means of small integers are summed exactly; a sum of wider ones could wrap, where NumPy's
     * double does not. */
    if (is_mean(op) && gpr_bytes_of(element) > 2) return GPR_FLOAT64;
    return kind == GPR_KIND_UNSIGNED ? GPR_UINT64 : GPR_INT64;
}

/* Bool addition is "or" and bool multiplication "and" for every operator. */
static gpr_fold fold_of(gpr_operator op, gpr_dtype compute)
{
    const gpr_fold fold = gpr_operator_rows[op].fold;

    if (compute == GPR_BOOL && fold == GPR_FOLD_sum) return GPR_FOLD_any;
    if (compute == GPR_BOOL && fold == GPR_FOLD_prod) return GPR_FOLD_all;
    return fold;
}

static gpr_dtype result_of(gpr_operator op, gpr_dtype element, gpr_dtype requested,
                           gpr_dtype compute)
{
    const gpr_fold fold = gpr_operator_rows[op].fold;

    if (gpr_is_truth(fold)) return GPR_BOOL;
    if (fold == GPR_FOLD_count || gpr_fold_rows[fold].acc_kind == GPR_ACC_INDEXED) return GPR_INT64;
    if (is_variance(op)) return gpr_real_dtype(compute);
    if (is_mean(op) && requested == GPR_DTYPE_DEFAULT && !gpr_is_inexact(element))
        return GPR_FLOAT64;
    return compute;
}

/* Whether op takes elements of this type, converted as requested. */
static gpr_status check_types(gpr_operator op, gpr_dtype element, gpr_dtype requested)
{
    const gpr_operator_row *row = &gpr_operator_rows[op];

    if (gpr_is_bitwise(row->fold) && gpr_is_inexact(element))
        return gpr_fail(
            GPR_ERROR_TYPE,
            "ufunc '%s' not supported for elements of type %s: it takes bool and integers",
            row->ufunc, gpr_dtype_name(element));
    if (op == GPR_OP_PTP && element == GPR_BOOL)
        return gpr_fail(GPR_ERROR_TYPE,
                        "ptp subtracts, which bool does not: reduce with logical_xor, or convert");
    if (requested == GPR_DTYPE_DEFAULT) return GPR_OK;
    if (!accumulates(op) && !is_variance(op))
        return gpr_fail(GPR_ERROR_TYPE,
                        "%s computes in the elements' type: it does not take another", row->name);
    if (is_variance(op) && !gpr_is_inexact(requested))
        return gpr_fail(GPR_ERROR_TYPE, "%s computes in a float or complex type, not in %s",
                        row->name, gpr_dtype_name(requested));
    return GPR_OK;
}

gpr_status gpr_make_rule(gpr_operator op, gpr_dtype element, gpr_dtype requested, gpr_rule *rule)
{
    gpr_status status = GPR_OK;

    if ((int)op < 0 || (int)op >= GPR_OP_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "there is no operator %d", (int)op);
    if (!valid_dtype(element))
        return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d", (int)element);
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
    rule->device_acc = gpr_accumulator_of(rule->fold, rule->compute, GPR_FLOAT32);
    rule->host_acc = gpr_accumulator_of(rule->fold, rule->compute, GPR_FLOAT64);
    rule->result = result_of(op, element, requested, rule->compute);
done:
    return status;
}

/* How much a sum of products has that its result must hold: integers, then fractions, then two
 * numbers. */
static int rank_of(gpr_dtype dtype)
{
    switch (gpr_kind_of(dtype)) {
    case GPR_KIND_COMPLEX: return 2;
    case GPR_KIND_FLOAT: return 1;
    default: return 0;
    }
}

gpr_status gpr_make_product_rule(gpr_dtype a, gpr_dtype b, gpr_dtype factor, gpr_dtype requested,
                                 gpr_rule *rule)
{
    const gpr_dtype result = requested == GPR_DTYPE_DEFAULT ? factor : requested,
                    dtypes[] = {a, b, factor, result};

    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (!valid_dtype(dtypes[i]))
            return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d", (int)dtypes[i]);
    if (rank_of(result) < rank_of(factor) || (result == GPR_BOOL && factor != GPR_BOOL))
        return gpr_fail(GPR_ERROR_TYPE,
                        "dot does not make a sum of products of %s one of %s: convert the elements",
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

gpr_status gpr_choose_products(gpr_products products, int conjugate, int root, gpr_rule *rule)
{
    const int is_complex = gpr_kind_of(rule->compute) == GPR_KIND_COMPLEX;

    if ((int)products < GPR_PRODUCTS || products > GPR_MAGNITUDES)
        return gpr_fail(GPR_ERROR_VALUE, "there are no products %d", (int)products);
    if (products != GPR_PRODUCTS && is_complex)
        return gpr_fail(GPR_ERROR_TYPE,
                        "squares and magnitudes are summed of real numbers, not of %s",
                        gpr_dtype_name(rule->compute));
    if (root && products != GPR_SQUARES)
        return gpr_fail(GPR_ERROR_VALUE, "roots are taken of sums of squares alone");
    if (root && gpr_kind_of(rule->result) != GPR_KIND_FLOAT)
        return gpr_fail(GPR_ERROR_TYPE, "a root is of a float type, not of %s",
                        gpr_dtype_name(rule->result));
    rule->products = products;
    rule->conjugates = conjugate && is_complex;
    rule->takes_root = root;
    if (root) rule->finish = "root";
    return GPR_OK;
}

gpr_status gpr_leave_out(gpr_rule *rule, int skip_nan, int masked)
{
    const gpr_operator op = rule->op;
    const int skips = accumulates(op) || is_variance(op) || rule->acc_kind == GPR_ACC_INDEXED ||
                      op == GPR_OP_MIN || op == GPR_OP_MAX;

    if (skip_nan && !skips)
        return gpr_fail(GPR_ERROR_VALUE, "%s does not leave out NaN", gpr_operator_rows[op].name);
    if (masked && rule->acc_kind == GPR_ACC_INDEXED)
        return gpr_fail(GPR_ERROR_VALUE, "%s takes no mask", gpr_operator_rows[op].name);
    rule->skip_nan = skip_nan && gpr_is_inexact(rule->element);
    if (rule->skip_nan && op == GPR_OP_MIN) rule->fold = GPR_FOLD_fmin;
    if (rule->skip_nan && op == GPR_OP_MAX) rule->fold = GPR_FOLD_fmax;
    if (is_mean(op) && (masked || rule->skip_nan)) {
        rule->fold = GPR_FOLD_sum_count;
        rule->acc_kind = GPR_ACC_SUM_COUNT;
        rule->device_acc = gpr_accumulator_of(rule->fold, rule->compute, GPR_FLOAT32);
        rule->host_acc = gpr_accumulator_of(rule->fold, rule->compute, GPR_FLOAT64);
    }
    return GPR_OK;
}

gpr_status gpr_take_mean(gpr_rule *rule, gpr_dtype mean)
{
    const gpr_dtype element = rule->element;

    if (!is_variance(rule->op))
        return gpr_fail(GPR_ERROR_VALUE, "%s takes no mean: var and std do",
                        gpr_operator_rows[rule->op].name);
    if (!valid_dtype(mean))
        return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d for a mean", (int)mean);
    if (gpr_kind_of(mean) == GPR_KIND_COMPLEX && gpr_kind_of(element) != GPR_KIND_COMPLEX)
        return gpr_fail(GPR_ERROR_TYPE, "mean is complex, of elements of dtype %s",
                        gpr_dtype_name(element));
    if (gpr_kind_of(element) == GPR_KIND_COMPLEX && gpr_kind_of(rule->compute) != GPR_KIND_COMPLEX)
        return gpr_fail(GPR_ERROR_TYPE,
                        "%s of complex elements is computed in a complex dtype, not in %s",
                        gpr_operator_rows[rule->op].name, gpr_dtype_name(rule->compute));
    rule->compute = default_compute(rule->op, element);
    rule->device_acc = gpr_accumulator_of(rule->fold, rule->compute, GPR_FLOAT32);
    rule->host_acc = gpr_accumulator_of(rule->fold, rule->compute, GPR_FLOAT64);
    rule->has_given_mean = 1;
    rule->mean = mean;
    return GPR_OK;
}

gpr_status gpr_take_start(gpr_rule *rule)
{
    if (rule->op != GPR_OP_MIN && rule->op != GPR_OP_MAX)
        return gpr_fail(GPR_ERROR_VALUE, "%s takes no start: min and max do",
                        gpr_operator_rows[rule->op].name);
    rule->has_start = 1;
    return GPR_OK;
}

int gpr_kernel_for(int kernel, const gpr_rule *rule)
{
    if (kernel >= 0 && kernel != GPR_KERNEL_auto) return kernel;
    if (rule->op != GPR_OP_SUM && rule->op != GPR_OP_MEAN) return GPR_KERNEL_fast;
    return gpr_kind_of(rule->element) == GPR_KIND_FLOAT &&
                   gpr_kind_of(rule->result) == GPR_KIND_FLOAT
               ? GPR_KERNEL_exact
               : GPR_KERNEL_fast;
}

int gpr_choose_kernel(int kernel, gpr_operator op, gpr_dtype dtype, gpr_dtype compute)
{
    gpr_rule rule = {.op = op};

    if (kernel >= 0 && kernel != GPR_KERNEL_auto) return kernel;
    /* which fails in the same way */
    if (gpr_make_rule(op, dtype, compute, &rule) != GPR_OK) return GPR_KERNEL_fast;
    return gpr_kernel_for(kernel, &rule);
}

void gpr_fit_rule(const gpr_kernel_row *row, gpr_rule *rule)
{
    if (row->family == GPR_FAMILY_PLANNER) rule->device_acc = rule->host_acc;
    if ((row->flags & GPR_SUMS_EXACTLY) == 0) return;
    if (rule->fold == GPR_FOLD_sum || rule->fold == GPR_FOLD_sum_count) {
        rule->fold = GPR_FOLD_exact;
    } else if (rule->fold == GPR_FOLD_moments && (gpr_kind_of(rule->element) != GPR_KIND_COMPLEX ||
                                                  gpr_kind_of(rule->compute) == GPR_KIND_COMPLEX)) {
        rule->fold = GPR_FOLD_exact_moments;
    } else {
        return;
    }
    rule->acc_kind = gpr_fold_rows[rule->fold].acc_kind;
    rule->compute = rule->device_acc = rule->host_acc = rule->element;
}

int gpr_fold_of_exact_integers(const gpr_rule *rule, uint64_t n, unsigned bits, int masked,
                               gpr_rule *fold)
{
    enum { SUM_BITS = 63 };
    const int is_rounded = rule->result == GPR_FLOAT64;
    const gpr_dtype sum = is_rounded ? GPR_INT64 : rule->result;

    if (rule->acc_kind != GPR_ACC_EXACT || gpr_is_inexact(rule->element)) return 0;
    if (gpr_is_inexact(sum) || sum == GPR_BOOL || (rule->divide && !is_rounded)) return 0;
    if (is_rounded && (bits >= SUM_BITS || n >> (SUM_BITS - bits) != 0)) return 0;
    if (gpr_make_rule(GPR_OP_SUM, rule->element, sum, fold) != GPR_OK) return 0;
    if (gpr_leave_out(fold, 0, masked) != GPR_OK) return 0;
    gpr_fit_rule(&gpr_kernel_rows[GPR_KERNEL_fast], fold);
    return 1;
}

gpr_dtype gpr_result_dtype(gpr_operator op, gpr_dtype dtype, gpr_dtype compute)
{
    gpr_rule rule = {.result = GPR_DTYPE_DEFAULT};

    return gpr_make_rule(op, dtype, compute, &rule) == GPR_OK ? rule.result : GPR_DTYPE_DEFAULT;
}
