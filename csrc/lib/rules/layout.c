/* From views to layouts. */
#include "lib/rules/layout.h"

#include <string.h>

#include "shared/tuning.h"

void gpr_contiguous_layout(uint64_t rows, uint64_t n, gpr_layout *layout)
{
    memset(layout, 0, sizeof *layout);
    layout->rows = rows;
    layout->n = n;
    layout->kept = layout->reduced = 1;
    layout->axes[0] = (gpr_axis){.extent = rows, .in = (int64_t)n, .out = 1};
    layout->axes[1] = (gpr_axis){.extent = n, .in = 1, .position = 1};
    layout->aligned = layout->mask_aligned = layout->result_aligned = 1;
}

void gpr_mask_layout(gpr_layout *layout)
{
    layout->masked = 1;
    layout->axes[0].mask = (int64_t)layout->n;
    layout->axes[1].mask = 1;
}

/* Largest power of two up to GPR_VECTOR_BYTES that divides an address. */
static uint32_t alignment_of(const void *address)
{
    uint32_t bytes = GPR_VECTOR_BYTES;

    while ((uintptr_t)address % bytes != 0) bytes /= 2;
    return bytes;
}

/* The view's axis with steps in elements. */
static gpr_axis in_elements(const gpr_view *view, int i)
{
    gpr_axis axis = view->axes[i];

    axis.in /= (int64_t)view->bytes;
    return axis;
}

void gpr_view_layout(const gpr_view *view, const void *result, gpr_layout *layout)
{
    const int64_t n = (int64_t)view->n;
    const gpr_axis one_row = {.extent = 1, .in = n, .out = 1},
                   one_element = {.extent = 1, .in = 1, .position = 1};
    int at = 0;

    memset(layout, 0, sizeof *layout);
    layout->rows = view->rows;
    layout->n = view->n;
    if (view->outer == 0) layout->axes[at++] = one_row;
    for (int i = 0; i < view->outer; i++) {
        layout->mean_steps[at] = view->mean_steps[i];
        layout->axes[at++] = in_elements(view, i);
    }
    layout->kept = at;
    if (view->inner == 0) layout->axes[at++] = one_element;
    for (int i = view->outer; i < view->outer + view->inner; i++)
        layout->axes[at++] = in_elements(view, i);
    layout->reduced = at - layout->kept;
    layout->first_position = view->first_position;
    layout->masked = view->mask != NULL;
    layout->aligned = alignment_of(view->data);
    layout->mask_aligned = alignment_of(view->mask);
    layout->result_aligned = alignment_of(result);
}

int gpr_rows_are_runs(const gpr_layout *layout)
{
    const gpr_axis *row = &layout->axes[layout->kept];

    /* Kernels of runs count positions by ones; an axis behind which repeats were left out has
     * longer steps. */
    return layout->reduced == 1 && row->in == 1 && row->position >= 0 && row->position <= 1 &&
           layout->first_position == 0 && !layout->masked;
}

int gpr_is_contiguous(const gpr_layout *layout)
{
    const gpr_axis *rows = &layout->axes[0];

    return gpr_rows_are_runs(layout) && layout->kept == 1 &&
           (rows->extent == 1 || (rows->in == (int64_t)layout->n && rows->out == 1));
}
