/* Part of loops_template.h: where in a row an element is. */

/* A hit is searched in stretches that a vector loop tests as one: a few short ones, as many hits
 * are near the beginning, then longer ones, then short ones again. Its place in the short stretch
 * is the smallest of the places of all lanes. The last stretch of a run may overlap the one before
 * it, in which there was no hit. */
enum { FIND_STRETCH = 256, FIND_SHORT_STRETCH = 32, FIND_FIRST = 4 * FIND_SHORT_STRETCH };

#define SKIP_STRETCHES(p, n, i, value, BITS, HIT, STRETCH)                          \
    for (; i + (STRETCH) <= n; i += (STRETCH)) {                                    \
        BITS any = 0;                                                               \
        for (uint64_t k = 0; k < (STRETCH); k++) any |= (BITS)HIT(p[i + k], value); \
        if (any != 0) break;                                                        \
    }
#define DEFINE_FIND_RUN(run, name, T, BITS, HIT)                                     \
    INLINE uint64_t run##_##name(const T *p, uint64_t n, T value)                    \
    {                                                                                \
        const uint64_t first = n < FIND_FIRST ? n : FIND_FIRST;                      \
        uint64_t i = 0;                                                              \
        BITS least = FIND_SHORT_STRETCH;                                             \
        if (n < FIND_SHORT_STRETCH) {                                                \
            while (i < n && !HIT(p[i], value)) i++;                                  \
            return i;                                                                \
        }                                                                            \
        SKIP_STRETCHES(p, first, i, value, BITS, HIT, FIND_SHORT_STRETCH)            \
        if (i + FIND_SHORT_STRETCH > first) { /* there was none */                   \
            SKIP_STRETCHES(p, n, i, value, BITS, HIT, FIND_STRETCH)                  \
            SKIP_STRETCHES(p, n, i, value, BITS, HIT, FIND_SHORT_STRETCH)            \
            if (i > n - FIND_SHORT_STRETCH) i = n - FIND_SHORT_STRETCH;              \
        }                                                                            \
        for (int k = 0; k < FIND_SHORT_STRETCH; k++) {                               \
            const BITS place =                                                       \
                HIT(p[i + (uint64_t)k], value) ? (BITS)k : (BITS)FIND_SHORT_STRETCH; \
            least = place < least ? place : least;                                   \
        }                                                                            \
        return least < FIND_SHORT_STRETCH ? i + (uint64_t)least : n;                 \
    }

#define HIT_EQUAL(x, v) ((x) == (v))
#define HIT_TRUTH(x, v) (((x) != 0) == (v))
#define HIT_NAN(x, v) ((void)(v), (x) != (x))

#define DEFINE_FIND(name, T, BITS, HIT)                                          \
    DEFINE_FIND_RUN(equal, name, T, BITS, HIT)                                   \
    static uint64_t find_##name(const void *data, uint64_t n, const void *value) \
    {                                                                            \
        return equal_##name(data, n, *(const T *)value);                         \
    }

#define DEFINE_FLOAT_FIND(name, T, BITS)                                             \
    DEFINE_FIND_RUN(equal, name, T, BITS, HIT_EQUAL)                                 \
    DEFINE_FIND_RUN(nan, name, T, BITS, HIT_NAN)                                     \
    INLINE int is_nan_in_##name(const T *p) /* one of a short stretch */             \
    {                                                                                \
        BITS any = 0;                                                                \
        for (int k = 0; k < FIND_SHORT_STRETCH; k++) any |= (BITS)(p[k] != p[k]);    \
        return any != 0;                                                             \
    }                                                                                \
    INLINE uint64_t same_##name(const T *p, uint64_t n, T value)                     \
    {                                                                                \
        return value != value ? nan_##name(p, n, value) : equal_##name(p, n, value); \
    }                                                                                \
    static uint64_t find_##name(const void *data, uint64_t n, const void *value)     \
    {                                                                                \
        return same_##name(data, n, *(const T *)value);                              \
    }

/* The best of a row of one vector or more: first that of each lane, then that of lanes that are
 * less and less, and of equals the first. The last vector may take elements a second time: they are
 * not better than themselves. A vector of INDEX has the lanes of one of T. With SKIP a row of
 * nothing but NaN has no position. */
enum { ROW_CHAINS = 4 }; /* of comparisons, each of which waits for the one before it */
#define GOES_BEFORE(BETTER, x, at, best, best_at) \
    (BETTER(x, best) | (~(BETTER(best, x)) & ((at) < (best_at))))
