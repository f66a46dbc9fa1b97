/* Rows that are the same; see broadcast_rows.h. */
#include "cpu/broadcast_rows.h"

#include <string.h>

#include "lib/base/integers.h"
#include "lib/base/status.h"

enum {
    LEAST_ELEMENTS = 512, /* of all rows: fewer are read sooner than results get a second room */
    UNASKED = 1 << 20     /* results between two questions whether to stop */
};

uint64_t gpr_cpu_broadcast_axes(const gpr_resolved *call)
{
    const gpr_view *view = &call->view;

    if (call->rule.has_given_mean || view->rows < 2 || view->n == 0) return 0;
    if (view->n < LEAST_ELEMENTS && view->rows * view->n < LEAST_ELEMENTS) return 0;
    return gpr_view_same_rows(view);
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

gpr_status gpr_cpu_spread_results(const gpr_resolved *call, uint64_t axes, const char *results,
                                  size_t bytes, char *all)
{
    const gpr_view *view = &call->view;
    const int last = view->outer - 1;
    const uint64_t run = view->axes[last].extent, runs = view->rows / run;
    const int is_filled = (axes >> last & 1) != 0;
    uint64_t index[GPR_MAX_NDIM] = {0}, steps[GPR_MAX_NDIM], step = 1, unasked = 0;

    for (int i = last; i >= 0; i--) {
        steps[i] = (axes >> i & 1) != 0 ? 0 : step * bytes;
        if (steps[i] != 0) step *= view->axes[i].extent;
    }
    for (uint64_t r = 0; r < runs; r++) {
        for (uint64_t done = 0, some; done < run; done += some, all += some * bytes) {
            some = gpr_smaller(run - done, UNASKED);
            if (is_filled)
                fill(all, results, some, bytes);
            else
                memcpy(all, results + done * bytes, some * bytes);
            unasked += some;
            if (unasked < UNASKED || call->interrupted == NULL) continue;
            if (call->interrupted(call->interrupted_arg) != 0)
                return gpr_fail(GPR_ERROR_INTERRUPTED, "the reduction was interrupted");
            unasked = 0;
        }
        for (int i = last - 1; i >= 0; i--) {
            results += steps[i];
            if (++index[i] < view->axes[i].extent) break;
            results -= view->axes[i].extent * steps[i];
            index[i] = 0;
        }
    }
    return GPR_OK;
}
