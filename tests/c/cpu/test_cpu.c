/* The CPU backend against the naive reference: every operator, dtype and pair of dtypes, sizes
 * around every loop's steps, any layout, every instruction set of this machine, NaN and infinity in
 * every place; and that bits do not depend on the number of threads or the instruction set. */
#include <sys/mman.h>

#include "check.h"
#include "cpu/cpu.h"
#include "lib/base/convert.h"
#include "lib/base/status.h"
#include "lib/rules/accumulators.h"
#include "naive.h"
#include "request.h"

static const char *const isas[] = {"avx512", "avx2", "baseline"};
enum { ISAS = 3, RANDOM_EXAMPLES = 120 };

/* ThreadSanitizer makes the loops many times slower, and threads share nothing of them: there the
 * best instruction set alone is taken, for what threads do share. */
#ifdef __SANITIZE_THREAD__
enum { UNDER_TSAN = 1 };
#else
enum { UNDER_TSAN = 0 };
#endif

/* A request over memory of its own. */
typedef struct example {
    gpr_request request;
    int64_t shape[8], strides[8], mask_strides[8];
    char *memory;
    uint8_t *mask_memory;
    uint64_t rows, n;
} example;

static void free_example(example *e)
{
    free(e->memory);
    free(e->mask_memory);
}

/* Reverses the bytes of each part of an element. */
static void reverse_part(char *bytes, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        const char t = bytes[i];
        bytes[i] = bytes[count - 1 - i];
        bytes[count - 1 - i] = t;
    }
}

static void reverse(char *element, gpr_dtype dtype)
{
    const size_t part = gpr_part_bytes(dtype);

    for (size_t at = 0; at < gpr_dtype_bytes(dtype); at += part) reverse_part(element + at, part);
}

/* A random element. Tame ones are small and fit every type's range after conversion; products
 * stay finite. */
static void random_element(gpr_operator op, gpr_dtype dtype, int wild, void *element)
{
    const double signed_one = (double)check_between(-1000, 1000) / 1000;
    uint64_t bits = check_random();
    double value = naive_kind(dtype) == GPR_KIND_UNSIGNED ? fabs(signed_one) * 90 : signed_one * 90;
    uint16_t half;
    float f32;

    if (naive_is_complex(dtype)) {
        random_element(op, naive_part(dtype), wild, element);
        random_element(op, naive_part(dtype), wild, (char *)element + gpr_part_bytes(dtype));
        if (op == GPR_OP_PROD)
            memset((char *)element + gpr_part_bytes(dtype), 0,
                   gpr_part_bytes(dtype) - check_between(0, 1));
        return;
    }
    if (op == GPR_OP_PROD)
        value = naive_is_float(dtype) ? 1 + signed_one / 16 : (double)check_between(1, 3);
    if ((op == GPR_OP_ANY || op == GPR_OP_ALL) && check_between(0, 3) > 0) value = op == GPR_OP_ALL;
    if (naive_is_float(dtype) && !wild) {
        if (dtype == GPR_FLOAT64) memcpy(&bits, &value, 8);
        f32 = (float)value;
        if (dtype == GPR_FLOAT32) memcpy(&bits, &f32, 4);
        half = dtype == GPR_FLOAT16 ? gpr_double_to_half(value) : gpr_double_to_bfloat(value);
        if (gpr_dtype_bytes(dtype) == 2) bits = half;
    } else if (dtype == GPR_BOOL) {
        bits = (op == GPR_OP_ANY || op == GPR_OP_ALL || op == GPR_OP_MIN || op == GPR_OP_MAX)
                   ? value != 0
                   : bits & 1;
    } else if (!wild) {
        bits = (uint64_t)(int64_t)value;
    }
    memcpy(element, &bits, gpr_dtype_bytes(dtype));
}

static char *element_at(const example *e, uint64_t row, uint64_t position, const uint8_t **mask)
{
    const gpr_request *r = &e->request;
    char *address = (char *)(uintptr_t)r->data;
    const uint8_t *m = r->mask;

    for (int i = r->ndim - 1; i >= 0; i--) {
        uint64_t *index = i >= r->ndim - r->reduced ? &position : &row;
        const int64_t at = (int64_t)(*index % (uint64_t)e->shape[i]);
        *index /= (uint64_t)e->shape[i];
        address += at * (r->strides != NULL ? e->strides[i] : 0);
        if (m != NULL) m += at * e->mask_strides[i];
    }
    *mask = m;
    return address;
}

/* Lays out axes of `bytes`-sized items in a random order of memory with random gaps, directions and
 * repeats (kind 0: C order and nothing else). Returns the bytes spanned and the offset of the first
 * item. */
