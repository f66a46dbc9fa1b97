// title: Cooperative groups: a tile per warp
// verdict: right, within limits
// lesson: Groups name who takes part; the barriers and masks below them are the same.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void tiles(const int *in, int *out, unsigned n)
{
    __shared__ int partial[32];
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    int v = 0;

    for (unsigned i = blockIdx.x * blockDim.x + block.thread_rank(); i < n;
         i += gridDim.x * blockDim.x)
        v += in[i];
    v = cg::reduce(tile, v, cg::plus<int>());
    if (tile.thread_rank() == 0) partial[tile.meta_group_rank()] = v;
    block.sync();
    if (tile.meta_group_rank() == 0) {
        v = tile.thread_rank() < tile.meta_group_size() ? partial[tile.thread_rank()] : 0;
        for (int d = tile.size() / 2; d > 0; d /= 2) v += tile.shfl_down(v, d);
        if (tile.thread_rank() == 0) atomicAdd(out, v);
    }
}
