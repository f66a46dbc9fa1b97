/* A stand-in for libcuda on a machine without a GPU, strict where the real one is forgiving.
 *
 * Device memory is host memory. Each stream is a thread with a queue, so that a wait that the library forgets shows as a wrong
 * result; random delays (seeded) widen the windows. What a module is and what a launch does is the engine's (engine.h).
 *
 * Checked at every call: a current context, live handles, pointers inside live allocations, grids. What breaks a rule is recorded
 * (fake_violation) and poisons the context, as an illegal address does on a card; cuGetErrorString then says which rule it was.
 *
 * Tests steer it through the fake_* functions, or through the engine's variable, key=value,...:
 *   devices, cc, version, init (what cuInit returns), flags (of contexts), objects (that a graph holds), device_bytes, pinned_bytes (memory there is), seed, delay (most
 *   microseconds before an operation), least_delay (before each of them), fail=FUNCTION:NTH:CODE; other keys are the engine's. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"
#include "steering.h"

/* The functions of the driver under their exported names; a definition that differs from the library's declaration does not compile. */
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
    STREAM_CAPTURE_UNSUPPORTED = 900,
    UNKNOWN = 999
};

enum { MOST_DEVICES = 8, CONTEXT_DEPTH = 16, MULTIPROCESSORS = 4, RESIDENT_THREADS = 2048, MOST_OBJECTS = 64 };

/* ---------------------------------------------------------------- state ---------------------- */

struct CUctx_st {
    int retained;
};

typedef enum sort { DEVICE_MEMORY, PINNED_MEMORY, SORTS } sort;

