/* Plans of exact sums, their variances and dot products. */
#include <string.h>

#include "lib/base/status.h"
#include "lib/exact/exact.h"
#include "lib/rules/plan_grid.h"
#include "shared/exact_format.h"
#include "shared/tuning.h"

/* Rows up to this many bytes are worth no more than a warp where there are enough of them to fill
 * the GPU, or where they are no runs, as merging the bins of a block's threads takes longer; and
 * rows up to this many elements across memory no more than a thread in any case. */
enum { WARP_ROW_BYTES = 16 << 10, THREAD_ROW_ELEMENTS = 16 };
/* Bytes of scratch for rows that several blocks add to. */
enum { EXACT_SCRATCH_BYTES = 64 << 20 };
/* Threads of a block for each long row by bins: small ones end and begin beside others that read,
 * and took 0.86 to 1.03 of the time of twice as many threads on an H200. */
enum { LONG_ROW_BLOCK = 128 };
/* And for short columns that would leave multiprocessors without a block: each load of a warp takes
 * as many sectors as it has lanes. */
enum { SHORT_COLUMN_BLOCK = 64 };

/* Serves each group of `width` rows by `blocks` blocks. They add their sums to the counters of the
 * group's slot (shared/exact_format.h); where kernels publish limb partials, each block has one per
 * row. */
static gpr_status add_exact_blocks(const gpr_plan_task *t, uint64_t n, uint64_t blocks,
                                   uint64_t width, gpr_plan *plan)
{
    const uint64_t counters = width * gpr_exact_counters(t->rule->acc_kind, t->rule->device_acc);
    const uint64_t tickets = gpr_exact_tickets(1, (uint32_t)counters);

    if (blocks > (1ull << 62) / plan->rows) return gpr_add_pass(plan, n, UINT64_MAX, 0);
    if (blocks > 1) {
        const uint64_t of_row = gpr_smaller(blocks, UINT32_MAX) *
                                gpr_exact_partial_bytes(t->rule->acc_kind, t->rule->device_acc);
        const uint64_t partials = width * of_row;
        const uint64_t fit = EXACT_SCRATCH_BYTES / (tickets * sizeof(uint32_t) + partials);
        plan->slots = (uint32_t)gpr_smaller(plan->rows, fit > 0 ? fit : 1);
        plan->tickets = plan->slots * tickets;
        plan->partials = gpr_divide_up(plan->slots * partials, t->acc_bytes);
    }
    return gpr_add_pass(plan, n, blocks, plan->rows * blocks);
}

/* ---------------------------------------------------------------- short rows ----------------- */

/* Lanes for a short row: if its elements are near each other so many that they load whole sectors
 * together, then so few that rounding its sum, which one of them does, takes less than adding it;
 * but more where rows do not fill the GPU. */
static uint32_t short_row_lanes(const gpr_plan_task *t, uint64_t threads)
{
    enum { FEW = 8, FEW_FLOAT64 = 4, MANY = 32 }; /* elements a lane */
    const uint64_t n = t->layout->n, few = t->rule->element == GPR_FLOAT64 ? FEW_FLOAT64 : FEW;
    uint32_t lanes = 1;

    while (gpr_is_row_major(t->layout) && lanes * t->element_bytes < GPR_SECTOR_BYTES &&
           lanes * few < n)
        lanes *= 2;
    while (lanes < GPR_WARP_LANES &&
           (lanes * MANY < n || (lanes * few < n && lanes * t->layout->rows < threads)))
        lanes *= 2;
    return lanes;
}

/* Whether a few lanes each add short columns to pairs (exact_rows): fast_strided and fast_columns
 * take longer to combine theirs. 54 arrays on an H200 took 0.80 to 1.03 of the time. */
static int have_columns_lanes(const gpr_plan_task *t)
{
    return gpr_are_short_columns(t) && t->finishes && !t->facts->slow_float64 &&
           gpr_dtype_rows[t->rule->element].kind == GPR_KIND_FLOAT &&
           gpr_dtype_rows[t->rule->result].kind == GPR_KIND_FLOAT && !t->layout->masked &&
           t->layout->n > THREAD_ROW_ELEMENTS;
}

