// Exact sums: a block clears the sums of its rows, and merges and stores those of integers.
//
// A block has a sum in shared memory for its row, or for each of the rows that it serves side by
// side: of floats a superaccumulator, for what bins do not hold (exact_limb_partial.cuh and
// exact_column_merge.cuh merge the rest); of integers one of 128 bits, which are merged here, by
// words of 32 bits.
#pragma once

#include "block.cuh"
#include "ticket.cuh"
#include "exact_adders.cuh"
#include "exact_merge.cuh"
#include "layout.cuh"

namespace gpr {

// Threads that a multiprocessor holds at least: so few that each has registers for two tiles.
constexpr unsigned exact_threads = GPR_EXACT_RESIDENT_THREADS;
template <unsigned BLOCK>
constexpr unsigned exact_blocks = BLOCK < exact_threads ? exact_threads / BLOCK : 1;

// Words of a sum of elements of type In, as it leaves the kernel: of each part its words, a count
// and flags.
template <class In>
constexpr unsigned part_words = accumulator_words<PartType<In>> + GPR_EXACT_ACC_TAIL;
template <class In> constexpr unsigned words_of_sum = parts_of<In> * part_words<In>;

constexpr unsigned most_rooms = 8; // sums that a block makes results of at once, each by a warp

// Clears the sums of the block's ACCUMULATORS rows. All threads must call; a block barrier is
// passed.
template <class In, unsigned ACCUMULATORS, unsigned BLOCK> GPR_DEVICE void clear_superaccumulators()
{
    constexpr unsigned words = sizeof(BlockSuperaccumulators<In, ACCUMULATORS>) / sizeof(unsigned);
    unsigned *cleared = reinterpret_cast<unsigned *>(&block_state<In, ACCUMULATORS>());

    if constexpr (words <= BLOCK) {
        if (threadIdx.x < words) cleared[threadIdx.x] = 0;
    } else {
        for (unsigned i = threadIdx.x; i < words; i += BLOCK) cleared[i] = 0;
    }
    __syncthreads(); // the sums are zero
}

// Word i of a sum of `count` elements or fewer.
template <class In>
GPR_DEVICE uint64 word_of_sum(const Superaccumulator<In> &sum, unsigned i, uint64 count)
{
    using T = PartType<In>;
    constexpr unsigned words = accumulator_words<T>;
    const unsigned p = i / part_words<In>, w = i % part_words<In>;

    if (w < words) return static_cast<uint64>(word_of<T>(sum.limb[p], static_cast<int>(w)));
    return w == words ? count - sum.left_out : sum.flags[p];
}

// As above, of integers, of which there is no -0.
template <class In>
GPR_DEVICE uint64 word_of_sum(const IntegerSum<In> &sum, unsigned i, uint64 count)
{
    constexpr unsigned words = accumulator_words<In>, last = IntegerSum<In>::words - 1;
    static_assert(words > last, "an accumulator has room");

    if (i < last) return sum.word[i];
    if (i == last)
        return static_cast<uint64>(static_cast<long long>(static_cast<int>(sum.word[last])));
    if (i < words) return 0;
    return i == words ? count - sum.left_out : saw_not_minus_zero;
}

// Whether the traits' results are real floats that are sums; and whether they are means.
template <class Traits, class = void> constexpr bool makes_floats = false;
template <class Traits>
constexpr bool makes_floats<Traits, Void<decltype(Traits::is_mean)>> =
    is_float<typename Traits::Out>;
template <class Traits, class = void> constexpr bool makes_means = false;
template <class Traits>
constexpr bool makes_means<Traits, Void<decltype(Traits::is_mean)>> = Traits::is_mean;
// Whether the traits' sums are rounded from their limbs.
template <class Traits, class = void> constexpr bool rounds_limbs = false;
template <class Traits>
constexpr bool rounds_limbs<Traits, Void<decltype(Traits::is_rounded)>> = Traits::is_rounded;

// Rounds a part from its limbs, from a start of +0 on. All lanes of a warp must call, and get the
// result.
template <class Traits, class AnyLimbs>
GPR_DEVICE PartType<typename Traits::Out> round_limbs(const AnyLimbs &limbs, uint64 count,
                                                      uint64 flags)
{
    return finalize_limbs<PartType<typename Traits::Out>, makes_means<Traits>>(
        limbs, count, flags | saw_not_minus_zero);
}

// Stores a sum of `count` elements or fewer from its words, in `room`. All lanes of a warp must
// call.
template <class Traits>
GPR_CALLED void store_words(typename Traits::Out *out, typename Traits::Acc &room,
                            const RowSum<typename Traits::In> &sum, uint64 count)
{
    uint64 *whole = reinterpret_cast<uint64 *>(&room);
    for (unsigned i = threadIdx.x % warp_lanes; i < words_of_sum<typename Traits::In>;
         i += warp_lanes)
        whole[i] = word_of_sum(sum, i, count);
    __syncwarp(); // the sum is there
    Traits::store(out, room);
}

// Stores a sum of `count` elements or fewer. All lanes of a warp must call; `room` is shared memory
// of its own, which an earlier call may have used.
template <class Traits>
GPR_DEVICE void store_sum(typename Traits::Out *out, typename Traits::Acc &room,
                          const RowSum<typename Traits::In> &sum, uint64 count)
{
    using In = typename Traits::In;
    using T = PartType<In>;
    constexpr unsigned words = words_of_sum<In>;
    const unsigned lane = threadIdx.x % warp_lanes;

    __syncwarp(); // limbs can be read, and the sum before has been stored
    if constexpr (rounds_limbs<Traits> && is_float<T>) {
        if (makes_means<Traits> && count >> divisor_bits != 0) {
            store_words<Traits>(out, room, sum, count);
            return;
        }
        Traits::store_rounded(out, [&](unsigned p) {
            const WarpLimbs<limbs_of<T>, limb_bits> limbs(lowest_exponent<T>,
                                                          [&](int i) { return sum.limb[p][i]; });
            return round_limbs<Traits>(limbs, count - sum.left_out, sum.flags[p]);
        });
    } else if constexpr (same<typename Traits::Out, typename Traits::Acc>) {
        uint64 *result = reinterpret_cast<uint64 *>(out);
        for (unsigned i = lane; i < words; i += warp_lanes) result[i] = word_of_sum(sum, i, count);
    } else {
        store_words<Traits>(out, room, sum, count);
    }
}

// Counters of a part that several blocks add to: its limbs, a count and flags.
template <class T> constexpr int counters_of_part = limbs_of<T> + GPR_EXACT_ACC_TAIL;

// Stores the sums of the block's rows, which are of integers, or adds them to those of other
// blocks; the last block stores them then. All threads must call, after which nobody adds. The
// first `count` of `width` rows exist; result_of(c) is where row c's result goes.
template <class Traits, unsigned ACCUMULATORS, unsigned BLOCK, class ResultOf>
GPR_DEVICE void finalize_integers(unsigned width, unsigned count, const Row &row,
                                  const Scratch<typename Traits::Acc> &scratch, unsigned slots,
                                  const ResultOf &result_of)
{
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    constexpr unsigned words = words_of_sum<In>;
    constexpr unsigned warps = BLOCK / warp_lanes < most_rooms ? BLOCK / warp_lanes : most_rooms;
    constexpr unsigned rooms = ACCUMULATORS < warps ? ACCUMULATORS : warps; // of as many warps
    static_assert(sizeof(Acc) == words * sizeof(uint64), "words, a count and flags");
    __shared__ Acc room[rooms];
    const IntegerSum<In> *sums = block_superaccumulators<In, ACCUMULATORS>();
    const uint64 elements = row.block == 0 ? row.n : 0; // each is counted by one block
    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
    RowCounters totals;

    __syncthreads(); // all threads have added
    if (row.blocks > 1) {
        totals = RowCounters(scratch.tickets, slot_of(row, slots), width * words);
        const auto found = [&](unsigned i) {
            const unsigned c = ACCUMULATORS == 1 ? 0 : i / words;
            return word_of_sum(sums[c], i - c * words, elements);
        };
        totals.publish<BLOCK>(count * words, found,
                              [](unsigned i) { return i % words == words - 1; });
        if (!totals.is_last(row.blocks)) return;
    }
    for (unsigned c = warp; warp < rooms && c < count; c += rooms) {
        if (row.blocks == 1) {
            store_sum<Traits>(result_of(c), room[warp], sums[c], elements);
            continue;
        }
        uint64 *whole = same<typename Traits::Out, Acc> ? reinterpret_cast<uint64 *>(result_of(c))
                                                        : reinterpret_cast<uint64 *>(&room[warp]);
        __syncwarp(); // the sum before has been stored
        for (unsigned i = lane; i < words; i += warp_lanes)
            whole[i] = totals.load_and_clear(c * words + i);
        __syncwarp(); // the sum is there
        if constexpr (!same<typename Traits::Out, Acc>) Traits::store(result_of(c), room[warp]);
    }
}

} // namespace gpr
