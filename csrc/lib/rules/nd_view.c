/* Views: a request's array as rows to reduce, and copying any part of one to contiguous memory. */
#include "lib/rules/nd_view.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/registry.h"
#include "lib/base/status.h"

/* ---------------------------------------------------------------- making a view -------------- */

/* One axis: extent, the step in bytes through array and mask, and the other steps (see view.h). */
typedef struct axis {
    int64_t extent, stride, mask_stride, other, mean;
} axis;

static axis axis_at(const gpr_view *view, int i)
{
    return (axis){view->shape[i], view->strides[i], view->mask_strides[i], view->other_strides[i], view->mean_steps[i]};
}

static void put_axis(gpr_view *view, int i, axis a)
{
    view->shape[i] = a.extent;
    view->strides[i] = a.stride;
    view->mask_strides[i] = a.mask_stride;
    view->other_strides[i] = a.other;
    view->mean_steps[i] = a.mean;
}

/* Magnitude of a stride, for any stride. */
static uint64_t magnitude(int64_t stride)
{
    return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
}

static gpr_status check_shape(const gpr_request *request)
{
    uint64_t bytes = gpr_dtype_bytes(request->dtype);

    if (bytes == 0) return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d", (int)request->dtype);
    if (request->ndim < 0 || request->ndim > GPR_MAX_NDIM)
        return gpr_fail(GPR_ERROR_VALUE, "an array has 0 to %d axes, not %d", GPR_MAX_NDIM, request->ndim);
    if (request->reduced < 0 || request->reduced > request->ndim)
        return gpr_fail(GPR_ERROR_VALUE, "%d of %d axes cannot be reduced", request->reduced, request->ndim);
    if (request->mask != NULL && request->mask_strides == NULL && request->ndim > 0)
        return gpr_fail(GPR_ERROR_VALUE, "a mask needs mask_strides");
    if (request->has_given_mean && request->mean != NULL && request->mean_strides == NULL &&
        request->ndim > request->reduced)
        return gpr_fail(GPR_ERROR_VALUE, "means that are given need mean_strides");
    for (int i = 0; i < request->ndim; i++) {
        const int64_t extent = request->shape[i];

        if (extent < 0) return gpr_fail(GPR_ERROR_VALUE, "axis %d has the negative extent %lld", i, (long long)extent);
        /* Empty axes do not excuse the others: strides are computed from them. */
        if (extent > 0 && __builtin_mul_overflow(bytes, (uint64_t)extent, &bytes)) bytes = UINT64_MAX;
        if (bytes > INT64_MAX) return gpr_fail(GPR_ERROR_VALUE, "the array has more than 2^63 - 1 bytes");
    }
    return GPR_OK;
}

/* The request's axes with their strides, C-contiguous ones if it has none. */
static void read_axes(const gpr_request *request, size_t bytes, axis *axes)
{
    uint64_t step = bytes;

    for (int i = request->ndim - 1; i >= 0; i--) {
        const int64_t extent = request->shape[i];

        axes[i].extent = extent;
        axes[i].stride = request->strides != NULL ? request->strides[i] : (int64_t)step;
        axes[i].mask_stride = request->mask != NULL ? request->mask_strides[i] : 0;
        axes[i].mean = 0;
        step *= extent > 0 ? (uint64_t)extent : 1;
    }
}

/* The operator's fold; NULL if there is none. */
static const gpr_fold_row *fold_of(gpr_operator op)
{
    return (int)op >= 0 && (int)op < GPR_OP_COUNT ? &gpr_fold_rows[gpr_operator_rows[op].fold] : NULL;
}

/* Whether the operator asks for elements' positions in their row. */
static int finds_positions(gpr_operator op)
{
    const gpr_fold_row *fold = fold_of(op);

    return fold != NULL && fold->acc_kind == GPR_ACC_INDEXED;
}

/* Steps of outer axes in results: C order, or the request's. */
static void read_result_steps(const gpr_request *request, int outer, axis *axes)
{
    const size_t bytes = gpr_dtype_bytes(gpr_result_dtype(request->op, request->dtype, request->compute));
    const int64_t *strides = request->result_strides;
    uint64_t step = 1;

    if (strides != NULL && request->op == GPR_OP_MINMAX) strides++; /* the first one is from minima to maxima */
    for (int i = outer - 1; i >= 0; i--) {
        axes[i].other = (int64_t)step;
        if (strides != NULL && bytes > 0) axes[i].other = strides[i] / (int64_t)bytes;
        step *= axes[i].extent > 0 ? (uint64_t)axes[i].extent : 1;
    }
}