static size_t lay_out(const int64_t *shape, int ndim, size_t bytes, int kind, int64_t *strides,
                      size_t *start)
{
    int order[8];
    size_t step = bytes;

    *start = 0;
    for (int i = 0; i < ndim; i++) order[i] = ndim - 1 - i;
    for (int i = ndim - 1; i > 0 && kind > 0; i--) {
        const int j = (int)check_between(0, i), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (int k = 0; k < ndim; k++) {
        const int i = order[k];
        const size_t gap = kind > 1 && check_between(0, 2) == 0 ? (size_t)check_between(1, 3) : 1;

        if (kind > 1 && check_between(0, 7) == 0) {
            strides[i] = 0;
            continue;
        }
        strides[i] = (int64_t)(step * gap);
        step = (size_t)strides[i] * (size_t)(shape[i] > 0 ? shape[i] : 1);
        if (kind > 1 && check_between(0, 3) == 0) {
            *start += (size_t)(strides[i] * (shape[i] - 1));
            strides[i] = -strides[i];
        }
    }
    return step;
}

/* Fills in an example whose op, dtype, compute, ndim, reduced and shape are set. */
static void make_example(example *e, int layout, int masked, int swapped, int misaligned, int wild)
{
    gpr_request *r = &e->request;
    const size_t bytes = gpr_dtype_bytes(r->dtype);
    const size_t offset = misaligned ? (size_t)check_between(1, 7) : 0;
    size_t start, span;

    span = lay_out(e->shape, r->ndim, bytes, layout, e->strides, &start);
    e->memory = malloc(span + offset + 1);
    e->mask_memory = NULL;
    r->shape = e->shape;
    r->strides = e->strides;
    r->data = e->memory + offset + start;
    r->byteswapped = swapped;
    r->nat_last = r->dtype == GPR_INT64 && check_between(0, 2) == 0;
    r->mask = NULL;
    e->rows = e->n = 1;
    for (int i = 0; i < r->ndim; i++)
        *(i < r->ndim - r->reduced ? &e->rows : &e->n) *= (uint64_t)e->shape[i];
    if (masked) {
        span = lay_out(e->shape, r->ndim, 1, layout, e->mask_strides, &start);
        e->mask_memory = malloc(span);
        for (size_t i = 0; i < span; i++) e->mask_memory[i] = check_between(0, 3) > 0;
        r->mask = e->mask_memory + start;
        r->mask_strides = e->mask_strides;
    }
    for (uint64_t row = 0; row < e->rows; row++) {
        for (uint64_t i = 0; i < e->n; i++) {
            const uint8_t *mask;
            char *address = element_at(e, row, i, &mask), element[16];

            random_element(r->op, r->dtype, wild, element);
            if (e->request.skip_nan && naive_is_float(r->dtype) && check_between(0, 4) == 0)
                memset(element, 0xff, bytes);
            if (swapped) reverse(element, r->dtype);
            memcpy(address, element, bytes);
        }
    }
}

static gpr_status run_example(const example *e, void *result)
{
    gpr_resolved call = {.result = result};
    gpr_run run;
    gpr_status status;

    GPR_TRY(rule_of(&e->request, &call.rule));
    GPR_TRY(gpr_make_view(&e->request, &call.rule, &call.view));
    GPR_TRY(gpr_cpu_reduce(&call, &run));
done:
    return status;
}

/* Instruction sets of this machine, the best first: each example is reduced with all of them. */
static const char *tried[ISAS];
static int tried_count;

static void find_isas(void)
{
    for (int i = 0; i < ISAS; i++)
        if (gpr_set_cpu_isa(isas[i]) == GPR_OK) tried[tried_count++] = isas[i];
    if (UNDER_TSAN) tried_count = 1;
    (void)gpr_set_cpu_isa(NULL);
}

/* Folds each row of an example, one element after the other. */
static naive_fold *fold_rows(const example *e, const gpr_rule *rule)
{
    const gpr_request *r = &e->request;
    const size_t bytes = gpr_dtype_bytes(r->dtype);
    naive_fold *folds = calloc(e->rows + 1, sizeof *folds);

    for (uint64_t row = 0; row < e->rows; row++) {
        char element[16];

        for (uint64_t i = 0; i < e->n; i++) {
            const uint8_t *mask;
            const char *address = element_at(e, row, i, &mask);

            memcpy(element, address, bytes);
            if (r->byteswapped) reverse(element, r->dtype);
            if (r->nat_last) naive_put_nat_last(element);
            if (mask != NULL && !*mask)
                naive_pass(&folds[row]);
            else
                naive_step_fold(&folds[row], rule, naive_load(r->dtype, element));
        }
    }
    return folds;
}

/* What naive_agrees compares a result with, for a message. */
static const char *wanted(const naive_fold *fold, const gpr_rule *rule)
{
    static char text[200];

    if (rule->op == GPR_OP_VAR || rule->op == GPR_OP_STD) {
        const naive_range range = naive_spread(fold, rule);

        (void)snprintf(text, sizeof text,
                       "%.17Lg to %.17Lg: squares %.17Lg of %" PRIu64 " elements, ddof %.17g",
                       range.low, range.high, fold->squares, fold->count, rule->ddof);
    } else {
        (void)snprintf(text, sizeof text, "%.17Lg or %lld", fold->acc.f, (long long)fold->acc.i);
    }
    return text;
}

/* Reduces an example with each instruction set and compares each row with the naive fold. */
static void check_example(const example *e, const char *what)
{
    const gpr_request *r = &e->request;
    gpr_rule rule;
    size_t result_bytes;
    char *results;
    naive_fold *folds;
    gpr_status status = rule_of(r, &rule);

    CHECK(status == GPR_OK, "%s", gpr_last_error()->message);
    result_bytes = gpr_dtype_bytes(rule.result);
    results = malloc((uint64_t)rule.outputs * e->rows * result_bytes + 1);
    folds = fold_rows(e, &rule);
    for (int k = 0; k < tried_count; k++) {
        CHECK(gpr_set_cpu_isa(tried[k]) == GPR_OK, "%s", tried[k]);
        memset(results, 0x5a, (uint64_t)rule.outputs * e->rows * result_bytes);
        status = run_example(e, results);
        CHECK(status == GPR_OK, "%s", gpr_last_error()->message);
        for (uint64_t row = 0; row < e->rows; row++) {
            CHECK(naive_agrees(&folds[row], &rule, results + row * result_bytes,
                               e->rows * result_bytes),
                  "%s: %s of %s as %s, row %" PRIu64 " of %" PRIu64 ", n %" PRIu64
                  ", isa %s: got %.17Lg or %lld, want %s",
                  what, gpr_operator_name(r->op), gpr_dtype_name(r->dtype),
                  gpr_dtype_name(rule.compute), row, e->rows, e->n, tried[k],
                  naive_load(rule.result, results + row * result_bytes).f,
                  (long long)naive_load(rule.result, results + row * result_bytes).i,
                  wanted(&folds[row], &rule));
        }
    }
    (void)gpr_set_cpu_isa(NULL);
    free(folds);
    free(results);
}

static void set_shape(example *e, gpr_operator op, gpr_dtype dtype, gpr_dtype compute, int ndim,
                      int reduced)
{
    memset(&e->request, 0, sizeof e->request);
    e->request.op = op;
    e->request.dtype = dtype;
    e->request.compute = compute;
    e->request.ndim = ndim;
    e->request.reduced = reduced;
}

static void test_flat(gpr_operator op, gpr_dtype dtype, gpr_dtype compute, int64_t n, int wild,
                      const char *what)
{
    example e;

    set_shape(&e, op, dtype, compute, 1, 1);
    e.shape[0] = n;
    make_example(&e, 0, 0, 0, 0, wild);
    check_example(&e, what);
    free_example(&e);
}

/* Whether what is large is tried in this run: every second case, which the seed draws. */
static int takes_turn(int number)
{
    static int turn = -1;

    if (getenv("GPR_TEST_ALL")) return 1;
    if (turn < 0) turn = (int)check_between(0, 1);
    return (number + turn) % 2 == 0;
}

static int takes_dtype(int op)
{
    return op == GPR_OP_SUM || op == GPR_OP_PROD || op == GPR_OP_MEAN;
}

static int takes_element(int op, int dtype)
{
    return gpr_result_dtype((gpr_operator)op, (gpr_dtype)dtype, GPR_DTYPE_DEFAULT) !=
           GPR_DTYPE_DEFAULT;
}

static int skips_nan(int op)
{
    return takes_dtype(op) || (op >= GPR_OP_ARGMIN && op <= GPR_OP_STD) || op == GPR_OP_MIN ||
           op == GPR_OP_MAX;
}

static void test_sizes(void)
{
    static const int sizes[] = {1,   2,    3,    7,    8,    15,   16,   17,   31,   32,   33,
                                47,  48,   49,   63,   64,   65,   127,  128,  129,  255,  257,
                                500, 1000, 1023, 1025, 2049, 4095, 4096, 4097, 8193, 20001};

    for (int op = 0; op < GPR_OP_COUNT; op++)
        for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++) {
            if (!takes_element(op, dtype)) continue;
            const int wild = !naive_is_float(dtype) &&
                             (op == GPR_OP_SUM || op == GPR_OP_MIN || op == GPR_OP_MAX);

            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                test_flat(op, dtype, GPR_DTYPE_DEFAULT, sizes[s], wild, "sizes");
            /* Several pieces, the last one short. */
            if (takes_turn(op + dtype))
                test_flat(op, dtype, GPR_DTYPE_DEFAULT,
                          check_between(5, 9) * 32768 + check_between(0, 999), wild, "pieces");
        }
}

