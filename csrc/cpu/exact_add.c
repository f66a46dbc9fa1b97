/* Adding arrays to exact sums, and rows of them to results, on all cores.
 *
 * Floats are taken in tiles. A tile is first summed in windows (loops.h), which vectors do at nearly the speed of a
 * plain sum; where its elements do not fit the windows, the windows are placed anew by the tile's largest element, then
 * more of them are taken, and where they still do not fit (a range too wide, infinities, NaN), the tile is added element
 * by element. Integers of up to
 * 32 bits are summed by the loops of the plain sum, which are exact. Whatever the way and the tasks, the part is the
 * same: it depends on the elements alone. */
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/clock.h"
#include "../lib/status.h"
#include "cpu.h"
#include "job.h"

enum {
    ALONE_BYTES = 1024 * 1024, /* up to this, waking other threads costs more than they save */
    LEAST_TILES = 16,          /* of a task, so that placing its first windows is little beside it */
    MOST_TASKS = 256,          /* enough for an even load on many cores, few parts to keep and to merge */
    SLOW_ELEMENTS = 128,       /* up to this, placing windows costs more than they save */
    /* From the largest element's exponent to the first bias's: room for a tile's sum, and for elements of later tiles
     * that are a little larger. */
    HEADROOM_BITS = 16,
    MOST_BIAS = 1021, /* 1.5 * 2^p and twice that are finite */
    SKIPPED_TILES = 7 /* after one that windows do not hold: its neighbours are likely to be like it */
};

/* What is added, as tasks. */
typedef struct exact_job {
    const gpr_view *view;
    gpr_dtype sum; /* of the parts */
    int counts_mask, skip_nan;
    int width;             /* parts of a sum: two of complex elements */
    gpr_value neutral;     /* element, for masks and NaN */
    uint64_t tile;         /* elements */
    uint64_t pieces;       /* of a row */
    uint64_t per_piece;    /* elements */
    uint64_t per_task;     /* rows, where they are not in pieces */
    gpr_exact_part *parts; /* `width` for each piece, where rows are in pieces */
    const gpr_rule *rule;  /* where sums become results */
    char *result;
    gpr_cpu_stop stop;
} exact_job;

/* How one task adds its tiles. */
typedef struct adder {
    gpr_exact_part *part;
    gpr_dtype dtype;
    gpr_widening widen;        /* before the windows, if its loop is not NULL */
    gpr_dtype windowed;        /* the type that the windows' loop reads */
    gpr_exact_windows windows; /* its loops are NULL for integers */
    gpr_rows_loop sum;         /* for integers that a tile of sums to 64 bits; or NULL */
    int lowest;                /* exponent of the dtype's smallest number */
    int placed;                /* biases are set */
    int all;                   /* the last tile took all windows */
    int skipped;               /* tiles to add without trying windows */
    double biases[GPR_EXACT_WINDOWS];
    int units[GPR_EXACT_WINDOWS]; /* exponent of a window's last place */
} adder;

typedef struct exact_stage {
    _Alignas(64) char packed[GPR_EXACT_TILE * 8];
    _Alignas(64) char split[GPR_EXACT_PARTS][GPR_EXACT_TILE * 4]; /* a tile of complex elements is half as long */
    _Alignas(64) float widened[GPR_EXACT_TILE];
    uint8_t keep[GPR_EXACT_TILE];
} exact_stage;

static adder make_adder(gpr_exact_part *part, gpr_dtype dtype)
{
    const gpr_loops *loops = gpr_cpu_loops();
    const gpr_dtype_row *row = &gpr_dtype_rows[dtype];
    adder how = {.part = part, .dtype = dtype, .windowed = dtype, .lowest = gpr_exact_grid_of(dtype).lowest};

    if (row->kind != GPR_KIND_FLOAT) {
        if (row->bytes < 8) how.sum = loops->loop[GPR_FOLD_sum][dtype].rows;
        return how;
    }
    if (loops->exact[dtype].few == NULL) {
        how.widen = loops->widen[dtype];
        how.windowed = how.widen.to;
    }
    how.windows = loops->exact[how.windowed];
    return how;
}

