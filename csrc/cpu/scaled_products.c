/* Products as if exponents had no end; see scaled_products.h. */
#include "cpu/scaled_products.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
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
    /* Of a run: products that do not wait for each other, of a whole row and of a piece of one. */
    LANES = 16,
    PIECE_LANES = 64,
    SHORT_RUN = 64, /* fewer numbers are multiplied one after the other */
    /* Steps until mantissas are normalized again: each at most doubles a real one, and makes a
     * complex one 2^1.5 times as large. */
    MOST_STEPS = 512,
    /* Elements of a row, or of columns, that the loops multiply at first: few enough that most
     * stay in range where all of them do not, and as many as fill the lanes. */
    CHUNK = 512,
    COLUMN_CHUNK = 64, /* of columns, of which some left the range */
    FEW_TO_TRY = 256,  /* elements that are looked at first if they are apart in memory, ... */
    MANY_TO_TRY = 128 * 256, /* ... of so many */
    MOST_AT_ONCE = 16,       /* of a lane's numbers */
    /* Where they do not, fewer are tried, as long as reading the processor's flags takes less than
     * multiplying; and where that was enough for many times, more again. */
    LEAST_NUMBERS = 128,
    MANY_TIMES = 16,
    TASK_ELEMENTS = 32768,
    MOST_GROUPS = 4096, /* of pieces of a row: as many partial products */
    /* further than a double's exponent from that of any double, and less than an int's */
    BEYOND = 8192
};

/* Products of a block of columns, or of the lanes of a run: (re + i im) * 2^exponent. */
typedef struct products {
    double re[WIDTH], im[WIDTH];
    int64_t exponent[WIDTH];
    uint64_t since;           /* steps since they were normalized */
    uint64_t at_once, stayed; /* numbers that are multiplied before one step, and how often */
} products;

typedef struct product {
    double re, im;
    int64_t exponent;
} product;

typedef struct task_memory {
    staging staged;
    _Alignas(64) double numbers[2 * STAGE_ELEMENTS];
    products columns;
    _Alignas(64) double factors[2 * WIDTH]; /* products of a few numbers each, in range */
    _Alignas(64) char finished[WIDTH * MOST_NUMBER_BYTES]; /* of whole rows */
} task_memory;
_Static_assert(sizeof(task_memory) <= GPR_TASK_MEMORY, "workers have room for it");

typedef struct scaled_job {
    job *work;
    job plain;  /* the job with rows of no more than a unit's, as columns: for the loops */
    recipe how; /* how elements become numbers */
    gpr_cpu_units units;
    uint64_t per_task;       /* units */
    uint64_t pieces, length; /* of a row */
    uint64_t group, groups;  /* pieces whose product is one partial product; groups of a row */
    product *partials;       /* of a unit's pieces, if there are several */
    int is_complex;
    int is_one_sided;                   /* no factor is larger than 1, or none smaller */
    atomic_int has_larger, has_smaller; /* than 1, in magnitude; a NaN is larger */
} scaled_job;

/* ---------------------------------------------------------------- numbers -------------------- */

/* Two numbers, and their bits: what every processor has registers for. */
typedef double pair __attribute__((vector_size(16)));
typedef int64_t pair_bits __attribute__((vector_size(16)));

/* x as mantissas in [1, 2), returned, times 2^*exponents; zeros, infinities and NaN as they are. */
static inline pair split_pair(pair x, pair_bits *exponents)
{
    const int64_t infinite = (int64_t)EXPONENT_FIELD << FRACTION_BITS,
                  one = (int64_t)EXPONENT_BIAS << FRACTION_BITS;
    const pair up = x * 0x1p64; /* makes normal numbers of subnormal ones */
    const pair_bits given = (pair_bits)x, is_low = (given & infinite) == 0,
                    is_kept = ((given & infinite) == infinite) | (given << 1 == 0),
                    bits = (given & ~is_low) | ((pair_bits)up & is_low);

    *exponents = (((bits & infinite) >> FRACTION_BITS) - EXPONENT_BIAS - (is_low & 64)) & ~is_kept;
    return (pair)((given & is_kept) | (((bits & ~infinite) | one) & ~is_kept));
}

