// Every block adds to the result, with a plain load and a plain store.
// kernel: block_atomic
// block: 64
// finds: race on byte; of block
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
block_atomic(const typename Cell::In *in, typename Cell::Acc *out, Rows rows, Scratch<typename Cell::Acc>)
{
    using Acc = typename Cell::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    Acc value = fold_elements<Cell>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = block_reduce<Cell, BLOCK>(value);
    if (tid == 0) out[row.index] = Cell::combine(out[row.index], value); // HERE
}

} // namespace gpr
