/* Exact sums; see exact.h. Adding, merging and rounding. Nothing here computes with floats. */
#include "lib/exact/exact.h"

#include <string.h>

#include "lib/base/convert.h"
#include "lib/base/float_bits.h"
#include "lib/base/registry.h"
#include "lib/base/status.h"

/* ---------------------------------------------------------------- formats of floats ---------- */

/* A binary floating-point format: `fraction` stored bits of the significand, `exponent` bits of
 * the exponent. */
typedef struct format {
    int fraction, exponent;
} format;

static format format_of(gpr_dtype dtype)
{
    return (format){gpr_dtype_rows[dtype].fraction, gpr_dtype_rows[dtype].exponent};
}

/* A format as constants, for loops over elements. */
#define FORMAT(ID) ((format){GPR_##ID##_FRACTION, GPR_##ID##_EXPONENT})

/* Exponent field of infinities and NaN. */
static int last_exponent(format f)
{
    return (1 << f.exponent) - 1;
}

/* Exponent of the smallest subnormal number, which every number of the format is a multiple of. */
static int unit_exponent(format f)
{
    return gpr_float_lowest(f.fraction, f.exponent);
}

static int is_float(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind == GPR_KIND_FLOAT;
}

static int is_complex(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind == GPR_KIND_COMPLEX;
}

/* ---------------------------------------------------------------- the layout ----------------- */

enum {
    WORD_BITS = GPR_EXACT_WORD_BITS,
    /* Bound: a carried word and each number added to it are below 2^32 in magnitude, so that a word
     * stays below (2^30 + 1) * 2^32 < 2^63. */
    MOST_PENDING = 1 << 30
};

static void count_words(gpr_exact_layout *layout)
{
    layout->words = gpr_exact_words(layout->lowest, layout->highest);
}

gpr_exact_layout gpr_exact_layout_of(gpr_dtype dtype)
{
    const gpr_dtype_row *row = &gpr_dtype_rows[dtype];
    const int negative = row->kind == GPR_KIND_SIGNED || row->kind == GPR_KIND_FLOAT;
    gpr_exact_layout layout = {.lowest = 0, .highest = (int)row->bytes * 8, .negative = negative};

    if (row->kind == GPR_KIND_FLOAT) {
        const format f = format_of(dtype);
        layout.lowest = unit_exponent(f);
        layout.highest = gpr_float_highest(f.exponent);
    }
    count_words(&layout);
    return layout;
}

int gpr_exact_accepts(gpr_dtype dtype, gpr_dtype element)
{
    const gpr_exact_layout sum = gpr_exact_layout_of(dtype), part = gpr_exact_layout_of(element);

    return part.lowest >= sum.lowest && part.highest <= sum.highest &&
           part.negative <= sum.negative && is_float(element) <= is_float(dtype);
}

/* ---------------------------------------------------------------- adding --------------------- */

void gpr_exact_clear(gpr_exact_part *part, gpr_dtype dtype)
{
    memset(part, 0, sizeof *part);
    part->dtype = dtype;
    part->layout = gpr_exact_layout_of(dtype);
}

gpr_dtype gpr_exact_product_dtype(gpr_dtype element)
{
    const format f = format_of(element);

    return gpr_product_is_float64(f.fraction, f.exponent) ? GPR_FLOAT64 : element;
}

int gpr_pair_sum_is_float64(gpr_dtype element)
{
    const format f = format_of(element);

    return is_float(element) && gpr_sum_is_float64(f.fraction, f.exponent, GPR_PAIR_SHARE_BITS);
}

void gpr_exact_clear_products(gpr_exact_part *part, gpr_dtype element)
{
    const gpr_dtype product = gpr_exact_product_dtype(element);

    gpr_exact_clear(part, product);
    if (product != element) return;
    part->layout.lowest *= 2;
    part->layout.highest *= 2;
    count_words(&part->layout);
}

/* Shifting a negative number right rounds down on every compiler this builds with: a carry is a
 * floor. */
_Static_assert((int64_t)-1 >> 1 == -1, "right shifts of negative numbers are arithmetic");

void gpr_exact_carry(gpr_exact_part *part)
{
    const int last = part->layout.words - 1;

    for (int i = 0; i < last; i++) {
        const int64_t carry = part->words[i] >> WORD_BITS;
        part->words[i] &= UINT32_MAX;
        part->words[i + 1] += carry;
    }
    part->pending = 0;
}

