/* Reductions of device arrays. */
#ifndef GLUE_DEVICE_REDUCE_H
#define GLUE_DEVICE_REDUCE_H

#include "python/glue.h"

/* The result of reduce_plain for anything but an exact ndarray; `out` is None or receives the
 * result. */
PyObject *glue_reduce_plain_device(glue_state *state, PyObject *array, const glue_arguments *given,
                                   PyObject *out);

extern PyMethodDef glue_device_reduce_methods[];

#endif
