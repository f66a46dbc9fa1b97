/* One reduction: a NumPy array becomes a request, the library carries it out without the GIL, the result becomes a NumPy
 * scalar or array. */
#include "python/device_array.h"

/* ---------------------------------------------------------------- running -------------------- */

/* Runs signal handlers, and shows progress, between chunks. The library asks on the thread that called it, so that thread's own state takes the
 * GIL back. */
int glue_is_interrupted(void *argument)
{
    glue_pause *pause = argument;
    int stop = 0;

    PyEval_RestoreThread(pause->thread);
    stop = PyErr_CheckSignals() < 0 || glue_show_progress() < 0;
    pause->thread = PyEval_SaveThread();
    return stop;
}

gpr_status glue_reduce_unlocked(gpr_request *request)
{
    glue_pause pause;
    gpr_status status = GPR_OK;

    request->interrupted = glue_is_interrupted;
    request->interrupted_arg = &pause;
    pause.thread = PyEval_SaveThread();
    status = gpr_reduce(request);
    PyEval_RestoreThread(pause.thread);
    return status;
}

int glue_warn_if_none(glue_state *state, const glue_call *call)
{
    if (!call->names_kernel || call->request.device != GPR_DEVICE_DEFAULT || atomic_load(&state->warned)) return 0;
    if (gpr_cuda_available() == GPR_OK) return 0;
    return glue_warn_no_device(state, "a GPU kernel was named, but the CPU backend answers");
}

/* The smallest and the largest elements lie one after the other: the result's first axis. */
static void add_plane_axis(glue_call *call)
{
    memmove(call->result_shape + 1, call->result_shape, (size_t)call->result_ndim * sizeof *call->result_shape);
    call->result_shape[0] = 2;
    call->result_ndim++;
}

PyObject *glue_run(glue_state *state, glue_call *call)
{
    gpr_request *request = &call->request;
    PyArray_Descr *descr = call->result_descr;
    PyObject *array = NULL, *result = NULL;
    npy_complex128 scalar = 0; /* room for an element of any type */

    call->result_descr = NULL;
    if (request->op == GPR_OP_MINMAX) add_plane_axis(call);
    if (request->device != GPR_DEVICE_CPU && glue_locate(state, 0) < 0) goto done;
    if (call->result_ndim == 0) {
        request->result = &scalar;
    } else {
        Py_INCREF(descr);
        array = PyArray_NewFromDescr(&PyArray_Type, descr, call->result_ndim, call->result_shape, NULL, NULL, 0, NULL);
        if (array == NULL) goto done;
        request->result = PyArray_DATA((PyArrayObject *)array);
    }
    if (glue_reduce_unlocked(request) != GPR_OK) {
        glue_raise(state);
        goto done;
    }
    if (glue_warn_if_none(state, call) < 0) goto done;
    result = array != NULL ? Py_NewRef(array) : PyArray_Scalar(&scalar, descr, NULL);
done:
    Py_XDECREF(array);
    Py_DECREF(descr);
    return result;
}

/* ---------------------------------------------------------------- arrays --------------------- */

/* Copies shape and strides with the reduced axes last, and lays out the result. */
static void read_layout(glue_call *call, PyArrayObject *array, PyArrayObject *mask, const char *reduced, int keepdims)
{
    const int ndim = PyArray_NDIM(array);
    int at = 0, kept = 0;

    call->result_ndim = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < ndim; i++) {
            if (reduced[i] != pass) continue;
            call->shape[at] = PyArray_DIM(array, i);
            call->strides[at] = PyArray_STRIDE(array, i);
            if (mask != NULL) call->mask_strides[at] = PyArray_STRIDE(mask, i);
            at++;
            kept += !pass;
        }
    }
    for (int i = 0; i < ndim; i++) {
        if (!reduced[i] || keepdims) call->result_shape[call->result_ndim++] = reduced[i] ? 1 : PyArray_DIM(array, i);
    }
    call->request.ndim = ndim;
    call->request.reduced = ndim - kept;
    call->request.shape = call->shape;
    call->request.strides = call->strides;
    call->request.data = PyArray_DATA(array);
    call->request.byteswapped = PyArray_ISBYTESWAPPED(array);
    if (mask != NULL) {
        call->request.mask = PyArray_DATA(mask);
        call->request.mask_strides = call->mask_strides;
    }
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
static int read_call(glue_state *state, PyArrayObject *array, const glue_arguments *given, glue_call *call)
{
    PyArrayObject *mask = NULL;
    PyArray_Descr *requested = NULL;
    char reduced[GPR_MAX_NDIM];
    int keepdims = 0, failed = -1;
    gpr_request *request = &call->request;

    memset(request, 0, sizeof *request);
    request->compute = GPR_DTYPE_DEFAULT;
    if (glue_read_operator(given->op, &request->op) < 0) return -1;
    if (glue_find_dtype(PyArray_DESCR(array), "reducing an array of dtype", &request->dtype) < 0) return -1;
    if (glue_read_leave_out(given->skip_nan, given->ddof, request) < 0) return -1;
    if (glue_read_axes(state, given->axis, PyArray_NDIM(array), request, reduced) < 0) return -1;
    if (glue_read_keepdims(given->keepdims, &keepdims) < 0) return -1;
    if (glue_read_options(state, given->options, call) < 0) return -1;
    if (read_mask(given->mask, array, &mask) < 0) return -1;
    if (glue_read_descr(given->dtype, &requested) < 0) return -1;

    if (requested != NULL && glue_find_dtype(requested, "reducing to dtype", &request->compute) < 0) goto done;
    read_layout(call, array, mask, reduced, keepdims);
    failed = glue_set_result_descr(state, call, PyArray_DESCR(array), requested);
done:
    Py_XDECREF(requested);
    return failed;
}

