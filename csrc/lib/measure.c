/* Device time of a reduction, by events around its launches. */
#include "launch.h"
#include "reduce.h"
#include "view.h"

#include <string.h>

/* A request that is ready to launch again and again. */
typedef struct measurement {
    gpr_device *device;
    gpr_plan plan;
    gpr_program *program;
    CUdeviceptr elements;
    uint64_t flush_bytes;
    CUstream stream;
} measurement;

static gpr_status prepare(measurement *m, const gpr_request *request, const gpr_view *view, const gpr_rule *rule)
{
    gpr_run run = {0};
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_make_plan(request->kernel < 0 ? GPR_KERNEL_auto : request->kernel, rule, view->rows, view->n,
                          request->block_size, request->grid_size, &m->device->facts, &m->plan));
    const gpr_cell cell = gpr_plan_cell(&m->plan, rule);
    GPR_TRY(gpr_load_program(m->device, &cell, &run, &m->program));
    GPR_TRY(gpr_ensure_scratch(m->device, &m->plan, rule, m->stream));
    GPR_TRY(
        gpr_buffer_ensure(&m->device->outputs, view->rows * gpr_acc_bytes(rule->form, rule->device_acc), 0, m->stream));
    GPR_TRY(gpr_buffer_ensure(&m->device->flush, m->flush_bytes, 0, m->stream));
done:
    return status;
}

static gpr_status run_once(measurement *m, int value, float *milliseconds)
{
    gpr_device *device = m->device;
    uint32_t launches = 0;
    gpr_status status = GPR_OK;

    if (m->flush_bytes != 0) {
        GPR_CU(cuMemsetD8Async, device->flush.address, (unsigned char)value, m->flush_bytes, m->stream);
    }
    GPR_CU(cuEventRecord, device->started, m->stream);
    GPR_TRY(gpr_launch_plan(device, &m->plan, m->program, m->elements, device->outputs.address, m->stream, &launches));
    GPR_CU(cuEventRecord, device->stopped, m->stream);
    GPR_CU(cuEventSynchronize, device->stopped);
    GPR_CU(cuEventElapsedTime, milliseconds, device->started, device->stopped);
done:
    return status;
}

gpr_status gpr_measure(const gpr_request *request, int warmup, int repeats, uint64_t flush_bytes, float *milliseconds)
{
    measurement m = {.flush_bytes = flush_bytes};
    gpr_resolved resolved;
    float ignored = 0;
    gpr_status status = GPR_OK;

    if (!request->on_device) return gpr_fail(GPR_ERROR_VALUE, "gpr_measure takes an array in device memory");
    if (warmup < 0 || repeats < 0) return gpr_fail(GPR_ERROR_VALUE, "numbers of runs are not negative");
    GPR_TRY(gpr_resolve(request, &resolved));
    if (resolved.view.n == 0 || resolved.view.rows == 0)
        return gpr_fail(GPR_ERROR_VALUE, "there is nothing to measure in an empty array");
    status = gpr_device_enter(resolved.device, &m.device);
    if (status != GPR_OK) return status;
    m.elements = (CUdeviceptr)(uintptr_t)resolved.view.data;
    m.stream = request->stream != NULL ? (CUstream)request->stream : m.device->compute;
    status = prepare(&m, request, &resolved.view, &resolved.rule);
    for (int i = 0; i < warmup && status == GPR_OK; i++) status = run_once(&m, i, &ignored);
    for (int i = 0; i < repeats && status == GPR_OK; i++) status = run_once(&m, i, &milliseconds[i]);
    /* A run that failed half way may still be at work on the caller's memory. */
    if (status != GPR_OK) (void)gpr_cuda.cuStreamSynchronize(m.stream);
    gpr_buffer_clear(&m.device->outputs);
    gpr_buffer_clear(&m.device->flush);
    gpr_device_leave(m.device);
done:
    return status;
}
