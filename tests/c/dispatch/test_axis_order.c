/* Kept axes in any order of memory, forward and backward, with masks and results of any steps: the
 * numbers are those of the definition, and nothing between the results is written. On the CPU. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "gpureduce.h"
#include "lib/base/registry.h"

enum { AXES = 4, MOST_ELEMENTS = 1 << 16, MOST_RESULTS = 1 << 17, DRAWN = 300, UNTOUCHED = 0x5a };

static char elements[MOST_ELEMENTS * 16];
static uint8_t mask[MOST_ELEMENTS];
static char results[MOST_RESULTS * 16];

/* An array, or results: extents in the order of the request, and steps from a random order of axes
 * in memory, some of them backward. Returns where the first element is. */
static int64_t lay_out(const int64_t *shape, int count, int64_t unit, int may_turn,
                       int64_t *strides)
{
    int order[AXES + 1];
    int64_t first = 0, step = unit;

    for (int i = 0; i < count; i++) order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        const int j = (int)check_between(0, i), axis = order[i];
        order[i] = order[j];
        order[j] = axis;
    }
    for (int i = 0; i < count; i++) {
        const int turns = may_turn && check_between(0, 3) == 0;
        strides[order[i]] = turns ? -step : step;
        if (turns) first += (shape[order[i]] - 1) * step;
        step *= shape[order[i]];
    }
    return first;
}

/* Small integers, of any type: every sum is exact. */
static int value_at(int64_t index)
{
    return (int)((uint64_t)index * 2654435761u >> 7) % 11 - 5;
}

static void store(gpr_dtype dtype, char *at, int value)
{
    switch (dtype) {
    case GPR_INT8: *(int8_t *)at = (int8_t)value; break;
    case GPR_INT32: *(int32_t *)at = value; break;
    case GPR_FLOAT64: *(double *)at = value; break;
    default:
        ((double *)at)[0] = value;
        ((double *)at)[1] = -value;
        break;
    }
}

static int64_t load(gpr_dtype dtype, const char *at)
{
    switch (dtype) {
    case GPR_INT8: return *(const int8_t *)at;
    case GPR_INT32: return *(const int32_t *)at;
    case GPR_INT64: return *(const int64_t *)at;
    case GPR_FLOAT64: return (int64_t)*(const double *)at;
    default:
        CHECK(((const double *)at)[0] == -((const double *)at)[1], "parts of a sum");
        return (int64_t)((const double *)at)[0];
    }
}

/* What the row at `base` has, by the definition; `mask_base`: -1 without a mask. */
static void reduce_row(const gpr_request *request, int64_t base, int64_t mask_base, int kept,
                       int64_t expected[2])
{
    const int64_t n = request->shape[kept];
    int64_t sum = 0, least = INT64_MAX, most = INT64_MIN, place = -1;

    for (int64_t i = 0; i < n; i++) {
        const int64_t at = base + i * request->strides[kept];
        if (mask_base >= 0 && mask[mask_base + i * request->mask_strides[kept]] == 0) continue;
        const int64_t value = load(request->dtype, elements + at);
        sum += value;
        least = value < least ? value : least;
        place = value > most ? i : place;
        most = value > most ? value : most;
    }
    expected[0] = request->op == GPR_OP_MINMAX ? least : request->op == GPR_OP_ARGMAX ? place : sum;
    expected[1] = most;
}

