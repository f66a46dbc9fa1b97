/* A fold is computed in three places: by kernels (csrc/kernels/core), by the library for
 * accumulators (lib/rules/host_folds.c), and by the CPU backend for elements
 * (cpu/loops_template.h). This test holds them together, bit by bit, with the registry's flags, for
 * every fold, dtype and accumulator of the rules.
 *
 * Bits of NaN are not compared, nor, where a comparison excepts it, the sign
 * of a zero. */
#include <complex.h>
#include <math.h>
#include <string.h>

#include "check.h"
#include "cpu/loops.h"
#include "device_folds.h"
#include "lib/base/convert.h"
#include "lib/exact/exact.h"
#include "lib/rules/accumulators.h"
#include "lib/rules/rules.h"

enum { DRAWS = 60, LOOP_DRAWS = 4, MOST_ELEMENTS = 700, ACC_BYTES = 64 };

/* How two numbers are compared: NUMBERS takes zeros of either sign for the same. */
typedef enum sameness { BITS, NUMBERS } sameness;

typedef struct combination {
    gpr_fold fold;
    gpr_dtype compute, acc;
    int on_host; /* the host folds such accumulators */
} combination;

/* ---------------------------------------------------------------- comparing ------------------ */

static int skips_nan(gpr_fold fold)
{
    return fold == GPR_FOLD_fmin || fold == GPR_FOLD_fmax;
}

static int is_extreme(gpr_fold fold)
{
    return fold == GPR_FOLD_min || fold == GPR_FOLD_max || skips_nan(fold) ||
           fold == GPR_FOLD_argmin || fold == GPR_FOLD_argmax || fold == GPR_FOLD_range;
}

static double _Complex as_complex(gpr_dtype dtype, const void *number)
{
    double _Complex wide;

    gpr_convert(dtype, number, GPR_COMPLEX128, &wide, 1);
    return wide;
}

static int is_nan(gpr_dtype dtype, const void *number)
{
    const double _Complex wide = as_complex(dtype, number);

    return gpr_is_inexact(dtype) && (isnan(creal(wide)) || isnan(cimag(wide)));
}

static int same_part(gpr_dtype part, const void *a, const void *b, sameness how)
{
    if (memcmp(a, b, gpr_bytes_of(part)) == 0) return 1;
    if (!gpr_is_inexact(part)) return 0;
    if (is_nan(part, a) || is_nan(part, b)) return is_nan(part, a) && is_nan(part, b);
    return how == NUMBERS && creal(as_complex(part, a)) == creal(as_complex(part, b));
}

/* Extremes of complex numbers are NaN where either part is: either element may be the result. */
static int same_number(gpr_fold fold, gpr_dtype dtype, const void *a, const void *b, sameness how)
{
    const gpr_dtype part = dtype == GPR_COMPLEX64    ? GPR_FLOAT32
                           : dtype == GPR_COMPLEX128 ? GPR_FLOAT64
                                                     : dtype;
    const size_t bytes = gpr_bytes_of(part);

    if (how == NUMBERS && is_extreme(fold) && is_nan(dtype, a) && is_nan(dtype, b)) return 1;
    return same_part(part, a, b, how) && (part == dtype || same_part(part, (const char *)a + bytes,
                                                                     (const char *)b + bytes, how));
}

static int same_mean(gpr_dtype acc, const gpr_value *a, const gpr_value *b)
{
    return same_part(GPR_FLOAT64, &a->mean[0], &b->mean[0], BITS) &&
           same_part(GPR_FLOAT64, &a->mean[1], &b->mean[1], BITS) && gpr_is_inexact(acc);
}

static int same_acc(gpr_fold fold, gpr_dtype acc, const gpr_value *a, const gpr_value *b,
                    sameness how)
{
    switch (gpr_acc_kind_of(fold)) {
    case GPR_ACC_INDEXED:
        return a->position == b->position && same_number(fold, acc, a->bytes, b->bytes, how);
    case GPR_ACC_RANGE:
        return same_number(fold, acc, a->bytes, b->bytes, how) &&
               same_number(fold, acc, a->high, b->high, how);
    case GPR_ACC_SUM_COUNT:
        return a->count == b->count && same_number(fold, acc, a->bytes, b->bytes, how);
    case GPR_ACC_MOMENTS:
        return a->count == b->count && same_mean(acc, a, b) &&
               same_part(GPR_FLOAT64, &a->squares, &b->squares, how);
    default: return same_number(fold, acc, a->bytes, b->bytes, how);
    }
}

/* ---------------------------------------------------------------- drawing -------------------- */

static double draw_double(void)
{
    static const double special[] = {0, -0.0,      INFINITY, -INFINITY, NAN,       1,        -1,
                                     2, 0x1p-1074, 0x1p-149, -0x1p-24,  0x1p-1022, 0x1p1023, 65504};
    enum { SPECIAL = sizeof special / sizeof special[0] };

    return check_random() % 2 == 0
               ? special[check_random() % SPECIAL]
               : ldexp((double)check_between(-(1 << 20), 1 << 20), (int)check_between(-40, 40));
}

/* Any element: any bits, numbers that are often equal, and those where arithmetic ends. */
static void draw_element(gpr_dtype dtype, void *element)
{
    const size_t bytes = gpr_bytes_of(dtype);
    uint64_t bits[2] = {check_random(), check_random()};

    if (gpr_is_inexact(dtype) && check_random() % 4 != 0) {
        const double re = draw_double(), im = draw_double();
        const double _Complex wide = gpr_complex(re, im);

        gpr_convert(GPR_COMPLEX128, &wide, dtype, element, 1);
        return;
    }
    if (!gpr_is_inexact(dtype)) {
        const uint64_t sign = UINT64_C(1) << (8 * bytes - 1); /* the smallest signed number */

        if (check_random() % 4 == 0) bits[0] = check_random() % 2 == 0 ? sign : sign - 1;
        if (check_random() % 2 == 0) bits[0] = (uint64_t)check_between(-2, 2);
    }
    memcpy(element, bits, bytes);
}

/* An element whose sums and products are the same in every order. */
static void draw_tame_element(gpr_fold fold, gpr_dtype dtype, void *element)
{
    const double re = (double)check_between(-9, 9), im = (double)check_between(-9, 9);
    double _Complex wide = gpr_complex(re, im);

    if (fold == GPR_FOLD_prod) {
        const double unit = check_random() % 2 == 0 ? 1 : -1;
        const int turns = gpr_kind_of(dtype) == GPR_KIND_COMPLEX && check_random() % 2 == 0;

        wide = turns ? gpr_complex(0, unit) : gpr_complex(unit, 0);
    }
    gpr_convert(GPR_COMPLEX128, &wide, dtype, element, 1);
}

/* An element as an accumulator, from the definitions. */
static gpr_value lift(const combination *c, const void *element, uint64_t position)
{
    gpr_value value = {.bytes = {0}};
    uint8_t is_true;

    gpr_convert(c->compute, element, GPR_BOOL, &is_true, 1);
    gpr_convert(c->compute, element, c->acc, value.bytes, 1);
    switch (c->fold) {
    case GPR_FOLD_any:
    case GPR_FOLD_all:
    case GPR_FOLD_odd:
    case GPR_FOLD_count: value.u64 = is_true; break;
    case GPR_FOLD_argmin:
    case GPR_FOLD_argmax: value.position = position; break;
    case GPR_FOLD_range: memcpy(value.high, value.bytes, sizeof value.high); break;
    case GPR_FOLD_sum_count: value.count = 1; break;
    case GPR_FOLD_moments:
        value.count = 1;
        value.squares = value.mean[0] - value.mean[0] + (value.mean[1] - value.mean[1]);
        break;
    default: break;
    }
    return value;
}

/* Any accumulator that elements can become: of folds that leave the range of their elements, any
 * number. */
static gpr_value draw_acc(const combination *c)
{
    static const gpr_fold widens[] = {GPR_FOLD_sum,      GPR_FOLD_prod,   GPR_FOLD_count,
                                      GPR_FOLD_bit_and,  GPR_FOLD_bit_or, GPR_FOLD_bit_xor,
                                      GPR_FOLD_sum_count};
    uint8_t element[16];
    gpr_value value;

    draw_element(c->compute, element);
    value = lift(c, element, (uint64_t)check_between(0, 2));
    for (size_t i = 0; i < sizeof widens / sizeof widens[0]; i++) {
        if (c->fold == widens[i] && check_random() % 2 == 0) draw_element(c->acc, value.bytes);
    }
    if (c->fold == GPR_FOLD_range) {
        draw_element(c->compute, element);
        gpr_convert(c->compute, element, c->acc, value.high, 1);
    }
    if (c->fold == GPR_FOLD_sum_count) value.count = check_random() >> check_between(1, 63);
    if (c->fold == GPR_FOLD_moments) {
        value.count = check_random() % 4 != 0 ? 100 : check_random() >> check_between(20, 63);
        if (c->acc == GPR_FLOAT64) value.mean[1] = value.mean[0] * 0x1p-60;
        value.squares = fabs(draw_double());
        if (value.count == 0) value = (gpr_value){.bytes = {0}};
    }
    return value;
}

