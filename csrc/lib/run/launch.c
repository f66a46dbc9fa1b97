/* From a plan to cuLaunchKernel. The structures below are the kernels' parameters as kernels/rows.cuh, layout.cuh and finalize.cuh
 * declare them. */
#include "lib/run/launch.h"

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

/* An axis as kernels declare it. */
typedef struct launch_axis {
    uint64_t extent;
    int64_t in, mask, other;
} launch_axis;

typedef struct launch_layout {
    CUdeviceptr mask;
    uint64_t first_position, elements, count;
    launch_axis column;
    uint64_t strips;
    int64_t item_position;
    uint32_t across, along, packed, ascends, slots, unused;
    launch_axis axes[GPR_MAX_NDIM + 2]; /* as many as the program has constants for */
} launch_layout;

typedef struct launch_ending {
    double ddof;
    uint64_t plane;
    double mean_for_all[2]; /* from here on for programs about given means alone */
    CUdeviceptr means;
    int64_t column;
    int64_t kept[GPR_MAX_NDIM]; /* as many as the program has kept axes */
} launch_ending;

typedef struct launch_second {
    CUdeviceptr in;
    int64_t step;
} launch_second;

_Static_assert(sizeof(launch_rows) == 32, "gpr::Rows is 32 bytes on the device");
_Static_assert(sizeof(launch_scratch) == 16, "gpr::Scratch is two pointers on the device");
_Static_assert(offsetof(launch_ending, mean_for_all) == 16, "gpr::Ending is 16 bytes on the device");
_Static_assert(offsetof(launch_ending, kept) == 48, "gpr::EndingAbout's steps begin at byte 48 on the device");
_Static_assert(sizeof(launch_second) == 16, "gpr::SecondArray is 16 bytes on the device");
_Static_assert(sizeof(launch_axis) == 32, "gpr::KeptAxis and ReducedAxis are 32 bytes on the device");
_Static_assert(offsetof(launch_layout, axes) == 104, "gpr::Layout's axes begin at byte 104 on the device");
_Static_assert(sizeof(launch_layout) + sizeof(launch_rows) + sizeof(launch_scratch) + sizeof(launch_ending) +
                       sizeof(launch_second) + 16 <=
                   4096,
               "all parameters of a kernel take 4096 bytes at most");

gpr_cell gpr_plan_cell(const gpr_plan *plan, const gpr_rule *rule, int finishes)
{
    gpr_cell cell;

    memset(&cell, 0, sizeof cell); /* padding too: cells are compared as bytes */
    cell.kernel = plan->kernel;
    cell.fold = rule->fold;
    cell.element = rule->element;
    cell.second = rule->second;
    cell.compute = rule->compute;
    cell.acc = rule->device_acc;
    cell.skip_nan = rule->skip_nan;
    cell.integer_windows = plan->integer_windows;
    cell.block = plan->block;
    cell.lanes = plan->lanes;
    cell.per_thread = plan->per_thread;
    cell.item = plan->item;
    cell.row_elements = plan->row_elements;
    cell.kept = plan->layout.kept;
    cell.reduced = plan->layout.reduced;
    cell.masked = plan->layout.masked;
    if (finishes) {
        cell.finish = gpr_operator_rows[rule->op].finish;
        cell.result = rule->result;
        cell.about = rule->about;
        cell.mean = rule->mean;
    }
    cell.variant = plan->variant;
    return cell;
}

gpr_status gpr_ensure_scratch(gpr_device *device, const gpr_plan *plan, const gpr_rule *rule, gpr_work *work)
{
    const uint64_t bytes = gpr_acc_bytes(rule->form, rule->device_acc);
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_buffer_ensure(&device->partials, plan->partials * bytes, 0, work->stream));
    GPR_TRY(gpr_buffer_ensure(&device->more_partials, plan->more_partials * bytes, 0, work->stream));
    GPR_TRY(gpr_buffer_ensure(&device->tickets, plan->tickets * sizeof(uint32_t), 1, work->stream));
    work->partials = device->partials.address;
    work->more_partials = device->more_partials.address;
    work->tickets = device->tickets.address;
done:
    return status;
}

static launch_axis axis_of(const gpr_axis *axis)
{
    return (launch_axis){axis->extent, axis->in, axis->mask, axis->other};
}

