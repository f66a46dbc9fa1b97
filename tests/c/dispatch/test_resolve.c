/* Resolving: a request becomes a rule once per call, on every path, and gpr_resolve, which is
 * called before there is memory for a result, describes the result that gpr_reduce makes. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fakes/fakes.h"
#include "gpureduce.h"
#include "lib/base/registry.h"
#include "request.h"

/* WRAP(kind, function, result, parameters, arguments): what makes rules. The build reads the
 * second column. */
#define WRAPS(WRAP)                                                                          \
    WRAP(MADE, gpr_make_rule, gpr_status,                                                    \
         (gpr_operator op, gpr_dtype element, gpr_dtype requested, gpr_rule * rule),         \
         (op, element, requested, rule))                                                     \
    WRAP(MADE, gpr_make_product_rule, gpr_status,                                            \
         (gpr_dtype a, gpr_dtype b, gpr_dtype factor, gpr_dtype requested, gpr_rule * rule), \
         (a, b, factor, requested, rule))                                                    \
    WRAP(ASKED, gpr_result_dtype, gpr_dtype,                                                 \
         (gpr_operator op, gpr_dtype dtype, gpr_dtype compute), (op, dtype, compute))        \
    WRAP(ASKED, gpr_choose_kernel, int,                                                      \
         (int kernel, gpr_operator op, gpr_dtype dtype, gpr_dtype compute),                  \
         (kernel, op, dtype, compute))

static int made; /* rules, since the count began */

#define WRAP(kind, name, result, parameters, arguments) \
    result __real_##name parameters;                    \
    result __wrap_##name parameters;                    \
    result __wrap_##name parameters                     \
    {                                                   \
        made++;                                         \
        return __real_##name arguments;                 \
    }
WRAPS(WRAP)
#undef WRAP

enum { ROWS = 5, COUNT = 12 };

static const int64_t shape[2] = {ROWS, COUNT}, empty_shape[2] = {ROWS, 0};

/* The number of rules that a reduction makes; it succeeds, or has no identity. */
static int count_rules(const gpr_request *request)
{
    made = 0;
    const gpr_status status = gpr_reduce(request);
    CHECK(status == GPR_OK || request->shape == empty_shape, "%s", gpr_last_error()->message);
    return made;
}

/* Every operator of host and device arrays, with results one after another, with steps, and on
 * the device. */
static void test_each_call_makes_one_rule(void)
{
    static int32_t values[ROWS * COUNT];
    static double results[2 * 4 * ROWS];
    void *on_device = NULL, *result_on_device = NULL;
    const uint64_t bytes = sizeof values;

    for (int i = 0; i < ROWS * COUNT; i++) values[i] = i;
    REQUIRE(gpr_alloc_device(0, bytes, &on_device) == GPR_OK &&
            gpr_upload(0, on_device, values, bytes) == GPR_OK);
    REQUIRE(gpr_alloc_device(0, sizeof results, &result_on_device) == GPR_OK);
    for (int op = 0; op < GPR_OP_COUNT; op++) {
        const int64_t steps[3] = {4 * ROWS * sizeof(double), 4 * sizeof(double), 0};

        for (int way = 0; way < 10; way++) {
            gpr_request request =
                sums_of(way % 2 == 0 ? GPR_INT32 : GPR_FLOAT32, 2, shape, values, results);
            gpr_resolution resolution;

            if (way % 2 == 1 &&
                gpr_result_dtype((gpr_operator)op, GPR_FLOAT32, GPR_DTYPE_DEFAULT) < 0)
                continue;
            request.op = (gpr_operator)op;
            request.device = way < 2 ? GPR_DEVICE_CPU : 0;
            if (way == 3 || way == 4) request.shape = empty_shape;
            if (way == 5) request.result_strides = op == GPR_OP_MINMAX ? steps : steps + 1;
            request.on_device = way > 5;
            if (request.on_device) request.data = on_device;
            request.result_on_device = way > 7;
            if (request.result_on_device) request.result = result_on_device;
            CHECK(count_rules(&request) == 1, "%s, way %d: %d rules", gpr_operator_name(request.op),
                  way, made);
            made = 0;
            CHECK(gpr_resolve(&request, &resolution) == GPR_OK, "%s", gpr_last_error()->message);
            CHECK(made == 1, "%s, way %d: %d rules", gpr_operator_name(request.op), way, made);
            request.resolution = &resolution;
            CHECK(count_rules(&request) == 0, "%s, way %d: %d more", gpr_operator_name(request.op),
                  way, made);
        }
    }
    REQUIRE(gpr_free_device(0, on_device) == GPR_OK &&
            gpr_free_device(0, result_on_device) == GPR_OK);
}

