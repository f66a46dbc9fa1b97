/* The loops with AVX2, FMA and F16C, for x86-64 machines that have them. */
#include "cpu/loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
/* A first row that is copied by a block copy is stored in halves of vectors, for which the load of
 * a whole vector waits. */
#pragma GCC optimize("O3", "no-tree-loop-distribute-patterns")
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define LOOPS_TABLE gpr_loops_avx2
#define LOOPS_ISA "avx2"
#define VECTOR_BYTES 32
#define HAS_FMA

#define HAS_FLOAT_VOCABULARY
typedef __m256 flag_f32;
typedef __m256d flag_f64;
#define NO_FLAG {0}
#define EXTREME_min_f32(x, a) _mm256_min_ps(x, a)
#define EXTREME_max_f32(x, a) _mm256_max_ps(x, a)
#define EXTREME_min_f64(x, a) _mm256_min_pd(x, a)
#define EXTREME_max_f64(x, a) _mm256_max_pd(x, a)
#define UNORDERED_f32(flag, x, y) _mm256_or_ps(flag, _mm256_cmp_ps(x, y, _CMP_UNORD_Q))
#define UNORDERED_f64(flag, x, y) _mm256_or_pd(flag, _mm256_cmp_pd(x, y, _CMP_UNORD_Q))
#define is_flagged_f32(flag) (_mm256_movemask_ps(flag) != 0)
#define is_flagged_f64(flag) (_mm256_movemask_pd(flag) != 0)
#define WIDEN_F32(p) _mm256_cvtps_pd(_mm_loadu_ps(p))
/* Integers of half a vector's bytes, a quarter or an eighth as doubles. */
static inline __m128i load_bytes_4(const void *p)
{
    int bits;

    memcpy(&bits, p, sizeof bits);
    return _mm_cvtsi32_si128(bits);
}
#define HAS_WIDENED_LANES
#define LOAD_BYTES_8(p) _mm_loadl_epi64((const __m128i *)(const void *)(p))
#define LOAD_BYTES_16(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define WIDEN_bool(p) \
    _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_min_epu8(load_bytes_4(p), _mm_set1_epi8(1))))
#define WIDEN_int8(p) _mm256_cvtepi32_pd(_mm_cvtepi8_epi32(load_bytes_4(p)))
#define WIDEN_uint8(p) _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(load_bytes_4(p)))
#define WIDEN_int16(p) _mm256_cvtepi32_pd(_mm_cvtepi16_epi32(LOAD_BYTES_8(p)))
#define WIDEN_uint16(p) _mm256_cvtepi32_pd(_mm_cvtepu16_epi32(LOAD_BYTES_8(p)))
#define WIDEN_int32(p) _mm256_cvtepi32_pd(LOAD_BYTES_16(p))
#define LESS_PRODUCT(number, x, y) _mm256_fnmadd_pd(x, y, number)
#define MULTIPLY_ADD(x, y, number) _mm256_fmadd_pd(x, y, number)
#define MULTIPLY_ADD_SINGLE(x, y, number) _mm256_fmadd_ps(x, y, number)
#define OR_DIFFERENCE(bits, x, y) ((bits) | ((x) ^ (y)))
#define SWAP_PARTS(x) (vec_f64) _mm256_permute_pd(x, 0x5)
#define EVEN_PARTS(x) (vec_f64) _mm256_movedup_pd(x)
#define ODD_PARTS(x) (vec_f64) _mm256_permute_pd(x, 0xf)
#define IS_ANY_LANE(x) (_mm256_movemask_pd((__m256d)(x)) != 0)
#define EVEN_OF_PAIRS(x, y) (vec_f64) _mm256_unpacklo_pd(x, y)
#define ODD_OF_PAIRS(x, y) (vec_f64) _mm256_unpackhi_pd(x, y)
/* The first byte of each lane of 4 or 8, then the second ones, and so on. */
static inline __m256i first_bytes_of_4(__m256i x)
{
    const __m256i of_halves = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));

    return _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(x, of_halves),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
