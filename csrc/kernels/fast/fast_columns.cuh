// fast_columns: rows whose elements are strided while neighbouring rows are adjacent, like axis 0
// of a C-ordered matrix. Rows are called columns here.
//
// Problem: a block per column would fetch a sector of 32 bytes for each element. So neighbouring
// threads read neighbouring columns, an item of up to 16 bytes each, and the loads of a warp are
// contiguous. Where columns are few, or one strip of them does not fill a block, threads below each
// other share columns (fast_axes.cuh), and where that leaves the GPU half empty, several blocks do.
//
//             columns of a strip: width * item
//            | t0 t0 t0 t0 | t1 t1 t1 t1 | ...      item = 4 columns per thread
//   row 0        x             x
//   row 1        .             .                   height = 2 threads share a column: thread
//   row 2        x             x                   (x, 0) reads rows marked x, (x, 1) the others
//   row 3        .             .
//
// Few long columns and many short ones are read in the same way: of three rows reduced to one, each
// thread has three loads in flight and stores an item of results.
//
// Where a group of columns (all of one combination of the other kept axes) is narrower than a block
// and short, threads below each other would have an element or two each. Then a strip goes on in
// the next groups:
//
//             columns of group 0   group 1   group 2    of 8 columns each, 2 items
//            | t0    t1          | t2   t3 | t4   t5    width = 6
//
//   Launch: row v of `rows` is a strip of width * item columns; blocks split its positions. rows.n
//   counts positions, rows.count strips: layout.strips of them per group; 0 where strips go on in
//   the next group. Each item of elements is aligned to its size, and so are the mask's bytes;
//   layout.columns is a multiple of item. With more than one block per row, scratch has width
//   * item partials per virtual block and a ticket per strip.
//
// Still paid: strips at the edge that are not full; and partials of all columns where blocks share
// them.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

// A column and its group.
struct ColumnPlace {
    uint64 group, column;
    bool exists;
};

// Returns where column `c` of strip `strip`, of all of them, is.
GPR_DEVICE ColumnPlace column_place(const Layout &layout, uint64 strip, uint64 strips, unsigned c)
{
    const unsigned columns = layout.width * item;

    if (layout.strips == 0) {
        const uint64 number = strip * columns + c, group = number / layout.columns;
        return {group, number - group * layout.columns, number < layout.count};
    }
    // The division is skipped where it can be: it costs more than a thread's loads where rows are
    // few.
    if (layout.strips == 1) return {strip, c, c < layout.columns};
    const uint64 group = layout.strips == strips ? 0 : strip / layout.strips;
    const uint64 column = (strip - group * layout.strips) * columns + c;
    return {group, column, column < layout.columns};
}

// A thread's share of its columns.
template <class Traits> struct ColumnsShare : StridedShare<Traits, item> {
    using In = typename Traits::In;
    using Out = typename Traits::Out;
    Out *out;
    uint64 strips; // of all groups
    ColumnPlace place;

    template <unsigned BLOCK>
    static GPR_DEVICE ColumnsShare of(const In *in, Out *out, const Rows &rows,
                                      const Layout &layout, unsigned thread, unsigned block)
    {
        ColumnsShare share;
        share.row = row_of(rows, block);
        share.r = Rectangle::of_thread<BLOCK>(thread, layout);
        share.place = column_place(layout, share.row.index, rows.count, share.r.x * item);
        const RowOffsets start = layout.row_offsets(share.place.group);
        share.in = in + start.in + share.place.column;
        share.mask = layout.mask + start.mask + share.place.column;
        share.layout = &layout;
        share.has_rows = share.place.exists;
        share.out = out;
        share.strips = rows.count;
        return share;
    }
    GPR_DEVICE Out *result_at(const ColumnPlace &there) const
    {
        return out + this->layout->row_offsets(there.group).out +
               static_cast<long long>(there.column) * this->layout->column_out;
    }
    GPR_DEVICE Out *result_of(unsigned c) const
    {
        return result_at(column_place(*this->layout, this->row.index, strips, c));
    }
    GPR_DEVICE unsigned store(const typename Traits::Acc (&value)[item],
                              const typename Traits::AllParams &params) const
    {
        return store_item<Traits>(result_at(place), value, *this->layout, params, place.group,
                                  place.column);
    }
};

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_columns(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
             Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
             typename Traits::AllParams params)
{
    reduce_rows_of_block<Traits, BLOCK, item>(
        [&](unsigned thread, unsigned block) {
            return ColumnsShare<Traits>::template of<BLOCK>(in, out, rows, layout, thread, block);
        },
        layout, scratch, params);
}

} // namespace gpr
