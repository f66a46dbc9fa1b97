// copy_results: of rows that are the same, along kept axes of stride 0, one was reduced; its result
// goes to all of them.
//
//   results (2, 3), rows the same along the last axis:   r0 .  .      r0 r0 r0
//                                                        r1 .  .  ->  r1 r1 r1
#pragma once

#include "rows.cuh"

namespace gpr {

// Results of a thread that are under way at once.
constexpr unsigned copied_together = 4;

// Returns a number of a result over an axis' extent. Without MANY it is below 2^GPR_COPY_BITS.
template <bool MANY> GPR_DEVICE uint64 copy_quotient(uint64 i, const gpr_copy_axis &axis)
{
    if constexpr (MANY) return i / axis.extent;
    else return static_cast<uint64>(static_cast<unsigned>(i)) * axis.inverse >> axis.shift;
}

// Copies this thread's share of the results.
template <bool MANY, class Result>
GPR_DEVICE void copy_share(Result *results, const gpr_copy_params &copies)
{
    const uint64 count = copies.count, threads = static_cast<uint64>(gridDim.x) * blockDim.x;

    for (uint64 first = static_cast<uint64>(blockIdx.x) * blockDim.x + threadIdx.x; first < count;
         first += copied_together * threads) {
        uint64 left[copied_together];
        long long to[copied_together], from[copied_together];

#pragma unroll
        for (unsigned u = 0; u < copied_together; u++) {
            const uint64 i = first + u * threads;
            left[u] = i < count ? i : first; // behind the end the first one again
            to[u] = from[u] = 0;
        }
#pragma unroll 1
        for (unsigned a = copies.axes; a-- > 0;) {
            const gpr_copy_axis &axis = copies.axis[a];
#pragma unroll
            for (unsigned u = 0; u < copied_together; u++) {
                // The first axis gets what is left, without a division.
                const uint64 quotient = a > 0 ? copy_quotient<MANY>(left[u], axis) : 0;
                const long long index = static_cast<long long>(left[u] - quotient * axis.extent);
                to[u] += index * axis.out;
                from[u] += index * axis.from;
                left[u] = quotient;
            }
        }
        Result result[copied_together];
#pragma unroll
        for (unsigned u = 0; u < copied_together; u++) result[u] = results[from[u]];
        // Nobody writes the results that others are copied from.
#pragma unroll
        for (unsigned u = 0; u < copied_together; u++) {
            if (to[u] != from[u]) results[to[u]] = result[u];
        }
    }
}

// Any grid, any block size.
template <class Traits>
__global__ void copy_results(typename Traits::Out *results,
                             const __grid_constant__ gpr_copy_params copies)
{
    if (copies.count >> GPR_COPY_BITS == 0) copy_share<false>(results, copies);
    else copy_share<true>(results, copies);
}

} // namespace gpr
