/* From elements to loops, and tasks that can be stopped; see job.h. */
#include "cpu/job.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/float_environment.h"
#include "lib/base/clock.h"
#include "lib/base/convert.h"
#include "lib/base/progress.h"
#include "lib/base/status.h"

enum { ROW_STEP = 16 }; /* rows of a unit are a multiple, so that vectors are full */

static const double ASK_SECONDS = 0.01; /* between two checks whether to stop */

/* ---------------------------------------------------------------- from elements to loops ------ */

static gpr_kind kind_of(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind;
}

/* Bits of the significand of a float, or of the magnitude of an integer. */
static size_t digits(gpr_dtype dtype)
{
    const gpr_dtype_row *row = &gpr_dtype_rows[dtype];

    if (row->kind == GPR_KIND_FLOAT) return (size_t)row->fraction + 1;
    return row->bytes * 8 - (row->kind == GPR_KIND_SIGNED);
}

/* Whether the loop of the element type gives what converting each element to `compute` would. */
static int needs_no_conversion(const gpr_rule *rule, gpr_fold fold)
{
    const gpr_dtype element = rule->element, compute = rule->compute;
    const int from_float = kind_of(element) == GPR_KIND_FLOAT,
              to_float = kind_of(compute) == GPR_KIND_FLOAT;
    const int from_pair = kind_of(element) == GPR_KIND_COMPLEX,
              to_pair = kind_of(compute) == GPR_KIND_COMPLEX;
    const int widens = gpr_dtype_rows[compute].bytes > gpr_dtype_rows[element].bytes;

    if (element == compute || gpr_is_truth(fold)) return 1;
    if (from_pair || to_pair) return from_pair && to_pair && widens;
    /* a mean of truths that leaves some out counts those that are true */
    if (compute == GPR_BOOL) return 0;
    if (!from_float && !to_float) return 1; /* wrapping commutes with sums and products */
    if (from_float && to_float) return widens;
    /* Integers that the float type holds are summed exactly in 64 bits. Variances have no such
     * loop. */
    return to_float && fold == GPR_FOLD_sum && rule->acc_kind != GPR_ACC_MOMENTS &&
           digits(element) <= digits(compute);
}

/* Of truth values, a product and a minimum are "all" and a maximum is "any", which may stop
 * early. */
static gpr_fold simplest_fold(const gpr_rule *rule, gpr_fold fold, gpr_dtype dtype)
{
    if (dtype != GPR_BOOL || rule->acc_kind != GPR_ACC_NUMBER) return fold;
    switch (fold) {
    case GPR_FOLD_prod:
    case GPR_FOLD_min:
    case GPR_FOLD_bit_and: return GPR_FOLD_all;
    case GPR_FOLD_max:
    case GPR_FOLD_bit_or: return GPR_FOLD_any;
    case GPR_FOLD_bit_xor: return GPR_FOLD_odd;
    default: return fold;
    }
}

/* Whether the fold itself passes over NaN. */
static int leaves_nan_out(gpr_fold fold)
{
    return fold == GPR_FOLD_fmin || fold == GPR_FOLD_fmax;
}

/* Whether the fold's accumulators are numbers, not positions or moments. */
static int folds_numbers(const gpr_rule *rule)
{
    return rule->acc_kind == GPR_ACC_NUMBER || rule->acc_kind == GPR_ACC_SUM_COUNT;
}

