/* Several reductions of a device array in one pass: which of them share it, the same results as
 * calls of their own for random types and shapes, and what is refused before the driver is called.
 * tests/c/dispatch/test_faults.c makes the calls of a pass fail. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fakes/fakes.h"
#include "gpureduce.h"

enum { CC = 90, MOST_BYTES = 1 << 17, RESULT_BYTES = 4096, MANY_DRAWN = 40 };

static char elements[MOST_BYTES];
static void *array, *outs[2][GPR_MOST_SEVERAL]; /* in device memory: of a pass, of own calls */
static gpr_device_facts facts;

static void expect_error(gpr_status status, const char *words)
{
    CHECK(status == GPR_ERROR_VALUE, "%d", (int)status);
    CHECK(strstr(gpr_last_error()->message, words) != NULL, "no '%s' in: %s", words,
          gpr_last_error()->message);
}

/* Rows of n elements in device memory. */
static gpr_request rows_of(gpr_dtype dtype, const int64_t *shape)
{
    return (gpr_request){.op = GPR_OP_SUM,
                         .dtype = dtype,
                         .compute = GPR_DTYPE_DEFAULT,
                         .ndim = 2,
                         .reduced = 1,
                         .shape = shape,
                         .data = array,
                         .kernel = -1,
                         .on_device = 1};
}

/* ---------------------------------------------------------------- plans ---------------------- */

/* Operators by bits of in_pass: which of them share a pass of a long row, and how. */
static void test_members_share_a_pass_whose_blocks_their_bits_depend_on(void)
{
    static const gpr_member exact[] = {{.op = GPR_OP_SUM}, {.op = GPR_OP_MIN}},
                            others[] = {{.op = GPR_OP_SUM},
                                        {.op = GPR_OP_MIN},
                                        {.op = GPR_OP_VAR},
                                        {.op = GPR_OP_PROD}},
                            means[] = {{.op = GPR_OP_MEAN, .skip_nan = 1},
                                       {.op = GPR_OP_MAX},
                                       {.op = GPR_OP_ANY}},
                            skipping[] = {{.op = GPR_OP_SUM, .skip_nan = 1},
                                          {.op = GPR_OP_SUM},
                                          {.op = GPR_OP_MEAN, .skip_nan = 1},
                                          {.op = GPR_OP_ARGMAX}},
                            refused[] = {{.op = GPR_OP_SUM}, {.op = GPR_OP_BITWISE_AND}};
    static const struct {
        const char *what;
        const gpr_member *members;
        int count;
        gpr_dtype dtype;
        int64_t n;
        uint32_t block, grid;
        int pieces;
        uint32_t in_pass;
    } cases[] = {
        {"an exact sum and an extreme", exact, 2, GPR_FLOAT32, 1 << 20, 0, 0, 0, 3},
        {"of wide floats", exact, 2, GPR_FLOAT64, 1 << 20, 0, 0, 0, 3},
        {"of integers", exact, 2, GPR_INT8, 1 << 20, 0, 0, 0, 3},
        {"folds in one order", others, 4, GPR_FLOAT64, 1 << 20, 256, 7, 0, 15},
        {"in pieces extremes have no order", others, 4, GPR_FLOAT64, 1 << 20, 0, 0, 1, 3},
        {"what leaves out NaN", skipping, 4, GPR_FLOAT16, 1 << 20, 0, 0, 0, 13},
        {"means of integers, which have no NaN", means, 3, GPR_INT32, 1 << 20, 0, 0, 1, 6},
        {"short rows", exact, 2, GPR_FLOAT32, 511, 0, 0, 0, 0},
        {"longer ones", exact, 2, GPR_FLOAT32, 512, 0, 0, 0, 3},
        {"complex numbers", exact, 2, GPR_COMPLEX64, 1 << 20, 0, 0, 0, 0},
        {"one reduction", exact, 1, GPR_FLOAT32, 1 << 20, 0, 0, 0, 0},
        {"what has no call of its own", refused, 2, GPR_FLOAT32, 1 << 20, 0, 0, 0, 0},
        {"nothing", exact, 2, GPR_FLOAT32, 0, 0, 0, 0, 0},
    };
    gpr_several_plan plan;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t shape[2] = {1, cases[i].n};
        gpr_request request = rows_of(cases[i].dtype, shape);
        request.block_size = cases[i].block;
        request.grid_size = cases[i].grid;
        REQUIRE(gpr_plan_several(&request, cases[i].members, cases[i].count, cases[i].pieces, 0,
                                 &facts, &plan) == GPR_OK);
        CHECK(plan.in_pass == cases[i].in_pass, "%s: %#x", cases[i].what, plan.in_pass);
        CHECK(cases[i].grid == 0 || (plan.block == cases[i].block && plan.blocks == cases[i].grid),
              "%s: %u blocks of %u", cases[i].what, plan.blocks, plan.block);
    }
    const int64_t shape[2] = {1, 1 << 20};
    const gpr_request request = rows_of(GPR_FLOAT32, shape);
    expect_error(gpr_plan_several(&request, exact, 0, 0, 0, &facts, &plan), "share a pass, not 0");
    expect_error(gpr_plan_several(&request, exact, 13, 0, 0, &facts, &plan),
                 "share a pass, not 13");
}

