/* Reductions of device arrays. */
#ifndef GLUE_DEVICE_REDUCE_H
#define GLUE_DEVICE_REDUCE_H

#include "python/glue.h"

/* The result of an array of a library that keeps them in a GPU's memory; `out` is None or receives
 * it. NotImplemented of any other object, and where NumPy has further rules. */
PyObject *glue_reduce_plain_device(glue_state *state, PyObject *array, const glue_arguments *given,
                                   PyObject *out);

extern PyMethodDef glue_device_reduce_methods[];

#endif
