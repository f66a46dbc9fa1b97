/* From a gpr_status to an exception: the one place that maps them. */
#include "python/glue.h"

static PyObject *raise_cuda_error(const glue_state *state, const gpr_error *error)
{
    PyObject *exception = PyObject_CallFunction(state->cuda_error, "ssisz", error->message,
                                                error->name, error->code, error->call, error->log);

    if (exception != NULL) PyErr_SetObject(state->cuda_error, exception);
    Py_XDECREF(exception);
    return NULL;
}

PyObject *glue_raise(const glue_state *state)
{
    const gpr_error *error = gpr_last_error();
    PyObject *class = PyExc_SystemError;

    if (PyErr_Occurred() != NULL) return NULL; /* the interrupt callback's */
    switch (error->status) {
    case GPR_ERROR_VALUE: class = PyExc_ValueError; break;
    case GPR_ERROR_TYPE: class = PyExc_TypeError; break;
    case GPR_ERROR_MEMORY: class = PyExc_MemoryError; break;
    case GPR_ERROR_CUDA:
    case GPR_ERROR_COMPILE: return raise_cuda_error(state, error);
    case GPR_ERROR_DEVICE: class = state->device_unavailable_error; break;
    case GPR_ERROR_KERNEL: class = state->kernel_unavailable_error; break;
    case GPR_ERROR_INTERRUPTED: class = PyExc_KeyboardInterrupt; break;
    case GPR_ERROR_SYSTEM: class = PyExc_OSError; break;
    case GPR_OK: break;
    }
    PyErr_SetString(class, error->message);
    return NULL;
}

void glue_set_cause(PyObject *class, PyObject *value, PyObject *traceback)
{
    PyObject *new_class = NULL, *new_value = NULL, *new_traceback = NULL;

    PyErr_Fetch(&new_class, &new_value, &new_traceback); /* first: normalizing runs code */
    PyErr_NormalizeException(&class, &value, &traceback);
    if (traceback != NULL) (void)PyException_SetTraceback(value, traceback);
    PyErr_NormalizeException(&new_class, &new_value, &new_traceback);
    PyException_SetCause(new_value, value); /* takes it over */
    PyErr_Restore(new_class, new_value, new_traceback);
    Py_XDECREF(class);
    Py_XDECREF(traceback);
}

/* Whether a frame runs code of the package itself. */
static int is_ours(PyFrameObject *frame)
{
    static const char package[] = "gpureduce.";
    PyObject *globals = PyFrame_GetGlobals(frame);
    PyObject *name = globals != NULL ? PyMapping_GetItemString(globals, "__name__") : NULL;
    const char *text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    const int ours = text != NULL && strncmp(text, package, sizeof package - 1) == 0;

    if (text == NULL) PyErr_Clear();
    Py_XDECREF(globals);
    Py_XDECREF(name);
    return ours;
}

/* The stack level of the caller of the package, so that a warning points at the
 * caller's line. */
static Py_ssize_t caller_level(void)
{
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    Py_ssize_t level = 1;

    while (frame != NULL && is_ours(frame)) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
        level++;
    }
    Py_XDECREF(frame);
    return level;
}

int glue_warn_no_device(glue_state *state, const char *what)
{
    if (atomic_exchange(&state->warned, 1)) return 0;
    if (PyErr_WarnFormat(state->no_device_warning, caller_level(), "%s (%s)", what,
                         gpr_last_error()->message) == 0)
        return 0;
    /* Filters that make it an exception do so for each call, not for the first alone. */
    atomic_store(&state->warned, 0);
    return -1;
}
