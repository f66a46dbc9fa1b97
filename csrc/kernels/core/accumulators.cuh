// Folds whose accumulators are structures: positions, ranges, sums with counts, moments.
//
// A structure can be copied as bytes, has no constructor and no padding, and has the layout of
// shared/packed_accumulators.h, which the host reads.
#pragma once

#include "operators.cuh"
#include "packed_accumulators.h"

namespace gpr {

// ---------------------------------------------------------------- positions ---------------------

// A number of at least 8 bytes and its position in its row.
template <class T> struct Indexed {
    using Number = T;
    T number;
    uint64 position;
};

static_assert(sizeof(Indexed<double>) == sizeof(double) + GPR_SECOND_BYTES, "a packed accumulator");

// The first of equal extremes, or the first NaN if there is one. Operands may be reordered: ties
// are decided by position.
template <class ExtremeFold> struct Find {
    using Extreme = ExtremeFold;
    static constexpr bool positional = true;

    // Whether a is preferred to b, whatever their positions.
    template <class T> static GPR_DEVICE bool prefers(T a, T b)
    {
        if constexpr (same<Extreme, fold_min>) return GPR_PREFERS(a, b, is_less, is_nan);
        else return GPR_PREFERS(a, b, is_greater, is_nan);
    }
    template <class Acc, class Compute> static GPR_DEVICE Acc identity()
    {
        return Acc{Extreme::template identity<typename Acc::Number, Compute>(), GPR_NOWHERE};
    }
    template <class Acc, class Compute> static GPR_DEVICE Acc lift(Compute x, uint64 i)
    {
        return Acc{element_of<typename Acc::Number>(value_of(x)), i};
    }
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return GPR_KEEPS(a.number, a.position, b.number, b.position, prefers) ? a : b;
    }
};

using fold_argmin = Find<fold_min>;
using fold_argmax = Find<fold_max>;

// ---------------------------------------------------------------- ranges ------------------------

template <class T> struct Range {
    using Number = T;
    T low, high;
};

struct fold_range {
    template <class Acc, class Compute> static GPR_DEVICE Acc identity()
    {
        return Acc{largest_of<Compute, typename Acc::Number>(),
                   smallest_of<Compute, typename Acc::Number>()};
    }
    template <class Acc, class Compute> static GPR_DEVICE Acc lift(Compute x)
    {
        const typename Acc::Number number = element_of<typename Acc::Number>(value_of(x));
        return Acc{number, number};
    }
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return Acc{smaller_of(a.low, b.low), larger_of(a.high, b.high)};
    }
};

// ---------------------------------------------------------------- sums with counts --------------

// A sum of at least 8 bytes and the number of its elements.
template <class T> struct SumCount {
    using Number = T;
    T sum;
    uint64 count;
};

static_assert(sizeof(SumCount<double>) == sizeof(double) + GPR_SECOND_BYTES,
              "a packed accumulator");

struct fold_sum_count {
    template <class Acc, class Compute> static GPR_DEVICE Acc identity()
    {
        return Acc{element_of<typename Acc::Number>(0), 0};
    }
    template <class Acc, class Compute> static GPR_DEVICE Acc lift(Compute x)
    {
        return Acc{element_of<typename Acc::Number>(value_of(x)), 1};
    }
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return Acc{GPR_COMBINE_sum(a.sum, b.sum), a.count + b.count};
    }
};

template <class T>
GPR_DEVICE void atomic_fold(fold_sum_count, SumCount<T> *address, SumCount<T> value)
{
    atomic_fold(fold_sum{}, &address->sum, value.sum);
    atomicAdd(&address->count, value.count);
}

// ---------------------------------------------------------------- moments -----------------------

// A real mean, as a double near it and the remainder. One double would not do for data far from
// zero: distances between means, which the sum of squares depends on, would have no significant
// digits.
struct RealMean {
    double near, rest;
};

template <class T> struct MeanOf { using type = RealMean; };
template <> struct MeanOf<dt_complex128> { using type = dt_complex128; };

