/* Exact sums for Python: a state is a capsule, and the functions here are the methods of
 * gpureduce.ExactSum. */
#include "python/device_array.h"

static const char state_name[] = "gpureduce.exact";

static void free_state(PyObject *capsule)
{
    gpr_exact_destroy(PyCapsule_GetPointer(capsule, state_name));
}

static PyObject *wrap(gpr_exact *sum)
{
    PyObject *capsule = PyCapsule_New(sum, state_name, free_state);

    if (capsule == NULL) gpr_exact_destroy(sum);
    return capsule;
}

static gpr_exact *state_in(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, state_name);
}

/* exact_new(dtype) -> state */
static PyObject *exact_new(PyObject *module, PyObject *dtype)
{
    PyArray_Descr *descr = NULL;
    gpr_exact *sum = NULL;
    gpr_dtype number = GPR_DTYPE_DEFAULT;
    int found = -1;

    if (PyArray_DescrConverter(dtype, &descr) == NPY_FAIL) return NULL;
    found = glue_find_dtype(descr, "an exact sum of dtype", &number);
    Py_DECREF(descr);
    if (found < 0) return NULL;
    return gpr_exact_create(number, &sum) == GPR_OK ? wrap(sum) : glue_raise(glue_state_of(module));
}

static int describe_host_array(PyArrayObject *array, glue_call *call)
{
    const int ndim = PyArray_NDIM(array);

    for (int i = 0; i < ndim; i++) {
        call->shape[i] = PyArray_DIM(array, i);
        call->strides[i] = PyArray_STRIDE(array, i);
    }
    call->request.ndim = ndim;
    call->request.shape = call->shape;
    call->request.strides = call->strides;
    call->request.data = PyArray_DATA(array);
    call->request.byteswapped = PyArray_ISBYTESWAPPED(array);
    return glue_find_dtype(PyArray_DESCR(array), "an exact sum of dtype", &call->request.dtype);
}

static int describe_device_array(glue_state *state, glue_device_array *array, glue_call *call)
{
    call->request.dtype = array->dtype;
    call->request.ndim = array->ndim;
    call->request.shape = glue_shape_of(array);
    call->request.strides = glue_strides_of(array);
    call->request.data = array->data;
    call->request.on_device = 1;
    call->request.device = array->device;
    call->request.stream = array->stream;
    return glue_locate(state, 0);
}

/* exact_update(state, array): NumPy's, or a DeviceArray */
static PyObject *exact_update(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    glue_state *state = glue_state_of(module);
    const int on_device = count == 2 && glue_is_device_array(state, arguments[1]);
    gpr_exact *sum = NULL;
    glue_call call;
    glue_pause pause;
    gpr_status status = GPR_OK;

    if (count != 2 || (!on_device && !PyArray_Check(arguments[1]))) {
        PyErr_SetString(PyExc_TypeError, "exact_update takes a state and an array");
        return NULL;
    }
    sum = state_in(arguments[0]);
    if (sum == NULL) return NULL;
    memset(&call.request, 0, sizeof call.request);
    if ((on_device ? describe_device_array(state, (glue_device_array *)arguments[1], &call)
                   : describe_host_array((PyArrayObject *)arguments[1], &call)) < 0)
        return NULL;
    glue_release_gil(&pause, &call.request.interrupted, &call.request.interrupted_arg);
    status = gpr_exact_update(sum, &call.request);
    PyEval_RestoreThread(pause.thread);
    if (status != GPR_OK) return glue_raise(state);
    Py_RETURN_NONE;
}

/* exact_merge(state, other) */
static PyObject *exact_merge(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    gpr_exact *sum = NULL, *other = NULL;

    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "exact_merge takes two states");
        return NULL;
    }
    sum = state_in(arguments[0]);
    other = sum != NULL ? state_in(arguments[1]) : NULL;
    if (other == NULL) return NULL;
    if (gpr_exact_merge(sum, other) != GPR_OK) return glue_raise(glue_state_of(module));
    Py_RETURN_NONE;
}

