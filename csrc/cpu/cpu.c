/* Folds on the CPU: from a view and a rule to results, on all cores. This file has the folds whose
 * accumulators are numbers, or two numbers (a range, a sum and a count), each of which has a loop;
 * composite.c has the others.
 *
 * Work is cut into tasks of about PIECE_BYTES by shapes alone. There are four ways to cut it:
 *   pieces    long rows: a task folds part of a row to a partial; partials are folded in order at
 *             the end
 *   rows      short rows: a task folds a batch of whole rows
 *   columns   rows that lie crosswise in memory (axis 0 of a C-ordered matrix): a task reads memory
 *             in its order and folds into a block of accumulators, one per row
 *   layers    rows that are a run in each of several layers of main memory (axes 0 and 2 of a
 *             C-ordered array of three): a task reads layers in the order of memory, too
 * The loops (loops.h) read aligned native elements of certain dtypes. Such arrays are read in
 * place. Elements of others are packed and converted in a stage of a few KiB, which stays in the
 * first cache, and folded from there. */
#include "cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/float_environment.h"
#include "cpu/job.h"
#include "cpu/overflowed_moments.h"
#include "cpu/repeats.h"
#include "cpu/scaled_products.h"
#include "lib/base/clock.h"
#include "lib/base/convert.h"
#include "lib/base/status.h"

enum {
    ROW_BATCH = 512,          /* accumulators of short rows between two calls to finish them */
    COLUMN_PIECE = 128,       /* least rows of a piece of columns: partials stay few ... */
    COLUMN_LONG_PIECE = 2048, /* ... and where columns alone make MANY_UNITS tasks */
    MANY_UNITS = 64,
    COLUMN_ACCUMULATOR_BYTES = 64 * 1024, /* of a unit of columns */
    LONG_RUN_BYTES = 4 << 20,
    SMALL_BLOCK_BYTES = 512, /* of blocks of columns that are packed side by side */
    SMALL_SUM = 128,         /* elements of such a block, whose packing takes as long as adding */
    STACK_PARTIALS = 64,
    /* of pieces that are folded before the next ones are read; pieces of a row, at least */
    MOST_PARTIALS = 1 << 14,
    LEAST_TURN = 64,
    FIRST_DECIDED = 64 /* rows at most whose first pieces one thread folds before others begin */
};

/* A task's memory: packed accumulators for each recipe, and space for elements that loops cannot
 * read in place. */
typedef struct batch {
    _Alignas(64) char of[MOST_RECIPES][ROW_BATCH * MOST_NUMBER_BYTES]; /* of rows */
    staging staged;
} batch;

typedef struct block {
    _Alignas(64) char of[MOST_RECIPES][COLUMN_ACCUMULATOR_BYTES]; /* of columns */
    stage s;
} block;
_Static_assert(sizeof(batch) <= GPR_TASK_MEMORY && sizeof(block) <= GPR_TASK_MEMORY,
               "workers have room for them");

/* That an accumulator is of. */
static uint64_t elements_of_row(const job *work)
{
    return work->view->n * gpr_larger(work->repeats, 1);
}

/* Stores `count` sums and products that are doubles, or pairs of them, or means of those and of
 * integers, divided by as many counts or by the number of elements of a row, if a loop does it:
 * results that are float32 or float64, or complex numbers of them. */
static int finish_floats(const job *work, const char *accumulators, const char *counts,
                         uint64_t count, char *results)
{
    const recipe *how = &work->how[0];
    const gpr_rule *rule = how->rule;
    const gpr_loops *loops = gpr_cpu_loops();
    const gpr_widening widen = loops->widen[how->acc];
    const uint64_t parts = (uint64_t)gpr_exact_parts(how->acc);
    const size_t bytes = work->result_bytes / parts;
    const int is_single = gpr_real_dtype(rule->result) == GPR_FLOAT32,
              is_wide = widen.loop != NULL && widen.to == GPR_FLOAT64,
              is_double = gpr_real_dtype(how->acc) == GPR_FLOAT64;
    const double divisor = rule->divide ? (double)elements_of_row(work) : 1;
    double values[GPR_WIDE_ELEMENTS], divisors[GPR_WIDE_ELEMENTS];
    const gpr_narrow_format any = {0};

    if (rule->acc_kind != GPR_ACC_NUMBER && rule->acc_kind != GPR_ACC_SUM_COUNT) return 0;
    if (!is_double && !(is_wide && rule->divide)) return 0;
    if (!is_single && gpr_real_dtype(rule->result) != GPR_FLOAT64) return 0;
    if (gpr_exact_parts(rule->result) != gpr_exact_parts(how->acc)) return 0;
    if (!rule->divide && !(how->fold == GPR_FOLD_sum && is_single)) return 0;
    if (counts != NULL && parts > 1) return 0;
    if (!is_wide && counts == NULL) { /* as they are */
        (void)loops->round_sums((const double *)(const void *)accumulators, NULL, divisor,
                                count * parts, &any, is_single, results);
        return 1;
    }
    for (uint64_t done = 0; done < count * parts; done += GPR_WIDE_ELEMENTS) {
        const uint64_t some = gpr_smaller(count * parts - done, GPR_WIDE_ELEMENTS);
        const char *from = accumulators + done * (how->acc_bytes / parts);

        if (is_wide)
            widen.loop(from, values, some);
        else
            for (uint64_t i = 0; i < some; i++) values[i] = ((const double *)(const void *)from)[i];
        if (counts != NULL)
            loops->widen[GPR_UINT64].loop(counts + done * sizeof(uint64_t), divisors, some);
        (void)loops->round_sums(values, counts != NULL ? divisors : NULL, divisor, some, &any,
                                is_single, results + done * bytes);
    }
    return 1;
}