recipe gpr_cpu_recipe(const gpr_rule *rule, const gpr_view *view, gpr_fold fold)
{
    const gpr_loops *loops = gpr_cpu_loops();
    recipe how = {.rule = rule, .view = view, .convert = !needs_no_conversion(rule, fold)};
    gpr_dtype dtype = how.convert ? rule->compute : rule->element;

    if (how.convert && loops->widen[rule->element].loop != NULL &&
        loops->widen[rule->element].to == rule->compute) {
        how.convert = 0;
        how.widen = loops->widen[rule->element];
    } else if (loops->loop[GPR_FOLD_any][dtype].rows == NULL) {
        how.widen = loops->widen[dtype];
        dtype = how.widen.to;
    }
    how.fold = simplest_fold(rule, fold, dtype);
    how.loop = loops->loop[how.fold][dtype];
    if (!how.convert && gpr_dtype_rows[rule->element].bytes == sizeof(uint16_t) &&
        kind_of(rule->element) == GPR_KIND_FLOAT && loops->truths_of_16[how.fold].rows != NULL) {
        how.loop = loops->truths_of_16[how.fold]; /* as they are */
        how.widen.loop = NULL;
        dtype = GPR_UINT16;
    }
    if (rule->skip_nan && folds_numbers(rule) && !leaves_nan_out(fold)) {
        const gpr_loop skipping = loops->skipping[how.fold][dtype];

        if (!how.convert && skipping.rows != NULL)
            how.loop = skipping;
        else
            how.replace_nan = 1;
    }
    how.direct = !how.replace_nan && !how.convert && how.widen.loop == NULL;
    /* Counts of pieces are summed. */
    how.combine =
        loops->loop[how.fold == GPR_FOLD_count ? GPR_FOLD_sum : how.fold][how.loop.accumulator]
            .columns;
    how.loop_dtype = dtype;
    how.loop_bytes = gpr_dtype_rows[dtype].bytes;
    how.acc = how.loop.accumulator;
    how.acc_bytes = gpr_dtype_rows[how.acc].bytes;
    how.identity = gpr_identity(how.fold, dtype, how.acc);
    if (how.replace_nan || view->mask != NULL)
        how.neutral = gpr_neutral_element(fold, rule->element);
    if (how.acc == GPR_UINT64 && kind_of(dtype) == GPR_KIND_SIGNED) how.acc = GPR_INT64;
    return how;
}

recipe gpr_cpu_count_recipe(const gpr_rule *rule, const gpr_view *view, const gpr_view *marks)
{
    const gpr_fold fold = GPR_FOLD_sum;
    const gpr_loops *loops = gpr_cpu_loops();
    recipe how = {.rule = rule,
                  .view = marks,
                  .direct = 1,
                  .fold = fold,
                  .loop = loops->loop[fold][GPR_BOOL],
                  .combine = loops->loop[fold][GPR_UINT64].columns,
                  .loop_dtype = GPR_BOOL,
                  .acc = GPR_UINT64,
                  .acc_bytes = gpr_dtype_rows[GPR_UINT64].bytes};

    if (rule->skip_nan) {
        how.view = view;
        /* What a mask leaves out is no number then. */
        how.neutral = gpr_neutral_element(GPR_FOLD_fmin, rule->element);
        how.loop_dtype = rule->element;
        if (loops->numbers[rule->element].rows == NULL) {
            how.widen = loops->widen[rule->element];
            how.loop_dtype = how.widen.to;
        }
        how.direct = how.widen.loop == NULL;
        how.loop = loops->numbers[how.loop_dtype];
    }
    how.loop_bytes = gpr_dtype_rows[how.loop_dtype].bytes;
    return how;
}

/* A float is NaN if its magnitude bits are more than infinity's. DROP goes over elements of
 * `PARTS` floats each. */
#define DEFINE_DROP(name, BITS, INFINITE, PARTS)                                 \
    static void drop_##name(const char *elements, uint64_t count, uint8_t *keep) \
    {                                                                            \
        for (uint64_t i = 0; i < count; i++) {                                   \
            BITS bits[PARTS];                                                    \
            int number = 1;                                                      \
            memcpy(bits, elements + i * sizeof bits, sizeof bits);               \
            for (int k = 0; k < (PARTS); k++)                                    \
                number &= (BITS)(bits[k] << 1) <= (BITS)((INFINITE) << 1);       \
            keep[i] = (uint8_t)(keep[i] & -number);                              \
        }                                                                        \
    }
#define BITS_1 uint8_t
#define BITS_2 uint16_t
#define BITS_4 uint32_t
#define BITS_8 uint64_t
#define DROP_GPR_KIND_BOOL(...)
#define DROP_GPR_KIND_SIGNED(...)
#define DROP_GPR_KIND_UNSIGNED(...)
#define DROP_GPR_KIND_COMPLEX(...)
#define DROP_GPR_KIND_FLOAT(name, BITS, fraction, exponent) \
    DEFINE_DROP(name, BITS, (((BITS)1 << (exponent)) - 1) << (fraction), 1)
