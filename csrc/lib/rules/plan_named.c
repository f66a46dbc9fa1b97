/* Plans of kernels that are named, from their rows in the registry: rows that follow each other. */
#include "lib/base/status.h"
#include "lib/rules/plan_grid.h"
#include "shared/tuning.h"

/* Passes of a kernel that writes one partial a block, until one is left for each row. */
static gpr_status plan_passes(const gpr_kernel_row *row, uint64_t n, uint64_t blocks,
                              gpr_plan *plan)
{
    const uint64_t per_block = (uint64_t)plan->block * row->per_thread;
    gpr_status status = gpr_add_pass(plan, n, blocks, plan->rows * blocks);

    while (status == GPR_OK && blocks > 1) {
        if (plan->pass_count == 1) plan->partials = plan->rows * blocks;
        if (plan->pass_count == 2) plan->more_partials = plan->rows * blocks;
        n = blocks;
        blocks = row->cover == GPR_COVER ? gpr_divide_up(n, per_block) : 1;
        plan->needs_next = 1;
        status = gpr_add_pass(plan, n, blocks, plan->rows * blocks);
    }
    return status;
}

/* One launch whose blocks wait for each other, all of a row in it. */
static gpr_status plan_cooperative(const gpr_plan_task *t, uint64_t n, gpr_plan *plan)
{
    const uint64_t most = (uint64_t)t->facts->multiprocessors * gpr_cooperative_blocks(plan->block);
    const uint64_t share = most / plan->rows;
    uint64_t blocks = gpr_smaller(gpr_divide_up(n, (uint64_t)plan->block * plan->per_thread),
                                  share > 0 ? share : 1);

    if (t->grid != 0) blocks = t->grid;
    if (blocks > most) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' has a grid barrier, at which blocks wait for all others: "
                        "grid_size is up to %llu in blocks of %u threads, as many as this GPU "
                        "holds at once, not %llu",
                        gpr_kernel_rows[plan->kernel].name, (unsigned long long)most, plan->block,
                        (unsigned long long)blocks);
    }
    plan->cooperative = blocks > 1;
    if (plan->cooperative) plan->slots = (uint32_t)gpr_smaller(plan->rows, most / blocks);
    return gpr_add_blocks(plan, n, blocks, 1);
}

/* Blocks of a row where they form clusters. A cluster needs all its places at once in one of the
 * GPU's groups of multiprocessors, so that fewer blocks are resident than without clusters: on an
 * H200 496 of 528 blocks of 512 threads. The first cluster beyond them has a wave of its own: 496
 * blocks took 257 us for 1 GiB, 504 took 346, and 440 took 257, too. */
static uint64_t clustered_blocks(const gpr_plan_task *t, uint64_t n, const gpr_plan *plan)
{
    enum { EIGHTHS = 7 };
    const uint64_t places =
        gpr_resident_blocks(t->facts, t->facts->threads_per_multiprocessor, plan->block) * EIGHTHS /
        8;
    const uint64_t share = places / plan->rows;

    return gpr_smaller(gpr_divide_up(n, (uint64_t)plan->block * plan->per_thread),
                       share > 0 ? share : 1);
}

/* Clusters as large as the kernel takes them and the blocks of a row are a multiple of. */
static uint64_t make_clusters(const gpr_kernel_row *row, uint64_t blocks, int is_given,
                              gpr_plan *plan)
{
    const uint64_t most = gpr_most_cluster(row);

    while (plan->cluster * 2 <= gpr_smaller(most, blocks) &&
           (!is_given || blocks % (plan->cluster * 2ull) == 0))
        plan->cluster *= 2;
    return blocks - blocks % plan->cluster;
}

gpr_status gpr_plan_named(const gpr_kernel_row *row, const gpr_plan_task *t, gpr_plan *plan)
{
    const uint64_t rows = t->layout->rows, n = t->layout->n;
    uint64_t blocks = 1;

    plan->layout = *t->layout;
    plan->fill = row->finish == GPR_ATOMIC;
    if (!gpr_rows_are_runs(t->layout) || t->layout->kept != 1 ||
        (rows > 1 && t->layout->axes[0].in != (int64_t)n)) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' reads device arrays whose rows follow each other in memory, "
                        "without a mask; kernel 'auto' reads any",
                        row->name);
    }
    if ((row->flags & GPR_COOPERATIVE) != 0) return plan_cooperative(t, n, plan);
    if (row->cover == GPR_COVER) {
        blocks = gpr_divide_up(n, (uint64_t)plan->block * row->per_thread);
    } else if (gpr_most_cluster(row) > 1 && t->grid == 0) {
        blocks = clustered_blocks(t, n, plan);
    } else if (row->cover == GPR_STRIDE) {
        blocks = t->grid != 0
                     ? t->grid
                     : gpr_stride_blocks(t->facts, t->facts->threads_per_multiprocessor, rows, n,
                                         plan->block, (uint64_t)plan->block * row->per_thread);
    }
    blocks = make_clusters(row, blocks, t->grid != 0, plan);
    if (blocks > (1ull << 62) / rows) return gpr_add_pass(plan, n, UINT64_MAX, 0);
    if (row->finish == GPR_PASSES) return plan_passes(row, n, blocks, plan);
    if (row->finish == GPR_TICKET) return gpr_add_blocks(plan, n, blocks, 1);
    return gpr_add_pass(plan, n, blocks, rows * blocks);
}
