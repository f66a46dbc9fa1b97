/* The loops of loops.h, written once and compiled once for each instruction set.
 *
 * The including file selects the instruction set for the code that follows, and defines
 *   LOOPS_TABLE   name of the table to define
 *   LOOPS_ISA     its instruction set's name
 *   VECTOR_BYTES  bytes of a vector register
 * and, where the processor has something better than the portable form, the floating vocabulary
 * (see below), and HAS_FMA if it multiplies and adds with one rounding.
 *
 * Most loops are plain C that both compilers vectorise. Loops that they do not vectorise are
 * written with vectors: float sums (whose order a compiler may not change), float minima with NaN,
 * and byte sums in narrow lanes.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cpu/loops.h"
#include "shared/exp_states.h"
#include "shared/float_formats.h"
#include "shared/folds.h"

/* Exact sums compute the error of an addition, `x - ((a + x) - a)`, which is 0 in algebra: a
 * compiler that reorders additions would remove it. */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__)
#error \
    "compile without -ffast-math, -Ofast and -fassociative-math, or with -fno-fast-math behind them"
#endif

/* Frames of loops hold blocks of columns, up to 12 KiB; test_stack.c measures whole calls. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wframe-larger-than="
#endif

#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#define SCALAR_LOOP _Pragma("clang loop vectorize(disable)")
#else
#define UNROLLED _Pragma("GCC unroll 32")
#define SCALAR_LOOP
#endif
#define INLINE static inline __attribute__((always_inline))

/* Folds the vectors x[0] to x[count - 1] into x[0] by halves; `count` is a power of two. */
#define FOLD_TO_FIRST(x, count, fold_of)                                                    \
    UNROLLED                                                                                \
    for (int half = (count) / 2; half > 0; half /= 2) {                                     \
        UNROLLED                                                                            \
        for (int v = 0; v < half; v++) x[v] = (__typeof__(x[0]))fold_of(x[v + half], x[v]); \
    }

typedef double vec_f64 __attribute__((vector_size(VECTOR_BYTES)));
typedef float vec_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t vec_u8 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vec_u16 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vec_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef int16_t vec_i16 __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_i32 __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t vec_i64 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t vec_u64 __attribute__((vector_size(VECTOR_BYTES)));

#define MAGNITUDES(x) (vec_f64)((vec_i64)(x) & INT64_MAX)

/* The processor's own prefetchers stop at page ends: reading ahead by hand takes a tenth off runs
 * from main memory on Intel's, and a fifth to a third on AMD's Zen 5 where loops add exactly. It
 * takes time instead, half as much again, nearer than two pages ahead, where they do better; on
 * AMD's older ones at any distance, a quarter. The address may lie past the array, where a prefetch
 * does nothing. */
enum { PREFETCH_BYTES = 8192, CACHE_LINE_BYTES = 64 };
#define PREFETCH_AT(p, bytes, distance, locality)                            \
    UNROLLED                                                                 \
    for (size_t in_run_ = 0; in_run_ < (bytes); in_run_ += CACHE_LINE_BYTES) \
    __builtin_prefetch((const void *)((uintptr_t)(p) + (distance) + in_run_), 0, locality)
#define PREFETCH_RUN(p, bytes, distance, locality) \
    if (gpr_cpu_prefetches_runs) PREFETCH_AT(p, bytes, distance, locality)
#define PREFETCH(p, bytes) PREFETCH_RUN(p, bytes, PREFETCH_BYTES, 3)

/* Loops that compute more than they read are not far enough ahead of themselves to keep memory
 * busy, and the first cache has few lines under way at once: what is far ahead goes to the second
 * one, what is near from there to the first. */
enum { PREFETCH_FAR_BYTES = 8192, PREFETCH_NEAR_BYTES = 1024 };
#define PREFETCH_TWICE(p, bytes)                   \
    PREFETCH_RUN(p, bytes, PREFETCH_FAR_BYTES, 2); \
    PREFETCH_RUN(p, bytes, PREFETCH_NEAR_BYTES, 3)

/* ---------------------------------------------------------------- packing -------------------- */

#include "cpu/loops_packing.h"

/* ---------------------------------------------------------------- folds of two values -------- */

/* What a short row starts from: a sum is never -0, as NumPy's is not, because it starts from 0. */
#define START_sum(x) (0 + (x))
#define START_prod(x) (x)
#define START_min(x) (x)
#define START_max(x) (x)
#define START_any(x) (x)
#define START_all(x) (x)
#define START_odd(x) (x)
#define START_count(x) (x)
#define START_bit_and(x) (x)
#define START_bit_or(x) (x)
#define START_bit_xor(x) (x)
#define START_fmin(x) (x)
#define START_fmax(x) (x)

/* The elements' values as they enter the fold. Sums and products of integers are computed unsigned:
 * they wrap. */
#define LIFT_WIDE(x) ((uint64_t)(x))
#define LIFT_BOOL(x) ((uint64_t)((x) != 0))
#define LIFT_DOUBLE(x) ((double)(x))
#define LIFT_SAME(x) (x)
#define LIFT_TRUTH(x) ((uint32_t)((x) != 0))

/* Rows shorter than this are folded one element after the other: a vector loop would be all
 * beginning and end. */
enum { SHORT_ROW = 16 };

#define ACCUMULATOR_DTYPE(ACC) \
    _Generic((ACC)0,           \
        int8_t: GPR_INT8,      \
        uint8_t: GPR_UINT8,    \
        int16_t: GPR_INT16,    \
        uint16_t: GPR_UINT16,  \
        int32_t: GPR_INT32,    \
        uint32_t: GPR_UINT32,  \
        int64_t: GPR_INT64,    \
        uint64_t: GPR_UINT64,  \
        float: GPR_FLOAT32,    \
        double: GPR_FLOAT64)

/* Both shapes of a loop. `run` folds one long row and returns an ACC.
 *   ELEMENT  type of a lifted element, in which SHORT_ROW of them fold
 *   NARROW   type in which ROUND rows of a column fold before they meet the accumulators: as narrow
 *            as it may be, so that a vector holds many columns
 *   LOWER    makes a NARROW value an accumulator's */
#define DEFINE_LOOP(fold, name, T, ACC, ELEMENT, LIFT, NARROW, ROUND, LIFT_NARROW, LOWER) \
    DEFINE_SHORT(fold, name, T, ELEMENT, LIFT)                                            \
    DEFINE_ROWS(fold, name, T, ACC)                                                       \
    DEFINE_COLUMNS(fold, name, T, ACC, NARROW, ROUND, LIFT_NARROW, LOWER)

#define DEFINE_SHORT(fold, name, T, ELEMENT, LIFT)               \
    INLINE ELEMENT short_##fold##_##name(const T *p, uint64_t n) \
    {                                                            \
        ELEMENT value = START_##fold(LIFT(p[0]));                \
        SCALAR_LOOP                                              \
        for (uint64_t i = 1; i < n; i++) {                       \
            const ELEMENT x = LIFT(p[i]);                        \
            value = GPR_COMBINE_##fold(value, x);                \
        }                                                        \
        return value;                                            \
    }

#define DEFINE_ROWS(fold, name, T, ACC)                                                           \
    enum { accumulator_##fold##_##name = ACCUMULATOR_DTYPE(ACC) };                                \
    static void rows_##fold##_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n, \
                                     void *out)                                                   \
    {                                                                                             \
        ACC *accumulators = out;                                                                  \
        if (n >= SHORT_ROW) {                                                                     \
            for (uint64_t r = 0; r < rows; r++)                                                   \
                accumulators[r] =                                                                 \
                    fold##_##name((const T *)(const void *)(data + (int64_t)r * stride), n);      \
        } else {                                                                                  \
            for (uint64_t r = 0; r < rows; r++) {                                                 \
                const T *row = (const T *)(const void *)(data + (int64_t)r * stride);             \
                accumulators[r] = (ACC)short_##fold##_##name(row, n);                             \
            }                                                                                     \
        }                                                                                         \
    }

#include "cpu/loops_columns.h"

/* ---------------------------------------------------------------- integer sums --------------- */

/* Sums `count` values of p in PARTIAL, which holds the sum of BLOCK of them. */
#define DEFINE_SUM_RUN(name, T, PARTIAL, BLOCK)                            \
    INLINE uint64_t sum_##name(const T *p, uint64_t n)                     \
    {                                                                      \
        uint64_t total = 0;                                                \
        while (n > 0) {                                                    \
            const uint64_t count = n < (BLOCK) ? n : (BLOCK);              \
            PARTIAL partial = 0;                                           \
            for (uint64_t i = 0; i < count; i++) partial += (PARTIAL)p[i]; \
            total += (uint64_t)partial;                                    \
            p += count;                                                    \
            n -= count;                                                    \
        }                                                                  \
        return total;                                                      \
    }

/* Numbers of 64 bits, which compilers would add to one vector, each addition waiting for the one
 * before it: their sum, or how many of them are not 0. */
enum { SUM_STREAMS = 4 };
#define WIDE_NUMBER(x) ((vec_u64)(x))
#define WIDE_TRUTH(x) (-(vec_u64)((x) != 0))
#define DEFINE_WIDE_RUN(run, name, T, ADDED, ADDED_SCALAR)                             \
    INLINE uint64_t run##_##name(const T *p, uint64_t n)                               \
    {                                                                                  \
        vec_u64 sums[SUM_STREAMS] = {{0}}, x;                                          \
        uint64_t i = 0, total = 0;                                                     \
        for (; i + SUM_STREAMS * VECTOR_LANES <= n; i += SUM_STREAMS * VECTOR_LANES) { \
            UNROLLED                                                                   \
            for (int k = 0; k < SUM_STREAMS; k++) {                                    \
                memcpy(&x, p + i + k * VECTOR_LANES, sizeof x);                        \
                sums[k] += ADDED(x);                                                   \
            }                                                                          \
        }                                                                              \
        sums[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);                           \
        UNROLLED                                                                       \
        for (int k = 0; k < VECTOR_LANES; k++) total += sums[0][k];                    \
        SCALAR_LOOP                                                                    \
        for (; i < n; i++) total += (uint64_t)ADDED_SCALAR(p[i]);                      \
        return total;                                                                  \
    }

/* Bytes are summed in 16-bit lanes, even and odd ones together, for as many vectors as surely fit;
 * those lanes then go to 32-bit ones the same way. BYTE maps a vector of elements to unsigned
 * bytes. */
enum {
    BYTE_ROUND = 128,   /* vectors: 128 * 2 * 255 < 2^16 */
    BYTE_BLOCK = 16384, /* rounds: 16384 * 2 * (2^16 - 1) < 2^32 */
};

#define DEFINE_BYTE_SUM(name, T, BYTE, SCALAR_BYTE, BIAS)                                          \
    INLINE uint64_t sum_##name(const T *p, uint64_t n)                                             \
    {                                                                                              \
        uint64_t vectors = n / VECTOR_BYTES, total = 0;                                            \
        const T *tail = p + vectors * VECTOR_BYTES;                                                \
        while (vectors > 0) {                                                                      \
            vec_u32 wide = {0};                                                                    \
            for (int round = 0; round < BYTE_BLOCK && vectors > 0; round++) {                      \
                const uint64_t count = vectors < BYTE_ROUND ? vectors : BYTE_ROUND;                \
                vec_u16 lanes = {0};                                                               \
                for (uint64_t i = 0; i < count; i++) {                                             \
                    vec_u8 bytes;                                                                  \
                    vec_u16 pairs;                                                                 \
                    memcpy(&bytes, p + i * VECTOR_BYTES, VECTOR_BYTES);                            \
                    pairs = (vec_u16)(BYTE(bytes));                                                \
                    lanes += (pairs & 0xff) + (pairs >> 8);                                        \
                }                                                                                  \
                wide += ((vec_u32)lanes & 0xffff) + ((vec_u32)lanes >> 16);                        \
                p += count * VECTOR_BYTES;                                                         \
                vectors -= count;                                                                  \
            }                                                                                      \
            for (size_t k = 0; k < VECTOR_BYTES / 4; k++) total += wide[k];                        \
        }                                                                                          \
        for (uint64_t i = 0; i < n % VECTOR_BYTES; i++) total += (uint64_t)(SCALAR_BYTE(tail[i])); \
        return total - (uint64_t)(BIAS) * n;                                                       \
    }

#define BYTE_SAME(x) (x)
#define BYTE_FLIP(x) ((x) ^ 0x80)
#define BYTE_FLIP_SCALAR(x) ((uint8_t)(x) ^ 0x80)
#define BYTE_TRUTH(x) ((vec_u8)((x) != 0) & 1)
#define BYTE_TRUTH_SCALAR(x) ((x) != 0)

/* ---------------------------------------------------------------- products ------------------- */

/* Independent products, because a multiplication takes several times longer than the next one
 * waits to start. */
#define DEFINE_PROD_RUN(name, T)                                                      \
    INLINE uint64_t prod_##name(const T *p, uint64_t n)                               \
    {                                                                                 \
        enum { LANES = 16 };                                                          \
        uint64_t lanes[LANES], i = 0, total = 1;                                      \
        for (int k = 0; k < LANES; k++) lanes[k] = 1;                                 \
        for (; i + LANES <= n; i += LANES)                                            \
            for (int k = 0; k < LANES; k++) lanes[k] *= (uint64_t)p[i + (uint64_t)k]; \
        for (int k = 0; k < LANES; k++) total *= lanes[k];                            \
        for (; i < n; i++) total *= (uint64_t)p[i];                                   \
        return total;                                                                 \
    }

/* ---------------------------------------------------------------- float sums and products ---- */

/* Doubles in SUM_LANES lanes, folded to one as a tree at the end. A lane takes SUM_CHAIN elements
 * in a row; longer runs are folded by halves, lane by lane, so that the rounding error grows with
 * the logarithm of the length: no more additions follow each other than in NumPy's pairwise
 * sums. */
enum {
    SUM_LANES = 32,
    SUM_CHAIN = 16,
    SUM_BLOCK = SUM_LANES * SUM_CHAIN,
    LANE_VECTORS = SUM_LANES * 8 / VECTOR_BYTES,
    VECTOR_LANES = VECTOR_BYTES / 8
};

typedef struct lanes_f64 {
    vec_f64 v[LANE_VECTORS];
} lanes_f64;

INLINE vec_f64 load_f64(const double *p)
{
    vec_f64 value;

    memcpy(&value, p, sizeof value);
    return value;
}

#ifndef WIDEN_F32
typedef float half_vec_f32 __attribute__((vector_size(VECTOR_BYTES / 2)));

INLINE vec_f64 load_f32_wide(const float *p)
{
    half_vec_f32 value;

    memcpy(&value, p, sizeof value);
    return __builtin_convertvector(value, vec_f64);
}
#define WIDEN_F32(p) load_f32_wide(p)
#endif

/* Even lanes a, odd lanes b: lanes alternate between the parts of complex numbers. */
INLINE vec_f64 alternate(double a, double b)
{
    vec_f64 value;

    UNROLLED
    for (int k = 0; k < VECTOR_LANES; k++) value[k] = k % 2 == 0 ? a : b;
    return value;
}

/* Which lanes are parts of complex numbers of which neither is NaN. */
#ifndef SWAP_PARTS
#define SWAP_PARTS(x) ((vec_f64){(x)[1], (x)[0]})
#define EVEN_PARTS(x) ((vec_f64){(x)[0], (x)[0]})
#define ODD_PARTS(x) ((vec_f64){(x)[1], (x)[1]})
#endif
/* Of each 16 bytes of both vectors the even lanes, and the odd ones: parts of complex numbers in
 * vectors of their own, and these as numbers again. */
#ifndef EVEN_OF_PAIRS
#define EVEN_OF_PAIRS(x, y) ((vec_f64){(x)[0], (y)[0]})
#define ODD_OF_PAIRS(x, y) ((vec_f64){(x)[1], (y)[1]})
#endif
INLINE vec_i64 whole_pairs(vec_f64 x)
{
    const vec_f64 other = SWAP_PARTS(x);

    return (vec_i64)(x == x) & (vec_i64)(other == other);
}

#define GPR_COMBINE_skipping_sum GPR_COMBINE_sum
#define GPR_COMBINE_skipping_pairs GPR_COMBINE_sum
#define GPR_COMBINE_skipping_prod GPR_COMBINE_prod

/* The next value of a lane `acc` with the next number x; `c` is the caller's constant for that
 * lane. */
#define STEP_sum(acc, x, c) ((acc) + (x))
#define STEP_prod(acc, x, c) ((acc) * (x))
#define STEP_squares(acc, x, c) ((acc) + ((x) - (c)) * ((x) - (c)))
#define STEP_distances(acc, x, c) ((acc) + ((x) - (c)))
#define STEP_skipping_sum(acc, x, c) ((acc) + (vec_f64)((vec_i64)(x) & ((x) == (x))))
#define STEP_skipping_pairs(acc, x, c) ((acc) + (vec_f64)((vec_i64)(x) & whole_pairs(x)))
#define STEP_skipping_prod(acc, x, c) \
    ((acc) * (vec_f64)(((vec_i64)(x) & ((x) == (x))) | ((vec_i64)(c) & ((x) != (x)))))

/* A number as LOAD reads it, and those that LOAD reads, but not uses, behind the last one. */
#define TAIL_float32(p, i) ((p)[i])
#define TAIL_float64(p, i) ((p)[i])
#define BEHIND_float32 0
#define BEHIND_float64 0

/* A run's numbers folded to lanes. COMBINE is the fold of two lanes, IDENTITY its own. `given` is
 * for STEP, and stands in for the numbers that are missing from the last step of all lanes. */
