/* Part of loops_template.h: exact sums of float64 by halves, and the rounding of exact sums.
 *
 * The upper half of a number is the number without its last 27 bits. The lower half is the rest,
 * which is exact and has 27 bits at most; of infinities and NaN it is NaN. A double holds sums of
 * as many halves as of float32. Both halves are added in one pass, in the fastest order: callers
 * take the sums only where no addition was rounded. */

#define UPPER_BITS UINT64_C(0xfffffffff8000000)

INLINE vec_f64 upper_of(vec_f64 x)
{
    return (vec_f64)((vec_u64)x & UPPER_BITS);
}

INLINE double upper_part(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits &= UPPER_BITS;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE double sum_of_lanes(vec_f64 x)
{
    double lanes[VECTOR_LANES];

    memcpy(lanes, &x, sizeof lanes);
    UNROLLED
    for (int half = VECTOR_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
    return lanes[0];
}

/* Vectors of a row's or of columns' halves, added side by side; rows of a column in one step. */
enum { HALVES_VECTORS = 4 };

#define ALL_NUMBERS(x) (x)
#define NUMBERS_ALONE(x) (vec_f64)((vec_i64)(x) & ((x) == (x)))

#define ADD_HALVES(x, upper, lower)       \
    do {                                  \
        const vec_f64 most = upper_of(x); \
        upper += most;                    \
        lower += (x) - most;              \
    } while (0)
#define ADD_HALVES_OF_ONE(x, upper, lower) \
    do {                                   \
        const double most = upper_part(x); \
        upper += most;                     \
        lower += (x) - most;               \
    } while (0)

/* VECTOR and LIFT make numbers of elements. */
#define DEFINE_HALVES_ROW(run, name, T, LOAD, VECTOR, LIFT)                                  \
    INLINE void row_##run##_##name(const T *p, uint64_t n, double *upper, double *lower)     \
    {                                                                                        \
        vec_f64 uppers[HALVES_VECTORS], lowers[HALVES_VECTORS];                              \
        double first = 0, second = 0;                                                        \
        const uint64_t last = n - BEHIND_##name;                                             \
        uint64_t i = 0;                                                                      \
        if (n >= VECTOR_LANES + BEHIND_##name) {                                             \
            UNROLLED /* an initializer would be a block copy */                              \
            for (int k = 0; k < HALVES_VECTORS; k++) uppers[k] = lowers[k] = (vec_f64){0};   \
            for (; i + HALVES_VECTORS * VECTOR_LANES <= last;                                \
                 i += HALVES_VECTORS * VECTOR_LANES) {                                       \
                PREFETCH(p + i, HALVES_VECTORS * VECTOR_LANES * sizeof(T));                  \
                UNROLLED                                                                     \
                for (int k = 0; k < HALVES_VECTORS; k++) {                                   \
                    const vec_f64 given = LOAD(p + i + k * VECTOR_LANES), x = VECTOR(given); \
                    ADD_HALVES(x, uppers[k], lowers[k]);                                     \
                }                                                                            \
            }                                                                                \
            for (; i + VECTOR_LANES <= last; i += VECTOR_LANES) {                            \
                const vec_f64 given = LOAD(p + i), x = VECTOR(given);                        \
                ADD_HALVES(x, uppers[0], lowers[0]);                                         \
            }                                                                                \
            UNROLLED                                                                         \
            for (int half = HALVES_VECTORS / 2; half > 0; half /= 2) {                       \
                UNROLLED                                                                     \
                for (int k = 0; k < half; k++) {                                             \
                    uppers[k] += uppers[k + half];                                           \
                    lowers[k] += lowers[k + half];                                           \
                }                                                                            \
            }                                                                                \
            first = sum_of_lanes(uppers[0]);                                                 \
            second = sum_of_lanes(lowers[0]);                                                \
        }                                                                                    \
        SCALAR_LOOP                                                                          \
        for (; i < n; i++) {                                                                 \
            const double x = LIFT(TAIL_##name(p, i));                                        \
            ADD_HALVES_OF_ONE(x, first, second);                                             \
        }                                                                                    \
        *upper = first;                                                                      \
        *lower = second;                                                                     \
    }

/* Of numbers, and of every second one: see gpr_gapped_loop. */
#define DEFINE_HALVES_ROWS(run, VECTOR, LIFT)                                                      \
    DEFINE_HALVES_ROW(run, float64, double, load_f64, VECTOR, LIFT)                                \
    DEFINE_HALVES_ROW(run, gapped_float64, gapped_float64, LOAD_GAPPED_UNORDERED, VECTOR, LIFT)    \
    static void rows_##run(const char *data, int64_t stride, uint64_t rows, uint64_t n, void *out) \
    {                                                                                              \
        double *upper = out;                                                                       \
        for (uint64_t r = 0; r < rows; r++, data += stride)                                        \
            row_##run##_float64((const double *)(const void *)data, n, upper + r,                  \
                                upper + GPR_COLUMN_BLOCK + r);                                     \
    }                                                                                              \
    static void run##_gapped(const void *data, uint64_t n, void *out)                              \
    {                                                                                              \
        double *upper = out;                                                                       \
        row_##run##_gapped_float64(data, n, upper, upper + GPR_COLUMN_BLOCK);                      \
    }

/* The sums of VECTORS vectors of columns, added to those in `out` unless they are `fresh`. */
#define DEFINE_HALVES_TILES(tiles, run, VECTOR, VECTORS)                                           \
    INLINE uint64_t tiles##_##run(const char *data, int64_t stride, uint64_t rows, uint64_t j,     \
                                  uint64_t width, int fresh, int64_t ahead, double *out)           \
    {                                                                                              \
        for (; j + (VECTORS) * VECTOR_LANES <= width; j += (VECTORS) * VECTOR_LANES) {             \
            const char *at = data + j * sizeof(double);                                            \
            const size_t bytes = (VECTORS) * VECTOR_BYTES;                                         \
            vec_f64 upper[VECTORS], lower[VECTORS];                                                \
            uint64_t r = 0;                                                                        \
            UNROLLED                                                                               \
            for (int k = 0; k < (VECTORS); k++) {                                                  \
                const vec_f64 given =                                                              \
                                  load_f64((const double *)(const void *)at + k * VECTOR_LANES),   \
                              x = VECTOR(given), most = upper_of(x);                               \
                upper[k] = fresh ? most : load_f64(out + j + k * VECTOR_LANES);                    \
                lower[k] =                                                                         \
                    fresh ? x - most : load_f64(out + GPR_COLUMN_BLOCK + j + k * VECTOR_LANES);    \
            }                                                                                      \
            if (fresh) r++, at += stride;                                                          \
            for (; r < rows; r++, at += stride) {                                                  \
                if (ahead != 0) PREFETCH_AT(at, bytes, ahead, 2);                                  \
                UNROLLED                                                                           \
                for (int k = 0; k < (VECTORS); k++) {                                              \
                    const vec_f64 given = load_f64((const double *)(const void *)at +              \
                                                   k * VECTOR_LANES),                              \
                                  x = VECTOR(given);                                               \
                    ADD_HALVES(x, upper[k], lower[k]);                                             \
                }                                                                                  \
            }                                                                                      \
            UNROLLED                                                                               \
            for (int k = 0; k < (VECTORS); k++) {                                                  \
                memcpy(out + j + k * VECTOR_LANES, &upper[k], sizeof upper[k]);                    \
                memcpy(out + GPR_COLUMN_BLOCK + j + k * VECTOR_LANES, &lower[k], sizeof lower[k]); \
            }                                                                                      \
        }                                                                                          \
        return j;                                                                                  \
    }

#define DEFINE_HALVES(run, VECTOR, LIFT)                                                       \
    DEFINE_HALVES_ROWS(run, VECTOR, LIFT)                                                      \
    DEFINE_HALVES_TILES(tiles, run, VECTOR, HALVES_VECTORS)                                    \
    DEFINE_HALVES_TILES(vectors, run, VECTOR, 1)                                               \
    static void columns_##run(const char *data, int64_t stride, uint64_t rows, uint64_t width, \
                              int how, void *out)                                              \
    {                                                                                          \
        double *upper = out, *lower = upper + GPR_COLUMN_BLOCK;                                \
        int fresh = how & GPR_FRESH;                                                           \
        for (uint64_t row = 0; row < rows; row += STEP_ROWS) {                                 \
            const uint64_t some = rows - row < STEP_ROWS ? rows - row : STEP_ROWS;             \
            const int64_t ahead = bytes_ahead(row, rows, stride, width, sizeof(double), how);  \
            uint64_t j = tiles_##run(data, stride, some, 0, width, fresh, ahead, out);         \
            j = vectors_##run(data, stride, some, j, width, fresh, ahead, out);                \
            for (; j < width; j++) {                                                           \
                const char *at = data + j * sizeof(double);                                    \
                double first = fresh ? 0 : upper[j], second = fresh ? 0 : lower[j];            \
                for (uint64_t r = 0; r < some; r++, at += stride) {                            \
                    const double x = LIFT(*(const double *)(const void *)at);                  \
                    ADD_HALVES_OF_ONE(x, first, second);                                       \
                }                                                                              \
                upper[j] = first;                                                              \
                lower[j] = second;                                                             \
            }                                                                                  \
            fresh = 0;                                                                         \
            data += (int64_t)some * stride;                                                    \
        }                                                                                      \
    }

