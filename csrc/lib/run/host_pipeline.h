/* Reducing a host array on a device: it streams through it in chunks. */
#ifndef GPR_LIB_HOST_PIPELINE_H
#define GPR_LIB_HOST_PIPELINE_H

#include "lib/rules/plan.h"
#include "lib/rules/resolved.h"

/* Reduces each row of the call's host array, or of its two arrays (n >= 1, rows >= 1), on its CUDA
 * device into call->result. Arrays of any size take at most the limits' device and pinned memory.
 * Fills in *run. */
gpr_status gpr_stream_reduce(const gpr_resolved *call, gpr_run *run);

/* Plans such a call, on a device of these facts that has as much memory as the limits allow.
 * `pinned`: whether the array is in pinned memory; nothing is read from it. Calls `take` with the
 * plan of each size of chunk, in order, and returns the first failure. */
gpr_status gpr_plan_stream(const gpr_resolved *call, const gpr_device_facts *facts, int pinned,
                           gpr_status (*take)(void *context, const gpr_plan *plan), void *context);

#endif
