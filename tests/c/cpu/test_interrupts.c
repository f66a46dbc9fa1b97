/* Reductions that would take hours: they are interrupted, or read repeated elements once. The test
 * counts calls of the interrupt callback, not seconds: a loop without such calls would not end. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "gpureduce.h"
#include "request.h"

enum { BIT_PER_ROW = 40, FEW_ROWS = 70, MANY_ROWS = 1 << 20 };
enum { WINDOW_AXES = 4, WINDOW = 1 << BIT_PER_ROW / WINDOW_AXES, MOST_BYTES = 16 };

/* A reduction that reads every repeated element calls the callback for hours before it ends; one
 * that reads them once calls it a few times on a busy machine, or never. */
enum { PATIENCE = 1000 };

static int asked, patience;

static int stop_in_the_end(void *unused)
{
    (void)unused;
    return asked++ >= patience;
}

static union {
    uint64_t words[2 * MANY_ROWS];
    char bytes[sizeof(uint64_t) * 2 * MANY_ROWS];
} results;
/* an element, and its neighbours */
static _Alignas(MOST_BYTES) char element[(WINDOW_AXES * WINDOW + FEW_ROWS) * MOST_BYTES];
static uint8_t marks[WINDOW_AXES * WINDOW + FEW_ROWS] = {1};

/* Rows of one element that comes again and again; neighbours in memory, or all the same one. */
static gpr_status reduce_repeats(gpr_operator op, gpr_dtype dtype, int64_t rows, int is_masked,
                                 const char *kernel)
{
    const int64_t shape[2] = {rows, INT64_C(1) << BIT_PER_ROW};
    const int64_t strides[2] = {rows <= FEW_ROWS ? (int64_t)gpr_dtype_bytes(dtype) : 0, 0};
    const int64_t mask_strides[2] = {1, 0};
    gpr_request request = sums_of(dtype, 2, shape, element, &results);

    request.op = op;
    request.strides = strides;
    request.device = GPR_DEVICE_CPU;
    request.interrupted = stop_in_the_end;
    if (is_masked) {
        request.mask = marks;
        request.mask_strides = mask_strides;
    }
    (void)gpr_find_kernel(kernel, &request.kernel);
    asked = 0;
    return gpr_reduce(&request);
}

/* Rows of 2^40 elements in windows that overlap, so that they are few in memory. */
static gpr_status reduce_windows(gpr_operator op, gpr_dtype dtype, int64_t rows, int is_masked,
                                 const char *kernel)
{
    int64_t shape[1 + WINDOW_AXES] = {rows}, strides[1 + WINDOW_AXES],
                      mask_strides[1 + WINDOW_AXES];
    gpr_request request = sums_of(dtype, 1 + WINDOW_AXES, shape, element, &results);

    for (int i = 0; i <= WINDOW_AXES; i++) {
        if (i > 0) shape[i] = WINDOW;
        strides[i] = (int64_t)gpr_dtype_bytes(dtype);
        mask_strides[i] = 1;
    }
    request.op = op;
    request.reduced = WINDOW_AXES;
    request.strides = strides;
    request.device = GPR_DEVICE_CPU;
    request.interrupted = stop_in_the_end;
    if (is_masked) {
        request.mask = marks;
        request.mask_strides = mask_strides;
    }
    (void)gpr_find_kernel(kernel, &request.kernel);
    asked = 0;
    return gpr_reduce(&request);
}

/* Rounding errors of products of floats would be raised to a power. */
static int reads_repeats_once(gpr_operator op, gpr_dtype dtype)
{
    const gpr_dtype real = gpr_real_dtype(dtype);

    return op != GPR_OP_PROD || (gpr_is_inexact(real) == 0);
}

