/* Part of loops_template.h: sums of products by instructions that multiply and add with one
 * rounding. Quicker than the general ways of loops_product_sums.h, under a condition: where it does
 * not hold, functions return 0, and the general way starts anew.
 *
 *   float64  A lane starts at a bias, 1.5 * 2^k, and must not leave the doubles of that exponent.
 *            Then what a step adds to it, `added`, is a double, and what rounding takes from the
 *            step, x * y - added, is at most 2^(k - 53): one more instruction rounds it to a
 *            double. That is four instructions of arithmetic for a product. TwoSum and the rest of
 *            the product take ten.
 *
 *   float32  Products are added plainly. Their magnitudes' sum is at most the root of the product
 *            of both factors' sums of squares (Cauchy and Schwarz). These are made in single
 *            precision, of vectors with twice as many numbers, and must neither overflow nor be so
 *            small that underflow counts.
 *
 * Complex numbers are as in the general way: of a vector of both parts, one term is the product
 * with the other factor, and one that with its parts swapped. */

enum {
    AT_ONCE_VECTORS = 4, /* sums side by side */
    COMPLEX_STEP = AT_ONCE_VECTORS / COMPLEX_TERMS,
    AT_ONCE_LANES = AT_ONCE_VECTORS * VECTOR_LANES,
    FEWEST_AT_ONCE = 4 * AT_ONCE_LANES, /* numbers: with fewer, all beside the loop takes longer */
    BIAS_SAMPLES = 8,                   /* vectors that the bias is found of ... */
    SAMPLED = 512, /* ... among the first numbers, a page: those of other pages would be waited for,
                    * and runs from main memory take a third more time then */
    BIAS_MARGIN = 256, /* a lane's sum over what it is if all numbers are like the samples */
    MOST_BIAS_EXPONENT = 990,
    LEAST_BIAS_EXPONENT = -790
};

/* ---- float64 ---- */

/* 2^k, of which n products are less than half, if their magnitudes are like BIAS_SAMPLES vectors'
 * with the sum `samples`. 0 if no bias is certain to do. */
INLINE double bias_unit(vec_f64 samples, uint64_t n)
{
    double sum = 0, unit;
    uint64_t bits;
    int exponent;

    for (int k = 0; k < VECTOR_LANES; k++) sum += samples[k];
    unit = sum * (double)(4 * BIAS_MARGIN * n) * (1.0 / (BIAS_SAMPLES * VECTOR_LANES));
    memcpy(&bits, &unit, sizeof bits);
    exponent = (int)(bits >> 52) - 1023;
    if (exponent < LEAST_BIAS_EXPONENT || exponent > MOST_BIAS_EXPONENT) return 0; /* nor if NaN */
    bits &= UINT64_C(0x7ff) << 52;
    memcpy(&unit, &bits, sizeof unit);
    return unit;
}

/* Adds x * y to a biased lane, and what rounding takes from it to `rest`. */
#define ADD_TO_LANE(x, y, sum, rest)                           \
    do {                                                       \
        const vec_f64 next = (vec_f64)MULTIPLY_ADD(x, y, sum); \
        rest -= (vec_f64)LESS_PRODUCT(next - (sum), x, y);     \
        sum = next;                                            \
    } while (0)

/* The same, and notes in `moved` which bits of the lane are not the bias's. Lanes of terms that are
 * not negative only grow: it is enough to look at the last ones. */
#define ADD_BIASED(x, y, bias, sum, rest, moved)                            \
    do {                                                                    \
        ADD_TO_LANE(x, y, sum, rest);                                       \
        moved = (vec_i64)OR_DIFFERENCE(moved, (vec_i64)sum, (vec_i64)bias); \
    } while (0)

/* Whether all lanes still have the bias's exponent. */
INLINE int have_stayed(vec_i64 moved)
{
    int64_t any = 0;

    for (int k = 0; k < VECTOR_LANES; k++) any |= moved[k];
    return (uint64_t)any >> 52 == 0;
}

/* Where a lane of terms that are not negative is NaN, so is a term: then the sum is found. */
INLINE int is_nan_found(vec_f64 terms, gpr_product_sum *found)
{
    double sum = 0;

    for (int k = 0; k < VECTOR_LANES; k++) sum += terms[k];
    if (!isnan(sum)) return 0;
    *found = (gpr_product_sum){NAN, NAN, NAN};
    return 1;
}

