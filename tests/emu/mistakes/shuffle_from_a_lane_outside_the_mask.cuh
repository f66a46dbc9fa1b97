// The lower half shuffles alone, and its last lanes read from the upper half.
// kernel: warp_registers
// block: 32
// finds: shuffle that reads lane; which its mask 0x0000ffff does not name
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
warp_registers(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
               Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    Acc value = load_or_identity<Traits>(in + row.begin, tid, row.n);

    if (tid < 16) {
        const unsigned word = static_cast<unsigned>(value);
        value = Traits::combine(value, Acc(__shfl_down_sync(0xffffu, word, 8))); // HERE
    }
    if (tid == 0) out[row.index] = value;
}

} // namespace gpr
