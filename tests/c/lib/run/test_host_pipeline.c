/* The host path over a driver that really is asynchronous, dawdles and checks every pointer: random
 * arrays through small rings, against the slow reference.
 *
 * Values are small whole numbers, so that every order of folding gives the same result, to the
 * bit. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fakes/fakes.h"
#include "gpureduce.h"
#include "lib/base/convert.h"
#include "lib/base/registry.h"
#include "lib/base/status.h"
#include "naive.h"
#include "request.h"

enum { KIB = 1 << 10, MIB = 1 << 20, MOST_AXES = 4, THREADS = 6 };

typedef enum place { IN_MEMORY, IN_PINNED, ON_DEVICE, PLACES } place;

/* ---------------------------------------------------------------- random arrays -------------- */

typedef struct random {
    uint64_t state;
} random_source;

static uint64_t draw(random_source *source)
{
    return check_draw(&source->state);
}

static int64_t between(random_source *source, int64_t low, int64_t high)
{
    return low + (int64_t)(draw(source) % (uint64_t)(high - low + 1));
}

static int one_in(random_source *source, int64_t n)
{
    return between(source, 1, n) == 1;
}

/* A request and all the memory it points to. */
typedef struct test_case {
    gpr_request request;
    place place;
    int64_t shape[MOST_AXES], strides[MOST_AXES], mask_strides[MOST_AXES];
    uint64_t elements, rows;
    char *memory;          /* of the elements, in host memory */
    const char *host_data; /* of the first one there, if the array is on the device */
    void *pinned, *on_device;
    uint8_t *mask;
    char *result;
    char text[256]; /* what to print if it fails */
} test_case;

static void free_case(test_case *c)
{
    if (c->pinned != NULL) REQUIRE(gpr_free_pinned(c->pinned) == GPR_OK);
    if (c->on_device != NULL) REQUIRE(gpr_free_device(0, c->on_device) == GPR_OK);
    free(c->memory);
    free(c->mask);
    free(c->result);
}

static void draw_shape(random_source *source, uint64_t most, test_case *c)
{
    uint64_t room = (uint64_t)between(source, 1, (int64_t)most);

    c->request.ndim = (int)between(source, 1, MOST_AXES);
    c->request.reduced = (int)between(source, 1, c->request.ndim);
    c->elements = c->rows = 1;
    for (int left = c->request.ndim; left > 0; left--) {
        /* The large axis is at either end or in the middle. */
        int axis = 0;
        do axis = (int)between(source, 0, c->request.ndim - 1);
        while (c->shape[axis] != 0);
        const int64_t extent =
            left == 1 ? (int64_t)room : between(source, 1, room < 40 ? (int64_t)room : 40);
        c->shape[axis] = extent;
        c->elements *= (uint64_t)extent;
        room /= (uint64_t)extent;
    }
    for (int i = 0; i < c->request.ndim - c->request.reduced; i++) c->rows *= (uint64_t)c->shape[i];
}

/* Strides of an array whose axes lie in memory in any order, some backwards, some spread out, some
 * repeated. Returns the bytes it takes; *start is where its first element is. */
static uint64_t draw_strides(random_source *source, int plain, int64_t bytes, test_case *c,
                             uint64_t *start)
{
    int64_t step = bytes, first = 0;
    int done[MOST_AXES] = {0};

    for (int k = c->request.ndim - 1; k >= 0; k--) {
        int axis = k;
        if (!plain && one_in(source, 3)) {
            do axis = (int)between(source, 0, c->request.ndim - 1);
            while (done[axis]);
        }
        while (done[axis]) axis = (axis + c->request.ndim - 1) % c->request.ndim;
        done[axis] = 1;
        if (!plain && one_in(source, 12)) {
            c->strides[axis] = 0;
            continue;
        }
        if (!plain && one_in(source, 6)) step *= between(source, 2, 3);
        c->strides[axis] = step;
        step *= c->shape[axis];
        if (!plain && one_in(source, 5)) {
            first += (c->shape[axis] - 1) * c->strides[axis];
            c->strides[axis] = -c->strides[axis];
        }
    }
    *start = (uint64_t)first;
    return (uint64_t)step;
}

/* Whole numbers that no operator rounds. */
static void draw_values(random_source *source, gpr_operator op, gpr_dtype dtype, uint64_t count,
                        char *memory)
{
    const size_t bytes = gpr_dtype_bytes(dtype);
    const gpr_kind kind = gpr_dtype_rows[dtype].kind;
    const int is_signed =
        kind == GPR_KIND_SIGNED || kind == GPR_KIND_FLOAT || kind == GPR_KIND_COMPLEX;
    const int64_t rare = between(source, 2, 100000);

    for (uint64_t i = 0; i < count; i++) {
        int64_t value = 0;
        switch (op) {
        case GPR_OP_PROD: value = is_signed && (draw(source) & 1) ? -1 : 1; break;
        case GPR_OP_ANY: value = one_in(source, rare); break;
        case GPR_OP_ALL: value = !one_in(source, rare); break;
        case GPR_OP_MIN:
        case GPR_OP_MAX:
            value = is_signed ? between(source, -120, 120) : between(source, 0, 250);
            break;
        default: value = is_signed ? between(source, -3, 4) : between(source, 0, 3); break;
        }
        gpr_convert(GPR_INT64, &value, dtype, memory + i * bytes, 1);
    }
}