/* Steps of outer axes in given means, where there is more than one. */
static void read_mean_steps(const gpr_request *request, int outer, axis *axes)
{
    const size_t bytes = gpr_dtype_bytes(request->mean_dtype);

    if (!request->has_given_mean || request->mean == NULL || bytes == 0) return;
    for (int i = 0; i < outer; i++) axes[i].mean = request->mean_strides[i] / (int64_t)bytes;
}

/* Steps of inner axes in positions, where the operator asks for them. */
static void read_position_steps(const gpr_request *request, int inner, axis *axes)
{
    uint64_t step = finds_positions(request->op);

    for (int i = inner - 1; i >= 0; i--) {
        axes[i].other = (int64_t)step;
        step *= (uint64_t)axes[i].extent;
    }
}

/* Whether stepping past the end of `in` is one step of `out`, so that the two are one longer axis. */
static int continues(axis out, axis in, int masked)
{
    const uint64_t extent = (uint64_t)in.extent;

    return (uint64_t)out.stride == (uint64_t)in.stride * extent && (uint64_t)out.other == (uint64_t)in.other * extent &&
           (uint64_t)out.mean == (uint64_t)in.mean * extent &&
           (!masked || (uint64_t)out.mask_stride == (uint64_t)in.mask_stride * extent);
}

/* Appends `count` axes to the view without extents of 1 and with axes that continue each other merged. Returns how many
 * axes it came to. */
static int append_axes(gpr_view *view, int start, const axis *axes, int count)
{
    int end = start;

    for (int i = 0; i < count; i++) {
        if (axes[i].extent == 1) continue;
        if (end > start && continues(axis_at(view, end - 1), axes[i], view->mask != NULL)) {
            const int64_t extent = view->shape[end - 1] * axes[i].extent;
            put_axis(view, end - 1, (axis){extent, axes[i].stride, axes[i].mask_stride, axes[i].other, axes[i].mean});
        } else {
            put_axis(view, end++, axes[i]);
        }
    }
    return end - start;
}

static uint64_t product(const axis *axes, int count)
{
    uint64_t extents = 1;

    for (int i = 0; i < count; i++) extents *= (uint64_t)axes[i].extent;
    return extents;
}

/* Whether a row's axes may be walked in another order than the caller's: the fold commutes, and if it asks for positions, which
 * are those of the caller's order, a kernel reads the array where it lies and carries them along. */
static int may_reorder(const gpr_request *request)
{
    const gpr_fold_row *fold = fold_of(request->op);

    return fold != NULL && fold->commutative && (request->on_device || fold->acc_kind != GPR_ACC_INDEXED);
}

/* Whether axis a should be walked outside axis b: longer steps outside, and repeats (stride 0) outside everything. */
static int walks_outside(axis a, axis b)
{
    return magnitude(a.stride) - 1 > magnitude(b.stride) - 1;
}

/* Puts a row's axes in the order of memory and walks each forward, so that a Fortran-ordered or reversed array is as
 * contiguous as any. Only where the fold commutes. */
static void order_inner_axes(gpr_view *view, axis *axes, int count)
{
    for (int i = 0; i < count; i++) {
        const axis a = axes[i];
        int at = i;

        while (at > 0 && walks_outside(a, axes[at - 1])) {
            axes[at] = axes[at - 1];
            at--;
        }
        axes[at] = a;
    }
    for (int i = 0; i < count; i++) {
        if (axes[i].stride >= 0) continue;
        view->data += (axes[i].extent - 1) * axes[i].stride;
        if (view->mask != NULL) view->mask += (axes[i].extent - 1) * axes[i].mask_stride;
        view->first_position += (uint64_t)((axes[i].extent - 1) * axes[i].other);
        axes[i].stride = -axes[i].stride;
        axes[i].mask_stride = -axes[i].mask_stride;
        axes[i].other = -axes[i].other;
    }
}

int gpr_view_is_aligned(const gpr_view *view)
{
    uint64_t bits = (uint64_t)(uintptr_t)view->data;

    for (int i = 0; i < view->outer + view->inner; i++) bits |= (uint64_t)view->strides[i];
    return bits % view->bytes == 0;
}

