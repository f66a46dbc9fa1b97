/* The CPU backend: from a view and a rule to results, on all cores.
 *
 * Work is cut into tasks of about PIECE_BYTES by shapes alone. There are three ways to cut it:
 *   pieces    long rows: a task folds part of a row to a partial; partials are folded in order at the end
 *   rows      short rows: a task folds a batch of whole rows
 *   columns   rows that lie crosswise in memory (axis 0 of a C-ordered matrix): a task walks memory in its order and
 *             folds into a block of accumulators, one for each row
 * The loops (loops.h) want aligned native elements of one of their dtypes. Where the array is that, they read it in
 * place; elsewhere a stage of a few KiB is packed, converted and folded, over and over, without leaving the first
 * cache. */
#include "cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/clock.h"
#include "../lib/convert.h"
#include "../lib/status.h"
#include "../lib/threads.h"
#include "loops.h"

enum {
    PIECE_BYTES = 256 * 1024,  /* of a task: tens of microseconds of work, small beside any cache level that matters */
    ALONE_BYTES = 1024 * 1024, /* up to this, waking other threads costs more than they save */
    STAGE_ELEMENTS = 1024,     /* of a stage: three buffers of it fit the first cache */
    ROW_BATCH = 512,           /* accumulators of short rows between two calls to finish them */
    COLUMN_PIECE = 128,        /* least rows of a piece of columns, so that partials stay few beside elements ... */
    COLUMN_LONG_PIECE = 2048,  /* ... and where columns alone make MANY_UNITS tasks */
    MANY_UNITS = 64,
    NARROW_COLUMNS = 64, /* blocks narrower than this are widened by folding several rows side by side ... */
    WIDE_ENOUGH = 128,   /* ... until they are this wide */
    STACK_PARTIALS = 64
};
static const double ASK_SECONDS = 0.01; /* between two questions whether to stop */

/* ---------------------------------------------------------------- from elements to loops ------ */

/* How elements reach the loop that folds them. */
typedef struct recipe {
    const gpr_rule *rule;
    gpr_fold fold; /* the rule's, or what it comes to */
    gpr_loop loop;
    gpr_columns_loop combine; /* folds rows of accumulators */
    int convert;              /* first: element to compute type */
    gpr_widening widen;       /* then, if its loop is not NULL */
    int direct;               /* neither */
    size_t loop_bytes;        /* of an element as the loop reads it */
    size_t acc_bytes;         /* of an accumulator */
    gpr_dtype acc;            /* the loop's accumulator, as its value is to be read: integer sums with their sign */
    gpr_value identity;       /* accumulator */
    gpr_value neutral;        /* element, for masks */
} recipe;

static gpr_kind kind_of(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind;
}

static int is_truth(gpr_fold fold)
{
    return fold == GPR_FOLD_any || fold == GPR_FOLD_all;
}

/* Bits of the significand of a float, or of the magnitude of an integer. */
static size_t digits(gpr_dtype dtype)
{
    switch (dtype) {
    case GPR_FLOAT16: return 11;
    case GPR_BFLOAT16: return 8;
    case GPR_FLOAT32: return 24;
    case GPR_FLOAT64: return 53;
    default: return gpr_dtype_rows[dtype].bytes * 8 - (kind_of(dtype) == GPR_KIND_SIGNED);
    }
}

/* Whether the loop of the element type gives what converting each element to `compute` would. */
static int needs_no_conversion(const gpr_rule *rule)
{
    const gpr_dtype element = rule->element, compute = rule->compute;
    const int from_float = kind_of(element) == GPR_KIND_FLOAT, to_float = kind_of(compute) == GPR_KIND_FLOAT;

    if (element == compute || is_truth(rule->fold)) return 1;
    if (!from_float && !to_float) return 1; /* wrapping commutes with sums and products */
    if (from_float && to_float) return gpr_dtype_rows[compute].bytes > gpr_dtype_rows[element].bytes;
    /* Integers that the float type holds are summed exactly in 64 bits. */
    return to_float && rule->fold == GPR_FOLD_sum && digits(element) <= digits(compute);
}

/* Of truth values, a product and a minimum are "all" and a maximum is "any", which may stop early. */
static gpr_fold simplest_fold(gpr_fold fold, gpr_dtype dtype)
{
    if (dtype != GPR_BOOL) return fold;
    if (fold == GPR_FOLD_prod || fold == GPR_FOLD_min) return GPR_FOLD_all;
    return fold == GPR_FOLD_max ? GPR_FOLD_any : fold;
}

