/* Products of floats and complex numbers in an unlimited range of exponents. Private to csrc/cpu.
 *
 * The loops of a product multiply in lanes, and lanes, columns and pieces with each other. A lane
 * may overflow where the whole product does not, and infinity times a lane that underflowed is NaN.
 * So where the processor reports that a multiplication left the range of doubles, products are
 * computed again here: 1e200 * 1e-200 * 1e200 * 1e-200 is 1 in any order. A factor is a mantissa in
 * [1, 2) times a power of two; mantissas are multiplied and exponents added. */
#ifndef GPR_CPU_SCALED_PRODUCTS_H
#define GPR_CPU_SCALED_PRODUCTS_H

#include "cpu/job.h"

/* Whether products of a job's first elements, which are on both sides of 1, leave the range: then
 * the loops' results would not be used. Of large jobs alone; otherwise 0, as where *status
 * becomes GPR_ERROR_MEMORY. In an environment of enter_ieee. */
int gpr_cpu_starts_out_of_range(job *work, gpr_status *status);

/* Reduces the job's rows, which have one element or more; the loops' results are there already if
 * it `has_results`. Products in range are as accurate as those of the loops; others are infinity or
 * 0. Of rows with infinite elements, NaN or zeros, the result is the IEEE 754 product of these.
 * GPR_ERROR_MEMORY; if the job has to stop, work->stop is set. */
gpr_status gpr_cpu_multiply_scaled(job *work, int has_results);

#endif
