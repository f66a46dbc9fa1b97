/* Part of loops_template.h: columns, folded row by row in registers. */

/* Columns are folded in tiles of TILE_VECTORS registers, then of one, then one by one. A step folds
 * STEP_ROWS rows of all tiles: few rows at a time, which memory brings in as few streams, and so
 * many that NARROW values between two steps are seldom loaded and stored. A step `begins` a round
 * of rows or continues the one in `narrow`; one that `ends` a round stores accumulators, which are
 * `fresh` if there were none before. */
enum { TILE_VECTORS = 4, STEP_ROWS = 8 };

typedef struct column_step {
    uint64_t rows;
    int begins, ends, fresh;
    int64_t ahead; /* bytes from a row to the one that is read a step later */
} column_step;

/* Runs in several rows are no streams for the processor's prefetchers, which start again in each:
 * where rows come from main memory, the next step's rows are prefetched by hand. In a cache
 * prefetching costs time: a tenth to a quarter more. So it does with few rows of 8-byte elements,
 * whose next step is mostly the block beside; where caches hold nothing of them, with those alone
 * that are one step. */
enum {
    PREFETCHED_SPAN = 16 << 20, /* bytes from the first row to the last: more than a cache */
    PREFETCHED_ROWS = 32        /* least of 8-byte elements */
};
#define PREFETCH_STEP(p, bytes, step) \
    if ((step).ahead != 0) PREFETCH_AT(p, bytes, (step).ahead, 2)

/* Where the step after this one begins: `step_rows` rows further, and behind the last row of a
 * block that is no whole array the block of `width` columns beside it. */
INLINE int64_t bytes_to_next(uint64_t step_rows, uint64_t row, uint64_t rows, int64_t stride,
                             uint64_t width, size_t bytes, int how)
{
    const uint64_t apart = (uint64_t)(stride < 0 ? -stride : stride);

    if ((how & GPR_FROM_MEMORY) == 0 && rows * apart < PREFETCHED_SPAN) return 0;
    if (stride == (int64_t)(width * bytes))
        return (int64_t)step_rows * stride; /* what comes then */
    if (bytes == 8 && rows < ((how & GPR_FAR_FROM_CACHES) ? step_rows + 1 : PREFETCHED_ROWS))
        return 0;
    if (row + step_rows < rows) return (int64_t)step_rows * stride;
    return (int64_t)(width * bytes) - (int64_t)row * stride;
}

INLINE int64_t bytes_ahead(uint64_t row, uint64_t rows, int64_t stride, uint64_t width,
                           size_t bytes, int how)
{
    return bytes_to_next(STEP_ROWS, row, rows, stride, width, bytes, how);
}

/* Columns of a block, at most `most`, a multiple of COLUMN_STEP. Blocks have equal widths: a narrow
 * one beside wide ones would read little of each row. */
enum { COLUMN_STEP = 64 };
INLINE uint64_t block_of(uint64_t width, uint64_t most)
{
    const uint64_t blocks = (width + most - 1) / most,
                   each = blocks > 1 ? (width + blocks - 1) / blocks : width;

    return blocks > 1 ? (each + COLUMN_STEP - 1) / COLUMN_STEP * COLUMN_STEP : each;
}

/* Whether an element may be folded again: IDEMPOTENT_fold. */
#define GPR_FOLD(name, commutative, idempotent, acc_kind, identity) IDEMPOTENT_##name = idempotent,
enum {
#include "folds.def"
    IDEMPOTENT_numbers = IDEMPOTENT_count,
    IDEMPOTENT_skipping_sum = IDEMPOTENT_sum,
    IDEMPOTENT_skipping_prod = IDEMPOTENT_prod,
    IDEMPOTENT_skipping_pairs = IDEMPOTENT_sum
};
#undef GPR_FOLD

/* Columns that are no whole vector are folded by slices of one: the longest has 64 bytes. */
enum { SLICE_BYTES = 16, MOST_SLICED = 2 /* bytes of a number */ };

/* Where it may, the last columns of a width that is no multiple of a vector are a vector, or a
 * slice, which overlaps the one before. */
INLINE uint64_t vector_place(int overlaps, uint64_t j, uint64_t lanes, uint64_t width)
{
    return overlaps && j < width && j + lanes > width && width >= lanes ? width - lanes : j;
}

/* Compilers vectorize loops over the lanes of a slice if they have not unrolled them; loops over
 * whole vectors they do best as they like. */
#define NOT_UNROLLED _Pragma("GCC unroll 1")
#define AS_THEY_LIKE

