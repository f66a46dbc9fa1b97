/* Pinned and device memory, and functions for benchmarks and tests: reducing memory that is on the
 * device already, measuring, compiling one program. */
#include "python/device_call.h"
#include "python/glue.h"

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

/* A uint8 array of that many bytes in pinned memory, whose base, a capsule, frees it. None, with
 * a warning, where there is no GPU to pin it for. */
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
        if (glue_warn_no_device(state,
                                "there is no GPU to pin memory for, so it is ordinary memory") < 0)
            return NULL;
        Py_RETURN_NONE;
    }
    capsule = new_pinned(state, bytes, &data);
    if (capsule == NULL) return NULL;
    array = PyArray_SimpleNewFromData(1, &bytes, NPY_UINT8, data);
    if (array == NULL) {
        Py_DECREF(capsule);
        return NULL;
    }
    /* takes the capsule either way */
    if (PyArray_SetBaseObject((PyArrayObject *)array, capsule) < 0) Py_CLEAR(array);
    return array;
}

/* ---------------------------------------------------------------- device memory -------------- */

static PyObject *alloc_device(PyObject *module, PyObject *arguments)
{
    unsigned long long bytes = 0;
    int device = 0;
    void *data = NULL;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "iK", &device, &bytes)) return NULL;
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

    if (!PyArg_ParseTuple(arguments, "iO!y*", &device, &PyLong_Type, &pointer, &source))
        return NULL;
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