#define GPR_DTYPE(ID, name, bytes, kind, c_type, fraction, exponent) \
    DROP_##kind(name, BITS_##bytes, fraction, exponent)
#include "dtypes.def"
#undef GPR_DTYPE
DEFINE_DROP(complex64, uint32_t, UINT32_C(0x7f800000), 2)
DEFINE_DROP(complex128, uint64_t, UINT64_C(0x7ff0000000000000), 2)

void gpr_cpu_drop_nan(gpr_dtype dtype, const char *elements, uint64_t count, uint8_t *keep)
{
    switch (dtype) {
#define CASE_GPR_KIND_BOOL(...)
#define CASE_GPR_KIND_SIGNED(...)
#define CASE_GPR_KIND_UNSIGNED(...)
#define CASE_GPR_KIND_COMPLEX(...)
#define CASE_GPR_KIND_FLOAT(ID, name) \
    case GPR_##ID: drop_##name(elements, count, keep); break;
#define GPR_DTYPE(ID, name, bytes, kind, ...) CASE_##kind(ID, name)
#include "dtypes.def"
#undef GPR_DTYPE
    case GPR_COMPLEX64: drop_complex64(elements, count, keep); break;
    default: drop_complex128(elements, count, keep); break;
    }
}

/* Replacing NaN by bits, not branches: NaN are hard to predict. */
#define DEFINE_REPLACE(name, BITS, INFINITE)                                        \
    static void replace_##name(char *elements, uint64_t count, const void *neutral) \
    {                                                                               \
        BITS other;                                                                 \
        memcpy(&other, neutral, sizeof other);                                      \
        for (uint64_t i = 0; i < count; i++) {                                      \
            BITS bits;                                                              \
            memcpy(&bits, elements + i * sizeof bits, sizeof bits);                 \
            bits = (BITS)(bits << 1) <= (BITS)((INFINITE) << 1) ? bits : other;     \
            memcpy(elements + i * sizeof bits, &bits, sizeof bits);                 \
        }                                                                           \
    }
#define REPLACE_GPR_KIND_BOOL(...)
#define REPLACE_GPR_KIND_SIGNED(...)
#define REPLACE_GPR_KIND_UNSIGNED(...)
#define REPLACE_GPR_KIND_COMPLEX(...)
#define REPLACE_GPR_KIND_FLOAT(name, BITS, fraction, exponent) \
    DEFINE_REPLACE(name, BITS, (((BITS)1 << (exponent)) - 1) << (fraction))
#define GPR_DTYPE(ID, name, bytes, kind, c_type, fraction, exponent) \
    REPLACE_##kind(name, BITS_##bytes, fraction, exponent)
#include "dtypes.def"
#undef GPR_DTYPE

/* Complex numbers, of which either part may be NaN, by vectors of 16 bytes. */
typedef uint64_t pair_bits __attribute__((vector_size(16)));
typedef float complex64_parts __attribute__((vector_size(16)));
typedef double complex128_parts __attribute__((vector_size(16)));
#define OTHER_PARTS_complex64(bits) ((bits) << 32 | (bits) >> 32)
#define OTHER_PARTS_complex128(bits) ((pair_bits){(bits)[1], (bits)[0]})
#define DEFINE_REPLACE_PAIRS(name)                                                \
    static pair_bits replaced_##name(name##_parts parts, pair_bits neutral)       \
    {                                                                             \
        const pair_bits of_parts = (pair_bits)(parts != parts),                   \
                        nan = of_parts | OTHER_PARTS_##name(of_parts);            \
        return ((pair_bits)parts & ~nan) | (neutral & nan);                       \
    }                                                                             \
    static void replace_##name(char *elements, uint64_t bytes, pair_bits neutral) \
    {                                                                             \
        for (; bytes > 0;) {                                                      \
            const uint64_t some = gpr_smaller(bytes, sizeof(pair_bits));          \
            name##_parts parts = {0};                                             \
            pair_bits kept;                                                       \
            if (some == sizeof parts)                                             \
                memcpy(&parts, elements, sizeof parts);                           \
            else                                                                  \
                memcpy(&parts, elements, some);                                   \
            kept = replaced_##name(parts, neutral);                               \
            if (some == sizeof parts)                                             \
                memcpy(elements, &kept, sizeof kept);                             \
            else                                                                  \
                memcpy(elements, &kept, some);                                    \
            elements += some;                                                     \
            bytes -= some;                                                        \
        }                                                                         \
    }
