// Finalizing: how an accumulator becomes a result. Kernels of `fast` and `exact` store results
// themselves; after other kernels finalize_rows, or the host (lib/rules), turns accumulators into
// results.
#pragma once

#include "kernel_traits.cuh"
#include "launch_params.h"

namespace gpr {

// What a result depends on beside its accumulator.
struct FinalizeParams : gpr_finalize_params {
    // Returns the parameters of one row of the layout: number `row` along its kept axes and number
    // `column` along its column.
    template <class Layout> GPR_DEVICE FinalizeParams of_row(const Layout &, uint64, uint64) const
    {
        return *this;
    }
};

// A row's parameters for a variance about a given mean.
template <class Number> struct RowGivenMean : FinalizeParams { Number given; };

// Parameters of all rows for variances about given means: an array with strides of its own, or one
// mean for all rows.
template <class Given, class Number>
struct FinalizeParamsGivenMean : FinalizeParams, gpr_given_mean_params {
    long long kept[kept_axes]; // steps in given means along the layout's kept axes

    template <class Layout>
    GPR_DEVICE RowGivenMean<Number> of_row(const Layout &layout, uint64 row, uint64 place) const
    {
        static_assert(sizeof *this ==
                          sizeof(gpr_finalize_params) + sizeof(gpr_given_mean_params) + sizeof kept,
                      "given means follow what every result depends on, as the host writes them");
        if (means == nullptr)
            return {*this, element_of<Number>(dt_complex128{for_all[0], for_all[1]})};
        long long at = static_cast<long long>(place) * column;
#pragma unroll
        for (unsigned a = kept_axes; a-- > 0;) {
            const uint64 i = a > 0 ? row % layout.kept[a].extent : row;
            at += static_cast<long long>(i) * kept[a];
            if (a > 0) row /= layout.kept[a].extent;
        }
        return {*this, element_of<Number>(value_of(static_cast<const Given *>(means)[at]))};
    }
};

// ---------------------------------------------------------------- finish functors ---------------

// A finish functor, named by an operator's row in the registry, has
//   store<Traits>(out, acc, n, params)    *out = the result of a row of n elements

// The accumulator's number.
struct finish_number {
    template <class Traits, class Acc, class Out>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64, FinalizeParams)
    {
        *out = element_of<Out>(acc);
    }
};

// A sum from a start of +0 on, as NumPy's: nothing but -0 comes to +0.
template <class Number> GPR_DEVICE Number from_zero(Number sum)
{
    if constexpr (is_integer<Number>) return sum;
    else return sum + element_of<Number>(0);
}

struct finish_sum {
    template <class Traits, class Acc, class Out>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64, FinalizeParams)
    {
        *out = element_of<Out>(from_zero(acc));
    }
};

GPR_DEVICE double over(double sum, double count) { return sum / count; }
GPR_DEVICE dt_complex128 over(dt_complex128 sum, double count)
{
    return {sum.re / count, sum.im / count};
}

// Returns a sum as double. A sum of integers is first converted to its compute type: NumPy's sum
// would have wrapped there, and the accumulator is unsigned.
template <class Compute, class Number> GPR_DEVICE auto as_computed(Number sum)
{
    if constexpr (is_complex<Number>) return element_of<dt_complex128>(sum);
    else if constexpr (is_float<Number>) return static_cast<double>(sum);
    else return static_cast<double>(value_of(element_of<Compute>(sum)));
}

struct finish_mean {
    template <class Traits, class Acc, class Out>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64 n, FinalizeParams)
    {
        *out = element_of<Out>(
            over(from_zero(as_computed<typename Traits::Compute>(acc)), static_cast<double>(n)));
    }
    template <class Traits, class T, class Out>
    static GPR_DEVICE void store(Out *out, SumCount<T> acc, uint64, FinalizeParams)
    {
        *out = element_of<Out>(over(from_zero(as_computed<typename Traits::Compute>(acc.sum)),
                                    static_cast<double>(acc.count)));
    }
};

// The position; -1 where all elements of the row were skipped.
struct finish_position {
    template <class Traits, class Acc, class Out>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64, FinalizeParams)
    {
        *out = static_cast<Out>(acc.position);
    }
};

struct finish_variance {
    // With ddof elements or fewer the result is that of a division by 0; where NaNs are skipped it
    // is always NaN.
    template <class Traits, class Acc>
    static GPR_DEVICE double variance(Acc acc, FinalizeParams params)
    {
        const double divisor = static_cast<double>(acc.count) - params.ddof;
        if constexpr (Traits::skips_nan) acc.squares = divisor > 0 ? acc.squares : 0;
        return acc.squares / (divisor > 0 ? divisor : 0);
    }
    template <class Traits, class Acc, class Out>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64, FinalizeParams params)
    {
        *out = element_of<Out>(variance<Traits>(acc, params));
    }
};

