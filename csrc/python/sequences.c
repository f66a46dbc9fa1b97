/* Tuples and lists of items that a function makes one by one. */
#include "python/glue.h"

PyObject *glue_new_tuple(Py_ssize_t count, glue_item_maker *make, const void *from)
{
    PyObject *tuple = PyTuple_New(count);

    for (Py_ssize_t i = 0; i < count && tuple != NULL; i++) {
        PyObject *item = make(from, i);
        if (item == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, i, item);
        }
    }
    return tuple;
}

PyObject *glue_new_list(Py_ssize_t count, glue_item_maker *make, const void *from)
{
    PyObject *tuple = glue_new_tuple(count, make, from);
    PyObject *list = tuple != NULL ? PySequence_List(tuple) : NULL;

    Py_XDECREF(tuple);
    return list;
}

static PyObject *make_integer(const void *from, Py_ssize_t i)
{
    return PyLong_FromLongLong(((const int64_t *)from)[i]);
}

PyObject *glue_tuple_of_integers(const int64_t *integers, Py_ssize_t count)
{
    return glue_new_tuple(count, make_integer, integers);
}

PyObject *glue_make_float(const void *from, Py_ssize_t i)
{
    return PyFloat_FromDouble(((const double *)from)[i]);
}
