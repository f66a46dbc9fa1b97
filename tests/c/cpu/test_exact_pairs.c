/* Rows as pairs of doubles: a pair equals the sum by integer arithmetic, or is reported as inexact;
 * its sum or quotient is rounded once. tests/exact/test_exact_rows.py compares with Python's
 * integers. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "cpu/exact_pairs.h"
#include "cpu/exact_plain.h"
#include "cpu/loops.h"
#include "lib/base/convert.h"
#include "lib/exact/exact.h"
#include "lib/rules/rules.h"
#include "request.h"

static const char *const isas[] = {"avx512", "avx2", "baseline"};
enum { ISAS = sizeof isas / sizeof isas[0] };

static const gpr_dtype results[] = {GPR_FLOAT16, GPR_BFLOAT16, GPR_FLOAT32, GPR_FLOAT64};
enum { RESULTS = sizeof results / sizeof results[0] };

/* A double with `bits` random bits, the first worth 2^exponent. */
static double number_of(int exponent, int bits)
{
    const uint64_t below =
        check_random() & (((UINT64_C(1) << 52) - 1) << (53 - bits)) & ((UINT64_C(1) << 52) - 1);
    const double x = ldexp(1 + ldexp((double)below, -52), exponent);

    return check_random() % 2 ? x : -x;
}

/* The second of a pair: nothing, half of the first's last place or next to that, or any number
 * of bits anywhere below. */
static double rest_for(double sum)
{
    int exponent;

    (void)frexp(sum, &exponent);
    switch (check_random() % 6) {
    case 0: return 0;
    case 1: return ldexp(check_random() % 2 ? 1 : -1, exponent - 54);
    case 2:
        return ldexp(check_random() % 2 ? 1 : -1, exponent - 54) *
               (1 + 0x1p-52 * (double)check_between(-1, 1));
    case 3: return -sum; /* nothing is left */
    case 4: return number_of(exponent - (int)check_between(0, 60), (int)check_between(1, 53));
    default: return number_of(exponent - 54 - (int)check_between(0, 60), (int)check_between(1, 53));
    }
}

/* A pair's result by integer arithmetic. */
static void reference(double sum, double rest, int divide, uint64_t n, gpr_dtype result,
                      void *value)
{
    const double both[2] = {sum, rest};
    gpr_exact_part part;

    gpr_exact_clear(&part, GPR_FLOAT64);
    gpr_exact_add_elements(&part, GPR_FLOAT64, both, rest == 0 ? 1 : 2);
    part.count = n;
    part.flags |= GPR_EXACT_NOT_MINUS_ZERO; /* a sum starts at +0 */
    CHECK(gpr_exact_round(&part, result, divide, value) == GPR_OK, "%s", gpr_dtype_name(result));
}

static void test_pairs_are_rounded_once(void)
{
    enum { ROUNDS = 40000 };
    uint64_t certain = 0, all = 0;

    for (int round = 0; round < ROUNDS; round++) {
        const gpr_dtype result = results[check_random() % RESULTS];
        const int divide = (int)(check_random() % 2), is_far = check_random() % 16 == 0;
        const uint64_t n = check_random() % 2 ? (uint64_t)check_between(1, 20)
                                              : (uint64_t)check_between(1, PAIRED_ELEMENTS);
        gpr_rule rule;
        exact_pairs pairs = {.components = 1};
        uint8_t hold[PAIR_LANES], value[8];
        char got[PAIR_LANES * 8];

        CHECK(gpr_make_rule(divide ? GPR_OP_MEAN : GPR_OP_SUM, GPR_FLOAT64, GPR_DTYPE_DEFAULT,
                            &rule) == GPR_OK,
              "divide %d", divide);
        rule.result = result;
        for (int i = 0; i < PAIR_LANES; i++) {
            const int exponent =
                is_far ? (int)check_between(-1074, 1023) : (int)check_between(-30, 16);
            /* As many bits as a midpoint of the result, or as anything. */
            const int few = (int)gpr_dtype_bytes(result) == 8 ? 53 : (int)check_between(1, 27);

            pairs.sums[i] = number_of(exponent, check_random() % 2 ? few : 53) *
                            (check_random() % 4 ? 1 : (double)n);
            pairs.rests[i] = rest_for(pairs.sums[i]);
            if (check_random() % 32 == 0) pairs.sums[i] = pairs.rests[i] = 0;
            if (check_random() % 64 == 0) pairs.sums[i] = -0.0;
        }
        gpr_cpu_pairs_hold(&pairs, PAIR_LANES, 0, hold);
        gpr_cpu_finish_pairs(&pairs, &rule, PAIR_LANES, n, got, hold);
        for (int i = 0; i < PAIR_LANES; i++) {
            const size_t bytes = gpr_dtype_bytes(result);

            all += !is_far;
            if (!hold[i]) continue;
            certain += !is_far;
            reference(pairs.sums[i], pairs.rests[i], divide, n, result, value);
            CHECK(memcmp(value, got + (size_t)i * bytes, bytes) == 0, "%s of %a and %a over %llu",
                  gpr_dtype_name(result), pairs.sums[i], pairs.rests[i], (unsigned long long)n);
        }
    }
    CHECK(certain > all / 8 * 7, "%llu of %llu", (unsigned long long)certain,
          (unsigned long long)all);
}