struct CUevent_st {
    int live, timed;
    unsigned recorded, done; /* records queued and carried out */
    double when;             /* of the last one, seconds */
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
    enum { COPY_IN, COPY_OUT, SET, LAUNCH, RECORD, WAIT } kind;
    uintptr_t to, from;
    size_t bytes; /* of a copy; of a memset what it spans */
    unsigned value;
    size_t unit, pitch; /* bytes: of what a memset writes, and from one to the next */
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

/* What was captured, in order; each launch of the graph carries out copies. */
struct CUgraph_st {
    int live;
    unsigned long long id;
    operation *head, *tail;
    struct CUuserObject_st *objects[MOST_OBJECTS];
    int object_count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over everything below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct CUctx_st contexts[MOST_DEVICES];
static driver_allocation *allocations;
static struct CUstream_st *streams;
static struct CUstream_st *legacy_streams[MOST_DEVICES]; /* CUDA's own handles stand for them: made when first used */
static unsigned long long last_id;                       /* of streams and captures: never the same twice */
static int captures;                                     /* streams that are being captured */
static struct {
    int devices, cc, version, init;
    unsigned flags; /* of contexts */
    int objects;    /* that a graph holds */
    uint64_t memory[SORTS];
} machine = {.devices = 1, .cc = 90, .version = 13000, .objects = MOST_OBJECTS, .memory = {16ull << 30, 16ull << 30}};
static struct {
    uint64_t bytes[SORTS], peak[SORTS];
    int allocations[SORTS], streams, events, modules;
} live;
static steering_fault fault;
static struct {
    uintptr_t start;
    size_t bytes;
    uint64_t copied;
} watched;
static uint64_t pageable_bytes; /* copied in from memory that is not pinned */
static uint64_t calls_made, launches_made;
static unsigned delay_us, least_delay_us;
static uint64_t random_state = 1;
static char violation[2048];

static _Thread_local struct CUctx_st *context_stack[CONTEXT_DEPTH];
static _Thread_local int context_depth;
static _Thread_local struct CUstream_st *own_streams[MOST_DEVICES]; /* the per-thread default streams */
static _Thread_local int capture_mode;                              /* 0: calls that a capture forbids fail */

static double seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Records the first rule that was broken; the lock is held. */
static CUresult violate(const char *what)
{
    if (violation[0] == '\0') (void)snprintf(violation, sizeof violation, "%s", what);
    return ILLEGAL_ADDRESS;
}

/* Zeroed memory for a stream, an event, a module or a function. It is never freed, so that a use after its end is found out; a list
 * keeps it reachable for leak checkers. The lock is held. */
static void *make_handle(size_t bytes)
{
    typedef struct kept {
        struct kept *next;
        max_align_t handle;
    } kept;
    static kept *all;
    kept *made = calloc(1, sizeof *made + bytes);

    if (made == NULL) return NULL;
    made->next = all;
    all = made;
    return &made->handle;
}

/* ---------------------------------------------------------------- entering ------------------- */

/* UNCAPTURED: not while a stream is being captured, unless this thread said that it knows what it does. */
enum { ANYWHERE = 0, IN_CONTEXT = 1, UNCAPTURED = 2 };

/* What every function does first: counts the call and finds out whether it is to fail. Leaves the lock held. */
static CUresult enter(const char *function, int needs)
{
    pthread_mutex_lock(&lock);
    calls_made++;
    const int code = steering_meet(&fault, function);
    if (code != 0) return (CUresult)code;
    if ((needs & IN_CONTEXT) != 0 && context_depth == 0) {
        (void)violate(function);
        return INVALID_CONTEXT;
    }
    if ((needs & UNCAPTURED) != 0 && captures > 0 && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return STREAM_CAPTURE_UNSUPPORTED;
    return CUDA_SUCCESS;
}

static CUresult leave(CUresult result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

#define ENTER(function, needs)                              \
    do {                                                    \
        const CUresult entered = enter(#function, needs);   \
        if (entered != CUDA_SUCCESS) return leave(entered); \
    } while (0)

/* For functions that give something back: one that is to fail still does its work, as the real ones do when they report the
 * failure of earlier work. */
#define ENTER_RELEASE(function, needs) const CUresult entered = enter(#function, needs)

/* What a function that reports the work before it returns: the poison, if there is any. */
static CUresult leave_with_health(void)
{
    return leave(violation[0] == '\0' ? CUDA_SUCCESS : ILLEGAL_ADDRESS);
}

/* ---------------------------------------------------------------- memory --------------------- */

static driver_allocation *find_allocation(uintptr_t start, size_t bytes)
{
    for (driver_allocation *a = allocations; a != NULL; a = a->next) {
        if (start >= a->start && start - a->start <= a->bytes && bytes <= a->bytes - (start - a->start)) return a;
    }
    return NULL;
}

void driver_lock_memory(void)
{
    pthread_mutex_lock(&lock);
}

void driver_unlock_memory(void)
{
    pthread_mutex_unlock(&lock);
}

const driver_allocation *driver_allocations(void)
{
    return allocations;
}

const driver_allocation *driver_find_allocation(uintptr_t start, size_t bytes)
{
    return find_allocation(start, bytes);
}

/* Notes that [start, start + bytes), which is inside an allocation, holds something from now on. */
static void note_written(uintptr_t start, size_t bytes)
{
    const driver_allocation *a = find_allocation(start, bytes);

    if (a != NULL && a->written != NULL) memset(a->written + (start - a->start), 1, bytes);
}

/* Whether all of [start, start + bytes) has been written, as far as the engine follows that. */
static int is_written(uintptr_t start, size_t bytes)
{
    const driver_allocation *a = find_allocation(start, bytes);

    return a == NULL || a->written == NULL || memchr(a->written + (start - a->start), 0, bytes) == NULL;
}

/* The ordinal of the context that is current. */
static int current_ordinal(void)
{
    return context_depth > 0 ? (int)(context_stack[context_depth - 1] - contexts) : 0;
}

static CUresult allocate(sort where, size_t bytes, uintptr_t *start)
{
    enum { POISON = 0xc3, ALIGNMENT = 256, GUARD = 4096 }; /* what lies beyond the end belongs to nobody */
    void *memory = NULL;

    if (bytes == 0) return INVALID_VALUE;
    if (bytes > machine.memory[where] - live.bytes[where]) return OUT_OF_MEMORY;
    driver_allocation *a = malloc(sizeof *a);
    unsigned char *written = engine_tracks_writes ? calloc(bytes, 1) : NULL;
    if (a == NULL || (written == NULL && engine_tracks_writes) ||
        posix_memalign(&memory, ALIGNMENT, bytes + GUARD) != 0) {
        free(written);
        free(a);
        return OUT_OF_MEMORY;
    }
    memset(memory, POISON, bytes);
    if (written != NULL && where == PINNED_MEMORY) memset(written, 1, bytes); /* the host writes it when it likes */
    *a = (driver_allocation){.start = (uintptr_t)memory,
                             .bytes = bytes,
                             .pinned = where == PINNED_MEMORY,
                             .ordinal = current_ordinal(),
                             .written = written,
                             .next = allocations};
    allocations = a;
    live.allocations[where]++;
    live.bytes[where] += bytes;
    if (live.bytes[where] > live.peak[where]) live.peak[where] = live.bytes[where];
    *start = a->start;
    return CUDA_SUCCESS;
}

static void wait_until_idle(void)
{
    for (struct CUstream_st *s = streams; s != NULL; s = s->next) {
        while (s->head != NULL || s->working) pthread_cond_wait(&changed, &lock);
    }
}

static CUresult release(sort where, uintptr_t start)
{
    wait_until_idle();
    for (driver_allocation **at = &allocations; *at != NULL; at = &(*at)->next) {
        driver_allocation *a = *at;
        if (a->start != start) continue;
        if (a->pinned != (where == PINNED_MEMORY)) break;
        *at = a->next;
        live.allocations[where]--;
        live.bytes[where] -= a->bytes;
        free((void *)a->start);
        free(a->written);
        free(a);
        return CUDA_SUCCESS;
    }
    return violate("free of memory that is not allocated");
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    uintptr_t start = 0;

    ENTER(cuMemAlloc, IN_CONTEXT | UNCAPTURED);
    const CUresult result = allocate(DEVICE_MEMORY, bytes, &start);
    if (result == CUDA_SUCCESS) *pointer = start;
    return leave(result);
}

CUresult cuMemFree(CUdeviceptr pointer)
{
    ENTER_RELEASE(cuMemFree, IN_CONTEXT | UNCAPTURED);
    const CUresult result = release(DEVICE_MEMORY, (uintptr_t)pointer);
    return leave(entered != CUDA_SUCCESS ? entered : result);
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    uintptr_t start = 0;

    ENTER(cuMemHostAlloc, IN_CONTEXT | UNCAPTURED);
    if (flags != (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))
        (void)violate("pinned memory that kernels cannot reach");
    const CUresult result = allocate(PINNED_MEMORY, bytes, &start);
    if (result == CUDA_SUCCESS) *pointer = (void *)start;
    return leave(result);
}

CUresult cuMemFreeHost(void *pointer)
{
    ENTER_RELEASE(cuMemFreeHost, IN_CONTEXT | UNCAPTURED);
    const CUresult result = release(PINNED_MEMORY, (uintptr_t)pointer);
    return leave(entered != CUDA_SUCCESS ? entered : result);
}

/* One attribute of an allocation; 0 if the fake does not know it. */
static int get_attribute(const driver_allocation *a, int attribute, void *value)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = a == NULL ? 0 : a->pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return 1;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = 0; return 1;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = a == NULL ? -2 : a->ordinal; return 1;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = a == NULL ? 0 : a->start; return 1;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = a == NULL ? 0 : a->bytes; return 1;
    default: return 0;
    }
}

CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr pointer)
{
    ENTER(cuPointerGetAttributes, ANYWHERE);
    const driver_allocation *a = find_allocation((uintptr_t)pointer, 1);
    for (unsigned i = 0; i < count; i++) {
        if (!get_attribute(a, attributes[i], values[i])) return leave(INVALID_VALUE);
    }
    return leave(CUDA_SUCCESS);
}

/* ---------------------------------------------------------------- streams -------------------- */

static unsigned next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 32);
}

