/* The CPU backend's second engine: folds whose accumulators are positions (argmin, argmax) or
 * moments (var, std).
 *
 * Rows up to the length of a segment: one call of a loop folds many rows. Elements that a mask or
 * NaN leaves out are replaced by NaN.
 *
 * Longer rows: cut into segments that stay in the first cache while several loops read them.
 * Elements that are left out are removed from a segment first. A segment's accumulator is folded
 * into the row's, in the order of the row.
 *
 * Long rows: cut into pieces, a task each, by shapes alone. Accumulators of pieces are folded as a
 * tree, so that bits do not depend on threads.
 *
 * Rows that lie crosswise in memory: packed in tiles of several rows, in the order of memory, or
 * folded as columns. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/job.h"
#include "cpu/truth_positions.h"
#include "lib/base/convert.h"
#include "lib/base/status.h"

enum {
    SEGMENT_BYTES = 16 * 1024,      /* read in place: half of a small first cache */
    LONG_SEGMENT_BYTES = 64 * 1024, /* of LONG_ROW_BYTES: fewer ends of loops, which take a tenth */
    LONG_ROW_BYTES = 512 * 1024,
    FAR_SEGMENT_BYTES = 256 * 1024, /* of FAR_ROW_BYTES: from main memory in longer runs ... */
    FAR_ROW_BYTES = 2048 * 1024,
    FAR_SEGMENTS = 4,       /* ... and as many in a piece of one of several rows */
    MOST_SEGMENTS = 16,     /* between two tests whether one of them ends a search */
    LEAST_RUN = 512,        /* elements of a run in a row with gaps that is not copied ... */
    MOST_RUNS = 64,         /* ... and runs between two tests whether one of them ends a search */
    FIRST_BYTES = 2048,     /* looked at first for a NaN that ends a search */
    ROWS_PER_THREAD = 4,    /* of less than FAR_ROW_BYTES, that are not cut into pieces */
    SOON_BYTES = 16 * 1024, /* of rows that few elements end, whatever their length ... */
    LEAST_SOON_BYTES = 1024 * 1024, /* ... in arrays for which threads may be woken */
    FIRST_PACKED = 64,              /* elements that are packed and looked at first ... */
    LEAST_PACKED = 512,             /* ... of rows that are so long */
    FIRST_SHARE = 16,       /* of a row that all threads read: looked at before they are woken */
    TILE_ROWS = 16,         /* of a tile: a cache line of float32 */
    TILE_BYTES = 64 * 1024, /* of a tile, in a worker's stack */
    TILE_EXTENT = 64,       /* least positions in a run that make tiles worth their while */
    SOON_TRUTHS = 512,      /* bools of long rows that are looked at before threads are woken */
    RESULT_BATCH = 64,      /* rows between two calls to finish them */
    FAR_PIECES = 32, /* of columns from main memory: each has results, which are merged ... */
    FAR_PIECE_BYTES = 16384 * 1024,   /* ... and this at most */
    FOUND_COLUMNS = GPR_COLUMN_BLOCK, /* searched side by side: long runs of main memory ... */
    FAR_MOMENT_COLUMNS = 512,         /* ... and folded, by a loop that is slower than memory */
    MOMENT_COLUMNS = 256, /* folded side by side: with their sums they fit the first cache ... */
    LEAST_MOMENT_COLUMNS = 32, /* ... and fewer are packed and folded row by row */
    LEAST_TILE_COLUMNS = 16,   /* ... of which something is left out */
    LEAST_FOUND_BLOCK = 40,    /* elements of few rows in which positions are found as columns */
    LEAST_TRUTH_COLUMNS = 4,   /* ... of bools */
    NARROW_BYTES = 64, /* of rows with gaps that are packed, so that several are searched at once */
    MOST_BLOCK_BYTES = 4 * 1024,  /* of few columns, many blocks of which a loop takes ... */
    FOUND_TILE_BYTES = 16 * 1024, /* packed for that: it stays in the first cache */
    ASKING_ROWS = 32, /* of bools in columns, before the first check whether all are found */
    MOMENT_ROWS = 64  /* of a tile of columns, read twice: it fits a small second cache */
};

/* What every task reads beside the job. */
typedef struct composite {
    const gpr_view *plain; /* the array without its mask */
    const gpr_view *marks; /* the mask; NULL if there is none */
    int leaves_out;        /* a mask or NaN leave elements out */
    int in_place;          /* a row's elements are aligned, native neighbours */
    int crosswise;         /* rows are read in tiles ... */
    int columns;           /* ... as moments of columns, or positions in them */
    int finds;             /* positions, not moments */
    int columns_in_place;  /* ... which the loops read where they are */
    int blocks;            /* positions in blocks of few columns, many of which a loop takes ... */
    int blocks_in_place;   /* ... where they are, but the last one */
    int direct;            /* memory is what the loops read, and nothing is left out */
    int many_at_once;      /* one call of a loop takes many rows */
    int parts;             /* numbers of an element as the loops of columns read it */
    int by_loop;           /* positions: rows have a loop of their own */
    int looks_first;       /* rows are packed, and one of their first elements may end the search */
    int finds_late;        /* pieces find the best segment, which alone is searched at the end */
    uint64_t most_columns; /* of a unit */
    uint64_t segment;      /* positions taken at once */
    gpr_value nothing;     /* the accumulator of no elements */
} composite;

/* A task's memory for the elements that loops cannot read in place. */
typedef struct scratch {
    _Alignas(64) char tile[TILE_BYTES];
    uint8_t marks[TILE_BYTES];
    stage s;
    uint8_t keep[STAGE_ELEMENTS];
    uint16_t kept[STAGE_ELEMENTS]; /* positions in the segment of what is kept */
} scratch;

/* Moments of columns, as fold_acc merges them: all columns have the same count, so that a merge
 * takes no division. */
typedef struct column_moments {
    _Alignas(64) double mean[FAR_MOMENT_COLUMNS], rest[FAR_MOMENT_COLUMNS],
        squares[FAR_MOMENT_COLUMNS];
    uint64_t count;
} column_moments;

/* A task's memory for moments of columns: the sums of a tile, and of all tiles before. */
typedef struct column_memory {
    _Alignas(64) double centers[FAR_MOMENT_COLUMNS], distances[FAR_MOMENT_COLUMNS],
        squares[FAR_MOMENT_COLUMNS];
    uint64_t counts[MOMENT_COLUMNS]; /* of the elements left in each column */
    column_moments all;
} column_memory;

/* A task's memory for positions in columns: the extremes found, and their positions. */
typedef struct found_memory {
    _Alignas(64) char numbers[FOUND_COLUMNS * sizeof(double)];
    int64_t positions[FOUND_COLUMNS];
    _Alignas(64) char wide_numbers[MOMENT_COLUMNS * sizeof(double)]; /* of rows side by side */
    int64_t wide_positions[MOMENT_COLUMNS];
} found_memory;

/* A task's memory. Where memory is what the loops read, it ends with the columns'; where many rows
 * are one call of a loop, besides, none is needed. */
typedef struct unit_memory {
    gpr_value values[RESULT_BATCH + FOUND_COLUMNS]; /* accumulators of rows */
    union {
        column_memory columns;
        found_memory found;
    };
    scratch in;
} unit_memory;
_Static_assert(sizeof(unit_memory) <= GPR_TASK_MEMORY, "workers have room for it");

/* ---------------------------------------------------------------- leaving elements out ------- */

/* Copies the elements whose positions are in `kept`. */
#define DEFINE_GATHER(size, type)                                                         \
    static void gather_##size(const char *elements, const uint16_t *kept, uint64_t count, \
                              char *packed)                                               \
    {                                                                                     \
        for (uint64_t i = 0; i < count; i++) {                                            \
            type element;                                                                 \
            memcpy(&element, elements + (size_t)kept[i] * (size), size);                  \
            memcpy(packed + i * (size), &element, size);                                  \
        }                                                                                 \
    }
DEFINE_GATHER(1, uint8_t)
DEFINE_GATHER(2, uint16_t)
DEFINE_GATHER(4, uint32_t)
DEFINE_GATHER(8, uint64_t)
DEFINE_GATHER(16, double _Complex)

static void gather(size_t bytes, const char *elements, const uint16_t *kept, uint64_t count,
                   char *packed)
{
    switch (bytes) {
    case 1: gather_1(elements, kept, count, packed); break;
    case 2: gather_2(elements, kept, count, packed); break;
    case 4: gather_4(elements, kept, count, packed); break;
    case 8: gather_8(elements, kept, count, packed); break;
    default: gather_16(elements, kept, count, packed); break;
    }
}

/* Whether NaN are copied out of segments: positions are found by loops that skip NaN themselves. */
static int leaves_nan_out(const gpr_rule *rule)
{
    return rule->skip_nan && rule->acc_kind != GPR_ACC_INDEXED;
}

/* Compacts `count` elements to those that neither the mask nor NaN leave out. Returns their number,
 * and makes *elements point to them; where the number is smaller, their positions are in
 * in->kept. */
static uint64_t leave_out(const gpr_rule *rule, const uint8_t *marks, uint64_t count,
                          const char **elements, scratch *in)
{
    uint64_t left = 0;

    if (marks == NULL && !leaves_nan_out(rule)) return count;
    if (marks == NULL)
        memset(in->keep, 1, count);
    else
        for (uint64_t i = 0; i < count; i++) in->keep[i] = marks[i] != 0;
    if (leaves_nan_out(rule)) gpr_cpu_drop_nan(rule->element, *elements, count, in->keep);
    for (uint64_t i = 0; i < count; i++) left += in->keep[i];
    if (left == count) return count;
    left = 0;
    for (uint64_t i = 0; i < count; i++) {
        in->kept[left] = (uint16_t)i;
        left += in->keep[i];
    }
    gather(gpr_dtype_rows[rule->element].bytes, *elements, in->kept, left, in->s.packed);
    *elements = in->s.packed;
    return left;
}

/* ---------------------------------------------------------------- segments ------------------- */

/* Loops that find positions in rows and in columns, by dtype; NULL where there is none. */
static const gpr_position_loops *position_loops(const recipe *how)
{
    return &gpr_cpu_loops()->positions[how->fold];
}

/* Whether positions in rows have a loop of their own. */
static int finds_in_rows(const recipe *how)
{
    return position_loops(how)->rows[how->loop_dtype] != NULL;
}

static int is_nan(const recipe *how, const gpr_value *number)
{
    switch (how->acc) {
    case GPR_FLOAT32: return isnan(number->f32);
    case GPR_FLOAT64: return isnan(number->f64);
    case GPR_COMPLEX128: return isnan(creal(number->c128)) || isnan(cimag(number->c128));
    default: return 0;
    }
}

/* Whether no integer of 64 bits beats a number: NaT, for one, among dates. */
static int is_limit(const recipe *how, const gpr_value *number)
{
    const int is_max = how->fold == GPR_FOLD_max;

    switch (how->acc) {
    case GPR_INT64: return number->i64 == (is_max ? INT64_MAX : INT64_MIN);
    case GPR_UINT64: return number->u64 == (is_max ? UINT64_MAX : 0);
    default: return 0;
    }
}

/* Whether no later element can replace the one found: it is NaN, the first true (or false) bool, or
 * the limit of integers. */
static int is_final(const recipe *how, const gpr_value *found)
{
    if (found->position == GPR_NOWHERE) return 0;
    if (how->loop_dtype != GPR_BOOL) return is_nan(how, found) || is_limit(how, found);
    return (found->bytes[0] != 0) == (how->fold == GPR_FOLD_max);
}

