/* Whether GPR_DEVICE_FASTEST goes by the CPU backend's estimate of a call. The driver is a fake,
 * and the clock is the test's: a reduction on the GPU takes a time per byte, one on the CPU
 * CPU_SLOWNESS times its estimate, so that the choice follows from the estimate of each call. */
#include <math.h>
#include <stdio.h>

#include "check.h"
#include "cpu/cpu.h"
#include "dispatch/device_select.h"
#include "fakes/fakes.h"
#include "lib/run/host_pipeline.h"
#include "request.h"

static const double CPU_SLOWNESS = 3, GPU_LATENCY = 100e-6, GPU_PER_BYTE = 0.2e-9;
static double now = 1000;
static int cpu_sums, gpu_sums;

int __real_clock_gettime(clockid_t clock, struct timespec *time);

static double cpu_seconds(const gpr_view *view, const gpr_rule *rule)
{
    return CPU_SLOWNESS * 1e-9 * gpr_cpu_nanoseconds(view, rule);
}

static double gpu_seconds(const gpr_view *view)
{
    const double packing =
        view->contiguous ? 0 : CPU_SLOWNESS * 1e-9 * gpr_cpu_nanoseconds_to_pack(view);

    return GPU_LATENCY + fmax(packing, GPU_PER_BYTE * (double)(view->rows * view->n * view->bytes));
}

/* WRAP(kind, name, result, parameters, body) */
#define WRAPS(WRAP)                                                                       \
    WRAP(CLOCK, clock_gettime, int, (clockid_t clock, struct timespec * time), {          \
        if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, time);           \
        time->tv_sec = (time_t)now;                                                       \
        time->tv_nsec = (long)(1e9 * (now - floor(now)));                                 \
    })                                                                                    \
    WRAP(CALL, gpr_cpu_reduce, gpr_status, (const gpr_resolved *call, gpr_run *run), {    \
        (void)run;                                                                        \
        now += cpu_seconds(&call->view, &call->rule);                                     \
        cpu_sums++;                                                                       \
    })                                                                                    \
    WRAP(CALL, gpr_stream_reduce, gpr_status, (const gpr_resolved *call, gpr_run *run), { \
        (void)run;                                                                        \
        now += gpu_seconds(&call->view);                                                  \
        gpu_sums++;                                                                       \
    })

#define WRAP(kind, name, result, parameters, body) \
    result __wrap_##name parameters;               \
    result __wrap_##name parameters                \
    {                                              \
        body return 0;                             \
    }
WRAPS(WRAP)
#undef WRAP

/* A reduction of `rows` rows of n elements, `step` elements apart, and by how many threads. */
typedef struct shape_of_call {
    gpr_operator op;
    gpr_dtype dtype;
    int64_t rows, n, step;
    uint32_t threads;
} shape_of_call;

static int chosen(const shape_of_call *call, double *on_cpu, double *on_gpu)
{
    static char element[16]; /* nothing is read */
    const int64_t shape[2] = {call->rows, call->n}, bytes = (int64_t)gpr_dtype_bytes(call->dtype),
                  strides[2] = {call->n * call->step * bytes, call->step * bytes};
    gpr_request request = sums_of(call->dtype, 2, shape, element, NULL);
    gpr_limits limits;
    gpr_rule rule;
    gpr_view view;
    int device = -2;

    request.op = call->op;
    request.strides = strides;
    gpr_get_limits(&limits);
    limits.cpu_threads = call->threads;
    REQUIRE(gpr_set_limits(&limits) == GPR_OK);
    REQUIRE(rule_of(&request, &rule) == GPR_OK);
    REQUIRE(gpr_make_view(&request, &rule, &view) == GPR_OK);
    REQUIRE(gpr_select_device(GPR_DEVICE_FASTEST, &view, &rule, &device) == GPR_OK);
    *on_cpu = cpu_seconds(&view, &rule);
    *on_gpu = gpu_seconds(&view);
    return device;
}

static void expect(const shape_of_call *call, int device)
{
    double on_cpu, on_gpu;
    const int got = chosen(call, &on_cpu, &on_gpu);

    CHECK(got == device, "%s of %s: %g s on the CPU, %g on the GPU", gpr_operator_name(call->op),
          gpr_dtype_name(call->dtype), on_cpu, on_gpu);
}

/* Calls of as many bytes take the bus as long. On the CPU they differ by the operations per
 * element, by packing, and by the number of threads. */
static void test_choices(void)
{
    shape_of_call call = {GPR_OP_MAX, GPR_FLOAT32, 100, 10000, 1, 1};

    expect(&call, GPR_DEVICE_CPU);
    call.op = GPR_OP_VAR;
    expect(&call, 0);
    call.threads = 8;
    expect(&call, GPR_DEVICE_CPU);
    call = (shape_of_call){GPR_OP_MAX, GPR_FLOAT32, 10, 1000, 1, 1};
    expect(&call, GPR_DEVICE_CPU); /* over before the GPU begins */
    call = (shape_of_call){GPR_OP_VAR, GPR_FLOAT32, 10, 1000000, 1, 1};
    expect(&call, 0);
    call.step = 0;
    expect(&call, GPR_DEVICE_CPU); /* which reads an element that repeats once */
}

static void test_random_choices(void)
{
    enum { CALLS = 2000 };
    static const gpr_operator ops[] = {GPR_OP_MAX,    GPR_OP_SUM, GPR_OP_VAR, GPR_OP_MEAN,
                                       GPR_OP_ARGMIN, GPR_OP_PTP, GPR_OP_ANY};
    static const gpr_dtype dtypes[] = {GPR_INT8,    GPR_INT32,   GPR_UINT64,   GPR_FLOAT16,
                                       GPR_FLOAT32, GPR_FLOAT64, GPR_COMPLEX64};
    int of_each[2] = {0};

    for (int i = 0; i < CALLS; i++) {
        const shape_of_call call = {
            .op = ops[check_between(0, sizeof ops / sizeof ops[0] - 1)],
            .dtype = dtypes[check_between(0, sizeof dtypes / sizeof dtypes[0] - 1)],
            .rows = check_between(1, 2000),
            .n = check_between(1, 20000),
            .step = check_between(1, 2),
            .threads = (uint32_t)check_between(1, 16)};
        double on_cpu, on_gpu;
        const int device = chosen(&call, &on_cpu, &on_gpu);

        if (fabs(on_cpu - on_gpu) < 0.01 * on_gpu) continue; /* the clock has whole nanoseconds */
        CHECK(device == (on_gpu < on_cpu ? 0 : GPR_DEVICE_CPU),
              "%s of %s (%lld, %lld), step %lld, %u threads: %g s on the CPU, %g on the GPU, %d",
              gpr_operator_name(call.op), gpr_dtype_name(call.dtype), (long long)call.rows,
              (long long)call.n, (long long)call.step, call.threads, on_cpu, on_gpu, device);
        of_each[device == 0]++;
    }
    CHECK(of_each[0] > 0 && of_each[1] > 0, "%d on the CPU, %d on the GPU", of_each[0], of_each[1]);
}

int main(void)
{
    check_begin();
    load_fakes();
    test_choices();
    CHECK(cpu_sums > 0 && gpu_sums > 0, "nothing was measured");
    const int sums = cpu_sums + gpu_sums;
    test_random_choices();
    CHECK(cpu_sums + gpu_sums == sums, "measured more than once");
    return check_end();
}