static void draw_mask(random_source *source, test_case *c)
{
    int64_t step = 1;

    c->mask = malloc(c->elements);
    REQUIRE(c->mask != NULL);
    for (uint64_t i = 0; i < c->elements; i++)
        c->mask[i] = one_in(source, 3) ? 0 : (uint8_t)between(source, 1, 255);
    for (int i = c->request.ndim - 1; i >= 0; i--) {
        c->mask_strides[i] = one_in(source, 4) ? 0 : step;
        if (c->mask_strides[i] != 0) step *= c->shape[i];
    }
    c->request.mask = c->mask;
    c->request.mask_strides = c->mask_strides;
}

static void draw_kernel(random_source *source, gpr_request *request)
{
    const int kernel =
        one_in(source, 3) ? GPR_KERNEL_auto : (int)between(source, 0, GPR_KERNEL_COUNT - 1);
    const gpr_kernel_row *row = &gpr_kernel_rows[kernel];
    /* as many blocks of any size as the fake GPU holds at once */
    const uint32_t most = (row->flags & GPR_COOPERATIVE) != 0 ? 4 : 300;

    request->kernel = (row->flags & GPR_NEEDS_CCCL) != 0 ? -1 : kernel;
    if (request->kernel < 0) return;
    if (one_in(source, 2) && row->block_rule != GPR_BLOCK_WARP)
        request->block_size = 32u << between(source, 0, 5);
    if (one_in(source, 4) && row->cover == GPR_STRIDE)
        request->grid_size = (uint32_t)between(source, 1, most);
}

/* Reverses the bytes of each part of an element. */
static void reverse(char *element, gpr_dtype dtype)
{
    const size_t bytes = gpr_part_bytes(dtype);

    for (char *part = element; part < element + gpr_dtype_bytes(dtype); part += bytes) {
        for (size_t i = 0; i < bytes / 2; i++) {
            const char byte = part[i];
            part[i] = part[bytes - 1 - i];
            part[bytes - 1 - i] = byte;
        }
    }
}

static void draw_case(random_source *source, place place, uint64_t most_bytes, test_case *c)
{
    uint64_t start = 0;
    gpr_request *r = &c->request;

    memset(c, 0, sizeof *c);
    r->compute = GPR_DTYPE_DEFAULT;
    do { /* not every operator takes every dtype */
        r->op = (gpr_operator)between(source, 0, GPR_OP_COUNT - 1);
        r->dtype = (gpr_dtype)between(source, 0, GPR_DTYPE_COUNT - 1);
    } while (gpr_result_dtype(r->op, r->dtype, r->compute) == GPR_DTYPE_DEFAULT);
    c->place = place;
    const size_t bytes = gpr_dtype_bytes(r->dtype);
    draw_shape(source, (one_in(source, 4) ? 20 * KIB : most_bytes) / bytes, c);
    const int plain = c->place == IN_PINNED || one_in(source, 3);
    const uint64_t spread = draw_strides(source, plain, (int64_t)bytes, c, &start);
    const uint64_t misplaced = plain || c->place != IN_MEMORY ? 0 : (uint64_t)between(source, 0, 7);
    c->memory = malloc(spread + misplaced);
    c->result = malloc((r->op == GPR_OP_MINMAX ? 2 : 1) * c->rows *
                       gpr_dtype_bytes(gpr_result_dtype(r->op, r->dtype, r->compute)));
    REQUIRE(c->memory != NULL && c->result != NULL);
    draw_values(source, r->op, r->dtype, spread / bytes, c->memory + misplaced);
    r->shape = c->shape;
    r->strides = c->strides;
    r->data = c->memory + misplaced + start;
    r->result = c->result;
    r->device = 0;
    if (c->place == IN_MEMORY && one_in(source, 4)) {
        r->byteswapped = 1;
        for (uint64_t i = 0; i < spread / bytes; i++)
            reverse(c->memory + misplaced + i * bytes, r->dtype);
    }
    r->nat_last = r->dtype == GPR_INT64 && c->place != ON_DEVICE && one_in(source, 2);
    if (c->place == IN_MEMORY &&
        gpr_fold_rows[gpr_operator_rows[r->op].fold].acc_kind != GPR_ACC_INDEXED &&
        one_in(source, 4))
        draw_mask(source, c);
    if (c->place == IN_PINNED) {
        REQUIRE(gpr_alloc_pinned(spread, &c->pinned) == GPR_OK);
        memcpy(c->pinned, c->memory, spread);
        r->data = c->pinned;
    }
    if (c->place == ON_DEVICE) {
        REQUIRE(gpr_alloc_device(0, spread, &c->on_device) == GPR_OK);
        REQUIRE(gpr_upload(0, c->on_device, c->memory, spread) == GPR_OK);
        r->data = (char *)c->on_device + start;
        r->on_device = 1;
        c->host_data = c->memory + start;
    }
    if (c->place != ON_DEVICE || plain)
        draw_kernel(source, r);
    else
        r->kernel = -1;
    gpr_rule rule;
    REQUIRE(rule_of(r, &rule) == GPR_OK);
    /* Not every kernel folds every accumulator, and but one of them reads masks where no element
     * is neutral. */
    if (r->kernel >= 0 && (gpr_check_kernel_folds(&gpr_kernel_rows[r->kernel], &rule) != GPR_OK ||
                           (r->mask != NULL && rule.acc_kind != GPR_ACC_NUMBER))) {
        r->kernel = -1;
        r->block_size = r->grid_size = 0;
    }
    (void)snprintf(c->text, sizeof c->text,
                   "%s %s place %d shape %lld %lld %lld %lld reduced %d of %d kernel %d block %u "
                   "grid %u mask %d",
                   gpr_operator_name(r->op), gpr_dtype_name(r->dtype), c->place,
                   (long long)c->shape[0], (long long)c->shape[1], (long long)c->shape[2],
                   (long long)c->shape[3], r->reduced, r->ndim, r->kernel, r->block_size,
                   r->grid_size, r->mask != NULL);
}

