/* Every error path of the host library: each driver and compiler call that a piece of work makes is
 * made to fail, one at a time, in a process of its own.
 *
 * After each failure: the status names the call that failed, the next call returns the right
 * result, nothing leaked, and the calls that clean up follow the driver's rules. At the end: every
 * function that the library calls has failed once. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "fakes/fakes.h"
#include "gpureduce.h"
#include "lib/driver/driver.h"
#include "lib/driver/nvrtc.h"
#include "lib/driver/sources.h"
#include "request.h"
#include "shared/launch_params.h"

enum {
    PAST_THE_END = 77,
    UNKNOWN = 999,
    OUT_OF_MEMORY = 2,
    NAMELESS = 12345,
    NVRTC_INTERNAL_ERROR = 11
};
enum { MIB = 1 << 20, LONGEST_SECONDS = 30, STREAMED = 250000, SHORT_DELAY_US = 50 };

/* ---------------------------------------------------------------- pieces of work ------------- */

/* Element i of every test array; sums stay far from any limit. */
static int32_t value_at(uint64_t i)
{
    return (int32_t)(i * 2654435761u >> 20) - 2048;
}

static int32_t *make_values(uint64_t count)
{
    int32_t *values = malloc(count * sizeof *values);

    REQUIRE(values != NULL);
    for (uint64_t i = 0; i < count; i++) values[i] = value_at(i);
    return values;
}

static void expect_sums(const int64_t *sums, uint64_t rows, uint64_t n)
{
    for (uint64_t row = 0; row < rows; row++) {
        int64_t expected = 0;
        for (uint64_t i = row * n; i < (row + 1) * n; i++) expected += value_at(i);
        REQUIRE(sums[row] == expected);
    }
}

/* Passes on the status of a call. After a failure no queued work uses the caller's memory: checked
 * at once, since freeing memory of the device waits for its work. */
static gpr_status settled(gpr_status status)
{
    REQUIRE(status == GPR_OK || fake.busy() == 0);
    return status;
}

/* Sums each of `rows` rows of n int32 with the named kernel, and checks the sums if it went
 * well. */
static gpr_status sum_rows(const char *kernel, int on_device, const void *data, uint64_t rows,
                           uint64_t n)
{
    const int64_t shape[2] = {(int64_t)rows, (int64_t)n};
    int64_t *sums = malloc(rows * sizeof *sums);
    gpr_request request = sums_of(GPR_INT32, 2, shape, data, sums);
    gpr_status status = GPR_OK;

    request.on_device = on_device;
    REQUIRE(sums != NULL && gpr_find_kernel(kernel, &request.kernel) == GPR_OK);
    status = settled(gpr_reduce(&request));
    if (status == GPR_OK) expect_sums(sums, rows, n);
    free(sums);
    return status;
}

static gpr_status sum_host(const char *kernel, uint64_t rows, uint64_t n)
{
    int32_t *values = make_values(rows * n);
    const gpr_status status = sum_rows(kernel, 0, values, rows, n);

    free(values);
    return status;
}

static gpr_status small_array(void)
{
    return sum_host("auto", 1, 1000);
}

static gpr_status small_array_by_atomics(void)
{
    return sum_host("naive_atomic", 3, 1000);
}

static gpr_status streamed_in_pieces(void)
{
    return sum_host("sequential", 1, STREAMED);
}

static gpr_status streamed_with_tickets(void)
{
    return sum_host("last_block", 2, 90000);
}

static gpr_status many_short_rows(void)
{
    return sum_host("auto", 22000, 8);
}

static gpr_status rows_by_atomics(void)
{
    return sum_host("block_atomic", 1500, 100);
}

/* Every other element of a row counts. */
static gpr_status masked(void)
{
    enum { COUNT = 70000 };
    const int64_t shape = COUNT, mask_stride = 1;
    int32_t *values = make_values(COUNT);
    uint8_t *mask = malloc(COUNT);
    int64_t sum = 0, expected = 0;
    gpr_request request = sums_of(GPR_INT32, 1, &shape, values, &sum);

    REQUIRE(mask != NULL);
    request.mask = mask;
    request.mask_strides = &mask_stride;
    for (int i = 0; i < COUNT; i++) {
        mask[i] = i % 2 == 0;
        expected += i % 2 == 0 ? values[i] : 0;
    }
    const gpr_status status = gpr_reduce(&request);
    if (status == GPR_OK) REQUIRE(sum == expected);
    free(mask);
    free(values);
    return status;
}

/* Whether the call to free memory failed before the driver freed it. */
static int is_still_there(gpr_status freed)
{
    return freed != GPR_OK && strncmp(gpr_last_error()->call, "cuMemFree", 9) != 0;
}

/* Runs `work` over a pinned array of rows * n values. */
static gpr_status with_pinned_array(uint64_t rows, uint64_t n,
                                    gpr_status (*work)(void *, uint64_t, uint64_t))
{
    void *data = NULL;
    gpr_status status = gpr_alloc_pinned(rows * n * sizeof(int32_t), &data), freed = GPR_OK;

    if (status != GPR_OK) return status;
    for (uint64_t i = 0; i < rows * n; i++) ((int32_t *)data)[i] = value_at(i);
    status = work(data, rows, n);
    freed = gpr_free_pinned(data);
    if (is_still_there(freed)) REQUIRE(gpr_free_pinned(data) == GPR_OK);
    return status != GPR_OK ? status : freed;
}

static gpr_status sum_on_host(void *data, uint64_t rows, uint64_t n)
{
    return sum_rows("auto", 0, data, rows, n);
}

static gpr_status pinned_source(void)
{
    return with_pinned_array(1, 200000, sum_on_host);
}

/* Runs `work` over a device array of rows * n values. */
static gpr_status with_device_array(uint64_t rows, uint64_t n,
                                    gpr_status (*work)(void *, uint64_t, uint64_t))
{
    int32_t *values = make_values(rows * n);
    void *data = NULL;
    gpr_status status = gpr_alloc_device(0, rows * n * sizeof *values, &data), freed = GPR_OK;

    if (status == GPR_OK) {
        status = gpr_upload(0, data, values, rows * n * sizeof *values);
        if (status == GPR_OK) status = work(data, rows, n);
        freed = gpr_free_device(0, data);
        if (is_still_there(freed)) REQUIRE(gpr_free_device(0, data) == GPR_OK);
    }
    free(values);
    return status != GPR_OK ? status : freed;
}

static gpr_status sum_on_device(void *data, uint64_t rows, uint64_t n)
{
    return sum_rows("auto", 1, data, rows, n);
}

static gpr_status device_array(void)
{
    return with_device_array(2, 50000, sum_on_device);
}

static gpr_status sum_by_clusters(void *data, uint64_t rows, uint64_t n)
{
    return sum_rows("cluster", 1, data, rows, n);
}

static gpr_status device_array_by_clusters(void)
{
    return with_device_array(2, 50000, sum_by_clusters);
}

static gpr_status sum_cooperatively(void *data, uint64_t rows, uint64_t n)
{
    return sum_rows("cooperative", 1, data, rows, n);
}

static gpr_status device_array_cooperatively(void)
{
    return with_device_array(2, 50000, sum_cooperatively);
}

static gpr_status device_array_of_many_rows(void)
{
    return with_device_array(20000, 6, sum_on_device);
}

static gpr_status measure_on_device(void *data, uint64_t rows, uint64_t n)
{
    const int64_t shape[2] = {(int64_t)rows, (int64_t)n};
    float milliseconds[3] = {-1, -1, -1};
    gpr_request request = sums_of(GPR_INT32, 2, shape, data, NULL);

    request.on_device = 1;
    const gpr_status status = settled(gpr_measure(&request, 1, 3, 100000, milliseconds));
    if (status != GPR_OK) return status;
    for (int i = 0; i < 3; i++) REQUIRE(milliseconds[i] >= 0);
    fake.wait(); /* an event of the library's own may be left */
    return sum_rows("auto", 1, data, rows, n);
}

static gpr_status measurement(void)
{
    return with_device_array(1, 100000, measure_on_device);
}