static void find_contiguity(gpr_view *view)
{
    const int64_t bytes = (int64_t)view->bytes;
    const int dense = view->inner == 0 || (view->inner == 1 && view->strides[view->outer] == bytes);

    view->rows_contiguous = dense && view->mask == NULL && !view->byteswapped && gpr_view_is_aligned(view);
    view->contiguous = view->rows_contiguous &&
                       (view->outer == 0 || (view->outer == 1 && view->strides[0] == (int64_t)view->n * bytes));
}

gpr_status gpr_make_view(const gpr_request *request, gpr_view *view)
{
    const int outer = request->ndim - request->reduced;
    axis axes[GPR_MAX_NDIM];
    gpr_status status;

    GPR_TRY(check_shape(request));
    view->data = request->data;
    view->mask = request->mask;
    view->dtype = request->dtype;
    view->bytes = gpr_dtype_bytes(request->dtype);
    view->byteswapped = request->byteswapped && view->bytes > 1;
    view->first_position = 0;
    read_axes(request, view->bytes, axes);
    view->rows = product(axes, outer);
    view->n = product(axes + outer, request->reduced);
    if (view->rows > 0 && view->n > 0) {
        read_result_steps(request, outer, axes);
        read_mean_steps(request, outer, axes);
        read_position_steps(request, request->reduced, axes + outer);
        if (may_reorder(request)) order_inner_axes(view, axes + outer, request->reduced);
        view->outer = append_axes(view, 0, axes, outer);
        view->inner = append_axes(view, view->outer, axes + outer, request->reduced);
    } else {
        /* Nothing to read: the axes do not matter, the numbers of rows and elements do; and where results go. */
        view->outer = view->inner = 0;
        if (request->on_device && view->rows > 0) {
            for (int i = 0; i < outer; i++) axes[i].stride = axes[i].mask_stride = 0;
            read_result_steps(request, outer, axes);
            read_mean_steps(request, outer, axes);
            view->outer = append_axes(view, 0, axes, outer);
        }
    }
    find_contiguity(view);
done:
    return status;
}

void gpr_view_extent(const gpr_view *view, int of_mask, const char **first, uint64_t *bytes)
{
    const int64_t *strides = of_mask ? view->mask_strides : view->strides;
    int64_t low = 0, high = 0;

    for (int i = 0; i < view->outer + view->inner; i++) {
        const int64_t last = (view->shape[i] - 1) * strides[i];
        if (last < 0) low += last;
        if (last > 0) high += last;
    }
    *first = (of_mask ? (const char *)view->mask : view->data) + low;
    *bytes = (uint64_t)(high - low) + (of_mask ? 1 : view->bytes);
}

gpr_view gpr_mask_view(const gpr_view *view)
{
    gpr_view mask = *view;

    mask.data = (const char *)view->mask;
    mask.mask = NULL;
    mask.dtype = GPR_BOOL;
    mask.bytes = sizeof *view->mask;
    mask.byteswapped = 0;
    memcpy(mask.strides, view->mask_strides, sizeof mask.strides);
    return mask;
}

const char *gpr_view_row(const gpr_view *view, uint64_t row)
{
    const char *address = view->data;

    for (int i = view->outer - 1; i >= 0; i--) {
        const uint64_t extent = (uint64_t)view->shape[i];

        address += (int64_t)(row % extent) * view->strides[i];
        row /= extent;
    }
    return address;
}

/* ---------------------------------------------------------------- packing -------------------- */

/* Copying a strided run, by element size. memcpy of a constant size is one load or store, whatever the alignment. */
#define DEFINE_COPY_RUN(size)                                                                                    \
    static void copy_run_##size(char *destination, const char *source, int64_t stride, uint64_t count)           \
    {                                                                                                            \
        for (uint64_t i = 0; i < count; i++) memcpy(destination + i * size, source + (int64_t)i * stride, size); \
    }
DEFINE_COPY_RUN(1)
DEFINE_COPY_RUN(2)
DEFINE_COPY_RUN(4)
DEFINE_COPY_RUN(8)
DEFINE_COPY_RUN(16)

static void copy_run(size_t bytes, char *destination, const char *source, int64_t stride, uint64_t count)
{
    if (stride == (int64_t)bytes) {
        memcpy(destination, source, count * bytes);
        return;
    }
    switch (bytes) {
    case 1: copy_run_1(destination, source, stride, count); break;
    case 2: copy_run_2(destination, source, stride, count); break;
    case 4: copy_run_4(destination, source, stride, count); break;
    case 8: copy_run_8(destination, source, stride, count); break;
    default: copy_run_16(destination, source, stride, count); break;
    }
}

