/* Copies and memsets of the stand-in driver. */
#include "emu/driver_state.h"

static struct {
    uintptr_t start;
    size_t bytes;
    uint64_t copied;
} watched;
static uint64_t pageable_bytes; /* copied in from memory that is not pinned */

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    const uintptr_t source = (uintptr_t)from;

    ENTER(cuMemcpyHtoDAsync, IN_CONTEXT);
    if (driver_find_allocation((uintptr_t)to, bytes) == NULL)
        return driver_leave(driver_violate("copy to memory that is not allocated"));
    if (driver_find_allocation(source, bytes) == NULL) pageable_bytes += bytes;
    if (source >= watched.start && source - watched.start < watched.bytes) watched.copied += bytes;
    return driver_leave(driver_enqueue(
        stream, (operation){.kind = COPY_IN, .to = (uintptr_t)to, .from = source, .bytes = bytes}));
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER(cuMemcpyDtoHAsync, IN_CONTEXT);
    return driver_leave(driver_enqueue(stream, (operation){.kind = COPY_OUT,
                                                           .to = (uintptr_t)to,
                                                           .from = (uintptr_t)from,
                                                           .bytes = bytes}));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER(cuMemcpyDtoDAsync, IN_CONTEXT);
    return driver_leave(driver_enqueue(stream, (operation){.kind = COPY_WITHIN,
                                                           .to = (uintptr_t)to,
                                                           .from = (uintptr_t)from,
                                                           .bytes = bytes}));
}

/* Queues a memset of `count` values of `unit` bytes, one behind the other. */
static CUresult set_run(CUdeviceptr to, unsigned value, size_t unit, size_t count, CUstream stream)
{
    if (to % unit != 0) return driver_leave(INVALID_VALUE);
    return driver_leave(driver_enqueue(stream, (operation){.kind = SET,
                                                           .to = (uintptr_t)to,
                                                           .value = value,
                                                           .bytes = count * unit,
                                                           .unit = unit,
                                                           .pitch = unit}));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    ENTER(cuMemsetD8Async, IN_CONTEXT);
    return set_run(to, value, sizeof value, bytes, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    ENTER(cuMemsetD16Async, IN_CONTEXT);
    return set_run(to, value, sizeof value, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    ENTER(cuMemsetD32Async, IN_CONTEXT);
    return set_run(to, value, sizeof value, count, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                            size_t height, CUstream stream)
{
    const size_t unit = sizeof value;

    ENTER(cuMemsetD2D32Async, IN_CONTEXT);
    /* The library copies one column. */
    if (to % unit != 0 || pitch % unit != 0 || width != 1 || height == 0)
        return driver_leave(INVALID_VALUE);
    return driver_leave(driver_enqueue(stream, (operation){.kind = SET,
                                                           .to = (uintptr_t)to,
                                                           .value = value,
                                                           .bytes = (height - 1) * pitch + unit,
                                                           .unit = unit,
                                                           .pitch = pitch}));
}

/* ---------------------------------------------------------------- for tests ------------------ */

/* Counts from now on the bytes that are copied in from [start, start + bytes). */
GPR_API void fake_watch(const void *start, size_t bytes)
{
    pthread_mutex_lock(&driver.lock);
    watched.start = (uintptr_t)start;
    watched.bytes = bytes;
    watched.copied = 0;
    pthread_mutex_unlock(&driver.lock);
}

GPR_API uint64_t fake_watched(void)
{
    return driver_read_counter(&watched.copied);
}

/* Bytes copied in so far from memory that is not pinned. */
GPR_API uint64_t fake_pageable(void)
{
    return driver_read_counter(&pageable_bytes);
}
