// Exact sums: the fixed-point numbers that the exact kernel adds to, and how they are rounded. lib/exact.c has the same
// for the host, and the same layout.
//
// A part holds the sum of real elements as an integer in units of the smallest number of their type, in radix 2^32. A
// word is 64 bits wide, so that additions need not carry. Integer addition knows no order: however elements are
// grouped, the number is the same.
#pragma once

#include "results.cuh"
#include "warp.cuh"

namespace gpr {

// ---------------------------------------------------------------- the grid ----------------------

// A binary floating-point format: stored bits of the significand, bits of the exponent. Integers have neither.
template <class T> struct Format { static constexpr int fraction = 0, exponent = 0; };
template <> struct Format<dt_float16> { static constexpr int fraction = 10, exponent = 5; };
template <> struct Format<dt_bfloat16> { static constexpr int fraction = 7, exponent = 8; };
template <> struct Format<dt_float32> { static constexpr int fraction = 23, exponent = 8; };
template <> struct Format<dt_float64> { static constexpr int fraction = 52, exponent = 11; };

// Every element of type T is a multiple of 2^grid_lowest below 2^grid_highest.
template <class T> constexpr int grid_lowest =
    is_float<T> ? 2 - (1 << (Format<T>::exponent - 1)) - Format<T>::fraction : 0;
template <class T> constexpr int grid_highest = is_float<T> ? 1 << (Format<T>::exponent - 1) : 8 * sizeof(T);

constexpr int word_bits = 32;
constexpr int spare_bits = 66; // beyond the largest element: 64 bits for their number, one for the sign, one to add
constexpr int least_words = 4; // room for both halves of a 64-bit integer
template <class T> constexpr int needed_words =
    (grid_highest<T> - grid_lowest<T> + spare_bits + word_bits - 1) / word_bits;
template <class T> constexpr int grid_words = needed_words<T> < least_words ? least_words : needed_words<T>;

// What a sum must remember beside the number; the host's GPR_EXACT_ flags.
constexpr uint64 saw_infinity = 1, saw_minus_infinity = 2, saw_nan = 4, saw_not_minus_zero = 8;

// In shared memory, and as kernels leave it for the host.
template <class T> struct ExactPart {
    long long word[grid_words<T>];
    uint64 count; // elements
    uint64 flags;
};

template <class T> struct PartTypeOf { using type = T; };
template <> struct PartTypeOf<dt_complex64> { using type = dt_float32; };
template <> struct PartTypeOf<dt_complex128> { using type = dt_float64; };
template <class T> using PartType = typename PartTypeOf<T>::type;
template <class T> constexpr unsigned parts_of = is_complex<T> ? 2 : 1;

// A sum of elements of type T: complex ones have a part for each of theirs.
template <class T> struct ExactSum {
    ExactPart<PartType<T>> part[parts_of<T>];
};

struct fold_exact {
    static constexpr bool commutative = true;
};

// ---------------------------------------------------------------- rounding ----------------------
//
// A warp rounds a part: its lanes carry, all look for the leading digits, and from there on all do the same. Where a sum is
// divided, one lane carries. A thread rounds what is so short that it has it in registers.

// The first and the last i < COUNT for which test(i), else COUNT and -1. All lanes of the warp must call.
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

// The digits of a part's magnitude. They are 0 but from the lowest to the highest.
template <class T> struct Digits {
    static constexpr int unit = grid_lowest<T>; // exponent of the number's last bit
    const long long *word;                      // in two's complement, carried
    int lowest, highest;
    bool negative;

    GPR_DEVICE unsigned complement(int i) const
    {
        const unsigned digit = static_cast<unsigned>(word[i]);
        return !negative ? digit : i == lowest ? 0 - digit : ~digit;
    }
    GPR_DEVICE unsigned operator[](int i) const { return i < lowest || i > highest ? 0 : complement(i); }
    // The number modulo 2^64.
    GPR_DEVICE uint64 last_bits() const
    {
        return static_cast<uint64>(word[1]) << word_bits | static_cast<uint64>(word[0]);
    }

    // Carries a part's words, which are in shared memory. All lanes of the warp must call.
    GPR_DEVICE explicit Digits(ExactPart<T> &part) : word(part.word)
    {
        constexpr int words = grid_words<T>;
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
        }
        __syncwarp(); // digits are there
        negative = __shfl_sync(all_lanes, static_cast<unsigned>(carry >> word_bits), 0) != 0;
        const auto is_digit = [&](int i) { return i < end && word[i] != 0; };
        lowest = bounds_where<words>(is_digit).first;
        highest = bounds_where<words>([&](int i) { return i >= lowest && i < end && complement(i) != 0; }).last;
    }
};

