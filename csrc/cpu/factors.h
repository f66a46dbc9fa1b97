/* Factors on their way from memory to the loops of products. Private to csrc/cpu. */
#ifndef GPR_CPU_FACTORS_H
#define GPR_CPU_FACTORS_H

#include "cpu/exact_tiles.h"
#include "lib/rules/nd_view.h"
#include "lib/rules/rules.h"

/* What is multiplied. */
typedef struct gpr_cpu_factors {
    const gpr_view *first, *second; /* one view, or of products of two arrays both */
    gpr_products products;
    int conjugates;         /* the first factors */
    int wraps;              /* products of integers are summed to an integer */
    gpr_dtype dtype;        /* that both are converted to */
    int components;         /* real numbers of a factor */
    uint64_t times;         /* that each product counts */
    const double *divisors; /* of sums rounded to doubles: one for each row, or for all; or NULL */
    int has_one_divisor;
    int are_parts; /* rows are the real and imaginary parts of complex ones in turns */
    /* Of such parts by the second factors' imaginary parts, the first ones' in the other order; or
     * NULL: second factors are real. These here are by their real parts. */
    const struct gpr_cpu_factors *of_imaginary;
} gpr_cpu_factors;

/* Memory for a tile of factors, PRODUCT_TILE real numbers, of one array. */
typedef struct factor_stage {
    _Alignas(64) char packed[PRODUCT_TILE * sizeof(double)];
    _Alignas(64) char converted[PRODUCT_TILE * sizeof(double)];
    _Alignas(64) char split[GPR_EXACT_PARTS][PRODUCT_TILE / 2 * sizeof(double)];
} factor_stage;

/* Copies the real and the imaginary parts of complex elements to an array each. */
void gpr_cpu_split_parts(const char *elements, size_t part_bytes, uint64_t count, char *real,
                         char *imaginary);

/* Elements of a row that are factors as they are in memory, behind each other: all of them, or
 * those along the last axis, if it is not short. 0: they have to be copied or converted. */
uint64_t gpr_cpu_run_in_place(const gpr_cpu_factors *factors, const gpr_view *view);

/* `count` factors of the view's row, from `at` on, of the dtype that both are converted to: in
 * memory, or in the stage, which holds PRODUCT_TILE real numbers. */
const void *gpr_cpu_read_elements(const gpr_cpu_factors *factors, const gpr_view *view,
                                  uint64_t row, uint64_t at, uint64_t count, factor_stage *s);

/* Converts factors, by a loop of vectors where there is one. */
void gpr_cpu_convert_factors(gpr_dtype from, const void *elements, gpr_dtype to, void *converted,
                             uint64_t count);

/* Makes components[p] the real numbers of `count` factors of the view's row, from `at` on: a tile
 * at most, unless they are read in place. */
void gpr_cpu_read_factors(const gpr_cpu_factors *factors, const gpr_view *view, uint64_t row,
                          uint64_t at, uint64_t count, factor_stage *s,
                          const void *components[GPR_EXACT_PARTS]);

/* Makes numbers 1 of the signs of others, which may be NaN: their products are magnitudes. */
void gpr_cpu_read_signs(gpr_dtype dtype, const void *numbers, uint64_t count, void *signs);

#endif
