/* Plans of the kernels of fast. An array can be read in several ways: by one of the kernels, by
 * blocks of several sizes, side by side or below each other, one or several of them per row. Each
 * way that may be the fastest for some array is priced (plan_costs.h), and the cheapest is taken.
 *
 * A way's promises to its kernel are in the kernel's preface; fill_in() keeps them. */
#include <math.h>
#include <string.h>

#include "lib/base/status.h"
#include "lib/rules/accumulators.h"
#include "lib/rules/plan_costs.h"
#include "lib/rules/plan_grid.h"
#include "shared/tuning.h"

enum { DEFAULT_BLOCK = 256 }; /* threads, unless requested or priced otherwise */
/* The most rows that a lane of fast_rows takes. */
enum { MOST_ROWS_PER_LANE = 4 };
/* Longest rows of fast_rows that come through shared memory, and longest rows at all. */
enum { MOST_STAGED_BYTES = 256, MOST_LANE_ROW_BYTES = 16384 };
/* Narrowest strips of columns, and of threads that take neighbouring rows of fast_strided. */
enum { LEAST_STRIP_BYTES = 32 };
/* And to load and fold an item, beside waiting for it. */
static const double ITEM_NS = 15;
/* Kernels without a loop over blocks' shares take few registers: so many times as many blocks are
 * under way as are promised. */
static const double LIGHT = 1.6;
/* Nanoseconds that an instruction waits for the one before it. */
static const double DEPENDENT_NS = 2.5;
/* Shares of shorter times that come on top of the longest one (gpr_load). Blocks of rows that are
 * runs read in a few rounds, and nothing while they combine: that takes its time where one wave
 * follows the other. Measured on an H200, 980 arrays by blocks of 64 to 512 threads. */
static const double BESIDE = 0.1, RUNS_BESIDE = 0.3;
/* Where blocks of fast_stream read in many rounds: the share by which bytes seem to be more in
 * blocks of 256 threads than in larger ones; three times as much in those of 128, seven of 64. */
static const double JUMP = 0.02;

typedef enum variant { STREAM, SHORT, ROWS, COUNTED, COLUMNS, FEW, NARROW, STRIDED } variant;

static const char *const variant_names[] = {[STREAM] = "fast_stream",   [SHORT] = "fast_short",
                                            [ROWS] = "fast_rows",       [COUNTED] = "fast_counted",
                                            [COLUMNS] = "fast_columns", [FEW] = "fast_few",
                                            [NARROW] = "fast_narrow",   [STRIDED] = "fast_strided"};

/* One way to read the array. */
typedef struct way {
    variant variant;
    uint32_t block, item, lanes, per_thread, row_elements;
    uint64_t width; /* threads side by side */
    int row_major;  /* of STRIDED: neighbouring threads read neighbours of a row */
    uint64_t strips;
    uint64_t groups; /* that blocks are counted for */
    uint64_t blocks; /* per group; 0: a block serves several rows */
    double ns;
} way;

/* The array and the GPU, and the best way so far. */
typedef struct search {
    const gpr_plan_task *t;
    gpr_plan_costs costs;
    gpr_fold_costs fold;
    double elements, bytes; /* that memory moves */
    double barrier_ns;      /* a step of a tree in shared memory, beside one within a warp */
    int column;             /* the kept axis of neighbours, or -1 */
    uint32_t considered;    /* ways so far */
    double *prices;         /* of the first `room` ways; NULL: not wanted */
    uint32_t room;
    way best;
} search;

static void consider(search *s, const way *w)
{
    const uint32_t wanted = s->t->facts->way, number = ++s->considered;

    if (number <= s->room) s->prices[number - 1] = w->ns;
    if (wanted == 0 ? w->ns < s->best.ns : number == wanted) s->best = *w;
}

/* Takes axis `i` out of the plan's kept axes; at least one is left. */
static void take_column(gpr_plan *plan, int i)
{
    gpr_layout *layout = &plan->layout;

    plan->column = layout->axes[i];
    plan->column_mean = layout->mean_steps[i];
    if (layout->kept == 1) {
        layout->axes[0] = (gpr_axis){.extent = 1};
        layout->mean_steps[0] = 0;
        return;
    }
    for (int j = i; j + 1 < layout->kept; j++) layout->mean_steps[j] = layout->mean_steps[j + 1];
    for (int j = i; j + 1 < layout->kept + layout->reduced; j++)
        layout->axes[j] = layout->axes[j + 1];
    layout->kept--;
}

/* The kept axis whose elements are neighbours, or -1. */
static int find_column(const gpr_layout *layout)
{
    for (int i = layout->kept - 1; i >= 0; i--) {
        if (layout->axes[i].in == 1 && layout->axes[i].extent > 1 &&
            (!layout->masked || layout->axes[i].mask == 1))
            return i;
    }
    return -1;
}

/* ---------------------------------------------------------------- blocks --------------------- */

/* How many blocks may share a group: one, as many as fill the GPU once to four times, and fractions
 * of these, since partials cost time to read. No more than `most`. */
static int list_blocks(const search *s, double slots, uint64_t groups, uint64_t most,
                       uint64_t list[])
{
    static const double waves[] = {1.0 / 16, 1.0 / 4, 1, 2, 3, 4};
    enum { FULL = 2 };
    int count = 0;

    if (s->t->grid != 0) {
        list[0] = s->t->grid;
        return 1;
    }
    list[count++] = 1;
    for (int i = 0; i < (int)(sizeof waves / sizeof *waves); i++) {
        const double each = waves[i] * slots / (double)groups;
        const uint64_t blocks = gpr_smaller((uint64_t)each, most);
        if (i > FULL && (double)groups * 6 < slots) break; /* once is full enough */
        if (blocks > list[count - 1]) list[count++] = blocks;
    }
    return count;
}
enum { MOST_LISTED = 7 };

/* Block sizes to try: the caller's, or those from `least` to the largest. */
static int list_sizes(const search *s, uint32_t least, uint32_t list[])
{
    const gpr_plan_task *t = s->t;
    int count = 0;

    if (t->block != 0) {
        list[0] = t->block;
        return 1;
    }
    for (uint32_t block = least; block <= GPR_MOST_BLOCK; block *= 2) list[count++] = block;
    return count;
}
enum { MOST_SIZES = 5, SMALL_BLOCK = 64 };

/* The least block but for rows of a block each that are runs. Small ones are for arrays that would
 * not fill the GPU by others. */
static uint32_t least_block(const search *s)
{
    const double filled =
        (double)gpr_fast_residents(s->t, GPR_WARP_LANES) * GPR_WARP_LANES * GPR_STREAM_BYTES;

    return s->bytes < filled ? SMALL_BLOCK : DEFAULT_BLOCK;
}