/* Finalizes `count` accumulators, the first of row `row`; of a range, `high` has the largest
 * elements, of a sum and a count, the counts. */
static void finish(job *work, char *accumulators, char *high, uint64_t count, uint64_t row)
{
    const recipe *how = &work->how[0];
    char *results = work->result + row * work->result_bytes;
    const uint64_t n = elements_of_row(work);

    if (work->repeats > 1) {
        gpr_cpu_repeat(how->fold, how->acc, work->repeats, accumulators, count);
        if (work->recipes > 1)
            gpr_cpu_repeat(work->how[1].fold, work->how[1].acc, work->repeats, high, count);
    }

    if (work->watches_range) {
        /* Rounding to a narrower result may overflow or underflow: that is the caller's choice of
         * dtype. */
        gpr_cpu_note_range(work);
        gpr_finish_results(how->rule, how->acc, accumulators, count, n, results,
                           work->output_stride);
        lower_flags();
        return;
    }
    if (finish_floats(work, accumulators, work->recipes > 1 ? high : NULL, count, results)) return;
    if (work->recipes == 1)
        gpr_finish_results(how->rule, how->acc, accumulators, count, n, results,
                           work->output_stride);
    else if (how->rule->acc_kind == GPR_ACC_SUM_COUNT)
        gpr_finish_means(how->rule, how->acc, accumulators, high, count, results);
    else
        gpr_finish_ranges(how->rule, how->acc, accumulators, high, count, results,
                          work->output_stride);
}

/* ---------------------------------------------------------------- pieces of a row ------------ */

/* Whether all loops read the rows where they are. */
static int rows_are_direct(const job *work)
{
    return gpr_cpu_is_direct(&work->how[0]) &&
           (work->recipes == 1 || gpr_cpu_is_direct(&work->how[1]));
}

static int piece_task(void *context, uint64_t task, void *memory)
{
    job *work = context;
    const uint64_t index = work->done + task;
    const uint64_t row = index / work->pieces,
                   first = (work->first + index % work->pieces) * work->length;
    const uint64_t tasks = work->view->rows * work->pieces;

    if (gpr_cpu_must_stop(&work->stop)) return 0;
    if (work->decided != NULL && atomic_load_explicit(&work->decided[row], memory_order_relaxed))
        return work->view->rows > 1;
    for (int k = 0; k < work->recipes; k++) {
        const recipe *how = &work->how[k];
        const gpr_value value = gpr_cpu_fold_run(
            how, row, first, gpr_smaller(work->view->n - first, work->length), memory);

        if (work->decided == NULL)
            ((gpr_value *)work->partials)[(uint64_t)k * tasks + index] = value;
        else if (gpr_cpu_is_decided(how, value))
            atomic_store_explicit(&work->decided[row], 1, memory_order_relaxed);
    }
    return 1;
}

/* The accumulator of row `row` in the partials of recipe k. */
static gpr_value fold_pieces(const job *work, int k, uint64_t row)
{
    const recipe *how = &work->how[k];
    gpr_value *partials = work->partials;

    return gpr_fold_partials(how->fold, how->loop_dtype, how->loop.accumulator,
                             partials + ((uint64_t)k * work->view->rows + row) * work->pieces,
                             work->pieces);
}

/* Finishes rows from what has been decided of them, or from the partials of their last pieces and
 * what came before these, if `before` is not NULL: an accumulator for each recipe and row. */
