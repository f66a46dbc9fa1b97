// Exact sums of a few floats: as two doubles, which are rounded by one addition.
//
// Windows have to be placed, read and carried, which takes longer than adding three numbers. But s + x is a double and an
// error that is one too (Knuth's sum of two): so a sum is two doubles as long as errors add up without an error of their own.
// That says whether it is. Where it is not, as with numbers far from each other, infinities and NaN, windows are there.
#pragma once

#include "exact_windows.cuh"
#include "tile.cuh"

namespace gpr {

class TwoDoubles {
public:
    GPR_DEVICE TwoDoubles(double a, double b)
    {
        const Split two = split(a, b);
        first = two.sum;
        second = two.rest;
    }
    GPR_DEVICE void add(double x)
    {
        const Split upper = split(first, x), lower = split(second, upper.rest);
        first = upper.sum;
        second = lower.sum;
        lost |= (upper_bits(lower.rest) & ~sign_bit) | lower_bits(lower.rest);
    }
    // Whether they are the sum. With an infinity or NaN among the numbers, or beyond the largest, the second is NaN.
    GPR_DEVICE bool are_exact() const
    {
        constexpr unsigned exponent = 0x7ff00000u;
        return lost == 0 && (upper_bits(second) & exponent) != exponent;
    }
    // The sum rounded. A zero has the sign of the first one.
    GPR_DEVICE double rounded() const { return second == 0 ? first : first + second; }
    // Rounded to odd: rounding that to nearest, with two bits less or more than two, is rounding the sum to nearest.
    GPR_DEVICE double rounded_to_odd() const
    {
        const Split two = split(first, second);
        const long long bits = bit_copy<long long>(two.sum);
        if (two.rest == 0) return second == 0 ? first : two.sum;
        if (bits % 2 != 0) return two.sum;
        return bit_copy<double>(bits + ((two.rest < 0) == (two.sum < 0) ? 1 : -1));
    }

private:
    struct Split { double sum, rest; };
    double first, second;
    unsigned lost = 0; // bits of errors' errors

    static GPR_DEVICE Split split(double a, double b)
    {
        const double sum = a + b, of_b = sum - a, of_a = sum - of_b;
        return Split{sum, (a - of_a) + (b - of_b)};
    }
};

// Elements whose errors add up sooner than windows are placed.
constexpr unsigned most_few = 4;

// Puts the sum of the elements of vectors, at least two, if two doubles are it; says whether they are.
template <class In, unsigned VECTORS, class Out> GPR_DEVICE bool put_few(const Vector (&v)[VECTORS], Out *out)
{
    constexpr unsigned per_vector = vector_elements<In>;
    static_assert(VECTORS * per_vector >= 2 && VECTORS * per_vector <= most_few, "a few elements");
    const auto x = [&](unsigned i) { return static_cast<double>(element<In>(v[i / per_vector], i % per_vector)); };
    TwoDoubles sum(x(0), x(1));

#pragma unroll
    for (unsigned i = 2; i < VECTORS * per_vector; i++) sum.add(x(i));
    if (!sum.are_exact()) return false;
    if constexpr (sizeof(Out) == sizeof(double)) *out = sum.rounded();
    else *out = static_cast<Out>(sum.rounded_to_odd());
    return true;
}

} // namespace gpr
