/* Failures of the system: each call that a piece of work makes for memory, a file or a thread fails
 * in turn, in a process of its own.
 *
 * After each failure: without memory the status is GPR_ERROR_MEMORY, or no error where the work
 * does not need it (the disk cache, a log, a choice of device); failures of files and threads are
 * never an error; no memory, file or half-written entry is left; the next call returns the right
 * result.
 *
 * The linker puts the functions below between the library and libc; calls of the fakes and of libc
 * itself do not go through them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "fakes/fakes.h"
#include "lib/driver/cache.h"
#include "lib/driver/measured_costs.h"
#include "lib/driver/program.h"
#include "lib/driver/sources.h"
#include "request.h"

enum { PAST_THE_END = 77, LONGEST_SECONDS = 60 };

/* WRAP(kind, function, result, parameters, arguments, the result of a failure, its errno).
 * The build reads the second column. */
#define WRAPS(WRAP)                                                                                \
    WRAP(MEMORY, malloc, void *, (size_t bytes), (bytes), NULL, ENOMEM)                            \
    WRAP(MEMORY, calloc, void *, (size_t count, size_t bytes), (count, bytes), NULL, ENOMEM)       \
    WRAP(MEMORY, aligned_alloc, void *, (size_t alignment, size_t bytes), (alignment, bytes),      \
         NULL, ENOMEM)                                                                             \
    WRAP(OWN, posix_memalign, int, (void **memory, size_t alignment, size_t bytes),                \
         (memory, alignment, bytes), ENOMEM, ENOMEM)                                               \
    WRAP(MEMORY, strdup, char *, (const char *text), (text), NULL, ENOMEM)                         \
    WRAP(MEMORY, strndup, char *, (const char *text, size_t most), (text, most), NULL, ENOMEM)     \
    WRAP(OWN, free, void, (void *memory), (memory), , )                                            \
    WRAP(PLAIN, open, int, (const char *path, int flags, mode_t mode), (path, flags, mode), -1,    \
         EMFILE)                                                                                   \
    WRAP(PLAIN, openat, int, (int at, const char *path, int flags, mode_t mode),                   \
         (at, path, flags, mode), -1, EMFILE)                                                      \
    WRAP(PLAIN, fstat, int, (int file, struct stat *about), (file, about), -1, EIO)                \
    WRAP(PLAIN, fstatat, int, (int at, const char *path, struct stat *about, int flags),           \
         (at, path, about, flags), -1, EACCES)                                                     \
    WRAP(OWN, read, ssize_t, (int file, void *data, size_t bytes), (file, data, bytes), -1, EIO)   \
    WRAP(OWN, write, ssize_t, (int file, const void *data, size_t bytes), (file, data, bytes), -1, \
         ENOSPC)                                                                                   \
    WRAP(PLAIN, fsync, int, (int file), (file), -1, EIO)                                           \
    WRAP(OWN, close, int, (int file), (file), -1, EIO)                                             \
    WRAP(PLAIN, renameat, int, (int from_at, const char *from, int to_at, const char *to),         \
         (from_at, from, to_at, to), -1, EACCES)                                                   \
    WRAP(PLAIN, unlinkat, int, (int at, const char *path, int flags), (at, path, flags), -1,       \
         EACCES)                                                                                   \
    WRAP(PLAIN, futimens, int, (int file, const struct timespec *times), (file, times), -1, EPERM) \
    WRAP(PLAIN, mkdirat, int, (int at, const char *path, mode_t mode), (at, path, mode), -1,       \
         EACCES)                                                                                   \
    WRAP(PLAIN, fchmod, int, (int file, mode_t mode), (file, mode), -1, EPERM)                     \
    WRAP(PLAIN, fchmodat, int, (int at, const char *path, mode_t mode, int flags),                 \
         (at, path, mode, flags), -1, EPERM)                                                       \
    WRAP(PLAIN, fdopendir, DIR *, (int file), (file), NULL, ENOMEM)                                \
    WRAP(PLAIN, sched_getaffinity, int, (pid_t process, size_t bytes, cpu_set_t *set),             \
         (process, bytes, set), -1, EINVAL)                                                        \
    WRAP(PLAIN, pthread_attr_init, int, (pthread_attr_t * attributes), (attributes), ENOMEM,       \
         ENOMEM)                                                                                   \
    WRAP(PLAIN, pthread_create, int,                                                               \
         (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *),            \
          void *argument),                                                                         \
         (thread, attributes, start, argument), EAGAIN, EAGAIN)

typedef enum function {
#define WRAP(kind, name, ...) CALL_##name,
    WRAPS(WRAP)
#undef WRAP
        FUNCTIONS
} function;

static const char *const names[FUNCTIONS] = {
#define WRAP(kind, name, ...) #name,
    WRAPS(WRAP)
#undef WRAP
};

/* ---------------------------------------------------------------- standing in between -------- */