#define DEFINE_TILES(tiles, fold, name, T, ACC, NARROW, LIFT_NARROW, LOWER, COLUMNS, EACH_LANE)  \
    INLINE uint64_t tiles##_##fold##_##name(const char *data, int64_t stride, column_step step,  \
                                            uint64_t j, uint64_t width, NARROW *restrict narrow, \
                                            ACC *restrict accumulators)                          \
    {                                                                                            \
        enum {                                                                                   \
            LANES = COLUMNS,                                                                     \
            BYTES = LANES * sizeof(NARROW),                                                      \
            OVERLAPS = (BYTES == VECTOR_BYTES || BYTES == SLICE_BYTES) && IDEMPOTENT_##fold      \
        };                                                                                       \
        for (j = vector_place(OVERLAPS, j, LANES, width); j + LANES <= width;                    \
             j = vector_place(OVERLAPS, j + LANES, LANES, width)) {                              \
            const T *p = (const T *)(const void *)data + j;                                      \
            NARROW t[LANES];                                                                     \
            if (LANES > 1) PREFETCH_STEP(p, sizeof(T) * LANES, step);                            \
            EACH_LANE                                                                            \
            for (int k = 0; k < LANES; k++) t[k] = (NARROW)LIFT_NARROW(p[k]);                    \
            for (uint64_t r = 1; r < step.rows; r++) {                                           \
                p = (const T *)(const void *)((const char *)p + stride);                         \
                if (LANES > 1) PREFETCH_STEP(p, sizeof(T) * LANES, step);                        \
                EACH_LANE                                                                        \
                for (int k = 0; k < LANES; k++) {                                                \
                    const NARROW x = (NARROW)LIFT_NARROW(p[k]), before = t[k];                   \
                    t[k] = (NARROW)GPR_COMBINE_##fold(before, x);                                \
                }                                                                                \
            }                                                                                    \
            if (!step.begins) {                                                                  \
                EACH_LANE                                                                        \
                for (int k = 0; k < LANES; k++) {                                                \
                    const NARROW x = t[k], before = narrow[j + (uint64_t)k];                     \
                    t[k] = (NARROW)GPR_COMBINE_##fold(before, x);                                \
                }                                                                                \
            }                                                                                    \
            if (!step.ends) {                                                                    \
                EACH_LANE                                                                        \
                for (int k = 0; k < LANES; k++) narrow[j + (uint64_t)k] = t[k];                  \
            } else if (step.fresh) {                                                             \
                EACH_LANE                                                                        \
                for (int k = 0; k < LANES; k++)                                                  \
                    accumulators[j + (uint64_t)k] = (ACC)START_##fold((ACC)LOWER(t[k]));         \
            } else {                                                                             \
                EACH_LANE                                                                        \
                for (int k = 0; k < LANES; k++) {                                                \
                    const ACC x = (ACC)LOWER(t[k]), before = accumulators[j + (uint64_t)k];      \
                    accumulators[j + (uint64_t)k] = (ACC)GPR_COMBINE_##fold(before, x);          \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        return j;                                                                                \
    }

#define DEFINE_COLUMNS(fold, name, T, ACC, NARROW, ROUND, LIFT_NARROW, LOWER) \
    DEFINE_TILES(tiles, fold, name, T, ACC, NARROW, LIFT_NARROW, LOWER,       \
                 TILE_VECTORS *VECTOR_BYTES / sizeof(NARROW), AS_THEY_LIKE)   \
    DEFINE_TILES(vectors, fold, name, T, ACC, NARROW, LIFT_NARROW, LOWER,     \
                 VECTOR_BYTES / sizeof(NARROW), AS_THEY_LIKE)                 \
    DEFINE_COLUMN_STEPS(fold, name, T, ACC, NARROW, ROUND, LIFT_NARROW, LOWER)

#define DEFINE_COLUMN_STEPS(fold, name, T, ACC, NARROW, ROUND, LIFT_NARROW, LOWER)          \
    DEFINE_TILES(slices, fold, name, T, ACC, NARROW, LIFT_NARROW, LOWER,                    \
                 SLICE_BYTES / sizeof(NARROW), NOT_UNROLLED)                                \
    DEFINE_TILES(singles, fold, name, T, ACC, NARROW, LIFT_NARROW, LOWER, 1, AS_THEY_LIKE)  \
    INLINE void last_##fold##_##name(const char *data, int64_t stride, column_step step,    \
                                     uint64_t j, uint64_t width, NARROW *restrict narrow,   \
                                     ACC *restrict accumulators)                            \
    {                                                                                       \
        if (sizeof(NARROW) <= MOST_SLICED && SLICE_BYTES < VECTOR_BYTES)                    \
            j = slices_##fold##_##name(data, stride, step, j, width, narrow, accumulators); \
        (void)singles_##fold##_##name(data, stride, step, j, width, narrow, accumulators);  \
    }                                                                                       \
    DEFINE_COLUMN_FOLD(fold, name, T, ACC, NARROW, ROUND)

#define DEFINE_COLUMN_FOLD(fold, name, T, ACC, NARROW, ROUND)                                 \
    static void columns_##fold##_##name(const char *data, int64_t stride, uint64_t rows,      \
                                        uint64_t width, int how, void *out)                   \
    {                                                                                         \
        ACC *accumulators = out;                                                              \
        enum { MOST = GPR_COLUMN_BLOCK * sizeof(double) / sizeof(NARROW) };                   \
        NARROW narrow[MOST];                                                                  \
        const uint64_t block = block_of(width, MOST);                                         \
        for (uint64_t done = 0; done < width; done += block) {                                \
            const uint64_t some = width - done < block ? width - done : block;                \
            const char *at = data + done * sizeof(T);                                         \
            uint64_t in_round = 0;                                                            \
            column_step step = {.fresh = how & GPR_FRESH};                                    \
            for (uint64_t row = 0; row < rows; row += step.rows) {                            \
                const uint64_t left = rows - row;                                             \
                uint64_t j;                                                                   \
                if (in_round == 0) in_round = left < (ROUND) ? left : (ROUND);                \
                step.begins = row == 0 || step.ends;                                          \
                step.rows = in_round < STEP_ROWS ? in_round : STEP_ROWS;                      \
                in_round -= step.rows;                                                        \
                step.ends = in_round == 0;                                                    \
                step.ahead = bytes_ahead(row, rows, stride, some, sizeof(T), how);            \
                j = tiles_##fold##_##name(at, stride, step, 0, some, narrow, accumulators);   \
                j = vectors_##fold##_##name(at, stride, step, j, some, narrow, accumulators); \
                last_##fold##_##name(at, stride, step, j, some, narrow, accumulators);        \
                if (step.ends) step.fresh = 0;                                                \
                at += (int64_t)step.rows * stride;                                            \
            }                                                                                 \
            accumulators += some;                                                             \
        }                                                                                     \
    }

/* Columns of doubles: tiles with vectors that are widened as they are loaded, which compilers do
 * not find. */
#define DEFINE_DOUBLE_TILES(tiles, run, name, T, LOAD, IDENTITY, VECTORS)                          \
    INLINE uint64_t tiles##_##run##_##name(const char *data, int64_t stride, column_step step,     \
                                           uint64_t j, uint64_t width, double *restrict narrow,    \
                                           double *restrict accumulators)                          \
    {                                                                                              \
        const vec_f64 c = (vec_f64){0} + IDENTITY;                                                 \
        (void)c; /* not every STEP reads it */                                                     \
        for (; j + (VECTORS) * VECTOR_LANES <= width; j += (VECTORS) * VECTOR_LANES) {             \
            const T *p = (const T *)(const void *)data + j;                                        \
            double *to = (step.ends ? accumulators : narrow) + j;                                  \
            vec_f64 t[VECTORS];                                                                    \
            PREFETCH_STEP(p, sizeof(T) * (VECTORS) * VECTOR_LANES, step);                          \
            UNROLLED                                                                               \
            for (int k = 0; k < (VECTORS); k++) {                                                  \
                const vec_f64 x = (vec_f64)LOAD(p + k * VECTOR_LANES);                             \
                t[k] = STEP_##run(c, x, c);                                                        \
            }                                                                                      \
            for (uint64_t r = 1; r < step.rows; r++) {                                             \
                p = (const T *)(const void *)((const char *)p + stride);                           \
                PREFETCH_STEP(p, sizeof(T) * (VECTORS) * VECTOR_LANES, step);                      \
                UNROLLED                                                                           \
                for (int k = 0; k < (VECTORS); k++) {                                              \
                    const vec_f64 x = (vec_f64)LOAD(p + k * VECTOR_LANES);                         \
                    t[k] = STEP_##run(t[k], x, c);                                                 \
                }                                                                                  \
            }                                                                                      \
            UNROLLED                                                                               \
            for (int k = 0; k < (VECTORS); k++) {                                                  \
                if (!step.begins)                                                                  \
                    t[k] = GPR_COMBINE_##run(load_f64(narrow + j + k * VECTOR_LANES), t[k]);       \
                if (step.ends && !step.fresh)                                                      \
                    t[k] = GPR_COMBINE_##run(load_f64(accumulators + j + k * VECTOR_LANES), t[k]); \
                memcpy(to + k * VECTOR_LANES, &t[k], sizeof t[k]);                                 \
            }                                                                                      \
        }                                                                                          \
        return j;                                                                                  \
    }

