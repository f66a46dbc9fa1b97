/* Launches of a caller's own kernels that need scratch, for the package's own callers. */
#ifndef GPR_LIB_TEXT_PROGRAM_H
#define GPR_LIB_TEXT_PROGRAM_H

#include "lib/run/scratch.h"

/* Addresses of scratch that a launch is told: of tickets, which are zero before and after, and of
 * other memory. */
typedef struct gpr_scratch_places {
    uint64_t tickets, bytes;
} gpr_scratch_places;

/* As gpr_queue_launches, of one launch: fill(context, tickets, memory) writes its arguments when
 * scratch of `needs` is there. */
gpr_status gpr_queue_with_tickets(gpr_loaded_image *loaded, const gpr_launch *launch, void *stream,
                                  gpr_scratch_places needs,
                                  void (*fill)(void *context, gpr_scratch_places at),
                                  void *context);

#endif
