// single_block: one block strides over everything.
//
// Removed: all coordination between blocks. There is only one, so its result is the row's: no
// second launch, no atomics, no ticket. Each thread folds every BLOCK-th element in a register,
// then the block's tree combines the threads.
//
// Still paid: one multiprocessor works and the others idle, unless there are many rows to give
// them.
//
// Launch: one block per row, BLOCK a power of two; thread 0 writes out[row].
//
// Reference: Stack Overflow documentation, "Parallel reduction": single-block parallel reduction
// for a commutative operator.
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
single_block(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
             Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[BLOCK];
    const Row row = row_of(rows, blockIdx.x);
    const typename Traits::In *row_in = in + row.begin;
    const unsigned tid = threadIdx.x;
    Acc value = Traits::identity();

    for (uint64 i = tid; i < row.n; i += BLOCK)
        value = Traits::combine(value, Traits::lift(row_in[i], i));
    partial[tid] = value;
    __syncthreads(); // partials are there

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads(); // the next step reads what this one wrote
    }
    if (tid == 0) out[row.index] = partial[0];
}

} // namespace gpr
