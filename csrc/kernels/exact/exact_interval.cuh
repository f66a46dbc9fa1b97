// Exact sums: variances from the leading bits of sums, by intervals (Ziv's test).
//
//     S, Q              the first 128 bits of each sum, and a width: the number is in
//                       [bits, bits + width], in units of the last bit
//     n Q - S^2, / D    bits that a step leaves out widen the interval; cancellation moves the
//                       width towards the first bit
//     rounding          of both ends; where they round to one result, every number between them
//                       does, as rounding is monotone
//
// Where the ends round differently, or a number does not suit, exact_variance.cuh divides all
// limbs. An interval of width 0 is the number itself: short sums are rounded here, ties too.
//
// One thread does this for a row, in some hundreds of instructions.
#pragma once

#include "exact_rounding.cuh"

namespace gpr {

// ---------------------------------------------------------------- integers of 128 bits ----------

struct Integer128 { uint64 high, low; };
constexpr int wide_bits = 128, half_of_wide = 64;

GPR_DEVICE Integer128 product_of(uint64 a, uint64 b) { return Integer128{__umul64hi(a, b), a * b}; }
GPR_DEVICE bool is_below(const Integer128 &a, const Integer128 &b)
{
    return a.high < b.high || (a.high == b.high && a.low < b.low);
}
GPR_DEVICE Integer128 sum_of(const Integer128 &a, const Integer128 &b)
{
    const uint64 low = a.low + b.low;
    return Integer128{a.high + b.high + (low < b.low ? 1 : 0), low};
}
GPR_DEVICE Integer128 difference_of(const Integer128 &a, const Integer128 &b)
{
    return Integer128{a.high - b.high - (a.low < b.low ? 1 : 0), a.low - b.low};
}
// By 0 bits or more.
GPR_DEVICE Integer128 shifted_left(const Integer128 &a, int by)
{
    if (by >= wide_bits) return Integer128{0, 0};
    if (by >= half_of_wide) return Integer128{a.low << (by - half_of_wide), 0};
    return Integer128{a.high << by | a.low >> 1 >> (half_of_wide - 1 - by), a.low << by};
}
GPR_DEVICE Integer128 shifted_right(const Integer128 &a, int by)
{
    if (by >= wide_bits) return Integer128{0, 0};
    if (by >= half_of_wide) return Integer128{0, a.high >> (by - half_of_wide)};
    return Integer128{a.high >> by, a.low >> by | a.high << 1 << (half_of_wide - 1 - by)};
}
// Of a number other than 0.
GPR_DEVICE int leading_zeros(const Integer128 &a)
{
    return a.high != 0 ? leading_zeros(a.high) : half_of_wide + leading_zeros(a.low);
}

// number / divisor, whose first bit is set, and the remainder; number.high is below it.
GPR_DEVICE uint64 divide_wide(Integer128 number, uint64 divisor, uint64 *rest)
{
    constexpr double word = 0x1p64;
    const double by = static_cast<double>(divisor);
    const double guess =
        (static_cast<double>(number.high) * word + static_cast<double>(number.low)) / by;
    // right but for some of the last 13 bits
    const uint64 guessed = guess < word ? static_cast<uint64>(guess) : ~0ull;
    // The guess's remainder, of either sign, and the quotient's difference from the guess that it
    // gives, to within one.
    Integer128 left = difference_of(number, product_of(guessed, divisor));
    const double lack = static_cast<double>(static_cast<long long>(left.high)) * word +
                        static_cast<double>(left.low);
    const long long change = static_cast<long long>(lack / by);
    uint64 quotient = guessed + static_cast<uint64>(change);

    if (change > 0 && quotient < guessed) quotient = ~0ull;
    left = difference_of(number, product_of(quotient, divisor));
#pragma unroll 1
    while (left.high >> (half_of_wide - 1) != 0) { // below 0
        quotient--;
        left = sum_of(left, Integer128{0, divisor});
    }
#pragma unroll 1
    while (left.high != 0 || left.low >= divisor) {
        quotient++;
        left = difference_of(left, Integer128{0, divisor});
    }
    *rest = left.low;
    return quotient;
}

// ---------------------------------------------------------------- intervals ----------------------

// A number from least * 2^exponent to (least + width) * 2^exponent. Zero, or what is nearly 2^127
// or more, where it is made of limbs.
struct Interval {
    Integer128 least;
    uint64 width;
    int exponent;
};
constexpr int taken_bits = 160; // of limbs; what the highest carries is a word at most
// bits of a width at first: so that some of them together are below 2^62
constexpr int most_growth = 56;

// A magnitude's first bits, of limbs of either sign that are not carried: number i is worth limb[i]
// * 2^(i * RADIX + unit). They are 0 but from used.first to used.last. Says whether there are
// enough of them.
template <int RADIX, class Limb>
GPR_DEVICE bool load_leading_bits(Interval *interval, const Limb *limb, const Bounds &used,
                                  int unit)
{
    // Limbs that are taken; and all below them together are less than 2^rest_bits of the last one's
    // units.
    constexpr int words = 3, taken = taken_bits / RADIX,
                  rest_bits = 8 * static_cast<int>(sizeof(Limb)) - RADIX;
    static_assert(taken * RADIX == taken_bits, "what the last one carries has its place");
    const int last = used.last - taken + 1;
    uint64 word[words] = {}; // in two's complement
    long long carry = 0;
    int zeros = 0;

#pragma unroll
    for (int k = 0; k < taken; k++) {
        constexpr uint64 mask = (1ull << RADIX) - 1;
        const int w = k * RADIX / half_of_wide, place = k * RADIX % half_of_wide;
        carry += last + k >= 0 ? limb[last + k] : 0;
        const uint64 piece = static_cast<uint64>(carry) & mask;
        word[w] |= piece << place;
        if (place + RADIX > half_of_wide) word[w + 1] |= piece >> (half_of_wide - place);
        carry >>= RADIX;
    }
    word[words - 1] += static_cast<uint64>(carry) << taken_bits % half_of_wide;
    if (word[words - 1] >> (half_of_wide - 1) != 0) {
        uint64 one = 1;
#pragma unroll
        for (int w = 0; w < words; w++) {
            word[w] = ~word[w] + one;
            one = one != 0 && word[w] == 0 ? 1 : 0;
        }
    }
#pragma unroll
    for (int w = 1; w < words; w++) {
        if (word[2] != 0) continue;
        word[2] = word[1];
        word[1] = word[0];
        word[0] = 0;
        zeros += half_of_wide;
    }
    const bool is_exact = used.first >= last;
    if (word[2] == 0) {
        *interval = Interval{{0, 0}, 0, 0};
        return is_exact;
    }
    const int shift = leading_zeros(word[2]), dropped = half_of_wide - 1 - shift;
    zeros += shift;
    interval->least = Integer128{word[2] << shift | word[1] >> 1 >> dropped,
                                 word[1] << shift | word[0] >> 1 >> dropped};
    interval->width = word[0] << shift != 0 ? 1 : 0;
    interval->exponent = unit + last * RADIX + half_of_wide - zeros;
    if (is_exact) return true;
    const int growth = rest_bits + zeros - half_of_wide;
    if (growth > most_growth) return false;
    const uint64 rest = growth > 0 ? 1ull << growth : 1;
    interval->least = difference_of(interval->least, Integer128{0, rest});
    interval->width = 2 * rest + 1;
    return true;
}

// n times a number in limbs, n from 1 to 2^32: its lower end is below 2^126.
GPR_DEVICE Interval times(const Interval &number, uint64 n)
{
    const int shift = leading_zeros(n) - 2;
    const uint64 factor = n << shift;
    const Integer128 lower = product_of(number.least.low, factor),
                     upper = product_of(number.least.high, factor);
    return Interval{sum_of(upper, Integer128{0, lower.high}),
                    number.width + (lower.low != 0 ? 1 : 0),
                    number.exponent - shift + half_of_wide};
}

// Subtracts the square of a number in limbs, which is not larger than the minuend. Returns whether
// the lower end stays at 0 or above.
GPR_DEVICE bool subtract_square(Interval *from, const Interval &root)
{
    const uint64 high = root.least.high, low = root.least.low;
    if (high == 0) return true;
    // (high * 2^64 + low)^2 in units of 2^128, and the bits below these units.
    const Integer128 cross = product_of(high, low), last = product_of(low, low);
    const Integer128 below = sum_of(Integer128{0, cross.low << 1}, Integer128{0, last.high});
    const Integer128 crossed = {cross.high >> (half_of_wide - 1),
                                cross.high << 1 | cross.low >> (half_of_wide - 1)};
    const Integer128 square =
        sum_of(sum_of(product_of(high, high), crossed), Integer128{0, below.high});
    // Not below 0: the square is 2^126, less its width, or more, and no more than the minuend.
    const int shift = from->exponent - 2 * root.exponent - wide_bits;
    const Integer128 whole = shifted_right(square, shift), kept = shifted_left(whole, shift);
    const bool is_cut =
        below.low != 0 || last.low != 0 || kept.high != square.high || kept.low != square.low;
    const uint64 width = (root.width != 0 ? 2 * root.width + 1 : 0) + (is_cut ? 1 : 0);
    const Integer128 most = sum_of(whole, Integer128{0, width});

    if (is_below(from->least, most)) return false;
    from->least = difference_of(from->least, most);
    from->width += width;
    return true;
}

// ---------------------------------------------------------------- variances ---------------------

// The sums of a row's elements, of PARTS parts, and that of their squares.
template <unsigned PARTS> struct MomentIntervals {
    Interval sum[PARTS], squares;
};

struct ZivResult {
    uint64 bits; // of a Float
    bool is_certain;
};

// The variance of n elements, or its root, rounded to a Float, if the first bits of the sums
// determine it.
template <class Float, bool IS_ROOT, unsigned PARTS>
GPR_CALLED ZivResult variance_from_intervals(MomentIntervals<PARTS> moments, uint64 n, double ddof)
{
    constexpr double most = 0x1p31; // and the divisor is a word
    constexpr ZivResult uncertain = {0, false};
    if (n == 0 || n >> 32 != 0 || !(ddof > -most && ddof < most)) return uncertain;
    const long long less = static_cast<long long>(ddof), freedom = static_cast<long long>(n) - less;
    if (static_cast<double>(less) != ddof || freedom <= 0 || freedom >> 32 != 0) return uncertain;

    if (moments.squares.least.high == 0) return ZivResult{0, true};
    Interval numerator = times(moments.squares, n);
#pragma unroll
    for (unsigned p = 0; p < PARTS; p++) {
        if (!subtract_square(&numerator, moments.sum[p])) return uncertain;
    }
    if (numerator.least.high == 0 && numerator.least.low == 0)
        return ZivResult{0, numerator.width == 0};

    // The numerator shifted to 126 or 127 bits, by the divisor shifted to 64: 126 bits at least,
    // and an even exponent.
    const uint64 product = n * static_cast<uint64>(freedom);
    const int zeros = leading_zeros(product);
    const uint64 divisor = product << zeros;
    int shift = leading_zeros(numerator.least) - 1;
    if ((numerator.exponent - shift + zeros) % 2 != 0) shift--;
    // Divided by 2^63 or more: in units of the quotient's last bit the width is twice as much at
    // most.
    if (numerator.width != 0 && leading_zeros(numerator.width) <= shift) return uncertain;
    const uint64 width = numerator.width != 0 ? numerator.width << (shift + 1) : 0;
    uint64 rest;
    Leading least = {0, 0, numerator.exponent - shift + zeros - half_of_wide, false};
    least.high = divide_wide(shifted_left(numerator.least, shift), divisor, &rest);
    least.low = divide_wide(Integer128{rest, 0}, divisor, &rest);
    least.inexact = rest != 0;
    Leading greatest = least;
    greatest.low += width;
    greatest.high += greatest.low < least.low ? 1 : 0;
    if (greatest.high < least.high) return uncertain;
    const auto rounded = [](const Leading &variance) {
        return round_leading<Float>(IS_ROOT ? root_of(variance) : variance);
    };
    const uint64 bits = rounded(least);
    return ZivResult{bits, bits == rounded(greatest)};
}

} // namespace gpr
