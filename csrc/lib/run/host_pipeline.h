/* Reducing a host array on a device: it streams through it in chunks. */
#ifndef GPR_LIB_HOST_PIPELINE_H
#define GPR_LIB_HOST_PIPELINE_H

#include "lib/rules/resolved.h"

/* Reduces each row of the call's host array, or of its two arrays (n >= 1, rows >= 1), on its CUDA
 * device into call->result. Arrays of any size take at most the limits' device and pinned memory.
 * Fills in *run. */
gpr_status gpr_stream_reduce(const gpr_resolved *call, gpr_run *run);

#endif
