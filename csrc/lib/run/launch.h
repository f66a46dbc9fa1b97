/* Launching a plan. */
#ifndef GPR_LIB_LAUNCH_H
#define GPR_LIB_LAUNCH_H

#include "lib/driver/device.h"

/* Makes the cell of a plan. `finishes`: results leave it, not accumulators. */
gpr_cell gpr_plan_cell(const gpr_plan *plan, const gpr_rule *rule, int finishes);

/* What a plan works on. Scratch is as the plan says; plans that follow each other on one stream may share it. */
typedef struct gpr_work {
    CUdeviceptr elements, mask;
    CUdeviceptr
        outputs; /* accumulators (rule->device_acc), or results where the program finishes; pinned host memory unless
                          * plan->fill is set and the program does not finish */
    CUdeviceptr partials, more_partials, tickets;
    CUdeviceptr accumulators; /* plan->rows of them, where the program has finish_rows */
    CUdeviceptr second;       /* the other array, and its step in elements, where there are two */
    int64_t second_step;
    double ddof;
    CUdeviceptr means; /* that are given; 0: mean_for_all is every row's */
    double mean_for_all[2];
    int64_t plane; /* minmax: results from a row's smallest to its largest */
    CUstream stream;
} gpr_work;

/* Queues all launches of the plan. Adds their number to *launches. After a failure tickets may not be zero. */
gpr_status gpr_launch_plan(const gpr_plan *plan, const gpr_program *program, const gpr_work *work, uint32_t *launches);

/* The device's own scratch, for host arrays: made large enough for the plan, and noted in *work. One call at a time uses it. */
gpr_status gpr_ensure_scratch(gpr_device *device, const gpr_plan *plan, const gpr_rule *rule, gpr_work *work);

#endif
