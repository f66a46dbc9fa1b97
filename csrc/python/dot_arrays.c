/* Sums of products: two arrays of one axis, both of the host or both of one device, become a
 * request. */
#include "python/device_call.h"

/* The options of a dot are those of any call. */
static int read_options(const glue_state *state, PyObject *const *options, glue_call *call,
                        gpr_dot_request *request)
{
    if (glue_read_options(state, options, call) < 0) return -1;
    request->kernel = call->request.kernel;
    request->device = call->request.device;
    request->block_size = call->request.block_size;
    request->grid_size = call->request.grid_size;
    request->stream = call->request.stream;
    return 0;
}

/* ---------------------------------------------------------------- on the host ---------------- */

static int read_host_factor(PyArrayObject *array, gpr_factor *factor)
{
    if (glue_find_dtype(PyArray_DESCR(array), "dot of an array of dtype", &factor->dtype) < 0)
        return -1;
    factor->data = PyArray_DATA(array);
    factor->stride = PyArray_STRIDE(array, 0);
    factor->byteswapped = PyArray_ISBYTESWAPPED(array);
    return 0;
}

static int is_vector(PyObject *object)
{
    return PyArray_Check(object) && PyArray_NDIM((PyArrayObject *)object) == 1;
}

/* dot(a, b, factor, dtype, kernel, device, block_size, grid_size, stream): a and b have one axis
 * and equal lengths, factor is their common dtype. */
static PyObject *dot(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { A, B, FACTOR, DTYPE, OPTIONS, ARGUMENT_COUNT = OPTIONS + GLUE_OPTION_COUNT };
    glue_state *state = glue_state_of(module);
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT};
    glue_call call = {.names_kernel = 0};
    PyArray_Descr *factor = NULL, *dtype = NULL;
    PyObject *result = NULL;
    npy_complex128 scalar = 0; /* room for an element of any type */

    if (count != ARGUMENT_COUNT || !is_vector(from[A]) || !is_vector(from[B]) ||
        PyArray_DIM((PyArrayObject *)from[A], 0) != PyArray_DIM((PyArrayObject *)from[B], 0)) {
        PyErr_SetString(
            PyExc_TypeError,
            "dot takes two arrays of one axis and equal lengths, and seven more arguments");
        return NULL;
    }
    request.result = &scalar;
    request.n = (uint64_t)PyArray_DIM((PyArrayObject *)from[A], 0);
    if (read_host_factor((PyArrayObject *)from[A], &request.a) < 0) return NULL;
    if (read_host_factor((PyArrayObject *)from[B], &request.b) < 0) return NULL;
    if (read_options(state, from + OPTIONS, &call, &request) < 0) return NULL;
    if (glue_read_descr(from[FACTOR], &factor) < 0 || glue_read_descr(from[DTYPE], &dtype) < 0)
        goto done;
    if (factor == NULL) {
        PyErr_SetString(PyExc_TypeError, "the common dtype of dot's arrays must be a dtype");
        goto done;
    }
    if (glue_find_dtype(factor, "dot of dtype", &request.factor) < 0) goto done;
    if (dtype != NULL && glue_find_dtype(dtype, "dot as dtype", &request.compute) < 0) goto done;
    if (request.device != GPR_DEVICE_CPU && glue_locate(state, 0) < 0) goto done;
    if (glue_dot_unlocked(&request) != GPR_OK) {
        glue_raise(state);
    } else if (glue_warn_if_none(state, &call) == 0) {
        /* of kernels that have no dot it would be wrong */
        result = PyArray_Scalar(&scalar, dtype != NULL ? dtype : factor, NULL);
    }
done:
    Py_XDECREF(factor);
    Py_XDECREF(dtype);
    return result;
}

/* ---------------------------------------------------------------- on a device ---------------- */

