/* Adds arrays and products of arrays to exact sums, and rows to results, on all cores: by tiles
 * (exact_tiles.h), or as pairs of doubles side by side where rows are short or columns of memory
 * (exact_pairs.h). Parts depend on the elements alone, not on how tasks divide them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/exact_pairs.h"
#include "cpu/exact_plain.h"
#include "cpu/exact_tiles.h"
#include "cpu/float_environment.h"
#include "cpu/job.h"
#include "cpu/product_sums.h"
#include "cpu/repeats.h"
#include "lib/base/convert.h"
#include "lib/base/status.h"

enum {
    LEAST_TASK = 32768, /* elements: placing a task's first bins costs little beside them */
    MOST_TASKS = 256,   /* enough for an even load on many cores, few parts to store and to merge */
    FEW_TASKS = 16,     /* where rows alone make fewer, pieces of them are tasks, too */
    LEAST_POSITIONS = 256, /* of a piece of rows that lie crosswise */
    LONG_PIECE = 1 << 20,  /* elements: pairs of doubles hold the sums of most, not of many more */
    MOST_READ_AGAIN = 8,   /* one in so many pieces may have a sum that its pair does not hold */
    PLAIN_BYTES = 32768,   /* of a row that are added plainly at once: they fit the first cache */
    PLAIN_BLOCK = 1 << 16, /* elements of a block of columns that are added plainly at once */
    MOST_PATIENCE = 64,    /* blocks */
    /* Of a long row's blocks, one in so many, and SPOILT_AT_FIRST of the first ones, may have plain
     * sums that were rounded: with more, tiles take less time than pairs. */
    MOST_SPOILT = 5,
    SPOILT_AT_FIRST = 3,
    ASK_ELEMENTS = 1 << 17, /* that are added between two checks whether to stop */
    TILES_TO_ASK = 8, /* between two readings of the clock, which take as long as part of a tile */
    UNITS_TO_ASK = 8  /* the same of units of rows */
};

typedef struct exact_stage {
    _Alignas(64) char packed[GPR_EXACT_TILE * 8];
    /* a tile of complex elements is half as long */
    _Alignas(64) char split[GPR_EXACT_PARTS][GPR_EXACT_TILE * 4];
    uint8_t keep[GPR_EXACT_TILE];
} exact_stage;

/* A task's memory. */
typedef struct exact_memory {
    tile_memory tiles;
    union {
        exact_stage elements;
        factor_stage factors[2];
        product_sums_memory products;
        product_rows_memory product_rows;
        pair_memory pairs;
        plain_memory plain;
    };
    plain_pairs sums; /* of a unit */
} exact_memory;
_Static_assert(sizeof(exact_memory) <= GPR_TASK_MEMORY, "workers have room for it");

/* NULL where a task needs no memory. */
static tile_memory *tiles_of(exact_memory *memory)
{
    return memory != NULL ? &memory->tiles : NULL;
}

static exact_stage *elements_of(exact_memory *memory)
{
    return memory != NULL ? &memory->elements : NULL;
}

struct exact_job;

/* Clears the parts of a row, and adds elements [first, end) of the row to them. */
typedef void (*add_range)(struct exact_job *work, uint64_t row, uint64_t first, uint64_t end,
                          exact_memory *memory, gpr_exact_part *parts);

/* An addition, divided into tasks. */
typedef struct exact_job {
    const gpr_view *view;
    uint64_t repeats;              /* elements of a row that each of the view's stands for */
    gpr_cpu_factors factors;       /* of products */
    const gpr_cpu_factors *beside; /* these, or their parts: of rows side by side */
    add_range add;
    gpr_dtype sum; /* of the parts of sums */
    int counts_mask, skip_nan;
    int components;         /* real numbers of an element */
    int width;              /* parts of a row */
    gpr_value neutral;      /* element, for masks and NaN */
    uint64_t tile;          /* elements */
    uint64_t pieces;        /* of a row */
    uint64_t per_task;      /* rows or units, where they are not in pieces */
    gpr_exact_part *parts;  /* `width` for each piece, where rows are in pieces */
    const uint16_t *chosen; /* of these, the only ones that are added, or NULL: all of them */
    uint64_t chosen_rows;
    int has_bounds;               /* products are summed with a bound on the error first */
    product_sums *sums;           /* of each piece, where rows are in pieces */
    gpr_product_sum *sums_beside; /* of each row in each piece, where they are side by side */
    gpr_cpu_units units;          /* of rows whose sums are made side by side */
    uint64_t length;              /* elements of a row in a piece of a unit */
    const plain_adder *plain;
    uint64_t block;       /* elements of a row that are added plainly at once */
    uint64_t block_rows;  /* that are added so at once, if not all of a unit */
    plain_pairs *pairs;   /* of each piece of a unit */
    atomic_int given_up;  /* plain sums and pairs: tiles are quicker, or there is no other way */
    const gpr_rule *rule; /* where sums become results */
    char *result;
    size_t memory; /* bytes that a task needs */
    void (*task)(struct exact_job *work, uint64_t index, exact_memory *memory);
    gpr_cpu_stop stop;
} exact_job;

/* ---------------------------------------------------------------- tiles ---------------------- */

/* Whether a task that began at `first`, and adds the tile at `at` next, has to stop. */
static int must_stop(exact_job *work, uint64_t first, uint64_t at)
{
    return at > first && (at - first) / work->tile % TILES_TO_ASK == 0 &&
           gpr_cpu_must_stop(&work->stop);
}

/* Whether a task has to stop before a row. */
static int must_stop_at(exact_job *work, uint64_t row)
{
    const uint64_t rows = 1 + TILES_TO_ASK * work->tile / (work->view->n + 1);

    return row % rows == 0 && gpr_cpu_must_stop(&work->stop);
}

/* Replaces NaN by -0 in a packed tile. Returns their number. */
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

/* Whether tiles are added from where they are in memory. */
static int reads_in_place(const exact_job *work)
{
    return work->view->rows_contiguous && !work->skip_nan && work->components == 1;
}

/* Makes components[p] the real numbers of the elements of a row from `at` on, -0 for those that are
 * left out; returns how many of these are NaN. */
static uint64_t read_tile(const exact_job *work, uint64_t row, uint64_t at, uint64_t count,
                          exact_stage *s, const void *components[GPR_EXACT_PARTS])
{
    const gpr_view *view = work->view;
    const uint64_t place = row * view->n + at;
    uint64_t nan = 0;

    if (reads_in_place(work)) {
        components[0] = gpr_view_row(view, row) + at * view->bytes;
        return 0;
    }
    components[0] = s->packed;
    gpr_cpu_pack(view, place, count, work->neutral.bytes, s->packed);
    if (work->skip_nan) nan = drop_nan(work, count, s);
    if (work->components > 1) {
        gpr_cpu_split_parts(s->packed, view->bytes / GPR_EXACT_PARTS, count, s->split[0],
                            s->split[1]);
        for (int p = 0; p < GPR_EXACT_PARTS; p++) components[p] = s->split[p];
    }
    return nan;
}

/* Whether the sum of each component is NaN, whatever else is added. */
static int are_nan(const gpr_exact_part *parts, int components)
{
    int all = 1;

    for (int p = 0; p < components; p++) all &= (parts[p].flags & GPR_EXACT_NAN) != 0;
    return all;
}

/* Subtracts elements that were left out, and added as -0, from the parts' counts. Elements that a
 * mask leaves out are counted only where the count is used: as a divisor, or to know whether the
 * sum has any elements so far. */
static void uncount(const exact_job *work, uint64_t row, uint64_t at, uint64_t count,
                    uint64_t left_out, gpr_exact_part *parts)
{
    const gpr_view *view = work->view;
    int is_asked = work->counts_mask;

    for (int p = 0; p < work->components; p++) is_asked |= gpr_exact_may_be_nothing(&parts[p]);
    if (view->mask != NULL && is_asked)
        left_out += gpr_count_left_out(view, row * view->n + at, count);
    for (int p = 0; p < work->components; p++) parts[p].count -= left_out;
}

