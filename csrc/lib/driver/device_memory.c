/* Memory of a device: buffers that grow and are kept, memory that users allocate and copy
 * themselves, and finding and filling memory of other libraries. Calls pool their pinned memory in
 * slot_ring.c. */
#include "lib/driver/device.h"

#include <string.h>

/* ---------------------------------------------------------------- buffers -------------------- */

void gpr_buffer_clear(gpr_buffer *buffer)
{
    if (buffer->address != 0) (void)gpr_cuda.cuMemFree(buffer->address);
    *buffer = (gpr_buffer){0};
}

gpr_status gpr_buffer_ensure(gpr_buffer *buffer, uint64_t bytes, int zero, CUstream stream)
{
    gpr_status status = GPR_OK;

    if (bytes <= buffer->bytes) return GPR_OK;
    gpr_buffer_clear(buffer); /* frees after what is queued: cuMemFree waits for the device */
    GPR_CU(cuMemAlloc, &buffer->address, bytes);
    buffer->bytes = bytes;
    if (zero) GPR_CU(cuMemsetD8Async, buffer->address, 0, bytes, stream);
done:
    if (status != GPR_OK) gpr_buffer_clear(buffer);
    return status;
}

/* ---------------------------------------------------------------- memory for users ----------- */

/* Does one thing with a device's context current. The device is not locked: memory is freed
 * wherever a finaliser happens to run, also while this or another thread is at work on the
 * device. */
#define WITH_CONTEXT(ordinal, call)                                                         \
    do {                                                                                    \
        gpr_device *device = NULL;                                                          \
        CUcontext popped = NULL;                                                            \
        gpr_status status = gpr_device_find(ordinal, &device);                              \
        if (status != GPR_OK) return status;                                                \
        status = gpr_check(gpr_cuda.cuCtxPushCurrent(device->context), "cuCtxPushCurrent"); \
        if (status != GPR_OK) return status;                                                \
        status = (call);                                                                    \
        (void)gpr_cuda.cuCtxPopCurrent(&popped);                                            \
        return status;                                                                      \
    } while (0)

gpr_status gpr_alloc_pinned(uint64_t bytes, void **data)
{
    *data = NULL;
    WITH_CONTEXT(
        0, gpr_check(gpr_cuda.cuMemHostAlloc(data, bytes > 0 ? bytes : 1,
                                             CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                     "cuMemHostAlloc"));
}

gpr_status gpr_free_pinned(void *data)
{
    WITH_CONTEXT(0, gpr_check(gpr_cuda.cuMemFreeHost(data), "cuMemFreeHost"));
}

static gpr_status alloc_device(uint64_t bytes, void **data)
{
    CUdeviceptr address = 0;
    const gpr_status status =
        gpr_check(gpr_cuda.cuMemAlloc(&address, bytes > 0 ? bytes : 1), "cuMemAlloc");

    *data = (void *)(uintptr_t)address;
    return status;
}

gpr_status gpr_alloc_device(int ordinal, uint64_t bytes, void **data)
{
    *data = NULL;
    WITH_CONTEXT(ordinal, alloc_device(bytes, data));
}

gpr_status gpr_free_device(int ordinal, void *data)
{
    WITH_CONTEXT(ordinal, gpr_check(gpr_cuda.cuMemFree((CUdeviceptr)(uintptr_t)data), "cuMemFree"));
}

static gpr_status upload(gpr_device *device, void *destination, const void *source, uint64_t bytes)
{
    gpr_status status = GPR_OK;

    GPR_CU(cuMemcpyHtoDAsync, (CUdeviceptr)(uintptr_t)destination, source, bytes, device->copy);
    GPR_CU(cuStreamSynchronize, device->copy);
done:
    /* the caller may free both sides now */
    if (status != GPR_OK) (void)gpr_cuda.cuStreamSynchronize(device->copy);
    return status;
}

gpr_status gpr_upload(int ordinal, void *destination, const void *source, uint64_t bytes)
{
    gpr_device *device = NULL;
    gpr_status status = gpr_device_enter(ordinal, &device);

    if (status != GPR_OK) return status;
    status = upload(device, destination, source, bytes);
    gpr_device_leave(device);
    return status;
}

/* By way of pinned memory, a page at a time: the host's need not be. */
static gpr_status download(gpr_device *device, CUstream stream, char *destination,
                           const char *source, uint64_t bytes)
{
    gpr_status status = GPR_OK;

    for (uint64_t done = 0; done < bytes;) {
        const uint64_t part = bytes - done < GPR_SMALL_BYTES ? bytes - done : GPR_SMALL_BYTES;
        GPR_CU(cuMemcpyDtoHAsync, device->small, (CUdeviceptr)(uintptr_t)(source + done), part,
               stream);
        GPR_CU(cuStreamSynchronize, stream);
        memcpy(destination + done, device->small, part);
        done += part;
    }
done:
    return status;
}

gpr_status gpr_download(int ordinal, void *stream, void *destination, const void *source,
                        uint64_t bytes)
{
    gpr_device *device = NULL;
    gpr_status status = gpr_device_enter(ordinal, &device);

    if (status != GPR_OK) return status;
    status = download(device, gpr_stream_of(device, stream), destination, source, bytes);
    gpr_device_leave(device);
    return status;
}

/* ---------------------------------------------------------------- memory of other libraries -- */

enum { MOST_WORDS = 4 }; /* of an element: a memset writes 1, 2 or 4 bytes */

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

/* `count` elements of several words. A memset writes one word: each word of the first elements is
 * a column of a matrix whose rows are the elements. A GPU writes such a column a thousand times
 * slower than a run of memory, so the first elements are copied behind themselves until they are
 * all. */
static gpr_status fill_wide(CUdeviceptr to, const uint32_t *words, size_t bytes, uint64_t count,
                            CUstream stream)
{
    enum { FIRST = 1024 };
    uint64_t written = count < FIRST ? count : FIRST;
    gpr_status status = GPR_OK;

    for (size_t w = 0; w < bytes / sizeof *words; w++) {
        GPR_CU(cuMemsetD2D32Async, to + w * sizeof *words, bytes, words[w], 1, written, stream);
    }
    while (written < count) {
        const uint64_t more = count - written < written ? count - written : written;
        GPR_CU(cuMemcpyDtoDAsync, to + written * bytes, to, more * bytes, stream);
        written += more;
    }
done:
    return status;
}

/* An element of `bytes` bytes, `count` times. */
static gpr_status fill(CUdeviceptr to, const unsigned char *element, size_t bytes, uint64_t count,
                       CUstream stream)
{
    uint16_t half = 0;
    uint32_t words[MOST_WORDS];
    int are_alike = 1;
    gpr_status status = GPR_OK;

    if (bytes == 1) {
        GPR_CU(cuMemsetD8Async, to, element[0], count, stream);
    } else if (bytes == sizeof half) {
        memcpy(&half, element, sizeof half);
        GPR_CU(cuMemsetD16Async, to, half, count, stream);
    } else {
        memcpy(words, element, bytes);
        for (size_t w = 1; w < bytes / sizeof *words; w++) are_alike &= words[w] == words[0];
        if (are_alike) {
            GPR_CU(cuMemsetD32Async, to, words[0], count * (bytes / sizeof *words), stream);
        } else {
            GPR_TRY(fill_wide(to, words, bytes, count, stream));
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
    status =
        fill((CUdeviceptr)(uintptr_t)data, element, bytes, count, gpr_stream_of(device, stream));
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
    status = queue_upload((CUdeviceptr)(uintptr_t)destination, source, bytes,
                          gpr_stream_of(device, stream));
    gpr_device_leave(device);
    return status;
}
