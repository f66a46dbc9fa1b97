/* Exact sums of integers by folds; see exact_integers.h.
 *
 *     result          way
 *     integer         the sum that wraps: it is the exact one modulo the same power of two
 *     float64         sums of int64, which is checked to hold them, in the room of the results;
 *                     then each is divided, or not, and rounded once
 *     any other       none: the long sums of exact_add.c are rounded to it */
#include "cpu/exact_integers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/float_environment.h"
#include "cpu/job.h"
#include "lib/base/float_bits.h"
#include "lib/base/status.h"

enum {
    AT_ONCE = 1 << 14, /* results of a task */
    BLOCK = 256,       /* results that are rounded in the same way */
    LONG_ROW = 512     /* elements that follow each other: tiles sum them as quickly */
};
#define ROUNDING_NANOSECONDS 1.0 /* of a result */

/* Reduces the call's array by another rule. */
static gpr_status reduce_by(const gpr_resolved *call, const gpr_view *view, const gpr_rule *rule,
                            void *result, gpr_run *run)
{
    gpr_resolved other = {.rule = *rule,
                          .kernel = call->kernel,
                          .device = call->device,
                          .result = result,
                          .interrupted = call->interrupted,
                          .interrupted_arg = call->interrupted_arg};

    gpr_copy_view(&other.view, view);
    return gpr_cpu_reduce_by_folds(&other, run);
}

gpr_status gpr_cpu_find_largest(const gpr_resolved *call, gpr_run *run, uint64_t *largest)
{
    const gpr_view *view = &call->view;
    int64_t shape[GPR_MAX_NDIM], strides[GPR_MAX_NDIM], ends[2];
    gpr_request request = {.dtype = view->dtype,
                           .ndim = view->outer + view->inner,
                           .reduced = view->outer + view->inner,
                           .shape = shape,
                           .strides = strides,
                           .data = view->data,
                           .byteswapped = (view->encoding & GPR_SWAPPED) != 0};
    gpr_rule range;
    gpr_view whole;
    gpr_status status = GPR_OK;

    for (int i = 0; i < request.ndim; i++) {
        shape[i] = (int64_t)view->axes[i].extent;
        strides[i] = view->axes[i].in;
    }
    GPR_TRY(gpr_make_rule(GPR_OP_MINMAX, view->dtype, GPR_DTYPE_DEFAULT, &range));
    gpr_fit_rule(&gpr_kernel_rows[GPR_KERNEL_fast], &range);
    GPR_TRY(gpr_make_view(&request, &range, &whole));
    GPR_TRY(reduce_by(call, &whole, &range, ends, run));
    *largest = (uint64_t)ends[1];
    if (gpr_kind_of(view->dtype) != GPR_KIND_SIGNED) goto done;
    for (int i = 0; i < 2; i++) ends[i] = ends[i] < 0 ? -(ends[i] + 1) : ends[i];
    *largest = 1 + (uint64_t)(ends[0] > ends[1] ? ends[0] : ends[1]);
done:
    return status;
}

/* Sums that become results in their place. */
typedef struct rounding {
    const gpr_resolved *call;
    const int64_t *counts; /* of each row's elements that count; NULL: all of them */
    gpr_cpu_stop stop;
} rounding;

/* Rounds a sum of n elements, or its mean, whatever their size. */
static void round_any(const gpr_rule *rule, int64_t sum, uint64_t n, char *result)
{
    gpr_exact_part part;

    gpr_exact_clear(&part, GPR_INT64);
    gpr_exact_add_integer(&part, sum, 0);
    part.count = n;
    gpr_finish_exact(rule, &part, result);
}

/* An integer below 2^51 in magnitude as a double, by additions, which all vectors have. */
static inline double double_of(int64_t value)
{
    const uint64_t bits = (uint64_t)value + UINT64_C(0x4338000000000000); /* of 1.5 * 2^52 */

    return gpr_double_of_bits(bits) - 0x1.8p52;
}

