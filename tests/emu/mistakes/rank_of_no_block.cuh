// Lanes ask for blocks that a cluster does not have.
// kernel: cluster
// block: 64
// finds: shared memory of a block that is not there
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
    cluster_barrier();
    if (cluster_rank() == 0 && threadIdx.x < warp_lanes) {
        const unsigned lane = threadIdx.x;
        value = *shared_of(&partial, lane); // TESTS
        value = warp_reduce<Traits>(value);
        if (lane == 0) Traits::atomic_combine(&out[row.index], value);
    }
    cluster_barrier();
}

} // namespace gpr
