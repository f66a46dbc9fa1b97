/* Adding arrays to exact sums, on all cores.
 *
 * Floats are taken in tiles. A tile is first summed in windows (loops.h), which vectors do at nearly the speed of a
 * plain sum; where its elements do not fit the windows, the windows are placed anew by the tile's largest element, then
 * more of them are taken, and where they still do not fit (a range too wide, infinities, NaN), the tile is added element
 * by element. Integers of up to
 * 32 bits are summed by the loops of the plain sum, which are exact. Whatever the way and the tasks, the part is the
 * same: it depends on the elements alone. */
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/clock.h"
#include "../lib/status.h"
#include "../lib/threads.h"
#include "cpu.h"
#include "loops.h"

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
static const double ASK_SECONDS = 0.01; /* between two questions whether to stop */

typedef struct job {
    const gpr_view *view;
    gpr_exact_part *parts; /* one for each task */
    uint64_t per_task;     /* elements */
    int (*interrupted)(void *);
    void *interrupted_arg;
    pthread_t caller;
    double asked;
    atomic_int stopped;
} job;

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

typedef struct stage {
    _Alignas(64) char packed[GPR_EXACT_TILE * 8];
    _Alignas(64) float widened[GPR_EXACT_TILE];
} stage;

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

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
static void add_tile(adder *how, const void *elements, uint64_t count, stage *s)
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

/* Asked before every tile. The caller's callback runs on the caller's thread alone: the others see its answer. */
static int must_stop(job *work)
{
    if (work->interrupted != NULL && pthread_equal(pthread_self(), work->caller)) {
        const double now = gpr_seconds();

        if (now - work->asked >= ASK_SECONDS) {
            work->asked = now;
            if (work->interrupted(work->interrupted_arg)) atomic_store(&work->stopped, 1);
        }
    }
    return atomic_load_explicit(&work->stopped, memory_order_relaxed);
}

static void add_task(void *context, uint64_t index)
{
    job *work = context;
    const gpr_view *view = work->view;
    const uint64_t first = index * work->per_task, end = least(view->n, first + work->per_task);
    gpr_exact_part *part = &work->parts[index];
    adder how = make_adder(part, view->dtype);
    stage s;

    gpr_exact_clear(part, part->dtype);
    for (uint64_t at = first; at < end && !must_stop(work); at += GPR_EXACT_TILE) {
        const uint64_t count = least(end - at, GPR_EXACT_TILE);
        const char *elements = view->data + at * view->bytes;

        if (!view->contiguous) {
            gpr_pack(view, at, count, NULL, s.packed);
            elements = s.packed;
        }
        add_tile(&how, elements, count, &s);
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

/* Adds the parts of all tasks to the first one. */
static gpr_status add_parts(gpr_exact_part *part, const gpr_exact_part *parts, uint64_t count)
{
    gpr_status status = GPR_OK;

    for (uint64_t i = 0; i < count && status == GPR_OK; i++) status = gpr_exact_add_part(part, &parts[i]);
    return status;
}

gpr_status gpr_cpu_add_exactly(const gpr_view *view, int (*interrupted)(void *), void *interrupted_arg,
                               gpr_exact_part *part)
{
    job work = {.view = view,
                .parts = part,
                .per_task = view->n,
                .interrupted = interrupted,
                .interrupted_arg = interrupted_arg};
    uint64_t tasks = 1;
    gpr_status status;

    if (interrupted != NULL) {
        work.caller = pthread_self();
        work.asked = gpr_seconds();
    }
    if (view->n * view->bytes > ALONE_BYTES && gpr_thread_count() > 1) {
        const uint64_t tiles = view->n / GPR_EXACT_TILE / MOST_TASKS + 1;

        work.per_task = (tiles < LEAST_TILES ? LEAST_TILES : tiles) * GPR_EXACT_TILE;
        tasks = view->n / work.per_task + (view->n % work.per_task != 0);
        work.parts = malloc(tasks * sizeof *work.parts);
        if (work.parts == NULL)
            return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial sums of %llu tasks",
                            (unsigned long long)tasks);
        for (uint64_t i = 0; i < tasks; i++) gpr_exact_clear(&work.parts[i], part->dtype);
        (void)gpr_parallel_for(tasks, add_task_as_ieee, &work);
        status = add_parts(part, work.parts, tasks);
        free(work.parts);
    } else {
        add_task_as_ieee(&work, 0);
        status = GPR_OK;
    }
    if (work.stopped) status = gpr_fail(GPR_ERROR_INTERRUPTED, "the exact sum was interrupted");
    return status;
}
