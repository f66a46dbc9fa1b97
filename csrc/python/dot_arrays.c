/* Sums of products, squares and magnitudes: one array or two, of the host or of one device, become
 * a request. */
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

/* Where a type is in an error. */
typedef struct type_words {
    const char *array, *factor, *result;
} type_words;

static const type_words words_of_dot = {"dot of an array of dtype", "dot of dtype", "dot as dtype"};
static const type_words words_of_products = {"products of an array of dtype", "products of dtype",
                                             "products as dtype"};

/* All but the steps. */
static int read_host_factor(PyArrayObject *array, const type_words *words, gpr_factor *factor)
{
    if (glue_find_dtype(PyArray_DESCR(array), words->array, &factor->dtype) < 0) return -1;
    factor->data = PyArray_DATA(array);
    factor->byteswapped = PyArray_ISBYTESWAPPED(array);
    return 0;
}

/* Reads the common dtype of the factors, and that of the result, which may be None: the common
 * one. The dtype of the result; new reference. */
static PyArray_Descr *read_host_types(PyObject *const *types, const type_words *words,
                                      gpr_dot_request *request)
{
    PyArray_Descr *factor = NULL, *dtype = NULL, *of_result = NULL;

    if (glue_read_descr(types[0], &factor) < 0 || glue_read_descr(types[1], &dtype) < 0) goto done;
    if (factor == NULL) {
        PyErr_SetString(PyExc_TypeError, "the common dtype of factors must be a dtype");
        goto done;
    }
    if (glue_find_dtype(factor, words->factor, &request->factor) < 0) goto done;
    if (dtype != NULL && glue_find_dtype(dtype, words->result, &request->compute) < 0) goto done;
    of_result = dtype != NULL ? dtype : factor;
    Py_INCREF(of_result);
done:
    Py_XDECREF(factor);
    Py_XDECREF(dtype);
    return of_result;
}

static int is_vector(PyObject *object)
{
    return PyArray_Check(object) && PyArray_NDIM((PyArrayObject *)object) == 1;
}

/* The product of two arrays of one axis and equal lengths. types: those of the factors and of the
 * result. */
static PyObject *dot_vectors(glue_state *state, PyArrayObject *a, PyArrayObject *b,
                             PyObject *const *types, PyObject *const *options)
{
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT};
    glue_call call = {.names_kernel = 0};
    PyArray_Descr *dtype = NULL;
    PyObject *result = NULL;
    npy_complex128 scalar = 0; /* room for an element of any type */

    request.result = &scalar;
    request.n = (uint64_t)PyArray_DIM(a, 0);
    if (read_host_factor(a, &words_of_dot, &request.a) < 0) return NULL;
    if (read_host_factor(b, &words_of_dot, &request.b) < 0) return NULL;
    request.a.stride = PyArray_STRIDE(a, 0);
    request.b.stride = PyArray_STRIDE(b, 0);
    if (read_options(state, options, &call, &request) < 0) return NULL;
    dtype = read_host_types(types, &words_of_dot, &request);
    if (dtype == NULL) return NULL;
    if (request.device != GPR_DEVICE_CPU && glue_locate(state, 0) < 0) goto done;
    if (glue_dot_unlocked(&request) != GPR_OK) {
        glue_raise(state);
    } else if (glue_warn_if_none(state, &call) == 0) {
        /* of kernels that have no dot it would be wrong */
        result = PyArray_Scalar(&scalar, dtype, NULL);
    }
done:
    Py_DECREF(dtype);
    return result;
}

/* dot(a, b, factor, dtype, kernel, device, block_size, grid_size, stream): a and b have one axis
 * and equal lengths, factor is their common dtype. */