/* Checks an operation whose turn has come; the lock is held. */
static const char *check_operation(const operation *op)
{
    switch (op->kind) {
    case COPY_IN: return find_allocation(op->to, op->bytes) != NULL ? NULL : "copy to memory that is not allocated";
    case COPY_OUT:
        if (find_allocation(op->to, op->bytes) == NULL) return "copy to host memory that is not pinned";
        if (find_allocation(op->from, op->bytes) == NULL) return "copy from memory that is not allocated";
        return is_written(op->from, op->bytes) ? NULL : "copy to the host of memory that nobody has written";
    case SET: return find_allocation(op->to, op->bytes) != NULL ? NULL : "memset of memory that is not allocated";
    case LAUNCH: return op->module->live ? engine_check(op->launch) : "launch from a module that was unloaded";
    default: return NULL;
    }
}

static void set_units(const operation *op)
{
    if (op->unit == 1) {
        memset((void *)op->to, (int)op->value, op->bytes);
        return;
    }
    for (size_t at = 0; at + op->unit <= op->bytes; at += op->pitch) memcpy((char *)op->to + at, &op->value, op->unit);
}

/* Notes what a copy or a memset has written; the lock is held. */
static void note_operation(const operation *op)
{
    const size_t unit = op->kind == SET ? op->unit : op->bytes, pitch = op->kind == SET ? op->pitch : op->bytes;

    if (unit == pitch) {
        note_written(op->to, op->bytes);
        return;
    }
    for (size_t at = 0; at + unit <= op->bytes; at += pitch) note_written(op->to + at, unit);
}

/* Carries out an operation; no lock is held. What it returns is what a launch does wrong. */
static const char *carry_out(const operation *op)
{
    switch (op->kind) {
    case COPY_IN:
    case COPY_OUT: memcpy((void *)op->to, (const void *)op->from, op->bytes); break;
    case SET: set_units(op); break;
    case LAUNCH: return engine_run(op->launch);
    default: break;
    }
    return NULL;
}

static void dawdle(unsigned microseconds)
{
    const struct timespec time = {.tv_nsec = 1000L * (long)microseconds};

    if (microseconds > 0) (void)nanosleep(&time, NULL);
}

static void do_operation(const operation *op)
{
    while (op->kind == WAIT && op->event->done < op->target) pthread_cond_wait(&changed, &lock);
    const unsigned delay = delay_us > 0 && next_random() % 2 == 0 ? next_random() % delay_us : 0;
    pthread_mutex_unlock(&lock);
    dawdle(least_delay_us + delay);
    pthread_mutex_lock(&lock);
    const char *wrong = check_operation(op);
    if (wrong != NULL) {
        (void)violate(wrong);
    } else if (violation[0] == '\0') {
        pthread_mutex_unlock(&lock);
        wrong = carry_out(op);
        pthread_mutex_lock(&lock);
        if (wrong != NULL) (void)violate(wrong);
        if (op->kind == COPY_IN || op->kind == COPY_OUT || op->kind == SET) note_operation(op);
    }
    if (op->kind == LAUNCH) {
        engine_drop(op->launch);
        op->module->queued--;
    }
    if (op->kind == RECORD) {
        op->event->done++;
        op->event->when = seconds();
    }
}

