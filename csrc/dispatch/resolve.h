/* From a request to the record that everything below reads. */
#ifndef GPR_DISPATCH_RESOLVE_H
#define GPR_DISPATCH_RESOLVE_H

#include "lib/rules/resolved.h"

/* Clears a call but for its rule and its view, whose axes are most of it and need no clearing. */
void gpr_clear_call(gpr_resolved *call);

/* Checks everything about a request that can be checked before work starts, in the order of
 * importance to a user. request->resolution has the results of gpr_resolve, if that was called. */
gpr_status gpr_resolve_call(const gpr_request *request, gpr_resolved *call);

/* The rule, kernel and view of a request, by the resolution that it has or by one made now. */
gpr_status gpr_resolve_view(const gpr_request *request, gpr_rule *rule, int *kernel,
                            gpr_view *view);

/* GPR_ERROR_VALUE: arrays and results that are not where `device` is. */
gpr_status gpr_check_places(const gpr_request *request, int device);

/* Checks of a device array that need no call of the driver: alignment, byte order.
 * GPR_ERROR_VALUE. */
gpr_status gpr_check_device_array(const gpr_request *request, const gpr_view *view,
                                  const gpr_rule *rule);

#endif
