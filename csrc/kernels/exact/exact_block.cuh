// Exact sums: what a block does with its numbers before it adds to them, and after.
//
// A block has numbers of one row, or of as many as lie across it. Where several blocks have the same rows, they add them,
// limb by limb, to counters in global memory behind the ticket by which the last block is found: zero before and after,
// as that is. Limbs become words of 32 bits where a sum leaves the kernel as it is, or is divided.
#pragma once

#include "block.cuh"
#include "ticket.cuh"
#include "exact_adders.cuh"
#include "layout.cuh"

namespace gpr {

// Threads that a multiprocessor holds together for sure: so few that two tiles fit their registers.
constexpr unsigned exact_threads = GPR_EXACT_RESIDENT_THREADS;
template <unsigned BLOCK> constexpr unsigned exact_blocks = BLOCK < exact_threads ? exact_threads / BLOCK : 1;

// Words of a sum of elements of type In, as it leaves the kernel: of each part its words, a count and flags.
template <class In> constexpr unsigned part_words = accumulator_words<PartType<In>> + GPR_EXACT_ACC_TAIL;
template <class In> constexpr unsigned words_of_sum = parts_of<In> * part_words<In>;

constexpr unsigned most_rooms = 8; // sums that a block makes results of at once, each by a warp

// Makes the block's ACCUMULATORS numbers zero. All threads must call; a block barrier is passed.
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
template <class In> GPR_DEVICE uint64 word_of_sum(const Superaccumulator<In> &sum, unsigned i, uint64 count)
{
    using T = PartType<In>;
    constexpr unsigned words = accumulator_words<T>;
    const unsigned p = i / part_words<In>, w = i % part_words<In>;

    if (w < words) return static_cast<uint64>(word_of<T>(sum.limb[p], static_cast<int>(w)));
    return w == words ? count - sum.left_out : sum.flags[p];
}

// Whether traits make results of sums, real floats; and whether these are means.
template <class Traits, class = void> constexpr bool makes_floats = false;
template <class Traits> constexpr bool makes_floats<Traits, Void<decltype(Traits::is_mean)>> = is_float<typename Traits::Out>;
template <class Traits, class = void> constexpr bool makes_means = false;
template <class Traits> constexpr bool makes_means<Traits, Void<decltype(Traits::is_mean)>> = Traits::is_mean;
// Whether the traits' sums are rounded from their limbs.
template <class Traits, class = void> constexpr bool rounds_limbs = false;
template <class Traits> constexpr bool rounds_limbs<Traits, Void<decltype(Traits::is_rounded)>> = Traits::is_rounded;

// A part that a warp has the limbs of, rounded. All lanes must call, and get it.
template <class Traits, class AnyLimbs>
GPR_DEVICE PartType<typename Traits::Out> round_limbs(const AnyLimbs &limbs, uint64 count, uint64 flags)
{
    return finalize_limbs<PartType<typename Traits::Out>, false>(limbs, count, flags);
}

// Stores a sum of `count` elements or fewer. All lanes of a warp must call; `room` is shared memory of its own, which an
// earlier call may have used.
template <class Traits>
GPR_DEVICE void store_sum(typename Traits::Out *out, typename Traits::Acc &room, const Superaccumulator<typename Traits::In> &sum,
                        uint64 count)
{
    using In = typename Traits::In;
    using T = PartType<In>;
    constexpr unsigned words = words_of_sum<In>;
    const unsigned lane = threadIdx.x % warp_lanes;

    __syncwarp(); // limbs can be read, and the sum before has been stored
    if constexpr (rounds_limbs<Traits>) {
        Traits::store_rounded(out, [&](unsigned p) {
            const WarpLimbs<limbs_of<T>, limb_bits> limbs(lowest_exponent<T>, [&](int i) { return sum.limb[p][i]; });
            return round_limbs<Traits>(limbs, count - sum.left_out, sum.flags[p]);
        });
    } else if constexpr (same<typename Traits::Out, typename Traits::Acc>) {
        uint64 *result = reinterpret_cast<uint64 *>(out);
        for (unsigned i = lane; i < words; i += warp_lanes) result[i] = word_of_sum(sum, i, count);
    } else {
        uint64 *whole = reinterpret_cast<uint64 *>(&room);
        for (unsigned i = lane; i < words; i += warp_lanes) whole[i] = word_of_sum(sum, i, count);
        __syncwarp(); // the sum is there
        Traits::store(out, room);
    }
}

// Counters of a part that several blocks add to: its limbs, a count and flags.
template <class T> constexpr int counters_of_part = limbs_of<T> + GPR_EXACT_ACC_TAIL;

// Takes a sum of a row from its counters, leaves those zero, and stores the sum. All lanes of a warp must call; `sum` and
// `room` are shared memory of its own.
template <class Traits>
GPR_DEVICE void store_total(typename Traits::Out *out, typename Traits::Acc &room, Superaccumulator<typename Traits::In> &sum,
                          uint64 *counters)
{
    using T = PartType<typename Traits::In>;
    constexpr int limbs = limbs_of<T>, lanes = static_cast<int>(warp_lanes);
    using Total = WarpLimbs<counters_of_part<T>, limb_bits, 4>;
    uint64 count = 0, flags = 0;

    // Part p; the lanes that have no limb take what comes behind the limbs.
    const auto part = [&](unsigned p) {
        uint64 other = 0;
        const Total total(lowest_exponent<T>, [&](int i) {
            uint64 &counter = counters[static_cast<int>(p) * counters_of_part<T> + i];
            const uint64 value = counter;
            counter = 0;
            if (i < limbs) return static_cast<long long>(value);
            other = value;
            return 0ll;
        });
        count = shuffle_from(other, limbs % lanes);
        flags = shuffle_from(other, (limbs + 1) % lanes);
        return total;
    };
    if constexpr (rounds_limbs<Traits>) {
        Traits::store_rounded(out, [&](unsigned p) {
            const Total total = part(p);
            return round_limbs<Traits>(total, count, flags);
        });
    } else {
        for (unsigned p = 0; p < parts_of<typename Traits::In>; p++) {
            const Total total = part(p);
#pragma unroll
            for (int c = 0; c < Total::chunks; c++) {
                const int i = c * lanes + static_cast<int>(threadIdx.x % warp_lanes);
                if (i < limbs) sum.limb[p][i] = static_cast<int>(total.mine[c]);
            }
            if (threadIdx.x % warp_lanes == 0) sum.flags[p] = static_cast<unsigned>(flags);
        }
        if (threadIdx.x % warp_lanes == 0) sum.left_out = 0;
        store_sum<Traits>(out, room, sum, count);
    }
}

// Stores the sums of the block's rows, or adds them to those of other blocks; the last block stores them then. All threads
// must call, after which nobody adds. The first `count` of `across` rows exist; result_of(c) is where row c's goes.
template <class Traits, unsigned ACCUMULATORS, unsigned BLOCK, class ResultOf>
GPR_DEVICE void finalize_sums(unsigned width, unsigned count, const Row &row, const Scratch<typename Traits::Acc> &scratch,
                            unsigned slots, const ResultOf &result_of)
{
    using In = typename Traits::In;
    using T = PartType<In>;
    using Acc = typename Traits::Acc;
    constexpr unsigned part_counters = counters_of_part<T>, sum_counters = parts_of<In> * part_counters;
    constexpr unsigned warps = BLOCK / warp_lanes < most_rooms ? BLOCK / warp_lanes : most_rooms;
    constexpr unsigned rooms = ACCUMULATORS < warps ? ACCUMULATORS : warps; // of as many warps
    static_assert(sizeof(Acc) == words_of_sum<In> * sizeof(uint64), "words, a count and flags");
    __shared__ Acc room[rooms];
    Superaccumulator<In> *sums = block_superaccumulators<In, ACCUMULATORS>();
    const uint64 elements = row.block == 0 ? row.n : 0; // each is counted by one block
    const unsigned warp = threadIdx.x / warp_lanes;
    uint64 *totals = nullptr;

    __syncthreads(); // all threads have added
    if (row.blocks > 1) {
        constexpr unsigned words = sizeof(uint64) / sizeof(unsigned);
        // As many rows as there is scratch for are under way at once.
        const uint64 slot = row.index < slots ? row.index : row.index % slots;
        unsigned *ticket = scratch.tickets + slot * words * (1 + width * sum_counters);
        totals = reinterpret_cast<uint64 *>(ticket) + 1;
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < count * sum_counters; i += BLOCK) {
            const unsigned c = ACCUMULATORS == 1 ? 0 : i / sum_counters, of_sum = i - c * sum_counters;
            const unsigned p = parts_of<In> == 1 ? 0 : of_sum / part_counters, of_part = of_sum - p * part_counters;
            const Superaccumulator<In> &sum = sums[c];
            if (of_part < limbs_of<T>) {
                const long long limb = sum.limb[p][of_part];
                if (limb != 0) atomicAdd(totals + i, static_cast<uint64>(limb));
            } else if (of_part == limbs_of<T>) {
                atomicAdd(totals + i, elements - sum.left_out);
            } else {
                atomicOr(totals + i, static_cast<uint64>(sum.flags[p]));
            }
        }
        if (!is_last_to_arrive(ticket, row.blocks)) return;
    }
    for (unsigned c = warp; warp < rooms && c < count; c += rooms) {
        if (totals == nullptr) store_sum<Traits>(result_of(c), room[warp], sums[c], elements);
        else store_total<Traits>(result_of(c), room[warp], sums[c], totals + c * sum_counters);
    }
}

} // namespace gpr