static void finish_pieces(job *work, const gpr_value *before)
{
    const uint64_t rows = work->view->rows;

    for (uint64_t row = 0; row < rows && !gpr_cpu_must_stop(&work->stop); row++) {
        gpr_value values[MOST_RECIPES];

        for (int k = 0; k < work->recipes; k++) {
            const recipe *how = &work->how[k];

            if (work->decided != NULL) {
                values[k] =
                    (gpr_value){.bytes = {(how->fold == GPR_FOLD_any) == work->decided[row]}};
                continue;
            }
            values[k] = fold_pieces(work, k, row);
            if (before != NULL)
                values[k] = gpr_fold_acc(how->fold, how->loop.accumulator,
                                         before[(uint64_t)k * rows + row], values[k]);
        }
        finish(work, (char *)&values[0], (char *)&values[1], 1, row);
    }
}

/* The first elements often decide any and all: those of rows are folded by one thread, before
 * others are woken, as long as they do. */
static int first_pieces_task(void *context, uint64_t task, void *memory)
{
    job *work = context;
    const uint64_t most = gpr_smaller(work->view->rows, FIRST_DECIDED);
    uint64_t row = 0;
    int is_decided;

    do {
        work->done = row * work->pieces;
        (void)piece_task(work, task, memory);
        is_decided = work->decided[row];
    } while (is_decided && ++row < most);
    work->done = row * work->pieces + (is_decided ? 0 : 1);
    return 1;
}

/* Folds whether any or all elements are true, piece by piece until that is decided. */
static gpr_status decide_pieces(job *work, size_t memory, gpr_run *run)
{
    const gpr_view *view = work->view;
    _Atomic uint8_t stack_decided[1];
    void *heap = NULL;
    uint64_t tasks;
    gpr_status status = GPR_OK;

    work->decided = stack_decided;
    if (view->rows > 1) work->decided = heap = malloc(view->rows * sizeof *work->decided);
    if (work->decided == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for %llu rows",
                        (unsigned long long)view->rows);
    for (uint64_t row = 0; row < view->rows; row++) atomic_init(&work->decided[row], 0);
    status = gpr_cpu_run_job(1, first_pieces_task, work, memory, &run->block_size);
    tasks = view->rows * work->pieces - work->done;
    if (tasks > 0 && status == GPR_OK)
        status = gpr_cpu_run_job(tasks, piece_task, work, memory, &run->block_size);
    if (status == GPR_OK && !work->stop.stopped) finish_pieces(work, NULL);
    free(heap);
    return status;
}

/* Folds more pieces than there is memory for at a time: `at_once` of each row, and the next ones
 * when the partials of these are one. */
static gpr_status fold_in_turns(job *work, uint64_t at_once, size_t memory, gpr_run *run)
{
    const uint64_t rows = work->view->rows, pieces = work->pieces;
    gpr_value *before = malloc(rows * (uint64_t)work->recipes * sizeof *before);
    gpr_status status = GPR_OK;

    if (before == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial results of %llu rows",
                        (unsigned long long)rows);
    for (work->first = 0; work->first < pieces && status == GPR_OK && !work->stop.stopped;
         work->first += at_once) {
        const int is_first = work->first == 0, is_last = work->first + at_once >= pieces;

        work->pieces = gpr_smaller(at_once, pieces - work->first);
        status = gpr_cpu_run_job(rows * work->pieces, piece_task, work, memory, &run->block_size);
        if (status != GPR_OK || work->stop.stopped) break;
        if (is_last) finish_pieces(work, before);
        for (int k = 0; k < work->recipes && !is_last; k++) {
            const recipe *how = &work->how[k];

            for (uint64_t row = 0; row < rows; row++) {
                gpr_value *all = &before[(uint64_t)k * rows + row];
                const gpr_value some = fold_pieces(work, k, row);

                *all = is_first ? some : gpr_fold_acc(how->fold, how->loop.accumulator, *all, some);
            }
        }
    }
    free(before);
    return status;
}

/* Not inlined: its partials would enlarge the frame of every call. */
static __attribute__((noinline)) gpr_status reduce_pieces(job *work, gpr_run *run)
{
    const gpr_view *view = work->view;
    gpr_value stack_partials[STACK_PARTIALS];
    void *heap = NULL;
    const size_t memory = rows_are_direct(work) ? 0 : sizeof(staging);
    const uint64_t of_a_piece = view->rows * (uint64_t)work->recipes;
    gpr_status status = GPR_OK;
    uint64_t at_once, partials;

    work->pieces = gpr_divide_up(view->n, work->length);
    run->grid_size = view->rows * work->pieces;
    if (work->recipes == 1 && gpr_cpu_may_stop_early(work->how[0].fold))
        return decide_pieces(work, memory, run);
    at_once = MOST_PARTIALS / of_a_piece;
    if (at_once < LEAST_TURN) at_once = LEAST_TURN;
    at_once = gpr_smaller(at_once, work->pieces);
    partials = of_a_piece * at_once;
    work->partials = stack_partials;
    if (partials > STACK_PARTIALS) work->partials = heap = malloc(partials * sizeof(gpr_value));
    if (work->partials == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for %llu partial results",
                        (unsigned long long)partials);
    if (at_once < work->pieces) {
        status = fold_in_turns(work, at_once, memory, run);
    } else {
        status = gpr_cpu_run_job(run->grid_size, piece_task, work, memory, &run->block_size);
        if (status == GPR_OK && !work->stop.stopped) finish_pieces(work, NULL);
    }
    free(heap);
    return status;
}

