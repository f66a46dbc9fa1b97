// exact_strided: exact sums of rows that are no runs of memory. Any axes, any strides, any mask.
//
// Problem: the warps of `exact` add to one row together. Where rows are columns of memory, as in
// sums over axis 0 of a C-ordered matrix, neighbouring threads must read neighbouring rows, or a
// sector of 32 bytes is read per element. So a thread has bins of its own for its row, without a
// vote of its warp. The threads of a row, which are below each other in the rectangle
// (fast_axes.cuh), merge their bins (exact_column_merge.cuh). Elements that bins do not hold, and
// integers, are added to the row's sum in shared memory; a block has one per row. Where the
// elements of a row are nearer to each other than rows are, threads of a row are neighbours
// (layout.row_major).
//
//   Launch: row v of `rows` is layout.width rows of the array, most_strip_rows at most; blocks
//   split their items of neighbouring elements. rows.n counts items of a row, rows.count groups of
//   rows. With more than one block per row, a group has counters for each of its rows
//   (exact_merge.cuh), and for floats a LimbPartial per block and row, too. layout.slots groups
//   have them, as rows have them in exact.cuh.
//
// Still paid: a few instructions per item for iterating over axes; tiles that do not fit are added
// by one thread, and a warp each stores the results of their rows.
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
