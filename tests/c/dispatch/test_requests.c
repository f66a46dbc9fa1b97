/* The library's errors for requests that make no sense, on both backends, and where it chooses the
 * device itself.
 *
 * The driver and NVRTC are fakes, opened anew in a child process for each setting. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "fakes/fakes.h"
#include "gpureduce.h"
#include "lib/base/registry.h"
#include "request.h"

enum { LONGEST_SECONDS = 120, COUNT = 100 };

static char root[200];

/* Runs a body in a process with FAKE_CUDA=setting. */
static void in_child(void (*body)(void), const char *name, const char *setting)
{
    int status = 0;

    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(LONGEST_SECONDS);
        REQUIRE(setenv("FAKE_CUDA", setting, 1) == 0);
        load_fakes();
        body();
        exit(0);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(status == 0, "%s", name);
}

/* ---------------------------------------------------------------- requests ------------------- */

static int32_t values[COUNT];
static uint8_t mask[COUNT];
static const int64_t shape[1] = {COUNT}, mask_strides[1] = {1};
static int64_t sum;

/* A request that is fine: the sum of `values` on the CPU. */
static gpr_request sound_request(void)
{
    gpr_request request = sums_of(GPR_INT32, 1, shape, values, &sum);

    request.device = GPR_DEVICE_CPU;
    return request;
}

static void expect_failure(const gpr_request *request, gpr_status status, const char *part)
{
    const gpr_status got = gpr_reduce(request);

    if (got != status || strstr(gpr_last_error()->message, part) == NULL)
        (void)fprintf(stderr, "%s: %s\n", gpr_status_name(got), gpr_last_error()->message);
    REQUIRE(got == status && gpr_last_error()->status == status);
    REQUIRE(strstr(gpr_last_error()->message, part) != NULL);
}

