/* gpureduce._core.Function: the type of the package's functions that reduce. A call of an exact
 * ndarray, or of an array in a GPU's memory, with plain arguments runs without a frame of Python:
 * its arguments go from the interpreter's stack to a request. Every other call goes to a function
 * of Python with the same parameters, which also refuses arguments that do not fit; results that
 * NumPy has further rules for go to another one. */
#include "python/device_reduce.h"

#include <structmember.h>

/* What a parameter means, for every function that has one of its name. */
#define PARAMETERS(PARAMETER)      \
    PARAMETER(a, NULL)             \
    PARAMETER(axis, Py_None)       \
    PARAMETER(dtype, Py_None)      \
    PARAMETER(out, Py_None)        \
    PARAMETER(ddof, NULL)          \
    PARAMETER(keepdims, Py_False)  \
    PARAMETER(initial, NULL)       \
    PARAMETER(where, Py_True)      \
    PARAMETER(mean, NULL)          \
    PARAMETER(correction, NULL)    \
    PARAMETER(kernel, NULL)        \
    PARAMETER(device, Py_None)     \
    PARAMETER(block_size, Py_None) \
    PARAMETER(grid_size, Py_None)  \
    PARAMETER(stream, Py_None)

typedef enum parameter {
#define PARAMETER(name, standard) PARAMETER_##name,
    PARAMETERS(PARAMETER)
#undef PARAMETER
        PARAMETER_COUNT
} parameter;

/* The options are five consecutive arguments. */
_Static_assert(PARAMETER_kernel + GLUE_STREAM == (int)PARAMETER_stream &&
                   PARAMETER_kernel + GLUE_BLOCK_SIZE == (int)PARAMETER_block_size,
               "options in the order of their enumeration");

typedef struct glue_function {
    PyObject_HEAD vectorcallfunc call;
    PyObject *function; /* of Python */
    PyObject *finish;   /* takes results that NumPy has further rules for; None: there are none */
    glue_state *state;  /* of the module, which the type keeps */
    gpr_operator op;
    int skips_nan;
    int positional, count;            /* parameters that take a position, and all of them */
    PyObject *names[PARAMETER_COUNT]; /* interned, in order */
    parameter meanings[PARAMETER_COUNT];
    PyObject *defaults[PARAMETER_COUNT]; /* by meaning, borrowed; NULL: not given */
    PyObject *number, *automatic, *no_ddof;
    PyObject *dict, *weak_references;
} glue_function;

/* ---------------------------------------------------------------- calls ---------------------- */

/* Gives each argument its meaning. 0, without an exception: they do not fit, or their names are
 * not those of the parameters' own strings. */
static int bind(const glue_function *self, PyObject *const *arguments, Py_ssize_t count,
                PyObject *keywords, PyObject **given)
{
    const Py_ssize_t named = keywords != NULL ? PyTuple_GET_SIZE(keywords) : 0;

    if (count > self->positional) return 0;
    for (Py_ssize_t i = 0; i < count; i++) given[self->meanings[i]] = arguments[i];
    for (Py_ssize_t i = 0; i < named; i++) {
        const PyObject *name = PyTuple_GET_ITEM(keywords, i);
        int at = (int)count; /* what was given by position is not given again */

        while (at < self->count && self->names[at] != name) at++;
        if (at == self->count) return 0;
        given[self->meanings[at]] = arguments[count + i];
    }
    return given[PARAMETER_a] != NULL;
}

/* Without a start, an operator without identity refuses a mask: it may leave out every element. */
static int takes_mask(gpr_operator op)
{
    switch (op) {
    case GPR_OP_SUM:
    case GPR_OP_PROD:
    case GPR_OP_ANY:
    case GPR_OP_ALL:
    case GPR_OP_MEAN:
    case GPR_OP_VAR:
    case GPR_OP_STD:
    case GPR_OP_BITWISE_AND:
    case GPR_OP_BITWISE_OR:
    case GPR_OP_BITWISE_XOR:
    case GPR_OP_LOGICAL_XOR: return 1;
    default: return 0;
    }
}

