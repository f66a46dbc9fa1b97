// shared_atomic: atomics in shared memory, then one global atomic per block.
//
// Removed: contention for one global word. The threads of a block contend for a word of shared
// memory, on the multiprocessor, and only the block's total goes to global memory: one global
// atomic per BLOCK elements.
//
// Still paid: the threads of a block still update their word one after the other: BLOCK steps where
// a tree needs log2(BLOCK).
//
// Launch: ceil(n / BLOCK) blocks per row; the output holds the identity before (fill_identity).
// Operands are reordered, and float sums vary from run to run.
//
// Reference: "CUDA 006 - Reduction", reduce_shared_memory.
#pragma once

#include "rows.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shared_atomic(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
              Scratch<typename Traits::Acc>)
{
    __shared__ typename Traits::Acc total;
    const Row row = row_of(rows, blockIdx.x);
    const uint64 i = static_cast<uint64>(row.block) * BLOCK + threadIdx.x;

    if (threadIdx.x == 0) total = Traits::identity();
    __syncthreads(); // the word is set before any thread folds into it
    if (i < row.n) Traits::atomic_combine(&total, Traits::lift(in[row.begin + i], i));
    __syncthreads(); // all threads have folded
    if (threadIdx.x == 0) Traits::atomic_combine(&out[row.index], total);
}

} // namespace gpr