static PyObject *dot(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { A, B, FACTOR, OPTIONS = FACTOR + 2, ARGUMENT_COUNT = OPTIONS + GLUE_OPTION_COUNT };

    if (count != ARGUMENT_COUNT || !is_vector(from[A]) || !is_vector(from[B]) ||
        PyArray_DIM((PyArrayObject *)from[A], 0) != PyArray_DIM((PyArrayObject *)from[B], 0)) {
        PyErr_SetString(
            PyExc_TypeError,
            "dot takes two arrays of one axis and equal lengths, and seven more arguments");
        return NULL;
    }
    return dot_vectors(glue_state_of(module), (PyArrayObject *)from[A], (PyArrayObject *)from[B],
                       from + FACTOR, from + OPTIONS);
}

/* dot_plain(a, b, conjugates, dtype, kernel, device, block_size, grid_size, stream): of two exact
 * ndarrays of one axis, one length and one dtype of native byte order; NotImplemented of others,
 * and of complex numbers if the first array is to be conjugated. */
static PyObject *dot_plain(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { A, B, CONJUGATES, DTYPE, OPTIONS, ARGUMENT_COUNT = OPTIONS + GLUE_OPTION_COUNT };

    if (count != ARGUMENT_COUNT || !PyBool_Check(from[CONJUGATES])) {
        PyErr_SetString(PyExc_TypeError,
                        "dot_plain takes two arrays, a bool and six more arguments");
        return NULL;
    }
    if (!PyArray_CheckExact(from[A]) || !PyArray_CheckExact(from[B])) Py_RETURN_NOTIMPLEMENTED;
    PyArrayObject *const a = (PyArrayObject *)from[A], *const b = (PyArrayObject *)from[B];
    PyObject *const types[] = {(PyObject *)PyArray_DESCR(a), from[DTYPE]};
    if (PyArray_NDIM(a) != 1 || !PyArray_SAMESHAPE(a, b) || PyArray_DESCR(a) != PyArray_DESCR(b) ||
        PyArray_ISBYTESWAPPED(a) || (from[CONJUGATES] == Py_True && PyArray_ISCOMPLEX(a)))
        Py_RETURN_NOTIMPLEMENTED;
    return dot_vectors(glue_state_of(module), a, b, types, from + OPTIONS);
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

/* Reads the names of the factors' common dtype and of the result's, which may be None. */
static int read_device_types(PyObject *const *types, gpr_dot_request *request)
{
    return glue_read_compute(types[0], &request->factor) < 0 ||
                   glue_read_compute(types[1], &request->compute) < 0
               ? -1
               : 0;
}

/* Sums into memory that `make` makes room in; what it returned with that. */
static PyObject *run_into_room(glue_state *state, PyObject *make, glue_call *call,
                               gpr_dot_request *request)
{
    const gpr_dtype dtype =
        request->compute == GPR_DTYPE_DEFAULT ? request->factor : request->compute;
    int64_t steps[GPR_MAX_NDIM + 1];
    PyObject *pair = NULL, *result = NULL;

    if (glue_locate(state, 0) < 0) return NULL;
    pair = glue_ask_for_room(make, call, dtype);
    if (pair == NULL) return NULL;
    glue_device_array *const target = (glue_device_array *)PyTuple_GET_ITEM(pair, 1);
    if (!glue_is_device_array(state, (PyObject *)target)) {
        PyErr_SetString(PyExc_TypeError,
                        "the memory for the result of a dot on a device is a DeviceArray");
    } else if (glue_use_device_target(call, target, dtype) == 0) {
        glue_set_result_strides(call, glue_strides_of(target), steps);
        request->result = call->request.result;
        request->result_strides = call->request.result_strides;
        request->result_on_device = 1;
        result = glue_dot_unlocked(request) == GPR_OK ? Py_NewRef(PyTuple_GET_ITEM(pair, 0))
                                                      : glue_raise(state);
    }
    Py_DECREF(pair);
    return result;
}

/* dot_on_device(a, b, factor, dtype, kernel, device, block_size, grid_size, stream, make):
 * DeviceArrays of one axis and equal lengths, the name of their common dtype, and what makes
 * room for the result */
static PyObject *dot_on_device(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { A, B, FACTOR, OPTIONS = FACTOR + 2, MAKE = OPTIONS + GLUE_OPTION_COUNT, COUNT };
    glue_state *state = glue_state_of(module);
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT, .on_device = 1};
    glue_call call = {.result_ndim = 0};

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
    if (read_device_types(from + FACTOR, &request) < 0) return NULL;
    return run_into_room(state, from[MAKE], &call, &request);
}