static inline __m256i first_bytes_of_8(__m256i x)
{
    const __m256i of_halves = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    const __m256i halves = _mm256_shuffle_epi8(x, of_halves);
    const __m128i lower = _mm256_castsi256_si128(halves),
                  upper = _mm256_extracti128_si256(halves, 1);

    return _mm256_setr_m128i(_mm_unpacklo_epi16(lower, upper), _mm_unpackhi_epi16(lower, upper));
}
#define BYTES_IN_ORDER_f32(x) (vec_u8) first_bytes_of_4((__m256i)(x))
#define BYTES_IN_ORDER_f64(x) (vec_u8) first_bytes_of_8((__m256i)(x))
#define EVEN_LANES_4(x, y)                                                             \
    (vec_u64) _mm256_permute4x64_epi64(                                                \
        (__m256i)_mm256_shuffle_ps((__m256)(x), (__m256)(y), _MM_SHUFFLE(2, 0, 2, 0)), \
        _MM_SHUFFLE(3, 1, 2, 0))
#define EVEN_LANES_8(x, y)                                                                \
    (vec_u64) _mm256_permute4x64_epi64(_mm256_unpacklo_epi64((__m256i)(x), (__m256i)(y)), \
                                       _MM_SHUFFLE(3, 1, 2, 0))
#define EVEN_LANES_16(x, y) (vec_u64) _mm256_permute2x128_si256((__m256i)(x), (__m256i)(y), 0x20)
#define LARGER_i16(x, y) _mm256_max_epi16((__m256i)(x), (__m256i)(y))
#define SMALLER_i16(x, y) _mm256_min_epi16((__m256i)(x), (__m256i)(y))
#define LARGER_i32(x, y) _mm256_max_epi32((__m256i)(x), (__m256i)(y))
#define SMALLER_i32(x, y) _mm256_min_epi32((__m256i)(x), (__m256i)(y))

/* As AVX-512's (loops_avx512.c), but 64-bit integers are compared, unsigned ones with their highest
 * bits flipped. */
#define HAS_INTEGER_VOCABULARY
#define VECTOR_min_int8(x, y) _mm256_min_epi8((__m256i)(x), (__m256i)(y))
#define VECTOR_max_int8(x, y) _mm256_max_epi8((__m256i)(x), (__m256i)(y))
#define VECTOR_min_int16(x, y) _mm256_min_epi16((__m256i)(x), (__m256i)(y))
#define VECTOR_max_int16(x, y) _mm256_max_epi16((__m256i)(x), (__m256i)(y))
#define VECTOR_min_int32(x, y) _mm256_min_epi32((__m256i)(x), (__m256i)(y))
#define VECTOR_max_int32(x, y) _mm256_max_epi32((__m256i)(x), (__m256i)(y))
#define VECTOR_min_uint8(x, y) _mm256_min_epu8((__m256i)(x), (__m256i)(y))
#define VECTOR_max_uint8(x, y) _mm256_max_epu8((__m256i)(x), (__m256i)(y))
#define VECTOR_min_uint16(x, y) _mm256_min_epu16((__m256i)(x), (__m256i)(y))
#define VECTOR_max_uint16(x, y) _mm256_max_epu16((__m256i)(x), (__m256i)(y))
#define VECTOR_min_uint32(x, y) _mm256_min_epu32((__m256i)(x), (__m256i)(y))
#define VECTOR_max_uint32(x, y) _mm256_max_epu32((__m256i)(x), (__m256i)(y))
#define VECTOR_min_int64(x, y) lesser_i64((__m256i)(x), (__m256i)(y), _mm256_setzero_si256())
#define VECTOR_max_int64(x, y) greater_i64((__m256i)(x), (__m256i)(y), _mm256_setzero_si256())
#define VECTOR_min_uint64(x, y) \
    lesser_i64((__m256i)(x), (__m256i)(y), _mm256_set1_epi64x(INT64_MIN))
#define VECTOR_max_uint64(x, y) \
    greater_i64((__m256i)(x), (__m256i)(y), _mm256_set1_epi64x(INT64_MIN))
