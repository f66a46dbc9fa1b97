/* Running a call that is filled in: without the GIL, interruptible by Ctrl-C, and showing its
 * progress. */
#include "lib/base/convert.h"
#include "python/glue.h"

/* ---------------------------------------------------------------- progress ------------------- */

/* Key in the thread's own dictionary: the callable that its long calls show their progress to,
 * or None. */
static const char PROGRESS_KEY[] = "gpureduce.progress";

static PyObject *watch_progress(PyObject *Py_UNUSED(module), PyObject *callback)
{
    PyObject *of_thread = PyThreadState_GetDict();

    if (callback != Py_None && !PyCallable_Check(callback)) {
        PyErr_SetString(PyExc_TypeError, "watch_progress takes a callable, or None");
        return NULL;
    }
    if (of_thread == NULL) return PyErr_NoMemory();
    if (PyDict_SetItemString(of_thread, PROGRESS_KEY, callback) < 0) return NULL;
    Py_RETURN_NONE;
}

/* Calls the function that the thread's watch_progress was given, if any, with gpr_progress(). 0, or
 * -1 with an exception. */
static int show_progress(void)
{
    PyObject *of_thread = PyThreadState_GetDict();
    PyObject *callback = of_thread != NULL ? PyDict_GetItemString(of_thread, PROGRESS_KEY) : NULL;
    PyObject *share = NULL, *answer = NULL;

    if (callback == NULL || callback == Py_None) return 0;
    Py_INCREF(callback); /* it may put another in its place */
    share = PyFloat_FromDouble(gpr_progress());
    if (share != NULL) answer = PyObject_CallOneArg(callback, share);
    Py_XDECREF(share);
    Py_XDECREF(answer);
    Py_DECREF(callback);
    return answer != NULL ? 0 : -1;
}

/* ---------------------------------------------------------------- running -------------------- */

/* Runs signal handlers and shows progress between chunks. The library calls it on the thread
 * that called the library, whose own state takes the GIL back. */
static int is_interrupted(void *argument)
{
    glue_pause *pause = argument;
    int stop = 0;

    PyEval_RestoreThread(pause->thread);
    stop = PyErr_CheckSignals() < 0 || show_progress() < 0;
    pause->thread = PyEval_SaveThread();
    return stop;
}

void glue_release_gil(glue_pause *pause, int (**interrupted)(void *), void **argument)
{
    *interrupted = is_interrupted;
    *argument = pause;
    pause->thread = PyEval_SaveThread();
}

/* Whether a call is over before another thread could use the GIL: NumPy keeps it up to as many
 * elements. */
static int keeps_gil(int device, int ndim, const int64_t *shape)
{
    enum { FEW_ELEMENTS = 500 };
    int64_t elements = 1;

    if (device != GPR_DEVICE_CPU) return 0;
    for (int i = 0; i < ndim && elements <= FEW_ELEMENTS; i++) {
        if (shape[i] > FEW_ELEMENTS) return 0;
        elements *= shape[i];
    }
    return elements <= FEW_ELEMENTS;
}

gpr_status glue_reduce_unlocked(gpr_request *request)
{
    glue_pause pause;
    gpr_status status = GPR_OK;

    if (keeps_gil(request->device, request->ndim, request->shape)) return gpr_reduce(request);
    glue_release_gil(&pause, &request->interrupted, &request->interrupted_arg);
    status = gpr_reduce(request);
    PyEval_RestoreThread(pause.thread);
    return status;
}

gpr_status glue_dot_unlocked(gpr_dot_request *request)
{
    glue_pause pause;
    gpr_status status = GPR_OK;

    if (request->shape != NULL && keeps_gil(request->device, request->ndim, request->shape))
        return gpr_dot(request);
    glue_release_gil(&pause, &request->interrupted, &request->interrupted_arg);
    status = gpr_dot(request);
    PyEval_RestoreThread(pause.thread);
    return status;
}

int glue_warn_if_none(glue_state *state, const glue_call *call)
{
    if (!call->names_kernel || call->request.device != GPR_DEVICE_DEFAULT ||
        atomic_load(&state->warned))
        return 0;
    if (gpr_cuda_available() == GPR_OK) return 0;
    return glue_warn_no_device(state,
                               "the named kernel needs a GPU, so the CPU backend computes the "
                               "result: it is right, but its time is not that kernel's");
}