/* Lanes that a short row is worth, or 0 if it is worth more than a warp. */
static uint32_t exact_lanes(const gpr_plan_task *t)
{
    const gpr_layout *layout = t->layout;
    const uint64_t rows = layout->rows, n = layout->n, row_bytes = n * t->element_bytes;
    const uint64_t threads =
        (uint64_t)t->facts->multiprocessors *
        gpr_smaller(t->facts->threads_per_multiprocessor, GPR_RESIDENT_THREADS);

    const uint32_t most_block =
        gpr_most_exact_rows_block((unsigned)gpr_exact_parts(t->rule->device_acc));

    if (rows == 1 || t->grid != 0 || t->block > most_block) return 0;
    /* Each lane loads sectors of its own: with more lanes, many columns took longer. */
    if (have_columns_lanes(t)) return short_row_lanes(t, threads / 4);
    if (!gpr_is_row_major(layout))
        return n <= THREAD_ROW_ELEMENTS || (n <= GPR_BIN_ADDS && rows >= threads);
    if (row_bytes <= GPR_SHORT_ROW_BYTES ||
        (row_bytes <= WARP_ROW_BYTES &&
         (rows >= threads / GPR_WARP_LANES || !gpr_rows_are_runs(t->layout))))
        return short_row_lanes(t, threads);
    return 0;
}

/* Whether two numbers may be the sum of a row: of a few floats, which a mean does not have to count
 * (sums_double_double). */
static int sums_double_double(const gpr_plan_task *t)
{
    enum { LANE_ELEMENTS = 8 }; /* longer rows whose elements are neighbours have lanes */
    const gpr_rule *rule = t->rule;
    const unsigned bytes = (unsigned)t->element_bytes,
                   vectors = gpr_tile_vectors(bytes, (unsigned)t->layout->reduced);
    const uint64_t most =
        gpr_smaller(gpr_most_double_double(bytes), vectors * GPR_VECTOR_BYTES / bytes);

    if (t->layout->n > LANE_ELEMENTS && gpr_is_row_major(t->layout)) return 0;
    return gpr_dtype_rows[rule->element].kind == GPR_KIND_FLOAT &&
           !(rule->skip_nan && rule->divide) && !t->layout->masked && t->layout->n <= most;
}

static gpr_status plan_exact_rows(const gpr_plan_task *t, uint32_t lanes, gpr_plan *plan)
{
    /* Elements of a thread, so that enough of them are under way and registers hold them. */
    enum { MOST_ROWS_PER_THREAD = 4, MOST_PER_THREAD = 32 };
    const uint64_t each = gpr_divide_up(t->layout->n, lanes) * t->element_bytes;
    const uint32_t most =
        gpr_tile_vectors((unsigned)t->element_bytes, (unsigned)plan->layout.reduced);

    plan->variant = "exact_rows";
    plan->lanes = lanes;
    plan->per_thread = 1;
    if (t->block == 0 && have_columns_lanes(t) &&
        plan->rows * lanes < (uint64_t)t->facts->multiprocessors * plan->block)
        plan->block = SHORT_COLUMN_BLOCK;
    if (lanes == 1 && sums_double_double(t)) {
        const uint64_t residents = gpr_fast_residents(t, plan->block);
        plan->row_elements = (uint32_t)t->layout->n;
        while (plan->per_thread < MOST_ROWS_PER_THREAD &&
               2 * plan->per_thread * t->layout->n <= MOST_PER_THREAD &&
               plan->rows / (2 * plan->per_thread * plan->block) >= residents)
            plan->per_thread *= 2;
    }
    while (plan->item < most && plan->item * GPR_VECTOR_BYTES < each) plan->item *= 2;
    return gpr_add_blocks(plan, t->layout->n, 0, 1);
}

/* ---------------------------------------------------------------- kernels of fast ------------ */

/* Whether the rows of a sum are ones that kernels of fast can add in pairs of doubles: of real
 * floats. Rows of a few elements are added as two floats. */
