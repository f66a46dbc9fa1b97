// Order of numbers: the smaller and the larger of two, where NaN wins; the extreme values of a
// type; and floats as integers that sort alike, for instructions that compare integers only.
#pragma once

#include "conversions.cuh"
#include "folds.h"

namespace gpr {

// Extreme values of an element type, as a number of type Acc: infinities for floats.
template <class T, class Acc> GPR_DEVICE Acc largest_of()
{
    if constexpr (is_complex<Acc>)
        return Acc{largest_of<T, Part<Acc>>(), largest_of<T, Part<Acc>>()};
    else if constexpr (same<Acc, float>) return bit_copy<float>(0x7f800000u);
    else if constexpr (same<Acc, double>) return bit_copy<double>(0x7ff0000000000000ull);
    else if constexpr (same<T, dt_bool>) return Acc(1);
    else return static_cast<Acc>(~0ull >> (64 - 8 * sizeof(T) + (is_signed<T> ? 1 : 0)));
}

template <class T, class Acc> GPR_DEVICE Acc smallest_of()
{
    if constexpr (is_complex<Acc>)
        return Acc{smallest_of<T, Part<Acc>>(), smallest_of<T, Part<Acc>>()};
    else if constexpr (is_float<Acc>) return -largest_of<T, Acc>();
    else if constexpr (is_signed<T>) return static_cast<Acc>(-largest_of<T, Acc>() - 1);
    else return Acc(0);
}

// Whether a is less than b: complex numbers compare by their real parts, and by the imaginary parts
// where those are equal. A number with a NaN part is not less than any number, and no number is
// less than it.
template <class T> GPR_DEVICE bool is_less(T a, T b)
{
    if constexpr (is_complex<T>)
        return !is_nan(a) && !is_nan(b) && GPR_COMPLEX_LESS(a.re, a.im, b.re, b.im);
    else return GPR_LESS(a, b);
}
template <class T> GPR_DEVICE bool is_greater(T a, T b) { return is_less(b, a); }

// Return the smaller and the larger of two numbers; NaN where either is NaN, as np.minimum does.
template <class T> GPR_DEVICE T smaller_of(T a, T b) { return GPR_EXTREME(a, b, is_less, is_nan); }
template <class T> GPR_DEVICE T larger_of(T a, T b)
{
    return GPR_EXTREME(a, b, is_greater, is_nan);
}

// The same of those of the two that are not NaN, as np.fmin does; NaN where both are.
template <class T> GPR_DEVICE T smaller_number(T a, T b)
{
    if (is_nan(a)) return b;
    return is_nan(b) ? a : smaller_of(a, b);
}
template <class T> GPR_DEVICE T larger_number(T a, T b)
{
    if (is_nan(a)) return b;
    return is_nan(b) ? a : larger_of(a, b);
}

#if defined(__CUDA_ARCH__)
// Instructions: one for float, a few for double, where comparisons and choices are many.
GPR_DEVICE float smaller_number(float a, float b)
{
    float result;
    asm("min.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
GPR_DEVICE float larger_number(float a, float b)
{
    float result;
    asm("max.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
GPR_DEVICE double smaller_number(double a, double b)
{
    double result;
    asm("min.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));
    return result;
}
GPR_DEVICE double larger_number(double a, double b)
{
    double result;
    asm("max.f64 %0, %1, %2;" : "=d"(result) : "d"(a), "d"(b));
    return result;
}
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
GPR_DEVICE float smaller_of(float a, float b)
{
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

GPR_DEVICE float larger_of(float a, float b)
{
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
#endif

// Returns a float's bits as an unsigned integer that sorts as the float does. Bits of negative
// floats sort in reverse, so they are inverted; those of positive floats move above them.
template <class Float> GPR_DEVICE Word<Float> to_ordered(Float x)
{
    constexpr Word<Float> sign = Word<Float>(1) << (8 * sizeof(Float) - 1);
    const Word<Float> bits = bit_copy<Word<Float>>(x);
    return (bits & sign) != 0 ? ~bits : bits | sign;
}

template <class Float> GPR_DEVICE Float from_ordered(Word<Float> key)
{
    constexpr Word<Float> sign = Word<Float>(1) << (8 * sizeof(Float) - 1);
    return bit_copy<Float>((key & sign) != 0 ? key & ~sign : ~key);
}

} // namespace gpr
