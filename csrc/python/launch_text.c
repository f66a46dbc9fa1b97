/* Kernels of users' own: their text compiled, loaded and launched. gpureduce._yours writes the text
 * and computes the launches. */
#include <limits.h>

#include "python/glue.h"

/* Borrows the strings of a sequence; their number, -1 with an exception. */
static int read_strings(PyObject *sequence, const char **strings, int most, const char *what)
{
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);

    if (count > most) {
        PyErr_Format(PyExc_ValueError, "a program has up to %d %s, not %zd", most, what, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        strings[i] = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(sequence, i));
        if (strings[i] == NULL) return -1;
    }
    return (int)count;
}

static PyObject *make_symbol(const void *image, Py_ssize_t i)
{
    return PyUnicode_FromString(((const gpr_image *)image)->symbols[i]);
}

static PyObject *image_and_symbols(const gpr_image *image)
{
    PyObject *symbols = glue_new_tuple(image->symbol_count, make_symbol, image);

    if (symbols == NULL) return NULL;
    return Py_BuildValue("y#N", (const char *)image->data, (Py_ssize_t)image->bytes, symbols);
}

/* compile_text(name, text, entries, options, cc) -> (image, symbols) */
static PyObject *compile_text(PyObject *module, PyObject *arguments)
{
    enum { MOST_OPTIONS = 8 };
    glue_state *state = glue_state_of(module);
    const char *name = NULL, *text = NULL, *entries[GPR_MOST_SYMBOLS], *options[MOST_OPTIONS];
    PyObject *given_entries = NULL, *given_options = NULL, *result = NULL;
    gpr_image image = {0};
    gpr_status status = GPR_OK;
    int cc = 0;

    if (!PyArg_ParseTuple(arguments, "ssO!O!i", &name, &text, &PyTuple_Type, &given_entries,
                          &PyTuple_Type, &given_options, &cc))
        return NULL;
    const int entry_count = read_strings(given_entries, entries, GPR_MOST_SYMBOLS, "kernels");
    if (entry_count < 0) return NULL;
    const int option_count = read_strings(given_options, options, MOST_OPTIONS, "options");
    if (option_count < 0 || glue_locate(state, 1) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_compile_text(name, text, entries, entry_count, options, option_count, cc, &image);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    result = image_and_symbols(&image);
    gpr_free_image(&image);
    return result;
}

static void unload(PyObject *capsule)
{
    gpr_loaded_image *loaded = PyCapsule_GetPointer(capsule, GLUE_LOADED_IMAGE);

    if (loaded != NULL) (void)gpr_unload_image(loaded);
}

/* load_image(device, image, symbols) -> capsule, which unloads it */
static PyObject *load_image(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    const char *symbols[GPR_MOST_SYMBOLS];
    gpr_loaded_image *loaded = NULL;
    gpr_image image = {0};
    PyObject *given_symbols = NULL, *capsule = NULL;
    const char *data = NULL;
    Py_ssize_t bytes = 0;
    gpr_status status = GPR_OK;
    int device = 0;

    if (!PyArg_ParseTuple(arguments, "iy#O!", &device, &data, &bytes, &PyTuple_Type,
                          &given_symbols))
        return NULL;
    image.symbol_count = read_strings(given_symbols, symbols, GPR_MOST_SYMBOLS, "kernels");
    if (image.symbol_count < 0 || glue_locate(state, 0) < 0) return NULL;
    image.data = (void *)(uintptr_t)data;
    image.bytes = (uint64_t)bytes;
    for (int i = 0; i < image.symbol_count; i++) image.symbols[i] = (char *)(uintptr_t)symbols[i];
    Py_BEGIN_ALLOW_THREADS
    status = gpr_load_image(device, &image, &loaded);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    capsule = PyCapsule_New(loaded, GLUE_LOADED_IMAGE, unload);
    if (capsule == NULL) (void)gpr_unload_image(loaded);
    return capsule;
}

enum { MOST_ARGUMENTS = 8 };

/* One launch, (symbol, grid, block, shared_bytes, arguments) and optionally whether it is
 * cooperative and the blocks of a cluster. Arguments are objects of bytes, whose content is what
 * the kernel gets; bytearrays where the library stores addresses of scratch. */
static int read_launch(PyObject *object, gpr_launch *launch, void **arguments)
{
    PyObject *given = NULL;

    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a launch is a tuple");
        return -1;
    }
    launch->cooperative = 0;
    launch->cluster = 1;
    if (!PyArg_ParseTuple(object, "iIIIO!|pI", &launch->symbol, &launch->grid, &launch->block,
                          &launch->shared_bytes, &PyTuple_Type, &given, &launch->cooperative,
                          &launch->cluster))
        return -1;
    if (PyTuple_GET_SIZE(given) > MOST_ARGUMENTS) {
        PyErr_Format(PyExc_ValueError, "a kernel takes up to %d arguments here", MOST_ARGUMENTS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); i++) {
        PyObject *argument = PyTuple_GET_ITEM(given, i);
        arguments[i] = PyByteArray_Check(argument) ? PyByteArray_AS_STRING(argument)
                                                   : PyBytes_AsString(argument);
        if (arguments[i] == NULL) return -1;
    }
    launch->arguments = arguments;
    return 0;
}

