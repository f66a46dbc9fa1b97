/* Exact sums and products in C: addition by bins and element by element agree in every
 * floating-point environment, bins report sums that they do not hold, states stay valid, and
 * failures change nothing. Values are compared with the addition element by element, which is
 * integer arithmetic, and with __int128 where it has room; tests/exact/test_exact.py has a
 * reference of its own. */
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "check.h"
#include "cpu/cpu.h"
#include "cpu/exact_tiles.h"
#include "cpu/loops.h"
#include "lib/base/registry.h"
#include "lib/base/status.h"
#include "lib/exact/exact.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

enum { MOST_BYTES = 512 };

static const char *const isas[] = {"avx512", "avx2", "baseline"};
enum { ISAS = sizeof isas / sizeof isas[0] };

static const gpr_dtype floats[] = {GPR_FLOAT16, GPR_BFLOAT16, GPR_FLOAT32, GPR_FLOAT64};
enum { FLOATS = sizeof floats / sizeof floats[0] };

/* Bits of the exponent and of the significand as they are stored. */
static int exponent_bits(gpr_dtype dtype)
{
    return dtype == GPR_FLOAT16 ? 5 : dtype == GPR_FLOAT64 ? 11 : 8;
}

static int fraction_bits(gpr_dtype dtype)
{
    return (int)gpr_dtype_bytes(dtype) * 8 - 1 - exponent_bits(dtype);
}

static gpr_exact *make(gpr_dtype dtype)
{
    gpr_exact *sum = NULL;

    CHECK(gpr_exact_create(dtype, &sum) == GPR_OK && sum != NULL, "%s", gpr_last_error()->message);
    return sum;
}

/* Whether both sums have the same bytes. */
static int same(const gpr_exact *a, const gpr_exact *b)
{
    unsigned char of_a[MOST_BYTES] = {0}, of_b[MOST_BYTES] = {0};

    gpr_exact_store(a, of_a);
    gpr_exact_store(b, of_b);
    return memcmp(of_a, of_b, sizeof of_a) == 0;
}

/* The sum of contiguous elements, added one by one. */
static gpr_exact *reference(gpr_dtype dtype, const void *elements, uint64_t count)
{
    gpr_exact *sum = make(dtype);
    const char *bytes = elements;

    for (uint64_t i = 0; i < count; i++)
        gpr_exact_update_array(sum, bytes + i * gpr_dtype_bytes(dtype), 1);
    return sum;
}

/* Doubles whose exponents lie in a range, some of them subnormal or zero. */
static void fill_doubles(double *values, uint64_t count, int low, int high)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bits =
            (check_random() & ~(UINT64_C(0x7ff) << 52)) | (uint64_t)check_between(low, high) << 52;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

static void fill_floats(float *values, uint64_t count, int low, int high)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t bits = ((uint32_t)check_random() & ~(UINT32_C(0xff) << 23)) |
                              (uint32_t)check_between(low, high) << 23;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

/* ---------------------------------------------------------------- the floating point unit ---- */

enum { FLUSH = 1, UPWARD = 2, DOWNWARD = 4, TRAPS = 8 };

/* Sets the calling thread's floating point unit as a program might. */
static void set_unit(int how)
{
    (void)fesetenv(FE_DFL_ENV);
    if ((how & UPWARD) != 0) (void)fesetround(FE_UPWARD);
    if ((how & DOWNWARD) != 0) (void)fesetround(FE_DOWNWARD);
#if defined(__SSE2__)
    /* flush results to zero, read subnormals as zero */
    if ((how & FLUSH) != 0) _mm_setcsr(_mm_getcsr() | 0x8040);
    if ((how & TRAPS) != 0) _mm_setcsr(_mm_getcsr() & ~0x1f80u);
#endif
}

#if defined(__SSE2__)
static unsigned unit_setting(void)
{
    return _mm_getcsr() & ~0x3fu; /* without the flags of what has happened */
}
#else
static unsigned unit_setting(void)
{
    return (unsigned)fegetround();
}
#endif

static gpr_status vary(const double *values, int64_t count, double *result)
{
    return gpr_reduce(&(gpr_request){.op = GPR_OP_STD,
                                     .dtype = GPR_FLOAT64,
                                     .compute = GPR_DTYPE_DEFAULT,
                                     .ndim = 1,
                                     .reduced = 1,
                                     .shape = &count,
                                     .data = values,
                                     .ddof = 0.3,
                                     .kernel = GPR_KERNEL_exact,
                                     .device = GPR_DEVICE_CPU,
                                     .result = result});
}

static gpr_status multiply(const void *a, const void *b, gpr_dtype dtype, uint64_t count,
                           double *result)
{
    const int64_t stride = (int64_t)gpr_dtype_bytes(dtype);

    return gpr_dot(&(gpr_dot_request){.a = {.dtype = dtype, .data = a, .stride = stride},
                                      .b = {.dtype = dtype, .data = b, .stride = stride},
                                      .factor = dtype,
                                      .compute = GPR_FLOAT64,
                                      .n = count,
                                      .kernel = -1,
                                      .device = GPR_DEVICE_CPU,
                                      .result = result});
}

/* Without traps: a request's own clock divides. */
static void test_no_setting_of_the_floating_point_unit_changes_a_product(void)
{
    enum { COUNT = 3 * GPR_EXACT_TILE + 17, TRIES = 6, RESULTS = 3 };
    static const int settings[] = {FLUSH, UPWARD, DOWNWARD, FLUSH | UPWARD};
    static double a[COUNT], b[COUNT];
    static float singles[COUNT];

    for (int i = 0; i < TRIES; i++) {
        const int low = (int)check_between(0, 1000), high = low + (int)check_between(0, 60);
        double plain[RESULTS], got[RESULTS];

        fill_doubles(a, COUNT, low, high);
        fill_doubles(b, COUNT, 900, 960);
        fill_floats(singles, COUNT, 0, (int)check_between(0, 40));
        for (size_t s = 0; s <= sizeof settings / sizeof settings[0]; s++) {
            double *results = s == 0 ? plain : got;
            gpr_status status;

            set_unit(s == 0 ? 0 : settings[s - 1]);
            const unsigned before = unit_setting();
            status = multiply(a, b, GPR_FLOAT64, COUNT, &results[0]);
            if (status == GPR_OK)
                status = multiply(singles, singles, GPR_FLOAT32, COUNT, &results[1]);
            if (status == GPR_OK) status = vary(a, COUNT, &results[2]);
            const unsigned after = unit_setting();
            set_unit(0);
            CHECK(status == GPR_OK, "%s", gpr_last_error()->message);
            CHECK(before == after, "setting %zu: the unit is set as it was, %#x not %#x", s, after,
                  before);
            CHECK(s == 0 || memcmp(plain, got, sizeof got) == 0,
                  "setting %zu, exponents %d to %d: %a %a %a", s, low, high, got[0], got[1],
                  got[2]);
        }
    }
}

static void test_no_setting_of_the_floating_point_unit_changes_a_sum(void)
{
    enum { COUNT = 3 * GPR_EXACT_TILE + 17, TRIES = 6 };
    static const int settings[] = {FLUSH, UPWARD, DOWNWARD, TRAPS, FLUSH | UPWARD | TRAPS};
    static double values[COUNT];
    static float singles[COUNT];

    for (int i = 0; i < TRIES; i++) {
        const int low = (int)check_between(0, 3), high = low + (int)check_between(0, 60);
        gpr_exact *plain, *plain_single;

        fill_doubles(values, COUNT, low, high);
        fill_floats(singles, COUNT, 0, (int)check_between(0, 40));
        plain = reference(GPR_FLOAT64, values, COUNT);
        plain_single = reference(GPR_FLOAT32, singles, COUNT);
        for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
            gpr_exact *sum = make(GPR_FLOAT64), *single = make(GPR_FLOAT32);
            unsigned before, after;
            double rounded = 0, wanted = 0;
            gpr_status status;

            set_unit(settings[s]);
            before = unit_setting();
            status = gpr_exact_update_array(sum, values, COUNT);
            if (status == GPR_OK) status = gpr_exact_update_array(single, singles, COUNT);
            if (status == GPR_OK) status = gpr_exact_result(sum, GPR_FLOAT64, &rounded);
            after = unit_setting();
            set_unit(0);
            (void)gpr_exact_result(plain, GPR_FLOAT64, &wanted);
            CHECK(status == GPR_OK, "%s", gpr_last_error()->message);
            CHECK(before == after, "setting %d: the unit is set as it was, %#x not %#x",
                  settings[s], after, before);
            CHECK(same(sum, plain), "setting %d: exponents %d to %d", settings[s], low, high);
            CHECK(same(single, plain_single), "setting %d: float32", settings[s]);
            CHECK(memcmp(&rounded, &wanted, sizeof wanted) == 0, "setting %d: %a is not %a",
                  settings[s], rounded, wanted);
            gpr_exact_destroy(sum);
            gpr_exact_destroy(single);
        }
        gpr_exact_destroy(plain);
        gpr_exact_destroy(plain_single);
    }
}

