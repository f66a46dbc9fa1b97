/* Part of loops_template.h: sums of products, with a bound on their error by which callers round
 * them as the exact sums.
 *
 * A product of float32 is a double, and added plainly: n / SUM_VECTORS / VECTOR_LANES additions
 * of a lane, each rounded once. A product of doubles is two doubles, and so is a lane's sum:
 * rounding of the products and of the sums goes to `rest`, whose own roundings alone are lost.
 * Loops that multiply and add at once are quicker where they can (loops_product_sums_at_once.h). */

enum { SUM_VECTORS = 4 };

/* What rounding took from a product, of vectors. */
#ifdef LESS_PRODUCT
#define VECTOR_PRODUCT_REST(x, y, product) (-(vec_f64)LESS_PRODUCT(product, x, y))
#else
INLINE vec_f64 vector_product_rest(vec_f64 x, vec_f64 y, vec_f64 product)
{
    vec_f64 rest;

    UNROLLED
    for (int k = 0; k < VECTOR_LANES; k++) rest[k] = PRODUCT_REST(x[k], y[k], product[k]);
    return rest;
}
#define VECTOR_PRODUCT_REST(x, y, product) vector_product_rest(x, y, product)
#endif

/* A term of numbers x and y, what rounding took from it, and its magnitude. Where terms are not
 * negative, their sum is that of the magnitudes. */
#define TERM_products(x, y) ((x) * (y))
#define REST_products(x, y, term) VECTOR_PRODUCT_REST(x, y, term)
#define REST_OF_ONE_products(x, y, term) PRODUCT_REST(x, y, term)
#define TERM_squares(x, y) ((x) * (x))
#define REST_squares(x, y, term) VECTOR_PRODUCT_REST(x, x, term)
#define REST_OF_ONE_squares(x, y, term) PRODUCT_REST(x, x, term)
#define TERM_magnitudes(x, y) MAGNITUDES(x)
#define REST_magnitudes(x, y, term) ((vec_f64){0})
#define REST_OF_ONE_magnitudes(x, y, term) 0.0
#define TERM_OF_ONE_products(x, y) ((x) * (y))
#define TERM_OF_ONE_squares(x, y) ((x) * (x))
#define TERM_OF_ONE_magnitudes(x, y) fabs(x)

/* Adds another vector to one, and their rests. */
INLINE void merge_lanes(vec_f64 *sum, vec_f64 *rest, vec_f64 other, vec_f64 other_rest)
{
    vec_f64 lost;

    ADD_WITH_REST(vec_f64, *sum, other, lost);
    *rest += lost + other_rest;
}

INLINE void add_term(gpr_product_sum *sum, double term, double rest, double size)
{
    double lost;

    ADD_WITH_REST(double, sum->upper, term, lost);
    sum->lower += lost + rest;
    sum->size += size;
}

/* A sum and a product that is a double, rounded once, by one instruction where there is one. */
#ifdef MULTIPLY_ADD
#define ADD_EXACT_PRODUCT(x, y, sum) (vec_f64) MULTIPLY_ADD(x, y, sum)
#else
#define ADD_EXACT_PRODUCT(x, y, sum) ((sum) + (x) * (y))
#endif
#define ADDED_products(x, y, term, sum) ADD_EXACT_PRODUCT(x, y, sum)
#define ADDED_squares(x, y, term, sum) ADD_EXACT_PRODUCT(x, x, sum)
#define ADDED_magnitudes(x, y, term, sum) ((sum) + (term))

/* Adds a vector of terms, of which REST is what rounding took. ADDED is the sum with terms that are
 * doubles. */
#define ADD_TERMS(sum, rest, size, term, REST, SIGNED, TWICE, ADDED) \
    do {                                                             \
        if (TWICE) {                                                 \
            vec_f64 lost;                                            \
            ADD_WITH_REST(vec_f64, sum, term, lost);                 \
            rest += lost + (REST);                                   \
        } else {                                                     \
            sum = (ADDED);                                           \
        }                                                            \
        if (SIGNED) size += MAGNITUDES(term);                        \
    } while (0)

