/* Views: the axes that remain, contiguous ones, and packing any part of any layout. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "lib/base/convert.h"
#include "lib/base/status.h"
#include "lib/rules/layout.h"
#include "request.h"

static gpr_request request_of(int ndim, int reduced, const int64_t *shape, const int64_t *strides,
                              const void *data)
{
    return (gpr_request){.op = GPR_OP_SUM,
                         .dtype = GPR_FLOAT32,
                         .compute = GPR_DTYPE_DEFAULT,
                         .ndim = ndim,
                         .reduced = reduced,
                         .shape = shape,
                         .strides = strides,
                         .data = data};
}

static void test_contiguous(void)
{
    static float data[64 * 64];
    const int64_t shape[4] = {4, 1, 8, 16};
    gpr_view view;

    for (int reduced = 0; reduced <= 4; reduced++) {
        gpr_request request = request_of(4, reduced, shape, NULL, data);

        CHECK(view_of(&request, &view) == GPR_OK, "view");
        CHECK(view.contiguous && view.rows_contiguous, "%d axes reduced", reduced);
        CHECK(view.outer <= 1 && view.inner <= 1, "axes merge: %d outer, %d inner", view.outer,
              view.inner);
        CHECK(view.rows * view.n == 4 * 8 * 16, "%" PRIu64 " rows of %" PRIu64, view.rows, view.n);
        for (uint64_t row = 0; row < view.rows; row++)
            CHECK(gpr_view_row(&view, row) == (const char *)(data + row * view.n), "row %" PRIu64,
                  row);
    }
}

/* Fortran order and reversed axes are contiguous too where the whole array is reduced. */
static void test_reordered(void)
{
    static float data[6 * 10];
    const int64_t shape[2] = {6, 10}, fortran[2] = {4, 24}, reversed[2] = {-40, -4};
    gpr_request request = request_of(2, 2, shape, fortran, data);
    gpr_view view;

    CHECK(view_of(&request, &view) == GPR_OK && view.contiguous, "Fortran order");
    request = request_of(2, 2, shape, reversed, data + 59);
    CHECK(view_of(&request, &view) == GPR_OK && view.contiguous && view.data == (const char *)data,
          "reversed");
    request = request_of(2, 1, shape, reversed, data + 59);
    CHECK(view_of(&request, &view) == GPR_OK && view.rows_contiguous && !view.contiguous,
          "reversed rows");
}

/* Squares need no other array's positions; elements that meet those of another one do. */
static void test_products_are_reordered(void)
{
    static float data[6 * 10];
    const int64_t shape[2] = {6, 10}, fortran[2] = {4, 24};
    const gpr_request request = request_of(2, 2, shape, fortran, data);
    gpr_rule rule;
    gpr_view view;

    CHECK(gpr_make_product_rule(GPR_FLOAT32, GPR_FLOAT32, GPR_FLOAT32, GPR_FLOAT32, &rule) ==
              GPR_OK,
          "rule");
    CHECK(gpr_make_view(&request, &rule, &view) == GPR_OK && !view.contiguous, "products");
    CHECK(gpr_choose_products(GPR_SQUARES, 0, 1, &rule) == GPR_OK, "squares");
    CHECK(gpr_make_view(&request, &rule, &view) == GPR_OK && view.contiguous, "squares");
}

/* Of elements that come again a mean needs one each; a sum, or a mean of integers that may wrap,
 * needs them all. */
static void test_means_of_repeats(void)
{
    static float data[6];
    const int64_t shape[2] = {6, 10}, repeats[2] = {4, 0};
    gpr_request request = request_of(2, 2, shape, repeats, data);
    gpr_view view;

    for (int on_device = 0; on_device <= 1; on_device++) {
        request.on_device = on_device;
        request.op = GPR_OP_MEAN;
        CHECK(view_of(&request, &view) == GPR_OK && view.n == 6, "mean of %" PRIu64, view.n);
        request.op = GPR_OP_SUM;
        CHECK(view_of(&request, &view) == GPR_OK && view.n == 60, "sum of %" PRIu64, view.n);
        request.op = GPR_OP_MEAN;
        request.compute = GPR_INT8;
        CHECK(view_of(&request, &view) == GPR_OK && view.n == 60, "int8 mean of %" PRIu64, view.n);
        request.compute = GPR_DTYPE_DEFAULT;
    }
}

