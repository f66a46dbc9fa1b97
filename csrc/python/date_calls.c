/* Reductions of dates and times that are two of integers: a range, and sums and means of times. */
#include "python/glue.h"

static int is_result(const PyObject *found)
{
    return found != NULL && found != Py_NotImplemented;
}

/* Another reduction with a call's arguments, of an array in place of its own. */
static PyObject *reduce_by(glue_state *state, gpr_operator op, PyArrayObject *array,
                           const glue_arguments *given)
{
    glue_arguments own = *given;
    PyObject *result = NULL;

    own.op = PyLong_FromLong(op);
    if (own.op != NULL) result = glue_reduce_plain_ndarray(state, array, &own, NULL, Py_None);
    Py_XDECREF(own.op);
    return result;
}

PyObject *glue_ptp_dates(glue_state *state, PyArrayObject *dates, const glue_arguments *given)
{
    PyObject *const high = reduce_by(state, GPR_OP_MAX, dates, given);
    PyObject *low = NULL, *between = NULL;

    if (!is_result(high)) return high;
    low = reduce_by(state, GPR_OP_MIN, dates, given);
    between = is_result(low) ? PyNumber_Subtract(high, low) : Py_XNewRef(low);
    Py_XDECREF(low);
    Py_DECREF(high);
    return between;
}

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

/* Integers, an array or a number, as times of the array's type in the machine's byte order. */
static PyObject *as_times(PyArrayObject *times, PyObject *integers)
{
    PyArray_Descr *const descr = PyArray_DescrNewByteorder(PyArray_DESCR(times), NPY_NATIVE);
    npy_int64 number = 0;

    if (descr == NULL) return NULL;
    if (PyArray_Check(integers)) return PyArray_View((PyArrayObject *)integers, descr, NULL);
    PyArray_ScalarAsCtype(integers, &number);
    PyObject *const time = PyArray_Scalar(&number, descr, NULL);
    Py_DECREF(descr);
    return time;
}

/* What is known of times before they are added. */
typedef struct times_known {
    npy_int64 low, high; /* of all but NaT */
    int has_nat;
} times_known;

/* 0, or -1: *failed is NotImplemented, or NULL with an exception. */
static int find_extremes(glue_state *state, PyArrayObject *integers, PyArrayObject *times,
                         const glue_arguments *given, times_known *known, PyObject **failed)
{
    glue_arguments whole = *given;

    whole.axis = Py_None;
    whole.keepdims = Py_False;
    *failed = reduce_by(state, GPR_OP_MINMAX, integers, &whole);
    if (!is_result(*failed)) return -1;
    const npy_int64 *extremes = PyArray_DATA((PyArrayObject *)*failed);
    known->low = extremes[0];
    known->high = extremes[1];
    known->has_nat = extremes[0] == NPY_DATETIME_NAT;
    Py_DECREF(*failed);
    if (!known->has_nat) return 0;
    whole.skip_nan = Py_True;
    *failed = reduce_by(state, GPR_OP_MIN, times, &whole);
    if (!is_result(*failed)) return -1;
    PyArray_ScalarAsCtype(*failed, &known->low);
    Py_DECREF(*failed);
    if (known->low == NPY_DATETIME_NAT) known->low = known->high = 0; /* there is nothing else */
    return 0;
}

/* Puts NaT in the place of sums, as integers, whose smallest element is NaT: both are arrays of one
 * shape. 0, or -1 with an exception. */
static int put_nat(PyArrayObject *sums, PyArrayObject *lows)
{
    PyArrayObject *const in_order =
        (PyArrayObject *)PyArray_NewLikeArray(sums, NPY_KEEPORDER, NULL, 0);

    if (in_order == NULL || PyArray_CopyInto(in_order, lows) < 0) {
        Py_XDECREF(in_order);
        return -1;
    }
    const npy_int64 *low = PyArray_DATA(in_order);
    npy_int64 *sum = PyArray_DATA(sums);
    for (npy_intp i = 0; i < PyArray_SIZE(sums); i++)
        if (low[i] == NPY_DATETIME_NAT) sum[i] = NPY_DATETIME_NAT;
    Py_DECREF(in_order);
    return 0;
}

/* The sums of integers among which NaT is: NaT of what it is among. */
static PyObject *sum_with_nat(glue_state *state, PyArrayObject *integers,
                              const glue_arguments *given)
{
    PyObject *const lows = reduce_by(state, GPR_OP_MIN, integers, given);
    PyObject *sums = NULL;

    if (!is_result(lows) || !PyArray_Check(lows)) return lows; /* of all: NaT */
    sums = reduce_by(state, GPR_OP_SUM, integers, given);
    if (is_result(sums) && put_nat((PyArrayObject *)sums, (PyArrayObject *)lows) < 0)
        Py_CLEAR(sums);
    Py_DECREF(lows);
    return sums;
}

PyObject *glue_sum_times(glue_state *state, PyArrayObject *times, const glue_arguments *given)
{
    const npy_int64 most = NPY_MAX_INT64 / PyArray_SIZE(times);
    PyArrayObject *const integers = integers_of(times);
    glue_arguments own = *given;
    times_known known;
    PyObject *sums = NULL;

    if (integers == NULL) return NULL;
    own.skip_nan = Py_False; /* NumPy leaves NaT out of extremes alone */
    if (find_extremes(state, integers, times, &own, &known, &sums) < 0) goto done;
    /* Where a partial sum may be beyond 64 bits, what NumPy makes of that depends on the order of
     * additions, and on its version. Extremes that crossed are of no element. */
    if (known.low <= known.high && (known.low < -most || known.high > most)) {
        sums = Py_NewRef(Py_NotImplemented);
        goto done;
    }
    sums = known.has_nat ? sum_with_nat(state, integers, &own)
                         : reduce_by(state, GPR_OP_SUM, integers, &own);
    if (is_result(sums)) {
        PyObject *const made = as_times(times, sums);
        Py_SETREF(sums, made);
    }
done:
    Py_DECREF(integers);
    return sums;
}

PyObject *glue_mean_of_times(glue_state *state, PyArrayObject *times, const glue_arguments *given)
{
    PyObject *const sums = glue_sum_times(state, times, given);
    PyObject *means = NULL;

    if (!is_result(sums)) return sums;
    const npy_intp results = PyArray_Check(sums) ? PyArray_SIZE((PyArrayObject *)sums) : 1;
    PyObject *const count = PyLong_FromSsize_t(PyArray_SIZE(times) / results);
    if (count != NULL) means = PyNumber_TrueDivide(sums, count);
    Py_XDECREF(count);
    Py_DECREF(sums);
    return means;
}
