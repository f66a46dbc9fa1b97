/* Device arrays over a driver that really is asynchronous: results that stay on the device, calls
 * in flight on several streams, graphs, memory and streams that are not what they are said to
 * be. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fakes/fakes.h"
#include "gpureduce.h"

enum { COUNT = 200000, STREAMS = 4, SLOW_US = 200 };

static int32_t values[COUNT];
static int64_t shape_of_all[1] = {COUNT};

static int64_t sum_of(const int32_t *from, uint64_t count)
{
    int64_t sum = 0;

    for (uint64_t i = 0; i < count; i++) sum += from[i];
    return sum;
}

static void *upload(const void *from, uint64_t bytes)
{
    void *data = NULL;

    REQUIRE(gpr_alloc_device(0, bytes, &data) == GPR_OK);
    REQUIRE(gpr_upload(0, data, from, bytes) == GPR_OK);
    return data;
}

/* The sum of a device array's int32, kept on the device. */
static gpr_request sum_request(const void *data, void *result, void *stream)
{
    return (gpr_request){.op = GPR_OP_SUM,
                         .dtype = GPR_INT32,
                         .compute = GPR_DTYPE_DEFAULT,
                         .ndim = 1,
                         .reduced = 1,
                         .shape = shape_of_all,
                         .data = data,
                         .on_device = 1,
                         .kernel = -1,
                         .device = 0,
                         .stream = stream,
                         .result = result,
                         .result_on_device = 1};
}

static int64_t fetch(const void *result)
{
    int64_t value = 0;

    REQUIRE(gpr_download(0, NULL, &value, result, sizeof value) == GPR_OK);
    return value;
}

static void expect_no_violation(void)
{
    CHECK(fake.violation()[0] == '\0', "%s", fake.violation());
}

/* ---------------------------------------------------------------- queued work ---------------- */

/* The call is back before the device has begun. */
static void test_calls_do_not_wait_for_results_on_the_device(void)
{
    void *data = upload(values, sizeof values), *result = upload(&(int64_t){-1}, sizeof(int64_t));
    void *stream = fake.make_stream(0);
    gpr_request request = sum_request(data, result, stream);

    /* compiles, allocates */
    CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
    fake.wait();
    fake.set_delays((unsigned)check_random(), 20000);
    int busy = 0;
    for (int i = 0; i < 20; i++) {
        CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
        busy += fake.busy() > 0;
    }
    CHECK(busy > 10, "the stream was busy after %d of 20 calls", busy);
    fake.wait();
    fake.set_delays(1, 0);
    CHECK(fetch(result) == sum_of(values, COUNT), "%lld", (long long)fetch(result));
    fake.free_stream(stream);
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    expect_no_violation();
}

/* Partials of one stream are not another's: each sums another part of the array again and again. */
static void test_streams_in_flight_do_not_share_scratch(void)
{
    enum { PART = COUNT / STREAMS, ROUNDS = 30 };
    static int64_t part_shape[1] = {PART};
    void *streams[STREAMS + 2], *results[STREAMS + 2];
    void *data = upload(values, sizeof values);
    const int64_t nothing = -1;

    for (int s = 0; s < STREAMS + 2; s++) {
        /* CUDA's own handles too: the legacy default stream and this thread's. */
        streams[s] = s < STREAMS ? fake.make_stream(0) : (void *)(uintptr_t)(s - STREAMS + 1);
        results[s] = upload(&nothing, sizeof nothing);
    }
    fake.set_delays((unsigned)check_random(), SLOW_US);
    for (int i = 0; i < ROUNDS; i++) {
        for (int s = 0; s < STREAMS + 2; s++) {
            const int32_t *part = (const int32_t *)data + (uint64_t)(s % STREAMS) * PART;
            gpr_request request = sum_request(part, results[s], streams[s]);
            request.shape = part_shape;
            request.grid_size = 7;
            CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
        }
    }
    fake.wait();
    fake.set_delays(1, 0);
    for (int s = 0; s < STREAMS + 2; s++) {
        const int64_t want = sum_of(values + (s % STREAMS) * PART, PART), got = fetch(results[s]);
        CHECK(got == want, "stream %d: %lld, not %lld", s, (long long)got, (long long)want);
        REQUIRE(gpr_free_device(0, results[s]) == GPR_OK);
        if (s < STREAMS) fake.free_stream(streams[s]);
    }
    REQUIRE(gpr_free_device(0, data) == GPR_OK);
    expect_no_violation();
}

