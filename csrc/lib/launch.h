/* Launching a plan. */
#ifndef GPR_LIB_LAUNCH_H
#define GPR_LIB_LAUNCH_H

#include "device.h"

/* Makes the cell of a plan. */
gpr_cell gpr_plan_cell(const gpr_plan *plan, const gpr_rule *rule);

/* Makes the device's scratch large enough for the plan. */
gpr_status gpr_ensure_scratch(gpr_device *device, const gpr_plan *plan, const gpr_rule *rule, CUstream stream);

/* Queues all launches of the plan: elements at `elements` to accumulators (plan->rows of them, rule->device_acc) at `outputs`, which
 * may be pinned host memory unless plan->fill. The scratch is the device's; plans on one stream may follow each other. Adds the
 * number of launches to *launches. */
gpr_status gpr_launch_plan(gpr_device *device, const gpr_plan *plan, const gpr_program *program, CUdeviceptr elements,
                           CUdeviceptr outputs, CUstream stream, uint32_t *launches);

#endif