/* The general way. SIGNED: terms may be negative. TWICE: terms and sums are two doubles each. */
#define DEFINE_PRODUCT_SUM(kind, name, T, LOAD, SIGNED, TWICE)                                     \
    static gpr_product_sum plain_##kind##_##name(const T *p, const T *q, uint64_t n)               \
    {                                                                                              \
        vec_f64 sums[SUM_VECTORS] = {{0}}, rests[SUM_VECTORS] = {{0}}, sizes[SUM_VECTORS] = {{0}}; \
        gpr_product_sum found = {-0.0, 0, 0};                                                      \
        uint64_t i = 0;                                                                            \
        (void)q;                                                                                   \
        for (int k = 0; k < SUM_VECTORS; k++) sums[k] = -sums[k]; /* -0, as a sum of -0 is */      \
        for (; i + SUM_VECTORS * VECTOR_LANES <= n; i += SUM_VECTORS * VECTOR_LANES) {             \
            PREFETCH(p + i, SUM_VECTORS * VECTOR_LANES * sizeof(T));                               \
            if (SIGNED) PREFETCH(q + i, SUM_VECTORS * VECTOR_LANES * sizeof(T));                   \
            UNROLLED                                                                               \
            for (int k = 0; k < SUM_VECTORS; k++) {                                                \
                const vec_f64 x = (vec_f64)LOAD(p + i + k * VECTOR_LANES),                         \
                              y = SIGNED ? (vec_f64)LOAD(q + i + k * VECTOR_LANES) : x,            \
                              term = TERM_##kind(x, y);                                            \
                (void)y;                                                                           \
                ADD_TERMS(sums[k], rests[k], sizes[k], term, REST_##kind(x, y, term), SIGNED,      \
                          TWICE, ADDED_##kind(x, y, term, sums[k]));                               \
            }                                                                                      \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            const double x = p[i], y = SIGNED ? q[i] : x, term = TERM_OF_ONE_##kind(x, y);         \
            (void)y;                                                                               \
            add_term(&found, term, TWICE ? REST_OF_ONE_##kind(x, y, term) : 0, fabs(term));        \
        }                                                                                          \
        UNROLLED                                                                                   \
        for (int half = SUM_VECTORS / 2; half > 0; half /= 2) {                                    \
            UNROLLED                                                                               \
            for (int k = 0; k < half; k++) {                                                       \
                merge_lanes(&sums[k], &rests[k], sums[k + half], rests[k + half]);                 \
                sizes[k] += sizes[k + half];                                                       \
            }                                                                                      \
        }                                                                                          \
        for (int lane = 0; lane < VECTOR_LANES; lane++)                                            \
            add_term(&found, sums[0][lane], rests[0][lane],                                        \
                     SIGNED ? sizes[0][lane] : sums[0][lane]);                                     \
        return found;                                                                              \
    }

/* Of complex numbers, a vector has both parts of each: times the other factor as it is, and with
 * its parts swapped, it makes the four products of the parts. */
enum { COMPLEX_VECTORS = 2, COMPLEX_TERMS = 2 };

/* Adds the products of the parts of numbers from `i` on. */
#define DEFINE_COMPLEX_TAIL(name, T, TWICE)                                                       \
    INLINE void add_complex_tail_##name(const T *p, const T *q, uint64_t i, uint64_t numbers,     \
                                        gpr_product_sum *of_parts)                                \
    {                                                                                             \
        for (; i < numbers; i += 2) {                                                             \
            UNROLLED                                                                              \
            for (uint64_t part = 0; part < 2 * COMPLEX_TERMS; part++) {                           \
                const double x = p[i + part % 2], y = q[i + (part % 2 ^ part / 2)], term = x * y; \
                add_term(&of_parts[part], term, (TWICE) ? PRODUCT_REST(x, y, term) : 0,           \
                         fabs(term));                                                             \
            }                                                                                     \
        }                                                                                         \
    }
DEFINE_COMPLEX_TAIL(float32, float, 0)
DEFINE_COMPLEX_TAIL(float64, double, 1)

#define DEFINE_COMPLEX_PRODUCT_SUMS(name, T, LOAD, TWICE)                                  \
    static void plain_complex_products_##name(const T *p, const T *q, uint64_t n,          \
                                              gpr_product_sum *of_parts)                   \
    {                                                                                      \
        enum { STEP = COMPLEX_VECTORS * VECTOR_LANES };                                    \
        const uint64_t numbers = 2 * n;                                                    \
        vec_f64 sums[COMPLEX_TERMS][COMPLEX_VECTORS] = {{{0}}},                            \
                rests[COMPLEX_TERMS][COMPLEX_VECTORS] = {{{0}}},                           \
                sizes[COMPLEX_TERMS][COMPLEX_VECTORS] = {{{0}}};                           \
        uint64_t i = 0;                                                                    \
        for (; i + STEP <= numbers; i += STEP) {                                           \
            PREFETCH(p + i, STEP * sizeof(T));                                             \
            PREFETCH(q + i, STEP * sizeof(T));                                             \
            UNROLLED                                                                       \
            for (int k = 0; k < COMPLEX_VECTORS; k++) {                                    \
                const vec_f64 x = (vec_f64)LOAD(p + i + k * VECTOR_LANES),                 \
                              y = (vec_f64)LOAD(q + i + k * VECTOR_LANES);                 \
                UNROLLED                                                                   \
                for (int t = 0; t < COMPLEX_TERMS; t++) {                                  \
                    const vec_f64 factor = t > 0 ? SWAP_PARTS(y) : y, term = x * factor;   \
                    ADD_TERMS(sums[t][k], rests[t][k], sizes[t][k], term,                  \
                              VECTOR_PRODUCT_REST(x, factor, term), 1, TWICE,              \
                              ADD_EXACT_PRODUCT(x, factor, sums[t][k]));                   \
                }                                                                          \
            }                                                                              \
        }                                                                                  \
        for (int part = 0; part < 2 * COMPLEX_TERMS; part++)                               \
            of_parts[part] = (gpr_product_sum){0, 0, 0};                                   \
        add_complex_tail_##name(p, q, i, numbers, of_parts);                               \
        for (int t = 0; t < COMPLEX_TERMS; t++) {                                          \
            for (int k = 1; k < COMPLEX_VECTORS; k++) {                                    \
                merge_lanes(&sums[t][0], &rests[t][0], sums[t][k], rests[t][k]);           \
                sizes[t][0] += sizes[t][k];                                                \
            }                                                                              \
            for (int lane = 0; lane < VECTOR_LANES; lane++)                                \
                add_term(&of_parts[2 * t + lane % 2], sums[t][0][lane], rests[t][0][lane], \
                         sizes[t][0][lane]);                                               \
        }                                                                                  \
    }

