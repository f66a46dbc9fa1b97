/* Opening libcuda. The outcome, good or bad, is found once and kept: asking again is one atomic
 * load, so that a machine without a GPU pays nothing for each call that would have used one. */
#include "lib/driver/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/environment.h"
#include "lib/driver/nvidia_hardware.h"

gpr_driver gpr_cuda;

enum { OLDEST_DRIVER = 12000 };
enum { NOT_TRIED, READY, UNUSABLE };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int state = NOT_TRIED;
static char reason[900]; /* why the driver is unusable; written once, before state */
static int version;
static atomic_int opening; /* not 0 while a thread is opening the driver */
/* not 0 in children of the process that initialised the driver: they must not call it */
static atomic_int forked;

#define FORKED                                                                                 \
    "CUDA cannot be used in this process: it was forked from one that had used CUDA%s. Start " \
    "workers with the "                                                                        \
    "'spawn' "                                                                                 \
    "or 'forkserver' method, or use device=\"cpu\" here"

static void explain(const char *format, const char *detail)
{
    (void)snprintf(reason, sizeof reason, format, detail);
}

/* Fills in gpr_cuda; returns 0 and explains if a function is missing. */
static int resolve_functions(void *library)
{
    const char *missing = NULL;

#define CU(member, symbol, arguments)                    \
    *(void **)&gpr_cuda.member = dlsym(library, symbol); \
    if (gpr_cuda.member == NULL && missing == NULL) missing = symbol;
    GPR_DRIVER_FUNCTIONS(CU)
#undef CU
    if (missing == NULL) return 1;
    explain("the NVIDIA driver is too old: it has no %s. Install a driver for CUDA 12.0 or newer "
            "(525 or newer)",
            missing);
    return 0;
}

/* Whether one of the first calls went well; explains if not. */
static int starts(CUresult result, const char *call)
{
    char detail[200];
    const char *name = NULL;

    if (result == CUDA_SUCCESS) return 1;
    (void)gpr_cuda.cuGetErrorName(result, &name);
    (void)snprintf(detail, sizeof detail, "%s failed with %s (%d)", call,
                   name != NULL ? name : "an unknown error", result);
    explain("the NVIDIA driver does not start: %s. Check nvidia-smi", detail);
    return 0;
}

static int initialise(void)
{
    const char *path = gpr_environment("GPUREDUCE_LIBCUDA");
    char detail[32];
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int devices = 0, found = 0;

    if (library == NULL) {
        /* of another library that the environment names, the machine's hardware tells nothing */
        gpr_explain_no_driver(path != NULL ? GPR_HARDWARE_UNKNOWN : gpr_find_nvidia(""), dlerror(),
                              reason, sizeof reason);
        return UNUSABLE;
    }
    if (!resolve_functions(library)) goto close;

    const CUresult result = gpr_cuda.cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        explain(
            "the NVIDIA driver finds no CUDA device%s. Check nvidia-smi and CUDA_VISIBLE_DEVICES",
            "");
        goto close;
    }
    if (!starts(result, "cuInit") ||
        !starts(gpr_cuda.cuDriverGetVersion(&found), "cuDriverGetVersion"))
        goto close;
    if (found < OLDEST_DRIVER) {
        (void)snprintf(detail, sizeof detail, "%d.%d", found / 1000, found % 1000 / 10);
        explain("the NVIDIA driver is too old: it supports CUDA %s. Install a driver for CUDA 12.0 "
                "or newer (525 or newer)",
                detail);
        goto close;
    }
    if (!starts(gpr_cuda.cuDeviceGetCount(&devices), "cuDeviceGetCount")) goto close;
    if (devices == 0) {
        explain(
            "the NVIDIA driver finds no CUDA device%s. Check nvidia-smi and CUDA_VISIBLE_DEVICES",
            "");
        goto close;
    }
    version = found;
    return READY;
close:
    /* libcuda stays open: unloading a driver that has started threads is not safe. */
    return UNUSABLE;
}

/* Noted here, so that no call has to look up its process. A child that was forked while another
 * thread was opening the driver has half a driver and a lock that nobody will release. */