/* Waits until `stream` has done the work that is queued now. */
static gpr_status wait_for(void *stream)
{
    gpr_mark *mark = NULL;
    int passed = 0;
    gpr_status status = gpr_mark_stream(0, stream, &mark);

    if (status == GPR_OK) status = gpr_mark_wait(mark);
    if (status == GPR_OK) status = gpr_mark_passed(mark, &passed);
    if (status == GPR_OK) REQUIRE(passed);
    gpr_mark_destroy(mark);
    return status;
}

/* Elements of each width, written on one stream and overwritten on another that waits for the
 * first. */
static gpr_status fill_in_order(void *data, uint64_t rows, uint64_t n)
{
    void *const legacy = (void *)1;
    const double wide = 3.25, alike = 0x1.0000000100000p-1022; /* both words are 0x00100000 */
    const float word = 2.5f;
    const uint16_t half = 0x1234;
    const uint8_t byte = 0x5a;
    const uint64_t count = rows * n * sizeof(int32_t) / sizeof wide;
    void *own = NULL;
    int device = -1;
    gpr_status status = gpr_find_memory(data, &device);

    if (status == GPR_OK) REQUIRE(device == 0);
    if (status == GPR_OK) status = gpr_device_stream(0, &own);
    if (status == GPR_OK) status = gpr_fill_device(0, data, GPR_FLOAT64, &wide, count, own);
    if (status == GPR_OK) status = gpr_order_streams(0, NULL, legacy);
    if (status == GPR_OK)
        status = gpr_fill_device(0, (double *)data + count - 3, GPR_FLOAT64, &alike, 2, legacy);
    if (status == GPR_OK)
        status = gpr_fill_device(0, (double *)data + count - 1, GPR_FLOAT32, &word, 2, legacy);
    if (status == GPR_OK) status = gpr_fill_device(0, data, GPR_FLOAT16, &half, 1, legacy);
    if (status == GPR_OK)
        status = gpr_fill_device(0, (char *)data + sizeof half, GPR_INT8, &byte, 1, legacy);
    if (status == GPR_OK) status = wait_for(legacy);
    if (status != GPR_OK) return status;
    /* the fake's device memory is ours */
    for (uint64_t i = 1; i < count - 3; i++) REQUIRE(((double *)data)[i] == wide);
    for (uint64_t i = count - 3; i < count - 1; i++) REQUIRE(((double *)data)[i] == alike);
    for (uint64_t i = 2 * count - 2; i < 2 * count; i++) REQUIRE(((float *)data)[i] == word);
    REQUIRE(((uint16_t *)data)[0] == half && ((uint8_t *)data)[2] == byte);
    return GPR_OK;
}

static gpr_status streams_in_order(void)
{
    return with_device_array(1, 4096, fill_in_order);
}

/* Column sums of rows * n values, some of them shared by blocks, in device memory; captured into a
 * graph, or not. */
static gpr_status queue_column_sums(void *data, uint64_t rows, uint64_t n, int captured)
{
    const int64_t shape[2] = {(int64_t)n, (int64_t)rows}, strides[2] = {4, 4 * (int64_t)n};
    gpr_request request = sums_of(GPR_INT32, 2, shape, data, NULL);
    static void *stream; /* the same in all calls: a new one may get scratch of its own */
    int64_t *sums = calloc(n, sizeof *sums);
    gpr_status status = gpr_alloc_device(0, n * sizeof *sums, &request.result), freed = GPR_OK;
    void *graph = NULL;

    REQUIRE(sums != NULL);
    if (status != GPR_OK) goto done;
    request.strides = strides;
    request.on_device = request.result_on_device = 1;
    request.grid_size = 3; /* blocks that share columns, which takes scratch */
    if (stream == NULL) stream = fake.make_stream(0);
    request.stream = stream;
    if (captured) fake.begin_capture(request.stream);
    status = settled(gpr_reduce(&request));
    if (captured) graph = fake.end_capture(request.stream);
    if (captured && status == GPR_OK) REQUIRE(fake.launch_graph(graph, request.stream) == 0);
    fake.wait();
    if (status == GPR_OK)
        status = gpr_download(0, request.stream, sums, request.result, n * sizeof *sums);
    for (uint64_t column = 0; column < n && status == GPR_OK; column++) {
        int64_t expected = 0;
        for (uint64_t row = 0; row < rows; row++) expected += value_at(row * n + column);
        REQUIRE(sums[column] == expected);
    }
    if (graph != NULL) fake.destroy_graph(graph);
    freed = gpr_free_device(0, request.result);
    if (is_still_there(freed)) REQUIRE(gpr_free_device(0, request.result) == GPR_OK);
    if (status == GPR_OK) status = freed;
done:
    free(sums);
    return status;
}

static gpr_status queue_sums(void *data, uint64_t rows, uint64_t n)
{
    return queue_column_sums(data, rows, n, 0);
}

static gpr_status capture_sums(void *data, uint64_t rows, uint64_t n)
{
    return queue_column_sums(data, rows, n, 1);
}

static gpr_status results_on_the_device(void)
{
    return with_device_array(3000, 40, queue_sums);
}

/* Sums of rows that come SAME times, in device memory and in the host's, and their time. */
static gpr_status sum_same_rows(void *data, uint64_t rows, uint64_t n)
{
    enum { SAME = 300 };
    const int64_t shape[3] = {SAME, (int64_t)rows, (int64_t)n}, strides[3] = {0, 4 * (int64_t)n, 4};
    const uint64_t results = SAME * rows;
    int64_t *sums = calloc(results, sizeof *sums);
    gpr_request request = sums_of(GPR_INT32, 3, shape, data, sums);
    float milliseconds = -1;
    void *there = NULL;
    gpr_status status = GPR_OK, freed = GPR_OK;

    REQUIRE(sums != NULL);
    request.strides = strides;
    request.on_device = 1;
    for (int on_device = 0; on_device < 2 && status == GPR_OK; on_device++) {
        memset(sums, 0, results * sizeof *sums);
        if (on_device) {
            status = gpr_alloc_device(0, results * sizeof *sums, &there);
            if (status != GPR_OK) break;
            request.result = there;
            request.result_on_device = 1;
        }
        status = settled(gpr_reduce(&request));
        REQUIRE(status != GPR_OK || gpr_last_run()->launches == 1 + (uint32_t)on_device);
        fake.wait();
        if (status == GPR_OK) status = settled(gpr_measure(&request, 0, 1, 0, &milliseconds));
        fake.wait();
        if (status == GPR_OK && on_device)
            status = gpr_download(0, NULL, sums, there, results * sizeof *sums);
        for (uint64_t i = 0; i < results && status == GPR_OK; i++) {
            int64_t expected = 0;
            for (uint64_t k = 0; k < n; k++) expected += value_at(i % rows * n + k);
            REQUIRE(sums[i] == expected);
        }
    }
    if (there != NULL) freed = gpr_free_device(0, there);
    if (is_still_there(freed)) REQUIRE(gpr_free_device(0, there) == GPR_OK);
    free(sums);
    return status != GPR_OK ? status : freed;
}

static gpr_status rows_that_are_the_same(void)
{
    return with_device_array(3, 5000, sum_same_rows);
}

static gpr_status results_of_a_graph(void)
{
    return with_device_array(3000, 40, capture_sums);
}