/* However many streams come and go, scratch comes from those that have ended. */
static void test_scratch_of_streams_that_are_idle_is_taken_over(void)
{
    void *data = upload(values, sizeof values), *result = upload(values, sizeof(int64_t));
    int most = 0;

    for (int i = 0; i < 60; i++) {
        void *stream = fake.make_stream(0);
        gpr_request request = sum_request(data, result, stream);
        CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
        fake.wait();
        fake.free_stream(stream);
        if (fake.live("device") > most) most = fake.live("device");
    }
    CHECK(most < 20, "%d allocations for one stream at a time", most);
    CHECK(fetch(result) == sum_of(values, COUNT), "wrong sum");
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    expect_no_violation();
}

/* A small sum is one launch, and few calls of the driver. */
static void test_a_small_sum_takes_few_calls_of_the_driver(void)
{
    enum { FEW = 1000, TRIES = 5000 };
    static int64_t few_shape[1] = {FEW};
    void *data = upload(values, FEW * sizeof *values), *result = upload(values, sizeof(int64_t));
    void *stream = fake.make_stream(0);
    gpr_request request = sum_request(data, result, stream);
    int64_t sum = 0;

    request.shape = few_shape;
    CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
    unsigned calls = fake.calls(), launches = fake.launches();
    CHECK(gpr_reduce(&request) == GPR_OK && fake.launches() - launches == 1, "%u launches",
          fake.launches() - launches);
    /* Context in and out, the stream's context, what data and result are, the launch. */
    CHECK(fake.calls() - calls == 6, "%u calls", fake.calls() - calls);
    request.vouches_for_result = 1;
    calls = fake.calls();
    CHECK(gpr_reduce(&request) == GPR_OK && fake.calls() - calls == 5, "%u calls",
          fake.calls() - calls);
    fake.wait();
    CHECK(fetch(result) == sum_of(values, FEW), "%lld", (long long)fetch(result));
    request.vouches_for_result = 0;
    request.result = &sum;
    request.result_on_device = 0;
    CHECK(gpr_reduce(&request) == GPR_OK && sum == sum_of(values, FEW), "%lld", (long long)sum);
    /* No result to look up; instead whether the stream is captured. It is waited for only where
     * the result is late. */
    unsigned least = UINT32_MAX, most = 0;
    for (int i = 0; i < TRIES && least > 6; i++) {
        calls = fake.calls();
        launches = fake.launches();
        CHECK(gpr_reduce(&request) == GPR_OK && fake.launches() - launches == 1, "%u launches",
              fake.launches() - launches);
        const unsigned made = fake.calls() - calls;
        if (made < least) least = made;
        if (made > most) most = made;
    }
    CHECK(least == 6 && most <= 7, "%u to %u calls", least, most);
    fake.free_stream(stream);
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    expect_no_violation();
}

/* Older contents of pinned memory are never read as a call's result: with late results, and with
 * results that equal the pattern of memory without a result. */
