/* The table of array libraries, and finding the library of an array.
 *
 * A library is found by the package that defines the type of the array, so that nothing is
 * imported that the caller has not imported. Arrays of other packages are taken by DLPack's C
 * exchange API where it is of a version that we understand, by __dlpack__, or by the CUDA array
 * interface, in this order. */
#include "python/libraries.h"

#include <ctype.h>
#include <structmember.h>

/* ---------------------------------------------------------------- the table ------------------ */

/* Rows for any package, by attributes of the array or its type. */
enum { BY_EXCHANGE, BY_DLPACK, BY_INTERFACE, PROTOCOL_COUNT };

static const glue_ways rows[] = {
    [BY_EXCHANGE] =
        {
            .name = "the array's library",
            .holds = glue_is_held_by_dlpack,
            .read = glue_read_exchange,
            .make = glue_make_by_exchange,
            .assign = glue_assign_items,
        },
    [BY_DLPACK] =
        {
            .name = "the array's library",
            .holds = glue_is_held_by_dlpack,
            .read = glue_read_dlpack,
            .make = glue_make_own,
            .finish = glue_finish_by_dlpack,
            .lends = 1,
        },
    [BY_INTERFACE] =
        {
            .name = "the array's library",
            .holds = glue_is_always_held,
            .read = glue_read_interface,
            .make = glue_make_own,
            .finish = glue_finish_by_dlpack,
        },
    {
        .name = "PyTorch",
        .packages = "torch",
        .parts = {[GLUE_ARRAY_TYPE] = "torch:Tensor",
                  [GLUE_DTYPE_TYPE] = "torch:dtype",
                  [GLUE_CURRENT_STREAM] =
                      "torch:_C._cuda_getCurrentRawStream|torch:cuda.current_stream",
                  [GLUE_HAS_GRADIENTS] = "torch:is_grad_enabled",
                  [GLUE_STRIDED_LAYOUT] = "torch:strided"},
        .holds = glue_is_held_by_attribute,
        .read = glue_read_tensor,
        .make = glue_make_tensor,
        .transpose = "permute",
        .assign = glue_assign_by_method,
        .explain = glue_explain_tensor,
    },
    {
        .name = "CuPy",
        .packages = "cupy",
        .parts = {[GLUE_ARRAY_TYPE] = "cupy:ndarray",
                  [GLUE_EMPTY] = "cupy:empty",
                  [GLUE_CONTEXTS] = "cupy:cuda.Device",
                  [GLUE_CURRENT_DEVICE] = "cupy:cuda.runtime.getDevice",
                  [GLUE_CURRENT_STREAM] = "cupy:cuda.get_current_stream",
                  [GLUE_COPYTO] = "cupy:copyto"},
        .holds = glue_is_always_held,
        .read = glue_read_attributes,
        .make = glue_make_empty,
        .transpose = "transpose",
        .assign = glue_assign_by_copyto,
    },
    {
        .name = "Numba",
        .packages = "numba numba_cuda",
        .parts = {[GLUE_EMPTY] = "numba:cuda.device_array",
                  [GLUE_CONTEXTS] = "numba:cuda.gpus",
                  [GLUE_FROM_INTERFACE] = "numba:cuda.from_cuda_array_interface",
                  [GLUE_IS_PER_THREAD] = "numba:config.CUDA_PER_THREAD_DEFAULT_STREAM"},
        .holds = glue_is_always_held,
        .read = glue_read_interface,
        .make = glue_make_on_stream,
        .split = glue_split_interface,
    },
    {
        .name = "JAX",
        .packages = "jax jaxlib",
        .parts = {[GLUE_ARRAY_TYPE] = "jax:Array",
                  [GLUE_TRACER_TYPE] = "jax:core.Tracer",
                  [GLUE_FROM_DLPACK] = "jax.dlpack:from_dlpack"},
        .holds = glue_is_held_by_platform,
        .read = glue_read_dlpack,
        .make = glue_make_own,
        .finish = glue_finish_by_dlpack,
        .lends = 1,
        .read_only = 1,
    },
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

_Static_assert(ROW_COUNT <= (int)GLUE_MOST_LIBRARIES,
               "the module's state has a place for each row");

/* ---------------------------------------------------------------- meeting a library ---------- */

/* The object at "module:attribute.attribute"; NULL without an exception: there is no such attribute
 * or module. */
static PyObject *find_at(const char *place, size_t length)
{
    PyObject *text = PyUnicode_FromStringAndSize(place, (Py_ssize_t)length), *halves = NULL,
             *names = NULL;
    PyObject *found = NULL;

    if (text == NULL) return NULL;
    halves = PyObject_CallMethod(text, "split", "s", ":");
    if (halves != NULL) names = PyObject_CallMethod(PyList_GET_ITEM(halves, 1), "split", "s", ".");
    if (names != NULL) found = PyImport_Import(PyList_GET_ITEM(halves, 0));
    for (Py_ssize_t i = 0; names != NULL && found != NULL && i < PyList_GET_SIZE(names); i++) {
        Py_SETREF(found, PyObject_GetAttr(found, PyList_GET_ITEM(names, i)));
    }
    if (found == NULL &&
        (PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_ImportError)))
        PyErr_Clear();
    Py_DECREF(text);
    Py_XDECREF(halves);
    Py_XDECREF(names);
    return found;
}