/* Times of blocks of a size, over those of small blocks that do the same: the larger blocks are,
 * the longer their threads wait for each other, and a multiprocessor for the next block, as
 * measured on an H200. Blocks that read runs, all are there at once, and whose threads read many
 * bytes each, wait once. */
static double size_factor(const way *w, int is_one_wave, double of_thread)
{
    enum { SMALL = 256, MIDDLE = 512, MANY_BYTES = 32 * GPR_VECTOR_BYTES };

    if ((w->variant == STREAM || w->variant == NARROW) && is_one_wave && of_thread >= MANY_BYTES)
        return w->block <= MIDDLE ? 1 : 1.03;
    return w->block <= SMALL ? 1 : w->block <= MIDDLE ? 1.03 : 1.1;
}

/* Whether accumulators are pairs of doubles. */
static int adds_pairs(const search *s)
{
    return s->t->rule->acc_kind == GPR_ACC_EXACT;
}

/* Instructions of an element. Kernels differ in how many elements' proofs are tested together. */
static double element_cost(const search *s, const way *w)
{
    const int is_masked = s->t->layout->masked;
    const double tests = !adds_pairs(s)          ? 1
                         : w->variant == NARROW  ? 2.2
                         : w->variant == COLUMNS ? (is_masked ? 1.8 : 1.2)
                         : w->variant == STRIDED ? (w->item > 1 || is_masked ? 1 : 1.4)
                                                 : 1;

    return s->fold.element * tests;
}

/* Blocks of the multiprocessor that is done last, over the mean: time of sums that wait for their
 * arithmetic. Others wait for memory, which serves all. */
static double unevenness(const search *s, double blocks, double slots)
{
    const double each = blocks / s->t->facts->multiprocessors;

    if (!adds_pairs(s) || each <= 1) return 1;
    return (blocks <= slots ? gpr_whole(each) : each + 0.5) / each;
}

/* The time of equal blocks, `instructions` of each thread beside those of elements. */
static double blocks_ns(const search *s, const way *w, double blocks, double bytes,
                        double instructions, double block_ns)
{
    enum { START = 60 }; /* instructions of every thread */
    /* Lanes that add pairs take as many registers as there are. */
    const int takes_all = adds_pairs(s) && (w->variant == SHORT || w->row_elements == 0),
              has_no_loop = w->blocks == 0 || w->variant == SHORT,
              is_light = w->variant == FEW || (has_no_loop && !takes_all);
    const double slots = (double)gpr_fast_residents(s->t, w->block) * (is_light ? LIGHT : 1);
    const int is_by_blocks = w->variant == STREAM || w->variant == SHORT;
    const gpr_load load = {.bytes = bytes,
                           .instructions = unevenness(s, blocks, slots) *
                                           (s->elements * element_cost(s, w) +
                                            blocks * w->block * (START + instructions)),
                           .blocks = blocks,
                           .slots = slots,
                           .sms = s->t->facts->multiprocessors,
                           .block_ns = s->costs.block_ns + block_ns,
                           .beside = is_by_blocks && blocks > slots ? RUNS_BESIDE : BESIDE};

    return gpr_time_of(&s->costs, &load) *
           size_factor(w, blocks <= slots, bytes / (blocks * w->block));
}

/* Reading `partials` per thread, `outputs` of each. */
static double merging_ns(const search *s, uint64_t partials, uint32_t outputs)
{
    enum { TOGETHER = 4 }; /* loads */

    return s->costs.merge_ns + (double)gpr_divide_up(partials, TOGETHER) * s->costs.partial_ns +
           (double)partials * outputs * s->fold.combine * DEPENDENT_NS;
}

/* ---------------------------------------------------------------- rectangles ----------------- */

/* Runs of memory that neighbours of a block read. */
typedef struct runs_read {
    double bytes; /* of each; 0 where that is all the same */
    int by_turns; /* blocks that share rows take turns: what is between runs is another's */
    int is_apart; /* what is between them is read at another time */
    int is_even;  /* they begin at sectors */
} runs_read;

/* How many times as many bytes are read for such runs. Their ends are read twice, if not by one
 * block: if they do not begin at sectors, that takes as long as half a line of L2, as measured on
 * an H200. Of a sector that several blocks share, each reads all; of a line, if that is at another
 * time. */
static double bytes_of_runs(runs_read runs, uint64_t blocks)
{
    enum { LINE_BYTES = 4 * GPR_SECTOR_BYTES };
    const double ends = (runs.is_even ? GPR_SECTOR_BYTES : LINE_BYTES) / 2.;

    if (runs.bytes == 0) return 1;
    if (blocks > 1 && runs.is_apart && runs.bytes < LINE_BYTES)
        return (runs.bytes + LINE_BYTES) / runs.bytes;
    if (blocks > 1 && runs.by_turns && runs.bytes < GPR_SECTOR_BYTES)
        return (runs.bytes + GPR_SECTOR_BYTES) / runs.bytes;
    return 1 + ends / runs.bytes;
}

/* Runs of so many bytes, one for each step along the nearest reduced axis. */
static runs_read runs_across(const gpr_plan_task *t, uint64_t bytes)
{
    const gpr_layout *layout = t->layout;
    const uint64_t pitch =
        gpr_magnitude(layout->axes[layout->kept + layout->reduced - 1].in) * t->element_bytes;

    return (runs_read){.bytes = (double)bytes,
                       .is_even = pitch % GPR_SECTOR_BYTES == 0 && bytes % GPR_SECTOR_BYTES == 0};
}

/* Whether threads that share a row are lanes of a warp, or whole warps: they combine what they have
 * by shuffles first. */
static int are_row_lanes(const way *w)
{
    const uint64_t height = w->block / w->width;

    if (!w->row_major) return 0;
    return height <= GPR_WARP_LANES ? (height & (height - 1)) == 0 : height % GPR_WARP_LANES == 0;
}

/* Whether lanes of a warp may share columns of a small array, so that each lane reads sectors of
 * its own: of positions, which are two numbers (adr/0012). */
static int seeks_by_lanes(const gpr_plan_task *t)
{
    enum { SMALL_BYTES = 64 << 10 };

    return t->rule->acc_kind == GPR_ACC_INDEXED && gpr_are_short_columns(t) &&
           t->layout->rows * t->layout->n * t->element_bytes <= SMALL_BYTES;
}