static void test_results_are_taken_when_they_are_there(void)
{
    enum { MOST = 64, TIMES = 40, BYTE = 0x9d };
    static const gpr_dtype dtypes[] = {GPR_INT8,   GPR_UINT16,  GPR_INT32,
                                       GPR_UINT64, GPR_FLOAT32, GPR_COMPLEX128};
    unsigned char same[2 * MOST], found[MOST];
    void *data = NULL;

    memset(same, BYTE, sizeof same);
    data = upload(same, sizeof same);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        int64_t shape[2] = {0, 2};
        gpr_request request = sum_request(data, found, NULL);
        request.op = GPR_OP_MAX;
        request.dtype = dtypes[i];
        request.result_on_device = 0;
        request.ndim = 2;
        request.shape = shape;
        for (int64_t rows = 1; rows <= MOST / (int64_t)gpr_dtype_bytes(dtypes[i]); rows *= 4) {
            const size_t bytes = (size_t)rows * gpr_dtype_bytes(dtypes[i]);
            shape[0] = rows;
            memset(found, 0, sizeof found);
            CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
            CHECK(memcmp(found, same, bytes) == 0, "%s, %lld rows", gpr_dtype_name(dtypes[i]),
                  (long long)rows);
        }
    }
    /* Each result differs from the one before, that is still in the memory. */
    fake.set_delays((unsigned)check_random(), SLOW_US);
    for (int i = 0; i < TIMES; i++) {
        int64_t sum = 0, shape = 2 + i;
        int32_t some[TIMES + 2] = {0};
        void *numbers = NULL;
        for (int j = 0; j < shape; j++) some[j] = i * j + 1;
        numbers = upload(some, sizeof some);
        gpr_request request = sum_request(numbers, &sum, NULL);
        request.result_on_device = 0;
        request.shape = &shape;
        CHECK(gpr_reduce(&request) == GPR_OK && sum == sum_of(some, (uint64_t)shape), "%lld",
              (long long)sum);
        sum = 0;
        request.data = some;
        request.on_device = 0;
        CHECK(gpr_reduce(&request) == GPR_OK && sum == sum_of(some, (uint64_t)shape), "%lld",
              (long long)sum);
        /* The kernel may have yet to end: its program is unloaded all the same, and its memory
         * given back. */
        CHECK(gpr_cache_clear(1) == GPR_OK, "%s", gpr_last_error()->message);
        REQUIRE(gpr_free_device(0, numbers) == GPR_OK);
    }
    fake.set_delays(1, 0);
    REQUIRE(gpr_free_device(0, data) == GPR_OK);
    expect_no_violation();
}

/* ---------------------------------------------------------------- graphs --------------------- */

/* A graph has scratch of its own: it is launched repeatedly beside eager calls, and its scratch is
 * free when the graph is destroyed. */
static void test_graphs_have_scratch_of_their_own(void)
{
    const int64_t nothing = -1;
    void *data = upload(values, sizeof values), *eager = upload(&nothing, sizeof nothing);
    void *captured[2] = {upload(&nothing, sizeof nothing), upload(&nothing, sizeof nothing)};
    void *stream = fake.make_stream(0), *other = fake.make_stream(0);
    gpr_request request = sum_request(data, eager, stream);
    int live = 0;

    CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
    for (int round = 0; round < 4; round++) {
        fake.begin_capture(stream);
        for (int i = 0; i < 2; i++) {
            gpr_request call = sum_request(data, captured[i], stream);
            const int before = fake.busy();
            CHECK(gpr_reduce(&call) == GPR_OK, "%s", gpr_last_error()->message);
            CHECK(fake.busy() <= before, "a captured call ran");
        }
        int64_t sum = 0;
        gpr_request waiting = sum_request(data, &sum, stream);
        waiting.result_on_device = 0;
        CHECK(gpr_reduce(&waiting) == GPR_ERROR_VALUE &&
                  strstr(gpr_last_error()->message, "captured") != NULL,
              "%s", gpr_last_error()->message);
        void *graph = fake.end_capture(stream);
        fake.set_delays((unsigned)check_random(), SLOW_US);
        request.stream = stream;
        for (int i = 0; i < 10; i++) {
            CHECK(fake.launch_graph(graph, other) == 0, "launch");
            CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
        }
        fake.wait();
        fake.set_delays(1, 0);
        for (int i = 0; i < 2; i++)
            CHECK(fetch(captured[i]) == sum_of(values, COUNT), "round %d", round);
        CHECK(fetch(eager) == sum_of(values, COUNT), "round %d", round);
        fake.destroy_graph(graph);
        /* The second graph found what the first gave back. */
        if (round > 0)
            CHECK(fake.live("device") == live, "%d allocations, not %d", fake.live("device"), live);
        live = fake.live("device");
    }
    fake.free_stream(stream);
    fake.free_stream(other);
    for (int i = 0; i < 2; i++) REQUIRE(gpr_free_device(0, captured[i]) == GPR_OK);
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, eager) == GPR_OK);
    expect_no_violation();
}