static recipe make_recipe(const gpr_rule *rule)
{
    const gpr_loops *loops = gpr_cpu_loops();
    recipe how = {.rule = rule, .convert = !needs_no_conversion(rule)};
    gpr_dtype dtype = how.convert ? rule->compute : rule->element;

    if (how.convert && loops->widen[rule->element].loop != NULL && loops->widen[rule->element].to == rule->compute) {
        how.convert = 0;
        how.widen = loops->widen[rule->element];
    } else if (loops->loop[rule->fold][dtype].rows == NULL) {
        how.widen = loops->widen[dtype];
        dtype = how.widen.to;
    }
    how.fold = simplest_fold(rule->fold, dtype);
    how.direct = !how.convert && how.widen.loop == NULL;
    how.loop = loops->loop[how.fold][dtype];
    how.combine = loops->loop[how.fold][how.loop.accumulator].columns;
    how.loop_bytes = gpr_dtype_rows[dtype].bytes;
    how.acc = how.loop.accumulator;
    how.acc_bytes = gpr_dtype_rows[how.acc].bytes;
    how.identity = gpr_identity(how.fold, dtype, how.acc);
    how.neutral = gpr_neutral_element(rule->fold, rule->element);
    if (how.acc == GPR_UINT64 && kind_of(dtype) == GPR_KIND_SIGNED) how.acc = GPR_INT64;
    return how;
}

typedef struct stage {
    _Alignas(64) char packed[STAGE_ELEMENTS * 8];
    _Alignas(64) char converted[STAGE_ELEMENTS * 8];
    _Alignas(64) char widened[STAGE_ELEMENTS * 8];
} stage;

/* Makes up to STAGE_ELEMENTS aligned native elements into what the loop reads. */
static const char *prepare(const recipe *how, const char *elements, uint64_t count, stage *s)
{
    if (how->convert) {
        gpr_convert(how->rule->element, elements, how->rule->compute, s->converted, count);
        elements = s->converted;
    }
    if (how->widen.loop != NULL) {
        how->widen.loop(elements, s->widened, count);
        elements = s->widened;
    }
    return elements;
}

/* ---------------------------------------------------------------- a job ---------------------- */

typedef struct job {
    const gpr_view *view;
    recipe how;
    char *result;
    size_t result_bytes;
    uint64_t per_task;        /* rows: rows of a task; columns in one piece: units of a task */
    uint64_t length;          /* pieces: elements of a piece; columns: positions of a piece */
    uint64_t pieces;          /* of a row, or of a unit of columns */
    void *partials;           /* one for each row and piece; columns: GPR_COLUMN_BLOCK for each unit and piece */
    _Atomic uint8_t *decided; /* any and all in pieces: rows whose result is known */
    /* columns: a unit is a block of columns under one index of the axes before them */
    uint64_t width;  /* columns, which are the extent of the last outer axis */
    uint64_t blocks; /* of width */
    uint64_t units;
    uint64_t copies;    /* rows folded side by side */
    int columns_direct; /* memory is what the loop reads */
    /* stopping */
    int (*interrupted)(void *);
    void *interrupted_arg;
    pthread_t caller;
    double asked;
    atomic_int stopped;
} job;

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Asked before every task. The caller's callback runs on the caller's thread alone: the others see its answer. */
static int must_stop(job *work)
{
    if (atomic_load_explicit(&work->stopped, memory_order_relaxed)) return 1;
    if (work->interrupted != NULL && pthread_equal(pthread_self(), work->caller)) {
        const double now = gpr_seconds();

        if (now - work->asked < ASK_SECONDS) return 0;
        work->asked = now;
        if (work->interrupted(work->interrupted_arg)) atomic_store(&work->stopped, 1);
    }
    return atomic_load_explicit(&work->stopped, memory_order_relaxed);
}

/* Runs the tasks, on this thread alone if that is sooner. Returns how many threads could take part. */
static uint32_t run_tasks(job *work, uint64_t count, gpr_task task)
{
    if (work->view->rows * work->view->n * work->view->bytes > ALONE_BYTES) return gpr_parallel_for(count, task, work);
    for (uint64_t i = 0; i < count; i++) task(work, i);
    return 1;
}

static void finish(const job *work, const void *accumulators, uint64_t count, uint64_t row)
{
    gpr_finish_results(work->how.rule, work->how.acc, accumulators, count, work->view->n,
                       work->result + row * work->result_bytes, 0);
}

