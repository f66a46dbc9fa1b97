// Exact sums: how what the blocks of a row have found becomes one accumulator, of whatever words.
#pragma once

#include "block.cuh"

namespace gpr {

// found(i) is word i of what the block has found, is_flags(i) says whether its bits are flags, not a number. True for the
// row's only block, or its last one to arrive: then `whole` has the words after a barrier. Rows that have counters at once
// are `slots`. All threads must call.
template <unsigned BLOCK, unsigned WORDS, class Found, class IsFlags>
GPR_DEVICE bool join_blocks(uint64 (&whole)[WORDS], const Row &row, unsigned *tickets, unsigned slots, const Found &found,
                            const IsFlags &is_flags)
{
    constexpr unsigned counters = sizeof(uint64) / sizeof(unsigned) * (WORDS + 1);

    if (row.blocks == 1) {
        for (unsigned i = threadIdx.x; i < WORDS; i += BLOCK) whole[i] = found(i);
        return true;
    }
    const uint64 slot = row.index < slots ? row.index : row.index % slots;
    unsigned *ticket = tickets + slot * counters;
    uint64 *total = reinterpret_cast<uint64 *>(ticket) + 1;
    for (unsigned i = threadIdx.x; i < WORDS; i += BLOCK) {
        const uint64 word = found(i);
        if (word != 0 && is_flags(i)) atomicOr(total + i, word);
        else if (word != 0) atomicAdd(total + i, word);
    }
    if (!is_last_to_arrive(ticket, row.blocks)) return false;
    for (unsigned i = threadIdx.x; i < WORDS; i += BLOCK) {
        whole[i] = total[i];
        total[i] = 0;
    }
    return true;
}

// Copies an accumulator, of 8-byte words. All threads must call.
template <unsigned BLOCK, class Acc> GPR_DEVICE void store_words(Acc *out, const Acc &acc)
{
    const uint64 *from = reinterpret_cast<const uint64 *>(&acc);
    uint64 *to = reinterpret_cast<uint64 *>(out);
    for (unsigned i = threadIdx.x; i < sizeof(Acc) / sizeof(uint64); i += BLOCK) to[i] = from[i];
}

} // namespace gpr
