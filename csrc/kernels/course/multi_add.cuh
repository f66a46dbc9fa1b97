// multi_add: many adds per thread before the unrolled tree.
//
// Removed: the tree's share of the work. A bounded number of blocks strides over the row in pairs,
// i and i + BLOCK, so each thread folds many elements in a register, and a block pays for one tree
// whatever the length. Neighbouring threads load neighbouring elements in every round: the stride
// is a whole number of block widths.
//
// Still paid: loads of one element; and the tree still goes through shared memory, with a barrier
// per step.
//
// Launch: any number of blocks per row, enough to fill the GPU; BLOCK a power of two; thread 0
// writes the block's partial to out[virtual block], and the caller runs the kernel over the
// partials again until one is left.
//
// Reference: Harris, "Optimizing Parallel Reduction in CUDA", reduction 7.
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
multi_add(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
          Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[tree_words<BLOCK>];
    const Row row = row_of(rows, blockIdx.x);
    const typename Traits::In *row_in = in + row.begin;
    const uint64 stride = static_cast<uint64>(row.blocks) * (2 * BLOCK);
    Acc value = Traits::identity();

    for (uint64 i = static_cast<uint64>(row.block) * (2 * BLOCK) + threadIdx.x; i < row.n;
         i += stride) {
        value = Traits::combine(value, Traits::lift(row_in[i], i));
        if (i + BLOCK < row.n)
            value = Traits::combine(value, Traits::lift(row_in[i + BLOCK], i + BLOCK));
    }

    value = unrolled_tree<Traits, BLOCK>(partial, value);
    if (threadIdx.x == 0) out[row.virtual_block] = value;
}

} // namespace gpr
