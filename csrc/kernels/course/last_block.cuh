// last_block, last_block_ordered: one launch, the last block to finish combines.
//
// Removed: the second launch of two_kernel. Each block leaves its partial in global memory and
// takes a ticket, by one atomic on the row's counter. The block that takes the last ticket reads
// all partials, and combines them. Which block that is varies, what it computes does not: partials
// are combined in the order of blocks, so floats repeat their bits.
//
// Two fences make it right. Before its ticket a block makes its partial visible to the whole GPU;
// and the last block reads no partial before it has seen the last ticket (is_last_block in
// ticket.cuh).
//
// last_block_ordered keeps operand order: each block owns a contiguous range instead of a stride,
// takes it tile by tile with neighbours first, and the last block takes the partials in block order
// the same way.
//
// Still paid: a fence and a counter atomic per block; and for the ordered one a tree for every
// BLOCK elements, with the bank conflicts of neighbours first.
//
// Launch: any number of blocks per row, enough to fill the GPU; BLOCK a power of two; out[row] is
// written by one thread. With more than one block per row, scratch has a partial for each virtual
// block and for each row a ticket counter, zero before and after; with one block it is not touched.
//
// Reference: Stack Overflow documentation, "Parallel reduction": multi-block parallel reduction,
// last block combines, for commutative and for non-commutative operators; CUDA's
// threadFenceReduction sample.
#pragma once

#include "block.cuh"
#include "ticket.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
last_block(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
           Scratch<typename Traits::Acc> scratch)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[tree_words<BLOCK>];
    const Row row = row_of(rows, blockIdx.x);
    const typename Traits::In *row_in = in + row.begin;
    const uint64 threads = static_cast<uint64>(row.blocks) * BLOCK;
    Acc value = Traits::identity();

    for (uint64 i = static_cast<uint64>(row.block) * BLOCK + threadIdx.x; i < row.n; i += threads) {
        value = Traits::combine(value, Traits::lift(row_in[i], i));
    }
    value = unrolled_tree<Traits, BLOCK>(partial, value);

    if (row.blocks > 1) {
        if (!is_last_block(row, scratch, value)) return;
        const Acc *partials = scratch.partials() + row.index * row.blocks;
        value = Traits::identity();
        for (unsigned i = threadIdx.x; i < row.blocks; i += BLOCK)
            value = Traits::combine(value, partials[i]);
        value = unrolled_tree<Traits, BLOCK>(partial, value);
    }
    if (threadIdx.x == 0) out[row.index] = value;
}

// Folds in[begin .. end) in order; thread 0 holds the result. `partial` is shared memory of BLOCK
// accumulators.
template <class Traits, unsigned BLOCK>
GPR_DEVICE typename Traits::Acc fold_in_order(const typename Traits::In *in, uint64 begin,
                                              uint64 end, typename Traits::Acc *partial)
{
    typename Traits::Acc total = Traits::identity();

    for (uint64 tile = begin; tile < end; tile += BLOCK) {
        const typename Traits::Acc value = load_or_identity<Traits>(in, tile + threadIdx.x, end);
        total = Traits::combine(total, neighbour_tree<Traits, BLOCK>(partial, value));
    }
    return total;
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
last_block_ordered(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                   Scratch<typename Traits::Acc> scratch)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[BLOCK];
    const Row row = row_of(rows, blockIdx.x);
    const uint64 range = (row.n + row.blocks - 1) / row.blocks;
    const uint64 begin = row.block * range < row.n ? row.block * range : row.n;
    const uint64 end = row.n - begin < range ? row.n : begin + range;
    Acc value = fold_in_order<Traits, BLOCK>(in + row.begin, begin, end, partial);

    if (row.blocks > 1) {
        if (!is_last_block(row, scratch, value)) return;
        value = fold_in_order<Next<Traits>, BLOCK>(scratch.partials() + row.index * row.blocks, 0,
                                                   row.blocks, partial);
    }
    if (threadIdx.x == 0) out[row.index] = value;
}

} // namespace gpr