static int sums_by_pairs(const gpr_plan_task *t)
{
    const gpr_rule *rule = t->rule;

    return t->finishes && !t->facts->slow_float64 && t->grid == 0 && t->layout->n > 0 &&
           gpr_dtype_rows[rule->element].kind == GPR_KIND_FLOAT &&
           gpr_dtype_rows[rule->result].kind == GPR_KIND_FLOAT &&
           (t->layout->rows == 1 || !sums_double_double(t));
}

/* Whether blocks read rows that are runs. */
static int is_by_blocks(const gpr_plan *by_fast)
{
    return strcmp(by_fast->variant, "fast_stream") == 0 ||
           strcmp(by_fast->variant, "fast_short") == 0;
}

/* The most elements that a thread adds to one pair of doubles; 0 where lanes do, whose shares are
 * short. */
static uint64_t most_of_thread(const gpr_plan_task *t, const gpr_plan *plan)
{
    const uint64_t n = t->layout->n, blocks = plan->passes[0].blocks,
                   height = plan->block / plan->width;

    if (strcmp(plan->variant, "fast_columns") == 0) return gpr_divide_up(n, blocks * height);
    if (is_by_blocks(plan)) return gpr_most_of_stream(n, t->element_bytes, blocks * plan->block);
    if (strcmp(plan->variant, "fast_strided") == 0)
        return gpr_divide_up(n / plan->item, blocks * height) * plan->item;
    if (strcmp(plan->variant, "fast_narrow") == 0) /* one of each of a thread's items */
        return gpr_divide_up(n * plan->column.extent, blocks * plan->width * plan->item);
    return 0;
}

/* Where several blocks share rows that may be no pairs, each adds its share of those again, to
 * counters behind their group's ticket (exact_again.cuh). Returns whether scratch has room. */
static int add_counters(const gpr_plan_task *t, gpr_plan *plan)
{
    const uint64_t groups_blocks = plan->rows * plan->passes[0].blocks;

    if (plan->passes[0].blocks <= 1 || gpr_pair_sum_is_float64(t->rule->element)) return 1;
    const uint64_t counters =
        plan->partials / groups_blocks * gpr_exact_counters(t->rule->acc_kind, t->rule->device_acc);
    plan->tickets = gpr_exact_tickets(plan->rows, (uint32_t)counters);
    return plan->tickets * sizeof(uint32_t) <= EXACT_SCRATCH_BYTES;
}

/* Whether items along an axis are whole vectors. */
static int has_whole_vectors(const gpr_plan_task *t, int axis)
{
    return gpr_most_in_item(t, axis) * t->element_bytes == GPR_VECTOR_BYTES;
}

/* Whether a few lanes (exact_rows, by a pair or by bins) sum short rows faster than kernels of fast
 * with pairs, as measured on an H100 and an H200. Lanes load any elements as they are; kernels of
 * fast first look for whole vectors, and then wait for a tree of partials. They are faster in rows
 * of whole vectors, and for float16, whose pairs need no proof: unless their elements are apart, by
 * rows or in runs of one or two, and a small array's anyway. */
