/* Reductions of NumPy's arrays: an array becomes a request, and the result a NumPy scalar or
 * array. */
#include "lib/rules/nd_view.h"
#include "python/glue.h"

/* ---------------------------------------------------------------- arrays --------------------- */

static void read_layout(glue_call *call, PyArrayObject *array, PyArrayObject *mask)
{
    gpr_request *request = &call->request;
    const int64_t *mask_strides = mask != NULL ? PyArray_STRIDES(mask) : NULL;
    int order[GPR_MAX_NDIM];
    const int has_order = glue_find_order(call, PyArray_NDIM(array), PyArray_DIMS(array),
                                          PyArray_STRIDES(array), mask_strides, order);

    glue_set_axes(call, PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array),
                  mask_strides, has_order ? order : NULL);
    request->data = PyArray_DATA(array);
    request->byteswapped = PyArray_ISBYTESWAPPED(array);
    if (mask != NULL) request->mask = PyArray_DATA(mask);
}

/* The mask of the array's shape; NULL for None. */
static int read_mask(PyObject *object, PyArrayObject *array, PyArrayObject **mask)
{
    *mask = NULL;
    if (object == Py_None) return 0;
    if (!PyArray_Check(object) || PyArray_TYPE((PyArrayObject *)object) != NPY_BOOL ||
        !PyArray_SAMESHAPE((PyArrayObject *)object, array)) {
        PyErr_SetString(PyExc_TypeError, "mask must be None or a bool array of the array's shape");
        return -1;
    }
    *mask = (PyArrayObject *)object;
    return 0;
}

/* Fills in all of a call but the result's place. 0, or -1 with an exception. */
static int read_call(glue_state *state, PyArrayObject *array, const glue_arguments *given,
                     glue_call *call)
{
    PyArrayObject *mask = NULL;
    PyArray_Descr *requested = NULL;
    int failed = -1;
    gpr_request *request = &call->request;

    memset(request, 0, sizeof *request);
    call->epilogue = NULL;
    call->out = NULL;
    request->compute = GPR_DTYPE_DEFAULT;
    if (glue_read_operator(given->op, &request->op) < 0) return -1;
    if (glue_read_leave_out(given->skip_nan, given->ddof, request) < 0) return -1;
    if (!(PyArray_ISDATETIME(array) && glue_read_dates(request)) &&
        glue_find_dtype(PyArray_DESCR(array), "reducing an array of dtype", &request->dtype) < 0)
        return -1;
    if (glue_read_axes(state, given->axis, PyArray_NDIM(array), given->mask != Py_None, call) < 0)
        return -1;
    if (glue_read_keepdims(given->keepdims, call) < 0) return -1;
    if (glue_read_options(state, given->options, call) < 0) return -1;
    if (read_mask(given->mask, array, &mask) < 0) return -1;
    if (glue_read_descr(given->dtype, &requested) < 0) return -1;

    if (requested != NULL && glue_find_dtype(requested, "reducing to dtype", &request->compute) < 0)
        goto done;
    read_layout(call, array, mask);
    if (glue_resolve(call) != GPR_OK)
        glue_raise(state);
    else
        failed =
            glue_set_result_descr(call, call->resolution.result, PyArray_DESCR(array), requested);
done:
    Py_XDECREF(requested);
    return failed;
}

/* reduce(op, array, axis, dtype, keepdims, mask, kernel, device, block_size, grid_size, stream,
 * skip_nan, ddof) */
static PyObject *reduce(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    glue_state *state = glue_state_of(module);
    glue_call call;

    if (count != GLUE_AT_END || !PyArray_Check(from[GLUE_AT_ARRAY])) {
        PyErr_SetString(PyExc_TypeError,
                        "reduce takes an operator's number, an array and eleven more arguments");
        return NULL;
    }
    const glue_arguments given = glue_arguments_at(from);
    if (read_call(state, (PyArrayObject *)from[GLUE_AT_ARRAY], &given, &call) < 0) return NULL;
    return glue_run(state, &call);
}