/* Extreme bytes, so that lanes that are too narrow overflow. */
static void test_full_lanes(void)
{
    static const gpr_dtype dtypes[] = {GPR_BOOL, GPR_INT8, GPR_UINT8, GPR_INT16, GPR_UINT16};

    for (int d = 0; d < 5; d++)
        for (int value = 0; value < 2; value++) {
            const size_t bytes = gpr_dtype_bytes(dtypes[d]);
            const uint64_t n = 300007;
            example e;

            set_shape(&e, GPR_OP_SUM, dtypes[d], GPR_DTYPE_DEFAULT, 1, 1);
            e.shape[0] = (int64_t)n;
            make_example(&e, 0, 0, 0, 0, 0);
            for (uint64_t i = 0; i < n; i++) {
                const gpr_value v =
                    gpr_neutral_element(value ? GPR_FOLD_min : GPR_FOLD_max, dtypes[d]);
                memcpy(e.memory + i * bytes, v.bytes, bytes);
            }
            check_example(&e, "full lanes");
            free_example(&e);
        }
}

static void test_pairs(void)
{
    for (int op = 0; op < GPR_OP_COUNT; op++)
        for (int dtype = 0; takes_dtype(op) && dtype < GPR_DTYPE_COUNT; dtype++)
            for (int compute = 0; compute < GPR_DTYPE_COUNT; compute++) {
                const int negative =
                    naive_is_float(dtype) && naive_kind(compute) == GPR_KIND_UNSIGNED;

                /* A negative float has no unsigned value. */
                test_flat(negative ? GPR_OP_PROD : op, dtype, compute, 9, 0, "pairs");
                test_flat(negative ? GPR_OP_PROD : op, dtype, compute, check_between(1, 3000), 0,
                          "pairs");
            }
}

