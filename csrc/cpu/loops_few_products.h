/* Part of loops_template.h: sums of few products, and quotients of them, of rows side by side, as
 * results. See gpr_few_products_loop.
 *
 * To float32 nearly all sums of doubles are rounded alike that are less than a few thousand last
 * bits from the real ones. The other ones, and those to doubles, are made again, with two doubles.
 *
 * A lane has a row. Its sum is two doubles: what rounding takes from an addition is a double
 * (TwoSum) and goes to `rest`. So does what rounding takes from a product of doubles. Where no
 * addition to `rest` was rounded either, and no such part was too small for a double, the two are
 * the sum, and one addition rounds it. Then the result is certain also halfway between two numbers,
 * where bounds on errors decide nothing: every fifth sum of two float32 is there, but hardly one of
 * 33. */

/* Last bits of a double: more than what the quotient may be wrong of a plain sum of at least
 * LEAST_PLAIN_SHARE of its size, each of whose 2^5 additions was rounded by 2^-53. */
enum { PLAINLY_NEAR = 1 << 17 };
#define LEAST_PLAIN_SHARE 0x1p-11
#define LEAST_EXACT_TERM 0x1p-900 /* the rest of larger products is a double */
/* Of a sum's size: each of 2^5 additions to `rest`, which is below 2^(5 - 53), is rounded by 2^-53
 * of that; with the rests of products it is twice as much, and this is twice what it may be. */
#define FEW_PRODUCTS_ERROR 0x1p-93
#define LEAST_SHARE 0x1p-40  /* of a sum's size: of less, the error may be more than a last bit */
enum { NOTED_VECTORS = 16 }; /* made with notes after one that needed them: of integers many do */

/* As EVERY, also of -0. */
#define EACH(x) ((x) - (vec_f64){0})

typedef struct few_lanes {
    vec_f64 sum, rest, size;
    vec_i64 rounded; /* bits that are not 0 where `rest` is not exact */
} few_lanes;

/* `notes`: where that rounds. */
INLINE void add_few(int is_wide, int notes, vec_f64 x, vec_f64 y, few_lanes *lanes)
{
    const vec_f64 term = x * y, size = MAGNITUDES(term), zero = {0};
    vec_f64 lost;

    ADD_WITH_REST(vec_f64, lanes->sum, term, lost);
    lanes->size += size;
    if (is_wide && !notes) lost += VECTOR_PRODUCT_REST(x, y, term);
    if (!notes) {
        lanes->rest += lost;
        return;
    }
    if (is_wide) {
        add_noting(&lost, VECTOR_PRODUCT_REST(x, y, term) + 0.0, &lanes->rounded);
        lanes->rounded |=
            (vec_i64)(size < EVERY(LEAST_EXACT_TERM)) & (vec_i64)(x != zero) & (vec_i64)(y != zero);
    }
    add_noting(&lanes->rest, lost, &lanes->rounded);
}

/* What a unit's rows become. */
typedef struct few_results {
    int is_single, is_divided;
    int takes_root; /* of sums of squares, to float32 */
    int are_two; /* one product, or two of float32: what one addition makes is the sum, rounded */
    int has_inverse; /* one for all */
    int is_inverted; /* it multiplies, and sums are neither 0 nor infinite */
    int noting;      /* so many vectors more are made with notes at once */
    vec_f64 divisor, inverse;
    vec_i64 doubtful;
} few_results;

/* Rounded sums over the divisor. To float32 nearly all are rounded alike if they are multiplied by
 * its inverse. */
INLINE vec_f64 divide_few(vec_f64 sum, const few_results *to)
{
    const vec_f64 value = sum * to->inverse;

    if (to->is_inverted) return value;
    if (to->has_inverse && to->is_single && !has_flag_set(is_near_midpoint(value, NEAR)))
        return value;
    return sum / to->divisor;
}

/* A sum of which a product is NaN is that, whatever the others are. */
INLINE vec_f64 or_nan(vec_f64 value, vec_f64 size)
{
    return choose_f64((vec_i64)(size != size), EVERY((double)NAN), value);
}

