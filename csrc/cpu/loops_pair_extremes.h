/* Part of loops_template.h: the smallest and the largest complex numbers of rows and of columns,
 * and their positions in short rows. Numbers are compared by their real parts, and where these are
 * equal by their imaginary parts; a number is NaN if one of its parts is. With SKIP, NaN are
 * skipped, and the result is NaN only if there is nothing else. */

#define BETTER_PAIR(re, im, BETTER, kept_re, kept_im) \
    (((re)BETTER(kept_re)) | (((re) == (kept_re)) & ((im)BETTER(kept_im))))

/* Rows are read in blocks that are in the first cache when they are read a second time, for the
 * imaginary parts beside the best real one. A step is as many numbers as fill EXTREME_VECTORS. */
enum { PAIR_BLOCK = 512, PAIR_STEP = EXTREME_VECTORS * VECTOR_LANES / 2 };

INLINE vec_f64 choose_f64(vec_i64 first, vec_f64 x, vec_f64 y)
{
    return (vec_f64)(((vec_i64)x & first) | ((vec_i64)y & ~first));
}

/* Real parts are in even lanes. */
INLINE vec_i64 even_lanes(void)
{
    vec_i64 even;

    UNROLLED
    for (int k = 0; k < VECTOR_LANES; k++) even[k] = k % 2 == 0 ? -1 : 0;
    return even;
}

#define DEFINE_BEST_EVEN(fold, BETTER)                                                           \
    INLINE double best_even_##fold(vec_f64 acc[EXTREME_VECTORS])                                 \
    {                                                                                            \
        double lanes[VECTOR_LANES], best;                                                        \
        UNROLLED                                                                                 \
        for (int k = 1; k < EXTREME_VECTORS; k++)                                                \
            acc[0] = (vec_f64)EXTREME_##fold##_f64(acc[0], acc[k]);                              \
        memcpy(lanes, &acc[0], sizeof lanes);                                                    \
        best = lanes[0];                                                                         \
        UNROLLED                                                                                 \
        for (int k = 2; k < VECTOR_LANES; k += 2) best = lanes[k] BETTER best ? lanes[k] : best; \
        return best;                                                                             \
    }
DEFINE_BEST_EVEN(min, <)
DEFINE_BEST_EVEN(max, >)

/* Merges the best of whole steps, `count` numbers, with the best so far. 0, and nothing done, where
 * vectors do not find it: there are NaN that count, or the best real part is IDENTITY, which may
 * stand for NaN alone. */
#define DEFINE_PAIR_BLOCK(run, fold, name, P, LOAD, BETTER, SKIP, IDENTITY)                     \
    INLINE int block_##run##_##name(const P *p, uint64_t count, pair *kept)                     \
    {                                                                                           \
        const vec_f64 none = (vec_f64){0} + (double)(IDENTITY);                                 \
        const uint64_t numbers = 2 * count;                                                     \
        vec_f64 acc[EXTREME_VECTORS], wanted;                                                   \
        flag_f64 flag = NO_FLAG;                                                                \
        double re, im;                                                                          \
        UNROLLED                                                                                \
        for (int k = 0; k < EXTREME_VECTORS; k++) acc[k] = none;                                \
        for (uint64_t i = 0; i < numbers; i += EXTREME_VECTORS * VECTOR_LANES) {                \
            PREFETCH(p + i, sizeof(P) * EXTREME_VECTORS * VECTOR_LANES);                        \
            UNROLLED                                                                            \
            for (int k = 0; k < EXTREME_VECTORS; k++) {                                         \
                vec_f64 x = (vec_f64)LOAD(p + i + k * VECTOR_LANES);                            \
                if (SKIP)                                                                       \
                    x = choose_f64(whole_pairs(x), x, none);                                    \
                else                                                                            \
                    flag = UNORDERED_f64(flag, x, x);                                           \
                acc[k] = (vec_f64)EXTREME_##fold##_f64(x, acc[k]);                              \
            }                                                                                   \
        }                                                                                       \
        re = best_even_##fold(acc);                                                             \
        if (is_flagged_f64(flag) || re == (double)(IDENTITY)) return 0;                         \
        if (kept->re BETTER re) return 1;                                                       \
        wanted = (vec_f64){0} + re;                                                             \
        UNROLLED                                                                                \
        for (int k = 0; k < EXTREME_VECTORS; k++) acc[k] = none;                                \
        for (uint64_t i = 0; i < numbers; i += EXTREME_VECTORS * VECTOR_LANES) {                \
            UNROLLED                                                                            \
            for (int k = 0; k < EXTREME_VECTORS; k++) {                                         \
                vec_f64 x = (vec_f64)LOAD(p + i + k * VECTOR_LANES);                            \
                if (SKIP) x = choose_f64(whole_pairs(x), x, none);                              \
                const vec_f64 beside = choose_f64((vec_i64)(x == wanted), SWAP_PARTS(x), none); \
                acc[k] = (vec_f64)EXTREME_##fold##_f64(beside, acc[k]);                         \
            }                                                                                   \
        }                                                                                       \
        im = best_even_##fold(acc);                                                             \
        if (BETTER_PAIR(re, im, BETTER, kept->re, kept->im)) *kept = (pair){re, im};            \
        return 1;                                                                               \
    }

