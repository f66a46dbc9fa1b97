/* Folds elements in place, or through a stage, to accumulators: runs of a row, whole rows, and rows
 * that lie crosswise. Plain reductions (cpu.c) and exact sums (exact_plain.c) share it. */
#include "cpu/job.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDE_ENOUGH = 128,     /* columns that need no other rows beside them */
    ASKING_ROWS = 16,      /* of any and all in columns, before the first check whether all columns
                            * are decided */
    LEAST_RUN = 64,        /* elements of a run that is read in place, not packed with others */
    ASKING_RUN = 16 * 1024 /* elements of any and all in runs between two such checks */
};

/* ---------------------------------------------------------------- rows ----------------------- */

uint64_t gpr_cpu_run_of(const recipe *how)
{
    const gpr_view *view = how->view;
    const gpr_axis *along;

    if (!how->direct || view->inner < 2 || view->mask != NULL || view->encoding != 0) return 0;
    along = &view->axes[view->outer + view->inner - 1];
    if (along->in != (int64_t)view->bytes || along->extent < LEAST_RUN) return 0;
    return gpr_view_is_aligned(view) ? along->extent : 0;
}

int gpr_cpu_lies_in_layers(const recipe *how)
{
    const gpr_view *view = how->view;

    return view->outer > 0 && view->inner > 1 &&
           llabs(view->axes[view->outer].in) > llabs(view->axes[view->outer - 1].in) &&
           gpr_cpu_run_of(how) > 0;
}

int gpr_cpu_reads_layers(const recipe *how)
{
    enum { LONG_RUN_BYTES = 128 * 1024 };
    const gpr_view *view = how->view;

    return gpr_cpu_has_bytes(view, GPR_BEYOND_CACHES) && gpr_cpu_lies_in_layers(how) &&
           gpr_cpu_run_of(how) < LONG_RUN_BYTES / view->bytes;
}

/* Whether any or all are decided in each row: no other element changes them. */
static int are_decided(const recipe *how, const char *accumulators, uint64_t count)
{
    return memchr(accumulators, how->fold != GPR_FOLD_any, count) == NULL;
}

void gpr_cpu_fold_layers(const recipe *how, uint64_t row, uint64_t rows, uint64_t first,
                         uint64_t end, char *accumulators, char *some)
{
    const gpr_view *view = how->view;
    const uint64_t run = gpr_cpu_run_of(how);
    const gpr_axis *across = &view->axes[view->outer + view->inner - 2];
    const int stops = gpr_cpu_may_stop_early(how->fold);
    gpr_view at;

    for (uint64_t made = 0; first < end; made++) {
        const uint64_t into = first % run, step = first / run % across->extent;
        uint64_t count = gpr_smaller(end - first, run - into), runs = 1;

        gpr_cpu_locate(view, row, first, &at);
        if (rows > 1) {
            how->loop.rows(at.data, view->axes[view->outer - 1].in, rows, count,
                           made == 0 ? accumulators : some);
            if (made > 0) how->combine(some, 0, 1, rows, 0, accumulators);
        } else {
            if (count == run)
                runs = gpr_smaller(gpr_smaller((end - first) / run, across->extent - step),
                                   GPR_COLUMN_BLOCK);
            how->loop.rows(at.data, across->in, runs, count, some);
            how->combine(some, (int64_t)how->acc_bytes, runs, 1, made == 0 ? GPR_FRESH : 0,
                         accumulators);
        }
        first += runs * count;
        if (stops && are_decided(how, accumulators, rows)) break;
    }
}

gpr_cpu_units gpr_cpu_cut_layers(const recipe *how)
{
    enum { LAYER_BYTES = 512 * 1024 };
    const gpr_view *view = how->view;
    const uint64_t most = 1 + LAYER_BYTES / (gpr_cpu_run_of(how) * view->bytes),
                   width = view->axes[view->outer - 1].extent,
                   blocks = gpr_divide_up(width, gpr_smaller(most, GPR_COLUMN_BLOCK / 2));
    gpr_cpu_units units = {.width = width, .rows = gpr_divide_up(width, blocks)};

    units.blocks = gpr_divide_up(width, units.rows);
    units.count = view->rows / width * units.blocks;
    return units;
}

