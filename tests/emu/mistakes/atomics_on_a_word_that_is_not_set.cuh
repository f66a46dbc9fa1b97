// Nobody puts the identity into the block's word before the others fold into it.
// kernel: shared_atomic
// block: 64
// finds: read of shared total; which no thread of the block has written
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shared_atomic(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
              Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    __shared__ Acc total;
    const uint64 i = static_cast<uint64>(row.block) * BLOCK + tid;

    if (i < row.n) Traits::atomic_combine(&total, Traits::lift(in[row.begin + i], i)); // HERE
    __syncthreads();
    if (tid == 0) Traits::atomic_combine(&out[row.index], total);
}

} // namespace gpr
