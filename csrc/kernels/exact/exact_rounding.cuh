// Exact sums: rounding, once, of a sum that is complete.
//
//     limbs of both signs --> carried --> sign, leading limb --> 128 leading bits, and whether
//     any more is set --> Float
//
// Who holds the limbs:
//
//     Limbs       words of a part in shared memory; one lane carries. For quotients, whose words
//                 need one sign
//     WarpLimbs   20-bit limbs of a superaccumulator, one or a few per lane; all lanes carry at
//                 once
//     ShortSum    a short sum in the registers of a thread (exact_short_sum.cuh)
//
// From the leading bits on all take one path. Rounding to nearest, ties to even, needs the bits of
// the result, the next bit, and whether any bit below is set: the leading bits contain the first
// two for every type, `inexact` is the third.
#pragma once

#include "exact_superaccumulator_layout.cuh"

namespace gpr {

// The first and the last i < COUNT for which test(i), else COUNT and -1. All lanes of the warp must
// call.
struct Bounds {
    int first, last;
};
template <int COUNT, class Test> GPR_DEVICE Bounds bounds_where(const Test &test)
{
    constexpr int lanes = static_cast<int>(warp_lanes);
    Bounds bounds = {COUNT, -1};

#pragma unroll
    for (int begin = 0; begin < COUNT; begin += lanes) {
        const int i = begin + static_cast<int>(threadIdx.x % warp_lanes);
        const unsigned found = __ballot_sync(all_lanes, i < COUNT && test(i));
        if (found == 0) continue;
        if (bounds.last < 0) bounds.first = begin + lanes - 1 - leading_zeros(found & (0 - found));
        bounds.last = begin + lanes - 1 - leading_zeros(found);
    }
    return bounds;
}

// The limbs of a part's magnitude. They are 0 but from the lowest to the highest.
template <class T> struct Limbs {
    static constexpr int unit = lowest_exponent<T>; // exponent of the number's last bit
    const long long *word;                      // in two's complement, carried
    int lowest, highest;
    bool negative;

    GPR_DEVICE unsigned complement(int i) const
    {
        const unsigned limb = static_cast<unsigned>(word[i]);
        return !negative ? limb : i == lowest ? 0 - limb : ~limb;
    }
    GPR_DEVICE unsigned operator[](int i) const
    {
        return i < lowest || i > highest ? 0 : complement(i);
    }
    // The number modulo 2^64.
    GPR_DEVICE uint64 last_bits() const
    {
        return static_cast<uint64>(word[1]) << word_bits | static_cast<uint64>(word[0]);
    }

    // Carries a part's words, which are in shared memory and stay the same number. All lanes of the
    // warp must call.
    GPR_DEVICE explicit Limbs(ExactPart<T> &part) : word(part.word)
    {
        constexpr int words = accumulator_words<T>;
        const Bounds used = bounds_where<words>([&](int i) { return part.word[i] != 0; });
        // One more word takes the last carry; those above it are the sign's.
        const int end = is_float<T> && used.last + 1 < words ? used.last + 2 : words;
        long long carry = 0;

        __syncwarp(); // all have looked
        if (threadIdx.x % warp_lanes == 0) {
#pragma unroll 4
            for (int i = used.first; i < end; i++) {
                carry += part.word[i];
                part.word[i] = carry & 0xffffffffll;
                carry >>= word_bits;
            }
            // the last word keeps the sign, so that the number can be carried again
            if (carry != 0) part.word[end - 1] -= 1ll << word_bits;
        }
        __syncwarp(); // limbs are there
        negative = __shfl_sync(all_lanes, static_cast<unsigned>(carry >> word_bits), 0) != 0;
        const auto is_limb = [&](int i) { return i < end && word[i] != 0; };
        lowest = bounds_where<words>(is_limb).first;
        highest = bounds_where<words>([&](int i) {
                      return i >= lowest && i < end && complement(i) != 0;
                  }).last;
    }
};

// A sum's limbs in radix 2^RADIX, of both signs, a limb or a few of them per lane. Two steps carry,
// all limbs at once: a step leaves at most half of 2^RADIX of each limb, and adds what the limb
// below carries. In radix 2^20, limbs below 2^31 carry at most 2^11 in the first step and 1 in the
// second: they are at most 2^19 + 1 in magnitude then. So all limbs below the first one that is not
// 0 are less than one unit of it together, and it has the sum's sign.
template <int COUNT, int RADIX> struct WarpLimbs {
    static constexpr int steps = 2;
    static constexpr int lanes = static_cast<int>(warp_lanes), chunks = (COUNT + lanes - 1) / lanes;
    static constexpr int taken = 128 / RADIX; // limbs that are rounded: 95 bits at least
    int unit; // exponent of the last limb's last bit
    int highest;
    bool negative;
    long long mine[chunks];
    unsigned positives[chunks], negatives[chunks]; // which lanes' limbs are

    // limb(i) is number i. All lanes of the warp must call.
    template <class LimbOf>
    GPR_DEVICE WarpLimbs(int last_unit, const LimbOf &limb)
        : unit(last_unit), highest(-1), negative(false)
    {
        constexpr int unused = word_bits - RADIX; // bits of a limb's lower half
        const int lane = static_cast<int>(threadIdx.x % warp_lanes);
#pragma unroll
        for (int c = 0; c < chunks; c++)
            mine[c] = c * lanes + lane < COUNT ? limb(c * lanes + lane) : 0;
#pragma unroll
        for (int step = 0; step < steps; step++) {
            long long below = 0; // what the last lane of the chunk before carries
#pragma unroll
            for (int c = 0; c < chunks; c++) {
                // with its sign
                const int kept =
                    static_cast<int>(static_cast<unsigned>(mine[c]) << unused) >> unused;
                const long long carry = (mine[c] - kept) >> RADIX, from_below = shuffle_up(carry);
                mine[c] = kept + (lane > 0 ? from_below : below);
                if (c + 1 < chunks) below = shuffle_from(carry, lanes - 1);
            }
        }
#pragma unroll
        for (int c = 0; c < chunks; c++) {
            positives[c] = __ballot_sync(all_lanes, mine[c] > 0);
            negatives[c] = __ballot_sync(all_lanes, mine[c] < 0);
            const unsigned there = positives[c] | negatives[c];
            if (there == 0) continue;
            const int last = lanes - 1 - leading_zeros(there);
            highest = c * lanes + last;
            negative = (negatives[c] >> last & 1) != 0;
        }
    }
    GPR_DEVICE long long limb(int i) const
    {
        long long chunk = 0;
#pragma unroll
        for (int c = 0; c < chunks; c++)
            chunk = i >= c * lanes && i < (c + 1) * lanes ? mine[c] : chunk;
        return shuffle_from(chunk, i & (lanes - 1));
    }
    // The sign of the limbs below number i together: that of the first which is not 0.
    GPR_DEVICE int sign_below(int i) const
    {
        int sign = 0;
#pragma unroll
        for (int c = 0; c < chunks; c++) {
            const int count = i - c * lanes; // of this chunk's
            const unsigned which = count >= lanes ? ~0u : count > 0 ? (1u << count) - 1 : 0;
            const unsigned plus = positives[c] & which, minus = negatives[c] & which;
            if ((plus | minus) != 0) sign = plus > minus ? 1 : -1;
        }
        return sign;
    }
};

// The leading bits of a magnitude, from the top of `high`: (high * 2^64 + low) * 2^exponent, and a
// little more if `inexact`.
struct Leading {
    uint64 high, low;
    int exponent;
    bool inexact;
};

// The next limb of a quotient: (rest * 2^32 + limb) / n, of which *rest remains.
GPR_DEVICE unsigned divide_word(uint64 *rest, unsigned limb, uint64 n)
{
    unsigned quotient = 0;

    if (n >> word_bits == 0) {
        const uint64 both = *rest << word_bits | limb;
        *rest = both % n;
        return static_cast<unsigned>(both / n);
    }
#pragma unroll 1
    for (int bit = word_bits - 1; bit >= 0; bit--) {
        const bool is_beyond = *rest >> 63 != 0; // of 64 bits: beyond n all the more
        *rest = *rest << 1 | (limb >> bit & 1);
        if (is_beyond || *rest >= n) {
            *rest -= n;
            quotient |= 1u << bit;
        }
    }
    return quotient;
}

// Four limbs, from the first one on that is not 0, of a number other than 0 divided by n.
template <bool DIVIDED, class AnyLimbs>
GPR_DEVICE Leading leading_of(const AnyLimbs &limbs, uint64 n)
{
    Leading leading = {0, 0, 0, false};
    uint64 rest = 0;
    int i = limbs.highest + 1;

    if constexpr (DIVIDED) {
#pragma unroll 1
        while (leading.high >> word_bits == 0) {
            i--;
            leading.high = leading.high << word_bits | leading.low >> word_bits;
            leading.low = leading.low << word_bits | divide_word(&rest, limbs[i], n);
        }
    } else {
        i -= 4;
        leading.high = static_cast<uint64>(limbs[i + 3]) << word_bits | limbs[i + 2];
        leading.low = static_cast<uint64>(limbs[i + 1]) << word_bits | limbs[i];
    }
    leading.exponent = limbs.unit + i * word_bits;
    leading.inexact = rest != 0 || limbs.lowest < i;
    return leading;
}

// Elements of which a warp divides the sum's leading bits: of 94 of these, 56 are left.
constexpr int divisor_bits = 38;

// A quotient of leading bits, which has their last place: what they lack is less than a unit of it,
// before and after the division.
GPR_DEVICE Leading divided(const Leading &sum, uint64 n)
{
    uint64 rest = 0;
    const unsigned word[4] = {static_cast<unsigned>(sum.high >> word_bits),
                              static_cast<unsigned>(sum.high),
                              static_cast<unsigned>(sum.low >> word_bits),
                              static_cast<unsigned>(sum.low)};
    Leading quotient = {0, 0, sum.exponent, false};
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        quotient.high = quotient.high << word_bits | quotient.low >> word_bits;
        quotient.low = quotient.low << word_bits | divide_word(&rest, word[i], n);
    }
    quotient.inexact = sum.inexact || rest != 0;
    if (quotient.high == 0) {
        quotient.high = quotient.low;
        quotient.low = 0;
        quotient.exponent -= 2 * word_bits;
    }
    return quotient;
}

