// A tree that halves, in a block of 96 threads: a thread's partner lies behind the array.
// kernel: shfl_two_pass
// block: 96
// finds: out-of-bounds access to shared memory; of partial
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_two_pass(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
              Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    __shared__ Acc partial[BLOCK];

    partial[tid] = fold_elements<Traits>(in + row.begin, row.n, grid_of<BLOCK>(row));
    __syncthreads();
    for (unsigned s = 1; s < BLOCK; s *= 2) {
        const bool adds = tid % (2 * s) == 0;
        if (adds) partial[tid] = Traits::combine(partial[tid], partial[tid + s]); // HERE
        __syncthreads();
    }
    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