/* Variances of rows about means that come from the host on the same stream. */
static gpr_status vary_with_given_means(void *data, uint64_t rows, uint64_t n)
{
    const int64_t shape[2] = {(int64_t)rows, (int64_t)n}, steps[1] = {sizeof(double)};
    gpr_request request = sums_of(GPR_INT32, 2, shape, data, NULL);
    static void *stream; /* the same in all calls */
    double *means = calloc(2 * rows, sizeof *means), *found = means + rows;
    void *given = NULL;
    gpr_status status = gpr_alloc_device(0, 2 * rows * sizeof *means, &given), freed = GPR_OK;

    REQUIRE(means != NULL);
    if (status != GPR_OK) goto done;
    for (uint64_t row = 0; row < rows; row++) means[row] = (double)row;
    if (stream == NULL) stream = fake.make_stream(0);
    request.op = GPR_OP_VAR;
    request.on_device = request.result_on_device = request.has_given_mean = 1;
    request.mean_dtype = GPR_FLOAT64;
    request.mean = given;
    request.mean_strides = steps;
    request.result = (double *)given + rows;
    request.stream = stream;
    status = gpr_queue_upload(0, given, means, rows * sizeof *means, stream);
    if (status == GPR_OK) status = gpr_reduce(&request);
    fake.wait();
    if (status == GPR_OK)
        status = gpr_download(0, stream, found, request.result, rows * sizeof *found);
    for (uint64_t row = 0; row < rows && status == GPR_OK; row++) {
        double squares = 0;
        for (uint64_t i = 0; i < n; i++) {
            const double apart = value_at(row * n + i) - (double)row;
            squares += apart * apart;
        }
        REQUIRE(fabs(found[row] * (double)n - squares) <= 1e-12 * squares);
    }
    freed = gpr_free_device(0, given);
    if (is_still_there(freed)) REQUIRE(gpr_free_device(0, given) == GPR_OK);
    if (status == GPR_OK) status = freed;
done:
    free(means);
    return status;
}

static gpr_status variances_with_given_means(void)
{
    return with_device_array(30, 500, vary_with_given_means);
}

static gpr_status sum_by_passes(void *data, uint64_t rows, uint64_t n)
{
    return sum_rows("block_atomic", 1, data, rows, n);
}

static gpr_status device_array_by_atomics(void)
{
    return with_device_array(30000, 5, sum_by_passes);
}

/* Adds values to a state that has a number already: all of them, as a run that blocks share, then
 * every other one. A failed update leaves every byte. */
static gpr_status add_to_state(void *data, uint64_t rows, uint64_t n)
{
    enum { FIRST = 12345, STATE_BYTES = 64 };
    const int64_t shapes[2] = {(int64_t)(rows * n), (int64_t)(rows * n / 2)}, strides[2] = {4, 8},
                  first = FIRST;
    gpr_request request = sums_of(GPR_INT32, 1, NULL, data, NULL);
    uint8_t before[STATE_BYTES], after[STATE_BYTES];
    const size_t bytes = gpr_exact_bytes(GPR_INT64);
    gpr_exact *sum = NULL;
    int64_t expected = FIRST, found = 0;
    gpr_status status = GPR_OK;

    REQUIRE(bytes <= STATE_BYTES && gpr_exact_create(GPR_INT64, &sum) == GPR_OK);
    REQUIRE(gpr_exact_update_array(sum, &first, 1) == GPR_OK);
    request.on_device = 1;
    for (int pass = 0; pass < 2 && status == GPR_OK; pass++) {
        request.shape = &shapes[pass];
        request.strides = &strides[pass];
        gpr_exact_store(sum, before);
        fake.wait(); /* an event of the library's own may be left */
        status = settled(gpr_exact_update(sum, &request));
        gpr_exact_store(sum, after);
        REQUIRE(status == GPR_OK || memcmp(before, after, bytes) == 0);
    }
    for (uint64_t i = 0; i < rows * n; i++) expected += (i % 2 == 0 ? 2 : 1) * (int64_t)value_at(i);
    if (status == GPR_OK) {
        REQUIRE(gpr_exact_result(sum, GPR_INT64, &found) == GPR_OK && found == expected);
        REQUIRE(gpr_exact_count(sum) == rows * n / 2 * 3 + 1);
    }
    gpr_exact_destroy(sum);
    return status;
}

static gpr_status state_of_device_arrays(void)
{
    return with_device_array(8, 5000, add_to_state);
}

/* Adds up the products of two rows' elements. */
static gpr_status multiply_rows(int on_device, const int32_t *data, uint64_t rows, uint64_t n)
{
    int64_t found = 0;
    uint64_t expected = 0; /* sums wrap */
    const gpr_dot_request request = {
        .a = {.dtype = GPR_INT32, .data = data, .stride = sizeof *data},
        .b = {.dtype = GPR_INT32, .data = data + n, .stride = sizeof *data},
        .factor = GPR_INT32,
        .compute = GPR_INT64,
        .n = n,
        .kernel = -1,
        .on_device = on_device,
        .result = &found};

    REQUIRE(rows == 2);
    const gpr_status status = settled(gpr_dot(&request));
    if (status != GPR_OK) return status;
    for (uint64_t i = 0; i < n; i++) expected += (uint64_t)((int64_t)value_at(i) * value_at(n + i));
    REQUIRE((uint64_t)found == expected);
    return GPR_OK;
}

static gpr_status multiply_on_device(void *data, uint64_t rows, uint64_t n)
{
    return multiply_rows(1, data, rows, n);
}

static gpr_status multiply_on_host(void *data, uint64_t rows, uint64_t n)
{
    return multiply_rows(0, data, rows, n);
}

static gpr_status products_of_device_arrays(void)
{
    return with_device_array(2, 50000, multiply_on_device);
}

static gpr_status products_in_pieces(void)
{
    int32_t *values = make_values(STREAMED);
    const gpr_status status = multiply_on_host(values, 2, STREAMED / 2);

    free(values);
    return status;
}

static gpr_status products_of_pinned_arrays(void)
{
    return with_pinned_array(2, 100000, multiply_on_host);
}

/* Sums by a program whose text is the caller's: waiting for it, and queued on a stream. */
static gpr_status launch_text(void *data, uint64_t rows, uint64_t n)
{
    enum { BLOCK = 64, FLUSH_BYTES = 70000, TEXT_BYTES = 4096 };
    static const char *const entries[] = {"gpr::shfl_atomic<First, 64u>",
                                          "gpr::fill_identity<First>"};
    static void *stream; /* the same in all calls */
    char text[TEXT_BYTES];
    gpr_rows_params of_rows = {.n = rows * n, .count = 1, .blocks = 3};
    gpr_scratch_params scratch = {0};
    const char *const linked[] = {"-dlto"}; /* code of a linker, which is not loaded */
    uint64_t one = 1;
    int64_t found[2] = {-1, -1};
    void *sum = NULL, *kernel_arguments[] = {&data, &sum, &of_rows, &scratch},
         *fill_arguments[] = {&sum, &one};
    const gpr_launch launches[] = {
        {.symbol = 1, .grid = 1, .block = 1, .arguments = fill_arguments},
        {.symbol = 0, .grid = 3, .block = BLOCK, .arguments = kernel_arguments}};
    gpr_loaded_image *loaded = NULL;
    gpr_image image = {0};
    float milliseconds[2] = {-1, -1};
    int kernel = 0;
    gpr_status status = GPR_OK, freed = GPR_OK;

    if (stream == NULL) stream = fake.make_stream(0);
    REQUIRE(gpr_find_kernel("shfl_atomic", &kernel) == GPR_OK);
    REQUIRE(gpr_write_program(kernel, GPR_OP_SUM, GPR_INT32, BLOCK, text, TEXT_BYTES) == GPR_OK);
    status = gpr_compile_text("mine.cu", text, entries, 2, linked, 1, 90, &image);
    gpr_free_image(&image);
    if (status == GPR_OK)
        status = gpr_compile_text("mine.cu", text, entries, 2, NULL, 0, 90, &image);
    if (status == GPR_OK) status = gpr_load_image(0, &image, &loaded);
    gpr_free_image(&image);
    if (status != GPR_OK) return status;
    status = gpr_alloc_device(0, sizeof found[0], &sum);
    if (status == GPR_OK)
        status = settled(gpr_run_launches(loaded, launches, 2, NULL, FLUSH_BYTES, 2, milliseconds));
    if (status == GPR_OK) {
        REQUIRE(milliseconds[0] >= 0 && milliseconds[1] >= 0);
        status = gpr_download(0, NULL, &found[0], sum, sizeof found[0]);
    }
    if (status == GPR_OK)
        status = settled(gpr_queue_launches(loaded, launches, 2, stream, 0, NULL, 0));
    /* Into memory of the launch's own, which nothing reads. */
    void *target = sum;
    const gpr_scratch_pointer pointer = {&sum, 0};
    fake.wait(); /* for the launches before: what is under way after a failure is of this call */
    if (status == GPR_OK)
        status = settled(
            gpr_queue_launches(loaded, &launches[1], 1, stream, sizeof found[0], &pointer, 1));
    sum = target;
    fake.wait();
    if (status == GPR_OK) status = gpr_download(0, stream, &found[1], sum, sizeof found[1]);
    if (status == GPR_OK) expect_sums(&found[0], 1, rows * n);
    if (status == GPR_OK) expect_sums(&found[1], 1, rows * n);
    if (sum != NULL) {
        freed = gpr_free_device(0, sum);
        if (is_still_there(freed)) REQUIRE(gpr_free_device(0, sum) == GPR_OK);
        if (status == GPR_OK) status = freed;
    }
    freed = gpr_unload_image(loaded);
    if (freed != GPR_OK && strcmp(gpr_last_error()->call, "cuModuleUnload") != 0)
        REQUIRE(gpr_unload_image(loaded) == GPR_OK);
    return status != GPR_OK ? status : freed;
}

