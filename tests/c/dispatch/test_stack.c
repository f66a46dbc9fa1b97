/* Calls' use of the stack: every operator, dtype, layout and entry point runs on a stack of little
 * more than GPR_STACK_BYTES, and returns the result that it returns on a large one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "fakes/fakes.h"
#include "gpureduce.h"
#include "request.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(GPR_COVERAGE)
enum { FRAMES_GROW = 16 }; /* by memory of sanitizers beside variables, and by -O0 */
#else
enum { FRAMES_GROW = 1 };
#endif

enum {
    STACK_BYTES = 64 * 1024 * FRAMES_GROW, /* with what threads and the C library keep in it */
    PAGE_BYTES = 4096,
    UNTOUCHED = 0xa5,
    DATA_BYTES = 6 << 20,
    RESULT_BYTES = 1 << 18,
    LARGE = 90000,
    DRAWN = 400
};

/* ---------------------------------------------------------------- a small stack --------------- */

typedef gpr_status (*call)(void *argument);

typedef struct stack_run {
    call work;
    void *argument;
    gpr_status status;
    uintptr_t begin; /* where the thread's own frame is */
} stack_run;

static unsigned char *stack;     /* with a page below that nothing may touch */
static uintptr_t most;           /* bytes that any call took */
static const char *most_of = ""; /* its way */