/* Whether what has no elements is reduced to what folds begin with, without a word of NumPy's. */
static int takes_nothing(gpr_operator op)
{
    return op == GPR_OP_SUM || op == GPR_OP_PROD || op == GPR_OP_ANY || op == GPR_OP_ALL ||
           op == GPR_OP_COUNT_NONZERO;
}

/* Whether the core takes a dtype for NumPy: variances, and means of what is left, have rules of
 * their own for it. */
static int takes_dtype(const glue_function *self, int is_masked)
{
    switch (self->op) {
    case GPR_OP_VAR:
    case GPR_OP_STD: return 0;
    case GPR_OP_MEAN: return !is_masked && !self->skips_nan;
    default: return 1;
    }
}

static int finds_positions(gpr_operator op)
{
    return op == GPR_OP_ARGMIN || op == GPR_OP_ARGMAX;
}

/* Whether the core takes `initial`, which is then in *epilogue. */
static int takes_start(const glue_function *self, PyArrayObject *array, PyObject *const *given,
                       glue_epilogue *epilogue)
{
    gpr_dtype element;

    if (given[PARAMETER_dtype] != Py_None) return 0;
    if (PyArray_ISDATETIME(array))
        return glue_read_date_start(self->op, self->skips_nan, array, given[PARAMETER_initial],
                                    epilogue);
    if (!PyTypeNum_ISNUMBER(PyArray_TYPE(array)) && !PyTypeNum_ISBOOL(PyArray_TYPE(array)) &&
        !PyTypeNum_ISUSERDEF(PyArray_TYPE(array)))
        return 0;
    if (glue_find_dtype(PyArray_DESCR(array), "reducing an array of dtype", &element) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (!glue_read_start(self->op, element, given[PARAMETER_initial], given[PARAMETER_kernel],
                         epilogue))
        return 0;
    return !epilogue->is_wide || epilogue->rounded == GPR_FLOAT64 ||
           given[PARAMETER_out] == Py_None;
}

/* Whether NumPy may say more of a result than its numbers: it warns of, or refuses, rows of which
 * nothing is left. Those are NaN, infinite, or positions below 0. */
static int may_lack_elements(const glue_function *self, PyArrayObject *array, int is_masked)
{
    switch (self->op) {
    case GPR_OP_MEAN:
    case GPR_OP_VAR:
    case GPR_OP_STD: return is_masked || self->skips_nan;
    case GPR_OP_MIN:
    case GPR_OP_MAX:
    case GPR_OP_ARGMIN:
    case GPR_OP_ARGMAX:
        return self->skips_nan && !PyArray_ISINTEGER(array) && !PyArray_ISBOOL(array);
    default: return 0;
    }
}

/* Whether results without a start may be in `out` before NumPy's rules have been asked: not where
 * these refuse some of them, or warn first. */
static int takes_out(const glue_function *self, PyArrayObject *array, int is_masked)
{
    return !may_lack_elements(self, array, is_masked) || (!is_masked && !finds_positions(self->op));
}

/* Whether the core does all that NumPy does for such arguments, of any array. */
static int are_plain_of_any(const glue_function *self, PyObject *const *given)
{
    if (!PyUnicode_Check(given[PARAMETER_kernel])) return 0;
    if (given[PARAMETER_correction] != NULL) return 0;
    if (!finds_positions(self->op)) return 1;
    /* NumPy takes the truth of any object there, but for the one that stands for no value. */
    return !PyTuple_Check(given[PARAMETER_axis]) && PyBool_Check(given[PARAMETER_keepdims]);
}

/* The same of an exact ndarray. */
static int are_plain(const glue_function *self, PyObject *const *given, glue_epilogue *epilogue)
{
    PyObject *array = given[PARAMETER_a], *where = given[PARAMETER_where];
    const int is_masked = where != Py_True;

    if (!are_plain_of_any(self, given)) return 0;
    if (PyArray_SIZE((PyArrayObject *)array) == 0 &&
        (!takes_nothing(self->op) || given[PARAMETER_initial] != NULL ||
         PyArray_ISDATETIME((PyArrayObject *)array)))
        return 0;
    if (PyArray_ISDATETIME((PyArrayObject *)array) && given[PARAMETER_dtype] != Py_None) return 0;
    if (given[PARAMETER_initial] != NULL &&
        !takes_start(self, (PyArrayObject *)array, given, epilogue))
        return 0;
    if (is_masked && !((takes_mask(self->op) || epilogue->has_start) &&
                       glue_is_mask_of(where, (PyArrayObject *)array)))
        return 0;
    return given[PARAMETER_dtype] == Py_None || takes_dtype(self, is_masked);
}

/* Whether a call counts elements of a whole array. */
static int counts_all(const glue_function *self, PyObject *const *given)
{
    return self->op == GPR_OP_COUNT_NONZERO && PyArray_CheckExact(given[PARAMETER_a]) &&
           given[PARAMETER_axis] == Py_None && given[PARAMETER_keepdims] == Py_False;
}

/* Hands results to the function of Python that knows NumPy's further rules for them. */
static PyObject *finish(const glue_function *self, PyObject *result, PyObject *const *given)
{
    enum { ARGUMENTS = 6 + GLUE_OPTION_COUNT };
    PyObject *all[ARGUMENTS] = {result,
                                given[PARAMETER_a],
                                given[PARAMETER_axis],
                                given[PARAMETER_keepdims],
                                given[PARAMETER_where],
                                given[PARAMETER_ddof]};
    PyObject *finished;

    memcpy(all + ARGUMENTS - GLUE_OPTION_COUNT, given + PARAMETER_kernel,
           GLUE_OPTION_COUNT * sizeof *all);
    finished = PyObject_Vectorcall(self->finish, all, ARGUMENTS, NULL);
    Py_DECREF(result);
    return finished;
}

/* What the core takes in place of an argument, and NumPy's functions convert to the same: an array
 * of numbers; a mask that is broadcast. New references; NULL: the argument as it is. */
typedef struct stand_ins {
    PyObject *array, *mask;
} stand_ins;

/* An array of a list, a tuple or a number. NULL of other objects, and where that fails: the
 * function in Python says why. Only what ends a program stays an exception. */
static PyObject *array_of_numbers(const glue_function *self, PyObject *object)
{
    PyObject *array = NULL;

    if (self->skips_nan) return NULL; /* NumPy's are other functions for what is no array */
    if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object) && !PyFloat_CheckExact(object) &&
        !PyLong_CheckExact(object) && !PyBool_Check(object) && !PyComplex_CheckExact(object) &&
        !PyArray_IsScalar(object, Number) && !PyArray_IsScalar(object, Bool))
        return NULL;
    array = PyArray_FROM_O(object);
    if (array == NULL && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return array;
}

