/* Sums of exponentials, of which `logsumexp` is the logarithm: what the CPU backend
 * (cpu/exp_sums.c) and the operator of kernels (src/gpureduce/_yours/exponentials.py) fold.
 *
 * The largest element itself is in no sum: log(sum) = largest + log1p(others / exp(largest)), and
 * results near 0 keep their digits. The others' exponentials are summed in units of 2^k, the power
 * of two next to the largest one's. A change of such a unit rounds nothing, and sums are pairs of
 * doubles: so the error does not grow with the number of elements, in any order.
 *
 * Elements beyond GPR_EXP_MOST are farther apart than exponentials are accurate. A sum with such a
 * largest element is relative to it, and merging multiplies it by exponentials: what that rounds is
 * far below the last place of the result.
 *
 * exp, ldexp, log1p and rint are the C library's or CUDA's. */
#ifndef GPR_SHARED_EXP_STATES_H
#define GPR_SHARED_EXP_STATES_H

#include "language.h"

#ifndef __cplusplus
#include <math.h>
#endif

enum {
    GPR_EXP_REACH = 800,   /* exp(-GPR_EXP_REACH) is 0 */
    GPR_EXP_MOST = 1 << 20 /* most magnitude of an element that exp is taken of */
};
#define GPR_EXP_NO_UNIT (-0x1p22) /* of no other elements: less than those of all elements */
#define GPR_EXP_LARGEST 0x1.fffffffffffffp1023 /* finite number */

/* log(2) is the sum of a number of 32 bits, whose product with |k| < 2^21 is exact, and of one of
 * 53: x - k log(2) has the accuracy of a double for |x| < 2^20 * 1.38. */
#define GPR_LOG2_HIGH 0x1.62e42feep-1
#define GPR_LOG2_LOW 0x1.a39ef35793c76p-33
#define GPR_LOG2_E 0x1.71547652b82fep+0 /* 1 / log(2) */

/* exp(r) = 1 + r + r^2 q(r) for |r| <= log(2) / 2, where q interpolates at Chebyshev's points: of
 * degree 9 the error is 2^-55.8, of degree 6 2^-37.7, relative to exp(r). */
#define GPR_EXP_QUOTIENTS_9                                                                 \
    0x1.0000000000001p-1, 0x1.5555555555556p-3, 0x1.5555555553d63p-5, 0x1.11111111109b3p-7, \
        0x1.6c16c1788bd90p-10, 0x1.a01a01a7c41d5p-13, 0x1.a019b90d2ae7ap-16,                \
        0x1.71de0dae63bb3p-19, 0x1.289185613a3d6p-22, 0x1.af38a9b0ec855p-26
#define GPR_EXP_QUOTIENTS_6                                                                 \
    0x1.0000000000000p-1, 0x1.55555567532adp-3, 0x1.5555555c87148p-5, 0x1.1110c632a3088p-7, \
        0x1.6c16858b7acb9p-10, 0x1.a15179d80ae96p-13, 0x1.a1132015ba37ep-16

/* Adding it rounds doubles to integers, which are in the last bits of the sum then. */
#define GPR_EXP_ROUNDER 0x1.8p52

/* A sum of up to 512 terms below 2 has exact multiples of the last place of this number, 2^-42;
 * what is below it is summed by itself, and rounding that sum counts for nothing. */
#define GPR_EXP_SPLITTER 0x1.8p10

/* Of some elements of a row. */
typedef struct gpr_exp_state {
    double largest;   /* -inf: of no elements, or of nothing else; NaN if one of them is */
    double sum, rest; /* sum + rest of the other elements' exponentials, in units ... */
    double unit;      /* ... of 2^unit; of exp(largest) if that is shifted */
} gpr_exp_state;

/* The state of one element; of -inf, that of none. */
GPR_SHARED_INLINE gpr_exp_state gpr_exp_state_of(double x)
{
    const gpr_exp_state state = {x, 0, 0, GPR_EXP_NO_UNIT};

    return state;
}

GPR_SHARED_INLINE int gpr_exp_is_empty(double largest)
{
    return largest < -GPR_EXP_LARGEST;
}

GPR_SHARED_INLINE int gpr_exp_is_nan(double x)
{
    return !(x <= 0 || x > 0);
}

GPR_SHARED_INLINE int gpr_exp_is_finite(double x)
{
    return fabs(x) <= GPR_EXP_LARGEST;
}

