/* Arrays by DLPack (https://dmlc.github.io/dlpack/latest/): capsules that a producer's __dlpack__
 * returns, the C exchange API on an array type, and capsules of our own.
 *
 * A capsule "dltensor_versioned" holds a DLManagedTensorVersioned, an older "dltensor" a
 * DLManagedTensor. Who takes the structure out renames the capsule to "used_..." and calls the
 * deleter, once, when it is done. */
#include "python/device_array.h"

static const char versioned_name[] = "dltensor_versioned";
static const char used_versioned_name[] = "used_dltensor_versioned";
static const char legacy_name[] = "dltensor";
static const char used_legacy_name[] = "used_dltensor";
static const char exchange_name[] = "dlpack_exchange_api";

/* ---------------------------------------------------------------- dtypes --------------------- */

static const DLDataType dlpack_dtypes[GPR_DTYPE_COUNT] = {
    [GPR_BOOL] = {kDLBool, 8, 1},
    [GPR_INT8] = {kDLInt, 8, 1},
    [GPR_INT16] = {kDLInt, 16, 1},
    [GPR_INT32] = {kDLInt, 32, 1},
    [GPR_INT64] = {kDLInt, 64, 1},
    [GPR_UINT8] = {kDLUInt, 8, 1},
    [GPR_UINT16] = {kDLUInt, 16, 1},
    [GPR_UINT32] = {kDLUInt, 32, 1},
    [GPR_UINT64] = {kDLUInt, 64, 1},
    [GPR_FLOAT16] = {kDLFloat, 16, 1},
    [GPR_BFLOAT16] = {kDLBfloat, 16, 1},
    [GPR_FLOAT32] = {kDLFloat, 32, 1},
    [GPR_FLOAT64] = {kDLFloat, 64, 1},
    [GPR_COMPLEX64] = {kDLComplex, 64, 1},
    [GPR_COMPLEX128] = {kDLComplex, 128, 1},
};

/* Raises the TypeError for elements that are not reduced, by the name that ml_dtypes and PyTorch
 * have for them. */
static int refuse_dtype(DLDataType dtype)
{
    enum { HAS_OWN_BITS = kDLFloat8_e3m4 }; /* names of the codes before leave out the bits */
    static const char *const names[] = {
        [kDLInt] = "int",
        [kDLUInt] = "uint",
        [kDLFloat] = "float",
        [kDLOpaqueHandle] = "opaque handle",
        [kDLBfloat] = "bfloat",
        [kDLComplex] = "complex",
        [kDLBool] = "bool",
        [kDLFloat8_e3m4] = "float8_e3m4",
        [kDLFloat8_e4m3] = "float8_e4m3",
        [kDLFloat8_e4m3b11fnuz] = "float8_e4m3b11fnuz",
        [kDLFloat8_e4m3fn] = "float8_e4m3fn",
        [kDLFloat8_e4m3fnuz] = "float8_e4m3fnuz",
        [kDLFloat8_e5m2] = "float8_e5m2",
        [kDLFloat8_e5m2fnuz] = "float8_e5m2fnuz",
        [kDLFloat8_e8m0fnu] = "float8_e8m0fnu",
        [kDLFloat6_e2m3fn] = "float6_e2m3fn",
        [kDLFloat6_e3m2fn] = "float6_e3m2fn",
        [kDLFloat4_e2m1fn] = "float4_e2m1fn",
    };
    const char *name = dtype.code < sizeof names / sizeof names[0] ? names[dtype.code] : "unknown";
    char bits[sizeof "255"] = "";

    if (dtype.code < HAS_OWN_BITS) snprintf(bits, sizeof bits, "%d", (int)dtype.bits);
    PyErr_Format(PyExc_TypeError,
                 "reducing a device array of dtype %s%s (DLPack's type code %d with %d bits and %d "
                 "lanes) is not supported: %s",
                 name, bits, (int)dtype.code, (int)dtype.bits, (int)dtype.lanes,
                 glue_supported_dtypes);
    return -1;
}

static int find_dlpack_dtype(DLDataType dtype, gpr_dtype *found)
{
    for (int i = 0; i < GPR_DTYPE_COUNT && dtype.lanes == 1; i++) {
        if (dlpack_dtypes[i].code != dtype.code || dlpack_dtypes[i].bits != dtype.bits) continue;
        *found = (gpr_dtype)i;
        return 0;
    }
    return refuse_dtype(dtype);
}

/* ---------------------------------------------------------------- tensors -------------------- */