#define DEFINE_ROW_POSITION(which, name, T, INDEX, LIFT, BETTER, SKIP)                           \
    INLINE int64_t row_##which##_##name(const T *p, uint64_t n)                                  \
    {                                                                                            \
        enum { LANES = VECTOR_BYTES / sizeof(T), FEW = GPR_COLUMN_BYTES / sizeof(T) };           \
        typedef T elements __attribute__((vector_size(VECTOR_BYTES)));                           \
        typedef INDEX indices __attribute__((vector_size(VECTOR_BYTES)));                        \
        typedef T few_elements __attribute__((vector_size(GPR_COLUMN_BYTES)));                   \
        typedef INDEX few_indices __attribute__((vector_size(GPR_COLUMN_BYTES)));                \
        elements best, x;                                                                        \
        indices lane, at;                                                                        \
        few_elements bests[LANES / FEW];                                                         \
        few_indices places[LANES / FEW];                                                         \
        UNROLLED                                                                                 \
        for (int k = 0; k < LANES; k++) lane[k] = (INDEX)k;                                      \
        memcpy(&best, p, sizeof best);                                                           \
        best = (elements)LIFT(best);                                                             \
        at = lane;                                                                               \
        uint64_t i = LANES;                                                                      \
        if (n >= 2 * ROW_CHAINS * LANES) {                                                       \
            elements bests_of[ROW_CHAINS];                                                       \
            indices ats[ROW_CHAINS];                                                             \
            UNROLLED                                                                             \
            for (int k = 0; k < ROW_CHAINS; k++) {                                               \
                memcpy(&x, p + k * LANES, sizeof x);                                             \
                bests_of[k] = (elements)LIFT(x);                                                 \
                ats[k] = lane + (INDEX)(k * LANES);                                              \
            }                                                                                    \
            for (i = ROW_CHAINS * LANES; i + ROW_CHAINS * LANES <= n; i += ROW_CHAINS * LANES) { \
                UNROLLED                                                                         \
                for (int k = 0; k < ROW_CHAINS; k++) {                                           \
                    memcpy(&x, p + i + k * LANES, sizeof x);                                     \
                    x = (elements)LIFT(x);                                                       \
                    const indices better = (indices)BETTER(x, bests_of[k]);                      \
                    bests_of[k] =                                                                \
                        (elements)(((indices)x & better) | ((indices)bests_of[k] & ~better));    \
                    ats[k] = ((lane + (INDEX)(i + k * LANES)) & better) | (ats[k] & ~better);    \
                }                                                                                \
            }                                                                                    \
            best = bests_of[0];                                                                  \
            at = ats[0];                                                                         \
            UNROLLED                                                                             \
            for (int k = 1; k < ROW_CHAINS; k++) {                                               \
                const indices before =                                                           \
                    (indices)GOES_BEFORE(BETTER, bests_of[k], ats[k], best, at);                 \
                best = (elements)(((indices)bests_of[k] & before) | ((indices)best & ~before));  \
                at = (ats[k] & before) | (at & ~before);                                         \
            }                                                                                    \
        }                                                                                        \
        for (; i < n; i += LANES) {                                                              \
            const uint64_t from = i + LANES <= n ? i : n - LANES;                                \
            memcpy(&x, p + from, sizeof x);                                                      \
            x = (elements)LIFT(x);                                                               \
            const indices better = (indices)BETTER(x, best);                                     \
            best = (elements)(((indices)x & better) | ((indices)best & ~better));                \
            at = ((lane + (INDEX)from) & better) | (at & ~better);                               \
        }                                                                                        \
        memcpy(bests, &best, sizeof bests);                                                      \
        memcpy(places, &at, sizeof places);                                                      \
        UNROLLED                                                                                 \
        for (int half = LANES / FEW / 2; half > 0; half /= 2) {                                  \
            UNROLLED                                                                             \
            for (int k = 0; k < half; k++) {                                                     \
                const few_indices before = (few_indices)GOES_BEFORE(                             \
                    BETTER, bests[k + half], places[k + half], bests[k], places[k]);             \
                bests[k] = (few_elements)(((few_indices)bests[k + half] & before) |              \
                                          ((few_indices)bests[k] & ~before));                    \
                places[k] = (places[k + half] & before) | (places[k] & ~before);                 \
            }                                                                                    \
        }                                                                                        \
        T top = bests[0][0];                                                                     \
        INDEX place = places[0][0];                                                              \
        UNROLLED                                                                                 \
        for (int k = 1; k < FEW; k++) {                                                          \
            const T other = bests[0][k];                                                         \
            const int is_better = BETTER(other, top), is_worse = BETTER(top, other);             \
            const int before = is_better | (!is_worse & (places[0][k] < place));                 \
            top = before ? other : top;                                                          \
            place = before ? places[0][k] : place;                                               \
        }                                                                                        \
        return SKIP && top != top ? -1 : place;                                                  \
    }

#define NO_BLOCKS(which, name, p, n) (n)

/* Rows that are not short: the best of each segment, and its place in the segment with the best of
 * all, which is small enough for little to be read twice; in a long row the beginning and the end
 * of each segment would be more. A NaN that counts ends a row: of the first elements that is tested
 * alone, and the beginning of a long row is read in blocks, which are shorter than segments. */