static void add_elements(exact_job *work, uint64_t row, uint64_t first, uint64_t end,
                         exact_memory *memory, gpr_exact_part *parts)
{
    const int makes_result = work->rule != NULL; /* not a state, which has the other elements */
    exact_adder how[GPR_EXACT_PARTS];
    const void *components[GPR_EXACT_PARTS];

    for (int p = 0; p < work->components; p++) {
        gpr_exact_clear(&parts[p], work->sum);
        how[p] =
            gpr_cpu_exact_adder(&parts[p], gpr_real_dtype(work->view->dtype), tiles_of(memory));
        how[p].ends_at_nan = makes_result;
    }
    for (uint64_t at = first; at < end && !must_stop(work, first, at); at += work->tile) {
        const uint64_t count = gpr_smaller(end - at, work->tile),
                       nan = read_tile(work, row, at, count, elements_of(memory), components);

        for (int p = 0; p < work->components; p++) gpr_cpu_add_tile(&how[p], components[p], count);
        uncount(work, row, at, count, nan, parts);
        if (makes_result && are_nan(parts, work->components)) break;
    }
}

/* Adds elements to a part per component, and the squares of all components to one more. */
static void add_elements_and_squares(exact_job *work, uint64_t row, uint64_t first, uint64_t end,
                                     exact_memory *memory, gpr_exact_part *parts)
{
    const gpr_dtype real = gpr_real_dtype(work->view->dtype);
    gpr_exact_part *squares = &parts[work->components];
    exact_adder how[GPR_EXACT_PARTS];
    product_adder square;
    const void *components[GPR_EXACT_PARTS];

    for (int p = 0; p < work->components; p++) {
        gpr_exact_clear(&parts[p], work->sum);
        how[p] = gpr_cpu_exact_adder(&parts[p], real, tiles_of(memory));
    }
    gpr_exact_clear_products(squares, real);
    square = gpr_cpu_product_adder(squares, real, tiles_of(memory));
    for (uint64_t at = first; at < end && !must_stop(work, first, at); at += work->tile) {
        const uint64_t count = gpr_smaller(end - at, work->tile),
                       nan = read_tile(work, row, at, count, elements_of(memory), components);

        for (int p = 0; p < work->components; p++) {
            gpr_cpu_add_tile(&how[p], components[p], count);
            gpr_cpu_add_products(&square, components[p], components[p], count);
        }
        uncount(work, row, at, count, nan, parts);
    }
}

/* Changes the signs of floats. */
static void negate(size_t bytes, void *elements, uint64_t count)
{
    uint32_t *b32 = elements;
    uint64_t *b64 = elements;

    for (uint64_t i = 0; i < count; i++) {
        if (bytes == sizeof *b32)
            b32[i] ^= UINT32_C(1) << 31;
        else
            b64[i] ^= UINT64_C(1) << 63;
    }
}

/* Adds the products of two complex numbers each: a c - b d and a d + b c, or with a - b i for
 * a + b i. Changes signs in x. */
static void add_complex_products(const exact_job *work, product_adder *how, const void *const *x,
                                 const void *const *y, uint64_t count, factor_stage *of_x)
{
    const size_t bytes = gpr_part_bytes(work->factors.dtype);

    gpr_cpu_add_products(&how[0], x[0], y[0], count);
    gpr_cpu_add_products(&how[1], x[0], y[1], count);
    gpr_cpu_add_products(&how[work->factors.conjugates ? 0 : 1], x[1],
                         y[work->factors.conjugates ? 1 : 0], count);
    negate(bytes, of_x->split[1], count);
    gpr_cpu_add_products(&how[work->factors.conjugates ? 1 : 0], x[1],
                         y[work->factors.conjugates ? 0 : 1], count);
}

/* Adds the products of a row. */
static void add_products(exact_job *work, uint64_t row, uint64_t first, uint64_t end,
                         exact_memory *memory, gpr_exact_part *parts)
{
    const gpr_dtype real = gpr_real_dtype(work->factors.dtype);
    product_adder how[GPR_EXACT_PARTS];
    const void *x[GPR_EXACT_PARTS], *y[GPR_EXACT_PARTS];
    factor_stage *const of_x = &memory->factors[0], *const of_y = &memory->factors[1];

    for (int p = 0; p < work->components; p++) {
        gpr_exact_clear_products(&parts[p], real);
        how[p] = gpr_cpu_product_adder(&parts[p], real, tiles_of(memory));
    }
    for (uint64_t at = first; at < end && !must_stop(work, first, at); at += work->tile) {
        const uint64_t count = gpr_smaller(end - at, work->tile);

        gpr_cpu_read_factors(&work->factors, work->view, row, at, count, of_x, x);
        if (work->factors.products == GPR_PRODUCTS) {
            gpr_cpu_read_factors(&work->factors, work->factors.second, row, at, count, of_y, y);
        } else if (work->factors.products == GPR_SQUARES) {
            y[0] = x[0];
        } else {
            gpr_cpu_read_signs(work->factors.dtype, x[0], count, of_y->converted);
            y[0] = of_y->converted;
        }
        if (work->components == 1)
            gpr_cpu_add_products(&how[0], x[0], y[0], count);
        else
            add_complex_products(work, how, x, y, count, of_x);
    }
}

/* ---------------------------------------------------------------- tasks ---------------------- */

static void finish_row(const exact_job *work, uint64_t row, gpr_exact_part *parts)
{
    char *result = work->result + row * gpr_dtype_bytes(work->rule->result);

    for (int p = 0; p < work->width && work->repeats > 1; p++)
        gpr_exact_repeat(&parts[p], work->repeats);
    if (work->factors.divisors != NULL)
        gpr_cpu_finish_quotient(&work->factors, row, work->rule, parts, result);
    else
        gpr_finish_exact(work->rule, parts, result);
}

/* Adds a whole row exactly, and finishes it. 0 if the task has to stop. */
static int add_row(exact_job *work, uint64_t row, exact_memory *memory)
{
    gpr_exact_part parts[GPR_EXACT_MOST_PARTS];

    work->add(work, row, 0, work->view->n, memory, parts);
    if (work->stop.stopped) return 0;
    finish_row(work, row, parts);
    return 1;
}

/* First element of a piece of a row; of the piece after the last, the row's end. Each piece is
 * shorter than the one before, by the same number of tiles, and the last one is nearly empty: the
 * cores that work on the last pieces end at nearly the same time, however many cores there are. */
static uint64_t piece_start(const exact_job *work, uint64_t piece)
{
    const uint64_t left = work->pieces - piece, tiles = gpr_divide_up(work->view->n, work->tile);
    const unsigned __int128 behind =
        (unsigned __int128)tiles * left * left / (work->pieces * work->pieces);

    return gpr_smaller((tiles - (uint64_t)behind) * work->tile, work->view->n);
}

static uint64_t rows_in_pieces(const exact_job *work)
{
    return work->chosen != NULL ? work->chosen_rows : work->view->rows;
}

static uint64_t row_in_pieces(const exact_job *work, uint64_t index)
{
    return work->chosen != NULL ? work->chosen[index] : index;
}

/* A task: adds a piece of a row, or finishes some whole rows. */
static void add_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    const gpr_view *view = work->view;

    if (work->parts != NULL) {
        const uint64_t piece = index % work->pieces;

        if (gpr_cpu_must_stop(&work->stop)) return;
        work->add(work, row_in_pieces(work, index / work->pieces), piece_start(work, piece),
                  piece_start(work, piece + 1), memory,
                  work->parts + index * (uint64_t)work->width);
        return;
    }
    for (uint64_t row = index * work->per_task;
         row < gpr_smaller(view->rows, (index + 1) * work->per_task); row++) {
        if (must_stop_at(work, row) || !add_row(work, row, memory)) return;
    }
}

static int task_as_ieee(void *context, uint64_t index, void *memory)
{
    exact_job *work = context;
    const gpr_float_environment before = enter_ieee();

    work->task(work, index, memory);
    leave_ieee(before);
    return !work->stop.stopped && !work->given_up;
}

/* Sets how much memory a task needs, from what has been decided of the job. */
static void find_memory(exact_job *work)
{
    const gpr_dtype_row *row = &gpr_dtype_rows[work->view->dtype];

    if (work->task != add_task || work->add != add_elements || !reads_in_place(work))
        work->memory = sizeof(exact_memory);
    else if (row->kind == GPR_KIND_FLOAT && row->bytes < sizeof(float))
        work->memory = sizeof(tile_memory); /* they are widened */
}

