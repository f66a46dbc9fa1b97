/* gpureduce._core.DeviceArray: an array of any library in the memory of a CUDA device. */
#include "python/device_array.h"

#include <limits.h>
#include <structmember.h>

#include "lib/rules/nd_view.h"

/* ---------------------------------------------------------------- the type ------------------- */

/* A deleter is the producer's code, which an exception that is set is not to reach. */
void glue_return_tensors(DLManagedTensorVersioned *versioned, DLManagedTensor *legacy)
{
    PyObject *class = NULL, *value = NULL, *traceback = NULL;

    PyErr_Fetch(&class, &value, &traceback);
    if (versioned != NULL && versioned->deleter != NULL) versioned->deleter(versioned);
    if (legacy != NULL && legacy->deleter != NULL) legacy->deleter(legacy);
    PyErr_Restore(class, value, traceback);
}

static void device_array_dealloc(PyObject *self)
{
    glue_device_array *array = (glue_device_array *)self;
    PyTypeObject *type = Py_TYPE(self);

    glue_return_tensors(array->versioned, array->legacy);
    Py_XDECREF(array->owner);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *get_shape(PyObject *self, void *closure)
{
    glue_device_array *array = (glue_device_array *)self;

    (void)closure;
    return glue_tuple_of_integers(glue_shape_of(array), array->ndim);
}

static PyObject *get_strides(PyObject *self, void *closure)
{
    glue_device_array *array = (glue_device_array *)self;

    (void)closure;
    return glue_tuple_of_integers(glue_strides_of(array), array->ndim);
}

static PyObject *get_dtype(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_InternFromString(gpr_dtype_name(((glue_device_array *)self)->dtype));
}

static PyObject *get_pointer(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(((glue_device_array *)self)->data);
}

static PyObject *get_stream(PyObject *self, void *closure)
{
    const glue_device_array *array = (glue_device_array *)self;

    (void)closure;
    if (!array->has_stream) Py_RETURN_NONE;
    return PyLong_FromVoidPtr(array->stream);
}

static PyMemberDef device_array_members[] = {
    {"ndim", T_INT, offsetof(glue_device_array, ndim), READONLY, PyDoc_STR("number of axes")},
    {"device", T_INT, offsetof(glue_device_array, device), READONLY, PyDoc_STR("CUDA ordinal")},
    {"read_only", T_INT, offsetof(glue_device_array, read_only), READONLY,
     PyDoc_STR("not 0: not to be written")},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef device_array_getters[] = {
    {"shape", get_shape, NULL, PyDoc_STR("extents"), NULL},
    {"strides", get_strides, NULL, PyDoc_STR("steps in bytes"), NULL},
    {"dtype", get_dtype, NULL, PyDoc_STR("name of the elements' type"), NULL},
    {"pointer", get_pointer, NULL, PyDoc_STR("address of the first element"), NULL},
    {"stream", get_stream, NULL,
     PyDoc_STR("the producer's stream as a handle; None: it named none"), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot device_array_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("An array in the memory of a CUDA device.")},
    {Py_tp_dealloc, (void *)device_array_dealloc},
    {Py_tp_members, (void *)device_array_members},
    {Py_tp_getset, (void *)device_array_getters},
    {0, NULL},
};

static PyType_Spec device_array_spec = {
    .name = "gpureduce._core.DeviceArray",
    .basicsize = (int)offsetof(glue_device_array, dims),
    .itemsize = (int)sizeof(int64_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = device_array_slots,
};

int glue_add_device_array(PyObject *module)
{
    glue_state *state = glue_state_of(module);

    state->device_array_type = PyType_FromModuleAndSpec(module, &device_array_spec, NULL);
    if (state->device_array_type == NULL) return -1;
    return PyModule_AddObjectRef(module, "DeviceArray", state->device_array_type);
}

glue_device_array *glue_new_device_array(const glue_state *state, int ndim)
{
    PyTypeObject *type = (PyTypeObject *)state->device_array_type;
    glue_device_array *array = (glue_device_array *)type->tp_alloc(type, 2 * (Py_ssize_t)ndim);

    if (array != NULL) array->ndim = ndim;
    return array;
}

/* ---------------------------------------------------------------- checks --------------------- */

static int has_elements(glue_device_array *array)
{
    for (int i = 0; i < array->ndim; i++) {
        if (glue_shape_of(array)[i] == 0) return 0;
    }
    return 1;
}

int glue_check_ndim(long long ndim)
{
    if (ndim >= 0 && ndim <= GPR_MAX_NDIM) return 0;
    PyErr_Format(PyExc_ValueError, "a device array has 0 to %d axes, not %lld", GPR_MAX_NDIM, ndim);
    return -1;
}

static int check_extents(glue_device_array *array)
{
    for (int i = 0; i < array->ndim; i++) {
        if (glue_shape_of(array)[i] >= 0) continue;
        PyErr_Format(PyExc_ValueError, "axis %d of the device array has the negative extent %lld",
                     i, (long long)glue_shape_of(array)[i]);
        return -1;
    }
    return 0;
}

int glue_set_compact_strides(glue_device_array *array)
{
    int64_t step = (int64_t)gpr_dtype_bytes(array->dtype);

    if (check_extents(array) < 0) return -1;
    for (int i = array->ndim - 1; i >= 0; i--) {
        const int64_t extent = glue_shape_of(array)[i];

        glue_strides_of(array)[i] = step;
        if (extent > 0 && __builtin_mul_overflow(step, extent, &step)) {
            PyErr_SetString(PyExc_ValueError, "the device array has more than 2^63 - 1 bytes");
            return -1;
        }
    }
    return 0;
}

/* How far the array, which has elements, reaches; 0: out of the address space. */
static int find_span(glue_device_array *array, gpr_span *span)
{
    int fits = 1;

    *span = (gpr_span){0, gpr_dtype_bytes(array->dtype) - 1};
    for (int i = 0; i < array->ndim; i++)
        fits &= gpr_extend_span(span, (uint64_t)glue_shape_of(array)[i], glue_strides_of(array)[i]);
    return fits && gpr_has_addresses(*span, array->data);
}

int glue_check_layout(glue_device_array *array)
{
    gpr_span span;

    if (check_extents(array) < 0) return -1;
    if (array->data == NULL && has_elements(array)) {
        PyErr_SetString(PyExc_ValueError,
                        "the device array has elements but no memory: its pointer is NULL");
        return -1;
    }
    if (has_elements(array) && !find_span(array, &span)) {
        PyErr_SetString(PyExc_ValueError,
                        "the strides of the device array lead out of the address space");
        return -1;
    }
    if (array->device < 0) {
        PyErr_Format(PyExc_ValueError, "the device array is on device %d, which cannot be",
                     array->device);
        return -1;
    }
    return 0;
}

int glue_is_compact(glue_device_array *array)
{
    int64_t step = (int64_t)gpr_dtype_bytes(array->dtype);

    for (int i = array->ndim - 1; i >= 0; i--) {
        if (glue_shape_of(array)[i] != 1 && glue_strides_of(array)[i] != step) return 0;
        /* of an array without elements, extents may be of any size */
        if (__builtin_mul_overflow(step, glue_shape_of(array)[i], &step)) return 0;
    }
    return 1;
}

int glue_check_memory(const glue_state *state, glue_device_array *array, int is_named)
{
    int device = 0;

    if (!has_elements(array)) return 0;
    if (gpr_find_memory(array->data, &device) != GPR_OK) {
        (void)glue_raise(state);
        return -1;
    }
    if (is_named && device != array->device) {
        PyErr_Format(PyExc_ValueError,
                     "the array names device \"cuda:%d\", its memory is on \"cuda:%d\"",
                     array->device, device);
        return -1;
    }
    array->device = device;
    return 0;
}

int glue_read_ready_stream(const glue_state *state, PyObject *object, glue_device_array *array)
{
    if (object == Py_None) return 0;
    if (glue_read_stream(state, object, &array->stream) < 0) return -1;
    array->stream = glue_name_stream(array->stream);
    array->has_stream = 1;
    return 0;
}

int glue_read_dtype_name(PyObject *name, gpr_dtype *dtype)
{
    const char *text = PyUnicode_AsUTF8(name);

    if (text == NULL) return -1;
    *dtype = gpr_find_dtype(text);
    if (*dtype != GPR_DTYPE_DEFAULT) return 0;
    PyErr_Format(PyExc_ValueError, "there is no dtype '%s'", text);
    return -1;
}

int glue_read_integers(PyObject *tuple, const char *what, int64_t *numbers)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple of integers, not %s", what,
                     Py_TYPE(tuple)->tp_name);
        return -1;
    }
    if (glue_check_ndim(PyTuple_GET_SIZE(tuple)) < 0) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (numbers[i] == -1 && PyErr_Occurred() != NULL) return -1;
    }
    return (int)PyTuple_GET_SIZE(tuple);
}

