/* Compiling what a call will need before it is made, for a GPU that need not be here: resolved and
 * planned like the call, and compiled into the disk cache. Nothing is loaded or launched. */
#include <stdlib.h>

#include "dispatch/resolve.h"
#include "lib/driver/program.h"
#include "lib/run/launch.h"

/* What a call is on its way to a program; on the heap, as it is too large for small stacks. */
typedef struct way_to_program {
    gpr_rule rule;
    gpr_view view;
    gpr_layout layout;
    gpr_plan plan;
} way_to_program;

/* The plan of a device array's call, for results in memory that is aligned as memory is. */
static gpr_status plan_array(const gpr_request *request, const gpr_device_facts *facts,
                             way_to_program *way)
{
    int kernel = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_resolve_view(request, &way->rule, &kernel, &way->view));
    if (way->view.rows == 0)
        return gpr_fail(GPR_ERROR_VALUE, "an array without results needs no program");
    gpr_view_layout(&way->view, NULL, &way->layout);
    status = gpr_make_plan(kernel, &way->rule, &way->layout, 1, request->block_size,
                           request->grid_size, facts, &way->plan);
done:
    return status;
}

gpr_status gpr_warm(const gpr_request *request, const gpr_device_facts *facts, int *compiled)
{
    way_to_program *way = malloc(sizeof *way);
    gpr_object object = {0};
    gpr_status status = GPR_OK;

    *compiled = 0;
    if (way == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    GPR_TRY(plan_array(request, facts, way));
    const gpr_kernel_traits traits = gpr_plan_traits(&way->plan, &way->rule, 1);
    status = gpr_make_object(&traits, facts->cc, 1, &object, compiled);
    gpr_object_clear(&object);
done:
    free(way);
    return status;
}
