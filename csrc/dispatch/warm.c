/* Compiling what a call will need before it is made, for a GPU that need not be here: resolved and
 * planned like the call, and compiled into the disk cache. Nothing is loaded or launched. */
#include <stdlib.h>

#include "dispatch/broadcast_rows.h"
#include "dispatch/resolve.h"
#include "lib/driver/program.h"
#include "lib/run/distinct_rows.h"
#include "lib/run/host_pipeline.h"
#include "lib/run/launch.h"

/* A call on its way to a program; on the heap, as it is too large for small stacks. */
typedef struct way_to_program {
    gpr_resolved call;
    gpr_distinct_rows distinct;
    gpr_layout layout;
    gpr_plan plan;
    int cc, compiled; /* what for, and how many were */
} way_to_program;

static gpr_status resolve(const gpr_request *request, gpr_resolved *call)
{
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_resolve_view(request, &call->rule, &call->kernel, &call->view));
    call->block_size = request->block_size;
    call->grid_size = request->grid_size;
    call->result_on_device = request->on_device;
done:
    return status;
}

/* Compiles the program of a plan unless the cache has it. */
static gpr_status compile(way_to_program *way, const gpr_plan *plan, int finishes, int copies)
{
    gpr_kernel_traits traits = gpr_plan_traits(plan, &way->call.rule, finishes);
    gpr_object object = {0};
    int compiled = 0;
    traits.copies = copies;
    const gpr_status status = gpr_make_object(&traits, way->cc, 1, &object, &compiled);

    gpr_object_clear(&object);
    way->compiled += status == GPR_OK && compiled;
    return status;
}

/* The program of a device array's call, for results in memory that is aligned as memory is. */
static gpr_status warm_array(way_to_program *way, const gpr_device_facts *facts)
{
    /* ways are of the array as it is */
    const int copies = facts->way == 0 && gpr_find_distinct_rows(&way->call, &way->distinct);
    const gpr_resolved *call = copies ? &way->distinct.call : &way->call;
    gpr_status status = GPR_OK;

    gpr_view_layout(&call->view, NULL, &way->layout);
    GPR_TRY(gpr_make_plan(call->kernel, &call->rule, &way->layout, 1, call->block_size,
                          call->grid_size, facts, &way->plan));
    status = compile(way, &way->plan, 1, copies);
done:
    return status;
}

static gpr_status take_chunk(void *context, const gpr_plan *plan)
{
    return compile(context, plan, 0, 0);
}

/* Those of a host array's chunks, whose sizes differ in ordinary and in pinned memory. */
static gpr_status warm_stream(way_to_program *way, const gpr_device_facts *facts)
{
    const uint64_t axes = gpr_broadcast_axes(&way->call);
    const gpr_resolved *call = axes != 0 ? &way->distinct.call : &way->call;
    gpr_status status = GPR_OK;

    /* the host writes results of nothing */
    if (way->call.view.n == 0) return GPR_OK;
    if (axes != 0) gpr_take_distinct_rows(&way->call, axes, &way->distinct.call);
    for (int pinned = 0; pinned < 2; pinned++)
        GPR_TRY(gpr_plan_stream(call, facts, pinned, take_chunk, way));
done:
    return status;
}

gpr_status gpr_warm(const gpr_request *request, const gpr_device_facts *facts, int *compiled)
{
    way_to_program *way = calloc(1, sizeof *way);
    gpr_status status = GPR_OK;

    *compiled = 0;
    if (way == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    way->cc = facts->cc;
    GPR_TRY(resolve(request, &way->call));
    /* an array without results needs no program */
    if (way->call.view.rows == 0) goto done;
    status = request->on_device ? warm_array(way, facts) : warm_stream(way, facts);
done:
    *compiled = way->compiled;
    free(way);
    return status;
}