static int are_lanes_faster(const gpr_plan_task *t, const gpr_plan *by_fast)
{
    enum { SMALL_BYTES = 2 << 20, SHORT_RUN = 2 };
    /* Elements of short rows, and of rows that are so many that they fill the GPU; bytes of short
     * rows whose elements are all apart. */
    enum { SHORT_ROW = 512, SHORT_OF_MANY = 3 * SHORT_ROW, SHORT_APART_BYTES = 8 << 10 };
    enum { SHORT_COLUMN = 128, FEW_FLOAT32 = 20 };
    const gpr_layout *layout = t->layout;
    const gpr_axis *inner = &layout->axes[layout->kept + layout->reduced - 1];
    const uint64_t n = layout->n, row_bytes = n * t->element_bytes,
                   warps =
                       (uint64_t)t->facts->multiprocessors * GPR_RESIDENT_THREADS / GPR_WARP_LANES;
    const int is_small = layout->rows * row_bytes <= SMALL_BYTES;
    const int is_strided = strcmp(by_fast->variant, "fast_strided") == 0,
              is_row_major = gpr_is_row_major(layout);

    if (exact_lanes(t) == 0) return 0;
    if (have_columns_lanes(t))
        return strcmp(by_fast->variant, "fast_few") != 0 ||
               (t->rule->element == GPR_FLOAT32 && n > FEW_FLOAT32);
    if (layout->masked && !is_row_major && t->rule->element != GPR_FLOAT64) return 0;
    if (is_strided && is_row_major && layout->reduced == 1 && !layout->masked)
        return row_bytes <= SHORT_APART_BYTES;
    if (n > (is_strided && layout->rows >= warps ? SHORT_OF_MANY : SHORT_ROW)) return 0;
    if (is_strided)
        return is_small || !gpr_pair_sum_is_float64(t->rule->element) || !is_row_major ||
               inner->extent <= SHORT_RUN;
    if (gpr_pair_sum_is_float64(t->rule->element)) return 0;
    if (strcmp(by_fast->variant, "fast_columns") == 0)
        return n <= SHORT_COLUMN && t->rule->element != GPR_FLOAT64;
    if (strcmp(by_fast->variant, "fast_short") == 0)
        return t->rule->element == GPR_BFLOAT16 || t->rule->skip_nan ||
               (by_fast->item == 1 && n < SHORT_COLUMN);
    if (is_by_blocks(by_fast)) return 1;
    return strcmp(by_fast->variant, "fast_rows") == 0 && row_bytes % GPR_VECTOR_BYTES != 0 &&
           is_small;
}

/* Whether bins sum columns faster than pairs, as measured on an H200: those of large arrays, if
 * there are enough for a thread each, or if a thread of pairs has only one, as rows are not
 * aligned. */
static int are_bins_faster_in_columns(const gpr_plan_task *t, const gpr_plan *by_fast)
{
    enum { LARGE_BYTES = 128 << 20, MIDDLE_BYTES = 64 << 20 };
    enum { SHORT_COLUMN = 256, FEW_HALVES = 16, MOST_COLUMNS = 1 << 14 };
    const gpr_layout *layout = t->layout;
    const uint64_t n = layout->n, columns = layout->rows, bytes = columns * n * t->element_bytes;
    const int fills_gpu = exact_lanes(t) != 0, is_single = by_fast->item == 1,
              is_strided = strcmp(by_fast->variant, "fast_strided") == 0;

    switch (t->rule->element) {
    case GPR_BFLOAT16: return bytes >= MIDDLE_BYTES && fills_gpu;
    case GPR_FLOAT16: return bytes >= MIDDLE_BYTES && n <= FEW_HALVES;
    case GPR_FLOAT32:
        if (layout->masked && is_strided) return bytes >= MIDDLE_BYTES && n > SHORT_COLUMN;
        return !t->rule->skip_nan && bytes >= LARGE_BYTES &&
               (fills_gpu || (is_single && columns >= MOST_COLUMNS));
    default: return 0;
    }
}

/* Whether a block per row, by pairs, is faster than several by bins, which merge what they have: in
 * rows of two or three tiles of a block, and where rows are so many that they fill the GPU. */
static int is_block_per_row_faster(const gpr_plan_task *t, const gpr_plan *by_fast)
{
    const uint64_t tile_bytes =
        (uint64_t)gpr_kernel_rows[GPR_KERNEL_exact].block * GPR_STREAM_BYTES;
    const uint64_t row_bytes = t->layout->n * t->element_bytes;

    return is_by_blocks(by_fast) && by_fast->passes[0].blocks == 1 && row_bytes > tile_bytes &&
           (row_bytes <= 3 * tile_bytes || t->layout->rows >= t->facts->multiprocessors);
}

/* Whether a block per row by bins is faster than by pairs, as measured on an H200: in large arrays
 * of long rows of whole vectors, of which bins take less time for each element. */
static int are_bins_faster_in_long_rows(const gpr_plan_task *t)
{
    enum { LONG_ROW = 32 << 10, LARGE_BYTES = 100000000 };
    const gpr_layout *layout = t->layout;
    const uint64_t row_bytes = layout->n * t->element_bytes;

    return gpr_rows_are_runs(layout) && t->rule->element != GPR_FLOAT16 && row_bytes >= LONG_ROW &&
           layout->rows >= t->facts->multiprocessors && layout->rows * row_bytes >= LARGE_BYTES &&
           has_whole_vectors(t, layout->kept + layout->reduced - 1);
}

