/* Importing arrays from the memory of CUDA devices: by DLPack capsules, by DLPack's C exchange API, by the CUDA array interface, or
 * by what an array says of itself. Nothing is copied and no stream waits for another: that is the caller's part.
 *
 * Whatever is wrong with what a producer says is an exception, and what was taken from it is given back. */
#include "python/device_array.h"

#include <structmember.h>

static const char versioned_name[] = "dltensor_versioned";
static const char used_versioned_name[] = "used_dltensor_versioned";
static const char legacy_name[] = "dltensor";
static const char used_legacy_name[] = "used_dltensor";
static const char exchange_name[] = "dlpack_exchange_api";

/* CUDA's number of the default stream of old, where a library says 0 for it. */
static void *const legacy_stream = (void *)1;

/* ---------------------------------------------------------------- the type ------------------- */

/* Gives tensors back. A deleter is the producer's code: an exception that is under way is none of its business. */
static void give_back(DLManagedTensorVersioned *versioned, DLManagedTensor *legacy)
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

    give_back(array->versioned, array->legacy);
    Py_XDECREF(array->owner);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *tuple_of(const int64_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);

    for (int i = 0; i < count && tuple != NULL; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

static PyObject *get_shape(PyObject *self, void *closure)
{
    glue_device_array *array = (glue_device_array *)self;

    (void)closure;
    return tuple_of(glue_shape_of(array), array->ndim);
}

static PyObject *get_strides(PyObject *self, void *closure)
{
    glue_device_array *array = (glue_device_array *)self;

    (void)closure;
    return tuple_of(glue_strides_of(array), array->ndim);
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
    {"read_only", T_INT, offsetof(glue_device_array, read_only), READONLY, PyDoc_STR("not 0: not to be written")},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef device_array_getters[] = {
    {"shape", get_shape, NULL, PyDoc_STR("extents"), NULL},
    {"strides", get_strides, NULL, PyDoc_STR("steps in bytes"), NULL},
    {"dtype", get_dtype, NULL, PyDoc_STR("name of the elements' type"), NULL},
    {"pointer", get_pointer, NULL, PyDoc_STR("address of the first element"), NULL},
    {"stream", get_stream, NULL, PyDoc_STR("the producer's stream as a handle; None: it named none"), NULL},
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
    state->exchange_attribute = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    if (state->exchange_attribute == NULL) return -1;
    return PyModule_AddObjectRef(module, "DeviceArray", state->device_array_type);
}

static glue_device_array *new_device_array(const glue_state *state, int ndim)
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

static int check_ndim(long long ndim)
{
    if (ndim >= 0 && ndim <= GPR_MAX_NDIM) return 0;
    PyErr_Format(PyExc_ValueError, "a device array has 0 to %d axes, not %lld", GPR_MAX_NDIM, ndim);
    return -1;
}

/* Fills in the steps of a C-contiguous array. */
static int set_compact_strides(glue_device_array *array)
{
    int64_t step = (int64_t)gpr_dtype_bytes(array->dtype);

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

/* What every way of importing checks in the end. */
static int check_layout(glue_device_array *array)
{
    for (int i = 0; i < array->ndim; i++) {
        if (glue_shape_of(array)[i] >= 0) continue;
        PyErr_Format(PyExc_ValueError, "axis %d of the device array has the negative extent %lld", i,
                     (long long)glue_shape_of(array)[i]);
        return -1;
    }
    if (array->data == NULL && has_elements(array)) {
        PyErr_SetString(PyExc_ValueError, "the device array has elements but no memory: its pointer is NULL");
        return -1;
    }
    if (array->device < 0) {
        PyErr_Format(PyExc_ValueError, "the device array is on device %d, which cannot be", array->device);
        return -1;
    }
    return 0;
}

/* Asks the driver whose memory it is; what a producer says of it has to agree. */
static int check_memory(const glue_state *state, glue_device_array *array, int says_device)
{
    int device = 0;

    if (!has_elements(array)) return 0;
    if (gpr_find_memory(array->data, &device) != GPR_OK) {
        (void)glue_raise(state);
        return -1;
    }
    if (says_device && device != array->device) {
        PyErr_Format(PyExc_ValueError, "the array says that it is on device \"cuda:%d\", its memory is on \"cuda:%d\"",
                     array->device, device);
        return -1;
    }
    array->device = device;
    return 0;
}

/* ---------------------------------------------------------------- DLPack --------------------- */

static int find_dlpack_dtype(DLDataType dtype, gpr_dtype *found)
{
    static const struct {
        uint8_t code, bits;
        gpr_dtype dtype;
    } known[] = {
        {kDLBool, 8, GPR_BOOL},      {kDLInt, 8, GPR_INT8},           {kDLInt, 16, GPR_INT16},
        {kDLInt, 32, GPR_INT32},     {kDLInt, 64, GPR_INT64},         {kDLUInt, 8, GPR_UINT8},
        {kDLUInt, 16, GPR_UINT16},   {kDLUInt, 32, GPR_UINT32},       {kDLUInt, 64, GPR_UINT64},
        {kDLFloat, 16, GPR_FLOAT16}, {kDLBfloat, 16, GPR_BFLOAT16},   {kDLFloat, 32, GPR_FLOAT32},
        {kDLFloat, 64, GPR_FLOAT64}, {kDLComplex, 64, GPR_COMPLEX64}, {kDLComplex, 128, GPR_COMPLEX128},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0] && dtype.lanes == 1; i++) {
        if (known[i].code != dtype.code || known[i].bits != dtype.bits) continue;
        *found = known[i].dtype;
        return 0;
    }
    PyErr_Format(PyExc_TypeError,
                 "reducing a device array of DLPack's type code %d with %d bits and %d lanes is not supported: bool, "
                 "integers, float16, bfloat16, float32, float64, complex64 and complex128 are",
                 (int)dtype.code, (int)dtype.bits, (int)dtype.lanes);
    return -1;
}

static int check_dlpack_device(DLDevice device)
{
    if (device.device_type == kDLCUDA || device.device_type == kDLCUDAManaged) return 0;
    PyErr_Format(PyExc_BufferError, "the array is not in the memory of a CUDA device: DLPack's device type is %d",
                 (int)device.device_type);
    return -1;
}

/* The array that a DLTensor describes; it owns nothing yet. */
static glue_device_array *read_tensor(const glue_state *state, const DLTensor *tensor)
{
    glue_device_array *array = NULL;

    if (check_dlpack_device(tensor->device) < 0 || check_ndim(tensor->ndim) < 0) return NULL;
    if (tensor->ndim > 0 && tensor->shape == NULL) {
        PyErr_SetString(PyExc_BufferError, "the DLPack tensor has axes but no shape");
        return NULL;
    }
    array = new_device_array(state, tensor->ndim);
    if (array == NULL) return NULL;
    if (find_dlpack_dtype(tensor->dtype, &array->dtype) < 0) goto fail;
    array->device = tensor->device.device_id;
    array->data = tensor->data != NULL ? (char *)tensor->data + tensor->byte_offset : NULL;
    memcpy(glue_shape_of(array), tensor->shape, (size_t)array->ndim * sizeof(int64_t));
    if (tensor->strides == NULL) {
        if (set_compact_strides(array) < 0) goto fail;
    } else {
        const int64_t bytes = (int64_t)gpr_dtype_bytes(array->dtype);
        for (int i = 0; i < array->ndim; i++) {
            if (__builtin_mul_overflow(tensor->strides[i], bytes, &glue_strides_of(array)[i])) {
                PyErr_Format(PyExc_ValueError, "the stride of axis %d of the device array overflows", i);
                goto fail;
            }
        }
    }
    if (check_layout(array) < 0) goto fail;
    return array;
fail:
    Py_DECREF(array);
    return NULL;
}

/* Takes a tensor over, whatever comes of it. */
static glue_device_array *take_versioned(const glue_state *state, DLManagedTensorVersioned *tensor)
{
    glue_device_array *array = NULL;

    if (tensor->version.major != DLPACK_MAJOR_VERSION) {
        PyErr_Format(PyExc_BufferError, "DLPack version %u is not supported, version %d is", tensor->version.major,
                     DLPACK_MAJOR_VERSION);
    } else {
        array = read_tensor(state, &tensor->dl_tensor);
    }
    if (array == NULL) {
        give_back(tensor, NULL);
        return NULL;
    }
    array->versioned = tensor;
    array->read_only = (tensor->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    return array;
}

static glue_device_array *take_legacy(const glue_state *state, DLManagedTensor *tensor)
{
    glue_device_array *array = read_tensor(state, &tensor->dl_tensor);

    if (array != NULL) {
        array->legacy = tensor;
    } else {
        give_back(NULL, tensor);
    }
    return array;
}

/* The stream that an array is ready on; 0 is what libraries call the default stream of old, None is none. */
static int read_stream(PyObject *object, glue_device_array *array)
{
    if (object == Py_None) return 0;
    if (glue_read_stream(object, &array->stream) < 0) return -1;
    if (array->stream == NULL) array->stream = legacy_stream;
    array->has_stream = 1;
    return 0;
}

/* import_dlpack(capsule, stream) -> DeviceArray; stream: what the producer was asked to make it ready on */
static PyObject *import_dlpack(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    const glue_state *state = glue_state_of(module);
    PyObject *capsule = count == 2 ? arguments[0] : Py_None;
    const char *name = PyCapsule_CheckExact(capsule) ? PyCapsule_GetName(capsule) : NULL;
    glue_device_array *array = NULL;

    if (name == NULL) {
        if (PyErr_Occurred() != NULL) return NULL;
        PyErr_Format(PyExc_TypeError, "__dlpack__ must return a capsule, not %s", Py_TYPE(capsule)->tp_name);
        return NULL;
    }
    if (strcmp(name, versioned_name) == 0) {
        void *tensor = PyCapsule_GetPointer(capsule, versioned_name);
        if (tensor == NULL || PyCapsule_SetName(capsule, used_versioned_name) < 0) return NULL;
        array = take_versioned(state, tensor);
    } else if (strcmp(name, legacy_name) == 0) {
        void *tensor = PyCapsule_GetPointer(capsule, legacy_name);
        if (tensor == NULL || PyCapsule_SetName(capsule, used_legacy_name) < 0) return NULL;
        array = take_legacy(state, tensor);
    } else if (strcmp(name, used_versioned_name) == 0 || strcmp(name, used_legacy_name) == 0) {
        PyErr_SetString(PyExc_ValueError, "the DLPack capsule has been consumed already: ask the array for another");
    } else {
        PyErr_Format(PyExc_ValueError, "a capsule of DLPack is called '%s' or '%s', not '%s'", versioned_name,
                     legacy_name, name);
    }
    if (array != NULL && (check_memory(state, array, 1) < 0 || read_stream(arguments[1], array) < 0)) Py_CLEAR(array);
    return (PyObject *)array;
}

/* ---------------------------------------------------------------- the exchange API ----------- */

/* The functions that the object's type offers; NULL without an exception if it offers none that we understand. */
static const DLPackExchangeAPI *find_exchange_api(const glue_state *state, PyObject *object)
{
    PyObject *capsule = PyObject_GetAttr((PyObject *)Py_TYPE(object), state->exchange_attribute);
    const DLPackExchangeAPIHeader *api = NULL;

    if (capsule == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
        return NULL;
    }
    if (PyCapsule_IsValid(capsule, exchange_name)) api = PyCapsule_GetPointer(capsule, exchange_name);
    Py_DECREF(capsule); /* the functions stay: they are the library's, for the life of the process */
    while (api != NULL && api->version.major > DLPACK_MAJOR_VERSION) api = api->prev_api;
    return api != NULL && api->version.major == DLPACK_MAJOR_VERSION ? (const DLPackExchangeAPI *)api : NULL;
}

/* The functions set an exception when they fail; one that forgets is not to become a SystemError. */
static int check_exchange(int result, const char *what)
{
    if (result == 0) return 0;
    if (PyErr_Occurred() == NULL)
        PyErr_Format(PyExc_BufferError, "the array's library did not say why it does not %s", what);
    return -1;
}

static glue_device_array *exchange(const glue_state *state, const DLPackExchangeAPI *api, PyObject *object)
{
    DLTensor tensor = {.data = NULL};
    DLManagedTensorVersioned *managed = NULL;
    glue_device_array *array = NULL;

    if (api->dltensor_from_py_object_no_sync == NULL) {
        if (check_exchange(api->managed_tensor_from_py_object_no_sync(object, &managed), "lend the array") < 0)
            return NULL;
        return take_versioned(state, managed);
    }
    if (check_exchange(api->dltensor_from_py_object_no_sync(object, &tensor), "show the array") < 0) return NULL;
    array = read_tensor(state, &tensor);
    if (array != NULL) array->owner = Py_NewRef(object);
    return array;
}

glue_device_array *glue_exchange(const glue_state *state, PyObject *object)
{
    const DLPackExchangeAPI *api = find_exchange_api(state, object);
    glue_device_array *array = NULL;
    void *stream = NULL;

    if (api == NULL) return NULL;
    array = exchange(state, api, object);
    if (array == NULL) return NULL;
    if (check_exchange(api->current_work_stream(kDLCUDA, array->device, &stream), "name its stream") < 0) {
        Py_DECREF(array);
        return NULL;
    }
    array->has_stream = 1;
    array->stream = stream != NULL ? stream : legacy_stream;
    return array;
}

/* import_exchange(object) -> DeviceArray with the library's current stream, or None if its type has no such API */
static PyObject *import_exchange(PyObject *module, PyObject *object)
{
    glue_device_array *array = glue_exchange(glue_state_of(module), object);

    if (array == NULL && PyErr_Occurred() == NULL) Py_RETURN_NONE;
    return (PyObject *)array;
}

static void raise_allocation_error(void *context, const char *kind, const char *message)
{
    (void)context;
    if (PyErr_Occurred() == NULL) PyErr_Format(PyExc_MemoryError, "%s: %s", kind, message);
}

static DLDataType dlpack_dtype(gpr_dtype dtype)
{
    const uint8_t bits = (uint8_t)(8 * gpr_dtype_bytes(dtype));
    const uint8_t code = dtype == GPR_BOOL                                   ? kDLBool
                         : dtype == GPR_BFLOAT16                             ? kDLBfloat
                         : dtype >= GPR_INT8 && dtype <= GPR_INT64           ? kDLInt
                         : dtype >= GPR_UINT8 && dtype <= GPR_UINT64         ? kDLUInt
                         : dtype == GPR_COMPLEX64 || dtype == GPR_COMPLEX128 ? kDLComplex
                                                                             : kDLFloat;

    return (DLDataType){.code = code, .bits = bits, .lanes = 1};
}

static int read_dtype(PyObject *name, gpr_dtype *dtype)
{
    const char *text = PyUnicode_AsUTF8(name);

    if (text == NULL) return -1;
    *dtype = gpr_find_dtype(text);
    if (*dtype != GPR_DTYPE_DEFAULT) return 0;
    PyErr_Format(PyExc_ValueError, "there is no dtype '%s'", text);
    return -1;
}

/* A tuple of integers; returns how many, -1 with an exception. */
static int read_integers(PyObject *tuple, const char *what, int64_t *numbers)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple of integers, not %s", what, Py_TYPE(tuple)->tp_name);
        return -1;
    }
    if (check_ndim(PyTuple_GET_SIZE(tuple)) < 0) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
        if (numbers[i] == -1 && PyErr_Occurred() != NULL) return -1;
    }
    return (int)PyTuple_GET_SIZE(tuple);
}

