// Element types on the device and the conversions between them.
//
// Everything the kernels know about number formats is here: what an element is in memory (dt_<name>), the arithmetic
// value it stands for, and how a value becomes another type. Conversions are NumPy's on x86-64, as in the host's
// rules, so a kernel gives the same result on every device: integers wrap, floats are cut towards zero, 16-bit floats
// round to nearest even, a float is true unless it is zero (NaN is true).
//
// Nothing is included. This is also the only file with inline PTX; each use has a portable twin, which is what a
// compiler other than CUDA's sees.
#pragma once

#define GPR_DEVICE __device__ __forceinline__
// What is rarely done and takes registers: a call keeps it away from the loop that does not do it.
#define GPR_CALLED __device__ __noinline__

// The compute capability that is compiled for, times 100. A compiler other than CUDA's is told (-DGPR_ARCH=900).
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

template <class T>
constexpr bool is_float = same<T, dt_float16> || same<T, dt_bfloat16> || same<T, dt_float32> || same<T, dt_float64>;
template <class T>
constexpr bool is_signed = same<T, dt_int8> || same<T, dt_int16> || same<T, dt_int32> || same<T, dt_int64>;
template <class T>
constexpr bool is_unsigned = same<T, dt_uint8> || same<T, dt_uint16> || same<T, dt_uint32> || same<T, dt_uint64>;
template <class T> constexpr bool is_integer = is_signed<T> || is_unsigned<T>;
template <class T> constexpr bool is_complex = same<T, dt_complex64> || same<T, dt_complex128>;

// ---------------------------------------------------------------- bits --------------------------

// The same bytes as another type.
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

// 16 aligned bytes: what one load instruction can bring to a thread.
struct alignas(16) Vector { unsigned word[4]; };

// Loads 16 bytes of global memory that no thread writes while the kernel runs. They are used once: L1 need not keep
// them.
GPR_DEVICE Vector load_vector(const Vector *address)
{
#if defined(__CUDA_ARCH__)
    Vector v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
        : "l"(address));
    return v;
#else
    Vector v;
    __builtin_memcpy(&v, __builtin_assume_aligned(address, 16), sizeof v);
    asm("" : "+m"(v)); // all of it, or the compiler makes four loads of one
    return v;
#endif
}

// Sum of the four bytes of `word`, or of its two 16-bit halves, and `total`; signed or unsigned as `total` is.
GPR_DEVICE int add_bytes(unsigned word, int total)
{
#if defined(__CUDA_ARCH__)
    return __dp4a(static_cast<int>(word), 0x01010101, total);
#else
    for (int i = 0; i < 4; i++) total += static_cast<signed char>(word >> (8 * i));
    return total;
#endif
}

GPR_DEVICE unsigned add_bytes(unsigned word, unsigned total)
{
#if defined(__CUDA_ARCH__)
    return __dp4a(word, 0x01010101u, total);
#else
    for (int i = 0; i < 4; i++) total += static_cast<unsigned char>(word >> (8 * i));
    return total;
#endif
}

GPR_DEVICE int add_halves(unsigned word, int total)
{
#if defined(__CUDA_ARCH__)
    return __dp2a_lo(static_cast<int>(word), 0x0101, total);
#else
    return total + static_cast<short>(word) + static_cast<short>(word >> 16);
#endif
}

GPR_DEVICE unsigned add_halves(unsigned word, unsigned total)
{
#if defined(__CUDA_ARCH__)
    return __dp2a_lo(word, 0x0101u, total);
#else
    return total + (word & 0xffffu) + (word >> 16);
#endif
}

// Zero bits above the highest that is set, of a word that is not zero.
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

// Keeps a pointer in its register: a compiler that is short of them makes it anew from what it came from, in every round
// of a loop.
template <class T> GPR_DEVICE void keep(const T *&pointer)
{
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+l"(pointer));
#endif
}

