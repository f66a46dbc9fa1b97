/* A call, resolved: operator, types, axes, places, kernel and device, each decided once.
 * csrc/dispatch fills in the record at the top of a call; everything below reads it and not the
 * caller's request. */
#ifndef GPR_LIB_RESOLVED_H
#define GPR_LIB_RESOLVED_H

#include "lib/rules/nd_view.h"
#include "lib/rules/rules.h"

typedef struct gpr_resolved {
    gpr_rule rule;
    gpr_view view;
    /* the other array of a dot product, of the same axes; else NULL. Where a kernel reads several
     * rows of two arrays, the view has the other one's address and steps for those of a mask */
    const gpr_view *second;
    /* registry index of the one that runs, never auto's own; of rows without elements, fast's */
    int kernel;
    /* CUDA ordinal or GPR_DEVICE_CPU */
    int device;
    /* the arrays are in its memory */
    int on_device;
    /* 0: the plan's own */
    uint32_t block_size, grid_size;
    /* NULL: the device's own */
    void *stream;
    /* in host memory in C order, second outputs behind all first ones */
    void *result;
    /* in its memory, where the steps of the view's outer axes lead */
    int result_on_device;
    int vouches_for_result;
    /* results from a row's first output to its second, where it has two */
    int64_t output_stride;
    /* that are given, in device memory; NULL: mean_for_all is every row's */
    const void *means;
    double mean_for_all[2];
    /* the bits of an element that each row has, too, if the rule says so */
    uint64_t start[2];
    /* of a dot product's sums, one for each row or for all; else NULL */
    const double *divisors;
    int has_one_divisor;
    /* or NULL */
    int (*interrupted)(void *);
    void *interrupted_arg;
} gpr_resolved;

/* Where what follows the rule and the view begins: the view's axes are most of a call. */
enum { GPR_BEHIND_VIEW = offsetof(gpr_resolved, second) };

/* Copies a call without its view. */
static inline void gpr_copy_settings(gpr_resolved *to, const gpr_resolved *from)
{
    to->rule = from->rule;
    memcpy((char *)to + GPR_BEHIND_VIEW, (const char *)from + GPR_BEHIND_VIEW,
           sizeof *to - GPR_BEHIND_VIEW);
}

#endif