#define DEFINE_DOUBLE_LOOP(run, name, T, LOAD, LIFT, IDENTITY)             \
    DEFINE_ROWS(run, name, T, double)                                      \
    DEFINE_DOUBLE_TILES(tiles, run, name, T, LOAD, IDENTITY, TILE_VECTORS) \
    DEFINE_DOUBLE_TILES(vectors, run, name, T, LOAD, IDENTITY, 1)          \
    DEFINE_COLUMN_STEPS(run, name, T, double, double, ANY_ROWS, LIFT, LOWER_SAME)

/* The better of both. EXTREME returns its second argument, which was kept, where either is NaN. */
#define CHOOSE(M, V, mask, x, a) ((V)(((M)(x) & (mask)) | ((M)(a) & ~(mask))))
#define CHOOSE_NAN_f32(of, x, a) CHOOSE(vec_i32, vec_f32, (of) != (of), x, a)
#define CHOOSE_NAN_f64(of, x, a) CHOOSE(vec_i64, vec_f64, (of) != (of), x, a)
#define COLUMN_min(tag, x, a) CHOOSE_NAN_##tag(x, x, (vec_##tag)EXTREME_min_##tag(x, a))
#define COLUMN_max(tag, x, a) CHOOSE_NAN_##tag(x, x, (vec_##tag)EXTREME_max_##tag(x, a))
#define COLUMN_fmin(tag, x, a) CHOOSE_NAN_##tag(a, x, (vec_##tag)EXTREME_min_##tag(x, a))
#define COLUMN_fmax(tag, x, a) CHOOSE_NAN_##tag(a, x, (vec_##tag)EXTREME_max_##tag(x, a))

