/* Parameters of kernels, as a launch passes them by value: lib/run/launch.c fills them in, kernels
 * read them. Types of kernels/core that have functions derive from these.
 *
 *   every kernel         in, out, gpr_rows_params, gpr_scratch_params
 *   kernels for layouts  then gpr_layout_params and its axes, what finalizing depends on, and
 *                        gpr_second_params where there are two arrays
 *
 * What depends on the number of axes comes last in its parameter, so that all before it is at one
 * place in every program. */
#ifndef GPR_SHARED_LAUNCH_PARAMS_H
#define GPR_SHARED_LAUNCH_PARAMS_H

#include "language.h"

enum { GPR_PARAMS_BYTES = 4096 }; /* that all parameters of a kernel take at most */

/* The rows of a launch. */
typedef struct gpr_rows_params {
    gpr_u64 n;      /* elements in a row */
    gpr_u64 count;  /* rows */
    gpr_u64 first;  /* virtual block that block 0 of the grid is */
    gpr_u32 blocks; /* per row; 0: a block serves several rows */
} gpr_rows_params;

/* Memory for kernels whose last block combines. Other kernels do not read it. */
typedef struct gpr_scratch_params {
    GPR_DEVICE_POINTER(void) partials;    /* accumulators, one per virtual block */
    GPR_DEVICE_POINTER(unsigned) tickets; /* counters, one per row, zero before and after */
} gpr_scratch_params;

/* An axis of a layout: steps in elements, and in bytes of the mask. A kept axis counts rows and has
 * a step in results. A reduced axis is part of a row; its positions count the row's elements in the
 * order of the caller's axes, which need not be the order of memory. */
typedef struct gpr_axis {
    gpr_u64 extent;
    gpr_i64 in, mask;
    union {
        gpr_i64 out;      /* of a kept axis */
        gpr_i64 position; /* of a reduced axis */
    };
} gpr_axis;

/* A layout: where rows begin, where their elements are, and where results go. The kept axes come
 * behind it, then the reduced ones, at least one of each; the last one of each varies fastest. */
typedef struct gpr_layout_params {
    GPR_DEVICE_POINTER(const unsigned char) mask; /* a byte per element, 0: leave it out */
    gpr_u64 first_position;                       /* of a row's first element in memory */
    gpr_u64 elements;                             /* of a row */
    gpr_u64 count;                                /* rows */
    gpr_u64 columns;       /* fast_columns, fast_few, fast_narrow: extent of the kept axis of
                            * neighbouring elements, */
    gpr_i64 column_out;    /* and its step in results */
    gpr_u64 strips;        /* fast_columns: blocks along that axis; 0: they go on beyond it */
    gpr_i64 item_position; /* fast_strided: step of positions within an item */
    gpr_i64 step;          /* fast_columns, fast_strided: of a thread along the only reduced axis */
    /* Rectangles of threads (kernels/fast/fast_axes.cuh), for which a thread would have to divide:
     * that takes longer than a short row. */
    gpr_u64 steps;    /* items that each thread reads of a row, ... */
    gpr_u64 longer;   /* ... and the first so many of the row's threads one more */
    gpr_u32 width;    /* threads of a block along kept axes; fast_narrow: that work */
    gpr_u32 height;   /* threads of a block that share a row */
    gpr_u32 inverse;  /* of the height if row_major is not 0, else of the width: gpr_inverse */
    gpr_u32 slots;    /* exact sums: rows, or groups of them, that scratch has counters for */
    gpr_u8 row_major; /* not 0 where neighbouring threads read a row's neighbouring elements; or
                       * GPR_ROW_BY_LANES */
    gpr_u8 packed;    /* fast_columns: not 0 where an item's results may be stored together */
    gpr_u8 ascends;   /* not 0 where positions ascend in memory order, below 2^32 */
    gpr_u8 unused[5];
} gpr_layout_params;

/* Threads that share a row are neighbours: a power of two of a warp's lanes, or whole warps. */
enum { GPR_ROW_BY_LANES = 2 };

/* i / divisor is i * gpr_inverse(divisor) >> GPR_INVERSE_BITS for i and divisors up to 1024: as the
 * inverse is rounded up, the quotient is too large by less than i / 2^21, which is less than
 * 1 / divisor. */
enum { GPR_INVERSE_BITS = 21 };
GPR_CONSTANT_FUNCTION gpr_u32 gpr_inverse(gpr_u32 divisor)
{
    return ((1u << GPR_INVERSE_BITS) + divisor - 1) / divisor;
}

/* What a result depends on beside its accumulator. */
typedef struct gpr_finalize_params {
    double ddof;           /* var, std */
    gpr_u64 output_stride; /* minmax: results from a row's smallest element to its largest */
    gpr_u64 start[2];      /* min, max: the bits of an element that each row has, too */
} gpr_finalize_params;

/* The given means of a variance, behind gpr_finalize_params. Their steps along kept axes follow. */
typedef struct gpr_given_mean_params {
    double for_all[2];                    /* real and imaginary part */
    GPR_DEVICE_POINTER(const void) means; /* 0: for_all is the mean of every row */
    gpr_i64 column;                       /* steps in given means along the layout's column */
} gpr_given_mean_params;

/* Numbers of results below which quotients by an axis are i * inverse >> shift. */
enum { GPR_COPY_BITS = 31 };

/* An axis of results: its steps in results, and the steps to those that kernels have stored, which
 * are 0 along an axis of rows that are the same. With `shift` GPR_COPY_BITS and the bits that the
 * extent takes, and `inverse` 2^shift over the extent, rounded up, quotients are exact: what an
 * inverse is too large by is below 1, so that i of them are below 2^shift. */
typedef struct gpr_copy_axis {
    gpr_u64 extent;
    gpr_i64 out, from;
    gpr_u32 inverse, shift;
} gpr_copy_axis;

enum { GPR_MOST_COPY_AXES = 65 }; /* NumPy's most, and one of two results a row */
typedef struct gpr_copy_params {
    gpr_u64 count; /* results */
    gpr_u32 axes;  /* at least one; the last one varies fastest */
    gpr_u32 unused;
    gpr_copy_axis axis[GPR_MOST_COPY_AXES];
} gpr_copy_params;

/* The second of two arrays, whose elements meet the first one's in pairs. */
typedef struct gpr_second_params {
    GPR_DEVICE_POINTER(const void) in;
    gpr_i64 step; /* from one element to the next, in elements */
} gpr_second_params;

static_assert(sizeof(gpr_rows_params) == 32, "rows");
GPR_ASSERT_OFFSET(gpr_rows_params, blocks, 24);
static_assert(sizeof(gpr_scratch_params) == 16, "scratch");
static_assert(sizeof(gpr_axis) == 32, "an axis");
GPR_ASSERT_OFFSET(gpr_axis, position, 24);
static_assert(sizeof(gpr_layout_params) == 112, "a layout before its axes");
GPR_ASSERT_OFFSET(gpr_layout_params, columns, 32);
GPR_ASSERT_OFFSET(gpr_layout_params, strips, 48);
GPR_ASSERT_OFFSET(gpr_layout_params, width, 88);
GPR_ASSERT_OFFSET(gpr_layout_params, row_major, 104);
static_assert(sizeof(gpr_finalize_params) == 32, "what finalizing depends on");
static_assert(sizeof(gpr_given_mean_params) == 32, "given means before their steps");
static_assert(sizeof(gpr_second_params) == 16, "a second array");
static_assert(sizeof(gpr_copy_params) == 16 + GPR_MOST_COPY_AXES * 32, "results to copy");

#endif