static void *serve(void *argument)
{
    struct CUstream_st *stream = argument;

    pthread_mutex_lock(&lock);
    while (!stream->stopping || stream->head != NULL) {
        operation *op = stream->head;
        if (op == NULL) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        stream->head = op->next;
        stream->working = 1;
        do_operation(op);
        free(op);
        stream->working = 0;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void append(operation **head, operation **tail, operation *op)
{
    if (*head == NULL) {
        *head = op;
    } else {
        (*tail)->next = op;
    }
    *tail = op;
}

static struct CUstream_st *make_stream(void)
{
    struct CUstream_st *made = make_handle(sizeof *made);

    if (made == NULL || pthread_create(&made->thread, NULL, serve, made) != 0) return NULL;
    made->live = 1;
    made->id = ++last_id;
    made->context = context_stack[context_depth - 1];
    made->next = streams;
    streams = made;
    return made;
}

/* The stream behind a handle, which may be one of CUDA's own; NULL: there is none. */
static struct CUstream_st *find_stream(CUstream handle)
{
    struct CUstream_st **own = NULL;

    if (handle == GPR_STREAM_LEGACY) own = &legacy_streams[current_ordinal()];
    if (handle == GPR_STREAM_PER_THREAD) own = &own_streams[current_ordinal()];
    if (own != NULL) {
        if (*own == NULL) *own = make_stream();
        return *own;
    }
    for (struct CUstream_st *s = streams; s != NULL; s = s->next) {
        if (s == handle) return s->live ? s : NULL;
    }
    return NULL;
}

static CUresult enqueue(CUstream handle, operation what)
{
    struct CUstream_st *stream = find_stream(handle);

    if (stream == NULL) return violate("use of a stream that does not exist");
    operation *op = malloc(sizeof *op);
    if (op == NULL) return OUT_OF_MEMORY;
    *op = what;
    op->next = NULL;
    if (stream->graph != NULL) {
        if (what.kind == RECORD || what.kind == WAIT) {
            free(op);
            return violate("an event in a stream that is being captured");
        }
        append(&stream->graph->head, &stream->graph->tail, op);
        return CUDA_SUCCESS;
    }
    append(&stream->head, &stream->tail, op);
    if (what.kind == LAUNCH) what.module->queued++;
    if (what.kind == RECORD) what.event->recorded++;
    pthread_cond_broadcast(&changed);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER(cuStreamCreate, IN_CONTEXT);
    struct CUstream_st *made = flags == CU_STREAM_NON_BLOCKING ? make_stream() : NULL;
    if (made == NULL) return leave(UNKNOWN);
    live.streams++;
    *stream = made;
    return leave(CUDA_SUCCESS);
}

/* Ends a stream once its work is done; the lock is given up. */
static void end_stream(struct CUstream_st *stream)
{
    stream->live = 0;
    stream->stopping = 1;
    live.streams--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    (void)pthread_join(stream->thread, NULL);
}

CUresult cuStreamDestroy(CUstream stream)
{
    ENTER_RELEASE(cuStreamDestroy, ANYWHERE);
    if (stream == NULL || !stream->live) return leave(violate("destruction of a stream that does not exist"));
    end_stream(stream);
    return entered;
}

CUresult cuStreamSynchronize(CUstream handle)
{
    ENTER(cuStreamSynchronize, IN_CONTEXT);
    struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL) return leave(violate("wait for a stream that does not exist"));
    if (stream->graph != NULL) return leave(violate("wait for a stream that is being captured"));
    while (stream->head != NULL || stream->working) pthread_cond_wait(&changed, &lock);
    return leave_with_health();
}

static int event_exists(CUevent event)
{
    if (event != NULL && event->live) return 1;
    (void)violate("use of an event that does not exist");
    return 0;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    ENTER(cuStreamWaitEvent, IN_CONTEXT);
    if (!event_exists(event) || flags != 0) return leave(INVALID_HANDLE);
    return leave(enqueue(stream, (operation){.kind = WAIT, .event = event, .target = event->recorded}));
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    ENTER(cuEventCreate, IN_CONTEXT);
    struct CUevent_st *made = make_handle(sizeof *made);
    if (made == NULL) return leave(OUT_OF_MEMORY);
    made->live = 1;
    made->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    live.events++;
    *event = made;
    return leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy(CUevent event)
{
    ENTER_RELEASE(cuEventDestroy, ANYWHERE);
    if (!event_exists(event)) return leave(INVALID_HANDLE);
    event->live = 0;
    live.events--;
    return leave(entered);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER(cuEventRecord, IN_CONTEXT);
    if (!event_exists(event)) return leave(INVALID_HANDLE);
    return leave(enqueue(stream, (operation){.kind = RECORD, .event = event}));
}

CUresult cuEventSynchronize(CUevent event)
{
    ENTER(cuEventSynchronize, IN_CONTEXT);
    if (!event_exists(event)) return leave(INVALID_HANDLE);
    const unsigned target = event->recorded;
    while (event->done < target) pthread_cond_wait(&changed, &lock);
    return leave_with_health();
}

CUresult cuEventQuery(CUevent event)
{
    ENTER(cuEventQuery, IN_CONTEXT | UNCAPTURED);
    if (!event_exists(event)) return leave(INVALID_HANDLE);
    return leave(event->done < event->recorded ? NOT_READY : CUDA_SUCCESS);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    ENTER(cuEventElapsedTime, IN_CONTEXT);
    if (!event_exists(start) || !event_exists(end)) return leave(INVALID_HANDLE);
    if (!start->timed || !end->timed || start->recorded == 0 || end->recorded == 0) return leave(INVALID_HANDLE);
    if (start->done < start->recorded || end->done < end->recorded) return leave(NOT_READY);
    *milliseconds = (float)((end->when - start->when) * 1e3);
    return leave(CUDA_SUCCESS);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    const uintptr_t source = (uintptr_t)from;

    ENTER(cuMemcpyHtoDAsync, IN_CONTEXT);
    if (find_allocation((uintptr_t)to, bytes) == NULL) return leave(violate("copy to memory that is not allocated"));
    if (find_allocation(source, bytes) == NULL) pageable_bytes += bytes;
    if (source >= watched.start && source - watched.start < watched.bytes) watched.copied += bytes;
    return leave(enqueue(stream, (operation){.kind = COPY_IN, .to = (uintptr_t)to, .from = source, .bytes = bytes}));
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER(cuMemcpyDtoHAsync, IN_CONTEXT);
    return leave(
        enqueue(stream, (operation){.kind = COPY_OUT, .to = (uintptr_t)to, .from = (uintptr_t)from, .bytes = bytes}));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    ENTER(cuMemsetD8Async, IN_CONTEXT);
    return leave(enqueue(
        stream, (operation){.kind = SET, .to = (uintptr_t)to, .value = value, .bytes = bytes, .unit = 1, .pitch = 1}));
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    const size_t unit = sizeof value;

    ENTER(cuMemsetD16Async, IN_CONTEXT);
    if (to % unit != 0) return leave(INVALID_VALUE);
    return leave(enqueue(
        stream,
        (operation){
            .kind = SET, .to = (uintptr_t)to, .value = value, .bytes = count * unit, .unit = unit, .pitch = unit}));
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream)
{
    const size_t unit = sizeof value;

    ENTER(cuMemsetD2D32Async, IN_CONTEXT);
    /* One column is what the library asks for. */
    if (to % unit != 0 || pitch % unit != 0 || width != 1 || height == 0) return leave(INVALID_VALUE);
    return leave(enqueue(stream, (operation){.kind = SET,
                                             .to = (uintptr_t)to,
                                             .value = value,
                                             .bytes = (height - 1) * pitch + unit,
                                             .unit = unit,
                                             .pitch = pitch}));
}

/* ---------------------------------------------------------------- what streams are ----------- */

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    ENTER(cuStreamGetCtx, IN_CONTEXT);
    const struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL) return leave(INVALID_HANDLE);
    *context = stream->context;
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    ENTER(cuStreamGetId, IN_CONTEXT);
    const struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL) return leave(INVALID_HANDLE);
    *id = stream->id;
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamIsCapturing(CUstream handle, int *state)
{
    ENTER(cuStreamIsCapturing, IN_CONTEXT);
    const struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL) return leave(INVALID_HANDLE);
    *state = stream->graph != NULL;
    return leave(CUDA_SUCCESS);
}