/* download(device, pointer, contiguous writable buffer, stream=0) */
static PyObject *download(PyObject *module, PyObject *arguments)
{
    PyObject *pointer = NULL;
    Py_buffer destination;
    unsigned long long stream = 0;
    int device = 0;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "iO!w*|K", &device, &PyLong_Type, &pointer, &destination,
                          &stream))
        return NULL;
    const void *source = PyLong_AsVoidPtr(pointer);
    if (source == NULL && PyErr_Occurred() != NULL) {
        PyBuffer_Release(&destination);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = gpr_download(device, (void *)(uintptr_t)stream, destination.buf, source,
                          (uint64_t)destination.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&destination);
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

/* The parts of a request for memory of a CUDA device; the last `reduced` axes are reduced. */
typedef struct device_arguments {
    PyObject *op, *pointer, *shape, *dtype, *kernel, *compute;
    PyObject *strides, *mask_strides, *result_strides, *mean_dtype, *mean_strides, *start;
    unsigned long long stream, mask, result, mean;
    double ddof;
    unsigned block_size, grid_size;
    int reduced, device, skip_nan;
    int64_t result_steps[GPR_MAX_NDIM + 1];
} device_arguments;

/* The array's axes; returns how many are kept, -1 with an exception. */
static int read_device_shape(glue_call *call, PyObject *object, int reduced)
{
    PyArray_Dims shape = {NULL, 0};

    if (!PyArray_IntpConverter(object, &shape)) return -1;
    /* the library refuses bad numbers before it looks at the result */
    const int kept = reduced >= 0 && reduced <= shape.len ? shape.len - reduced : 0;
    for (int i = kept; i < shape.len; i++) call->reduced[i] = 1;
    glue_set_axes(call, shape.len, shape.ptr, NULL, NULL, NULL);
    call->request.reduced = reduced;
    PyDimMem_FREE(shape.ptr);
    return kept;
}

/* The array's dtype, and the one that was requested or NULL: both the caller's to release. */
static int read_device_types(glue_call *call, const device_arguments *arguments,
                             PyArray_Descr **element, PyArray_Descr **requested)
{
    gpr_request *request = &call->request;

    if (PyArray_DescrConverter(arguments->dtype, element) == NPY_FAIL) return -1;
    if (glue_find_dtype(*element, "reducing an array of dtype", &request->dtype) < 0) return -1;
    if (glue_read_descr(arguments->compute, requested) < 0) return -1;
    return *requested != NULL ? glue_find_dtype(*requested, "reducing to dtype", &request->compute)
                              : 0;
}

/* Steps in bytes, one for each of `count` axes (and `more`), into `steps`; None leaves *strides
 * NULL. */
static int read_steps(PyObject *object, int count, const char *what, int64_t *steps,
                      const int64_t **strides)
{
    PyArray_Dims given = {NULL, 0};

    if (object == NULL || object == Py_None) return 0;
    if (!PyArray_IntpConverter(object, &given)) return -1;
    const int length = given.len;
    for (int i = 0; i < length && i < count; i++) steps[i] = given.ptr[i];
    PyDimMem_FREE(given.ptr);
    if (length != count) {
        PyErr_Format(PyExc_ValueError, "%s has %d steps, not %d", what, count, length);
        return -1;
    }
    *strides = steps;
    return 0;
}

/* The keywords after an array's own, as the functions below take them. */
#define LAYOUT_KEYWORDS                                                                        \
    "strides", "mask", "mask_strides", "result", "result_strides", "skip_nan", "ddof", "mean", \
        "mean_dtype", "mean_strides", "start", NULL
#define LAYOUT_FORMAT "$OKOKOpdKOOO"
#define LAYOUT_ARGUMENTS(a)                                                                      \
    &(a).strides, &(a).mask, &(a).mask_strides, &(a).result, &(a).result_strides, &(a).skip_nan, \
        &(a).ddof, &(a).mean, &(a).mean_dtype, &(a).mean_strides, &(a).start

/* Device memory that holds the means that squared distances are from, if there is any. */
static int read_means(device_arguments *arguments, glue_call *call, int kept)
{
    gpr_request *request = &call->request;
    PyArray_Descr *descr = NULL;
    int failed = 1;

    if (arguments->mean == 0) return 0;
    request->has_given_mean = 1;
    request->mean = (const void *)(uintptr_t)arguments->mean;
    if (arguments->mean_dtype == NULL) {
        PyErr_SetString(PyExc_TypeError, "a mean needs mean_dtype");
        return -1;
    }
    if (PyArray_DescrConverter(arguments->mean_dtype, &descr) == NPY_FAIL) return -1;
    failed = glue_find_dtype(descr, "a mean of dtype", &request->mean_dtype) < 0;
    Py_DECREF(descr);
    if (failed) return -1;
    return read_steps(arguments->mean_strides, kept, "mean_strides", call->mean_strides,
                      &request->mean_strides);
}

static int read_device_layout(device_arguments *arguments, glue_call *call, int kept)
{
    gpr_request *request = &call->request;

    request->mask = (const uint8_t *)(uintptr_t)arguments->mask;
    request->result = (void *)(uintptr_t)arguments->result;
    request->result_on_device = arguments->result != 0;
    request->skip_nan = arguments->skip_nan;
    request->ddof = arguments->ddof;
    if (read_steps(arguments->strides, request->ndim, "strides", call->strides, &request->strides) <
        0)
        return -1;
    if (read_steps(arguments->mask_strides, request->ndim, "mask_strides", call->mask_strides,
                   &request->mask_strides) < 0)
        return -1;
    return read_means(arguments, call, kept);
}

/* Resolves the call, whose result's axes are known then. */
static int read_device_result(const glue_state *state, device_arguments *arguments, glue_call *call)
{
    PyArray_Descr *element = NULL, *requested = NULL;
    int failed = 1;

    if (read_device_types(call, arguments, &element, &requested) < 0) goto done;
    if (glue_read_row_start(arguments->start, &call->request) < 0) goto done;
    if (glue_resolve(call) != GPR_OK) {
        glue_raise(state);
        goto done;
    }
    if (read_steps(arguments->result_strides, call->result_ndim, "result_strides",
                   arguments->result_steps, &call->request.result_strides) < 0)
        goto done;
    failed = glue_set_result_descr(call, call->resolution.result, element, requested) < 0;
done:
    Py_XDECREF(element);
    Py_XDECREF(requested);
    return failed ? -1 : 0;
}

static int read_device_call(glue_state *state, device_arguments *arguments, glue_call *call)
{
    gpr_request *request = &call->request;

    memset(call, 0, sizeof *call);
    request->compute = GPR_DTYPE_DEFAULT;
    request->on_device = 1;
    request->device = arguments->device;
    request->block_size = arguments->block_size;
    request->grid_size = arguments->grid_size;
    request->stream = (void *)(uintptr_t)arguments->stream;
    request->data = PyLong_AsVoidPtr(arguments->pointer);
    if (request->data == NULL && PyErr_Occurred() != NULL) return -1;
    if (glue_read_operator(arguments->op, &request->op) < 0) return -1;
    if (glue_read_kernel(state, arguments->kernel, &request->kernel) < 0) return -1;
    const int kept = read_device_shape(call, arguments->shape, arguments->reduced);
    if (kept < 0) return -1;
    if (read_device_layout(arguments, call, kept) < 0) return -1;
    return read_device_result(state, arguments, call);
}

/* Queues a call whose result stays on the device. */
static PyObject *queue_on_device(glue_state *state, glue_call *call)
{
    gpr_status status = GPR_OK;

    Py_DECREF(call->result_descr);
    if (glue_locate(state, 0) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_reduce(&call->request);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    Py_RETURN_NONE;
}

/* reduce_device(op, pointer, shape, dtype, reduced, kernel, device, block_size=0, grid_size=0,
 *               compute=None, stream=0, *, strides=None, mask=0, mask_strides=None, result=0,
 *               result_strides=None, skip_nan=False, ddof=0.0, mean=0, mean_dtype=None,
 *               mean_strides=None, start=None)
 * A new array, or None with `result`, the address of device memory that will hold it. */
static PyObject *reduce_device(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"op",        "pointer", "shape",  "dtype",
                            "reduced",   "kernel",  "device", "block_size",
                            "grid_size", "compute", "stream", LAYOUT_KEYWORDS};
    glue_state *state = glue_state_of(module);
    device_arguments a = {.compute = Py_None};
    glue_call call;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOOiOi|IIOK" LAYOUT_FORMAT, names,
                                     &a.op, &a.pointer, &a.shape, &a.dtype, &a.reduced, &a.kernel,
                                     &a.device, &a.block_size, &a.grid_size, &a.compute, &a.stream,
                                     LAYOUT_ARGUMENTS(a))) {
        return NULL;
    }
    if (read_device_call(state, &a, &call) < 0) return NULL;
    return a.result != 0 ? queue_on_device(state, &call) : glue_run(state, &call);
}

