/* A host or device array as rows to reduce: outer axes count rows, inner axes make up a row. */
#ifndef GPR_LIB_ND_VIEW_H
#define GPR_LIB_ND_VIEW_H

#include <stddef.h>
#include <string.h>

#include "lib/rules/rules.h"
#include "shared/launch_params.h"

/* How elements in memory differ from those that are reduced, which packing undoes. */
typedef enum gpr_encoding {
    /* they are in the other byte order */
    GPR_SWAPPED = 1,
    /* int64 are reduced less 1, which wraps: the smallest one becomes the largest */
    GPR_NAT_LAST = 2,
    /* floats are reduced without their signs, and signed integers as unsigned ones of their
     * magnitudes: the dtype is that of these */
    GPR_WITHOUT_SIGN = 4
} gpr_encoding;

/* Extents of 1 are dropped and axes that continue each other merged, so a contiguous array has no
 * outer or one inner axis left. Where the operator commutes, a row's axes come in the order of
 * memory and are iterated forward: a Fortran-ordered or reversed array is contiguous too. Where
 * elements that come again change nothing, the axes of a row along which they do are left out.
 * Element (row r, position i) of the view is the r-th outer index in C order and i-th inner
 * index. */
typedef struct gpr_view {
    const char *data;
    /* or NULL */
    const uint8_t *mask;
    gpr_dtype dtype;
    /* of an element */
    size_t bytes;
    /* 0, or bits of gpr_encoding */
    int encoding;
    /* number of axes of each sort */
    int outer, inner;
    /* of the element at inner index 0 */
    uint64_t first_position;
    /* product of outer extents */
    uint64_t rows;
    /* product of inner extents, without those along which elements come again and change nothing */
    uint64_t n;
    /* each row's elements are adjacent, aligned, unmasked, native byte order */
    int rows_contiguous;
    /* rows_contiguous, and row follows row without a gap */
    int contiguous;
    /* outer axes first; steps through elements are in bytes here, positions are 0 where the rule
     * needs none */
    gpr_axis axes[GPR_MAX_NDIM];
    /* of outer axes in given means; 0 where there is one for all, or none */
    int64_t mean_steps[GPR_MAX_NDIM];
} gpr_view;

/* Copies a view without the axes that it does not have, which are most of it. */
static inline void gpr_copy_view(gpr_view *to, const gpr_view *from)
{
    memcpy(to, from, offsetof(gpr_view, axes));
    memcpy(to->axes, from->axes, (size_t)(from->outer + from->inner) * sizeof *to->axes);
    memcpy(to->mean_steps, from->mean_steps, (size_t)from->outer * sizeof *to->mean_steps);
}

/* How far an array reaches from its first element: bytes below it, and from it to the last byte. */
typedef struct gpr_span {
    uint64_t below, above;
} gpr_span;

/* Extends the span by an axis of `extent` >= 1 elements that are `step` bytes apart. 0: it reaches
 * further than 2^63 - 1 bytes, and is no span any more. */
static inline int gpr_extend_span(gpr_span *span, uint64_t extent, int64_t step)
{
    int64_t reach = 0;

    if (extent - 1 > INT64_MAX || __builtin_mul_overflow((int64_t)(extent - 1), step, &reach))
        return 0;
    uint64_t *side = reach < 0 ? &span->below : &span->above;
    const uint64_t bytes = reach < 0 ? 0 - (uint64_t)reach : (uint64_t)reach;
    return !__builtin_add_overflow(*side, bytes, side) && *side <= INT64_MAX;
}

/* Whether there are addresses for all of an array whose first element is at `data`. */
static inline int gpr_has_addresses(gpr_span span, const void *data)
{
    return (uintptr_t)data >= span.below && (uintptr_t)data <= UINTPTR_MAX - span.above;
}

/* Whether two arrays with elements have memory in common, as far as their bounds tell. */
static inline int gpr_spans_meet(gpr_span a, const void *first, gpr_span b, const void *second)
{
    return (uintptr_t)first - a.below <= (uintptr_t)second + b.above &&
           (uintptr_t)second - b.below <= (uintptr_t)first + a.above;
}

