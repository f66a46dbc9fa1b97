/* The device path: an array is read in place, and its results are written to their final place.
 *
 *     elements, mask --kernels--> results on the device
 *                   (one stream)  or pinned memory --copy--> host memory
 *
 * A call makes as few calls of the driver as possible: for a small array each of them takes longer
 * than reading it. Results on the device are queued, and the host does not wait. One stream orders
 * all of it. */
#include "lib/run/device_path.h"

#include <string.h>

#include "lib/base/integers.h"
#include "lib/base/limits.h"
#include "lib/rules/accumulators.h"
#include "lib/run/poll_results.h"

enum { COPY_BYTES = 4 << 20 }; /* of results that are copied to pinned memory at a time */

/* ---------------------------------------------------------------- checks --------------------- */

/* The driver's attributes of an address. */
typedef struct memory {
    unsigned type, managed;
    int ordinal;
    CUdeviceptr start;
    size_t bytes;
} memory;

static gpr_status look_up(CUdeviceptr address, memory *found)
{
    int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&found->type, &found->managed, &found->ordinal, &found->start, &found->bytes};
    gpr_status status = GPR_OK;

    *found = (memory){0};
    GPR_CU(cuPointerGetAttributes, 5, attributes, values, address);
done:
    return status;
}

/* Whether kernels of the device may read `address`; `what` it is, for the message. *end: where the
 * allocation ends, 0 if that does not matter. */
static gpr_status check_address(const gpr_device *device, CUdeviceptr address, const char *what,
                                CUdeviceptr *end)
{
    memory found;
    gpr_status status = GPR_OK;

    GPR_TRY(look_up(address, &found));
    *end = 0;
    if (found.managed) return GPR_OK;
    if (found.type == CU_MEMORYTYPE_HOST) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "%s at address %#llx is host memory, not memory of device \"cuda:%d\"",
                        what, address, device->ordinal);
    }
    if (found.type != CU_MEMORYTYPE_DEVICE) {
        return gpr_fail(
            GPR_ERROR_VALUE,
            "%s at address %#llx is not memory of a CUDA device: it was freed, or is host memory",
            what, address);
    }
    if (found.ordinal != device->ordinal) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "%s at address %#llx is memory of device \"cuda:%d\", not of \"cuda:%d\"",
                        what, address, found.ordinal, device->ordinal);
    }
    *end = found.start + found.bytes;
done:
    return status;
}

/* Checks both ends of a range: it may span allocations that were mapped next to each other. */
static gpr_status check_memory(const gpr_device *device, const void *first, uint64_t bytes,
                               const char *what)
{
    const CUdeviceptr start = (CUdeviceptr)(uintptr_t)first;
    CUdeviceptr end = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(check_address(device, start, what, &end));
    if (end == 0 || (start < end && bytes <= end - start)) return GPR_OK;
    status = check_address(device, start + bytes - 1, what, &end);
    if (status == GPR_ERROR_VALUE) {
        status =
            gpr_fail(GPR_ERROR_VALUE,
                     "%s needs %llu bytes from address %#llx on, which is more than is allocated",
                     what, (unsigned long long)bytes, start);
    }
done:
    return status;
}

static gpr_status check_all_memory(const gpr_array_job *job)
{
    const gpr_resolved *call = job->call;
    const gpr_view *view = &call->view;
    const char *first = NULL;
    uint64_t bytes = 0;
    gpr_status status = GPR_OK;

    if (view->n > 0) {
        gpr_view_extent(view, 0, &first, &bytes);
        GPR_TRY(check_memory(job->device, first, bytes, "the array"));
        if (view->mask != NULL) {
            const int is_second = call->rule.acc_kind == GPR_ACC_EXACT_PRODUCTS;
            gpr_view_extent(view, 1, &first, &bytes);
            if (is_second) bytes += gpr_dtype_bytes(call->rule.second) - 1;
            GPR_TRY(check_memory(job->device, first, bytes,
                                 is_second ? "the second array" : "the mask"));
        }
        if (call->second != NULL) {
            gpr_view_extent(call->second, 0, &first, &bytes);
            GPR_TRY(check_memory(job->device, first, bytes, "the second array"));
        }
    }
    if (call->means != NULL) {
        gpr_view_mean_extent(view, call->rule.mean, call->means, &first, &bytes);
        GPR_TRY(check_memory(job->device, first, bytes, "the mean"));
    }
    if (call->result_on_device && !call->vouches_for_result) {
        gpr_view_result_extent(job->distinct != NULL ? job->distinct->all : view, &call->rule,
                               call->result, call->output_stride, &first, &bytes);
        GPR_TRY(check_memory(job->device, first, bytes, "the result"));
    }
done:
    return status;
}