/* Rows of one dtype whose numbers are `spread` binades apart. */
static void fill(gpr_dtype dtype, char *elements, uint64_t count, int spread)
{
    for (uint64_t i = 0; i < count; i++) {
        const double x =
            number_of((int)check_between(-spread / 2, spread / 2), dtype == GPR_FLOAT64 ? 53 : 24);
        const float f = (float)x;

        if (dtype == GPR_FLOAT64)
            memcpy(elements + i * sizeof x, &x, sizeof x);
        else
            memcpy(elements + i * sizeof f, &f, sizeof f);
    }
}

/* Whether a row's pair is the sum of its elements, `stride` of them apart. */
static int is_sum(const exact_pairs *pairs, uint64_t row, gpr_dtype dtype, const char *first,
                  uint64_t count, uint64_t stride)
{
    gpr_exact_part part, wanted;

    gpr_exact_clear(&part, dtype);
    gpr_exact_clear(&wanted, dtype);
    gpr_cpu_add_pairs(pairs, row, count, &part);
    for (uint64_t i = 0; i < count; i++)
        gpr_exact_add_elements(&wanted, dtype, first + i * stride * gpr_dtype_bytes(dtype), 1);
    gpr_exact_carry(&part);
    gpr_exact_carry(&wanted);
    return memcmp(part.words, wanted.words, (size_t)part.layout.words * sizeof part.words[0]) ==
               0 &&
           part.flags == wanted.flags && part.count == wanted.count;
}

static void test_pairs_hold_the_sum_or_say_no(void)
{
    enum { MOST = 300, ROUNDS = 60 };
    static double memory[PAIR_LANES * MOST];

    for (int i = 0; i < ISAS; i++) {
        uint64_t held = 0, easy = 0;

        if (gpr_set_cpu_isa(isas[i]) != GPR_OK) continue;
        for (int round = 0; round < ROUNDS; round++) {
            const gpr_dtype dtype = check_random() % 2 ? GPR_FLOAT32 : GPR_FLOAT64;
            const uint64_t rows = (uint64_t)check_between(2, PAIR_LANES),
                           n = (uint64_t)check_between(2, MOST);
            const int crosswise = (int)(check_random() % 2),
                      spread = check_random() % 2 ? 8 : (int)check_between(8, 200);
            const int64_t shape[2] = {(int64_t)(crosswise ? n : rows),
                                      (int64_t)(crosswise ? rows : n)};
            const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype);
            const int64_t strides[2] = {crosswise ? bytes : shape[1] * bytes,
                                        crosswise ? shape[1] * bytes : bytes};
            const int64_t order[2] = {(int64_t)rows, (int64_t)n};
            const gpr_request request = {.op = GPR_OP_SUM,
                                         .dtype = dtype,
                                         .compute = GPR_DTYPE_DEFAULT,
                                         .ndim = 2,
                                         .reduced = 1,
                                         .shape = order,
                                         .strides = strides,
                                         .data = memory,
                                         .kernel = -1};
            static pair_memory staging;
            uint8_t hold[PAIR_LANES];
            exact_pairs pairs;
            gpr_view view;

            fill(dtype, (char *)memory, rows * n, spread);
            CHECK(view_of(&request, &view) == GPR_OK && view.rows == rows && view.n == n,
                  "%llu by %llu", (unsigned long long)rows, (unsigned long long)n);
            CHECK(gpr_cpu_lies_crosswise(&view) == crosswise, "crosswise %d", crosswise);
            gpr_cpu_sum_pairs(&view, 0, rows, 0, n, &staging, &pairs);
            gpr_cpu_pairs_hold(&pairs, rows, 0, hold);
            for (uint64_t r = 0; r < rows; r++) {
                const char *first =
                    (const char *)memory + (crosswise ? r : r * n) * (uint64_t)bytes;

                easy += spread == 8;
                held += spread == 8 && hold[r];
                if (hold[r])
                    CHECK(is_sum(&pairs, r, dtype, first, n, crosswise ? rows : 1),
                          "%s rows %llu n %llu crosswise %d", isas[i], (unsigned long long)rows,
                          (unsigned long long)n, crosswise);
            }
        }
        CHECK(held == easy, "%s: %llu of %llu", isas[i], (unsigned long long)held,
              (unsigned long long)easy);
    }
    (void)gpr_set_cpu_isa(NULL);
}