/* ---------------------------------------------------------------- batches of rows ------------ */

static int rows_task(void *context, uint64_t index, void *memory)
{
    job *work = context;
    batch *in = memory;
    const uint64_t first = index * work->per_task,
                   end = gpr_smaller(work->view->rows, first + work->per_task);

    if (gpr_cpu_must_stop(&work->stop)) return 0;
    for (uint64_t row = first; row < end;) {
        const uint64_t count = gpr_smaller(end - row, ROW_BATCH);

        for (int k = 0; k < work->recipes; k++)
            gpr_cpu_fold_rows(&work->how[k], row, count, in->of[k], &in->staged);
        finish(work, in->of[0], in->of[1], count, row);
        row += count;
    }
    return 1;
}

static gpr_status reduce_rows(job *work, gpr_run *run)
{
    const uint64_t rows = work->length / work->view->n;

    work->per_task = rows > 0 ? rows : 1;
    run->grid_size = gpr_divide_up(work->view->rows, work->per_task);
    return gpr_cpu_run_job(run->grid_size, rows_task, work,
                           rows_are_direct(work) ? offsetof(batch, staged) : sizeof(batch),
                           &run->block_size);
}

/* ---------------------------------------------------------------- columns -------------------- */

/* Whether the job adds or multiplies floats: the last bits of results depend on the order. */
static int adds_floats(const job *work)
{
    const recipe *how = &work->how[0];

    return gpr_is_inexact(how->acc) && !gpr_is_extreme(how->fold);
}

/* Narrow columns that are packed anyway are packed side by side with those of the axis before
 * theirs, and so are blocks of a few: a loop for each would take longer. Whether a job's are. */
static int are_packed_wide(const job *work)
{
    const gpr_view *view = work->view;
    const gpr_axis *across = &view->axes[view->outer - 1],
                   *along = &view->axes[view->outer + view->inner - 1];
    const int is_dense =
        gpr_cpu_columns_in_place(view) && along->in == (int64_t)(across->extent * view->bytes);
    const uint64_t elements = view->n * across->extent;
    const int is_small = view->inner == 1 && elements * view->bytes <= SMALL_BLOCK_BYTES &&
                         (elements <= SMALL_SUM || !adds_floats(work));

    return gpr_cpu_columns_are_narrow(view) && (!is_dense || is_small);
}

/* Units of such columns are whole steps of the axis before theirs. */
static gpr_cpu_units cut_wide_units(const gpr_view *view)
{
    const uint64_t extent = view->axes[view->outer - 1].extent;
    gpr_cpu_units units = {.width = gpr_cpu_wide_columns(view)};

    units.rows = gpr_smaller(units.width, GPR_COLUMN_BLOCK / extent * extent);
    units.blocks = gpr_divide_up(units.width, units.rows);
    units.count = view->rows / units.width * units.blocks;
    return units;
}

/* Folds positions [first, end) of a unit's rows to accumulators. */
static void fold_unit(const job *work, const recipe *how, uint64_t row, uint64_t width,
                      uint64_t first, uint64_t end, char *accumulators, stage *s)
{
    if (work->in_layers)
        gpr_cpu_fold_layers(how, row, width, first, end, accumulators, s->packed);
    else
        gpr_cpu_fold_columns(work, how, row, width, first, end, accumulators, s);
}

static int columns_task(void *context, uint64_t index, void *memory)
{
    job *work = context;
    block *in = memory;
    const uint64_t end = gpr_smaller(work->units.count, (index + 1) * work->per_task);

    if (gpr_cpu_must_stop(&work->stop)) return 0;
    for (uint64_t unit = index * work->per_task; unit < end; unit++) {
        uint64_t width;
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &width);

        if (work->into_results) {
            gpr_cpu_fold_columns(work, &work->how[0], row, width, 0, work->view->n,
                                 work->result + row * work->result_bytes,
                                 work->columns_direct ? NULL : &in->s);
            continue;
        }
        for (int k = 0; k < work->recipes; k++)
            fold_unit(work, &work->how[k], row, width, 0, work->view->n, in->of[k], &in->s);
        finish(work, in->of[0], in->of[1], width, row);
    }
    return 1;
}

