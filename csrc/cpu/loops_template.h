/* The loops of loops.h, written once and compiled once for each instruction set.
 *
 * The including file selects the instruction set for the code that follows, and defines
 *   LOOPS_TABLE   name of the table to define
 *   LOOPS_ISA     its instruction set's name
 *   VECTOR_BYTES  bytes of a vector register
 * and, where the processor has something better than the portable form, the floating vocabulary (see below).
 *
 * Most loops are plain C that both compilers vectorise. Written with vectors are those they do not: float sums (their
 * order is ours to choose, not the compiler's), float minima with NaN, and byte sums in narrow lanes.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "loops.h"

#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#define SCALAR_LOOP _Pragma("clang loop vectorize(disable)")
#else
#define UNROLLED _Pragma("GCC unroll 32")
#define SCALAR_LOOP
#endif
#define INLINE static inline __attribute__((always_inline))

typedef double vec_f64 __attribute__((vector_size(VECTOR_BYTES)));
typedef float vec_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t vec_u8 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vec_u16 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vec_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vec_i32 __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t vec_i64 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t vec_u64 __attribute__((vector_size(VECTOR_BYTES)));

/* The processor's own prefetchers stop at page ends: reading ahead by hand takes a tenth off runs from main memory.
 * The address may lie past the array, where a prefetch does nothing. */
enum { PREFETCH_BYTES = 2048, CACHE_LINE_BYTES = 64 };
#define PREFETCH(p, bytes)                                             \
    UNROLLED                                                           \
    for (size_t ahead = 0; ahead < (bytes); ahead += CACHE_LINE_BYTES) \
    __builtin_prefetch((const void *)((uintptr_t)(p) + PREFETCH_BYTES + ahead))

/* ---------------------------------------------------------------- folds of two values -------- */

/* x != x asks for NaN and is never true of an integer. */
#define FOLD_sum(x, y) ((x) + (y))
#define FOLD_prod(x, y) ((x) * (y))
#define FOLD_min(x, y) ((x) < (y) || (x) != (x) ? (x) : (y))
#define FOLD_max(x, y) ((x) > (y) || (x) != (x) ? (x) : (y))
#define FOLD_any(x, y) ((x) | (y))
#define FOLD_all(x, y) ((x) & (y))

/* What a short row starts from: a sum is never -0, as NumPy's is not, because it starts from 0. */
#define START_sum(x) (0 + (x))
#define START_prod(x) (x)
#define START_min(x) (x)
#define START_max(x) (x)
#define START_any(x) (x)
#define START_all(x) (x)

/* The elements' values as they enter the fold. Sums and products of integers are computed unsigned: they wrap. */
#define LIFT_WIDE(x) ((uint64_t)(x))
#define LIFT_BOOL(x) ((uint64_t)((x) != 0))
#define LIFT_DOUBLE(x) ((double)(x))
#define LIFT_SAME(x) (x)
#define LIFT_TRUTH(x) ((uint32_t)((x) != 0))

/* Rows shorter than this are folded one element after the other: a vector loop would be all beginning and end. */
enum { SHORT_ROW = 16 };

#define ACCUMULATOR_DTYPE(ACC) \
    _Generic((ACC)0,           \
        int32_t: GPR_INT32,    \
        uint32_t: GPR_UINT32,  \
        int64_t: GPR_INT64,    \
        uint64_t: GPR_UINT64,  \
        float: GPR_FLOAT32,    \
        double: GPR_FLOAT64)

/* Both shapes of a loop. `run` folds one long row and returns an ACC.
 *   ELEMENT  type of a lifted element, in which SHORT_ROW of them fold
 *   NARROW   type in which ROUND rows of a column fold before they meet the accumulators: as narrow as it may be,
 *            so that a vector holds many columns. Rows are taken four at a time, to save loads and stores of NARROW
 *   LOWER    makes a NARROW value an accumulator's */
