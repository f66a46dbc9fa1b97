/* A plan: the part that all kernels share, and the choice of the file that plans the rest:
 * plan_fast.c, plan_exact.c or plan_named.c. How many blocks share a row is gpr_split_rows of
 * plan_grid.c; which block sizes kernels take is kernel_checks.c. */
#include "lib/rules/plan.h"

#include "lib/base/status.h"
#include "lib/rules/accumulators.h"
#include "lib/rules/plan_grid.h"
#include "shared/tuning.h"

gpr_status gpr_make_plan(int kernel, const gpr_rule *rule, const gpr_layout *layout, int finishes,
                         uint32_t block, uint32_t grid, const gpr_device_facts *facts,
                         gpr_plan *plan)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[kernel];
    const gpr_plan_task t = {.rule = rule,
                             .layout = layout,
                             .facts = facts,
                             .finishes = finishes,
                             .block = block,
                             .grid = grid,
                             .element_bytes = gpr_dtype_bytes(rule->element),
                             .acc_bytes = gpr_acc_bytes(rule->acc_kind, rule->device_acc)};
    gpr_status status = GPR_OK;

    *plan = (gpr_plan){.kernel = kernel,
                       .variant = row->name,
                       .block = block != 0 ? block : row->block,
                       .lanes = GPR_WARP_LANES,
                       .per_thread = row->per_thread,
                       .item = 1,
                       .strips = 1,
                       .cluster = 1,
                       .width = 1,
                       .rows = layout->rows};
    if (facts->cc < row->min_cc) {
        return gpr_fail(GPR_ERROR_KERNEL,
                        "kernel '%s' needs compute capability %d.%d, this GPU has %d.%d", row->name,
                        row->min_cc / 10, row->min_cc % 10, facts->cc / 10, facts->cc % 10);
    }
    GPR_TRY(gpr_check_block_size(row, plan->block));
    if (grid != 0) GPR_TRY(gpr_check_grid_size(row));
    if (row->family == GPR_FAMILY_PLANNER)
        status = gpr_plan_fast(&t, plan);
    else if ((row->flags & GPR_SUMS_EXACTLY) != 0)
        status = gpr_plan_exact(&t, plan);
    else
        status = gpr_plan_named(row, &t, plan);
done:
    return status;
}
