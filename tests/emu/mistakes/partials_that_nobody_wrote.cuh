// Only every second block leaves its partial, and the next pass sums all of them.
// kernel: sequential
// block: 64
// finds: read of byte; which nobody has written
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

    partial[tid] = load_or_identity<Traits>(in + row.begin, i, row.n);
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads();
    }
    if (tid == 0 && row.block % 2 == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