/* Folds elements of a row that is made of such runs: runs to accumulators, and those to one. */
static gpr_value fold_runs(const recipe *how, uint64_t row, uint64_t first, uint64_t count,
                           uint64_t run, stage *s)
{
    enum { MOST_RUNS = sizeof s->packed / MOST_NUMBER_BYTES };
    const gpr_view *view = how->view;
    const gpr_axis *across = &view->axes[view->outer + view->inner - 2];
    const gpr_fold fold = how->fold == GPR_FOLD_count ? GPR_FOLD_sum : how->fold;
    const gpr_loop merge = gpr_cpu_loops()->loop[fold][how->loop.accumulator];
    const int stops = gpr_cpu_may_stop_early(how->fold);
    const uint64_t at_once = stops ? gpr_divide_up(ASKING_RUN, run) : MOST_RUNS;
    gpr_value value = how->identity;
    uint64_t made = 0;
    gpr_view at;

    while (count > 0) {
        const uint64_t into = first % run, step = first / run % across->extent;
        uint64_t rows = 1, elements = gpr_smaller(count, run - into);

        if (elements == run)
            rows = gpr_smaller(gpr_smaller(count / run, across->extent - step),
                               gpr_smaller(at_once, MOST_RUNS - made));
        gpr_cpu_locate(view, row, first, &at);
        how->loop.rows(at.data, across->in, rows, elements, s->packed + made * how->acc_bytes);
        made += rows;
        first += rows * elements;
        count -= rows * elements;
        if (made < MOST_RUNS && count > 0 && !stops) continue;
        merge.rows(s->packed, 0, 1, made, &value);
        if (stops && gpr_cpu_is_decided(how, value)) break;
        memcpy(s->packed, &value, how->acc_bytes);
        made = 1;
    }
    return value;
}

int gpr_cpu_reads_every_second(const recipe *how)
{
    const gpr_view *view = how->view;

    return how->direct && view->inner == 1 && view->mask == NULL && view->encoding == 0 &&
           view->axes[view->outer].in == 2 * (int64_t)view->bytes && gpr_view_is_aligned(view);
}

/* Whether a fold's order is free, and its loop for columns faster than a copy and its loop for
 * rows: not of 64-bit integers. */
static int folds_gapped(const recipe *how)
{
    const gpr_kind kind = gpr_kind_of(how->loop_dtype);
    const int is_short_integer =
        (kind == GPR_KIND_SIGNED || kind == GPR_KIND_UNSIGNED) && how->loop_bytes < sizeof(int64_t);

    return gpr_is_extreme(how->fold) && (is_short_integer || kind == GPR_KIND_FLOAT);
}

/* Folds every second element as columns of a matrix without gaps, of which each odd one is left
 * out. Returns how many elements that were; a multiple of half a row. */
enum { GAPPED_WIDTH = 64, GAPPED_ROWS = 512, LEAST_GAPPED = 1024 };
static uint64_t fold_gapped(const recipe *how, const char *elements, uint64_t count,
                            gpr_value *value)
{
    enum { HALF = GAPPED_WIDTH / 2 };
    const gpr_loop merge = gpr_cpu_loops()->loop[how->fold][how->loop.accumulator];
    const int64_t stride = GAPPED_WIDTH * (int64_t)how->loop_bytes;
    const size_t bytes = how->acc_bytes;
    _Alignas(64) char columns[GAPPED_WIDTH * MOST_NUMBER_BYTES];
    const uint64_t all = (count - 1) / HALF; /* behind the last element there may be no memory */
    uint64_t done = 0;
    int how_columns = GPR_FRESH;

    while (done < all) {
        const uint64_t rows = gpr_smaller(all - done, GAPPED_ROWS);

        how->loop.columns(elements + (int64_t)done * stride, stride, rows, GAPPED_WIDTH,
                          how_columns, columns);
        how_columns = 0;
        done += rows;
    }
    for (uint64_t k = 1; k < HALF; k++) memcpy(columns + k * bytes, columns + 2 * k * bytes, bytes);
    merge.rows(columns, 0, 1, HALF, value);
    return done * HALF;
}