/* ---------------------------------------------------------------- captures ------------------- */

CUresult cuStreamGetCaptureInfo(CUstream handle, int *state, unsigned long long *id, CUgraph *graph,
                                const CUgraphNode **dependencies, size_t *dependency_count)
{
    ENTER(cuStreamGetCaptureInfo, IN_CONTEXT);
    const struct CUstream_st *stream = find_stream(handle);
    if (stream == NULL || dependencies != NULL || dependency_count != NULL) return leave(INVALID_VALUE);
    *state = stream->graph != NULL;
    if (stream->graph == NULL) return leave(CUDA_SUCCESS);
    *id = stream->graph->id;
    *graph = stream->graph;
    return leave(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER(cuThreadExchangeStreamCaptureMode, ANYWHERE);
    const int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return leave(CUDA_SUCCESS);
}

CUresult cuUserObjectCreate(CUuserObject *object, void *argument, CUhostFn destroy, unsigned references, unsigned flags)
{
    ENTER(cuUserObjectCreate, ANYWHERE);
    struct CUuserObject_st *made = make_handle(sizeof *made);
    if (made == NULL || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return leave(INVALID_VALUE);
    *made = (struct CUuserObject_st){.references = references, .destroy = destroy, .argument = argument};
    *object = made;
    return leave(CUDA_SUCCESS);
}

/* Calls the object's function with the last reference, not holding the lock, as the driver does on a thread of its own. */
static void drop_object(CUuserObject object, unsigned count)
{
    object->references -= count;
    if (object->references > 0) return;
    pthread_mutex_unlock(&lock);
    object->destroy(object->argument);
    pthread_mutex_lock(&lock);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
    ENTER_RELEASE(cuUserObjectRelease, ANYWHERE);
    if (object == NULL || object->references < count) return leave(violate("release of an object that is not held"));
    drop_object(object, count);
    return leave(entered);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    ENTER(cuGraphRetainUserObject, ANYWHERE);
    if (graph == NULL || !graph->live || count != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE ||
        graph->object_count == machine.objects)
        return leave(INVALID_VALUE);
    graph->objects[graph->object_count++] = object;
    return leave(CUDA_SUCCESS);
}

/* ---------------------------------------------------------------- modules -------------------- */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER(cuModuleLoadData, IN_CONTEXT | UNCAPTURED);
    struct CUmod_st *made = make_handle(sizeof *made);
    const CUresult result = made != NULL ? engine_load(image, machine.cc, &made->loaded) : OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) return leave(result);
    made->live = 1;
    live.modules++;
    *module = made;
    return leave(CUDA_SUCCESS);
}

