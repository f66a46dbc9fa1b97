/* Tiles of elements, or of products of two, on their way into exact sums. Private to csrc/cpu.
 *
 * Floats are summed in bins first (loops.h), by vectors at nearly the speed of a plain sum. A tile
 * that does not fit the bins places them anew: the first by its largest element, and as many as its
 * smallest one needs. A tile that no bins hold (a range too wide, infinities, NaN) is added element
 * by element. Integers of up to 32 bits are summed by the loops of the plain sum, which are exact.
 * The part is the same on every path: it depends on the elements alone.
 *
 * A product of float32 or narrower floats is a double, and added as one. A product of doubles is
 * the sum of two doubles, the rounded product and the error of its rounding, unless it is too large
 * or too small for them. Both are summed in bins; other products are added as integers. */
#ifndef GPR_CPU_EXACT_TILES_H
#define GPR_CPU_EXACT_TILES_H

#include "cpu/loops.h"
#include "lib/exact/exact.h"

/* Bins and their position. */
typedef struct exact_bins {
    gpr_dtype dtype; /* as the loops read elements, those of widened ones aside */
    const gpr_exact_loops *loops;
    gpr_widening widen; /* for loops that read widened elements */
    int lowest;         /* exponent of the smallest number among the elements */
    int placed;         /* biases are set, for this level: */
    int level;
    int stays;    /* tiles until a lower level is tried again */
    int patience; /* the next value of `stays` */
    int skipped;  /* tiles to add without trying bins */
    double biases[GPR_EXACT_BINS];
    int units[GPR_EXACT_BINS]; /* exponent of a bin's last place */
} exact_bins;

enum { PRODUCT_TILE = 1024 }; /* products: with their factors they stay in the first cache */

/* A task's memory for tiles. */
typedef struct tile_memory {
    _Alignas(64) float widened[GPR_EXACT_TILE];
    _Alignas(64) float widened_factors[2][PRODUCT_TILE];
    _Alignas(64) double products[PRODUCT_TILE];
    _Alignas(64) double high[PRODUCT_TILE], low[PRODUCT_TILE]; /* products as two doubles each */
} tile_memory;

/* How one task adds its tiles of elements. */
typedef struct exact_adder {
    gpr_exact_part *part;
    tile_memory *memory;
    gpr_dtype dtype;
    exact_bins bins;   /* of floats */
    gpr_rows_loop sum; /* for integers that a tile of sums to 64 bits; or NULL */
    int ends_at_nan;   /* with NaN among a tile's floats, no other element matters */
} exact_adder;

/* `memory` is used for float16 and bfloat16 only. */
exact_adder gpr_cpu_exact_adder(gpr_exact_part *part, gpr_dtype dtype, tile_memory *memory);

/* Adds up to GPR_EXACT_TILE aligned native elements. */
void gpr_cpu_add_tile(exact_adder *how, const void *elements, uint64_t count);

/* How one task adds its tiles of products. */
typedef struct product_adder {
    gpr_exact_part *part; /* from gpr_exact_clear_products */
    tile_memory *memory;
    gpr_dtype dtype;            /* of the factors */
    gpr_widening widen;         /* before they are multiplied, if its loop is not NULL */
    gpr_products_loop multiply; /* NULL for integers */
    exact_adder doubles;        /* for products that are doubles */
    exact_bins high, low;       /* for products that are two doubles */
} product_adder;

product_adder gpr_cpu_product_adder(gpr_exact_part *part, gpr_dtype dtype, tile_memory *memory);

/* Adds the products of up to PRODUCT_TILE pairs of aligned native factors. */
void gpr_cpu_add_products(product_adder *how, const void *a, const void *b, uint64_t count);

#endif
