// Exact sums of rows that are columns of memory: from the bins of threads to the results, by limb
// partials.
//
// As in exact_limb_partial.cuh, bins that were never moved and their spilled integers hold all that
// was added. But here a thread places its bins without its warp, and a block has many rows:
//
//     thread    bins of its row, and spilled integers in shared memory               (ColumnThread)
//     row       threads (x, 0), (x, 1), ... of the block's rectangle: the second half passes its
//               partials to the first half through shared memory, and so on; (x, 0) gets the merge
//               (merge_down)
//     result    one thread per row rounds, all rows of a block at once; of several blocks each
//               publishes a partial per row, and the last one to arrive merges them
//               (merge_block_partials, merge_down)
//
// Elements that bins do not hold, bins that were moved, and partials that cannot be merged are
// added to the row's superaccumulator in shared memory. A warp each stores the results of such rows
// from limbs, and accumulators that leave the kernel. Blocks that share a row add its limbs to the
// row's counters (exact_merge.cuh).
#pragma once

#include "exact_limb_partial.cuh"
#include "exact_strided_tiles.cuh"

namespace gpr {

GPR_DEVICE constexpr unsigned smaller(unsigned a, unsigned b) { return a < b ? a : b; }
GPR_DEVICE constexpr unsigned larger(unsigned a, unsigned b) { return a < b ? b : a; }

// Shared memory that a block may take: the default limit of all GPUs, less some for other
// variables.
constexpr unsigned columns_shared_bytes = (48 << 10) - 512;

// A block's shared memory beside the superaccumulators of its ROWS rows and a word per thread. One
// after another it contains the threads' spilled integers, if they fit, partials that threads pass
// to each other, and accumulators that are stored. Word i of thread t is beside word i of thread t
// + 1.
template <class Traits, unsigned ROWS, unsigned BLOCK> struct ColumnRoom {
    using In = typename Traits::In;
    using T = PartType<In>;
    using Note = unsigned short;
    static constexpr unsigned rows = ROWS, block = BLOCK, word = sizeof(uint64);
    static constexpr unsigned there =
        (columns_shared_bytes - ROWS * sizeof(Superaccumulator<In>) - BLOCK * sizeof(Note)) / word;
    static constexpr unsigned spilled = parts_of<In> * bin_count<T> * BLOCK;
    static constexpr bool spills = spilled <= there;
    // to pass something by
    static constexpr unsigned slots = smaller(BLOCK / 2, there / words_of_partial<In>);
    // that store sums limb by limb
    static constexpr unsigned warps = smaller(smaller(BLOCK / warp_lanes, most_rooms), ROWS);
    static constexpr unsigned of_sum = sizeof(typename Traits::Acc) / word;
    static constexpr unsigned words =
        larger(larger(spills ? spilled : 0, slots *words_of_partial<In>), warps *of_sum);
    static_assert(slots > 0 && words <= there, "there is room for each of them");

    static GPR_DEVICE uint64 *begin()
    {
        __shared__ uint64 all[words];
        return all;
    }
};

// A thread with bins of its own for its row. The row's index and the flags of what is outside of
// the bins are in shared memory: they are rarely needed, and registers are short.
template <class Room> struct ColumnThread : SingleThread<1> {
    static constexpr bool spills = Room::spills;
    static GPR_DEVICE typename Room::Note &note()
    {
        __shared__ typename Room::Note of_thread[Room::block];
        return of_thread[threadIdx.x];
    }
    static GPR_DEVICE ColumnThread of_row(unsigned row)
    {
        note() = static_cast<typename Room::Note>(row);
        return ColumnThread{};
    }
    template <class In> static GPR_DEVICE Superaccumulator<In> &sum()
    {
        static_assert(Room::rows <= saw_limbs, "flags are above a row's superaccumulator");
        return block_superaccumulators<In, Room::rows>()[note() % saw_limbs];
    }
    struct Outside {
        GPR_DEVICE void operator|=(unsigned flags)
        {
            note() |= static_cast<typename Room::Note>(flags);
        }
        GPR_DEVICE operator unsigned() const { return note() / saw_limbs * saw_limbs; }
    };
    template <class In> static GPR_DEVICE long long &spilled(unsigned p, unsigned w)
    {
        const unsigned i = p * bin_count<PartType<In>> + w;
        return reinterpret_cast<long long *>(Room::begin())[i * Room::block + threadIdx.x];
    }
};

// ---------------------------------------------------------------- a row's threads ---------------

// Adds a thread's partial to its row's superaccumulator, one integer per call: with all in one call
// the compiler chose other registers for a tile's elements, and moved them in every iteration.
GPR_CALLED void add_one(int *limb, long long number, int place) { add_long(limb, number, place); }
template <class In>
GPR_DEVICE void add_own(Superaccumulator<In> &sum, const LimbPartial<In> &partial)
{
#pragma unroll
    for (unsigned p = 0; p < partial.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < partial.limbs; w++)
            add_one(sum.limb[p], partial.limb[p][w], partial.place_at(partial.top, w));
        if (partial.flags_of(p) != 0) atomicOr(&sum.flags[p], partial.flags_of(p));
    }
}
// Merges the partials of two threads of a row. If they cannot be merged, the other one is added to
// the row's superaccumulator.
template <class In>
GPR_DEVICE void merge_or_add(Superaccumulator<In> &sum, LimbPartial<In> &mine,
                             const LimbPartial<In> &other)
{
    if (mine.merge(other)) return;
    add_own(sum, other); // and its flags
    mine.flags |= saw_limbs;
}

