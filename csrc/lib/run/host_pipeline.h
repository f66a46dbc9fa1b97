/* Reducing a host array on a device: it streams through it in chunks. */
#ifndef GPR_LIB_STREAM_H
#define GPR_LIB_STREAM_H

#include "dispatch/reduce.h"

/* Reduces each row of the view, or of it and `second` where that is not NULL (n >= 1, rows >= 1), on the CUDA device into
 * request->result, in C order. Arrays of any size take at most the limits' device and pinned memory. Fills in *run. */
gpr_status gpr_stream_reduce(const gpr_request *request, const gpr_resolved *resolved, const gpr_view *second,
                             gpr_run *run);

#endif
