/* The short way: arrays of PyTorch and CuPy are read without Python's help, so that a small call costs little more than its kernel.
 *
 * src/gpureduce/_interop/ makes a library known when it meets it, and does the same work for every call that is not plain: whatever
 * asks for more here is left to it before room is made for a result, and so are all errors, which it words. */
#include "python/device_array.h"

/* ---------------------------------------------------------------- names ---------------------- */

int glue_add_names(glue_state *state)
{
    static const char *const names[GLUE_NAME_COUNT] = {
        [GLUE_IS_CUDA] = "is_cuda", [GLUE_REQUIRES_GRAD] = "requires_grad",
        [GLUE_IS_NEG] = "is_neg",   [GLUE_NEW_EMPTY] = "new_empty",
        [GLUE_DTYPE] = "dtype",     [GLUE_DATA] = "data",
        [GLUE_PTR] = "ptr",         [GLUE_DEVICE_ID] = "device_id",
        [GLUE_SHAPE] = "shape",     [GLUE_STRIDES] = "strides",
    };

    for (int i = 0; i < GLUE_NAME_COUNT; i++) {
        state->names[i] = PyUnicode_InternFromString(names[i]);
        if (state->names[i] == NULL) return -1;
    }
    state->dtype_keyword = PyTuple_Pack(1, state->names[GLUE_DTYPE]);
    return state->dtype_keyword != NULL ? 0 : -1;
}

int glue_visit_libraries(const glue_state *state, visitproc visit, void *arg)
{
    for (int i = 0; i < GLUE_LIBRARY_COUNT; i++) {
        const glue_library *library = &state->libraries[i];
        Py_VISIT(atomic_load(&library->type));
        Py_VISIT(library->dtypes);
        Py_VISIT(library->empty);
        Py_VISIT(library->current_device);
        Py_VISIT(library->current_stream);
    }
    return 0;
}

void glue_clear_libraries(glue_state *state)
{
    for (int i = 0; i < GLUE_LIBRARY_COUNT; i++) {
        glue_library *library = &state->libraries[i];
        Py_XDECREF(atomic_exchange(&library->type, NULL));
        Py_CLEAR(library->dtypes);
        Py_CLEAR(library->empty);
        Py_CLEAR(library->current_device);
        Py_CLEAR(library->current_stream);
    }
    for (int i = 0; i < GLUE_NAME_COUNT; i++) Py_CLEAR(state->names[i]);
    Py_CLEAR(state->dtype_keyword);
}

/* ---------------------------------------------------------------- making known --------------- */

/* know_torch(type, dtypes): of tensors, which have the DLPack C exchange API; PyTorch's dtypes in the order of DTYPES, or None */
static PyObject *know_torch(PyObject *module, PyObject *arguments)
{
    glue_library *library = &glue_state_of(module)->libraries[GLUE_TORCH];
    PyObject *type = NULL, *dtypes = NULL;

    if (!PyArg_ParseTuple(arguments, "O!O!", &PyType_Type, &type, &PyTuple_Type, &dtypes)) return NULL;
    if (PyTuple_GET_SIZE(dtypes) != GPR_DTYPE_COUNT) {
        PyErr_SetString(PyExc_ValueError, "there must be an entry for each dtype");
        return NULL;
    }
    if (atomic_load(&library->type) == NULL) {
        library->dtypes = Py_NewRef(dtypes);
        atomic_store(&library->type, Py_NewRef(type));
    }
    Py_RETURN_NONE;
}

