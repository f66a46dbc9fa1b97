/* Opening devices, and entering them: a lock, and their context made current. */
#include "lib/driver/device.h"

#include <stdatomic.h>
#include <stdlib.h>

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
/* opened ones; never closed, so readers need no lock */
static _Atomic(gpr_device *) devices[GPR_MAX_DEVICES];

/* Whether the context's owner lets threads spin while they wait; the context is current. */
static gpr_status read_patience(gpr_device *device)
{
    unsigned flags = 0;
    gpr_status status = GPR_OK;

    GPR_CU(cuCtxGetFlags, &flags);
    device->polls = (flags & CU_CTX_SCHED_MASK) != CU_CTX_SCHED_BLOCKING_SYNC;
done:
    return status;
}

/* Makes streams, events and the small staging page; the context is current. */
static gpr_status make_resources(gpr_device *device)
{
    gpr_status status = GPR_OK;

    GPR_CU(cuStreamCreate, &device->compute, CU_STREAM_NON_BLOCKING);
    GPR_CU(cuStreamCreate, &device->copy, CU_STREAM_NON_BLOCKING);
    GPR_CU(cuEventCreate, &device->started, CU_EVENT_DEFAULT);
    GPR_CU(cuEventCreate, &device->stopped, CU_EVENT_DEFAULT);
    for (int i = 0; i < GPR_SLOTS; i++) {
        GPR_CU(cuEventCreate, &device->ring.slots[i].uploaded, CU_EVENT_DISABLE_TIMING);
        GPR_CU(cuEventCreate, &device->ring.slots[i].reduced, CU_EVENT_DISABLE_TIMING);
    }
    GPR_CU(cuMemHostAlloc, &device->small, GPR_SMALL_BYTES + GPR_SMALL_RESULTS,
           CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    GPR_CU(cuMemAlloc, &device->small_outputs, GPR_SMALL_RESULTS);
done:
    return status;
}

static void release_resources(gpr_device *device)
{
    if (device->small_outputs != 0) (void)gpr_cuda.cuMemFree(device->small_outputs);
    if (device->small != NULL) (void)gpr_cuda.cuMemFreeHost(device->small);
    for (int i = 0; i < GPR_SLOTS; i++) {
        if (device->ring.slots[i].uploaded != NULL)
            (void)gpr_cuda.cuEventDestroy(device->ring.slots[i].uploaded);
        if (device->ring.slots[i].reduced != NULL)
            (void)gpr_cuda.cuEventDestroy(device->ring.slots[i].reduced);
    }
    if (device->ordered != NULL) (void)gpr_cuda.cuEventDestroy(device->ordered);
    if (device->started != NULL) (void)gpr_cuda.cuEventDestroy(device->started);
    if (device->stopped != NULL) (void)gpr_cuda.cuEventDestroy(device->stopped);
    if (device->compute != NULL) (void)gpr_cuda.cuStreamDestroy(device->compute);
    if (device->copy != NULL) (void)gpr_cuda.cuStreamDestroy(device->copy);
}

/* A lock that reports a second call of the thread that holds it. */
static void init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;

    (void)pthread_mutexattr_init(&attributes);
    (void)pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    (void)pthread_mutex_init(lock, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
}

static gpr_status open_device(int ordinal, gpr_device **result)
{
    gpr_device *device = NULL;
    CUcontext popped = NULL;
    gpr_status status = GPR_OK;
    int retained = 0, pushed = 0;

    GPR_TRY(gpr_check_ordinal(ordinal));
    device = calloc(1, sizeof *device);
    if (device == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    device->ordinal = ordinal;
    GPR_CU(cuDeviceGet, &device->handle, ordinal);
    GPR_TRY(gpr_read_facts(device->handle, &device->facts));
    GPR_CU(cuDevicePrimaryCtxRetain, &device->context, device->handle);
    retained = 1;
    GPR_CU(cuCtxPushCurrent, device->context);
    pushed = 1;
    GPR_TRY(read_patience(device));
    GPR_TRY(make_resources(device));
    init_lock(&device->lock);
done:
    if (status != GPR_OK && pushed) release_resources(device);
    if (pushed) (void)gpr_cuda.cuCtxPopCurrent(&popped);
    if (status != GPR_OK && retained) (void)gpr_cuda.cuDevicePrimaryCtxRelease(device->handle);
    if (status != GPR_OK) {
        free(device);
    } else {
        *result = device;
    }
    return status;
}

gpr_status gpr_device_find(int ordinal, gpr_device **result)
{
    gpr_device *device = NULL;
    gpr_status status = gpr_driver_ready();

    if (status != GPR_OK) return status;
    if (ordinal >= 0 && ordinal < GPR_MAX_DEVICES)
        device = atomic_load_explicit(&devices[ordinal], memory_order_acquire);
    if (device == NULL) {
        pthread_mutex_lock(&devices_lock);
        if (ordinal >= 0 && ordinal < GPR_MAX_DEVICES)
            device = atomic_load_explicit(&devices[ordinal], memory_order_relaxed);
        if (device == NULL) {
            status = open_device(ordinal, &device);
            if (status == GPR_OK)
                atomic_store_explicit(&devices[ordinal], device, memory_order_release);
        }
        pthread_mutex_unlock(&devices_lock);
    }
    *result = device;
    return status;
}

gpr_status gpr_device_enter(int ordinal, gpr_device **result)
{
    gpr_device *device = NULL;
    gpr_status status = gpr_device_find(ordinal, &device);

    if (status != GPR_OK) return status;
    if (pthread_mutex_lock(&device->lock) != 0) {
        return gpr_fail(GPR_ERROR_DEVICE,
                        "this thread is at work on device \"cuda:%d\" already: an interrupt "
                        "callback cannot start another piece of work there",
                        ordinal);
    }
    status = gpr_check(gpr_cuda.cuCtxPushCurrent(device->context), "cuCtxPushCurrent");
    if (status != GPR_OK) {
        pthread_mutex_unlock(&device->lock);
        return status;
    }
    *result = device;
    return GPR_OK;
}

void gpr_device_leave(gpr_device *device)
{
    CUcontext popped = NULL;

    (void)gpr_cuda.cuCtxPopCurrent(&popped);
    pthread_mutex_unlock(&device->lock);
}

gpr_device *gpr_device_opened(int ordinal)
{
    return atomic_load_explicit(&devices[ordinal], memory_order_acquire);
}
