/* The ways in which array libraries show, make and write their arrays: functions for the rows of
 * the table.
 *
 * Ways call nothing but the library's own functions and the imports of device_array.h. They import
 * no module, and they raise the library's exceptions as they are. */
#include "python/libraries.h"

#define NAME(name) state->names[GLUE_NAME_##name]

/* A part that a way cannot do without: borrowed, or NULL with an exception. */
static PyObject *need(const glue_library *library, glue_part part)
{
    if (library->parts[part] == NULL)
        PyErr_Format(PyExc_AttributeError, "%s has no %s", library->ways->name,
                     library->ways->parts[part]);
    return library->parts[part];
}

/* Calls a part with an argument, or with none for NULL. */
static PyObject *call_part(const glue_library *library, glue_part part, PyObject *argument)
{
    PyObject *const function = need(library, part);

    if (function == NULL) return NULL;
    return argument != NULL ? PyObject_CallOneArg(function, argument)
                            : PyObject_CallNoArgs(function);
}

/* The truth of a value, which is released; -1 with an exception, as for NULL. */
static int take_truth(PyObject *value)
{
    const int truth = value != NULL ? PyObject_IsTrue(value) : -1;

    Py_XDECREF(value);
    return truth;
}

/* An int, which is released; -1 with an exception, as for NULL. */
static long take_long(PyObject *value)
{
    const long number = value != NULL ? PyLong_AsLong(value) : -1;

    Py_XDECREF(value);
    return number;
}

/* ---------------------------------------------------------------- is it on a device? --------- */

int glue_is_always_held(const glue_state *state, const glue_library *library, PyObject *array)
{
    (void)state;
    (void)library;
    (void)array;
    return 1;
}

int glue_is_held_by_attribute(const glue_state *state, const glue_library *library, PyObject *array)
{
    (void)library;
    return take_truth(PyObject_GetAttr(array, NAME(is_cuda)));
}

/* An item of what __dlpack_device__ returns; -1 with an exception. */
static long get_dlpack_device(const glue_state *state, PyObject *array, Py_ssize_t item)
{
    PyObject *pair = PyObject_CallMethodNoArgs(array, NAME(__dlpack_device__));
    PyObject *value = pair != NULL ? PySequence_GetItem(pair, item) : NULL;
    PyObject *number = value != NULL ? PyNumber_Long(value) : NULL; /* it may be an enumerator */

    Py_XDECREF(pair);
    Py_XDECREF(value);
    return take_long(number);
}

int glue_is_held_by_dlpack(const glue_state *state, const glue_library *library, PyObject *array)
{
    const long type = get_dlpack_device(state, array, 0);

    (void)library;
    if (type == -1 && PyErr_Occurred() != NULL) return -1;
    return type == kDLCUDA || type == kDLCUDAManaged;
}

/* Whether one of the array's devices is a GPU. */
int glue_is_held_by_platform(const glue_state *state, const glue_library *library, PyObject *array)
{
    PyObject *devices = NULL, *iterator = NULL, *device = NULL;
    PyObject *const tracer = need(library, GLUE_TRACER_TYPE);
    int held = tracer != NULL ? PyObject_IsInstance(array, tracer) : -1;

    if (held != 0) return held < 0 ? -1 : 0;
    devices = PyObject_CallMethodNoArgs(array, NAME(devices));
    iterator = devices != NULL ? PyObject_GetIter(devices) : NULL;
    while (iterator != NULL && held == 0 && (device = PyIter_Next(iterator)) != NULL) {
        PyObject *platform = PyObject_GetAttr(device, NAME(platform));
        if (platform != NULL && PyUnicode_Check(platform))
            held = PyUnicode_CompareWithASCIIString(platform, "gpu") == 0;
        Py_XDECREF(platform);
        Py_DECREF(device);
        if (platform == NULL) break;
    }
    Py_XDECREF(devices);
    Py_XDECREF(iterator);
    return PyErr_Occurred() != NULL ? -1 : held;
}

/* ---------------------------------------------------------------- reading -------------------- */

