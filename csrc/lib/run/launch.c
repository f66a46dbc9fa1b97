/* From a plan to cuLaunchKernel. */
#include "lib/run/launch.h"

#include <string.h>

#include "lib/base/integers.h"
#include "lib/rules/accumulators.h"

gpr_kernel_traits gpr_plan_traits(const gpr_plan *plan, const gpr_rule *rule, int finishes)
{
    gpr_kernel_traits traits;

    memset(&traits, 0, sizeof traits); /* padding too: traits are compared as bytes */
    traits.kernel = plan->kernel;
    traits.fold = rule->fold;
    traits.element = rule->element;
    traits.second = rule->second;
    traits.compute = rule->compute;
    traits.acc = rule->device_acc;
    traits.skip_nan = rule->skip_nan;
    traits.integer_bins = plan->integer_bins;
    traits.products = rule->products;
    traits.conjugates = rule->conjugates;
    traits.block = plan->block;
    traits.lanes = plan->lanes;
    traits.per_thread = plan->per_thread;
    traits.item = plan->item;
    traits.row_elements = plan->row_elements;
    traits.kept = plan->layout.kept;
    traits.reduced = plan->layout.reduced;
    traits.masked = plan->layout.masked;
    if (finishes) {
        traits.finish = rule->finish;
        traits.result = rule->result;
        traits.has_given_mean = rule->has_given_mean;
        traits.mean = rule->mean;
        traits.has_start = rule->has_start;
    }
    traits.variant = plan->variant;
    return traits;
}

void gpr_settle_stream(CUstream stream, gpr_status status)
{
    int capturing = 0;

    if (status != GPR_OK && gpr_cuda.cuStreamIsCapturing(stream, &capturing) == CUDA_SUCCESS &&
        !capturing)
        (void)gpr_cuda.cuStreamSynchronize(stream);
}

/* Bytes of the parts of scratch. */
typedef struct scratch_bytes {
    uint64_t partials, more_partials, tickets;
} scratch_bytes;

static scratch_bytes scratch_of(const gpr_plan *plan, const gpr_rule *rule)
{
    const uint64_t bytes = gpr_acc_bytes(rule->acc_kind, rule->device_acc);

    return (scratch_bytes){.partials = plan->partials * bytes,
                           .more_partials = plan->more_partials * bytes,
                           .tickets = plan->tickets * sizeof(uint32_t)};
}

uint64_t gpr_scratch_bytes(const gpr_plan *plan, const gpr_rule *rule)
{
    const scratch_bytes needed = scratch_of(plan, rule);

    return needed.partials + needed.more_partials + needed.tickets;
}

/* Frees the scratch of earlier calls if it and what it lacks would be more than `most` bytes. */
static void make_way(gpr_device *device, const scratch_bytes *needed, uint64_t most)
{
    gpr_buffer *partials = &device->partials, *more = &device->more_partials,
               *tickets = &device->tickets;

    if ((needed->partials <= partials->bytes && needed->more_partials <= more->bytes &&
         needed->tickets <= tickets->bytes) ||
        gpr_larger(needed->partials, partials->bytes) +
                gpr_larger(needed->more_partials, more->bytes) +
                gpr_larger(needed->tickets, tickets->bytes) <=
            most)
        return;
    gpr_buffer_clear(partials);
    gpr_buffer_clear(more);
    gpr_buffer_clear(tickets);
}

gpr_status gpr_ensure_scratch(gpr_device *device, const gpr_plan *plan, const gpr_rule *rule,
                              uint64_t most, gpr_work *work)
{
    const scratch_bytes needed = scratch_of(plan, rule);
    gpr_status status = GPR_OK;

    make_way(device, &needed, most);
    GPR_TRY(gpr_buffer_ensure(&device->partials, needed.partials, 0, work->stream));
    GPR_TRY(gpr_buffer_ensure(&device->more_partials, needed.more_partials, 0, work->stream));
    GPR_TRY(gpr_buffer_ensure(&device->tickets, needed.tickets, 1, work->stream));
    work->partials = device->partials.address;
    work->more_partials = device->more_partials.address;
    work->tickets = device->tickets.address;
done:
    return status;
}

/* Kernels count along reduced axes in 32 bits, but along the first one. There is at most one whose
 * extent has more, as a row has fewer than 2^63 elements. */
static void move_long_axis(gpr_axis *reduced, int count)
{
    for (int i = 1; i < count; i++) {
        if (reduced[i].extent <= UINT32_MAX) continue;
        const gpr_axis first = reduced[0];
        reduced[0] = reduced[i];
        reduced[i] = first;
    }
}

static void describe_layout(const gpr_plan *plan, const gpr_work *work,
                            gpr_layout_argument *argument)
{
    const gpr_layout *layout = &plan->layout;
    const gpr_axis *inner = &layout->axes[layout->kept + layout->reduced - 1];
    const gpr_pass *pass = &plan->passes[0];
    const uint32_t width = plan->width == 0 ? 1 : plan->width,
                   height = width < plan->block ? plan->block / width : 1;
    const uint64_t threads = gpr_larger(pass->blocks, 1) * height; /* that share a row */

    argument->layout =
        (gpr_layout_params){.mask = work->mask,
                            .first_position = layout->first_position,
                            .elements = layout->n,
                            .count = layout->rows,
                            .columns = plan->column.extent,
                            .column_out = plan->column.out,
                            .strips = plan->strips,
                            .item_position = plan->item_position,
                            .step = (int64_t)(threads * (uint64_t)inner->in),
                            .steps = pass->n / threads,
                            .longer = pass->n % threads,
                            .width = plan->width,
                            .height = height,
                            .inverse = gpr_inverse(plan->row_major != 0 ? height : width),
                            .slots = plan->slots,
                            .row_major = (uint8_t)plan->row_major,
                            .packed = plan->packed != 0,
                            .ascends = plan->ascends != 0};
    /* the others are no kernel's to read: copying all of them would cost each call 2 KiB */
    memcpy(argument->axes, layout->axes,
           (size_t)(layout->kept + layout->reduced) * sizeof *layout->axes);
    move_long_axis(argument->axes + layout->kept, layout->reduced);
}

