// Half of the warp has nothing to do and returns; the mask still names it.
// kernel: warp_registers
// block: 32
// finds: shuffle whose mask 0xffffffff names lane; which has returned
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

    if (tid >= 16) return;
    value = Traits::combine(value, shuffle_down(value, 8)); // HERE
    if (tid == 0) out[row.index] = value;
}

} // namespace gpr
