/* gpureduce.DeviceBuffer: results for libraries that only take arrays over; and writing device
 * memory on a stream. */
#include "python/device_buffer.h"

#include <structmember.h>

/* ---------------------------------------------------------------- memory --------------------- */

static const char memory_name[] = "gpureduce.device_memory";

/* Device memory that its capsule frees. */
typedef struct owned_memory {
    int device;
    void *data;
} owned_memory;

static void free_memory(PyObject *capsule)
{
    owned_memory *memory = PyCapsule_GetPointer(capsule, memory_name);

    if (memory == NULL) return;
    Py_BEGIN_ALLOW_THREADS(void)
    /* waits for pending work of the device */
    gpr_free_device(memory->device, memory->data);
    Py_END_ALLOW_THREADS
    free(memory);
}

/* A capsule that owns so many bytes at *data. */
static PyObject *own_memory(const glue_state *state, int device, uint64_t bytes, void **data)
{
    owned_memory *memory = calloc(1, sizeof *memory);
    PyObject *capsule = NULL;
    gpr_status status = GPR_OK;

    if (memory == NULL) return PyErr_NoMemory();
    memory->device = device;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_alloc_device(device, bytes, &memory->data);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) {
        free(memory);
        return glue_raise(state);
    }
    *data = memory->data;
    capsule = PyCapsule_New(memory, memory_name, free_memory);
    if (capsule == NULL) {
        (void)gpr_free_device(device, memory->data);
        free(memory);
    }
    return capsule;
}

static uint64_t count_bytes(glue_device_array *array)
{
    uint64_t bytes = gpr_dtype_bytes(array->dtype);

    for (int i = 0; i < array->ndim; i++) bytes *= (uint64_t)glue_shape_of(array)[i];
    return bytes;
}

/* ---------------------------------------------------------------- making --------------------- */

/* Takes `memory` over, which may be NULL with an exception. */
static PyObject *wrap(const glue_state *state, glue_device_array *memory)
{
    PyTypeObject *type = (PyTypeObject *)state->device_buffer_type;
    glue_device_buffer *buffer =
        memory != NULL ? (glue_device_buffer *)type->tp_alloc(type, 0) : NULL;

    if (buffer != NULL) {
        buffer->memory = memory;
    } else {
        Py_XDECREF((PyObject *)memory);
    }
    return (PyObject *)buffer;
}

PyObject *glue_make_buffer(const glue_state *state, PyObject *shape, gpr_dtype dtype, int device,
                           void *stream)
{
    int64_t extents[GPR_MAX_NDIM];
    const int ndim = glue_read_integers(shape, "shape", extents);
    glue_device_array *array = ndim >= 0 ? glue_new_device_array(state, ndim) : NULL;
    void *data = NULL;

    if (array == NULL) return NULL;
    memcpy(glue_shape_of(array), extents, (size_t)ndim * sizeof *extents);
    array->dtype = dtype;
    array->device = device;
    array->has_stream = 1;
    array->stream = glue_name_stream(stream);
    if (glue_set_compact_strides(array) < 0) goto fail;
    array->owner = own_memory(state, device, count_bytes(array), &data);
    if (array->owner == NULL) goto fail;
    array->data = data;
    return wrap(state, array);
fail:
    Py_DECREF((PyObject *)array);
    return NULL;
}

/* The part of an array at an index of its first axis. */
static glue_device_array *get_part(const glue_state *state, glue_device_array *array, int index)
{
    glue_device_array *part = glue_new_device_array(state, array->ndim - 1);

    if (part == NULL) return NULL;
    memcpy(glue_shape_of(part), glue_shape_of(array) + 1, (size_t)part->ndim * sizeof(int64_t));
    memcpy(glue_strides_of(part), glue_strides_of(array) + 1, (size_t)part->ndim * sizeof(int64_t));
    part->data = array->data + index * glue_strides_of(array)[0];
    part->dtype = array->dtype;
    part->device = array->device;
    part->has_stream = array->has_stream;
    part->stream = array->stream;
    part->owner = Py_NewRef((PyObject *)array);
    return part;
}

PyObject *glue_halve_buffer(const glue_state *state, PyObject *buffer)
{
    glue_device_array *memory = ((glue_device_buffer *)buffer)->memory;
    PyObject *low = wrap(state, get_part(state, memory, 0));
    PyObject *high = low != NULL ? wrap(state, get_part(state, memory, 1)) : NULL;
    PyObject *pair = high != NULL ? PyTuple_Pack(2, low, high) : NULL;

    Py_XDECREF(low);
    Py_XDECREF(high);
    return pair;
}

/* ---------------------------------------------------------------- the type ------------------- */

static glue_device_array *memory_of(PyObject *self)
{
    return ((glue_device_buffer *)self)->memory;
}