/* ---------------------------------------------------------------- by hand -------------------- */

glue_device_array *glue_describe_array(const glue_state *state, PyObject *const *description)
{
    int64_t shape[GPR_MAX_NDIM], strides[GPR_MAX_NDIM];
    glue_device_array *array = NULL;

    const int ndim = glue_read_integers(description[GLUE_SHAPE], "shape", shape);
    if (ndim < 0) return NULL;
    array = glue_new_device_array(state, ndim);
    if (array == NULL) return NULL;
    memcpy(glue_shape_of(array), shape, (size_t)ndim * sizeof *shape);
    array->data = PyLong_AsVoidPtr(description[GLUE_POINTER]);
    if (array->data == NULL && PyErr_Occurred() != NULL) goto fail;
    const long device = PyLong_AsLong(description[GLUE_DEVICE_ID]);
    if (PyErr_Occurred() != NULL) goto fail;
    if (device < 0 || device > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "the device array is on device %ld, which cannot be",
                     device);
        goto fail;
    }
    array->device = (int)device;
    if (PyUnicode_Check(description[GLUE_DTYPE])) {
        if (glue_read_dtype_name(description[GLUE_DTYPE], &array->dtype) < 0) goto fail;
    } else {
        if (!PyArray_DescrCheck(description[GLUE_DTYPE]) ||
            PyDataType_ISBYTESWAPPED((PyArray_Descr *)description[GLUE_DTYPE])) {
            PyErr_Format(PyExc_TypeError, "reducing a device array of dtype %S is not supported",
                         description[GLUE_DTYPE]);
            goto fail;
        }
        if (glue_find_dtype((PyArray_Descr *)description[GLUE_DTYPE],
                            "reducing a device array of dtype", &array->dtype) < 0)
            goto fail;
    }
    if (description[GLUE_STRIDES] == Py_None) {
        if (glue_set_compact_strides(array) < 0) goto fail;
    } else {
        if (glue_read_integers(description[GLUE_STRIDES], "strides", strides) != ndim) {
            if (PyErr_Occurred() == NULL)
                PyErr_SetString(PyExc_ValueError, "there must be a stride for each axis");
            goto fail;
        }
        memcpy(glue_strides_of(array), strides, (size_t)ndim * sizeof *strides);
    }
    if (glue_read_ready_stream(state, description[GLUE_READY], array) < 0 ||
        glue_check_layout(array) < 0)
        goto fail;
    array->owner = Py_NewRef(description[GLUE_OWNER]);
    return array;
