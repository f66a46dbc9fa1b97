/* The stand-in driver's memory, for the engine that runs kernels and for the driver's own
 * copies. */
#ifndef GPR_EMU_DRIVER_MEMORY_H
#define GPR_EMU_DRIVER_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* One live allocation. `written` has a byte per byte, 0 if nothing has been written there; NULL
 * if the engine does not track writes. `name`: of a __device__ variable, which the engine adds to
 * the allocations; else NULL. `label`: the name of an array, which findings give (fake_label); ""
 * if there is none. */
enum { LABEL_ROOM = 64 };
typedef struct driver_allocation {
    uintptr_t start;
    size_t bytes;
    int pinned, ordinal;
    unsigned char *written;
    const char *name;
    char label[LABEL_ROOM];
    struct driver_allocation *next;
} driver_allocation;

/* The driver's lock, which engines hold while they iterate over the list. An allocation that they
 * find lives until the running launch ends. */
void driver_lock_memory(void);
void driver_unlock_memory(void);

/* All live allocations; the lock is held. */
const driver_allocation *driver_allocations(void);

/* The live allocation that holds all of [start, start + bytes), or NULL; the lock is held. */
const driver_allocation *driver_find_allocation(uintptr_t start, size_t bytes);

/* Marks [start, start + bytes), which is inside one allocation, as written; the lock is held. */
void driver_note_written(uintptr_t start, size_t bytes);

/* Whether all of [start, start + bytes) has been written, as far as the engine tracks writes;
 * the lock is held. */
int driver_is_written(uintptr_t start, size_t bytes);

#endif
