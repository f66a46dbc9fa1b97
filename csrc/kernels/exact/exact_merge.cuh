// Exact sums: what a block has in shared memory, and how what the blocks of a row have found becomes one accumulator, of
// whatever words.
#pragma once

#include "block.cuh"
#include "ticket.cuh"

namespace gpr {

// Makes `count` structures of words in shared memory zero. All threads must call; a block barrier is passed.
template <unsigned BLOCK, class T> GPR_DEVICE void clear_shared(T *first, unsigned count)
{
    unsigned *cleared = reinterpret_cast<unsigned *>(first);

    for (unsigned i = threadIdx.x; i < count * (sizeof(T) / sizeof(unsigned)); i += BLOCK) cleared[i] = 0;
    __syncthreads(); // the sums are zero
}

// Counters that the blocks of a row, or of a group of rows, add to: behind a ticket and a gap of its size. They are zero
// before and after, as the ticket is. Rows that have counters at once are `slots`.
class Totals {
public:
    Totals() = default;
    GPR_DEVICE Totals(unsigned *tickets, unsigned slots, const Row &row, unsigned counters)
    {
        constexpr unsigned words = sizeof(uint64) / sizeof(unsigned);
        const uint64 slot = row.index < slots ? row.index : row.index % slots;
        ticket = tickets + slot * words * (1 + counters);
    }
    // found(i) is number i of `count`, is_flags(i) says whether it is flags, not a number. True for the last block to arrive,
    // which may take the totals then. All threads must call.
    template <unsigned BLOCK, class Found, class IsFlags>
    GPR_DEVICE bool add(unsigned count, const Row &row, const Found &found, const IsFlags &is_flags) const
    {
        for (unsigned i = threadIdx.x; i < count; i += BLOCK) {
            const uint64 number = found(i);
            if (number != 0 && is_flags(i)) atomicOr(counter(i), number);
            else if (number != 0) atomicAdd(counter(i), number);
        }
        return is_last_to_arrive(ticket, row.blocks);
    }
    // Total i, which is zero afterwards.
    GPR_DEVICE uint64 load_and_clear(unsigned i) const
    {
        const uint64 total = *counter(i);
        *counter(i) = 0;
        return total;
    }

private:
    unsigned *ticket;

    GPR_DEVICE uint64 *counter(unsigned i) const { return reinterpret_cast<uint64 *>(ticket) + 1 + i; }
};

// found(i) is word i of what the block has found, is_flags(i) says whether its bits are flags, not a number. True for the
// row's only block, or its last one to arrive: then `whole` has the words after a barrier. All threads must call.
template <unsigned BLOCK, unsigned WORDS, class Found, class IsFlags>
GPR_DEVICE bool merge_words(uint64 (&whole)[WORDS], const Row &row, unsigned *tickets, unsigned slots, const Found &found,
                           const IsFlags &is_flags)
{
    if (row.blocks == 1) {
        for (unsigned i = threadIdx.x; i < WORDS; i += BLOCK) whole[i] = found(i);
        return true;
    }
    const Totals totals(tickets, slots, row, WORDS);
    if (!totals.add<BLOCK>(WORDS, row, found, is_flags)) return false;
    for (unsigned i = threadIdx.x; i < WORDS; i += BLOCK) whole[i] = totals.load_and_clear(i);
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