static const glue_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* DeviceBuffer(shape, dtype, device, stream) */
static PyObject *buffer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    const glue_state *state = PyType_GetModuleState(type);
    PyObject *shape = NULL, *name = NULL, *handle = NULL;
    gpr_dtype dtype = GPR_BOOL;
    void *stream = NULL;
    int device = 0;

    if (keywords != NULL && PyDict_GET_SIZE(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "DeviceBuffer takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "OUiO", &shape, &name, &device, &handle)) return NULL;
    if (glue_read_dtype_name(name, &dtype) < 0 || glue_read_stream(state, handle, &stream) < 0)
        return NULL;
    return glue_make_buffer(state, shape, dtype, device, stream);
}

static void buffer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    if (((glue_device_buffer *)self)->weak_references != NULL) PyObject_ClearWeakRefs(self);
    Py_XDECREF((PyObject *)memory_of(self));
    type->tp_free(self);
    Py_DECREF(type);
}

/* An attribute of the memory, by its name: the closure. */
static PyObject *get_of_memory(PyObject *self, void *name)
{
    return PyObject_GetAttrString((PyObject *)memory_of(self), name);
}

static PyObject *get_memory(PyObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef((PyObject *)memory_of(self));
}

static PyObject *buffer_repr(PyObject *self)
{
    PyObject *shape = get_of_memory(self, "shape"), *text = NULL;

    if (shape == NULL) return NULL;
    text =
        PyUnicode_FromFormat("<gpureduce.DeviceBuffer shape=%R dtype=%s device='cuda:%d'>", shape,
                             gpr_dtype_name(memory_of(self)->dtype), memory_of(self)->device);
    Py_DECREF(shape);
    return text;
}

static PyObject *get_interface(PyObject *self, void *closure)
{
    glue_device_array *memory = memory_of(self);
    PyArray_Descr *descr = NULL;
    PyObject *shape = NULL, *typestr = NULL, *interface = NULL;

    (void)closure;
    if (!glue_is_numpys(memory->dtype))
        return PyErr_Format(PyExc_AttributeError, "the CUDA array interface has no %s: use DLPack",
                            gpr_dtype_name(memory->dtype));
    shape = get_of_memory(self, "shape");
    descr = shape != NULL ? glue_descr_of(memory->dtype) : NULL;
    typestr = descr != NULL ? PyObject_GetAttrString((PyObject *)descr, "str") : NULL;
    if (typestr != NULL)
        interface = Py_BuildValue("{sOsOs(NO)sOsNsi}", "shape", shape, "typestr", typestr, "data",
                                  PyLong_FromVoidPtr(memory->data), Py_False, "strides", Py_None,
                                  "stream", PyLong_FromVoidPtr(memory->stream), "version", 3);
    Py_XDECREF(shape);
    Py_XDECREF((PyObject *)descr);
    Py_XDECREF(typestr);
    return interface;
}

static PyObject *get_dlpack_device(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    return Py_BuildValue("ii", (int)kDLCUDA, memory_of(self)->device);
}

/* Whether the consumer requests more than a loan: memory elsewhere, or a copy. -1 with an
 * exception. */
static int check_loan(PyObject *self, PyObject *dl_device, PyObject *copy)
{
    PyObject *own = get_dlpack_device(self, NULL);
    const int is_here = own == NULL                ? -1
                        : dl_device == Py_None     ? 1
                        : PyTuple_Check(dl_device) ? PyObject_RichCompareBool(own, dl_device, Py_EQ)
                                                   : 0;
    const int copies = is_here > 0 ? PyObject_IsTrue(copy) : 0;

    Py_XDECREF(own);
    if (is_here < 0 || copies < 0) return -1;
    if (!is_here) {
        PyErr_Format(PyExc_BufferError,
                     "the array is on CUDA device %d and is not copied elsewhere",
                     memory_of(self)->device);
        return -1;
    }
    if (copies) {
        PyErr_SetString(PyExc_BufferError, "the array is lent as it is, not copied");
        return -1;
    }
    return 0;
}

/* Makes the consumer's stream wait for pending writes; -1: the consumer orders streams itself. */
static int order_consumer(PyObject *self, PyObject *object)
{
    const glue_state *state = state_of(self);
    glue_device_array *memory = memory_of(self);
    void *stream = NULL;

    if (PyLong_Check(object) && PyLong_AsLong(object) == -1 && PyErr_Occurred() == NULL) return 0;
    PyErr_Clear(); /* of a handle too large for a long */
    if (glue_read_stream(state, object, &stream) < 0) return -1;
    if (stream == NULL && object != Py_None) {
        PyErr_SetString(PyExc_ValueError,
                        "stream 0 is ambiguous: 1 is the legacy default stream, 2 the thread's");
        return -1;
    }
    return glue_order_streams(state, memory->device, memory->stream, glue_name_stream(stream));
}

static PyObject *lend(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *most = Py_None, *dl_device = Py_None, *copy = Py_None;
    int major = 0, minor = 0;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO", names, &stream, &most,
                                     &dl_device, &copy))
        return NULL;
    if (most != Py_None && !PyArg_Parse(most, "(ii)", &major, &minor)) return NULL;
    if (check_loan(self, dl_device, copy) < 0 || order_consumer(self, stream) < 0) return NULL;
    return glue_export_capsule(memory_of(self), major >= DLPACK_MAJOR_VERSION);
}