/* Makes room for `count` more numbers in every word. */
static void make_room(gpr_exact_part *part, uint64_t count)
{
    if (part->pending + count > MOST_PENDING) gpr_exact_carry(part);
    part->pending += count;
}

/* Adds magnitude * 2^(32 * (words - part->words) + shift), negated if `sign` is -1 and not if it
 * is 0. */
static inline void add_shifted(int64_t *words, uint64_t magnitude, int shift, int64_t sign)
{
    const uint64_t low = magnitude << shift;
    const uint64_t high = magnitude >> 1 >> (63 - shift);

    words[0] += ((int64_t)(low & UINT32_MAX) ^ sign) - sign;
    words[1] += ((int64_t)(low >> WORD_BITS) ^ sign) - sign;
    words[2] += ((int64_t)high ^ sign) - sign;
}

void gpr_exact_add_integer(gpr_exact_part *part, int64_t value, int exponent)
{
    const int position = exponent - part->layout.lowest;
    const int64_t sign = value < 0 ? -1 : 0;
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    if (magnitude == 0) return;
    make_room(part, 1);
    if (position < 0) {
        add_shifted(part->words, magnitude >> -position, 0, sign); /* the lost bits are 0 */
    } else {
        add_shifted(part->words + position / WORD_BITS, magnitude, position % WORD_BITS, sign);
    }
}

static uint32_t special_flag(uint64_t fraction, int negative)
{
    if (fraction != 0) return GPR_EXACT_NAN;
    return negative ? GPR_EXACT_MINUS_INFINITY : GPR_EXACT_INFINITY;
}

/* Adds floats. Inlined for each format, so that its numbers are constants of the loop. */
static inline __attribute__((always_inline)) void add_floats(gpr_exact_part *part,
                                                             const char *elements, uint64_t count,
                                                             const format f, int offset)
{
    const int bits_but_sign = f.fraction + f.exponent;
    const size_t bytes = ((size_t)bits_but_sign + 8) / 8; /* rounded up */

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bits = gpr_load_bits(elements, bytes, i);
        const uint64_t fraction = bits & ((UINT64_C(1) << f.fraction) - 1);
        const uint32_t exponent = (uint32_t)(bits >> f.fraction) & (uint32_t)last_exponent(f);
        const uint32_t normal = exponent != 0;
        const uint32_t position = (uint32_t)offset + exponent - normal;
        const uint64_t negative = bits >> bits_but_sign;

        if (exponent == (uint32_t)last_exponent(f)) {
            part->flags |= special_flag(fraction, negative != 0);
            continue;
        }
        add_shifted(part->words + position / WORD_BITS, fraction | (uint64_t)normal << f.fraction,
                    (int)(position % WORD_BITS), -(int64_t)negative);
    }
}

/* Adds integers as the sums of their low and high halves, which fit 64 bits per wide block. */
static void add_integers(gpr_exact_part *part, gpr_dtype element, const char *elements,
                         uint64_t count)
{
    const size_t bytes = gpr_dtype_rows[element].bytes;
    const int is_signed = gpr_wide_of(element) == GPR_WIDE_SIGNED;
    gpr_wide_block block;

    for (uint64_t done = 0; done < count;) {
        const uint64_t step = count - done < GPR_WIDE_ELEMENTS ? count - done : GPR_WIDE_ELEMENTS;
        int64_t low = 0, high = 0;

        gpr_load_wide(element, elements + done * bytes, step, &block);
        for (uint64_t i = 0; i < step; i++) {
            low += (int64_t)(block.u64[i] & UINT32_MAX);
            high += (int64_t)(block.u64[i] >> WORD_BITS);
        }
        /* The high half of a negative number was read as 2^32 too large. */
        if (is_signed)
            for (uint64_t i = 0; i < step; i++) high -= (int64_t)(block.u64[i] >> 63) << WORD_BITS;
        gpr_exact_add_integer(part, low, 0);
        gpr_exact_add_integer(part, high, WORD_BITS);
        done += step;
    }
}

