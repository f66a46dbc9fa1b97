/* Arrays in a CUDA device's memory, whoever made them: what the import of one comes to. */
#ifndef GLUE_DEVICE_ARRAY_H
#define GLUE_DEVICE_ARRAY_H

#include "dlpack.h"
#include "glue.h"

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

/* The table of functions that import, export, order and reduce device arrays. */
extern PyMethodDef glue_device_methods[];
extern PyMethodDef glue_import_methods[];

#endif
