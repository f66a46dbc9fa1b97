// block_atomic, block_atomic_vec: grid stride, block reduce, one atomic per block.
//
// Removed: the second launch of shfl_two_pass, and most atomics of shfl_atomic. The block reduces
// to one value first, by shuffles, one word of shared memory per warp, and shuffles again; thread 0
// folds it into the row's output.
//
// The _vec kernel fetches 16 bytes with each load; elements before the row's first multiple of 16
// bytes and after its last are loaded one by one.
//
// Still paid: a barrier; and an order that varies, so float sums need not repeat their bits.
//
// Launch: any number of blocks per row, enough to fill the GPU; BLOCK a multiple of 32; the output
// holds the identity before (fill_identity). Operands are reordered.
//
// Reference: "Faster Parallel Reductions on Kepler", deviceReduceBlockAtomicKernel and its
// vectorised variants.
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
block_atomic(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
             Scratch<typename Traits::Acc>)
{
    const Row row = row_of(rows, blockIdx.x);
    typename Traits::Acc value = fold_elements<Traits>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = block_reduce<Traits, BLOCK>(value);
    if (threadIdx.x == 0) Traits::atomic_combine(&out[row.index], value);
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
block_atomic_vec(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                 Scratch<typename Traits::Acc>)
{
    const Row row = row_of(rows, blockIdx.x);
    typename Traits::Acc value =
        fold_vectors<Traits, 1, BLOCK>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = block_reduce<Traits, BLOCK>(value);
    if (threadIdx.x == 0) Traits::atomic_combine(&out[row.index], value);
}

} // namespace gpr