void gpr_exact_add_elements(gpr_exact_part *part, gpr_dtype element, const void *elements,
                            uint64_t count)
{
    const size_t bytes = gpr_dtype_rows[element].bytes;
    const int offset = gpr_exact_layout_of(element).lowest - part->layout.lowest;
    const char *at = elements;

    if ((part->flags & GPR_EXACT_NOT_MINUS_ZERO) == 0)
        part->flags |= gpr_exact_zero_flag(element, elements, count);
    part->count += count;
    while (count > 0) {
        const uint64_t step = count < MOST_PENDING ? count : MOST_PENDING;

        make_room(part, step);
        switch (element) {
#define ADD_GPR_KIND_BOOL(ID)
#define ADD_GPR_KIND_SIGNED(ID)
#define ADD_GPR_KIND_UNSIGNED(ID)
#define ADD_GPR_KIND_COMPLEX(ID)
#define ADD_GPR_KIND_FLOAT(ID) \
    case GPR_##ID: add_floats(part, at, step, FORMAT(ID), offset); break;
#define GPR_DTYPE(ID, name, bytes, kind, ...) ADD_##kind(ID)
#include "dtypes.def"
#undef GPR_DTYPE
        default: add_integers(part, element, at, step); break;
        }
        at += step * bytes;
        count -= step;
    }
}

/* ---------------------------------------------------------------- products ------------------- */

/* Numbers that add_shifted_wide adds to a word, at most. */
enum { WIDE_ADDITIONS = 2 };

/* add_shifted for a magnitude of 128 bits. */
static inline void add_shifted_wide(int64_t *words, unsigned __int128 magnitude, int shift,
                                    int64_t sign)
{
    add_shifted(words, (uint64_t)magnitude, shift, sign);
    add_shifted(words + 2, (uint64_t)(magnitude >> 64), shift, sign);
}

/* An element of float64 as an integer: magnitude * 2^(position - 1074). */
typedef struct split_double {
    uint64_t magnitude;
    uint32_t position;
    int is_special;
} split_double;

static inline split_double split(uint64_t bits)
{
    const format f = FORMAT(FLOAT64);
    const uint64_t fraction = bits & ((UINT64_C(1) << f.fraction) - 1);
    const uint32_t exponent = (uint32_t)(bits >> f.fraction) & (uint32_t)last_exponent(f),
                   normal = exponent != 0;

    return (split_double){fraction | (uint64_t)normal << f.fraction, exponent - normal,
                          exponent == (uint32_t)last_exponent(f)};
}

/* The flag of a product with an infinite or NaN factor. */
static uint32_t special_product_flag(uint64_t a, uint64_t b, int negative)
{
    const format f = FORMAT(FLOAT64);
    const uint64_t twice_infinity = (uint64_t)last_exponent(f) << (f.fraction + 1),
                   twice_a = a << 1, twice_b = b << 1;

    if (twice_a > twice_infinity || twice_b > twice_infinity || twice_a == 0 || twice_b == 0)
        return GPR_EXACT_NAN;
    return negative ? GPR_EXACT_MINUS_INFINITY : GPR_EXACT_INFINITY;
}

static void add_double_products(gpr_exact_part *part, const char *a, const char *b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bits_a = gpr_load_bits(a, sizeof(double), i),
                       bits_b = gpr_load_bits(b, sizeof(double), i);
        const split_double x = split(bits_a), y = split(bits_b);
        const uint64_t negative = (bits_a ^ bits_b) >> 63;
        const uint32_t position = x.position + y.position;

        if (x.is_special || y.is_special) {
            part->flags |= special_product_flag(bits_a, bits_b, negative != 0);
            continue;
        }
        add_shifted_wide(part->words + position / WORD_BITS,
                         (unsigned __int128)x.magnitude * y.magnitude, (int)(position % WORD_BITS),
                         -(int64_t)negative);
    }
}

/* Adds value * 2^exponent. */
static void add_wide_integer(gpr_exact_part *part, __int128 value, int exponent)
{
    const int64_t sign = value < 0 ? -1 : 0;

    make_room(part, WIDE_ADDITIONS);
    add_shifted_wide(part->words + exponent / WORD_BITS,
                     value < 0 ? -(unsigned __int128)value : (unsigned __int128)value,
                     exponent % WORD_BITS, sign);
}

/* Adds products of integers as the sums of their low and high halves, which fit 128 bits per wide
 * block. */
