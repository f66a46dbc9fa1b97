/* Launches of a caller's own kernels that need scratch, for the package's own callers. */
#ifndef GPR_LIB_TEXT_PROGRAM_H
#define GPR_LIB_TEXT_PROGRAM_H

#include "lib/run/scratch.h"

/* Addresses of scratch that a launch is told: of tickets, which are zero before and after, and of
 * other memory. */
typedef struct gpr_scratch_places {
    uint64_t tickets, bytes;
} gpr_scratch_places;

/* A launch, and what writes its arguments when scratch of `needs` is there. */
typedef struct gpr_ticket_launch {
    gpr_launch launch;
    gpr_scratch_places needs;
    void (*fill)(void *context, gpr_scratch_places at);
    void *context;
} gpr_ticket_launch;

/* As gpr_queue_launches and gpr_run_launches, of one launch. */
gpr_status gpr_queue_with_tickets(gpr_loaded_image *loaded, const gpr_ticket_launch *given,
                                  void *stream);
gpr_status gpr_run_with_tickets(gpr_loaded_image *loaded, const gpr_ticket_launch *given,
                                void *stream, uint64_t flush_bytes, int repeats,
                                float *milliseconds);

#endif
