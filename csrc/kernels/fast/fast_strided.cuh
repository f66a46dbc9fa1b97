// fast_strided: any axes, any strides, any mask; for layouts that no other kernel reads faster.
// fast_empty: rows of which nothing has to be read.
//
// A block of fast_strided serves layout.width rows at once (fast_axes.cuh). A thread divides once
// to find its first element and then carries from axis to axis (StridedIterator in layout.cuh).
// Where the innermost reduced axis is contiguous, it loads items of up to 16 bytes. Where rows are
// nearer to each other in memory than the elements of one row, neighbouring threads mostly read
// neighbouring rows; layout.row_major says whether they do.
//
//   Launch: row v of `rows` is `width` rows of the array; blocks split their items. rows.n counts
//   items of a row, rows.count groups of rows. With more than one block per row, scratch has
//   `width` partials per virtual block and a ticket per group. If layout.row_major is
//   GPR_ROW_BY_LANES, layout.height is a power of two up to a warp or a multiple of one, and BLOCK
//   is a multiple of a warp.
//
// Still paid: several additions per item for the iterator; and bytes of each sector that no element
// needs.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

// A thread's share of its row.
template <class Traits> struct RowShare : StridedShare<Traits, 1> {
    using In = typename Traits::In;
    using Out = typename Traits::Out;
    Out *out;
    uint64 index; // of the row
    long long result;

    template <unsigned BLOCK>
    static GPR_DEVICE RowShare of(const In *in, Out *out, const Rows &rows, const Layout &layout,
                                  unsigned thread, unsigned block)
    {
        RowShare share;
        share.row = row_of(rows, block);
        share.r = Rectangle::of_thread<BLOCK>(thread, layout);
        share.index = share.row.index * layout.width + share.r.x;
        share.has_rows = share.index < layout.count;
        const RowOffsets start = layout.row_offsets(share.has_rows ? share.index : 0);
        share.in = in + start.in;
        share.mask = layout.mask + start.mask;
        share.layout = &layout;
        share.out = out;
        share.result = start.out;
        return share;
    }
    GPR_DEVICE Out *result_of(unsigned x) const
    {
        const uint64 first = this->row.index * this->layout->width;
        return out + this->layout->row_offsets(first + x).out;
    }
    GPR_DEVICE unsigned store(const typename Traits::Acc (&value)[1],
                              const typename Traits::AllParams &params) const
    {
        const bool is_stored =
            store_result<Traits>(out + result, value[0], this->layout->elements,
                                 params.of_row(*this->layout, index, 0));
        return is_stored ? 0 : 1;
    }
};

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_strided(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
             Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
             typename Traits::AllParams params)
{
    reduce_rows_of_block<Traits, BLOCK, 1>(
        [&](unsigned thread, unsigned block) {
            return RowShare<Traits>::template of<BLOCK>(in, out, rows, layout, thread, block);
        },
        layout, scratch, params);
}

// Stores the results of rows without elements: the operator's identity. Where results are
// positions, rows have one element, whose position is known. One thread per row; any grid.
template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_empty(const typename Traits::In *, typename Traits::Out *out, Rows rows,
           Scratch<typename Traits::Acc>, const __grid_constant__ Layout layout,
           typename Traits::AllParams params)
{
    const uint64 index = (rows.first + blockIdx.x) * BLOCK + threadIdx.x;
    typename Traits::Acc value = Traits::identity();
    if constexpr (Traits::positional) value.position = layout.first_position;
    if (index < layout.count) {
        Traits::store(out + layout.row_offsets(index).out, value, layout.elements,
                      params.of_row(layout, index, 0));
    }
}

} // namespace gpr
