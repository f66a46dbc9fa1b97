/* Reducing device arrays for Python: an imported array becomes a request whose result a callable of Python makes room for, in the
 * caller's library; and the order of streams around it. */
#include "python/device_array.h"

/* ---------------------------------------------------------------- requests ------------------- */

/* The compute type: None, a name of the registry, or anything NumPy takes for a dtype. */
static int read_compute(PyObject *object, gpr_dtype *compute)
{
    PyArray_Descr *descr = NULL;
    const char *name = NULL;
    int failed = 0;

    if (PyUnicode_Check(object)) {
        name = PyUnicode_AsUTF8(object);
        if (name == NULL) return -1;
        *compute = gpr_find_dtype(name);
        if (*compute != GPR_DTYPE_DEFAULT) return 0;
    }
    if (glue_read_descr(object, &descr) < 0) return -1;
    if (descr == NULL) return 0;
    failed = glue_find_dtype(descr, "reducing to dtype", compute) < 0;
    Py_DECREF(descr);
    return failed ? -1 : 0;
}

/* The array's device is where it is reduced; another one is a mistake. */
static int check_device(const gpr_request *request, const glue_device_array *source)
{
    const int asked = request->device;

    if (asked == GPR_DEVICE_CPU) {
        PyErr_Format(
            PyExc_ValueError,
            "the array is in the memory of device \"cuda:%d\": to reduce it on the CPU, copy it first, as with "
            "cupy.asnumpy(a), a.cpu().numpy() or numpy.asarray(a)",
            source->device);
        return -1;
    }
    if (asked >= 0 && asked != source->device) {
        PyErr_Format(PyExc_ValueError,
                     "the array is in the memory of device \"cuda:%d\", not of \"cuda:%d\": move it there, or leave "
                     "device= out",
                     source->device, asked);
        return -1;
    }
    return 0;
}

/* A mask broadcasts to the array's shape: its axes are the array's last ones, those of one element count for all. */
static int read_mask(const glue_state *state, PyObject *object, glue_device_array *source, int64_t *strides)
{
    if (object == Py_None) return 0;
    if (!glue_is_device_array(state, object)) {
        PyErr_SetString(PyExc_TypeError, "the mask of a device array must be a device array");
        return -1;
    }
    glue_device_array *mask = (glue_device_array *)object;
    if (mask->dtype != GPR_BOOL) {
        PyErr_Format(PyExc_TypeError,
                     "Cannot cast array data from dtype('%s') to dtype('bool') according to the rule "
                     "'safe'",
                     gpr_dtype_name(mask->dtype));
        return -1;
    }
    if (mask->device != source->device) {
        PyErr_Format(PyExc_ValueError, "the array is on device \"cuda:%d\" and its mask on \"cuda:%d\"", source->device,
                     mask->device);
        return -1;
    }
    const int more = source->ndim - mask->ndim;
    int fits = more >= 0;
    for (int i = 0; i < source->ndim && fits; i++) {
        const int64_t extent = i < more ? 1 : glue_shape_of(mask)[i - more];
        strides[i] = extent == 1 ? 0 : glue_strides_of(mask)[i - more];
        fits = extent == 1 || extent == glue_shape_of(source)[i];
    }
    if (fits) return 1;
    PyErr_SetString(PyExc_ValueError, "the mask cannot be broadcast to the shape of the array");
    return -1;
}

/* A mean is a number for all rows, or an array that broadcasts to the result's shape with the reduced axes in it: its steps along the kept
 * axes. */
