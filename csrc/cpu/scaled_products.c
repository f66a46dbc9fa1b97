/* Products as if exponents had no end; see scaled_products.h. */
#include "cpu/scaled_products.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/float_environment.h"
#include "lib/base/convert.h"
#include "lib/base/float_bits.h"
#include "lib/base/status.h"

enum {
    FRACTION_BITS = 52,
    EXPONENT_FIELD = 0x7ff,
    EXPONENT_BIAS = 1023,
    WIDTH = GPR_COLUMN_BLOCK, /* products side by side */
    LANES = 16,               /* of a run: products that do not wait for each other */
    /* Steps until mantissas are normalized again: each at most doubles a real one, and makes a
     * complex one 2^1.5 times as large. */
    MOST_STEPS = 512,
    /* Elements of a row, or of columns, that the loops multiply at first: few enough that most
     * stay in range where all of them do not, and as many as fill the lanes. */
    CHUNK = 512,
    TASK_ELEMENTS = 32768,
    /* further than a double's exponent from that of any double, and less than an int's */
    BEYOND = 8192
};

/* Products of a block of columns, or of the lanes of a run: (re + i im) * 2^exponent. */
typedef struct products {
    double re[WIDTH], im[WIDTH];
    int64_t exponent[WIDTH];
} products;

typedef struct product {
    double re, im;
    int64_t exponent;
} product;

typedef struct task_memory {
    staging staged;
    _Alignas(64) double numbers[2 * STAGE_ELEMENTS];
    products columns;
    _Alignas(64) char plain[WIDTH * MOST_NUMBER_BYTES];    /* accumulators of the loops */
    _Alignas(64) char finished[WIDTH * MOST_NUMBER_BYTES]; /* of whole rows */
} task_memory;
_Static_assert(sizeof(task_memory) <= GPR_TASK_MEMORY, "workers have room for it");

typedef struct scaled_job {
    job *work;
    job plain;  /* the same as the loops fold it: by columns of no more than a unit's rows */
    recipe how; /* how elements become numbers */
    gpr_cpu_units units;
    uint64_t per_task;       /* units */
    uint64_t pieces, length; /* of a row */
    product *partials;       /* of a unit's pieces, if there are several */
    int is_complex;
} scaled_job;

/* ---------------------------------------------------------------- numbers -------------------- */

/* x as a mantissa in [1, 2), returned, times 2^*exponent; zeros, infinities and NaN as they are.
 * Without branches: compilers make vectors of it. */
static inline double split(double x, int64_t *exponent)
{
    const double up = 0x1p64; /* makes normal numbers of subnormal ones */
    const uint64_t infinite = (uint64_t)EXPONENT_FIELD << FRACTION_BITS,
                   one = (uint64_t)EXPONENT_BIAS << FRACTION_BITS;
    const uint64_t given = gpr_bits_of_double(x) & infinite;
    const int64_t lift = given == 0 ? 64 : 0;
    const uint64_t bits = gpr_bits_of_double(given == 0 ? x * up : x);
    const int is_kept = given == infinite || x == 0;
    const int64_t field = (int64_t)((bits & infinite) >> FRACTION_BITS);

    *exponent = is_kept ? 0 : field - EXPONENT_BIAS - lift;
    return is_kept ? x : gpr_double_of_bits((bits & ~infinite) | one);
}

/* Beside an infinity or NaN, a finite part counts by its sign alone. */
static double as_sign(double x)
{
    return isfinite(x) && x != 0 ? copysign(1, x) : x;
}

/* x * 2^exponent, rounded once. */
static double times_power(double x, int64_t exponent)
{
    if (exponent > -EXPONENT_BIAS && exponent <= EXPONENT_BIAS)
        return x * gpr_double_of_bits((uint64_t)(exponent + EXPONENT_BIAS) << FRACTION_BITS);
    return ldexp(x, (int)(exponent > BEYOND ? BEYOND : exponent < -BEYOND ? -BEYOND : exponent));
}

/* A product whose larger part has a mantissa in [1, 2); of its smaller part, what is below the last
 * bits of the larger one by a double's whole range is lost. */
static product normalize_pair(double re, double im, int64_t exponent)
{
    const double largest = fmax(fabs(re), fabs(im));
    int64_t own = 0;

    if (!isfinite(re) || !isfinite(im)) return (product){as_sign(re), as_sign(im), 0};
    if (largest == 0) return (product){re, im, 0};
    (void)split(largest, &own);
    return (product){times_power(re, -own), times_power(im, -own), exponent + own};
}

