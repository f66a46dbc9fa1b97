/* libcuda, opened at run time: the boundary between this library and the GPU, and the only file
 * that depends on its ABI.
 *
 * Declared here by hand because the build must need no CUDA toolkit. Names, argument types and
 * numbers are libcuda's own (CUDA 12 and 13); the types are reduced to what this library passes. */
#ifndef GPR_LIB_DRIVER_H
#define GPR_LIB_DRIVER_H

#include "lib/base/status.h"

typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUuserObject_st *CUuserObject;
typedef void (*CUhostFn)(void *argument);
typedef unsigned long long CUdeviceptr;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
};

enum {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO = 87,
    CU_CTX_SCHED_MASK = 7,
    CU_CTX_SCHED_BLOCKING_SYNC = 4,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTALLOC_DEVICEMAP = 2,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1,
    CU_GRAPH_USER_OBJECT_MOVE = 1,
};

/* CUDA's own handles of the legacy and the per-thread default stream. */
#define GPR_STREAM_LEGACY ((CUstream)(uintptr_t)1)
#define GPR_STREAM_PER_THREAD ((CUstream)(uintptr_t)2)

typedef struct CUuuid {
    unsigned char bytes[16];
} CUuuid;

typedef union CUlaunchAttributeValue {
    char room[64];
    struct {
        unsigned x, y, z;
    } cluster_dim;
    int cooperative;
} CUlaunchAttributeValue;

typedef struct CUlaunchAttribute {
    int id;
    char padding[4];
    CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    CUstream stream;
    CUlaunchAttribute *attributes;
    unsigned attribute_count;
} CUlaunchConfig;

/* CU(member, symbol, arguments): every driver function the library calls. The symbol carries the
 * ABI version. */