static int check_dlpack_device(DLDevice device)
{
    if (device.device_type == kDLCUDA || device.device_type == kDLCUDAManaged) return 0;
    PyErr_Format(PyExc_BufferError,
                 "the array is not in the memory of a CUDA device: DLPack's device type is %d",
                 (int)device.device_type);
    return -1;
}

/* The array that a DLTensor describes; it owns nothing yet. */
static glue_device_array *read_tensor(const glue_state *state, const DLTensor *tensor)
{
    glue_device_array *array = NULL;

    if (check_dlpack_device(tensor->device) < 0 || glue_check_ndim(tensor->ndim) < 0) return NULL;
    if (tensor->ndim > 0 && tensor->shape == NULL) {
        PyErr_SetString(PyExc_BufferError, "the DLPack tensor has axes but no shape");
        return NULL;
    }
    array = glue_new_device_array(state, tensor->ndim);
    if (array == NULL) return NULL;
    if (find_dlpack_dtype(tensor->dtype, &array->dtype) < 0) goto fail;
    array->device = tensor->device.device_id;
    if (tensor->byte_offset > UINTPTR_MAX - (uintptr_t)tensor->data) {
        PyErr_SetString(PyExc_ValueError,
                        "the offset of the device array leads out of the address space");
        goto fail;
    }
    /* An address of the device: no object of this process whose pointers C adds to. */
    if (tensor->data != NULL)
        array->data = (void *)((uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset);
    if (array->ndim > 0)
        memcpy(glue_shape_of(array), tensor->shape, (size_t)array->ndim * sizeof(int64_t));
    if (tensor->strides == NULL) {
        if (glue_set_compact_strides(array) < 0) goto fail;
    } else {
        const int64_t bytes = (int64_t)gpr_dtype_bytes(array->dtype);
        for (int i = 0; i < array->ndim; i++) {
            if (__builtin_mul_overflow(tensor->strides[i], bytes, &glue_strides_of(array)[i])) {
                PyErr_Format(PyExc_ValueError,
                             "the stride of axis %d of the device array overflows", i);
                goto fail;
            }
        }
    }
    if (glue_check_layout(array) < 0) goto fail;
    return array;
fail:
    Py_DECREF(array);
    return NULL;
}

/* Takes a tensor over, also where it fails. */
static glue_device_array *take_versioned(const glue_state *state, DLManagedTensorVersioned *tensor)
{
    glue_device_array *array = NULL;

    if (tensor->version.major != DLPACK_MAJOR_VERSION) {
        PyErr_Format(PyExc_BufferError, "DLPack version %u is not supported, version %d is",
                     tensor->version.major, DLPACK_MAJOR_VERSION);
    } else {
        array = read_tensor(state, &tensor->dl_tensor);
    }
    if (array == NULL) {
        glue_return_tensors(tensor, NULL);
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
        glue_return_tensors(NULL, tensor);
    }
    return array;
}

/* The tensor of a capsule, whose consumer is the caller from now on. NULL with an exception. */
static void *consume(PyObject *capsule, int *is_versioned)
{
    const char *name = PyCapsule_GetName(capsule);
    void *tensor = NULL;

    if (name == NULL) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_ValueError, "a capsule of DLPack has a name");
        return NULL;
    }
    *is_versioned = strcmp(name, versioned_name) == 0;
    if (*is_versioned || strcmp(name, legacy_name) == 0) {
        tensor = PyCapsule_GetPointer(capsule, name);
        if (PyCapsule_SetName(capsule, *is_versioned ? used_versioned_name : used_legacy_name) < 0)
            return NULL;
        return tensor;
    }
    if (strcmp(name, used_versioned_name) == 0 || strcmp(name, used_legacy_name) == 0) {
        PyErr_SetString(
            PyExc_ValueError,
            "the DLPack capsule has been consumed already: get another one from the array");
    } else {
        PyErr_Format(PyExc_ValueError, "a capsule of DLPack is called '%s' or '%s', not '%s'",
                     versioned_name, legacy_name, name);
    }
    return NULL;
}