// Whether the card compares both 16-bit halves of two words in one instruction (compute capability 9.0).
#if GPR_ARCH >= 900
#define GPR_HAS_HALVES 1
#else
#define GPR_HAS_HALVES 0
#endif

// For each unsigned half, the smaller or the larger of two.
GPR_DEVICE unsigned smaller_halves(unsigned a, unsigned b)
{
#if defined(__CUDA_ARCH__)
    return __vminu2(a, b);
#else
    return ((a & 0xffffu) < (b & 0xffffu) ? a & 0xffffu : b & 0xffffu) | (a >> 16 < b >> 16 ? a >> 16 : b >> 16) << 16;
#endif
}

// The smaller of a and of b - 1, where 0 - 1 is the largest; no half of b has its first bit set.
GPR_DEVICE unsigned smaller_halves_less_one(unsigned a, unsigned b)
{
#if defined(__CUDA_ARCH__) && GPR_HAS_HALVES
    return __viaddmin_u16x2(b, 0xffffffffu, a);
#else
    return smaller_halves(a, (b + 0x7fff7fffu) ^ 0x80008000u); // nothing is carried from half to half
#endif
}

GPR_DEVICE unsigned larger_halves(unsigned a, unsigned b)
{
#if defined(__CUDA_ARCH__)
    return __vmaxu2(a, b);
#else
    return ((a & 0xffffu) > (b & 0xffffu) ? a & 0xffffu : b & 0xffffu) | (a >> 16 > b >> 16 ? a >> 16 : b >> 16) << 16;
#endif
}

// ---------------------------------------------------------------- 16-bit floats -----------------