/* know_cupy(type, empty, current_device, current_stream): of arrays, and CuPy's functions */
static PyObject *know_cupy(PyObject *module, PyObject *arguments)
{
    glue_library *library = &glue_state_of(module)->libraries[GLUE_CUPY];
    PyObject *type = NULL, *empty = NULL, *current_device = NULL, *current_stream = NULL;

    if (!PyArg_ParseTuple(arguments, "O!OOO", &PyType_Type, &type, &empty, &current_device, &current_stream))
        return NULL;
    if (atomic_load(&library->type) == NULL) {
        library->empty = Py_NewRef(empty);
        library->current_device = Py_NewRef(current_device);
        library->current_stream = Py_NewRef(current_stream);
        atomic_store(&library->type, Py_NewRef(type));
    }
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- PyTorch -------------------- */

/* Whether an attribute's value, which is given up, is this one. */
static int is(PyObject *value, PyObject *expected)
{
    Py_XDECREF(value);
    return value == expected;
}

/* A tensor of plain memory that needs no gradients. Complex ones may be conjugates, which are not what lies in memory. */
static glue_device_array *read_tensor(const glue_state *state, PyObject *tensor)
{
    glue_device_array *array = NULL;

    if (!is(PyObject_GetAttr(tensor, state->names[GLUE_IS_CUDA]), Py_True)) return NULL;
    if (!is(PyObject_GetAttr(tensor, state->names[GLUE_REQUIRES_GRAD]), Py_False)) return NULL;
    if (!is(PyObject_CallMethodNoArgs(tensor, state->names[GLUE_IS_NEG]), Py_False)) return NULL;
    array = glue_exchange(state, tensor);
    if (array != NULL && (array->dtype == GPR_COMPLEX64 || array->dtype == GPR_COMPLEX128)) Py_CLEAR(array);
    return array;
}

/* By the tensor's own method and not the exchange API: PyTorch's record_stream knows nothing of tensors that came in through it. */
static PyObject *make_tensor(const glue_state *state, const glue_library *library, PyObject *like, gpr_dtype own,
                             PyObject *shape, gpr_dtype dtype)
{
    PyObject *const arguments[] = {like, shape, PyTuple_GET_ITEM(library->dtypes, dtype)};

    return PyObject_VectorcallMethod(state->names[GLUE_NEW_EMPTY], arguments, 2,
                                     own != dtype ? state->dtype_keyword : NULL);
}

/* ---------------------------------------------------------------- CuPy ----------------------- */

/* An attribute of what `object` has under a name; new reference. */
static PyObject *get_inner(const glue_state *state, PyObject *object, glue_name outer, glue_name inner)
{
    PyObject *between = PyObject_GetAttr(object, state->names[outer]);
    PyObject *value = between != NULL ? PyObject_GetAttr(between, state->names[inner]) : NULL;

    Py_XDECREF(between);
    return value;
}

static glue_device_array *read_cupy(const glue_state *state, const glue_library *library, PyObject *array)
{
    enum { POINTER, SHAPE, STRIDES, DTYPE, DEVICE, STREAM, OWNER };
    PyObject *parts[GLUE_DESCRIPTION_COUNT] = {[OWNER] = Py_NewRef(array)};
    PyObject *data = PyObject_GetAttr(array, state->names[GLUE_DATA]), *stream = NULL;
    glue_device_array *found = NULL;

    if (data == NULL) goto done;
    if ((parts[POINTER] = PyObject_GetAttr(data, state->names[GLUE_PTR])) == NULL) goto done;
    if ((parts[DEVICE] = PyObject_GetAttr(data, state->names[GLUE_DEVICE_ID])) == NULL) goto done;
    if ((parts[SHAPE] = PyObject_GetAttr(array, state->names[GLUE_SHAPE])) == NULL) goto done;
    if ((parts[STRIDES] = PyObject_GetAttr(array, state->names[GLUE_STRIDES])) == NULL) goto done;
    if ((parts[DTYPE] = PyObject_GetAttr(array, state->names[GLUE_DTYPE])) == NULL) goto done;
    if ((stream = PyObject_CallOneArg(library->current_stream, parts[DEVICE])) == NULL) goto done;
    if ((parts[STREAM] = PyObject_GetAttr(stream, state->names[GLUE_PTR])) == NULL) goto done;
    found = glue_describe_array(state, parts);
done:
    for (int i = 0; i < GLUE_DESCRIPTION_COUNT; i++) Py_XDECREF(parts[i]);
    Py_XDECREF(data);
    Py_XDECREF(stream);
    return found;
}

/* An array for the result on the current device, which is the source's, and where it lies. */
static PyObject *make_cupy(const glue_state *state, const glue_library *library, PyObject *like,
                           const glue_device_array *source, PyObject *shape, gpr_dtype dtype, PyObject **target)
{
    PyObject *descr =
        source->dtype == dtype ? PyObject_GetAttr(like, state->names[GLUE_DTYPE]) : (PyObject *)glue_descr_of(dtype);
    PyObject *device = NULL, *made = NULL, *pointer = NULL;

    if (descr == NULL) return NULL;
    PyObject *const arguments[] = {shape, descr};
    made = PyObject_Vectorcall(library->empty, arguments, 2, NULL);
    device = PyLong_FromLong(source->device);
    if (made == NULL || device == NULL) goto done;
    pointer = get_inner(state, made, GLUE_DATA, GLUE_PTR);
    if (pointer == NULL) goto done;
    PyObject *const description[GLUE_DESCRIPTION_COUNT] = {pointer, shape, Py_None, descr, device, Py_None, made};
    *target = (PyObject *)glue_describe_array(state, description);
done:
    Py_XDECREF(device);
    Py_XDECREF(pointer);
    Py_DECREF(descr);
    if (*target == NULL) Py_CLEAR(made);
    return made;
}

/* Whether CuPy makes arrays on that device now; -1 with an exception. */
static int is_current(const glue_library *library, int device)
{
    PyObject *current = PyObject_CallNoArgs(library->current_device);
    const long ordinal = current != NULL ? PyLong_AsLong(current) : -1;

    Py_XDECREF(current);
    return PyErr_Occurred() != NULL ? -1 : ordinal == device;
}

/* ---------------------------------------------------------------- a reduction ---------------- */

/* The library of an array's exact type: a class made of it may have ways of its own. */
static int find_library(const glue_state *state, PyObject *array)
{
    for (int i = 0; i < GLUE_LIBRARY_COUNT; i++) {
        if ((PyObject *)Py_TYPE(array) == atomic_load_explicit(&state->libraries[i].type, memory_order_acquire))
            return i;
    }
    return -1;
}

static glue_device_array *read_array(const glue_state *state, int library, PyObject *array)
{
    return library == GLUE_TORCH ? read_tensor(state, array) : read_cupy(state, &state->libraries[library], array);
}

/* What is left to Python: nothing was asked of the device, so that it may begin anew. */
static PyObject *leave_to_python(void)
{
    if (PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_Exception)) return NULL; /* as a KeyboardInterrupt */
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
}

