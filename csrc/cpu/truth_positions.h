/* Positions of the first true or false of rows of bools. Private to csrc/cpu. */
#ifndef GPR_CPU_TRUTH_POSITIONS_H
#define GPR_CPU_TRUTH_POSITIONS_H

#include <stdint.h>

/* Finds the first bool of each of `rows` rows of n > 0, `stride` bytes apart, that is true if true
 * is `wanted`, or false. Where there is none, all are equal, and the position is 0. */
void gpr_cpu_find_truths(const char *elements, int64_t stride, uint64_t rows, uint64_t n,
                         int wanted, int64_t *positions);

/* The same of `width` columns of `rows` > 0 rows without gaps: `stride` is width or -width. Of a
 * column without such a bool the position is -1. */
enum { GPR_MOST_TRUTH_COLUMNS = 8 };
void gpr_cpu_find_truths_in_columns(const char *elements, int64_t stride, uint64_t rows,
                                    uint64_t width, int wanted, int64_t *positions);

/* The same in each of `blocks` blocks of columns without gaps, `stride` bytes apart; 0 for columns
 * in which none decides. For blocks that gpr_cpu_finds_truths_in_blocks accepts, of which it reads
 * nothing else. */
int gpr_cpu_finds_truths_in_blocks(uint64_t rows, uint64_t width);
void gpr_cpu_find_truths_in_blocks(const char *elements, int64_t stride, uint64_t blocks,
                                   uint64_t rows, uint64_t width, int wanted, int64_t *positions);

#endif