/* The request's array for a reduction by `rule`: the fold decides whether rows may be iterated in
 * another order, and steps of results on a device are in results of the rule's type. Results in
 * host memory follow each other. GPR_ERROR_VALUE: bad ndim, negative extent, more than 2^63 - 1
 * bytes, strides that lead out of the address space. */
gpr_status gpr_make_view(const gpr_request *request, const gpr_rule *rule, gpr_view *view);

/* The extent in memory of the view's elements, or of its mask: *bytes from *first on. n and rows >=
 * 1. */
void gpr_view_extent(const gpr_view *view, int of_mask, const char **first, uint64_t *bytes);

/* The extent of results on a device, `output_stride` results from a row's first to its second where
 * there are two. */
void gpr_view_result_extent(const gpr_view *view, const gpr_rule *rule, const void *result,
                            int64_t output_stride, const char **first, uint64_t *bytes);

/* The extent of given means, of type `mean`. */
void gpr_view_mean_extent(const gpr_view *view, gpr_dtype mean, const void *means,
                          const char **first, uint64_t *bytes);

/* Whether every element's address is a multiple of its size. */
int gpr_view_is_aligned(const gpr_view *view);

/* Makes a view of bool of the bytes of the view's mask; its data is NULL if there is none. */
void gpr_mask_view(const gpr_view *view, gpr_view *mask);

/* Makes magnitudes of the elements of a view, real numbers without NAT_LAST; and of floats the
 * elements again. */
void gpr_view_magnitudes(gpr_view *view);
void gpr_view_with_signs(gpr_view *view);

/* Makes a view of the elements of another array, whose address and steps a view has in place of a
 * mask's, and takes them from that one. */
void gpr_split_view(gpr_view *view, gpr_dtype dtype, int encoding, gpr_view *second);

/* The axes of the view's rows along which all elements are the same one, as is what a mask says of
 * them: bit i for axis outer + i. */
uint64_t gpr_view_repeats(const gpr_view *view);

/* Makes *once the view without these axes of its rows, and returns how many elements of a row each
 * of its elements stands for. */
uint64_t gpr_view_once(const gpr_view *view, uint64_t repeats, gpr_view *once);

/* The axes of the view's rows along which all rows are the same one, as is what a mask says of
 * them: bit i for axis i. */
uint64_t gpr_view_same_rows(const gpr_view *view);

/* Makes *distinct the view without these axes; given means are left out of it. */
void gpr_view_distinct_rows(const gpr_view *view, uint64_t same, gpr_view *distinct);

/* The position in a row of the view's element at `position` of a row of gpr_view_once's. The rule
 * needs positions, which are in the caller's order. */
uint64_t gpr_view_position(const gpr_view *once, uint64_t position);

/* Address of element (row, 0). */
const char *gpr_view_row(const gpr_view *view, uint64_t row);

/* Makes *runs one axis of the view's last axes, as far as they continue each other in memory and in
 * the mask; returns how many axes are before them. */
int gpr_view_runs(const gpr_view *view, gpr_axis *runs);

/* Copies elements first .. first + count - 1 of the view (row-major over (row, position)) to
 * contiguous memory at `destination`, as they are reduced, masked ones replaced by `*neutral` (an
 * element; not read without a mask). Any thread may call it; writes to no other memory. */
void gpr_pack(const gpr_view *view, uint64_t first, uint64_t count, const void *neutral,
              void *destination);

/* How many of the elements first .. first + count - 1 the view's mask leaves out. The view has
 * one. */
uint64_t gpr_count_left_out(const gpr_view *view, uint64_t first, uint64_t count);

/* Whether stepping past the end of `in` is one step of `out`, so that the two are one longer axis:
 * in memory, in results and, if masked, in the mask. */
int gpr_axis_continues(const gpr_axis *out, const gpr_axis *in, int masked);

#endif
