/* Launching a plan. */
#ifndef GPR_LIB_LAUNCH_H
#define GPR_LIB_LAUNCH_H

#include "lib/driver/device.h"

/* Makes the traits of a plan. `finishes`: results leave it, not accumulators. */
gpr_kernel_traits gpr_plan_traits(const gpr_plan *plan, const gpr_rule *rule, int finishes);

/* The parameters that depend on the number of axes, with room for as many as there can be. A kernel
 * takes as much of them as its program has axes, and of given means only where it has these. */
typedef struct gpr_layout_argument {
    gpr_layout_params layout;
    gpr_axis axes[GPR_MAX_NDIM + 2]; /* kept axes first */
} gpr_layout_argument;

typedef struct gpr_finalize_argument {
    gpr_finalize_params finalize;
    gpr_given_mean_params given_mean;
    int64_t steps[GPR_MAX_NDIM]; /* in given means, of kept axes */
} gpr_finalize_argument;

_Static_assert(sizeof(gpr_layout_argument) + sizeof(gpr_finalize_argument) +
                       sizeof(gpr_rows_params) + sizeof(gpr_scratch_params) +
                       sizeof(gpr_second_params) + 2 * sizeof(CUdeviceptr) <=
                   GPR_PARAMS_BYTES,
               "a kernel takes no more parameters");

/* The memory that a plan works on. Scratch has the size that the plan gives; plans that follow each
 * other on one stream may share it. */
typedef struct gpr_work {
    CUdeviceptr elements, mask;
    /* accumulators (rule->device_acc), or results where the program finishes; pinned host
     * memory unless plan->fill is set and the program does not finish */
    CUdeviceptr outputs;
    CUdeviceptr partials, more_partials, tickets;
    /* plan->rows of them, where the program has finalize_rows */
    CUdeviceptr accumulators;
    /* the other array, and its step in elements, where there are two */
    CUdeviceptr second;
    int64_t second_step;
    double ddof;
    /* that are given; 0: mean_for_all is every row's */
    CUdeviceptr means;
    double mean_for_all[2];
    uint64_t start[2]; /* an element's bits */
    /* minmax: results from a row's smallest to its largest */
    int64_t output_stride;
    CUstream stream;
} gpr_work;

/* Queues all launches of the plan. Adds their number to *launches. After a failure tickets may
 * not be zero. */
gpr_status gpr_launch_plan(const gpr_plan *plan, const gpr_program *program, const gpr_work *work,
                           uint32_t *launches);

/* Queues the copies of results of distinct rows, by a program that has copy_results. Adds to
 * *launches. */
gpr_status gpr_launch_copies(const gpr_program *program, const gpr_copy_params *copies,
                             const gpr_work *work, uint32_t *launches);

/* Waits for what a failed call has queued: the caller may free its memory, and nothing may go on
 * using it. A stream that is being captured runs nothing, and is not waited for. */
void gpr_settle_stream(CUstream stream, gpr_status status);

/* Bytes of scratch of all kinds that a plan needs. */
uint64_t gpr_scratch_bytes(const gpr_plan *plan, const gpr_rule *rule);

/* The device's own scratch, for host arrays: made large enough for the plan, and noted in *work.
 * One call at a time uses it. Calls need scratch of different kinds, and each kind stays for later
 * calls: where all of it would grow beyond `most` bytes, what the plan does not need is freed. */
gpr_status gpr_ensure_scratch(gpr_device *device, const gpr_plan *plan, const gpr_rule *rule,
                              uint64_t most, gpr_work *work);

#endif
