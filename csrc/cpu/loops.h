/* The inner loops of the CPU backend, one table of them for each instruction set. Private to
 * csrc/cpu.
 *
 * A loop reads aligned, native elements and writes accumulators; it starts no thread, allocates
 * nothing and cannot fail. The same elements give the same accumulators in every table, floats
 * included: sums are kept in a fixed number of lanes whatever the width of a register (the sign of
 * a zero that min or max returns is the one exception). */
#ifndef GPR_CPU_LOOPS_H
#define GPR_CPU_LOOPS_H

#include <float.h>

#include "lib/base/registry.h"

/* Folds each of `rows` rows of n > 0 elements, `stride` bytes apart, into accumulators[row]. */
typedef void (*gpr_rows_loop)(const char *data, int64_t stride, uint64_t rows, uint64_t n,
                              void *accumulators);

/* columns that are folded side by side: their accumulators fit the first cache */
enum { GPR_COLUMN_BLOCK = 1024 };

/* How columns are folded: GPR_FRESH makes accumulators of them. GPR_FROM_MEMORY says that an array
 * is larger than caches, of which the call may see a part that is not, GPR_FAR_FROM_CACHES that it
 * is so much larger that caches hold no part of it. */
enum { GPR_FRESH = 1, GPR_FROM_MEMORY = 2, GPR_FAR_FROM_CACHES = 4 };

/* Folds `rows` > 0 rows of `width` elements, `stride` bytes apart, element by element into `width`
 * accumulators. `how` is 0 or several of these. */
typedef void (*gpr_columns_loop)(const char *data, int64_t stride, uint64_t rows, uint64_t width,
                                 int how, void *accumulators);

/* Copies `count` elements side by side: every second one of memory, the same one again and again,
 * or all of them with their bytes reversed. Of any alignment. */
typedef void (*gpr_packing_loop)(const char *restrict source, uint64_t count,
                                 char *restrict destination);

/* Folds n >= GPR_FEWEST_GAPPED numbers where a gpr_packing_loop reads them, to the accumulator
 * that the fold's loop makes of their copy. */
enum { GPR_FEWEST_GAPPED = 129 };
typedef void (*gpr_gapped_loop)(const void *data, uint64_t n, void *accumulator);

/* A conversion that costs little before a loop: of 16-bit floats, which lack loops, to float32, and
 * of integers and bool to float64. NULL for other dtypes. */
typedef struct gpr_widening {
    void (*loop)(const void *source, void *destination, uint64_t count);
    gpr_dtype to;
} gpr_widening;

typedef struct gpr_loop {
    /* NULL for the 16-bit floats: widen them first; NULL for bits of dtypes other than integers */
    gpr_rows_loop rows;
    gpr_columns_loop columns;
    /* of extremes and bits: of the elements' type; of truths UINT8, of counts, sums and products of
     * integers UINT64 */
    gpr_dtype accumulator;
} gpr_loop;

enum { GPR_MOST_BYTES = 16 }; /* of an element */

enum {
    GPR_EXACT_TILE = 4096,   /* most elements of one call of a gpr_exact_loop */
    GPR_EXACT_BINS = 7,      /* most bins of one: with them, float32's whole range */
    GPR_EXACT_BIN_BITS = 40, /* from the exponent of one bin's bias to the next one's */
    GPR_EXACT_LEVELS = 3
};

/* Sums n <= GPR_EXACT_TILE elements exactly in bins: bin w holds multiples of the last place of
 * biases[w], which is 1.5 * 2^p, and sums[w] is their sum in units of that place. p falls by at
 * most GPR_EXACT_BIN_BITS from bin to bin. Returns 0, and nothing of use, if the elements do not
 * fit: too large for the first bin, with bits below the last one, infinite or NaN. Needs rounding
 * to nearest, and subnormal numbers neither read nor written as zero. */
typedef int (*gpr_exact_loop)(const void *data, uint64_t n, const double *biases, int64_t *sums);

/* A loop for a type's elements, and its number of bins. */
typedef struct gpr_exact_level {
    gpr_exact_loop loop; /* NULL: there is no such level */
    int bins;
    int headroom; /* from the largest exponent to the first bias's: for a tile's sum */
    int widened;  /* the loop reads float32: widen first */
} gpr_exact_level;

/* Finds the largest magnitude of n > 0 elements, and the smallest that is not 0 (or the largest
 * there could be), as the bits of their type without the sign. */
typedef void (*gpr_extent_loop)(const void *data, uint64_t n, uint64_t *largest,
                                uint64_t *smallest);