/* A part at the first of its places where there is something. */
static PyObject *find_part(const char *places)
{
    PyObject *found = NULL;

    while (places != NULL && *places != '\0' && found == NULL && PyErr_Occurred() == NULL) {
        const size_t length = strcspn(places, "|");
        found = find_at(places, length);
        places += length + (places[length] == '|');
    }
    return found;
}

/* The library's dtypes by gpr_dtype: attributes, under NumPy's names, of the module that its
 * dtypes' type is in. */
static PyObject *find_dtypes(const char *place)
{
    PyObject *dtypes = PyTuple_New(GPR_DTYPE_COUNT);
    const int module = (int)strcspn(place, ":");

    for (int i = 0; i < GPR_DTYPE_COUNT && dtypes != NULL; i++) {
        char own[64];
        const int length =
            snprintf(own, sizeof own, "%.*s:%s", module, place, gpr_dtype_name((gpr_dtype)i));
        PyObject *dtype = find_at(own, (size_t)length);
        if (dtype == NULL && PyErr_Occurred() != NULL) Py_CLEAR(dtypes);
        if (dtypes != NULL) PyTuple_SET_ITEM(dtypes, i, dtype != NULL ? dtype : Py_NewRef(Py_None));
    }
    return dtypes;
}

/* A new reference to a part of the row's library. */
static glue_library *meet(const glue_state *state, const glue_ways *ways)
{
    PyTypeObject *type = (PyTypeObject *)state->library_type;
    glue_library *library = (glue_library *)type->tp_alloc(type, 0);

    if (library == NULL) return NULL;
    library->ways = ways;
    for (int i = 0; i < GLUE_PART_COUNT; i++) {
        library->parts[i] = find_part(ways->parts[i]);
        if (library->parts[i] == NULL && PyErr_Occurred() != NULL) goto fail;
    }
    if (library->parts[GLUE_DTYPE_TYPE] != NULL) {
        library->dtypes = find_dtypes(ways->parts[GLUE_DTYPE_TYPE]);
        if (library->dtypes == NULL) goto fail;
    }
    return library;
fail:
    Py_DECREF((PyObject *)library);
    return NULL;
}

/* The row's library, which is met now if it was not before: borrowed from the state. */
static glue_library *get_library(glue_state *state, int row)
{
    PyObject *there = atomic_load(&state->libraries[row]);
    glue_library *library = there == NULL ? meet(state, &rows[row]) : (glue_library *)there;

    if (there != NULL || library == NULL) return library;
    if (atomic_compare_exchange_strong(&state->libraries[row], &there, (PyObject *)library))
        return library;
    Py_DECREF((PyObject *)library); /* another thread met it in the meantime */
    return (glue_library *)there;
}

