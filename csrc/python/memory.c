/* Pinned and device memory, and what benchmarks and tests do with it: reducing memory that is on the device already,
 * measuring, compiling one cell. */
#include "glue.h"

/* ---------------------------------------------------------------- pinned memory -------------- */

static const char pinned_name[] = "gpureduce.pinned";

static void free_pinned(PyObject *capsule)
{
    void *data = PyCapsule_GetPointer(capsule, pinned_name);

    if (data != NULL) (void)gpr_free_pinned(data);
}

/* A capsule that owns `bytes` bytes of pinned memory at *data. */
static PyObject *new_pinned(const glue_state *state, npy_intp bytes, void **data)
{
    PyObject *capsule = NULL;
    gpr_status status = GPR_OK;

    Py_BEGIN_ALLOW_THREADS
    status = gpr_alloc_pinned((uint64_t)bytes, data);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    capsule = PyCapsule_New(*data, pinned_name, free_pinned);
    if (capsule == NULL) (void)gpr_free_pinned(*data);
    return capsule;
}

/* A uint8 array of that many bytes in pinned memory, whose base, a capsule, frees it. None, with a warning, where there is
 * no GPU to pin it for. */
static PyObject *pinned_bytes(PyObject *module, PyObject *size)
{
    glue_state *state = glue_state_of(module);
    npy_intp bytes = PyNumber_AsSsize_t(size, PyExc_MemoryError);
    PyObject *capsule = NULL, *array = NULL;
    gpr_status status = GPR_OK;
    void *data = NULL;

    if (bytes == -1 && PyErr_Occurred() != NULL) return NULL;
    if (glue_locate(state, 0) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_cuda_available();
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) {
        if (glue_warn_no_device(state, "there is no GPU to pin memory for, so it is ordinary memory") < 0) return NULL;
        Py_RETURN_NONE;
    }
    capsule = new_pinned(state, bytes, &data);
    if (capsule == NULL) return NULL;
    array = PyArray_SimpleNewFromData(1, &bytes, NPY_UINT8, data);
    if (array == NULL) {
        Py_DECREF(capsule);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)array, capsule) < 0) Py_CLEAR(array); /* takes the capsule either way */
    return array;
}

/* ---------------------------------------------------------------- device memory -------------- */

static PyObject *alloc_device(PyObject *module, PyObject *arguments)
{
    unsigned long long bytes = 0;
    int device = 0;
    void *data = NULL;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "Ki", &bytes, &device)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_alloc_device(device, bytes, &data);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? PyLong_FromVoidPtr(data) : glue_raise(glue_state_of(module));
}

static PyObject *upload(PyObject *module, PyObject *arguments)
{
    PyObject *pointer = NULL;
    Py_buffer source;
    int device = 0;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "iO!y*", &device, &PyLong_Type, &pointer, &source)) return NULL;
    void *destination = PyLong_AsVoidPtr(pointer);
    if (destination == NULL && PyErr_Occurred() != NULL) {
        PyBuffer_Release(&source);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = gpr_upload(device, destination, source.buf, (uint64_t)source.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&source);
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    Py_RETURN_NONE;
}