/* On a device, where positions are steps of axes: those of repeats count, though none is read. */
static void test_positions_behind_repeats(void)
{
    static float data[6];
    const int64_t shape[2] = {6, 10}, repeats[2] = {4, 0}, own[2] = {40, 4};
    gpr_request request = request_of(2, 2, shape, repeats, data);
    gpr_layout layout;
    gpr_view view;

    request.on_device = 1;
    request.op = GPR_OP_ARGMIN;
    CHECK(view_of(&request, &view) == GPR_OK && view.n == 6, "%" PRIu64 " elements", view.n);
    gpr_view_layout(&view, NULL, &layout);
    CHECK(layout.axes[layout.kept].position == 10 && !gpr_rows_are_runs(&layout), "argmin");
    request.op = GPR_OP_MIN;
    CHECK(view_of(&request, &view) == GPR_OK, "min");
    gpr_view_layout(&view, NULL, &layout);
    CHECK(gpr_rows_are_runs(&layout), "min");
    request.op = GPR_OP_ARGMIN;
    request.strides = own;
    CHECK(view_of(&request, &view) == GPR_OK, "own elements");
    gpr_view_layout(&view, NULL, &layout);
    CHECK(gpr_rows_are_runs(&layout), "own elements");
}

/* Of every row a number that its first element, its result and its mean decide; their sum. `bytes`:
 * what a step of an axis is. */
static uint64_t rows_of(const gpr_axis *axes, const int64_t *mean_steps, int kept, uint64_t rows,
                        int64_t bytes)
{
    uint64_t sum = 0;

    for (uint64_t row = 0; row < rows; row++) {
        uint64_t rest = row;
        int64_t in = 0, out = 0, mean = 0;
        for (int i = kept - 1; i >= 0; i--) {
            const int64_t at = (int64_t)(rest % axes[i].extent);
            rest /= axes[i].extent;
            in += at * axes[i].in * bytes;
            out += at * axes[i].out;
            mean += at * mean_steps[i];
        }
        sum += ((uint64_t)in * 0x9e3779b97f4a7c15u) ^ ((uint64_t)out * 0xc2b2ae3d27d4eb4fu) ^
               ((uint64_t)mean * 0x165667b19e3779f9u);
    }
    return sum;
}

/* A layout's kept axes lie as in memory, the nearest last, and are one axis where results lie so
 * too; they are the same rows, with the same results and means. */