/* Calls with a random number of rows, a mask or none, and one of two kernels. */
static void test_every_operator(void)
{
    static const char *const kernels[] = {"auto", "fast"};

    for (int i = 0; i < GPR_OP_COUNT * GPR_DTYPE_COUNT; i++) {
        const gpr_operator op = (gpr_operator)(i / GPR_DTYPE_COUNT);
        const gpr_dtype dtype = (gpr_dtype)(i % GPR_DTYPE_COUNT);
        const int64_t rows = check_between(0, 1) ? 1 : FEW_ROWS;
        const int takes_mask = op != GPR_OP_ARGMIN && op != GPR_OP_ARGMAX;
        const int is_masked = takes_mask && check_between(0, 1);
        const char *kernel = kernels[check_between(0, 1)];
        const int is_once = reads_repeats_once(op, dtype);
        gpr_status status;

        patience = is_once ? PATIENCE : 0;
        status = reduce_repeats(op, dtype, rows, is_masked, kernel);
        if (status == GPR_ERROR_TYPE) continue;
        if (is_once)
            CHECK(status == GPR_OK, "%s of %s: %s", gpr_operator_name(op), gpr_dtype_name(dtype),
                  gpr_last_error()->message);
        else
            CHECK(status == GPR_ERROR_INTERRUPTED && asked == 1, "%s of %s: %d after %d questions",
                  gpr_operator_name(op), gpr_dtype_name(dtype), (int)status, asked);
        patience = 0;
        status = reduce_windows(op, dtype, rows, is_masked, kernel);
        /* the first elements may decide; and so many partial results may find no memory */
        CHECK((status == GPR_ERROR_INTERRUPTED && asked == 1) || status == GPR_ERROR_MEMORY ||
                  status == GPR_OK,
              "windows: %s of %s: %d after %d questions", gpr_operator_name(op),
              gpr_dtype_name(dtype), (int)status, asked);
    }
}

/* Results of no elements, and results with gaps: as many as memory holds. */
static void test_many_results(void)
{
    const int64_t shape[2] = {MANY_ROWS, 0}, one[2] = {MANY_ROWS, 1}, strides[2] = {0, 0},
                  result_strides[1] = {16};
    gpr_request request = sums_of(GPR_INT64, 2, shape, element, &results);

    request.device = GPR_DEVICE_CPU;
    request.interrupted = stop_in_the_end;
    asked = patience = 0;
    CHECK(gpr_reduce(&request) == GPR_ERROR_INTERRUPTED && asked == 1, "nothing: %d", asked);
    request.shape = one;
    request.strides = strides;
    request.result_strides = result_strides;
    asked = 0;
    CHECK(gpr_reduce(&request) == GPR_ERROR_INTERRUPTED && asked == 1, "gaps: %d", asked);
    CHECK(gpr_last_error()->status == GPR_ERROR_INTERRUPTED, "which error");
}

/* Exponentials of the 2^40 elements of windows that overlap. */
static void test_sums_of_exponentials(void)
{
    int64_t shape[WINDOW_AXES], strides[WINDOW_AXES];
    gpr_request request = sums_of(GPR_INT8, WINDOW_AXES, shape, element, &results);

    for (int i = 0; i < WINDOW_AXES; i++) {
        shape[i] = WINDOW;
        strides[i] = 1;
    }
    request.reduced = WINDOW_AXES;
    request.strides = strides;
    request.device = GPR_DEVICE_CPU;
    request.interrupted = stop_in_the_end;
    asked = patience = 0;
    const gpr_status status = gpr_logsumexp(&request);
    CHECK((status == GPR_ERROR_INTERRUPTED && asked == 1) || status == GPR_ERROR_MEMORY,
          "exponentials: %d after %d questions", (int)status, asked);
}

/* ---------------------------------------------------------------- every question ------------- */

/* The backend asks after some milliseconds. Where time flies it asks as often as it may. */
static atomic_int time_flies; /* workers read the clock, too */
static atomic_int seconds;

/* WRAP(function, ...): what the linker puts between the library and libc. */
#define WRAPS(WRAP) \
    WRAP(FLYING, clock_gettime, int, (clockid_t clock, struct timespec * time), (clock, time))