/* Whether `part`, found at a later position than `found`, replaces it: not if they are equal, and
 * not if `part` is a NaN that is skipped. */
static int is_better(const recipe *how, gpr_value part, gpr_value found)
{
    if (how->rule->skip_nan && is_nan(how, &part)) return 0;
    if (found.position == GPR_NOWHERE) return 1;
    /* Of equal elements the fold returns its second argument. */
    const gpr_value kept = gpr_fold_acc(how->fold, how->acc, part, found);
    return memcmp(kept.bytes, found.bytes, how->acc_bytes) != 0;
}

/* Position of the value `part` in the elements in which the loop found it. */
static uint64_t position_of(const recipe *how, const char *elements, uint64_t count,
                            const gpr_value *part)
{
    return gpr_cpu_loops()->find[how->loop_dtype](elements, count, part);
}

/* Whether a loop finds a row's extreme and its place at once: of numbers that are accumulators. */
static int finds_at_once(const recipe *how)
{
    return how->acc == how->loop_dtype && gpr_kind_of(how->loop_dtype) != GPR_KIND_COMPLEX &&
           position_loops(how)->rows[how->loop_dtype] != NULL;
}

/* The extreme of `count` elements, the first of which has position `first`, by such a loop or by
 * that of bools; in one place or in none. */
static gpr_value find_at_once(const recipe *how, const char *elements, uint64_t first,
                              uint64_t count)
{
    gpr_value found = how->identity;
    int64_t at;

    if (how->loop_dtype == GPR_BOOL)
        gpr_cpu_find_truths(elements, 0, 1, count, how->rule->fold == GPR_FOLD_argmax, &at);
    else
        position_loops(how)->rows[how->loop_dtype](elements, 0, 1, count, &at);
    if (at < 0) return gpr_identity(how->rule->fold, how->rule->compute, how->acc);
    memcpy(found.bytes, elements + (uint64_t)at * how->loop_bytes, how->acc_bytes);
    if (how->loop_dtype == GPR_BOOL) found.bytes[0] = found.bytes[0] != 0;
    found.position = first + (uint64_t)at;
    return found;
}

static void find_in(const recipe *how, const char *elements, uint64_t count, uint64_t first,
                    gpr_value *found)
{
    gpr_value part = how->identity;

    if (how->loop_dtype == GPR_BOOL || finds_at_once(how)) {
        part = find_at_once(how, elements, first, count);
        if (part.position != GPR_NOWHERE && is_better(how, part, *found)) *found = part;
        return;
    }
    how->loop.rows(elements, 0, 1, count, &part);
    if (!is_better(how, part, *found)) return;
    part.position = first + position_of(how, elements, count, &part);
    *found = part;
}

/* Sum of the distances of doubles from `center`: the rounding error of the mean, times their
 * number. In a fixed order. */
static double sum_of_distances(const double *x, uint64_t count, double center)
{
    enum { LANES = 8 };
    double lanes[LANES] = {0}, sum = 0;
    uint64_t i = 0;

    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++) lanes[k] += x[i + (uint64_t)k] - center;
    for (; i < count; i++) lanes[i % LANES] += x[i] - center;
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    return sum;
}

static void add_moments(const recipe *how, const char *elements, uint64_t count, gpr_value *moments)
{
    gpr_value part = how->identity;
    double center[2];

    how->loop.rows(elements, 0, 1, count, &part);
    part.count = count;
    if (how->acc == GPR_FLOAT64) {
        part.f64 /= (double)count;
        center[0] = center[1] = part.f64;
    } else {
        center[0] = creal(part.c128) / (double)count;
        center[1] = cimag(part.c128) / (double)count;
        part.c128 = gpr_complex(center[0], center[1]);
    }
    part.squares = gpr_cpu_loops()->squares[how->loop_dtype](elements, count, center);
    if (how->loop_dtype == GPR_FLOAT64) { /* doubles have digits to spare for other dtypes */
        const double distance =
            sum_of_distances((const double *)(const void *)elements, count, center[0]);
        part.mean[1] = distance / (double)count;
        part.squares = gpr_squares_about_mean(part.squares, distance, count);
    }
    *moments = gpr_fold_acc(GPR_FOLD_moments, how->acc, *moments, part);
}

/* Folds `count` aligned native elements of a row, the first at position `first`, into the row's
 * accumulator. More than STAGE_ELEMENTS only where the loops read the elements in place and none is
 * left out. */
static void fold_segment(const job *work, const char *elements, const uint8_t *marks,
                         uint64_t first, uint64_t count, scratch *in, gpr_value *value)
{
    const recipe *how = &work->how[0];
    const gpr_rule *rule = how->rule;
    const uint64_t left = leave_out(rule, marks, count, &elements, in);

    if (left == 0) return;
    elements = gpr_cpu_prepare(how, elements, left, &in->s);
    if (rule->acc_kind == GPR_ACC_INDEXED)
        find_in(how, elements, left, first, value);
    else
        add_moments(how, elements, left, value);
}

/* ---------------------------------------------------------------- rows ----------------------- */

static int needs_no_more(const job *work, const gpr_value *value)
{
    return work->how[0].rule->acc_kind == GPR_ACC_INDEXED && is_final(&work->how[0], value);
}

/* Finds the extreme of positions first .. end - 1 of elements that the loops read in place, and the
 * first position of the segment that contains it. Each segment's extreme is folded to a number; the
 * best of these numbers is found as the best element of an array. A NaN may end the search: a short
 * segment is folded first, and then half as much as lies before in the row, so that little of what
 * is read lies behind the NaN. */
static gpr_value find_segment(const recipe *how, const char *memory, uint64_t first, uint64_t end,
                              uint64_t segment)
{
    const gpr_loops *loops = gpr_cpu_loops();
    const size_t bytes = how->loop_bytes;
    _Alignas(MOST_NUMBER_BYTES) char numbers[MOST_SEGMENTS * MOST_NUMBER_BYTES];
    gpr_value found = gpr_identity(how->rule->fold, how->rule->compute, how->acc);
    const int may_end = gpr_is_inexact(how->loop_dtype) && !how->rule->skip_nan;
    const uint64_t least = may_end ? gpr_smaller(segment, FIRST_BYTES / bytes) : segment;
    uint64_t size = least, segments = 1;

    while (first < end && !is_final(how, &found)) {
        const uint64_t count = gpr_smaller(end - first, segments * size), whole = count / size,
                       rest = count % size, made = whole + (rest > 0);
        const char *elements = memory + first * bytes;
        gpr_value part = how->identity;

        if (whole > 0) how->loop.rows(elements, (int64_t)(size * bytes), whole, size, numbers);
        if (rest > 0)
            how->loop.rows(elements + whole * size * bytes, 0, 1, rest,
                           numbers + whole * how->acc_bytes);
        loops->loop[how->fold][how->acc].rows(numbers, 0, 1, made, &part);
        if (is_better(how, part, found)) {
            found = part;
            found.position = first + size * loops->find[how->acc](numbers, made, &part);
        }
        first += count;
        size = gpr_smaller(gpr_larger(first / 2, least), segment);
        segments = gpr_smaller(2 * segments, may_end ? gpr_larger(first / (2 * size), 1)
                                                     : (uint64_t)MOST_SEGMENTS);
        segments = gpr_smaller(segments, MOST_SEGMENTS);
    }
    return found;
}

/* Replaces the first position of a segment by that of the extreme found in it. */
static void find_in_segment(const recipe *how, const char *memory, uint64_t end, uint64_t segment,
                            gpr_value *found)
{
    const uint64_t first = found->position;

    if (first == GPR_NOWHERE) return;
    found->position = first + position_of(how, memory + first * how->loop_bytes,
                                          gpr_smaller(end - first, segment), found);
}

/* Whether find_at_once searches long rows in memory: floats end at a NaN, and the loop for extremes
 * brings more numbers in from main memory. */
static int finds_long_at_once(const recipe *how, uint64_t segment)
{
    if (how->loop_dtype == GPR_BOOL) return 1;
    return segment * how->loop_bytes < FAR_SEGMENT_BYTES && !gpr_is_inexact(how->loop_dtype) &&
           finds_at_once(how);
}

static gpr_value find_in_memory(const recipe *how, const char *memory, uint64_t first, uint64_t end,
                                uint64_t segment)
{
    if (finds_long_at_once(how, segment))
        return find_at_once(how, memory + first * how->loop_bytes, first, end - first);

    gpr_value found = find_segment(how, memory, first, end, segment);

    find_in_segment(how, memory, end, segment, &found);
    return found;
}

/* Whether extremes of runs are numbers, of which one is searched: bools are seldom read to their
 * end. */
static int finds_in_runs(const recipe *how)
{
    return how->rule->acc_kind == GPR_ACC_INDEXED && how->loop_dtype != GPR_BOOL &&
           gpr_kind_of(how->loop_dtype) != GPR_KIND_COMPLEX;
}

/* As find_in_memory, in a row of `run` elements side by side and then a gap, by turns. */
static gpr_value find_in_runs(const job *work, uint64_t row, uint64_t first, uint64_t end,
                              uint64_t run)
{
    const recipe *how = &work->how[0];
    const gpr_loops *loops = gpr_cpu_loops();
    const gpr_view *view = work->view;
    const gpr_axis *across = &view->axes[view->outer + view->inner - 2];
    _Alignas(MOST_NUMBER_BYTES) char numbers[MOST_RUNS * MOST_NUMBER_BYTES];
    gpr_value found = gpr_identity(how->rule->fold, how->rule->compute, how->acc);
    const uint64_t most = LONG_SEGMENT_BYTES / how->loop_bytes; /* of what is read again */
    uint64_t length = 0;
    gpr_view at;

    while (first < end && !is_final(how, &found)) {
        const uint64_t into = first % run, step = first / run % across->extent,
                       count = gpr_smaller(gpr_smaller(end - first, run - into), most);
        uint64_t rows = 1;
        gpr_value part = how->identity;

        if (count == run)
            rows = gpr_smaller(gpr_smaller((end - first) / run, across->extent - step), MOST_RUNS);
        gpr_cpu_locate(view, row, first, &at);
        how->loop.rows(at.data, across->in, rows, count, numbers);
        loops->loop[how->fold][how->acc].rows(numbers, 0, 1, rows, &part);
        if (is_better(how, part, found)) {
            found = part;
            found.position = first + count * loops->find[how->acc](numbers, rows, &part);
            length = count;
        }
        first += rows * count;
    }
    if (found.position != GPR_NOWHERE) {
        gpr_cpu_locate(view, row, found.position, &at);
        found.position += position_of(how, at.data, length, &found);
    }
    return found;
}