fail:
    Py_DECREF(array);
    return NULL;
}

/* device_array(pointer, shape, strides, dtype, device, stream, owner) -> DeviceArray of memory
 * that a library vouches for. */
static PyObject *device_array(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != GLUE_DESCRIPTION_COUNT) {
        PyErr_SetString(PyExc_TypeError, "device_array takes seven arguments");
        return NULL;
    }
    return (PyObject *)glue_describe_array(glue_state_of(module), arguments);
}

/* ---------------------------------------------------------------- overlaps ------------------- */

int glue_may_overlap(glue_device_array *a, glue_device_array *b)
{
    gpr_span span[2];

    if (!has_elements(a) || !has_elements(b)) return 0;
    (void)find_span(a, &span[0]);
    (void)find_span(b, &span[1]);
    return gpr_spans_meet(span[0], a->data, span[1], b->data);
}

/* may_overlap(a, b) -> whether the arrays' bounds have memory in common */
static PyObject *may_overlap(PyObject *module, PyObject *arguments)
{
    PyTypeObject *type = (PyTypeObject *)glue_state_of(module)->device_array_type;
    PyObject *a = NULL, *b = NULL;

    if (!PyArg_ParseTuple(arguments, "O!O!", type, &a, type, &b)) return NULL;
    return PyBool_FromLong(glue_may_overlap((glue_device_array *)a, (glue_device_array *)b));
}

PyMethodDef glue_device_array_methods[] = {
    {"device_array", (PyCFunction)(void (*)(void))device_array, METH_FASTCALL,
     PyDoc_STR(
         "device_array(pointer, shape, strides, dtype, device, stream, owner) -> DeviceArray")},
    {"may_overlap", may_overlap, METH_VARARGS, PyDoc_STR("may_overlap(a, b) -> bool")},
    {NULL, NULL, 0, NULL},
};