GPR_SHARED_INLINE int gpr_exp_is_shifted(double largest)
{
    return fabs(largest) > GPR_EXP_MOST;
}

/* The integer k nearest to x / log(2), and exp(x) / 2^k. */
GPR_SHARED_INLINE double gpr_exp_exponent(double x)
{
    return rint(x * GPR_LOG2_E);
}

GPR_SHARED_INLINE double gpr_exp_power(double x, double k)
{
    return exp((x - k * GPR_LOG2_HIGH) - k * GPR_LOG2_LOW);
}

GPR_SHARED_INLINE double gpr_exp_scaled(double x, double exponent)
{
    return exponent < -2 * GPR_EXP_REACH ? 0 : ldexp(x, (int)exponent);
}

/* Adds a number in the state's unit. */
GPR_SHARED_INLINE void gpr_exp_add(gpr_exp_state *state, double x)
{
    const double sum = state->sum + x, part = sum - state->sum;

    state->rest += (state->sum - (sum - part)) + (x - part);
    state->sum = sum;
}

GPR_SHARED_INLINE void gpr_exp_raise_unit(gpr_exp_state *state, double unit)
{
    if (unit <= state->unit) return;
    state->sum = gpr_exp_scaled(state->sum, state->unit - unit);
    state->rest = gpr_exp_scaled(state->rest, state->unit - unit);
    state->unit = unit;
}

/* The other elements' exponentials over the largest one's. */
GPR_SHARED_INLINE double gpr_exp_ratio(gpr_exp_state state)
{
    const double all = state.sum + state.rest;

    if (all == 0 || gpr_exp_is_shifted(state.largest)) return all;
    const double k = gpr_exp_exponent(state.largest);
    return gpr_exp_scaled(all / gpr_exp_power(state.largest, k), state.unit - k);
}

/* Merges states of which one has a largest element that is shifted; `lower` has the smaller one. */
GPR_SHARED_INLINE void gpr_exp_merge_shifted(gpr_exp_state *state, gpr_exp_state lower)
{
    if (!gpr_exp_is_shifted(state->largest) && state->largest - lower.largest >= GPR_EXP_REACH)
        return;
    const double all = gpr_exp_ratio(lower) + 1;

    if (gpr_exp_is_shifted(state->largest)) {
        gpr_exp_add(state, all * exp(lower.largest - state->largest));
    } else {
        const double k = gpr_exp_exponent(lower.largest);

        gpr_exp_raise_unit(state, k);
        gpr_exp_add(state, gpr_exp_scaled(all * gpr_exp_power(lower.largest, k), k - state->unit));
    }
}

/* Merges two states, in any order of their elements. */
GPR_SHARED_FUNCTION gpr_exp_state gpr_exp_merge(gpr_exp_state a, gpr_exp_state b)
{
    if (gpr_exp_is_nan(a.largest) || gpr_exp_is_empty(b.largest)) return a;
    const int b_is_larger = !(a.largest >= b.largest); /* or NaN */
    gpr_exp_state state = b_is_larger ? b : a;
    const gpr_exp_state lower = b_is_larger ? a : b;

    /* Infinity and NaN, and nothing besides. */
    if (!gpr_exp_is_finite(state.largest) || gpr_exp_is_empty(lower.largest)) return state;
    if (gpr_exp_is_shifted(state.largest) || gpr_exp_is_shifted(lower.largest)) {
        gpr_exp_merge_shifted(&state, lower);
        return state;
    }
    const double k = gpr_exp_exponent(lower.largest);

    gpr_exp_raise_unit(&state, k);
    if (lower.unit != GPR_EXP_NO_UNIT) { /* more than one element */
        gpr_exp_add(&state, gpr_exp_scaled(lower.sum, lower.unit - state.unit));
        gpr_exp_add(&state, gpr_exp_scaled(lower.rest, lower.unit - state.unit));
    }
    gpr_exp_add(&state, gpr_exp_scaled(gpr_exp_power(lower.largest, k), k - state.unit));
    return state;
}

/* The logarithm of the sum of exponentials. */
GPR_SHARED_FUNCTION double gpr_exp_result(gpr_exp_state state)
{
    if (!gpr_exp_is_finite(state.largest)) return state.largest;
    return state.largest + log1p(gpr_exp_ratio(state));
}

#endif
