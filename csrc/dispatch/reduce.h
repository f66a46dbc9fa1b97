/* The record of the last call. */
#ifndef GPR_DISPATCH_REDUCE_H
#define GPR_DISPATCH_REDUCE_H

#include "gpureduce.h"

/* The record of a call of a kernel that begins: on the CPU, until it says otherwise. */
void gpr_begin_run(gpr_run *run, int kernel);
/* Ends a call that succeeded: its record is what gpr_last_run returns to the calling thread. */
void gpr_end_run(gpr_run *run);

#endif