static void describe_layout(const gpr_plan *plan, const gpr_work *work, launch_layout *layout)
{
    *layout = (launch_layout){.mask = work->mask,
                              .first_position = plan->layout.first_position,
                              .elements = plan->layout.n,
                              .count = plan->layout.rows,
                              .column = axis_of(&plan->column),
                              .strips = plan->strips,
                              .item_position = plan->item_position,
                              .across = plan->across,
                              .along = plan->along,
                              .packed = plan->packed,
                              .ascends = plan->ascends,
                              .slots = plan->slots};
    for (int i = 0; i < plan->layout.kept + plan->layout.reduced; i++) layout->axes[i] = axis_of(&plan->layout.axes[i]);
}

static void describe_ending(const gpr_plan *plan, const gpr_work *work, launch_ending *ending)
{
    ending->ddof = work->ddof;
    ending->plane = (uint64_t)work->plane;
    memcpy(ending->mean_for_all, work->mean_for_all, sizeof ending->mean_for_all);
    ending->means = work->means;
    ending->column = plan->column.mean;
    for (int i = 0; i < plan->layout.kept; i++) ending->kept[i] = plan->layout.axes[i].mean;
}

/* Where a launch ends at the latest that begins with virtual block `first`: rows that share scratch are not under way together. */
static uint64_t end_of_launch(const gpr_plan *plan, const gpr_pass *pass, uint64_t first)
{
    const uint64_t span = (uint64_t)plan->slots * pass->blocks;

    if (span == 0 || pass->grid - first <= span - first % span) return pass->grid;
    return first + (span - first % span);
}

/* One pass, in as many launches as its grid and its scratch take. */
static gpr_status launch_pass(CUfunction function, const gpr_plan *plan, const gpr_pass *pass, CUdeviceptr in,
                              CUdeviceptr out, const gpr_work *work, launch_layout *layout, launch_ending *ending,
                              uint32_t *launches)
{
    launch_rows rows = {.n = pass->n, .count = plan->rows, .blocks = pass->blocks};
    launch_scratch scratch = {work->partials, work->tickets};
    launch_second second = {work->second, work->second_step};
    void *arguments[] = {&in,    &out,   &rows,  &scratch,
                         layout, ending, &second}; /* a kernel takes as many as it has parameters */
    gpr_status status = GPR_OK;

    while (rows.first < pass->grid) {
        const uint64_t left = end_of_launch(plan, pass, rows.first) - rows.first;
        const unsigned grid = (unsigned)(left < GPR_MAX_GRID ? left : GPR_MAX_GRID);
        GPR_CU(cuLaunchKernel, function, grid, 1, 1, plan->block, 1, 1, 0, work->stream, arguments, NULL);
        rows.first += grid;
        (*launches)++;
    }
done:
    return status;
}

/* A launch in which any number of threads go through `count` outputs. */
static gpr_status launch_over(CUfunction function, uint64_t count, CUstream stream, void **arguments,
                              uint32_t *launches)
{
    enum { BLOCK = 256, MOST_BLOCKS = 1024 };
    const uint64_t blocks = (count + BLOCK - 1) / BLOCK;
    gpr_status status = GPR_OK;

    GPR_CU(cuLaunchKernel, function, (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), 1, 1, BLOCK, 1, 1, 0,
           stream, arguments, NULL);
    (*launches)++;
done:
    return status;
}

gpr_status gpr_launch_plan(const gpr_plan *plan, const gpr_program *program, const gpr_work *work, uint32_t *launches)
{
    const CUdeviceptr halves[2] = {work->partials, work->more_partials};
    CUdeviceptr accumulators = program->finish != NULL ? work->accumulators : work->outputs;
    CUdeviceptr results = work->outputs;
    launch_layout layout;
    launch_ending ending;
    uint64_t count = plan->rows;
    gpr_status status = GPR_OK;

    describe_layout(plan, work, &layout);
    describe_ending(plan, work, &ending);
    if (plan->fill) {
        void *arguments[] = {&accumulators, &count};
        GPR_TRY(launch_over(program->fill, count, work->stream, arguments, launches));
    }
    for (int i = 0; i < plan->pass_count; i++) {
        /* Passes go back and forth between two halves of scratch: each is smaller than the one before the last. */
        const CUdeviceptr in = i == 0 ? work->elements : halves[(i - 1) % 2];
        const CUdeviceptr out = i == plan->pass_count - 1 ? accumulators : halves[i % 2];
        GPR_TRY(launch_pass(i == 0 ? program->first : program->next, plan, &plan->passes[i], in, out, work, &layout,
                            &ending, launches));
    }
    if (program->finish != NULL) {
        void *arguments[] = {&accumulators, &results, &layout, &ending};
        GPR_TRY(launch_over(program->finish, count, work->stream, arguments, launches));
    }
done:
    return status;
}
