// Exact sums: what a block does with its numbers before it adds to them, and after.
//
// A block has numbers of one row, or of as many as lie across it. Where several blocks have the same rows, they add them
// to words in global memory, behind the ticket by which the last block is found: zero before and after, as that is.
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
    unsigned *cleared = reinterpret_cast<unsigned *>(block_sums<In, NUMBERS>());

    for (unsigned i = threadIdx.x; i < NUMBERS * sizeof(BlockSum<In>) / sizeof(unsigned); i += BLOCK) cleared[i] = 0;
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

// Puts a sum whose words word(i) gives. All lanes of a warp must call; `room` is shared memory of its own, which an
// earlier call may have used.
template <class Cell, class WordOf>
GPR_DEVICE void put_sum(typename Cell::Out *out, typename Cell::Acc &room, const WordOf &word)
{
    using Acc = typename Cell::Acc;
    constexpr unsigned words = sizeof(Acc) / sizeof(uint64);
    const unsigned lane = threadIdx.x % warp_lanes;

    if constexpr (same<typename Cell::Out, Acc>) {
        uint64 *result = reinterpret_cast<uint64 *>(out);
        for (unsigned i = lane; i < words; i += warp_lanes) result[i] = word(i);
    } else {
        uint64 *sum = reinterpret_cast<uint64 *>(&room);
        __syncwarp(); // the sum before has been put
        for (unsigned i = lane; i < words; i += warp_lanes) sum[i] = word(i);
        __syncwarp(); // the sum is there
        Cell::put(out, room);
    }
}

// Puts the sums of the block's rows, or adds them to those of other blocks; the last block puts them then. All threads
// must call, after which nobody adds. The first `count` of `across` rows exist; result_of(c) is where row c's goes.
template <class Cell, unsigned NUMBERS, unsigned BLOCK, class ResultOf>
GPR_DEVICE void finish_sums(unsigned across, unsigned count, const Row &row, const Scratch<typename Cell::Acc> &scratch,
                            unsigned slots, const ResultOf &result_of)
{
    using In = typename Cell::In;
    using Acc = typename Cell::Acc;
    constexpr unsigned words = words_of_sum<In>;
    constexpr unsigned warps = BLOCK / warp_lanes < most_rooms ? BLOCK / warp_lanes : most_rooms;
    constexpr unsigned rooms = NUMBERS < warps ? NUMBERS : warps; // of as many warps
    static_assert(sizeof(Acc) == words * sizeof(uint64), "words, a count and flags");
    __shared__ Acc room[rooms];
    const BlockSum<In> *sums = block_sums<In, NUMBERS>();
    const uint64 elements = row.block == 0 ? row.n : 0; // each is counted by one block
    const unsigned warp = threadIdx.x / warp_lanes;
    uint64 *total = nullptr;

    __syncthreads(); // all threads have added
    if (row.blocks > 1) {
        constexpr unsigned counters = sizeof(uint64) / sizeof(unsigned);
        // As many rows as there is scratch for are under way at once.
        const uint64 slot = row.index < slots ? row.index : row.index % slots;
        unsigned *ticket = scratch.tickets + slot * counters * (1 + across * words);
        total = reinterpret_cast<uint64 *>(ticket) + 1;
        for (unsigned i = threadIdx.x; i < count * words; i += BLOCK) {
            const unsigned c = NUMBERS == 1 ? 0 : i / words, w = i - c * words;
            const uint64 word = word_of_sum(sums[c], w, elements);
            if (word != 0 && w % part_words<In> == part_words<In> - 1) atomicOr(total + i, word);
            else if (word != 0) atomicAdd(total + i, word);
        }
        if (!is_last_to_arrive(ticket, row.blocks)) return;
    }
    for (unsigned c = warp; warp < rooms && c < count; c += rooms) {
        put_sum<Cell>(result_of(c), room[warp], [&](unsigned i) -> uint64 {
            if (total == nullptr) return word_of_sum(sums[c], i, elements);
            const uint64 word = total[c * words + i];
            total[c * words + i] = 0;
            return word;
        });
    }
}

} // namespace gpr