/* An extreme that is folded again stays as it is, bit by bit: here, too, the last vector overlaps
 * the one before. */
#define DEFINE_EXTREME_TILES(tiles, fold, name, T, tag, VECTORS)                                \
    INLINE uint64_t tiles##_##fold##_##name(const char *data, int64_t stride, column_step step, \
                                            uint64_t j, uint64_t width, T *restrict narrow,     \
                                            T *restrict accumulators)                           \
    {                                                                                           \
        enum { LANES = VECTOR_BYTES / sizeof(T) };                                              \
        for (; j < width; j += (VECTORS) * LANES) {                                             \
            if (j + (VECTORS) * LANES > width) {                                                \
                if ((VECTORS) > 1 || width < LANES) break;                                      \
                j = width - LANES; /* columns that were folded already stay as they are */      \
            }                                                                                   \
            const T *p = (const T *)(const void *)data + j;                                     \
            T *to = (step.ends ? accumulators : narrow) + j;                                    \
            vec_##tag t[VECTORS], x;                                                            \
            PREFETCH_STEP(p, sizeof t, step);                                                   \
            UNROLLED                                                                            \
            for (int k = 0; k < (VECTORS); k++) memcpy(&t[k], p + k * LANES, sizeof t[k]);      \
            for (uint64_t r = 1; r < step.rows; r++) {                                          \
                p = (const T *)(const void *)((const char *)p + stride);                        \
                PREFETCH_STEP(p, sizeof t, step);                                               \
                UNROLLED                                                                        \
                for (int k = 0; k < (VECTORS); k++) {                                           \
                    memcpy(&x, p + k * LANES, sizeof x);                                        \
                    t[k] = COLUMN_##fold(tag, x, t[k]);                                         \
                }                                                                               \
            }                                                                                   \
            UNROLLED                                                                            \
            for (int k = 0; k < (VECTORS); k++) {                                               \
                if (!step.begins) {                                                             \
                    memcpy(&x, narrow + j + k * LANES, sizeof x);                               \
                    t[k] = COLUMN_##fold(tag, x, t[k]);                                         \
                }                                                                               \
                if (step.ends && !step.fresh) {                                                 \
                    memcpy(&x, accumulators + j + k * LANES, sizeof x);                         \
                    t[k] = COLUMN_##fold(tag, x, t[k]);                                         \
                }                                                                               \
                memcpy(to + k * LANES, &t[k], sizeof t[k]);                                     \
            }                                                                                   \
        }                                                                                       \
        return j;                                                                               \
    }

#define DEFINE_EXTREME_LOOP(fold, name, T, tag)                   \
    DEFINE_ROWS(fold, name, T, T)                                 \
    DEFINE_EXTREME_TILES(tiles, fold, name, T, tag, TILE_VECTORS) \
    DEFINE_EXTREME_TILES(vectors, fold, name, T, tag, 1)          \
    DEFINE_COLUMN_STEPS(fold, name, T, T, T, ANY_ROWS, LIFT_SAME, LOWER_SAME)