CUresult cuModuleUnload(CUmodule module)
{
    ENTER_RELEASE(cuModuleUnload, IN_CONTEXT | UNCAPTURED);
    if (module == NULL || !module->live) return leave(violate("unloading of a module that is not loaded"));
    if (module->queued > 0) (void)violate("unloading of a module whose kernel has yet to end");
    if (module->queued == 0) engine_unload(module->loaded);
    module->live = 0;
    live.modules--;
    return leave(entered);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    ENTER(cuModuleGetFunction, IN_CONTEXT);
    if (module == NULL || !module->live) return leave(violate("a function of a module that is not loaded"));
    struct CUfunc_st *made = make_handle(sizeof *made);
    const CUresult result = made != NULL ? engine_find(module->loaded, name, &made->kernel) : OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) return leave(result);
    made->module = module;
    *function = made;
    return leave(CUDA_SUCCESS);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **arguments,
                        void **extra)
{
    operation op = {.kind = LAUNCH};

    ENTER(cuLaunchKernel, IN_CONTEXT);
    if (!function->module->live) return leave(violate("launch from a module that was unloaded"));
    if (grid_x == 0 || grid_x > 0x7fffffff || grid_y != 1 || grid_z != 1 || block_x == 0 || block_x > 1024 ||
        block_y != 1 || block_z != 1 || shared_bytes != 0 || extra != NULL) {
        return leave(violate("launch of an impossible grid"));
    }
    op.module = function->module;
    const char *wrong = engine_prepare(function->kernel, grid_x, block_x, arguments, &op.launch);
    if (wrong != NULL) return leave(violate(wrong));
    if (op.launch == NULL) return leave(OUT_OF_MEMORY);
    const CUresult result = enqueue(stream, op);
    if (result != CUDA_SUCCESS)
        engine_drop(op.launch);
    else
        launches_made++;
    return leave(result);
}

/* ---------------------------------------------------------------- devices and contexts ------- */

CUresult cuInit(unsigned flags)
{
    ENTER(cuInit, ANYWHERE);
    return leave(flags == 0 ? machine.init : INVALID_VALUE);
}

CUresult cuDriverGetVersion(int *version)
{
    ENTER(cuDriverGetVersion, ANYWHERE);
    *version = machine.version;
    return leave(CUDA_SUCCESS);
}

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

