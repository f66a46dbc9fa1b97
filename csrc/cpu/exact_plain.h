/* Exact sums as plain ones that the processor watches. Private to csrc/cpu.
 *
 * IEEE 754 makes every processor remember, in a flag, that a result was rounded. So the fast sum's
 * own loops, which add float32 in doubles, prove in passing that their sums are exact: as long as
 * the inexact flag stays down, no addition was rounded, whatever their order. A double has room
 * for 24 bits of elements and 29 more, for their number and their range. float64 is added by
 * halves of 26 and 27 bits, each of which has as much. Where the flag is up, nothing is known but
 * that some addition was rounded: the rows are added as pairs (exact_pairs.h). */
#ifndef GPR_CPU_EXACT_PLAIN_H
#define GPR_CPU_EXACT_PLAIN_H

#include "cpu/exact_pairs.h"
#include "cpu/job.h"

enum { PLAIN_LANES = 1024 }; /* real numbers side by side, of as many rows */

/* Sums of rows side by side as two doubles each, as exact_pairs, but more of them. */
typedef struct plain_pairs {
    uint64_t lanes;
    int has_rests; /* 0: sums are all there is, and `rests` and `lost` are not set */
    _Alignas(64) double sums[PLAIN_LANES];
    _Alignas(64) double rests[PLAIN_LANES];
    _Alignas(64) double lost[PLAIN_LANES];
} plain_pairs;

/* A task's memory for adding them. */
typedef struct plain_memory {
    _Alignas(64) double sums[GPR_HALVES][PLAIN_LANES];
    staging staged; /* not used where loops read the rows where they are */
} plain_memory;

/* How rows are added. */
typedef struct plain_adder {
    job work;
    gpr_rule rule; /* of the plain sum */
    uint64_t components;
} plain_adder;

/* Makes an adder of a view's rows, sums of which are asked by `rule`, an exact one. Returns 0 where
 * there are no such sums: of integers, of complex128, or where the processor, or what stands in
 * for one, has no flag. */
int gpr_cpu_make_plain_adder(const gpr_view *view, const gpr_rule *rule, plain_adder *how);

/* For rows that lie crosswise: of units of `width` rows. */
void gpr_cpu_set_plain_width(plain_adder *how, uint64_t width);

/* Adds elements [first, end) of `rows` rows from `row` on to pairs->sums, or makes sums of them if
 * pairs->lanes is 0. Returns 0, with the pairs unchanged, if an addition was rounded. Rows are
 * units' (job.h). Needs rounding to nearest and subnormal numbers, as the other exact sums do. */
int gpr_cpu_sum_plain(const plain_adder *how, uint64_t row, uint64_t rows, uint64_t first,
                      uint64_t end, plain_memory *memory, plain_pairs *pairs);

/* Adds `count` numbers to each of `lanes` pairs, a row of them after the other. */
void gpr_cpu_add_to_pairs(plain_pairs *pairs, const double *numbers, uint64_t count,
                          uint64_t lanes);

/* Adds other pairs to those of lanes from `lane` on. */
void gpr_cpu_merge_pairs(plain_pairs *pairs, uint64_t lane, const exact_pairs *others,
                         uint64_t lanes);

/* Stores the results of rows of n elements, one after another; those of rows where hold[r] is 0
 * have no meaning: their pairs are not their sum, or their quotient cannot be rounded from it.
 * Returns whether all hold. */
int gpr_cpu_finish_plain(const plain_pairs *pairs, const plain_adder *how, const gpr_rule *rule,
                         uint64_t rows, uint64_t n, char *results, uint8_t *hold);

#endif
