/* Programs that are loaded on a device: found by their traits, or compiled and loaded at first
 * use. */
#include "lib/driver/device.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/driver/cache.h"

static unsigned bucket_of(const gpr_kernel_traits *traits)
{
    unsigned hash = (unsigned)traits->kernel;

    hash = hash * 31 + (unsigned)traits->fold;
    hash = hash * 31 + (unsigned)traits->element;
    hash = hash * 31 + (unsigned)traits->compute;
    hash = hash * 31 + traits->block / 32;
    hash = hash * 31 + traits->lanes;
    hash = hash * 31 + traits->item;
    hash = hash * 31 + (unsigned)(traits->kept * GPR_MAX_NDIM + traits->reduced);
    return hash % GPR_PROGRAM_BUCKETS;
}

static gpr_status fail_load(gpr_status status, int cc)
{
    const gpr_error *error = gpr_last_error();
    const int code = error->code;
    char name[sizeof error->name];

    memcpy(name, error->name, sizeof name); /* a new failure replaces the old */
    if (code != CUDA_ERROR_NO_BINARY_FOR_GPU && code != CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
        return status;
    const int driver = gpr_driver_version(), nvrtc = gpr_nvrtc_version();
    (void)gpr_fail(GPR_ERROR_DEVICE,
                   "the driver (CUDA %d.%d) cannot load what NVRTC %d.%d compiled for compute "
                   "capability %d.%d. Update the driver, or install an NVRTC as old as the driver: "
                   "pip install 'gpureduce[cu12]'",
                   driver / 1000, driver % 1000 / 10, nvrtc / 1000, nvrtc % 1000 / 10, cc / 10,
                   cc % 10);
    return gpr_fail_call("cuModuleLoadData", code, name);
}

static gpr_status get_function(gpr_program *program, const gpr_object *object, int entry,
                               CUfunction *function)
{
    gpr_status status = GPR_OK;

    if (entry >= 0) GPR_CU(cuModuleGetFunction, function, program->module, object->lowered[entry]);
done:
    return status;
}

gpr_status gpr_load_program(gpr_device *device, const gpr_kernel_traits *traits, gpr_run *run,
                            gpr_program **result)
{
    gpr_program **bucket = &device->programs[bucket_of(traits)];
    gpr_object object = {0};
    gpr_program *program = NULL;
    gpr_status status = GPR_OK;
    int compiled = 0;

    for (program = *bucket; program != NULL; program = program->chained) {
        if (memcmp(&program->traits, traits, sizeof *traits) == 0) {
            *result = program;
            return GPR_OK;
        }
    }
    const double start = gpr_seconds();
    const gpr_entries entries = gpr_program_entries(traits);
    program = calloc(1, sizeof *program);
    if (program == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    program->traits = *traits;
    GPR_TRY(gpr_make_object(traits, device->facts.cc, 1, &object, &compiled));
    const int mode = gpr_begin_relaxed();
    status =
        gpr_check(gpr_cuda.cuModuleLoadData(&program->module, object.image), "cuModuleLoadData");
    gpr_end_relaxed(mode);
    if (status != GPR_OK) {
        status = fail_load(status, device->facts.cc);
        goto done;
    }
    GPR_TRY(get_function(program, &object, entries.first, &program->first));
    GPR_TRY(get_function(program, &object, entries.next, &program->next));
    GPR_TRY(get_function(program, &object, entries.fill, &program->fill));
    GPR_TRY(get_function(program, &object, entries.finish, &program->finish));
    GPR_TRY(get_function(program, &object, entries.copy, &program->copy));
    program->chained = *bucket;
    *bucket = program;
    *result = program;
    run->compiled += compiled;
    run->cache_hits += !compiled;
    if (run->stage_seconds[GPR_STAGE_COMPILE] < 0) run->stage_seconds[GPR_STAGE_COMPILE] = 0;
    run->stage_seconds[GPR_STAGE_COMPILE] += gpr_seconds() - start;
done:
    gpr_object_clear(&object);
    if (status != GPR_OK) {
        if (program->module != NULL) (void)gpr_cuda.cuModuleUnload(program->module);
        free(program);
    }
    return status;
}

/* Calls return before their kernels have ended. */
static void unload_programs(gpr_device *device)
{
    (void)gpr_cuda.cuCtxSynchronize();
    for (int i = 0; i < GPR_PROGRAM_BUCKETS; i++) {
        while (device->programs[i] != NULL) {
            gpr_program *program = device->programs[i];
            device->programs[i] = program->chained;
            (void)gpr_cuda.cuModuleUnload(program->module);
            free(program);
        }
    }
}

gpr_status gpr_cache_clear(int loaded)
{
    gpr_status status = GPR_OK;

    gpr_cache_remove_all();
    if (!loaded || !gpr_cuda_usable()) return GPR_OK;
    for (int i = 0; i < GPR_MAX_DEVICES && status == GPR_OK; i++) {
        gpr_device *device = gpr_device_opened(i);
        if (device == NULL) continue;
        status = gpr_device_enter(i, &device);
        if (status != GPR_OK) break;
        unload_programs(device);
        gpr_device_leave(device);
    }
    return status;
}
