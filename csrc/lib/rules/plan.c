/* Passes, grids and scratch from a kernel's row in the registry. */
#include "lib/rules/plan.h"

#include "lib/base/status.h"
#include "lib/exact/exact.h"
#include "shared/tuning.h"

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Blocks that fill the card once, when a multiprocessor holds `threads` threads. */
static uint64_t resident_blocks(const gpr_device_facts *facts, uint32_t threads, uint32_t block)
{
    const uint64_t per_multiprocessor = threads / block;

    return facts->multiprocessors * (per_multiprocessor > 0 ? per_multiprocessor : 1);
}

/* Blocks for one of `rows` rows of n elements: enough for the row, no more than fill the card together. */
static uint64_t stride_blocks(const gpr_device_facts *facts, uint32_t threads, uint64_t rows, uint64_t n,
                              uint32_t block, uint64_t per_block)
{
    const uint64_t share = divide_up(resident_blocks(facts, threads, block), rows);

    return smaller(divide_up(n, per_block), share);
}

/* ---------------------------------------------------------------- the planner's kernels ------ */

/* A row up to this many bytes is read by a warp or part of one; longer rows are worth a block. Longer ones too where there are many, most
 * of all of moments, which are dear to combine. */
enum { SHORT_ROW_BYTES = 2048, MANY_ROWS_BYTES = 4096, MANY_MOMENTS_BYTES = 8192 };
/* Bytes of a row per thread of a block that make up for the block's end, where there are rows enough
 * for the GPU. */
enum { ROW_BYTES_PER_THREAD = 256 };
enum { WALK_BLOCK = 256 };
/* How many times over a thread has items under way for its share of a row. */
enum { WALK_ROUNDS = 2 };
/* The most rows that a lane takes so that a block has GPR_BLOCK_ROWS_BYTES of them. */
enum { MOST_ROWS_PER_LANE = 4 };
/* Rows up to this many elements are worth a program of their own (fast_counted). */
enum { COUNTED_ROW_ELEMENTS = 8 };
/* Elements that make a block of fast_columns or fast_narrow worth while where its columns do not fill a warp. */
enum { BLOCK_ELEMENTS = 8192 };

static uint64_t round_up(uint64_t a, uint64_t b)
{
    return divide_up(a, b) * b;
}