/* Runs the task that is the whole job. */
static gpr_status run_one_task(exact_job *work)
{
    void *memory;
    gpr_status status = GPR_OK;

    find_memory(work);
    GPR_TRY(gpr_cpu_take_memory(work->memory, &memory));
    (void)task_as_ieee(work, 0, memory);
    gpr_cpu_give_memory(memory);
done:
    return status;
}

/* Reading and the bins of tiles, or the words of products. */
double gpr_cpu_exact_nanoseconds(const gpr_view *view, gpr_acc_kind kind)
{
    const double per_element = kind == GPR_ACC_EXACT ? 0.2 : 1.0;
    const int in_place = view->rows_contiguous ||
                         (gpr_cpu_lies_crosswise(view) && gpr_cpu_columns_in_place(view)),
              is_staged = !in_place || view->mask != NULL;

    return (double)view->rows * (double)view->n * per_element +
           gpr_cpu_nanoseconds_to_read(view, is_staged);
}

static double nanoseconds_alone(const exact_job *work)
{
    const double per_product = 0.3, per_result = 1.5;
    const gpr_view *view = work->view;

    if (work->has_bounds)
        return (double)view->rows * ((double)view->n * per_product + per_result) +
               gpr_cpu_nanoseconds_to_read(view, view->dtype != work->factors.dtype);
    return gpr_cpu_exact_nanoseconds(work->view, work->add == add_elements ? GPR_ACC_EXACT
                                                                           : GPR_ACC_EXACT_MOMENTS);
}

/* Runs tasks, by as many threads as they are worth. */
static gpr_status run_tasks(exact_job *work, uint64_t tasks)
{
    uint32_t threads;

    find_memory(work);
    return gpr_cpu_run_tasks(nanoseconds_alone(work), tasks, task_as_ieee, work, work->memory,
                             &threads);
}

static exact_job make_job(const gpr_view *view, gpr_dtype sum, int (*interrupted)(void *),
                          void *interrupted_arg)
{
    exact_job work = {.view = view,
                      .repeats = 1,
                      .sum = sum,
                      .add = add_elements,
                      .task = add_task,
                      .neutral = gpr_neutral_element(GPR_FOLD_exact, view->dtype),
                      .pieces = 1};

    work.components = work.width = gpr_exact_parts(view->dtype);
    work.tile = GPR_EXACT_TILE / (uint64_t)work.components;
    gpr_cpu_watch(&work.stop, interrupted, interrupted_arg);
    return work;
}

/* Adds the rows' pieces, a task each, and merges those of each row into the parts of its first
 * piece. */
static gpr_status add_pieces(exact_job *work)
{
    const uint64_t width = (uint64_t)work->width, rows = rows_in_pieces(work);
    gpr_status status = GPR_OK;

    work->pieces = gpr_smaller(gpr_divide_up(work->view->n, LEAST_TASK), MOST_TASKS);
    const uint64_t tasks = rows * work->pieces;
    work->parts = malloc(tasks * width * sizeof *work->parts);
    if (work->parts == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial sums of %llu tasks",
                        (unsigned long long)tasks);
    status = run_tasks(work, tasks);
    for (uint64_t row = 0; status == GPR_OK && row < rows && !gpr_cpu_must_stop(&work->stop);
         row++) {
        gpr_exact_part *first = work->parts + row * work->pieces * width;

        for (uint64_t i = width; i < work->pieces * width && status == GPR_OK; i++)
            status = gpr_exact_add_part(&first[i % width], &first[i]);
    }
    return status;
}

/* ---------------------------------------------------------------- rows side by side ---------- */

/* Whether sums of rows become results side by side: there are several, short or crosswise ones,
 * and each result is of all elements. */
static int has_paired_rows(const exact_job *work)
{
    const gpr_view *view = work->view;

    return work->rule->acc_kind == GPR_ACC_EXACT && gpr_cpu_has_pairs(view->dtype) &&
           !work->counts_mask && view->rows > 1 &&
           (view->n <= PAIRED_ELEMENTS || gpr_cpu_lies_crosswise(view));
}

/* A task: finishes some units of short rows. Rows whose sum is no pair of doubles are added by
 * tiles. */
static void unit_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    const gpr_view *view = work->view;
    const size_t bytes = gpr_dtype_bytes(work->rule->result);
    const uint64_t end = gpr_smaller(work->units.count, (index + 1) * work->per_task);
    gpr_exact_part parts[GPR_EXACT_MOST_PARTS];
    uint8_t hold[PAIR_LANES];
    exact_pairs pairs;

    for (uint64_t unit = index * work->per_task; unit < end; unit++) {
        uint64_t rows;
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows);

        if (gpr_cpu_must_stop(&work->stop)) return;
        gpr_cpu_sum_pairs(view, row, rows, 0, view->n, &memory->pairs, &pairs);
        gpr_cpu_pairs_hold(&pairs, rows, view->mask != NULL, hold);
        gpr_cpu_finish_pairs(&pairs, work->rule, rows, view->n, work->result + row * bytes, hold);
        for (uint64_t r = 0; r < rows; r++) {
            if (hold[r]) continue;
            work->add(work, row + r, 0, view->n, memory, parts);
            finish_row(work, row + r, parts);
        }
    }
}

/* The parts of a piece of a unit's rows, of which there is room for units.rows. */
static gpr_exact_part *unit_parts(const exact_job *work, uint64_t unit, uint64_t piece,
                                  uint64_t row)
{
    return work->parts +
           (((unit * work->pieces) + piece) * work->units.rows + row) * (uint64_t)work->width;
}

/* A task: adds a piece of a unit of long rows that are columns of memory. */
static void unit_piece_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    const uint64_t unit = index / work->pieces, piece = index % work->pieces;
    const uint64_t end = gpr_smaller((piece + 1) * work->length, work->view->n);
    exact_pairs pairs;
    uint8_t hold[PAIR_LANES];
    uint64_t rows;
    const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows);

    for (uint64_t i = 0; i < rows * (uint64_t)work->width; i++)
        gpr_exact_clear(&unit_parts(work, unit, piece, 0)[i], work->sum);
    for (uint64_t at = piece * work->length; at < end; at += PAIRED_ELEMENTS) {
        const uint64_t until = gpr_smaller(end, at + PAIRED_ELEMENTS);

        if (gpr_cpu_must_stop(&work->stop)) return;
        gpr_cpu_sum_pairs(work->view, row, rows, at, until, &memory->pairs, &pairs);
        gpr_cpu_pairs_hold(&pairs, rows, work->view->mask != NULL, hold);
        for (uint64_t r = 0; r < rows; r++) {
            gpr_exact_part *parts = unit_parts(work, unit, piece, r), others[GPR_EXACT_MOST_PARTS];

            if (hold[r]) {
                gpr_cpu_add_pairs(&pairs, r, until - at, parts);
                continue;
            }
            work->add(work, row + r, at, until, memory, others);
            for (int p = 0; p < work->width; p++)
                (void)gpr_exact_add_part(&parts[p], &others[p]); /* counts fit an array's */
        }
    }
}

/* Adds long rows that are columns of memory, in pieces. */
static gpr_status reduce_unit_pieces(exact_job *work)
{
    const uint64_t least_length = 4 * PAIRED_ELEMENTS,
                   wanted = gpr_divide_up(MOST_TASKS, work->units.count);
    gpr_status status = GPR_OK;

    work->pieces = gpr_smaller(gpr_divide_up(work->view->n, least_length), wanted);
    work->length = gpr_divide_up(gpr_divide_up(work->view->n, work->pieces), PAIRED_ELEMENTS) *
                   PAIRED_ELEMENTS;
    work->pieces = gpr_divide_up(work->view->n, work->length);
    const uint64_t tasks = work->units.count * work->pieces;
    work->parts = malloc(tasks * work->units.rows * (uint64_t)work->width * sizeof *work->parts);
    if (work->parts == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial sums of %llu tasks",
                        (unsigned long long)tasks);
    work->task = unit_piece_task;
    status = run_tasks(work, tasks);
    for (uint64_t unit = 0;
         status == GPR_OK && unit < work->units.count && !gpr_cpu_must_stop(&work->stop); unit++) {
        uint64_t rows;
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows);

        for (uint64_t r = 0; r < rows && status == GPR_OK; r++) {
            gpr_exact_part *whole = unit_parts(work, unit, 0, r);

            for (uint64_t piece = 1; piece < work->pieces; piece++) {
                for (int p = 0; p < work->width && status == GPR_OK; p++)
                    status = gpr_exact_add_part(&whole[p], &unit_parts(work, unit, piece, r)[p]);
            }
            if (status == GPR_OK) finish_row(work, row + r, whole);
        }
    }
    free(work->parts);
    return status;
}