/* ---------------------------------------------------------------- kernels and host ----------- */

static gpr_value unpack(const combination *c, const uint8_t *packed)
{
    return gpr_read_acc(gpr_acc_kind_of(c->fold), c->acc, packed);
}

static gpr_value combine_on_device(const combination *c, gpr_value a, gpr_value b)
{
    uint8_t packed[3][ACC_BYTES] = {{0}};

    gpr_write_acc(gpr_acc_kind_of(c->fold), c->acc, &a, packed[0]);
    gpr_write_acc(gpr_acc_kind_of(c->fold), c->acc, &b, packed[1]);
    CHECK(device_combine((int)c->fold, (int)c->acc, packed[0], packed[1], packed[2]),
          "no kernel folds %s of %s", gpr_fold_rows[c->fold].name, gpr_dtype_name(c->acc));
    return unpack(c, packed[2]);
}

static gpr_value combine_on_host(const combination *c, gpr_value a, gpr_value b)
{
    return gpr_fold_acc(c->fold, c->acc, a, b);
}

#define CHECK_FOLD(condition, c, what)                                                  \
    CHECK(condition, "%s of %s, accumulators %s: " what, gpr_fold_rows[(c)->fold].name, \
          gpr_dtype_name((c)->compute), gpr_dtype_name((c)->acc))

static int is_one(gpr_dtype acc, gpr_value a)
{
    return as_complex(acc, a.bytes) == 1;
}

/* Products of complex numbers with 1 are the other factor in kernels: threads without elements
 * multiply by it. The host multiplies as NumPy does, where 1 times an infinity has a NaN part.
 * complex64 the host computes in doubles. */
static void check_complex_product(const combination *c, gpr_value a, gpr_value b, gpr_value device,
                                  gpr_value host)
{
    if (is_one(c->acc, a) || is_one(c->acc, b)) {
        const gpr_value *other = is_one(c->acc, a) ? &b : &a;
        CHECK_FOLD(same_acc(c->fold, c->acc, &device, other, BITS), c, "times 1");
    } else if (c->on_host) {
        CHECK_FOLD(same_acc(c->fold, c->acc, &device, &host, BITS), c, "kernel and host");
    }
}

/* The same mean; the kernel's squared distances of a and b are the host's of b and a, and of a and
 * b but for rounding. */
static void check_moments(const combination *c, gpr_value a, gpr_value b, gpr_value device,
                          gpr_value host)
{
    const gpr_value swapped = combine_on_device(c, b, a);

    CHECK_FOLD(device.count == host.count && same_mean(c->acc, &device, &host), c, "mean");
    if (a.count == 0 || b.count == 0)
        CHECK_FOLD(same_part(GPR_FLOAT64, &device.squares, &host.squares, BITS), c, "one is empty");
    else
        CHECK_FOLD(same_part(GPR_FLOAT64, &swapped.squares, &host.squares, BITS), c, "squares");
    CHECK_FOLD(!isfinite(device.squares + host.squares) ||
                   fabs(device.squares - host.squares) <= 0x1p-50 * host.squares + 0x1p-1000,
               c, "rounding of squares");
}

static void check_combine(const combination *c, gpr_value a, gpr_value b)
{
    const gpr_value device = combine_on_device(c, a, b), host = combine_on_host(c, a, b);

    if (c->fold == GPR_FOLD_moments)
        check_moments(c, a, b, device, host);
    else if (c->fold == GPR_FOLD_prod && gpr_kind_of(c->acc) == GPR_KIND_COMPLEX)
        check_complex_product(c, a, b, device, host);
    else if (!skips_nan(c->fold) || !is_nan(c->acc, a.bytes) || !is_nan(c->acc, b.bytes))
        CHECK_FOLD(same_acc(c->fold, c->acc, &device, &host, BITS), c, "kernel and host");
    else /* either NaN, whose other part may be a number */
        CHECK_FOLD(same_acc(c->fold, c->acc, &device, &host, NUMBERS), c, "kernel and host, NaN");
}

/* Memory holds the identity before the first atomic. */
static void check_atomic(const combination *c, gpr_value a, gpr_value b)
{
    const gpr_value identity = gpr_identity(c->fold, c->compute, c->acc);
    const gpr_value expected = combine_on_device(c, combine_on_device(c, identity, a), b);
    const gpr_acc_kind acc_kind = gpr_acc_kind_of(c->fold);
    uint8_t packed[3][ACC_BYTES] = {{0}};
    gpr_value value;

    gpr_write_acc(acc_kind, c->acc, &identity, packed[0]);
    gpr_write_acc(acc_kind, c->acc, &a, packed[1]);
    gpr_write_acc(acc_kind, c->acc, &b, packed[2]);
    for (int i = 1; i < 3; i++) {
        if (!device_atomic_combine((int)c->fold, (int)c->acc, packed[0], packed[i])) return;
    }
    value = unpack(c, packed[0]);
    CHECK_FOLD(same_acc(c->fold, c->acc, &value, &expected, NUMBERS), c, "atomic");
}

/* Whether the order of a and b does not matter; squared distances round. */
static int commutes(const combination *c,
                    gpr_value (*combine)(const combination *, gpr_value, gpr_value), gpr_value a,
                    gpr_value b)
{
    const gpr_value ab = combine(c, a, b), ba = combine(c, b, a);
    double distance, scale;

    if (c->fold != GPR_FOLD_moments) return same_acc(c->fold, c->acc, &ab, &ba, NUMBERS);
    distance = c->acc == GPR_FLOAT64 ? ab.mean[0] - ba.mean[0] + (ab.mean[1] - ba.mean[1])
                                     : cabs(ab.c128 - ba.c128);
    scale = cabs(as_complex(c->acc, a.bytes)) + cabs(as_complex(c->acc, b.bytes));
    return ab.count == ba.count && (!isfinite(scale) || !isfinite(distance) ||
                                    fabs(distance) <= 0x1p-48 * scale + 0x1p-1070);
}

static void check_identity(const combination *c, gpr_value a)
{
    const int rounds_ones = c->fold == GPR_FOLD_prod && gpr_kind_of(c->acc) == GPR_KIND_COMPLEX &&
                            !isfinite(cabs(as_complex(c->acc, a.bytes)));
    const gpr_value identity = gpr_identity(c->fold, c->compute, c->acc);
    /* a complex NaN has one NaN part or two */
    const sameness how = gpr_fold_rows[c->fold].identity == GPR_IDENTITY_NAN ? NUMBERS : BITS;
    uint8_t packed[ACC_BYTES] = {0};
    gpr_value on_device, folded;

    CHECK_FOLD(device_identity((int)c->fold, (int)c->compute, (int)c->acc, packed), c, "no kernel");
    on_device = unpack(c, packed);
    CHECK_FOLD(same_acc(c->fold, c->acc, &on_device, &identity, how), c, "identity");
    folded = combine_on_device(c, identity, a);
    CHECK_FOLD(same_acc(c->fold, c->acc, &folded, &a, NUMBERS), c, "kernel, identity first");
    folded = combine_on_device(c, a, identity);
    CHECK_FOLD(same_acc(c->fold, c->acc, &folded, &a, NUMBERS), c, "kernel, identity last");
    if (rounds_ones) return;
    folded = combine_on_host(c, identity, a);
    CHECK_FOLD(same_acc(c->fold, c->acc, &folded, &a, NUMBERS), c, "host, identity first");
    folded = combine_on_host(c, a, identity);
    CHECK_FOLD(same_acc(c->fold, c->acc, &folded, &a, NUMBERS), c, "host, identity last");
}

static void check_lift(const combination *c)
{
    const uint64_t position = check_random();
    uint8_t element[16], packed[ACC_BYTES] = {0};
    gpr_value device, host;

    draw_element(c->compute, element);
    CHECK_FOLD(device_lift((int)c->fold, (int)c->compute, (int)c->acc, element, position, packed),
               c, "no kernel");
    device = unpack(c, packed);
    host = lift(c, element, position);
    CHECK_FOLD(same_acc(c->fold, c->acc, &device, &host, BITS), c, "lift");
}

/* Whether folding an element again changes nothing. */
static int is_unchanged(const combination *c,
                        gpr_value (*combine)(const combination *, gpr_value, gpr_value),
                        gpr_value a)
{
    const gpr_value twice = combine(c, a, a);

    return same_acc(c->fold, c->acc, &twice, &a, NUMBERS);
}

/* Counts of a fold's random draws. */
typedef struct tally {
    uint64_t pairs, commuted,
        unchanged; /* drawn; their order did not matter; nor the first again */
} tally;

/* Every fold of one combination. */
static void check_combination(const combination *c, tally *found)
{
    for (int draw = 0; draw < DRAWS; draw++) {
        const gpr_value a = draw_acc(c), b = draw_acc(c);

        check_lift(c);
        check_combine(c, a, b);
        check_combine(c, a, a);
        check_atomic(c, a, b);
        check_identity(c, a);
        found->commuted +=
            commutes(c, combine_on_device, a, b) && commutes(c, combine_on_host, a, b);
        found->unchanged +=
            is_unchanged(c, combine_on_device, a) && is_unchanged(c, combine_on_host, a);
        found->pairs++;
    }
}