static struct {
    _Atomic int function, countdown; /* which call of which function fails; -1: none */
    _Atomic int failed;
    _Atomic int choppy; /* reads and writes are interrupted, and short */
} fault = {.function = -1};
static _Atomic int live;        /* blocks of memory that the library has */
static _Atomic unsigned *calls; /* of each function, in all processes */

static int is_refused(function which)
{
    if (calls != NULL) atomic_fetch_add(&calls[which], 1);
    if (atomic_load(&fault.function) != (int)which || atomic_fetch_sub(&fault.countdown, 1) != 1)
        return 0;
    atomic_store(&fault.failed, 1);
    return 1;
}

/* open and openat are called with a mode or without: an undefined mode that is passed on is not
 * read. */
#define REAL(name, result, parameters) extern result __real_##name parameters;
#define PLAIN(name, result, parameters, arguments, refusal, number) \
    REAL(name, result, parameters)                                  \
    extern result __wrap_##name parameters;                         \
    result __wrap_##name parameters                                 \
    {                                                               \
        if (is_refused(CALL_##name)) {                              \
            errno = number;                                         \
            return refusal;                                         \
        }                                                           \
        return __real_##name arguments;                             \
    }
#define MEMORY(name, result, parameters, arguments, refusal, number) \
    REAL(name, result, parameters)                                   \
    extern result __wrap_##name parameters;                          \
    result __wrap_##name parameters                                  \
    {                                                                \
        result memory = NULL;                                        \
        errno = number;                                              \
        if (is_refused(CALL_##name)) return refusal;                 \
        memory = __real_##name arguments;                            \
        if (memory != NULL) atomic_fetch_add(&live, 1);              \
        return memory;                                               \
    }
#define OWN(name, result, parameters, ...) \
    REAL(name, result, parameters)         \
    extern result __wrap_##name parameters;
#define WRAP(kind, name, ...) kind(name, __VA_ARGS__)
WRAPS(WRAP)
#undef WRAP

void __wrap_free(void *memory)
{
    (void)is_refused(CALL_free);
    if (memory != NULL) atomic_fetch_sub(&live, 1);
    __real_free(memory);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    const int error =
        is_refused(CALL_posix_memalign) ? ENOMEM : __real_posix_memalign(memory, alignment, bytes);

    if (error == 0) atomic_fetch_add(&live, 1);
    return error;
}

/* A file is closed even where close returns an error. */
int __wrap_close(int file)
{
    const int refused = is_refused(CALL_close), result = __real_close(file);

    errno = refused ? EIO : errno;
    return refused ? -1 : result;
}

/* 1 if this read or write is to be interrupted; else makes it short. */
static int is_interrupted(size_t *bytes)
{
    enum { MOST_AT_ONCE = 37 };
    static _Atomic unsigned turn;

    if (!atomic_load(&fault.choppy)) return 0;
    if (atomic_fetch_add(&turn, 1) % 2 == 0) return 1;
    if (*bytes > MOST_AT_ONCE) *bytes = MOST_AT_ONCE;
    return 0;
}

ssize_t __wrap_read(int file, void *data, size_t bytes)
{
    errno = EIO;
    if (is_refused(CALL_read)) return -1;
    errno = EINTR;
    return is_interrupted(&bytes) ? -1 : __real_read(file, data, bytes);
}

ssize_t __wrap_write(int file, const void *data, size_t bytes)
{
    errno = ENOSPC;
    if (is_refused(CALL_write)) return -1;
    errno = EINTR;
    return is_interrupted(&bytes) ? -1 : __real_write(file, data, bytes);
}

/* ---------------------------------------------------------------- pieces of work ------------- */

enum { MOST = 3 << 20 /* bytes of an array */, MOST_ROWS = 512 };

static char elements[MOST];
static int64_t results[MOST_ROWS];

/* How rows lie in memory: one after the other; as columns; each an element behind the other; all at
 * the same place. */
typedef enum layout { ROWS, COLUMNS, WINDOWS, BROADCAST } layout;

/* Reduces `rows` rows of n elements and requires the results, which are all alike. */
static gpr_status reduce(int device, gpr_operator op, gpr_dtype dtype, const char *kernel,
                         uint64_t rows, uint64_t n, layout layout, int64_t expected)
{
    const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype);
    const int64_t shape[2] = {(int64_t)rows, (int64_t)n};
    const int64_t strides[][2] = {[ROWS] = {(int64_t)n * bytes, bytes},
                                  [COLUMNS] = {bytes, (int64_t)rows * bytes},
                                  [WINDOWS] = {bytes, bytes},
                                  [BROADCAST] = {0, bytes}};
    const uint64_t different[] = {
        [ROWS] = rows * n, [COLUMNS] = rows * n, [WINDOWS] = rows + n - 1, [BROADCAST] = n};
    gpr_request request = sums_of(dtype, 2, shape, elements, results);
    gpr_status status = GPR_OK;

    request.op = op;
    request.strides = strides[layout];
    request.device = device;
    REQUIRE(different[layout] * (uint64_t)bytes <= MOST && rows <= MOST_ROWS);
    REQUIRE(gpr_find_kernel(kernel, &request.kernel) == GPR_OK);
    status = gpr_reduce(&request);
    if (status != GPR_OK) return status;
    for (uint64_t i = 0; i < rows; i++) {
        if (gpr_dtype_bytes(gpr_result_dtype(op, dtype, GPR_DTYPE_DEFAULT)) == 1)
            REQUIRE(((char *)results)[i] == expected);
        else
            REQUIRE(results[i] == expected);
    }
    return GPR_OK;
}

/* Every byte of the array is 1. */
static const int64_t ONES_8 = 1, ONES_64 = 0x0101010101010101;

static gpr_status small_on_device(void)
{
    return reduce(0, GPR_OP_SUM, GPR_INT8, "sequential", 3, 1000, ROWS, 1000 * ONES_8);
}

static gpr_status streamed_on_device(void)
{
    return reduce(0, GPR_OP_SUM, GPR_INT64, "auto", 2, 150000, ROWS,
                  (int64_t)(150000 * (uint64_t)ONES_64));
}

static gpr_status rows_decided_in_pieces(void)
{
    return reduce(GPR_DEVICE_CPU, GPR_OP_ALL, GPR_INT8, "auto", 2, 1 << 20, ROWS, 1);
}

static gpr_status many_partials(void)
{
    /* two pieces of each row: more than the backend has room for without asking */
    enum { HALF = 33, PIECE = 256 << 10 };

    return reduce(GPR_DEVICE_CPU, GPR_OP_SUM, GPR_INT8, "auto", HALF, PIECE + 1, WINDOWS,
                  (PIECE + 1) * ONES_8);
}

static gpr_status columns_in_pieces(void)
{
    return reduce(GPR_DEVICE_CPU, GPR_OP_SUM, GPR_INT8, "auto", 300, 10000, COLUMNS,
                  10000 * ONES_8);
}

/* As doubles the elements are so small that the product of two is none. */
static gpr_status scaled_product_in_pieces(void)
{
    return reduce(GPR_DEVICE_CPU, GPR_OP_PROD, GPR_FLOAT64, "auto", 1, 1 << 18, ROWS, 0);
}

/* Half of the factors are large and half are small: partial products leave the range of doubles. */
static gpr_status product_on_both_sides_in_pieces(void)
{
    enum { N = 1 << 17, POWER = 600 };
    static const int64_t shape[] = {N};
    static double factors[N];
    double product = 0;
    gpr_request request = sums_of(GPR_FLOAT64, 1, shape, factors, &product);

    request.op = GPR_OP_PROD;
    request.device = GPR_DEVICE_CPU;
    for (int i = 0; i < N; i++) factors[i] = ldexp(1, i < N / 2 ? POWER : -POWER);
    const gpr_status status = gpr_reduce(&request);

    REQUIRE(status != GPR_OK || product == 1);
    return status;
}

/* As doubles the elements are nearly 0: the sum of their exponentials is their number. */
static gpr_status exponentials_in_pieces(void)
{
    enum { N = MOST / sizeof(double) };
    static const int64_t shape[] = {N};
    double found = -1;
    gpr_request request = sums_of(GPR_FLOAT64, 1, shape, elements, &found);

    request.device = GPR_DEVICE_CPU;
    const gpr_status status = gpr_logsumexp(&request);
    REQUIRE(status != GPR_OK || fabs(found - log(N)) <= 1e-14 * log(N));
    return status;
}

static gpr_status broadcast_rows(void)
{
    return reduce(GPR_DEVICE_CPU, GPR_OP_SUM, GPR_INT8, "auto", 5, 1 << 10, BROADCAST,
                  (1 << 10) * ONES_8);
}

/* Of long integers, whose mean is one of them, rounded. */
static gpr_status exact_mean_in_pieces(void)
{
    const double mean = (double)ONES_64;
    int64_t bits;

    memcpy(&bits, &mean, sizeof bits);
    return reduce(GPR_DEVICE_CPU, GPR_OP_MEAN, GPR_INT64, "exact", 1, MOST / sizeof bits, ROWS,
                  bits);
}

/* Sums of integers whose counts a mask decides: here of all of them. */
static gpr_status exact_means_with_mask(void)
{
    enum { COUNT = 3, N = 1 << 16 };
    static const int64_t shape[2] = {COUNT, N}, steps[2] = {N, 1};
    double found[COUNT] = {0};
    gpr_request request = sums_of(GPR_INT8, 2, shape, elements, found);

    request.op = GPR_OP_MEAN;
    request.mask = (const uint8_t *)elements;
    request.mask_strides = steps;
    request.kernel = GPR_KERNEL_exact;
    request.device = GPR_DEVICE_CPU;
    const gpr_status status = gpr_reduce(&request);
    for (int i = 0; i < COUNT && status == GPR_OK; i++) REQUIRE(found[i] == ONES_8);
    return status;
}

/* As many elements as a power of two: the sum is one of them with another exponent. */
static gpr_status exact_float_sum_in_pieces(void)
{
    enum { POWER = 18, FRACTION_BITS = 52 };

    return reduce(GPR_DEVICE_CPU, GPR_OP_SUM, GPR_FLOAT64, "exact", 1, 1 << POWER, ROWS,
                  ONES_64 + ((int64_t)POWER << FRACTION_BITS));
}

/* The same of both parts of complex numbers. */
static gpr_status exact_columns_in_pieces(void)
{
    enum { COUNT = 3, POWER = 15, FRACTION_BITS = 52, BYTES = 2 * sizeof(double) };
    static const int64_t shape[2] = {COUNT, 1 << POWER}, strides[2] = {BYTES, COUNT * BYTES};
    gpr_request request = sums_of(GPR_COMPLEX128, 2, shape, elements, results);

    request.strides = strides;
    request.kernel = GPR_KERNEL_exact;
    request.device = GPR_DEVICE_CPU;
    const gpr_status status = gpr_reduce(&request);
    for (int i = 0; i < 2 * COUNT && status == GPR_OK; i++)
        REQUIRE(results[i] == ONES_64 + ((int64_t)POWER << FRACTION_BITS));
    return status;
}

static gpr_status exact_variances_in_pieces(void)
{
    return reduce(GPR_DEVICE_CPU, GPR_OP_VAR, GPR_INT8, "exact", 2, MOST / 2, ROWS, 0);
}

static gpr_status dot_in_pieces(void)
{
    const gpr_factor ones = {.dtype = GPR_INT8, .data = elements, .stride = 1};
    int64_t result = 0;
    const gpr_dot_request request = {.a = ones,
                                     .b = ones,
                                     .factor = GPR_INT8,
                                     .compute = GPR_INT64,
                                     .n = MOST,
                                     .kernel = -1,
                                     .device = GPR_DEVICE_CPU,
                                     .result = &result};
    const gpr_status status = gpr_dot(&request);

    REQUIRE(status != GPR_OK || result == MOST * ONES_8);
    return status;
}

/* Products of floats, summed with a bound on the error: the squares of numbers that are all 3. */
static gpr_status dot_of_floats_in_pieces(void)
{
    enum { N = 1 << 17 };
    static double threes[N];
    const gpr_factor factor = {.dtype = GPR_FLOAT64, .data = threes, .stride = sizeof *threes};
    double result = -1;
    const gpr_dot_request request = {.a = factor,
                                     .b = factor,
                                     .factor = GPR_FLOAT64,
                                     .compute = GPR_DTYPE_DEFAULT,
                                     .n = N,
                                     .kernel = -1,
                                     .device = GPR_DEVICE_CPU,
                                     .result = &result};

    for (int i = 0; i < N; i++) threes[i] = 3;
    const gpr_status status = gpr_dot(&request);

    REQUIRE(status != GPR_OK || result == 9.0 * N);
    return status;
}

/* A program that does not compile: the failure is the compiler's, and its log is there if there
 * is memory for it. */
static gpr_status compile_error(void)
{
    gpr_status status = GPR_OK;

    fake.refuse("first_add");
    status = gpr_compile_program(GPR_KERNEL_first_add, GPR_OP_SUM, GPR_INT8, GPR_DTYPE_DEFAULT, 0,
                                 -1, 90, NULL);
    fake.refuse("");
    REQUIRE(fake.programs() == 0);
    if (status == GPR_ERROR_MEMORY) return status;
    REQUIRE(status == GPR_ERROR_COMPILE &&
            strcmp(gpr_last_error()->call, "nvrtcCompileProgram") == 0);
    if (gpr_last_error()->log != NULL) REQUIRE(strstr(gpr_last_error()->log, "refused") != NULL);
    REQUIRE(gpr_last_error()->log != NULL || atomic_load(&fault.failed));
    return GPR_OK;
}

static gpr_status set_paths(void)
{
    gpr_status status = gpr_set_nvrtc_path("/nowhere/libnvrtc.so");

    if (status == GPR_OK) status = gpr_set_cccl_path("/nowhere/include");
    if (status == GPR_OK) status = gpr_set_nvrtc_path(NULL);
    return status == GPR_OK ? gpr_set_cccl_path(NULL) : status;
}

/* The image and the name of entry `key` are made of its letter. */
static void make_object(char key, gpr_object *object)
{
    enum { IMAGE_BYTES = 700 };

    *object =
        (gpr_object){.entry_count = 1, .bytes = IMAGE_BYTES, .image = __real_malloc(IMAGE_BYTES)};
    object->lowered[0] = __real_strdup("name");
    REQUIRE(object->image != NULL && object->lowered[0] != NULL);
    memset(object->image, key, IMAGE_BYTES);
    object->lowered[0][0] = key;
}

static void write_entry(char key)
{
    const char text[2] = {key, '\0'};
    gpr_object object;

    make_object(key, &object);
    gpr_cache_write(text, &object);
    __real_free(object.lowered[0]);
    __real_free(object.image);
}

/* Whether the entry was found; then it must be whole. */
static int read_entry(char key)
{
    const char text[2] = {key, '\0'};
    gpr_object expected, object;
    const int found = gpr_cache_read(text, &object);

    make_object(key, &expected);
    if (found) {
        REQUIRE(object.entry_count == 1 && strcmp(object.lowered[0], expected.lowered[0]) == 0);
        REQUIRE(object.bytes == expected.bytes &&
                memcmp(object.image, expected.image, object.bytes) == 0);
    }
    REQUIRE(found || (object.image == NULL && object.entry_count == 0));
    gpr_object_clear(&object);
    __real_free(expected.lowered[0]);
    __real_free(expected.image);
    return found;
}

/* Three entries, of which two fit. Without a failure an entry is found after it is written. */
static gpr_status cache_that_overflows(void)
{
    gpr_cache_info info;

    REQUIRE(setenv("GPUREDUCE_CACHE_BYTES", "1800", 1) == 0);
    for (char key = 'a'; key <= 'c'; key++) {
        write_entry(key);
        const int found = read_entry(key);
        REQUIRE(found || atomic_load(&fault.failed));
    }
    REQUIRE(gpr_cache_get_info(&info) == GPR_OK);
    REQUIRE(info.bytes <= info.limit_bytes || atomic_load(&fault.failed));
    REQUIRE(info.entries == 2 || atomic_load(&fault.failed));
    gpr_cache_remove_all();
    REQUIRE(gpr_cache_get_info(&info) == GPR_OK);
    REQUIRE(info.entries == 0 || atomic_load(&fault.failed));
    REQUIRE(unsetenv("GPUREDUCE_CACHE_BYTES") == 0);
    return GPR_OK;
}

/* Costs of a GPU's plans are written, read, and removed. A file that fails is an error of the one
 * who measured, and the reason for estimates to who plans. */
static gpr_status measured_costs(void)
{
    static const gpr_plan_costs costs = {4000, 60, 20000, 600, 1000, 20, 1000, 600};
    static const char *const words[] = {"cannot be written", "cannot be removed", "are kept"};
    gpr_costs_info info;

    for (int step = 0; step < 2; step++) {
        const gpr_status status =
            step == 0 ? gpr_write_measured_costs("GPU", &costs) : gpr_remove_measured_costs("GPU");
        if (status == GPR_ERROR_MEMORY) return status;
        if (status != GPR_OK) {
            const char *message = gpr_last_error()->message;
            REQUIRE(status == GPR_ERROR_SYSTEM && atomic_load(&fault.failed));
            REQUIRE(strstr(message, words[step]) != NULL || strstr(message, words[2]) != NULL);
        }
        gpr_read_measured_costs("GPU", &info);
        REQUIRE(info.is_measured == (step == 0) || atomic_load(&fault.failed));
        REQUIRE(info.is_measured == (info.reason[0] == '\0'));
        REQUIRE(!info.is_measured || memcmp(&info.costs, &costs, sizeof costs) == 0);
    }
    REQUIRE(gpr_write_measured_costs("two\nlines", &costs) == GPR_ERROR_VALUE);
    return GPR_OK;
}

/* A program is compiled, and the next time read from the disk. */
static gpr_status cached_program(void)
{
    gpr_object object;
    gpr_kernel_traits traits;
    gpr_rule rule;
    int compiled = 0;
    gpr_status status = gpr_make_rule(GPR_OP_SUM, GPR_INT8, GPR_DTYPE_DEFAULT, &rule);

    memset(&traits, 0, sizeof traits);
    traits.kernel = GPR_KERNEL_sequential;
    traits.fold = rule.fold;
    traits.element = rule.element;
    traits.compute = rule.compute;
    traits.acc = rule.device_acc;
    traits.block = 64;
    traits.lanes = 32;
    traits.per_thread = traits.item = 1;
    traits.kept = traits.reduced = 1;
    traits.variant = "sequential";
    for (int i = 0; i < 2 && status == GPR_OK; i++) {
        status = gpr_make_object(&traits, 90, 1, &object, &compiled);
        REQUIRE(status != GPR_OK ||
                (object.entry_count == 2 && strncmp(object.image, "FAKE sm 90", 10) == 0));
        REQUIRE(status == GPR_OK || (object.entry_count == 0 && object.image == NULL));
        gpr_object_clear(&object);
    }
    REQUIRE(status != GPR_OK || compiled == 0 || atomic_load(&fault.failed));
    return status;
}

/* Compiles the programs of a device array's call and of a host array's, without a GPU. */
static gpr_status warmed_calls(void)
{
    enum { N = 100000 };
    static const int64_t shape[] = {N};
    const gpr_device_facts facts = {
        .cc = 90, .multiprocessors = 132, .threads_per_multiprocessor = 2048};
    gpr_request request = {.op = GPR_OP_MAX,
                           .dtype = GPR_INT32,
                           .compute = GPR_DTYPE_DEFAULT,
                           .kernel = GPR_KERNEL_fast,
                           .ndim = 1,
                           .reduced = 1,
                           .shape = shape};
    int compiled = 0;
    gpr_status status = GPR_OK;

    for (int on_device = 0; on_device < 2 && status == GPR_OK; on_device++) {
        request.on_device = on_device;
        status = gpr_warm(&request, &facts, &compiled);
    }
    if (status == GPR_OK) status = gpr_warm(&request, &facts, &compiled);
    REQUIRE(status != GPR_OK || compiled == 0 || atomic_load(&fault.failed));
    return status;
}

/* Counts, sums and finds in one pass: a plan and its program, whose scratch is the library's. */
static gpr_status run_several(void *data, int64_t *found)
{
    enum { N = 5000 };
    static const gpr_member members[] = {
        {.op = GPR_OP_COUNT_NONZERO}, {.op = GPR_OP_SUM}, {.op = GPR_OP_ARGMAX}};
    static const int64_t shape[] = {N};
    const gpr_request array = {.dtype = GPR_INT8,
                               .compute = GPR_DTYPE_DEFAULT,
                               .ndim = 1,
                               .reduced = 1,
                               .shape = shape,
                               .data = data,
                               .on_device = 1,
                               .block_size = 64,
                               .grid_size = 2};
    gpr_several_launch launch = {.data = data};
    gpr_device_facts facts;
    gpr_several_plan plan;
    gpr_loaded_image *loaded = NULL;
    gpr_image image = {0};
    int compiled = 0;
    gpr_status status = gpr_facts_at(0, &facts);

    if (status == GPR_OK) status = gpr_plan_several(&array, members, 3, 0, 0, &facts, &plan);
    if (status != GPR_OK) return status;
    REQUIRE(plan.in_pass == 7);
    status = gpr_compile_several(&plan, facts.cc, &image, &compiled);
    if (status == GPR_OK) status = gpr_load_image(0, &image, &loaded);
    gpr_free_image(&image);
    if (status != GPR_OK) return status;
    for (int i = 0; i < 3; i++) launch.out[i] = (int64_t *)data + N / sizeof(int64_t) + i;
    status = gpr_queue_several(loaded, &plan, &launch);
    if (status == GPR_OK) status = gpr_download(0, NULL, found, launch.out[0], 3 * sizeof *found);
    fake.wait();
    REQUIRE(gpr_unload_image(loaded) == GPR_OK);
    REQUIRE(status != GPR_OK || (found[0] == N && found[1] == N && found[2] == 0));
    return status;
}

static gpr_status several_on_device(void)
{
    enum { BYTES = 8000 };
    int64_t found[3] = {-1, -1, -1};
    void *data = NULL;
    gpr_status status = gpr_alloc_device(0, BYTES, &data);

    if (status != GPR_OK) return status;
    status = gpr_upload(0, data, elements, BYTES);
    if (status == GPR_OK) status = run_several(data, found);
    REQUIRE(gpr_free_device(0, data) == GPR_OK);
    return status;
}

typedef struct work {
    const char *name;
    gpr_status (*run)(void);
    int needs_memory; /* without some of the memory it fails */
} work;

static const work works[] = {
    {"a small array on a device", small_on_device, 1},
    {"a streamed array", streamed_on_device, 1},
    {"rows decided in pieces", rows_decided_in_pieces, 1},
    {"many partials", many_partials, 1},
    {"columns in pieces", columns_in_pieces, 1},
    {"a product out of range in pieces", scaled_product_in_pieces, 1},
    {"a product on both sides in pieces", product_on_both_sides_in_pieces, 1},
    {"exponentials in pieces", exponentials_in_pieces, 1},
    {"rows that are the same", broadcast_rows, 1},
    {"an exact mean in pieces", exact_mean_in_pieces, 1},
    {"exact means with a mask", exact_means_with_mask, 1},
    {"an exact sum of floats in pieces", exact_float_sum_in_pieces, 1},
    {"exact sums of columns in pieces", exact_columns_in_pieces, 1},
    {"exact variances in pieces", exact_variances_in_pieces, 1},
    {"a dot product in pieces", dot_in_pieces, 1},
    {"a dot product of floats in pieces", dot_of_floats_in_pieces, 1},
    {"a compile error", compile_error, 1},
    {"paths", set_paths, 1},
    {"a program in the cache", cached_program, 1},
    {"calls that are warmed", warmed_calls, 1},
    {"several in one pass", several_on_device, 1},
    {"a cache that overflows", cache_that_overflows, 0},
    {"measured costs", measured_costs, 1},
};

/* ---------------------------------------------------------------- processes ------------------ */

/* Memory that children share with their parent. */
static struct shared {
    _Atomic unsigned calls[FUNCTIONS];
    int blocks, files; /* of the last baseline */
    int short_of_memory;
} *shared;

static char root[200];

/* Entries of a directory but the two that every one has; `hidden`: only those that begin with a
 * dot. */
static int count_files(const char *path, int hidden)
{
    DIR *listing = opendir(path);
    struct dirent *item = NULL;
    int count = 0;

    while (listing != NULL && (item = readdir(listing)) != NULL) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
        count += !hidden || item->d_name[0] == '.';
    }
    if (listing != NULL) (void)closedir(listing);
    return count;
}

static int count_open(void)
{
    return count_files("/proc/self/fd", 0);
}

/* Runs body(argument) in a child with a cache of its own; returns its exit status, -1 if it did
 * not end well. */
static int in_child(int (*body)(const void *), const void *argument, const char *what)
{
    static int number;
    char outer[240], inner[260];
    int status = 0;

    (void)snprintf(outer, sizeof outer, "%s/%d", root, number++);
    (void)snprintf(inner, sizeof inner, "%s/cache", outer);
    (void)fflush(stdout);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        (void)alarm(LONGEST_SECONDS);
        REQUIRE(setenv("GPUREDUCE_CACHE_DIR", inner, 1) == 0);
        const int result = body(argument);
        gpr_cache_remove_all();
        exit(result);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    (void)rmdir(inner);
    (void)rmdir(outer);
    const int well =
        WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == PAST_THE_END);
    CHECK(well, "%s (%s %d)", what, WIFSIGNALED(status) ? "signal" : "exit status",
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return well ? WEXITSTATUS(status) : -1;
}

/* The record of a failure keeps the compiler's log until the next one. */
static void forget_log(void)
{
    int index = 0;

    REQUIRE(gpr_find_kernel("none has this name", &index) == GPR_ERROR_VALUE);
}

static int measure_baseline(const void *argument)
{
    const work *work = argument;

    for (int i = 0; i < 2; i++) REQUIRE(work->run() == GPR_OK);
    forget_log();
    shared->blocks = atomic_load(&live);
    shared->files = count_open();
    return 0;
}

typedef struct refusal {
    const work *work;
    function function;
    int nth, warm; /* warm: after a run that went well */
} refusal;

static int is_allocator(function which)
{
    return which == CALL_malloc || which == CALL_calloc || which == CALL_aligned_alloc ||
           which == CALL_posix_memalign || which == CALL_strdup || which == CALL_strndup;
}

static int refuse_once(const void *argument)
{
    const refusal *r = argument;
    gpr_status status = GPR_OK;

    if (r->warm) REQUIRE(r->work->run() == GPR_OK);
    atomic_store(&fault.countdown, r->nth);
    atomic_store(&fault.function, (int)r->function);
    status = r->work->run();
    atomic_store(&fault.function, -1);
    if (!atomic_load(&fault.failed)) {
        REQUIRE(status == GPR_OK);
        return PAST_THE_END;
    }
    if (status != GPR_OK) {
        REQUIRE(is_allocator(r->function) && r->work->needs_memory);
        REQUIRE(status == GPR_ERROR_MEMORY && gpr_last_error()->status == GPR_ERROR_MEMORY);
        REQUIRE(strstr(gpr_last_error()->message, "memory") != NULL &&
                gpr_last_error()->call[0] == '\0');
        shared->short_of_memory++;
    }
    /* A file that could not be removed stays; no other half-written one does. */
    REQUIRE(count_files(getenv("GPUREDUCE_CACHE_DIR"), 1) == 0 || r->function == CALL_unlinkat);
    gpr_cache_remove_all();
    atomic_store(&fault.failed, 0);
    for (int i = 0; i < 2; i++) {
        status = r->work->run();
        if (status != GPR_OK)
            (void)fprintf(stderr, "the next call: %s\n", gpr_last_error()->message);
        REQUIRE(status == GPR_OK);
    }
    forget_log();
    if (atomic_load(&live) != shared->blocks || count_open() != shared->files)
        (void)fprintf(stderr, "%d blocks, %d files; without the refusal %d, %d\n",
                      atomic_load(&live), count_open(), shared->blocks, shared->files);
    REQUIRE(atomic_load(&live) == shared->blocks && count_open() == shared->files);
    REQUIRE(fake.programs() == 0 && fake.violation()[0] == '\0');
    return 0;
}

/* Tasks' memory is from this function only where AddressSanitizer is to see its end. */
#ifdef __SANITIZE_ADDRESS__
enum { UNCALLED = FUNCTIONS };
#else
enum { UNCALLED = CALL_posix_memalign };
#endif

/* Processes are slow to start under ThreadSanitizer, and refusing is no matter of threads: a
 * sample is enough there. */
#ifdef __SANITIZE_THREAD__
enum { STEP = 7 };
#else
enum { STEP = 1 };
#endif

static void test_what_is_refused_is_reported_or_done_without_and_leaves_nothing_behind(void)
{
    char what[200];
    int refused = 0;

    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        refusal r = {.work = &works[i]};
        if (in_child(measure_baseline, &works[i], works[i].name) != 0) continue;
        shared->short_of_memory = 0;
        for (int f = 0; f < 2 * FUNCTIONS; f++) {
            r.function = (function)(f % FUNCTIONS);
            r.warm = f >= FUNCTIONS;
            for (r.nth = (int)check_between(1, STEP);; r.nth += STEP) {
                (void)snprintf(what, sizeof what, "%s, %s, call %d of %s is refused", works[i].name,
                               r.warm ? "warm" : "cold", r.nth, names[r.function]);
                if (r.function == CALL_free || in_child(refuse_once, &r, what) != 0) break;
                refused++;
            }
        }
        CHECK(STEP > 1 || (shared->short_of_memory > 0) == works[i].needs_memory,
              "%s: short of memory %d times", works[i].name, shared->short_of_memory);
    }
    (void)printf("%d calls refused in turn\n", refused);
    for (int f = 0; f < FUNCTIONS; f++)
        CHECK(f == UNCALLED || atomic_load(&calls[f]) > 0, "nothing calls %s", names[f]);
}