/* Sums, or means, of rows that lie along memory or across it. */
static gpr_status reduce_rows(const void *values, gpr_dtype dtype, int64_t rows, int64_t n,
                              int across, gpr_operator op, void *results)
{
    const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype), shape[] = {rows, n};
    const int64_t strides[] = {across ? bytes : n * bytes, across ? rows * bytes : bytes};

    return gpr_reduce(&(gpr_request){.op = op,
                                     .dtype = dtype,
                                     .compute = GPR_DTYPE_DEFAULT,
                                     .ndim = 2,
                                     .reduced = 1,
                                     .shape = shape,
                                     .strides = strides,
                                     .data = values,
                                     .kernel = GPR_KERNEL_exact,
                                     .device = GPR_DEVICE_CPU,
                                     .result = results});
}

/* Also for rows as pairs, whose sums and quotients are those of doubles. Without traps: as
 * products. */
static void test_no_setting_of_the_floating_point_unit_changes_rows(void)
{
    enum { ROWS = 200, MOST = 40, TRIES = 20 };
    static const int settings[] = {FLUSH, UPWARD, DOWNWARD, FLUSH | UPWARD};
    static double values[ROWS * MOST], plain[ROWS], got[ROWS];
    static float singles[ROWS * MOST];

    for (int i = 0; i < TRIES; i++) {
        const int low = (int)check_between(0, 60), n = (int)check_between(2, MOST), across = i % 2;
        const gpr_operator op = i / 2 % 2 == 0 ? GPR_OP_SUM : GPR_OP_MEAN;

        fill_doubles(values, ROWS * MOST, low, low + (int)check_between(0, 60));
        fill_floats(singles, ROWS * MOST, 0, (int)check_between(0, 40));
        for (int is_single = 0; is_single < 2; is_single++)
            for (size_t s = 0; s <= sizeof settings / sizeof settings[0]; s++) {
                double *results = s == 0 ? plain : got;
                gpr_status status;

                memset(results, 0, sizeof got);
                set_unit(s == 0 ? 0 : settings[s - 1]);
                const unsigned before = unit_setting();
                status = is_single ? reduce_rows(singles, GPR_FLOAT32, ROWS, n, across, op, results)
                                   : reduce_rows(values, GPR_FLOAT64, ROWS, n, across, op, results);
                const unsigned after = unit_setting();
                set_unit(0);
                CHECK(status == GPR_OK, "%s", gpr_last_error()->message);
                CHECK(before == after, "setting %zu: the unit is set as it was, %#x not %#x", s,
                      after, before);
                CHECK(s == 0 || memcmp(plain, got, sizeof got) == 0,
                      "setting %zu: rows of %d, across %d, single %d", s, n, across, is_single);
            }
    }
}

/* ---------------------------------------------------------------- bins -------------------- */

static void set_bits(gpr_dtype dtype, void *values, uint64_t at, uint64_t bits)
{
    const size_t bytes = gpr_dtype_bytes(dtype);

    /* of a little-endian number: its last bytes */
    memcpy((char *)values + at * bytes, &bits, bytes);
}

/* Floats of any sign with exponent fields of a range that the type has; subnormal numbers and 0
 * have field 0. */
static void fill_fields(gpr_dtype dtype, void *values, uint64_t count, int low, int high)
{
    const int fraction = fraction_bits(dtype);

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t random = check_random(),
                       sign = random >> 63 << (fraction + exponent_bits(dtype));
        const uint64_t field = (uint64_t)check_between(low, high) << fraction;

        set_bits(dtype, values, i, sign | field | (random & ((UINT64_C(1) << fraction) - 1)));
    }
}

/* The tile as the loop of a level reads it. */
static const void *as_read(gpr_dtype dtype, const gpr_exact_level *level, const void *values,
                           uint64_t count)
{
    static _Alignas(64) float widened[GPR_EXACT_TILE];

    if (!level->widened) return values;
    gpr_cpu_loops()->widen[dtype].loop(values, widened, count);
    return widened;
}

/* Places a level's bins below 2^top, some or as much as they may be apart, and no deeper than a
 * double goes. */
static void place(const gpr_exact_level *level, int top, int closely, double *biases, int *units)
{
    for (int w = 0; w < level->bins; w++) {
        const int least = w == 0 ? -1022 : units[w - 1] + 52 - GPR_EXACT_BIN_BITS;
        int p =
            top - w * (closely ? (int)check_between(1, GPR_EXACT_BIN_BITS) : GPR_EXACT_BIN_BITS);

        if (p < least) p = least;
        if (p > 1021) p = 1021;
        if (p < -1022) p = -1022;
        biases[w] = ldexp(1.5, p);
        units[w] = p - 52;
    }
}

/* Whether a level's bins report that they hold a tile; if so their sums are compared with those of
 * the elements, added one by one. */
static int check_bins(const char *isa, gpr_dtype dtype, int which, const void *values,
                      uint64_t count, const double *biases, const int *units)
{
    const gpr_exact_level *level = &gpr_cpu_loops()->exact[dtype].level[which];
    gpr_exact_part in_bins, one_by_one;
    int64_t sums[GPR_EXACT_BINS];

    if (!level->loop(as_read(dtype, level, values, count), count, biases, sums)) return 0;
    gpr_exact_clear(&in_bins, dtype);
    gpr_exact_clear(&one_by_one, dtype);
    for (int w = 0; w < level->bins; w++) gpr_exact_add_integer(&in_bins, sums[w], units[w]);
    gpr_exact_add_elements(&one_by_one, dtype, values, count);
    gpr_exact_carry(&in_bins);
    gpr_exact_carry(&one_by_one);
    CHECK(memcmp(in_bins.words, one_by_one.words, sizeof in_bins.words) == 0,
          "%s, %s, level %d, %" PRIu64 " elements, 2^%d", isa, gpr_dtype_rows[dtype].name, which,
          count, units[0] + 52);
    return 1;
}

/* Wherever bins lie, what they accept they sum exactly; and around the elements they do accept, but
 * for infinities, NaN, and what has bits below them. */