/* empty_like(object, shape, dtype, device) -> an array of the object's library, made by its exchange API */
static PyObject *empty_like(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    enum { OBJECT, SHAPE, DTYPE, DEVICE, ARGUMENT_COUNT };
    const glue_state *state = glue_state_of(module);
    const DLPackExchangeAPI *api = NULL;
    DLManagedTensorVersioned *made = NULL;
    int64_t shape[GPR_MAX_NDIM];
    DLTensor prototype = {.shape = shape, .device = {.device_type = kDLCUDA}};
    gpr_dtype dtype = GPR_BOOL;
    void *result = NULL;

    if (count != ARGUMENT_COUNT) {
        PyErr_SetString(PyExc_TypeError, "empty_like takes an object, a shape, a dtype's name and a device");
        return NULL;
    }
    api = find_exchange_api(state, arguments[OBJECT]);
    if (api == NULL) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_TypeError, "the object's type has no DLPack C exchange API");
        return NULL;
    }
    prototype.ndim = read_integers(arguments[SHAPE], "shape", shape);
    if (prototype.ndim < 0 || read_dtype(arguments[DTYPE], &dtype) < 0) return NULL;
    prototype.dtype = dlpack_dtype(dtype);
    prototype.device.device_id = (int32_t)PyLong_AsLong(arguments[DEVICE]);
    if (PyErr_Occurred() != NULL) return NULL;
    if (api->managed_tensor_allocator(&prototype, &made, NULL, raise_allocation_error) != 0) {
        if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_MemoryError, "the array's library could not make another");
        return NULL;
    }
    if (check_exchange(api->managed_tensor_to_py_object_no_sync(made, &result), "take an array over") < 0) return NULL;
    return result;
}

