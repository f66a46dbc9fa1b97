// shfl_last_warp: the last warp by __shfl_down_sync.
//
// Removed: shared memory in the last five steps, and their warp barriers. When 32 partials are
// left, each lane holds one in a register, and a shuffle hands it the register of a lane further
// up:
//
//   delta = 16   lane 0: 0+16   1: 1+17  ...     delta = 8   lane 0: 0+8  ...     to delta = 1
//
// The instruction moves the value and brings the lanes together. Each step is a shuffle and a
// combine.
//
// Still paid: the steps before go through shared memory.
//
// Launch: ceil(n / (2 * BLOCK)) blocks per row, BLOCK a power of two; thread 0 writes the block's
// partial to out[virtual block], and the caller runs the kernel over the partials again until one
// is left.
//
// Reference: "CUDA 006 - Reduction", version 4.
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_last_warp(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
               Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[BLOCK];
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    const uint64 i = static_cast<uint64>(row.block) * (2 * BLOCK) + tid;

    partial[tid] = load_pair<Traits>(in + row.begin, i, i + BLOCK, row.n);
    __syncthreads(); // partials are there

#pragma unroll
    for (unsigned s = BLOCK / 2; s >= 32; s /= 2) {
        if (tid < s) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads(); // the next step reads what this one wrote
    }

    if (tid < 32) { // a whole warp, as shuffles need
        Acc value = partial[tid];
#pragma unroll
        for (unsigned delta = 16; delta > 0; delta /= 2)
            value = Traits::combine(value, shuffle_down(value, delta));
        if (tid == 0) out[row.virtual_block] = value;
    }
}

} // namespace gpr
