/* Device time of a reduction, by events around its launches, and prices of the ways to read its
 * array. */
#include "dispatch/broadcast_rows.h"
#include "dispatch/resolve.h"
#include "lib/run/device_path.h"

/* Writes `flush_bytes` to device memory, so that L2 holds nothing of the array, and times one
 * run. */
static gpr_status run_once(gpr_array_job *job, CUdeviceptr outputs, uint64_t flush_bytes, int value,
                           float *milliseconds)
{
    gpr_device *device = job->device;
    const CUstream stream = job->work.stream;
    uint32_t launches = 0;
    gpr_status status = GPR_OK;

    if (flush_bytes != 0)
        GPR_CU(cuMemsetD8Async, device->flush.address, (unsigned char)value, flush_bytes, stream);
    GPR_CU(cuEventRecord, device->started, stream);
    GPR_TRY(gpr_array_queue(job, outputs, &launches));
    GPR_CU(cuEventRecord, device->stopped, stream);
    GPR_CU(cuEventSynchronize, device->stopped);
    GPR_CU(cuEventElapsedTime, milliseconds, device->started, device->stopped);
done:
    return status;
}

static gpr_status measure(gpr_array_job *job, int warmup, int repeats, uint64_t flush_bytes,
                          float *milliseconds)
{
    gpr_device *device = job->device;
    CUdeviceptr outputs = (CUdeviceptr)(uintptr_t)job->call->result;
    gpr_run run = {0};
    float ignored = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_array_prepare(job, &run));
    if (!job->call->result_on_device) {
        GPR_TRY(gpr_buffer_ensure(&device->outputs, job->result_bytes, 0, job->work.stream));
        outputs = device->outputs.address;
    }
    GPR_TRY(gpr_buffer_ensure(&device->flush, flush_bytes, 0, job->work.stream));
    for (int i = 0; i < warmup; i++) GPR_TRY(run_once(job, outputs, flush_bytes, i, &ignored));
    for (int i = 0; i < repeats; i++)
        GPR_TRY(run_once(job, outputs, flush_bytes, i, &milliseconds[i]));
done:
    status = gpr_array_leave(job, status);
    gpr_buffer_clear(&device->outputs);
    gpr_buffer_clear(&device->flush);
    return status;
}

static int is_empty(const gpr_view *view)
{
    return view->n == 0 || view->rows == 0;
}

/* GPR_ERROR_VALUE: a kernel that has one way to read an array. */
static gpr_status check_ways(int kernel)
{
    if (kernel == GPR_KERNEL_fast) return GPR_OK;
    return gpr_fail(GPR_ERROR_VALUE, "kernel 'fast' has ways to read an array, '%s' has none",
                    gpr_kernel_rows[kernel].name);
}

/* What is measured. */
typedef struct task {
    uint32_t way;
    int warmup, repeats;
    uint64_t flush_bytes;
    float *milliseconds;
} task;

static __attribute__((noinline)) gpr_status measure_rows(const gpr_resolved *call,
                                                         const gpr_distinct_rows *distinct,
                                                         const task *asked)
{
    gpr_array_job job = {.call = call, .distinct = distinct};
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_device_enter(call->device, &job.device));
    job.device->facts.way = asked->way; /* until it is left: no other thread plans for it */
    status = measure(&job, asked->warmup, asked->repeats, asked->flush_bytes, asked->milliseconds);
    job.device->facts.way = 0;
    gpr_device_leave(job.device);
done:
    return status;
}

/* Of rows that are the same the call reads one. Not inlined, nor is the one above: their records
 * would make one frame of several KiB. */
static __attribute__((noinline)) gpr_status measure_distinct_rows(const gpr_resolved *call,
                                                                  const task *asked)
{
    const uint64_t axes = gpr_broadcast_axes(call);
    gpr_distinct_rows distinct;

    if (gpr_find_distinct_rows(call, &distinct))
        return measure_rows(&distinct.call, &distinct, asked);
    if (axes == 0) return measure_rows(call, NULL, asked);
    gpr_take_distinct_rows(call, axes, &distinct.call);
    return measure_rows(&distinct.call, NULL, asked);
}

gpr_status gpr_measure_way(const gpr_request *request, uint32_t way, int warmup, int repeats,
                           uint64_t flush_bytes, float *milliseconds)
{
    const task asked = {way, warmup, repeats, flush_bytes, milliseconds};
    gpr_resolved call;
    gpr_status status = GPR_OK;

    if (!request->on_device)
        return gpr_fail(GPR_ERROR_VALUE, "gpr_measure takes an array in device memory");
    if (warmup < 0 || repeats < 0)
        return gpr_fail(GPR_ERROR_VALUE, "numbers of runs are not negative");
    GPR_TRY(gpr_resolve_call(request, &call));
    if (is_empty(&call.view))
        return gpr_fail(GPR_ERROR_VALUE, "there is nothing to measure in an empty array");
    if (way != 0) GPR_TRY(check_ways(call.kernel));
    /* ways are of the array as it is, as gpr_price_ways has them */
    status = way == 0 && gpr_view_same_rows(&call.view) != 0 ? measure_distinct_rows(&call, &asked)
                                                             : measure_rows(&call, NULL, &asked);
done:
    return status;
}

gpr_status gpr_measure(const gpr_request *request, int warmup, int repeats, uint64_t flush_bytes,
                       float *milliseconds)
{
    return gpr_measure_way(request, 0, warmup, repeats, flush_bytes, milliseconds);
}

gpr_status gpr_price_ways(const gpr_request *request, const gpr_device_facts *facts, uint32_t room,
                          double *ns, uint32_t *count)
{
    gpr_rule rule;
    gpr_view view;
    gpr_layout layout;
    int kernel = 0;
    gpr_status status = GPR_OK;

    *count = 0;
    GPR_TRY(gpr_resolve_view(request, &rule, &kernel, &view));
    GPR_TRY(check_ways(kernel));
    if (is_empty(&view)) return gpr_fail(GPR_ERROR_VALUE, "an empty array is not read in any way");
    gpr_view_layout(&view, NULL, &layout);
    status = gpr_list_prices(&rule, &layout, facts, room, ns, count);
done:
    return status;
}