INLINE vec_f64 first_factor(gpr_products kind, vec_f64 x)
{
    return kind == GPR_MAGNITUDES ? MAGNITUDES(x) : x;
}

INLINE vec_f64 second_factor(gpr_products kind, vec_f64 x, const double *q)
{
    if (kind == GPR_PRODUCTS) return load_f64(q);
    return kind == GPR_SQUARES ? x : (vec_f64){0} + 1;
}

INLINE int sum_biased(gpr_products kind, const double *p, const double *q, uint64_t n,
                      gpr_product_sum *found)
{
    const uint64_t apart = (n < SAMPLED ? n : SAMPLED) / BIAS_SAMPLES;
    vec_f64 sums[AT_ONCE_VECTORS], rests[AT_ONCE_VECTORS] = {{0}}, samples = {0}, bias;
    vec_i64 moved = {0};
    double unit;
    uint64_t i = 0;

    if (n < FEWEST_AT_ONCE) return 0;
    for (uint64_t k = 0; k < BIAS_SAMPLES; k++) {
        const vec_f64 x = load_f64(p + k * apart);
        samples += MAGNITUDES(x * second_factor(kind, x, q + k * apart));
    }
    unit = bias_unit(samples, n / AT_ONCE_LANES + 1);
    if (unit == 0) return is_nan_found(samples, found);
    bias = (vec_f64){0} + 1.5 * unit;
    UNROLLED
    for (int k = 0; k < AT_ONCE_VECTORS; k++) sums[k] = bias;
    for (; i + AT_ONCE_LANES <= n; i += AT_ONCE_LANES) {
        PREFETCH(p + i, AT_ONCE_LANES * sizeof(double));
        if (kind == GPR_PRODUCTS) PREFETCH(q + i, AT_ONCE_LANES * sizeof(double));
        UNROLLED
        for (int k = 0; k < AT_ONCE_VECTORS; k++) {
            const vec_f64 x = load_f64(p + i + k * VECTOR_LANES),
                          y = second_factor(kind, x, q + i + k * VECTOR_LANES);
            if (kind == GPR_PRODUCTS)
                ADD_BIASED(x, y, bias, sums[k], rests[k], moved);
            else
                ADD_TO_LANE(first_factor(kind, x), y, sums[k], rests[k]);
        }
    }
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES) {
        const vec_f64 x = load_f64(p + i), y = second_factor(kind, x, q + i);
        ADD_BIASED(first_factor(kind, x), y, bias, sums[0], rests[0], moved);
    }
    UNROLLED
    for (int k = 0; k < AT_ONCE_VECTORS; k++)
        moved = (vec_i64)OR_DIFFERENCE(moved, (vec_i64)sums[k], (vec_i64)bias);
    if (!have_stayed(moved)) {
        for (int k = 1; k < AT_ONCE_VECTORS; k++) sums[0] += sums[k];
        return kind != GPR_PRODUCTS && is_nan_found(sums[0], found);
    }
    UNROLLED
    for (int k = 0; k < AT_ONCE_VECTORS; k++) sums[k] -= bias;
    UNROLLED
    for (int half = AT_ONCE_VECTORS / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            merge_lanes(&sums[k], &rests[k], sums[k + half], rests[k + half]);
    *found = (gpr_product_sum){0, 0, unit / 2 * AT_ONCE_LANES};
    for (int lane = 0; lane < VECTOR_LANES; lane++)
        add_term(found, sums[0][lane], rests[0][lane], 0);
    for (; i < n; i++) {
        const double x = kind == GPR_MAGNITUDES ? fabs(p[i]) : p[i],
                     y = kind == GPR_PRODUCTS  ? q[i]
                         : kind == GPR_SQUARES ? x
                                               : 1,
                     term = x * y;
        add_term(found, term, PRODUCT_REST(x, y, term), fabs(term));
    }
    return 1;
}