static uint64_t magnitude(int64_t step)
{
    return step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
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

/* A layout, and what was asked for. */
typedef struct task {
    const gpr_rule *rule;
    const gpr_layout *layout;
    const gpr_device_facts *facts;
    uint32_t block, grid; /* 0: no wish */
    uint64_t element_bytes, acc_bytes;
} task;

static uint64_t planner_residents(const task *t, uint32_t block)
{
    return resident_blocks(t->facts, (uint32_t)smaller(t->facts->threads_per_multiprocessor, GPR_RESIDENT_THREADS),
                           block);
}

/* Lanes that serve a short row: the longer it is, the more loads each of them has under way, as a step of shuffles costs as much as
 * one; and four elements at least, so that few idle. Where rows are too few to fill the card so, more lanes. */
static uint32_t row_lanes(const task *t)
{
    enum { LEAST_ELEMENTS = 4, SHORT = 128, LONG = 1024, LONGEST = 2048 };
    const uint64_t bytes = t->layout->n * t->element_bytes;
    const uint64_t loads = bytes <= SHORT ? 2 : bytes < LONG ? 4 : bytes <= LONGEST ? 8 : 32;
    const uint64_t threads = planner_residents(t, GPR_WARP_LANES) * GPR_WARP_LANES;
    uint64_t each = loads * GPR_VECTOR_BYTES;
    uint32_t lanes = 1;

    if (each < LEAST_ELEMENTS * t->element_bytes) each = LEAST_ELEMENTS * t->element_bytes;
    while (lanes < GPR_WARP_LANES && lanes * each < bytes) lanes *= 2;
    while (lanes < GPR_WARP_LANES && lanes * t->layout->rows < threads && 2 * lanes * GPR_VECTOR_BYTES < bytes)
        lanes *= 2;
    return lanes;
}

/* Blocks for each of `groups` rows, `most` at most: so many that the last wave of them fills the card as well as it can, which holds
 * `residents` at a time. */
static uint64_t split(const task *t, uint64_t residents, uint64_t groups, uint64_t most)
{
    enum { WAVES = 4 };
    uint64_t best = 1;
    double best_time = (double)divide_up(groups, residents);

    if (t->grid != 0) return t->grid;
    for (uint64_t waves = 1; waves <= WAVES; waves++) {
        const uint64_t blocks = smaller(waves * residents / groups, most);
        if (blocks <= best) continue;
        const double time = (double)divide_up(groups * blocks, residents) / (double)blocks;
        if (time < 0.9 * best_time) { /* more partials want to pay for themselves */
            best = blocks;
            best_time = time;
        }
    }
    return best;
}

/* Most elements that a thread can load at once, a power of two: all steps but those of axis `run` are multiples of it, and so are
 * the run's length and the addresses. */
static uint32_t most_in_item(const task *t, int run)
{
    const gpr_layout *layout = t->layout;
    uint32_t item = (uint32_t)(GPR_VECTOR_BYTES / t->element_bytes);
    uint64_t bits = layout->axes[run].extent | layout->aligned / t->element_bytes;

    for (int i = 0; i < layout->kept + layout->reduced; i++) {
        if (i == run || layout->axes[i].extent == 1) continue;
        bits |= magnitude(layout->axes[i].in);
        if (layout->masked) bits |= magnitude(layout->axes[i].mask);
    }
    if (layout->masked) {
        bits |= layout->mask_aligned;
        if (layout->axes[run].mask != 1) return 1;
    }
    while (bits % item != 0) item /= 2;
    return item;
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
    for (int j = i; j + 1 < layout->kept + layout->reduced; j++) layout->axes[j] = layout->axes[j + 1];
    layout->kept--;
}

/* The kept axis whose elements are neighbours, or -1. */
static int find_column(const gpr_layout *layout)
{
    for (int i = layout->kept - 1; i >= 0; i--) {
        if (layout->axes[i].in == 1 && layout->axes[i].extent > 1 && (!layout->masked || layout->axes[i].mask == 1))
            return i;
    }
    return -1;
}

static gpr_status add_blocks(gpr_plan *plan, uint64_t n, uint64_t blocks, uint64_t width);

/* Whether results of `item` neighbours along an axis may be stored together. */
static int are_results_packed(const task *t, const gpr_layout *layout, gpr_axis axis, uint32_t item)
{
    const uint64_t result_bytes = gpr_dtype_bytes(t->rule->result);
    const uint64_t together = smaller(GPR_VECTOR_BYTES, item * result_bytes);

    if (t->rule->outputs != 1 || axis.out != 1 || t->layout->result_aligned < together) return 0;
    for (int i = 0; i < layout->kept; i++) {
        if (magnitude(layout->axes[i].out) * result_bytes % together != 0) return 0;
    }
    return 1;
}

/* ---- rows that are runs of memory ---- */

/* Whether rows are so short, so many and so placed that fast_counted reads them. */
static int is_counted(const task *t, uint32_t block)
{
    const uint64_t item = GPR_VECTOR_BYTES / t->element_bytes;

    return t->layout->n <= COUNTED_ROW_ELEMENTS && gpr_is_contiguous(t->layout) &&
           t->layout->aligned == GPR_VECTOR_BYTES && item * t->acc_bytes <= GPR_THREAD_ACC_BYTES &&
           t->layout->rows / (item * block) >= planner_residents(t, block);
}

static gpr_status plan_counted(const task *t, uint32_t block, gpr_plan *plan)
{
    const gpr_layout nothing_else = {.kept = 0};

    plan->variant = "fast_counted";
    plan->block = block;
    plan->item = plan->per_thread = (uint32_t)(GPR_VECTOR_BYTES / t->element_bytes);
    plan->lanes = 1;
    plan->row_elements = (uint32_t)t->layout->n;
    plan->column.out = t->layout->axes[0].out; /* from result to result */
    plan->column_mean = t->layout->mean_steps[0];
    plan->packed = (uint32_t)are_results_packed(t, &nothing_else, plan->column, plan->item);
    return add_blocks(plan, t->layout->n, 0, 1);
}

static gpr_status plan_runs(const task *t, gpr_plan *plan)
{
    const uint64_t rows = t->layout->rows, n = t->layout->n, row_bytes = n * t->element_bytes;
    const int are_many = rows >= planner_residents(t, GPR_WARP_LANES);
    const uint64_t many_bytes = t->rule->acc_kind == GPR_ACC_MOMENTS ? MANY_MOMENTS_BYTES : MANY_ROWS_BYTES;

    if (rows > 1 && t->grid == 0 && row_bytes <= (are_many ? many_bytes : SHORT_ROW_BYTES)) {
        const uint32_t block = t->block != 0 ? t->block : WALK_BLOCK, lanes = row_lanes(t);
        const uint64_t groups = block / lanes;
        if (is_counted(t, block)) return plan_counted(t, block, plan);
        plan->variant = "fast_rows";
        plan->block = block;
        plan->lanes = lanes;
        /* Not where fewer blocks would leave multiprocessors idle. */
        while (plan->per_thread < MOST_ROWS_PER_LANE &&
               2 * plan->per_thread * groups * row_bytes <= GPR_BLOCK_ROWS_BYTES &&
               rows / (2 * plan->per_thread * groups) >= planner_residents(t, block)) {
            plan->per_thread *= 2;
        }
        return add_blocks(plan, n, 0, 1);
    }
    plan->variant = "fast_stream";
    if (t->block == 0) {
        const uint64_t each = rows >= planner_residents(t, plan->block) ? ROW_BYTES_PER_THREAD : GPR_STREAM_BYTES;
        while (plan->block > 2 * GPR_WARP_LANES && plan->block * each > row_bytes) plan->block /= 2;
    }
    const uint64_t per_block = plan->block * (GPR_STREAM_BYTES / t->element_bytes);
    const uint64_t blocks = smaller(divide_up(n, per_block), divide_up(planner_residents(t, plan->block), rows));
    return add_blocks(plan, n, t->grid != 0 ? t->grid : blocks, 1);
}

/* ---- columns ---- */

/* Elements of an item of columns whose accumulators fit `room` bytes. */
static uint32_t fit_outputs(const task *t, uint32_t item, uint64_t room)
{
    while (item > 1 && item * t->acc_bytes > room) item /= 2;
    return item;
}

/* Threads of a block of `block` that work if each group is `group` threads. */
static uint32_t working_threads(uint32_t block, uint64_t group)
{
    return (uint32_t)(block / group * group);
}

/* fast_narrow, if the columns are one run and no better read by items of columns: 0 if not. */
static int is_narrow(const task *t, int column, uint32_t *item, uint32_t *block, uint64_t *group)
{
    enum { LEAST = 128, MOST = 512 };
    const gpr_layout *layout = t->layout;
    const gpr_axis *row = &layout->axes[layout->kept], *columns = &layout->axes[column];

    if (layout->reduced != 1 || layout->masked || row->in != (int64_t)columns->extent) return 0;
    if (columns->extent * layout->n < BLOCK_ELEMENTS) return 0;
    *item = fit_outputs(t, (uint32_t)(GPR_VECTOR_BYTES / t->element_bytes),
                        smaller(GPR_THREAD_ACC_BYTES, GPR_BLOCK_ACC_BYTES / (t->block != 0 ? t->block : MOST)));
    if (most_in_item(t, column) >= *item) return 0;
    *group = columns->extent / greatest_divisor(columns->extent, *item);
    *block = t->block;
    if (*block == 0) {
        *block = LEAST;
        for (uint32_t b = LEAST; b <= MOST; b += GPR_WARP_LANES) {
            if ((uint64_t)working_threads(b, *group) * *block > (uint64_t)working_threads(*block, *group) * b)
                *block = b;
        }
    }
    return working_threads(*block, *group) > 0;
}

static gpr_status plan_narrow(const task *t, int column, uint32_t item, uint32_t block, uint64_t group, gpr_plan *plan)
{
    const uint64_t columns = t->layout->axes[column].extent, n = t->layout->n;

    plan->variant = "fast_narrow";
    plan->block = block;
    plan->item = item;
    plan->width = working_threads(block, group);
    take_column(plan, column);
    plan->rows = t->layout->rows / columns;
    const uint64_t share = (uint64_t)plan->width * item * GPR_ITEMS_UNDER_WAY * WALK_ROUNDS;
    return add_blocks(plan, n, split(t, planner_residents(t, block), plan->rows, divide_up(n * columns, share)),
                      columns);
}

/* Threads of a block that lie across `items` items: all of a strip, or strips of even width. */
static uint64_t strip_width(uint64_t items, uint32_t block)
{
    return items > block ? round_up(divide_up(items, divide_up(items, block)), GPR_WARP_LANES) : items;
}

/* Blocks for each strip where rows are split among blocks of `block` threads, of which `height` lie below each other. */
static uint64_t split_strips(const task *t, uint32_t block, uint64_t strips, uint64_t height)
{
    return split(t, planner_residents(t, block), strips,
                 divide_up(t->layout->n, height * GPR_ITEMS_UNDER_WAY * WALK_ROUNDS));
}

/* Threads that lie across where a block could have `width` of them. Of narrower strips there are more, each with fewer blocks, of which
 * the last one has more threads below each other to read their partials: where rows are short that takes longer than they do. With
 * one partial a thread narrower strips are no better, unless they need none. */
static uint64_t narrow_strip(const task *t, uint32_t block, uint64_t others, uint64_t items, uint32_t item,
                             uint64_t width)
{
    enum { LEAST_BYTES = 256, PARTIAL_ROWS = 32 }; /* of a strip; a partial takes as long as so many rows */
    uint64_t best = 0;

    for (;; width = divide_up(width, 2)) {
        const uint64_t height = block / width, strips = others * divide_up(items, width);
        const uint64_t blocks = split_strips(t, block, strips, height), partials = divide_up(blocks, height);
        const int is_long = PARTIAL_ROWS * blocks * partials * height <= t->layout->n;
        if (blocks == 1) return width;
        if (best == 0 && partials == 1) best = width;
        if (is_long || width * item * t->element_bytes < 2 * LEAST_BYTES) return best != 0 ? best : width;
    }
}

static gpr_status plan_columns(const task *t, int column, gpr_plan *plan)
{
    /* Partials that a thread of the last block may have to read; and a thread's rows that leave it no time to want registers. */
    enum { MOST_PARTIALS = 16, LARGE_BLOCK = GPR_MOST_BLOCK, FEW_ROWS = GPR_ITEMS_UNDER_WAY };
    const gpr_axis columns = t->layout->axes[column];
    const uint64_t n = t->layout->n, others = t->layout->rows / columns.extent;
    uint32_t block = t->block != 0 ? t->block : WALK_BLOCK;
    const uint32_t item =
        fit_outputs(t, most_in_item(t, column), n <= FEW_ROWS ? 2 * GPR_THREAD_ACC_BYTES : GPR_THREAD_ACC_BYTES);
    const uint64_t items = columns.extent / item;
    uint64_t width = strip_width(items, block);

    while (t->block == 0 && block > 2 * GPR_WARP_LANES && block / 2 >= width && block / 2 / width >= n) block /= 2;
    if (t->block == 0 && block == WALK_BLOCK && LARGE_BLOCK * t->acc_bytes <= GPR_BLOCK_ACC_BYTES) {
        const uint64_t height = block / width, strips = others * divide_up(items, width);
        if (split_strips(t, block, strips, height) > MOST_PARTIALS * height) block = LARGE_BLOCK;
    }
    if (t->grid == 0) width = narrow_strip(t, block, others, items, item, width);
    plan->variant = "fast_columns";
    plan->block = block;
    plan->item = item;
    plan->width = (uint32_t)width;
    plan->strips = divide_up(items, width);
    take_column(plan, column);
    plan->rows = others * plan->strips;
    plan->packed = (uint32_t)are_results_packed(t, &plan->layout, plan->column, item);
    return add_blocks(plan, n, split_strips(t, block, plan->rows, block / width), width * item);
}

/* ---- everything else ---- */

/* Has rows walked by items of neighbouring elements, as large as can be; returns how many of them a row is. */
static uint64_t use_items(const task *t, gpr_plan *plan)
{
    const int last = t->layout->kept + t->layout->reduced - 1;
    gpr_axis *walked = &plan->layout.axes[last];

    plan->item = walked->in == 1 ? most_in_item(t, last) : 1;
    walked->extent /= plan->item;
    walked->in *= plan->item;
    walked->mask *= plan->item;
    walked->position *= plan->item;
    return t->layout->n / plan->item;
}

static gpr_status plan_strided(const task *t, gpr_plan *plan)
{
    const gpr_layout *layout = t->layout;
    const int last = layout->kept + layout->reduced - 1;
    const gpr_axis *kept = &layout->axes[layout->kept - 1], *reduced = &layout->axes[last];
    const uint64_t rows = layout->rows;
    const uint32_t block = t->block != 0 ? t->block : WALK_BLOCK;
    const uint64_t n = use_items(t, plan);
    uint64_t width = 1, height = 1;

    plan->variant = "fast_strided";
    plan->block = block;
    plan->item_position = reduced->position;
    plan->row_major = kept->extent == 1 || magnitude(reduced->in) <= magnitude(kept->in);
    if (plan->row_major) {
        while (2 * height <= block && height * GPR_ITEMS_UNDER_WAY < n) height *= 2;
        width = smaller(block / height, rows);
    } else {
        /* A warp's threads across are enough for neighbours to share what memory brings; more where rows are short or many. */
        width = n < 2 * GPR_WARP_LANES || rows / block >= planner_residents(t, block) ? block : GPR_WARP_LANES;
        width = smaller(width, rows);
    }
    plan->width = (uint32_t)width;
    plan->rows = divide_up(rows, width);
    height = block / width;
    return add_blocks(
        plan, n,
        split(t, planner_residents(t, block), plan->rows, divide_up(n, height * GPR_ITEMS_UNDER_WAY * WALK_ROUNDS)),
        width);
}

/* Whether rows are walked in the order of positions, which 32 bits hold. */
static int ascends(const gpr_layout *layout)
{
    const gpr_axis *axes = &layout->axes[layout->kept];

    for (int i = 0; i < layout->reduced; i++) {
        const int64_t inner = i + 1 < layout->reduced ? axes[i + 1].position * (int64_t)axes[i + 1].extent : 1;
        if (axes[i].position < inner) return 0;
    }
    return layout->n <= UINT32_MAX;
}

/* Chooses one of the planner's kernels and what goes with it. */
static gpr_status plan_fast(const task *t, gpr_plan *plan)
{
    const gpr_layout *layout = t->layout;
    const int column = find_column(layout);
    uint32_t item = 1, block = 0;
    uint64_t group = 1;

    plan->layout = *layout;
    plan->ascends = (uint32_t)ascends(layout);
    if (layout->n == 0) {
        plan->variant = "fast_empty";
        plan->block = t->block != 0 ? t->block : WALK_BLOCK;
        plan->lanes = 1;
        return add_blocks(plan, 0, 0, 1);
    }
    if (gpr_rows_are_runs(layout)) return plan_runs(t, plan);
    if (column >= 0) {
        const uint64_t extent = layout->axes[column].extent;
        if (is_narrow(t, column, &item, &block, &group)) return plan_narrow(t, column, item, block, group, plan);
        if (extent / most_in_item(t, column) >= GPR_WARP_LANES || extent * layout->n >= BLOCK_ELEMENTS)
            return plan_columns(t, column, plan);
    }
    return plan_strided(t, plan);
}

/* ---------------------------------------------------------------- passes --------------------- */

static gpr_status add_pass(gpr_plan *plan, uint64_t n, uint64_t blocks, uint64_t grid)
{
    if (blocks > UINT32_MAX || plan->pass_count == GPR_MAX_PASSES || grid >> 62 != 0) {
        return gpr_fail(GPR_ERROR_VALUE, "rows of %llu elements take more blocks than kernel '%s' can number",
                        (unsigned long long)n, gpr_kernel_rows[plan->kernel].name);
    }
    plan->passes[plan->pass_count++] = (gpr_pass){.n = n, .blocks = (uint32_t)blocks, .grid = grid};
    return GPR_OK;
}

/* The one pass of a planner's kernel: `blocks` for each of the plan's rows, which leave `width` partials each for the last of them
 * where there are several. blocks 0: a block serves as many rows as its lanes do. */
static gpr_status add_blocks(gpr_plan *plan, uint64_t n, uint64_t blocks, uint64_t width)
{
    if (blocks == 0)
        return add_pass(plan, n, 0, divide_up(plan->rows, (uint64_t)(plan->block / plan->lanes) * plan->per_thread));
    if (blocks > (1ull << 62) / plan->rows / width) return add_pass(plan, n, UINT64_MAX, 0);
    if (blocks > 1) {
        plan->partials = plan->rows * blocks * width;
        plan->tickets = plan->rows;
    }
    return add_pass(plan, n, blocks, plan->rows * blocks);
}

/* Passes of a kernel that writes one partial a block, until one is left for each row. */
static gpr_status plan_passes(const gpr_kernel_row *row, uint64_t n, uint64_t blocks, gpr_plan *plan)
{
    const uint64_t per_block = (uint64_t)plan->block * row->per_thread;
    gpr_status status = add_pass(plan, n, blocks, plan->rows * blocks);

    while (status == GPR_OK && blocks > 1) {
        if (plan->pass_count == 1) plan->partials = plan->rows * blocks;
        if (plan->pass_count == 2) plan->more_partials = plan->rows * blocks;
        n = blocks;
        blocks = row->cover == GPR_COVER ? divide_up(n, per_block) : 1;
        plan->needs_next = 1;
        status = add_pass(plan, n, blocks, plan->rows * blocks);
    }
    return status;
}

/* ---------------------------------------------------------------- exact sums ----------------- */

/* Rows up to this many bytes are worth no more than a warp where there are enough of them to fill the card, and rows up to this many
 * elements across memory no more than a thread in any case. */
enum { WARP_ROW_BYTES = 16 << 10, THREAD_ROW_ELEMENTS = 16 };
/* Bytes of scratch for rows that several blocks add to. */
enum { EXACT_SCRATCH_BYTES = 64 << 20 };

/* Orders kept axes, nearest elements last: results have steps of their own, given means there are none. */
static void sort_kept(gpr_layout *layout)
{
    for (int i = 1; i < layout->kept; i++) {
        const gpr_axis axis = layout->axes[i];
        int at = i;
        for (; at > 0 && magnitude(layout->axes[at - 1].in) < magnitude(axis.in); at--)
            layout->axes[at] = layout->axes[at - 1];
        layout->axes[at] = axis;
    }
}

/* Whether the elements of a row are nearer to each other than rows are. */
static int is_row_major(const gpr_layout *layout)
{
    const gpr_axis *kept = &layout->axes[layout->kept - 1],
                   *reduced = &layout->axes[layout->kept + layout->reduced - 1];

    return kept->extent == 1 || magnitude(reduced->in) <= magnitude(kept->in);
}

/* Each group of `width` rows is served by `blocks` blocks, which add what they found to counters beside the group's ticket, zero before
 * and after as it is: a ticket, a gap, and 8 bytes for each counter of each row. Of each row each block leaves a partial, where
 * there are such. */
static gpr_status add_exact_blocks(const task *t, uint64_t n, uint64_t blocks, uint64_t width, gpr_plan *plan)
{
    const uint64_t counters = 2 + 2 * width * gpr_exact_counters(t->rule->acc_kind, t->rule->device_acc);

    if (blocks > (1ull << 62) / plan->rows) return add_pass(plan, n, UINT64_MAX, 0);
    if (blocks > 1) {
        const uint64_t of_row =
            smaller(blocks, UINT32_MAX) * gpr_exact_partial_bytes(t->rule->acc_kind, t->rule->device_acc);
        const uint64_t partials = width * of_row;
        const uint64_t fit = EXACT_SCRATCH_BYTES / (counters * sizeof(uint32_t) + partials);
        plan->slots = (uint32_t)smaller(plan->rows, fit > 0 ? fit : 1);
        plan->tickets = plan->slots * counters;
        plan->partials = divide_up(plan->slots * partials, t->acc_bytes);
    }
    return add_pass(plan, n, blocks, plan->rows * blocks);
}

/* Lanes for a short row whose elements are near each other: so many that they load whole sectors together, then so few that rounding
 * its sum, which one of them does, takes less than adding it; but more where rows do not fill the card. */
static uint32_t lanes_along(const task *t, uint64_t threads)
{
    enum { FEW = 8, MANY = 32 }; /* elements a lane */
    const uint64_t n = t->layout->n;
    uint32_t lanes = 1;

    while (lanes * t->element_bytes < GPR_SECTOR_BYTES && lanes * FEW < n) lanes *= 2;
    while (lanes < GPR_WARP_LANES && (lanes * MANY < n || (lanes * FEW < n && lanes * t->layout->rows < threads)))
        lanes *= 2;
    return lanes;
}

/* Lanes that a short row is worth, or 0 if it is worth more than a warp. */
static uint32_t exact_lanes(const task *t, const gpr_layout *layout)
{
    const uint64_t rows = layout->rows, n = layout->n, row_bytes = n * t->element_bytes;
    const uint64_t threads =
        (uint64_t)t->facts->multiprocessors * smaller(t->facts->threads_per_multiprocessor, GPR_RESIDENT_THREADS);

    const uint32_t most_block = gpr_most_exact_rows_block((unsigned)gpr_exact_parts(t->rule->device_acc));

    if (rows == 1 || t->grid != 0 || t->block > most_block) return 0;
    if (!is_row_major(layout)) return n <= THREAD_ROW_ELEMENTS || (n <= GPR_BIN_ADDS && rows >= threads);
    if (row_bytes <= SHORT_ROW_BYTES || (row_bytes <= WARP_ROW_BYTES && rows >= threads / GPR_WARP_LANES))
        return lanes_along(t, threads);
    return 0;
}

/* Whether two numbers may be the sum of a row: of a few floats that all count (sums_few). */
static int sums_few(const task *t)
{
    const gpr_rule *rule = t->rule;

    return gpr_dtype_rows[rule->element].kind == GPR_KIND_FLOAT && !rule->skip_nan && !t->layout->masked &&
           t->layout->n <= gpr_most_double_double((unsigned)t->element_bytes);
}

static gpr_status plan_exact_rows(const task *t, uint32_t lanes, gpr_plan *plan)
{
    enum { MOST_FEW_ROWS = 4 }; /* of a thread, so that enough of them are under way */
    const uint64_t each = divide_up(t->layout->n, lanes) * t->element_bytes;
    const uint32_t most = gpr_tile_vectors((unsigned)t->element_bytes, (unsigned)plan->layout.reduced);

    plan->variant = "exact_rows";
    plan->lanes = lanes;
    plan->per_thread = 1;
    if (lanes == 1 && sums_few(t)) {
        const uint64_t residents = planner_residents(t, plan->block);
        plan->row_elements = (uint32_t)t->layout->n;
        while (plan->per_thread < MOST_FEW_ROWS && plan->rows / (2 * plan->per_thread * plan->block) >= residents)
            plan->per_thread *= 2;
    }
    while (plan->item < most && plan->item * GPR_VECTOR_BYTES < each) plan->item *= 2;
    return add_blocks(plan, t->layout->n, 0, 1);
}

/* Rows that lie across a block. */
static uint64_t strip_rows(const task *t, unsigned bytes, uint64_t block)
{
    const unsigned element = (unsigned)t->element_bytes;

    if (t->rule->acc_kind == GPR_ACC_EXACT_MOMENTS) return gpr_moments_strip_rows(element);
    return gpr_strip_rows(bytes, element, (unsigned)block);
}

/* Rows across a block, and blocks for each strip of them, where strips are many: those with which a card is done first. It runs them in
 * waves, of which the last one takes less time where it is not full. */
static uint64_t choose_strip(const task *t, uint64_t block, uint64_t residents, uint64_t *blocks)
{
    enum { END_BYTES = 100000, WAVES = 4 }; /* that a block reads while one begins and ends */
    const uint64_t n = t->layout->n, bytes = t->element_bytes, most = strip_rows(t, GPR_MOST_STRIP_BYTES, block);
    uint64_t best = 0;
    double best_time = 0;

    for (uint64_t width = strip_rows(t, GPR_STRIP_BYTES, block); width <= most; width *= 2) {
        const uint64_t strips = divide_up(t->layout->rows, width), height = block / width;
        const uint64_t shares = divide_up(n, height * (GPR_STREAM_BYTES / bytes));
        const uint64_t enough = smaller(shares, divide_up(WAVES * residents, strips));
        for (uint64_t each = 1; each <= enough; each++) {
            const uint64_t waves = strips * each / residents, more = strips * each % residents;
            const double last = more > 0 ? 0.5 + 0.5 * (double)more / (double)residents : 0;
            const double read = (double)n * (double)(bytes * block) / (double)(height * each); /* by all threads */
            const double time = ((double)waves + last) * (read + END_BYTES);
            if (best == 0 || time < 0.97 * best_time) {
                best = width;
                *blocks = each;
                best_time = time;
            }
        }
    }
    return best;
}

static gpr_status plan_exact_strided(const task *t, const char *variant, gpr_plan *plan)
{
    enum { FEW_STRIPS = 8 }; /* the last of as many had better be full */
    /* Elements that make up for a thread's end, where it adds its bins to its row's numbers: of a variance they are many. */
    enum { MOMENTS_EACH = 32 };
    const uint64_t each = t->rule->acc_kind == GPR_ACC_EXACT_MOMENTS ? MOMENTS_EACH : GPR_ITEMS_UNDER_WAY;
    const uint64_t rows = t->layout->rows, block = plan->block;
    const uint64_t strip = strip_rows(t, GPR_STRIP_BYTES, block);
    const uint32_t threads = (uint32_t)smaller(t->facts->threads_per_multiprocessor, GPR_EXACT_RESIDENT_THREADS);
    const uint64_t all_threads = resident_blocks(t->facts, threads, GPR_WARP_LANES) * GPR_WARP_LANES;
    const uint64_t residents = resident_blocks(t->facts, threads, plan->block);
    uint64_t width = smaller(rows, strip), height = 1, blocks = 0;

    plan->variant = variant;
    plan->row_major = (uint32_t)is_row_major(&plan->layout);
    const uint64_t n = plan->row_major && t->rule->acc_kind == GPR_ACC_EXACT ? use_items(t, plan) : t->layout->n;
    if (plan->row_major) {
        while (2 * height <= block &&
               (height * each < n || (height * GPR_ITEMS_UNDER_WAY < n && height * rows < all_threads)))
            height *= 2;
        width = smaller(width, block / height);
    } else if (rows > strip && rows <= FEW_STRIPS * strip) {
        width = divide_up(rows, divide_up(rows, strip));
    } else if (rows > strip && t->rule->acc_kind == GPR_ACC_EXACT && t->grid == 0) {
        width = choose_strip(t, block, residents, &blocks);
    }
    plan->width = (uint32_t)width;
    plan->rows = divide_up(rows, width);
    height = block / width;
    const uint64_t share = height * (GPR_STREAM_BYTES / (plan->item * t->element_bytes));
    if (blocks == 0) blocks = split(t, residents, plan->rows, divide_up(n, share));
    return add_exact_blocks(t, n, blocks, width, plan);
}

/* Blocks of a row of so many tiles. A card that is full reads a little faster than one that is not; but where blocks have few tiles, and
 * some one less than others, fewer blocks that have as many each are done earlier. */
static uint64_t even_blocks(const gpr_device_facts *facts, uint64_t most_each, uint64_t tiles)
{
    enum { PERCENT = 95 }; /* of the time, where it is worth it */
    const uint64_t all = facts->multiprocessors;
    const uint64_t most_time = divide_up(tiles, most_each * all) * most_each;
    uint64_t best = most_each, best_time = most_time;

    for (uint64_t each = most_each; each-- > most_each / 2 + 1;) {
        const uint64_t time = divide_up(tiles, each * all) * each;
        if (time < best_time && 100 * time <= PERCENT * most_time) {
            best = each;
            best_time = time;
        }
    }
    return smaller(tiles, best * all);
}

/* Rows that are runs, or the only row of two arrays: blocks of a row read it by vectors where they can. */
static gpr_status plan_exact_runs(const task *t, gpr_plan *plan)
{
    const uint32_t threads = (uint32_t)smaller(t->facts->threads_per_multiprocessor, GPR_EXACT_RESIDENT_THREADS);
    const uint64_t tile = (uint64_t)plan->block * (GPR_STREAM_BYTES / t->element_bytes);
    uint64_t blocks = t->grid;

    if (blocks == 0) {
        blocks = plan->rows == 1 && plan->block <= threads
                     ? even_blocks(t->facts, threads / plan->block, divide_up(t->layout->n, tile))
                     : stride_blocks(t->facts, threads, plan->rows, t->layout->n, plan->block, tile);
    }
    return add_exact_blocks(t, t->layout->n, blocks, 1, plan);
}

/* Rows that are runs are read by vectors, short ones, of which sums are made, by a few lanes, any others element by element. */
static gpr_status plan_exact(const task *t, gpr_plan *plan)
{
    plan->layout = *t->layout;
    plan->integer_bins = t->facts->slow_float64 && t->rule->acc_kind == GPR_ACC_EXACT;
    if (t->rule->acc_kind == GPR_ACC_EXACT_PRODUCTS) {
        plan->variant = "exact_dot";
        return plan_exact_runs(t, plan);
    }
    sort_kept(&plan->layout);
    if (t->rule->acc_kind == GPR_ACC_EXACT_MOMENTS) {
        /* Short rows wait for their divisions, of which one block of that kernel makes several at once. */
        const int are_short = plan->rows > 1 && t->grid == 0 && t->layout->n * t->element_bytes <= SHORT_ROW_BYTES;
        if (are_short || !gpr_rows_are_runs(t->layout)) return plan_exact_strided(t, "exact_moments_strided", plan);
        plan->variant = "exact_moments";
        return plan_exact_runs(t, plan);
    }
    const uint32_t lanes = exact_lanes(t, &plan->layout);
    if (lanes != 0) return plan_exact_rows(t, lanes, plan);
    if (!gpr_rows_are_runs(t->layout)) return plan_exact_strided(t, "exact_strided", plan);
    return plan_exact_runs(t, plan);
}

/* ---------------------------------------------------------------- kernels that are named ----- */

/* A kernel that was named: rows one after another. */
static gpr_status plan_named(const gpr_kernel_row *row, const task *t, gpr_plan *plan)
{
    const uint64_t rows = t->layout->rows, n = t->layout->n;
    uint64_t blocks = 1;

    plan->layout = *t->layout;
    plan->fill = row->finish == GPR_ATOMIC;
    if (!gpr_rows_are_runs(t->layout) || t->layout->kept != 1 || (rows > 1 && t->layout->axes[0].in != (int64_t)n)) {
        return gpr_fail(
            GPR_ERROR_VALUE,
            "kernel '%s' reads device arrays whose rows follow each other in memory, without a mask; kernel "
            "'auto' reads any",
            row->name);
    }
    if (row->cover == GPR_COVER) {
        blocks = divide_up(n, (uint64_t)plan->block * row->per_thread);
    } else if (row->cover == GPR_STRIDE) {
        blocks = t->grid != 0 ? t->grid
                              : stride_blocks(t->facts, t->facts->threads_per_multiprocessor, rows, n, plan->block,
                                              (uint64_t)plan->block * row->per_thread);
    }
    if (blocks > (1ull << 62) / rows) return add_pass(plan, n, UINT64_MAX, 0);
    if (row->finish == GPR_PASSES) return plan_passes(row, n, blocks, plan);
    if (row->finish == GPR_TICKET) return add_blocks(plan, n, blocks, 1);
    return add_pass(plan, n, blocks, rows * blocks);
}

gpr_status gpr_make_plan(int kernel, const gpr_rule *rule, const gpr_layout *layout, uint32_t block, uint32_t grid,
                         const gpr_device_facts *facts, gpr_plan *plan)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[kernel];
    const task t = {.rule = rule,
                    .layout = layout,
                    .facts = facts,
                    .block = block,
                    .grid = grid,
                    .element_bytes = gpr_dtype_bytes(rule->element),
                    .acc_bytes = gpr_acc_bytes(rule->acc_kind, rule->device_acc)};
    gpr_status status = GPR_OK;

    *plan = (gpr_plan){.kernel = kernel,
                       .variant = row->name,
                       .block = block != 0 ? block : row->block,
                       .lanes = GPR_WARP_LANES,
                       .per_thread = row->per_thread,
                       .item = 1,
                       .strips = 1,
                       .width = 1,
                       .rows = layout->rows};
    if (facts->cc < row->min_cc) {
        return gpr_fail(GPR_ERROR_KERNEL, "kernel '%s' needs compute capability %d.%d, this card has %d.%d", row->name,
                        row->min_cc / 10, row->min_cc % 10, facts->cc / 10, facts->cc % 10);
    }
    GPR_TRY(gpr_check_block_size(row, plan->block));
    if (grid != 0) GPR_TRY(gpr_check_grid_size(row));
    if (row->family == GPR_FAMILY_PLANNER)
        status = plan_fast(&t, plan);
    else if ((row->flags & GPR_SUMS_EXACTLY) != 0)
        status = plan_exact(&t, plan);
    else
        status = plan_named(row, &t, plan);
done:
    return status;
}
