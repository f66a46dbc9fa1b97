/* Logarithms of sums of exponentials: an array of the host becomes a request. */
#include "python/glue.h"

static gpr_status logsumexp_unlocked(gpr_request *request)
{
    glue_pause pause;
    gpr_status status = GPR_OK;

    glue_release_gil(&pause, &request->interrupted, &request->interrupted_arg);
    status = gpr_logsumexp(request);
    PyEval_RestoreThread(pause.thread);
    return status;
}

static int is_mask_of(PyObject *mask, PyArrayObject *array)
{
    return PyArray_Check(mask) && PyArray_TYPE((PyArrayObject *)mask) == NPY_BOOL &&
           PyArray_SAMESHAPE((PyArrayObject *)mask, array);
}

/* logsumexp(a, dtype, axis, keepdims, mask): on the CPU; dtype is that of the result, mask None or
 * an array of bool of the array's shape. */
static PyObject *logsumexp(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { ARRAY, DTYPE, AXIS, KEEPDIMS, MASK, ARGUMENT_COUNT };
    glue_state *state = glue_state_of(module);
    glue_call call = {.names_kernel = 0};
    gpr_request *request = &call.request;
    PyArray_Descr *dtype = NULL;
    PyObject *array = NULL, *result = NULL;

    if (count != ARGUMENT_COUNT || !PyArray_Check(from[ARRAY]) ||
        !(from[MASK] == Py_None || is_mask_of(from[MASK], (PyArrayObject *)from[ARRAY]))) {
        PyErr_SetString(PyExc_TypeError, "logsumexp takes an array, a dtype, axes, keepdims and a "
                                         "mask of the array's shape or None");
        return NULL;
    }
    PyArrayObject *const a = (PyArrayObject *)from[ARRAY];
    const int has_mask = from[MASK] != Py_None;

    request->op = GPR_OP_SUM;
    request->device = GPR_DEVICE_CPU;
    if (glue_find_dtype(PyArray_DESCR(a), "logsumexp of an array of dtype", &request->dtype) < 0)
        return NULL;
    if (glue_read_axes(state, from[AXIS], PyArray_NDIM(a), has_mask, &call) < 0) return NULL;
    if (glue_read_keepdims(from[KEEPDIMS], &call) < 0) return NULL;
    if (glue_read_descr(from[DTYPE], &dtype) < 0) return NULL;
    if (dtype == NULL) {
        PyErr_SetString(PyExc_TypeError, "the type of logsumexp's results must be a dtype");
        return NULL;
    }
    if (glue_find_dtype(dtype, "logsumexp as dtype", &request->compute) < 0) goto done;
    glue_set_axes(&call, PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a),
                  has_mask ? PyArray_STRIDES((PyArrayObject *)from[MASK]) : NULL, NULL);
    glue_set_result_shape(&call, 1);
    request->data = PyArray_DATA(a);
    request->byteswapped = PyArray_ISBYTESWAPPED(a);
    if (has_mask) request->mask = PyArray_DATA((PyArrayObject *)from[MASK]);
    array = PyArray_SimpleNewFromDescr(call.result_ndim, call.result_shape,
                                       (PyArray_Descr *)Py_NewRef(dtype));
    if (array == NULL) goto done;
    request->result = PyArray_DATA((PyArrayObject *)array);
    if (logsumexp_unlocked(request) != GPR_OK)
        glue_raise(state);
    else
        result = PyArray_Return((PyArrayObject *)Py_NewRef(array));
done:
    Py_XDECREF(array);
    Py_XDECREF(dtype);
    return result;
}

PyMethodDef glue_exp_sums_methods[] = {
    {"logsumexp", (PyCFunction)(void (*)(void))logsumexp, METH_FASTCALL,
     PyDoc_STR("logsumexp(a, dtype, axis, keepdims, mask, /)")},
    {NULL, NULL, 0, NULL},
};