static int is_plain(const glue_arguments *given)
{
    return given->dtype == Py_None && given->options[GLUE_STREAM] == Py_None && PyBool_Check(given->keepdims);
}

/* Whether the call is one of those that something has to be added to: warnings, pairs of results, checks for nothing but NaN. */
static int wants_more(const glue_call *call)
{
    const gpr_request *request = &call->request;

    for (int i = 0; i < request->ndim; i++) {
        if (call->shape[i] == 0) return 1;
    }
    if (request->skip_nan && request->op != GPR_OP_SUM && request->op != GPR_OP_PROD) return 1;
    return request->op == GPR_OP_MINMAX || glue_lacks_freedom(call);
}

/* Where a result goes. Both owned. */
typedef struct place {
    PyObject *result, *target;
} place;

static int has_result_shape(const glue_call *call, const int64_t *shape, int ndim)
{
    int same = ndim == call->result_ndim;

    for (int i = 0; i < ndim && same; i++) same = shape[i] == call->result_shape[i];
    return same;
}

/* Whether `out` takes the result as it is: contiguous host memory, or memory of the same library, stream and device. */
static int use_out(const glue_state *state, int library, const glue_call *call, glue_device_array *source,
                   PyObject *out, gpr_dtype dtype, place *where)
{
    gpr_dtype found = GPR_BOOL;

    if (PyArray_CheckExact(out)) {
        PyArrayObject *host = (PyArrayObject *)out;
        if (!PyArray_ISCARRAY(host) || glue_find_dtype(PyArray_DESCR(host), "a result of dtype", &found) < 0) return 0;
        if (found != dtype || !has_result_shape(call, PyArray_DIMS(host), PyArray_NDIM(host))) return 0;
        where->target = Py_NewRef(out);
    } else {
        if (find_library(state, out) != library) return 0;
        glue_device_array *target = read_array(state, library, out);
        where->target = (PyObject *)target;
        if (target == NULL || target->dtype != dtype || target->device != source->device ||
            target->stream != source->stream || target->read_only || glue_may_overlap(target, source) ||
            !has_result_shape(call, glue_shape_of(target), target->ndim))
            return 0;
    }
    where->result = Py_NewRef(out);
    return 1;
}

