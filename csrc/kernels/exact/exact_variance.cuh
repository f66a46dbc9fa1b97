// Variances and standard deviations rounded once, by the block that holds the sums.
// lib/exact/exact_variance.c has the same formula for the host; both divide by shared/limbs.h.
//
// Of n elements with the exact sums S of them and Q of their squares, the variance is the rational
// number
//
//     (n Q - S^2) / (n (n - ddof)),
//
// with the squares of both parts' sums for S^2 of complex elements, and ddof the double that it is.
// A warp computes the numerator N, each lane some of its words; the divisor D has few words, and
// one lane makes it. Then N is shifted until N / D has 127 or 128 bits before the point, and
// divided (shared/limbs.h): four words of 32 bits. What the shift and the division leave is nothing
// or something, which is all that rounding needs. A root is that of the quotient's integer, with an
// even exponent: floor(sqrt(x)) is floor(sqrt(floor(x))).
//
// All of this is for the few rows whose results the first bits of both sums do not determine
// (exact_interval.cuh).
#pragma once

#include "exact_interval.cuh"
#include "exact_products.cuh"
#include "limbs.h"

namespace gpr {

// In shared memory, and as kernels store it for the host: the sums of the elements' real parts,
// then that of all squares.
template <class T> struct ExactMoments {
    ExactPart<PartType<T>> sum[parts_of<T>];
    ExactPart<ProductOf<PartType<T>>> squares;
};

struct fold_exact_moments {
};

// ---------------------------------------------------------------- whole numbers -----------------

// n, and n - ddof: of a double without its sign the bits lie between 2^-1074 and 2^1024, of n below
// 2^64.
constexpr int number_bits = 64, smallest_double = lowest_exponent<dt_float64>;
constexpr int freedom_words = (number_bits - smallest_double) / word_bits + 3;
constexpr int divisor_words = freedom_words + number_bits / word_bits;
constexpr int quotient_words = GPR_QUOTIENT_LIMBS;
static_assert(freedom_words * word_bits > highest_exponent<dt_float64> + number_bits,
              "large ones have room too");

// S is shifted left by so many bits that its square's words are the squares' words.
template <class T>
constexpr int square_gap = 2 * lowest_exponent<T> - lowest_exponent<ProductOf<T>>;
template <class T> constexpr int sum_shift = square_gap<T> % word_bits / 2;
template <class T> constexpr int square_offset = square_gap<T> / word_bits; // words

// Shared memory of a warp for the numbers of a variance's long division.
template <class T> struct VarianceWork {
    static constexpr int sum_words = accumulator_words<T> + 1,
                         words = accumulator_words<ProductOf<T>> + number_bits / word_bits + 1;
    static_assert(square_gap<T> >= 0 && square_gap<T> % 2 == 0, "a shift by half of it");
    long long column[words > divisor_words ? words : divisor_words]; // sums of words, not carried
    unsigned sum[sum_words];
    unsigned numerator[words];
    unsigned divisor[divisor_words];
    unsigned rest[divisor_words + quotient_words];
};

// Adds sign * bits * 2^place. One lane calls.
GPR_CALLED void add_to_columns(long long *column, uint64 bits, int place, int sign)
{
    const int shift = place % word_bits;
    const uint64 low = bits << shift, high = shift > 0 ? bits >> (number_bits - shift) : 0;
    column += place / word_bits;
    column[0] += sign * static_cast<long long>(low & 0xffffffffu);
    column[1] += sign * static_cast<long long>(low >> word_bits);
    column[2] += sign * static_cast<long long>(high);
}

// ---------------------------------------------------------------- the numerator -----------------

// The part of column k that is the square of the words [0, count) of a number: lower halves of
// products whose words are k together, and upper halves of those below.
GPR_CALLED long long column_of_square(const unsigned *word, int count, int k)
{
    long long lower = 0, upper = 0;
#pragma unroll 1
    for (int w = k - count + 1 > 0 ? k - count + 1 : 0; w <= k && w < count; w++) {
        lower += static_cast<long long>(static_cast<uint64>(word[w]) * word[k - w] & 0xffffffffu);
    }
#pragma unroll 1
    for (int w = k - count > 0 ? k - count : 0; w <= k - 1 && w < count; w++) {
        upper +=
            static_cast<long long>(static_cast<uint64>(word[w]) * word[k - 1 - w] >> word_bits);
    }
    return lower + upper;
}

// Makes work.numerator n Q - S^2, in units of squares. Returns how many words of it are in use. All
// lanes of the warp must call, and get it.
template <class T, unsigned PARTS>
GPR_DEVICE int make_numerator(VarianceWork<T> &work, ExactPart<T> (&sum)[PARTS],
                              ExactPart<ProductOf<T>> &squares)
{
    constexpr int words = VarianceWork<T>::words, sum_words = VarianceWork<T>::sum_words,
                  shift = sum_shift<T>;
    const int lane = static_cast<int>(threadIdx.x % warp_lanes);
    const uint64 n = sum[0].count;
    const Limbs<ProductOf<T>> of_squares(squares);

    // A word of n Q: lower halves of its own, upper ones of the word below.
    const auto scaled = [&](int i, unsigned factor) {
        return static_cast<uint64>(of_squares[i]) * factor;
    };
    const unsigned low = static_cast<unsigned>(n), high = static_cast<unsigned>(n >> word_bits);
#pragma unroll 1
    for (int k = lane; k < words; k += warp_lanes) {
        work.column[k] = static_cast<long long>(
            (scaled(k, low) & 0xffffffffu) + (scaled(k - 1, low) >> word_bits) +
            (scaled(k - 1, high) & 0xffffffffu) + (scaled(k - 2, high) >> word_bits));
    }
#pragma unroll 1
    for (unsigned p = 0; p < PARTS; p++) {
        const Limbs<T> of_sum(sum[p]);
#pragma unroll 1
        for (int i = lane; i < sum_words; i += warp_lanes) {
            work.sum[i] =
                shift == 0 ? of_sum[i] : of_sum[i] << shift | of_sum[i - 1] >> (word_bits - shift);
        }
        __syncwarp(); // the sum is there
        const int count = bounds_where<sum_words>([&](int i) { return work.sum[i] != 0; }).last + 1;
#pragma unroll 1
        for (int k = lane; k < words - square_offset<T>; k += warp_lanes) {
            work.column[k + square_offset<T>] -= column_of_square(work.sum, count, k);
        }
        __syncwarp(); // the sum has been read, and columns of all lanes are there
    }
    // never below zero (Cauchy-Schwarz)
    if (lane == 0) (void)gpr_limbs_carry(work.column, words, work.numerator);
    __syncwarp(); // the numerator is there
    return bounds_where<words>([&](int i) { return work.numerator[i] != 0; }).last + 1;
}

// ---------------------------------------------------------------- the divisor -------------------

// An integer of some words, in units of 2^exponent.
struct Natural {
    int words, exponent;
};

// Makes work.divisor n (n - ddof), of a finite ddof, if n is above that; words 0 if not. Where n is
// 0, so that nothing will be divided, it stands for 1. One lane calls.
template <class T> GPR_DEVICE Natural make_divisor(VarianceWork<T> &work, uint64 n, double ddof)
{
    constexpr int fraction = Format<dt_float64>::fraction;
    const uint64 bits = bit_copy<uint64>(ddof);
    const int field = static_cast<int>(bits >> fraction) & static_cast<int>(last_field<dt_float64>);
    uint64 less = (bits & ((1ull << fraction) - 1)) | (field != 0 ? 1ull << fraction : 0);
    int exponent = smallest_double + (field != 0 ? field - 1 : 0), used;

    if (less == 0) exponent = 0;
#pragma unroll 1
    while (less != 0 && less % 2 == 0) {
        less /= 2;
        exponent++;
    }
    const int lowest = exponent < 0 ? exponent : 0;
#pragma unroll 1
    for (int i = 0; i < freedom_words; i++) work.column[i] = 0;
    add_to_columns(work.column, n, -lowest, 1);
    add_to_columns(work.column, less, exponent - lowest, bits >> 63 != 0 ? 1 : -1);
    if (gpr_limbs_carry(work.column, freedom_words, work.rest) != 0) return Natural{0, lowest};
    used = gpr_limbs_used(work.rest, freedom_words);
    if (used == 0) return Natural{0, lowest};
    if (n == 0) n = 1;
#pragma unroll 1
    for (int i = 0; i < used + 2; i++) work.column[i] = 0;
#pragma unroll 1
    for (int i = 0; i < used; i++) {
        const uint64 lower = static_cast<uint64>(work.rest[i]) * static_cast<unsigned>(n);
        const uint64 upper =
            static_cast<uint64>(work.rest[i]) * static_cast<unsigned>(n >> word_bits);
        work.column[i] += static_cast<long long>(lower & 0xffffffffu);
        work.column[i + 1] += static_cast<long long>((lower >> word_bits) + (upper & 0xffffffffu));
        work.column[i + 2] += static_cast<long long>(upper >> word_bits);
    }
    (void)gpr_limbs_carry(work.column, used + 2, work.divisor);
    return Natural{gpr_limbs_used(work.divisor, used + 2), lowest};
}

// Shifts the divisor left until its highest bit is a word's, of two words at least. One lane calls.
GPR_DEVICE Natural normalize(unsigned *word, Natural divisor)
{
#pragma unroll 1
    while (divisor.words < GPR_LEAST_DIVISOR_LIMBS) {
#pragma unroll 1
        for (int i = divisor.words; i > 0; i--) word[i] = word[i - 1];
        word[0] = 0;
        divisor.words++;
        divisor.exponent -= word_bits;
    }
    const int shift = leading_zeros(word[divisor.words - 1]);
    (void)gpr_limbs_shift_left(word, divisor.words, shift);
    divisor.exponent -= shift;
    return divisor;
}

// ---------------------------------------------------------------- the quotient ------------------

// numerator / divisor, neither 0: 127 or 128 bits and an even exponent. All lanes of the warp must
// call; the first one gets it.
template <class T>
GPR_DEVICE Leading divide(VarianceWork<T> &work, int numerator_words, Natural divisor)
{
    constexpr int quotient_bits = quotient_words * word_bits;
    const int lane = static_cast<int>(threadIdx.x % warp_lanes);
    const int length =
        numerator_words * word_bits - leading_zeros(work.numerator[numerator_words - 1]);
    const int unit = lowest_exponent<ProductOf<T>>;
    // of the numerator, to the left
    int shift = divisor.words * word_bits + quotient_bits - 1 - length;
    unsigned left = 0;
    Leading quotient = {0, 0, 0, false};

    if ((unit - shift - divisor.exponent) % 2 != 0) shift--;
    quotient.exponent = unit - shift - divisor.exponent;
    // 32 bits of the numerator from bit `at` on, which may be below its lowest.
    const auto bits_at = [&](int at) -> unsigned {
        const int word = at >= 0 ? at / word_bits : -((word_bits - 1 - at) / word_bits),
                  bit = at - word * word_bits;
        const unsigned low = word >= 0 && word < numerator_words ? work.numerator[word] : 0;
        const unsigned high =
            word + 1 >= 0 && word + 1 < numerator_words ? work.numerator[word + 1] : 0;
        return bit == 0 ? low : low >> bit | high << (word_bits - bit);
    };
#pragma unroll 1
    for (int i = lane; i < divisor.words + quotient_words; i += warp_lanes)
        work.rest[i] = bits_at(i * word_bits - shift);
#pragma unroll 1
    // bits that were shifted out
    for (int i = lane; i < numerator_words && i * word_bits < -shift; i += warp_lanes) {
        const int out = -shift - i * word_bits;
        left |= out < word_bits ? work.numerator[i] & ((1u << out) - 1) : work.numerator[i];
    }
    left = __any_sync(all_lanes, left != 0) ? 1 : 0; // and the shifted numerator is there
    __syncwarp();
    if (lane == 0) {
        const gpr_quotient found =
            gpr_limbs_divide(work.rest, work.divisor, divisor.words, quotient_words);
        quotient.high = found.high;
        quotient.low = found.low;
        quotient.inexact = left != 0 || found.inexact != 0;
    }
    return quotient;
}

// ---------------------------------------------------------------- results -----------------------

// The bits of a variance, or its root, as a Float. The sums are in shared memory, and their words
// are carried. All lanes of the warp must call; the first one gets it. `work` is the warp's, and
// may have been in use before.
template <class Float, bool IS_ROOT, class T, unsigned PARTS>
GPR_DEVICE uint64 finalize_variance_bits(ExactPart<T> (&sum)[PARTS],
                                         ExactPart<ProductOf<T>> &squares, VarianceWork<T> &work,
                                         double ddof)
{
    constexpr uint64 infinity = infinity_bits<Float>,
                     nan = infinity | 1ull << (Format<Float>::fraction - 1);
    constexpr uint64 saw_special = saw_infinity | saw_minus_infinity | saw_nan;
    const uint64 n = sum[0].count;
    const bool is_infinite = (bit_copy<uint64>(ddof) & ~(1ull << 63)) == infinity_bits<dt_float64>;
    Natural divisor = {0, 0};

    if ((squares.flags & saw_special) != 0) return nan;
    const int words = make_numerator(work, sum, squares);
    if (threadIdx.x % warp_lanes == 0 && !is_infinite) {
        divisor = make_divisor(work, n, ddof);
        if (divisor.words > 0) divisor = normalize(work.divisor, divisor);
    }
    __syncwarp(); // the divisor is there, and what it was made in is free
    divisor.words = __shfl_sync(all_lanes, divisor.words, 0);
    divisor.exponent = __shfl_sync(all_lanes, divisor.exponent, 0);
    const bool is_free = is_infinite ? ddof < 0 : divisor.words > 0;
    if (!is_free) return words == 0 ? nan : infinity;
    if (words == 0 || is_infinite) return 0;
    const Leading quotient = divide(work, words, divisor);
    if (threadIdx.x % warp_lanes != 0) return 0;
    return round_leading<Float>(IS_ROOT ? root_of(quotient) : quotient);
}

// A part's first bits. All lanes of the warp must call; the first one gets them.
template <class T> GPR_DEVICE bool load_leading_bits(Interval *interval, const ExactPart<T> &part)
{
    const Bounds used =
        bounds_where<accumulator_words<T>>([&](int i) { return part.word[i] != 0; });
    return threadIdx.x % warp_lanes == 0 &&
           load_leading_bits<word_bits>(interval, part.word, used, lowest_exponent<T>);
}

// Sums that become variances, which a warp stores from shared memory, or a thread from their first
// bits.
template <class Element, class Compute, class Number, bool SKIP_NAN, class Result, class Way>
struct Finished<KernelTraits<fold_exact_moments, Element, Compute, ExactMoments<Number>, SKIP_NAN>,
                Result, Way>
    : KernelTraits<fold_exact_moments, Element, Compute, ExactMoments<Number>, SKIP_NAN> {
    using Out = Result;
    using Intervals = MomentIntervals<parts_of<Number>>;
    static constexpr bool is_root = same<Way, finish_deviation>;

    // Says whether it has stored the result, of n elements.
    static GPR_DEVICE bool store_if_certain(Out *out, const Intervals &intervals, uint64 n,
                                            FinalizeParams params)
    {
        const ZivResult result =
            variance_from_intervals<Result, is_root>(intervals, n, params.ddof);
        if (result.is_certain) *out = float_of_bits<Result>(result.bits);
        return result.is_certain;
    }
    static GPR_DEVICE void store(Out *out, ExactMoments<Number> &moments,
                                 VarianceWork<PartType<Number>> &work, FinalizeParams params)
    {
        Intervals intervals;
        bool is_stored = load_leading_bits(&intervals.squares, moments.squares);
#pragma unroll
        for (unsigned p = 0; p < parts_of<Number>; p++)
            is_stored = load_leading_bits(&intervals.sum[p], moments.sum[p]) && is_stored;
        is_stored = is_stored && moments.squares.flags == 0 &&
                    store_if_certain(out, intervals, moments.sum[0].count, params);
        if (__any_sync(all_lanes, is_stored)) return;
        const uint64 bits = finalize_variance_bits<Result, is_root>(moments.sum, moments.squares,
                                                                    work, params.ddof);
        if (threadIdx.x % warp_lanes == 0) *out = float_of_bits<Result>(bits);
    }
};

} // namespace gpr