#define DEFINE_LANES(run, name, T, LOAD, COMBINE, IDENTITY)                               \
    static void lanes_##run##_##name(const T *p, uint64_t n, const double given[2],       \
                                     lanes_f64 *out)                                      \
    {                                                                                     \
        const vec_f64 c = alternate(given[0], given[1]);                                  \
        (void)c; /* not every STEP reads it */                                            \
        uint64_t i = 0;                                                                   \
        if (n > SUM_BLOCK) {                                                              \
            const uint64_t left = (n + SUM_BLOCK - 1) / SUM_BLOCK / 2 * SUM_BLOCK;        \
            lanes_f64 right;                                                              \
            lanes_##run##_##name(p, left, given, out);                                    \
            lanes_##run##_##name(p + left, n - left, given, &right);                      \
            UNROLLED                                                                      \
            for (int k = 0; k < LANE_VECTORS; k++)                                        \
                out->v[k] = GPR_COMBINE_##COMBINE(out->v[k], right.v[k]);                 \
            return;                                                                       \
        }                                                                                 \
        vec_f64 acc[LANE_VECTORS];                                                        \
        UNROLLED                                                                          \
        for (int k = 0; k < LANE_VECTORS; k++) acc[k] = (vec_f64){0} + IDENTITY;          \
        for (; i + SUM_LANES + BEHIND_##name <= n; i += SUM_LANES) {                      \
            if (!BEHIND_##name) PREFETCH(p + i, SUM_LANES * sizeof(T));                   \
            UNROLLED                                                                      \
            for (int k = 0; k < LANE_VECTORS; k++) {                                      \
                const vec_f64 x = (vec_f64)LOAD(p + i + k * VECTOR_LANES);                \
                acc[k] = STEP_##run(acc[k], x, c);                                        \
            }                                                                             \
        }                                                                                 \
        UNROLLED                                                                          \
        for (int k = 0; k < LANE_VECTORS && i < n; k++) { /* the rest, c behind it */     \
            const uint64_t at = i + (uint64_t)(k * VECTOR_LANES);                         \
            vec_f64 x = c;                                                                \
            if (at + VECTOR_LANES + BEHIND_##name <= n) {                                 \
                x = (vec_f64)LOAD(p + at);                                                \
            } else if (at < n) {                                                          \
                double rest[VECTOR_LANES];                                                \
                for (uint64_t e = 0; e < VECTOR_LANES; e++)                               \
                    rest[e] = at + e < n ? (double)TAIL_##name(p, at + e) : given[e % 2]; \
                x = load_f64(rest);                                                       \
            }                                                                             \
            acc[k] = STEP_##run(acc[k], x, c);                                            \
        }                                                                                 \
        UNROLLED                                                                          \
        for (int k = 0; k < LANE_VECTORS; k++) out->v[k] = acc[k];                        \
    }

/* Folds lanes to `left` of them, 1 or 2. Lanes pair up at the same distances whether they share
 * a vector or not. */
#define DEFINE_COMBINE_LANES(COMBINE)                                                 \
    INLINE void combine_lanes_##COMBINE(lanes_f64 *lanes, int left, double *out)      \
    {                                                                                 \
        double last[VECTOR_LANES];                                                    \
        UNROLLED                                                                      \
        for (int half = LANE_VECTORS / 2; half > 0; half /= 2) {                      \
            UNROLLED                                                                  \
            for (int k = 0; k < half; k++)                                            \
                lanes->v[k] = GPR_COMBINE_##COMBINE(lanes->v[k], lanes->v[k + half]); \
        }                                                                             \
        memcpy(last, &lanes->v[0], sizeof last);                                      \
        UNROLLED                                                                      \
        for (int half = VECTOR_LANES / 2; half > 0; half /= 2) {                      \
            if (half < left) break;                                                   \
            UNROLLED                                                                  \
            for (int k = 0; k < half; k++)                                            \
                last[k] = GPR_COMBINE_##COMBINE(last[k], last[k + half]);             \
        }                                                                             \
        for (int k = 0; k < left; k++) out[k] = last[k];                              \
    }
DEFINE_COMBINE_LANES(sum)
DEFINE_COMBINE_LANES(prod)

#define DEFINE_DOUBLE_RUN(run, name, T, LOAD, COMBINE, IDENTITY) \
    DEFINE_LANES(run, name, T, LOAD, COMBINE, IDENTITY)          \
    INLINE double run##_##name(const T *p, uint64_t n)           \
    {                                                            \
        const double given[2] = {IDENTITY, IDENTITY};            \
        double folded;                                           \
        lanes_f64 lanes;                                         \
        lanes_##run##_##name(p, n, given, &lanes);               \
        combine_lanes_##COMBINE(&lanes, 1, &folded);             \
        return folded;                                           \
    }

/* Sums of rows of a few vectors: eight lanes whatever the width of a vector, and no more additions
 * in a row than NumPy makes. What is missing from the last eight elements was added before. */
enum { FEW_LANES = 8, FEW_ELEMENTS = 128, FEW_VECTORS = FEW_LANES / VECTOR_LANES };
static const int64_t last_lanes[2 * FEW_LANES] = {[8] = -1, -1, -1, -1, -1, -1, -1, -1};

INLINE double sum_of_few(vec_f64 acc[FEW_VECTORS])
{
    typedef double two_f64 __attribute__((vector_size(2 * sizeof(double))));
    two_f64 twos[VECTOR_LANES / 2];

    UNROLLED
    for (int half = FEW_VECTORS / 2; half > 0; half /= 2) {
        UNROLLED
        for (int k = 0; k < half; k++) acc[k] += acc[k + half];
    }
    memcpy(twos, &acc[0], sizeof twos);
    UNROLLED
    for (int half = VECTOR_LANES / 4; half > 0; half /= 2) {
        UNROLLED
        for (int k = 0; k < half; k++) twos[k] += twos[k + half];
    }
    return twos[0][0] + twos[0][1];
}

#define DEFINE_DOUBLE_SUM(run, name, T, LOAD)                                     \
    INLINE double few_##run##_##name(const T *p, uint64_t n)                      \
    {                                                                             \
        const vec_f64 c = {0};                                                    \
        vec_f64 acc[FEW_VECTORS];                                                 \
        uint64_t i = 0;                                                           \
        (void)c; /* not every STEP asks for it */                                 \
        UNROLLED                                                                  \
        for (int k = 0; k < FEW_VECTORS; k++) acc[k] = c;                         \
        for (; i + FEW_LANES <= n; i += FEW_LANES) {                              \
            UNROLLED                                                              \
            for (int k = 0; k < FEW_VECTORS; k++) {                               \
                const vec_f64 x = (vec_f64)LOAD(p + i + k * VECTOR_LANES);        \
                acc[k] = STEP_##run(acc[k], x, c);                                \
            }                                                                     \
        }                                                                         \
        UNROLLED                                                                  \
        for (int k = 0; k < FEW_VECTORS && i < n; k++) {                          \
            vec_f64 x = (vec_f64)LOAD(p + n - FEW_LANES + k * VECTOR_LANES);      \
            vec_i64 left;                                                         \
            memcpy(&left, last_lanes + (n - i) + k * VECTOR_LANES, sizeof left);  \
            x = (vec_f64)((vec_i64)x & left);                                     \
            acc[k] = STEP_##run(acc[k], x, c);                                    \
        }                                                                         \
        return sum_of_few(acc);                                                   \
    }                                                                             \
    DEFINE_LANES(run, name, T, LOAD, sum, 0.0)                                    \
    INLINE double run##_##name(const T *p, uint64_t n)                            \
    {                                                                             \
        const double given[2] = {0, 0};                                           \
        double folded;                                                            \
        lanes_f64 lanes;                                                          \
        if (n >= FEW_LANES && n <= FEW_ELEMENTS) return few_##run##_##name(p, n); \
        lanes_##run##_##name(p, n, given, &lanes);                                \
        combine_lanes_sum(&lanes, 1, &folded);                                    \
        return folded;                                                            \
    }

/* Sums of few elements in four chains: no more additions in a row than NumPy makes. */
#define DEFINE_SHORT_SUM(run, name, T, LIFT)                   \
    INLINE double short_##run##_##name(const T *p, uint64_t n) \
    {                                                          \
        double a = 0, b = 0, c = 0, d = 0;                     \
        uint64_t i = 0;                                        \
        SCALAR_LOOP                                            \
        for (; i + 4 <= n; i += 4) {                           \
            a += LIFT(p[i]);                                   \
            b += LIFT(p[i + 1]);                               \
            c += LIFT(p[i + 2]);                               \
            d += LIFT(p[i + 3]);                               \
        }                                                      \
        if (i < n) a += LIFT(p[i]);                            \
        if (i + 1 < n) b += LIFT(p[i + 1]);                    \
        if (i + 2 < n) c += LIFT(p[i + 2]);                    \
        return (a + b) + (c + d);                              \
    }

/* Sums of every second float64, and of both parts of every second complex128: the bits of sums of
 * copies without gaps. Of more than FEW_ELEMENTS numbers. */
typedef struct gapped_float64 {
    double number, gap;
} gapped_float64;
typedef gapped_float64 gapped_complex128; /* as far from a part to the next but one */
#define TAIL_gapped_float64(p, i) ((p)[i].number)
#define TAIL_gapped_complex128(p, i) ((i) % 2 == 0 ? (p)[i].number : (p)[(i) - 1].gap)
#define BEHIND_gapped_float64 1
#define BEHIND_gapped_complex128 1
INLINE vec_f64 load_gapped(const gapped_float64 *p, int is_complex)
{
    vec_u64 x, y;

    memcpy(&x, p, sizeof x);
    memcpy(&y, (const char *)p + sizeof x, sizeof y);
    return is_complex ? (vec_f64)EVEN_LANES_16(x, y) : (vec_f64)EVEN_LANES_8(x, y);
}
#define LOAD_GAPPED(p) load_gapped(p, 0)
#define LOAD_GAPPED_UNORDERED(p) \
    EVEN_OF_PAIRS(load_f64((const double *)(p)), load_f64((const double *)(p) + VECTOR_LANES))
#define LOAD_GAPPED_PAIRS(p) load_gapped(p, 1)
#define DEFINE_GAPPED_SUM(name, LOAD, PARTS)                                \
    DEFINE_LANES(sum, gapped_##name, gapped_##name, LOAD, sum, 0.0)         \
    static void sum_gapped_##name(const void *data, uint64_t n, void *sums) \
    {                                                                       \
        const double zero[2] = {0, 0};                                      \
        lanes_f64 lanes;                                                    \
        lanes_sum_gapped_##name(data, (PARTS) * n, zero, &lanes);           \
        combine_lanes_sum(&lanes, PARTS, sums);                             \
    }
DEFINE_GAPPED_SUM(float64, LOAD_GAPPED, 1)
DEFINE_GAPPED_SUM(complex128, LOAD_GAPPED_PAIRS, 2)

/* Every second 64-bit integer, where there are instructions for extremes: a copy and a loop for it
 * would wait for memory and for each other. */
#ifdef HAS_INTEGER_VOCABULARY
#define VECTOR_SUM(x, y) ((x) + (y))
#define DEFINE_GAPPED_INTEGERS(fold, name, T, COMBINE)                                             \
    static void fold##_gapped_##name(const void *data, uint64_t n, void *result)                   \
    {                                                                                              \
        enum { CHAINS = 4 };                                                                       \
        typedef T elements __attribute__((vector_size(VECTOR_BYTES)));                             \
        const gapped_float64 *p = data;                                                            \
        elements folded[CHAINS];                                                                   \
        T all, x;                                                                                  \
        uint64_t i = CHAINS * VECTOR_LANES;                                                        \
        UNROLLED                                                                                   \
        for (int k = 0; k < CHAINS; k++) folded[k] = (elements)LOAD_GAPPED(p + k * VECTOR_LANES);  \
        for (; i + CHAINS * VECTOR_LANES < n; i += CHAINS * VECTOR_LANES) {                        \
            UNROLLED                                                                               \
            for (int k = 0; k < CHAINS; k++)                                                       \
                folded[k] =                                                                        \
                    (elements)COMBINE(folded[k], (elements)LOAD_GAPPED(p + i + k * VECTOR_LANES)); \
        }                                                                                          \
        for (; i + VECTOR_LANES < n; i += VECTOR_LANES)                                            \
            folded[0] = (elements)COMBINE(folded[0], (elements)LOAD_GAPPED(p + i));                \
        UNROLLED                                                                                   \
        for (int k = 1; k < CHAINS; k++) folded[0] = (elements)COMBINE(folded[0], folded[k]);      \
        all = folded[0][0];                                                                        \
        UNROLLED                                                                                   \
        for (int k = 1; k < VECTOR_LANES; k++) {                                                   \
            x = folded[0][k];                                                                      \
            all = (T)GPR_COMBINE_##fold(all, x);                                                   \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            memcpy(&x, &p[i].number, sizeof x);                                                    \
            all = (T)GPR_COMBINE_##fold(all, x);                                                   \
        }                                                                                          \
        memcpy(result, &all, sizeof all);                                                          \
    }
DEFINE_GAPPED_INTEGERS(min, int64, int64_t, VECTOR_min_int64)
DEFINE_GAPPED_INTEGERS(max, int64, int64_t, VECTOR_max_int64)
DEFINE_GAPPED_INTEGERS(min, uint64, uint64_t, VECTOR_min_uint64)
DEFINE_GAPPED_INTEGERS(max, uint64, uint64_t, VECTOR_max_uint64)
DEFINE_GAPPED_INTEGERS(sum, uint64, uint64_t, VECTOR_SUM)
#define GAPPED_INTEGERS(fold) [GPR_INT64] = fold##_gapped_int64, [GPR_UINT64] = fold##_gapped_uint64
#define sum_gapped_int64 sum_gapped_uint64 /* modulo 2^64 */
#endif

#include "cpu/loops_moments.h"

/* ---------------------------------------------------------------- minima and maxima ---------- */

#ifdef HAS_INTEGER_VOCABULARY
/* Eight vectors are folded to one before the next comparison waits for it, in the order of memory.
 * The last vector may take elements a second time. */
#define DEFINE_INT_EXTREME_RUN(fold, name, T)                                                \
    INLINE T fold##_##name(const T *p, uint64_t n)                                           \
    {                                                                                        \
        enum { LANES = VECTOR_BYTES / sizeof(T), VECTORS = 8 };                              \
        typedef T elements __attribute__((vector_size(VECTOR_BYTES)));                       \
        elements best, x[VECTORS];                                                           \
        T one = p[0];                                                                        \
        uint64_t i = 0;                                                                      \
        if (n < VECTORS * LANES) {                                                           \
            for (; i < n; i++) one = GPR_COMBINE_##fold(p[i], one);                          \
            return one;                                                                      \
        }                                                                                    \
        memcpy(&best, p, sizeof best);                                                       \
        for (; i + VECTORS * LANES <= n; i += VECTORS * LANES) {                             \
            PREFETCH(p + i, sizeof x);                                                       \
            UNROLLED                                                                         \
            for (int k = 0; k < VECTORS; k++) memcpy(&x[k], p + i + k * LANES, sizeof x[k]); \
            FOLD_TO_FIRST(x, VECTORS, VECTOR_##fold##_##name);                               \
            best = (elements)VECTOR_##fold##_##name(x[0], best);                             \
        }                                                                                    \
        for (; i < n; i += LANES) {                                                          \
            memcpy(&x[0], p + (i + LANES <= n ? i : n - LANES), sizeof x[0]);                \
            best = (elements)VECTOR_##fold##_##name(x[0], best);                             \
        }                                                                                    \
        UNROLLED                                                                             \
        for (size_t apart = sizeof(T); apart < VECTOR_BYTES; apart *= 2)                     \
            best = (elements)VECTOR_##fold##_##name(EXCHANGE_LANES(best, apart), best);      \
        return best[0];                                                                      \
    }
#else
/* Four chains at once, because a vector minimum takes longer than the next one waits to start: each
 * reads a part of the run, because the processor fetches ahead in each, which together bring in
 * more than one from main memory. In a run of up to a few thousand bytes it does not get ahead:
 * what is behind, often the next run, is fetched meanwhile. */
enum { FETCHED_BYTES = 4096 };
INLINE void fetch_behind(const void *run, uint64_t bytes)
{
    if (bytes > FETCHED_BYTES) return;
    for (uint64_t ahead = 0; ahead < bytes; ahead += CACHE_LINE_BYTES)
        __builtin_prefetch((const void *)((uintptr_t)run + bytes + ahead), 0, 3);
}

#define DEFINE_INT_EXTREME_RUN(fold, name, T)                                       \
    INLINE T fold##_##name(const T *p, uint64_t n)                                  \
    {                                                                               \
        const uint64_t lanes = VECTOR_BYTES / sizeof(T);                            \
        const uint64_t quarter = n < 16 * lanes ? 0 : n / (4 * lanes) * lanes;      \
        const T *q = p + quarter, *r = q + quarter, *s = r + quarter;               \
        T a = p[0], b = a, c = a, d = a;                                            \
        if (quarter > 0) fetch_behind(p, n * sizeof(T));                            \
        for (uint64_t i = 0; i < quarter; i++) {                                    \
            a = GPR_COMBINE_##fold(p[i], a);                                        \
            b = GPR_COMBINE_##fold(q[i], b);                                        \
            c = GPR_COMBINE_##fold(r[i], c);                                        \
            d = GPR_COMBINE_##fold(s[i], d);                                        \
        }                                                                           \
        for (uint64_t i = 4 * quarter; i < n; i++) a = GPR_COMBINE_##fold(p[i], a); \
        a = GPR_COMBINE_##fold(a, b);                                               \
        c = GPR_COMBINE_##fold(c, d);                                               \
        return (T)GPR_COMBINE_##fold(a, c);                                         \
    }
#endif

/* The floating vocabulary. EXTREME_<fold>_<type>(x, a) is the smaller or larger lane by lane, and
 * may return either where one is NaN; UNORDERED flags lanes where x or y is NaN, so that one test
 * serves two vectors. */
#ifndef HAS_FLOAT_VOCABULARY
typedef vec_i32 flag_f32;
typedef vec_i64 flag_f64;
#define SELECT(M, V, mask, x, a) ((V)(((M)(x) & (mask)) | ((M)(a) & ~(mask))))
#define EXTREME_min_f32(x, a) SELECT(vec_i32, vec_f32, (x) < (a), x, a)
#define EXTREME_max_f32(x, a) SELECT(vec_i32, vec_f32, (x) > (a), x, a)
#define EXTREME_min_f64(x, a) SELECT(vec_i64, vec_f64, (x) < (a), x, a)
#define EXTREME_max_f64(x, a) SELECT(vec_i64, vec_f64, (x) > (a), x, a)
#define UNORDERED_f32(flag, x, y) ((flag) | ((x) != (x)) | ((y) != (y)))
#define UNORDERED_f64(flag, x, y) ((flag) | ((x) != (x)) | ((y) != (y)))
#define NO_FLAG {0}
INLINE int is_flagged_f32(flag_f32 flag)
{
    int32_t any = 0;

    for (size_t k = 0; k < VECTOR_BYTES / 4; k++) any |= flag[k];
    return any != 0;
}
INLINE int is_flagged_f64(flag_f64 flag)
{
    int64_t any = 0;

    for (size_t k = 0; k < VECTOR_BYTES / 8; k++) any |= flag[k];
    return any != 0;
}
#endif

/* Vectors of a step follow each other where runs are short, and in a cache mostly; long runs are
 * read in as many parts side by side. `apart` is from one vector to the next, `advance` from one
 * step to the next. */
enum { EXTREME_VECTORS = 4, PARTED_BYTES = 64 * 1024 };
typedef struct extreme_steps {
    uint64_t count, apart, advance;
} extreme_steps;

INLINE extreme_steps steps_of(uint64_t n, size_t bytes)
{
    const uint64_t lanes = VECTOR_BYTES / bytes, count = n / (lanes * EXTREME_VECTORS);

    if (n * bytes < PARTED_BYTES) return (extreme_steps){count, lanes, lanes * EXTREME_VECTORS};
    return (extreme_steps){count, count * lanes, lanes};
}

/* NaN is detected beside the comparisons, so that these are the processor's own minimum: no branch
 * to mispredict. With SKIP, NaN never enters an accumulator, which starts as IDENTITY; a result
 * that is IDENTITY is searched for among the elements, and is NaN if there is nothing but NaN. */
#define DEFINE_FLOAT_EXTREME_RUN(run, fold, name, T, tag, BETTER, SKIP, IDENTITY)                 \
    INLINE T extreme_##run##_##name(const T *p, uint64_t n, T value)                              \
    {                                                                                             \
        if (!(SKIP) || value != (T)IDENTITY) return value;                                        \
        for (uint64_t i = 0; i < n; i++)                                                          \
            if (p[i] == value) return value;                                                      \
        return (T)NAN;                                                                            \
    }                                                                                             \
    INLINE T short_##run##_##name(const T *p, uint64_t n)                                         \
    {                                                                                             \
        T value = (SKIP) ? (T)IDENTITY : p[0];                                                    \
        int unordered = p[0] != p[0];                                                             \
        SCALAR_LOOP                                                                               \
        for (uint64_t i = !(SKIP); i < n; i++) {                                                  \
            const T x = p[i];                                                                     \
            unordered |= x != x;                                                                  \
            value = x BETTER value ? x : value;                                                   \
        }                                                                                         \
        return unordered && !(SKIP) ? (T)NAN : extreme_##run##_##name(p, n, value);               \
    }                                                                                             \
    INLINE T run##_##name(const T *p, uint64_t n)                                                 \
    {                                                                                             \
        enum { LANES = VECTOR_BYTES / sizeof(T) };                                                \
        const extreme_steps steps = steps_of(n, sizeof(T));                                       \
        vec_##tag acc[EXTREME_VECTORS], x[EXTREME_VECTORS];                                       \
        flag_##tag flag = NO_FLAG;                                                                \
        T lanes[LANES];                                                                           \
        uint64_t i = 0;                                                                           \
        if (n < LANES) return short_##run##_##name(p, n);                                         \
        memcpy(&acc[0], p, sizeof acc[0]);                                                        \
        if (SKIP) acc[0] = (vec_##tag){0} + (T)IDENTITY;                                          \
        UNROLLED                                                                                  \
        for (int k = 1; k < EXTREME_VECTORS; k++) acc[k] = acc[0];                                \
        for (uint64_t step = 0; step < steps.count; step++, i += steps.advance) {                 \
            UNROLLED                                                                              \
            for (int k = 0; k < EXTREME_VECTORS; k++)                                             \
                memcpy(&x[k], p + i + k * steps.apart, sizeof x[k]);                              \
            UNROLLED                                                                              \
            for (int k = 0; k < EXTREME_VECTORS; k++)                                             \
                acc[k] = (vec_##tag)EXTREME_##fold##_##tag(x[k], acc[k]);                         \
            if (SKIP) continue;                                                                   \
            UNROLLED                                                                              \
            for (int k = 0; k < EXTREME_VECTORS; k += 2)                                          \
                flag = UNORDERED_##tag(flag, x[k], x[k + 1]);                                     \
        }                                                                                         \
        i = steps.count * EXTREME_VECTORS * LANES;                                                \
        /* The last vector may take elements a second time: that changes no extreme. */           \
        for (; i < n; i += LANES) {                                                               \
            memcpy(&x[0], p + (i + LANES <= n ? i : n - LANES), sizeof x[0]);                     \
            acc[0] = (vec_##tag)EXTREME_##fold##_##tag(x[0], acc[0]);                             \
            flag = UNORDERED_##tag(flag, x[0], x[0]);                                             \
        }                                                                                         \
        UNROLLED                                                                                  \
        for (int k = 1; k < EXTREME_VECTORS; k++)                                                 \
            acc[0] = (vec_##tag)EXTREME_##fold##_##tag(acc[0], acc[k]);                           \
        memcpy(lanes, &acc[0], sizeof lanes);                                                     \
        UNROLLED                                                                                  \
        for (int half = LANES / 2; half > 0; half /= 2) {                                         \
            UNROLLED                                                                              \
            for (int k = 0; k < half; k++)                                                        \
                lanes[k] = lanes[k] BETTER lanes[k + half] ? lanes[k] : lanes[k + half];          \
        }                                                                                         \
        return is_flagged_##tag(flag) && !SKIP ? (T)NAN : extreme_##run##_##name(p, n, lanes[0]); \
    }

#include "cpu/loops_positions.h"

/* ---------------------------------------------------------------- counts and bits ------------ */

/* LANE counts BLOCK elements. */
#define DEFINE_COUNT_RUN(run, name, T, COUNTED, LANE, BLOCK)                         \
    INLINE uint64_t run##_##name(const T *p, uint64_t n)                             \
    {                                                                                \
        uint64_t total = 0;                                                          \
        while (n > 0) {                                                              \
            const uint64_t some = n < (BLOCK) ? n : (BLOCK);                         \
            LANE lane = 0;                                                           \
            for (uint64_t i = 0; i < some; i++) lane = (LANE)(lane + COUNTED(p[i])); \
            total += lane;                                                           \
            p += some;                                                               \
            n -= some;                                                               \
        }                                                                            \
        return total;                                                                \
    }

/* An odd number of true elements is their number's last bit. NARROW counts ROUND of a column's. */
#define DEFINE_COUNTS(name, T, NARROW, ROUND)                                                \
    INLINE uint8_t odd_##name(const T *p, uint64_t n)                                        \
    {                                                                                        \
        return (uint8_t)(count_##name(p, n) & 1);                                            \
    }                                                                                        \
    DEFINE_LOOP(count, name, T, uint64_t, uint64_t, LIFT_BOOL, NARROW, ROUND, SAW_NOT_ZERO,  \
                LOWER_SAME)                                                                  \
    DEFINE_LOOP(odd, name, T, uint8_t, uint32_t, LIFT_TRUTH, NARROW, ANY_ROWS, SAW_NOT_ZERO, \
                LOWER_SAME)

#define DEFINE_BITS_RUN(fold, name, T)                                               \
    INLINE T fold##_##name(const T *p, uint64_t n)                                   \
    {                                                                                \
        T value = p[0];                                                              \
        for (uint64_t i = 1; i < n; i++) value = (T)GPR_COMBINE_##fold(value, p[i]); \
        return value;                                                                \
    }                                                                                \
    DEFINE_LOOP(fold, name, T, T, T, LIFT_SAME, T, ANY_ROWS, LIFT_SAME, LOWER_SAME)

#define DEFINE_BITS(name, T)          \
    DEFINE_BITS_RUN(bit_and, name, T) \
    DEFINE_BITS_RUN(bit_or, name, T)  \
    DEFINE_BITS_RUN(bit_xor, name, T)

/* ---------------------------------------------------------------- any and all ---------------- */

/* A run stops at the first block that decides it; the first block is short, since the first
 * elements often do. */
enum { FIRST_TRUTH_BYTES = 256, TRUTH_BLOCK_BYTES = 8192 };

/* LOOK sets `seen`: not zero if one of the `count` elements from p on decides. */
#define DEFINE_TRUTH_BLOCKS(fold, name, T, LOOK, DECIDED) \
    INLINE uint8_t fold##_##name(const T *p, uint64_t n)  \
    {                                                     \
        uint64_t block = FIRST_TRUTH_BYTES / sizeof(T);   \
        while (n > 0) {                                   \
            const uint64_t count = n < block ? n : block; \
            LOOK;                                         \
            if (seen != 0) return DECIDED;                \
            p += count;                                   \
            n -= count;                                   \
            block = TRUTH_BLOCK_BYTES / sizeof(T);        \
        }                                                 \
        return !DECIDED;                                  \
    }

/* SAW(x) is OR-ed over a block: not zero if the element decides. */
#define OR_OF_BLOCK(BITS, SAW) \
    BITS seen = 0;             \
    for (uint64_t i = 0; i < count; i++) seen |= (BITS)SAW(p[i])
#define DEFINE_TRUTH_RUN(fold, name, T, BITS, SAW, DECIDED) \
    DEFINE_TRUTH_BLOCKS(fold, name, T, OR_OF_BLOCK(BITS, SAW), DECIDED)

#define SAW_BITS(x) (x)
#define SAW_NOT_ZERO(x) ((x) != 0)
#define SAW_ZERO(x) ((x) == 0)

/* Whether all of n bytes are not 0. The least of four vectors waits for that of those before them
 * once, where a loop would compare each and wait for it. Vectors at the end may take bytes a second
 * time. */
#ifdef HAS_INTEGER_VOCABULARY
INLINE uint8_t are_bytes_true(const uint8_t *p, uint64_t n)
{
    enum { VECTORS = 4 };
    const vec_u8 zero = {0};
    vec_u8 least = zero + UINT8_MAX, x[VECTORS];
    uint64_t i = 0, any = 0;

    for (; i + sizeof x <= n; i += sizeof x) {
        UNROLLED
        for (int k = 0; k < VECTORS; k++) memcpy(&x[k], p + i + k * VECTOR_BYTES, sizeof x[k]);
        x[0] = (vec_u8)VECTOR_min_uint8(x[0], x[1]);
        x[2] = (vec_u8)VECTOR_min_uint8(x[2], x[3]);
        least = (vec_u8)VECTOR_min_uint8(least, VECTOR_min_uint8(x[0], x[2]));
    }
    for (; i < n && n >= VECTOR_BYTES; i += VECTOR_BYTES) {
        memcpy(&x[0], p + (i + VECTOR_BYTES <= n ? i : n - VECTOR_BYTES), sizeof x[0]);
        least = (vec_u8)VECTOR_min_uint8(least, x[0]);
    }
    for (; i < n; i++) any |= p[i] == 0;
    return VECTOR_MATCHES(1, least, zero) == 0 && any == 0;
}
#define FALSE_IN_BLOCK const int seen = !are_bytes_true((const uint8_t *)(const void *)p, count)
#define DEFINE_ALL_OF_BYTES(name, T) DEFINE_TRUTH_BLOCKS(all, name, T, FALSE_IN_BLOCK, 0)
#else
#define DEFINE_ALL_OF_BYTES(name, T) DEFINE_TRUTH_RUN(all, name, T, T, SAW_ZERO, 0)
#endif

/* ---------------------------------------------------------------- all loops of a dtype ------- */

#define LOWER_WIDE(x) ((int64_t)(x))
#define LOWER_SAME(x) (x)
#define LOWER_TRUTH(x) ((x) != 0)
#define ANY_ROWS UINT64_MAX /* a ROUND that never ends */

#define DEFINE_TRUTH(name, T, BITS, SAW_ANY)          \
    DEFINE_TRUTH_RUN(any, name, T, BITS, SAW_ANY, 1)  \
    DEFINE_TRUTH_RUN(all, name, T, BITS, SAW_ZERO, 0) \
    DEFINE_TRUTH_LOOPS(name, T, BITS, SAW_ANY)
#define DEFINE_TRUTH_LOOPS(name, T, BITS, SAW_ANY)                                                 \
    DEFINE_LOOP(any, name, T, uint8_t, uint32_t, LIFT_TRUTH, BITS, ANY_ROWS, SAW_ANY, LOWER_TRUTH) \
    DEFINE_LOOP(all, name, T, uint8_t, uint32_t, LIFT_TRUTH, BITS, ANY_ROWS, SAW_NOT_ZERO,         \
                LOWER_TRUTH)

/* 16-bit floats are true if any bit but the sign is. */
#define SAW_MAGNITUDE(x) ((uint16_t)((x) << 1))
#define SAW_SOME_MAGNITUDE(x) (SAW_MAGNITUDE(x) != 0)
#define SAW_NO_MAGNITUDE(x) (SAW_MAGNITUDE(x) == 0)
#define LIFT_MAGNITUDE_TRUTH(x) ((uint32_t)SAW_SOME_MAGNITUDE(x))
DEFINE_TRUTH_RUN(any, float_of_16, uint16_t, uint16_t, SAW_MAGNITUDE, 1)
DEFINE_TRUTH_RUN(all, float_of_16, uint16_t, uint16_t, SAW_NO_MAGNITUDE, 0)
DEFINE_LOOP(any, float_of_16, uint16_t, uint8_t, uint32_t, LIFT_MAGNITUDE_TRUTH, uint16_t, ANY_ROWS,
            SAW_MAGNITUDE, LOWER_TRUTH)
DEFINE_LOOP(all, float_of_16, uint16_t, uint8_t, uint32_t, LIFT_MAGNITUDE_TRUTH, uint16_t, ANY_ROWS,
            SAW_SOME_MAGNITUDE, LOWER_TRUTH)

/* Columns of floats, and of 64-bit integers: of as many vectors as an element has bytes, each mask
 * keeps one byte, and the bytes are put in order. Compilers narrow masks in more steps, but for
 * AVX-512, which has instructions for it. A truth in `narrow` is any number but 0: columns of the
 * last tile may be those of the vector behind it, too, which counts them as 1. */
#ifdef BYTES_IN_ORDER_f32
#define DEFINE_TRUTH_TILES(fold, name, T, tag, BITS)                                              \
    INLINE uint64_t tiles_##fold##_##name(const char *data, int64_t stride, column_step step,     \
                                          uint64_t j, uint64_t width, BITS *restrict narrow,      \
                                          uint8_t *restrict accumulators)                         \
    {                                                                                             \
        enum { LANES = VECTOR_BYTES / sizeof(T), VECTORS = sizeof(T) };                           \
        typedef BITS masks __attribute__((vector_size(VECTOR_BYTES)));                            \
        for (; j + VECTOR_BYTES <= width; j += VECTOR_BYTES) {                                    \
            const T *p = (const T *)(const void *)data + j;                                       \
            masks t[VECTORS];                                                                     \
            vec_##tag x;                                                                          \
            vec_u8 truths = {0};                                                                  \
            PREFETCH_STEP(p, sizeof t, step);                                                     \
            UNROLLED                                                                              \
            for (int k = 0; k < VECTORS; k++) {                                                   \
                memcpy(&x, p + k * LANES, sizeof x);                                              \
                t[k] = (masks)(x != 0);                                                           \
            }                                                                                     \
            for (uint64_t r = 1; r < step.rows; r++) {                                            \
                p = (const T *)(const void *)((const char *)p + stride);                          \
                PREFETCH_STEP(p, sizeof t, step);                                                 \
                UNROLLED                                                                          \
                for (int k = 0; k < VECTORS; k++) {                                               \
                    memcpy(&x, p + k * LANES, sizeof x);                                          \
                    t[k] = GPR_COMBINE_##fold(t[k], (masks)(x != 0));                             \
                }                                                                                 \
            }                                                                                     \
            UNROLLED                                                                              \
            for (int k = 0; k < VECTORS; k++) {                                                   \
                masks seen;                                                                       \
                if (!step.begins) {                                                               \
                    memcpy(&seen, narrow + j + k * LANES, sizeof seen);                           \
                    t[k] = GPR_COMBINE_##fold((masks)(seen != 0), t[k]);                          \
                }                                                                                 \
                if (!step.ends) memcpy(narrow + j + k * LANES, &t[k], sizeof seen);               \
                truths |= (vec_u8)(t[k] & ((masks){0} + (BITS)((uint64_t)UINT8_MAX << (8 * k)))); \
            }                                                                                     \
            if (!step.ends) continue;                                                             \
            truths = BYTES_IN_ORDER_##tag(truths) & 1;                                            \
            if (!step.fresh) {                                                                    \
                vec_u8 before;                                                                    \
                memcpy(&before, accumulators + j, sizeof before);                                 \
                truths = GPR_COMBINE_##fold(before, truths);                                      \
            }                                                                                     \
            memcpy(accumulators + j, &truths, sizeof truths);                                     \
        }                                                                                         \
        return j;                                                                                 \
    }
#else
#define DEFINE_TRUTH_TILES(fold, name, T, tag, BITS)                             \
    DEFINE_TILES(tiles, fold, name, T, uint8_t, BITS, SAW_NOT_ZERO, LOWER_TRUTH, \
                 TILE_VECTORS *VECTOR_BYTES / sizeof(BITS), AS_THEY_LIKE)
#endif

#define DEFINE_FLOAT_TRUTH_LOOP(fold, name, T, tag, BITS)                          \
    DEFINE_SHORT(fold, name, T, uint32_t, LIFT_TRUTH)                              \
    DEFINE_ROWS(fold, name, T, uint8_t)                                            \
    DEFINE_TRUTH_TILES(fold, name, T, tag, BITS)                                   \
    DEFINE_TILES(vectors, fold, name, T, uint8_t, BITS, SAW_NOT_ZERO, LOWER_TRUTH, \
                 VECTOR_BYTES / sizeof(BITS), AS_THEY_LIKE)                        \
    DEFINE_COLUMN_STEPS(fold, name, T, uint8_t, BITS, ANY_ROWS, SAW_NOT_ZERO, LOWER_TRUTH)
#define DEFINE_FLOAT_TRUTH(name, T, tag, BITS)            \
    DEFINE_TRUTH_RUN(any, name, T, BITS, SAW_NOT_ZERO, 1) \
    DEFINE_TRUTH_RUN(all, name, T, BITS, SAW_ZERO, 0)     \
    DEFINE_FLOAT_TRUTH_LOOP(any, name, T, tag, BITS)      \
    DEFINE_FLOAT_TRUTH_LOOP(all, name, T, tag, BITS)

#define DEFINE_INT(name, T, ELEMENT, LIFT, NARROW, ROUND)                                    \
    DEFINE_PROD_RUN(name, T)                                                                 \
    DEFINE_INT_EXTREME_RUN(min, name, T)                                                     \
    DEFINE_INT_EXTREME_RUN(max, name, T)                                                     \
    DEFINE_LOOP(sum, name, T, uint64_t, ELEMENT, LIFT, NARROW, ROUND, LIFT_SAME, LOWER_WIDE) \
    DEFINE_LOOP(prod, name, T, uint64_t, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS, LIFT_WIDE, \
                LOWER_SAME)                                                                  \
    DEFINE_LOOP(min, name, T, T, T, LIFT_SAME, T, ANY_ROWS, LIFT_SAME, LOWER_SAME)           \
    DEFINE_LOOP(max, name, T, T, T, LIFT_SAME, T, ANY_ROWS, LIFT_SAME, LOWER_SAME)

#define DEFINE_INT_TRUTH(name, T) DEFINE_TRUTH(name, T, T, SAW_BITS)
#ifdef BYTES_IN_ORDER_f64
#define BYTES_IN_ORDER_i64(x) BYTES_IN_ORDER_f64(x)
#define BYTES_IN_ORDER_u64(x) BYTES_IN_ORDER_f64(x)
#define DEFINE_WIDE_TRUTH(name, T, tag)                  \
    DEFINE_TRUTH_RUN(any, name, T, T, SAW_BITS, 1)       \
    DEFINE_TRUTH_RUN(all, name, T, T, SAW_ZERO, 0)       \
    DEFINE_FLOAT_TRUTH_LOOP(any, name, T, tag, uint64_t) \
    DEFINE_FLOAT_TRUTH_LOOP(all, name, T, tag, uint64_t)
#else
#define DEFINE_WIDE_TRUTH(name, T, tag) DEFINE_INT_TRUTH(name, T)
#endif

/* A short skipping run starts from the identity: every element may be NaN. */
#define LIFT_SUMMED(x) ((x) == (x) ? (double)(x) : 0.0)
#define IS_NUMBER(x) ((x) == (x))
#define LIFT_NUMBER(x) ((uint64_t)IS_NUMBER(x))
#define GPR_COMBINE_numbers GPR_COMBINE_count
#define START_numbers START_count
#define LIFT_MULTIPLIED(x) ((x) == (x) ? (double)(x) : 1.0)
#define START_skipping_sum START_sum
#define START_skipping_prod START_prod

#define DEFINE_FLOAT(name, T, tag, BITS, COUNTS, LOAD)                                           \
    DEFINE_DOUBLE_SUM(sum, name, T, LOAD)                                                        \
    DEFINE_DOUBLE_RUN(prod, name, T, LOAD, prod, 1.0)                                            \
    DEFINE_DOUBLE_SUM(skipping_sum, name, T, LOAD)                                               \
    DEFINE_DOUBLE_RUN(skipping_prod, name, T, LOAD, prod, 1.0)                                   \
    DEFINE_SHORT_SUM(sum, name, T, LIFT_DOUBLE)                                                  \
    DEFINE_SHORT_SUM(skipping_sum, name, T, LIFT_SUMMED)                                         \
    DEFINE_FLOAT_EXTREME_RUN(min, min, name, T, tag, <, 0, INFINITY)                             \
    DEFINE_FLOAT_EXTREME_RUN(max, max, name, T, tag, >, 0, -INFINITY)                            \
    DEFINE_FLOAT_EXTREME_RUN(fmin, min, name, T, tag, <, 1, INFINITY)                            \
    DEFINE_FLOAT_EXTREME_RUN(fmax, max, name, T, tag, >, 1, -INFINITY)                           \
    DEFINE_SHORT(prod, name, T, double, LIFT_DOUBLE)                                             \
    DEFINE_SHORT(skipping_prod, name, T, double, LIFT_MULTIPLIED)                                \
    DEFINE_DOUBLE_LOOP(sum, name, T, LOAD, LIFT_DOUBLE, 0.0)                                     \
    DEFINE_DOUBLE_LOOP(prod, name, T, LOAD, LIFT_DOUBLE, 1.0)                                    \
    DEFINE_DOUBLE_LOOP(skipping_sum, name, T, LOAD, LIFT_SUMMED, 0.0)                            \
    DEFINE_DOUBLE_LOOP(skipping_prod, name, T, LOAD, LIFT_MULTIPLIED, 1.0)                       \
    DEFINE_EXTREME_LOOP(min, name, T, tag)                                                       \
    DEFINE_EXTREME_LOOP(max, name, T, tag)                                                       \
    DEFINE_EXTREME_LOOP(fmin, name, T, tag)                                                      \
    DEFINE_EXTREME_LOOP(fmax, name, T, tag)                                                      \
    DEFINE_SQUARES(name, T, LOAD)                                                                \
    DEFINE_LANES(distances, name, T, LOAD, sum, 0.0)                                             \
    DEFINE_SKIPPING_MOMENTS(name, T, LOAD)                                                       \
    DEFINE_MOMENTS(name, T)                                                                      \
    DEFINE_DISTANCES(name, T)                                                                    \
    DEFINE_FLOAT_FIND(name, T, BITS)                                                             \
    DEFINE_FLOAT_POSITIONS(name, T, tag, BITS)                                                   \
    DEFINE_FLOAT_TRUTH(name, T, tag, BITS)                                                       \
    DEFINE_COUNT_RUN(count, name, T, SAW_NOT_ZERO, COUNTS, INT32_MAX)                            \
    DEFINE_COUNTS(name, T, COUNTS, INT32_MAX)                                                    \
    DEFINE_COUNT_RUN(numbers, name, T, IS_NUMBER, COUNTS, INT32_MAX)                             \
    DEFINE_LOOP(numbers, name, T, uint64_t, uint64_t, LIFT_NUMBER, COUNTS, INT32_MAX, IS_NUMBER, \
                LOWER_SAME)

/* A bool that is not 0 is 1, whatever its byte. Its product and minimum are "all", its maximum
 * "any". */
#define DEFINE_GPR_KIND_BOOL_1(name, T)                                                        \
    DEFINE_BYTE_SUM(name, T, BYTE_TRUTH, BYTE_TRUTH_SCALAR, 0)                                 \
    DEFINE_TRUTH_RUN(any, name, T, T, SAW_BITS, 1)                                             \
    DEFINE_ALL_OF_BYTES(name, T)                                                               \
    DEFINE_TRUTH_LOOPS(name, T, T, SAW_BITS)                                                   \
    INLINE uint64_t prod_##name(const T *p, uint64_t n)                                        \
    {                                                                                          \
        return all_##name(p, n);                                                               \
    }                                                                                          \
    INLINE uint8_t min_##name(const T *p, uint64_t n)                                          \
    {                                                                                          \
        return all_##name(p, n);                                                               \
    }                                                                                          \
    INLINE uint8_t max_##name(const T *p, uint64_t n)                                          \
    {                                                                                          \
        return any_##name(p, n);                                                               \
    }                                                                                          \
    DEFINE_LOOP(sum, name, T, uint64_t, uint32_t, LIFT_TRUTH, uint8_t, 255, SAW_NOT_ZERO,      \
                LOWER_SAME)                                                                    \
    DEFINE_LOOP(prod, name, T, uint64_t, uint64_t, LIFT_BOOL, uint8_t, ANY_ROWS, SAW_NOT_ZERO, \
                LOWER_SAME)                                                                    \
    DEFINE_LOOP(min, name, T, uint8_t, uint32_t, LIFT_TRUTH, uint8_t, ANY_ROWS, SAW_NOT_ZERO,  \
                LOWER_SAME)                                                                    \
    DEFINE_LOOP(max, name, T, uint8_t, uint32_t, LIFT_TRUTH, uint8_t, ANY_ROWS, SAW_NOT_ZERO,  \
                LOWER_SAME)                                                                    \
    INLINE uint64_t count_##name(const T *p, uint64_t n)                                       \
    {                                                                                          \
        return sum_##name(p, n);                                                               \
    }                                                                                          \
    DEFINE_COUNTS(name, T, uint8_t, 255)                                                       \
    DEFINE_FIND(name, T, uint8_t, HIT_TRUTH)                                                   \
    DEFINE_BOOL_POSITIONS(name, T, int8_t, LIFT_TRUTH, VECTOR_TRUTH)

/* Counts of wide elements. */
#define DEFINE_WIDE_COUNTS(name, T, LANE, BLOCK)                \
    DEFINE_COUNT_RUN(count, name, T, SAW_NOT_ZERO, LANE, BLOCK) \
    DEFINE_COUNTS(name, T, LANE, BLOCK)
/* Sums and counts of elements of 64 bits. */
#define DEFINE_WIDE_RUNS(name, T)                             \
    DEFINE_WIDE_RUN(sum, name, T, WIDE_NUMBER, LIFT_SAME)     \
    DEFINE_WIDE_RUN(count, name, T, WIDE_TRUTH, SAW_NOT_ZERO) \
    DEFINE_COUNTS(name, T, uint64_t, INT32_MAX)
/* Bytes are counted like bools. */
#define DEFINE_BYTE_COUNTS(name, T)                                    \
    DEFINE_BYTE_SUM(truth_##name, T, BYTE_TRUTH, BYTE_TRUTH_SCALAR, 0) \
    INLINE uint64_t count_##name(const T *p, uint64_t n)               \
    {                                                                  \
        return sum_truth_##name(p, n);                                 \
    }                                                                  \
    DEFINE_COUNTS(name, T, uint8_t, 255)

#define LIFT_INT32(x) ((int32_t)(x))
#define LIFT_UINT32(x) ((uint32_t)(x))
#define DEFINE_GPR_KIND_SIGNED_1(name, T)                      \
    DEFINE_BYTE_SUM(name, T, BYTE_FLIP, BYTE_FLIP_SCALAR, 128) \
    DEFINE_INT(name, T, int32_t, LIFT_INT32, int16_t, 255)     \
    DEFINE_INT_TRUTH(name, T)                                  \
    DEFINE_BYTE_COUNTS(name, T)                                \
    DEFINE_FIND(name, T, T, HIT_EQUAL)                         \
    DEFINE_INT_POSITIONS(name, T, int8_t, LIFT_SAME, VECTOR_SAME)
#define DEFINE_GPR_KIND_SIGNED_2(name, T)                    \
    DEFINE_SUM_RUN(name, T, int32_t, 32768)                  \
    DEFINE_INT(name, T, int32_t, LIFT_INT32, int32_t, 32768) \
    DEFINE_INT_TRUTH(name, T)                                \
    DEFINE_WIDE_COUNTS(name, T, uint16_t, UINT16_MAX)        \
    DEFINE_FIND(name, T, T, HIT_EQUAL)                       \
    DEFINE_INT_POSITIONS(name, T, int16_t, LIFT_SAME, VECTOR_SAME)
#define DEFINE_GPR_KIND_SIGNED_4(name, T)                        \
    DEFINE_SUM_RUN(name, T, uint64_t, UINT64_MAX)                \
    DEFINE_INT(name, T, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS) \
    DEFINE_INT_TRUTH(name, T)                                    \
    DEFINE_WIDE_COUNTS(name, T, uint32_t, INT32_MAX)             \
    DEFINE_FIND(name, T, T, HIT_EQUAL)                           \
    DEFINE_INT_POSITIONS(name, T, int32_t, LIFT_SAME, VECTOR_SAME)
#define DEFINE_GPR_KIND_SIGNED_8(name, T)                        \
    DEFINE_WIDE_RUNS(name, T)                                    \
    DEFINE_INT(name, T, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS) \
    DEFINE_WIDE_TRUTH(name, T, i64)                              \
    DEFINE_FIND(name, T, T, HIT_EQUAL)                           \
    DEFINE_INT_POSITIONS(name, T, int64_t, LIFT_SAME, VECTOR_SAME)
#define DEFINE_GPR_KIND_UNSIGNED_1(name, T)                       \
    DEFINE_BYTE_SUM(name, T, BYTE_SAME, BYTE_SAME, 0)             \
    DEFINE_INT(name, T, uint32_t, LIFT_UINT32, uint16_t, 255)     \
    DEFINE_INT_TRUTH(name, T)                                     \
    DEFINE_BYTE_COUNTS(name, T)                                   \
    DEFINE_FIND(name, T, T, HIT_EQUAL)                            \
    DEFINE_INT_POSITIONS(name, T, int8_t, LIFT_SAME, VECTOR_SAME) \
    DEFINE_BITS(name, T)
#define DEFINE_GPR_KIND_UNSIGNED_2(name, T)                        \
    DEFINE_SUM_RUN(name, T, uint32_t, 32768)                       \
    DEFINE_INT(name, T, uint32_t, LIFT_UINT32, uint32_t, 32768)    \
    DEFINE_INT_TRUTH(name, T)                                      \
    DEFINE_WIDE_COUNTS(name, T, uint16_t, UINT16_MAX)              \
    DEFINE_FIND(name, T, T, HIT_EQUAL)                             \
    DEFINE_INT_POSITIONS(name, T, int16_t, LIFT_SAME, VECTOR_SAME) \
    DEFINE_BITS(name, T)
#define DEFINE_GPR_KIND_UNSIGNED_4(name, T)                        \
    DEFINE_SUM_RUN(name, T, uint64_t, UINT64_MAX)                  \
    DEFINE_INT(name, T, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS)   \
    DEFINE_INT_TRUTH(name, T)                                      \
    DEFINE_WIDE_COUNTS(name, T, uint32_t, INT32_MAX)               \
    DEFINE_FIND(name, T, T, HIT_EQUAL)                             \
    DEFINE_INT_POSITIONS(name, T, int32_t, LIFT_SAME, VECTOR_SAME) \
    DEFINE_BITS(name, T)
#define DEFINE_GPR_KIND_UNSIGNED_8(name, T)                        \
    DEFINE_WIDE_RUNS(name, T)                                      \
    DEFINE_INT(name, T, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS)   \
    DEFINE_WIDE_TRUTH(name, T, u64)                                \
    DEFINE_FIND(name, T, T, HIT_EQUAL)                             \
    DEFINE_INT_POSITIONS(name, T, int64_t, LIFT_SAME, VECTOR_SAME) \
    DEFINE_BITS(name, T)
#define DEFINE_GPR_KIND_FLOAT_2(name, T)
#define DEFINE_GPR_KIND_FLOAT_4(name, T) DEFINE_FLOAT(name, T, f32, int32_t, uint32_t, WIDEN_F32)
#define DEFINE_GPR_KIND_FLOAT_8(name, T) DEFINE_FLOAT(name, T, f64, int64_t, uint64_t, load_f64)

/* ---------------------------------------------------------------- complex numbers ------------ */

/* A complex number as its parts, which is how it lies in memory. */
typedef struct pair {
    double re, im;
} pair;

#define NAN_PAIR(x) ((x).re != (x).re || (x).im != (x).im)
/* A product, rounded. From GCC 12 on, -ffp-contract=off alone does not keep it out of
 * instructions that also add. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_assoc_barrier)
#define ROUNDED(x) __builtin_assoc_barrier(x)
#endif
#endif
#ifndef ROUNDED
#define ROUNDED(x) (x)
#endif
#define COMBINE_prod(x, y)                                       \
    ((pair){ROUNDED((x).re * (y).re) - ROUNDED((x).im * (y).im), \
            ROUNDED((x).re * (y).im) + ROUNDED((x).im * (y).re)})
#define COMBINE_any GPR_COMBINE_any
#define COMBINE_all GPR_COMBINE_all
#define COMBINE_odd GPR_COMBINE_odd
#define COMBINE_count GPR_COMBINE_count
#define PAIR_VALUE(p) ((pair){(p)[0], (p)[1]})
#define PAIR_TRUTH(p) (((p)[0] != 0) | ((p)[1] != 0))
#define PAIR_ZERO(p) (((p)[0] == 0) & ((p)[1] == 0))

#define ACCUMULATOR_pair GPR_COMPLEX128
#define ACCUMULATOR_uint8_t GPR_UINT8
#define ACCUMULATOR_uint64_t GPR_UINT64

/* Both shapes of a loop, with CHAINS independent accumulators in a long row. */
#define DEFINE_PAIR_LOOP(fold, name, P, ACC, LIFT, CHAINS)                   \
    enum { accumulator_##fold##_##name = ACCUMULATOR_##ACC };                \
    INLINE ACC fold##_##name(const P *p, uint64_t n)                         \
    {                                                                        \
        ACC chains[CHAINS];                                                  \
        uint64_t i = 1;                                                      \
        chains[0] = LIFT(p);                                                 \
        if (n >= 2 * (CHAINS)) {                                             \
            for (i = 1; i < (CHAINS); i++) chains[i] = LIFT(p + 2 * i);      \
            for (; i + (CHAINS) <= n; i += (CHAINS)) {                       \
                UNROLLED                                                     \
                for (int k = 0; k < (CHAINS); k++) {                         \
                    const ACC x = LIFT(p + 2 * (i + (uint64_t)k));           \
                    chains[k] = COMBINE_##fold(chains[k], x);                \
                }                                                            \
            }                                                                \
            for (int half = (CHAINS) / 2; half > 0; half /= 2)               \
                for (int k = 0; k < half; k++)                               \
                    chains[k] = COMBINE_##fold(chains[k], chains[k + half]); \
        }                                                                    \
        for (; i < n; i++) {                                                 \
            const ACC x = LIFT(p + 2 * i);                                   \
            chains[0] = COMBINE_##fold(chains[0], x);                        \
        }                                                                    \
        return chains[0];                                                    \
    }                                                                        \
    DEFINE_PAIR_SHAPES(fold, name, P, ACC, LIFT)

#define DEFINE_PAIR_SHAPES(fold, name, P, ACC, LIFT) \
    DEFINE_PAIRS_IN_ROWS(fold, name, P, ACC)         \
    DEFINE_PAIRS_IN_COLUMNS(fold, name, P, ACC, LIFT)

#define DEFINE_PAIRS_IN_ROWS(fold, name, P, ACC)                                                  \
    static void rows_##fold##_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n, \
                                     void *out)                                                   \
    {                                                                                             \
        ACC *accumulators = out;                                                                  \
        for (uint64_t r = 0; r < rows; r++)                                                       \
            accumulators[r] =                                                                     \
                fold##_##name((const P *)(const void *)(data + (int64_t)r * stride), n);          \
    }

#define DEFINE_PAIRS_IN_COLUMNS(fold, name, P, ACC, LIFT)                                \
    static void columns_##fold##_##name(const char *data, int64_t stride, uint64_t rows, \
                                        uint64_t width, int how, void *out)              \
    {                                                                                    \
        ACC *restrict accumulators = out;                                                \
        if (how & GPR_FRESH) {                                                           \
            const P *restrict p = (const P *)(const void *)data;                         \
            for (uint64_t j = 0; j < width; j++) accumulators[j] = (ACC)LIFT(p + 2 * j); \
            rows--;                                                                      \
            data += stride;                                                              \
        }                                                                                \
        for (; rows > 0; rows--, data += stride) {                                       \
            const P *restrict p = (const P *)(const void *)data;                         \
            for (uint64_t j = 0; j < width; j++) {                                       \
                const ACC x = LIFT(p + 2 * j);                                           \
                accumulators[j] = (ACC)COMBINE_##fold(accumulators[j], x);               \
            }                                                                            \
        }                                                                                \
    }

/* A run stops at the first block that decides it, as other elements' do. SAW has a lane that is not
 * 0 of each number that decides, of NUMBERS in a vector. A complex64 is true if any bit of it but
 * its parts' signs is set, NaN among them: as many numbers as 64-bit lanes of a vector. */
#define SAW_PAIRS_any(x) (vec_u64)((x) != (vec_f64){0})
#define SAW_PAIRS_all(x) saw_zeros(x)
INLINE vec_u64 saw_zeros(vec_f64 x)
{
    const vec_i64 zero = (vec_i64)(x == (vec_f64){0});

    return (vec_u64)(zero & (vec_i64)SWAP_PARTS((vec_f64)zero));
}

#define SAW_BITS_any(bits) (bits)
#define SAW_BITS_all(bits) (vec_u64)((bits) == 0)
INLINE vec_u64 load_truth_bits(const void *p)
{
    vec_u64 bits;

    memcpy(&bits, p, sizeof bits);
    return bits & UINT64_C(0x7fffffff7fffffff);
}

#define SAW_complex128(fold, p) SAW_PAIRS_##fold(load_f64(p))
#define SAW_complex64(fold, p) SAW_BITS_##fold(load_truth_bits(p))
#define NUMBERS_complex128 (VECTOR_LANES / 2)
#define NUMBERS_complex64 VECTOR_LANES

#define DEFINE_PAIR_TRUTH(fold, name, P, SAW, DECIDED)                                     \
    enum { accumulator_##fold##_##name = GPR_UINT8 };                                      \
    INLINE uint8_t fold##_##name(const P *p, uint64_t n)                                   \
    {                                                                                      \
        enum { STEP = EXTREME_VECTORS * NUMBERS_##name };                                  \
        const uint64_t block = TRUTH_BLOCK_BYTES / (2 * sizeof(P));                        \
        while (n > 0) {                                                                    \
            const uint64_t count = n < block ? n : block;                                  \
            vec_u64 saw = {0};                                                             \
            uint64_t seen = 0, i = 0;                                                      \
            for (; i + STEP <= count; i += STEP) {                                         \
                UNROLLED                                                                   \
                for (int k = 0; k < EXTREME_VECTORS; k++)                                  \
                    saw |= SAW_##name(fold, p + 2 * (i + (uint64_t)(k * NUMBERS_##name))); \
            }                                                                              \
            UNROLLED                                                                       \
            for (int k = 0; k < VECTOR_LANES; k++) seen |= saw[k];                         \
            for (; i < count; i++) seen |= SAW(p + 2 * i);                                 \
            if (seen != 0) return DECIDED;                                                 \
            p += 2 * count;                                                                \
            n -= count;                                                                    \
        }                                                                                  \
        return !(DECIDED);                                                                 \
    }                                                                                      \
    DEFINE_PAIRS_IN_ROWS(fold, name, P, uint8_t)                                           \
    DEFINE_PAIR_TRUTH_COLUMNS(fold, name, P, SAW, DECIDED)

/* Stores truths of as many numbers as lanes of a few vectors, of which those that are not 0 decide,
 * or combines them with those before. As above, compilers narrow masks well with AVX-512 alone. */
#ifdef BYTES_IN_ORDER_f64
INLINE void store_truths(const vec_u64 *saw, int vectors, int decided, int fresh, uint8_t *to)
{
    const size_t bytes = (size_t)vectors * VECTOR_LANES;
    vec_u8 truths = {0}, before = {0};

    UNROLLED
    for (int k = 0; k < vectors; k++)
        truths |= (vec_u8)((vec_u64)(saw[k] != 0) & (uint64_t)UINT8_MAX << (8 * k));
    truths = BYTES_IN_ORDER_f64(truths);
    truths = (decided ? truths : ~truths) & 1;
    if (!fresh) {
        memcpy(&before, to, bytes);
        truths = decided ? before | truths : before & truths;
    }
    memcpy(to, &truths, bytes);
}
#else
typedef uint8_t truths_of_vector __attribute__((vector_size(VECTOR_LANES)));
INLINE void store_truths(const vec_u64 *saw, int vectors, int decided, int fresh, uint8_t *to)
{
    UNROLLED
    for (int k = 0; k < vectors; k++, to += VECTOR_LANES) {
        const vec_i64 is_decided = (vec_i64)(saw[k] != 0) == -decided;
        truths_of_vector truth = __builtin_convertvector(is_decided, truths_of_vector), before;

        truth &= 1;
        memcpy(&before, to, sizeof before);
        if (!fresh) truth = decided ? before | truth : before & truth;
        memcpy(to, &truth, sizeof truth);
    }
}
#endif

/* Truths of a tile's vectors, two of complex128 as one. */
#define STORE_TILE_complex64(saw, decided, fresh, to) \
    store_truths(saw, TILE_VECTORS, decided, fresh, to)
#define STORE_TILE_complex128(saw, decided, fresh, to) store_pairs(saw, decided, fresh, to)
INLINE void store_pairs(const vec_u64 *saw, int decided, int fresh, uint8_t *to)
{
    enum { VECTORS = TILE_VECTORS / 2 };
    vec_u64 pairs[VECTORS];

    UNROLLED
    for (int k = 0; k < VECTORS; k++) {
        const vec_u64 x = saw[2 * k] | (vec_u64)SWAP_PARTS((vec_f64)saw[2 * k]),
                      y = saw[2 * k + 1] | (vec_u64)SWAP_PARTS((vec_f64)saw[2 * k + 1]);
        pairs[k] = EVEN_LANES_8(x, y);
    }
    store_truths(pairs, VECTORS, decided, fresh, to);
}

#define DEFINE_PAIR_TRUTH_COLUMNS(fold, name, P, SAW, DECIDED)                           \
    static void columns_##fold##_##name(const char *data, int64_t stride, uint64_t rows, \
                                        uint64_t width, int how, void *out)              \
    {                                                                                    \
        enum { NUMBERS = TILE_VECTORS * NUMBERS_##name };                                \
        int fresh = how & GPR_FRESH;                                                     \
        uint8_t *truths = out;                                                           \
        for (; rows > 0; fresh = 0) {                                                    \
            const uint64_t some = rows < STEP_ROWS ? rows : STEP_ROWS;                   \
            uint64_t j = 0;                                                              \
            for (; j + NUMBERS <= width; j += NUMBERS) {                                 \
                const char *at = data + j * 2 * sizeof(P);                               \
                vec_u64 saw[TILE_VECTORS] = {{0}};                                       \
                for (uint64_t r = 0; r < some; r++, at += stride) {                      \
                    const P *p = (const P *)(const void *)at;                            \
                    UNROLLED                                                             \
                    for (int k = 0; k < TILE_VECTORS; k++)                               \
                        saw[k] |= SAW_##name(fold, p + 2 * k * NUMBERS_##name);          \
                }                                                                        \
                STORE_TILE_##name(saw, DECIDED, fresh, truths + j);                      \
            }                                                                            \
            for (; j < width; j++) {                                                     \
                const char *at = data + j * 2 * sizeof(P);                               \
                int seen = 0;                                                            \
                for (uint64_t r = 0; r < some; r++, at += stride)                        \
                    seen |= SAW((const P *)(const void *)at);                            \
                const uint8_t truth = (seen != 0) == (DECIDED), before = truths[j];      \
                truths[j] = fresh ? truth : (uint8_t)COMBINE_##fold(before, truth);      \
            }                                                                            \
            rows -= some;                                                                \
            data += (int64_t)some * stride;                                              \
        }                                                                                \
    }

/* Products of as many numbers as fill a vector, real parts in even lanes. */
INLINE vec_f64 multiply_pairs(vec_f64 x, vec_f64 y)
{
    const vec_f64 alike = ROUNDED(x * EVEN_PARTS(y)),
                  crosswise = ROUNDED(SWAP_PARTS(x) * ODD_PARTS(y)), minus = alternate(-0.0, 0.0);

    return alike + (vec_f64)((vec_i64)crosswise ^ (vec_i64)minus);
}

/* The same, of real parts and imaginary parts in vectors of their own, which takes no shuffles. */
INLINE void multiply_parts(vec_f64 *re, vec_f64 *im, vec_f64 x, vec_f64 y)
{
    const vec_f64 real = ROUNDED(*re * x) - ROUNDED(*im * y);

    *im = ROUNDED(*re * y) + ROUNDED(*im * x);
    *re = real;
}

/* Long rows in as many chains as a vector of any instruction set has numbers, or some vectors. */
enum { PRODUCT_CHAINS = 8, PRODUCT_VECTORS = 2 * PRODUCT_CHAINS / VECTOR_LANES };

/* Columns in tiles of PAIRS vectors of real and as many of imaginary parts. */
#define DEFINE_PAIR_PROD_TILES(tiles, PAIRS, name, P, LOAD)                                    \
    INLINE uint64_t tiles##_prod_##name(const char *data, int64_t stride, uint64_t rows,       \
                                        int fresh, int64_t ahead, uint64_t j, uint64_t parts,  \
                                        double *products)                                      \
    {                                                                                          \
        enum { TILE = 2 * (PAIRS) * VECTOR_LANES };                                            \
        for (; j + TILE <= parts; j += TILE) {                                                 \
            const size_t bytes = TILE * sizeof(P);                                             \
            const P *p = (const P *)(const void *)data + j;                                    \
            double *to = products + j;                                                         \
            vec_f64 re[PAIRS], im[PAIRS];                                                      \
            UNROLLED                                                                           \
            for (int k = 0; k < PAIRS; k++) {                                                  \
                const uint64_t at = (uint64_t)k * 2 * VECTOR_LANES;                            \
                const vec_f64 x = fresh ? (vec_f64)LOAD(p + at) : load_f64(to + at),           \
                              y = fresh ? (vec_f64)LOAD(p + at + VECTOR_LANES)                 \
                                        : load_f64(to + at + VECTOR_LANES);                    \
                re[k] = EVEN_OF_PAIRS(x, y);                                                   \
                im[k] = ODD_OF_PAIRS(x, y);                                                    \
            }                                                                                  \
            if (fresh && ahead != 0) PREFETCH_AT(p, bytes, ahead, 2);                          \
            if (fresh) p = (const P *)(const void *)((const char *)p + stride);                \
            for (uint64_t r = fresh != 0; r < rows; r++) {                                     \
                if (ahead != 0) PREFETCH_AT(p, bytes, ahead, 2);                               \
                UNROLLED                                                                       \
                for (int k = 0; k < PAIRS; k++) {                                              \
                    const P *q = p + (uint64_t)k * 2 * VECTOR_LANES;                           \
                    const vec_f64 x = (vec_f64)LOAD(q), y = (vec_f64)LOAD(q + VECTOR_LANES);   \
                    multiply_parts(&re[k], &im[k], EVEN_OF_PAIRS(x, y), ODD_OF_PAIRS(x, y));   \
                }                                                                              \
                p = (const P *)(const void *)((const char *)p + stride);                       \
            }                                                                                  \
            UNROLLED                                                                           \
            for (int k = 0; k < PAIRS; k++, to += 2 * VECTOR_LANES) {                          \
                const vec_f64 x = EVEN_OF_PAIRS(re[k], im[k]), y = ODD_OF_PAIRS(re[k], im[k]); \
                memcpy(to, &x, sizeof x);                                                      \
                memcpy(to + VECTOR_LANES, &y, sizeof y);                                       \
            }                                                                                  \
        }                                                                                      \
        return j;                                                                              \
    }

/* What is left of them, a vector of whole numbers at a time. */
#define DEFINE_PAIR_PROD_VECTORS(name, P, LOAD)                                                  \
    INLINE uint64_t vectors_prod_##name(const char *data, int64_t stride, uint64_t rows,         \
                                        int fresh, uint64_t j, uint64_t parts, double *products) \
    {                                                                                            \
        for (; j + VECTOR_LANES <= parts; j += VECTOR_LANES) {                                   \
            const P *p = (const P *)(const void *)data + j;                                      \
            vec_f64 acc = fresh ? (vec_f64)LOAD(p) : load_f64(products + j);                     \
            for (uint64_t r = fresh != 0; r < rows; r++) {                                       \
                const P *q = (const P *)(const void *)((const char *)p + (int64_t)r * stride);   \
                acc = multiply_pairs(acc, (vec_f64)LOAD(q));                                     \
            }                                                                                    \
            memcpy(products + j, &acc, sizeof acc);                                              \
        }                                                                                        \
        return j;                                                                                \
    }
#define DEFINE_PAIR_PROD(name, P, LOAD)                                                            \
    enum { accumulator_prod_##name = GPR_COMPLEX128 };                                             \
    INLINE pair prod_##name(const P *p, uint64_t n)                                                \
    {                                                                                              \
        pair chains[PRODUCT_CHAINS];                                                               \
        uint64_t i = 1;                                                                            \
        chains[0] = PAIR_VALUE(p);                                                                 \
        if (n >= 2 * PRODUCT_CHAINS) {                                                             \
            vec_f64 acc[PRODUCT_VECTORS];                                                          \
            UNROLLED                                                                               \
            for (int k = 0; k < PRODUCT_VECTORS; k++)                                              \
                acc[k] = (vec_f64)LOAD(p + k * VECTOR_LANES);                                      \
            for (i = PRODUCT_CHAINS; i + PRODUCT_CHAINS <= n; i += PRODUCT_CHAINS) {               \
                UNROLLED                                                                           \
                for (int k = 0; k < PRODUCT_VECTORS; k++)                                          \
                    acc[k] = multiply_pairs(acc[k], (vec_f64)LOAD(p + 2 * i + k * VECTOR_LANES));  \
            }                                                                                      \
            memcpy(chains, acc, sizeof chains);                                                    \
            for (int half = PRODUCT_CHAINS / 2; half > 0; half /= 2)                               \
                for (int k = 0; k < half; k++)                                                     \
                    chains[k] = COMBINE_prod(chains[k], chains[k + half]);                         \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            const pair x = PAIR_VALUE(p + 2 * i);                                                  \
            chains[0] = COMBINE_prod(chains[0], x);                                                \
        }                                                                                          \
        return chains[0];                                                                          \
    }                                                                                              \
    DEFINE_PAIRS_IN_ROWS(prod, name, P, pair)                                                      \
    DEFINE_PAIR_PROD_TILES(tiles, TILE_VECTORS, name, P, LOAD)                                     \
    DEFINE_PAIR_PROD_TILES(tile, 1, name, P, LOAD)                                                 \
    DEFINE_PAIR_PROD_VECTORS(name, P, LOAD)                                                        \
    static void columns_prod_##name(const char *data, int64_t stride, uint64_t rows,               \
                                    uint64_t width, int how, void *out)                            \
    {                                                                                              \
        const size_t bytes = 2 * sizeof(P);                                                        \
        int fresh = how & GPR_FRESH;                                                               \
        double *products = out;                                                                    \
        for (uint64_t row = 0, some; row < rows; row += some, fresh = 0) {                         \
            const int64_t ahead = bytes_ahead(row, rows, stride, width, bytes, how);               \
            uint64_t j;                                                                            \
            some = rows - row < STEP_ROWS ? rows - row : STEP_ROWS;                                \
            j = tiles_prod_##name(data, stride, some, fresh, ahead, 0, 2 * width, products);       \
            j = tile_prod_##name(data, stride, some, fresh, ahead, j, 2 * width, products);        \
            j = vectors_prod_##name(data, stride, some, fresh, j, 2 * width, products);            \
            for (; j < 2 * width; j += 2) {                                                        \
                const P *p = (const P *)(const void *)data + j;                                    \
                pair product = fresh ? PAIR_VALUE(p) : PAIR_VALUE(products + j);                   \
                for (uint64_t r = fresh != 0; r < some; r++) {                                     \
                    const P *q = (const P *)(const void *)((const char *)p + (int64_t)r * stride); \
                    const pair x = PAIR_VALUE(q);                                                  \
                    product = COMBINE_prod(product, x);                                            \
                }                                                                                  \
                products[j] = product.re;                                                          \
                products[j + 1] = product.im;                                                      \
            }                                                                                      \
            data += (int64_t)some * stride;                                                        \
        }                                                                                          \
    }

#include "cpu/loops_pair_extremes.h"

/* Sums are those of the parts: in rows in alternating lanes, in columns twice as many columns. */
#define DEFINE_PAIR_SUM(name, P, part)                                                       \
    enum { accumulator_sum_##name = GPR_COMPLEX128 };                                        \
    static void rows_sum_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n, \
                                void *out)                                                   \
    {                                                                                        \
        const double zero[2] = {0, 0};                                                       \
        double *sums = out;                                                                  \
        for (uint64_t r = 0; r < rows; r++, data += stride, sums += 2) {                     \
            const P *p = (const P *)(const void *)data;                                      \
            if (2 * n < SHORT_ROW) {                                                         \
                sums[0] = sums[1] = 0;                                                       \
                for (uint64_t i = 0; i < n; i++) {                                           \
                    sums[0] += (double)p[2 * i];                                             \
                    sums[1] += (double)p[2 * i + 1];                                         \
                }                                                                            \
            } else {                                                                         \
                lanes_f64 lanes;                                                             \
                lanes_sum_##part(p, 2 * n, zero, &lanes);                                    \
                combine_lanes_sum(&lanes, 2, sums);                                          \
            }                                                                                \
        }                                                                                    \
    }                                                                                        \
    static void columns_sum_##name(const char *data, int64_t stride, uint64_t rows,          \
                                   uint64_t width, int how, void *out)                       \
    {                                                                                        \
        columns_sum_##part(data, stride, rows, 2 * width, how, out);                         \
    }

/* As above, without numbers of which a part is NaN. */
#define IS_PAIR(p) ((p)[0] == (p)[0] && (p)[1] == (p)[1])
#define DEFINE_SKIPPING_PAIR_SUM(name, P, part, LOAD)                                          \
    DEFINE_LANES(skipping_pairs, part, P, LOAD, sum, 0.0)                                      \
    DEFINE_DOUBLE_TILES(tiles, skipping_pairs, part, P, LOAD, 0.0, TILE_VECTORS)               \
    DEFINE_DOUBLE_TILES(vectors, skipping_pairs, part, P, LOAD, 0.0, 1)                        \
    INLINE void last_skipping_pairs_##part(const char *data, int64_t stride, column_step step, \
                                           uint64_t j, uint64_t width, double *narrow,         \
                                           double *accumulators)                               \
    {                                                                                          \
        for (; j < width; j += 2) {                                                            \
            double *to = (step.ends ? accumulators : narrow) + j, re = 0, im = 0;              \
            for (uint64_t r = 0; r < step.rows; r++) {                                         \
                const P *p = (const P *)(const void *)(data + (int64_t)r * stride) + j;        \
                re += IS_PAIR(p) ? (double)p[0] : 0.0;                                         \
                im += IS_PAIR(p) ? (double)p[1] : 0.0;                                         \
            }                                                                                  \
            if (!step.begins) {                                                                \
                re += narrow[j];                                                               \
                im += narrow[j + 1];                                                           \
            }                                                                                  \
            if (step.ends && !step.fresh) {                                                    \
                re += accumulators[j];                                                         \
                im += accumulators[j + 1];                                                     \
            }                                                                                  \
            to[0] = re;                                                                        \
            to[1] = im;                                                                        \
        }                                                                                      \
    }                                                                                          \
    DEFINE_COLUMN_FOLD(skipping_pairs, part, P, double, double, ANY_ROWS)                      \
    enum { accumulator_skipping_sum_##name = GPR_COMPLEX128 };                                 \
    static void rows_skipping_sum_##name(const char *data, int64_t stride, uint64_t rows,      \
                                         uint64_t n, void *out)                                \
    {                                                                                          \
        const double zero[2] = {0, 0};                                                         \
        double *sums = out;                                                                    \
        for (uint64_t r = 0; r < rows; r++, data += stride, sums += 2) {                       \
            const P *p = (const P *)(const void *)data;                                        \
            if (2 * n < SHORT_ROW) {                                                           \
                sums[0] = sums[1] = 0;                                                         \
                for (uint64_t i = 0; i < n; i++, p += 2) {                                     \
                    sums[0] += IS_PAIR(p) ? (double)p[0] : 0.0;                                \
                    sums[1] += IS_PAIR(p) ? (double)p[1] : 0.0;                                \
                }                                                                              \
            } else {                                                                           \
                lanes_f64 lanes;                                                               \
                lanes_skipping_pairs_##part(p, 2 * n, zero, &lanes);                           \
                combine_lanes_sum(&lanes, 2, sums);                                            \
            }                                                                                  \
        }                                                                                      \
    }                                                                                          \
    static void columns_skipping_sum_##name(const char *data, int64_t stride, uint64_t rows,   \
                                            uint64_t width, int how, void *out)                \
    {                                                                                          \
        columns_skipping_pairs_##part(data, stride, rows, 2 * width, how, out);                \
    }

#define LIFT_PAIR_NUMBER(p) ((uint64_t)IS_PAIR(p))
#define COMBINE_numbers GPR_COMBINE_count

#define DEFINE_COMPLEX(name, P, part, LOAD)                                            \
    DEFINE_PAIR_SUM(name, P, part)                                                     \
    DEFINE_SKIPPING_PAIR_SUM(name, P, part, LOAD)                                      \
    DEFINE_PAIR_LOOP(numbers, name, P, uint64_t, LIFT_PAIR_NUMBER, 4)                  \
    DEFINE_PAIR_PROD(name, P, LOAD)                                                    \
    DEFINE_PAIR_FIND(name, P, LOAD)                                                    \
    DEFINE_PAIR_EXTREME(min, min, name, P, LOAD, <, 0, INFINITY)                       \
    DEFINE_PAIR_EXTREME(fmin, min, name, P, LOAD, <, 1, INFINITY)                      \
    DEFINE_PAIR_EXTREME(max, max, name, P, LOAD, >, 0, -INFINITY)                      \
    DEFINE_PAIR_EXTREME(fmax, max, name, P, LOAD, >, 1, -INFINITY)                     \
    DEFINE_PAIR_TRUTH(any, name, P, PAIR_TRUTH, 1)                                     \
    DEFINE_PAIR_TRUTH(all, name, P, PAIR_ZERO, 0)                                      \
    DEFINE_PAIR_LOOP(odd, name, P, uint8_t, PAIR_TRUTH, 1)                             \
    DEFINE_PAIR_LOOP(count, name, P, uint64_t, PAIR_TRUTH, 1)                          \
    static double squares_##name(const void *data, uint64_t n, const double center[2]) \
    {                                                                                  \
        return squares_##part(data, 2 * n, center);                                    \
    }                                                                                  \
    DEFINE_PAIR_MOMENTS(name, P, part)                                                 \
    DEFINE_SKIPPING_ROWS(name, P, 2)

#define DEFINE_GPR_KIND_COMPLEX_8(name, T) DEFINE_COMPLEX(name, float, float32, WIDEN_F32)
#define DEFINE_GPR_KIND_COMPLEX_16(name, T) DEFINE_COMPLEX(name, double, float64, load_f64)

#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) DEFINE_##kind##_##bytes(name, c_type)
#include "dtypes.def"
#undef GPR_DTYPE

/* ---------------------------------------------------------------- widenings ------------------ */

/* One half by integer arithmetic: the scaling moves the exponent's bias and makes subnormals
 * normal; infinities and NaN get their exponent by hand. */
INLINE float widen_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = (uint32_t)(half & 0x7fffu)
                                                                        << 13;
    uint32_t special = magnitude | 0x7f800000u, bits;
    float value;

    memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f;
    memcpy(&bits, &value, sizeof bits);
    bits = (magnitude >= 0x0f800000u ? special : bits) | sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void widen_float16(const void *source, void *destination, uint64_t count)
{
    const uint16_t *from = source;
    float *to = destination;
    uint64_t i = 0;

#ifdef WIDEN_HALF_VECTOR
    for (; i + HALF_VECTOR <= count; i += HALF_VECTOR) WIDEN_HALF_VECTOR(from + i, to + i);
#endif
    for (; i < count; i++) to[i] = widen_half(from[i]);
}

static void widen_bfloat16(const void *source, void *destination, uint64_t count)
{
    const uint16_t *from = source;
    uint32_t *to = destination;

    for (uint64_t i = 0; i < count; i++) to[i] = (uint32_t)from[i] << 16;
}

/* A 64-bit integer as a double, rounded once, with instructions that every vector unit has: both
 * halves become doubles by setting the exponents 2^84 (high half, in units of 2^32) and 2^52 (low
 * half), whose sum is rid of them exactly. */
INLINE double widen_int(uint64_t bits, uint64_t high_bias, double bias)
{
    const uint64_t high_bits = bits >> 32 ^ high_bias,
                   low_bits = (bits & UINT32_MAX) | UINT64_C(0x4330000000000000);
    double high, low;

    memcpy(&high, &high_bits, sizeof high);
    memcpy(&low, &low_bits, sizeof low);
    return high - bias + low;
}

/* Integers that a double holds. Runs are often short: the last vector begins before where the one
 * before it ends. */
#define DEFINE_WIDEN_EACH(name, T, LIFT)                                            \
    static void widen_##name(const void *source, void *destination, uint64_t count) \
    {                                                                               \
        const T *from = source;                                                     \
        double *to = destination;                                                   \
        for (uint64_t i = 0; i < count; i++) to[i] = (double)LIFT(from[i]);         \
    }
#define DEFINE_WIDEN_LANES(name, T, LIFT)                                                  \
    INLINE void widen_lanes_of_##name(const T *from, double *to)                           \
    {                                                                                      \
        const vec_f64 wide = (vec_f64)WIDEN_##name(from);                                  \
                                                                                           \
        memcpy(to, &wide, sizeof wide);                                                    \
    }                                                                                      \
    static void widen_##name(const void *source, void *destination, uint64_t count)        \
    {                                                                                      \
        const T *from = source;                                                            \
        double *to = destination;                                                          \
        uint64_t i = 0;                                                                    \
                                                                                           \
        for (; i + VECTOR_LANES <= count; i += VECTOR_LANES)                               \
            widen_lanes_of_##name(from + i, to + i);                                       \
        if (i < count && count >= VECTOR_LANES)                                            \
            widen_lanes_of_##name(from + count - VECTOR_LANES, to + count - VECTOR_LANES); \
        for (; i < count && count < VECTOR_LANES; i++) to[i] = (double)LIFT(from[i]);      \
    }
#ifdef HAS_WIDENED_LANES
#define DEFINE_WIDEN DEFINE_WIDEN_LANES
#else
#define DEFINE_WIDEN DEFINE_WIDEN_EACH
#endif
DEFINE_WIDEN(bool, uint8_t, SAW_NOT_ZERO)
DEFINE_WIDEN(int8, int8_t, LIFT_SAME)
DEFINE_WIDEN(int16, int16_t, LIFT_SAME)
DEFINE_WIDEN(int32, int32_t, LIFT_SAME)
DEFINE_WIDEN(uint8, uint8_t, LIFT_SAME)
DEFINE_WIDEN(uint16, uint16_t, LIFT_SAME)
#ifdef WIDEN_uint32
DEFINE_WIDEN(uint32, uint32_t, LIFT_SAME)
#else
DEFINE_WIDEN_EACH(uint32, uint32_t, LIFT_SAME)
#endif

static void widen_int64(const void *source, void *destination, uint64_t count)
{
    const uint64_t *from = source;
    double *to = destination;

    /* Flipping the sign bit adds 2^63, which the bias takes away again. */
    for (uint64_t i = 0; i < count; i++)
        to[i] = widen_int(from[i], UINT64_C(0x4530000080000000), 0x1p84 + 0x1p63 + 0x1p52);
}

static void widen_uint64(const void *source, void *destination, uint64_t count)
{
    const uint64_t *from = source;
    double *to = destination;

    for (uint64_t i = 0; i < count; i++)
        to[i] = widen_int(from[i], UINT64_C(0x4530000000000000), 0x1p84 + 0x1p52);
}

/* ---------------------------------------------------------------- exponentials --------------- */

#include "cpu/loops_exp_sums.h"

/* ---------------------------------------------------------------- exact sums ----------------- */

#include "cpu/loops_exact.h"

/* A double near 1.5 * 2^p has a last place of 2^(p - 52). Adding x to it rounds x to a multiple of
 * that place; the error is exact, and goes to the next bin. So each accumulator holds an integer in
 * its low bits. Invariant: no addition rounds that integer while the first accumulator stays
 * between 2^p and 2^(p + 1); the others do, as at most half a last place of the bin before reaches
 * them. The elements are summed exactly if that holds and no error is left after the last bin. Both
 * are checked once, at the end. */
_Static_assert(__FLT_EVAL_METHOD__ == 0, "doubles are computed as doubles");

enum {
    EXACT_VECTORS = 2, /* added side by side; more would leave no registers */
    EXACT_LANES = EXACT_VECTORS * VECTOR_BYTES / 8,
    EXACT_ADDITIONS_BITS = 11
};
/* A remainder is at most half a unit, 2^(p - 53): the next bin's integers stay below its 2^(p' -
 * 1). */
_Static_assert(GPR_EXACT_TILE / EXACT_LANES + 1 <= 1 << EXACT_ADDITIONS_BITS &&
                   53 - EXACT_ADDITIONS_BITS > GPR_EXACT_BIN_BITS + 1,
               "a tile fits in the lower bins");

#define DEFINE_EXACT_RUN(name, T, LOAD, BINS)                                                  \
    static int exact_##name(const void *data, uint64_t n, const double *biases, int64_t *sums) \
    {                                                                                          \
        const uint64_t whole = n / EXACT_LANES, rounds = whole + (n % EXACT_LANES != 0);       \
        const T *p = data;                                                                     \
        T rest[EXACT_LANES] = {0};                                                             \
        vec_f64 acc[BINS][EXACT_VECTORS];                                                      \
        vec_u64 moved = {0}, left = {0}, bias, total;                                          \
        uint64_t any = 0, sum;                                                                 \
                                                                                               \
        memcpy(rest, p + whole * EXACT_LANES, n % EXACT_LANES * sizeof(T));                    \
        bias = (vec_u64)((vec_f64){0} + biases[0]);                                            \
        UNROLLED                                                                               \
        for (int w = 0; w < BINS; w++) {                                                       \
            UNROLLED                                                                           \
            for (int k = 0; k < EXACT_VECTORS; k++) acc[w][k] = (vec_f64){0} + biases[w];      \
        }                                                                                      \
        for (uint64_t i = 0; i < rounds; i++) {                                                \
            const T *at = i < whole ? p + i * EXACT_LANES : rest;                              \
            PREFETCH_TWICE(at, EXACT_LANES * sizeof(T));                                       \
            UNROLLED                                                                           \
            for (int k = 0; k < EXACT_VECTORS; k++) {                                          \
                vec_f64 x = (vec_f64)LOAD(at + k * VECTOR_LANES);                              \
                UNROLLED                                                                       \
                for (int w = 0; w < BINS; w++) {                                               \
                    const vec_f64 q = acc[w][k] + x;                                           \
                    x -= q - acc[w][k];                                                        \
                    acc[w][k] = q;                                                             \
                }                                                                              \
                moved |= (vec_u64)acc[0][k] ^ bias;                                            \
                left |= (vec_u64)x;                                                            \
            }                                                                                  \
        }                                                                                      \
        UNROLLED                                                                               \
        for (int k = 0; k < VECTOR_LANES; k++) any |= moved[k] >> 52 | left[k] << 1;           \
        UNROLLED                                                                               \
        for (int w = 0; w < BINS; w++) {                                                       \
            bias = (vec_u64)((vec_f64){0} + biases[w]);                                        \
            total = (vec_u64){0};                                                              \
            UNROLLED                                                                           \
            for (int k = 0; k < EXACT_VECTORS; k++) total += (vec_u64)acc[w][k] - bias;        \
            sum = 0;                                                                           \
            UNROLLED                                                                           \
            for (int k = 0; k < VECTOR_LANES; k++) sum += total[k];                            \
            sums[w] = (int64_t)sum;                                                            \
        }                                                                                      \
        return any == 0;                                                                       \
    }

DEFINE_EXACT_RUN(two_float32, float, WIDEN_F32, 2)
DEFINE_EXACT_RUN(two_float64, double, load_f64, 2)
DEFINE_EXACT_RUN(three_float64, double, load_f64, 3)
DEFINE_EXACT_RUN(all_float32, float, WIDEN_F32, GPR_EXACT_BINS)
DEFINE_EXACT_RUN(all_float64, double, load_f64, GPR_EXACT_BINS)

/* Floats of up to 24 bits leave so much space in one bin that bounds of their magnitudes prove the
 * sum exact: if the largest cannot move the accumulators out of 2^p to 2^(p + 1), and the lowest
 * bit of the smallest is not below the bin's last place, no addition rounds. Magnitudes are
 * compared as integers, many per vector. Accumulators of float32 are emptied after few additions,
 * which leaves more of the bin to the elements. */
enum {
    ONE_VECTORS = 4,
    ONE_LANES = ONE_VECTORS * VECTOR_BYTES / 8,
    TILE_ADDITIONS_BITS = VECTOR_BYTES == 64 ? 7
    : VECTOR_BYTES == 32                     ? 8
                                             : 9,
    ADDITIONS_BITS_float16 = TILE_ADDITIONS_BITS,
    ADDITIONS_BITS_bfloat16 = TILE_ADDITIONS_BITS,
    ADDITIONS_BITS_float32 = 3
};
_Static_assert(GPR_EXACT_TILE == ONE_LANES << TILE_ADDITIONS_BITS, "a tile's additions");
/* |x| < 2^(e + 1), their sum is to stay below 2^(p - 1), and a bit for tiles with larger
 * elements */
#define ONE_HEADROOM(name) (ADDITIONS_BITS_##name + 3)

/* Where no instruction gives the larger or the smaller of two. */
#define DEFINE_CHOICE(vec, choose)             \
    INLINE vec choose(vec first, vec x, vec y) \
    {                                          \
        return (x & first) | (y & ~first);     \
    }
#ifndef LARGER_i16
#define LARGER_i16(x, y) choose_i16((x) > (y), x, y)
#define SMALLER_i16(x, y) choose_i16((x) < (y), x, y)
DEFINE_CHOICE(vec_i16, choose_i16)
#endif
#ifndef LARGER_i32
#define LARGER_i32(x, y) choose_i32((x) > (y), x, y)
#define SMALLER_i32(x, y) choose_i32((x) < (y), x, y)
DEFINE_CHOICE(vec_i32, choose_i32)
#endif

/* The magnitudes seen so far: the largest, and the smallest plus the largest integer, so that 0
 * is the largest of all. */
#define DEFINE_MAGNITUDES(width)                                                                 \
    typedef struct magnitudes_##width {                                                          \
        vec_i##width largest, smallest;                                                          \
    } magnitudes_##width;                                                                        \
    INLINE void see_##width(magnitudes_##width *seen, const void *at)                            \
    {                                                                                            \
        vec_u##width bits;                                                                       \
        memcpy(&bits, at, sizeof bits);                                                          \
        bits &= INT##width##_MAX;                                                                \
        seen->largest = (vec_i##width)LARGER_i##width((vec_i##width)bits, seen->largest);        \
        seen->smallest = (vec_i##width)SMALLER_i##width((vec_i##width)(bits + INT##width##_MAX), \
                                                        seen->smallest);                         \
    }                                                                                            \
    /* Whether all are below `end`, and those that are not 0 are `first` > 0 or more. */         \
    INLINE int are_within_##width(const magnitudes_##width *seen, uint##width##_t first,         \
                                  uint##width##_t end)                                           \
    {                                                                                            \
        const vec_i##width low =                                                                 \
            (vec_i##width)((vec_u##width){0} + (uint##width##_t)(first + INT##width##_MAX));     \
        const vec_i##width high = (vec_i##width)((vec_u##width){0} + end);                       \
        const vec_u64 bad = (vec_u64)(seen->smallest < low) | (vec_u64)(seen->largest >= high);  \
        uint64_t any = 0;                                                                        \
        UNROLLED                                                                                 \
        for (int k = 0; k < VECTOR_LANES; k++) any |= bad[k];                                    \
        return any == 0;                                                                         \
    }
DEFINE_MAGNITUDES(16)
DEFINE_MAGNITUDES(32)

/* The bits of 2^exponent in a float type of 8 exponent bits, no more than those of infinity; 1, the
 * smallest magnitude, for exponents of subnormal numbers. */
INLINE uint32_t power_bits(int exponent, int fraction)
{
    const int field = exponent + 127;

    return field <= 1 ? 1 : (uint32_t)(field < 255 ? field : 255) << fraction;
}

INLINE int bias_exponent(double bias)
{
    uint64_t bits;

    memcpy(&bits, &bias, sizeof bits);
    return (int)(bits >> 52) - 1023;
}

INLINE void add_floats_one(const float *at, vec_f64 acc[ONE_VECTORS])
{
    UNROLLED
    for (int k = 0; k < ONE_VECTORS; k++) acc[k] += (vec_f64)WIDEN_F32(at + k * VECTOR_LANES);
}

/* A step of ONE_LANES elements. */
INLINE void step_float32(const float *at, vec_f64 acc[ONE_VECTORS], magnitudes_32 *seen)
{
    UNROLLED
    for (size_t byte = 0; byte < ONE_LANES * sizeof *at; byte += VECTOR_BYTES)
        see_32(seen, (const char *)at + byte);
    add_floats_one(at, acc);
}

INLINE void step_bfloat16(const uint16_t *at, vec_f64 acc[ONE_VECTORS], magnitudes_16 *seen)
{
    _Alignas(VECTOR_BYTES) float wide[ONE_LANES];
    vec_u32 pairs, halves[2];

    _Static_assert(ONE_LANES * sizeof *at == VECTOR_BYTES, "a vector of elements");
    memcpy(&pairs, at, sizeof pairs);
    see_16(seen, at);
    halves[0] = pairs << 16;
    halves[1] = pairs & UINT32_C(0xffff0000);
    memcpy(wide, halves, sizeof wide);
    add_floats_one(wide, acc);
}

/* All float16 there are fit the bin at its lowest place: only infinities and NaN move an
 * accumulator. */
typedef struct magnitudes_none {
    char none;
} magnitudes_none;

INLINE void step_float16(const uint16_t *at, vec_f64 acc[ONE_VECTORS], magnitudes_none *seen)
{
    _Alignas(VECTOR_BYTES) float wide[ONE_LANES];

    (void)seen;
#ifdef WIDEN_HALF_VECTOR
    UNROLLED
    for (int k = 0; k < ONE_LANES; k += HALF_VECTOR) WIDEN_HALF_VECTOR(at + k, wide + k);
#else
    /* As widen_half, by vectors: the compiler makes no vectors of so few. Of a NaN any will do. */
    vec_u32 pairs, halves[2];
    memcpy(&pairs, at, sizeof pairs);
    halves[0] = pairs & 0xffff;
    halves[1] = pairs >> 16;
    UNROLLED
    for (int k = 0; k < 2; k++) {
        const vec_u32 sign = (halves[k] & 0x8000) << 16, magnitude = (halves[k] & 0x7fff) << 13;
        const vec_f32 value = (vec_f32)magnitude * 0x1p112f;
        const vec_u32 special = (vec_u32)((vec_i32)magnitude >= 0x0f800000) & UINT32_C(0x7f800000);
        halves[k] = (vec_u32)value | special | sign;
    }
    memcpy(wide, halves, sizeof wide);
#endif
    add_floats_one(wide, acc);
}

#define START_32 {(vec_i32){0}, (vec_i32){0} + INT32_MAX}
#define START_16 {(vec_i16){0}, (vec_i16){0} + INT16_MAX}
#define START_none {0}
#define HOLDS_float32(seen, p)                         \
    are_within_32(seen, power_bits((p) - 52 + 23, 23), \
                  power_bits((p) - 1 - ADDITIONS_BITS_float32, 23))
#define HOLDS_bfloat16(seen, p)                                \
    are_within_16(seen, (uint16_t)power_bits((p) - 52 + 7, 7), \
                  (uint16_t)power_bits((p) - 1 - ADDITIONS_BITS_bfloat16, 7))
#define HOLDS_float16(seen, p) \
    ((void)(seen), (p) - 52 <= -24 && (p) - 1 - ADDITIONS_BITS_float16 >= 16)

/* Moves what accumulators hold, in units of the last place, to `total`; what is in the
 * exponents' place beside the bias's to `moved`. */
INLINE void empty_accumulators(vec_f64 acc[ONE_VECTORS], vec_u64 bias, vec_u64 *total,
                               vec_u64 *moved)
{
    UNROLLED
    for (int k = 0; k < ONE_VECTORS; k++) {
        *moved |= (vec_u64)acc[k] ^ bias;
        *total += (vec_u64)acc[k] - bias;
        acc[k] = (vec_f64)bias;
    }
}

#define DEFINE_EXACT_ONE(name, T, SEEN)                                                            \
    static int exact_one_##name(const void *data, uint64_t n, const double *biases, int64_t *sums) \
    {                                                                                              \
        const uint64_t whole = n / ONE_LANES;                                                      \
        const vec_u64 bias = (vec_u64)((vec_f64){0} + biases[0]);                                  \
        const T *p = data;                                                                         \
        T rest[ONE_LANES] = {0};                                                                   \
        vec_f64 acc[ONE_VECTORS];                                                                  \
        vec_u64 moved = {0}, total = {0};                                                          \
        magnitudes_##SEEN seen = START_##SEEN;                                                     \
        uint64_t any = 0, sum = 0;                                                                 \
                                                                                                   \
        UNROLLED                                                                                   \
        for (int k = 0; k < ONE_VECTORS; k++) acc[k] = (vec_f64)bias;                              \
        for (uint64_t i = 0; i < whole;) {                                                         \
            const uint64_t more = UINT64_C(1) << ADDITIONS_BITS_##name;                            \
            const uint64_t end = whole - i < more ? whole : i + more;                              \
            for (; i < end; i++) {                                                                 \
                PREFETCH_TWICE(p + i * ONE_LANES, ONE_LANES * sizeof(T));                          \
                step_##name(p + i * ONE_LANES, acc, &seen);                                        \
            }                                                                                      \
            empty_accumulators(acc, bias, &total, &moved);                                         \
        }                                                                                          \
        if (n % ONE_LANES != 0) {                                                                  \
            memcpy(rest, p + whole * ONE_LANES, n % ONE_LANES * sizeof(T));                        \
            step_##name(rest, acc, &seen);                                                         \
            empty_accumulators(acc, bias, &total, &moved);                                         \
        }                                                                                          \
        UNROLLED                                                                                   \
        for (int k = 0; k < VECTOR_LANES; k++) {                                                   \
            any |= moved[k] >> 52;                                                                 \
            sum += total[k];                                                                       \
        }                                                                                          \
        sums[0] = (int64_t)sum;                                                                    \
        return any == 0 && HOLDS_##name(&seen, bias_exponent(biases[0]));                          \
    }
DEFINE_EXACT_ONE(float32, float, 32)
DEFINE_EXACT_ONE(bfloat16, uint16_t, 16)
DEFINE_EXACT_ONE(float16, uint16_t, none)

/* From the largest element's exponent to the first bias's, where bins are watched: room for a
 * tile's sum, and for elements of later tiles that are a little larger. */
enum { WATCHED_HEADROOM = 16 };

#define DEFINE_EXTENT(name, BITS)                                                                  \
    static void extent_##name(const void *data, uint64_t n, uint64_t *largest, uint64_t *smallest) \
    {                                                                                              \
        const BITS *p = data, magnitude = (BITS)((BITS) ~(BITS)0 >> 1);                            \
        BITS most = 0, least = (BITS)(magnitude - 1);                                              \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            const BITS x = (BITS)(p[i] & magnitude), before = (BITS)(x - 1);                       \
            most = x > most ? x : most;                                                            \
            least = before < least ? before : least;                                               \
        }                                                                                          \
        *largest = most;                                                                           \
        *smallest = (uint64_t)least + 1;                                                           \
    }
DEFINE_EXTENT(16, uint16_t)
DEFINE_EXTENT(32, uint32_t)
DEFINE_EXTENT(64, uint64_t)

/* A double and the error of an addition to it: Knuth's two-sum, for numbers of any size. */
#define ADD_WITH_REST(V, sum, x, rest)                   \
    do {                                                 \
        const V before = sum, after = before + (x);      \
        const V of_x = after - before;                   \
        sum = after;                                     \
        rest = (before - (after - of_x)) + ((x) - of_x); \
    } while (0)

/* Adds b, which is not -0, and sets bits of *rounded where that rounds: otherwise the sum less
 * either number is the other one. */
INLINE void add_noting(vec_f64 *a, vec_f64 b, vec_i64 *rounded)
{
    const vec_f64 sum = *a + b, of_b = sum - *a, of_a = sum - b;

    *rounded |= ((vec_i64)of_a ^ (vec_i64)*a) | ((vec_i64)of_b ^ (vec_i64)b);
    *a = sum;
}

enum { PAIR_VECTORS = 2 }; /* added side by side: additions of one wait less for each other */

#define DEFINE_PAIRS(name, T, LOAD)                                                           \
    static void pairs_##name(const char *data, int64_t stride, uint64_t rows, uint64_t width, \
                             double *sums, double *rests, double *lost)                       \
    {                                                                                         \
        const uint64_t lanes = PAIR_VECTORS * VECTOR_LANES;                                   \
        uint64_t i = 0;                                                                       \
                                                                                              \
        for (; i + lanes <= width; i += lanes) {                                              \
            const char *at = data + i * sizeof(T);                                            \
            vec_f64 sum[PAIR_VECTORS], rest[PAIR_VECTORS];                                    \
            vec_i64 rounded[PAIR_VECTORS];                                                    \
            UNROLLED                                                                          \
            for (int k = 0; k < PAIR_VECTORS; k++) {                                          \
                sum[k] = load_f64(sums + i + k * VECTOR_LANES);                               \
                rest[k] = load_f64(rests + i + k * VECTOR_LANES);                             \
                rounded[k] = (vec_i64)load_f64(lost + i + k * VECTOR_LANES);                  \
            }                                                                                 \
            for (uint64_t row = 0; row < rows; row++, at += stride) {                         \
                UNROLLED                                                                      \
                for (int k = 0; k < PAIR_VECTORS; k++) {                                      \
                    const vec_f64 x =                                                         \
                        (vec_f64)LOAD((const T *)(const void *)at + k * VECTOR_LANES);        \
                    vec_f64 error;                                                            \
                    ADD_WITH_REST(vec_f64, sum[k], x, error);                                 \
                    add_noting(&rest[k], error, &rounded[k]);                                 \
                }                                                                             \
            }                                                                                 \
            UNROLLED                                                                          \
            for (int k = 0; k < PAIR_VECTORS; k++) {                                          \
                memcpy(sums + i + k * VECTOR_LANES, &sum[k], sizeof sum[k]);                  \
                memcpy(rests + i + k * VECTOR_LANES, &rest[k], sizeof rest[k]);               \
                const vec_f64 gone = (vec_f64)((vec_i64)(EVERY(1)) & (rounded[k] != 0));      \
                memcpy(lost + i + k * VECTOR_LANES, &gone, sizeof gone);                      \
            }                                                                                 \
        }                                                                                     \
        for (; i < width; i++) {                                                              \
            const char *at = data + i * sizeof(T);                                            \
            double sum = sums[i], rest = rests[i], gone = lost[i];                            \
            for (uint64_t row = 0; row < rows; row++, at += stride) {                         \
                const double x = *(const T *)(const void *)at;                                \
                double error, rest_error;                                                     \
                ADD_WITH_REST(double, sum, x, error);                                         \
                ADD_WITH_REST(double, rest, error, rest_error);                               \
                if (rest_error != 0) gone = 1; /* or NaN */                                   \
            }                                                                                 \
            sums[i] = sum;                                                                    \
            rests[i] = rest;                                                                  \
            lost[i] = gone;                                                                   \
        }                                                                                     \
    }

DEFINE_PAIRS(float32, float, WIDEN_F32)
DEFINE_PAIRS(float64, double, load_f64)

/* What rounding took from a product of doubles. It is a double itself if the product's lowest bit,
 * 105 places below its highest at most, is one of a double's. */
#if defined(HAS_FMA) || defined(__FP_FAST_FMA)
#define PRODUCT_REST(x, y, product) __builtin_fma(x, y, -(product))
#else
/* Dekker's: each factor is split into halves of 26 bits, whose products are exact. Where 2^27 times
 * a factor overflows, the rest becomes NaN. */
INLINE double upper_half(double x)
{
    const double scaled = 0x1p27 * x + x;

    return scaled - (scaled - x);
}

INLINE double product_rest(double x, double y, double product)
{
    const double high_x = upper_half(x), high_y = upper_half(y), low_x = x - high_x,
                 low_y = y - high_y;

    return low_x * low_y - (((product - high_x * high_y) - low_x * high_y) - high_x * low_y);
}
#define PRODUCT_REST(x, y, product) product_rest(x, y, product)
#endif

/* The least product, 2^-967, of which all bits are a double's, and the bits of what is not 0,
 * sign aside. */
#define LEAST_PRODUCT_BITS ((int64_t)(1023 + GPR_LEAST_SPLIT_PRODUCT) << 52)
#define MAGNITUDE_BITS(x) ((x) & INT64_MAX)

static int products_float64(const void *a, const void *b, uint64_t n, double *restrict high,
                            double *restrict low)
{
    const double *x = a, *y = b;
    int64_t bad = 0;

    for (uint64_t i = 0; i < n; i++) {
        const double product = x[i] * y[i];
        int64_t bits_x, bits_y, bits;

        memcpy(&bits_x, &x[i], sizeof bits_x);
        memcpy(&bits_y, &y[i], sizeof bits_y);
        memcpy(&bits, &product, sizeof bits);
        high[i] = product;
        low[i] = PRODUCT_REST(x[i], y[i], product);
        /* The sign bit of a difference is that of the comparison: magnitudes are not negative. */
        bad |= (MAGNITUDE_BITS(bits) - LEAST_PRODUCT_BITS) & -MAGNITUDE_BITS(bits_x) &
               -MAGNITUDE_BITS(bits_y);
    }
    return bad >= 0;
}

/* Products of float32 have 48 bits, from 2^-298 to 2^256: they are doubles. */
static int products_float32(const void *a, const void *b, uint64_t n, double *restrict high,
                            double *low)
{
    const float *x = a, *y = b;

    (void)low;
    for (uint64_t i = 0; i < n; i++) high[i] = (double)x[i] * (double)y[i];
    return 1;
}

#include "cpu/loops_product_sums.h"

#include "cpu/loops_few_products.h"

/* ---------------------------------------------------------------- scaled products ------------ */

static void multiply_mantissas(const double *x, uint64_t count, double *mantissas,
                               int64_t *exponents)
{
    const vec_u64 infinite = (vec_u64){0} + (UINT64_C(0x7ff) << 52),
                  one = (vec_u64){0} + (UINT64_C(1023) << 52);

    for (uint64_t j = 0; j < count; j += VECTOR_LANES) {
        const uint64_t left = count - j;
        const size_t bytes =
            left < VECTOR_LANES ? left * sizeof(double) : VECTOR_LANES * sizeof(double);
        vec_f64 number = (vec_f64)one, mantissa = number;
        vec_i64 sum = {0};

        if (left < VECTOR_LANES) {
            memcpy(&number, x + j, bytes);
            memcpy(&mantissa, mantissas + j, bytes);
            memcpy(&sum, exponents + j, bytes);
        } else {
            memcpy(&number, x + j, sizeof number);
            memcpy(&mantissa, mantissas + j, sizeof mantissa);
            memcpy(&sum, exponents + j, sizeof sum);
        }
        const vec_f64 up = number * 0x1p64; /* makes normal numbers of subnormal ones */
        const vec_u64 given = (vec_u64)number, field = given & infinite,
                      is_low = (vec_u64)(field == 0),
                      is_kept = (vec_u64)((field == infinite) | (given << 1 == 0)),
                      bits = (given & ~is_low) | ((vec_u64)up & is_low);

        sum += (vec_i64)((((bits & infinite) >> 52) - 1023 - (is_low & 64)) & ~is_kept);
        mantissa *= (vec_f64)((given & is_kept) | (((bits & ~infinite) | one) & ~is_kept));
        memcpy(mantissas + j, &mantissa, bytes);
        memcpy(exponents + j, &sum, bytes);
    }
}

/* ---------------------------------------------------------------- the table ------------------ */

#define LOOP_OF(fold, ID, name)                                                   \
    [GPR_FOLD_##fold][GPR_##ID] = {rows_##fold##_##name, columns_##fold##_##name, \
                                   (gpr_dtype)accumulator_##fold##_##name}
#define LOOPS_OF(ID, name)                                                      \
    LOOP_OF(sum, ID, name), LOOP_OF(prod, ID, name), LOOP_OF(min, ID, name),    \
        LOOP_OF(max, ID, name), LOOP_OF(any, ID, name), LOOP_OF(all, ID, name), \
        LOOP_OF(odd, ID, name), LOOP_OF(count, ID, name),
/* Bits have no sign: the loops of the unsigned type of the same size. */
#define BIT_LOOPS_OF(ID, unsigned_name)                                      \
    LOOP_OF(bit_and, ID, unsigned_name), LOOP_OF(bit_or, ID, unsigned_name), \
        LOOP_OF(bit_xor, ID, unsigned_name),

#define ROWS_GPR_KIND_BOOL_1(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_SIGNED_1(ID, name) LOOPS_OF(ID, name) BIT_LOOPS_OF(ID, uint8)
#define ROWS_GPR_KIND_SIGNED_2(ID, name) LOOPS_OF(ID, name) BIT_LOOPS_OF(ID, uint16)
#define ROWS_GPR_KIND_SIGNED_4(ID, name) LOOPS_OF(ID, name) BIT_LOOPS_OF(ID, uint32)
#define ROWS_GPR_KIND_SIGNED_8(ID, name) LOOPS_OF(ID, name) BIT_LOOPS_OF(ID, uint64)
#define ROWS_GPR_KIND_UNSIGNED_1(ID, name) LOOPS_OF(ID, name) BIT_LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_UNSIGNED_2(ID, name) LOOPS_OF(ID, name) BIT_LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_UNSIGNED_4(ID, name) LOOPS_OF(ID, name) BIT_LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_UNSIGNED_8(ID, name) LOOPS_OF(ID, name) BIT_LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_FLOAT_2(ID, name)
#define ROWS_GPR_KIND_FLOAT_4(ID, name) LOOPS_OF(ID, name) NAN_LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_FLOAT_8(ID, name) LOOPS_OF(ID, name) NAN_LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_COMPLEX_8(ID, name) LOOPS_OF(ID, name) NAN_LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_COMPLEX_16(ID, name) LOOPS_OF(ID, name) NAN_LOOPS_OF(ID, name)

#define SKIPPING_OF(fold, ID, name)                                  \
    [GPR_FOLD_##fold][GPR_##ID] = {rows_skipping_##fold##_##name,    \
                                   columns_skipping_##fold##_##name, \
                                   (gpr_dtype)accumulator_skipping_##fold##_##name}
#define ALL_SKIPPING_OF(ID, name) SKIPPING_OF(sum, ID, name), SKIPPING_OF(prod, ID, name)
/* Folds of floats and complex numbers alone. */
#define NAN_LOOPS_OF(ID, name) LOOP_OF(fmin, ID, name), LOOP_OF(fmax, ID, name),

#define NUMBERS_LOOP(name) {rows_numbers_##name, columns_numbers_##name, GPR_UINT64}

#define FIND_GPR_KIND_FLOAT_2(ID, name)
#define FIND_LOOP(ID, name) [GPR_##ID] = find_##name,
#define FIND_GPR_KIND_BOOL_1 FIND_LOOP
#define FIND_GPR_KIND_SIGNED_1 FIND_LOOP
#define FIND_GPR_KIND_SIGNED_2 FIND_LOOP
#define FIND_GPR_KIND_SIGNED_4 FIND_LOOP
#define FIND_GPR_KIND_SIGNED_8 FIND_LOOP
#define FIND_GPR_KIND_UNSIGNED_1 FIND_LOOP
#define FIND_GPR_KIND_UNSIGNED_2 FIND_LOOP
#define FIND_GPR_KIND_UNSIGNED_4 FIND_LOOP
#define FIND_GPR_KIND_UNSIGNED_8 FIND_LOOP
#define FIND_GPR_KIND_FLOAT_4 FIND_LOOP
#define FIND_GPR_KIND_FLOAT_8 FIND_LOOP
#define FIND_GPR_KIND_COMPLEX_8 FIND_LOOP
#define FIND_GPR_KIND_COMPLEX_16 FIND_LOOP

#define POSITIONS_LOOP(ID, loop) [GPR_##ID] = loop,
#define POSITIONS_GPR_KIND_BOOL_1 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_SIGNED_1 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_SIGNED_2 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_SIGNED_4 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_SIGNED_8 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_UNSIGNED_1 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_UNSIGNED_2 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_UNSIGNED_4 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_UNSIGNED_8 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_FLOAT_2(ID, loop)
#define POSITIONS_GPR_KIND_FLOAT_4 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_FLOAT_8 POSITIONS_LOOP
#define POSITIONS_GPR_KIND_COMPLEX_8(ID, loop)
#define POSITIONS_GPR_KIND_COMPLEX_16(ID, loop)
#define BLOCKS_GPR_KIND_BOOL(bytes, ID, loop)
#define BLOCKS_GPR_KIND_SIGNED(bytes, ID, loop) POSITIONS_GPR_KIND_SIGNED_##bytes(ID, loop)
#define BLOCKS_GPR_KIND_UNSIGNED(bytes, ID, loop) POSITIONS_GPR_KIND_UNSIGNED_##bytes(ID, loop)
#define BLOCKS_GPR_KIND_FLOAT(bytes, ID, loop) POSITIONS_GPR_KIND_FLOAT_##bytes(ID, loop)
#define BLOCKS_GPR_KIND_COMPLEX(bytes, ID, loop) POSITIONS_GPR_KIND_COMPLEX_##bytes(ID, loop)

const gpr_loops LOOPS_TABLE = {
    .isa = LOOPS_ISA,
    .vector_bytes = VECTOR_BYTES,
    .loop =
        {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) ROWS_##kind##_##bytes(ID, name)
#include "dtypes.def"
#undef GPR_DTYPE
        },
    .skipping = {ALL_SKIPPING_OF(FLOAT32, float32), ALL_SKIPPING_OF(FLOAT64, float64),
                 SKIPPING_OF(sum, COMPLEX64, complex64), SKIPPING_OF(sum, COMPLEX128, complex128)},
    .truths_of_16 =
        {
            [GPR_FOLD_any] = {rows_any_float_of_16, columns_any_float_of_16, GPR_UINT8},
            [GPR_FOLD_all] = {rows_all_float_of_16, columns_all_float_of_16, GPR_UINT8},
        },
    .numbers =
        {
            [GPR_FLOAT32] = NUMBERS_LOOP(float32),
            [GPR_FLOAT64] = NUMBERS_LOOP(float64),
            [GPR_COMPLEX64] = NUMBERS_LOOP(complex64),
            [GPR_COMPLEX128] = NUMBERS_LOOP(complex128),
        },
    .variances = variances,
    .squares =
        {
            [GPR_FLOAT32] = squares_float32,
            [GPR_FLOAT64] = squares_float64,
            [GPR_COMPLEX64] = squares_complex64,
            [GPR_COMPLEX128] = squares_complex128,
        },
    .distances = {[GPR_FLOAT32] = distances_float32, [GPR_FLOAT64] = distances_float64},
    .moments =
        {
            [GPR_FLOAT32] = moments_float32,
            [GPR_FLOAT64] = moments_float64,
            [GPR_COMPLEX64] = moments_complex64,
            [GPR_COMPLEX128] = moments_complex128,
        },
    .skipping_columns = {[GPR_FLOAT32] = skipping_columns_float32,
                         [GPR_FLOAT64] = skipping_columns_float64},
    .skipping_moments =
        {
            [GPR_FLOAT32] = skipping_moments_float32,
            [GPR_FLOAT64] = skipping_moments_float64,
            [GPR_COMPLEX64] = skipping_moments_complex64,
            [GPR_COMPLEX128] = skipping_moments_complex128,
        },
    .positions =
        {
            [GPR_FOLD_min] =
                {
                    .rows =
                        {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    POSITIONS_##kind##_##bytes(ID, first_min_##name)
#include "dtypes.def"
#undef GPR_DTYPE
                            [GPR_COMPLEX64] = first_min_complex64,
                            [GPR_COMPLEX128] = first_min_complex128,
                        },
                    .columns =
                        {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    POSITIONS_##kind##_##bytes(ID, columns_first_min_##name)
#include "dtypes.def"
#undef GPR_DTYPE
                        },
                    .blocks =
                        {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    BLOCKS_##kind(bytes, ID, column_blocks_first_min_##name)
#include "dtypes.def"
#undef GPR_DTYPE
                        },
                },
            [GPR_FOLD_max] =
                {
                    .rows =
                        {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    POSITIONS_##kind##_##bytes(ID, first_max_##name)
#include "dtypes.def"
#undef GPR_DTYPE
                            [GPR_COMPLEX64] = first_max_complex64,
                            [GPR_COMPLEX128] = first_max_complex128,
                        },
                    .columns =
                        {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    POSITIONS_##kind##_##bytes(ID, columns_first_max_##name)
#include "dtypes.def"
#undef GPR_DTYPE
                        },
                    .blocks =
                        {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    BLOCKS_##kind(bytes, ID, column_blocks_first_max_##name)
#include "dtypes.def"
#undef GPR_DTYPE
                        },
                },
            [GPR_FOLD_fmin] = {.rows = {[GPR_FLOAT32] = first_fmin_float32,
                                        [GPR_FLOAT64] = first_fmin_float64,
                                        [GPR_COMPLEX64] = first_fmin_complex64,
                                        [GPR_COMPLEX128] = first_fmin_complex128},
                               .columns = {[GPR_FLOAT32] = columns_first_fmin_float32,
                                           [GPR_FLOAT64] = columns_first_fmin_float64},
                               .blocks = {[GPR_FLOAT32] = column_blocks_first_fmin_float32,
                                          [GPR_FLOAT64] = column_blocks_first_fmin_float64}},
            [GPR_FOLD_fmax] = {.rows = {[GPR_FLOAT32] = first_fmax_float32,
                                        [GPR_FLOAT64] = first_fmax_float64,
                                        [GPR_COMPLEX64] = first_fmax_complex64,
                                        [GPR_COMPLEX128] = first_fmax_complex128},
                               .columns = {[GPR_FLOAT32] = columns_first_fmax_float32,
                                           [GPR_FLOAT64] = columns_first_fmax_float64},
                               .blocks = {[GPR_FLOAT32] = column_blocks_first_fmax_float32,
                                          [GPR_FLOAT64] = column_blocks_first_fmax_float64}},
        },
    .find =
        {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) FIND_##kind##_##bytes(ID, name)
#include "dtypes.def"
#undef GPR_DTYPE
        },
    .widen =
        {
            [GPR_FLOAT16] = {widen_float16, GPR_FLOAT32},
            [GPR_BFLOAT16] = {widen_bfloat16, GPR_FLOAT32},
            [GPR_BOOL] = {widen_bool, GPR_FLOAT64},
            [GPR_INT8] = {widen_int8, GPR_FLOAT64},
            [GPR_INT16] = {widen_int16, GPR_FLOAT64},
            [GPR_INT32] = {widen_int32, GPR_FLOAT64},
            [GPR_UINT8] = {widen_uint8, GPR_FLOAT64},
            [GPR_UINT16] = {widen_uint16, GPR_FLOAT64},
            [GPR_UINT32] = {widen_uint32, GPR_FLOAT64},
            [GPR_INT64] = {widen_int64, GPR_FLOAT64},
            [GPR_UINT64] = {widen_uint64, GPR_FLOAT64},
        },
    .halves = {rows_halves, columns_halves, GPR_FLOAT64},
    .skipping_halves = {rows_skipping_halves, columns_skipping_halves, GPR_FLOAT64},
    .magnitudes = {rows_sum_magnitudes, columns_sum_magnitudes, GPR_FLOAT64},
    .magnitude_halves = {rows_magnitude_halves, columns_magnitude_halves, GPR_FLOAT64},
    .combine_halves = columns_of_halves,
    .gapped_halves = halves_gapped,
    .gapped_skipping_halves = skipping_halves_gapped,
    .gapped_magnitude_halves = magnitude_halves_gapped,
    .round_sums = round_sums,
    .round_pairs = round_pairs,
    .round_pairs_to_single = round_pairs_to_single,
    .exact =
        {
            [GPR_FLOAT16] = {{{exact_one_float16, 1, ONE_HEADROOM(float16), 0}}, extent_16},
            [GPR_BFLOAT16] = {{{exact_one_bfloat16, 1, ONE_HEADROOM(bfloat16), 0},
                               {exact_two_float32, 2, WATCHED_HEADROOM, 1},
                               {exact_all_float32, GPR_EXACT_BINS, WATCHED_HEADROOM, 1}},
                              extent_16},
            [GPR_FLOAT32] = {{{exact_one_float32, 1, ONE_HEADROOM(float32), 0},
                              {exact_two_float32, 2, WATCHED_HEADROOM, 0},
                              {exact_all_float32, GPR_EXACT_BINS, WATCHED_HEADROOM, 0}},
                             extent_32},
            [GPR_FLOAT64] = {{{exact_two_float64, 2, WATCHED_HEADROOM, 0},
                              {exact_three_float64, 3, WATCHED_HEADROOM, 0},
                              {exact_all_float64, GPR_EXACT_BINS, WATCHED_HEADROOM, 0}},
                             extent_64},
        },
    .products = {[GPR_FLOAT32] = products_float32, [GPR_FLOAT64] = products_float64},
    .multiply_mantissas = multiply_mantissas,
    .product_sums =
        {
            [GPR_PRODUCTS] = {[GPR_FLOAT32] = sum_of_products_float32,
                              [GPR_FLOAT64] = sum_of_products_float64},
            [GPR_SQUARES] = {[GPR_FLOAT32] = sum_of_squares_float32,
                             [GPR_FLOAT64] = sum_of_squares_float64},
            [GPR_MAGNITUDES] = {[GPR_FLOAT64] = sum_of_magnitudes_float64},
        },
    .product_rows =
        {
            [GPR_PRODUCTS] = {[GPR_FLOAT32] = rows_of_products_float32,
                              [GPR_FLOAT64] = rows_of_products_float64},
            [GPR_SQUARES] = {[GPR_FLOAT32] = rows_of_squares_float32,
                             [GPR_FLOAT64] = rows_of_squares_float64},
            [GPR_MAGNITUDES] = {[GPR_FLOAT64] = rows_of_magnitudes_float64},
        },
    .wide_product_rows = rows_of_products_wide_float32,
    .exact_product_rows = {[GPR_FLOAT32] = exact_rows_float32, [GPR_FLOAT64] = exact_rows_float64},
    .few_products = {[GPR_FLOAT32] = few_products_float32, [GPR_FLOAT64] = few_products_float64},
    .intervals = intervals,
    .any_bits = any_bits,
    .wrapped_products = {[GPR_INT8] = wrapped_products_int8,
                         [GPR_INT16] = wrapped_products_int16,
                         [GPR_INT32] = wrapped_products_int32,
                         [GPR_INT64] = wrapped_products_uint64,
                         [GPR_UINT8] = wrapped_products_uint8,
                         [GPR_UINT16] = wrapped_products_uint16,
                         [GPR_UINT32] = wrapped_products_uint32,
                         [GPR_UINT64] = wrapped_products_uint64},
    .complex_product_sums = {[GPR_COMPLEX64] = sums_of_products_complex64,
                             [GPR_COMPLEX128] = sums_of_products_complex128},
    .pairs = {[GPR_FLOAT32] = pairs_float32, [GPR_FLOAT64] = pairs_float64},
    .gapped =
        {
#ifdef HAS_INTEGER_VOCABULARY
            [GPR_FOLD_min] = {GAPPED_INTEGERS(min)},
            [GPR_FOLD_max] = {GAPPED_INTEGERS(max)},
#endif
            [GPR_FOLD_sum] =
                {
                    [GPR_FLOAT64] = sum_gapped_float64,
                    [GPR_COMPLEX128] = sum_gapped_complex128,
#ifdef HAS_INTEGER_VOCABULARY
                    GAPPED_INTEGERS(sum),
#endif
                },
        },
    .every_second = {[4] = every_second_4, [8] = every_second_8, [16] = every_second_16},
    .repeated = {[1] = repeated_1,
                 [2] = repeated_2,
                 [4] = repeated_4,
                 [8] = repeated_8,
                 [16] = repeated_16},
    .swapped = {[2] = swapped_2, [4] = swapped_4, [8] = swapped_8},
    .less_one = less_one,
    .exp_sums = {[GPR_FLOAT32] = exp_sums_float32, [GPR_FLOAT64] = exp_sums_float64},
    .exp_columns = {[GPR_FLOAT32] = exp_columns_float32, [GPR_FLOAT64] = exp_columns_float64},
};