static int read_device_factor(glue_device_array *array, gpr_factor *factor)
{
    if (array->ndim != 1) {
        PyErr_SetString(PyExc_TypeError, "the arrays of a dot on a device have one axis");
        return -1;
    }
    factor->dtype = array->dtype;
    factor->data = array->data;
    factor->stride = glue_strides_of(array)[0];
    return 0;
}

static int check_pair(glue_device_array *a, glue_device_array *b)
{
    if (glue_shape_of(a)[0] != glue_shape_of(b)[0]) {
        PyErr_SetString(PyExc_ValueError, "the arrays of a dot have equal lengths");
        return -1;
    }
    if (a->device != b->device) {
        PyErr_Format(PyExc_ValueError,
                     "the first array is on device \"cuda:%d\" and the second on \"cuda:%d\"",
                     a->device, b->device);
        return -1;
    }
    return 0;
}

/* dot_on_device(a, b, factor, dtype, kernel, device, block_size, grid_size, stream, make):
 * DeviceArrays of one axis and equal lengths, the name of their common dtype, and what makes
 * room for the result */
static PyObject *dot_on_device(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { A, B, FACTOR, DTYPE, OPTIONS, MAKE = OPTIONS + GLUE_OPTION_COUNT, COUNT };
    glue_state *state = glue_state_of(module);
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT, .on_device = 1};
    glue_call call = {.result_ndim = 0};
    gpr_dtype result_dtype = GPR_DTYPE_DEFAULT;
    PyObject *pair = NULL, *result = NULL;

    if (count != COUNT || !glue_is_device_array(state, from[A]) ||
        !glue_is_device_array(state, from[B])) {
        PyErr_SetString(PyExc_TypeError,
                        "dot_on_device takes two DeviceArrays and eight more arguments");
        return NULL;
    }
    glue_device_array *a = (glue_device_array *)from[A], *b = (glue_device_array *)from[B];
    if (read_device_factor(a, &request.a) < 0 || read_device_factor(b, &request.b) < 0 ||
        check_pair(a, b) < 0)
        return NULL;
    request.n = (uint64_t)glue_shape_of(a)[0];
    if (read_options(state, from + OPTIONS, &call, &request) < 0) return NULL;
    if (glue_check_device(&call.request, a) < 0) return NULL;
    call.request.device = request.device = a->device;
    if (glue_read_compute(from[FACTOR], &request.factor) < 0 ||
        glue_read_compute(from[DTYPE], &request.compute) < 0)
        return NULL;
    result_dtype = request.compute == GPR_DTYPE_DEFAULT ? request.factor : request.compute;
    if (glue_locate(state, 0) < 0) return NULL;
    pair = glue_ask_for_room(from[MAKE], &call, result_dtype);
    if (pair == NULL) return NULL;
    if (!glue_is_device_array(state, PyTuple_GET_ITEM(pair, 1))) {
        PyErr_SetString(PyExc_TypeError,
                        "the memory for the result of a dot on a device is a DeviceArray");
    } else if (glue_use_device_target(&call, (glue_device_array *)PyTuple_GET_ITEM(pair, 1),
                                      result_dtype) == 0) {
        request.result = call.request.result;
        request.result_on_device = 1;
        result = glue_dot_unlocked(&request) == GPR_OK ? Py_NewRef(PyTuple_GET_ITEM(pair, 0))
                                                       : glue_raise(state);
    }
    Py_DECREF(pair);
    return result;
}

PyMethodDef glue_dot_methods[] = {
    {"dot", (PyCFunction)(void (*)(void))dot, METH_FASTCALL,
     PyDoc_STR("dot(a, b, factor, dtype, kernel, device, block_size, grid_size, stream, /)")},
    {"dot_on_device", (PyCFunction)(void (*)(void))dot_on_device, METH_FASTCALL,
     PyDoc_STR("dot_on_device(a, b, factor, dtype, kernel, device, block_size, grid_size, stream, "
               "make) -> what make(shape, dtype) returned first; its second is the result's "
               "memory")},
    {NULL, NULL, 0, NULL},
};