static inline double split(double x, int64_t *exponent)
{
    pair_bits exponents;
    const pair mantissas = split_pair((pair){x, 1}, &exponents);

    *exponent = exponents[0];
    return mantissas[0];
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

/* A product whose larger part has a mantissa in [1, 2). The smaller part loses what is below the
 * last bits of the larger one by a double's whole range. */
static product normalize_pair(double re, double im, int64_t exponent)
{
    const uint64_t magnitude = ~(UINT64_C(1) << 63), bits_re = gpr_bits_of_double(re) & magnitude,
                   bits_im = gpr_bits_of_double(im) & magnitude,
                   field = (bits_re > bits_im ? bits_re : bits_im) >> FRACTION_BITS;
    const double largest = fmax(fabs(re), fabs(im));
    int64_t own = 0;

    if (field > 0 && field < EXPONENT_FIELD - 1) {
        const double scale = gpr_double_of_bits((2 * EXPONENT_BIAS - field) << FRACTION_BITS);

        return (product){re * scale, im * scale, exponent + (int64_t)field - EXPONENT_BIAS};
    }
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
    to->since = to->stayed = 0;
    to->at_once = MOST_AT_ONCE;
}

/* How many to try after so many left the range. */
static uint64_t fewer(uint64_t than)
{
    const uint64_t many = 32;

    return than > many ? than / 4 : than / 2;
}

static void normalize_reals(products *to, uint64_t width)
{
    double numbers[PIECE_LANES];

    for (uint64_t done = 0; done < width; done += PIECE_LANES) {
        const uint64_t some = gpr_smaller(width - done, PIECE_LANES);

        memcpy(numbers, to->re + done, some * sizeof *numbers);
        for (uint64_t j = 0; j < some; j++) to->re[done + j] = 1;
        gpr_cpu_loops()->multiply_mantissas(numbers, some, to->re + done, to->exponent + done);
    }
}

static void normalize_all(products *to, uint64_t width, int is_complex)
{
    if (!is_complex) normalize_reals(to, width);
    for (uint64_t j = 0; j < width && is_complex; j++) set(to, j, normalize(at(to, j), 1));
    to->since = 0;
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

/* Products of `rows` rows of `width` numbers as they come out, in range or not. */
static void multiply_plainly(const double *x, uint64_t rows, uint64_t width, int is_complex,
                             double *to)
{
    const gpr_dtype dtype = is_complex ? GPR_COMPLEX128 : GPR_FLOAT64;

    gpr_cpu_loops()->loop[GPR_FOLD_prod][dtype].columns(
        (const char *)x, (int64_t)(width * gpr_dtype_rows[dtype].bytes), rows, width, 1, to);
}

/* One step: multiplies products by a number each. */
static void multiply_row(const double *x, uint64_t width, int is_complex, products *to)
{
    if (is_complex)
        multiply_pairs(x, width, to);
    else
        gpr_cpu_loops()->multiply_mantissas(x, width, to->re, to->exponent);
    if (++to->since == MOST_STEPS) normalize_all(to, width, is_complex);
}

/* Multiplies products by `rows` rows of `width` numbers, which follow each other. */
static void multiply_rows(const double *x, uint64_t rows, uint64_t width, int is_complex,
                          products *to, double *factors)
{
    while (rows > 0) {
        uint64_t taken = gpr_smaller(rows, to->at_once);
        const double *row = x;

        if (taken * width < LEAST_NUMBERS) taken = 1;
        if (taken > 1) {
            lower_flags();
            multiply_plainly(x, taken, width, is_complex, factors);
            if (left_range()) {
                to->at_once = fewer(taken);
                to->stayed = 0;
                continue;
            }
            row = factors;
        }
        multiply_row(row, width, is_complex, to);
        if (++to->stayed % MANY_TIMES == 0)
            to->at_once = gpr_smaller(2 * to->at_once, MOST_AT_ONCE);
        rows -= taken;
        x += (is_complex ? 2 : 1) * taken * width;
    }
}

/* Multiplies lanes by `count` numbers. */
static void multiply_lanes(const double *x, uint64_t count, uint64_t width, int is_complex,
                           products *lanes, double *factors)
{
    const uint64_t rows = count / width;

    multiply_rows(x, rows, width, is_complex, lanes, factors);
    multiply_row(x + (is_complex ? 2 : 1) * rows * width, count % width, is_complex, lanes);
}

static product merge_lanes(products *lanes, uint64_t width, int is_complex)
{
    product whole = {1, 0, 0};

    normalize_all(lanes, width, is_complex);
    if (!is_complex) { /* so few mantissas do not leave the range */
        for (uint64_t j = 0; j < width; j++) {
            whole.re *= lanes->re[j];
            whole.exponent += lanes->exponent[j];
        }
        return normalize(whole, 0);
    }
    for (uint64_t j = 0; j < width; j++) whole = multiply(whole, at(lanes, j), is_complex);
    return whole;
}

/* The product of so few real numbers that their mantissas' is in range. */
static product multiply_few(const double *x, uint64_t count)
{
    pair mantissas = {1, 1}, numbers;
    pair_bits exponents = {0, 0}, own;
    uint64_t i = 0;

    for (; i + 2 <= count; i += 2) {
        memcpy(&numbers, x + i, sizeof numbers);
        mantissas *= split_pair(numbers, &own);
        exponents += own;
    }
    if (i < count) {
        mantissas *= split_pair((pair){x[i], 1}, &own);
        exponents += own;
    }
    return normalize((product){mantissas[0] * mantissas[1], 0, exponents[0] + exponents[1]}, 0);
}

/* The product of `count` > 0 numbers, normalized. */
static product multiply_run(const double *x, uint64_t count, int is_complex, task_memory *memory)
{
    const uint64_t width = count < SHORT_RUN ? 1 : LANES;

    if (!is_complex && count < SHORT_RUN) return multiply_few(x, count);
    start(&memory->columns, width);
    multiply_lanes(x, count, width, is_complex, &memory->columns, memory->factors);
    return merge_lanes(&memory->columns, width, is_complex);
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

/* Elements of a view as doubles or pairs of them: in memory->numbers, or where they are. */
static const double *read_numbers(const scaled_job *scaled, const gpr_view *view, uint64_t first,
                                  uint64_t count, task_memory *memory)
{
    const recipe *how = &scaled->how;
    stage *s = &memory->staged.s;

    gpr_cpu_pack(view, first, count, how->neutral.bytes, s->packed);
    gpr_convert(how->loop_dtype, gpr_cpu_prepare(how, s->packed, count, s), how->acc,
                memory->numbers, count);
    return memory->numbers;
}

/* Numbers of a row from position `first` on. */
static const double *read_run(const scaled_job *scaled, uint64_t row, uint64_t first,
                              uint64_t count, task_memory *memory)
{
    const recipe *how = &scaled->how;
    const gpr_view *view = how->view;

    if (gpr_cpu_is_direct(how) && !how->replace_nan && how->loop_dtype == how->acc)
        return (const double *)(const void *)(gpr_view_row(view, row) + first * view->bytes);
    return read_numbers(scaled, view, row * view->n + first, count, memory);
}

/* The product of positions first .. end - 1 of a row. */
static product multiply_piece(const scaled_job *scaled, uint64_t row, uint64_t first, uint64_t end,
                              task_memory *memory)
{
    const int is_complex = scaled->is_complex;
    product whole = {1, 0, 0};
    uint64_t lanes = 0, untried = 0;

    while (first < end) {
        const uint64_t count = gpr_smaller(end - first, untried == 0 ? CHUNK : STAGE_ELEMENTS);
        gpr_value value;

        lower_flags();
        if (untried == 0)
            value = gpr_cpu_fold_run(&scaled->plain.how[0], row, first, count, &memory->staged);
        if (untried == 0 && !left_range()) {
            whole = multiply(whole, load(scaled, (const char *)value.bytes), is_complex);
        } else {
            if (lanes == 0) start(&memory->columns, lanes = PIECE_LANES);
            multiply_lanes(read_run(scaled, row, first, count, memory), count, lanes, is_complex,
                           &memory->columns, memory->factors);
            untried = (untried + 1) % MANY_TIMES;
        }
        first += count;
    }
    return lanes == 0
               ? whole
               : multiply(whole, merge_lanes(&memory->columns, lanes, is_complex), is_complex);
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
        const uint64_t rows = gpr_smaller(count - j, CHUNK / n), end = j + rows;
        const double *numbers;

        lower_flags();
        gpr_cpu_fold_rows(&scaled->plain.how[0], row + j, rows, memory->finished + j * bytes,
                          &memory->staged);
        if (!left_range()) {
            j = end;
            continue;
        }
        if (rows == 1)
            numbers = read_run(scaled, row + j, 0, n, memory);
        else
            numbers = read_numbers(scaled, scaled->how.view, (row + j) * n, rows * n, memory);
        for (; j < end; j++) {
            store(scaled, multiply_run(numbers, n, scaled->is_complex, memory), j, memory);
            numbers += scaled->is_complex ? 2 * n : n;
        }
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
        const uint64_t run = gpr_smaller(end - first, extent - first % extent),
                       rows = gpr_smaller(run, STAGE_ELEMENTS / width);

        gpr_cpu_locate(view, row, first, &tile);
        multiply_rows(read_numbers(scaled, &tile, 0, rows * width, memory), rows, width,
                      scaled->is_complex, &memory->columns, memory->factors);
        first += rows;
    }
}

/* Products of positions first .. end - 1 of `width` columns from `row` on. */
static void multiply_columns(const scaled_job *scaled, uint64_t row, uint64_t width, uint64_t first,
                             uint64_t end, task_memory *memory)
{
    const uint64_t fewest = gpr_divide_up(LEAST_NUMBERS, width) + 1;
    uint64_t rows = COLUMN_CHUNK, stayed = 0;

    start(&memory->columns, width);
    while (first < end) {
        const uint64_t taken = gpr_smaller(end - first, rows);

        lower_flags();
        gpr_cpu_fold_columns(&scaled->plain, &scaled->plain.how[0], row, width, first,
                             first + taken, (char *)memory->factors, &memory->staged.s);
        if (left_range() && taken > fewest) {
            rows = fewer(taken) > fewest ? fewer(taken) : fewest;
            stayed = 0;
            continue;
        }
        if (left_range())
            multiply_columns_chunk(scaled, row, width, first, first + taken, memory);
        else
            multiply_row(memory->factors, width, scaled->is_complex, &memory->columns);
        if (++stayed % MANY_TIMES == 0) rows = gpr_smaller(2 * rows, CHUNK);
        first += taken;
    }
    normalize_all(&memory->columns, width, scaled->is_complex);
}

/* ---------------------------------------------------------------- one side of 1 -------------- */

/* Where no factor is larger than 1, what a partial product lost when it left the range is lost to
 * the whole: the loops' result is right but for subnormal doubles, whose last bits depend on the
 * order. Where none is smaller, it is infinite. So are most products that leave the range: of
 * probabilities, of counts. */

static int lies_on_both_sides(scaled_job *scaled)
{
    return atomic_load_explicit(&scaled->has_larger, memory_order_relaxed) &&
           atomic_load_explicit(&scaled->has_smaller, memory_order_relaxed);
}

/* Notes on which sides of 1 elements are that the loop reads. */
static void note_sides(scaled_job *scaled, const char *elements, uint64_t count)
{
    const gpr_dtype dtype = scaled->how.loop_dtype;
    const uint64_t one = dtype == GPR_FLOAT32 ? gpr_bits_of_float(1) : gpr_bits_of_double(1);
    uint64_t largest, smallest;

    gpr_cpu_loops()->exact[dtype].extent(elements, count, &largest, &smallest);
    if (largest > one) atomic_store_explicit(&scaled->has_larger, 1, memory_order_relaxed);
    if (smallest < one) atomic_store_explicit(&scaled->has_smaller, 1, memory_order_relaxed);
}

/* The same of elements of a view, through the stage. */
static void note_staged(scaled_job *scaled, const gpr_view *view, uint64_t first, uint64_t count,
                        stage *s)
{
    while (count > 0 && !lies_on_both_sides(scaled)) {
        const uint64_t step = gpr_smaller(count, STAGE_ELEMENTS);

        gpr_cpu_pack(view, first, step, scaled->how.neutral.bytes, s->packed);
        note_sides(scaled, gpr_cpu_prepare(&scaled->how, s->packed, step, s), step);
        first += step;
        count -= step;
    }
}

/* The same of positions first .. end - 1 of a unit's rows. */
static void note_rows(scaled_job *scaled, uint64_t row, uint64_t width, uint64_t first,
                      uint64_t end, stage *s)
{
    const recipe *how = &scaled->how;
    const gpr_view *view = how->view;
    const int is_read_in_place = gpr_cpu_is_direct(how) && !how->replace_nan;

    for (uint64_t j = 0; j < width && !lies_on_both_sides(scaled); j++) {
        if (is_read_in_place)
            note_sides(scaled, gpr_view_row(view, row + j) + first * view->bytes, end - first);
        else
            note_staged(scaled, view, (row + j) * view->n + first, end - first, s);
    }
}

static void note_columns(scaled_job *scaled, uint64_t row, uint64_t width, uint64_t first,
                         uint64_t end, stage *s)
{
    const gpr_view *view = scaled->how.view;
    const uint64_t extent = view->axes[view->outer + view->inner - 1].extent;
    const int is_read_in_place = scaled->plain.columns_direct && !scaled->how.replace_nan;
    gpr_view tile;

    gpr_cpu_make_tile(view, width, &tile);
    while (first < end && !lies_on_both_sides(scaled)) {
        const uint64_t run = gpr_smaller(end - first, extent - first % extent);

        gpr_cpu_locate(view, row, first, &tile);
        for (uint64_t i = 0; i < run && is_read_in_place; i++)
            note_sides(scaled, tile.data + (int64_t)i * tile.axes[0].in, width);
        if (!is_read_in_place) note_staged(scaled, &tile, 0, run * width, s);
        first += run;
    }
}

/* Whether the loops' results of `width` rows from `row` on are right. */
static int are_right(scaled_job *scaled, uint64_t row, uint64_t width, task_memory *memory)
{
    const job *work = scaled->work;
    const gpr_dtype dtype = scaled->how.rule->result;
    const double least_normal =
        dtype == GPR_FLOAT64 && atomic_load(&scaled->has_smaller) ? DBL_MIN : 0;
    int found = 1;

    gpr_convert(dtype, work->result + row * work->result_bytes, GPR_FLOAT64, memory->numbers,
                width);
    for (uint64_t j = 0; j < width; j++) {
        const double size = fabs(memory->numbers[j]);

        found &= size == 0 || size >= least_normal; /* not if it is NaN */
    }
    return found;
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

/* The units, or the piece of one, that a task has. */
static int sides_task(void *context, uint64_t index, void *memory)
{
    scaled_job *scaled = context;
    task_memory *in = memory;
    const uint64_t n = scaled->how.view->n, first = index % scaled->pieces * scaled->length,
                   end = scaled->pieces > 1 ? gpr_smaller(n, first + scaled->length) : n,
                   unit = index / scaled->pieces * scaled->per_task,
                   last = gpr_smaller(scaled->units.count, unit + scaled->per_task);

    for (uint64_t i = unit; i < last && !gpr_cpu_must_stop(&scaled->work->stop); i++) {
        uint64_t width;
        const uint64_t row = gpr_cpu_unit_row(&scaled->units, i, &width);

        if (gpr_cpu_lies_crosswise(scaled->how.view))
            note_columns(scaled, row, width, first, end, &in->staged.s);
        else
            note_rows(scaled, row, width, first, end, &in->staged.s);
    }
    return !scaled->work->stop.stopped && !lies_on_both_sides(scaled);
}

/* Whole units. */
static int units_task(void *context, uint64_t index, void *memory)
{
    scaled_job *scaled = context;
    task_memory *in = memory;
    const uint64_t n = scaled->how.view->n,
                   end = gpr_smaller(scaled->units.count, (index + 1) * scaled->per_task);
    const gpr_float_environment before = enter_ieee();

    for (uint64_t unit = index * scaled->per_task;
         unit < end && !gpr_cpu_must_stop(&scaled->work->stop); unit++) {
        uint64_t width;
        const uint64_t row = gpr_cpu_unit_row(&scaled->units, unit, &width);

        if (scaled->is_one_sided && are_right(scaled, row, width, in)) continue;
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
    const uint64_t begin = index % scaled->groups * scaled->group,
                   end = gpr_smaller(scaled->pieces, begin + scaled->group);
    product *to = scaled->partials + index * scaled->units.rows;
    uint64_t width;
    const uint64_t row = gpr_cpu_unit_row(&scaled->units, index / scaled->groups, &width);
    const gpr_float_environment before = enter_ieee();

    for (uint64_t piece = begin; piece < end && !gpr_cpu_must_stop(&scaled->work->stop); piece++) {
        const uint64_t first = piece * scaled->length,
                       last = gpr_smaller(scaled->how.view->n, first + scaled->length);

        if (gpr_cpu_lies_crosswise(scaled->how.view))
            multiply_columns(scaled, row, width, first, last, in);
        for (uint64_t j = 0; j < width; j++) {
            const product one = gpr_cpu_lies_crosswise(scaled->how.view)
                                    ? at(&in->columns, j)
                                    : multiply_piece(scaled, row + j, first, last, in);

            to[j] = piece == begin ? one : multiply(to[j], one, scaled->is_complex);
        }
    }
    leave_ieee(before);
    return !scaled->work->stop.stopped;
}

/* Products of all pieces of a unit's rows. */
static int merge_task(void *context, uint64_t unit, void *memory)
{
    scaled_job *scaled = context;
    const product *from = scaled->partials + unit * scaled->groups * scaled->units.rows;
    uint64_t width;
    const uint64_t row = gpr_cpu_unit_row(&scaled->units, unit, &width);
    const gpr_float_environment before = enter_ieee();

    for (uint64_t j = 0; j < width; j++) {
        product whole = from[j];

        for (uint64_t k = 1; k < scaled->groups; k++)
            whole = multiply(whole, from[k * scaled->units.rows + j], scaled->is_complex);
        store(scaled, whole, j, memory);
    }
    finish(scaled, row, width, memory);
    leave_ieee(before);
    return !gpr_cpu_must_stop(&scaled->work->stop);
}

/* Whether all units' results are right, which the caller's thread looks at. */
static gpr_status find_wrong(scaled_job *scaled, int *found)
{
    task_memory *memory = NULL;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_cpu_take_memory(sizeof *memory, (void **)&memory));
    *found = 0;
    for (uint64_t unit = 0; unit < scaled->units.count && !*found; unit++) {
        uint64_t width;
        const uint64_t row = gpr_cpu_unit_row(&scaled->units, unit, &width);

        *found = !are_right(scaled, row, width, memory);
    }
    gpr_cpu_give_memory(memory);
done:
    return status;
}

static gpr_status run(scaled_job *scaled, uint64_t count, gpr_task task)
{
    const double alone = gpr_cpu_nanoseconds_to_read(scaled->how.view, task == sides_task ? 1 : 2);
    uint32_t threads;

    return gpr_cpu_run_tasks(alone, count, task, scaled, sizeof(task_memory), &threads);
}

/* As the loops', but NaN that are left out are replaced: other loops multiply, which do not skip
 * them. */
static recipe recipe_of(const job *work)
{
    recipe how = work->how[0];

    if (how.rule->skip_nan) {
        how.replace_nan = 1;
        how.neutral = gpr_neutral_element(GPR_FOLD_prod, how.rule->element);
    }
    return how;
}

/* Whether a job's first elements leave the range of doubles and are on both sides of 1: then little
 * is gained by multiplying all of them plainly first. Sets *found, and lowers the flags. */
static gpr_status try_first(job *work, int *found)
{
    const recipe *how = &work->how[0];
    const gpr_view *view = work->view;
    const uint64_t some = gpr_smaller(view->n, gpr_cpu_is_direct(how) ? CHUNK : FEW_TO_TRY);
    scaled_job scaled = {.work = work, .how = recipe_of(work)};
    task_memory *memory = NULL;
    gpr_status status = GPR_OK;

    *found = 0;
    if (some < FEW_TO_TRY || view->rows * view->n < MANY_TO_TRY) return GPR_OK;
    GPR_TRY(gpr_cpu_take_memory(sizeof *memory, (void **)&memory));
    lower_flags();
    (void)gpr_cpu_fold_run(how, 0, 0, some, &memory->staged);
    *found = left_range();
    if (*found && how->acc != GPR_COMPLEX128) {
        if (gpr_cpu_loops()->exact[how->loop_dtype].extent != NULL)
            note_rows(&scaled, 0, 1, 0, some, &memory->staged.s);
        *found = lies_on_both_sides(&scaled);
    }
    lower_flags();
    gpr_cpu_give_memory(memory);
done:
    return status;
}

int gpr_cpu_starts_out_of_range(job *work, gpr_status *status)
{
    int found;

    *status = try_first(work, &found);
    return *status == GPR_OK && found;
}

gpr_status gpr_cpu_multiply_scaled(job *work, int has_results)
{
    const gpr_view *view = work->view;
    const recipe *how = &work->how[0];
    scaled_job scaled = {.work = work, .how = recipe_of(work), .pieces = 1};
    uint64_t tasks, groups;
    gpr_status status = GPR_OK;

    memset(&scaled.plain, 0, sizeof scaled.plain);
    scaled.plain.view = view;
    scaled.plain.how[0] = *how;
    scaled.plain.copies = 1;
    scaled.plain.columns_direct =
        gpr_cpu_lies_crosswise(view) && how->direct && gpr_cpu_columns_in_place(view);

    scaled.is_complex = scaled.how.acc == GPR_COMPLEX128;
    scaled.units = gpr_cpu_cut_units(view, WIDTH);
    scaled.length = TASK_ELEMENTS / scaled.units.rows;
    if (scaled.length < STAGE_ELEMENTS) scaled.length = STAGE_ELEMENTS;
    scaled.per_task = 1;
    if (view->n <= scaled.length) {
        const uint64_t units = TASK_ELEMENTS / (scaled.units.rows * view->n);

        if (units > 0) scaled.per_task = units;
    } else {
        scaled.pieces = gpr_divide_up(view->n, scaled.length);
    }
    tasks = gpr_divide_up(scaled.units.count, scaled.per_task) * scaled.pieces;
    if (has_results && !scaled.is_complex &&
        gpr_cpu_loops()->exact[how->loop_dtype].extent != NULL) {
        GPR_TRY(run(&scaled, tasks, sides_task));
        scaled.is_one_sided = !lies_on_both_sides(&scaled);
    }
    if (work->stop.stopped) goto done;
    if (scaled.pieces == 1) return run(&scaled, tasks, units_task);
    if (scaled.is_one_sided) {
        int is_any_wrong;

        GPR_TRY(find_wrong(&scaled, &is_any_wrong));
        if (!is_any_wrong) goto done;
    }
    scaled.group = gpr_divide_up(scaled.pieces, MOST_GROUPS);
    scaled.groups = gpr_divide_up(scaled.pieces, scaled.group);
    groups = scaled.units.count * scaled.groups;
    scaled.partials = malloc(groups * scaled.units.rows * sizeof *scaled.partials);
    if (scaled.partials == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial products of %llu tasks",
                        (unsigned long long)groups);
    status = run(&scaled, groups, pieces_task);
    if (status == GPR_OK && !work->stop.stopped)
        status = run(&scaled, scaled.units.count, merge_task);
    free(scaled.partials);
done:
    return status;
}
