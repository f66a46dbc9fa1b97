/* Rows that are the same; see broadcast_rows.h. */
#include "dispatch/broadcast_rows.h"

#include <stdlib.h>
#include <string.h>

#include "dispatch/result_steps.h"
#include "lib/base/integers.h"
#include "lib/base/status.h"

/* Of all rows: fewer are read sooner than results get a second room. */
enum { LEAST_ELEMENTS = 512 };

uint64_t gpr_broadcast_axes(const gpr_resolved *call)
{
    const gpr_view *view = &call->view;

    if (call->result_on_device || call->rule.has_given_mean || view->rows < 2 || view->n == 0 ||
        (call->device >= 0 && !gpr_is_planned(&gpr_kernel_rows[call->kernel])))
        return 0;
    if (view->n < LEAST_ELEMENTS && view->rows * view->n < LEAST_ELEMENTS) return 0;
    if (call->divisors != NULL && !call->has_one_divisor) return 0;
    return gpr_view_same_rows(view) &
           (call->second != NULL ? gpr_view_same_rows(call->second) : UINT64_MAX);
}

/* 16 bytes that are stored as one. */
typedef struct pair {
    uint64_t part[2];
} pair;

/* Stores one result `count` times. */
#define FILL(label, type)                                                             \
    label:                                                                            \
    {                                                                                 \
        type x;                                                                       \
        memcpy(&x, result, sizeof x);                                                 \
        for (uint64_t i = 0; i < count; i++) memcpy(to + i * sizeof x, &x, sizeof x); \
        break;                                                                        \
    }
static void fill(char *restrict to, const char *restrict result, uint64_t count, size_t bytes)
{
    switch (bytes) {
        FILL(case 1, uint8_t)
        FILL(case 2, uint16_t)
        FILL(case 4, uint32_t)
        FILL(case 8, uint64_t)
        FILL(default, pair) /* there are no others */
    }
}

/* Copies results of `bytes` each, of distinct rows, to the results of all rows. */
static gpr_status copy_to_same_rows(const gpr_resolved *call, uint64_t axes, const char *results,
                                    size_t bytes, char *all)
{
    const gpr_view *view = &call->view;
    const int last = view->outer - 1;
    const uint64_t run = view->axes[last].extent, runs = view->rows / run;
    const int is_filled = (axes >> last & 1) != 0;
    uint64_t index[GPR_MAX_NDIM] = {0}, steps[GPR_MAX_NDIM], step = 1, unasked = 0;
    gpr_status status = GPR_OK;

    for (int i = last; i >= 0; i--) {
        steps[i] = (axes >> i & 1) != 0 ? 0 : step * bytes;
        if (steps[i] != 0) step *= view->axes[i].extent;
    }
    for (uint64_t r = 0; r < runs; r++) {
        for (uint64_t made = 0, some; made < run; made += some, all += some * bytes) {
            some = gpr_smaller(run - made, GPR_MANY_RESULTS);
            if (is_filled)
                fill(all, results, some, bytes);
            else
                memcpy(all, results + made * bytes, some * bytes);
            unasked += some;
            if (unasked < GPR_MANY_RESULTS) continue;
            GPR_TRY(gpr_check_interrupt(call->interrupted, call->interrupted_arg));
            unasked = 0;
        }
        for (int i = last - 1; i >= 0; i--) {
            results += steps[i];
            if (++index[i] < view->axes[i].extent) break;
            results -= view->axes[i].extent * steps[i];
            index[i] = 0;
        }
    }
done:
    return status;
}

void gpr_take_distinct_rows(const gpr_resolved *call, uint64_t axes, gpr_resolved *distinct)
{
    gpr_view *view = &distinct->view;
    int64_t step = 1;

    gpr_copy_settings(distinct, call);
    gpr_view_distinct_rows(&call->view, axes, view);
    for (int i = view->outer - 1; i >= 0; i--) {
        view->axes[i].out = step;
        step *= (int64_t)view->axes[i].extent;
    }
    if (call->rule.outputs > 1) distinct->output_stride = step;
}

gpr_status gpr_reduce_distinct_rows(const gpr_resolved *call, uint64_t axes,
                                    gpr_status (*run_call)(const gpr_resolved *, gpr_run *),
                                    gpr_run *run)
{
    const size_t bytes = gpr_bytes_of(call->rule.result);
    gpr_resolved distinct;
    gpr_view second;
    char *results = NULL;
    gpr_status status = GPR_OK;

    gpr_take_distinct_rows(call, axes, &distinct);
    if (call->second != NULL) {
        gpr_view_distinct_rows(call->second, axes, &second);
        distinct.second = &second;
    }
    results = malloc((uint64_t)call->rule.outputs * distinct.view.rows * bytes);
    if (results == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the results of %llu rows",
                        (unsigned long long)distinct.view.rows);
    distinct.result = results;
    GPR_TRY(run_call(&distinct, run));
    for (int i = 0; i < call->rule.outputs; i++) {
        const char *from = results + (uint64_t)i * distinct.view.rows * bytes;
        char *to = (char *)call->result + (uint64_t)i * call->view.rows * bytes;

        GPR_TRY(copy_to_same_rows(call, axes, from, bytes, to));
    }
done:
    free(results);
    return status;
}
