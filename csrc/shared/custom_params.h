/* Parameters of reductions by an operator of the user's own: what kernels/custom and its loops on
 * the CPU read. src/gpureduce/_yours/operator_layout.py writes them.
 *
 * A call has `rows` rows of `n` elements. Each row is cut into `parts`, of `share` elements each
 * but the last; parts of a row follow each other in its order. */
#ifndef GPR_SHARED_CUSTOM_PARAMS_H
#define GPR_SHARED_CUSTOM_PARAMS_H

#include "launch_params.h"

/* An initial's bytes at most: what a structure that is an element may have there. */
enum { GPR_CUSTOM_AXES = 64, GPR_CUSTOM_INITIAL_BYTES = 256 };

/* What becomes of a row's value. */
enum {
    GPR_CUSTOM_CONTINUES = 1, /* states[row] holds the value of the elements before these */
    GPR_CUSTOM_ENDS = 2,      /* the value becomes a result; else it is stored to states[row] */
    GPR_CUSTOM_STARTS = 4,    /* with ENDS: `initial` is an element before the row's first one */
    GPR_CUSTOM_ACROSS = 8     /* CPU: neighbours in memory are of different rows */
};

/* Bytes of the values of rows side by side that a task of the CPU takes: half of a first-level
 * cache. */
enum { GPR_CUSTOM_COLUMN_BYTES = 16 << 10 };

typedef struct gpr_custom_params {
    GPR_DEVICE_POINTER(const unsigned char) in;
    GPR_DEVICE_POINTER(const unsigned char) mask; /* a byte per element, 0: leave it out; or 0 */
    GPR_DEVICE_POINTER(unsigned char) out;
    GPR_DEVICE_POINTER(void) partials; /* rows * parts, where there are several parts */
    GPR_DEVICE_POINTER(void) states;   /* one per row, where a row takes several calls */
    gpr_u64 rows;
    gpr_u64 n;
    gpr_u64 parts;
    gpr_u64 share;
    gpr_u64 total;         /* elements of a row in all calls: what `finish` is told */
    gpr_u64 first;         /* index of the row's first element of this call */
    gpr_u64 units;         /* of the grid: groups of threads with work, or blocks */
    gpr_u32 kept, reduced; /* axes: the kept ones come first; the last of each varies fastest */
    gpr_u32 lanes;         /* threads per part of a row: a power of two, up to the block */
    gpr_u32 flags;
    unsigned char initial[GPR_CUSTOM_INITIAL_BYTES]; /* an element */
    gpr_axis axes[GPR_CUSTOM_AXES]; /* steps in bytes; `position` is a step of indices */
} gpr_custom_params;

/* What a program tells of its operator: the host learns it by running it. */
typedef struct gpr_custom_facts {
    gpr_u64 partial_bytes; /* of what blocks leave to each other */
    gpr_u64 state_bytes;
    gpr_u64 result_bytes;
    gpr_u32 result_kind; /* GPR_KIND_..., or one of GPR_CUSTOM_RESULT_... */
    gpr_u32 has_identity;
    gpr_u32 takes_index; /* lift depends on indices */
    gpr_u32 columns;     /* rows side by side that a task of the CPU takes at most */
} gpr_custom_facts;

enum { GPR_CUSTOM_RESULT_ELEMENT = 100, GPR_CUSTOM_RESULT_STRUCT = 101 };

static_assert(sizeof(gpr_custom_params) ==
                  96 + 16 + GPR_CUSTOM_INITIAL_BYTES + 32 * GPR_CUSTOM_AXES,
              "parameters of an operator of the user's own");
static_assert(sizeof(gpr_custom_params) <= GPR_PARAMS_BYTES, "a launch passes them by value");
static_assert(sizeof(gpr_custom_facts) == 40, "facts of an operator");

#endif
