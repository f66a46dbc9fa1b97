/* Memory of the stand-in driver: allocations, each with a guard behind it, and which of their
 * bytes have been written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/driver_state.h"

static driver_allocation *allocations;

void driver_lock_memory(void)
{
    pthread_mutex_lock(&driver.lock);
}

void driver_unlock_memory(void)
{
    pthread_mutex_unlock(&driver.lock);
}

const driver_allocation *driver_allocations(void)
{
    return allocations;
}

const driver_allocation *driver_find_allocation(uintptr_t start, size_t bytes)
{
    for (driver_allocation *a = allocations; a != NULL; a = a->next) {
        if (start >= a->start && start - a->start <= a->bytes &&
            bytes <= a->bytes - (start - a->start))
            return a;
    }
    return NULL;
}

void driver_note_written(uintptr_t start, size_t bytes)
{
    const driver_allocation *a = driver_find_allocation(start, bytes);

    if (a != NULL && a->written != NULL) memset(a->written + (start - a->start), 1, bytes);
}

int driver_is_written(uintptr_t start, size_t bytes)
{
    const driver_allocation *a = driver_find_allocation(start, bytes);

    return a == NULL || a->written == NULL ||
           memchr(a->written + (start - a->start), 0, bytes) == NULL;
}

/* Names the array at `start`, an allocation's first byte, in findings; longer names are cut. */
GPR_API void fake_label(uintptr_t start, const char *label)
{
    driver_lock_memory();
    for (driver_allocation *a = allocations; a != NULL; a = a->next) {
        if (a->start == start) (void)snprintf(a->label, sizeof a->label, "%s", label);
    }
    driver_unlock_memory();
}

static CUresult allocate(memory_kind where, size_t bytes, uintptr_t *start)
{
    /* bytes beyond the end belong to no allocation */
    enum { POISON = 0xc3, ALIGNMENT = 256, GUARD = 4096 };
    void *memory = NULL;

    if (bytes == 0) return INVALID_VALUE;
    if (bytes > driver.machine.memory[where] - driver.live.bytes[where]) return OUT_OF_MEMORY;
    driver_allocation *a = malloc(sizeof *a);
    unsigned char *written = driver.machine.tracks_writes ? calloc(bytes, 1) : NULL;
    if (a == NULL || (written == NULL && driver.machine.tracks_writes) ||
        posix_memalign(&memory, ALIGNMENT, bytes + GUARD) != 0) {
        free(written);
        free(a);
        return OUT_OF_MEMORY;
    }
    memset(memory, POISON, bytes);
    /* the host may write it at any time */
    if (written != NULL && where == PINNED_MEMORY) memset(written, 1, bytes);
    *a = (driver_allocation){.start = (uintptr_t)memory,
                             .bytes = bytes,
                             .pinned = where == PINNED_MEMORY,
                             .ordinal = driver_current_ordinal(),
                             .written = written,
                             .next = allocations};
    allocations = a;
    driver.live.allocations[where]++;
    driver.live.allocated[where]++;
    driver.live.bytes[where] += bytes;
    if (driver.live.bytes[where] > driver.live.peak[where])
        driver.live.peak[where] = driver.live.bytes[where];
    *start = a->start;
    return CUDA_SUCCESS;
}

static CUresult release(memory_kind where, uintptr_t start)
{
    driver_wait_until_idle();
    for (driver_allocation **at = &allocations; *at != NULL; at = &(*at)->next) {
        driver_allocation *a = *at;
        if (a->start != start) continue;
        if (a->pinned != (where == PINNED_MEMORY)) break;
        *at = a->next;
        driver.live.allocations[where]--;
        driver.live.bytes[where] -= a->bytes;
        free((void *)a->start);
        free(a->written);
        free(a);
        return CUDA_SUCCESS;
    }
    return driver_violate("free of memory that is not allocated");
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    uintptr_t start = 0;

    ENTER(cuMemAlloc, IN_CONTEXT | UNCAPTURED);
    const CUresult result = allocate(DEVICE_MEMORY, bytes, &start);
    if (result == CUDA_SUCCESS) *pointer = start;
    return driver_leave(result);
}

CUresult cuMemFree(CUdeviceptr pointer)
{
    ENTER_RELEASE(cuMemFree, IN_CONTEXT | UNCAPTURED);
    const CUresult result = release(DEVICE_MEMORY, (uintptr_t)pointer);
    return driver_leave(entered != CUDA_SUCCESS ? entered : result);
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    uintptr_t start = 0;

    ENTER(cuMemHostAlloc, IN_CONTEXT | UNCAPTURED);
    if (flags != (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))
        (void)driver_violate("pinned memory that kernels cannot reach");
    const CUresult result = allocate(PINNED_MEMORY, bytes, &start);
    if (result == CUDA_SUCCESS) *pointer = (void *)start;
    return driver_leave(result);
}

CUresult cuMemFreeHost(void *pointer)
{
    ENTER_RELEASE(cuMemFreeHost, IN_CONTEXT | UNCAPTURED);
    const CUresult result = release(PINNED_MEMORY, (uintptr_t)pointer);
    return driver_leave(entered != CUDA_SUCCESS ? entered : result);
}

/* One attribute of an allocation; 0 if the fake does not have it. */
static int get_attribute(const driver_allocation *a, int attribute, void *value)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = a == NULL ? 0 : a->pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return 1;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = 0; return 1;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = a == NULL ? -2 : a->ordinal; return 1;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = a == NULL ? 0 : a->start;
        return 1;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = a == NULL ? 0 : a->bytes; return 1;
    default: return 0;
    }
}

CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr pointer)
{
    ENTER(cuPointerGetAttributes, ANYWHERE);
    const driver_allocation *a = driver_find_allocation((uintptr_t)pointer, 1);
    for (unsigned i = 0; i < count; i++) {
        if (!get_attribute(a, attributes[i], values[i])) return driver_leave(INVALID_VALUE);
    }
    return driver_leave(CUDA_SUCCESS);
}