/* Folds `count` > 0 elements of a row. */
gpr_value gpr_cpu_fold_run(const recipe *how, uint64_t row, uint64_t first, uint64_t count,
                           staging *in)
{
    const gpr_view *view = how->view;
    const char *memory =
        view->rows_contiguous ? gpr_view_row(view, row) + first * view->bytes : NULL;
    gpr_value value = how->identity;
    gpr_gapped_loop fold_every_second = NULL;
    const char *gapped = NULL;
    uint64_t made = 0, run, from = 0;

    if (gpr_cpu_is_direct(how)) {
        how->loop.rows(memory, 0, 1, count, &value);
        return value;
    }
    run = gpr_cpu_run_of(how);
    if (run > 0) return fold_runs(how, row, first, count, run, &in->s);
    if (gpr_cpu_reads_every_second(how)) {
        const gpr_gapped_loop own = gpr_cpu_loops()->gapped[how->fold][how->loop_dtype];

        gapped = gpr_view_row(view, row) + (int64_t)first * view->axes[view->outer].in;
        if (own != NULL && how->loop.rows == gpr_cpu_loops()->loop[how->fold][how->loop_dtype].rows)
            fold_every_second = own;
        if (folds_gapped(how) && count >= LEAST_GAPPED) {
            gpr_value *part = &in->parts[made++];

            *part = how->identity;
            from = fold_gapped(how, gapped, count, part);
        }
    }
    for (uint64_t done = from; done < count;) {
        const uint64_t step = gpr_smaller(count - done, STAGE_ELEMENTS);
        const char *elements = in->s.packed;
        gpr_value *part = &in->parts[made++];

        *part = how->identity;
        if (fold_every_second != NULL && step >= GPR_FEWEST_GAPPED) {
            fold_every_second(gapped + done * 2 * view->bytes, step, part);
            done += step;
            continue;
        }
        if (memory != NULL)
            elements = memory + done * view->bytes;
        else
            gpr_cpu_pack(view, row * view->n + first + done, step, how->neutral.bytes,
                         in->s.packed);
        how->loop.rows(gpr_cpu_prepare(how, elements, step, &in->s), 0, 1, step, part);
        if (gpr_cpu_may_stop_early(how->fold) && gpr_cpu_is_decided(how, *part)) return *part;
        done += step;
    }
    return gpr_fold_partials(how->fold, how->loop_dtype, how->loop.accumulator, in->parts, made);
}

/* Folds rows of contiguous memory; steps of the last outer axis are one call of the loop. */
static void fold_rows_in_place(const recipe *how, uint64_t row, uint64_t count, char *accumulators)
{
    const gpr_view *view = how->view;
    const int last = view->outer - 1;
    const uint64_t extent = last >= 0 ? view->axes[last].extent : 1;
    const int64_t stride = last >= 0 ? view->axes[last].in : 0;

    while (count > 0) {
        const uint64_t rows = gpr_smaller(count, extent - row % extent);

        how->loop.rows(gpr_view_row(view, row), stride, rows, view->n, accumulators);
        accumulators += rows * how->acc_bytes;
        row += rows;
        count -= rows;
    }
}

/* Folds rows through the stage, as many at a time as it holds. */
static void fold_rows_staged(const recipe *how, uint64_t row, uint64_t count, char *accumulators,
                             stage *s)
{
    const gpr_view *view = how->view;
    const uint64_t n = view->n, at_once = STAGE_ELEMENTS / n;

    while (count > 0) {
        const uint64_t rows = gpr_smaller(count, at_once);
        const char *elements = s->packed;

        if (view->contiguous)
            elements = view->data + row * n * view->bytes;
        else
            gpr_cpu_pack(view, row * n, rows * n, how->neutral.bytes, s->packed);
        how->loop.rows(gpr_cpu_prepare(how, elements, rows * n, s), (int64_t)(n * how->loop_bytes),
                       rows, n, accumulators);
        accumulators += rows * how->acc_bytes;
        row += rows;
        count -= rows;
    }
}

void gpr_cpu_fold_rows(const recipe *how, uint64_t row, uint64_t count, char *accumulators,
                       staging *in)
{
    if (gpr_cpu_is_direct(how)) {
        fold_rows_in_place(how, row, count, accumulators);
    } else if (how->view->n <= STAGE_ELEMENTS && gpr_cpu_run_of(how) == 0) {
        fold_rows_staged(how, row, count, accumulators, &in->s);
    } else {
        for (uint64_t i = 0; i < count; i++) {
            const gpr_value value = gpr_cpu_fold_run(how, row + i, 0, how->view->n, in);
            memcpy(accumulators + i * how->acc_bytes, value.bytes, how->acc_bytes);
        }
    }
}

/* ---------------------------------------------------------------- columns -------------------- */

static void fill(const recipe *how, char *accumulators, uint64_t count)
{
    const uint64_t bytes = count * how->acc_bytes;

    memcpy(accumulators, how->identity.bytes, how->acc_bytes);
    for (uint64_t done = how->acc_bytes; done < bytes; done *= 2)
        memcpy(accumulators + done, accumulators, gpr_smaller(done, bytes - done));
}