/* fast_columns and fast_strided: `groups` of rows of n items; each thread has `outputs`. */
static void consider_rectangle(search *s, way *w, uint64_t n, uint32_t outputs, runs_read runs)
{
    enum { OF_ITEM = 6 }; /* instructions, beside those that fold its elements */
    const uint32_t item_bytes = w->item * (uint32_t)s->t->element_bytes;
    const uint32_t most_under_way =
        gpr_items_under_way(item_bytes, (uint32_t)s->t->layout->reduced, s->t->layout->masked);
    const uint32_t under_way =
        adds_pairs(s) && (s->t->layout->masked || !gpr_pair_sum_is_float64(s->t->rule->element))
            ? gpr_fewer_under_way(most_under_way, s->t->layout->masked)
            : most_under_way;
    const uint64_t height = w->block / w->width;
    const double slots = (double)gpr_fast_residents(s->t, w->block);
    const double steps = gpr_tree_steps(height);
    const double division = w->variant == COLUMNS && w->strips == 0 ? 40 : 0;
    const double barrier = are_row_lanes(w) ? 0 : s->barrier_ns;
    const double tree =
        steps * (s->costs.step_ns + barrier + outputs * s->fold.combine * DEPENDENT_NS);
    uint64_t list[MOST_LISTED];
    const int count = list_blocks(s, slots, w->groups, gpr_divide_up(n, height), list);

    for (int i = 0; i < count; i++) {
        const uint64_t each = gpr_divide_up(n, list[i] * height);
        const double rounds = (double)gpr_divide_up(each, under_way);
        w->blocks = list[i];
        w->ns =
            blocks_ns(s, w, (double)(w->groups * list[i]), s->bytes * bytes_of_runs(runs, list[i]),
                      division + (double)each * OF_ITEM + steps * (10 + outputs * s->fold.combine),
                      rounds * s->costs.load_ns + (double)each * ITEM_NS + tree);
        if (list[i] > 1) w->ns += merging_ns(s, gpr_divide_up(list[i], height), outputs) + tree;
        consider(s, w);
    }
}

/* Elements of an item of columns whose accumulators fit `room` bytes. */
static uint32_t fit_outputs(const gpr_plan_task *t, uint32_t item, uint64_t room)
{
    while (item > 1 && item * t->acc_bytes > room) item /= 2;
    return item;
}

/* Bytes of accumulators of a thread that has columns of any length. Pairs of doubles, which are
 * added by many instructions, leave room for these. */
static uint64_t column_room(const gpr_plan_task *t)
{
    return t->rule->acc_kind == GPR_ACC_EXACT ? GPR_THREAD_ACC_BYTES / 2 : GPR_THREAD_ACC_BYTES;
}

/* fast_columns: a thread has `item` neighbouring columns. */
static void consider_items(search *s, uint32_t item)
{
    const gpr_plan_task *t = s->t;
    const uint64_t extent = t->layout->axes[s->column].extent, n = t->layout->n,
                   others = t->layout->rows / extent;
    const uint64_t items = gpr_divide_up(extent, item),
                   least = LEAST_STRIP_BYTES / (item * t->element_bytes);
    uint32_t sizes[MOST_SIZES];
    const int count = list_sizes(s, least_block(s), sizes);

    for (int i = 0; i < count; i++) {
        uint64_t width = gpr_smaller(items, sizes[i]);
        if (t->block == 0 && sizes[i] * t->acc_bytes > GPR_BLOCK_ACC_BYTES) break;
        if (width > items / 2 && width < items) /* strips of even width */
            width = gpr_smaller(width, (gpr_divide_up(items, 2) + GPR_WARP_LANES - 1) /
                                           GPR_WARP_LANES * GPR_WARP_LANES);
        for (;; width = gpr_divide_up(width, 2)) {
            const uint64_t strips = gpr_divide_up(items, width);
            uint32_t block = sizes[i];
            /* Threads that would have nothing to do. */
            if (t->block == 0) {
                const uint64_t used = gpr_smaller(block / width, n) * width;
                block = (uint32_t)(gpr_divide_up(used, GPR_WARP_LANES) * GPR_WARP_LANES);
            }
            way w = {.variant = COLUMNS,
                     .block = block,
                     .item = item,
                     .lanes = GPR_WARP_LANES,
                     .per_thread = 1,
                     .width = width,
                     .strips = strips,
                     .groups = others * strips};
            consider_rectangle(s, &w, n, item,
                               strips > 1 ? runs_across(t, width * item * t->element_bytes)
                                          : (runs_read){0});
            if (width <= 1 || width / 2 < least ||
                (double)w.groups > 4 * (double)gpr_fast_residents(t, block))
                break;
        }
    }
}

/* Groups of columns that are narrower than a block: the block goes on in the next ones, so that
 * threads need not share columns of a few elements. */
static void consider_groups(search *s, uint32_t item)
{
    enum { SHORT_RUN = 64, NEAR_BYTES = 2048 };
    const gpr_plan_task *t = s->t;
    const uint64_t extent = t->layout->axes[s->column].extent, items = t->layout->rows / item;
    const double run = (double)(extent * t->element_bytes), apart = run * (double)t->layout->n;
    /* Vectors of short runs that are far from each other take as long as more bytes, as measured on
     * an H100. */
    const double run_bytes = item * t->element_bytes == GPR_VECTOR_BYTES && run < SHORT_RUN
                                 ? 2 * run * (apart < NEAR_BYTES ? NEAR_BYTES / apart : 1)
                                 : 0;
    uint32_t sizes[MOST_SIZES];
    const int count = extent < t->layout->rows ? list_sizes(s, least_block(s), sizes) : 0;

    for (int i = 0; i < count; i++) {
        if (t->block == 0 && sizes[i] * t->acc_bytes > GPR_BLOCK_ACC_BYTES) break;
        for (uint64_t height = 1; height <= t->layout->n && sizes[i] / height * item > extent;
             height *= 2) {
            const uint64_t width = sizes[i] / height;
            way w = {.variant = COLUMNS,
                     .block = sizes[i],
                     .item = item,
                     .lanes = GPR_WARP_LANES,
                     .per_thread = 1,
                     .width = width,
                     .strips = 0,
                     .groups = gpr_divide_up(items, width)};
            consider_rectangle(s, &w, t->layout->n, item,
                               (runs_read){.bytes = run_bytes, .is_even = 1});
        }
    }
}

static void consider_columns(search *s)
{
    /* A thread's rows that leave it no time to want registers. */
    enum { FEW_ROWS = GPR_ITEMS_UNDER_WAY };
    const gpr_plan_task *t = s->t;
    const uint32_t item =
        fit_outputs(t, gpr_most_in_item(t, s->column),
                    t->layout->n <= FEW_ROWS ? 2 * GPR_THREAD_ACC_BYTES : column_room(t));

    consider_items(s, item);
    consider_groups(s, item);
}