/* Rounds the sums, divides them, and notes where that is not certain. */
INLINE vec_f64 round_few(const few_lanes *lanes, few_results *to)
{
    const vec_f64 zero = {0}, s = lanes->sum, size = lanes->size, rest = lanes->rest,
                  both = s + rest,
                  sum = choose_f64((vec_i64)(rest == zero), s, both), /* s may be -0 */
        value = to->takes_root   ? roots_of(sum)
                : to->is_divided ? divide_few(sum, to)
                                 : sum,
                  doubt = size * FEW_PRODUCTS_ERROR, of_rest = both - s,
                  left = (s - (both - of_rest)) + (rest - of_rest);
    const vec_i64 is_exact = lanes->rounded == 0;
    vec_i64 certain;

    if (to->is_single) {
        certain = ~is_near_midpoint(value, NEAR) &
                  (vec_i64)(MAGNITUDES(sum) >= size * LEAST_SHARE) &
                  (vec_i64)(size <= EVERY(GPR_MOST_SUM_SIZE));
        if (!has_flag_set(~certain)) return value;
        if (to->takes_root) /* and so is the root, whose square is the sum */
            certain |= is_exact & (vec_i64)(rest == zero) & (vec_i64)(value * value == s) &
                       (vec_i64)(VECTOR_PRODUCT_REST(value, value, s) == zero);
        else
            certain |= is_exact & (to->is_divided ? is_exact : (vec_i64)(left == zero));
    } else {
        certain = is_exact | ((vec_i64)(sum + (left - doubt) == sum + (left + doubt)) &
                              (vec_i64)(size >= EVERY(GPR_LEAST_SUM_SIZE)));
    }
    certain &= (vec_i64)(size <= EVERY(GPR_MOST_SUM_SIZE));
    to->doubtful |= ~(certain | (vec_i64)(size != size));
    return or_nan(value, size);
}

/* Rounds plain sums, and divides them; 0 where that is not certain of one to float32. */
INLINE int round_plainly(vec_f64 sum, vec_f64 size, const few_results *to, vec_f64 *value)
{
    const vec_f64 zero = {0}, found = to->takes_root    ? roots_of(sum)
                                      : !to->is_divided ? sum
                                      : to->has_inverse ? sum * to->inverse
                                                        : sum / to->divisor;
    const vec_i64 unsure = (is_near_midpoint(found, PLAINLY_NEAR) & (vec_i64)(size != zero)) |
                           ~(vec_i64)(MAGNITUDES(sum) >= size * LEAST_PLAIN_SHARE) |
                           (vec_i64)(found != found);

    *value = or_nan(found, size);
    return !has_flag_set(unsure & ~(vec_i64)(size != size));
}

INLINE vec_f64 round_two(vec_f64 sum, few_results *to)
{
    to->doubtful |= (vec_i64)(MAGNITUDES(sum) > EVERY(GPR_MOST_SUM_SIZE));
    return or_nan(divide_few(sum, to), sum);
}