#define WRAP(kind, name, result, parameters, arguments) \
    result __real_##name parameters;                    \
    result __wrap_##name parameters;                    \
    result __wrap_##name parameters                     \
    {                                                   \
        const result status = __real_##name arguments;  \
        if (time_flies) time->tv_sec += ++seconds;      \
        return status;                                  \
    }
WRAPS(WRAP)
#undef WRAP

static gpr_status reduce_request(const void *request)
{
    return gpr_reduce(request);
}

static gpr_status sum_exponentials(const void *request)
{
    return gpr_logsumexp(request);
}

static gpr_status sum_products(const void *request)
{
    return gpr_dot(request);
}

/* What a call finds in variables that it does not set. */
static __attribute__((noinline)) void soil_the_stack(void)
{
    volatile char dirt[1 << 15];

    for (size_t i = 0; i < sizeof dirt; i++) dirt[i] = (char)0xa5;
}

/* Answers each question of a call with yes in turn: it ends, and with no further question. Returns
 * how many there are. */
static int expect_each_answer_to_end_it(gpr_status (*reduce)(const void *), const void *request,
                                        const char *what)
{
    enum { MOST_QUESTIONS = 5000 };
    gpr_status status = GPR_ERROR_INTERRUPTED;

    time_flies = 1;
    for (patience = 0; status == GPR_ERROR_INTERRUPTED && patience < MOST_QUESTIONS; patience++) {
        asked = 0;
        soil_the_stack();
        status = reduce(request);
        if (status == GPR_ERROR_INTERRUPTED)
            CHECK(asked == patience + 1, "%s: %d questions after yes to number %d", what,
                  asked - patience - 1, patience);
    }
    time_flies = 0;
    CHECK(status == GPR_OK && asked == patience - 1, "%s: %d after %d questions", what, (int)status,
          asked);
    return asked;
}

/* One thread, so that there are as many questions each time. */
static void test_no_answer_is_overlooked(void)
{
    enum { ROWS = 160, COUNT = 1200, ELEMENTS = ROWS * COUNT };
    static const gpr_dtype dtypes[] = {GPR_INT8, GPR_INT64, GPR_FLOAT16, GPR_FLOAT32, GPR_FLOAT64};
    static const int64_t shapes[][2] = {{1, ELEMENTS}, {3, ELEMENTS / 3}, {ROWS, COUNT}};
    double *values = malloc(ELEMENTS * sizeof *values);
    uint8_t *mask = calloc(ELEMENTS, 1);
    gpr_limits limits;

    REQUIRE(values != NULL && mask != NULL);
    gpr_get_limits(&limits);
    const uint32_t threads = limits.cpu_threads;
    limits.cpu_threads = 1;
    REQUIRE(gpr_set_limits(&limits) == GPR_OK);
    for (int i = 0; i < ELEMENTS; i++) mask[i] = (uint8_t)check_between(0, 3);
    for (int i = 0; i < 2 * GPR_OP_COUNT; i++) {
        const gpr_operator op = (gpr_operator)(i % GPR_OP_COUNT);
        const gpr_dtype dtype = dtypes[check_between(0, sizeof dtypes / sizeof dtypes[0] - 1)];
        const int64_t *shape = shapes[check_between(0, 2)], bytes = (int64_t)gpr_dtype_bytes(dtype),
                      columns[2] = {bytes, shape[0] * bytes}, mask_strides[2] = {shape[1], 1};
        gpr_request request = sums_of(dtype, 2, shape, values, &results);

        if (gpr_result_dtype(op, dtype, GPR_DTYPE_DEFAULT) == GPR_DTYPE_DEFAULT) continue;
        memset(values, 1, ELEMENTS * sizeof *values); /* no element decides a row */
        request.op = op;
        request.device = GPR_DEVICE_CPU;
        request.interrupted = stop_in_the_end;
        if (check_between(0, 1)) request.strides = columns;
        if (op != GPR_OP_ARGMIN && op != GPR_OP_ARGMAX && check_between(0, 2) == 0) {
            request.mask = mask;
            request.mask_strides = mask_strides;
        }
        (void)expect_each_answer_to_end_it(reduce_request, &request, gpr_operator_name(op));
    }
    for (int i = 0; i < 3; i++) {
        gpr_request request = sums_of(GPR_FLOAT64, 2, shapes[i], values, &results);

        request.op = GPR_OP_VAR;
        request.device = GPR_DEVICE_CPU;
        request.interrupted = stop_in_the_end;
        for (int k = 0; k < ELEMENTS; k++) values[k] = 1;
        CHECK(expect_each_answer_to_end_it(sum_exponentials, &request, "exponentials") > 1, "none");
        /* Squares overflow, and rows that have a large element are computed again. */
        for (int k = 0; k < ELEMENTS; k++) values[k] = check_between(0, 9) == 0 ? 1e200 : 1;
        CHECK(expect_each_answer_to_end_it(reduce_request, &request, "overflowing variances") > 1,
              "none");
    }
    limits.cpu_threads = threads;
    REQUIRE(gpr_set_limits(&limits) == GPR_OK);
    free(values);
    free(mask);
}

