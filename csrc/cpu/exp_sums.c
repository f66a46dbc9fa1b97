/* Logarithms of sums of exponentials.
 *
 * A row is read in blocks that stay in the first cache. A block's largest element is found, then
 * the exponentials of the others are summed, in units of a power of two (shared/exp_states.h).
 * States of blocks merge in the order of the row.
 *
 * Rows are cut by shapes alone, so results do not depend on the number of threads. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "cpu/cpu.h"
#include "cpu/float_environment.h"
#include "cpu/job.h"
#include "cpu/repeats.h"
#include "lib/base/convert.h"
#include "lib/base/status.h"
#include "shared/exp_states.h"

enum {
    PIECE_ELEMENTS = 1 << 16, /* of a row, in a task: a multiple of a block */
    TASK_ELEMENTS = 1 << 14,  /* of short rows in a task */
    SIDE_BY_SIDE = 32,        /* most rows that lie crosswise in a task */
    SHORT_ROW = 64,           /* rows of so many elements at most are columns of vectors */
    PACKED_ELEMENTS = 16 * GPR_EXP_BLOCK,
    MOST_BYTES = 8 /* of an element */
};
_Static_assert(PIECE_ELEMENTS % GPR_EXP_BLOCK == 0, "pieces are whole blocks");

typedef struct exp_job {
    const gpr_view *view;
    uint64_t repeats;      /* elements of a row that each of the view's stands for */
    const gpr_view *plain; /* the view without its mask */
    const gpr_view *marks; /* the mask; NULL if there is none */
    gpr_dtype dtype;       /* of the loops: float32 or float64 */
    int in_place;          /* loops read rows where they are */
    int crosswise;         /* rows of a unit are read side by side */
    int columns_in_place;  /* ... where they are, as columns of vectors */
    gpr_dtype result_dtype;
    char *result;
    gpr_cpu_units units;
    uint64_t length, pieces; /* elements of a piece, and pieces of a row */
    gpr_exp_state *partials; /* of pieces; NULL where rows are whole */
    gpr_cpu_stop stop;
} exp_job;

typedef struct exp_memory {
    _Alignas(64) char packed[PACKED_ELEMENTS * MOST_BYTES];
    _Alignas(64) char converted[PACKED_ELEMENTS * MOST_BYTES];
    _Alignas(64) char columns[SIDE_BY_SIDE * SHORT_ROW * MOST_BYTES];
    uint8_t marks[PACKED_ELEMENTS];
    gpr_exp_state states[SIDE_BY_SIDE];
} exp_memory;
_Static_assert(sizeof(exp_memory) <= GPR_TASK_MEMORY, "workers have room for it");

/* ---------------------------------------------------------------- states --------------------- */

static double largest_of(gpr_dtype dtype, const void *elements, uint64_t count)
{
    gpr_value value;

    gpr_cpu_loops()->loop[GPR_FOLD_max][dtype].rows(elements, 0, 1, count, &value);
    return dtype == GPR_FLOAT32 ? (double)value.f32 : value.f64;
}

/* The state of up to GPR_EXP_BLOCK aligned numbers of the loops' type. */
static gpr_exp_state state_of(gpr_dtype dtype, const void *elements, uint64_t count)
{
    gpr_exp_state state = gpr_exp_state_of(largest_of(dtype, elements, count));
    gpr_exp_sum sum;

    if (count == 1 || !isfinite(state.largest)) return state;
    const double shift = gpr_exp_is_shifted(state.largest) ? state.largest : 0;
    state.unit = gpr_exp_exponent(state.largest - shift);
    gpr_cpu_loops()->exp_sums[dtype](elements, count, state.largest, shift, state.unit, &sum);
    state.sum = sum.high;
    state.rest = sum.low;
    if (sum.largest > 1)
        gpr_exp_add(&state,
                    (double)(sum.largest - 1) * gpr_exp_power(state.largest - shift, state.unit));
    return state;
}

/* The state of elements that come `times` times each. */
static gpr_exp_state repeat(gpr_exp_state state, uint64_t times)
{
    gpr_exp_state all = gpr_exp_state_of(-INFINITY);

    for (; times > 1; times /= 2) {
        if (times % 2 == 1) all = gpr_exp_merge(all, state);
        state = gpr_exp_merge(state, state);
    }
    return gpr_exp_merge(all, state);
}

static void finish_row(const exp_job *work, uint64_t row, const gpr_exp_state *state)
{
    const double value = gpr_exp_result(work->repeats > 1 ? repeat(*state, work->repeats) : *state);

    gpr_convert(GPR_FLOAT64, &value, work->result_dtype,
                work->result + row * gpr_dtype_bytes(work->result_dtype), 1);
}

/* ---------------------------------------------------------------- elements ------------------- */

