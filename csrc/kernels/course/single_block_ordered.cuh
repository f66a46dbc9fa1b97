// single_block_ordered: one block, operand order kept.
//
// Removed: the need for a commutative operator. The row is taken tile by tile, BLOCK elements each;
// inside a tile only neighbours meet, the earlier one on the left (neighbour_tree in block.cuh);
// and thread 0 puts the tiles' results together in sequence. So every combine has adjacent runs of
// the array for operands, as an associative operator asks, and no more.
//
// Still paid: a whole tree for every BLOCK elements, with the bank conflicts of neighbours first;
// and one multiprocessor works while the others idle, unless there are many rows to give them.
//
// Launch: one block per row, BLOCK a power of two; thread 0 writes out[row].
//
// Reference: Stack Overflow documentation, "Parallel reduction": single-block parallel reduction
// for a non-commutative operator.
#pragma once

#include "block.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
single_block_ordered(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
                     Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    __shared__ Acc partial[BLOCK];
    const Row row = row_of(rows, blockIdx.x);
    Acc total = Traits::identity(); // thread 0's

    for (uint64 tile = 0; tile < row.n; tile += BLOCK) {
        const Acc value = load_or_identity<Traits>(in + row.begin, tile + threadIdx.x, row.n);
        total = Traits::combine(total, neighbour_tree<Traits, BLOCK>(partial, value));
    }
    if (threadIdx.x == 0) out[row.index] = total;
}

} // namespace gpr