/* ---------------------------------------------------------------- results -------------------- */

static gpr_loaded_image *load(const gpr_several_plan *plan)
{
    gpr_loaded_image *loaded = NULL;
    gpr_image image;
    int compiled = 0;

    REQUIRE(gpr_compile_several(plan, CC, &image, &compiled) == GPR_OK);
    REQUIRE(gpr_load_image(0, &image, &loaded) == GPR_OK);
    gpr_free_image(&image);
    return loaded;
}

/* The result of a member's own call, by the kernel that it would have. */
static void reduce_alone(gpr_request request, const gpr_member *member, void *result)
{
    request.op = member->op;
    request.skip_nan = member->skip_nan;
    request.result = result;
    request.result_on_device = 1;
    REQUIRE(gpr_reduce(&request) == GPR_OK);
}

static void compare(const gpr_several_plan *plan, gpr_dtype dtype)
{
    char found[2][RESULT_BYTES];

    for (int i = 0; i < plan->count; i++) {
        const size_t bytes =
            plan->rows * (size_t)plan->outputs[i] * gpr_dtype_bytes(plan->results[i]);
        if ((plan->in_pass >> i & 1) == 0) continue;
        for (int j = 0; j < 2; j++)
            REQUIRE(gpr_download(0, NULL, found[j], outs[j][i], bytes) == GPR_OK);
        CHECK(memcmp(found[0], found[1], bytes) == 0, "member %d of %s, %d rows of %d", i,
              gpr_dtype_name(dtype), (int)plan->rows, (int)plan->n);
    }
}

/* Small integers of any type: all results are exact, so the bits are those of calls of their own
 * whatever the blocks are. */
static void test_results_are_those_of_calls_of_their_own(void)
{
    static const gpr_member members[] = {{.op = GPR_OP_SUM},           {.op = GPR_OP_MEAN},
                                         {.op = GPR_OP_MIN},           {.op = GPR_OP_MINMAX},
                                         {.op = GPR_OP_ARGMIN},        {.op = GPR_OP_ANY},
                                         {.op = GPR_OP_ALL},           {.op = GPR_OP_ARGMAX},
                                         {.op = GPR_OP_COUNT_NONZERO}, {.op = GPR_OP_MAX}};
    static const gpr_dtype dtypes[] = {GPR_FLOAT32, GPR_FLOAT64, GPR_INT8, GPR_INT16, GPR_INT32};
    enum { COUNT = sizeof members / sizeof *members };
    int wide = 0;

    for (int drawn = 0; drawn < MANY_DRAWN; drawn++) {
        const gpr_dtype dtype = dtypes[check_between(0, 4)];
        const size_t bytes = gpr_dtype_bytes(dtype);
        const int64_t least = 2048 / (int64_t)bytes, rows = check_between(1, 4),
                      n = check_between(least, MOST_BYTES / 4 / (int64_t)bytes),
                      shape[2] = {rows, n};
        const int pieces = rows == 1 ? (int)check_between(0, 3) : 0;
        gpr_request request = rows_of(dtype, shape);
        gpr_several_plan plan;
        gpr_several_launch launch = {.data = array, .output_stride = (uint64_t)rows};

        for (int64_t i = 0; i < rows * n; i++) {
            const double value = (double)check_between(-9, 9);
            char *at = elements + (size_t)i * bytes;
            if (dtype == GPR_FLOAT32) *(float *)at = (float)value;
            if (dtype == GPR_FLOAT64) *(double *)at = value;
            if (dtype == GPR_INT8) *(int8_t *)at = (int8_t)value;
            if (dtype == GPR_INT16) *(int16_t *)at = (int16_t)value;
            if (dtype == GPR_INT32) *(int32_t *)at = (int32_t)value;
        }
        REQUIRE(gpr_upload(0, array, elements, (uint64_t)(rows * n) * bytes) == GPR_OK);
        request.block_size = 64;
        request.grid_size = (uint32_t)check_between(1, 5);
        REQUIRE(gpr_plan_several(&request, members, COUNT, pieces > 0, 0, &facts, &plan) == GPR_OK);
        REQUIRE(plan.in_pass != 0);
        wide += plan.blocks > 1;
        gpr_loaded_image *loaded = load(&plan);
        memcpy(launch.out, outs[0], sizeof launch.out);
        if (pieces > 0) {
            const uint64_t step = ((uint64_t)n + (uint64_t)pieces - 1) / (uint64_t)pieces,
                           room = gpr_several_scratch(&plan, (uint32_t)pieces) + 1;
            const uint8_t zero = 0;
            REQUIRE(gpr_alloc_device(0, room, &launch.scratch) == GPR_OK);
            REQUIRE(gpr_fill_device(0, launch.scratch, GPR_UINT8, &zero, room, NULL) == GPR_OK);
            launch.total = (uint64_t)n;
            launch.pieces = (uint32_t)pieces;
            for (; launch.piece < launch.pieces; launch.piece++, launch.first += launch.n) {
                launch.n = launch.total - launch.first < step ? launch.total - launch.first : step;
                launch.data = (char *)array + launch.first * bytes;
                REQUIRE(gpr_queue_several(loaded, &plan, &launch) == GPR_OK);
            }
        } else {
            REQUIRE(gpr_queue_several(loaded, &plan, &launch) == GPR_OK);
        }
        fake.wait();
        for (int i = 0; i < COUNT; i++) reduce_alone(request, &members[i], outs[1][i]);
        fake.wait();
        compare(&plan, dtype);
        if (launch.scratch != NULL) REQUIRE(gpr_free_device(0, launch.scratch) == GPR_OK);
        REQUIRE(gpr_unload_image(loaded) == GPR_OK);
    }
    CHECK(wide > 0, "%d passes", MANY_DRAWN);
}

