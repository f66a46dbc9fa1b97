/* Kept axes that were broadcast: of rows that are the same, one is reduced, and its result in host
 * memory copied. Results on a device are copied there (lib/run/distinct_rows.h). */
#ifndef GPR_DISPATCH_BROADCAST_ROWS_H
#define GPR_DISPATCH_BROADCAST_ROWS_H

#include "lib/rules/resolved.h"

/* The axes of a call's rows along which all are the same, as gpr_view_same_rows returns them; 0
 * where little is gained, and on a GPU for kernels of the course, which read what they are
 * given. */
uint64_t gpr_broadcast_axes(const gpr_resolved *call);

/* Makes *distinct the call of gpr_view_distinct_rows's view, whose results follow each other. */
void gpr_take_distinct_rows(const gpr_resolved *call, uint64_t axes, gpr_resolved *distinct);

/* Reduces the rows of gpr_view_distinct_rows's view by `run_call`, and copies their results to
 * those of all rows. Asks the call's interrupted(). GPR_ERROR_INTERRUPTED. */
gpr_status gpr_reduce_distinct_rows(const gpr_resolved *call, uint64_t axes,
                                    gpr_status (*run_call)(const gpr_resolved *, gpr_run *),
                                    gpr_run *run);

#endif
