/* Variances whose sums left the range of doubles; see overflowed_moments.h. Results are looked at
 * first: where all are finite, as nearly always, no element is read again. */
#include "cpu/overflowed_moments.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/job.h"
#include "lib/base/float_bits.h"
#include "lib/base/status.h"

enum {
    PIECE = 1 << 15, /* elements between two looks at what others found */
    ROWS_TO_ASK = 64 /* that are computed between two checks whether to stop */
};

/* Squares of smaller numbers, and sums of 2^63 of them, are in range. */
#define LARGE 0x1p480

/* What a row's elements are, besides small numbers. */
enum { HAS_LARGE = 1, HAS_SPECIAL = 2 /* infinities, and NaN that count */ };

typedef struct again {
    const gpr_resolved *call;
    const gpr_view *view; /* of elements that are looked at */
    uint64_t *rows;       /* whose results are not finite */
    uint64_t count;
    _Atomic uint8_t *found; /* of each of these rows */
    uint64_t parts;         /* real numbers of an element */
    uint64_t pieces;        /* of a long row */
    uint64_t per_task;      /* short rows */
    gpr_value zero;         /* what a mask leaves out */
    gpr_cpu_stop stop;
} again;

int gpr_cpu_moments_may_overflow(const gpr_rule *rule)
{
    return rule->acc_kind == GPR_ACC_MOMENTS && gpr_real_dtype(rule->element) == GPR_FLOAT64 &&
           rule->compute == rule->element;
}

/* Whether any of `count` doubles is infinite or NaN: without branches, so that it takes vectors. */
static int has_special(const double *values, uint64_t count)
{
    int found = 0;

    for (uint64_t i = 0; i < count; i++) found |= !(fabs(values[i]) <= DBL_MAX);
    return found;
}

/* What there is among `count` numbers. As integers, of which the sign bits are what is found: the
 * compiler makes vectors of this, not of comparisons of doubles. */
static int classify(const double *x, uint64_t count, int skips_nan)
{
    const int64_t magnitude = INT64_MAX, infinity = (int64_t)gpr_bits_of_double(HUGE_VAL),
                  least_large = (int64_t)gpr_bits_of_double(LARGE);
    int64_t large = 0, infinite = 0, nan = 0;

    for (uint64_t i = 0; i < count; i++) {
        const int64_t bits = (int64_t)gpr_bits_of_double(x[i]) & magnitude,
                      past_finite = bits - infinity; /* below 0 where it is finite */

        large |= (least_large - 1 - bits) & past_finite;
        infinite |= (past_finite - 1) & ~past_finite;
        nan |= infinity - bits;
    }
    if (!skips_nan) infinite |= nan;
    return (infinite < 0 ? HAS_SPECIAL : 0) | (large < 0 ? HAS_LARGE : 0);
}

/* `count` elements of the view from `first` on: where they are, or packed. */
static const double *read(const again *work, uint64_t first, uint64_t count, stage *s)
{
    const gpr_view *view = work->view;

    if (view->contiguous) return (const double *)(const void *)(view->data + first * view->bytes);
    gpr_cpu_pack(view, first, count, work->zero.bytes, s->packed);
    return (const double *)(const void *)s->packed;
}

/* A task: looks at a piece of a long row. */
static int look_task(void *context, uint64_t index, void *memory)
{
    again *work = context;
    const gpr_view *view = work->view;
    const uint64_t row = index / work->pieces, first = work->rows[row] * view->n,
                   from = index % work->pieces * PIECE, end = gpr_smaller(view->n, from + PIECE);

    if (gpr_cpu_must_stop(&work->stop)) return 0;
    for (uint64_t at = from; at < end; at += STAGE_ELEMENTS) {
        const uint64_t count = gpr_smaller(STAGE_ELEMENTS, end - at);

        if (atomic_load_explicit(&work->found[row], memory_order_relaxed) & HAS_SPECIAL) return 1;
        const int found = classify(read(work, first + at, count, memory), count * work->parts,
                                   work->call->rule.skip_nan);
        if (found != 0)
            atomic_fetch_or_explicit(&work->found[row], (uint8_t)found, memory_order_relaxed);
    }
    return 1;
}

