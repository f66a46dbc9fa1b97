/* Calls with device arrays: an imported array becomes a request, and memory for the result
 * becomes its place. */
#include "python/device_call.h"

/* ---------------------------------------------------------------- requests ------------------- */

int glue_read_compute(PyObject *object, gpr_dtype *compute)
{
    PyArray_Descr *descr = NULL;
    const char *name = NULL;
    int failed = 0;

    if (PyUnicode_Check(object)) {
        name = PyUnicode_AsUTF8(object);
        if (name == NULL) return -1;
        *compute = gpr_find_dtype(name);
        if (*compute != GPR_DTYPE_DEFAULT) return 0;
    }
    if (glue_read_descr(object, &descr) < 0) return -1;
    if (descr == NULL) return 0;
    failed = glue_find_dtype(descr, "reducing to dtype", compute) < 0;
    Py_DECREF(descr);
    return failed ? -1 : 0;
}

int glue_check_device(const gpr_request *request, const glue_device_array *source)
{
    const int asked = request->device;

    if (asked == GPR_DEVICE_CPU) {
        PyErr_Format(PyExc_ValueError,
                     "the array is in the memory of device \"cuda:%d\": to reduce it on the CPU, "
                     "copy it first, as with cupy.asnumpy(a), a.cpu().numpy() or numpy.asarray(a)",
                     source->device);
        return -1;
    }
    if (asked >= 0 && asked != source->device) {
        PyErr_Format(PyExc_ValueError,
                     "the array is in the memory of device \"cuda:%d\", not of \"cuda:%d\": move "
                     "it there, or leave device= out",
                     source->device, asked);
        return -1;
    }
    return 0;
}

/* A mask broadcasts to the array's shape: its axes are the array's last ones, those of one
 * element count for all. */
static int read_mask(const glue_state *state, PyObject *object, glue_device_array *source,
                     int64_t *strides)
{
    if (object == Py_None) return 0;
    if (!glue_is_device_array(state, object)) {
        PyErr_SetString(PyExc_TypeError, "the mask of a device array must be a device array");
        return -1;
    }
    glue_device_array *mask = (glue_device_array *)object;
    if (mask->dtype != GPR_BOOL) {
        PyErr_Format(
            PyExc_TypeError,
            "Cannot cast array data from dtype('%s') to dtype('bool') according to the rule "
            "'safe'",
            gpr_dtype_name(mask->dtype));
        return -1;
    }
    if (mask->device != source->device) {
        PyErr_Format(PyExc_ValueError,
                     "the array is on device \"cuda:%d\" and its mask on \"cuda:%d\"",
                     source->device, mask->device);
        return -1;
    }
    const int more = source->ndim - mask->ndim;
    int fits = more >= 0;
    for (int i = 0; i < source->ndim && fits; i++) {
        const int64_t extent = i < more ? 1 : glue_shape_of(mask)[i - more];
        strides[i] = extent == 1 ? 0 : glue_strides_of(mask)[i - more];
        fits = extent == 1 || extent == glue_shape_of(source)[i];
    }
    if (fits) return 1;
    PyErr_SetString(PyExc_ValueError, "the mask cannot be broadcast to the shape of the array");
    return -1;
}

/* A mean is a number for all rows, or an array that broadcasts to the result's shape with the
 * reduced axes in it: its steps along the kept axes. */
