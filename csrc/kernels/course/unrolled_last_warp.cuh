// unrolled_last_warp: the last warp works without block barriers.
//
// Removed: the block barriers of the last six steps. From 64 partials on only the first warp works,
// and what it does needs no barrier that the other warps have to reach: a warp barrier is enough.
// With no barrier to share, all 32 lanes may as well combine in every step: the upper ones produce
// values that no lane reads, and the guard is gone.
//
// The original relied on the lanes of a warp moving in lockstep, with `volatile` to keep values in
// memory. Since compute capability 7.0 they do not, so each step here reads, waits for the warp,
// writes, and waits again: a lane's word is another lane's operand, which must be read before it is
// overwritten and written before it is read in the next step.
//
// Still paid: loop and index arithmetic in the steps before.
//
// Launch: ceil(n / (2 * BLOCK)) blocks per row, BLOCK a power of two; thread 0 writes the block's
// partial to out[virtual block], and the caller runs the kernel over the partials again until one
// is left.
//
// Reference: Harris, "Optimizing Parallel Reduction in CUDA", reduction 5.
#pragma once

#include "rows.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
unrolled_last_warp(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                   Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc
        partial[BLOCK < 64
                    ? 64
                    : BLOCK]; // the last warp looks 32 words ahead, also in a block of one warp
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    const uint64 i = static_cast<uint64>(row.block) * (2 * BLOCK) + tid;

    partial[tid] = load_pair<Traits>(in + row.begin, i, i + BLOCK, row.n);
    if constexpr (BLOCK < 64) partial[tid + 32] = Traits::identity();
    __syncthreads(); // partials are there

#pragma unroll 1 // unrolling is the next step's idea
    for (unsigned s = BLOCK / 2; s > 32; s /= 2) {
        if (tid < s) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads(); // the next step reads what this one wrote
    }

    if (tid < 32) {
#pragma unroll
        for (unsigned s = 32; s > 0; s /= 2) {
            const Acc folded = Traits::combine(partial[tid], partial[tid + s]);
            __syncwarp(); // partial[tid] has been read by the lane it is the operand of
            partial[tid] = folded;
            __syncwarp(); // and is there for the next step
        }
    }
    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