#define GPR_DRIVER_FUNCTIONS(CU)                                                                   \
    CU(cuInit, "cuInit", (unsigned flags))                                                         \
    CU(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                   \
    CU(cuGetErrorName, "cuGetErrorName", (CUresult error, const char **name))                      \
    CU(cuGetErrorString, "cuGetErrorString", (CUresult error, const char **text))                  \
    CU(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                         \
    CU(cuDeviceGet, "cuDeviceGet", (CUdevice *device, int ordinal))                                \
    CU(cuDeviceGetName, "cuDeviceGetName", (char *name, int length, CUdevice device))              \
    CU(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device)) \
    CU(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *bytes, CUdevice device))                  \
    CU(cuDeviceGetUuid, "cuDeviceGetUuid_v2", (CUuuid *uuid, CUdevice device))                     \
    CU(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                                       \
       (CUcontext *context, CUdevice device))                                                      \
    CU(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))               \
    CU(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context))                               \
    CU(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext *context))                                \
    CU(cuCtxGetFlags, "cuCtxGetFlags", (unsigned *flags))                                          \
    CU(cuCtxSynchronize, "cuCtxSynchronize", (void))                                               \
    CU(cuStreamCreate, "cuStreamCreate", (CUstream *stream, unsigned flags))                       \
    CU(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                   \
    CU(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                              \
    CU(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned flags))   \
    CU(cuStreamGetCtx, "cuStreamGetCtx", (CUstream stream, CUcontext *context))                    \
    CU(cuStreamGetId, "cuStreamGetId", (CUstream stream, unsigned long long *id))                  \
    CU(cuStreamIsCapturing, "cuStreamIsCapturing", (CUstream stream, int *state))                  \
    CU(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2",                                        \
       (CUstream stream, int *state, unsigned long long *id, CUgraph *graph,                       \
        const CUgraphNode **dependencies, size_t *dependency_count))                               \
    CU(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *mode))        \
    CU(cuUserObjectCreate, "cuUserObjectCreate",                                                   \
       (CUuserObject * object, void *argument, CUhostFn destroy, unsigned references,              \
        unsigned flags))                                                                           \
    CU(cuUserObjectRelease, "cuUserObjectRelease", (CUuserObject object, unsigned count))          \
    CU(cuGraphRetainUserObject, "cuGraphRetainUserObject",                                         \
       (CUgraph graph, CUuserObject object, unsigned count, unsigned flags))                       \
    CU(cuEventCreate, "cuEventCreate", (CUevent *event, unsigned flags))                           \
    CU(cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                                       \
    CU(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))                           \
    CU(cuEventQuery, "cuEventQuery", (CUevent event))                                              \
    CU(cuEventSynchronize, "cuEventSynchronize", (CUevent event))                                  \
    CU(cuEventElapsedTime, "cuEventElapsedTime",                                                   \
       (float *milliseconds, CUevent start, CUevent end))                                          \
    CU(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *pointer, size_t bytes))                          \
    CU(cuMemFree, "cuMemFree_v2", (CUdeviceptr pointer))                                           \
    CU(cuMemHostAlloc, "cuMemHostAlloc", (void **pointer, size_t bytes, unsigned flags))           \
    CU(cuMemFreeHost, "cuMemFreeHost", (void *pointer))                                            \
    CU(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                  \
       (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                          \
    CU(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                  \
       (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                \
    CU(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                                  \
       (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                          \
    CU(cuMemsetD8Async, "cuMemsetD8Async",                                                         \
       (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))                       \
    CU(cuMemsetD16Async, "cuMemsetD16Async",                                                       \
       (CUdeviceptr to, unsigned short value, size_t count, CUstream stream))                      \
    CU(cuMemsetD32Async, "cuMemsetD32Async",                                                       \
       (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                            \
    CU(cuMemsetD2D32Async, "cuMemsetD2D32Async",                                                   \
       (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,                 \
        CUstream stream))                                                                          \
    CU(cuPointerGetAttributes, "cuPointerGetAttributes",                                           \
       (unsigned count, int *attributes, void **values, CUdeviceptr pointer))                      \
    CU(cuModuleLoadData, "cuModuleLoadData", (CUmodule *module, const void *image))                \
    CU(cuModuleUnload, "cuModuleUnload", (CUmodule module))                                        \
    CU(cuModuleGetFunction, "cuModuleGetFunction",                                                 \
       (CUfunction *function, CUmodule module, const char *name))                                  \
    CU(cuLaunchKernel, "cuLaunchKernel",                                                           \
       (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,                \
        void **arguments, void **extra))                                                           \
    CU(cuLaunchKernelEx, "cuLaunchKernelEx",                                                       \
       (const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra))

typedef struct gpr_driver {
#define CU(member, symbol, arguments) CUresult(*member) arguments;
    GPR_DRIVER_FUNCTIONS(CU)
#undef CU
} gpr_driver;

/* The table; its members may be called once gpr_driver_ready() returned GPR_OK. */
extern gpr_driver gpr_cuda;

/* Opens libcuda (GPUREDUCE_LIBCUDA, default libcuda.so.1) and initialises it, once.
 * GPR_ERROR_DEVICE, with the reason and the remedy: no driver, driver older than CUDA 12.0, no
 * device, or this process was forked from one that used CUDA. */
gpr_status gpr_driver_ready(void);

/* Whether gpr_driver_ready() would return GPR_OK; records no failure, so that asking before
 * every call costs next to nothing. */
int gpr_driver_usable(void);

/* The driver's CUDA version, 1000 * major + 10 * minor; 0 before gpr_driver_ready() succeeded. */
int gpr_driver_version(void);

/* GPR_OK, GPR_ERROR_MEMORY or GPR_ERROR_CUDA with name and call recorded. */
gpr_status gpr_check(CUresult result, const char *call);

/* Calls a driver function; leaves through `done` if it fails. */
#define GPR_CU(function, ...) GPR_TRY(gpr_check(gpr_cuda.function(__VA_ARGS__), #function))

/* How the blocks of a launch depend on each other. */
typedef struct gpr_launch_kind {
    int cooperative;  /* all are resident at once */
    uint32_t cluster; /* blocks of a cluster, a divisor of the grid; 1: there are none */
} gpr_launch_kind;

/* Queues one launch of `grid` blocks of `block` threads. */
gpr_status gpr_launch_blocks(CUfunction function, uint32_t grid, uint32_t block,
                             uint32_t shared_bytes, gpr_launch_kind kind, CUstream stream,
                             void **arguments);

/* Whether the stream is being captured into a graph. */
gpr_status gpr_is_capturing(CUstream stream, int *capturing);

/* Allows this thread calls that a capture in progress forbids, such as allocating: they do not
 * touch the capturing stream. Returns what gpr_end_relaxed needs. */
int gpr_begin_relaxed(void);
void gpr_end_relaxed(int mode);

#endif
