/* Arrays in a CUDA device's memory, whoever made them: what the import of one comes to. */
#ifndef GLUE_DEVICE_ARRAY_H
#define GLUE_DEVICE_ARRAY_H

#include "python/glue.h"

#include <dlpack/dlpack.h>

/* gpureduce._core.DeviceArray. It keeps alive what lent it the memory: an object, or a managed tensor whose deleter is called when
 * the last reference goes. */
typedef struct glue_device_array {
    PyObject_VAR_HEAD char *data; /* first element; NULL only if there are no elements */
    gpr_dtype dtype;
    int device; /* CUDA ordinal */
    int ndim;
    int read_only;
    int has_stream;
    void *stream; /* of the producer, if has_stream; never NULL then */
    PyObject *owner;
    DLManagedTensor *legacy;
    DLManagedTensorVersioned *versioned;
    int64_t dims[]; /* extents, then steps in bytes */
} glue_device_array;

static inline int64_t *glue_shape_of(glue_device_array *array)
{
    return array->dims;
}

static inline int64_t *glue_strides_of(glue_device_array *array)
{
    return array->dims + array->ndim;
}

/* Makes the type, once per module. */
int glue_add_device_array(PyObject *module);

static inline int glue_is_device_array(const glue_state *state, PyObject *object)
{
    return Py_IS_TYPE(object, (PyTypeObject *)state->device_array_type);
}

/* The object with its library's current stream, by the DLPack C exchange API; NULL without an exception if its type has none. */
glue_device_array *glue_exchange(const glue_state *state, PyObject *object);

/* Memory that a library vouches for: its address, shape, strides in bytes or None, dtype by name or as NumPy's, device, stream as a
 * handle or None, and owner. */
enum { GLUE_DESCRIPTION_COUNT = 7 };
glue_device_array *glue_describe_array(const glue_state *state, PyObject *const *arguments);

/* Whether the arrays' bounds have memory in common. */
int glue_may_overlap(glue_device_array *a, glue_device_array *b);

/* Fills in all of a call but the result's place and the dtype it is computed in; marks the axes that are reduced. 0, or -1 with an
 * exception. */
int glue_read_device_call(const glue_state *state, glue_device_array *source, const glue_arguments *given,
                          glue_call *call, char *reduced, int *keepdims);
/* Calls with shape and strides of the memory for a result: a DeviceArray or a NumPy array. Carries the call out, its result of that
 * dtype; `result` in return, or NULL. */
PyObject *glue_run_into(glue_state *state, glue_call *call, gpr_dtype dtype, PyObject *result, PyObject *target,
                        const char *reduced, int keepdims);
/* The shape of a call's result. New reference. */
PyObject *glue_result_shape(const glue_call *call);

/* ---- known_library.c ---- */

int glue_add_names(glue_state *state);
int glue_visit_libraries(const glue_state *state, visitproc visit, void *arg);
void glue_clear_libraries(glue_state *state);

/* What reduce_plain answers for an array that is none of NumPy's; `out` None or where the result shall go.
 * NotImplemented: src/gpureduce knows better. */
PyObject *glue_reduce_known(glue_state *state, PyObject *array, const glue_arguments *given, PyObject *out);

/* The tables of functions that import, export, order and reduce device arrays, and that make libraries known. */
extern PyMethodDef glue_device_methods[];
extern PyMethodDef glue_import_methods[];
extern PyMethodDef glue_library_methods[];

#endif