static product normalize(product x, int is_complex)
{
    int64_t own;

    if (is_complex) return normalize_pair(x.re, x.im, x.exponent);
    x.re = split(x.re, &own);
    x.exponent += own;
    return x;
}

/* Of normalized ones. */
static product multiply(product x, product y, int is_complex)
{
    const product real = {x.re * y.re, 0, x.exponent + y.exponent};

    if (!is_complex) return normalize(real, 0);
    return normalize_pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re, real.exponent);
}

/* ---------------------------------------------------------------- columns -------------------- */

static product at(const products *from, uint64_t j)
{
    return (product){from->re[j], from->im[j], from->exponent[j]};
}

static void set(products *to, uint64_t j, product x)
{
    to->re[j] = x.re;
    to->im[j] = x.im;
    to->exponent[j] = x.exponent;
}

static void start(products *to, uint64_t width)
{
    for (uint64_t j = 0; j < width; j++) set(to, j, (product){1, 0, 0});
}

static void normalize_all(products *to, uint64_t width, int is_complex)
{
    for (uint64_t j = 0; j < width; j++) set(to, j, normalize(at(to, j), is_complex));
}

static void multiply_reals(const double *x, uint64_t width, products *to)
{
    for (uint64_t j = 0; j < width; j++) {
        int64_t exponent;

        to->re[j] *= split(x[j], &exponent);
        to->exponent[j] += exponent;
    }
}

static void multiply_pairs(const double *x, uint64_t width, products *to)
{
    for (uint64_t j = 0; j < width; j++) {
        const product y = normalize_pair(x[2 * j], x[2 * j + 1], 0);
        const double re = to->re[j], im = to->im[j];

        to->re[j] = re * y.re - im * y.im;
        to->im[j] = re * y.im + im * y.re;
        to->exponent[j] += y.exponent;
    }
}

/* Multiplies normalized products by `rows` rows of `width` numbers, which follow each other. */
static void multiply_rows(const double *x, uint64_t rows, uint64_t width, int is_complex,
                          products *to)
{
    for (uint64_t row = 0; row < rows; row++) {
        if (is_complex)
            multiply_pairs(x + 2 * row * width, width, to);
        else
            multiply_reals(x + row * width, width, to);
        if (row % MOST_STEPS == MOST_STEPS - 1) normalize_all(to, width, is_complex);
    }
    normalize_all(to, width, is_complex);
}

/* The product of `count` > 0 numbers, normalized. */
static product multiply_run(const double *x, uint64_t count, int is_complex, products *lanes)
{
    const uint64_t width = least(count, LANES), rows = count / width, rest = count % width;
    product whole;

    start(lanes, width);
    multiply_rows(x, rows, width, is_complex, lanes);
    multiply_rows(x + (is_complex ? 2 : 1) * rows * width, 1, rest, is_complex, lanes);
    whole = at(lanes, 0);
    for (uint64_t j = 1; j < width; j++) whole = multiply(whole, at(lanes, j), is_complex);
    return whole;
}

/* Stores one of a block of products as the accumulator that the job's results are made of. */
static void store(const scaled_job *scaled, product x, uint64_t j, task_memory *memory)
{
    const double parts[2] = {times_power(x.re, x.exponent), times_power(x.im, x.exponent)};

    memcpy(memory->finished + j * scaled->how.acc_bytes, parts, scaled->how.acc_bytes);
}

/* An accumulator of the loops. */
static product load(const scaled_job *scaled, const char *accumulator)
{
    double parts[2] = {0, 0};

    memcpy(parts, accumulator, scaled->how.acc_bytes);
    return normalize((product){parts[0], parts[1], 0}, scaled->is_complex);
}

/* ---------------------------------------------------------------- elements ------------------- */

/* Reads elements of a view to memory->numbers: doubles or pairs of them. */
static void read_numbers(const scaled_job *scaled, const gpr_view *view, uint64_t first,
                         uint64_t count, task_memory *memory)
{
    const recipe *how = &scaled->how;
    stage *s = &memory->staged.s;

    gpr_pack(view, first, count, how->neutral.bytes, s->packed);
    gpr_convert(how->loop_dtype, gpr_cpu_prepare(how, s->packed, count, s), how->acc,
                memory->numbers, count);
}

/* The product of positions first .. first + count - 1 of a row, count <= STAGE_ELEMENTS. */
static product multiply_chunk(const scaled_job *scaled, uint64_t row, uint64_t first,
                              uint64_t count, task_memory *memory)
{
    const gpr_view *view = scaled->how.view;

    read_numbers(scaled, view, row * view->n + first, count, memory);
    return multiply_run(memory->numbers, count, scaled->is_complex, &memory->columns);
}