static gpr_status reduce_side_by_side(exact_job *work)
{
    const gpr_view *view = work->view;

    work->units = gpr_cpu_cut_units(view, gpr_cpu_paired_rows(view->dtype));
    if (view->n > PAIRED_ELEMENTS) return reduce_unit_pieces(work);
    work->task = unit_task;
    work->per_task = work->units.count / MOST_TASKS + 1;
    return run_tasks(work, gpr_divide_up(work->units.count, work->per_task));
}

/* ---------------------------------------------------------------- plain sums ----------------- */

/* What a task has learned from blocks of elements: after a block whose plain sum was rounded the
 * next ones are added as pairs at once, for longer each time. */
typedef struct experience {
    uint64_t blocks, spoilt;
    uint64_t patience, skipped;
    uint64_t added; /* elements since the last check whether to stop */
} experience;

/* Adds elements [first, end) of rows as pairs, to those of `all` lanes from `lane` on. */
static void add_as_pairs(const exact_job *work, uint64_t row, uint64_t rows, uint64_t first,
                         uint64_t end, pair_memory *memory, plain_pairs *pairs, uint64_t lane,
                         uint64_t all)
{
    const gpr_view *view = work->view;
    const uint64_t components = work->plain->components, most = PAIR_LANES / components;
    const uint64_t extent = gpr_cpu_lies_crosswise(view) && view->n >= PAIR_SHORT_ROW
                                ? view->axes[view->outer - 1].extent
                                : UINT64_MAX;
    const int are_first = pairs->lanes == 0 && rows * components == all;
    exact_pairs some;

    for (uint64_t at = first; at < end; at += PAIRED_ELEMENTS) {
        for (uint64_t r = 0, few; r < rows; r += few) {
            few = gpr_smaller(gpr_smaller(rows - r, most), extent - (row + r) % extent);

            gpr_cpu_sum_pairs(view, row + r, few, at, gpr_smaller(end, at + PAIRED_ELEMENTS),
                              memory, &some);
            if (are_first && at == first)
                gpr_cpu_copy_pairs(pairs, lane + r * components, &some, few * components, all);
            else
                gpr_cpu_merge_pairs(pairs, lane + r * components, &some, few * components, all);
        }
    }
}

/* Adds elements [first, end) of `few` rows of a unit from row r on. Returns 0, with the pairs
 * unchanged, if an addition was rounded. */
static int add_plainly(const exact_job *work, uint64_t row, uint64_t rows, uint64_t r, uint64_t few,
                       uint64_t first, uint64_t end, exact_memory *memory, plain_pairs *pairs)
{
    const uint64_t components = work->plain->components;
    exact_pairs some;

    if (few == rows)
        return gpr_cpu_sum_plain(work->plain, row, rows, first, end, &memory->plain, pairs);
    if (!gpr_cpu_sum_few_plain(work->plain, row + r, few, first, end, &memory->plain, &some))
        return 0;
    gpr_cpu_merge_pairs(pairs, r * components, &some, few * components, rows * components);
    return 1;
}

/* Sums elements [first, end) of a unit's rows. Returns 0 where another way is quicker. */
static int sum_blocks(exact_job *work, uint64_t row, uint64_t rows, uint64_t first, uint64_t end,
                      exact_memory *memory, experience *seen, plain_pairs *pairs)
{
    const int is_long = !gpr_cpu_lies_crosswise(work->view) && work->view->n > PAIRED_ELEMENTS;
    const uint64_t components = work->plain->components;

    gpr_cpu_clear_plain(pairs);
    for (uint64_t at = first; at < end; at += work->block) {
        const uint64_t until = gpr_smaller(end, at + work->block);

        if (seen->added > ASK_ELEMENTS && gpr_cpu_must_stop(&work->stop)) return 1;
        if (seen->added > ASK_ELEMENTS) seen->added = 0;
        if (atomic_load_explicit(&work->given_up, memory_order_relaxed)) return 0;
        seen->added += (until - at) * rows;
        gpr_cpu_count_plain(work->plain, row, rows, at, until, &memory->plain, pairs);
        for (uint64_t r = 0, few; r < rows; r += few) {
            few = gpr_smaller(rows - r, work->block_rows);
            seen->blocks++;
            if (seen->skipped > 0) {
                seen->skipped--;
            } else if (add_plainly(work, row, rows, r, few, at, until, memory, pairs)) {
                if (seen->patience > 1) seen->patience--;
                continue;
            } else if (is_long) {
                if (++seen->spoilt > SPOILT_AT_FIRST + seen->blocks / MOST_SPOILT) return 0;
            } else {
                seen->skipped = seen->patience;
                seen->patience = gpr_smaller(2 * seen->patience, MOST_PATIENCE);
            }
            add_as_pairs(work, row + r, few, at, until, &memory->pairs, pairs, r * components,
                         rows * components);
        }
    }
    return 1;
}

/* Finishes row r of a unit, which begins at `row`, from the sums of its pieces, where their sum is
 * more than a pair holds. Pieces whose own sum is, too, are read again: 0 if these are too many for
 * a task. Not inlined: its parts would enlarge the frame of every call. */
static __attribute__((noinline)) int finish_from_pieces(exact_job *work, uint64_t row, uint64_t r,
                                                        const plain_pairs *pieces,
                                                        exact_memory *memory)
{
    const uint64_t components = work->plain->components;
    gpr_exact_part parts[GPR_EXACT_PARTS], of_piece[GPR_EXACT_PARTS];
    uint64_t again = 0;

    for (uint64_t p = 0; p < components; p++) gpr_exact_clear(&parts[p], work->sum);
    for (uint64_t i = 0; i < work->pieces; i++) {
        const uint64_t first = i * work->length,
                       end = gpr_smaller(work->view->n, first + work->length);

        if (gpr_cpu_add_plain(&pieces[i], r, components, end - first, parts)) continue;
        if (++again > work->pieces / MOST_READ_AGAIN) return 0;
        work->add(work, row + r, first, end, memory, of_piece);
        for (uint64_t p = 0; p < components; p++) /* a row has fewer elements than parts take */
            (void)gpr_exact_add_part(&parts[p], &of_piece[p]);
    }
    finish_row(work, row + r, parts);
    return 1;
}

/* Stores the results of a unit's rows. Rows whose pairs are not their sum are added by tiles here,
 * long ones by the caller, if their pieces do not give them. */
static void finish_unit(exact_job *work, uint64_t row, uint64_t rows, exact_memory *memory,
                        const plain_pairs *pairs, const plain_pairs *pieces)
{
    const gpr_view *view = work->view;
    const size_t bytes = gpr_dtype_bytes(work->rule->result);
    gpr_exact_part parts[GPR_EXACT_MOST_PARTS];
    uint8_t hold[PLAIN_LANES];

    if (gpr_cpu_finish_plain(pairs, work->plain, work->rule, rows, view->n,
                             work->result + row * bytes, hold))
        return;
    for (uint64_t r = 0; r < rows; r++) {
        if (hold[r]) continue;
        if (pieces != NULL && finish_from_pieces(work, row, r, pieces, memory)) continue;
        if (view->n > LEAST_TASK) {
            atomic_store_explicit(&work->given_up, 1, memory_order_relaxed);
            return;
        }
        work->add(work, row + r, 0, view->n, memory, parts);
        finish_row(work, row + r, parts);
    }
}

/* A task: finishes some units, or sums a piece of one. */
static void plain_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    experience seen = {.patience = 1};
    uint64_t rows;

    if (gpr_cpu_must_stop(&work->stop)) return;
    if (work->pairs != NULL) {
        const uint64_t first = index % work->pieces * work->length;
        const uint64_t row = gpr_cpu_unit_row(&work->units, index / work->pieces, &rows);

        if (!sum_blocks(work, row, rows, first, gpr_smaller(work->view->n, first + work->length),
                        memory, &seen, &work->pairs[index]))
            atomic_store_explicit(&work->given_up, 1, memory_order_relaxed);
        return;
    }
    for (uint64_t unit = index * work->per_task;
         unit < gpr_smaller(work->units.count, (index + 1) * work->per_task); unit++) {
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows);

        if (!sum_blocks(work, row, rows, 0, work->view->n, memory, &seen, &memory->sums))
            atomic_store_explicit(&work->given_up, 1, memory_order_relaxed);
        if (work->stop.stopped || work->given_up) return;
        finish_unit(work, row, rows, memory, &memory->sums, NULL);
    }
}

