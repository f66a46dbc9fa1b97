// unrolled: the tree unrolled at compile time for the block size.
//
// Removed: loop overhead. BLOCK is a template argument, so the number of steps is known to the
// compiler: every step is straight-line code with constant offsets, and steps that the block is too
// small for are not there at all.
//
// Still paid: one tree for every 2 * BLOCK elements. The tree costs much more than the two loads it
// combines.
//
// Launch: ceil(n / (2 * BLOCK)) blocks per row, BLOCK a power of two; thread 0 writes the block's
// partial to out[virtual block], and the caller runs the kernel over the partials again until one
// is left.
//
// Reference: Harris, "Optimizing Parallel Reduction in CUDA", reduction 6.
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
unrolled(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
         Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[tree_words<BLOCK>];
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    const uint64 i = static_cast<uint64>(row.block) * (2 * BLOCK) + tid;

    partial[tid] = load_pair<Traits>(in + row.begin, i, i + BLOCK, row.n);
    if constexpr (BLOCK < 64)
        partial[tid + 32] = Traits::identity(); // last_warp_tree looks 32 words ahead
    __syncthreads(); // partials are there

    if constexpr (BLOCK >= 1024) halve<Traits, 512>(partial);
    if constexpr (BLOCK >= 512) halve<Traits, 256>(partial);
    if constexpr (BLOCK >= 256) halve<Traits, 128>(partial);
    if constexpr (BLOCK >= 128) halve<Traits, 64>(partial);

    if (tid < 32) last_warp_tree<Traits>(partial);
    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
