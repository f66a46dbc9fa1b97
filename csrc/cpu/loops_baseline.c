/* The loops with the instructions every machine of the architecture has: SSE2 on x86-64, NEON on
 * aarch64. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define LOOPS_TABLE gpr_loops_baseline
#define LOOPS_ISA "baseline"
#define VECTOR_BYTES 16

#if defined(__x86_64__)
#include <immintrin.h>

#define HAS_FLOAT_VOCABULARY
typedef __m128 flag_f32;
typedef __m128d flag_f64;
#define NO_FLAG {0}
#define EXTREME_min_f32(x, a) _mm_min_ps(x, a)
#define EXTREME_max_f32(x, a) _mm_max_ps(x, a)
#define EXTREME_min_f64(x, a) _mm_min_pd(x, a)
#define EXTREME_max_f64(x, a) _mm_max_pd(x, a)
#define UNORDERED_f32(flag, x, y) _mm_or_ps(flag, _mm_cmpunord_ps(x, y))
#define UNORDERED_f64(flag, x, y) _mm_or_pd(flag, _mm_cmpunord_pd(x, y))
#define is_flagged_f32(flag) (_mm_movemask_ps(flag) != 0)
#define is_flagged_f64(flag) (_mm_movemask_pd(flag) != 0)
#define WIDEN_F32(p) \
    _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define EVEN_LANES_4(x, y) \
    (vec_u64) _mm_shuffle_ps((__m128)(x), (__m128)(y), _MM_SHUFFLE(2, 0, 2, 0))
#define EVEN_LANES_8(x, y) (vec_u64) _mm_unpacklo_epi64((__m128i)(x), (__m128i)(y))
#define LARGER_i16(x, y) _mm_max_epi16((__m128i)(x), (__m128i)(y))
#define SMALLER_i16(x, y) _mm_min_epi16((__m128i)(x), (__m128i)(y))
#endif

#include "cpu/loops_template.h"