static void fill(const recipe *how, char *accumulators, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) memcpy(accumulators + i * how->acc_bytes, how->identity.bytes, how->acc_bytes);
}

static int is_decided(const recipe *how, gpr_value value)
{
    return how->fold == GPR_FOLD_any ? value.u32 != 0 : value.u32 == 0;
}

/* ---------------------------------------------------------------- pieces of a row ------------ */

/* Folds `count` > 0 elements of a row. */
static gpr_value fold_run(const job *work, uint64_t row, uint64_t first, uint64_t count, stage *s)
{
    const gpr_view *view = work->view;
    const recipe *how = &work->how;
    const char *memory = view->rows_contiguous ? gpr_view_row(view, row) + first * view->bytes : NULL;
    gpr_value value = how->identity;

    if (memory != NULL && how->direct) {
        how->loop.rows(memory, 0, 1, count, &value);
        return value;
    }
    for (uint64_t done = 0; done < count;) {
        const uint64_t step = least(count - done, STAGE_ELEMENTS);
        const char *elements = s->packed;
        gpr_value part = {.u64 = 0};

        if (memory != NULL)
            elements = memory + done * view->bytes;
        else
            gpr_pack(view, row * view->n + first + done, step, how->neutral.bytes, s->packed);
        how->loop.rows(prepare(how, elements, step, s), 0, 1, step, &part);
        value = done > 0 ? gpr_fold_acc(how->fold, how->loop.accumulator, value, part) : part;
        if (is_truth(how->fold) && is_decided(how, value)) break;
        done += step;
    }
    return value;
}

static void piece_task(void *context, uint64_t index)
{
    job *work = context;
    const uint64_t row = index / work->pieces, first = index % work->pieces * work->length;
    gpr_value value;
    stage s;

    if (must_stop(work)) return;
    if (work->decided != NULL && atomic_load_explicit(&work->decided[row], memory_order_relaxed)) return;
    value = fold_run(work, row, first, least(work->view->n - first, work->length), &s);
    if (work->decided == NULL)
        ((gpr_value *)work->partials)[index] = value;
    else if (is_decided(&work->how, value))
        atomic_store_explicit(&work->decided[row], 1, memory_order_relaxed);
}

static void finish_pieces(job *work)
{
    const gpr_rule *rule = work->how.rule;

    for (uint64_t row = 0; row < work->view->rows; row++) {
        gpr_value value;

        if (work->decided != NULL)
            value = (gpr_value){.u32 = (uint32_t)((work->how.fold == GPR_FOLD_any) == work->decided[row])};
        else
            value = gpr_fold_partials(work->how.fold, rule->compute, work->how.loop.accumulator,
                                      (gpr_value *)work->partials + row * work->pieces, work->pieces);
        finish(work, &value, 1, row);
    }
}

static gpr_status reduce_pieces(job *work, gpr_run *run)
{
    const gpr_view *view = work->view;
    gpr_value stack_partials[STACK_PARTIALS];
    _Atomic uint8_t stack_decided[1];
    void *heap = NULL;
    uint64_t tasks;

    work->pieces = divide_up(view->n, work->length);
    tasks = view->rows * work->pieces;
    run->grid_size = tasks;
    if (is_truth(work->how.fold)) {
        work->decided = stack_decided;
        if (view->rows > 1) work->decided = heap = malloc(view->rows * sizeof *work->decided);
        if (work->decided == NULL)
            return gpr_fail(GPR_ERROR_MEMORY, "no memory for %llu rows", (unsigned long long)view->rows);
        for (uint64_t row = 0; row < view->rows; row++) atomic_init(&work->decided[row], 0);
        /* Often the first elements decide: find out before waking anybody. */
        piece_task(work, 0);
        run->block_size = 1;
        if (view->rows == 1 && work->decided[0]) tasks = 0;
    } else {
        work->partials = stack_partials;
        if (tasks > STACK_PARTIALS) work->partials = heap = malloc(tasks * sizeof(gpr_value));
        if (work->partials == NULL)
            return gpr_fail(GPR_ERROR_MEMORY, "no memory for %llu partial results", (unsigned long long)tasks);
    }
    if (tasks > 0) run->block_size = run_tasks(work, tasks, piece_task);
    if (!work->stopped) finish_pieces(work);
    free(heap);
    return GPR_OK;
}

/* ---------------------------------------------------------------- batches of rows ------------ */