/* ---------------------------------------------------------------- along axes ---------------- */

/* The arguments of sums along axes behind the two arrays, of which the second is None for squares
 * and magnitudes. */
enum { FACTOR = 2, AXIS = FACTOR + 2, KEEPDIMS, PRODUCTS, CONJUGATE, ROOT, ALONG_OPTIONS };

/* The call's axes stand for a sum's. */
static int read_axes(const glue_state *state, PyObject *const *from, int ndim, glue_call *call)
{
    call->request.op = GPR_OP_SUM;
    return glue_read_axes(state, from[AXIS], ndim, 0, call) < 0 ||
                   glue_read_keepdims(from[KEEPDIMS], call) < 0
               ? -1
               : 0;
}

/* Reads what host arrays and device arrays have in common. */
static int read_along(const glue_state *state, PyObject *const *from, int ndim, glue_call *call,
                      gpr_dot_request *request)
{
    const long products = PyLong_AsLong(from[PRODUCTS]);

    if (products == -1 && PyErr_Occurred() != NULL) return -1;
    if (products < GPR_PRODUCTS || products > GPR_MAGNITUDES) {
        PyErr_Format(PyExc_ValueError, "there is no product %R", from[PRODUCTS]);
        return -1;
    }
    request->products = (gpr_products)products;
    request->conjugate = PyObject_IsTrue(from[CONJUGATE]);
    request->root = PyObject_IsTrue(from[ROOT]);
    if (request->conjugate < 0 || request->root < 0) return -1;
    if (read_axes(state, from, ndim, call) < 0) return -1;
    return read_options(state, from + ALONG_OPTIONS, call, request);
}

/* Gives the request the axes of its arrays; `second` NULL: there is one. Results of host arrays
 * are in memory in the order of these, as NumPy's are. */
static void set_along(glue_call *call, int ndim, const int64_t *shape, const int64_t *first,
                      const int64_t *second, gpr_dot_request *request)
{
    int order[GPR_MAX_NDIM];
    const int has_order =
        !request->on_device && glue_find_order(call, ndim, shape, first, second, order);

    call->resolution.outputs = 1;
    glue_set_axes(call, ndim, shape, first, second, has_order ? order : NULL);
    glue_set_result_shape(call, 1);
    request->ndim = call->request.ndim;
    request->reduced = call->request.reduced;
    request->shape = call->shape;
    request->a.strides = call->strides;
    request->b.strides = call->mask_strides;
}

/* Whether an array of doubles has them in memory in the order of the results. */
static int lies_as(PyArrayObject *doubles, PyArrayObject *results)
{
    const npy_intp bytes = PyArray_ITEMSIZE(results);

    if (PyArray_TYPE(doubles) != NPY_DOUBLE || !PyArray_ISBEHAVED_RO(doubles) ||
        !PyArray_SAMESHAPE(doubles, results))
        return 0;
    for (int i = 0; i < PyArray_NDIM(results); i++)
        if (PyArray_STRIDE(doubles, i) / (npy_intp)sizeof(double) !=
            PyArray_STRIDE(results, i) / bytes)
            return 0;
    return 1;
}

/* Reads divisors of sums: *one for all, or an array of one for each, copied to the order in which
 * the results are in memory. *made is to be released. */