/* Rounds some rows: quotients of doubles where these hold sums and counts; NaN of nothing. */
static void round_rows(const rounding *work, uint64_t first, uint64_t rows)
{
    enum { HELD_BITS = 51 };
    const gpr_rule *rule = &work->call->rule;
    const uint64_t n = rule->divide ? work->call->view.n : 1;
    char *at = (char *)work->call->result + first * sizeof(double);
    int64_t sums[BLOCK], counts[BLOCK];
    double results[BLOCK];
    uint64_t large = n >> HELD_BITS;

    memcpy(sums, at, rows * sizeof *sums);
    for (uint64_t i = 0; i < rows; i++) {
        counts[i] = work->counts != NULL ? work->counts[first + i] : (int64_t)n;
        large |= ((uint64_t)sums[i] + (UINT64_C(1) << (HELD_BITS - 1))) >> HELD_BITS;
    }
    if (large != 0) {
        for (uint64_t i = 0; i < rows; i++)
            round_any(rule, sums[i], (uint64_t)counts[i], at + i * sizeof(double));
        return;
    }
    if (n == 1 && work->counts == NULL) {
        for (uint64_t i = 0; i < rows; i++) results[i] = double_of(sums[i]);
        memcpy(at, results, rows * sizeof *results);
        return;
    }
    for (uint64_t i = 0; i < rows; i++) {
        const double mean = double_of(sums[i]) / double_of(counts[i] + (counts[i] == 0));
        results[i] = counts[i] == 0 ? (double)NAN : mean;
    }
    memcpy(at, results, rows * sizeof *results);
}

static int round_task(void *context, uint64_t index, void *memory)
{
    rounding *work = context;
    const uint64_t all = work->call->view.rows, first = index * AT_ONCE,
                   end = gpr_smaller(all, first + AT_ONCE);
    const gpr_float_environment before = enter_ieee();

    (void)memory;
    for (uint64_t row = first; row < end && !gpr_cpu_must_stop(&work->stop); row += BLOCK)
        round_rows(work, row, gpr_smaller(BLOCK, end - row));
    leave_ieee(before);
    return !work->stop.stopped;
}

/* Sums rows to the room of the results, counts what a mask leaves of them, and rounds. */
static gpr_status reduce_to_doubles(const gpr_resolved *call, const gpr_rule *sum, gpr_run *run)
{
    const gpr_view *view = &call->view;
    int64_t *counts = NULL;
    gpr_status status = GPR_OK;

    _Static_assert(sizeof(double) == sizeof(int64_t), "sums have the room of results");
    GPR_TRY(reduce_by(call, view, sum, call->result, run));
    if (view->mask != NULL && call->rule.divide) {
        gpr_rule count;
        gpr_view marks;
        gpr_run unused = {0};

        counts = malloc(view->rows * sizeof *counts);
        if (counts == NULL) {
            status = gpr_fail(GPR_ERROR_MEMORY, "no memory for the counts of %llu rows",
                              (unsigned long long)view->rows);
            goto done;
        }
        gpr_mask_view(view, &marks);
        GPR_TRY(gpr_make_rule(GPR_OP_COUNT_NONZERO, GPR_BOOL, GPR_DTYPE_DEFAULT, &count));
        gpr_fit_rule(&gpr_kernel_rows[GPR_KERNEL_fast], &count);
        GPR_TRY(reduce_by(call, &marks, &count, counts, &unused));
    }
    rounding work = {.call = call, .counts = counts};
    uint32_t threads;

    gpr_cpu_watch(&work.stop, call->interrupted, call->interrupted_arg);
    GPR_TRY(gpr_cpu_run_tasks((double)view->rows * ROUNDING_NANOSECONDS,
                              gpr_divide_up(view->rows, AT_ONCE), round_task, &work, 0, &threads));
    if (work.stop.stopped)
        status = gpr_fail(GPR_ERROR_INTERRUPTED, "the reduction was interrupted");
done:
    free(counts);
    return status;
}

/* Whether 64 bits are the reason why results do not follow from a fold, and it is worth looking for
 * the largest element. */
static int may_fit(const gpr_resolved *call)
{
    return call->rule.acc_kind == GPR_ACC_EXACT && call->rule.result == GPR_FLOAT64 &&
           call->view.bytes == sizeof(int64_t) &&
           !(call->view.rows_contiguous && call->view.n > LONG_ROW);
}

gpr_status gpr_cpu_reduce_integers_exactly(const gpr_resolved *call, uint64_t largest, gpr_run *run,
                                           int *is_done)
{
    const gpr_rule *rule = &call->rule;
    const gpr_view *view = &call->view;
    const int is_masked = view->mask != NULL;
    unsigned bits = 8 * (unsigned)view->bytes;
    gpr_rule fold;
    gpr_status status = GPR_OK;

    *is_done = gpr_fold_of_exact_integers(rule, view->n, bits, is_masked, &fold);
    if (!*is_done && may_fit(call)) {
        if (largest == 0) GPR_TRY(gpr_cpu_find_largest(call, run, &largest));
        for (bits = 0; largest != 0; bits++) largest >>= 1;
        *is_done = gpr_fold_of_exact_integers(rule, view->n, bits, is_masked, &fold);
    }
    if (!*is_done) goto done;
    if (rule->result == GPR_FLOAT64) return reduce_to_doubles(call, &fold, run);
    status = reduce_by(call, view, &fold, call->result, run);
done:
    return status;
}