static void check_level(const char *isa, gpr_dtype dtype, int which, uint64_t count)
{
    static _Alignas(64) char values[GPR_EXACT_TILE * sizeof(double)];
    const gpr_exact_level *level = &gpr_cpu_loops()->exact[dtype].level[which];
    const int fraction = fraction_bits(dtype), fields = (1 << exponent_bits(dtype)) - 1,
              bias = fields / 2;
    const int lowest = gpr_exact_layout_of(dtype).lowest;
    /* Exponents that bins are sure to hold: from the largest down. */
    const int range = 52 + GPR_EXACT_BIN_BITS * (level->bins - 1) - level->headroom - fraction;
    const int high = (int)check_between(1, fields - 1), low = high > range ? high - range : 0;
    int top = high - bias + level->headroom, units[GPR_EXACT_BINS];
    double biases[GPR_EXACT_BINS];
    const uint64_t at = (uint64_t)check_between(0, (int64_t)count - 1);

    place(level, top + (int)check_between(-30, 10), 1, biases, units);
    fill_fields(dtype, values, count, (int)check_between(low, high), high);
    (void)check_bins(isa, dtype, which, values, count, biases, units);

    if (top > 1021) top = 1021;
    if (top < lowest + 52) top = lowest + 52;
    place(level, top, 0, biases, units);
    if (units[0] < lowest || top > bias + level->headroom || top < high - bias + level->headroom)
        return;
    fill_fields(dtype, values, count, low, high);
    CHECK(low == 0 || check_bins(isa, dtype, which, values, count, biases, units),
          "%s, %s, level %d: in range, fields %d to %d", isa, gpr_dtype_rows[dtype].name, which,
          low, high);
    /* All of the largest numbers and of one sign: the sum is as large as it gets. */
    for (uint64_t i = 0; i < count; i++)
        set_bits(dtype, values, i, ((uint64_t)high + 1) * (UINT64_C(1) << fraction) - 1);
    CHECK(check_bins(isa, dtype, which, values, count, biases, units),
          "%s, %s, level %d: the largest, field %d", isa, gpr_dtype_rows[dtype].name, which, high);
    for (uint64_t k = 0; k < 3; k++) {
        const uint64_t special = ((uint64_t)fields << fraction) + (k == 2 ? 1 : 0);

        set_bits(dtype, values, at,
                 special | (k == 1 ? UINT64_C(1) << (fraction + exponent_bits(dtype)) : 0));
        CHECK(!check_bins(isa, dtype, which, values, count, biases, units),
              "%s, %s, level %d: special %d", isa, gpr_dtype_rows[dtype].name, which, (int)k);
    }
    /* One below what the last bin's place can hold, its last bit set. */
    const int below = units[level->bins - 1] - 1 + fraction + bias;
    if (below < 1 || below >= fields) return;
    set_bits(dtype, values, at, (uint64_t)below << fraction | 1);
    CHECK(!check_bins(isa, dtype, which, values, count, biases, units),
          "%s, %s, level %d: too small", isa, gpr_dtype_rows[dtype].name, which);
}

/* Bins at a given distance below large numbers, and the numbers at their ends. */
typedef struct ends {
    /* exponent fields, the second one of numbers whose last bit is worth the last bin's last
     * place */
    int large, small;
    double biases[GPR_EXACT_BINS];
    int units[GPR_EXACT_BINS];
} ends;

/* Large numbers are random. Returns whether there are such bins and numbers. */
static int find_ends(gpr_dtype dtype, const gpr_exact_level *level, int above, ends *found)
{
    const int fraction = fraction_bits(dtype), fields = (1 << exponent_bits(dtype)) - 1,
              bias = fields / 2;

    found->large = (int)check_between(bias - 5, fields - 1);
    const int top = found->large - bias - above;
    if (top > 1021) return 0;
    place(level, top, 0, found->biases, found->units);
    found->small = found->units[level->bins - 1] + fraction + bias;
    return found->small >= 1 && found->small < fields;
}

/* Large numbers that cancel within a lane, with small ones in between, which are lost if the large
 * ones move an accumulator to where its last place is twice as large. */
static void check_large_numbers_cancel(const char *isa, gpr_dtype dtype, int which)
{
    enum { PERIOD = 4, LANES = 32 }; /* a multiple of the lanes of each instruction set */
    static _Alignas(64) char values[GPR_EXACT_TILE * sizeof(double)];
    const gpr_exact_level *level = &gpr_cpu_loops()->exact[dtype].level[which];
    const int fraction = fraction_bits(dtype);
    const uint64_t sign = UINT64_C(1) << (fraction + exponent_bits(dtype));
    ends at;

    for (int above = -12; above < 4; above++) {
        if (!find_ends(dtype, level, above, &at)) continue;
        for (uint64_t i = 0; i < GPR_EXACT_TILE; i++) {
            const uint64_t phase = i / LANES % PERIOD;

            if (phase % 2 == 1)
                set_bits(dtype, values, i, (uint64_t)at.small << fraction | 1);
            else
                set_bits(dtype, values, i,
                         (uint64_t)at.large << fraction | (phase == 2 ? sign : 0));
        }
        (void)check_bins(isa, dtype, which, values, GPR_EXACT_TILE, at.biases, at.units);
    }
}

/* Many large numbers of one sign, a small one at the sum's height, then others of the other sign
 * until the sum is in range again: looked at then, an accumulator shows nothing of its way, on
 * which its last place may have been larger. */
static void check_sums_swing(const char *isa, gpr_dtype dtype, int which, uint64_t width)
{
    enum {
        TRIES = 20,
        FEW = 8,
        MANY = 128
    }; /* additions from one look at accumulators to the next: of float32, of the others */
    static _Alignas(64) char values[GPR_EXACT_TILE * sizeof(double)];
    const gpr_exact_level *level = &gpr_cpu_loops()->exact[dtype].level[which];
    const int fraction = fraction_bits(dtype);
    const uint64_t sign = UINT64_C(1) << (fraction + exponent_bits(dtype));
    ends at;

    for (int try = 0; try < TRIES; try++)
        for (int above = -12; above < 4; above++) {
            const uint64_t period =
                check_between(0, 1) ? FEW : (uint64_t)MANY << check_between(0, 2);
            const uint64_t ups = period / 2 + (uint64_t)check_between(0, (int64_t)period / 4);

            if (!find_ends(dtype, level, above, &at)) continue;
            for (uint64_t i = 0; i < GPR_EXACT_TILE; i++) {
                const uint64_t phase = i / width % period, cycle = i / width / period;
                const uint64_t all = ((uint64_t)at.large + 1) << fraction,
                               negative = (phase > ups) ^ (cycle & 1);

                if (phase == ups)
                    set_bits(dtype, values, i, (uint64_t)at.small << fraction | 1);
                else
                    set_bits(dtype, values, i, (all - 1) | (negative ? sign : 0));
            }
            (void)check_bins(isa, dtype, which, values, GPR_EXACT_TILE, at.biases, at.units);
        }
}

/* The smallest number there is, alone: held by a last bin whose last place it is, and not by one
 * whose last place is above it. */
static void check_smallest(const char *isa, gpr_dtype dtype, int which)
{
    static _Alignas(64) char values[GPR_EXACT_TILE * sizeof(double)];
    const gpr_exact_level *level = &gpr_cpu_loops()->exact[dtype].level[which];
    const int span = 52 + GPR_EXACT_BIN_BITS * (level->bins - 1);

    memset(values, 0, sizeof values);
    set_bits(dtype, values, (uint64_t)check_between(0, GPR_EXACT_TILE - 1), 1);
    for (int above = 0; above < 2; above++) {
        double biases[GPR_EXACT_BINS];
        int units[GPR_EXACT_BINS];

        place(level, gpr_exact_layout_of(dtype).lowest + span + above, 0, biases, units);
        /* below a double's range */
        if (units[level->bins - 1] != gpr_exact_layout_of(dtype).lowest + above) continue;
        CHECK(check_bins(isa, dtype, which, values, GPR_EXACT_TILE, biases, units) == !above,
              "%s, %s, level %d: the smallest number, %d above", isa, gpr_dtype_rows[dtype].name,
              which, above);
    }
}

static void test_bins_are_exact_or_refuse(void)
{
    enum {
        TRIES = 400,
        WIDEST = 32
    }; /* elements of one addition to each of the accumulators of the first instruction set */

    for (size_t s = 0; s < ISAS; s++) {
        if (gpr_set_cpu_isa(isas[s]) != GPR_OK) continue;
        for (size_t d = 0; d < FLOATS; d++)
            for (int which = 0; which < GPR_EXACT_LEVELS; which++) {
                if (gpr_cpu_loops()->exact[floats[d]].level[which].loop == NULL) continue;
                for (int i = 0; i < TRIES; i++) {
                    const int most = i % 10 == 1 ? GPR_EXACT_TILE : 200;

                    check_level(isas[s], floats[d], which,
                                i % 10 == 0 ? GPR_EXACT_TILE : (uint64_t)check_between(1, most));
                }
                check_large_numbers_cancel(isas[s], floats[d], which);
                check_sums_swing(isas[s], floats[d], which, (uint64_t)WIDEST >> s);
                check_smallest(isas[s], floats[d], which);
            }
    }
    (void)gpr_set_cpu_isa(NULL);
}