/* Folds positions first .. end - 1 of a row. */
static void fold_row(const job *work, uint64_t row, uint64_t first, uint64_t end, scratch *in,
                     gpr_value *value)
{
    const composite *c = work->composite;
    const size_t bytes = work->view->bytes;
    const char *memory = c->in_place ? gpr_view_row(c->plain, row) : NULL;
    uint64_t run = 0;

    if (c->direct && work->how[0].rule->acc_kind == GPR_ACC_INDEXED) {
        const int is_whole = !c->finds_late || finds_long_at_once(&work->how[0], c->segment);

        *value = (is_whole ? find_in_memory : find_segment)(&work->how[0], memory, first, end,
                                                            c->segment);
        return;
    }
    /* Of a row with gaps, runs of memory that are worth a call of the loops each. */
    if (!c->in_place && !c->leaves_out) run = gpr_cpu_run_of(&work->how[0]);
    if (run > 0 && finds_in_runs(&work->how[0])) {
        *value = find_in_runs(work, row, first, end, run);
        return;
    }
    if (run < LEAST_RUN) run = 0;
    *value = c->nothing;
    while (first < end && !needs_no_more(work, value)) {
        /* of a piece: before whole rows are folded, their first elements are looked at */
        const int is_first = c->looks_first && first == 0 && end < work->view->n;
        const uint64_t segment = is_first ? FIRST_PACKED : c->segment;
        const uint64_t most =
            run > 0 ? gpr_smaller(run - first % run, SEGMENT_BYTES / bytes) : segment;
        const uint64_t count = gpr_smaller(end - first, most);
        const char *elements = in->tile;
        const uint8_t *marks = NULL;
        gpr_view at;

        if (memory != NULL) {
            elements = memory + first * bytes;
        } else if (run > 0) {
            gpr_cpu_locate(c->plain, row, first, &at);
            elements = at.data;
        } else
            gpr_cpu_pack(c->plain, row * work->view->n + first, count, NULL, in->tile);
        if (c->marks != NULL) {
            gpr_cpu_pack(c->marks, row * work->view->n + first, count, NULL, in->marks);
            marks = in->marks;
        }
        fold_segment(work, elements, marks, first, count, in, value);
        first += count;
    }
}

/* Makes *tile a view of `rows` neighbouring rows by `positions` of the last inner axis, at (row,
 * position). */
static void locate_tile(const gpr_view *view, uint64_t row, uint64_t rows, uint64_t position,
                        uint64_t positions, gpr_view *tile)
{
    const int across = view->outer - 1, along = view->outer + view->inner - 1;

    tile->dtype = view->dtype;
    tile->bytes = view->bytes;
    tile->encoding = view->encoding;
    tile->outer = 1;
    tile->inner = 1;
    tile->axes[0].extent = rows;
    tile->axes[0].in = view->axes[across].in;
    tile->axes[0].mask = tile->axes[1].mask = 0;
    tile->axes[1].extent = positions;
    tile->axes[1].in = view->axes[along].in;
    gpr_cpu_locate(view, row, position, tile);
}

/* Folds positions first .. end - 1 of `rows` rows that lie crosswise. */
static void fold_tiles(const job *work, uint64_t row, uint64_t rows, uint64_t first, uint64_t end,
                       scratch *in, gpr_value *values)
{
    const composite *c = work->composite;
    const size_t bytes = work->view->bytes;
    const uint64_t extent = work->view->axes[work->view->outer + work->view->inner - 1].extent;
    const uint64_t most = gpr_smaller(TILE_BYTES / (bytes * TILE_ROWS), STAGE_ELEMENTS);
    gpr_view tile;

    for (uint64_t i = 0; i < rows; i++) values[i] = c->nothing;
    while (first < end) {
        const uint64_t count = gpr_smaller(gpr_smaller(end - first, extent - first % extent), most);

        locate_tile(c->plain, row, rows, first, count, &tile);
        gpr_cpu_pack(&tile, 0, rows * count, NULL, in->tile);
        if (c->marks != NULL) {
            locate_tile(c->marks, row, rows, first, count, &tile);
            gpr_cpu_pack(&tile, 0, rows * count, NULL, in->marks);
        }
        for (uint64_t i = 0; i < rows; i++) {
            const uint8_t *marks = c->marks != NULL ? in->marks + i * count : NULL;

            if (needs_no_more(work, &values[i])) continue;
            fold_segment(work, in->tile + i * count * bytes, marks, first, count, in, &values[i]);
        }
        first += count;
    }
}

/* Merges `rows` rows of `width` numbers, of which row r has position first + r + steps[k] * rows,
 * backward first + rows - 1 - r + steps[k] * rows, with each column's extreme and position so far,
 * -1 if there is none yet. Numbers whose step is below 0 are left out, as are NaN with `skips`. */
#define DEFINE_MERGE(name, T)                                                                 \
    static void merge_##name(const void *numbers, const int64_t *steps, uint64_t rows,        \
                             uint64_t width, uint64_t first, int is_backward, int is_largest, \
                             int skips, void *extremes, int64_t *positions)                   \
    {                                                                                         \
        const T *row = numbers;                                                               \
        T *best = extremes;                                                                   \
        for (uint64_t r = 0; r < rows; r++, row += width, steps += width) {                   \
            const uint64_t place = first + (is_backward ? rows - 1 - r : r);                  \
            for (uint64_t j = 0; j < width; j++) {                                            \
                const T x = row[j], y = best[j];                                              \
                const int64_t at = positions[j],                                              \
                              position = (int64_t)place + steps[j] * (int64_t)rows;           \
                const int is_nan = x != x, was_nan = y != y;                                  \
                int is_better = is_nan && !was_nan, is_same = is_nan && was_nan;              \
                if (steps[j] < 0 || (skips && is_nan)) continue;                              \
                if (!is_nan && !was_nan) {                                                    \
                    is_better = is_largest ? x > y : x < y;                                   \
                    is_same = x == y;                                                         \
                }                                                                             \
                if (at >= 0 && !is_better && !(is_same && position < at)) continue;           \
                best[j] = x;                                                                  \
                positions[j] = position;                                                      \
            }                                                                                 \
        }                                                                                     \
    }

/* ROW(...) of dtypes whose positions are found in columns: numbers that C compares. */
#define COMPARED_GPR_KIND_BOOL(bytes, ROW, ...) ROW(__VA_ARGS__)
#define COMPARED_GPR_KIND_SIGNED(bytes, ROW, ...) ROW(__VA_ARGS__)
#define COMPARED_GPR_KIND_UNSIGNED(bytes, ROW, ...) ROW(__VA_ARGS__)
#define COMPARED_GPR_KIND_FLOAT(bytes, ROW, ...) COMPARED_FLOAT_##bytes(ROW, __VA_ARGS__)
#define COMPARED_FLOAT_2(ROW, ...)
#define COMPARED_FLOAT_4(ROW, ...) ROW(__VA_ARGS__)
#define COMPARED_FLOAT_8(ROW, ...) ROW(__VA_ARGS__)
#define COMPARED_GPR_KIND_COMPLEX(bytes, ROW, ...)

#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    COMPARED_##kind(bytes, DEFINE_MERGE, name, c_type)
#include "dtypes.def"
#undef GPR_DTYPE

typedef void (*merge_found)(const void *numbers, const int64_t *steps, uint64_t rows,
                            uint64_t width, uint64_t first, int is_backward, int is_largest,
                            int skips, void *extremes, int64_t *positions);

/* NULL of dtypes whose positions are not found in columns. */
static merge_found merge_of(gpr_dtype dtype)
{
    static const merge_found merges[GPR_DTYPE_COUNT] = {
#define MERGE(ID, name) [GPR_##ID] = merge_##name,
#define GPR_DTYPE(ID, name, bytes, kind, ...) COMPARED_##kind(bytes, MERGE, ID, name)
#include "dtypes.def"
#undef GPR_DTYPE
    };

    return merges[dtype];
}

/* Merges the moments of `rows` rows more, given as the sums of a first pass over them and the sums
 * of distances from centers of a second pass. Products with the inverse of the number of rows: a
 * column of few elements would wait for divisions more than for memory. */
static void merge_columns(column_moments *all, uint64_t rows, uint64_t width,
                          const double *restrict centers, const double *restrict distances,
                          const double *restrict squares)
{
    const double count = (double)all->count + (double)rows, inverse = 1 / (double)rows;
    const double share = (double)rows / count, weight = (double)all->count / count * (double)rows;

    if (all->count == 0) {
        for (uint64_t j = 0; j < width; j++) {
            all->mean[j] = centers[j];
            all->rest[j] = distances[j] * inverse;
            all->squares[j] =
                gpr_squares_without(squares[j], distances[j] * inverse * distances[j]);
        }
    } else {
        for (uint64_t j = 0; j < width; j++) {
            const double rest = distances[j] * inverse,
                         about =
                             gpr_squares_without(squares[j], distances[j] * inverse * distances[j]);
            const double apart = (centers[j] - all->mean[j]) + (rest - all->rest[j]);

            all->rest[j] += apart * share;
            all->squares[j] += about + apart * apart * weight;
        }
    }
    all->count += rows;
}

/* Packs `rows` positions of the tile in the dtype that the loops read, behind `before` positions
 * that are packed already. */
static const char *pack_columns(const recipe *how, const gpr_view *tile, uint64_t before,
                                uint64_t rows, scratch *in)
{
    const uint64_t width = tile->axes[1].extent, at_once = STAGE_ELEMENTS / width;
    const uint64_t row_bytes = width * how->loop_bytes;

    if (how->direct) {
        gpr_cpu_pack(tile, 0, rows * width, NULL, in->tile + before * row_bytes);
        return in->tile;
    }
    for (uint64_t done = 0; done < rows; done += at_once) {
        const uint64_t some = gpr_smaller(rows - done, at_once);

        gpr_cpu_pack(tile, done * width, some * width, NULL, in->s.packed);
        memcpy(in->tile + (before + done) * row_bytes,
               gpr_cpu_prepare(how, in->s.packed, some * width, &in->s), some * row_bytes);
    }
    return in->tile;
}

/* Makes `rows` positions of the tile, from (row, first) on, readable for the loops of columns: in
 * place, or packed. Sets the bytes from a position to the next one. */
static const char *read_columns(const job *work, uint64_t row, uint64_t first, uint64_t rows,
                                gpr_view *tile, scratch *in, int64_t *stride)
{
    const composite *c = work->composite;
    const recipe *how = &work->how[0];

    gpr_cpu_locate(c->plain, row, first, tile);
    if (c->columns_in_place) {
        *stride = tile->axes[0].in;
        return tile->data;
    }
    *stride = (int64_t)(tile->axes[1].extent * how->loop_bytes);
    return pack_columns(how, tile, 0, rows, in);
}

/* Adds the squared distances of the two parts of complex columns. */
static void add_parts(const composite *c, uint64_t width, double *squares)
{
    for (uint64_t j = 0; c->parts > 1 && j < width; j++)
        squares[j] = squares[2 * j] + squares[2 * j + 1];
}

/* Folds positions first .. end - 1 of `width` rows that lie crosswise, in the order of memory: the
 * moments of `width` columns of real numbers, or of twice as many columns of the parts of complex
 * numbers. */
