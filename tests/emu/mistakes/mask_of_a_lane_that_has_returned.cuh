// Half of the warp has nothing to do and returns; the mask still names it.
// kernel: warp_registers
// block: 32
// finds: shuffle whose mask 0xffffffff names lane; which has returned
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

    if (tid >= 16) return;
    value = Cell::combine(value, shuffle_down(value, 8)); // HERE
    if (tid == 0) out[row.index] = value;
}

} // namespace gpr
