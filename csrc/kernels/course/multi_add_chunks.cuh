// multi_add_chunks: many adds per thread, their number a compile-time constant, unrolled.
//
// Removed: the loop. A block serves a tile of `per_thread` chunks, each BLOCK elements wide, and a
// thread takes one element of each. Their number is known to the compiler: in a full tile all loads
// of a thread are issued one after another, and it waits once for all of them instead of once for
// each.
//
//   chunk 0: thread t loads t     chunk 1: t + BLOCK     chunk 2: t + 2 * BLOCK    ...
//
// Still paid: the number of chunks is fixed, so the blocks, and their trees, grow with the length;
// and the tree still goes through shared memory.
//
// Launch: ceil(n / (BLOCK * per_thread)) blocks per row, BLOCK a power of two; thread 0 writes the
// block's partial to out[virtual block], and the caller runs the kernel over the partials again
// until one is left.
//
// Reference: "CUDA 006 - Reduction", version 5 with a template argument for the number of chunks.
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
multi_add_chunks(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                 Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    constexpr unsigned tile = BLOCK * per_thread;
    __shared__ Acc partial[tree_words<BLOCK>];
    const Row row = row_of(rows, blockIdx.x);
    const uint64 begin = static_cast<uint64>(row.block) * tile;
    const typename Traits::In *tile_in = in + row.begin + begin;
    Acc value = Traits::identity();

    if (row.n - begin >= tile) {
#pragma unroll
        for (unsigned k = 0; k < per_thread; k++) {
            const unsigned i = k * BLOCK + threadIdx.x;
            value = Traits::combine(value, Traits::lift(tile_in[i], begin + i));
        }
    } else {
        const unsigned left = static_cast<unsigned>(row.n - begin);
        for (unsigned i = threadIdx.x; i < left; i += BLOCK) {
            value = Traits::combine(value, Traits::lift(tile_in[i], begin + i));
        }
    }

    value = unrolled_tree<Traits, BLOCK>(partial, value);
    if (threadIdx.x == 0) out[row.virtual_block] = value;
}

} // namespace gpr