static int read_mean(const glue_state *state, PyObject *object, glue_device_array *source, const char *reduced,
                     glue_call *call)
{
    gpr_request *request = &call->request;
    Py_complex number;
    int kept = 0, fits = 1;

    if (object == Py_None) return 0;
    request->has_given_mean = 1;
    if (!glue_is_device_array(state, object)) {
        number = PyComplex_AsCComplex(object);
        if (number.real == -1 && PyErr_Occurred() != NULL) return -1;
        request->mean_dtype = PyComplex_Check(object) ? GPR_COMPLEX128 : GPR_FLOAT64;
        request->mean_value[0] = number.real;
        request->mean_value[1] = number.imag;
        return 0;
    }
    glue_device_array *mean = (glue_device_array *)object;
    if (mean->device != source->device) {
        PyErr_Format(PyExc_TypeError, "the array is on device \"cuda:%d\" and its mean on \"cuda:%d\"", source->device,
                     mean->device);
        return -1;
    }
    const int more = source->ndim - mean->ndim;
    fits = more >= 0;
    for (int i = 0; i < source->ndim && fits; i++) {
        const int64_t extent = i < more ? 1 : glue_shape_of(mean)[i - more];
        if (!reduced[i]) call->mean_strides[kept++] = extent == 1 ? 0 : glue_strides_of(mean)[i - more];
        fits = extent == 1 || (!reduced[i] && extent == glue_shape_of(source)[i]);
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the mean cannot be broadcast to the shape of the result with keepdims=True");
        return -1;
    }
    request->mean_dtype = mean->dtype;
    request->mean = mean->data;
    request->mean_strides = call->mean_strides;
    return 0;
}

/* Copies shape and strides with the reduced axes last, and the shape of the result. */
static void set_layout(glue_call *call, glue_device_array *source, const int64_t *mask_strides, const char *reduced,
                       int keepdims)
{
    int at = 0, kept = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < source->ndim; i++) {
            if (reduced[i] != pass) continue;
            call->shape[at] = glue_shape_of(source)[i];
            call->strides[at] = glue_strides_of(source)[i];
            if (mask_strides != NULL) call->mask_strides[at] = mask_strides[i];
            at++;
            kept += !pass;
        }
    }
    call->result_ndim = 0;
    if (call->request.op == GPR_OP_MINMAX) call->result_shape[call->result_ndim++] = 2;
    for (int i = 0; i < source->ndim; i++) {
        if (!reduced[i] || keepdims)
            call->result_shape[call->result_ndim++] = reduced[i] ? 1 : glue_shape_of(source)[i];
    }
    call->request.ndim = source->ndim;
    call->request.reduced = source->ndim - kept;
    call->request.shape = call->shape;
    call->request.strides = call->strides;
    call->request.data = source->data;
    call->request.on_device = 1;
    call->request.device = source->device;
}

/* ---------------------------------------------------------------- results -------------------- */

PyObject *glue_result_shape(const glue_call *call)
{
    PyObject *shape = PyTuple_New(call->result_ndim);

    for (int i = 0; i < call->result_ndim && shape != NULL; i++) {
        PyObject *extent = PyLong_FromSsize_t(call->result_shape[i]);
        if (extent == NULL) {
            Py_CLEAR(shape);
            break;
        }
        PyTuple_SET_ITEM(shape, i, extent);
    }
    return shape;
}

/* Calls make(shape, dtype's name); new reference to its (result, target). */
static PyObject *make_room(PyObject *make, const glue_call *call, gpr_dtype dtype)
{
    PyObject *shape = glue_result_shape(call), *name = NULL, *pair = NULL;

    if (shape == NULL) return NULL;
    name = PyUnicode_InternFromString(gpr_dtype_name(dtype));
    if (name == NULL) goto done;
    PyObject *const arguments[] = {shape, name};
    pair = PyObject_Vectorcall(make, arguments, 2, NULL);
    if (pair != NULL && (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2)) {
        PyErr_SetString(PyExc_TypeError, "what makes room for a result returns the result and its memory");
        Py_CLEAR(pair);
    }
done:
    Py_XDECREF(name);
    Py_DECREF(shape);
    return pair;
}

/* Steps of the kept axes from those of all of the result's, which has the reduced ones too if keepdims. */
static void set_result_strides(glue_call *call, const int64_t *strides, const char *reduced, int ndim, int keepdims,
                               int64_t *kept)
{
    int at = 0, count = 0;

    if (call->request.op == GPR_OP_MINMAX) kept[count++] = strides[at++]; /* from minima to maxima */
    for (int i = 0; i < ndim; i++) {
        if (!reduced[i]) {
            kept[count++] = strides[at++];
        } else if (keepdims) {
            at++;
        }
    }
    call->request.result_strides = kept;
}