static void make_stack(void)
{
    char *pages = mmap(NULL, PAGE_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    REQUIRE(pages != MAP_FAILED && mprotect(pages, PAGE_BYTES, PROT_NONE) == 0);
    stack = (unsigned char *)pages + PAGE_BYTES;
}

static void *start(void *argument)
{
    stack_run *run = argument;

    run->begin = (uintptr_t)__builtin_frame_address(0);
    run->status = run->work(run->argument);
    return NULL;
}

/* Runs the call on the small stack, and notes how much of that it took. */
static gpr_status on_small_stack(const char *way, call work, void *argument)
{
    stack_run run = {.work = work, .argument = argument};
    pthread_attr_t attributes;
    pthread_t thread;
    size_t untouched = 0;

    memset(stack, UNTOUCHED, STACK_BYTES);
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0);
    REQUIRE(pthread_create(&thread, &attributes, start, &run) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    (void)pthread_attr_destroy(&attributes);
    while (stack[untouched] == UNTOUCHED) untouched++;
    const uintptr_t taken = run.begin - (uintptr_t)(stack + untouched);
    if (taken > most) {
        most = taken;
        most_of = way;
    }
    CHECK(taken <= (uintptr_t)GPR_STACK_BYTES * FRAMES_GROW, "%s took %zu bytes of stack", way,
          (size_t)taken);
    return run.status;
}

/* ---------------------------------------------------------------- reductions ------------------ */

static unsigned char *data, *mask, *results[2], *device_data;

/* A way that elements lie in memory, of as many rows by elements. */
typedef struct layout {
    const char *name;
    int64_t rows, n;
    int crosswise, gaps, reversed, masked, swapped, skip_nan, repeats;
} layout;

static const layout layouts[] = {
    {.name = "one row", .rows = 1, .n = 5000},
    {.name = "one long row", .rows = 1, .n = LARGE * 3},
    {.name = "one row with gaps", .rows = 1, .n = 5000, .gaps = 1},
    {.name = "a long row with gaps", .rows = 1, .n = LARGE, .gaps = 1},
    {.name = "a reversed row", .rows = 1, .n = 3000, .reversed = 1},
    {.name = "a swapped row", .rows = 1, .n = 3000, .swapped = 1},
    {.name = "a masked row", .rows = 1, .n = 3000, .masked = 1},
    {.name = "a row without NaN", .rows = 1, .n = 3000, .skip_nan = 1},
    {.name = "a row of one element", .rows = 3, .n = 2000, .repeats = 1},
    {.name = "rows of 3", .rows = 2000, .n = 3},
    {.name = "rows of 100", .rows = 70, .n = 100},
    {.name = "many rows of 100", .rows = 2500, .n = 100},
    {.name = "rows of 100 with gaps", .rows = 70, .n = 100, .gaps = 1},
    {.name = "masked rows of 100", .rows = 70, .n = 100, .masked = 1},
    {.name = "rows of 100 without NaN", .rows = 70, .n = 100, .skip_nan = 1},
    {.name = "columns of 4", .rows = 900, .n = 4, .crosswise = 1},
    {.name = "columns of 200", .rows = 40, .n = 200, .crosswise = 1},
    {.name = "columns of 5000", .rows = 50, .n = 5000, .crosswise = 1},
    {.name = "narrow columns", .rows = 3, .n = 5000, .crosswise = 1},
    {.name = "wide columns", .rows = 1500, .n = 150, .crosswise = 1},
    {.name = "masked columns", .rows = 40, .n = 200, .crosswise = 1, .masked = 1},
    {.name = "swapped columns", .rows = 40, .n = 200, .crosswise = 1, .swapped = 1},
    {.name = "columns without NaN", .rows = 40, .n = 200, .crosswise = 1, .skip_nan = 1},
    {.name = "columns with gaps", .rows = 40, .n = 200, .crosswise = 1, .gaps = 1},
    {.name = "no elements", .rows = 20, .n = 0},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

/* A request and the memory that it points to. */
typedef struct reduction {
    gpr_request request;
    int64_t shape[2], strides[2], mask_strides[2];
} reduction;

static void make_reduction(gpr_operator op, gpr_dtype dtype, const layout *how, reduction *made)
{
    const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype), step = bytes * (how->gaps ? 2 : 1);
    const int64_t along = how->repeats     ? 0
                          : how->crosswise ? step * how->rows
                                           : step,
                  across = how->crosswise ? step : step * how->n;

    *made = (reduction){.request = sums_of(dtype, 2, made->shape, data, NULL),
                        .shape = {how->rows, how->n},
                        .strides = {across, how->reversed ? -along : along},
                        .mask_strides = {how->n, 1}};
    made->request.op = op;
    made->request.strides = made->strides;
    if (how->reversed) made->request.data = data + along * (how->n - 1);
    made->request.mask = how->masked ? mask : NULL;
    made->request.mask_strides = made->mask_strides;
    made->request.byteswapped = how->swapped;
    made->request.skip_nan = how->skip_nan;
}

static gpr_status reduce(void *request)
{
    return gpr_reduce(request);
}

/* The same request on both stacks. */
static void check_request(const char *way, gpr_request *request)
{
    gpr_status status[2];

    memset(results[0], 0, RESULT_BYTES);
    memset(results[1], 0, RESULT_BYTES);
    request->result = results[0];
    status[0] = gpr_reduce(request);
    request->result = results[1];
    status[1] = on_small_stack(way, reduce, request);
    CHECK(status[0] == status[1] && memcmp(results[0], results[1], RESULT_BYTES) == 0,
          "%s, %s of %s: %d and %d", way, gpr_operator_name(request->op),
          gpr_dtype_name(request->dtype), (int)status[0], (int)status[1]);
}

static void test_the_cpu(void)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};

    for (size_t isa = 0; isa < sizeof isas / sizeof isas[0]; isa++) {
        if (gpr_set_cpu_isa(isas[isa]) != GPR_OK) continue;
        for (int op = 0; op < GPR_OP_COUNT; op++) {
            for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++) {
                const layout *how = &layouts[check_between(0, LAYOUTS - 1)];
                reduction made;

                /* a few runs have each layout with each operator and each dtype */
                make_reduction((gpr_operator)op, (gpr_dtype)dtype, how, &made);
                made.request.device = GPR_DEVICE_CPU;
                if (check_between(0, 1)) (void)gpr_find_kernel("fast", &made.request.kernel);
                check_request(how->name, &made.request);
            }
        }
    }
    (void)gpr_set_cpu_isa(NULL);
    for (int i = 0; i < LAYOUTS; i++) {
        for (int op = 0; op < GPR_OP_COUNT; op++) {
            reduction made;

            make_reduction((gpr_operator)op, (gpr_dtype)check_between(0, GPR_DTYPE_COUNT - 1),
                           &layouts[i], &made);
            made.request.device = GPR_DEVICE_CPU;
            check_request(layouts[i].name, &made.request);
        }
    }
}

