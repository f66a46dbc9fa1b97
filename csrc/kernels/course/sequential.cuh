// sequential: the tree with its loop reversed, so that neighbours touch neighbouring words.
//
// Removed: bank conflicts. The upper half is folded onto the lower half, then the upper quarter,
// and so on: in each step the threads of a warp touch 32 words in a row, one in each bank.
//
//   s = 4   0+4   1+5   2+6   3+7
//   s = 2   0+2   1+3
//   s = 1   0+1
//
// Elements far apart now meet first: operands are reordered, which is wrong for a fold that is not
// commutative.
//
// Still paid: half the threads never combine anything. They load one element and are done.
//
// Launch: ceil(n / BLOCK) blocks per row, BLOCK a power of two; thread 0 writes the block's partial
// to out[virtual block], and the caller runs the kernel over the partials again until one is left.
//
// Reference: Harris, "Optimizing Parallel Reduction in CUDA", reduction 3.
#pragma once

#include "rows.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
sequential(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
           Scratch<typename Traits::Acc>)
{
    __shared__ typename Traits::Acc partial[BLOCK];
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    const uint64 i = static_cast<uint64>(row.block) * BLOCK + tid;

    partial[tid] = load_or_identity<Traits>(in + row.begin, i, row.n);
    __syncthreads(); // partials are there

#pragma unroll 1 // unrolling is a later step's idea
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads(); // the next step reads what this one wrote
    }

    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