/* A tensor's own attributes, for PyTorch before 2.10, which has no exchange API. */
static glue_device_array *describe_tensor(const glue_state *state, const glue_library *library,
                                          PyObject *tensor)
{
    PyObject *parts[GLUE_DESCRIPTION_COUNT] = {[GLUE_OWNER] = Py_NewRef(tensor)};
    PyObject *layout = PyObject_GetAttr(tensor, NAME(layout)), *dtype = NULL, *device = NULL,
             *steps = NULL;
    PyObject *extents = NULL;
    glue_device_array *array = NULL;
    int64_t strides[GPR_MAX_NDIM];
    int found = -1, ndim = 0;
    long bytes = 0;

    if (layout == NULL) goto done;
    if (layout != library->parts[GLUE_STRIDED_LAYOUT]) {
        PyErr_Format(PyExc_BufferError, "its layout is %S", layout);
        goto done;
    }
    if ((dtype = PyObject_GetAttr(tensor, NAME(dtype))) == NULL) goto done;
    for (int i = 0; i < GPR_DTYPE_COUNT && found < 0; i++) {
        if (PyTuple_GET_ITEM(library->dtypes, i) == dtype) found = i;
    }
    if (found < 0) {
        PyErr_Format(PyExc_TypeError, "reducing a tensor of dtype %S is not supported: %s", dtype,
                     glue_supported_dtypes);
        goto done;
    }
    if ((device = PyObject_GetAttr(tensor, NAME(device))) == NULL) goto done;
    if ((parts[GLUE_DEVICE_ID] = PyObject_GetAttr(device, NAME(index))) == NULL) goto done;
    if ((parts[GLUE_POINTER] = PyObject_CallMethodNoArgs(tensor, NAME(data_ptr))) == NULL)
        goto done;
    if ((extents = PyObject_GetAttr(tensor, NAME(shape))) == NULL) goto done;
    if ((parts[GLUE_SHAPE] = PySequence_Tuple(extents)) == NULL) goto done;
    if ((steps = PyObject_CallMethodNoArgs(tensor, NAME(stride))) == NULL) goto done;
    if ((ndim = glue_read_integers(steps, "strides", strides)) < 0) goto done;
    bytes = take_long(PyObject_CallMethodNoArgs(tensor, NAME(element_size)));
    if (bytes == -1 && PyErr_Occurred() != NULL) goto done;
    for (int i = 0; i < ndim; i++) strides[i] *= bytes;
    if ((parts[GLUE_STRIDES] = glue_tuple_of_integers(strides, ndim)) == NULL) goto done;
    if ((parts[GLUE_DTYPE] = PyUnicode_FromString(gpr_dtype_name((gpr_dtype)found))) == NULL)
        goto done;
    parts[GLUE_READY] = call_part(library, GLUE_CURRENT_STREAM, parts[GLUE_DEVICE_ID]);
    if (parts[GLUE_READY] != NULL) array = glue_describe_array(state, parts);
done:
    for (int i = 0; i < GLUE_DESCRIPTION_COUNT; i++) Py_XDECREF(parts[i]);
    Py_XDECREF(layout);
    Py_XDECREF(dtype);
    Py_XDECREF(device);
    Py_XDECREF(extents);
    Py_XDECREF(steps);
    return array;
}

/* A tensor whose elements are those in memory. */
static glue_device_array *read_plain_tensor(const glue_state *state, const glue_library *library,
                                            PyObject *tensor)
{
    glue_device_array *array = glue_import_exchange(state, tensor);

    if (array != NULL || PyErr_Occurred() != NULL) return array;
    return describe_tensor(state, library, tensor);
}

static int check_gradients(const glue_state *state, const glue_library *library, PyObject *tensor)
{
    const int requires = take_truth(PyObject_GetAttr(tensor, NAME(requires_grad)));
    const int enabled =
        requires > 0 ? take_truth(call_part(library, GLUE_HAS_GRADIENTS, NULL)) : requires;

    if (enabled <= 0) return enabled;
    PyErr_SetString(PyExc_TypeError,
                    "the tensor requires gradients, which a reduction would lose: pass a.detach()");
    return -1;
}

/* Whether the tensor is a conjugate of the elements in memory; -1 with an exception. An exception
 * that is set stays set if it is none. */