/* Another call has ended the capture: there is no graph that scratch could belong to. */
static void test_a_capture_that_has_failed_is_an_error(void)
{
    const int64_t nothing = -1;
    void *data = upload(values, sizeof values), *result = upload(&nothing, sizeof nothing),
         *stream = fake.make_stream(0);
    gpr_request request = sum_request(data, result, stream);

    fake.begin_capture(stream);
    fake.break_capture(stream);
    CHECK(gpr_reduce(&request) == GPR_ERROR_VALUE, "a broken capture");
    CHECK(strstr(gpr_last_error()->message, "has failed already") != NULL, "%s",
          gpr_last_error()->message);
    fake.destroy_graph(fake.end_capture(stream));
    CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
    fake.wait();
    CHECK(fetch(result) == sum_of(values, COUNT), "%s", gpr_last_error()->message);
    fake.free_stream(stream);
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    expect_no_violation();
}

/* ---------------------------------------------------------------- products ------------------- */

/* Sums of no products are +0, in memory that held something else: of two arrays of one axis, along
 * axes, and of magnitudes. Products along axes need both arrays' addresses. */
static void test_sums_of_no_products_are_zero(void)
{
    enum { ROWS = 3 };
    const int64_t shape[2] = {ROWS, 0}, some[2] = {ROWS, 2}, steps[2] = {16, sizeof(double)};
    const double others[ROWS] = {1, 2, 3};
    double found[ROWS];
    void *data = upload(values, sizeof values), *result = upload(others, sizeof others);
    const gpr_factor factor = {
        .dtype = GPR_FLOAT64, .data = data, .stride = sizeof(double), .strides = steps};
    const gpr_dot_request plain = {.a = factor,
                                   .b = factor,
                                   .factor = GPR_FLOAT64,
                                   .compute = GPR_DTYPE_DEFAULT,
                                   .kernel = -1,
                                   .on_device = 1,
                                   .result = result,
                                   .result_on_device = 1};
    gpr_dot_request request = plain;

    for (int way = 0; way < 3; way++) {
        const int rows = way == 0 ? 1 : ROWS;
        if (way > 0) {
            request.ndim = 2;
            request.reduced = 1;
            request.shape = shape;
        }
        if (way == 2) request.products = GPR_MAGNITUDES;
        REQUIRE(gpr_upload(0, result, others, sizeof others) == GPR_OK);
        CHECK(gpr_dot(&request) == GPR_OK, "way %d: %s", way, gpr_last_error()->message);
        fake.wait();
        REQUIRE(gpr_download(0, NULL, found, result, sizeof found) == GPR_OK);
        for (int i = 0; i < ROWS; i++)
            CHECK(i < rows ? found[i] == 0 && !signbit(found[i]) : found[i] == others[i],
                  "way %d, result %d: %g", way, i, found[i]);
    }
    request = plain;
    request.ndim = 2;
    request.reduced = 1;
    request.shape = some;
    request.b.data = (const char *)data + 4;
    CHECK(gpr_dot(&request) == GPR_ERROR_VALUE, "a second array between its elements");
    CHECK(strstr(gpr_last_error()->message, "multiples of their size, 8 bytes") != NULL, "%s",
          gpr_last_error()->message);
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    expect_no_violation();
}

/* ---------------------------------------------------------------- errors --------------------- */

static void expect_refusal(const gpr_request *request, const char *words)
{
    const gpr_status status = gpr_reduce(request);

    CHECK(status == GPR_ERROR_VALUE, "status %d", (int)status);
    CHECK(strstr(gpr_last_error()->message, words) != NULL, "%s", gpr_last_error()->message);
}

/* The same with another value in one field, which is restored. */
#define EXPECT_REFUSAL_WITH(request, field, value, words) \
    do {                                                  \
        const __auto_type kept = (request)->field;        \
        (request)->field = (value);                       \
        expect_refusal(request, words);                   \
        (request)->field = kept;                          \
    } while (0)