static void requests_that_make_no_sense_are_refused(void)
{
    static const int64_t backwards[1] = {-4}, negative[1] = {-1};
    static const int64_t huge[2] = {INT64_MAX, INT64_MAX};
    gpr_request request = sound_request();

    REQUIRE(gpr_last_run() == NULL);
    REQUIRE(gpr_reduce(&request) == GPR_OK && sum == (int64_t)COUNT * (COUNT - 1) / 2);
    REQUIRE(gpr_last_run()->elements == COUNT && gpr_last_run()->device == GPR_DEVICE_CPU);

#define REFUSED(status, part, ...)                  \
    do {                                            \
        request = sound_request();                  \
        __VA_ARGS__;                                \
        expect_failure(&request, status, part);     \
        REQUIRE(gpr_last_run()->elements == COUNT); \
    } while (0)
    REFUSED(GPR_ERROR_VALUE, "no operator", request.op = GPR_OP_COUNT);
    REFUSED(GPR_ERROR_VALUE, "no dtype", request.dtype = GPR_DTYPE_COUNT);
    REFUSED(GPR_ERROR_VALUE, "to compute in", request.compute = GPR_DTYPE_COUNT);
    REFUSED(GPR_ERROR_TYPE, "max computes", (request.op = GPR_OP_MAX, request.compute = GPR_INT64));
    REFUSED(GPR_ERROR_VALUE, "no kernel has index", request.kernel = GPR_KERNEL_COUNT);
    REFUSED(GPR_ERROR_VALUE, "power of two",
            (request.kernel = GPR_KERNEL_sequential, request.block_size = 96));
    REFUSED(GPR_ERROR_VALUE, "multiple of 32",
            (request.kernel = GPR_KERNEL_shfl_atomic, request.block_size = 2048));
    REFUSED(GPR_ERROR_VALUE, "one warp",
            (request.kernel = GPR_KERNEL_single_warp, request.block_size = 64));
    REFUSED(GPR_ERROR_VALUE, "the length decides",
            (request.kernel = GPR_KERNEL_sequential, request.grid_size = 2));
    REFUSED(GPR_ERROR_VALUE, "one block",
            (request.kernel = GPR_KERNEL_single_block, request.grid_size = 2));
    REFUSED(GPR_ERROR_VALUE, "0 to 64 axes", request.ndim = GPR_MAX_NDIM + 1);
    REFUSED(GPR_ERROR_VALUE, "0 to 64 axes", request.ndim = -1);
    REFUSED(GPR_ERROR_VALUE, "cannot be reduced", request.reduced = 2);
    REFUSED(GPR_ERROR_VALUE, "negative extent", request.shape = negative);
    REFUSED(GPR_ERROR_VALUE, "2^63 - 1 bytes", (request.shape = huge, request.ndim = 2));
    REFUSED(GPR_ERROR_VALUE, "mask_strides", request.mask = mask);
    REFUSED(GPR_ERROR_VALUE, "argmin takes no mask",
            (request.op = GPR_OP_ARGMIN, request.mask = mask, request.mask_strides = mask_strides));
    REFUSED(GPR_ERROR_VALUE, "ptp does not leave out NaN",
            (request.op = GPR_OP_PTP, request.skip_nan = 1));
    REFUSED(GPR_ERROR_TYPE, "bitwise_or' not supported",
            (request.op = GPR_OP_BITWISE_OR, request.dtype = GPR_FLOAT64));
    REFUSED(GPR_ERROR_TYPE, "ptp subtracts", (request.op = GPR_OP_PTP, request.dtype = GPR_BOOL));
    REFUSED(GPR_ERROR_TYPE, "float or complex",
            (request.op = GPR_OP_VAR, request.compute = GPR_INT32));
    REFUSED(GPR_ERROR_VALUE, "unknown device number", request.device = GPR_DEVICE_CUDA - 1);
    REFUSED(GPR_ERROR_VALUE, "names its CUDA device", request.on_device = 1);
    REFUSED(GPR_ERROR_VALUE, "dates are int64 of a host array, not float32",
            (request.dtype = GPR_FLOAT32, request.nat_last = 1));
    REFUSED(
        GPR_ERROR_VALUE, "not int64 of a device array",
        (request.dtype = GPR_INT64, request.on_device = request.nat_last = 1, request.device = 0));
    REFUSED(GPR_ERROR_VALUE, "bytes are swapped",
            (request.on_device = 1, request.device = 0, request.op = GPR_OP_MEAN,
             request.byteswapped = 1));
    REFUSED(
        GPR_ERROR_VALUE, "multiples of their size, 4 bytes",
        (request.on_device = 1, request.device = 0, request.data = (const char *)request.data + 1));
    REFUSED(GPR_ERROR_VALUE, "addresses of results on a device are multiples",
            (request.on_device = request.result_on_device = 1, request.device = 0,
             request.result = (char *)request.result + 1));
    REFUSED(GPR_ERROR_VALUE, "results of a host array", request.result_on_device = 1);
    REFUSED(GPR_ERROR_VALUE, "not memory of a CUDA device",
            (request.on_device = 1, request.device = 0));
    REFUSED(GPR_ERROR_VALUE, "1 CUDA device", request.device = 1);
    REFUSED(GPR_ERROR_VALUE, "1 CUDA device", request.device = 100000);
#undef REFUSED
    request = sound_request();
    request.strides = backwards; /* which is allowed */
    request.data = values + COUNT - 1;
    REQUIRE(gpr_reduce(&request) == GPR_OK && sum == (int64_t)COUNT * (COUNT - 1) / 2);
    REQUIRE(gpr_reduce_array(GPR_OP_SUM, GPR_INT8, values, UINT64_C(1) << 63, &sum) ==
            GPR_ERROR_VALUE);
    REQUIRE(gpr_reduce_array(GPR_OP_MIN, GPR_INT32, values, 0, &sum) == GPR_ERROR_VALUE);
    REQUIRE(strstr(gpr_last_error()->message, "minimum which has no identity") != NULL);
    REQUIRE(gpr_reduce_array(GPR_OP_SUM, GPR_INT32, values, COUNT, &sum) == GPR_OK &&
            gpr_last_run()->device == 0);
}