/* Elements first, ... of the view, in rows one after the other, as the loops read them. */
static const char *read_elements(const exp_job *work, uint64_t first, uint64_t count,
                                 exp_memory *memory)
{
    const gpr_dtype dtype = work->view->dtype;
    const gpr_widening widen = gpr_cpu_loops()->widen[dtype];
    char *numbers = memory->packed;

    gpr_cpu_pack(work->plain, first, count, NULL, memory->packed);
    if (dtype != work->dtype) {
        assert(widen.loop != NULL && widen.to == work->dtype); /* all real dtypes have one */
        numbers = memory->converted;
        widen.loop(memory->packed, numbers, count);
    }
    if (work->marks == NULL) return numbers;
    gpr_cpu_pack(work->marks, first, count, NULL, memory->marks);
    for (uint64_t i = 0; i < count; i++) {
        if (memory->marks[i]) continue;
        if (work->dtype == GPR_FLOAT32)
            ((float *)(void *)numbers)[i] = -INFINITY;
        else
            ((double *)(void *)numbers)[i] = -INFINITY;
    }
    return numbers;
}

/* Merges elements [first, end) of `rows` rows, which are packed together where rows are short. */
static void add_rows(const exp_job *work, uint64_t row, uint64_t rows, uint64_t first, uint64_t end,
                     exp_memory *memory, gpr_exp_state *states)
{
    const gpr_view *view = work->view;
    const size_t bytes = gpr_dtype_bytes(work->dtype);

    for (uint64_t at = first; at < end; at += GPR_EXP_BLOCK) {
        const uint64_t count = gpr_smaller(GPR_EXP_BLOCK, end - at);
        const uint64_t together = count == view->n ? PACKED_ELEMENTS / count : 1;

        for (uint64_t r = 0; r < rows; r++) {
            const char *elements = NULL;

            if (work->in_place)
                elements = gpr_view_row(view, row + r) + at * bytes;
            else if (r % together > 0)
                elements = (view->dtype == work->dtype ? memory->packed : memory->converted) +
                           r % together * count * bytes;
            else
                elements = read_elements(work, (row + r) * view->n + at,
                                         gpr_smaller(together, rows - r) * count, memory);
            states[r] = gpr_exp_merge(states[r], state_of(work->dtype, elements, count));
        }
    }
}

/* ---------------------------------------------------------------- tasks ---------------------- */

/* Whether results are those of short rows as they are. */
static int rows_are_short(const exp_job *work)
{
    return work->repeats == 1 && work->view->n <= SHORT_ROW && work->view->rows > 1;
}

/* Copies rows to columns. */
#define DEFINE_TRANSPOSE(name, type)                                                         \
    static void transpose_##name(const type *from, uint64_t rows, uint64_t n, type *columns) \
    {                                                                                        \
        for (uint64_t i = 0; i < n; i++)                                                     \
            for (uint64_t r = 0; r < rows; r++) columns[i * rows + r] = from[r * n + i];     \
    }
DEFINE_TRANSPOSE(4, float)
DEFINE_TRANSPOSE(8, double)

/* Finishes `rows` <= SIDE_BY_SIDE short rows as columns of memory: where they are, if they lie
 * crosswise and the loops read them in place, or copied. */
static void finish_short_rows(const exp_job *work, uint64_t row, uint64_t rows, exp_memory *memory)
{
    const gpr_view *view = work->view;
    const size_t bytes = gpr_dtype_bytes(work->dtype);
    const char *columns = memory->columns;
    int64_t stride = (int64_t)(rows * bytes);
    double largest[SIDE_BY_SIDE], others[SIDE_BY_SIDE];

    if (work->columns_in_place) {
        columns = gpr_view_row(view, row);
        stride = view->axes[view->outer].in;
    } else {
        const char *elements = work->in_place && view->contiguous
                                   ? view->data + row * view->n * bytes
                                   : read_elements(work, row * view->n, rows * view->n, memory);

        if (bytes == sizeof(float))
            transpose_4((const float *)(const void *)elements, rows, view->n,
                        (float *)(void *)memory->columns);
        else
            transpose_8((const double *)(const void *)elements, rows, view->n,
                        (double *)(void *)memory->columns);
    }
    gpr_cpu_loops()->exp_columns[work->dtype](columns, stride, view->n, rows, largest, others);
    for (uint64_t r = 0; r < rows; r++) {
        if (isfinite(largest[r])) largest[r] += log1p(others[r]);
    }
    gpr_convert(GPR_FLOAT64, largest, work->result_dtype,
                work->result + row * gpr_dtype_bytes(work->result_dtype), rows);
}

static int exp_task(void *context, uint64_t index, void *memory)
{
    exp_job *work = context;
    const gpr_float_environment before = enter_ieee();
    const uint64_t unit = index / work->pieces, first = index % work->pieces * work->length;
    exp_memory *mine = memory;
    uint64_t rows;
    const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows),
                   end = gpr_smaller(work->view->n, first + work->length);

    for (uint64_t r = 0; r < rows && !gpr_cpu_must_stop(&work->stop); r += SIDE_BY_SIDE) {
        const uint64_t few = gpr_smaller(SIDE_BY_SIDE, rows - r);
        gpr_exp_state *states = mine->states;

        if (rows_are_short(work)) {
            finish_short_rows(work, row + r, few, mine);
            continue;
        }
        if (work->partials != NULL) states = work->partials + index * work->units.rows + r;
        for (uint64_t k = 0; k < few; k++) states[k] = gpr_exp_state_of(-INFINITY);
        add_rows(work, row + r, few, first, end, mine, states);
        for (uint64_t k = 0; k < few && work->partials == NULL; k++)
            finish_row(work, row + r + k, &states[k]);
    }
    leave_ieee(before);
    return !work->stop.stopped;
}

