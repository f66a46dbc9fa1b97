/* The plan: how a kernel is applied to rows of elements on a given card. Pure: it looks at nothing but its arguments, so it is
 * tested without a GPU. */
#ifndef GPR_LIB_PLAN_H
#define GPR_LIB_PLAN_H

#include "rules.h"

/* What a plan must know about a card. */
typedef struct gpr_device_facts {
    int cc; /* compute capability, 10 * major + minor */
    uint32_t multiprocessors;
    uint32_t threads_per_multiprocessor;
} gpr_device_facts;

/* One launch, or several where the grid would be too large: the first over elements, later ones over partials. */
typedef struct gpr_pass {
    uint64_t n;      /* elements in a row */
    uint32_t blocks; /* per row; 0: several rows share a block (auto_rows) */
    uint64_t grid;   /* virtual blocks, may exceed GPR_MAX_GRID */
} gpr_pass;

enum { GPR_MAX_PASSES = 16 };
#define GPR_MAX_GRID 0x7fffffffull

typedef struct gpr_plan {
    int kernel;
    const char *variant; /* the __global__ template */
    uint32_t block;      /* threads */
    uint32_t lanes;      /* per row, for auto_rows; else 32 */
    uint64_t rows;
    int fill;       /* the output holds the identity before the first pass */
    int needs_next; /* a later pass runs */
    int pass_count;
    gpr_pass passes[GPR_MAX_PASSES];
    uint64_t partials;      /* accumulators of scratch: first pass's partials, or the tickets' */
    uint64_t more_partials; /* second pass's */
    uint64_t tickets;       /* counters that are zero before and after */
} gpr_plan;

/* Plans `rows` >= 1 rows of `n` >= 1 elements with kernel `kernel`. block, grid: 0 for the plan's own choice.
 * GPR_ERROR_VALUE: a block size the kernel cannot take; a grid size for a kernel that has none; too much work for one
 * request (more than 2^62 blocks). GPR_ERROR_KERNEL: the card is too old for it. */
gpr_status gpr_make_plan(int kernel, const gpr_rule *rule, uint64_t rows, uint64_t n, uint32_t block, uint32_t grid,
                         const gpr_device_facts *facts, gpr_plan *plan);

#endif