static int read_divisors(PyObject *from, PyObject *results, double *one, PyObject **made,
                         gpr_dot_request *request)
{
    PyArray_Descr *const descr = PyArray_DescrFromType(NPY_DOUBLE);

    if (results == NULL || !PyArray_Check(from)) {
        Py_DECREF(descr);
        *one = PyFloat_AsDouble(from);
        request->divisors = one;
        request->has_one_divisor = 1;
        return *one == -1 && PyErr_Occurred() != NULL ? -1 : 0;
    }
    if (lies_as((PyArrayObject *)from, (PyArrayObject *)results)) {
        Py_DECREF(descr);
        request->divisors = PyArray_DATA((PyArrayObject *)from);
        return 0;
    }
    *made = PyArray_NewLikeArray((PyArrayObject *)results, NPY_KEEPORDER, descr, 0);
    if (*made == NULL || PyArray_CopyInto((PyArrayObject *)*made, (PyArrayObject *)from) < 0)
        return -1;
    request->divisors = PyArray_DATA((PyArrayObject *)*made);
    return 0;
}

/* Clears a call but for its lists of axes, which are most of it. */
static void begin_call(glue_call *call)
{
    memset(&call->request, 0, sizeof call->request);
    call->names_kernel = 0;
}

/* Squares of complex numbers are those of both parts, which are neighbours along an axis more, a
 * reduced one. */
static int square_parts(PyArrayObject *array, glue_call *call, gpr_dot_request *request)
{
    if (request->products != GPR_SQUARES || !PyArray_ISCOMPLEX(array)) return 0;
    if (request->ndim == GPR_MAX_NDIM) {
        PyErr_SetString(PyExc_ValueError, "complex numbers have too many axes for their parts");
        return -1;
    }
    call->shape[request->ndim] = 2;
    call->strides[request->ndim] = PyArray_ITEMSIZE(array) / 2;
    request->ndim++;
    request->reduced++;
    request->a.dtype = request->a.dtype == GPR_COMPLEX64 ? GPR_FLOAT32 : GPR_FLOAT64;
    return 0;
}

/* Runs a request of host arrays, of which the second is NULL for squares and magnitudes, and has
 * these steps else. The result's array, or its scalar. */
static PyObject *run_along(glue_state *state, PyObject *const *types, PyArrayObject *a,
                           PyArrayObject *b, const npy_intp *steps_of_b, glue_call *call,
                           gpr_dot_request *request, PyObject *divisors)
{
    PyArray_Descr *dtype = NULL;
    PyObject *array = NULL, *in_order = NULL, *result = NULL;
    npy_complex128 scalar = 0; /* room for an element of any type */
    int64_t strides[GPR_MAX_NDIM + 1];
    double one;

    if (read_host_factor(a, &words_of_products, &request->a) < 0) return NULL;
    if (b != NULL && read_host_factor(b, &words_of_products, &request->b) < 0) return NULL;
    set_along(call, PyArray_NDIM(a), PyArray_DIMS(a), PyArray_STRIDES(a), steps_of_b, request);
    if (square_parts(a, call, request) < 0) return NULL;
    dtype = read_host_types(types, &words_of_products, request);
    if (dtype == NULL) return NULL;
    request->result = &scalar;
    if (call->result_ndim > 0) {
        const int64_t bytes = glue_get_result_strides(call, PyDataType_ELSIZE(dtype), strides);

        Py_INCREF(dtype); /* the array takes it, also where it fails */
        array = PyArray_NewFromDescr(&PyArray_Type, dtype, call->result_ndim, call->result_shape,
                                     bytes != 0 ? strides : NULL, NULL, 0, NULL);
        if (array == NULL) goto done;
        request->result = PyArray_DATA((PyArrayObject *)array);
    }
    if (divisors != NULL && read_divisors(divisors, array, &one, &in_order, request) < 0) goto done;
    if (glue_dot_unlocked(request) != GPR_OK)
        glue_raise(state);
    else if (glue_warn_if_none(state, call) == 0)
        result = array != NULL ? Py_NewRef(array) : PyArray_Scalar(&scalar, dtype, NULL);
done:
    Py_XDECREF(in_order);
    Py_XDECREF(array);
    Py_DECREF(dtype);
    return result;
}

