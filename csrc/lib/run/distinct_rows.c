/* Rows of a device array that are the same; see distinct_rows.h. */
#include "lib/run/distinct_rows.h"

/* Bytes that are not read again, from caches for the most part, while another kernel starts and
 * copies the results. */
enum { LEAST_BYTES = 16 << 20 };

_Static_assert((int)GPR_MOST_COPY_AXES == GPR_MAX_NDIM + 1, "axes, and one of two results a row");

static gpr_copy_axis copy_axis(uint64_t extent, int64_t out, int64_t from)
{
    gpr_copy_axis axis = {.extent = extent, .out = out, .from = from, .shift = GPR_COPY_BITS};

    if (extent >> GPR_COPY_BITS != 0) return axis; /* as then there are too many results */
    while (extent > 1ull << (axis.shift - GPR_COPY_BITS)) axis.shift++;
    axis.inverse = (uint32_t)(((1ull << axis.shift) + extent - 1) / extent);
    return axis;
}

/* The axes of all results, and the steps to those that are stored. */
static void describe_copies(const gpr_resolved *call, uint64_t same, gpr_copy_params *copies)
{
    const gpr_view *view = &call->view;
    const uint64_t outputs = (uint64_t)call->rule.outputs;
    uint32_t axes = 0;

    if (outputs > 1)
        copies->axis[axes++] = copy_axis(outputs, call->output_stride, call->output_stride);
    for (int i = 0; i < view->outer; i++) {
        const gpr_axis *axis = &view->axes[i];
        const int is_same = (same >> i & 1) != 0;

        copies->axis[axes++] = copy_axis(axis->extent, axis->out, is_same ? 0 : axis->out);
    }
    copies->count = view->rows * outputs;
    copies->axes = axes;
    copies->unused = 0;
}

int gpr_find_distinct_rows(const gpr_resolved *call, gpr_distinct_rows *distinct)
{
    const gpr_view *view = &call->view;
    const uint64_t same = view->n > 0 ? gpr_view_same_rows(view) : 0;

    if (same == 0 || !call->result_on_device || call->rule.has_given_mean || call->second != NULL ||
        call->rule.acc_kind == GPR_ACC_EXACT_PRODUCTS ||
        !gpr_is_planned(&gpr_kernel_rows[call->kernel]))
        return 0;
    gpr_view_distinct_rows(view, same, &distinct->call.view);
    if (view->rows - distinct->call.view.rows < LEAST_BYTES / (view->n * view->bytes)) return 0;
    gpr_copy_settings(&distinct->call, call);
    distinct->all = view;
    describe_copies(call, same, &distinct->copies);
    return 1;
}
