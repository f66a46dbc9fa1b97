// fast_counted: many rows of a few elements, like the coordinates of a hundred million points.
//
// Problem: a row of three elements is no vector of 16 bytes and begins at a different offset from
// one each time, and any work per row is work per three elements. So the length of a row is a
// constant of the program, and a thread reads as many rows as a vector has elements: together they
// are as many whole vectors as a row has elements. No loop is left, and a thread's results are
// neighbours too.
//
//   row_elements = 3, item = 4 (float32): a thread reads 3 vectors, which are 4 rows
//
//   vector  |      0      |      1      |      2      |
//   element | a0 a1 a2 b0 | b1 b2 c0 c1 | c2 d0 d1 d2 |     rows a, b, c, d
//
//   Launch: virtual block v serves rows v * BLOCK * item to (v + 1) * BLOCK * item - 1; rows.blocks
//   is 0. item is the number of elements in 16 bytes; rows follow each other without a gap, the
//   first one aligned to 16 bytes; no mask.
//
// Still paid: vectors of neighbouring threads are not adjacent, so a sector is loaded twice, the
// second time from L1.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_counted(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
             Scratch<typename Traits::Acc>, const __grid_constant__ Layout layout,
             typename Traits::AllParams params)
{
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    constexpr unsigned length =
        row_elements == 0 ? 1 : row_elements; // 0 in programs that do not launch this kernel
    const uint64 first = ((rows.first + blockIdx.x) * BLOCK + threadIdx.x) * item;
    const In *rows_in = in + first * length;
    typename Traits::Out *to = out + static_cast<long long>(first) * layout.column_out;
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
                const Acc x = Traits::lift(
                    element<In>(v[e / vector_elements<In>], e % vector_elements<In>), j);
                value[r] = j == 0 ? x : Traits::combine(value[r], x);
            }
        }
        store_item<Traits>(to, value, layout, params, 0, first);
        return;
    }
    for (unsigned r = 0; first + r < rows.count && r < item; r++) { // the last rows
        Acc one = Traits::identity();
        for (unsigned j = 0; j < length; j++)
            one = Traits::combine(one, Traits::lift(rows_in[r * length + j], j));
        Traits::store(to + r * layout.column_out, one, layout.elements,
                      params.of_row(layout, 0, first + r));
    }
}

} // namespace gpr
