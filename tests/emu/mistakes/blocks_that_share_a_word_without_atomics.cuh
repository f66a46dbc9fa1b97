// Every block adds to the result, with a plain load and a plain store.
// kernel: block_atomic
// block: 64
// finds: race on byte; of block
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
block_atomic(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
             Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    Acc value = fold_elements<Traits>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = block_reduce<Traits, BLOCK>(value);
    if (tid == 0) out[row.index] = Traits::combine(out[row.index], value); // HERE
}

} // namespace gpr
