/* Where a host array is reduced sooner: a line through two measured times for each side, seconds
 * = latency + bytes / rate. */
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
    double latency;  /* seconds */
    double per_byte; /* seconds */
} line;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int tried, measured; /* a device that does not answer is not asked again */
static line cpu, gpu;

/* The sum of an array of one axis, on `device`. The backends are called themselves: whoever selects
 * a device for a call cannot begin with a call. */
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

static int measure_line(const float *data, int device, line *result)
{
    const double few = time_reduction(data, FEW, device), many = time_reduction(data, MANY, device);

    if (few < 0 || many < 0) return 0;
    result->per_byte = (many - few) / (MANY - FEW);
    result->latency = few - FEW * result->per_byte;
    return 1;
}

/* Measures both sides; without memory or an answer the CPU is the choice. */
static void measure(void)
{
    const uint64_t count = MANY / sizeof(float);
    float *data = malloc(MANY);

    if (data == NULL) return;
    for (uint64_t i = 0; i < count; i++) data[i] = (float)(i % 1024);
    measured = measure_line(data, GPR_DEVICE_CPU, &cpu) && measure_line(data, 0, &gpu);
    free(data);
}

/* Where a host array of `bytes` bytes is expected to be reduced sooner. */
static int find_fastest(uint64_t bytes)
{
    double on_cpu = 0, on_gpu = 0;

    if (!gpr_cuda_usable()) return GPR_DEVICE_CPU;
    pthread_mutex_lock(&lock);
    if (!tried) measure();
    tried = 1;
    if (!measured) {
        on_gpu = 1;
    } else {
        on_cpu = cpu.latency + (double)bytes * cpu.per_byte;
        on_gpu = gpu.latency + (double)bytes * gpu.per_byte;
    }
    pthread_mutex_unlock(&lock);
    return on_gpu < on_cpu ? 0 : GPR_DEVICE_CPU;
}

gpr_status gpr_select_device(int asked, uint64_t bytes, int *device)
{
    if (asked < GPR_DEVICE_CUDA)
        return gpr_fail(GPR_ERROR_VALUE, "unknown device number %d", asked);
    *device = asked;
    if (asked == GPR_DEVICE_CUDA) *device = 0;
    if (asked == GPR_DEVICE_DEFAULT) *device = gpr_cuda_usable() ? 0 : GPR_DEVICE_CPU;
    if (asked == GPR_DEVICE_FASTEST) *device = find_fastest(bytes);
    return GPR_OK;
}