static int is_conjugate(const glue_state *state, PyObject *tensor)
{
    PyObject *class = NULL, *value = NULL, *traceback = NULL;
    int conjugate = 0;

    PyErr_Fetch(&class, &value, &traceback);
    conjugate = take_truth(PyObject_CallMethodNoArgs(tensor, NAME(is_conj)));
    if (conjugate == 0) {
        PyErr_Restore(class, value, traceback);
        return 0;
    }
    Py_XDECREF(class);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return conjugate;
}

static int is_complex(gpr_dtype dtype)
{
    return dtype == GPR_COMPLEX64 || dtype == GPR_COMPLEX128;
}

/* Negative and conjugate views are resolved, which copies them: memory does not contain their
 * elements. */
glue_device_array *glue_read_tensor(const glue_state *state, const glue_library *library,
                                    PyObject *tensor)
{
    PyObject *half = NULL, *whole = NULL;
    glue_device_array *array = NULL;
    int resolves = 0;

    if (check_gradients(state, library, tensor) < 0) return NULL;
    resolves = take_truth(PyObject_CallMethodNoArgs(tensor, NAME(is_neg)));
    if (resolves == 0) {
        array = read_plain_tensor(state, library, tensor);
        if (array != NULL && !is_complex(array->dtype)) return array;
        resolves = is_conjugate(state, tensor);
        if (resolves == 0) return array;
        Py_CLEAR(array);
    }
    if (resolves < 0) return NULL;
    half = PyObject_CallMethodNoArgs(tensor, NAME(resolve_neg));
    whole = half != NULL ? PyObject_CallMethodNoArgs(half, NAME(resolve_conj)) : NULL;
    if (whole != NULL) array = read_plain_tensor(state, library, whole);
    Py_XDECREF(half);
    Py_XDECREF(whole);
    return array;
}

/* By attributes as CuPy's arrays have them. */
glue_device_array *glue_read_attributes(const glue_state *state, const glue_library *library,
                                        PyObject *array)
{
    PyObject *parts[GLUE_DESCRIPTION_COUNT] = {[GLUE_OWNER] = Py_NewRef(array)};
    PyObject *data = PyObject_GetAttr(array, NAME(data));
    glue_device_array *found = NULL;

    if (data == NULL) goto done;
    if ((parts[GLUE_POINTER] = PyObject_GetAttr(data, NAME(ptr))) == NULL) goto done;
    if ((parts[GLUE_DEVICE_ID] = PyObject_GetAttr(data, NAME(device_id))) == NULL) goto done;
    if ((parts[GLUE_SHAPE] = PyObject_GetAttr(array, NAME(shape))) == NULL) goto done;
    if ((parts[GLUE_STRIDES] = PyObject_GetAttr(array, NAME(strides))) == NULL) goto done;
    if ((parts[GLUE_DTYPE] = PyObject_GetAttr(array, NAME(dtype))) == NULL) goto done;
    parts[GLUE_READY] = call_part(library, GLUE_CURRENT_STREAM, parts[GLUE_DEVICE_ID]);
    if (parts[GLUE_READY] != NULL) found = glue_describe_array(state, parts);
done:
    for (int i = 0; i < GLUE_DESCRIPTION_COUNT; i++) Py_XDECREF(parts[i]);
    Py_XDECREF(data);
    return found;
}

/* Where the interface names no stream, the array is ready, and work on it follows on the library's
 * default stream. */
glue_device_array *glue_read_interface(const glue_state *state, const glue_library *library,
                                       PyObject *array)
{
    PyObject *const is_per_thread = library->parts[GLUE_IS_PER_THREAD];
    PyObject *interface = PyObject_GetAttr(array, NAME(__cuda_array_interface__));
    const int per_thread = is_per_thread != NULL ? PyObject_IsTrue(is_per_thread) : 0;
    glue_device_array *found = NULL;

    if (interface != NULL && per_thread >= 0)
        found = glue_import_interface(
            state, interface, array,
            (void *)(uintptr_t)(per_thread ? GLUE_THREAD_STREAM : GLUE_LEGACY_STREAM));
    Py_XDECREF(interface);
    return found;
}

