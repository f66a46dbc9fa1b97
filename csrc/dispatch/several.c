/* Several reductions of an array in one pass: the public functions. */
#include "lib/driver/several_program.h"
#include "lib/run/several_launch.h"

#include <string.h>

gpr_status gpr_compile_several(const gpr_several_plan *plan, int cc, gpr_image *image,
                               int *compiled)
{
    gpr_object object = {0};
    gpr_status status = GPR_OK;

    *image = (gpr_image){0};
    GPR_TRY(gpr_make_several_object(plan, cc, &object, compiled));
    *image = (gpr_image){
        .data = object.image, .bytes = object.bytes, .symbol_count = object.entry_count};
    memcpy(image->symbols, object.lowered, sizeof image->symbols);
done:
    return status;
}

uint64_t gpr_several_scratch(const gpr_several_plan *plan, uint32_t pieces)
{
    return gpr_scratch_of_pieces(plan, pieces);
}

gpr_status gpr_queue_several(gpr_loaded_image *loaded, const gpr_several_plan *plan,
                             const gpr_several_launch *launch)
{
    return gpr_launch_several(loaded, plan, launch);
}

gpr_status gpr_measure_several(gpr_loaded_image *loaded, const gpr_several_plan *plan,
                               const gpr_several_launch *launch, uint64_t flush_bytes, int repeats,
                               float *milliseconds)
{
    return gpr_time_several(loaded, plan, launch, flush_bytes, repeats, milliseconds);
}