/* ---------------------------------------------------------------- finding -------------------- */

/* Whether a module's name begins with one of the packages, as its first part. */
static int is_in(const char *module, const char *packages)
{
    const size_t length = strcspn(module, ".");

    while (packages != NULL && *packages != '\0') {
        const size_t own = strcspn(packages, " ");
        if (own == length && strncmp(module, packages, own) == 0) return 1;
        packages += own + (packages[own] == ' ');
    }
    return 0;
}

/* The row of a package by the type's module; -1: none. */
static int find_row(const glue_state *state, PyObject *type)
{
    PyObject *module = PyObject_GetAttr(type, state->names[GLUE_NAME___module__]);
    const char *name = module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
    int row = -1;

    for (int i = PROTOCOL_COUNT; i < ROW_COUNT && name != NULL && row < 0; i++) {
        if (is_in(name, rows[i].packages)) row = i;
    }
    if (name == NULL) PyErr_Clear();
    Py_XDECREF(module);
    return row;
}

static int has(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);

    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    Py_XDECREF(value);
    return value != NULL ? 1 : PyErr_Occurred() != NULL ? -1 : 0;
}

/* Whether an object whose type is of a library's package is one of its arrays; -1 with an
 * exception. */
static int is_array_of(const glue_state *state, const glue_library *library, PyObject *object)
{
    PyObject *const type = library->parts[GLUE_ARRAY_TYPE];

    if (type != NULL) return PyObject_IsInstance(object, type);
    /* the module that has arrays is not there */
    if (library->ways->parts[GLUE_ARRAY_TYPE] != NULL) return 0;
    return has(object, state->names[GLUE_NAME___cuda_array_interface__]);
}

/* Lets arrays of exactly this type be found without looking at its bases, if there is room. */
static void remember(glue_library *library, PyTypeObject *type)
{
    for (int i = 0; i < GLUE_MOST_TYPES; i++) {
        PyTypeObject *there = NULL;
        if (atomic_compare_exchange_strong(&library->types[i], &there, type)) {
            Py_INCREF((PyObject *)type);
            return;
        }
        if (there == type) return;
    }
}

/* The library of an array by the packages of its type and of that type's bases. */
static glue_library *find_by_package(glue_state *state, PyObject *array)
{
    PyTypeObject *type = Py_TYPE(array);
    /* by its name, which is a reference that keeps the tuple: another thread may set __bases__ */
    PyObject *const bases = PyObject_GetAttr((PyObject *)type, state->names[GLUE_NAME___mro__]);
    const Py_ssize_t count = bases != NULL && PyTuple_Check(bases) ? PyTuple_GET_SIZE(bases) : 0;
    glue_library *library = NULL;
    int row = -1;

    for (Py_ssize_t i = 0; i < count && row < 0; i++) {
        PyObject *const base = PyTuple_GET_ITEM(bases, i);
        row = find_row(state, base);
        if (row >= 0) library = get_library(state, row);
        if (library != NULL && is_array_of(state, library, array) <= 0) library = NULL;
        if (library != NULL && base == (PyObject *)type) remember(library, type);
    }
    Py_XDECREF(bases);
    return library;
}

int glue_is_known(const glue_library *library)
{
    return library->ways->packages != NULL;
}

int glue_has_own_rules(const glue_state *state, PyObject *array)
{
    static const glue_name overrides[] = {GLUE_NAME___array_ufunc__, GLUE_NAME___array_function__,
                                          GLUE_NAME___gpureduce_wrap__};
    int found = 0;

    for (size_t i = 0; i < sizeof overrides / sizeof overrides[0] && found == 0; i++)
        found = has((PyObject *)Py_TYPE(array), state->names[overrides[i]]);
    return found;
}

static glue_library *find_by_protocol(glue_state *state, PyObject *array)
{
    int found = has(array, state->names[GLUE_NAME___dlpack_device__]);

    if (found < 0) return NULL;
    if (found) {
        found = glue_offers_exchange(state, array);
        return found < 0 ? NULL : get_library(state, found ? BY_EXCHANGE : BY_DLPACK);
    }
    found = has(array, state->names[GLUE_NAME___cuda_array_interface__]);
    return found > 0 ? get_library(state, BY_INTERFACE) : NULL;
}