#define OTHER_FACTOR(name) \
    (to->takes_root ? x : second != NULL ? EACH(second[i]) : read_lanes_##name(how, q, at_q))

/* What is read of neighbours a few vectors later: the rows are many streams. */
enum { PREFETCH_ROW_BYTES = 2048 };
#define PREFETCH_ROW(p) PREFETCH_RUN(p, 1, PREFETCH_ROW_BYTES, 3)

#define DEFINE_FEW_PRODUCTS(name, T, IS_WIDE)                                                      \
    /* Sums of a vector of rows, of which none counts as exact without notes. */                   \
    INLINE few_lanes add_lanes_of_##name(gpr_product_rows rows, const char *const *p,              \
                                         const char *const *q, reading how, const double *second,  \
                                         double start, const few_results *to, int notes)           \
    {                                                                                              \
        few_lanes lanes = {.sum = EACH(start), .rounded = (vec_i64){0} - !notes};                  \
        int64_t at_p = rows.p_first, at_q = rows.q_first;                                          \
                                                                                                   \
        for (uint64_t i = 0; i < rows.n; i++) {                                                    \
            if (how == NEIGHBOURS && IS_WIDE) PREFETCH_ROW(p[0] + at_p);                           \
            if (how == NEIGHBOURS && IS_WIDE && second == NULL) PREFETCH_ROW(q[0] + at_q);         \
            const vec_f64 x = read_lanes_##name(how, p, at_p), y = OTHER_FACTOR(name);             \
            add_few(IS_WIDE, notes, x, y, &lanes);                                                 \
            at_p += rows.p_stride;                                                                 \
            at_q += rows.q_stride;                                                                 \
        }                                                                                          \
        return lanes;                                                                              \
    }                                                                                              \
                                                                                                   \
    /* Results of a vector of rows, which begin at p[k] and q[k]; `second`: products of one. */    \
    INLINE vec_f64 few_products_of_##name(gpr_product_rows rows, const char *const *p,             \
                                          const char *const *q, reading how, const double *second, \
                                          double start, few_results *to)                           \
    {                                                                                              \
        vec_f64 sum = EACH(start), size = {0}, value;                                              \
        int64_t at_p = rows.p_first, at_q = rows.q_first;                                          \
                                                                                                   \
        for (uint64_t i = 0; i < rows.n && (to->are_two || to->is_single); i++) {                  \
            if (how == NEIGHBOURS) PREFETCH_ROW(p[0] + at_p);                                      \
            if (how == NEIGHBOURS && second == NULL && !to->takes_root) PREFETCH_ROW(q[0] + at_q); \
            const vec_f64 x = read_lanes_##name(how, p, at_p), y = OTHER_FACTOR(name),             \
                          term = x * y;                                                            \
            sum += term;                                                                           \
            if (!to->are_two && !to->takes_root) size += MAGNITUDES(term);                         \
            at_p += rows.p_stride;                                                                 \
            at_q += rows.q_stride;                                                                 \
        }                                                                                          \
        if (to->takes_root) size = sum;                                                            \
        if (to->are_two) return round_two(sum, to);                                                \
        if (to->is_single && round_plainly(sum, size, to, &value)) return value;                   \
        if (!to->is_single &&                                                                      \
            to->noting-- <= 0) { /* of most factors hardly one needs the notes */                  \
            const few_lanes plain = add_lanes_of_##name(rows, p, q, how, second, start, to, 0);    \
            const vec_i64 before = to->doubtful;                                                   \
                                                                                                   \
            to->doubtful = (vec_i64){0};                                                           \
            value = round_few(&plain, to);                                                         \
            const int is_certain = !has_flag_set(to->doubtful);                                    \
            to->doubtful = before;                                                                 \
            if (is_certain) return value;                                                          \
            to->noting = NOTED_VECTORS;                                                            \
        }                                                                                          \
        const few_lanes lanes = add_lanes_of_##name(rows, p, q, how, second, start, to, 1);        \
        return round_few(&lanes, to);                                                              \
    }                                                                                              \
                                                                                                   \
    INLINE int store_few_products_##name(gpr_product_rows rows, gpr_few_rule rule, few_results to, \
                                         char *results)                                            \
    {                                                                                              \
        const size_t bytes = to.is_single ? sizeof(float) : sizeof(double);                        \
        const char *const *const other = to.takes_root ? rows.p : rows.q;                          \
        const int is_one = rows.q_is_one && !to.takes_root;                                        \
        double second[GPR_FEW_PRODUCTS];                                                           \
                                                                                                   \
        to.is_inverted = rule.is_inverted;                                                         \
        to.has_inverse = rule.divisors == NULL;                                                    \
        to.divisor = EVERY(rule.divisor);                                                          \
        to.inverse = EVERY(1 / rule.divisor);                                                      \
        for (uint64_t i = 0; i < rows.n && is_one; i++)                                            \
            second[i] =                                                                            \
                *(const T *)(const void *)(rows.q[0] + rows.q_first + (int64_t)i * rows.q_stride); \
        for (uint64_t j = 0; j < rows.width; j += VECTOR_LANES) {                                  \
            const uint64_t left = rows.width - j;                                                  \
            const int is_whole = left >= VECTOR_LANES,                                             \
                      beside = is_whole && are_beside(&rows, j, VECTOR_LANES,                      \
                                                      is_one || to.takes_root, sizeof(T));         \
            const char *p[VECTOR_LANES] = {rows.p[rows.are_beside ? 0 : j]},                       \
                       *q[VECTOR_LANES] = {other[rows.are_beside ? 0 : j]};                        \
            char last[sizeof(vec_f64)];                                                            \
            vec_f64 value;                                                                         \
                                                                                                   \
            if (rows.are_beside) p[0] += j * sizeof(T), q[0] += j * sizeof(T);                     \
            for (uint64_t k = 1; k < VECTOR_LANES && !beside; k++) {                               \
                const uint64_t next = k < left ? k : left - 1;                                     \
                p[k] = rows.are_beside ? p[0] + next * sizeof(T) : rows.p[j + k];                  \
                q[k] = rows.are_beside ? q[0] + next * sizeof(T) : other[j + k];                   \
            }                                                                                      \
            if (rule.divisors != NULL)                                                             \
                to.divisor = is_whole ? load_f64(rule.divisors + j)                                \
                                      : load_last(rule.divisors + j, left, 1);                     \
            if (beside && is_one)                                                                  \
                value = few_products_of_##name(rows, p, q, NEIGHBOURS, second, rule.start, &to);   \
            else if (beside)                                                                       \
                value = few_products_of_##name(rows, p, q, NEIGHBOURS, NULL, rule.start, &to);     \
            else if (is_one)                                                                       \
                value = few_products_of_##name(rows, p, q, APART, second, rule.start, &to);        \
            else                                                                                   \
                value = few_products_of_##name(rows, p, q, APART, NULL, rule.start, &to);          \
            if (to.is_inverted)                                                                    \
                to.doubtful |= ~((vec_i64)(MAGNITUDES(value) > EVERY(0)) &                         \
                                 (vec_i64)(MAGNITUDES(value) <= EVERY(DBL_MAX)));                  \
            store_vector(value, to.is_single, is_whole ? results + j * bytes : last);              \
            if (!is_whole) memcpy(results + j * bytes, last, left * bytes);                        \
        }                                                                                          \
        return !has_flag_set(to.doubtful);                                                         \
    }                                                                                              \
                                                                                                   \
    static int few_products_##name(const gpr_product_rows *rows, const gpr_few_rule *rule,         \
                                   void *results)                                                  \
    {                                                                                              \
        const few_results number = {.is_single = 0}, single = {.is_single = 1},                    \
                          quotient = {.is_divided = 1},                                            \
                          single_quotient = {.is_single = 1, .is_divided = 1},                     \
                          of_two = {.is_divided = 1, .are_two = 1},                                \
                          root = {.is_single = 1, .takes_root = 1},                                \
                          single_of_two = {.is_single = 1, .is_divided = 1, .are_two = 1};         \
        const int are_two = rule->is_divided && rows->n <= (IS_WIDE ? 0 : 2);                      \
                                                                                                   \
        if (rule->takes_root) return store_few_products_##name(*rows, *rule, root, results);       \
        if (are_two && rule->is_single)                                                            \
            return store_few_products_##name(*rows, *rule, single_of_two, results);                \
        if (are_two) return store_few_products_##name(*rows, *rule, of_two, results);              \
        if (rule->is_divided && rule->is_single)                                                   \
            return store_few_products_##name(*rows, *rule, single_quotient, results);              \
        if (rule->is_divided) return store_few_products_##name(*rows, *rule, quotient, results);   \
        if (rule->is_single) return store_few_products_##name(*rows, *rule, single, results);      \
        return store_few_products_##name(*rows, *rule, number, results);                           \
    }