/* Accumulators of the rules: of named kernels on the device, and of the host. */
static void check_rule(const gpr_rule *rule, tally found[GPR_FOLD_COUNT])
{
    static char seen[GPR_FOLD_COUNT][GPR_DTYPE_COUNT][GPR_DTYPE_COUNT];
    const gpr_dtype accs[] = {rule->host_acc, rule->device_acc};

    for (int i = 0; i < 2; i++) {
        const combination c = {rule->fold, rule->compute, accs[i], i == 0};

        if (seen[c.fold][c.compute][c.acc]++) continue;
        check_combination(&c, &found[c.fold]);
    }
}

static void test_kernels_and_host_fold_alike(void)
{
    tally found[GPR_FOLD_COUNT] = {0};

    for (int op = 0; op < GPR_OP_COUNT; op++) {
        for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++) {
            for (int skip_nan = 0; skip_nan < 2; skip_nan++) {
                gpr_rule rule;

                if (gpr_make_rule((gpr_operator)op, (gpr_dtype)dtype, GPR_DTYPE_DEFAULT, &rule) !=
                        GPR_OK ||
                    gpr_leave_out(&rule, skip_nan, 0) != GPR_OK)
                    continue;
                check_rule(&rule, found);
            }
        }
    }
    for (int fold = 0; fold < GPR_FOLD_COUNT; fold++) {
        const gpr_fold_row *row = &gpr_fold_rows[fold];

        if (gpr_is_exact(row->acc_kind)) continue;
        CHECK(found[fold].pairs > 0, "no rule asked for %s", row->name);
        CHECK(row->commutative == (found[fold].commuted == found[fold].pairs),
              "folds.def: order of operands, %s", row->name);
        CHECK(row->idempotent == (found[fold].unchanged == found[fold].pairs),
              "folds.def: operands that come again, %s", row->name);
    }
}

/* ---------------------------------------------------------------- loops and host ------------- */

typedef struct loop_case {
    combination c;
    const gpr_loop *loop;
    int skips; /* NaN elements */
} loop_case;

/* Elements of a row, whose sum or product depends on no order if there are more than two. */
static void draw_row(const loop_case *l, uint64_t n, uint8_t *row)
{
    const gpr_fold fold = l->c.fold;
    const int rounds =
        gpr_is_inexact(l->c.compute) && (fold == GPR_FOLD_sum || fold == GPR_FOLD_prod) && n > 2;
    const int mostly = check_random() % 2 == 0; /* elements that decide nothing, else any */
    const double nan = NAN;

    for (uint64_t i = 0; i < n; i++, row += gpr_bytes_of(l->c.compute)) {
        if (rounds || (mostly && i > 0))
            draw_tame_element(fold, l->c.compute, row);
        else
            draw_element(l->c.compute, row);
        if (l->skips && check_random() % 4 == 0)
            gpr_convert(GPR_FLOAT64, &nan, l->c.compute, row, 1);
    }
}

/* `value` fold the element at position i. */
static gpr_value fold_element(const loop_case *l, gpr_value value, const uint8_t *element,
                              uint64_t i)
{
    if (l->skips && is_nan(l->c.compute, element)) return value;
    return combine_on_host(&l->c, value, lift(&l->c, element, i));
}

static gpr_value fold_row(const loop_case *l, uint64_t n, const uint8_t *row)
{
    const size_t bytes = gpr_bytes_of(l->c.compute);
    gpr_value value =
        l->skips ? gpr_identity(l->c.fold, l->c.compute, l->c.acc) : lift(&l->c, row, 0);

    for (uint64_t i = !l->skips; i < n; i++) value = fold_element(l, value, row + i * bytes, i);
    return value;
}

/* Sums of short rows begin with 0, and vectors take either of two zeros. Bits past those of the
 * element are not part of a result. */
static void check_loop_result(const loop_case *l, const uint8_t *got, const gpr_value *expected,
                              const char *shape, uint64_t n)
{
    const int same = gpr_is_bitwise(l->c.fold)
                         ? memcmp(got, expected->bytes, gpr_bytes_of(l->c.compute)) == 0
                         : same_number(l->c.fold, l->c.acc, got, expected->bytes, NUMBERS);

    CHECK(same, "%s: %s%s of %" PRIu64 " %s in %s", gpr_cpu_isa(), l->skips ? "skipping " : "",
          gpr_fold_rows[l->c.fold].name, n, gpr_dtype_name(l->c.compute), shape);
}

static void check_rows(const loop_case *l, uint64_t n)
{
    enum { ROWS = 3 };
    static _Alignas(64) uint8_t data[ROWS * MOST_ELEMENTS * 16], out[ROWS * 16];
    const size_t row_bytes = n * gpr_bytes_of(l->c.compute);

    for (int row = 0; row < ROWS; row++) draw_row(l, n, data + (size_t)row * row_bytes);
    l->loop->rows((const char *)data, (int64_t)row_bytes, ROWS, n, out);
    for (int row = 0; row < ROWS; row++) {
        const gpr_value expected = fold_row(l, n, data + (size_t)row * row_bytes);
        check_loop_result(l, out + (size_t)row * gpr_bytes_of(l->c.acc), &expected, "a row", n);
    }
}

/* Columns of `rows` elements, folded to accumulators that hold something already, or are fresh. */
static void check_columns(const loop_case *l, uint64_t rows)
{
    const int fresh = check_random() % 2 == 0;
    enum { WIDTH = 37 };
    static _Alignas(64) uint8_t data[WIDTH * MOST_ELEMENTS * 16], out[WIDTH * 16];
    const size_t bytes = gpr_bytes_of(l->c.compute), acc_bytes = gpr_bytes_of(l->c.acc);
    gpr_value expected[WIDTH];

    for (size_t j = 0; j < WIDTH; j++) {
        uint8_t column[MOST_ELEMENTS * 16];

        draw_row(l, rows + 1, column);
        expected[j] = fold_row(l, 1, fresh ? column + bytes : column);
        memcpy(out + j * acc_bytes, column, acc_bytes);
        if (!fresh) memcpy(out + j * acc_bytes, expected[j].bytes, acc_bytes);
        for (uint64_t i = 0; i < rows; i++) {
            const uint8_t *element = column + (i + 1) * bytes;

            if (i > 0 || !fresh) expected[j] = fold_element(l, expected[j], element, i);
            memcpy(data + (i * WIDTH + j) * bytes, element, bytes);
        }
    }
    l->loop->columns((const char *)data, (int64_t)(WIDTH * bytes), rows, WIDTH, fresh, out);
    for (size_t j = 0; j < WIDTH; j++)
        check_loop_result(l, out + j * acc_bytes, &expected[j], "a column", rows);
}

static void check_loop(gpr_fold fold, gpr_dtype dtype, const gpr_loop *loop, int skips)
{
    const loop_case l = {{fold, dtype, loop->accumulator, 1}, loop, skips};

    if (loop->rows == NULL) return;
    for (int draw = 0; draw < LOOP_DRAWS; draw++) {
        for (uint64_t n = 1; n <= 20; n++) check_rows(&l, n);
        check_rows(&l, (uint64_t)check_between(21, 150));
        check_rows(&l, (uint64_t)check_between(500, MOST_ELEMENTS));
        for (uint64_t rows = 1; rows <= 6; rows++) check_columns(&l, rows);
        check_columns(&l, (uint64_t)check_between(7, 40));
    }
    check_columns(&l, (uint64_t)check_between(256, 300)); /* narrow lanes hold 255 elements */
}

/* The position of the row's first extreme, as argmin and argmax fold it. */
static uint64_t fold_position(gpr_fold fold, gpr_dtype dtype, uint64_t n, const uint8_t *row,
                              int skips)
{
    gpr_rule rule;
    gpr_value value;

    CHECK(gpr_make_rule(fold == GPR_FOLD_argmin ? GPR_OP_ARGMIN : GPR_OP_ARGMAX, dtype,
                        GPR_DTYPE_DEFAULT, &rule) == GPR_OK,
          "argmin of %s", gpr_dtype_name(dtype));
    {
        const loop_case l = {{fold, dtype, rule.host_acc, 1}, NULL, skips};
        value = fold_row(&l, n, row);
    }
    return value.position;
}