/* Merges the pieces of each unit and finishes its rows. */
static void finish_units_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    (void)index;
    for (uint64_t unit = 0; unit < work->units.count && !work->given_up; unit++) {
        if (gpr_cpu_must_stop(&work->stop)) return;
        uint64_t rows;
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows);
        const plain_pairs *pieces = &work->pairs[unit * work->pieces];
        plain_pairs *whole = &memory->sums;

        gpr_cpu_copy_plain(whole, pieces, rows);
        for (uint64_t piece = 1; piece < work->pieces; piece++)
            gpr_cpu_merge_plain(whole, &pieces[piece], rows, &memory->plain);
        finish_unit(work, row, rows, memory, whole, pieces);
    }
}

/* Cuts rows into units, and these into pieces where they are few. */
static void cut_plain(exact_job *work, plain_adder *plain)
{
    const gpr_view *view = work->view;
    const recipe *sum = &plain->work.how[0];
    uint64_t least_length = LEAST_TASK;

    work->block_rows = PLAIN_LANES;
    if (gpr_cpu_lies_crosswise(view)) {
        work->units = gpr_cpu_cut_plain_columns(plain);
        work->block =
            gpr_smaller(PLAIN_BLOCK / work->units.rows, PAIRED_ELEMENTS * plain->work.copies);
        least_length = LEAST_POSITIONS * (plain->work.copies > 1 ? 16 : 1);
    } else if (gpr_cpu_reads_layers(sum)) {
        const uint64_t run = gpr_cpu_run_of(sum), most = PLAIN_BYTES / view->bytes;

        work->units = gpr_cpu_cut_layers(sum);
        work->block = run < most ? gpr_divide_up(most, work->units.rows * run) * run : most;
        work->block_rows = gpr_smaller(PAIR_LANES / plain->components, 1 + most / work->block);
    } else {
        work->units = gpr_cpu_cut_units(
            view, gpr_smaller(PLAIN_LANES / plain->components, 1 + LEAST_TASK / view->n));
        work->block = view->n <= PAIRED_ELEMENTS ? view->n : PLAIN_BYTES / view->bytes;
    }
    work->pieces = 1;
    if (work->units.count < FEW_TASKS) {
        if (gpr_cpu_threads_for(nanoseconds_alone(work)) == 1) least_length = LONG_PIECE;
        work->pieces = gpr_smaller(gpr_divide_up(view->n, least_length),
                                   gpr_divide_up(MOST_TASKS / 4, work->units.count));
    }
    work->length = gpr_divide_up(view->n, work->pieces);
    work->pieces = gpr_divide_up(view->n, work->length);
}

/* Adds rows of floats whose elements all count as plain sums and as pairs. Sets *is_done to 0 where
 * that takes more time than tiles, or some results are not rounded from pairs. */
static gpr_status reduce_plain(exact_job *work, plain_adder *plain, int *is_done)
{
    gpr_status status = GPR_OK;
    uint64_t tasks;

    work->plain = plain;
    work->task = plain_task;
    cut_plain(work, plain);
    if (work->pieces > 1) {
        tasks = work->units.count * work->pieces;
        work->pairs = aligned_alloc(_Alignof(plain_pairs), tasks * sizeof *work->pairs);
        if (work->pairs == NULL)
            return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial sums of %llu tasks",
                            (unsigned long long)tasks);
    } else {
        work->per_task =
            1 + work->units.count / MOST_TASKS + LEAST_TASK / (work->units.rows * work->view->n);
        tasks = gpr_divide_up(work->units.count, work->per_task);
    }
    status = run_tasks(work, tasks);
    if (status == GPR_OK && work->pairs != NULL && !work->stop.stopped && !work->given_up) {
        work->task = finish_units_task;
        status = run_one_task(work);
    }
    free(work->pairs);
    work->pairs = NULL;
    *is_done = !work->given_up;
    atomic_init(&work->given_up, 0);
    work->pieces = 1;
    work->task = add_task;
    work->memory = 0;
    return status;
}

static gpr_status interrupted_or(const exact_job *work, gpr_status status)
{
    if (status == GPR_OK && work->stop.stopped)
        return gpr_fail(GPR_ERROR_INTERRUPTED, "the exact sum was interrupted");
    return status;
}

/* ---------------------------------------------------------------- rows of one or two ---------- */

/* Copies numbers as sums of one each: -0 becomes 0, as sums start there, and all NaN are alike. */
static void copy_sums_16(const uint16_t *numbers, uint64_t count, const gpr_dtype_row *row,
                         uint16_t *sums)
{
    const int16_t infinite = (int16_t)(((1 << row->exponent) - 1) << row->fraction),
                  nan = (int16_t)(infinite | 1 << (row->fraction - 1));

    for (uint64_t i = 0; i < count; i++) {
        const int16_t bits = (int16_t)numbers[i], magnitude = bits & INT16_MAX;
        const int16_t number = magnitude == 0 ? 0 : bits;

        sums[i] = (uint16_t)(magnitude > infinite ? nan : number);
    }
}

static void copy_sums_32(const float *numbers, uint64_t count, float *sums)
{
    int has_nan = 0;

    for (uint64_t i = 0; i < count; i++) {
        const float sum = numbers[i] + 0.0F;

        sums[i] = sum;
        has_nan |= sum != sum;
    }
    for (uint64_t i = 0; i < count && has_nan; i++)
        if (isnan(sums[i])) sums[i] = NAN;
}

/* The same without NaN, whose sum is 0. */
#define DEFINE_SKIP_NAN(name, T)                                           \
    static void skip_nan_##name(const T *numbers, uint64_t count, T *sums) \
    {                                                                      \
        for (uint64_t i = 0; i < count; i++) {                             \
            const T sum = numbers[i] + 0;                                  \
            sums[i] = sum == sum ? sum : 0;                                \
        }                                                                  \
    }
DEFINE_SKIP_NAN(32, float)
DEFINE_SKIP_NAN(64, double)

static void copy_sums(gpr_dtype real, const void *numbers, uint64_t count, int skips_nan,
                      void *sums)
{
    const gpr_dtype_row *row = &gpr_dtype_rows[real];
    const gpr_narrow_format any = {0};

    switch (row->bytes) {
    case 2: copy_sums_16(numbers, count, row, sums); break;
    case 4: (skips_nan ? skip_nan_32 : copy_sums_32)(numbers, count, sums); break;
    default:
        if (skips_nan)
            skip_nan_64(numbers, count, sums);
        else
            (void)gpr_cpu_loops()->round_sums(numbers, NULL, 1, count, &any, 0, sums);
        break;
    }
}

/* Whether rows have one element each, which is the sum but for its sign or what kind of NaN it is,
 * and the mean. */
static int sums_singly(const exact_job *work)
{
    const gpr_view *view = work->view;

    return view->n == 1 && view->inner == 0 && view->mask == NULL && work->repeats == 1 &&
           work->rule->acc_kind == GPR_ACC_EXACT && work->rule->result == view->dtype &&
           gpr_is_inexact(view->dtype);
}

/* A task: makes results of some rows of one element. */
static void single_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    const gpr_view *view = work->view;
    const uint64_t end = gpr_smaller(view->rows, (index + 1) * work->per_task);
    const gpr_dtype real = gpr_real_dtype(view->dtype);
    const int skips_nan = work->skip_nan && !work->rule->divide, is_complex = work->components > 1,
              replaces_nan = work->skip_nan && (is_complex || (skips_nan && view->bytes == 2));
    const float none32[GPR_EXACT_PARTS] = {NAN, NAN};
    const double none64[GPR_EXACT_PARTS] = {NAN, NAN};
    const gpr_value zero = {.bytes = {0}};
    const void *neutral = zero.bytes;
    char *packed = memory->elements.packed;
    uint64_t some;

    /* A complex number is NaN if one of its parts is, and both parts of the mean are, then. */
    if (!skips_nan) neutral = view->dtype == GPR_COMPLEX64 ? (const void *)none32 : none64;
    for (uint64_t row = index * work->per_task; row < end; row += some) {
        const char *elements = packed;
        some = gpr_smaller(end - row, sizeof memory->elements.packed / view->bytes);
        if (gpr_cpu_must_stop(&work->stop)) return;
        if (view->contiguous && !replaces_nan)
            elements = view->data + row * view->bytes;
        else
            gpr_cpu_pack(view, row, some, NULL, packed);
        if (replaces_nan) gpr_cpu_replace_nan(view->dtype, packed, some, neutral);
        copy_sums(real, elements, some * (uint64_t)work->components, skips_nan,
                  work->result + row * view->bytes);
    }
}