static void test_dot_products_and_states_make_one_rule(void)
{
    float values[COUNT] = {1, 2, 3}, result = 0;
    gpr_dot_request request = {.a = {GPR_FLOAT32, values, sizeof(float), 0},
                               .b = {GPR_FLOAT32, values, sizeof(float), 0},
                               .factor = GPR_FLOAT32,
                               .compute = GPR_DTYPE_DEFAULT,
                               .n = COUNT,
                               .kernel = -1,
                               .result = &result};
    gpr_exact *sum = NULL;

    for (int device = GPR_DEVICE_CPU; device <= 0; device++) {
        request.device = device;
        made = 0;
        CHECK(gpr_dot(&request) == GPR_OK, "%s", gpr_last_error()->message);
        CHECK(made == 1, "%d rules", made);
    }
    REQUIRE(gpr_exact_create(GPR_FLOAT32, &sum) == GPR_OK);
    made = 0;
    CHECK(gpr_exact_update_array(sum, values, COUNT) == GPR_OK && made == 1, "%d rules", made);
    gpr_exact_destroy(sum);
}

/* A resolution has the result's type and number, and the kernel that runs. */
static void test_resolutions_say_what_results_are(void)
{
    for (int op = 0; op < GPR_OP_COUNT; op++) {
        for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++) {
            const gpr_dtype result =
                gpr_result_dtype((gpr_operator)op, (gpr_dtype)dtype, GPR_DTYPE_DEFAULT);
            gpr_request request = sums_of((gpr_dtype)dtype, 2, shape, NULL, NULL);
            gpr_resolution resolution;

            request.op = (gpr_operator)op;
            const gpr_status status = gpr_resolve(&request, &resolution);
            CHECK((status == GPR_OK) == (result != GPR_DTYPE_DEFAULT), "%d of %d", op, dtype);
            if (status != GPR_OK) continue;
            CHECK(resolution.result == result, "%d of %d: %d, not %d", op, dtype, resolution.result,
                  result);
            CHECK(resolution.outputs == (op == GPR_OP_MINMAX ? 2 : 1), "%d outputs",
                  resolution.outputs);
            CHECK(resolution.kernel ==
                      gpr_choose_kernel(-1, (gpr_operator)op, (gpr_dtype)dtype, GPR_DTYPE_DEFAULT),
                  "kernel %d", resolution.kernel);
        }
    }
}

static void test_the_resolution_of_another_request_is_refused(void)
{
    float values[ROWS * COUNT] = {0}, sums[ROWS];
    gpr_request request = sums_of(GPR_FLOAT32, 2, shape, values, sums);
    gpr_resolution resolution;

    request.device = GPR_DEVICE_CPU;
    REQUIRE(gpr_resolve(&request, &resolution) == GPR_OK);
    request.resolution = &resolution;
    request.op = GPR_OP_MAX;
    CHECK(gpr_reduce(&request) == GPR_ERROR_VALUE, "another operator");
    request.op = GPR_OP_SUM;
    request.dtype = GPR_INT32;
    CHECK(gpr_reduce(&request) == GPR_ERROR_VALUE, "another dtype");
}

int main(void)
{
    check_begin();
    load_fakes();
    REQUIRE(setenv("GPUREDUCE_CACHE_BYTES", "0", 1) == 0);
    test_each_call_makes_one_rule();
    test_dot_products_and_states_make_one_rule();
    test_resolutions_say_what_results_are();
    test_the_resolution_of_another_request_is_refused();
    return check_end();
}
