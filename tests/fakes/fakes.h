/* The steering of the fake driver and compiler (csrc/emu/driver_*.c with contract.c, fake_nvrtc.c)
 * for C tests.
 *
 * GPUREDUCE_LIBCUDA and GPUREDUCE_LIBNVRTC say where they are; load_fakes() opens the same
 * libraries as gpureduce will. */
#ifndef FAKES_H
#define FAKES_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* FAKE(result, member, symbol, arguments) */
#define FAKE_CUDA_FUNCTIONS(FAKE)                                               \
    FAKE(void, fail, fake_fail, (const char *function, int nth, int code))      \
    FAKE(const char *, failed, fake_failed, (void))                             \
    FAKE(const char *, violation, fake_violation, (void))                       \
    FAKE(int, live, fake_live, (const char *what))                              \
    FAKE(int, busy, fake_busy, (void))                                          \
    FAKE(uint64_t, bytes, fake_bytes, (int pinned))                             \
    FAKE(uint64_t, peak, fake_peak, (int pinned))                               \
    FAKE(uint64_t, allocated, fake_allocated, (int pinned))                     \
    FAKE(void, reset_peaks, fake_reset_peaks, (void))                           \
    FAKE(void, set_memory, fake_set_memory, (uint64_t device, uint64_t pinned)) \
    FAKE(void, set_delays, fake_set_delays, (unsigned seed, unsigned most_us))  \
    FAKE(unsigned, launches, fake_launches, (void))                             \
    FAKE(void, watch, fake_watch, (const void *start, size_t bytes))            \
    FAKE(uint64_t, watched, fake_watched, (void))                               \
    FAKE(uint64_t, pageable, fake_pageable, (void))                             \
    FAKE(void, set, fake_set, (const char *key, const char *value))             \
    FAKE(unsigned, calls, fake_calls, (void))                                   \
    FAKE(void *, make_stream, fake_make_stream, (int ordinal))                  \
    FAKE(void, free_stream, fake_free_stream, (void *stream))                   \
    FAKE(void, wait, fake_wait, (void))                                         \
    FAKE(void, begin_capture, fake_begin_capture, (void *stream))               \
    FAKE(void, break_capture, fake_break_capture, (void *stream))               \
    FAKE(void *, end_capture, fake_end_capture, (void *stream))                 \
    FAKE(int, launch_graph, fake_launch_graph, (void *graph, void *stream))     \
    FAKE(void, destroy_graph, fake_destroy_graph, (void *graph))

#define FAKE_NVRTC_FUNCTIONS(FAKE)                                                     \
    FAKE(void, nvrtc_fail, fake_nvrtc_fail, (const char *function, int nth, int code)) \
    FAKE(const char *, nvrtc_failed, fake_nvrtc_failed, (void))                        \
    FAKE(void, refuse, fake_nvrtc_refuse, (const char *word))                          \
    FAKE(int, compiles, fake_nvrtc_compiles, (void))                                   \
    FAKE(int, programs, fake_nvrtc_programs, (void))

static struct {
#define FAKE(result, member, symbol, arguments) result(*member) arguments;
    FAKE_CUDA_FUNCTIONS(FAKE)
    FAKE_NVRTC_FUNCTIONS(FAKE)
#undef FAKE
} fake;

static void *open_fake(const char *variable)
{
    const char *path = getenv(variable);
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

    if (library == NULL) {
        (void)fprintf(stderr, "%s does not name a fake: %s\n", variable,
                      path != NULL ? dlerror() : "it is not set");
        exit(1);
    }
    return library;
}

static void load_fakes(void)
{
    void *library = open_fake("GPUREDUCE_LIBCUDA");
#define FAKE(result, member, symbol, arguments) *(void **)&fake.member = dlsym(library, #symbol);
    FAKE_CUDA_FUNCTIONS(FAKE)
    library = open_fake("GPUREDUCE_LIBNVRTC");
    FAKE_NVRTC_FUNCTIONS(FAKE)
#undef FAKE
}

#endif
