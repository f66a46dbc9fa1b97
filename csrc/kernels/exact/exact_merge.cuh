// Exact sums: the merge across the blocks of a row, by counters in global memory.
//
// Integer addition is associative and commutative: blocks add their numbers to counters of their
// row by atomics in any order, and the last block to arrive loads the sums. The counters of a row,
// or of a group of rows that a block serves together, follow the ticket that finds the last block
// (shared/exact_format.h):
//
//     scratch.tickets   | ticket | gap | counter 0 | counter 1 | ... |   slot 0, then slot 1, ...
//                         4 bytes  4     8           8
//
// Invariant: all are zero before a launch and after it, as the last block clears the counters that
// it loads. A launch has no more rows than slots; row i has slot i % slots.
//
//     every block    publish()  adds its numbers, OR-s its flags        (all threads)
//                    is_last()  fence, ticket, fence: true for one block (all threads)
//     the last one   load_and_clear()                                    (its user, once)
//
// Counters are words of an accumulator (integers, products, moments), or limbs and a count of the
// floats that are outside of bins (exact_limb_partial.cuh). Flags are OR-ed.
#pragma once

#include "block.cuh"
#include "exact_format.h"
#include "ticket.cuh"

namespace gpr {

// Makes `count` structures of words in shared memory zero. All threads must call; a block barrier
// is passed.
template <unsigned BLOCK, class T> GPR_DEVICE void clear_shared(T *first, unsigned count)
{
    unsigned *cleared = reinterpret_cast<unsigned *>(first);

    for (unsigned i = threadIdx.x; i < count * (sizeof(T) / sizeof(unsigned)); i += BLOCK)
        cleared[i] = 0;
    __syncthreads(); // the sums are zero
}

// The slot of a row, or of a group of rows. Scratch has `slots` of them.
GPR_DEVICE uint64 slot_of(const Row &row, unsigned slots)
{
    return row.index < slots ? row.index : row.index % slots;
}

struct RowCounters {
    uint64 *first = nullptr; // nullptr: a row of one block, without counters

    RowCounters() = default;
    // The `counters` counters of a slot.
    GPR_DEVICE RowCounters(unsigned *tickets, uint64 slot, unsigned counters)
    {
        first = reinterpret_cast<uint64 *>(tickets + gpr_exact_tickets(slot, counters)) + 1;
    }
    GPR_DEVICE bool are_used() const { return first != nullptr; }
    GPR_DEVICE unsigned *ticket() const { return reinterpret_cast<unsigned *>(first - 1); }
    GPR_DEVICE uint64 *at(unsigned i) const { return first + i; }
    // Adds number found(i) to counter i < count, or ORs it where is_flags(i). All threads must
    // call.
    template <unsigned BLOCK, class Found, class IsFlags>
    GPR_DEVICE void publish(unsigned count, const Found &found, const IsFlags &is_flags) const
    {
        for (unsigned i = threadIdx.x; i < count; i += BLOCK) {
            const uint64 number = found(i);
            if (number != 0 && is_flags(i)) atomicOr(at(i), number);
            else if (number != 0) atomicAdd(at(i), number);
        }
    }
    // Whether all other blocks of the row have called this before: then the counters may be loaded.
    // All threads must call, and get it; block barriers are passed.
    GPR_DEVICE bool is_last(unsigned blocks) const { return is_last_to_arrive(ticket(), blocks); }
    // Returns counter i, and clears it.
    GPR_DEVICE uint64 load_and_clear(unsigned i) const
    {
        const uint64 total = *at(i);
        *at(i) = 0;
        return total;
    }
};

// Merges word found(i) of all blocks of a row; words where is_flags(i) are OR-ed. Returns true to
// the row's only block, or the last one to arrive: `whole` has the words after a barrier. All
// threads must call.
template <unsigned BLOCK, unsigned WORDS, class Found, class IsFlags>
GPR_DEVICE bool merge_words(uint64 (&whole)[WORDS], const Row &row, unsigned *tickets,
                            unsigned slots, const Found &found, const IsFlags &is_flags)
{
    if (row.blocks == 1) {
        for (unsigned i = threadIdx.x; i < WORDS; i += BLOCK) whole[i] = found(i);
        return true;
    }
    const RowCounters counters(tickets, slot_of(row, slots), WORDS);
    counters.publish<BLOCK>(WORDS, found, is_flags);
    if (!counters.is_last(row.blocks)) return false;
    for (unsigned i = threadIdx.x; i < WORDS; i += BLOCK) whole[i] = counters.load_and_clear(i);
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