static void check_positions(const gpr_loops *loops, gpr_dtype dtype, int largest)
{
    enum { ROWS = 37 };
    static _Alignas(64) uint8_t data[ROWS * GPR_SHORT_ROW * 16];
    const gpr_fold fold = largest ? GPR_FOLD_argmax : GPR_FOLD_argmin;
    const gpr_fold extreme_fold = largest ? GPR_FOLD_max : GPR_FOLD_min;
    const gpr_positions_loop first = loops->positions[extreme_fold].rows[dtype];
    const uint64_t n = (uint64_t)check_between(1, GPR_SHORT_ROW);
    const size_t row_bytes = n * gpr_bytes_of(dtype);
    int64_t positions[ROWS];

    if (loops->find[dtype] == NULL) return;

    const loop_case l = {
        {extreme_fold, dtype, loops->loop[extreme_fold][dtype].accumulator, 1}, NULL, 0};

    for (size_t row = 0; row < ROWS; row++) draw_row(&l, n, data + row * row_bytes);
    if (first != NULL) first((const char *)data, (int64_t)row_bytes, ROWS, n, positions);
    for (size_t row = 0; row < ROWS; row++) {
        const uint8_t *elements = data + row * row_bytes;
        const uint64_t expected = fold_position(fold, dtype, n, elements, 0);
        const gpr_value extreme = fold_row(&l, n, elements);

        CHECK(first == NULL || (uint64_t)positions[row] == expected, "%s: %s of a short row of %s",
              gpr_cpu_isa(), gpr_fold_rows[fold].name, gpr_dtype_name(dtype));
        CHECK(loops->find[dtype](elements, n, extreme.bytes) == expected, "%s: %s of a row of %s",
              gpr_cpu_isa(), gpr_fold_rows[fold].name, gpr_dtype_name(dtype));
    }
}

/* The same of rows without their NaN: nowhere if there is nothing else. */
static void check_skipping_positions(const gpr_loops *loops, gpr_dtype dtype, int largest)
{
    enum { ROWS = 37 };
    static _Alignas(64) uint8_t data[ROWS * GPR_SHORT_ROW * 16];
    const gpr_fold fold = largest ? GPR_FOLD_argmax : GPR_FOLD_argmin;
    const gpr_fold extreme_fold = largest ? GPR_FOLD_fmax : GPR_FOLD_fmin;
    const gpr_positions_loop first = loops->positions[extreme_fold].rows[dtype];
    const loop_case l = {{extreme_fold, dtype, dtype, 1}, NULL, 1};
    const uint64_t n = (uint64_t)check_between(1, GPR_SHORT_ROW);
    const size_t row_bytes = n * gpr_bytes_of(dtype);
    int64_t positions[ROWS];

    if (first == NULL) return;
    for (size_t row = 0; row < ROWS; row++) draw_row(&l, n, data + row * row_bytes);
    first((const char *)data, (int64_t)row_bytes, ROWS, n, positions);
    for (size_t row = 0; row < ROWS; row++)
        CHECK((uint64_t)positions[row] == fold_position(fold, dtype, n, data + row * row_bytes, 1),
              "%s: nan%s of a short row of %s", gpr_cpu_isa(), gpr_fold_rows[fold].name,
              gpr_dtype_name(dtype));
}

/* Positions in columns, found in two calls: as those of the same elements in rows. */
static void check_column_positions(const gpr_loops *loops, gpr_dtype dtype, int largest, int skips)
{
    enum { MOST_WIDTH = 150, MOST_ROWS = 400 };
    static _Alignas(64) uint8_t rows[MOST_WIDTH * MOST_ROWS * 8], columns[sizeof rows];
    static uint8_t extremes[MOST_WIDTH * 8];
    const gpr_fold fold = largest ? GPR_FOLD_argmax : GPR_FOLD_argmin;
    const gpr_fold extreme_fold = largest ? skips ? GPR_FOLD_fmax : GPR_FOLD_max
                                  : skips ? GPR_FOLD_fmin
                                          : GPR_FOLD_min;
    const gpr_column_positions_loop find = loops->positions[extreme_fold].columns[dtype];
    const size_t bytes = gpr_bytes_of(dtype);
    const uint64_t width = (uint64_t)check_between((int)(GPR_COLUMN_BYTES / bytes), MOST_WIDTH),
                   n = (uint64_t)check_between(1, check_random() % 2 ? 20 : MOST_ROWS),
                   cut = (uint64_t)check_between(0, (int)n), first = check_random() >> 8;
    const size_t row_bytes = width * bytes;
    int64_t positions[MOST_WIDTH];

    if (find == NULL) return;

    const loop_case l = {
        {extreme_fold, dtype, loops->loop[extreme_fold][dtype].accumulator, 1}, NULL, skips};

    for (size_t j = 0; j < width; j++) {
        draw_row(&l, n, rows + j * n * bytes);
        for (size_t i = 0; i < n; i++)
            memcpy(columns + i * row_bytes + j * bytes, rows + (j * n + i) * bytes, bytes);
    }
    if (cut > 0)
        find((const char *)columns, (int64_t)row_bytes, cut, width, first, 1, extremes, positions);
    if (cut < n)
        find((const char *)columns + cut * row_bytes, (int64_t)row_bytes, n - cut, width,
             first + cut, cut == 0, extremes, positions);
    for (size_t j = 0; j < width; j++) {
        const uint64_t expected = fold_position(fold, dtype, n, rows + j * n * bytes, skips);

        CHECK((uint64_t)positions[j] == (expected == GPR_NOWHERE ? expected : first + expected),
              "%s: %s of column %zu of %d, of %d %s, skips %d", gpr_cpu_isa(),
              gpr_fold_rows[fold].name, j, (int)width, (int)n, gpr_dtype_name(dtype), skips);
    }
}

/* Squared distances from the mean of n elements of `parts` doubles, those that are no NaN, and
 * their number. */
static double squares_of(const double *row, uint64_t n, uint64_t parts, uint64_t *count)
{
    long double squares = 0;

    *count = 0;
    for (uint64_t i = 0; i < n; i++) *count += !isnan(row[i * parts]);
    for (uint64_t part = 0; part < parts; part++) {
        long double sum = 0;

        for (uint64_t i = part; i < n * parts; i += parts) sum += isnan(row[i]) ? 0 : row[i];
        for (uint64_t i = part; i < n * parts && *count > 0; i += parts) {
            const long double distance = isnan(row[i]) ? 0 : row[i] - sum / (long double)*count;
            squares += distance * distance;
        }
    }
    return (double)squares;
}

static void store_number(gpr_dtype dtype, const double *parts, uint8_t *at)
{
    const int is_complex = gpr_kind_of(dtype) == GPR_KIND_COMPLEX;

    gpr_convert(is_complex ? GPR_COMPLEX128 : GPR_FLOAT64, parts, dtype, at, 1);
}

/* Moments of rows, and the same without NaN, and of real numbers the same rows side by side as
 * columns; and how many are numbers, of rows and of columns. */
static void check_moments_loops(const gpr_loops *loops, gpr_dtype dtype)
{
    enum { ROWS = 21, MOST = 100 };
    static _Alignas(64) uint8_t data[ROWS * MOST * 16], turned[sizeof data];
    static double rows[ROWS][MOST * 2];
    const uint64_t n = (uint64_t)check_between(1, MOST),
                   parts = gpr_kind_of(dtype) == GPR_KIND_COMPLEX ? 2 : 1;
    const size_t bytes = gpr_bytes_of(dtype);
    const int has_nan = check_random() % 2 == 0;
    double squares[3][ROWS];
    uint64_t counts[4][ROWS];

    if (loops->moments[dtype] == NULL) return;
    for (size_t row = 0; row < ROWS; row++)
        for (size_t i = 0; i < n; i++) {
            double *number = &rows[row][i * parts];
            const int is_nan = has_nan && check_random() % 3 == 0;

            for (uint64_t part = 0; part < parts; part++)
                number[part] =
                    is_nan ? NAN : 1000 + ldexp((double)check_between(-(1 << 16), 1 << 16), -12);
            store_number(dtype, number, data + (row * n + i) * bytes);
            store_number(dtype, number, turned + (i * ROWS + row) * bytes);
        }
    loops->moments[dtype]((const char *)data, (int64_t)(n * bytes), ROWS, n, squares[0]);
    loops->skipping_moments[dtype]((const char *)data, (int64_t)(n * bytes), ROWS, n, squares[1],
                                   counts[0]);
    memcpy(squares[2], squares[1], sizeof squares[1]);
    memcpy(counts[1], counts[0], sizeof counts[0]);
    if (parts == 1)
        loops->skipping_columns[dtype]((const char *)turned, (int64_t)(ROWS * bytes), n, ROWS,
                                       squares[2], counts[1]);
    loops->numbers[dtype].rows((const char *)data, (int64_t)(n * bytes), ROWS, n, counts[2]);
    loops->numbers[dtype].columns((const char *)turned, (int64_t)(ROWS * bytes), n, ROWS, 1,
                                  counts[3]);
    for (size_t row = 0; row < ROWS; row++) {
        uint64_t count;
        const double expected = squares_of(rows[row], n, parts, &count);

        for (int k = 0; k < 3; k++)
            CHECK((k == 0 && count < n && isnan(squares[k][row])) ||
                      fabs(squares[k][row] - expected) <= 1e-11 * expected + 1e-15,
                  "%s: squares of %s, %d: %g, not %g", gpr_cpu_isa(), gpr_dtype_name(dtype), k,
                  squares[k][row], expected);
        for (int k = 0; k < 4; k++)
            CHECK(counts[k][row] == count, "%s: counts of %s, %d", gpr_cpu_isa(),
                  gpr_dtype_name(dtype), k);
    }
}

