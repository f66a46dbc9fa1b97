/* Reading arguments: operators, kernels, devices, dtypes, axes. Error texts follow NumPy's where
 * NumPy has one. */
#include <math.h>

#include "python/glue.h"

/* ---------------------------------------------------------------- names ---------------------- */

/* A str as UTF-8 without NULs inside; `what` names the argument in the TypeError. */
static const char *read_name(PyObject *object, const char *what)
{
    Py_ssize_t size = 0;
    const char *text = NULL;

    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be a string, not %s", what,
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text != NULL && strlen(text) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%s has a null character", what);
        return NULL;
    }
    return text;
}

int glue_read_operator(PyObject *object, gpr_operator *op)
{
    const char *name = PyUnicode_Check(object) ? read_name(object, "op") : NULL;
    long value = -1;

    if (name != NULL) {
        value = gpr_find_operator(name);
    } else if (PyErr_Occurred() == NULL) {
        value = PyLong_AsLong(object);
    }
    if (PyErr_Occurred() != NULL) return -1;
    if (value < 0 || value >= GPR_OP_COUNT) {
        PyErr_Format(PyExc_ValueError, "there is no operator %R", object);
        return -1;
    }
    *op = (gpr_operator)value;
    return 0;
}

static int find_kernel(const glue_state *state, PyObject *object, int *kernel)
{
    const char *name = read_name(object, "kernel");

    if (name == NULL) return -1;
    if (strcmp(name, "auto") == 0) {
        *kernel = -1;
    } else if (gpr_find_kernel(name, kernel) != GPR_OK) {
        glue_raise(state);
        return -1;
    }
    return 0;
}

/* Small calls would spend a tenth of their time comparing names, so each name is found once. */
int glue_read_kernel(const glue_state *state, PyObject *object, int *kernel)
{
    PyObject *index = NULL;
    int failed = 0;

    if (!PyUnicode_CheckExact(object)) return find_kernel(state, object, kernel);
    if (glue_find_item(state->kernels, object, &index) < 0) return -1;
    if (index != NULL) {
        *kernel = (int)PyLong_AsLong(index);
        Py_DECREF(index);
        return 0;
    }
    if (find_kernel(state, object, kernel) < 0) return -1;
    index = PyLong_FromLong(*kernel);
    failed = index == NULL || PyDict_SetItem(state->kernels, object, index) < 0;
    Py_XDECREF(index);
    return failed ? -1 : 0;
}

static int fail_device(const char *name)
{
    PyErr_Format(PyExc_ValueError,
                 "unknown device '%s': None, \"cpu\", \"cuda\", \"cuda:N\" or \"auto\" is expected",
                 name);
    return -1;
}

int glue_read_device(PyObject *object, int *device)
{
    enum { MOST_DIGITS = 4 };
    const char *name = NULL, *digits = NULL;
    size_t length = 0;

    *device = GPR_DEVICE_DEFAULT;
    if (object == Py_None) return 0;
    name = read_name(object, "device");
    if (name == NULL) return -1;
    if (strcmp(name, "cpu") == 0) {
        *device = GPR_DEVICE_CPU;
    } else if (strcmp(name, "cuda") == 0) {
        *device = GPR_DEVICE_CUDA;
    } else if (strcmp(name, "auto") == 0) {
        *device = GPR_DEVICE_FASTEST;
    } else {
        if (strncmp(name, "cuda:", 5) != 0) return fail_device(name);
        digits = name + 5;
        length = strspn(digits, "0123456789");
        if (length == 0 || length > MOST_DIGITS || digits[length] != '\0') return fail_device(name);
        *device = (int)strtol(digits, NULL, 10);
    }
    return 0;
}

/* ---------------------------------------------------------------- numbers -------------------- */

/* block_size and grid_size: None is 0. */
static int read_size(PyObject *object, const char *what, uint32_t *size)
{
    long value = 0;

    *size = 0;
    if (object == Py_None) return 0;
    value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred() != NULL) return -1;
    if (value < 1 || value > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%s must be from 1 to 2147483647, not %ld", what, value);
        return -1;
    }
    *size = (uint32_t)value;
    return 0;
}

/* The handle of an integer, or of a stream object of another library; NULL without an exception:
 * it is neither. New reference. */
static PyObject *stream_handle(const glue_state *state, PyObject *object)
{
    /* CuPy's; PyTorch's */
    static const glue_name attributes[] = {GLUE_NAME_ptr, GLUE_NAME_cuda_stream};
    PyObject *handle = NULL;

    if (PyIndex_Check(object)) return PyNumber_Index(object);
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        handle = PyObject_GetAttr(object, state->names[attributes[i]]);
        if (handle != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) return handle;
        PyErr_Clear();
    }
    return NULL;
}

