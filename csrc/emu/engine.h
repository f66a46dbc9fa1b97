/* The engine behind the stand-in driver: modules and launches. Two engines implement this
 * interface: engine.c runs the kernels themselves, a fiber per CUDA thread; tests/fakes/contract.c
 * computes results by the launch contract, which is quick.
 *
 * Functions that check return the text of the broken rule, or NULL. */
#ifndef GPR_EMU_ENGINE_H
#define GPR_EMU_ENGINE_H

#include "emu/driver_memory.h"
#include "lib/driver/driver.h"

typedef struct engine_module engine_module;
typedef struct engine_kernel engine_kernel;
typedef struct engine_launch engine_launch;

extern const char engine_variable[]; /* environment variable of settings: key=value,... */
extern const char engine_device_name[];
extern const int engine_tracks_writes;

/* A setting that is not the driver's own. */
void engine_set(const char *key, const char *value);

/* What launches since the last call relied on, in bits: 1 barriers and 2 operations of warps that
 * went on without threads that had returned, 4 values that are undefined. */
unsigned engine_relied(void);

/* Loads an image for a GPU of compute capability `cc`. */
CUresult engine_load(const void *image, int cc, engine_module **loaded);
void engine_unload(engine_module *module);

/* The kernel of that name; it lives as long as its module. */
CUresult engine_find(engine_module *module, const char *name, engine_kernel **kernel);

/* Blocks of a launch. */
typedef struct engine_shape {
    unsigned grid, block, shared_bytes; /* of dynamic shared memory */
    gpr_launch_kind kind;
} engine_shape;

/* Takes a copy of the arguments of a launch, which is then run, or dropped, once. *prepared is
 * NULL without memory. */
const char *engine_prepare(engine_kernel *kernel, engine_shape shape, void **arguments,
                           engine_launch **prepared);

/* The same launch once more, for a graph that is launched again; 0: out of memory. */
int engine_again(const engine_launch *launch, engine_launch **copy);

/* Checks a launch whose turn has come; the memory lock is held. */
const char *engine_check(const engine_launch *launch);

/* Runs a launch to its end; the memory lock is not held. */
const char *engine_run(engine_launch *launch);
void engine_drop(engine_launch *launch);

#endif