/* A capsule from __dlpack__, whose producer makes `stream` wait for the array. Producers from
 * before there were versions take no max_version. */
static PyObject *ask_for_capsule(const glue_state *state, PyObject *array, PyObject *stream)
{
    PyObject *version = Py_BuildValue("ii", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION),
             *capsule = NULL;
    PyObject *const arguments[] = {array, stream, version};

    if (version == NULL) return NULL;
    capsule = PyObject_VectorcallMethod(NAME(__dlpack__), arguments, 1,
                                        state->stream_and_version_keywords);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_VectorcallMethod(NAME(__dlpack__), arguments, 1, state->stream_keyword);
    }
    Py_DECREF(version);
    return capsule;
}

/* On the stream of our own, which the producer makes wait. */
glue_device_array *glue_read_dlpack(const glue_state *state, const glue_library *library,
                                    PyObject *array)
{
    const long device = get_dlpack_device(state, array, 1);
    PyObject *handle = NULL, *capsule = NULL;
    glue_device_array *found = NULL;
    void *stream = NULL;

    (void)library;
    if (device == -1 && PyErr_Occurred() != NULL) return NULL;
    if (glue_find_device_stream(state, (int)device, &stream) < 0) return NULL;
    handle = PyLong_FromVoidPtr(stream);
    capsule = handle != NULL ? ask_for_capsule(state, array, handle) : NULL;
    found = capsule != NULL ? glue_import_capsule(state, capsule) : NULL;
    if (found != NULL) {
        found->has_stream = 1;
        found->stream = stream;
    }
    Py_XDECREF(handle);
    Py_XDECREF(capsule);
    return found;
}

glue_device_array *glue_read_exchange(const glue_state *state, const glue_library *library,
                                      PyObject *array)
{
    glue_device_array *found = glue_import_exchange(state, array);

    (void)library;
    if (found == NULL && PyErr_Occurred() == NULL)
        PyErr_Format(PyExc_BufferError,
                     "the C exchange API of the array's type is not of DLPack version %d",
                     DLPACK_MAJOR_VERSION);
    return found;
}

/* ---------------------------------------------------------------- making --------------------- */

/* By the tensor's own method and not by the exchange API: PyTorch's record_stream ignores
 * tensors that came in by it. */
PyObject *glue_make_tensor(const glue_state *state, const glue_library *library, PyObject *like,
                           const glue_device_array *beside, PyObject *shape, gpr_dtype dtype,
                           glue_device_array **memory)
{
    PyObject *const arguments[] = {like, shape, PyTuple_GET_ITEM(library->dtypes, dtype)};
    PyObject *made = NULL;

    if (arguments[2] == Py_None) {
        PyErr_Format(PyExc_TypeError, "%s has no dtype %s", library->ways->name,
                     gpr_dtype_name(dtype));
        return NULL;
    }
    made = PyObject_VectorcallMethod(NAME(new_empty), arguments, 2,
                                     beside->dtype != dtype ? state->dtype_keyword : NULL);
    if (made == NULL) return NULL;
    *memory = read_plain_tensor(state, library, made);
    if (*memory == NULL) Py_CLEAR(made);
    return made;
}

/* Enters the context that makes a device the current one. New reference to it. */
static PyObject *enter_device(const glue_state *state, const glue_library *library, int device)
{
    PyObject *const contexts = need(library, GLUE_CONTEXTS);
    PyObject *ordinal = contexts != NULL ? PyLong_FromLong(device) : NULL, *context = NULL,
             *entered = NULL;

    if (ordinal == NULL) return NULL;
    context = PyCallable_Check(contexts) ? PyObject_CallOneArg(contexts, ordinal)
                                         : PyObject_GetItem(contexts, ordinal);
    Py_DECREF(ordinal);
    entered = context != NULL ? PyObject_CallMethodNoArgs(context, NAME(__enter__)) : NULL;
    if (entered == NULL) Py_CLEAR(context);
    Py_XDECREF(entered);
    return context;
}

/* Leaves it and releases it. 0, or -1 with an exception: the one that was set, or that of
 * leaving. */