/* Folds rows of contiguous memory; steps of the last outer axis are one call of the loop. */
static void fold_rows_in_place(const job *work, uint64_t row, uint64_t count, char *accumulators)
{
    const gpr_view *view = work->view;
    const recipe *how = &work->how;
    const int last = view->outer - 1;
    const uint64_t extent = last >= 0 ? (uint64_t)view->shape[last] : 1;
    const int64_t stride = last >= 0 ? view->strides[last] : 0;

    while (count > 0) {
        const uint64_t rows = least(count, extent - row % extent);

        how->loop.rows(gpr_view_row(view, row), stride, rows, view->n, accumulators);
        accumulators += rows * how->acc_bytes;
        row += rows;
        count -= rows;
    }
}

/* Folds rows through the stage, as many at a time as it holds. */
static void fold_rows_staged(const job *work, uint64_t row, uint64_t count, char *accumulators, stage *s)
{
    const gpr_view *view = work->view;
    const recipe *how = &work->how;
    const uint64_t n = view->n, at_once = STAGE_ELEMENTS / n;

    while (count > 0) {
        const uint64_t rows = least(count, at_once);
        const char *elements = s->packed;

        if (view->contiguous)
            elements = view->data + row * n * view->bytes;
        else
            gpr_pack(view, row * n, rows * n, how->neutral.bytes, s->packed);
        how->loop.rows(prepare(how, elements, rows * n, s), (int64_t)(n * how->loop_bytes), rows, n, accumulators);
        accumulators += rows * how->acc_bytes;
        row += rows;
        count -= rows;
    }
}

static void rows_task(void *context, uint64_t index)
{
    job *work = context;
    const gpr_view *view = work->view;
    const uint64_t first = index * work->per_task, end = least(view->rows, first + work->per_task);
    gpr_value accumulators[ROW_BATCH];
    stage s;

    if (must_stop(work)) return;
    for (uint64_t row = first; row < end;) {
        const uint64_t count = least(end - row, ROW_BATCH);

        if (view->rows_contiguous && work->how.direct) {
            fold_rows_in_place(work, row, count, (char *)accumulators);
        } else if (view->n <= STAGE_ELEMENTS) {
            fold_rows_staged(work, row, count, (char *)accumulators, &s);
        } else {
            for (uint64_t i = 0; i < count; i++) {
                const gpr_value value = fold_run(work, row + i, 0, view->n, &s);
                memcpy((char *)accumulators + i * work->how.acc_bytes, value.bytes, work->how.acc_bytes);
            }
        }
        finish(work, accumulators, count, row);
        row += count;
    }
}

static gpr_status reduce_rows(job *work, gpr_run *run)
{
    const uint64_t rows = work->length / work->view->n;

    work->per_task = rows > 0 ? rows : 1;
    run->grid_size = divide_up(work->view->rows, work->per_task);
    run->block_size = run_tasks(work, run->grid_size, rows_task);
    return GPR_OK;
}

/* ---------------------------------------------------------------- columns -------------------- */

/* Whether neighbouring rows are nearer in memory than neighbouring elements of a row. */
static int lies_crosswise(const gpr_view *view)
{
    return view->outer > 0 && view->inner > 0 &&
           llabs(view->strides[view->outer - 1]) < llabs(view->strides[view->outer + view->inner - 1]);
}

/* Rows to fold side by side: narrow columns leave most of a vector empty, but the rows of a dense matrix follow each
 * other, so several of them make one wide row. A multiple of 16 wide where it can be, for the vectors' sake. */
static uint64_t copies_for(uint64_t width, uint64_t n)
{
    uint64_t copies = 1;

    if (width >= NARROW_COLUMNS) return 1;
    while (copies * width % 16 != 0) copies *= 2;
    while (copies * width < WIDE_ENOUGH) copies *= 2;
    return n >= 16 * copies ? copies : 1;
}

/* Folds rows of `width` elements that the loop can read, into `copies` times `width` accumulators. */
static void fold_block(const recipe *how, const char *elements, int64_t stride, uint64_t rows, uint64_t width,
                       uint64_t copies, char *accumulators)
{
    if (copies > 1 && stride == (int64_t)(width * how->loop_bytes)) {
        const uint64_t wide_rows = rows / copies;
        const int64_t wide_stride = stride * (int64_t)copies;

        how->loop.columns(elements, wide_stride, wide_rows, width * copies, accumulators);
        elements += (int64_t)wide_rows * wide_stride;
        rows -= wide_rows * copies;
    }
    if (rows > 0) how->loop.columns(elements, stride, rows, width, accumulators);
}