// As above, of a sum that a warp holds. The limbs below those that are read are less than one unit
// of the last of them. n is below 2^divisor_bits.
template <bool DIVIDED, int COUNT, int RADIX>
GPR_DEVICE Leading leading_of(const WarpLimbs<COUNT, RADIX> &limbs, uint64 n)
{
    constexpr int taken = WarpLimbs<COUNT, RADIX>::taken;
    const int last = limbs.highest - taken + 1;
    int below = limbs.sign_below(last);
    Leading leading = {0, 0, limbs.unit + last * RADIX, below != 0};

#pragma unroll
    for (int k = 0; k < taken; k++) {
        const long long limb = limbs.limb(limbs.highest - k); // none below the last: 0
        const long long next = limbs.negative ? -limb : limb;
        const uint64 shifted = leading.low << RADIX;
        leading.high =
            (leading.high << RADIX | leading.low >> (64 - RADIX)) + static_cast<uint64>(next >> 63);
        leading.low = shifted + static_cast<uint64>(next);
        leading.high += leading.low < shifted ? 1 : 0;
    }
    if (below != 0 && (below < 0) != limbs.negative) { // something is missing from the last one
        leading.high -= leading.low == 0 ? 1 : 0;
        leading.low--;
    }
    if constexpr (DIVIDED) return divided(leading, n);
    else return leading;
}