/* Elements that are converted first, for which there are other loops. */
static void test_conversions(void)
{
    for (int k = 0; k < DRAWN; k++) {
        const layout *how = &layouts[check_between(0, LAYOUTS - 1)];
        reduction made;

        make_reduction((gpr_operator)check_between(0, GPR_OP_COUNT - 1),
                       (gpr_dtype)check_between(0, GPR_DTYPE_COUNT - 1), how, &made);
        made.request.device = GPR_DEVICE_CPU;
        made.request.compute = (gpr_dtype)check_between(0, GPR_DTYPE_COUNT - 1);
        check_request(how->name, &made.request);
    }
}

/* Host arrays, copied to the fake device whole or by chunks, and arrays that are there. */
static void test_the_device(void)
{
    for (int k = 0; k < DRAWN; k++) {
        static const char *const kernels[] = {"auto", "fast", "exact", "sequential", "last_block"};
        const layout *how = &layouts[check_between(0, LAYOUTS - 1)];
        reduction made;

        make_reduction((gpr_operator)check_between(0, GPR_OP_COUNT - 1),
                       (gpr_dtype)check_between(0, GPR_DTYPE_COUNT - 1), how, &made);
        (void)gpr_find_kernel(kernels[check_between(0, 4)], &made.request.kernel);
        if (check_between(0, 2) == 0 && !how->masked && !how->reversed) {
            made.request.data = device_data;
            made.request.on_device = 1;
            check_request("an array on the device", &made.request);
        } else {
            check_request("a host array to the device", &made.request);
        }
    }
}

/* ---------------------------------------------------------------- the other calls ------------- */

static gpr_status multiply(void *request)
{
    return gpr_dot(request);
}

static void test_dot(void)
{
    for (int k = 0; k < DRAWN; k++) {
        const gpr_dtype a = (gpr_dtype)check_between(0, GPR_DTYPE_COUNT - 1), b = a;
        const int64_t bytes = (int64_t)gpr_dtype_bytes(a) * check_between(1, 2);
        gpr_status status[2];
        gpr_dot_request request = {.a = {.dtype = a, .data = data, .stride = bytes},
                                   .b = {.dtype = b, .data = data, .stride = bytes},
                                   .factor = a,
                                   .compute = GPR_DTYPE_DEFAULT,
                                   .n = (uint64_t)check_between(0, 1) ? 300 : LARGE,
                                   .kernel = -1,
                                   .device = (int)check_between(0, 1) ? 0 : GPR_DEVICE_CPU};

        memset(results[0], 0, RESULT_BYTES);
        memset(results[1], 0, RESULT_BYTES);
        request.result = results[0];
        status[0] = gpr_dot(&request);
        request.result = results[1];
        status[1] = on_small_stack("a dot product", multiply, &request);
        CHECK(status[0] == status[1] && memcmp(results[0], results[1], sizeof(double) * 2) == 0,
              "dot of %s: %d and %d", gpr_dtype_name(a), (int)status[0], (int)status[1]);
    }
}

/* All that is done with a state of a dtype. */
static gpr_status use_state(void *argument)
{
    reduction *made = argument;
    const gpr_dtype dtype = made->request.dtype;
    gpr_exact *sum = NULL, *other = NULL;
    unsigned char *bytes = malloc(gpr_exact_bytes(dtype));
    gpr_status status = GPR_OK;

    GPR_TRY(bytes != NULL ? GPR_OK : GPR_ERROR_MEMORY);
    GPR_TRY(gpr_exact_create(dtype, &sum));
    GPR_TRY(gpr_exact_update(sum, &made->request));
    GPR_TRY(gpr_exact_update_array(sum, data, 1000));
    gpr_exact_store(sum, bytes);
    GPR_TRY(gpr_exact_load(bytes, gpr_exact_bytes(dtype), &other));
    GPR_TRY(gpr_exact_merge(sum, other));
    GPR_TRY(gpr_exact_result(sum, GPR_DTYPE_DEFAULT, made->request.result));
    GPR_TRY(gpr_exact_mean(sum, GPR_DTYPE_DEFAULT, (char *)made->request.result + 16));
done:
    gpr_exact_destroy(other);
    gpr_exact_destroy(sum);
    free(bytes);
    return status;
}

