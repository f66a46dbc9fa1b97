/* Dates and times of an array of the host, which are reduced as the int64 that they are. NaT is the
 * smallest of them, so a minimum finds it, and a maximum leaves it out. Where NaT is to be the
 * largest, the core reduces each number less 1, which wraps. */
#include "python/glue.h"

static const npy_int64 not_a_time = NPY_DATETIME_NAT;

/* ---------------------------------------------------------------- extremes ------------------- */

/* Whether NaT is to be the largest of what `op` reduces. */
static int puts_nat_last(gpr_operator op, int skips_nat)
{
    return op == GPR_OP_ARGMAX || (op == GPR_OP_MIN && skips_nat) ||
           (op == GPR_OP_MAX && !skips_nat);
}

int glue_read_dates(gpr_request *request)
{
    switch (request->op) {
    case GPR_OP_ANY:
    case GPR_OP_ALL:
    case GPR_OP_LOGICAL_XOR:
    case GPR_OP_COUNT_NONZERO:
    case GPR_OP_ARGMIN:
    case GPR_OP_ARGMAX:
    case GPR_OP_MIN:
    case GPR_OP_MAX: break;
    default: return 0;
    }
    request->nat_last = puts_nat_last(request->op, request->skip_nan);
    request->skip_nan = 0;
    request->dtype = GPR_INT64;
    return 1;
}

void glue_restore_dates(const gpr_request *request, npy_intp count)
{
    npy_uint64 *results = request->result;

    if (!request->nat_last || request->op == GPR_OP_ARGMAX) return;
    for (npy_intp i = 0; i < count; i++) results[i]++;
}

int glue_have_nat(const npy_int64 *dates, npy_intp count)
{
    int found = 0;

    for (npy_intp i = 0; i < count; i++) found |= dates[i] == not_a_time;
    return found;
}

int glue_read_date_start(gpr_operator op, int skips_nat, PyArrayObject *dates, PyObject *initial,
                         glue_epilogue *epilogue)
{
    npy_int64 start = 0;

    if (op != GPR_OP_MIN && op != GPR_OP_MAX) return 0;
    if (!PyArray_IsScalar(initial, Datetime) && !PyArray_IsScalar(initial, Timedelta)) return 0;
    PyArray_Descr *const descr = PyArray_DescrFromScalar(initial);
    const int is_of_type = PyArray_TYPE(dates) == descr->type_num &&
                           PyArray_CanCastTypeTo(descr, PyArray_DESCR(dates), NPY_EQUIV_CASTING);
    Py_DECREF(descr);
    PyArray_ScalarAsCtype(initial, &start);
    if (!is_of_type || start == not_a_time) return 0;
    epilogue->integer = start - puts_nat_last(op, skips_nat);
    epilogue->has_start = 1;
    return 1;
}

/* ---------------------------------------------------------------- positions ------------------ */

/* The place of the first NaT near the beginning of `count` numbers; -1: there is none. All of them
 * are read faster by the core, by all threads. */
static npy_intp find_nat(const npy_int64 *numbers, npy_intp count)
{
    enum { SHORTEST = 16, LONGEST = 512, LOOKED_AT = 4096 };
    npy_intp first = 0;

    if (count > LOOKED_AT) count = LOOKED_AT;
    for (npy_intp some = SHORTEST; first < count; some *= some < LONGEST ? 2 : 1) {
        const npy_intp end = count - first < some ? count : first + some;

        for (npy_intp i = glue_have_nat(numbers + first, end - first) ? first : end; i < end; i++)
            if (numbers[i] == not_a_time) return i;
        first = end;
    }
    return -1;
}

int glue_begins_with_nat(PyArrayObject *integers)
{
    return PyArray_ISONESEGMENT(integers) && PyArray_ISALIGNED(integers) &&
           PyArray_ISNOTSWAPPED(integers) &&
           find_nat(PyArray_DATA(integers), PyArray_SIZE(integers)) >= 0;
}

/* The place of the first NaT of each row; NULL without an exception where a row has none near its
 * beginning. */
static PyObject *find_nat_of_rows(PyArrayObject *dates)
{
    const int last = PyArray_NDIM(dates) - 1;
    const npy_intp count = PyArray_DIM(dates, last);
    const npy_int64 *numbers = PyArray_DATA(dates);

    if (find_nat(numbers, count) < 0) return NULL; /* before memory is taken */
    PyObject *const found = PyArray_SimpleNew(last, PyArray_DIMS(dates), NPY_INTP);
    if (found == NULL) return NULL;
    npy_intp *positions = PyArray_DATA((PyArrayObject *)found);
    for (npy_intp row = 0; row < PyArray_SIZE((PyArrayObject *)found); row++) {
        positions[row] = find_nat(numbers + row * count, count);
        if (positions[row] >= 0) continue;
        Py_DECREF(found);
        return NULL;
    }
    return found;
}

PyObject *glue_find_nat(const glue_state *state, PyArrayObject *dates, const glue_arguments *given)
{
    const int last = PyArray_NDIM(dates) - 1;
    int overflows = 0, kernel, device;

    if (last < 0 || !PyArray_ISCARRAY_RO(dates) || given->keepdims != Py_False) return NULL;
    if (!glue_needs_no_request(state, given->options, &kernel, &device)) return NULL;
    if (given->axis != Py_None) {
        if (!PyLong_CheckExact(given->axis)) return NULL;
        const long axis = PyLong_AsLongAndOverflow(given->axis, &overflows);
        if (overflows != 0 || (axis != last && axis != -1)) return NULL;
        if (last > 0) return find_nat_of_rows(dates);
    }
    const npy_intp at = find_nat(PyArray_DATA(dates), PyArray_SIZE(dates));
    if (at < 0) return NULL;
    PyArray_Descr *const descr = PyArray_DescrFromType(NPY_INTP);
    PyObject *const position = PyArray_Scalar((void *)&at, descr, NULL);
    Py_DECREF(descr);
    return position;
}