/* A view of a bool array that is broadcast to another's shape; NULL of a shape that is not, with an
 * exception if Python fails. */
static PyObject *broadcast_mask(PyArrayObject *from, PyArrayObject *array)
{
    npy_intp strides[GPR_MAX_NDIM];
    PyObject *mask = NULL;

    if (PyArray_NDIM(from) > PyArray_NDIM(array) || PyArray_NDIM(array) > GPR_MAX_NDIM) return NULL;
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        const int axis = i - (PyArray_NDIM(array) - PyArray_NDIM(from));

        strides[i] = 0;
        if (axis < 0 || PyArray_DIM(from, axis) == 1) continue;
        if (PyArray_DIM(from, axis) != PyArray_DIM(array, i)) return NULL;
        strides[i] = PyArray_STRIDE(from, axis);
    }
    mask = PyArray_NewFromDescr(&PyArray_Type, PyArray_DescrFromType(NPY_BOOL), PyArray_NDIM(array),
                                PyArray_DIMS(array), strides, PyArray_DATA(from), 0, NULL);
    if (mask != NULL &&
        PyArray_SetBaseObject((PyArrayObject *)mask, Py_NewRef((PyObject *)from)) < 0)
        Py_CLEAR(mask);
    return mask;
}

/* A mask of an array's shape from a bool array or a list. NULL of other objects, and where that
 * fails: the function in Python says why. Only what ends a program stays an exception. */
