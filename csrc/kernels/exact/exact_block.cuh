// Exact sums: what a block does with its numbers before it adds to them, and after.
//
// A block has numbers of one row, or of as many as lie across it. Where several blocks have the same rows, they add them,
// digit by digit, to counters in global memory behind the ticket by which the last block is found: zero before and after,
// as that is. Digits become words of 32 bits where a sum leaves the kernel as it is, or is divided.
#pragma once

#include "block.cuh"
#include "exact_adders.cuh"
#include "layout.cuh"

namespace gpr {

// Threads that a multiprocessor holds together for sure: so few that two tiles fit their registers.
constexpr unsigned exact_threads = 768;
template <unsigned BLOCK> constexpr unsigned exact_blocks = BLOCK < exact_threads ? exact_threads / BLOCK : 1;

// Words of a sum of elements of type In, as it leaves the kernel: of each part its words, a count and flags.
template <class In> constexpr unsigned part_words = grid_words<PartType<In>> + 2;
template <class In> constexpr unsigned words_of_sum = parts_of<In> * part_words<In>;

constexpr unsigned most_rooms = 8; // sums that a block makes results of at once, each by a warp

// Makes the block's NUMBERS numbers zero. All threads must call; a block barrier is passed.
template <class In, unsigned NUMBERS, unsigned BLOCK> GPR_DEVICE void clear_sums()
{
    constexpr unsigned words = sizeof(BlockSums<In, NUMBERS>) / sizeof(unsigned);
    unsigned *cleared = reinterpret_cast<unsigned *>(&all_block_sums<In, NUMBERS>());

    if constexpr (words <= BLOCK) {
        if (threadIdx.x < words) cleared[threadIdx.x] = 0;
    } else {
        for (unsigned i = threadIdx.x; i < words; i += BLOCK) cleared[i] = 0;
    }
    __syncthreads(); // the sums are zero
}

// Word i of a sum of `count` elements or fewer.
template <class In> GPR_DEVICE uint64 word_of_sum(const BlockSum<In> &sum, unsigned i, uint64 count)
{
    using T = PartType<In>;
    constexpr unsigned words = grid_words<T>;
    const unsigned p = i / part_words<In>, w = i % part_words<In>;

    if (w < words) return static_cast<uint64>(word_of<T>(sum.digit[p], static_cast<int>(w)));
    return w == words ? count - sum.left_out : sum.flags[p];
}

// Whether traits make results of sums, real floats; and whether these are means.
template <class Traits, class = void> constexpr bool makes_floats = false;
template <class Traits> constexpr bool makes_floats<Traits, Void<decltype(Traits::is_mean)>> = is_float<typename Traits::Out>;
template <class Traits, class = void> constexpr bool makes_means = false;
template <class Traits> constexpr bool makes_means<Traits, Void<decltype(Traits::is_mean)>> = Traits::is_mean;
// Whether the traits' sums are rounded from their digits.
template <class Traits, class = void> constexpr bool rounds_digits = false;
template <class Traits> constexpr bool rounds_digits<Traits, Void<decltype(Traits::is_rounded)>> = Traits::is_rounded;

// A part that a warp has the digits of, rounded. All lanes must call, and get it.
template <class Traits, class AnyDigits>
GPR_DEVICE PartType<typename Traits::Out> round_digits(const AnyDigits &digits, uint64 count, uint64 flags)
{
    return finish_digits<PartType<typename Traits::Out>, false>(digits, count, flags);
}

// Puts a sum of `count` elements or fewer. All lanes of a warp must call; `room` is shared memory of its own, which an
// earlier call may have used.
template <class Traits>
GPR_DEVICE void put_sum(typename Traits::Out *out, typename Traits::Acc &room, const BlockSum<typename Traits::In> &sum,
                        uint64 count)
{
    using In = typename Traits::In;
    using T = PartType<In>;
    constexpr unsigned words = words_of_sum<In>;
    const unsigned lane = threadIdx.x % warp_lanes;

    __syncwarp(); // digits can be read, and the sum before has been put
    if constexpr (rounds_digits<Traits>) {
        Traits::put_rounded(out, [&](unsigned p) {
            const WarpDigits<digits_of<T>, digit_bits> digits(grid_lowest<T>, [&](int i) { return sum.digit[p][i]; });
            return round_digits<Traits>(digits, count - sum.left_out, sum.flags[p]);
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

// Counters of a part that several blocks add to: its digits, a count and flags.
template <class T> constexpr int counters_of_part = digits_of<T> + 2;

// Takes a sum of a row from its counters, leaves those zero, and puts the sum. All lanes of a warp must call; `sum` and
// `room` are shared memory of its own.
template <class Traits>
GPR_DEVICE void put_total(typename Traits::Out *out, typename Traits::Acc &room, BlockSum<typename Traits::In> &sum,
                          uint64 *counters)
{
    using T = PartType<typename Traits::In>;
    constexpr int digits = digits_of<T>, lanes = static_cast<int>(warp_lanes);
    using Total = WarpDigits<counters_of_part<T>, digit_bits, 4>;
    uint64 count = 0, flags = 0;

    // Part p; the lanes that have no digit take what comes behind the digits.
    const auto part = [&](unsigned p) {
        uint64 other = 0;
        const Total total(grid_lowest<T>, [&](int i) {
            uint64 &counter = counters[static_cast<int>(p) * counters_of_part<T> + i];
            const uint64 value = counter;
            counter = 0;
            if (i < digits) return static_cast<long long>(value);
            other = value;
            return 0ll;
        });
        count = shuffle_from(other, digits % lanes);
        flags = shuffle_from(other, (digits + 1) % lanes);
        return total;
    };
    if constexpr (rounds_digits<Traits>) {
        Traits::put_rounded(out, [&](unsigned p) {
            const Total total = part(p);
            return round_digits<Traits>(total, count, flags);
        });
    } else {
        for (unsigned p = 0; p < parts_of<typename Traits::In>; p++) {
            const Total total = part(p);
#pragma unroll
            for (int c = 0; c < Total::chunks; c++) {
                const int i = c * lanes + static_cast<int>(threadIdx.x % warp_lanes);
                if (i < digits) sum.digit[p][i] = static_cast<int>(total.mine[c]);
            }
            if (threadIdx.x % warp_lanes == 0) sum.flags[p] = static_cast<unsigned>(flags);
        }
        if (threadIdx.x % warp_lanes == 0) sum.left_out = 0;
        put_sum<Traits>(out, room, sum, count);
    }
}

// Puts the sums of the block's rows, or adds them to those of other blocks; the last block puts them then. All threads
// must call, after which nobody adds. The first `count` of `across` rows exist; result_of(c) is where row c's goes.
template <class Traits, unsigned NUMBERS, unsigned BLOCK, class ResultOf>
GPR_DEVICE void finish_sums(unsigned across, unsigned count, const Row &row, const Scratch<typename Traits::Acc> &scratch,
                            unsigned slots, const ResultOf &result_of)
{
    using In = typename Traits::In;
    using T = PartType<In>;
    using Acc = typename Traits::Acc;
    constexpr unsigned part_counters = counters_of_part<T>, sum_counters = parts_of<In> * part_counters;
    constexpr unsigned warps = BLOCK / warp_lanes < most_rooms ? BLOCK / warp_lanes : most_rooms;
    constexpr unsigned rooms = NUMBERS < warps ? NUMBERS : warps; // of as many warps
    static_assert(sizeof(Acc) == words_of_sum<In> * sizeof(uint64), "words, a count and flags");
    __shared__ Acc room[rooms];
    BlockSum<In> *sums = block_sums<In, NUMBERS>();
    const uint64 elements = row.block == 0 ? row.n : 0; // each is counted by one block
    const unsigned warp = threadIdx.x / warp_lanes;
    uint64 *totals = nullptr;

    __syncthreads(); // all threads have added
    if (row.blocks > 1) {
        constexpr unsigned words = sizeof(uint64) / sizeof(unsigned);
        // As many rows as there is scratch for are under way at once.
        const uint64 slot = row.index < slots ? row.index : row.index % slots;
        unsigned *ticket = scratch.tickets + slot * words * (1 + across * sum_counters);
        totals = reinterpret_cast<uint64 *>(ticket) + 1;
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < count * sum_counters; i += BLOCK) {
            const unsigned c = NUMBERS == 1 ? 0 : i / sum_counters, of_sum = i - c * sum_counters;
            const unsigned p = parts_of<In> == 1 ? 0 : of_sum / part_counters, of_part = of_sum - p * part_counters;
            const BlockSum<In> &sum = sums[c];
            if (of_part < digits_of<T>) {
                const long long digit = sum.digit[p][of_part];
                if (digit != 0) atomicAdd(totals + i, static_cast<uint64>(digit));
            } else if (of_part == digits_of<T>) {
                atomicAdd(totals + i, elements - sum.left_out);
            } else {
                atomicOr(totals + i, static_cast<uint64>(sum.flags[p]));
            }
        }
        if (!is_last_to_arrive(ticket, row.blocks)) return;
    }
    for (unsigned c = warp; warp < rooms && c < count; c += rooms) {
        if (totals == nullptr) put_sum<Traits>(result_of(c), room[warp], sums[c], elements);
        else put_total<Traits>(result_of(c), room[warp], sums[c], totals + c * sum_counters);
    }
}

} // namespace gpr
