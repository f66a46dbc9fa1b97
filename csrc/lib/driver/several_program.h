/* The program of several reductions in one pass. */
#ifndef GPR_LIB_SEVERAL_PROGRAM_H
#define GPR_LIB_SEVERAL_PROGRAM_H

#include "lib/driver/program.h"

/* The object of a plan's program for compute capability `cc`, from the disk cache or compiled;
 * *compiled is which. GPR_ERROR_VALUE: a plan without a pass; GPR_ERROR_DEVICE,
 * GPR_ERROR_COMPILE. */
gpr_status gpr_make_several_object(const gpr_several_plan *plan, int cc, gpr_object *object,
                                   int *compiled);

#endif
