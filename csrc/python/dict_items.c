/* Items of dicts that other threads change: without a GIL, borrowed references end at any time. */
#include "python/glue.h"

int glue_find_item(PyObject *dict, PyObject *key, PyObject **value)
{
#if PY_VERSION_HEX >= 0x030D0000
    return PyDict_GetItemRef(dict, key, value) < 0 ? -1 : 0;
#else
    *value = Py_XNewRef(PyDict_GetItemWithError(dict, key));
    return *value == NULL && PyErr_Occurred() != NULL ? -1 : 0;
#endif
}
