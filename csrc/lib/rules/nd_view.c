/* Views: a request's array as rows to reduce, and copying any part of one to contiguous memory. */
#include "lib/rules/nd_view.h"

#include <string.h>

#include "lib/base/integers.h"
#include "lib/base/registry.h"
#include "lib/base/status.h"

/* ---------------------------------------------------------------- making a view -------------- */

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
        return gpr_fail(GPR_ERROR_VALUE, "an array has 0 to %d axes, not %d", GPR_MAX_NDIM,
                        request->ndim);
    if (request->reduced < 0 || request->reduced > request->ndim)
        return gpr_fail(GPR_ERROR_VALUE, "%d of %d axes cannot be reduced", request->reduced,
                        request->ndim);
    if (request->nat_last && (request->dtype != GPR_INT64 || request->on_device))
        return gpr_fail(GPR_ERROR_VALUE, "dates are int64 of a host array, not %s%s",
                        gpr_dtype_rows[request->dtype].name,
                        request->on_device ? " of a device array" : "");
    if (request->mask != NULL && request->mask_strides == NULL && request->ndim > 0)
        return gpr_fail(GPR_ERROR_VALUE, "a mask needs mask_strides");
    if (request->has_given_mean && request->mean != NULL && request->mean_strides == NULL &&
        request->ndim > request->reduced)
        return gpr_fail(GPR_ERROR_VALUE, "means that are given need mean_strides");
    for (int i = 0; i < request->ndim; i++) {
        const int64_t extent = request->shape[i];

        if (extent < 0)
            return gpr_fail(GPR_ERROR_VALUE, "axis %d has the negative extent %lld", i,
                            (long long)extent);
        /* Empty axes do not excuse the others: strides are computed from them. */
        if (extent > 0 && __builtin_mul_overflow(bytes, (uint64_t)extent, &bytes))
            bytes = UINT64_MAX;
        if (bytes > INT64_MAX)
            return gpr_fail(GPR_ERROR_VALUE, "the array has more than 2^63 - 1 bytes");
    }
    return GPR_OK;
}

/* The request's axes with their strides, C-contiguous ones if it has none. */
static void read_axes(const gpr_request *request, size_t bytes, gpr_axis *axes)
{
    uint64_t step = bytes;

    for (int i = request->ndim - 1; i >= 0; i--) {
        const uint64_t extent = (uint64_t)request->shape[i];

        axes[i] = (gpr_axis){.extent = extent,
                             .in = request->strides != NULL ? request->strides[i] : (int64_t)step,
                             .mask = request->mask != NULL ? request->mask_strides[i] : 0};
        step *= extent > 0 ? extent : 1;
    }
}

/* Whether elements are multiplied by those of an array that the view does not have the steps of. */
static int meets_another_array(const gpr_request *request, const gpr_rule *rule)
{
    return rule->acc_kind == GPR_ACC_EXACT_PRODUCTS && rule->products == GPR_PRODUCTS &&
           request->mask == NULL;
}

/* Whether a row's elements have positions: where one of them is the result, and where they meet
 * those of another array. Kernels count them for all products. */
static int has_positions(const gpr_request *request, const gpr_rule *rule)
{
    return rule->acc_kind == GPR_ACC_INDEXED || meets_another_array(request, rule) ||
           (rule->acc_kind == GPR_ACC_EXACT_PRODUCTS && request->on_device);
}

/* Whether a row's axes may be iterated in another order than the caller's: the fold commutes, and
 * if it needs positions, which are those of the caller's order, a kernel reads the array in place
 * and carries them along. Two arrays are iterated side by side. */
static int may_reorder(const gpr_request *request, const gpr_rule *rule)
{
    if (rule->acc_kind == GPR_ACC_EXACT_PRODUCTS) return !meets_another_array(request, rule);
    return gpr_fold_rows[rule->fold].commutative &&
           (request->on_device || !has_positions(request, rule));
}

/* Steps of outer axes in results: C order, or the request's. */
static void read_result_steps(const gpr_request *request, const gpr_rule *rule, int outer,
                              gpr_axis *axes)
{
    const int64_t bytes = (int64_t)gpr_dtype_rows[rule->result].bytes;
    const int64_t *strides = request->result_on_device ? request->result_strides : NULL;
    uint64_t step = 1;

    /* the first one is from minima to maxima */
    if (strides != NULL && rule->outputs > 1) strides++;
    for (int i = outer - 1; i >= 0; i--) {
        axes[i].out = strides != NULL ? strides[i] / bytes : (int64_t)step;
        step *= axes[i].extent > 0 ? axes[i].extent : 1;
    }
}

/* Steps of outer axes in given means: 0 where there is one for all, or none. */
static void read_mean_steps(const gpr_request *request, const gpr_rule *rule, int outer,
                            int64_t *steps)
{
    const int has_many = rule->has_given_mean && request->mean != NULL;

    for (int i = 0; i < outer; i++)
        steps[i] =
            has_many ? request->mean_strides[i] / (int64_t)gpr_dtype_rows[rule->mean].bytes : 0;
}

/* Steps of inner axes in positions, where the rule needs them. */
static void read_position_steps(const gpr_request *request, const gpr_rule *rule, int inner,
                                gpr_axis *axes)
{
    uint64_t step = (uint64_t)has_positions(request, rule);

    for (int i = inner - 1; i >= 0; i--) {
        axes[i].position = (int64_t)step;
        step *= axes[i].extent;
    }
}

/* Whether elements that come again, all of them as often, change nothing: of idempotent folds, and
 * of means of floats, as the sum and the number of elements grow alike. Sums of integers may wrap.
 */