static void test_kept_axes_as_in_memory(void)
{
    enum { MOST = 4 };
    static float data[1];

    for (int round = 0; round < 2000; round++) {
        const int kept = (int)check_between(1, MOST), has_means = (int)check_between(0, 1),
                  is_dense = (int)check_between(0, 1);
        const int64_t n = check_between(2, 5);
        int64_t shape[MOST + 1], strides[MOST + 1], results[MOST], means[MOST], step = 4 * n,
                                                                                result = 4;
        int order[MOST], crossed = 0;
        gpr_request request = request_of(kept + 1, 1, shape, strides, data);
        gpr_layout layout;
        gpr_view view;

        shape[kept] = n;
        strides[kept] = 4;
        for (int i = 0; i < kept; i++) order[i] = i;
        for (int i = kept - 1; i >= 0; i--) { /* order[i]: the i-th farthest axis */
            const int j = (int)check_between(0, i), axis = order[j];
            order[j] = order[i];
            order[i] = axis;
            shape[axis] = check_between(2, 6);
            strides[axis] = step;
            results[axis] = result;
            means[axis] = result / 4;
            step *= shape[axis] + (is_dense ? 0 : check_between(0, 2));
            result *= shape[axis];
        }
        if (check_between(0, 1)) { /* results in C order */
            crossed = 1;
            result = 4;
            for (int i = kept - 1; i >= 0; i--) {
                results[i] = result;
                result *= shape[i];
            }
        }
        request.on_device = 1;
        request.op = GPR_OP_VAR;
        request.result_on_device = 1;
        request.result = data;
        request.result_strides = results;
        if (has_means) {
            request.has_given_mean = 1;
            request.mean_dtype = GPR_FLOAT64;
            for (int i = 0; i < kept; i++) means[i] *= 8;
            request.mean = data;
            request.mean_strides = means;
        }
        CHECK(view_of(&request, &view) == GPR_OK, "%s", gpr_last_error()->message);
        gpr_view_layout(&view, NULL, &layout);
        CHECK(layout.rows == view.rows && layout.reduced == 1 && layout.axes[layout.kept].in == 1,
              "%d axes", kept);
        for (int i = 1; i < layout.kept; i++)
            CHECK(layout.axes[i - 1].in > layout.axes[i].in, "axis %d of %d", i, layout.kept);
        if (is_dense && !crossed)
            CHECK(gpr_is_contiguous(&layout), "%d axes of %d remain", layout.kept, kept);
        CHECK(rows_of(view.axes, view.mean_steps, view.outer, view.rows, 1) ==
                  rows_of(layout.axes, layout.mean_steps, layout.kept, layout.rows, 4),
              "other rows than the view's");
    }
}

static void test_not_contiguous(void)
{
    static float data[100];
    static const uint8_t mask[100];
    const int64_t shape[1] = {10}, steps[1] = {8}, ones[1] = {1};
    gpr_request request = request_of(1, 1, shape, steps, data);
    gpr_view view;

    CHECK(view_of(&request, &view) == GPR_OK && !view.rows_contiguous, "strided");
    request = request_of(1, 1, shape, NULL, (char *)data + 1);
    CHECK(view_of(&request, &view) == GPR_OK && !view.rows_contiguous, "misaligned");
    request = request_of(1, 1, shape, NULL, data);
    request.byteswapped = 1;
    CHECK(view_of(&request, &view) == GPR_OK && !view.rows_contiguous, "byteswapped");
    request.dtype = GPR_UINT8;
    CHECK(view_of(&request, &view) == GPR_OK && view.contiguous, "a byte has one order");
    for (int puts_nat_last = 0; puts_nat_last <= 1; puts_nat_last++) {
        request.dtype = GPR_INT64;
        request.op = GPR_OP_ALL;
        request.nat_last = puts_nat_last;
        CHECK(view_of(&request, &view) == GPR_OK &&
                  view.encoding == (puts_nat_last ? GPR_SWAPPED | GPR_NAT_LAST : 0),
              "integers are 0 in any byte order, but not those less 1: %d", puts_nat_last);
    }
    request = request_of(1, 1, shape, NULL, data);
    request.mask = mask;
    request.mask_strides = ones;
    CHECK(view_of(&request, &view) == GPR_OK && !view.rows_contiguous, "masked");
}

/* Axes that count rows merge where given means continue too. */
static void test_given_means(void)
{
    static float data[1];
    const int64_t shape[3] = {4, 5, 6}, dense[2] = {5 * 8, 8}, shared[2] = {8, 0},
                  backward[2] = {-5 * 8, -8};
    gpr_request request = request_of(3, 1, shape, NULL, data);
    gpr_view view;

    request.op = GPR_OP_VAR;
    request.has_given_mean = 1;
    request.mean_dtype = GPR_FLOAT64;
    CHECK(view_of(&request, &view) == GPR_OK && view.outer == 1 && view.mean_steps[0] == 0,
          "one for all");
    request.mean = data;
    CHECK(view_of(&request, &view) == GPR_ERROR_VALUE, "means without strides");
    request.mean_strides = dense;
    CHECK(view_of(&request, &view) == GPR_OK && view.outer == 1 && view.mean_steps[0] == 1,
          "dense");
    request.mean_strides = backward;
    CHECK(view_of(&request, &view) == GPR_OK && view.outer == 1 && view.mean_steps[0] == -1,
          "backward");
    request.mean_strides = shared;
    CHECK(view_of(&request, &view) == GPR_OK && view.outer == 2, "shared along the second axis");
    CHECK(view.mean_steps[0] == 1 && view.mean_steps[1] == 0 && view.mean_steps[2] == 0, "shared");
    request.reduced = 3;
    request.mean_strides = NULL;
    CHECK(view_of(&request, &view) == GPR_OK && view.outer == 0, "one row needs no strides");
}