static PyObject *free_device(PyObject *module, PyObject *arguments)
{
    PyObject *pointer = NULL;
    int device = 0;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "iO!", &device, &PyLong_Type, &pointer)) return NULL;
    void *data = PyLong_AsVoidPtr(pointer);
    if (data == NULL && PyErr_Occurred() != NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_free_device(device, data);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- device arrays -------------- */

enum { OP, POINTER, SHAPE, REDUCED, DTYPE, COMPUTE, OPTIONS, DEVICE_ARGUMENTS = OPTIONS + GLUE_OPTION_COUNT };

static int read_device_shape(glue_call *call, PyObject *object, PyObject *reduced)
{
    PyArray_Dims shape = {NULL, 0};
    const long count = PyLong_AsLong(reduced);

    if (count == -1 && PyErr_Occurred() != NULL) return -1;
    if (!PyArray_IntpConverter(object, &shape)) return -1;
    call->request.ndim = shape.len;
    call->request.reduced = count >= 0 && count <= shape.len ? (int)count : -1; /* the library refuses it */
    call->request.shape = call->shape;
    call->result_ndim = count >= 0 && count <= shape.len ? shape.len - (int)count : 0;
    for (int i = 0; i < shape.len; i++) {
        call->shape[i] = shape.ptr[i];
        call->result_shape[i] = shape.ptr[i];
    }
    PyDimMem_FREE(shape.ptr);
    return 0;
}

static int read_device_types(const glue_state *state, glue_call *call, PyObject *dtype, PyObject *compute)
{
    PyArray_Descr *element = NULL, *requested = NULL;
    int failed = 1;

    if (PyArray_DescrConverter(dtype, &element) == NPY_FAIL) return -1;
    if (glue_find_dtype(element, "reducing an array of dtype", &call->request.dtype) < 0) goto done;
    if (glue_read_descr(compute, &requested) < 0) goto done;
    if (requested != NULL && glue_find_dtype(requested, "reducing to dtype", &call->request.compute) < 0) goto done;
    failed = glue_set_result_descr(state, call, element, requested) < 0;
done:
    Py_XDECREF(element);
    Py_XDECREF(requested);
    return failed ? -1 : 0;
}

/* The arguments of a request for contiguous memory of a CUDA device, the last `reduced` axes of which are reduced. */
static int read_device_call(glue_state *state, PyObject *const *arguments, glue_call *call)
{
    gpr_request *request = &call->request;

    memset(request, 0, sizeof *request);
    request->compute = GPR_DTYPE_DEFAULT;
    request->on_device = 1;
    if (glue_read_operator(arguments[OP], &request->op) < 0) return -1;
    request->data = PyLong_AsVoidPtr(arguments[POINTER]);
    if (request->data == NULL && PyErr_Occurred() != NULL) return -1;
    if (read_device_shape(call, arguments[SHAPE], arguments[REDUCED]) < 0) return -1;
    if (glue_read_options(state, arguments + OPTIONS, call) < 0) return -1;
    if (request->device == GPR_DEVICE_DEFAULT) request->device = GPR_DEVICE_CUDA;
    return read_device_types(state, call, arguments[DTYPE], arguments[COMPUTE]);
}

/* reduce_device(op, pointer, shape, reduced, dtype, compute, kernel, device, block_size, grid_size, stream) */
static PyObject *reduce_device(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    glue_state *state = glue_state_of(module);
    glue_call call;

    if (count != DEVICE_ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "reduce_device takes %d arguments", DEVICE_ARGUMENTS);
        return NULL;
    }
    return read_device_call(state, arguments, &call) < 0 ? NULL : glue_run(state, &call);
}

static PyObject *list_of_floats(const float *values, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);

    for (Py_ssize_t i = 0; i < count && list != NULL; i++) {
        PyObject *value = PyFloat_FromDouble((double)values[i]);
        if (value == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, value);
    }
    return list;
}