int glue_is_mask_of(PyObject *where, PyArrayObject *array)
{
    return PyArray_CheckExact(where) && PyArray_TYPE((PyArrayObject *)where) == NPY_BOOL &&
           PyArray_SAMESHAPE((PyArrayObject *)where, array);
}

/* How far an array with elements reaches. */
static gpr_span span_of(PyArrayObject *array)
{
    gpr_span span = {0, (uint64_t)PyArray_ITEMSIZE(array) - 1};

    for (int i = 0; i < PyArray_NDIM(array); i++)
        (void)gpr_extend_span(&span, (uint64_t)PyArray_DIM(array, i), PyArray_STRIDE(array, i));
    return span;
}

static int may_overlap(PyArrayObject *a, PyArrayObject *b)
{
    return gpr_spans_meet(span_of(a), PyArray_DATA(a), span_of(b), PyArray_DATA(b));
}

/* Whether each result can be written to `out` when it is made: to a place of its own, of its type,
 * where no element is read. An epilogue takes results that follow each other, in any order. */
static int takes_results(const glue_call *call, const glue_epilogue *epilogue, PyObject *out,
                         PyArrayObject *array, PyObject *mask)
{
    PyArrayObject *to = (PyArrayObject *)out;
    const int has_more = call->request.nat_last ||
                         (epilogue != NULL && (epilogue->has_start || epilogue->only_ordinary));

    if (!PyArray_CheckExact(out) || call->resolution.outputs > 1 || !PyArray_ISBEHAVED(to))
        return 0;
    if (has_more && !PyArray_ISONESEGMENT(to)) return 0;
    /* NumPy warns of imaginary parts on their way to a variance. */
    if (PyArray_ISCOMPLEX(array) && PyArray_ISFLOAT(to)) return 0;
    if (!PyArray_EquivTypes(PyArray_DESCR(to), call->result_descr) ||
        !glue_has_result_shape(call, PyArray_DIMS(to), PyArray_NDIM(to)))
        return 0;
    for (int i = 0; i < PyArray_NDIM(to); i++)
        if (PyArray_STRIDE(to, i) == 0 && PyArray_DIM(to, i) != 1) return 0;
    if (PyArray_SIZE(to) == 0) return 1;
    return !may_overlap(to, array) && (mask == Py_None || !may_overlap(to, (PyArrayObject *)mask));
}

PyObject *glue_reduce_plain_ndarray(glue_state *state, PyArrayObject *array,
                                    const glue_arguments *given, glue_epilogue *epilogue,
                                    PyObject *out)
{
    PyObject *result = NULL;
    glue_call call;

    if (PyArray_ISCOMPLEX(array) && given->dtype != Py_None) Py_RETURN_NOTIMPLEMENTED;
    if (read_call(state, array, given, &call) == 0) {
        const int has_place =
            out == Py_None || takes_results(&call, epilogue, out, array, given->mask);

        if (glue_lacks_freedom(&call) || !has_place) {
            Py_DECREF(call.result_descr);
            Py_RETURN_NOTIMPLEMENTED;
        }
        call.epilogue = epilogue;
        if (out != Py_None && (epilogue == NULL || !epilogue->out_waits))
            call.out = (PyArrayObject *)out;
        result = glue_run(state, &call);
    }
    if (result != NULL || !PyErr_ExceptionMatches(PyExc_TypeError)) return result;
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
}

PyObject *glue_reduce_by(glue_state *state, gpr_operator op, PyArrayObject *array,
                         const glue_arguments *given)
{
    glue_arguments own = *given;
    PyObject *result = NULL;

    own.op = PyLong_FromLong(op);
    if (own.op != NULL) result = glue_reduce_plain_ndarray(state, array, &own, NULL, Py_None);
    Py_XDECREF(own.op);
    return result;
}

PyMethodDef glue_host_reduce_methods[] = {
    {"reduce", (PyCFunction)(void (*)(void))reduce, METH_FASTCALL,
     PyDoc_STR("reduce(op, array, axis, dtype, keepdims, mask, kernel, device, block_size, "
               "grid_size, stream, skip_nan, ddof, /)")},
    {NULL, NULL, 0, NULL},
};
