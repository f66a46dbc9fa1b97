// Exact sums of a few floats, and their means: as two numbers (exact_double_double.cuh).
//
// To place, read and carry bins takes longer than to add three numbers. If two numbers are not the
// sum (numbers far from each other, infinities, NaN), the row is summed as doubles, or in bins.
#pragma once

#include "exact_block.cuh"
#include "exact_double_double.cuh"

namespace gpr {

// The most elements for which adding errors is faster than placing bins.
template <class In> constexpr unsigned most_terms = gpr_most_double_double(sizeof(In));
// The type in which elements are added first. Additions of float64 take twice as long, conversions
// longer. The terms of a mean are not narrower than the mean.
template <class Traits>
constexpr bool terms_are_doubles =
    sizeof(typename Traits::In) == sizeof(double) ||
    (makes_means<Traits> && sizeof(typename Traits::Out) == sizeof(double));
template <class Traits>
using Term = typename Select<terms_are_doubles<Traits>, double, float>::type;

// Stores the sum of the first COUNT elements of vectors, or their mean, if two numbers of type F
// are the sum. Returns whether they are. A single element is followed by a -0.
template <class Traits, class F, unsigned COUNT, unsigned VECTORS>
GPR_DEVICE bool store_double_double(const Vector (&v)[VECTORS], typename Traits::Out *out)
{
    using In = typename Traits::In;
    using Out = typename Traits::Out;
    constexpr unsigned per_vector = vector_elements<In>;
    static_assert(VECTORS * per_vector >= 2 && COUNT <= VECTORS * per_vector,
                  "the first two are there");
    const auto x = [&](unsigned i) {
        return static_cast<F>(value_of(element<In>(v[i / per_vector], i % per_vector)));
    };
    DoubleDouble<F> sum(x(0) + F(0), x(1)); // a sum starts at +0

#pragma unroll
    for (unsigned i = 2; i < COUNT; i++) sum.add(x(i));
    if (!sum.are_exact()) return false;
    if constexpr (makes_means<Traits>) {
        static_assert(sizeof(Out) <= sizeof(F),
                      "the second quotient is odd to limbs that an Out has not");
        constexpr F count = F(COUNT), inverse = 1 / count;
        if (!sum.divide(count, inverse)) return false;
    }
    *out = sum.template rounded<Out>();
    return true;
}

} // namespace gpr
