/* Exact sums in C: the two ways of adding agree whatever the floating point unit is set to, windows refuse what they do
 * not hold, states stay sound, and failures change nothing. The reference for values is tests/test_exact.py; here it is
 * the addition element by element, which is integer arithmetic, and __int128 for what fits in it. */
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "check.h"
#include "cpu.h"
#include "exact.h"
#include "loops.h"
#include "status.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

enum { MOST_BYTES = 512 };

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

    for (uint64_t i = 0; i < count; i++) gpr_exact_update_array(sum, bytes + i * gpr_dtype_bytes(dtype), 1);
    return sum;
}

/* Doubles whose exponents lie in a range, some of them subnormal or zero. */
static void fill_doubles(double *values, uint64_t count, int low, int high)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bits = (check_random() & ~(UINT64_C(0x7ff) << 52)) | (uint64_t)check_between(low, high) << 52;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

static void fill_floats(float *values, uint64_t count, int low, int high)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t bits = ((uint32_t)check_random() & ~(UINT32_C(0xff) << 23)) | (uint32_t)check_between(low, high)
                                                                                         << 23;
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
    if ((how & FLUSH) != 0) _mm_setcsr(_mm_getcsr() | 0x8040); /* flush results to zero, read subnormals as zero */
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
            CHECK(before == after, "setting %d: the unit is set as it was, %#x not %#x", settings[s], after, before);
            CHECK(same(sum, plain), "setting %d: exponents %d to %d", settings[s], low, high);
            CHECK(same(single, plain_single), "setting %d: float32", settings[s]);
            CHECK(memcmp(&rounded, &wanted, sizeof wanted) == 0, "setting %d: %a is not %a", settings[s], rounded,
                  wanted);
            gpr_exact_destroy(sum);
            gpr_exact_destroy(single);
        }
        gpr_exact_destroy(plain);
        gpr_exact_destroy(plain_single);
    }
}

/* ---------------------------------------------------------------- windows -------------------- */

/* A window's sums, as a part, beside the elements', added one by one. */
static void check_windows(const char *isa, int all, const double *values, uint64_t count, const double *biases,
                          const int *units)
{
    const gpr_exact_windows *loops = &gpr_cpu_loops()->exact[GPR_FLOAT64];
    gpr_exact_part in_windows, one_by_one;
    int64_t sums[GPR_EXACT_WINDOWS];

    if (!(all ? loops->all : loops->few)(values, count, biases, sums)) return;
    gpr_exact_clear(&in_windows, GPR_FLOAT64);
    gpr_exact_clear(&one_by_one, GPR_FLOAT64);
    for (int w = 0; w < (all ? GPR_EXACT_WINDOWS : loops->few_count); w++)
        gpr_exact_add_integer(&in_windows, sums[w], units[w]);
    gpr_exact_add_elements(&one_by_one, GPR_FLOAT64, values, count);
    gpr_exact_carry(&in_windows);
    gpr_exact_carry(&one_by_one);
    CHECK(memcmp(in_windows.words, one_by_one.words, sizeof in_windows.words) == 0, "%s, %" PRIu64 " elements", isa,
          count);
}

