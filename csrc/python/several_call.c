/* Several reductions of a device array in one pass: plans and launches, for gpureduce._one_pass.
 * A plan is bytes, as gpr_several_plan has no pointers. */
#include "python/device_array.h"

/* Members: tuples of an operator, whether NaN are left out, and whether NaN are counted. Their
 * number, -1 with an exception. */
static int read_members(PyObject *tuple, gpr_member *members)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(tuple);

    if (count > GPR_MOST_SEVERAL) {
        PyErr_Format(PyExc_ValueError, "up to %d reductions share a pass", (int)GPR_MOST_SEVERAL);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *op = NULL;
        members[i] = (gpr_member){.op = GPR_OP_SUM};
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i), "Opp", &op, &members[i].skip_nan,
                              &members[i].counts_nan) ||
            glue_read_operator(op, &members[i].op) < 0)
            return -1;
    }
    return (int)count;
}

static PyObject *make_result(const void *from, Py_ssize_t i)
{
    const gpr_several_plan *plan = from;

    return Py_BuildValue("si", gpr_dtype_name(plan->results[i]), (int)plan->outputs[i]);
}

static PyObject *describe_plan(const gpr_several_plan *plan)
{
    PyObject *results = glue_new_tuple(plan->count, make_result, plan);

    if (results == NULL) return NULL;
    return Py_BuildValue("y#{sI sI sI sI sK sK sN}", (const char *)plan, (Py_ssize_t)sizeof *plan,
                         "in_pass", plan->in_pass, "block", plan->block, "resident", plan->resident,
                         "blocks", plan->blocks, "rows", (unsigned long long)plan->rows, "n",
                         (unsigned long long)plan->n, "results", results);
}

/* plan_several(source, axis, members, facts, block_size=0, grid_size=0, pieces=False, resident=0)
 * -> (plan, dict) */
static PyObject *plan_several(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    PyObject *given = NULL, *axis = NULL, *tuple = NULL, *given_facts = NULL;
    gpr_member members[GPR_MOST_SEVERAL];
    unsigned block = 0, grid = 0, resident = 0;
    gpr_device_facts facts;
    gpr_several_plan plan;
    glue_call call;
    int pieces = 0;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "O!OO!O|IIpI", state->device_array_type, &given, &axis,
                          &PyTuple_Type, &tuple, &given_facts, &block, &grid, &pieces, &resident) ||
        glue_read_facts(given_facts, &facts) < 0)
        return NULL;
    const int count = read_members(tuple, members);
    if (count < 0) return NULL;
    glue_device_array *source = (glue_device_array *)given;
    memset(&call.request, 0, sizeof call.request);
    call.keepdims = 0;
    call.request.compute = GPR_DTYPE_DEFAULT;
    call.request.dtype = source->dtype;
    call.request.data = source->data;
    call.request.on_device = 1;
    call.request.device = source->device;
    call.request.block_size = block;
    call.request.grid_size = grid;
    if (glue_read_axes(state, axis, source->ndim, 0, &call) < 0) return NULL;
    glue_set_axes(&call, source->ndim, glue_shape_of(source), glue_strides_of(source), NULL, NULL);
    status = gpr_plan_several(&call.request, members, count, pieces, resident, &facts, &plan);
    return status == GPR_OK ? describe_plan(&plan) : glue_raise(state);
}

/* Reads a plan that plan_several made. 0, or -1 with an exception. */
static int read_plan(const char *bytes, Py_ssize_t size, gpr_several_plan *plan)
{
    if (size != (Py_ssize_t)sizeof *plan) {
        PyErr_SetString(PyExc_ValueError, "these bytes are no plan of several reductions");
        return -1;
    }
    memcpy(plan, bytes, sizeof *plan);
    return 0;
}

static PyObject *make_symbol(const void *image, Py_ssize_t i)
{
    return PyUnicode_FromString(((const gpr_image *)image)->symbols[i]);
}

/* compile_several(plan, cc) -> (image, symbols, whether it was compiled) */
static PyObject *compile_several(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    const char *bytes = NULL;
    Py_ssize_t size = 0;
    gpr_several_plan plan;
    gpr_image image = {0};
    PyObject *symbols = NULL, *result = NULL;
    gpr_status status = GPR_OK;
    int cc = 0, compiled = 0;

    if (!PyArg_ParseTuple(arguments, "y#i", &bytes, &size, &cc) ||
        read_plan(bytes, size, &plan) < 0 || glue_locate(state, 1) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_compile_several(&plan, cc, &image, &compiled);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    symbols = glue_new_tuple(image.symbol_count, make_symbol, &image);
    if (symbols != NULL)
        result = Py_BuildValue("y#NN", (const char *)image.data, (Py_ssize_t)image.bytes, symbols,
                               PyBool_FromLong(compiled));
    gpr_free_image(&image);
    return result;
}

/* several_scratch(plan, pieces) -> bytes */
static PyObject *several_scratch(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *bytes = NULL;
    Py_ssize_t size = 0;
    gpr_several_plan plan;
    unsigned pieces = 0;

    if (!PyArg_ParseTuple(arguments, "y#I", &bytes, &size, &pieces) ||
        read_plan(bytes, size, &plan) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(gpr_several_scratch(&plan, pieces));
}

/* Addresses of results, 0 where a member is not in the pass. 0, or -1 with an exception. */
static int read_addresses(PyObject *tuple, gpr_several_launch *launch)
{
    if (PyTuple_GET_SIZE(tuple) > GPR_MOST_SEVERAL) {
        PyErr_SetString(PyExc_ValueError, "more results than reductions");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        const unsigned long long address = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, i));
        if (address == (unsigned long long)-1 && PyErr_Occurred() != NULL) return -1;
        launch->out[i] = (void *)(uintptr_t)address;
    }
    return 0;
}