static int looks_for_nan(int op)
{
    return op == GPR_OP_MIN || op == GPR_OP_MAX || op == GPR_OP_ARGMIN || op == GPR_OP_ARGMAX;
}

/* A special value at each place of a run: at every lane of every vector, in the tail, and alone. */
static void test_special_places(void)
{
    static const gpr_dtype dtypes[] = {GPR_FLOAT16, GPR_BFLOAT16,  GPR_FLOAT32,
                                       GPR_FLOAT64, GPR_COMPLEX64, GPR_COMPLEX128};
    const double specials[] = {NAN, INFINITY, -INFINITY};

    for (int d = 0; d < 6; d++)
        for (int op = 0; op < GPR_OP_COUNT; op++)
            for (int s = 0; s < 3; s++) {
                const size_t bytes = gpr_dtype_bytes(dtypes[d]);
                const int64_t n = check_between(130, 300);
                gpr_value special = {.f64 = specials[s]};
                example e;

                if (!takes_element(op, dtypes[d])) continue;
                special = gpr_convert_acc(GPR_FOLD_sum, special, GPR_FLOAT64, dtypes[d]);
                set_shape(&e, op, dtypes[d], GPR_DTYPE_DEFAULT, 1, 1);
                e.shape[0] = n;
                make_example(&e, 0, 0, 0, 0, 0);
                /* Loops that look for NaN beside their comparisons could miss one anywhere. */
                for (int64_t i = 0; i < n; i += looks_for_nan(op) ? 1 : 13) {
                    char before[16], *at = e.memory + (size_t)i * bytes;

                    memcpy(before, at, bytes);
                    memcpy(at, special.bytes, bytes);
                    check_example(&e, "special");
                    memcpy(at, before, bytes);
                }
                free_example(&e);
            }
}

/* One element decides, wherever it is. */
static void test_truth_places(void)
{
    for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++)
        for (int op = GPR_OP_ANY; op <= GPR_OP_ALL; op++) {
            const size_t bytes = gpr_dtype_bytes(dtype);
            const gpr_value common =
                gpr_neutral_element(op == GPR_OP_ANY ? GPR_FOLD_any : GPR_FOLD_all, dtype);
            const gpr_value odd =
                gpr_neutral_element(op == GPR_OP_ANY ? GPR_FOLD_all : GPR_FOLD_any, dtype);
            example e;

            set_shape(&e, op, dtype, GPR_DTYPE_DEFAULT, 1, 1);
            e.shape[0] =
                check_between(0, 1) ? check_between(1, 300) : check_between(300000, 600000);
            make_example(&e, 0, 0, 0, 0, 0);
            for (int64_t i = 0; i < e.shape[0]; i++)
                memcpy(e.memory + (size_t)i * bytes, common.bytes, bytes);
            check_example(&e, "undecided");
            memcpy(e.memory + (size_t)check_between(0, e.shape[0] - 1) * bytes, odd.bytes, bytes);
            check_example(&e, "decided");
            free_example(&e);
        }
}

/* The same in each of some long rows: at its beginning, anywhere, or nowhere. */
static void test_truth_places_of_rows(void)
{
    enum { BYTES = 2 << 20 };
    static const gpr_dtype dtypes[] = {GPR_BOOL, GPR_UINT8, GPR_FLOAT32, GPR_COMPLEX128};

    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
        for (int op = GPR_OP_ANY; op <= GPR_OP_ALL; op++) {
            const size_t bytes = gpr_dtype_bytes(dtypes[k]);
            const gpr_value common =
                gpr_neutral_element(op == GPR_OP_ANY ? GPR_FOLD_any : GPR_FOLD_all, dtypes[k]);
            const gpr_value odd =
                gpr_neutral_element(op == GPR_OP_ANY ? GPR_FOLD_all : GPR_FOLD_any, dtypes[k]);
            const int64_t decided = check_between(0, 5); /* rows that their first element decides */
            example e;

            set_shape(&e, op, dtypes[k], GPR_DTYPE_DEFAULT, 2, 1);
            e.shape[0] = check_between(2, 6);
            e.shape[1] = (int64_t)(BYTES / bytes) / e.shape[0];
            make_example(&e, 0, 0, 0, 0, 0);
            for (int64_t i = 0; i < e.shape[0] * e.shape[1]; i++)
                memcpy(e.memory + (size_t)i * bytes, common.bytes, bytes);
            for (int64_t row = 0; row < e.shape[0]; row++) {
                const int64_t at = row < decided ? 0 : check_between(0, (int)e.shape[1] - 1);
                if (row >= decided && check_between(0, 1)) continue;
                memcpy(e.memory + (size_t)(row * e.shape[1] + at) * bytes, odd.bytes, bytes);
            }
            check_example(&e, "rows");
            free_example(&e);
        }
}

