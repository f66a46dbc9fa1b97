/* Order between streams, and where memory lies: what a caller needs that passes other libraries'
 * device arrays on. Nothing here waits on the host unless its name says so. */
#include "lib/driver/device.h"

#include <stdlib.h>
#include <string.h>

enum { WIDE_UNIT = 4 }; /* bytes that one column of a two-dimensional memset writes */

struct gpr_mark {
    int device;
    CUevent event;
};

static CUstream stream_of(const gpr_device *device, void *stream)
{
    return stream != NULL ? (CUstream)stream : device->compute;
}

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

/* The driver notes what an event stands for when a stream is made to wait for it, so one event
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
    if (stream_of(device, first) != stream_of(device, then))
        status = order_streams(device, stream_of(device, first), stream_of(device, then));
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
        status = make_mark(stream_of(device, stream), made);
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

/* ---------------------------------------------------------------- memory --------------------- */

gpr_status gpr_find_memory(const void *data, int *ordinal)
{
    unsigned type = 0, managed = 0;
    int where = GPR_DEVICE_CPU;
    int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&type, &managed, &where};
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_driver_ready());
    GPR_CU(cuPointerGetAttributes, sizeof attributes / sizeof attributes[0], attributes, values,
           (CUdeviceptr)(uintptr_t)data);
    if (type != CU_MEMORYTYPE_DEVICE && !managed) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "%p is not in the memory of a CUDA device: freed, or never allocated there",
                        data);
    }
    *ordinal = where;
done:
    return status;
}

/* A word of `bytes` bytes, `count` times. Elements wider than what a memset writes are laid down
 * unit by unit, each a column of a matrix whose rows are the elements. */
static gpr_status fill(CUdeviceptr to, const unsigned char *element, size_t bytes, uint64_t count,
                       CUstream stream)
{
    uint16_t half = 0;
    uint32_t unit = 0;
    gpr_status status = GPR_OK;

    if (bytes == 1) {
        GPR_CU(cuMemsetD8Async, to, element[0], count, stream);
    } else if (bytes == sizeof half) {
        memcpy(&half, element, sizeof half);
        GPR_CU(cuMemsetD16Async, to, half, count, stream);
    } else {
        for (size_t at = 0; at < bytes; at += WIDE_UNIT) {
            memcpy(&unit, element + at, sizeof unit);
            GPR_CU(cuMemsetD2D32Async, to + at, bytes, unit, 1, count, stream);
        }
    }
done:
    return status;
}

gpr_status gpr_fill_device(int ordinal, void *data, gpr_dtype dtype, const void *element,
                           uint64_t count, void *stream)
{
    const size_t bytes = gpr_dtype_bytes(dtype);
    gpr_device *device = NULL;
    gpr_status status = GPR_OK;

    if (bytes == 0) return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d", (int)dtype);
    if (count == 0) return GPR_OK;
    status = gpr_device_enter(ordinal, &device);
    if (status != GPR_OK) return status;
    status = fill((CUdeviceptr)(uintptr_t)data, element, bytes, count, stream_of(device, stream));
    gpr_device_leave(device);
    return status;
}

static gpr_status queue_upload(CUdeviceptr destination, const void *source, uint64_t bytes,
                               CUstream stream)
{
    int capturing = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_is_capturing(stream, &capturing));
    if (capturing)
        return gpr_fail(GPR_ERROR_VALUE, "numbers in host memory cannot be captured into a graph, "
                                         "which would read them again whenever it "
                                         "is replayed: keep them in memory of the device");
    GPR_CU(cuMemcpyHtoDAsync, destination, source, bytes, stream);
done:
    return status;
}

gpr_status gpr_queue_upload(int ordinal, void *destination, const void *source, uint64_t bytes,
                            void *stream)
{
    gpr_device *device = NULL;
    gpr_status status = GPR_OK;

    if (bytes == 0) return GPR_OK;
    status = gpr_device_enter(ordinal, &device);
    if (status != GPR_OK) return status;
    status =
        queue_upload((CUdeviceptr)(uintptr_t)destination, source, bytes, stream_of(device, stream));
    gpr_device_leave(device);
    return status;
}
