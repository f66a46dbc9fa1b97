/* Number rules: which type an operator computes in, accumulates in and returns, and how an
 * accumulator becomes a result. Pure. Device code takes these types from its kernel traits. */
#ifndef GPR_LIB_RULES_H
#define GPR_LIB_RULES_H

#include "lib/exact/exact.h"

/* A reduction's types. Elements of the array are converted to `compute`, lifted to the accumulator,
 * folded; the accumulator becomes a `result`. An accumulator is of the fold's kind; the numbers in
 * it are INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64, COMPLEX64 or COMPLEX128; of an exact sum
 * they stand for the elements' type. */
typedef struct gpr_rule {
    gpr_operator op; /* GPR_NO_OPERATOR: a dot product */
    gpr_fold fold;
    gpr_acc_kind acc_kind;
    gpr_dtype element;
    gpr_dtype second; /* of the other array: with GPR_ACC_EXACT_PRODUCTS alone */
    gpr_dtype compute;
    gpr_dtype device_acc; /* numbers of accumulators on the device */
    gpr_dtype host_acc;   /* on the CPU, and of chunk partials: at least as wide */
    gpr_dtype result;
    int outputs;        /* results of a row: two of minmax, else one */
    int divide;         /* mean: the accumulator is divided by the number of elements */
    int skip_nan;       /* NaN elements are left out */
    double ddof;        /* var, std */
    int has_given_mean; /* var, std: of squared distances from given means, of type `mean` */
    gpr_dtype mean;
    int has_start;      /* min, max: rows have one element more */
    const char *finish; /* the kernels' gpr::finish_<finish> */
    /* of a dot product */
    gpr_products products;
    int conjugates; /* the first factor */
    int takes_root; /* of the sum */
} gpr_rule;

#define GPR_NO_OPERATOR GPR_OP_COUNT

/* Rules of op over `element` with NumPy's dtype= argument `requested` (or GPR_DTYPE_DEFAULT), with
 * nothing left out and no ddof. GPR_ERROR_VALUE: an enumerator out of range; GPR_ERROR_TYPE: op
 * does not take a dtype (min, max, any, all, ...), or not this one, or not such elements. */
gpr_status gpr_make_rule(gpr_operator op, gpr_dtype element, gpr_dtype requested, gpr_rule *rule);

/* Rules of the exact sum of products of elements of types a and b, converted to `factor` first, as
 * a `requested` (GPR_DTYPE_DEFAULT: as a `factor`). GPR_ERROR_VALUE: no such types; GPR_ERROR_TYPE:
 * a result type that cannot hold products. */
gpr_status gpr_make_product_rule(gpr_dtype a, gpr_dtype b, gpr_dtype factor, gpr_dtype requested,
                                 gpr_rule *rule);

/* Makes a product's rule that of sums of other products. GPR_ERROR_TYPE: magnitudes or squares of
 * complex numbers, a root that is no float; GPR_ERROR_VALUE: there are no such products, a root of
 * other products than squares. */
gpr_status gpr_choose_products(gpr_products products, int conjugate, int root, gpr_rule *rule);

/* The kernel that runs: `kernel`, or of auto's two the one for the rule's results. */
int gpr_kernel_for(int kernel, const gpr_rule *rule);

/* Makes the rule one that leaves out NaN elements, or those that a mask is false of.
 * GPR_ERROR_VALUE: op cannot. */
gpr_status gpr_leave_out(gpr_rule *rule, int skip_nan, int masked);

/* Makes a variance's rule one of squared distances from given means of type `mean`. Elements are
 * not converted: the requested dtype is that of the result alone. GPR_ERROR_VALUE: op takes no
 * mean, or there is no such type; GPR_ERROR_TYPE: complex means of real elements, a real type
 * requested of complex ones. */
gpr_status gpr_take_mean(gpr_rule *rule, gpr_dtype mean);

/* Makes the rule one of rows that have one element more. GPR_ERROR_VALUE: op takes no start. */
gpr_status gpr_take_start(gpr_rule *rule);

/* Fits the rule to a kernel. The planner's own accumulates on the device as widely as the host
 * does: memory limits it, so that wider sums cost no time; `exact` keeps every digit of elements
 * that are not converted; the others show the technique that they are named after. */
void gpr_fit_rule(const gpr_kernel_row *row, gpr_rule *rule);

/* Makes *fold the rule of integer sums that the results of an exact rule over integers follow from:
 * results that are integers wrap as these do, and doubles are rounded from sums of INT64. 0 where
 * there is none: n elements of so many bits in magnitude may sum to 2^63, or results are of another
 * type. */
int gpr_fold_of_exact_integers(const gpr_rule *rule, uint64_t n, unsigned bits, int masked,
                               gpr_rule *fold);

/* GPR_ERROR_VALUE, naming the sizes the kernel takes, if `block_size` is none of them. */
gpr_status gpr_check_block_size(const gpr_kernel_row *row, uint32_t block_size);

/* GPR_ERROR_VALUE, with the reason, if the kernel takes no grid size. */
gpr_status gpr_check_grid_size(const gpr_kernel_row *row);

/* GPR_ERROR_VALUE, naming kernels that can, if the kernel cannot fold the rule's accumulators:
 * atomics swap 8 bytes, or add numbers; CUB does not track positions; `exact` sums. GPR_ERROR_TYPE:
 * `exact` cannot make its sums such results. GPR_ERROR_VALUE too for `exact` and given means: its
 * variances are about the exact ones. */
gpr_status gpr_check_kernel_folds(const gpr_kernel_row *row, const gpr_rule *rule);

/* The result of an exact sum of the rule, from its parts, whose flags change: a sum or mean starts
 * at +0, as NumPy's does, so that it is +0 of nothing but -0. */
void gpr_finish_exact(const gpr_rule *rule, gpr_exact_part *parts, void *result);

/* Writes `count` packed accumulators as results: each folded from `n` elements, or as many as it
 * counted itself. None is an exact sum, which gpr_finish_exact is for. acc may be another than the
 * rule's: integer sums may come as INT64 or UINT64 for a float result too. A second output begins
 * `output_stride` bytes behind the first. Unaligned result addresses are allowed. */
void gpr_finish_results(const gpr_rule *rule, gpr_dtype acc, const void *accumulators,
                        uint64_t count, uint64_t n, void *results, uint64_t output_stride);

/* Whether accumulators of type acc, folded from all of a row, are its results already; sums of
 * floats are if they started at +0. */
int gpr_is_result(const gpr_rule *rule, gpr_dtype acc);

/* Writes `count` variances of real numbers, or their roots, whose squared distances from the mean
 * are given: of counts[i] elements each, or of `n` where counts is NULL. */
void gpr_finish_squares(const gpr_rule *rule, const double *squares, const uint64_t *counts,
                        uint64_t count, uint64_t n, void *results);

/* As gpr_finish_results, of sums and counts in two arrays, `count` of each. */
void gpr_finish_means(const gpr_rule *rule, gpr_dtype acc, const void *sums, const void *counts,
                      uint64_t count, void *results);

/* As gpr_finish_results, of ranges whose two numbers are in two arrays, `count` of each. */
void gpr_finish_ranges(const gpr_rule *rule, gpr_dtype acc, const void *low, const void *high,
                       uint64_t count, void *results, uint64_t output_stride);

/* Whether the fold returns one of its elements. */
static inline int gpr_is_extreme(gpr_fold fold)
{
    return fold == GPR_FOLD_min || fold == GPR_FOLD_max || fold == GPR_FOLD_fmin ||
           fold == GPR_FOLD_fmax;
}

#endif