static PyObject *mask_of(PyObject *where, PyArrayObject *array)
{
    PyObject *from = NULL, *mask = NULL;

    if (PyList_CheckExact(where) || PyTuple_CheckExact(where)) {
        from = PyArray_FROM_OTF(where, NPY_BOOL, NPY_ARRAY_FORCECAST);
    } else if (PyArray_CheckExact(where) && PyArray_TYPE((PyArrayObject *)where) == NPY_BOOL) {
        from = Py_NewRef(where);
    }
    if (from != NULL) mask = broadcast_mask((PyArrayObject *)from, array);
    Py_XDECREF(from);
    if (mask == NULL && PyErr_Occurred() != NULL && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
    return mask;
}

static stand_ins stand_in(const glue_function *self, PyObject **given)
{
    stand_ins made = {NULL, NULL};
    PyObject *where = given[PARAMETER_where];

    if (!PyArray_CheckExact(given[PARAMETER_a]))
        made.array = array_of_numbers(self, given[PARAMETER_a]);
    if (made.array != NULL) given[PARAMETER_a] = made.array;
    if (where == Py_True || !PyArray_CheckExact(given[PARAMETER_a])) return made;
    if (!glue_is_mask_of(where, (PyArrayObject *)given[PARAMETER_a]))
        made.mask = mask_of(where, (PyArrayObject *)given[PARAMETER_a]);
    if (made.mask != NULL) given[PARAMETER_where] = made.mask;
    return made;
}

/* Whether an `out` of float64 makes a sum or product of narrower numbers one of float64. */
static int widens_into(const glue_function *self, PyArrayObject *array, PyObject *const *given)
{
    PyObject *const out = given[PARAMETER_out];

    if (self->op != GPR_OP_SUM && self->op != GPR_OP_PROD) return 0;
    if (given[PARAMETER_dtype] != Py_None || given[PARAMETER_initial] != NULL) return 0;
    return PyArray_CheckExact(out) && PyArray_TYPE((PyArrayObject *)out) == NPY_FLOAT64 &&
           (PyArray_ISINTEGER(array) || PyArray_ISBOOL(array) || PyArray_TYPE(array) == NPY_HALF ||
            PyArray_TYPE(array) == NPY_FLOAT32);
}

static glue_arguments arguments_of(const glue_function *self, PyObject *const *given,
                                   PyObject *mask)
{
    return (glue_arguments){self->number,
                            given[PARAMETER_axis],
                            given[PARAMETER_dtype],
                            given[PARAMETER_keepdims],
                            mask,
                            self->skips_nan ? Py_True : Py_False,
                            given[PARAMETER_ddof],
                            Py_None,
                            Py_None,
                            given + PARAMETER_kernel};
}

/* The result of an array in a GPU's memory; NotImplemented where NumPy has further rules, and of
 * any other object. */
static PyObject *reduce_device_array(const glue_function *self, PyObject *const *given)
{
    const glue_arguments all = arguments_of(self, given, Py_None);

    if (!are_plain_of_any(self, given) || given[PARAMETER_mean] != NULL ||
        given[PARAMETER_initial] != NULL || given[PARAMETER_where] != Py_True)
        Py_RETURN_NOTIMPLEMENTED;
    return glue_reduce_plain_device(self->state, given[PARAMETER_a], &all, given[PARAMETER_out]);
}

/* A variance about a given mean; NotImplemented where NumPy has further rules, and where the caller
 * names a kernel. */
static PyObject *vary_about(const glue_function *self, PyObject *const *given)
{
    const glue_arguments all = arguments_of(self, given, Py_None);

    if (given[PARAMETER_where] != Py_True || given[PARAMETER_dtype] != Py_None ||
        given[PARAMETER_out] != Py_None || given[PARAMETER_kernel] != self->automatic ||
        self->skips_nan)
        Py_RETURN_NOTIMPLEMENTED;
    return glue_vary_about(self->state, self->op, (PyArrayObject *)given[PARAMETER_a], &all,
                           given[PARAMETER_mean]);
}

/* The result, if `out` is None or takes it as it is; else NotImplemented. */
static PyObject *if_taken(PyObject *out, PyObject *result)
{
    PyArrayObject *to = (PyArrayObject *)out;

    if (out == Py_None || result == NULL || result == Py_NotImplemented) return result;
    PyArrayObject *const from = (PyArrayObject *)PyArray_FROM_O(result);
    const int fits = from != NULL && PyArray_CheckExact(out) && PyArray_ISBEHAVED(to) &&
                     PyArray_SAMESHAPE(to, from) &&
                     PyArray_EquivTypes(PyArray_DESCR(to), PyArray_DESCR(from));
    Py_XDECREF(from);
    if (fits) return result;
    Py_DECREF(result);
    return from != NULL ? Py_NewRef(Py_NotImplemented) : NULL;
}

/* The result of dates by ways of their own; NotImplemented where they have none, or NumPy has
 * further rules. */
static PyObject *reduce_dates(const glue_function *self, PyObject *const *given)
{
    PyObject *const where = given[PARAMETER_where];
    PyArrayObject *dates = (PyArrayObject *)given[PARAMETER_a];
    const glue_arguments all = arguments_of(self, given, where != Py_True ? where : Py_None);
    PyObject *found = NULL;

    if (given[PARAMETER_initial] != NULL) Py_RETURN_NOTIMPLEMENTED;
    if (self->op == GPR_OP_SUM && PyArray_TYPE(dates) == NPY_TIMEDELTA)
        return if_taken(given[PARAMETER_out], glue_sum_times(self->state, dates, &all));
    if (given[PARAMETER_out] != Py_None) Py_RETURN_NOTIMPLEMENTED;
    if (finds_positions(self->op)) found = glue_find_nat(self->state, dates, &all);
    if (found != NULL || PyErr_Occurred() != NULL) return found;
    if (self->op == GPR_OP_PTP) return glue_ptp_dates(self->state, dates, &all);
    if (self->op == GPR_OP_MEAN && where == Py_True && PyArray_TYPE(dates) == NPY_TIMEDELTA)
        return glue_mean_of_times(self->state, dates, &all);
    Py_RETURN_NOTIMPLEMENTED;
}

/* The result of an exact ndarray; NotImplemented where NumPy has further rules. */
static PyObject *reduce_ndarray(const glue_function *self, PyObject *const *given)
{
    glue_epilogue epilogue = {.has_start = 0};
    const int are_dates = PyArray_ISDATETIME((PyArrayObject *)given[PARAMETER_a]);
    PyObject *result = NULL;

    if (counts_all(self, given)) {
        result = glue_count_few(self->state, (PyArrayObject *)given[PARAMETER_a],
                                given + PARAMETER_kernel);
        if (result != NULL || PyErr_Occurred() != NULL) return result;
    }
    if (!are_plain(self, given, &epilogue)) Py_RETURN_NOTIMPLEMENTED;
    if (given[PARAMETER_mean] != NULL) return vary_about(self, given);
    if (are_dates) {
        result = reduce_dates(self, given);
        if (result != Py_NotImplemented) return result;
        Py_DECREF(result);
    }
    PyObject *where = given[PARAMETER_where], *mask = where != Py_True ? where : Py_None;
    PyArrayObject *array = (PyArrayObject *)given[PARAMETER_a];
    glue_arguments all = arguments_of(self, given, mask);
    const int is_wide = epilogue.is_wide || widens_into(self, array, given);
    PyArray_Descr *const wide = is_wide ? PyArray_DescrFromType(NPY_FLOAT64) : NULL;

    if (wide != NULL) all.dtype = (PyObject *)wide;
    epilogue.skips_nan = self->skips_nan;
    /* What begins with a start is never of nothing. */
    epilogue.only_ordinary = !epilogue.has_start && self->finish != Py_None &&
                             may_lack_elements(self, array, mask != Py_None);
    epilogue.out_waits = !epilogue.has_start && !takes_out(self, array, mask != Py_None);
    result = glue_reduce_plain_ndarray(self->state, array, &all, &epilogue, given[PARAMETER_out]);
    Py_XDECREF(wide);
    if (result == NULL || result == Py_NotImplemented || !epilogue.has_others) return result;
    if (!epilogue.has_start && !are_dates) return finish(self, result, given);
    Py_DECREF(result);
    Py_RETURN_NOTIMPLEMENTED;
}

/* The same of a sum or product with a start whose `out` takes it as it is: where the start is added
 * to a wider number, the core makes an array of its own. */
static PyObject *reduce_to_out(const glue_function *self, PyObject *const *given)
{
    PyObject *without[PARAMETER_COUNT], *const result = reduce_ndarray(self, given);

    if (result != Py_NotImplemented || given[PARAMETER_out] == Py_None ||
        given[PARAMETER_initial] == NULL || (self->op != GPR_OP_SUM && self->op != GPR_OP_PROD))
        return result;
    Py_DECREF(result);
    memcpy(without, given, sizeof without);
    without[PARAMETER_out] = Py_None;
    return if_taken(given[PARAMETER_out], reduce_ndarray(self, without));
}

/* The result by the core; NotImplemented where NumPy has further rules. */
static PyObject *call_core(const glue_function *self, PyObject *const *given)
{
    PyObject *const out = given[PARAMETER_out];

    if (!PyArray_CheckExact(given[PARAMETER_a])) {
        PyObject *const result = reduce_device_array(self, given);
        const int is_made = result != NULL && result != Py_NotImplemented;
        return is_made && self->op == GPR_OP_MINMAX ? finish(self, result, given) : result;
    }
    PyObject *const result = reduce_to_out(self, given);
    if (result == NULL || result == Py_NotImplemented) return result;
    if (self->op == GPR_OP_MINMAX) return finish(self, result, given);
    if (out == Py_None || result == out) return result;
    const int failed = PyArray_CopyObject((PyArrayObject *)out, result) < 0;
    Py_DECREF(result);
    return failed ? NULL : Py_NewRef(out);
}

/* `correction` is another name of ddof, of which one is given. */
static void use_correction(const glue_function *self, PyObject **given)
{
    PyObject *const correction = given[PARAMETER_correction];

    if (correction == NULL || given[PARAMETER_ddof] != self->no_ddof) return;
    if (!PyLong_CheckExact(correction) && !PyFloat_CheckExact(correction)) return;
    given[PARAMETER_ddof] = correction;
    given[PARAMETER_correction] = NULL;
}

static PyObject *call_function(PyObject *callable, PyObject *const *arguments, size_t flagged,
                               PyObject *keywords)
{
    const glue_function *self = (glue_function *)callable;
    PyObject *given[PARAMETER_COUNT], *result = NULL;

    memcpy(given, self->defaults, sizeof given);
    if (bind(self, arguments, PyVectorcall_NARGS(flagged), keywords, given)) {
        use_correction(self, given);
        const stand_ins made = stand_in(self, given);

        result = PyErr_Occurred() == NULL ? call_core(self, given) : NULL;
        Py_XDECREF(made.array);
        Py_XDECREF(made.mask);
        if (result != Py_NotImplemented) return result;
        Py_DECREF(result);
    }
    return PyObject_Vectorcall(self->function, arguments, flagged, keywords);
}

/* ---------------------------------------------------------------- the type ------------------- */

/* Stores the names of the parameters and their meanings. 0, or -1 with an exception. */
static int set_parameters(glue_function *self, PyObject *names)
{
    static const char *const known[PARAMETER_COUNT] = {
#define PARAMETER(name, standard) #name,
        PARAMETERS(PARAMETER)
#undef PARAMETER
    };

    if (self->positional < 0 || self->positional > PyTuple_GET_SIZE(names)) {
        PyErr_Format(PyExc_ValueError, "%d of %zd parameters cannot have positions",
                     self->positional, PyTuple_GET_SIZE(names));
        return -1;
    }
    if (PyTuple_GET_SIZE(names) > PARAMETER_COUNT) {
        PyErr_Format(PyExc_ValueError, "a function has at most %d parameters",
                     (int)PARAMETER_COUNT);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int meaning = 0;

        while (
            meaning < PARAMETER_COUNT &&
            !(PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, known[meaning]) == 0))
            meaning++;
        if (meaning == PARAMETER_COUNT) {
            PyErr_Format(PyExc_ValueError, "no function has a parameter %R", name);
            return -1;
        }
        self->meanings[i] = (parameter)meaning;
        self->names[i] = Py_NewRef(name);
        PyUnicode_InternInPlace(&self->names[i]);
        self->count++;
    }
    return 0;
}

