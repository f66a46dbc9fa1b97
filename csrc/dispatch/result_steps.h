/* Results in host memory with steps between them. */
#ifndef GPR_DISPATCH_RESULT_STEPS_H
#define GPR_DISPATCH_RESULT_STEPS_H

#include "lib/rules/resolved.h"

/* results copied between two calls of the interrupt callback */
enum { GPR_MANY_RESULTS = 1 << 18 };

/* GPR_ERROR_INTERRUPTED if the callback stops the call: called once per GPR_MANY_RESULTS that
 * are copied. */
gpr_status gpr_check_interrupt(int (*interrupted)(void *), void *arg);

/* The axes of results in host memory, outputs first. */
typedef struct gpr_result_axes {
    int count;
    uint64_t bytes, results; /* of a result; number of them */
    int64_t shape[GPR_MAX_NDIM + 1];
} gpr_result_axes;

/* Whether the results' steps leave gaps or change their order; *axes is filled in if so. */
int gpr_results_have_steps(const gpr_request *request, const gpr_rule *rule, gpr_result_axes *axes);

/* Copies contiguous results to the request's memory, by its steps. */
gpr_status gpr_spread_results(const gpr_request *request, const gpr_result_axes *axes,
                              const char *results);

/* Runs a call by `run_call`, to memory of its own for the results, and copies them from there.
 * GPR_ERROR_MEMORY. */
gpr_status gpr_run_with_steps(const gpr_request *request, gpr_resolved *call,
                              const gpr_result_axes *axes,
                              gpr_status (*run_call)(const gpr_resolved *, gpr_run *),
                              gpr_run *run);

#endif