static int read_mean(const glue_state *state, PyObject *object, glue_device_array *source,
                     glue_call *call)
{
    gpr_request *request = &call->request;
    Py_complex number;
    int kept = 0, fits = 1;

    if (object == Py_None) return 0;
    request->has_given_mean = 1;
    if (!glue_is_device_array(state, object)) {
        number = PyComplex_AsCComplex(object);
        if (number.real == -1 && PyErr_Occurred() != NULL) return -1;
        request->mean_dtype = PyComplex_Check(object) ? GPR_COMPLEX128 : GPR_FLOAT64;
        request->mean_value[0] = number.real;
        request->mean_value[1] = number.imag;
        return 0;
    }
    glue_device_array *mean = (glue_device_array *)object;
    if (mean->device != source->device) {
        PyErr_Format(PyExc_TypeError,
                     "the array is on device \"cuda:%d\" and its mean on \"cuda:%d\"",
                     source->device, mean->device);
        return -1;
    }
    const int more = source->ndim - mean->ndim;
    fits = more >= 0;
    for (int i = 0; i < source->ndim && fits; i++) {
        const int64_t extent = i < more ? 1 : glue_shape_of(mean)[i - more];
        if (!call->reduced[i])
            call->mean_strides[kept++] = extent == 1 ? 0 : glue_strides_of(mean)[i - more];
        fits = extent == 1 || (!call->reduced[i] && extent == glue_shape_of(source)[i]);
    }
    if (!fits) {
        PyErr_SetString(
            PyExc_ValueError,
            "the mean cannot be broadcast to the shape of the result with keepdims=True");
        return -1;
    }
    request->mean_dtype = mean->dtype;
    request->mean = mean->data;
    request->mean_strides = call->mean_strides;
    return 0;
}

int glue_read_row_start(PyObject *object, gpr_request *request)
{
    const Py_ssize_t bytes = (Py_ssize_t)gpr_dtype_bytes(request->dtype);

    if (object == NULL || object == Py_None) return 0;
    if (!PyBytes_Check(object) || PyBytes_GET_SIZE(object) != bytes) {
        PyErr_Format(PyExc_TypeError, "a start is an element's %zd bytes", bytes);
        return -1;
    }
    request->start = PyBytes_AS_STRING(object);
    return 0;
}

static void set_layout(glue_call *call, glue_device_array *source, const int64_t *mask_strides)
{
    glue_set_axes(call, source->ndim, glue_shape_of(source), glue_strides_of(source), mask_strides,
                  NULL);
    call->request.data = source->data;
    call->request.on_device = 1;
    call->request.device = source->device;
}

/* ---------------------------------------------------------------- results -------------------- */

PyObject *glue_result_shape(const glue_call *call)
{
    return glue_tuple_of_integers(call->result_shape, call->result_ndim);
}

/* The order of a result's axes as a tuple, the farthest first; NULL without an exception: C
 * order. */
static PyObject *result_order(const glue_call *call)
{
    int order[GPR_MAX_NDIM + 1];
    int64_t axes[GPR_MAX_NDIM + 1];

    if (!glue_find_result_order(call, order)) return NULL;
    for (int i = 0; i < call->result_ndim; i++) axes[i] = order[i];
    return glue_tuple_of_integers(axes, call->result_ndim);
}

PyObject *glue_ask_for_room(PyObject *make, const glue_call *call, gpr_dtype dtype)
{
    PyObject *shape = glue_result_shape(call), *name = NULL, *order = NULL, *pair = NULL;

    if (shape == NULL) return NULL;
    name = PyUnicode_InternFromString(gpr_dtype_name(dtype));
    if (name == NULL) goto done;
    order = result_order(call);
    if (PyErr_Occurred() != NULL) goto done;
    PyObject *const arguments[] = {shape, name, order};
    pair = PyObject_Vectorcall(make, arguments, order != NULL ? 3 : 2, NULL);
    if (pair != NULL && (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2)) {
        PyErr_SetString(
            PyExc_TypeError,
            "the function that makes room for a result returns the result and its memory");
        Py_CLEAR(pair);
    }
done:
    Py_XDECREF(order);
    Py_XDECREF(name);
    Py_DECREF(shape);
    return pair;
}

static int check_target(const glue_call *call, const int64_t *shape, const int64_t *strides,
                        int ndim)
{
    if (!glue_has_result_shape(call, shape, ndim)) {
        PyErr_SetString(PyExc_ValueError,
                        "the memory for the result has another shape than the result");
        return -1;
    }
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 0) return 0; /* whatever the steps */
    }
    for (int i = 0; i < ndim; i++) {
        if (strides[i] == 0 && shape[i] > 1) {
            PyErr_SetString(
                PyExc_ValueError,
                "output array is a broadcast one: several of its elements share memory");
            return -1;
        }
    }
    return 0;
}

