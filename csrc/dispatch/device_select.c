/* Where a host array is reduced sooner: a line through two measured times for each side, seconds = latency + bytes / rate. */
#include <pthread.h>
#include <stdlib.h>

#include "dispatch/reduce.h"
#include "lib/base/clock.h"
#include "lib/driver/device.h"

enum { FEW = 4 << 10, MANY = 32 << 20, TRIES = 3 };

typedef struct line {
    double latency;  /* seconds */
    double per_byte; /* seconds */
} line;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int tried, measured; /* a device that does not answer is not asked again */
static line cpu, gpu;

/* Best of a few times for `bytes` bytes of float32; negative if the device does not answer. */
static double time_reduction(const float *data, uint64_t bytes, int device)
{
    const int64_t shape = (int64_t)(bytes / sizeof *data);
    float result = 0;
    double best = -1;
    gpr_request request = {.op = GPR_OP_SUM,
                           .dtype = GPR_FLOAT32,
                           .compute = GPR_DTYPE_DEFAULT,
                           .ndim = 1,
                           .reduced = 1,
                           .shape = &shape,
                           .data = data,
                           .kernel = -1,
                           .device = device,
                           .result = &result};

    for (int i = 0; i <= TRIES; i++) { /* the first also compiles and allocates */
        const double start = gpr_seconds();
        if (gpr_reduce(&request) != GPR_OK) return -1;
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

int gpr_choose_device(uint64_t bytes)
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