/* Few elements are counted on the CPU, unless a device would have been selected. */
static void counts_of_few_elements_go_where_requests_go(void)
{
    int64_t count = -1;

    REQUIRE(gpr_count_few(GPR_INT32, values, COUNT, -1, GPR_DEVICE_DEFAULT, &count) == 0);
    REQUIRE(count == -1);
    REQUIRE(gpr_count_few(GPR_INT32, values, COUNT, -1, GPR_DEVICE_CPU, &count) == 1);
    REQUIRE(count == COUNT - 1 && gpr_last_run()->device == GPR_DEVICE_CPU);
    REQUIRE(gpr_last_run()->elements == COUNT && gpr_last_run()->bytes == sizeof values);
    REQUIRE(gpr_count_few(GPR_INT32, values, 0, -1, GPR_DEVICE_CPU, &count) == 1 && count == 0);
}

static int stop(void *asked)
{
    ++*(int *)asked;
    return 1;
}

/* Updates of states with device arrays: a refused or interrupted one changes nothing. */
static void updates_that_make_no_sense_change_nothing(void)
{
    enum { STATE_BYTES = 512 };
    static const int64_t nothing[1] = {0}, negative[1] = {-1}, beyond[1] = {1 << 20};
    static const int64_t narrow[1] = {6};
    uint8_t before[STATE_BYTES], after[STATE_BYTES];
    const size_t bytes = gpr_exact_bytes(GPR_FLOAT64);
    gpr_exact *state = NULL;
    void *data = NULL;
    double result = 0;
    int asked = 0;

    REQUIRE(bytes <= STATE_BYTES && gpr_exact_create(GPR_FLOAT64, &state) == GPR_OK);
    REQUIRE(gpr_alloc_device(1, sizeof values, &data) == GPR_OK);
    REQUIRE(gpr_upload(1, data, values, sizeof values) == GPR_OK);
    const gpr_request sound = {
        .dtype = GPR_INT32, .ndim = 1, .shape = shape, .data = data, .on_device = 1, .device = 1};
    gpr_request request = sound;
    REQUIRE(gpr_exact_update(state, &request) == GPR_OK && gpr_exact_count(state) == COUNT);
    REQUIRE(gpr_exact_result(state, GPR_FLOAT64, &result) == GPR_OK &&
            result == COUNT * (COUNT - 1) / 2.0);
    gpr_exact_store(state, before);

#define UNCHANGED(wanted, part, ...)                                                             \
    do {                                                                                         \
        request = sound;                                                                         \
        __VA_ARGS__;                                                                             \
        const gpr_status got = gpr_exact_update(state, &request);                                \
        if (got != (wanted)) (void)fprintf(stderr, "%s: %s\n", part, gpr_last_error()->message); \
        REQUIRE(got == (wanted));                                                                \
        REQUIRE(got == GPR_OK || strstr(gpr_last_error()->message, part) != NULL);               \
        gpr_exact_store(state, after);                                                           \
        REQUIRE(memcmp(before, after, bytes) == 0);                                              \
    } while (0)
    UNCHANGED(GPR_OK, "", request.shape = nothing);
    UNCHANGED(GPR_ERROR_TYPE, "complex64", request.dtype = GPR_COMPLEX64);
    UNCHANGED(GPR_ERROR_VALUE, "no dtype", request.dtype = GPR_DTYPE_COUNT);
    UNCHANGED(GPR_ERROR_VALUE, "without a mask",
              (request.mask = mask, request.mask_strides = mask_strides));
    UNCHANGED(GPR_ERROR_VALUE, "native byte order", request.byteswapped = 1);
    UNCHANGED(GPR_ERROR_VALUE, "multiples of their size", request.strides = narrow);
    UNCHANGED(GPR_ERROR_VALUE, "negative extent", request.shape = negative);
    UNCHANGED(GPR_ERROR_VALUE, "more than is allocated", request.shape = beyond);
    UNCHANGED(GPR_ERROR_VALUE, "not memory of", request.data = values);
    UNCHANGED(GPR_ERROR_VALUE, "\"cuda:1\"", request.device = 0);
    UNCHANGED(GPR_ERROR_VALUE, "names its CUDA device", request.device = GPR_DEVICE_CPU);
    UNCHANGED(GPR_ERROR_VALUE, "multiple of 32", request.block_size = 48);
    UNCHANGED(GPR_ERROR_INTERRUPTED, "interrupted",
              (request.interrupted = stop, request.interrupted_arg = &asked));
    REQUIRE(asked == 1);
    request.stream = fake.make_stream(1);
    fake.begin_capture(request.stream);
    const gpr_status captured = gpr_exact_update(state, &request);
    fake.destroy_graph(fake.end_capture(request.stream));
    REQUIRE(captured == GPR_ERROR_VALUE &&
            strstr(gpr_last_error()->message, "captured into a graph") != NULL);
    gpr_exact_store(state, after);
    REQUIRE(memcmp(before, after, bytes) == 0);
#undef UNCHANGED
    request = sound;
    request.kernel = GPR_KERNEL_COUNT; /* not read, nor is the rest */
    request.op = GPR_OP_MAX;
    request.compute = GPR_BOOL;
    request.reduced = -1;
    REQUIRE(gpr_exact_update(state, &request) == GPR_OK);
    REQUIRE(gpr_exact_result(state, GPR_FLOAT64, &result) == GPR_OK &&
            result == COUNT * (COUNT - 1.0));
    REQUIRE(gpr_free_device(1, data) == GPR_OK);
    REQUIRE(fake.violation()[0] == '\0');
    gpr_exact_destroy(state);
}

