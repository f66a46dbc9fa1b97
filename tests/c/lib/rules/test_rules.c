/* Number rules: the types of every operator and dtype against NumPy's table, conversions against
 * rounding by definition, and what becomes of accumulators. */
#include "check.h"
#include "lib/base/convert.h"
#include "lib/base/status.h"
#include "lib/exact/exact.h"
#include "lib/rules/accumulators.h"
#include "naive.h"

static void test_default_types(void)
{
    for (int d = 0; d < GPR_DTYPE_COUNT; d++) {
        const gpr_dtype dtype = (gpr_dtype)d;
        for (int op = 0; op < GPR_OP_COUNT; op++)
            CHECK(gpr_result_dtype(op, dtype, GPR_DTYPE_DEFAULT) == naive_result_dtype(op, dtype),
                  "%s of %s", gpr_operator_name(op), gpr_dtype_name(dtype));
    }
}

/* Every rule is whole: its accumulators are accumulator types, hold what they must, and the
 * host's is no narrower. */
static void test_all_rules(void)
{
    for (int op = 0; op < GPR_OP_COUNT; op++)
        for (int d = 0; d < GPR_DTYPE_COUNT; d++)
            for (int requested = GPR_DTYPE_DEFAULT; requested < GPR_DTYPE_COUNT; requested++) {
                const int sums = op == GPR_OP_SUM || op == GPR_OP_PROD || op == GPR_OP_MEAN;
                const int varies = op == GPR_OP_VAR || op == GPR_OP_STD;
                gpr_rule rule;
                const gpr_status status = gpr_make_rule(op, d, requested, &rule);

                if (requested != GPR_DTYPE_DEFAULT && !sums &&
                    !(varies && naive_is_float(requested))) {
                    CHECK(status == GPR_ERROR_TYPE, "%s takes no dtype", gpr_operator_name(op));
                    continue;
                }
                if ((op == GPR_OP_PTP && d == GPR_BOOL) ||
                    (op >= GPR_OP_BITWISE_AND && op <= GPR_OP_BITWISE_XOR && naive_is_float(d))) {
                    CHECK(status == GPR_ERROR_TYPE, "%s of %s", gpr_operator_name(op),
                          gpr_dtype_name(d));
                    continue;
                }
                CHECK(status == GPR_OK, "%s", gpr_last_error()->message);
                CHECK(rule.op == (gpr_operator)op && rule.element == (gpr_dtype)d, "rule");
                CHECK(rule.divide == (op == GPR_OP_MEAN), "division");
                if (requested != GPR_DTYPE_DEFAULT)
                    CHECK(rule.compute == (gpr_dtype)requested &&
                              rule.result ==
                                  (varies ? naive_part(requested) : (gpr_dtype)requested),
                          "requested");
                if (!sums && !varies) CHECK(rule.compute == (gpr_dtype)d, "compute");
                for (int k = 0; k < 2; k++) {
                    const gpr_dtype acc = k ? rule.host_acc : rule.device_acc;
                    const size_t bytes = gpr_dtype_bytes(acc);

                    CHECK(bytes == 4 || bytes == 8 ||
                              (bytes == 16 && naive_is_complex(rule.compute)),
                          "accumulator of %zu bytes", bytes);
                    if (rule.result != GPR_BOOL && rule.fold != GPR_FOLD_count)
                        CHECK(bytes >= gpr_dtype_bytes(rule.compute), "a narrow accumulator");
                    if (rule.fold == GPR_FOLD_sum || rule.fold == GPR_FOLD_prod)
                        CHECK(naive_is_float(rule.compute) ? naive_is_float(acc)
                                                           : acc == GPR_UINT64,
                              "a sum's");
                }
                CHECK(gpr_dtype_bytes(rule.host_acc) >= gpr_dtype_bytes(rule.device_acc),
                      "host accumulator");
                if (rule.compute == GPR_BOOL && sums)
                    CHECK(rule.fold == (op == GPR_OP_PROD ? GPR_FOLD_all : GPR_FOLD_any),
                          "sum of truth values");
                CHECK(gpr_result_dtype(op, d, requested) == rule.result, "result");
            }
    {
        gpr_rule rule;
        CHECK(gpr_make_rule(GPR_OP_COUNT, GPR_INT8, GPR_DTYPE_DEFAULT, &rule) == GPR_ERROR_VALUE,
              "operator");
        CHECK(gpr_make_rule(GPR_OP_SUM, GPR_DTYPE_DEFAULT, GPR_DTYPE_DEFAULT, &rule) ==
                  GPR_ERROR_VALUE,
              "no dtype");
        CHECK(gpr_make_rule(GPR_OP_SUM, GPR_INT8, GPR_DTYPE_COUNT, &rule) == GPR_ERROR_VALUE,
              "dtype out of range");
    }
}