// Merges the partials of the first `left` threads of each row; the threads with r.y == 0 get the
// sum. Overwrites the spilled integers, if left > 1. All threads of the block must call.
template <class Room, class In>
GPR_DEVICE void merge_down(Superaccumulator<In> &sum, LimbPartial<In> &mine, const Rectangle &r,
                           bool row_major, unsigned left)
{
    while (left > 1) {
        const unsigned half = (left + 1) / 2, pairs = left - half; // of each row
        const bool gives = r.y >= half && r.y < left, takes = r.y < pairs;
        const unsigned y = gives ? r.y - half : r.y;
        // neighbours' are neighbours
        const unsigned slot = row_major ? r.x * pairs + y : y * r.width + r.x;
#pragma unroll 1
        for (unsigned first = 0; first < pairs * r.width; first += Room::slots) {
            const bool is_here = slot - first < Room::slots;
            uint64 *at = Room::begin() + (slot - first);
            __syncthreads(); // earlier contents have been read
            if (gives && is_here) store_partial(at, Room::slots, mine);
            __syncthreads(); // the passed partials are there
            if (takes && is_here) merge_or_add(sum, mine, load_partial<In>(at, Room::slots));
        }
        left = half;
    }
}

// Merges a thread's share of the partials of a row's blocks, which begin at `partials`, `step`
// words from one to the next, as those of its words are `across`.
template <class In>
GPR_DEVICE LimbPartial<In> merge_block_partials(Superaccumulator<In> &sum, const uint64 *partials,
                                                uint64 step, unsigned width, const Rectangle &r,
                                                unsigned blocks)
{
    const auto load = [&](unsigned b) {
        return b < blocks ? load_partial<In>(partials + b * step, width) : LimbPartial<In>{};
    };
    LimbPartial<In> all = load(r.y), next = load(r.y + r.height);

#pragma unroll 1
    for (unsigned b = r.y + r.height; b < blocks; b += r.height) {
        const LimbPartial<In> now = next;
        next = load(b + r.height);
        merge_or_add(sum, all, now);
    }
    return all;
}

// ---------------------------------------------------------------- a block's rows ----------------

// Calls use(c), by a warp each, for those of the first `count` rows that is_left. All threads must
// call.
template <class Room, class Use>
GPR_DEVICE void for_each_left(const bool *is_left, unsigned count, const Use &use)
{
    const unsigned warp = threadIdx.x / warp_lanes;
#pragma unroll 1
    for (unsigned c = warp; warp < Room::warps && c < count; c += Room::warps) {
        if (is_left[c]) use(c);
    }
}

