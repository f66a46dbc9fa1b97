/* What operators of users' own need of the library: threads for programs of the CPU, plans of the
 * course's kernels, and the cache of compiled programs. */
#include <string.h>

#include "lib/base/threads.h"
#include "lib/driver/cache.h"
#include "lib/driver/device.h"

void gpr_run_custom_tasks(const gpr_custom_tasks *tasks)
{
    (void)gpr_parallel_for(tasks->count, tasks->run, tasks->context, NULL);
}

_Static_assert((int)GPR_MOST_PASSES == (int)GPR_MAX_PASSES, "a plan has all its passes");

gpr_status gpr_plan_kernel(int kernel, int device, uint64_t rows, uint64_t n, uint32_t block,
                           uint32_t grid, gpr_kernel_plan *plan)
{
    static const char *const finishes[] = {
        [GPR_PASSES] = "passes", [GPR_ATOMIC] = "atomic", [GPR_TICKET] = "ticket"};
    /* the layout decides, not what the elements are */
    const gpr_rule rule = {.element = GPR_UINT8, .device_acc = GPR_UINT64};
    const gpr_layout layout = {
        .rows = rows,
        .n = n,
        .kept = 1,
        .reduced = 1,
        .axes = {{.extent = rows, .in = (int64_t)n}, {.extent = n, .in = 1}}};
    gpr_device *on = NULL;
    gpr_plan made;
    gpr_status status = GPR_OK;

    if (kernel < 0 || kernel >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", kernel);
    const gpr_kernel_row *row = &gpr_kernel_rows[kernel];
    if (gpr_is_planned(row))
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' has several programs: each layout has its own", row->name);
    GPR_TRY(gpr_device_find(device, &on));
    GPR_TRY(gpr_make_plan(kernel, &rule, &layout, 0, block, grid, &on->facts, &made));
    *plan = (gpr_kernel_plan){.finish = finishes[row->finish],
                              .block = made.block,
                              .per_thread = made.per_thread,
                              .partials = made.partials,
                              .more_partials = made.more_partials,
                              .tickets = made.tickets,
                              .pass_count = made.pass_count,
                              .launch_blocks = GPR_MAX_GRID / made.cluster * made.cluster,
                              .cooperative = made.cooperative,
                              .cluster = made.cluster};
    if (made.slots != 0) plan->launch_blocks = (uint64_t)made.slots * made.passes[0].blocks;
    for (int i = 0; i < made.pass_count; i++)
        plan->passes[i] = (gpr_kernel_pass){
            .n = made.passes[i].n, .grid = made.passes[i].grid, .blocks = made.passes[i].blocks};
done:
    return status;
}

int gpr_find_cached_image(const char *key, gpr_image *image)
{
    gpr_object object;
    const int found = gpr_cache_read(key, &object);

    *image = (gpr_image){
        .data = object.image, .bytes = object.bytes, .symbol_count = object.entry_count};
    memcpy(image->symbols, object.lowered, sizeof image->symbols);
    return found;
}

void gpr_cache_image(const char *key, const gpr_image *image)
{
    gpr_object object = {
        .entry_count = image->symbol_count, .image = image->data, .bytes = image->bytes};

    memcpy(object.lowered, image->symbols, sizeof object.lowered);
    gpr_cache_write(key, &object);
}