static int check_target(const glue_call *call, const int64_t *shape, const int64_t *strides, int ndim)
{
    int same = ndim == call->result_ndim;

    for (int i = 0; i < ndim && same; i++) same = shape[i] == call->result_shape[i];
    if (!same) {
        PyErr_SetString(PyExc_ValueError, "the memory for the result has another shape than the result");
        return -1;
    }
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 0) return 0; /* whatever the steps */
    }
    for (int i = 0; i < ndim; i++) {
        if (strides[i] == 0 && shape[i] > 1) {
            PyErr_SetString(PyExc_ValueError, "output array is a broadcast one: several of its elements share memory");
            return -1;
        }
    }
    return 0;
}

static int use_device_target(glue_call *call, glue_device_array *target, gpr_dtype dtype)
{
    if (target->read_only) {
        PyErr_SetString(PyExc_ValueError, "output array is read-only");
        return -1;
    }
    if (target->dtype != dtype) {
        PyErr_Format(PyExc_TypeError, "the result is of dtype %s, the memory for it of dtype %s", gpr_dtype_name(dtype),
                     gpr_dtype_name(target->dtype));
        return -1;
    }
    if (target->device != call->request.device) {
        PyErr_Format(PyExc_ValueError, "the array is on device \"cuda:%d\" and the result's memory on \"cuda:%d\"",
                     call->request.device, target->device);
        return -1;
    }
    call->request.result = target->data;
    call->request.result_on_device = 1;
    return check_target(call, glue_shape_of(target), glue_strides_of(target), target->ndim);
}

static int use_host_target(glue_call *call, PyArrayObject *target, gpr_dtype dtype, int64_t *strides)
{
    int64_t shape[GPR_MAX_NDIM];
    gpr_dtype found = GPR_BOOL;

    if (glue_find_dtype(PyArray_DESCR(target), "a result of dtype", &found) < 0) return -1;
    if (found != dtype || !PyArray_ISBEHAVED(target)) {
        PyErr_Format(PyExc_TypeError, "the memory for the result must be aligned, writeable, and of dtype %s",
                     gpr_dtype_name(dtype));
        return -1;
    }
    for (int i = 0; i < PyArray_NDIM(target); i++) {
        shape[i] = PyArray_DIM(target, i);
        strides[i] = PyArray_STRIDE(target, i);
    }
    call->request.result = PyArray_DATA(target);
    return check_target(call, shape, strides, PyArray_NDIM(target));
}

PyObject *glue_run_into(glue_state *state, glue_call *call, gpr_dtype dtype, PyObject *result, PyObject *target,
                        const char *reduced, int keepdims)
{
    int64_t host_strides[GPR_MAX_NDIM], kept[GPR_MAX_NDIM];
    const int64_t *strides = host_strides;

    if (glue_locate(state, 0) < 0) return NULL;
    if (glue_is_device_array(state, target)) {
        strides = glue_strides_of((glue_device_array *)target);
        if (use_device_target(call, (glue_device_array *)target, dtype) < 0) return NULL;
    } else if (PyArray_Check(target)) {
        if (use_host_target(call, (PyArrayObject *)target, dtype, host_strides) < 0) return NULL;
    } else {
        PyErr_SetString(PyExc_TypeError, "the memory for a result is a DeviceArray or a NumPy array");
        return NULL;
    }
    set_result_strides(call, strides, reduced, call->request.ndim, keepdims, kept);
    return glue_reduce_unlocked(&call->request) == GPR_OK ? Py_NewRef(result) : glue_raise(state);
}

/* Runs the request into the target that `make` gives; the result that it gives with it, or NULL. */
static PyObject *run_into_made(glue_state *state, glue_call *call, PyObject *make, const char *reduced, int keepdims)
{
    const gpr_request *request = &call->request;
    const gpr_dtype dtype = gpr_result_dtype(request->op, request->dtype, request->compute);
    PyObject *pair = NULL, *result = NULL;

    if (dtype == GPR_DTYPE_DEFAULT) return glue_raise(state);
    pair = make_room(make, call, dtype);
    if (pair == NULL) return NULL;
    result = glue_run_into(state, call, dtype, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), reduced, keepdims);
    Py_DECREF(pair);
    return result;
}

