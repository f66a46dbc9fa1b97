/* Exact sums of rows side by side, each as two doubles. Private to csrc/cpu.
 *
 * Placing bins (exact_tiles.h) for each row, and making a superaccumulator of them, takes longer
 * than adding a thousand elements. Two doubles need neither. The error of an addition to the first
 * is a double (Knuth's two-sum), which is added to the second. Invariant: while the additions to
 * the second have no error, the sum of the two doubles is the exact sum. Errors of these additions
 * are collected, and a row that has some is added by tiles. Vectors add as many columns at once as
 * they have lanes: rows that are columns of memory side by side, every sixteenth element of other
 * rows, and the shortest rows transposed. */
#ifndef GPR_CPU_EXACT_PAIRS_H
#define GPR_CPU_EXACT_PAIRS_H

#include "cpu/job.h"
#include "lib/exact/exact.h"

enum {
    PAIR_LANES = 64,        /* real numbers side by side, of as many rows */
    PAIRED_ELEMENTS = 4096, /* of a row, at most, that are added to one pair */
};

enum {
    PAIR_SHORT_ROW = 64, /* elements; of shorter ones columns are too few elements */
    /* Doubles from one transposed position to the next: at a power of two positions would share
     * sets of the cache. */
    PAIR_PITCH = PAIR_LANES + 64 / sizeof(double)
};

/* A task's memory for elements before they are added. */
typedef struct pair_memory {
    _Alignas(64) double turned[PAIR_SHORT_ROW * PAIR_PITCH];
    _Alignas(64) char packed[PAIR_SHORT_ROW * PAIR_LANES * sizeof(double)];
    _Alignas(64) float widened[PAIR_SHORT_ROW * PAIR_LANES];
} pair_memory;

/* Sums of rows side by side: lane r * components + p is part p of row r. */
typedef struct exact_pairs {
    uint64_t components; /* real numbers of an element */
    _Alignas(64) double sums[PAIR_LANES];
    _Alignas(64) double rests[PAIR_LANES];
    _Alignas(64) double lost[PAIR_LANES];
} exact_pairs;

/* Whether elements of the dtype can be summed as pairs: floats and complex numbers. */
int gpr_cpu_has_pairs(gpr_dtype dtype);

/* Rows of elements of the dtype that fit an exact_pairs. */
uint64_t gpr_cpu_paired_rows(gpr_dtype dtype);

/* Sums elements [first, end), PAIRED_ELEMENTS at most, of `rows` rows from `row` on. Rows that are
 * columns of memory are neighbours under one index of the axes before theirs, or have fewer than
 * PAIR_SHORT_ROW elements. Elements that the mask leaves out count as -0. */
void gpr_cpu_sum_pairs(const gpr_view *view, uint64_t row, uint64_t rows, uint64_t first,
                       uint64_t end, pair_memory *memory, exact_pairs *pairs);

/* Sets hold[r] to whether the pairs of row r are its sum: no error was lost, there is no NaN, and
 * they are not the -0 of masked elements. */
void gpr_cpu_pairs_hold(const exact_pairs *pairs, uint64_t rows, int is_masked, uint8_t *hold);

/* Adds a row's pairs, for which hold is set, to its parts, as `count` elements. */
void gpr_cpu_add_pairs(const exact_pairs *pairs, uint64_t row, uint64_t count,
                       gpr_exact_part *parts);

/* Stores the results of rows of n elements, one after another; those of rows where hold[r] is 0
 * have no meaning. Clears hold[r] of rows whose quotient cannot be rounded from the pair. */
void gpr_cpu_finish_pairs(const exact_pairs *pairs, const gpr_rule *rule, uint64_t rows, uint64_t n,
                          char *results, uint8_t *hold);

#endif
