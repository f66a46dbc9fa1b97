// two_kernel: partials by blocks, a second launch combines.
//
// Removed: the idle multiprocessors of single_block. Several blocks share a row, each strides over
// it and leaves a partial. Blocks of one launch cannot wait for each other, but launches on a
// stream do: the second one, a single block over the partials, starts when the first is complete.
// The end of a launch is the barrier that a grid does not have.
//
// Still paid: the second launch.
//
// Launch: any number of blocks per row, enough to fill the GPU; BLOCK a power of two; thread 0
// writes the block's partial to out[virtual block], and the caller runs the kernel over the
// partials with one block per row.
//
// Reference: Stack Overflow documentation, "Parallel reduction": multi-block parallel reduction for
// a commutative operator.
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
two_kernel(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
           Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[BLOCK];
    const Row row = row_of(rows, blockIdx.x);
    const typename Traits::In *row_in = in + row.begin;
    const unsigned tid = threadIdx.x;
    const uint64 threads = static_cast<uint64>(row.blocks) * BLOCK;
    Acc value = Traits::identity();

    for (uint64 i = static_cast<uint64>(row.block) * BLOCK + tid; i < row.n; i += threads) {
        value = Traits::combine(value, Traits::lift(row_in[i], i));
    }
    partial[tid] = value;
    __syncthreads(); // partials are there

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads(); // the next step reads what this one wrote
    }
    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
