/* Kept axes in the order of memory. */
#ifndef GPR_DISPATCH_AXIS_ORDER_H
#define GPR_DISPATCH_AXIS_ORDER_H

#include "lib/rules/nd_view.h"

/* A request whose kept axes are in another order, and the memory that it points to. */
typedef struct gpr_ordered_request {
    gpr_request request;
    int64_t shape[GPR_MAX_NDIM], strides[GPR_MAX_NDIM], mask_strides[GPR_MAX_NDIM],
        result_strides[GPR_MAX_NDIM + 1];
} gpr_ordered_request;

/* Whether the CPU backend reduces a host array in less time if its kept axes are in the order of
 * memory, each of them forward. `ordered` is that request then: its results have steps, which take
 * each to where it belongs. */
int gpr_order_kept_axes(const gpr_request *request, const gpr_rule *rule,
                        gpr_ordered_request *ordered);

#endif