static void test_memory_and_streams_of_somebody_else_are_refused(void)
{
    void *data = upload(values, sizeof values), *result = upload(values, sizeof(int64_t)),
         *elsewhere = NULL;
    void *pinned = NULL, *stream = NULL, *freed = NULL;
    gpr_request request = sum_request(data, result, NULL);
    static int64_t longer[1] = {COUNT + 1};
    const int64_t steps[1] = {4}, mask_steps[1] = {1};

    request.strides = steps;
    REQUIRE(gpr_alloc_device(1, sizeof values, &elsewhere) == GPR_OK &&
            gpr_alloc_pinned(4096, &pinned) == GPR_OK);
    stream = fake.make_stream(1);
    EXPECT_REFUSAL_WITH(&request, data, elsewhere,
                        "is memory of device \"cuda:1\", not of \"cuda:0\"");
    EXPECT_REFUSAL_WITH(&request, data, pinned, "the array at address");
    EXPECT_REFUSAL_WITH(&request, data, pinned, "is host memory");
    EXPECT_REFUSAL_WITH(&request, data, values, "not memory of a CUDA device");
    REQUIRE(gpr_alloc_device(0, 64, &freed) == GPR_OK && gpr_free_device(0, freed) == GPR_OK);
    EXPECT_REFUSAL_WITH(&request, data, freed, "it was freed");
    EXPECT_REFUSAL_WITH(&request, shape, longer, "more than is allocated");
    request.mask_strides = mask_steps;
    EXPECT_REFUSAL_WITH(&request, mask, pinned, "the mask at address");
    EXPECT_REFUSAL_WITH(&request, result, pinned, "the result at address");
    EXPECT_REFUSAL_WITH(&request, stream, stream, "is not a stream of device \"cuda:0\"");
    request.kernel = 0; /* naive_atomic */
    request.strides = (const int64_t[]){8};
    request.shape = (const int64_t[]){10};
    expect_refusal(&request, "whose rows follow each other");
    request.kernel = -1;
    CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
    fake.wait();
    fake.free_stream(stream);
    REQUIRE(gpr_free_device(1, elsewhere) == GPR_OK && gpr_free_pinned(pinned) == GPR_OK);
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    expect_no_violation();
}

/* ---------------------------------------------------------------- given means ---------------- */

enum { MEAN_ROWS = 60, MEAN_EACH = 40, MEAN_PLANES = 3 };

/* Mean squared distance of row `row` of `values` from `mean`. */
static double spread_of(int row, double mean)
{
    double squares = 0;

    for (int i = 0; i < MEAN_EACH; i++) {
        const double apart = values[row * MEAN_EACH + i] - mean;
        squares += apart * apart;
    }
    return squares / MEAN_EACH;
}

/* The variances of MEAN_PLANES planes of rows about given means. */
static gpr_request given_mean_request(const int64_t *shape, const void *data, void *result)
{
    gpr_request request = sum_request(data, result, NULL);

    request.op = GPR_OP_VAR;
    request.ndim = 3;
    request.shape = shape;
    request.has_given_mean = 1;
    request.mean_dtype = GPR_FLOAT32;
    return request;
}

static void expect_spreads(const gpr_request *request, const float *means, int64_t plane_step,
                           int64_t row_step)
{
    double found[MEAN_ROWS];

    CHECK(gpr_reduce(request) == GPR_OK, "%s", gpr_last_error()->message);
    REQUIRE(gpr_download(0, request->stream, found, request->result, sizeof found) == GPR_OK);
    for (int row = 0; row < MEAN_ROWS; row++) {
        const int each = MEAN_ROWS / MEAN_PLANES;
        const double want = spread_of(row, means[row / each * plane_step + row % each * row_step]);
        CHECK(fabs(found[row] - want) <= 1e-12 * want, "row %d: %g, not %g", row, found[row], want);
    }
}