/* Accumulators of a unit's piece: a block of them for each unit and piece, and the next recipe's
 * behind all of them. */
static char *column_partials(const job *work, int k, uint64_t index)
{
    const uint64_t block = (uint64_t)k * work->units.count * work->pieces + index;

    return (char *)work->partials + block * work->units.rows * work->how[0].acc_bytes;
}

static int column_piece_task(void *context, uint64_t index, void *memory)
{
    job *work = context;
    block *in = memory;
    const uint64_t first = index % work->pieces * work->length;
    uint64_t width;
    const uint64_t row = gpr_cpu_unit_row(&work->units, index / work->pieces, &width);

    if (gpr_cpu_must_stop(&work->stop)) return 0;
    for (int k = 0; k < work->recipes; k++) {
        const recipe *how = &work->how[k];

        fold_unit(work, how, row, width, first, gpr_smaller(work->view->n, first + work->length),
                  in->of[k], &in->s);
        memcpy(column_partials(work, k, index), in->of[k], width * how->acc_bytes);
    }
    return 1;
}

/* A block's partials are rows of accumulators, which fold like rows of elements. */
static void finish_column_pieces(job *work)
{
    const int64_t block_bytes = (int64_t)(work->units.rows * work->how[0].acc_bytes);

    for (uint64_t unit = 0; unit < work->units.count && !gpr_cpu_must_stop(&work->stop); unit++) {
        char *blocks[MOST_RECIPES] = {NULL};
        uint64_t width;
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &width);

        for (int k = 0; k < work->recipes; k++) {
            blocks[k] = column_partials(work, k, unit * work->pieces);
            work->how[k].combine(blocks[k] + block_bytes, block_bytes, work->pieces - 1, width, 0,
                                 blocks[k]);
        }
        finish(work, blocks[0], blocks[1], width, row);
    }
}

/* How many rows are folded side by side: more of few columns where the order of the fold is free,
 * since loops fold less than a vector of columns one by one. */
static uint64_t copies_of(const job *work)
{
    enum { FEW_COLUMNS = 16, LEAST_DEPTH = 4 };
    const uint64_t width = work->units.width, n = work->view->n;
    uint64_t copies = gpr_cpu_copies(width, n);

    if (copies > 1 || width >= FEW_COLUMNS || adds_floats(work)) return copies;
    if (gpr_cpu_may_stop_early(work->how[0].fold)) return copies; /* after few rows, often */
    while (copies * width < 2 * FEW_COLUMNS) copies *= 2;
    return n >= LEAST_DEPTH * copies ? copies : 1;
}

/* Whether main memory is read, and in an order that is free: blocks of columns may be wide. */
static int may_read_wide(const job *work)
{
    return !adds_floats(work) && gpr_cpu_has_bytes(work->view, GPR_FAR_BEYOND_CACHES);
}

/* Columns of a unit that loops read where they are: as many as make long runs of memory, also of
 * narrow elements, and whose accumulators have room. */
static uint64_t most_columns(const job *work)
{
    size_t bytes = work->how[0].acc_bytes;

    if (work->recipes > 1 && work->how[1].acc_bytes > bytes) bytes = work->how[1].acc_bytes;
    if (may_read_wide(work)) return COLUMN_ACCUMULATOR_BYTES / bytes;
    return gpr_smaller(GPR_COLUMN_BLOCK * sizeof(double) / work->view->bytes,
                       COLUMN_ACCUMULATOR_BYTES / bytes);
}

/* The same where results are the accumulators. Main memory brings in runs of megabytes twice as
 * fast as runs of some KiB; every thread gets one. */
static uint64_t most_result_columns(const job *work, uint64_t most)
{
    const gpr_view *view = work->view;
    const uint64_t least = PIECE_BYTES / view->bytes / view->n,
                   share = gpr_divide_up(view->axes[view->outer - 1].extent, gpr_thread_count());

    if (least > most) most = least;
    if (!may_read_wide(work)) return most;
    const uint64_t run = gpr_smaller(LONG_RUN_BYTES / view->bytes, share);
    return run > most ? run : most;
}

/* Whether every thread gets long runs of whole columns. */
static int is_wide_enough(const job *work)
{
    enum { LEAST_RUN_BYTES = 32 * 1024 };
    const gpr_view *view = work->view;
    const uint64_t share = view->axes[view->outer - 1].extent / gpr_thread_count();

    return work->columns_direct && may_read_wide(work) && share * view->bytes >= LEAST_RUN_BYTES;
}

