/* The CPU backend: every operator and dtype on all cores, with the widest instruction set the
 * machine has. */
#ifndef GPR_CPU_H
#define GPR_CPU_H

#include "lib/exact/exact.h"
#include "lib/rules/nd_view.h"
#include "lib/rules/resolved.h"

/* Reduces each row of the call's host array into its result (one per row, n > 0 or the fold has an
 * identity). The split into tasks depends on shapes alone, so the bits do not depend on the number
 * of threads. Calls the call's interrupted(), if not NULL, on this thread at least every few tens
 * of milliseconds. Fills in *run's variant, block_size, grid_size. GPR_ERROR_MEMORY,
 * GPR_ERROR_INTERRUPTED. */
gpr_status gpr_cpu_reduce(const gpr_resolved *call, gpr_run *run);

/* How many of n contiguous, aligned, native elements are not 0, counted on this thread. */
uint64_t gpr_cpu_count_nonzero(gpr_dtype dtype, const void *data, uint64_t n);

/* What a reduction of a host array is estimated to take, by as many threads as it is worth: by
 * rates of processors with AVX2 and AVX-512. */
double gpr_cpu_nanoseconds(const gpr_view *view, const gpr_rule *rule);

/* What packing a view's elements is estimated to take, by as many threads as it is worth. */
double gpr_cpu_nanoseconds_to_pack(const gpr_view *view);

/* gpr_cpu_reduce where no sum is exact. */
gpr_status gpr_cpu_reduce_by_folds(const gpr_resolved *call, gpr_run *run);

/* gpr_cpu_reduce where sums are exact: the rule's kind is GPR_ACC_EXACT or
 * GPR_ACC_EXACT_MOMENTS. */
gpr_status gpr_cpu_reduce_exactly(const gpr_resolved *call, gpr_run *run);

/* Adds every element of a host view of one row to an empty part, which takes its dtype; see
 * exact.h. Calls interrupted(arg) as above. GPR_ERROR_MEMORY, GPR_ERROR_INTERRUPTED. */
gpr_status gpr_cpu_add_exactly(const gpr_view *view, int (*interrupted)(void *),
                               void *interrupted_arg, gpr_exact_part *part);

/* Sums the rule's products of each row of the call's host array, and of the call's second one where
 * there are two, into its result, with the same bits however tasks divide them. The rest is as in
 * gpr_cpu_reduce. */
gpr_status gpr_cpu_reduce_products(const gpr_resolved *call, gpr_run *run);

/* gpr_cpu_reduce_products by the products that the rule names. */
gpr_status gpr_cpu_reduce_by_products(const gpr_resolved *call, gpr_run *run);

/* The logarithm of the sum of the exponentials of each row of the call's host array, of real
 * numbers, as an element of type `result`, a float. The rest is as in gpr_cpu_reduce. */
gpr_status gpr_cpu_logsumexp(const gpr_resolved *call, gpr_dtype result, gpr_run *record);

#endif
