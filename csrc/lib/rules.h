/* Number rules: which type an operator computes in, accumulates in and returns, and how an accumulator becomes a
 * result. Pure. The device code follows the same rules through the cell's types. */
#ifndef GPR_LIB_RULES_H
#define GPR_LIB_RULES_H

#include "registry.h"

/* A reduction's types. Elements of the array are converted to `compute`, lifted to the accumulator, folded; the
 * accumulator becomes a `result`.
 * The accumulator is one of INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64. */
typedef struct gpr_rule {
    gpr_operator op;
    gpr_fold fold;
    gpr_dtype element;
    gpr_dtype compute;
    gpr_dtype device_acc; /* accumulator on the device */
    gpr_dtype host_acc;   /* accumulator on the CPU, and of chunk partials: at least as wide */
    gpr_dtype result;
    int divide; /* mean: the accumulator is divided by the number of elements */
} gpr_rule;

/* Rules of op over `element` with NumPy's dtype= argument `requested` (or GPR_DTYPE_DEFAULT).
 * GPR_ERROR_VALUE: an enumerator out of range; GPR_ERROR_TYPE: op does not take a dtype (min, max, any, all). */
gpr_status gpr_make_rule(gpr_operator op, gpr_dtype element, gpr_dtype requested, gpr_rule *rule);

/* Room for one accumulator of any type, or one element. */
typedef union gpr_value {
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    float f32;
    double f64;
    uint8_t bytes[8];
} gpr_value;

/* The fold's identity as an accumulator of type `acc` for elements computed in `compute` (the identity of min over
 * int8 is 127, not the accumulator's largest). */
gpr_value gpr_identity(gpr_fold fold, gpr_dtype compute, gpr_dtype acc);

/* The element of type `element` that leaves the fold unchanged; masked elements are replaced by it. */
gpr_value gpr_neutral_element(gpr_fold fold, gpr_dtype element);

/* Converts an accumulator from one accumulator type to another (device_acc to host_acc). */
gpr_value gpr_convert_acc(gpr_value value, gpr_dtype from, gpr_dtype to);

/* a fold b, both of type acc; NaN wins in min and max; integers wrap. */
gpr_value gpr_fold_acc(gpr_fold fold, gpr_dtype acc, gpr_value a, gpr_value b);

/* Folds `count` accumulators of type acc as a balanced tree over their order, so that floats err little and the same
 * way each time; destroys `values`. count 0: identity of `compute`. */
gpr_value gpr_fold_partials(gpr_fold fold, gpr_dtype compute, gpr_dtype acc, gpr_value *values, uint64_t count);

/* Writes `count` accumulators, packed at the size of `acc`, as results: each folded from `n` elements. acc may be
 * another than the rule's: integer sums may come as INT64 or UINT64 for a float result too. Unaligned result
 * addresses are allowed. */
void gpr_finish_results(const gpr_rule *rule, gpr_dtype acc, const void *accumulators, uint64_t count, uint64_t n,
                        void *results);

/* Conversions with round to nearest, ties to even; NaN stays NaN. */
float gpr_half_to_float(uint16_t bits);
uint16_t gpr_float_to_half(float value);
uint16_t gpr_double_to_half(double value);
float gpr_bfloat_to_float(uint16_t bits);
uint16_t gpr_double_to_bfloat(double value);

#endif