PyObject *glue_sum_one_array(glue_state *state, PyArrayObject *array, PyObject *const *types,
                             PyObject *axis, PyObject *keepdims, gpr_products products, int root,
                             PyObject *const *options)
{
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT, .products = products, .root = root};
    glue_call call;

    begin_call(&call);
    call.request.op = GPR_OP_SUM;
    if (glue_read_axes(state, axis, PyArray_NDIM(array), 0, &call) < 0) return NULL;
    if (glue_read_keepdims(keepdims, &call) < 0) return NULL;
    if (read_options(state, options, &call, &request) < 0) return NULL;
    return run_along(state, types, array, NULL, NULL, &call, &request, NULL);
}

/* dot_along(a, b, factor, dtype, axis, keepdims, products, conjugate, root, kernel, device,
 * block_size, grid_size, stream): two arrays of one shape, or one and None. */
static PyObject *dot_along(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    glue_state *state = glue_state_of(module);
    const int has_second = count > 1 && from[1] != Py_None;
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT};
    glue_call call;

    if (count != ALONG_OPTIONS + GLUE_OPTION_COUNT || !PyArray_Check(from[0]) ||
        (has_second && (!PyArray_Check(from[1]) ||
                        !PyArray_SAMESHAPE((PyArrayObject *)from[0], (PyArrayObject *)from[1])))) {
        PyErr_SetString(PyExc_TypeError,
                        "dot_along takes one array, or two of one shape, and thirteen more");
        return NULL;
    }
    PyArrayObject *const a = (PyArrayObject *)from[0], *const b = has_second
                                                                      ? (PyArrayObject *)from[1]
                                                                      : NULL;
    begin_call(&call);
    if (read_along(state, from, PyArray_NDIM(a), &call, &request) < 0) return NULL;
    return run_along(state, from + FACTOR, a, b, b != NULL ? PyArray_STRIDES(b) : NULL, &call,
                     &request, NULL);
}

/* Finds the steps of weights along all axes of an array: of its shape, or of its extents along a
 * tuple of axes, 0 along others. 0 if they are of neither. */
static int spread_weights(PyArrayObject *a, PyArrayObject *weights, PyObject *axes, npy_intp *steps)
{
    const int ndim = PyArray_NDIM(weights);

    if (PyArray_SAMESHAPE(a, weights)) {
        if (ndim > 0) memcpy(steps, PyArray_STRIDES(weights), (size_t)ndim * sizeof *steps);
        return 1;
    }
    if (!PyTuple_Check(axes) || PyTuple_GET_SIZE(axes) != ndim) return 0;
    memset(steps, 0, (size_t)PyArray_NDIM(a) * sizeof *steps);
    for (int i = 0; i < ndim; i++) {
        const long axis = PyLong_AsLong(PyTuple_GET_ITEM(axes, i));

        if (axis == -1 && PyErr_Occurred() != NULL) return 0;
        if (axis < 0 || axis >= PyArray_NDIM(a)) return 0;
        if (PyArray_DIM(weights, i) != PyArray_DIM(a, (int)axis)) return 0;
        steps[axis] = PyArray_STRIDE(weights, i);
    }
    return 1;
}

/* average_along(a, weights, factor, dtype, axis, keepdims, totals, kernel, device, block_size,
 * grid_size, stream): sums of products, rounded to float64 or complex128, over the weights' totals:
 * a number, or an array of float64 of the result's elements. */
static PyObject *average_along(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { TOTALS = KEEPDIMS + 1, OPTIONS };
    glue_state *state = glue_state_of(module);
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT};
    glue_call call;
    npy_intp steps[NPY_MAXDIMS];

    if (count != OPTIONS + GLUE_OPTION_COUNT || !PyArray_Check(from[0]) ||
        !PyArray_Check(from[1])) {
        PyErr_SetString(PyExc_TypeError, "average_along takes two arrays and ten more arguments");
        return NULL;
    }
    begin_call(&call);
    PyArrayObject *const a = (PyArrayObject *)from[0], *const weights = (PyArrayObject *)from[1];
    if (!spread_weights(a, weights, from[AXIS], steps)) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_TypeError, "weights are of the array's extents along the axes");
        return NULL;
    }
    if (read_axes(state, from, PyArray_NDIM(a), &call) < 0) return NULL;
    if (read_options(state, from + OPTIONS, &call, &request) < 0) return NULL;
    return run_along(state, from + FACTOR, a, weights, steps, &call, &request, from[TOTALS]);
}