static void add_integer_products(gpr_exact_part *part, gpr_dtype element, const char *a,
                                 const char *b, uint64_t count)
{
    const size_t bytes = gpr_dtype_rows[element].bytes;
    const int is_signed = gpr_wide_of(element) == GPR_WIDE_SIGNED;
    gpr_wide_block x, y;

    for (uint64_t done = 0; done < count;) {
        const uint64_t step = count - done < GPR_WIDE_ELEMENTS ? count - done : GPR_WIDE_ELEMENTS;
        __int128 low = 0, high = 0;

        gpr_load_wide(element, a + done * bytes, step, &x);
        gpr_load_wide(element, b + done * bytes, step, &y);
        /* 64 bits hold each product, and bits beyond them its sign */
        if (bytes < sizeof(int64_t)) {
            if (is_signed)
                for (uint64_t i = 0; i < step; i++) low += x.i64[i] * y.i64[i];
            else
                for (uint64_t i = 0; i < step; i++) low += x.u64[i] * y.u64[i];
        } else {
            for (uint64_t i = 0; i < step; i++) {
                const unsigned __int128 product =
                    is_signed ? (unsigned __int128)((__int128)x.i64[i] * y.i64[i])
                              : (unsigned __int128)x.u64[i] * y.u64[i];
                low += (uint64_t)product;
                high += is_signed ? (__int128)(int64_t)(product >> 64)
                                  : (__int128)(uint64_t)(product >> 64);
            }
        }
        add_wide_integer(part, low, 0);
        if (high != 0) add_wide_integer(part, high, 64);
        done += step;
    }
}

void gpr_exact_add_products(gpr_exact_part *part, gpr_dtype element, const void *a, const void *b,
                            uint64_t count)
{
    const char *at_a = a, *at_b = b;

    part->count += count;
    if (!is_float(element)) {
        if (count > 0) part->flags |= GPR_EXACT_NOT_MINUS_ZERO;
        add_integer_products(part, element, at_a, at_b, count);
        return;
    }
    if ((part->flags & GPR_EXACT_NOT_MINUS_ZERO) == 0)
        part->flags |= gpr_exact_product_zero_flag(a, b, count);
    while (count > 0) {
        const uint64_t most = MOST_PENDING / WIDE_ADDITIONS, step = count < most ? count : most;

        make_room(part, step * WIDE_ADDITIONS);
        add_double_products(part, at_a, at_b, step);
        at_a += step * sizeof(double);
        at_b += step * sizeof(double);
        count -= step;
    }
}

uint32_t gpr_exact_product_zero_flag(const double *a, const double *b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t x = gpr_load_bits((const char *)a, sizeof *a, i),
                       y = gpr_load_bits((const char *)b, sizeof *b, i);
        const int is_zero =
            ((x << 1) == 0 || (y << 1) == 0) && !split(x).is_special && !split(y).is_special;

        if (!is_zero || (x ^ y) >> 63 == 0) return GPR_EXACT_NOT_MINUS_ZERO;
    }
    return 0;
}

/* ---------------------------------------------------------------- zeros and parts ------------ */

uint32_t gpr_exact_zero_flag(gpr_dtype element, const void *elements, uint64_t count)
{
    const size_t bytes = gpr_dtype_rows[element].bytes;
    const uint64_t minus_zero = UINT64_C(1) << (bytes * 8 - 1);

    if (!is_float(element)) return count > 0 ? GPR_EXACT_NOT_MINUS_ZERO : 0;
    for (uint64_t i = 0; i < count; i++)
        if (gpr_load_bits(elements, bytes, i) != minus_zero) return GPR_EXACT_NOT_MINUS_ZERO;
    return 0;
}

gpr_status gpr_exact_add_part(gpr_exact_part *part, const gpr_exact_part *other)
{
    const int words = part->layout.words;

    if (part->count + other->count < part->count)
        return gpr_fail(GPR_ERROR_VALUE,
                        "an exact sum has room for 2^64 - 1 elements: %llu and %llu are more",
                        (unsigned long long)part->count, (unsigned long long)other->count);
    make_room(part, other->pending + 1);
    for (int i = 0; i < words; i++) part->words[i] += other->words[i];
    part->flags |= other->flags;
    part->count += other->count;
    return GPR_OK;
}

void gpr_exact_repeat(gpr_exact_part *part, uint64_t times)
{
    const int last = part->layout.words - 1;
    __int128 carry = 0;

    gpr_exact_carry(part);
    for (int i = 0; i < last; i++) {
        carry += (__int128)part->words[i] * times;
        part->words[i] = (int64_t)(carry & UINT32_MAX);
        carry >>= WORD_BITS;
    }
    part->words[last] = (int64_t)(carry + (__int128)part->words[last] * times);
    part->count *= times;
}