/* Whether an object is of a type whose contents are on the host. */
static int is_of_host(PyObject *object)
{
    return PyArray_Check(object) || PyList_Check(object) || PyTuple_Check(object) ||
           PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object) ||
           PyArray_IsScalar(object, Generic) || PyMemoryView_Check(object) || PyRange_Check(object);
}

/* The library of an array, wherever the array is. */
static glue_library *find_any(glue_state *state, PyObject *array)
{
    PyTypeObject *const type = Py_TYPE(array);

    for (int i = PROTOCOL_COUNT; i < ROW_COUNT; i++) {
        glue_library *library =
            (glue_library *)atomic_load_explicit(&state->libraries[i], memory_order_acquire);
        if (library == NULL) continue;
        for (int k = 0; k < GLUE_MOST_TYPES; k++) {
            PyTypeObject *known = atomic_load_explicit(&library->types[k], memory_order_relaxed);
            if (known == type) return library;
            if (known == NULL) break;
        }
    }
    if (is_of_host(array)) return NULL;
    glue_library *library = find_by_package(state, array);
    return library != NULL || PyErr_Occurred() != NULL ? library : find_by_protocol(state, array);
}

glue_library *glue_find_library(glue_state *state, PyObject *array)
{
    glue_library *library = find_any(state, array);

    return library != NULL && library->ways->holds(state, library, array) > 0 ? library : NULL;
}

/* ---------------------------------------------------------------- reading -------------------- */

/* The last part of a dtype's name, and whether it is a name that can be judged: letters, digits,
 * points, a byte order. */
static int read_dtype_text(const char *text, const char **name)
{
    const char *dot = strrchr(text, '.');
    const char *at = dot != NULL ? dot + 1 : text;

    *name = at;
    at += strspn(at, "<>|=");
    while (isalnum((unsigned char)*at) || *at == '_') at++;
    return at != *name && *at == '\0';
}

/* Whether the exception may come of the array's dtype: not what memory, devices and interrupts
 * raise. */
static int may_be_of_dtype(const glue_state *state)
{
    return PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError) &&
           !PyErr_ExceptionMatches(PyExc_OSError) && !PyErr_ExceptionMatches(state->cuda_error) &&
           !PyErr_ExceptionMatches(state->device_unavailable_error);
}

/* Replaces the exception by a TypeError that names the array's dtype, if that is one that is not
 * reduced. Returns whether it did. */
static int refuse_dtype(const glue_state *state, PyObject *array)
{
    PyObject *class = NULL, *value = NULL, *traceback = NULL, *dtype = NULL, *text = NULL;
    const char *name = NULL;
    int refused = 0;

    if (!may_be_of_dtype(state)) return 0;
    PyErr_Fetch(&class, &value, &traceback);
    dtype = PyObject_GetAttr(array, state->names[GLUE_NAME_dtype]);
    text = dtype != NULL ? PyObject_Str(dtype) : NULL;
    if (text != NULL) name = PyUnicode_AsUTF8(text);
    if (name == NULL) PyErr_Clear();
    refused =
        name != NULL && read_dtype_text(name, &name) && gpr_find_dtype(name) == GPR_DTYPE_DEFAULT;
    if (refused) {
        PyErr_Format(PyExc_TypeError, "reducing a device array of dtype %S is not supported: %s",
                     dtype, glue_supported_dtypes);
        glue_set_cause(class, value, traceback);
    } else {
        PyErr_Restore(class, value, traceback);
    }
    Py_XDECREF(dtype);
    Py_XDECREF(text);
    return refused;
}