/* Tiles that need other bins than the tiles before them, or none: an adder's placement follows. */
static void test_tiles_of_all_kinds_follow_each_other(void)
{
    enum { TILES = 400 };
    static _Alignas(64) char values[GPR_EXACT_TILE * sizeof(double)];

    for (size_t s = 0; s < ISAS; s++) {
        if (gpr_set_cpu_isa(isas[s]) != GPR_OK) continue;
        for (size_t d = 0; d < FLOATS; d++) {
            const gpr_dtype dtype = floats[d];
            const int fields = (1 << exponent_bits(dtype)) - 1;
            int low = 0, high = 0, reached = 0;
            static tile_memory memory;
            gpr_exact_part part, one_by_one;
            exact_adder adder;

            gpr_exact_clear(&part, dtype);
            gpr_exact_clear(&one_by_one, dtype);
            adder = gpr_cpu_exact_adder(&part, dtype, &memory);
            for (int i = 0; i < TILES; i++) {
                const uint64_t count = (uint64_t)check_between(i % 8 == 0 ? 1 : 300,
                                                               i % 8 == 0 ? 300 : GPR_EXACT_TILE);

                if (check_between(0, 5) == 0) {
                    high = (int)check_between(1, fields - 1);
                    low = high -
                          (int)check_between(0, (const int[]){30, 60, fields}[check_between(0, 2)]);
                    if (low < 0) low = 0;
                }
                fill_fields(dtype, values, count, low, high);
                if (check_between(0, 40) == 0) memset(values, 0, sizeof values);
                if (check_between(0, 40) == 0)
                    set_bits(dtype, values, (uint64_t)check_between(0, (int64_t)count - 1),
                             (uint64_t)fields << fraction_bits(dtype));
                gpr_cpu_add_tile(&adder, values, count);
                gpr_exact_add_elements(&one_by_one, dtype, values, count);
                if (adder.bins.placed) reached |= 1 << adder.bins.level;
            }
            gpr_exact_carry(&part);
            gpr_exact_carry(&one_by_one);
            CHECK(memcmp(part.words, one_by_one.words, sizeof part.words) == 0 &&
                      part.count == one_by_one.count && part.flags == one_by_one.flags,
                  "%s, %s", isas[s], gpr_dtype_rows[dtype].name);
            for (int which = 0;
                 which < GPR_EXACT_LEVELS && adder.bins.loops->level[which].loop != NULL; which++)
                CHECK((reached >> which & 1) != 0, "%s, %s: level %d was never asked", isas[s],
                      gpr_dtype_rows[dtype].name, which);
        }
    }
    (void)gpr_set_cpu_isa(NULL);
}

/* Pieces of a row, which get shorter, have every element once. */
static void test_pieces_of_any_length_have_every_element_once(void)
{
    enum { TRIES = 30, MOST = 24 * 1024 * 1024, THREADS = 3 };
    uint8_t *ones = malloc(MOST);
    gpr_limits before, limits;

    CHECK(ones != NULL, "memory");
    if (ones == NULL) return;
    memset(ones, 1, MOST);
    gpr_get_limits(&before);
    limits = before;
    limits.cpu_threads = THREADS;
    CHECK(gpr_set_limits(&limits) == GPR_OK, "limits");
    for (int i = 0; i < TRIES; i++) {
        const int64_t count = i == 0 ? MOST : check_between(1, i % 2 ? MOST : 3 * 1024 * 1024);
        gpr_exact *sum = make(GPR_UINT8);
        uint64_t got = 0;

        CHECK(gpr_exact_update_array(sum, ones, (uint64_t)count) == GPR_OK, "update");
        CHECK(gpr_exact_result(sum, GPR_UINT64, &got) == GPR_OK && got == (uint64_t)count,
              "%" PRIu64 " of %" PRId64 " elements", got, count);
        gpr_exact_destroy(sum);
    }
    CHECK(gpr_set_limits(&before) == GPR_OK, "limits");
    free(ones);
}

/* ---------------------------------------------------------------- products ------------------- */

/* Two normal numbers whose product has an exponent field of about `field`, beyond a double's
 * too. */
static void fill_factors(double *a, double *b, uint64_t count, int field)
{
    for (uint64_t i = 0; i < count; i++) {
        const int sum = field + 1023, least = sum > 2046 ? sum - 2046 : 1,
                  most = sum <= 2046 ? sum - 1 : 2046;
        const int of_a = (int)check_between(least, most);

        fill_doubles(&a[i], 1, of_a, of_a);
        fill_doubles(&b[i], 1, sum - of_a, sum - of_a);
    }
}

/* A loop's two doubles for each product are the product, where both are doubles;
 * elsewhere the loop reports it. */
static void test_products_are_two_doubles_or_refused(void)
{
    enum { TRIES = 2000, COUNT = 300 };
    static double a[COUNT], b[COUNT], high[COUNT], low[COUNT];

    for (size_t s = 0; s < ISAS; s++) {
        if (gpr_set_cpu_isa(isas[s]) != GPR_OK) continue;
        const gpr_products_loop multiply = gpr_cpu_loops()->products[GPR_FLOAT64];

        for (int i = 0; i < TRIES; i++) {
            const uint64_t count = (uint64_t)check_between(1, COUNT);
            const int field = (int)check_between(-40, 2000), is_fine = field >= 1023 - 965;
            gpr_exact_part halves, whole;
            int accepted;

            fill_factors(a, b, count, field);
            a[0] = b[count / 2] = 0; /* zeros are no small numbers */
            accepted = multiply(a, b, count, high, low);
            CHECK(accepted || !is_fine, "%s: refused products at field %d", isas[s], field);
            if (!accepted) continue;
            gpr_exact_clear_products(&halves, GPR_FLOAT64);
            gpr_exact_clear_products(&whole, GPR_FLOAT64);
            gpr_exact_add_elements(&halves, GPR_FLOAT64, high, count);
            gpr_exact_add_elements(&halves, GPR_FLOAT64, low, count);
            gpr_exact_add_products(&whole, GPR_FLOAT64, a, b, count);
            /* Dekker's halves of a factor of 2^997 and more overflow: the rest is then NaN,
             * which bins do not hold. */
            if ((halves.flags & GPR_EXACT_NAN) != 0) {
                CHECK(strcmp(isas[s], "baseline") == 0, "%s: NaN at field %d", isas[s], field);
                continue;
            }
            gpr_exact_carry(&halves);
            gpr_exact_carry(&whole);
            CHECK(memcmp(halves.words, whole.words, sizeof whole.words) == 0, "%s: field %d",
                  isas[s], field);
        }
        fill_factors(a, b, COUNT, 1023);
        a[7] = 0x1p-500;
        b[7] = 0x1p-470;
        CHECK(!multiply(a, b, COUNT, high, low), "%s: 2^-970", isas[s]);
        b[7] = 0x1p-467;
        CHECK(multiply(a, b, COUNT, high, low), "%s: 2^-967", isas[s]);
    }
    (void)gpr_set_cpu_isa(NULL);
}

/* Carries of products are propagated before a word overflows. */
static void test_words_of_products_never_overflow(void)
{
    enum { COUNT = 1000 };
    static double a[COUNT], b[COUNT];
    gpr_exact_part full, carried;

    fill_doubles(a, COUNT, 1000, 1046);
    fill_doubles(b, COUNT, 1000, 1046);
    gpr_exact_clear_products(&full, GPR_FLOAT64);
    full.pending = (UINT64_C(1) << 30) - COUNT;
    for (int i = 60; i < 75; i++) full.words[i] = (int64_t)(UINT32_MAX * full.pending);
    carried = full;
    gpr_exact_carry(&carried);
    for (int i = 0; i < COUNT; i += 10) {
        gpr_exact_add_products(&full, GPR_FLOAT64, a + i, b + i, 10);
        gpr_exact_add_products(&carried, GPR_FLOAT64, a + i, b + i, 10);
    }
    CHECK(full.pending <= 2 * COUNT, "carries were propagated: %" PRIu64, full.pending);
    gpr_exact_carry(&full);
    gpr_exact_carry(&carried);
    CHECK(memcmp(full.words, carried.words, sizeof full.words) == 0, "words");
}