static void test_refusals(void)
{
    static float data[1];
    const int64_t negative[2] = {3, -1}, huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40},
                  huge_empty[2] = {0, INT64_MAX};
    const int64_t largest[1] = {INT64_MAX / 4}, empty[2] = {3, 0};
    static const uint8_t mask[1];
    gpr_request request = request_of(2, 1, negative, NULL, data);
    gpr_view view;

    CHECK(view_of(&request, &view) == GPR_ERROR_VALUE, "negative extent");
    request = request_of(2, 2, huge, NULL, data);
    CHECK(view_of(&request, &view) == GPR_ERROR_VALUE, "too many bytes");
    request = request_of(2, 2, huge_empty, NULL, data);
    CHECK(view_of(&request, &view) == GPR_ERROR_VALUE, "too many bytes beside an empty axis");
    request = request_of(1, 1, largest, NULL, data);
    CHECK(view_of(&request, &view) == GPR_OK && view.n == INT64_MAX / 4, "the largest array");
    request = request_of(2, 1, empty, NULL, data);
    CHECK(view_of(&request, &view) == GPR_OK && view.rows == 3 && view.n == 0, "empty rows");
    request = request_of(2, 3, empty, NULL, data);
    CHECK(view_of(&request, &view) == GPR_ERROR_VALUE, "more axes than there are");
    request = request_of(GPR_MAX_NDIM + 1, 0, empty, NULL, data);
    CHECK(view_of(&request, &view) == GPR_ERROR_VALUE, "too many axes");
    request = request_of(1, 1, largest, NULL, data);
    request.mask = mask;
    CHECK(view_of(&request, &view) == GPR_ERROR_VALUE, "a mask without strides");
    request = request_of(0, 0, NULL, NULL, data);
    CHECK(view_of(&request, &view) == GPR_OK && view.rows == 1 && view.n == 1 && view.contiguous,
          "0-d");
}

/* Element (row, position) of a view, by its definition. */
static const char *element_at(const gpr_view *view, uint64_t row, uint64_t position,
                              const uint8_t **mask)
{
    const char *address = view->data;

    *mask = view->mask;
    for (int i = view->outer + view->inner - 1; i >= 0; i--) {
        uint64_t *index = i >= view->outer ? &position : &row;
        const int64_t at = (int64_t)(*index % view->axes[i].extent);

        *index /= view->axes[i].extent;
        address += at * view->axes[i].in;
        if (*mask != NULL) *mask += at * view->axes[i].mask;
    }
    return address;
}

/* A view has the request's elements, each as often, with its axes in any order; packing copies
 * them. */