static int same(long double a, long double b)
{
    return isnan(a) ? isnan(b) : a == b && !!signbit(a) == !!signbit(b);
}

/* All 16-bit floats widen to the value of their bits, and convert back to the same bits. */
static void test_16_bit_floats(void)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const uint16_t b = (uint16_t)bits;
        const long double half = naive_decode16(b, 10, 15), bfloat = naive_decode16(b, 7, 127);

        CHECK(same(gpr_half_to_float(b), half), "half %04x", bits);
        CHECK(same(gpr_bfloat_to_float(b), bfloat), "bfloat %04x", bits);
        if (!isnan(half)) CHECK(gpr_float_to_half((float)half) == b, "half %04x", bits);
        if (!isnan(half)) CHECK(gpr_double_to_half((double)half) == b, "half %04x", bits);
        if (!isnan(bfloat)) CHECK(gpr_double_to_bfloat((double)bfloat) == b, "bfloat %04x", bits);
    }
    CHECK(isnan(gpr_half_to_float(gpr_double_to_half(NAN))) &&
              isnan(gpr_half_to_float(gpr_float_to_half(NAN))),
          "NaN");
    CHECK(isnan(gpr_bfloat_to_float(gpr_double_to_bfloat(-NAN))), "NaN");
}

/* Rounding of any double, near the ends of the range, near ties, subnormal. */
static void test_rounding(void)
{
    for (int i = 0; i < 200000; i++) {
        const int exponent =
            check_between(0, 1) ? (int)check_between(-30, 20) : (int)check_between(-140, 130);
        /* Few bits make ties likely. */
        const double significand =
            (double)check_between(-4096, 4096) + (double)check_between(-1, 1) * 0x1p-20;
        const double x = ldexp(significand, exponent - 12);
        const float f = (float)x;

        CHECK(same(gpr_half_to_float(gpr_double_to_half(x)), naive_round(x, GPR_FLOAT16)),
              "%a to half", x);
        CHECK(same(gpr_bfloat_to_float(gpr_double_to_bfloat(x)), naive_round(x, GPR_BFLOAT16)),
              "%a to bfloat", x);
        CHECK(same(gpr_half_to_float(gpr_float_to_half(f)), naive_round(f, GPR_FLOAT16)),
              "%a to half", f);
    }
}

/* Conversions of every pair of dtypes. */
static void test_conversions(void)
{
    for (int from = 0; from < GPR_DTYPE_COUNT; from++)
        for (int to = 0; to < GPR_DTYPE_COUNT; to++) {
            enum { COUNT = 600 };
            const size_t from_bytes = gpr_dtype_bytes(from), to_bytes = gpr_dtype_bytes(to);
            char source[COUNT * 16 + 1], destination[COUNT * 16 + 1];

            for (int i = 0; i < COUNT; i++) {
                gpr_value v = {.u64 = check_random()};

                if (naive_is_float(from)) {
                    const int64_t low = naive_kind(to) == GPR_KIND_UNSIGNED ? 0 : -120;
                    v.f64 = (double)check_between(low * 8, 120 * 8) / 8;
                    v = gpr_convert_acc(GPR_FOLD_sum, v, GPR_FLOAT64, from);
                }
                memcpy(source + 1 + (size_t)i * from_bytes, v.bytes, from_bytes);
            }
            gpr_convert(from, source + 1, to, destination + 1, COUNT);
            for (int i = 0; i < COUNT; i++) {
                const naive_value want =
                    naive_cast(naive_load(from, source + 1 + (size_t)i * from_bytes), to);
                const naive_value got = naive_load(to, destination + 1 + (size_t)i * to_bytes);

                CHECK(want.is_float ? same(want.f, got.f) || (want.f == 0 && got.f == 0)
                                    : want.i == got.i,
                      "%s to %s", gpr_dtype_name(from), gpr_dtype_name(to));
            }
        }
}

