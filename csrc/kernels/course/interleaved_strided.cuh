// interleaved_strided: the same tree with contiguous threads.
//
// Removed: divergence and the remainder. The pairs are those of interleaved_modulo, but thread t
// takes the t-th pair, so the threads at work are the first ones: whole warps work, and whole warps
// are done.
//
//   s = 1   thread 0: 0+1   1: 2+3   2: 4+5   3: 6+7
//   s = 2   thread 0: 0+2   1: 4+6
//   s = 4   thread 0: 0+4
//
// Still paid: bank conflicts. Neighbouring threads touch words 2s apart, and shared memory has 32
// banks: from s = 16 on, all active threads of a warp use one bank. In a block of 256, that is 8
// threads at s = 16.
//
// Launch: ceil(n / BLOCK) blocks per row, BLOCK a power of two; thread 0 writes the block's partial
// to out[virtual block], and the caller runs the kernel over the partials again until one is left.
//
// Reference: Harris, "Optimizing Parallel Reduction in CUDA", reduction 2.
#pragma once

#include "rows.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
interleaved_strided(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
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
        const unsigned left = 2 * s * tid;
        if (left < BLOCK) partial[left] = Traits::combine(partial[left], partial[left + s]);
        __syncthreads(); // the next step reads what this one wrote
    }

    if (tid == 0) out[row.virtual_block] = partial[0];
}

} // namespace gpr
