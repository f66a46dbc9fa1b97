/* Passes, grids and scratch from a kernel's row in the registry. */
#include "plan.h"

#include <string.h>

#include "status.h"

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

/* ---------------------------------------------------------------- the planner's kernel ------- */

/* A row up to this many bytes is read by a warp or part of one; longer rows are worth a block. */
enum { SHORT_ROW_BYTES = 1024, SHORT_ROW_ELEMENTS = 512 };
/* Bytes of a row that keep one block's threads busy with several 16-byte loads each. */
enum { STREAM_BYTES_PER_THREAD = 64 };
/* Threads that auto_stream's registers let a multiprocessor hold for every cell: with more blocks than fit at once, the last wave
 * of them would leave the card half empty. */
enum { STREAM_THREADS = 1024 };

/* Lanes that serve a short row: about four elements each, so that few idle and few shuffle. */
static uint32_t row_lanes(uint64_t n)
{
    uint32_t lanes = 1;

    while (lanes < 32 && lanes * 4 < n) lanes *= 2;
    return lanes;
}

/* Chooses template and, where the caller did not, the block size. */
static void choose_auto(const gpr_rule *rule, uint64_t rows, uint64_t n, uint32_t block, uint32_t grid, gpr_plan *plan)
{
    const uint64_t row_bytes = n * gpr_dtype_bytes(rule->element);

    plan->variant = "auto_stream";
    if (rows > 1 && grid == 0 && n <= SHORT_ROW_ELEMENTS && row_bytes <= SHORT_ROW_BYTES) {
        plan->variant = "auto_rows";
        plan->lanes = row_lanes(n);
        if (block == 0) plan->block = 256;
    } else if (block == 0) {
        while (plan->block > 64 && (uint64_t)plan->block * STREAM_BYTES_PER_THREAD > row_bytes) plan->block /= 2;
    }
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

gpr_status gpr_make_plan(int kernel, const gpr_rule *rule, uint64_t rows, uint64_t n, uint32_t block, uint32_t grid,
                         const gpr_device_facts *facts, gpr_plan *plan)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[kernel];
    gpr_status status = GPR_OK;
    uint64_t blocks = 1;

    *plan = (gpr_plan){
        .kernel = kernel, .variant = row->name, .block = block != 0 ? block : row->block, .lanes = 32, .rows = rows};
    if (facts->cc < row->min_cc) {
        return gpr_fail(GPR_ERROR_KERNEL, "kernel '%s' needs compute capability %d.%d, this card has %d.%d", row->name,
                        row->min_cc / 10, row->min_cc % 10, facts->cc / 10, facts->cc % 10);
    }
    GPR_TRY(gpr_check_block_size(row, plan->block));
    if (grid != 0) GPR_TRY(gpr_check_grid_size(row));
    if (row->family == GPR_FAMILY_PLANNER) choose_auto(rule, rows, n, block, grid, plan);
    plan->fill = row->finish == GPR_ATOMIC;

    if (row->cover == GPR_COVER) {
        blocks = divide_up(n, (uint64_t)plan->block * row->per_thread);
    } else if (row->cover == GPR_STRIDE) {
        const uint64_t bytes = gpr_dtype_bytes(rule->element);
        const int planned = row->family == GPR_FAMILY_PLANNER;
        const uint64_t per_thread = planned ? STREAM_BYTES_PER_THREAD / bytes : row->per_thread;
        const uint32_t threads = planned && facts->threads_per_multiprocessor > STREAM_THREADS
                                     ? STREAM_THREADS
                                     : facts->threads_per_multiprocessor;
        blocks = grid != 0 ? grid : stride_blocks(facts, threads, rows, n, plan->block, plan->block * per_thread);
    }
    if (blocks > (1ull << 62) / rows) return add_pass(plan, n, UINT64_MAX, 0);

    if (strcmp(plan->variant, "auto_rows") == 0)
        return add_pass(plan, n, 0, divide_up(rows, plan->block / plan->lanes));
    if (row->finish == GPR_PASSES) return plan_passes(row, n, blocks, plan);
    if (row->finish == GPR_TICKET && blocks > 1) {
        plan->partials = rows * blocks;
        plan->tickets = rows;
    }
    status = add_pass(plan, n, blocks, rows * blocks);
done:
    return status;
}