// Whether a * a is above high * 2^64 + low.
GPR_DEVICE bool is_square_above(uint64 a, uint64 high, uint64 low)
{
    const uint64 upper = __umul64hi(a, a);
    return upper > high || (upper == high && a * a > low);
}

// The root of a number of 126 bits at least, with an even exponent.
GPR_DEVICE Leading root_of(const Leading &square)
{
    constexpr double word = 0x1p64;
    constexpr int half_bits = 64;
    // right but for some of the last 13 bits
    const double guess = sqrt(static_cast<double>(square.high)) * 0x1p32;
    uint64 root = guess < word ? static_cast<uint64>(guess) : ~0ull;
    const uint64 low = root * root, high = __umul64hi(root, root);
    // The remainder of the guess's square, of either sign, and the root's difference from the guess
    // that it gives.
    const uint64 lack_low = square.low - low,
                 lack_high = square.high - high - (square.low < low ? 1 : 0);
    const double lack = static_cast<double>(static_cast<long long>(lack_high)) * word +
                        static_cast<double>(lack_low);
    const long long change = static_cast<long long>(lack / (2 * guess));
    const uint64 changed = root + static_cast<uint64>(change);

    root = change > 0 && changed < root ? ~0ull : changed;
#pragma unroll 1
    while (is_square_above(root, square.high, square.low)) root--;
#pragma unroll 1
    while (root != ~0ull && !is_square_above(root + 1, square.high, square.low)) root++;
    const bool is_exact = root * root == square.low && __umul64hi(root, root) == square.high;
    return Leading{root, 0, square.exponent / 2 - half_bits, square.inexact || !is_exact};
}

