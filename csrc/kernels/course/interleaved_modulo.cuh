// interleaved_modulo: a tree in shared memory, tid % (2s) picks the threads.
//
// Removed: contention. Instead of BLOCK steps one after the other, pairs of neighbours are combined
// at the same time, then pairs of pairs: log2(BLOCK) steps. Step s leaves, in partial[t] for t a
// multiple of 2s, the fold of partial[t .. t + 2s).
//
//   s = 1   0+1   2+3   4+5   6+7
//   s = 2   0+2         4+6
//   s = 4   0+4
//
// Still paid: the threads at work are spread over all warps, so every warp runs every step for ever
// fewer of its lanes; and the remainder that picks them is a slow instruction sequence unless the
// compiler sees the power of two.
//
// Launch: ceil(n / BLOCK) blocks per row, BLOCK a power of two; thread 0 writes the block's partial
// to out[virtual block], and the caller runs the kernel over the partials again until one is left.
//
// Reference: Harris, "Optimizing Parallel Reduction in CUDA", reduction 1.
#pragma once

#include "rows.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
interleaved_modulo(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                   Scratch<typename Traits::Acc>)
{
    __shared__ typename Traits::Acc partial[BLOCK];
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    const uint64 i = static_cast<uint64>(row.block) * BLOCK + tid;

    partial[tid] = load_or_identity<Traits>(in + row.begin, i, row.n);
    __syncthreads(); // partials are there

#pragma unroll 1 // unrolling is a later step's idea
    for (unsigned s = 1; s < BLOCK; s *= 2) {
        if (tid % (2 * s) == 0) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads(); // the next step reads what this one wrote
    }

    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
