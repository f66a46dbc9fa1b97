// fast_narrow: a few columns without a gap, like axis 0 of ten million points of three coordinates.
//
// Problem: three columns of four bytes are no item of 16 bytes, and each row begins at a different
// offset from one. But all rows together are contiguous. So they are read as one run, by full
// vectors, in strides that are multiples of the number of columns: then each element of a thread's
// vector belongs to the same column every time, and the thread keeps one accumulator per element of
// its vector. Only at the end does it compute which columns these are.
//
//   3 columns, item = 4, width = 3 threads that work: a step is 12 elements, 4 whole rows
//
//   thread  |      0      |      1      |      2      |      0      | ...
//   column  | 0  1  2  0  | 1  2  0  1  | 2  0  1  2  | 0  1  2  0  | ...
//   slot    | 0  1  2  3  | 4  5  6  7  | 8  9 10 11  | 0  1  2  3  | ...     slot s: column s % 3
//
//   Launch: row v of `rows` is layout.columns columns of rows.n elements each; blocks split
//   the run. `width` threads of a block work; width * item is a multiple of the number of columns,
//   which is at most BLOCK * item. Elements need no alignment beyond their own: the first block
//   reads those before the first whole item and after the last one by one. No mask. With more than
//   one block per row, scratch has one partial per virtual block and column, and one ticket per
//   row.
//
// Still paid: threads that do not work; shared memory for item accumulators per thread.
#pragma once

#include "fast_axes.cuh"