static void fold_columns(const job *work, uint64_t row, uint64_t width, uint64_t first,
                         uint64_t end, unit_memory *memory)
{
    const recipe *how = &work->how[0];
    const composite *c = work->composite;
    const gpr_view *view = c->plain;
    const uint64_t extent = view->axes[view->outer + view->inner - 1].extent;
    const uint64_t most = c->columns_in_place
                              ? MOMENT_ROWS
                              : gpr_smaller(MOMENT_ROWS, TILE_BYTES / (width * how->loop_bytes));
    const uint64_t numbers = width * (uint64_t)c->parts;
    const int source = c->columns_in_place ? gpr_cpu_source_of(view) : 0;
    column_memory *in = &memory->columns;
    gpr_view tile;

    gpr_cpu_make_tile(view, width, &tile);
    in->all.count = 0;
    while (first < end) {
        const uint64_t rows = gpr_smaller(gpr_smaller(end - first, extent - first % extent), most);
        int64_t stride;
        const char *elements = read_columns(work, row, first, rows, &tile, &memory->in, &stride);

        const double inverse = 1 / (double)rows; /* centers are near the means, no more */

        memset(in->distances, 0, numbers * sizeof *in->distances);
        memset(in->squares, 0, numbers * sizeof *in->squares);
        how->loop.columns(elements, stride, rows, width, GPR_FRESH | source, in->centers);
        for (uint64_t j = 0; j < numbers; j++) in->centers[j] *= inverse;
        gpr_cpu_loops()->distances[gpr_real_dtype(how->loop_dtype)](
            elements, stride, rows, numbers, source != 0 ? (int64_t)rows * stride : 0, in->centers,
            in->distances, in->squares);
        merge_columns(&in->all, rows, numbers, in->centers, in->distances, in->squares);
        first += rows;
    }
}

/* How many rows of memory of `width` elements, which follow each other without gaps, make what a
 * loop takes at least, and how many are searched side by side at most: narrow columns leave most
 * of a vector empty. */
typedef struct side_by_side {
    uint64_t fewest, most;
} side_by_side;

static side_by_side rows_side_by_side(const recipe *how, uint64_t width)
{
    enum { WIDE_BYTES = 1024 };
    const uint64_t row_bytes = width * how->loop_bytes;

    if (row_bytes > WIDE_BYTES / 2 || width > MOMENT_COLUMNS / 2) return (side_by_side){1, 1};
    return (side_by_side){gpr_divide_up(GPR_COLUMN_BYTES, row_bytes),
                          gpr_smaller(MOMENT_COLUMNS / width, WIDE_BYTES / row_bytes)};
}

/* How many of `rows` rows: few enough that merging what was found is little beside it. */
static uint64_t copies_of(side_by_side sides, uint64_t rows)
{
    enum { LEAST_DEPTH = 16 };
    const uint64_t wanted = rows / LEAST_DEPTH;

    return gpr_smaller(sides.most, wanted > sides.fewest ? wanted : sides.fewest);
}

/* Finds positions in `rows` rows without gaps, the first of which has position `at`, and merges
 * them with those found before. Backward the next row is the one before it in memory. */
static void find_side_by_side(const recipe *how, const char *elements, int is_backward,
                              uint64_t rows, uint64_t width, side_by_side sides, uint64_t at,
                              found_memory *found)
{
    const gpr_column_positions_loop find = position_loops(how)->columns[how->loop_dtype];
    const merge_found merge = merge_of(how->loop_dtype);
    const uint64_t row_bytes = width * how->loop_bytes, copies = copies_of(sides, rows),
                   whole = rows / copies, fewest = sides.fewest;
    const int is_largest = how->fold == GPR_FOLD_max || how->fold == GPR_FOLD_fmax,
              skips = how->fold == GPR_FOLD_fmin || how->fold == GPR_FOLD_fmax;
    const int64_t stride = (int64_t)(copies * row_bytes);
    uint64_t left = rows % copies;

    if (whole > 0) {
        find(is_backward ? elements - (copies - 1) * row_bytes : elements,
             is_backward ? -stride : stride, whole, copies * width, 0, GPR_FRESH,
             found->wide_numbers, found->wide_positions);
        merge(found->wide_numbers, found->wide_positions, copies, width, at, is_backward,
              is_largest, skips, found->numbers, found->positions);
    }
    if (left == 0) return;
    /* Rows that are merged again change nothing. */
    if (left < fewest) left = gpr_smaller(fewest, rows);
    elements =
        is_backward ? elements - (rows - 1) * row_bytes : elements + (rows - left) * row_bytes;
    at += rows - left;
    if (left < fewest) { /* fewer than a loop takes */
        memset(found->wide_numbers, 0, GPR_COLUMN_BYTES);
        for (uint64_t k = 0; k < left * width; k++) found->wide_positions[k] = 0;
        memcpy(found->wide_numbers, elements, left * row_bytes);
        for (uint64_t k = 0; k < left * width && how->loop_dtype == GPR_BOOL; k++)
            found->wide_numbers[k] = found->wide_numbers[k] != 0;
    } else {
        find(elements, 0, 1, left * width, 0, GPR_FRESH, found->wide_numbers,
             found->wide_positions);
    }
    merge(found->wide_numbers, found->wide_positions, left, width, at, is_backward, is_largest,
          skips, found->numbers, found->positions);
}

/* The same of bools in few columns, in either direction. */
static void merge_truths(const char *elements, int64_t stride, uint64_t rows, uint64_t width,
                         int wanted, uint64_t at, found_memory *found)
{
    int64_t places[GPR_MOST_TRUTH_COLUMNS];

    gpr_cpu_find_truths_in_columns(elements, stride, rows, width, wanted, places);
    for (uint64_t j = 0; j < width; j++) {
        if (found->positions[j] < 0) {
            found->numbers[j] = (char)!wanted;
            found->positions[j] = (int64_t)at;
        }
        if (places[j] < 0 || found->numbers[j] == wanted) continue;
        found->numbers[j] = (char)wanted;
        found->positions[j] = (int64_t)at + places[j];
    }
}

/* Whether no later row can change what was found in columns: their first true (or false) bools, or
 * NaN where these are not skipped. */
static int are_final(const recipe *how, const char *numbers, uint64_t count)
{
    const int wanted = how->fold == GPR_FOLD_max;
    const int may_be_nan = how->fold == GPR_FOLD_min || how->fold == GPR_FOLD_max;
    gpr_value number;

    if (how->loop_dtype == GPR_BOOL) return memchr(numbers, !wanted, count) == NULL;
    for (uint64_t i = 0; i < count && may_be_nan; i++) {
        memcpy(number.bytes, numbers + i * how->acc_bytes, how->acc_bytes);
        if (!is_nan(how, &number)) return 0;
    }
    return may_be_nan;
}

/* Finds positions among first .. end - 1 of `width` rows that lie crosswise, in the order of
 * memory. If the last columns are fewer than a loop takes, they are searched together with columns
 * before them. */
static void find_in_columns(const job *work, uint64_t row, uint64_t width, uint64_t first,
                            uint64_t end, unit_memory *memory)
{
    const recipe *how = &work->how[0];
    const composite *c = work->composite;
    const gpr_view *view = c->plain;
    const uint64_t extent = view->axes[view->outer + view->inner - 1].extent,
                   across = view->axes[view->outer - 1].extent,
                   fewest = GPR_COLUMN_BYTES / how->loop_bytes,
                   before = width < fewest && across >= fewest ? fewest - width : 0,
                   all = width + before;
    const uint64_t most = c->columns_in_place ? extent : TILE_BYTES / (all * how->loop_bytes);
    const gpr_column_positions_loop find = position_loops(how)->columns[how->loop_dtype];
    const side_by_side sides = rows_side_by_side(how, all);
    const int is_bool = how->loop_dtype == GPR_BOOL,
              are_words = is_bool && all <= GPR_MOST_TRUTH_COLUMNS,
              asks = is_bool && !(are_words && c->columns_in_place),
              wanted = how->rule->fold == GPR_FOLD_argmax;
    const int source = c->columns_in_place ? gpr_cpu_source_of(view) : 0;
    found_memory *found = &memory->found;
    uint64_t at_once = asks ? gpr_smaller(ASKING_ROWS, most) : most;
    gpr_view tile;

    gpr_cpu_make_tile(view, all, &tile);
    for (uint64_t at = first; at < end; at_once = gpr_smaller(2 * at_once, most)) {
        const uint64_t rows = gpr_smaller(gpr_smaller(end - at, extent - at % extent), at_once);
        int64_t stride;
        const char *elements =
            read_columns(work, row - before, at, rows, &tile, &memory->in, &stride);

        if (at == first) { /* nothing is found, and NaN where floats are left out */
            memset(found->numbers, 0xff, all * how->loop_bytes);
            for (uint64_t j = 0; j < all; j++) found->positions[j] = -1;
        }
        if (are_words && (uint64_t)llabs(stride) == all) {
            merge_truths(elements, stride, rows, all, wanted, at, found);
        } else if (copies_of(sides, rows) > 1 && (uint64_t)llabs(stride) == all * how->loop_bytes) {
            find_side_by_side(how, elements, stride < 0, rows, all, sides, at, found);
        } else {
            find(elements, stride, rows, all, at, source | (at == first ? GPR_FRESH : 0),
                 found->numbers, found->positions);
        }
        at += rows;
        if (are_final(how, found->numbers, all)) break;
    }
    if (before == 0) return;
    memmove(found->numbers, found->numbers + before * how->loop_bytes, width * how->loop_bytes);
    memmove(found->positions, found->positions + before, width * sizeof *found->positions);
}

/* A view of `count` blocks of columns, of axes that are as far apart as those of the view's blocks,
 * from row `row` on. */
static void make_blocks(const gpr_view *view, uint64_t row, uint64_t count, gpr_view *blocks)
{
    gpr_copy_view(blocks, view);
    blocks->outer = 0;
    blocks->inner = 0;
    if (count > 1) {
        blocks->axes[blocks->inner] = view->axes[view->outer - 2];
        blocks->axes[blocks->inner++].extent = count;
    }
    for (int i = 0; i < view->inner; i++)
        blocks->axes[blocks->inner++] = view->axes[view->outer + i];
    blocks->axes[blocks->inner++] = view->axes[view->outer - 1];
    gpr_cpu_locate(view, row, 0, blocks);
}

/* Finds positions in the blocks of columns that are units unit .. end - 1. A loop reads beyond a
 * block: the last one of an axis is packed, but of bools. */
static void find_in_blocks(const job *work, uint64_t unit, uint64_t end, unit_memory *memory)
{
    const recipe *how = &work->how[0];
    const composite *c = work->composite;
    const gpr_view *view = work->view;
    const gpr_block_positions_loop find = position_loops(how)->blocks[how->loop_dtype];
    const int is_bool = how->loop_dtype == GPR_BOOL;
    const uint64_t width = work->units.width, block = width * view->n,
                   siblings = view->outer > 1 ? view->axes[view->outer - 2].extent : 1,
                   packed = how->direct ? FOUND_TILE_BYTES / (block * how->loop_bytes)
                                        : STAGE_ELEMENTS / block;
    scratch *in = &memory->in;
    int64_t *positions = memory->found.positions;

    while (unit < end) {
        const uint64_t left = siblings - unit % siblings;
        uint64_t count = gpr_smaller(gpr_smaller(end - unit, left), MOMENT_COLUMNS / width);
        int64_t stride = (int64_t)(block * how->loop_bytes);
        const char *elements;
        gpr_view blocks;

        if (c->blocks_in_place && (left > 1 || is_bool)) {
            if (!is_bool) count = gpr_smaller(count, left - 1);
            stride = view->axes[view->outer - 2].in;
            elements = gpr_view_row(view, unit * width);
        } else {
            count = gpr_smaller(count, packed);
            make_blocks(view, unit * width, count, &blocks);
            elements = how->direct ? in->tile : in->s.packed;
            gpr_cpu_pack(&blocks, 0, count * block, NULL, how->direct ? in->tile : in->s.packed);
            if (!how->direct) elements = gpr_cpu_prepare(how, elements, count * block, &in->s);
        }
        if (is_bool)
            gpr_cpu_find_truths_in_blocks(elements, stride, count, view->n, width,
                                          how->rule->fold == GPR_FOLD_argmax, positions);
        else
            find(elements, stride, count, view->n, width, positions);
        memcpy(work->result + unit * width * work->result_bytes, positions,
               count * width * sizeof *positions);
        unit += count;
    }
}

