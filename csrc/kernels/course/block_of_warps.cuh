// block_of_warps: one block, each warp reduces its part, the first warp combines.
//
// Removed: all block barriers but one. The threads of a block stride over the row; then each warp
// reduces its own 32 words of shared memory with warp barriers, as single_warp_unguarded does, and
// leaves the result in its first. One block barrier later the first warp reduces those words in the
// same way.
//
// Still paid: one multiprocessor works, unless there are many rows; values still go through shared
// memory.
//
// Launch: one block per row, BLOCK a multiple of 32; thread 0 writes out[row].
//
// Reference: Stack Overflow documentation, "Parallel reduction": single-block reduction built from
// single-warp reductions.
#pragma once

#include "block.cuh"

namespace gpr {

// Reduces partial[0 .. 32) to partial[0] by the lanes of one warp, all of which combine in every
// step: 16 words of padding follow. Each lane has written its own word.
template <class Traits> GPR_DEVICE void warp_tree(typename Traits::Acc *partial, unsigned lane)
{
    __syncwarp(); // partials are there
    for (unsigned s = warp_lanes / 2; s > 0; s /= 2) {
        const typename Traits::Acc folded = Traits::combine(partial[lane], partial[lane + s]);
        __syncwarp(); // partial[lane] has been read by the lane it is the operand of
        partial[lane] = folded;
        __syncwarp(); // and is there for the next step
    }
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
block_of_warps(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
               Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    constexpr unsigned warps = BLOCK / warp_lanes, padded = warp_lanes + warp_lanes / 2;
    __shared__ Acc partial[warps][padded];
    const Row row = row_of(rows, blockIdx.x);
    const typename Traits::In *row_in = in + row.begin;
    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
    Acc value = Traits::identity();

    for (uint64 i = threadIdx.x; i < row.n; i += BLOCK)
        value = Traits::combine(value, Traits::lift(row_in[i], i));
    partial[warp][lane] = value;
    if (lane < warp_lanes / 2) partial[warp][warp_lanes + lane] = Traits::identity();
    warp_tree<Traits>(partial[warp], lane);

    __syncthreads(); // the first warp reads what the others wrote
    if (warp == 0) {
        // In the first warp's own words: 1024 threads' moments leave no shared memory for others.
        partial[0][lane] = lane < warps ? partial[lane][0] : Traits::identity();
        warp_tree<Traits>(partial[0], lane);
        if (lane == 0) out[row.index] = partial[0][0];
    }
}

} // namespace gpr