/* What neighbours of a block of fast_strided read in one load: any runs where neighbouring blocks
 * read the neighbouring bytes at another time anyway. */
static runs_read runs_of(const gpr_plan_task *t, int row_major, uint32_t item, uint64_t width,
                         uint64_t height)
{
    const gpr_layout *layout = t->layout;
    const gpr_axis *kept = &layout->axes[layout->kept - 1],
                   *reduced = &layout->axes[layout->kept + layout->reduced - 1];
    const uint64_t step = gpr_magnitude((row_major ? reduced : kept)->in) * t->element_bytes;

    if (step > GPR_SECTOR_BYTES) return (runs_read){0};
    if (!row_major) return runs_across(t, width * item * step);
    const uint64_t row_run = reduced->extent * step,
                   run = gpr_smaller(height * item * step, row_run);
    if (layout->reduced == 1 || run < row_run)
        return (runs_read){.bytes = (double)run, .by_turns = 1, .is_even = 1};
    /* The run ends with the axis; a neighbouring row's may follow. */
    const int follows = gpr_magnitude(kept->in) * t->element_bytes == row_run;
    return (runs_read){.bytes = (double)(run * (follows ? gpr_smaller(width, kept->extent) : 1)),
                       .by_turns = 1,
                       .is_apart = 1,
                       .is_even = 1};
}

/* Rectangles of blocks of one size. */
static void consider_heights(search *s, uint32_t block, int row_major, uint64_t least,
                             uint64_t most)
{
    const gpr_plan_task *t = s->t;
    gpr_plan trial = {.layout = *t->layout};
    const uint64_t n = gpr_use_items(t, &trial), rows = t->layout->rows;
    uint64_t last = 0;

    for (uint64_t height = row_major ? most : least; height >= least && height <= most;
         height = row_major ? height / 2 : height * 2) {
        const uint64_t width = gpr_smaller(block / height, rows);
        way w = {.variant = STRIDED,
                 .block = block,
                 .item = trial.item,
                 .lanes = GPR_WARP_LANES,
                 .per_thread = 1,
                 .width = width,
                 .row_major = row_major,
                 .strips = 1,
                 .groups = gpr_divide_up(rows, width)};
        if (width == last) continue;
        last = width;
        if (!row_major && height > 1 && width < 8) break;
        if (row_major && height < 4 && n >= 8) break;
        consider_rectangle(s, &w, n, 1, runs_of(t, row_major, trial.item, w.width, height));
    }
}

static void consider_strided(search *s)
{
    enum { LEAST_LANES = 4 };
    const gpr_plan_task *t = s->t;
    const int row_major = gpr_is_row_major(t->layout);
    uint32_t sizes[MOST_SIZES];
    const int count = list_sizes(s, least_block(s), sizes);

    for (int i = 0; i < count; i++) {
        const uint32_t block = sizes[i];
        if (t->block == 0 && block * t->acc_bytes > GPR_BLOCK_ACC_BYTES) break;
        /* Neighbours in memory are neighbours in the block: at least a few of them. */
        consider_heights(s, block, row_major, 1, block);
        if (seeks_by_lanes(t)) consider_heights(s, block, 1, LEAST_LANES, GPR_WARP_LANES);
    }
}

/* ---------------------------------------------------------------- few and narrow ------------- */

/* Whether positions ascend in memory order, and 32 bits hold them. */
static int ascends(const gpr_layout *layout)
{
    const gpr_axis *axes = &layout->axes[layout->kept];

    for (int i = 0; i < layout->reduced; i++) {
        const int64_t inner =
            i + 1 < layout->reduced ? axes[i + 1].position * (int64_t)axes[i + 1].extent : 1;
        if (axes[i].position < inner) return 0;
    }
    return layout->n <= UINT32_MAX;
}

/* Elements of an item of fast_few that leaves registers for many of them under way, as measured on
 * an H200; 0 where columns are so wide that fast_columns, which has fewer under way, is as fast. */
static uint32_t fit_many(const search *s, uint32_t widest)
{
    enum { MOST_BYTES = 8, FEWER_BYTES = 4, FEW_POSITIONS = 16, SMALL_BYTES = 4 << 20 };
    const gpr_plan_task *t = s->t;
    const uint64_t bytes = t->element_bytes;
    const int is_float = gpr_dtype_rows[t->rule->element].kind == GPR_KIND_FLOAT;

    if (bytes > MOST_BYTES) return 0;
    if (adds_pairs(s)) return 1; /* one takes as many registers as there are */
    if (t->rule->acc_kind == GPR_ACC_INDEXED) {
        const int are_few = t->layout->n <= FEW_POSITIONS && widest * bytes <= FEWER_BYTES;
        if (widest == 1 || are_few) return widest;
        return s->bytes <= SMALL_BYTES ? 1 : 0; /* small arrays wait for steps, not for memory */
    }
    /* Short integers are taken out of words, for which there are no registers left. */
    if (bytes <= 2 && !is_float) return widest * bytes <= FEWER_BYTES ? widest : 0;
    return (uint32_t)gpr_smaller(widest, MOST_BYTES / bytes);
}

/* What a lane of a small array waits while it adds so many elements to a pair, as measured on an
 * H200: larger arrays have other warps that load meanwhile. */
static double pairs_ns(const search *s, uint64_t elements)
{
    enum { ELEMENT_NS = 20, SMALL_BYTES = 512 << 10 };

    return adds_pairs(s) && s->bytes <= SMALL_BYTES ? (double)elements * ELEMENT_NS : 0;
}

/* Threads of a block of fast_few: no more than columns are worth, unless most would have nothing to
 * do anyway. */
static uint32_t few_block(uint64_t threads)
{
    const uint64_t warps = gpr_divide_up(threads, GPR_WARP_LANES);

    if (threads <= GPR_WARP_LANES || threads > DEFAULT_BLOCK) return DEFAULT_BLOCK;
    return (uint32_t)(warps * GPR_WARP_LANES);
}