static void test_pack(void)
{
    static const gpr_dtype dtypes[] = {GPR_INT8, GPR_FLOAT16, GPR_INT32, GPR_FLOAT64};
    enum { MEMORY = 1 << 16 };
    static char memory[MEMORY], packed[8 * MEMORY];
    static uint8_t mask_memory[MEMORY];

    for (int i = 0; i < MEMORY; i++) {
        memory[i] = (char)check_random();
        mask_memory[i] = check_random() & 1;
    }
    for (int round = 0; round < 2000; round++) {
        const int ndim = (int)check_between(0, 5);
        const int64_t limit = MEMORY / 16;
        int64_t shape[5], strides[5], mask_strides[5], size = 1, reach = 0, mask_reach = 0;
        gpr_request request =
            request_of(ndim, (int)check_between(0, ndim), shape, strides, memory + MEMORY / 2);
        uint64_t total, by_request = 0, by_view = 0, first, count;
        uint8_t neutral[8];
        gpr_view view;

        request.dtype = dtypes[check_between(0, 3)];
        for (int i = 0; i < ndim; i++) {
            shape[i] = check_between(1, check_between(0, 1) ? 4 : 300);
            if (size * shape[i] > 4000) shape[i] = 1;
            size *= shape[i];
            /* Whatever strides stay in the memory. */
            strides[i] = check_between(-40, 40) *
                         (check_between(0, 1) ? (int64_t)gpr_dtype_bytes(request.dtype) : 1);
            while (reach + llabs(strides[i]) * (shape[i] - 1) > limit * 7) strides[i] /= 2;
            reach += llabs(strides[i]) * (shape[i] - 1);
            mask_strides[i] = check_between(-9, 9);
            while (mask_reach + llabs(mask_strides[i]) * (shape[i] - 1) > limit * 7)
                mask_strides[i] /= 2;
            mask_reach += llabs(mask_strides[i]) * (shape[i] - 1);
        }
        if (check_between(0, 1)) {
            request.mask = mask_memory + MEMORY / 2;
            request.mask_strides = mask_strides;
        }
        request.byteswapped = (int)check_between(0, 1);
        CHECK(view_of(&request, &view) == GPR_OK, "%s", gpr_last_error()->message);
        total = view.rows * view.n;
        CHECK(total == (uint64_t)size, "%" PRIu64 " elements of %lld", total, (long long)size);
        /* The same addresses, as a sum of hashes. */
        for (int64_t k = 0; k < size; k++) {
            int64_t left = k, offset = 0, mask_offset = 0;
            const uint8_t *mask;
            const char *address;

            for (int i = ndim - 1; i >= 0; i--) {
                offset += left % shape[i] * strides[i];
                mask_offset += left % shape[i] * mask_strides[i];
                left /= shape[i];
            }
            if (request.mask == NULL) mask_offset = 0;
            by_request +=
                (uint64_t)(offset * 65537 + mask_offset) * UINT64_C(0x9e3779b97f4a7c15) >> 7;
            address = element_at(&view, (uint64_t)k / view.n, (uint64_t)k % view.n, &mask);
            offset = address - (memory + MEMORY / 2);
            mask_offset = request.mask != NULL ? mask - request.mask : 0;
            by_view += (uint64_t)(offset * 65537 + mask_offset) * UINT64_C(0x9e3779b97f4a7c15) >> 7;
        }
        CHECK(by_request == by_view, "the view has other elements than the request");
        for (uint64_t row = 0; row < view.rows; row++) {
            const uint8_t *mask;
            CHECK(gpr_view_row(&view, row) == element_at(&view, row, 0, &mask), "row %" PRIu64,
                  row);
        }
        for (int i = 0; i < 8; i++) neutral[i] = (uint8_t)check_random();
        first = (uint64_t)check_between(0, size - 1);
        count = (uint64_t)check_between(0, size - (int64_t)first);
        if (check_between(0, 3) == 0) {
            first = 0;
            count = total;
        }
        memset(packed, 0x55, (count + 1) * view.bytes);
        gpr_pack(&view, first, count, neutral, packed);
        for (uint64_t k = 0; k < count; k++) {
            const uint8_t *mask;
            const char *want = element_at(&view, (first + k) / view.n, (first + k) % view.n, &mask);
            char element[8];

            for (size_t b = 0; b < view.bytes; b++)
                element[b] = want[request.byteswapped ? view.bytes - 1 - b : b];
            if (mask != NULL && !*mask) memcpy(element, neutral, view.bytes);
            CHECK(memcmp(packed + k * view.bytes, element, view.bytes) == 0,
                  "element %" PRIu64 " of %" PRIu64, first + k, total);
        }
        CHECK(packed[count * view.bytes] == 0x55, "packing wrote past its end");
    }
}