/* ---------------------------------------------------------------- numbers -------------------- */

gpr_exact_number gpr_exact_number_of(const gpr_exact_part *part)
{
    const int count = part->layout.words;
    gpr_exact_number m;
    int64_t carry = 0;
    uint64_t more;

    m.count = count;
    m.exponent = part->layout.lowest;
    m.inexact = 0;
    for (int i = 0; i < count; i++) {
        carry += part->words[i];
        m.words[i] = (uint32_t)carry;
        carry >>= WORD_BITS;
    }
    m.negative = carry < 0;
    more = (uint64_t)m.negative;
    for (int i = 0; i < count && m.negative; i++) {
        more += ~m.words[i];
        m.words[i] = (uint32_t)more;
        more >>= WORD_BITS;
    }
    return m;
}

void gpr_exact_widen_part(gpr_exact_part *part, const gpr_exact_part *other)
{
    const gpr_exact_number m = gpr_exact_number_of(other);

    for (int i = 0; i < m.count; i++) {
        const int64_t word = m.words[i];
        gpr_exact_add_integer(part, m.negative ? -word : word, m.exponent + i * WORD_BITS);
    }
    part->flags |= other->flags;
    part->count += other->count;
}

int gpr_exact_number_length(const gpr_exact_number *number)
{
    for (int i = number->count - 1; i >= 0; i--)
        if (number->words[i] != 0) return (i + 1) * WORD_BITS - __builtin_clz(number->words[i]);
    return 0;
}

/* 64 bits from bit `first` up. */
static uint64_t bits_from(const gpr_exact_number *m, int first)
{
    const int word = first / WORD_BITS, shift = first % WORD_BITS;
    uint64_t w[3] = {0, 0, 0};

    for (int i = 0; i < 3; i++)
        if (word + i < m->count) w[i] = m->words[word + i];
    return (w[0] | w[1] << WORD_BITS) >> shift | (shift > 0 ? w[2] << (2 * WORD_BITS - shift) : 0);
}

static int any_below(const gpr_exact_number *m, int end)
{
    int i = 0;

    for (; (i + 1) * WORD_BITS <= end && i < m->count; i++)
        if (m->words[i] != 0) return 1;
    return end % WORD_BITS != 0 && i < m->count &&
           m->words[i] << (WORD_BITS - end % WORD_BITS) != 0;
}

/* Divides by n > 0. GPR_EXACT_QUOTIENT_WORDS new words below the number's give the quotient at
 * least 64 significant bits. */
static void divide(gpr_exact_number *m, uint64_t n)
{
    unsigned __int128 rest = 0;

    memmove(m->words + GPR_EXACT_QUOTIENT_WORDS, m->words, (size_t)m->count * sizeof *m->words);
    memset(m->words, 0, GPR_EXACT_QUOTIENT_WORDS * sizeof *m->words);
    m->count += GPR_EXACT_QUOTIENT_WORDS;
    m->exponent -= GPR_EXACT_QUOTIENT_WORDS * WORD_BITS;
    for (int i = m->count - 1; i >= 0; i--) {
        rest = rest << WORD_BITS | m->words[i];
        m->words[i] = (uint32_t)(rest / n);
        rest %= n;
    }
    m->inexact = rest != 0;
}

/* ---------------------------------------------------------------- rounding ------------------- */

static uint64_t infinity_of(format f)
{
    return (uint64_t)last_exponent(f) << f.fraction;
}

/* The one NaN. */
static uint64_t nan_of(format f)
{
    return infinity_of(f) | UINT64_C(1) << (f.fraction - 1);
}

/* The number rounded once to a format, to nearest, ties to even; without the sign. */
static uint64_t round_to(const gpr_exact_number *m, format f)
{
    const int length = gpr_exact_number_length(m), unit = unit_exponent(f);
    /* exponent of the leading bit */
    const int top = length - 1 + m->exponent;
    /* exponent of the result's last bit */
    const int last = top - f.fraction > unit ? top - f.fraction : unit;
    const int dropped = last - m->exponent;
    uint64_t kept;

    if (length == 0) return 0; /* a quotient that is not 0 has bits */
    if (top > unit + f.fraction + last_exponent(f)) return infinity_of(f);
    if (dropped <= 0) {
        kept = bits_from(m, 0) << -dropped;
    } else {
        const int half = bits_from(m, dropped - 1) & 1;
        const int rest = m->inexact || any_below(m, dropped - 1);

        kept = bits_from(m, dropped) & ((UINT64_C(1) << (f.fraction + 1)) - 1);
        kept += (uint64_t)(half && (rest || (kept & 1)));
    }
    /* A significand that was rounded up to the next power of two carries into the exponent, and
     * from the largest number into infinity. */
    kept += (uint64_t)(last - unit) << f.fraction;
    return kept < infinity_of(f) ? kept : infinity_of(f);
}

