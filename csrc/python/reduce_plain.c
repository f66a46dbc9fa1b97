/* reduce_plain: the one call that the package's functions make at once, for arrays of the host
 * and of devices. */
#include "python/device_reduce.h"

/* reduce_plain(op, a, axis, dtype, keepdims, out, kernel, device, block_size, grid_size, stream,
 * skip_nan, ddof) -> what reduce returns for an exact ndarray; for a device array one of its
 * library, or `out`, of minmax a pair.
 *
 * NotImplemented where NumPy's fine print says more: for other objects, for no or too few
 * elements, for an ndarray with an out, for complex elements and a dtype, and instead of a
 * TypeError, which is not the last word on dates. */
static PyObject *reduce_plain(PyObject *module, PyObject *const *from, Py_ssize_t count)
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
        PyErr_SetString(PyExc_TypeError,
                        "reduce_plain takes an operator's number and twelve more arguments");
        return NULL;
    }
    const glue_arguments given = {from[OP],       from[AXIS], from[DTYPE], from[KEEPDIMS], Py_None,
                                  from[SKIP_NAN], from[DDOF], Py_None,     from + OPTIONS};
    if (!PyArray_CheckExact(from[ARRAY]))
        return glue_reduce_plain_device(state, from[ARRAY], &given, from[OUT]);
    if (from[OUT] != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return glue_reduce_plain_ndarray(state, (PyArrayObject *)from[ARRAY], &given);
}

PyMethodDef glue_reduce_plain_methods[] = {
    {"reduce_plain", (PyCFunction)(void (*)(void))reduce_plain, METH_FASTCALL,
     PyDoc_STR("reduce_plain(op, a, axis, dtype, keepdims, out, kernel, device, block_size, "
               "grid_size, stream, skip_nan, ddof, /)")},
    {NULL, NULL, 0, NULL},
};