static void measurements_that_make_no_sense_are_refused(void)
{
    static const int64_t none[1] = {0};
    float milliseconds = 0;
    gpr_request request = sound_request();
    void *data = NULL;

    REQUIRE(gpr_measure(&request, 0, 1, 0, &milliseconds) == GPR_ERROR_VALUE);
    REQUIRE(gpr_alloc_device(0, sizeof values, &data) == GPR_OK);
    REQUIRE(gpr_upload(0, data, values, sizeof values) == GPR_OK);
    request.on_device = 1;
    request.device = 0;
    request.data = data;
    REQUIRE(gpr_measure(&request, -1, 1, 0, &milliseconds) == GPR_ERROR_VALUE);
    REQUIRE(gpr_measure(&request, 0, -1, 0, &milliseconds) == GPR_ERROR_VALUE);
    request.shape = none;
    REQUIRE(gpr_measure(&request, 0, 1, 0, &milliseconds) == GPR_ERROR_VALUE);
    REQUIRE(strstr(gpr_last_error()->message, "empty array") != NULL);
    request.shape = shape;
    REQUIRE(gpr_measure(&request, 1, 1, 0, &milliseconds) == GPR_OK && milliseconds >= 0);
    REQUIRE(gpr_free_device(0, data) == GPR_OK && fake.violation()[0] == '\0');
}

/* All kernels that need no newer GPU than compute capability 7.5 are available. */
static void kernels_that_the_gpu_is_too_old_for_say_so(void)
{
    REQUIRE(gpr_kernel_available(-1, 0) == GPR_ERROR_VALUE);
    REQUIRE(gpr_kernel_available(GPR_KERNEL_COUNT, 0) == GPR_ERROR_VALUE);
    for (int kernel = 0; kernel < GPR_KERNEL_COUNT; kernel++) {
        gpr_request request = sound_request();
        const int too_old = gpr_kernel_rows[kernel].min_cc > 75;
        if ((gpr_kernel_rows[kernel].flags & GPR_NEEDS_CCCL) != 0) continue;
        REQUIRE(gpr_kernel_available(kernel, 0) == (too_old ? GPR_ERROR_KERNEL : GPR_OK));
        if (!too_old) continue;
        REQUIRE(strstr(gpr_last_error()->message, "Fake 0 has 7.5") != NULL);
        request.kernel = kernel;
        request.device = 0;
        expect_failure(&request, GPR_ERROR_KERNEL, "needs compute capability");
    }
}

