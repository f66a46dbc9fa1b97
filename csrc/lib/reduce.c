/* From a request to a result: checks, empty arrays, the choice of device, the record of what was done. */
#include "reduce.h"

#include <stdlib.h>
#include <string.h>

#include "../cpu/cpu.h"
#include "clock.h"
#include "device.h"
#include "stream.h"

static _Thread_local gpr_run last_run;
static _Thread_local int has_run;

const gpr_run *gpr_last_run(void)
{
    return has_run ? &last_run : NULL;
}

/* ---------------------------------------------------------------- checks --------------------- */

static gpr_status check_device_array(const gpr_request *request, const gpr_view *view, int device)
{
    if (device < 0) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "a device array names its CUDA device; copy it to the host to reduce it on the CPU");
    }
    if (request->mask != NULL) return gpr_fail(GPR_ERROR_VALUE, "a device array takes no mask");
    if (!view->contiguous && view->rows != 0 && view->n != 0) {
        return gpr_fail(GPR_ERROR_VALUE, "a device array is contiguous, aligned and in native byte order");
    }
    return GPR_OK;
}

static gpr_status resolve_device(const gpr_request *request, const gpr_view *view, int *device)
{
    const int asked = request->device;

    if (asked < GPR_DEVICE_CUDA) return gpr_fail(GPR_ERROR_VALUE, "unknown device number %d", asked);
    *device = asked;
    if (asked == GPR_DEVICE_CUDA) *device = 0;
    if (asked == GPR_DEVICE_DEFAULT) *device = gpr_cuda_usable() ? 0 : GPR_DEVICE_CPU;
    if (asked == GPR_DEVICE_FASTEST) *device = gpr_choose_device(view->rows * view->n * view->bytes);
    return GPR_OK;
}

gpr_status gpr_resolve(const gpr_request *request, gpr_resolved *resolved)
{
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_make_rule(request->op, request->dtype, request->compute, &resolved->rule));
    resolved->kernel = request->kernel < 0 ? GPR_KERNEL_auto : request->kernel;
    if (resolved->kernel >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", resolved->kernel);
    const gpr_kernel_row *row = &gpr_kernel_rows[resolved->kernel];
    GPR_TRY(gpr_leave_out(&resolved->rule, request->skip_nan, request->mask != NULL));
    resolved->rule.ddof = request->ddof;
    gpr_fit_rule(row, &resolved->rule);
    GPR_TRY(gpr_check_kernel_folds(row, &resolved->rule));
    if (request->block_size != 0) GPR_TRY(gpr_check_block_size(row, request->block_size));
    if (request->grid_size != 0) GPR_TRY(gpr_check_grid_size(row));
    GPR_TRY(gpr_make_view(request, &resolved->view));
    GPR_TRY(resolve_device(request, &resolved->view, &resolved->device));
    if (request->on_device) GPR_TRY(check_device_array(request, &resolved->view, resolved->device));
    if (resolved->device >= 0) GPR_TRY(gpr_cuda_available());
done:
    return status;
}

/* ---------------------------------------------------------------- reducing ------------------- */

/* Rows without elements become the operator's identity, if it has one. */
static gpr_status fill_empty(const gpr_resolved *resolved, void *result)
{
    const gpr_rule *rule = &resolved->rule;
    const gpr_operator_row *row = &gpr_operator_rows[rule->op];
    const gpr_value identity = gpr_identity(rule->fold, rule->compute, rule->host_acc);
    uint8_t packed[sizeof identity];
    char *at = result;

    if (resolved->view.n > 0) return GPR_OK; /* there are no rows */
    if (!row->has_identity) {
        if (rule->form == GPR_FORM_FOUND)
            return gpr_fail(GPR_ERROR_VALUE, "attempt to get %s of an empty sequence", row->ufunc);
        return gpr_fail(GPR_ERROR_VALUE, "zero-size array to reduction operation %s which has no identity", row->ufunc);
    }
    gpr_write_acc(rule->form, rule->host_acc, &identity, packed);
    for (uint64_t i = 0; i < resolved->view.rows; i++) {
        gpr_finish_results(rule, rule->host_acc, packed, 1, 0, at, 0);
        at += gpr_dtype_bytes(rule->result);
    }
    return GPR_OK;
}

gpr_status gpr_reduce(const gpr_request *request)
{
    const double start = gpr_seconds();
    gpr_resolved resolved;
    gpr_run run = {.device = GPR_DEVICE_CPU, .variant = "none", .chunks = 0};
    gpr_status status = GPR_OK;

    for (int i = 0; i < GPR_STAGE_COUNT; i++) run.stage_seconds[i] = -1;
    GPR_TRY(gpr_resolve(request, &resolved));
    const gpr_view *view = &resolved.view;
    run.kernel = resolved.kernel;
    run.elements = view->rows * view->n;
    run.bytes = run.elements * view->bytes;
    if (run.elements == 0) {
        GPR_TRY(fill_empty(&resolved, request->result));
    } else if (resolved.device == GPR_DEVICE_CPU) {
        run.chunks = 1;
        GPR_TRY(gpr_cpu_reduce(view, &resolved.rule, request->interrupted, request->interrupted_arg, request->result,
                               &run));
    } else {
        GPR_TRY(gpr_stream_reduce(resolved.device, request, view, &resolved.rule, &run));
    }
    run.seconds = gpr_seconds() - start;
    last_run = run;
    has_run = 1;
done:
    return status;
}

gpr_status gpr_reduce_array(gpr_operator op, gpr_dtype dtype, const void *data, uint64_t n, void *result)
{
    const int64_t shape = (int64_t)n;
    gpr_request request = {.op = op,
                           .dtype = dtype,
                           .compute = GPR_DTYPE_DEFAULT,
                           .ndim = 1,
                           .reduced = 1,
                           .shape = &shape,
                           .data = data,
                           .kernel = -1,
                           .device = GPR_DEVICE_DEFAULT,
                           .result = result};

    if (n > INT64_MAX) return gpr_fail(GPR_ERROR_VALUE, "an array has at most 2^63 - 1 elements");
    return gpr_reduce(&request);
}
