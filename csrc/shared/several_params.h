/* Parameters of kernel `several`, which makes several reductions of an array in one pass over
 * memory: lib/run/several_launch.c fills them in, kernels/several/several.cuh reads them.
 *
 * A launch reduces `rows` rows of `n` elements; `blocks` blocks read each of them. A row that comes
 * in pieces, as a host array does, takes a launch per piece: `first_block`, `first_position` and
 * `total` tell a launch which of the row's blocks and elements it has. */
#ifndef GPR_SHARED_SEVERAL_PARAMS_H
#define GPR_SHARED_SEVERAL_PARAMS_H

#include "launch_params.h"

enum { GPR_MOST_MEMBERS = 12 }; /* GPR_MOST_SEVERAL of gpureduce.h */

typedef struct gpr_several_params {
    GPR_DEVICE_POINTER(const void) in;
    GPR_DEVICE_POINTER(unsigned) tickets;   /* one per row, zero before and after */
    GPR_DEVICE_POINTER(unsigned) counters;  /* of exact sums: a slot per row, as zero */
    GPR_DEVICE_POINTER(gpr_u64) partials;   /* per fold gpr_partials_of(blocks of all rows) */
    GPR_DEVICE_POINTER(void) limb_partials; /* of exact sums: one per block of all rows */
    gpr_u64 rows;
    gpr_u64 n;              /* elements of a row that this launch reads */
    gpr_u64 total;          /* elements of a row */
    gpr_u64 first_position; /* of a row's first element in this launch */
    gpr_i64 row_step;       /* from row to row, in elements */
    gpr_i64 out_step;       /* from a row's result to the next row's, in results */
    gpr_u32 blocks;         /* that read a row in this launch */
    gpr_u32 first_block;    /* of a row's blocks in all launches, the first of this one */
    gpr_u32 all_blocks;     /* of a row, in all launches */
    gpr_u32 unused;
    gpr_finalize_params finalize;
    GPR_DEVICE_POINTER(void) out[GPR_MOST_MEMBERS]; /* results of each member */
} gpr_several_params;

/* Words of 8 bytes that a partial of so many bytes takes. */
GPR_CONSTANT_FUNCTION gpr_u64 gpr_partial_words(gpr_u64 bytes)
{
    return (bytes + 7) / 8;
}

/* Partials of a fold that there is room for: an even number, so that the next fold's begin at a
 * multiple of 16 bytes, too. */
GPR_CONSTANT_FUNCTION gpr_u64 gpr_partials_of(gpr_u64 blocks)
{
    return blocks + blocks % 2;
}

static_assert(sizeof(gpr_several_params) == 136 + 8 * GPR_MOST_MEMBERS, "several");
GPR_ASSERT_OFFSET(gpr_several_params, finalize, 104);

#endif
