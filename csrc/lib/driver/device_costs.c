/* Giving a device costs of plans, for this process or for all later ones. */
#include "lib/driver/device.h"
#include "lib/driver/measured_costs.h"

gpr_status gpr_use_costs(int ordinal, const gpr_plan_costs *costs)
{
    gpr_device *device = NULL;
    gpr_costs_info info = {.is_measured = 0};
    gpr_status status = GPR_OK;

    if (costs != NULL) {
        GPR_TRY(gpr_check_costs(costs));
        info.costs = *costs;
    } else {
        GPR_TRY(gpr_costs_at(ordinal, &info));
    }
    GPR_TRY(gpr_device_enter(ordinal, &device));
    device->facts.costs = info.costs;
    gpr_device_leave(device);
done:
    return status;
}

gpr_status gpr_store_costs(int ordinal, const gpr_plan_costs *costs)
{
    gpr_device_info info;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_device_info_at(ordinal, &info));
    GPR_TRY(costs != NULL ? gpr_write_measured_costs(info.name, costs)
                          : gpr_remove_measured_costs(info.name));
    GPR_TRY(gpr_use_costs(ordinal, costs));
done:
    return status;
}
