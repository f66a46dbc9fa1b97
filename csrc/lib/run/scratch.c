/* Scratch and its owners. All of it stays in a list of the device, which is locked while a call is
 * queued; only the callback of a graph that is destroyed runs without the lock. */
#include "lib/run/scratch.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "lib/rules/accumulators.h"

enum {
    ALIGNMENT = 256,        /* bytes, of each part */
    LEAST_BYTES = 64 << 10, /* for partials and accumulators */
    LEAST_TICKETS = 4096,   /* counters */
    ENOUGH = 8              /* idle with one stream before another stream takes one over */
};

enum { NOBODY, A_STREAM, A_GRAPH };

struct gpr_scratch {
    atomic_int owner;
    /* A stream's number; of a graph the capture's, and the stream that is captured: within a
     * capture a stream's work is in order. */
    unsigned long long number;
    CUstream stream;
    CUdeviceptr memory; /* tickets, then bytes */
    uint64_t tickets, bytes;
    int zeroed;     /* tickets are zero once the owner's queued work is done */
    CUevent done;   /* after a stream's last call */
    int knows_done; /* the event was recorded then */
    gpr_scratch *next;
};

/* ---------------------------------------------------------------- graphs --------------------- */

/* The graph is gone. Called by the driver, on a thread of its own, where no call of CUDA is
 * allowed. */
static void give_back(void *argument)
{
    gpr_scratch *scratch = argument;

    atomic_store_explicit(&scratch->owner, NOBODY, memory_order_release);
}

/* Ties scratch to the graph that the stream is captured into: from here on it is the graph that
 * gives it back. */
