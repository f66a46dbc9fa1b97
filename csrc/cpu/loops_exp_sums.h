/* Part of loops_template.h: sums of exponentials.
 *
 * exp(x) is 2^k * exp(r) with k the integer nearest to x / log(2), so that |r| <= log(2) / 2. The
 * first factor is the exponent of a double, relative to a unit 2^unit that the whole block has. The
 * second is a polynomial (shared/exp_states.h).
 *
 * log(2) is the sum of a number of 32 bits, whose product with |k| < 2^21 is exact, and of one of
 * 53: r has the accuracy of a double for |x| < 2^20 * 1.38, with a fused product or without. */

#ifdef LESS_PRODUCT
#define EXP_LESS_PRODUCT(number, x, y) (vec_f64) LESS_PRODUCT(number, x, y)
#else
#define EXP_LESS_PRODUCT(number, x, y) ((number) - (x) * (y))
#endif

static const double exp_quotients_9[] = {GPR_EXP_QUOTIENTS_9};
static const double exp_quotients_6[] = {GPR_EXP_QUOTIENTS_6};
static const double exp_rounder = GPR_EXP_ROUNDER;
enum { EXP_EXPONENT_BIAS = 1023, EXP_FRACTION_BITS = 52, EXP_VECTORS = 2 };

/* The integer nearest to t / log(2). */
INLINE vec_f64 exp_nearest(vec_f64 t)
{
    return EXP_LESS_PRODUCT((vec_f64){0} + exp_rounder, -t, (vec_f64){0} + GPR_LOG2_E) -
           exp_rounder;
}

/* exp(t) / 2^unit for t <= (unit + 1/2) log(2); 0 where that is below the normal numbers. */
INLINE vec_f64 exp_in_units(vec_f64 t, vec_f64 unit, const double *quotients, int degree)
{
    const vec_f64 k = exp_nearest(t);
    const vec_f64 r = EXP_LESS_PRODUCT(EXP_LESS_PRODUCT(t, k, (vec_f64){0} + GPR_LOG2_HIGH), k,
                                       (vec_f64){0} + GPR_LOG2_LOW);
    const vec_f64 minus = -r, minus_square = -(r * r);
    /* q of even and of odd powers side by side, so that no product waits for all before it. */
    vec_f64 even = (vec_f64){0} + quotients[degree - degree % 2];
    vec_f64 odd = (vec_f64){0} + quotients[degree - 1 + degree % 2];
    UNROLLED
    for (int i = degree - 2 - degree % 2; i >= 0; i -= 2)
        even = EXP_LESS_PRODUCT((vec_f64){0} + quotients[i], minus_square, even);
    UNROLLED
    for (int i = degree - 3 + degree % 2; i >= 1; i -= 2)
        odd = EXP_LESS_PRODUCT((vec_f64){0} + quotients[i], minus_square, odd);
    const vec_f64 q = EXP_LESS_PRODUCT(even, minus, odd);
    const vec_f64 power = 1.0 + EXP_LESS_PRODUCT(r, minus_square, q);
    const vec_f64 least = (vec_f64){0} - EXP_EXPONENT_BIAS, exponent = k - unit;
    const vec_f64 biased = EXTREME_max_f64(exponent, least) + (exp_rounder + EXP_EXPONENT_BIAS);
    return power * (vec_f64)((vec_u64)biased << EXP_FRACTION_BITS);
}

static const double exp_splitter = GPR_EXP_SPLITTER;
_Static_assert(GPR_EXP_BLOCK * 2 <= 1 << 10, "the last place of the splitter is 2^-42");