/* any and all of columns end where each is decided: memory behind that cannot be read. */
static void test_decided_columns(void)
{
    enum { READ = 1 << 16, ALL = 1 << 18 }; /* bytes: no more than a piece in all */
    char *memory = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED || mprotect(memory + READ, ALL - READ, PROT_NONE) != 0) abort();
    for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++)
        for (int op = GPR_OP_ANY; op <= GPR_OP_ALL; op++) {
            const size_t bytes = gpr_dtype_bytes(dtype);
            const gpr_value odd =
                gpr_neutral_element(op == GPR_OP_ANY ? GPR_FOLD_all : GPR_FOLD_any, dtype);
            const int64_t width = check_between(64, 100), row_bytes = width * (int64_t)bytes;
            const int64_t shape[2] = {width, ALL / row_bytes},
                          strides[2] = {(int64_t)bytes, row_bytes};
            gpr_request request = sums_of(dtype, 2, shape, memory, NULL);
            uint8_t results[100] = {2};
            gpr_resolved call = {.result = results};
            gpr_run run;

            memset(memory, 0, READ);
            for (size_t i = 0; op == GPR_OP_ANY && i < READ / bytes; i++)
                memcpy(memory + i * bytes, odd.bytes, bytes);
            request.op = (gpr_operator)op;
            request.strides = strides;
            CHECK(rule_of(&request, &call.rule) == GPR_OK, "rule");
            CHECK(gpr_make_view(&request, &call.rule, &call.view) == GPR_OK, "view");
            for (int k = 0; k < tried_count; k++) {
                CHECK(gpr_set_cpu_isa(tried[k]) == GPR_OK, "%s", tried[k]);
                CHECK(gpr_cpu_reduce(&call, &run) == GPR_OK, "%s", gpr_last_error()->message);
                for (int64_t i = 0; i < width; i++)
                    CHECK(results[i] == (op == GPR_OP_ANY), "%s of %s, column %lld",
                          gpr_operator_name((gpr_operator)op), gpr_dtype_name(dtype), (long long)i);
            }
        }
    (void)gpr_set_cpu_isa(NULL);
    (void)munmap(memory, ALL);
}

static void put(example *e, int64_t at, gpr_value element)
{
    const size_t bytes = gpr_dtype_bytes(e->request.dtype);

    memcpy(e->memory + (size_t)at * bytes, element.bytes, bytes);
}

/* The first of two extremes in a long row of equal elements, in random segments of random pieces;
 * then, for floats, with a NaN behind them, and with one before. */
static void test_far_positions(void)
{
    for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++)
        for (int op = GPR_OP_ARGMIN; op <= GPR_OP_ARGMAX; op++) {
            static const gpr_value common;
            const gpr_value extreme =
                gpr_neutral_element(op == GPR_OP_ARGMIN ? GPR_FOLD_max : GPR_FOLD_min, dtype);
            const gpr_value nan =
                gpr_convert_acc(GPR_FOLD_sum, (gpr_value){.f64 = NAN}, GPR_FLOAT64, dtype);
            int64_t first = 0, second = 0;
            example e;

            set_shape(&e, op, dtype, GPR_DTYPE_DEFAULT, 1, 1);
            e.shape[0] = check_between(2, 1 << check_between(2, 19));
            make_example(&e, 0, 0, 0, 0, 0);
            for (int64_t i = 0; i < e.shape[0]; i++) put(&e, i, common);
            check_example(&e, "all alike");
            first = check_between(0, (int)e.shape[0] - 1);
            second = check_between((int)first, (int)e.shape[0] - 1);
            put(&e, first, extreme);
            put(&e, second, extreme);
            check_example(&e, "two extremes");
            if (naive_is_float(dtype)) {
                put(&e, check_between((int)first, (int)e.shape[0] - 1), nan);
                check_example(&e, "NaN behind");
                put(&e, check_between(0, (int)first), nan);
                check_example(&e, "NaN before");
            }
            free_example(&e);
        }
}

/* One of few numbers, so that many are alike; of floats sometimes NaN or an infinity. */
static gpr_value few_numbers(gpr_dtype dtype, int wild)
{
    static const double specials[] = {NAN, INFINITY, -INFINITY};
    const double special = specials[check_between(0, 2)];
    const int is_special = wild && check_between(0, 7) == 0;
    const int64_t low = naive_kind(dtype) == GPR_KIND_UNSIGNED || dtype == GPR_BOOL ? 0 : -1;
    const double number = is_special ? special : (double)check_between(low, 1);

    return gpr_convert_acc(GPR_FOLD_sum, (gpr_value){.f64 = number}, GPR_FLOAT64, dtype);
}

