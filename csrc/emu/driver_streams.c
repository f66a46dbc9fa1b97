/* Streams of the stand-in driver: a thread per stream, which carries out the operations of its
 * queue in order. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emu/driver_state.h"

/* The streams behind CUDA's own handles; made when they are first used. */
static struct CUstream_st *legacy_streams[MOST_DEVICES];
static _Thread_local struct CUstream_st *per_thread_streams[MOST_DEVICES];

/* ---------------------------------------------------------------- operations ----------------- */

static double seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static unsigned next_random(void)
{
    driver.random_state ^= driver.random_state << 13;
    driver.random_state ^= driver.random_state >> 7;
    driver.random_state ^= driver.random_state << 17;
    return (unsigned)(driver.random_state >> 32);
}

/* Checks an operation whose turn has come; the lock is held. */
static const char *check_operation(const operation *op)
{
    switch (op->kind) {
    case COPY_IN:
        return driver_find_allocation(op->to, op->bytes) != NULL
                   ? NULL
                   : "copy to memory that is not allocated";
    case COPY_OUT:
        if (driver_find_allocation(op->to, op->bytes) == NULL)
            return "copy to host memory that is not pinned";
        if (driver_find_allocation(op->from, op->bytes) == NULL)
            return "copy from memory that is not allocated";
        return driver_is_written(op->from, op->bytes)
                   ? NULL
                   : "copy to the host of memory that nobody has written";
    case COPY_WITHIN:
        if (driver_find_allocation(op->to, op->bytes) == NULL ||
            driver_find_allocation(op->from, op->bytes) == NULL)
            return "copy in device memory that is not allocated";
        return driver_is_written(op->from, op->bytes)
                   ? NULL
                   : "copy of device memory that nobody has written";
    case SET:
        return driver_find_allocation(op->to, op->bytes) != NULL
                   ? NULL
                   : "memset of memory that is not allocated";
    case LAUNCH:
        return op->module->live ? engine_check(op->launch)
                                : "launch from a module that was unloaded";
    default: return NULL;
    }
}

static void set_units(const operation *op)
{
    if (op->unit == 1) {
        memset((void *)op->to, (int)op->value, op->bytes);
        return;
    }
    for (size_t at = 0; at + op->unit <= op->bytes; at += op->pitch)
        memcpy((char *)op->to + at, &op->value, op->unit);
}

/* Notes the bytes that a copy or a memset has written; the lock is held. */
static void note_operation(const operation *op)
{
    const size_t unit = op->kind == SET ? op->unit : op->bytes,
                 pitch = op->kind == SET ? op->pitch : op->bytes;

    if (unit == pitch) {
        driver_note_written(op->to, op->bytes);
        return;
    }
    for (size_t at = 0; at + unit <= op->bytes; at += pitch) driver_note_written(op->to + at, unit);
}

