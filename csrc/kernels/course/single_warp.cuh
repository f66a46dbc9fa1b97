// single_warp, single_warp_unguarded: one warp, in shared memory.
//
// Removed: block barriers. A block of one warp needs none: __syncwarp is enough between steps, and
// costs next to nothing. Each lane folds every 32nd element in a register, then the lanes are
// combined in shared memory, halves onto each other:
//
//   single_warp             only lanes below s work in step s. They write below s and read from s
//                           on, so one warp barrier between steps is enough.
//   single_warp_unguarded   all lanes work in every step. The upper ones read up to 16 words past
//                           the end, into padding, and overwrite words that others read: a second
//                           warp barrier separates reading from writing.
//
// Still paid: one warp works. The guarded kernel diverges in every step; the other has 16 words of
// padding.
//
// Launch: one block of 32 threads per row; lane 0 writes out[row].
//
// Reference: Stack Overflow documentation, "Parallel reduction": single-warp parallel reduction for
// a commutative operator.
#pragma once

#include "block.cuh"

namespace gpr {

// Folds every 32nd element of a row from the lane's own on.
template <class Traits>
GPR_DEVICE typename Traits::Acc fold_lane(const typename Traits::In *in, uint64 n)
{
    typename Traits::Acc value = Traits::identity();
    for (uint64 i = threadIdx.x; i < n; i += warp_lanes)
        value = Traits::combine(value, Traits::lift(in[i], i));
    return value;
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
single_warp(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
            Scratch<typename Traits::Acc>)
{
    static_assert(BLOCK == warp_lanes, "a block is one warp");
    __shared__ typename Traits::Acc partial[warp_lanes];
    const Row row = row_of(rows, blockIdx.x);
    const unsigned lane = threadIdx.x;

    partial[lane] = fold_lane<Traits>(in + row.begin, row.n);
    __syncwarp(); // partials are there
    for (unsigned s = warp_lanes / 2; s > 0; s /= 2) {
        if (lane < s) partial[lane] = Traits::combine(partial[lane], partial[lane + s]);
        __syncwarp(); // the next step reads what this one wrote
    }
    if (lane == 0) out[row.index] = partial[0];
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
single_warp_unguarded(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                      Scratch<typename Traits::Acc>)
{
    static_assert(BLOCK == warp_lanes, "a block is one warp");
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[warp_lanes + warp_lanes / 2];
    const Row row = row_of(rows, blockIdx.x);
    const unsigned lane = threadIdx.x;

    partial[lane] = fold_lane<Traits>(in + row.begin, row.n);
    if (lane < warp_lanes / 2) partial[warp_lanes + lane] = Traits::identity();
    __syncwarp(); // partials are there
    for (unsigned s = warp_lanes / 2; s > 0; s /= 2) {
        const Acc folded = Traits::combine(partial[lane], partial[lane + s]);
        __syncwarp(); // partial[lane] has been read by the lane it is the operand of
        partial[lane] = folded;
        __syncwarp(); // and is there for the next step
    }
    if (lane == 0) out[row.index] = partial[0];
}

} // namespace gpr