DEFINE_REPLACE_PAIRS(complex64)
DEFINE_REPLACE_PAIRS(complex128)

void gpr_cpu_replace_nan(gpr_dtype dtype, char *elements, uint64_t count, const void *neutral)
{
    const size_t bytes = gpr_dtype_rows[dtype].bytes;
    pair_bits pair;

    switch (dtype) {
#define CASE_REPLACE_GPR_KIND_BOOL(...)
#define CASE_REPLACE_GPR_KIND_SIGNED(...)
#define CASE_REPLACE_GPR_KIND_UNSIGNED(...)
#define CASE_REPLACE_GPR_KIND_COMPLEX(...)
#define CASE_REPLACE_GPR_KIND_FLOAT(ID, name) \
    case GPR_##ID: replace_##name(elements, count, neutral); break;
#define GPR_DTYPE(ID, name, bytes, kind, ...) CASE_REPLACE_##kind(ID, name)
#include "dtypes.def"
#undef GPR_DTYPE
    case GPR_COMPLEX64:
        memcpy(&pair, neutral, bytes);
        memcpy((char *)&pair + bytes, neutral, bytes);
        replace_complex64(elements, count * bytes, pair);
        break;
    default:
        memcpy(&pair, neutral, sizeof pair);
        replace_complex128(elements, count * bytes, pair);
        break;
    }
}

/* The loop that packs a view's runs, if they are long enough for a call each, and how many numbers
 * of it an element is; else NULL. */
static gpr_packing_loop packing_loop_of(const gpr_view *view, const gpr_axis *runs,
                                        uint64_t *numbers)
{
    enum { LEAST_PACKED_RUN = 48 };
    const int64_t bytes = (int64_t)view->bytes;

    *numbers = 1;
    if (view->mask != NULL || runs->extent < LEAST_PACKED_RUN) return NULL;
    if (view->encoding == GPR_NAT_LAST) return runs->in == bytes ? gpr_cpu_loops()->less_one : NULL;
    if (view->encoding == GPR_SWAPPED) {
        const size_t part = gpr_part_bytes(view->dtype);

        *numbers = view->bytes / part;
        return runs->in == bytes ? gpr_cpu_loops()->swapped[part] : NULL;
    }
    if (view->encoding != 0) return NULL;
    if (runs->in == 0) return gpr_cpu_loops()->repeated[bytes];
    return runs->in == 2 * bytes ? gpr_cpu_loops()->every_second[bytes] : NULL;
}

void gpr_cpu_pack(const gpr_view *view, uint64_t first, uint64_t count, const void *neutral,
                  void *destination)
{
    uint64_t numbers;
    gpr_axis runs;
    const int axes = gpr_view_runs(view, &runs); /* before them */
    const gpr_packing_loop pack = packing_loop_of(view, &runs, &numbers);
    char *to = destination;

    if (pack == NULL) {
        gpr_pack(view, first, count, neutral, destination);
        return;
    }
    while (count > 0) {
        const uint64_t before = first % runs.extent,
                       some = gpr_smaller(count, runs.extent - before);
        const char *from = view->data + (int64_t)before * runs.in;
        uint64_t index = first / runs.extent;

        for (int i = axes - 1; i >= 0; i--) {
            from += (int64_t)(index % view->axes[i].extent) * view->axes[i].in;
            index /= view->axes[i].extent;
        }
        pack(from, some * numbers, to);
        to += some * view->bytes;
        first += some;
        count -= some;
    }
}