static int may_read_repeats_once(const gpr_rule *rule)
{
    return gpr_fold_rows[rule->fold].idempotent || (rule->divide && gpr_is_inexact(rule->compute));
}

/* Makes of each of a row's axes along which all elements are the same one, their mask too, an axis
 * of the first one alone, if the fold finds the same. Of equals the first is found: positions that
 * are counted, not carried along, stay the same without the axes in front. */
static void read_repeats_once(const gpr_request *request, const gpr_rule *rule, gpr_axis *axes,
                              int count)
{
    const int only_in_front = !may_reorder(request, rule);

    for (int i = 0; i < count && may_read_repeats_once(rule); i++) {
        if (axes[i].extent > 1 && axes[i].in == 0 && axes[i].mask == 0)
            axes[i].extent = 1;
        else if (only_in_front && axes[i].extent > 1)
            break;
    }
}

int gpr_axis_continues(const gpr_axis *out, const gpr_axis *in, int masked)
{
    const uint64_t extent = in->extent;

    return (uint64_t)out->in == (uint64_t)in->in * extent &&
           (uint64_t)out->out == (uint64_t)in->out * extent &&
           (!masked || (uint64_t)out->mask == (uint64_t)in->mask * extent);
}

/* Appends `count` axes to the view without extents of 1 and with axes that continue each other
 * merged, in given means too, of which `mean_steps` has the steps where they are outer axes.
 * Returns how many axes it came to. */
static int append_axes(gpr_view *view, int start, const gpr_axis *axes, const int64_t *mean_steps,
                       int count)
{
    int end = start;

    for (int i = 0; i < count; i++) {
        const int64_t mean_step = mean_steps != NULL ? mean_steps[i] : 0;

        if (axes[i].extent == 1) continue;
        if (end > start && gpr_axis_continues(&view->axes[end - 1], &axes[i], view->mask != NULL) &&
            (mean_steps == NULL ||
             (uint64_t)view->mean_steps[end - 1] == (uint64_t)mean_step * axes[i].extent)) {
            const uint64_t extent = view->axes[end - 1].extent * axes[i].extent;
            view->axes[end - 1] = axes[i];
            view->axes[end - 1].extent = extent;
        } else {
            view->axes[end++] = axes[i];
        }
        view->mean_steps[end - 1] = mean_step;
    }
    return end - start;
}

static uint64_t product(const gpr_axis *axes, int count)
{
    uint64_t extents = 1;

    for (int i = 0; i < count; i++) extents *= axes[i].extent;
    return extents;
}

/* Whether axis a should be outside axis b: longer steps outside, and repeats (stride 0)
 * outside everything. */
static int is_outside(const gpr_axis *a, const gpr_axis *b)
{
    return magnitude(a->in) - 1 > magnitude(b->in) - 1;
}

/* Brings a row's axes into the order of memory and turns each of them forward, so that a
 * Fortran-ordered or reversed array is contiguous, too. Only where the fold commutes. */
static void order_inner_axes(gpr_view *view, gpr_axis *axes, int count)
{
    for (int i = 0; i < count; i++) {
        const gpr_axis a = axes[i];
        int at = i;

        while (at > 0 && is_outside(&a, &axes[at - 1])) {
            axes[at] = axes[at - 1];
            at--;
        }
        axes[at] = a;
    }
    for (int i = 0; i < count; i++) {
        const int64_t last = (int64_t)axes[i].extent - 1;

        if (axes[i].in >= 0) continue;
        view->data += last * axes[i].in;
        if (view->mask != NULL) view->mask += last * axes[i].mask;
        view->first_position += (uint64_t)(last * axes[i].position);
        axes[i].in = -axes[i].in;
        axes[i].mask = -axes[i].mask;
        axes[i].position = -axes[i].position;
    }
}

int gpr_view_is_aligned(const gpr_view *view)
{
    uint64_t bits = (uint64_t)(uintptr_t)view->data;

    for (int i = 0; i < view->outer + view->inner; i++) bits |= (uint64_t)view->axes[i].in;
    return bits % view->bytes == 0;
}

static void find_contiguity(gpr_view *view)
{
    const int64_t bytes = (int64_t)view->bytes;
    const int dense = view->inner == 0 || (view->inner == 1 && view->axes[view->outer].in == bytes);

    view->rows_contiguous =
        dense && view->mask == NULL && view->encoding == 0 && gpr_view_is_aligned(view);
    view->contiguous =
        view->rows_contiguous &&
        (view->outer == 0 || (view->outer == 1 && view->axes[0].in == (int64_t)view->n * bytes));
}

void gpr_view_magnitudes(gpr_view *view)
{
    const gpr_dtype_row *row = &gpr_dtype_rows[view->dtype];

    if (row->kind != GPR_KIND_FLOAT && row->kind != GPR_KIND_SIGNED) return; /* as they are */
    if (row->kind == GPR_KIND_SIGNED) {
        switch (row->bytes) {
        case 1: view->dtype = GPR_UINT8; break;
        case 2: view->dtype = GPR_UINT16; break;
        case 4: view->dtype = GPR_UINT32; break;
        default: view->dtype = GPR_UINT64; break;
        }
    }
    view->encoding |= GPR_WITHOUT_SIGN;
    find_contiguity(view);
}

void gpr_view_with_signs(gpr_view *view)
{
    view->encoding &= ~GPR_WITHOUT_SIGN;
    find_contiguity(view);
}

/* Refuses strides of the elements, the mask, the means or the results that lead out of the address
 * space: later arithmetic on axes does not overflow. */
