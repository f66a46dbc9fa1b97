/* reduce_plain: the one call that the package's functions make at once, for arrays of the host
 * and of devices. */
#include "python/device_reduce.h"

/* reduce_plain(op, a, axis, dtype, keepdims, where, kernel, device, block_size, grid_size, stream,
 * skip_nan, ddof, out) -> the result for an exact ndarray; for a device array one of its library,
 * or `out`, of minmax a pair.
 *
 * NotImplemented for a kernel of the user's own, and where NumPy has further rules: for other
 * objects, for no or too few elements, for an ndarray with an out, for complex elements and a
 * dtype, for a `where` that is neither True nor an ndarray of bool of the array's shape, and
 * instead of a TypeError, since dates may be reduced in Python. */
static PyObject *reduce_plain(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { OUT = GLUE_AT_END, ARGUMENT_COUNT };
    glue_state *state = glue_state_of(module);

    if (count != ARGUMENT_COUNT) {
        PyErr_SetString(PyExc_TypeError,
                        "reduce_plain takes an operator's number and thirteen more arguments");
        return NULL;
    }
    PyObject *kernel = from[GLUE_AT_OPTIONS + GLUE_KERNEL];
    /* A kernel of the user's own takes the call; other objects are a TypeError. */
    if (!PyUnicode_Check(kernel) && PyObject_HasAttrString(kernel, "reduce_call"))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *const array = from[GLUE_AT_ARRAY];
    const int is_host = PyArray_CheckExact(array);
    glue_arguments given = glue_arguments_at(from);

    if (given.mask == Py_True) {
        given.mask = Py_None;
    } else if (!is_host || !glue_is_mask_of(given.mask, (PyArrayObject *)array)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (!is_host) return glue_reduce_plain_device(state, array, &given, from[OUT]);
    if (from[OUT] != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return glue_reduce_plain_ndarray(state, (PyArrayObject *)array, &given, NULL, Py_None);
}

PyMethodDef glue_reduce_plain_methods[] = {
    {"reduce_plain", (PyCFunction)(void (*)(void))reduce_plain, METH_FASTCALL,
     PyDoc_STR("reduce_plain(op, a, axis, dtype, keepdims, where, kernel, device, block_size, "
               "grid_size, stream, skip_nan, ddof, out, /)")},
    {NULL, NULL, 0, NULL},
};