/* Floats that no integer holds become something, without undefined behaviour. */
static void test_wild_conversions(void)
{
    const double wild[] = {NAN,     INFINITY, -INFINITY, 1e300,   -1e300, 0x1p63,
                           -0x1p63, 0x1p64,   0x1p31,    -0x1p31, -1};

    for (int to = 0; to < GPR_DTYPE_COUNT; to++) {
        char destination[2 * sizeof wild];

        gpr_convert(GPR_FLOAT64, wild, to, destination, sizeof wild / sizeof *wild);
        CHECK(gpr_dtype_rows[to].kind != GPR_KIND_BOOL || destination[0] == 1, "NaN is true");
    }
}

/* The identity changes nothing, as accumulator and as element. */
static void test_identities(void)
{
    for (int op = 0; op < GPR_OP_COUNT; op++)
        for (int d = 0; d < GPR_DTYPE_COUNT; d++)
            for (int i = 0; i < 50; i++) {
                const uint64_t bits = check_random();
                gpr_value x = {.u64 = 0}, folded, neutral;
                gpr_rule rule;

                if (gpr_make_rule(op, d, GPR_DTYPE_DEFAULT, &rule) != GPR_OK ||
                    rule.acc_kind != GPR_ACC_NUMBER)
                    continue;
                if (naive_is_complex(d) || rule.fold == GPR_FOLD_count) continue;
                memcpy(x.bytes, &bits, gpr_dtype_bytes(d));
                if (rule.result == GPR_BOOL || d == GPR_BOOL) {
                    x.u64 = bits & 1;
                } else {
                    gpr_value wide = {.u64 = 0};
                    gpr_convert(d, x.bytes, rule.compute, wide.bytes, 1);
                    x = gpr_convert_acc(rule.fold, wide, rule.compute, rule.host_acc);
                }
                folded = gpr_identity(rule.fold, rule.compute, rule.host_acc);
                folded = gpr_fold_acc(rule.fold, rule.host_acc, folded, x);
                {
                    const naive_value a = naive_load(rule.host_acc, &x),
                                      b = naive_load(rule.host_acc, &folded);
                    CHECK(a.is_float && isnan(a.f) ? isnan(b.f) : a.i == b.i && a.f == b.f,
                          "identity of %s over %s", gpr_operator_name(op), gpr_dtype_name(d));
                }
                neutral = gpr_neutral_element(rule.fold, d);
                if (rule.result != GPR_BOOL && rule.fold != GPR_FOLD_bit_and) {
                    gpr_value as_acc = {.u64 = 0};
                    gpr_convert(d, neutral.bytes, rule.host_acc, as_acc.bytes, 1);
                    folded = gpr_identity(rule.fold, rule.compute, rule.host_acc);
                    if (rule.compute == (gpr_dtype)d)
                        CHECK(memcmp(&as_acc, &folded, gpr_dtype_bytes(rule.host_acc)) == 0,
                              "neutral element");
                }
            }
}

static void test_partials(void)
{
    gpr_value values[300];

    for (uint64_t count = 0; count < 300; count++) {
        uint64_t sum = 0;
        gpr_value got;

        for (uint64_t i = 0; i < count; i++) sum += values[i].u64 = check_random();
        got = gpr_fold_partials(GPR_FOLD_sum, GPR_UINT64, GPR_UINT64, values, count);
        CHECK(got.u64 == sum, "sum of %" PRIu64 " partials", count);
        for (uint64_t i = 0; i < count; i++) values[i].f64 = 0.1;
        got = gpr_fold_partials(GPR_FOLD_sum, GPR_FLOAT64, GPR_FLOAT64, values, count);
        CHECK(fabs(got.f64 - 0.1 * (double)count) <= 0x1p-50 * (double)count, "%" PRIu64 " tenths",
              count);
        for (uint64_t i = 0; i < count; i++) values[i].f64 = i + 1 == count ? NAN : (double)i;
        got = gpr_fold_partials(GPR_FOLD_min, GPR_FLOAT64, GPR_FLOAT64, values, count);
        CHECK(count == 0 ? isinf(got.f64) : isnan(got.f64), "NaN wins");
    }
}