DEFINE_COMPLEX_PRODUCT_SUMS(float32, float, WIDEN_F32, 0)
DEFINE_COMPLEX_PRODUCT_SUMS(float64, double, load_f64, 1)

DEFINE_PRODUCT_SUM(products, float32, float, WIDEN_F32, 1, 0)
DEFINE_PRODUCT_SUM(squares, float32, float, WIDEN_F32, 0, 0)
DEFINE_PRODUCT_SUM(products, float64, double, load_f64, 1, 1)
DEFINE_PRODUCT_SUM(squares, float64, double, load_f64, 0, 1)
DEFINE_PRODUCT_SUM(magnitudes, float64, double, load_f64, 0, 1)

#ifdef MULTIPLY_ADD
#include "cpu/loops_product_sums_at_once.h"
#define AT_ONCE(made) (made)
#else
#define AT_ONCE(made) 0
#endif

/* The quicker way where there is one and it does not give up, or else the general one. */
#define DEFINE_SUM_LOOP(kind, name, T, MADE)                                                \
    static gpr_product_sum sum_of_##kind##_##name(const void *a, const void *b, uint64_t n) \
    {                                                                                       \
        const T *p = a, *q = b;                                                             \
        gpr_product_sum found;                                                              \
                                                                                            \
        if (AT_ONCE(MADE)) return found;                                                    \
        return plain_##kind##_##name(p, q, n);                                              \
    }