/* Has the library make an array beside `like`. 1: done; 0: it is not for here; -1: an exception that nobody else would word better. */
static int make_room(const glue_state *state, int which, const glue_call *call, PyObject *like,
                     glue_device_array *source, gpr_dtype dtype, place *where)
{
    const glue_library *library = &state->libraries[which];
    PyObject *shape = NULL;

    if (which == GLUE_TORCH && PyTuple_GET_ITEM(library->dtypes, dtype) == Py_None) return 0;
    if (which == GLUE_CUPY && is_current(library, source->device) != 1) return 0;
    shape = glue_result_shape(call);
    if (shape == NULL) return -1;
    if (which == GLUE_CUPY) {
        where->result = make_cupy(state, library, like, source, shape, dtype, &where->target);
    } else {
        where->result = make_tensor(state, library, like, source->dtype, shape, dtype);
        if (where->result != NULL) where->target = (PyObject *)glue_exchange(state, where->result);
    }
    Py_DECREF(shape);
    return where->target != NULL ? 1 : -1;
}

PyObject *glue_reduce_known(glue_state *state, PyObject *array, const glue_arguments *given, PyObject *out)
{
    const int library = find_library(state, array);
    glue_device_array *source = NULL;
    place where = {NULL, NULL};
    PyObject *answer = NULL;
    char reduced[GPR_MAX_NDIM];
    int keepdims = 0, has_room = 0;
    glue_call call;

    if (library < 0 || !is_plain(given)) Py_RETURN_NOTIMPLEMENTED;
    source = read_array(state, library, array);
    if (source == NULL || source->stream == NULL) goto done;
    if (glue_read_device_call(state, source, given, &call, reduced, &keepdims) < 0) goto done;
    if (source->dtype < GPR_FLOAT16) call.request.skip_nan = 0; /* floats and complex numbers come last */
    if (wants_more(&call)) goto done;
    call.request.stream = source->stream;
    call.request.vouches_for_result = out == Py_None; /* the library makes it now */
    const gpr_dtype dtype = gpr_result_dtype(call.request.op, source->dtype, GPR_DTYPE_DEFAULT);
    if (dtype == GPR_DTYPE_DEFAULT) goto done;
    has_room = out != Py_None ? use_out(state, library, &call, source, out, dtype, &where)
                              : make_room(state, library, &call, array, source, dtype, &where);
    if (has_room > 0) answer = glue_run_into(state, &call, dtype, where.result, where.target, reduced, keepdims);
done:
    Py_XDECREF(source);
    Py_XDECREF(where.target);
    Py_XDECREF(where.result);
    return has_room != 0 ? answer : leave_to_python();
}

PyMethodDef glue_library_methods[] = {
    {"know_torch", know_torch, METH_VARARGS, PyDoc_STR("know_torch(type, dtypes)")},
    {"know_cupy", know_cupy, METH_VARARGS, PyDoc_STR("know_cupy(type, empty, current_device, current_stream)")},
    {NULL, NULL, 0, NULL},
};
