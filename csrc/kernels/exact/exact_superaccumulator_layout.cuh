// Exact sums: the fixed-point numbers that the exact kernels add to. Their format in memory is in
// shared/exact_format.h; lib/exact/exact.c adds to them on the host.
//
// A part holds the sum of real elements as an integer in units of the smallest number of their
// type, in radix 2^32. A word is 64 bits wide, so that additions need not carry. Integer addition
// is associative and commutative: the number does not depend on how elements are grouped.
#pragma once

#include "exact_format.h"
#include "finalize.cuh"
#include "float_formats.h"
#include "warp.cuh"

namespace gpr {

// ---------------------------------------------------------------- the layout --------------------

constexpr unsigned sign_bit = 0x80000000u;

template <class T>
using Bits = typename Select<sizeof(T) == 8, uint64,
                             typename Select<sizeof(T) == 4, unsigned, unsigned short>::type>::type;
template <class T>
constexpr Bits<T> sign_of = static_cast<Bits<T>>(Bits<T>(1) << (8 * sizeof(T) - 1));
// of infinities and NaN
template <class T> constexpr unsigned last_field = (1u << Format<T>::exponent) - 1;

constexpr int double_fraction = Format<dt_float64>::fraction;
GPR_DEVICE unsigned upper_bits(double x)
{
    return static_cast<unsigned>(bit_copy<uint64>(x) >> 32);
}
GPR_DEVICE unsigned lower_bits(double x) { return static_cast<unsigned>(bit_copy<uint64>(x)); }

// Every element of type T is a multiple of 2^lowest_exponent below 2^highest_exponent.
template <class T> constexpr int lowest_exponent =
    is_float<T> ? gpr_float_lowest(Format<T>::fraction, Format<T>::exponent) : 0;
template <class T> constexpr int highest_exponent =
    is_float<T> ? gpr_float_highest(Format<T>::exponent) : 8 * static_cast<int>(sizeof(T));

constexpr int word_bits = GPR_EXACT_WORD_BITS;
template <class T>
constexpr int accumulator_words = gpr_exact_words(lowest_exponent<T>, highest_exponent<T>);

// The flags of a sum.
constexpr uint64 saw_infinity = GPR_EXACT_INFINITY, saw_minus_infinity = GPR_EXACT_MINUS_INFINITY,
                 saw_nan = GPR_EXACT_NAN, saw_not_minus_zero = GPR_EXACT_NOT_MINUS_ZERO;

// In shared memory, and as kernels store it for the host (shared/exact_format.h).
template <class T> struct ExactPart {
    long long word[accumulator_words<T>];
    uint64 count; // elements
    uint64 flags;
};

template <class T, bool COMPLEX = is_complex<T>> struct PartTypeOf { using type = T; };
template <class T> struct PartTypeOf<T, true> { using type = decltype(T::re); };
template <class T> using PartType = typename PartTypeOf<T>::type;
template <class T> constexpr unsigned parts_of = is_complex<T> ? 2 : 1;

// A sum of elements of type T: complex ones have a part for each of theirs.
template <class T> struct ExactSum {
    ExactPart<PartType<T>> part[parts_of<T>];
};

} // namespace gpr
