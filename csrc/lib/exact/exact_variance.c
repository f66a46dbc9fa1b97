/* Variances and standard deviations rounded once; see exact.h.
 *
 * Of n elements with the exact sums S of them and Q of their squares, the variance is the rational
 * number
 *
 *     (n Q - S^2) / (n (n - ddof)),
 *
 * with S^2 the sum of two squares for complex elements and ddof the double that it is. Numerator N
 * and divisor D are computed as integers of many words times powers of two. N is not negative
 * (Cauchy-Schwarz), so neither is the result.
 *
 * Then N is shifted until N / D has 126 to 128 bits before the point, and divided (shared/limbs.h):
 * at most five words of quotient, whatever the length of N. Of the remainder of shift and division,
 * rounding only needs whether it is zero. A root is that of the quotient's integer, with an even
 * exponent: floor(sqrt(x)) is floor(sqrt(floor(x))), so that its 63 or 64 bits are those of the
 * root of N / D itself. Every float type keeps 53 bits or fewer of them: one rounding is left, that
 * of exact.c.
 *
 * Lengths, for float64, whose numbers are the longest: S below 2^1088 in units of 2^-1074, Q below
 * 2^2112 in units of 2^-2148, so that S^2 and n Q are between 2^-2148 and 2^2176: 136 words, of
 * GPR_EXACT_NUMBER_WORDS. D is shorter: 64 bits of n times n - ddof, which is between 2^-1074 and
 * 2^1025. */
#include <math.h>
#include <string.h>

#include "lib/base/float_bits.h"
#include "lib/exact/exact.h"
#include "shared/limbs.h"

enum {
    WORD_BITS = GPR_EXACT_WORD_BITS,
    /* of a quotient; or one fewer, or one more */
    QUOTIENT_BITS = GPR_QUOTIENT_LIMBS * GPR_LIMB32_BITS - 1,
    FRACTION_BITS = GPR_FLOAT64_FRACTION,
    LAST_FIELD = (1 << GPR_FLOAT64_EXPONENT) - 1 /* exponent field of infinities and NaN */
};

typedef gpr_exact_number number;

/* ---------------------------------------------------------------- whole numbers -------------- */

static number number_from(unsigned __int128 bits, int exponent)
{
    number m = {.count = 0, .exponent = exponent};

    for (; bits != 0; bits >>= WORD_BITS) m.words[m.count++] = (uint32_t)bits;
    return m;
}

/* Removes words of zeros from both ends. */
static void trim(number *m)
{
    int low = 0;

    m->count = gpr_limbs_used(m->words, m->count);
    while (low < m->count && m->words[low] == 0) low++;
    m->count -= low;
    m->exponent += low * WORD_BITS;
    memmove(m->words, m->words + low, (size_t)m->count * sizeof *m->words);
}

/* The same number with an exponent that is `bits` lower. */
static void raise(number *m, int bits)
{
    const int words = bits / WORD_BITS, shift = bits % WORD_BITS;
    uint32_t carry = 0;

    memmove(m->words + words, m->words, (size_t)m->count * sizeof *m->words);
    memset(m->words, 0, (size_t)words * sizeof *m->words);
    carry = gpr_limbs_shift_left(m->words + words, m->count, shift);
    m->count += words;
    if (carry != 0) m->words[m->count++] = carry;
    m->exponent -= bits;
}

/* Drops the lowest `bits` bits, fewer than there are. Returns whether one of them was set. */
static int lower(number *m, int bits)
{
    const int words = bits / WORD_BITS, shift = bits % WORD_BITS;
    uint32_t dropped = 0;

    for (int i = 0; i < words; i++) dropped |= m->words[i];
    dropped |= m->words[words] & ((UINT32_C(1) << shift) - 1);
    m->count -= words;
    for (int i = 0; i < m->count; i++) {
        const uint64_t above = i + 1 < m->count ? m->words[words + i + 1] : 0;
        m->words[i] = (uint32_t)((above << WORD_BITS | m->words[words + i]) >> shift);
    }
    m->exponent += bits;
    return dropped != 0;
}

static void multiply(const number *a, const number *b, number *product)
{
    product->count = a->count + b->count;
    product->exponent = a->exponent + b->exponent;
    memset(product->words, 0, (size_t)product->count * sizeof *product->words);
    for (int i = 0; i < a->count; i++) {
        uint64_t carry = 0;

        for (int j = 0; j < b->count; j++) {
            carry += product->words[i + j] + (uint64_t)a->words[i] * b->words[j];
            product->words[i + j] = (uint32_t)carry;
            carry >>= WORD_BITS;
        }
        product->words[i + b->count] = (uint32_t)carry;
    }
    trim(product);
}

/* a += sign * b. Returns whether the sum is below zero, and then it means nothing. Changes b's
 * exponent, not its number. */
static int add(number *a, number *b, int sign)
{
    int64_t carry = 0;

    if (b->count == 0) return 0;
    if (a->count == 0) a->exponent = b->exponent;
    if (a->exponent > b->exponent)
        raise(a, a->exponent - b->exponent);
    else
        raise(b, b->exponent - a->exponent);
    for (int i = 0; i < b->count || (i < a->count && carry != 0); i++) {
        if (i == a->count) a->words[a->count++] = 0;
        carry += a->words[i];
        if (i < b->count) carry += sign * (int64_t)b->words[i];
        a->words[i] = (uint32_t)carry;
        carry >>= WORD_BITS;
    }
    if (carry > 0) a->words[a->count++] = (uint32_t)carry;
    trim(a);
    return carry < 0;
}

