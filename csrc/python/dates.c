/* Dates and times of an array of the host, which are reduced as the int64 that they are. NaT is the
 * smallest of them: a minimum finds it, and it is the result of what it is among, but for nanmin
 * and nanmax. Rules in Python have what NumPy does with masks and starts. */
#include "python/glue.h"

static const npy_int64 not_a_time = NPY_DATETIME_NAT;

/* A call on integers of an array of dates. */
typedef struct date_call {
    glue_state *state;
    PyArrayObject *dates, *integers;
    const glue_arguments *given;
} date_call;

/* ---------------------------------------------------------------- integers ------------------- */

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
static PyObject *as_dates(const date_call *call, PyObject *integers)
{
    PyArray_Descr *const descr = PyArray_DescrNewByteorder(PyArray_DESCR(call->dates), NPY_NATIVE);
    npy_int64 number = 0;

    if (descr == NULL) return NULL;
    if (PyArray_Check(integers)) return PyArray_View((PyArrayObject *)integers, descr, NULL);
    PyArray_ScalarAsCtype(integers, &number);
    PyObject *const date = PyArray_Scalar(&number, descr, NULL);
    Py_DECREF(descr);
    return date;
}

static int is_result(const PyObject *found)
{
    return found != NULL && found != Py_NotImplemented;
}

/* The result of `found`, which is released. */
static PyObject *made_of(PyObject *found, PyObject *result)
{
    Py_DECREF(found);
    return result;
}

static PyObject *dates_of(const date_call *call, PyObject *found)
{
    return is_result(found) ? made_of(found, as_dates(call, found)) : found;
}

/* A reduction of the integers, of those that a mask leaves if it is not None. */
static PyObject *reduce_by(const date_call *call, gpr_operator op, PyObject *mask)
{
    glue_arguments own = *call->given;
    PyObject *result = NULL;

    own.op = PyLong_FromLong(op);
    own.mask = mask;
    if (own.op != NULL)
        result = glue_reduce_plain_ndarray(call->state, call->integers, &own, NULL, Py_None);
    Py_XDECREF(own.op);
    return result;
}

/* The smallest and the largest of all that a mask leaves. 0, or -1: *failed is NotImplemented, or
 * NULL with an exception. */
static int find_extremes(const date_call *call, PyObject *mask, npy_int64 extremes[2],
                         PyObject **failed)
{
    glue_arguments whole = *call->given;
    const date_call all = {call->state, call->dates, call->integers, &whole};

    whole.axis = Py_None;
    whole.keepdims = Py_False;
    PyObject *const found = reduce_by(&all, GPR_OP_MINMAX, mask);
    *failed = found;
    if (!is_result(found)) return -1;
    memcpy(extremes, PyArray_DATA((PyArrayObject *)found), 2 * sizeof *extremes);
    Py_DECREF(found);
    return 0;
}

/* The numbers of results in a row of memory: of an array, whose memory has no gaps, or of one
 * number, which is copied to *one. */
static npy_int64 *numbers_of(PyObject *results, npy_int64 *one, npy_intp *count)
{
    if (PyArray_Check(results)) {
        *count = PyArray_SIZE((PyArrayObject *)results);
        return PyArray_DATA((PyArrayObject *)results);
    }
    *count = 1;
    PyArray_ScalarAsCtype(results, one);
    return one;
}

/* An array in the order of memory of another one of its shape: itself, or a copy. */
static PyObject *in_order_of(PyObject *like, PyObject *results)
{
    PyArrayObject *as = (PyArrayObject *)like, *from = (PyArrayObject *)results;

    if (!PyArray_Check(results) ||
        PyArray_CompareLists(PyArray_STRIDES(as), PyArray_STRIDES(from), PyArray_NDIM(as)))
        return Py_NewRef(results);
    PyObject *const copy = PyArray_NewLikeArray(as, NPY_KEEPORDER, NULL, 0);
    if (copy != NULL && PyArray_CopyInto((PyArrayObject *)copy, from) < 0) {
        Py_DECREF(copy);
        return NULL;
    }
    return copy;
}

/* Results in whose place others are taken, where a third is NaT: arrays of one shape, or numbers.
 * Releases all three. */
static PyObject *replace_at_nat(PyObject *results, PyObject *others, PyObject *lows)
{
    npy_int64 one[3];
    npy_intp count = 0;
    PyObject *made = NULL;

    if (is_result(results) && is_result(others) && is_result(lows)) {
        Py_SETREF(others, in_order_of(results, others));
        Py_SETREF(lows, in_order_of(results, lows));
        if (others == NULL || lows == NULL) goto done;
        const npy_int64 *low = numbers_of(lows, &one[0], &count),
                        *other = numbers_of(others, &one[1], &count);
        npy_int64 *result = numbers_of(results, &one[2], &count);

        if (PyArray_Check(results)) {
            for (npy_intp i = 0; i < count; i++)
                result[i] = low[i] == not_a_time ? other[i] : result[i];
            made = Py_NewRef(results);
        } else {
            made = Py_NewRef(*low == not_a_time ? others : results);
        }
    } else if (results != NULL && others != NULL && lows != NULL) {
        made = Py_NewRef(Py_NotImplemented);
    }
done:
    Py_XDECREF(results);
    Py_XDECREF(others);
    Py_XDECREF(lows);
    return made;
}