/* Wherever windows lie, what they accept they sum exactly; and around the elements they do accept. */
static void test_windows_are_exact_or_refuse(void)
{
    enum { TRIES = 3000 };
    static const char *const isas[] = {"avx512", "avx2", "baseline"};
    static double values[GPR_EXACT_TILE];

    for (size_t s = 0; s < sizeof isas / sizeof isas[0]; s++) {
        if (gpr_set_cpu_isa(isas[s]) != GPR_OK) continue;
        for (int i = 0; i < TRIES; i++) {
            const uint64_t count = (uint64_t)check_between(1, i % 10 == 0 ? GPR_EXACT_TILE : 200);
            const int high = (int)check_between(1, 2000), top = high - 1023 + (int)check_between(-8, 30);
            const int all = i % 2, range = (int)check_between(0, all ? 200 : 50);
            const gpr_exact_windows *windows = &gpr_cpu_loops()->exact[GPR_FLOAT64];
            const gpr_exact_loop loop = all ? windows->all : windows->few;
            double biases[GPR_EXACT_WINDOWS];
            int units[GPR_EXACT_WINDOWS];
            int64_t sums[GPR_EXACT_WINDOWS];

            for (int w = 0; w < GPR_EXACT_WINDOWS; w++) {
                int p = top - w * (int)check_between(1, GPR_EXACT_WINDOW_BITS);
                if (w > 0 && p < units[w - 1] + 52 - GPR_EXACT_WINDOW_BITS)
                    p = units[w - 1] + 52 - GPR_EXACT_WINDOW_BITS;
                if (p > 1021) p = 1021;
                if (p < -1022) p = -1022;
                biases[w] = ldexp(1.5, p);
                units[w] = p - 52;
            }
            fill_doubles(values, count, high > range ? high - range : 0, high);
            check_windows(isas[s], all, values, count, biases, units);

            biases[0] = 0x1.8p20;
            for (int w = 1; w < GPR_EXACT_WINDOWS; w++) biases[w] = ldexp(biases[w - 1], -GPR_EXACT_WINDOW_BITS);
            fill_doubles(values, count, 1023 - (all ? 180 : 20), 1023);
            CHECK(loop(values, count, biases, sums), "%s: in range", isas[s]);
            values[check_between(0, (int64_t)count - 1)] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? NAN : 0x1p-300;
            CHECK(!loop(values, count, biases, sums), "%s: %d", isas[s], i % 3);
        }
    }
    (void)gpr_set_cpu_isa(NULL);
}

/* ---------------------------------------------------------------- carries -------------------- */

/* Carries are propagated before a word overflows, also in 2^31 additions of the largest numbers to one word. */
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
        CHECK((uint32_t)part.words[i] == (uint32_t)(wanted >> 32 * i), "word %d is %#" PRIx64, i, part.words[i]);
    CHECK(part.words[4] == 0, "the highest word is %" PRIi64, part.words[4]);
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

static void test_failures_change_nothing(void)
{
    static const double values[4] = {1, 2, 3, 4};
    static const int64_t huge[2] = {INT64_C(1) << 20, INT64_C(1) << 20}, none[2] = {0, 0}, bad[1] = {-1}, four[1] = {4};
    static const uint8_t mask[4];
    gpr_exact *sum = make(GPR_FLOAT64), *other = make(GPR_FLOAT32), *before = make(GPR_FLOAT64), *missing = sum;
    gpr_request request = {.dtype = GPR_FLOAT64, .ndim = 1, .shape = four, .data = values};
    double value = 0;
    int64_t integer = 0;
    int asked = 0;

    CHECK(gpr_exact_update(sum, &request) == GPR_OK, "update");
    CHECK(gpr_exact_merge(before, sum) == GPR_OK, "merge");
    CHECK_FAILS(gpr_exact_create(GPR_DTYPE_COUNT, &missing), GPR_ERROR_VALUE, "no dtype");
    CHECK_FAILS(gpr_exact_create(GPR_COMPLEX64, &missing), GPR_ERROR_TYPE, "sum the parts of complex64 each");
    CHECK_FAILS(gpr_exact_result(sum, GPR_COMPLEX128, &integer), GPR_ERROR_TYPE, "sum the parts of complex128 each");
    CHECK(gpr_exact_bytes(GPR_COMPLEX128) == 0, "a complex sum has no bytes");
    CHECK(missing == NULL, "no sum");
    CHECK_FAILS(gpr_exact_merge(sum, other), GPR_ERROR_TYPE, "float32");
    CHECK_FAILS(gpr_exact_update(other, &request), GPR_ERROR_TYPE, "float64");
    request.dtype = GPR_DTYPE_DEFAULT;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_VALUE, "no dtype");
    request.dtype = GPR_FLOAT64;
    request.on_device = 1;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_VALUE, "host memory");
    request.on_device = 0;
    request.mask = mask;
    request.mask_strides = four;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_VALUE, "mask");
    request.mask = NULL;
    request.shape = bad;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_VALUE, "negative");
    request.ndim = 2;
    request.shape = huge;
    request.strides = none;
    request.interrupted = stop_at_once;
    request.interrupted_arg = &asked;
    CHECK_FAILS(gpr_exact_update(sum, &request), GPR_ERROR_INTERRUPTED, "interrupted");
    CHECK(asked == 1, "asked %d times", asked);
    CHECK_FAILS(gpr_exact_result(sum, GPR_INT64, &integer), GPR_ERROR_TYPE, "no result of type int64");
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

