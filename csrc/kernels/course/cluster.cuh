// cluster: grid stride, block reduce, one atomic per cluster of blocks.
//
// Removed: most atomics of block_atomic_vec. The blocks of a cluster run at the same time and read
// each other's shared memory. Each leaves its partial in its own; the first block of the cluster
// loads the partials of all, reduces them by shuffles, and folds one value into the row's output.
//
//   block 0   partial   | barrier |   load partials 0 .. 7   reduce   atomic   | barrier |   end
//   block 1   partial   | barrier |                                            | barrier |   end
//     ...
//   block 7   partial   | barrier |                                            | barrier |   end
//
// Without the first barrier a partial might not be there when it is loaded; without the second its
// block might have ended, and its shared memory with it.
//
// Still paid: the two barriers, and blocks that start and end together, on neighbouring
// multiprocessors: fewer blocks are resident at a time, and the library launches fewer. There are
// few atomics without clusters, too, one per block; distributed shared memory pays off where blocks
// exchange more than one value, as tiles of a matrix or bins of a histogram.
//
// Launch: any number of blocks per row, a multiple of the cluster's size, which is a launch
// attribute and 8 at most; BLOCK a multiple of 32; the output holds the identity before
// (fill_identity). Operands are reordered.
//
// Reference: CUDA C++ Programming Guide, thread block clusters, distributed shared memory.
#pragma once

#include "block.cuh"
#include "distributed_shared.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
cluster(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
        Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial;
    const Row row = row_of(rows, blockIdx.x);
    Acc value = fold_vectors<Traits, 1, BLOCK>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = block_reduce<Traits, BLOCK>(value);
    if (threadIdx.x == 0) partial = value;
    cluster_barrier(); // the partials of all blocks are there
    if (cluster_rank() == 0 && threadIdx.x < warp_lanes) {
        const unsigned lane = threadIdx.x;
        value = lane < cluster_blocks() ? *shared_of(&partial, lane) : Traits::identity();
        value = warp_reduce<Traits>(value);
        if (lane == 0) Traits::atomic_combine(&out[row.index], value);
    }
    cluster_barrier(); // no block ends before its partial has been read
}

} // namespace gpr
