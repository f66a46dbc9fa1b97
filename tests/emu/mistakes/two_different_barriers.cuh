// Both halves of the block wait, but each at a barrier of its own.
// kernel: sequential
// block: 64
// finds: barrier that not all threads reach; while thread 0 (warp 0, lane 0) waits
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

    if (tid < BLOCK / 2) {
        partial[tid] = load_or_identity<Traits>(in + row.begin, i, row.n);
        __syncthreads();
    } else {
        partial[tid] = load_or_identity<Traits>(in + row.begin, i, row.n);
        __syncthreads(); // HERE
    }
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads();
    }
    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
