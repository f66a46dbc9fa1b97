/* From a request to a result: checks, empty arrays, the choice of device, the record of what was done. */
#include "dispatch/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "lib/base/clock.h"
#include "lib/driver/device.h"
#include "lib/run/device_path.h"
#include "lib/run/host_pipeline.h"

static _Thread_local gpr_run last_run;
static _Thread_local int has_run;

const gpr_run *gpr_last_run(void)
{
    return has_run ? &last_run : NULL;
}

void gpr_record_run(const gpr_run *run)
{
    last_run = *run;
    has_run = 1;
}

/* ---------------------------------------------------------------- checks --------------------- */

gpr_status gpr_check_places(const gpr_request *request, int device)
{
    if (request->result_on_device && !request->on_device)
        return gpr_fail(GPR_ERROR_VALUE, "results of a host array are in host memory");
    if (request->has_given_mean && !request->on_device)
        return gpr_fail(GPR_ERROR_VALUE, "a mean is given of arrays in device memory only");
    if (request->on_device && device < 0) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "a device array names its CUDA device; copy it to the host to reduce it on the CPU");
    }
    return GPR_OK;
}

gpr_status gpr_resolve_device(int asked, uint64_t bytes, int *device)
{

    if (asked < GPR_DEVICE_CUDA) return gpr_fail(GPR_ERROR_VALUE, "unknown device number %d", asked);
    *device = asked;
    if (asked == GPR_DEVICE_CUDA) *device = 0;
    if (asked == GPR_DEVICE_DEFAULT) *device = gpr_cuda_usable() ? 0 : GPR_DEVICE_CPU;
    if (asked == GPR_DEVICE_FASTEST) *device = gpr_choose_device(bytes);
    return GPR_OK;
}

static gpr_status make_rule(const gpr_request *request, const gpr_kernel_row *row, gpr_rule *rule)
{
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_make_rule(request->op, request->dtype, request->compute, rule));
    GPR_TRY(gpr_leave_out(rule, request->skip_nan, request->mask != NULL));
    rule->ddof = request->ddof;
    if (request->has_given_mean) GPR_TRY(gpr_take_mean(rule, request->mean_dtype));
    gpr_fit_rule(row, rule);
done:
    return status;
}

gpr_status gpr_resolve(const gpr_request *request, gpr_resolved *resolved)
{
    gpr_status status = GPR_OK;

    if (request->kernel >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", request->kernel);
    resolved->kernel = gpr_choose_kernel(request->kernel, request->op, request->dtype, request->compute);
    const gpr_kernel_row *row = &gpr_kernel_rows[resolved->kernel];
    GPR_TRY(make_rule(request, row, &resolved->rule));
    GPR_TRY(gpr_check_kernel_folds(row, &resolved->rule));
    if (request->block_size != 0) GPR_TRY(gpr_check_block_size(row, request->block_size));
    if (request->grid_size != 0) GPR_TRY(gpr_check_grid_size(row));
    GPR_TRY(gpr_make_view(request, &resolved->view));
    /* Results of nothing are the same whatever the kernel, and the planner's to write. */
    if (resolved->view.n == 0) {
        resolved->kernel = GPR_KERNEL_fast;
        GPR_TRY(make_rule(request, &gpr_kernel_rows[GPR_KERNEL_fast], &resolved->rule));
    }
    const gpr_view *view = &resolved->view;
    GPR_TRY(gpr_resolve_device(request->device, view->rows * view->n * view->bytes, &resolved->device));
    GPR_TRY(gpr_check_places(request, resolved->device));
    if (request->on_device) GPR_TRY(gpr_check_array(request, view, &resolved->rule));
    if (resolved->device >= 0) GPR_TRY(gpr_cuda_available());
done:
    return status;
}

/* ---------------------------------------------------------------- reducing ------------------- */

static gpr_status check_identity(const gpr_operator_row *row, gpr_acc_kind acc_kind)
{
    if (row->has_identity) return GPR_OK;
    if (acc_kind == GPR_ACC_INDEXED)
        return gpr_fail(GPR_ERROR_VALUE, "attempt to get %s of an empty sequence", row->ufunc);
    return gpr_fail(GPR_ERROR_VALUE, "zero-size array to reduction operation %s which has no identity", row->ufunc);
}

/* Rows without elements become the operator's identity, if it has one. */
static void fill_empty(const gpr_resolved *resolved, void *result)
{
    const gpr_rule *rule = &resolved->rule;
    const gpr_value identity = gpr_identity(rule->fold, rule->compute, rule->host_acc);
    uint8_t packed[sizeof identity];
    char *at = result;

    gpr_write_acc(rule->acc_kind, rule->host_acc, &identity, packed);
    for (uint64_t i = 0; i < resolved->view.rows; i++) {
        gpr_finish_results(rule, rule->host_acc, packed, 1, 0, at, 0);
        at += gpr_dtype_bytes(rule->result);
    }
}

/* One reduction whose results go where they lie one after another, or stay on the device. */
static gpr_status reduce_in_order(const gpr_request *request, gpr_run *run)
{
    gpr_resolved resolved;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_resolve(request, &resolved));
    const gpr_view *view = &resolved.view;
    run->kernel = request->kernel < 0 ? GPR_KERNEL_auto : request->kernel;
    run->elements = view->rows * view->n;
    run->bytes = run->elements * view->bytes;
    /* Without elements there is no result, even if there are no rows that want one: as NumPy has it. */
    if (view->n == 0) GPR_TRY(check_identity(&gpr_operator_rows[request->op], resolved.rule.acc_kind));
    if (view->rows == 0) return GPR_OK;
    if (view->n == 0) {
        if (!request->result_on_device) {
            fill_empty(&resolved, request->result);
            return GPR_OK;
        }
    }
    if (request->on_device) {
        GPR_TRY(gpr_array_reduce(request, &resolved, NULL, run));
    } else if (resolved.device == GPR_DEVICE_CPU) {
        run->chunks = 1;
        GPR_TRY(
            gpr_cpu_reduce(view, &resolved.rule, request->interrupted, request->interrupted_arg, request->result, run));
    } else {
        GPR_TRY(gpr_stream_reduce(request, &resolved, NULL, run));
    }
done:
    return status;
}