static void test_states(void)
{
    for (int i = 0; i < LAYOUTS; i++) {
        for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++) {
            gpr_status status[2];
            reduction made;

            if (layouts[i].masked || gpr_exact_bytes((gpr_dtype)dtype) == 0) continue;
            make_reduction(GPR_OP_SUM, (gpr_dtype)dtype, &layouts[i], &made);
            made.request.device = GPR_DEVICE_CPU;
            memset(results[0], 0, RESULT_BYTES);
            memset(results[1], 0, RESULT_BYTES);
            made.request.result = results[0];
            status[0] = use_state(&made);
            made.request.result = results[1];
            status[1] = on_small_stack("an exact state", use_state, &made);
            CHECK(status[0] == status[1] && memcmp(results[0], results[1], 32) == 0,
                  "%s of %s: %d and %d", layouts[i].name, gpr_dtype_name((gpr_dtype)dtype),
                  (int)status[0], (int)status[1]);
        }
    }
}

static gpr_status look_around(void *unused)
{
    gpr_device_info device;
    gpr_cache_info cache;
    int count = 0, driver = 0, nvrtc = 0;
    uint64_t bytes = 0;
    gpr_status status = GPR_OK;

    (void)unused;
    GPR_TRY(gpr_device_count(&count));
    GPR_TRY(gpr_device_info_at(0, &device));
    gpr_cuda_versions(&driver, &nvrtc);
    GPR_TRY(gpr_cache_get_info(&cache));
    GPR_TRY(gpr_compile_program(0, GPR_OP_SUM, GPR_FLOAT32, GPR_DTYPE_DEFAULT, 0, -1, 80, &bytes));
    GPR_TRY(
        gpr_compile_dot(GPR_FLOAT32, GPR_FLOAT32, GPR_FLOAT32, GPR_DTYPE_DEFAULT, 0, 80, &bytes));
    for (int i = 0; i < gpr_kernel_count(); i++) (void)gpr_kernel_available(i, 0);
    GPR_TRY(gpr_cache_clear(1));
done:
    return status;
}

static void test_the_rest(void)
{
    CHECK(on_small_stack("looking around", look_around, NULL) == GPR_OK, "%s",
          gpr_last_error()->message);
}

int main(void)
{
    check_begin();
    load_fakes();
    make_stack();
    data = malloc(DATA_BYTES);
    mask = malloc(DATA_BYTES);
    results[0] = malloc(RESULT_BYTES);
    results[1] = malloc(RESULT_BYTES);
    REQUIRE(data != NULL && mask != NULL && results[0] != NULL && results[1] != NULL);
    for (size_t i = 0; i < DATA_BYTES / 8; i++) {
        const double value = ldexp((double)(int64_t)check_random(), -32);
        memcpy(data + 8 * i, &value, sizeof value);
    }
    for (size_t i = 0; i < DATA_BYTES; i++) mask[i] = check_random() % 2;
    REQUIRE(gpr_alloc_device(0, DATA_BYTES, (void **)&device_data) == GPR_OK);
    REQUIRE(gpr_upload(0, device_data, data, DATA_BYTES) == GPR_OK);
    test_the_cpu();
    test_conversions();
    test_the_device();
    test_dot();
    test_states();
    test_the_rest();
    (void)gpr_free_device(0, device_data);
    printf("at most %zu bytes of stack: %s\n", (size_t)most, most_of);
    free(data);
    free(mask);
    free(results[0]);
    free(results[1]);
    (void)munmap(stack - PAGE_BYTES, PAGE_BYTES + STACK_BYTES);
    return check_end();
}