static void explain(const glue_state *state, const glue_library *library, PyObject *array)
{
    PyObject *class = NULL, *value = NULL, *traceback = NULL;

    if (library->ways->explain != NULL && library->ways->explain(state, library, array)) return;
    if (refuse_dtype(state, array) || library->ways->explain == NULL) return;
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError) && !PyErr_ExceptionMatches(PyExc_BufferError))
        return;
    PyErr_Fetch(&class, &value, &traceback);
    PyErr_Format(PyExc_TypeError, "%s does not show the array's memory: %S", library->ways->name,
                 value);
    glue_set_cause(class, value, traceback);
}

glue_device_array *glue_read_array(const glue_state *state, const glue_library *library,
                                   PyObject *array)
{
    glue_device_array *found = library->ways->read(state, library, array);

    if (found == NULL) explain(state, library, array);
    return found;
}

/* A shape with its extents in an order. */
static PyObject *put_in_order(PyObject *shape, const int *order)
{
    PyObject *made = PyTuple_New(PyTuple_GET_SIZE(shape));

    for (Py_ssize_t i = 0; made != NULL && i < PyTuple_GET_SIZE(shape); i++)
        PyTuple_SET_ITEM(made, i, Py_NewRef(PyTuple_GET_ITEM(shape, order[i])));
    return made;
}

/* Where each axis of a result is in the order. */
static PyObject *places_in_order(const int *order, Py_ssize_t count)
{
    PyObject *places = PyTuple_New(count);

    for (Py_ssize_t i = 0; places != NULL && i < count; i++) {
        PyObject *place = PyLong_FromSsize_t(i);
        if (place == NULL) {
            Py_CLEAR(places);
        } else {
            PyTuple_SET_ITEM(places, order[i], place);
        }
    }
    return places;
}

PyObject *glue_make_array(const glue_state *state, const glue_library *library, PyObject *like,
                          const glue_device_array *beside, PyObject *shape, const int *order,
                          gpr_dtype dtype, glue_device_array **memory)
{
    const glue_ways *ways = library->ways;
    PyObject *ordered = NULL, *places = NULL, *made = NULL, *view = NULL;

    *memory = NULL;
    if (order == NULL || ways->transpose == NULL)
        return ways->make(state, library, like, beside, shape, dtype, memory);
    ordered = put_in_order(shape, order);
    places = ordered != NULL ? places_in_order(order, PyTuple_GET_SIZE(shape)) : NULL;
    if (places != NULL) made = ways->make(state, library, like, beside, ordered, dtype, memory);
    if (made != NULL) {
        Py_CLEAR(*memory); /* of the array in C order */
        view = PyObject_CallMethod(made, ways->transpose, "(O)", places);
    }
    if (view != NULL) *memory = ways->read(state, library, view);
    if (*memory != NULL) {
        (*memory)->has_stream = beside->has_stream;
        (*memory)->stream = beside->stream;
    } else {
        Py_CLEAR(view);
    }
    Py_XDECREF(ordered);
    Py_XDECREF(places);
    Py_XDECREF(made);
    return view;
}

PyObject *glue_finish_array(const glue_state *state, const glue_library *library, PyObject *like,
                            PyObject *made)
{
    return library->ways->finish == NULL ? Py_NewRef(made)
                                         : library->ways->finish(state, library, like, made);
}

static PyObject *get_item(PyObject *array, long index)
{
    PyObject *key = PyLong_FromLong(index),
             *item = key != NULL ? PyObject_GetItem(array, key) : NULL;

    Py_XDECREF(key);
    return item;
}

PyObject *glue_split_array(const glue_state *state, const glue_library *library, PyObject *array)
{
    PyObject *low = NULL, *high = NULL, *pair = NULL;

    if (glue_is_device_buffer(state, array)) return glue_halve_buffer(state, array);
    if (library->ways->split != NULL) return library->ways->split(state, library, array);
    low = get_item(array, 0);
    high = low != NULL ? get_item(array, 1) : NULL;
    pair = high != NULL ? PyTuple_Pack(2, low, high) : NULL;
    Py_XDECREF(low);
    Py_XDECREF(high);
    return pair;
}

/* ---------------------------------------------------------------- for Python ----------------- */

static glue_library *library_of(PyObject *self)
{
    return (glue_library *)self;
}

static const glue_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