static void check_case(gpr_operator op, gpr_dtype dtype, const char *kernel, int masked)
{
    const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype);
    const gpr_dtype result = gpr_result_dtype(op, dtype, GPR_DTYPE_DEFAULT);
    const int64_t result_bytes = (int64_t)gpr_dtype_bytes(result);
    const int kept = (int)check_between(2, AXES - 1), outputs = op == GPR_OP_MINMAX ? 2 : 1;
    int64_t shape[AXES], strides[AXES], mask_strides[AXES], steps[AXES + 1], out[AXES + 1];
    int64_t rows = 1, index[AXES] = {0};
    gpr_request request = {.op = op,
                           .dtype = dtype,
                           .compute = GPR_DTYPE_DEFAULT,
                           .ndim = kept + 1,
                           .reduced = 1,
                           .shape = shape,
                           .strides = strides,
                           .device = GPR_DEVICE_CPU,
                           .result_strides = outputs > 1 ? steps : steps + 1};

    for (int i = 0; i < kept; i++) rows *= shape[i] = check_between(1, kept == 2 ? 150 : 30);
    shape[kept] = check_between(1, MOST_ELEMENTS / rows < 40 ? MOST_ELEMENTS / rows : 40);
    memcpy(out + 1, shape, sizeof *out * (size_t)kept);
    out[0] = outputs;
    const int64_t first = lay_out(shape, kept + 1, bytes, 1, strides),
                  first_mask = lay_out(shape, kept + 1, 1, 1, mask_strides),
                  gap = check_between(1, 2), /* between results, in results */
        first_out = lay_out(out, kept + 1, gap * result_bytes, 1, steps);
    const int is_default = check_between(0, 3) == 0;
    if (is_default) request.result_strides = NULL;
    for (int64_t i = 0; i < rows * shape[kept]; i++) {
        store(dtype, elements + i * bytes, value_at(i));
        mask[i] = check_between(0, 3) != 0;
    }
    if (masked) { /* of each row the first element is left, if nothing else is */
        request.mask = mask + first_mask;
        request.mask_strides = mask_strides;
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = first_mask, left = row;
            for (int i = kept - 1; i >= 0; left /= shape[i--])
                at += left % shape[i] * mask_strides[i];
            mask[at] = 1;
        }
    }
    memset(results, UNTOUCHED, (size_t)(2 * outputs * rows * result_bytes));
    request.data = elements + first;
    request.result = results + (is_default ? 0 : first_out);
    REQUIRE(gpr_find_kernel(kernel, &request.kernel) == GPR_OK);
    REQUIRE(gpr_reduce(&request) == GPR_OK);
    for (int64_t row = 0; row < rows; row++) {
        int64_t base = first, mask_base = masked ? first_mask : -1, at = first_out, expected[2];
        for (int i = 0; i < kept; i++) {
            base += index[i] * strides[i];
            if (masked) mask_base += index[i] * mask_strides[i];
            at += index[i] * steps[i + 1];
        }
        reduce_row(&request, base, mask_base, kept, expected);
        for (int k = 0; k < outputs; k++) {
            const char *place = is_default ? results + (row + k * rows) * result_bytes
                                           : results + at + k * steps[0];
            const int64_t found = load(result, place);
            CHECK(found == expected[k], "%s of %s, %d kept axes, row %d: %d, not %d",
                  gpr_operator_rows[op].name, gpr_dtype_name(dtype), kept, (int)row, (int)found,
                  (int)expected[k]);
        }
        for (int i = kept - 1; i >= 0 && ++index[i] == shape[i]; i--) index[i] = 0;
    }
    /* what lies between results */
    for (int64_t i = 0; i < outputs * rows && gap == 2 && !is_default; i++)
        CHECK(results[(2 * i + 1) * result_bytes] == UNTOUCHED, "result %d", (int)i);
}

static void test_axes_and_results_have_any_order(void)
{
    static const struct {
        gpr_operator op;
        const char *kernel;
    } calls[] = {{GPR_OP_SUM, "auto"},
                 {GPR_OP_SUM, "fast"},
                 {GPR_OP_MINMAX, "auto"},
                 {GPR_OP_ARGMAX, "auto"}};
    static const gpr_dtype dtypes[] = {GPR_INT8, GPR_INT32, GPR_FLOAT64, GPR_COMPLEX128};

    for (int i = 0; i < DRAWN; i++) {
        const int call = (int)check_between(0, 3);
        /* complex numbers have an order of their own */
        const int most = calls[call].op == GPR_OP_SUM ? 3 : 2;
        check_case(calls[call].op, dtypes[check_between(0, most)], calls[call].kernel,
                   i % 2 && calls[call].op != GPR_OP_ARGMAX);
    }
}

/* ---------------------------------------------------------------- many results --------------- */

static int count_down(void *left)
{
    return --*(int *)left < 0;
}

/* More results than are copied between two calls of the callback, which stops the copying. */
static void test_the_copying_of_results_can_be_stopped(void)
{
    enum { ROWS = 600000, STEP = 2 };
    const int64_t shape[2] = {ROWS, 1}, strides[2] = {1, 1}, steps[1] = {STEP * sizeof(int64_t)};
    int8_t *values = malloc(ROWS);
    int64_t *sums = calloc((size_t)ROWS * STEP, sizeof *sums);
    int left = 0, asked = 0;
    gpr_request request = {.op = GPR_OP_SUM,
                           .dtype = GPR_INT8,
                           .compute = GPR_DTYPE_DEFAULT,
                           .ndim = 2,
                           .reduced = 1,
                           .shape = shape,
                           .strides = strides,
                           .kernel = -1,
                           .device = GPR_DEVICE_CPU,
                           .result_strides = steps};

    REQUIRE(values != NULL && sums != NULL);
    for (int i = 0; i < ROWS; i++) values[i] = (int8_t)i;
    request.data = values;
    request.result = sums;
    REQUIRE(gpr_reduce(&request) == GPR_OK);
    for (int i = 0; i < ROWS; i++)
        CHECK(sums[STEP * i] == values[i] && sums[STEP * i + 1] == 0, "row %d", i);
    request.interrupted = count_down;
    request.interrupted_arg = &left;
    for (asked = 0; asked < 100; asked++) {
        left = asked;
        const gpr_status status = gpr_reduce(&request);
        if (status == GPR_OK) break;
        CHECK(status == GPR_ERROR_INTERRUPTED, "%d", (int)status);
    }
    /* once at least for each 2^18 results */
    CHECK(asked >= 2 && asked < 100, "asked %d times", asked);
    free(values);
    free(sums);
}

int main(void)
{
    check_begin();
    test_axes_and_results_have_any_order();
    test_the_copying_of_results_can_be_stopped();
    return check_end();
}