/* A task: looks at short rows, as many at a time as follow each other. */
static int look_at_rows_task(void *context, uint64_t index, void *memory)
{
    again *work = context;
    const uint64_t n = work->view->n, most = STAGE_ELEMENTS / n,
                   end = gpr_smaller(work->count, (index + 1) * work->per_task);

    if (gpr_cpu_must_stop(&work->stop)) return 0;
    for (uint64_t i = index * work->per_task, rows; i < end; i += rows) {
        const double *x;

        for (rows = 1; rows < most && i + rows < end; rows++)
            if (work->rows[i + rows] != work->rows[i] + rows) break;
        x = read(work, work->rows[i] * n, rows * n, memory);
        /* Mostly NaN are the reason, and no row has a large number. */
        if ((classify(x, rows * n * work->parts, work->call->rule.skip_nan) & HAS_LARGE) == 0)
            continue;
        for (uint64_t r = 0; r < rows; r++)
            work->found[i + r] = (uint8_t)classify(x + r * n * work->parts, n * work->parts,
                                                   work->call->rule.skip_nan);
    }
    return 1;
}

/* The variance of one row by exact sums. */
static gpr_status vary_exactly(const gpr_resolved *call, uint64_t row)
{
    gpr_resolved one = *call;
    gpr_view *view = &one.view;
    gpr_view at;
    gpr_run run;

    gpr_cpu_locate(view, row, 0, &at);
    view->data = at.data;
    view->mask = at.mask;
    memmove(view->axes, view->axes + view->outer, (size_t)view->inner * sizeof *view->axes);
    view->outer = 0;
    view->rows = 1;
    view->contiguous = view->rows_contiguous;
    gpr_fit_rule(&gpr_kernel_rows[GPR_KERNEL_exact], &one.rule);
    one.result = (char *)call->result + row * gpr_dtype_bytes(call->rule.result);
    return gpr_cpu_reduce_exactly(&one, &run);
}

/* Lists the rows whose results are not finite. */
static gpr_status find_rows(again *work)
{
    enum { AT_ONCE = 256 };
    const gpr_resolved *call = work->call;
    const uint64_t rows = call->view.rows;
    double values[AT_ONCE];

    assert(call->rule.result == GPR_FLOAT64); /* gpr_cpu_moments_may_overflow */
    for (uint64_t row = 0, count; row < rows; row += count) {
        count = gpr_smaller(AT_ONCE, rows - row);
        memcpy(values, (const char *)call->result + row * sizeof *values, count * sizeof *values);
        if (!has_special(values, count)) continue;
        if (work->rows == NULL) work->rows = malloc((rows - row) * sizeof *work->rows);
        if (work->rows == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
        /* Without branches, which masks would make hard to predict: a row that is not counted is
         * written over. */
        for (uint64_t i = 0; i < count; i++) {
            work->rows[work->count] = row + i;
            work->count += !isfinite(values[i]);
        }
    }
    return GPR_OK;
}

gpr_status gpr_cpu_vary_again(const gpr_resolved *call, const gpr_view *view)
{
    const uint64_t n = view->n;
    const int is_short = n <= STAGE_ELEMENTS;
    again work = {.call = call,
                  .view = view,
                  .parts = (uint64_t)gpr_exact_parts(view->dtype),
                  .pieces = gpr_divide_up(n, PIECE),
                  .per_task = gpr_divide_up(PIECE, n)};
    uint32_t threads;
    gpr_status status = GPR_OK;

    GPR_TRY(find_rows(&work));
    if (work.count == 0) goto done;
    work.found = calloc(work.count, sizeof *work.found);
    if (work.found == NULL) GPR_TRY(gpr_fail(GPR_ERROR_MEMORY, "out of memory"));
    gpr_cpu_watch(&work.stop, call->interrupted, call->interrupted_arg);
    GPR_TRY(gpr_cpu_run_tasks(
        (double)work.count * (double)n,
        is_short ? gpr_divide_up(work.count, work.per_task) : work.count * work.pieces,
        is_short ? look_at_rows_task : look_task, &work, sizeof(stage), &threads));
    if (work.stop.stopped)
        GPR_TRY(gpr_fail(GPR_ERROR_INTERRUPTED, "the reduction was interrupted"));
    for (uint64_t i = 0, made = 0; i < work.count; i++) {
        if (work.found[i] != HAS_LARGE) continue;
        if (++made % ROWS_TO_ASK == 0 && gpr_cpu_must_stop(&work.stop))
            GPR_TRY(gpr_fail(GPR_ERROR_INTERRUPTED, "the reduction was interrupted"));
        GPR_TRY(vary_exactly(call, work.rows[i]));
    }
done:
    free((void *)work.found);
    free(work.rows);
    return status;
}