static void statuses_have_names(void)
{
    char names[GPR_ERROR_SYSTEM + 1][40];

    for (int i = 0; i <= GPR_ERROR_SYSTEM; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s", gpr_status_name((gpr_status)i));
        REQUIRE(strncmp(names[i], "GPR_", 4) == 0);
        for (int j = 0; j < i; j++) REQUIRE(strcmp(names[i], names[j]) != 0);
    }
    REQUIRE(strcmp(gpr_status_name((gpr_status)(GPR_ERROR_SYSTEM + 1)), "unknown status") == 0);
}

/* ---------------------------------------------------------------- the choice of a device ----- */

/* The device chosen for `bytes` bytes of float32. */
static int chosen_for(uint64_t bytes)
{
    float *ones = malloc(bytes), result = 0;
    const int64_t extent = (int64_t)(bytes / sizeof *ones);
    gpr_request request = sound_request();

    REQUIRE(ones != NULL);
    for (int64_t i = 0; i < extent; i++) ones[i] = 1;
    request.dtype = GPR_FLOAT32;
    request.shape = &extent;
    request.data = ones;
    request.device = GPR_DEVICE_FASTEST;
    request.result = &result;
    REQUIRE(gpr_reduce(&request) == GPR_OK && result == (float)extent);
    free(ones);
    return gpr_last_run()->device;
}

/* A fake device that dawdles on every operation is never sooner. */
static void a_slow_device_is_not_chosen(void)
{
    const unsigned before = fake.launches();

    REQUIRE(chosen_for(1000) == GPR_DEVICE_CPU && fake.launches() > before);
    const unsigned after = fake.launches();
    REQUIRE(chosen_for(100000) == GPR_DEVICE_CPU && fake.launches() == after); /* measured once */
}

/* A device that fails while it is measured is not chosen, and not measured again. */
static void a_device_that_does_not_answer_is_not_chosen(void)
{
    fake.fail("cuLaunchKernel", 1, 999);
    REQUIRE(chosen_for(1000) == GPR_DEVICE_CPU && strcmp(fake.failed(), "cuLaunchKernel") == 0);
    const unsigned launches = fake.launches();
    REQUIRE(chosen_for(100000) == GPR_DEVICE_CPU && fake.launches() == launches);
}

/* ---------------------------------------------------------------- forks ---------------------- */

static void *ask_for_cuda(void *status)
{
    *(gpr_status *)status = gpr_cuda_available();
    return NULL;
}