/* Squared distances from a number, of elements whose sums are exact: those of the moments of single
 * elements, merged with a set of which that number is the mean. */
static void check_squares(const gpr_loops *loops, gpr_dtype dtype)
{
    static _Alignas(64) uint8_t row[MOST_ELEMENTS * 16];
    const uint64_t n = (uint64_t)check_between(1, MOST_ELEMENTS);
    const double center[2] = {(double)check_between(-9, 9), (double)check_between(-9, 9)};
    const int is_complex = gpr_kind_of(dtype) == GPR_KIND_COMPLEX;
    double expected = 0;

    if (loops->squares[dtype] == NULL) return;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *element = row + i * gpr_bytes_of(dtype);
        double _Complex x;

        draw_tame_element(GPR_FOLD_sum, dtype, element);
        x = as_complex(dtype, element) -
            gpr_complex(center[is_complex ? 0 : i % 2], is_complex ? center[1] : 0);
        expected += creal(x) * creal(x) + cimag(x) * cimag(x);
    }
    CHECK(loops->squares[dtype](row, n, center) == expected, "%s: squares of %s", gpr_cpu_isa(),
          gpr_dtype_name(dtype));
}

/* Memory that ends with its elements: AddressSanitizer reports reads behind them. */
static void *draw_array(gpr_dtype dtype, uint64_t n)
{
    const size_t bytes = gpr_bytes_of(dtype);
    uint8_t *array = malloc(n * bytes);

    for (uint64_t i = 0; array != NULL && i < n; i++)
        draw_tame_element(GPR_FOLD_sum, dtype, array + i * bytes);
    return array;
}

/* Sums without signs, of rows and of columns, of elements whose sums are exact. */
static void check_magnitudes(gpr_loop loop, gpr_dtype dtype, int is_halved)
{
    enum { MOST_WIDTH = 100, MOST_LENGTH = 40 };
    const uint64_t rows = (uint64_t)check_between(1, MOST_LENGTH),
                   width = (uint64_t)check_between(1, MOST_WIDTH);
    const size_t bytes = gpr_bytes_of(dtype);
    static double made[2 * GPR_COLUMN_BLOCK];
    double expected[2][MOST_WIDTH] = {{0}};
    uint8_t *array = draw_array(dtype, rows * width);

    for (uint64_t r = 0; array != NULL && r < rows; r++) {
        for (uint64_t j = 0; j < width; j++) {
            const double x = fabs(creal(as_complex(dtype, array + (r * width + j) * bytes)));
            expected[0][r] += x;
            expected[1][j] += x;
        }
    }
    for (int are_columns = 0; are_columns <= 1; are_columns++) {
        const uint64_t results = are_columns ? width : rows;
        const int64_t stride = (int64_t)(width * bytes);

        if (are_columns)
            loop.columns((const char *)array, stride, rows, width, GPR_FRESH, made);
        else
            loop.rows((const char *)array, stride, rows, width, made);
        for (uint64_t i = 0; i < results; i++) {
            const double sum = made[i] + (is_halved ? made[GPR_COLUMN_BLOCK + i] : 0);
            CHECK(sum == expected[are_columns][i], "%s: magnitudes of %llu x %llu %s: %g",
                  gpr_cpu_isa(), (unsigned long long)rows, (unsigned long long)width,
                  gpr_dtype_name(dtype), sum);
        }
    }
    free(array);
}

/* Kinds of products that there are loops for. Magnitudes of float32 are added without them. */
static int kinds_of_products(gpr_dtype real)
{
    return real == GPR_FLOAT32 ? GPR_SQUARES + 1 : GPR_MAGNITUDES + 1;
}

/* Sums of products that are exact, and their magnitudes' sums, beside those of single elements. */
static void check_product_sums(const gpr_loops *loops, gpr_dtype dtype)
{
    const uint64_t n = (uint64_t)check_between(1, MOST_ELEMENTS);
    const size_t bytes = gpr_bytes_of(dtype);

    for (int kind = GPR_PRODUCTS; kind <= GPR_MAGNITUDES; kind++) {
        const gpr_product_sum_loop loop = loops->product_sums[kind][dtype];
        uint8_t *a, *b;
        double expected = 0, size = 0;
        gpr_product_sum made;

        if (loop == NULL) return;
        a = draw_array(dtype, n);
        b = draw_array(dtype, n);
        for (uint64_t i = 0; i < n; i++) {
            const double x = creal(as_complex(dtype, a + i * bytes)),
                         y = creal(as_complex(dtype, b + i * bytes));
            const double product = kind == GPR_PRODUCTS  ? x * y
                                   : kind == GPR_SQUARES ? x * x
                                                         : fabs(x);
            expected += product;
            size += fabs(product);
        }
        made = loop(a, b, n);
        /* loops of float64 may bound the sum instead of the magnitudes' */
        CHECK(made.upper + made.lower == expected &&
                  made.size >= (dtype == GPR_FLOAT64 ? fabs(expected) : size),
              "%s: products %d of %llu %s", gpr_cpu_isa(), kind, (unsigned long long)n,
              gpr_dtype_name(dtype));
        free(a);
        free(b);
    }
}

static double draw_number(int least_exponent, int most_exponent)
{
    const double fraction = 1 + (double)check_between(0, INT32_MAX) * 0x1p-31;
    const double x = ldexp(fraction, (int)check_between(least_exponent, most_exponent));

    return check_between(0, 1) ? x : -x;
}

/* Numbers around some exponent, where float32 may overflow or underflow when squared. Those from
 * some place on may be much larger. Memory ends with them. */
static void *draw_factors(gpr_dtype real, uint64_t n)
{
    const size_t bytes = gpr_bytes_of(real);
    const int most = real == GPR_FLOAT32 ? 70 : 420, range = (int)check_between(0, 20),
              around = (int)check_between(-most, most), larger = (int)check_between(0, 50);
    const uint64_t from = check_between(0, 2) == 0 ? (uint64_t)check_between(0, (int64_t)n) : n;
    uint8_t *array = malloc(n * bytes);

    for (uint64_t i = 0; array != NULL && i < n; i++) {
        const int middle = around + (i >= from ? larger : 0);
        const double x = draw_number(middle - range, middle + range);

        gpr_convert(GPR_FLOAT64, &x, real, array + i * bytes, 1);
    }
    return array;
}

/* The product of factors i and k of two arrays, added to an exact sum. */
static void add_exact_product(gpr_exact_part *part, gpr_dtype real, const uint8_t *a, uint64_t i,
                              const uint8_t *b, uint64_t k)
{
    const size_t bytes = gpr_bytes_of(real);
    double x, y;

    gpr_convert(real, a + i * bytes, GPR_FLOAT64, &x, 1);
    gpr_convert(real, b + k * bytes, GPR_FLOAT64, &y, 1);
    gpr_exact_add_products(part, GPR_FLOAT64, &x, &y, 1);
}

/* Of a sum's size: what product_sums.c assumes of errors. */
static double share_of(gpr_dtype real)
{
    return real == GPR_FLOAT64 ? 0x1p-81 : 0x1p-41;
}

/* Whether a loop's sum differs from the exact one by no more than a share of its size. */
static void check_bound(gpr_exact_part *exact, gpr_dtype real, double share, gpr_product_sum made,
                        int kind)
{
    const double minus_one = -1;
    double error;

    if (!(made.size >= 0x1p-800 && made.size <= 0x1p1000)) return; /* nor are they used */
    gpr_exact_add_products(exact, GPR_FLOAT64, &made.upper, &minus_one, 1);
    gpr_exact_add_products(exact, GPR_FLOAT64, &made.lower, &minus_one, 1);
    CHECK(gpr_exact_round(exact, GPR_FLOAT64, 0, &error) == GPR_OK, "%s", gpr_cpu_isa());
    CHECK(fabs(error) <= share * made.size, "%s: products %d of %s: error %g of %g", gpr_cpu_isa(),
          kind, gpr_dtype_name(real), error, made.size);
}

/* Errors of sums of products that are rounded. */
static void check_product_bounds(const gpr_loops *loops, gpr_dtype real, gpr_dtype pairs)
{
    const uint64_t n = (uint64_t)check_between(1, 4 * MOST_ELEMENTS);
    uint8_t *a = draw_factors(real, 2 * n), *b = draw_factors(real, 2 * n);
    gpr_product_sum parts[GPR_PART_PRODUCTS];
    const double one = 1;

    for (int kind = GPR_PRODUCTS; kind < kinds_of_products(real); kind++) {
        const gpr_product_sum made = loops->product_sums[kind][real](a, b, n);
        gpr_exact_part exact;

        gpr_exact_clear_products(&exact, GPR_FLOAT64);
        for (uint64_t i = 0; i < n; i++) {
            double x;

            gpr_convert(real, a + i * gpr_bytes_of(real), GPR_FLOAT64, &x, 1);
            x = fabs(x);
            if (kind == GPR_MAGNITUDES)
                gpr_exact_add_products(&exact, GPR_FLOAT64, &x, &one, 1);
            else
                add_exact_product(&exact, real, a, i, kind == GPR_SQUARES ? a : b, i);
        }
        check_bound(&exact, real, share_of(real), made, kind);
    }
    loops->complex_product_sums[pairs](a, b, n, parts);
    for (uint64_t part = 0; part < GPR_PART_PRODUCTS; part++) {
        gpr_exact_part exact;

        gpr_exact_clear_products(&exact, GPR_FLOAT64);
        for (uint64_t i = 0; i < n; i++)
            add_exact_product(&exact, real, a, 2 * i + part % 2, b, 2 * i + (part % 2 ^ part / 2));
        check_bound(&exact, real, share_of(real), parts[part], (int)part);
    }
    free(a);
    free(b);
}

