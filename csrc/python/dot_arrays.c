/* Sums of products: two NumPy arrays of one axis become a request, and its result a NumPy scalar. */
#include "python/glue.h"

static int read_factor(PyArrayObject *array, gpr_factor *factor)
{
    if (glue_find_dtype(PyArray_DESCR(array), "dot of an array of dtype", &factor->dtype) < 0) return -1;
    factor->data = PyArray_DATA(array);
    factor->stride = PyArray_STRIDE(array, 0);
    factor->byteswapped = PyArray_ISBYTESWAPPED(array);
    return 0;
}

static int is_vector(PyObject *object)
{
    return PyArray_Check(object) && PyArray_NDIM((PyArrayObject *)object) == 1;
}

gpr_status glue_dot_unlocked(gpr_dot_request *request)
{
    glue_pause pause;
    gpr_status status = GPR_OK;

    request->interrupted = glue_is_interrupted;
    request->interrupted_arg = &pause;
    pause.thread = PyEval_SaveThread();
    status = gpr_dot(request);
    PyEval_RestoreThread(pause.thread);
    return status;
}

int glue_read_dot_options(const glue_state *state, PyObject *const *options, glue_call *call, gpr_dot_request *request)
{
    if (glue_read_options(state, options, call) < 0) return -1;
    request->kernel = call->request.kernel;
    request->device = call->request.device;
    request->block_size = call->request.block_size;
    request->grid_size = call->request.grid_size;
    request->stream = call->request.stream;
    return 0;
}

/* dot(a, b, factor, dtype, kernel, device, block_size, grid_size, stream): a and b have one axis and equal lengths, factor is their
 * common dtype. */
PyObject *glue_dot(PyObject *module, PyObject *const *from, Py_ssize_t count)
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
        PyErr_SetString(PyExc_TypeError,
                        "dot takes two arrays of one axis and equal lengths, and seven more arguments");
        return NULL;
    }
    request.result = &scalar;
    request.n = (uint64_t)PyArray_DIM((PyArrayObject *)from[A], 0);
    if (read_factor((PyArrayObject *)from[A], &request.a) < 0) return NULL;
    if (read_factor((PyArrayObject *)from[B], &request.b) < 0) return NULL;
    if (glue_read_dot_options(state, from + OPTIONS, &call, &request) < 0) return NULL;
    if (glue_read_descr(from[FACTOR], &factor) < 0 || glue_read_descr(from[DTYPE], &dtype) < 0) goto done;
    if (factor == NULL) {
        PyErr_SetString(PyExc_TypeError, "the common dtype of dot's arrays must be a dtype");
        goto done;
    }
    if (glue_find_dtype(factor, "dot of dtype", &request.factor) < 0) goto done;
    if (dtype != NULL && glue_find_dtype(dtype, "dot as dtype", &request.compute) < 0) goto done;
    if (request.device != GPR_DEVICE_CPU && glue_locate(state, 0) < 0) goto done;
    if (glue_dot_unlocked(&request) != GPR_OK) {
        glue_raise(state);
    } else if (glue_warn_if_none(state, &call) == 0) { /* of kernels that have no dot it would say something wrong */
        result = PyArray_Scalar(&scalar, dtype != NULL ? dtype : factor, NULL);
    }
done:
    Py_XDECREF(factor);
    Py_XDECREF(dtype);
    return result;
}
