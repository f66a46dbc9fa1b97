// The lower half shuffles alone, and its last lanes read from the upper half.
// kernel: warp_registers
// block: 32
// finds: shuffle that reads lane; which its mask 0x0000ffff does not name
#pragma once

#include "block.cuh"

namespace gpr {

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
warp_registers(const typename Cell::In *in, typename Cell::Acc *out, Rows rows, Scratch<typename Cell::Acc>)
{
    using Acc = typename Cell::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    Acc value = load_or_identity<Cell>(in + row.begin, tid, row.n);

    if (tid < 16) value = Cell::combine(value, Acc(__shfl_down_sync(0xffffu, static_cast<unsigned>(value), 8))); // HERE
    if (tid == 0) out[row.index] = value;
}

} // namespace gpr