/* The loops of a type: the fastest, which hold the narrowest range, first. */
typedef struct gpr_exact_loops {
    gpr_exact_level level[GPR_EXACT_LEVELS];
    gpr_extent_loop extent; /* NULL where there are no loops */
} gpr_exact_loops;

/* Products of n pairs of numbers as the sums high[i] + low[i], of float32 as high[i] alone (low is
 * not written). Returns 0 if a product that is finite may need more: it is so small that the lowest
 * of its bits are none of a double's. Infinities and NaN are in high or low. Needs rounding to
 * nearest, and subnormal numbers neither read nor written as zero. */
typedef int (*gpr_products_loop)(const void *a, const void *b, uint64_t n, double *high,
                                 double *low);

/* A sum of products, or of squares or magnitudes of the first factors, as two doubles, and a size
 * of which the error is a share: the sum of the products' magnitudes, or a bound on it or, of
 * float64, on what lanes add up to. See product_sums.c for the shares; n is 2^13 at most, of
 * complex numbers 2^11.
 * Needs rounding to nearest, and subnormal numbers neither read nor written as zero. */
typedef struct gpr_product_sum {
    double upper, lower, size;
} gpr_product_sum;

typedef gpr_product_sum (*gpr_product_sum_loop)(const void *a, const void *b, uint64_t n);

/* Rows of products that are summed side by side. Factors of row j begin at p[j] + p_first and, of
 * products of two arrays, at q[j] + q_first; a row has `blocks` times n of them, at most
 * GPR_PRODUCT_ROWS in all. Behind the last row its addresses are repeated up to a multiple of
 * GPR_ROW_LANES. */
enum { GPR_PRODUCT_ROWS = 1 << 10, GPR_ROW_LANES = 8 };
typedef struct gpr_product_rows {
    const char *const *p, *const *q;
    int64_t p_first, p_stride, p_block, q_first, q_stride, q_block; /* bytes */
    int q_is_one;                                                   /* all rows have the same */
    int are_beside; /* all rows are known to be neighbours, second ones or the same */
    uint64_t n, blocks, width;
    int continues; /* from the sums there are, of GPR_PRODUCT_ROWS products with these */
} gpr_product_rows;

/* The sums as gpr_product_sum's, in as many entries as there are addresses. A lane starts at -0, so
 * that a sum of -0 alone is -0. */
typedef void (*gpr_product_rows_loop)(const gpr_product_rows *rows, double *upper, double *lower,
                                      double *sizes);

/* What sums of few products become: numbers that start at `start`, 0 or -0, and are rounded to
 * doubles and divided by divisors[j], or by `divisor` if that is NULL; or to float32 or float64 at
 * once; or, of squares of first factors, roots that are rounded to float32. `is_inverted`: the
 * inverse of one divisor multiplies them, and neither 0 nor infinities are certain. */
typedef struct gpr_few_rule {
    double start, divisor;
    const double *divisors;
    int is_divided, is_inverted, is_single, takes_root;
} gpr_few_rule;

/* Stores results of rows of at most GPR_FEW_PRODUCTS products, in one block, of which neighbours
 * need the first one's address alone: float32 if they are
 * single, otherwise doubles. Returns 0 where one of them is not certain: there are infinities or
 * NaN, or bits at both ends of the range. Needs rounding to nearest, and subnormal numbers neither
 * read nor written as zero. */
enum { GPR_FEW_PRODUCTS = 32 };
typedef int (*gpr_few_products_loop)(const gpr_product_rows *rows, const gpr_few_rule *rule,
                                     void *results);

/* How sums of products become the ends of intervals that contain the real numbers. */
typedef struct gpr_interval_rule {
    double times;           /* each sum counts; may be a fraction, or negative */
    double share;           /* of a sum's size that is a bound on its error */
    double step;            /* by which ends are moved apart, as a share of them */
    double divisor;         /* of the ends */
    const double *divisors; /* in its place, one for each sum; or NULL */
    int takes_root;         /* of sums of squares */
    int zero_is_zero;       /* a sum of size 0 is one of zeros alone */
    int zero_has_sign;      /* which may be -0 */
    int are_integers;       /* products are integers; so is `times` */
} gpr_interval_rule;

/* Sizes of sums for which bounds on errors hold. */
#define GPR_LEAST_SUM_SIZE 0x1p-800
#define GPR_MOST_SUM_SIZE 0x1p1000

/* Finds the intervals of `count` sums, and divides their ends: as rounding, this keeps numbers in
 * order, or reverses it. low[i] is NaN where there is no interval: where zero may be in it, too,
 * whose sign the products decide. */
