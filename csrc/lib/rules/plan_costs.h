/* Costs of plans of `fast` on a GPU, in nanoseconds: a model of the few things that decide among
 * ways to read one array. It ranks the ways, and predicts their times only roughly.
 *
 *   time = the largest of  bytes / bandwidth
 *                          arithmetic / throughput
 *                          waves * (start of a block + rounds of loads * latency + tree)
 *        + a share of the other two, a tenth or more
 *        + where blocks share rows: publishing + rounds of reading partials + tree
 *
 * The plan's files include this, and device_info.c, which adds costs to the facts of a GPU. */
#ifndef GPR_LIB_PLAN_COSTS_H
#define GPR_LIB_PLAN_COSTS_H

#include "lib/rules/plan_grid.h"

/* Measured costs if the facts have them, else from the GPU's memory, multiprocessors and clocks. */
void gpr_costs_of(const gpr_device_facts *facts, gpr_plan_costs *costs);

/* Costs that depend on the accumulator: instructions per element folded, and per two accumulators
 * combined. */
typedef struct gpr_fold_costs {
    double element, combine;
} gpr_fold_costs;

gpr_fold_costs gpr_fold_costs_of(const gpr_rule *rule, uint64_t acc_bytes);

/* Blocks that do the same amount of work. */
typedef struct gpr_load {
    double bytes;        /* that all of them read, as memory delivers them */
    double instructions; /* of all threads */
    double blocks;
    double slots;    /* blocks that the GPU holds at a time */
    double sms;      /* multiprocessors */
    double block_ns; /* time of a block that waits for no other */
    double beside;   /* of what is not the longest, the share that does not overlap with it */
} gpr_load;

/* The time of `load`, until the last block ends. */
double gpr_time_of(const gpr_plan_costs *costs, const gpr_load *load);

/* The search prices a hundred ways per call, so these are a few instructions each. */
static inline double gpr_lesser(double a, double b)
{
    return a < b ? a : b;
}

/* `x` rounded up, for the numbers of waves and rounds of a plan. */
static inline double gpr_whole(double x)
{
    const double most = 0x1p53; /* from there on every double is whole */

    if (x >= most) return x;
    const double below = (double)(int64_t)x;
    return below < x ? below + 1 : below;
}

/* Steps of a tree over `count`. */
static inline unsigned gpr_tree_steps(uint64_t count)
{
    unsigned steps = 0;

    while (steps < 63 && (UINT64_C(1) << steps) < count) steps++;
    return steps;
}

#endif
