/* Plans of the kernels of fast: one per way that an array can lie in memory. */
#include "lib/rules/plan_grid.h"
#include "shared/tuning.h"

/* Where rows are many, longer ones than GPR_SHORT_ROW_BYTES are read by a warp or part of one, most
 * of all of moments, which are dear to combine. */
enum { MANY_ROWS_BYTES = 4096, MANY_MOMENTS_BYTES = 8192 };
/* Bytes of a row per thread of a block that make up for the block's end, where there are rows
 * enough for the GPU. */
enum { ROW_BYTES_PER_THREAD = 256 };
enum { DEFAULT_BLOCK = 256 }; /* threads, where none are asked for */
/* How many times over a thread has items under way for its share of a row. */
enum { ROUNDS = 2 };
/* The most rows that a lane takes so that a block has GPR_BLOCK_ROWS_BYTES of them. */
enum { MOST_ROWS_PER_LANE = 4 };
/* Rows up to this many elements are worth a program of their own (fast_counted). */
enum { COUNTED_ROW_ELEMENTS = 8 };
/* Elements that make a block of fast_columns or fast_narrow worth while where its columns do not
 * fill a warp. */
enum { BLOCK_ELEMENTS = 8192 };

static uint64_t round_up(uint64_t a, uint64_t b)
{
    return gpr_divide_up(a, b) * b;
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

/* Lanes that serve a short row: the longer it is, the more loads each of them has under way, as a
 * step of shuffles costs as much as one; and four elements at least, so that few idle. Where rows
 * are too few to fill the GPU so, more lanes. */
static uint32_t row_lanes(const gpr_plan_task *t)
{
    enum { SHORT = 128, LONG = 1024, LONGEST = 2048 };
    const uint64_t bytes = t->layout->n * t->element_bytes;
    const uint64_t loads = bytes <= SHORT ? 2 : bytes < LONG ? 4 : bytes <= LONGEST ? 8 : 32;
    const uint64_t threads = gpr_fast_residents(t, GPR_WARP_LANES) * GPR_WARP_LANES;
    uint64_t each = loads * GPR_VECTOR_BYTES;
    uint32_t lanes = 1;

    if (each < GPR_LEAST_LANE_ELEMENTS * t->element_bytes)
        each = GPR_LEAST_LANE_ELEMENTS * t->element_bytes;
    while (lanes < GPR_WARP_LANES && lanes * each < bytes) lanes *= 2;
    while (lanes < GPR_WARP_LANES && lanes * t->layout->rows < threads &&
           2 * lanes * GPR_VECTOR_BYTES < bytes)
        lanes *= 2;
    return lanes;
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

/* ---------------------------------------------------------------- rows that are runs of memory */

/* Whether rows are so short, so many and so placed that fast_counted reads them. */
static int is_counted(const gpr_plan_task *t, uint32_t block)
{
    const uint64_t item = GPR_VECTOR_BYTES / t->element_bytes;

    return t->layout->n <= COUNTED_ROW_ELEMENTS && gpr_is_contiguous(t->layout) &&
           t->layout->aligned == GPR_VECTOR_BYTES && item * t->acc_bytes <= GPR_THREAD_ACC_BYTES &&
           t->layout->rows / (item * block) >= gpr_fast_residents(t, block);
}

static gpr_status plan_counted(const gpr_plan_task *t, uint32_t block, gpr_plan *plan)
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
    return gpr_add_blocks(plan, t->layout->n, 0, 1);
}

static gpr_status plan_runs(const gpr_plan_task *t, gpr_plan *plan)
{
    const uint64_t rows = t->layout->rows, n = t->layout->n, row_bytes = n * t->element_bytes;
    const int are_many = rows >= gpr_fast_residents(t, GPR_WARP_LANES);
    const uint64_t many_bytes =
        t->rule->acc_kind == GPR_ACC_MOMENTS ? MANY_MOMENTS_BYTES : MANY_ROWS_BYTES;

    if (rows > 1 && t->grid == 0 && row_bytes <= (are_many ? many_bytes : GPR_SHORT_ROW_BYTES)) {
        const uint32_t block = t->block != 0 ? t->block : DEFAULT_BLOCK, lanes = row_lanes(t);
        const uint64_t groups = block / lanes;
        if (is_counted(t, block)) return plan_counted(t, block, plan);
        plan->variant = "fast_rows";
        plan->block = block;
        plan->lanes = lanes;
        /* Not where fewer blocks would leave multiprocessors idle. */
        while (plan->per_thread < MOST_ROWS_PER_LANE &&
               2 * plan->per_thread * groups * row_bytes <= GPR_BLOCK_ROWS_BYTES &&
               rows / (2 * plan->per_thread * groups) >= gpr_fast_residents(t, block)) {
            plan->per_thread *= 2;
        }
        return gpr_add_blocks(plan, n, 0, 1);
    }
    plan->variant = "fast_stream";
    if (t->block == 0) {
        const uint64_t each =
            rows >= gpr_fast_residents(t, plan->block) ? ROW_BYTES_PER_THREAD : GPR_STREAM_BYTES;
        while (plan->block > 2 * GPR_WARP_LANES && plan->block * each > row_bytes) plan->block /= 2;
    }
    const uint64_t per_block = plan->block * (GPR_STREAM_BYTES / t->element_bytes);
    const uint64_t blocks = gpr_smaller(gpr_divide_up(n, per_block),
                                        gpr_divide_up(gpr_fast_residents(t, plan->block), rows));
    return gpr_add_blocks(plan, n, t->grid != 0 ? t->grid : blocks, 1);
}

/* ---------------------------------------------------------------- columns -------------------- */

/* Elements of an item of columns whose accumulators fit `room` bytes. */
static uint32_t fit_outputs(const gpr_plan_task *t, uint32_t item, uint64_t room)
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
static int is_narrow(const gpr_plan_task *t, int column, uint32_t *item, uint32_t *block,
                     uint64_t *group)
{
    enum { LEAST = 128, MOST = 512 };
    const gpr_layout *layout = t->layout;
    const gpr_axis *row = &layout->axes[layout->kept], *columns = &layout->axes[column];

    if (layout->reduced != 1 || layout->masked || row->in != (int64_t)columns->extent) return 0;
    if (columns->extent * layout->n < BLOCK_ELEMENTS) return 0;
    *item = fit_outputs(
        t, (uint32_t)(GPR_VECTOR_BYTES / t->element_bytes),
        gpr_smaller(GPR_THREAD_ACC_BYTES, GPR_BLOCK_ACC_BYTES / (t->block != 0 ? t->block : MOST)));
    if (gpr_most_in_item(t, column) >= *item) return 0;
    *group = columns->extent / greatest_divisor(columns->extent, *item);
    *block = t->block;
    if (*block == 0) {
        *block = LEAST;
        for (uint32_t b = LEAST; b <= MOST; b += GPR_WARP_LANES) {
            if ((uint64_t)working_threads(b, *group) * *block >
                (uint64_t)working_threads(*block, *group) * b)
                *block = b;
        }
    }
    return working_threads(*block, *group) > 0;
}

static gpr_status plan_narrow(const gpr_plan_task *t, int column, uint32_t item, uint32_t block,
                              uint64_t group, gpr_plan *plan)
{
    const uint64_t columns = t->layout->axes[column].extent, n = t->layout->n;

    plan->variant = "fast_narrow";
    plan->block = block;
    plan->item = item;
    plan->width = working_threads(block, group);
    take_column(plan, column);
    plan->rows = t->layout->rows / columns;
    const uint64_t share = (uint64_t)plan->width * item * GPR_ITEMS_UNDER_WAY * ROUNDS;
    return gpr_add_blocks(plan, n,
                          gpr_split_rows(t, gpr_fast_residents(t, block), plan->rows,
                                         gpr_divide_up(n * columns, share)),
                          columns);
}

/* Threads side by side in a block for `items` items: all of a strip, or strips of even width. */
static uint64_t strip_width(uint64_t items, uint32_t block)
{
    return items > block
               ? round_up(gpr_divide_up(items, gpr_divide_up(items, block)), GPR_WARP_LANES)
               : items;
}

/* Blocks for each strip where rows are split among blocks of `block` threads, of which `height` lie
 * below each other. */
static uint64_t split_strips(const gpr_plan_task *t, uint32_t block, uint64_t strips,
                             uint64_t height)
{
    return gpr_split_rows(t, gpr_fast_residents(t, block), strips,
                          gpr_divide_up(t->layout->n, height * GPR_ITEMS_UNDER_WAY * ROUNDS));
}

/* Threads side by side where a block could have `width` of them. Of narrower strips there are
 * more, each with fewer blocks, of which the last one has more threads below each other to read
 * their partials: where rows are short that takes longer than they do. With one partial a thread
 * narrower strips are no better, unless they need none. */
static uint64_t narrow_strip(const gpr_plan_task *t, uint32_t block, uint64_t others,
                             uint64_t items, uint32_t item, uint64_t width)
{
    /* of a strip; a partial takes as long as so many rows */
    enum { LEAST_BYTES = 256, PARTIAL_ROWS = 32 };
    uint64_t best = 0;

    for (;; width = gpr_divide_up(width, 2)) {
        const uint64_t height = block / width, strips = others * gpr_divide_up(items, width);
        const uint64_t blocks = split_strips(t, block, strips, height),
                       partials = gpr_divide_up(blocks, height);
        const int is_long = PARTIAL_ROWS * blocks * partials * height <= t->layout->n;
        if (blocks == 1) return width;
        if (best == 0 && partials == 1) best = width;
        if (is_long || width * item * t->element_bytes < 2 * LEAST_BYTES)
            return best != 0 ? best : width;
    }
}

static gpr_status plan_columns(const gpr_plan_task *t, int column, gpr_plan *plan)
{
    /* Partials that a thread of the last block may have to read; and a thread's rows that leave
     * it no time to want registers. */
    enum { MOST_PARTIALS = 16, LARGE_BLOCK = GPR_MOST_BLOCK, FEW_ROWS = GPR_ITEMS_UNDER_WAY };
    const gpr_axis columns = t->layout->axes[column];
    const uint64_t n = t->layout->n, others = t->layout->rows / columns.extent;
    uint32_t block = t->block != 0 ? t->block : DEFAULT_BLOCK;
    const uint32_t item =
        fit_outputs(t, gpr_most_in_item(t, column),
                    n <= FEW_ROWS ? 2 * GPR_THREAD_ACC_BYTES : GPR_THREAD_ACC_BYTES);
    const uint64_t items = columns.extent / item;
    uint64_t width = strip_width(items, block);

    while (t->block == 0 && block > 2 * GPR_WARP_LANES && block / 2 >= width &&
           block / 2 / width >= n)
        block /= 2;
    if (t->block == 0 && block == DEFAULT_BLOCK &&
        LARGE_BLOCK * t->acc_bytes <= GPR_BLOCK_ACC_BYTES) {
        const uint64_t height = block / width, strips = others * gpr_divide_up(items, width);
        if (split_strips(t, block, strips, height) > MOST_PARTIALS * height) block = LARGE_BLOCK;
    }
    if (t->grid == 0) width = narrow_strip(t, block, others, items, item, width);
    plan->variant = "fast_columns";
    plan->block = block;
    plan->item = item;
    plan->width = (uint32_t)width;
    plan->strips = gpr_divide_up(items, width);
    take_column(plan, column);
    plan->rows = others * plan->strips;
    plan->packed = (uint32_t)are_results_packed(t, &plan->layout, plan->column, item);
    return gpr_add_blocks(plan, n, split_strips(t, block, plan->rows, block / width), width * item);
}

/* ---------------------------------------------------------------- everything else ------------ */

static gpr_status plan_strided(const gpr_plan_task *t, gpr_plan *plan)
{
    const gpr_layout *layout = t->layout;
    const int last = layout->kept + layout->reduced - 1;
    const uint64_t rows = layout->rows;
    const uint32_t block = t->block != 0 ? t->block : DEFAULT_BLOCK;
    const uint64_t n = gpr_use_items(t, plan);
    uint64_t width = 1, height = 1;

    plan->variant = "fast_strided";
    plan->block = block;
    plan->item_position = layout->axes[last].position;
    plan->row_major = (uint32_t)gpr_is_row_major(layout);
    if (plan->row_major) {
        while (2 * height <= block && height * GPR_ITEMS_UNDER_WAY < n) height *= 2;
        width = gpr_smaller(block / height, rows);
    } else {
        /* A warp of threads side by side is enough for neighbours to share sectors; more where
         * rows are short or many. */
        width = n < 2 * GPR_WARP_LANES || rows / block >= gpr_fast_residents(t, block)
                    ? block
                    : GPR_WARP_LANES;
        width = gpr_smaller(width, rows);
    }
    plan->width = (uint32_t)width;
    plan->rows = gpr_divide_up(rows, width);
    height = block / width;
    return gpr_add_blocks(plan, n,
                          gpr_split_rows(t, gpr_fast_residents(t, block), plan->rows,
                                         gpr_divide_up(n, height * GPR_ITEMS_UNDER_WAY * ROUNDS)),
                          width);
}

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

/* Chooses one of the planner's kernels and what goes with it. */
gpr_status gpr_plan_fast(const gpr_plan_task *t, gpr_plan *plan)
{
    const gpr_layout *layout = t->layout;
    const int column = find_column(layout);
    uint32_t item = 1, block = 0;
    uint64_t group = 1;

    plan->layout = *layout;
    plan->ascends = (uint32_t)ascends(layout);
    if (layout->n == 0) {
        plan->variant = "fast_empty";
        plan->block = t->block != 0 ? t->block : DEFAULT_BLOCK;
        plan->lanes = 1;
        return gpr_add_blocks(plan, 0, 0, 1);
    }
    if (gpr_rows_are_runs(layout)) return plan_runs(t, plan);
    if (column >= 0) {
        const uint64_t extent = layout->axes[column].extent;
        if (is_narrow(t, column, &item, &block, &group))
            return plan_narrow(t, column, item, block, group, plan);
        if (extent / gpr_most_in_item(t, column) >= GPR_WARP_LANES ||
            extent * layout->n >= BLOCK_ELEMENTS)
            return plan_columns(t, column, plan);
    }
    return plan_strided(t, plan);
}
