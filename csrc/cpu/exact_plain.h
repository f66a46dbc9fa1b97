/* Exact sums as plain sums, proved exact by the processor's inexact flag. Private to csrc/cpu.
 *
 * IEEE 754 processors set a flag when a result was rounded. So the loops of the fast sum, which add
 * float32 in doubles, prove their sums exact at no cost: if the inexact flag is not set, no
 * addition was rounded, whatever the order of the additions. A double has 53 bits: 24 for an
 * element, and 29 for the number of elements and the range of their exponents. float64 is added by
 * halves of 26 and 27 bits, which leaves as many. Where the flag is set, some addition was rounded,
 * which one is unknown: the rows are added as pairs (exact_pairs.h). */
#ifndef GPR_CPU_EXACT_PLAIN_H
#define GPR_CPU_EXACT_PLAIN_H

#include "cpu/exact_pairs.h"
#include "cpu/job.h"

enum { PLAIN_LANES = GPR_COLUMN_BLOCK }; /* real numbers side by side, of as many rows */

/* Sums of rows side by side as two doubles each, as in exact_pairs, but for more rows; and the
 * number of elements that count in each row. */
typedef struct plain_pairs {
    uint64_t lanes;
    int has_rests; /* 0: only `sums` is set */
    int has_lost;  /* 0: sums and rests are exact, and `lost` is not set */
    int is_counted;
    _Alignas(64) double sums[PLAIN_LANES];
    _Alignas(64) double rests[PLAIN_LANES]; /* where loops that add halves expect them */
    _Alignas(64) double lost[PLAIN_LANES];
    _Alignas(64) uint64_t counts[PLAIN_LANES];
} plain_pairs;

/* A task's memory for adding them. */
typedef struct plain_memory {
    plain_pairs more;   /* sums of a block */
    plain_pairs before; /* what they are added to */
    plain_pairs part;   /* sums of the elements in the stage */
    staging staged;     /* not used where loops read the rows where they are */
} plain_memory;

/* How rows are added. */
typedef struct plain_adder {
    job work;       /* its first recipe sums, a second one counts */
    gpr_rule rule;  /* of the plain sum */
    gpr_view other; /* marks of elements that count, or elements with signs that loops leave out */
    uint64_t components;
    int is_halved;                     /* sums are two doubles each */
    gpr_gapped_loop fold_every_second; /* of halves, where a row is every second number; or NULL */
} plain_adder;

/* Makes an adder of a view's rows for `rule`, which is that of an exact sum. Returns 0 where plain
 * sums prove nothing: for integers, for complex128, and on a processor or an emulator of one that
 * sets no inexact flag. */
int gpr_cpu_make_plain_adder(const gpr_view *view, const gpr_rule *rule, plain_adder *how);

/* Cuts rows that lie crosswise into units, which may hold rows under several indices of the axes
 * before theirs. */
gpr_cpu_units gpr_cpu_cut_plain_columns(plain_adder *how);

/* Clears sums and counts before the first elements are added. */
void gpr_cpu_clear_plain(plain_pairs *pairs);

/* Adds elements [first, end) of `rows` rows from `row` on. Returns 0, with the pairs unchanged, if
 * an addition was rounded. Rows are units' (job.h). Needs rounding to nearest and subnormal
 * numbers, as the other exact sums do. */
int gpr_cpu_sum_plain(const plain_adder *how, uint64_t row, uint64_t rows, uint64_t first,
                      uint64_t end, plain_memory *memory, plain_pairs *pairs);

/* Adds elements [first, end) of `rows` rows that fit `pairs`. Returns 0 if an addition was
 * rounded. */
int gpr_cpu_sum_few_plain(const plain_adder *how, uint64_t row, uint64_t rows, uint64_t first,
                          uint64_t end, plain_memory *memory, exact_pairs *pairs);

/* Adds how many of these elements count to each row's number, if results depend on it. */
void gpr_cpu_count_plain(const plain_adder *how, uint64_t row, uint64_t rows, uint64_t first,
                         uint64_t end, plain_memory *memory, plain_pairs *pairs);

/* Adds other sums and counts of the same `rows` rows. */
void gpr_cpu_merge_plain(plain_pairs *pairs, const plain_pairs *others, uint64_t rows,
                         plain_memory *memory);

/* Copies the sums and counts of `rows` rows. */
void gpr_cpu_copy_plain(plain_pairs *to, const plain_pairs *from, uint64_t rows);

/* Adds a row's sums to its parts, as those of n elements, or of as many as were counted. 0, with
 * nothing added, if its pairs are not its sum. */
int gpr_cpu_add_plain(const plain_pairs *pairs, uint64_t row, uint64_t components, uint64_t n,
                      gpr_exact_part *parts);

/* Copies other pairs to those of `lanes` lanes from `lane` on, of `all` that there are to be. */
void gpr_cpu_copy_pairs(plain_pairs *pairs, uint64_t lane, const exact_pairs *others,
                        uint64_t lanes, uint64_t all);

/* Adds other pairs to those of `lanes` lanes from `lane` on, of `all` that there are. */
void gpr_cpu_merge_pairs(plain_pairs *pairs, uint64_t lane, const exact_pairs *others,
                         uint64_t lanes, uint64_t all);

/* Stores the results of rows of n elements, or of as many as were counted, one after another; those
 * of rows where hold[r] is 0 have no meaning: their pairs are not their sum, or their quotient
 * cannot be rounded from it. Returns whether all hold. */
int gpr_cpu_finish_plain(const plain_pairs *pairs, const plain_adder *how, const gpr_rule *rule,
                         uint64_t rows, uint64_t n, char *results, uint8_t *hold);

#endif
