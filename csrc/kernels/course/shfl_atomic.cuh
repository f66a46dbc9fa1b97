// shfl_atomic, shfl_atomic_vec: grid stride, warp shuffles, one atomic per warp.
//
// Removed: the second launch, and all shared memory with its barriers. When a warp has reduced its
// registers by shuffles, its first lane folds the result into the row's output by an atomic
// operation. A bounded number of blocks strides over the row, so atomics are few whatever the
// length.
//
// The _vec kernel fetches 16 bytes with each load; elements before the row's first multiple of 16
// bytes and after its last are loaded one by one.
//
// Still paid: one atomic per warp.
//
// Launch: any number of blocks per row, enough to fill the GPU; BLOCK a multiple of 32; the output
// holds the identity before (fill_identity). Operands are reordered, and float sums vary from run
// to run.
//
// Reference: "Faster Parallel Reductions on Kepler", deviceReduceWarpAtomicKernel and its
// vectorised variants.
#pragma once

#include "runs.cuh"
#include "warp.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_atomic(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
            Scratch<typename Traits::Acc>)
{
    const Row row = row_of(rows, blockIdx.x);
    typename Traits::Acc value = fold_elements<Traits>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = warp_reduce<Traits>(value);
    if (threadIdx.x % warp_lanes == 0) Traits::atomic_combine(&out[row.index], value);
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_atomic_vec(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                Scratch<typename Traits::Acc>)
{
    const Row row = row_of(rows, blockIdx.x);
    typename Traits::Acc value =
        fold_vectors<Traits, 1, BLOCK>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = warp_reduce<Traits>(value);
    if (threadIdx.x % warp_lanes == 0) Traits::atomic_combine(&out[row.index], value);
}

} // namespace gpr