static gpr_status check_addresses(const gpr_request *request, const gpr_rule *rule,
                                  const gpr_axis *axes, const int64_t *mean_steps, int outer,
                                  int is_empty)
{
    enum { ELEMENTS, MASK, MEANS, RESULTS, ARRAYS };
    static const char *const names[ARRAYS] = {"array", "mask", "array of means", "result"};
    const int has_means = rule->has_given_mean && request->mean != NULL,
              has_results = request->result_on_device;
    const int64_t bytes[ARRAYS] = {(int64_t)gpr_dtype_bytes(request->dtype), 1,
                                   has_means ? (int64_t)gpr_dtype_rows[rule->mean].bytes : 1,
                                   (int64_t)gpr_dtype_rows[rule->result].bytes};
    const void *const data[ARRAYS] = {request->data, request->mask, request->mean,
                                      has_results ? request->result : NULL};
    gpr_span spans[ARRAYS];
    int fits[ARRAYS] = {1, 1, 1, 1};
    gpr_status status = GPR_OK;

    for (int k = 0; k < ARRAYS; k++) spans[k] = (gpr_span){0, (uint64_t)bytes[k] - 1};
    for (int i = 0; i < request->ndim && !is_empty; i++) {
        fits[ELEMENTS] &= gpr_extend_span(&spans[ELEMENTS], axes[i].extent, axes[i].in);
        if (request->mask != NULL)
            fits[MASK] &= gpr_extend_span(&spans[MASK], axes[i].extent, axes[i].mask);
    }
    for (int i = 0; i < outer && (has_means || has_results); i++) {
        int64_t step = 0;
        fits[MEANS] &= !has_means ||
                       gpr_extend_span(&spans[MEANS], axes[i].extent, mean_steps[i] * bytes[MEANS]);
        fits[RESULTS] &=
            !has_results || (!__builtin_mul_overflow(axes[i].out, bytes[RESULTS], &step) &&
                             gpr_extend_span(&spans[RESULTS], axes[i].extent, step));
    }
    if (has_results && rule->outputs > 1 && request->result_strides != NULL)
        fits[RESULTS] &=
            gpr_extend_span(&spans[RESULTS], (uint64_t)rule->outputs, request->result_strides[0]);
    for (int k = 0; k < ARRAYS; k++) {
        if (data[k] != NULL && !(fits[k] && gpr_has_addresses(spans[k], data[k])))
            GPR_TRY(gpr_fail(GPR_ERROR_VALUE, "the strides of the %s lead out of the address space",
                             names[k]));
    }
done:
    return status;
}

/* Whether elements are in the other byte order, and that matters: integers are 0 in any, unless 1
 * is taken away from them first. */
static int is_swapped(const gpr_request *request, const gpr_rule *rule)
{
    const gpr_kind kind = gpr_kind_of(request->dtype);
    const int is_integer = kind == GPR_KIND_SIGNED || kind == GPR_KIND_UNSIGNED,
              asks_for_zeros = rule->fold == GPR_FOLD_any || rule->fold == GPR_FOLD_all ||
                               rule->fold == GPR_FOLD_count;

    if (!request->byteswapped || gpr_dtype_bytes(request->dtype) == 1) return 0;
    return request->on_device || request->nat_last || !is_integer || !asks_for_zeros;
}

gpr_status gpr_make_view(const gpr_request *request, const gpr_rule *rule, gpr_view *view)
{
    const int outer = request->ndim - request->reduced;
    gpr_axis axes[GPR_MAX_NDIM];
    int64_t mean_steps[GPR_MAX_NDIM];
    gpr_status status;

    GPR_TRY(check_shape(request));
    view->data = request->data;
    view->mask = request->mask;
    view->dtype = request->dtype;
    view->bytes = gpr_dtype_bytes(request->dtype);
    view->encoding =
        (is_swapped(request, rule) ? GPR_SWAPPED : 0) | (request->nat_last ? GPR_NAT_LAST : 0);
    view->first_position = 0;
    view->outer = view->inner = 0;
    read_axes(request, view->bytes, axes);
    view->rows = product(axes, outer);
    view->n = product(axes + outer, request->reduced);
    if (view->rows > 0 && view->n > 0) {
        read_result_steps(request, rule, outer, axes);
        read_mean_steps(request, rule, outer, mean_steps);
        read_position_steps(request, rule, request->reduced, axes + outer);
        GPR_TRY(check_addresses(request, rule, axes, mean_steps, outer, 0));
        read_repeats_once(request, rule, axes + outer, request->reduced);
        view->n = product(axes + outer, request->reduced);
        if (may_reorder(request, rule)) order_inner_axes(view, axes + outer, request->reduced);
        view->outer = append_axes(view, 0, axes, mean_steps, outer);
        view->inner = append_axes(view, view->outer, axes + outer, NULL, request->reduced);
    } else if (request->on_device && view->rows > 0) {
        /* Nothing to read: only where results go matters. */
        for (int i = 0; i < outer; i++) axes[i].in = axes[i].mask = 0;
        read_result_steps(request, rule, outer, axes);
        read_mean_steps(request, rule, outer, mean_steps);
        GPR_TRY(check_addresses(request, rule, axes, mean_steps, outer, 1));
        view->outer = append_axes(view, 0, axes, mean_steps, outer);
    }
    find_contiguity(view);
done:
    return status;
}

/* Address of the lowest byte that is all.below bytes below its first element. Axes that were turned
 * around may reach further than a difference of pointers does. */
static const char *first_byte(const void *element, gpr_span all)
{
    return (const char *)((uintptr_t)element - all.below);
}