/* ---------------------------------------------------------------- the reference -------------- */

/* Folds the element at `index`, unless the mask leaves it out. */
static void fold_at(const test_case *c, const gpr_rule *rule, const int64_t *index,
                    naive_fold *fold)
{
    const gpr_request *r = &c->request;
    const size_t bytes = gpr_dtype_bytes(r->dtype);
    const char *at = c->place == IN_MEMORY   ? r->data
                     : c->place == ON_DEVICE ? c->host_data
                                             : c->memory;
    const uint8_t *mask = r->mask;
    char element[16];

    for (int i = 0; i < r->ndim; i++) {
        at += index[i] * c->strides[i];
        if (mask != NULL) mask += index[i] * c->mask_strides[i];
    }
    memcpy(element, at, bytes);
    if (r->byteswapped) reverse(element, r->dtype);
    if (r->nat_last) naive_put_nat_last(element);
    if (mask != NULL && *mask == 0)
        naive_pass(fold);
    else
        naive_step_fold(fold, rule, naive_load(r->dtype, element));
}

/* Whether every row of c->result is right. */
static int is_right(const test_case *c)
{
    const gpr_request *r = &c->request;
    const uint64_t n = c->elements / c->rows;
    int64_t index[MOST_AXES] = {0};
    gpr_rule rule;

    REQUIRE(rule_of(r, &rule) == GPR_OK);
    const size_t bytes = gpr_dtype_bytes(rule.result);
    for (uint64_t row = 0; row < c->rows; row++) {
        naive_fold fold = {0};
        for (uint64_t i = 0; i < n; i++) {
            fold_at(c, &rule, index, &fold);
            for (int axis = r->ndim - 1; axis >= 0 && ++index[axis] == c->shape[axis]; axis--)
                index[axis] = 0;
        }
        if (!naive_agrees(&fold, &rule, c->result + row * bytes, c->rows * bytes)) return 0;
    }
    return 1;
}

/* ---------------------------------------------------------------- tests ---------------------- */

static void run_case(test_case *c)
{
    const gpr_status status = gpr_reduce(&c->request);

    CHECK(status == GPR_OK, "%s: %s", c->text, gpr_last_error()->message);
    if (status == GPR_OK) CHECK(is_right(c), "%s", c->text);
    CHECK(fake.violation()[0] == '\0', "%s: %s", c->text, fake.violation());
}

static void draw_limits(random_source *source, gpr_limits *limits)
{
    limits->device_bytes = (uint64_t)between(source, 2, 5) * MIB / 2;
    limits->pinned_bytes = (uint64_t)between(source, 2, 5) * MIB / 2;
    limits->cpu_threads = (uint32_t)between(source, 1, 4);
    REQUIRE(gpr_set_limits(limits) == GPR_OK);
}

/* After a call with a host array no more memory is in use than the limits allow. */
static void expect_memory_within(const gpr_limits *limits, const test_case *c,
                                 const uint64_t peak[2])
{
    const uint64_t own =
        c->place == IN_PINNED ? c->elements * gpr_dtype_bytes(c->request.dtype) : 0;

    CHECK(peak[0] <= limits->device_bytes, "%s: %llu bytes of device memory, limit %llu", c->text,
          (unsigned long long)peak[0], (unsigned long long)limits->device_bytes);
    CHECK(peak[1] - own <= limits->pinned_bytes, "%s: %llu bytes of pinned memory, limit %llu",
          c->text, (unsigned long long)(peak[1] - own), (unsigned long long)limits->pinned_bytes);
}

/* Bytes of the elements that are not repeats of others: no more may be read. */
static uint64_t distinct_bytes(const test_case *c)
{
    uint64_t bytes = gpr_dtype_bytes(c->request.dtype);

    for (int i = 0; i < c->request.ndim; i++)
        if (c->strides[i] != 0) bytes *= (uint64_t)c->shape[i];
    return bytes;
}