/* The driver's library is a pipe here: opening it goes on until the other end is closed. */
static void a_child_forked_while_the_driver_is_opened_is_told_so(void)
{
    char path[300];
    gpr_status in_thread = GPR_OK;
    pthread_t thread;
    int end = -1, status = 0;

    (void)snprintf(path, sizeof path, "%s/libcuda", root);
    REQUIRE(mkfifo(path, 0600) == 0 && setenv("GPUREDUCE_LIBCUDA", path, 1) == 0);
    REQUIRE(pthread_create(&thread, NULL, ask_for_cuda, &in_thread) == 0);
    /* there is a reader from here on */
    while ((end = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) usleep(100);
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(LONGEST_SECONDS);
        REQUIRE(gpr_cuda_available() == GPR_ERROR_DEVICE);
        REQUIRE(strstr(gpr_last_error()->message, "forked") != NULL);
        gpr_request request = sound_request();
        request.device = GPR_DEVICE_DEFAULT;
        REQUIRE(gpr_reduce(&request) == GPR_OK && gpr_last_run()->device == GPR_DEVICE_CPU);
        check_leave(0);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    REQUIRE(close(end) == 0 && pthread_join(thread, NULL) == 0 && unlink(path) == 0);
    REQUIRE(in_thread == GPR_ERROR_DEVICE && gpr_cuda_available() == GPR_ERROR_DEVICE);
    REQUIRE(strstr(gpr_last_error()->message, "no NVIDIA driver") != NULL);
}

/* A context's owner may want threads that wait to sleep: then none looks out for results. */
static void whoever_waits_sleeps_if_the_context_says_so(void)
{
    gpr_request request = sound_request();

    request.device = 0;
    REQUIRE(gpr_reduce(&request) == GPR_OK);
    for (int i = 0; i < 1000; i++) {
        const unsigned calls = fake.calls();
        REQUIRE(gpr_reduce(&request) == GPR_OK && sum == (int64_t)COUNT * (COUNT - 1) / 2);
        REQUIRE(fake.calls() - calls == 4); /* context in and out, launch, wait */
    }
}

static void a_waiting_call_polls_for_its_result(void)
{
    gpr_request request = sound_request();
    unsigned least = UINT32_MAX;

    request.device = 0;
    REQUIRE(gpr_reduce(&request) == GPR_OK);
    for (int i = 0; i < 5000 && least > 3; i++) {
        const unsigned calls = fake.calls();
        REQUIRE(gpr_reduce(&request) == GPR_OK && sum == (int64_t)COUNT * (COUNT - 1) / 2);
        const unsigned made = fake.calls() - calls;
        if (made < least) least = made;
    }
    REQUIRE(least == 3);
}

/* The default of float sums: accumulators of several words. */
static void a_waiting_call_polls_for_exact_sums_too(void)
{
    static float singles[COUNT];
    static double doubles[COUNT];
    const float single_sum = (float)COUNT * (COUNT - 1) / 2;
    const double double_sum = single_sum;

    for (int i = 0; i < COUNT; i++) singles[i] = (float)(doubles[i] = i);
    for (int is_double = 0; is_double < 2; is_double++) {
        const size_t bytes = is_double ? sizeof double_sum : sizeof single_sum;
        const void *right = is_double ? (const void *)&double_sum : (const void *)&single_sum;
        gpr_request request = sound_request();
        uint8_t result[sizeof double_sum];
        unsigned least = UINT32_MAX;

        request.device = 0;
        request.dtype = is_double ? GPR_FLOAT64 : GPR_FLOAT32;
        request.data = is_double ? (const void *)doubles : (const void *)singles;
        request.result = result;
        REQUIRE(gpr_reduce(&request) == GPR_OK);
        for (int i = 0; i < 5000 && least > 3; i++) {
            const unsigned calls = fake.calls();
            REQUIRE(gpr_reduce(&request) == GPR_OK && memcmp(result, right, bytes) == 0);
            const unsigned made = fake.calls() - calls;
            if (made < least) least = made;
        }
        REQUIRE(strcmp(gpr_last_run()->variant, "exact") == 0);
        REQUIRE(least == 3); /* context in and out, launch */
    }
}

int main(void)
{
    const char *temporary = getenv("TMPDIR");

    check_begin();
    (void)snprintf(root, sizeof root, "%s/gpureduce-requests-XXXXXX",
                   temporary != NULL ? temporary : "/tmp");
    REQUIRE(mkdtemp(root) != NULL);
    for (int i = 0; i < COUNT; i++) values[i] = i;
    in_child(requests_that_make_no_sense_are_refused, "requests", "");
    in_child(counts_of_few_elements_go_where_requests_go, "counts of few elements", "");
    in_child(updates_that_make_no_sense_change_nothing, "updates", "devices=2");
    in_child(measurements_that_make_no_sense_are_refused, "measurements", "");
    in_child(kernels_that_the_gpu_is_too_old_for_say_so, "an old GPU", "cc=75");
    in_child(statuses_have_names, "statuses", "");
    in_child(a_slow_device_is_not_chosen, "a slow device", "least_delay=20000");
    in_child(a_device_that_does_not_answer_is_not_chosen, "a device that does not answer", "");
    in_child(a_child_forked_while_the_driver_is_opened_is_told_so, "a fork while opening", "");
    in_child(whoever_waits_sleeps_if_the_context_says_so, "a context that blocks", "flags=4");
    in_child(a_waiting_call_polls_for_its_result, "a context that spins", "");
    in_child(a_waiting_call_polls_for_exact_sums_too, "exact sums and a context that spins", "");
    CHECK(rmdir(root) == 0, "%s is not empty", root);
    return check_end();
}