static void test_variances_are_about_given_means(void)
{
    const int64_t each = MEAN_ROWS / MEAN_PLANES, shape[3] = {MEAN_PLANES, each, MEAN_EACH};
    const int64_t size = sizeof(float);
    float means[2 * MEAN_ROWS];
    double room[MEAN_ROWS] = {0};
    void *stream = fake.make_stream(0);

    for (int i = 0; i < 2 * MEAN_ROWS; i++) means[i] = (float)(1000 * i);
    void *data = upload(values, sizeof values), *result = upload(room, sizeof room), *given = NULL;
    REQUIRE(gpr_alloc_device(0, sizeof means, &given) == GPR_OK);
    gpr_request request = given_mean_request(shape, data, result);
    request.mean = given;
    request.stream = stream;
    /* In order behind the copy of the means; the host goes on. */
    REQUIRE(gpr_queue_upload(0, given, means, sizeof means, stream) == GPR_OK);
    REQUIRE(gpr_queue_upload(0, NULL, NULL, 0, stream) == GPR_OK);
    const int64_t dense[2] = {each * size, size}, apart[2] = {2 * each * size, 2 * size},
                  shared[2] = {size, 0};
    const int64_t backward[2] = {-each * size, -size}, none[2] = {0, 0};
    request.mean_strides = dense;
    expect_spreads(&request, means, each, 1);
    request.mean_strides = apart;
    expect_spreads(&request, means, 2 * each, 2);
    request.mean_strides = shared;
    expect_spreads(&request, means, 1, 0);
    request.mean = (const char *)given + (MEAN_ROWS - 1) * size;
    request.mean_strides = backward;
    expect_spreads(&request, means + MEAN_ROWS - 1, -each, -1);
    request.mean_strides = none;
    expect_spreads(&request, means + MEAN_ROWS - 1, 0, 0);
    request.mean = NULL;
    request.mean_strides = NULL;
    request.mean_value[0] = 3000;
    expect_spreads(&request, means + 3, 0, 0);
    request.mean = given;
    request.mean_strides = dense;
    REQUIRE(gpr_find_kernel("shfl_two_pass", &request.kernel) == GPR_OK);
    expect_spreads(&request, means, each, 1);
    fake.free_stream(stream);
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    REQUIRE(gpr_free_device(0, given) == GPR_OK);
    expect_no_violation();
}

/* Rows of extremes have an element more, of memory and of none; others are refused. */
static void test_extremes_begin_with_a_start(void)
{
    const int64_t shape[2] = {MEAN_ROWS, MEAN_EACH};
    const int32_t some = values[check_between(0, MEAN_ROWS * MEAN_EACH - 1)],
                  starts[] = {INT32_MIN, some, INT32_MAX};
    int32_t room[MEAN_ROWS] = {0}, found[MEAN_ROWS];
    void *data = upload(values, sizeof values), *result = upload(room, sizeof room);
    gpr_request request = sum_request(data, result, NULL);

    request.op = GPR_OP_MAX;
    request.ndim = 2;
    request.shape = shape;
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        request.start = &starts[i];
        CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
        REQUIRE(gpr_download(0, NULL, found, result, sizeof found) == GPR_OK);
        for (int row = 0; row < MEAN_ROWS; row++) {
            int32_t want = starts[i];
            for (int k = 0; k < MEAN_EACH; k++)
                want = values[row * MEAN_EACH + k] > want ? values[row * MEAN_EACH + k] : want;
            CHECK(found[row] == want, "row %d: %d, not %d", row, found[row], want);
        }
    }
    EXPECT_REFUSAL_WITH(&request, op, GPR_OP_SUM, "sum takes no start: min and max do");
    REQUIRE(gpr_find_kernel("last_block", &request.kernel) == GPR_OK);
    expect_refusal(&request, "kernel 'last_block' gives rows no start; 'fast' and 'auto' do");
    request.kernel = -1;
    request.on_device = request.result_on_device = 0;
    request.data = values;
    request.result = room;
    expect_refusal(&request, "rows of arrays in device memory only have a start");
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    expect_no_violation();
}

