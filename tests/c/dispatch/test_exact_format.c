/* Exact sums of every pair and triple of a scaled-down float format, rounded to it and divided,
 * beside a search of all its numbers; and one number that is no ordinary one at every place of a
 * tile.
 *
 * The code is that of all formats, compiled in here: how many bits a format has is a constant of
 * it. */
#include "lib/exact/exact.c"

#include <stdlib.h>

#include "check.h"
#include "cpu/exact_tiles.h"
#include "cpu/loops.h"

/* ---------------------------------------------------------------- a scaled-down format ------- */

/* A finite number in units of the smallest; of infinity what would be the next number above the
 * largest. */
static int64_t magnitude_of(format f, uint64_t bits)
{
    const uint64_t field = bits >> f.fraction, fraction = bits & ((UINT64_C(1) << f.fraction) - 1);

    return (int64_t)(field == 0 ? fraction : (fraction | UINT64_C(1) << f.fraction) << (field - 1));
}

static int is_infinite(format f, uint64_t magnitude)
{
    return magnitude == (uint64_t)last_exponent(f) << f.fraction;
}

/* The number nearest to sum / count of all there are, of two the even one; infinity counts as a
 * number that is even. */
static uint64_t nearest(format f, int64_t sum, int64_t count)
{
    const int64_t wanted = sum < 0 ? -sum : sum;
    uint64_t best = 0;

    for (uint64_t bits = 1; bits <= (uint64_t)last_exponent(f) << f.fraction; bits++) {
        const int64_t from_best = llabs(magnitude_of(f, best) * count - wanted);
        const int64_t from_this = llabs(magnitude_of(f, bits) * count - wanted);

        if (from_this < from_best || (from_this == from_best && bits % 2 == 0)) best = bits;
    }
    return best;
}

/* The sum or mean of elements by a search. */
static uint64_t search(format f, const uint64_t *elements, int count, int mean)
{
    const uint64_t sign = UINT64_C(1) << (f.fraction + f.exponent),
                   infinity = (uint64_t)last_exponent(f) << f.fraction;
    const uint64_t quiet = infinity | UINT64_C(1) << (f.fraction - 1);
    int64_t sum = 0;
    int above = 0, below = 0, minus_zeros = 0;

    for (int i = 0; i < count; i++) {
        const uint64_t magnitude = elements[i] & ~sign;
        const int negative = (elements[i] & sign) != 0;

        if (magnitude > infinity) return quiet;
        above |= is_infinite(f, magnitude) && !negative;
        below |= is_infinite(f, magnitude) && negative;
        minus_zeros += elements[i] == sign;
        if (!is_infinite(f, magnitude))
            sum += negative ? -magnitude_of(f, magnitude) : magnitude_of(f, magnitude);
    }
    if (above || below) return above && below ? quiet : infinity | (below ? sign : 0);
    if (sum == 0) return minus_zeros == count ? sign : 0;
    return nearest(f, sum, mean ? count : 1) | (sum < 0 ? sign : 0);
}

static void check_elements(format f, const uint64_t *elements, int count)
{
    gpr_exact_part part, halves, other;
    char bytes[3]; /* an element fills one, of which it has the lowest bits */
    uint64_t got[2][2];

    /* At once, and as two parts. A layout of any dtype has room: elements lie on it from its
     * lowest place up. */
    gpr_exact_clear(&part, GPR_FLOAT16);
    part.layout.lowest = unit_exponent(f);
    halves = other = part;
    for (int i = 0; i < count; i++) {
        gpr_exact_part *half = i % 2 == 0 ? &halves : &other;

        bytes[i] = (char)elements[i];
        half->count++;
        half->flags |=
            elements[i] != UINT64_C(1) << (f.fraction + f.exponent) ? GPR_EXACT_NOT_MINUS_ZERO : 0;
        add_floats(half, &bytes[i], 1, f, 0);
    }
    part.count = (uint64_t)count;
    part.flags = halves.flags | other.flags;
    add_floats(&part, bytes, (uint64_t)count, f, 0);
    CHECK(gpr_exact_add_part(&halves, &other) == GPR_OK, "merge");
    gpr_exact_carry(&part);
    gpr_exact_carry(&halves);
    CHECK(memcmp(part.words, halves.words, sizeof part.words) == 0 && part.flags == halves.flags,
          "parts");
    for (int mean = 0; mean < 2; mean++) {
        const uint64_t wanted = search(f, elements, count, mean);
        gpr_exact_number m = gpr_exact_number_of(&part);

        if (mean) divide(&m, part.count);
        got[mean][0] = float_bits_of(&part, &m, f);
        m = gpr_exact_number_of(&halves);
        if (mean) divide(&m, halves.count);
        got[mean][1] = float_bits_of(&halves, &m, f);
        CHECK(got[mean][0] == wanted && got[mean][1] == wanted,
              "%s of %#" PRIx64 " %#" PRIx64 " %#" PRIx64 ", %d: %#" PRIx64 ", not %#" PRIx64,
              mean ? "mean" : "sum", elements[0], elements[1], elements[2], count, got[mean][0],
              wanted);
    }
}