/* Carries out an operation; no lock is held. Returns the error of a launch. */
static const char *carry_out(const operation *op)
{
    switch (op->kind) {
    case COPY_IN:
    case COPY_OUT:
    case COPY_WITHIN: memcpy((void *)op->to, (const void *)op->from, op->bytes); break;
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
    while (op->kind == WAIT && op->event->done < op->target)
        pthread_cond_wait(&driver.changed, &driver.lock);
    const unsigned delay =
        driver.delay_us > 0 && next_random() % 2 == 0 ? next_random() % driver.delay_us : 0;
    pthread_mutex_unlock(&driver.lock);
    dawdle(driver.least_delay_us + delay);
    pthread_mutex_lock(&driver.lock);
    const char *wrong = check_operation(op);
    if (wrong != NULL) {
        (void)driver_violate(wrong);
    } else if (driver.violation[0] == '\0') {
        pthread_mutex_unlock(&driver.lock);
        wrong = carry_out(op);
        pthread_mutex_lock(&driver.lock);
        if (wrong != NULL) (void)driver_violate(wrong);
        if (op->kind <= SET) note_operation(op); /* copies and memsets */
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

    pthread_mutex_lock(&driver.lock);
    while (!stream->stopping || stream->head != NULL) {
        operation *op = stream->head;
        if (op == NULL) {
            pthread_cond_wait(&driver.changed, &driver.lock);
            continue;
        }
        stream->head = op->next;
        stream->working = 1;
        do_operation(op);
        free(op);
        stream->working = 0;
        pthread_cond_broadcast(&driver.changed);
    }
    pthread_mutex_unlock(&driver.lock);
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

struct CUstream_st *driver_make_stream(void)
{
    struct CUstream_st *made = driver_make_handle(sizeof *made);

    if (made == NULL || pthread_create(&made->thread, NULL, serve, made) != 0) return NULL;
    made->live = 1;
    made->id = ++driver.last_id;
    made->context = driver_thread.contexts[driver_thread.depth - 1];
    made->next = driver.streams;
    driver.streams = made;
    return made;
}

struct CUstream_st *driver_find_stream(CUstream handle)
{
    struct CUstream_st **own = NULL;

    if (handle == GPR_STREAM_LEGACY) own = &legacy_streams[driver_current_ordinal()];
    if (handle == GPR_STREAM_PER_THREAD) own = &per_thread_streams[driver_current_ordinal()];
    if (own != NULL) {
        if (*own == NULL) *own = driver_make_stream();
        return *own;
    }
    for (struct CUstream_st *s = driver.streams; s != NULL; s = s->next) {
        if (s == handle) return s->live ? s : NULL;
    }
    return NULL;
}

CUresult driver_enqueue(CUstream handle, operation what)
{
    struct CUstream_st *stream = driver_find_stream(handle);

    if (stream == NULL) return driver_violate("use of a stream that does not exist");
    operation *op = malloc(sizeof *op);
    if (op == NULL) return OUT_OF_MEMORY;
    *op = what;
    op->next = NULL;
    if (stream->graph != NULL) {
        if (what.kind == RECORD || what.kind == WAIT) {
            free(op);
            return driver_violate("an event in a stream that is being captured");
        }
        append(&stream->graph->head, &stream->graph->tail, op);
        return CUDA_SUCCESS;
    }
    append(&stream->head, &stream->tail, op);
    if (what.kind == LAUNCH) what.module->queued++;
    if (what.kind == RECORD) what.event->recorded++;
    pthread_cond_broadcast(&driver.changed);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER(cuStreamCreate, IN_CONTEXT);
    struct CUstream_st *made = flags == CU_STREAM_NON_BLOCKING ? driver_make_stream() : NULL;
    if (made == NULL) return driver_leave(UNKNOWN);
    driver.live.streams++;
    *stream = made;
    return driver_leave(CUDA_SUCCESS);
}

/* Ends a stream once its work is done; the lock is given up. */
static void end_stream(struct CUstream_st *stream)
{
    stream->live = 0;
    stream->stopping = 1;
    driver.live.streams--;
    pthread_cond_broadcast(&driver.changed);
    pthread_mutex_unlock(&driver.lock);
    (void)pthread_join(stream->thread, NULL);
}

CUresult cuStreamDestroy(CUstream stream)
{
    ENTER_RELEASE(cuStreamDestroy, ANYWHERE);
    if (stream == NULL || !stream->live)
        return driver_leave(driver_violate("destruction of a stream that does not exist"));
    end_stream(stream);
    return entered;
}

CUresult cuStreamSynchronize(CUstream handle)
{
    ENTER(cuStreamSynchronize, IN_CONTEXT);
    struct CUstream_st *stream = driver_find_stream(handle);
    if (stream == NULL)
        return driver_leave(driver_violate("wait for a stream that does not exist"));
    if (stream->graph != NULL)
        return driver_leave(driver_violate("wait for a stream that is being captured"));
    while (stream->head != NULL || stream->working)
        pthread_cond_wait(&driver.changed, &driver.lock);
    return driver_leave_with_health();
}

/* ---------------------------------------------------------------- queries -------------------- */

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    ENTER(cuStreamGetCtx, IN_CONTEXT);
    const struct CUstream_st *stream = driver_find_stream(handle);
    if (stream == NULL) return driver_leave(INVALID_HANDLE);
    *context = stream->context;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
    ENTER(cuStreamGetId, IN_CONTEXT);
    const struct CUstream_st *stream = driver_find_stream(handle);
    if (stream == NULL) return driver_leave(INVALID_HANDLE);
    *id = stream->id;
    return driver_leave(CUDA_SUCCESS);
}

int driver_capture_state(const struct CUstream_st *stream)
{
    if (stream->graph == NULL) return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->graph->is_broken ? CAPTURE_INVALIDATED : CAPTURE_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream handle, int *state)
{
    ENTER(cuStreamIsCapturing, IN_CONTEXT);
    const struct CUstream_st *stream = driver_find_stream(handle);
    if (stream == NULL) return driver_leave(INVALID_HANDLE);
    *state = driver_capture_state(stream);
    return driver_leave(CUDA_SUCCESS);
}

/* ---------------------------------------------------------------- for tests ------------------ */

/* A stream of device `ordinal` for a caller of the library. No call that is counted, or made to
 * fail. */
GPR_API CUstream fake_make_stream(int ordinal)
{
    pthread_mutex_lock(&driver.lock);
    driver_thread.contexts[driver_thread.depth++] = &driver.contexts[ordinal];
    struct CUstream_st *made = driver_make_stream();
    driver_thread.depth--;
    driver.live.streams++;
    pthread_mutex_unlock(&driver.lock);
    return made;
}

GPR_API void fake_free_stream(CUstream stream)
{
    pthread_mutex_lock(&driver.lock);
    end_stream(stream);
}