static gpr_status text_of_the_callers_own(void)
{
    return with_device_array(1, 20000, launch_text);
}

/* ---------------------------------------------------------------- several in one pass --------- */

/* Rows of floats, which are value_at; and what is reduced of them at once: an exact sum that two
 * share, folds with one result and with two, a position, a count. */
enum { ROWS = 2, ROW = 3000, PIECES = 3, SEVERAL_BLOCKS = 2, MEMBERS = 7, RESULT_BYTES = 16 };

static const gpr_member several_members[MEMBERS] = {
    {.op = GPR_OP_SUM},    {.op = GPR_OP_MEAN}, {.op = GPR_OP_MIN}, {.op = GPR_OP_MINMAX},
    {.op = GPR_OP_ARGMAX}, {.counts_nan = 1},   {.op = GPR_OP_STD}};

/* Memory of the device: the array, the results of each member, and scratch of pieces. */
typedef struct several_memory {
    float array[ROWS * ROW];
    char results[MEMBERS][2 * ROWS][RESULT_BYTES];
    char scratch[2048];
} several_memory;

/* A program of several reductions, and what each launch of it has. */
typedef struct several_work {
    gpr_several_plan plan;
    gpr_loaded_image *loaded;
    gpr_several_launch launch;
    several_memory *memory;
} several_work;

/* Compares results with the elements themselves. */
static void expect_several(const gpr_several_plan *plan, const several_memory *found)
{
    for (uint64_t row = 0; row < plan->rows; row++) {
        const float *x = found->array + row * plan->n;
        int64_t sum = 0, most = 0;
        double squares = 0;
        float least = x[0];
        for (uint64_t i = 0; i < plan->n; i++) {
            sum += (int64_t)x[i];
            least = x[i] < least ? x[i] : least;
            most = x[i] > x[most] ? (int64_t)i : most;
        }
        const double mean = (double)sum / (double)plan->n;
        for (uint64_t i = 0; i < plan->n; i++) squares += (x[i] - mean) * (x[i] - mean);
        const float std = (float)sqrt(squares / (double)plan->n);
        const float *of[MEMBERS];
        for (int i = 0; i < MEMBERS; i++) of[i] = (const float *)found->results[i];
        REQUIRE(of[0][row] == (float)sum && of[1][row] == (float)mean && of[2][row] == least);
        REQUIRE(of[3][row] == least && of[3][plan->rows + row] == x[most]);
        REQUIRE(((const int64_t *)of[4])[row] == most && ((const int64_t *)of[5])[row] == 0);
        REQUIRE((plan->in_pass >> 6 & 1) == 0 || fabsf(of[6][row] - std) <= 1e-6f * std);
    }
}

/* Downloads and checks, and makes all results others. */
static gpr_status check_several(const several_work *work, void *stream)
{
    several_memory *found = malloc(sizeof *found);

    REQUIRE(found != NULL);
    fake.wait();
    gpr_status status = gpr_download(0, stream, found, work->memory, sizeof *found);
    if (status == GPR_OK) {
        expect_several(&work->plan, found);
        memset(found->results, 0x77, sizeof found->results);
        status = gpr_upload(0, work->memory, found, sizeof *found);
    }
    free(found);
    return status;
}

/* Plans `rows` rows; `pieces`: each is one of a row. Compiles and loads. */
static gpr_status load_several(several_work *work, int rows, int pieces)
{
    const int64_t shape[2] = {rows, ROW};
    gpr_request array = sums_of(GPR_FLOAT32, 2, shape, work->memory, NULL);
    gpr_device_facts facts;
    gpr_image image = {0};
    int compiled = 0;
    gpr_status status = gpr_facts_at(0, &facts);

    array.on_device = 1;
    array.block_size = 64;
    array.grid_size = SEVERAL_BLOCKS;
    if (status == GPR_OK)
        status = gpr_plan_several(&array, several_members, MEMBERS, pieces, 0, &facts, &work->plan);
    if (status != GPR_OK) return status;
    /* variances depend on how a row is cut: not in pieces */
    REQUIRE(work->plan.in_pass == (pieces ? 0x3fu : 0x7fu));
    status = gpr_compile_several(&work->plan, 90, &image, &compiled);
    if (status == GPR_OK) status = gpr_load_image(0, &image, &work->loaded);
    gpr_free_image(&image);
    work->launch.data = work->memory->array;
    work->launch.output_stride = (uint64_t)rows;
    for (int i = 0; i < MEMBERS; i++) work->launch.out[i] = work->memory->results[i];
    return status;
}

static gpr_status unload(gpr_loaded_image *loaded, gpr_status status)
{
    const gpr_status freed = gpr_unload_image(loaded);

    if (freed != GPR_OK && strcmp(gpr_last_error()->call, "cuModuleUnload") != 0)
        REQUIRE(gpr_unload_image(loaded) == GPR_OK);
    return status != GPR_OK ? status : freed;
}

/* A pass over whole rows: queued, and timed. */
static gpr_status queue_whole_rows(several_memory *memory, void *stream)
{
    enum { FLUSH_BYTES = 70000 };
    several_work work = {.memory = memory};
    float milliseconds[2] = {-1, -1};
    gpr_status status = load_several(&work, ROWS, 0);

    if (status != GPR_OK) return status;
    work.launch.stream = stream;
    status = settled(gpr_queue_several(work.loaded, &work.plan, &work.launch));
    if (status == GPR_OK) status = check_several(&work, stream);
    if (status == GPR_OK)
        status = settled(gpr_measure_several(work.loaded, &work.plan, &work.launch, FLUSH_BYTES, 2,
                                             milliseconds));
    if (status == GPR_OK) REQUIRE(milliseconds[0] >= 0 && milliseconds[1] >= 0);
    if (status == GPR_OK) status = check_several(&work, stream);
    return unload(work.loaded, status);
}

/* A row in pieces, which share scratch of the caller's. */
static gpr_status queue_pieces(several_memory *memory, void *stream)
{
    const uint8_t zero = 0;
    several_work work = {.memory = memory};
    gpr_status status = load_several(&work, 1, 1);

    if (status != GPR_OK) return status;
    work.launch.stream = stream;
    work.launch.scratch = memory->scratch;
    work.launch.pieces = PIECES;
    work.launch.total = ROW;
    work.launch.n = ROW / PIECES;
    REQUIRE(gpr_several_scratch(&work.plan, PIECES) <= sizeof memory->scratch);
    status = gpr_fill_device(0, memory->scratch, GPR_UINT8, &zero, sizeof memory->scratch, stream);
    for (uint32_t i = 0; i < PIECES && status == GPR_OK; i++) {
        work.launch.piece = i;
        work.launch.first = i * work.launch.n;
        work.launch.data = memory->array + work.launch.first;
        fake.wait(); /* for the piece before: what is under way after a failure is of this one */
        status = settled(gpr_queue_several(work.loaded, &work.plan, &work.launch));
    }
    if (status == GPR_OK) status = check_several(&work, stream);
    fake.wait();
    return unload(work.loaded, status);
}

