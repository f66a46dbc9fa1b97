/* The plan: how a kernel is applied to rows of elements on a GPU. Pure: it reads nothing but its
 * arguments, so it is tested without a GPU. */
#ifndef GPR_LIB_PLAN_H
#define GPR_LIB_PLAN_H

#include "lib/rules/layout.h"
#include "lib/rules/rules.h"

/* One launch, or several where the grid would be too large: the first over elements, later ones
 * over partials. */
typedef struct gpr_pass {
    uint64_t n;      /* elements in a row; of fast_columns positions, of fast_strided items */
    uint32_t blocks; /* per row; 0: several rows share a block */
    uint64_t grid;   /* virtual blocks, may exceed GPR_MAX_GRID */
} gpr_pass;

enum { GPR_MAX_PASSES = 16 };
#define GPR_MAX_GRID 0x7fffffffull

typedef struct gpr_plan {
    int kernel;
    const char *variant;   /* the __global__ template */
    uint32_t block;        /* threads */
    uint32_t lanes;        /* per row, for fast_rows; else 32 */
    uint32_t per_thread;   /* elements, or, for fast_rows, rows of a lane */
    uint32_t item;         /* neighbouring elements of a load; 1 where the kernel decides itself */
    uint32_t row_elements; /* of fast_counted; else 0 */
    uint64_t rows;         /* as the kernel counts: groups of rows where a block serves several */
    int fill;              /* the output holds the identity before the first pass */
    int needs_next;        /* a later pass runs */
    int pass_count;
    gpr_pass passes[GPR_MAX_PASSES];
    uint64_t partials;      /* accumulators of scratch: first pass's partials, or the tickets' */
    uint64_t more_partials; /* second pass's */
    uint64_t tickets;       /* counters that are zero before and after */

    /* The array as the planner's kernels take it; see kernels/core/layout.cuh. */
    gpr_layout layout; /* axes as the kernel iterates over them, without the column */
    gpr_axis column;
    int64_t column_mean; /* the column's step in given means */
    uint64_t strips;
    int64_t item_position;
    uint32_t width, row_major, packed, ascends;
    /* The most rows of a launch, 0 without such a limit: of exact sums with several blocks per row
     * the rows, or groups of them, that tickets are for; those whose blocks the GPU holds at once
     * where blocks wait for each other. */
    uint32_t slots;
    int cooperative;  /* the blocks of a launch wait for each other */
    uint32_t cluster; /* blocks of a cluster; 1: there are none */
    int integer_bins; /* exact sums of floats are made without float64 */
} gpr_plan;

/* Plans the reduction of an array (rows >= 1; n >= 1, or 0 for fast's results of nothing) with
 * kernel `kernel`. finishes: results leave the kernel, not accumulators. block, grid: 0 for the
 * plan's own choice. GPR_ERROR_VALUE: a block size the kernel cannot take; a grid size for a
 * kernel that has none; more blocks that wait for each other than the GPU holds at once; rows that
 * are not contiguous for a kernel other than fast and exact; too much work for one request (more
 * than 2^62 blocks). GPR_ERROR_KERNEL: the GPU is too old for it. */
gpr_status gpr_make_plan(int kernel, const gpr_rule *rule, const gpr_layout *layout, int finishes,
                         uint32_t block, uint32_t grid, const gpr_device_facts *facts,
                         gpr_plan *plan);

/* Prices, in nanoseconds, of the ways that a plan of kernel `fast` with results is chosen from, in
 * the order that facts->way counts: at most `room` of them; *count is how many there are. Rows and
 * n are at least 1. GPR_ERROR_VALUE: as gpr_make_plan. */
gpr_status gpr_list_prices(const gpr_rule *rule, const gpr_layout *layout,
                           const gpr_device_facts *facts, uint32_t room, double *ns,
                           uint32_t *count);

#endif