/* Rows to fold side by side: narrow columns leave most of a vector empty, but the rows of a dense
 * matrix follow each other, so several of them make one wide row. A multiple of 16 wide where it
 * can be, for the vectors' sake. */
uint64_t gpr_cpu_copies(uint64_t width, uint64_t n)
{
    uint64_t copies = 1;

    if (width >= NARROW_COLUMNS) return 1;
    while (copies * width % 16 != 0) copies *= 2;
    while (copies * width < WIDE_ENOUGH) copies *= 2;
    return n >= 16 * copies ? copies : 1;
}

/* Folds rows of `width` elements that the loop can read, into `copies` times `width`
 * accumulators. */
static void fold_block(const recipe *how, const char *elements, int64_t stride, uint64_t rows,
                       uint64_t width, uint64_t copies, int how_columns, char *accumulators)
{
    /* A row of elements that are accumulators: the C library's copy knows the processor. */
    if (rows == 1 && (how_columns & GPR_FRESH) && gpr_is_extreme(how->fold) &&
        how->acc == how->loop_dtype) {
        memcpy(accumulators, elements, width * how->acc_bytes);
        return;
    }
    if (copies > 1 && rows >= copies && stride == (int64_t)(width * how->loop_bytes)) {
        const uint64_t wide_rows = rows / copies;
        const int64_t wide_stride = stride * (int64_t)copies;

        how->loop.columns(elements, wide_stride, wide_rows, width * copies, how_columns,
                          accumulators);
        how_columns &= ~GPR_FRESH;
        elements += (int64_t)wide_rows * wide_stride;
        rows -= wide_rows * copies;
    }
    if (rows > 0) how->loop.columns(elements, stride, rows, width, how_columns, accumulators);
}

/* Whether every second element of rows of memory is one of the columns', and loops read the others,
 * too: the order of the fold is free, and there are rows enough for results to be few. */
static int reads_every_second_column(const recipe *how)
{
    enum { FEWEST_ROWS = 4 };
    const gpr_view *view = how->view;
    const gpr_axis *across = &view->axes[view->outer - 1],
                   *along = &view->axes[view->outer + view->inner - 1];

    return how->direct && view->mask == NULL && view->encoding == 0 && gpr_view_is_aligned(view) &&
           across->in == 2 * (int64_t)view->bytes && along->extent >= FEWEST_ROWS &&
           (gpr_is_extreme(how->fold) || gpr_cpu_may_stop_early(how->fold)) &&
           how->acc_bytes <= sizeof(double);
}
_Static_assert(2 * GPR_COLUMN_BLOCK * sizeof(double) <= sizeof((stage){0}.packed),
               "accumulators of every column of a unit and of those between them have room");

/* Folds rows of every second element together with those between them, and keeps each second
 * accumulator. */
static void fold_every_second_column(const recipe *how, const gpr_view *tile, uint64_t rows,
                                     uint64_t width, int fresh, char *accumulators, stage *s)
{
    const gpr_dtype dtype = how->loop.accumulator;
    const gpr_columns_loop merge = gpr_cpu_loops()->loop[how->fold][dtype].columns;
    char *kept = fresh ? accumulators : s->converted;
    gpr_view folded;

    how->loop.columns(tile->data, tile->axes[0].in, rows, 2 * width - 1, GPR_FRESH, s->packed);
    folded.dtype = dtype;
    folded.bytes = how->acc_bytes;
    folded.encoding = 0;
    folded.outer = 0;
    folded.inner = 1;
    folded.axes[0] = (gpr_axis){.extent = width, .in = 2 * (int64_t)how->acc_bytes};
    folded.data = s->packed;
    folded.mask = NULL;
    gpr_cpu_pack(&folded, 0, width, NULL, kept);
    if (!fresh) merge(kept, 0, 1, width, 0, accumulators);
}

/* A view of positions of the last inner axis by `width` rows of such a unit. */
static void make_wide_tile(const gpr_view *view, uint64_t width, gpr_view *tile)
{
    const uint64_t extent = view->axes[view->outer - 1].extent;

    gpr_cpu_make_tile(view, extent, tile);
    tile->inner = 3;
    tile->axes[2] = tile->axes[1];
    tile->axes[1] = view->axes[view->outer - 2];
    tile->axes[1].extent = width / extent;
}