/* Reverses the bytes of packed elements in place. */
#define DEFINE_SWAP(size, type, swap)                       \
    static void swap_##size(char *elements, uint64_t count) \
    {                                                       \
        for (uint64_t i = 0; i < count; i++) {              \
            type bits;                                      \
            memcpy(&bits, elements + i * size, size);       \
            bits = swap(bits);                              \
            memcpy(elements + i * size, &bits, size);       \
        }                                                   \
    }
DEFINE_SWAP(2, uint16_t, __builtin_bswap16)
DEFINE_SWAP(4, uint32_t, __builtin_bswap32)
DEFINE_SWAP(8, uint64_t, __builtin_bswap64)

/* One byte has no order: views of such elements are never byteswapped. The parts of a complex number are swapped each. */
static void swap_bytes(size_t bytes, char *elements, uint64_t count)
{
    switch (bytes) {
    case 2: swap_2(elements, count); break;
    case 4: swap_4(elements, count); break;
    default: swap_8(elements, count); break;
    }
}

/* 16 bytes that are chosen or not as one. */
typedef struct pair {
    uint64_t part[2];
} pair;

/* Replaces packed elements whose mask byte is 0. Written as a choice, not a branch: masks are hard to predict. */
#define DEFINE_MASK_RUN(size, type)                                                                  \
    static void mask_run_##size(char *elements, const uint8_t *mask, int64_t stride, uint64_t count, \
                                const void *neutral)                                                 \
    {                                                                                                \
        type replacement;                                                                            \
        memcpy(&replacement, neutral, size);                                                         \
        for (uint64_t i = 0; i < count; i++) {                                                       \
            type bits;                                                                               \
            memcpy(&bits, elements + i * size, size);                                                \
            bits = mask[(int64_t)i * stride] ? bits : replacement;                                   \
            memcpy(elements + i * size, &bits, size);                                                \
        }                                                                                            \
    }
DEFINE_MASK_RUN(1, uint8_t)
DEFINE_MASK_RUN(2, uint16_t)
DEFINE_MASK_RUN(4, uint32_t)
DEFINE_MASK_RUN(8, uint64_t)
DEFINE_MASK_RUN(16, pair)

static void mask_run(size_t bytes, char *elements, const uint8_t *mask, int64_t stride, uint64_t count,
                     const void *neutral)
{
    switch (bytes) {
    case 1: mask_run_1(elements, mask, stride, count, neutral); break;
    case 2: mask_run_2(elements, mask, stride, count, neutral); break;
    case 4: mask_run_4(elements, mask, stride, count, neutral); break;
    case 8: mask_run_8(elements, mask, stride, count, neutral); break;
    default: mask_run_16(elements, mask, stride, count, neutral); break;
    }
}

/* Where packing is: an index into every axis but the last two, which the caller walks, and the addresses there. */
typedef struct cursor {
    int64_t index[GPR_MAX_NDIM];
    const char *data;
    const uint8_t *mask; /* NULL: there is none */
} cursor;

/* Steps axis `at` of the cursor by one, carrying into the axes before it. */
static void advance(const gpr_view *view, cursor *c, int at)
{
    for (; at >= 0; at--) {
        c->data += view->strides[at];
        if (c->mask != NULL) c->mask += view->mask_strides[at];
        if (++c->index[at] < view->shape[at]) return;
        c->data -= view->shape[at] * view->strides[at];
        if (c->mask != NULL) c->mask -= view->shape[at] * view->mask_strides[at];
        c->index[at] = 0;
    }
}

/* Tiles of a plane whose rows lie crosswise in memory: a cache line of the source serves the tile's other rows while it
 * is still in the first cache. */
enum { TILE_ROWS = 16, TILE_COLUMNS = 128 };

static void copy_plane_tiled(size_t bytes, char *destination, const char *source, axis rows, axis columns)
{
    const uint64_t row_bytes = (uint64_t)columns.extent * bytes;

    for (int64_t r = 0; r < rows.extent; r += TILE_ROWS) {
        const int64_t r_end = rows.extent - r < TILE_ROWS ? rows.extent : r + TILE_ROWS;
        for (int64_t c = 0; c < columns.extent; c += TILE_COLUMNS) {
            const int64_t left = columns.extent - c;
            const uint64_t width = (uint64_t)(left < TILE_COLUMNS ? left : TILE_COLUMNS);
            for (int64_t i = r; i < r_end; i++)
                copy_run(bytes, destination + (uint64_t)i * row_bytes + (uint64_t)c * bytes,
                         source + i * rows.stride + c * columns.stride, columns.stride, width);
        }
    }
}