template <class Float>
constexpr uint64 infinity_bits = ((1ull << Format<Float>::exponent) - 1) << Format<Float>::fraction;

// A magnitude rounded once, to nearest, ties to even: the bits of a Float without its sign.
template <class Float> GPR_DEVICE uint64 round_leading(const Leading &leading)
{
    constexpr int fraction = Format<Float>::fraction, unit = lowest_exponent<Float>, half_bits = 64;
    constexpr int last_exponent = (1 << Format<Float>::exponent) - 1;
    const int zeros = leading_zeros(leading.high);
    // the first one is set
    const uint64 bits = leading.high << zeros | leading.low >> 1 >> (half_bits - 1 - zeros);
    const bool inexact = leading.inexact || leading.low << zeros != 0;
    const int top = 2 * half_bits - 1 - zeros + leading.exponent;   // exponent of the first bit
    const int last = top - fraction > unit ? top - fraction : unit; // of the last bit that is kept
    const int dropped = half_bits - 1 - top + last;                 // bits

    if (top > unit + fraction + last_exponent) return infinity_bits<Float>;
    if (dropped > half_bits) return 0;
    uint64 kept = dropped == half_bits ? 0 : bits >> dropped;
    const uint64 cut = bits << (half_bits - dropped); // the first bit is the half
    const bool half = cut >> (half_bits - 1) != 0, below = cut << 1 != 0 || inexact;
    // A significand that was rounded up to the next power of two carries into the exponent, and
    // from the largest number into infinity.
    if (half && (below || (kept & 1) != 0)) kept++;
    kept += static_cast<uint64>(last - unit) << fraction;
    return kept < infinity_bits<Float> ? kept : infinity_bits<Float>;
}

template <class Float> GPR_DEVICE Float float_of_bits(uint64 bits)
{
    if constexpr (sizeof(Float) == 2) return bit_copy<Float>(static_cast<unsigned short>(bits));
    else if constexpr (sizeof(Float) == 4) return bit_copy<Float>(static_cast<unsigned>(bits));
    else return bit_copy<Float>(bits);
}

// A number, or the mean of `count`, as a number of type Result: rounded once, integers modulo a
// power of two.
template <class Result, bool IS_MEAN, class AnyLimbs>
GPR_DEVICE Result finalize_limbs(const AnyLimbs &limbs, uint64 count, uint64 flags)
{
    constexpr uint64 both = saw_infinity | saw_minus_infinity;

    if constexpr (is_float<Result>) {
        constexpr uint64 sign = 1ull << (8 * sizeof(Result) - 1);
        if ((flags & saw_nan) != 0 || (flags & both) == both || (IS_MEAN && count == 0)) {
            return float_of_bits<Result>(infinity_bits<Result> |
                                         1ull << (Format<Result>::fraction - 1));
        }
        if ((flags & both) != 0) {
            return float_of_bits<Result>(infinity_bits<Result> |
                                         ((flags & saw_infinity) != 0 ? 0 : sign));
        }
        if (limbs.highest < 0)
            return float_of_bits<Result>(count > 0 && (flags & saw_not_minus_zero) == 0 ? sign : 0);
        return float_of_bits<Result>(round_leading<Result>(leading_of<IS_MEAN>(limbs, count)) |
                                     (limbs.negative ? sign : 0));
    } else if constexpr (same<Result, dt_bool>) {
        return dt_bool{static_cast<unsigned char>(limbs.highest >= 0)};
    } else {
        return static_cast<Result>(limbs.last_bits());
    }
}

} // namespace gpr