/* These two never fail and are not counted: the library calls them to describe a failure. */
CUresult cuGetErrorName(CUresult error, const char **name)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code == error) return *name = errors[i].name, CUDA_SUCCESS;
    }
    return *name = NULL, INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    /* Static once it is there: a violation is written once. */
    if (error == ILLEGAL_ADDRESS && violation[0] != '\0') return *text = violation, CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code == error) return *text = errors[i].text, CUDA_SUCCESS;
    }
    return *text = NULL, INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER(cuDeviceGetCount, ANYWHERE);
    *count = machine.devices;
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(cuDeviceGet, ANYWHERE);
    if (ordinal < 0 || ordinal >= machine.devices) return leave(INVALID_DEVICE);
    *device = ordinal;
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    ENTER(cuDeviceGetName, ANYWHERE);
    (void)snprintf(name, (size_t)length, "%s %d", engine_device_name, device);
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    ENTER(cuDeviceGetAttribute, ANYWHERE);
    if (device < 0 || device >= machine.devices) return leave(INVALID_DEVICE);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = MULTIPROCESSORS; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 1000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 64; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = RESIDENT_THREADS; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = machine.cc / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = machine.cc % 10; break;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: *value = 2; break;
    default: return leave(INVALID_VALUE);
    }
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    ENTER(cuDeviceTotalMem, ANYWHERE);
    (void)device;
    *bytes = machine.memory[DEVICE_MEMORY];
    return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    ENTER(cuDeviceGetUuid, ANYWHERE);
    memset(uuid, device + 1, sizeof *uuid);
    return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRetain, ANYWHERE);
    if (device < 0 || device >= machine.devices) return leave(INVALID_DEVICE);
    contexts[device].retained++;
    *context = &contexts[device];
    return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    ENTER_RELEASE(cuDevicePrimaryCtxRelease, ANYWHERE);
    if (contexts[device].retained == 0) return leave(violate("release of a context that is not retained"));
    contexts[device].retained--;
    return leave(entered);
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    ENTER(cuCtxPushCurrent, ANYWHERE);
    if (context == NULL || context->retained == 0) return leave(violate("use of a context that is not retained"));
    if (context_depth == CONTEXT_DEPTH) return leave(violate("contexts are pushed and not popped"));
    context_stack[context_depth++] = context;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    ENTER_RELEASE(cuCtxPopCurrent, IN_CONTEXT);
    if (context_depth == 0) return leave(violate("pop of a context that was not pushed"));
    *context = context_stack[--context_depth];
    return leave(entered);
}

/* Who waits is to learn what an engine finds out about a kernel at its end: nobody looks out for results before. */
CUresult cuCtxGetFlags(unsigned *flags)
{
    ENTER(cuCtxGetFlags, IN_CONTEXT);
    *flags = engine_tracks_writes ? CU_CTX_SCHED_BLOCKING_SYNC : machine.flags;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void)
{
    ENTER(cuCtxSynchronize, IN_CONTEXT | UNCAPTURED);
    wait_until_idle();
    return leave_with_health();
}

/* ---------------------------------------------------------------- for tests ------------------ */

/* See steering_fail. */
GPR_API void fake_fail(const char *function, int nth, int code)
{
    pthread_mutex_lock(&lock);
    steering_fail(&fault, function, nth, code);
    pthread_mutex_unlock(&lock);
}

/* The function that failed because of fake_fail, "" if none did yet. */
GPR_API const char *fake_failed(void)
{
    return fault.failed;
}

/* The first rule that was broken, "" if none was. */
GPR_API const char *fake_violation(void)
{
    return violation;
}

/* A stream of device `ordinal` for a caller of the library. No call that is counted, or made to fail. */
GPR_API CUstream fake_make_stream(int ordinal)
{
    pthread_mutex_lock(&lock);
    context_stack[context_depth++] = &contexts[ordinal];
    struct CUstream_st *made = make_stream();
    context_depth--;
    live.streams++;
    pthread_mutex_unlock(&lock);
    return made;
}

GPR_API void fake_free_stream(CUstream stream)
{
    pthread_mutex_lock(&lock);
    end_stream(stream);
}

/* Waits for all that is queued, anywhere. */
GPR_API void fake_wait(void)
{
    pthread_mutex_lock(&lock);
    wait_until_idle();
    pthread_mutex_unlock(&lock);
}

/* From now on what is queued on the stream is not carried out but kept for the graph. */
GPR_API void fake_begin_capture(CUstream stream)
{
    pthread_mutex_lock(&lock);
    struct CUgraph_st *graph = make_handle(sizeof *graph);
    graph->live = 1;
    graph->id = ++last_id;
    stream->graph = graph;
    captures++;
    pthread_mutex_unlock(&lock);
}

GPR_API CUgraph fake_end_capture(CUstream stream)
{
    pthread_mutex_lock(&lock);
    CUgraph graph = stream->graph;
    stream->graph = NULL;
    captures--;
    pthread_mutex_unlock(&lock);
    return graph;
}