/* ---------------------------------------------------------------- windows -------------------- */

/* The largest exponent field in a tile of floats. */
static int largest_exponent_field(gpr_dtype dtype, const void *elements, uint64_t count)
{
    const uint32_t *b32 = elements;
    const uint64_t *b64 = elements;
    uint32_t most32 = 0;
    uint64_t most64 = 0;

    if (dtype == GPR_FLOAT32) {
        for (uint64_t i = 0; i < count; i++) most32 = (b32[i] & INT32_MAX) > most32 ? b32[i] & INT32_MAX : most32;
        return (int)(most32 >> 23);
    }
    for (uint64_t i = 0; i < count; i++) most64 = (b64[i] & INT64_MAX) > most64 ? b64[i] & INT64_MAX : most64;
    return (int)(most64 >> 52);
}

/* Places the windows for a tile. Returns 0 if there is no place for it: something is infinite or NaN, or too large. */
static int place_windows(adder *how, const void *elements, uint64_t count)
{
    const int is_single = how->windowed == GPR_FLOAT32;
    const int field = largest_exponent_field(how->windowed, elements, count);
    int bias = field - (is_single ? 127 : 1023) + HEADROOM_BITS;

    if (field == (is_single ? 255 : 2047) || bias > MOST_BIAS) return 0;
    for (int w = 0; w < GPR_EXACT_WINDOWS; w++) {
        /* No window lies deeper than the smallest number needs. */
        if (bias < how->lowest + 52) bias = how->lowest + 52;
        const uint64_t bits = (uint64_t)(bias + 1023) << 52 | UINT64_C(1) << 51;
        memcpy(&how->biases[w], &bits, sizeof bits);
        how->units[w] = bias - 52;
        bias -= GPR_EXACT_WINDOW_BITS;
    }
    how->placed = 1;
    return 1;
}

/* Sums a tile in few windows, or in all of them, as they lie; 0 if they do not hold it. */
static int sum_in_windows(adder *how, int all, const void *elements, uint64_t count)
{
    const int windows = all ? GPR_EXACT_WINDOWS : how->windows.few_count;
    int64_t sums[GPR_EXACT_WINDOWS];

    if (!(all ? how->windows.all : how->windows.few)(elements, count, how->biases, sums)) return 0;
    for (int w = 0; w < windows; w++) gpr_exact_add_integer(how->part, sums[w], how->units[w]);
    how->all = all;
    return 1;
}

/* Adds a tile in windows: as the last one was, or else in windows placed for it. 0 if none hold it. */
static int add_in_windows(adder *how, const void *elements, uint64_t count)
{
    if (how->placed && sum_in_windows(how, how->all, elements, count)) return 1;
    return place_windows(how, elements, count) &&
           (sum_in_windows(how, 0, elements, count) || sum_in_windows(how, 1, elements, count));
}

/* ---------------------------------------------------------------- tiles ---------------------- */

/* Adds up to GPR_EXACT_TILE aligned native elements. */
static void add_tile(adder *how, const void *elements, uint64_t count, exact_stage *s)
{
    const void *read = elements;
    uint64_t sum = 0;
    int done = 0;

    if (how->sum != NULL) {
        how->sum(elements, 0, 1, count, &sum);
        gpr_exact_add_integer(how->part, (int64_t)sum, 0);
        done = 1;
    } else if (how->skipped > 0) {
        how->skipped--;
    } else if (how->windows.few != NULL && count > SLOW_ELEMENTS) {
        if (how->widen.loop != NULL) {
            how->widen.loop(elements, s->widened, count);
            read = s->widened;
        }
        done = add_in_windows(how, read, count);
        if (!done) how->skipped = SKIPPED_TILES;
    }
    if (!done) {
        gpr_exact_add_elements(how->part, how->dtype, elements, count);
        return;
    }
    how->part->count += count;
    if ((how->part->flags & GPR_EXACT_NOT_MINUS_ZERO) == 0)
        how->part->flags |= gpr_exact_zero_flag(how->dtype, elements, count);
}