GPR_DEVICE RealMean mean_of(double x) { return {x, 0}; }
GPR_DEVICE dt_complex128 mean_of(dt_complex128 x) { return x; }
GPR_DEVICE double value_of(RealMean mean) { return mean.near + mean.rest; }
GPR_DEVICE double apart(RealMean a, RealMean b)
{
    return gpr_mean_distance(a.near, a.rest, b.near, b.rest);
}
GPR_DEVICE dt_complex128 apart(dt_complex128 a, dt_complex128 b) { return b - a; }
GPR_DEVICE RealMean moved(RealMean mean, double by) { return {mean.near, mean.rest + by}; }
GPR_DEVICE dt_complex128 moved(dt_complex128 mean, dt_complex128 by) { return mean + by; }
GPR_DEVICE double scaled(double x, double factor) { return x * factor; }
GPR_DEVICE dt_complex128 scaled(dt_complex128 x, double factor)
{
    return {x.re * factor, x.im * factor};
}
GPR_DEVICE double inner(double x, double y) { return x * y; }
GPR_DEVICE double inner(dt_complex128 x, dt_complex128 y) { return x.re * y.re + x.im * y.im; }
GPR_DEVICE double squared(double x) { return x * x; }
GPR_DEVICE double squared(dt_complex128 x) { return x.re * x.re + x.im * x.im; }

// The mean of `count` numbers and the sum of their squared distances from it.
template <class T> struct Moments {
    using Number = T;
    typename MeanOf<T>::type mean;
    double squares;
    uint64 count;
};

static_assert(sizeof(RealMean) == GPR_MEAN_BYTES && sizeof(dt_complex128) == GPR_MEAN_BYTES &&
                  sizeof(Moments<double>) == GPR_MEAN_BYTES + 2 * GPR_SECOND_BYTES,
              "a packed accumulator");

struct fold_moments {
    template <class Acc, class Compute> static GPR_DEVICE Acc identity()
    {
        return Acc{mean_of(element_of<typename Acc::Number>(0)), 0, 0};
    }
    template <class Acc, class Compute> static GPR_DEVICE Acc lift(Compute x)
    {
        const typename Acc::Number number = element_of<typename Acc::Number>(value_of(x));
        // The square is 0, but NaN for an infinity or NaN.
        return Acc{mean_of(number), squared(number - number), 1};
    }
    // Merges two sets (shared/folds.h): squared distances add up, plus a term for the distance
    // between the two means.
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        if (a.count == 0) return b;
        if (b.count == 0) return a;
        const double share = gpr_moments_share(a.count, b.count);
        const typename Acc::Number distance = apart(a.mean, b.mean);
        return Acc{moved(a.mean, scaled(distance, share)),
                   a.squares + b.squares + gpr_squares_between(squared(distance), share, a.count),
                   a.count + b.count};
    }
};

// Whether a number is infinite or NaN.
GPR_DEVICE bool is_special(double x)
{
    constexpr uint64 field = 0x7ffull << 52; // the exponent's
    return (bit_copy<uint64>(x) & field) == field;
}
GPR_DEVICE bool is_special(dt_complex128 x) { return is_special(x.re) || is_special(x.im); }
// The parts of a number that are infinite or NaN; 0 for the other parts.
GPR_DEVICE double special_of(double x) { return is_special(x) ? x : 0; }
GPR_DEVICE dt_complex128 special_of(dt_complex128 x)
{
    return {special_of(x.re), special_of(x.im)};
}

// Moments of floats that become a variance about a given mean: infinities have a distance from
// that, though none from their own mean. Moments whose `squares` is finite are those of finite
// elements. Otherwise `squares` is NaN if an element is NaN, else infinite, and each part of the
// mean is the sum of that part's infinities: an infinity if they have one sign, NaN if they have
// both, 0 if there are none and finite distances are too large for doubles.
struct fold_moments_about : fold_moments {
    template <class Acc, class Compute> static GPR_DEVICE Acc lift(Compute x)
    {
        const typename Acc::Number number = element_of<typename Acc::Number>(value_of(x)),
                                   special = special_of(number);
        return Acc{mean_of(is_special(number) ? special : number), squared(special), 1};
    }
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        using Number = typename Acc::Number;
        Acc merged = fold_moments::combine(a, b);
        if (is_special(merged.squares)) {
            const Number zero = element_of<Number>(0);
            merged.mean = mean_of((is_special(a.squares) ? value_of(a.mean) : zero) +
                                  (is_special(b.squares) ? value_of(b.mean) : zero));
            merged.squares = special_of(a.squares) + special_of(b.squares);
            if (merged.squares == 0) merged.squares = largest_of<double, double>();
        }
        return merged;
    }
};

} // namespace gpr
