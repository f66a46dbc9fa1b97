/* Chooses the device that reduces a host array in less time. Two sums are timed on each side, of
 * few elements and of many. A GPU's time is a line through both, seconds = latency + bytes / rate:
 * all elements cross the bus, and those that are apart in memory are packed meanwhile. The CPU's
 * time is its backend's estimate, by the rates that decide the number of threads of a call, scaled
 * by the two sums that were timed. */
#include "dispatch/device_select.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "lib/base/clock.h"
#include "lib/driver/device.h"
#include "lib/run/host_pipeline.h"

enum { FEW = 4 << 10, MANY = 32 << 20, TRIES = 3 };

typedef struct line {
    double latency; /* seconds */
    double slope;   /* seconds per byte, or per nanosecond estimated */
} line;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int tried, measured; /* a device that failed is not tried again */
static line cpu, gpu;

/* The sum of an array of one axis, on `device`. The backends are called themselves: a call would
 * select a device itself. */
static gpr_status make_sum(const float *data, uint64_t bytes, int device, float *result,
                           gpr_resolved *call)
{
    const int64_t shape = (int64_t)(bytes / sizeof *data);
    const gpr_request request = {
        .dtype = GPR_FLOAT32, .ndim = 1, .reduced = 1, .shape = &shape, .data = data};
    gpr_status status = GPR_OK;

    memset(call, 0, sizeof *call);
    call->device = device;
    call->result = result;
    GPR_TRY(gpr_make_rule(GPR_OP_SUM, GPR_FLOAT32, GPR_DTYPE_DEFAULT, &call->rule));
    call->kernel = gpr_kernel_for(GPR_KERNEL_auto, &call->rule);
    gpr_fit_rule(&gpr_kernel_rows[call->kernel], &call->rule);
    GPR_TRY(gpr_make_view(&request, &call->rule, &call->view));
done:
    return status;
}

/* Best of a few times for `bytes` bytes of float32; negative if the device does not answer. */
static double time_reduction(const float *data, uint64_t bytes, int device)
{
    float result = 0;
    double best = -1;
    gpr_resolved call;

    if (make_sum(data, bytes, device, &result, &call) != GPR_OK) return -1;
    for (int i = 0; i <= TRIES; i++) { /* the first also compiles and allocates */
        const double start = gpr_seconds();
        gpr_run run = {0};
        const gpr_status status =
            device == GPR_DEVICE_CPU ? gpr_cpu_reduce(&call, &run) : gpr_stream_reduce(&call, &run);
        if (status != GPR_OK) return -1;
        const double seconds = gpr_seconds() - start;
        if (i > 0 && (best < 0 || seconds < best)) best = seconds;
    }
    return best;
}

/* The size of a sum that its time is a line of: its bytes, or the estimated time on the CPU. */
static double size_of(uint64_t bytes, int device)
{
    float none[1] = {0}, result = 0;
    gpr_resolved call;

    if (device != GPR_DEVICE_CPU) return (double)bytes;
    if (make_sum(none, bytes, device, &result, &call) != GPR_OK) return (double)bytes;
    return gpr_cpu_nanoseconds(&call.view, &call.rule);
}

static int measure_line(const float *data, int device, line *result)
{
    const double few = time_reduction(data, FEW, device), many = time_reduction(data, MANY, device);
    const double least = size_of(FEW, device), most = size_of(MANY, device);

    if (few < 0 || many < 0) return 0;
    result->slope = many > few ? (many - few) / (most - least) : 0;
    result->latency = few - least * result->slope;
    return 1;
}

/* Measures both sides; without memory, or if a side fails, the CPU is chosen. */
static void measure(void)
{
    const uint64_t count = MANY / sizeof(float);
    float *data = malloc(MANY);

    if (data == NULL) return;
    for (uint64_t i = 0; i < count; i++) data[i] = (float)(i % 1024);
    measured = measure_line(data, GPR_DEVICE_CPU, &cpu) && measure_line(data, 0, &gpu);
    free(data);
}

/* The device that is expected to reduce a host array in less time. */
static int find_fastest(const gpr_view *view, const gpr_rule *rule)
{
    const double elements = (double)view->rows * (double)view->n;
    double on_cpu = 0, on_gpu = 0;

    if (!gpr_cuda_usable()) return GPR_DEVICE_CPU;
    pthread_mutex_lock(&lock);
    if (!tried) measure();
    tried = 1;
    if (!measured) {
        on_gpu = 1;
    } else {
        const int arrays = rule->acc_kind == GPR_ACC_EXACT_PRODUCTS ? 2 : 1;
        const double crossing = elements * (double)view->bytes * arrays * gpu.slope;
        const double packing = view->contiguous ? 0 : gpr_cpu_nanoseconds_to_pack(view) * cpu.slope;

        on_cpu = cpu.latency + gpr_cpu_nanoseconds(view, rule) * cpu.slope;
        on_gpu = gpu.latency + (packing > crossing ? packing : crossing);
    }
    pthread_mutex_unlock(&lock);
    return on_gpu < on_cpu ? 0 : GPR_DEVICE_CPU;
}

gpr_status gpr_select_device(int asked, const gpr_view *view, const gpr_rule *rule, int *device)
{
    if (asked < GPR_DEVICE_CUDA)
        return gpr_fail(GPR_ERROR_VALUE, "unknown device number %d", asked);
    *device = asked;
    if (asked == GPR_DEVICE_CUDA) *device = 0;
    if (asked == GPR_DEVICE_DEFAULT) *device = gpr_cuda_usable() ? 0 : GPR_DEVICE_CPU;
    if (asked == GPR_DEVICE_FASTEST) *device = find_fastest(view, rule);
    return GPR_OK;
}
