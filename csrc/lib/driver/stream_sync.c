/* Order between streams: which stream waits for which, and marks that show how far a stream has
 * come. Which of these a reduction of another library's array needs is decided in
 * src/gpureduce/_interop/device_reduction.py (Work). Only functions that are named so make the host
 * wait. */
#include "lib/driver/device.h"

#include <stdlib.h>

struct gpr_mark {
    int device;
    CUevent event;
};

gpr_status gpr_device_stream(int ordinal, void **stream)
{
    gpr_device *device = NULL;
    const gpr_status status = gpr_device_enter(ordinal, &device);

    if (status != GPR_OK) return status;
    *stream = device->compute;
    gpr_device_leave(device);
    return GPR_OK;
}

/* ---------------------------------------------------------------- order ---------------------- */

/* The driver notes which work an event marks when a stream is made to wait for it, so one event
 * serves every pair. */
static gpr_status order_streams(gpr_device *device, CUstream first, CUstream then)
{
    gpr_status status = GPR_OK;

    if (device->ordered == NULL) GPR_CU(cuEventCreate, &device->ordered, CU_EVENT_DISABLE_TIMING);
    GPR_CU(cuEventRecord, device->ordered, first);
    GPR_CU(cuStreamWaitEvent, then, device->ordered, 0);
done:
    return status;
}

gpr_status gpr_order_streams(int ordinal, void *first, void *then)
{
    gpr_device *device = NULL;
    gpr_status status = gpr_device_enter(ordinal, &device);

    if (status != GPR_OK) return status;
    if (gpr_stream_of(device, first) != gpr_stream_of(device, then))
        status = order_streams(device, gpr_stream_of(device, first), gpr_stream_of(device, then));
    gpr_device_leave(device);
    return status;
}

/* ---------------------------------------------------------------- marks ---------------------- */

static gpr_status make_mark(CUstream stream, gpr_mark *mark)
{
    gpr_status status = GPR_OK;

    GPR_CU(cuEventCreate, &mark->event, CU_EVENT_DISABLE_TIMING);
    GPR_CU(cuEventRecord, mark->event, stream);
done:
    if (status != GPR_OK && mark->event != NULL) (void)gpr_cuda.cuEventDestroy(mark->event);
    return status;
}

gpr_status gpr_mark_stream(int ordinal, void *stream, gpr_mark **mark)
{
    gpr_mark *made = calloc(1, sizeof *made);
    gpr_device *device = NULL;
    gpr_status status = GPR_OK;

    *mark = NULL;
    if (made == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    made->device = ordinal;
    status = gpr_device_enter(ordinal, &device);
    if (status == GPR_OK) {
        status = make_mark(gpr_stream_of(device, stream), made);
        gpr_device_leave(device);
    }
    if (status != GPR_OK) {
        free(made);
    } else {
        *mark = made;
    }
    return status;
}

gpr_status gpr_mark_passed(const gpr_mark *mark, int *passed)
{
    gpr_device *device = NULL;
    gpr_status status = gpr_device_enter(mark->device, &device);
    CUresult result = CUDA_SUCCESS;

    if (status != GPR_OK) return status;
    result = gpr_cuda.cuEventQuery(mark->event);
    *passed = result != CUDA_ERROR_NOT_READY;
    if (*passed) status = gpr_check(result, "cuEventQuery");
    gpr_device_leave(device);
    return status;
}

gpr_status gpr_mark_wait(const gpr_mark *mark)
{
    gpr_device *device = NULL;
    gpr_status status = gpr_device_enter(mark->device, &device);

    if (status != GPR_OK) return status;
    status = gpr_check(gpr_cuda.cuEventSynchronize(mark->event), "cuEventSynchronize");
    gpr_device_leave(device);
    return status;
}

void gpr_mark_destroy(gpr_mark *mark)
{
    if (mark == NULL) return;
    if (gpr_driver_usable()) (void)gpr_cuda.cuEventDestroy(mark->event);
    free(mark);
}