/* ---------------------------------------------------------------- quotients ------------------ */

/* Words that make a division guess its digits wrong. */
static uint32_t draw_word(void)
{
    static const uint32_t hard[] = {0,         1, UINT32_MAX, UINT32_MAX - 1, UINT32_C(1) << 31,
                                    INT32_MAX, 2, 3};

    return check_between(0, 3) > 0 ? hard[check_between(0, 7)] : (uint32_t)check_random();
}

/* The words, in units of 2^unit, over a divisor below 2^126, rounded once: a bit at a time. */
static double divide_slowly(const int64_t *words, int count, int unit, unsigned __int128 divisor)
{
    enum { WANTED = 60 };
    unsigned __int128 rest = 0;
    uint64_t quotient = 0;
    int bit = count * 32 - 1, rests = 0;

    for (; quotient >> WANTED == 0; bit--) {
        rest = rest << 1 | (bit >= 0 && (words[bit / 32] >> bit % 32 & 1) != 0);
        quotient <<= 1;
        if (rest >= divisor) {
            rest -= divisor;
            quotient |= 1;
        }
    }
    for (int i = bit; i >= 0; i--) rests |= (words[i / 32] >> i % 32 & 1) != 0;
    return ldexp((double)(quotient | (rest != 0 || rests)), bit + 1 + unit);
}

/* A tie of a float64 times the divisor, or the least more or less than that, which no 128 bits
 * of a quotient show. */
static void make_tie(int64_t *words, unsigned __int128 divisor)
{
    enum { WORDS = 6 };
    const uint64_t tie = UINT64_C(1) << 53 | check_random() >> 11 | 1;
    const int64_t beside = check_between(-1, 1);
    unsigned __int128 carry = 0;
    int64_t borrow = beside;

    for (int w = 0; w < WORDS; w++) {
        carry += w < 4 ? (unsigned __int128)(uint32_t)(divisor >> 32 * w) * tie : 0;
        borrow += (int64_t)(uint32_t)carry;
        words[w] = borrow & UINT32_MAX;
        borrow >>= 32;
        carry >>= 32;
    }
}

/* With a sum of 0 a variance is the squares' sum over n - ddof, though n is a factor of both
 * the dividend and the divisor. */
static void test_variances_divide_any_words(void)
{
    enum { TRIES = 100000, FIRST = 60, MOST = 12 };

    for (int i = 0; i < TRIES; i++) {
        const int shift = (int)check_between(0, 60), count = (int)check_between(1, MOST);
        const uint64_t n = ((uint64_t)draw_word() << 32 | draw_word()) | 1;
        const uint64_t fraction = ((uint64_t)draw_word() << 32 | draw_word()) >> 12;
        const unsigned __int128 divisor = ((unsigned __int128)n << shift) + fraction;
        gpr_exact_part sum, squares;
        double got = 0, wanted;
        int any = 0;

        gpr_exact_clear(&sum, GPR_FLOAT64);
        gpr_exact_clear_products(&squares, GPR_FLOAT64);
        sum.count = squares.count = n;
        for (int w = 0; w < count; w++) any |= (squares.words[FIRST + w] = draw_word()) != 0;
        if (i % 4 == 0 && count > 6) make_tie(squares.words + FIRST + count - 6, divisor);
        if (i % 4 == 1 && count == 6) make_tie(squares.words + FIRST, divisor);
        if (!any) continue;
        gpr_exact_variance(&sum, 1, &squares, -ldexp((double)fraction, -shift), 0, GPR_FLOAT64,
                           &got);
        wanted =
            divide_slowly(squares.words, FIRST + count, squares.layout.lowest + shift, divisor);
        CHECK(got == wanted, "%a, not %a, for ddof %a of %" PRIu64, got, wanted,
              -ldexp((double)fraction, -shift), n);
    }
}

/* Words of value * 2^shift, and of 1, 0 or -1 more. */
static void put_beside(int64_t *words, int count, unsigned __int128 value, int shift, int beside)
{
    int64_t borrow = beside;

    for (int w = 0; w < count; w++) {
        for (int bit = 0; bit < 32; bit++) {
            const int from = w * 32 + bit - shift;

            if (from >= 0 && from < 128) borrow += (int64_t)(value >> from & 1) << bit;
        }
        words[w] = borrow & UINT32_MAX;
        borrow >>= 32;
    }
}

/* Variances and deviations on a midpoint, and as little beside it as the squares' sum can be, which
 * is the farther below the longer that is: what shifts, divisions and roots leave behind
 * decides. */
static void test_the_last_bit_of_a_variance_decides(void)
{
    enum { FIRST = 60, COUNT = 12, MOST_SHIFT = 220 };

    for (int i = 0; i <= MOST_SHIFT; i++)
        for (int root = 0; root < 2; root++) {
            const int shift = root ? i / 2 * 2 : i;
            const uint64_t odd = UINT64_C(1) << 53 | check_random() >> 11 | 1;
            const uint64_t below = odd - 1, above = odd + 1, even = odd % 4 == 1 ? below : above;
            const unsigned __int128 value = root ? (unsigned __int128)odd * odd : odd;

            for (int beside = -1; beside < 2; beside++) {
                const uint64_t rounded = beside == 0 ? even : beside < 0 ? below : above;
                gpr_exact_part sum, squares;
                double got = 0, wanted;

                if (shift == 0 && beside != 0) continue; /* no midpoint's neighbours, but numbers */
                gpr_exact_clear(&sum, GPR_FLOAT64);
                gpr_exact_clear_products(&squares, GPR_FLOAT64);
                sum.count = squares.count = 1;
                put_beside(squares.words + FIRST, COUNT, value, shift, beside);
                gpr_exact_variance(&sum, 1, &squares, 0, root, GPR_FLOAT64, &got);
                wanted = ldexp((double)rounded,
                               (squares.layout.lowest + 32 * FIRST + shift) / (root ? 2 : 1));
                CHECK(got == wanted, "%s of %" PRIu64 " * 2^%d, %d beside: %a, not %a",
                      root ? "root" : "variance", odd, shift, beside, got, wanted);
            }
        }
}

/* A variance on a midpoint, which the smallest ddof there is moves from it, also where the unit
 * reads that as 0. */
static void test_the_smallest_ddof_counts(void)
{
    enum { FIRST = 60 };
    static const int settings[] = {0, FLUSH, UPWARD, DOWNWARD};
    const double smallest = 0x1p-1074, ddofs[] = {-0.0, smallest, -smallest};
    gpr_exact_part sum, squares;

    gpr_exact_clear(&sum, GPR_FLOAT64);
    gpr_exact_clear_products(&squares, GPR_FLOAT64);
    sum.count = squares.count = 1;
    squares.words[FIRST] = 3; /* 2^53 + 3, between 2^53 + 2 and the even 2^53 + 4 */
    squares.words[FIRST + 1] = INT64_C(1) << 21;
    for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++)
        for (size_t d = 0; d < sizeof ddofs / sizeof ddofs[0]; d++) {
            const double wanted =
                ldexp(0x1p53 + (d == 2 ? 2 : 4), squares.layout.lowest + 32 * FIRST);
            double got = 0;

            set_unit(settings[s]);
            gpr_exact_variance(&sum, 1, &squares, ddofs[d], 0, GPR_FLOAT64, &got);
            set_unit(0);
            CHECK(memcmp(&got, &wanted, sizeof got) == 0, "setting %d, ddof %a: %a is not %a",
                  settings[s], ddofs[d], got, wanted);
        }
}

/* ---------------------------------------------------------------- carries -------------------- */

/* Carries are propagated before a word overflows, also in 2^31 additions of the largest numbers
 * to one word. */