static void find_in_columns_to_values(const job *work, uint64_t row, uint64_t width, uint64_t first,
                                      uint64_t end, unit_memory *in, gpr_value *values)
{
    const size_t bytes = work->how[0].acc_bytes;

    find_in_columns(work, row, width, first, end, in);
    for (uint64_t j = 0; j < width; j++) {
        values[j] = work->composite->nothing;
        if (in->found.positions[j] < 0) continue;
        memcpy(values[j].bytes, in->found.numbers + j * bytes, bytes);
        values[j].position = (uint64_t)in->found.positions[j];
    }
}

static void fold_columns_to_values(const job *work, uint64_t row, uint64_t width, uint64_t first,
                                   uint64_t end, unit_memory *in, gpr_value *values)
{
    column_moments *all = &in->columns.all;
    const int is_complex = work->composite->parts > 1;

    fold_columns(work, row, width, first, end, in);
    add_parts(work->composite, width, all->squares);
    for (uint64_t j = 0; j < width; j++) {
        values[j] = (gpr_value){.count = all->count, .squares = all->squares[j]};
        if (is_complex) {
            values[j].c128 = gpr_complex(all->mean[2 * j] + all->rest[2 * j],
                                         all->mean[2 * j + 1] + all->rest[2 * j + 1]);
        } else {
            values[j].mean[0] = all->mean[j];
            values[j].mean[1] = all->rest[j];
        }
    }
}

/* Folds positions first .. end - 1 of a unit's rows; returns their number, and the first of them
 * in *row. */
static uint64_t fold_unit(const job *work, uint64_t unit, uint64_t first, uint64_t end,
                          unit_memory *in, uint64_t *row, gpr_value *values)
{
    uint64_t rows = 1;

    if (work->composite->crosswise) {
        *row = gpr_cpu_unit_row(&work->units, unit, &rows);
        if (work->composite->columns && work->composite->finds)
            find_in_columns_to_values(work, *row, rows, first, end, in, values);
        else if (work->composite->columns)
            fold_columns_to_values(work, *row, rows, first, end, in, values);
        else
            fold_tiles(work, *row, rows, first, end, &in->in, values);
    } else {
        *row = unit;
        fold_row(work, unit, first, end, &in->in, values);
    }
    return rows;
}

/* ---------------------------------------------------------------- tasks ---------------------- */

/* Finalizes the accumulators of consecutive rows. Moments of elements that come several times have
 * as many times the squares, about the mean that they have; positions stay the same. */
static void finish(const job *work, gpr_value *values, uint64_t count, uint64_t row)
{
    const recipe *how = &work->how[0];
    const gpr_acc_kind acc_kind = how->rule->acc_kind;
    const size_t bytes = gpr_acc_bytes(acc_kind, how->acc);
    char packed[RESULT_BATCH * sizeof *values];

    for (uint64_t done = 0; done < count;) {
        const uint64_t some = gpr_smaller(count - done, RESULT_BATCH);

        for (uint64_t i = 0; i < some; i++) {
            gpr_value *value = &values[done + i];

            if (acc_kind == GPR_ACC_MOMENTS) {
                value->squares *= (double)work->repeats;
                value->count *= work->repeats;
            }
            gpr_write_acc(acc_kind, how->acc, value, packed + i * bytes);
        }
        gpr_finish_results(how->rule, how->acc, packed, some, work->view->n,
                           work->result + (row + done) * work->result_bytes, work->output_stride);
        done += some;
    }
}

/* Finalizes the squared distances of `count` rows: of counts[i] elements each, or of all where
 * counts is NULL. */
static void finish_squares(const job *work, double *squares, uint64_t *counts, uint64_t count,
                           uint64_t row)
{
    const gpr_rule *rule = work->how[0].rule;
    const uint64_t repeats = work->repeats, n = work->view->n * repeats;
    char *results = work->result + row * work->result_bytes;

    for (uint64_t i = 0; i < count && repeats > 1; i++) {
        squares[i] *= (double)repeats;
        if (counts != NULL) counts[i] *= repeats;
    }
    if (counts == NULL && (rule->result == GPR_FLOAT32 || rule->result == GPR_FLOAT64) &&
        (uintptr_t)results % work->result_bytes == 0) {
        const double divisor = fmax((double)n - rule->ddof, 0);

        gpr_cpu_loops()->variances(squares, divisor, count, rule->op == GPR_OP_STD,
                                   rule->result == GPR_FLOAT32, results);
        return;
    }
    gpr_finish_squares(rule, squares, counts, count, n, results);
}

/* Positions in rows that the loops can read. */
static void find_in_each(const recipe *how, const char *elements, int64_t stride, uint64_t rows,
                         uint64_t n, int64_t *positions)
{
    _Alignas(MOST_NUMBER_BYTES) char numbers[RESULT_BATCH * MOST_NUMBER_BYTES];

    how->loop.rows(elements, stride, rows, n, numbers);
    for (uint64_t i = 0; i < rows; i++) {
        gpr_value number;
        memcpy(number.bytes, numbers + i * how->acc_bytes, how->acc_bytes);
        positions[i] = -1;
        if (how->rule->skip_nan && is_nan(how, &number)) continue;
        positions[i] = (int64_t)position_of(how, elements + (int64_t)i * stride, n, &number);
    }
}

/* Whether each row's elements are aligned native neighbours, with or without a mask. */
static int is_in_place(const gpr_view *view)
{
    const int dense = view->inner == 0 ||
                      (view->inner == 1 && view->axes[view->outer].in == (int64_t)view->bytes);
    uint64_t bits = (uint64_t)(uintptr_t)view->data;

    for (int i = 0; i < view->outer; i++) bits |= (uint64_t)view->axes[i].in;
    return dense && view->encoding == 0 && bits % view->bytes == 0;
}

/* Whether an element can end the search: a NaN, or a bool. */
static int may_end(const job *work)
{
    const gpr_rule *rule = work->how[0].rule;

    return rule->acc_kind == GPR_ACC_INDEXED && !rule->skip_nan &&
           (work->how[0].loop_dtype == GPR_BOOL || gpr_is_inexact(rule->element));
}

/* Whether an element ends its row's search: of a loop for rows, which find no other then. */
static int is_end(const recipe *how, const char *element)
{
    double parts[2] = {0};

    if (how->loop_dtype == GPR_BOOL) return (*element != 0) == (how->rule->fold == GPR_FOLD_argmax);
    if (how->loop_dtype == GPR_FLOAT32) {
        float number;

        memcpy(&number, element, sizeof number);
        return isnan(number);
    }
    gpr_convert(how->loop_dtype, element, GPR_COMPLEX128, parts, 1);
    return isnan(parts[0]) || isnan(parts[1]);
}

/* Positions in rows of n elements that the loops read; `by_loop`: by the loop for rows. */
static void find_positions(const recipe *how, int by_loop, const char *elements, int64_t stride,
                           uint64_t rows, uint64_t n, int64_t *positions)
{
    if (how->loop_dtype == GPR_BOOL)
        gpr_cpu_find_truths(elements, stride, rows, n, how->rule->fold == GPR_FOLD_argmax,
                            positions);
    else if (by_loop)
        position_loops(how)->rows[how->loop_dtype](elements, stride, rows, n, positions);
    else
        find_in_each(how, elements, stride, rows, n, positions);
}

/* Whether loops look for such an element in memory. */
static int may_end_soon(const job *work)
{
    const recipe *how = &work->how[0];

    return may_end(work) && how->direct && (how->loop_dtype == GPR_BOOL || finds_in_rows(how));
}

/* Whether one of the first elements of a row ends its search; *at is where. */
static int ends_soon(const recipe *how, const char *row, int64_t *at)
{
    const uint64_t some = how->loop_dtype == GPR_BOOL ? SOON_TRUTHS : SOON_BYTES / how->loop_bytes;

    find_positions(how, 1, row, 0, 1, some, at);
    return is_end(how, row + *at * (int64_t)how->loop_bytes);
}

/* The same of a row that is packed. */
static int ends_soon_packed(const job *work, uint64_t row, stage *s, int64_t *at)
{
    const recipe *how = &work->how[0];
    const composite *c = work->composite;
    const char *elements = c->in_place ? gpr_view_row(c->plain, row) : s->packed;

    if (!c->in_place) gpr_cpu_pack(c->plain, row * work->view->n, FIRST_PACKED, NULL, s->packed);
    elements = gpr_cpu_prepare(how, elements, FIRST_PACKED, s);
    find_positions(how, c->by_loop, elements, 0, 1, FIRST_PACKED, at);
    return is_end(how, elements + *at * (int64_t)how->loop_bytes);
}

/* Whether the first elements of each of a few long rows decide; then results are stored. NumPy
 * reads no more of them. */
static int decides_soon(job *work)
{
    enum { MOST_ROWS = 256 };
    const gpr_view *view = work->view;
    const recipe *how = &work->how[0];

    if (!may_end_soon(work) || !is_in_place(view) || view->mask != NULL ||
        view->n <= work->length || view->rows > MOST_ROWS)
        return 0;
    for (uint64_t i = 0; i < view->rows; i++) {
        int64_t at;

        if (!ends_soon(how, gpr_view_row(view, i), &at)) return 0;
        memcpy(work->result + i * work->result_bytes, &at, sizeof at);
    }
    return 1;
}

/* Replaces elements that a mask or NaN leave out by NaN, both parts of complex ones. Other NaN
 * become infinities, which make the row's variance NaN too. By operations on bits: branches would
 * be mispredicted. */
#define DEFINE_MARK_OUT(name, T, BITS, PARTS)                                                   \
    static void mark_out_##name(char *elements, const uint8_t *marks, uint64_t count, int skip) \
    {                                                                                           \
        const T infinite = (T)INFINITY, none = (T)NAN;                                          \
        const BITS skips = (BITS) - skip;                                                       \
        BITS infinite_bits, none_bits;                                                          \
        memcpy(&infinite_bits, &infinite, sizeof infinite);                                     \
        memcpy(&none_bits, &none, sizeof none);                                                 \
        for (uint64_t i = 0; i < count; i++, elements += (PARTS) * sizeof(T)) {                 \
            T numbers[PARTS];                                                                   \
            BITS bits[PARTS];                                                                   \
            memcpy(numbers, elements, sizeof numbers);                                          \
            memcpy(bits, elements, sizeof bits);                                                \
            const BITS nan = (BITS) - (BITS)((numbers[0] != numbers[0]) |                       \
                                             (numbers[(PARTS) - 1] != numbers[(PARTS) - 1]));   \
            const BITS out = (BITS) - (BITS)(marks[i] == 0) | (nan & skips);                    \
            for (int part = 0; part < (PARTS); part++) {                                        \
                const BITS kept = (bits[part] & ~nan) | (infinite_bits & nan);                  \
                bits[part] = (kept & ~out) | (none_bits & out);                                 \
            }                                                                                   \
            memcpy(elements, bits, sizeof bits);                                                \
        }                                                                                       \
    }
DEFINE_MARK_OUT(float32, float, uint32_t, 1)
DEFINE_MARK_OUT(float64, double, uint64_t, 1)
DEFINE_MARK_OUT(complex64, float, uint32_t, 2)
DEFINE_MARK_OUT(complex128, double, uint64_t, 2)