/* Factors of which many sums are halfway between two float32 or float64, or 0: numbers of all bits
 * of the type whose exponents are alike, some of them 0 or the last one with the other sign. */
static void *draw_ties(gpr_dtype real, uint64_t n)
{
    const size_t bytes = gpr_bytes_of(real);
    uint8_t *array = malloc(n * bytes);

    for (uint64_t i = 0; array != NULL && i < n; i++) {
        const int64_t odd = 2 * check_between(0, INT32_MAX) + 1;
        double x = ldexp((double)odd, (int)check_between(-3, 0));

        if (real == GPR_FLOAT64) x += ldexp((double)check_between(0, 9), -21);
        if (check_between(0, 9) == 0) x = check_between(0, 1) ? 0 : -0.0;
        gpr_convert(GPR_FLOAT64, &x, real, array + i * bytes, 1);
        if (i > 0 && check_between(0, 9) == 0) {
            memcpy(array + i * bytes, array + (i - 1) * bytes, bytes);
            array[(i + 1) * bytes - 1] ^= 0x80;
        }
    }
    return array;
}

/* Powers of two, or of one: products with them have no more bits. */
static void *draw_weights(gpr_dtype real, uint64_t n)
{
    const size_t bytes = gpr_bytes_of(real);
    const int range = (int)check_between(0, 2);
    uint8_t *array = malloc(n * bytes);

    for (uint64_t i = 0; array != NULL && i < n; i++) {
        const double x = ldexp(1, (int)check_between(-range, range));
        gpr_convert(GPR_FLOAT64, &x, real, array + i * bytes, 1);
    }
    return array;
}

/* Rows whose products are summed side by side. */
enum { MOST_ROWS = 40, ROW_SLOTS = 48, MOST_ROW_LENGTH = 300 };

/* Where rows of `n` numbers begin: neighbours in memory, or one behind the other, or one for all.
 * Returns the bytes from a number of a row to its next one. */
static int64_t place_rows(const uint8_t *numbers, size_t bytes, uint64_t width, uint64_t n, int how,
                          const char **rows)
{
    for (uint64_t j = 0; j < ROW_SLOTS; j++) {
        const uint64_t row = j < width ? j : width - 1;

        rows[j] = (const char *)numbers + (how == 0 ? row : how == 1 ? row * n : 0) * bytes;
    }
    return (int64_t)((how == 0 ? width : 1) * bytes);
}

/* The exact sum of all n products of a row. */
static void sum_row_exactly(const gpr_product_rows *rows, uint64_t row, uint64_t n, gpr_dtype real,
                            int kind, gpr_exact_part *exact)
{
    gpr_exact_clear_products(exact, GPR_FLOAT64);
    for (uint64_t i = 0; i < n; i++) {
        double x, y;

        gpr_convert(real, rows->p[row] + (int64_t)i * rows->p_stride, GPR_FLOAT64, &x, 1);
        gpr_convert(real, rows->q[row] + (int64_t)i * rows->q_stride, GPR_FLOAT64, &y, 1);
        if (kind != GPR_PRODUCTS) x = fabs(x), y = kind == GPR_SQUARES ? x : 1;
        gpr_exact_add_products(exact, GPR_FLOAT64, &x, &y, 1);
    }
}

/* `share`: of sizes, by which sums may differ; 0: those that two doubles hold must be exact. */
static void check_rows_of_products(gpr_product_rows_loop loop, gpr_dtype real, double share,
                                   int kind)
{
    const size_t bytes = gpr_bytes_of(real);
    const uint64_t width = (uint64_t)check_between(1, MOST_ROWS),
                   cut = (uint64_t)check_between(1, 3),
                   half = (uint64_t)check_between(1, MOST_ROW_LENGTH / 4),
                   n = cut * half + (uint64_t)check_between(0, MOST_ROW_LENGTH / 4);
    const int are_held = share == 0 && check_between(0, 1);
    uint8_t *a = are_held ? draw_ties(real, width * n) : draw_factors(real, width * n),
            *b = are_held ? draw_weights(real, width * n) : draw_factors(real, width * n);
    const char *p[ROW_SLOTS], *q[ROW_SLOTS];
    const int of_second = (int)check_between(0, 2);
    double upper[ROW_SLOTS], lower[ROW_SLOTS], sizes[ROW_SLOTS];
    gpr_product_rows rows = {.p = p, .q = q, .width = width, .q_is_one = of_second == 2};

    rows.p_stride = place_rows(a, bytes, width, n, (int)check_between(0, 1), p);
    rows.q_stride = place_rows(b, bytes, width, n, of_second, q);
    /* blocks first, and then what is left */
    rows.n = half;
    rows.blocks = cut;
    rows.p_block = (int64_t)half * rows.p_stride;
    rows.q_block = (int64_t)half * rows.q_stride;
    loop(&rows, upper, lower, sizes);
    rows.continues = 1;
    rows.p_first = (int64_t)(cut * half) * rows.p_stride;
    rows.q_first = (int64_t)(cut * half) * rows.q_stride;
    rows.n = n - cut * half;
    rows.blocks = 1;
    loop(&rows, upper, lower, sizes);
    for (uint64_t j = 0; j < width; j++) {
        const gpr_product_sum made = {upper[j], lower[j], sizes[j]};
        gpr_exact_part exact;

        CHECK(!are_held || made.size == made.size, "%s: two doubles hold a sum of %s",
              gpr_cpu_isa(), gpr_dtype_name(real));
        sum_row_exactly(&rows, j, n, real, kind, &exact);
        check_bound(&exact, real, share, made, kind);
    }
    free(a);
    free(b);
}

static void check_product_rows(const gpr_loops *loops)
{
    for (int kind = GPR_PRODUCTS; kind < kinds_of_products(GPR_FLOAT32); kind++)
        check_rows_of_products(loops->product_rows[kind][GPR_FLOAT32], GPR_FLOAT32,
                               share_of(GPR_FLOAT32), kind);
    for (int kind = GPR_PRODUCTS; kind < kinds_of_products(GPR_FLOAT64); kind++)
        check_rows_of_products(loops->product_rows[kind][GPR_FLOAT64], GPR_FLOAT64,
                               share_of(GPR_FLOAT64), kind);
    check_rows_of_products(loops->wide_product_rows, GPR_FLOAT32, share_of(GPR_FLOAT64),
                           GPR_PRODUCTS);
    check_rows_of_products(loops->exact_product_rows[GPR_FLOAT32], GPR_FLOAT32, 0, GPR_PRODUCTS);
    check_rows_of_products(loops->exact_product_rows[GPR_FLOAT64], GPR_FLOAT64, 0, GPR_PRODUCTS);
}

/* Rows, all of one kind, whose sums lose what decides how they are rounded: a number and half of
 * its last bit, as a float32 or a float64, with a little more or less in one number or in many; and
 * large numbers that cancel each other and leave what was small beside them. In the last kind, the
 * root is just beside a midpoint. */
enum { HARD_KINDS = 5 };

static void draw_hard_row(int kind, int is_wide, double *row, uint64_t n)
{
    const int64_t bits = is_wide && kind == 1 ? 52 : 23,
                  most = (INT64_C(1) << bits) /
                         (kind == HARD_KINDS - 1 ? 3 : 1), /* or bits are lost */
        number = (INT64_C(1) << bits) + check_between(0, most - 1);
    const double sign = check_between(0, 1) ? 1 : -1, last = ldexp(1, (int)bits - 52),
                 little = fabs(draw_number(-1, -1)), large = ldexp(1, kind == 2 ? 35 : 60),
                 least = (1 + 0x1p-23 * (double)check_between(1, 99)) * 0x1p-50;
    /* just beside midpoints of float32, of float64, and twice what is left of large numbers */
    const double first[HARD_KINDS - 1][5] = {
        {(double)number, 0.5, -sign * (double)check_between(0, 3) * last},
        {(double)number, is_wide ? 0.5 : last / 2},
        {large, little, 0, -large},
        {large, 1, least, -large, -1}};
    const double rest = little * ldexp(last, kind == 0 ? -2 : -(int)check_between(6, 70));
    int64_t left = 16 * (4 * number + 1) + (int64_t)sign; /* of squares, in sixteenths */

    for (uint64_t i = 0; i < n; i++) {
        row[i] = kind < HARD_KINDS - 1 && i < 5 ? first[kind][i] : 0;
        if (kind < 2 && i >= (uint64_t)(3 - kind)) row[i] = sign * rest;
        if (kind < HARD_KINDS - 1) continue;
        /* the square of a number of one bit more, and a sixteenth more or less, as squares */
        row[i] = i == 0 ? (double)(2 * number) : floor(sqrt((double)left)) / 4;
        if (i > 0) left -= (int64_t)(16 * row[i] * row[i]);
    }
}