// Merges the partials of the block's threads. A block that has its rows to itself stores their
// results; where several share them each publishes its partials, and the last one to arrive merges
// them and stores the results. All threads must call. Scratch has counters and partials for
// layout.slots groups of rows.
template <class Traits, class Room, unsigned BLOCK>
GPR_DEVICE void finalize_strided(LimbPartial<typename Traits::In> mine, const Rows &rows,
                                 const Layout &layout, const Scratch<typename Traits::Acc> &scratch,
                                 typename Traits::Out *out)
{
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    constexpr unsigned limbs = limbs_of<PartType<In>>,
                       counters = parts_of<In> * counters_of_part<PartType<In>>;
    constexpr bool counts = masked || Traits::skips_nan; // elements that are left out
    __shared__ bool is_left[Room::rows]; // to be stored, or left to the last block, limb by limb
    Superaccumulator<In> *sums = block_superaccumulators<In, Room::rows>();
    // made anew: the loop over tiles has no registers for it
    const Strip<BLOCK> strip(rows, layout);
    const Row &row = strip.row;
    const Rectangle &r = strip.r;
    const bool is_row_major = layout.row_major != 0, stores = strip.has_row() && r.y == 0;
    const unsigned warp = threadIdx.x / warp_lanes;
    Superaccumulator<In> &sum = sums[r.x];
    RowCounters totals;
    bool has_limbs = false;

    merge_down<Room>(sum, mine, r, is_row_major, r.height);
    if (stores && (mine.flags & (saw_limbs | saw_specials)) != 0) mine.load_flags(sum);
    if (row.blocks > 1) {
        const uint64 step = words_of_partial<In> * layout.width; // of a block's partials
        const uint64 slot = slot_of(row, layout.slots);
        totals = RowCounters(scratch.tickets, slot, layout.width * counters);
        uint64 *partials =
            reinterpret_cast<uint64 *>(scratch.partials()) + slot * row.blocks * step + r.x;
        if (stores) {
            has_limbs = (mine.flags & saw_limbs) != 0;
            is_left[r.x] = has_limbs;
            if (counts && !has_limbs && sum.left_out != 0)
                atomicAdd(totals.at(r.x * counters + limbs), sum.left_out);
            store_partial(partials + row.block * step, layout.width, mine);
        }
        if (__syncthreads_or(has_limbs)) {
            for_each_left<Room>(is_left, strip.count, [&](unsigned c) {
                publish_superaccumulator(sums[c], totals.at(c * counters));
            });
        }
        if (!totals.is_last(row.blocks)) return;
        mine = {};
        if (strip.has_row())
            mine = merge_block_partials(sum, partials, step, layout.width, r, row.blocks);
        merge_down<Room>(sum, mine, r, is_row_major, smaller(r.height, row.blocks));
    }
    if (stores) {
        bool is_short = false;
        if constexpr (stores_short<Traits>) {
            if (mine.has(0)) mine = with_absorbed_carry(mine);
            is_short = (mine.flags & saw_limbs) == 0 && !mine.has(0);
            if (is_short) {
                uint64 left_out = 0;
                if constexpr (counts) {
                    uint64 &counted =
                        !totals.are_used() ? sum.left_out : *totals.at(r.x * counters + limbs);
                    left_out = counted;
                    if (left_out != 0) counted = 0;
                }
                store_short<Traits, false>(out + layout.row_offsets(strip.first + r.x).out, mine,
                                           layout.elements - left_out);
            }
        }
        if (!is_short) add_own(sum, mine);
        has_limbs = !is_short;
        is_left[r.x] = has_limbs;
    }
    if (!__syncthreads_or(has_limbs)) return;
    Acc *rooms = reinterpret_cast<Acc *>(Room::begin());
    for_each_left<Room>(is_left, strip.count, [&](unsigned c) {
        if (totals.are_used()) load_superaccumulator(sums[c], totals.at(c * counters));
        store_sum<Traits>(out + layout.row_offsets(strip.first + c).out, rooms[warp], sums[c],
                          layout.elements);
    });
}

} // namespace gpr