enum {
    FOUND_BYTES = 2048,
    LONG_FOUND_BYTES = 8192,
    LONG_ROW_BYTES = 65536,
    TESTED_ROW_BYTES = 2048, /* of which the test is a small share */
};
#define BEGINS_WITH_NAN_equal(name, p) 0
#define BEGINS_WITH_NAN_same(name, p) is_nan_in_##name(p)
#define FIRST_NAN_equal(name, p) 0
#define FIRST_NAN_same(name, p) nan_##name(p, FIND_SHORT_STRETCH, *(p))
#define DEFINE_LONG_POSITION(which, fold, name, T, BETTER, SKIP, FIND, BLOCKS)                  \
    INLINE int64_t long_##which##_##name(const T *p, uint64_t n)                                \
    {                                                                                           \
        enum { LONG_ROW = LONG_ROW_BYTES / sizeof(T) };                                         \
        const int ends_early = !(SKIP) && (T)0.5 != 0;                                          \
        if (ends_early && n >= TESTED_ROW_BYTES / sizeof(T) && BEGINS_WITH_NAN_##FIND(name, p)) \
            return (int64_t)FIRST_NAN_##FIND(name, p);                                          \
        const uint64_t beginning = n < LONG_ROW ? n                                             \
                                   : ends_early ? LONG_ROW                                      \
                                                : 0,                                            \
                       found = BLOCKS(which, name, p, beginning);                               \
        const int is_found = found < beginning;                                                 \
        T best = p[is_found ? found : 0];                                                       \
        if (is_found && (beginning == n || best != best)) return (int64_t)found;                \
        const uint64_t bytes = n >= LONG_ROW && !ends_early ? LONG_FOUND_BYTES : FOUND_BYTES,   \
                       segment = bytes / sizeof(T);                                             \
        uint64_t at = is_found ? found : 0, size = is_found ? 1 : segment;                      \
        for (uint64_t i = is_found ? beginning : 0; i < n && ((SKIP) || best == best);          \
             i += segment) {                                                                    \
            const T part = fold##_##name(p + i, n - i < segment ? n - i : segment);             \
            if (!(BETTER(part, best))) continue;                                                \
            best = part;                                                                        \
            at = i;                                                                             \
            size = segment;                                                                     \
        }                                                                                       \
        if ((SKIP) && best != best) return -1;                                                  \
        return (int64_t)(at + FIND##_##name(p + at, n - at < size ? n - at : size, best));      \
    }

/* Long rows of integers, where there are instructions for their extremes: the best of each lane in
 * a block of a few vectors, of which one comparison keeps the best and its block. The place is
 * found in the first block with the best of all, which is read again. */
#ifdef HAS_INTEGER_VOCABULARY
enum { BLOCK_VECTORS = 8 };
/* What is left behind whole blocks, if more than a vector, is the end of a block that takes some
 * elements a second time. */
#define FIRST_OF_BLOCK(block, blocks, all, n) \
    ((all) > (blocks) && (uint64_t)(block) == (blocks) ? (n) - BLOCK : (uint64_t)(block) * BLOCK)
#define MOST_OF_SHORT_INTEGER_ROW(T) \
    (sizeof(T) >= 4 ? 2 * BLOCK_VECTORS * VECTOR_BYTES / sizeof(T) : GPR_SHORT_ROW)
/* Of the lanes whose best is that of all, the least block: in each lane of `at`. */
#define LEAST_BLOCK_OF_BEST(T, INDEX)                                \
    same = (indices)(best == top);                                   \
    at = (at & same) | (((indices){0} + (INDEX)blocks) & ~same);     \
    UNROLLED                                                         \
    for (size_t apart = sizeof(T); apart < VECTOR_BYTES; apart *= 2) \
        at = (indices)VECTOR_LEAST(sizeof(T), EXCHANGE_LANES(at, apart), at);
/* The place of the first element that equals `top`, of which there is one in the block from `from`
 * on, or in the vectors that are left. */
#define DEFINE_FIND_IN_BLOCK(name, T)                                                   \
    typedef T elements_##name __attribute__((vector_size(VECTOR_BYTES)));               \
    INLINE uint64_t find_in_block_##name(const T *p, uint64_t n, uint64_t from,         \
                                         elements_##name top)                           \
    {                                                                                   \
        enum { LANES = VECTOR_BYTES / sizeof(T) };                                      \
        for (;; from += LANES) {                                                        \
            const uint64_t at = from + LANES <= n ? from : n - LANES;                   \
            elements_##name x;                                                          \
            memcpy(&x, p + at, sizeof x);                                               \
            const uint64_t matches = MATCHES_OF_TYPE(T, x, top);                        \
            if (matches != 0)                                                           \
                return at + (uint64_t)__builtin_ctzll(matches) / MATCH_BITS(sizeof(T)); \
        }                                                                               \
    }

/* The element of a type that nothing beats: NaT, for one, among dates. Rows of 8 bytes an element
 * are looked through in pieces that grow, and end at a piece that has it. */
#define LEAST_OF(T) ((T) - 1 > (T)1 ? (T)0 : (T)(UINT64_C(1) << (8 * sizeof(T) - 1)))
#define LIMIT_min(T) LEAST_OF(T)
#define LIMIT_max(T) ((T)~LEAST_OF(T))
enum { FIRST_PIECE = 2048 };

#define DEFINE_LONG_INTEGER_POSITION(which, fold, name, T, INDEX, BETTER)                \
    INLINE uint64_t blocks_##which##_##name(const T *p, uint64_t n)                      \
    {                                                                                    \
        enum { LANES = VECTOR_BYTES / sizeof(T), BLOCK = BLOCK_VECTORS * LANES };        \
        typedef T elements __attribute__((vector_size(VECTOR_BYTES)));                   \
        typedef INDEX indices __attribute__((vector_size(VECTOR_BYTES)));                \
        const uint64_t blocks = n / BLOCK,                                               \
                       all = blocks > 0 && n % BLOCK > LANES ? blocks + 1 : blocks;      \
        elements best, x[BLOCK_VECTORS], top;                                            \
        indices at = {0}, same, better;                                                  \
        uint64_t i;                                                                      \
        memcpy(&best, p, sizeof best);                                                   \
        for (uint64_t block = 0; block < all; block++) {                                 \
            const uint64_t from = block < blocks ? block * BLOCK : n - BLOCK;            \
            UNROLLED                                                                     \
            for (int v = 0; v < BLOCK_VECTORS; v++)                                      \
                memcpy(&x[v], p + from + v * LANES, sizeof x[v]);                        \
            FOLD_TO_FIRST(x, BLOCK_VECTORS, VECTOR_##fold##_##name);                     \
            better = (indices)BETTER(x[0], best);                                        \
            best = (elements)VECTOR_##fold##_##name(x[0], best);                         \
            at = (((indices){0} + (INDEX)block) & better) | (at & ~better);              \
        }                                                                                \
        for (i = all * BLOCK; i < n; i += LANES) { /* may take elements a second time */ \
            memcpy(&x[0], p + (i + LANES <= n ? i : n - LANES), sizeof x[0]);            \
            better = (indices)BETTER(x[0], best);                                        \
            best = (elements)VECTOR_##fold##_##name(x[0], best);                         \
            at = (((indices){0} + (INDEX)blocks) & better) | (at & ~better);             \
        }                                                                                \
        top = best;                                                                      \
        UNROLLED                                                                         \
        for (size_t apart = sizeof(T); apart < VECTOR_BYTES; apart *= 2)                 \
            top = (elements)VECTOR_##fold##_##name(EXCHANGE_LANES(top, apart), top);     \
        LEAST_BLOCK_OF_BEST(T, INDEX)                                                    \
        return find_in_block_##name(p, n, FIRST_OF_BLOCK(at[0], blocks, all, n), top);   \
    }                                                                                    \
    INLINE int64_t long_##which##_##name(const T *p, uint64_t n)                         \
    {                                                                                    \
        enum { LANES = VECTOR_BYTES / sizeof(T), BLOCK = BLOCK_VECTORS * LANES };        \
        const uint64_t most = (uint64_t)(sizeof(T) == 1 ? INT8_MAX : INT16_MAX) * BLOCK; \
        uint64_t found = 0, piece = sizeof(T) == 8 ? FIRST_PIECE : most;                 \
        for (uint64_t first = 0; first < n; first += piece) {                            \
            if (first > 0 && sizeof(T) == 8) {                                           \
                if (p[found] == LIMIT_##fold(T)) break;                                  \
                piece = 2 * piece < most ? 2 * piece : most;                             \
            }                                                                            \
            const uint64_t from = first + LANES <= n ? first : n - LANES,                \
                           count = n - from < piece ? n - from : piece,                  \
                           at = from + blocks_##which##_##name(p + from, count);         \
            if (first == 0 || BETTER(p[at], p[found])) found = at;                       \
        }                                                                                \
        return (int64_t)found;                                                           \
    }

/* The same of floats, a vector of them or more; the first NaN ends it. */
#define FLOAT_BLOCKS(which, name, p, n) float_blocks_##which##_##name(p, n)
#define DEFINE_FLOAT_BLOCKS(which, fold, name, T, tag, INDEX, BEATS)                             \
    INLINE uint64_t first_nan_##which##_##name(const T *p, uint64_t n, uint64_t from)            \
    {                                                                                            \
        return from + nan_##name(p + from, n - from, p[0]);                                      \
    }                                                                                            \
    INLINE uint64_t float_blocks_##which##_##name(const T *p, uint64_t n)                        \
    {                                                                                            \
        enum { LANES = VECTOR_BYTES / sizeof(T), BLOCK = BLOCK_VECTORS * LANES };                \
        typedef INDEX indices __attribute__((vector_size(VECTOR_BYTES)));                        \
        const uint64_t blocks = n / BLOCK,                                                       \
                       all = blocks > 0 && n % BLOCK > LANES ? blocks + 1 : blocks;              \
        vec_##tag best, top, x[BLOCK_VECTORS];                                                   \
        indices at = {0}, better, same;                                                          \
        flag_##tag flag = NO_FLAG;                                                               \
        uint64_t i;                                                                              \
        memcpy(&best, p, sizeof best);                                                           \
        for (uint64_t block = 0; block < all; block++) {                                         \
            const uint64_t from = block < blocks ? block * BLOCK : n - BLOCK;                    \
            UNROLLED                                                                             \
            for (int v = 0; v < BLOCK_VECTORS; v++)                                              \
                memcpy(&x[v], p + from + v * LANES, sizeof x[v]);                                \
            UNROLLED                                                                             \
            for (int v = 0; v < BLOCK_VECTORS; v += 2)                                           \
                flag = UNORDERED_##tag(flag, x[v], x[v + 1]);                                    \
            if (is_flagged_##tag(flag)) return first_nan_##which##_##name(p, n, from);           \
            FOLD_TO_FIRST(x, BLOCK_VECTORS, EXTREME_##fold##_##tag);                             \
            better = (indices)BEATS(x[0], best);                                                 \
            best = (vec_##tag)EXTREME_##fold##_##tag(x[0], best);                                \
            at = (((indices){0} + (INDEX)block) & better) | (at & ~better);                      \
        }                                                                                        \
        for (i = all * BLOCK; i < n; i += LANES) { /* may take elements a second time */         \
            memcpy(&x[0], p + (i + LANES <= n ? i : n - LANES), sizeof x[0]);                    \
            flag = UNORDERED_##tag(flag, x[0], x[0]);                                            \
            better = (indices)BEATS(x[0], best);                                                 \
            best = (vec_##tag)EXTREME_##fold##_##tag(x[0], best);                                \
            at = (((indices){0} + (INDEX)blocks) & better) | (at & ~better);                     \
        }                                                                                        \
        if (is_flagged_##tag(flag)) return first_nan_##which##_##name(p, n, blocks * BLOCK);     \
        top = best;                                                                              \
        UNROLLED                                                                                 \
        for (size_t apart = sizeof(T); apart < VECTOR_BYTES; apart *= 2)                         \
            top = (vec_##tag)EXTREME_##fold##_##tag((vec_##tag)EXCHANGE_LANES(top, apart), top); \
        LEAST_BLOCK_OF_BEST(T, INDEX)                                                            \
        return find_in_block_##name(p, n, FIRST_OF_BLOCK(at[0], blocks, all, n),                 \
                                    (elements_##name)top);                                       \
    }

/* Short rows of a vector or more, of elements of four bytes or eight; of floats the first NaN ends
 * one. The best element is found first, and then where it is, a bit for each element: these stay in
 * a register, as GCC 12 may keep fewer of them in a vector where TSan instruments. */
#define MATCHED matched
#define MOST_MATCHED(T) \
    (VECTOR_BYTES / sizeof(T) > 8 ? 64 : BLOCK_VECTORS * VECTOR_BYTES / sizeof(T))
#define DEFINE_MATCHED_ROW(which, name, T, EXTREME, FIRST_NAN)                                  \
    INLINE int64_t matched_##which##_##name(const T *p, uint64_t n)                             \
    {                                                                                           \
        enum { LANES = VECTOR_BYTES / sizeof(T), CHAINS = 2 };                                  \
        const uint64_t last = n - LANES, all = UINT64_MAX >> (64 - LANES);                      \
        elements_##name best[CHAINS], x;                                                        \
        uint64_t matches = 0, ordered = all;                                                    \
        memcpy(&best[0], p, sizeof best[0]);                                                    \
        memcpy(&best[1], p + last, sizeof best[1]);                                             \
        if ((T)0.5 != 0) ordered &= LANES_OF_TYPE(T, best[1], best[1]);                         \
        for (uint64_t i = 0; i < last; i += CHAINS * LANES) {                                   \
            UNROLLED                                                                            \
            for (int k = 0; k < CHAINS; k++) {                                                  \
                const uint64_t next = i + (uint64_t)(k * LANES);                                \
                memcpy(&x, p + (next < last ? next : last), sizeof x);                          \
                if ((T)0.5 != 0) ordered &= LANES_OF_TYPE(T, x, x);                             \
                best[k] = (elements_##name)EXTREME(x, best[k]);                                 \
            }                                                                                   \
        }                                                                                       \
        if (ordered != all) return (int64_t)(FIRST_NAN);                                        \
        best[0] = (elements_##name)EXTREME(best[0], best[1]);                                   \
        UNROLLED                                                                                \
        for (size_t apart = sizeof(T); apart < VECTOR_BYTES; apart *= 2)                        \
            best[0] = (elements_##name)EXTREME((elements_##name)EXCHANGE_LANES(best[0], apart), \
                                               best[0]);                                        \
        for (uint64_t i = 0; i < n; i += LANES) {                                               \
            const uint64_t at = i < last ? i : last;                                            \
            memcpy(&x, p + at, sizeof x);                                                       \
            matches |= LANES_OF_TYPE(T, x, best[0]) << at;                                      \
            __asm__("" : "+r"(matches));                                                        \
        }                                                                                       \
        return __builtin_ctzll(matches);                                                        \
    }
#else
enum { WIDE_ROW = 512 };
#define MOST_OF_SHORT_INTEGER_ROW(T) (sizeof(T) >= 4 ? WIDE_ROW : GPR_SHORT_ROW)
#define DEFINE_LONG_INTEGER_POSITION(which, fold, name, T, INDEX, BETTER) \
    DEFINE_LONG_POSITION(which, fold, name, T, BETTER, 0, equal, NO_BLOCKS)
#define DEFINE_FIND_IN_BLOCK(name, T)
#define DEFINE_FLOAT_BLOCKS(which, fold, name, T, tag, INDEX, BEATS)
#define DEFINE_MATCHED_ROW(which, name, T, EXTREME, FIRST_NAN)
#define MATCHED row
#define MOST_MATCHED(T) 0
#define FLOAT_BLOCKS NO_BLOCKS
#endif

/* Most elements of a row that is read once: of floats comparisons with NaN wait for each other,
 * each for seven cycles, and of narrow integers positions have to fit. */
enum { SHORT_FLOAT_ROW = 40 };
#define MOST_OF_SHORT_ROW(T) ((T)0.5 != 0 ? SHORT_FLOAT_ROW : MOST_OF_SHORT_INTEGER_ROW(T))

#define IS_row 0
#define IS_matched 1

/* Rows of less than two vectors are turned first, so that a vector has one element of each of as
 * many rows as it has lanes: what would be folds within a vector for each row are comparisons of
 * vectors for all of them. Elements of 8 bytes, of which a vector has few, are gathered instead. */
#define DEFINE_POSITIONS(which, name, T, INDEX, LIFT, VECTOR_LIFT, BETTER, SKIP, SHORT)          \
    DEFINE_ROW_POSITION(which, name, T, INDEX, VECTOR_LIFT, BETTER, SKIP)                        \
    static void which##_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n,      \
                               int64_t *positions)                                               \
    {                                                                                            \
        enum { LANES = VECTOR_BYTES / sizeof(T), GATHERS = sizeof(T) == 8 };                     \
        typedef T elements __attribute__((vector_size(VECTOR_BYTES)));                           \
        typedef INDEX indices __attribute__((vector_size(VECTOR_BYTES)));                        \
        _Alignas(VECTOR_BYTES) T turned[GATHERS ? 1 : 2 * LANES][LANES];                         \
        const T *row[LANES];                                                                     \
        if (IS_##SHORT && sizeof(T) >= 4 && n >= LANES && n <= MOST_MATCHED(T)) {                \
            for (uint64_t r = 0; r < rows; r++)                                                  \
                positions[r] = SHORT##_##which##_##name(                                         \
                    (const T *)(const void *)(data + (int64_t)r * stride), n);                   \
            return;                                                                              \
        }                                                                                        \
        if (n > MOST_OF_SHORT_ROW(T)) {                                                          \
            for (uint64_t r = 0; r < rows; r++)                                                  \
                positions[r] = long_##which##_##name(                                            \
                    (const T *)(const void *)(data + (int64_t)r * stride), n);                   \
            return;                                                                              \
        }                                                                                        \
        if (n >= (rows < LANES / 2 ? LANES : 2 * LANES)) {                                       \
            for (uint64_t r = 0; r < rows; r++)                                                  \
                positions[r] = row_##which##_##name(                                             \
                    (const T *)(const void *)(data + (int64_t)r * stride), n);                   \
            return;                                                                              \
        }                                                                                        \
        for (uint64_t done = 0; done < rows; done += LANES) {                                    \
            const uint64_t some = rows - done < LANES ? rows - done : LANES;                     \
            elements best = {0}, x = {0};                                                        \
            indices at = {0};                                                                    \
            if (!GATHERS && some < LANES) memset(turned, 0, n * sizeof turned[0]);               \
            for (uint64_t k = 0; k < LANES; k++) { /* lanes without a row repeat the last one */ \
                const int64_t from = (int64_t)(done + (k < some ? k : some - 1));                \
                row[k] = (const T *)(const void *)(data + from * stride);                        \
                if (GATHERS || k >= some) continue;                                              \
                for (uint64_t i = 0; i < n; i++) turned[i][k] = (T)LIFT(row[k][i]);              \
            }                                                                                    \
            for (uint64_t i = 0; i < n; i++) {                                                   \
                if (GATHERS) {                                                                   \
                    UNROLLED                                                                     \
                    for (int k = 0; k < LANES; k++) x[k] = row[k][i];                            \
                } else {                                                                         \
                    memcpy(&x, turned[i], sizeof x);                                             \
                }                                                                                \
                if (i == 0) best = x;                                                            \
                const indices better = (indices)BETTER(x, best);                                 \
                best = (elements)(((indices)x & better) | ((indices)best & ~better));            \
                at = (((indices){0} + (INDEX)i) & better) | (at & ~better);                      \
            }                                                                                    \
            if (SKIP) at |= (indices)(best != best);                                             \
            for (uint64_t k = 0; k < LANES && some == LANES; k++) positions[done + k] = at[k];   \
            for (uint64_t k = 0; k < some && some < LANES; k++) positions[done + k] = at[k];     \
        }                                                                                        \
    }
/* Vectors of columns: indices as wide as elements count the rows of a block, which is taken in
 * steps of few rows, so that memory delivers as many streams. What is found in a block is in
 * `bests` and `places` between two steps, and then joined with what was found before. */
enum { POSITION_STEP_ROWS = 16, POSITION_VECTORS = 2 };
#define DEFINE_POSITION_TILE(tile, which, name, T, INDEX, LIFT, BETTER, BYTES, VECTORS)        \
    INLINE void tile##_##which##_##name(const char *data, int64_t stride, uint64_t row,        \
                                        uint64_t end, int64_t ahead, T *bests, INDEX *places)  \
    {                                                                                          \
        enum { LANES = (BYTES) / sizeof(T) };                                                  \
        typedef T elements __attribute__((vector_size(BYTES)));                                \
        typedef INDEX indices __attribute__((vector_size(BYTES)));                             \
        elements best[VECTORS], x;                                                             \
        indices at[VECTORS];                                                                   \
        data += (int64_t)row * stride;                                                         \
        UNROLLED                                                                               \
        for (int k = 0; k < (VECTORS); k++) {                                                  \
            memcpy(&best[k], row > 0 ? (const char *)(bests + k * LANES) : data + k * (BYTES), \
                   sizeof x);                                                                  \
            if (row == 0) best[k] = (elements)LIFT(best[k]);                                   \
            memcpy(&at[k], places + k * LANES, sizeof x);                                      \
            if (row == 0) at[k] = (indices){0};                                                \
        }                                                                                      \
        if (row == 0) row++, data += stride;                                                   \
        for (; row < end; row++, data += stride) {                                             \
            if (ahead != 0) PREFETCH_AT(data, (BYTES) * (VECTORS), ahead, 2);                  \
            UNROLLED                                                                           \
            for (int k = 0; k < (VECTORS); k++) {                                              \
                memcpy(&x, data + k * (BYTES), sizeof x);                                      \
                x = (elements)LIFT(x);                                                         \
                const indices better = (indices)BETTER(x, best[k]);                            \
                best[k] = (elements)(((indices)x & better) | ((indices)best[k] & ~better));    \
                at[k] = (((indices){0} + (INDEX)row) & better) | (at[k] & ~better);            \
            }                                                                                  \
        }                                                                                      \
        memcpy(bests, best, sizeof best);                                                      \
        memcpy(places, at, sizeof at);                                                         \
    }

/* The last vectors may take columns a second time: that changes nothing. */
#define DEFINE_POSITION_COLUMNS(which, name, T, INDEX, LIFT, BETTER, SKIP)                         \
    DEFINE_POSITION_TILE(tile, which, name, T, INDEX, LIFT, BETTER, VECTOR_BYTES,                  \
                         POSITION_VECTORS)                                                         \
    DEFINE_POSITION_TILE(vector, which, name, T, INDEX, LIFT, BETTER, VECTOR_BYTES, 1)             \
    DEFINE_POSITION_TILE(narrow, which, name, T, INDEX, LIFT, BETTER, GPR_COLUMN_BYTES, 1)         \
    INLINE void step_##which##_##name(const char *data, int64_t stride, uint64_t row,              \
                                      uint64_t end, int64_t ahead, uint64_t width, T *bests,       \
                                      INDEX *places)                                               \
    {                                                                                              \
        enum { LANES = VECTOR_BYTES / sizeof(T), FEW = GPR_COLUMN_BYTES / sizeof(T) };             \
        const uint64_t last = width - (width < LANES ? FEW : LANES);                               \
        uint64_t j = 0;                                                                            \
        for (; j + POSITION_VECTORS * LANES <= width; j += POSITION_VECTORS * LANES)               \
            tile_##which##_##name(data + j * sizeof(T), stride, row, end, ahead, bests + j,        \
                                  places + j);                                                     \
        for (; j < width && width >= LANES; j += LANES) {                                          \
            const uint64_t at = j < last ? j : last;                                               \
            vector_##which##_##name(data + at * sizeof(T), stride, row, end, ahead, bests + at,    \
                                    places + at);                                                  \
        }                                                                                          \
        for (; j < width; j += FEW) {                                                              \
            const uint64_t at = j < last ? j : last;                                               \
            narrow_##which##_##name(data + at * sizeof(T), stride, row, end, ahead, bests + at,    \
                                    places + at);                                                  \
        }                                                                                          \
    }                                                                                              \
    static void columns_##which##_##name(const char *data, int64_t stride, uint64_t rows,          \
                                         uint64_t width, uint64_t first, int how, void *extremes,  \
                                         int64_t *positions)                                       \
    {                                                                                              \
        const uint64_t most = sizeof(T) == 1 ? INT8_MAX : INT16_MAX;                               \
        _Alignas(VECTOR_BYTES) T bests[GPR_COLUMN_BLOCK];                                          \
        _Alignas(VECTOR_BYTES) INDEX places[GPR_COLUMN_BLOCK];                                     \
        T *found = extremes;                                                                       \
        int fresh = how & GPR_FRESH;                                                               \
        for (uint64_t block = 0; block < rows; block += most, fresh = 0) {                         \
            const uint64_t end = rows - block < most ? rows - block : most;                        \
            for (uint64_t row = 0; row < end; row += POSITION_STEP_ROWS) {                         \
                const uint64_t left = end - row;                                                   \
                const int64_t ahead = bytes_to_next(POSITION_STEP_ROWS, block + row, rows, stride, \
                                                    width, sizeof(T), how);                        \
                step_##which##_##name(data, stride, row,                                           \
                                      left < POSITION_STEP_ROWS ? end : row + POSITION_STEP_ROWS,  \
                                      ahead, width, bests, places);                                \
            }                                                                                      \
            for (uint64_t j = 0; j < width; j++) {                                                 \
                if (!fresh && !(BETTER(bests[j], found[j]))) continue;                             \
                found[j] = bests[j];                                                               \
                positions[j] =                                                                     \
                    SKIP && bests[j] != bests[j] ? -1 : (int64_t)(first + block) + places[j];      \
            }                                                                                      \
            data += (int64_t)end * stride;                                                         \
        }                                                                                          \
    }

/* Blocks of columns that are no wider than a vector and have no gaps: a vector has as many rows as
 * fit it, side by side, two vectors at a time, and what lanes find is joined at the end. The last
 * rows may be taken a second time, which changes nothing. Lanes behind the rows have no meaning. */
#define DEFINE_POSITION_BLOCK(block, which, name, T, INDEX, LIFT, BETTER, SKIP, BYTES)        \
    INLINE void block##_##which##_##name(const T *p, uint64_t n, uint64_t width,              \
                                         int64_t *positions)                                  \
    {                                                                                         \
        enum { LANES = (BYTES) / sizeof(T), CHAINS = 2 };                                     \
        typedef T elements __attribute__((vector_size(BYTES)));                               \
        typedef INDEX indices __attribute__((vector_size(BYTES)));                            \
        const uint64_t most = LANES / width, copies = most < n ? most : n, last = n - copies; \
        _Alignas(BYTES) T bests[LANES];                                                       \
        _Alignas(BYTES) INDEX places[LANES];                                                  \
        elements best[CHAINS], x;                                                             \
        indices at[CHAINS], better;                                                           \
        UNROLLED                                                                              \
        for (int k = 0; k < CHAINS; k++) {                                                    \
            const uint64_t from = (uint64_t)k * copies < last ? (uint64_t)k * copies : last;  \
            memcpy(&x, p + from * width, sizeof x);                                           \
            best[k] = (elements)LIFT(x);                                                      \
            at[k] = (indices){0} + (INDEX)from;                                               \
        }                                                                                     \
        for (uint64_t row = CHAINS * copies; row < n; row += CHAINS * copies) {               \
            UNROLLED                                                                          \
            for (int k = 0; k < CHAINS; k++) {                                                \
                const uint64_t next = row + (uint64_t)k * copies,                             \
                               from = next < last ? next : last;                              \
                memcpy(&x, p + from * width, sizeof x);                                       \
                x = (elements)LIFT(x);                                                        \
                better = (indices)BETTER(x, best[k]);                                         \
                best[k] = (elements)(((indices)x & better) | ((indices)best[k] & ~better));   \
                at[k] = (((indices){0} + (INDEX)from) & better) | (at[k] & ~better);          \
            }                                                                                 \
        }                                                                                     \
        better = (indices)GOES_BEFORE(BETTER, best[1], at[1], best[0], at[0]);                \
        best[0] = (elements)(((indices)best[1] & better) | ((indices)best[0] & ~better));     \
        at[0] = (at[1] & better) | (at[0] & ~better);                                         \
        memcpy(bests, &best[0], sizeof bests);                                                \
        memcpy(places, &at[0], sizeof places);                                                \
        for (uint64_t j = 0; j < width; j++) {                                                \
            T top = bests[j];                                                                 \
            int64_t place = places[j];                                                        \
            for (uint64_t k = 1; k < copies; k++) {                                           \
                const T other = bests[k * width + j];                                         \
                const int64_t its = places[k * width + j] + (int64_t)k;                       \
                const int is_better = BETTER(other, top), is_worse = BETTER(top, other);      \
                const int before = is_better | (!is_worse & (its < place));                   \
                top = before ? other : top;                                                   \
                place = before ? its : place;                                                 \
            }                                                                                 \
            positions[j] = SKIP && top != top ? -1 : place;                                   \
        }                                                                                     \
    }

/* Vectors of GPR_COLUMN_BYTES in a block that wider ones do not make faster. */
enum { SMALL_BLOCK = 8 };
#define DEFINE_POSITION_BLOCKS(which, name, T, INDEX, LIFT, BETTER, SKIP)                         \
    DEFINE_POSITION_BLOCK(wide_block, which, name, T, INDEX, LIFT, BETTER, SKIP, VECTOR_BYTES)    \
    DEFINE_POSITION_BLOCK(small_block, which, name, T, INDEX, LIFT, BETTER, SKIP,                 \
                          GPR_COLUMN_BYTES)                                                       \
    static void column_blocks_##which##_##name(const char *data, int64_t stride, uint64_t blocks, \
                                               uint64_t n, uint64_t width, int64_t *positions)    \
    {                                                                                             \
        const int is_small = width * sizeof(T) <= GPR_COLUMN_BYTES &&                             \
                             n * width * sizeof(T) <= SMALL_BLOCK * GPR_COLUMN_BYTES;             \
        for (uint64_t b = 0; b < blocks; b++, data += stride, positions += width) {               \
            const T *p = (const T *)(const void *)data;                                           \
            if (is_small)                                                                         \
                small_block_##which##_##name(p, n, width, positions);                             \
            else                                                                                  \
                wide_block_##which##_##name(p, n, width, positions);                              \
        }                                                                                         \
    }