/* The product of positions first .. end - 1 of a row. */
static product multiply_piece(const scaled_job *scaled, uint64_t row, uint64_t first, uint64_t end,
                              task_memory *memory)
{
    product whole = {1, 0, 0};

    while (first < end) {
        const uint64_t count = least(end - first, CHUNK);
        gpr_value value;
        product chunk;

        lower_flags();
        value = gpr_cpu_fold_run(&scaled->plain.how[0], row, first, count, &memory->staged);
        if (left_range())
            chunk = multiply_chunk(scaled, row, first, count, memory);
        else
            chunk = load(scaled, (const char *)value.bytes);
        whole = multiply(whole, chunk, scaled->is_complex);
        first += count;
    }
    return whole;
}

/* Products of `count` whole rows from `row` on, to finished ones. */
static void multiply_whole_rows(const scaled_job *scaled, uint64_t row, uint64_t count,
                                task_memory *memory)
{
    const uint64_t n = scaled->how.view->n, bytes = scaled->how.acc_bytes;
    uint64_t j = 0;

    for (; j < count && n > CHUNK; j++)
        store(scaled, multiply_piece(scaled, row + j, 0, n, memory), j, memory);
    while (j < count) {
        const uint64_t rows = least(count - j, CHUNK / n), end = j + rows;

        lower_flags();
        gpr_cpu_fold_rows(&scaled->plain.how[0], row + j, rows, memory->finished + j * bytes,
                          &memory->staged);
        if (!left_range()) j = end;
        for (; j < end; j++)
            store(scaled, multiply_chunk(scaled, row + j, 0, n, memory), j, memory);
    }
}

/* Multiplies products of `width` columns from `row` on by those of positions first .. end - 1. */
static void multiply_columns_chunk(const scaled_job *scaled, uint64_t row, uint64_t width,
                                   uint64_t first, uint64_t end, task_memory *memory)
{
    const gpr_view *view = scaled->how.view;
    const uint64_t extent = view->axes[view->outer + view->inner - 1].extent;
    gpr_view tile;

    gpr_cpu_make_tile(view, width, &tile);
    while (first < end) {
        const uint64_t run = least(end - first, extent - first % extent),
                       rows = least(run, STAGE_ELEMENTS / width);

        gpr_cpu_locate(view, row, first, &tile);
        read_numbers(scaled, &tile, 0, rows * width, memory);
        multiply_rows(memory->numbers, rows, width, scaled->is_complex, &memory->columns);
        first += rows;
    }
}

/* Products of positions first .. end - 1 of `width` columns from `row` on. */
static void multiply_columns(const scaled_job *scaled, uint64_t row, uint64_t width, uint64_t first,
                             uint64_t end, task_memory *memory)
{
    start(&memory->columns, width);
    while (first < end) {
        const uint64_t stop = least(end, first + CHUNK);

        lower_flags();
        gpr_cpu_fold_columns(&scaled->plain, &scaled->plain.how[0], row, width, first, stop,
                             memory->plain, &memory->staged.s);
        if (left_range()) {
            multiply_columns_chunk(scaled, row, width, first, stop, memory);
        } else {
            for (uint64_t j = 0; j < width; j++) {
                const product x = load(scaled, memory->plain + j * scaled->how.acc_bytes);

                set(&memory->columns, j, multiply(at(&memory->columns, j), x, scaled->is_complex));
            }
        }
        first = stop;
    }
}

/* ---------------------------------------------------------------- results -------------------- */

static void finish(const scaled_job *scaled, uint64_t row, uint64_t count,
                   const task_memory *memory)
{
    const job *work = scaled->work;

    gpr_finish_results(scaled->how.rule, scaled->how.acc, memory->finished, count, work->view->n,
                       work->result + row * work->result_bytes, work->output_stride);
}

/* ---------------------------------------------------------------- tasks ---------------------- */

/* Whole units. */
static int units_task(void *context, uint64_t index, void *memory)
{
    scaled_job *scaled = context;
    task_memory *in = memory;
    const uint64_t n = scaled->how.view->n,
                   end = least(scaled->units.count, (index + 1) * scaled->per_task);
    const gpr_float_environment before = enter_ieee();

    for (uint64_t unit = index * scaled->per_task;
         unit < end && !gpr_cpu_must_stop(&scaled->work->stop); unit++) {
        uint64_t width;
        const uint64_t row = gpr_cpu_unit_row(&scaled->units, unit, &width);

        if (gpr_cpu_lies_crosswise(scaled->how.view)) {
            multiply_columns(scaled, row, width, 0, n, in);
            for (uint64_t j = 0; j < width; j++) store(scaled, at(&in->columns, j), j, in);
        } else {
            multiply_whole_rows(scaled, row, width, in);
        }
        finish(scaled, row, width, in);
    }
    leave_ieee(before);
    return !scaled->work->stop.stopped;
}