static void test_random_arrays_reduce_right_and_within_the_limits(int cases)
{
    random_source source = {check_random()};
    gpr_limits limits;

    gpr_get_limits(&limits);
    for (int i = 0; i < cases && check_failed < 5; i++) {
        test_case c;
        if (one_in(&source, 4)) draw_limits(&source, &limits);
        fake.set_delays((unsigned)draw(&source), one_in(&source, 3) ? 60 : 0);
        draw_case(&source, one_in(&source, 2) ? IN_MEMORY : IN_PINNED, 3 * MIB, &c);
        run_case(&c);
        fake.reset_peaks(); /* the first run may still have found the buffers of older limits */
        run_case(&c);
        const uint64_t peak[2] = {fake.peak(0), fake.peak(1)};
        if (distinct_bytes(&c) > 64 * KIB) /* small ones need no buffers, and free none */
            expect_memory_within(&limits, &c, peak);
        free_case(&c);
    }
    fake.set_delays(1, 0);
}

/* Scratch of device arrays does not count towards the limits. */
static void test_random_device_arrays_reduce_right(int cases)
{
    random_source source = {check_random()};

    for (int i = 0; i < cases && check_failed < 5; i++) {
        test_case c;
        fake.set_delays((unsigned)draw(&source), one_in(&source, 3) ? 60 : 0);
        draw_case(&source, ON_DEVICE, MIB, &c);
        run_case(&c);
        free_case(&c);
    }
    fake.set_delays(1, 0);
}

/* Rows of two axes that make no run, read by 16 bytes where their elements lie side by side. */
static void test_device_rows_of_items_reduce_right(void)
{
    static const gpr_dtype dtypes[] = {GPR_FLOAT16, GPR_BFLOAT16, GPR_FLOAT32, GPR_FLOAT64,
                                       GPR_INT32};
    random_source source = {check_random()};

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        test_case c = {.place = ON_DEVICE, .rows = (uint64_t)between(&source, 1, 5)};
        gpr_request *r = &c.request;
        const int64_t bytes = (int64_t)gpr_dtype_bytes(dtypes[i]),
                      inner = 16 * between(&source, 1, 40);
        const int64_t shape[3] = {(int64_t)c.rows, between(&source, 2, 40), inner};
        const int64_t strides[3] = {inner * bytes, (int64_t)c.rows * inner * bytes, bytes};

        memcpy(c.shape, shape, sizeof shape);
        memcpy(c.strides, strides, sizeof strides);
        c.elements = (uint64_t)(shape[0] * shape[1] * shape[2]);
        c.memory = malloc(c.elements * (size_t)bytes);
        c.result = malloc(c.rows * 8);
        REQUIRE(c.memory != NULL && c.result != NULL);
        draw_values(&source, GPR_OP_SUM, dtypes[i], c.elements, c.memory);
        REQUIRE(gpr_alloc_device(0, c.elements * (size_t)bytes, &c.on_device) == GPR_OK);
        REQUIRE(gpr_upload(0, c.on_device, c.memory, c.elements * (size_t)bytes) == GPR_OK);
        *r = (gpr_request){
            .op = GPR_OP_SUM, .dtype = dtypes[i], .compute = GPR_DTYPE_DEFAULT, .kernel = -1};
        r->ndim = 3;
        r->reduced = 2;
        r->shape = c.shape;
        r->strides = c.strides;
        r->data = c.on_device;
        r->result = c.result;
        r->on_device = 1;
        c.host_data = c.memory;
        (void)snprintf(c.text, sizeof c.text, "sums of %s, %lld rows of %lld by %lld",
                       gpr_dtype_name(dtypes[i]), (long long)shape[0], (long long)shape[1],
                       (long long)shape[2]);
        run_case(&c);
        free_case(&c);
    }
}

static void *run_cases(void *argument)
{
    random_source source = {*(uint64_t *)argument};

    for (int i = 0; i < 15; i++) {
        test_case c;
        draw_case(&source, (place)between(&source, 0, PLACES - 1), MIB, &c);
        const gpr_status status = gpr_reduce(&c.request);
        if (status != GPR_OK || !is_right(&c))
            (void)fprintf(stderr, "%s: %s\n", c.text, gpr_last_error()->message);
        REQUIRE(status == GPR_OK);
        REQUIRE(is_right(&c));
        free_case(&c);
    }
    return NULL;
}