// The same of a sum of COUNT integers, below 2^62 in magnitude: number i in units of 2^((COUNT - 1 - i) * STEP) of the
// last one's, which is 2^unit. All of it is a thread's own.
template <unsigned COUNT, int STEP> struct ShortDigits {
    static constexpr int most_bits = (COUNT - 1) * STEP + 62 + 2; // a sign, and what adding them takes
    static constexpr int pairs = (most_bits + 2 * word_bits - 1) / (2 * word_bits), words = 2 * pairs;
    uint64 pair[pairs]; // of digits of the magnitude
    int unit, lowest = 0, highest = -1;
    bool negative;

    ShortDigits() = default;
    GPR_DEVICE ShortDigits(const long long (&number)[COUNT], int last_unit) : unit(last_unit)
    {
        constexpr int pair_bits = 2 * word_bits;
#pragma unroll
        for (int k = 0; k < pairs; k++) pair[k] = 0;
#pragma unroll
        for (unsigned i = 0; i < COUNT; i++) {
            const int place = static_cast<int>(COUNT - 1 - i) * STEP, first = place / pair_bits, shift = place % pair_bits;
            const uint64 sign = static_cast<uint64>(number[i] >> (pair_bits - 1));
            unsigned carry = 0;
#pragma unroll
            for (int k = first; k < pairs; k++) {
                const uint64 upper = k == first + 1 && shift != 0 ? static_cast<uint64>(number[i] >> (pair_bits - shift)) : sign;
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
    GPR_DEVICE unsigned word(int i) const { return static_cast<unsigned>(i % 2 == 0 ? pair[i / 2] : pair[i / 2] >> word_bits); }
    GPR_DEVICE unsigned operator[](int i) const
    {
        unsigned found = 0;
#pragma unroll
        for (int k = 0; k < words; k++) found = k == i ? word(k) : found;
        return found;
    }
    GPR_DEVICE uint64 last_bits() const { return negative ? 0 - pair[0] : pair[0]; }
};

// A sum's digits in radix 2^RADIX, of both signs, a digit or a few of them a lane. STEPS steps carry, all digits at once:
// of each digit a step leaves half of 2^RADIX at most, and what the one below carries. In radix 2^20 digits that were below
// 2^31 are 2^19 + 1 at most after two steps, and any of 64 bits after four. So all digits below the first one that is not
// 0 are less than it together: it has the sum's sign.
template <int COUNT, int RADIX, int STEPS = 2> struct WarpDigits {
    static constexpr int lanes = static_cast<int>(warp_lanes), chunks = (COUNT + lanes - 1) / lanes;
    static constexpr int taken = 128 / RADIX; // digits that are rounded: 95 bits at least
    int unit; // exponent of the last digit's last bit
    int highest;
    bool negative;
    long long mine[chunks];
    unsigned positives[chunks], negatives[chunks]; // which lanes' digits are

    // digit(i) is number i. All lanes of the warp must call.
    template <class DigitOf>
    GPR_DEVICE WarpDigits(int last_unit, const DigitOf &digit) : unit(last_unit), highest(-1), negative(false)
    {
        constexpr int unused = word_bits - RADIX; // bits of a digit's lower half
        const int lane = static_cast<int>(threadIdx.x % warp_lanes);
#pragma unroll
        for (int c = 0; c < chunks; c++) mine[c] = c * lanes + lane < COUNT ? digit(c * lanes + lane) : 0;
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            long long below = 0; // what the last lane of the chunk before carries
#pragma unroll
            for (int c = 0; c < chunks; c++) {
                const int kept = static_cast<int>(static_cast<unsigned>(mine[c]) << unused) >> unused; // with its sign
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
    GPR_DEVICE long long digit(int i) const
    {
        long long chunk = 0;
#pragma unroll
        for (int c = 0; c < chunks; c++) chunk = i >= c * lanes && i < (c + 1) * lanes ? mine[c] : chunk;
        return shuffle_from(chunk, i & (lanes - 1));
    }
    // The sign of the digits below number i together: that of the first which is not 0.
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

// The leading bits of a magnitude, from the top of `high`: (high * 2^64 + low) * 2^exponent, and a little more if
// `inexact`.
struct Leading {
    uint64 high, low;
    int exponent;
    bool inexact;
};

// The next digit of a quotient: (rest * 2^32 + digit) / n, of which *rest remains.
GPR_DEVICE unsigned divide_digit(uint64 *rest, unsigned digit, uint64 n)
{
    unsigned quotient = 0;

    if (n >> word_bits == 0) {
        const uint64 both = *rest << word_bits | digit;
        *rest = both % n;
        return static_cast<unsigned>(both / n);
    }
#pragma unroll 1
    for (int bit = word_bits - 1; bit >= 0; bit--) {
        const bool is_beyond = *rest >> 63 != 0; // of 64 bits: beyond n all the more
        *rest = *rest << 1 | (digit >> bit & 1);
        if (is_beyond || *rest >= n) {
            *rest -= n;
            quotient |= 1u << bit;
        }
    }
    return quotient;
}

// Four digits, from the first one on that is not 0, of a number other than 0 divided by n.
template <bool DIVIDED, class AnyDigits> GPR_DEVICE Leading leading_of(const AnyDigits &digits, uint64 n)
{
    Leading leading = {0, 0, 0, false};
    uint64 rest = 0;
    int i = digits.highest + 1;

    if constexpr (DIVIDED) {
#pragma unroll 1
        while (leading.high >> word_bits == 0) {
            i--;
            leading.high = leading.high << word_bits | leading.low >> word_bits;
            leading.low = leading.low << word_bits | divide_digit(&rest, digits[i], n);
        }
    } else {
        i -= 4;
        leading.high = static_cast<uint64>(digits[i + 3]) << word_bits | digits[i + 2];
        leading.low = static_cast<uint64>(digits[i + 1]) << word_bits | digits[i];
    }
    leading.exponent = digits.unit + i * word_bits;
    leading.inexact = rest != 0 || digits.lowest < i;
    return leading;
}

// The same of a number in a thread's registers: undivided, its digits are taken by pairs.
template <bool DIVIDED, unsigned COUNT, int STEP>
GPR_DEVICE Leading leading_of(const ShortDigits<COUNT, STEP> &digits, uint64 n)
{
    using Digits = ShortDigits<COUNT, STEP>;
    if constexpr (DIVIDED) {
        return leading_of<true, Digits>(digits, n);
    } else {
        constexpr int pair_bits = 2 * word_bits;
        Leading leading = {digits.pair[0], 0, digits.unit - pair_bits, false};
        bool inexact = false;
#pragma unroll
        for (int k = 1; k < Digits::pairs; k++) {
            if (digits.pair[k] != 0) {
                leading = {digits.pair[k], digits.pair[k - 1], digits.unit + (k - 1) * pair_bits, inexact};
            }
            inexact = inexact || digits.pair[k - 1] != 0;
        }
        return leading;
    }
}

// The same of a sum that a warp has, undivided. What is below the digits that are taken is less than one of their last.
template <bool DIVIDED, int COUNT, int RADIX, int STEPS>
GPR_DEVICE Leading leading_of(const WarpDigits<COUNT, RADIX, STEPS> &digits, uint64)
{
    static_assert(!DIVIDED, "digits of one sign are divided");
    constexpr int taken = WarpDigits<COUNT, RADIX, STEPS>::taken;
    const int last = digits.highest - taken + 1;
    int below = digits.sign_below(last);
    Leading leading = {0, 0, digits.unit + last * RADIX, below != 0};

#pragma unroll
    for (int k = 0; k < taken; k++) {
        const long long digit = digits.digit(digits.highest - k); // none below the last: 0
        const long long next = digits.negative ? -digit : digit;
        const uint64 shifted = leading.low << RADIX;
        leading.high = (leading.high << RADIX | leading.low >> (64 - RADIX)) + static_cast<uint64>(next >> 63);
        leading.low = shifted + static_cast<uint64>(next);
        leading.high += leading.low < shifted ? 1 : 0;
    }
    if (below != 0 && (below < 0) != digits.negative) { // something is missing from the last one
        leading.high -= leading.low == 0 ? 1 : 0;
        leading.low--;
    }
    return leading;
}

template <class Float> constexpr uint64 infinity_bits = ((1ull << Format<Float>::exponent) - 1) << Format<Float>::fraction;

// A magnitude rounded once, to nearest, ties to even: the bits of a Float without its sign.
template <class Float> GPR_DEVICE uint64 round_leading(const Leading &leading)
{
    constexpr int fraction = Format<Float>::fraction, unit = grid_lowest<Float>, half_bits = 64;
    constexpr int last_exponent = (1 << Format<Float>::exponent) - 1;
    const int zeros = leading_zeros(leading.high);
    const uint64 bits = leading.high << zeros | leading.low >> 1 >> (half_bits - 1 - zeros); // the first one is set
    const bool inexact = leading.inexact || leading.low << zeros != 0;
    const int top = 2 * half_bits - 1 - zeros + leading.exponent;   // exponent of the first bit
    const int last = top - fraction > unit ? top - fraction : unit; // of the last bit that is kept
    const int dropped = half_bits - 1 - top + last;                 // bits

    if (top > unit + fraction + last_exponent) return infinity_bits<Float>;
    if (dropped > half_bits) return 0;
    uint64 kept = dropped == half_bits ? 0 : bits >> dropped;
    const uint64 cut = bits << (half_bits - dropped); // the first bit is the half
    const bool half = cut >> (half_bits - 1) != 0, below = cut << 1 != 0 || inexact;
    // A significand that was rounded up to the next power of two carries into the exponent, and from the largest number
    // into infinity.
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

// A number, or the mean of `count`, as a number of type Result: rounded once, integers modulo a power of two.
template <class Result, bool IS_MEAN, class AnyDigits>
GPR_DEVICE Result finish_digits(const AnyDigits &digits, uint64 count, uint64 flags)
{
    constexpr uint64 both = saw_infinity | saw_minus_infinity;

    if constexpr (is_float<Result>) {
        constexpr uint64 sign = 1ull << (8 * sizeof(Result) - 1);
        if ((flags & saw_nan) != 0 || (flags & both) == both || (IS_MEAN && count == 0)) {
            return float_of_bits<Result>(infinity_bits<Result> | 1ull << (Format<Result>::fraction - 1));
        }
        if ((flags & both) != 0) {
            return float_of_bits<Result>(infinity_bits<Result> | ((flags & saw_infinity) != 0 ? 0 : sign));
        }
        if (digits.highest < 0) return float_of_bits<Result>(count > 0 && (flags & saw_not_minus_zero) == 0 ? sign : 0);
        return float_of_bits<Result>(round_leading<Result>(leading_of<IS_MEAN>(digits, count)) |
                                     (digits.negative ? sign : 0));
    } else if constexpr (same<Result, dt_bool>) {
        return dt_bool{static_cast<unsigned char>(digits.highest >= 0)};
    } else {
        return static_cast<Result>(digits.last_bits());
    }
}

// The same of a part that is in shared memory, and whose words are carried. All lanes of the warp must call, and get the
// result.
template <class Result, bool IS_MEAN, class T> GPR_DEVICE Result finish_part(ExactPart<T> &part)
{
    const Digits<T> digits(part);
    return finish_digits<Result, IS_MEAN>(digits, part.count, part.flags);
}

// Parts as a result. All lanes of the warp must call.
template <class Result, bool IS_MEAN, class T, unsigned PARTS>
GPR_DEVICE void put_parts(Result *out, ExactPart<T> (&part)[PARTS])
{
    Result result;
    if constexpr (!is_complex<Result>) {
        result = finish_part<Result, IS_MEAN>(part[0]);
    } else {
        result.re = finish_part<Part<Result>, IS_MEAN>(part[0]);
        if constexpr (PARTS > 1) result.im = finish_part<Part<Result>, IS_MEAN>(part[1]);
        else result.im = 0;
    }
    if (threadIdx.x % warp_lanes == 0) *out = result;
}

// Sums that become results. A warp puts one that is in shared memory, a thread one that is in registers.
template <class Element, class Compute, class Number, bool SKIP_NAN, class Result, class Way>
struct Finished<Cell<fold_exact, Element, Compute, ExactSum<Number>, SKIP_NAN>, Result, Way>
    : Cell<fold_exact, Element, Compute, ExactSum<Number>, SKIP_NAN> {
    using Out = Result;
    static constexpr bool is_mean = same<Way, finish_mean>;
    static constexpr bool is_rounded = is_float<PartType<Result>> && !is_mean; // and neither divided nor wrapped

    static GPR_DEVICE void put(Out *out, ExactSum<Number> &sum) { put_parts<Result, is_mean>(out, sum.part); }
    // A sum of which round(p) gives part p, to all lanes.
    template <class Round> static GPR_DEVICE void put_rounded(Out *out, const Round &round)
    {
        Result result;
        if constexpr (!is_complex<Result>) {
            result = round(0);
        } else {
            result.re = round(0);
            if constexpr (is_complex<Number>) result.im = round(1);
            else result.im = 0;
        }
        if (threadIdx.x % warp_lanes == 0) *out = result;
    }
    template <class Short>
    static GPR_DEVICE void put(Out *out, const Short (&digits)[parts_of<Number>], uint64 count,
                               const uint64 (&flags)[parts_of<Number>])
    {
        Result result;
        if constexpr (!is_complex<Result>) {
            result = finish_digits<Result, is_mean>(digits[0], count, flags[0]);
        } else {
            result.re = finish_digits<Part<Result>, is_mean>(digits[0], count, flags[0]);
            if constexpr (is_complex<Number>) result.im = finish_digits<Part<Result>, is_mean>(digits[1], count, flags[1]);
            else result.im = 0;
        }
        *out = result;
    }
};

} // namespace gpr