const char *gpr_cpu_prepare(const recipe *how, const char *elements, uint64_t count, stage *s)
{
    if (how->replace_nan) {
        const gpr_dtype dtype = how->rule->element;

        if (elements != s->packed) memcpy(s->packed, elements, count * gpr_dtype_rows[dtype].bytes);
        gpr_cpu_replace_nan(dtype, s->packed, count, how->neutral.bytes);
        elements = s->packed;
    }
    if (how->convert) {
        gpr_convert(how->rule->element, elements, how->rule->compute, s->converted, count);
        elements = s->converted;
    }
    if (how->widen.loop != NULL) {
        how->widen.loop(elements, s->widened, count);
        elements = s->widened;
    }
    return elements;
}

/* ---------------------------------------------------------------- tasks ---------------------- */

void gpr_cpu_watch(gpr_cpu_stop *stop, int (*interrupted)(void *), void *interrupted_arg)
{
    stop->interrupted = interrupted;
    stop->interrupted_arg = interrupted_arg;
    stop->caller = pthread_self();
    stop->asked = 0; /* the first check notes the time */
    atomic_init(&stop->stopped, 0);
    if (interrupted != NULL) gpr_note_progress(0, 1);
}

int gpr_cpu_must_stop(gpr_cpu_stop *stop)
{
    if (atomic_load_explicit(&stop->stopped, memory_order_relaxed)) return 1;
    if (stop->interrupted != NULL && pthread_equal(pthread_self(), stop->caller)) {
        const double now = gpr_coarse_seconds();

        if (stop->asked == 0) stop->asked = now;
        if (now - stop->asked < ASK_SECONDS) return 0;
        stop->asked = now;
        if (stop->interrupted(stop->interrupted_arg)) atomic_store(&stop->stopped, 1);
    }
    return atomic_load_explicit(&stop->stopped, memory_order_relaxed);
}

#if !defined(__SANITIZE_ADDRESS__)
/* Blocks that calls returned: the next calls take these before the heap's, and find them in the
 * caches. Calls of more threads at a time allocate from the heap. */
enum { SPARE_BLOCKS = 4 };
static _Atomic(void *) spare_blocks[SPARE_BLOCKS];

gpr_status gpr_cpu_take_memory(size_t bytes, void **memory)
{
    *memory = NULL;
    if (bytes == 0) return GPR_OK;
    for (int i = 0; i < SPARE_BLOCKS; i++) {
        if (atomic_load_explicit(&spare_blocks[i], memory_order_relaxed) == NULL) continue;
        *memory = atomic_exchange_explicit(&spare_blocks[i], NULL, memory_order_acquire);
        if (*memory != NULL) return GPR_OK;
    }
    *memory = aligned_alloc(GPR_TASK_ALIGNMENT, GPR_TASK_MEMORY);
    if (*memory == NULL)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the %zu bytes of a task", bytes);
    return GPR_OK;
}

void gpr_cpu_give_memory(void *memory)
{
    for (int i = 0; i < SPARE_BLOCKS && memory != NULL; i++) {
        void *none = NULL;

        if (atomic_compare_exchange_strong_explicit(&spare_blocks[i], &none, memory,
                                                    memory_order_release, memory_order_relaxed))
            return;
    }
    free(memory);
}
#else
/* No larger than requested, so that AddressSanitizer sees accesses beyond. */
gpr_status gpr_cpu_take_memory(size_t bytes, void **memory)
{
    *memory = NULL;
    if (bytes == 0) return GPR_OK;
    if (posix_memalign(memory, GPR_TASK_ALIGNMENT, bytes) != 0)
        return gpr_fail(GPR_ERROR_MEMORY, "no memory for the %zu bytes of a task", bytes);
    return GPR_OK;
}

void gpr_cpu_give_memory(void *memory)
{
    free(memory);
}
#endif

uint32_t gpr_cpu_threads_for(double nanoseconds)
{
    const double worth = nanoseconds / WAKE_NANOSECONDS;
    const uint32_t threads = gpr_thread_count();

    if (worth < 2) return 1;
    return worth < threads ? (uint32_t)worth : threads;
}