/* Random bytes with the right checksum, size and header are refused or are a state that stores, rounds and merges: this
 * runs under the sanitizers. */
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
        for (int k = 0; k < 4; k++) bytes[check_between(12, (int64_t)end - 1)] = (unsigned char)check_random();
        for (int k = 12; k < 28 && i % 2 == 0; k++) bytes[k] = k < 13 ? 8 : k < 16 ? 0 : k < 24 ? 0x7f : bytes[k];
        if (i % 2 == 0) bytes[24] = (unsigned char)((size - 32) / 4), bytes[25] = bytes[26] = bytes[27] = 0;
        for (size_t k = 0; k < end; k++) {
            crc ^= bytes[k];
            for (int bit = 0; bit < 8; bit++) crc = (crc & 1) != 0 ? crc >> 1 ^ UINT32_C(0xedb88320) : crc >> 1;
        }
        for (int k = 0; k < 4; k++) bytes[end + (size_t)k] = (unsigned char)(~crc >> 8 * k);
        if (gpr_exact_load(bytes, size, &again) == GPR_OK) {
            double value;

            loaded++;
            gpr_exact_store(again, stored);
            CHECK(memcmp(stored, bytes, size) == 0, "stored as it was loaded");
            CHECK(gpr_exact_result(again, GPR_FLOAT64, &value) == GPR_OK, "result");
            CHECK(gpr_exact_mean(again, GPR_FLOAT16, &value) == GPR_OK, "mean");
            CHECK(gpr_exact_merge(again, again) == GPR_OK || gpr_last_error()->status == GPR_ERROR_VALUE, "merge");
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
    for (int i = 0; i < THREADS * ROUNDS; i++) (void)gpr_exact_update_array(wanted, repeated, SHARED_COUNT);
    CHECK(same(shared_sum, wanted), "all updates arrived, once");
    gpr_exact_destroy(wanted);
    gpr_exact_destroy(shared_sum);
    gpr_exact_destroy(shared_other);
}

/* Large arrays are split over the pool, also when several threads ask for it at once. */
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
        (void)gpr_exact_update_array(wanted, large_values + i, LARGE_COUNT - i < PIECE ? LARGE_COUNT - i : PIECE);
    gpr_get_limits(&before);
    for (uint32_t count = 1; count <= 4; count++) {
        gpr_exact *sum = make(GPR_FLOAT64), *other = make(GPR_FLOAT64);
        const int64_t shape[1] = {LARGE_COUNT};
        gpr_request request = {.dtype = GPR_FLOAT64, .ndim = 1, .shape = shape, .data = large_values};
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
        /* Asked or not (it may be done before it is time to ask), all or nothing was added. */
        request.interrupted = stop_at_once;
        request.interrupted_arg = &asked;
        if (gpr_exact_update(sum, &request) == GPR_OK) CHECK(gpr_exact_merge(wanted, other) == GPR_OK, "merge");
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
    test_windows_are_exact_or_refuse();
    test_words_never_overflow();
    test_integers_agree_with_128_bits();
    test_failures_change_nothing();
    test_any_bytes_are_refused_or_sound();
    test_threads_may_share_sums();
    test_number_of_threads_changes_no_bit();
    return check_end();
}