/* ---------------------------------------------------------------- the CUDA array interface --- */

/* An entry of the interface: borrowed; NULL if it is not there or None, an exception only if it is `needed`. */
static PyObject *get_entry(PyObject *interface, const char *key, int needed)
{
    PyObject *value = PyDict_GetItemString(interface, key);

    if (value == Py_None) value = NULL;
    if (value == NULL && needed)
        PyErr_Format(PyExc_ValueError, "the CUDA array interface of the array has no '%s'", key);
    return value;
}

static int read_typestr(PyObject *interface, gpr_dtype *dtype)
{
    PyObject *text = get_entry(interface, "typestr", 1);
    PyArray_Descr *descr = NULL;
    int failed = 1;

    if (text == NULL || PyArray_DescrConverter(text, &descr) == NPY_FAIL) return -1;
    if (PyDataType_ISBYTESWAPPED(descr)) {
        PyErr_Format(PyExc_TypeError, "device arrays in another byte order (%R) are not supported", text);
    } else {
        failed = glue_find_dtype(descr, "reducing a device array of dtype", dtype) < 0;
    }
    Py_DECREF(descr);
    return failed ? -1 : 0;
}

static int read_pointer(PyObject *interface, glue_device_array *array)
{
    PyObject *data = get_entry(interface, "data", 1);

    if (data == NULL) return -1;
    if (!PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2 || !PyLong_Check(PyTuple_GET_ITEM(data, 0))) {
        PyErr_SetString(PyExc_ValueError,
                        "'data' of a CUDA array interface must be a tuple of an address and whether it is read-only");
        return -1;
    }
    array->data = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
    if (array->data == NULL && PyErr_Occurred() != NULL) return -1;
    array->read_only = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
    return array->read_only < 0 ? -1 : 0;
}