void gpr_view_extent(const gpr_view *view, int of_mask, const char **first, uint64_t *bytes)
{
    gpr_span all = {0, 0};

    for (int i = 0; i < view->outer + view->inner; i++)
        (void)gpr_extend_span(&all, view->axes[i].extent,
                              of_mask ? view->axes[i].mask : view->axes[i].in);
    *first = first_byte(of_mask ? (const char *)view->mask : view->data, all);
    *bytes = all.below + all.above + (of_mask ? 1 : view->bytes);
}

void gpr_view_result_extent(const gpr_view *view, const gpr_rule *rule, const void *result,
                            int64_t output_stride, const char **first, uint64_t *bytes)
{
    const int64_t each = (int64_t)gpr_dtype_rows[rule->result].bytes;
    gpr_span all = {0, 0};

    (void)gpr_extend_span(&all, (uint64_t)rule->outputs, output_stride * each);
    for (int i = 0; i < view->outer; i++)
        (void)gpr_extend_span(&all, view->axes[i].extent, view->axes[i].out * each);
    *first = first_byte(result, all);
    *bytes = all.below + all.above + (uint64_t)each;
}

void gpr_view_mean_extent(const gpr_view *view, gpr_dtype mean, const void *means,
                          const char **first, uint64_t *bytes)
{
    const int64_t each = (int64_t)gpr_dtype_rows[mean].bytes;
    gpr_span all = {0, 0};

    for (int i = 0; i < view->outer; i++)
        (void)gpr_extend_span(&all, view->axes[i].extent, view->mean_steps[i] * each);
    *first = first_byte(means, all);
    *bytes = all.below + all.above + (uint64_t)each;
}

/* Makes a view of the mask of another view. */
static void view_mask_as(const gpr_view *view, gpr_dtype dtype, int encoding, gpr_view *mask)
{
    gpr_copy_view(mask, view);
    mask->data = (const char *)view->mask;
    mask->mask = NULL;
    mask->dtype = dtype;
    mask->bytes = gpr_dtype_rows[dtype].bytes;
    mask->encoding = encoding;
    for (int i = 0; i < mask->outer + mask->inner; i++) mask->axes[i].in = view->axes[i].mask;
    find_contiguity(mask);
}

void gpr_mask_view(const gpr_view *view, gpr_view *mask)
{
    view_mask_as(view, GPR_BOOL, 0, mask);
}

void gpr_split_view(gpr_view *view, gpr_dtype dtype, int encoding, gpr_view *second)
{
    view_mask_as(view, dtype, encoding, second);
    view->mask = NULL;
    find_contiguity(view);
}

/* Which of `count` axes all elements are the same along, as is what a mask says of them. */
static uint64_t same_along(const gpr_view *view, const gpr_axis *axes, int count)
{
    uint64_t same = 0;

    for (int i = 0; i < count; i++)
        if (axes[i].in == 0 && (view->mask == NULL || axes[i].mask == 0)) same |= UINT64_C(1) << i;
    return same;
}

uint64_t gpr_view_repeats(const gpr_view *view)
{
    return same_along(view, view->axes + view->outer, view->inner);
}

uint64_t gpr_view_same_rows(const gpr_view *view)
{
    return same_along(view, view->axes, view->outer);
}

void gpr_view_distinct_rows(const gpr_view *view, uint64_t same, gpr_view *distinct)
{
    gpr_copy_view(distinct, view);
    distinct->outer = 0;
    for (int i = 0; i < view->outer; i++) {
        if (same >> i & 1)
            distinct->rows /= view->axes[i].extent;
        else
            distinct->axes[distinct->outer++] = view->axes[i];
    }
    memcpy(distinct->axes + distinct->outer, view->axes + view->outer,
           (size_t)view->inner * sizeof *view->axes);
    find_contiguity(distinct);
}

uint64_t gpr_view_once(const gpr_view *view, uint64_t repeats, gpr_view *once)
{
    gpr_axis left[GPR_MAX_NDIM];
    uint64_t times = 1;
    int count = 0;

    gpr_copy_view(once, view);
    for (int i = 0; i < view->inner; i++) {
        const gpr_axis *axis = &view->axes[view->outer + i];

        if (repeats >> i & 1)
            times *= axis->extent;
        else
            left[count++] = *axis;
    }
    once->n = view->n / times;
    once->inner = append_axes(once, once->outer, left, NULL, count);
    find_contiguity(once);
    return times;
}

uint64_t gpr_view_position(const gpr_view *once, uint64_t position)
{
    uint64_t whole = once->first_position;

    for (int i = once->outer + once->inner - 1; i >= once->outer; i--) {
        const gpr_axis *axis = &once->axes[i];

        whole += position % axis->extent * (uint64_t)axis->position;
        position /= axis->extent;
    }
    return whole;
}

const char *gpr_view_row(const gpr_view *view, uint64_t row)
{
    const char *address = view->data;

    for (int i = view->outer - 1; i >= 0; i--) {
        const uint64_t extent = view->axes[i].extent;

        address += (int64_t)(row % extent) * view->axes[i].in;
        row /= extent;
    }
    return address;
}

/* ---------------------------------------------------------------- packing -------------------- */

/* 16 bytes that are moved as one. */
typedef uint64_t both_parts __attribute__((vector_size(16)));

/* Copying a plane of runs, by element size. memcpy of a constant size is one load or store at any
 * alignment. Runs of every second element and reversed ones have loops of their own: their steps
 * are constants, so that the compiler makes vectors. */
#define COPY_RUN(size, step)                                  \
    for (uint64_t i = 0; i < count; i++) {                    \
        MOVED_##size element;                                 \
        memcpy(&element, source + (int64_t)i * (step), size); \
        memcpy(destination + i * (size), &element, size);     \
    }
