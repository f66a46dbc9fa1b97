/* Which device a call runs on. */
#ifndef GPR_DISPATCH_DEVICE_SELECT_H
#define GPR_DISPATCH_DEVICE_SELECT_H

#include "gpureduce.h"

/* The device that is asked for, as an ordinal or GPR_DEVICE_CPU, for `bytes` bytes of a host array.
 * GPR_DEVICE_FASTEST: where that many are expected to be reduced sooner; measures both sides once
 * per process. GPR_ERROR_VALUE: no such device. */
gpr_status gpr_select_device(int asked, uint64_t bytes, int *device);

#endif