/* Folds units of rows, cut into pieces of work->length positions; tasks have `piece` elements. */
static gpr_status reduce_units(job *work, uint64_t piece, size_t memory, gpr_run *run)
{
    const gpr_view *view = work->view;
    uint64_t tasks;
    gpr_status status = GPR_OK;

    work->pieces = gpr_divide_up(view->n, work->length);
    if (work->pieces == 1) {
        const uint64_t units = piece / (view->n * work->units.rows);

        work->per_task = units > 0 ? units : 1;
        run->grid_size = gpr_divide_up(work->units.count, work->per_task);
        return gpr_cpu_run_job(run->grid_size, columns_task, work, memory, &run->block_size);
    }
    tasks = work->units.count * work->pieces;
    work->partials =
        malloc((uint64_t)work->recipes * tasks * work->units.rows * work->how[0].acc_bytes);
    if (work->partials == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial results of %llu tasks",
                        (unsigned long long)tasks);
    run->grid_size = tasks;
    status = gpr_cpu_run_job(tasks, column_piece_task, work, memory, &run->block_size);
    if (status == GPR_OK && !work->stop.stopped) finish_column_pieces(work);
    free(work->partials);
    return status;
}

static gpr_status reduce_columns(job *work, gpr_run *run)
{
    const gpr_view *view = work->view;
    const uint64_t piece = work->length;
    uint64_t least_piece, most = GPR_COLUMN_BLOCK;
    size_t memory = sizeof(block);
    int is_direct;

    work->columns_wide = are_packed_wide(work);
    work->columns_direct =
        !work->columns_wide && work->how[0].direct && gpr_cpu_columns_in_place(view);
    is_direct = work->columns_direct && (work->recipes == 1 || work->how[1].direct);
    if (is_direct) most = most_columns(work);
    work->into_results = work->recipes == 1 && gpr_is_result(work->how[0].rule, work->how[0].acc) &&
                         (uintptr_t)work->result % work->result_bytes == 0 &&
                         (view->n <= COLUMN_PIECE || is_wide_enough(work)) && work->repeats <= 1;
    if (work->into_results && work->columns_direct) most = most_result_columns(work, most);
    work->units = work->columns_wide ? cut_wide_units(view) : gpr_cpu_cut_units(view, most);
    work->copies = copies_of(work);
    if (work->copies > 1) work->into_results = 0;
    /* The second recipe may need the stage where the first does not. */
    if (is_direct) memory = work->into_results ? 0 : offsetof(block, s);
    least_piece = work->units.count < MANY_UNITS ? COLUMN_PIECE : COLUMN_LONG_PIECE;
    work->length = piece / work->units.rows;
    if (work->length < least_piece) work->length = least_piece;
    if (work->into_results) work->length = view->n;
    return reduce_units(work, piece, memory, run);
}

static int reads_layers(const job *work)
{
    for (int k = 0; k < work->recipes; k++)
        if (!gpr_cpu_reads_layers(&work->how[k])) return 0;
    return 1;
}

/* Rows of runs that are read layer by layer. */
static gpr_status reduce_layers(job *work, gpr_run *run)
{
    enum { LAYERS_BYTES = 1 << 20 }; /* of a task: what is read beyond a run is soon another's */
    const uint64_t piece = LAYERS_BYTES / work->view->bytes,
                   of_a_run = gpr_cpu_run_of(&work->how[0]);

    work->in_layers = 1;
    work->copies = 1;
    work->units = gpr_cpu_cut_layers(&work->how[0]);
    work->length = gpr_divide_up(piece, work->units.rows * of_a_run) * of_a_run;
    return reduce_units(work, piece, sizeof(block), run);
}

/* ---------------------------------------------------------------- the public part ------------ */

/* Rows without elements: each is the identity. */
static void reduce_nothing(const job *work)
{
    const gpr_rule *rule = work->how[0].rule;
    const gpr_dtype acc = work->how[0].acc;
    const gpr_value identity = gpr_identity(rule->fold, rule->compute, acc);
    uint8_t packed[sizeof identity];

    gpr_write_acc(rule->acc_kind, acc, &identity, packed);
    for (uint64_t row = 0; row < work->view->rows; row++)
        gpr_finish_results(rule, acc, packed, 1, 0, work->result + row * work->result_bytes,
                           work->output_stride);
}

/* The folds of numbers that make up the rule's fold. `marks` becomes the mask's view where a recipe
 * reads it. */