// A binary float of EXPONENT and FRACTION bits nearest to `value`, ties to even; NaN becomes the quiet one.
template <int EXPONENT, int FRACTION> GPR_DEVICE unsigned short round_to_16(double value)
{
    constexpr int bias = (1 << (EXPONENT - 1)) - 1;
    constexpr unsigned infinity = ((1u << EXPONENT) - 1) << FRACTION;
    const uint64 bits = bit_copy<uint64>(value);
    const unsigned sign = static_cast<unsigned>(bits >> 63) << 15;
    const uint64 magnitude = bits & ~(1ull << 63);
    const int exponent = static_cast<int>(magnitude >> 52) - 1023 + bias; // of the result; under 1: subnormal
    unsigned result;

    if (magnitude > 0x7ffull << 52) {
        result = infinity | 1u << (FRACTION - 1);
    } else if (exponent >= (1 << EXPONENT) - 1) {
        result = infinity;
    } else if (exponent < -FRACTION) {
        result = 0; // less than half of the smallest subnormal
    } else {
        // A carry out of the fraction moves on to the exponent, which is the right result, infinity included.
        const uint64 fraction = (magnitude & ((1ull << 52) - 1)) | 1ull << 52;
        const int shift = 52 - FRACTION + (exponent < 1 ? 1 - exponent : 0);
        const uint64 rounded = (fraction + (1ull << (shift - 1)) - 1 + (fraction >> shift & 1)) >> shift;
        result = static_cast<unsigned>(rounded) + (exponent < 1 ? 0u : static_cast<unsigned>(exponent - 1) << FRACTION);
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

// The number an element stands for, in the language's own types.
template <class T> GPR_DEVICE T value_of(T x) { return x; }
GPR_DEVICE bool value_of(dt_bool x) { return x.byte != 0; }
GPR_DEVICE float value_of(dt_float16 x) { return half_to_float(x.bits); }
GPR_DEVICE float value_of(dt_bfloat16 x) { return bit_copy<float>(static_cast<unsigned>(x.bits) << 16); }

// A part of a complex number.
template <class Complex> struct PartOf { using type = float; };
template <> struct PartOf<dt_complex128> { using type = double; };
template <class Complex> using Part = typename PartOf<Complex>::type;

// A float without its fraction. What does not fit gives what x86-64's conversion instruction gives: the smallest
// integer.
template <class Float> GPR_DEVICE int truncate_to_int32(Float x)
{
    return x > Float(-2147483649.0) && x < Float(2147483648.0) ? static_cast<int>(x) : -2147483647 - 1;
}

template <class Float> GPR_DEVICE long long truncate_to_int64(Float x)
{
    return x >= Float(-0x1p63) && x < Float(0x1p63) ? static_cast<long long>(x) : -0x7fffffffffffffffll - 1;
}

template <class Float> GPR_DEVICE uint64 truncate_to_uint64(Float x)
{
    return x >= Float(0x1p63) && x < Float(0x1p64) ? static_cast<uint64>(x) : static_cast<uint64>(truncate_to_int64(x));
}

// Whether a number is not zero, and whether it is NaN: x != x is never true of an integer.
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

// A number (of the language's own types, or complex) as an element of type To. Of a complex number a real element is
// the real part.
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
        else if constexpr (sizeof(To) == 8 || same<To, dt_uint32>) return static_cast<To>(truncate_to_int64(x));
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

// ---------------------------------------------------------------- complex arithmetic ------------

GPR_DEVICE dt_complex64 operator+(dt_complex64 a, dt_complex64 b) { return {a.re + b.re, a.im + b.im}; }
GPR_DEVICE dt_complex128 operator+(dt_complex128 a, dt_complex128 b) { return {a.re + b.re, a.im + b.im}; }
GPR_DEVICE dt_complex64 operator-(dt_complex64 a, dt_complex64 b) { return {a.re - b.re, a.im - b.im}; }
GPR_DEVICE dt_complex128 operator-(dt_complex128 a, dt_complex128 b) { return {a.re - b.re, a.im - b.im}; }
GPR_DEVICE dt_complex64 operator*(dt_complex64 a, dt_complex64 b)
{
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
GPR_DEVICE dt_complex128 operator*(dt_complex128 a, dt_complex128 b)
{
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// ---------------------------------------------------------------- order -------------------------

// Extreme values of an element type, as a number of type Acc: infinities for floats.
template <class T, class Acc> GPR_DEVICE Acc largest_of()
{
    if constexpr (is_complex<Acc>) return Acc{largest_of<T, Part<Acc>>(), largest_of<T, Part<Acc>>()};
    else if constexpr (same<Acc, float>) return bit_copy<float>(0x7f800000u);
    else if constexpr (same<Acc, double>) return bit_copy<double>(0x7ff0000000000000ull);
    else if constexpr (same<T, dt_bool>) return Acc(1);
    else return static_cast<Acc>(~0ull >> (64 - 8 * sizeof(T) + (is_signed<T> ? 1 : 0)));
}

template <class T, class Acc> GPR_DEVICE Acc smallest_of()
{
    if constexpr (is_complex<Acc>) return Acc{smallest_of<T, Part<Acc>>(), smallest_of<T, Part<Acc>>()};
    else if constexpr (is_float<Acc>) return -largest_of<T, Acc>();
    else if constexpr (is_signed<T>) return static_cast<Acc>(-largest_of<T, Acc>() - 1);
    else return Acc(0);
}

// Whether a comes before b: complex numbers by their real parts, and by the imaginary ones where those are equal. NaN,
// also of one part, comes before nothing, and nothing before NaN.
template <class T> GPR_DEVICE bool is_less(T a, T b)
{
    if constexpr (is_complex<T>)
        return !is_nan(a) && !is_nan(b) && (a.re < b.re || (a.re == b.re && a.im < b.im));
    else return a < b;
}

// The smaller and the larger of two numbers; NaN wins.
template <class T> GPR_DEVICE T smaller_of(T a, T b) { return is_less(a, b) || is_nan(a) ? a : b; }
template <class T> GPR_DEVICE T larger_of(T a, T b) { return is_less(b, a) || is_nan(a) ? a : b; }

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

// A float's bits as an unsigned integer that sorts as the float does. A set sign turns the order round, so those bits
// are inverted; the others only move above them.
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