typedef void (*gpr_intervals_loop)(const double *upper, const double *lower, const double *sizes,
                                   uint64_t count, const gpr_interval_rule *rule, double *low,
                                   double *high);

/* The sum of products of integers, less a multiple of 2^64. */
typedef uint64_t (*gpr_wrapped_products_loop)(const void *a, const void *b, uint64_t n);

/* The bits that any of the numbers has, `added` to it. */
typedef uint64_t (*gpr_any_bits_loop)(const uint64_t *numbers, uint64_t count, uint64_t added);

/* Of complex numbers a and b, the sums of the products of their parts: of real parts, of imaginary
 * parts, of a's real and b's imaginary parts, and of a's imaginary and b's real parts. */
enum { GPR_PART_PRODUCTS = 4 };
typedef void (*gpr_complex_product_sums_loop)(const void *a, const void *b, uint64_t n,
                                              gpr_product_sum *of_parts);

/* Multiplies mantissas by those of `count` numbers, which are in [1, 2), and adds the numbers'
 * exponents to exponents; zeros, infinities and NaN are mantissas of exponent 0. */
typedef void (*gpr_mantissas_loop)(const double *x, uint64_t count, double *mantissas,
                                   int64_t *exponents);

/* Adds `rows` rows of `width` numbers, `stride` bytes apart, to a pair of doubles for each column.
 * An addition to sums[i] leaves an error, which is a double and goes to rests[i]; where an addition
 * to that is rounded, lost[i] becomes 1. As long as it is 0, sums[i] + rests[i] is the real sum;
 * with infinities and NaN, or beyond the largest double, rests[i] is NaN. Needs rounding to
 * nearest, and subnormal numbers neither read nor written as zero. */
typedef void (*gpr_pairs_loop)(const char *data, int64_t stride, uint64_t rows, uint64_t width,
                               double *sums, double *rests, double *lost);

enum { GPR_EXP_BLOCK = 512 }; /* most elements of one call of a gpr_exp_loop */

/* The sum high + low of exponentials, and how many elements are the largest, left out of it. */
typedef struct gpr_exp_sum {
    double high, low;
    uint64_t largest;
} gpr_exp_sum;

/* Sums exp(x - shift) / 2^unit of n elements but those equal to `largest`, which none exceeds: a
 * finite number. Either shift is 0 and |largest| <= GPR_EXP_MOST, or shift is `largest`; unit is
 * the integer nearest to (largest - shift) / log(2). Each exponential has an error of 2 units of
 * 2^-53 of its value, of float32 of 2^-37; the sum adds none. Terms below 2^(unit - 1022) are 0.
 * Needs rounding to nearest. */
typedef void (*gpr_exp_loop)(const void *data, uint64_t n, double largest, double shift,
                             double unit, gpr_exp_sum *sum);

/* Of each of `width` columns of n <= GPR_EXP_BLOCK numbers, `stride` bytes apart: its largest
 * number, NaN if one of them is, and the exponentials of the others over that one's, summed with
 * the same errors; 0 if that is infinite, of no meaning if NaN. Needs rounding to nearest. */
typedef void (*gpr_exp_columns_loop)(const char *data, int64_t stride, uint64_t n, uint64_t width,
                                     double *largest, double *others);

/* Bits of a double below the last one of a number of a narrower type, half of that one, and the
 * least exponent field, of a double, from which numbers of the type have all their bits. */
typedef struct gpr_narrow_format {
    uint64_t below, midpoint, least_field;
} gpr_narrow_format;

/* Rounds `count` exact sums over divisors[i], or over `divisor` if divisors is NULL: NaN over 0,
 * and all NaN alike. Results are float32 if they are single, otherwise doubles, which become the
 * format when they are stored as such. Returns 0 where that is not certain for one of them. Needs
 * rounding to nearest, and subnormal numbers neither read nor written as zero. */
typedef int (*gpr_round_sums_loop)(const double *sums, const double *divisors, double divisor,
                                   uint64_t count, const gpr_narrow_format *format, int is_single,
                                   void *results);

/* As gpr_round_sums_loop, for sums that are two doubles each, rounded to double: exactly if lost is
 * NULL, otherwise where lost[i] is 0. Infinities are never certain, nor NaN if lost is not NULL. */
typedef int (*gpr_round_pairs_loop)(const double *sums, const double *rests, const double *lost,
                                    const double *divisors, double divisor, uint64_t count,
                                    double *results);

/* The same to float32, for elements that are no wider. */
typedef int (*gpr_round_singles_loop)(const double *sums, const double *rests, const double *lost,
                                      const double *divisors, double divisor, uint64_t count,
                                      float *results);