/* Means divide what the compute type holds; results are written anywhere. */
static void test_results(void)
{
    static const struct {
        gpr_dtype element, requested;
        int64_t sum;
        uint64_t n;
        double want;
    } cases[] = {
        {GPR_INT8, GPR_DTYPE_DEFAULT, -7, 2, -3.5}, {GPR_UINT16, GPR_DTYPE_DEFAULT, 7, 2, 3.5},
        {GPR_BOOL, GPR_DTYPE_DEFAULT, 1, 4, 0.25},  {GPR_INT16, GPR_INT8, 300, 3, 14},
        {GPR_INT64, GPR_INT64, -7, 2, -3},          {GPR_INT8, GPR_FLOAT32, 0, 0, NAN},
    };

    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        gpr_value accumulators[3];
        char results[8 * 3 + 1];
        uint8_t packed[sizeof accumulators];
        gpr_rule rule;

        CHECK(gpr_make_rule(GPR_OP_MEAN, cases[k].element, cases[k].requested, &rule) == GPR_OK,
              "rule");
        for (int i = 0; i < 3; i++) accumulators[i].i64 = cases[k].sum;
        if (naive_is_float(rule.host_acc))
            for (int i = 0; i < 3; i++) accumulators[i].f64 = (double)cases[k].sum;
        for (int i = 0; i < 3; i++)
            gpr_write_acc(rule.acc_kind, rule.host_acc, &accumulators[i],
                          packed + i * gpr_acc_bytes(rule.acc_kind, rule.host_acc));
        gpr_finish_results(&rule, rule.host_acc, packed, 3, cases[k].n, results + 1, 0);
        for (size_t i = 0; i < 3; i++) {
            const naive_value got =
                naive_load(rule.result, results + 1 + i * gpr_dtype_bytes(rule.result));
            const long double value = got.is_float ? got.f : (long double)got.i;
            CHECK(isnan(cases[k].want) ? isnan(value) : value == cases[k].want, "case %zu: got %Lg",
                  k, value);
        }
    }
}

static int rank(gpr_dtype dtype)
{
    const gpr_kind kind = naive_kind(dtype);

    return kind == GPR_KIND_COMPLEX ? 2 : kind == GPR_KIND_FLOAT;
}

/* Kernel `exact` takes sums, means and variances, keeps elements as they are, and makes them
 * nothing narrower. */
static void test_exact_sums(void)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[GPR_KERNEL_exact];

    for (int op = 0; op < GPR_OP_COUNT; op++) {
        for (int e = 0; e < GPR_DTYPE_COUNT; e++) {
            for (int r = -1; r < GPR_DTYPE_COUNT; r++) {
                const gpr_dtype element = (gpr_dtype)e,
                                requested = r < 0 ? GPR_DTYPE_DEFAULT : (gpr_dtype)r;
                gpr_rule rule;

                if (gpr_make_rule((gpr_operator)op, element, requested, &rule) != GPR_OK) continue;
                const gpr_dtype result = rule.result;
                const int sums = (op == GPR_OP_SUM || op == GPR_OP_MEAN) && requested != GPR_BOOL;
                const int varies = (op == GPR_OP_VAR || op == GPR_OP_STD) &&
                                   (rank(element) < 2 || rank(rule.compute) == 2);
                gpr_fit_rule(row, &rule);
                const gpr_status status = gpr_check_kernel_folds(row, &rule);
                const gpr_status want = varies                         ? GPR_OK
                                        : !sums                        ? GPR_ERROR_VALUE
                                        : rank(element) > rank(result) ? GPR_ERROR_TYPE
                                                                       : GPR_OK;
                CHECK(status == want, "op %d of %d as %d: %d", op, e, r, (int)status);
                if (varies) {
                    CHECK(rule.acc_kind == GPR_ACC_EXACT_MOMENTS && rule.compute == element &&
                              rule.result == result,
                          "op %d of %d as %d", op, e, r);
                    CHECK(gpr_acc_bytes(rule.acc_kind, rule.device_acc) ==
                              gpr_exact_acc_bytes(GPR_ACC_EXACT, element) +
                                  gpr_exact_acc_bytes(GPR_ACC_EXACT_PRODUCTS,
                                                      gpr_real_dtype(element)),
                          "%d", e);
                }
                if (!sums) continue;
                CHECK(rule.acc_kind == GPR_ACC_EXACT && rule.compute == element &&
                          rule.result == result,
                      "%d %d", e, r);
                CHECK(gpr_acc_bytes(rule.acc_kind, rule.device_acc) ==
                          gpr_exact_acc_bytes(GPR_ACC_EXACT, element),
                      "%d", e);
                const gpr_value nothing = gpr_neutral_element(rule.fold, element);
                for (size_t i = 0; i < gpr_dtype_bytes(element); i++) {
                    const size_t part = gpr_part_bytes(element);
                    CHECK(nothing.bytes[i] ==
                              (rank(element) > 0 && i % part == part - 1 ? 0x80 : 0),
                          "%d", e);
                }
            }
        }
    }
}