DEFINE_HALVES(halves, ALL_NUMBERS, LIFT_DOUBLE)
DEFINE_HALVES(skipping_halves, NUMBERS_ALONE, LIFT_SUMMED)

/* Elements without their signs. */
#define LIFT_MAGNITUDE(x) fabs((double)(x))
#define WIDEN_MAGNITUDES(p) MAGNITUDES(WIDEN_F32(p))
#define TAIL_magnitudes(p, i) fabs((double)(p)[i])
#define BEHIND_magnitudes 0
DEFINE_DOUBLE_SUM(sum, magnitudes, float, WIDEN_MAGNITUDES)
DEFINE_SHORT_SUM(sum, magnitudes, float, LIFT_MAGNITUDE)
DEFINE_DOUBLE_LOOP(sum, magnitudes, float, WIDEN_MAGNITUDES, LIFT_MAGNITUDE, 0.0)
DEFINE_HALVES(magnitude_halves, MAGNITUDES, LIFT_MAGNITUDE)

/* Rows of sums of halves, added to one. */
static void columns_of_halves(const char *data, int64_t stride, uint64_t rows, uint64_t width,
                              int how, void *out)
{
    const uint64_t plane = GPR_COLUMN_BLOCK * sizeof(double);

    columns_sum_float64(data, stride, rows, width, how, out);
    columns_sum_float64(data + plane, stride, rows, width, how, (char *)out + plane);
}

