// Conversions between element types: rounding to float16 and bfloat16, NumPy's astype for one
// element, and when a number counts as true or as NaN.
//
// Conversions are NumPy's on x86-64, as in the host's rules, so that a kernel returns the same
// result on every device: integers wrap, floats are truncated towards zero, 16-bit floats round to
// nearest even, and a float is true unless it is zero (NaN is true).
#pragma once

#include "types.cuh"

namespace gpr {

// ---------------------------------------------------------------- 16-bit floats -----------------

// A binary float of EXPONENT and FRACTION bits nearest to `value`, ties to even; NaN becomes the
// quiet one.
template <int EXPONENT, int FRACTION> GPR_DEVICE unsigned short round_to_16(double value)
{
    constexpr int bias = (1 << (EXPONENT - 1)) - 1;
    constexpr unsigned infinity = ((1u << EXPONENT) - 1) << FRACTION;
    const uint64 bits = bit_copy<uint64>(value);
    const unsigned sign = static_cast<unsigned>(bits >> 63) << 15;
    const uint64 magnitude = bits & ~(1ull << 63);
    // Of the result; under 1 it is subnormal.
    const int exponent = static_cast<int>(magnitude >> 52) - 1023 + bias;
    unsigned result;

    if (magnitude > 0x7ffull << 52) {
        result = infinity | 1u << (FRACTION - 1);
    } else if (exponent >= (1 << EXPONENT) - 1) {
        result = infinity;
    } else if (exponent < -FRACTION) {
        result = 0; // less than half of the smallest subnormal
    } else {
        // A carry out of the fraction increments the exponent, which is the correct result,
        // infinity included.
        const uint64 fraction = (magnitude & ((1ull << 52) - 1)) | 1ull << 52;
        const int shift = 52 - FRACTION + (exponent < 1 ? 1 - exponent : 0);
        const uint64 rounded =
            (fraction + (1ull << (shift - 1)) - 1 + (fraction >> shift & 1)) >> shift;
        result = static_cast<unsigned>(rounded) +
                 (exponent < 1 ? 0u : static_cast<unsigned>(exponent - 1) << FRACTION);
    }
    return static_cast<unsigned short>(sign | result);
}

GPR_DEVICE float half_to_float(unsigned short bits)
{
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const unsigned sign = (bits & 0x8000u) << 16, magnitude = (bits & 0x7fffu) << 13;
    // Scaling by 2^112 moves the exponent's bias, and makes subnormals normal.
    const unsigned scaled = bit_copy<unsigned>(bit_copy<float>(magnitude) * 0x1p112f);
    return bit_copy<float>(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : scaled));
#endif
}

GPR_DEVICE unsigned short float_to_half(float value)
{
#if defined(__CUDA_ARCH__)
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return round_to_16<5, 10>(value); // the double is exact: one rounding
#endif
}

GPR_DEVICE unsigned short float_to_bfloat(float value)
{
    const unsigned bits = bit_copy<unsigned>(value);
    if (value != value) return static_cast<unsigned short>(bits >> 16 | 0x40u);
    return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// ---------------------------------------------------------------- conversions -------------------

// Returns the number that an element represents, as a built-in type.
template <class T> GPR_DEVICE T value_of(T x) { return x; }
GPR_DEVICE bool value_of(dt_bool x) { return x.byte != 0; }
GPR_DEVICE float value_of(dt_float16 x) { return half_to_float(x.bits); }
GPR_DEVICE float value_of(dt_bfloat16 x)
{
    return bit_copy<float>(static_cast<unsigned>(x.bits) << 16);
}

// A part of a complex number.
template <class Complex> struct PartOf { using type = float; };
template <> struct PartOf<dt_complex128> { using type = double; };
template <class Complex> using Part = typename PartOf<Complex>::type;

// Truncates a float towards zero. A value out of range gives what x86-64's conversion instruction
// gives: the smallest integer.
template <class Float> GPR_DEVICE int truncate_to_int32(Float x)
{
    return x > Float(-2147483649.0) && x < Float(2147483648.0) ? static_cast<int>(x)
                                                               : -2147483647 - 1;
}

template <class Float> GPR_DEVICE long long truncate_to_int64(Float x)
{
    return x >= Float(-0x1p63) && x < Float(0x1p63) ? static_cast<long long>(x)
                                                    : -0x7fffffffffffffffll - 1;
}

template <class Float> GPR_DEVICE uint64 truncate_to_uint64(Float x)
{
    return x >= Float(0x1p63) && x < Float(0x1p64) ? static_cast<uint64>(x)
                                                   : static_cast<uint64>(truncate_to_int64(x));
}

// Whether a number is not zero, and whether it is NaN; for integers x != x is never true.
template <class Number> GPR_DEVICE bool is_true(Number x)
{
    if constexpr (is_complex<Number>) return x.re != 0 || x.im != 0;
    else return x != 0;
}

template <class Number> GPR_DEVICE bool is_nan(Number x)
{
    if constexpr (is_complex<Number>) return x.re != x.re || x.im != x.im;
    else return x != x;
}

// Converts a number (of a built-in type, or complex) to an element of type To. A complex number's
// real part becomes a real element.
template <class To, class Number> GPR_DEVICE To element_of(Number x)
{
    if constexpr (is_complex<Number> && is_complex<To>) {
        return To{static_cast<Part<To>>(x.re), static_cast<Part<To>>(x.im)};
    } else if constexpr (is_complex<Number>) {
        return same<To, dt_bool> ? element_of<To>(is_true(x)) : element_of<To>(x.re);
    } else if constexpr (is_complex<To>) {
        return To{static_cast<Part<To>>(x), 0};
    } else if constexpr (same<To, dt_bool>) {
        return dt_bool{static_cast<unsigned char>(x != 0)};
    } else if constexpr (same<To, dt_float16>) {
        if constexpr (same<Number, float>) return dt_float16{float_to_half(x)};
        else return dt_float16{round_to_16<5, 10>(static_cast<double>(x))};
    } else if constexpr (same<To, dt_bfloat16>) {
        if constexpr (same<Number, float>) return dt_bfloat16{float_to_bfloat(x)};
        else return dt_bfloat16{round_to_16<8, 7>(static_cast<double>(x))};
    } else if constexpr (is_integer<To> && is_float<Number>) {
        if constexpr (same<To, dt_uint64>) return truncate_to_uint64(x);
        else if constexpr (sizeof(To) == 8 || same<To, dt_uint32>)
            return static_cast<To>(truncate_to_int64(x));
        else return static_cast<To>(truncate_to_int32(x));
    } else {
        return static_cast<To>(x);
    }
}

// NumPy's astype for one element.
template <class To, class From> GPR_DEVICE To convert(From x)
{
    if constexpr (same<To, From>) return x;
    else return element_of<To>(value_of(x));
}

} // namespace gpr