static void describe_finalizing(const gpr_plan *plan, const gpr_work *work,
                                gpr_finalize_argument *argument)
{
    argument->finalize = (gpr_finalize_params){.ddof = work->ddof,
                                               .output_stride = (uint64_t)work->output_stride,
                                               .start = {work->start[0], work->start[1]}};
    argument->given_mean =
        (gpr_given_mean_params){.means = work->means, .column = plan->column_mean};
    memcpy(argument->given_mean.for_all, work->mean_for_all, sizeof argument->given_mean.for_all);
    memcpy(argument->steps, plan->layout.mean_steps,
           (size_t)plan->layout.kept * sizeof *argument->steps);
}

/* Where a launch ends at the latest that begins with virtual block `first`. Rows that share scratch
 * are not under way together, and no cluster is divided. */
static uint64_t end_of_launch(const gpr_plan *plan, const gpr_pass *pass, uint64_t first)
{
    const uint64_t span = (uint64_t)plan->slots * pass->blocks;
    const uint64_t most = GPR_MAX_GRID / plan->cluster * plan->cluster;
    uint64_t left = pass->grid - first;

    if (span != 0) left = gpr_smaller(left, span - first % span);
    return first + gpr_smaller(left, most);
}

/* One pass, in as many launches as its grid and its scratch take. */
static gpr_status launch_pass(CUfunction function, const gpr_plan *plan, const gpr_pass *pass,
                              CUdeviceptr in, CUdeviceptr out, const gpr_work *work,
                              gpr_layout_argument *layout, gpr_finalize_argument *finalize,
                              uint32_t *launches)
{
    gpr_rows_params rows = {.n = pass->n, .count = plan->rows, .blocks = pass->blocks};
    gpr_scratch_params scratch = {work->partials, work->tickets};
    gpr_second_params second = {work->second, work->second_step};
    void *arguments[] = {&in, &out, &rows, &scratch,
                         /* a kernel takes as many as it has parameters */
                         layout, finalize, &second};
    const gpr_launch_kind kind = {plan->cooperative, plan->cluster};
    gpr_status status = GPR_OK;

    while (rows.first < pass->grid) {
        const uint32_t grid = (uint32_t)(end_of_launch(plan, pass, rows.first) - rows.first);
        GPR_TRY(gpr_launch_blocks(function, grid, plan->block, 0, kind, work->stream, arguments));
        rows.first += grid;
        (*launches)++;
    }
done:
    return status;
}

/* A launch in which any number of threads go through `count` outputs. */
static gpr_status launch_over(CUfunction function, uint64_t count, CUstream stream,
                              void **arguments, uint32_t *launches)
{
    enum { BLOCK = 256, MOST_BLOCKS = 1024 };
    const uint64_t blocks = (count + BLOCK - 1) / BLOCK;
    gpr_status status = GPR_OK;

    GPR_CU(cuLaunchKernel, function, (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), 1, 1,
           BLOCK, 1, 1, 0, stream, arguments, NULL);
    (*launches)++;
done:
    return status;
}

gpr_status gpr_launch_plan(const gpr_plan *plan, const gpr_program *program, const gpr_work *work,
                           uint32_t *launches)
{
    const CUdeviceptr halves[2] = {work->partials, work->more_partials};
    CUdeviceptr accumulators = program->finish != NULL ? work->accumulators : work->outputs;
    CUdeviceptr results = work->outputs;
    gpr_layout_argument layout;
    gpr_finalize_argument finalize;
    uint64_t count = plan->rows;
    gpr_status status = GPR_OK;

    describe_layout(plan, work, &layout);
    describe_finalizing(plan, work, &finalize);
    if (plan->fill) {
        void *arguments[] = {&accumulators, &count};
        GPR_TRY(launch_over(program->fill, count, work->stream, arguments, launches));
    }
    for (int i = 0; i < plan->pass_count; i++) {
        /* Passes go back and forth between two halves of scratch: each is smaller than the one
         * before the last. */
        const CUdeviceptr in = i == 0 ? work->elements : halves[(i - 1) % 2];
        const CUdeviceptr out = i == plan->pass_count - 1 ? accumulators : halves[i % 2];
        GPR_TRY(launch_pass(i == 0 ? program->first : program->next, plan, &plan->passes[i], in,
                            out, work, &layout, &finalize, launches));
    }
    if (program->finish != NULL) {
        void *arguments[] = {&accumulators, &results, &layout, &finalize};
        GPR_TRY(launch_over(program->finish, count, work->stream, arguments, launches));
    }
done:
    return status;
}

gpr_status gpr_launch_copies(const gpr_program *program, const gpr_copy_params *copies,
                             const gpr_work *work, uint32_t *launches)
{
    CUdeviceptr results = work->outputs;
    void *arguments[] = {&results, (void *)(uintptr_t)copies}; /* which the driver only reads */

    return launch_over(program->copy, copies->count, work->stream, arguments, launches);
}