/* Whether two arrays are of one shape on one device. */
static int is_alike(glue_device_array *a, glue_device_array *b)
{
    int same = a->ndim == b->ndim && a->device == b->device;

    for (int i = 0; i < a->ndim && same; i++) same = glue_shape_of(a)[i] == glue_shape_of(b)[i];
    return same;
}

/* The same of DeviceArrays; factor and dtype are names, and `make` makes room for the result. */
static PyObject *dot_along_on_device(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { MAKE = ALONG_OPTIONS + GLUE_OPTION_COUNT, COUNT };
    glue_state *state = glue_state_of(module);
    const int has_second = count > 1 && from[1] != Py_None;
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT, .on_device = 1};
    glue_call call = {.names_kernel = 0};

    if (count != COUNT || !glue_is_device_array(state, from[0]) ||
        (has_second && (!glue_is_device_array(state, from[1]) ||
                        !is_alike((glue_device_array *)from[0], (glue_device_array *)from[1])))) {
        PyErr_SetString(
            PyExc_TypeError,
            "dot_along_on_device takes one DeviceArray, or two of one shape, and fourteen more");
        return NULL;
    }
    glue_device_array *const a = (glue_device_array *)from[0], *const b =
                                                                   (glue_device_array *)from[1];
    request.a = (gpr_factor){.dtype = a->dtype, .data = a->data};
    if (has_second) request.b = (gpr_factor){.dtype = b->dtype, .data = b->data};
    if (read_along(state, from, a->ndim, &call, &request) < 0) return NULL;
    if (glue_check_device(&call.request, a) < 0) return NULL;
    call.request.device = request.device = a->device;
    set_along(&call, a->ndim, glue_shape_of(a), glue_strides_of(a),
              has_second ? glue_strides_of(b) : NULL, &request);
    if (read_device_types(from + FACTOR, &request) < 0) return NULL;
    return run_into_room(state, from[MAKE], &call, &request);
}

PyMethodDef glue_dot_methods[] = {
    {"dot", (PyCFunction)(void (*)(void))dot, METH_FASTCALL,
     PyDoc_STR("dot(a, b, factor, dtype, kernel, device, block_size, grid_size, stream, /)")},
    {"dot_plain", (PyCFunction)(void (*)(void))dot_plain, METH_FASTCALL,
     PyDoc_STR("dot_plain(a, b, conjugates, dtype, kernel, device, block_size, grid_size, stream, "
               "/)")},
    {"dot_on_device", (PyCFunction)(void (*)(void))dot_on_device, METH_FASTCALL,
     PyDoc_STR("dot_on_device(a, b, factor, dtype, kernel, device, block_size, grid_size, stream, "
               "make) -> what make(shape, dtype) returned first; its second is the result's "
               "memory")},
    {"dot_along", (PyCFunction)(void (*)(void))dot_along, METH_FASTCALL,
     PyDoc_STR("dot_along(a, b, factor, dtype, axis, keepdims, products, conjugate, root, kernel, "
               "device, block_size, grid_size, stream, /)")},
    {"average_along", (PyCFunction)(void (*)(void))average_along, METH_FASTCALL,
     PyDoc_STR("average_along(a, weights, factor, dtype, axis, keepdims, totals, kernel, device, "
               "block_size, grid_size, stream, /)")},
    {"dot_along_on_device", (PyCFunction)(void (*)(void))dot_along_on_device, METH_FASTCALL,
     PyDoc_STR("dot_along_on_device(a, b, factor, dtype, axis, keepdims, products, conjugate, "
               "root, kernel, device, block_size, grid_size, stream, make) -> what make(shape, "
               "dtype) returned first; its second is the result's memory")},
    {NULL, NULL, 0, NULL},
};