uint32_t gpr_cpu_threads_now(double nanoseconds)
{
    const double saved_by_two = nanoseconds * 1e-9 / 2; /* seconds */
    const uint32_t worth_waking = gpr_cpu_threads_for(nanoseconds),
                   worth_asking = (uint32_t)gpr_smaller((uint64_t)(nanoseconds / HAND_NANOSECONDS),
                                                        gpr_thread_count());
    uint32_t at_hand;

    if (worth_asking < 2) return 1;
    at_hand = gpr_threads_at_hand();
    if (at_hand > worth_asking) at_hand = worth_asking;
    if (at_hand > worth_waking) return at_hand;
    if (worth_waking > 1) return worth_waking;
    return gpr_threads_are_missed(saved_by_two) ? 2 : 1;
}

gpr_status gpr_cpu_run_tasks(double nanoseconds, uint64_t count, gpr_task task, void *work,
                             size_t bytes, uint32_t *threads)
{
    const uint32_t most = count > 1 ? gpr_cpu_threads_now(nanoseconds) : 1;
    void *memory;
    gpr_status status = GPR_OK;

    *threads = 1;
    GPR_TRY(gpr_cpu_take_memory(bytes, &memory));
    if (most > 1)
        *threads = gpr_parallel_for_at_most(count, most, task, work, memory);
    else
        for (uint64_t i = 0; i < count && task(work, i, memory); i++) continue;
    gpr_cpu_give_memory(memory);
done:
    return status;
}

/* Rates that were measured with AVX2 and AVX-512: reading from a second cache, a third one or
 * memory, beginning and ending a row, and what is computed of each element besides. */
double gpr_cpu_nanoseconds_to_read(const gpr_view *view, int stages)
{
    enum { SECOND_CACHE_BYTES = 1 << 20, THIRD_CACHE_BYTES = 1 << 24 };
    const double elements = (double)view->rows * (double)view->n,
                 bytes = elements * (double)view->bytes;
    const double per_byte = bytes <= SECOND_CACHE_BYTES  ? 0.0125
                            : bytes <= THIRD_CACHE_BYTES ? 0.025
                                                         : 0.05,
                 per_staged = 0.4, per_row = gpr_cpu_lies_crosswise(view) ? 0 : 2;

    return bytes * per_byte + elements * per_staged * stages + (double)view->rows * per_row;
}

double gpr_cpu_job_nanoseconds(const job *work)
{
    const double per_distance = 0.3;
    const gpr_view *view = work->view;
    double nanoseconds = 0;
    int stages = 0;

    if (work->nanoseconds > 0) return work->nanoseconds;
    for (int k = 0; k < work->recipes; k++) stages += !work->how[k].direct || view->mask != NULL;
    if (work->how[0].rule->acc_kind == GPR_ACC_MOMENTS)
        nanoseconds = (double)view->rows * (double)view->n * per_distance;
    return nanoseconds + gpr_cpu_nanoseconds_to_read(view, stages);
}

void gpr_cpu_note_range(job *work)
{
    if (!left_range()) return;
    atomic_store_explicit(&work->left_range, 1, memory_order_relaxed);
    lower_flags();
}

static int watched_task(void *context, uint64_t index, void *memory)
{
    job *work = context;
    const gpr_float_environment before = enter_ieee();
    const int goes_on = work->task(work, index, memory);

    gpr_cpu_note_range(work);
    leave_ieee(before);
    return goes_on;
}

gpr_status gpr_cpu_run_job(uint64_t count, gpr_task task, job *work, size_t bytes,
                           uint32_t *threads)
{
    if (work->watches_range) {
        work->task = task;
        task = watched_task;
    }
    return gpr_cpu_run_tasks(gpr_cpu_job_nanoseconds(work), count, task, work, bytes, threads);
}

int gpr_cpu_lies_crosswise(const gpr_view *view)
{
    /* Elements that are broadcast are as many as one likes, and pieces of columns have results. */
    enum { MOST_REPEATS = 1 << 24 };

    if (view->outer == 0 || view->inner == 0) return 0;
    const int64_t across = llabs(view->axes[view->outer - 1].in),
                  along = llabs(view->axes[view->outer + view->inner - 1].in);
    /* Rows that are broadcast are as near as can be, and read as if they were apart. */
    return across != 0 && (along == 0 ? view->n <= MOST_REPEATS : across < along);
}