/* Packs `rows.extent` whole runs of the last axis. */
static void pack_plane(const gpr_view *view, axis rows, axis columns, const cursor *c, const void *neutral,
                       char *destination)
{
    const uint64_t row_bytes = (uint64_t)columns.extent * view->bytes;

    if (rows.extent > 1 && magnitude(rows.stride) < magnitude(columns.stride)) {
        copy_plane_tiled(view->bytes, destination, c->data, rows, columns);
    } else {
        for (int64_t i = 0; i < rows.extent; i++)
            copy_run(view->bytes, destination + (uint64_t)i * row_bytes, c->data + i * rows.stride, columns.stride,
                     (uint64_t)columns.extent);
    }
    if (view->byteswapped) {
        const size_t part = gpr_part_bytes(view->dtype);
        const uint64_t elements = (uint64_t)rows.extent * (uint64_t)columns.extent;
        swap_bytes(part, destination, elements * (view->bytes / part));
    }
    if (c->mask == NULL) return;
    for (int64_t i = 0; i < rows.extent; i++)
        mask_run(view->bytes, destination + (uint64_t)i * row_bytes, c->mask + i * rows.mask_stride,
                 columns.mask_stride, (uint64_t)columns.extent, neutral);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void gpr_pack(const gpr_view *view, uint64_t first, uint64_t count, const void *neutral, void *destination)
{
    const int axes = view->outer + view->inner;
    const axis unit = {.extent = 1};
    const axis columns = axes > 0 ? axis_at(view, axes - 1) : unit;
    const axis rows = axes > 1 ? axis_at(view, axes - 2) : unit;
    char *out = destination;
    cursor c = {.data = view->data, .mask = view->mask};
    int64_t row, column;

    column = (int64_t)(first % (uint64_t)columns.extent);
    first /= (uint64_t)columns.extent;
    row = (int64_t)(first % (uint64_t)rows.extent);
    first /= (uint64_t)rows.extent;
    for (int i = axes - 3; i >= 0; i--) {
        c.index[i] = (int64_t)(first % (uint64_t)view->shape[i]);
        first /= (uint64_t)view->shape[i];
        c.data += c.index[i] * view->strides[i];
        if (c.mask != NULL) c.mask += c.index[i] * view->mask_strides[i];
    }
    while (count > 0) {
        const uint64_t whole = count / (uint64_t)columns.extent;
        axis taken_rows = rows, taken_columns = columns;
        cursor at = c;
        uint64_t taken;

        /* A plane of whole runs where one starts here, else the rest of this run. */
        taken_rows.extent = column == 0 && whole > 0 ? (int64_t)least((uint64_t)(rows.extent - row), whole) : 1;
        if (column != 0 || whole == 0)
            taken_columns.extent = (int64_t)least((uint64_t)(columns.extent - column), count);
        at.data += row * rows.stride + column * columns.stride;
        if (at.mask != NULL) at.mask += row * rows.mask_stride + column * columns.mask_stride;
        pack_plane(view, taken_rows, taken_columns, &at, neutral, out);

        taken = (uint64_t)taken_rows.extent * (uint64_t)taken_columns.extent;
        out += taken * view->bytes;
        count -= taken;
        column += taken_columns.extent;
        if (column < columns.extent) continue;
        column = 0;
        row += taken_rows.extent;
        if (row < rows.extent) continue;
        row = 0;
        advance(view, &c, axes - 3);
    }
}

uint64_t gpr_count_left_out(const gpr_view *view, uint64_t first, uint64_t count)
{
    enum { MARKS = 4 << 10 }; /* looked at together */
    const gpr_view mask = gpr_mask_view(view);
    uint8_t marks[MARKS];
    uint64_t left_out = 0;

    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done, step = left < MARKS ? left : MARKS;

        gpr_pack(&mask, first + done, step, NULL, marks);
        for (uint64_t i = 0; i < step; i++) left_out += marks[i] == 0;
        done += step;
    }
    return left_out;
}