/* ---------------------------------------------------------------- refusals ------------------- */

static void test_launches_without_a_pass_or_scratch_are_refused(void)
{
    static const gpr_member members[] = {{.op = GPR_OP_SUM}, {.op = GPR_OP_MIN}};
    const int64_t shape[2] = {1, 8000}, rows[2] = {2, 8000};
    const gpr_request request = rows_of(GPR_FLOAT32, shape), two = rows_of(GPR_FLOAT32, rows);
    const gpr_several_launch piece = {
        .data = array, .n = 4000, .total = 8000, .pieces = 2, .scratch = array};
    gpr_several_launch launch = piece;
    gpr_several_plan plan, nothing, of_rows;
    gpr_image image;
    float milliseconds = 0;
    int compiled = 0;

    REQUIRE(gpr_plan_several(&request, members, 2, 1, 0, &facts, &plan) == GPR_OK);
    REQUIRE(gpr_plan_several(&request, members, 1, 1, 0, &facts, &nothing) == GPR_OK);
    REQUIRE(gpr_plan_several(&two, members, 2, 0, 0, &facts, &of_rows) == GPR_OK);
    gpr_loaded_image *loaded = load(&plan);
    const unsigned before = fake.launches();
    expect_error(gpr_compile_several(&nothing, CC, &image, &compiled), "no pass in common");
    CHECK(image.data == NULL && compiled == 0, "%d", compiled);
    expect_error(gpr_queue_several(loaded, &nothing, &launch), "no pass in common");
    expect_error(gpr_measure_several(loaded, &nothing, &launch, 0, 1, &milliseconds),
                 "no pass in common");
    expect_error(gpr_queue_several(loaded, &of_rows, &launch), "of one row, and within it");
    launch.piece = 2;
    expect_error(gpr_queue_several(loaded, &plan, &launch), "of one row, and within it");
    launch = piece;
    launch.first = 4001;
    expect_error(gpr_queue_several(loaded, &plan, &launch), "of one row, and within it");
    launch.n = 8001;
    launch.first = 0;
    expect_error(gpr_queue_several(loaded, &plan, &launch), "of one row, and within it");
    launch = piece;
    launch.scratch = NULL;
    expect_error(gpr_queue_several(loaded, &plan, &launch), "share scratch, and there is none");
    expect_error(gpr_measure_several(loaded, &plan, &piece, 0, 1, &milliseconds), "is not timed");
    launch = (gpr_several_launch){.data = array};
    expect_error(gpr_measure_several(loaded, &plan, &launch, 0, 0, &milliseconds), "positive");
    plan.block = 2048;
    expect_error(gpr_queue_several(loaded, &plan, &launch), "blocks of 2048 threads");
    expect_error(gpr_measure_several(loaded, &plan, &launch, 0, 1, &milliseconds),
                 "blocks of 2048 threads");
    CHECK(fake.launches() == before, "%u launches", fake.launches() - before);
    REQUIRE(gpr_unload_image(loaded) == GPR_OK);
}

int main(void)
{
    check_begin();
    load_fakes();
    REQUIRE(gpr_facts_at(0, &facts) == GPR_OK);
    REQUIRE(gpr_alloc_device(0, MOST_BYTES, &array) == GPR_OK);
    for (int i = 0; i < GPR_MOST_SEVERAL; i++)
        for (int j = 0; j < 2; j++)
            REQUIRE(gpr_alloc_device(0, RESULT_BYTES, &outs[j][i]) == GPR_OK);
    test_members_share_a_pass_whose_blocks_their_bits_depend_on();
    test_results_are_those_of_calls_of_their_own();
    test_launches_without_a_pass_or_scratch_are_refused();
    CHECK(fake.violation()[0] == '\0', "%s", fake.violation());
    return check_end();
}
