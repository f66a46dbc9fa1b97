/* Dates and times of an array of the host, which are reduced as the int64 that they are. NaT is the
 * smallest of them: it is the minimum of what it is among, and here the maximum, too. Rules in
 * Python have what NumPy does with masks, starts and results in `out`. */
#include "python/glue.h"

static const npy_int64 not_a_time = NPY_DATETIME_NAT;

/* An array's memory as int64 of its byte order. */
static PyArrayObject *integers_of(PyArrayObject *dates)
{
    PyArray_Descr *descr = PyArray_DescrFromType(NPY_INT64);

    if (PyArray_ISBYTESWAPPED(dates)) {
        PyArray_Descr *const swapped = PyArray_DescrNewByteorder(descr, NPY_SWAP);
        Py_SETREF(descr, swapped);
        if (descr == NULL) return NULL;
    }
    return (PyArrayObject *)PyArray_View(dates, descr, NULL);
}

/* Integers, an array or a number, as dates of the array's type in the machine's byte order. */
static PyObject *as_dates(PyObject *integers, PyArrayObject *dates)
{
    PyArray_Descr *const descr = PyArray_DescrNewByteorder(PyArray_DESCR(dates), NPY_NATIVE);
    npy_int64 number = 0;

    if (descr == NULL) return NULL;
    if (PyArray_Check(integers)) return PyArray_View((PyArrayObject *)integers, descr, NULL);
    PyArray_ScalarAsCtype(integers, &number);
    PyObject *const date = PyArray_Scalar(&number, descr, NULL);
    Py_DECREF(descr);
    return date;
}

/* The larger of pairs of extremes, but NaT where that is the smaller. */
static PyObject *largest_of(PyObject *extremes)
{
    PyObject *low = PySequence_GetItem(extremes, 0), *high = NULL, *found = NULL;

    if (low != NULL) high = PySequence_GetItem(extremes, 1);
    if (high != NULL && !PyArray_Check(high)) {
        npy_int64 number = 0;
        PyArray_ScalarAsCtype(low, &number);
        found = Py_NewRef(number == not_a_time ? low : high);
    } else if (high != NULL) {
        /* Both have the same steps, so their copies are in the same order. */
        found = PyArray_NewCopy((PyArrayObject *)high, NPY_KEEPORDER);
        Py_SETREF(low, PyArray_NewCopy((PyArrayObject *)low, NPY_KEEPORDER));
        if (low == NULL) Py_CLEAR(found);
    }
    if (found != NULL && PyArray_Check(found)) {
        const npy_int64 *lows = PyArray_DATA((PyArrayObject *)low);
        npy_int64 *highs = PyArray_DATA((PyArrayObject *)found);
        for (npy_intp i = 0; i < PyArray_SIZE((PyArrayObject *)found); i++)
            if (lows[i] == not_a_time) highs[i] = not_a_time;
    }
    Py_XDECREF(low);
    Py_XDECREF(high);
    return found;
}

/* Whether NaT is among smallest elements. */
static int have_none(PyObject *lows)
{
    npy_int64 number = 0;

    if (!PyArray_Check(lows)) {
        PyArray_ScalarAsCtype(lows, &number);
        return number == not_a_time;
    }
    const npy_int64 *numbers = PyArray_DATA((PyArrayObject *)lows);
    for (npy_intp i = 0; i < PyArray_SIZE((PyArrayObject *)lows); i++)
        if (numbers[i] == not_a_time) return 1;
    return 0;
}

static PyObject *reduce_by(glue_state *state, gpr_operator op, PyArrayObject *integers,
                           const glue_arguments *given)
{
    glue_arguments own = *given;
    PyObject *result = NULL;

    own.op = PyLong_FromLong(op);
    if (own.op != NULL) result = glue_reduce_plain_ndarray(state, integers, &own, NULL, Py_None);
    Py_XDECREF(own.op);
    return result;
}