glue_device_array *glue_import_capsule(const glue_state *state, PyObject *capsule)
{
    glue_device_array *array = NULL;
    void *tensor = NULL;
    int is_versioned = 0;

    if (!PyCapsule_CheckExact(capsule)) {
        PyErr_Format(PyExc_TypeError, "__dlpack__ must return a capsule, not %s",
                     Py_TYPE(capsule)->tp_name);
        return NULL;
    }
    /* Threads that have the same capsule: one of them consumes it. */
    Py_BEGIN_CRITICAL_SECTION(capsule);
    tensor = consume(capsule, &is_versioned);
    Py_END_CRITICAL_SECTION();
    if (tensor == NULL) return NULL;
    array = is_versioned ? take_versioned(state, tensor) : take_legacy(state, tensor);
    if (array != NULL && glue_check_memory(state, array, 1) < 0) Py_CLEAR(array);
    return array;
}

/* import_dlpack(capsule, stream) -> DeviceArray; stream: the one that the producer made wait, or
 * None */
static PyObject *import_dlpack(PyObject *module, PyObject *arguments)
{
    const glue_state *state = glue_state_of(module);
    PyObject *capsule = NULL, *stream = NULL;
    glue_device_array *array = NULL;

    if (!PyArg_ParseTuple(arguments, "OO", &capsule, &stream)) return NULL;
    array = glue_import_capsule(state, capsule);
    if (array != NULL && glue_read_ready_stream(state, stream, array) < 0) Py_CLEAR(array);
    return (PyObject *)array;
}

/* ---------------------------------------------------------------- the exchange API ----------- */

static int is_whole(const DLPackExchangeAPI *api)
{
    return api->managed_tensor_allocator != NULL &&
           api->managed_tensor_from_py_object_no_sync != NULL &&
           api->managed_tensor_to_py_object_no_sync != NULL && api->current_work_stream != NULL;
}

enum { MOST_VERSIONS = 64 }; /* that a library offers at the same time */

/* The functions that the object's type offers; NULL without an exception if it offers none that
 * we understand. */
static const DLPackExchangeAPI *find_exchange_api(const glue_state *state, PyObject *object)
{
    PyObject *capsule = PyObject_GetAttr((PyObject *)Py_TYPE(object),
                                         state->names[GLUE_NAME___dlpack_c_exchange_api__]);
    const DLPackExchangeAPIHeader *api = NULL;

    if (capsule == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
        return NULL;
    }
    if (PyCapsule_IsValid(capsule, exchange_name))
        api = PyCapsule_GetPointer(capsule, exchange_name);
    /* the functions stay: they are the library's, for the life of the process */
    Py_DECREF(capsule);
    for (int i = 0; i < MOST_VERSIONS && api != NULL; i++) { /* or the versions go in a circle */
        if (api->version.major <= DLPACK_MAJOR_VERSION) break;
        api = api->prev_api;
    }
    if (api == NULL || api->version.major != DLPACK_MAJOR_VERSION) return NULL;
    return is_whole((const DLPackExchangeAPI *)api) ? (const DLPackExchangeAPI *)api : NULL;
}

int glue_offers_exchange(const glue_state *state, PyObject *object)
{
    const int found = find_exchange_api(state, object) != NULL;

    return PyErr_Occurred() != NULL ? -1 : found;
}

/* The functions set an exception when they fail; one that forgets is not to become a
 * SystemError. */
static int check_exchange(int result, const char *what)
{
    if (result == 0) return 0;
    if (PyErr_Occurred() == NULL)
        PyErr_Format(PyExc_BufferError, "the array's library gave no reason why it does not %s",
                     what);
    return -1;
}

/* As above, for a function that returns an object: NULL is a failure, too. */
static int check_given(int result, const void *given, const char *what)
{
    return check_exchange(result == 0 && given == NULL ? -1 : result, what);
}

static glue_device_array *exchange(const glue_state *state, const DLPackExchangeAPI *api,
                                   PyObject *object)
{
    DLTensor tensor = {.data = NULL};
    DLManagedTensorVersioned *managed = NULL;
    glue_device_array *array = NULL;

    if (api->dltensor_from_py_object_no_sync == NULL) {
        const int result = api->managed_tensor_from_py_object_no_sync(object, &managed);

        if (check_given(result, managed, "lend the array") < 0) return NULL;
        return take_versioned(state, managed);
    }
    if (check_exchange(api->dltensor_from_py_object_no_sync(object, &tensor), "show the array") < 0)
        return NULL;
    array = read_tensor(state, &tensor);
    if (array != NULL) array->owner = Py_NewRef(object);
    return array;
}

