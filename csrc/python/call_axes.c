/* The axes of a call: those of its array, and those of its result. Every kind of array comes by
 * here, and nothing else makes the shape of a result. */
#include "python/glue.h"

/* Copies extents or steps, those of reduced axes last. */
static int put_reduced_last(const glue_call *call, int ndim, const int64_t *from, int64_t *to)
{
    int kept = 0, at = 0;

    for (int i = 0; i < ndim; i++) {
        if (!call->reduced[i]) to[at++] = from[i];
    }
    kept = at;
    for (int i = 0; i < ndim; i++) {
        if (call->reduced[i]) to[at++] = from[i];
    }
    return kept;
}

void glue_set_axes(glue_call *call, int ndim, const int64_t *shape, const int64_t *strides,
                   const int64_t *mask_strides)
{
    gpr_request *request = &call->request;

    request->ndim = ndim;
    request->reduced = ndim - put_reduced_last(call, ndim, shape, call->shape);
    request->shape = call->shape;
    if (strides != NULL) {
        (void)put_reduced_last(call, ndim, strides, call->strides);
        request->strides = call->strides;
    }
    if (mask_strides != NULL) {
        (void)put_reduced_last(call, ndim, mask_strides, call->mask_strides);
        request->mask_strides = call->mask_strides;
    }
}

void glue_set_result_shape(glue_call *call, int outputs)
{
    int kept = 0;

    call->result_ndim = 0;
    if (outputs > 1) call->result_shape[call->result_ndim++] = outputs;
    for (int i = 0; i < call->request.ndim; i++) {
        if (!call->reduced[i])
            call->result_shape[call->result_ndim++] = call->shape[kept++];
        else if (call->keepdims)
            call->result_shape[call->result_ndim++] = 1;
    }
}

void glue_set_result_strides(glue_call *call, const int64_t *strides, int64_t *steps)
{
    int at = 0, count = 0;

    if (call->resolution.outputs > 1) steps[count++] = strides[at++];
    for (int i = 0; i < call->request.ndim; i++) {
        if (!call->reduced[i])
            steps[count++] = strides[at++];
        else if (call->keepdims)
            at++;
    }
    call->request.result_strides = steps;
}

int glue_has_result_shape(const glue_call *call, const int64_t *shape, int ndim)
{
    int same = ndim == call->result_ndim;

    for (int i = 0; i < ndim && same; i++) same = shape[i] == call->result_shape[i];
    return same;
}

double glue_count_reduced(const glue_call *call)
{
    const gpr_request *request = &call->request;
    double count = 1;

    for (int i = request->ndim - request->reduced; i < request->ndim; i++)
        count *= (double)call->shape[i];
    return count;
}

gpr_status glue_resolve(glue_call *call)
{
    const gpr_status status = gpr_resolve(&call->request, &call->resolution);

    if (status != GPR_OK) return status;
    call->request.resolution = &call->resolution;
    glue_set_result_shape(call, call->resolution.outputs);
    return GPR_OK;
}
