// Exact sums: rounding of a sum of a few integers in the registers of a thread.
//
// Most sums are normal numbers, and not much smaller than their largest terms. About thirty
// instructions round these, the last of them a conversion, and some more divide them; others are
// rounded limb by limb.
#pragma once

#include "exact_double_double.cuh"

namespace gpr {

// The sum of COUNT integers below 2^62 in magnitude. The last one's unit is 2^unit, and that of
// integer i is 2^(unit + (COUNT - 1 - i) * STEP).
template <unsigned COUNT, int STEP> struct ShortSum {
    long long limb[COUNT];
    int unit;
};

// A sum whose first number is 0.
template <unsigned COUNT, int STEP>
GPR_DEVICE ShortSum<COUNT - 1, STEP> without_first(const ShortSum<COUNT, STEP> &sum)
{
    ShortSum<COUNT - 1, STEP> others;
#pragma unroll
    for (unsigned i = 1; i < COUNT; i++) others.limb[i - 1] = sum.limb[i];
    others.unit = sum.unit;
    return others;
}

// ---------------------------------------------------------------- the quick way -----------------

// A sum as (first + second * 2^-STEP) * 2^exponent with 0 <= second < 2^STEP; if `has_rest`, plus a
// rest above 0 and below one unit of second.
template <unsigned COUNT, int STEP> struct Carried {
    long long first;
    uint64 second = 0;
    int exponent;
    bool has_rest;

    GPR_DEVICE explicit Carried(const ShortSum<COUNT, STEP> &sum)
        : first(sum.limb[0]), exponent(sum.unit + static_cast<int>(COUNT - 1) * STEP)
    {
        constexpr uint64 piece = (1ull << STEP) - 1;
        uint64 rest = 0;
        long long carry = 0;
#pragma unroll
        for (unsigned i = COUNT - 1; i > 0; i--) {
            const long long whole = sum.limb[i] + carry;
            second = static_cast<uint64>(whole) & piece;
            carry = whole >> STEP;
            if (i > 1) rest |= second;
        }
        first += carry;
        has_rest = rest != 0;
    }
    GPR_DEVICE int sign() const
    {
        return first < 0 ? -1 : first != 0 || second != 0 || has_rest ? 1 : 0;
    }
};

// Whether |x| is from 2^LEAST to 2^MOST.
template <int LEAST, int MOST> GPR_DEVICE bool is_within(long long x)
{
    const uint64 magnitude = static_cast<uint64>(x < 0 ? ~x : x);
    return magnitude >> LEAST != 0 && magnitude >> MOST == 0;
}

// Rounds a sum to *result, if it is a normal number and large enough. Returns whether it is.
template <class Float, unsigned COUNT, int STEP>
GPR_DEVICE bool round_quickly(const ShortSum<COUNT, STEP> &sum, Float *result)
{
    constexpr int fraction = Format<Float>::fraction, last = static_cast<int>(last_field<Float>);
    // of `bits`
    constexpr unsigned fields = sizeof(Float) == 4 ? last_field<Float> : last_field<dt_float64>;
    const Carried<COUNT, STEP> carried(sum);
    const int exponent = carried.exponent;
    // Round to odd: a rest makes the last bit 1. A number with two bits more than the result rounds
    // as the whole sum does.
    const long long odd =
        carried.first | (COUNT > 1 && (carried.second != 0 || carried.has_rest) ? 1 : 0);
    uint64 bits, sign = 0;
    int moves; // to add to the exponent field
    bool is_certain;

    if constexpr (sizeof(Float) == 8 && COUNT > 1) {
        // The last bit that is kept is worth 4 units of `second` or more: half of such a unit
        // stands for any rest.
        constexpr double scale = 2.0 * static_cast<double>(1ull << STEP);
        const long long lower =
            static_cast<long long>(2 * carried.second) + (carried.has_rest ? 1 : 0);
        bits = bit_copy<uint64>(
            __fma_rn(static_cast<double>(carried.first), scale, static_cast<double>(lower)));
        moves = exponent - STEP - 1;
        is_certain = is_within<fraction + 2 - STEP, fraction + 1>(carried.first);
    } else if constexpr (sizeof(Float) >= 4) {
        bits = bit_copy<Bits<Float>>(static_cast<Float>(odd));
        moves = exponent;
        is_certain = is_within<COUNT == 1 ? 0 : fraction + 3, 62>(carried.first);
    } else { // no instruction converts 64 bits to these types: round from a double's upper half
        constexpr int dropped = 20 - fraction,
                      more_bias = static_cast<int>(last_field<dt_float64>) / 2 - last / 2;
        const uint64 whole = bit_copy<uint64>(static_cast<double>(odd));
        const unsigned upper = (static_cast<unsigned>(whole >> 32) & ~sign_bit) |
                               (static_cast<unsigned>(whole) != 0 ? 1u : 0u);
        bits = (upper + (1u << (dropped - 1)) - 1 + (upper >> dropped & 1)) >> dropped;
        sign = odd < 0 ? sign_of<Float> : 0;
        moves = exponent - more_bias;
        is_certain = is_within<COUNT == 1 ? 0 : fraction + 3, double_fraction + 1>(carried.first);
    }
    const int field = static_cast<int>(static_cast<unsigned>(bits >> fraction) & fields) + moves;
    *result = float_of_bits<Float>(
        (bits + (static_cast<uint64>(static_cast<long long>(moves)) << fraction)) | sign);
    return is_certain && field > 0 && field < last;
}

// Rounds a sum divided by `count` to *result, if two doubles are the sum, and neither they nor
// their quotients are near the ends of a double's range. Returns whether it did.
template <class Float, unsigned COUNT, int STEP>
GPR_DEVICE bool divide_quickly(const ShortSum<COUNT, STEP> &sum, uint64 count, Float *result)
{
    // Exponents up to these leave room for 2^62 * 2^STEP above and for a division below.
    constexpr int most = 700, bias = static_cast<int>(last_field<dt_float64>) / 2;
    constexpr uint64 most_count = 1ull << 50;
    static_assert(STEP <= 43, "the lower double holds what the upper one leaves, and `second`");
    const Carried<COUNT, STEP> carried(sum);
    const int exponent = carried.exponent - STEP; // of a unit of `second`

    if (carried.has_rest || carried.sign() == 0 || count == 0 || count > most_count ||
        exponent < -most || exponent > most)
        return false;
    const double unit = bit_copy<double>(static_cast<uint64>(bias + exponent) << double_fraction);
    const double upper = static_cast<double>(carried.first);
    const long long left = carried.first - static_cast<long long>(upper); // 2^8 or less
    const double lower = static_cast<double>(left * (1ll << STEP) +
                                             static_cast<long long>(carried.second));
    const double divisor = static_cast<double>(count);
    DoubleDouble<double> total = DoubleDouble<double>::of_pair(
        upper * static_cast<double>(1ll << STEP) * unit, lower * unit);

    if (!total.divide(divisor, 1 / divisor)) return false;
    *result = total.template rounded<Float>();
    return true;
}

// Rounds a sum, or the mean of `count`. Returns whether it did.
template <bool IS_MEAN, class Float, unsigned COUNT, int STEP>
GPR_DEVICE bool finalize_quickly(const ShortSum<COUNT, STEP> &sum, uint64 count, Float *result)
{
    if constexpr (IS_MEAN) return divide_quickly(sum, count, result);
    else return round_quickly(sum, result);
}

// ---------------------------------------------------------------- one number more ---------------

// A sum plus one number x of type T, at any distance. Where one of the two is so low that none of
// its limbs fits, its sign takes its place in the last limb, which rounds to the same result
// (docs/exact-sums.md, Outliers).
constexpr unsigned far_limbs = 7;
template <class T, unsigned COUNT, int STEP>
GPR_DEVICE ShortSum<far_limbs, STEP> with_outlier(const ShortSum<COUNT, STEP> &sum, T x)
{
    constexpr int most = static_cast<int>(far_limbs - COUNT),
                  highest = static_cast<int>(far_limbs) - 2;
    // in numbers: what is divided is not negative
    constexpr int fraction = Format<T>::fraction, offset = 64;
    constexpr Bits<T> implied = static_cast<Bits<T>>(Bits<T>(1) << fraction);
    const Bits<T> bits = bit_copy<Bits<T>>(x);
    const int field = static_cast<int>(static_cast<unsigned>(bits >> fraction) & last_field<T>);
    const uint64 significand = (bits & (implied - 1u)) | (field != 0 ? implied : 0u);
    const int sign_of_sum = Carried<COUNT, STEP>(sum).sign(),
              sign_of_one = (bits & sign_of<T>) != 0 ? -1 : 1;
    const int place = lowest_exponent<T> + (field != 0 ? field - 1 : 0); // of the last bit of x
    const int unit = sign_of_sum != 0 ? sum.unit : place;
    // x is in number `at` and the next above it, counted from the sum's last one; with 2 bits or
    // more in the upper one, so that it can be rounded quickly. Both are moved by `moved` numbers,
    // so that the higher one is among the first.
    const int distance = place - unit - 2 + offset * STEP, at = distance / STEP - offset,
              shift = distance % STEP + 2;
    const int moved = most < highest - at ? most : highest - at;
    const long long lower =
        static_cast<long long>(significand << shift & ((1ull << STEP) - 1)) * sign_of_one;
    const long long upper =
        static_cast<long long>(significand << 1 >> (STEP + 1 - shift)) * sign_of_one;
    ShortSum<far_limbs, STEP> all;

    all.unit = unit - moved * STEP;
#pragma unroll
    for (unsigned i = 0; i < far_limbs; i++) {
        const int from_last = static_cast<int>(far_limbs - 1 - i), of_sum = from_last - moved,
                  of_one = of_sum - at;
        long long number = of_one == 0 ? lower : of_one == 1 ? upper : 0;
#pragma unroll
        for (unsigned j = 0; j < COUNT; j++)
            number += moved >= 0 && of_sum == static_cast<int>(COUNT - 1 - j) ? sum.limb[j] : 0;
        all.limb[i] = number;
    }
    if (moved < 0) all.limb[far_limbs - 1] = sign_of_sum;
    else if (at + moved < 0) all.limb[far_limbs - 1] = significand != 0 ? sign_of_one : 0;
    return all;
}

// ---------------------------------------------------------------- any of them -------------------

// The sum's limbs, as those of Limbs.
template <unsigned COUNT, int STEP> struct ShortLimbs {
    // a sign, and what adding them takes
    static constexpr int most_bits = (COUNT - 1) * STEP + 62 + 2;
    static constexpr int pairs = (most_bits + 2 * word_bits - 1) / (2 * word_bits),
                         words = 2 * pairs;
    uint64 pair[pairs]; // of limbs of the magnitude
    int unit, lowest = 0, highest = -1;
    bool negative;

    GPR_DEVICE explicit ShortLimbs(const ShortSum<COUNT, STEP> &sum) : unit(sum.unit)
    {
        const long long(&number)[COUNT] = sum.limb;
        constexpr int pair_bits = 2 * word_bits;
#pragma unroll
        for (int k = 0; k < pairs; k++) pair[k] = 0;
#pragma unroll
        for (unsigned i = 0; i < COUNT; i++) {
            const int place = static_cast<int>(COUNT - 1 - i) * STEP, first = place / pair_bits,
                      shift = place % pair_bits;
            const uint64 sign = static_cast<uint64>(number[i] >> (pair_bits - 1));
            unsigned carry = 0;
#pragma unroll
            for (int k = first; k < pairs; k++) {
                const uint64 upper = k == first + 1 && shift != 0
                                         ? static_cast<uint64>(number[i] >> (pair_bits - shift))
                                         : sign;
                const uint64 addend = k == first ? static_cast<uint64>(number[i]) << shift : upper;
                const uint64 sum = pair[k] + addend, whole = sum + carry;
                carry = sum < addend || whole < sum ? 1 : 0;
                pair[k] = whole;
            }
        }
        negative = pair[pairs - 1] >> (pair_bits - 1) != 0;
        unsigned one = negative ? 1 : 0;
#pragma unroll
        for (int k = 0; k < pairs; k++) {
            if (negative) pair[k] = ~pair[k] + one;
            one = one != 0 && pair[k] == 0 ? 1 : 0;
        }
#pragma unroll
        for (int i = 0; i < words; i++) highest = word(i) != 0 ? i : highest;
#pragma unroll
        for (int i = words; i-- > 0;) lowest = word(i) != 0 ? i : lowest;
    }
    GPR_DEVICE unsigned word(int i) const
    {
        return static_cast<unsigned>(i % 2 == 0 ? pair[i / 2] : pair[i / 2] >> word_bits);
    }
    GPR_DEVICE unsigned operator[](int i) const
    {
        unsigned found = 0;
#pragma unroll
        for (int k = 0; k < words; k++) found = k == i ? word(k) : found;
        return found;
    }
    GPR_DEVICE uint64 last_bits() const { return negative ? 0 - pair[0] : pair[0]; }
};

// Its leading limbs: undivided, they are taken by pairs.
template <bool DIVIDED, unsigned COUNT, int STEP>
GPR_DEVICE Leading leading_of(const ShortLimbs<COUNT, STEP> &limbs, uint64 n)
{
    using Limbs = ShortLimbs<COUNT, STEP>;
    if constexpr (DIVIDED) {
        return leading_of<true, Limbs>(limbs, n);
    } else {
        constexpr int pair_bits = 2 * word_bits;
        Leading leading = {limbs.pair[0], 0, limbs.unit - pair_bits, false};
        bool inexact = false;
#pragma unroll
        for (int k = 1; k < Limbs::pairs; k++) {
            if (limbs.pair[k] != 0) {
                leading = {limbs.pair[k], limbs.pair[k - 1], limbs.unit + (k - 1) * pair_bits,
                           inexact};
            }
            inexact = inexact || limbs.pair[k - 1] != 0;
        }
        return leading;
    }
}

// The sum, or the mean of `count`, as a number of type Result: rounded once, integers modulo a
// power of two.
template <class Result, bool IS_MEAN, unsigned COUNT, int STEP>
GPR_CALLED Result finalize_any(ShortSum<COUNT, STEP> sum, uint64 count, uint64 flags)
{
    return finalize_limbs<Result, IS_MEAN>(ShortLimbs<COUNT, STEP>(sum), count, flags);
}
template <class Result, bool IS_MEAN, unsigned COUNT, int STEP>
GPR_DEVICE Result finalize_short(const ShortSum<COUNT, STEP> &sum, uint64 count, uint64 flags)
{
    // Means with an outlier, which are rare, take the long way: programs stay smaller.
    if constexpr (is_float<Result> && (!IS_MEAN || COUNT < far_limbs)) {
        Result result;
        bool is_rounded;
        if constexpr (COUNT > 1) {
            is_rounded = sum.limb[0] == 0
                             ? finalize_quickly<IS_MEAN>(without_first(sum), count, &result)
                             : finalize_quickly<IS_MEAN>(sum, count, &result);
        } else {
            is_rounded = finalize_quickly<IS_MEAN>(sum, count, &result);
        }
        if (is_rounded && (flags & (saw_infinity | saw_minus_infinity | saw_nan)) == 0)
            return result;
    }
    return finalize_any<Result, IS_MEAN>(sum, count, flags);
}

} // namespace gpr