static gpr_status check_stream(const gpr_device *device, CUstream stream)
{
    CUcontext context = NULL;

    /* CUDA's own handles mean a stream of whatever context is current. */
    if (stream == device->compute || stream == GPR_STREAM_LEGACY || stream == GPR_STREAM_PER_THREAD)
        return GPR_OK;
    const CUresult result = gpr_cuda.cuStreamGetCtx(stream, &context);
    if (result == CUDA_SUCCESS && context == device->context) return GPR_OK;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_HANDLE &&
        result != CUDA_ERROR_INVALID_CONTEXT)
        return gpr_check(result, "cuStreamGetCtx");
    return gpr_fail(GPR_ERROR_VALUE, "stream %#llx is not a stream of device \"cuda:%d\"",
                    (unsigned long long)(uintptr_t)stream, device->ordinal);
}

/* ---------------------------------------------------------------- a job ---------------------- */

gpr_status gpr_array_prepare(gpr_array_job *job, gpr_run *run)
{
    const gpr_resolved *call = job->call;
    const gpr_rule *rule = &call->rule;
    const gpr_view *view = &call->view, *second = call->second;
    const uint64_t result_bytes = job->leaves_accumulators
                                      ? gpr_acc_bytes(rule->acc_kind, rule->device_acc)
                                      : (uint64_t)rule->outputs * gpr_dtype_bytes(rule->result);
    gpr_layout layout;
    gpr_status status = GPR_OK;

    job->work.elements = (CUdeviceptr)(uintptr_t)view->data;
    job->work.mask = (CUdeviceptr)(uintptr_t)view->mask;
    if (second != NULL) {
        job->work.second = (CUdeviceptr)(uintptr_t)second->data;
        job->work.second_step = second->inner > 0 ? second->axes[0].in / (int64_t)second->bytes : 0;
    }
    job->work.ddof = rule->ddof;
    job->work.means = (CUdeviceptr)(uintptr_t)call->means;
    memcpy(job->work.mean_for_all, call->mean_for_all, sizeof job->work.mean_for_all);
    memcpy(job->work.start, call->start, sizeof job->work.start);
    job->work.output_stride = call->output_stride;
    job->work.stream = gpr_stream_of(job->device, call->stream);
    job->result_bytes = view->rows * result_bytes;
    GPR_TRY(check_stream(job->device, job->work.stream));
    GPR_TRY(check_all_memory(job));
    gpr_view_layout(view, call->result_on_device ? call->result : NULL, &layout);
    GPR_TRY(gpr_make_plan(call->kernel, rule, &layout, !job->leaves_accumulators, call->block_size,
                          call->grid_size, &job->device->facts, &job->plan));
    gpr_kernel_traits traits = gpr_plan_traits(&job->plan, rule, !job->leaves_accumulators);
    traits.copies = job->distinct != NULL;
    GPR_TRY(gpr_load_program(job->device, &traits, run, &job->program));
    GPR_TRY(gpr_scratch_acquire(job->device, &job->plan, rule, job->program->finish != NULL,
                                &job->work, &job->scratch));
done:
    return status;
}

gpr_status gpr_array_queue(gpr_array_job *job, CUdeviceptr outputs, uint32_t *launches)
{
    gpr_status status = GPR_OK;

    job->work.outputs = outputs;
    GPR_TRY(gpr_launch_plan(&job->plan, job->program, &job->work, launches));
    if (job->distinct != NULL)
        status = gpr_launch_copies(job->program, &job->distinct->copies, &job->work, launches);
done:
    return status;
}

gpr_status gpr_array_leave(gpr_array_job *job, gpr_status status)
{
    const gpr_status left = gpr_scratch_release(job->scratch, &job->work, status == GPR_OK);

    if (status == GPR_OK) status = left;
    if (job->program != NULL) gpr_settle_stream(job->work.stream, status);
    return status;
}

/* ---------------------------------------------------------------- results in host memory ----- */

/* Pinned memory for results on their way, within the limits. Gives back buffers of older limits:
 * before other device memory is allocated. */
static gpr_status ensure_pinned(gpr_device *device, uint64_t bytes)
{
    const unsigned generation = gpr_limits_generation();
    gpr_limits limits;

    gpr_get_limits(&limits);
    const gpr_slot_bytes wanted = {
        .results = gpr_smaller(gpr_smaller(bytes, COPY_BYTES), gpr_slot_limits(&limits).results)};
    return gpr_ring_ensure(device, generation, &wanted, 0);
}

/* Copies results from the device by way of pinned memory: while the host takes over a piece, the
 * next ones are on their way. */
static gpr_status copy_results(gpr_device *device, CUdeviceptr results, uint64_t bytes, char *host,
                               CUstream stream)
{
    uint64_t queued = 0, taken = 0;
    gpr_status status = GPR_OK;

    const uint64_t piece = device->ring.room.results, pieces = (bytes + piece - 1) / piece;
    while (taken < pieces) {
        if (queued < pieces && queued - taken < GPR_SLOTS) {
            gpr_slot *slot = &device->ring.slots[queued % GPR_SLOTS];
            const uint64_t at = queued++ * piece;
            GPR_CU(cuMemcpyDtoHAsync, slot->results, results + at, gpr_smaller(piece, bytes - at),
                   stream);
            GPR_CU(cuEventRecord, slot->reduced, stream);
        } else {
            const gpr_slot *slot = &device->ring.slots[taken % GPR_SLOTS];
            const uint64_t at = taken++ * piece;
            GPR_CU(cuEventSynchronize, slot->reduced);
            memcpy(host + at, slot->results, gpr_smaller(piece, bytes - at));
        }
    }
done:
    return status;
}