#define MATCH_BITS(bytes) (bytes)
#define VECTOR_MATCHES(bytes, x, y)                                     \
    ((uint64_t)(uint32_t)_mm256_movemask_epi8(                          \
        (bytes) == 1   ? _mm256_cmpeq_epi8((__m256i)(x), (__m256i)(y))  \
        : (bytes) == 2 ? _mm256_cmpeq_epi16((__m256i)(x), (__m256i)(y)) \
        : (bytes) == 4 ? _mm256_cmpeq_epi32((__m256i)(x), (__m256i)(y)) \
                       : _mm256_cmpeq_epi64((__m256i)(x), (__m256i)(y))))
/* Which lanes of type T are equal: MATCH_BITS of each, and a bit of each of 4 bytes or more. */
#define EQUAL_LANES(T, x, y)                                                              \
    ((T)0.5 == 0      ? (sizeof(T) == 8 ? _mm256_cmpeq_epi64((__m256i)(x), (__m256i)(y))  \
                                        : _mm256_cmpeq_epi32((__m256i)(x), (__m256i)(y))) \
     : sizeof(T) == 8 ? (__m256i)_mm256_cmp_pd((__m256d)(x), (__m256d)(y), _CMP_EQ_OQ)    \
                      : (__m256i)_mm256_cmp_ps((__m256)(x), (__m256)(y), _CMP_EQ_OQ))
#define MATCHES_OF_TYPE(T, x, y)                   \
    ((T)0.5 == 0 ? VECTOR_MATCHES(sizeof(T), x, y) \
                 : (uint64_t)(uint32_t)_mm256_movemask_epi8(EQUAL_LANES(T, x, y)))
#define LANES_OF_TYPE(T, x, y)                                                    \
    (uint64_t)(sizeof(T) == 8 ? _mm256_movemask_pd((__m256d)EQUAL_LANES(T, x, y)) \
                              : _mm256_movemask_ps((__m256)EQUAL_LANES(T, x, y)))
#define VECTOR_LEAST(bytes, x, y)                                  \
    ((bytes) == 1   ? _mm256_min_epi8((__m256i)(x), (__m256i)(y))  \
     : (bytes) == 2 ? _mm256_min_epi16((__m256i)(x), (__m256i)(y)) \
     : (bytes) == 4 ? _mm256_min_epi32((__m256i)(x), (__m256i)(y)) \
                    : VECTOR_min_int64(x, y))
#define EXCHANGE_LANES(x, distance) exchange_lanes((__m256i)(x), distance)

static inline __attribute__((always_inline)) __m256i greater_i64(__m256i x, __m256i y, __m256i flip)
{
    const __m256i is_less =
        _mm256_cmpgt_epi64(_mm256_xor_si256(y, flip), _mm256_xor_si256(x, flip));

    return _mm256_blendv_epi8(x, y, is_less);
}

static inline __attribute__((always_inline)) __m256i lesser_i64(__m256i x, __m256i y, __m256i flip)
{
    const __m256i is_less =
        _mm256_cmpgt_epi64(_mm256_xor_si256(y, flip), _mm256_xor_si256(x, flip));

    return _mm256_blendv_epi8(y, x, is_less);
}

static inline __attribute__((always_inline)) __m256i exchange_lanes(__m256i x, size_t distance)
{
    switch (distance) {
    case 1: return _mm256_or_si256(_mm256_slli_epi16(x, 8), _mm256_srli_epi16(x, 8));
    case 2: return _mm256_or_si256(_mm256_slli_epi32(x, 16), _mm256_srli_epi32(x, 16));
    case 4: return _mm256_shuffle_epi32(x, 0xb1);
    case 8: return _mm256_shuffle_epi32(x, 0x4e);
    default: return _mm256_permute2x128_si256(x, x, 1);
    }
}

enum { HALF_VECTOR = 8 };
#define WIDEN_HALF_VECTOR(source, destination) \
    _mm256_storeu_ps(destination,              \
                     _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(source))))

#include "cpu/loops_template.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