/* queue_several(loaded image, plan, address, results, ddof, output_stride, stream, piece=None):
 * `piece` is (elements, first, total, piece, pieces, address of scratch) */
static PyObject *queue_several(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    PyObject *capsule = NULL, *results = NULL, *stream = NULL, *piece = Py_None;
    unsigned long long address = 0, stride = 0, n = 0, first = 0, total = 0, scratch = 0;
    gpr_several_launch launch = {.data = NULL};
    const char *bytes = NULL;
    Py_ssize_t size = 0;
    gpr_several_plan plan;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "Oy#KO!dKO|O", &capsule, &bytes, &size, &address,
                          &PyTuple_Type, &results, &launch.ddof, &stride, &stream, &piece) ||
        read_plan(bytes, size, &plan) < 0 || read_addresses(results, &launch) < 0 ||
        glue_read_stream(state, stream, &launch.stream) < 0)
        return NULL;
    if (piece != Py_None && !PyArg_ParseTuple(piece, "KKKIIK", &n, &first, &total, &launch.piece,
                                              &launch.pieces, &scratch))
        return NULL;
    gpr_loaded_image *loaded = PyCapsule_GetPointer(capsule, GLUE_LOADED_IMAGE);
    if (loaded == NULL) return NULL;
    launch.data = (const void *)(uintptr_t)address;
    launch.output_stride = stride;
    launch.n = n;
    launch.first = first;
    launch.total = total;
    launch.scratch = (void *)(uintptr_t)scratch;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_queue_several(loaded, &plan, &launch);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    Py_RETURN_NONE;
}

/* measure_several(loaded image, plan, address, results, ddof, output_stride, stream, repeats,
 *                 flush_bytes) -> list of milliseconds */
static PyObject *measure_several(PyObject *module, PyObject *arguments)
{
    enum { MOST_REPEATS = 256 };
    glue_state *state = glue_state_of(module);
    PyObject *capsule = NULL, *results = NULL, *stream = NULL;
    unsigned long long address = 0, stride = 0, flush_bytes = 0;
    gpr_several_launch launch = {.data = NULL};
    double times[MOST_REPEATS];
    float milliseconds[MOST_REPEATS];
    const char *bytes = NULL;
    Py_ssize_t size = 0;
    gpr_several_plan plan;
    gpr_status status = GPR_OK;
    int repeats = 0;

    if (!PyArg_ParseTuple(arguments, "Oy#KO!dKOiK", &capsule, &bytes, &size, &address,
                          &PyTuple_Type, &results, &launch.ddof, &stride, &stream, &repeats,
                          &flush_bytes) ||
        read_plan(bytes, size, &plan) < 0 || read_addresses(results, &launch) < 0 ||
        glue_read_stream(state, stream, &launch.stream) < 0)
        return NULL;
    if (repeats > MOST_REPEATS)
        return PyErr_Format(PyExc_ValueError, "up to %d runs at a time", (int)MOST_REPEATS);
    gpr_loaded_image *loaded = PyCapsule_GetPointer(capsule, GLUE_LOADED_IMAGE);
    if (loaded == NULL) return NULL;
    launch.data = (const void *)(uintptr_t)address;
    launch.output_stride = stride;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_measure_several(loaded, &plan, &launch, flush_bytes, repeats, milliseconds);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    for (int i = 0; i < repeats; i++) times[i] = (double)milliseconds[i];
    return glue_new_list(repeats, glue_make_float, times);
}

PyMethodDef glue_several_methods[] = {
    {"plan_several", plan_several, METH_VARARGS,
     PyDoc_STR("plan_several(source, axis, members, facts, block_size=0, grid_size=0, "
               "pieces=False, resident=0) -> (plan, dict)")},
    {"compile_several", compile_several, METH_VARARGS,
     PyDoc_STR("compile_several(plan, cc) -> (image, symbols, whether it was compiled)")},
    {"several_scratch", several_scratch, METH_VARARGS,
     PyDoc_STR("several_scratch(plan, pieces) -> bytes")},
    {"queue_several", queue_several, METH_VARARGS,
     PyDoc_STR("queue_several(loaded image, plan, address, results, ddof, output_stride, stream, "
               "piece=None)")},
    {"measure_several", measure_several, METH_VARARGS,
     PyDoc_STR("measure_several(loaded image, plan, address, results, ddof, output_stride, "
               "stream, repeats, flush_bytes) -> list of ms")},
    {NULL, NULL, 0, NULL},
};