#define VECTOR_SAME(x) (x)
#define VECTOR_TRUTH(x) (((x) != 0) & 1)

#define LESS(x, best) ((x) < (best))
#define GREATER(x, best) ((x) > (best))
#define LESS_OR_FIRST_NAN(x, best) (((x) < (best)) | (((x) != (x)) & ((best) == (best))))
#define GREATER_OR_FIRST_NAN(x, best) (((x) > (best)) | (((x) != (x)) & ((best) == (best))))

#define LESS_OR_FIRST_NUMBER(x, best) (((x) < (best)) | (((best) != (best)) & ((x) == (x))))
#define GREATER_OR_FIRST_NUMBER(x, best) (((x) > (best)) | (((best) != (best)) & ((x) == (x))))

#define DEFINE_INT_POSITIONS(name, T, INDEX, LIFT, VECTOR_LIFT)                \
    DEFINE_FIND_IN_BLOCK(name, T)                                              \
    DEFINE_MATCHED_ROW(first_min, name, T, VECTOR_min_##name, 0)               \
    DEFINE_MATCHED_ROW(first_max, name, T, VECTOR_max_##name, 0)               \
    DEFINE_LONG_INTEGER_POSITION(first_min, min, name, T, INDEX, LESS)         \
    DEFINE_LONG_INTEGER_POSITION(first_max, max, name, T, INDEX, GREATER)      \
    DEFINE_POSITION_BLOCKS(first_min, name, T, INDEX, VECTOR_LIFT, LESS, 0)    \
    DEFINE_POSITION_BLOCKS(first_max, name, T, INDEX, VECTOR_LIFT, GREATER, 0) \
    DEFINE_ALL_POSITIONS(name, T, INDEX, LIFT, VECTOR_LIFT, MATCHED)
#define DEFINE_BOOL_POSITIONS(name, T, INDEX, LIFT, VECTOR_LIFT)                \
    DEFINE_LONG_POSITION(first_min, min, name, T, LESS, 0, equal, NO_BLOCKS)    \
    DEFINE_LONG_POSITION(first_max, max, name, T, GREATER, 0, equal, NO_BLOCKS) \
    DEFINE_ALL_POSITIONS(name, T, INDEX, LIFT, VECTOR_LIFT, row)
#define DEFINE_ALL_POSITIONS(name, T, INDEX, LIFT, VECTOR_LIFT, SHORT)                \
    DEFINE_POSITIONS(first_min, name, T, INDEX, LIFT, VECTOR_LIFT, LESS, 0, SHORT)    \
    DEFINE_POSITIONS(first_max, name, T, INDEX, LIFT, VECTOR_LIFT, GREATER, 0, SHORT) \
    DEFINE_POSITION_COLUMNS(first_min, name, T, INDEX, VECTOR_LIFT, LESS, 0)          \
    DEFINE_POSITION_COLUMNS(first_max, name, T, INDEX, VECTOR_LIFT, GREATER, 0)
#define DEFINE_FLOAT_POSITION(which, fold, name, T, INDEX, BETTER, SKIP, BLOCKS, SHORT)  \
    DEFINE_LONG_POSITION(which, fold, name, T, BETTER, SKIP, same, BLOCKS)               \
    DEFINE_POSITIONS(which, name, T, INDEX, LIFT_SAME, VECTOR_SAME, BETTER, SKIP, SHORT) \
    DEFINE_POSITION_COLUMNS(which, name, T, INDEX, VECTOR_SAME, BETTER, SKIP)            \
    DEFINE_POSITION_BLOCKS(which, name, T, INDEX, VECTOR_SAME, BETTER, SKIP)
#define DEFINE_FLOAT_POSITIONS(name, T, tag, INDEX)                                                \
    DEFINE_FIND_IN_BLOCK(name, T)                                                                  \
    DEFINE_MATCHED_ROW(first_min, name, T, EXTREME_min_##tag, nan_##name(p, n, *p))                \
    DEFINE_MATCHED_ROW(first_max, name, T, EXTREME_max_##tag, nan_##name(p, n, *p))                \
    DEFINE_FLOAT_BLOCKS(first_min, min, name, T, tag, INDEX, LESS)                                 \
    DEFINE_FLOAT_BLOCKS(first_max, max, name, T, tag, INDEX, GREATER)                              \
    DEFINE_FLOAT_POSITION(first_min, min, name, T, INDEX, LESS_OR_FIRST_NAN, 0, FLOAT_BLOCKS,      \
                          MATCHED)                                                                 \
    DEFINE_FLOAT_POSITION(first_max, max, name, T, INDEX, GREATER_OR_FIRST_NAN, 0, FLOAT_BLOCKS,   \
                          MATCHED)                                                                 \
    DEFINE_FLOAT_POSITION(first_fmin, fmin, name, T, INDEX, LESS_OR_FIRST_NUMBER, 1, NO_BLOCKS,    \
                          row)                                                                     \
    DEFINE_FLOAT_POSITION(first_fmax, fmax, name, T, INDEX, GREATER_OR_FIRST_NUMBER, 1, NO_BLOCKS, \
                          row)
