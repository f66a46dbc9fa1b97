// Exact sums of a few floats: as two numbers, which are rounded by one addition.
//
// Windows have to be placed, read and carried, which takes longer than adding three numbers. But s + x is a float and an
// error that is one too (Knuth's sum of two): so a sum is two floats as long as errors add up without an error of their own.
// That says whether it is. Where it is not, as with numbers far from each other, infinities and NaN, doubles or windows are
// there.
#pragma once

#include "exact_windows.cuh"
#include "tile.cuh"

namespace gpr {

// F: float or double.
template <class F> class TwoNumbers {
public:
    GPR_DEVICE TwoNumbers(F a, F b)
    {
        const Split two = split(a, b);
        first = two.sum;
        second = two.rest;
    }
    GPR_DEVICE void add(F x)
    {
        const Split upper = split(first, x), lower = split(second, upper.rest);
        first = upper.sum;
        second = lower.sum;
        if constexpr (sizeof(F) == sizeof(float)) lost |= magnitude(lower.rest);
        else lost |= magnitude(lower.rest) | lower_bits(lower.rest);
    }
    // Whether they are the sum. With an infinity or NaN among the numbers, or beyond the largest, the second is NaN.
    GPR_DEVICE bool are_exact() const { return lost == 0 && magnitude(second) < infinity; }
    // The sum rounded to Out. A zero has the sign of the first number.
    template <class Out> GPR_DEVICE Out rounded() const
    {
        if constexpr (sizeof(Out) > sizeof(F)) return second == 0 ? Out(first) : Out(first) + Out(second);
        else if constexpr (sizeof(Out) == sizeof(F)) return second == 0 ? first : first + second;
        else return element_of<Out>(rounded_to_odd());
    }

private:
    struct Split { F sum, rest; };
    static constexpr unsigned infinity = sizeof(F) == sizeof(float) ? 0x7f800000u : 0x7ff00000u; // upper bits
    F first, second;
    unsigned lost = 0; // bits of errors' errors

    static GPR_DEVICE Split split(F a, F b)
    {
        const F sum = a + b, of_b = sum - a, of_a = sum - of_b;
        return Split{sum, (a - of_a) + (b - of_b)};
    }
    // Upper bits without the sign.
    static GPR_DEVICE unsigned magnitude(F x)
    {
        if constexpr (sizeof(F) == sizeof(float)) return bit_copy<unsigned>(x) & ~sign_bit;
        else return upper_bits(x) & ~sign_bit;
    }
    // Rounding this to nearest, to at least two bits less, is rounding the sum to nearest.
    GPR_DEVICE F rounded_to_odd() const
    {
        using Integer = typename Select<sizeof(F) == sizeof(float), int, long long>::type;
        const Split two = split(first, second);
        const Integer bits = bit_copy<Integer>(two.sum);
        if (two.rest == 0) return second == 0 ? first : two.sum;
        if (bits % 2 != 0) return two.sum;
        return bit_copy<F>(static_cast<Integer>(bits + ((two.rest < 0) == (two.sum < 0) ? 1 : -1)));
    }
};

// Elements whose errors add up sooner than windows are placed.
template <class In> constexpr unsigned most_few = sizeof(In) == sizeof(double) ? 4 : 8;
// What they are added as first: additions of float64 take twice as long, and conversions longer.
template <class In> using FewNumbers = typename Select<sizeof(In) == sizeof(double), double, float>::type;

// Puts the sum of the first COUNT elements of vectors as two F, if two F are it; says whether they are. Behind one element is a -0.
template <class F, unsigned COUNT, class In, unsigned VECTORS, class Out>
GPR_DEVICE bool put_few(const Vector (&v)[VECTORS], Out *out)
{
    constexpr unsigned per_vector = vector_elements<In>;
    static_assert(VECTORS * per_vector >= 2 && COUNT <= VECTORS * per_vector, "the first two are there");
    const auto x = [&](unsigned i) { return static_cast<F>(value_of(element<In>(v[i / per_vector], i % per_vector))); };
    TwoNumbers<F> sum(x(0), x(1));

#pragma unroll
    for (unsigned i = 2; i < COUNT; i++) sum.add(x(i));
    if (!sum.are_exact()) return false;
    *out = sum.template rounded<Out>();
    return true;
}

} // namespace gpr
