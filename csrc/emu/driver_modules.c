/* Modules and launches of the stand-in driver. */
#include "emu/abi.h"
#include "emu/driver_state.h"
#include "shared/tuning.h"

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER(cuModuleLoadData, IN_CONTEXT | UNCAPTURED);
    struct CUmod_st *made = driver_make_handle(sizeof *made);
    const CUresult result =
        made != NULL ? engine_load(image, driver.machine.cc, &made->loaded) : OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) return driver_leave(result);
    made->live = 1;
    driver.live.modules++;
    *module = made;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuModuleUnload(CUmodule module)
{
    ENTER_RELEASE(cuModuleUnload, IN_CONTEXT | UNCAPTURED);
    if (module == NULL || !module->live)
        return driver_leave(driver_violate("unloading of a module that is not loaded"));
    if (module->queued > 0)
        (void)driver_violate("unloading of a module whose kernel has yet to end");
    if (module->queued == 0) engine_unload(module->loaded);
    module->live = 0;
    driver.live.modules--;
    return driver_leave(entered);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    ENTER(cuModuleGetFunction, IN_CONTEXT);
    if (module == NULL || !module->live)
        return driver_leave(driver_violate("a function of a module that is not loaded"));
    struct CUfunc_st *made = driver_make_handle(sizeof *made);
    const CUresult result =
        made != NULL ? engine_find(module->loaded, name, &made->kernel) : OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) return driver_leave(result);
    made->module = module;
    *function = made;
    return driver_leave(CUDA_SUCCESS);
}

/* Whether all blocks of a grid are resident at once, with as many registers and as much shared
 * memory as the kernel wishes. */
static int is_resident(unsigned grid, unsigned block)
{
    const unsigned by_threads = RESIDENT_THREADS / block;

    return grid <= MULTIPROCESSORS * (by_threads < RESIDENT_BLOCKS ? by_threads : RESIDENT_BLOCKS);
}

/* Queues a launch; the lock is held. */
static CUresult launch(CUfunction function, const CUlaunchConfig *config, gpr_launch_kind kind,
                       void **arguments, void **extra)
{
    const engine_shape shape = {config->grid_x, config->block_x, config->shared_bytes, kind};
    operation op = {.kind = LAUNCH};

    if (!function->module->live) return driver_violate("launch from a module that was unloaded");
    if (shape.grid == 0 || shape.grid > 0x7fffffff || config->grid_y != 1 || config->grid_z != 1 ||
        shape.block == 0 || shape.block > GPR_MOST_BLOCK || config->block_y != 1 ||
        config->block_z != 1 || shape.shared_bytes > GPR_EMU_DYNAMIC_BYTES || extra != NULL)
        return driver_violate("launch of an impossible grid");
    if (kind.cluster == 0 || kind.cluster > GPR_EMU_MOST_CLUSTER || shape.grid % kind.cluster != 0)
        return driver_violate("launch of a grid that is not made of clusters");
    if (kind.cooperative && !is_resident(shape.grid, shape.block))
        return COOPERATIVE_LAUNCH_TOO_LARGE;
    op.module = function->module;
    const char *wrong = engine_prepare(function->kernel, shape, arguments, &op.launch);
    if (wrong != NULL) return driver_violate(wrong);
    if (op.launch == NULL) return OUT_OF_MEMORY;
    const CUresult result = driver_enqueue(config->stream, op);
    if (result != CUDA_SUCCESS)
        engine_drop(op.launch);
    else
        driver.launches++;
    return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **arguments, void **extra)
{
    const CUlaunchConfig config = {.grid_x = grid_x,
                                   .grid_y = grid_y,
                                   .grid_z = grid_z,
                                   .block_x = block_x,
                                   .block_y = block_y,
                                   .block_z = block_z,
                                   .shared_bytes = shared_bytes,
                                   .stream = stream};
    const gpr_launch_kind kind = {0, 1};

    ENTER(cuLaunchKernel, IN_CONTEXT);
    return driver_leave(launch(function, &config, kind, arguments, extra));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                          void **extra)
{
    gpr_launch_kind kind = {0, 1};

    ENTER(cuLaunchKernelEx, IN_CONTEXT);
    for (unsigned i = 0; i < config->attribute_count; i++) {
        const CUlaunchAttribute *attribute = &config->attributes[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            kind.cooperative = attribute->value.cooperative;
        else if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            kind.cluster = attribute->value.cluster_dim.x;
        else
            return driver_leave(driver_violate("launch with an unknown attribute"));
    }
    return driver_leave(launch(function, config, kind, arguments, extra));
}