#define MOVED_1 uint8_t
#define MOVED_2 uint16_t
#define MOVED_4 uint32_t
#define MOVED_8 uint64_t
#define MOVED_16 both_parts

/* Every second element is the lower half of a number of twice its size, which compilers narrow by
 * vectors where they copy small elements one by one. The last one may have nothing behind it.
 * Of one element or more. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a number's first bytes are its lower");
#define DEFINE_COPY_LOWER(size, twice, type)                                                \
    static void copy_second_##size(char *restrict destination, const char *restrict source, \
                                   uint64_t count)                                          \
    {                                                                                       \
        for (uint64_t i = 0; i + 1 < count; i++) {                                          \
            type both;                                                                      \
            memcpy(&both, source + i * (twice), twice);                                     \
            const MOVED_##size lower = (MOVED_##size)both;                                  \
            memcpy(destination + i * (size), &lower, size);                                 \
        }                                                                                   \
        memcpy(destination + (count - 1) * (size), source + (count - 1) * (twice), size);   \
    }
DEFINE_COPY_LOWER(1, 2, uint16_t)
DEFINE_COPY_LOWER(2, 4, uint32_t)

/* Small elements are reversed eight bytes at a time. */
static uint64_t reversed_1(uint64_t elements)
{
    return __builtin_bswap64(elements);
}

static uint64_t reversed_2(uint64_t elements)
{
    const uint64_t low = UINT64_C(0x00ff00ff00ff00ff), bytes = __builtin_bswap64(elements);

    return (bytes >> 8 & low) | (bytes & low) << 8;
}

#define DEFINE_COPY_REVERSED(size)                                                              \
    static void copy_reversed_##size(char *restrict destination, const char *restrict source,   \
                                     uint64_t count)                                            \
    {                                                                                           \
        enum { AT_ONCE = sizeof(uint64_t) / (size) };                                           \
        uint64_t i = 0;                                                                         \
        for (; i + AT_ONCE <= count; i += AT_ONCE) {                                            \
            uint64_t elements;                                                                  \
            memcpy(&elements, source - (int64_t)((i + AT_ONCE - 1) * (size)), sizeof elements); \
            elements = reversed_##size(elements);                                               \
            memcpy(destination + i * (size), &elements, sizeof elements);                       \
        }                                                                                       \
        for (; i < count; i++)                                                                  \
            memcpy(destination + i * (size), source - (int64_t)(i * (size)), size);             \
    }
DEFINE_COPY_REVERSED(1)
DEFINE_COPY_REVERSED(2)

#define COPY_SECOND_1 copy_second_1(destination, source, count);
#define COPY_SECOND_2 copy_second_2(destination, source, count);
#define COPY_SECOND_4 COPY_RUN(4, 8)
#define COPY_SECOND_8 COPY_RUN(8, 16)
#define COPY_SECOND_16 COPY_RUN(16, 32)
#define COPY_REVERSED_1 copy_reversed_1(destination, source, count);
#define COPY_REVERSED_2 copy_reversed_2(destination, source, count);
#define COPY_REVERSED_4 COPY_RUN(4, -4)
#define COPY_REVERSED_8 COPY_RUN(8, -8)
#define COPY_REVERSED_16 COPY_RUN(16, -16)

#define DEFINE_COPY_RUN(size)                                                             \
    static void copy_run_##size(char *restrict destination, const char *restrict source,  \
                                int64_t stride, uint64_t count)                           \
    {                                                                                     \
        if (stride == 2 * (size)) {                                                       \
            COPY_SECOND_##size                                                            \
        } else if (stride == -(size)) {                                                   \
            COPY_REVERSED_##size                                                          \
        } else {                                                                          \
            COPY_RUN(size, stride)                                                        \
        }                                                                                 \
    }                                                                                     \
    static void copy_runs_##size(char *restrict destination, const char *restrict source, \
                                 gpr_axis rows, gpr_axis columns)                         \
    {                                                                                     \
        const uint64_t count = columns.extent;                                            \
        for (uint64_t r = 0; r < rows.extent;                                             \
             r++, source += rows.in, destination += count * (size))                       \
            COPY_RUN(size, columns.in)                                                    \
    }
DEFINE_COPY_RUN(1)
DEFINE_COPY_RUN(2)
DEFINE_COPY_RUN(4)
DEFINE_COPY_RUN(8)
DEFINE_COPY_RUN(16)

static void copy_run(size_t bytes, char *destination, const char *source, int64_t stride,
                     uint64_t count)
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

/* Runs so short that a call for each would take longer than its elements. */
enum { SHORT_RUN = 16 };

/* Runs without gaps of `size` to twice as many bytes: two copies each, which may overlap. */
#define DEFINE_COPY_PAIRS(size)                                                          \
    static void copy_pairs_##size(char *destination, const char *source, int64_t stride, \
                                  uint64_t run_bytes, uint64_t rows)                     \
    {                                                                                    \
        const uint64_t second = run_bytes - (size);                                      \
        for (; rows > 0; rows--, source += stride, destination += run_bytes) {           \
            char first_bytes[size], last_bytes[size];                                    \
            memcpy(first_bytes, source, size);                                           \
            memcpy(last_bytes, source + second, size);                                   \
            memcpy(destination, first_bytes, size);                                      \
            memcpy(destination + second, last_bytes, size);                              \
        }                                                                                \
    }
DEFINE_COPY_PAIRS(2)
DEFINE_COPY_PAIRS(4)
DEFINE_COPY_PAIRS(8)
DEFINE_COPY_PAIRS(16)