static gpr_status reduce_singly(exact_job *work)
{
    work->task = single_task;
    work->per_task = LEAST_TASK;
    return interrupted_or(work, run_tasks(work, gpr_divide_up(work->view->rows, LEAST_TASK)));
}

/* Sums of two numbers each: one addition rounds an exact sum. */
#define DEFINE_ADD_TWO(bits, T)                                                          \
    static void add_two_##bits(const T *first, const T *second, uint64_t count, T *sums) \
    {                                                                                    \
        int has_nan = 0;                                                                 \
        for (uint64_t i = 0; i < count; i++) {                                           \
            const T both = first[i] + second[i], sum = both + 0; /* none is -0 */        \
            sums[i] = sum;                                                               \
            has_nan |= sum != sum;                                                       \
        }                                                                                \
        for (uint64_t i = 0; i < count && has_nan; i++)                                  \
            if (isnan(sums[i])) sums[i] = (T)NAN;                                        \
    }
DEFINE_ADD_TWO(32, float)
DEFINE_ADD_TWO(64, double)

/* Whether rows are two elements each that lie crosswise, many side by side. */
static int adds_two(const exact_job *work)
{
    enum { LEAST_WIDTH = 64 };
    const gpr_view *view = work->view;

    return view->n == 2 && view->inner == 1 && gpr_cpu_lies_crosswise(view) &&
           gpr_cpu_columns_in_place(view) && view->axes[view->outer - 1].extent >= LEAST_WIDTH &&
           !work->skip_nan && work->repeats == 1 && work->rule->acc_kind == GPR_ACC_EXACT &&
           !work->rule->divide && work->rule->result == view->dtype &&
           gpr_part_bytes(view->dtype) >= sizeof(float) && gpr_is_inexact(view->dtype);
}

/* A task: adds both elements of rows of some units. */
static void two_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    const gpr_view *view = work->view;
    const uint64_t end = gpr_smaller(work->units.count, (index + 1) * work->per_task);

    (void)memory;
    for (uint64_t unit = index * work->per_task; unit < end; unit++) {
        uint64_t rows;
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows),
                       count = rows * (uint64_t)work->components;
        void *sums = work->result + row * view->bytes;
        gpr_view at;

        gpr_cpu_locate(view, row, 0, &at);
        const void *first = at.data, *second = at.data + view->axes[view->outer].in;
        if (gpr_part_bytes(view->dtype) == sizeof(float))
            add_two_32(first, second, count, sums);
        else
            add_two_64(first, second, count, sums);
    }
}

static gpr_status reduce_twos(exact_job *work)
{
    work->task = two_task;
    work->units = gpr_cpu_cut_units(work->view, LEAST_TASK);
    work->per_task = 1 + LEAST_TASK / work->units.rows;
    return interrupted_or(work, run_tasks(work, gpr_divide_up(work->units.count, work->per_task)));
}

/* ---------------------------------------------------------------- the calls ------------------ */

/* Adds the only row to its parts. In IEEE 754's environment from here on: even the estimate of the
 * time may be inexact, and a program's own environment could trap it. */
static gpr_status add_one_row(exact_job *work, gpr_exact_part *parts)
{
    const gpr_float_environment before = enter_ieee();
    gpr_status status = GPR_OK;

    if (gpr_cpu_threads_now(nanoseconds_alone(work)) > 1) {
        status = add_pieces(work);
        if (status == GPR_OK) memcpy(parts, work->parts, (size_t)work->width * sizeof *parts);
        free(work->parts);
    } else {
        work->parts = parts;
        status = run_one_task(work);
    }
    leave_ieee(before);
    return interrupted_or(work, status);
}

gpr_status gpr_cpu_add_exactly(const gpr_view *view, int (*interrupted)(void *),
                               void *interrupted_arg, gpr_exact_part *part)
{
    const uint64_t repeats = gpr_cpu_repeats(view, NULL, GPR_CPU_LEAST_ADDED);
    gpr_view once;
    const uint64_t times = repeats != 0 ? gpr_view_once(view, repeats, &once) : 1;
    exact_job work = make_job(times > 1 ? &once : view, part->dtype, interrupted, interrupted_arg);
    gpr_status status = add_one_row(&work, part);

    for (int p = 0; p < work.width && times > 1 && status == GPR_OK; p++)
        gpr_exact_repeat(&part[p], times);
    return status;
}

/* Runs work->task over rows that are not cut. */
static gpr_status run_whole_rows(exact_job *work, int is_parallel)
{
    const gpr_view *view = work->view;

    if (!is_parallel) {
        work->per_task = view->rows;
        return run_one_task(work);
    }
    work->per_task = view->rows / MOST_TASKS + 1;
    return run_tasks(work, gpr_divide_up(view->rows, work->per_task));
}

/* Adds whole rows, or pieces of them, and finishes them. */
static gpr_status finish_rows(exact_job *work)
{
    const gpr_view *view = work->view;
    const int is_parallel = gpr_cpu_threads_now(nanoseconds_alone(work)) > 1;
    gpr_status status = GPR_OK;

    if (work->chosen != NULL || (is_parallel && view->rows < MOST_TASKS && view->n > LEAST_TASK)) {
        status = add_pieces(work);
        for (uint64_t i = 0; i < rows_in_pieces(work) && status == GPR_OK && !work->stop.stopped;
             i++)
            finish_row(work, row_in_pieces(work, i),
                       work->parts + i * work->pieces * (uint64_t)work->width);
        free(work->parts);
    } else {
        status = run_whole_rows(work, is_parallel);
    }
    return interrupted_or(work, status);
}

/* Sums a row's products with a bound on the error. */
static product_sums sum_products(exact_job *work, uint64_t row, uint64_t first, uint64_t end,
                                 exact_memory *memory)
{
    product_sums sums = gpr_cpu_no_products();

    for (uint64_t at = first; at < end; at += ASK_ELEMENTS) {
        if (at > first && gpr_cpu_must_stop(&work->stop)) break;
        gpr_cpu_sum_products(&work->factors, row, at, gpr_smaller(end, at + ASK_ELEMENTS),
                             &memory->products, &sums);
    }
    return sums;
}

/* A task: sums a piece of a row with a bound on the error, or finishes some whole rows, those
 * exactly that the bound does not decide. */
static void bounds_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    const gpr_view *view = work->view;
    const size_t bytes = gpr_dtype_bytes(work->rule->result);

    if (work->sums != NULL) {
        const uint64_t piece = index % work->pieces;

        if (gpr_cpu_must_stop(&work->stop)) return;
        work->sums[index] = sum_products(work, index / work->pieces, piece_start(work, piece),
                                         piece_start(work, piece + 1), memory);
        return;
    }
    for (uint64_t row = index * work->per_task;
         row < gpr_smaller(view->rows, (index + 1) * work->per_task); row++) {
        if (must_stop_at(work, row)) return;
        const product_sums sums = sum_products(work, row, 0, view->n, memory);

        if (work->stop.stopped) return;
        if (gpr_cpu_finish_product_sums(&work->factors, row, &sums, work->rule,
                                        work->result + row * bytes))
            continue;
        if (!add_row(work, row, memory)) return;
    }
}

/* Where the result of a row is, or of a row of parts. */
static char *result_beside(const exact_job *work, uint64_t row)
{
    const uint64_t parts = work->beside->are_parts ? GPR_EXACT_PARTS : 1;

    return work->result + row * gpr_dtype_bytes(work->rule->result) / parts;
}

