/* A CUDA device as this library holds it: its primary context, two streams, buffers that are kept
 * between calls, loaded programs.
 *
 * One call at a time works on a device: gpr_device_enter locks it and makes its context current,
 * gpr_device_leave undoes both. */
#ifndef GPR_LIB_DEVICE_H
#define GPR_LIB_DEVICE_H

#include <pthread.h>

#include "lib/driver/driver.h"
#include "lib/driver/program.h"
#include "lib/rules/plan.h"

enum {
    GPR_SLOTS = 4, /* chunks in flight: one is packed, one copied, one reduced; one spare */
    GPR_SMALL_BYTES = 64 << 10,   /* arrays that the kernel reads where they are staged, at most */
    GPR_SMALL_RESULTS = 64 << 10, /* bytes of accumulators of such an array */
    GPR_SMALL_SCRATCH = 64 << 10, /* bytes of partials, where the caller chose the grid */
    GPR_RESULT_SHARE = 4,         /* a slot holds 1 byte of results for this many of elements */
    GPR_MAX_DEVICES = 64
};

/* Device memory that grows when more is needed. */
typedef struct gpr_buffer {
    CUdeviceptr address;
    uint64_t bytes;
} gpr_buffer;

/* Room for one chunk of a streamed array and its results. */
typedef struct gpr_slot {
    void *staged; /* pinned */
    CUdeviceptr elements;
    void *results; /* pinned: accumulators */
    CUdeviceptr device_results;
    CUevent uploaded, reduced;
} gpr_slot;

/* Bytes of a slot's parts; 0: not needed. */
typedef struct gpr_slot_bytes {
    uint64_t staged, elements, results, device_results;
} gpr_slot_bytes;

typedef struct gpr_ring {
    gpr_slot_bytes room; /* per slot */
    unsigned generation; /* of the limits it was made under */
    void *pinned;        /* per slot: staged, results */
    CUdeviceptr device;  /* per slot: elements, device_results */
    gpr_slot slots[GPR_SLOTS];
} gpr_ring;

/* A loaded program. */
typedef struct gpr_program {
    gpr_kernel_traits traits;
    CUmodule module;
    CUfunction first, next, fill, finish, copy; /* NULL: the kernel has none */
    struct gpr_program *chained;
} gpr_program;

enum { GPR_PROGRAM_BUCKETS = 256 };

typedef struct gpr_device {
    pthread_mutex_t lock;
    int ordinal;
    CUdevice handle;
    CUcontext context;
    gpr_device_facts facts;
    int polls; /* a thread that waits for a few results may spin */
    CUstream compute, copy;
    CUevent started, stopped; /* with timing, for gpr_measure */
    CUevent ordered;          /* of gpr_order_streams; NULL until it is needed */
    gpr_ring ring;
    gpr_buffer partials, more_partials, tickets, outputs, flush;
    void *small;               /* pinned: GPR_SMALL_BYTES of elements, then GPR_SMALL_RESULTS */
    CUdeviceptr small_outputs; /* GPR_SMALL_RESULTS in device memory, for atomics */
    gpr_program *programs[GPR_PROGRAM_BUCKETS];
    struct gpr_scratch *scratches; /* of calls that do not wait; scratch.h */
} gpr_device;

/* Opens device `ordinal` if need be, locks it, makes its context current. GPR_ERROR_DEVICE (also
 * for a call from inside a call on the same device, as an interrupt callback might make),
 * GPR_ERROR_VALUE (no such device), GPR_ERROR_CUDA, GPR_ERROR_MEMORY; then nothing is locked. */
gpr_status gpr_device_enter(int ordinal, gpr_device **result);
void gpr_device_leave(gpr_device *device);

/* A caller's stream; the device's own for NULL. */
static inline CUstream gpr_stream_of(const gpr_device *device, void *stream)
{
    return stream != NULL ? (CUstream)stream : device->compute;
}

/* The device, opened if need be; neither locked nor current. */
gpr_status gpr_device_find(int ordinal, gpr_device **result);
/* The device if it is open, else NULL. 0 <= ordinal < GPR_MAX_DEVICES. */
gpr_device *gpr_device_opened(int ordinal);

/* GPR_ERROR_VALUE if there is no device `ordinal`. */
gpr_status gpr_check_ordinal(int ordinal);
/* Facts that plans depend on, measured costs among them. */
gpr_status gpr_read_facts(CUdevice handle, gpr_device_facts *facts);

/* Makes the buffer hold at least `bytes`; its content is lost. New memory is zeroed on `stream` if
 * `zero`. */
gpr_status gpr_buffer_ensure(gpr_buffer *buffer, uint64_t bytes, int zero, CUstream stream);
/* Gives the memory back once the device no longer uses it. */
void gpr_buffer_clear(gpr_buffer *buffer);

/* The most that a slot's parts may take so that all parts of all slots fit the limits, with device
 * scratch as large as one slot's elements. */
gpr_slot_bytes gpr_slot_limits(const gpr_limits *limits);

/* Makes the ring's slots hold at least `wanted`; what they hold beyond it, for other users, stays.
 * With too little memory the parts become smaller, elements down to `least` bytes: read ring.room.
 * `generation` is that of the limits which the sizes were made for; buffers of another one, scratch
 * included, are freed first. GPR_ERROR_MEMORY. */
gpr_status gpr_ring_ensure(gpr_device *device, unsigned generation, const gpr_slot_bytes *wanted,
                           uint64_t least);

/* The traits's program, loaded; compiled or read from the disk cache if it is new. Counts in
 * *run. */
gpr_status gpr_load_program(gpr_device *device, const gpr_kernel_traits *traits, gpr_run *run,
                            gpr_program **result);

/* Whether CUDA work can run in this process, found without recording a failure. */
int gpr_cuda_usable(void);

#endif