/* The same, if they are so short; else 0. */
static int copy_dense_runs(char *destination, const char *source, int64_t stride,
                           uint64_t run_bytes, uint64_t rows)
{
    switch (run_bytes) { /* runs that are as long as an element */
    case 2: copy_run(2, destination, source, stride, rows); return 1;
    case 4: copy_run(4, destination, source, stride, rows); return 1;
    case 8: copy_run(8, destination, source, stride, rows); return 1;
    case 16: copy_run(16, destination, source, stride, rows); return 1;
    default: break;
    }
    if (run_bytes < 2 || run_bytes > 32) return 0;
    if (run_bytes < 4)
        copy_pairs_2(destination, source, stride, run_bytes, rows);
    else if (run_bytes < 8)
        copy_pairs_4(destination, source, stride, run_bytes, rows);
    else if (run_bytes < 16)
        copy_pairs_8(destination, source, stride, run_bytes, rows);
    else
        copy_pairs_16(destination, source, stride, run_bytes, rows);
    return 1;
}

static void copy_short_runs(size_t bytes, char *destination, const char *source, gpr_axis rows,
                            gpr_axis columns)
{
    if (columns.in == (int64_t)bytes &&
        copy_dense_runs(destination, source, rows.in, columns.extent * bytes, rows.extent))
        return;
    switch (bytes) {
    case 1: copy_runs_1(destination, source, rows, columns); break;
    case 2: copy_runs_2(destination, source, rows, columns); break;
    case 4: copy_runs_4(destination, source, rows, columns); break;
    case 8: copy_runs_8(destination, source, rows, columns); break;
    default: copy_runs_16(destination, source, rows, columns); break;
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

/* One byte has no order: views of such elements are never byteswapped. The parts of a complex
 * number are swapped each. */
static void swap_bytes(size_t bytes, char *elements, uint64_t count)
{
    switch (bytes) {
    case 2: swap_2(elements, count); break;
    case 4: swap_4(elements, count); break;
    default: swap_8(elements, count); break;
    }
}

static void put_nat_last(char *elements, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, elements + i * sizeof bits, sizeof bits);
        bits--;
        memcpy(elements + i * sizeof bits, &bits, sizeof bits);
    }
}

/* The sign of a float is its first bit. An integer's bits are inverted and 1 is added where it is
 * below 0: as an unsigned number that is its magnitude, also of the least one. */
#define DEFINE_DROP_SIGNS(size, type)                                             \
    static void drop_signs_##size(int are_floats, char *elements, uint64_t count) \
    {                                                                             \
        const type sign = (type)((type)1 << (8 * size - 1));                      \
        type x;                                                                   \
                                                                                  \
        for (uint64_t i = 0; i < count && are_floats; i++) {                      \
            memcpy(&x, elements + i * size, size);                                \
            x = (type)(x & ~sign);                                                \
            memcpy(elements + i * size, &x, size);                                \
        }                                                                         \
        for (uint64_t i = 0; i < count && !are_floats; i++) {                     \
            memcpy(&x, elements + i * size, size);                                \
            const type below = (type)(x >> (8 * size - 1)),                       \
                       inverted = (type)(x ^ (type)(0 - below));                  \
            x = (type)(inverted + below);                                         \
            memcpy(elements + i * size, &x, size);                                \
        }                                                                         \
    }
DEFINE_DROP_SIGNS(1, uint8_t)
DEFINE_DROP_SIGNS(2, uint16_t)
DEFINE_DROP_SIGNS(4, uint32_t)
DEFINE_DROP_SIGNS(8, uint64_t)

static void drop_signs(gpr_dtype dtype, char *elements, uint64_t count)
{
    const int are_floats = gpr_kind_of(dtype) == GPR_KIND_FLOAT;

    switch (gpr_dtype_bytes(dtype)) {
    case 1: drop_signs_1(are_floats, elements, count); break;
    case 2: drop_signs_2(are_floats, elements, count); break;
    case 4: drop_signs_4(are_floats, elements, count); break;
    default: drop_signs_8(are_floats, elements, count); break;
    }
}

/* 16 bytes that are chosen or not as one. */
typedef struct pair {
    uint64_t part[2];
} pair;

/* Replaces packed elements whose mask byte is 0. Written as a choice, not a branch: masks are
 * hard to predict. */
#define MASK_RUN(size, type, step)                              \
    for (uint64_t i = 0; i < columns.extent; i++) {             \
        type bits;                                              \
        memcpy(&bits, elements + i * size, size);               \
        bits = marks[(int64_t)i * (step)] ? bits : replacement; \
        memcpy(elements + i * size, &bits, size);               \
    }
#define DEFINE_MASK_RUNS(size, type)                                                    \
    static void mask_runs_##size(char *restrict elements, const uint8_t *restrict mask, \
                                 gpr_axis rows, gpr_axis columns, const void *neutral)  \
    {                                                                                   \
        type replacement;                                                               \
        memcpy(&replacement, neutral, size);                                            \
        for (uint64_t r = 0; r < rows.extent; r++, elements += columns.extent * size) { \
            const uint8_t *marks = mask + (int64_t)r * rows.mask;                       \
            if (columns.mask == 1)                                                      \
                MASK_RUN(size, type, 1)                                                 \
            else                                                                        \
                MASK_RUN(size, type, columns.mask)                                      \
        }                                                                               \
    }
DEFINE_MASK_RUNS(1, uint8_t)
DEFINE_MASK_RUNS(2, uint16_t)
DEFINE_MASK_RUNS(4, uint32_t)
DEFINE_MASK_RUNS(8, uint64_t)
DEFINE_MASK_RUNS(16, pair)