static void test_means_that_do_not_fit_are_refused(void)
{
    const int64_t each = MEAN_ROWS / MEAN_PLANES, shape[3] = {MEAN_PLANES, each, MEAN_EACH};
    const int64_t dense[2] = {each * 4, 4}, odd[2] = {each * 4, 2};
    float means[MEAN_ROWS] = {0};
    double room[MEAN_ROWS] = {0};
    void *data = upload(values, sizeof values), *result = upload(room, sizeof room);
    void *given = upload(means, sizeof means), *elsewhere = NULL, *stream = fake.make_stream(0);
    gpr_request request = given_mean_request(shape, data, result);

    REQUIRE(gpr_alloc_device(1, sizeof means, &elsewhere) == GPR_OK);
    request.mean = given;
    expect_refusal(&request, "means that are given need mean_strides");
    EXPECT_REFUSAL_WITH(&request, mean_strides, odd,
                        "addresses of given means are multiples of their size, 4 bytes");
    request.mean_strides = dense;
    EXPECT_REFUSAL_WITH(&request, mean, (const char *)given + 1,
                        "addresses of given means are multiples of their size, 4 bytes");
    EXPECT_REFUSAL_WITH(&request, mean, (const char *)given + 4, "the mean needs 240 bytes");
    EXPECT_REFUSAL_WITH(&request, mean, elsewhere, "the mean at address");
    EXPECT_REFUSAL_WITH(&request, mean, means, "not memory of a CUDA device");
    EXPECT_REFUSAL_WITH(&request, op, GPR_OP_SUM, "sum takes no mean");
    EXPECT_REFUSAL_WITH(&request, mean_dtype, GPR_DTYPE_COUNT, "there is no dtype");
    REQUIRE(gpr_find_kernel("exact", &request.kernel) == GPR_OK);
    expect_refusal(&request, "makes variances about the exact mean");
    request.kernel = -1;
    request.on_device = request.result_on_device = 0;
    request.data = values;
    request.result = room;
    expect_refusal(&request, "a mean is given of arrays in device memory only");
    fake.begin_capture(stream);
    CHECK(gpr_queue_upload(0, given, means, sizeof means, stream) == GPR_ERROR_VALUE, "captured");
    CHECK(strstr(gpr_last_error()->message, "cannot be captured") != NULL, "%s",
          gpr_last_error()->message);
    fake.destroy_graph(fake.end_capture(stream));
    fake.free_stream(stream);
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    REQUIRE(gpr_free_device(0, given) == GPR_OK && gpr_free_device(1, elsewhere) == GPR_OK);
    expect_no_violation();
}

/* ---------------------------------------------------------------- places of results ---------- */

/* Rows of nothing, results with steps, results of named kernels, many results in host memory. */
static void test_results_go_where_they_shall(void)
{
    enum { ROWS = 300, EACH = 40, MANY = 100000 };
    static int64_t room[2 * ROWS], sums[MANY];
    const int64_t shape[2] = {ROWS, EACH}, none[2] = {ROWS, 0}, many[2] = {MANY, 2},
                  steps[1] = {-16};
    void *data = upload(values, sizeof values), *result = upload(room, sizeof room);
    static const char *const kernels[] = {"auto", "shfl_two_pass", "block_atomic", "last_block",
                                          "sequential"};

    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++) {
        gpr_request request = sum_request(data, (int64_t *)result + 2 * ROWS - 2, NULL);
        request.ndim = 2;
        request.shape = shape;
        request.result_strides = steps;
        REQUIRE(gpr_find_kernel(kernels[k], &request.kernel) == GPR_OK);
        for (int on_device = 1; on_device >= 0; on_device--) {
            memset(room, 0x55, sizeof room);
            REQUIRE(gpr_upload(0, result, room, sizeof room) == GPR_OK);
            request.result_on_device = on_device;
            if (!on_device) request.result = room + 2 * ROWS - 2;
            CHECK(gpr_reduce(&request) == GPR_OK, "%s: %s", kernels[k], gpr_last_error()->message);
            if (on_device) REQUIRE(gpr_download(0, NULL, room, result, sizeof room) == GPR_OK);
            for (int row = 0; row < ROWS; row++) {
                CHECK(room[2 * ROWS - 2 - 2 * row] == sum_of(values + row * EACH, EACH),
                      "%s row %d", kernels[k], row);
                CHECK(room[2 * row + 1] == 0x5555555555555555, "%s wrote between results",
                      kernels[k]);
            }
        }
        request = sum_request(data, result, NULL);
        request.kernel = k > 0 ? request.kernel : -1;
        request.ndim = 2;
        request.shape = none;
        request.result = result;
        CHECK(gpr_reduce(&request) == GPR_OK, "%s: %s", kernels[k], gpr_last_error()->message);
        REQUIRE(gpr_download(0, NULL, room, result, sizeof room) == GPR_OK);
        for (int row = 0; row < ROWS; row++)
            CHECK(room[row] == 0, "row %d of nothing: %lld", row, (long long)room[row]);
        request = sum_request(data, sums, NULL);
        request.result_on_device = 0;
        request.ndim = 2;
        request.shape = many;
        CHECK(gpr_reduce(&request) == GPR_OK, "%s: %s", kernels[k], gpr_last_error()->message);
        for (int row = 0; row < MANY; row++)
            CHECK(sums[row] == sum_of(values + 2 * row, 2), "row %d", row);
    }
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    expect_no_violation();
}

