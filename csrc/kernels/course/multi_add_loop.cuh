// multi_add_loop: many adds per thread, in a run-time loop into shared memory.
//
// Removed: the tree's share of the work, as in multi_add, by the most direct change to the kernels
// before it: instead of loading its word of shared memory once, a thread keeps folding elements
// into it. (The compiler sees that no other thread reads the word meanwhile, and keeps it in a
// register.)
//
// Still paid: the loop is not unrolled, since its length is known only at run time: a thread waits
// for each load before it issues the next.
//
// Launch: any number of blocks per row, enough to fill the GPU; BLOCK a power of two; thread 0
// writes the block's partial to out[virtual block], and the caller runs the kernel over the
// partials again until one is left.
//
// Reference: "CUDA 006 - Reduction", version 5.
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
multi_add_loop(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
               Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[tree_words<BLOCK>];
    const Row row = row_of(rows, blockIdx.x);
    const typename Traits::In *row_in = in + row.begin;
    const uint64 stride = static_cast<uint64>(row.blocks) * BLOCK;
    const unsigned tid = threadIdx.x;

    partial[tid] = Traits::identity();
#pragma unroll 1 // that is multi_add_chunks' idea
    for (uint64 i = static_cast<uint64>(row.block) * BLOCK + tid; i < row.n; i += stride) {
        partial[tid] = Traits::combine(partial[tid], Traits::lift(row_in[i], i));
    }

    const Acc value = unrolled_tree<Traits, BLOCK>(partial, partial[tid]);
    if (tid == 0) out[row.virtual_block] = value;
}

} // namespace gpr