/* What a call that launches is given. */
typedef struct given_launches {
    gpr_loaded_image *loaded;
    gpr_launch *launches;
    void *(*arguments)[MOST_ARGUMENTS];
    int count;
    void *stream;
} given_launches;

static void free_launches(given_launches *given)
{
    PyMem_Free(given->launches);
    PyMem_Free(given->arguments);
    *given = (given_launches){0};
}

/* Any number of launches: free_launches after it, also where it fails. */
static int read_launches(const glue_state *state, PyObject *capsule, PyObject *sequence,
                         PyObject *stream, given_launches *given)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(sequence);

    *given = (given_launches){.loaded = PyCapsule_GetPointer(capsule, GLUE_LOADED_IMAGE)};
    if (given->loaded == NULL || glue_read_stream(state, stream, &given->stream) < 0) return -1;
    if (count > INT_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many launches");
        return -1;
    }
    given->count = (int)count;
    given->launches = PyMem_New(gpr_launch, (size_t)count);
    given->arguments = PyMem_Calloc((size_t)count, sizeof *given->arguments);
    if (given->launches == NULL || given->arguments == NULL) {
        (void)PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < given->count; i++) {
        PyObject *one = PyTuple_GET_ITEM(sequence, i);
        if (read_launch(one, &given->launches[i], given->arguments[i]) < 0) return -1;
    }
    return 0;
}

/* Runs given launches `repeats` times: a list of milliseconds, NULL with an exception. */
static PyObject *time_launches(glue_state *state, const given_launches *given,
                               unsigned long long flush_bytes, int repeats)
{
    float *milliseconds = PyMem_New(float, (size_t)repeats + 1);
    PyObject *times = NULL;
    gpr_status status = GPR_OK;

    if (milliseconds == NULL) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    status = gpr_run_launches(given->loaded, given->launches, given->count, given->stream,
                              flush_bytes, repeats, milliseconds);
    Py_END_ALLOW_THREADS
    if (status == GPR_OK)
        times = PyList_New(repeats);
    else
        (void)glue_raise(state);
    for (int i = 0; times != NULL && i < repeats; i++) {
        PyObject *time = PyFloat_FromDouble((double)milliseconds[i]);
        if (time == NULL)
            Py_CLEAR(times);
        else
            PyList_SET_ITEM(times, i, time);
    }
    PyMem_Free(milliseconds);
    return times;
}

/* run_launches(loaded image, launches, stream=None, flush_bytes=0, repeats=1) -> list of
 * milliseconds */