static void test_many_threads_share_a_device(void)
{
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS];

    fake.set_delays((unsigned)check_random(), 100);
    for (int i = 0; i < THREADS; i++) {
        seeds[i] = check_random();
        REQUIRE(pthread_create(&threads[i], NULL, run_cases, &seeds[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) REQUIRE(pthread_join(threads[i], NULL) == 0);
    CHECK(fake.violation()[0] == '\0', "%s", fake.violation());
    fake.set_delays(1, 0);
}

/* Memory ran out and the ring was cut down, to a size that is no multiple of anything. */
static void test_every_slot_of_a_ring_that_was_cut_down_is_aligned(void)
{
    enum { ROWS = 300001 };
    const int64_t shape[2] = {ROWS, 1};
    float *values = malloc(ROWS * sizeof *values), *sums = malloc(ROWS * sizeof *sums);
    gpr_limits limits = {.device_bytes = 64 * MIB, .pinned_bytes = 64 * MIB, .cpu_threads = 2};
    gpr_request request;

    REQUIRE(values != NULL && sums != NULL);
    for (int i = 0; i < ROWS; i++) values[i] = (float)i;
    REQUIRE(gpr_set_limits(&limits) == GPR_OK); /* the ring is made anew */
    request = sums_of(GPR_FLOAT32, 2, shape, values, sums);
    fake.set_memory(64 * MIB, MIB);
    CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
    CHECK(gpr_last_run()->chunks > 1, "%llu chunks", (unsigned long long)gpr_last_run()->chunks);
    CHECK(memcmp(sums, values, ROWS * sizeof *values) == 0, "wrong sums");
    CHECK(fake.violation()[0] == '\0', "%s", fake.violation());
    fake.set_memory(UINT64_C(1) << 34, UINT64_C(1) << 34);
    free(values);
    free(sums);
}

/* Rows longer than a chunk are merged from their own pieces, in order. */
static void test_long_rows_are_cut_and_put_together(void)
{
    enum { ROWS = 4, COUNT = 100003 };
    const int64_t shape[2] = {ROWS, COUNT};
    const gpr_limits limits = {.device_bytes = MIB, .pinned_bytes = MIB, .cpu_threads = 2};
    int64_t *values = malloc(ROWS * COUNT * sizeof *values), sums[ROWS] = {0};
    gpr_request request;

    REQUIRE(values != NULL && gpr_set_limits(&limits) == GPR_OK);
    for (int64_t i = 0; i < (int64_t)ROWS * COUNT; i++) values[i] = 1 + i / COUNT;
    request = sums_of(GPR_INT64, 2, shape, values, sums);
    CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
    CHECK(gpr_last_run()->chunks >= 3 * ROWS, "%llu chunks",
          (unsigned long long)gpr_last_run()->chunks);
    for (int64_t row = 0; row < ROWS; row++)
        CHECK(sums[row] == (row + 1) * COUNT, "row %lld: %lld", (long long)row,
              (long long)sums[row]);
    free(values);
}

/* A last chunk that is shorter than the others is no reason to compile again. */
static void test_one_program_serves_all_chunks(void)
{
    enum { COUNT = 700001 };
    const int64_t shape[2] = {1, COUNT};
    const gpr_limits limits = {
        .device_bytes = 64 * MIB, .pinned_bytes = 64 * MIB, .cpu_threads = 2};
    float *values = calloc(COUNT, sizeof *values), sum = 1;
    gpr_request request;

    REQUIRE(values != NULL && gpr_set_limits(&limits) == GPR_OK);
    request = sums_of(GPR_FLOAT32, 2, shape, values, &sum);
    const int before = fake.compiles();
    for (int64_t count = COUNT; count > 400000; count -= 99999) {
        const int64_t shorter[2] = {1, count};
        request.shape = shorter;
        CHECK(gpr_reduce(&request) == GPR_OK && sum == 0, "%s", gpr_last_error()->message);
        CHECK(gpr_last_run()->chunks <= 8 && gpr_last_run()->chunks >= 4, "%llu chunks",
              (unsigned long long)gpr_last_run()->chunks);
    }
    CHECK(fake.compiles() - before == 1, "%d programs", fake.compiles() - before);
    free(values);
}

/* Pinned arrays are copied from where they are; ordinary ones never are. */
static void test_pinned_arrays_skip_staging(void)
{
    enum { COUNT = 200000 };
    const int64_t shape[2] = {1, COUNT};
    int64_t sum = 0;
    void *data = NULL;
    gpr_request request;

    REQUIRE(gpr_alloc_pinned(COUNT * sizeof(int64_t), &data) == GPR_OK);
    for (int64_t i = 0; i < COUNT; i++) ((int64_t *)data)[i] = i;
    request = sums_of(GPR_INT64, 2, shape, data, &sum);
    fake.watch(data, COUNT * sizeof(int64_t));
    CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
    CHECK(sum == (int64_t)COUNT * (COUNT - 1) / 2, "%lld", (long long)sum);
    CHECK(fake.watched() == COUNT * sizeof(int64_t), "%llu bytes",
          (unsigned long long)fake.watched());
    CHECK(gpr_last_run()->stage_seconds[GPR_STAGE_STAGE] == 0, "%g",
          gpr_last_run()->stage_seconds[GPR_STAGE_STAGE]);

    const uint64_t before = fake.pageable();
    int64_t *ordinary = malloc(COUNT * sizeof(int64_t));
    REQUIRE(ordinary != NULL);
    memcpy(ordinary, data, COUNT * sizeof(int64_t));
    request.data = ordinary;
    CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
    CHECK(sum == (int64_t)COUNT * (COUNT - 1) / 2, "%lld", (long long)sum);
    CHECK(fake.pageable() == before, "%llu bytes", (unsigned long long)(fake.pageable() - before));
    CHECK(gpr_last_run()->stage_seconds[GPR_STAGE_STAGE] > 0, "%g",
          gpr_last_run()->stage_seconds[GPR_STAGE_STAGE]);
    free(ordinary);
    REQUIRE(gpr_free_pinned(data) == GPR_OK);
}

/* Pinned arrays, ordinary ones and the results of device arrays each need other parts of the ring.
 * It grows for each of them once, and keeps what the others need, within the limits. */
static void test_switches_between_pinned_and_ordinary_arrays_allocate_nothing(void)
{
    enum { SOURCES = 3, ROUNDS = 4, ROWS = 40000, COUNT = 16 };
    const int64_t shape[2] = {ROWS, COUNT};
    const uint64_t bytes = (uint64_t)ROWS * COUNT * sizeof(int64_t);
    const gpr_limits limits = {.device_bytes = 3 * MIB, .pinned_bytes = 2 * MIB, .cpu_threads = 2};
    int64_t *values = malloc(bytes), *sums = malloc(ROWS * sizeof *sums);
    void *sources[SOURCES] = {values, NULL, NULL};
    uint64_t allocated[2] = {0, 0};

    REQUIRE(values != NULL && sums != NULL && gpr_set_limits(&limits) == GPR_OK);
    for (int64_t i = 0; i < (int64_t)ROWS * COUNT; i++) values[i] = i / COUNT;
    REQUIRE(gpr_alloc_pinned(bytes, &sources[1]) == GPR_OK);
    memcpy(sources[1], values, bytes);
    REQUIRE(gpr_alloc_device(0, bytes, &sources[2]) == GPR_OK);
    REQUIRE(gpr_upload(0, sources[2], values, bytes) == GPR_OK);
    const uint64_t own[2] = {fake.bytes(0), fake.bytes(1)};
    fake.reset_peaks();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SOURCES; i++) {
            gpr_request request = sums_of(GPR_INT64, 2, shape, sources[i], sums);

            request.on_device = i == 2;
            memset(sums, 0, ROWS * sizeof *sums);
            CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
            for (int64_t row = 0; row < ROWS; row++)
                CHECK(sums[row] == row * COUNT, "source %d, row %lld: %lld", i, (long long)row,
                      (long long)sums[row]);
        }
        for (int pinned = 0; pinned < 2 && round > 0; pinned++)
            CHECK(fake.allocated(pinned) == allocated[pinned], "round %d: %llu allocations", round,
                  (unsigned long long)(fake.allocated(pinned) - allocated[pinned]));
        for (int pinned = 0; pinned < 2; pinned++) allocated[pinned] = fake.allocated(pinned);
    }
    CHECK(fake.peak(0) - own[0] <= limits.device_bytes, "%llu bytes",
          (unsigned long long)(fake.peak(0) - own[0]));
    CHECK(fake.peak(1) - own[1] <= limits.pinned_bytes, "%llu bytes",
          (unsigned long long)(fake.peak(1) - own[1]));
    REQUIRE(gpr_free_pinned(sources[1]) == GPR_OK && gpr_free_device(0, sources[2]) == GPR_OK);
    free(values);
    free(sums);
}