/* Variances about given means do not convert elements; the request has the result's dtype. */
static void test_given_means(void)
{
    gpr_rule rule;

    for (int e = 0; e < GPR_DTYPE_COUNT; e++) {
        const gpr_dtype element = (gpr_dtype)e,
                        own = naive_is_float(element) ? element : GPR_FLOAT64;
        const int is_complex = naive_kind(element) == GPR_KIND_COMPLEX;
        for (int m = 0; m < GPR_DTYPE_COUNT; m++) {
            const int fits = is_complex || naive_kind((gpr_dtype)m) != GPR_KIND_COMPLEX;
            CHECK(gpr_make_rule(GPR_OP_STD, element, GPR_DTYPE_DEFAULT, &rule) == GPR_OK, "%s",
                  gpr_last_error()->message);
            CHECK(gpr_take_mean(&rule, (gpr_dtype)m) == (fits ? GPR_OK : GPR_ERROR_TYPE),
                  "%d about %d", e, m);
            if (fits)
                CHECK(rule.has_given_mean && rule.mean == (gpr_dtype)m &&
                          rule.result == naive_part(own),
                      "%d %d", e, m);
        }
        for (int r = GPR_FLOAT16; r < GPR_DTYPE_COUNT; r++) {
            const gpr_dtype requested = (gpr_dtype)r;
            const int fits = !is_complex || naive_kind(requested) == GPR_KIND_COMPLEX;
            CHECK(gpr_make_rule(GPR_OP_VAR, element, requested, &rule) == GPR_OK, "%s",
                  gpr_last_error()->message);
            CHECK(gpr_take_mean(&rule, GPR_FLOAT32) == (fits ? GPR_OK : GPR_ERROR_TYPE), "%d as %d",
                  e, r);
            if (!fits) continue;
            CHECK(rule.compute == own && rule.result == naive_part(requested), "%d as %d", e, r);
            CHECK(rule.host_acc == (is_complex ? GPR_COMPLEX128 : GPR_FLOAT64), "%d as %d", e, r);
        }
    }
    CHECK(gpr_make_rule(GPR_OP_VAR, GPR_INT8, GPR_DTYPE_DEFAULT, &rule) == GPR_OK, "%s",
          gpr_last_error()->message);
    CHECK(gpr_take_mean(&rule, GPR_DTYPE_COUNT) == GPR_ERROR_VALUE, "no such type");
    CHECK(gpr_make_rule(GPR_OP_MEAN, GPR_INT8, GPR_DTYPE_DEFAULT, &rule) == GPR_OK, "%s",
          gpr_last_error()->message);
    CHECK(gpr_take_mean(&rule, GPR_FLOAT64) == GPR_ERROR_VALUE, "a mean about a mean");
    for (int about = 0; about < 2; about++) {
        CHECK(gpr_make_rule(GPR_OP_VAR, GPR_FLOAT32, GPR_DTYPE_DEFAULT, &rule) == GPR_OK, "%s",
              gpr_last_error()->message);
        if (about)
            CHECK(gpr_take_mean(&rule, GPR_FLOAT64) == GPR_OK, "%s", gpr_last_error()->message);
        gpr_fit_rule(&gpr_kernel_rows[GPR_KERNEL_exact], &rule);
        CHECK(gpr_check_kernel_folds(&gpr_kernel_rows[GPR_KERNEL_exact], &rule) ==
                  (about ? GPR_ERROR_VALUE : GPR_OK),
              "exact variances are about exact means");
    }
}