/* Sets tile->data and tile->mask to the element at (row, position) of the view. */
static void locate(const gpr_view *view, uint64_t row, uint64_t position, gpr_view *tile)
{
    tile->data = view->data;
    tile->mask = view->mask;
    for (int i = view->outer + view->inner - 1; i >= 0; i--) {
        uint64_t *index = i >= view->outer ? &position : &row;
        const int64_t at = (int64_t)(*index % (uint64_t)view->shape[i]);

        *index /= (uint64_t)view->shape[i];
        tile->data += at * view->strides[i];
        if (tile->mask != NULL) tile->mask += at * view->mask_strides[i];
    }
}

/* A view of `rows` positions by `width` columns in the order of memory, still to be located. */
static void make_tile(const gpr_view *view, int64_t width, gpr_view *tile)
{
    const int across = view->outer - 1, along = view->outer + view->inner - 1;

    tile->dtype = view->dtype;
    tile->bytes = view->bytes;
    tile->byteswapped = view->byteswapped;
    tile->outer = 0;
    tile->inner = 2;
    tile->shape[0] = view->shape[along];
    tile->strides[0] = view->strides[along];
    tile->mask_strides[0] = view->mask_strides[along];
    tile->shape[1] = width;
    tile->strides[1] = view->strides[across];
    tile->mask_strides[1] = view->mask_strides[across];
}

/* Folds one unit's positions first .. end - 1 into accumulators. */
static void fold_columns(const job *work, uint64_t row, uint64_t width, uint64_t first, uint64_t end,
                         char *accumulators)
{
    const recipe *how = &work->how;
    const uint64_t extent = (uint64_t)work->view->shape[work->view->outer + work->view->inner - 1];
    const uint64_t at_once = STAGE_ELEMENTS / width;
    gpr_view tile;
    stage s;

    make_tile(work->view, (int64_t)width, &tile);
    fill(how, accumulators, width * work->copies);
    while (first < end) {
        const uint64_t run = least(end - first, extent - first % extent);

        locate(work->view, row, first, &tile);
        if (work->columns_direct) {
            fold_block(how, tile.data, tile.strides[0], run, width, work->copies, accumulators);
        } else {
            for (uint64_t done = 0; done < run; done += at_once) {
                const uint64_t rows = least(run - done, at_once);

                gpr_pack(&tile, done * width, rows * width, how->neutral.bytes, s.packed);
                fold_block(how, prepare(how, s.packed, rows * width, &s), (int64_t)(width * how->loop_bytes), rows,
                           width, work->copies, accumulators);
            }
        }
        first += run;
    }
    if (work->copies > 1) {
        const uint64_t bytes = width * how->acc_bytes;

        how->combine(accumulators + bytes, (int64_t)bytes, work->copies - 1, width, accumulators);
    }
}

/* First row of a unit, and its number of columns. */
static uint64_t unit_row(const job *work, uint64_t unit, uint64_t *width)
{
    const uint64_t column = unit % work->blocks * GPR_COLUMN_BLOCK;

    *width = least(work->width - column, GPR_COLUMN_BLOCK);
    return unit / work->blocks * work->width + column;
}

static void columns_task(void *context, uint64_t index)
{
    job *work = context;
    const uint64_t end = least(work->units, (index + 1) * work->per_task);
    gpr_value accumulators[GPR_COLUMN_BLOCK];

    if (must_stop(work)) return;
    for (uint64_t unit = index * work->per_task; unit < end; unit++) {
        uint64_t width;
        const uint64_t row = unit_row(work, unit, &width);

        fold_columns(work, row, width, 0, work->view->n, (char *)accumulators);
        finish(work, accumulators, width, row);
    }
}

static void column_piece_task(void *context, uint64_t index)
{
    job *work = context;
    const uint64_t first = index % work->pieces * work->length;
    const size_t block_bytes = GPR_COLUMN_BLOCK * work->how.acc_bytes;
    uint64_t width;
    const uint64_t row = unit_row(work, index / work->pieces, &width);

    if (must_stop(work)) return;
    fold_columns(work, row, width, first, least(work->view->n, first + work->length),
                 (char *)work->partials + index * block_bytes);
}