namespace gpr {

// Folds slots s, s + columns, s + 2 * columns, ... below count of shared memory into slot s, for
// each s below columns. count is a multiple of columns. All threads must call; block barriers are
// passed before and after.
template <class Traits, unsigned BLOCK>
GPR_DEVICE void fold_slots(typename Traits::Acc *slots, unsigned count, unsigned columns)
{
    __syncthreads(); // slots are there
    for (unsigned left = count / columns; left > 1;) {
        const unsigned part = (left + tree_fan - 1) / tree_fan;
        for (unsigned s = threadIdx.x; s < part * columns; s += BLOCK) {
            typename Traits::Acc value = slots[s];
#pragma unroll
            for (unsigned q = 1; q < tree_fan; q++) {
                if (s + q * part * columns < left * columns)
                    value = Traits::combine(value, slots[s + q * part * columns]);
            }
            slots[s] = value;
        }
        __syncthreads(); // the next step reads what this one wrote
        left = part;
    }
}

// Folds this thread's share of the whole items: slot threadIdx.x * item + j gets the fold of the
// elements at place j of its items.
template <class Traits>
GPR_DEVICE void fold_items(const typename Traits::In *in, uint64 head, uint64 items,
                           unsigned columns, const Layout &layout, const Row &row,
                           typename Traits::Acc *slots)
{
    using In = typename Traits::In;
    constexpr unsigned under_way = items_under_way<In>;
    const uint64 step = static_cast<uint64>(row.blocks) * layout.width;
    const long long position_step = layout.reduced[0].position;
    const uint64 positions = step * item / columns * static_cast<uint64>(position_step); // per step
    uint64 next = static_cast<uint64>(row.block) * layout.width + threadIdx.x;
    OwnOrEachOutput<Traits, item> outputs;
    uint64 position[item];

#pragma unroll
    for (unsigned j = 0; j < item; j++) {
        position[j] = layout.first_position +
                      (head + next * item + j) / columns * static_cast<uint64>(position_step);
    }
    for (; next < items; next += under_way * step) {
        Packed<item * sizeof(In)> loaded[under_way];
#pragma unroll
        for (unsigned u = 0; u < under_way; u++) { // all loads first
            if (next + u * step < items)
                loaded[u] = load_packed<item * sizeof(In)>(in + head + (next + u * step) * item);
        }
        if constexpr (has_own_accumulator<Traits>) {
            outputs.template add_items<under_way>(
                [&](unsigned u) { return Item<In>{loaded[u], {}}; },
                [&](unsigned u) { return next + u * step < items; });
        } else {
#pragma unroll
            for (unsigned u = 0; u < under_way; u++) {
#pragma unroll
                for (unsigned j = 0; j < item; j++) {
                    if (next + u * step < items)
                        outputs.of[j].add(piece<In>(loaded[u], j), position[j]);
                    position[j] += positions;
                }
            }
        }
        outputs.renormalize();
    }
#pragma unroll
    for (unsigned j = 0; j < item; j++) slots[threadIdx.x * item + j] = outputs.finalize(j);
}

// fold_items by Extremes, where positions ascend and 32 bits hold them.
template <class Traits>
GPR_DEVICE void fold_extremes(const typename Traits::In *in, uint64 head, uint64 items,
                              unsigned columns, const Layout &layout, const Row &row,
                              typename Traits::Acc *slots)
{
    using In = typename Traits::In;
    constexpr unsigned under_way = items_under_way<In>;
    const uint64 step = static_cast<uint64>(row.blocks) * layout.width;
    const uint64 begin = static_cast<uint64>(row.block) * layout.width + threadIdx.x;
    const unsigned steps = static_cast<unsigned>(steps_of(items, begin, step));
    const In *mine = in + head + begin * item;
    Extremes<Traits> extremes;

    const auto add_some = [&](unsigned first, unsigned there) {
        Packed<item * sizeof(In)> loaded[under_way];
        // All loads first; behind the end the first one again.
#pragma unroll
        for (unsigned u = 0; u < under_way; u++) {
            loaded[u] = load_packed<item * sizeof(In)>(mine + (u < there ? u : 0) * step * item);
        }
        extremes.template add<under_way>(
            first, [&](unsigned u, unsigned j) { return piece<In>(loaded[u], j); });
        mine += under_way * step * item;
    };
    unsigned taken = 0;
    for (; steps - taken >= under_way; taken += under_way) add_some(taken, under_way);
    if (taken < steps) add_some(taken, steps - taken);
#pragma unroll
    for (unsigned j = 0; j < item; j++) {
        const uint64 place = (head + (begin + extremes.at[j] * step) * item + j) / columns;
        const uint64 position =
            layout.first_position + place * static_cast<uint64>(layout.reduced[0].position);
        slots[threadIdx.x * item + j] =
            steps == 0 ? Traits::identity() : extremes.finalize(j, position);
    }
}

// A block's share of its columns, and for traits that add it again, a thread's (kernel_traits.cuh).
template <class Traits, unsigned BLOCK> struct NarrowShare {
    using In = typename Traits::In;
    using Out = typename Traits::Out;
    const In *in; // of the row, as all that follows
    Out *out;
    const Layout *layout;
    Row row;
    unsigned columns;
    uint64 head, tail, n; // elements before the first whole item, before those behind the last; all
    bool is_merged;       // whether slot s is of column s; else it is of (shift() + s) % columns

    static GPR_DEVICE NarrowShare of(const In *in, Out *out, const Rows &rows,
                                     const Layout &layout, unsigned block, bool is_merged)
    {
        NarrowShare share;
        share.row = row_of(rows, block);
        const RowOffsets start = layout.row_offsets(share.row.index);
        share.in = in + start.in;
        share.out = out + start.out;
        share.layout = &layout;
        share.columns = static_cast<unsigned>(layout.columns);
        share.n = share.row.n * share.columns;
        const unsigned past = static_cast<unsigned>(reinterpret_cast<uint64>(share.in) %
                                                    (item * sizeof(In)) / sizeof(In));
        const unsigned to_aligned = past == 0 ? 0 : item - past;
        share.head = to_aligned < share.n ? to_aligned : share.n;
        share.tail = share.head + share.items() * item;
        share.is_merged = is_merged;
        return share;
    }
    GPR_DEVICE uint64 items() const { return (n - head) / item; }
    GPR_DEVICE unsigned shift() const { return static_cast<unsigned>(head) % columns; }

    GPR_DEVICE unsigned blocks() const { return row.blocks; }
    GPR_DEVICE uint64 group() const { return row.index; }
    GPR_DEVICE unsigned count() const { return columns; }
    GPR_DEVICE unsigned number_of(unsigned k) const
    {
        return ((is_merged ? 0 : shift()) + threadIdx.x + k * BLOCK) % columns;
    }
    GPR_DEVICE Out *result_of(unsigned c) const { return out + c * layout->column_out; }
    template <class Again> GPR_DEVICE void visit(const Again &again) const
    {
        const unsigned width = layout->width;
        const auto add = [&](uint64 i) {
            const unsigned column = static_cast<unsigned>(i % columns);
            if (again.wants(column)) again.add(column, in[i]);
        };
        const uint64 step = static_cast<uint64>(row.blocks) * width * item;
        const uint64 begin = static_cast<uint64>(row.block) * width * item;
        // The block's items: each of its threads takes neighbouring elements of them.
#pragma unroll 1
        for (uint64 first = head + begin; first < tail; first += step) {
            for (unsigned i = threadIdx.x; i < width * item && first + i < tail; i += BLOCK)
                add(first + i);
        }
        if (row.block != 0) return;
        for (uint64 i = threadIdx.x; i < head; i += BLOCK) add(i);
        for (uint64 i = tail + threadIdx.x; i < n; i += BLOCK) add(i);
    }
};

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_narrow(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
            Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
            typename Traits::AllParams params)
{
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    using Share = NarrowShare<Traits, BLOCK>;
    __shared__ Acc slots[BLOCK * item];
    Share share = Share::of(in, out, rows, layout, blockIdx.x, false);
    [[maybe_unused]] const auto share_of = [&](bool is_merged) {
        return Share::of(in, out, rows, layout, anew(blockIdx.x), is_merged);
    };
    const unsigned columns = share.columns, shift = share.shift();

    if (threadIdx.x < layout.width) {
        bool is_done = false;
        if constexpr (finds_extremes<Traits>) {
            is_done = layout.ascends != 0;
            if (is_done)
                fold_extremes<Traits>(share.in, share.head, share.items(), columns, layout,
                                      share.row, slots);
        }
        if (!is_done)
            fold_items<Traits>(share.in, share.head, share.items(), columns, layout, share.row,
                               slots);
    }
    fold_slots<Traits, BLOCK>(slots, layout.width * item, columns);

    unsigned left = 0; // bit k: the column of slot threadIdx.x + k * BLOCK
    Acc *partials = scratch.partials() + share.row.virtual_block * columns;
    for (unsigned s = threadIdx.x, k = 0; s < columns; s += BLOCK, k++) {
        const unsigned column = shift + s < columns ? shift + s : shift + s - columns;
        Acc value = slots[s];
        if (share.row.block == 0) { // the first block adds the elements that are in no whole item
            for (uint64 i = column; i < share.head; i += columns) {
                value = Traits::combine(
                    value, Traits::lift(share.in[i], layout.first_position +
                                                         i / columns * layout.reduced[0].position));
            }
            const unsigned into = static_cast<unsigned>(share.tail % columns);
            for (uint64 i = share.tail + (column >= into ? column - into : column + columns - into);
                 i < share.n; i += columns) {
                value = Traits::combine(
                    value, Traits::lift(share.in[i], layout.first_position +
                                                         i / columns * layout.reduced[0].position));
            }
        }
        if (share.row.blocks > 1) {
            partials[column] = value;
            if constexpr (has_own_accumulator<Traits>) {
                const Acc values[1] = {value};
                left |= Traits::to_publish(values) << k;
            }
        } else if (!store_result<Traits>(share.result_of(column), value, layout.elements,
                                         params.of_row(layout, share.row.index, column))) {
            left |= 1u << k;
        }
    }
    if (share.row.blocks == 1) {
        if constexpr (has_own_accumulator<Traits>)
            Traits::template store_left<BLOCK>(left, layout.elements, scratch,
                                               [&] { return share_of(false); });
        return;
    }
    unsigned *ticket = ticket_of<Traits>(scratch, share.row, columns);
    if constexpr (has_own_accumulator<Traits>)
        Traits::template publish_left<BLOCK>(left, scratch, [&] { return share_of(false); });
    if (!is_last_to_arrive(ticket, share.row.blocks)) return;
    if constexpr (proves_sums<Traits>) share = share_of(true);

    // The partials of all blocks are one run too, of the same columns.
    const unsigned count = BLOCK * item / columns * columns;
    const uint64 all = static_cast<uint64>(share.row.blocks) * columns;
    partials = scratch.partials() + share.row.index * all;
    Acc value[item];
#pragma unroll
    for (unsigned j = 0; j < item; j++) value[j] = Traits::identity();
#pragma unroll(item < 4 ? 4 : 1)
    for (uint64 first = threadIdx.x; first < all; first += count) {
#pragma unroll
        for (unsigned j = 0; j < item; j++) { // independent loads
            const unsigned further = j * BLOCK;
            if (further + threadIdx.x < count && first + further < all)
                value[j] = Traits::combine(value[j], partials[first + further]);
        }
    }
#pragma unroll
    for (unsigned j = 0; j < item; j++) {
        if (j * BLOCK + threadIdx.x < count) slots[j * BLOCK + threadIdx.x] = value[j];
    }
    fold_slots<Traits, BLOCK>(slots, count, columns);
    left = 0;
    for (unsigned c = threadIdx.x, k = 0; c < columns; c += BLOCK, k++) {
        const Acc of_column[1] = {slots[c]};
        if (!store_result<Traits>(share.result_of(c), of_column[0], layout.elements,
                                  params.of_row(layout, share.row.index, c)))
            left |= 1u << k;
        if constexpr (has_own_accumulator<Traits>) left |= Traits::no_pairs(of_column) << k;
    }
    if constexpr (has_own_accumulator<Traits>)
        Traits::template store_left<BLOCK>(left, layout.elements, scratch,
                                           [&] { return share_of(true); });
}

} // namespace gpr
