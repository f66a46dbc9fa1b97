/* Calls with device arrays, as device_reduce.c and dot_arrays.c make them. */
#ifndef GLUE_DEVICE_CALL_H
#define GLUE_DEVICE_CALL_H

#include "python/device_array.h"

/* The dtype to compute in: None, a name of the registry, or anything that NumPy takes for a
 * dtype. */
int glue_read_compute(PyObject *object, gpr_dtype *compute);
/* Refuses a device that is not the array's: an array is reduced where it is. */
int glue_check_device(const gpr_request *request, const glue_device_array *source);
/* An element that rows have beside their own: bytes of the request's dtype, None or NULL. The
 * request borrows them. 0, or -1 with an exception. */
int glue_read_row_start(PyObject *object, gpr_request *request);
/* Fills in all of a call but the result's place and the dtype it is computed in; marks the axes
 * that are reduced. 0, or -1 with an exception. */
int glue_read_device_call(const glue_state *state, glue_device_array *source,
                          const glue_arguments *given, glue_call *call);
/* The shape of a call's result. New reference. */
PyObject *glue_result_shape(const glue_call *call);
/* Calls make(shape, dtype's name) of Python, with the order of the axes in memory, the farthest
 * first, where that is not C's; new reference to its (result, memory for the result). */
PyObject *glue_ask_for_room(PyObject *make, const glue_call *call, gpr_dtype dtype);
/* Makes a device array of the result's shape, dtype and device the place of the result. 0, or -1
 * with an exception. */
int glue_use_device_target(glue_call *call, glue_device_array *target, gpr_dtype dtype);
/* Carries the call out, its result of that dtype into `target`, a DeviceArray or a NumPy array;
 * `result` in return, or NULL. */
PyObject *glue_run_into(glue_state *state, glue_call *call, gpr_dtype dtype, PyObject *result,
                        PyObject *target);

#endif
