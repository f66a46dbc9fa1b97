/* Polling for results. A device writes the memory: no lock orders its stores, so that checkers of
 * threads, for which a thread stands in for the device, are switched off here. */
#include "lib/run/poll_results.h"

#include <stdatomic.h>
#include <string.h>

#include "lib/base/clock.h"

/* Longer than a small kernel takes from its launch to its end; longer kernels are waited for by the
 * driver. */
static const double POLLED_SECONDS = 50e-6;

/* Neither a number that is common nor a NaN that arithmetic makes, in any of the units. */
enum { MARK_1 = 0x9d, MARK_2 = 0x9d9d };
#define MARK_4 0x9d9d9d9du

#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))

int gpr_writes_once(const gpr_plan *plan)
{
    /* Of exact's programs, that for runs of memory: rows that registers hold may be put twice. */
    const int puts_once = gpr_kernel_rows[plan->kernel].family == GPR_FAMILY_PLANNER ||
                          strcmp(plan->variant, "exact") == 0 ||
                          strncmp(plan->variant, "fast_", strlen("fast_")) == 0;

    return puts_once && plan->tickets == 0 && plan->partials == 0;
}

UNWATCHED void gpr_mark_results(void *pinned, uint64_t bytes)
{
    volatile uint32_t *words = pinned; /* buffers are aligned for any type */
    volatile uint8_t *at = pinned;

    for (uint64_t i = 0; i < bytes / sizeof *words; i++) words[i] = MARK_4;
    for (uint64_t i = bytes / sizeof *words * sizeof *words; i < bytes; i++) at[i] = MARK_1;
    atomic_thread_fence(memory_order_seq_cst);
}

/* Copies units up to the first that is a mark still. Whether there was none. */
#define DEFINE_TAKE(type, mark)                                                           \
    UNWATCHED static int take_##type(const volatile type *from, uint64_t count, type *to) \
    {                                                                                     \
        for (uint64_t i = 0; i < count; i++) {                                            \
            to[i] = from[i];                                                              \
            if (to[i] == (type)(mark)) return 0;                                          \
        }                                                                                 \
        return 1;                                                                         \
    }
DEFINE_TAKE(uint8_t, MARK_1)
DEFINE_TAKE(uint16_t, MARK_2)
DEFINE_TAKE(uint32_t, MARK_4)

static int take(const void *pinned, uint64_t bytes, size_t unit, void *to)
{
    switch (unit) {
    case 1: return take_uint8_t(pinned, bytes, to);
    case 2: return take_uint16_t(pinned, bytes / 2, to);
    default: return take_uint32_t(pinned, bytes / 4, to);
    }
}

gpr_status gpr_await_results(CUstream stream, const void *pinned, uint64_t bytes, size_t unit,
                             void *to)
{
    const double end = gpr_seconds() + POLLED_SECONDS;
    _Alignas(8) uint8_t taken[GPR_MOST_AWAITED];
    gpr_status status = GPR_OK;

    while (!take(pinned, bytes, unit, taken)) {
        if (gpr_seconds() < end) {
            gpr_relax();
            continue;
        }
        GPR_CU(cuStreamSynchronize, stream);
        memcpy(taken, pinned, bytes);
        break;
    }
    memcpy(to, taken, bytes);
done:
    return status;
}
