/* Part of loops_template.h: where in a row an element is. */

/* A hit is looked for in stretches that a vector loop can ask as one, then in shorter ones. */
enum { FIND_STRETCH = 256, FIND_SHORT_STRETCH = 32 };

#define SKIP_STRETCHES(p, n, i, value, BITS, HIT, STRETCH)                          \
    for (; i + (STRETCH) <= n; i += (STRETCH)) {                                    \
        BITS any = 0;                                                               \
        for (uint64_t k = 0; k < (STRETCH); k++) any |= (BITS)HIT(p[i + k], value); \
        if (any != 0) break;                                                        \
    }
#define DEFINE_FIND_RUN(run, name, T, BITS, HIT)                      \
    INLINE uint64_t run##_##name(const T *p, uint64_t n, T value)     \
    {                                                                 \
        uint64_t i = 0;                                               \
        SKIP_STRETCHES(p, n, i, value, BITS, HIT, FIND_STRETCH)       \
        SKIP_STRETCHES(p, n, i, value, BITS, HIT, FIND_SHORT_STRETCH) \
        for (; i < n; i++)                                            \
            if (HIT(p[i], value)) return i;                           \
        return n;                                                     \
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

#define DEFINE_FLOAT_FIND(name, T, BITS)                                                       \
    DEFINE_FIND_RUN(equal, name, T, BITS, HIT_EQUAL)                                           \
    DEFINE_FIND_RUN(nan, name, T, BITS, HIT_NAN)                                               \
    static uint64_t find_##name(const void *data, uint64_t n, const void *value)               \
    {                                                                                          \
        const T wanted = *(const T *)value;                                                    \
        return wanted != wanted ? nan_##name(data, n, wanted) : equal_##name(data, n, wanted); \
    }

/* Short rows are turned first, so that a vector has one element of each of as many rows as it has
 * lanes: what would be folds within a vector for each row are comparisons of vectors for all of
 * them. Elements of 8 bytes, of which a vector has few, are gathered instead. A vector of INDEX has
 * the lanes of one of T. With SKIP a row of nothing but NaN has no position. */
#define DEFINE_POSITIONS(which, name, T, INDEX, LIFT, BETTER, SKIP)                              \
    static void which##_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n,      \
                               int64_t *positions)                                               \
    {                                                                                            \
        enum { LANES = VECTOR_BYTES / sizeof(T), GATHERS = sizeof(T) == 8 };                     \
        typedef T elements __attribute__((vector_size(VECTOR_BYTES)));                           \
        typedef INDEX indices __attribute__((vector_size(VECTOR_BYTES)));                        \
        _Alignas(VECTOR_BYTES) T turned[GATHERS ? 1 : GPR_SHORT_ROW][LANES];                     \
        const T *row[LANES];                                                                     \
        for (uint64_t done = 0; done < rows; done += LANES) {                                    \
            const uint64_t some = rows - done < LANES ? rows - done : LANES;                     \
            elements best = {0}, x = {0};                                                        \
            indices at = {0};                                                                    \
            for (uint64_t k = 0; k < LANES; k++) { /* lanes without a row repeat the last one */ \
                const int64_t from = (int64_t)(done + (k < some ? k : some - 1));                \
                row[k] = (const T *)(const void *)(data + from * stride);                        \
                if (GATHERS) continue;                                                           \
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
            for (uint64_t k = 0; k < some; k++)                                                  \
                positions[done + k] = SKIP && best[k] != best[k] ? -1 : at[k];                   \
        }                                                                                        \
    }
#define LESS(x, best) ((x) < (best))
#define GREATER(x, best) ((x) > (best))
#define LESS_OR_FIRST_NAN(x, best) (((x) < (best)) | (((x) != (x)) & ((best) == (best))))
#define GREATER_OR_FIRST_NAN(x, best) (((x) > (best)) | (((x) != (x)) & ((best) == (best))))

#define LESS_OR_FIRST_NUMBER(x, best) (((x) < (best)) | (((best) != (best)) & ((x) == (x))))
#define GREATER_OR_FIRST_NUMBER(x, best) (((x) > (best)) | (((best) != (best)) & ((x) == (x))))

#define DEFINE_INT_POSITIONS(name, T, INDEX, LIFT)             \
    DEFINE_POSITIONS(first_min, name, T, INDEX, LIFT, LESS, 0) \
    DEFINE_POSITIONS(first_max, name, T, INDEX, LIFT, GREATER, 0)
#define DEFINE_FLOAT_POSITIONS(name, T, INDEX)                                       \
    DEFINE_POSITIONS(first_min, name, T, INDEX, LIFT_SAME, LESS_OR_FIRST_NAN, 0)     \
    DEFINE_POSITIONS(first_max, name, T, INDEX, LIFT_SAME, GREATER_OR_FIRST_NAN, 0)  \
    DEFINE_POSITIONS(first_fmin, name, T, INDEX, LIFT_SAME, LESS_OR_FIRST_NUMBER, 1) \
    DEFINE_POSITIONS(first_fmax, name, T, INDEX, LIFT_SAME, GREATER_OR_FIRST_NUMBER, 1)
