// cooperative: grid stride, block reduce, a grid barrier, then block 0 combines.
//
// Removed: the second launch of shfl_two_pass_vec, and the question of last_block, which block
// comes last. Each block of a row stores its partial and waits at a barrier for all others; behind
// it every partial is there, and block 0 combines them. Partials are combined in the order of
// blocks, so floats repeat their bits.
//
//   block 0   fold   store partial 0   | barrier |   load all partials   combine   store result
//   block 1   fold   store partial 1   | barrier |   end
//   block 2   fold   store partial 2   | barrier |   end
//
// A grid barrier (grid_barrier.cuh) needs blocks that run at the same time: the launch is a
// cooperative one, whose blocks are all resident, and so there are no more of them than the GPU
// holds at once. The launch bounds make the compiler use no more registers than that many blocks
// have. They are half as many threads as shfl_two_pass_vec has on most GPUs, so each thread has two
// vectors in flight.
//
// Still paid: each block adds to the barrier's counter twice and waits. last_block reduces as much
// with one atomic per block, and no block waits: a barrier pays off where all blocks have work
// behind it, as in a solver whose every step reads what all blocks of the step before have stored.
//
// Launch: as a cooperative launch where a row has several blocks; then no more blocks than
// cooperative_blocks<BLOCK> per multiprocessor; BLOCK a multiple of 32; out[row] is written by one
// thread. Scratch as last_block's: with more than one block per row it has a partial for each
// virtual block and for each row a counter, zero before and after.
//
// Reference: CUDA C++ Programming Guide, cooperative groups, grid synchronization.
#pragma once

#include "block.cuh"
#include "grid_barrier.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, cooperative_blocks<BLOCK>)
cooperative(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
            Scratch<typename Traits::Acc> scratch)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    Acc value = fold_vectors<Traits, 2, BLOCK>(in + row.begin, row.n, grid_of<BLOCK>(row));

    value = block_reduce<Traits, BLOCK>(value);
    if (row.blocks > 1) {
        Acc *partials = scratch.partials() + row.index * row.blocks;
        if (threadIdx.x == 0) partials[row.block] = value;
        grid_barrier(scratch.tickets + row.index, row.blocks);
        if (row.block != 0) return;
        value = Traits::identity();
        for (unsigned i = threadIdx.x; i < row.blocks; i += BLOCK)
            value = Traits::combine(value, partials[i]);
        value = block_reduce<Traits, BLOCK>(value);
    }
    if (threadIdx.x == 0) out[row.index] = value;
}

} // namespace gpr