static void test_words_never_overflow(void)
{
    const int64_t largest = INT64_MAX;
    gpr_exact_part part;
    unsigned __int128 wanted;

    gpr_exact_clear(&part, GPR_INT64);
    part.pending = (UINT64_C(1) << 30) - 2;
    part.words[0] = (int64_t)(UINT32_MAX * part.pending);
    wanted = (unsigned __int128)part.words[0];
    for (int i = 0; i < 1000; i++) {
        gpr_exact_add_integer(&part, largest, 0);
        wanted += (unsigned __int128)largest;
    }
    CHECK(part.pending < 1000, "carries were propagated: %" PRIu64, part.pending);
    gpr_exact_carry(&part);
    for (int i = 0; i < 4; i++)
        CHECK((uint32_t)part.words[i] == (uint32_t)(wanted >> 32 * i), "word %d is %#" PRIx64, i,
              part.words[i]);
    CHECK(part.words[4] == 0, "the highest word is %" PRIi64, part.words[4]);
}

/* A part of each element many times is that of as many merges. */
static void test_repeats_are_merges(void)
{
    enum { ELEMENTS = 5, TRIALS = 2000 };
    static const gpr_dtype dtypes[] = {GPR_INT8,    GPR_UINT64,  GPR_INT64,
                                       GPR_FLOAT16, GPR_FLOAT32, GPR_FLOAT64};

    for (int trial = 0; trial < TRIALS; trial++) {
        const gpr_dtype dtype = dtypes[trial % 6];
        const uint64_t times = check_random() >> check_between(3, 63);
        uint8_t values[ELEMENTS * sizeof(double)];
        gpr_exact_part part, twice, merged, other;

        for (size_t i = 0; i < sizeof values; i++) values[i] = (uint8_t)check_random();
        gpr_exact_clear(&part, dtype);
        gpr_exact_add_elements(&part, dtype, values, (uint64_t)check_between(1, ELEMENTS));
        twice = part;
        gpr_exact_clear(&merged, dtype);
        for (uint64_t left = times; left > 0; left /= 2) {
            if (left % 2 == 1)
                CHECK(gpr_exact_add_part(&merged, &twice) == GPR_OK, "merging %" PRIu64, left);
            other = twice;
            if (left > 1)
                CHECK(gpr_exact_add_part(&twice, &other) == GPR_OK, "twice %" PRIu64, left);
        }
        gpr_exact_repeat(&part, times);
        gpr_exact_carry(&merged);
        CHECK(part.count == merged.count && (times == 0 || part.flags == merged.flags) &&
                  memcmp(part.words, merged.words, sizeof part.words) == 0,
              "%" PRIu64 " times dtype %d: %" PRIu64 " and %" PRIu64, times, (int)dtype, part.count,
              merged.count);
    }
}

static void test_counts_have_an_end(void)
{
    gpr_exact_part part, other;
    const double one = 1;

    gpr_exact_clear(&part, GPR_FLOAT64);
    gpr_exact_add_elements(&part, GPR_FLOAT64, &one, 1);
    other = part;
    part.count = UINT64_MAX;
    CHECK(gpr_exact_add_part(&part, &other) == GPR_ERROR_VALUE, "2^64 elements");
    CHECK(part.count == UINT64_MAX, "nothing was added");
}

static void test_integers_agree_with_128_bits(void)
{
    enum { COUNT = 5000 };
    static int64_t values[COUNT];
    __int128 wanted = 0;
    gpr_exact *sum = make(GPR_INT64);
    unsigned char bytes[MOST_BYTES];
    enum { WORDS_AT = 28 };

    for (int i = 0; i < COUNT; i++) {
        values[i] = (int64_t)check_random() >> check_between(0, 63);
        wanted += values[i];
    }
    CHECK(gpr_exact_update_array(sum, values, COUNT) == GPR_OK, "update");
    gpr_exact_store(sum, bytes);
    for (int i = 0; i < 20; i++) {
        const unsigned char byte = (unsigned char)(i < 16 ? wanted >> 8 * i : wanted >> 127);
        CHECK(bytes[WORDS_AT + i] == byte, "byte %d is %#x, not %#x", i, bytes[WORDS_AT + i], byte);
    }
    gpr_exact_destroy(sum);
}

/* ---------------------------------------------------------------- failures ------------------- */

#define CHECK_FAILS(call, wanted, word)                                                          \
    do {                                                                                         \
        CHECK((call) == (wanted), #call);                                                        \
        CHECK(strstr(gpr_last_error()->message, word) != NULL, "%s", gpr_last_error()->message); \
    } while (0)

static int stop_at_once(void *asked)
{
    ++*(int *)asked;
    return 1;
}

/* 2^40 elements, in windows that overlap. */
enum { WINDOW_AXES = 4, WINDOW = 1 << 10 };
static const double windows[WINDOW_AXES * WINDOW];
static const int64_t huge[WINDOW_AXES] = {WINDOW, WINDOW, WINDOW, WINDOW},
                     steps[WINDOW_AXES] = {sizeof *windows, sizeof *windows, sizeof *windows,
                                           sizeof *windows};

static void test_failures_change_nothing(void)
{
    static const double values[4] = {1, 2, 3, 4};
    static const int64_t bad[1] = {-1}, four[1] = {4};
    static const uint8_t mask[4];
    gpr_exact *sum = make(GPR_FLOAT64), *other = make(GPR_FLOAT32), *before = make(GPR_FLOAT64),
              *missing = sum;
    gpr_request request = {.dtype = GPR_FLOAT64, .ndim = 1, .shape = four, .data = values};
    double value = 0;
    int64_t integer = 0;
    int asked = 0;

    CHECK(gpr_exact_update(sum, &request) == GPR_OK, "update");
    CHECK(gpr_exact_merge(before, sum) == GPR_OK, "merge");
    CHECK_FAILS(gpr_exact_create(GPR_DTYPE_COUNT, &missing), GPR_ERROR_VALUE, "no dtype");
    CHECK_FAILS(gpr_exact_create(GPR_COMPLEX64, &missing), GPR_ERROR_TYPE,
                "sum the parts of complex64 each");
    CHECK_FAILS(gpr_exact_result(sum, GPR_COMPLEX128, &integer), GPR_ERROR_TYPE,
                "sum the parts of complex128 each");
    CHECK(gpr_exact_bytes(GPR_COMPLEX128) == 0, "a complex sum has no bytes");
    CHECK(missing == NULL, "no sum");
    CHECK_FAILS(gpr_exact_merge(sum, other), GPR_ERROR_TYPE, "float32");
    CHECK_FAILS(gpr_exact_update(other, &request), GPR_ERROR_TYPE, "float64");
    request.dtype = GPR_DTYPE_DEFAULT;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_VALUE, "no dtype");
    request.dtype = GPR_FLOAT64;
    request.on_device = 1;
    request.device = GPR_DEVICE_CPU;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_VALUE, "names its CUDA device");
    request.on_device = 0;
    request.mask = mask;
    request.mask_strides = four;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_VALUE, "mask");
    request.mask = NULL;
    request.shape = bad;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_VALUE, "negative");
    request.ndim = WINDOW_AXES;
    request.shape = huge;
    request.strides = steps;
    request.data = windows;
    request.interrupted = stop_at_once;
    request.interrupted_arg = &asked;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_INTERRUPTED, "interrupted");
    CHECK(asked == 1, "asked %d times", asked);
    CHECK_FAILS(gpr_exact_result(sum, GPR_INT64, &integer), GPR_ERROR_TYPE,
                "no result of type int64");
    CHECK_FAILS(gpr_exact_mean(sum, GPR_BOOL, &integer), GPR_ERROR_TYPE, "no result of type bool");
    CHECK_FAILS(gpr_exact_result(sum, GPR_DTYPE_COUNT, &integer), GPR_ERROR_VALUE, "no dtype");
    CHECK_FAILS(gpr_exact_load("short", 5, &missing), GPR_ERROR_VALUE, "5 bytes");
    CHECK(same(sum, before) && gpr_exact_count(sum) == 4, "the sum is what it was");
    CHECK(gpr_exact_result(sum, GPR_DTYPE_DEFAULT, &value) == GPR_OK && value == 10, "%g", value);
    CHECK(gpr_exact_mean(sum, GPR_DTYPE_DEFAULT, &value) == GPR_OK && value == 2.5, "%g", value);
    CHECK(gpr_exact_bytes(GPR_DTYPE_COUNT) == 0 && gpr_exact_bytes(GPR_FLOAT64) == 304, "sizes");
    gpr_exact_destroy(sum);
    gpr_exact_destroy(other);
    gpr_exact_destroy(before);
    gpr_exact_destroy(NULL);
}