static PyObject *library_read(PyObject *self, PyObject *array)
{
    return (PyObject *)glue_read_array(state_of(self), library_of(self), array);
}

/* An order of all axes of a result. 0, or -1 with an exception. */
static int read_order(PyObject *axes, Py_ssize_t count, int *order)
{
    char found[GPR_MAX_NDIM + 1] = {0};
    int fits = PyTuple_Check(axes) && PyTuple_GET_SIZE(axes) == count && count <= GPR_MAX_NDIM + 1;

    for (Py_ssize_t i = 0; i < count && fits; i++) {
        const long axis = PyLong_AsLong(PyTuple_GET_ITEM(axes, i));
        if (axis == -1 && PyErr_Occurred() != NULL) return -1;
        fits = axis >= 0 && axis < count && !found[axis];
        if (fits) found[order[i] = (int)axis] = 1;
    }
    if (fits) return 0;
    PyErr_SetString(PyExc_ValueError, "an order is a tuple of each axis of the shape once");
    return -1;
}

static PyObject *library_make(PyObject *self, PyObject *arguments)
{
    const glue_state *state = state_of(self);
    const glue_library *library = library_of(self);
    PyObject *like = NULL, *beside = NULL, *shape = NULL, *name = NULL, *axes = Py_None;
    PyObject *made = NULL;
    glue_device_array *memory = NULL;
    gpr_dtype dtype = GPR_BOOL;
    int order[GPR_MAX_NDIM + 1];

    if (!PyArg_ParseTuple(arguments, "OO!O!U|O", &like, state->device_array_type, &beside,
                          &PyTuple_Type, &shape, &name, &axes))
        return NULL;
    if (glue_read_dtype_name(name, &dtype) < 0) return NULL;
    const int has_order = axes != Py_None;
    if (has_order && read_order(axes, PyTuple_GET_SIZE(shape), order) < 0) return NULL;
    made = glue_make_array(state, library, like, (glue_device_array *)beside, shape,
                           has_order ? order : NULL, dtype, &memory);
    return made != NULL ? Py_BuildValue("NN", made, (PyObject *)memory) : NULL;
}

static PyObject *library_finish(PyObject *self, PyObject *arguments)
{
    PyObject *like = NULL, *made = NULL;

    if (!PyArg_ParseTuple(arguments, "OO", &like, &made)) return NULL;
    return glue_finish_array(state_of(self), library_of(self), like, made);
}

static PyObject *library_split(PyObject *self, PyObject *array)
{
    return glue_split_array(state_of(self), library_of(self), array);
}

/* A dtype= argument: one of the library's own dtypes by its name, anything else as it is. */
static PyObject *library_dtype(PyObject *self, PyObject *dtype)
{
    const glue_library *library = library_of(self);
    const int is_own =
        library->dtypes != NULL ? PyObject_IsInstance(dtype, library->parts[GLUE_DTYPE_TYPE]) : 0;

    if (is_own < 0) return NULL;
    if (!is_own) return Py_NewRef(dtype);
    for (int i = 0; i < GPR_DTYPE_COUNT; i++) {
        if (PyTuple_GET_ITEM(library->dtypes, i) == dtype)
            return PyUnicode_FromString(gpr_dtype_name((gpr_dtype)i));
    }
    return PyErr_Format(PyExc_TypeError, "reducing to dtype %S is not supported: %s", dtype,
                        glue_supported_dtypes);
}