/* ---- what sums come to ---- */

#define EVERY(x) ((vec_f64){0} + (x))

/* What vectors of sums are rounded by, and what was found. */
typedef struct rounding {
    vec_f64 divisor, inverse;
    const gpr_narrow_format *format;
    vec_i64 doubtful, nan;
} rounding;

/* Of lanes of nothing but zeros or ones. */
INLINE int has_flag_set(vec_i64 flags)
{
#ifdef IS_ANY_LANE
    return IS_ANY_LANE(flags);
#else
    int64_t any = 0;

    UNROLLED
    for (int k = 0; k < VECTOR_LANES; k++) any |= flags[k];
    return any != 0;
#endif
}

/* How sums are divided: by a power of two, by one number, or by a number each. */
typedef enum division { BY_POWER, BY_ONE, BY_EACH } division;

INLINE division division_of(const double *divisors, double divisor)
{
    uint64_t bits;

    if (divisors != NULL) return BY_EACH;
    memcpy(&bits, &divisor, sizeof bits);
    return bits << 12 == 0 ? BY_POWER : BY_ONE;
}

/* Replaces each NaN by the same NaN: other sums that are NaN, and those of infinities, have bits
 * that depend on their elements. */
static void unify_nan(uint64_t count, int is_single, char *results)
{
    float *singles = (float *)(void *)results;
    double *doubles = (double *)(void *)results;

    for (uint64_t i = 0; is_single && i < count; i++)
        singles[i] = isnan(singles[i]) ? NAN : singles[i];
    for (uint64_t i = 0; !is_single && i < count; i++)
        doubles[i] = isnan(doubles[i]) ? (double)NAN : doubles[i];
}

