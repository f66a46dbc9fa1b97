// shfl_two_pass, shfl_two_pass_vec: grid stride, warp shuffles, block reduce, second launch.
//
// Removed: the tree in shared memory. Each warp reduces its 32 registers by shuffles; one word per
// warp goes to shared memory, and the first warp reduces those by shuffles again: one block barrier
// in all (block_reduce in block.cuh). A bounded number of blocks strides over the row, so any
// length takes two launches: one that leaves one partial per block, and one of a single block.
//
// The _vec kernel fetches 16 bytes with each load: fewer instructions for the same bytes, and more
// bytes in flight. Rows need not start at a multiple of 16 bytes: elements before the first one and
// after the last are loaded one by one.
//
// Still paid: the second launch.
//
// Launch: any number of blocks per row, enough to fill the GPU; BLOCK a multiple of 32; thread 0
// writes the block's partial to out[virtual block], and the caller runs the kernel over the
// partials again until one is left.
//
// Reference: "Faster Parallel Reductions on Kepler", deviceReduceKernel and its vectorised
// variants.
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_two_pass(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
              Scratch<typename Traits::Acc>)
{
    const Row row = row_of(rows, blockIdx.x);
    typename Traits::Acc value = fold_elements<Traits>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = block_reduce<Traits, BLOCK>(value);
    if (threadIdx.x == 0) out[row.virtual_block] = value;
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_two_pass_vec(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                  Scratch<typename Traits::Acc>)
{
    const Row row = row_of(rows, blockIdx.x);
    typename Traits::Acc value =
        fold_vectors<Traits, 1, BLOCK>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = block_reduce<Traits, BLOCK>(value);
    if (threadIdx.x == 0) out[row.virtual_block] = value;
}

} // namespace gpr