/* Whether bins read an array faster than pairs, as measured on an H100 and an H200. Pairs take more
 * additions per element. Elements of two bytes are added in float32 or need no proof. Small arrays
 * wait for steps: runs of which a thread has one tile take fewer in bins, but many steps if bins do
 * not hold a tile, which is the likelier the more elements there are. Several rows of fewer than
 * FEW_IN_ROW elements each are faster by pairs. */
static int are_bins_faster(const gpr_plan_task *t, const gpr_plan *by_fast)
{
    enum { LONG_ONLY_RUN = 4 << 10, LONG_RUN = 32 << 10 }; /* of a row alone, and of several */
    enum { FEW = 100000, FEW_FLOAT64 = 20000, FEW_IN_ROW = 2048, APART_BYTES = 64 << 20 };
    enum { BFLOAT16_TILE_BYTES = 2 * GPR_VECTOR_BYTES }; /* of columns, which are all full then */
    const gpr_dtype element = t->rule->element;
    const uint64_t n = t->layout->n, rows = t->layout->rows, bytes = rows * n * t->element_bytes;
    const int is_proved = !gpr_pair_sum_is_float64(element);

    if (are_lanes_faster(t, by_fast) || are_bins_faster_in_long_rows(t)) return 1;
    if (strcmp(by_fast->variant, "fast_few") == 0)
        return element == GPR_BFLOAT16 && n * t->element_bytes == BFLOAT16_TILE_BYTES;
    if (is_block_per_row_faster(t, by_fast)) return 0;
    if (is_by_blocks(by_fast) && is_proved && (rows == 1 || n >= FEW_IN_ROW) &&
        rows * n <= (element == GPR_FLOAT64 ? FEW_FLOAT64 : FEW))
        return 1;
    if (gpr_rows_are_runs(t->layout) && n > (rows == 1 ? LONG_ONLY_RUN : LONG_RUN))
        return rows == 1 || is_proved;
    if (gpr_rows_are_runs(t->layout)) return 0;
    if (strcmp(by_fast->variant, "fast_narrow") == 0) return 0;
    if (!gpr_is_row_major(t->layout)) return are_bins_faster_in_columns(t, by_fast);
    if (element != GPR_BFLOAT16 || t->layout->masked || bytes < APART_BYTES) return 0;
    return by_fast->item == 1
               ? rows == 1
               : by_fast->item * t->element_bytes == GPR_VECTOR_BYTES && exact_lanes(t) == 0;
}

/* Sets *is_planned, if one of the kernels that can be given such accumulators suits the rows best.
 */
static gpr_status plan_pairs(const gpr_plan_task *t, gpr_plan *plan, int *is_planned)
{
    static const char *const variants[] = {"fast_stream",  "fast_short", "fast_rows",
                                           "fast_columns", "fast_few",   "fast_narrow",
                                           "fast_strided"};
    const gpr_kernel_row *fast = &gpr_kernel_rows[GPR_KERNEL_fast];
    gpr_plan by_fast = *plan;
    gpr_plan_task task = *t;
    gpr_status status = GPR_OK;

    task.acc_bytes = gpr_pair_bytes(t->rule->divide && (t->layout->masked || t->rule->skip_nan));
    by_fast.block = t->block != 0 ? t->block : fast->block;
    by_fast.per_thread = fast->per_thread;
    GPR_TRY(gpr_plan_fast(&task, &by_fast));
    *is_planned = 0;
    if (!add_counters(t, &by_fast)) return GPR_OK;
    by_fast.partials = gpr_divide_up(by_fast.partials * task.acc_bytes, t->acc_bytes);
    for (size_t i = 0; i < sizeof variants / sizeof *variants && !*is_planned; i++)
        *is_planned = strcmp(by_fast.variant, variants[i]) == 0;
    *is_planned = *is_planned && !are_bins_faster(t, &by_fast) &&
                  (!gpr_pair_sum_is_float64(t->rule->element) ||
                   most_of_thread(t, &by_fast) <= GPR_PAIR_SHARE);
    if (*is_planned) *plan = by_fast;
done:
    return status;
}

