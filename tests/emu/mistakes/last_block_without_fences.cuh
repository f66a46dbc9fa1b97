// Blocks store their partials and take a ticket, and nothing makes the partials visible before the
// ticket.
// kernel: last_block
// block: 64
// finds: race on byte; no device fence and atomic of the one
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
last_block(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
           Scratch<typename Traits::Acc> scratch)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    __shared__ bool is_last;
    Acc value = block_reduce<Traits, BLOCK>(
        fold_elements<Traits>(in + row.begin, row.n, grid_of<BLOCK>(row)));

    if (threadIdx.x == 0) {
        scratch.partials()[row.virtual_block] = value;
        is_last = atomicAdd(&scratch.tickets[row.index], 1u) == row.blocks - 1;
        if (is_last) scratch.tickets[row.index] = 0;
    }
    __syncthreads();
    if (!is_last) return;
    if (threadIdx.x == 0) {
        value = Traits::identity();
        for (unsigned i = 0; i < row.blocks; i++) {
            value = Traits::combine(value, scratch.partials()[row.index * row.blocks + i]); // HERE
        }
        out[row.index] = value;
    }
}

} // namespace gpr
