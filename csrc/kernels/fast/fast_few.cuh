// fast_few: a few rows of memory reduced to one, like axis 0 of an array (3, 100000000).
//
// Problem: a thread of fast_columns has one item per row under way, three in all here, and where
// rows begin at odd addresses an item is a single element: memory is idle most of the time. So the
// number of rows is a constant of the program, and a thread takes several items of each row, a
// block's width apart: all their loads are under way before the first is folded.
//
//             columns of a block: BLOCK * item * per_thread
//            | t0 t1 t2 t3 | t0 t1 t2 t3 |      BLOCK = 4, per_thread = 2
//   row 0        x             x
//   row 1        x             x                row_elements = 3: thread t1 has 6 items under way
//   row 2        x             x
//
// Rows of more than GPR_COUNTED_ELEMENTS elements share a program with others whose number is about
// the same: row_elements is what it has room for, and of the last few each is tested.
//
//   Launch: row v of `rows` is a strip of BLOCK * item * per_thread columns; one block serves it.
//   rows.n is row_elements or a little less, rows.count is strips: layout.strips of them per
//   combination of the other kept axes. Each item is aligned to its size; layout.columns is a
//   multiple of item. One reduced axis, no mask; where positions are found, they ascend.
//
// Still paid: strips at the edge that are not full.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

// A block's columns, for traits that add them again too (kernel_traits.cuh).
template <class Traits, unsigned BLOCK> struct FewShare {
    using In = typename Traits::In;
    using Out = typename Traits::Out;
    static constexpr unsigned apart = BLOCK * item; // columns between a thread's items
    const In *in;                                   // the first column
    Out *out;
    const Layout *layout;
    uint64 group_index, first; // column
    unsigned n;                // elements of a row

    static GPR_DEVICE FewShare of(const In *in, Out *out, const Rows &rows, const Layout &layout,
                                  unsigned block)
    {
        const uint64 index = rows.first + block;
        const uint64 group = layout.strips == 1            ? index
                             : layout.strips == rows.count ? 0
                                                           : index / layout.strips;
        const uint64 strip = layout.strips == 1 ? 0 : index - group * layout.strips;
        const uint64 first = strip * (apart * per_thread);
        const RowOffsets start = layout.row_offsets(group);
        return {in + start.in + first,
                out + start.out + static_cast<long long>(first) * layout.column_out, &layout,
                group, first, static_cast<unsigned>(rows.n)};
    }
    static GPR_DEVICE unsigned blocks() { return 1; }
    static GPR_DEVICE uint64 group() { return 0; }
    static GPR_DEVICE unsigned count() { return apart * per_thread; }
    static GPR_DEVICE unsigned number_of(unsigned k)
    {
        return k / item * apart + threadIdx.x * item + k % item;
    }
    GPR_DEVICE Out *result_of(unsigned c) const { return out + c * layout->column_out; }
    template <class Again> GPR_DEVICE void visit(const Again &again) const
    {
#pragma unroll 1
        for (unsigned c = threadIdx.x; c < count(); c += BLOCK) {
            if (!again.wants(c)) continue;
#pragma unroll 1
            for (unsigned p = 0; p < n; p++)
                again.add(c, in[c + p * layout->reduced[0].in]);
        }
    }
};

// The longest rows whose extremes are found at once, as measured on an H200. Longer ones of narrow
// elements are searched element by element, as the numbers take more registers than the elements.
template <class In> constexpr unsigned most_found = sizeof(In) < 4 ? 16 : ~0u;

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_few(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
         [[maybe_unused]] Scratch<typename Traits::Acc> scratch,
         const __grid_constant__ Layout layout, typename Traits::AllParams params)
{
    using In = typename Traits::In;
    using Share = FewShare<Traits, BLOCK>;
    constexpr unsigned length =
        row_elements == 0 ? 1 : row_elements; // 0 in programs that do not launch this kernel
    constexpr unsigned apart = Share::apart;
    const Share share = Share::of(in, out, rows, layout, blockIdx.x);
    const auto exists = [&](unsigned p) {
        return length <= GPR_COUNTED_ELEMENTS || p + GPR_FEW_STEP <= length || p < share.n;
    };
    const auto position_of = [&](unsigned p) {
        return layout.first_position + static_cast<uint64>(p * layout.reduced[0].position);
    };
    const unsigned place = threadIdx.x * item; // of the thread's first column
    const uint64 column = share.first + place;
    const In *row_in = share.in + place;
    Packed<item * sizeof(In)> loaded[per_thread][length];

#pragma unroll
    for (unsigned k = 0; k < per_thread; k++) { // all loads first
        if (column + k * apart >= layout.columns) continue;
#pragma unroll
        for (unsigned p = 0; p < length; p++) {
            if (!exists(p)) continue;
            loaded[k][p] =
                load_packed<item * sizeof(In)>(row_in + k * apart + p * layout.reduced[0].in);
        }
    }
    [[maybe_unused]] unsigned left = 0; // bit k * item + j: column j of the thread's item k
#pragma unroll
    for (unsigned k = 0; k < per_thread; k++) {
        if (column + k * apart >= layout.columns) continue;
        typename Traits::Acc value[item];
        if constexpr (finds_extremes<Traits> && length <= most_found<In>) {
            Extremes<Traits> extremes;
            // Behind the end the first element again.
            extremes.template add<length>(0, [&](unsigned p, unsigned j) {
                return piece<In>(loaded[k][exists(p) ? p : 0], j);
            });
#pragma unroll
            for (unsigned j = 0; j < item; j++)
                value[j] = extremes.finalize(j, position_of(extremes.at[j]));
        } else {
            OwnOrEachOutput<Traits, item> outputs;
            if constexpr (has_own_accumulator<Traits>) {
                outputs.template add_items<length>(
                    [&](unsigned p) { return Item<In>{loaded[k][p], {}}; }, exists);
            } else {
#pragma unroll
                for (unsigned p = 0; p < length; p++) {
                    if (!exists(p)) continue;
#pragma unroll
                    for (unsigned j = 0; j < item; j++)
                        outputs.of[j].add(piece<In>(loaded[k][p], j), position_of(p));
                }
            }
#pragma unroll
            for (unsigned j = 0; j < item; j++) value[j] = outputs.finalize(j);
        }
        const unsigned failed = store_item<Traits>(
            share.result_of(place + k * apart), value, layout, params, share.group_index,
            column + k * apart);
        if constexpr (has_own_accumulator<Traits>) left |= failed << k * item;
    }
    if constexpr (has_own_accumulator<Traits>) {
        // of the traits too: a compiler may check what depends on no template at once
        static_assert(has_own_accumulator<Traits> && per_thread * item <= GPR_FEW_COLUMNS,
                      "a thread's columns have a bit each");
        Traits::template store_left<BLOCK>(left, layout.elements, scratch, [&] {
            return Share::of(in, out, rows, layout, anew(blockIdx.x));
        });
    }
}

} // namespace gpr
