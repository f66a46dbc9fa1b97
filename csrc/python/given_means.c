/* Variances about means that the caller gives, of rows of floats: a row's variance about its own
 * mean, and how far that is from the given one. */
#include <math.h>

#include "python/glue.h"

/* What the numbers of a call's results are made of, in the order of the results. */
typedef struct given_mean_call {
    double count, ddof; /* of a row */
    const double *means, *squares;
    const void *given; /* a number for each, of the elements' type; NULL: there is one for all */
    double for_all;
    int is_std;
} given_mean_call;

/* 0: a result is NaN, of which there are further rules. */
#define DEFINE_VARY_ABOUT(name, c_type)                                                 \
    static int vary_about_##name(const given_mean_call *call, npy_intp count, void *to) \
    {                                                                                   \
        const double share = call->count / (call->count - call->ddof);                  \
        const c_type *given = call->given;                                              \
        c_type *results = to;                                                           \
        int has_nan = 0;                                                                \
                                                                                        \
        for (npy_intp i = 0; i < count; i++) {                                          \
            const double apart =                                                        \
                call->means[i] - (given != NULL ? (double)given[i] : call->for_all);    \
            const double spread = (call->squares[i] + apart * apart) * share;           \
                                                                                        \
            has_nan |= spread != spread;                                                \
            results[i] = (c_type)(call->is_std ? sqrt(spread) : spread);                \
        }                                                                               \
        return !has_nan;                                                                \
    }
DEFINE_VARY_ABOUT(float32, float)
DEFINE_VARY_ABOUT(float64, double)

/* Reads what the caller gives: a float, or the means of rows, which have the shape of `means`. 0:
 * rules in Python take it. */
static int read_given(given_mean_call *call, PyObject *given, PyArrayObject *array,
                      PyArrayObject *means)
{
    PyArrayObject *all = (PyArrayObject *)given;

    if (PyFloat_CheckExact(given) ||
        (PyArray_IsScalar(given, Double) && PyArray_TYPE(array) == NPY_FLOAT64)) {
        call->for_all = PyFloat_AS_DOUBLE(given);
        return 1;
    }
    if (!PyArray_CheckExact(given) || PyArray_TYPE(all) != PyArray_TYPE(array)) return 0;
    if (!PyArray_ISCARRAY_RO(all) || !PyArray_SAMESHAPE(all, means)) return 0;
    call->given = PyArray_DATA(all);
    return 1;
}

/* A reduction of every element to float64, divided by the elements of a row. */
static PyObject *reduce_wide(glue_state *state, gpr_operator op, PyArrayObject *array,
                             const glue_arguments *given, PyObject *keepdims)
{
    glue_arguments own = *given;
    PyArray_Descr *const wide = PyArray_DescrFromType(NPY_FLOAT64);
    PyObject *result = NULL;

    own.dtype = (PyObject *)wide;
    own.keepdims = keepdims;
    own.op = PyLong_FromLong(op);
    own.ddof = PyFloat_FromDouble(0);
    if (own.op != NULL && own.ddof != NULL)
        result = glue_reduce_plain_ndarray(state, array, &own, NULL, Py_None);
    Py_XDECREF(own.op);
    Py_XDECREF(own.ddof);
    Py_DECREF(wide);
    return result;
}

/* The results in the place and the order of squared distances; NotImplemented: there are further
 * rules. */
static PyObject *make_results(given_mean_call *call, PyArrayObject *array, PyObject *squares)
{
    PyArray_Descr *const descr = PyArray_DescrFromType(PyArray_TYPE(array));
    const int is_single = PyArray_TYPE(array) == NPY_FLOAT32;
    npy_intp count = 1;
    double square = 0, number = 0; /* room for a result */
    void *to = &number;
    PyObject *made = NULL;

    if (PyArray_Check(squares)) {
        count = PyArray_SIZE((PyArrayObject *)squares);
        call->squares = PyArray_DATA((PyArrayObject *)squares);
        Py_INCREF(descr);
        made = PyArray_NewLikeArray((PyArrayObject *)squares, NPY_KEEPORDER, descr, 0);
        if (made == NULL) goto done;
        to = PyArray_DATA((PyArrayObject *)made);
    } else {
        PyArray_ScalarAsCtype(squares, &square);
        call->squares = &square;
    }
    if (!(is_single ? vary_about_float32 : vary_about_float64)(call, count, to)) {
        Py_XDECREF(made);
        made = Py_NewRef(Py_NotImplemented);
    } else if (made == NULL) {
        made = PyArray_Scalar(&number, descr, NULL);
    }
done:
    Py_DECREF(descr);
    return made;
}

static int is_in_c_order(PyObject *results)
{
    return !PyArray_Check(results) || PyArray_IS_C_CONTIGUOUS((PyArrayObject *)results);
}

PyObject *glue_vary_about(glue_state *state, gpr_operator op, PyArrayObject *array,
                          const glue_arguments *given, PyObject *mean)
{
    given_mean_call call = {.is_std = op == GPR_OP_STD};
    PyObject *means = NULL, *squares = NULL, *made = NULL;

    if (PyArray_TYPE(array) != NPY_FLOAT32 && PyArray_TYPE(array) != NPY_FLOAT64)
        Py_RETURN_NOTIMPLEMENTED;
    if (!PyFloat_Check(mean) && !PyArray_CheckExact(mean)) Py_RETURN_NOTIMPLEMENTED;
    call.ddof = PyFloat_AsDouble(given->ddof);
    if (call.ddof == -1 && PyErr_Occurred() != NULL) return NULL;
    means = reduce_wide(state, GPR_OP_MEAN, array, given, Py_True);
    if (means == NULL || means == Py_NotImplemented) return means;
    squares = reduce_wide(state, GPR_OP_VAR, array, given, given->keepdims);
    if (squares == NULL || squares == Py_NotImplemented) {
        Py_DECREF(means);
        return squares;
    }
    made = Py_NewRef(Py_NotImplemented);
    if (PyArray_Check(means) && is_in_c_order(means) && is_in_c_order(squares) &&
        read_given(&call, mean, array, (PyArrayObject *)means)) {
        call.means = PyArray_DATA((PyArrayObject *)means);
        call.count = (double)(PyArray_SIZE(array) / PyArray_SIZE((PyArrayObject *)means));
        if (call.count > call.ddof) Py_SETREF(made, make_results(&call, array, squares));
    }
    Py_DECREF(means);
    Py_DECREF(squares);
    return made;
}
