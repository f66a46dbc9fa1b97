/* Resolving a request: types and kernel, which can be known before there is memory for the result,
 * then axes, places and device. Each is decided here, once per call. */
#include "dispatch/resolve.h"

#include <stddef.h>
#include <string.h>

#include "dispatch/device_select.h"
#include "lib/base/status.h"
#include "lib/driver/device.h"

/* ---------------------------------------------------------------- types and kernel ----------- */

/* Whether rows have no elements. Axes that make no sense are refused later. */
static int reduces_nothing(const gpr_request *request)
{
    int is_empty = 0;

    if (request->ndim > GPR_MAX_NDIM || request->reduced < 0 || request->reduced > request->ndim)
        return 0;
    for (int i = request->ndim - request->reduced; i < request->ndim; i++)
        is_empty |= request->shape[i] == 0;
    return is_empty;
}

static gpr_status resolve_types(const gpr_request *request, gpr_rule *rule, int *kernel)
{
    const gpr_kernel_row *row = NULL;
    gpr_rule own;
    gpr_status status = GPR_OK;

    if (request->kernel >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", request->kernel);
    GPR_TRY(gpr_make_rule(request->op, request->dtype, request->compute, &own));
    *kernel = gpr_kernel_for(request->kernel, &own);
    row = &gpr_kernel_rows[*kernel];
    GPR_TRY(gpr_leave_out(&own, request->skip_nan, request->mask != NULL));
    own.ddof = request->ddof;
    if (request->has_given_mean) GPR_TRY(gpr_take_mean(&own, request->mean_dtype));
    if (request->start != NULL) GPR_TRY(gpr_take_start(&own));
    *rule = own;
    gpr_fit_rule(row, rule);
    GPR_TRY(gpr_check_kernel_folds(row, rule));
    if (request->block_size != 0) GPR_TRY(gpr_check_block_size(row, request->block_size));
    if (request->grid_size != 0) GPR_TRY(gpr_check_grid_size(row));
    if (reduces_nothing(request)) {
        /* Results of no elements do not depend on the kernel: the planner's writes them. */
        *kernel = GPR_KERNEL_fast;
        *rule = own;
        gpr_fit_rule(&gpr_kernel_rows[GPR_KERNEL_fast], rule);
    }
done:
    return status;
}

_Static_assert(sizeof(gpr_rule) <= sizeof((gpr_resolution){0}.rule),
               "a resolution has room for a rule");

gpr_status gpr_resolve(const gpr_request *request, gpr_resolution *resolution)
{
    gpr_rule rule;
    gpr_status status = GPR_OK;

    GPR_TRY(resolve_types(request, &rule, &resolution->kernel));
    resolution->result = rule.result;
    resolution->outputs = rule.outputs;
    memcpy(resolution->rule, &rule, sizeof rule);
done:
    return status;
}

/* Reads what gpr_resolve found. */
static gpr_status use_resolution(const gpr_request *request, gpr_rule *rule, int *kernel)
{
    memcpy(rule, request->resolution->rule, sizeof *rule);
    *kernel = request->resolution->kernel;
    if (rule->op != request->op || rule->element != request->dtype)
        return gpr_fail(GPR_ERROR_VALUE, "the request has the resolution of another one");
    return GPR_OK;
}

gpr_status gpr_resolve_view(const gpr_request *request, gpr_rule *rule, int *kernel, gpr_view *view)
{
    gpr_status status = GPR_OK;

    if (request->resolution != NULL)
        GPR_TRY(use_resolution(request, rule, kernel));
    else
        GPR_TRY(resolve_types(request, rule, kernel));
    GPR_TRY(gpr_make_view(request, rule, view));
done:
    return status;
}

/* ---------------------------------------------------------------- places and device ---------- */

gpr_status gpr_check_places(const gpr_request *request, int device)
{
    if (request->result_on_device && !request->on_device)
        return gpr_fail(GPR_ERROR_VALUE, "results of a host array are in host memory");
    if (request->has_given_mean && !request->on_device)
        return gpr_fail(GPR_ERROR_VALUE, "a mean is given of arrays in device memory only");
    if (request->start != NULL && !request->on_device)
        return gpr_fail(GPR_ERROR_VALUE, "rows of arrays in device memory only have a start");
    if (request->on_device && device < 0) {
        return gpr_fail(
            GPR_ERROR_VALUE,
            "a device array names its CUDA device; copy it to the host to reduce it on the CPU");
    }
    return GPR_OK;
}

/* Whether the addresses of elements are multiples of their size: the first one, and the steps of
 * `count` axes if there are any. */
static int are_aligned(const void *first, const int64_t *strides, int count, gpr_dtype dtype)
{
    uint64_t bits = (uint64_t)(uintptr_t)first;

    for (int i = 0; i < count && strides != NULL; i++) bits |= (uint64_t)strides[i];
    return bits % gpr_dtype_bytes(dtype) == 0;
}

gpr_status gpr_check_device_array(const gpr_request *request, const gpr_view *view,
                                  const gpr_rule *rule)
{
    const int kept = request->ndim - request->reduced;

    if ((view->encoding & GPR_SWAPPED) != 0)
        return gpr_fail(GPR_ERROR_VALUE,
                        "a device array is in native byte order; this one's bytes are swapped");
    if (view->rows > 0 && view->n > 0 && !gpr_view_is_aligned(view)) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "addresses of a device array's elements are multiples of their size, %zu "
                        "bytes; this one's are not",
                        view->bytes);
    }
    if (rule->has_given_mean &&
        !are_aligned(request->mean, request->mean_strides, kept, rule->mean)) {
        return gpr_fail(
            GPR_ERROR_VALUE,
            "addresses of given means are multiples of their size, %zu bytes; these are not",
            gpr_dtype_bytes(rule->mean));
    }
    if (request->result_on_device && !are_aligned(request->result, request->result_strides,
                                                  kept + (rule->outputs > 1), rule->result)) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "addresses of results on a device are multiples of their size, %zu bytes; "
                        "these are not",
                        gpr_dtype_bytes(rule->result));
    }
    return GPR_OK;
}