static void mask_runs(size_t bytes, char *elements, const uint8_t *mask, gpr_axis rows,
                      gpr_axis columns, const void *neutral)
{
    switch (bytes) {
    case 1: mask_runs_1(elements, mask, rows, columns, neutral); break;
    case 2: mask_runs_2(elements, mask, rows, columns, neutral); break;
    case 4: mask_runs_4(elements, mask, rows, columns, neutral); break;
    case 8: mask_runs_8(elements, mask, rows, columns, neutral); break;
    default: mask_runs_16(elements, mask, rows, columns, neutral); break;
    }
}

/* Where packing is: an index into every axis but the last two, which the caller iterates, and the
 * addresses there. */
typedef struct cursor {
    uint64_t index[GPR_MAX_NDIM];
    const char *data;
    const uint8_t *mask; /* NULL: there is none */
} cursor;

/* Steps axis `at` of the cursor by one, carrying into the axes before it. */
static void advance(const gpr_view *view, cursor *c, int at)
{
    for (; at >= 0; at--) {
        c->data += view->axes[at].in;
        if (c->mask != NULL) c->mask += view->axes[at].mask;
        if (++c->index[at] < view->axes[at].extent) return;
        c->data -= (int64_t)view->axes[at].extent * view->axes[at].in;
        if (c->mask != NULL) c->mask -= (int64_t)view->axes[at].extent * view->axes[at].mask;
        c->index[at] = 0;
    }
}

/* Turns a block of as many rows as columns, a word of eight bytes each: the elements of a column
 * are adjacent in memory, those of a row `row_bytes` apart in columns. Halves of words are
 * exchanged, then quarters, and so on. */
#define TURN_STEP(distance, bits, low)                                                       \
    for (int i = 0; i < AT_ONCE; i++) {                                                      \
        if ((i & (distance)) != 0) continue;                                                 \
        const uint64_t apart = (words[i] >> (bits) ^ words[i + (distance)]) & UINT64_C(low); \
        words[i + (distance)] ^= apart;                                                      \
        words[i] ^= apart << (bits);                                                         \
    }
#define DEFINE_TURN(size, STEPS)                                                                   \
    static void turn_##size(char *restrict destination, uint64_t row_bytes,                        \
                            const char *restrict source, int64_t stride)                           \
    {                                                                                              \
        enum { AT_ONCE = sizeof(uint64_t) / (size) };                                              \
        uint64_t words[AT_ONCE];                                                                   \
        for (int i = 0; i < AT_ONCE; i++) memcpy(&words[i], source + i * stride, sizeof words[i]); \
        STEPS                                                                                      \
        for (int i = 0; i < AT_ONCE; i++)                                                          \
            memcpy(destination + (uint64_t)i * row_bytes, &words[i], sizeof words[i]);             \
    }
DEFINE_TURN(1, TURN_STEP(4, 32, 0x00000000ffffffff) TURN_STEP(2, 16, 0x0000ffff0000ffff)
                   TURN_STEP(1, 8, 0x00ff00ff00ff00ff))
DEFINE_TURN(2, TURN_STEP(2, 32, 0x00000000ffffffff) TURN_STEP(1, 16, 0x0000ffff0000ffff))
DEFINE_TURN(4, TURN_STEP(1, 32, 0x00000000ffffffff))

/* Copies `rows` by `columns` elements, of which those of a column are adjacent in memory. */
static void turn_tile(size_t bytes, char *destination, uint64_t row_bytes, const char *source,
                      int64_t stride, uint64_t rows, uint64_t columns)
{
    const uint64_t at_once = sizeof(uint64_t) / bytes, whole = columns / at_once * at_once;
    uint64_t row = 0;

    for (; row + at_once <= rows; row += at_once) {
        char *to = destination + row * row_bytes;
        const char *from = source + row * bytes;

        for (uint64_t c = 0; c < whole; c += at_once) {
            switch (bytes) {
            case 1: turn_1(to + c * bytes, row_bytes, from + (int64_t)c * stride, stride); break;
            case 2: turn_2(to + c * bytes, row_bytes, from + (int64_t)c * stride, stride); break;
            default: turn_4(to + c * bytes, row_bytes, from + (int64_t)c * stride, stride); break;
            }
        }
        for (uint64_t i = 0; i < at_once && whole < columns; i++)
            copy_run(bytes, to + i * row_bytes + whole * bytes,
                     from + i * bytes + (int64_t)whole * stride, stride, columns - whole);
    }
    for (; row < rows; row++)
        copy_run(bytes, destination + row * row_bytes, source + row * bytes, stride, columns);
}

/* Tiles of a plane whose rows lie crosswise in memory: a cache line of the source serves the tile's
 * other rows while it is still in the first cache. */
enum { TILE_ROWS = 16, TILE_COLUMNS = 128, LINE_BYTES = 64, SMALL_PLANE = 8 };

static void copy_plane_tiled(size_t bytes, char *destination, const char *source, gpr_axis rows,
                             gpr_axis columns)
{
    const uint64_t row_bytes = columns.extent * bytes,
                   tile_rows = bytes < LINE_BYTES / TILE_ROWS ? LINE_BYTES / bytes : TILE_ROWS;
    const int are_adjacent = bytes < sizeof(uint64_t) && rows.in == (int64_t)bytes;

    for (uint64_t r = 0; r < rows.extent; r += tile_rows) {
        const uint64_t height = gpr_smaller(rows.extent - r, tile_rows);
        for (uint64_t c = 0; c < columns.extent; c += TILE_COLUMNS) {
            const uint64_t width = gpr_smaller(columns.extent - c, TILE_COLUMNS);
            char *to = destination + r * row_bytes + c * bytes;
            const char *from = source + (int64_t)r * rows.in + (int64_t)c * columns.in;

            if (are_adjacent) {
                turn_tile(bytes, to, row_bytes, from, columns.in, height, width);
                continue;
            }
            for (uint64_t i = 0; i < height; i++)
                copy_run(bytes, to + i * row_bytes, from + (int64_t)i * rows.in, columns.in, width);
        }
    }
}