/* A grid that the caller chose costs a partial a block for every row; the limits hold all the
 * same. */
static void test_large_grids_over_many_rows_stay_within_the_limits(void)
{
    enum { ROWS = 2000, COUNT = 40 };
    static int64_t values[ROWS * COUNT], sums[ROWS];
    const int64_t shape[2] = {ROWS, COUNT};
    const gpr_limits limits = {.device_bytes = 2 * MIB, .pinned_bytes = 2 * MIB, .cpu_threads = 2};
    gpr_request request;

    for (int i = 0; i < ROWS * COUNT; i++) values[i] = i / COUNT;
    request = sums_of(GPR_INT64, 2, shape, values, sums);
    REQUIRE(gpr_find_kernel("two_kernel", &request.kernel) == GPR_OK);
    request.grid_size = 500;
    REQUIRE(gpr_set_limits(&limits) == GPR_OK);
    fake.reset_peaks();
    for (int rows = ROWS; rows > 100; rows = 150) {
        const int64_t few[2] = {rows, COUNT};
        request.shape = few;
        CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
        for (int64_t row = 0; row < rows; row++)
            CHECK(sums[row] == row * COUNT, "row %lld of %d", (long long)row, rows);
        CHECK(fake.peak(0) <= limits.device_bytes, "%llu bytes for %d rows",
              (unsigned long long)fake.peak(0), rows);
        if (rows == 150) break;
    }
}

/* Rows of elements that follow each other. */
static void make_rows(random_source *source, gpr_operator op, gpr_dtype dtype, const char *kernel,
                      uint32_t block, uint64_t rows, uint64_t n, test_case *c)
{
    const size_t bytes = gpr_dtype_bytes(dtype);

    memset(c, 0, sizeof *c);
    c->rows = rows;
    c->elements = rows * n;
    c->shape[0] = (int64_t)rows;
    c->shape[1] = (int64_t)n;
    c->strides[0] = (int64_t)(n * bytes);
    c->strides[1] = (int64_t)bytes;
    c->memory = malloc(c->elements * bytes);
    c->result = malloc(rows * gpr_dtype_bytes(gpr_result_dtype(op, dtype, GPR_DTYPE_DEFAULT)));
    REQUIRE(c->memory != NULL && c->result != NULL);
    draw_values(source, op, dtype, c->elements, c->memory);
    c->request = sums_of(dtype, 2, c->shape, c->memory, c->result);
    c->request.op = op;
    c->request.strides = c->strides;
    c->request.block_size = block;
    REQUIRE(gpr_find_kernel(kernel, &c->request.kernel) == GPR_OK);
    (void)snprintf(c->text, sizeof c->text, "%s %s by %s, %llu rows of %llu", gpr_operator_name(op),
                   gpr_dtype_name(dtype), kernel, (unsigned long long)rows, (unsigned long long)n);
}

