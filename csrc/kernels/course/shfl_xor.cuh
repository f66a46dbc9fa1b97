// shfl_xor: the butterfly, after which every lane holds the result.
//
// Removed: the broadcast that would follow a shuffle down when all lanes need the value. In step m,
// lanes whose numbers differ in bit m exchange values, and both combine: after five steps each lane
// has seen all 32.
//
//   m = 16   0<->16  1<->17  ...      m = 8   0<->8  ...      down to m = 1   0<->1  2<->3  ...
//
// Both partners put the lower lane's value on the left, so all lanes compute the same bits, floats
// included: that is warp_all_reduce in warp.cuh.
//
// Still paid: as many shuffles as shuffling down, and all lanes combine in every step; nothing is
// gained where only one lane needs the result, as here.
//
// Launch: any number of blocks per row, enough to fill the GPU; BLOCK a multiple of 32; thread 0
// writes the block's partial to out[virtual block], and the caller runs the kernel over the
// partials again until one is left.
//
// Reference: "Faster Parallel Reductions on Kepler", warpAllReduceSum.
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_xor(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
         Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    constexpr unsigned warps = BLOCK / warp_lanes;
    __shared__ Acc of_warp[warps];
    const Row row = row_of(rows, blockIdx.x);
    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
    Acc value =
        warp_all_reduce<Traits>(fold_elements<Traits>(in + row.begin, row.n, grid_of<BLOCK>(row)));

    if (lane == 0) of_warp[warp] = value;
    __syncthreads(); // every warp reads what all of them wrote
    value = warp_all_reduce<Traits>(lane < warps ? of_warp[lane] : Traits::identity());
    if (threadIdx.x == 0) out[row.virtual_block] = value;
}

} // namespace gpr