/* Queues all of the graph on a stream. */
GPR_API int fake_launch_graph(CUgraph graph, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    for (const operation *op = graph->head; op != NULL && result == CUDA_SUCCESS; op = op->next) {
        operation copy = *op;
        if (copy.kind == LAUNCH) result = engine_again(op->launch, &copy.launch) ? CUDA_SUCCESS : OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) result = enqueue(stream, copy);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

GPR_API void fake_destroy_graph(CUgraph graph)
{
    pthread_mutex_lock(&lock);
    wait_until_idle();
    graph->live = 0;
    while (graph->head != NULL) {
        operation *op = graph->head;
        graph->head = op->next;
        if (op->kind == LAUNCH) engine_drop(op->launch);
        free(op);
    }
    for (int i = 0; i < graph->object_count; i++) drop_object(graph->objects[i], 1);
    pthread_mutex_unlock(&lock);
}

/* What is alive: "device", "pinned" (allocations), "streams", "events", "modules", "contexts", "depth" (of this thread's stack). */
GPR_API int fake_live(const char *what)
{
    int count = -1;

    pthread_mutex_lock(&lock);
    if (strcmp(what, "device") == 0) count = live.allocations[DEVICE_MEMORY];
    if (strcmp(what, "pinned") == 0) count = live.allocations[PINNED_MEMORY];
    if (strcmp(what, "streams") == 0) count = live.streams;
    if (strcmp(what, "events") == 0) count = live.events;
    if (strcmp(what, "modules") == 0) count = live.modules;
    if (strcmp(what, "depth") == 0) count = context_depth;
    if (strcmp(what, "contexts") == 0) {
        count = 0;
        for (int i = 0; i < MOST_DEVICES; i++) count += contexts[i].retained;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

/* Reads a counter that other threads may be changing. */
static uint64_t read_counter(const uint64_t *counter)
{
    pthread_mutex_lock(&lock);
    const uint64_t value = *counter;
    pthread_mutex_unlock(&lock);
    return value;
}

/* Streams with work that has not ended. */
GPR_API int fake_busy(void)
{
    int busy = 0;

    pthread_mutex_lock(&lock);
    for (struct CUstream_st *s = streams; s != NULL; s = s->next) busy += s->head != NULL || s->working;
    pthread_mutex_unlock(&lock);
    return busy;
}

/* Bytes allocated now; pinned 0: device memory, 1: pinned. */
GPR_API uint64_t fake_bytes(int pinned)
{
    return read_counter(&live.bytes[pinned]);
}

/* Most bytes allocated at once since fake_reset_peaks. */
GPR_API uint64_t fake_peak(int pinned)
{
    return read_counter(&live.peak[pinned]);
}

GPR_API void fake_reset_peaks(void)
{
    pthread_mutex_lock(&lock);
    memcpy(live.peak, live.bytes, sizeof live.peak);
    pthread_mutex_unlock(&lock);
}

GPR_API void fake_set_memory(uint64_t device_bytes, uint64_t pinned_bytes)
{
    pthread_mutex_lock(&lock);
    machine.memory[DEVICE_MEMORY] = device_bytes;
    machine.memory[PINNED_MEMORY] = pinned_bytes;
    pthread_mutex_unlock(&lock);
}

GPR_API void fake_set_delays(unsigned seed, unsigned most_us)
{
    pthread_mutex_lock(&lock);
    random_state = 0x9e3779b97f4a7c15ull ^ seed;
    delay_us = most_us;
    pthread_mutex_unlock(&lock);
}

GPR_API unsigned fake_calls(void)
{
    return (unsigned)read_counter(&calls_made);
}

GPR_API unsigned fake_launches(void)
{
    return (unsigned)read_counter(&launches_made);
}

/* Counts from now on the bytes that are copied in from [start, start + bytes). */
GPR_API void fake_watch(const void *start, size_t bytes)
{
    pthread_mutex_lock(&lock);
    watched.start = (uintptr_t)start;
    watched.bytes = bytes;
    watched.copied = 0;
    pthread_mutex_unlock(&lock);
}

GPR_API uint64_t fake_watched(void)
{
    return read_counter(&watched.copied);
}

/* Bytes copied in so far from memory that is not pinned. */
GPR_API uint64_t fake_pageable(void)
{
    return read_counter(&pageable_bytes);
}

static void set_option(const char *key, const char *value)
{
    const unsigned long long number = strtoull(value, NULL, 0);
    char function[STEERING_NAME_ROOM];
    int nth = 0, code = 0;

    if (strcmp(key, "devices") == 0) machine.devices = (int)number;
    if (strcmp(key, "objects") == 0 && number <= MOST_OBJECTS) machine.objects = (int)number;
    if (strcmp(key, "cc") == 0) machine.cc = (int)number;
    if (strcmp(key, "version") == 0) machine.version = (int)number;
    if (strcmp(key, "flags") == 0) machine.flags = (unsigned)number;
    if (strcmp(key, "init") == 0) machine.init = (int)number;
    if (strcmp(key, "device_bytes") == 0) machine.memory[DEVICE_MEMORY] = number;
    if (strcmp(key, "pinned_bytes") == 0) machine.memory[PINNED_MEMORY] = number;
    if (strcmp(key, "seed") == 0) random_state ^= number << 8;
    if (strcmp(key, "delay") == 0) delay_us = (unsigned)number;
    if (strcmp(key, "least_delay") == 0) least_delay_us = (unsigned)number;
    if (strcmp(key, "fail") == 0 && steering_parse(value, function, &nth, &code)) fake_fail(function, nth, code);
    engine_set(key, value);
}

/* Sets one option as the variable does; while nothing is under way. */
GPR_API void fake_set(const char *key, const char *value)
{
    set_option(key, value);
}

__attribute__((constructor)) static void read_environment(void)
{
    steering_read(engine_variable, set_option);
}