/* Calls that need the most scratch for their elements, each another kind: partials of a pass, of
 * rows with a rest each, of a second pass, counters of rows, and of exact sums. What one of them
 * leaves is there when the next one begins. */
static void test_scratch_of_several_calls_stays_within_the_limit(void)
{
    static const struct {
        gpr_operator op;
        gpr_dtype dtype;
        const char *kernel;
        uint64_t rows, n;
    } calls[] = {
        {GPR_OP_VAR, GPR_BOOL, "interleaved_modulo", 1, 448568},
        {GPR_OP_VAR, GPR_BOOL, "last_block", 3000, 129},
        {GPR_OP_SUM, GPR_FLOAT64, "exact", 400, 300},
        {GPR_OP_STD, GPR_BOOL, "sequential", 3000, 129},
        {GPR_OP_ANY, GPR_BOOL, "last_block", 12000, 33},
        {GPR_OP_MEAN, GPR_INT8, "interleaved_strided", 1, 300000},
    };
    enum { CALLS = sizeof calls / sizeof *calls, WARP = 32 };
    random_source source = {check_random()};
    const gpr_limits limits = {.device_bytes = MIB, .pinned_bytes = MIB, .cpu_threads = 2};
    test_case cases[CALLS];

    REQUIRE(gpr_set_limits(&limits) == GPR_OK);
    for (int i = 0; i < CALLS; i++) {
        make_rows(&source, calls[i].op, calls[i].dtype, calls[i].kernel, WARP, calls[i].rows,
                  calls[i].n, &cases[i]);
        run_case(&cases[i]); /* the first one frees the buffers of other limits */
        if (i == 0) fake.reset_peaks();
        run_case(&cases[i]);
        const uint64_t peak[2] = {fake.peak(0), fake.peak(1)};
        expect_memory_within(&limits, &cases[i], peak);
    }
    for (int i = 0; i < CALLS; i++) free_case(&cases[i]);
}

/* ---------------------------------------------------------------- two arrays ----------------- */

/* A random array of `n` elements with a step, of small whole numbers; its memory is returned. */
static char *draw_factor(random_source *source, uint64_t n, place where, gpr_factor *factor)
{
    static const gpr_dtype dtypes[] = {GPR_BOOL,    GPR_INT8,    GPR_INT64,    GPR_FLOAT16,
                                       GPR_FLOAT32, GPR_FLOAT64, GPR_COMPLEX64};
    const int64_t step = where == IN_PINNED ? 1 : between(source, -2, 3);

    factor->dtype = dtypes[between(source, 0, sizeof dtypes / sizeof dtypes[0] - 1)];
    const size_t bytes = gpr_dtype_bytes(factor->dtype);
    const uint64_t room = (n * (uint64_t)llabs(step) + 1) * bytes;
    char *memory = calloc(1, room);
    REQUIRE(memory != NULL);
    for (uint64_t i = 0; i < room / bytes; i++) {
        const int64_t value = between(source, 0, 9);
        gpr_convert(GPR_INT64, &value, factor->dtype, memory + i * bytes, 1);
    }
    factor->stride = step * (int64_t)bytes;
    factor->data = memory + (step < 0 ? (n - 1) * (uint64_t)-step * bytes : 0);
    return memory;
}

/* The same array in pinned or device memory; returns the allocation. */
static void *move_factor(place where, uint64_t n, gpr_factor *factor, const char *memory)
{
    const uint64_t step = (uint64_t)llabs(factor->stride),
                   start = (uint64_t)((const char *)factor->data - memory);
    /* from the memory's start on, either way */
    const uint64_t bytes = (n - 1) * step + gpr_dtype_bytes(factor->dtype);
    void *moved = NULL;

    if (where == IN_PINNED) {
        REQUIRE(gpr_alloc_pinned(bytes, &moved) == GPR_OK);
        memcpy(moved, memory, bytes);
    } else if (where == ON_DEVICE) {
        REQUIRE(gpr_alloc_device(0, bytes, &moved) == GPR_OK &&
                gpr_upload(0, moved, memory, bytes) == GPR_OK);
    }
    if (moved != NULL) factor->data = (char *)moved + start;
    return moved;
}

static void free_moved(place where, void *moved)
{
    if (where == IN_PINNED) REQUIRE(gpr_free_pinned(moved) == GPR_OK);
    if (where == ON_DEVICE) REQUIRE(gpr_free_device(0, moved) == GPR_OK);
}

static gpr_dtype common_type(gpr_dtype a, gpr_dtype b)
{
    if (a == b) return a;
    return a == GPR_COMPLEX64 || b == GPR_COMPLEX64 ? GPR_COMPLEX128 : GPR_FLOAT64;
}

