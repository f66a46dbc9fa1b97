/* Exact sums as plain ones that the processor watches; see exact_plain.h. */
#include "cpu/exact_plain.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

#include "lib/base/convert.h"

/* ---------------------------------------------------------------- the flag ------------------- */

#if defined(__x86_64__)
#include <xmmintrin.h>

/* fenv.h's functions serve the other floating point unit of the processor, too, which takes ten
 * times as long. */
static void lower_flags(void)
{
    _mm_setcsr(_mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK);
}

static int was_inexact(void)
{
    return (_mm_getcsr() & _MM_EXCEPT_INEXACT) != 0;
}
#else
static void lower_flags(void)
{
    (void)feclearexcept(FE_ALL_EXCEPT);
}

static int was_inexact(void)
{
    return fetestexcept(FE_INEXACT) != 0;
}
#endif

/* Whether an addition that is rounded raises the flag, and one that is not does not. Programs that
 * run others' instructions by software, Valgrind for one, may have no flag. */
static int has_flag(void)
{
    volatile double one = 1, below = 0x1p-60, sum;
    int is_silent;

    lower_flags();
    sum = one + one;
    is_silent = !was_inexact();
    sum = one + below;
    (void)sum;
    return is_silent && was_inexact();
}

/* ---------------------------------------------------------------- adding --------------------- */

int gpr_cpu_make_plain_adder(const gpr_view *view, const gpr_rule *rule, plain_adder *how)
{
    const gpr_loops *loops = gpr_cpu_loops();
    const int is_double = view->dtype == GPR_FLOAT64;

    if (!gpr_cpu_has_pairs(view->dtype) || view->dtype == GPR_COMPLEX128 || !has_flag()) return 0;
    memset(&how->work, 0, sizeof how->work);
    how->rule = *rule;
    how->rule.fold = GPR_FOLD_sum;
    how->rule.acc_kind = GPR_ACC_NUMBER;
    how->rule.compute = view->dtype;
    /* A mean has to know how many elements were left out: rows with NaN are not added here. */
    how->rule.skip_nan = rule->skip_nan && !rule->divide;
    how->components = (uint64_t)gpr_exact_parts(view->dtype);
    how->work.view = view;
    how->work.recipes = is_double ? GPR_HALVES : 1;
    for (int half = 0; half < how->work.recipes; half++) {
        recipe *r = &how->work.how[half];

        *r = gpr_cpu_recipe(&how->rule, view, GPR_FOLD_sum);
        if (is_double)
            r->loop = how->rule.skip_nan ? loops->skipping_halves[half] : loops->halves[half];
    }
    how->work.columns_direct =
        gpr_cpu_lies_crosswise(view) && how->work.how[0].direct && gpr_cpu_columns_in_place(view);
    return 1;
}

void gpr_cpu_set_plain_width(plain_adder *how, uint64_t width)
{
    const uint64_t copies = gpr_cpu_copies(width, how->work.view->n);

    how->work.copies = copies * width * how->components <= PLAIN_LANES ? copies : 1;
}

/* Folds to `lanes` doubles. */
static void fold(const plain_adder *how, const recipe *r, uint64_t row, uint64_t rows,
                 uint64_t first, uint64_t end, staging *in, double *sums)
{
    if (gpr_cpu_lies_crosswise(how->work.view)) {
        gpr_cpu_fold_columns(&how->work, r, row, rows, first, end, (char *)sums, &in->s);
    } else if (end - first == how->work.view->n) {
        gpr_cpu_fold_rows(r, row, rows, (char *)sums, in);
    } else {
        for (uint64_t i = 0; i < rows; i++) {
            const gpr_value sum = gpr_cpu_fold_run(r, row + i, first, end - first, in);

            memcpy(&sums[i * how->components], &sum, how->components * sizeof *sums);
        }
    }
}

void gpr_cpu_add_to_pairs(plain_pairs *pairs, const double *numbers, uint64_t count, uint64_t lanes)
{
    if (pairs->lanes == 0) {
        memset(pairs->sums, 0, lanes * sizeof *pairs->sums);
        pairs->lanes = lanes;
    }
    if (!pairs->has_rests) {
        memset(pairs->rests, 0, lanes * sizeof *pairs->rests);
        memset(pairs->lost, 0, lanes * sizeof *pairs->lost);
        pairs->has_rests = 1;
    }
    gpr_cpu_loops()->pairs[GPR_FLOAT64]((const char *)numbers, (int64_t)(lanes * sizeof *numbers),
                                        count, lanes, pairs->sums, pairs->rests, pairs->lost);
}