static PyObject *run_measure(glue_state *state, glue_call *call, long warmup, long repeats, unsigned long long flush_bytes)
{
    const npy_intp results = PyArray_MultiplyList(call->result_shape, call->result_ndim);
    void *result = PyMem_Malloc((size_t)(results > 0 ? results : 1) * gpr_dtype_bytes(GPR_FLOAT64));
    float *milliseconds = PyMem_Calloc((size_t)(repeats > 0 ? repeats : 1), sizeof *milliseconds);
    PyObject *list = NULL;
    gpr_status status = GPR_OK;

    if (result == NULL || milliseconds == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (glue_locate(state, 0) < 0) goto done;
    call->request.result = result;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_measure(&call->request, (int)warmup, (int)repeats, flush_bytes, milliseconds);
    Py_END_ALLOW_THREADS
    list = status == GPR_OK ? list_of_floats(milliseconds, repeats) : glue_raise(state);
done:
    PyMem_Free(milliseconds);
    PyMem_Free(result);
    return list;
}

/* measure(*arguments of reduce_device, warmup, repeats, flush_bytes) */
static PyObject *measure(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    enum { WARMUP = DEVICE_ARGUMENTS, REPEATS, FLUSH_BYTES, MEASURE_ARGUMENTS, MOST_RUNS = 1000000 };
    glue_state *state = glue_state_of(module);
    glue_call call;
    PyObject *list = NULL;

    if (count != MEASURE_ARGUMENTS) {
        PyErr_Format(PyExc_TypeError, "measure takes %d arguments", MEASURE_ARGUMENTS);
        return NULL;
    }
    const long warmup = PyLong_AsLong(arguments[WARMUP]);
    const long repeats = PyLong_AsLong(arguments[REPEATS]);
    const unsigned long long flush_bytes = PyLong_AsUnsignedLongLong(arguments[FLUSH_BYTES]);
    if (PyErr_Occurred() != NULL) return NULL;
    if (warmup < 0 || warmup > MOST_RUNS || repeats < 0 || repeats > MOST_RUNS) {
        PyErr_Format(PyExc_ValueError, "warmup and repeats must be from 0 to %d", MOST_RUNS);
        return NULL;
    }
    if (read_device_call(state, arguments, &call) < 0) return NULL;
    list = run_measure(state, &call, warmup, repeats, flush_bytes);
    Py_DECREF(call.result_descr);
    return list;
}

/* ---------------------------------------------------------------- compiling ------------------ */

/* A dtype by its registry name, so that bfloat16 needs no ml_dtypes; None is the default. */
static int read_dtype_name(PyObject *object, gpr_dtype *dtype)
{
    const char *name = NULL;

    *dtype = GPR_DTYPE_DEFAULT;
    if (object == Py_None) return 0;
    name = PyUnicode_AsUTF8(object);
    if (name == NULL) return -1;
    *dtype = gpr_find_dtype(name);
    if (*dtype != GPR_DTYPE_DEFAULT) return 0;
    PyErr_Format(PyExc_ValueError, "there is no dtype '%s'", name);
    return -1;
}

/* compile_cell(kernel, op, dtype, compute, block_size, cc) -> bytes of machine code */
static PyObject *compile_cell(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    PyObject *kernel_name = NULL, *op_number = NULL, *dtype_name = NULL, *compute_name = NULL;
    gpr_dtype dtype, compute;
    gpr_operator op;
    gpr_status status = GPR_OK;
    uint64_t bytes = 0;
    unsigned block = 0;
    int kernel = 0, cc = 0;

    if (!PyArg_ParseTuple(arguments, "OOOOIi", &kernel_name, &op_number, &dtype_name, &compute_name, &block, &cc)) return NULL;
    if (glue_read_kernel(state, kernel_name, &kernel) < 0) return NULL;
    if (kernel < 0 && gpr_find_kernel("auto", &kernel) != GPR_OK) return glue_raise(state);
    if (glue_read_operator(op_number, &op) < 0) return NULL;
    if (read_dtype_name(dtype_name, &dtype) < 0 || read_dtype_name(compute_name, &compute) < 0) return NULL;
    if (glue_locate(state, 1) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_compile_cell(kernel, op, dtype, compute, block, cc, &bytes);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? PyLong_FromUnsignedLongLong(bytes) : glue_raise(state);
}

PyMethodDef glue_memory_methods[] = {
    {"pinned_bytes", pinned_bytes, METH_O, PyDoc_STR("pinned_bytes(size) -> uint8 array, or None where there is no GPU")},
    {"alloc_device", alloc_device, METH_VARARGS, PyDoc_STR("alloc_device(bytes, device) -> pointer")},
    {"upload", upload, METH_VARARGS, PyDoc_STR("upload(device, pointer, contiguous buffer)")},
    {"free_device", free_device, METH_VARARGS, PyDoc_STR("free_device(device, pointer)")},
    {"reduce_device", (PyCFunction)(void (*)(void))reduce_device, METH_FASTCALL,
     PyDoc_STR("reduce_device(op, pointer, shape, reduced, dtype, compute, kernel, device, block_size, grid_size, stream)")},
    {"measure", (PyCFunction)(void (*)(void))measure, METH_FASTCALL,
     PyDoc_STR("measure(*arguments of reduce_device, warmup, repeats, flush_bytes) -> list of milliseconds")},
    {"compile_cell", compile_cell, METH_VARARGS,
     PyDoc_STR("compile_cell(kernel, op, dtype, compute, block_size, cc) -> bytes of machine code")},
    {NULL, NULL, 0, NULL},
};
