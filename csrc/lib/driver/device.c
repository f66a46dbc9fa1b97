/* Opening devices, and the memory and programs they keep. */
#include "lib/driver/device.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/limits.h"
#include "lib/driver/cache.h"

enum {
    LEAST_RESULTS = 4096, /* bytes of accumulators under which a slot is not worth having */
    SLOT_ALIGNMENT = 256  /* bytes; what cuMemAlloc itself promises */
};

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(gpr_device *) devices[GPR_MAX_DEVICES]; /* opened ones; never closed, so readers need no lock */

/* ---------------------------------------------------------------- opening -------------------- */

static gpr_status read_attribute(CUdevice handle, int attribute, int *value)
{
    return gpr_check(gpr_cuda.cuDeviceGetAttribute(value, attribute, handle), "cuDeviceGetAttribute");
}

static gpr_status read_capability(CUdevice handle, int *cc)
{
    int major = 0, minor = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
    *cc = 10 * major + minor;
done:
    return status;
}

/* Whether exact sums are sooner made of integers on a card that adds so many float32 in the time of a float64: cards for computing
 * have 2, others 32 or 64. The environment may say so of any card. */
static int is_float64_slow(int ratio)
{
    enum { SLOW_RATIO = 8 };
    const char *word = getenv("GPUREDUCE_SLOW_FLOAT64");

    if (word != NULL && (strcmp(word, "0") == 0 || strcmp(word, "1") == 0)) return *word == '1';
    return ratio >= SLOW_RATIO;
}

static gpr_status read_facts(gpr_device *device)
{
    int value = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(read_capability(device->handle, &device->facts.cc));
    GPR_TRY(read_attribute(device->handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &value));
    device->facts.multiprocessors = (uint32_t)value;
    GPR_TRY(read_attribute(device->handle, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &value));
    device->facts.threads_per_multiprocessor = (uint32_t)value;
    GPR_TRY(read_attribute(device->handle, CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, &value));
    device->facts.slow_float64 = is_float64_slow(value);
done:
    return status;
}

/* Whether the context's owner lets threads spin while they wait; the context is current. */
static gpr_status read_patience(gpr_device *device)
{
    unsigned flags = 0;
    gpr_status status = GPR_OK;

    GPR_CU(cuCtxGetFlags, &flags);
    device->looks_out = (flags & CU_CTX_SCHED_MASK) != CU_CTX_SCHED_BLOCKING_SYNC;
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
        if (device->ring.slots[i].uploaded != NULL) (void)gpr_cuda.cuEventDestroy(device->ring.slots[i].uploaded);
        if (device->ring.slots[i].reduced != NULL) (void)gpr_cuda.cuEventDestroy(device->ring.slots[i].reduced);
    }
    if (device->ordered != NULL) (void)gpr_cuda.cuEventDestroy(device->ordered);
    if (device->started != NULL) (void)gpr_cuda.cuEventDestroy(device->started);
    if (device->stopped != NULL) (void)gpr_cuda.cuEventDestroy(device->stopped);
    if (device->compute != NULL) (void)gpr_cuda.cuStreamDestroy(device->compute);
    if (device->copy != NULL) (void)gpr_cuda.cuStreamDestroy(device->copy);
}

static gpr_status check_ordinal(int ordinal)
{
    int count = 0;
    gpr_status status = GPR_OK;

    GPR_CU(cuDeviceGetCount, &count);
    if (ordinal < 0 || ordinal >= count || ordinal >= GPR_MAX_DEVICES) {
        return gpr_fail(GPR_ERROR_VALUE, "there is no device \"cuda:%d\": this machine has %d CUDA device%s", ordinal,
                        count, count == 1 ? "" : "s");
    }
done:
    return status;
}

/* A lock that tells a second call of the thread that holds it. */
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

    GPR_TRY(check_ordinal(ordinal));
    device = calloc(1, sizeof *device);
    if (device == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    device->ordinal = ordinal;
    GPR_CU(cuDeviceGet, &device->handle, ordinal);
    GPR_TRY(read_facts(device));
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

/* The device, opened if need be; neither locked nor current. */
static gpr_status find_device(int ordinal, gpr_device **result)
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
            if (status == GPR_OK) atomic_store_explicit(&devices[ordinal], device, memory_order_release);
        }
        pthread_mutex_unlock(&devices_lock);
    }
    *result = device;
    return status;
}