static PyObject *library_assign(PyObject *self, PyObject *arguments)
{
    const glue_library *library = library_of(self);
    PyObject *out = NULL, *array = NULL;

    if (!PyArg_ParseTuple(arguments, "OO", &out, &array)) return NULL;
    if (library->ways->assign == NULL)
        return PyErr_Format(PyExc_TypeError, "%s has no conversion on the device",
                            library->ways->name);
    if (library->ways->assign(state_of(self), library, out, array) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *get_name(PyObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(library_of(self)->ways->name);
}

static PyObject *get_is_known(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(glue_is_known(library_of(self)));
}

static PyObject *get_lends(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(library_of(self)->ways->lends);
}

static PyObject *get_writes(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(!library_of(self)->ways->read_only);
}

static PyObject *get_converts(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(library_of(self)->ways->assign != NULL);
}

static void library_dealloc(PyObject *self)
{
    glue_library *library = library_of(self);
    PyTypeObject *type = Py_TYPE(self);

    for (int i = 0; i < GLUE_PART_COUNT; i++) Py_XDECREF(library->parts[i]);
    for (int i = 0; i < GLUE_MOST_TYPES; i++)
        Py_XDECREF((PyObject *)atomic_load(&library->types[i]));
    Py_XDECREF(library->dtypes);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef library_methods[] = {
    {"read", library_read, METH_O,
     PyDoc_STR("read(array) -> DeviceArray on the stream that the array is ready on")},
    {"make", library_make, METH_VARARGS,
     PyDoc_STR(
         "make(like, memory, shape, dtype, order=None) -> (array, DeviceArray) beside `like`, "
         "whose memory is `memory`; its axes are in memory in `order`, the farthest first")},
    {"finish", library_finish, METH_VARARGS,
     PyDoc_STR("finish(like, made) -> the caller's array, once the writing of `made` is queued")},
    {"split", library_split, METH_O,
     PyDoc_STR("split(array) -> (array[0], array[1]), on the device")},
    {"dtype", library_dtype, METH_O,
     PyDoc_STR("dtype(dtype) -> the name of a dtype of the library, else `dtype`")},
    {"assign", library_assign, METH_VARARGS,
     PyDoc_STR("assign(out, array): writes it converted as NumPy's unsafe casting does")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef library_getters[] = {
    {"name", get_name, NULL, PyDoc_STR("in messages"), NULL},
    {"is_known", get_is_known, NULL,
     PyDoc_STR("whether it has a row of its own, and is not any library that has a protocol"),
     NULL},
    {"lends", get_lends, NULL,
     PyDoc_STR("whether its arrays are kept until the device is done: it does not order their "
               "memory's reuse by the stream that we work on"),
     NULL},
    {"writes", get_writes, NULL, PyDoc_STR("whether its arrays may be written, for out="), NULL},
    {"converts", get_converts, NULL,
     PyDoc_STR("whether it writes an array of one dtype into one of another"), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot library_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("An array library: how its arrays are read, made and written.")},
    {Py_tp_dealloc, (void *)library_dealloc},
    {Py_tp_methods, (void *)library_methods},
    {Py_tp_getset, (void *)library_getters},
    {0, NULL},
};

static PyType_Spec library_spec = {
    .name = "gpureduce._core.Library",
    .basicsize = (int)sizeof(glue_library),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = library_slots,
};

int glue_add_library_type(PyObject *module)
{
    glue_state *state = glue_state_of(module);

    state->library_type = PyType_FromModuleAndSpec(module, &library_spec, NULL);
    if (state->library_type == NULL) return -1;
    return PyModule_AddObjectRef(module, "Library", state->library_type);
}

int glue_visit_libraries(const glue_state *state, visitproc visit, void *arg)
{
    for (int i = 0; i < ROW_COUNT; i++) Py_VISIT(atomic_load(&state->libraries[i]));
    return 0;
}

void glue_clear_libraries(glue_state *state)
{
    for (int i = 0; i < ROW_COUNT; i++) Py_XDECREF(atomic_exchange(&state->libraries[i], NULL));
}

/* find_library(array) -> Library, or None for everything that is not in the memory of a CUDA
 * device */
static PyObject *find_library(PyObject *module, PyObject *array)
{
    glue_library *library = glue_find_library(glue_state_of(module), array);

    if (library != NULL) return Py_NewRef((PyObject *)library);
    if (PyErr_Occurred() != NULL) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef glue_library_methods[] = {
    {"find_library", find_library, METH_O,
     PyDoc_STR("find_library(array) -> Library, or None for an object that is not in the memory of "
               "a CUDA device")},
    {NULL, NULL, 0, NULL},
};
