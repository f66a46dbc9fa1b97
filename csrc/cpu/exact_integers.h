/* Exact sums and means of integers by folds, where 64 bits hold what they follow from. Private to
 * csrc/cpu. */
#ifndef GPR_CPU_EXACT_INTEGERS_H
#define GPR_CPU_EXACT_INTEGERS_H

#include "lib/rules/resolved.h"

/* gpr_cpu_reduce of integers where the rule's kind is GPR_ACC_EXACT or GPR_ACC_EXACT_MOMENTS. Sets
 * *is_done to 0, and writes no result, where there is no such way: sums may be longer than 64 bits,
 * which the largest magnitude decides, or results are neither integers nor float64. `largest`: that
 * magnitude, of elements of 64 bits; 0 if it is not known. */
gpr_status gpr_cpu_reduce_integers_exactly(const gpr_resolved *call, uint64_t largest, gpr_run *run,
                                           int *is_done);

/* The largest magnitude among the elements of the call's view, of integers of 64 bits. What a mask
 * leaves out counts, too: it may be as large. */
gpr_status gpr_cpu_find_largest(const gpr_resolved *call, gpr_run *run, uint64_t *largest);

#endif