/* Host arrays go in chunks of both, device arrays stay: the bits are those of the CPU. */
static void test_products_of_two_arrays_are_those_of_the_cpu(int cases)
{
    random_source source = {check_random()};
    const gpr_limits limits = {.device_bytes = 2 * MIB, .pinned_bytes = 2 * MIB, .cpu_threads = 2};

    REQUIRE(gpr_set_limits(&limits) == GPR_OK);
    for (int i = 0; i < cases; i++) {
        const place where = (place)between(&source, 0, PLACES - 1);
        const uint64_t n = (uint64_t)between(&source, 1, one_in(&source, 3) ? 60000 : 3000);
        double wanted[2] = {0}, got[2] = {0};
        gpr_dot_request request = {
            .compute = GPR_DTYPE_DEFAULT, .n = n, .kernel = -1, .device = GPR_DEVICE_CPU};
        char *a = draw_factor(&source, n, where, &request.a),
             *b = draw_factor(&source, n, where, &request.b);

        request.factor = common_type(request.a.dtype, request.b.dtype);
        request.result = wanted;
        REQUIRE(gpr_dot(&request) == GPR_OK);
        void *moved_a = move_factor(where, n, &request.a, a),
             *moved_b = move_factor(where, n, &request.b, b);
        request.device = 0;
        request.on_device = where == ON_DEVICE;
        request.grid_size = one_in(&source, 2) ? (uint32_t)between(&source, 1, 5) : 0;
        request.result = got;
        CHECK(gpr_dot(&request) == GPR_OK, "%s", gpr_last_error()->message);
        CHECK(memcmp(got, wanted, sizeof got) == 0, "%s and %s, %llu pairs at %d: %g, not %g",
              gpr_dtype_name(request.a.dtype), gpr_dtype_name(request.b.dtype),
              (unsigned long long)n, where, got[0], wanted[0]);
        CHECK(gpr_last_run()->device == 0 && strcmp(gpr_last_run()->variant, "exact_dot") == 0,
              "the device answered");
        free_moved(where, moved_a);
        free_moved(where, moved_b);
        free(a);
        free(b);
    }
}

/* Exact variances of host arrays merge their chunks: the bits are those of the CPU. */
static void test_exact_variances_of_chunks_are_those_of_the_cpu(void)
{
    enum { N = 150000 };
    static float values[N];
    static uint8_t mask[N];
    random_source source = {check_random()};
    const int64_t shapes[3][2] = {{1, N}, {3, N / 3}, {N / 50, 50}}, mask_strides[2] = {0, 1};
    float wanted[N / 50], got[N / 50];

    for (int i = 0; i < N; i++) {
        values[i] = (float)between(&source, -999, 999);
        mask[i] = (uint8_t)between(&source, 0, 1);
    }
    mask[0] = 1;
    for (int i = 0; i < 6; i++) {
        gpr_request request = sums_of(GPR_FLOAT32, 2, shapes[i % 3], values, wanted);
        request.op = i % 2 == 0 ? GPR_OP_VAR : GPR_OP_STD;
        request.reduced = 1;
        request.ddof = i - 2.5;
        request.kernel = GPR_KERNEL_exact;
        request.mask = i < 3 ? mask : NULL;
        request.mask_strides = i < 3 ? mask_strides : NULL;
        request.device = GPR_DEVICE_CPU;
        REQUIRE(gpr_reduce(&request) == GPR_OK);
        request.device = 0;
        request.result = got;
        CHECK(gpr_reduce(&request) == GPR_OK, "%s", gpr_last_error()->message);
        CHECK(memcmp(got, wanted, (size_t)shapes[i % 3][0] * sizeof *got) == 0,
              "case %d: %g, not %g", i, (double)got[0], (double)wanted[0]);
        CHECK(gpr_last_run()->chunks > 1, "%llu chunks",
              (unsigned long long)gpr_last_run()->chunks);
    }
}

int main(int count, char **arguments)
{
    check_begin();
    load_fakes();
    REQUIRE(setenv("GPUREDUCE_CACHE_BYTES", "0", 1) == 0);
    test_large_grids_over_many_rows_stay_within_the_limits();
    test_scratch_of_several_calls_stays_within_the_limit();
    test_every_slot_of_a_ring_that_was_cut_down_is_aligned();
    test_long_rows_are_cut_and_put_together();
    test_one_program_serves_all_chunks();
    test_pinned_arrays_skip_staging();
    test_random_arrays_reduce_right_and_within_the_limits(count > 1 ? atoi(arguments[1]) : 40);
    /* From here on there are device arrays, whose scratch the limits do not count. */
    test_switches_between_pinned_and_ordinary_arrays_allocate_nothing();
    test_random_device_arrays_reduce_right(count > 1 ? atoi(arguments[1]) : 60);
    test_device_rows_of_items_reduce_right();
    test_products_of_two_arrays_are_those_of_the_cpu(count > 1 ? atoi(arguments[1]) : 30);
    test_exact_variances_of_chunks_are_those_of_the_cpu();
    test_many_threads_share_a_device();
    return check_end();
}