static int read_interface_strides(PyObject *interface, glue_device_array *array)
{
    int64_t strides[GPR_MAX_NDIM];
    PyObject *entry = get_entry(interface, "strides", 0);

    if (entry == NULL) return set_compact_strides(array);
    const int count = read_integers(entry, "'strides' of a CUDA array interface", strides);
    if (count < 0) return -1;
    if (count != array->ndim) {
        PyErr_Format(PyExc_ValueError, "the CUDA array interface has %d strides for %d axes", count, array->ndim);
        return -1;
    }
    memcpy(glue_strides_of(array), strides, (size_t)count * sizeof *strides);
    return 0;
}

/* Version 3 names the stream that the array is ready on; version 2 has none, and what it shows is ready. */
static int read_interface_stream(PyObject *interface, glue_device_array *array)
{
    enum { WITHOUT_STREAM = 2, WITH_STREAM = 3 };
    PyObject *version = get_entry(interface, "version", 1), *stream = NULL;
    const long number = version != NULL ? PyLong_AsLong(version) : -1;

    if (PyErr_Occurred() != NULL) return -1;
    if (number != WITHOUT_STREAM && number != WITH_STREAM) {
        PyErr_Format(PyExc_ValueError, "version %ld of the CUDA array interface is not supported: 2 and 3 are", number);
        return -1;
    }
    stream = number == WITH_STREAM ? get_entry(interface, "stream", 0) : NULL;
    if (stream == NULL) return 0;
    if (glue_read_stream(stream, &array->stream) < 0) return -1;
    if (array->stream == NULL) {
        PyErr_SetString(PyExc_ValueError, "stream 0 of a CUDA array interface is ambiguous, and not allowed: 1 is the "
                                          "legacy default stream, 2 the thread's");
        return -1;
    }
    array->has_stream = 1;
    return 0;
}

