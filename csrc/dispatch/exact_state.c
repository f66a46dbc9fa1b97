/* States of exact sums: parts with a lock, and their byte format (docs/exact-format.md). */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "dispatch/resolve.h"
#include "lib/base/fork_locks.h"
#include "lib/base/registry.h"
#include "lib/base/status.h"
#include "lib/exact/exact.h"
#include "lib/run/device_path.h"

static int is_float(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind == GPR_KIND_FLOAT;
}

static int is_complex(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind == GPR_KIND_COMPLEX;
}

/* ---------------------------------------------------------------- states --------------------- */

struct gpr_exact {
    gpr_exact_part part; /* under lock_of(sum) */
};

/* States share locks, few enough for a fork to take them all: a child finds every state as it was
 * before some update or after it. */
enum { LOCKS = 16, STATE_ALIGNMENT = 64 };
static pthread_mutex_t locks[LOCKS];

static void make_locks(void)
{
    for (int i = 0; i < LOCKS; i++) (void)pthread_mutex_init(&locks[i], NULL);
    gpr_hold_forks_by(locks, LOCKS);
}

static pthread_mutex_t *lock_of(const gpr_exact *sum)
{
    return &locks[(uintptr_t)sum / STATE_ALIGNMENT % LOCKS];
}

/* A copy of the part, its carries propagated. */
static gpr_exact_part part_of(const gpr_exact *sum)
{
    gpr_exact_part part;

    pthread_mutex_lock(lock_of(sum));
    part = sum->part;
    pthread_mutex_unlock(lock_of(sum));
    gpr_exact_carry(&part);
    return part;
}

static gpr_status add_to(gpr_exact *sum, const gpr_exact_part *part)
{
    gpr_status status;

    pthread_mutex_lock(lock_of(sum));
    status = gpr_exact_add_part(&sum->part, part);
    pthread_mutex_unlock(lock_of(sum));
    return status;
}

static gpr_status check_dtype(gpr_dtype dtype)
{
    if ((int)dtype < 0 || (int)dtype >= GPR_DTYPE_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d", (int)dtype);
    if (is_complex(dtype))
        return gpr_fail(GPR_ERROR_TYPE, "exact sums are of real numbers: sum the parts of %s each",
                        gpr_dtype_rows[dtype].name);
    return GPR_OK;
}

gpr_status gpr_exact_create(gpr_dtype dtype, gpr_exact **sum)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    gpr_status status;

    *sum = NULL;
    GPR_TRY(check_dtype(dtype));
    (void)pthread_once(&once, make_locks);
    *sum = malloc(sizeof **sum);
    if (*sum == NULL) GPR_TRY(gpr_fail(GPR_ERROR_MEMORY, "no memory for an exact sum"));
    gpr_exact_clear(&(*sum)->part, dtype);
done:
    return status;
}

void gpr_exact_destroy(gpr_exact *sum)
{
    free(sum);
}

gpr_dtype gpr_exact_dtype(const gpr_exact *sum)
{
    return sum->part.dtype; /* never changes */
}

uint64_t gpr_exact_count(const gpr_exact *sum)
{
    return part_of(sum).count;
}

static gpr_status add_host_array(const gpr_request *request, gpr_exact_part *part)
{
    gpr_rule rule;
    gpr_view view;
    gpr_status status;

    GPR_TRY(gpr_make_rule(request->op, request->dtype, request->compute, &rule));
    GPR_TRY(gpr_make_view(request, &rule, &view));
    status = gpr_cpu_add_exactly(&view, request->interrupted, request->interrupted_arg, part);
done:
    return status;
}

/* On the array's device: the kernel's accumulator is copied to the host and merged into a part of
 * any type that takes its elements. */
static gpr_status add_device_array(const gpr_request *request, gpr_exact_part *part)
{
    int64_t accumulator[GPR_EXACT_WORDS + GPR_EXACT_ACC_TAIL];
    gpr_request to_accumulator = *request;
    gpr_exact_part sum;
    gpr_resolved call;
    gpr_run run = {0};
    gpr_status status;

    to_accumulator.result = accumulator;
    GPR_TRY(gpr_resolve_call(&to_accumulator, &call));
    if (call.view.n == 0) goto done;
    GPR_TRY(gpr_array_accumulate(&call, &run));
    (void)gpr_exact_read_acc(call.rule.acc_kind, call.rule.device_acc, accumulator, &sum);
    gpr_exact_widen_part(part, &sum);
    /* The callback was not called while the device was at work. */
    if (request->interrupted != NULL && request->interrupted(request->interrupted_arg) != 0)
        status = gpr_fail(GPR_ERROR_INTERRUPTED, "the update was interrupted");
done:
    return status;
}

