/* The kernels' folds as C functions: device_folds.cpp compiles their text for the CPU.
 *
 * Accumulators are packed, as kernels write them. Each function returns 0, and does nothing, where
 * no kernel has such a fold. */
#ifndef GPR_TEST_DEVICE_FOLDS_H
#define GPR_TEST_DEVICE_FOLDS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `fold` and the dtypes are gpr_fold and gpr_dtype. */
int device_combine(int fold, int acc, const void *a, const void *b, void *result);
/* *result = combine(*result, b) by the fold's atomic. */
int device_atomic_combine(int fold, int acc, void *result, const void *b);
int device_identity(int fold, int compute, int acc, void *result);
/* An element of type `compute` as an accumulator. */
int device_lift(int fold, int compute, int acc, const void *element, uint64_t position,
                void *result);

#ifdef __cplusplus
}
#endif

#endif