DEFINE_SUM_LOOP(products, float32, float, sum_singles(p, q, n, &found))
DEFINE_SUM_LOOP(squares, float32, float, 0)
DEFINE_SUM_LOOP(products, float64, double, sum_biased(GPR_PRODUCTS, p, q, n, &found))
DEFINE_SUM_LOOP(squares, float64, double, sum_biased(GPR_SQUARES, p, q, n, &found))
DEFINE_SUM_LOOP(magnitudes, float64, double, sum_biased(GPR_MAGNITUDES, p, q, n, &found))

#define DEFINE_COMPLEX_SUMS_LOOP(name, real, T, MADE)                             \
    static void sums_of_products_##name(const void *a, const void *b, uint64_t n, \
                                        gpr_product_sum *of_parts)                \
    {                                                                             \
        const T *p = a, *q = b;                                                   \
                                                                                  \
        if (AT_ONCE(MADE)) return;                                                \
        plain_complex_products_##real(p, q, n, of_parts);                         \
    }
DEFINE_COMPLEX_SUMS_LOOP(complex64, float32, float, sum_complex_singles(p, q, n, of_parts))
DEFINE_COMPLEX_SUMS_LOOP(complex128, float64, double, sum_complex_biased(p, q, n, of_parts))

/* Rows side by side: a lane has one, and adds its products one after the other in the general way.
 * Factors of neighbouring rows are neighbours in memory, apart, or, of second ones, the same. */
enum { ROW_VECTORS = 2 }; /* of neighbours: additions of one wait less for each other */
typedef enum reading { NEIGHBOURS, APART, ONE_FOR_ALL } reading;

#if VECTOR_BYTES == 64
#define EACH_LANE(LANE) {LANE(0), LANE(1), LANE(2), LANE(3), LANE(4), LANE(5), LANE(6), LANE(7)}
#elif VECTOR_BYTES == 32
#define EACH_LANE(LANE) {LANE(0), LANE(1), LANE(2), LANE(3)}
#else
#define EACH_LANE(LANE) {LANE(0), LANE(1)}
#endif
typedef float half_f32 __attribute__((vector_size(VECTOR_BYTES / 2)));

INLINE vec_f64 read_lanes_float64(reading how, const char *const *rows, int64_t at)
{
#define LANE_AT(k) *(const double *)(const void *)(rows[k] + at)
    if (how == NEIGHBOURS) return load_f64((const double *)(const void *)(rows[0] + at));
    if (how == ONE_FOR_ALL) return LANE_AT(0) - (vec_f64){0};
    return (vec_f64)EACH_LANE(LANE_AT);
#undef LANE_AT
}

INLINE vec_f64 read_lanes_float32(reading how, const char *const *rows, int64_t at)
{
#define LANE_AT(k) *(const float *)(const void *)(rows[k] + at)
    if (how == NEIGHBOURS) return (vec_f64)WIDEN_F32((const float *)(const void *)(rows[0] + at));
    if (how == ONE_FOR_ALL) return (double)LANE_AT(0) - (vec_f64){0};
    return __builtin_convertvector((half_f32)EACH_LANE(LANE_AT), vec_f64);
#undef LANE_AT
}

INLINE int are_neighbours(const char *const *rows, uint64_t count, int64_t bytes)
{
    int64_t differ = 0;

    for (uint64_t k = 1; k < count; k++) differ |= rows[k] - rows[k - 1] - bytes;
    return differ == 0;
}

/* Whether `count` rows from row j on are neighbours, and second ones that are not one for all. */
INLINE int are_beside(const gpr_product_rows *rows, uint64_t j, uint64_t count, int is_one,
                      int64_t bytes)
{
    return rows->are_beside || (are_neighbours(rows->p + j, count, bytes) &&
                                (is_one || are_neighbours(rows->q + j, count, bytes)));
}