int glue_read_device_call(const glue_state *state, glue_device_array *source, const glue_arguments *given,
                          glue_call *call, char *reduced, int *keepdims)
{
    gpr_request *request = &call->request;
    int64_t mask_strides[GPR_MAX_NDIM];
    int masked = 0;

    memset(request, 0, sizeof *request);
    request->compute = GPR_DTYPE_DEFAULT;
    request->dtype = source->dtype;
    if (glue_read_operator(given->op, &request->op) < 0) return -1;
    if (glue_read_leave_out(given->skip_nan, given->ddof, request) < 0) return -1;
    if (glue_read_axes(state, given->axis, source->ndim, request, reduced) < 0) return -1;
    if (glue_read_keepdims(given->keepdims, keepdims) < 0) return -1;
    if (glue_read_options(state, given->options, call) < 0) return -1;
    if (check_device(request, source) < 0) return -1;
    if (read_compute(given->dtype, &request->compute) < 0) return -1;
    if (read_mean(state, given->mean, source, reduced, call) < 0) return -1;
    masked = read_mask(state, given->mask, source, mask_strides);
    if (masked < 0) return -1;
    set_layout(call, source, masked ? mask_strides : NULL, reduced, *keepdims);
    if (masked) {
        request->mask = (const uint8_t *)((glue_device_array *)given->mask)->data;
        request->mask_strides = call->mask_strides;
    }
    return 0;
}

/* reduce_on_device(op, source, axis, dtype, keepdims, mask, kernel, device, block_size, grid_size, stream, skip_nan, ddof, make,
 *                  mean=None) */
static PyObject *reduce_on_device(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum {
        OP,
        SOURCE,
        AXIS,
        DTYPE,
        KEEPDIMS,
        MASK,
        OPTIONS,
        SKIP_NAN = OPTIONS + GLUE_OPTION_COUNT,
        DDOF,
        MAKE,
        MEAN,
        MOST

    };
    glue_state *state = glue_state_of(module);
    char reduced[GPR_MAX_NDIM];
    int keepdims = 0;
    glue_call call;

    if ((count != MEAN && count != MOST) || !glue_is_device_array(state, from[SOURCE])) {
        PyErr_SetString(PyExc_TypeError,
                        "reduce_on_device takes an operator's number, a DeviceArray and twelve or thirteen more");
        return NULL;
    }
    PyObject *const mean = count == MOST ? from[MEAN] : Py_None;
    const glue_arguments given = {from[OP],       from[AXIS], from[DTYPE], from[KEEPDIMS], from[MASK],
                                  from[SKIP_NAN], from[DDOF], mean,        from + OPTIONS};
    glue_device_array *source = (glue_device_array *)from[SOURCE];
    if (glue_read_device_call(state, source, &given, &call, reduced, &keepdims) < 0) return NULL;
    return run_into_made(state, &call, from[MAKE], reduced, keepdims);
}

/* ---------------------------------------------------------------- products ------------------- */

static int read_factor(glue_device_array *array, gpr_factor *factor)
{
    if (array->ndim != 1) {
        PyErr_SetString(PyExc_TypeError, "the arrays of a dot on a device have one axis");
        return -1;
    }
    factor->dtype = array->dtype;
    factor->data = array->data;
    factor->stride = glue_strides_of(array)[0];
    return 0;
}

static int check_pair(glue_device_array *a, glue_device_array *b)
{
    if (glue_shape_of(a)[0] != glue_shape_of(b)[0]) {
        PyErr_SetString(PyExc_ValueError, "the arrays of a dot have equal lengths");
        return -1;
    }
    if (a->device != b->device) {
        PyErr_Format(PyExc_ValueError, "the first array is on device \"cuda:%d\" and the second on \"cuda:%d\"",
                     a->device, b->device);
        return -1;
    }
    return 0;
}

/* dot_on_device(a, b, factor, dtype, kernel, device, block_size, grid_size, stream, make): DeviceArrays of one axis and equal
 * lengths, the name of their common dtype, and what makes room for the result */