/* As sum_biased, of n complex numbers' parts. */
static int sum_complex_biased(const double *p, const double *q, uint64_t n,
                              gpr_product_sum *of_parts)
{
    enum { STEP = COMPLEX_STEP * VECTOR_LANES };
    const uint64_t numbers = 2 * n,
                   apart = (numbers < SAMPLED ? n : SAMPLED / 2) / BIAS_SAMPLES * 2;
    vec_f64 sums[COMPLEX_TERMS][COMPLEX_STEP], rests[COMPLEX_TERMS][COMPLEX_STEP] = {{{0}}},
                                               samples = {0}, bias;
    vec_i64 moved = {0};
    double unit;
    uint64_t i = 0;

    if (numbers < FEWEST_AT_ONCE) return 0;
    for (uint64_t k = 0; k < BIAS_SAMPLES; k++) {
        const vec_f64 x = load_f64(p + k * apart), y = load_f64(q + k * apart);
        samples += MAGNITUDES(x * y) + MAGNITUDES(x * SWAP_PARTS(y));
    }
    unit = bias_unit(samples, numbers / STEP + 1);
    if (unit == 0) return 0;
    bias = (vec_f64){0} + 1.5 * unit;
    for (int t = 0; t < COMPLEX_TERMS; t++)
        for (int k = 0; k < COMPLEX_STEP; k++) sums[t][k] = bias;
    for (; i + STEP <= numbers; i += STEP) {
        PREFETCH(p + i, STEP * sizeof(double));
        PREFETCH(q + i, STEP * sizeof(double));
        UNROLLED
        for (int k = 0; k < COMPLEX_STEP; k++) {
            const vec_f64 x = load_f64(p + i + k * VECTOR_LANES),
                          y = load_f64(q + i + k * VECTOR_LANES), swapped = SWAP_PARTS(y);
            ADD_BIASED(x, y, bias, sums[0][k], rests[0][k], moved);
            ADD_BIASED(x, swapped, bias, sums[1][k], rests[1][k], moved);
        }
    }
    if (!have_stayed(moved)) return 0;
    for (int part = 0; part < 2 * COMPLEX_TERMS; part++)
        of_parts[part] = (gpr_product_sum){0, 0, unit / 2 * STEP};
    add_complex_tail_float64(p, q, i, numbers, of_parts);
    for (int t = 0; t < COMPLEX_TERMS; t++) {
        for (int k = 0; k < COMPLEX_STEP; k++) sums[t][k] -= bias;
        for (int k = 1; k < COMPLEX_STEP; k++)
            merge_lanes(&sums[t][0], &rests[t][0], sums[t][k], rests[t][k]);
        for (int lane = 0; lane < VECTOR_LANES; lane++)
            add_term(&of_parts[2 * t + lane % 2], sums[t][0][lane], rests[t][0][lane], 0);
    }
    return 1;
}

/* ---- float32 ---- */

enum { SINGLE_VECTORS = AT_ONCE_VECTORS / 2 }; /* of as many numbers */

/* Squares in single precision lose less than 2^-149 each to underflow: nothing beside such sums. */
#define LEAST_SQUARES 0x1p-100
/* Twice what 2^10 roundings of single precision and those of the root add up to. */
#define SQUARES_ROUNDING (1 + 0x1p-12)

INLINE vec_f32 load_f32(const float *p)
{
    vec_f32 value;

    memcpy(&value, p, sizeof value);
    return value;
}

INLINE double sum_of_singles(const vec_f32 *vectors)
{
    double sum = 0;

    UNROLLED
    for (int k = 0; k < SINGLE_VECTORS; k++) {
        float lanes[2 * VECTOR_LANES];

        memcpy(lanes, &vectors[k], sizeof lanes);
        for (int lane = 0; lane < 2 * VECTOR_LANES; lane++) sum += (double)lanes[lane];
    }
    return sum;
}

/* A bound on the magnitudes' sum of products of which these are the factors' sums of squares; 0 if
 * there is none. */
INLINE double size_of_products(double squares_x, double squares_y)
{
    if (!(squares_x >= LEAST_SQUARES && squares_y >= LEAST_SQUARES)) return 0;
    if (!(squares_x <= DBL_MAX && squares_y <= DBL_MAX)) return 0;
    return sqrt(squares_x * squares_y) * SQUARES_ROUNDING;
}