/* One number after the other. The first NaN ends it. Real parts decide seldom for the new element:
 * the branch is foreseen. */
#define DEFINE_PAIR_SCALAR(run, name, P, BETTER, SKIP)           \
    INLINE pair scalar_##run##_##name(const P *p, uint64_t n)    \
    {                                                            \
        P re = p[0], im = p[1];                                  \
        uint64_t i = 1;                                          \
        for (; (re != re || im != im) && (SKIP) && i < n; i++) { \
            re = p[2 * i];                                       \
            im = p[2 * i + 1];                                   \
        }                                                        \
        if (re != re || im != im) return (pair){re, im};         \
        for (; i < n; i++) {                                     \
            const P x = p[2 * i], y = p[2 * i + 1];              \
            if (re BETTER x && y == y) continue;                 \
            if (x != x || y != y) {                              \
                if (SKIP) continue;                              \
                return (pair){x, y};                             \
            }                                                    \
            if (!BETTER_PAIR(x, y, BETTER, re, im)) continue;    \
            re = x;                                              \
            im = y;                                              \
        }                                                        \
        return (pair){re, im};                                   \
    }

/* The last step may take numbers a second time: that changes no extreme. */
#define DEFINE_PAIR_ROWS(run, name, P, BETTER, SKIP, IDENTITY)                                   \
    static pair run##_##name(const P *p, uint64_t n)                                             \
    {                                                                                            \
        pair kept = {IDENTITY, IDENTITY}, nan = kept;                                            \
        int found = 0;                                                                           \
        if (n < PAIR_STEP) return scalar_##run##_##name(p, n);                                   \
        for (uint64_t i = 0, count; i < n; i += count) {                                         \
            if (n - i < PAIR_STEP) i = n - PAIR_STEP;                                            \
            count = n - i < PAIR_BLOCK ? (n - i) / PAIR_STEP * PAIR_STEP : PAIR_BLOCK;           \
            if (block_##run##_##name(p + 2 * i, count, &kept)) {                                 \
                found = 1;                                                                       \
                continue;                                                                        \
            }                                                                                    \
            const pair part = scalar_##run##_##name(p + 2 * i, count);                           \
            if (NAN_PAIR(part)) {                                                                \
                if (!(SKIP)) return part;                                                        \
                nan = part;                                                                      \
            } else if (!found || BETTER_PAIR(part.re, part.im, BETTER, kept.re, kept.im)) {      \
                kept = part;                                                                     \
                found = 1;                                                                       \
            }                                                                                    \
        }                                                                                        \
        return found ? kept : nan;                                                               \
    }                                                                                            \
    static void rows_##run##_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n, \
                                    void *out)                                                   \
    {                                                                                            \
        pair *accumulators = out;                                                                \
        for (uint64_t r = 0; r < rows; r++)                                                      \
            accumulators[r] =                                                                    \
                run##_##name((const P *)(const void *)(data + (int64_t)r * stride), n);          \
    }

/* Whether a new number replaces the best so far. */
#define TAKES_PAIR(better, new_nan, old_nan, SKIP) \
    ((SKIP) ? ((better) | (old_nan)) & ~(new_nan) : ((better) | (new_nan)) & ~(old_nan))

/* Columns row by row. Few numbers of a row at a time, behind which those of the next row are
 * fetched. */