/* Function(function, parameters, positional, op, skip_nan, finish) */
static PyObject *new_function(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *function = NULL, *names = NULL, *number = NULL, *last = Py_None;
    int positional = 0, skips_nan = 0;
    PyObject *const standard[PARAMETER_COUNT] = {
#define PARAMETER(name, standard) standard,
        PARAMETERS(PARAMETER)
#undef PARAMETER
    };

    if (keywords != NULL && PyDict_GET_SIZE(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Function takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "OO!iOp|O", &function, &PyTuple_Type, &names, &positional,
                          &number, &skips_nan, &last))
        return NULL;
    glue_function *self = (glue_function *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->call = call_function;
    self->state = PyType_GetModuleState(type);
    self->function = Py_NewRef(function);
    self->finish = Py_NewRef(last);
    self->number = Py_NewRef(number);
    self->skips_nan = skips_nan;
    self->positional = positional;
    for (int i = 0; i < PARAMETER_COUNT; i++) self->defaults[i] = standard[i];
    self->automatic = PyUnicode_InternFromString("auto");
    self->no_ddof = PyFloat_FromDouble(0);
    self->defaults[PARAMETER_kernel] = self->automatic;
    self->defaults[PARAMETER_ddof] = self->no_ddof;
    if (self->automatic == NULL || self->no_ddof == NULL || self->state == NULL ||
        glue_read_operator(number, &self->op) < 0 || set_parameters(self, names) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int traverse_function(PyObject *object, visitproc visit, void *arg)
{
    const glue_function *self = (glue_function *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->finish);
    Py_VISIT(self->dict);
    return 0;
}

static int clear_function(PyObject *object)
{
    glue_function *self = (glue_function *)object;

    Py_CLEAR(self->function);
    Py_CLEAR(self->finish);
    Py_CLEAR(self->dict);
    return 0;
}

static void free_function(PyObject *object)
{
    glue_function *self = (glue_function *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    if (self->weak_references != NULL) PyObject_ClearWeakRefs(object);
    (void)clear_function(object);
    Py_CLEAR(self->number);
    Py_CLEAR(self->automatic);
    Py_CLEAR(self->no_ddof);
    for (int i = 0; i < self->count; i++) Py_CLEAR(self->names[i]);
    type->tp_free(object);
    Py_DECREF(type);
}

/* As a function's, in a class: the first argument is the object. */
static PyObject *get_method(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

static PyObject *show_function(PyObject *self)
{
    return PyObject_Repr(((glue_function *)self)->function);
}

/* Pickled, and copied, by its name, as functions are. */
static PyObject *reduce_function(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef function_methods[] = {
    {"__reduce__", reduce_function, METH_NOARGS, PyDoc_STR("the name, for pickle and copy")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(glue_function, call), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(glue_function, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(glue_function, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef function_getters[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A function that reduces, called without a frame of Python.")},
    {Py_tp_new, (void *)new_function},
    {Py_tp_dealloc, (void *)free_function},
    {Py_tp_traverse, (void *)traverse_function},
    {Py_tp_clear, (void *)clear_function},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_descr_get, (void *)get_method},
    {Py_tp_repr, (void *)show_function},
    {Py_tp_methods, (void *)function_methods},
    {Py_tp_members, (void *)function_members},
    {Py_tp_getset, (void *)function_getters},
    {0, NULL},
};

static PyType_Spec function_spec = {
    .name = "gpureduce._core.Function",
    .basicsize = (int)sizeof(glue_function),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = function_slots,
};

int glue_add_function_type(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &function_spec, NULL);
    const int failed = type == NULL || PyModule_AddObjectRef(module, "Function", type) < 0;

    Py_XDECREF(type);
    return failed ? -1 : 0;
}