/* import_cai(interface, owner, stream) -> DeviceArray on the device that its memory is on; stream: if the interface names none */
static PyObject *import_cai(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    const glue_state *state = glue_state_of(module);
    int64_t shape[GPR_MAX_NDIM];
    PyObject *interface = count == 3 ? arguments[0] : NULL, *entry = NULL;
    glue_device_array *array = NULL;

    if (interface == NULL || !PyDict_Check(interface)) {
        PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ must be a dictionary");
        return NULL;
    }
    if (get_entry(interface, "mask", 0) != NULL) {
        PyErr_SetString(PyExc_TypeError, "masked device arrays are not supported: pass the mask as where=");
        return NULL;
    }
    entry = get_entry(interface, "shape", 1);
    const int ndim = entry != NULL ? read_integers(entry, "'shape' of a CUDA array interface", shape) : -1;
    if (ndim < 0) return NULL;
    array = new_device_array(state, ndim);
    if (array == NULL) return NULL;
    memcpy(glue_shape_of(array), shape, (size_t)ndim * sizeof *shape);
    if (read_typestr(interface, &array->dtype) < 0 || read_pointer(interface, array) < 0) goto fail;
    if (read_interface_strides(interface, array) < 0 || read_interface_stream(interface, array) < 0) goto fail;
    if (!array->has_stream && read_stream(arguments[2], array) < 0) goto fail;
    if (check_layout(array) < 0 || check_memory(state, array, 0) < 0) goto fail;
    array->owner = Py_NewRef(arguments[1]);
    return (PyObject *)array;
fail:
    Py_DECREF(array);
    return NULL;
}