INLINE void store_vector(vec_f64 x, int is_single, char *to)
{
    typedef float half_vector __attribute__((vector_size(VECTOR_BYTES / 2)));

    if (is_single) {
        const half_vector narrow = __builtin_convertvector(x, half_vector);
        memcpy(to, &narrow, sizeof narrow);
    } else {
        memcpy(to, &x, sizeof x);
    }
}

/* Numbers behind `count` of them, in place of which there are others. */
INLINE vec_f64 load_last(const double *p, uint64_t count, double other)
{
    double lanes[VECTOR_LANES];

    for (uint64_t k = 0; k < VECTOR_LANES; k++) lanes[k] = k < count ? p[k] : other;
    return load_f64(lanes);
}

enum { NEAR = 4 }; /* last bits of a double: more than what a quotient of a rounded sum is wrong */
#define LEAST_SINGLE 0x1p-125 /* from here on midpoints of float32 have the same bits */

/* Where a double is so near to halfway between two float32, or so small, that an error of a few
 * last bits may change what it is rounded to. */
INLINE vec_i64 is_near_midpoint(vec_f64 x, int64_t near)
{
    const int64_t below = (INT64_C(1) << 29) - 1, midpoint = INT64_C(1) << 28;
    const vec_i64 apart = ((vec_i64)x & below) - midpoint;

    return (vec_i64)((apart >= -near) & (apart <= near)) |
           (vec_i64)(MAGNITUDES(x) < EVERY(LEAST_SINGLE));
}

/* See gpr_round_sums_loop. A quotient is rounded to double and then to the narrower type, which may
 * differ from rounding it once if the rounded quotient is a midpoint of two numbers of the type
 * and was rounded: every midpoint is a double and no rounding crosses a double. A midpoint has 25
 * bits at most, so that its product with a divisor below 2^28, which shows whether it was rounded,
 * is exact. Subnormal numbers, whose midpoints are elsewhere, are as doubtful. Divided by a power
 * of two, sums are exact still: they are far from a double's smallest numbers. */
#define MOST_MIDPOINT_FACTOR 0x1p28

INLINE vec_f64 round_sum(division how, vec_f64 sum, rounding *r)
{
    sum += 0.0; /* where a sum starts: none is -0 */
    vec_f64 value = sum * r->inverse;

    if (how != BY_POWER) {
        value = sum / r->divisor;
        const vec_u64 bits = (vec_u64)value, magnitude = bits & (uint64_t)INT64_MAX;
        r->doubtful |= (vec_i64)((bits & r->format->below) == r->format->midpoint) &
                       ((value * r->divisor != sum) | (r->divisor >= MOST_MIDPOINT_FACTOR));
        r->doubtful |=
            (vec_i64)(magnitude < r->format->least_field << 52) & (vec_i64)(magnitude != 0);
    }
    r->nan |= value != value;
    return value;
}