/* Merges the pieces of each row. */
static void finish_pieces(exp_job *work)
{
    const gpr_float_environment before = enter_ieee();

    for (uint64_t unit = 0; unit < work->units.count && !gpr_cpu_must_stop(&work->stop); unit++) {
        gpr_exp_state *states = work->partials + unit * work->pieces * work->units.rows;
        uint64_t rows;
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows);

        for (uint64_t r = 0; r < rows; r++) {
            for (uint64_t piece = 1; piece < work->pieces; piece++)
                states[r] = gpr_exp_merge(states[r], states[piece * work->units.rows + r]);
            finish_row(work, row + r, &states[r]);
        }
    }
    leave_ieee(before);
}

static void cut(exp_job *work)
{
    const gpr_view *view = work->view;

    work->crosswise = gpr_cpu_lies_crosswise(view);
    work->columns_in_place = work->crosswise && view->inner == 1 && view->dtype == work->dtype &&
                             gpr_cpu_columns_in_place(view);
    work->pieces = 1;
    work->length = view->n;
    if (view->n > PIECE_ELEMENTS) {
        work->length = PIECE_ELEMENTS;
        work->pieces = gpr_divide_up(view->n, PIECE_ELEMENTS);
    }
    work->units = gpr_cpu_cut_units(view, work->crosswise ? SIDE_BY_SIDE
                                                          : gpr_divide_up(TASK_ELEMENTS, view->n));
}

static double nanoseconds(const gpr_view *view)
{
    const double per_element = 1, per_row = 50;

    return gpr_cpu_nanoseconds_to_read(view, view->rows_contiguous ? 0 : 1) +
           (double)view->rows * ((double)view->n * per_element + per_row);
}

static gpr_status run(exp_job *work, gpr_run *record)
{
    const uint64_t tasks = work->units.count * work->pieces;
    gpr_status status = GPR_OK;

    if (work->pieces > 1) {
        work->partials = calloc(tasks * work->units.rows, sizeof *work->partials);
        if (work->partials == NULL)
            return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial sums of %llu tasks",
                            (unsigned long long)tasks);
    }
    status = gpr_cpu_run_tasks(nanoseconds(work->view), tasks, exp_task, work, sizeof(exp_memory),
                               &record->block_size);
    record->grid_size = tasks;
    if (status == GPR_OK && work->partials != NULL) finish_pieces(work);
    free(work->partials);
    if (status == GPR_OK && work->stop.stopped)
        status = gpr_fail(GPR_ERROR_INTERRUPTED, "the reduction was interrupted");
    return status;
}

static gpr_status reduce_view(const gpr_resolved *call, const gpr_view *view, uint64_t repeats,
                              gpr_dtype result, gpr_run *record)
{
    const gpr_exp_state nothing = gpr_exp_state_of(-INFINITY);
    gpr_view plain, marks;
    exp_job work = {.view = view,
                    .repeats = repeats,
                    .plain = view,
                    .dtype = GPR_FLOAT64,
                    .result_dtype = result,
                    .result = call->result};

    record->variant = gpr_cpu_isa();
    record->block_size = 1;
    record->grid_size = 1;
    if (view->rows == 0) return GPR_OK;
    if (view->n == 0) {
        for (uint64_t row = 0; row < view->rows; row++) finish_row(&work, row, &nothing);
        return GPR_OK;
    }
    if (view->dtype == GPR_FLOAT32 || gpr_cpu_loops()->widen[view->dtype].to == GPR_FLOAT32)
        work.dtype = GPR_FLOAT32;
    work.in_place = view->rows_contiguous && view->dtype == work.dtype;
    if (view->mask != NULL) {
        gpr_copy_view(&plain, view);
        plain.mask = NULL;
        work.plain = &plain;
        gpr_mask_view(view, &marks);
        work.marks = &marks;
    }
    cut(&work);
    gpr_cpu_watch(&work.stop, call->interrupted, call->interrupted_arg);
    return run(&work, record);
}

/* Reduces rows whose axes `repeats` are read once. */
static __attribute__((noinline)) gpr_status reduce_once(const gpr_resolved *call, uint64_t repeats,
                                                        gpr_dtype result, gpr_run *record)
{
    gpr_view once;
    const uint64_t times = gpr_view_once(&call->view, repeats, &once);

    return reduce_view(call, &once, times, result, record);
}

gpr_status gpr_cpu_logsumexp(const gpr_resolved *call, gpr_dtype result, gpr_run *record)
{
    const uint64_t repeats = gpr_cpu_repeats(&call->view, NULL, GPR_CPU_LEAST_ADDED);

    if (repeats != 0) return reduce_once(call, repeats, result, record);
    return reduce_view(call, &call->view, 1, result, record);
}
