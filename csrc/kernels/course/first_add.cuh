// first_add, first_add_halves: the first add is done while loading.
//
// Removed: the idle half. A thread loads two elements and combines them on the way to shared
// memory, so a row takes half as many blocks and every thread combines at least once. The two
// kernels differ in where the second element is:
//
//   first_add         i and i + BLOCK: a block serves 2 * BLOCK elements in a row
//   first_add_halves  i and i + all threads that serve the row: one from each half of the array
//
// Still paid: each step of the tree ends with a barrier for the whole block, also where only one
// warp still works.
//
// Launch: ceil(n / (2 * BLOCK)) blocks per row, BLOCK a power of two; thread 0 writes the block's
// partial to out[virtual block], and the caller runs the kernel over the partials again until one
// is left.
//
// Reference: Harris, "Optimizing Parallel Reduction in CUDA", reduction 4; "CUDA 006 - Reduction",
// version 3 (halves).
#pragma once

#include "rows.cuh"

namespace gpr {

// The tree of both: element i and the one `apart` from it, then as in sequential. Thread 0 holds
// the block's partial.
template <class Traits, unsigned BLOCK>
GPR_DEVICE typename Traits::Acc first_add_tree(const typename Traits::In *in, uint64 i,
                                               uint64 apart, uint64 n)
{
    __shared__ typename Traits::Acc partial[BLOCK];
    const unsigned tid = threadIdx.x;

    partial[tid] = load_pair<Traits>(in, i, i + apart, n);
    __syncthreads(); // partials are there

#pragma unroll 1 // unrolling is a later step's idea
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s) partial[tid] = Traits::combine(partial[tid], partial[tid + s]);
        __syncthreads(); // the next step reads what this one wrote
    }
    return partial[0];
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
first_add(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
          Scratch<typename Traits::Acc>)
{
    const Row row = row_of(rows, blockIdx.x);
    const uint64 i = static_cast<uint64>(row.block) * (2 * BLOCK) + threadIdx.x;
    const typename Traits::Acc partial =
        first_add_tree<Traits, BLOCK>(in + row.begin, i, BLOCK, row.n);

    if (threadIdx.x == 0) out[row.virtual_block] = partial;
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
first_add_halves(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                 Scratch<typename Traits::Acc>)
{
    const Row row = row_of(rows, blockIdx.x);
    const uint64 i = static_cast<uint64>(row.block) * BLOCK + threadIdx.x;
    const uint64 all_threads = static_cast<uint64>(row.blocks) * BLOCK;
    const typename Traits::Acc partial =
        first_add_tree<Traits, BLOCK>(in + row.begin, i, all_threads, row.n);

    if (threadIdx.x == 0) out[row.virtual_block] = partial;
}

} // namespace gpr