/* Extremes that are there several times, and the first of them: in few short rows and in many, and
 * in rows of some of the loops' blocks. Parts of complex numbers are drawn each. */
static void test_ties(void)
{
    for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++)
        for (int op = 0; op < GPR_OP_COUNT; op++)
            for (int k = 0; k < 8; k++) {
                const gpr_dtype real = gpr_real_dtype((gpr_dtype)dtype);
                const size_t bytes = gpr_dtype_bytes(real);
                const int wild = naive_is_float((int)real) && k % 2 == 1, is_long = k >= 6;
                example e;

                if (!looks_for_nan(op) || !takes_element(op, dtype)) continue;
                set_shape(&e, op, dtype, GPR_DTYPE_DEFAULT, 2, 1);
                e.request.skip_nan = wild && skips_nan(op) && k % 4 == 1;
                e.shape[0] = check_between(0, 1) ? check_between(1, 6) : check_between(7, 80);
                e.shape[1] = is_long ? check_between(129, 1300) : check_between(1, 130);
                make_example(&e, 0, 0, 0, 0, 0);
                for (int64_t i = 0; i < e.shape[0] * e.shape[1]; i++)
                    for (int part = 0; part < gpr_exact_parts((gpr_dtype)dtype); part++) {
                        const gpr_value number = few_numbers(real, wild);
                        const size_t at = (size_t)i * gpr_dtype_bytes(dtype) + (size_t)part * bytes;
                        memcpy(e.memory + at, number.bytes, bytes);
                    }
                check_example(&e, "ties");
                free_example(&e);
            }
}

/* Random shapes, layouts, masks, byte orders, dtypes. */
static void test_random(int count)
{
    for (int k = 0; k < count; k++) {
        const int op = (int)check_between(0, GPR_OP_COUNT - 1),
                  dtype = (int)check_between(0, GPR_DTYPE_COUNT - 1);
        const int ndim = (int)check_between(0, 5);
        gpr_dtype compute = GPR_DTYPE_DEFAULT;
        int64_t size = 1;
        const int64_t most = check_between(0, 9) == 0   ? 700000
                             : check_between(0, 2) == 0 ? 60000
                                                        : 800;
        example e;

        if (takes_dtype(op) && check_between(0, 3) == 0)
            compute = (gpr_dtype)check_between(0, GPR_DTYPE_COUNT - 1);
        if (compute != GPR_DTYPE_DEFAULT && naive_is_float(dtype) &&
            naive_kind(compute) == GPR_KIND_UNSIGNED)
            compute = GPR_FLOAT64;
        if (!takes_element(op, dtype)) continue;
        set_shape(&e, op, dtype, compute, ndim, (int)check_between(0, ndim));
        e.request.skip_nan = skips_nan(op) && check_between(0, 2) == 0;
        e.request.ddof = (double)check_between(0, 2);
        for (int i = 0; i < ndim; i++) {
            const int64_t left = most / size;
            e.shape[i] = check_between(1, check_between(0, 1) ? (left < 5 ? left : 5) : left);
            size *= e.shape[i];
        }
        make_example(&e, (int)check_between(0, 3),
                     check_between(0, 3) == 0 &&
                         gpr_fold_rows[gpr_operator_rows[op].fold].acc_kind != GPR_ACC_INDEXED,
                     check_between(0, 4) == 0, check_between(0, 4) == 0, 0);
        check_example(&e, "random");
        free_example(&e);
    }
}

/* Matrices by columns and rows of many shapes. */
static void test_matrices(void)
{
    static const int64_t shapes[][2] = {{1000, 3},   {20000, 3},  {3, 20000},  {50, 64}, {3000, 64},
                                        {129, 1025}, {700, 2050}, {100000, 2}, {40, 17}, {300, 15},
                                        {5000, 16},  {2000, 40},  {33, 7},     {70, 65}};

    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int op = 0; op < GPR_OP_COUNT; op++) {
            const int dtype = (int)check_between(0, GPR_DTYPE_COUNT - 1);
            example e;

            if (!takes_element(op, dtype) || !takes_turn((int)k + op)) continue;
            set_shape(&e, op, dtype, GPR_DTYPE_DEFAULT, 2, 1);
            e.shape[0] = shapes[k][0];
            e.shape[1] = shapes[k][1];
            /* what overflows, does so by the order */
            make_example(&e, 0, 0, 0, 0, looks_for_nan(op));
            check_example(&e, "rows");
            /* The same memory, the other axis: an array whose first axis is reduced. */
            {
                const int64_t extent = e.shape[0], stride = e.strides[0];
                e.shape[0] = e.shape[1];
                e.strides[0] = e.strides[1];
                e.shape[1] = extent;
                e.strides[1] = stride;
                e.rows = (uint64_t)e.shape[0];
                e.n = (uint64_t)e.shape[1];
            }
            check_example(&e, "columns");
            free_example(&e);
        }
}