/* As above, for the `count` elements in the tile. Without a mask real NaN are the marks already. */
static void mark_out(const job *work, uint64_t count, scratch *in)
{
    const recipe *how = &work->how[0];
    const composite *c = work->composite;
    const int skip = how->rule->skip_nan;

    if (c->marks == NULL && c->parts == 1) return;
    if (c->marks == NULL) { /* NaN are left out, then */
        const float none32[GPR_EXACT_PARTS] = {NAN, NAN};
        const double none64[GPR_EXACT_PARTS] = {NAN, NAN};
        const int is_single = how->loop_dtype == GPR_COMPLEX64;

        gpr_cpu_replace_nan(how->loop_dtype, in->tile, count,
                            is_single ? (const void *)none32 : none64);
        return;
    }
    switch (how->loop_dtype) {
    case GPR_FLOAT32: mark_out_float32(in->tile, in->marks, count, skip); break;
    case GPR_FLOAT64: mark_out_float64(in->tile, in->marks, count, skip); break;
    case GPR_COMPLEX64: mark_out_complex64(in->tile, in->marks, count, skip); break;
    default: mark_out_complex128(in->tile, in->marks, count, skip); break;
    }
}

/* Variances of rows of which something is left out. */
static void vary_each(const job *work, const char *elements, uint64_t rows, uint64_t row,
                      scratch *in)
{
    const recipe *how = &work->how[0];
    const uint64_t n = work->view->n, count = rows * n;
    const int64_t stride = (int64_t)(n * how->loop_bytes);
    double squares[RESULT_BATCH];
    uint64_t counts[RESULT_BATCH];

    memcpy(in->tile, elements, count * how->loop_bytes);
    if (work->composite->marks != NULL)
        gpr_cpu_pack(work->composite->marks, row * n, count, NULL, in->marks);
    mark_out(work, count, in);
    gpr_cpu_loops()->skipping_moments[how->loop_dtype](in->tile, stride, rows, n, squares, counts);
    finish_squares(work, squares, counts, rows, row);
}

/* Variances of `width` rows that lie crosswise, of which something is left out, and all of which
 * fit the tile. */
static void vary_columns(const job *work, uint64_t row, uint64_t width, unit_memory *memory)
{
    const recipe *how = &work->how[0];
    const composite *c = work->composite;
    const uint64_t n = work->view->n,
                   extent = c->plain->axes[c->plain->outer + c->plain->inner - 1].extent;
    column_memory *columns = &memory->columns;
    scratch *in = &memory->in;
    gpr_view tile, marks;

    gpr_cpu_make_tile(c->plain, width, &tile);
    if (c->marks != NULL) gpr_cpu_make_tile(c->marks, width, &marks);
    for (uint64_t first = 0; first < n; first += extent) {
        gpr_cpu_locate(c->plain, row, first, &tile);
        (void)pack_columns(how, &tile, first, extent, in);
        if (c->marks == NULL) continue;
        gpr_cpu_locate(c->marks, row, first, &marks);
        gpr_cpu_pack(&marks, 0, extent * width, NULL, in->marks + first * width);
    }
    mark_out(work, n * width, in);
    gpr_cpu_loops()->skipping_columns[gpr_real_dtype(how->loop_dtype)](
        in->tile, (int64_t)(width * how->loop_bytes), n, width * (uint64_t)c->parts,
        columns->squares, columns->counts);
    add_parts(c, width, columns->squares);
    for (uint64_t j = 0; c->parts > 1 && j < width; j++)
        columns->counts[j] = columns->counts[j * (uint64_t)c->parts];
    finish_squares(work, columns->squares, columns->counts, width, row);
}

/* Results of rows that the loops read in place. */
static void fold_each(const job *work, const char *elements, int64_t stride, uint64_t rows,
                      uint64_t row)
{
    const recipe *how = &work->how[0];
    const uint64_t n = work->view->n;
    char *results = work->result + row * work->result_bytes;
    int64_t positions[RESULT_BATCH];
    double squares[RESULT_BATCH];

    if (how->rule->acc_kind == GPR_ACC_MOMENTS) {
        gpr_cpu_loops()->moments[how->loop_dtype](elements, stride, rows, n, squares);
        finish_squares(work, squares, NULL, rows, row);
        return;
    }
    find_positions(how, work->composite->by_loop, elements, stride, rows, n, positions);
    memcpy(results, positions, rows * sizeof *positions);
}

/* Stores positions of rows from `row` on until the first elements of one do not end its search.
 * Returns how many rows these are. */
static uint64_t store_ended(const job *work, uint64_t row, uint64_t end, stage *s)
{
    uint64_t ended = row;
    int64_t at;

    for (; ended < end && ends_soon_packed(work, ended, s, &at); ended++)
        memcpy(work->result + ended * work->result_bytes, &at, sizeof at);
    return ended - row;
}

/* Whether the search of a row whose position is stored may have ended at its first elements. */
static int may_have_ended(const job *work, uint64_t row)
{
    int64_t at;

    memcpy(&at, work->result + row * work->result_bytes, sizeof at);
    return at < FIRST_PACKED;
}

/* Positions in short rows, or their moments: one call of a loop for many rows. Where the first
 * elements of a row may end its search, they are looked at first, as long as they did in the row
 * before. */
static void fold_many(const job *work, uint64_t row, uint64_t end, scratch *in)
{
    stage *s = in != NULL ? &in->s : NULL;
    const gpr_view *view = work->view;
    const recipe *how = &work->how[0];
    const composite *c = work->composite;
    const int last = view->outer - 1;
    const uint64_t n = view->n,
                   extent = c->direct && last >= 0 ? view->axes[last].extent : UINT64_MAX;
    /* As many rows as stay in the first cache until they are searched, or as the stage holds; one
     * of those that are longer. A loop for rows searches each itself. */
    const int searches = c->by_loop || how->loop_dtype == GPR_BOOL;
    const uint64_t held = c->direct && searches ? RESULT_BATCH
                                                : (c->direct ? c->segment : STAGE_ELEMENTS) / n,
                   at_once = held > 0 ? gpr_smaller(RESULT_BATCH, held) : 1;
    int looks_first = c->looks_first;

    while (row < end) {
        if (looks_first) row += store_ended(work, row, end, s);
        if (row == end) break;

        const uint64_t rows = gpr_smaller(gpr_smaller(end - row, at_once), extent - row % extent);
        const char *elements = NULL;
        int64_t stride = (int64_t)(n * how->loop_bytes);

        if (c->direct) {
            elements = gpr_view_row(view, row);
            stride = last >= 0 ? view->axes[last].in : 0;
        } else {
            gpr_cpu_pack(c->plain, row * n, rows * n, NULL, s->packed);
            elements = gpr_cpu_prepare(how, s->packed, rows * n, s);
        }
        if (c->leaves_out)
            vary_each(work, elements, rows, row, in);
        else
            fold_each(work, elements, stride, rows, row);
        row += rows;
        looks_first = c->looks_first && may_have_ended(work, row - 1);
    }
}

/* Whole rows. */
static int units_task(void *context, uint64_t index, void *memory)
{
    job *work = context;
    unit_memory *in = memory;
    const uint64_t end = gpr_smaller(work->units.count, (index + 1) * work->per_task);
    uint64_t waiting = 0, first_row = 0;
    int looks_first = work->composite->looks_first;

    if (gpr_cpu_must_stop(&work->stop)) return 0;
    if (work->composite->many_at_once) {
        fold_many(work, index * work->per_task, end, in != NULL ? &in->in : NULL);
        return 1;
    }
    if (work->composite->blocks) {
        find_in_blocks(work, index * work->per_task, end, in);
        return 1;
    }
    for (uint64_t unit = index * work->per_task; unit < end && work->composite->columns; unit++) {
        uint64_t rows;
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows);

        if (work->composite->finds) {
            find_in_columns(work, row, rows, 0, work->view->n, in);
            memcpy(work->result + row * work->result_bytes, in->found.positions,
                   rows * sizeof *in->found.positions);
            continue;
        }
        if (work->composite->leaves_out) {
            vary_columns(work, row, rows, in);
            continue;
        }
        fold_columns(work, row, rows, 0, work->view->n, in);
        add_parts(work->composite, rows, in->columns.all.squares);
        finish_squares(work, in->columns.all.squares, NULL, rows, row);
    }
    if (work->composite->columns) return 1;
    for (uint64_t unit = index * work->per_task; unit < end; unit++) {
        uint64_t row = 0, ended = 0, rows = 0;

        if (looks_first) ended = store_ended(work, unit, end, &in->in.s);
        if (ended > 0 && waiting > 0) {
            finish(work, in->values, waiting, first_row);
            waiting = 0;
        }
        unit += ended;
        if (unit == end) break;
        rows = fold_unit(work, unit, 0, work->view->n, in, &row, in->values + waiting);
        looks_first = work->composite->looks_first && in->values[waiting].position < FIRST_PACKED;
        if (waiting == 0) first_row = row;
        waiting += rows;
        if (waiting + work->units.rows <= RESULT_BATCH && unit + 1 < end) continue;
        finish(work, in->values, waiting, first_row);
        waiting = 0;
    }
    return 1;
}

/* Notes that the searches of a unit's rows end in a piece: no later one replaces what it found. */
static void end_unit(job *work, uint64_t unit, uint64_t piece)
{
    uint64_t end = atomic_load_explicit(&work->ends[unit], memory_order_relaxed);

    while (piece < end &&
           !atomic_compare_exchange_weak_explicit(&work->ends[unit], &end, piece,
                                                  memory_order_release, memory_order_relaxed))
        continue;
}

static int unit_piece_task(void *context, uint64_t task, void *memory)
{
    job *work = context;
    unit_memory *in = memory;
    const uint64_t index = work->done + task, unit = index / work->pieces,
                   piece = index % work->pieces, first = piece * work->length;
    gpr_value *partials = (gpr_value *)work->partials + unit * work->units.rows * work->pieces;
    uint64_t row = 0, rows = 0, end = UINT64_MAX;
    int are_final = work->ends != NULL;

    if (work->ends != NULL) end = atomic_load_explicit(&work->ends[unit], memory_order_acquire);
    if (end < piece) return work->units.count > 1; /* nobody asks for what is behind the end */
    if (gpr_cpu_must_stop(&work->stop)) return 0;
    rows = fold_unit(work, unit, first, gpr_smaller(work->view->n, first + work->length), in, &row,
                     in->values);
    for (uint64_t i = 0; i < rows; i++) {
        partials[i * work->pieces + piece] = in->values[i];
        are_final = are_final && is_final(&work->how[0], &in->values[i]);
    }
    if (are_final) end_unit(work, unit, piece);
    return 1;
}

/* Memory for the pieces that end the search of a unit's rows; without it all are searched. */
static void keep_ends(job *work)
{
    if (!may_end(work)) return;
    work->ends = malloc(work->units.count * sizeof *work->ends);
    for (uint64_t unit = 0; work->ends != NULL && unit < work->units.count; unit++)
        atomic_init(&work->ends[unit], UINT64_MAX);
}

/* Notes how long the search takes where elements near the beginnings of rows end it: of the first
 * row, of one in the middle and of the last one. */