static PyObject *dot_on_device(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { A, B, FACTOR, DTYPE, OPTIONS, MAKE = OPTIONS + GLUE_OPTION_COUNT, COUNT };
    glue_state *state = glue_state_of(module);
    gpr_dot_request request = {.compute = GPR_DTYPE_DEFAULT, .on_device = 1};
    glue_call call = {.result_ndim = 0};
    gpr_dtype result_dtype = GPR_DTYPE_DEFAULT;
    PyObject *pair = NULL, *result = NULL;

    if (count != COUNT || !glue_is_device_array(state, from[A]) || !glue_is_device_array(state, from[B])) {
        PyErr_SetString(PyExc_TypeError, "dot_on_device takes two DeviceArrays and eight more arguments");
        return NULL;
    }
    glue_device_array *a = (glue_device_array *)from[A], *b = (glue_device_array *)from[B];
    if (read_factor(a, &request.a) < 0 || read_factor(b, &request.b) < 0 || check_pair(a, b) < 0) return NULL;
    request.n = (uint64_t)glue_shape_of(a)[0];
    if (glue_read_dot_options(state, from + OPTIONS, &call, &request) < 0) return NULL;
    if (check_device(&call.request, a) < 0) return NULL;
    call.request.device = request.device = a->device;
    if (read_compute(from[FACTOR], &request.factor) < 0 || read_compute(from[DTYPE], &request.compute) < 0) return NULL;
    result_dtype = request.compute == GPR_DTYPE_DEFAULT ? request.factor : request.compute;
    if (glue_locate(state, 0) < 0) return NULL;
    pair = make_room(from[MAKE], &call, result_dtype);
    if (pair == NULL) return NULL;
    if (!glue_is_device_array(state, PyTuple_GET_ITEM(pair, 1))) {
        PyErr_SetString(PyExc_TypeError, "the memory for the result of a dot on a device is a DeviceArray");
    } else if (use_device_target(&call, (glue_device_array *)PyTuple_GET_ITEM(pair, 1), result_dtype) == 0) {
        request.result = call.request.result;
        request.result_on_device = 1;
        result = glue_dot_unlocked(&request) == GPR_OK ? Py_NewRef(PyTuple_GET_ITEM(pair, 0)) : glue_raise(state);
    }
    Py_DECREF(pair);
    return result;
}

/* ---------------------------------------------------------------- memory --------------------- */

/* Device memory that its capsule frees. */
static const char memory_name[] = "gpureduce.device_memory";

typedef struct device_memory {
    int device;
    void *data;
} device_memory;

static void free_memory(PyObject *capsule)
{
    device_memory *memory = PyCapsule_GetPointer(capsule, memory_name);

    if (memory == NULL) return;
    Py_BEGIN_ALLOW_THREADS(void)
    gpr_free_device(memory->device, memory->data); /* waits for what the device still does with it */
    Py_END_ALLOW_THREADS
    free(memory);
}

/* device_memory(device, bytes) -> (address, the owner that frees it) */
static PyObject *device_memory_new(PyObject *module, PyObject *arguments)
{
    unsigned long long bytes = 0;
    device_memory *memory = NULL;
    PyObject *owner = NULL;
    gpr_status status = GPR_OK;
    int device = 0;

    if (!PyArg_ParseTuple(arguments, "iK", &device, &bytes)) return NULL;
    memory = calloc(1, sizeof *memory);
    if (memory == NULL) return PyErr_NoMemory();
    memory->device = device;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_alloc_device(device, bytes, &memory->data);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) {
        free(memory);
        return glue_raise(glue_state_of(module));
    }
    owner = PyCapsule_New(memory, memory_name, free_memory);
    if (owner == NULL) {
        (void)gpr_free_device(device, memory->data);
        free(memory);
        return NULL;
    }
    return Py_BuildValue("NN", PyLong_FromVoidPtr(memory->data), owner);
}

static int is_compact(glue_device_array *array)
{
    int64_t step = (int64_t)gpr_dtype_bytes(array->dtype);

    for (int i = array->ndim - 1; i >= 0; i--) {
        if (glue_shape_of(array)[i] != 1 && glue_strides_of(array)[i] != step) return 0;
        step *= glue_shape_of(array)[i];
    }
    return 1;
}

