/* The loops with AVX-512 (F, BW, DQ, VL), for x86-64 machines that have them. */
#include "cpu/loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c"))), apply_to = function)
#else
#pragma GCC optimize("O3")
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c,prefer-vector-width=512")
#endif

#define LOOPS_TABLE gpr_loops_avx512
#define LOOPS_ISA "avx512"
#define VECTOR_BYTES 64
#if !defined(__clang__)
/* Chains of comparisons and choices, which compilers move from masks to vectors and back. */
#define WITHOUT_MASK_REGISTERS __attribute__((target("no-avx512f")))
#endif
#define HAS_FMA

#define HAS_FLOAT_VOCABULARY
typedef __mmask16 flag_f32;
typedef __mmask8 flag_f64;
#define NO_FLAG 0
#define EXTREME_min_f32(x, a) _mm512_min_ps(x, a)
#define EXTREME_max_f32(x, a) _mm512_max_ps(x, a)
#define EXTREME_min_f64(x, a) _mm512_min_pd(x, a)
#define EXTREME_max_f64(x, a) _mm512_max_pd(x, a)
#define UNORDERED_f32(flag, x, y) (flag_f32)((flag) | _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q))
#define UNORDERED_f64(flag, x, y) (flag_f64)((flag) | _mm512_cmp_pd_mask(x, y, _CMP_UNORD_Q))
#define is_flagged_f32(flag) ((flag) != 0)
#define is_flagged_f64(flag) ((flag) != 0)
#define WIDEN_F32(p) _mm512_cvtps_pd(_mm256_loadu_ps(p))
/* Integers of half a vector's bytes, a quarter or an eighth as doubles. */
#define HAS_WIDENED_LANES
#define LOAD_BYTES_8(p) _mm_loadl_epi64((const __m128i *)(const void *)(p))
#define LOAD_BYTES_16(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define LOAD_BYTES_32(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define WIDEN_bool(p) \
    _mm512_cvtepi32_pd(_mm256_cvtepu8_epi32(_mm_min_epu8(LOAD_BYTES_8(p), _mm_set1_epi8(1))))
#define WIDEN_int8(p) _mm512_cvtepi32_pd(_mm256_cvtepi8_epi32(LOAD_BYTES_8(p)))
#define WIDEN_uint8(p) _mm512_cvtepi32_pd(_mm256_cvtepu8_epi32(LOAD_BYTES_8(p)))
#define WIDEN_int16(p) _mm512_cvtepi32_pd(_mm256_cvtepi16_epi32(LOAD_BYTES_16(p)))
#define WIDEN_uint16(p) _mm512_cvtepi32_pd(_mm256_cvtepu16_epi32(LOAD_BYTES_16(p)))
#define WIDEN_int32(p) _mm512_cvtepi32_pd(LOAD_BYTES_32(p))
#define WIDEN_uint32(p) _mm512_cvtepu32_pd(LOAD_BYTES_32(p))
#define LESS_PRODUCT(number, x, y) _mm512_fnmadd_pd(x, y, number)
#define MULTIPLY_ADD(x, y, number) _mm512_fmadd_pd(x, y, number)
#define MULTIPLY_ADD_SINGLE(x, y, number) _mm512_fmadd_ps(x, y, number)
#define OR_DIFFERENCE(bits, x, y) \
    _mm512_ternarylogic_epi64((__m512i)(bits), (__m512i)(x), (__m512i)(y), 0xf6)
#define SWAP_PARTS(x) (vec_f64) _mm512_permute_pd(x, 0x55)
#define EVEN_PARTS(x) (vec_f64) _mm512_movedup_pd(x)
#define ODD_PARTS(x) (vec_f64) _mm512_permute_pd(x, 0xff)
#define IS_ANY_LANE(x) (_mm512_movepi64_mask((__m512i)(x)) != 0)
#define EVEN_OF_PAIRS(x, y) (vec_f64) _mm512_unpacklo_pd(x, y)
#define ODD_OF_PAIRS(x, y) (vec_f64) _mm512_unpackhi_pd(x, y)
#define EVEN_LANES_4(x, y)                                                            \
    (vec_u64) _mm512_permutex2var_epi32(                                              \
        (__m512i)(x),                                                                 \
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), \
        (__m512i)(y))
#define EVEN_LANES_8(x, y)               \
    (vec_u64) _mm512_permutex2var_epi64( \
        (__m512i)(x), _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), (__m512i)(y))
#define EVEN_LANES_16(x, y) (vec_u64) _mm512_shuffle_i64x2((__m512i)(x), (__m512i)(y), 0x88)
#define LARGER_i16(x, y) _mm512_max_epi16((__m512i)(x), (__m512i)(y))
#define SMALLER_i16(x, y) _mm512_min_epi16((__m512i)(x), (__m512i)(y))
#define LARGER_i32(x, y) _mm512_max_epi32((__m512i)(x), (__m512i)(y))
#define SMALLER_i32(x, y) _mm512_min_epi32((__m512i)(x), (__m512i)(y))