/* Rows side by side are more streams of memory than the processor's own prefetchers follow, and
 * neighbours jump from page to page. For each position one line or two of the next rows, `ahead`,
 * are fetched: those at the same position, or the next one of short rows. */
INLINE void prefetch_rows(const char *const *ahead, int vectors, reading how, int64_t at,
                          int64_t first, uint64_t position)
{
    if (how == NEIGHBOURS) {
        UNROLLED
        for (int line = 0; line < vectors * VECTOR_BYTES; line += CACHE_LINE_BYTES)
            __builtin_prefetch(ahead[0] + at + line);
    } else {
        __builtin_prefetch(ahead[position % VECTOR_LANES] + first +
                           (int64_t)(position / VECTOR_LANES) * CACHE_LINE_BYTES);
    }
}

#define DEFINE_PRODUCT_ROWS(kind, name, T, real, SIGNED, TWICE)                                    \
    INLINE void add_rows_of_##kind##_##name(const gpr_product_rows *rows, uint64_t j, int vectors, \
                                            reading of_p, reading of_q, double *upper,             \
                                            double *lower, double *sizes)                          \
    {                                                                                              \
        const uint64_t step = (uint64_t)vectors * VECTOR_LANES,                                    \
                       next = rows->width - j > 3 * step ? j + 2 * step : j;                       \
        const char *const *ahead = rows->p + next;                                                 \
        vec_f64 sums[ROW_VECTORS], rests[ROW_VECTORS], magnitudes[ROW_VECTORS];                    \
                                                                                                   \
        UNROLLED                                                                                   \
        for (int k = 0; k < vectors; k++) {                                                        \
            const uint64_t at = j + (uint64_t)k * VECTOR_LANES;                                    \
            sums[k] = rows->continues ? load_f64(upper + at) : -(vec_f64){0};                      \
            rests[k] = rows->continues ? load_f64(lower + at) : (vec_f64){0};                      \
            magnitudes[k] = rows->continues ? load_f64(sizes + at) : (vec_f64){0};                 \
        }                                                                                          \
        for (uint64_t b = 0; b < rows->blocks; b++) {                                              \
            int64_t at_p = rows->p_first + (int64_t)b * rows->p_block,                             \
                    at_q = rows->q_first + (int64_t)b * rows->q_block;                             \
                                                                                                   \
            for (uint64_t i = 0; i < rows->n; i++) {                                               \
                prefetch_rows(ahead, vectors, of_p, at_p, rows->p_first, b * rows->n + i);         \
                if (SIGNED && of_q != ONE_FOR_ALL)                                                 \
                    prefetch_rows(rows->q + next, vectors, of_q, at_q, rows->q_first,              \
                                  b * rows->n + i);                                                \
                UNROLLED                                                                           \
                for (int k = 0; k < vectors; k++) {                                                \
                    const uint64_t at = j + (uint64_t)k * VECTOR_LANES;                            \
                    const vec_f64 x = read_lanes_##real(of_p, rows->p + at, at_p),                 \
                                  y = SIGNED ? read_lanes_##real(of_q, rows->q + at, at_q) : x,    \
                                  term = TERM_##kind(x, y);                                        \
                    (void)y;                                                                       \
                    ADD_TERMS(sums[k], rests[k], magnitudes[k], term, REST_##kind(x, y, term),     \
                              SIGNED, TWICE, ADDED_##kind(x, y, term, sums[k]));                   \
                }                                                                                  \
                at_p += rows->p_stride;                                                            \
                at_q += rows->q_stride;                                                            \
            }                                                                                      \
        }                                                                                          \
        UNROLLED                                                                                   \
        for (int k = 0; k < vectors; k++) {                                                        \
            const uint64_t at = j + (uint64_t)k * VECTOR_LANES;                                    \
            memcpy(upper + at, &sums[k], sizeof sums[k]);                                          \
            memcpy(lower + at, &rests[k], sizeof rests[k]);                                        \
            memcpy(sizes + at, SIGNED ? &magnitudes[k] : &sums[k], sizeof sums[k]);                \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void rows_of_##kind##_##name(const gpr_product_rows *rows, double *upper,               \
                                        double *lower, double *sizes)                              \
    {                                                                                              \
        enum { SOME = ROW_VECTORS * VECTOR_LANES };                                                \
        const int is_one = !(SIGNED) || rows->q_is_one;                                            \
        uint64_t j = 0;                                                                            \
                                                                                                   \
        while (j < rows->width) {                                                                  \
            const uint64_t left = rows->width - j;                                                 \
                                                                                                   \
            if (left < SOME || !are_beside(rows, j, SOME, is_one, sizeof(T))) {                    \
                if (is_one)                                                                        \
                    add_rows_of_##kind##_##name(rows, j, 1, APART, ONE_FOR_ALL, upper, lower,      \
                                                sizes);                                            \
                else                                                                               \
                    add_rows_of_##kind##_##name(rows, j, 1, APART, APART, upper, lower, sizes);    \
                j += VECTOR_LANES;                                                                 \
                continue;                                                                          \
            }                                                                                      \
            if (is_one)                                                                            \
                add_rows_of_##kind##_##name(rows, j, ROW_VECTORS, NEIGHBOURS, ONE_FOR_ALL, upper,  \
                                            lower, sizes);                                         \
            else                                                                                   \
                add_rows_of_##kind##_##name(rows, j, ROW_VECTORS, NEIGHBOURS, NEIGHBOURS, upper,   \
                                            lower, sizes);                                         \
            j += SOME;                                                                             \
        }                                                                                          \
    }