/* What is done with `count` results of this type. */
static void finish_results(const glue_call *call, const PyArray_Descr *descr, npy_intp count)
{
    const gpr_request *request = &call->request;
    glue_epilogue *epilogue = call->epilogue;
    const gpr_dtype dtype = call->resolution.result;

    if (epilogue != NULL && epilogue->has_start)
        glue_fold_start(request->op, dtype, epilogue, request->result, count);
    glue_restore_dates(request, count);
    if (epilogue == NULL || !epilogue->only_ordinary) return;
    epilogue->has_others = PyTypeNum_ISDATETIME(descr->type_num)
                               ? glue_have_nat(request->result, count)
                               : !glue_are_ordinary(dtype, request->result, count);
}

/* Results of float64, an array's or a single one, rounded to another type, in the same order of
 * memory. */
static PyObject *round_results(PyArrayObject *array, double single, gpr_dtype to)
{
    PyArray_Descr *const descr = glue_descr_of(to);
    PyObject *made = NULL;
    float rounded = 0; /* room for a number of any narrower type */

    if (descr == NULL) return NULL;
    if (array == NULL) {
        gpr_convert(GPR_FLOAT64, &single, to, &rounded, 1);
        made = PyArray_Scalar(&rounded, descr, NULL);
        Py_DECREF(descr);
        return made;
    }
    made = PyArray_NewLikeArray(array, NPY_KEEPORDER, descr, 0);
    if (made != NULL)
        gpr_convert(GPR_FLOAT64, PyArray_DATA(array), to, PyArray_DATA((PyArrayObject *)made),
                    (uint64_t)PyArray_SIZE(array));
    return made;
}

PyObject *glue_run(glue_state *state, glue_call *call)
{
    gpr_request *request = &call->request;
    PyArray_Descr *descr = call->result_descr;
    PyObject *array = NULL, *result = NULL;
    npy_complex128 scalar = 0; /* room for an element of any type */
    double single;
    int64_t strides[GPR_MAX_NDIM + 1];

    call->result_descr = NULL;
    if (request->device != GPR_DEVICE_CPU && glue_locate(state, 0) < 0) goto done;
    if (call->out != NULL) {
        array = Py_NewRef((PyObject *)call->out);
        request->result = PyArray_DATA(call->out);
        glue_set_result_strides(call, PyArray_STRIDES(call->out), strides);
    } else if (call->result_ndim == 0) {
        request->result = &scalar;
    } else {
        const int64_t bytes = glue_get_result_strides(call, PyDataType_ELSIZE(descr), strides);
        Py_INCREF(descr);
        array = PyArray_NewFromDescr(&PyArray_Type, descr, call->result_ndim, call->result_shape,
                                     bytes != 0 ? strides : NULL, NULL, 0, NULL);
        if (array == NULL) goto done;
        request->result = PyArray_DATA((PyArrayObject *)array);
    }
    if (glue_reduce_unlocked(request) != GPR_OK) {
        glue_raise(state);
        goto done;
    }
    if (glue_warn_if_none(state, call) < 0) goto done;
    finish_results(call, descr, array != NULL ? PyArray_SIZE((PyArrayObject *)array) : 1);
    if (call->epilogue != NULL && call->epilogue->is_wide &&
        call->epilogue->rounded != GPR_FLOAT64) {
        memcpy(&single, &scalar, sizeof single);
        result = round_results((PyArrayObject *)array, single, call->epilogue->rounded);
    } else {
        result = array != NULL ? Py_NewRef(array) : PyArray_Scalar(&scalar, descr, NULL);
    }
done:
    Py_XDECREF(array);
    Py_DECREF(descr);
    return result;
}

int glue_lacks_freedom(const glue_call *call)
{
    const gpr_request *request = &call->request;

    if (request->op != GPR_OP_VAR && request->op != GPR_OP_STD) return 0;
    return !(glue_count_reduced(call) > request->ddof);
}

PyMethodDef glue_run_methods[] = {
    {"watch_progress", watch_progress, METH_O, PyDoc_STR("watch_progress(callback, /)")},
    {NULL, NULL, 0, NULL},
};
