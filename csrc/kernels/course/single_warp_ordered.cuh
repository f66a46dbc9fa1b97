// single_warp_ordered, single_warp_ordered_padded: one warp, neighbours first, operand order kept.
//
// Removed: the need for a commutative operator. The row is taken 32 elements at a time; steps go 1,
// 2, 4, 8, 16, so that only neighbours meet, the earlier one on the left; and lane 0 combines the
// tiles' results in sequence.
//
//   single_warp_ordered          in step s only every 2s-th lane works, and no word that is read is
//                                written
//   single_warp_ordered_padded   every lane works: after step s, lane t holds the fold of 2s
//                                elements from t on. Lane 0 holds the result; the lanes near the
//                                end read 16 words of padding, and no lane reads their results. A
//                                second warp barrier separates reading from writing.
//
// Still paid: a tree for every 32 elements, on one warp. The guarded kernel leaves ever fewer lanes
// busy; the padded one computes values that no lane reads.
//
// Launch: one block of 32 threads per row; lane 0 writes out[row].
//
// Reference: Stack Overflow documentation, "Parallel reduction": single-warp parallel reduction for
// a non-commutative operator.
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
single_warp_ordered(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                    Scratch<typename Traits::Acc>)
{
    static_assert(BLOCK == warp_lanes, "a block is one warp");
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[warp_lanes];
    const Row row = row_of(rows, blockIdx.x);
    const unsigned lane = threadIdx.x;
    Acc total = Traits::identity(); // lane 0's

    for (uint64 tile = 0; tile < row.n; tile += warp_lanes) {
        Acc value = load_or_identity<Traits>(in + row.begin, tile + lane, row.n);
        partial[lane] = value;
        __syncwarp(); // partials are there
        for (unsigned s = 1; s < warp_lanes; s *= 2) {
            if (lane % (2 * s) == 0) {
                value = Traits::combine(value, partial[lane + s]);
                partial[lane] = value;
            }
            __syncwarp(); // the next step, or the next tile, touches what this one did
        }
        total = Traits::combine(total, value);
    }
    if (lane == 0) out[row.index] = total;
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
single_warp_ordered_padded(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                           Scratch<typename Traits::Acc>)
{
    static_assert(BLOCK == warp_lanes, "a block is one warp");
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[warp_lanes + warp_lanes / 2];
    const Row row = row_of(rows, blockIdx.x);
    const unsigned lane = threadIdx.x;
    Acc total = Traits::identity(); // lane 0's

    if (lane < warp_lanes / 2) partial[warp_lanes + lane] = Traits::identity();
    for (uint64 tile = 0; tile < row.n; tile += warp_lanes) {
        Acc value = load_or_identity<Traits>(in + row.begin, tile + lane, row.n);
        partial[lane] = value;
        __syncwarp(); // partials are there
        for (unsigned s = 1; s < warp_lanes; s *= 2) {
            value = Traits::combine(value, partial[lane + s]);
            __syncwarp(); // partial[lane] has been read by the lane it is the operand of
            partial[lane] = value;
            __syncwarp(); // and is there for the next step
        }
        total = Traits::combine(total, value);
    }
    if (lane == 0) out[row.index] = total;
}

} // namespace gpr