int glue_read_stream(const glue_state *state, PyObject *object, void **stream)
{
    PyObject *handle = NULL;

    *stream = NULL;
    if (object == Py_None) return 0;
    handle = stream_handle(state, object);
    if (handle == NULL) {
        if (PyErr_Occurred() != NULL) return -1;
        PyErr_Format(
            PyExc_TypeError,
            "stream must be a CUstream handle or an object with .ptr or .cuda_stream, not %s",
            Py_TYPE(object)->tp_name);
        return -1;
    }
    const unsigned long long value = PyLong_AsUnsignedLongLong(handle);
    Py_DECREF(handle);
    if (value == (unsigned long long)-1 && PyErr_Occurred() != NULL) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
        PyErr_SetString(PyExc_ValueError,
                        "stream is not a CUstream handle: it is negative or too large");
        return -1;
    }
    *stream = (void *)(uintptr_t)value;
    return 0;
}

int glue_read_options(const glue_state *state, PyObject *const *options, glue_call *call)
{
    gpr_request *request = &call->request;
    gpr_kernel_info kernel;

    if (glue_read_kernel(state, options[GLUE_KERNEL], &request->kernel) < 0) return -1;
    if (glue_read_device(options[GLUE_DEVICE], &request->device) < 0) return -1;
    if (read_size(options[GLUE_BLOCK_SIZE], "block_size", &request->block_size) < 0) return -1;
    if (read_size(options[GLUE_GRID_SIZE], "grid_size", &request->grid_size) < 0) return -1;
    if (glue_read_stream(state, options[GLUE_STREAM], &request->stream) < 0) return -1;
    call->names_kernel = request->kernel >= 0 &&
                         gpr_kernel_info_at(request->kernel, &kernel) == GPR_OK &&
                         !kernel.is_on_cpu;
    return 0;
}

int glue_needs_no_request(const glue_state *state, PyObject *const *options, int *kernel,
                          int *device)
{
    for (int i = GLUE_BLOCK_SIZE; i <= GLUE_STREAM; i++)
        if (options[i] != Py_None) return 0;
    if (glue_read_kernel(state, options[GLUE_KERNEL], kernel) < 0 ||
        glue_read_device(options[GLUE_DEVICE], device) < 0) {
        PyErr_Clear(); /* the general way raises it again */
        return 0;
    }
    return (*kernel < 0 || *kernel == state->fast) &&
           (*device == GPR_DEVICE_CPU || *device == GPR_DEVICE_DEFAULT);
}

int glue_read_keepdims(PyObject *object, glue_call *call)
{
    const gpr_operator op = call->request.op;
    long value = object == Py_True;

    /* NumPy takes the truth of any object there, and a number elsewhere. */
    if (op == GPR_OP_ARGMIN || op == GPR_OP_ARGMAX) {
        value = PyObject_IsTrue(object);
        if (value < 0) return -1;
    } else if (!PyBool_Check(object)) {
        value = PyLong_AsLong(object);
        if (value == -1 && PyErr_Occurred() != NULL) return -1;
    }
    call->keepdims = value != 0;
    return 0;
}