/* The members of a request that an update reads, as the request of a sum of all elements. */
static gpr_request sum_of_all(const gpr_request *array)
{
    return (gpr_request){.op = GPR_OP_SUM,
                         .dtype = array->dtype,
                         .compute = GPR_DTYPE_DEFAULT,
                         .ndim = array->ndim,
                         .reduced = array->ndim,
                         .shape = array->shape,
                         .strides = array->strides,
                         .data = array->data,
                         .byteswapped = array->byteswapped,
                         .on_device = array->on_device,
                         .kernel = GPR_KERNEL_exact,
                         .device = array->device,
                         .block_size = array->block_size,
                         .grid_size = array->grid_size,
                         .stream = array->stream,
                         .interrupted = array->interrupted,
                         .interrupted_arg = array->interrupted_arg};
}

gpr_status gpr_exact_update(gpr_exact *sum, const gpr_request *array)
{
    const gpr_request request = sum_of_all(array);
    gpr_exact_part part;
    gpr_status status;

    GPR_TRY(check_dtype(array->dtype));
    if (!gpr_exact_accepts(sum->part.dtype, array->dtype))
        GPR_TRY(gpr_fail(GPR_ERROR_TYPE, "an exact sum of %s does not take elements of type %s",
                         gpr_dtype_rows[sum->part.dtype].name, gpr_dtype_rows[array->dtype].name));
    if (array->mask != NULL)
        GPR_TRY(gpr_fail(GPR_ERROR_VALUE, "an exact sum takes arrays without a mask"));
    gpr_exact_clear(&part, sum->part.dtype);
    GPR_TRY(request.on_device ? add_device_array(&request, &part)
                              : add_host_array(&request, &part));
    status = add_to(sum, &part);
done:
    return status;
}

gpr_status gpr_exact_update_array(gpr_exact *sum, const void *data, uint64_t n)
{
    const int64_t shape[1] = {n <= INT64_MAX ? (int64_t)n : -1};

    return gpr_exact_update(
        sum, &(gpr_request){.dtype = sum->part.dtype, .ndim = 1, .shape = shape, .data = data});
}

gpr_status gpr_exact_merge(gpr_exact *sum, const gpr_exact *other)
{
    const gpr_exact_part part = part_of(other);

    if (part.dtype != sum->part.dtype)
        return gpr_fail(GPR_ERROR_TYPE, "an exact sum of %s does not merge with one of %s",
                        gpr_dtype_rows[sum->part.dtype].name, gpr_dtype_rows[part.dtype].name);
    return add_to(sum, &part);
}

/* The result of `op`, which is sum or mean. */
static gpr_status finish(const gpr_exact *sum, gpr_operator op, gpr_dtype result, void *value)
{
    const gpr_exact_part part = part_of(sum);
    gpr_status status;

    if (result == GPR_DTYPE_DEFAULT) result = gpr_result_dtype(op, part.dtype, GPR_DTYPE_DEFAULT);
    GPR_TRY(check_dtype(result));
    status = gpr_exact_round(&part, result, op == GPR_OP_MEAN, value);
done:
    return status;
}

gpr_status gpr_exact_result(const gpr_exact *sum, gpr_dtype result, void *value)
{
    return finish(sum, GPR_OP_SUM, result, value);
}

gpr_status gpr_exact_mean(const gpr_exact *sum, gpr_dtype result, void *value)
{
    return finish(sum, GPR_OP_MEAN, result, value);
}

/* ---------------------------------------------------------------- bytes ---------------------- */

/* docs/exact-format.md describes the format. Numbers are little-endian. */
enum {
    FORMAT_VERSION = 1,
    MAGIC_BYTES = 8,
    VERSION_AT = 8,
    DTYPE_AT = 10,
    FLAGS_AT = 12,
    COUNT_AT = 16,
    WORD_COUNT_AT = 24,
    WORDS_AT = 28,
    CHECKSUM_BYTES = 4
};
static const unsigned char magic[MAGIC_BYTES] = {0x93, 'G', 'P', 'R', 'S', 'U', 'M', '\n'};

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* CRC-32 as in zlib, PNG and Ethernet. */
static uint32_t checksum(const unsigned char *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ ((0 - (crc & 1)) & UINT32_C(0xedb88320));
    }
    return ~crc;
}

size_t gpr_exact_bytes(gpr_dtype dtype)
{
    if ((int)dtype < 0 || (int)dtype >= GPR_DTYPE_COUNT || is_complex(dtype)) return 0;
    return WORDS_AT + (size_t)gpr_exact_layout_of(dtype).words * sizeof(uint32_t) + CHECKSUM_BYTES;
}