int gpr_cpu_lay_crosswise(const gpr_view *view, gpr_view *columns)
{
    const int64_t far = INT64_C(1) << 62; /* no step is taken, but steps are compared */

    if (view->n != 1 || view->rows < 2 || view->inner > 0 || view->outer == GPR_MAX_NDIM) return 0;
    gpr_copy_view(columns, view);
    columns->axes[columns->outer] = (gpr_axis){.extent = 1, .in = far};
    columns->inner = 1;
    columns->rows_contiguous = columns->contiguous = 0;
    return 1;
}

static gpr_cpu_units cut(const gpr_view *view, uint64_t width, uint64_t most_rows)
{
    gpr_cpu_units units = {.width = width};

    units.blocks = gpr_divide_up(units.width, most_rows);
    /* equal widths: a narrow unit beside wide ones would read little of each row of memory */
    units.rows = gpr_divide_up(gpr_divide_up(units.width, units.blocks), ROW_STEP) * ROW_STEP;
    units.rows = gpr_smaller(gpr_smaller(units.rows, most_rows), units.width);
    units.blocks = gpr_divide_up(units.width, units.rows);
    units.count = view->rows / units.width * units.blocks;
    return units;
}

gpr_cpu_units gpr_cpu_cut_units(const gpr_view *view, uint64_t most_rows)
{
    const int is_crosswise = gpr_cpu_lies_crosswise(view);

    return cut(view, is_crosswise ? view->axes[view->outer - 1].extent : view->rows, most_rows);
}

gpr_cpu_units gpr_cpu_cut_rows(const gpr_view *view, uint64_t most_rows)
{
    return cut(view, view->rows, most_rows);
}

uint64_t gpr_cpu_unit_row(const gpr_cpu_units *units, uint64_t unit, uint64_t *rows)
{
    const uint64_t column = unit % units->blocks * units->rows;

    *rows = gpr_smaller(units->width - column, units->rows);
    return unit / units->blocks * units->width + column;
}

int gpr_cpu_columns_in_place(const gpr_view *view)
{
    uint64_t bits = (uint64_t)(uintptr_t)view->data;

    for (int i = 0; i < view->outer + view->inner; i++) bits |= (uint64_t)view->axes[i].in;
    return view->mask == NULL && view->encoding == 0 && bits % view->bytes == 0 &&
           view->axes[view->outer - 1].in == (int64_t)view->bytes;
}

int gpr_cpu_columns_are_narrow(const gpr_view *view)
{
    return view->outer >= 2 && view->axes[view->outer - 1].extent < NARROW_COLUMNS;
}

uint64_t gpr_cpu_wide_columns(const gpr_view *view)
{
    return view->axes[view->outer - 1].extent * view->axes[view->outer - 2].extent;
}

void gpr_cpu_make_tile(const gpr_view *view, uint64_t width, gpr_view *tile)
{
    const int across = view->outer - 1, along = view->outer + view->inner - 1;

    tile->dtype = view->dtype;
    tile->bytes = view->bytes;
    tile->encoding = view->encoding;
    tile->outer = 0;
    tile->inner = 2;
    tile->axes[0] = view->axes[along];
    tile->axes[1] = view->axes[across];
    tile->axes[1].extent = width;
}

void gpr_cpu_locate(const gpr_view *view, uint64_t row, uint64_t position, gpr_view *tile)
{
    tile->data = view->data;
    tile->mask = view->mask;
    for (int i = view->outer + view->inner - 1; i >= 0; i--) {
        uint64_t *index = i >= view->outer ? &position : &row;
        const int64_t at = (int64_t)(*index % view->axes[i].extent);

        *index /= view->axes[i].extent;
        tile->data += at * view->axes[i].in;
        if (tile->mask != NULL) tile->mask += at * view->axes[i].mask;
    }
}