/* Results by way of the device's memory, where they are many or kernels fold into them. */
static gpr_status fetch_results(gpr_array_job *job, uint32_t *launches)
{
    gpr_device *device = job->device;
    gpr_status status = GPR_OK;

    GPR_TRY(ensure_pinned(device, job->result_bytes));
    GPR_TRY(gpr_buffer_ensure(&device->outputs, job->result_bytes, 0, job->work.stream));
    GPR_TRY(gpr_array_queue(job, device->outputs.address, launches));
    GPR_TRY(copy_results(device, device->outputs.address, job->result_bytes, job->call->result,
                         job->work.stream));
done:
    return status;
}

/* A few results: kernels write them to pinned memory over the bus. */
static gpr_status receive_results(gpr_array_job *job, uint32_t *launches)
{
    char *results = (char *)job->device->small + GPR_SMALL_BYTES;
    const int polls = job->device->polls && gpr_writes_once(&job->plan) &&
                      job->result_bytes <= GPR_AWAITED_RESULTS;
    gpr_status status = GPR_OK;

    if (polls) gpr_mark_results(results, job->result_bytes);
    GPR_TRY(gpr_array_queue(job, (CUdeviceptr)(uintptr_t)results, launches));
    if (polls) {
        const size_t unit = gpr_smaller(gpr_dtype_bytes(job->call->rule.result), sizeof(uint32_t));
        GPR_TRY(gpr_await_results(job->work.stream, results, job->result_bytes, unit,
                                  job->call->result));
    } else {
        GPR_CU(cuStreamSynchronize, job->work.stream);
        memcpy(job->call->result, results, job->result_bytes);
    }
done:
    return status;
}

static gpr_status refuse_capture(const gpr_array_job *job)
{
    const char *instead = job->leaves_accumulators
                              ? "its state is on the host, so update an exact sum before or after"
                              : "keep the result on the device";
    int capturing = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_is_capturing((CUstream)job->call->stream, &capturing));
    if (capturing) {
        status = gpr_fail(
            GPR_ERROR_VALUE,
            "a call on a stream that is being captured into a graph cannot wait for its result: %s",
            instead);
    }
done:
    return status;
}

/* ---------------------------------------------------------------- the whole ------------------ */

static gpr_status reduce(gpr_array_job *job, gpr_run *run)
{
    const gpr_resolved *call = job->call;
    uint32_t launches = 0;
    gpr_status status = GPR_OK;

    run->stage_seconds[GPR_STAGE_STAGE] = 0; /* nothing is copied before it is read */
    if (!call->result_on_device && call->stream != NULL) GPR_TRY(refuse_capture(job));
    GPR_TRY(gpr_array_prepare(job, run));
    if (call->result_on_device) {
        GPR_TRY(gpr_array_queue(job, (CUdeviceptr)(uintptr_t)call->result, &launches));
    } else if (job->result_bytes <= GPR_SMALL_RESULTS) {
        GPR_TRY(receive_results(job, &launches));
    } else {
        GPR_TRY(fetch_results(job, &launches));
    }
    run->chunks = 1;
    run->variant = job->plan.variant;
    run->block_size = job->plan.block;
    run->grid_size = job->plan.passes[0].grid;
    run->launches = launches;
done:
    return gpr_array_leave(job, status);
}

static gpr_status enter_and_reduce(gpr_array_job *job, gpr_run *run)
{
    gpr_status status = gpr_device_enter(job->call->device, &job->device);

    if (status != GPR_OK) return status;
    run->device = job->call->device;
    status = reduce(job, run);
    gpr_device_leave(job->device);
    return status;
}

static __attribute__((noinline)) gpr_status reduce_rows(const gpr_resolved *call,
                                                        const gpr_distinct_rows *distinct,
                                                        gpr_run *run)
{
    gpr_array_job job = {.call = call, .distinct = distinct};

    return enter_and_reduce(&job, run);
}

/* Not inlined, nor is the one above: their records would enlarge the frame of every call. */
static __attribute__((noinline)) gpr_status reduce_distinct_rows(const gpr_resolved *call,
                                                                 gpr_run *run)
{
    gpr_distinct_rows distinct;

    return gpr_find_distinct_rows(call, &distinct) ? reduce_rows(&distinct.call, &distinct, run)
                                                   : reduce_rows(call, NULL, run);
}

gpr_status gpr_array_reduce(const gpr_resolved *call, gpr_run *run)
{
    return gpr_view_same_rows(&call->view) != 0 ? reduce_distinct_rows(call, run)
                                                : reduce_rows(call, NULL, run);
}

gpr_status gpr_array_accumulate(const gpr_resolved *call, gpr_run *run)
{
    gpr_array_job job = {.call = call, .leaves_accumulators = 1};

    return enter_and_reduce(&job, run);
}