void gpr_exact_store(const gpr_exact *sum, void *bytes)
{
    const gpr_exact_part part = part_of(sum);
    const size_t end = gpr_exact_bytes(part.dtype) - CHECKSUM_BYTES;
    const int words = gpr_exact_layout_of(part.dtype).words;
    unsigned char *out = bytes;

    memcpy(out, magic, sizeof magic);
    put(out + VERSION_AT, FORMAT_VERSION, 2);
    put(out + DTYPE_AT, (uint64_t)part.dtype, 2);
    put(out + FLAGS_AT, part.flags, 4);
    put(out + COUNT_AT, part.count, 8);
    put(out + WORD_COUNT_AT, (uint64_t)words, 4);
    for (int i = 0; i < words; i++) put(out + WORDS_AT + 4 * i, (uint32_t)part.words[i], 4);
    put(out + end, checksum(out, end), CHECKSUM_BYTES);
}

#define DAMAGED(...) gpr_fail(GPR_ERROR_VALUE, "not the bytes of an exact sum: " __VA_ARGS__)

/* Everything but the words. */
static gpr_status read_header(const unsigned char *in, size_t size, gpr_exact_part *part)
{
    uint64_t dtype, end;

    if (size < WORDS_AT + CHECKSUM_BYTES)
        return DAMAGED("%llu bytes are fewer than the %d of its header", (unsigned long long)size,
                       WORDS_AT + CHECKSUM_BYTES);
    if (memcmp(in, magic, sizeof magic) != 0) return DAMAGED("they do not begin as one does");
    if (get(in + VERSION_AT, 2) != FORMAT_VERSION)
        return DAMAGED("their format's version is %d, this library reads version %d",
                       (int)get(in + VERSION_AT, 2), FORMAT_VERSION);
    dtype = get(in + DTYPE_AT, 2);
    if (dtype >= GPR_DTYPE_COUNT || is_complex((gpr_dtype)dtype))
        return DAMAGED("there is no sum of dtype %d", (int)dtype);
    gpr_exact_clear(part, (gpr_dtype)dtype);
    end = gpr_exact_bytes(part->dtype);
    if (size != end)
        return DAMAGED("there are %llu, a sum of %s has %llu", (unsigned long long)size,
                       gpr_dtype_rows[dtype].name, (unsigned long long)end);
    if (get(in + end - CHECKSUM_BYTES, CHECKSUM_BYTES) != checksum(in, end - CHECKSUM_BYTES))
        return DAMAGED("the checksum does not match");
    if (get(in + WORD_COUNT_AT, 4) != (uint64_t)gpr_exact_layout_of(part->dtype).words)
        return DAMAGED("a sum of %s does not have %u words", gpr_dtype_rows[dtype].name,
                       (unsigned)get(in + WORD_COUNT_AT, 4));
    part->flags = (uint32_t)get(in + FLAGS_AT, 4);
    part->count = get(in + COUNT_AT, 8);
    return GPR_OK;
}

/* Number of bits of an unsigned number. */
static int bits_of(uint64_t value)
{
    return value == 0 ? 0 : 64 - __builtin_clzll(value);
}

/* Whether some elements could have given this part. Parts that pass are added without overflow. */
static gpr_status check_part(const gpr_exact_part *part)
{
    const uint32_t special =
        part->flags & (GPR_EXACT_INFINITY | GPR_EXACT_MINUS_INFINITY | GPR_EXACT_NAN);
    const gpr_exact_layout layout = gpr_exact_layout_of(part->dtype);
    const int other = (part->flags & GPR_EXACT_NOT_MINUS_ZERO) != 0;
    const uint64_t not_finite = (uint64_t)__builtin_popcount(special); /* elements, at least */
    int negative = 0;
    const int bits = gpr_exact_bit_length(part, &negative);

    if ((part->flags & ~(uint32_t)GPR_EXACT_FLAGS) != 0 || (!is_float(part->dtype) && special != 0))
        return DAMAGED("there are no flags %#x of %s", part->flags,
                       gpr_dtype_rows[part->dtype].name);
    if (not_finite + (uint64_t)(other && special == 0) > part->count ||
        (!other && (special != 0 || bits != 0 || (part->count > 0 && !is_float(part->dtype)))))
        return DAMAGED("no %llu elements have the flags %#x", (unsigned long long)part->count,
                       part->flags);
    if (bits > bits_of(part->count) + layout.highest - layout.lowest ||
        (bits > 0 && part->count == not_finite) || (negative && !layout.negative))
        return DAMAGED("the number is too large for %llu elements",
                       (unsigned long long)part->count);
    return GPR_OK;
}

gpr_status gpr_exact_load(const void *bytes, size_t size, gpr_exact **sum)
{
    const unsigned char *in = bytes;
    gpr_exact_part part;
    gpr_status status;
    int words;

    *sum = NULL;
    GPR_TRY(read_header(in, size, &part));
    words = gpr_exact_layout_of(part.dtype).words;
    for (int i = 0; i < words; i++) part.words[i] = (int64_t)get(in + WORDS_AT + 4 * i, 4);
    part.words[words - 1] = (int32_t)(uint32_t)part.words[words - 1];
    GPR_TRY(check_part(&part));
    GPR_TRY(gpr_exact_create(part.dtype, sum));
    (*sum)->part = part;
done:
    return status;
}