/* A block's partials are rows of accumulators, which fold like rows of elements. */
static void finish_column_pieces(job *work)
{
    const int64_t block_bytes = (int64_t)(GPR_COLUMN_BLOCK * work->how.acc_bytes);

    for (uint64_t unit = 0; unit < work->units; unit++) {
        char *blocks = (char *)work->partials + (int64_t)(unit * work->pieces) * block_bytes;
        uint64_t width;
        const uint64_t row = unit_row(work, unit, &width);

        work->how.combine(blocks + block_bytes, block_bytes, work->pieces - 1, width, blocks);
        finish(work, blocks, width, row);
    }
}

static int columns_are_direct(const job *work)
{
    const gpr_view *view = work->view;
    uint64_t bits = (uint64_t)(uintptr_t)view->data;

    for (int i = 0; i < view->outer + view->inner; i++) bits |= (uint64_t)view->strides[i];
    return work->how.direct && view->mask == NULL && !view->byteswapped && bits % view->bytes == 0 &&
           view->strides[view->outer - 1] == (int64_t)view->bytes;
}

static gpr_status reduce_columns(job *work, gpr_run *run)
{
    const gpr_view *view = work->view;
    const uint64_t piece = work->length;
    uint64_t tasks, least_piece;

    work->width = (uint64_t)view->shape[view->outer - 1];
    work->blocks = divide_up(work->width, GPR_COLUMN_BLOCK);
    work->units = view->rows / work->width * work->blocks;
    work->copies = copies_for(work->width, view->n);
    work->columns_direct = columns_are_direct(work);
    least_piece = work->units < MANY_UNITS ? COLUMN_PIECE : COLUMN_LONG_PIECE;
    work->length = piece / least(work->width, GPR_COLUMN_BLOCK);
    if (work->length < least_piece) work->length = least_piece;
    work->pieces = divide_up(view->n, work->length);
    if (work->pieces == 1) {
        const uint64_t units = piece / (view->n * least(work->width, GPR_COLUMN_BLOCK));

        work->per_task = units > 0 ? units : 1;
        run->grid_size = divide_up(work->units, work->per_task);
        run->block_size = run_tasks(work, run->grid_size, columns_task);
        return GPR_OK;
    }
    tasks = work->units * work->pieces;
    work->partials = malloc(tasks * GPR_COLUMN_BLOCK * work->how.acc_bytes);
    if (work->partials == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial results of %llu tasks", (unsigned long long)tasks);
    run->grid_size = tasks;
    run->block_size = run_tasks(work, tasks, column_piece_task);
    if (!work->stopped) finish_column_pieces(work);
    free(work->partials);
    return GPR_OK;
}

/* ---------------------------------------------------------------- the public part ------------ */

/* Rows without elements: each is the identity. */
static void reduce_nothing(job *work)
{
    gpr_value accumulators[ROW_BATCH];

    fill(&work->how, (char *)accumulators, ROW_BATCH);
    for (uint64_t row = 0; row < work->view->rows; row += ROW_BATCH)
        finish(work, accumulators, least(work->view->rows - row, ROW_BATCH), row);
}

gpr_status gpr_cpu_reduce(const gpr_view *view, const gpr_rule *rule, int (*interrupted)(void *), void *interrupted_arg,
                          void *result, gpr_run *run)
{
    job work = {.view = view,
                .how = make_recipe(rule),
                .result = result,
                .result_bytes = gpr_dtype_rows[rule->result].bytes,
                .length = PIECE_BYTES / view->bytes,
                .interrupted = interrupted,
                .interrupted_arg = interrupted_arg};
    gpr_status status;

    run->variant = gpr_cpu_isa();
    run->block_size = 1;
    run->grid_size = 1;
    if (view->rows == 0) return GPR_OK;
    if (view->n == 0) {
        reduce_nothing(&work);
        return GPR_OK;
    }
    if (view->contiguous && view->rows == 1 && work.how.direct && view->n <= work.length) {
        /* The common small array: one call of the loop. */
        gpr_value value;

        work.how.loop.rows(view->data, 0, 1, view->n, &value);
        finish(&work, &value, 1, 0);
        return GPR_OK;
    }
    if (interrupted != NULL) {
        work.caller = pthread_self();
        work.asked = gpr_seconds();
    }
    if (lies_crosswise(view))
        status = reduce_columns(&work, run);
    else if (view->n > work.length)
        status = reduce_pieces(&work, run);
    else
        status = reduce_rows(&work, run);
    if (status == GPR_OK && work.stopped) status = gpr_fail(GPR_ERROR_INTERRUPTED, "the reduction was interrupted");
    return status;
}
