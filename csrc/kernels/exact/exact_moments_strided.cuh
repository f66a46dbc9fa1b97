// exact_moments_strided: exact_moments for rows that are no runs of memory. Any axes, any strides,
// any mask.
//
// Problem: that of exact_strided. A thread finds the elements of its row by iterating over axes,
// and adds them and their squares to bins of its own. At the end it adds its bins to its row's two
// superaccumulators in shared memory, which the threads below it in the rectangle share
// (fast_axes.cuh). That of squares of float64 has twice the limbs: so a block has fewer rows than
// in exact_strided.
//
// In a block that has its rows to itself one lane each stores the results that the first bits of
// both sums determine. A warp each stores the others, as many warps at once as have room for the
// long division.
//
//   Launch: as exact_strided; a row's counters are an accumulator.
//
// Still paid: iterating over axes; tiles that do not fit are added by one thread; a long division
// for rows whose first bits do not determine the result.
#pragma once

#include "exact_moments.cuh"
#include "exact_strided_tiles.cuh"

namespace gpr {

// Rows of a block: a few sectors of memory side by side, in few words of shared memory.
template <class In> constexpr unsigned most_moments_strip_rows = gpr_moments_strip_rows(sizeof(In));

// Shared memory for rows and rooms for results: the default limit per block of all GPUs, less the
// rest of the program's.
constexpr unsigned moments_shared_bytes = 46 << 10;

// A warp's room for an accumulator, and for the long division of a variance.
template <class In> struct MomentsRoom {
    ExactMoments<In> whole;
    VarianceWork<PartType<In>> work;
};

template <class In>
constexpr unsigned fitting_rooms =
    (moments_shared_bytes - most_moments_strip_rows<In> * sizeof(MomentSuperaccumulators<In>)) /
    sizeof(MomentsRoom<In>);

// Results that a block makes at once.
template <class In, unsigned BLOCK>
constexpr unsigned moments_rooms =
    fitting_rooms<In> < most_rooms
        ? (fitting_rooms<In> < BLOCK / warp_lanes ? fitting_rooms<In> : BLOCK / warp_lanes)
    : most_rooms < BLOCK / warp_lanes ? most_rooms
                                      : BLOCK / warp_lanes;

// Stores the first `count` of every STEP-th of these rows that hold what was found of n elements
// each, by a lane each. Row k goes to result_of(k); bit k of what all lanes get says that it has
// been stored. All lanes of a warp must call.
template <class Traits, unsigned STEP, class ResultOf>
GPR_DEVICE unsigned store_if_certain(const MomentSuperaccumulators<typename Traits::In> *moments,
                                     unsigned count, uint64 n, FinalizeParams params,
                                     const ResultOf &result_of)
{
    constexpr unsigned parts = parts_of<typename Traits::In>;
    const unsigned lane = threadIdx.x % warp_lanes;
    MomentBounds<parts> used = {};
    MomentIntervals<parts> intervals;
    bool is_stored = false;

#pragma unroll 1
    for (unsigned k = 0; k < count; k++) {
        const MomentBounds<parts> of_row = bounds_of(moments[k * STEP]);
        if (k == lane) used = of_row;
    }
    if (lane < count) {
        const MomentSuperaccumulators<typename Traits::In> &found = moments[lane * STEP];
        is_stored =
            found.flags == 0 && load_leading_bits(&intervals, found, used) &&
            Traits::store_if_certain(result_of(lane), intervals, n - found.left_out, params);
    }
    return __ballot_sync(all_lanes, is_stored);
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact_moments_strided(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
                      Scratch<typename Traits::Acc> scratch,
                      const __grid_constant__ Layout layout, FinalizeParams params)
{
    using In = typename Traits::In;
    using Words = MomentWords<In>;
    constexpr unsigned accumulators = most_moments_strip_rows<In>, rooms = moments_rooms<In, BLOCK>;
    constexpr unsigned vectors = strided_vectors<In>;
    static_assert(rooms > 0, "rows leave room for a result");
    static_assert(sizeof(typename Traits::Acc) == Words::all * sizeof(uint64),
                  "words, a count and flags of each");
    __shared__ MomentsRoom<In> room[rooms];
    const MomentSuperaccumulators<In> *moments = block_moments<In, accumulators>();
    const Strip<BLOCK> strip(rows, layout);
    const Row &row = strip.row;
    const uint64 counted = row.block == 0 ? row.n : 0; // each element by one block

    clear_shared<BLOCK>(block_moments<In, accumulators>(), accumulators);
    MomentsAdder<Traits, vectors, SingleThread<accumulators>> adder(
        SingleThread<accumulators>{strip.r.x});
    const auto add = [&](const Vector (&v)[vectors]) { adder.accumulate(v); };
    adder.left_out +=
        strip.template for_each_tile<Traits, vectors>(in, layout, adder.nothing(), [] {}, add);
    if (strip.has_row()) adder.finalize();
    __syncthreads(); // all threads have added

    // Word i of the block's sums of all its rows.
    const auto found = [&](unsigned i) {
        return Words::word(moments[i / Words::all], i % Words::all, counted);
    };
    const auto is_flags = [](unsigned i) { return Words::is_flags(i % Words::all); };
    RowCounters totals;
    if (row.blocks > 1) {
        totals =
            RowCounters(scratch.tickets, slot_of(row, layout.slots), layout.width * Words::all);
        totals.publish<BLOCK>(strip.count * Words::all, found, is_flags);
        if (!totals.is_last(row.blocks)) return;
    }

    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
    if (warp >= rooms || warp >= strip.count) return;
    // rows: number warp, warp + rooms, ...
    const unsigned mine = (strip.count - warp - 1) / rooms + 1;
    const auto result_of = [&](unsigned k) {
        return out + layout.row_offsets(strip.first + warp + k * rooms).out;
    };
    unsigned stored = 0;
    if constexpr (!same<typename Traits::Out, typename Traits::Acc>) {
        if (row.blocks == 1)
            stored =
                store_if_certain<Traits, rooms>(moments + warp, mine, counted, params, result_of);
    }
    for (unsigned k = 0; k < mine; k++) {
        const unsigned c = warp + k * rooms;
        uint64 *whole = reinterpret_cast<uint64 *>(&room[warp].whole);

        if ((stored >> k & 1) != 0) continue;
        __syncwarp(); // the row before has been stored
        for (unsigned i = c * Words::all + lane; i < (c + 1) * Words::all; i += warp_lanes) {
            whole[i - c * Words::all] = row.blocks > 1 ? totals.load_and_clear(i) : found(i);
        }
        __syncwarp(); // the sums are there
        if constexpr (same<typename Traits::Out, typename Traits::Acc>) {
            uint64 *words = reinterpret_cast<uint64 *>(result_of(k));
            for (unsigned i = lane; i < Words::all; i += warp_lanes) words[i] = whole[i];
        } else {
            Traits::store(result_of(k), room[warp].whole, room[warp].work, params);
        }
    }
}

} // namespace gpr