/* Runs of every step that has a loop of its own, and of others, of all lengths around a vector's.
 * The memory ends with the last element: AddressSanitizer sees a load behind it. */
static void test_pack_runs(void)
{
    static const gpr_dtype dtypes[] = {GPR_UINT8, GPR_INT16, GPR_FLOAT32, GPR_FLOAT64,
                                       GPR_COMPLEX128};
    static const int64_t steps[] = {2, -1, -2, 1, 3};
    enum { LONGEST = 150, WIDEST = 16 };
    char packed[(LONGEST + 1) * WIDEST];

    for (int d = 0; d < 5; d++) {
        for (int s = 0; s < 5; s++) {
            for (int64_t n = 1; n <= LONGEST; n++) {
                const int64_t bytes = (int64_t)gpr_dtype_bytes(dtypes[d]), step = steps[s],
                              span = (n - 1) * llabs(step) + 1;
                const uint64_t first = check_between(0, (uint64_t)n - 1),
                               count = check_between(1, (uint64_t)n - first);
                char *memory = malloc((size_t)(span * bytes));
                int64_t shape[1] = {n}, strides[1] = {step * bytes};
                char *start = memory + (step < 0 ? (span - 1) * bytes : 0);
                gpr_request request = request_of(1, 0, shape, strides, start);
                gpr_view view;

                for (int64_t i = 0; i < span * bytes; i++) memory[i] = (char)check_random();
                request.dtype = dtypes[d];
                CHECK(view_of(&request, &view) == GPR_OK, "%s", gpr_last_error()->message);
                memset(packed, 0x55, sizeof packed);
                gpr_pack(&view, first, count, NULL, packed);
                for (uint64_t k = 0; k < count; k++)
                    CHECK(memcmp(packed + (int64_t)k * bytes,
                                 start + (int64_t)(first + k) * step * bytes, (size_t)bytes) == 0,
                          "%lld bytes, step %lld: element %" PRIu64 " of %" PRIu64,
                          (long long)bytes, (long long)step, k, count);
                CHECK(packed[(int64_t)count * bytes] == 0x55, "packing wrote past its end");
                free(memory);
            }
        }
    }
}

/* Planes whose columns are adjacent in memory, of all extents around a block's. */
static void test_pack_planes(void)
{
    static const gpr_dtype dtypes[] = {GPR_UINT8, GPR_INT16, GPR_FLOAT32, GPR_FLOAT64,
                                       GPR_COMPLEX128};

    for (int round = 0; round < 2000; round++) {
        const gpr_dtype dtype = dtypes[check_between(0, 4)];
        const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype),
                      rows = check_between(1, check_between(0, 1) ? 20 : 150),
                      columns = check_between(1, check_between(0, 1) ? 20 : 300),
                      pitch = rows + check_between(0, 3), span = (columns - 1) * pitch + rows;
        const uint64_t size = (uint64_t)(rows * columns);
        const int is_part = check_between(0, 1);
        const uint64_t first = is_part ? (uint64_t)check_between(0, size - 1) : 0,
                       count = is_part ? (uint64_t)check_between(1, size - first) : size;
        char *memory = malloc((size_t)(span * bytes)),
             *packed = malloc((size_t)(count * (uint64_t)bytes + 1));
        int64_t shape[2] = {rows, columns}, strides[2] = {bytes, pitch * bytes};
        gpr_request request = request_of(2, 0, shape, strides, memory);
        gpr_view view;

        for (int64_t i = 0; i < span * bytes; i++) memory[i] = (char)check_random();
        request.dtype = dtype;
        CHECK(view_of(&request, &view) == GPR_OK, "%s", gpr_last_error()->message);
        packed[count * (uint64_t)bytes] = 0x55;
        gpr_pack(&view, first, count, NULL, packed);
        for (uint64_t k = 0; k < count; k++) {
            const int64_t row = (int64_t)((first + k) / (uint64_t)columns),
                          column = (int64_t)((first + k) % (uint64_t)columns);

            CHECK(memcmp(packed + (int64_t)k * bytes, memory + (column * pitch + row) * bytes,
                         (size_t)bytes) == 0,
                  "%lld bytes, (%lld, %lld): element %" PRIu64 " of %" PRIu64, (long long)bytes,
                  (long long)rows, (long long)columns, first + k, size);
        }
        CHECK(packed[count * (uint64_t)bytes] == 0x55, "packing wrote past its end");
        free(memory);
        free(packed);
    }
}

