/* Which device a call runs on. */
#ifndef GPR_DISPATCH_DEVICE_SELECT_H
#define GPR_DISPATCH_DEVICE_SELECT_H

#include "lib/rules/nd_view.h"
#include "lib/rules/rules.h"

/* Sets *device to the requested device, as an ordinal or GPR_DEVICE_CPU, for a reduction of a
 * view's elements. GPR_DEVICE_FASTEST: the one that is expected to take less time; measures both
 * once per process. GPR_ERROR_VALUE: no such device. */
gpr_status gpr_select_device(int asked, const gpr_view *view, const gpr_rule *rule, int *device);

#endif
