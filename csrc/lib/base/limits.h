/* The library's settings. */
#ifndef GPR_LIB_LIMITS_H
#define GPR_LIB_LIMITS_H

#include "gpureduce.h"

/* Changes whenever gpr_set_limits does, so that buffers made for older limits are recognized. */
unsigned gpr_limits_generation(void);

#endif