/* ---------------------------------------------------------------- addresses ------------------ */

/* An extent or a step near a power of two, or small. */
static int64_t random_size(int bits)
{
    const int64_t power = INT64_C(1) << check_between(0, (uint64_t)bits);

    return check_between(0, 2) == 0 ? (int64_t)check_between(0, 20)
                                    : power + (int64_t)check_between(0, 4) - 2;
}

/* The first and the last address of an array's bytes, in numbers that do not overflow; 0: there is
 * none, or one is further than 2^63 - 1 bytes from its first element. */
static int find_bytes(const void *data, int ndim, const int64_t *shape, const int64_t *strides,
                      int64_t bytes, uint64_t *first, uint64_t *count)
{
    const __int128 base = (uintptr_t)data;
    __int128 low = base, high = base + bytes - 1;

    for (int i = 0; i < ndim; i++) {
        const __int128 reach = (__int128)(shape[i] - 1) * strides[i];
        if (reach < 0)
            low += reach;
        else
            high += reach;
    }
    *first = (uint64_t)low;
    *count = (uint64_t)(high - low + 1);
    return low >= 0 && high <= UINT64_MAX && base - low <= INT64_MAX && high - base <= INT64_MAX;
}

/* Random arrays, masks, means and results of any extents and strides. */
static void test_what_leads_out_of_memory_is_refused(void)
{
    enum { ELEMENTS, MASK, MEANS, RESULTS, ARRAYS };
    static const int64_t bytes[ARRAYS] = {4, 1, 8, 4};
    unsigned seen[2] = {0, 0};

    for (int k = 0; k < 200000; k++) {
        const int ndim = (int)check_between(1, 4), outer = (int)check_between(0, (uint64_t)ndim);
        int64_t shape[4], strides[ARRAYS][4];
        const void *data[ARRAYS];
        uint64_t first[ARRAYS], count[ARRAYS];
        unsigned __int128 elements = 1;
        int fits = 1;
        for (int i = 0; i < ndim; i++) {
            shape[i] = random_size(check_between(0, 1) ? 20 : 62);
            if (shape[i] < 1) shape[i] = 1;
            elements *= elements <= INT64_MAX ? (unsigned __int128)shape[i] : 1;
        }
        for (int a = 0; a < ARRAYS; a++) {
            data[a] = (const void *)(uintptr_t)(check_random() >> check_between(0, 30) | 64);
            for (int i = 0; i < ndim; i++) {
                const int64_t size = random_size(check_between(0, 1) ? 16 : 59) * bytes[a];
                strides[a][i] = check_between(0, 3) == 0 ? -size : size;
            }
            if (!find_bytes(data[a], a < MEANS ? ndim : outer, shape, strides[a], bytes[a],
                            &first[a], &count[a]))
                fits = 0;
        }
        fits &= elements * 4 <= INT64_MAX;
        gpr_request request = request_of(ndim, ndim - outer, shape, strides[ELEMENTS], data[0]);
        request.op = GPR_OP_VAR;
        request.mask = data[MASK];
        request.mask_strides = strides[MASK];
        request.has_given_mean = request.on_device = request.result_on_device = 1;
        request.mean = data[MEANS];
        request.mean_dtype = GPR_FLOAT64;
        request.mean_strides = strides[MEANS];
        request.result = (void *)(uintptr_t)data[RESULTS];
        request.result_strides = strides[RESULTS];
        gpr_view view;
        const gpr_status status = view_of(&request, &view);
        CHECK(status == (fits ? GPR_OK : GPR_ERROR_VALUE), "case %d: %d", k, status);
        seen[fits]++;
        if (status != GPR_OK || !fits) continue;
        for (int a = 0; a < MEANS; a++) {
            const char *found = NULL;
            uint64_t length = 0;
            gpr_view_extent(&view, a == MASK, &found, &length);
            CHECK((uintptr_t)found == first[a] && length == count[a], "case %d, array %d", k, a);
        }
        gpr_rule rule = {.result = GPR_FLOAT32, .outputs = 1};
        const char *found = NULL;
        uint64_t length = 0;
        gpr_view_result_extent(&view, &rule, request.result, 0, &found, &length);
        CHECK((uintptr_t)found == first[RESULTS] && length == count[RESULTS], "case %d", k);
        gpr_view_mean_extent(&view, GPR_FLOAT64, request.mean, &found, &length);
        CHECK((uintptr_t)found == first[MEANS] && length == count[MEANS], "case %d", k);
    }
    CHECK(seen[0] > 1000 && seen[1] > 1000, "%u refused, %u not", seen[0], seen[1]);
}

