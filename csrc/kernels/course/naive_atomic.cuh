// naive_atomic: one global atomic per element.
//
// Where the staircase starts. Every thread takes one element and folds it into the row's output
// with an atomic operation. It is right, and it is short: no thread depends on another.
//
// Still paid: contention. All threads update one word of memory, one after the other. The memory
// system combines a warp's updates where it has an instruction for the fold; where it has none,
// threads retry a compare-and-swap until it succeeds.
//
// Launch: ceil(n / BLOCK) blocks per row; the output holds the identity before (fill_identity).
// Operands are reordered, and float sums vary from run to run.
//
// Reference: "CUDA 006 - Reduction", reduce_naive.
#pragma once

#include "rows.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
naive_atomic(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
             Scratch<typename Traits::Acc>)
{
    const Row row = row_of(rows, blockIdx.x);
    const uint64 i = static_cast<uint64>(row.block) * BLOCK + threadIdx.x;

    if (i < row.n) Traits::atomic_combine(&out[row.index], Traits::lift(in[row.begin + i], i));
}

} // namespace gpr
