/* Exact sums of rows side by side, each as two doubles. Private to csrc/cpu.
 *
 * Bins (exact_tiles.h) are placed for each row, and what they hold becomes a wide number, which
 * takes longer than to add a thousand elements. Two doubles need neither: what an addition to the
 * first leaves is a double (Knuth's sum of two) and goes to the second, and as long as nothing is
 * left of that they are the sum. It says so itself, so that where it is not the row is summed the
 * other way. Vectors add as many columns at once as they have numbers: of rows that lie crosswise
 * these are the rows, of others every sixteenth element of one, and the shortest are turned. */
#ifndef GPR_CPU_EXACT_PAIRS_H
#define GPR_CPU_EXACT_PAIRS_H

#include "cpu/job.h"
#include "lib/exact/exact.h"

enum {
    PAIR_LANES = 64,        /* real numbers side by side, of as many rows */
    PAIRED_ELEMENTS = 4096, /* of a row, at most, that are added to one pair */
};

/* What rows side by side come to: lane r * components + p is part p of row r. */
typedef struct exact_pairs {
    uint64_t components; /* real numbers of an element */
    _Alignas(64) double sums[PAIR_LANES];
    _Alignas(64) double rests[PAIR_LANES];
    _Alignas(64) double lost[PAIR_LANES];
} exact_pairs;

/* Whether elements of the dtype can be summed so: those of float types, and complex ones. */
int gpr_cpu_has_pairs(gpr_dtype dtype);

/* Rows of such elements that fit an exact_pairs. */
uint64_t gpr_cpu_paired_rows(gpr_dtype dtype);

/* Sums elements [first, end), PAIRED_ELEMENTS at most, of `rows` rows from `row` on. Of rows that
 * lie crosswise they are neighbours under one index of the axes before theirs. Elements that the
 * mask leaves out are taken for -0. */
void gpr_cpu_sum_pairs(const gpr_view *view, uint64_t row, uint64_t rows, uint64_t first,
                       uint64_t end, exact_pairs *pairs);

/* hold[r] says whether row r's pairs are its sum, and not the -0 that elements which a mask
 * leaves out come to. With NaN they never are. */
void gpr_cpu_pairs_hold(const exact_pairs *pairs, uint64_t rows, int is_masked, uint8_t *hold);

/* Adds a row's pairs, which hold, to its parts, as `count` elements. */
void gpr_cpu_add_pairs(const exact_pairs *pairs, uint64_t row, uint64_t count,
                       gpr_exact_part *parts);

/* Puts the results of rows of n elements, one after another, those of rows that do not hold aside:
 * these are anything. hold[r] is 0 then for a few more: it is not known how their quotients are
 * rounded. */
void gpr_cpu_finish_pairs(const exact_pairs *pairs, const gpr_rule *rule, uint64_t rows, uint64_t n,
                          char *results, uint8_t *hold);

#endif