/* fill_device(array, element as bytes, stream): writes the element to all of a C-contiguous array, in order on the stream */
static PyObject *fill_device(PyObject *module, PyObject *arguments)
{
    const glue_state *state = glue_state_of(module);
    PyObject *object = NULL, *handle = NULL;
    const char *element = NULL;
    Py_ssize_t bytes = 0;
    uint64_t count = 1;
    void *stream = NULL;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "O!y#O", state->device_array_type, &object, &element, &bytes, &handle))
        return NULL;
    if (glue_read_stream(handle, &stream) < 0) return NULL;
    glue_device_array *array = (glue_device_array *)object;
    if ((size_t)bytes != gpr_dtype_bytes(array->dtype) || !is_compact(array) || array->read_only) {
        PyErr_SetString(PyExc_ValueError, "only C-contiguous arrays that may be written are filled, with an element of "
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

/* queue_upload(array, source, stream): copies a buffer to a C-contiguous array, in order on the stream; the buffer stays as it is until
 * the stream has passed the copy */
static PyObject *queue_upload(PyObject *module, PyObject *arguments)
{
    const glue_state *state = glue_state_of(module);
    PyObject *object = NULL, *handle = NULL;
    Py_buffer source;
    uint64_t bytes = 0;
    void *stream = NULL;
    gpr_status status = GPR_OK;
    int failed = 1;

    if (!PyArg_ParseTuple(arguments, "O!y*O", state->device_array_type, &object, &source, &handle)) return NULL;
    glue_device_array *array = (glue_device_array *)object;
    if (glue_read_stream(handle, &stream) < 0) goto done;
    bytes = gpr_dtype_bytes(array->dtype);
    for (int i = 0; i < array->ndim; i++) bytes *= (uint64_t)glue_shape_of(array)[i];
    if ((uint64_t)source.len != bytes || !is_compact(array) || array->read_only) {
        PyErr_SetString(PyExc_ValueError,
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

/* Addresses from the first byte of an array to one past its last. */
static void find_bounds(glue_device_array *array, uintptr_t *low, uintptr_t *high)
{
    *low = (uintptr_t)array->data;
    *high = *low + gpr_dtype_bytes(array->dtype);
    for (int i = 0; i < array->ndim; i++) {
        const int64_t extent = glue_shape_of(array)[i], stride = glue_strides_of(array)[i];
        if (extent == 0) {
            *high = *low;
            return;
        }
        const uintptr_t span = (uintptr_t)((extent - 1) * stride);
        if (stride < 0) {
            *low += span;
        } else {
            *high += span;
        }
    }
}

int glue_may_overlap(glue_device_array *a, glue_device_array *b)
{
    uintptr_t low[2], high[2];

    find_bounds(a, &low[0], &high[0]);
    find_bounds(b, &low[1], &high[1]);
    return low[0] < high[1] && low[1] < high[0];
}

/* may_overlap(a, b) -> whether the arrays' bounds have memory in common */
static PyObject *may_overlap(PyObject *module, PyObject *arguments)
{
    PyTypeObject *type = (PyTypeObject *)glue_state_of(module)->device_array_type;
    PyObject *a = NULL, *b = NULL;

    if (!PyArg_ParseTuple(arguments, "O!O!", type, &a, type, &b)) return NULL;
    return PyBool_FromLong(glue_may_overlap((glue_device_array *)a, (glue_device_array *)b));
}

/* ---------------------------------------------------------------- streams -------------------- */

/* device_stream(device) -> handle of the library's own stream */
static PyObject *device_stream(PyObject *module, PyObject *ordinal)
{
    const long device = PyLong_AsLong(ordinal);
    void *stream = NULL;
    gpr_status status = GPR_OK;

    if (device == -1 && PyErr_Occurred() != NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_device_stream((int)device, &stream);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? PyLong_FromVoidPtr(stream) : glue_raise(glue_state_of(module));
}

/* stream_handle(stream) -> the handle of an int or of another library's stream object */
static PyObject *stream_handle(PyObject *module, PyObject *object)
{
    void *stream = NULL;

    (void)module;
    return glue_read_stream(object, &stream) < 0 ? NULL : PyLong_FromVoidPtr(stream);
}

/* order_streams(device, first, then) */
static PyObject *order_streams(PyObject *module, PyObject *arguments)
{
    PyObject *first_handle = NULL, *then_handle = NULL;
    void *first = NULL, *then = NULL;
    int device = 0;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "iOO", &device, &first_handle, &then_handle)) return NULL;
    if (glue_read_stream(first_handle, &first) < 0 || glue_read_stream(then_handle, &then) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_order_streams(device, first, then);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    Py_RETURN_NONE;
}

static const char mark_name[] = "gpureduce.mark";

static void destroy_mark(PyObject *capsule)
{
    gpr_mark_destroy(PyCapsule_GetPointer(capsule, mark_name));
}

/* mark_stream(device, stream) -> mark */
static PyObject *mark_stream(PyObject *module, PyObject *arguments)
{
    PyObject *handle = NULL, *capsule = NULL;
    void *stream = NULL;
    gpr_mark *mark = NULL;
    int device = 0;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "iO", &device, &handle)) return NULL;
    if (glue_read_stream(handle, &stream) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_mark_stream(device, stream, &mark);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    capsule = PyCapsule_New(mark, mark_name, destroy_mark);
    if (capsule == NULL) gpr_mark_destroy(mark);
    return capsule;
}

/* mark_passed(mark) -> whether the device has come there */
static PyObject *mark_passed(PyObject *module, PyObject *capsule)
{
    const gpr_mark *mark = PyCapsule_GetPointer(capsule, mark_name);
    int passed = 0;
    gpr_status status = GPR_OK;

    if (mark == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_mark_passed(mark, &passed);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? PyBool_FromLong(passed) : glue_raise(glue_state_of(module));
}

/* mark_wait(mark) */
static PyObject *mark_wait(PyObject *module, PyObject *capsule)
{
    const gpr_mark *mark = PyCapsule_GetPointer(capsule, mark_name);
    gpr_status status = GPR_OK;

    if (mark == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_mark_wait(mark);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    Py_RETURN_NONE;
}

PyMethodDef glue_device_methods[] = {
    {"reduce_on_device", (PyCFunction)(void (*)(void))reduce_on_device, METH_FASTCALL,
     PyDoc_STR(
         "reduce_on_device(op, source, axis, dtype, keepdims, mask, kernel, device, block_size, grid_size, stream, "
         "skip_nan, ddof, make, mean=None) -> what make(shape, dtype) returned first; its second is the result's "
         "memory")},
    {"dot_on_device", (PyCFunction)(void (*)(void))dot_on_device, METH_FASTCALL,
     PyDoc_STR(
         "dot_on_device(a, b, factor, dtype, kernel, device, block_size, grid_size, stream, make) -> what make(shape, "
         "dtype) returned first; its second is the result's memory")},
    {"device_memory", device_memory_new, METH_VARARGS, PyDoc_STR("device_memory(device, bytes) -> (address, owner)")},
    {"fill_device", fill_device, METH_VARARGS, PyDoc_STR("fill_device(array, element as bytes, stream)")},
    {"queue_upload", queue_upload, METH_VARARGS, PyDoc_STR("queue_upload(array, source, stream)")},
    {"may_overlap", may_overlap, METH_VARARGS, PyDoc_STR("may_overlap(a, b) -> bool")},
    {"device_stream", device_stream, METH_O, PyDoc_STR("device_stream(device) -> handle")},
    {"stream_handle", stream_handle, METH_O, PyDoc_STR("stream_handle(stream) -> handle")},
    {"order_streams", order_streams, METH_VARARGS, PyDoc_STR("order_streams(device, first, then)")},
    {"mark_stream", mark_stream, METH_VARARGS, PyDoc_STR("mark_stream(device, stream) -> mark")},
    {"mark_passed", mark_passed, METH_O, PyDoc_STR("mark_passed(mark) -> bool")},
    {"mark_wait", mark_wait, METH_O, PyDoc_STR("mark_wait(mark)")},
    {NULL, NULL, 0, NULL},
};
