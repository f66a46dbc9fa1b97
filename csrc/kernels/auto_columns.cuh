// auto_columns: rows that lie across memory, like axis 0 of a C-ordered matrix.
//
// Problem: the elements of a row are far apart, those of neighbouring rows are neighbours. A block a row would fetch 32
// bytes for each element it wants. So neighbouring threads take neighbouring rows (columns, from here on), each as many
// as an item of up to 16 bytes holds, and every load of a warp is a run of memory. Where columns are few, or only one
// strip of them fills a block, the block's threads share columns (across.cuh), and where even that leaves the card
// half empty, several blocks do.
//
// Few long rows and many short ones come the same way: of three rows reduced to one, each thread has three loads under
// way and stores an item of results.
//
//   Launch: row v of `rows` is a strip of across * item columns; blocks split its positions. rows.n counts positions,
//   rows.count strips: layout.strips of them for each combination of the other kept axes. item elements are aligned to
//   their size together wherever they begin, the mask's bytes also; layout.column.extent is a multiple of item. With
//   more than one block a row, scratch has across * item partials for each virtual block and a ticket a strip.
//
// Still paid: strips at the edge that are not full; and partials of all columns where blocks share them.
#pragma once

#include "across.cuh"

namespace gpr {

// Results of neighbouring columns, stored together.
template <class Out> constexpr unsigned stored_together =
    16 % sizeof(Out) != 0 ? 1 : 16 / sizeof(Out) < item ? 16 / sizeof(Out) : item;
template <class Out> constexpr unsigned store_alignment =
    16 % sizeof(Out) != 0 ? alignof(Out) : stored_together<Out> * sizeof(Out);
template <class Out> struct alignas(store_alignment<Out>) Together { Out of[stored_together<Out>]; };

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
auto_columns(const typename Cell::In *in, typename Cell::Out *out, Rows rows, Scratch<typename Cell::Acc> scratch,
             const __grid_constant__ Layout layout, Ending ending)
{
    using Out = typename Cell::Out;
    const Row row = rows.mine(blockIdx.x);
    const Rectangle r = Rectangle::of_block<BLOCK>(layout.across, false);
    const uint64 group = layout.strips == 1 ? row.index : row.index / layout.strips;
    const uint64 strip = layout.strips == 1 ? 0 : row.index - group * layout.strips;
    const uint64 column = (strip * layout.across + r.x) * item;
    const Start start = layout.row(group);
    const bool has_rows = column < layout.column.extent;
    typename Cell::Acc value[item];

    if (!fold_across<Cell, BLOCK, item>(in + start.in + column, layout.mask + start.mask + column, layout, scratch, row,
                                        r, has_rows, value)) {
        return;
    }
    if (r.y != 0 || !has_rows) return;
    Out *to = out + start.out + static_cast<long long>(column) * layout.column.out;
    if (layout.packed != 0) {
#pragma unroll
        for (unsigned k = 0; k < item; k += stored_together<Out>) {
            Together<Out> together;
#pragma unroll
            for (unsigned j = 0; j < stored_together<Out>; j++) {
                Cell::put(&together.of[j], value[k + j], layout.elements, ending);
            }
            *reinterpret_cast<Together<Out> *>(to + k) = together;
        }
    } else {
#pragma unroll
        for (unsigned k = 0; k < item; k++) {
            Cell::put(to + k * layout.column.out, value[k], layout.elements, ending);
        }
    }
}

} // namespace gpr
