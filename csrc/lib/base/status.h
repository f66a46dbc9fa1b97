/* Failing: the one way a function of the library reports an error. */
#ifndef GPR_LIB_STATUS_H
#define GPR_LIB_STATUS_H

#include "gpureduce.h"

/* Records a failure for the calling thread and returns `status`, so that `return gpr_fail(...)`
 * reads well. */
gpr_status gpr_fail(gpr_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds the driver or NVRTC call behind the failure just recorded; `name` may be NULL. Returns
 * its status. */
gpr_status gpr_fail_call(const char *call, int code, const char *name);

/* Hands over a compiler log (malloc'ed, freed by the next failure of this thread or never); may
 * be NULL. */
void gpr_fail_log(char *log);

/* Leaves with `status` through the function's `done` label if the call fails. */
#define GPR_TRY(call)                    \
    do {                                 \
        status = (call);                 \
        if (status != GPR_OK) goto done; \
    } while (0)

#endif
