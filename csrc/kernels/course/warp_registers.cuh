// warp_registers: one warp in registers, by shuffles, operand order kept.
//
// Removed: shared memory. The row is taken 32 elements at a time, one per lane. Shuffling down by
// 1, 2, 4, 8, 16 lets each lane combine the run that follows its own: after step s, lane t holds
// the fold of 2s elements from t on, as long as there are so many. Lane 0 ends with all 32 in
// order, and combines the tiles in sequence.
//
// Still paid: one warp works.
//
// Launch: one block of 32 threads per row; lane 0 writes out[row].
//
// Reference: Stack Overflow documentation, "Parallel reduction": single-warp parallel reduction
// using registers only.
#pragma once

#include "rows.cuh"
#include "warp.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
warp_registers(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
               Scratch<typename Traits::Acc>)
{
    static_assert(BLOCK == warp_lanes, "a block is one warp");
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned lane = threadIdx.x;
    Acc total = Traits::identity(); // lane 0's

    // All lanes take part in every tile, as shuffles require.
    for (uint64 tile = 0; tile < row.n; tile += warp_lanes) {
        Acc value = load_or_identity<Traits>(in + row.begin, tile + lane, row.n);
#pragma unroll
        for (unsigned delta = 1; delta < warp_lanes; delta *= 2) {
            value = Traits::combine(value, shuffle_down(value, delta));
        }
        if (lane == 0) total = Traits::combine(total, value);
    }
    if (lane == 0) out[row.index] = total;
}

} // namespace gpr
