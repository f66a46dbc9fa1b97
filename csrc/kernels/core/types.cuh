// Element types on the device: what an element is in memory (dt_<name>), which kind of number its
// type holds, and its bytes as another type.
//
// Sizes, kinds and formats of dtypes come from the registry, which the library reads too. Inline
// PTX occurs in files of this folder only; each use has an equivalent for other compilers than
// CUDA's.
#pragma once

#include "dtype_kinds.h"

#define GPR_DEVICE __device__ __forceinline__
// A function that is not inlined: rarely executed code that needs many registers, kept out of the
// loop that calls it.
#define GPR_CALLED __device__ __noinline__

// The compute capability that the program is compiled for, times 100. Other compilers get it as
// -DGPR_ARCH=900.
#if defined(__CUDA_ARCH__)
#define GPR_ARCH __CUDA_ARCH__
#endif

namespace gpr {

using uint64 = unsigned long long;

// ---------------------------------------------------------------- elements ----------------------

struct dt_bool { unsigned char byte; };       // any byte but 0 is true
struct dt_float16 { unsigned short bits; };   // IEEE binary16
struct dt_bfloat16 { unsigned short bits; };  // upper half of a float32
struct alignas(8) dt_complex64 { float re, im; };
struct dt_complex128 { double re, im; };
using dt_int8 = signed char;
using dt_int16 = short;
using dt_int32 = int;
using dt_int64 = long long;
using dt_uint8 = unsigned char;
using dt_uint16 = unsigned short;
using dt_uint32 = unsigned;
using dt_uint64 = unsigned long long;
using dt_float32 = float;
using dt_float64 = double;

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;

template <bool CONDITION, class Then, class Else> struct Select { using type = Then; };
template <class Then, class Else> struct Select<false, Then, Else> { using type = Else; };

// A dtype's row of the registry. `fraction` and `exponent` are a float's stored bits of the
// significand, and bits of the exponent.
template <class T> struct Format { static constexpr int kind = -1, fraction = 0, exponent = 0; };
#define GPR_DTYPE(ID, name, bytes, of_kind, c_type, fraction_bits, exponent_bits) \
    template <> struct Format<dt_##name> { \
        static constexpr int kind = of_kind, fraction = fraction_bits, exponent = exponent_bits; \
    }; \
    static_assert(sizeof(dt_##name) == bytes, "dtypes.def has other bytes of dt_" #name);
#include "dtypes.def"
#undef GPR_DTYPE

template <class T> constexpr bool is_float = Format<T>::kind == GPR_KIND_FLOAT;
template <class T> constexpr bool is_signed = Format<T>::kind == GPR_KIND_SIGNED;
template <class T> constexpr bool is_unsigned = Format<T>::kind == GPR_KIND_UNSIGNED;
template <class T> constexpr bool is_integer = is_signed<T> || is_unsigned<T>;
template <class T> constexpr bool is_complex = Format<T>::kind == GPR_KIND_COMPLEX;

// ---------------------------------------------------------------- bits --------------------------

// Returns the same bytes as another type.
template <class To, class From> GPR_DEVICE To bit_copy(const From &from)
{
    static_assert(sizeof(To) == sizeof(From), "bit_copy keeps the size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

template <unsigned BYTES> struct WordOf;
template <> struct WordOf<4> { using type = unsigned; };
template <> struct WordOf<8> { using type = uint64; };
// The unsigned integer of T's size.
template <class T> using Word = typename WordOf<sizeof(T)>::type;

// Returns the number of zero bits above the highest set bit. `word` is not zero.
GPR_DEVICE int leading_zeros(unsigned word)
{
#if defined(__CUDA_ARCH__)
    return __clz(static_cast<int>(word));
#else
    return __builtin_clz(word);
#endif
}
GPR_DEVICE int leading_zeros(uint64 word)
{
#if defined(__CUDA_ARCH__)
    return __clzll(static_cast<long long>(word));
#else
    return __builtin_clzll(word);
#endif
}

// Keeps a pointer in its register. Without this the compiler, when short of registers, recomputes
// the pointer in every iteration of a loop.
template <class T> GPR_DEVICE void keep(const T *&pointer)
{
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+l"(pointer));
#endif
}

// Returns the number and hides where it is from: the compiler then computes again what depends on
// it, and does not keep that in registers until it is needed.
GPR_DEVICE unsigned anew(unsigned number)
{
    asm volatile("" : "+r"(number));
    return number;
}
GPR_DEVICE uint64 anew(uint64 number)
{
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+l"(number));
#endif
    return number;
}

// ---------------------------------------------------------------- complex arithmetic ------------

GPR_DEVICE dt_complex64 operator+(dt_complex64 a, dt_complex64 b)
{
    return {a.re + b.re, a.im + b.im};
}
GPR_DEVICE dt_complex128 operator+(dt_complex128 a, dt_complex128 b)
{
    return {a.re + b.re, a.im + b.im};
}
GPR_DEVICE dt_complex64 operator-(dt_complex64 a, dt_complex64 b)
{
    return {a.re - b.re, a.im - b.im};
}
GPR_DEVICE dt_complex128 operator-(dt_complex128 a, dt_complex128 b)
{
    return {a.re - b.re, a.im - b.im};
}
GPR_DEVICE dt_complex64 operator*(dt_complex64 a, dt_complex64 b)
{
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
GPR_DEVICE dt_complex128 operator*(dt_complex128 a, dt_complex128 b)
{
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

} // namespace gpr
