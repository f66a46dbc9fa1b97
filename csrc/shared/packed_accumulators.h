/* Accumulators of several numbers in memory, as kernels store them and the library reads them
 * (structures in kernels/core/accumulators.cuh, gpr_read_acc in lib/rules): packed, a number first,
 * then its companions of 8 bytes each.
 *
 *     GPR_ACC_INDEXED     number | position
 *     GPR_ACC_SUM_COUNT   sum    | count
 *     GPR_ACC_RANGE       low    | high                of the number's size
 *     GPR_ACC_MOMENTS     mean   | squares | count     the mean in 16 bytes */
#ifndef GPR_SHARED_PACKED_ACCUMULATORS_H
#define GPR_SHARED_PACKED_ACCUMULATORS_H

#include "language.h"

enum { GPR_SECOND_BYTES = 8, GPR_MEAN_BYTES = 16 };

/* The position of an accumulator of no elements: behind every position in a row. */
#define GPR_NOWHERE (~(gpr_u64)0)

#endif