static __attribute__((noinline)) void make_recipes(const gpr_rule *rule, gpr_view *marks, job *work)
{
    const gpr_view *view = work->view;
    /* Found numbers are never NaN where those are left out, but of nothing else. */
    const int skips = rule->skip_nan;

    work->recipes = 1;
    switch (rule->fold) {
    case GPR_FOLD_argmin:
        work->how[0] = gpr_cpu_recipe(rule, view, skips ? GPR_FOLD_fmin : GPR_FOLD_min);
        break;
    case GPR_FOLD_argmax:
        work->how[0] = gpr_cpu_recipe(rule, view, skips ? GPR_FOLD_fmax : GPR_FOLD_max);
        break;
    case GPR_FOLD_moments: work->how[0] = gpr_cpu_recipe(rule, view, GPR_FOLD_sum); break;
    case GPR_FOLD_sum_count:
        work->recipes = 2;
        gpr_mask_view(view, marks);
        work->how[0] = gpr_cpu_recipe(rule, view, GPR_FOLD_sum);
        work->how[1] = gpr_cpu_count_recipe(rule, view, marks);
        break;
    case GPR_FOLD_range:
        work->recipes = 2;
        work->how[0] = gpr_cpu_recipe(rule, view, GPR_FOLD_min);
        work->how[1] = gpr_cpu_recipe(rule, view, GPR_FOLD_max);
        break;
    default: work->how[0] = gpr_cpu_recipe(rule, view, rule->fold); break;
    }
}

static double by_threads(double alone)
{
    const uint32_t threads = gpr_cpu_threads_for(alone);

    return threads > 1 ? alone / threads + WAKE_NANOSECONDS : alone;
}

double gpr_cpu_nanoseconds(const gpr_view *view, const gpr_rule *rule)
{
    uint64_t repeats;
    gpr_rule fold;
    gpr_view marks, once;
    job work = {.view = view};
    double alone;

    if (gpr_fold_of_exact_integers(rule, view->n, 8 * (unsigned)view->bytes, view->mask != NULL,
                                   &fold))
        rule = &fold;
    const uint64_t least =
        gpr_is_exact(rule->acc_kind) ? GPR_CPU_LEAST_ADDED : GPR_CPU_LEAST_FOLDED;
    repeats = gpr_cpu_may_repeat(rule) ? gpr_cpu_repeats(view, NULL, least) : 0;
    if (repeats != 0) {
        (void)gpr_view_once(view, repeats, &once);
        work.view = view = &once;
    }
    if (gpr_is_exact(rule->acc_kind)) {
        alone = gpr_cpu_exact_nanoseconds(view, rule->acc_kind);
    } else {
        make_recipes(rule, &marks, &work);
        alone = gpr_cpu_job_nanoseconds(&work);
    }
    return by_threads(alone);
}

double gpr_cpu_nanoseconds_to_pack(const gpr_view *view)
{
    return by_threads(gpr_cpu_nanoseconds_to_read(view, 1));
}

/* Copies elements that are rows of their own to be their extremes, if they would be widened for
 * that, or converted one by one: 16-bit floats and complex numbers. 0, and nothing done, for other
 * rows and folds. */
static int copies_singly(const job *work)
{
    const gpr_view *view = work->view;
    const recipe *how = &work->how[0];
    const int is_converted =
        view->bytes == sizeof(uint16_t) || gpr_kind_of(how->rule->element) == GPR_KIND_COMPLEX;

    if (view->n != 1 || view->inner > 0 || view->mask != NULL || !is_converted ||
        how->rule->acc_kind != GPR_ACC_NUMBER || !gpr_is_extreme(how->fold) ||
        how->rule->result != how->rule->element)
        return 0;
    gpr_cpu_pack(view, 0, view->rows, NULL, work->result);
    return 1;
}

/* Reduces rows of one element or more. `single` is memory for a view that the job may keep. */
static gpr_status reduce_rows_of_some(const gpr_resolved *call, job *work, gpr_view *marks,
                                      gpr_view *single, gpr_run *run)
{
    const gpr_view *view = work->view;
    const gpr_rule *rule = &call->rule;

    if (view->contiguous && view->rows == 1 && work->how[0].direct &&
        rule->acc_kind == GPR_ACC_NUMBER && view->n <= work->length) {
        /* The common small array: one call of one loop. */
        gpr_value value;

        work->how[0].loop.rows(view->data, 0, 1, view->n, &value);
        finish(work, (char *)&value, NULL, 1, 0);
        return GPR_OK;
    }
    if (view->contiguous && view->rows == 1 && gpr_cpu_reduce_small(work)) return GPR_OK;
    if (rule->acc_kind == GPR_ACC_MOMENTS && gpr_cpu_varies_singly(work)) return GPR_OK;
    if (copies_singly(work)) return GPR_OK;
    if (gpr_cpu_lay_crosswise(view, single)) {
        work->view = view = single;
        make_recipes(rule, marks, work);
    }
    gpr_cpu_watch(&work->stop, call->interrupted, call->interrupted_arg);
    if (rule->acc_kind == GPR_ACC_INDEXED || rule->acc_kind == GPR_ACC_MOMENTS)
        return gpr_cpu_reduce_composite(work, run);
    if (gpr_cpu_lies_crosswise(view)) return reduce_columns(work, run);
    if (reads_layers(work)) return reduce_layers(work, run);
    if (view->n > work->length) return reduce_pieces(work, run);
    return reduce_rows(work, run);
}