static int sum_singles(const float *p, const float *q, uint64_t n, gpr_product_sum *found)
{
    vec_f64 sums[AT_ONCE_VECTORS] = {{0}}, rest = {0};
    vec_f32 of_x[SINGLE_VECTORS] = {{0}}, of_y[SINGLE_VECTORS] = {{0}};
    double squares_x, squares_y;
    uint64_t i = 0;

    if (n < FEWEST_AT_ONCE) return 0;
    for (; i + AT_ONCE_LANES <= n; i += AT_ONCE_LANES) {
        PREFETCH(p + i, AT_ONCE_LANES * sizeof(float));
        PREFETCH(q + i, AT_ONCE_LANES * sizeof(float));
        UNROLLED
        for (int k = 0; k < AT_ONCE_VECTORS; k++)
            sums[k] = (vec_f64)MULTIPLY_ADD(WIDEN_F32(p + i + k * VECTOR_LANES),
                                            WIDEN_F32(q + i + k * VECTOR_LANES), sums[k]);
        UNROLLED
        for (int k = 0; k < SINGLE_VECTORS; k++) {
            const vec_f32 x = load_f32(p + i + k * 2 * VECTOR_LANES),
                          y = load_f32(q + i + k * 2 * VECTOR_LANES);
            of_x[k] = (vec_f32)MULTIPLY_ADD_SINGLE(x, x, of_x[k]);
            of_y[k] = (vec_f32)MULTIPLY_ADD_SINGLE(y, y, of_y[k]);
        }
    }
    squares_x = sum_of_singles(of_x);
    squares_y = sum_of_singles(of_y);
    UNROLLED
    for (int k = 1; k < AT_ONCE_VECTORS; k++) merge_lanes(&sums[0], &rest, sums[k], (vec_f64){0});
    *found = (gpr_product_sum){0, 0, 0};
    for (int lane = 0; lane < VECTOR_LANES; lane++) add_term(found, sums[0][lane], rest[lane], 0);
    for (; i < n; i++) {
        const double x = (double)p[i], y = (double)q[i];
        add_term(found, x * y, 0, 0);
        squares_x += x * x;
        squares_y += y * y;
    }
    found->size = size_of_products(squares_x, squares_y);
    return found->size > 0;
}

/* As sum_singles, of n complex numbers' parts. */
static int sum_complex_singles(const float *p, const float *q, uint64_t n,
                               gpr_product_sum *of_parts)
{
    enum { STEP = COMPLEX_STEP * VECTOR_LANES };
    const uint64_t numbers = 2 * n;
    vec_f64 sums[COMPLEX_TERMS][COMPLEX_STEP] = {{{0}}};
    vec_f32 of_x[SINGLE_VECTORS] = {{0}}, of_y[SINGLE_VECTORS] = {{0}};
    double squares_x, squares_y, size;
    uint64_t i = 0;

    if (numbers < FEWEST_AT_ONCE) return 0;
    _Static_assert(STEP == 2 * VECTOR_LANES, "a vector of single precision has them all");
    for (; i + STEP <= numbers; i += STEP) {
        const vec_f32 singles_x = load_f32(p + i), singles_y = load_f32(q + i);

        PREFETCH(p + i, STEP * sizeof(float));
        PREFETCH(q + i, STEP * sizeof(float));
        UNROLLED
        for (int k = 0; k < COMPLEX_STEP; k++) {
            const vec_f64 x = (vec_f64)WIDEN_F32(p + i + k * VECTOR_LANES),
                          y = (vec_f64)WIDEN_F32(q + i + k * VECTOR_LANES), swapped = SWAP_PARTS(y);
            sums[0][k] = (vec_f64)MULTIPLY_ADD(x, y, sums[0][k]);
            sums[1][k] = (vec_f64)MULTIPLY_ADD(x, swapped, sums[1][k]);
        }
        of_x[0] = (vec_f32)MULTIPLY_ADD_SINGLE(singles_x, singles_x, of_x[0]);
        of_y[0] = (vec_f32)MULTIPLY_ADD_SINGLE(singles_y, singles_y, of_y[0]);
    }
    squares_x = sum_of_singles(of_x);
    squares_y = sum_of_singles(of_y);
    for (uint64_t at = i; at < numbers; at++) {
        squares_x += (double)p[at] * (double)p[at];
        squares_y += (double)q[at] * (double)q[at];
    }
    size = size_of_products(squares_x, squares_y);
    if (size == 0) return 0;
    for (int part = 0; part < 2 * COMPLEX_TERMS; part++)
        of_parts[part] = (gpr_product_sum){0, 0, size};
    add_complex_tail_float32(p, q, i, numbers, of_parts);
    for (int t = 0; t < COMPLEX_TERMS; t++) {
        vec_f64 rest = {0};

        for (int k = 1; k < COMPLEX_STEP; k++)
            merge_lanes(&sums[t][0], &rest, sums[t][k], (vec_f64){0});
        for (int lane = 0; lane < VECTOR_LANES; lane++)
            add_term(&of_parts[2 * t + lane % 2], sums[t][0][lane], rest[lane], 0);
    }
    return 1;
}
