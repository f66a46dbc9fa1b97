/* A request, checked and resolved. */
#ifndef GPR_LIB_REDUCE_H
#define GPR_LIB_REDUCE_H

#include "lib/rules/nd_view.h"
#include "lib/rules/rules.h"

typedef struct gpr_resolved {
    gpr_rule rule;
    gpr_view view;
    int kernel; /* registry index of the one that answers, never auto's own; of rows without elements, fast's */
    int device; /* CUDA ordinal or GPR_DEVICE_CPU */
} gpr_resolved;

/* Checks everything about a request that can be checked before work starts, in the order a user would want to hear of it. */
gpr_status gpr_resolve(const gpr_request *request, gpr_resolved *resolved);

/* The device that is asked for, as an ordinal or GPR_DEVICE_CPU, for `bytes` bytes of a host array. GPR_ERROR_VALUE: no such. */
gpr_status gpr_resolve_device(int asked, uint64_t bytes, int *device);

/* GPR_ERROR_VALUE: arrays and results that are not where `device` is. */
gpr_status gpr_check_places(const gpr_request *request, int device);

/* Makes `run` what gpr_last_run tells the calling thread. */
void gpr_record_run(const gpr_run *run);

/* GPR_DEVICE_FASTEST: where a host array of `bytes` bytes is expected to be reduced sooner; measures both once per process. */
int gpr_choose_device(uint64_t bytes);

#endif
