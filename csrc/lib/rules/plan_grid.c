/* Grids and passes: how many blocks share a row (gpr_split_rows), which neighbouring elements a
 * thread loads at once, and the blocks and scratch of a pass. */
#include "lib/rules/plan_grid.h"

#include "lib/base/status.h"
#include "shared/tuning.h"

uint64_t gpr_resident_blocks(const gpr_device_facts *facts, uint32_t threads, uint32_t block)
{
    const uint64_t per_multiprocessor = threads / block;

    return facts->multiprocessors * (per_multiprocessor > 0 ? per_multiprocessor : 1);
}

uint64_t gpr_stride_blocks(const gpr_device_facts *facts, uint32_t threads, uint64_t rows,
                           uint64_t n, uint32_t block, uint64_t per_block)
{
    const uint64_t share = gpr_divide_up(gpr_resident_blocks(facts, threads, block), rows);

    return gpr_smaller(gpr_divide_up(n, per_block), share);
}

uint64_t gpr_fast_residents(const gpr_plan_task *t, uint32_t block)
{
    return gpr_resident_blocks(
        t->facts, (uint32_t)gpr_smaller(t->facts->threads_per_multiprocessor, GPR_RESIDENT_THREADS),
        block);
}

uint64_t gpr_split_rows(const gpr_plan_task *t, uint64_t residents, uint64_t groups, uint64_t most)
{
    enum { WAVES = 4 };
    uint64_t best = 1;
    double best_time = (double)gpr_divide_up(groups, residents);

    if (t->grid != 0) return t->grid;
    for (uint64_t waves = 1; waves <= WAVES; waves++) {
        const uint64_t blocks = gpr_smaller(waves * residents / groups, most);
        if (blocks <= best) continue;
        const double time = (double)gpr_divide_up(groups * blocks, residents) / (double)blocks;
        if (time < 0.9 * best_time) { /* more partials must save more than they cost */
            best = blocks;
            best_time = time;
        }
    }
    return best;
}

uint32_t gpr_most_in_item(const gpr_plan_task *t, int run)
{
    const gpr_layout *layout = t->layout;
    uint32_t item = (uint32_t)(GPR_VECTOR_BYTES / t->element_bytes);
    uint64_t bits = layout->axes[run].extent | layout->aligned / t->element_bytes;

    for (int i = 0; i < layout->kept + layout->reduced; i++) {
        if (i == run || layout->axes[i].extent == 1) continue;
        bits |= gpr_magnitude(layout->axes[i].in);
        if (layout->masked) bits |= gpr_magnitude(layout->axes[i].mask);
    }
    if (layout->masked) {
        bits |= layout->mask_aligned;
        if (layout->axes[run].mask != 1) return 1;
    }
    while (bits % item != 0) item /= 2;
    return item;
}

uint64_t gpr_use_items(const gpr_plan_task *t, gpr_plan *plan)
{
    const int last = t->layout->kept + t->layout->reduced - 1;
    gpr_axis *inner = &plan->layout.axes[last];

    plan->item = inner->in == 1 ? gpr_most_in_item(t, last) : 1;
    inner->extent /= plan->item;
    inner->in *= plan->item;
    inner->mask *= plan->item;
    inner->position *= plan->item;
    return t->layout->n / plan->item;
}

int gpr_is_row_major(const gpr_layout *layout)
{
    const gpr_axis *kept = &layout->axes[layout->kept - 1],
                   *reduced = &layout->axes[layout->kept + layout->reduced - 1];

    return kept->extent == 1 || gpr_magnitude(reduced->in) <= gpr_magnitude(kept->in);
}

int gpr_are_short_columns(const gpr_plan_task *t)
{
    enum { SHORT_COLUMN = 22 * GPR_WARP_LANES, SMALL_BYTES = 6 << 20 };
    const gpr_layout *layout = t->layout;

    return !gpr_is_row_major(layout) && layout->reduced == 1 && layout->n <= SHORT_COLUMN &&
           layout->rows * layout->n * t->element_bytes <= SMALL_BYTES;
}

uint64_t gpr_most_of_stream(uint64_t n, uint64_t element_bytes, uint64_t threads)
{
    return gpr_divide_up(n, threads) + 2 * (GPR_VECTOR_BYTES / element_bytes);
}

gpr_status gpr_add_pass(gpr_plan *plan, uint64_t n, uint64_t blocks, uint64_t grid)
{
    if (blocks > UINT32_MAX || plan->pass_count == GPR_MAX_PASSES || grid >> 62 != 0) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "rows of %llu elements take more blocks than kernel '%s' can number",
                        (unsigned long long)n, gpr_kernel_rows[plan->kernel].name);
    }
    plan->passes[plan->pass_count++] = (gpr_pass){.n = n, .blocks = (uint32_t)blocks, .grid = grid};
    return GPR_OK;
}

gpr_status gpr_add_blocks(gpr_plan *plan, uint64_t n, uint64_t blocks, uint64_t width)
{
    if (blocks == 0)
        return gpr_add_pass(
            plan, n, 0,
            gpr_divide_up(plan->rows, (uint64_t)(plan->block / plan->lanes) * plan->per_thread));
    if (blocks > (1ull << 62) / plan->rows / width) return gpr_add_pass(plan, n, UINT64_MAX, 0);
    if (blocks > 1) {
        plan->partials = plan->rows * blocks * width;
        plan->tickets = plan->rows;
    }
    return gpr_add_pass(plan, n, blocks, plan->rows * blocks);
}