int glue_use_device_target(glue_call *call, glue_device_array *target, gpr_dtype dtype)
{
    if (target->read_only) {
        PyErr_SetString(PyExc_ValueError, "output array is read-only");
        return -1;
    }
    if (target->dtype != dtype) {
        PyErr_Format(PyExc_TypeError, "the result is of dtype %s, the memory for it of dtype %s",
                     gpr_dtype_name(dtype), gpr_dtype_name(target->dtype));
        return -1;
    }
    if (target->device != call->request.device) {
        PyErr_Format(PyExc_ValueError,
                     "the array is on device \"cuda:%d\" and the result's memory on \"cuda:%d\"",
                     call->request.device, target->device);
        return -1;
    }
    call->request.result = target->data;
    call->request.result_on_device = 1;
    return check_target(call, glue_shape_of(target), glue_strides_of(target), target->ndim);
}

static int use_host_target(glue_call *call, PyArrayObject *target, gpr_dtype dtype,
                           int64_t *strides)
{
    int64_t shape[GPR_MAX_NDIM];
    gpr_dtype found = GPR_BOOL;

    if (glue_find_dtype(PyArray_DESCR(target), "a result of dtype", &found) < 0) return -1;
    if (found != dtype || !PyArray_ISBEHAVED(target)) {
        PyErr_Format(PyExc_TypeError,
                     "the memory for the result must be aligned, writeable, and of dtype %s",
                     gpr_dtype_name(dtype));
        return -1;
    }
    for (int i = 0; i < PyArray_NDIM(target); i++) {
        shape[i] = PyArray_DIM(target, i);
        strides[i] = PyArray_STRIDE(target, i);
    }
    call->request.result = PyArray_DATA(target);
    return check_target(call, shape, strides, PyArray_NDIM(target));
}

PyObject *glue_run_into(glue_state *state, glue_call *call, gpr_dtype dtype, PyObject *result,
                        PyObject *target)
{
    int64_t host_strides[GPR_MAX_NDIM], steps[GPR_MAX_NDIM + 1];
    const int64_t *strides = host_strides;

    if (glue_locate(state, 0) < 0) return NULL;
    if (glue_is_device_array(state, target)) {
        strides = glue_strides_of((glue_device_array *)target);
        if (glue_use_device_target(call, (glue_device_array *)target, dtype) < 0) return NULL;
    } else if (PyArray_Check(target)) {
        if (use_host_target(call, (PyArrayObject *)target, dtype, host_strides) < 0) return NULL;
    } else {
        PyErr_SetString(PyExc_TypeError,
                        "the memory for a result is a DeviceArray or a NumPy array");
        return NULL;
    }
    glue_set_result_strides(call, strides, steps);
    return glue_reduce_unlocked(&call->request) == GPR_OK ? Py_NewRef(result) : glue_raise(state);
}

int glue_read_device_call(const glue_state *state, glue_device_array *source,
                          const glue_arguments *given, glue_call *call)
{
    gpr_request *request = &call->request;
    int64_t mask_strides[GPR_MAX_NDIM];
    int masked = 0;

    memset(request, 0, sizeof *request);
    request->compute = GPR_DTYPE_DEFAULT;
    request->dtype = source->dtype;
    if (glue_read_operator(given->op, &request->op) < 0) return -1;
    if (glue_read_leave_out(given->skip_nan, given->ddof, request) < 0) return -1;
    if (glue_read_axes(state, given->axis, source->ndim, given->mask != Py_None, call) < 0)
        return -1;
    if (glue_read_keepdims(given->keepdims, call) < 0) return -1;
    if (glue_read_options(state, given->options, call) < 0) return -1;
    if (glue_check_device(request, source) < 0) return -1;
    if (glue_read_compute(given->dtype, &request->compute) < 0) return -1;
    if (read_mean(state, given->mean, source, call) < 0) return -1;
    if (glue_read_row_start(given->start, request) < 0) return -1;
    masked = read_mask(state, given->mask, source, mask_strides);
    if (masked < 0) return -1;
    set_layout(call, source, masked ? mask_strides : NULL);
    if (masked) request->mask = (const uint8_t *)((glue_device_array *)given->mask)->data;
    return 0;
}
