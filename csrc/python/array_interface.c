/* Arrays by the CUDA array interface (__cuda_array_interface__), versions 2 and 3. */
#include "python/device_array.h"

/* An entry of the interface, which is a dict that no other thread has: borrowed; NULL if it is not
 * there or None, an exception only if it is `needed`. */
static PyObject *get_entry(PyObject *interface, const char *key, int needed)
{
    PyObject *value = PyDict_GetItemString(interface, key);

    if (value == Py_None) value = NULL;
    if (value == NULL && needed)
        PyErr_Format(PyExc_ValueError, "the CUDA array interface of the array has no '%s'", key);
    return value;
}

static int read_typestr(PyObject *interface, gpr_dtype *dtype)
{
    PyObject *text = get_entry(interface, "typestr", 1);
    PyArray_Descr *descr = NULL;
    int failed = 1;

    if (text == NULL || PyArray_DescrConverter(text, &descr) == NPY_FAIL) return -1;
    if (PyDataType_ISBYTESWAPPED(descr)) {
        PyErr_Format(PyExc_TypeError, "device arrays in another byte order (%R) are not supported",
                     text);
    } else {
        failed = glue_find_dtype(descr, "reducing a device array of dtype", dtype) < 0;
    }
    Py_DECREF(descr);
    return failed ? -1 : 0;
}

static int read_pointer(PyObject *interface, glue_device_array *array)
{
    PyObject *data = get_entry(interface, "data", 1);

    if (data == NULL) return -1;
    if (!PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2 ||
        !PyLong_Check(PyTuple_GET_ITEM(data, 0))) {
        PyErr_SetString(PyExc_ValueError, "'data' of a CUDA array interface must be a tuple of an "
                                          "address and whether it is read-only");
        return -1;
    }
    array->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
    if (array->data == NULL && PyErr_Occurred() != NULL) return -1;
    array->read_only = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
    return array->read_only < 0 ? -1 : 0;
}

static int read_strides(PyObject *interface, glue_device_array *array)
{
    int64_t strides[GPR_MAX_NDIM];
    PyObject *entry = get_entry(interface, "strides", 0);

    if (entry == NULL) return glue_set_compact_strides(array);
    const int count = glue_read_integers(entry, "'strides' of a CUDA array interface", strides);
    if (count < 0) return -1;
    if (count != array->ndim) {
        PyErr_Format(PyExc_ValueError, "the CUDA array interface has %d strides for %d axes", count,
                     array->ndim);
        return -1;
    }
    memcpy(glue_strides_of(array), strides, (size_t)count * sizeof *strides);
    return 0;
}

/* Version 3 names the stream that the array is ready on; in version 2, which has none, it is
 * ready. */
static int read_stream(const glue_state *state, PyObject *interface, glue_device_array *array)
{
    enum { WITHOUT_STREAM = 2, WITH_STREAM = 3 };
    PyObject *version = get_entry(interface, "version", 1), *stream = NULL;
    const long number = version != NULL ? PyLong_AsLong(version) : -1;

    if (PyErr_Occurred() != NULL) return -1;
    if (number != WITHOUT_STREAM && number != WITH_STREAM) {
        PyErr_Format(PyExc_ValueError,
                     "version %ld of the CUDA array interface is not supported: 2 and 3 are",
                     number);
        return -1;
    }
    stream = number == WITH_STREAM ? get_entry(interface, "stream", 0) : NULL;
    if (stream == NULL) return 0;
    if (glue_read_stream(state, stream, &array->stream) < 0) return -1;
    if (array->stream == NULL) {
        PyErr_SetString(
            PyExc_ValueError,
            "stream 0 of a CUDA array interface is ambiguous, and not allowed: 1 is the "
            "legacy default stream, 2 the thread's");
        return -1;
    }
    array->has_stream = 1;
    return 0;
}

static glue_device_array *read_interface(const glue_state *state, PyObject *interface,
                                         PyObject *owner, void *stream)
{
    int64_t shape[GPR_MAX_NDIM];
    PyObject *entry = NULL;
    glue_device_array *array = NULL;

    if (get_entry(interface, "mask", 0) != NULL) {
        PyErr_SetString(PyExc_TypeError,
                        "masked device arrays are not supported: pass the mask as where=");
        return NULL;
    }
    entry = get_entry(interface, "shape", 1);
    const int ndim =
        entry != NULL ? glue_read_integers(entry, "'shape' of a CUDA array interface", shape) : -1;
    if (ndim < 0) return NULL;
    array = glue_new_device_array(state, ndim);
    if (array == NULL) return NULL;
    memcpy(glue_shape_of(array), shape, (size_t)ndim * sizeof *shape);
    array->stream = stream;
    array->has_stream = stream != NULL;
    if (read_typestr(interface, &array->dtype) < 0 || read_pointer(interface, array) < 0) goto fail;
    if (read_strides(interface, array) < 0 || read_stream(state, interface, array) < 0) goto fail;
    if (glue_check_layout(array) < 0 || glue_check_memory(state, array, 0) < 0) goto fail;
    array->owner = Py_NewRef(owner);
    return array;
fail:
    Py_DECREF(array);
    return NULL;
}

glue_device_array *glue_import_interface(const glue_state *state, PyObject *interface,
                                         PyObject *owner, void *stream)
{
    PyObject *own = NULL;
    glue_device_array *array = NULL;

    if (!PyDict_Check(interface)) {
        PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ must be a dictionary");
        return NULL;
    }
    own = PyDict_Copy(interface); /* the producer's may change while it is read */
    if (own != NULL) array = read_interface(state, own, owner, stream);
    Py_XDECREF(own);
    return array;
}

/* import_cai(interface, owner, stream) -> DeviceArray; stream: where it is ready if the
 * interface names no stream */
static PyObject *import_cai(PyObject *module, PyObject *arguments)
{
    const glue_state *state = glue_state_of(module);
    PyObject *interface = NULL, *owner = NULL, *handle = NULL;
    void *stream = NULL;

    if (!PyArg_ParseTuple(arguments, "OOO", &interface, &owner, &handle)) return NULL;
    if (glue_read_stream(state, handle, &stream) < 0) return NULL;
    return (PyObject *)glue_import_interface(state, interface, owner, stream);
}

PyMethodDef glue_interface_methods[] = {
    {"import_cai", import_cai, METH_VARARGS,
     PyDoc_STR("import_cai(interface, owner, stream) -> DeviceArray")},
    {NULL, NULL, 0, NULL},
};
