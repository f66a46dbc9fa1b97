/* A layout: the facts about an array's axes that a plan depends on. Pure. */
#ifndef GPR_LIB_LAYOUT_H
#define GPR_LIB_LAYOUT_H

#include "lib/rules/nd_view.h"
#include "shared/launch_params.h"

typedef struct gpr_layout {
    uint64_t rows, n;
    int kept, reduced;               /* at least one of each: an axis of extent 1 stands for none */
    gpr_axis axes[GPR_MAX_NDIM + 2]; /* kept axes first */
    int64_t mean_steps[GPR_MAX_NDIM]; /* of kept axes in given means */
    uint64_t first_position;          /* of the element that a row begins with in memory */
    int masked;
    /* Bytes: powers of two up to 16 that the addresses are multiples of. */
    uint32_t aligned, mask_aligned, result_aligned;
} gpr_layout;

/* `rows` rows of `n` elements, one after another, as chunks of host arrays are, which begin at a
 * multiple of a vector's size; their results one after another, anywhere. */
void gpr_contiguous_layout(uint64_t rows, uint64_t n, gpr_layout *layout);

/* Gives a contiguous layout a mask that is as contiguous. */
void gpr_mask_layout(gpr_layout *layout);

/* The layout of a view whose elements are aligned and in native byte order, its kept axes in the
 * order of memory. `result`: where results go. */
void gpr_view_layout(const gpr_view *view, const void *result, gpr_layout *layout);

/* Whether each row is a run of memory whose positions count up, without a mask; and whether row
 * follows row there and result follows result. */
int gpr_rows_are_runs(const gpr_layout *layout);
int gpr_is_contiguous(const gpr_layout *layout);

#endif