static void expect_ends(job *work)
{
    enum { ENDED_ROW_NANOSECONDS = 50, ENDED_PACKED_NANOSECONDS = 150 };
    const gpr_view *view = work->view;
    const composite *c = work->composite;
    const uint64_t rows[] = {0, view->rows / 2, view->rows - 1};
    const int looks_in_memory =
        may_end_soon(work) && c->direct && c->many_at_once && view->n >= SOON_BYTES / view->bytes;
    int64_t at;
    stage *s = NULL;
    size_t ended = 0;

    if (!(looks_in_memory || c->looks_first) || !gpr_cpu_has_bytes(view, LEAST_SOON_BYTES)) return;
    if (c->looks_first) {
        s = malloc(sizeof *s);
        if (s == NULL) return; /* it only takes longer */
    }
    while (ended < sizeof rows / sizeof rows[0] &&
           (c->looks_first ? ends_soon_packed(work, rows[ended], s, &at)
                           : ends_soon(&work->how[0], gpr_view_row(view, rows[ended]), &at)))
        ended++;
    if (ended == sizeof rows / sizeof rows[0])
        work->nanoseconds = (double)view->rows *
                            (c->looks_first ? ENDED_PACKED_NANOSECONDS : ENDED_ROW_NANOSECONDS);
    free(s);
}

/* Whether one of the first pieces of the only row contains an element that no later one can
 * replace, which is the last one that was folded then: NumPy stops there. They are as many as take
 * a share of the time of all threads. */
static int ends_in_first_pieces(job *work, size_t memory, gpr_status *status)
{
    const uint64_t threads = gpr_cpu_threads_for(gpr_cpu_job_nanoseconds(work));
    const uint64_t most = gpr_larger(work->pieces / (FIRST_SHARE * threads), 1);
    uint32_t used = 0;
    int ends = 0;

    if (!may_end(work)) return 0;
    for (; work->done < most && *status == GPR_OK && !work->stop.stopped && !ends; work->done++) {
        const gpr_value *partial = (gpr_value *)work->partials + work->done;

        *status = gpr_cpu_run_job(1, unit_piece_task, work, memory, &used);
        ends = *status == GPR_OK && !work->stop.stopped && is_final(&work->how[0], partial);
    }
    return ends;
}

static void finish_pieces(job *work)
{
    const gpr_view *view = work->view;
    const gpr_rule *rule = work->how[0].rule;
    gpr_value *partials = work->partials;

    for (uint64_t unit = 0; unit < work->units.count && !gpr_cpu_must_stop(&work->stop); unit++) {
        uint64_t rows, pieces = work->pieces;
        const uint64_t row = gpr_cpu_unit_row(&work->units, unit, &rows);

        if (work->ends != NULL && work->ends[unit] < pieces) pieces = work->ends[unit] + 1;
        for (uint64_t i = 0; i < rows; i++) {
            gpr_value value =
                gpr_fold_partials(rule->fold, rule->compute, work->how[0].acc,
                                  partials + (unit * work->units.rows + i) * work->pieces, pieces);
            if (work->composite->finds_late)
                find_in_segment(&work->how[0], view->data, view->n, work->composite->segment,
                                &value);
            finish(work, &value, 1, row + i);
        }
    }
}

/* ---------------------------------------------------------------- the whole ------------------ */

/* Whether rows of memory of all columns follow each other without gaps, in either direction. */
static int is_dense(const gpr_view *view)
{
    const gpr_axis *across = &view->axes[view->outer - 1],
                   *along = &view->axes[view->outer + view->inner - 1];

    return gpr_cpu_columns_in_place(view) &&
           (uint64_t)llabs(along->in) == across->extent * view->bytes;
}

/* Whether columns are searched as such. Narrow ones whose rows have gaps are packed first: a loop
 * would read beyond the last row, or compare a few elements at a time. */
static int finds_in_columns(const gpr_view *view, const recipe *how, int runs)
{
    const uint64_t extent = view->axes[view->outer - 1].extent;
    /* the first bools of two or three short rows decide before a block is packed */
    const int is_packed_in_vain = how->loop_dtype == GPR_BOOL && extent < LEAST_TRUTH_COLUMNS;

    return view->mask == NULL && position_loops(how)->columns[how->loop_dtype] != NULL &&
           (runs || (extent * view->n >= LEAST_FOUND_BLOCK && !is_packed_in_vain));
}

/* Whether the loop can read blocks of columns where they are, if another one follows: it reads up
 * to a vector more, but of bools. */
static int are_blocks_in_place(const gpr_view *view, const recipe *how)
{
    const uint64_t bytes = view->n * view->axes[view->outer - 1].extent * view->bytes;

    return how->direct && view->outer > 1 && view->inner == 1 && is_dense(view) &&
           view->axes[view->outer].in > 0 && view->axes[view->outer - 2].in >= (int64_t)bytes &&
           (bytes >= gpr_cpu_loops()->vector_bytes || how->loop_dtype == GPR_BOOL);
}

/* Whether blocks of columns are searched by a loop for many of them: each is little work. */
static int finds_in_blocks(const gpr_view *view, const recipe *how)
{
    const uint64_t width = view->axes[view->outer - 1].extent, row_bytes = width * how->loop_bytes;

    if (view->mask != NULL) return 0;
    if (how->loop_dtype == GPR_BOOL)
        return gpr_cpu_finds_truths_in_blocks(view->n, width) && are_blocks_in_place(view, how);
    return position_loops(how)->blocks[how->loop_dtype] != NULL &&
           row_bytes <= gpr_cpu_loops()->vector_bytes &&
           view->n <= gpr_most_block_rows(how->loop_bytes) &&
           view->n * row_bytes <= MOST_BLOCK_BYTES;
}

/* Whether short rows follow each other by few, so that copies of many are found sooner than some of
 * them where they are. */
static int is_scattered(const gpr_view *view)
{
    enum { FEW_ROWS = 8, SHORT_BYTES = 128 };

    return view->outer > 1 && view->axes[view->outer - 1].extent < FEW_ROWS &&
           view->n * view->bytes <= SHORT_BYTES;
}

static void describe(const job *work, composite *c)
{
    const gpr_view *view = work->view;
    const recipe *how = &work->how[0];
    const gpr_rule *rule = how->rule;
    const int finds = rule->acc_kind == GPR_ACC_INDEXED, crosswise = gpr_cpu_lies_crosswise(view),
              runs = crosswise && view->axes[view->outer + view->inner - 1].extent >= TILE_EXTENT,
              varies = !finds && gpr_cpu_loops()->moments[how->loop_dtype] != NULL;
    const uint64_t extent = crosswise ? view->axes[view->outer - 1].extent : 0;
    const int is_narrow = finds && extent * how->loop_bytes < NARROW_BYTES;

    c->nothing = gpr_identity(rule->fold, rule->compute, how->acc);
    c->leaves_out = view->mask != NULL || leaves_nan_out(rule);
    c->in_place = is_in_place(view);
    c->direct = c->in_place && how->direct && !c->leaves_out && !is_scattered(view);
    /* Columns of which something is left out are folded in one tile. */
    c->parts = finds ? 1 : gpr_exact_parts(how->loop_dtype);
    c->most_columns = MOMENT_COLUMNS / (uint64_t)c->parts;
    if (c->leaves_out)
        c->most_columns = gpr_smaller(c->most_columns, TILE_BYTES / (view->n * how->loop_bytes));
    c->finds = finds;
    if (finds) {
        c->blocks = crosswise && finds_in_blocks(view, how);
        c->blocks_in_place = c->blocks && are_blocks_in_place(view, how);
        c->columns = c->blocks || (crosswise && finds_in_columns(view, how, runs));
    } else
        c->columns = varies && crosswise && c->most_columns >= LEAST_TILE_COLUMNS &&
                     (!runs || extent * (uint64_t)c->parts >= LEAST_MOMENT_COLUMNS);
    c->columns_in_place = c->columns && !c->leaves_out && how->direct &&
                          gpr_cpu_columns_in_place(view) && (!is_narrow || is_dense(view)) &&
                          !c->blocks;
    if (c->columns_in_place && gpr_cpu_has_bytes(view, GPR_FAR_BEYOND_CACHES))
        c->most_columns = finds ? FOUND_COLUMNS : FAR_MOMENT_COLUMNS / (uint64_t)c->parts;
    c->crosswise = runs || c->columns;
    c->segment = c->direct ? SEGMENT_BYTES / view->bytes : STAGE_ELEMENTS;
    if (finds && c->direct && view->n >= LONG_ROW_BYTES / view->bytes)
        c->segment = LONG_SEGMENT_BYTES / view->bytes;
    if (finds && c->direct && view->n >= FAR_ROW_BYTES / view->bytes)
        c->segment = FAR_SEGMENT_BYTES / view->bytes;
    if (c->columns) c->segment = MOMENT_COLUMNS;
    c->finds_late = finds && c->direct && view->rows == 1 && view->n > work->length;
    c->by_loop = finds && !c->crosswise && finds_in_rows(how);
    c->looks_first =
        may_end(work) && !c->direct && !c->leaves_out && !c->crosswise && view->n >= LEAST_PACKED;
    const uint64_t threads = gpr_cpu_threads_for(gpr_cpu_job_nanoseconds(work));
    const int is_whole = view->n <= work->length || (view->rows >= ROWS_PER_THREAD * threads &&
                                                     view->n < FAR_ROW_BYTES / view->bytes);
    c->many_at_once = (finds || varies) && !c->crosswise &&
                      (view->n <= c->segment || (c->by_loop && c->direct && is_whole));
}

int gpr_cpu_reduce_small(job *work)
{
    /* nothing is left out, and no row is turned */
    static const composite plain, by_loop = {.by_loop = 1};
    const gpr_view *view = work->view;
    const recipe *how = &work->how[0];
    const gpr_rule *rule = how->rule;
    const int finds = rule->acc_kind == GPR_ACC_INDEXED,
              varies = rule->acc_kind == GPR_ACC_MOMENTS &&
                       gpr_cpu_loops()->moments[how->loop_dtype] != NULL;

    if (!(finds || varies) || !how->direct || leaves_nan_out(rule) || view->n > work->length)
        return 0;
    work->composite = finds && finds_in_rows(how) ? &by_loop : &plain;
    if (work->composite->by_loop || view->n <= SEGMENT_BYTES / view->bytes) {
        fold_each(work, view->data, 0, 1, 0);
        return 1;
    }
    if (!finds) return 0;
    gpr_value value = find_in_memory(how, view->data, 0, view->n, SEGMENT_BYTES / view->bytes);
    finish(work, &value, 1, 0);
    return 1;
}

/* Bytes of memory that a task needs. */
static size_t memory_of_task(const composite *c)
{
    if (c->direct && c->many_at_once) return 0;
    if (c->columns && c->columns_in_place) return offsetof(unit_memory, in);
    if (c->direct && !c->crosswise) return offsetof(unit_memory, columns);
    return sizeof(unit_memory);
}

/* Bytes of a task that has a piece of a unit. */
static uint64_t piece_bytes(const gpr_view *view, const composite *c)
{
    const uint64_t share = view->rows * view->n * view->bytes / FAR_PIECES;

    if (!c->columns || !gpr_cpu_has_bytes(view, GPR_FAR_BEYOND_CACHES)) return PIECE_BYTES;
    return gpr_smaller(gpr_larger(share, PIECE_BYTES), FAR_PIECE_BYTES);
}

