/* Shared by the files of the plan: the task, counts of blocks, passes. Only they include this. */
#ifndef GPR_LIB_PLAN_GRID_H
#define GPR_LIB_PLAN_GRID_H

#include "lib/base/integers.h"
#include "lib/rules/plan.h"

/* Rows up to this many bytes are read by a warp or part of one; longer rows are worth a block. */
enum { GPR_SHORT_ROW_BYTES = 2048 };

/* A layout, and the request. */
typedef struct gpr_plan_task {
    const gpr_rule *rule;
    const gpr_layout *layout;
    const gpr_device_facts *facts;
    int finishes;         /* results leave the kernel, not accumulators */
    uint32_t block, grid; /* 0: no wish */
    uint64_t element_bytes, acc_bytes;
} gpr_plan_task;

static inline uint64_t gpr_magnitude(int64_t step)
{
    return step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
}

/* ---------------------------------------------------------------- grids ---------------------- */

/* Blocks that fill the GPU once, when a multiprocessor holds `threads` threads. */
uint64_t gpr_resident_blocks(const gpr_device_facts *facts, uint32_t threads, uint32_t block);

/* Blocks for one of `rows` rows of n elements: enough for the row, no more than fill the GPU
 * together. */
uint64_t gpr_stride_blocks(const gpr_device_facts *facts, uint32_t threads, uint64_t rows,
                           uint64_t n, uint32_t block, uint64_t per_block);

/* Blocks of kernels of fast that fill the GPU once. */
uint64_t gpr_fast_residents(const gpr_plan_task *t, uint32_t block);

/* Blocks for each of `groups` rows, `most` at most: so many that the last wave of them fills the
 * GPU as well as it can, which holds `residents` at a time. */
uint64_t gpr_split_rows(const gpr_plan_task *t, uint64_t residents, uint64_t groups, uint64_t most);

/* Elements that one of `threads` threads adds at most, of a row of n that is read by vectors: those
 * at the row's ends included. */
uint64_t gpr_most_of_stream(uint64_t n, uint64_t element_bytes, uint64_t threads);

/* ---------------------------------------------------------------- rows in memory ------------- */

/* Most elements that a thread can load at once, a power of two: all steps but those of axis `run`
 * are multiples of it, and so are the run's length and the addresses. */
uint32_t gpr_most_in_item(const gpr_plan_task *t, int run);

/* Has rows read by items of neighbouring elements, as large as can be; returns how many of them a
 * row is. */
uint64_t gpr_use_items(const gpr_plan_task *t, gpr_plan *plan);

/* Whether the elements of a row are nearer to each other than rows are. */
int gpr_is_row_major(const gpr_layout *layout);

/* Whether an array is small, and its rows are short ones across memory. Lanes that share such a row
 * need no barriers, and of what they read together others soon find their part in a cache; longer
 * rows take them too many loads one after the other. */
int gpr_are_short_columns(const gpr_plan_task *t);

/* ---------------------------------------------------------------- passes --------------------- */

/* Adds a pass over rows of n elements. GPR_ERROR_VALUE: more blocks than can be numbered. */
gpr_status gpr_add_pass(gpr_plan *plan, uint64_t n, uint64_t blocks, uint64_t grid);

/* The one pass of a planner's kernel: `blocks` for each of the plan's rows, which leave `width`
 * partials each for the last of them where there are several. blocks 0: a block serves as many rows
 * as its lanes do. */
gpr_status gpr_add_blocks(gpr_plan *plan, uint64_t n, uint64_t blocks, uint64_t width);

/* ---------------------------------------------------------------- families of kernels -------- */

/* Plans of the kernels of fast, of exact sums, and of kernels that are named, of rows one after
 * another. gpr_make_plan has set the members that all of them share. */
gpr_status gpr_plan_fast(const gpr_plan_task *t, gpr_plan *plan);
gpr_status gpr_plan_exact(const gpr_plan_task *t, gpr_plan *plan);
gpr_status gpr_plan_named(const gpr_kernel_row *row, const gpr_plan_task *t, gpr_plan *plan);

#endif