gpr_status gpr_device_enter(int ordinal, gpr_device **result)
{
    gpr_device *device = NULL;
    gpr_status status = find_device(ordinal, &device);

    if (status != GPR_OK) return status;
    if (pthread_mutex_lock(&device->lock) != 0) {
        return gpr_fail(GPR_ERROR_DEVICE,
                        "this thread is at work on device \"cuda:%d\" already: an interrupt callback cannot start "
                        "another piece of work there",
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

/* ---------------------------------------------------------------- memory --------------------- */

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

static void ring_clear(gpr_ring *ring)
{
    if (ring->pinned != NULL) (void)gpr_cuda.cuMemFreeHost(ring->pinned);
    if (ring->device != 0) (void)gpr_cuda.cuMemFree(ring->device);
    ring->pinned = NULL;
    ring->device = 0;
    ring->chunk_bytes = ring->result_bytes = 0;
    ring->has_staged = 0;
}

/* Allocates both sides of the ring and deals them out to the slots. */
static gpr_status ring_make(gpr_ring *ring, uint64_t chunk_bytes, uint64_t result_bytes, int staged)
{
    const uint64_t staged_bytes = staged ? chunk_bytes : 0;
    gpr_status status = GPR_OK;

    GPR_CU(cuMemHostAlloc, &ring->pinned, GPR_SLOTS * (staged_bytes + result_bytes),
           CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    GPR_CU(cuMemAlloc, &ring->device, GPR_SLOTS * (chunk_bytes + result_bytes));
    for (int i = 0; i < GPR_SLOTS; i++) {
        gpr_slot *slot = &ring->slots[i];
        char *pinned = (char *)ring->pinned + i * (staged_bytes + result_bytes);
        slot->staged = staged ? pinned : NULL;
        slot->results = pinned + staged_bytes;
        slot->elements = ring->device + (uint64_t)i * (chunk_bytes + result_bytes);
        slot->device_results = slot->elements + chunk_bytes;
    }
    ring->chunk_bytes = chunk_bytes;
    ring->result_bytes = result_bytes;
    ring->has_staged = staged;
done:
    if (status != GPR_OK) ring_clear(ring);
    return status;
}

/* Gives back everything that grew with what was asked for. */
static void release_buffers(gpr_device *device)
{
    ring_clear(&device->ring);
    gpr_buffer_clear(&device->partials);
    gpr_buffer_clear(&device->more_partials);
    gpr_buffer_clear(&device->tickets);
    gpr_buffer_clear(&device->outputs);
    gpr_buffer_clear(&device->flush);
}

/* Slots follow each other in memory: sizes that keep each part of each slot aligned for any accumulator. */
static uint64_t align_slot(uint64_t bytes)
{
    return (bytes + SLOT_ALIGNMENT - 1) & ~(uint64_t)(SLOT_ALIGNMENT - 1);
}

gpr_status gpr_ring_ensure(gpr_device *device, unsigned generation, uint64_t chunk_bytes, uint64_t result_bytes,
                           int staged, uint64_t least)
{
    gpr_ring *ring = &device->ring;
    gpr_status status = GPR_OK;

    if (ring->generation != generation) release_buffers(device);
    ring->generation = generation;
    if (ring->pinned != NULL && ring->chunk_bytes >= chunk_bytes && ring->result_bytes >= result_bytes &&
        (ring->has_staged || !staged)) {
        return GPR_OK;
    }
    ring_clear(ring);
    do {
        status = ring_make(ring, align_slot(chunk_bytes), align_slot(result_bytes), staged);
        chunk_bytes /= 2;
        result_bytes /= 2;
    } while (status == GPR_ERROR_MEMORY && chunk_bytes >= least && result_bytes >= LEAST_RESULTS);
    return status;
}

/* ---------------------------------------------------------------- programs ------------------- */

static unsigned bucket_of(const gpr_cell *cell)
{
    unsigned hash = (unsigned)cell->kernel;

    hash = hash * 31 + (unsigned)cell->fold;
    hash = hash * 31 + (unsigned)cell->element;
    hash = hash * 31 + (unsigned)cell->compute;
    hash = hash * 31 + cell->block / 32;
    hash = hash * 31 + cell->lanes;
    hash = hash * 31 + cell->item;
    hash = hash * 31 + (unsigned)(cell->kept * GPR_MAX_NDIM + cell->reduced);
    return hash % GPR_PROGRAM_BUCKETS;
}

static gpr_status fail_load(gpr_status status, int cc)
{
    const gpr_error *error = gpr_last_error();
    const int code = error->code;
    char name[sizeof error->name];

    memcpy(name, error->name, sizeof name); /* a new failure replaces the old */
    if (code != CUDA_ERROR_NO_BINARY_FOR_GPU && code != CUDA_ERROR_UNSUPPORTED_PTX_VERSION) return status;
    const int driver = gpr_driver_version(), nvrtc = gpr_nvrtc_version();
    (void)gpr_fail(GPR_ERROR_DEVICE,
                   "the driver (CUDA %d.%d) cannot load what NVRTC %d.%d compiled for compute capability %d.%d. Update "
                   "the driver, "
                   "or install an NVRTC as old as the driver: pip install 'gpureduce[cu12]'",
                   driver / 1000, driver % 1000 / 10, nvrtc / 1000, nvrtc % 1000 / 10, cc / 10, cc % 10);
    return gpr_fail_call("cuModuleLoadData", code, name);
}

static gpr_status get_function(gpr_program *program, const gpr_object *object, int entry, CUfunction *function)
{
    gpr_status status = GPR_OK;

    if (entry >= 0) GPR_CU(cuModuleGetFunction, function, program->module, object->lowered[entry]);
done:
    return status;
}

gpr_status gpr_load_program(gpr_device *device, const gpr_cell *cell, gpr_run *run, gpr_program **result)
{
    gpr_program **bucket = &device->programs[bucket_of(cell)];
    gpr_object object = {0};
    gpr_program *program = NULL;
    gpr_status status = GPR_OK;
    int compiled = 0;

    for (program = *bucket; program != NULL; program = program->chained) {
        if (memcmp(&program->cell, cell, sizeof *cell) == 0) {
            *result = program;
            return GPR_OK;
        }
    }
    const double start = gpr_seconds();
    const gpr_entries entries = gpr_program_entries(cell);
    program = calloc(1, sizeof *program);
    if (program == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    program->cell = *cell;
    GPR_TRY(gpr_make_object(cell, device->facts.cc, 1, &object, &compiled));
    const int mode = gpr_begin_relaxed();
    status = gpr_check(gpr_cuda.cuModuleLoadData(&program->module, object.image), "cuModuleLoadData");
    gpr_end_relaxed(mode);
    if (status != GPR_OK) {
        status = fail_load(status, device->facts.cc);
        goto done;
    }
    GPR_TRY(get_function(program, &object, entries.first, &program->first));
    GPR_TRY(get_function(program, &object, entries.next, &program->next));
    GPR_TRY(get_function(program, &object, entries.fill, &program->fill));
    GPR_TRY(get_function(program, &object, entries.finish, &program->finish));
    program->chained = *bucket;
    *bucket = program;
    *result = program;
    run->compiled += compiled;
    run->cache_hits += !compiled;
    if (run->stage_seconds[GPR_STAGE_COMPILE] < 0) run->stage_seconds[GPR_STAGE_COMPILE] = 0;
    run->stage_seconds[GPR_STAGE_COMPILE] += gpr_seconds() - start;
done:
    gpr_object_clear(&object);
    if (status != GPR_OK) {
        if (program->module != NULL) (void)gpr_cuda.cuModuleUnload(program->module);
        free(program);
    }
    return status;
}

/* Calls return before their kernels have ended. */
static void unload_programs(gpr_device *device)
{
    (void)gpr_cuda.cuCtxSynchronize();
    for (int i = 0; i < GPR_PROGRAM_BUCKETS; i++) {
        while (device->programs[i] != NULL) {
            gpr_program *program = device->programs[i];
            device->programs[i] = program->chained;
            (void)gpr_cuda.cuModuleUnload(program->module);
            free(program);
        }
    }
}

gpr_status gpr_cache_clear(int loaded)
{
    gpr_status status = GPR_OK;

    gpr_cache_remove_all();
    if (!loaded || !gpr_cuda_usable()) return GPR_OK;
    for (int i = 0; i < GPR_MAX_DEVICES && status == GPR_OK; i++) {
        gpr_device *device = atomic_load_explicit(&devices[i], memory_order_acquire);
        if (device == NULL) continue;
        status = gpr_device_enter(i, &device);
        if (status != GPR_OK) break;
        unload_programs(device);
        gpr_device_leave(device);
    }
    return status;
}

/* ---------------------------------------------------------------- facts for users ------------ */

int gpr_cuda_usable(void)
{
    return gpr_driver_usable() && gpr_nvrtc_usable();
}

gpr_status gpr_cuda_available(void)
{
    const gpr_status status = gpr_driver_ready();

    return status == GPR_OK ? gpr_nvrtc_ready() : status;
}

void gpr_cuda_versions(int *driver, int *nvrtc)
{
    (void)gpr_driver_usable();
    (void)gpr_nvrtc_usable();
    *driver = gpr_driver_version();
    *nvrtc = gpr_nvrtc_version();
}

gpr_status gpr_device_count(int *count)
{
    gpr_status status = GPR_OK;

    *count = 0;
    if (gpr_driver_usable()) GPR_CU(cuDeviceGetCount, count);
done:
    return status;
}

gpr_status gpr_device_info_at(int ordinal, gpr_device_info *info)
{
    CUdevice handle = 0;
    CUuuid uuid = {{0}};
    size_t bytes = 0;
    int value = 0;
    gpr_status status = GPR_OK;

    *info = (gpr_device_info){.ordinal = ordinal};
    GPR_TRY(gpr_driver_ready());
    GPR_TRY(check_ordinal(ordinal));
    GPR_CU(cuDeviceGet, &handle, ordinal);
    GPR_CU(cuDeviceGetName, info->name, (int)sizeof info->name, handle);
    GPR_CU(cuDeviceTotalMem, &bytes, handle);
    info->memory_bytes = bytes;
    GPR_TRY(read_capability(handle, &info->compute_capability));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->multiprocessors));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &info->memory_clock_khz));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &info->memory_bus_bits));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &value));
    info->l2_bytes = (uint64_t)value;
    GPR_CU(cuDeviceGetUuid, &uuid, handle);
    const unsigned char *b = uuid.bytes;
    (void)snprintf(info->uuid, sizeof info->uuid,
                   "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
                   b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
done:
    return status;
}