/* Magnitudes of random bits of each real type, with steps and in both byte orders. */
static void test_pack_magnitudes(void)
{
    enum { COUNT = 40, MOST_BYTES = 8 };
    static char memory[2 * COUNT * MOST_BYTES], packed[COUNT * MOST_BYTES];

    for (int round = 0; round < 400; round++) {
        const gpr_dtype dtype = (gpr_dtype)(round % GPR_DTYPE_COUNT);
        const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype), shape[] = {COUNT},
                      strides[] = {bytes * check_between(1, 2)};
        gpr_request request = request_of(1, 1, shape, strides, memory);
        gpr_view view;

        if (gpr_kind_of(dtype) == GPR_KIND_COMPLEX) continue;
        for (size_t i = 0; i < sizeof memory; i++)
            memory[i] = (char)(dtype == GPR_BOOL ? check_between(0, 1) : (int)check_random());
        request.dtype = dtype;
        request.byteswapped = check_between(0, 1);
        CHECK(view_of(&request, &view) == GPR_OK, "%s", gpr_last_error()->message);
        gpr_view_magnitudes(&view);
        CHECK(!view.rows_contiguous || view.encoding == 0, "%s is not read in place",
              gpr_dtype_name(dtype));
        gpr_pack(&view, 0, COUNT, NULL, packed);
        for (int64_t i = 0; i < COUNT; i++) {
            char element[MOST_BYTES];
            double given, made;

            for (int64_t b = 0; b < bytes; b++)
                element[b] = memory[i * strides[0] + (request.byteswapped ? bytes - 1 - b : b)];
            gpr_convert(dtype, element, GPR_FLOAT64, &given, 1);
            gpr_convert(view.dtype, packed + i * bytes, GPR_FLOAT64, &made, 1);
            CHECK(made == fabs(given) || (isnan(made) && isnan(given)), "%s: %g of %g",
                  gpr_dtype_name(dtype), made, given);
        }
        if (gpr_kind_of(dtype) == GPR_KIND_FLOAT) gpr_view_with_signs(&view);
        CHECK(view.encoding == (request.byteswapped && bytes > 1 ? GPR_SWAPPED : 0) ||
                  gpr_kind_of(dtype) == GPR_KIND_SIGNED,
              "%s has its signs again", gpr_dtype_name(dtype));
    }
}

int main(void)
{
    check_begin();
    test_what_leads_out_of_memory_is_refused();
    test_contiguous();
    test_reordered();
    test_products_are_reordered();
    test_means_of_repeats();
    test_positions_behind_repeats();
    test_kept_axes_as_in_memory();
    test_not_contiguous();
    test_given_means();
    test_refusals();
    test_pack();
    test_pack_runs();
    test_pack_planes();
    test_pack_magnitudes();
    return check_end();
}
