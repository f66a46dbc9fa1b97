// A block may return before the first one has read its partial.
// kernel: cluster
// block: 64
// finds: return of a block whose shared memory others may access still; partial
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
        value = lane < cluster_blocks() ? *shared_of(&partial, lane) : Traits::identity(); // TESTS
        value = warp_reduce<Traits>(value);
        if (lane == 0) Traits::atomic_combine(&out[row.index], value);
    }
}

} // namespace gpr