/* Sum of the squared distances of n numbers from `center`: of the even ones from center[0], of the
 * odd ones from center[1]. */
typedef double (*gpr_squares_loop)(const void *data, uint64_t n, const double center[2]);

/* Stores `count` variances, squared distances over `divisor`, or their roots: float32 if they are
 * single, otherwise doubles. */
typedef void (*gpr_variances_loop)(const double *squares, double divisor, uint64_t count,
                                   int takes_root, int is_single, void *results);

/* Sums of the squared distances of `rows` rows of n > 0 numbers, `stride` bytes apart, from the
 * mean of each. */
typedef void (*gpr_moments_loop)(const char *data, int64_t stride, uint64_t rows, uint64_t n,
                                 double *squares);

/* As gpr_moments_loop, without NaN elements; also stores the number of other elements of each row,
 * and 0 for a row of none. */
typedef void (*gpr_skipping_moments_loop)(const char *data, int64_t stride, uint64_t rows,
                                          uint64_t n, double *squares, uint64_t *counts);

/* Squared distances less a part of them. What is too large for a double stays so. */
static inline double gpr_squares_without(double squares, double part)
{
    const double less = squares - part;

    if (squares > DBL_MAX) return squares;
    return less < 0 ? 0 : less; /* rounding may go below; NaN stays */
}

/* Squared distances from the mean, given those from a number near it, and the sum of the distances
 * from that. */
static inline double gpr_squares_about_mean(double squares, double distance, uint64_t count)
{
    return gpr_squares_without(squares, distance / (double)count * distance);
}

/* Position of the first of n elements that equals *value, an accumulator of min's loop; of the
 * first NaN if that is NaN. n if there is none. */
typedef uint64_t (*gpr_find_loop)(const void *data, uint64_t n, const void *value);

enum {
    GPR_SHORT_ROW = INT8_MAX
}; /* most elements of a row that is read side by side with others */

/* Finds the first smallest or largest element of each of `rows` rows of n > 0 elements, `stride`
 * bytes apart, or its first NaN. */
typedef void (*gpr_positions_loop)(const char *data, int64_t stride, uint64_t rows, uint64_t n,
                                   int64_t *positions);

/* As gpr_positions_loop, for columns: `rows` rows of `width` <= GPR_COLUMN_BLOCK elements, at least
 * GPR_COLUMN_BYTES wide, at positions `first` and following, read as `how` says. Merges them with
 * each column's extreme and position so far, unless that has GPR_FRESH. */
enum { GPR_COLUMN_BYTES = 16 };
typedef void (*gpr_column_positions_loop)(const char *data, int64_t stride, uint64_t rows,
                                          uint64_t width, uint64_t first, int how, void *extremes,
                                          int64_t *positions);

/* As gpr_positions_loop, for blocks of columns: finds `width` positions in each of `blocks` blocks,
 * `stride` bytes apart, of n <= gpr_most_block_rows rows of `width` elements without gaps, no more
 * than a vector has. Reads up to a vector more than a block has. */
typedef void (*gpr_block_positions_loop)(const char *data, int64_t stride, uint64_t blocks,
                                         uint64_t n, uint64_t width, int64_t *positions);
static inline uint64_t gpr_most_block_rows(size_t bytes)
{
    return bytes == 1 ? INT8_MAX : INT16_MAX;
}

/* Adds the distances of `rows` rows of `width` <= GPR_COLUMN_BLOCK numbers, `stride` bytes apart,
 * from each column's center to its distances, and their squares to its squares. Prefetches what is
 * `ahead` bytes further, if that is not 0. */
typedef void (*gpr_distances_loop)(const char *data, int64_t stride, uint64_t rows, uint64_t width,
                                   int64_t ahead, const double *centers, double *distances,
                                   double *squares);

/* Of a fold, by dtype: NULL for 16-bit floats, in columns for complex numbers, too. */
typedef struct gpr_position_loops {
    gpr_positions_loop rows[GPR_DTYPE_COUNT];
    gpr_column_positions_loop columns[GPR_DTYPE_COUNT];
    gpr_block_positions_loop blocks[GPR_DTYPE_COUNT];
} gpr_position_loops;