/* Sums that are exact by the processor's flag equal those by integer arithmetic, block by block;
 * sums of easy numbers are exact. */
static void test_plain_sums_are_exact_or_say_no(void)
{
    enum { MOST = 300, ROUNDS = 120 };
    static double memory[PAIR_LANES * MOST];

    for (int i = 0; i < ISAS; i++) {
        uint64_t held = 0, easy = 0, refused = 0;

        if (gpr_set_cpu_isa(isas[i]) != GPR_OK) continue;
        for (int round = 0; round < ROUNDS; round++) {
            const gpr_dtype dtype = check_random() % 2 ? GPR_FLOAT32 : GPR_FLOAT64;
            const uint64_t rows = (uint64_t)check_between(2, PAIR_LANES),
                           n = (uint64_t)check_between(2, MOST),
                           cut = (uint64_t)check_between(1, (int)n - 1);
            const int crosswise = (int)(check_random() % 2),
                      spread = check_random() % 2 ? 8 : (int)check_between(8, 80);
            const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype);
            const int64_t strides[2] = {crosswise ? bytes : (int64_t)n * bytes,
                                        crosswise ? (int64_t)rows * bytes : bytes};
            const int64_t shape[2] = {(int64_t)rows, (int64_t)n};
            const gpr_request request = {.op = GPR_OP_SUM,
                                         .dtype = dtype,
                                         .compute = GPR_DTYPE_DEFAULT,
                                         .ndim = 2,
                                         .reduced = 1,
                                         .shape = shape,
                                         .strides = strides,
                                         .data = memory,
                                         .kernel = -1};
            static plain_memory staging;
            static plain_pairs pairs;
            plain_adder how;
            exact_pairs some = {.components = 1};
            gpr_rule rule;
            gpr_view view;

            fill(dtype, (char *)memory, rows * n, spread);
            CHECK(view_of(&request, &view) == GPR_OK && view.rows == rows && view.n == n,
                  "%llu by %llu", (unsigned long long)rows, (unsigned long long)n);
            CHECK(gpr_make_rule(GPR_OP_SUM, dtype, GPR_DTYPE_DEFAULT, &rule) == GPR_OK, "a rule");
            CHECK(gpr_cpu_make_plain_adder(&view, &rule, &how), "there is a flag");
            if (crosswise) (void)gpr_cpu_cut_plain_columns(&how);
            gpr_cpu_clear_plain(&pairs);
            easy += spread == 8;
            if (!gpr_cpu_sum_plain(&how, 0, rows, 0, cut, &staging, &pairs) ||
                !gpr_cpu_sum_plain(&how, 0, rows, cut, n, &staging, &pairs)) {
                refused++;
                continue;
            }
            held += spread == 8;
            memcpy(some.sums, pairs.sums, rows * sizeof(double));
            if (pairs.has_rests) memcpy(some.rests, pairs.rests, rows * sizeof(double));
            for (uint64_t r = 0; r < rows; r++) {
                const char *first =
                    (const char *)memory + (crosswise ? r : r * n) * (uint64_t)bytes;

                CHECK(!pairs.has_lost || pairs.lost[r] == 0, "%s row %llu", isas[i],
                      (unsigned long long)r);
                CHECK(is_sum(&some, r, dtype, first, n, crosswise ? rows : 1),
                      "%s rows %llu n %llu crosswise %d", isas[i], (unsigned long long)rows,
                      (unsigned long long)n, crosswise);
            }
        }
        CHECK(held == easy && refused > 0, "%s: %llu of %llu, %llu refused", isas[i],
              (unsigned long long)held, (unsigned long long)easy, (unsigned long long)refused);
    }
    (void)gpr_set_cpu_isa(NULL);
}

