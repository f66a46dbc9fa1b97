// A block that has stored its partial does not come to the grid barrier.
// kernel: cooperative
// block: 64
// finds: wait that does not end: 1 of; no thread is left that could change the word
#pragma once

#include "block.cuh"
#include "grid_barrier.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, cooperative_blocks<BLOCK>)
cooperative(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
            Scratch<typename Traits::Acc> scratch)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    Acc value = fold_vectors<Traits, 1, BLOCK>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = block_reduce<Traits, BLOCK>(value);
    if (row.blocks > 1) {
        Acc *partials = scratch.partials() + row.index * row.blocks;
        if (threadIdx.x == 0) partials[row.block] = value;
        if (row.block == 1) return;
        grid_barrier(scratch.tickets + row.index, row.blocks); // TESTS
        if (row.block != 0) return;
        value = Traits::identity();
        for (unsigned i = threadIdx.x; i < row.blocks; i += BLOCK)
            value = Traits::combine(value, partials[i]);
        value = block_reduce<Traits, BLOCK>(value);
    }
    if (threadIdx.x == 0) out[row.index] = value;
}

} // namespace gpr