void gpr_cpu_merge_pairs(plain_pairs *pairs, uint64_t lane, const exact_pairs *others,
                         uint64_t lanes)
{
    const gpr_pairs_loop add = gpr_cpu_loops()->pairs[GPR_FLOAT64];
    double *lost = pairs->lost + lane;

    add((const char *)others->sums, 0, 1, lanes, pairs->sums + lane, pairs->rests + lane, lost);
    add((const char *)others->rests, 0, 1, lanes, pairs->sums + lane, pairs->rests + lane, lost);
    for (uint64_t i = 0; i < lanes; i++) lost[i] += others->lost[i];
}

int gpr_cpu_sum_plain(const plain_adder *how, uint64_t row, uint64_t rows, uint64_t first,
                      uint64_t end, plain_memory *memory, plain_pairs *pairs)
{
    const uint64_t lanes = rows * how->components;
    const int is_first = pairs->lanes == 0;

    lower_flags();
    for (int half = 0; half < how->work.recipes; half++)
        fold(how, &how->work.how[half], row, rows, first, end, &memory->staged,
             is_first && half == 0 ? pairs->sums : memory->sums[half]);
    if (was_inexact()) return 0;
    if (is_first) pairs->lanes = lanes;
    for (int half = is_first; half < how->work.recipes; half++)
        gpr_cpu_add_to_pairs(pairs, memory->sums[half], 1, lanes);
    return 1;
}

/* ---------------------------------------------------------------- results -------------------- */

/* Bits of a double below the last one of a number of the type, and the least exponent field, of a
 * double, from which numbers of the type have all their bits. */
typedef struct narrow_format {
    uint64_t below, midpoint, least_field;
} narrow_format;

static narrow_format narrow_format_of(gpr_dtype real)
{
    const gpr_dtype_row *row = &gpr_dtype_rows[real];
    const int bits = 52 - row->fraction;

    return (narrow_format){.below = (UINT64_C(1) << bits) - 1,
                           .midpoint = bits > 0 ? UINT64_C(1) << (bits - 1) : 1, /* never */
                           .least_field = 1023 - ((1u << (row->exponent - 1)) - 2)};
}

/* Makes values the quotients of exact sums, one double each, by n, rounded to double. Returns
 * whether rounding them to the narrower type, too, may differ from rounding the quotients: not
 * unless a rounded quotient is a midpoint of two numbers of the type and was rounded, as every
 * midpoint is a double and no rounding crosses a double. A midpoint has 25 bits at most, so that
 * its product with n, which shows whether it was rounded, is exact. Subnormal ones, whose midpoints
 * are elsewhere, are as doubtful. */
enum { MIDPOINT_FACTOR_BITS = 28 };

static int divide_plain(double *values, uint64_t count, uint64_t n, narrow_format format)
{
    const double divisor = (double)n;
    uint64_t doubtful = n >> MIDPOINT_FACTOR_BITS;

    for (uint64_t i = 0; i < count; i++) {
        const double quotient = values[i] / divisor;
        uint64_t bits;

        memcpy(&bits, &quotient, sizeof bits);
        doubtful |=
            ((uint64_t)((bits & format.below) == format.midpoint) &
             (uint64_t)(quotient * divisor != values[i])) |
            ((uint64_t)((bits << 1 >> 53) < format.least_field) & (uint64_t)(bits << 1 != 0));
        values[i] = quotient;
    }
    return doubtful != 0;
}

/* Multiples of doubles, for quotients: see divide_pairs. */
enum { SPLIT_BITS = 27 };

/* Makes values the quotients of pairs by n, rounded once to double; returns 0 where that is not
 * certain. The quotient q of the larger number leaves the remainder u - q n, which is a double; q
 * times n is exact by halves of q, as n has 26 bits at most. With the smaller number, v, the
 * quotient of that remainder is e, right to a few roundings, and if q + e rounds to the same
 * double with e a little smaller and a little larger, it is the result. So it is where e is exact,
 * which decides ties. */
static int divide_pairs(const double *sums, const double *rests, uint64_t count, uint64_t n,
                        double *values)
{
    const double divisor = (double)n, doubt = 0x1p-48;
    const uint64_t upper_bits = ~((UINT64_C(1) << SPLIT_BITS) - 1);
    int is_certain = 1;

    if (n >> (53 - SPLIT_BITS) != 0) return 0;
    for (uint64_t i = 0; i < count; i++) {
        const double u = sums[i] + rests[i], of_rest = u - sums[i],
                     v = (sums[i] - (u - of_rest)) + (rests[i] - of_rest), q = u / divisor;
        uint64_t bits;
        double upper;

        memcpy(&bits, &q, sizeof bits);
        bits &= upper_bits;
        memcpy(&upper, &bits, sizeof upper);
        const double remainder = (u - upper * divisor) - (q - upper) * divisor;
        const double t = remainder + v, of_v = t - remainder,
                     t_rest = (remainder - (t - of_v)) + (v - of_v), e = t / divisor;
        const double low = q + e * (1 - doubt), high = q + e * (1 + doubt);
        const int is_moderate = (fabs(q) > 0x1p-900) & (fabs(u) < 0x1p900);

        uint64_t e_bits;
        memcpy(&e_bits, &e, sizeof e_bits);
        /* a tie: e is a power of two, so that e n is exact */
        const int is_exact =
            (e_bits << 12 == 0) & (e * divisor == t) & (t_rest == 0) & (fabs(e) > 0x1p-960);

        values[i] = q + e;
        is_certain &= (is_moderate & ((low == high) | is_exact)) | ((u == 0) & (v == 0));
    }
    return is_certain;
}

