/* Device memory of our own, loans of other libraries' memory, and the order of streams around
 * both. */
#ifndef GLUE_DEVICE_BUFFER_H
#define GLUE_DEVICE_BUFFER_H

#include "python/device_array.h"

/* ---- stream_order.c: each returns 0, or -1 with an exception ---- */

/* Work queued on `then` from now on waits for work queued on `first` before. */
int glue_order_streams(const glue_state *state, int device, void *first, void *then);
/* The stream of our own on a device. */
int glue_find_device_stream(const glue_state *state, int device, void **stream);

/* ---- loans.c ---- */

/* Keeps `lent` alive until the device has done the work that is queued on `stream` now. 0, or -1
 * with an exception. */
int glue_keep_loan(glue_state *state, int device, void *stream, PyObject *lent);

/* ---- device_buffer.c ---- */

/* gpureduce.DeviceBuffer: an array in memory of our own, which every library can take over. */
typedef struct glue_device_buffer {
    PyObject_HEAD glue_device_array *memory; /* with a stream */
    PyObject *weak_references;
} glue_device_buffer;

/* Makes the type, once per module. */
int glue_add_device_buffer(PyObject *module);
/* A buffer of that shape, a tuple, for work on `stream`. New reference. */
PyObject *glue_make_buffer(const glue_state *state, PyObject *shape, gpr_dtype dtype, int device,
                           void *stream);
/* A pair of the buffer's parts along its first axis, which has two elements; they share its
 * memory. New reference. */
PyObject *glue_halve_buffer(const glue_state *state, PyObject *buffer);

static inline int glue_is_device_buffer(const glue_state *state, PyObject *object)
{
    return Py_IS_TYPE(object, (PyTypeObject *)state->device_buffer_type);
}

/* ---- the functions that core.c puts into the module ---- */

extern PyMethodDef glue_stream_methods[];
extern PyMethodDef glue_loan_methods[];
extern PyMethodDef glue_buffer_methods[];

#endif