/* Norms of rows of one number, which are magnitudes, and of longer rows. */
static void test_no_answer_of_a_norm_is_overlooked(void)
{
    static const int64_t shapes[][2] = {{MANY_ROWS / 2, 1}, {MANY_ROWS / 8, 4}, {1, MANY_ROWS / 2}};
    static const gpr_dtype dtypes[] = {GPR_INT16, GPR_FLOAT32, GPR_FLOAT64};
    double *values = calloc(MANY_ROWS / 2, sizeof *values);
    gpr_limits limits;

    REQUIRE(values != NULL);
    gpr_get_limits(&limits);
    const uint32_t threads = limits.cpu_threads;
    limits.cpu_threads = 1;
    REQUIRE(gpr_set_limits(&limits) == GPR_OK);
    for (int i = 0; i < 3 * 3 * 2; i++) {
        const gpr_dtype dtype = dtypes[i % 3];
        const int64_t *shape = shapes[i / 3 % 3], bytes = (int64_t)gpr_dtype_bytes(dtype),
                      strides[] = {shape[1] * bytes, bytes};
        const int is_root = i / 9;
        const gpr_dot_request request = {
            .a = {.dtype = dtype, .data = values, .strides = strides},
            .b = {.dtype = dtype, .data = values, .strides = strides},
            .factor = dtype == GPR_INT16 ? GPR_FLOAT64 : dtype,
            .compute = GPR_DTYPE_DEFAULT,
            .kernel = -1,
            .device = GPR_DEVICE_CPU,
            .result = &results,
            .interrupted = stop_in_the_end,
            .ndim = 2,
            .reduced = 1,
            .shape = shape,
            .products = is_root ? GPR_SQUARES : GPR_MAGNITUDES,
            .root = is_root,
        };

        CHECK(expect_each_answer_to_end_it(sum_products, &request, "norms") > 1,
              "%lld rows of %s: none", (long long)shape[0], gpr_dtype_name(dtype));
    }
    limits.cpu_threads = threads;
    REQUIRE(gpr_set_limits(&limits) == GPR_OK);
    free(values);
}

int main(void)
{
    check_begin();
    for (size_t i = 0; i < sizeof element; i++) element[i] = (char)(check_random() % 2);
    for (size_t i = 0; i < sizeof marks; i++) marks[i] |= (uint8_t)(check_random() % 2);
    test_every_operator();
    test_many_results();
    test_sums_of_exponentials();
    test_no_answer_is_overlooked();
    test_no_answer_of_a_norm_is_overlooked();
    return check_end();
}