/* A library's kernel folds numbers alone, and atomics swap 8 bytes: the message names others. */
static void test_kernels_that_cannot_fold_positions_name_others(void)
{
    static const int kernels[] = {GPR_KERNEL_cub, GPR_KERNEL_shfl_atomic};
    gpr_rule rule;

    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const gpr_kernel_row *row = &gpr_kernel_rows[kernels[i]];
        REQUIRE(gpr_make_rule(GPR_OP_ARGMAX, GPR_FLOAT64, GPR_DTYPE_DEFAULT, &rule) == GPR_OK);
        gpr_fit_rule(row, &rule);
        CHECK(gpr_check_kernel_folds(row, &rule) == GPR_ERROR_VALUE, "%s", row->name);
        CHECK(strstr(gpr_last_error()->message, row->name) != NULL &&
                  strstr(gpr_last_error()->message, "'shfl_two_pass'") != NULL,
              "%s", gpr_last_error()->message);
        REQUIRE(gpr_make_rule(GPR_OP_MAX, GPR_FLOAT64, GPR_DTYPE_DEFAULT, &rule) == GPR_OK);
        gpr_fit_rule(row, &rule);
        CHECK(gpr_check_kernel_folds(row, &rule) == GPR_OK, "%s", row->name);
    }
}

/* With a divisor of 0 a variance is the quotient by 0; NaN where NaN elements were left out. */
static void test_variances_without_freedom(void)
{
    const gpr_value moments = {.mean = {2, 0}, .count = 3, .squares = 8};

    for (int skips = 0; skips < 2; skips++) {
        for (int ddof = 0; ddof < 5; ddof++) {
            uint8_t packed[sizeof moments];
            double result = 0;
            gpr_rule rule;

            CHECK(gpr_make_rule(GPR_OP_VAR, GPR_FLOAT64, GPR_DTYPE_DEFAULT, &rule) == GPR_OK, "%s",
                  gpr_last_error()->message);
            CHECK(gpr_leave_out(&rule, skips, 0) == GPR_OK, "%s", gpr_last_error()->message);
            rule.ddof = ddof;
            gpr_write_acc(rule.acc_kind, rule.host_acc, &moments, packed);
            gpr_finish_results(&rule, rule.host_acc, packed, 1, 3, &result, 0);
            if (ddof < 3)
                CHECK(result == 8.0 / (3 - ddof), "ddof %d: %g", ddof, result);
            else
                CHECK(skips ? isnan(result) : isinf(result), "ddof %d: %g", ddof, result);
        }
    }
}

static void test_types_that_do_not_exist(void)
{
    static const gpr_dtype none[] = {GPR_DTYPE_DEFAULT, GPR_DTYPE_COUNT};
    gpr_wide_block block = {.u64 = {1}};
    char memory[9] = "as it is";

    for (int i = 0; i < 2; i++) {
        gpr_load_wide(none[i], memory, 1, &block);
        CHECK(block.u64[0] == 1, "loaded from no type");
        gpr_store_wide(GPR_WIDE_UNSIGNED, &block, 1, none[i], memory);
        CHECK(memcmp(memory, "as it is", 8) == 0, "stored to no type");
    }
}

int main(void)
{
    check_begin();
    test_default_types();
    test_all_rules();
    test_16_bit_floats();
    test_rounding();
    test_conversions();
    test_wild_conversions();
    test_identities();
    test_partials();
    test_results();
    test_exact_sums();
    test_given_means();
    test_kernels_that_cannot_fold_positions_name_others();
    test_variances_without_freedom();
    test_types_that_do_not_exist();
    return check_end();
}
