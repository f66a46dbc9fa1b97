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

// A thread's share of its columns.
template <class Traits> struct ShiftedShare : StridedShare<Traits, item, ShiftedLoads> {
    using In = typename Traits::In;
    using Out = typename Traits::Out;
    Out *out; // of the group
    uint64 group_index, first, column; // the strip's first column, and the thread's

    template <unsigned BLOCK>
    static GPR_DEVICE ShiftedShare of(const In *in, Out *out, const Rows &rows,
                                      const Layout &layout, unsigned thread, unsigned block)
    {
        const uint64 extent = layout.column.extent;
        ShiftedShare share;
        share.row = row_of(rows, block);
        share.r = Rectangle::of_thread<BLOCK>(thread, layout.width, false);
        const uint64 index = share.row.index;
        share.group_index = layout.strips == 1            ? index
                            : layout.strips == rows.count ? 0
                                                          : index / layout.strips;
        share.first = layout.strips == 1
                          ? 0
                          : (index - share.group_index * layout.strips) * layout.width * item;
        share.layout = &layout;
        const uint64 wanted = share.first + share.r.x * item;
        share.has_rows = wanted < extent;
        share.column = share.has_rows ? share.column_of(share.r.x) : 0;
        share.skipped = share.has_rows ? static_cast<unsigned>(wanted - share.column) : 0;
        share.loads = {share.column >= item && share.column + 2 * item <= extent};
        const RowOffsets start = layout.row_offsets(share.group_index);
        share.in = in + start.in + share.column;
        share.mask = layout.mask;
        share.out = out + start.out;
        return share;
    }
    // The first column of thread x: where its item would end beyond the last column, an earlier
    // one, and the columns before its own are another thread's.
    GPR_DEVICE uint64 column_of(unsigned x) const
    {
        const uint64 wanted = first + x * item, extent = this->layout->column.extent;
        return wanted + item <= extent ? wanted : extent - item;
    }
    GPR_DEVICE Out *result_at(uint64 c) const
    {
        return out + static_cast<long long>(c) * this->layout->column.out;
    }
    GPR_DEVICE Out *result_of(unsigned c) const
    {
        return result_at(column_of(c / item) + c % item);
    }
    GPR_DEVICE unsigned store(const typename Traits::Acc (&value)[item],
                              const typename Traits::AllParams &params) const
    {
        return store_item<Traits>(result_at(column), value, *this->layout, params, group_index,
                                  column, this->skipped);
    }
};

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_shifted(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
             Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
             typename Traits::AllParams params)
{
    reduce_rows_of_block<Traits, BLOCK, item>(
        [&](unsigned thread, unsigned block) {
            return ShiftedShare<Traits>::template of<BLOCK>(in, out, rows, layout, thread, block);
        },
        layout, scratch, params);
}

} // namespace gpr