static void test_empty(void)
{
    for (int op = 0; op < GPR_OP_COUNT; op++)
        for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype++) {
            double results[2 * 3 + 1] = {7, 7, 7, 7, 7, 7, 7};
            gpr_rule rule;
            example e;

            if (!gpr_operator_rows[op].has_identity || !takes_element(op, dtype)) continue;
            set_shape(&e, op, dtype, GPR_DTYPE_DEFAULT, 2, 1);
            e.shape[0] = 3;
            e.shape[1] = 0;
            make_example(&e, 0, 0, 0, 0, 0);
            CHECK(run_example(&e, results) == GPR_OK, "empty");
            (void)gpr_make_rule(op, dtype, GPR_DTYPE_DEFAULT, &rule);
            for (int row = 0; row < 3; row++) {
                const size_t offset = (size_t)row * gpr_dtype_bytes(rule.result);
                const naive_value v = naive_load(rule.result, (char *)results + offset);
                if (op == GPR_OP_MEAN || op == GPR_OP_VAR || op == GPR_OP_STD)
                    CHECK(isnan(v.f), "mean of nothing");
                else
                    CHECK(naive_same(v, naive_of_nothing(&rule)), "%s of nothing",
                          gpr_operator_name(op));
            }
            CHECK(results[6] == 7, "wrote past the results");
            free_example(&e);
            e.shape[0] = 0;
            make_example(&e, 0, 0, 0, 0, 0);
            CHECK(run_example(&e, results) == GPR_OK, "no rows");
            free_example(&e);
        }
}

/* The same bits with any number of threads and any instruction set. */
static void test_same_bits(void)
{
    /* Long rows are of several pieces, of PIECE_BYTES each. */
    static const int64_t shapes[][2] = {
        {1, 600007}, {1, 999}, {3, 200001}, {1000, 300}, {150000, 3}};
    static const gpr_dtype dtypes[] = {GPR_FLOAT16, GPR_BFLOAT16,  GPR_FLOAT32,
                                       GPR_FLOAT64, GPR_COMPLEX64, GPR_COMPLEX128};
    static const gpr_operator ops[] = {GPR_OP_SUM, GPR_OP_MEAN,   GPR_OP_PROD,
                                       GPR_OP_VAR, GPR_OP_ARGMAX, GPR_OP_MINMAX};
    gpr_limits limits, changed;

    gpr_get_limits(&limits);
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int d = 0; d < 6; d++)
            for (int column = 0; column < 2; column++)
                for (int layout = 0; layout < 3; layout++) {
                    const gpr_operator op = ops[check_between(0, 5)];
                    char *first, *other;
                    size_t bytes;
                    example e;

                    if (!takes_turn((int)k + d + column + layout)) continue;
                    set_shape(&e, op, dtypes[d], GPR_DTYPE_DEFAULT, 2, 1);
                    e.shape[column] = shapes[k][0];
                    e.shape[1 - column] = shapes[k][1];
                    make_example(&e, layout, 0, 0, 0, 0);
                    bytes = 2 * e.rows * sizeof(double _Complex);
                    first = calloc(bytes, 1);
                    other = calloc(bytes, 1);
                    CHECK(run_example(&e, first) == GPR_OK, "same bits");
                    for (uint32_t threads = 1; threads <= 4; threads++)
                        for (int i = 0; i < ISAS; i++) {
                            changed = limits;
                            changed.cpu_threads = threads;
                            CHECK(gpr_set_limits(&changed) == GPR_OK, "limits");
                            if (gpr_set_cpu_isa(isas[i]) != GPR_OK) continue;
                            CHECK(run_example(&e, other) == GPR_OK, "same bits");
                            CHECK(memcmp(first, other, bytes) == 0,
                                  "%s of %s (%lld, %lld) differs with %u threads, %s",
                                  gpr_operator_name(op), gpr_dtype_name(dtypes[d]),
                                  (long long)e.shape[0], (long long)e.shape[1], threads, isas[i]);
                        }
                    (void)gpr_set_cpu_isa(NULL);
                    free(first);
                    free(other);
                    free_example(&e);
                }
    (void)gpr_set_limits(&limits);
}

/* Random powers of two and their reciprocals, which multiply to 1. */
static double *make_powers(int64_t count, int most)
{
    double *powers = malloc((size_t)count * sizeof *powers);

    for (int64_t i = 0; i < count; i += 2) {
        powers[i] = ldexp(1, (int)check_between(-most, most));
        powers[i + 1] = 1 / powers[i];
    }
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t other = check_between(0, i);
        const double power = powers[i];

        powers[i] = powers[other];
        powers[other] = power;
    }
    return powers;
}