/* reduce(op, array, axis, dtype, keepdims, mask, kernel, device, block_size, grid_size, stream, skip_nan, ddof) */
PyObject *glue_reduce(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum {
        OP,
        ARRAY,
        AXIS,
        DTYPE,
        KEEPDIMS,
        MASK,
        OPTIONS,
        SKIP_NAN = OPTIONS + GLUE_OPTION_COUNT,
        DDOF,
        ARGUMENT_COUNT
    };
    glue_state *state = glue_state_of(module);
    glue_call call;

    if (count != ARGUMENT_COUNT || !PyArray_Check(from[ARRAY])) {
        PyErr_SetString(PyExc_TypeError, "reduce takes an operator's number, an array and eleven more arguments");
        return NULL;
    }
    const glue_arguments given = {from[OP],       from[AXIS], from[DTYPE], from[KEEPDIMS], from[MASK],
                                  from[SKIP_NAN], from[DDOF], Py_None,     from + OPTIONS};
    if (read_call(state, (PyArrayObject *)from[ARRAY], &given, &call) < 0) return NULL;
    return glue_run(state, &call);
}

int glue_lacks_freedom(const glue_call *call)
{
    const gpr_request *request = &call->request;
    double n = 1;

    if (request->op != GPR_OP_VAR && request->op != GPR_OP_STD) return 0;
    for (int i = request->ndim - request->reduced; i < request->ndim; i++) n *= (double)call->shape[i];
    return !(n > request->ddof);
}

/* What reduce_plain gives for an exact ndarray. */
static PyObject *reduce_ndarray(glue_state *state, PyArrayObject *array, const glue_arguments *given)
{
    PyObject *result = NULL;
    glue_call call;

    if (PyArray_SIZE(array) == 0 || (PyArray_ISCOMPLEX(array) && given->dtype != Py_None)) Py_RETURN_NOTIMPLEMENTED;
    if (read_call(state, array, given, &call) == 0) {
        if (glue_lacks_freedom(&call)) {
            Py_DECREF(call.result_descr);
            Py_RETURN_NOTIMPLEMENTED;
        }
        result = glue_run(state, &call);
    }
    if (result != NULL || !PyErr_ExceptionMatches(PyExc_TypeError)) return result;
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
}

/* reduce_plain(op, a, axis, dtype, keepdims, out, kernel, device, block_size, grid_size, stream, skip_nan, ddof) -> what reduce
 * returns, or NotImplemented where NumPy's fine print says more: for what is neither an exact ndarray nor an array of a library that
 * the glue knows, for none or too few elements, for an ndarray with an out, for complex elements and a dtype, and instead of a
 * TypeError, which is not the last word on dates, for one. */
PyObject *glue_reduce_plain(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum {
        OP,
        ARRAY,
        AXIS,
        DTYPE,
        KEEPDIMS,
        OUT,
        OPTIONS,
        SKIP_NAN = OPTIONS + GLUE_OPTION_COUNT,
        DDOF,
        ARGUMENT_COUNT
    };
    glue_state *state = glue_state_of(module);

    if (count != ARGUMENT_COUNT) {
        PyErr_SetString(PyExc_TypeError, "reduce_plain takes an operator's number and twelve more arguments");
        return NULL;
    }
    const glue_arguments given = {from[OP],       from[AXIS], from[DTYPE], from[KEEPDIMS], Py_None,
                                  from[SKIP_NAN], from[DDOF], Py_None,     from + OPTIONS};
    if (!PyArray_CheckExact(from[ARRAY])) return glue_reduce_known(state, from[ARRAY], &given, from[OUT]);
    if (from[OUT] != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return reduce_ndarray(state, (PyArrayObject *)from[ARRAY], &given);
}
