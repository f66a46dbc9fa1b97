/* Waiting for a few results that a kernel writes to pinned memory. The driver reports that a kernel
 * has ended a while after its last store has arrived here; looking at the memory itself is
 * sooner. */
#ifndef GPR_LIB_POLL_RESULTS_H
#define GPR_LIB_POLL_RESULTS_H

#include "lib/driver/driver.h"
#include "lib/rules/plan.h"

enum {
    GPR_AWAITED_RESULTS = 64, /* bytes of numbers that are worth looking at: a cache line */
    GPR_MOST_AWAITED = 640    /* and of anything: an exact sum of float64 has 560 */
};

/* Whether a plan's results may be read as soon as all of them have been written: each is written
 * once, after all elements that it depends on have been read, and the kernel leaves no tickets or
 * other scratch behind that work on another stream could meet. */
int gpr_writes_once(const gpr_plan *plan);

/* Fills memory with marks, which results overwrite. Before the kernel is queued. */
void gpr_mark_results(void *pinned, uint64_t bytes);

/* Waits until all marks have been written over, in stores of `unit` bytes (1, 2 or 4) or multiples,
 * and copies the results to *to; or, where that takes long or a result looks like a mark, until the
 * stream has come to its end. At most GPR_MOST_AWAITED bytes. GPR_ERROR_CUDA. */
gpr_status gpr_await_results(CUstream stream, const void *pinned, uint64_t bytes, size_t unit,
                             void *to);

#endif