DEFINE_FEW_PRODUCTS(float32, float, 0)
DEFINE_FEW_PRODUCTS(float64, double, 1)

/* Of a vector of rows from row j on: see exact_product_rows. */
#define DEFINE_EXACT_ROWS(name, T, IS_WIDE)                                                        \
    INLINE void add_rows_exactly_##name(const gpr_product_rows *rows, uint64_t j, reading of_p,    \
                                        reading of_q, double *upper, double *lower, double *sizes) \
    {                                                                                              \
        few_lanes lanes = {.sum = EACH(-0.0)};                                                     \
        vec_f64 size;                                                                              \
                                                                                                   \
        if (rows->continues)                                                                       \
            lanes = (few_lanes){load_f64(upper + j), load_f64(lower + j), load_f64(sizes + j),     \
                                (vec_i64){0}};                                                     \
        for (uint64_t b = 0; b < rows->blocks; b++) {                                              \
            int64_t at_p = rows->p_first + (int64_t)b * rows->p_block,                             \
                    at_q = rows->q_first + (int64_t)b * rows->q_block;                             \
                                                                                                   \
            for (uint64_t i = 0; i < rows->n; i++) {                                               \
                add_few(IS_WIDE, 1, read_lanes_##name(of_p, rows->p + j, at_p),                    \
                        read_lanes_##name(of_q, rows->q + j, at_q), &lanes);                       \
                at_p += rows->p_stride;                                                            \
                at_q += rows->q_stride;                                                            \
            }                                                                                      \
        }                                                                                          \
        size = choose_f64(lanes.rounded == 0, lanes.size, EACH((double)NAN));                      \
        memcpy(upper + j, &lanes.sum, sizeof lanes.sum);                                           \
        memcpy(lower + j, &lanes.rest, sizeof lanes.rest);                                         \
        memcpy(sizes + j, &size, sizeof size);                                                     \
    }                                                                                              \
                                                                                                   \
    static void exact_rows_##name(const gpr_product_rows *rows, double *upper, double *lower,      \
                                  double *sizes)                                                   \
    {                                                                                              \
        const int is_one = rows->q_is_one;                                                         \
                                                                                                   \
        for (uint64_t j = 0; j < rows->width; j += VECTOR_LANES) {                                 \
            const int beside = rows->width - j >= VECTOR_LANES &&                                  \
                               are_beside(rows, j, VECTOR_LANES, is_one, sizeof(T));               \
                                                                                                   \
            if (beside && is_one)                                                                  \
                add_rows_exactly_##name(rows, j, NEIGHBOURS, ONE_FOR_ALL, upper, lower, sizes);    \
            else if (beside)                                                                       \
                add_rows_exactly_##name(rows, j, NEIGHBOURS, NEIGHBOURS, upper, lower, sizes);     \
            else if (is_one)                                                                       \
                add_rows_exactly_##name(rows, j, APART, ONE_FOR_ALL, upper, lower, sizes);         \
            else                                                                                   \
                add_rows_exactly_##name(rows, j, APART, APART, upper, lower, sizes);               \
        }                                                                                          \
    }
DEFINE_EXACT_ROWS(float32, float, 0)
DEFINE_EXACT_ROWS(float64, double, 1)
