/* Reductions of device arrays of any library.
 *
 * Plain calls are carried out whole, so that a small call costs little more than its kernel. Calls
 * that need more of NumPy's rules (an initial, a mask, a mean, a dtype, a stream, a conversion,
 * warnings) are left to Python before there is room for a result, and so are errors of arguments,
 * whose messages are Python's. */
#include "python/device_reduce.h"

#include "python/device_call.h"
#include "python/libraries.h"

/* ---------------------------------------------------------------- plain calls ---------------- */

/* Nothing was queued: Python begins anew. */
static PyObject *leave_to_python(void)
{
    /* as a KeyboardInterrupt */
    if (PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
}

/* Whether a call needs no more than its array shows: an array that is kept until the device is
 * done needs a wait where it goes to an out. */
static int is_plain(const glue_library *library, const glue_arguments *given, PyObject *out)
{
    return given->dtype == Py_None && given->options[GLUE_STREAM] == Py_None &&
           PyBool_Check(given->keepdims) && (out == Py_None || !library->ways->lends);
}

/* Whether there are warnings to give, or pairs of results to fill. */
static int wants_more(const glue_call *call, PyObject *out)
{
    const gpr_request *request = &call->request;

    for (int i = 0; i < request->ndim; i++) {
        if (call->shape[i] == 0) return 1;
    }
    return (request->op == GPR_OP_MINMAX && out != Py_None) || glue_lacks_freedom(call);
}

/* Where a result goes. Both owned. */
typedef struct place {
    PyObject *result, *target;
} place;

/* Whether `out` takes the result as it is: contiguous host memory, or memory of the same
 * library, stream and device. */
static int use_out(glue_state *state, const glue_library *library, const glue_call *call,
                   glue_device_array *source, PyObject *out, gpr_dtype dtype, place *where)
{
    gpr_dtype found = GPR_BOOL;

    if (PyArray_CheckExact(out)) {
        PyArrayObject *host = (PyArrayObject *)out;
        if (!PyArray_ISCARRAY(host) ||
            glue_find_dtype(PyArray_DESCR(host), "a result of dtype", &found) < 0)
            return 0;
        if (found != dtype || !glue_has_result_shape(call, PyArray_DIMS(host), PyArray_NDIM(host)))
            return 0;
        where->target = Py_NewRef(out);
    } else {
        if (library->ways->read_only || glue_find_library(state, out) != library) return 0;
        if (!glue_is_known(library) && glue_has_own_rules(state, out) != 0) return 0;
        glue_device_array *target = glue_read_array(state, library, out);
        where->target = (PyObject *)target;
        if (target == NULL || target->dtype != dtype || target->device != source->device ||
            target->stream != source->stream || target->read_only ||
            glue_may_overlap(target, source) ||
            !glue_has_result_shape(call, glue_shape_of(target), target->ndim))
            return 0;
    }
    where->result = Py_NewRef(out);
    return 1;
}

/* Has the library make an array beside `like`. 0, or -1 with an exception. */
static int make_room(const glue_state *state, const glue_library *library, const glue_call *call,
                     PyObject *like, glue_device_array *source, gpr_dtype dtype, place *where)
{
    PyObject *shape = glue_result_shape(call);
    glue_device_array *memory = NULL;
    int order[GPR_MAX_NDIM + 1];

    if (shape == NULL) return -1;
    const int has_order = glue_find_result_order(call, order);
    where->result = glue_make_array(state, library, like, source, shape, has_order ? order : NULL,
                                    dtype, &memory);
    where->target = (PyObject *)memory;
    Py_DECREF(shape);
    return where->result != NULL ? 0 : -1;
}

/* Carries the call out into memory that the library makes; the caller's array, or NULL. */
static PyObject *run_into_room(glue_state *state, const glue_library *library, glue_call *call,
                               PyObject *like, glue_device_array *source, gpr_dtype dtype)
{
    place where = {NULL, NULL};
    PyObject *made = NULL, *result = NULL, *pair = NULL;

    call->request.vouches_for_result = 1; /* the library made it now */
    if (make_room(state, library, call, like, source, dtype, &where) == 0)
        made = glue_run_into(state, call, dtype, where.result, where.target);
    if (made != NULL && library->ways->lends &&
        glue_keep_loan(state, source->device, source->stream, (PyObject *)source) < 0)
        Py_CLEAR(made);
    if (made != NULL) result = glue_finish_array(state, library, like, made);
    if (result != NULL && call->request.op == GPR_OP_MINMAX) {
        pair = glue_split_array(state, library, result);
        Py_SETREF(result, pair);
    }
    Py_XDECREF(made);
    Py_XDECREF(where.target);
    Py_XDECREF(where.result);
    return result;
}

/* Carries the call out into `out`, if that takes the result as it is. */
static PyObject *run_into_out(glue_state *state, const glue_library *library, glue_call *call,
                              glue_device_array *source, PyObject *out, gpr_dtype dtype)
{
    place where = {NULL, NULL};
    PyObject *result = NULL;

    if (use_out(state, library, call, source, out, dtype, &where)) {
        result = glue_run_into(state, call, dtype, where.result, where.target);
    } else {
        result = leave_to_python();
    }
    Py_XDECREF(where.target);
    Py_XDECREF(where.result);
    return result;
}

PyObject *glue_reduce_plain_device(glue_state *state, PyObject *array, const glue_arguments *given,
                                   PyObject *out)
{
    const glue_library *library = glue_find_library(state, array);
    glue_device_array *source = NULL;
    PyObject *result = NULL;
    glue_call call;

    if (library == NULL && PyErr_Occurred() != NULL) return NULL;
    if (library == NULL || !is_plain(library, given, out)) Py_RETURN_NOTIMPLEMENTED;
    if (!glue_is_known(library) && glue_has_own_rules(state, array) != 0) return leave_to_python();
    source = glue_read_array(state, library, array);
    if (source == NULL) return NULL;
    if (glue_read_device_call(state, source, given, &call) < 0 || wants_more(&call, out)) {
        result = leave_to_python();
        goto done;
    }
    /* integers have no NaN */
    if (!glue_is_inexact(source->dtype)) call.request.skip_nan = 0;
    call.request.stream = source->stream;
    if (glue_resolve(&call) != GPR_OK) {
        result = leave_to_python();
        goto done;
    }
    const gpr_dtype dtype = call.resolution.result;
    if (out == Py_None) {
        result = run_into_room(state, library, &call, array, source, dtype);
    } else {
        result = run_into_out(state, library, &call, source, out, dtype);
    }
done:
    Py_DECREF((PyObject *)source);
    return result;
}

/* ---------------------------------------------------------------- for Python ----------------- */

/* Runs the request into the target that `make` gives; the result that it gives with it, or NULL. */
static PyObject *run_into_made(glue_state *state, glue_call *call, PyObject *make)
{
    PyObject *pair = NULL, *result = NULL;

    if (glue_resolve(call) != GPR_OK) return glue_raise(state);
    const gpr_dtype dtype = call->resolution.result;
    pair = glue_ask_for_room(make, call, dtype);
    if (pair == NULL) return NULL;
    result =
        glue_run_into(state, call, dtype, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    Py_DECREF(pair);
    return result;
}

/* reduce_on_device(op, source, axis, dtype, keepdims, mask, kernel, device, block_size, grid_size,
 *                  stream, skip_nan, ddof, make, mean=None, start=None) */
static PyObject *reduce_on_device(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { MAKE = GLUE_AT_END, MEAN, START, MOST };
    glue_state *state = glue_state_of(module);
    glue_call call;

    if (count < MEAN || count > MOST || !glue_is_device_array(state, from[GLUE_AT_ARRAY])) {
        PyErr_SetString(PyExc_TypeError, "reduce_on_device takes an operator's number, a "
                                         "DeviceArray and twelve to fourteen more");
        return NULL;
    }
    glue_arguments given = glue_arguments_at(from);
    glue_device_array *source = (glue_device_array *)from[GLUE_AT_ARRAY];

    if (count > MEAN) given.mean = from[MEAN];
    if (count > START) given.start = from[START];
    if (glue_read_device_call(state, source, &given, &call) < 0) return NULL;
    return run_into_made(state, &call, from[MAKE]);
}

/* result_axes(op, source, axis, keepdims, skip_nan, masked) -> the shape of an output, and how many
 * elements make one of its results */
static PyObject *result_axes(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { OP, SOURCE, AXIS, KEEPDIMS, SKIP_NAN, MASKED, ARGUMENT_COUNT };
    const glue_state *state = glue_state_of(module);
    glue_call call;

    if (count != ARGUMENT_COUNT || !glue_is_device_array(state, from[SOURCE])) {
        PyErr_SetString(PyExc_TypeError,
                        "result_axes takes an operator's number, a DeviceArray and four more");
        return NULL;
    }
    glue_device_array *source = (glue_device_array *)from[SOURCE];
    memset(&call.request, 0, sizeof call.request);
    call.request.dtype = source->dtype;
    call.request.skip_nan = PyObject_IsTrue(from[SKIP_NAN]);
    if (call.request.skip_nan < 0 || glue_read_operator(from[OP], &call.request.op) < 0)
        return NULL;
    const int masked = PyObject_IsTrue(from[MASKED]);
    if (masked < 0 || glue_read_axes(state, from[AXIS], source->ndim, masked, &call) < 0)
        return NULL;
    if (glue_read_keepdims(from[KEEPDIMS], &call) < 0) return NULL;
    glue_set_axes(&call, source->ndim, glue_shape_of(source), NULL, NULL, NULL);
    glue_set_result_shape(&call, 1);
    PyObject *const shape = glue_result_shape(&call);
    PyObject *const made = PyLong_FromDouble(glue_count_reduced(&call));
    PyObject *const pair = shape != NULL && made != NULL ? PyTuple_Pack(2, shape, made) : NULL;
    Py_XDECREF(shape);
    Py_XDECREF(made);
    return pair;
}

PyMethodDef glue_device_reduce_methods[] = {
    {"result_axes", (PyCFunction)(void (*)(void))result_axes, METH_FASTCALL,
     PyDoc_STR(
         "result_axes(op, source, axis, keepdims, skip_nan, masked, /) -> shape of an output, "
         "number of elements per result")},
    {"reduce_on_device", (PyCFunction)(void (*)(void))reduce_on_device, METH_FASTCALL,
     PyDoc_STR(
         "reduce_on_device(op, source, axis, dtype, keepdims, mask, kernel, device, "
         "block_size, grid_size, stream, skip_nan, ddof, make, mean=None, start=None) -> what "
         "make(shape, dtype) returned first; its second is the result's memory")},
    {NULL, NULL, 0, NULL},
};