/* A pass that is captured, into a graph that is launched twice. */
static gpr_status capture_several(several_memory *memory, void *stream)
{
    several_work work = {.memory = memory};
    gpr_status status = load_several(&work, ROWS, 0);

    if (status != GPR_OK) return status;
    work.launch.stream = stream;
    fake.begin_capture(stream);
    status = settled(gpr_queue_several(work.loaded, &work.plan, &work.launch));
    void *graph = fake.end_capture(stream);
    for (int i = 0; i < 2 && status == GPR_OK; i++) {
        REQUIRE(fake.launch_graph(graph, stream) == 0);
        status = check_several(&work, stream);
    }
    if (graph != NULL) fake.destroy_graph(graph);
    return unload(work.loaded, status);
}

/* Runs `work` over rows of floats in device memory. */
static gpr_status with_several_memory(gpr_status (*work)(several_memory *, void *))
{
    static void *stream; /* the same in all calls: a new one may get scratch of its own */
    several_memory *values = calloc(1, sizeof *values);
    void *memory = NULL;
    gpr_status status = gpr_alloc_device(0, sizeof *values, &memory), freed = GPR_OK;

    REQUIRE(values != NULL);
    if (status == GPR_OK) {
        for (uint64_t i = 0; i < ROWS * ROW; i++) values->array[i] = (float)value_at(i);
        if (stream == NULL) stream = fake.make_stream(0);
        status = gpr_upload(0, memory, values, sizeof *values);
        if (status == GPR_OK) status = work(memory, stream);
        freed = gpr_free_device(0, memory);
        if (is_still_there(freed)) REQUIRE(gpr_free_device(0, memory) == GPR_OK);
    }
    free(values);
    return status != GPR_OK ? status : freed;
}

static gpr_status several_in_one_pass(void)
{
    return with_several_memory(queue_whole_rows);
}

static gpr_status several_in_pieces(void)
{
    return with_several_memory(queue_pieces);
}

static gpr_status several_of_a_graph(void)
{
    return with_several_memory(capture_several);
}

/* ---------------------------------------------------------------- facts, forgetting ----------- */

static gpr_status facts(void)
{
    gpr_device_info info;
    int count = 0, kernel = 0;
    gpr_status status = gpr_cuda_available();

    if (status == GPR_OK) status = gpr_device_count(&count);
    if (status == GPR_OK) status = gpr_device_info_at(0, &info);
    if (status == GPR_OK) status = gpr_find_kernel("auto", &kernel);
    if (status == GPR_OK) status = gpr_kernel_available(kernel, 0);
    if (status != GPR_OK) return status;
    REQUIRE(count == 1 && info.compute_capability == 90 && strcmp(info.name, "Fake 0") == 0);
    REQUIRE(strcmp(info.uuid, "GPU-01010101-0101-0101-0101-010101010101") == 0);
    return GPR_OK;
}

/* Reducing after the loaded programs were forgotten, with other buffers than before. */
static gpr_status forgetting(void)
{
    gpr_limits limits;
    gpr_status status = streamed_in_pieces();

    if (status == GPR_OK) status = gpr_cache_clear(1);
    if (status != GPR_OK) return status;
    gpr_get_limits(&limits);
    limits.pinned_bytes ^= MIB; /* 1 MiB is never its lowest bit: see set_limits */
    status = gpr_set_limits(&limits);
    return status == GPR_OK ? streamed_in_pieces() : status;
}

typedef struct work {
    const char *name;
    gpr_status (*run)(void);
} work;

static const work works[] = {
    {"small array", small_array},
    {"small array by atomics", small_array_by_atomics},
    {"streamed in pieces", streamed_in_pieces},
    {"streamed with tickets", streamed_with_tickets},
    {"many short rows", many_short_rows},
    {"rows by atomics", rows_by_atomics},
    {"masked", masked},
    {"pinned source", pinned_source},
    {"device array", device_array},
    {"device array of many rows", device_array_of_many_rows},
    {"device array by atomics", device_array_by_atomics},
    {"device array by clusters", device_array_by_clusters},
    {"device array cooperatively", device_array_cooperatively},
    {"results on the device", results_on_the_device},
    {"results of a graph", results_of_a_graph},
    {"rows that are the same", rows_that_are_the_same},
    {"variances about means", variances_with_given_means},
    {"state of device arrays", state_of_device_arrays},
    {"products of device arrays", products_of_device_arrays},
    {"products in pieces", products_in_pieces},
    {"products of pinned arrays", products_of_pinned_arrays},
    {"measurement", measurement},
    {"streams in order", streams_in_order},
    {"text of the caller's own", text_of_the_callers_own},
    {"several in one pass", several_in_one_pass},
    {"several in pieces", several_in_pieces},
    {"several of a graph", several_of_a_graph},
    {"facts", facts},
    {"forgetting", forgetting},
};

/* ---------------------------------------------------------------- objects in use ------------- */

static const char *const kinds[] = {"device",  "pinned",   "streams", "events",
                                    "modules", "contexts", "depth"};
enum { KINDS = sizeof kinds / sizeof kinds[0], MODULES = 4 };

typedef struct census {
    int live[KINDS];
    uint64_t bytes[2];
} census;

static census count_live(void)
{
    census all;

    memset(&all, 0, sizeof all);
    for (int i = 0; i < KINDS; i++) all.live[i] = fake.live(kinds[i]);
    for (int i = 0; i < 2; i++) all.bytes[i] = fake.bytes(i);
    return all;
}

/* No objects are in use beyond `expected`. Bytes are compared where the work took the same path as
 * for `expected`; fewer are right, too: the work may have found less memory. */
static void expect_no_leak(const census *expected, int exact, int same_way)
{
    const census now = count_live();

    for (int i = 0; i < KINDS; i++) {
        if (exact ? now.live[i] == expected->live[i] : now.live[i] <= expected->live[i]) continue;
        (void)fprintf(stderr, "%s alive: %d, expected %d\n", kinds[i], now.live[i],
                      expected->live[i]);
        REQUIRE(!"leak");
    }
    REQUIRE(!same_way ||
            (now.bytes[0] <= expected->bytes[0] && now.bytes[1] <= expected->bytes[1]));
    REQUIRE(fake.programs() == 0);
}

static void expect_no_violation(void)
{
    if (fake.violation()[0] == '\0') return;
    (void)fprintf(stderr, "the driver was misused: %s\n", fake.violation());
    REQUIRE(!"violation");
}

/* ---------------------------------------------------------------- processes ------------------ */

static void set_limits(void)
{
    const gpr_limits limits = {.device_bytes = MIB, .pinned_bytes = 2 * MIB, .cpu_threads = 2};

    REQUIRE(gpr_set_limits(&limits) == GPR_OK);
}