static gpr_status give_to_graph(gpr_scratch *scratch, CUgraph graph)
{
    CUuserObject object = NULL;
    gpr_status status = GPR_OK;
    int handed_over = 0;

    atomic_store_explicit(&scratch->owner, A_GRAPH, memory_order_relaxed);
    GPR_CU(cuUserObjectCreate, &object, scratch, give_back, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    GPR_CU(cuGraphRetainUserObject, graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    handed_over = 1;
done:
    if (object == NULL) atomic_store_explicit(&scratch->owner, NOBODY, memory_order_relaxed);
    if (object != NULL && !handed_over) (void)gpr_cuda.cuUserObjectRelease(object, 1);
    return status;
}

/* ---------------------------------------------------------------- finding -------------------- */

static uint64_t power_of_two(uint64_t least, uint64_t value)
{
    while (least < value) least *= 2;
    return least;
}

static int is_large_enough(const gpr_scratch *scratch, uint64_t tickets, uint64_t bytes)
{
    return scratch->tickets >= tickets && scratch->bytes >= bytes;
}

/* Whether nothing that a stream queued uses the scratch any more. */
static int is_idle(const gpr_scratch *scratch)
{
    if (!scratch->knows_done) return 0;
    const int mode = gpr_begin_relaxed();
    const CUresult result = gpr_cuda.cuEventQuery(scratch->done);
    gpr_end_relaxed(mode);
    return result == CUDA_SUCCESS;
}

/* The scratch that this stream, or this stream of this capture, has already. */
static gpr_scratch *find_own(const gpr_device *device, int owner, unsigned long long number,
                             CUstream stream, uint64_t tickets, uint64_t bytes)
{
    for (gpr_scratch *s = device->scratches; s != NULL; s = s->next) {
        if (atomic_load_explicit(&s->owner, memory_order_acquire) == owner && s->number == number &&
            s->stream == stream && is_large_enough(s, tickets, bytes))
            return s;
    }
    return NULL;
}

/* Unused scratch; or, where streams have plenty, scratch whose stream has finished with it. */
static gpr_scratch *find_idle(const gpr_device *device, uint64_t tickets, uint64_t bytes)
{
    int count = 0;

    for (gpr_scratch *s = device->scratches; s != NULL; s = s->next) {
        if (atomic_load_explicit(&s->owner, memory_order_acquire) == NOBODY &&
            is_large_enough(s, tickets, bytes))
            return s;
        count++;
    }
    if (count < ENOUGH) return NULL;
    for (gpr_scratch *s = device->scratches; s != NULL; s = s->next) {
        if (atomic_load_explicit(&s->owner, memory_order_relaxed) == A_STREAM &&
            is_large_enough(s, tickets, bytes) && is_idle(s))
            return s;
    }
    return NULL;
}

static gpr_status make_scratch(gpr_device *device, uint64_t tickets, uint64_t bytes,
                               gpr_scratch **made)
{
    const int mode = gpr_begin_relaxed();
    gpr_scratch *scratch = calloc(1, sizeof *scratch);
    gpr_status status = GPR_OK;

    if (scratch == NULL) {
        status = gpr_fail(GPR_ERROR_MEMORY, "out of memory");
        goto done;
    }
    scratch->tickets = power_of_two(LEAST_TICKETS, tickets);
    scratch->bytes = power_of_two(LEAST_BYTES, bytes);
    GPR_CU(cuEventCreate, &scratch->done, CU_EVENT_DISABLE_TIMING);
    GPR_CU(cuMemAlloc, &scratch->memory, scratch->tickets * sizeof(uint32_t) + scratch->bytes);
    scratch->next = device->scratches;
    device->scratches = scratch;
    *made = scratch;
done:
    if (status != GPR_OK && scratch != NULL) {
        if (scratch->done != NULL) (void)gpr_cuda.cuEventDestroy(scratch->done);
        free(scratch);
    }
    gpr_end_relaxed(mode);
    return status;
}

/* ---------------------------------------------------------------- taking --------------------- */

/* Sizes in bytes of the parts behind the tickets. */
typedef struct needs {
    uint64_t tickets, partials, more_partials, accumulators;
} needs;

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

static needs needs_of(const gpr_plan *plan, const gpr_rule *rule, int accumulators)
{
    const uint64_t bytes = gpr_acc_bytes(rule->acc_kind, rule->device_acc);

    return (needs){.tickets = plan->tickets,
                   .partials = align(plan->partials * bytes),
                   .more_partials = align(plan->more_partials * bytes),
                   .accumulators = accumulators ? align(plan->rows * bytes) : 0};
}

static gpr_status take(gpr_device *device, CUstream stream, const needs *n, gpr_scratch **taken)
{
    const uint64_t bytes = n->partials + n->more_partials + n->accumulators;
    unsigned long long number = 0;
    gpr_scratch *scratch = NULL;
    CUgraph graph = NULL;
    int capturing = 0, state = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_is_capturing(stream, &capturing));
    if (capturing) {
        GPR_CU(cuStreamGetCaptureInfo, stream, &state, &number, &graph, NULL, NULL);
        if (graph == NULL)
            return gpr_fail(GPR_ERROR_VALUE,
                            "the capture of this stream into a graph has failed already");
    } else {
        GPR_CU(cuStreamGetId, stream, &number);
    }
    const int owner = graph != NULL ? A_GRAPH : A_STREAM;
    scratch = find_own(device, owner, number, stream, n->tickets, bytes);
    if (scratch == NULL) {
        scratch = find_idle(device, n->tickets, bytes);
        if (scratch == NULL) GPR_TRY(make_scratch(device, n->tickets, bytes, &scratch));
        scratch->number = number;
        scratch->stream = stream;
        /* a graph may never have run; and each replay begins with zeros of its own */
        scratch->zeroed = 0;
        if (graph != NULL) {
            GPR_TRY(give_to_graph(scratch, graph));
        } else {
            atomic_store_explicit(&scratch->owner, A_STREAM, memory_order_relaxed);
        }
    }
    *taken = scratch;
done:
    return status;
}

gpr_status gpr_scratch_acquire(gpr_device *device, const gpr_plan *plan, const gpr_rule *rule,
                               int accumulators, gpr_work *work, gpr_scratch **scratch)
{
    const needs n = needs_of(plan, rule, accumulators);
    gpr_status status = GPR_OK;

    *scratch = NULL;
    if (n.tickets + n.partials + n.more_partials + n.accumulators == 0) return GPR_OK;
    GPR_TRY(take(device, work->stream, &n, scratch));
    work->tickets = (*scratch)->memory;
    work->partials = work->tickets + (*scratch)->tickets * sizeof(uint32_t);
    work->more_partials = work->partials + n.partials;
    work->accumulators = work->more_partials + n.more_partials;
    if (n.tickets > 0 && !(*scratch)->zeroed) {
        GPR_CU(cuMemsetD8Async, work->tickets, 0, (*scratch)->tickets * sizeof(uint32_t),
               work->stream);
        (*scratch)->zeroed = 1;
    }
done:
    return status;
}

gpr_status gpr_scratch_release(gpr_scratch *scratch, const gpr_work *work, int well)
{
    gpr_status status = GPR_OK;

    if (scratch == NULL) return GPR_OK;
    /* Tickets that only a part of a grid drew would mislead the next call. */
    if (!well) scratch->zeroed = 0;
    if (atomic_load_explicit(&scratch->owner, memory_order_relaxed) != A_STREAM) return GPR_OK;
    scratch->knows_done = 0;
    GPR_CU(cuEventRecord, scratch->done, work->stream);
    scratch->knows_done = 1;
done:
    return status;
}