struct finish_deviation {
    template <class Traits, class Acc, class Out>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64, FinalizeParams params)
    {
        *out = element_of<Out>(sqrt(finish_variance::variance<Traits>(acc, params)));
    }
};

// The distance of a sum of infinities from a given mean. From a finite mean all of them are as far
// as each other; from an infinity those of its sign have none.
GPR_DEVICE double special_apart(double sum, double given)
{
    return is_special(given) ? given - sum : 0;
}
GPR_DEVICE dt_complex128 special_apart(dt_complex128 sum, dt_complex128 given)
{
    return {special_apart(sum.re, given.re), special_apart(sum.im, given.im)};
}

// A variance or deviation about a given mean of type Given. The sum of squared distances grows by
// the squared distance between both means, once per element; where it is infinite or NaN,
// fold_moments_about says what the mean is. Rows without elements have no distance, even from NaN.
template <class Way, class Given> struct GivenMean {
    template <class Traits, class Acc, class Out, class Number>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64 n, const RowGivenMean<Number> &params)
    {
        if (acc.count != 0) {
            Number distance = apart(acc.mean, mean_of(params.given));
            if constexpr (same<typename Traits::Fold, fold_moments_about>) {
                if (is_special(acc.squares))
                    distance = special_apart(value_of(acc.mean), params.given);
            }
            acc.squares += squared(distance) * static_cast<double>(acc.count);
        }
        Way::template store<Traits>(out, acc, n, params);
    }
};

// The extreme of a row that has one element more, which comes last: an accumulator does not know
// whether its row had others.
template <class Way> struct FromStart {
    template <class Traits, class Acc, class Out>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64 n, FinalizeParams params)
    {
        typename Traits::In start;
        static_assert(sizeof start <= sizeof params.start, "an element fits");
        memcpy(&start, params.start, sizeof start);
        Way::template store<Traits>(out, Traits::combine(acc, Traits::lift(start, 0)), n, params);
    }
};

// The parameters of a finish functor.
template <class Way, class Acc> struct FinalizeParamsOf { using type = FinalizeParams; };
template <class Way, class Given, class Acc> struct FinalizeParamsOf<GivenMean<Way, Given>, Acc> {
    using type = FinalizeParamsGivenMean<Given, typename Acc::Number>;
};

// Integers wrap, as NumPy's do.
struct finish_distance {
    template <class Traits, class Acc, class Out>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64, FinalizeParams)
    {
        if constexpr (is_integer<typename Acc::Number>) {
            *out = static_cast<Out>(static_cast<uint64>(acc.high) - static_cast<uint64>(acc.low));
        } else {
            *out = element_of<Out>(acc.high - acc.low);
        }
    }
};

struct finish_both {
    template <class Traits, class Acc, class Out>
    static GPR_DEVICE void store(Out *out, Acc acc, uint64, FinalizeParams params)
    {
        out[0] = element_of<Out>(acc.low);
        out[params.output_stride] = element_of<Out>(acc.high);
    }
};

// ---------------------------------------------------------------- traits that finish ------------

// Traits of a kernel that stores accumulators, which the host merges: of chunks of host arrays, or
// of arrays added to an ExactSum.
template <class BaseTraits> struct Unfinished : BaseTraits {
    using Out = typename BaseTraits::Acc;
    using AllParams = FinalizeParams;
    static GPR_DEVICE void store(Out *out, typename BaseTraits::Acc acc, uint64, FinalizeParams)
    {
        *out = acc;
    }
};

// Traits of a kernel that stores results. `out` points to a row's result; AllParams is the kernel's
// parameter, of_row of it a row's.
template <class BaseTraits, class Result, class Way> struct Finished : BaseTraits {
    using Out = Result;
    using AllParams = typename FinalizeParamsOf<Way, typename BaseTraits::Acc>::type;
    template <class RowParams>
    static GPR_DEVICE void store(Out *out, typename BaseTraits::Acc acc, uint64 n,
                                 const RowParams &params)
    {
        Way::template store<BaseTraits>(out, acc, n, params);
    }
};

// Stores a row's result. Returns false if its accumulator does not have it.
template <class Traits, class RowParams>
GPR_DEVICE bool store_result(typename Traits::Out *out, const typename Traits::Acc &value, uint64 n,
                             const RowParams &params)
{
    if constexpr (has_own_accumulator<Traits>) {
        return Traits::store(out, value, n, params);
    } else {
        Traits::store(out, value, n, params);
        return true;
    }
}

} // namespace gpr