static PyObject *run_launches(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    PyObject *capsule = NULL, *sequence = NULL, *stream = Py_None, *times = NULL;
    unsigned long long flush_bytes = 0;
    int repeats = 1;
    given_launches given;

    if (!PyArg_ParseTuple(arguments, "OO!|OKi", &capsule, &PyTuple_Type, &sequence, &stream,
                          &flush_bytes, &repeats))
        return NULL;
    if (repeats < 0) return PyErr_Format(PyExc_ValueError, "launches run %d times", repeats);
    if (read_launches(state, capsule, sequence, stream, &given) == 0)
        times = time_launches(state, &given, flush_bytes, repeats);
    free_launches(&given);
    return times;
}

/* Pointers to scratch: tuples of a bytearray among the arguments, a place in it, and an offset in
 * scratch. NULL with an exception; PyMem_Free them. */
static gpr_scratch_pointer *read_pointers(PyObject *sequence)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(sequence);
    gpr_scratch_pointer *pointers = PyMem_New(gpr_scratch_pointer, (size_t)count);

    if (pointers == NULL) {
        (void)PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *argument = NULL;
        unsigned long long offset = 0;
        Py_ssize_t place = 0;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(sequence, i), "O!nK", &PyByteArray_Type, &argument,
                              &place, &offset))
            goto refused;
        if (place < 0 || place > PyByteArray_GET_SIZE(argument) - (Py_ssize_t)sizeof(uint64_t)) {
            PyErr_SetString(PyExc_ValueError, "a pointer to scratch is not within its argument");
            goto refused;
        }
        pointers[i] = (gpr_scratch_pointer){PyByteArray_AS_STRING(argument) + place, offset};
    }
    return pointers;
refused:
    PyMem_Free(pointers);
    return NULL;
}

/* queue_launches(loaded image, launches, stream, scratch_bytes, pointers) */
static PyObject *queue_launches(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    PyObject *capsule = NULL, *sequence = NULL, *stream = NULL, *places = NULL, *result = NULL;
    gpr_scratch_pointer *pointers = NULL;
    unsigned long long scratch_bytes = 0;
    given_launches given;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "OO!OKO!", &capsule, &PyTuple_Type, &sequence, &stream,
                          &scratch_bytes, &PyTuple_Type, &places))
        return NULL;
    if (read_launches(state, capsule, sequence, stream, &given) < 0) goto done;
    pointers = read_pointers(places);
    if (pointers == NULL) goto done;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_queue_launches(given.loaded, given.launches, given.count, given.stream,
                                scratch_bytes, pointers, (int)PyTuple_GET_SIZE(places));
    Py_END_ALLOW_THREADS
    result = status == GPR_OK ? Py_NewRef(Py_None) : glue_raise(state);
done:
    PyMem_Free(pointers);
    free_launches(&given);
    return result;
}

/* ---------------------------------------------------------------- operators ------------------ */

/* find_cached_image(key) -> (image, symbols) or None */
static PyObject *find_cached_image(PyObject *module, PyObject *given)
{
    const char *key = PyUnicode_AsUTF8(given);
    PyObject *result = NULL;
    gpr_image image = {0};
    int found = 0;

    (void)module;
    if (key == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = gpr_find_cached_image(key, &image);
    Py_END_ALLOW_THREADS
    if (!found) Py_RETURN_NONE;
    result = image_and_symbols(&image);
    gpr_free_image(&image);
    return result;
}

/* cache_image(key, image, symbols) */
static PyObject *cache_image(PyObject *module, PyObject *arguments)
{
    const char *key = NULL, *data = NULL, *symbols[GPR_MOST_SYMBOLS];
    PyObject *given_symbols = NULL;
    gpr_image image = {0};
    Py_ssize_t bytes = 0;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "sy#O!", &key, &data, &bytes, &PyTuple_Type, &given_symbols))
        return NULL;
    image.symbol_count = read_strings(given_symbols, symbols, GPR_MOST_SYMBOLS, "kernels");
    if (image.symbol_count < 0) return NULL;
    image.data = (void *)(uintptr_t)data;
    image.bytes = (uint64_t)bytes;
    for (int i = 0; i < image.symbol_count; i++) image.symbols[i] = (char *)(uintptr_t)symbols[i];
    Py_BEGIN_ALLOW_THREADS
    gpr_cache_image(key, &image);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *make_pass(const void *passes, Py_ssize_t i)
{
    const gpr_kernel_pass *pass = (const gpr_kernel_pass *)passes + i;

    return Py_BuildValue("KKI", (unsigned long long)pass->n, (unsigned long long)pass->grid,
                         pass->blocks);
}