static void *draw_hard_rows(gpr_dtype real, int how, uint64_t width, uint64_t n)
{
    const size_t bytes = gpr_bytes_of(real);
    const int kind = (int)check_between(0, HARD_KINDS - 1);
    uint8_t *array = malloc(width * n * bytes);
    double row[GPR_FEW_PRODUCTS];

    for (uint64_t j = 0; array != NULL && j < width; j++) {
        draw_hard_row(kind, real == GPR_FLOAT64, row, n);
        for (uint64_t i = 0; i < n; i++)
            gpr_convert(GPR_FLOAT64, &row[i], real,
                        array + (how == 0 ? i * width + j : j * n + i) * bytes, 1);
    }
    return array;
}

/* The root of an exact sum of squares, rounded to float32: of the two next to an estimate the one
 * on whose side of the number halfway between them the sum is. */
static double exact_root(const gpr_exact_part *exact)
{
    double sum, left;
    float low, high;

    CHECK(gpr_exact_round(exact, GPR_FLOAT64, 0, &sum) == GPR_OK, "%s", gpr_cpu_isa());
    if (!(sum > 0 && sum < INFINITY)) return sum;
    high = (float)sqrt(sum);
    low = (double)high * (double)high > sum ? nextafterf(high, 0) : high;
    high = nextafterf(low, INFINITY);
    const double middle = ((double)low + (double)high) / 2, other = -middle;
    gpr_exact_part beside = *exact;

    gpr_exact_add_products(&beside, GPR_FLOAT64, &middle, &other, 1);
    CHECK(gpr_exact_round(&beside, GPR_FLOAT64, 0, &left) == GPR_OK, "%s", gpr_cpu_isa());
    if (left == 0) { /* the even one */
        uint32_t bits;
        memcpy(&bits, &low, sizeof bits);
        return bits % 2 == 0 ? (double)low : (double)high;
    }
    return left < 0 ? (double)low : (double)high;
}

/* The result of a row's exact sum. */
static double result_of_few(gpr_exact_part *exact, const gpr_few_rule *rule, double divisor)
{
    float single;
    double sum, quotient;

    CHECK(gpr_exact_round(exact, GPR_FLOAT32, 0, &single) == GPR_OK, "%s", gpr_cpu_isa());
    CHECK(gpr_exact_round(exact, GPR_FLOAT64, 0, &sum) == GPR_OK, "%s", gpr_cpu_isa());
    quotient = sum / divisor;
    if (rule->takes_root) return exact_root(exact);
    if (!rule->is_divided) return rule->is_single ? (double)single : sum;
    return rule->is_single ? (double)(float)quotient : quotient;
}

/* Results of few products, of which none of ties is left to others. */
static void check_few_products(const gpr_loops *loops, gpr_dtype real)
{
    const size_t bytes = gpr_bytes_of(real);
    const uint64_t width = (uint64_t)check_between(1, MOST_ROWS),
                   n = (uint64_t)check_between(1, GPR_FEW_PRODUCTS);
    enum { WIDE, TIES, HARD } kind = (int)check_between(WIDE, HARD);
    const int have_weights = kind == HARD || check_between(0, 1),
              of_first = (int)check_between(0, 1), of_second = (int)check_between(0, 2);
    uint8_t *a = kind == WIDE   ? draw_factors(real, width * n)
                 : kind == TIES ? draw_ties(real, width * n)
                                : draw_hard_rows(real, of_first, width, n),
            *b = kind == WIDE   ? draw_factors(real, width * n)
                 : have_weights ? draw_weights(real, width * n)
                                : draw_ties(real, width * n);
    const char *p[ROW_SLOTS], *q[ROW_SLOTS];
    const int takes_root = real == GPR_FLOAT32 && check_between(0, 3) == 0;
    double divisors[MOST_ROWS], made[MOST_ROWS];
    float singles[MOST_ROWS];
    gpr_few_rule rule = {.start = -0.0,
                         .divisor = (double)check_between(1, 9),
                         .divisors = check_between(0, 1) ? divisors : NULL,
                         .is_divided = !takes_root && check_between(0, 1),
                         .is_single = takes_root || check_between(0, 1),
                         .takes_root = takes_root};
    gpr_product_rows rows = {.p = p, .q = q, .width = width, .n = n, .blocks = 1};
    int is_certain;

    rows.q_is_one = of_second == 2;
    rows.are_beside = of_first == 0 && of_second != 1 && check_between(0, 1);
    rows.p_stride = place_rows(a, bytes, width, n, of_first, p);
    rows.q_stride = place_rows(b, bytes, width, n, of_second, q);
    if (!rule.is_divided) rule.divisors = NULL, rule.divisor = 1;
    for (uint64_t j = 0; j < width; j++) divisors[j] = (double)check_between(1, 9);
    is_certain =
        loops->few_products[real](&rows, &rule, rule.is_single ? (void *)singles : (void *)made);
    CHECK(is_certain || kind != TIES || takes_root || (real == GPR_FLOAT64 && !have_weights),
          "%s: %d of %llu ties of %s", gpr_cpu_isa(), is_certain, (unsigned long long)n,
          gpr_dtype_name(real));
    for (uint64_t j = 0; is_certain && j < width; j++) {
        const double result = rule.is_single ? (double)singles[j] : made[j];
        gpr_exact_part exact;

        sum_row_exactly(&rows, j, n, real, takes_root ? GPR_SQUARES : GPR_PRODUCTS, &exact);
        const double wanted =
            result_of_few(&exact, &rule, rule.divisors != NULL ? divisors[j] : rule.divisor);
        CHECK(result == wanted && signbit(result) == signbit(wanted),
              "%s: row %llu of %llu products of %s, %d %d %d: %.17g, not %.17g", gpr_cpu_isa(),
              (unsigned long long)j, (unsigned long long)n, gpr_dtype_name(real), (int)kind,
              rule.is_divided, rule.is_single, result, wanted);
    }
    free(a);
    free(b);
}

/* What remains of products after their rounded values may be too small for a double: then a loop
 * that takes its sum for exact is wrong. */
static void check_underflown_products(const gpr_loops *loops)
{
    enum { WIDTH = 8, N = 4 };
    const int most = (int)check_between(-1040, -800);
    double a[N][WIDTH] = {{0}}, b[N][WIDTH] = {{0}}, made[WIDTH];
    const char *p[ROW_SLOTS], *q[ROW_SLOTS];
    const gpr_few_rule rule = {.start = -0.0, .divisor = 1};
    gpr_product_rows rows = {.p = p, .q = q, .width = WIDTH, .n = N, .blocks = 1};

    rows.p_stride = place_rows((const uint8_t *)a, sizeof(double), WIDTH, N, 0, p);
    rows.q_stride = place_rows((const uint8_t *)b, sizeof(double), WIDTH, N, 0, q);
    for (int j = 0; j < WIDTH; j++) {
        for (int i = 0; i < N; i += 2) {
            a[i][j] = draw_number(-1, -1) + draw_number(-40, -30);
            b[i][j] = ldexp(draw_number(-1, -1) + draw_number(-40, -30), most);
            a[i + 1][j] = -1;
            b[i + 1][j] = a[i][j] * b[i][j];
        }
    }
    if (!loops->few_products[GPR_FLOAT64](&rows, &rule, made)) return;
    for (int j = 0; j < WIDTH; j++) {
        gpr_exact_part exact;
        double wanted;

        gpr_exact_clear_products(&exact, GPR_FLOAT64);
        for (int i = 0; i < N; i++)
            gpr_exact_add_products(&exact, GPR_FLOAT64, &a[i][j], &b[i][j], 1);
        CHECK(gpr_exact_round(&exact, GPR_FLOAT64, 0, &wanted) == GPR_OK, "%s", gpr_cpu_isa());
        CHECK(made[j] == wanted, "%s: what is left of products of 2^%d: %g, not %g", gpr_cpu_isa(),
              most, made[j], wanted);
    }
}

