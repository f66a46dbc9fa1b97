/* From views to layouts. */
#include "lib/rules/layout.h"

#include <stdlib.h>
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
    layout->aligned = GPR_VECTOR_BYTES;
    layout->mask_aligned = layout->result_aligned = 1;
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

/* Whether kept axis `outer` goes on where axis `inner` ends: the two are one longer axis. */
static int goes_on(const gpr_layout *layout, int outer, int inner)
{
    return gpr_axis_continues(&layout->axes[outer], &layout->axes[inner], layout->masked) &&
           (uint64_t)layout->mean_steps[outer] ==
               (uint64_t)layout->mean_steps[inner] * layout->axes[inner].extent;
}

/* Makes one axis of kept ones that go on in each other. */
static void merge_kept(gpr_layout *layout)
{
    const int behind = layout->kept;
    int last = 0;

    for (int i = 1; i < behind; i++) {
        const uint64_t before = layout->axes[last].extent;
        const int merges = goes_on(layout, last, i);

        if (!merges) last++;
        layout->axes[last] = layout->axes[i];
        layout->mean_steps[last] = layout->mean_steps[i];
        if (merges) layout->axes[last].extent *= before;
    }
    layout->kept = last + 1;
    memmove(&layout->axes[last + 1], &layout->axes[behind],
            (size_t)layout->reduced * sizeof *layout->axes);
}

/* Orders kept axes as memory does, the nearest elements last: neighbouring threads read what is
 * near. Each result goes to its place in any order. */
static void sort_kept(gpr_layout *layout)
{
    int is_sorted = 1;

    for (int i = 1; i < layout->kept; i++) {
        const gpr_axis axis = layout->axes[i];
        const int64_t mean_step = layout->mean_steps[i];
        int at = i;
        for (; at > 0 && llabs(layout->axes[at - 1].in) < llabs(axis.in); at--) {
            layout->axes[at] = layout->axes[at - 1];
            layout->mean_steps[at] = layout->mean_steps[at - 1];
        }
        layout->axes[at] = axis;
        layout->mean_steps[at] = mean_step;
        is_sorted &= at == i;
    }
    if (!is_sorted) merge_kept(layout);
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
    layout->masked = view->mask != NULL;
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
    sort_kept(layout);
    layout->first_position = view->first_position;
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
