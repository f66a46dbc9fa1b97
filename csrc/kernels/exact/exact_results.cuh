// Exact sums: what a kernel folds into them, and how they become results.
#pragma once

#include "exact_short_sum.cuh"
#include "finalize.cuh"

namespace gpr {

struct fold_exact {
};

// A result's start, as a flag of its sum. Sums and means start at +0, as NumPy's do; others have no
// start, and nothing but -0 comes to -0.
constexpr uint64 start_at_zero = saw_not_minus_zero, no_start = 0;

// The same of a part that is in shared memory, and whose words are carried. All lanes of the warp
// must call, and get the result.
template <class Result, bool IS_MEAN, uint64 START, class T>
GPR_DEVICE Result finalize_part(ExactPart<T> &part)
{
    const Limbs<T> limbs(part);
    return finalize_limbs<Result, IS_MEAN>(limbs, part.count, part.flags | START);
}

// Parts as a result. All lanes of the warp must call.
template <class Result, bool IS_MEAN, uint64 START, class T, unsigned PARTS>
GPR_DEVICE void store_parts(Result *out, ExactPart<T> (&part)[PARTS])
{
    Result result;
    if constexpr (!is_complex<Result>) {
        result = finalize_part<Result, IS_MEAN, START>(part[0]);
    } else {
        result.re = finalize_part<Part<Result>, IS_MEAN, START>(part[0]);
        if constexpr (PARTS > 1)
            result.im = finalize_part<Part<Result>, IS_MEAN, START>(part[1]);
        else result.im = 0;
    }
    if (threadIdx.x % warp_lanes == 0) *out = result;
}

// Sums that become results. A warp stores one that is in shared memory, a thread one that is in
// registers.
template <class Element, class Compute, class Number, bool SKIP_NAN, class Result, class Way>
struct Finished<KernelTraits<fold_exact, Element, Compute, ExactSum<Number>, SKIP_NAN>, Result, Way>
    : KernelTraits<fold_exact, Element, Compute, ExactSum<Number>, SKIP_NAN> {
    using Out = Result;
    static constexpr bool is_mean = same<Way, finish_mean>;
    static constexpr bool is_rounded = is_float<PartType<Result>>; // and not wrapped

    static GPR_DEVICE void store(Out *out, ExactSum<Number> &sum)
    {
        store_parts<Result, is_mean, start_at_zero>(out, sum.part);
    }
    // A sum of which round(p) gives part p, to all lanes.
    template <class Round> static GPR_DEVICE void store_rounded(Out *out, const Round &round)
    {
        Result result;
        if constexpr (!is_complex<Result>) {
            result = round(0);
        } else {
            result.re = round(0);
            if constexpr (is_complex<Number>) result.im = round(1);
            else result.im = 0;
        }
        if (threadIdx.x % warp_lanes == 0) *out = result;
    }
    template <class Short>
    static GPR_DEVICE void store(Out *out, const Short (&sum)[parts_of<Number>], uint64 count,
                               const uint64 (&flags)[parts_of<Number>])
    {
        Result result;
        if constexpr (!is_complex<Result>) {
            result = finalize_short<Result, is_mean>(sum[0], count, flags[0] | start_at_zero);
        } else {
            using T = Part<Result>;
            result.re = finalize_short<T, is_mean>(sum[0], count, flags[0] | start_at_zero);
            if constexpr (is_complex<Number>)
                result.im = finalize_short<T, is_mean>(sum[1], count, flags[1] | start_at_zero);
            else result.im = 0;
        }
        *out = result;
    }
};

} // namespace gpr