/* Products whose factors leave the range of doubles on the way, by any number of threads. */
static void test_out_of_range(void)
{
    static const int64_t shapes[][2] = {{1, 16}, {1, 300000}, {3, 70000}, {500, 30}, {2000, 1500}};
    static const gpr_dtype dtypes[] = {GPR_FLOAT16, GPR_BFLOAT16,  GPR_FLOAT32,
                                       GPR_FLOAT64, GPR_COMPLEX64, GPR_COMPLEX128};
    static const int most[] = {14, 120, 120, 1000, 120, 1000}; /* exponents */
    double _Complex *wanted = malloc(2000 * sizeof *wanted), *got = malloc(2000 * sizeof *got);
    gpr_limits limits, changed;

    gpr_get_limits(&limits);
    changed = limits;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int d = 0; d < 6; d++)
            for (int is_column = 0; is_column < 2; is_column++) {
                const int64_t rows = shapes[k][0], n = shapes[k][1];
                const int64_t bytes = (int64_t)gpr_dtype_bytes(dtypes[d]);
                const int64_t steps[2] = {is_column ? bytes : n * bytes,
                                          is_column ? rows * bytes : bytes};
                double *powers = make_powers(n, most[d]);
                double *repeated = malloc((size_t)(rows * n) * sizeof *repeated);
                char *elements = malloc((size_t)(rows * n * bytes));
                gpr_request request = sums_of(dtypes[d], 2, shapes[k], elements, got);

                request.op = GPR_OP_PROD;
                request.device = GPR_DEVICE_CPU;
                request.strides = steps;
                for (int64_t i = 0; i < rows * n; i++)
                    repeated[i] = powers[is_column ? i / rows : i % n];
                gpr_convert(GPR_FLOAT64, repeated, dtypes[d], elements, (uint64_t)(rows * n));
                for (int64_t i = 0; i < rows; i++) ((double *)repeated)[i] = 1;
                gpr_convert(GPR_FLOAT64, repeated, dtypes[d], wanted, (uint64_t)rows);
                for (changed.cpu_threads = 1; changed.cpu_threads <= 3; changed.cpu_threads++) {
                    CHECK(gpr_set_limits(&changed) == GPR_OK, "limits");
                    CHECK(gpr_reduce(&request) == GPR_OK, "out of range");
                    CHECK(memcmp(got, wanted, (size_t)(rows * bytes)) == 0,
                          "%lld products of %lld %s %s are not 1", (long long)rows, (long long)n,
                          gpr_dtype_name(dtypes[d]), is_column ? "in columns" : "in rows");
                }
                free(elements);
                free(repeated);
                free(powers);
            }
    (void)gpr_set_limits(&limits);
    free(wanted);
    free(got);
}

static int stop_at_once(void *asked)
{
    ++*(int *)asked;
    return 1;
}

static int never_stop(void *asked)
{
    ++*(int *)asked;
    return 0;
}

/* Of 2^33 elements in windows that overlap: they have as many addresses as few elements. */
static void test_interrupt(void)
{
    enum { EXTENT = 2048 };
    static float ones[3 * EXTENT];
    const int64_t shape[4] = {1, EXTENT, EXTENT, EXTENT}, bytes = sizeof *ones,
                  strides[4] = {0, bytes, bytes, bytes};
    gpr_request request = {.op = GPR_OP_SUM,
                           .dtype = GPR_FLOAT32,
                           .compute = GPR_DTYPE_DEFAULT,
                           .ndim = 4,
                           .reduced = 3,
                           .shape = shape,
                           .strides = strides,
                           .data = ones};
    int64_t short_shape[4] = {1, EXTENT / 64, EXTENT, EXTENT};
    float result = 0;
    int asked = 0;
    gpr_resolved call = {.result = &result, .interrupted = stop_at_once, .interrupted_arg = &asked};
    gpr_run run;

    for (int i = 0; i < 3 * EXTENT; i++) ones[i] = 1;
    CHECK(gpr_make_rule(GPR_OP_SUM, GPR_FLOAT32, GPR_DTYPE_DEFAULT, &call.rule) == GPR_OK, "rule");
    CHECK(gpr_make_view(&request, &call.rule, &call.view) == GPR_OK, "view");
    CHECK(gpr_cpu_reduce(&call, &run) == GPR_ERROR_INTERRUPTED, "interrupt");
    CHECK(asked == 1, "asked %d times", asked);
    request.shape = short_shape;
    call.interrupted = never_stop;
    /* as long as it takes until a call asks: they do so after a time */
    for (; asked == 1 && short_shape[1] <= EXTENT; short_shape[1] *= 2) {
        CHECK(gpr_make_view(&request, &call.rule, &call.view) == GPR_OK, "view");
        CHECK(gpr_cpu_reduce(&call, &run) == GPR_OK, "interrupt");
        CHECK(result == (float)(short_shape[1] * EXTENT * EXTENT), "sum %g", result);
    }
    CHECK(asked >= 2, "asked %d times", asked);
}

static void test_isa(void)
{
    CHECK(gpr_set_cpu_isa("sse9") == GPR_ERROR_VALUE, "an unknown instruction set");
    CHECK(gpr_set_cpu_isa("baseline") == GPR_OK && strcmp(gpr_cpu_isa(), "baseline") == 0,
          "baseline");
    CHECK(gpr_set_cpu_isa(NULL) == GPR_OK, "the best");
}

int main(void)
{
    check_begin();
    test_isa();
    find_isas();
    if (!UNDER_TSAN) {
        test_sizes();
        test_full_lanes();
        test_special_places();
        test_truth_places();
        test_truth_places_of_rows();
        test_decided_columns();
        test_far_positions();
        test_ties();
        test_matrices();
    }
    test_random(RANDOM_EXAMPLES);
    test_pairs();
    test_empty();
    test_same_bits();
    test_out_of_range();
    test_interrupt();
    return check_end();
}
