/* Arrays in the memory of CUDA devices: their type, and the ways to import one.
 *
 * Nothing here copies elements or makes a stream wait for another: that is the caller's part.
 * Errors of a producer are exceptions, and references taken from the producer before the error are
 * given back. */
#ifndef GLUE_DEVICE_ARRAY_H
#define GLUE_DEVICE_ARRAY_H

#include "python/glue.h"

#include <dlpack/dlpack.h>

/* gpureduce._core.DeviceArray. It keeps the lender of its memory alive: an object, or a managed
 * tensor whose deleter runs when the last reference goes. */
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

static inline int glue_is_device_array(const glue_state *state, PyObject *object)
{
    return Py_IS_TYPE(object, (PyTypeObject *)state->device_array_type);
}

/* CUDA's handles of the default streams, which libraries call 0. */
enum { GLUE_LEGACY_STREAM = 1, GLUE_THREAD_STREAM = 2 };

static inline void *glue_name_stream(void *stream)
{
    return stream != NULL ? stream : (void *)(uintptr_t)GLUE_LEGACY_STREAM;
}

/* ---- device_array.c: the type, and the checks that every way of importing ends with ---- */

/* Makes the type, once per module. */
int glue_add_device_array(PyObject *module);
/* An array of so many axes, to be filled in. */
glue_device_array *glue_new_device_array(const glue_state *state, int ndim);
int glue_check_ndim(long long ndim);
/* A tuple of integers; returns how many, -1 with an exception. */
int glue_read_integers(PyObject *tuple, const char *what, int64_t *numbers);
/* A dtype of the registry by its name. */
int glue_read_dtype_name(PyObject *name, gpr_dtype *dtype);
/* Fills in the steps of a C-contiguous array. */
int glue_set_compact_strides(glue_device_array *array);
int glue_is_compact(glue_device_array *array);
/* Checks extents, pointer and device. */
int glue_check_layout(glue_device_array *array);
/* Reads from the driver which device the memory is on. If the producer named one (`is_named`), both
 * have to agree. */
int glue_check_memory(const glue_state *state, glue_device_array *array, int is_named);
/* The stream that an array is ready on: None, or a handle or an object, of which 0 is the legacy
 * default stream. */
int glue_read_ready_stream(const glue_state *state, PyObject *object, glue_device_array *array);
/* Returns tensors to their producer. Either may be NULL. An exception that is set stays set. */
void glue_return_tensors(DLManagedTensorVersioned *versioned, DLManagedTensor *legacy);
/* Whether the arrays' bounds have memory in common. */
int glue_may_overlap(glue_device_array *a, glue_device_array *b);

/* Memory that a library vouches for: its address, shape, strides in bytes or None, dtype by name
 * or as NumPy's, device, stream or None, and owner. */
enum {
    GLUE_POINTER,
    GLUE_SHAPE,
    GLUE_STRIDES,
    GLUE_DTYPE,
    GLUE_DEVICE_ID,
    GLUE_READY,
    GLUE_OWNER,
    GLUE_DESCRIPTION_COUNT
};
glue_device_array *glue_describe_array(const glue_state *state, PyObject *const *description);

/* ---- array_interface.c ---- */

/* By the CUDA array interface, which `owner` returned; `stream`, a handle, is where it is ready
 * if the interface names no stream, NULL for none. The array is on the device that its memory is
 * on. */
glue_device_array *glue_import_interface(const glue_state *state, PyObject *interface,
                                         PyObject *owner, void *stream);

/* ---- dlpack.c ---- */

/* Takes the tensor of a DLPack capsule over. The array has no stream yet. */
glue_device_array *glue_import_capsule(const glue_state *state, PyObject *capsule);
/* Whether the object's type has a DLPack C exchange API that we understand; -1 with an
 * exception. */
int glue_offers_exchange(const glue_state *state, PyObject *object);
/* The object with its library's current stream, by the DLPack C exchange API of the object's
 * type. NULL without an exception: the type has no such API that we
 * understand. */
glue_device_array *glue_import_exchange(const glue_state *state, PyObject *object);
/* An array of the object's library, made by that API. New reference. */
PyObject *glue_make_exchange(const glue_state *state, PyObject *object, PyObject *shape,
                             gpr_dtype dtype, int device);
/* A capsule that lends the array; of DLPack 1 if `versioned`, else of the version before. */
PyObject *glue_export_capsule(glue_device_array *array, int versioned);

/* ---- the functions that core.c puts into the module ---- */

extern PyMethodDef glue_device_array_methods[];
extern PyMethodDef glue_interface_methods[];
extern PyMethodDef glue_dlpack_methods[];

#endif
