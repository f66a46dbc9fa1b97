/* The record of the last call. */
#ifndef GPR_DISPATCH_REDUCE_H
#define GPR_DISPATCH_REDUCE_H

#include "gpureduce.h"

/* Makes `run` what gpr_last_run returns to the calling thread. */
void gpr_record_run(const gpr_run *run);

#endif