static gpr_dot_request dot_of(const double *a, const double *b, uint64_t n, double *result)
{
    return (gpr_dot_request){.a = {.dtype = GPR_FLOAT64, .data = a, .stride = sizeof *a},
                             .b = {.dtype = GPR_FLOAT64, .data = b, .stride = sizeof *b},
                             .factor = GPR_FLOAT64,
                             .compute = GPR_DTYPE_DEFAULT,
                             .n = n,
                             .kernel = -1,
                             .device = GPR_DEVICE_DEFAULT,
                             .result = result};
}

static void test_dots_that_make_no_sense_are_refused(void)
{
    static const double a[3] = {1, 2, 3}, b[3] = {4, 5, -6};
    double value = 0;
    gpr_dot_request request = dot_of(a, b, 3, &value);
    int asked = 0;

    CHECK(gpr_dot(&request) == GPR_OK && value == -4, "%g", value);
    CHECK(gpr_last_run()->elements == 3 && gpr_last_run()->bytes == 48, "the last run");
#define REFUSED(status, word, ...)                    \
    do {                                              \
        request = dot_of(a, b, 3, &value);            \
        __VA_ARGS__;                                  \
        CHECK_FAILS(gpr_dot(&request), status, word); \
    } while (0)
    REFUSED(GPR_ERROR_VALUE, "no dtype -1", request.a.dtype = GPR_DTYPE_DEFAULT);
    REFUSED(GPR_ERROR_VALUE, "no dtype 15", request.b.dtype = GPR_DTYPE_COUNT);
    REFUSED(GPR_ERROR_VALUE, "no dtype 15", request.factor = GPR_DTYPE_COUNT);
    REFUSED(GPR_ERROR_VALUE, "no dtype 15", request.compute = GPR_DTYPE_COUNT);
    REFUSED(GPR_ERROR_TYPE, "products of float64 one of int64", request.compute = GPR_INT64);
    REFUSED(GPR_ERROR_TYPE, "products of int8 one of bool",
            (request.factor = GPR_INT8, request.compute = GPR_BOOL));
    REFUSED(GPR_ERROR_TYPE, "products of complex64 one of float64",
            (request.factor = GPR_COMPLEX64, request.compute = GPR_FLOAT64));
    REFUSED(GPR_ERROR_VALUE, "no kernel has index", request.kernel = GPR_KERNEL_COUNT);
    REFUSED(GPR_ERROR_VALUE, "'cub' has no dot", request.kernel = GPR_KERNEL_cub);
    REFUSED(GPR_ERROR_VALUE, "unknown device number", request.device = GPR_DEVICE_CUDA - 1);
    REFUSED(GPR_ERROR_VALUE, "multiple of 32", request.block_size = 48);
    REFUSED(GPR_ERROR_VALUE, "names its CUDA device", request.on_device = 1);
    REFUSED(GPR_ERROR_VALUE, "results of a host array", request.result_on_device = 1);
    REFUSED(GPR_ERROR_VALUE, "negative extent", request.n = UINT64_MAX);
    REFUSED(GPR_ERROR_VALUE, "2^63 - 1 bytes", request.n = INT64_MAX);
    REFUSED(GPR_ERROR_INTERRUPTED, "interrupted",
            (request.ndim = request.reduced = WINDOW_AXES, request.shape = huge,
             request.a.strides = request.b.strides = steps,
             request.a.data = request.b.data = windows, request.interrupted = stop_at_once,
             request.interrupted_arg = &asked));
    CHECK(asked == 1, "asked %d times", asked);
    REFUSED(GPR_ERROR_VALUE, "no products 9", request.products = (gpr_products)9);
    REFUSED(GPR_ERROR_TYPE, "of real numbers",
            (request.products = GPR_SQUARES, request.factor = GPR_COMPLEX128));
    REFUSED(GPR_ERROR_VALUE, "sums of squares alone", request.root = 1);
    REFUSED(GPR_ERROR_TYPE, "a root is of a float type",
            (request.products = GPR_SQUARES, request.root = 1, request.a.dtype = GPR_INT32,
             request.b.dtype = GPR_INT32, request.factor = GPR_INT32));
#undef REFUSED
    for (int kernel = -1; kernel < GPR_KERNEL_COUNT; kernel++) {
        if (kernel >= 0 && kernel != GPR_KERNEL_auto && kernel != GPR_KERNEL_exact) continue;
        request = dot_of(a, b, 2, &value);
        request.kernel = kernel;
        request.device = kernel < 0 ? GPR_DEVICE_FASTEST : GPR_DEVICE_CPU;
        CHECK(gpr_dot(&request) == GPR_OK && value == 14, "%g", value);
    }
}

/* Calls that are no exact variance, and failures of one. */
static void test_exact_variances_that_make_no_sense_are_refused(void)
{
    static const double values[4] = {1, 2, 3, 4};
    static const int64_t four[1] = {4};
    double value = 0;
    int asked = 0;
    const gpr_request plain = {.op = GPR_OP_VAR,
                               .dtype = GPR_FLOAT64,
                               .compute = GPR_DTYPE_DEFAULT,
                               .ndim = 1,
                               .reduced = 1,
                               .shape = four,
                               .data = values,
                               .kernel = GPR_KERNEL_exact,
                               .device = GPR_DEVICE_CPU,
                               .result = &value};
    gpr_request request = plain;

    CHECK(gpr_reduce(&request) == GPR_OK && value == 1.25, "%g", value);
    CHECK(gpr_last_run()->device == GPR_DEVICE_CPU, "the CPU answered");
    request.dtype = GPR_COMPLEX64;
    request.compute = GPR_FLOAT32;
    CHECK_FAILS(gpr_reduce(&request), GPR_ERROR_VALUE, "not var of complex64 as float32");
    request = plain;
    request.ndim = request.reduced = WINDOW_AXES;
    request.shape = huge;
    request.strides = steps;
    request.data = windows;
    request.interrupted = stop_at_once;
    request.interrupted_arg = &asked;
    CHECK_FAILS(gpr_reduce(&request), GPR_ERROR_INTERRUPTED, "interrupted");
    CHECK(asked == 1, "asked %d times", asked);
}

/* Random bytes with the right checksum, size and header are refused or are a state that stores,
 * rounds and merges: this runs under the sanitizers. */
static void test_any_bytes_are_refused_or_sound(void)
{
    enum { TRIES = 4000 };
    uint64_t loaded = 0;

    for (int i = 0; i < TRIES; i++) {
        const gpr_dtype dtype = (gpr_dtype)check_between(0, GPR_FLOAT64);
        const size_t size = gpr_exact_bytes(dtype), end = size - 4;
        gpr_exact *sum = make(dtype), *again = NULL;
        unsigned char bytes[MOST_BYTES], stored[MOST_BYTES];
        uint32_t crc = UINT32_MAX;

        gpr_exact_store(sum, bytes);
        for (int k = 0; k < 4; k++)
            bytes[check_between(12, (int64_t)end - 1)] = (unsigned char)check_random();
        for (int k = 12; k < 28 && i % 2 == 0; k++)
            bytes[k] = k < 13 ? 8 : k < 16 ? 0 : k < 24 ? 0x7f : bytes[k];
        if (i % 2 == 0)
            bytes[24] = (unsigned char)((size - 32) / 4), bytes[25] = bytes[26] = bytes[27] = 0;
        for (size_t k = 0; k < end; k++) {
            crc ^= bytes[k];
            for (int bit = 0; bit < 8; bit++)
                crc = (crc & 1) != 0 ? crc >> 1 ^ UINT32_C(0xedb88320) : crc >> 1;
        }
        for (int k = 0; k < 4; k++) bytes[end + (size_t)k] = (unsigned char)(~crc >> 8 * k);
        if (gpr_exact_load(bytes, size, &again) == GPR_OK) {
            double value;

            loaded++;
            gpr_exact_store(again, stored);
            CHECK(memcmp(stored, bytes, size) == 0, "stored as it was loaded");
            CHECK(gpr_exact_result(again, GPR_FLOAT64, &value) == GPR_OK, "result");
            CHECK(gpr_exact_mean(again, GPR_FLOAT16, &value) == GPR_OK, "mean");
            CHECK(gpr_exact_merge(again, again) == GPR_OK ||
                      gpr_last_error()->status == GPR_ERROR_VALUE,
                  "merge");
        }
        gpr_exact_destroy(again);
        gpr_exact_destroy(sum);
    }
    CHECK(loaded > TRIES / 100, "%" PRIu64 " were loaded", loaded);
}

