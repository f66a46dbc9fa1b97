/* Reductions of device arrays. */
#ifndef GLUE_DEVICE_REDUCE_H
#define GLUE_DEVICE_REDUCE_H

#include "python/glue.h"

/* What reduce_plain returns for anything but an exact ndarray; `out` None or where the result
 * goes. */
PyObject *glue_reduce_plain_device(glue_state *state, PyObject *array, const glue_arguments *given,
                                   PyObject *out);

extern PyMethodDef glue_device_reduce_methods[];

#endif