/* Replaces NaN by -0 in a packed tile. Returns how many they were. */
static uint64_t drop_nan(const exact_job *work, uint64_t count, exact_stage *s)
{
    const size_t bytes = work->view->bytes;
    uint64_t dropped = 0;

    memset(s->keep, 1, count);
    gpr_cpu_drop_nan(work->view->dtype, s->packed, count, s->keep);
    for (uint64_t i = 0; i < count; i++) {
        if (s->keep[i]) continue;
        memcpy(s->packed + i * bytes, work->neutral.bytes, bytes);
        dropped++;
    }
    return dropped;
}

/* Real and imaginary parts of packed elements, each by themselves. */
static void split_tile(size_t part_bytes, uint64_t count, exact_stage *s)
{
    for (uint64_t i = 0; i < count; i++) {
        for (int p = 0; p < GPR_EXACT_PARTS; p++) {
            const char *from = s->packed + (2 * i + (uint64_t)p) * part_bytes;

            if (part_bytes == sizeof(float))
                memcpy(s->split[p] + i * sizeof(float), from, sizeof(float));
            else
                memcpy(s->split[p] + i * sizeof(double), from, sizeof(double));
        }
    }
}

/* Adds elements [first, end) of a row to its parts. */
static void add_range(exact_job *work, uint64_t row, uint64_t first, uint64_t end, gpr_exact_part *parts)
{
    const gpr_view *view = work->view;
    const int is_read_in_place = view->rows_contiguous && !work->skip_nan && work->width == 1;
    adder how[GPR_EXACT_PARTS];
    exact_stage s;

    for (int p = 0; p < work->width; p++) {
        gpr_exact_clear(&parts[p], work->sum);
        how[p] = make_adder(&parts[p], gpr_exact_part_dtype(view->dtype));
    }
    for (uint64_t at = first; at < end && !gpr_cpu_must_stop(&work->stop); at += work->tile) {
        const uint64_t count = least(end - at, work->tile), place = row * view->n + at;
        const char *elements = is_read_in_place ? gpr_view_row(view, row) + at * view->bytes : s.packed;
        uint64_t left_out = 0;

        if (!is_read_in_place) gpr_pack(view, place, count, work->neutral.bytes, s.packed);
        if (work->counts_mask) left_out = gpr_count_left_out(view, place, count);
        if (work->skip_nan) left_out += drop_nan(work, count, &s);
        if (work->width > 1) split_tile(view->bytes / GPR_EXACT_PARTS, count, &s);
        for (int p = 0; p < work->width; p++) {
            add_tile(&how[p], work->width > 1 ? s.split[p] : elements, count, &s);
            parts[p].count -= left_out;
        }
    }
}

/* A piece of a row, or some whole rows, which become results. */
static void add_task(exact_job *work, uint64_t index)
{
    const gpr_view *view = work->view;
    gpr_exact_part parts[GPR_EXACT_PARTS];

    if (work->parts != NULL) {
        const uint64_t first = index % work->pieces * work->per_piece;

        add_range(work, index / work->pieces, first, least(view->n, first + work->per_piece),
                  work->parts + index * (uint64_t)work->width);
        return;
    }
    for (uint64_t row = index * work->per_task; row < least(view->rows, (index + 1) * work->per_task); row++) {
        add_range(work, row, 0, view->n, parts);
        gpr_exact_finish(parts, view->dtype, work->rule->divide, work->rule->result,
                         work->result + row * gpr_dtype_bytes(work->rule->result));
    }
}

/* The task in a floating point environment of its own: a program may run with subnormal numbers flushed to zero, with
 * another rounding, or with traps, in its own threads and so in the pool's. */
static void add_task_as_ieee(void *context, uint64_t index)
{
    fenv_t environment;

    (void)fegetenv(&environment);
    (void)fesetenv(FE_DFL_ENV);
    add_task(context, index);
    (void)fesetenv(&environment);
}

