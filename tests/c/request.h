/* The request that most tests begin with. */
#ifndef GPR_TEST_REQUEST_H
#define GPR_TEST_REQUEST_H

#include "gpureduce.h"

/* Sums along the last of `ndim` axes of a C-ordered host array, by "auto" on CUDA device 0. */
static inline gpr_request sums_of(gpr_dtype dtype, int ndim, const int64_t *shape, const void *data, void *result)
{
    return (gpr_request){.op = GPR_OP_SUM,
                         .dtype = dtype,
                         .compute = GPR_DTYPE_DEFAULT,
                         .ndim = ndim,
                         .reduced = 1,
                         .shape = shape,
                         .data = data,
                         .kernel = -1,
                         .device = 0,
                         .result = result};
}

#endif