INLINE int round_sums_by(division how, const double *sums, const double *divisors, double divisor,
                         uint64_t count, const gpr_narrow_format *format, int is_single,
                         char *results)
{
    const size_t bytes = is_single ? sizeof(float) : sizeof(double);
    rounding r = {.divisor = EVERY(divisor), .inverse = EVERY(1 / divisor), .format = format};
    char last[sizeof(vec_f64)];
    uint64_t i = 0;

    for (; i + VECTOR_LANES <= count; i += VECTOR_LANES) {
        if (how == BY_EACH) r.divisor = load_f64(divisors + i);
        store_vector(round_sum(how, load_f64(sums + i), &r), is_single, results + i * bytes);
    }
    if (i < count) {
        if (how == BY_EACH) r.divisor = load_last(divisors + i, count - i, 1);
        store_vector(round_sum(how, load_last(sums + i, count - i, 0), &r), is_single, last);
        memcpy(results + i * bytes, last, (count - i) * bytes);
    }
    if (has_flag_set(r.nan)) unify_nan(count, is_single, results);
    return !has_flag_set(r.doubtful);
}

#define ROUND_SUMS_BY(how, is_single) \
    round_sums_by(how, sums, divisors, divisor, count, format, is_single, results)

static int round_sums(const double *sums, const double *divisors, double divisor, uint64_t count,
                      const gpr_narrow_format *format, int is_single, void *results)
{
    switch (division_of(divisors, divisor)) {
    case BY_POWER: return is_single ? ROUND_SUMS_BY(BY_POWER, 1) : ROUND_SUMS_BY(BY_POWER, 0);
    case BY_ONE: return is_single ? ROUND_SUMS_BY(BY_ONE, 1) : ROUND_SUMS_BY(BY_ONE, 0);
    default: return is_single ? ROUND_SUMS_BY(BY_EACH, 1) : ROUND_SUMS_BY(BY_EACH, 0);
    }
}

/* What `number` leaves after q times the divisor, which is below MOST_PAIR_DIVISOR. Not rounded if
 * it is a double, as it is where q is the quotient but for its last bits. */
INLINE vec_f64 remainder_of(vec_f64 number, vec_f64 q, vec_f64 divisor)
{
#ifdef LESS_PRODUCT
    return LESS_PRODUCT(number, q, divisor);
#else
    const vec_f64 upper = upper_of(q);

    return (number - upper * divisor) - (q - upper) * divisor;
#endif
}

/* See gpr_round_pairs_loop. The quotient q of the sum alone is right but for its last bits, so that
 * its remainder is a double. The remainder and the rest together have the quotient e, right to a
 * few roundings. If q + e rounds to the same double with e a little smaller and a little larger,
 * that is the result. */
#define QUOTIENT_DOUBT 0x1p-48
#define MOST_PAIR_DIVISOR 0x1p24
#define LEAST_QUOTIENT 0x1p-900
#define SIGN_BIT INT64_MIN
#define EXPONENT_BITS INT64_C(0x7ff0000000000000)

INLINE vec_f64 quotient_of(vec_f64 a, vec_f64 b, const rounding *r, vec_f64 *q)
{
    *q = a * r->inverse;
    return (remainder_of(a, *q, r->divisor) + b) * r->inverse;
}

/* Returns where quotients of the sums a + b are certain to be the nearest doubles, by what they
 * leave. That is less than `most`, half of the quotient's last bit times the divisor; or it is as
 * much, and the quotient becomes the even one of the two: ties are frequent with divisors like 3. A
 * power of two counts as the number below, whose bits are half as large. Where |b| is a fourth of
 * the quotient at most, all but `left` is exact: multiples of half of the quotient's last bit, and
 * no more than 2^53 of them. And no rounding crosses `most`, which is a double. */
INLINE vec_i64 settle(vec_f64 *quotient, vec_f64 a, vec_f64 b, const rounding *r)
{
    const vec_i64 bits = (vec_i64)*quotient;
    const vec_f64 of_a = remainder_of(a, *quotient, r->divisor), left = of_a + b,
                  size = MAGNITUDES(*quotient),
                  most = (vec_f64)(((vec_i64)size - 1) & EXPONENT_BITS) * (r->divisor * 0x1p-53),
                  half = (vec_f64)(((vec_i64)left & SIGN_BIT) | (vec_i64)most);
    const vec_i64 is_tie = b == half - of_a, is_too_far = (bits ^ (vec_i64)left) < 0;

    /* an odd quotient goes to the other one: away from zero, or back where it is too far */
    *quotient = (vec_f64)(bits + (is_tie & -(bits & 1) & (1 | is_too_far)));
    return ((MAGNITUDES(left) < most) | is_tie) & (size >= EVERY(LEAST_QUOTIENT)) &
           (size >= MAGNITUDES(b) * 4);
}