/* Finishes the rows of a unit. It adds those exactly that the bound does not decide. */
static void finish_beside_unit(exact_job *work, uint64_t row, uint64_t rows,
                               const product_sums *sums, exact_memory *memory)
{
    const gpr_cpu_factors *factors = work->beside;
    const uint64_t parts = factors->are_parts ? GPR_EXACT_PARTS : 1;
    char *results = result_beside(work, row);
    uint16_t undecided[MOST_PRODUCT_ROWS];
    uint64_t left = gpr_cpu_finish_product_rows(factors, row, rows, &memory->product_rows, sums,
                                                work->rule, results, undecided);

    left = gpr_cpu_finish_exact_rows(factors, row, rows, work->rule, &memory->product_rows, results,
                                     undecided, left);

    for (uint64_t i = 0; i < left && add_row(work, (row + undecided[i]) / parts, memory); i++)
        continue;
}

/* A task: sums the products of a unit's rows side by side, and finishes them. */
static void side_by_side_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    uint64_t rows;
    const uint64_t row = gpr_cpu_unit_row(&work->units, index, &rows);
    product_sums sums;

    if (index % UNITS_TO_ASK == 0 && gpr_cpu_must_stop(&work->stop)) return;
    if (gpr_cpu_store_few_products(work->beside, row, rows, work->rule, &memory->product_rows,
                                   result_beside(work, row)))
        return;
    gpr_cpu_sum_product_rows(work->beside, row, rows, 0, work->view->n, &memory->product_rows,
                             &sums);
    finish_beside_unit(work, row, rows, &sums, memory);
}

/* A task: sums the products of a piece of a unit's rows side by side. */
static void beside_piece_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    const uint64_t n = work->view->n, piece = index % work->pieces;
    uint64_t rows;
    const uint64_t row = gpr_cpu_unit_row(&work->units, index / work->pieces, &rows);

    if (gpr_cpu_must_stop(&work->stop)) return;
    gpr_cpu_sum_product_rows(work->beside, row, rows, n * piece / work->pieces,
                             n * (piece + 1) / work->pieces, &memory->product_rows,
                             &work->sums[index]);
    gpr_cpu_store_product_rows(&memory->product_rows, rows,
                               work->sums_beside + piece * work->beside->first->rows + row);
}

/* A task: merges the pieces of a unit's rows, and finishes these. */
static void merge_pieces_task(exact_job *work, uint64_t index, exact_memory *memory)
{
    uint64_t rows;
    const uint64_t row = gpr_cpu_unit_row(&work->units, index, &rows);
    product_sums sums = {.merged = 0};

    if (gpr_cpu_must_stop(&work->stop)) return;
    gpr_cpu_clear_product_rows(&memory->product_rows, rows);
    for (uint64_t piece = 0; piece < work->pieces; piece++)
        gpr_cpu_merge_product_rows(&memory->product_rows, rows, &sums,
                                   work->sums_beside + piece * work->beside->first->rows + row,
                                   &work->sums[index * work->pieces + piece]);
    finish_beside_unit(work, row, rows, &sums, memory);
}

/* Sums products of few long rows side by side, in pieces. */
static gpr_status finish_pieces_beside(exact_job *work)
{
    const uint64_t tasks = work->units.count * work->pieces;
    gpr_status status = GPR_OK;

    work->sums = malloc(tasks * sizeof *work->sums);
    work->sums_beside =
        malloc(work->beside->first->rows * work->pieces * sizeof *work->sums_beside);
    if (work->sums == NULL || work->sums_beside == NULL) {
        status = gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial sums of %llu tasks",
                          (unsigned long long)tasks);
        goto done;
    }
    work->task = beside_piece_task;
    GPR_TRY(run_tasks(work, tasks));
    if (work->stop.stopped) goto done;
    work->task = merge_pieces_task;
    GPR_TRY(run_tasks(work, work->units.count));
done:
    free(work->sums);
    free(work->sums_beside);
    work->sums = NULL;
    work->pieces = 1;
    return status;
}

/* Sums products of rows side by side. 0: they are better summed one by one. */
static int finish_side_by_side(exact_job *work, const gpr_cpu_factors *factors, uint32_t threads,
                               gpr_status *status)
{
    enum { LEAST_WIDTH = 32, UNITS_OF_A_THREAD = 4, LEAST_PIECE = 1024 };
    const uint64_t wanted = (uint64_t)threads * UNITS_OF_A_THREAD;
    uint64_t most = MOST_PRODUCT_ROWS;

    if (threads > 1) {
        most = gpr_divide_up(factors->first->rows, wanted);
        most = gpr_divide_up(most, LEAST_WIDTH) * LEAST_WIDTH;
    }
    if (!gpr_cpu_cut_product_rows(factors, most, &work->units)) return 0;
    work->beside = factors;
    if (work->units.count < threads) {
        work->pieces = gpr_smaller(gpr_divide_up(wanted, work->units.count),
                                   gpr_divide_up(work->view->n, LEAST_PIECE));
        *status = finish_pieces_beside(work);
        return 1;
    }
    work->task = side_by_side_task;
    *status = run_tasks(work, work->units.count);
    return 1;
}

/* Makes a view of parts of complex rows: two rows for each, whose elements begin at the two parts,
 * or with `step` 0 at the same. Parts of neighbouring rows are one axis if `are_joined`. */
static void take_parts(gpr_view *view, int64_t step, int are_joined)
{
    gpr_axis *parts = &view->axes[view->outer];

    view->dtype = gpr_real_dtype(view->dtype);
    view->rows *= GPR_EXACT_PARTS;
    view->rows_contiguous = view->contiguous = 0;
    if (are_joined) {
        parts[-1].extent *= GPR_EXACT_PARTS;
        parts[-1].in = step;
        return;
    }
    memmove(parts + 1, parts, (size_t)view->inner * sizeof *parts);
    *parts = (gpr_axis){.extent = GPR_EXACT_PARTS, .in = step};
    view->outer++;
}

/* Sums parts of complex numbers times complex ones, of which these factors are the products by real
 * parts. Not inlined: its views would enlarge the frame of every call. */
static __attribute__((noinline)) int finish_complex(exact_job *work, gpr_cpu_factors *factors,
                                                    uint32_t threads, gpr_status *status)
{
    gpr_cpu_factors others = *factors;
    gpr_view first, second;

    gpr_copy_view(&first, factors->first);
    gpr_copy_view(&second, factors->second);
    first.data += first.bytes; /* from imaginary parts back to real ones */
    first.axes[first.outer - 1].in = -(int64_t)first.bytes;
    second.data += second.bytes;
    others.first = &first;
    others.second = &second;
    factors->of_imaginary = &others;
    return finish_side_by_side(work, factors, threads, status);
}

/* Sums complex numbers times real or complex ones as rows of real numbers, side by side, where they
 * are short or columns of memory; 0 if they are neither. Parts that are zero or not finite are left
 * to the exact way, which multiplies by imaginary zeros, too. Not inlined, either. */
static __attribute__((noinline)) int finish_parts(exact_job *work, const gpr_cpu_factors *whole,
                                                  uint32_t threads, gpr_status *status)
{
    const int are_complex = gpr_kind_of(whole->second->dtype) == GPR_KIND_COMPLEX,
              last = whole->first->outer - 1;
    const size_t bytes = whole->first->bytes / GPR_EXACT_PARTS;
    /* Of the same factors for neighbouring rows, parts are one axis, too. */
    const int are_joined = !are_complex && last >= 0 &&
                           whole->first->axes[last].in == (int64_t)whole->first->bytes &&
                           whole->second->axes[last].in == 0;
    gpr_cpu_factors factors = *whole;
    gpr_view first, second;

    gpr_copy_view(&first, whole->first);
    gpr_copy_view(&second, whole->second);
    first.bytes = bytes;
    if (are_complex) second.bytes /= GPR_EXACT_PARTS;
    take_parts(&first, (int64_t)bytes, are_joined);
    take_parts(&second, 0, are_joined);
    factors.first = &first;
    factors.second = &second;
    factors.dtype = gpr_real_dtype(factors.dtype);
    factors.components = 1;
    factors.are_parts = 1;
    if (are_complex) return finish_complex(work, &factors, threads, status);
    return finish_side_by_side(work, &factors, threads, status);
}

/* Whether rows are complex numbers times others, and their parts can be summed side by side. */
static int has_parts(const gpr_cpu_factors *factors)
{
    const gpr_view *a = factors->first;

    return factors->products == GPR_PRODUCTS && !factors->conjugates &&
           gpr_kind_of(a->dtype) == GPR_KIND_COMPLEX && gpr_cpu_has_rows_beside(a) &&
           a->outer + a->inner < GPR_MAX_NDIM;
}

