/* Device memory for calls that do not wait: partials, tickets and accumulators that kernels leave
 * for each other.
 *
 * A call that returns before its kernels have run cannot share scratch with later calls, except on
 * the same stream, where work is done in order. So scratch belongs to a stream, identified by the
 * number that the driver never gives twice (a handle may come again while work of its last owner is
 * under way). A stream that is being captured has scratch that belongs to the graph: a replay may
 * run beside anything else. It comes back when the graph, and all that was made of it, is gone. */
#ifndef GPR_LIB_SCRATCH_H
#define GPR_LIB_SCRATCH_H

#include "lib/run/launch.h"

typedef struct gpr_scratch gpr_scratch;

/* Takes scratch for the plan on work->stream, and notes its parts in *work; `accumulators`: also
 * plan->rows accumulators. Nothing is allocated where scratch that is large enough is idle. NULL
 * in *scratch: the plan needs none. */
gpr_status gpr_scratch_acquire(gpr_device *device, const gpr_plan *plan, const gpr_rule *rule,
                               int accumulators, gpr_work *work, gpr_scratch **scratch);

/* Ends the call that took it: its work is queued on work->stream, or, if not `well`, only a part
 * of it may be. */
gpr_status gpr_scratch_release(gpr_scratch *scratch, const gpr_work *work, int well);

#endif
