// redux_last_warp: the last warp by one hardware reduction where type and GPU have it.
//
// Removed: the five shuffle steps. From compute capability 8.0 on, __reduce_add_sync and its
// relatives (min, max, and, or) reduce a 32-bit integer over a warp in one instruction. warp.cuh
// makes more of them:
//   64-bit sums       three sums of 27-bit pieces, which cannot overflow 32 bits over 32 lanes
//   64-bit min, max   the upper words first, then the lower words of the lanes that tie there
//   float min, max    on integers that sort as the floats do, with NaN at the winning end
//
// Still paid: float sums and products have no such instruction and use shuffles, as do older GPUs;
// the steps before go through shared memory.
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
redux_last_warp(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                Scratch<typename Traits::Acc>)
{
    __shared__ typename Traits::Acc partial[BLOCK];
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

    if (tid < 32) { // a whole warp, as the instruction needs
        const typename Traits::Acc value = warp_redux<Traits>(partial[tid]);
        if (tid == 0) out[row.virtual_block] = value;
    }
}

} // namespace gpr