static int leave_device(const glue_state *state, PyObject *context)
{
    PyObject *const arguments[] = {context, Py_None, Py_None, Py_None};
    PyObject *class = NULL, *value = NULL, *traceback = NULL, *left = NULL;
    int failed = 0;

    PyErr_Fetch(&class, &value, &traceback);
    left = PyObject_VectorcallMethod(NAME(__exit__), arguments, 4, NULL);
    failed = left == NULL || class != NULL;
    if (class != NULL) PyErr_Restore(class, value, traceback);
    Py_XDECREF(left);
    Py_DECREF(context);
    return failed ? -1 : 0;
}

/* Calls a function that makes an array, with a device as the current one. */
static PyObject *call_on_device(const glue_state *state, const glue_library *library, int device,
                                glue_part part, PyObject *const *arguments, size_t count,
                                PyObject *keywords)
{
    PyObject *const function = need(library, part), *const current_device =
                                                        library->parts[GLUE_CURRENT_DEVICE];
    PyObject *context = NULL, *result = NULL;
    long current = -1;

    if (function == NULL) return NULL;
    if (current_device != NULL) current = take_long(PyObject_CallNoArgs(current_device));
    if (PyErr_Occurred() != NULL) return NULL;
    if (current == device) return PyObject_Vectorcall(function, arguments, count, keywords);
    context = enter_device(state, library, device);
    if (context == NULL) return NULL;
    result = PyObject_Vectorcall(function, arguments, count, keywords);
    if (leave_device(state, context) < 0) Py_CLEAR(result);
    return result;
}

/* By a function empty(shape, dtype); the array is C-contiguous and has attributes as CuPy's. */
PyObject *glue_make_empty(const glue_state *state, const glue_library *library, PyObject *like,
                          const glue_device_array *beside, PyObject *shape, gpr_dtype dtype,
                          glue_device_array **memory)
{
    PyObject *descr = (PyObject *)glue_descr_of(dtype), *made = NULL, *data = NULL, *pointer = NULL,
             *device = NULL;

    (void)like;
    if (descr == NULL) return NULL;
    PyObject *const arguments[] = {shape, descr};
    made = call_on_device(state, library, beside->device, GLUE_EMPTY, arguments, 2, NULL);
    if (made == NULL) goto done;
    if ((data = PyObject_GetAttr(made, NAME(data))) == NULL) goto done;
    if ((pointer = PyObject_GetAttr(data, NAME(ptr))) == NULL) goto done;
    if ((device = PyLong_FromLong(beside->device)) == NULL) goto done;
    PyObject *const description[GLUE_DESCRIPTION_COUNT] = {pointer, shape,   Py_None, descr,
                                                           device,  Py_None, made};
    *memory = glue_describe_array(state, description);
    if (*memory == NULL) goto done;
    (*memory)->has_stream = beside->has_stream;
    (*memory)->stream = beside->stream;
done:
    Py_DECREF(descr);
    Py_XDECREF(data);
    Py_XDECREF(pointer);
    Py_XDECREF(device);
    if (*memory == NULL) Py_CLEAR(made);
    return made;
}

/* By a function empty(shape, dtype, stream), with the stream of `like`. */
PyObject *glue_make_on_stream(const glue_state *state, const glue_library *library, PyObject *like,
                              const glue_device_array *beside, PyObject *shape, gpr_dtype dtype,
                              glue_device_array **memory)
{
    PyObject *descr = (PyObject *)glue_descr_of(dtype), *stream = NULL, *made = NULL;

    if (descr == NULL) return NULL;
    stream = PyObject_GetAttr(like, NAME(stream));
    if (stream != NULL) {
        PyObject *const arguments[] = {shape, descr, stream};
        made = call_on_device(state, library, beside->device, GLUE_EMPTY, arguments, 2,
                              state->stream_keyword);
    }
    if (made != NULL) *memory = library->ways->read(state, library, made);
    Py_DECREF(descr);
    Py_XDECREF(stream);
    if (*memory == NULL) Py_CLEAR(made);
    return made;
}