int glue_read_leave_out(PyObject *skip_nan, PyObject *ddof, gpr_request *request)
{
    request->skip_nan = PyObject_IsTrue(skip_nan);
    if (request->skip_nan < 0) return -1;
    request->ddof = PyFloat_AsDouble(ddof);
    if (request->ddof == -1 && PyErr_Occurred() != NULL) return -1;
    if (isnan(request->ddof)) {
        PyErr_SetString(PyExc_ValueError, "ddof must be a number, not NaN");
        return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- dtypes --------------------- */

int glue_read_descr(PyObject *object, PyArray_Descr **descr)
{
    *descr = NULL;
    if (object == Py_None) return 0;
    if (PyArray_DescrConverter(object, descr) == NPY_FAIL) return -1;
    if (PyDataType_ISBYTESWAPPED(*descr)) {
        PyErr_Format(
            PyExc_TypeError,
            "the `dtype` argument selects a type, not a byte order: %R is not in this machine's",
            *descr);
        Py_CLEAR(*descr);
        return -1;
    }
    return 0;
}

_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "a position is an npy_intp");

static PyArray_Descr *native_descr(PyArray_Descr *descr)
{
    if (PyDataType_ISBYTESWAPPED(descr)) return PyArray_DescrNewByteorder(descr, NPY_NATIVE);
    Py_INCREF(descr);
    return descr;
}

static int is_index(gpr_operator op)
{
    return op == GPR_OP_ARGMIN || op == GPR_OP_ARGMAX || op == GPR_OP_COUNT_NONZERO;
}

int glue_set_result_descr(glue_call *call, gpr_dtype result, PyArray_Descr *element,
                          PyArray_Descr *requested)
{
    const gpr_request *request = &call->request;

    /* Positions and counts are indices. Otherwise the caller's own descriptor is preferred: it
     * distinguishes long long from long. */
    if (is_index(request->op)) {
        call->result_descr = PyArray_DescrFromType(NPY_INTP);
    } else if (requested != NULL && result == request->compute) {
        Py_INCREF(requested);
        call->result_descr = requested;
    } else if (result == request->dtype && element != NULL) {
        call->result_descr = native_descr(element);
    } else {
        call->result_descr = glue_descr_of(result);
    }
    return call->result_descr != NULL ? 0 : -1;
}

/* ---------------------------------------------------------------- axes ----------------------- */

/* NumPy's exception; a number in place of an array has a note, since its axis is often meant as the
 * next number. */
static int fail_axis(const glue_state *state, int axis, int ndim)
{
    PyObject *exception = PyObject_CallFunction(state->axis_error, "ii", axis, ndim);
    PyObject *noted = NULL;

    if (exception == NULL) return -1;
    if (ndim == 0)
        noted = PyObject_CallMethod(exception, "add_note", "s",
                                    "The first argument is one number, and the second is an axis: "
                                    "several numbers are written as a list, as in sum([1, 2, 3]).");
    if (ndim != 0 || noted != NULL) PyErr_SetObject(state->axis_error, exception);
    Py_XDECREF(noted);
    Py_DECREF(exception);
    return -1;
}

/* `shown` is the number of axes in the message. */
static int read_axis(const glue_state *state, PyObject *object, int ndim, int shown, char *reduced)
{
    const int axis = PyArray_PyIntAsInt(object); /* refuses bool, as NumPy does */
    const int index = axis < 0 ? axis + ndim : axis;

    if (axis == -1 && PyErr_Occurred() != NULL) return -1;
    if (index < 0 || index >= ndim) return fail_axis(state, axis, shown);
    if (reduced[index]) {
        PyErr_SetString(PyExc_ValueError, "duplicate value in 'axis'");
        return -1;
    }
    reduced[index] = 1;
    return 0;
}

static int may_lack_elements(const gpr_request *request)
{
    return request->skip_nan && glue_is_inexact(request->dtype);
}

/* NumPy takes axis 0 and -1 of a 0-d array too, except where it reads the axis' length itself, to
 * count the elements that are left where some may be NaN or a mask is false. */
static int takes_scalar_axis(const gpr_request *request, int masked)
{
    if (may_lack_elements(request) || masked) return 1;
    return request->op != GPR_OP_MEAN && request->op != GPR_OP_VAR && request->op != GPR_OP_STD;
}

/* NumPy looks for positions in a 0-d array as in one of one axis. */
static int axes_of_scalar(const gpr_request *request)
{
    return (request->op == GPR_OP_ARGMIN || request->op == GPR_OP_ARGMAX) &&
           !may_lack_elements(request);
}

int glue_read_axes(const glue_state *state, PyObject *axis, int ndim, int masked, glue_call *call)
{
    char *reduced = call->reduced;

    memset(reduced, axis == Py_None, (size_t)ndim);
    if (axis == Py_None) return 0;
    if (PyTuple_Check(axis)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(axis); i++) {
            if (read_axis(state, PyTuple_GET_ITEM(axis, i), ndim, ndim, reduced) < 0) return -1;
        }
        return 0;
    }
    if (ndim == 0 && takes_scalar_axis(&call->request, masked)) {
        char ignored = 0;
        return read_axis(state, axis, 1, axes_of_scalar(&call->request), &ignored) < 0 ? -1 : 0;
    }
    return read_axis(state, axis, ndim, ndim, reduced);
}

/* ---------------------------------------------------------------- finding CUDA --------------- */

int glue_locate(glue_state *state, int always)
{
    PyObject *module = NULL, *result = NULL;
    int count = 0;

    if (atomic_load(&state->located)) return 0;
    if (!always) {
        /* The driver decides first: where there is none, looking for NVRTC would cost time for
         * nothing. */
        Py_BEGIN_ALLOW_THREADS(void)
        gpr_device_count(&count);
        Py_END_ALLOW_THREADS
        if (count == 0) return 0;
    }
    module = PyImport_ImportModule("gpureduce._locate");
    if (module == NULL) return -1;
    result = PyObject_CallMethod(module, "locate", NULL);
    Py_DECREF(module);
    if (result == NULL) return -1;
    Py_DECREF(result);
    atomic_store(&state->located, 1);
    return 0;
}
