/* Reducing a host array on a device: it streams through it in chunks. */
#ifndef GPR_LIB_STREAM_H
#define GPR_LIB_STREAM_H

#include "rules.h"
#include "view.h"

/* Reduces each row of the view, or of both views where `second` is not NULL (n >= 1, rows >= 1), on CUDA device `ordinal` into request->result, in C order. Arrays of any size
 * take at most the limits' device and pinned memory. Fills in *run. */
gpr_status gpr_stream_reduce(int ordinal, const gpr_request *request, const gpr_view *view, const gpr_view *second,
                             const gpr_rule *rule, gpr_run *run);

#endif