static PyObject *make_milliseconds(const void *from, Py_ssize_t i)
{
    return PyFloat_FromDouble((double)((const float *)from)[i]);
}

static PyObject *run_measure(glue_state *state, glue_call *call, unsigned way, int warmup,
                             int repeats, unsigned long long flush_bytes)
{
    char result = 0; /* host memory that nobody writes: results stay on the device */
    float *milliseconds = PyMem_Calloc((size_t)(repeats > 0 ? repeats : 1), sizeof *milliseconds);
    PyObject *list = NULL;
    gpr_status status = GPR_OK;

    if (milliseconds == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (glue_locate(state, 0) < 0) goto done;
    if (!call->request.result_on_device) call->request.result = &result;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_measure_way(&call->request, way, warmup, repeats, flush_bytes, milliseconds);
    Py_END_ALLOW_THREADS
    list = status == GPR_OK ? glue_new_list(repeats, make_milliseconds, milliseconds)
                            : glue_raise(state);
done:
    PyMem_Free(milliseconds);
    return list;
}

/* measure(op, pointer, shape, dtype, reduced, kernel, device, block_size, grid_size, warmup,
 * repeats, flush_bytes,
 *         compute=None, stream=0, way=0, *, layout keywords as above) */
static PyObject *measure(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    enum { MOST_RUNS = 1000000 };
    static char *names[] = {"op",        "pointer", "shape",   "dtype",
                            "reduced",   "kernel",  "device",  "block_size",
                            "grid_size", "warmup",  "repeats", "flush_bytes",
                            "compute",   "stream",  "way",     LAYOUT_KEYWORDS};
    glue_state *state = glue_state_of(module);
    device_arguments a = {.compute = Py_None};
    unsigned long long flush_bytes = 0;
    unsigned way = 0;
    int warmup = 0, repeats = 0;
    glue_call call;
    PyObject *list = NULL;

    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "OOOOiOiIIiiK|OKI" LAYOUT_FORMAT, names, &a.op, &a.pointer,
            &a.shape, &a.dtype, &a.reduced, &a.kernel, &a.device, &a.block_size, &a.grid_size,
            &warmup, &repeats, &flush_bytes, &a.compute, &a.stream, &way, LAYOUT_ARGUMENTS(a))) {
        return NULL;
    }
    if (warmup < 0 || warmup > MOST_RUNS || repeats < 0 || repeats > MOST_RUNS) {
        PyErr_Format(PyExc_ValueError, "warmup and repeats must be from 0 to %d", MOST_RUNS);
        return NULL;
    }
    if (read_device_call(state, &a, &call) < 0) return NULL;
    list = run_measure(state, &call, way, warmup, repeats, flush_bytes);
    Py_DECREF(call.result_descr);
    return list;
}

