// Exact sums: the fixed-point numbers that the exact kernel adds to, and how they are rounded. lib/exact.c has the same
// for the host, and the same layout.
//
// A part holds the sum of real elements as an integer in units of the smallest number of their type, in radix 2^32. A
// word is 64 bits wide, so that additions need not carry. Integer addition knows no order: however elements are
// grouped, the number is the same.
#pragma once

#include "results.cuh"

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
// Loops over digits stay loops: one is passed once for a row, and unrolled they would take longer to compile than the
// rest of the program.

// The magnitude of a number, or of a quotient: digits * 2^exponent, and a little more if `inexact`.
template <int DIGITS> struct Magnitude {
    unsigned digit[DIGITS];
    int exponent;
    bool inexact, negative;

    GPR_DEVICE int bit_length() const
    {
#pragma unroll 1
        for (int i = DIGITS - 1; i >= 0; i--) {
            if (digit[i] != 0) return (i + 1) * word_bits - leading_zeros(digit[i]);
        }
        return 0;
    }
    // 64 bits from bit `first` up.
    GPR_DEVICE uint64 bits_from(int first) const
    {
        const int i = first / word_bits, shift = first % word_bits;
        uint64 d[3] = {0, 0, 0};
#pragma unroll 1
        for (int k = 0; k < 3; k++) {
            if (i + k < DIGITS) d[k] = digit[i + k];
        }
        return (d[0] | d[1] << word_bits) >> shift | (shift > 0 ? d[2] << (2 * word_bits - shift) : 0);
    }
    GPR_DEVICE bool any_below(int end) const
    {
        int i = 0;
        for (; (i + 1) * word_bits <= end; i++) {
            if (digit[i] != 0) return true;
        }
        return end % word_bits != 0 && digit[i] << (word_bits - end % word_bits) != 0;
    }
};

constexpr int quotient_digits = 4; // below a sum's, so that its quotient has 64 significant bits at least

template <class T> GPR_DEVICE Magnitude<grid_words<T> + quotient_digits> magnitude_of(const ExactPart<T> &part)
{
    Magnitude<grid_words<T> + quotient_digits> m;
    long long carry = 0;
    uint64 borrow = 0;

#pragma unroll 1
    for (int i = 0; i < quotient_digits; i++) m.digit[i] = 0;
#pragma unroll 1
    for (int i = 0; i < grid_words<T>; i++) {
        const long long word = part.word[i] + carry;
        m.digit[quotient_digits + i] = static_cast<unsigned>(word);
        carry = word >> word_bits;
    }
    m.exponent = grid_lowest<T> - quotient_digits * word_bits;
    m.inexact = false;
    m.negative = carry < 0;
    borrow = 1;
#pragma unroll 1
    for (int i = quotient_digits; m.negative && i < quotient_digits + grid_words<T>; i++) {
        borrow += ~m.digit[i];
        m.digit[i] = static_cast<unsigned>(borrow);
        borrow >>= word_bits;
    }
    return m;
}

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

template <int DIGITS> GPR_DEVICE void divide(Magnitude<DIGITS> &m, uint64 n)
{
    uint64 rest = 0;

#pragma unroll 1
    for (int i = DIGITS - 1; i >= 0; i--) m.digit[i] = divide_digit(&rest, m.digit[i], n);
    m.inexact = rest != 0;
}

template <class Float> constexpr uint64 infinity_bits = ((1ull << Format<Float>::exponent) - 1) << Format<Float>::fraction;

// The magnitude rounded once, to nearest, ties to even: the bits of a Float without its sign.
template <class Float, int DIGITS> GPR_DEVICE uint64 round_magnitude(const Magnitude<DIGITS> &m)
{
    constexpr int fraction = Format<Float>::fraction, unit = grid_lowest<Float>;
    constexpr int last_exponent = (1 << Format<Float>::exponent) - 1;
    const int length = m.bit_length();
    const int top = length - 1 + m.exponent;                       // exponent of the leading bit
    const int last = top - fraction > unit ? top - fraction : unit; // of the last bit that is kept
    const int dropped = last - m.exponent;
    uint64 kept = 0;

    if (length == 0) return 0;
    if (top > unit + fraction + last_exponent) return infinity_bits<Float>;
    if (dropped <= 0) {
        kept = m.bits_from(0) << -dropped;
    } else if (dropped <= length) {
        const bool half = (m.bits_from(dropped - 1) & 1) != 0;
        kept = dropped < length ? m.bits_from(dropped) & ((1ull << (fraction + 1)) - 1) : 0;
        if (half && (m.inexact || m.any_below(dropped - 1) || (kept & 1) != 0)) kept++;
    }
    // A significand that was rounded up to the next power of two carries into the exponent, and from the largest number
    // into infinity.
    kept += static_cast<uint64>(last - unit) << fraction;
    return kept < infinity_bits<Float> ? kept : infinity_bits<Float>;
}

template <class Float> GPR_DEVICE Float float_of_bits(uint64 bits)
{
    if constexpr (sizeof(Float) == 2) return bit_copy<Float>(static_cast<unsigned short>(bits));
    else if constexpr (sizeof(Float) == 4) return bit_copy<Float>(static_cast<unsigned>(bits));
    else return bit_copy<Float>(bits);
}

// A part, or its mean, as a number of type Result: rounded once, integers modulo a power of two.
template <class Result, class T> GPR_DEVICE Result finish_part(const ExactPart<T> &part, bool is_mean)
{
    constexpr uint64 both = saw_infinity | saw_minus_infinity;
    auto m = magnitude_of(part);

    if constexpr (is_float<Result>) {
        constexpr uint64 sign = 1ull << (8 * sizeof(Result) - 1);
        if ((part.flags & saw_nan) != 0 || (part.flags & both) == both || (is_mean && part.count == 0)) {
            return float_of_bits<Result>(infinity_bits<Result> | 1ull << (Format<Result>::fraction - 1));
        }
        if ((part.flags & both) != 0) {
            return float_of_bits<Result>(infinity_bits<Result> | ((part.flags & saw_infinity) != 0 ? 0 : sign));
        }
        if (m.bit_length() == 0) {
            return float_of_bits<Result>(part.count > 0 && (part.flags & saw_not_minus_zero) == 0 ? sign : 0);
        }
        if (is_mean) divide(m, part.count);
        return float_of_bits<Result>(round_magnitude<Result>(m) | (m.negative ? sign : 0));
    } else {
        const uint64 bits = m.bits_from(quotient_digits * word_bits);
        return static_cast<Result>(m.negative ? 0 - bits : bits);
    }
}

// Sums that become results.
template <class Element, class Compute, class Number, bool SKIP_NAN, class Result, class Way>
struct Finished<Cell<fold_exact, Element, Compute, ExactSum<Number>, SKIP_NAN>, Result, Way> {
    using Acc = ExactSum<Number>;
    using Out = Result;

    static GPR_DEVICE void put(Out *out, const Acc &sum, uint64, Ending)
    {
        constexpr bool is_mean = same<Way, finish_mean>;
        if constexpr (!is_complex<Result>) {
            *out = finish_part<Result>(sum.part[0], is_mean);
        } else {
            out->re = finish_part<Part<Result>>(sum.part[0], is_mean);
            if constexpr (is_complex<Number>) out->im = finish_part<Part<Result>>(sum.part[1], is_mean);
            else out->im = 0;
        }
    }
};

} // namespace gpr