/* plan_kernel(name, device, rows, n, block_size, grid_size) -> dict; sizes 0: the plan's own */
static PyObject *plan_kernel(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    unsigned long long rows = 0, n = 0;
    unsigned block = 0, grid = 0;
    const char *name = NULL;
    gpr_kernel_plan plan;
    int device = 0, kernel = 0;
    gpr_status status = GPR_OK;

    if (!PyArg_ParseTuple(arguments, "siKKII", &name, &device, &rows, &n, &block, &grid))
        return NULL;
    status = gpr_find_kernel(name, &kernel);
    if (status == GPR_OK) status = gpr_plan_kernel(kernel, device, rows, n, block, grid, &plan);
    if (status != GPR_OK) return glue_raise(state);
    PyObject *passes = glue_new_tuple(plan.pass_count, make_pass, plan.passes);
    if (passes == NULL) return NULL;
    return Py_BuildValue("{s:s,s:I,s:I,s:K,s:K,s:K,s:N,s:K,s:N,s:I}", "finish", plan.finish,
                         "block", plan.block, "per_thread", plan.per_thread, "partials",
                         (unsigned long long)plan.partials, "more_partials",
                         (unsigned long long)plan.more_partials, "tickets",
                         (unsigned long long)plan.tickets, "passes", passes, "launch_blocks",
                         (unsigned long long)plan.launch_blocks, "cooperative",
                         PyBool_FromLong(plan.cooperative), "cluster", plan.cluster);
}

/* run_custom_tasks(address of the task, address of its context, count) */
static PyObject *run_custom_tasks(PyObject *module, PyObject *arguments)
{
    unsigned long long task = 0, context = 0, count = 0;
    gpr_custom_tasks tasks;
    uintptr_t address = 0;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "KKK", &task, &context, &count)) return NULL;
    address = (uintptr_t)task;
    memcpy(&tasks.run, &address, sizeof tasks.run);
    tasks.context = (void *)(uintptr_t)context;
    tasks.count = count;
    Py_BEGIN_ALLOW_THREADS
    gpr_run_custom_tasks(&tasks);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyMethodDef glue_text_methods[] = {
    {"compile_text", compile_text, METH_VARARGS,
     PyDoc_STR("compile_text(name, text, entries, options, cc) -> (image, symbols)")},
    {"load_image", load_image, METH_VARARGS,
     PyDoc_STR("load_image(device, image, symbols) -> loaded image")},
    {"run_launches", run_launches, METH_VARARGS,
     PyDoc_STR(
         "run_launches(loaded image, launches, stream=None, flush_bytes=0, repeats=1) -> ms")},
    {"queue_launches", queue_launches, METH_VARARGS,
     PyDoc_STR("queue_launches(loaded image, launches, stream, scratch_bytes=0, pointers=())")},
    {"plan_kernel", plan_kernel, METH_VARARGS,
     PyDoc_STR("plan_kernel(name, device, rows, n, block_size, grid_size) -> dict")},
    {"find_cached_image", find_cached_image, METH_O,
     PyDoc_STR("find_cached_image(key) -> (image, symbols) or None")},
    {"cache_image", cache_image, METH_VARARGS, PyDoc_STR("cache_image(key, image, symbols)")},
    {"run_custom_tasks", run_custom_tasks, METH_VARARGS,
     PyDoc_STR("run_custom_tasks(address of the task, address of its context, count)")},
    {NULL, NULL, 0, NULL},
};