/* Sums rows side by side; 0 if they are not to be. */
static int finish_beside(exact_job *work, uint32_t threads, gpr_status *status)
{
    const gpr_cpu_factors *factors = &work->factors;
    gpr_cpu_factors turned = *factors;

    if (has_parts(factors)) return finish_parts(work, factors, threads, status);
    if (factors->products == GPR_PRODUCTS && !factors->conjugates) {
        /* Products are the same in either order: the second factors may be the complex ones, or the
         * ones that are columns of memory. */
        turned.first = factors->second;
        turned.second = factors->first;
        if (has_parts(&turned)) return finish_parts(work, &turned, threads, status);
        if (!gpr_cpu_has_rows_beside(factors->first) && gpr_cpu_lies_crosswise(factors->second))
            return finish_side_by_side(work, &turned, threads, status);
    }
    return finish_side_by_side(work, factors, threads, status);
}

/* Sums the products of pieces of fewer than MOST_TASKS rows with a bound on the error, and finishes
 * the rows, those exactly that the bound does not decide. Not inlined: its list of rows would
 * enlarge the frame of every call. */
static __attribute__((noinline)) gpr_status finish_pieces_by_bounds(exact_job *work)
{
    const gpr_view *view = work->view;
    const size_t bytes = gpr_dtype_bytes(work->rule->result);
    uint16_t undecided[MOST_TASKS];
    uint64_t left = 0;
    gpr_status status = GPR_OK;

    work->pieces = gpr_smaller(gpr_divide_up(view->n, LEAST_TASK), MOST_TASKS);
    const uint64_t tasks = view->rows * work->pieces;
    work->sums = malloc(tasks * sizeof *work->sums);
    if (work->sums == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial sums of %llu tasks",
                        (unsigned long long)tasks);
    status = run_tasks(work, tasks);
    for (uint64_t row = 0; row < view->rows && status == GPR_OK && !work->stop.stopped; row++) {
        product_sums *whole = &work->sums[row * work->pieces];

        for (uint64_t piece = 1; piece < work->pieces; piece++)
            gpr_cpu_merge_product_sums(whole, &whole[piece]);
        if (!gpr_cpu_finish_product_sums(&work->factors, row, whole, work->rule,
                                         work->result + row * bytes))
            undecided[left++] = (uint16_t)row;
    }
    free(work->sums);
    work->sums = NULL;
    work->pieces = 1;
    if (status != GPR_OK || work->stop.stopped || left == 0) return status;
    work->has_bounds = 0;
    work->task = add_task;
    work->chosen = undecided;
    work->chosen_rows = left;
    status = finish_rows(work);
    work->chosen = NULL;
    return status;
}

/* Sums the products of rows with a bound on the error, and finishes them. */
static gpr_status finish_rows_by_bounds(exact_job *work)
{
    const gpr_view *view = work->view;
    const uint32_t threads = gpr_cpu_threads_now(nanoseconds_alone(work));
    const int is_parallel = threads > 1;
    gpr_status status = GPR_OK;

    work->task = bounds_task;
    if (finish_beside(work, threads, &status)) {
        /* all rows are finished */
    } else if (is_parallel && view->rows < MOST_TASKS && view->n > LEAST_TASK) {
        status = finish_pieces_by_bounds(work);
    } else {
        status = run_whole_rows(work, is_parallel);
    }
    return interrupted_or(work, status);
}

static void describe_run(gpr_run *run)
{
    run->variant = gpr_cpu_isa();
    run->block_size = 1;
    run->grid_size = 1;
}

static gpr_status reduce_products(const gpr_resolved *call, const gpr_view *view,
                                  const gpr_view *second, uint64_t repeats, gpr_run *run)
{
    const gpr_rule *rule = &call->rule;
    exact_job work = make_job(view, rule->compute, call->interrupted, call->interrupted_arg);
    /* The estimate of its time may be inexact: a program's own environment could trap it. */
    const gpr_float_environment before = enter_ieee();
    gpr_status status = GPR_OK;

    work.repeats = repeats;
    work.add = add_products;
    work.components = work.width = gpr_exact_parts(rule->compute);
    work.factors = (gpr_cpu_factors){.first = view,
                                     .second = second,
                                     .products = rule->products,
                                     .conjugates = rule->conjugates,
                                     .wraps = gpr_cpu_wraps_products(rule),
                                     .dtype = gpr_cpu_dtype_of_factors(rule, view, second),
                                     .components = work.components,
                                     .times = repeats,
                                     .divisors = call->divisors,
                                     .has_one_divisor = call->has_one_divisor};
    work.tile = PRODUCT_TILE / (uint64_t)work.components;
    work.rule = rule;
    work.result = call->result;
    describe_run(run);
    work.has_bounds = view->n > 0 && gpr_cpu_may_sum_products(&work.factors, rule);
    status = work.has_bounds ? finish_rows_by_bounds(&work) : finish_rows(&work);
    leave_ieee(before);
    return status;
}

/* Sums the products of rows whose axes `repeats` are read once. */
static __attribute__((noinline)) gpr_status reduce_products_once(const gpr_resolved *call,
                                                                 uint64_t repeats, gpr_run *run)
{
    gpr_view first, second;
    const uint64_t times = gpr_view_once(&call->view, repeats, &first);

    if (call->second != NULL) (void)gpr_view_once(call->second, repeats, &second);
    return reduce_products(call, &first, call->second != NULL ? &second : NULL, times, run);
}

gpr_status gpr_cpu_reduce_by_products(const gpr_resolved *call, gpr_run *run)
{
    const uint64_t repeats = gpr_cpu_repeats(&call->view, call->second, GPR_CPU_LEAST_MULTIPLIED);

    if (repeats != 0) return reduce_products_once(call, repeats, run);
    return reduce_products(call, &call->view, call->second, 1, run);
}

static gpr_status reduce_exactly(const gpr_resolved *call, const gpr_view *whole, uint64_t repeats,
                                 gpr_run *run)
{
    gpr_view single;
    const gpr_rule *rule = &call->rule;
    exact_job work =
        make_job(whole, gpr_real_dtype(rule->element), call->interrupted, call->interrupted_arg);
    const gpr_view *view = whole;
    gpr_status status = GPR_OK;
    plain_adder plain;
    int is_done = 0;

    work.repeats = repeats;
    work.rule = rule;
    work.result = call->result;
    work.skip_nan = rule->skip_nan;
    work.counts_mask =
        (rule->divide || rule->acc_kind == GPR_ACC_EXACT_MOMENTS) && view->mask != NULL;
    if (rule->acc_kind == GPR_ACC_EXACT_MOMENTS) {
        work.add = add_elements_and_squares;
        work.width = work.components + 1;
        work.tile = PRODUCT_TILE;
    }
    describe_run(run);
    if (sums_singly(&work)) return reduce_singly(&work);
    if (adds_two(&work)) return reduce_twos(&work);
    if (gpr_cpu_lay_crosswise(whole, &single)) work.view = view = &single;
    if (repeats > 1)
        return finish_rows(&work); /* the other ways make results of rows as they are */
    if (work.rule->acc_kind == GPR_ACC_EXACT && view->n > 0 && view->rows > 0 &&
        gpr_cpu_make_plain_adder(view, rule, &plain)) {
        status = reduce_plain(&work, &plain, &is_done);
        if (status != GPR_OK || is_done) return interrupted_or(&work, status);
    }
    if (has_paired_rows(&work)) return interrupted_or(&work, reduce_side_by_side(&work));
    return finish_rows(&work);
}

/* Reduces rows whose axes `repeats` are read once. */
static __attribute__((noinline)) gpr_status reduce_exactly_once(const gpr_resolved *call,
                                                                uint64_t repeats, gpr_run *run)
{
    gpr_view once;
    const uint64_t times = gpr_view_once(&call->view, repeats, &once);

    return reduce_exactly(call, &once, times, run);
}

gpr_status gpr_cpu_reduce_exactly(const gpr_resolved *call, gpr_run *run)
{
    const uint64_t repeats = gpr_cpu_repeats(&call->view, NULL, GPR_CPU_LEAST_ADDED);

    if (repeats != 0) return reduce_exactly_once(call, repeats, run);
    return reduce_exactly(call, &call->view, 1, run);
}