PyObject *glue_make_by_exchange(const glue_state *state, const glue_library *library,
                                PyObject *like, const glue_device_array *beside, PyObject *shape,
                                gpr_dtype dtype, glue_device_array **memory)
{
    PyObject *made = glue_make_exchange(state, like, shape, dtype, beside->device);

    if (made == NULL) return NULL;
    *memory = glue_read_exchange(state, library, made);
    if (*memory == NULL) Py_CLEAR(made);
    return made;
}

/* In memory of our own, which the library may take over by DLPack. */
PyObject *glue_make_own(const glue_state *state, const glue_library *library, PyObject *like,
                        const glue_device_array *beside, PyObject *shape, gpr_dtype dtype,
                        glue_device_array **memory)
{
    PyObject *made = glue_make_buffer(state, shape, dtype, beside->device, beside->stream);

    (void)library;
    (void)like;
    if (made != NULL)
        *memory = (glue_device_array *)Py_NewRef((PyObject *)((glue_device_buffer *)made)->memory);
    return made;
}

/* ---------------------------------------------------------------- handing over --------------- */

/* An attribute that may be missing: NULL without an exception. */
static PyObject *get_optional(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);

    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return value;
}

/* By from_dlpack, of the library or of the array's namespace; where neither has one, the buffer
 * is the result. */
PyObject *glue_finish_by_dlpack(const glue_state *state, const glue_library *library,
                                PyObject *like, PyObject *made)
{
    PyObject *from_dlpack = Py_XNewRef(library->parts[GLUE_FROM_DLPACK]), *find = NULL,
             *namespace = NULL;
    PyObject *result = NULL;

    if (from_dlpack == NULL) {
        find = get_optional(like, NAME(__array_namespace__));
        namespace = find != NULL ? PyObject_CallNoArgs(find) : NULL;
        from_dlpack = namespace != NULL ? get_optional(namespace, NAME(from_dlpack)) : NULL;
        Py_XDECREF(find);
        Py_XDECREF(namespace);
    }
    if (from_dlpack != NULL) {
        result = PyObject_CallOneArg(from_dlpack, made);
    } else if (PyErr_Occurred() == NULL) {
        result = Py_NewRef(made);
    }
    Py_XDECREF(from_dlpack);
    return result;
}

/* The part at an index of the first axis, by an interface that begins there. */
static PyObject *get_interface_part(const glue_library *library, PyObject *array,
                                    PyObject *interface, const glue_device_array *memory, int index)
{
    const int64_t step = glue_strides_of((glue_device_array *)memory)[0];
    PyObject *part = PyDict_Copy(interface), *result = NULL, *shape = NULL, *data = NULL,
             *arguments = NULL;
    PyObject *keywords = NULL;
    PyObject *whole = NULL; /* borrowed from the copy, which no other thread has */

    if (part == NULL) return NULL;
    whole = PyDict_GetItemString(part, "shape");
    if (whole == NULL || !PyTuple_Check(whole)) { /* reading it found a tuple */
        PyErr_SetString(PyExc_RuntimeError, "the CUDA array interface changed while it was read");
        goto done;
    }
    shape = PyTuple_GetSlice(whole, 1, PyTuple_GET_SIZE(whole));
    data = Py_BuildValue("NO", PyLong_FromVoidPtr(memory->data + index * step), Py_False);
    if (shape == NULL || data == NULL || PyDict_SetItemString(part, "shape", shape) < 0 ||
        PyDict_SetItemString(part, "data", data) < 0 ||
        PyDict_SetItemString(part, "strides", Py_None) < 0)
        goto done;
    arguments = PyTuple_Pack(1, part);
    keywords = Py_BuildValue("{sOsO}", "owner", array, "sync", Py_False);
    if (arguments != NULL && keywords != NULL && need(library, GLUE_FROM_INTERFACE) != NULL)
        result = PyObject_Call(library->parts[GLUE_FROM_INTERFACE], arguments, keywords);
done:
    Py_DECREF(part);
    Py_XDECREF(shape);
    Py_XDECREF(data);
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    return result;
}

