// fast_columns: rows that lie across memory, like axis 0 of a C-ordered matrix.
//
// Problem: the elements of a row are far apart, those of neighbouring rows are neighbours. A block a row would fetch 32
// bytes for each element it wants. So neighbouring threads take neighbouring rows (columns, from here on), each as many
// as an item of up to 16 bytes holds, and every load of a warp is a run of memory. Where columns are few, or only one
// strip of them fills a block, the block's threads share columns (fast_axes.cuh), and where even that leaves the card
// half empty, several blocks do.
//
// Few long rows and many short ones come the same way: of three rows reduced to one, each thread has three loads under
// way and stores an item of results.
//
//   Launch: row v of `rows` is a strip of width * item columns; blocks split its positions. rows.n counts positions,
//   rows.count strips: layout.strips of them for each combination of the other kept axes. item elements are aligned to
//   their size together wherever they begin, the mask's bytes also; layout.column.extent is a multiple of item. With
//   more than one block a row, scratch has width * item partials for each virtual block and a ticket a strip.
//
// Still paid: strips at the edge that are not full; and partials of all columns where blocks share them.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_columns(const typename Traits::In *in, typename Traits::Out *out, Rows rows, Scratch<typename Traits::Acc> scratch,
             const __grid_constant__ Layout layout, typename Traits::AllParams params)
{
    const Row row = row_of(rows, blockIdx.x);
    const Rectangle r = Rectangle::of_block<BLOCK>(layout.width, false);
    // A division is dear where a thread reads no more than an item of each of a few rows.
    const uint64 group = layout.strips == 1 ? row.index : layout.strips == rows.count ? 0 : row.index / layout.strips;
    const uint64 strip = layout.strips == 1 ? 0 : row.index - group * layout.strips;
    const uint64 column = (strip * layout.width + r.x) * item;
    const RowOffsets start = layout.row_offsets(group);
    const bool has_rows = column < layout.column.extent;
    typename Traits::Acc value[item];

    if (!fold_rows_of_block<Traits, BLOCK, item>(in + start.in + column, layout.mask + start.mask + column, layout, scratch, row,
                                        r, has_rows, value)) {
        return;
    }
    if (r.y == 0 && has_rows) store_item<Traits>(out + start.out + static_cast<long long>(column) * layout.column.out, value,
                                               layout, params, group, column);
}

} // namespace gpr