/* Intervals beside long doubles, whose own error is far less than the widths that are drawn. */
static void check_intervals(const gpr_loops *loops)
{
    const uint64_t count = (uint64_t)check_between(1, MOST_ROWS);
    const gpr_interval_rule rule = {
        .times = (double)check_between(1, 9),
        .share = ldexp(1, -(int)check_between(30, 50)),
        .step = check_between(0, 1) ? ldexp(1, -(int)check_between(40, 52)) : 0,
        .divisor = (double)check_between(1, 9),
        .takes_root = (int)check_between(0, 1),
        .zero_is_zero = (int)check_between(0, 1),
        .zero_has_sign = 1};
    double upper[MOST_ROWS], lower[MOST_ROWS], sizes[MOST_ROWS], low[MOST_ROWS], high[MOST_ROWS];

    for (uint64_t i = 0; i < count; i++) {
        upper[i] = draw_number(-20, 20);
        if (rule.takes_root) upper[i] = fabs(upper[i]);
        lower[i] = upper[i] * ldexp((double)check_between(-9, 9), -60);
        sizes[i] = fabs(upper[i]) * (double)check_between(1, 3);
        switch (check_between(0, 9)) {
        case 0: upper[i] = -0.0, lower[i] = sizes[i] = 0; break;
        case 1: sizes[i] = check_between(0, 1) ? INFINITY : (double)NAN; break;
        case 2: sizes[i] = 0x1p60; break; /* zero may be in the interval */
        default: break;
        }
    }
    loops->intervals(upper, lower, sizes, count, &rule, low, high);
    for (uint64_t i = 0; i < count; i++) {
        const long double times = rule.times,
                          sum = ((long double)upper[i] + (long double)lower[i]) * times,
                          error = (long double)sizes[i] * times * rule.share,
                          middle = rule.takes_root ? sqrtl(sum) : sum,
                          doubt = (rule.takes_root ? error / middle : error) +
                                  fabsl(middle) * rule.step;
        /* wider intervals of roots are those of sums that are about as large as their sizes */
        const int is_zero = sizes[i] == 0,
                  is_smaller =
                      rule.takes_root && rule.step > 0 && sizes[i] > 2 * (upper[i] + lower[i]),
                  has_none = is_zero ? !rule.zero_is_zero
                                     : !isfinite(sizes[i]) || error >= fabsl(sum) / 2 || is_smaller;

        if (is_zero && rule.zero_is_zero) {
            CHECK(low[i] == 0 && high[i] == 0 && signbit(low[i]) && signbit(high[i]),
                  "%s: a sum of -0", gpr_cpu_isa());
        } else if (has_none) {
            CHECK(isnan(low[i]) || (!rule.takes_root && error < fabsl(sum)),
                  "%s: an interval where there is none", gpr_cpu_isa());
        } else {
            const long double from = (long double)low[i] * rule.divisor,
                              to = (long double)high[i] * rule.divisor;

            CHECK(from <= middle - 0.4L * doubt && to >= middle + 0.4L * doubt,
                  "%s: the interval lacks numbers", gpr_cpu_isa());
            CHECK(from >= middle - 2 * doubt && to <= middle + 2 * doubt,
                  "%s: the interval is too wide", gpr_cpu_isa());
        }
    }
}

/* Conversions before a loop, beside those of the library. */
static void check_widening(const gpr_loops *loops, gpr_dtype dtype)
{
    const gpr_widening how = loops->widen[dtype];
    const uint64_t n = (uint64_t)check_between(1, MOST_ELEMENTS);
    void *elements, *made, *expected;

    if (how.loop == NULL) return;
    elements = draw_array(dtype, n);
    made = malloc(n * gpr_bytes_of(how.to));
    expected = malloc(n * gpr_bytes_of(how.to));
    how.loop(elements, made, n);
    gpr_convert(dtype, elements, how.to, expected, n);
    CHECK(memcmp(made, expected, n * gpr_bytes_of(how.to)) == 0, "%s: %s as %s", gpr_cpu_isa(),
          gpr_dtype_name(dtype), gpr_dtype_name(how.to));
    free(elements);
    free(made);
    free(expected);
}

/* Mantissas and exponents beside frexp's, which are of [1/2, 1). */
static void check_mantissas(const gpr_loops *loops)
{
    static const double special[] = {0, -0.0, INFINITY, -INFINITY, 0x1p-1074, -0x1p-1023, 0x1p1023};
    enum { SPECIALS = sizeof special / sizeof special[0] };
    const uint64_t n = (uint64_t)check_between(1, MOST_ELEMENTS);
    double *x = malloc(n * sizeof *x), *mantissas = malloc(n * sizeof *mantissas);
    int64_t *exponents = malloc(n * sizeof *exponents);

    for (uint64_t i = 0; i < n; i++) {
        const int drawn = (int)check_between(0, 2 * SPECIALS);

        x[i] = drawn < SPECIALS
                   ? special[drawn]
                   : ldexp((double)check_between(-999, 999), (int)check_between(-1080, 1000));
        mantissas[i] = 3;
        exponents[i] = 5;
    }
    loops->multiply_mantissas(x, n, mantissas, exponents);
    for (uint64_t i = 0; i < n; i++) {
        const int keeps = x[i] == 0 || isinf(x[i]);
        int exponent = 0;
        const double mantissa = keeps ? x[i] : 2 * frexp(x[i], &exponent);

        CHECK(mantissas[i] == 3 * mantissa && signbit(mantissas[i]) == signbit(x[i]) &&
                  exponents[i] == 5 + (keeps ? 0 : exponent - 1),
              "%s: mantissa of %a", gpr_cpu_isa(), x[i]);
    }
    free(x);
    free(mantissas);
    free(exponents);
}

/* Positions in a row that is longer than positions in vectors of the narrowest integers reach: all
 * elements are alike, but for a few that are better, and of them the first of the best counts. */
static void check_long_row(const gpr_loops *loops, gpr_dtype dtype, int is_largest)
{
    const uint64_t n = (uint64_t)check_between(1, 200000);
    const size_t bytes = gpr_bytes_of(dtype);
    const gpr_positions_loop find =
        loops->positions[is_largest ? GPR_FOLD_max : GPR_FOLD_min].rows[dtype];
    char *row = malloc(n * bytes);
    const int64_t usual = 40;
    int64_t best = usual, found = -1;
    uint64_t at = 0;

    for (uint64_t i = 0; row != NULL && i < n; i++)
        gpr_convert(GPR_INT64, &usual, dtype, row + i * bytes, 1);
    for (int k = 0; row != NULL && k < 6; k++) {
        const uint64_t place = (uint64_t)check_between(0, (int64_t)n - 1);
        const int64_t least = gpr_kind_of(dtype) == GPR_KIND_SIGNED ? INT64_MIN : 0,
                      limit = is_largest ? (int64_t)(UINT64_MAX >> (least != 0)) : least;
        const int is_limit = bytes == 8 && (dtype == GPR_INT64 || !is_largest) && k > 3;
        const int64_t value = is_limit     ? limit
                              : is_largest ? check_between(41, 43)
                                           : check_between(37, 39);
        const int is_better = is_largest ? value > best : value < best;

        if (place == at && best != usual) continue; /* the best so far stays */
        gpr_convert(GPR_INT64, &value, dtype, row + place * bytes, 1);
        if (is_better || (value == best && place < at)) best = value, at = place;
    }
    if (row != NULL) find(row, 0, 1, n, &found);
    CHECK(found == (int64_t)at, "%s: position in %llu of %s: %lld, not %llu", gpr_cpu_isa(),
          (unsigned long long)n, gpr_dtype_name(dtype), (long long)found, (unsigned long long)at);
    free(row);
}

static void test_loops_and_host_fold_alike(void)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};

    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        const gpr_loops *loops;

        if (gpr_set_cpu_isa(isas[i]) != GPR_OK) continue; /* not on this machine */
        loops = gpr_cpu_loops();
        for (int d = 0; d < GPR_DTYPE_COUNT; d++) {
            for (int fold = 0; fold < GPR_FOLD_COUNT; fold++) {
                check_loop((gpr_fold)fold, (gpr_dtype)d, &loops->loop[fold][d], 0);
                check_loop((gpr_fold)fold, (gpr_dtype)d, &loops->skipping[fold][d], 1);
            }
            for (int draw = 0; draw < DRAWS; draw++) {
                check_positions(loops, (gpr_dtype)d, draw % 2);
                check_skipping_positions(loops, (gpr_dtype)d, draw % 2);
                for (int skips = 0; skips < 2; skips++)
                    check_column_positions(loops, (gpr_dtype)d, draw % 2, skips);
                check_moments_loops(loops, (gpr_dtype)d);
                check_squares(loops, (gpr_dtype)d);
                check_product_sums(loops, (gpr_dtype)d);
                check_widening(loops, (gpr_dtype)d);
                check_mantissas(loops);
            }
        }
        for (int draw = 0; draw < LOOP_DRAWS; draw++) {
            for (gpr_dtype dtype = GPR_INT8; dtype <= GPR_UINT64; dtype++) {
                if (gpr_is_inexact(dtype)) continue;
                check_long_row(loops, dtype, 0);
                check_long_row(loops, dtype, 1);
            }
        }
        for (int draw = 0; draw < DRAWS; draw++) {
            check_magnitudes(loops->magnitudes, GPR_FLOAT32, 0);
            check_magnitudes(loops->magnitude_halves, GPR_FLOAT64, 1);
            check_product_rows(loops);
            check_few_products(loops, GPR_FLOAT32);
            check_few_products(loops, GPR_FLOAT64);
            check_underflown_products(loops);
            check_intervals(loops);
            check_product_bounds(loops, GPR_FLOAT32, GPR_COMPLEX64);
            check_product_bounds(loops, GPR_FLOAT64, GPR_COMPLEX128);
        }
    }
}

int main(void)
{
    check_begin();
    test_kernels_and_host_fold_alike();
    test_loops_and_host_fold_alike();
    return check_end();
}
