// fast_strided: any axes, any strides, any mask; for layouts that no other kernel reads faster.
// fast_empty: rows without elements.
//
// A block of fast_strided serves layout.width rows at once (fast_axes.cuh). A thread divides once
// to find its first element and then carries from axis to axis (StridedIterator in layout.cuh).
// Where the innermost reduced axis is contiguous, it loads items of up to 16 bytes. Where rows are
// nearer to each other in memory than the elements of one row, neighbouring threads read
// neighbouring rows.
//
//   Launch: row v of `rows` is `width` rows of the array; blocks split their items. rows.n counts
//   items of a row, rows.count groups of rows. With more than one block per row, scratch has
//   `width` partials per virtual block and a ticket per group.
//
// Still paid: several additions per item for the iterator; and bytes of each sector that no element
// needs.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_strided(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
             Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
             typename Traits::AllParams params)
{
    const Row row = row_of(rows, blockIdx.x);
    const Rectangle r = Rectangle::of_block<BLOCK>(layout.width, layout.row_major != 0);
    const uint64 index = row.index * layout.width + r.x;
    const bool has_row = index < layout.count;
    const RowOffsets start = layout.row_offsets(has_row ? index : 0);
    typename Traits::Acc value[1];
    const auto result_of = [=, &layout](unsigned x) {
        return out + layout.row_offsets(row.index * layout.width + x).out;
    };

    if (!fold_rows_of_block<Traits, BLOCK, 1>(in + start.in, layout.mask + start.mask, layout,
                                              scratch, row, r, has_row, result_of, value)) {
        return;
    }
    unsigned left = 0; // bit 0: the thread's row
    if (r.y == 0 && has_row && !store_result<Traits>(out + start.out, value[0], layout.elements,
                                                     params.of_row(layout, index, 0)))
        left = 1;
    if constexpr (has_own_accumulator<Traits>) {
        if (row.blocks > 1 && r.y == 0 && has_row) left |= Traits::no_pairs(value);
        Traits::template store_left<BLOCK>(
            left, r.width, layout, scratch, row, OutputNumber{r.x}, result_of,
            StridedShare<Traits, 1>{in + start.in, layout.mask + start.mask, &layout, row, r,
                                    has_row, {}});
    }
}

// Stores the results of rows without elements: the operator's identity. One thread per row; any
// grid.
template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_empty(const typename Traits::In *, typename Traits::Out *out, Rows rows,
           Scratch<typename Traits::Acc>, const __grid_constant__ Layout layout,
           typename Traits::AllParams params)
{
    const uint64 index = (rows.first + blockIdx.x) * BLOCK + threadIdx.x;
    if (index < layout.count) {
        Traits::store(out + layout.row_offsets(index).out, Traits::identity(), 0,
                      params.of_row(layout, index, 0));
    }
}

} // namespace gpr
