// fast_strided: whatever no other kernel reads faster. Any axes, any strides, any mask.
//
// A block takes as many rows as lie across it (fast_axes.cuh) and walks them by the steps of their axes: a thread divides
// at its beginning and carries from then on (layout.cuh). Where the elements of a row begin with runs of memory, it
// loads items of up to 16 bytes of them; where rows are nearer to each other than the elements of one, neighbouring
// threads take neighbouring rows.
//
//   Launch: row v of `rows` is `width` rows of the array; blocks split their items. rows.n counts items of a row,
//   rows.count groups of rows. With more than one block a row, scratch has `width` partials for each virtual block and
//   a ticket for each group.
//
// Still paid: additions for each item where a pointer's step would do; and whatever memory brings beside the elements.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_strided(const typename Traits::In *in, typename Traits::Out *out, Rows rows, Scratch<typename Traits::Acc> scratch,
             const __grid_constant__ Layout layout, typename Traits::AllParams params)
{
    const Row row = row_of(rows, blockIdx.x);
    const Rectangle r = Rectangle::of_block<BLOCK>(layout.width, layout.row_major != 0);
    const uint64 index = row.index * layout.width + r.x;
    const bool has_row = index < layout.count;
    const RowOffsets start = layout.row_offsets(has_row ? index : 0);
    typename Traits::Acc value[1];

    if (!fold_rows_of_block<Traits, BLOCK, 1>(in + start.in, layout.mask + start.mask, layout, scratch, row, r, has_row, value)) {
        return;
    }
    if (r.y == 0 && has_row) {
        Traits::store(out + start.out, value[0], layout.elements, params.of_row(layout, index, 0));
    }
}

// Results of rows without elements: the operator's identity. A thread a row; any grid.
template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_empty(const typename Traits::In *, typename Traits::Out *out, Rows rows, Scratch<typename Traits::Acc>, const __grid_constant__ Layout layout,
           typename Traits::AllParams params)
{
    const uint64 index = (rows.first + blockIdx.x) * BLOCK + threadIdx.x;
    if (index < layout.count) {
        Traits::store(out + layout.row_offsets(index).out, Traits::identity(), 0, params.of_row(layout, index, 0));
    }
}

} // namespace gpr