/* Packs `rows.extent` whole runs of the last axis. The axes are passed by value, so that stores to
 * `destination` cannot change them: their members stay in registers. */
static void pack_plane(const gpr_view *view, gpr_axis rows, gpr_axis columns, const char *data,
                       const uint8_t *mask, const void *neutral, char *destination)
{
    const uint64_t row_bytes = columns.extent * view->bytes;

    const int is_small = rows.extent <= SMALL_PLANE && columns.extent <= SMALL_PLANE,
              lies_crosswise = rows.extent > 1 && magnitude(rows.in) < magnitude(columns.in);

    if (lies_crosswise && !is_small) {
        copy_plane_tiled(view->bytes, destination, data, rows, columns);
    } else if (columns.extent <= SHORT_RUN) {
        copy_short_runs(view->bytes, destination, data, rows, columns);
    } else {
        for (uint64_t i = 0; i < rows.extent; i++)
            copy_run(view->bytes, destination + i * row_bytes, data + (int64_t)i * rows.in,
                     columns.in, columns.extent);
    }
    if ((view->encoding & GPR_SWAPPED) != 0) {
        const size_t part = gpr_part_bytes(view->dtype);
        swap_bytes(part, destination, rows.extent * columns.extent * (view->bytes / part));
    }
    if ((view->encoding & GPR_NAT_LAST) != 0)
        put_nat_last(destination, rows.extent * columns.extent);
    if ((view->encoding & GPR_WITHOUT_SIGN) != 0)
        drop_signs(view->dtype, destination, rows.extent * columns.extent);
    if (mask != NULL) mask_runs(view->bytes, destination, mask, rows, columns, neutral);
}

/* Whether an axis goes on in memory where runs end. */
static int extends_runs(const gpr_view *view, const gpr_axis *axis, const gpr_axis *runs)
{
    return (uint64_t)axis->in == (uint64_t)runs->in * runs->extent &&
           (view->mask == NULL || (uint64_t)axis->mask == (uint64_t)runs->mask * runs->extent);
}

int gpr_view_runs(const gpr_view *view, gpr_axis *runs)
{
    int before = view->outer + view->inner - 1;

    if (before < 0) {
        *runs = (gpr_axis){.extent = 1};
        return 0;
    }
    *runs = view->axes[before];
    while (before > 0 && extends_runs(view, &view->axes[before - 1], runs))
        runs->extent *= view->axes[--before].extent;
    return before;
}

void gpr_pack(const gpr_view *view, uint64_t first, uint64_t count, const void *neutral,
              void *destination)
{
    const gpr_axis unit = {.extent = 1};
    gpr_axis columns;
    const int before = gpr_view_runs(view, &columns);
    const gpr_axis rows = before > 0 ? view->axes[before - 1] : unit;
    char *out = destination;
    cursor c; /* whose index is set as far as there are axes: to clear it would take longer */
    uint64_t row, column;

    c.data = view->data;
    c.mask = view->mask;

    column = first % columns.extent;
    first /= columns.extent;
    row = first % rows.extent;
    first /= rows.extent;
    for (int i = before - 2; i >= 0; i--) {
        c.index[i] = first % view->axes[i].extent;
        first /= view->axes[i].extent;
        c.data += (int64_t)c.index[i] * view->axes[i].in;
        if (c.mask != NULL) c.mask += (int64_t)c.index[i] * view->axes[i].mask;
    }
    while (count > 0) {
        const uint64_t whole = count / columns.extent;
        gpr_axis taken_rows = rows, taken_columns = columns;
        const char *data = c.data + (int64_t)row * rows.in + (int64_t)column * columns.in;
        const uint8_t *mask =
            c.mask != NULL ? c.mask + (int64_t)row * rows.mask + (int64_t)column * columns.mask
                           : NULL;
        uint64_t taken;

        /* A plane of whole runs where one starts here, else the rest of this run. */
        taken_rows.extent = column == 0 && whole > 0 ? gpr_smaller(rows.extent - row, whole) : 1;
        if (column != 0 || whole == 0)
            taken_columns.extent = gpr_smaller(columns.extent - column, count);
        pack_plane(view, taken_rows, taken_columns, data, mask, neutral, out);

        taken = taken_rows.extent * taken_columns.extent;
        out += taken * view->bytes;
        count -= taken;
        column += taken_columns.extent;
        if (column < columns.extent) continue;
        column = 0;
        row += taken_rows.extent;
        if (row < rows.extent) continue;
        row = 0;
        advance(view, &c, before - 2);
    }
}

uint64_t gpr_count_left_out(const gpr_view *view, uint64_t first, uint64_t count)
{
    enum { MARKS = 1 << 10 }; /* looked at together */
    gpr_view mask;
    uint8_t marks[MARKS];
    uint64_t left_out = 0;

    gpr_mask_view(view, &mask);
    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done, step = left < MARKS ? left : MARKS;

        gpr_pack(&mask, first + done, step, NULL, marks);
        for (uint64_t i = 0; i < step; i++) left_out += marks[i] == 0;
        done += step;
    }
    return left_out;
}