/* ---------------------------------------------------------------- results with steps --------- */

/* The axes of a request's results in host memory, outputs of minmax first. */
typedef struct result_axes {
    int count;
    uint64_t bytes, results; /* of a result; number of them */
    int64_t shape[GPR_MAX_NDIM + 1];
} result_axes;

/* Whether the results' steps leave gaps or change their order; *axes is filled in if so. A request that makes no sense has none: it
 * is refused later. */
static int has_steps(const gpr_request *request, result_axes *axes)
{
    const gpr_dtype result = gpr_result_dtype(request->op, request->dtype, request->compute);
    const int kept = request->ndim - request->reduced;
    int64_t step = 0;
    int differs = 0;

    if (request->result_strides == NULL || request->result_on_device || result == GPR_DTYPE_DEFAULT) return 0;
    if (request->ndim > GPR_MAX_NDIM || request->reduced < 0 || kept < 0) return 0;
    *axes = (result_axes){.bytes = gpr_dtype_bytes(result), .results = 1};
    if (request->op == GPR_OP_MINMAX) axes->shape[axes->count++] = 2;
    for (int i = 0; i < kept; i++) {
        if (request->shape[i] < 0) return 0;
        axes->shape[axes->count++] = request->shape[i];
    }
    step = (int64_t)axes->bytes;
    for (int i = axes->count - 1; i >= 0; i--) {
        differs |= axes->shape[i] != 1 && request->result_strides[i] != step;
        axes->results *= (uint64_t)axes->shape[i];
        step *= axes->shape[i];
    }
    return differs;
}

/* Puts results that lie one after another where the request wants them. */
static void spread_results(const gpr_request *request, const result_axes *axes, const char *results)
{
    int64_t index[GPR_MAX_NDIM + 1] = {0};
    char *to = request->result;

    for (uint64_t i = 0; i < axes->results; i++) {
        memcpy(to, results + i * axes->bytes, axes->bytes);
        for (int a = axes->count - 1; a >= 0; a--) {
            to += request->result_strides[a];
            if (++index[a] < axes->shape[a]) break;
            to -= axes->shape[a] * request->result_strides[a];
            index[a] = 0;
        }
    }
}

static gpr_status reduce_with_steps(const gpr_request *request, const result_axes *axes, gpr_run *run)
{
    gpr_request in_order = *request;
    char *results = malloc(axes->results * axes->bytes + 1);
    gpr_status status = GPR_OK;

    if (results == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    in_order.result = results;
    in_order.result_strides = NULL;
    status = reduce_in_order(&in_order, run);
    if (status == GPR_OK) spread_results(request, axes, results);
    free(results);
    return status;
}

/* ---------------------------------------------------------------- the calls ------------------ */

gpr_status gpr_reduce(const gpr_request *request)
{
    const double start = gpr_seconds();
    gpr_run run = {.device = GPR_DEVICE_CPU, .variant = "none", .chunks = 0};
    result_axes axes;
    gpr_status status = GPR_OK;

    for (int i = 0; i < GPR_STAGE_COUNT; i++) run.stage_seconds[i] = -1;
    if (has_steps(request, &axes)) {
        GPR_TRY(reduce_with_steps(request, &axes, &run));
    } else {
        GPR_TRY(reduce_in_order(request, &run));
    }
    run.seconds = gpr_seconds() - start;
    gpr_record_run(&run);
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
