// exact_across: exact sums of rows that are no runs of memory. Any axes, any strides, any mask.
//
// Problem: the warps of `exact` add to one row together. Where rows lie across memory, like axis 0 of a C-ordered
// matrix, neighbouring threads must take neighbouring rows, or memory brings 32 bytes for each element. So a thread is
// alone: it has windows of its own, and asks nobody whether a tile fitted. What it finds goes to its row's number, of
// which a block has as many in shared memory as rows lie across it, and which it shares with those below it in the
// rectangle (across.cuh). Where rows are nearer to each other than the elements of one, they lie along it.
//
//   Launch: row v of `rows` is `across` rows of the array, most_across at most; blocks split their elements. rows.n
//   counts elements, rows.count groups of rows. With more than one block a row, a group's counters are its ticket, a gap,
//   and an accumulator for each of `across`: zero before and after. layout.slots groups have them, as rows have them in
//   exact.cuh.
//
// Still paid: a few instructions an element for the walk; tiles that do not fit are added by one thread.
#pragma once

#include "across.cuh"
#include "exact_block.cuh"
#include "exact_walk.cuh"

namespace gpr {

// Rows of a block: so many that a warp reads whole runs of memory, and two warps 256 bytes of them.
constexpr unsigned strip_bytes = 256;
template <class In, unsigned BLOCK> constexpr unsigned most_across =
    sizeof(In) * warp_lanes >= strip_bytes ? warp_lanes
    : strip_bytes / sizeof(In) < BLOCK     ? strip_bytes / sizeof(In)
                                           : BLOCK;

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact_across(const typename Cell::In *in, typename Cell::Out *out, Rows rows, Scratch<typename Cell::Acc> scratch,
             const __grid_constant__ Layout layout)
{
    using In = typename Cell::In;
    constexpr unsigned numbers = most_across<In, BLOCK>, vectors = walked_vectors<In>;
    const Row row = rows.mine(blockIdx.x);
    const Rectangle r = Rectangle::of_block<BLOCK>(layout.across, layout.along != 0);
    const uint64 first = row.index * layout.across;
    const unsigned count = layout.count - first < layout.across ? static_cast<unsigned>(layout.count - first)
                                                                : layout.across;

    clear_sums<In, numbers, BLOCK>();
    if (r.works() && r.x < count) {
        const Start start = layout.row(first + r.x);
        Adder<Cell, vectors, LoneThread<numbers>> adder(LoneThread<numbers>{r.x});
        WalkedTiles<Cell, vectors> tiles(in + start.in, layout.mask + start.mask, layout,
                                         static_cast<uint64>(row.block) * r.down + r.y,
                                         static_cast<uint64>(row.blocks) * r.down, row.n);
        const Vector nothing = adder.nothing();

        while (!tiles.is_done()) {
            Vector v[vectors];
            tiles.fetch(v, nothing);
            adder.take(v);
        }
        adder.left_out += tiles.left_out;
        adder.close();
    }
    finish_sums<Cell, numbers, BLOCK>(layout.across, count, row, scratch, layout.slots,
                                      [&](unsigned c) { return out + layout.row(first + c).out; });
}

} // namespace gpr