#define DEFINE_LOOP(fold, name, T, ACC, ELEMENT, LIFT, NARROW, ROUND, LIFT_NARROW, LOWER) \
    DEFINE_SHORT(fold, name, T, ELEMENT, LIFT)                                            \
    DEFINE_SHAPES(fold, name, T, ACC, NARROW, ROUND, LIFT_NARROW, LOWER)

#define DEFINE_SHORT(fold, name, T, ELEMENT, LIFT)               \
    INLINE ELEMENT short_##fold##_##name(const T *p, uint64_t n) \
    {                                                            \
        ELEMENT value = START_##fold(LIFT(p[0]));                \
        SCALAR_LOOP                                              \
        for (uint64_t i = 1; i < n; i++) {                       \
            const ELEMENT x = LIFT(p[i]);                        \
            value = FOLD_##fold(value, x);                       \
        }                                                        \
        return value;                                            \
    }

#define DEFINE_SHAPES(fold, name, T, ACC, NARROW, ROUND, LIFT_NARROW, LOWER)                                        \
    enum { accumulator_##fold##_##name = ACCUMULATOR_DTYPE(ACC) };                                                  \
    static void rows_##fold##_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n, void *out)        \
    {                                                                                                               \
        ACC *accumulators = out;                                                                                    \
        if (n >= SHORT_ROW) {                                                                                       \
            for (uint64_t r = 0; r < rows; r++)                                                                     \
                accumulators[r] = fold##_##name((const T *)(const void *)(data + (int64_t)r * stride), n);          \
        } else {                                                                                                    \
            for (uint64_t r = 0; r < rows; r++) {                                                                   \
                const T *row = (const T *)(const void *)(data + (int64_t)r * stride);                               \
                accumulators[r] = (ACC)short_##fold##_##name(row, n);                                               \
            }                                                                                                       \
        }                                                                                                           \
    }                                                                                                               \
    static void columns_##fold##_##name(const char *data, int64_t stride, uint64_t rows, uint64_t width, void *out) \
    {                                                                                                               \
        ACC *restrict accumulators = out;                                                                           \
        NARROW narrow[GPR_COLUMN_BLOCK];                                                                            \
        while (rows > 0) {                                                                                          \
            uint64_t left = rows < (ROUND) ? rows : (ROUND);                                                        \
            const T *restrict first = (const T *)(const void *)data;                                                \
            rows -= left;                                                                                           \
            for (uint64_t j = 0; j < width; j++) narrow[j] = (NARROW)LIFT_NARROW(first[j]);                         \
            data += stride;                                                                                         \
            left--;                                                                                                 \
            for (; left >= 4; left -= 4, data += 4 * stride) {                                                      \
                const T *restrict a = (const T *)(const void *)data;                                                \
                const T *restrict b = (const T *)(const void *)(data + stride);                                     \
                const T *restrict c = (const T *)(const void *)(data + 2 * stride);                                 \
                const T *restrict d = (const T *)(const void *)(data + 3 * stride);                                 \
                for (uint64_t j = 0; j < width; j++) {                                                              \
                    const NARROW na = (NARROW)LIFT_NARROW(a[j]), nb = (NARROW)LIFT_NARROW(b[j]);                    \
                    const NARROW nc = (NARROW)LIFT_NARROW(c[j]), nd = (NARROW)LIFT_NARROW(d[j]);                    \
                    const NARROW ab = (NARROW)FOLD_##fold(na, nb), cd = (NARROW)FOLD_##fold(nc, nd);                \
                    const NARROW abcd = (NARROW)FOLD_##fold(ab, cd), before = narrow[j];                            \
                    narrow[j] = (NARROW)FOLD_##fold(before, abcd);                                                  \
                }                                                                                                   \
            }                                                                                                       \
            for (; left > 0; left--, data += stride) {                                                              \
                const T *restrict a = (const T *)(const void *)data;                                                \
                for (uint64_t j = 0; j < width; j++) {                                                              \
                    const NARROW na = (NARROW)LIFT_NARROW(a[j]), before = narrow[j];                                \
                    narrow[j] = (NARROW)FOLD_##fold(before, na);                                                    \
                }                                                                                                   \
            }                                                                                                       \
            for (uint64_t j = 0; j < width; j++) {                                                                  \
                const ACC folded = (ACC)LOWER(narrow[j]), before = accumulators[j];                                 \
                accumulators[j] = FOLD_##fold(before, folded);                                                      \
            }                                                                                                       \
        }                                                                                                           \
    }

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

/* Bytes are summed in 16-bit lanes, even and odd ones together, for as many vectors as surely fit; those lanes then
 * go to 32-bit ones the same way. BYTE maps a vector of elements to unsigned bytes. */
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

/* Independent products, because a multiplication takes several times longer than the next one waits to start. */
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

/* Doubles in SUM_LANES lanes, folded to one as a tree at the end. Runs longer than SUM_BLOCK are folded by halves, so
 * that the rounding error grows with the logarithm of the length. */
enum { SUM_LANES = 32, SUM_BLOCK = 4096, LANE_VECTORS = SUM_LANES * 8 / VECTOR_BYTES, VECTOR_LANES = VECTOR_BYTES / 8 };

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

#define DEFINE_DOUBLE_RUN(fold, name, T, LOAD, IDENTITY)                                      \
    static double fold##_block_##name(const T *p, uint64_t n)                                 \
    {                                                                                         \
        double lanes[VECTOR_LANES], tail = IDENTITY;                                          \
        vec_f64 acc[LANE_VECTORS];                                                            \
        uint64_t i = 0;                                                                       \
        UNROLLED                                                                              \
        for (int k = 0; k < LANE_VECTORS; k++) acc[k] = (vec_f64){0} + IDENTITY;              \
        for (; i + SUM_LANES <= n; i += SUM_LANES) {                                          \
            PREFETCH(p + i, SUM_LANES * sizeof(T));                                           \
            UNROLLED                                                                          \
            for (int k = 0; k < LANE_VECTORS; k++)                                            \
                acc[k] = FOLD_##fold(acc[k], (vec_f64)LOAD(p + i + k * VECTOR_LANES));        \
        }                                                                                     \
        /* Lanes pair up at the same distances whether they share a vector or not. */         \
        UNROLLED                                                                              \
        for (int half = LANE_VECTORS / 2; half > 0; half /= 2) {                              \
            UNROLLED                                                                          \
            for (int k = 0; k < half; k++) acc[k] = FOLD_##fold(acc[k], acc[k + half]);       \
        }                                                                                     \
        memcpy(lanes, acc, sizeof lanes);                                                     \
        UNROLLED                                                                              \
        for (int half = VECTOR_LANES / 2; half > 0; half /= 2) {                              \
            UNROLLED                                                                          \
            for (int k = 0; k < half; k++) lanes[k] = FOLD_##fold(lanes[k], lanes[k + half]); \
        }                                                                                     \
        for (; i < n; i++) tail = FOLD_##fold(tail, (double)p[i]);                            \
        return FOLD_##fold(lanes[0], tail);                                                   \
    }                                                                                         \
    static double fold##_##name(const T *p, uint64_t n)                                       \
    {                                                                                         \
        const uint64_t left = (n + SUM_BLOCK - 1) / SUM_BLOCK / 2 * SUM_BLOCK;                \
        if (n <= SUM_BLOCK) return fold##_block_##name(p, n);                                 \
        return FOLD_##fold(fold##_##name(p, left), fold##_##name(p + left, n - left));        \
    }

/* ---------------------------------------------------------------- minima and maxima ---------- */

/* Four walks at once, because a vector minimum takes longer than the next one waits to start. */
#define DEFINE_INT_EXTREME_RUN(fold, name, T, ACC)                           \
    INLINE ACC fold##_##name(const T *p, uint64_t n)                         \
    {                                                                        \
        const uint64_t quarter = n / 256 * 64;                               \
        const T *q = p + quarter, *r = q + quarter, *s = r + quarter;        \
        T a = p[0], b = a, c = a, d = a;                                     \
        for (uint64_t i = 0; i < quarter; i++) {                             \
            a = FOLD_##fold(p[i], a);                                        \
            b = FOLD_##fold(q[i], b);                                        \
            c = FOLD_##fold(r[i], c);                                        \
            d = FOLD_##fold(s[i], d);                                        \
        }                                                                    \
        for (uint64_t i = 4 * quarter; i < n; i++) a = FOLD_##fold(p[i], a); \
        a = FOLD_##fold(a, b);                                               \
        c = FOLD_##fold(c, d);                                               \
        return (ACC)FOLD_##fold(a, c);                                       \
    }

/* The floating vocabulary. EXTREME_<fold>_<type>(x, a) is the smaller or larger lane by lane, and may return either
 * where one is NaN; UNORDERED flags lanes where x or y is NaN, so that one test serves two vectors. */
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

enum { EXTREME_VECTORS = 4 };

/* NaN is looked for beside the comparisons, so that they are the processor's own minimum: no branch to mispredict. */
#define DEFINE_FLOAT_EXTREME_RUN(fold, name, T, tag, BETTER)                                                        \
    INLINE T short_##fold##_##name(const T *p, uint64_t n)                                                          \
    {                                                                                                               \
        T value = p[0];                                                                                             \
        int unordered = value != value;                                                                             \
        SCALAR_LOOP                                                                                                 \
        for (uint64_t i = 1; i < n; i++) {                                                                          \
            unordered |= p[i] != p[i];                                                                              \
            value = p[i] BETTER value ? p[i] : value;                                                               \
        }                                                                                                           \
        return unordered ? (T)NAN : value;                                                                          \
    }                                                                                                               \
    INLINE T fold##_##name(const T *p, uint64_t n)                                                                  \
    {                                                                                                               \
        enum { LANES = VECTOR_BYTES / sizeof(T), STEP = LANES * EXTREME_VECTORS };                                  \
        vec_##tag acc[EXTREME_VECTORS], x[EXTREME_VECTORS];                                                         \
        flag_##tag flag = NO_FLAG;                                                                                  \
        T lanes[LANES];                                                                                             \
        uint64_t i = 0;                                                                                             \
        if (n < LANES) return short_##fold##_##name(p, n);                                                          \
        UNROLLED                                                                                                    \
        for (int k = 0; k < EXTREME_VECTORS; k++) memcpy(&acc[k], p, sizeof acc[k]);                                \
        for (; i + STEP <= n; i += STEP) {                                                                          \
            PREFETCH(p + i, STEP * sizeof(T));                                                                      \
            UNROLLED                                                                                                \
            for (int k = 0; k < EXTREME_VECTORS; k++) memcpy(&x[k], p + i + k * LANES, sizeof x[k]);                \
            UNROLLED                                                                                                \
            for (int k = 0; k < EXTREME_VECTORS; k++) acc[k] = (vec_##tag)EXTREME_##fold##_##tag(x[k], acc[k]);     \
            UNROLLED                                                                                                \
            for (int k = 0; k < EXTREME_VECTORS; k += 2) flag = UNORDERED_##tag(flag, x[k], x[k + 1]);              \
        }                                                                                                           \
        /* The last vector may take elements a second time: that changes no extreme. */                             \
        for (; i < n; i += LANES) {                                                                                 \
            memcpy(&x[0], p + (i + LANES <= n ? i : n - LANES), sizeof x[0]);                                       \
            acc[0] = (vec_##tag)EXTREME_##fold##_##tag(x[0], acc[0]);                                               \
            flag = UNORDERED_##tag(flag, x[0], x[0]);                                                               \
        }                                                                                                           \
        UNROLLED                                                                                                    \
        for (int k = 1; k < EXTREME_VECTORS; k++) acc[0] = (vec_##tag)EXTREME_##fold##_##tag(acc[0], acc[k]);       \
        memcpy(lanes, &acc[0], sizeof lanes);                                                                       \
        UNROLLED                                                                                                    \
        for (int half = LANES / 2; half > 0; half /= 2) {                                                           \
            UNROLLED                                                                                                \
            for (int k = 0; k < half; k++) lanes[k] = lanes[k] BETTER lanes[k + half] ? lanes[k] : lanes[k + half]; \
        }                                                                                                           \
        return is_flagged_##tag(flag) ? (T)NAN : lanes[0];                                                          \
    }

/* ---------------------------------------------------------------- any and all ---------------- */

/* A run stops at the first block that decides it. */
enum { TRUTH_BLOCK_BYTES = 8192 };

/* SAW is what is ored together: something that is not zero if the element decides. */
#define DEFINE_TRUTH_RUN(fold, name, T, BITS, SAW, DECIDED)               \
    INLINE uint32_t fold##_##name(const T *p, uint64_t n)                 \
    {                                                                     \
        const uint64_t block = TRUTH_BLOCK_BYTES / sizeof(T);             \
        while (n > 0) {                                                   \
            const uint64_t count = n < block ? n : block;                 \
            BITS seen = 0;                                                \
            for (uint64_t i = 0; i < count; i++) seen |= (BITS)SAW(p[i]); \
            if (seen != 0) return DECIDED;                                \
            p += count;                                                   \
            n -= count;                                                   \
        }                                                                 \
        return !DECIDED;                                                  \
    }

#define SAW_BITS(x) (x)
#define SAW_NOT_ZERO(x) ((x) != 0)
#define SAW_ZERO(x) ((x) == 0)

/* ---------------------------------------------------------------- all loops of a dtype ------- */

#define LOWER_WIDE(x) ((int64_t)(x))
#define LOWER_SAME(x) (x)
#define LOWER_TRUTH(x) ((x) != 0)
#define ANY_ROWS UINT64_MAX /* a ROUND that never ends */

#define DEFINE_TRUTH(name, T, BITS, SAW_ANY)                                                        \
    DEFINE_TRUTH_RUN(any, name, T, BITS, SAW_ANY, 1)                                                \
    DEFINE_TRUTH_RUN(all, name, T, BITS, SAW_ZERO, 0)                                               \
    DEFINE_LOOP(any, name, T, uint32_t, uint32_t, LIFT_TRUTH, BITS, ANY_ROWS, SAW_ANY, LOWER_TRUTH) \
    DEFINE_LOOP(all, name, T, uint32_t, uint32_t, LIFT_TRUTH, BITS, ANY_ROWS, SAW_NOT_ZERO, LOWER_TRUTH)

#define DEFINE_INT(name, T, ACC, ELEMENT, LIFT, NARROW, ROUND)                                           \
    DEFINE_PROD_RUN(name, T)                                                                             \
    DEFINE_INT_EXTREME_RUN(min, name, T, ACC)                                                            \
    DEFINE_INT_EXTREME_RUN(max, name, T, ACC)                                                            \
    DEFINE_LOOP(sum, name, T, uint64_t, ELEMENT, LIFT, NARROW, ROUND, LIFT_SAME, LOWER_WIDE)             \
    DEFINE_LOOP(prod, name, T, uint64_t, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS, LIFT_WIDE, LOWER_SAME) \
    DEFINE_LOOP(min, name, T, ACC, T, LIFT_SAME, T, ANY_ROWS, LIFT_SAME, LOWER_SAME)                     \
    DEFINE_LOOP(max, name, T, ACC, T, LIFT_SAME, T, ANY_ROWS, LIFT_SAME, LOWER_SAME)                     \
    DEFINE_TRUTH(name, T, T, SAW_BITS)

#define DEFINE_FLOAT(name, T, tag, BITS, LOAD)                                                         \
    DEFINE_DOUBLE_RUN(sum, name, T, LOAD, 0.0)                                                         \
    DEFINE_DOUBLE_RUN(prod, name, T, LOAD, 1.0)                                                        \
    DEFINE_FLOAT_EXTREME_RUN(min, name, T, tag, <)                                                     \
    DEFINE_FLOAT_EXTREME_RUN(max, name, T, tag, >)                                                     \
    DEFINE_LOOP(sum, name, T, double, double, LIFT_DOUBLE, double, ANY_ROWS, LIFT_DOUBLE, LOWER_SAME)  \
    DEFINE_LOOP(prod, name, T, double, double, LIFT_DOUBLE, double, ANY_ROWS, LIFT_DOUBLE, LOWER_SAME) \
    DEFINE_SHAPES(min, name, T, T, T, ANY_ROWS, LIFT_SAME, LOWER_SAME)                                 \
    DEFINE_SHAPES(max, name, T, T, T, ANY_ROWS, LIFT_SAME, LOWER_SAME)                                 \
    DEFINE_TRUTH(name, T, BITS, SAW_NOT_ZERO)

/* A bool that is not 0 is 1, whatever its byte. Its product and minimum are "all", its maximum "any". */
#define DEFINE_GPR_KIND_BOOL_1(name, T)                                                                    \
    DEFINE_BYTE_SUM(name, T, BYTE_TRUTH, BYTE_TRUTH_SCALAR, 0)                                             \
    DEFINE_TRUTH(name, T, T, SAW_BITS)                                                                     \
    INLINE uint64_t prod_##name(const T *p, uint64_t n)                                                    \
    {                                                                                                      \
        return all_##name(p, n);                                                                           \
    }                                                                                                      \
    INLINE uint32_t min_##name(const T *p, uint64_t n)                                                     \
    {                                                                                                      \
        return all_##name(p, n);                                                                           \
    }                                                                                                      \
    INLINE uint32_t max_##name(const T *p, uint64_t n)                                                     \
    {                                                                                                      \
        return any_##name(p, n);                                                                           \
    }                                                                                                      \
    DEFINE_LOOP(sum, name, T, uint64_t, uint32_t, LIFT_TRUTH, uint8_t, 255, SAW_NOT_ZERO, LOWER_SAME)      \
    DEFINE_LOOP(prod, name, T, uint64_t, uint64_t, LIFT_BOOL, uint8_t, ANY_ROWS, SAW_NOT_ZERO, LOWER_SAME) \
    DEFINE_LOOP(min, name, T, uint32_t, uint32_t, LIFT_TRUTH, uint8_t, ANY_ROWS, SAW_NOT_ZERO, LOWER_SAME) \
    DEFINE_LOOP(max, name, T, uint32_t, uint32_t, LIFT_TRUTH, uint8_t, ANY_ROWS, SAW_NOT_ZERO, LOWER_SAME)

#define LIFT_INT32(x) ((int32_t)(x))
#define LIFT_UINT32(x) ((uint32_t)(x))
#define DEFINE_GPR_KIND_SIGNED_1(name, T)                      \
    DEFINE_BYTE_SUM(name, T, BYTE_FLIP, BYTE_FLIP_SCALAR, 128) \
    DEFINE_INT(name, T, int32_t, int32_t, LIFT_INT32, int16_t, 255)
#define DEFINE_GPR_KIND_SIGNED_2(name, T)   \
    DEFINE_SUM_RUN(name, T, int32_t, 32768) \
    DEFINE_INT(name, T, int32_t, int32_t, LIFT_INT32, int32_t, 32768)
#define DEFINE_GPR_KIND_SIGNED_4(name, T)         \
    DEFINE_SUM_RUN(name, T, uint64_t, UINT64_MAX) \
    DEFINE_INT(name, T, int32_t, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS)
#define DEFINE_GPR_KIND_SIGNED_8(name, T)         \
    DEFINE_SUM_RUN(name, T, uint64_t, UINT64_MAX) \
    DEFINE_INT(name, T, int64_t, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS)
#define DEFINE_GPR_KIND_UNSIGNED_1(name, T)           \
    DEFINE_BYTE_SUM(name, T, BYTE_SAME, BYTE_SAME, 0) \
    DEFINE_INT(name, T, uint32_t, uint32_t, LIFT_UINT32, uint16_t, 255)
#define DEFINE_GPR_KIND_UNSIGNED_2(name, T)  \
    DEFINE_SUM_RUN(name, T, uint32_t, 32768) \
    DEFINE_INT(name, T, uint32_t, uint32_t, LIFT_UINT32, uint32_t, 32768)
#define DEFINE_GPR_KIND_UNSIGNED_4(name, T)       \
    DEFINE_SUM_RUN(name, T, uint64_t, UINT64_MAX) \
    DEFINE_INT(name, T, uint32_t, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS)
#define DEFINE_GPR_KIND_UNSIGNED_8(name, T)       \
    DEFINE_SUM_RUN(name, T, uint64_t, UINT64_MAX) \
    DEFINE_INT(name, T, uint64_t, uint64_t, LIFT_WIDE, uint64_t, ANY_ROWS)
#define DEFINE_GPR_KIND_FLOAT_2(name, T)
#define DEFINE_GPR_KIND_COMPLEX_8(name, T)
#define DEFINE_GPR_KIND_COMPLEX_16(name, T)
#define DEFINE_GPR_KIND_FLOAT_4(name, T) DEFINE_FLOAT(name, T, f32, int32_t, WIDEN_F32)
#define DEFINE_GPR_KIND_FLOAT_8(name, T) DEFINE_FLOAT(name, T, f64, int64_t, load_f64)

#define GPR_DTYPE(ID, name, bytes, kind, c_type) DEFINE_##kind##_##bytes(name, c_type)
#include "dtypes.def"
#undef GPR_DTYPE

/* ---------------------------------------------------------------- widenings ------------------ */

/* One half by integer arithmetic: the scaling moves the exponent's bias and makes subnormals normal; infinities and
 * NaN get their exponent by hand. */
INLINE float widen_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = (uint32_t)(half & 0x7fffu) << 13;
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

/* A 64-bit integer as a double, rounded once, with instructions that every vector unit has: both halves become
 * doubles by setting the exponents 2^84 (high half, in units of 2^32) and 2^52 (low half), whose sum is rid of them
 * exactly. */
INLINE double widen_int(uint64_t bits, uint64_t high_bias, double bias)
{
    const uint64_t high_bits = bits >> 32 ^ high_bias, low_bits = (bits & UINT32_MAX) | UINT64_C(0x4330000000000000);
    double high, low;

    memcpy(&high, &high_bits, sizeof high);
    memcpy(&low, &low_bits, sizeof low);
    return high - bias + low;
}

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

    for (uint64_t i = 0; i < count; i++) to[i] = widen_int(from[i], UINT64_C(0x4530000000000000), 0x1p84 + 0x1p52);
}

/* ---------------------------------------------------------------- exact sums ----------------- */

/* A double near 1.5 * 2^p cannot hold less than 2^(p - 52): added to it, x is rounded to a multiple of that, and what
 * was rounded away can be had back exactly and goes to the next window. So each accumulator holds an integer in its low
 * bits, and no addition of the integers rounds, while the first accumulator stays between 2^p and 2^(p + 1) (the others
 * do: what reaches them is small) and nothing is left over behind the last one. Both are asked once, at the end. */
_Static_assert(__FLT_EVAL_METHOD__ == 0, "doubles are computed as doubles");

enum {
    EXACT_VECTORS = 2, /* walked side by side; more would leave no registers */
    EXACT_LANES = EXACT_VECTORS * VECTOR_BYTES / 8,
    EXACT_ADDITIONS_BITS = 11
};
/* A remainder is at most half a unit, 2^(p - 53): the next window's integers stay below its 2^(p' - 1). */
_Static_assert(GPR_EXACT_TILE / EXACT_LANES + 1 <= 1 << EXACT_ADDITIONS_BITS &&
                   53 - EXACT_ADDITIONS_BITS > GPR_EXACT_WINDOW_BITS + 1,
               "a tile fits in the lower windows");

#define DEFINE_EXACT_RUN(name, T, LOAD, WINDOWS)                                               \
    static int exact_##name(const void *data, uint64_t n, const double *biases, int64_t *sums) \
    {                                                                                          \
        const uint64_t whole = n / EXACT_LANES, rounds = whole + (n % EXACT_LANES != 0);       \
        const T *p = data;                                                                     \
        T rest[EXACT_LANES] = {0};                                                             \
        vec_f64 acc[WINDOWS][EXACT_VECTORS];                                                   \
        vec_u64 moved = {0}, left = {0}, bias, total;                                          \
        uint64_t any = 0, sum;                                                                 \
                                                                                               \
        memcpy(rest, p + whole * EXACT_LANES, n % EXACT_LANES * sizeof(T));                    \
        bias = (vec_u64)((vec_f64){0} + biases[0]);                                            \
        UNROLLED                                                                               \
        for (int w = 0; w < WINDOWS; w++) {                                                    \
            UNROLLED                                                                           \
            for (int k = 0; k < EXACT_VECTORS; k++) acc[w][k] = (vec_f64){0} + biases[w];      \
        }                                                                                      \
        for (uint64_t i = 0; i < rounds; i++) {                                                \
            const T *at = i < whole ? p + i * EXACT_LANES : rest;                              \
            PREFETCH(at, EXACT_LANES * sizeof(T));                                             \
            UNROLLED                                                                           \
            for (int k = 0; k < EXACT_VECTORS; k++) {                                          \
                vec_f64 x = (vec_f64)LOAD(at + k * VECTOR_LANES);                              \
                UNROLLED                                                                       \
                for (int w = 0; w < WINDOWS; w++) {                                            \
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
        for (int w = 0; w < WINDOWS; w++) {                                                    \
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

enum { FEW_WINDOWS_float32 = 2, FEW_WINDOWS_float64 = 3 };
DEFINE_EXACT_RUN(few_float32, float, WIDEN_F32, FEW_WINDOWS_float32)
DEFINE_EXACT_RUN(few_float64, double, load_f64, FEW_WINDOWS_float64)
DEFINE_EXACT_RUN(all_float32, float, WIDEN_F32, GPR_EXACT_WINDOWS)
DEFINE_EXACT_RUN(all_float64, double, load_f64, GPR_EXACT_WINDOWS)

/* ---------------------------------------------------------------- the table ------------------ */

#define LOOP_OF(fold, ID, name)                                                   \
    [GPR_FOLD_##fold][GPR_##ID] = {rows_##fold##_##name, columns_##fold##_##name, \
                                   (gpr_dtype)accumulator_##fold##_##name}
#define LOOPS_OF(ID, name)                                                                           \
    LOOP_OF(sum, ID, name), LOOP_OF(prod, ID, name), LOOP_OF(min, ID, name), LOOP_OF(max, ID, name), \
        LOOP_OF(any, ID, name), LOOP_OF(all, ID, name),

#define ROWS_GPR_KIND_BOOL_1(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_SIGNED_1(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_SIGNED_2(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_SIGNED_4(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_SIGNED_8(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_UNSIGNED_1(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_UNSIGNED_2(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_UNSIGNED_4(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_UNSIGNED_8(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_FLOAT_2(ID, name)
#define ROWS_GPR_KIND_COMPLEX_8(ID, name)
#define ROWS_GPR_KIND_COMPLEX_16(ID, name)
#define ROWS_GPR_KIND_FLOAT_4(ID, name) LOOPS_OF(ID, name)
#define ROWS_GPR_KIND_FLOAT_8(ID, name) LOOPS_OF(ID, name)

const gpr_loops LOOPS_TABLE = {
    .isa = LOOPS_ISA,
    .loop =
        {
#define GPR_DTYPE(ID, name, bytes, kind, c_type) ROWS_##kind##_##bytes(ID, name)
#include "dtypes.def"
#undef GPR_DTYPE
        },
    .widen =
        {
            [GPR_FLOAT16] = {widen_float16, GPR_FLOAT32},
            [GPR_BFLOAT16] = {widen_bfloat16, GPR_FLOAT32},
            [GPR_INT64] = {widen_int64, GPR_FLOAT64},
            [GPR_UINT64] = {widen_uint64, GPR_FLOAT64},
        },
    .exact =
        {
            [GPR_FLOAT32] = {exact_few_float32, exact_all_float32, FEW_WINDOWS_float32},
            [GPR_FLOAT64] = {exact_few_float64, exact_all_float64, FEW_WINDOWS_float64},
        },
};