enum { PAIR_RUN = 128 };
#define DEFINE_PAIR_COLUMNS(run, name, P, BETTER, SKIP)                                        \
    INLINE void step_##run##_##name(const P *restrict p, uint64_t count, double *restrict acc) \
    {                                                                                          \
        for (uint64_t j = 0; j < count; j++) {                                                 \
            const double x = p[2 * j], y = p[2 * j + 1], re = acc[2 * j], im = acc[2 * j + 1]; \
            const int better = BETTER_PAIR(x, y, BETTER, re, im);                              \
            const int new_nan = (x != x) | (y != y), old_nan = (re != re) | (im != im);        \
            const int take = TAKES_PAIR(better, new_nan, old_nan, SKIP);                       \
            acc[2 * j] = take ? x : re;                                                        \
            acc[2 * j + 1] = take ? y : im;                                                    \
        }                                                                                      \
    }                                                                                          \
    static void columns_##run##_##name(const char *data, int64_t stride, uint64_t rows,        \
                                       uint64_t width, int how, void *out)                     \
    {                                                                                          \
        const int64_t ahead =                                                                  \
            bytes_ahead(0, rows, stride, width, sizeof(P), how) != 0 ? stride : 0;             \
        double *acc = out;                                                                     \
        if (how & GPR_FRESH) {                                                                 \
            const P *p = (const P *)(const void *)data;                                        \
            for (uint64_t j = 0; j < 2 * width; j++) acc[j] = p[j];                            \
            rows--;                                                                            \
            data += stride;                                                                    \
        }                                                                                      \
        for (; rows > 0; rows--, data += stride) {                                             \
            const P *p = (const P *)(const void *)data;                                        \
            uint64_t j = 0;                                                                    \
            for (; ahead != 0 && j + PAIR_RUN <= width; j += PAIR_RUN) {                       \
                PREFETCH_AT(p + 2 * j, 2 * PAIR_RUN * sizeof(P), ahead, 2);                    \
                step_##run##_##name(p + 2 * j, PAIR_RUN, acc + 2 * j);                         \
            }                                                                                  \
            step_##run##_##name(p + 2 * j, width - j, acc + 2 * j);                            \
        }                                                                                      \
    }

/* Short rows side by side: a vector has a part of one number of each of as many rows as it has
 * lanes. Of equals the first one is kept. Four rows at most: to gather more numbers takes longer
 * than to compare them. */
enum { PAIR_ROWS = VECTOR_LANES < 4 ? VECTOR_LANES : 4 };
#ifndef WITHOUT_MASK_REGISTERS
#define WITHOUT_MASK_REGISTERS
#endif
#define DEFINE_PAIR_SIDE_BY_SIDE(run, name, P, BETTER, SKIP)                                \
    WITHOUT_MASK_REGISTERS static void side_by_side_##run##_##name(                         \
        const char *data, int64_t stride, uint64_t rows, uint64_t n, int64_t *positions)    \
    {                                                                                       \
        typedef double numbers __attribute__((vector_size(PAIR_ROWS * sizeof(double))));    \
        typedef int64_t marks __attribute__((vector_size(PAIR_ROWS * sizeof(int64_t))));    \
        const P *row[PAIR_ROWS];                                                            \
        for (uint64_t done = 0; done < rows; done += PAIR_ROWS) {                           \
            const uint64_t some = rows - done < PAIR_ROWS ? rows - done : PAIR_ROWS;        \
            numbers re = {0}, im = {0}, x = {0}, y = {0};                                   \
            marks at = {0}, old_nan;                                                        \
            for (uint64_t k = 0; k < PAIR_ROWS; k++) { /* lanes without a row repeat one */ \
                const int64_t from = (int64_t)(done + (k < some ? k : some - 1));           \
                row[k] = (const P *)(const void *)(data + from * stride);                   \
            }                                                                               \
            for (uint64_t i = 0; i < n; i++) {                                              \
                UNROLLED                                                                    \
                for (int k = 0; k < PAIR_ROWS; k++) {                                       \
                    x[k] = (double)row[k][2 * i];                                           \
                    y[k] = (double)row[k][2 * i + 1];                                       \
                }                                                                           \
                if (i == 0) re = x, im = y;                                                 \
                const marks better =                                                        \
                    (marks)(x BETTER re) | ((marks)(x == re) & (marks)(y BETTER im));       \
                const marks new_nan = (marks)(x != x) | (marks)(y != y);                    \
                old_nan = (marks)(re != re) | (marks)(im != im);                            \
                const marks take = TAKES_PAIR(better, new_nan, old_nan, SKIP);              \
                re = (numbers)(((marks)x & take) | ((marks)re & ~take));                    \
                im = (numbers)(((marks)y & take) | ((marks)im & ~take));                    \
                at = (((marks){0} + (int64_t)i) & take) | (at & ~take);                     \
            }                                                                               \
            old_nan = (marks)(re != re) | (marks)(im != im);                                \
            for (uint64_t k = 0; k < some; k++)                                             \
                positions[done + k] = (SKIP) && old_nan[k] ? -1 : at[k];                    \
        }                                                                                   \
    }

/* Longer rows one by one, by segments, of which the best one is searched for its place. Where NaN
 * count, one ends its row: the first numbers are looked at alone, and the first segments are
 * short. */
