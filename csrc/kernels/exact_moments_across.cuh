// exact_moments_across: what exact_moments makes, of rows that are no runs of memory. Any axes, any strides, any mask.
//
// Problem: as exact_across has it. A thread is alone in a row, finds its elements by walking, and adds them and their squares
// to windows of its own; what it finds goes to its row's numbers, of which a block has as many in shared memory as rows lie
// across it, and which it shares with those below it in the rectangle (across.cuh). For each row there are two, and that of
// squares of float64 has twice the digits: so fewer rows lie across a block than of exact_across.
//
// A warp puts a variance, as many warps at once as have room for the long division.
//
//   Launch: as exact_across; a row's counters are an accumulator.
//
// Still paid: the walk; tiles that do not fit are added by one thread; where rows are short, a long division each.
#pragma once

#include "exact_moments.cuh"
#include "exact_walk.cuh"

namespace gpr {

// Rows of a block: a few sectors of memory side by side, in few words of shared memory.
constexpr unsigned moments_strip_bytes = 128, most_moments_rows = warp_lanes;
template <class In> constexpr unsigned most_moments_across =
    moments_strip_bytes / sizeof(In) < most_moments_rows ? moments_strip_bytes / sizeof(In) : most_moments_rows;

// Shared memory that rows and rooms for results may take: what every card has for a block without asking, less what the
// rest of a program takes.
constexpr unsigned moments_shared_bytes = 46 << 10;

// A warp's room for an accumulator, and for a variance on the way.
template <class In> struct MomentsRoom {
    ExactMoments<In> whole;
    VarianceWork<PartType<In>> work;
};

template <class In> constexpr unsigned fitting_rooms =
    (moments_shared_bytes - most_moments_across<In> * sizeof(BlockMoments<In>)) / sizeof(MomentsRoom<In>);

// Results that a block makes at once.
template <class In, unsigned BLOCK> constexpr unsigned moments_rooms =
    fitting_rooms<In> < most_rooms ? (fitting_rooms<In> < BLOCK / warp_lanes ? fitting_rooms<In> : BLOCK / warp_lanes)
    : most_rooms < BLOCK / warp_lanes ? most_rooms
                                      : BLOCK / warp_lanes;

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact_moments_across(const typename Cell::In *in, typename Cell::Out *out, Rows rows, Scratch<typename Cell::Acc> scratch,
                     const __grid_constant__ Layout layout, Ending ending)
{
    using In = typename Cell::In;
    using Words = MomentWords<In>;
    constexpr unsigned numbers = most_moments_across<In>, rooms = moments_rooms<In, BLOCK>;
    static_assert(rooms > 0, "rows leave room for a result");
    static_assert(sizeof(typename Cell::Acc) == Words::all * sizeof(uint64), "words, a count and flags of each");
    __shared__ MomentsRoom<In> room[rooms];
    const BlockMoments<In> *moments = block_moments<In, numbers>();
    const Strip<BLOCK> strip(rows, layout);
    const Row &row = strip.row;
    const uint64 counted = row.block == 0 ? row.n : 0; // each element by one block

    clear_shared<BLOCK>(block_moments<In, numbers>(), numbers);
    strip.template add<Cell, MomentsAdder, numbers>(in, layout);
    __syncthreads(); // all threads have added

    // Word i of what the block has found of all its rows.
    const auto found = [&](unsigned i) { return Words::word(moments[i / Words::all], i % Words::all, counted); };
    const auto is_flags = [](unsigned i) { return Words::is_flags(i % Words::all); };
    Totals totals;
    if (row.blocks > 1) {
        totals = Totals(scratch.tickets, layout.slots, row, layout.across * Words::all);
        if (!totals.add<BLOCK>(strip.count * Words::all, row, found, is_flags)) return;
    }

    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
    for (unsigned c = warp; warp < rooms && c < strip.count; c += rooms) {
        uint64 *whole = reinterpret_cast<uint64 *>(&room[warp].whole);

        __syncwarp(); // the row before has been put
        for (unsigned i = c * Words::all + lane; i < (c + 1) * Words::all; i += warp_lanes) {
            whole[i - c * Words::all] = row.blocks > 1 ? totals.take(i) : found(i);
        }
        __syncwarp(); // the sums are there
        typename Cell::Out *result = out + layout.row(strip.first + c).out;
        if constexpr (same<typename Cell::Out, typename Cell::Acc>) {
            uint64 *words = reinterpret_cast<uint64 *>(result);
            for (unsigned i = lane; i < Words::all; i += warp_lanes) words[i] = whole[i];
        } else {
            Cell::put(result, room[warp].whole, room[warp].work, ending);
        }
    }
}

} // namespace gpr
