/* Costs of plans that were measured on this machine's GPUs, one file per name of a GPU in the
 * cache's folder. A file that is damaged, of another GPU, or not this user's alone is not used. */
#ifndef GPR_LIB_MEASURED_COSTS_H
#define GPR_LIB_MEASURED_COSTS_H

#include "lib/base/status.h"

/* Fills in info->path and reads the file for GPUs called `gpu`: costs and is_measured, or the
 * reason why not. */
void gpr_read_measured_costs(const char *gpu, gpr_costs_info *info);

/* Writes the file for GPUs called `gpu`. GPR_ERROR_VALUE, GPR_ERROR_SYSTEM. */
gpr_status gpr_write_measured_costs(const char *gpu, const gpr_plan_costs *costs);

/* Removes it, if there is one. GPR_ERROR_SYSTEM: it cannot be removed. */
gpr_status gpr_remove_measured_costs(const char *gpu);

/* GPR_ERROR_VALUE: a cost that no GPU has. */
gpr_status gpr_check_costs(const gpr_plan_costs *costs);

#endif