/* Rounds the sums of a and b. Where `is_quotient` they are divided; a quotient may be subnormal,
 * which rounds it again, and a sum infinite that is not. */
INLINE vec_f64 round_pair(division how, int is_quotient, vec_f64 a, vec_f64 b, vec_i64 is_lost,
                          int may_be_lost, rounding *r)
{
    const vec_f64 zero = {0}, u = a + b, size = MAGNITUDES(u);
    vec_i64 is_certain = size <= EVERY(is_quotient ? 0x1p900 : DBL_MAX);
    vec_f64 value = u * r->inverse;

    if (how != BY_POWER) {
        const vec_f64 of_b = u - a, v = (a - (u - of_b)) + (b - of_b);
        vec_f64 q;

        value = quotient_of(u, v, r, &q);
        value += q + zero;
        is_certain &= settle(&value, u, v, r) & (r->divisor < EVERY(MOST_PAIR_DIVISOR));
        is_certain |= (u == zero) & (v == zero);
    } else if (is_quotient) {
        is_certain &= (size >= EVERY(LEAST_QUOTIENT)) | (u == zero);
    }
    if (may_be_lost)
        is_certain &= ~is_lost;
    else /* of elements that are NaN, or infinities of both signs */
        is_certain |= a != a;
    r->doubtful |= ~is_certain;
    r->nan |= value != value;
    return value;
}

/* Divides vectors of sums from i on as far as all are certain, which nearly all are, and returns
 * where that ends. */
INLINE uint64_t divide_most(division how, const double *sums, const double *rests,
                            const double *divisors, rounding r, uint64_t i, uint64_t count,
                            double *results)
{
    for (; i + VECTOR_LANES <= count; i += VECTOR_LANES) {
        const vec_f64 a = load_f64(sums + i), b = load_f64(rests + i);
        vec_f64 q;

        if (how == BY_EACH) r.divisor = load_f64(divisors + i);
        if (how == BY_EACH) r.inverse = 1 / r.divisor;
        const vec_f64 e = quotient_of(a, b, &r, &q), lower = q + e * (1 - QUOTIENT_DOUBT),
                      upper = q + e * (1 + QUOTIENT_DOUBT);
        const vec_i64 is_allowed =
            how == BY_EACH ? (vec_i64)(r.divisor < EVERY(MOST_PAIR_DIVISOR)) : ~(vec_i64){0};
        vec_f64 value = lower;

        if (has_flag_set(
                ~((lower == upper) & (MAGNITUDES(q) >= EVERY(LEAST_QUOTIENT)) & is_allowed))) {
            value = q + e;
            if (has_flag_set(~(settle(&value, a, b, &r) & is_allowed))) break;
        }
        memcpy(results + i, &value, sizeof value);
    }
    return i;
}

