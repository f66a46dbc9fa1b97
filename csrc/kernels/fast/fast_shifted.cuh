// fast_shifted: fast_columns for columns of one or two bytes whose rows begin at any address.
//
// Problem: the rows of an array (21, 7165461) of bfloat16 begin at odd multiples of two bytes, so
// a thread of fast_columns loads one element at a time, and instructions limit the speed. Here a
// thread has an item of neighbouring columns nevertheless. It loads the two aligned items that the
// bytes of its own are in, and shifts them together; neighbours find the other's half in the cache.
//
//     address  0       8       16      24         item of 8 bytes at address 14
//              |       |     xx|xxxxxx |
//                      | lower | upper |          past = 6: lower >> 48 | upper << 16
//
// The first item of a row begins in an aligned item that may begin before the array, and the last
// two end in one that may end behind it: the elements of these are loaded one by one. Where the
// number of columns is no multiple of an item, the last item of a row begins earlier and shares
// columns with the one before it, which alone stores their results.
//
//              | t0 t0 t0 t0 | t1 t1 t1 t1 |
//                             | t2 t2 t2 t2 |     nine columns: t2 stores one result
//
//   Launch: as of fast_columns, but no item is aligned; the number of columns is any that is at
//   least an item. No mask. layout.packed is 0.
//
// Still paid: each item is loaded twice, once from the cache.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_shifted(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
             Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
             typename Traits::AllParams params)
{
    const Row row = row_of(rows, blockIdx.x);
    const Rectangle r = Rectangle::of_block<BLOCK>(layout.width, false);
    const uint64 group = layout.strips == 1            ? row.index
                         : layout.strips == rows.count ? 0
                                                       : row.index / layout.strips;
    const uint64 strip = layout.strips == 1 ? 0 : row.index - group * layout.strips;
    const uint64 extent = layout.column.extent;
    const RowOffsets start = layout.row_offsets(group);
    // The first column of thread x: where its item would end beyond the last column, an earlier
    // one.
    const auto column_of = [=, &layout](unsigned x) {
        const uint64 wanted = (strip * layout.width + x) * item;
        return wanted + item <= extent ? wanted : extent - item;
    };
    const bool has_rows = (strip * layout.width + r.x) * item < extent;
    const uint64 column = has_rows ? column_of(r.x) : 0;
    const ShiftedLoads loads{column >= item && column + 2 * item <= extent};
    // Columns of the thread before, which stores them.
    const unsigned skipped =
        has_rows ? static_cast<unsigned>((strip * layout.width + r.x) * item - column) : 0;
    typename Traits::Acc value[item];
    const auto result_of = [=, &layout](unsigned c) {
        return out + start.out +
               static_cast<long long>(column_of(c / item) + c % item) * layout.column.out;
    };

    if (!fold_rows_of_block<Traits, BLOCK, item>(in + start.in + column, layout.mask, layout,
                                                 scratch, row, r, has_rows, result_of, value,
                                                 loads, skipped)) {
        return;
    }
    unsigned left = 0; // bit k: column k of the thread
    if (r.y == 0 && has_rows) {
        left =
            store_item<Traits>(out + start.out + static_cast<long long>(column) * layout.column.out,
                               value, layout, params, group, column, skipped);
    }
    if constexpr (has_own_accumulator<Traits>) {
        if (row.blocks > 1 && r.y == 0 && has_rows)
            left |= Traits::no_pairs(value) >> skipped << skipped;
        Traits::template store_left<BLOCK>(
            left, r.width * item, layout, scratch, row, OutputNumber{r.x * item}, result_of,
            StridedShare<Traits, item, ShiftedLoads>{in + start.in + column, layout.mask, &layout,
                                                     row, r, has_rows, loads});
    }
}

} // namespace gpr
