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

/* Adds a vector of terms, of which REST is what rounding took. */
#define ADD_TERMS(sum, rest, size, term, REST, SIGNED, TWICE) \
    do {                                                      \
        if (TWICE) {                                          \
            vec_f64 lost;                                     \
            ADD_WITH_REST(vec_f64, sum, term, lost);          \
            rest += lost + (REST);                            \
        } else {                                              \
            sum += term;                                      \
        }                                                     \
        if (SIGNED) size += MAGNITUDES(term);                 \
    } while (0)

/* The general way. SIGNED: terms may be negative. TWICE: terms and sums are two doubles each. */
#define DEFINE_PRODUCT_SUM(kind, name, T, LOAD, SIGNED, TWICE)                                     \
    static gpr_product_sum plain_##kind##_##name(const T *p, const T *q, uint64_t n)               \
    {                                                                                              \
        vec_f64 sums[SUM_VECTORS] = {{0}}, rests[SUM_VECTORS] = {{0}}, sizes[SUM_VECTORS] = {{0}}; \
        gpr_product_sum found = {0, 0, 0};                                                         \
        uint64_t i = 0;                                                                            \
        (void)q;                                                                                   \
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
                          TWICE);                                                                  \
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
                              VECTOR_PRODUCT_REST(x, factor, term), 1, TWICE);             \
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
DEFINE_PRODUCT_SUM(magnitudes, float32, float, WIDEN_F32, 0, 0)
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
DEFINE_SUM_LOOP(magnitudes, float32, float, 0)
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

/* Columns: a lane has one, and adds its products one after the other in the general way. */
enum { PRODUCT_COLUMN_VECTORS = 2 }; /* side by side: additions of one wait less for each other */

#define STORE_VECTORS(to, from, vectors) \
    for (int k = 0; k < (vectors); k++) memcpy((to) + k * VECTOR_LANES, &(from)[k], sizeof(vec_f64))

#define DEFINE_PRODUCT_COLUMNS(kind, name, T, LOAD, SIGNED, TWICE)                                 \
    INLINE void some_columns_of_##kind##_##name(const gpr_product_columns *columns, uint64_t j,    \
                                                int vectors, double *upper, double *lower,         \
                                                double *sizes)                                     \
    {                                                                                              \
        vec_f64 sums[PRODUCT_COLUMN_VECTORS] = {{0}}, rests[PRODUCT_COLUMN_VECTORS] = {{0}},       \
                magnitudes[PRODUCT_COLUMN_VECTORS] = {{0}};                                        \
                                                                                                   \
        for (uint64_t i = 0; i < columns->n; i++) {                                                \
            const T *p = (const T *)(const void *)(columns->p + (int64_t)i * columns->p_stride),   \
                    *q = SIGNED ? (const T *)(const void *)(columns->q +                           \
                                                            (int64_t)i * columns->q_stride)        \
                                : p;                                                               \
            UNROLLED                                                                               \
            for (int k = 0; k < vectors; k++) {                                                    \
                const uint64_t at = j + (uint64_t)k * VECTOR_LANES;                                \
                const vec_f64 x = (vec_f64)LOAD(p + at),                                           \
                              y = !SIGNED             ? x                                          \
                                  : columns->q_is_one ? (vec_f64){0} + (double)*q                  \
                                                      : (vec_f64)LOAD(q + at),                     \
                              term = TERM_##kind(x, y);                                            \
                (void)y;                                                                           \
                ADD_TERMS(sums[k], rests[k], magnitudes[k], term, REST_##kind(x, y, term), SIGNED, \
                          TWICE);                                                                  \
            }                                                                                      \
        }                                                                                          \
        STORE_VECTORS(upper + j, sums, vectors);                                                   \
        STORE_VECTORS(lower + j, rests, vectors);                                                  \
        if (SIGNED)                                                                                \
            STORE_VECTORS(sizes + j, magnitudes, vectors);                                         \
        else                                                                                       \
            STORE_VECTORS(sizes + j, sums, vectors);                                               \
    }                                                                                              \
                                                                                                   \
    static void columns_of_##kind##_##name(const gpr_product_columns *columns, double *upper,      \
                                           double *lower, double *sizes)                           \
    {                                                                                              \
        const uint64_t width = columns->width;                                                     \
        uint64_t j = 0;                                                                            \
                                                                                                   \
        for (; j + PRODUCT_COLUMN_VECTORS * VECTOR_LANES <= width;                                 \
             j += PRODUCT_COLUMN_VECTORS * VECTOR_LANES)                                           \
            some_columns_of_##kind##_##name(columns, j, PRODUCT_COLUMN_VECTORS, upper, lower,      \
                                            sizes);                                                \
        for (; j + VECTOR_LANES <= width; j += VECTOR_LANES)                                       \
            some_columns_of_##kind##_##name(columns, j, 1, upper, lower, sizes);                   \
        for (; j < width; j++) {                                                                   \
            gpr_product_sum sum = {0, 0, 0};                                                       \
            const char *p = columns->p + j * sizeof(T), *q = columns->q_is_one || !SIGNED          \
                                                                 ? columns->q                      \
                                                                 : columns->q + j * sizeof(T);     \
                                                                                                   \
            for (uint64_t i = 0; i < columns->n; i++) {                                            \
                T given, second;                                                                   \
                memcpy(&given, p + (int64_t)i * columns->p_stride, sizeof given);                  \
                second = given;                                                                    \
                if (SIGNED) memcpy(&second, q + (int64_t)i * columns->q_stride, sizeof second);    \
                const double x = given, y = second, term = TERM_OF_ONE_##kind(x, y);               \
                (void)y;                                                                           \
                add_term(&sum, term, (TWICE) ? REST_OF_ONE_##kind(x, y, term) : 0, fabs(term));    \
            }                                                                                      \
            upper[j] = sum.upper;                                                                  \
            lower[j] = sum.lower;                                                                  \
            sizes[j] = sum.size;                                                                   \
        }                                                                                          \
    }
DEFINE_PRODUCT_COLUMNS(products, float32, float, WIDEN_F32, 1, 0)
DEFINE_PRODUCT_COLUMNS(squares, float32, float, WIDEN_F32, 0, 0)
DEFINE_PRODUCT_COLUMNS(magnitudes, float32, float, WIDEN_F32, 0, 0)
DEFINE_PRODUCT_COLUMNS(products, float64, double, load_f64, 1, 1)
DEFINE_PRODUCT_COLUMNS(squares, float64, double, load_f64, 0, 1)
DEFINE_PRODUCT_COLUMNS(magnitudes, float64, double, load_f64, 0, 1)

DEFINE_PRODUCT_COLUMNS(products, wide_float32, float, WIDEN_F32, 1, 1)

/* Sums of products of integers. Those of a byte are added in 32 bits, as many as these hold, others
 * in 64 bits, of which wide ones keep the lower ones. */
enum { BYTE_PRODUCTS = 1 << 15 };

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