/* price_ways(op, shape, dtype, reduced, facts, strides=None) -> prices in nanoseconds, of ways
 * counted from 1 */
static PyObject *price_ways(PyObject *module, PyObject *arguments)
{
    enum { MOST_WAYS = 1024 };
    glue_state *state = glue_state_of(module);
    device_arguments a = {.compute = Py_None};
    PyObject *given_facts = NULL, *list = NULL;
    double *prices = NULL;
    gpr_device_facts facts;
    glue_call call;
    uint32_t count = 0;

    if (!PyArg_ParseTuple(arguments, "OOOiO|O", &a.op, &a.shape, &a.dtype, &a.reduced, &given_facts,
                          &a.strides))
        return NULL;
    if (glue_read_facts(given_facts, &facts) < 0) return NULL;
    a.pointer = PyLong_FromLong(0);
    a.kernel = PyUnicode_FromString("fast");
    prices = PyMem_Calloc(MOST_WAYS, sizeof *prices);
    if (prices == NULL) PyErr_NoMemory();
    if (a.pointer == NULL || a.kernel == NULL || prices == NULL) goto done;
    if (read_device_call(state, &a, &call) < 0) goto done;
    Py_DECREF(call.result_descr);
    if (gpr_price_ways(&call.request, &facts, MOST_WAYS, prices, &count) != GPR_OK) {
        glue_raise(state);
        goto done;
    }
    if (count > MOST_WAYS) count = MOST_WAYS;
    list = glue_new_list((Py_ssize_t)count, glue_make_float, prices);
done:
    Py_XDECREF(a.pointer);
    Py_XDECREF(a.kernel);
    PyMem_Free(prices);
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

/* choose_kernel(name or alias, op, dtype) -> the name of the kernel that runs */
static PyObject *choose_kernel(PyObject *module, PyObject *arguments)
{
    const glue_state *state = glue_state_of(module);
    PyObject *kernel_name = NULL, *op_number = NULL, *dtype_name = NULL;
    gpr_kernel_info info;
    gpr_dtype dtype;
    gpr_operator op;
    int kernel = 0;

    if (!PyArg_ParseTuple(arguments, "OOO", &kernel_name, &op_number, &dtype_name)) return NULL;
    if (glue_read_kernel(state, kernel_name, &kernel) < 0 || glue_read_operator(op_number, &op) < 0)
        return NULL;
    if (read_dtype_name(dtype_name, &dtype) < 0) return NULL;
    kernel = gpr_choose_kernel(kernel, op, dtype, GPR_DTYPE_DEFAULT);
    if (gpr_kernel_info_at(kernel, &info) != GPR_OK) return glue_raise(state);
    return PyUnicode_FromString(info.name);
}

/* warm(op, shape, dtype, reduced, kernel, facts, way=0, compute=None, block_size=0,
 *      on_device=True, *, layout keywords as above) -> how many programs were compiled */
static PyObject *warm(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"op",  "shape",   "dtype",      "reduced",   "kernel",       "facts",
                            "way", "compute", "block_size", "on_device", LAYOUT_KEYWORDS};
    glue_state *state = glue_state_of(module);
    device_arguments a = {.compute = Py_None};
    PyObject *given_facts = NULL;
    gpr_device_facts facts;
    glue_call call;
    unsigned way = 0;
    int on_device = 1, compiled = 0;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOiOO|IOIp" LAYOUT_FORMAT, names, &a.op,
                                     &a.shape, &a.dtype, &a.reduced, &a.kernel, &given_facts, &way,
                                     &a.compute, &a.block_size, &on_device, LAYOUT_ARGUMENTS(a))) {
        return NULL;
    }
    if (glue_read_facts(given_facts, &facts) < 0) return NULL;
    facts.way = way;
    a.pointer = PyLong_FromLong(0);
    if (a.pointer == NULL) return NULL;
    const int failed = read_device_call(state, &a, &call) < 0;
    Py_DECREF(a.pointer);
    if (failed) return NULL;
    Py_DECREF(call.result_descr);
    call.request.on_device = on_device;
    if (glue_locate(state, 1) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_warm(&call.request, &facts, &compiled);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? PyLong_FromLong(compiled) : glue_raise(state);
}