/* Whether sums that have no rests are results' values, or quotients, for sure; if so, they are made
 * `values`, NaN of which are all alike. */
static int finish_sums(const double *sums, const gpr_rule *rule, uint64_t count, uint64_t n,
                       double *values)
{
    const narrow_format format = narrow_format_of(gpr_real_dtype(rule->result));
    int has_nan = 0;

    for (uint64_t i = 0; i < count; i++) {
        const double sum = sums[i] + 0.0; /* a sum starts at +0 */

        has_nan |= sum != sum;
        values[i] = sum == sum ? sum : NAN;
    }
    /* Their number is unknown. */
    if (has_nan && rule->divide && rule->skip_nan) return 0;
    return !rule->divide || !divide_plain(values, count, n, format);
}

/* The same of pairs, none of which may be infinite or NaN. */
static int finish_pairs(const double *sums, const double *rests, const double *lost,
                        const gpr_rule *rule, uint64_t count, uint64_t n, double *values)
{
    int is_sum = 1;

    if (gpr_real_dtype(rule->result) != GPR_FLOAT64) return 0;
    for (uint64_t i = 0; i < count; i++) {
        values[i] = sums[i] + rests[i] + 0.0;
        is_sum &= (lost[i] == 0) & (fabs(values[i]) < INFINITY);
    }
    if (!is_sum) return 0;
    return !rule->divide || divide_pairs(sums, rests, count, n, values);
}

static void store(const double *values, const gpr_rule *rule, uint64_t rows, char *results)
{
    const int is_complex = gpr_dtype_rows[rule->result].kind == GPR_KIND_COMPLEX;
    gpr_wide_block block;

    memcpy(block.f64, values, rows * (is_complex ? 2 : 1) * sizeof *values);
    gpr_store_wide(is_complex ? GPR_WIDE_COMPLEX : GPR_WIDE_FLOAT, &block, rows, rule->result,
                   results);
}

/* Finishes rows, as many as exact_pairs has room for, one by one. */
static void finish_carefully(const plain_pairs *pairs, const plain_adder *how, const gpr_rule *rule,
                             uint64_t row, uint64_t rows, uint64_t n, char *results, uint8_t *hold)
{
    const uint64_t lane = row * how->components, bytes = rows * how->components * sizeof(double);
    exact_pairs some = {.components = how->components};

    memcpy(some.sums, pairs->sums + lane, bytes);
    if (pairs->has_rests) {
        memcpy(some.rests, pairs->rests + lane, bytes);
        memcpy(some.lost, pairs->lost + lane, bytes);
    }
    gpr_cpu_pairs_hold(&some, rows, 0, hold);
    gpr_cpu_finish_pairs(&some, rule, rows, n, results, hold);
}

int gpr_cpu_finish_plain(const plain_pairs *pairs, const plain_adder *how, const gpr_rule *rule,
                         uint64_t rows, uint64_t n, char *results, uint8_t *hold)
{
    const size_t bytes = gpr_dtype_bytes(rule->result);
    /* complex results of real elements, and the other way round, are not stored as they are */
    const int is_alike = gpr_exact_parts(rule->result) == (int)how->components;
    const uint64_t most = GPR_WIDE_ELEMENTS / how->components;
    double values[GPR_WIDE_ELEMENTS];
    int all = 1;

    for (uint64_t row = 0; row < rows;) {
        const uint64_t some = least(rows - row, most), lane = row * how->components,
                       count = some * how->components;
        const int is_finished =
            is_alike &&
            (pairs->has_rests ? finish_pairs(pairs->sums + lane, pairs->rests + lane,
                                             pairs->lost + lane, rule, count, n, values)
                              : finish_sums(pairs->sums + lane, rule, count, n, values));

        memset(hold + row, 1, some);
        if (is_finished) {
            store(values, rule, some, results + row * bytes);
        } else {
            for (uint64_t done = 0; done < some;) {
                const uint64_t few = least(some - done, PAIR_LANES / how->components);
                const uint64_t at = row + done;

                finish_carefully(pairs, how, rule, at, few, n, results + at * bytes, hold + at);
                done += few;
            }
            for (uint64_t r = 0; r < some; r++) all &= hold[row + r];
        }
        row += some;
    }
    return all;
}
