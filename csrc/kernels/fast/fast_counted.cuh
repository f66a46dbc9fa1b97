// fast_counted: rows of a few elements, many of them, like the coordinates of a hundred million points.
//
// Problem: a row of three elements is no 16 bytes, begins at another place of them each time, and whatever is done once
// for a row is done once for three elements. So the length of a row is a constant of the program, and a thread takes as
// many rows as a vector has elements: together they are as many whole vectors as a row has elements. Nothing is left to
// count, and the thread's results are neighbours too.
//
//   Launch: virtual block v serves rows v * BLOCK * item to (v + 1) * BLOCK * item - 1; rows.blocks is 0. item is the
//   number of elements in 16 bytes; rows follow each other without a gap from a multiple of 16 bytes on; no mask.
//
// Still paid: neighbouring threads' vectors are apart, so that a sector comes in two loads, the second from L1.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_counted(const typename Traits::In *in, typename Traits::Out *out, Rows rows, Scratch<typename Traits::Acc>,
             const __grid_constant__ Layout layout, typename Traits::AllParams params)
{
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    constexpr unsigned length = row_elements == 0 ? 1 : row_elements; // 0 in programs that do not launch this
    const uint64 first = ((rows.first + blockIdx.x) * BLOCK + threadIdx.x) * item;
    const In *rows_in = in + first * length;
    typename Traits::Out *to = out + static_cast<long long>(first) * layout.column.out;
    Acc value[item];

    if (first >= rows.count) return;
    if (rows.count - first >= item && item * sizeof(In) == sizeof(Vector)) {
        Vector v[length];
#pragma unroll
        for (unsigned k = 0; k < length; k++) v[k] = reinterpret_cast<const Vector *>(rows_in)[k];
#pragma unroll
        for (unsigned r = 0; r < item; r++) {
#pragma unroll
            for (unsigned j = 0; j < length; j++) {
                const unsigned e = r * length + j;
                const Acc x = Traits::lift(element<In>(v[e / vector_elements<In>], e % vector_elements<In>), j);
                value[r] = j == 0 ? x : Traits::combine(value[r], x);
            }
        }
        store_item<Traits>(to, value, layout, params, 0, first);
        return;
    }
    for (unsigned r = 0; first + r < rows.count && r < item; r++) { // the last rows
        Acc one = Traits::identity();
        for (unsigned j = 0; j < length; j++) one = Traits::combine(one, Traits::lift(rows_in[r * length + j], j));
        Traits::store(to + r * layout.column.out, one, layout.elements, params.of_row(layout, 0, first + r));
    }
}

} // namespace gpr
