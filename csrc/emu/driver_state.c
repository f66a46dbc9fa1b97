/* The stand-in driver's state, and how its functions begin and end. */
#include <stdio.h>
#include <stdlib.h>

#include "emu/driver_state.h"

driver_state driver = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .machine = {.devices = 1,
                .cc = 90,
                .version = 13000,
                .objects = MOST_OBJECTS,
                .memory = {16ull << 30, 16ull << 30}},
    .random_state = 1,
};
_Thread_local driver_thread_state driver_thread;

CUresult driver_violate(const char *what)
{
    if (driver.violation[0] == '\0')
        (void)snprintf(driver.violation, sizeof driver.violation, "%s", what);
    return ILLEGAL_ADDRESS;
}

void *driver_make_handle(size_t bytes)
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

int driver_current_ordinal(void)
{
    return driver_thread.depth > 0
               ? (int)(driver_thread.contexts[driver_thread.depth - 1] - driver.contexts)
               : 0;
}

void driver_wait_until_idle(void)
{
    for (struct CUstream_st *s = driver.streams; s != NULL; s = s->next) {
        while (s->head != NULL || s->working) pthread_cond_wait(&driver.changed, &driver.lock);
    }
}

uint64_t driver_read_counter(const uint64_t *counter)
{
    pthread_mutex_lock(&driver.lock);
    const uint64_t value = *counter;
    pthread_mutex_unlock(&driver.lock);
    return value;
}

/* ---------------------------------------------------------------- entering ------------------- */

CUresult driver_enter(const char *function, int needs)
{
    pthread_mutex_lock(&driver.lock);
    driver.calls++;
    const int code = steering_meet(&driver.fault, function);
    if (code != 0) return (CUresult)code;
    if ((needs & IN_CONTEXT) != 0 && driver_thread.depth == 0) {
        (void)driver_violate(function);
        return INVALID_CONTEXT;
    }
    if ((needs & UNCAPTURED) != 0 && driver.captures > 0 &&
        driver_thread.capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return STREAM_CAPTURE_UNSUPPORTED;
    return CUDA_SUCCESS;
}

CUresult driver_leave(CUresult result)
{
    pthread_mutex_unlock(&driver.lock);
    return result;
}

CUresult driver_leave_with_health(void)
{
    return driver_leave(driver.violation[0] == '\0' ? CUDA_SUCCESS : ILLEGAL_ADDRESS);
}
