/* Folds of two accumulators: what kernels (kernels/core/operators.cuh, accumulators.cuh), the
 * library (lib/rules/host_folds.c) and the loops of the CPU backend (cpu/loops_template.h) compute
 * alike. csrc/registry/folds.def lists the folds.
 *
 * Macros, because the three have other types: a C++ template's, C's numbers, and vectors. Operands
 * are evaluated more than once; a comes before b in the array.
 *
 * tests/c/kernels/test_folds.c compares all three, also where each has its own form: complex
 * numbers, the loops' minima of vectors, atomics. */
#ifndef GPR_SHARED_FOLDS_H
#define GPR_SHARED_FOLDS_H

#include "language.h"

/* The accumulator that leaves every other one as it is. Of elements: an element that is masked is
 * replaced by it. */
typedef enum gpr_identity_kind {
    GPR_IDENTITY_ZERO,
    /* leaves -0 as it is, too; integers have one zero */
    GPR_IDENTITY_MINUS_ZERO,
    GPR_IDENTITY_ONE,
    GPR_IDENTITY_ALL_BITS, /* of the accumulator, which may have more than the element */
    GPR_IDENTITY_LARGEST,  /* element; infinity for floats */
    GPR_IDENTITY_SMALLEST,
    GPR_IDENTITY_NAN,
    GPR_IDENTITY_STRUCTURE /* of several numbers: no element has its effect */
} gpr_identity_kind;

/* ---------------------------------------------------------------- numbers -------------------- */

#define GPR_LESS(a, b) ((a) < (b))
#define GPR_GREATER(a, b) ((a) > (b))
/* Never true of an integer. */
#define GPR_IS_NAN(a) ((a) != (a))
/* The order of complex numbers without NaN: real parts first, then imaginary parts. */
#define GPR_COMPLEX_LESS(a_re, a_im, b_re, b_im) \
    ((a_re) < (b_re) || ((a_re) == (b_re) && (a_im) < (b_im)))

/* The number that is BEFORE the other, b of equal ones; NaN where either is NaN. BEFORE is never
 * true of NaN. */
#define GPR_EXTREME(a, b, BEFORE, NAN_TEST) (BEFORE(a, b) || NAN_TEST(a) ? (a) : (b))
/* NaN only where both are NaN. */
#define GPR_EXTREME_NUMBER(a, b, BEFORE, NAN_TEST) (BEFORE(a, b) || NAN_TEST(b) ? (a) : (b))

/* Integers are summed and multiplied unsigned: they wrap. */
#define GPR_COMBINE_sum(a, b) ((a) + (b))
#define GPR_COMBINE_prod(a, b) ((a) * (b))
#define GPR_COMBINE_min(a, b) GPR_EXTREME(a, b, GPR_LESS, GPR_IS_NAN)
#define GPR_COMBINE_max(a, b) GPR_EXTREME(a, b, GPR_GREATER, GPR_IS_NAN)
#define GPR_COMBINE_fmin(a, b) GPR_EXTREME_NUMBER(a, b, GPR_LESS, GPR_IS_NAN)
#define GPR_COMBINE_fmax(a, b) GPR_EXTREME_NUMBER(a, b, GPR_GREATER, GPR_IS_NAN)
/* Accumulators of any, all and odd are 0 or 1. */
#define GPR_COMBINE_any(a, b) ((a) | (b))
#define GPR_COMBINE_all(a, b) ((a) & (b))
#define GPR_COMBINE_odd(a, b) ((a) ^ (b))
#define GPR_COMBINE_count(a, b) ((a) + (b))
#define GPR_COMBINE_bit_and(a, b) ((a) & (b))
#define GPR_COMBINE_bit_or(a, b) ((a) | (b))
#define GPR_COMBINE_bit_xor(a, b) ((a) ^ (b))

/* ---------------------------------------------------------------- positions ------------------ */

/* Whether argmin or argmax prefer a to b, whatever their positions: NaN wins. */
#define GPR_PREFERS(a, b, BEFORE, NAN_TEST) (BEFORE(a, b) || (NAN_TEST(a) && !NAN_TEST(b)))
/* Whether a found at a_position is kept, and not b: the preferred number, and the first of equal
 * numbers and of several NaN. Positions decide, not the order of operands: those may be
 * reordered. */
#define GPR_KEEPS(a, a_position, b, b_position, PREFERS) \
    (((a_position) < (b_position) && !PREFERS(b, a)) || PREFERS(a, b))

/* ---------------------------------------------------------------- moments -------------------- */

/* Chan, Golub and LeVeque's merge of two sets: the mean moves towards the other mean by the other
 * set's share of all elements, and the squared distances grow by the product of the squared
 * distance of the means, one set's share, and the other one's size. Neither set is empty.
 *
 * The product is the same number whichever set has the share, but for its rounding: kernels take
 * the share of b, the host takes that of a, and each keeps its bits. */

/* From mean a to mean b. A mean is a number near it and the rest. */
GPR_SHARED_INLINE double gpr_mean_distance(double a_near, double a_rest, double b_near,
                                           double b_rest)
{
    return (b_near - a_near) + (b_rest - a_rest);
}

/* Share of b's elements among those of a and b. */
GPR_SHARED_INLINE double gpr_moments_share(gpr_u64 a_count, gpr_u64 b_count)
{
    double share = 0.5; /* what the division gives for sets of equal size, the usual case */

    if (a_count != b_count) share = (double)b_count / (double)(a_count + b_count);
    return share;
}

/* `share` is one set's, `other_count` the size of the other one. */
GPR_SHARED_INLINE double gpr_squares_between(double squared_distance, double share,
                                             gpr_u64 other_count)
{
    return squared_distance * share * (double)other_count;
}

#endif