static int have_nat(PyObject *lows)
{
    npy_int64 one = 0;
    npy_intp count = 0;
    const npy_int64 *low = numbers_of(lows, &one, &count);

    for (npy_intp i = 0; i < count; i++)
        if (low[i] == not_a_time) return 1;
    return 0;
}

/* Whether elements are in one piece of memory, in any order of axes, in which they can be read. */
static int are_in_a_row(PyArrayObject *integers)
{
    return PyArray_ISONESEGMENT(integers) && PyArray_ISBEHAVED_RO(integers);
}

/* The place of the first NaT in memory, of elements in a row; -1: there is none. */
static npy_intp find_nat(PyArrayObject *integers)
{
    enum { STRETCH = 512 };
    const npy_int64 *numbers = PyArray_DATA(integers);
    const npy_intp count = PyArray_SIZE(integers);

    for (npy_intp first = 0; first < count; first += STRETCH) {
        const npy_intp end = count - first < STRETCH ? count : first + STRETCH;
        int is_found = 0;

        for (npy_intp i = first; i < end; i++) is_found |= numbers[i] == not_a_time;
        for (npy_intp i = first; is_found && i < end; i++)
            if (numbers[i] == not_a_time) return i;
    }
    return -1;
}

/* Whether there is known to be no NaT: looking for it takes less time than a reduction. */
static int has_no_nat(const date_call *call)
{
    return are_in_a_row(call->integers) && find_nat(call->integers) < 0;
}

/* Whether each element is a date. */
static PyObject *dates_among(const date_call *call)
{
    PyObject *const nat = PyLong_FromLongLong(not_a_time);
    PyObject *mask = NULL;

    if (nat != NULL) mask = PyObject_RichCompare((PyObject *)call->integers, nat, Py_NE);
    Py_XDECREF(nat);
    if (mask == NULL || PyArray_Check(mask)) return mask;
    return made_of(mask, PyArray_FROM_O(mask)); /* of an array without axes a number */
}

/* ---------------------------------------------------------------- operators ------------------ */

/* The largest, or NaT. */
static PyObject *find_largest(const date_call *call)
{
    if (has_no_nat(call)) return reduce_by(call, GPR_OP_MAX, Py_None);
    PyObject *const lows = reduce_by(call, GPR_OP_MIN, Py_None);
    if (!is_result(lows)) return lows;
    if (!have_nat(lows)) return made_of(lows, reduce_by(call, GPR_OP_MAX, Py_None));
    return replace_at_nat(reduce_by(call, GPR_OP_MAX, Py_None), Py_NewRef(lows), lows);
}

/* The smallest but NaT, which is the result of nothing else: its largest is, too. */
static PyObject *find_smallest_date(const date_call *call)
{
    PyObject *const lows = reduce_by(call, GPR_OP_MIN, Py_None);
    PyObject *mask = NULL, *smallest = NULL, *highs = NULL;

    if (!is_result(lows) || !have_nat(lows)) return lows;
    mask = made_of(lows, dates_among(call));
    if (mask == NULL) return NULL;
    smallest = made_of(mask, reduce_by(call, GPR_OP_MIN, mask));
    highs = reduce_by(call, GPR_OP_MAX, Py_None);
    return replace_at_nat(smallest, Py_XNewRef(highs), highs);
}

/* NumPy warns where the largest date is NaT. */
static PyObject *unless_nat(PyObject *found)
{
    if (is_result(found) && have_nat(found)) return made_of(found, Py_NewRef(Py_NotImplemented));
    return found;
}

/* The first NaT, or the first extreme. */
static PyObject *find_position(const date_call *call, gpr_operator op)
{
    const int is_only_row = PyArray_ISCARRAY_RO(call->integers) &&
                            call->given->keepdims == Py_False &&
                            (call->given->axis == Py_None || PyArray_NDIM(call->integers) == 1);

    if (is_only_row) { /* which NaT ends */
        const npy_intp at = find_nat(call->integers);
        if (at < 0) return reduce_by(call, op, Py_None);
        PyArray_Descr *const descr = PyArray_DescrFromType(NPY_INTP);
        PyObject *const position = PyArray_Scalar((void *)&at, descr, NULL);
        Py_DECREF(descr);
        return position;
    }
    if (op == GPR_OP_ARGMIN || has_no_nat(call)) return reduce_by(call, op, Py_None);
    PyObject *const lows = reduce_by(call, GPR_OP_MIN, Py_None);
    if (!is_result(lows)) return lows;
    if (!have_nat(lows)) return made_of(lows, reduce_by(call, op, Py_None));
    return replace_at_nat(reduce_by(call, op, Py_None), reduce_by(call, GPR_OP_ARGMIN, Py_None),
                          lows);
}