/* ---------------------------------------------------------------- the cache ------------------ */

static int keep_an_entry(const void *argument)
{
    static const function allocators[] = {CALL_malloc, CALL_strndup};

    (void)argument;
    write_entry('k');
    for (int i = 0; i < 2; i++) {
        int found = 0;
        for (int nth = 1; !found; nth++) {
            atomic_store(&fault.countdown, nth);
            atomic_store(&fault.function, (int)allocators[i]);
            found = read_entry('k');
            atomic_store(&fault.function, -1);
            REQUIRE(read_entry('k'));
            REQUIRE(!found || nth > 1);
        }
    }
    return 0;
}

static void test_an_entry_survives_memory_that_runs_out_while_it_is_read(void)
{
    (void)in_child(keep_an_entry, NULL, "an entry that there is no memory for");
}

static int read_and_write_in_bits(const void *argument)
{
    (void)argument;
    atomic_store(&fault.choppy, 1);
    for (char key = 'a'; key <= 'e'; key++) write_entry(key);
    for (char key = 'a'; key <= 'e'; key++) REQUIRE(read_entry(key));
    return 0;
}

static void test_interrupted_and_short_reads_and_writes_are_no_trouble(void)
{
    (void)in_child(read_and_write_in_bits, NULL, "short reads and writes");
}