typedef struct gpr_loops {
    const char *isa;
    size_t vector_bytes;
    /* of folds whose accumulators are numbers */
    gpr_loop loop[GPR_FOLD_COUNT][GPR_DTYPE_COUNT];
    /* the same without NaN elements, sums and products of floats, sums of complex numbers */
    gpr_loop skipping[GPR_FOLD_COUNT][GPR_DTYPE_COUNT];
    /* any and all of 16-bit floats, read as uint16 */
    gpr_loop truths_of_16[GPR_FOLD_COUNT];
    /* how many are no NaN, of floats and complex numbers */
    gpr_loop numbers[GPR_DTYPE_COUNT];
    /* sums of float64 by halves, and the same without NaN: sums of the upper halves, and
     * GPR_COLUMN_BLOCK doubles behind each the sum of the lower halves. In any order: only sums of
     * which no addition was rounded have a meaning. Of columns GPR_COLUMN_BLOCK at most. */
    gpr_loop halves, skipping_halves;
    /* sums of float32 without their signs, and of float64 by halves, under the same condition */
    gpr_loop magnitudes, magnitude_halves;
    gpr_columns_loop combine_halves; /* rows of such sums */
    gpr_gapped_loop gapped_halves, gapped_skipping_halves, gapped_magnitude_halves;
    gpr_round_sums_loop round_sums;
    gpr_round_pairs_loop round_pairs;
    gpr_round_singles_loop round_pairs_to_single;
    /* of floats and complex numbers, which are two floats each */
    gpr_squares_loop squares[GPR_DTYPE_COUNT];
    gpr_variances_loop variances;
    /* of floats */
    gpr_distances_loop distances[GPR_DTYPE_COUNT];
    /* of floats and complex numbers; of those without NaN both parts of what is left out are NaN */
    gpr_moments_loop moments[GPR_DTYPE_COUNT];
    gpr_skipping_moments_loop skipping_moments[GPR_DTYPE_COUNT];
    /* as .moments, for columns of float32 and float64: `rows` rows of n <= GPR_COLUMN_BLOCK numbers
     * make n results */
    gpr_skipping_moments_loop skipping_columns[GPR_DTYPE_COUNT];
    gpr_find_loop find[GPR_DTYPE_COUNT];
    /* of min and max, and of fmin and fmax, which skip NaN: of floats and complex numbers, and -1
     * in a row of NaN alone */
    gpr_position_loops positions[GPR_FOLD_COUNT];
    gpr_widening widen[GPR_DTYPE_COUNT];
    /* of floats */
    gpr_exact_loops exact[GPR_DTYPE_COUNT];
    /* of float32 and float64 */
    gpr_products_loop products[GPR_DTYPE_COUNT];
    gpr_mantissas_loop multiply_mantissas;
    gpr_product_sum_loop product_sums[GPR_MAGNITUDES + 1][GPR_DTYPE_COUNT];
    gpr_product_rows_loop product_rows[GPR_MAGNITUDES + 1][GPR_DTYPE_COUNT];
    gpr_product_rows_loop wide_product_rows; /* of float32, with the errors of float64 */
    /* Products whose sums are exact: the size is NaN where two doubles may not hold them. */
    gpr_product_rows_loop exact_product_rows[GPR_DTYPE_COUNT];
    gpr_few_products_loop few_products[GPR_DTYPE_COUNT]; /* of float32 and float64 */
    gpr_intervals_loop intervals;
    gpr_wrapped_products_loop wrapped_products[GPR_DTYPE_COUNT];
    gpr_any_bits_loop any_bits;
    gpr_complex_product_sums_loop complex_product_sums[GPR_DTYPE_COUNT];
    /* of float32 and float64 */
    gpr_pairs_loop pairs[GPR_DTYPE_COUNT];
    /* by the bytes of an element; NULL for fewer than 4 */
    gpr_packing_loop every_second[GPR_MOST_BYTES + 1];
    gpr_packing_loop repeated[GPR_MOST_BYTES + 1];
    gpr_packing_loop swapped[sizeof(uint64_t) + 1]; /* by bytes of a number */
    gpr_packing_loop less_one;                      /* integers of 64 bits, less 1 */
    /* sums of float64 and complex128; with AVX2 sums and extremes of 64-bit integers, too */
    gpr_gapped_loop gapped[GPR_FOLD_COUNT][GPR_DTYPE_COUNT];
    /* of float32 and float64 */
    gpr_exp_loop exp_sums[GPR_DTYPE_COUNT];
    gpr_exp_columns_loop exp_columns[GPR_DTYPE_COUNT];
} gpr_loops;

extern const gpr_loops gpr_loops_baseline;
#if defined(__x86_64__)
extern const gpr_loops gpr_loops_avx2;
extern const gpr_loops gpr_loops_avx512;
#endif

/* Whether loops prefetch runs of memory by hand; chosen when the library is loaded. */
extern int gpr_cpu_prefetches_runs;

/* The table in use: the best this machine has, or the one gpr_set_cpu_isa chose. */
const gpr_loops *gpr_cpu_loops(void);

#endif