/* exact_result(state, descr, mean) -> scalar */
static PyObject *exact_result(PyObject *module, PyObject *arguments)
{
    PyObject *capsule = NULL, *dtype = NULL;
    PyArray_Descr *descr = NULL;
    PyObject *result = NULL;
    gpr_dtype number = GPR_DTYPE_DEFAULT;
    gpr_status status = GPR_OK;
    uint64_t value = 0; /* room for an element of any type */
    int mean = 0;

    if (!PyArg_ParseTuple(arguments, "OOp", &capsule, &dtype, &mean)) return NULL;
    const gpr_exact *sum = state_in(capsule);
    if (sum == NULL || glue_read_descr(dtype, &descr) < 0) return NULL;
    if (descr == NULL) {
        PyErr_SetString(PyExc_TypeError, "exact_result takes a dtype");
        return NULL;
    }
    if (glue_find_dtype(descr, "an exact sum as dtype", &number) == 0) {
        status = mean ? gpr_exact_mean(sum, number, &value) : gpr_exact_result(sum, number, &value);
        result = status == GPR_OK ? PyArray_Scalar(&value, descr, NULL)
                                  : glue_raise(glue_state_of(module));
    }
    Py_DECREF(descr);
    return result;
}

static PyObject *exact_count(PyObject *module, PyObject *capsule)
{
    const gpr_exact *sum = state_in(capsule);

    (void)module;
    return sum != NULL ? PyLong_FromUnsignedLongLong(gpr_exact_count(sum)) : NULL;
}

static PyObject *exact_dtype(PyObject *module, PyObject *capsule)
{
    const gpr_exact *sum = state_in(capsule);

    (void)module;
    return sum != NULL ? PyUnicode_FromString(gpr_dtype_name(gpr_exact_dtype(sum))) : NULL;
}

static PyObject *exact_store(PyObject *module, PyObject *capsule)
{
    const gpr_exact *sum = state_in(capsule);
    PyObject *bytes = NULL;

    (void)module;
    if (sum == NULL) return NULL;
    bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)gpr_exact_bytes(gpr_exact_dtype(sum)));
    if (bytes != NULL) gpr_exact_store(sum, PyBytes_AS_STRING(bytes));
    return bytes;
}

/* exact_load(buffer) -> state */
static PyObject *exact_load(PyObject *module, PyObject *object)
{
    Py_buffer bytes;
    gpr_exact *sum = NULL;
    gpr_status status = GPR_OK;

    if (PyObject_GetBuffer(object, &bytes, PyBUF_SIMPLE) < 0) return NULL;
    status = gpr_exact_load(bytes.buf, (size_t)bytes.len, &sum);
    PyBuffer_Release(&bytes);
    return status == GPR_OK ? wrap(sum) : glue_raise(glue_state_of(module));
}

PyMethodDef glue_exact_methods[] = {
    {"exact_new", exact_new, METH_O, PyDoc_STR("exact_new(dtype) -> state")},
    {"exact_update", (PyCFunction)(void (*)(void))exact_update, METH_FASTCALL,
     PyDoc_STR("exact_update(state, array)")},
    {"exact_merge", (PyCFunction)(void (*)(void))exact_merge, METH_FASTCALL,
     PyDoc_STR("exact_merge(state, other)")},
    {"exact_result", exact_result, METH_VARARGS,
     PyDoc_STR("exact_result(state, dtype, mean) -> scalar")},
    {"exact_count", exact_count, METH_O, PyDoc_STR("exact_count(state) -> int")},
    {"exact_dtype", exact_dtype, METH_O, PyDoc_STR("exact_dtype(state) -> name")},
    {"exact_store", exact_store, METH_O, PyDoc_STR("exact_store(state) -> bytes")},
    {"exact_load", exact_load, METH_O, PyDoc_STR("exact_load(buffer) -> state")},
    {NULL, NULL, 0, NULL},
};