/* Runs body(argument) in a child process; returns its exit status, -1 if it did not end well. */
static int in_child(int (*body)(const void *), const void *argument, const char *what)
{
    int status = 0;
    (void)fflush(stdout);
    const pid_t child = fork();

    REQUIRE(child >= 0);
    if (child == 0) {
        (void)alarm(LONGEST_SECONDS);
        set_limits();
        exit(body(argument));
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    const int well =
        WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == PAST_THE_END);
    CHECK(well, "%s (%s %d)", what, WIFSIGNALED(status) ? "signal" : "exit status",
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return well ? WEXITSTATUS(status) : -1;
}

typedef struct baseline_argument {
    const work *work;
    int pipe;
} baseline_argument;

static int measure_baseline(const void *argument)
{
    const baseline_argument *baseline = argument;

    REQUIRE(baseline->work->run() == GPR_OK);
    REQUIRE(baseline->work->run() == GPR_OK);
    const census all = count_live();
    expect_no_violation();
    REQUIRE(write(baseline->pipe, &all, sizeof all) == (ssize_t)sizeof all);
    return 0;
}

/* Objects in use in a process that did the work twice without a failure. */
static census baseline_of(const work *work)
{
    int ends[2];
    census all;

    REQUIRE(pipe(ends) == 0);
    const baseline_argument argument = {work, ends[1]};
    REQUIRE(in_child(measure_baseline, &argument, work->name) == 0);
    REQUIRE(read(ends[0], &all, sizeof all) == (ssize_t)sizeof all);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return all;
}

/* ---------------------------------------------------------------- functions ------------------ */

/* Every function that the library calls: how often it was made to fail, in all processes. */
static const char *const functions[] = {
#define CU(member, symbol, arguments) #member,
    GPR_DRIVER_FUNCTIONS(CU)
#undef CU
#define RT(member, arguments) "nvrtc" #member,
        GPR_NVRTC_FUNCTIONS(RT)
#undef RT
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static _Atomic unsigned *failed; /* FUNCTIONS counters */

static void note_failed(const char *call)
{
    int known = 0;

    for (int i = 0; i < FUNCTIONS; i++) {
        if (strcmp(functions[i], call) != 0) continue;
        failed[i]++;
        known = 1;
    }
    if (!known)
        (void)fprintf(stderr, "the fake has a function that the library does not call: %s\n", call);
    REQUIRE(known);
}

static void expect_all_failed(void)
{
    for (int i = 0; i < FUNCTIONS; i++)
        CHECK(failed[i] > 0, "%s was never made to fail", functions[i]);
}

/* ---------------------------------------------------------------- failures ------------------- */

typedef struct failure {
    const work *work;
    census baseline;
    int in_nvrtc, warm; /* warm: after a run that went well */
    const char *function;
    int nth, code;
} failure;

static int is_any(const char *name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(name, *names) == 0) return 1;
    }
    return 0;
}

/* Calls whose failure the work survives: queries with a safe default, and releases. */
static int is_survivable(const char *call)
{
    static const char *const names[] = {"cuPointerGetAttributes",
                                        "cuThreadExchangeStreamCaptureMode",
                                        "cuCtxPopCurrent",
                                        "cuCtxSynchronize",
                                        "cuMemFree",
                                        "cuMemFreeHost",
                                        "cuModuleUnload",
                                        "cuEventDestroy",
                                        "cuStreamDestroy",
                                        "cuDevicePrimaryCtxRelease",
                                        "nvrtcDestroyProgram",
                                        NULL};

    return is_any(call, names);
}

/* Calls that find out whether there is a driver at all. */
static int is_opening(const char *call)
{
    static const char *const names[] = {"cuInit",
                                        "cuDriverGetVersion",
                                        "cuDeviceGetCount",
                                        "nvrtcVersion",
                                        "nvrtcGetNumSupportedArchs",
                                        "nvrtcGetSupportedArchs",
                                        NULL};

    return is_any(call, names);
}

/* The vendor's name of the failure. */
static const char *name_of(const failure *f)
{
    switch (f->code) {
    case UNKNOWN: return "CUDA_ERROR_UNKNOWN";
    case OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
    case NVRTC_INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
    default: return "unknown";
    }
}

/* The status of work in which `call` failed names it. */
static void expect_status(const failure *f, gpr_status status, const char *call)
{
    const gpr_error *error = gpr_last_error();

    if (status == GPR_OK) {
        REQUIRE(is_survivable(call) || f->code == OUT_OF_MEMORY);
        return;
    }
    REQUIRE(error->status == status && error->message[0] != '\0');
    /* While a stream is captured, calls that are allowed otherwise fail with an error of their own.
     * */
    if (strcmp(call, "cuThreadExchangeStreamCaptureMode") == 0) return;
    if (is_opening(call) && status == GPR_ERROR_DEVICE) {
        REQUIRE(strstr(error->message, call) != NULL && strstr(error->message, name_of(f)) != NULL);
        return;
    }
    REQUIRE(strcmp(error->call, call) == 0 && error->code == f->code &&
            strstr(error->name, name_of(f)) != NULL);
    REQUIRE(strstr(error->message, name_of(f)) != NULL);
    if (f->in_nvrtc) {
        REQUIRE(status == GPR_ERROR_COMPILE);
    } else {
        REQUIRE(status == (f->code == OUT_OF_MEMORY ? GPR_ERROR_MEMORY : GPR_ERROR_CUDA));
        REQUIRE(strstr(error->message, call) != NULL);
    }
}

/* What may be in use after the failure. For want of memory a source is read in smaller pieces,
 * whose program may be another than that of the whole: it stays loaded beside it. */
static census may_have_pieces(const failure *f)
{
    census expected = f->baseline;

    if (f->code == OUT_OF_MEMORY) expected.live[MODULES]++;
    return expected;
}

static void expect_success(const failure *f)
{
    if (f->work->run() == GPR_OK) return;
    (void)fprintf(stderr, "the next call: %s\n", gpr_last_error()->message);
    REQUIRE(!"success");
}

static int fail_once(const void *argument)
{
    const failure *f = argument;
    char call[64];
    gpr_status status = GPR_OK;

    if (f->warm) REQUIRE(f->work->run() == GPR_OK);
    (f->in_nvrtc ? fake.nvrtc_fail : fake.fail)(f->function, f->nth, f->code);
    /* queued work has not ended when the call fails */
    fake.set_delays((unsigned)f->nth, SHORT_DELAY_US);
    status = f->work->run();
    fake.set_delays(1, 0);
    (void)snprintf(call, sizeof call, "%s", f->in_nvrtc ? fake.nvrtc_failed() : fake.failed());
    (f->in_nvrtc ? fake.nvrtc_fail : fake.fail)("", 0, 0);
    if (call[0] == '\0') {
        REQUIRE(status == GPR_OK);
        return PAST_THE_END;
    }
    note_failed(call);
    REQUIRE(fake.busy() == 0); /* the caller's memory is the caller's again */
    expect_status(f, status, call);
    const int same_way =
        /* a pinned array that the driver does not report as pinned is staged */
        strcmp(call, "cuPointerGetAttributes") != 0;
    census expected = may_have_pieces(f);
    expect_no_violation();
    expect_no_leak(&expected, 0, same_way);
    /* the driver is not called a second time */
    if (status == GPR_ERROR_DEVICE && !f->in_nvrtc) return 0;
    if (status == GPR_ERROR_DEVICE)
        REQUIRE(gpr_set_nvrtc_path(NULL) == GPR_OK); /* nor is NVRTC, until it is looked for anew */
    for (int i = 0; i < 2; i++) expect_success(f);
    if (f->code == OUT_OF_MEMORY) { /* see may_have_pieces */
        const int modules = count_live().live[MODULES];
        REQUIRE(modules >= f->baseline.live[MODULES] && modules <= expected.live[MODULES]);
        expected.live[MODULES] = modules;
        expect_success(f);
    }
    expect_no_violation();
    expect_no_leak(&expected, 1, same_way);
    return 0;
}

/* Processes are slow to start under ThreadSanitizer, and failing is no matter of threads: a
 * sample is enough there. */
#ifdef __SANITIZE_THREAD__
enum { STEP = 13 };
#else
enum { STEP = 1 };
#endif

/* Lets each call of `function` that the work makes fail in turn; returns how many there are. */
static int fail_each(const work *work, const census *baseline, int in_nvrtc, int warm,
                     const char *function, int code)
{
    char what[160];
    failure f = {.work = work,
                 .baseline = *baseline,
                 .in_nvrtc = in_nvrtc,
                 .warm = warm,
                 .function = function,
                 .code = code};

    for (f.nth = (int)check_between(1, STEP);; f.nth += STEP) {
        (void)snprintf(what, sizeof what, "%s, %s, call %d of %s returns %d", work->name,
                       warm ? "warm" : "cold", f.nth, function, code);
        if (in_child(fail_once, &f, what) != 0) return f.nth - 1;
    }
}

