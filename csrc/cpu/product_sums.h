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
#include "cpu/job.h"

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

/* The sum of no products. That of products that are all -0 is -0. */
static inline product_sums gpr_cpu_no_products(void)
{
    return (product_sums){.of = {{.upper = -0.0}, {.upper = -0.0}}};
}

/* Adds the products of positions first .. end - 1 of a row. Needs rounding to nearest, and
 * subnormal numbers neither read nor written as zero. */
void gpr_cpu_sum_products(const gpr_cpu_factors *factors, uint64_t row, uint64_t first,
                          uint64_t end, product_sums_memory *memory, product_sums *sums);

enum {
    MOST_PRODUCT_ROWS = 512, /* side by side */
    ROW_ENTRIES = MOST_PRODUCT_ROWS + GPR_ROW_LANES
};

/* Memory for sums of rows side by side, and for factors that are not read in place. */
typedef struct product_rows_memory {
    product_sums_memory read;
    const char *rows[2][ROW_ENTRIES];   /* of both factors, as loops read them */
    const char *starts[2][ROW_ENTRIES]; /* as they are in memory, if they are not read in place */
    int64_t offsets[PRODUCT_TILE];      /* of a row's elements from its first one */
    _Alignas(64) double upper[ROW_ENTRIES], lower[ROW_ENTRIES], sizes[ROW_ENTRIES];
    _Alignas(64) double low[ROW_ENTRIES], high[ROW_ENTRIES];
    gpr_product_sum merged[MOST_PRODUCT_ROWS];       /* of more numbers than loops add at once */
    gpr_product_sum of_imaginary[MOST_PRODUCT_ROWS]; /* products by imaginary parts */
} product_rows_memory;

/* Whether rows are columns of memory, or short. */
int gpr_cpu_has_rows_beside(const gpr_view *view);

/* Cuts rows into units whose products are summed side by side, of as many rows as are worth it and
 * of `most` at most. 0, and nothing done, where rows are few, or long and not columns of memory. */
int gpr_cpu_cut_product_rows(const gpr_cpu_factors *factors, uint64_t most, gpr_cpu_units *units);

/* Sums the products of positions begin .. end - 1 of `width` such rows, from `row` on, to
 * memory->upper and so on; *all has what is true of each of them. The same is needed as above. */
void gpr_cpu_sum_product_rows(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                              uint64_t begin, uint64_t end, product_rows_memory *memory,
                              product_sums *all);

/* Stores these sums of all products of `width` rows, or what they come to over the divisors, if the
 * rows have few products and all results are certain; 0 if not, where results have no meaning. */
int gpr_cpu_store_few_products(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                               const gpr_rule *rule, product_rows_memory *memory, char *results);

/* The sums of no products; copies sums to `width` of them; and merges such copies. */
void gpr_cpu_clear_product_rows(product_rows_memory *memory, uint64_t width);
void gpr_cpu_store_product_rows(const product_rows_memory *memory, uint64_t width,
                                gpr_product_sum *sums);
void gpr_cpu_merge_product_rows(product_rows_memory *memory, uint64_t width, product_sums *all,
                                const gpr_product_sum *others, const product_sums *of_others);

/* Stores these sums, or their roots, rounded once, or the sums rounded to doubles and divided, but
 * those that intervals do not decide: returns how many these are, and which. */
uint64_t gpr_cpu_finish_product_rows(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                                     product_rows_memory *memory, const product_sums *all,
                                     const gpr_rule *rule, char *results, uint16_t *undecided);

/* Stores those of the rows that `left` entries of `undecided` name, of all products, whose sums two
 * doubles hold: halfway between two results, too. Returns how many others are left, and which. */
uint64_t gpr_cpu_finish_exact_rows(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                                   const gpr_rule *rule, product_rows_memory *memory, char *results,
                                   uint16_t *undecided, uint64_t left);

/* Stores a row's exact sum, which is rounded to doubles and divided. */
void gpr_cpu_finish_quotient(const gpr_cpu_factors *factors, uint64_t row, const gpr_rule *rule,
                             gpr_exact_part *parts, char *result);

/* Adds sums of other products. */
void gpr_cpu_merge_product_sums(product_sums *sums, const product_sums *others);

/* Stores a row's sum, or its root, rounded once, or the sum rounded to a double and divided. 0, and
 * nothing stored, if the interval does not decide it. */
int gpr_cpu_finish_product_sums(const gpr_cpu_factors *factors, uint64_t row,
                                const product_sums *sums, const gpr_rule *rule, char *result);

#endif
