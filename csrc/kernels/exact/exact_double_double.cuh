// Exact sums: two numbers whose sum is a sum, or a mean, which is rounded by one addition.
//
// s + x is a float plus an error that is a float, too (Knuth's two-sum). So a sum is two floats as
// long as the errors add up without an error of their own; that is collected.
//
// An addition is exact if and only if it has the same result rounded up and rounded down. Otherwise
// the two results are neighbours, whose bits as integers differ by 1, so that their last bits
// differ. A difference of 0 is +0 rounded up and -0 rounded down, whose last bits are the same.
//
// A mean is a quotient plus the quotient of its remainder, which is one float or two. The second
// quotient is rounded to odd, so that their sum is on the correct side of a midpoint.
#pragma once

#include "exact_rounding.cuh"

namespace gpr {

GPR_DEVICE float rounded_up(float a, float b) { return __fadd_ru(a, b); }
GPR_DEVICE float rounded_down(float a, float b) { return __fadd_rd(a, b); }
GPR_DEVICE double rounded_up(double a, double b) { return __dadd_ru(a, b); }
GPR_DEVICE double rounded_down(double a, double b) { return __dadd_rd(a, b); }
GPR_DEVICE unsigned last_bits(float x) { return bit_copy<unsigned>(x); }
GPR_DEVICE unsigned last_bits(double x) { return lower_bits(x); }

// The sum of two numbers. If it is not exact, the last bit of *lost is set; the first one means
// nothing. So many additions take an instruction each, and one test in the end. The sum is never -0
// if one of the numbers is not, and infinities and NaN are as they are by any addition.
template <class F> GPR_DEVICE F add_exactly(F a, F b, unsigned *lost)
{
    const F upper = rounded_up(a, b);
    *lost |= last_bits(upper) ^ last_bits(rounded_down(a, b));
    return upper;
}
// By all bits but the first: of the last one alone compilers make a truth value per addition.
GPR_DEVICE bool is_exact(unsigned lost) { return (lost & ~sign_bit) == 0; }

// The rounded sum of two numbers, and its error (Knuth's two-sum).
template <class F> GPR_DEVICE F two_sum(F a, F b, F *error)
{
    const F sum = a + b, of_b = sum - a, of_a = sum - of_b;
    *error = (a - of_a) + (b - of_b);
    return sum;
}
// Adds a number to a sum, and the error to a rest, of which *lost says what add_exactly() does.
template <class F> GPR_DEVICE void add_with_error(F &sum, F &rest, F x, unsigned *lost)
{
    F error;
    sum = two_sum(sum, x, &error);
    rest = add_exactly(rest, error, lost);
}

// F: float or double.
template <class F> class DoubleDouble {
public:
    GPR_DEVICE DoubleDouble(F a, F b)
    {
        const Split two = split(a, b);
        first = two.sum;
        second = two.rest;
    }
    GPR_DEVICE void add(F x) { add_with_error(first, second, x, &lost); }
    // Two numbers as they are.
    static GPR_DEVICE DoubleDouble of_pair(F a, F b)
    {
        DoubleDouble pair;
        pair.first = a;
        pair.second = b;
        return pair;
    }
    // Divides both numbers by a whole number `count`, of which `inverse` is the rounded inverse.
    // Returns whether it did: not if they are so small that bits of the quotients could be lost.
    GPR_DEVICE bool divide(F count, F inverse)
    {
        constexpr int fraction = Format<F>::fraction,
                      of_upper = fraction - (8 * static_cast<int>(sizeof(F)) - word_bits);
        constexpr unsigned least = static_cast<unsigned>(2 * fraction) << of_upper;
        const Split two = split(first, second);
        const F quotient = two.sum * inverse;
        const Split left = split(multiply_add(-quotient, count, two.sum), two.rest);
        const F guess = left.sum * inverse;
        const F nearest =
            multiply_add(multiply_add(-guess, count, left.sum) + left.rest, inverse, guess);
        const F rest = multiply_add(-nearest, count, left.sum) + left.rest;

        if (two.sum == 0) return true; // so is the mean, with that sign
        first = quotient;
        second = rest == 0 ? nearest : made_odd(nearest, rest);
        return magnitude(quotient) >= least && magnitude(quotient) < infinity;
    }
    // Whether they are the sum. With an infinity or NaN among the numbers, or beyond the largest,
    // the second is NaN.
    GPR_DEVICE bool are_exact() const { return is_exact(lost) && magnitude(second) < infinity; }
    // The sum rounded to Out. Without a +0 among the numbers, a sum of -0 is -0.
    template <class Out> GPR_DEVICE Out rounded() const
    {
        if constexpr (sizeof(Out) > sizeof(F))
            return second == 0 ? Out(first) : Out(first) + Out(second);
        else if constexpr (sizeof(Out) == sizeof(F)) return second == 0 ? first : first + second;
        else return element_of<Out>(rounded_to_odd());
    }

private:
    struct Split { F sum, rest; };
    DoubleDouble() = default;
    // upper bits
    static constexpr unsigned infinity = sizeof(F) == sizeof(float) ? 0x7f800000u : 0x7ff00000u;
    F first, second;
    unsigned lost = 0; // by additions of errors

    static GPR_DEVICE Split split(F a, F b)
    {
        Split two;
        two.sum = two_sum(a, b, &two.rest);
        return two;
    }
    // Upper bits without the sign.
    static GPR_DEVICE unsigned magnitude(F x)
    {
        if constexpr (sizeof(F) == sizeof(float)) return bit_copy<unsigned>(x) & ~sign_bit;
        else return upper_bits(x) & ~sign_bit;
    }
    static GPR_DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
    static GPR_DEVICE double multiply_add(double a, double b, double c)
    {
        return __fma_rn(a, b, c);
    }
    // The odd one of the two doubles next to the sum: x is the double nearest to the sum, which is
    // x and a remainder.
    static GPR_DEVICE F made_odd(F x, F rest)
    {
        const Bits<F> bits = bit_copy<Bits<F>>(x);
        if (x == 0) return bit_copy<F>((bit_copy<Bits<F>>(rest) & sign_of<F>) + 1);
        if (bits % 2 != 0) return x;
        return bit_copy<F>((rest < 0) == (x < 0) ? bits + 1 : bits - 1);
    }
    // Rounding this to nearest, to at least two bits less, is rounding the sum to nearest.
    GPR_DEVICE F rounded_to_odd() const
    {
        if (second == 0) return first;
        const Split two = split(first, second);
        if (two.rest == 0) return two.sum;
        return made_odd(two.sum, two.rest);
    }
};

// ---------------------------------------------------------------- results of pairs --------------

GPR_DEVICE bool is_nan_or_infinity(double x)
{
    constexpr unsigned exponent = 0x7ff00000u;
    return (upper_bits(x) & exponent) == exponent;
}

// Stores the sum of elements of type In, or the mean of n. The sum is `sum` and `rest`; it is not
// known if `rest` is NaN and `sum` finite. Returns whether it is stored. COUNTS: n may be 0, and
// the mean of nothing is NaN.
template <class In, bool IS_MEAN, bool COUNTS, class Out>
GPR_DEVICE bool store_pair(Out *out, double sum, double rest, uint64 n)
{
    constexpr uint64 sign = 1ull << (8 * sizeof(Out) - 1),
                     quiet = 1ull << (Format<Out>::fraction - 1);

    if (is_nan_or_infinity(sum)) {
        // Sums of narrower elements do not overflow: there was an infinity or NaN among them.
        if constexpr (sizeof(In) == sizeof(double)) return false;
        *out = float_of_bits<Out>(infinity_bits<Out> | (is_nan(sum) ? quiet : sum < 0 ? sign : 0));
        return true;
    }
    if (is_nan(rest)) return false;
    if constexpr (sizeof(In) == sizeof(double)) {
        if (is_nan_or_infinity(sum + rest)) return false;
    }
    static_assert(IS_MEAN || !COUNTS, "a sum of nothing is 0");
    if (COUNTS && n == 0) {
        *out = float_of_bits<Out>(infinity_bits<Out> | quiet);
        return true;
    }
    DoubleDouble<double> total = DoubleDouble<double>::of_pair(sum, rest);
    if constexpr (IS_MEAN) {
        const double divisor = static_cast<double>(n);
        if (!total.divide(divisor, 1 / divisor)) return false;
    }
    *out = total.template rounded<Out>();
    return true;
}

} // namespace gpr