#define DEFINE_EXP_SUMS(name, T, LOAD, DEGREE)                                                    \
    static void exp_sums_##name(const void *data, uint64_t n, double largest, double shift,       \
                                double unit, gpr_exp_sum *sum)                                    \
    {                                                                                             \
        const T *p = data;                                                                        \
        const double least = (largest - shift) - GPR_EXP_REACH;                                   \
        const vec_f64 floor = (vec_f64){0} + least;                                               \
        const vec_f64 units = (vec_f64){0} + unit;                                                \
        vec_f64 high[EXP_VECTORS] = {{0}}, low[EXP_VECTORS] = {{0}};                              \
        vec_i64 count = {0};                                                                      \
        T rest[EXP_VECTORS * VECTOR_LANES];                                                       \
        uint64_t i = 0;                                                                           \
        while (i < n) {                                                                           \
            const T *from = p + i;                                                                \
            if (n - i < EXP_VECTORS * VECTOR_LANES) {                                             \
                for (uint64_t j = 0; j < EXP_VECTORS * VECTOR_LANES; j++)                         \
                    rest[j] = i + j < n ? p[i + j] : (T) - INFINITY;                              \
                from = rest;                                                                      \
            }                                                                                     \
            UNROLLED                                                                              \
            for (int v = 0; v < EXP_VECTORS; v++) {                                               \
                const vec_f64 x = (vec_f64)LOAD(from + v * VECTOR_LANES), t = x - shift;          \
                const vec_f64 bounded = EXTREME_max_f64(t, floor);                                \
                const vec_i64 is_largest = (vec_i64)(x == largest);                               \
                const vec_f64 all = exp_in_units(bounded, units, exp_quotients_##DEGREE, DEGREE); \
                const vec_f64 term = (vec_f64)((vec_i64)all & ~is_largest);                       \
                const vec_f64 head = (term + exp_splitter) - exp_splitter;                        \
                high[v] += head;                                                                  \
                low[v] += term - head;                                                            \
                count -= is_largest;                                                              \
            }                                                                                     \
            i += EXP_VECTORS * VECTOR_LANES;                                                      \
        }                                                                                         \
        *sum = (gpr_exp_sum){0};                                                                  \
        for (int v = 1; v < EXP_VECTORS; v++) {                                                   \
            high[0] += high[v];                                                                   \
            low[0] += low[v];                                                                     \
        }                                                                                         \
        for (int k = 0; k < VECTOR_LANES; k++) {                                                  \
            sum->high += high[0][k];                                                              \
            sum->low += low[0][k];                                                                \
            sum->largest += (uint64_t)count[k];                                                   \
        }                                                                                         \
    }

DEFINE_EXP_SUMS(float32, float, WIDEN_F32, 6)
DEFINE_EXP_SUMS(float64, double, load_f64, 9)

/* Some of a row's numbers, from `columns` of them on; those behind the last one are 0. */
#define DEFINE_LOAD_COLUMNS(name, T, LOAD)                                                \
    INLINE vec_f64 load_columns_##name(const char *data, uint64_t columns)                \
    {                                                                                     \
        T some[VECTOR_LANES] = {0};                                                       \
        if (columns >= VECTOR_LANES) return (vec_f64)LOAD((const T *)(const void *)data); \
        memcpy(some, data, columns * sizeof(T));                                          \
        return (vec_f64)LOAD(some);                                                       \
    }

#define DEFINE_EXP_COLUMNS(name, T, LOAD, DEGREE)                                                 \
    DEFINE_LOAD_COLUMNS(name, T, LOAD)                                                            \
    static void exp_columns_##name(const char *data, int64_t stride, uint64_t n, uint64_t width,  \
                                   double *largest, double *others)                               \
    {                                                                                             \
        for (uint64_t c = 0; c < width; c += VECTOR_LANES) {                                      \
            const uint64_t columns = width - c;                                                   \
            const char *first = data + c * sizeof(T);                                             \
            vec_f64 most = (vec_f64){0} - INFINITY, high = {0}, low = {0};                        \
            vec_i64 is_nan = {0}, is_met = {0};                                                   \
            for (uint64_t i = 0; i < n; i++) {                                                    \
                const vec_f64 x = load_columns_##name(first + (int64_t)i * stride, columns);      \
                is_nan |= (vec_i64)(x != x);                                                      \
                most = EXTREME_max_f64(x, most);                                                  \
            }                                                                                     \
            const vec_i64 is_far =                                                                \
                (vec_i64)(most > (double)GPR_EXP_MOST) | (vec_i64)(most < -(double)GPR_EXP_MOST); \
            const vec_f64 shift = (vec_f64)((vec_i64)most & is_far), top = most - shift;          \
            const vec_f64 unit = exp_nearest(top), floor = top - (double)GPR_EXP_REACH;           \
            for (uint64_t i = 0; i < n; i++) {                                                    \
                const vec_f64 x = load_columns_##name(first + (int64_t)i * stride, columns),      \
                              t = x - shift;                                                      \
                const vec_f64 bounded = EXTREME_max_f64(t, floor);                                \
                const vec_i64 is_largest = (vec_i64)(x == most);                                  \
                const vec_f64 all = exp_in_units(bounded, unit, exp_quotients_##DEGREE, DEGREE);  \
                const vec_f64 term = (vec_f64)((vec_i64)all & ~(is_largest & ~is_met));           \
                const vec_f64 head = (term + exp_splitter) - exp_splitter;                        \
                high += head;                                                                     \
                low += term - head;                                                               \
                is_met |= is_largest;                                                             \
            }                                                                                     \
            const vec_f64 ratio =                                                                 \
                (high + low) / exp_in_units(top, unit, exp_quotients_##DEGREE, DEGREE);           \
            const vec_f64 finite = (vec_f64)((vec_i64)ratio & (vec_i64)(most - most == 0));       \
            const vec_f64 found = (vec_f64)((vec_i64)most | is_nan); /* all ones are a NaN */     \
            const uint64_t stored = columns < VECTOR_LANES ? columns : VECTOR_LANES;              \
            memcpy(largest + c, &found, stored * sizeof(double));                                 \
            memcpy(others + c, &finite, stored * sizeof(double));                                 \
        }                                                                                         \
    }

DEFINE_EXP_COLUMNS(float32, float, WIDEN_F32, 6)
DEFINE_EXP_COLUMNS(float64, double, load_f64, 9)