static void test_every_failed_call_is_reported_and_leaves_nothing_behind(void)
{
    static const char *const out_of_memory[] = {"cuMemAlloc", "cuMemHostAlloc", "cuModuleLoadData",
                                                "cuDevicePrimaryCtxRetain"};
    int calls = 0;

    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        const work *work = &works[i];
        const census baseline = baseline_of(work);
        const int drawn = (int)check_between(0, 1); /* for a run; the other one in another */
        for (int warm = 0; warm < 2; warm++) {
            if (warm != drawn && getenv("GPR_TEST_ALL") == NULL) continue;
            const int driver = fail_each(work, &baseline, 0, warm, "*", UNKNOWN);
            CHECK(driver >= 4, "%s makes %d calls", work->name, driver);
            calls += driver + fail_each(work, &baseline, 1, warm, "*", NVRTC_INTERNAL_ERROR);
            for (size_t j = 0; j < sizeof out_of_memory / sizeof out_of_memory[0]; j++) {
                calls += fail_each(work, &baseline, 0, warm, out_of_memory[j], OUT_OF_MEMORY);
            }
        }
    }
    (void)printf("%d calls failed in turn\n", calls);
}

/* A device that cannot be opened, for want of memory, and cannot give back what opening it took. */
static int fail_twice_while_opening(const void *argument)
{
    const failure *f = argument;
    const census nothing = {0};

    fake.set_memory(1000, 16u << 20);
    fake.fail(f->function, f->nth, f->code);
    REQUIRE(f->work->run() == GPR_ERROR_MEMORY);
    REQUIRE(strcmp(gpr_last_error()->call, "cuMemAlloc") == 0 &&
            gpr_last_error()->code == OUT_OF_MEMORY);
    expect_no_leak(&nothing, 1, 1);
    fake.set_memory(16u << 20, 16u << 20);
    if (fake.failed()[0] == '\0') return PAST_THE_END;
    note_failed(fake.failed());
    for (int i = 0; i < 2; i++) REQUIRE(f->work->run() == GPR_OK);
    expect_no_violation();
    expect_no_leak(&f->baseline, 1, 1);
    return 0;
}

static void test_giving_back_that_fails_hides_no_failure_to_open(void)
{
    static const char *const releases[] = {"cuMemFreeHost", "cuEventDestroy", "cuStreamDestroy",
                                           "cuCtxPopCurrent", "cuDevicePrimaryCtxRelease"};
    failure f = {.work = &works[0], .baseline = baseline_of(&works[0]), .code = UNKNOWN};

    for (size_t i = 0; i < sizeof releases / sizeof releases[0]; i++) {
        f.function = releases[i];
        for (f.nth = 1; in_child(fail_twice_while_opening, &f, releases[i]) == 0; f.nth++) continue;
        CHECK(f.nth > 1, "opening a device takes nothing that %s gives back", releases[i]);
    }
}

/* A driver newer than the library has failures without a known name: both functions that return a
 * name fail too. */
static void test_a_failure_without_a_name_is_reported_by_its_number(void)
{
    const char *text = NULL;
    const work *work = &works[0];
    const census baseline = baseline_of(work);

    (void)fail_each(work, &baseline, 0, 0, "*", NAMELESS);
    REQUIRE(gpr_driver_ready() == GPR_OK);
    CHECK(gpr_cuda.cuGetErrorName(NAMELESS, &text) != CUDA_SUCCESS, "the fake has a name for %d",
          NAMELESS);
    CHECK(gpr_cuda.cuGetErrorString(NAMELESS, &text) != CUDA_SUCCESS, "the fake can describe %d",
          NAMELESS);
    note_failed("cuGetErrorName");
    note_failed("cuGetErrorString");
}

/* For a GPU newer than NVRTC the library compiles to PTX, by other functions of NVRTC. Runs in a
 * process that has not opened the fakes. */
static int fail_each_for_a_new_gpu(void)
{
    REQUIRE(setenv("FAKE_NVRTC", "archs=75:80", 1) == 0);
    load_fakes();
    for (int i = 0; i < 2; i++) {
        const work *work = i == 0 ? &works[0] : &works[2];
        const census baseline = baseline_of(work);
        const int calls = fail_each(work, &baseline, 1, 0, "*", NVRTC_INTERNAL_ERROR);
        CHECK(calls >= 4, "%s makes %d calls of NVRTC", work->name, calls);
    }
    return check_end();
}

static void test_every_call_for_a_gpu_newer_than_nvrtc_is_reported_too(void)
{
    int status = 0;

    (void)fflush(stdout);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) exit(fail_each_for_a_new_gpu());
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0, "wait status %d", status);
}

/* ---------------------------------------------------------------- memory --------------------- */

/* A device with room for a ring of half the size that the limits allow. */
static int reduce_in_little_memory(const void *argument)
{
    (void)argument;
    REQUIRE(small_array() == GPR_OK); /* opens the device */
    fake.set_memory(fake.bytes(0) + 450000, fake.bytes(1) + 450000);
    REQUIRE(streamed_in_pieces() == GPR_OK);
    REQUIRE(gpr_last_run()->chunks >= STREAMED * sizeof(int32_t) / 90000);
    REQUIRE(many_short_rows() == GPR_OK);
    fake.set_memory(fake.bytes(0) + 100000, fake.bytes(1) + 100000);
    REQUIRE(streamed_in_pieces() == GPR_OK);
    expect_no_violation();
    return 0;
}

static void test_memory_that_runs_out_makes_chunks_smaller(void)
{
    (void)in_child(reduce_in_little_memory, NULL, "little memory");
}

