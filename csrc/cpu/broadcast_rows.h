/* Kept axes that NumPy broadcast: of rows that are the same, one is reduced, and its result copied.
 * Private to csrc/cpu. */
#ifndef GPR_CPU_BROADCAST_ROWS_H
#define GPR_CPU_BROADCAST_ROWS_H

#include "lib/rules/resolved.h"

/* The axes of a call's rows along which all are the same, as gpr_view_same_rows returns them; 0
 * where little is gained. */
uint64_t gpr_cpu_broadcast_axes(const gpr_resolved *call);

/* Copies results of `bytes` each, of the rows of gpr_view_distinct_rows's view, to the results of
 * all rows. Asks the call's interrupted(). GPR_ERROR_INTERRUPTED. */
gpr_status gpr_cpu_spread_results(const gpr_resolved *call, uint64_t axes, const char *results,
                                  size_t bytes, char *all);

#endif
