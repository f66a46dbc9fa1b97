/* The axes of a call: those of its array, and those of its result. Every kind of array comes by
 * here, and nothing else makes the shape of a result. */
#include "python/glue.h"

/* Lists the array's axes in the request's order: kept ones, the farthest in a result's memory
 * first, then reduced ones, in C order, which positions are counted in. */
static int list_axes(glue_call *call, int ndim)
{
    int kept = 0, at = 0;

    for (int i = ndim - 1; i >= 0; i--) {
        if (!call->reduced[call->order[i]]) call->axes[at++] = call->order[i];
    }
    kept = at;
    for (int i = 0; i < ndim; i++) {
        if (call->reduced[i]) call->axes[at++] = i;
    }
    return kept;
}

/* Copies extents or steps per axis in the request's order. */
static void put_in_order(const glue_call *call, const int64_t *from, int64_t *to)
{
    for (int i = 0; i < call->request.ndim; i++) to[i] = from[call->axes[i]];
}

void glue_set_axes(glue_call *call, int ndim, const int64_t *shape, const int64_t *strides,
                   const int64_t *mask_strides, const int *order)
{
    gpr_request *request = &call->request;

    for (int i = 0; i < ndim; i++) call->order[i] = order != NULL ? order[i] : ndim - 1 - i;
    request->ndim = ndim;
    request->reduced = ndim - list_axes(call, ndim);
    put_in_order(call, shape, call->shape);
    request->shape = call->shape;
    if (strides != NULL) {
        put_in_order(call, strides, call->strides);
        request->strides = call->strides;
    }
    if (mask_strides != NULL) {
        put_in_order(call, mask_strides, call->mask_strides);
        request->mask_strides = call->mask_strides;
    }
}

/* The axis of an output that an axis of the array becomes; -1: none. Returns how many there are. */
static int find_result_axes(const glue_call *call, int *places)
{
    int count = 0;

    for (int i = 0; i < call->request.ndim; i++)
        places[i] = !call->reduced[i] || call->keepdims ? count++ : -1;
    return count;
}

void glue_set_result_shape(glue_call *call, int outputs)
{
    const gpr_request *request = &call->request;
    const int before = outputs > 1;
    int places[GPR_MAX_NDIM];

    call->result_ndim = before + find_result_axes(call, places);
    if (before) call->result_shape[0] = outputs;
    for (int i = 0; i < request->ndim; i++) {
        const int axis = call->axes[i], place = places[axis];
        if (place >= 0)
            call->result_shape[before + place] = call->reduced[axis] ? 1 : call->shape[i];
    }
}

int64_t glue_get_result_strides(const glue_call *call, int64_t bytes, int64_t *strides)
{
    const int before = call->resolution.outputs > 1;
    int places[GPR_MAX_NDIM];
    int64_t step = bytes;

    (void)find_result_axes(call, places);
    for (int i = 0; i < call->request.ndim; i++) {
        const int place = places[call->order[i]];
        if (place < 0) continue;
        strides[before + place] = step;
        step *= call->result_shape[before + place];
    }
    if (!before) return step;
    strides[0] = step;
    return step * call->resolution.outputs;
}

void glue_set_result_strides(glue_call *call, const int64_t *strides, int64_t *steps)
{
    const int before = call->resolution.outputs > 1;
    const int kept = call->request.ndim - call->request.reduced;
    int places[GPR_MAX_NDIM];

    (void)find_result_axes(call, places);
    if (before) steps[0] = strides[0];
    for (int i = 0; i < kept; i++) steps[before + i] = strides[before + places[call->axes[i]]];
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
