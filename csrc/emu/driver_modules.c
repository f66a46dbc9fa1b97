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

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **arguments, void **extra)
{
    operation op = {.kind = LAUNCH};

    ENTER(cuLaunchKernel, IN_CONTEXT);
    if (!function->module->live)
        return driver_leave(driver_violate("launch from a module that was unloaded"));
    if (grid_x == 0 || grid_x > 0x7fffffff || grid_y != 1 || grid_z != 1 || block_x == 0 ||
        block_x > GPR_MOST_BLOCK || block_y != 1 || block_z != 1 ||
        shared_bytes > GPR_EMU_DYNAMIC_BYTES || extra != NULL) {
        return driver_leave(driver_violate("launch of an impossible grid"));
    }
    op.module = function->module;
    const char *wrong =
        engine_prepare(function->kernel, grid_x, block_x, shared_bytes, arguments, &op.launch);
    if (wrong != NULL) return driver_leave(driver_violate(wrong));
    if (op.launch == NULL) return driver_leave(OUT_OF_MEMORY);
    const CUresult result = driver_enqueue(stream, op);
    if (result != CUDA_SUCCESS)
        engine_drop(op.launch);
    else
        driver.launches++;
    return driver_leave(result);
}