/* A piece of a unit's rows. */
static int pieces_task(void *context, uint64_t index, void *memory)
{
    scaled_job *scaled = context;
    task_memory *in = memory;
    const uint64_t first = index % scaled->pieces * scaled->length,
                   end = least(scaled->how.view->n, first + scaled->length);
    product *to = scaled->partials + index * scaled->units.rows;
    uint64_t width;
    const uint64_t row = gpr_cpu_unit_row(&scaled->units, index / scaled->pieces, &width);
    const gpr_float_environment before = enter_ieee();

    if (!gpr_cpu_must_stop(&scaled->work->stop)) {
        if (gpr_cpu_lies_crosswise(scaled->how.view)) {
            multiply_columns(scaled, row, width, first, end, in);
            for (uint64_t j = 0; j < width; j++) to[j] = at(&in->columns, j);
        } else {
            for (uint64_t j = 0; j < width; j++)
                to[j] = multiply_piece(scaled, row + j, first, end, in);
        }
    }
    leave_ieee(before);
    return !scaled->work->stop.stopped;
}

/* Products of all pieces of a unit's rows. */
static int merge_task(void *context, uint64_t unit, void *memory)
{
    scaled_job *scaled = context;
    const product *from = scaled->partials + unit * scaled->pieces * scaled->units.rows;
    uint64_t width;
    const uint64_t row = gpr_cpu_unit_row(&scaled->units, unit, &width);
    const gpr_float_environment before = enter_ieee();

    for (uint64_t j = 0; j < width; j++) {
        product whole = from[j];

        for (uint64_t k = 1; k < scaled->pieces; k++)
            whole = multiply(whole, from[k * scaled->units.rows + j], scaled->is_complex);
        store(scaled, whole, j, memory);
    }
    finish(scaled, row, width, memory);
    leave_ieee(before);
    return !gpr_cpu_must_stop(&scaled->work->stop);
}

static gpr_status run(scaled_job *scaled, uint64_t count, gpr_task task)
{
    const double alone = gpr_cpu_nanoseconds_to_read(scaled->how.view, 2);
    uint32_t threads;

    return gpr_cpu_run_tasks(alone, count, task, scaled, sizeof(task_memory), &threads);
}

gpr_status gpr_cpu_multiply_scaled(job *work)
{
    const gpr_view *view = work->view;
    const recipe *how = &work->how[0];
    scaled_job scaled = {.work = work, .how = *how, .pieces = 1};
    uint64_t tasks;
    gpr_status status = GPR_OK;

    memset(&scaled.plain, 0, sizeof scaled.plain);
    scaled.plain.view = view;
    scaled.plain.how[0] = *how;
    scaled.plain.copies = 1;
    scaled.plain.columns_direct =
        gpr_cpu_lies_crosswise(view) && how->direct && gpr_cpu_columns_in_place(view);

    scaled.is_complex = scaled.how.acc == GPR_COMPLEX128;
    if (scaled.how.rule->skip_nan) {
        scaled.how.replace_nan = 1;
        scaled.how.neutral = gpr_neutral_element(GPR_FOLD_prod, scaled.how.rule->element);
    }
    scaled.units = gpr_cpu_cut_units(view, WIDTH);
    scaled.length = TASK_ELEMENTS / scaled.units.rows;
    if (scaled.length < STAGE_ELEMENTS) scaled.length = STAGE_ELEMENTS;
    if (view->n <= scaled.length) {
        const uint64_t units = TASK_ELEMENTS / (scaled.units.rows * view->n);

        scaled.per_task = units > 0 ? units : 1;
        return run(&scaled, divide_up(scaled.units.count, scaled.per_task), units_task);
    }
    scaled.pieces = divide_up(view->n, scaled.length);
    tasks = scaled.units.count * scaled.pieces;
    scaled.partials = malloc(tasks * scaled.units.rows * sizeof *scaled.partials);
    if (scaled.partials == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial products of %llu tasks",
                        (unsigned long long)tasks);
    status = run(&scaled, tasks, pieces_task);
    if (status == GPR_OK && !work->stop.stopped)
        status = run(&scaled, scaled.units.count, merge_task);
    free(scaled.partials);
    return status;
}
