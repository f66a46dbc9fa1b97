// Blocks whose threads lie across rows: what auto_columns and auto_strided have in common.
//
// A block's threads are a rectangle. `across` of them lie side by side, each with outputs of its own; BLOCK / across
// lie one below the other and share those outputs, each taking every so-manyth position of the rows. What they found is
// combined down the rectangle in shared memory, and where several blocks share rows, the last of them combines what all
// found, in the order of the blocks: who combines what is fixed by the launch, never by timing.
#pragma once

#include "block.cuh"
#include "layout.cuh"
#include "local.cuh"
#include "results.cuh"

namespace gpr {

// Items that a thread has under way: with 1024 threads a multiprocessor and items of 16 bytes 64 KiB, as in auto_stream.
constexpr unsigned walk_items = 4;

// A thread's place in its block. Threads that the rectangle leaves over have y == down and do nothing.
struct Rectangle {
    unsigned across, down;
    unsigned x, y;

    // `along`: neighbours in the block take neighbouring positions of a row, else neighbouring rows.
    template <unsigned BLOCK> static GPR_DEVICE Rectangle of_block(unsigned across, bool along)
    {
        Rectangle r;
        if (across == BLOCK) return Rectangle{BLOCK, 1, threadIdx.x, 0};
        r.across = across;
        r.down = BLOCK / across;
        r.x = along ? threadIdx.x / r.down : threadIdx.x % across;
        r.y = along ? threadIdx.x % r.down : threadIdx.x / across;
        if (along && r.x >= across) r.x = 0, r.y = r.down;
        return r;
    }
    GPR_DEVICE bool works() const { return y < down; }
};

// Combines one value a thread down the rectangle; the threads with y == 0 hold the results. All threads of the block
// must call. `partial` is shared memory of BLOCK accumulators; another call with the same rectangle may follow at once, as
// of each slot only its own thread reads after the last barrier.
template <class Cell> GPR_DEVICE typename Cell::Acc fold_down(typename Cell::Acc *partial, typename Cell::Acc value,
                                                              const Rectangle &r)
{
    const unsigned slot = r.y * r.across + r.x;

    if (r.down == 1) return value;
    if (r.works()) partial[slot] = value;
    __syncthreads(); // partials are there
    for (unsigned left = r.down; left > 1;) {
        const unsigned half = (left + 1) / 2;
        if (r.y + half < left) partial[slot] = Cell::combine(partial[slot], partial[slot + half * r.across]);
        __syncthreads(); // the next step reads what this one wrote
        left = half;
    }
    return r.y == 0 ? partial[slot] : value;
}

// Folds rows of n items from `in` on: this thread's positions are r.y of the block's first `down`, and so on every
// `blocks` * down. OUTPUTS is 1, where the elements of an item are of one row, or item, where they are of as many.
template <class Cell, unsigned OUTPUTS>
GPR_DEVICE void walk_rows(const typename Cell::In *in, const unsigned char *mask, const Layout &layout, const Row &row,
                          const Rectangle &r, typename Cell::Acc (&value)[OUTPUTS])
{
    using In = typename Cell::In;
    static_assert(OUTPUTS == 1 || OUTPUTS == item, "an item is of one row or of as many as it has elements");
    const uint64 step = static_cast<uint64>(row.blocks) * r.down;
    uint64 next = static_cast<uint64>(row.block) * r.down + r.y;
    Walk walk(layout, next, step);
    Local<Cell> local[OUTPUTS];

    while (next < row.n) {
        Item<In> items[walk_items];
        uint64 positions[walk_items];
#pragma unroll
        for (unsigned u = 0; u < walk_items; u++) { // all loads first
            positions[u] = walk.place().position;
            if (next + u * step < row.n) items[u] = load_item(in, mask, walk.place());
            walk.advance();
        }
#pragma unroll
        for (unsigned u = 0; u < walk_items; u++) {
            if (next + u * step >= row.n) continue;
#pragma unroll
            for (unsigned j = 0; j < item; j++) {
                // Of a row's item the elements have positions of their own.
                const uint64 position =
                    positions[u] + (OUTPUTS == 1 ? static_cast<uint64>(j * layout.item_position) : uint64(0));
                if (items[u].kept(j)) local[OUTPUTS == 1 ? 0 : j].take(items[u].element(j), position);
            }
        }
#pragma unroll
        for (unsigned k = 0; k < OUTPUTS; k++) local[k].settle();
        next += walk_items * step;
    }
#pragma unroll
    for (unsigned k = 0; k < OUTPUTS; k++) value[k] = local[k].close();
}

// Makes of one block's values those of all blocks that share its rows, in the last of them to arrive; says whether this
// is that block. `width` outputs a block.
template <class Cell, unsigned OUTPUTS>
GPR_DEVICE bool join_blocks(const Scratch<typename Cell::Acc> &scratch, const Row &row, const Rectangle &r,
                            typename Cell::Acc *partial, typename Cell::Acc (&value)[OUTPUTS])
{
    using Acc = typename Cell::Acc;
    const uint64 width = static_cast<uint64>(r.across) * OUTPUTS;
    Acc *mine = scratch.partials + row.virtual_block * width + r.x * OUTPUTS;

    if (r.y == 0) {
#pragma unroll
        for (unsigned k = 0; k < OUTPUTS; k++) mine[k] = value[k];
    }
    if (!is_last_to_arrive(scratch.tickets + row.index, row.blocks)) return false;
    const Acc *first = scratch.partials + row.index * row.blocks * width + r.x * OUTPUTS;
#pragma unroll
    for (unsigned k = 0; k < OUTPUTS; k++) value[k] = Cell::identity();
    if (r.works()) {
#pragma unroll 4
        for (unsigned b = r.y; b < row.blocks; b += r.down) {
#pragma unroll
            for (unsigned k = 0; k < OUTPUTS; k++) value[k] = Cell::combine(value[k], first[b * width + k]);
        }
    }
#pragma unroll
    for (unsigned k = 0; k < OUTPUTS; k++) value[k] = fold_down<Cell>(partial, value[k], r);
    return true;
}

// Results of neighbours, stored together.
template <class Out> constexpr unsigned stored_together =
    16 % sizeof(Out) != 0 ? 1 : 16 / sizeof(Out) < item ? 16 / sizeof(Out) : item;
template <class Out> constexpr unsigned store_alignment =
    16 % sizeof(Out) != 0 ? alignof(Out) : stored_together<Out> * sizeof(Out);
template <class Out> struct alignas(store_alignment<Out>) Together { Out of[stored_together<Out>]; };

// Results of an item of neighbours, the first of which goes to *to.
template <class Cell>
GPR_DEVICE void store_item(typename Cell::Out *to, const typename Cell::Acc (&value)[item], const Layout &layout,
                           Ending ending)
{
    using Out = typename Cell::Out;

    if (layout.packed != 0) {
#pragma unroll
        for (unsigned k = 0; k < item; k += stored_together<Out>) {
            Together<Out> together;
#pragma unroll
            for (unsigned j = 0; j < stored_together<Out>; j++) {
                Cell::put(&together.of[j], value[k + j], layout.elements, ending);
            }
            *reinterpret_cast<Together<Out> *>(to + k) = together;
        }
    } else {
#pragma unroll
        for (unsigned k = 0; k < item; k++) {
            Cell::put(to + k * layout.column.out, value[k], layout.elements, ending);
        }
    }
}

// A block's part of its rows, from elements to accumulators; whether it is the one that holds results, and if so the
// threads with y == 0 do. `has_rows`: this thread's outputs exist.
template <class Cell, unsigned BLOCK, unsigned OUTPUTS>
GPR_DEVICE bool fold_across(const typename Cell::In *in, const unsigned char *mask, const Layout &layout,
                            const Scratch<typename Cell::Acc> &scratch, const Row &row, const Rectangle &r,
                            bool has_rows, typename Cell::Acc (&value)[OUTPUTS])
{
    __shared__ typename Cell::Acc partial[BLOCK];

#pragma unroll
    for (unsigned k = 0; k < OUTPUTS; k++) value[k] = Cell::identity();
    if (has_rows && r.works()) walk_rows<Cell, OUTPUTS>(in, mask, layout, row, r, value);
#pragma unroll
    for (unsigned k = 0; k < OUTPUTS; k++) value[k] = fold_down<Cell>(partial, value[k], r);
    return row.blocks == 1 || join_blocks<Cell, OUTPUTS>(scratch, row, r, partial, value);
}

} // namespace gpr
