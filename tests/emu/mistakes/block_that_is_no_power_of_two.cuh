// A tree that halves, in a block of 96 threads: a thread's partner lies behind the array.
// kernel: shfl_two_pass
// block: 96
// finds: out-of-bounds access to shared memory; of partial
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_two_pass(const typename Cell::In *in, typename Cell::Acc *out, Rows rows, Scratch<typename Cell::Acc>)
{
    using Acc = typename Cell::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    __shared__ Acc partial[BLOCK];

    partial[tid] = fold_elements<Cell>(in + row.begin, row.n, grid_of<BLOCK>(row));
    __syncthreads();
    for (unsigned s = 1; s < BLOCK; s *= 2) {
        if (tid % (2 * s) == 0) partial[tid] = Cell::combine(partial[tid], partial[tid + s]); // HERE
        __syncthreads();
    }
    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
