// CUDA's words that kernels of users' own may use and this project's kernels do not: dynamic shared
// memory, constants, vectors, mathematics, printf. Their programs include this file first; then
// comes what they use of C's headers, as with NVRTC (gpureduce._yours.host_headers).
#ifndef GPR_EMU_PLAIN_CUDA_H
#define GPR_EMU_PLAIN_CUDA_H

#define __constant__
#define __restrict__ __restrict
#define assert(condition) static_cast<void>(0)

typedef unsigned long size_t;

// All dynamic arrays of a kernel begin here, as on a GPU.
extern "C" __attribute__((
    used,
    aligned(GPR_EMU_SHARED_SPACING))) unsigned char gpr_emu_dynamic_shared[GPR_EMU_DYNAMIC_BYTES];
unsigned char gpr_emu_dynamic_shared[GPR_EMU_DYNAMIC_BYTES];

// Nothing is printed: thousands of threads would.
inline int printf(const char *, ...)
{
    return 0;
}

// ---------------------------------------------------------------- mathematics ------------------

#define GPR_EMU_EXTREMES(type)               \
    __forceinline__ type min(type a, type b) \
    {                                        \
        return b < a ? b : a;                \
    }                                        \
    __forceinline__ type max(type a, type b) \
    {                                        \
        return a < b ? b : a;                \
    }
GPR_EMU_EXTREMES(int)
GPR_EMU_EXTREMES(unsigned)
GPR_EMU_EXTREMES(long)
GPR_EMU_EXTREMES(unsigned long)
GPR_EMU_EXTREMES(long long)
GPR_EMU_EXTREMES(unsigned long long)
#undef GPR_EMU_EXTREMES

// As fminf: a number where one of them is NaN.
#define GPR_EMU_FLOATS(type, suffix)                                     \
    __forceinline__ type fmin##suffix(type a, type b)                    \
    {                                                                    \
        return b < a || a != a ? b : a;                                  \
    }                                                                    \
    __forceinline__ type fmax##suffix(type a, type b)                    \
    {                                                                    \
        return a < b || a != a ? b : a;                                  \
    }                                                                    \
    __forceinline__ type min(type a, type b)                             \
    {                                                                    \
        return fmin##suffix(a, b);                                       \
    }                                                                    \
    __forceinline__ type max(type a, type b)                             \
    {                                                                    \
        return fmax##suffix(a, b);                                       \
    }                                                                    \
    __forceinline__ type fabs##suffix(type x)                            \
    {                                                                    \
        return __builtin_fabs##suffix(x);                                \
    }                                                                    \
    __forceinline__ type fma##suffix(type a, type b, type c)             \
    {                                                                    \
        return sizeof(type) == 4 ? static_cast<type>(__fmaf_rn(a, b, c)) \
                                 : static_cast<type>(__fma_rn(a, b, c)); \
    }
GPR_EMU_FLOATS(float, f)
GPR_EMU_FLOATS(double, )
#undef GPR_EMU_FLOATS

__forceinline__ int abs(int x)
{
    return x < 0 ? -x : x;
}
__forceinline__ float sqrtf(float x)
{
    return __builtin_sqrtf(x);
}

// ---------------------------------------------------------------- words and vectors ------------

template <class To, class From> __forceinline__ To gpr_emu_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
__forceinline__ int __float_as_int(float x)
{
    return gpr_emu_bits<int>(x);
}
__forceinline__ unsigned __float_as_uint(float x)
{
    return gpr_emu_bits<unsigned>(x);
}
__forceinline__ float __int_as_float(int x)
{
    return gpr_emu_bits<float>(x);
}
__forceinline__ float __uint_as_float(unsigned x)
{
    return gpr_emu_bits<float>(x);
}
__forceinline__ long long __double_as_longlong(double x)
{
    return gpr_emu_bits<long long>(x);
}
__forceinline__ double __longlong_as_double(long long x)
{
    return gpr_emu_bits<double>(x);
}
__forceinline__ int __ffs(int x)
{
    return __builtin_ffs(x);
}
__forceinline__ int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
template <class T> __forceinline__ T __ldg(const T *address)
{
    return *address;
}

#define GPR_EMU_VECTORS(type, name)                                        \
    struct alignas(2 * sizeof(type)) name##2                               \
    {                                                                      \
        type x, y;                                                         \
    };                                                                     \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4  \
    {                                                                      \
        type x, y, z, w;                                                   \
    };                                                                     \
    __forceinline__ name##2 make_##name##2(type x, type y)                 \
    {                                                                      \
        return {x, y};                                                     \
    }                                                                      \
    __forceinline__ name##4 make_##name##4(type x, type y, type z, type w) \
    {                                                                      \
        return {x, y, z, w};                                               \
    }
GPR_EMU_VECTORS(float, float)
GPR_EMU_VECTORS(double, double)
GPR_EMU_VECTORS(int, int)
GPR_EMU_VECTORS(unsigned, uint)
#undef GPR_EMU_VECTORS

#endif
