// Vectors: 16 bytes that one instruction loads, their elements, and arithmetic on several small
// elements of a word at once.
#pragma once

#include "types.cuh"

namespace gpr {

// ---------------------------------------------------------------- loading ----------------------

// 16 aligned bytes: the most that one instruction loads per thread.
struct alignas(16) Vector { unsigned word[4]; };

// Loads 16 bytes of global memory that no thread writes while the kernel runs. The bytes are read
// once, so they are not allocated in L1.
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
    asm("" : "+m"(v)); // all 16 bytes, or the compiler splits the load in four
    return v;
#endif
}

// ---------------------------------------------------------------- elements of a vector ----------

template <class In> constexpr unsigned vector_elements = sizeof(Vector) / sizeof(In);

// Returns element j of a vector. Where j is a compile-time constant this is a shift or no
// instruction.
template <class In> GPR_DEVICE In element(const Vector &v, unsigned j)
{
    if constexpr (sizeof(In) == 1) {
        return bit_copy<In>(static_cast<unsigned char>(v.word[j / 4] >> (8 * (j % 4))));
    } else if constexpr (sizeof(In) == 2) {
        return bit_copy<In>(static_cast<unsigned short>(v.word[j / 2] >> (16 * (j % 2))));
    } else if constexpr (sizeof(In) == 4) {
        return bit_copy<In>(v.word[j]);
    } else if constexpr (sizeof(In) == 8) {
        return bit_copy<In>(static_cast<uint64>(v.word[2 * j + 1]) << 32 | v.word[2 * j]);
    } else {
        return bit_copy<In>(v);
    }
}

// Stores x as element j of a vector; j is a compile-time constant after unrolling.
template <class In> GPR_DEVICE void store_element(Vector &v, unsigned j, In x)
{
    if constexpr (sizeof(In) == 1) {
        const unsigned shift = 8 * (j % 4), bits = bit_copy<unsigned char>(x);
        v.word[j / 4] = (v.word[j / 4] & ~(0xffu << shift)) | bits << shift;
    } else if constexpr (sizeof(In) == 2) {
        const unsigned shift = 16 * (j % 2), bits = bit_copy<unsigned short>(x);
        v.word[j / 2] = (v.word[j / 2] & ~(0xffffu << shift)) | bits << shift;
    } else if constexpr (sizeof(In) == 4) {
        v.word[j] = bit_copy<unsigned>(x);
    } else if constexpr (sizeof(In) == 8) {
        const uint64 bits = bit_copy<uint64>(x);
        v.word[2 * j] = static_cast<unsigned>(bits);
        v.word[2 * j + 1] = static_cast<unsigned>(bits >> 32);
    } else {
        v = bit_copy<Vector>(x);
    }
}

// ---------------------------------------------------------------- bytes and halves of a word ---

// Sum of the four bytes of `word`, or of its two 16-bit halves, and `total`; signed or unsigned as
// `total` is.
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

// Whether the GPU compares both 16-bit halves of two words in one instruction (compute capability
// 9.0).
#if GPR_ARCH >= 900
#define GPR_HAS_HALVES 1
#else
#define GPR_HAS_HALVES 0
#endif

// Returns, for each unsigned half, the smaller or the larger of two.
GPR_DEVICE unsigned smaller_halves(unsigned a, unsigned b)
{
#if defined(__CUDA_ARCH__)
    return __vminu2(a, b);
#else
    return ((a & 0xffffu) < (b & 0xffffu) ? a & 0xffffu : b & 0xffffu) |
           (a >> 16 < b >> 16 ? a >> 16 : b >> 16) << 16;
#endif
}

// The smaller of a and of b - 1, where 0 - 1 is the largest; no half of b has its first bit set.
GPR_DEVICE unsigned smaller_halves_less_one(unsigned a, unsigned b)
{
#if defined(__CUDA_ARCH__) && GPR_HAS_HALVES
    return __viaddmin_u16x2(b, 0xffffffffu, a);
#else
    return smaller_halves(a, (b + 0x7fff7fffu) ^ 0x80008000u); // no half carries into the other
#endif
}

GPR_DEVICE unsigned larger_halves(unsigned a, unsigned b)
{
#if defined(__CUDA_ARCH__)
    return __vmaxu2(a, b);
#else
    return ((a & 0xffffu) > (b & 0xffffu) ? a & 0xffffu : b & 0xffffu) |
           (a >> 16 > b >> 16 ? a >> 16 : b >> 16) << 16;
#endif
}

} // namespace gpr