DEFINE_PRODUCT_ROWS(products, float32, float, float32, 1, 0)
DEFINE_PRODUCT_ROWS(squares, float32, float, float32, 0, 0)
DEFINE_PRODUCT_ROWS(products, float64, double, float64, 1, 1)
DEFINE_PRODUCT_ROWS(squares, float64, double, float64, 0, 1)
DEFINE_PRODUCT_ROWS(magnitudes, float64, double, float64, 0, 1)

DEFINE_PRODUCT_ROWS(products, wide_float32, float, float32, 1, 1)

INLINE vec_f64 roots_of(vec_f64 x)
{
    UNROLLED
    for (int k = 0; k < VECTOR_LANES; k++) x[k] = sqrt(x[k]);
    return x;
}

typedef struct sums_of_products {
    vec_f64 upper, lower, sizes;
} sums_of_products;
typedef struct vec_interval {
    vec_f64 low, high;
} vec_interval;

/* An interval from its ends: none where it is not sure, or where zero may be in it. */
INLINE vec_interval bounded(const gpr_interval_rule *rule, sums_of_products sums, vec_f64 start,
                            vec_f64 end, vec_i64 is_sure)
{
    const vec_f64 none = (double)NAN - (vec_f64){0}, size = sums.sizes * fabs(rule->times),
                  zero = (sums.upper + (rule->zero_has_sign ? -0.0 : 0)) * rule->times;
    const vec_i64 is_zero = (vec_i64)(sums.sizes == (rule->zero_is_zero ? 0.0 : -1.0)),
                  is_bounded = ((vec_i64)(start > 0) | (vec_i64)(end < 0)) & is_sure &
                               (vec_i64)(size >= GPR_LEAST_SUM_SIZE) &
                               (vec_i64)(size <= GPR_MOST_SUM_SIZE);

    return (vec_interval){choose_f64(is_zero, zero, choose_f64(is_bounded, start, none)),
                          choose_f64(is_zero, zero, end)};
}

/* See gpr_intervals_loop. Of a root, sqrt(u) + (u - sqrt(u)^2 + l) / (2 sqrt(u)) is that of u + l
 * but for l^2 / (8 u^(3/2)), which is less than 2^-100 of it, as l is no more than u's last bit.
 * Rounding of the ends is inside the bounds on errors, which are twice as large as they need be. */