/* compile_program(kernel, op, dtype, compute, block_size, cc, variant=-1) -> bytes of machine
 * code */
static PyObject *compile_program(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    PyObject *kernel_name = NULL, *op_number = NULL, *dtype_name = NULL, *compute_name = NULL;
    gpr_dtype dtype, compute;
    gpr_operator op;
    gpr_status status = GPR_OK;
    uint64_t bytes = 0;
    unsigned block = 0;
    int kernel = 0, cc = 0, variant = -1;

    if (!PyArg_ParseTuple(arguments, "OOOOIi|i", &kernel_name, &op_number, &dtype_name,
                          &compute_name, &block, &cc, &variant))
        return NULL;
    if (glue_read_kernel(state, kernel_name, &kernel) < 0) return NULL;
    if (kernel < 0 && gpr_find_kernel("auto", &kernel) != GPR_OK) return glue_raise(state);
    if (glue_read_operator(op_number, &op) < 0) return NULL;
    if (read_dtype_name(dtype_name, &dtype) < 0 || read_dtype_name(compute_name, &compute) < 0)
        return NULL;
    if (glue_locate(state, 1) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_compile_program(kernel, op, dtype, compute, block, variant, cc, &bytes);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? PyLong_FromUnsignedLongLong(bytes) : glue_raise(state);
}

/* write_program(kernel, op, dtype, block_size) -> text */
static PyObject *write_program(PyObject *module, PyObject *arguments)
{
    enum { ROOM = 4096 };
    glue_state *state = glue_state_of(module);
    PyObject *kernel_name = NULL, *op_number = NULL, *dtype_name = NULL;
    char text[ROOM];
    gpr_dtype dtype;
    gpr_operator op;
    unsigned block = 0;
    int kernel = 0;

    if (!PyArg_ParseTuple(arguments, "OOOI", &kernel_name, &op_number, &dtype_name, &block))
        return NULL;
    if (glue_read_kernel(state, kernel_name, &kernel) < 0) return NULL;
    if (kernel < 0 && gpr_find_kernel("auto", &kernel) != GPR_OK) return glue_raise(state);
    if (glue_read_operator(op_number, &op) < 0 || read_dtype_name(dtype_name, &dtype) < 0)
        return NULL;
    if (gpr_write_program(kernel, op, dtype, block, text, sizeof text) != GPR_OK)
        return glue_raise(state);
    return PyUnicode_FromString(text);
}

/* compile_dot(a, b, factor, compute, block_size, cc) -> bytes of machine code */
static PyObject *compile_dot(PyObject *module, PyObject *arguments)
{
    enum { A, B, FACTOR, COMPUTE, DTYPE_COUNT };
    glue_state *state = glue_state_of(module);
    PyObject *names[DTYPE_COUNT];
    gpr_dtype dtypes[DTYPE_COUNT];
    gpr_status status = GPR_OK;
    uint64_t bytes = 0;
    unsigned block = 0;
    int cc = 0;

    if (!PyArg_ParseTuple(arguments, "OOOOIi", &names[A], &names[B], &names[FACTOR],
                          &names[COMPUTE], &block, &cc))
        return NULL;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (read_dtype_name(names[i], &dtypes[i]) < 0) return NULL;
    if (glue_locate(state, 1) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status =
        gpr_compile_dot(dtypes[A], dtypes[B], dtypes[FACTOR], dtypes[COMPUTE], block, cc, &bytes);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? PyLong_FromUnsignedLongLong(bytes) : glue_raise(state);
}

/* compile_dot_along(a, b, factor, compute, products, conjugate, root, block_size, cc) -> bytes of
 * machine code */
static PyObject *compile_dot_along(PyObject *module, PyObject *arguments)
{
    enum { A, B, FACTOR, COMPUTE, DTYPE_COUNT };
    glue_state *state = glue_state_of(module);
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT};
    PyObject *names[DTYPE_COUNT];
    gpr_dtype dtypes[DTYPE_COUNT];
    gpr_status status = GPR_OK;
    uint64_t bytes = 0;
    int products = 0, cc = 0;

    if (!PyArg_ParseTuple(arguments, "OOOOippIi", &names[A], &names[B], &names[FACTOR],
                          &names[COMPUTE], &products, &request.conjugate, &request.root,
                          &request.block_size, &cc))
        return NULL;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (read_dtype_name(names[i], &dtypes[i]) < 0) return NULL;
    if (glue_locate(state, 1) < 0) return NULL;
    request.a.dtype = dtypes[A];
    request.b.dtype = dtypes[B];
    request.factor = dtypes[FACTOR];
    request.compute = dtypes[COMPUTE];
    request.products = (gpr_products)products;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_compile_dot_along(&request, cc, &bytes);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? PyLong_FromUnsignedLongLong(bytes) : glue_raise(state);
}

PyMethodDef glue_memory_methods[] = {
    {"pinned_bytes", pinned_bytes, METH_O,
     PyDoc_STR("pinned_bytes(size) -> uint8 array, or None where there is no GPU")},
    {"alloc_device", alloc_device, METH_VARARGS,
     PyDoc_STR("alloc_device(device, bytes) -> pointer")},
    {"upload", upload, METH_VARARGS, PyDoc_STR("upload(device, pointer, contiguous buffer)")},
    {"free_device", free_device, METH_VARARGS, PyDoc_STR("free_device(device, pointer)")},
    {"download", download, METH_VARARGS,
     PyDoc_STR("download(device, pointer, contiguous writable buffer, stream=0)")},
    {"reduce_device", (PyCFunction)(void (*)(void))reduce_device, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("reduce_device(op, pointer, shape, dtype, reduced, kernel, device, block_size=0, "
               "grid_size=0, compute=None, stream=0, *, strides=None, mask=0, mask_strides=None, "
               "result=0, result_strides=None, skip_nan=False, ddof=0.0)")},
    {"measure", (PyCFunction)(void (*)(void))measure, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("measure(op, pointer, shape, dtype, reduced, kernel, device, block_size, grid_size, "
               "warmup, repeats, flush_bytes, compute=None, stream=0, way=0, *, strides=None, "
               "mask=0, "
               "mask_strides=None, result=0, result_strides=None, skip_nan=False, ddof=0.0) -> "
               "list of milliseconds")},
    {"price_ways", price_ways, METH_VARARGS,
     PyDoc_STR("price_ways(op, shape, dtype, reduced, facts, strides=None) -> list of ns")},
    {"warm", (PyCFunction)(void (*)(void))warm, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("warm(op, shape, dtype, reduced, kernel, facts, way=0, compute=None, block_size=0, "
               "on_device=True, *, strides=None, mask=0, mask_strides=None, result=0, "
               "result_strides=None, skip_nan=False, ddof=0.0) -> how many programs were "
               "compiled")},
    {"choose_kernel", choose_kernel, METH_VARARGS,
     PyDoc_STR("choose_kernel(name or alias, op, dtype) -> the name of the kernel that runs")},
    {"compile_program", compile_program, METH_VARARGS,
     PyDoc_STR("compile_program(kernel, op, dtype, compute, block_size, cc, variant=-1) -> bytes "
               "of machine code")},
    {"write_program", write_program, METH_VARARGS,
     PyDoc_STR("write_program(kernel, op, dtype, block_size) -> the text that NVRTC receives")},
    {"compile_dot", compile_dot, METH_VARARGS,
     PyDoc_STR("compile_dot(a, b, factor, compute, block_size, cc) -> bytes of machine code")},
    {"compile_dot_along", compile_dot_along, METH_VARARGS,
     PyDoc_STR("compile_dot_along(a, b, factor, compute, products, conjugate, root, block_size, "
               "cc) -> bytes of machine code")},
    {NULL, NULL, 0, NULL},
};