/* Results of plain sums, of one double or two, whose elements all count or were counted: those that
 * hold equal the results by integer arithmetic. */
static void test_plain_sums_are_rounded_once(void)
{
    enum { ROUNDS = 600, MOST_ROWS = 200 };
    static plain_pairs pairs;
    uint64_t certain = 0, all = 0;

    for (int round = 0; round < ROUNDS; round++) {
        const char *isa = isas[check_random() % ISAS];
        const gpr_dtype result = results[check_random() % RESULTS];
        const int divide = (int)(check_random() % 2), is_far = check_random() % 16 == 0;
        const uint64_t rows = (uint64_t)check_between(1, MOST_ROWS),
                       n = check_random() % 2 ? (uint64_t)check_between(1, 20)
                                              : (uint64_t)check_between(1, 1 << 27);
        const size_t bytes = gpr_dtype_bytes(result);
        plain_adder how = {.components = 1};
        gpr_rule rule;
        char got[MOST_ROWS * 8];
        uint8_t hold[MOST_ROWS], value[8];

        if (gpr_set_cpu_isa(isa) != GPR_OK) continue;
        CHECK(gpr_make_rule(divide ? GPR_OP_MEAN : GPR_OP_SUM, GPR_FLOAT64, GPR_DTYPE_DEFAULT,
                            &rule) == GPR_OK,
              "divide %d", divide);
        rule.result = result;
        gpr_cpu_clear_plain(&pairs);
        pairs.lanes = rows;
        pairs.has_rests = check_random() % 2 == 0;
        pairs.has_lost = pairs.has_rests && check_random() % 2;
        pairs.is_counted = divide && check_random() % 2;
        for (uint64_t r = 0; r < rows; r++) {
            const int exponent =
                is_far ? (int)check_between(-1074, 1023) : (int)check_between(-30, 16);
            const int few = (int)bytes == 8 ? 53 : (int)check_between(1, 27);
            const uint64_t count = pairs.is_counted ? (uint64_t)check_between(0, 40) : n;

            pairs.counts[r] = count;
            pairs.lost[r] = check_random() % 8 == 0;
            pairs.sums[r] = number_of(exponent, check_random() % 2 ? few : 53) *
                            (check_random() % 4 ? 1 : (double)count);
            pairs.rests[r] = rest_for(pairs.sums[r]);
            if (check_random() % 32 == 0 || count == 0) pairs.sums[r] = pairs.rests[r] = 0;
            if (!pairs.has_lost && check_random() % 32 == 0) pairs.sums[r] = -NAN;
        }
        (void)gpr_cpu_finish_plain(&pairs, &how, &rule, rows, n, got, hold);
        for (uint64_t r = 0; r < rows; r++) {
            const double sum = pairs.sums[r], rest = pairs.has_rests ? pairs.rests[r] : 0;
            const int is_nothing = pairs.is_counted && pairs.counts[r] == 0;

            all += !is_far && !pairs.has_lost;
            if (!hold[r]) continue;
            certain += !is_far && !pairs.has_lost;
            CHECK(!pairs.has_lost || pairs.lost[r] == 0, "%s: something was lost", isa);
            if (isnan(sum) || is_nothing) {
                const double nan = NAN;

                gpr_convert(GPR_FLOAT64, &nan, result, value, 1);
            } else {
                reference(sum, rest, divide, pairs.is_counted ? pairs.counts[r] : n, result, value);
            }
            CHECK(memcmp(value, got + r * bytes, bytes) == 0, "%s: %s of %a and %a over %llu", isa,
                  gpr_dtype_name(result), sum, rest,
                  (unsigned long long)(pairs.is_counted ? pairs.counts[r] : n));
        }
    }
    CHECK(certain > all / 8 * 7, "%llu of %llu", (unsigned long long)certain,
          (unsigned long long)all);
    (void)gpr_set_cpu_isa(NULL);
}

int main(void)
{
    check_begin();
    test_plain_sums_are_exact_or_say_no();
    test_plain_sums_are_rounded_once();
    test_pairs_are_rounded_once();
    test_pairs_hold_the_sum_or_say_no();
    return check_end();
}