INLINE vec_interval narrowest_intervals(int takes_root, sums_of_products sums,
                                        const gpr_interval_rule *rule)
{
    const vec_f64 times = rule->times - (vec_f64){0}, size = sums.sizes * fabs(rule->times),
                  product = sums.upper * rule->times,
                  rest = VECTOR_PRODUCT_REST(sums.upper, times, product) + sums.lower * rule->times,
                  sum = product + rest, of_rest = sum - product,
                  lost = (product - (sum - of_rest)) + (rest - of_rest), error = size * rule->share;
    vec_f64 middle = sum, left = lost, doubt = error;
    vec_i64 is_sure = ~(vec_i64){0};

    if (takes_root) {
        middle = roots_of(sum);
        left = (lost - VECTOR_PRODUCT_REST(middle, middle, sum)) / (2 * middle);
        doubt = error / middle + 0x1p-100 * middle;
        is_sure = (vec_i64)(error < sum / 2);
    }
    return bounded(rule, sums, middle + (left - doubt), middle + (left + doubt), is_sure);
}

/* The same for ends that are moved apart by more than a few roundings of doubles: the rests of
 * products are left out. A sum of at least half its size has a root whose error is at most as large
 * a share. */
INLINE vec_interval wider_intervals(int takes_root, sums_of_products sums,
                                    const gpr_interval_rule *rule)
{
    const double share = rule->share + 0x1p-50;
    const vec_f64 size = sums.sizes * fabs(rule->times),
                  sum = sums.upper * rule->times + sums.lower * rule->times;
    vec_f64 middle = sum, error = size * share;
    vec_i64 is_sure = ~(vec_i64){0};

    if (takes_root) {
        middle = roots_of(sum);
        error = middle * share;
        is_sure = (vec_i64)(size <= 2 * sum);
    }
    error += MAGNITUDES(middle) * rule->step + 0x1p-1074;
    return bounded(rule, sums, middle - error, middle + error, is_sure);
}

/* Sums of integers that a double holds are exact. */
#define MOST_EXACT_INTEGER 0x1p53

INLINE vec_interval intervals_of(int takes_root, int is_wider, sums_of_products sums,
                                 const gpr_interval_rule *rule)
{
    const vec_f64 most = MOST_EXACT_INTEGER - (vec_f64){0};

    if (rule->are_integers && !has_flag_set(~(vec_i64)(sums.sizes * fabs(rule->times) <= most))) {
        const vec_f64 sum = (sums.upper + 0.0) * rule->times,
                      number = takes_root ? (vec_f64)roots_of(sum) : sum;

        return (vec_interval){number, number};
    }
    return is_wider ? wider_intervals(takes_root, sums, rule)
                    : narrowest_intervals(takes_root, sums, rule);
}

INLINE void intervals_by(int takes_root, int is_wider, const double *upper, const double *lower,
                         const double *sizes, uint64_t count, gpr_interval_rule rule, double *low,
                         double *high)
{
    sums_of_products sums;
    vec_interval found;
    uint64_t i = 0;

    for (; i + VECTOR_LANES <= count; i += VECTOR_LANES) {
        memcpy(&sums.upper, upper + i, sizeof sums.upper);
        memcpy(&sums.lower, lower + i, sizeof sums.lower);
        memcpy(&sums.sizes, sizes + i, sizeof sums.sizes);
        found = intervals_of(takes_root, is_wider, sums, &rule);
        memcpy(low + i, &found.low, sizeof found.low);
        memcpy(high + i, &found.high, sizeof found.high);
    }
    if (i < count) {
        const size_t bytes = (count - i) * sizeof(double);

        sums = (sums_of_products){.upper = {0}};
        memcpy(&sums.upper, upper + i, bytes);
        memcpy(&sums.lower, lower + i, bytes);
        memcpy(&sums.sizes, sizes + i, bytes);
        found = intervals_of(takes_root, is_wider, sums, &rule);
        memcpy(low + i, &found.low, bytes);
        memcpy(high + i, &found.high, bytes);
    }
}