glue_device_array *glue_import_exchange(const glue_state *state, PyObject *object)
{
    const DLPackExchangeAPI *api = find_exchange_api(state, object);
    glue_device_array *array = NULL;
    void *stream = NULL;

    if (api == NULL) return NULL;
    array = exchange(state, api, object);
    if (array == NULL) return NULL;
    if (check_exchange(api->current_work_stream(kDLCUDA, array->device, &stream),
                       "name its stream") < 0) {
        Py_DECREF(array);
        return NULL;
    }
    array->has_stream = 1;
    array->stream = glue_name_stream(stream);
    return array;
}

/* import_exchange(object) -> DeviceArray with the library's current stream, or None if its type
 * has no such API */
static PyObject *import_exchange(PyObject *module, PyObject *object)
{
    glue_device_array *array = glue_import_exchange(glue_state_of(module), object);

    if (array == NULL && PyErr_Occurred() == NULL) Py_RETURN_NONE;
    return (PyObject *)array;
}

static void raise_allocation_error(void *context, const char *kind, const char *message)
{
    (void)context;
    if (PyErr_Occurred() == NULL) PyErr_Format(PyExc_MemoryError, "%s: %s", kind, message);
}

PyObject *glue_make_exchange(const glue_state *state, PyObject *object, PyObject *shape,
                             gpr_dtype dtype, int device)
{
    const DLPackExchangeAPI *api = find_exchange_api(state, object);
    DLManagedTensorVersioned *made = NULL;
    int64_t extents[GPR_MAX_NDIM];
    DLTensor prototype = {.shape = extents,
                          .dtype = dlpack_dtypes[dtype],
                          .device = {.device_type = kDLCUDA, .device_id = device}};
    void *result = NULL;
    int status;

    if (api == NULL) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_TypeError, "the object's type has no DLPack C exchange API");
        return NULL;
    }
    prototype.ndim = glue_read_integers(shape, "shape", extents);
    if (prototype.ndim < 0) return NULL;
    status = api->managed_tensor_allocator(&prototype, &made, NULL, raise_allocation_error);
    if (status != 0 || made == NULL) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_MemoryError, "the array's library could not make another");
        return NULL;
    }
    status = api->managed_tensor_to_py_object_no_sync(made, &result);
    if (check_given(status, result, "take an array over") < 0) return NULL;
    return result;
}

/* empty_like(object, shape, dtype, device) -> an array of the object's library, made by its
 * exchange API */
static PyObject *empty_like(PyObject *module, PyObject *arguments)
{
    PyObject *object = NULL, *shape = NULL, *name = NULL;
    gpr_dtype dtype = GPR_BOOL;
    int device = 0;

    if (!PyArg_ParseTuple(arguments, "OOUi", &object, &shape, &name, &device)) return NULL;
    if (glue_read_dtype_name(name, &dtype) < 0) return NULL;
    return glue_make_exchange(glue_state_of(module), object, shape, dtype, device);
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
                         .dtype = dlpack_dtypes[array->dtype],
                         .shape = lent->dims,
                         .strides = lent->dims + array->ndim};
}

PyObject *glue_export_capsule(glue_device_array *array, int versioned)
{
    PyObject *capsule = NULL;
    lent_tensor *lent = NULL;

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
    capsule =
        PyCapsule_New(&lent->managed, versioned ? versioned_name : legacy_name, destroy_capsule);
    if (capsule == NULL) {
        free(lent);
        return NULL;
    }
    lent->array = Py_NewRef((PyObject *)array);
    return capsule;
}

/* export_dlpack(array, versioned) -> capsule */
static PyObject *export_dlpack(PyObject *module, PyObject *arguments)
{
    PyObject *array = NULL;
    int versioned = 0;

    if (!PyArg_ParseTuple(arguments, "O!p", glue_state_of(module)->device_array_type, &array,
                          &versioned))
        return NULL;
    return glue_export_capsule((glue_device_array *)array, versioned);
}

PyMethodDef glue_dlpack_methods[] = {
    {"export_dlpack", export_dlpack, METH_VARARGS,
     PyDoc_STR("export_dlpack(array, versioned) -> capsule")},
    {"import_dlpack", import_dlpack, METH_VARARGS,
     PyDoc_STR("import_dlpack(capsule, stream) -> DeviceArray")},
    {"import_exchange", import_exchange, METH_O,
     PyDoc_STR("import_exchange(object) -> DeviceArray, or None if its type has no DLPack C "
               "exchange API")},
    {"empty_like", empty_like, METH_VARARGS,
     PyDoc_STR(
         "empty_like(object, shape, dtype, device) -> array, by the type's DLPack C exchange API")},
    {NULL, NULL, 0, NULL},
};
