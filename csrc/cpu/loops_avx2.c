/* The loops with AVX2, FMA and F16C, for x86-64 machines that have them. */
#include "cpu/loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC optimize("O3")
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
#define LESS_PRODUCT(number, x, y) _mm256_fnmadd_pd(x, y, number)
#define MULTIPLY_ADD(x, y, number) _mm256_fmadd_pd(x, y, number)
#define MULTIPLY_ADD_SINGLE(x, y, number) _mm256_fmadd_ps(x, y, number)
#define OR_DIFFERENCE(bits, x, y) ((bits) | ((x) ^ (y)))
#define SWAP_PARTS(x) (vec_f64) _mm256_permute_pd(x, 0x5)
#define EVEN_PARTS(x) (vec_f64) _mm256_movedup_pd(x)
#define ODD_PARTS(x) (vec_f64) _mm256_permute_pd(x, 0xf)
#define LARGER_i16(x, y) _mm256_max_epi16((__m256i)(x), (__m256i)(y))
#define SMALLER_i16(x, y) _mm256_min_epi16((__m256i)(x), (__m256i)(y))
#define LARGER_i32(x, y) _mm256_max_epi32((__m256i)(x), (__m256i)(y))
#define SMALLER_i32(x, y) _mm256_min_epi32((__m256i)(x), (__m256i)(y))

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