static void after_fork_in_child(void)
{
    if (atomic_load(&state) == READY) atomic_store(&forked, 1);
    if (atomic_load(&opening) == 0) return;
    atomic_store(&opening, 0);
    (void)pthread_mutex_init(&lock, NULL);
    explain(FORKED, "");
    atomic_store_explicit(&state, UNUSABLE, memory_order_release);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* READY or UNUSABLE, found out at the first call. */
static int driver_state(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int now = atomic_load_explicit(&state, memory_order_acquire);

    if (now == NOT_TRIED) {
        (void)pthread_once(&once, watch_forks);
        pthread_mutex_lock(&lock);
        now = atomic_load_explicit(&state, memory_order_relaxed);
        if (now == NOT_TRIED) {
            atomic_store(&opening, 1);
            now = initialise();
            atomic_store_explicit(&state, now, memory_order_release);
            atomic_store(&opening, 0);
        }
        pthread_mutex_unlock(&lock);
    }
    return now;
}

int gpr_driver_usable(void)
{
    return driver_state() == READY && atomic_load_explicit(&forked, memory_order_relaxed) == 0;
}

gpr_status gpr_driver_ready(void)
{
    if (driver_state() == UNUSABLE) return gpr_fail(GPR_ERROR_DEVICE, "%s", reason);
    if (atomic_load_explicit(&forked, memory_order_relaxed) != 0)
        return gpr_fail(GPR_ERROR_DEVICE, FORKED, "");
    return GPR_OK;
}

int gpr_driver_version(void)
{
    return atomic_load_explicit(&state, memory_order_acquire) == READY ? version : 0;
}

gpr_status gpr_check(CUresult result, const char *call)
{
    const char *name = NULL, *text = NULL;

    if (result == CUDA_SUCCESS) return GPR_OK;
    (void)gpr_cuda.cuGetErrorName(result, &name);
    (void)gpr_cuda.cuGetErrorString(result, &text);
    if (name == NULL) name = "unknown CUDA error";
    if (text == NULL) text = "no description";
    (void)gpr_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? GPR_ERROR_MEMORY : GPR_ERROR_CUDA,
                   "%s failed: %s (%s, %d)", call, text, name, result);
    return gpr_fail_call(call, result, name);
}

gpr_status gpr_launch_blocks(CUfunction function, uint32_t grid, uint32_t block,
                             uint32_t shared_bytes, gpr_launch_kind kind, CUstream stream,
                             void **arguments)
{
    CUlaunchAttribute attributes[2];
    CUlaunchConfig config = {.grid_x = grid,
                             .grid_y = 1,
                             .grid_z = 1,
                             .block_x = block,
                             .block_y = 1,
                             .block_z = 1,
                             .shared_bytes = shared_bytes,
                             .stream = stream,
                             .attributes = attributes};
    gpr_status status = GPR_OK;

    if (kind.cooperative) {
        attributes[config.attribute_count++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
    }
    if (kind.cluster > 1) {
        attributes[config.attribute_count++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                .value = {.cluster_dim = {kind.cluster, 1, 1}}};
    }
    if (config.attribute_count > 0)
        GPR_CU(cuLaunchKernelEx, &config, function, arguments, NULL);
    else
        GPR_CU(cuLaunchKernel, function, grid, 1, 1, block, 1, 1, shared_bytes, stream, arguments,
               NULL);
done:
    return status;
}

gpr_status gpr_is_capturing(CUstream stream, int *capturing)
{
    int state = CU_STREAM_CAPTURE_STATUS_NONE;
    gpr_status status = GPR_OK;

    GPR_CU(cuStreamIsCapturing, stream, &state);
    *capturing = state != CU_STREAM_CAPTURE_STATUS_NONE;
done:
    return status;
}

enum { NOT_RELAXED = -1 };

int gpr_begin_relaxed(void)
{
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    /* Where it fails, the calls that follow report the error. */
    return gpr_cuda.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? mode : NOT_RELAXED;
}

void gpr_end_relaxed(int mode)
{
    if (mode != NOT_RELAXED) (void)gpr_cuda.cuThreadExchangeStreamCaptureMode(&mode);
}
