/* Products of floats and complex numbers as if exponents had no end. Private to csrc/cpu.
 *
 * The loops of a product multiply in lanes, and lanes, columns and pieces with each other: a lane
 * may overflow where the whole product does not, and infinity times a lane that underflowed is NaN.
 * So products are computed again here where the processor reports that a multiplication left the
 * range of doubles: 1e200 * 1e-200 * 1e200 * 1e-200 is 1 in any order. A factor is a mantissa in
 * [1, 2) times a power of two; mantissas are multiplied and exponents added. */
#ifndef GPR_CPU_SCALED_PRODUCTS_H
#define GPR_CPU_SCALED_PRODUCTS_H

#include "cpu/job.h"

/* Reduces the job's rows again, which are of one element or more, to results: products that are in
 * range have the accuracy of the loops', others are infinity or 0, and what has infinite elements,
 * NaN or zeros is what IEEE 754 makes of those whatever the other elements are. GPR_ERROR_MEMORY;
 * if the job has to stop, work->stop is set. */
gpr_status gpr_cpu_multiply_scaled(job *work);

#endif
