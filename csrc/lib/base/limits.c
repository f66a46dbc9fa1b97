/* Limits: defaults, the environment's word, and the program's. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "lib/base/limits.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "lib/base/environment.h"
#include "lib/base/status.h"

enum { MOST_THREADS = 1024 };
#define MIB (1ull << 20)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint_fast64_t device_bytes, pinned_bytes;
static atomic_uint cpu_threads, generation;

static uint64_t from_environment(const char *name, uint64_t least, uint64_t most,
                                 uint64_t otherwise)
{
    const char *text = gpr_environment(name);
    char *end = NULL;

    if (text == NULL || *text == '\0' || *text == '-') return otherwise;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && value >= least && value <= most ? value : otherwise;
}

/* Cores this process may run on. */
static uint32_t usable_cores(void)
{
    cpu_set_t set;
    const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    return count > 0 ? (uint32_t)count : 1;
}

static void initialise(void)
{
    atomic_store(&device_bytes,
                 from_environment("GPUREDUCE_DEVICE_BYTES", MIB, UINT64_MAX, 256 * MIB));
    atomic_store(&pinned_bytes,
                 from_environment("GPUREDUCE_PINNED_BYTES", MIB, UINT64_MAX, 128 * MIB));
    atomic_store(&cpu_threads,
                 (unsigned)from_environment("GPUREDUCE_THREADS", 1, MOST_THREADS, usable_cores()));
}

void gpr_get_limits(gpr_limits *limits)
{
    (void)pthread_once(&once, initialise);
    limits->device_bytes = atomic_load_explicit(&device_bytes, memory_order_relaxed);
    limits->pinned_bytes = atomic_load_explicit(&pinned_bytes, memory_order_relaxed);
    limits->cpu_threads = atomic_load_explicit(&cpu_threads, memory_order_relaxed);
}

gpr_status gpr_set_limits(const gpr_limits *limits)
{
    (void)pthread_once(&once, initialise);
    if (limits->device_bytes < MIB || limits->pinned_bytes < MIB) {
        return gpr_fail(GPR_ERROR_VALUE, "memory limits are at least 1 MiB (1048576 bytes)");
    }
    if (limits->cpu_threads < 1 || limits->cpu_threads > MOST_THREADS) {
        return gpr_fail(GPR_ERROR_VALUE, "cpu_threads is between 1 and %d, not %u", MOST_THREADS,
                        limits->cpu_threads);
    }
    atomic_store(&device_bytes, limits->device_bytes);
    atomic_store(&pinned_bytes, limits->pinned_bytes);
    atomic_store(&cpu_threads, limits->cpu_threads);
    atomic_fetch_add(&generation, 1);
    return GPR_OK;
}

unsigned gpr_limits_generation(void)
{
    return atomic_load(&generation);
}
