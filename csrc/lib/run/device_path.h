/* Reducing arrays in the memory of a device. */
#ifndef GPR_LIB_DEVICE_PATH_H
#define GPR_LIB_DEVICE_PATH_H

#include "lib/run/distinct_rows.h"
#include "lib/run/launch.h"
#include "lib/run/scratch.h"

/* A device array's reduction, ready to be queued, once or again and again, on one stream. */
typedef struct gpr_array_job {
    gpr_device *device;
    const gpr_resolved *call;
    const gpr_distinct_rows *distinct; /* of which `call` is the call; NULL: it is the caller's */
    gpr_plan plan;
    gpr_program *program;
    gpr_work work;
    gpr_scratch *scratch;
    int leaves_accumulators; /* instead of results: the host finishes them */
    uint64_t result_bytes;   /* of all results together, without gaps */
} gpr_array_job;

/* Checks memory and stream, plans, loads the program, takes scratch. The device is entered.
 * job->device, job->call and job->distinct are set; *run counts programs. GPR_ERROR_VALUE: memory
 * that is not the device's, a stream of another device. */
gpr_status gpr_array_prepare(gpr_array_job *job, gpr_run *run);
/* Queues the kernels with results at `outputs`: device memory, or pinned memory. Adds to
 * *launches. */
gpr_status gpr_array_queue(gpr_array_job *job, CUdeviceptr outputs, uint32_t *launches);
/* Ends the job, whose status so far is given; returns its last. */
gpr_status gpr_array_leave(gpr_array_job *job, gpr_status status);

/* Reduces each row of the call's array, or of its two arrays (rows >= 1), on its CUDA device.
 * Results on the device: the work is queued on the call's stream and the call returns. Results in
 * host memory: waits for them. Fills in *run. */
gpr_status gpr_array_reduce(const gpr_resolved *call, gpr_run *run);

/* As above, up to accumulators of the rule's device_acc, one per row, which are stored to
 * call->result, in host memory. The kernel is one that sums exactly. */
gpr_status gpr_array_accumulate(const gpr_resolved *call, gpr_run *run);

#endif