static PyMethodDef buffer_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))lend, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Lend the memory: the consumer's `stream` waits for what is still being written.")},
    {"__dlpack_device__", get_dlpack_device, METH_NOARGS,
     PyDoc_STR("DLPack's device type and the CUDA ordinal.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef buffer_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(glue_device_buffer, weak_references), READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef buffer_getters[] = {
    {"shape", get_of_memory, NULL, PyDoc_STR("extents"), "shape"},
    {"dtype", get_of_memory, NULL, PyDoc_STR("name of the elements' type"), "dtype"},
    {"device", get_of_memory, NULL, PyDoc_STR("CUDA ordinal of the device whose memory it is in"),
     "device"},
    {"stream", get_of_memory, NULL,
     PyDoc_STR("handle of the stream that its elements are written on"), "stream"},
    {"memory", get_memory, NULL, PyDoc_STR("as the core takes it"), NULL},
    {"__cuda_array_interface__", get_interface, NULL,
     PyDoc_STR("version 3; not for dtypes that NumPy lacks"), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A C-contiguous array in memory of gpureduce's own.\n\n"
                                  "Every library takes it over without a copy, by ``__dlpack__`` "
                                  "or, except for bfloat16, by\n"
                                  "``__cuda_array_interface__``. Its memory is freed with the last "
                                  "array that was made of it.")},
    {Py_tp_new, (void *)buffer_new},
    {Py_tp_dealloc, (void *)buffer_dealloc},
    {Py_tp_repr, (void *)buffer_repr},
    {Py_tp_methods, (void *)buffer_methods},
    {Py_tp_members, (void *)buffer_members},
    {Py_tp_getset, (void *)buffer_getters},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    .name = "gpureduce.DeviceBuffer",
    .basicsize = (int)sizeof(glue_device_buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = buffer_slots,
};

int glue_add_device_buffer(PyObject *module)
{
    glue_state *state = glue_state_of(module);

    state->device_buffer_type = PyType_FromModuleAndSpec(module, &buffer_spec, NULL);
    if (state->device_buffer_type == NULL) return -1;
    return PyModule_AddObjectRef(module, "DeviceBuffer", state->device_buffer_type);
}

/* ---------------------------------------------------------------- writing -------------------- */

/* fill_device(array, element as bytes, stream): writes the element to all of a C-contiguous
 * array, in order on the stream */
static PyObject *fill_device(PyObject *module, PyObject *arguments)
{
    const glue_state *state = glue_state_of(module);
    PyObject *object = NULL, *handle = NULL;
    const char *element = NULL;
    Py_ssize_t bytes = 0;
    uint64_t count = 1;
    void *stream = NULL;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "O!y#O", state->device_array_type, &object, &element, &bytes,
                          &handle))
        return NULL;
    if (glue_read_stream(state, handle, &stream) < 0) return NULL;
    glue_device_array *array = (glue_device_array *)object;
    if ((size_t)bytes != gpr_dtype_bytes(array->dtype) || !glue_is_compact(array) ||
        array->read_only) {
        PyErr_SetString(
            PyExc_ValueError,
            "only C-contiguous arrays that may be written are filled, with an element of "
            "theirs");
        return NULL;
    }
    for (int i = 0; i < array->ndim; i++) count *= (uint64_t)glue_shape_of(array)[i];
    Py_BEGIN_ALLOW_THREADS
    status = gpr_fill_device(array->device, array->data, array->dtype, element, count, stream);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    Py_RETURN_NONE;
}

/* queue_upload(array, source, stream): copies a buffer to a C-contiguous array, in order on the
 * stream; the buffer stays as it is until the stream has passed the copy */
static PyObject *queue_upload(PyObject *module, PyObject *arguments)
{
    const glue_state *state = glue_state_of(module);
    PyObject *object = NULL, *handle = NULL;
    Py_buffer source;
    uint64_t bytes = 0;
    void *stream = NULL;
    gpr_status status = GPR_OK;
    int failed = 1;

    if (!PyArg_ParseTuple(arguments, "O!y*O", state->device_array_type, &object, &source, &handle))
        return NULL;
    glue_device_array *array = (glue_device_array *)object;
    if (glue_read_stream(state, handle, &stream) < 0) goto done;
    bytes = gpr_dtype_bytes(array->dtype);
    for (int i = 0; i < array->ndim; i++) bytes *= (uint64_t)glue_shape_of(array)[i];
    if ((uint64_t)source.len != bytes || !glue_is_compact(array) || array->read_only) {
        PyErr_SetString(
            PyExc_ValueError,
            "only C-contiguous arrays that may be written are uploaded to, with as many bytes");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    status = gpr_queue_upload(array->device, array->data, source.buf, bytes, stream);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) glue_raise(state);
    failed = status != GPR_OK;
done:
    PyBuffer_Release(&source);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef glue_buffer_methods[] = {
    {"fill_device", fill_device, METH_VARARGS,
     PyDoc_STR("fill_device(array, element as bytes, stream)")},
    {"queue_upload", queue_upload, METH_VARARGS, PyDoc_STR("queue_upload(array, source, stream)")},
    {NULL, NULL, 0, NULL},
};