static void consider_few(search *s)
{
    enum { MOST_BYTES = 64, MOST_LOADS = 24, MOST_PAIR_LOADS = 20, MOST_ITEMS = 8 };
    enum { SPILLED_BYTES = 112 };
    const gpr_plan_task *t = s->t;
    const uint64_t extent = t->layout->axes[s->column].extent, n = t->layout->n,
                   others = t->layout->rows / extent;
    const int is_counted = n <= GPR_COUNTED_ELEMENTS, is_pair = adds_pairs(s),
              is_wide = t->element_bytes == 8 && !is_pair;
    const uint32_t room =
        (uint32_t)(is_counted ? n : gpr_divide_up(n, GPR_FEW_STEP) * GPR_FEW_STEP);
    const uint32_t most = is_pair && t->rule->element == GPR_FLOAT64 ? MOST_PAIR_LOADS : MOST_LOADS;
    const uint32_t widest =
        fit_outputs(t, gpr_most_in_item(t, s->column), 2 * GPR_THREAD_ACC_BYTES);
    const uint32_t item = is_counted ? widest : fit_many(s, widest);

    if (item == 0 || n > most || t->layout->reduced != 1 || t->layout->masked || t->grid != 0)
        return;
    if (t->rule->acc_kind == GPR_ACC_INDEXED && !ascends(t->layout)) return;
    for (uint32_t each = 1; each <= MOST_ITEMS; each *= 2) {
        if (each > 1 && (each * n * item * t->element_bytes > MOST_BYTES || each * n > MOST_LOADS))
            return;
        if (is_pair && each * item > GPR_FEW_COLUMNS) return;
        const uint64_t threads = gpr_divide_up(extent, (uint64_t)item * each);
        const uint32_t block = t->block != 0 ? t->block : few_block(threads);
        const uint64_t strips = gpr_divide_up(threads, block);
        way w = {.variant = FEW,
                 .block = block,
                 .item = item,
                 .lanes = GPR_WARP_LANES,
                 .per_thread = each,
                 .row_elements = room,
                 .width = block,
                 .strips = strips,
                 .groups = others * strips,
                 .blocks = 1};
        /* The more a thread has under way, the fewer blocks are resident; and eight items of two
         * wide elements leave no registers for their addresses. */
        const double many = (double)((each - 1) * n * item * t->element_bytes) / MOST_BYTES,
                     spilled = is_wide && n * item * t->element_bytes > SPILLED_BYTES ? 1 : 0;
        const double crowd = 0.1 * (many + spilled);
        w.ns = blocks_ns(s, &w, (double)w.groups, s->bytes * (1 + crowd), (double)(each * n) * 4,
                         s->costs.load_ns);
        consider(s, &w);
    }
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Threads of a block of `block` that work if each group is `group` threads. */
static uint32_t working_threads(uint32_t block, uint64_t group)
{
    return (uint32_t)(block / group * group);
}

/* The block from `least` to `most` threads of which the largest share works. */
static uint32_t fit_block(uint32_t least, uint32_t most, uint64_t group)
{
    uint32_t block = most;

    for (uint32_t b = most; b >= least; b -= GPR_WARP_LANES) {
        if ((uint64_t)working_threads(b, group) * block >
            (uint64_t)working_threads(block, group) * b)
            block = b;
    }
    return block;
}

static void consider_narrow(search *s)
{
    static const uint32_t most[] = {256, 512, GPR_MOST_BLOCK};
    const gpr_plan_task *t = s->t;
    const gpr_layout *layout = t->layout;
    const uint64_t columns = layout->axes[s->column].extent, n = layout->n,
                   others = layout->rows / columns;

    if (layout->reduced != 1 || layout->masked || layout->axes[layout->kept].in != (int64_t)columns)
        return;
    for (int i = 0; i < 3; i++) {
        const uint32_t limit = t->block != 0 ? t->block : most[i];
        const uint32_t item =
            fit_outputs(t, (uint32_t)(GPR_VECTOR_BYTES / t->element_bytes),
                        gpr_smaller(GPR_THREAD_ACC_BYTES, GPR_BLOCK_ACC_BYTES / limit));
        const uint64_t group = columns / greatest_divisor(columns, item);
        if (limit < group || gpr_most_in_item(t, s->column) >= item) {
            if (t->block != 0) return;
            continue;
        }
        const uint32_t block = t->block != 0 ? t->block : fit_block(limit / 2, limit, group);
        const uint64_t working = working_threads(block, group);
        if (working == 0) continue;
        const uint32_t under_way = gpr_items_under_way(item * (uint32_t)t->element_bytes, 1, 0);
        const uint64_t items = gpr_divide_up(n * columns, item),
                       count = block * item / columns; /* of partials side by side */
        const double steps = gpr_tree_steps(working * item / columns),
                     merge_steps = gpr_tree_steps(count);
        const double step = s->costs.step_ns + s->barrier_ns +
                            s->fold.combine * DEPENDENT_NS * ((double)item / 2 + 1);
        way w = {.variant = NARROW,
                 .block = block,
                 .item = item,
                 .lanes = GPR_WARP_LANES,
                 .per_thread = 1,
                 .width = working,
                 .strips = 1,
                 .groups = others};
        uint64_t list[MOST_LISTED];
        const int listed = list_blocks(s, (double)gpr_fast_residents(t, block), others,
                                       gpr_divide_up(items, working), list);
        for (int j = 0; j < listed; j++) {
            const uint64_t each = gpr_divide_up(items, list[j] * working);
            w.blocks = list[j];
            w.ns = blocks_ns(s, &w, (double)(others * list[j]), s->bytes,
                             (double)each * 6 + 40 + steps * 10,
                             (double)gpr_divide_up(each, under_way) * s->costs.load_ns +
                                 (double)each * ITEM_NS + steps * step);
            if (list[j] > 1) {
                const uint64_t rounds = gpr_divide_up(list[j], count);
                w.ns += s->costs.merge_ns +
                        (double)gpr_divide_up(rounds * item, item < 4 ? 4 : item) *
                            s->costs.partial_ns +
                        (double)(rounds * item) * s->fold.combine * DEPENDENT_NS +
                        merge_steps * step;
            }
            consider(s, &w);
        }
        if (t->block != 0) return;
    }
}

/* ---------------------------------------------------------------- rows that are runs --------- */

/* Whether a thread cannot add so many vectors, and two elements at the ends, to a pair of doubles
 * without a proof (gpr_plan_exact). */
static int is_share_too_long(const search *s, uint64_t vectors)
{
    return adds_pairs(s) && gpr_pair_sum_is_float64(s->t->rule->element) &&
           (vectors + 2) * (GPR_VECTOR_BYTES / s->t->element_bytes) > GPR_PAIR_SHARE;
}

/* Whether all rows are whole vectors, and begin at multiples of one. */
static int are_rows_whole(const gpr_plan_task *t)
{
    const int last = t->layout->kept + t->layout->reduced - 1;

    return t->element_bytes < GPR_VECTOR_BYTES &&
           gpr_most_in_item(t, last) * t->element_bytes == GPR_VECTOR_BYTES;
}

/* Whether blocks that have a row each read it in one round, as fast_short promises: `each` vectors
 * of a thread. */
static int is_short(const gpr_plan_task *t, uint64_t each)
{
    return each <= GPR_STREAM_VECTORS && t->element_bytes < GPR_VECTOR_BYTES && t->grid == 0;
}

static void consider_stream(search *s)
{
    enum { LARGE = 512 };
    const gpr_plan_task *t = s->t;
    const uint64_t rows = t->layout->rows,
                   vectors = gpr_divide_up(t->layout->n * t->element_bytes, GPR_VECTOR_BYTES);
    uint32_t sizes[MOST_SIZES];
    const int count = list_sizes(s, SMALL_BLOCK, sizes);
    const uint32_t least_shared = t->block != 0 ? t->block : least_block(s);

    for (int i = 0; i < count; i++) {
        const uint32_t block = sizes[i];
        const double steps = 5 + gpr_tree_steps(block / GPR_WARP_LANES);
        const double tree = s->costs.step_ns + steps * s->fold.combine * DEPENDENT_NS + steps * 10;
        uint64_t list[MOST_LISTED];
        way w = {.variant = STREAM,
                 .block = block,
                 .item = 1,
                 .lanes = GPR_WARP_LANES,
                 .per_thread = 1,
                 .width = 1,
                 .strips = 1,
                 .groups = rows};
        const int listed = list_blocks(s, (double)gpr_fast_residents(t, block), rows,
                                       gpr_divide_up(vectors, block), list);
        for (int j = 0; j < listed && (list[j] == 1 || block >= least_shared); j++) {
            const uint64_t each = gpr_divide_up(vectors, list[j] * block);
            if (block < least_shared && is_share_too_long(s, each)) continue;
            /* Blocks of many rounds jump: the fewer bytes they read in a run, the more pages of
             * memory are open at a time. */
            const double jumps =
                each > GPR_STREAM_VECTORS && block < LARGE ? JUMP * ((double)LARGE / block - 1) : 0;
            w.blocks = list[j];
            if (list[j] == 1 && is_short(t, each)) {
                w.variant = SHORT;
                w.item = are_rows_whole(t) ? (uint32_t)(GPR_VECTOR_BYTES / t->element_bytes) : 1;
            } else {
                w.variant = STREAM;
                w.item = 1;
            }
            w.ns = blocks_ns(s, &w, (double)(rows * list[j]), s->bytes * (1 + jumps),
                             (double)each * 4 + steps * (4 + s->fold.combine),
                             (double)gpr_divide_up(each, GPR_STREAM_VECTORS) * s->costs.load_ns +
                                 (double)each * ITEM_NS + tree);
            if (list[j] > 1) w.ns += merging_ns(s, gpr_divide_up(list[j], block), 1) + tree;
            consider(s, &w);
        }
    }
}

/* Elements that a program has room for which copies rows of n through shared memory: not each n has
 * a program of its own. */
static uint32_t round_room(uint64_t n)
{
    uint32_t room = 4;

    while (room < n) room += room / 2 / 4 * 4 == 0 ? 4 : room / 2 / 4 * 4;
    return room;
}

/* Whether neighbouring rows that are runs have most elements in common. */
static int overlaps(const gpr_layout *layout)
{
    enum { SHARE = 4 };

    return layout->kept > 0 &&
           gpr_magnitude(layout->axes[layout->kept - 1].in) <= layout->n / SHARE;
}

/* fast_rows, where lanes read their rows themselves. */
static void consider_direct(search *s, way *w, uint64_t vectors, int is_whole, double combining,
                            double tree)
{
    enum { FEW_INSTRUCTIONS = 6 }; /* per element */
    const gpr_plan_task *t = s->t;
    const uint64_t lane_vectors = gpr_divide_up(vectors, w->lanes);
    const double rounds = (double)gpr_divide_up(lane_vectors, GPR_STREAM_VECTORS);
    /* Where a row takes several rounds, sectors that lanes share only in part are loaded again, and
     * memory delivers short runs of many rows more slowly than long ones of a few: folds of few
     * instructions wait for it. Measured on an H100 and an H200, 163 arrays in all ways. Lanes that
     * have windows of their own, one a few elements behind the other, share nearly all sectors:
     * ten arrays on an H200. */
    const double lanes = w->lanes, runs = s->fold.element < FEW_INSTRUCTIONS ? 0.6 / lanes : 0,
                 apart = w->lanes == 1 && overlaps(t->layout) ? 0.4 : 1.2 / (lanes * lanes) + runs,
                 again = rounds > 1 ? apart : 0.05;
    /* Elements before and after whole vectors, which a warp's rows have at different places. */
    const uint64_t of_vector = GPR_VECTOR_BYTES / t->element_bytes,
                   together = gpr_most_in_item(t, t->layout->kept + t->layout->reduced - 1);
    const double edge = (double)gpr_smaller(2 * (of_vector - together), t->layout->n);
    /* Lanes have different numbers of them, and wait for each other. */
    const double waiting = overlaps(t->layout) ? 1 : 1.7,
                 each_edge = waiting * (9 + s->fold.element);
    const double edges = is_whole ? 25 : 70 + edge / lanes * each_edge;

    w->item = is_whole ? (uint32_t)of_vector : 1;
    w->ns = blocks_ns(s, w, ceil((double)t->layout->rows * lanes / w->block),
                      s->bytes * (1 + again), edges + (double)lane_vectors * 4 + combining,
                      (rounds + (is_whole ? 0 : 0.5)) * s->costs.load_ns +
                          pairs_ns(s, lane_vectors * of_vector) + tree);
    consider(s, w);
}

static void consider_rows(search *s)
{
    const gpr_plan_task *t = s->t;
    const uint64_t rows = t->layout->rows, n = t->layout->n, row_bytes = n * t->element_bytes,
                   vectors = gpr_divide_up(row_bytes, GPR_VECTOR_BYTES),
                   of_vector = GPR_VECTOR_BYTES / t->element_bytes;
    const uint32_t block = t->block != 0 ? t->block : DEFAULT_BLOCK;
    const int is_whole = are_rows_whole(t);
    const int can_stage =
        gpr_is_contiguous(t->layout) && t->layout->kept == 1 && row_bytes <= MOST_STAGED_BYTES;

    if (rows == 1 || t->grid != 0 || row_bytes > MOST_LANE_ROW_BYTES) return;
    for (uint32_t lanes = 1; lanes <= GPR_WARP_LANES; lanes *= 2) {
        const double steps = gpr_tree_steps(lanes);
        for (uint32_t each = 1; each <= MOST_ROWS_PER_LANE; each *= 2) {
            const uint64_t per_block = (uint64_t)(block / lanes) * each;
            const double blocks = (double)gpr_divide_up(rows, per_block);
            const double combining = each * steps * (4 + s->fold.combine);
            const double tree = steps * (s->fold.combine * DEPENDENT_NS + 15);
            const uint64_t lane_vectors = gpr_divide_up(vectors, lanes);
            way w = {.variant = ROWS,
                     .block = block,
                     .lanes = lanes,
                     .per_thread = each,
                     .item = 1,
                     .width = 1,
                     .strips = 1,
                     .groups = rows};
            if (is_whole && lane_vectors == 1 && lanes / 2 < vectors) {
                w.item = (uint32_t)of_vector;
                w.ns = blocks_ns(s, &w, blocks, s->bytes, each * 12 + combining,
                                 s->costs.load_ns + pairs_ns(s, each * of_vector) + tree);
                consider(s, &w);
            } else if (each == 1) {
                consider_direct(s, &w, vectors, is_whole, combining, tree);
            }
            const uint32_t room = round_room(n);
            if (can_stage && lanes <= n &&
                per_block * room * t->element_bytes <= GPR_BLOCK_ROWS_BYTES) {
                const double copies = (double)gpr_divide_up(per_block * row_bytes,
                                                            (uint64_t)block * GPR_VECTOR_BYTES);
                const double taken = each * (double)gpr_divide_up(n, lanes);
                w.item = 1;
                w.row_elements = room;
                w.ns = blocks_ns(s, &w, blocks, s->bytes,
                                 copies * 8 + taken * 15 + each * 20 + combining,
                                 gpr_divide_up((uint64_t)copies, 4) * s->costs.load_ns +
                                     s->costs.step_ns + taken * 15 + tree);
                consider(s, &w);
            }
        }
    }
}

static void consider_counted(search *s)
{
    const gpr_plan_task *t = s->t;
    const uint64_t item = GPR_VECTOR_BYTES / t->element_bytes, n = t->layout->n;
    const uint32_t block = t->block != 0 ? t->block : DEFAULT_BLOCK;

    if (n > GPR_COUNTED_ELEMENTS || t->grid != 0 || t->layout->rows == 1 ||
        !gpr_is_contiguous(t->layout) || t->layout->aligned != GPR_VECTOR_BYTES ||
        item * t->acc_bytes > GPR_THREAD_ACC_BYTES ||
        t->layout->rows / (item * block) < gpr_fast_residents(t, block))
        return;
    way w = {.variant = COUNTED,
             .block = block,
             .lanes = 1,
             .per_thread = (uint32_t)item,
             .item = (uint32_t)item,
             .row_elements = (uint32_t)n,
             .width = 1,
             .strips = 1,
             .groups = t->layout->rows};
    /* Neighbours' vectors are n apart: each load of a warp touches n times as many lines. */
    const double blocks = (double)gpr_divide_up(t->layout->rows, item * block);
    w.ns = blocks_ns(s, &w, blocks, s->bytes, (double)(n * n) * 16 - 60, s->costs.load_ns);
    consider(s, &w);
}

/* ---------------------------------------------------------------- the plan ------------------- */

/* Whether results of `item` neighbours along an axis may be stored together. */
static int are_results_packed(const gpr_plan_task *t, const gpr_layout *layout, gpr_axis axis,
                              uint32_t item)
{
    const uint64_t result_bytes = gpr_dtype_bytes(t->rule->result);
    const uint64_t together = gpr_smaller(GPR_VECTOR_BYTES, item * result_bytes);

    if (t->rule->outputs != 1 || axis.out != 1 || t->layout->result_aligned < together) return 0;
    for (int i = 0; i < layout->kept; i++) {
        if (gpr_magnitude(layout->axes[i].out) * result_bytes % together != 0) return 0;
    }
    return 1;
}

/* Fills in the plan of a way. */
static gpr_status fill_in(const search *s, const way *w, gpr_plan *plan)
{
    const gpr_plan_task *t = s->t;
    const gpr_layout *layout = t->layout, nothing_else = {.kept = 0};
    uint64_t n = layout->n;

    plan->variant = variant_names[w->variant];
    plan->block = w->block;
    plan->item = w->item;
    plan->lanes = w->lanes;
    plan->per_thread = w->per_thread;
    plan->row_elements = w->row_elements;
    switch (w->variant) {
    case STREAM:
    case SHORT: return gpr_add_blocks(plan, n, w->blocks, 1);
    case ROWS: return gpr_add_blocks(plan, n, 0, 1);
    case COUNTED:
        plan->column.out = layout->axes[0].out; /* from result to result */
        plan->column_mean = layout->mean_steps[0];
        plan->packed = (uint32_t)are_results_packed(t, &nothing_else, plan->column, plan->item);
        return gpr_add_blocks(plan, n, 0, 1);
    case NARROW:
        plan->width = (uint32_t)w->width;
        take_column(plan, s->column);
        plan->rows = w->groups;
        return gpr_add_blocks(plan, n, w->blocks, plan->column.extent);
    case COLUMNS:
    case FEW:
        plan->width = (uint32_t)w->width;
        plan->strips = w->strips;
        take_column(plan, s->column);
        plan->rows = w->groups;
        plan->packed = are_results_packed(t, &plan->layout, plan->column, plan->item);
        return gpr_add_blocks(plan, n, w->blocks, w->width * w->item);
    default:
        n = gpr_use_items(t, plan);
        plan->item_position = layout->axes[layout->kept + layout->reduced - 1].position;
        plan->row_major = are_row_lanes(w) ? GPR_ROW_BY_LANES : (uint32_t)w->row_major;
        plan->width = (uint32_t)w->width;
        plan->rows = w->groups;
        return gpr_add_blocks(plan, n, w->blocks, w->width);
    }
}

/* Bytes from the first element to the last one. */
static double bytes_once(const gpr_layout *layout, uint64_t element_bytes)
{
    double last = 0;

    for (int i = 0; i < layout->kept + layout->reduced; i++)
        last += (double)(layout->axes[i].extent - 1) * (double)gpr_magnitude(layout->axes[i].in);
    return (last + 1) * (double)element_bytes;
}

/* Bytes that memory delivers and takes: of elements, whole sectors where these are apart; and of
 * results. Elements that are read again, as windows overlap or an axis has no stride, come from
 * caches. */
static double moved_bytes(const gpr_plan_task *t)
{
    enum { CACHED = 4 }; /* times as many a second */
    const gpr_layout *layout = t->layout;
    uint64_t step = UINT64_MAX;

    for (int i = 0; i < layout->kept + layout->reduced; i++) {
        const uint64_t apart = gpr_magnitude(layout->axes[i].in);
        if (layout->axes[i].extent > 1 && apart != 0 && apart < step) step = apart;
    }
    if (step == UINT64_MAX) step = 1;
    const uint64_t sector =
        t->element_bytes > GPR_SECTOR_BYTES ? t->element_bytes : GPR_SECTOR_BYTES;
    const uint64_t bytes = step > sector / t->element_bytes ? sector : step * t->element_bytes;
    const double rows = (double)layout->rows,
                 read = rows * (double)layout->n * (double)(bytes + (layout->masked ? 1 : 0)),
                 once = fmin(read, bytes_once(layout, t->element_bytes) + sector);

    return once + (read - once) / CACHED +
           rows * (double)t->rule->outputs * (double)gpr_dtype_bytes(t->rule->result);
}

/* The calling thread's last array, and the way chosen for it: loops make the same call many times,
 * and pricing columns takes as long as queueing them. */
typedef struct choice {
    gpr_rule rule;
    gpr_device_facts facts;
    uint32_t block, grid;
    gpr_layout layout; /* axes as far as there are some; no axes: nothing was chosen yet */
    way best;
} choice;

static _Thread_local choice last_choice;

static size_t axes_bytes(const gpr_layout *layout)
{
    return (size_t)(layout->kept + layout->reduced) * sizeof *layout->axes;
}

/* Padding that differs costs only a search. */
static int is_last_choice(const gpr_plan_task *t)
{
    const gpr_layout *a = t->layout, *b = &last_choice.layout;

    return a->kept == b->kept && a->reduced == b->reduced && a->rows == b->rows && a->n == b->n &&
           a->masked == b->masked && a->aligned == b->aligned &&
           a->mask_aligned == b->mask_aligned && a->first_position == b->first_position &&
           t->block == last_choice.block && t->grid == last_choice.grid &&
           memcmp(a->axes, b->axes, axes_bytes(a)) == 0 &&
           memcmp(t->rule, &last_choice.rule, sizeof *t->rule) == 0 &&
           memcmp(t->facts, &last_choice.facts, sizeof *t->facts) == 0;
}

static void keep_choice(const gpr_plan_task *t, const way *best)
{
    const gpr_layout *from = t->layout;
    gpr_layout *to = &last_choice.layout;

    last_choice.rule = *t->rule;
    last_choice.facts = *t->facts;
    last_choice.block = t->block;
    last_choice.grid = t->grid;
    last_choice.best = *best;
    to->rows = from->rows;
    to->n = from->n;
    to->kept = from->kept;
    to->reduced = from->reduced;
    to->masked = from->masked;
    to->aligned = from->aligned;
    to->mask_aligned = from->mask_aligned;
    to->first_position = from->first_position;
    memcpy(to->axes, from->axes, axes_bytes(from));
}

/* Whether columns are so many and so aligned that fast_columns is better than fast_strided. */
static int has_full_columns(const search *s)
{
    const gpr_plan_task *t = s->t;
    const double large =
        (double)gpr_fast_residents(t, GPR_WARP_LANES) * GPR_WARP_LANES * GPR_STREAM_BYTES * 4;

    return s->column >= 0 && s->bytes > large &&
           gpr_most_in_item(t, s->column) * t->element_bytes >= GPR_VECTOR_BYTES / 2 &&
           t->layout->axes[s->column].extent * t->element_bytes >=
               GPR_WARP_LANES * GPR_VECTOR_BYTES;
}

/* Prices every way for an array that has elements, and keeps the best. */
static void search_ways(search *s)
{
    enum { BARRIER_NS = 150 };
    const gpr_plan_task *t = s->t;
    const gpr_layout *layout = t->layout;

    gpr_costs_of(t->facts, &s->costs);
    s->fold = gpr_fold_costs_of(t->rule, t->acc_bytes);
    s->elements = (double)layout->rows * (double)layout->n;
    s->bytes = moved_bytes(t);
    s->barrier_ns = seeks_by_lanes(t) ? BARRIER_NS : 0;
    if (gpr_rows_are_runs(layout)) {
        consider_stream(s);
        consider_rows(s);
        consider_counted(s);
        /* Rows of one element, and windows that begin at each element, are columns, too. If the
         * former follow each other, others than pairs are read faster through shared memory. */
        if (s->column >= 0 && layout->n == 1 && t->grid == 0 &&
            (adds_pairs(s) || !gpr_is_contiguous(layout))) {
            consider_columns(s);
            consider_few(s);
        } else if (s->column >= 0 && layout->n > 1) {
            consider_items(s, 1);
        }
    } else {
        if (!has_full_columns(s)) consider_strided(s);
        if (s->column >= 0) {
            consider_columns(s);
            consider_few(s);
            consider_narrow(s);
        }
    }
}

gpr_status gpr_list_prices(const gpr_rule *rule, const gpr_layout *layout,
                           const gpr_device_facts *facts, uint32_t room, double *ns,
                           uint32_t *count)
{
    const gpr_plan_task t = {.rule = rule,
                             .layout = layout,
                             .facts = facts,
                             .finishes = 1,
                             .element_bytes = gpr_dtype_bytes(rule->element),
                             .acc_bytes = gpr_acc_bytes(rule->acc_kind, rule->device_acc)};
    search s = {.t = &t,
                .column = find_column(layout),
                .prices = ns,
                .room = room,
                .best = {.ns = HUGE_VAL}};

    search_ways(&s);
    *count = s.considered;
    return GPR_OK;
}

/* Whether results are positions in rows of one element, which need not be read then. Where NaN are
 * left out it must be: a row of one NaN has no position. */
static int is_position_known(const gpr_plan_task *t)
{
    return t->finishes && t->rule->acc_kind == GPR_ACC_INDEXED && !t->rule->skip_nan &&
           t->layout->n == 1;
}

/* Chooses one of the planner's kernels and its parameters. */
gpr_status gpr_plan_fast(const gpr_plan_task *t, gpr_plan *plan)
{
    const gpr_layout *layout = t->layout;
    search s = {.t = t, .column = find_column(layout), .best = {.ns = HUGE_VAL}};

    plan->layout = *layout;
    plan->ascends = (uint32_t)ascends(layout);
    if (layout->n == 0 || is_position_known(t)) {
        plan->variant = "fast_empty";
        plan->block = t->block != 0 ? t->block : DEFAULT_BLOCK;
        plan->lanes = 1;
        return gpr_add_blocks(plan, 0, 0, 1);
    }
    if (is_last_choice(t)) {
        s.best = last_choice.best;
        return fill_in(&s, &s.best, plan);
    }
    search_ways(&s);
    if (s.best.ns == HUGE_VAL)
        return gpr_fail(GPR_ERROR_VALUE, "the plan considers %u ways to read this array, not %u",
                        s.considered, t->facts->way);
    keep_choice(t, &s.best);
    return fill_in(&s, &s.best, plan);
}
