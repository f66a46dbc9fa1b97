/* The ring of slots that chunks of host arrays stream through, and that results of device arrays
 * are copied through.
 *
 * A slot has up to four parts, and users differ in which ones they need and how large:
 *
 *                          staged    elements   results   device_results
 *     ordinary host memory   x          x          x            x
 *     pinned host memory                x          x            x
 *     device arrays                                x
 *
 * The pinned parts are one allocation and those of the device another. Both grow when a user needs
 * more and keep what others need: pinning memory takes milliseconds, and calls with pinned and with
 * ordinary arrays may alternate. Users size their parts so that all of them together fit the
 * limits. */
#include "lib/base/integers.h"
#include "lib/driver/device.h"

enum {
    LEAST_RESULTS = 4096, /* bytes of accumulators under which a slot is not worth having */
    SLOT_ALIGNMENT = 256  /* bytes; what cuMemAlloc itself promises */
};

static void ring_clear(gpr_ring *ring)
{
    if (ring->pinned != NULL) (void)gpr_cuda.cuMemFreeHost(ring->pinned);
    if (ring->device != 0) (void)gpr_cuda.cuMemFree(ring->device);
    ring->pinned = NULL;
    ring->device = 0;
    ring->room = (gpr_slot_bytes){0};
}

/* Allocates both sides of the empty ring and deals them out to the slots. */
static gpr_status ring_make(gpr_ring *ring, const gpr_slot_bytes *room)
{
    const uint64_t pinned = room->staged + room->results,
                   device = room->elements + room->device_results;
    gpr_status status = GPR_OK;

    if (pinned > 0)
        GPR_CU(cuMemHostAlloc, &ring->pinned, GPR_SLOTS * pinned,
               CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (device > 0) GPR_CU(cuMemAlloc, &ring->device, GPR_SLOTS * device);
    for (uint64_t i = 0; i < GPR_SLOTS; i++) {
        gpr_slot *slot = &ring->slots[i];

        slot->staged = (char *)ring->pinned + i * pinned;
        slot->results = (char *)slot->staged + room->staged;
        slot->elements = ring->device + i * device;
        slot->device_results = slot->elements + room->elements;
    }
    ring->room = *room;
done:
    if (status != GPR_OK) ring_clear(ring);
    return status;
}

/* Frees everything that grew with the needs of calls. */
static void release_buffers(gpr_device *device)
{
    ring_clear(&device->ring);
    gpr_buffer_clear(&device->partials);
    gpr_buffer_clear(&device->more_partials);
    gpr_buffer_clear(&device->tickets);
    gpr_buffer_clear(&device->outputs);
    gpr_buffer_clear(&device->flush);
}

gpr_slot_bytes gpr_slot_limits(const gpr_limits *limits)
{
    /* Elements of all slots, and results of all slots, which take a GPR_RESULT_SHARE-th of that.
     * Device scratch takes no more than a slot's elements: chunks are cut so that a plan needs no
     * more (plan_chunk), and scratch of earlier calls is freed that would make it more
     * (gpr_ensure_scratch). A grid that the caller chose is the exception. Both limits cover the
     * pages of small arrays. All sizes are multiples of SLOT_ALIGNMENT, so that align_part adds
     * nothing to them. */
    enum {
        SHARES = GPR_SLOTS + GPR_SLOTS / GPR_RESULT_SHARE,
        STEP = SLOT_ALIGNMENT * GPR_RESULT_SHARE
    };
    const uint64_t device = (limits->device_bytes - GPR_SMALL_RESULTS) / (SHARES + 1) / STEP * STEP;
    const uint64_t pinned =
        (limits->pinned_bytes - GPR_SMALL_BYTES - GPR_SMALL_RESULTS) / SHARES / STEP * STEP;

    return (gpr_slot_bytes){.staged = pinned,
                            .elements = device,
                            .results = pinned / GPR_RESULT_SHARE,
                            .device_results = device / GPR_RESULT_SHARE};
}

/* Parts follow each other in memory: sizes that keep each of them aligned for any accumulator. */
static uint64_t align_part(uint64_t bytes)
{
    return (bytes + SLOT_ALIGNMENT - 1) & ~(uint64_t)(SLOT_ALIGNMENT - 1);
}

static gpr_slot_bytes larger_parts(const gpr_slot_bytes *a, const gpr_slot_bytes *b)
{
    return (gpr_slot_bytes){.staged = gpr_larger(align_part(a->staged), b->staged),
                            .elements = gpr_larger(align_part(a->elements), b->elements),
                            .results = gpr_larger(align_part(a->results), b->results),
                            .device_results =
                                gpr_larger(align_part(a->device_results), b->device_results)};
}

static gpr_slot_bytes half_parts(const gpr_slot_bytes *bytes)
{
    return (gpr_slot_bytes){bytes->staged / 2, bytes->elements / 2, bytes->results / 2,
                            bytes->device_results / 2};
}

gpr_status gpr_ring_ensure(gpr_device *device, unsigned generation, const gpr_slot_bytes *wanted,
                           uint64_t least)
{
    gpr_ring *ring = &device->ring;
    gpr_slot_bytes bytes = *wanted, held;
    gpr_status status = GPR_OK;

    if (ring->generation != generation) release_buffers(device);
    ring->generation = generation;
    held = ring->room;
    if (bytes.staged <= held.staged && bytes.elements <= held.elements &&
        bytes.results <= held.results && bytes.device_results <= held.device_results)
        return GPR_OK;
    ring_clear(ring);
    for (;;) {
        const gpr_slot_bytes room = larger_parts(&bytes, &held);

        status = ring_make(ring, &room);
        if (status != GPR_ERROR_MEMORY) break;
        /* The parts of other users go first, then the request itself shrinks. */
        if (held.staged == 0 && held.elements == 0 && held.results == 0) bytes = half_parts(&bytes);
        held = (gpr_slot_bytes){0};
        if (bytes.elements < least || bytes.results < LEAST_RESULTS) break;
    }
    return status;
}