/* ---------------------------------------------------------------- by hand -------------------- */

glue_device_array *glue_describe_array(const glue_state *state, PyObject *const *arguments)
{
    enum { POINTER, SHAPE, STRIDES, DTYPE, DEVICE, STREAM, OWNER };
    int64_t shape[GPR_MAX_NDIM], strides[GPR_MAX_NDIM];
    glue_device_array *array = NULL;

    const int ndim = read_integers(arguments[SHAPE], "shape", shape);
    if (ndim < 0) return NULL;
    array = new_device_array(state, ndim);
    if (array == NULL) return NULL;
    memcpy(glue_shape_of(array), shape, (size_t)ndim * sizeof *shape);
    array->data = PyLong_AsVoidPtr(arguments[POINTER]);
    if (array->data == NULL && PyErr_Occurred() != NULL) goto fail;
    array->device = (int)PyLong_AsLong(arguments[DEVICE]);
    if (PyErr_Occurred() != NULL) goto fail;
    if (PyUnicode_Check(arguments[DTYPE])) {
        if (read_dtype(arguments[DTYPE], &array->dtype) < 0) goto fail;
    } else {
        if (!PyArray_DescrCheck(arguments[DTYPE]) || PyDataType_ISBYTESWAPPED((PyArray_Descr *)arguments[DTYPE])) {
            PyErr_Format(PyExc_TypeError, "reducing a device array of dtype %S is not supported", arguments[DTYPE]);
            goto fail;
        }
        if (glue_find_dtype((PyArray_Descr *)arguments[DTYPE], "reducing a device array of dtype", &array->dtype) < 0)
            goto fail;
    }
    if (arguments[STRIDES] == Py_None) {
        if (set_compact_strides(array) < 0) goto fail;
    } else {
        if (read_integers(arguments[STRIDES], "strides", strides) != ndim) {
            if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_ValueError, "there must be a stride for each axis");
            goto fail;
        }
        memcpy(glue_strides_of(array), strides, (size_t)ndim * sizeof *strides);
    }
    if (read_stream(arguments[STREAM], array) < 0 || check_layout(array) < 0) goto fail;
    array->owner = Py_NewRef(arguments[OWNER]);
    return array;
fail:
    Py_DECREF(array);
    return NULL;
}

/* device_array(pointer, shape, strides, dtype, device, stream, owner) -> DeviceArray of memory that a library vouches for. */
static PyObject *device_array(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != GLUE_DESCRIPTION_COUNT) {
        PyErr_SetString(PyExc_TypeError, "device_array takes seven arguments");
        return NULL;
    }
    return (PyObject *)glue_describe_array(glue_state_of(module), arguments);
}

/* ---------------------------------------------------------------- exporting ------------------ */

/* A tensor that we lend: the structure, and the shape and strides that it points to. */
typedef struct lent_tensor {
    union {
        DLManagedTensorVersioned versioned;
        DLManagedTensor legacy;
    } managed;
    PyObject *array; /* the DeviceArray that is lent */
    int64_t dims[];
} lent_tensor;

