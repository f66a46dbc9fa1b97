// copy_results: of rows that are the same, along kept axes of stride 0, one was reduced; its result
// goes to all of them.
//
//   results (2, 3), rows the same along the last axis:   r0 .  .      r0 r0 r0
//                                                        r1 .  .  ->  r1 r1 r1
#pragma once

#include "rows.cuh"

namespace gpr {

// Copies this thread's share of the results. Index is an unsigned type that holds their number.
template <class Index, class Result>
GPR_DEVICE void copy_share(Result *results, const gpr_copy_params &copies)
{
    const Index count = static_cast<Index>(copies.count), threads = gridDim.x * blockDim.x;

    for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < count;) {
        long long to = 0, from = 0;
        Index left = i;
#pragma unroll 1
        for (unsigned a = copies.axes; a-- > 0;) {
            const Index extent = static_cast<Index>(copies.axis[a].extent);
            // The first axis gets what is left, without a division.
            const Index quotient = a > 0 ? left / extent : 0, index = left - quotient * extent;
            to += static_cast<long long>(index) * copies.axis[a].out;
            from += static_cast<long long>(index) * copies.axis[a].from;
            left = quotient;
        }
        // Nobody writes the results that others are copied from.
        if (to != from) results[to] = results[from];
        if (count - i <= threads) break; // before i overflows
        i += threads;
    }
}

// Any grid, any block size.
template <class Traits>
__global__ void copy_results(typename Traits::Out *results,
                             const __grid_constant__ gpr_copy_params copies)
{
    if (copies.count >> 32 == 0) copy_share<unsigned>(results, copies);
    else copy_share<uint64>(results, copies);
}

} // namespace gpr
