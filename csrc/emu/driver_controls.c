/* How tests steer the stand-in driver: the fake_* functions, and options, which the engine's
 * environment variable holds as key=value,...:
 *
 *   devices, cc, version         of the machine
 *   init                         the code that cuInit returns
 *   flags                        of contexts
 *   objects                      user objects that a graph holds
 *   device_bytes, pinned_bytes   memory of the machine
 *   seed, delay, least_delay     most and least microseconds before each operation
 *   fail=FUNCTION:NTH:CODE       the nth call of that function fails
 *
 * Other keys are the engine's. */
#include <stdlib.h>
#include <string.h>

#include "emu/driver_state.h"

/* See steering_fail. */
GPR_API void fake_fail(const char *function, int nth, int code)
{
    pthread_mutex_lock(&driver.lock);
    steering_fail(&driver.fault, function, nth, code);
    pthread_mutex_unlock(&driver.lock);
}

/* The function that failed because of fake_fail, "" if none did yet. */
GPR_API const char *fake_failed(void)
{
    return driver.fault.failed;
}

/* The first rule that was broken, "" if none was. */
GPR_API const char *fake_violation(void)
{
    return driver.violation;
}

/* Waits for all that is queued, anywhere. */
GPR_API void fake_wait(void)
{
    pthread_mutex_lock(&driver.lock);
    driver_wait_until_idle();
    pthread_mutex_unlock(&driver.lock);
}

/* The number of live objects: "device", "pinned" (allocations), "streams", "events", "modules",
 * "contexts", "depth" (of this thread's stack). */
GPR_API int fake_live(const char *what)
{
    int count = -1;

    pthread_mutex_lock(&driver.lock);
    if (strcmp(what, "device") == 0) count = driver.live.allocations[DEVICE_MEMORY];
    if (strcmp(what, "pinned") == 0) count = driver.live.allocations[PINNED_MEMORY];
    if (strcmp(what, "streams") == 0) count = driver.live.streams;
    if (strcmp(what, "events") == 0) count = driver.live.events;
    if (strcmp(what, "modules") == 0) count = driver.live.modules;
    if (strcmp(what, "depth") == 0) count = driver_thread.depth;
    if (strcmp(what, "contexts") == 0) {
        count = 0;
        for (int i = 0; i < MOST_DEVICES; i++) count += driver.contexts[i].retained;
    }
    pthread_mutex_unlock(&driver.lock);
    return count;
}

/* Streams with work that has not ended. */
GPR_API int fake_busy(void)
{
    int busy = 0;

    pthread_mutex_lock(&driver.lock);
    for (struct CUstream_st *s = driver.streams; s != NULL; s = s->next)
        busy += s->head != NULL || s->working;
    pthread_mutex_unlock(&driver.lock);
    return busy;
}

/* Bytes allocated now; pinned 0: device memory, 1: pinned. */
GPR_API uint64_t fake_bytes(int pinned)
{
    return driver_read_counter(&driver.live.bytes[pinned]);
}

/* Allocations since the start, freed ones too; pinned as for fake_bytes. */
GPR_API uint64_t fake_allocated(int pinned)
{
    return driver_read_counter(&driver.live.allocated[pinned]);
}

/* Most bytes allocated at once since fake_reset_peaks. */
GPR_API uint64_t fake_peak(int pinned)
{
    return driver_read_counter(&driver.live.peak[pinned]);
}

GPR_API void fake_reset_peaks(void)
{
    pthread_mutex_lock(&driver.lock);
    memcpy(driver.live.peak, driver.live.bytes, sizeof driver.live.peak);
    pthread_mutex_unlock(&driver.lock);
}

GPR_API void fake_set_memory(uint64_t device_bytes, uint64_t pinned_bytes)
{
    pthread_mutex_lock(&driver.lock);
    driver.machine.memory[DEVICE_MEMORY] = device_bytes;
    driver.machine.memory[PINNED_MEMORY] = pinned_bytes;
    pthread_mutex_unlock(&driver.lock);
}

GPR_API void fake_set_delays(unsigned seed, unsigned most_us)
{
    pthread_mutex_lock(&driver.lock);
    driver.random_state = 0x9e3779b97f4a7c15ull ^ seed;
    driver.delay_us = most_us;
    pthread_mutex_unlock(&driver.lock);
}

GPR_API unsigned fake_calls(void)
{
    return (unsigned)driver_read_counter(&driver.calls);
}

GPR_API unsigned fake_launches(void)
{
    return (unsigned)driver_read_counter(&driver.launches);
}

static void set_option(const char *key, const char *value)
{
    const unsigned long long number = strtoull(value, NULL, 0);
    char function[STEERING_NAME_ROOM];
    int nth = 0, code = 0;

    if (strcmp(key, "devices") == 0) driver.machine.devices = (int)number;
    if (strcmp(key, "objects") == 0 && number <= MOST_OBJECTS) driver.machine.objects = (int)number;
    if (strcmp(key, "cc") == 0) driver.machine.cc = (int)number;
    if (strcmp(key, "version") == 0) driver.machine.version = (int)number;
    if (strcmp(key, "flags") == 0) driver.machine.flags = (unsigned)number;
    if (strcmp(key, "init") == 0) driver.machine.init = (int)number;
    if (strcmp(key, "device_bytes") == 0) driver.machine.memory[DEVICE_MEMORY] = number;
    if (strcmp(key, "pinned_bytes") == 0) driver.machine.memory[PINNED_MEMORY] = number;
    if (strcmp(key, "seed") == 0) driver.random_state ^= number << 8;
    if (strcmp(key, "delay") == 0) driver.delay_us = (unsigned)number;
    if (strcmp(key, "least_delay") == 0) driver.least_delay_us = (unsigned)number;
    if (strcmp(key, "fail") == 0 && steering_parse(value, function, &nth, &code))
        fake_fail(function, nth, code);
    engine_set(key, value);
}

/* Sets one option as the variable does; while nothing is under way. */
GPR_API void fake_set(const char *key, const char *value)
{
    set_option(key, value);
}

/* See engine_relied. */
GPR_API unsigned fake_relied(void)
{
    return engine_relied();
}

__attribute__((constructor)) static void read_environment(void)
{
    driver.machine.tracks_writes = engine_tracks_writes;
    steering_read(engine_variable, set_option);
}