/* ---------------------------------------------------------------- the choice of a device ----- */

static int choose_without_memory(const void *argument)
{
    (void)argument;
    atomic_store(&fault.countdown, 1);
    REQUIRE(gpr_cuda_available() == GPR_OK);
    atomic_store(&fault.function, CALL_malloc); /* the array that both sides would be timed on */
    REQUIRE(reduce(GPR_DEVICE_FASTEST, GPR_OP_SUM, GPR_INT8, "auto", 1, 1000, ROWS,
                   1000 * ONES_8) == GPR_OK);
    REQUIRE(atomic_load(&fault.failed) && gpr_last_run()->device == GPR_DEVICE_CPU);
    return 0;
}

static void test_without_memory_to_measure_the_cpu_is_the_choice(void)
{
    (void)in_child(choose_without_memory, NULL, "a choice without memory");
}

/* Children have the digests of all sources, which take each of them longer than its work. */
static void hash_sources(void)
{
    char hex[GPR_SHA256_HEX];

    for (int i = 0; i < GPR_KERNEL_COUNT; i++) gpr_program_digest(i, hex);
    gpr_several_digest(hex);
}

int main(void)
{
    const char *temporary = getenv("TMPDIR");

    check_begin();
    hash_sources();
    load_fakes();
    (void)snprintf(root, sizeof root, "%s/gpureduce-system-XXXXXX",
                   temporary != NULL ? temporary : "/tmp");
    REQUIRE(mkdtemp(root) != NULL);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    calls = shared->calls;
    memset(elements, 1, sizeof elements);
    /* By the environment, so that what reads it is met too. */
    REQUIRE(setenv("GPUREDUCE_DEVICE_BYTES", "1048576", 1) == 0 &&
            setenv("GPUREDUCE_PINNED_BYTES", "2097152", 1) == 0);
    REQUIRE(setenv("GPUREDUCE_THREADS", "3", 1) == 0);
    test_an_entry_survives_memory_that_runs_out_while_it_is_read();
    test_interrupted_and_short_reads_and_writes_are_no_trouble();
    test_without_memory_to_measure_the_cpu_is_the_choice();
    test_what_is_refused_is_reported_or_done_without_and_leaves_nothing_behind();
    CHECK(rmdir(root) == 0, "%s is not empty", root);
    return check_end();
}
