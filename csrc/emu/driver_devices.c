/* Initialization, devices, contexts and errors of the stand-in driver. */
#include <stdio.h>
#include <string.h>

#include "emu/driver_state.h"

/* The multiprocessors' share of an H100's memory. */
enum { MEMORY_KHZ = 1000000, MEMORY_BITS = 400 };

CUresult cuInit(unsigned flags)
{
    ENTER(cuInit, ANYWHERE);
    return driver_leave(flags == 0 ? driver.machine.init : INVALID_VALUE);
}

CUresult cuDriverGetVersion(int *version)
{
    ENTER(cuDriverGetVersion, ANYWHERE);
    *version = driver.machine.version;
    return driver_leave(CUDA_SUCCESS);
}

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
    {STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

/* These two never fail and are not counted: the library calls them to describe a failure. */
CUresult cuGetErrorName(CUresult error, const char **name)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code == error) return *name = errors[i].name, CUDA_SUCCESS;
    }
    return *name = NULL, INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    /* Static once it is there: a violation is written once. */
    if (error == ILLEGAL_ADDRESS && driver.violation[0] != '\0')
        return *text = driver.violation, CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code == error) return *text = errors[i].text, CUDA_SUCCESS;
    }
    return *text = NULL, INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER(cuDeviceGetCount, ANYWHERE);
    *count = driver.machine.devices;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(cuDeviceGet, ANYWHERE);
    if (ordinal < 0 || ordinal >= driver.machine.devices) return driver_leave(INVALID_DEVICE);
    *device = ordinal;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    ENTER(cuDeviceGetName, ANYWHERE);
    (void)snprintf(name, (size_t)length, "%s %d", engine_device_name, device);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    ENTER(cuDeviceGetAttribute, ANYWHERE);
    if (device < 0 || device >= driver.machine.devices) return driver_leave(INVALID_DEVICE);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = MULTIPROCESSORS; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = MEMORY_KHZ; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = MEMORY_BITS; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = RESIDENT_THREADS; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = driver.machine.cc / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = driver.machine.cc % 10; break;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: *value = 2; break;
    default: return driver_leave(INVALID_VALUE);
    }
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    ENTER(cuDeviceTotalMem, ANYWHERE);
    (void)device;
    *bytes = driver.machine.memory[DEVICE_MEMORY];
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    ENTER(cuDeviceGetUuid, ANYWHERE);
    memset(uuid, device + 1, sizeof *uuid);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRetain, ANYWHERE);
    if (device < 0 || device >= driver.machine.devices) return driver_leave(INVALID_DEVICE);
    driver.contexts[device].retained++;
    *context = &driver.contexts[device];
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    ENTER_RELEASE(cuDevicePrimaryCtxRelease, ANYWHERE);
    if (driver.contexts[device].retained == 0)
        return driver_leave(driver_violate("release of a context that is not retained"));
    driver.contexts[device].retained--;
    return driver_leave(entered);
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    ENTER(cuCtxPushCurrent, ANYWHERE);
    if (context == NULL || context->retained == 0)
        return driver_leave(driver_violate("use of a context that is not retained"));
    if (driver_thread.depth == CONTEXT_DEPTH)
        return driver_leave(driver_violate("contexts are pushed and not popped"));
    driver_thread.contexts[driver_thread.depth++] = context;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    ENTER_RELEASE(cuCtxPopCurrent, IN_CONTEXT);
    if (driver_thread.depth == 0)
        return driver_leave(driver_violate("pop of a context that was not pushed"));
    *context = driver_thread.contexts[--driver_thread.depth];
    return driver_leave(entered);
}

/* A waiting thread must see the findings of a kernel, which an engine has at its end: results are
 * not polled for. */
CUresult cuCtxGetFlags(unsigned *flags)
{
    ENTER(cuCtxGetFlags, IN_CONTEXT);
    *flags = driver.machine.tracks_writes ? CU_CTX_SCHED_BLOCKING_SYNC : driver.machine.flags;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void)
{
    ENTER(cuCtxSynchronize, IN_CONTEXT | UNCAPTURED);
    driver_wait_until_idle();
    return driver_leave_with_health();
}