/* ---------------------------------------------------------------- threads -------------------- */

enum { THREADS = 4, ROUNDS = 50, SHARED_COUNT = 2000 };
static double shared_values[SHARED_COUNT];
static gpr_exact *shared_sum, *shared_other;

static void *add_and_look(void *unused)
{
    unsigned char bytes[MOST_BYTES];
    double value;

    for (int i = 0; i < ROUNDS; i++) {
        (void)gpr_exact_update_array(shared_sum, shared_values, SHARED_COUNT);
        (void)gpr_exact_merge(shared_other, shared_sum);
        (void)gpr_exact_result(shared_other, GPR_FLOAT64, &value);
        gpr_exact_store(shared_sum, bytes);
        if (gpr_exact_count(shared_sum) % SHARED_COUNT != 0) return unused;
    }
    return NULL;
}

enum { MERGES = 100000 };
static pthread_barrier_t all_are_there;

typedef struct merging {
    gpr_exact *sum, *one; /* threads share the sum; of ones each has its own */
} merging;

/* Hardly anything but additions to one sum, which without a lock lose some of each other's. */
static void *merge_often(void *argument)
{
    const merging *m = argument;

    (void)pthread_barrier_wait(&all_are_there);
    for (int i = 0; i < MERGES; i++) (void)gpr_exact_merge(m->sum, m->one);
    return NULL;
}

static void test_no_merge_is_lost_to_another_thread(void)
{
    static double repeated[MERGES];
    gpr_exact *sum = make(GPR_FLOAT64), *wanted = make(GPR_FLOAT64);
    merging merges[THREADS];
    pthread_t threads[THREADS];

    fill_doubles(shared_values, 1, 1, 2046);
    for (int i = 0; i < MERGES; i++) repeated[i] = shared_values[0];
    for (int i = 0; i < THREADS; i++) {
        merges[i] = (merging){sum, make(GPR_FLOAT64)};
        (void)gpr_exact_update_array(merges[i].one, shared_values, 1);
    }
    CHECK(pthread_barrier_init(&all_are_there, NULL, THREADS) == 0, "a barrier");
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, merge_often, &merges[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all_are_there);
    for (int i = 0; i < THREADS; i++) {
        (void)gpr_exact_update_array(wanted, repeated, MERGES);
        gpr_exact_destroy(merges[i].one);
    }
    CHECK(same(sum, wanted), "%" PRIu64 " elements", gpr_exact_count(sum));
    gpr_exact_destroy(wanted);
    gpr_exact_destroy(sum);
}

static void test_threads_may_share_sums(void)
{
    static double repeated[SHARED_COUNT];
    gpr_exact *wanted = make(GPR_FLOAT64);
    pthread_t threads[THREADS];
    char mark = 0;

    fill_doubles(shared_values, SHARED_COUNT, 0, 2046);
    memcpy(repeated, shared_values, sizeof repeated);
    shared_sum = make(GPR_FLOAT64);
    shared_other = make(GPR_FLOAT64);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, add_and_look, &mark);
    for (int i = 0; i < THREADS; i++) {
        void *torn = NULL;
        pthread_join(threads[i], &torn);
        CHECK(torn == NULL, "an update was seen half done");
    }
    for (int i = 0; i < THREADS * ROUNDS; i++)
        (void)gpr_exact_update_array(wanted, repeated, SHARED_COUNT);
    CHECK(same(shared_sum, wanted), "all updates arrived, once");
    gpr_exact_destroy(wanted);
    gpr_exact_destroy(shared_sum);
    gpr_exact_destroy(shared_other);
}

/* Large arrays are split over the pool, also when several threads call at once. */
enum { LARGE_COUNT = 600011 };
static double large_values[LARGE_COUNT];

static void *add_large(void *sum)
{
    return gpr_exact_update_array(sum, large_values, LARGE_COUNT) == GPR_OK ? NULL : sum;
}

static void test_number_of_threads_changes_no_bit(void)
{
    enum { PIECE = 1000 };
    gpr_exact *wanted = make(GPR_FLOAT64);
    gpr_limits before, limits;
    int asked = 0;

    fill_doubles(large_values, LARGE_COUNT, 900, 1023);
    for (uint64_t i = 0; i < LARGE_COUNT; i += PIECE)
        (void)gpr_exact_update_array(wanted, large_values + i,
                                     LARGE_COUNT - i < PIECE ? LARGE_COUNT - i : PIECE);
    gpr_get_limits(&before);
    for (uint32_t count = 1; count <= 4; count++) {
        gpr_exact *sum = make(GPR_FLOAT64), *other = make(GPR_FLOAT64);
        const int64_t shape[1] = {LARGE_COUNT};
        gpr_request request = {
            .dtype = GPR_FLOAT64, .ndim = 1, .shape = shape, .data = large_values};
        pthread_t thread;
        void *failed = NULL;

        limits = before;
        limits.cpu_threads = count;
        CHECK(gpr_set_limits(&limits) == GPR_OK, "limits");
        pthread_create(&thread, NULL, add_large, other);
        CHECK(add_large(sum) == NULL, "update");
        pthread_join(thread, &failed);
        CHECK(failed == NULL, "update beside it");
        CHECK(same(sum, wanted) && same(other, wanted), "%u threads", count);
        /* All or nothing was added, also where the call ended before the callback was due. */
        request.interrupted = stop_at_once;
        request.interrupted_arg = &asked;
        if (gpr_exact_update(sum, &request) == GPR_OK)
            CHECK(gpr_exact_merge(wanted, other) == GPR_OK, "merge");
        CHECK(same(sum, wanted), "%u threads: all or nothing", count);
        gpr_exact_destroy(wanted);
        wanted = other;
        gpr_exact_destroy(sum);
    }
    CHECK(gpr_set_limits(&before) == GPR_OK, "limits");
    gpr_exact_destroy(wanted);
}

int main(void)
{
    check_begin();
    test_no_setting_of_the_floating_point_unit_changes_a_sum();
    test_no_setting_of_the_floating_point_unit_changes_a_product();
    test_no_setting_of_the_floating_point_unit_changes_rows();
    test_bins_are_exact_or_refuse();
    test_tiles_of_all_kinds_follow_each_other();
    test_pieces_of_any_length_have_every_element_once();
    test_products_are_two_doubles_or_refused();
    test_words_of_products_never_overflow();
    test_variances_divide_any_words();
    test_the_last_bit_of_a_variance_decides();
    test_the_smallest_ddof_counts();
    test_words_never_overflow();
    test_repeats_are_merges();
    test_counts_have_an_end();
    test_integers_agree_with_128_bits();
    test_failures_change_nothing();
    test_dots_that_make_no_sense_are_refused();
    test_exact_variances_that_make_no_sense_are_refused();
    test_any_bytes_are_refused_or_sound();
    test_threads_may_share_sums();
    test_no_merge_is_lost_to_another_thread();
    test_number_of_threads_changes_no_bit();
    return check_end();
}
