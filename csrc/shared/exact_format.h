/* Formats of exact sums in memory that host and kernels both read and write.
 *
 * A superaccumulator is an integer in units of the dtype's smallest number, in words of
 * GPR_EXACT_WORD_BITS that are kept in 64 bits, so that carries wait. The blocks of a row add to it
 * in smaller limbs. A packed accumulator, as it leaves a kernel, is the words, the number of
 * elements and the flags, 8 bytes each. */
#ifndef GPR_SHARED_EXACT_FORMAT_H
#define GPR_SHARED_EXACT_FORMAT_H

#include "language.h"

enum {
    GPR_EXACT_WORD_BITS = 32,
    /* Beyond the largest element: 64 bits for the number of elements, one for the sign, one so that
     * a sum of which only the number of elements is known still adds up without overflow. */
    GPR_EXACT_SPARE_BITS = 66,
    GPR_EXACT_LEAST_WORDS = 4, /* both halves of a 64-bit sum of small integers have words */
    GPR_EXACT_LIMB_BITS = 20,
    GPR_EXACT_ACC_TAIL = 2 /* count and flags, behind words or limbs */
};

/* What a sum must remember beside the number. Flags of parts are OR-ed. */
enum {
    GPR_EXACT_INFINITY = 1,
    GPR_EXACT_MINUS_INFINITY = 2,
    GPR_EXACT_NAN = 4,
    GPR_EXACT_NOT_MINUS_ZERO = 8, /* an element other than -0 was added: an exact zero is +0 */
    GPR_EXACT_FLAGS = 15
};

/* Words of a superaccumulator of numbers that are multiples of 2^lowest below 2^highest. */
GPR_CONSTANT_FUNCTION int gpr_exact_words(int lowest, int highest)
{
    const int bits = highest - lowest + GPR_EXACT_SPARE_BITS;
    const int words = (bits + GPR_EXACT_WORD_BITS - 1) / GPR_EXACT_WORD_BITS;

    return words < GPR_EXACT_LEAST_WORDS ? (int)GPR_EXACT_LEAST_WORDS : words;
}

/* Limbs of a superaccumulator of so many words. */
GPR_CONSTANT_FUNCTION int gpr_exact_limbs(int words)
{
    return (words * GPR_EXACT_WORD_BITS + GPR_EXACT_LIMB_BITS - 1) / GPR_EXACT_LIMB_BITS;
}

/* Bins: doubles with a bias, GPR_BIN_STEP_BITS apart, that a thread adds floats to. Of the 52 bits
 * below a bias's leading one those above the step are room for additions. */
enum { GPR_BIN_STEP_BITS = 42, GPR_BIN_ADDS = 1 << (52 - GPR_BIN_STEP_BITS) };

/* Bins of a thread for floats of so many bytes. */
GPR_CONSTANT_FUNCTION unsigned gpr_exact_bins(unsigned bytes)
{
    return bytes == 8 ? 3 : bytes == 4 ? 2 : 1;
}

/* Words of 8 bytes that each block of a row publishes for the last block: per real number of an
 * element, of which there are `parts` of `bytes` bytes, an integer per bin and one above; then the
 * bins' position and the flags. */
GPR_CONSTANT_FUNCTION unsigned gpr_limb_partial_words(unsigned parts, unsigned bytes)
{
    return parts * (gpr_exact_bins(bytes) + 1) + 1;
}

/* A slot of scratch memory, for a row or a group of rows that several blocks add to: a ticket, a
 * gap, and `counters` counters of 8 bytes, all zero before a launch and after it.
 *
 *     | ticket | gap | counter 0 | counter 1 | ... |
 *       4 bytes  4     8           8
 *
 * Returns the length of `slots` slots in tickets, the unit in which scratch counts. */
enum { GPR_COUNTER_TICKETS = 2 /* 4-byte tickets in the 8 bytes of a counter */ };

GPR_CONSTANT_FUNCTION gpr_u64 gpr_exact_tickets(gpr_u64 slots, gpr_u32 counters)
{
    return slots * GPR_COUNTER_TICKETS * (1 + counters);
}

#endif