/* The bits of a sum or mean in a float type. Flags decide before the number, as in IEEE addition.
 * */
static uint64_t float_bits_of(const gpr_exact_part *part, const gpr_exact_number *m, format f)
{
    const uint32_t infinities = part->flags & (GPR_EXACT_INFINITY | GPR_EXACT_MINUS_INFINITY);
    const uint64_t sign = UINT64_C(1) << (f.fraction + f.exponent);
    uint64_t bits;

    if ((part->flags & GPR_EXACT_NAN) != 0 ||
        infinities == (GPR_EXACT_INFINITY | GPR_EXACT_MINUS_INFINITY))
        return nan_of(f);
    if (infinities != 0)
        return infinity_of(f) | (infinities == GPR_EXACT_MINUS_INFINITY ? sign : 0);
    bits = round_to(m, f);
    if (gpr_exact_number_length(m) == 0)
        return part->count > 0 && (part->flags & GPR_EXACT_NOT_MINUS_ZERO) == 0 ? sign : 0;
    return m->negative ? bits | sign : bits;
}

static void store_bits(uint64_t bits, gpr_dtype dtype, void *value)
{
    memcpy(value, &bits, gpr_dtype_rows[dtype].bytes);
}

void gpr_exact_store_rounded(const gpr_exact_number *number, gpr_dtype result, void *value)
{
    const format f = format_of(result);
    const uint64_t sign = (uint64_t)(number->negative != 0) << (f.fraction + f.exponent);

    store_bits(round_to(number, f) | sign, result, value);
}

void gpr_exact_store_infinity(gpr_dtype result, void *value)
{
    store_bits(infinity_of(format_of(result)), result, value);
}

void gpr_exact_store_nan(gpr_dtype result, void *value)
{
    store_bits(nan_of(format_of(result)), result, value);
}

static gpr_status integer_result(const gpr_exact_number *m, gpr_dtype result, void *value)
{
    const uint64_t most =
        result == GPR_UINT64 ? UINT64_MAX : (uint64_t)INT64_MAX + (uint64_t)m->negative;
    const uint64_t bits = bits_from(m, 0);

    if (gpr_exact_number_length(m) > 64 || bits > most || (m->negative && result == GPR_UINT64))
        return gpr_fail(GPR_ERROR_VALUE,
                        "the sum does not fit in %s: use float64, or the integer itself",
                        gpr_dtype_rows[result].name);
    store_bits(m->negative ? 0 - bits : bits, result, value);
    return GPR_OK;
}

/* ---------------------------------------------------------------- sums of any dtype ---------- */

int gpr_exact_parts(gpr_dtype element)
{
    return is_complex(element) ? GPR_EXACT_PARTS : 1;
}

int gpr_exact_clear_acc(gpr_acc_kind acc_kind, gpr_dtype element, gpr_exact_part *parts)
{
    const gpr_dtype real = gpr_real_dtype(element);
    const int components = gpr_exact_parts(element);

    for (int p = 0; p < components; p++) {
        if (acc_kind == GPR_ACC_EXACT_PRODUCTS)
            gpr_exact_clear_products(&parts[p], real);
        else
            gpr_exact_clear(&parts[p], real);
    }
    if (acc_kind != GPR_ACC_EXACT_MOMENTS) return components;
    gpr_exact_clear_products(&parts[components], real);
    return components + 1;
}

static size_t part_acc_bytes(const gpr_exact_part *part)
{
    return ((size_t)part->layout.words + GPR_EXACT_ACC_TAIL) * sizeof(int64_t);
}