/* Called by the consumer, wherever it is. */
static void return_lent(lent_tensor *lent)
{
    if (Py_IsInitialized()) { /* after the interpreter's end its objects are nobody's */
        const PyGILState_STATE gil = PyGILState_Ensure();
        Py_DECREF(lent->array);
        PyGILState_Release(gil);
    }
    free(lent);
}

static void delete_versioned(DLManagedTensorVersioned *tensor)
{
    return_lent(tensor->manager_ctx);
}

static void delete_legacy(DLManagedTensor *tensor)
{
    return_lent(tensor->manager_ctx);
}

/* A capsule that nobody consumed gives the tensor back itself. */
static void destroy_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, versioned_name)) {
        delete_versioned(PyCapsule_GetPointer(capsule, versioned_name));
    } else if (PyCapsule_IsValid(capsule, legacy_name)) {
        delete_legacy(PyCapsule_GetPointer(capsule, legacy_name));
    }
}

static void describe(glue_device_array *array, lent_tensor *lent, DLTensor *tensor)
{
    const int64_t bytes = (int64_t)gpr_dtype_bytes(array->dtype);

    for (int i = 0; i < array->ndim; i++) {
        lent->dims[i] = glue_shape_of(array)[i];
        lent->dims[array->ndim + i] = glue_strides_of(array)[i] / bytes;
    }
    *tensor = (DLTensor){.data = array->data,
                         .device = {.device_type = kDLCUDA, .device_id = array->device},
                         .ndim = array->ndim,
                         .dtype = dlpack_dtype(array->dtype),
                         .shape = lent->dims,
                         .strides = lent->dims + array->ndim};
}

/* export_dlpack(array, versioned) -> capsule */
static PyObject *export_dlpack(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    const glue_state *state = glue_state_of(module);
    PyObject *capsule = NULL;
    lent_tensor *lent = NULL;

    if (count != 2 || !glue_is_device_array(state, arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "export_dlpack takes a DeviceArray and a bool");
        return NULL;
    }
    const int versioned = PyObject_IsTrue(arguments[1]);
    if (versioned < 0) return NULL;
    glue_device_array *array = (glue_device_array *)arguments[0];
    lent = calloc(1, sizeof *lent + 2 * (size_t)array->ndim * sizeof lent->dims[0]);
    if (lent == NULL) return PyErr_NoMemory();
    if (versioned) {
        DLManagedTensorVersioned *tensor = &lent->managed.versioned;
        describe(array, lent, &tensor->dl_tensor);
        tensor->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
        tensor->manager_ctx = lent;
        tensor->deleter = delete_versioned;
    } else {
        DLManagedTensor *tensor = &lent->managed.legacy;
        describe(array, lent, &tensor->dl_tensor);
        tensor->manager_ctx = lent;
        tensor->deleter = delete_legacy;
    }
    capsule = PyCapsule_New(&lent->managed, versioned ? versioned_name : legacy_name, destroy_capsule);
    if (capsule == NULL) {
        free(lent);
        return NULL;
    }
    lent->array = Py_NewRef(arguments[0]);
    return capsule;
}

PyMethodDef glue_import_methods[] = {
    {"import_dlpack", (PyCFunction)(void (*)(void))import_dlpack, METH_FASTCALL,
     PyDoc_STR("import_dlpack(capsule, stream) -> DeviceArray")},
    {"import_exchange", import_exchange, METH_O,
     PyDoc_STR("import_exchange(object) -> DeviceArray, or None if its type has no DLPack C exchange API")},
    {"import_cai", (PyCFunction)(void (*)(void))import_cai, METH_FASTCALL,
     PyDoc_STR("import_cai(interface, owner, stream) -> DeviceArray")},
    {"device_array", (PyCFunction)(void (*)(void))device_array, METH_FASTCALL,
     PyDoc_STR("device_array(pointer, shape, strides, dtype, device, stream, owner) -> DeviceArray")},
    {"empty_like", (PyCFunction)(void (*)(void))empty_like, METH_FASTCALL,
     PyDoc_STR("empty_like(object, shape, dtype, device) -> array, by the type's DLPack C exchange API")},
    {"export_dlpack", (PyCFunction)(void (*)(void))export_dlpack, METH_FASTCALL,
     PyDoc_STR("export_dlpack(array, versioned) -> capsule")},
    {NULL, NULL, 0, NULL},
};