/* ---------------------------------------------------------------- strided rows --------------- */

/* Rows that lie crosswise, several per block. */
static uint64_t strip_rows(const gpr_plan_task *t, unsigned bytes, uint64_t block)
{
    const unsigned element = (unsigned)t->element_bytes;

    if (t->rule->acc_kind == GPR_ACC_EXACT_MOMENTS) return gpr_moments_strip_rows(element);
    return gpr_strip_rows(bytes, element, (unsigned)block);
}

/* Rows across a block, and blocks for each strip of them, where strips are many: those with which a
 * GPU is done first. It runs them in waves, of which the last one takes less time where it is not
 * full. */
static uint64_t choose_strip(const gpr_plan_task *t, uint64_t block, uint64_t residents,
                             uint64_t *blocks)
{
    enum { END_BYTES = 100000, WAVES = 4 }; /* that a block reads while one begins and ends */
    const uint64_t n = t->layout->n, bytes = t->element_bytes,
                   most = strip_rows(t, GPR_MOST_STRIP_BYTES, block);
    uint64_t best = 0;
    double best_time = 0;

    for (uint64_t width = strip_rows(t, GPR_STRIP_BYTES, block); width <= most; width *= 2) {
        const uint64_t strips = gpr_divide_up(t->layout->rows, width), height = block / width;
        const uint64_t shares = gpr_divide_up(n, height * (GPR_STREAM_BYTES / bytes));
        const uint64_t enough = gpr_smaller(shares, gpr_divide_up(WAVES * residents, strips));
        for (uint64_t each = 1; each <= enough; each++) {
            const uint64_t waves = strips * each / residents, more = strips * each % residents;
            const double last = more > 0 ? 0.5 + 0.5 * (double)more / (double)residents : 0;
            /* by all threads */
            const double read = (double)n * (double)(bytes * block) / (double)(height * each);
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

static gpr_status plan_exact_strided(const gpr_plan_task *t, const char *variant, gpr_plan *plan)
{
    enum { FEW_STRIPS = 8 }; /* the last of as many had better be full */
    /* Elements of a variance that make up for a thread's end, where it adds its bins to its row's
     * superaccumulators. */
    enum { MOMENTS_EACH = 32 };
    const uint64_t each =
        t->rule->acc_kind == GPR_ACC_EXACT_MOMENTS ? MOMENTS_EACH : GPR_ITEMS_UNDER_WAY;
    const uint64_t rows = t->layout->rows, block = plan->block;
    const uint64_t strip = strip_rows(t, GPR_STRIP_BYTES, block);
    const uint32_t threads =
        (uint32_t)gpr_smaller(t->facts->threads_per_multiprocessor, GPR_EXACT_RESIDENT_THREADS);
    const uint64_t all_threads =
        gpr_resident_blocks(t->facts, threads, GPR_WARP_LANES) * GPR_WARP_LANES;
    const uint64_t residents = gpr_resident_blocks(t->facts, threads, plan->block);
    uint64_t width = gpr_smaller(rows, strip), height = 1, blocks = 0;

    plan->variant = variant;
    plan->row_major = (uint32_t)gpr_is_row_major(&plan->layout);
    const uint64_t n = plan->row_major && t->rule->acc_kind == GPR_ACC_EXACT
                           ? gpr_use_items(t, plan)
                           : t->layout->n;
    if (plan->row_major) {
        while (2 * height <= block && (height * each < n || (height * GPR_ITEMS_UNDER_WAY < n &&
                                                             height * rows < all_threads)))
            height *= 2;
        width = gpr_smaller(width, block / height);
    } else if (rows > strip && rows <= FEW_STRIPS * strip) {
        width = gpr_divide_up(rows, gpr_divide_up(rows, strip));
    } else if (rows > strip && t->rule->acc_kind == GPR_ACC_EXACT && t->grid == 0) {
        width = choose_strip(t, block, residents, &blocks);
    }
    plan->width = (uint32_t)width;
    plan->rows = gpr_divide_up(rows, width);
    height = block / width;
    const uint64_t share = height * (GPR_STREAM_BYTES / (plan->item * t->element_bytes));
    if (blocks == 0) blocks = gpr_split_rows(t, residents, plan->rows, gpr_divide_up(n, share));
    return add_exact_blocks(t, n, blocks, width, plan);
}

/* ---------------------------------------------------------------- runs of memory ------------- */

/* Blocks of a row of so many tiles. A GPU that is full reads a little faster than one that is not;
 * but where blocks have few tiles, and some one less than others, fewer blocks that have as many
 * each are done earlier. */
static uint64_t even_blocks(const gpr_device_facts *facts, uint64_t most_each, uint64_t tiles)
{
    enum { PERCENT = 95 }; /* of the time, where it is worth it */
    const uint64_t all = facts->multiprocessors;
    const uint64_t most_time = gpr_divide_up(tiles, most_each * all) * most_each;
    uint64_t best = most_each, best_time = most_time;

    for (uint64_t each = most_each; each-- > most_each / 2 + 1;) {
        const uint64_t time = gpr_divide_up(tiles, each * all) * each;
        if (time < best_time && 100 * time <= PERCENT * most_time) {
            best = each;
            best_time = time;
        }
    }
    return gpr_smaller(tiles, best * all);
}

/* Rows that are runs, or rows of two arrays: blocks of a row read it by vectors where they
 * can. */
static gpr_status plan_exact_runs(const gpr_plan_task *t, gpr_plan *plan)
{
    const uint32_t threads =
        (uint32_t)gpr_smaller(t->facts->threads_per_multiprocessor, GPR_EXACT_RESIDENT_THREADS);
    const uint64_t tile = (uint64_t)plan->block * (GPR_STREAM_BYTES / t->element_bytes);
    uint64_t blocks = t->grid;

    if (blocks == 0) {
        const uint64_t tiles = gpr_divide_up(t->layout->n, tile);
        blocks = plan->rows == 1 && plan->block <= threads
                     ? even_blocks(t->facts, threads / plan->block, tiles)
                     : gpr_split_rows(t, gpr_resident_blocks(t->facts, threads, plan->block),
                                      plan->rows, tiles);
    }
    return add_exact_blocks(t, t->layout->n, blocks, 1, plan);
}

/* Rows that are runs are read by vectors, short ones, of which sums are made, by a few lanes, any
 * others element by element. */
gpr_status gpr_plan_exact(const gpr_plan_task *t, gpr_plan *plan)
{
    plan->layout = *t->layout;
    plan->integer_bins = t->facts->slow_float64 && t->rule->acc_kind == GPR_ACC_EXACT;
    if (t->rule->acc_kind == GPR_ACC_EXACT_PRODUCTS) {
        const gpr_rule *rule = t->rule;
        const int is_plain = rule->products == GPR_PRODUCTS && !rule->conjugates &&
                             !t->layout->masked && t->layout->rows == 1;

        plan->variant = is_plain ? "exact_dot" : "exact_dot_rows";
        return plan_exact_runs(t, plan);
    }
    if (t->rule->acc_kind == GPR_ACC_EXACT && sums_by_pairs(t)) {
        int is_planned = 0;
        const gpr_status status = plan_pairs(t, plan, &is_planned);
        if (status != GPR_OK || is_planned) return status;
        if (t->block == 0 && are_bins_faster_in_long_rows(t)) plan->block = LONG_ROW_BLOCK;
    }
    if (t->rule->acc_kind == GPR_ACC_EXACT_MOMENTS) {
        /* Short rows wait for their divisions, of which one block of that kernel makes several
         * at once. */
        const int are_short = plan->rows > 1 && t->grid == 0 &&
                              t->layout->n * t->element_bytes <= GPR_SHORT_ROW_BYTES;
        if (are_short || !gpr_rows_are_runs(t->layout))
            return plan_exact_strided(t, "exact_moments_strided", plan);
        plan->variant = "exact_moments";
        return plan_exact_runs(t, plan);
    }
    const uint32_t lanes = exact_lanes(t);
    if (lanes != 0) return plan_exact_rows(t, lanes, plan);
    if (!gpr_rows_are_runs(t->layout)) return plan_exact_strided(t, "exact_strided", plan);
    return plan_exact_runs(t, plan);
}
