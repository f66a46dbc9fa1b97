/* Reductions of dates and times that are two of integers: a range, and sums and means of times. */
#include <string.h>

#include "python/glue.h"

static int is_result(const PyObject *found)
{
    return found != NULL && found != Py_NotImplemented;
}

PyObject *glue_ptp_dates(glue_state *state, PyArrayObject *dates, const glue_arguments *given)
{
    PyObject *const high = glue_reduce_by(state, GPR_OP_MAX, dates, given);
    PyObject *low = NULL, *between = NULL;

    if (!is_result(high)) return high;
    low = glue_reduce_by(state, GPR_OP_MIN, dates, given);
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

/* Reduces all integers: to the smallest and the largest, or to one of them. 0, or -1: *failed is
 * NotImplemented, or NULL with an exception. */
static int reduce_all(glue_state *state, gpr_operator op, PyArrayObject *integers,
                      const glue_arguments *given, npy_int64 *numbers, PyObject **failed)
{
    glue_arguments whole = *given;

    whole.axis = Py_None;
    whole.keepdims = Py_False;
    *failed = glue_reduce_by(state, op, integers, &whole);
    if (!is_result(*failed)) return -1;
    if (op == GPR_OP_MINMAX)
        memcpy(numbers, PyArray_DATA((PyArrayObject *)*failed), 2 * sizeof *numbers);
    else
        PyArray_ScalarAsCtype(*failed, numbers);
    Py_DECREF(*failed);
    return 0;
}

/* The smallest of integers that are not NaT, at most `high`. */
static npy_int64 lowest_time(PyArrayObject *integers, npy_int64 high)
{
    const npy_int64 *numbers = PyArray_DATA(integers); /* a result: without gaps, in any order */
    const npy_intp count = PyArray_SIZE(integers);
    npy_int64 low = high;

    for (npy_intp i = 0; i < count; i++) {
        const npy_int64 number = numbers[i] == NPY_DATETIME_NAT ? high : numbers[i];
        low = number < low ? number : low;
    }
    return low;
}

/* Puts NaT in the place of sums, as integers, whose smallest element is NaT: both are arrays of one
 * shape. 0, or -1 with an exception. */
static int put_nat(PyArrayObject *sums, PyArrayObject *lows)
{
    const int lie_alike =
        PyArray_CompareLists(PyArray_STRIDES(sums), PyArray_STRIDES(lows), PyArray_NDIM(sums));
    const npy_intp count = PyArray_SIZE(sums);
    PyArrayObject *const in_order =
        lie_alike ? (PyArrayObject *)Py_NewRef(lows)
                  : (PyArrayObject *)PyArray_NewLikeArray(sums, NPY_KEEPORDER, NULL, 0);
    npy_int64 *sum = PyArray_DATA(sums);

    if (in_order == NULL || (!lie_alike && PyArray_CopyInto(in_order, lows) < 0)) {
        Py_XDECREF(in_order);
        return -1;
    }
    const npy_int64 *low = PyArray_DATA(in_order);
    for (npy_intp i = 0; i < count; i++)
        sum[i] = low[i] == NPY_DATETIME_NAT ? NPY_DATETIME_NAT : sum[i];
    Py_DECREF(in_order);
    return 0;
}

/* Whether a sum of `count` of them may be beyond 64 bits on its way: what NumPy makes of that
 * depends on the order of additions, and on its version. */
static int may_overflow(npy_int64 low, npy_int64 high, npy_intp count)
{
    const npy_int64 most = NPY_MAX_INT64 / count;

    return low < -most || high > most;
}

/* The sums of integers of which NaT is the smallest: NaT of what it is among. `high`: the largest,
 * NaT if all are; NULL if that is not known. */
static PyObject *sum_with_nat(glue_state *state, PyArrayObject *integers, const npy_int64 *high,
                              const glue_arguments *given)
{
    PyObject *const lows = glue_reduce_by(state, GPR_OP_MIN, integers, given);
    PyObject *sums = NULL;
    npy_int64 largest = 0;

    if (!is_result(lows) || !PyArray_Check(lows)) return lows; /* of all: NaT */
    if (high != NULL)
        largest = *high;
    else if (reduce_all(state, GPR_OP_MAX, integers, given, &largest, &sums) < 0)
        goto done;
    if (largest != NPY_DATETIME_NAT &&
        may_overflow(lowest_time((PyArrayObject *)lows, largest), largest, PyArray_SIZE(integers)))
        sums = Py_NewRef(Py_NotImplemented);
    else
        sums = glue_reduce_by(state, GPR_OP_SUM, integers, given);
    if (is_result(sums) && put_nat((PyArrayObject *)sums, (PyArrayObject *)lows) < 0)
        Py_CLEAR(sums);
done:
    Py_DECREF(lows);
    return sums;
}

PyObject *glue_sum_times(glue_state *state, PyArrayObject *times, const glue_arguments *given)
{
    PyArrayObject *const integers = integers_of(times);
    glue_arguments own = *given;
    npy_int64 extremes[2];
    PyObject *sums = NULL;

    if (integers == NULL) return NULL;
    own.skip_nan = Py_False; /* NumPy leaves NaT out of extremes alone */
    if (given->mask == Py_None && glue_begins_with_nat(integers)) {
        sums = sum_with_nat(state, integers, NULL, &own); /* reads them once less */
    } else {
        if (reduce_all(state, GPR_OP_MINMAX, integers, &own, extremes, &sums) < 0) goto done;
        if (extremes[0] == NPY_DATETIME_NAT)
            sums = sum_with_nat(state, integers, &extremes[1], &own);
        else if (may_overflow(extremes[0], extremes[1], PyArray_SIZE(times)))
            sums = Py_NewRef(Py_NotImplemented);
        else
            sums = glue_reduce_by(state, GPR_OP_SUM, integers, &own);
    }
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