/* The smallest and the largest date; 0 and 0 where there is none. As find_extremes. */
static int find_extreme_dates(const date_call *call, npy_int64 extremes[2], PyObject **failed)
{
    const npy_int64 *numbers = PyArray_DATA(call->integers);
    const npy_intp count = PyArray_SIZE(call->integers);
    npy_int64 low = NPY_MAX_INT64, high = not_a_time;
    int lacks = 0;

    if (are_in_a_row(call->integers)) {
        for (npy_intp i = 0; i < count; i++) {
            const npy_int64 x = numbers[i] == not_a_time ? low : numbers[i];
            low = x < low ? x : low;
            high = numbers[i] > high ? numbers[i] : high;
        }
        extremes[0] = low;
        extremes[1] = high;
    } else {
        PyObject *const mask = dates_among(call);
        *failed = NULL;
        lacks = mask == NULL || find_extremes(call, mask, extremes, failed) < 0;
        Py_XDECREF(mask);
    }
    if (!lacks && extremes[0] > extremes[1]) extremes[0] = extremes[1] = 0;
    return lacks ? -1 : 0;
}

/* The sum of times, NaT of what NaT is among. Where a partial sum may be beyond 64 bits, what NumPy
 * makes of that depends on the order of additions, and on its version. */
static PyObject *sum_times(const date_call *call)
{
    const npy_int64 most = NPY_MAX_INT64 / PyArray_SIZE(call->integers);
    npy_int64 extremes[2];
    PyObject *failed = NULL;

    if (PyArray_TYPE(call->dates) != NPY_TIMEDELTA) Py_RETURN_NOTIMPLEMENTED;
    if (find_extremes(call, Py_None, extremes, &failed) < 0) return failed;
    const int has_nat = extremes[0] == not_a_time;
    if (has_nat && find_extreme_dates(call, extremes, &failed) < 0) return failed;
    if (extremes[0] < -most || extremes[1] > most) Py_RETURN_NOTIMPLEMENTED;
    if (!has_nat) return reduce_by(call, GPR_OP_SUM, Py_None);
    PyObject *const lows = reduce_by(call, GPR_OP_MIN, Py_None);
    if (!is_result(lows) || !PyArray_Check(lows)) return lows;
    return replace_at_nat(reduce_by(call, GPR_OP_SUM, Py_None), Py_NewRef(lows), lows);
}

static PyObject *reduce(const date_call *call, gpr_operator op, int skips)
{
    switch (op) {
    case GPR_OP_MIN:
        if (skips) return dates_of(call, unless_nat(find_smallest_date(call)));
        return dates_of(call, reduce_by(call, op, Py_None));
    case GPR_OP_MAX:
        if (skips) return dates_of(call, unless_nat(reduce_by(call, op, Py_None)));
        return dates_of(call, find_largest(call));
    case GPR_OP_SUM: return dates_of(call, sum_times(call));
    case GPR_OP_ARGMIN:
    case GPR_OP_ARGMAX:
        if (!skips) return find_position(call, op);
        break;
    default: break;
    }
    Py_RETURN_NOTIMPLEMENTED;
}

/* Whether `out` takes a result as it is. */
static int takes(PyObject *out, PyObject *result)
{
    PyArrayObject *to = (PyArrayObject *)out;
    PyArray_Descr *descr = NULL;
    int fits = 0;

    if (!PyArray_CheckExact(out) || !PyArray_ISBEHAVED(to)) return 0;
    if (!PyArray_Check(result)) {
        descr = PyArray_DescrFromScalar(result);
        fits = PyArray_NDIM(to) == 0 && PyArray_EquivTypes(PyArray_DESCR(to), descr);
        Py_DECREF(descr);
        return fits;
    }
    return PyArray_SAMESHAPE(to, (PyArrayObject *)result) &&
           PyArray_EquivTypes(PyArray_DESCR(to), PyArray_DESCR((PyArrayObject *)result));
}

PyObject *glue_reduce_dates(glue_state *state, gpr_operator op, PyArrayObject *dates,
                            const glue_arguments *given, PyObject *out)
{
    glue_arguments own = *given;
    const date_call call = {state, dates, integers_of(dates), &own};
    PyObject *result = NULL;

    if (call.integers == NULL) return NULL;
    own.skip_nan = Py_False; /* integers have none */
    result = reduce(&call, op, given->skip_nan == Py_True);
    Py_DECREF(call.integers);
    if (!is_result(result) || out == Py_None) return result;
    if (!takes(out, result)) return made_of(result, Py_NewRef(Py_NotImplemented));
    const int failed = PyArray_CopyObject((PyArrayObject *)out, result) < 0;
    return made_of(result, failed ? NULL : Py_NewRef(out));
}