static exact_job make_job(const gpr_view *view, gpr_dtype sum, int (*interrupted)(void *), void *interrupted_arg)
{
    exact_job work = {.view = view,
                      .sum = sum,
                      .width = gpr_exact_parts(view->dtype),
                      .neutral = gpr_neutral_element(GPR_FOLD_exact, view->dtype),
                      .pieces = 1,
                      .per_piece = view->n};

    work.tile = GPR_EXACT_TILE / (uint64_t)work.width;
    gpr_cpu_watch(&work.stop, interrupted, interrupted_arg);
    return work;
}

/* Adds the rows' pieces, as many tasks, and joins each row's: its parts are then its first piece's. */
static gpr_status add_pieces(exact_job *work)
{
    const gpr_view *view = work->view;
    const uint64_t tiles = view->n / work->tile / MOST_TASKS + 1, width = (uint64_t)work->width;
    gpr_status status = GPR_OK;

    work->per_piece = (tiles < LEAST_TILES ? LEAST_TILES : tiles) * work->tile;
    work->pieces = divide_up(view->n, work->per_piece);
    const uint64_t tasks = view->rows * work->pieces;
    work->parts = malloc(tasks * width * sizeof *work->parts);
    if (work->parts == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial sums of %llu tasks", (unsigned long long)tasks);
    (void)gpr_parallel_for(tasks, add_task_as_ieee, work);
    for (uint64_t row = 0; row < view->rows && !work->stop.stopped; row++) {
        gpr_exact_part *first = work->parts + row * work->pieces * width;

        for (uint64_t i = width; i < work->pieces * width && status == GPR_OK; i++)
            status = gpr_exact_add_part(&first[i % width], &first[i]);
    }
    return status;
}

static gpr_status interrupted_or(const exact_job *work, gpr_status status)
{
    if (status == GPR_OK && work->stop.stopped) return gpr_fail(GPR_ERROR_INTERRUPTED, "the exact sum was interrupted");
    return status;
}

gpr_status gpr_cpu_add_exactly(const gpr_view *view, int (*interrupted)(void *), void *interrupted_arg,
                               gpr_exact_part *part)
{
    exact_job work = make_job(view, part->dtype, interrupted, interrupted_arg);
    gpr_status status = GPR_OK;

    if (view->n * view->bytes > ALONE_BYTES && gpr_thread_count() > 1) {
        status = add_pieces(&work);
        if (status == GPR_OK) *part = work.parts[0];
        free(work.parts);
    } else {
        work.parts = part;
        add_task_as_ieee(&work, 0);
    }
    return interrupted_or(&work, status);
}

gpr_status gpr_cpu_reduce_exactly(const gpr_view *view, const gpr_rule *rule, int (*interrupted)(void *),
                                  void *interrupted_arg, void *result, gpr_run *run)
{
    exact_job work = make_job(view, gpr_exact_part_dtype(rule->element), interrupted, interrupted_arg);
    const uint64_t row_bytes = view->n * view->bytes;
    const size_t result_bytes = gpr_dtype_bytes(rule->result);
    gpr_status status = GPR_OK;

    work.rule = rule;
    work.result = result;
    work.skip_nan = rule->skip_nan;
    work.counts_mask = rule->divide && view->mask != NULL;
    run->variant = gpr_cpu_isa();
    run->block_size = 1;
    run->grid_size = 1;
    if (row_bytes > ALONE_BYTES && view->rows < MOST_TASKS && gpr_thread_count() > 1) {
        status = add_pieces(&work);
        for (uint64_t row = 0; row < view->rows && status == GPR_OK && !work.stop.stopped; row++) {
            gpr_exact_finish(work.parts + row * work.pieces * (uint64_t)work.width, view->dtype, rule->divide,
                             rule->result, (char *)result + row * result_bytes);
        }
        free(work.parts);
    } else if (row_bytes * view->rows > ALONE_BYTES) {
        work.per_task = view->rows / MOST_TASKS + 1;
        (void)gpr_parallel_for(divide_up(view->rows, work.per_task), add_task_as_ieee, &work);
    } else {
        work.per_task = view->rows;
        add_task_as_ieee(&work, 0);
    }
    return interrupted_or(&work, status);
}