/* Results from a row's first output to its second. */
static int64_t output_stride_of(const gpr_request *request, const gpr_resolved *call)
{
    if (call->rule.outputs == 1) return 0;
    if (!request->result_on_device || request->result_strides == NULL)
        return (int64_t)call->view.rows;
    return request->result_strides[0] / (int64_t)gpr_dtype_rows[call->rule.result].bytes;
}

void gpr_clear_call(gpr_resolved *call)
{
    memset((char *)call + GPR_BEHIND_VIEW, 0, sizeof *call - GPR_BEHIND_VIEW);
}

gpr_status gpr_resolve_call(const gpr_request *request, gpr_resolved *call)
{
    const gpr_view *view = &call->view;
    gpr_status status = GPR_OK;

    gpr_clear_call(call);
    GPR_TRY(gpr_resolve_view(request, &call->rule, &call->kernel, &call->view));
    GPR_TRY(gpr_select_device(request->device, view, &call->rule, &call->device));
    GPR_TRY(gpr_check_places(request, call->device));
    if (request->on_device) GPR_TRY(gpr_check_device_array(request, view, &call->rule));
    if (call->device >= 0) GPR_TRY(gpr_cuda_available());
    call->on_device = request->on_device;
    call->block_size = request->block_size;
    call->grid_size = request->grid_size;
    call->stream = request->stream;
    call->result = request->result;
    call->result_on_device = request->result_on_device;
    call->vouches_for_result = request->vouches_for_result;
    call->output_stride = output_stride_of(request, call);
    call->means = request->has_given_mean ? request->mean : NULL;
    if (request->has_given_mean)
        memcpy(call->mean_for_all, request->mean_value, sizeof call->mean_for_all);
    if (request->start != NULL)
        memcpy(call->start, request->start, gpr_dtype_bytes(call->rule.element));
    call->interrupted = request->interrupted;
    call->interrupted_arg = request->interrupted_arg;
done:
    return status;
}
