// The last block loads a whole tile, though the array ends before.
// kernel: sequential
// block: 64
// finds: out-of-bounds access to global memory; past the end of an allocation
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
sequential(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
           Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    __shared__ Acc partial[BLOCK];
    const uint64 i = static_cast<uint64>(row.block) * BLOCK + tid;

    partial[tid] = Traits::lift(in[row.begin + i], i); // HERE
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads();
    }
    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