/* Reduces the rows of a view, each of whose elements stands for `repeats` of them. */
static gpr_status reduce_view(const gpr_resolved *call, const gpr_view *view, uint64_t repeats,
                              gpr_run *run)
{
    const gpr_rule *rule = &call->rule;
    gpr_view marks, single;
    job work;
    gpr_status status;

    memset(&work, 0, sizeof work);
    work.view = view;
    work.repeats = repeats;
    work.result = call->result;
    work.result_bytes = gpr_dtype_rows[rule->result].bytes;
    work.output_stride = view->rows * work.result_bytes;
    work.length = PIECE_BYTES / view->bytes;
    make_recipes(rule, &marks, &work);
    run->variant = gpr_cpu_isa();
    run->block_size = 1;
    run->grid_size = 1;
    if (view->rows == 0) return GPR_OK;
    if (view->n == 0) {
        reduce_nothing(&work);
        return GPR_OK;
    }
    work.watches_range = work.how[0].fold == GPR_FOLD_prod && gpr_is_inexact(work.how[0].acc);
    if (work.watches_range) {
        const gpr_float_environment before = enter_ieee();

        if (gpr_cpu_starts_out_of_range(&work, &status)) {
            gpr_cpu_watch(&work.stop, call->interrupted, call->interrupted_arg);
            status = gpr_cpu_multiply_scaled(&work, 0);
        } else if (status == GPR_OK) {
            status = reduce_rows_of_some(call, &work, &marks, &single, run);
            gpr_cpu_note_range(&work);
            if (status == GPR_OK && work.left_range && !work.stop.stopped)
                status = gpr_cpu_multiply_scaled(&work, 1);
        }
        leave_ieee(before);
    } else {
        status = reduce_rows_of_some(call, &work, &marks, &single, run);
    }
    if (status == GPR_OK && work.stop.stopped)
        status = gpr_fail(GPR_ERROR_INTERRUPTED, "the reduction was interrupted");
    if (status == GPR_OK && gpr_cpu_moments_may_overflow(rule))
        status = gpr_cpu_vary_again(call, view);
    return status;
}

/* Reduces rows whose axes `repeats` are read once. Not inlined: its view would enlarge the frame of
 * every call. */
static __attribute__((noinline)) gpr_status reduce_once(const gpr_resolved *call, uint64_t repeats,
                                                        gpr_run *run)
{
    gpr_view once;
    const uint64_t times = gpr_view_once(&call->view, repeats, &once);
    gpr_status status = reduce_view(call, &once, times, run);

    for (uint64_t row = 0; row < once.rows && call->rule.acc_kind == GPR_ACC_INDEXED; row++) {
        char *result = (char *)call->result + row * sizeof(int64_t);
        int64_t position;

        memcpy(&position, result, sizeof position);
        if (position >= 0) position = (int64_t)gpr_view_position(&once, (uint64_t)position);
        memcpy(result, &position, sizeof position);
    }
    return status;
}

gpr_status gpr_cpu_reduce_by_folds(const gpr_resolved *call, gpr_run *run)
{
    uint64_t repeats = 0;

    if (gpr_cpu_may_repeat(&call->rule))
        repeats = gpr_cpu_repeats(&call->view, NULL, GPR_CPU_LEAST_FOLDED);
    if (repeats != 0) return reduce_once(call, repeats, run);
    return reduce_view(call, &call->view, 1, run);
}

uint64_t gpr_cpu_count_nonzero(gpr_dtype dtype, const void *data, uint64_t n)
{
    const gpr_loops *loops = gpr_cpu_loops();
    const gpr_widening widen = loops->widen[dtype];
    gpr_dtype counted = dtype;
    uint64_t all = 0, some;
    _Alignas(64) float wide[GPR_WIDE_ELEMENTS];

    if (n == 0) return 0;
    if (loops->loop[GPR_FOLD_count][dtype].rows != NULL) {
        loops->loop[GPR_FOLD_count][dtype].rows(data, 0, 1, n, &all);
        return all;
    }
    counted = widen.to; /* 16-bit floats */
    for (uint64_t done = 0; done < n; done += GPR_WIDE_ELEMENTS) {
        const uint64_t left = gpr_smaller(n - done, GPR_WIDE_ELEMENTS);

        widen.loop((const char *)data + done * gpr_dtype_rows[dtype].bytes, wide, left);
        loops->loop[GPR_FOLD_count][counted].rows((const char *)wide, 0, 1, left, &some);
        all += some;
    }
    return all;
}
