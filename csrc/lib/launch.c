/* From a plan to cuLaunchKernel. The structures below are the kernels' parameters as kernels/rows.cuh declares them. */
#include "launch.h"

#include <string.h>

typedef struct launch_rows {
    uint64_t n;      /* elements in a row */
    uint64_t count;  /* rows */
    uint64_t first;  /* virtual block that block 0 of the grid serves */
    uint32_t blocks; /* per row */
} launch_rows;

typedef struct launch_scratch {
    CUdeviceptr partials;
    CUdeviceptr tickets;
} launch_scratch;

_Static_assert(sizeof(launch_rows) == 32, "gpr::Rows is 32 bytes on the device");
_Static_assert(sizeof(launch_scratch) == 16, "gpr::Scratch is two pointers on the device");

gpr_cell gpr_plan_cell(const gpr_plan *plan, const gpr_rule *rule)
{
    gpr_cell cell;

    memset(&cell, 0, sizeof cell); /* padding too: cells are compared as bytes */
    cell.kernel = plan->kernel;
    cell.fold = rule->fold;
    cell.element = rule->element;
    cell.compute = rule->compute;
    cell.acc = rule->device_acc;
    cell.skip_nan = rule->skip_nan;
    cell.block = plan->block;
    cell.lanes = plan->lanes;
    cell.variant = plan->variant;
    return cell;
}

gpr_status gpr_ensure_scratch(gpr_device *device, const gpr_plan *plan, const gpr_rule *rule, CUstream stream)
{
    const uint64_t bytes = gpr_acc_bytes(rule->form, rule->device_acc);
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_buffer_ensure(&device->partials, plan->partials * bytes, 0, stream));
    GPR_TRY(gpr_buffer_ensure(&device->more_partials, plan->more_partials * bytes, 0, stream));
    GPR_TRY(gpr_buffer_ensure(&device->tickets, plan->tickets * sizeof(uint32_t), 1, stream));
done:
    return status;
}

/* One pass, in as many launches as its grid takes. */
static gpr_status launch_pass(CUfunction function, const gpr_plan *plan, const gpr_pass *pass, CUdeviceptr in,
                              CUdeviceptr out, launch_scratch scratch, CUstream stream, uint32_t *launches)
{
    launch_rows rows = {.n = pass->n, .count = plan->rows, .blocks = pass->blocks};
    void *arguments[] = {&in, &out, &rows, &scratch};
    gpr_status status = GPR_OK;

    while (rows.first < pass->grid) {
        const uint64_t left = pass->grid - rows.first;
        const unsigned grid = (unsigned)(left < GPR_MAX_GRID ? left : GPR_MAX_GRID);
        GPR_CU(cuLaunchKernel, function, grid, 1, 1, plan->block, 1, 1, 0, stream, arguments, NULL);
        rows.first += grid;
        (*launches)++;
    }
done:
    return status;
}

static gpr_status launch_fill(CUfunction function, CUdeviceptr out, uint64_t count, CUstream stream, uint32_t *launches)
{
    enum { FILL_BLOCK = 256, MOST_BLOCKS = 1024 };
    const uint64_t blocks = (count + FILL_BLOCK - 1) / FILL_BLOCK;
    void *arguments[] = {&out, &count};
    gpr_status status = GPR_OK;

    GPR_CU(cuLaunchKernel, function, (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), 1, 1, FILL_BLOCK, 1, 1, 0,
           stream, arguments, NULL);
    (*launches)++;
done:
    return status;
}

gpr_status gpr_launch_plan(gpr_device *device, const gpr_plan *plan, const gpr_program *program, CUdeviceptr elements,
                           CUdeviceptr outputs, CUstream stream, uint32_t *launches)
{
    const launch_scratch scratch = {device->partials.address, device->tickets.address};
    const CUdeviceptr halves[2] = {device->partials.address, device->more_partials.address};
    gpr_status status = GPR_OK;

    if (plan->fill) GPR_TRY(launch_fill(program->fill, outputs, plan->rows, stream, launches));
    for (int i = 0; i < plan->pass_count; i++) {
        /* Passes go back and forth between two halves of scratch: each is smaller than the one before the last. */
        const CUdeviceptr in = i == 0 ? elements : halves[(i - 1) % 2];
        const CUdeviceptr out = i == plan->pass_count - 1 ? outputs : halves[i % 2];
        GPR_TRY(launch_pass(i == 0 ? program->first : program->next, plan, &plan->passes[i], in, out, scratch, stream,
                            launches));
    }
done:
    /* Tickets that only a part of a grid drew would mislead the next plan: the next one begins with new ones. */
    if (status != GPR_OK) gpr_buffer_clear(&device->tickets);
    return status;
}