size_t gpr_exact_acc_bytes(gpr_acc_kind acc_kind, gpr_dtype element)
{
    gpr_exact_part parts[GPR_EXACT_MOST_PARTS];
    const int count = gpr_exact_clear_acc(acc_kind, element, parts);
    size_t bytes = 0;

    for (int p = 0; p < count; p++) bytes += part_acc_bytes(&parts[p]);
    return bytes;
}

uint64_t gpr_exact_counters(gpr_acc_kind acc_kind, gpr_dtype element)
{
    const gpr_dtype real = gpr_real_dtype(element);
    const int limbs = gpr_exact_limbs(gpr_exact_layout_of(real).words);

    if (acc_kind != GPR_ACC_EXACT || !is_float(real))
        return gpr_exact_acc_bytes(acc_kind, element) / sizeof(uint64_t);
    return (uint64_t)gpr_exact_parts(element) * (uint64_t)(limbs + GPR_EXACT_ACC_TAIL);
}

uint64_t gpr_exact_partial_bytes(gpr_acc_kind acc_kind, gpr_dtype element)
{
    const gpr_dtype real = gpr_real_dtype(element);

    if (acc_kind != GPR_ACC_EXACT || !is_float(real)) return 0;
    return gpr_limb_partial_words((unsigned)gpr_exact_parts(element),
                                  (unsigned)gpr_dtype_rows[real].bytes) *
           sizeof(uint64_t);
}

int gpr_exact_read_acc(gpr_acc_kind acc_kind, gpr_dtype element, const void *packed,
                       gpr_exact_part *parts)
{
    const int count = gpr_exact_clear_acc(acc_kind, element, parts);
    const char *at = packed;
    uint64_t flags = 0;

    for (int p = 0; p < count; p++) {
        const size_t words = (size_t)parts[p].layout.words * sizeof(int64_t);

        memcpy(parts[p].words, at, words);
        memcpy(&parts[p].count, at + words, sizeof parts[p].count);
        memcpy(&flags, at + words + sizeof parts[p].count, sizeof flags);
        parts[p].flags = (uint32_t)flags;
        gpr_exact_carry(&parts[p]);
        at += part_acc_bytes(&parts[p]);
    }
    return count;
}

static void finish_integer(const gpr_exact_part *part, gpr_dtype result, void *value)
{
    const gpr_exact_number m = gpr_exact_number_of(part);
    const uint64_t bits = bits_from(&m, 0), number = m.negative ? 0 - bits : bits;

    if (result == GPR_BOOL)
        *(uint8_t *)value = gpr_exact_number_length(&m) > 0;
    else if (gpr_dtype_rows[result].bytes == 1)
        *(uint8_t *)value = (uint8_t)number;
    else
        store_bits(number, result, value);
}

void gpr_exact_finish(const gpr_exact_part *parts, gpr_dtype element, int divide_it,
                      gpr_dtype result, void *value)
{
    const gpr_dtype real = gpr_real_dtype(result);
    const size_t bytes = gpr_dtype_rows[real].bytes;

    if (!is_float(real)) {
        finish_integer(parts, result, value);
        return;
    }
    (void)gpr_exact_round(&parts[0], real, divide_it, value);
    if (!is_complex(result)) return;
    memset((char *)value + bytes, 0, bytes);
    if (is_complex(element))
        (void)gpr_exact_round(&parts[1], real, divide_it, (char *)value + bytes);
}

int gpr_exact_bit_length(const gpr_exact_part *part, int *negative)
{
    const gpr_exact_number m = gpr_exact_number_of(part);

    *negative = m.negative;
    return gpr_exact_number_length(&m);
}

gpr_status gpr_exact_round(const gpr_exact_part *part, gpr_dtype result, int mean, void *value)
{
    gpr_exact_part rounded = *part;
    gpr_exact_number m = gpr_exact_number_of(part);

    if (!is_float(result)) {
        if (!mean && !is_float(part->dtype) && (result == GPR_INT64 || result == GPR_UINT64))
            return integer_result(&m, result, value);
        return gpr_fail(GPR_ERROR_TYPE, "the %s of %s has no result of type %s",
                        mean ? "mean" : "exact sum", gpr_dtype_rows[part->dtype].name,
                        gpr_dtype_rows[result].name);
    }
    if (mean && part->count > 0) divide(&m, part->count);
    if (mean && part->count == 0) rounded.flags = GPR_EXACT_NAN; /* 0 / 0 */
    store_bits(float_bits_of(&rounded, &m, format_of(result)), result, value);
    return GPR_OK;
}