/* Extremes of integers, MATCH_BITS bits for each lane that is equal in both vectors, the least of
 * signed lanes, and a vector whose lanes are exchanged with those at a distance of some bytes, a
 * power of two. */
#define HAS_INTEGER_VOCABULARY
#define MATCH_BITS(bytes) 1
#define VECTOR_min_int8(x, y) _mm512_min_epi8((__m512i)(x), (__m512i)(y))
#define VECTOR_max_int8(x, y) _mm512_max_epi8((__m512i)(x), (__m512i)(y))
#define VECTOR_min_int16(x, y) _mm512_min_epi16((__m512i)(x), (__m512i)(y))
#define VECTOR_max_int16(x, y) _mm512_max_epi16((__m512i)(x), (__m512i)(y))
#define VECTOR_min_int32(x, y) _mm512_min_epi32((__m512i)(x), (__m512i)(y))
#define VECTOR_max_int32(x, y) _mm512_max_epi32((__m512i)(x), (__m512i)(y))
#define VECTOR_min_int64(x, y) _mm512_min_epi64((__m512i)(x), (__m512i)(y))
#define VECTOR_max_int64(x, y) _mm512_max_epi64((__m512i)(x), (__m512i)(y))
#define VECTOR_min_uint8(x, y) _mm512_min_epu8((__m512i)(x), (__m512i)(y))
#define VECTOR_max_uint8(x, y) _mm512_max_epu8((__m512i)(x), (__m512i)(y))
#define VECTOR_min_uint16(x, y) _mm512_min_epu16((__m512i)(x), (__m512i)(y))
#define VECTOR_max_uint16(x, y) _mm512_max_epu16((__m512i)(x), (__m512i)(y))
#define VECTOR_min_uint32(x, y) _mm512_min_epu32((__m512i)(x), (__m512i)(y))
#define VECTOR_max_uint32(x, y) _mm512_max_epu32((__m512i)(x), (__m512i)(y))
#define VECTOR_min_uint64(x, y) _mm512_min_epu64((__m512i)(x), (__m512i)(y))
#define VECTOR_max_uint64(x, y) _mm512_max_epu64((__m512i)(x), (__m512i)(y))
#define VECTOR_MATCHES(bytes, x, y)                                                 \
    ((bytes) == 1   ? (uint64_t)_mm512_cmpeq_epi8_mask((__m512i)(x), (__m512i)(y))  \
     : (bytes) == 2 ? (uint64_t)_mm512_cmpeq_epi16_mask((__m512i)(x), (__m512i)(y)) \
     : (bytes) == 4 ? (uint64_t)_mm512_cmpeq_epi32_mask((__m512i)(x), (__m512i)(y)) \
                    : (uint64_t)_mm512_cmpeq_epi64_mask((__m512i)(x), (__m512i)(y)))
/* A bit for each lane of type T that is equal. */
#define MATCHES_OF_TYPE(T, x, y)                                                             \
    ((T)0.5 == 0      ? VECTOR_MATCHES(sizeof(T), x, y)                                      \
     : sizeof(T) == 8 ? (uint64_t)_mm512_cmp_pd_mask((__m512d)(x), (__m512d)(y), _CMP_EQ_OQ) \
                      : (uint64_t)_mm512_cmp_ps_mask((__m512)(x), (__m512)(y), _CMP_EQ_OQ))
#define LANES_OF_TYPE MATCHES_OF_TYPE
#define VECTOR_LEAST(bytes, x, y)                                  \
    ((bytes) == 1   ? _mm512_min_epi8((__m512i)(x), (__m512i)(y))  \
     : (bytes) == 2 ? _mm512_min_epi16((__m512i)(x), (__m512i)(y)) \
     : (bytes) == 4 ? _mm512_min_epi32((__m512i)(x), (__m512i)(y)) \
                    : _mm512_min_epi64((__m512i)(x), (__m512i)(y)))
#define EXCHANGE_LANES(x, distance) exchange_lanes((__m512i)(x), distance)
static inline __attribute__((always_inline)) __m512i exchange_lanes(__m512i x, size_t distance)
{
    switch (distance) {
    case 1: return _mm512_or_si512(_mm512_slli_epi16(x, 8), _mm512_srli_epi16(x, 8));
    case 2: return _mm512_or_si512(_mm512_slli_epi32(x, 16), _mm512_srli_epi32(x, 16));
    case 4: return _mm512_shuffle_epi32(x, _MM_PERM_CDAB);
    case 8: return _mm512_shuffle_epi32(x, _MM_PERM_BADC);
    case 16: return _mm512_shuffle_i64x2(x, x, 0xb1);
    default: return _mm512_shuffle_i64x2(x, x, 0x4e);
    }
}

enum { HALF_VECTOR = 16 };
#define WIDEN_HALF_VECTOR(source, destination) \
    _mm512_storeu_ps(destination,              \
                     _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(source))))

#include "cpu/loops_template.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
