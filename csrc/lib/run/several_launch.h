/* Launches of several reductions in one pass. */
#ifndef GPR_LIB_SEVERAL_LAUNCH_H
#define GPR_LIB_SEVERAL_LAUNCH_H

#include "lib/run/text_program.h"

/* As gpr_several_scratch, gpr_queue_several and gpr_measure_several. */
uint64_t gpr_scratch_of_pieces(const gpr_several_plan *plan, uint32_t pieces);
gpr_status gpr_launch_several(gpr_loaded_image *loaded, const gpr_several_plan *plan,
                              const gpr_several_launch *launch);
gpr_status gpr_time_several(gpr_loaded_image *loaded, const gpr_several_plan *plan,
                            const gpr_several_launch *launch, uint64_t flush_bytes, int repeats,
                            float *milliseconds);

#endif