/* The result of `found`, which is released; NotImplemented and errors stay what they are. */
static PyObject *made_of(PyObject *found, PyObject *result)
{
    Py_DECREF(found);
    return result;
}

static int is_result(const PyObject *found)
{
    return found != NULL && found != Py_NotImplemented;
}

/* Whether a partial sum of times may be NaT or beyond 64 bits, by their extremes: what NumPy makes
 * of that depends on the order of additions, and on its version. */
static int may_overflow(PyObject *extremes, PyArrayObject *times)
{
    const npy_int64 *found = PyArray_DATA((PyArrayObject *)extremes);
    const npy_int64 most = NPY_MAX_INT64 / PyArray_SIZE(times);

    return found[0] < -most || found[1] > most;
}

static PyObject *sum_times(glue_state *state, PyArrayObject *times, PyArrayObject *integers,
                           const glue_arguments *given)
{
    glue_arguments whole = *given;
    PyObject *found = NULL;

    whole.axis = Py_None;
    whole.keepdims = Py_False;
    found = reduce_by(state, GPR_OP_MINMAX, integers, &whole);
    if (!is_result(found)) return found;
    if (may_overflow(found, times)) return made_of(found, Py_NewRef(Py_NotImplemented));
    found = made_of(found, reduce_by(state, GPR_OP_SUM, integers, given));
    return is_result(found) ? made_of(found, as_dates(found, times)) : found;
}

/* Extremes of what is not NaT: rules in Python look for it where it is among them. */
static PyObject *reduce_all_but_none(glue_state *state, gpr_operator op, PyArrayObject *dates,
                                     PyArrayObject *integers, const glue_arguments *given)
{
    PyObject *const found = reduce_by(state, op, integers, given);

    if (!is_result(found)) return found;
    if (have_none(found)) return made_of(found, Py_NewRef(Py_NotImplemented));
    return made_of(found, as_dates(found, dates));
}

static PyObject *reduce_integers(glue_state *state, gpr_operator op, PyArrayObject *dates,
                                 PyArrayObject *integers, const glue_arguments *given)
{
    PyObject *found = NULL;

    switch (op) {
    case GPR_OP_MIN:
        found = reduce_by(state, op, integers, given);
        return is_result(found) ? made_of(found, as_dates(found, dates)) : found;
    case GPR_OP_MAX:
        found = reduce_by(state, GPR_OP_MINMAX, integers, given);
        if (is_result(found)) found = made_of(found, largest_of(found));
        return is_result(found) ? made_of(found, as_dates(found, dates)) : found;
    case GPR_OP_ARGMAX: /* of NaT the first */
        found = reduce_by(state, GPR_OP_MIN, integers, given);
        if (!is_result(found)) return found;
        if (have_none(found)) return made_of(found, Py_NewRef(Py_NotImplemented));
        return made_of(found, reduce_by(state, op, integers, given));
    case GPR_OP_SUM:
        if (PyArray_TYPE(dates) != NPY_TIMEDELTA) Py_RETURN_NOTIMPLEMENTED;
        return sum_times(state, dates, integers, given);
    case GPR_OP_ARGMIN: return reduce_by(state, op, integers, given);
    default: Py_RETURN_NOTIMPLEMENTED;
    }
}

PyObject *glue_reduce_dates(glue_state *state, gpr_operator op, PyArrayObject *dates,
                            const glue_arguments *given)
{
    const int skips = given->skip_nan == Py_True;
    glue_arguments own = *given;
    PyObject *result = NULL;

    if (skips && op != GPR_OP_MIN && op != GPR_OP_MAX && op != GPR_OP_SUM) Py_RETURN_NOTIMPLEMENTED;
    own.skip_nan = Py_False; /* integers have none */
    PyArrayObject *const integers = integers_of(dates);
    if (integers == NULL) return NULL;
    result = skips && op != GPR_OP_SUM ? reduce_all_but_none(state, op, dates, integers, &own)
                                       : reduce_integers(state, op, dates, integers, &own);
    Py_DECREF(integers);
    return result;
}
