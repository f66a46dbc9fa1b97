/* Natural numbers of many limbs: limbs of 32 bits, the lowest first. What variances are divided by,
 * on the host (lib/exact/exact_variance.c) and in kernels (kernels/exact/exact_variance.cuh). In a
 * kernel one lane calls, for numbers in shared memory.
 *
 * The division is Knuth's algorithm D (The Art of Computer Programming 4.3.1). */
#ifndef GPR_SHARED_LIMBS_H
#define GPR_SHARED_LIMBS_H

#include "language.h"

enum { GPR_LIMB32_BITS = 32, GPR_LEAST_DIVISOR_LIMBS = 2 };
#define GPR_LIMB32_MASK 0xffffffffu

/* Limbs in use: up to the highest that is not 0. */
GPR_SHARED_FUNCTION int gpr_limbs_used(const gpr_u32 *limb, int count)
{
    GPR_NOT_UNROLLED
    while (count > 0 && limb[count - 1] == 0) count--;
    return count;
}

/* Shifts left by fewer than 32 bits. Returns what leaves the highest limb. */
GPR_SHARED_FUNCTION gpr_u32 gpr_limbs_shift_left(gpr_u32 *limb, int count, int shift)
{
    gpr_u64 carry = 0;

    GPR_NOT_UNROLLED
    for (int i = 0; i < count; i++) {
        carry |= (gpr_u64)limb[i] << shift;
        limb[i] = (gpr_u32)carry;
        carry >>= GPR_LIMB32_BITS;
    }
    return (gpr_u32)carry;
}

/* Carries columns, each worth 2^32 times the one before, to limbs. Returns whether the number is
 * negative: then the limbs are its two's complement. */
GPR_SHARED_FUNCTION int gpr_limbs_carry(const gpr_i64 *column, int count, gpr_u32 *limb)
{
    gpr_i64 carry = 0;

    GPR_NOT_UNROLLED
    for (int i = 0; i < count; i++) {
        carry += column[i];
        limb[i] = (gpr_u32)carry;
        carry >>= GPR_LIMB32_BITS;
    }
    return carry < 0;
}

/* One limb q of a quotient: subtracts q * divisor from the `count` + 1 limbs at `rest`, so that
 * less than the divisor is left. The divisor has two limbs or more, and its highest bit is set; the
 * rest is less than 2^32 times the divisor.
 *
 * q is guessed from the two highest limbs of the rest and the highest of the divisor, and corrected
 * by the next limb of both: the guess is then right, or one too large (Knuth's theorem B and
 * exercise 20). Where it was too large the subtraction borrows, and the divisor is added back. */
GPR_SHARED_FUNCTION gpr_u32 gpr_limbs_quotient_limb(gpr_u32 *rest, const gpr_u32 *divisor,
                                                    int count)
{
    const gpr_u64 first = divisor[count - 1], second = divisor[count - 2];
    const gpr_u64 top = (gpr_u64)rest[count] << GPR_LIMB32_BITS | rest[count - 1];
    gpr_u64 guess = top / first, left = top % first, carry = 0;
    gpr_i64 borrow = 0;

    GPR_NOT_UNROLLED
    while (
        left <= GPR_LIMB32_MASK &&
        (guess > GPR_LIMB32_MASK || guess * second > (left << GPR_LIMB32_BITS | rest[count - 2]))) {
        guess--;
        left += first;
    }
    GPR_NOT_UNROLLED
    for (int i = 0; i < count; i++) {
        carry += guess * divisor[i];
        borrow += (gpr_i64)rest[i] - (gpr_i64)(carry & GPR_LIMB32_MASK);
        rest[i] = (gpr_u32)borrow;
        borrow >>= GPR_LIMB32_BITS;
        carry >>= GPR_LIMB32_BITS;
    }
    borrow += (gpr_i64)rest[count] - (gpr_i64)carry;
    rest[count] = (gpr_u32)borrow;
    if (borrow >= 0) return (gpr_u32)guess;
    carry = 0;
    GPR_NOT_UNROLLED
    for (int i = 0; i < count; i++) {
        carry += (gpr_u64)rest[i] + divisor[i];
        rest[i] = (gpr_u32)carry;
        carry >>= GPR_LIMB32_BITS;
    }
    rest[count] += (gpr_u32)carry;
    return (gpr_u32)(guess - 1);
}

/* The lowest GPR_QUOTIENT_LIMBS of a quotient, and whether the remainder is not 0. */
enum { GPR_QUOTIENT_LIMBS = 4 };

typedef struct gpr_quotient {
    gpr_u64 high, low;
    int inexact;
} gpr_quotient;

/* Divides the `count` + `quotients` limbs at `rest` by a divisor as above: a quotient of so many
 * limbs. The remainder stays at `rest`. */
GPR_SHARED_FUNCTION gpr_quotient gpr_limbs_divide(gpr_u32 *rest, const gpr_u32 *divisor, int count,
                                                  int quotients)
{
    gpr_quotient quotient = {0, 0, 0};
    gpr_u32 left = 0;

    GPR_NOT_UNROLLED
    for (int i = quotients - 1; i >= 0; i--) {
        quotient.high = quotient.high << GPR_LIMB32_BITS | quotient.low >> GPR_LIMB32_BITS;
        quotient.low =
            quotient.low << GPR_LIMB32_BITS | gpr_limbs_quotient_limb(rest + i, divisor, count);
    }
    GPR_NOT_UNROLLED
    for (int i = 0; i < count; i++) left |= rest[i];
    quotient.inexact = left != 0;
    return quotient;
}

#endif
