/* Shared by the files of the stand-in driver: its handles, its lock, its counters, and the macros
 * that begin and end its functions.
 *
 *   driver_state.c     handles, violations, entering and leaving a function
 *   driver_memory.c    allocations
 *   driver_streams.c   streams, their queues, and how an operation is carried out
 *   driver_events.c    events
 *   driver_copies.c    copies and memsets
 *   driver_captures.c  graphs and user objects
 *   driver_modules.c   modules, functions, launches
 *   driver_devices.c   initialization, devices, contexts, errors
 *   driver_controls.c  options and counters for tests
 *
 * Each file uses only those above it. Modules and launches are the engine's (engine.h), which uses
 * driver_memory.h.
 *
 * Device memory is host memory. Each stream is a thread with a queue, so that a wait that the
 * library forgets shows as a wrong result; random delays (seeded) widen the windows in which it
 * can.
 *
 * Checked at every call: a current context, live handles, pointers inside live allocations, grids.
 * A broken rule is recorded (fake_violation) and poisons the context, as an illegal address does on
 * a GPU; cuGetErrorString then returns the rule's text. */
#ifndef GPR_EMU_DRIVER_STATE_H
#define GPR_EMU_DRIVER_STATE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "emu/engine.h"
#include "emu/steering.h"
#include "lib/driver/driver.h"

/* The functions of the driver under their exported names; a definition that differs from the
 * library's declaration does not compile. */
#define CU(member, symbol, arguments) GPR_API CUresult member arguments __asm__(symbol);
GPR_DRIVER_FUNCTIONS(CU)
#undef CU

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    UNKNOWN = 999
};

/* A few multiprocessors of an H100: plans are those of a GPU. */
enum { MULTIPROCESSORS = 4, RESIDENT_THREADS = 2048, RESIDENT_BLOCKS = 32 };

enum { MOST_DEVICES = 8, CONTEXT_DEPTH = 16, MOST_OBJECTS = 64 };

/* ---------------------------------------------------------------- handles -------------------- */

struct CUctx_st {
    int retained;
};

typedef enum memory_kind { DEVICE_MEMORY, PINNED_MEMORY, MEMORY_KINDS } memory_kind;

struct CUevent_st {
    int live, timed;
    unsigned recorded, done; /* records queued and carried out */
    double when;             /* seconds: time of the last record */
};

struct CUmod_st {
    int live, queued; /* launches that have not ended */
    engine_module *loaded;
};

struct CUfunc_st {
    struct CUmod_st *module;
    engine_kernel *kernel;
};

typedef struct operation {
    enum { COPY_IN, COPY_OUT, COPY_WITHIN, SET, LAUNCH, RECORD, WAIT } kind;
    uintptr_t to, from;
    size_t bytes; /* of a copy; of a memset: from its first byte to its last */
    unsigned value;
    size_t unit, pitch; /* bytes: width of a memset's value, distance between values */
    struct CUevent_st *event;
    unsigned target;         /* of a wait: records that must be done */
    struct CUmod_st *module; /* of a launch */
    engine_launch *launch;
    struct operation *next;
} operation;

struct CUstream_st {
    int live, stopping, working;
    unsigned long long id;
    struct CUctx_st *context;
    pthread_t thread;
    operation *head, *tail;
    struct CUgraph_st *graph; /* that it is being captured into */
    struct CUstream_st *next;
};

struct CUuserObject_st {
    unsigned references;
    CUhostFn destroy;
    void *argument;
};

/* Captured operations, in order; each launch of the graph carries out copies. */
struct CUgraph_st {
    int live, is_broken; /* is_broken: the capture has failed */
    unsigned long long id;
    operation *head, *tail;
    struct CUuserObject_st *objects[MOST_OBJECTS];
    int object_count;
};

/* ---------------------------------------------------------------- state ---------------------- */

/* Everything that threads share. The lock covers all of it. */
typedef struct driver_state {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct CUctx_st contexts[MOST_DEVICES];
    struct CUstream_st *streams;
    unsigned long long last_id; /* of streams and captures: each is used once */
    int captures;               /* streams that are being captured */
    struct {
        int devices, cc, version, init;
        unsigned flags; /* of contexts */
        int objects;    /* that a graph holds */
        uint64_t memory[MEMORY_KINDS];
        int tracks_writes; /* whether allocations note what has been written */
    } machine;
    struct {
        uint64_t bytes[MEMORY_KINDS], peak[MEMORY_KINDS];
        uint64_t allocated[MEMORY_KINDS]; /* allocations since the start, freed ones too */
        int allocations[MEMORY_KINDS], streams, events, modules;
    } live;
    steering_fault fault;
    uint64_t calls, launches;
    unsigned delay_us, least_delay_us;
    uint64_t random_state;
    char violation[2048];
} driver_state;

extern driver_state driver;

/* The state of the calling thread. */
typedef struct driver_thread_state {
    struct CUctx_st *contexts[CONTEXT_DEPTH];
    int depth;
    int capture_mode; /* 0: calls that a capture forbids fail */
} driver_thread_state;

extern _Thread_local driver_thread_state driver_thread;

/* Records the first rule that was broken; the lock is held. */
CUresult driver_violate(const char *what);

/* Zeroed memory for a stream, an event, a module or a function. It is never freed, so that a use
 * after its end is found out; a list keeps it reachable for leak checkers. The lock is held. */
void *driver_make_handle(size_t bytes);

/* The ordinal of the context that is current. */
int driver_current_ordinal(void);

/* Waits until no stream has work; the lock is held, and released meanwhile. */
void driver_wait_until_idle(void);

/* Reads a counter that other threads may be changing; the lock is not held. */
uint64_t driver_read_counter(const uint64_t *counter);

/* ---------------------------------------------------------------- entering ------------------- */

/* UNCAPTURED: fails while a stream is being captured, unless the thread's capture mode is
 * relaxed. */
enum { ANYWHERE = 0, IN_CONTEXT = 1, UNCAPTURED = 2 };

/* First step of every function: counts the call and returns the code that it is to fail with, if
 * any. Leaves the lock held. */
CUresult driver_enter(const char *function, int needs);

/* Releases the lock and returns `result`. */
CUresult driver_leave(CUresult result);

/* The same for functions that report earlier work: ILLEGAL_ADDRESS once a rule was broken. */
CUresult driver_leave_with_health(void);

#define ENTER(function, needs)                                     \
    do {                                                           \
        const CUresult entered = driver_enter(#function, needs);   \
        if (entered != CUDA_SUCCESS) return driver_leave(entered); \
    } while (0)

/* For functions that release something: one that is to fail still does its work, as the real
 * ones do when they report the failure of earlier work. */
#define ENTER_RELEASE(function, needs) const CUresult entered = driver_enter(#function, needs)

/* ---------------------------------------------------------------- streams -------------------- */

/* A stream of the current context; NULL without memory. The lock is held, here and below. */
struct CUstream_st *driver_make_stream(void);

/* The stream of a handle, which may be one of CUDA's own; NULL: it does not exist. */
struct CUstream_st *driver_find_stream(CUstream handle);

/* As cuStreamIsCapturing gives it. */
enum { CAPTURE_ACTIVE = 1, CAPTURE_INVALIDATED = 2 };
int driver_capture_state(const struct CUstream_st *stream);

/* Appends an operation to a stream's queue, or to the graph that it is being captured into. */
CUresult driver_enqueue(CUstream handle, operation what);

#endif