/* Blocks that share rows of exact sums have scratch for so many rows; more rows come in several
 * launches, and find it clean. */
static void test_exact_sums_of_many_rows_share_bounded_scratch(void)
{
    enum { ROWS = 130000, GRID = 2, SLIDING = 2 };
    static double from[2 * (ROWS + 1)], sums[2 * ROWS];
    const int64_t shape[2] = {ROWS, SLIDING}, strides[2] = {2 * sizeof(double), 2 * sizeof(double)};

    for (int i = 0; i < 2 * (ROWS + 1); i++) from[i] = (double)check_between(-1000, 1000);
    void *data = upload(from, sizeof from), *result = upload(sums, sizeof sums);
    gpr_request request = sum_request(data, result, NULL);
    request.dtype = GPR_COMPLEX128;
    request.ndim = 2;
    request.shape = shape;
    request.strides = strides;
    REQUIRE(gpr_find_kernel("exact", &request.kernel) == GPR_OK);
    request.grid_size = GRID;
    for (int again = 0; again < 2; again++) {
        CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
        /* 37617 rows have 64 MiB */
        CHECK(gpr_last_run()->launches == 4, "%u launches", gpr_last_run()->launches);
        REQUIRE(gpr_download(0, NULL, sums, result, sizeof sums) == GPR_OK);
        for (int i = 0; i < 2 * ROWS; i++) CHECK(sums[i] == from[i] + from[i + 2], "part %d", i);
    }
    REQUIRE(gpr_free_device(0, data) == GPR_OK && gpr_free_device(0, result) == GPR_OK);
    expect_no_violation();
}

int main(void)
{
    check_begin();
    REQUIRE(setenv("FAKE_CUDA", "devices=2", 1) == 0);
    load_fakes();
    REQUIRE(setenv("GPUREDUCE_CACHE_BYTES", "0", 1) == 0);
    for (int i = 0; i < COUNT; i++) values[i] = (int32_t)check_between(-1000, 1000);
    test_calls_do_not_wait_for_results_on_the_device();
    test_streams_in_flight_do_not_share_scratch();
    test_scratch_of_streams_that_are_idle_is_taken_over();
    test_a_small_sum_takes_few_calls_of_the_driver();
    test_results_are_taken_when_they_are_there();
    test_graphs_have_scratch_of_their_own();
    test_a_capture_that_has_failed_is_an_error();
    test_sums_of_no_products_are_zero();
    test_memory_and_streams_of_somebody_else_are_refused();
    test_results_go_where_they_shall();
    test_variances_are_about_given_means();
    test_extremes_begin_with_a_start();
    test_means_that_do_not_fit_are_refused();
    test_exact_sums_of_many_rows_share_bounded_scratch();
    return check_end();
}