gpr_status gpr_kernel_available(int index, int ordinal)
{
    gpr_device_info info;
    gpr_status status = GPR_OK;

    if (index < 0 || index >= GPR_KERNEL_COUNT) return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", index);
    const gpr_kernel_row *row = &gpr_kernel_rows[index];
    GPR_TRY(gpr_kernel_headers(index));
    GPR_TRY(gpr_cuda_available());
    GPR_TRY(gpr_device_info_at(ordinal >= 0 ? ordinal : 0, &info));
    if (info.compute_capability < row->min_cc) {
        status = gpr_fail(GPR_ERROR_KERNEL, "kernel '%s' needs compute capability %d.%d, %s has %d.%d", row->name,
                          row->min_cc / 10, row->min_cc % 10, info.name, info.compute_capability / 10,
                          info.compute_capability % 10);
    }
done:
    return status;
}

/* ---------------------------------------------------------------- memory for users ----------- */

/* Does one thing with a device's context current. The device is not locked: memory is freed wherever a finaliser happens to run,
 * also while this or another thread is at work on the device. */
#define WITH_CONTEXT(ordinal, call)                                                         \
    do {                                                                                    \
        gpr_device *device = NULL;                                                          \
        CUcontext popped = NULL;                                                            \
        gpr_status status = find_device(ordinal, &device);                                  \
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
    WITH_CONTEXT(0, gpr_check(gpr_cuda.cuMemHostAlloc(data, bytes > 0 ? bytes : 1,
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
    const gpr_status status = gpr_check(gpr_cuda.cuMemAlloc(&address, bytes > 0 ? bytes : 1), "cuMemAlloc");

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
    if (status != GPR_OK) (void)gpr_cuda.cuStreamSynchronize(device->copy); /* the caller may free both sides now */
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
static gpr_status download(gpr_device *device, CUstream stream, char *destination, const char *source, uint64_t bytes)
{
    gpr_status status = GPR_OK;

    for (uint64_t done = 0; done < bytes;) {
        const uint64_t part = bytes - done < GPR_SMALL_BYTES ? bytes - done : GPR_SMALL_BYTES;
        GPR_CU(cuMemcpyDtoHAsync, device->small, (CUdeviceptr)(uintptr_t)(source + done), part, stream);
        GPR_CU(cuStreamSynchronize, stream);
        memcpy(destination + done, device->small, part);
        done += part;
    }
done:
    return status;
}

gpr_status gpr_download(int ordinal, void *stream, void *destination, const void *source, uint64_t bytes)
{
    gpr_device *device = NULL;
    gpr_status status = gpr_device_enter(ordinal, &device);

    if (status != GPR_OK) return status;
    status = download(device, stream != NULL ? (CUstream)stream : device->compute, destination, source, bytes);
    gpr_device_leave(device);
    return status;
}