/* Divides ends, each by its own divisor or by one. Mostly two ends are one number. */
INLINE void divide_ends(const double *divisors, uint64_t step, uint64_t count, double *low,
                        double *high)
{
    uint64_t apart = 0;

    for (uint64_t i = 0; i < count; i++) apart += low[i] != high[i];
    for (uint64_t i = 0; i < count; i++) low[i] /= divisors[i * step];
    if (apart == 0) memcpy(high, low, count * sizeof *low);
    for (uint64_t i = 0; i < count && apart > 0; i++) high[i] /= divisors[i * step];
}

static void intervals(const double *upper, const double *lower, const double *sizes, uint64_t count,
                      const gpr_interval_rule *rule, double *low, double *high)
{
    if (rule->step > 0 && rule->takes_root)
        intervals_by(1, 1, upper, lower, sizes, count, *rule, low, high);
    else if (rule->step > 0)
        intervals_by(0, 1, upper, lower, sizes, count, *rule, low, high);
    else if (rule->takes_root)
        intervals_by(1, 0, upper, lower, sizes, count, *rule, low, high);
    else
        intervals_by(0, 0, upper, lower, sizes, count, *rule, low, high);
    if (rule->divisors != NULL)
        divide_ends(rule->divisors, 1, count, low, high);
    else if (rule->divisor != 1)
        divide_ends(&rule->divisor, 0, count, low, high);
}

/* Sums of products of integers. Those of a byte are added in 32 bits, as many as these hold, others
 * in 64 bits, of which wide ones keep the lower ones. */
enum { BYTE_PRODUCTS = 1 << 15 };

static uint64_t any_bits(const uint64_t *numbers, uint64_t count, uint64_t added)
{
    uint64_t any = 0;

    for (uint64_t i = 0; i < count; i++) any |= numbers[i] + added;
    return any;
}

#define DEFINE_BYTE_PRODUCTS(name, T, sum_type)                                       \
    static uint64_t wrapped_products_##name(const void *a, const void *b, uint64_t n) \
    {                                                                                 \
        const T *p = a, *q = b;                                                       \
        uint64_t sum = 0;                                                             \
                                                                                      \
        for (uint64_t i = 0; i < n; i += BYTE_PRODUCTS) {                             \
            const uint64_t end = n - i < BYTE_PRODUCTS ? n : i + BYTE_PRODUCTS;       \
            sum_type part = 0;                                                        \
                                                                                      \
            for (uint64_t k = i; k < end; k++)                                        \
                part += (sum_type)((sum_type)p[k] * (sum_type)q[k]);                  \
            sum += (uint64_t)part;                                                    \
        }                                                                             \
        return sum;                                                                   \
    }
DEFINE_BYTE_PRODUCTS(int8, int8_t, int32_t)
DEFINE_BYTE_PRODUCTS(uint8, uint8_t, uint32_t)

/* `wide` holds a product, or is as wide as the sum. */
#define DEFINE_WRAPPED_PRODUCTS(name, T, wide)                                        \
    static uint64_t wrapped_products_##name(const void *a, const void *b, uint64_t n) \
    {                                                                                 \
        const T *p = a, *q = b;                                                       \
        uint64_t sum = 0;                                                             \
                                                                                      \
        for (uint64_t i = 0; i < n; i++) sum += (uint64_t)((wide)p[i] * (wide)q[i]);  \
        return sum;                                                                   \
    }
DEFINE_WRAPPED_PRODUCTS(int16, int16_t, int32_t)
DEFINE_WRAPPED_PRODUCTS(int32, int32_t, int64_t)
DEFINE_WRAPPED_PRODUCTS(uint16, uint16_t, uint32_t)
DEFINE_WRAPPED_PRODUCTS(uint32, uint32_t, uint64_t)
DEFINE_WRAPPED_PRODUCTS(uint64, uint64_t, uint64_t)
