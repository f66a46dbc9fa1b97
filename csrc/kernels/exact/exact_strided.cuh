// exact_strided: exact sums of rows that are no runs of memory. Any axes, any strides, any mask.
//
// Problem: the warps of `exact` add to one row together. Where rows lie across memory, like axis 0
// of a C-ordered matrix, neighbouring threads must take neighbouring rows, or memory brings 32
// bytes for each element. So a thread is alone: it has bins of its own, and asks nobody whether a
// tile fitted. What its bins hold it merges to what those below it in the rectangle (fast_axes.cuh)
// hold of its row (exact_column_merge.cuh). What bins do not hold, and integers, go to the row's
// sum in shared memory, of which a block has one for each of its rows. Where the elements of a row
// are nearer to each other than rows are, threads of a row are neighbours (layout.row_major).
//
//   Launch: row v of `rows` is layout.width rows of the array, most_strip_rows at most; blocks
//   split their items of neighbouring elements. rows.n counts items of a row, rows.count groups of
//   rows. With more than one block per row, a group has counters for each of its rows
//   (exact_merge.cuh), and for floats a LimbPartial per block and row, too. layout.slots groups
//   have them, as rows have them in exact.cuh.
//
// Still paid: a few instructions per item for iterating over axes; tiles that do not fit are added
// by one thread, and rows that have such are stored by a warp each.
#pragma once

#include "exact_column_merge.cuh"

namespace gpr {

// Most rows of a block.
template <class In, unsigned BLOCK> constexpr unsigned most_strip_rows =
    gpr_strip_rows(GPR_MOST_STRIP_BYTES, sizeof(In), BLOCK);

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact_strided(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
              Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout)
{
    using In = typename Traits::In;
    constexpr unsigned accumulators = most_strip_rows<In, BLOCK>;
    constexpr unsigned vectors = strip_vectors<In>;
    using Room = ColumnRoom<Traits, accumulators, BLOCK>;
    using Group =
        typename Select<adds_floats<Traits>, ColumnThread<Room>, SingleThread<accumulators>>::type;
    const Strip<BLOCK> strip(rows, layout);

    clear_superaccumulators<In, accumulators, BLOCK>();
    Adder<Traits, vectors, Group> adder(Group::of_row(strip.r.x));
    adder.left_out += strip.template for_each_tile<Traits, vectors>(
        in, layout, adder.nothing(), [&] { adder.make_room(); },
        [&](const Vector(&v)[vectors]) { adder.add(v); });
    if constexpr (adds_floats<Traits>) {
        LimbPartial<In> partial = {};
        if (strip.has_row()) partial = partial_of(adder);
        finalize_strided<Traits, Room, BLOCK>(partial, rows, layout, scratch, out);
    } else {
        Row row = strip.row;
        row.n = layout.elements; // not items
        if (strip.has_row()) adder.finalize();
        finalize_integers<Traits, accumulators, BLOCK>(
            layout.width, strip.count, row, scratch, layout.slots,
            [&](unsigned c) { return out + layout.row_offsets(strip.first + c).out; });
    }
}

} // namespace gpr