enum { LONG_PAIR_ROW = 2 * PAIR_STEP, PAIR_SEGMENT = 1024, FIRST_PAIR_VECTORS = 2 };
#define DEFINE_PAIR_POSITIONS(run, name, P, LOAD, BETTER, SKIP)                                   \
    INLINE int begins_with_nan_##run##_##name(const P *p)                                         \
    {                                                                                             \
        flag_f64 flag = NO_FLAG;                                                                  \
        UNROLLED                                                                                  \
        for (int k = 0; k < FIRST_PAIR_VECTORS; k++) {                                            \
            const vec_f64 x = (vec_f64)LOAD(p + k * VECTOR_LANES);                                \
            flag = UNORDERED_f64(flag, x, x);                                                     \
        }                                                                                         \
        return is_flagged_f64(flag);                                                              \
    }                                                                                             \
    INLINE int64_t position_##run##_##name(const P *p, uint64_t n)                                \
    {                                                                                             \
        uint64_t segment = (SKIP) ? PAIR_SEGMENT : LONG_PAIR_ROW, i = 0, at = 0, size = 0, count; \
        pair best = {NAN, NAN};                                                                   \
        if (!(SKIP) && begins_with_nan_##run##_##name(p)) {                                       \
            while (p[2 * i] == p[2 * i] && p[2 * i + 1] == p[2 * i + 1]) i++;                     \
            return (int64_t)i;                                                                    \
        }                                                                                         \
        for (; i < n; i += count) {                                                               \
            count = n - i < 2 * segment ? n - i : segment;                                        \
            const pair part = run##_##name(p + 2 * i, count);                                     \
            const int is_nan = NAN_PAIR(part),                                                    \
                      better = (!is_nan && size == 0) ||                                          \
                               BETTER_PAIR(part.re, part.im, BETTER, best.re, best.im);           \
            if (better || (is_nan && !(SKIP))) best = part, at = i, size = count;                 \
            if (is_nan && !(SKIP)) break;                                                         \
            segment = segment < PAIR_SEGMENT ? 2 * segment : segment;                             \
        }                                                                                         \
        return size == 0 ? -1 : (int64_t)(at + find_##name(p + 2 * at, size, &best));             \
    }                                                                                             \
    static void first_##run##_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n, \
                                     int64_t *positions)                                          \
    {                                                                                             \
        if (n < LONG_PAIR_ROW)                                                                    \
            side_by_side_##run##_##name(data, stride, rows, n, positions);                        \
        else                                                                                      \
            for (uint64_t r = 0; r < rows; r++)                                                   \
                positions[r] = position_##run##_##name(                                           \
                    (const P *)(const void *)(data + (int64_t)r * stride), n);                    \
    }

#define DEFINE_PAIR_EXTREME(run, fold, name, P, LOAD, BETTER, SKIP, IDENTITY) \
    enum { accumulator_##run##_##name = GPR_COMPLEX128 };                     \
    DEFINE_PAIR_BLOCK(run, fold, name, P, LOAD, BETTER, SKIP, IDENTITY)       \
    DEFINE_PAIR_SCALAR(run, name, P, BETTER, SKIP)                            \
    DEFINE_PAIR_ROWS(run, name, P, BETTER, SKIP, IDENTITY)                    \
    DEFINE_PAIR_COLUMNS(run, name, P, BETTER, SKIP)                           \
    DEFINE_PAIR_SIDE_BY_SIDE(run, name, P, BETTER, SKIP)                      \
    DEFINE_PAIR_POSITIONS(run, name, P, LOAD, BETTER, SKIP)

/* Steps without a hit are passed over as a whole. */
#define DEFINE_PAIR_FIND(name, P, LOAD)                                                  \
    static uint64_t find_##name(const void *data, uint64_t n, const void *value)         \
    {                                                                                    \
        const P *p = data;                                                               \
        const pair wanted = *(const pair *)value;                                        \
        const vec_f64 parts = alternate(wanted.re, wanted.im);                           \
        const int nan = NAN_PAIR(wanted);                                                \
        uint64_t i = 0;                                                                  \
        for (; i + PAIR_STEP <= n; i += PAIR_STEP) {                                     \
            vec_i64 hits = {0};                                                          \
            int64_t any = 0;                                                             \
            UNROLLED                                                                     \
            for (int k = 0; k < EXTREME_VECTORS; k++) {                                  \
                const vec_f64 x = (vec_f64)LOAD(p + 2 * i + k * VECTOR_LANES);           \
                const vec_f64 beside = SWAP_PARTS(x), parts_beside = SWAP_PARTS(parts);  \
                hits |= nan ? ~whole_pairs(x)                                            \
                            : (vec_i64)(x == parts) & (vec_i64)(beside == parts_beside); \
            }                                                                            \
            UNROLLED                                                                     \
            for (int k = 0; k < VECTOR_LANES; k++) any |= hits[k];                       \
            if (any != 0) break;                                                         \
        }                                                                                \
        for (; i < n; i++) {                                                             \
            const pair x = PAIR_VALUE(p + 2 * i);                                        \
            if (nan ? NAN_PAIR(x) : x.re == wanted.re && x.im == wanted.im) return i;    \
        }                                                                                \
        return n;                                                                        \
    }
