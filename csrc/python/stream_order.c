/* The order of work on streams, for Python: making a stream wait for another, and marks that show
 * how far the device has come. src/gpureduce/_interop/device_reduction.py (Work) decides who waits
 * for whom. */
#include "python/device_buffer.h"

/* ---------------------------------------------------------------- streams -------------------- */

int glue_find_device_stream(const glue_state *state, int device, void **stream)
{
    gpr_status status = GPR_OK;

    Py_BEGIN_ALLOW_THREADS
    status = gpr_device_stream(device, stream);
    Py_END_ALLOW_THREADS
    if (status == GPR_OK) return 0;
    (void)glue_raise(state);
    return -1;
}

/* device_stream(device) -> handle of the library's own stream */
static PyObject *device_stream(PyObject *module, PyObject *ordinal)
{
    const long device = PyLong_AsLong(ordinal);
    void *stream = NULL;

    if (device == -1 && PyErr_Occurred() != NULL) return NULL;
    if (glue_find_device_stream(glue_state_of(module), (int)device, &stream) < 0) return NULL;
    return PyLong_FromVoidPtr(stream);
}

/* stream_handle(stream) -> the handle of an int or of another library's stream object */
static PyObject *stream_handle(PyObject *module, PyObject *object)
{
    void *stream = NULL;

    return glue_read_stream(glue_state_of(module), object, &stream) < 0
               ? NULL
               : PyLong_FromVoidPtr(stream);
}

int glue_order_streams(const glue_state *state, int device, void *first, void *then)
{
    gpr_status status = GPR_OK;

    Py_BEGIN_ALLOW_THREADS
    status = gpr_order_streams(device, first, then);
    Py_END_ALLOW_THREADS
    if (status == GPR_OK) return 0;
    (void)glue_raise(state);
    return -1;
}

/* order_streams(device, first, then): work queued on `then` from now on waits for work queued on
 * `first` before */
static PyObject *order_streams(PyObject *module, PyObject *arguments)
{
    const glue_state *state = glue_state_of(module);
    PyObject *first_handle = NULL, *then_handle = NULL;
    void *first = NULL, *then = NULL;
    int device = 0;

    if (!PyArg_ParseTuple(arguments, "iOO", &device, &first_handle, &then_handle)) return NULL;
    if (glue_read_stream(state, first_handle, &first) < 0 ||
        glue_read_stream(state, then_handle, &then) < 0)
        return NULL;
    if (glue_order_streams(state, device, first, then) < 0) return NULL;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- marks ---------------------- */

static const char mark_name[] = "gpureduce.mark";

static void destroy_mark(PyObject *capsule)
{
    gpr_mark_destroy(PyCapsule_GetPointer(capsule, mark_name));
}

/* mark_stream(device, stream) -> mark */
static PyObject *mark_stream(PyObject *module, PyObject *arguments)
{
    PyObject *handle = NULL, *capsule = NULL;
    void *stream = NULL;
    gpr_mark *mark = NULL;
    int device = 0;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "iO", &device, &handle)) return NULL;
    if (glue_read_stream(glue_state_of(module), handle, &stream) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_mark_stream(device, stream, &mark);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    capsule = PyCapsule_New(mark, mark_name, destroy_mark);
    if (capsule == NULL) gpr_mark_destroy(mark);
    return capsule;
}

/* mark_passed(mark) -> whether the device has come there */
static PyObject *mark_passed(PyObject *module, PyObject *capsule)
{
    const gpr_mark *mark = PyCapsule_GetPointer(capsule, mark_name);
    int passed = 0;
    gpr_status status = GPR_OK;

    if (mark == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_mark_passed(mark, &passed);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? PyBool_FromLong(passed) : glue_raise(glue_state_of(module));
}

/* mark_wait(mark) */
static PyObject *mark_wait(PyObject *module, PyObject *capsule)
{
    const gpr_mark *mark = PyCapsule_GetPointer(capsule, mark_name);
    gpr_status status = GPR_OK;

    if (mark == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_mark_wait(mark);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    Py_RETURN_NONE;
}

PyMethodDef glue_stream_methods[] = {
    {"device_stream", device_stream, METH_O, PyDoc_STR("device_stream(device) -> handle")},
    {"stream_handle", stream_handle, METH_O,
     PyDoc_STR("stream_handle(stream) -> handle; 0 for None")},
    {"order_streams", order_streams, METH_VARARGS, PyDoc_STR("order_streams(device, first, then)")},
    {"mark_stream", mark_stream, METH_VARARGS, PyDoc_STR("mark_stream(device, stream) -> mark")},
    {"mark_passed", mark_passed, METH_O, PyDoc_STR("mark_passed(mark) -> bool")},
    {"mark_wait", mark_wait, METH_O, PyDoc_STR("mark_wait(mark)")},
    {NULL, NULL, 0, NULL},
};
