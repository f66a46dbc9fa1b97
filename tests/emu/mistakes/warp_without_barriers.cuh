// The last warp as it was written in 2007, when the lanes of a warp moved in lockstep: no warp
// barrier between the steps.
// kernel: unrolled_last_warp
// block: 64
// finds: race on shared partial; no warp or block barrier lies between
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
unrolled_last_warp(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                   Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    __shared__ Acc partial[BLOCK < 64 ? 64 : BLOCK];
    const uint64 i = static_cast<uint64>(row.block) * (2 * BLOCK) + tid;

    partial[tid] = load_pair<Traits>(in + row.begin, i, i + BLOCK, row.n);
    __syncthreads();
    if (tid < 32) {
        for (unsigned s = 32; s > 0; s /= 2)
            partial[tid] = Traits::combine(partial[tid], partial[tid + s]); // HERE
    }
    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
