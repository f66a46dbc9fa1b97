/* Sums of products as two doubles with a bound on their error. Private to csrc/cpu.
 *
 * Placing bins for products, and making a superaccumulator of them (exact_tiles.h), takes ten times
 * as long as reading them. Nearly always a sum with a small error, of which a bound is known, is
 * enough to round as the exact one: both ends of the interval around it round to the same number
 * (Ziv's test). Where they do not, which is one sum in thousands of narrow results and one in
 * billions of wide ones, or a sum that is halfway between two results, callers add the products
 * exactly.
 *
 * Integers are doubles on their way to a float, unless they have too many bits. To an integer,
 * which wraps, they are summed as they are. */
#ifndef GPR_CPU_PRODUCT_SUMS_H
#define GPR_CPU_PRODUCT_SUMS_H

#include "cpu/factors.h"

/* The sum of products of some factors of a row, of each component. */
typedef struct product_sums {
    gpr_product_sum of[GPR_EXACT_PARTS];
    uint64_t wrapped; /* of integers to an integer, in place of these: less a multiple of 2^64 */
    uint64_t merged;  /* sums that were merged into these */
    int is_inexact;   /* a factor is no double */
} product_sums;

/* Memory for it, where factors are not read in place. */
typedef struct product_sums_memory {
    factor_stage stages[2];
    _Alignas(64) double widened[2][PRODUCT_TILE];
} product_sums_memory;

/* Whether a rule's results are integers, of products of integers. */
int gpr_cpu_wraps_products(const gpr_rule *rule);

/* The dtype that factors are converted to: the rule's, or where floats are summed to wider ones
 * these, which hold the same numbers. */
gpr_dtype gpr_cpu_dtype_of_factors(const gpr_rule *rule, const gpr_view *first,
                                   const gpr_view *second);

/* Whether such sums may be enough for the rule's results. */
int gpr_cpu_may_sum_products(const gpr_cpu_factors *factors, const gpr_rule *rule);

/* Adds the products of positions first .. end - 1 of a row. Begins with a structure of zeros. Needs
 * rounding to nearest, and subnormal numbers neither read nor written as zero. */
void gpr_cpu_sum_products(const gpr_cpu_factors *factors, uint64_t row, uint64_t first,
                          uint64_t end, product_sums_memory *memory, product_sums *sums);

enum { PRODUCT_COLUMNS = 512 }; /* most rows side by side */

/* Memory for their sums, and for factors that are not read in place. */
typedef struct product_columns_memory {
    product_sums_memory read;
    _Alignas(64) double upper[PRODUCT_COLUMNS], lower[PRODUCT_COLUMNS], sizes[PRODUCT_COLUMNS];
    gpr_product_sum sums[PRODUCT_COLUMNS];
} product_columns_memory;

/* Whether rows are columns of memory whose products can be summed side by side: as many as are
 * worth it at once, or 0. */
uint64_t gpr_cpu_product_columns(const gpr_cpu_factors *factors);

/* Sums the products of `width` such rows, from `row` on, to memory->sums; *all has what is true of
 * each of them. The same is needed as above. */
void gpr_cpu_sum_product_columns(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                                 product_columns_memory *memory, product_sums *all);

/* Adds sums of other products. */
void gpr_cpu_merge_product_sums(product_sums *sums, const product_sums *others);

/* Stores the sum, or its root, rounded once. 0, and nothing stored, if the interval does not decide
 * it. */
int gpr_cpu_finish_product_sums(const gpr_cpu_factors *factors, const product_sums *sums,
                                const gpr_rule *rule, char *result);

#endif