INLINE int round_pairs_by(division how, int is_quotient, const double *sums, const double *rests,
                          const double *lost, const double *divisors, double divisor,
                          uint64_t count, double *results)
{
    rounding r = {.divisor = EVERY(divisor), .inverse = EVERY(1 / divisor)};
    const int may_be_certain = how == BY_EACH || (how == BY_ONE && divisor < MOST_PAIR_DIVISOR);
    vec_i64 is_lost = {0};
    vec_f64 value;
    uint64_t i = 0;

    for (;; i += VECTOR_LANES) {
        if (may_be_certain && lost == NULL)
            i = divide_most(how, sums, rests, divisors, r, i, count, results);
        if (i + VECTOR_LANES > count) break;
        if (how == BY_EACH) r.divisor = load_f64(divisors + i);
        if (how == BY_EACH) r.inverse = 1 / r.divisor;
        if (lost != NULL) is_lost = load_f64(lost + i) != EVERY(0);
        value = round_pair(how, is_quotient, load_f64(sums + i), load_f64(rests + i), is_lost,
                           lost != NULL, &r);
        memcpy(results + i, &value, sizeof value);
    }
    if (i < count) {
        if (how == BY_EACH) r.divisor = load_last(divisors + i, count - i, 1);
        if (how == BY_EACH) r.inverse = 1 / r.divisor;
        if (lost != NULL) is_lost = load_last(lost + i, count - i, 0) != EVERY(0);
        value = round_pair(how, is_quotient, load_last(sums + i, count - i, 0),
                           load_last(rests + i, count - i, 0), is_lost, lost != NULL, &r);
        memcpy(results + i, &value, (count - i) * sizeof *results);
    }
    if (has_flag_set(r.nan)) unify_nan(count, 0, (char *)results);
    return !has_flag_set(r.doubtful);
}

/* As round_pairs, to float32: the sum is rounded to a double, which is divided, and so is wrong by
 * a few last bits that change no result but near a midpoint. There a sum that is one double is
 * certain if the division was not rounded. */
INLINE vec_f64 round_pair_to_single(vec_f64 a, vec_f64 b, vec_f64 is_lost, rounding *r)
{
    const vec_f64 zero = {0}, sum = a + b + zero, value = sum / r->divisor; /* none is -0 */
    const vec_i64 is_double = (vec_i64)(b == zero) & (vec_i64)(value * r->divisor == sum) &
                              (vec_i64)(r->divisor < EVERY(MOST_MIDPOINT_FACTOR)),
                  is_finite = (vec_i64)(MAGNITUDES(sum) <= EVERY(DBL_MAX));

    r->doubtful |=
        ~((~is_near_midpoint(value, NEAR) | is_double) & is_finite & (vec_i64)(is_lost == zero));
    r->nan |= value != value;
    return value;
}

static int round_pairs_to_single(const double *sums, const double *rests, const double *lost,
                                 const double *divisors, double divisor, uint64_t count,
                                 float *results)
{
    rounding r = {.divisor = EVERY(divisor)};
    char last[sizeof(vec_f64)];
    vec_f64 is_lost = {0};
    uint64_t i = 0;

    for (; i + VECTOR_LANES <= count; i += VECTOR_LANES) {
        if (divisors != NULL) r.divisor = load_f64(divisors + i);
        if (lost != NULL) is_lost = load_f64(lost + i);
        store_vector(round_pair_to_single(load_f64(sums + i), load_f64(rests + i), is_lost, &r), 1,
                     (char *)(results + i));
    }
    if (i < count) {
        if (divisors != NULL) r.divisor = load_last(divisors + i, count - i, 1);
        if (lost != NULL) is_lost = load_last(lost + i, count - i, 0);
        store_vector(round_pair_to_single(load_last(sums + i, count - i, 0),
                                          load_last(rests + i, count - i, 0), is_lost, &r),
                     1, last);
        memcpy(results + i, last, (count - i) * sizeof *results);
    }
    if (has_flag_set(r.nan)) unify_nan(count, 1, (char *)results);
    return !has_flag_set(r.doubtful);
}

#define ROUND_PAIRS_BY(how, is_quotient) \
    round_pairs_by(how, is_quotient, sums, rests, lost, divisors, divisor, count, results)

static int round_pairs(const double *sums, const double *rests, const double *lost,
                       const double *divisors, double divisor, uint64_t count, double *results)
{
    switch (division_of(divisors, divisor)) {
    case BY_POWER: return divisor == 1 ? ROUND_PAIRS_BY(BY_POWER, 0) : ROUND_PAIRS_BY(BY_POWER, 1);
    case BY_ONE: return ROUND_PAIRS_BY(BY_ONE, 1);
    default: return ROUND_PAIRS_BY(BY_EACH, 1);
    }
}