/* Formats of up to 8 bits: elements are bytes. */
static void test_every_sum_of_a_small_format(void)
{
    static const format formats[] = {{1, 2}, {2, 2}, {1, 3}, {2, 3}, {3, 2}};

    for (size_t k = 0; k < sizeof formats / sizeof formats[0]; k++) {
        const format f = formats[k];
        const uint64_t end = UINT64_C(1) << (1 + f.fraction + f.exponent);
        uint64_t elements[3] = {0};

        for (elements[0] = 0; elements[0] < end; elements[0]++)
            for (elements[1] = 0; elements[1] < end; elements[1]++) {
                check_elements(f, elements, 2);
                /* Order does not matter, as the pairs have shown. */
                for (elements[2] = elements[1]; elements[2] < end; elements[2]++)
                    check_elements(f, elements, 3);
                elements[2] = 0;
            }
    }
}

/* ---------------------------------------------------------------- parts ---------------------- */

/* Parts whose carries are still to be propagated, both as full as they may be, add up. */
static void test_full_parts_add_up(void)
{
    gpr_exact_part one, other, wanted;

    gpr_exact_clear(&one, GPR_FLOAT64);
    one.pending = MOST_PENDING;
    for (int i = 0; i < one.layout.words - 1; i++)
        one.words[i] =
            (int64_t)one.pending * (check_between(0, 1) ? INT64_C(1) : INT64_C(-1)) * UINT32_MAX;
    other = wanted = one;
    gpr_exact_carry(&wanted);
    for (int i = 0; i < 6; i++) {
        gpr_exact_part carried = other;

        CHECK(gpr_exact_add_part(&one, &other) == GPR_OK, "full");
        gpr_exact_carry(&carried);
        CHECK(gpr_exact_add_part(&wanted, &carried) == GPR_OK, "carried");
        CHECK(one.pending <= 2 * (uint64_t)MOST_PENDING + 2, "%" PRIu64 " pending", one.pending);
    }
    gpr_exact_carry(&one);
    gpr_exact_carry(&wanted);
    CHECK(memcmp(one.words, wanted.words, sizeof one.words) == 0, "words");
}

/* ---------------------------------------------------------------- every place of a tile ------ */

/* One element of another kind, at every place among elements that bins hold, or among -0. */
static void test_one_flagged_element_at_every_place_of_a_tile(void)
{
    static const char *const isas[] = {"avx512", "avx2", "baseline"};
    static const gpr_dtype floats[] = {GPR_FLOAT16, GPR_BFLOAT16, GPR_FLOAT32, GPR_FLOAT64};
    static _Alignas(64) char values[GPR_EXACT_TILE * sizeof(double)];
    enum { KINDS = 5 };

    for (size_t s = 0; s < sizeof isas / sizeof isas[0]; s++) {
        if (gpr_set_cpu_isa(isas[s]) != GPR_OK) continue;
        for (size_t d = 0; d < sizeof floats / sizeof floats[0]; d++) {
            const format f = format_of(floats[d]);
            const size_t bytes = gpr_dtype_bytes(floats[d]);
            const uint64_t sign = UINT64_C(1) << (f.fraction + f.exponent),
                           infinity = infinity_of(f);
            const uint64_t specials[KINDS] = {infinity, infinity | sign, nan_of(f),
                                              infinity | sign | 1, 0};
            const uint32_t flags[KINDS] = {GPR_EXACT_INFINITY, GPR_EXACT_MINUS_INFINITY,
                                           GPR_EXACT_NAN, GPR_EXACT_NAN, 0};
            const uint64_t count = (uint64_t)check_between(GPR_EXACT_TILE - 70, GPR_EXACT_TILE);
            const int first = (int)check_between(0, KINDS - 1);

            for (uint64_t place = 0; place < count; place++) {
                const int kind = (int)((place + (uint64_t)first) % KINDS);
                const int ones = check_between(0, 1) && kind < KINDS - 1;
                const uint64_t plain = ones ? (uint64_t)(last_exponent(f) / 2) << f.fraction : sign;
                static tile_memory memory;
                gpr_exact_part part;
                exact_adder adder;

                for (uint64_t i = 0; i < count; i++)
                    memcpy(values + i * bytes, i == place ? &specials[kind] : &plain, bytes);
                gpr_exact_clear(&part, floats[d]);
                adder = gpr_cpu_exact_adder(&part, floats[d], &memory);
                gpr_cpu_add_tile(&adder, values, count);
                gpr_exact_carry(&part);
                CHECK(part.flags == (flags[kind] | GPR_EXACT_NOT_MINUS_ZERO) && part.count == count,
                      "%s %s: flags %#x of %#" PRIx64 " at %" PRIu64, isas[s],
                      gpr_dtype_name(floats[d]), part.flags, specials[kind], place);
                gpr_exact_add_integer(&part, ones ? 1 - (int64_t)count : 0, 0);
                gpr_exact_carry(&part);
                const gpr_exact_number left = gpr_exact_number_of(&part);
                CHECK(gpr_exact_number_length(&left) == 0, "%s %s: the others' sum, %" PRIu64,
                      isas[s], gpr_dtype_name(floats[d]), place);
            }
        }
    }
    (void)gpr_set_cpu_isa(NULL);
}

int main(void)
{
    check_begin();
    test_every_sum_of_a_small_format();
    test_full_parts_add_up();
    test_one_flagged_element_at_every_place_of_a_tile();
    return check_end();
}