static gpr_status reduce_units(job *work, composite *c, gpr_run *run)
{
    const gpr_view *view = work->view;
    const size_t memory = memory_of_task(c);
    uint64_t most_rows = 1;
    gpr_status status = GPR_OK;

    if (c->crosswise) most_rows = c->columns ? c->most_columns : TILE_ROWS;
    work->units = gpr_cpu_cut_units(view, most_rows);
    work->length =
        gpr_divide_up(piece_bytes(view, c) / (view->bytes * work->units.rows), c->segment) *
        c->segment;
    /* the best segment of each is searched */
    if (c->segment * view->bytes == FAR_SEGMENT_BYTES && view->rows > 1)
        work->length *= FAR_SEGMENTS;
    if (c->many_at_once) work->length = gpr_larger(work->length, view->n);
    work->pieces = gpr_divide_up(view->n, work->length);
    if (!c->crosswise) expect_ends(work);
    if (work->pieces == 1) {
        const uint64_t units = work->length / view->n;

        work->per_task = units > 0 ? units : 1;
        run->grid_size = gpr_divide_up(work->units.count, work->per_task);
        return gpr_cpu_run_job(run->grid_size, units_task, work, memory, &run->block_size);
    }
    run->grid_size = work->units.count * work->pieces;
    work->partials = malloc(run->grid_size * work->units.rows * sizeof(gpr_value));
    if (work->partials == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the partial results of %llu tasks",
                        (unsigned long long)run->grid_size);
    if (view->rows == 1 && ends_in_first_pieces(work, memory, &status)) {
        work->pieces = run->grid_size = work->done;
        run->block_size = 1;
    } else if (status == GPR_OK) {
        keep_ends(work);
        status = gpr_cpu_run_job(run->grid_size - work->done, unit_piece_task, work, memory,
                                 &run->block_size);
    }
    if (status == GPR_OK && !work->stop.stopped) finish_pieces(work);
    free(work->ends);
    free(work->partials);
    return status;
}

/* Distances of elements from themselves: 0, or NaN of what is infinite or NaN. */
#define DEFINE_VARY_SINGLE(name, T, PARTS)                                              \
    static void vary_single_##name(const char *elements, uint64_t count, char *results) \
    {                                                                                   \
        const T *x = (const T *)(const void *)elements;                                 \
        T *to = (T *)(void *)results;                                                   \
        for (uint64_t i = 0; i < count; i++, x += (PARTS))                              \
            to[i] = (x[0] - x[0]) + (x[(PARTS) - 1] - x[(PARTS) - 1]);                  \
    }
DEFINE_VARY_SINGLE(float32, float, 1)
DEFINE_VARY_SINGLE(float64, double, 1)
DEFINE_VARY_SINGLE(complex64, float, 2)
DEFINE_VARY_SINGLE(complex128, double, 2)

static void vary_single(gpr_dtype element, const char *elements, uint64_t count, char *results)
{
    switch (element) {
    case GPR_FLOAT32: vary_single_float32(elements, count, results); break;
    case GPR_FLOAT64: vary_single_float64(elements, count, results); break;
    case GPR_COMPLEX64: vary_single_complex64(elements, count, results); break;
    default: vary_single_complex128(elements, count, results); break;
    }
}

int gpr_cpu_varies_singly(const job *work)
{
    enum { PACKED_BYTES = 4096 };
    const gpr_view *view = work->view;
    const gpr_rule *rule = work->how[0].rule;
    const gpr_dtype element = rule->element;
    const int is_dense =
        view->outer == 0 || (view->outer == 1 && view->axes[0].in == (int64_t)view->bytes);
    _Alignas(MOST_NUMBER_BYTES) char packed[PACKED_BYTES];

    if (view->n != 1 || view->inner > 0 || view->mask != NULL || rule->ddof != 0 ||
        work->repeats != 1)
        return 0;
    if (!gpr_is_inexact(element)) {
        memset(work->result, 0, view->rows * work->result_bytes);
        return 1;
    }
    if (rule->result != gpr_real_dtype(element) || gpr_dtype_rows[rule->result].bytes < 4) return 0;
    if (is_dense && view->encoding == 0 && gpr_view_is_aligned(view)) {
        vary_single(element, view->data, view->rows, work->result);
        return 1;
    }
    for (uint64_t done = 0; done < view->rows; done += PACKED_BYTES / view->bytes) {
        const uint64_t some = gpr_smaller(view->rows - done, PACKED_BYTES / view->bytes);

        gpr_cpu_pack(view, done, some, NULL, packed);
        vary_single(element, packed, some, work->result + done * work->result_bytes);
    }
    return 1;
}

/* ---------------------------------------------------------------- one row in memory's order -- */

/* An axis of a row whose elements fill a stretch of memory: its step in elements there, and in
 * positions. */
typedef struct turned_axis {
    uint64_t extent, step, position;
    int is_reversed;
} turned_axis;

/* Fills in a row's axes, and the first address. 0 if there are gaps between elements. */
static int turn_axes(const gpr_view *view, turned_axis *axes, const char **first)
{
    uint64_t position = 1, step = 1;

    *first = view->data;
    for (int i = view->inner - 1; i >= 0; i--) {
        const gpr_axis *axis = &view->axes[view->outer + i];
        const int is_reversed = axis->in < 0;

        axes[i] = (turned_axis){.extent = axis->extent,
                                .step = (uint64_t)llabs(axis->in) / view->bytes,
                                .position = position,
                                .is_reversed = is_reversed};
        if (is_reversed) *first += (int64_t)(axis->extent - 1) * axis->in;
        position *= axis->extent;
    }
    for (int found = 0; found < view->inner; found++) { /* each step is the block of those before */
        int at = 0;

        while (at < view->inner && axes[at].step != step) at++;
        if (at == view->inner) return 0;
        step *= axes[at].extent;
    }
    return 1;
}

/* Position of the element that is `place` elements behind the first address. */
static uint64_t position_at(const turned_axis *axes, int count, uint64_t place)
{
    uint64_t position = 0;

    for (int i = 0; i < count; i++) {
        const uint64_t index = place / axes[i].step % axes[i].extent;

        position += (axes[i].is_reversed ? axes[i].extent - 1 - index : index) * axes[i].position;
    }
    return position;
}

/* The first position below `end` of an element that equals *value, of which there are many; `end`
 * if there is none. Not inlined: its buffer would enlarge the frame of every call. */
static __attribute__((noinline)) uint64_t find_equal(const job *work, uint64_t end,
                                                     const gpr_value *value)
{
    enum { PACKED_BYTES = 4096 };
    const gpr_view *view = work->view;
    const uint64_t at_once = PACKED_BYTES / view->bytes;
    _Alignas(MOST_NUMBER_BYTES) char packed[PACKED_BYTES];

    for (uint64_t first = 0; first < end; first += at_once) {
        const uint64_t count = gpr_smaller(end - first, at_once);
        uint64_t at;

        gpr_cpu_pack(view, first, count, NULL, packed);
        at = position_of(&work->how[0], packed, count, value);
        if (at < count) return first + at;
    }
    return end;
}

/* The first position of the extreme at `place` in memory, before which there is none equal to it.
 * Few others are looked for in memory, where there are many in the order of positions. */
static uint64_t first_position(job *work, const turned_axis *axes, const char *memory,
                               uint64_t place)
{
    enum { FEW = 8, CHUNK = 1 << 18 };
    const recipe *how = &work->how[0];
    const gpr_view *view = work->view;
    uint64_t least = position_at(axes, view->inner, place), others = 0;
    gpr_value value;

    memcpy(value.bytes, memory + place * view->bytes, view->bytes);
    if (how->loop_dtype == GPR_BOOL) value.bytes[0] = value.bytes[0] != 0;
    for (uint64_t from = place + 1; from < view->n && !gpr_cpu_must_stop(&work->stop);) {
        const uint64_t count = gpr_smaller(view->n - from, CHUNK),
                       at = position_of(how, memory + from * view->bytes, count, &value);

        from += at;
        if (at == count) continue;
        const uint64_t position = position_at(axes, view->inner, from++);
        if (position < least) least = position;
        if (++others == FEW) return find_equal(work, view->n, &value);
    }
    return least;
}

/* Finds the position of one row's extreme where its elements fill a stretch of memory in another
 * order: the extreme is found in memory's order, then the first position of those that equal it. 0,
 * and nothing done, for other rows. */
static __attribute__((noinline)) int finds_in_memory_order(job *work, gpr_run *run,
                                                           gpr_status *status)
{
    enum { LEAST_ELEMENTS = 512 };
    const gpr_view *view = work->view;
    recipe *how = &work->how[0];
    const uint64_t length = work->length;
    char *result = work->result;
    const char *first;
    turned_axis axes[GPR_MAX_NDIM];
    gpr_view memory;
    int64_t position = -1;

    if (view->rows != 1 || view->mask != NULL || view->rows_contiguous || !how->direct ||
        view->n < LEAST_ELEMENTS || gpr_kind_of(how->loop_dtype) == GPR_KIND_COMPLEX ||
        view->encoding != 0 || !gpr_view_is_aligned(view) || !turn_axes(view, axes, &first))
        return 0;
    if (how->loop_dtype == GPR_BOOL) { /* the first positions often decide */
        const gpr_value wanted = {.bytes = {how->rule->fold == GPR_FOLD_argmax}};
        const uint64_t at = find_equal(work, LEAST_ELEMENTS, &wanted);

        position = (int64_t)at;
        memcpy(result, &position, sizeof position);
        if (at < LEAST_ELEMENTS) return 1;
    }
    gpr_copy_view(&memory, view);
    memory.data = first;
    memory.outer = 0;
    memory.inner = 1;
    memory.axes[0] = (gpr_axis){.extent = view->n, .in = (int64_t)view->bytes};
    memory.rows_contiguous = memory.contiguous = 1;
    work->view = how->view = &memory;
    work->result = (char *)&position;
    if (!gpr_cpu_reduce_small(work)) *status = gpr_cpu_reduce_composite(work, run);
    work->view = how->view = view;
    work->result = result;
    work->length = length;
    if (*status != GPR_OK || work->stop.stopped) return 1;
    if (position >= 0) position = (int64_t)first_position(work, axes, first, (uint64_t)position);
    memcpy(result, &position, sizeof position);
    return 1;
}

gpr_status gpr_cpu_reduce_composite(job *work, gpr_run *run)
{
    enum { PLAIN, MARKS, VIEWS };
    const gpr_view *view = work->view;
    const gpr_rule *rule = work->how[0].rule;
    gpr_view *views = NULL;
    composite c = {.plain = view};
    gpr_status status = GPR_OK;

    if (rule->acc_kind == GPR_ACC_INDEXED && view->n == 1 && !rule->skip_nan) {
        memset(work->result, 0, view->rows * work->result_bytes); /* whatever the elements are */
        run->grid_size = run->block_size = 1;
        return GPR_OK;
    }
    if (rule->acc_kind == GPR_ACC_INDEXED && decides_soon(work)) {
        run->grid_size = run->block_size = 1;
        return GPR_OK;
    }
    if (rule->acc_kind == GPR_ACC_INDEXED && finds_in_memory_order(work, run, &status))
        return status;
    if (view->mask != NULL) {
        views = malloc(VIEWS * sizeof *views);
        if (views == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
        gpr_copy_view(&views[PLAIN], view);
        views[PLAIN].mask = NULL;
        gpr_mask_view(view, &views[MARKS]);
        c.plain = &views[PLAIN];
        c.marks = &views[MARKS];
    }
    describe(work, &c);
    work->composite = &c;
    status = reduce_units(work, &c, run);
    free(views);
    return status;
}