/* Not by indices: Numba copies a single element to the host. */
PyObject *glue_split_interface(const glue_state *state, const glue_library *library,
                               PyObject *array)
{
    PyObject *interface = PyObject_GetAttr(array, NAME(__cuda_array_interface__)), *low = NULL,
             *high = NULL;
    glue_device_array *memory =
        interface != NULL ? library->ways->read(state, library, array) : NULL;
    PyObject *pair = NULL;

    if (memory != NULL) low = get_interface_part(library, array, interface, memory, 0);
    if (low != NULL) high = get_interface_part(library, array, interface, memory, 1);
    if (high != NULL) pair = PyTuple_Pack(2, low, high);
    Py_XDECREF(interface);
    Py_XDECREF((PyObject *)memory);
    Py_XDECREF(low);
    Py_XDECREF(high);
    return pair;
}

/* ---------------------------------------------------------------- converting ----------------- */

/* Releases a result that means nothing. */
static int take_done(PyObject *result)
{
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

int glue_assign_by_method(const glue_state *state, const glue_library *library, PyObject *out,
                          PyObject *array)
{
    (void)library;
    return take_done(PyObject_CallMethodOneArg(out, NAME(copy_), array));
}

int glue_assign_by_copyto(const glue_state *state, const glue_library *library, PyObject *out,
                          PyObject *array)
{
    PyObject *data = PyObject_GetAttr(out, NAME(data)), *context = NULL, *arguments = NULL,
             *keywords = NULL;
    const long device = data != NULL ? take_long(PyObject_GetAttr(data, NAME(device_id))) : -1;
    int failed = -1;

    Py_XDECREF(data);
    if (PyErr_Occurred() != NULL) return -1;
    arguments = PyTuple_Pack(2, out, array);
    keywords = Py_BuildValue("{ss}", "casting", "unsafe");
    if (arguments != NULL && keywords != NULL && need(library, GLUE_COPYTO) != NULL)
        context = enter_device(state, library, (int)device);
    if (context != NULL) {
        failed = take_done(PyObject_Call(library->parts[GLUE_COPYTO], arguments, keywords));
        if (leave_device(state, context) < 0) failed = -1;
    }
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    return failed;
}

int glue_assign_items(const glue_state *state, const glue_library *library, PyObject *out,
                      PyObject *array)
{
    (void)state;
    (void)library;
    return PyObject_SetItem(out, Py_Ellipsis, array);
}

/* ---------------------------------------------------------------- errors --------------------- */

/* Whether an attribute is true; an object without it, or whose attribute raises, is false. */
static int is_true(PyObject *object, PyObject *name)
{
    const int truth = take_truth(PyObject_GetAttr(object, name));

    if (truth < 0) PyErr_Clear();
    return truth > 0;
}

/* Kinds of tensors that have no memory with strides. The cause stays with the exception that
 * takes its place. */
int glue_explain_tensor(const glue_state *state, const glue_library *library, PyObject *tensor)
{
    PyObject *class = NULL, *value = NULL, *traceback = NULL, *layout = NULL, *dtype = NULL;
    int explained = 1;

    if (!PyErr_ExceptionMatches(PyExc_RuntimeError) && !PyErr_ExceptionMatches(PyExc_BufferError))
        return 0;
    PyErr_Fetch(&class, &value, &traceback);
    layout = get_optional(tensor, NAME(layout));
    dtype = get_optional(tensor, NAME(dtype));
    PyErr_Clear();
    if (is_true(tensor, NAME(is_nested))) {
        PyErr_SetString(PyExc_TypeError,
                        "nested tensors are not supported: reduce their parts, a.unbind()");
    } else if (layout != NULL && layout != library->parts[GLUE_STRIDED_LAYOUT]) {
        PyErr_Format(
            PyExc_TypeError,
            "tensors of layout %S are not supported: pass a.to_dense(), or reduce a.values()",
            layout);
    } else if (is_true(tensor, NAME(is_quantized)) && dtype != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "quantised tensors, as of dtype %S, are not supported: pass a.dequantize() or "
                     "a.int_repr()",
                     dtype);
    } else {
        explained = 0;
    }
    Py_XDECREF(layout);
    Py_XDECREF(dtype);
    if (explained) {
        glue_set_cause(class, value, traceback);
    } else {
        PyErr_Restore(class, value, traceback);
    }
    return explained;
}