/* ---------------------------------------------------------------- quotients ------------------ */

/* a / b, neither zero, as 126 to 128 bits times 2^*exponent, which is even, and a little more if
 * *inexact. Uses both up. */
static unsigned __int128 divide(number *a, number *b, int *exponent, int *inexact)
{
    gpr_quotient quotient;
    int shift;

    while (b->count < GPR_LEAST_DIVISOR_LIMBS) raise(b, WORD_BITS);
    raise(b, __builtin_clz(b->words[b->count - 1]));
    shift = gpr_exact_number_length(b) + QUOTIENT_BITS - gpr_exact_number_length(a);
    if ((a->exponent - shift - b->exponent) % 2 != 0) shift--;
    *inexact = 0;
    if (shift >= 0)
        raise(a, shift);
    else
        *inexact = lower(a, -shift);
    *exponent = a->exponent - b->exponent;
    a->words[a->count] = 0;
    quotient = gpr_limbs_divide(a->words, b->words, b->count, a->count - b->count + 1);
    *inexact |= quotient.inexact;
    return (unsigned __int128)quotient.high << 64 | quotient.low;
}

/* The root without its fraction. */
static uint64_t root_of(unsigned __int128 square)
{
    uint64_t root = 0;

    for (uint64_t bit = UINT64_C(1) << 63; bit != 0; bit >>= 1)
        if ((unsigned __int128)(root | bit) * (root | bit) <= square) root |= bit;
    return root;
}

/* ---------------------------------------------------------------- variances ------------------ */

/* A finite double without its sign. From its bits: whose thread this is may read subnormal
 * numbers as 0. */
static number number_of_double(double value)
{
    const int least = gpr_float_lowest(GPR_FLOAT64_FRACTION, GPR_FLOAT64_EXPONENT);
    const uint64_t bits = gpr_bits_of_double(value);
    const uint64_t fraction = bits & ((UINT64_C(1) << FRACTION_BITS) - 1);
    const int field = (int)(bits >> FRACTION_BITS & LAST_FIELD);
    number m;

    if (field == 0)
        m = number_from(fraction, least);
    else
        m = number_from(fraction | UINT64_C(1) << FRACTION_BITS, field - 1 + least);
    trim(&m);
    return m;
}

/* n - ddof. Returns whether it is above zero. */
static int count_freedom(uint64_t n, double ddof, number *freedom)
{
    number less = number_of_double(ddof);

    *freedom = number_from(n, 0);
    return !add(freedom, &less, signbit(ddof) ? 1 : -1) && freedom->count > 0;
}

/* n Q - S^2, or the same of both parts. */
static void subtract_squares(const gpr_exact_part *sums, int parts, const gpr_exact_part *squares,
                             number *all)
{
    const number n = number_from(sums[0].count, 0);
    number sum = gpr_exact_number_of(squares), square;

    trim(&sum);
    multiply(&n, &sum, all);
    for (int p = 0; p < parts; p++) {
        sum = gpr_exact_number_of(&sums[p]);
        trim(&sum);
        multiply(&sum, &sum, &square);
        (void)add(all, &square, -1); /* never below zero */
    }
}

void gpr_exact_variance(const gpr_exact_part *sums, int parts, const gpr_exact_part *squares,
                        double ddof, int root, gpr_dtype result, void *value)
{
    const uint64_t count = sums[0].count;
    number numerator, divisor, freedom, n;
    int exponent = 0, inexact = 0;
    unsigned __int128 bits;

    if (gpr_exact_has_special(squares)) {
        gpr_exact_store_nan(result, value);
        return;
    }
    subtract_squares(sums, parts, squares, &numerator);
    if (isinf(ddof) ? ddof > 0 : !count_freedom(count, ddof, &freedom)) {
        if (numerator.count == 0)
            gpr_exact_store_nan(result, value);
        else
            gpr_exact_store_infinity(result, value);
        return;
    }
    if (numerator.count == 0 || isinf(ddof)) {
        numerator = number_from(0, 0);
        gpr_exact_store_rounded(&numerator, result, value);
        return;
    }
    n = number_from(count, 0);
    multiply(&n, &freedom, &divisor);
    bits = divide(&numerator, &divisor, &exponent, &inexact);
    if (root) {
        const uint64_t whole = root_of(bits);

        inexact |= (unsigned __int128)whole * whole != bits;
        bits = whole;
        exponent /= 2;
    }
    numerator = number_from(bits, exponent);
    numerator.inexact = inexact;
    gpr_exact_store_rounded(&numerator, result, value);
}

void gpr_exact_root(const gpr_exact_part *squares, gpr_dtype result, void *value)
{
    gpr_exact_part nothing;

    if ((squares->flags & GPR_EXACT_NAN) == 0 && gpr_exact_has_special(squares)) {
        gpr_exact_store_infinity(result, value);
        return;
    }
    /* The deviation of one element whose sum is 0. */
    gpr_exact_clear(&nothing, squares->dtype);
    nothing.count = 1;
    gpr_exact_variance(&nothing, 1, squares, 0, 1, result, value);
}