int gpr_cpu_has_bytes(const gpr_view *view, uint64_t bytes)
{
    const uint64_t most = bytes / view->bytes;

    return view->rows > most || view->n > most / (view->rows > 0 ? view->rows : 1);
}

int gpr_cpu_source_of(const gpr_view *view)
{
    return (gpr_cpu_has_bytes(view, GPR_BEYOND_CACHES) ? GPR_FROM_MEMORY : 0) |
           (gpr_cpu_has_bytes(view, GPR_FAR_BEYOND_CACHES) ? GPR_FAR_FROM_CACHES : 0);
}

/* Whether elements of columns are widened from where they are: rows of memory that are worth a call
 * each. */
static int widens_in_place(const job *work, const recipe *how, uint64_t width)
{
    enum { LEAST_WIDENED = 32 };

    return how->widen.loop != NULL && !how->convert && !how->replace_nan && !work->columns_wide &&
           width >= LEAST_WIDENED && gpr_cpu_columns_in_place(how->view);
}

/* Makes `rows` positions of the tile from `first` on what the loop reads, side by side. */
static const char *read_tile(const recipe *how, const gpr_view *tile, int is_widened,
                             uint64_t first, uint64_t rows, uint64_t width, stage *s)
{
    const int64_t stride = tile->axes[0].in;

    if (!is_widened) {
        gpr_cpu_pack(tile, first * width, rows * width, how->neutral.bytes, s->packed);
        return gpr_cpu_prepare(how, s->packed, rows * width, s);
    }
    for (uint64_t r = 0; r < rows; r++)
        how->widen.loop(tile->data + (int64_t)(first + r) * stride,
                        s->widened + r * width * how->loop_bytes, width);
    return s->widened;
}

/* Folds one unit's positions first .. end - 1 into accumulators. */
void gpr_cpu_fold_columns(const job *work, const recipe *how, uint64_t row, uint64_t width,
                          uint64_t first, uint64_t end, char *accumulators, stage *s)
{
    const gpr_view *view = how->view;
    const uint64_t extent = view->axes[view->outer + view->inner - 1].extent;
    const uint64_t columns = width * work->copies;
    const int stops = gpr_cpu_may_stop_early(how->fold);
    const uint64_t at_once = STAGE_ELEMENTS / width;
    uint64_t until_asked = UINT64_MAX, unasked = 0;
    const int source = gpr_cpu_source_of(view);
    const int is_widened = widens_in_place(work, how, width);
    const int every_second =
        work->copies == 1 && !work->columns_wide && reads_every_second_column(how);
    int fresh = work->copies == 1 ? GPR_FRESH : 0;
    gpr_view tile;

    if (work->columns_wide)
        make_wide_tile(view, width, &tile);
    else
        gpr_cpu_make_tile(view, width, &tile);
    /* Runs may be too short for some of the copies. */
    if (!fresh) fill(how, accumulators, columns);
    if (stops) until_asked = ASKING_ROWS * work->copies;
    while (first < end) {
        const uint64_t run =
            gpr_smaller(gpr_smaller(end - first, extent - first % extent), until_asked - unasked);

        gpr_cpu_locate(view, row, first, &tile);
        if (work->columns_direct && how->direct) {
            fold_block(how, tile.data, tile.axes[0].in, run, width, work->copies, fresh | source,
                       accumulators);
            fresh = 0;
        } else if (every_second) {
            fold_every_second_column(how, &tile, run, width, fresh, accumulators, s);
            fresh = 0;
        } else {
            for (uint64_t done = 0; done < run; done += at_once) {
                const uint64_t rows = gpr_smaller(run - done, at_once);

                fold_block(how, read_tile(how, &tile, is_widened, done, rows, width, s),
                           (int64_t)(width * how->loop_bytes), rows, width, work->copies, fresh,
                           accumulators);
                fresh = 0;
            }
        }
        first += run;
        unasked += run;
        if (!stops || unasked < until_asked) continue;
        if (are_decided(how, accumulators, columns)) break;
        /* columns are seldom decided, so that checks get rarer: the step doubles, which fewer than
         * 2^63 rows cannot overflow */
        until_asked *= 2;
        unasked = 0;
    }
    if (work->copies > 1) {
        const uint64_t bytes = width * how->acc_bytes;

        how->combine(accumulators + bytes, (int64_t)bytes, work->copies - 1, width, 0,
                     accumulators);
    }
}