static int reduce_in_no_memory(const void *argument)
{
    (void)argument;
    REQUIRE(small_array() == GPR_OK);
    fake.set_memory(fake.bytes(0) + 1000, fake.bytes(1) + 1000);
    REQUIRE(streamed_in_pieces() == GPR_ERROR_MEMORY);
    REQUIRE(strcmp(gpr_last_error()->name, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    REQUIRE(small_array() == GPR_OK);
    fake.set_memory(16u << 20, 16u << 20);
    REQUIRE(streamed_in_pieces() == GPR_OK);
    expect_no_violation();
    return 0;
}

static void test_no_memory_is_an_error_and_the_next_call_works(void)
{
    (void)in_child(reduce_in_no_memory, NULL, "no memory");
}

/* ---------------------------------------------------------------- compiling ------------------ */

static int meet_a_compile_error(const void *argument)
{
    (void)argument;
    fake.refuse("sequential");
    REQUIRE(streamed_in_pieces() == GPR_ERROR_COMPILE);
    REQUIRE(gpr_last_error()->log != NULL &&
            strstr(gpr_last_error()->log, "refused: gpr::sequential<First, 256u>") != NULL);
    REQUIRE(strcmp(gpr_last_error()->call, "nvrtcCompileProgram") == 0);
    REQUIRE(small_array() == GPR_OK);
    fake.refuse("");
    REQUIRE(streamed_in_pieces() == GPR_OK);
    REQUIRE(fake.programs() == 0);
    expect_no_violation();
    return 0;
}

static void test_a_compile_error_carries_its_log(void)
{
    (void)in_child(meet_a_compile_error, NULL, "compile error");
}

static int meet_a_compile_error_without_a_log(const void *argument)
{
    const char *call = argument;

    fake.refuse("sequential");
    fake.nvrtc_fail(call, 1, NVRTC_INTERNAL_ERROR);
    REQUIRE(streamed_in_pieces() == GPR_ERROR_COMPILE);
    REQUIRE(strcmp(fake.nvrtc_failed(), call) == 0);
    note_failed(call);
    REQUIRE(gpr_last_error()->log == NULL &&
            strcmp(gpr_last_error()->call, "nvrtcCompileProgram") == 0);
    REQUIRE(fake.programs() == 0);
    REQUIRE(streamed_in_pieces() == GPR_ERROR_COMPILE && gpr_last_error()->log != NULL);
    fake.refuse("");
    REQUIRE(streamed_in_pieces() == GPR_OK);
    return 0;
}

static void test_a_log_that_cannot_be_had_hides_no_compile_error(void)
{
    (void)in_child(meet_a_compile_error_without_a_log, "nvrtcGetProgramLogSize", "no log's size");
    (void)in_child(meet_a_compile_error_without_a_log, "nvrtcGetProgramLog", "no log");
}

/* ---------------------------------------------------------------- interrupts, forks ---------- */

static int stop(void *argument)
{
    int *left = argument;

    return --*left <= 0;
}

/* Reduces 3 MB of int32 slowly, stopping at the call number `asks` of the callback; 0:
 * never. */
static gpr_status sum_until(int asks)
{
    enum { COUNT = 800000 };
    int32_t *values = make_values(COUNT);
    const int64_t shape = COUNT;
    int64_t sum = 0;
    gpr_request request = sums_of(GPR_INT32, 1, &shape, values, &sum);

    request.interrupted = asks > 0 ? stop : NULL;
    request.interrupted_arg = &asks;
    const gpr_status status = gpr_reduce(&request);
    if (status == GPR_OK) expect_sums(&sum, 1, COUNT);
    free(values); /* queued work that still reads them is an error under the sanitizers */
    return status;
}

static int interrupt_between_chunks(const void *argument)
{
    (void)argument;
    REQUIRE(sum_until(0) == GPR_OK);
    const census before = count_live();
    fake.set_delays(1, 50000);
    for (int asks = 1; asks <= 3; asks++) {
        REQUIRE(sum_until(asks) == GPR_ERROR_INTERRUPTED);
        REQUIRE(gpr_last_error()->status == GPR_ERROR_INTERRUPTED);
        expect_no_leak(&before, 1, 1);
    }
    fake.set_delays(1, 0);
    REQUIRE(sum_until(0) == GPR_OK);
    expect_no_violation();
    return 0;
}

static void test_an_interrupt_between_chunks_leaves_everything_clean(void)
{
    (void)in_child(interrupt_between_chunks, NULL, "interrupt");
}

static int call_from_within(void *argument)
{
    gpr_status *inner = argument;
    void *data = NULL;

    REQUIRE(gpr_alloc_pinned(100, &data) == GPR_OK); /* as a finaliser that runs here may free */
    REQUIRE(gpr_free_pinned(data) == GPR_OK);
    *inner = small_array();
    return 1;
}

/* A signal handler, or a finaliser, may call the library from inside the callback. */
static int call_from_the_callback(const void *argument)
{
    enum { COUNT = 800000 };
    int32_t *values = make_values(COUNT);
    const int64_t shape = COUNT;
    int64_t sum = 0;
    gpr_status inner = GPR_OK;
    gpr_request request = sums_of(GPR_INT32, 1, &shape, values, &sum);

    (void)argument;
    request.interrupted = call_from_within;
    request.interrupted_arg = &inner;
    fake.set_delays(1, 50000);
    REQUIRE(gpr_reduce(&request) == GPR_ERROR_INTERRUPTED);
    REQUIRE(inner == GPR_ERROR_DEVICE);
    free(values);
    REQUIRE(small_array() == GPR_OK);
    expect_no_violation();
    return 0;
}

static void test_a_call_from_the_interrupt_callback_is_refused_not_stuck(void)
{
    (void)in_child(call_from_the_callback, NULL, "call from the callback");
}

static int use_after_fork(const void *argument)
{
    (void)argument;
    REQUIRE(small_array() == GPR_ERROR_DEVICE);
    REQUIRE(strstr(gpr_last_error()->message, "forked") != NULL);
    REQUIRE(gpr_cuda_available() == GPR_ERROR_DEVICE);
    return 0;
}

static int fork_after_use(const void *argument)
{
    (void)argument;
    REQUIRE(small_array() == GPR_OK);
    REQUIRE(in_child(use_after_fork, NULL, "use after fork") == 0);
    REQUIRE(small_array() == GPR_OK);
    expect_no_violation();
    return 0;
}

static void test_a_forked_child_is_told_so_and_its_parent_goes_on(void)
{
    (void)in_child(fork_after_use, NULL, "fork after use");
}

/* ---------------------------------------------------------------- scratch -------------------- */

static gpr_status sum_on_a_new_stream(void)
{
    enum { COUNT = 200000 };
    static void *data, *result;
    const int64_t shape = COUNT;
    if (data == NULL) {
        int32_t *values = make_values(COUNT);
        REQUIRE(gpr_alloc_device(0, COUNT * sizeof *values, &data) == GPR_OK);
        REQUIRE(gpr_upload(0, data, values, COUNT * sizeof *values) == GPR_OK);
        REQUIRE(gpr_alloc_device(0, sizeof(int64_t), &result) == GPR_OK);
        free(values);
    }
    gpr_request request = sums_of(GPR_INT32, 1, &shape, data, result);
    request.on_device = request.result_on_device = 1;
    request.stream = fake.make_stream(0);
    const gpr_status status = gpr_reduce(&request);
    fake.wait();
    fake.free_stream(request.stream);
    return status;
}

/* Whether a stream's work has ended cannot be found out: its scratch is left alone. */
static int ask_in_vain_for_idle_scratch(const void *argument)
{
    enum { MANY = 12 };

    (void)argument;
    for (int i = 0; i < MANY; i++) REQUIRE(sum_on_a_new_stream() == GPR_OK);
    fake.fail("cuEventQuery", 1, UNKNOWN);
    REQUIRE(sum_on_a_new_stream() == GPR_OK && strcmp(fake.failed(), "cuEventQuery") == 0);
    note_failed(fake.failed());
    const int before = fake.live("device");
    for (int i = 0; i < MANY; i++) REQUIRE(sum_on_a_new_stream() == GPR_OK);
    REQUIRE(fake.live("device") == before);
    expect_no_violation();
    return 0;
}

/* A graph that takes no more objects, and an object that cannot be given back. */
static int meet_a_full_graph(const void *argument)
{
    (void)argument;
    REQUIRE(results_of_a_graph() == GPR_OK);
    fake.set("objects", "0");
    fake.fail("cuUserObjectRelease", 1, UNKNOWN);
    REQUIRE(results_of_a_graph() == GPR_ERROR_CUDA &&
            strcmp(gpr_last_error()->call, "cuGraphRetainUserObject") == 0);
    REQUIRE(strcmp(fake.failed(), "cuUserObjectRelease") == 0);
    note_failed(fake.failed());
    fake.set("objects", "1");
    const int before = fake.live("device");
    REQUIRE(results_of_a_graph() == GPR_OK && fake.live("device") == before);
    expect_no_violation();
    return 0;
}

static void test_scratch_survives_what_is_not_its_fault(void)
{
    (void)in_child(ask_in_vain_for_idle_scratch, NULL, "idle scratch");
    (void)in_child(meet_a_full_graph, NULL, "a full graph");
}

/* Children have the digests of all sources, which take each of them longer than its work. */
static void hash_sources(void)
{
    char hex[GPR_SHA256_HEX];

    for (int i = 0; i < GPR_KERNEL_COUNT; i++) gpr_program_digest(i, hex);
    gpr_several_digest(hex);
}

int main(void)
{
    check_begin();
    hash_sources();
    REQUIRE(setenv("GPUREDUCE_CACHE_BYTES", "0", 1) == 0);
    REQUIRE(setenv("FAKE_CUDA", "flags=4", 1) ==
            0); /* waiting threads sleep: else the calls depend on time */
    failed = mmap(NULL, FUNCTIONS * sizeof *failed, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(failed != MAP_FAILED);
    test_every_call_for_a_gpu_newer_than_nvrtc_is_reported_too();
    load_fakes();
    test_memory_that_runs_out_makes_chunks_smaller();
    test_no_memory_is_an_error_and_the_next_call_works();
    test_scratch_survives_what_is_not_its_fault();
    test_a_compile_error_carries_its_log();
    test_a_log_that_cannot_be_had_hides_no_compile_error();
    test_an_interrupt_between_chunks_leaves_everything_clean();
    test_a_call_from_the_interrupt_callback_is_refused_not_stuck();
    test_a_forked_child_is_told_so_and_its_parent_goes_on();
    test_every_failed_call_is_reported_and_leaves_nothing_behind();
    test_giving_back_that_fails_hides_no_failure_to_open();
    test_a_failure_without_a_name_is_reported_by_its_number();
    if (STEP == 1) expect_all_failed();
    return check_end();
}
