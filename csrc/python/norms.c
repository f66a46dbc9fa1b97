/* Norms of vectors of the host's arrays: which reductions of which elements they are. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "python/glue.h"

/* Orders of norms that are computed here. */
typedef enum norm_order {
    TWO,      /* the root of the sum of squares */
    ONE,      /* the sum of magnitudes */
    NUMBER,   /* how many elements are not 0 */
    LARGEST,  /* magnitude */
    SMALLEST, /* magnitude */
    POWER,    /* any other finite number p: a root of the sum of magnitudes to the power of p */
    OTHER     /* or no order at all */
} norm_order;

/* The arguments of norm() behind the array, and what follows from the array. */
typedef struct norm_call {
    glue_state *state;
    PyArrayObject *array;
    PyObject *axis, *keepdims;
    PyObject *const *options;
    PyArray_Descr *factor; /* of what is summed */
    PyArray_Descr *result;
} norm_call;

static norm_order read_order(PyObject *order)
{
    enum { MOST = 1 << 10 }; /* powers are what NumPy makes of other orders, too */
    double number;

    if (order == Py_None) return TWO;
    if (!PyFloat_CheckExact(order) && !PyLong_CheckExact(order)) return OTHER;
    number = PyFloat_AsDouble(order);
    if (number == -1 && PyErr_Occurred() != NULL) {
        PyErr_Clear(); /* no double holds it */
        return OTHER;
    }
    if (isinf(number)) return number > 0 ? LARGEST : SMALLEST;
    if (number == 0) return NUMBER;
    if (number == 1) return ONE;
    if (number == 2) return TWO;
    return fabs(number) <= MOST ? POWER : OTHER;
}

/* An axis of the array; -1 and no exception for what has to be converted, or is refused. */
static long read_axis(PyObject *axis, int ndim)
{
    long value;

    if (!PyLong_CheckExact(axis)) return -1;
    value = PyLong_AsLong(axis);
    if (value == -1 && PyErr_Occurred() != NULL) {
        PyErr_Clear(); /* no long holds it */
        return -1;
    }
    return value < -ndim || value >= ndim ? -1 : value < 0 ? value + ndim : value;
}

/* Whether axes need neither conversion nor checks, and make a norm of vectors, or of all elements
 * or matrices where the order is None. */
static int has_plain_axes(PyObject *axis, PyObject *order, int ndim)
{
    const int is_pair = order == Py_None && PyTuple_CheckExact(axis) && PyTuple_GET_SIZE(axis) == 2;

    if (axis == Py_None) return order == Py_None || ndim == 1;
    if (!is_pair) return read_axis(axis, ndim) >= 0;
    const long first = read_axis(PyTuple_GET_ITEM(axis, 0), ndim),
               second = read_axis(PyTuple_GET_ITEM(axis, 1), ndim);
    return first >= 0 && second >= 0 && first != second;
}

/* Finds the types; 0 for an array that is refused, or has rules of its own. */
static int find_types(norm_call *call)
{
    PyArray_Descr *const own = PyArray_DESCR(call->array);
    gpr_dtype dtype;

    if (glue_find_dtype(own, "", &dtype) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (PyArray_ISCOMPLEX(call->array))
        call->factor = PyArray_DescrFromType(dtype == GPR_COMPLEX64 ? NPY_FLOAT : NPY_DOUBLE);
    else if (PyArray_ISBYTESWAPPED(call->array))
        call->factor = PyArray_DescrNewByteorder(own, NPY_NATIVE);
    else
        call->factor = (PyArray_Descr *)Py_NewRef(own);
    call->result = PyArray_ISINTEGER(call->array) || PyArray_ISBOOL(call->array)
                       ? PyArray_DescrFromType(NPY_DOUBLE)
                       : (PyArray_Descr *)Py_XNewRef(call->factor);
    return call->factor != NULL && call->result != NULL;
}

static PyObject *sum(const norm_call *call, gpr_products products, int root)
{
    PyObject *const types[] = {(PyObject *)call->factor, (PyObject *)call->result};

    return glue_sum_one_array(call->state, call->array, types, call->axis, call->keepdims, products,
                              root, call->options);
}

/* Another reduction of an array with the call's axes. */
static PyObject *reduce_by(const norm_call *call, gpr_operator op, PyArrayObject *array)
{
    PyObject *const zero = PyLong_FromLong(0);
    const glue_arguments given = {NULL,     call->axis, Py_None, call->keepdims, Py_None,
                                  Py_False, zero,       Py_None, Py_None,        call->options};
    PyObject *const result = zero != NULL ? glue_reduce_by(call->state, op, array, &given) : NULL;

    Py_XDECREF(zero);
    return result;
}

/* A copy of another type, in the same order of memory. Takes the array. */
static PyObject *copy_as(PyObject *array, PyArray_Descr *descr)
{
    PyObject *copy;

    Py_INCREF(descr); /* the copy takes it */
    copy = PyArray_NewLikeArray((PyArrayObject *)array, NPY_KEEPORDER, descr, 0);
    if (copy != NULL && PyArray_CopyInto((PyArrayObject *)copy, (PyArrayObject *)array) < 0)
        Py_CLEAR(copy);
    Py_DECREF(array);
    return copy;
}

/* Numbers, an array or a scalar, as those of a type. Takes the numbers. */
static PyObject *cast(PyObject *numbers, PyArray_Descr *descr)
{
    npy_complex128 scalar; /* room for an element of any type */
    PyObject *made = NULL;

    if (numbers == NULL || numbers == Py_NotImplemented) return numbers;
    if (PyArray_Check(numbers)) return copy_as(numbers, descr);
    if (PyArray_CastScalarToCtype(numbers, &scalar, descr) == 0)
        made = PyArray_Scalar(&scalar, descr, NULL);
    Py_DECREF(numbers);
    return made;
}

/* ---------------------------------------------------------------- largest magnitudes --------- */

/* Of the smallest and the largest of a result's elements. A float's bits without its sign are in
 * the order of magnitudes, with NaN, which both are then, behind infinity. */
#define DEFINE_LARGER(bits)                                                                    \
    static void larger_##bits(const void *low, const void *high, npy_intp count, void *larger) \
    {                                                                                          \
        const uint##bits##_t *a = low, *b = high, magnitude = (uint##bits##_t) - 1 >> 1;       \
        uint##bits##_t *to = larger;                                                           \
                                                                                               \
        for (npy_intp i = 0; i < count; i++) {                                                 \
            const uint##bits##_t x = a[i] & magnitude, y = b[i] & magnitude;                   \
            to[i] = x > y ? x : y;                                                             \
        }                                                                                      \
    }
DEFINE_LARGER(16)
DEFINE_LARGER(32)
DEFINE_LARGER(64)

static void take_larger(const norm_call *call, const void *low, const void *high, npy_intp count,
                        void *larger)
{
    switch (PyDataType_ELSIZE(call->result)) {
    case 2: larger_16(low, high, count, larger); break;
    case 4: larger_32(low, high, count, larger); break;
    default: larger_64(low, high, count, larger); break;
    }
}

/* The largest magnitudes of the array's elements, from an array of the smallest elements and behind
 * them the largest. */
static PyObject *find_larger(const norm_call *call, PyArrayObject *extremes)
{
    const int ndim = PyArray_NDIM(extremes) - 1;
    const npy_intp count = PyArray_SIZE(extremes) / 2;
    const char *low = PyArray_DATA(extremes), *high = low + PyArray_STRIDE(extremes, 0);
    npy_complex128 scalar = 0;
    void *larger = &scalar;
    PyObject *array = NULL;

    if (ndim > 0) {
        Py_INCREF(call->result); /* the array takes it, also where it fails */
        array = PyArray_NewFromDescr(&PyArray_Type, call->result, ndim, PyArray_DIMS(extremes) + 1,
                                     PyArray_STRIDES(extremes) + 1, NULL, 0, NULL);
        if (array == NULL) return NULL;
        larger = PyArray_DATA((PyArrayObject *)array);
    }
    take_larger(call, low, high, count, larger);
    return array != NULL ? array : PyArray_Scalar(larger, call->result, NULL);
}

/* The same where these lie between each other in memory. */
static PyObject *find_larger_of_copies(const norm_call *call, PyArrayObject *extremes)
{
    PyArrayObject *ends[2] = {NULL};

    for (Py_ssize_t i = 0; i < 2; i++) {
        PyObject *const end = PySequence_GetItem((PyObject *)extremes, i);

        if (end != NULL) ends[i] = (PyArrayObject *)copy_as(end, call->result);
        if (ends[i] == NULL) {
            Py_XDECREF(ends[0]);
            return NULL;
        }
    }
    take_larger(call, PyArray_DATA(ends[0]), PyArray_DATA(ends[1]), PyArray_SIZE(ends[0]),
                PyArray_DATA(ends[0]));
    Py_DECREF(ends[1]);
    return (PyObject *)ends[0];
}

/* Whether results lie in memory as two runs without gaps, in one order. */
static int are_two_runs(PyArrayObject *extremes)
{
    const npy_intp half = PyArray_NBYTES(extremes) / 2;

    return PyArray_ISONESEGMENT(extremes) && PyArray_STRIDE(extremes, 0) == half;
}

static PyObject *find_largest(const norm_call *call)
{
    PyObject *extremes = reduce_by(call, GPR_OP_MINMAX, call->array), *result;

    if (extremes == NULL || extremes == Py_NotImplemented) return extremes;
    if (!are_two_runs((PyArrayObject *)extremes)) {
        result = find_larger_of_copies(call, (PyArrayObject *)extremes);
    } else {
        if (call->factor != call->result) extremes = copy_as(extremes, call->result);
        if (extremes == NULL) return NULL;
        result = find_larger(call, (PyArrayObject *)extremes);
    }
    Py_DECREF(extremes);
    return result;
}

/* ---------------------------------------------------------------- all magnitudes ------------- */

/* Whether magnitudes are to be made of the array, and reduced on the CPU: of many elements that
 * come again they are made once elsewhere. */
static int makes_magnitudes(const norm_call *call)
{
    enum { MANY = 1 << 12 };
    PyObject *const device = call->options[GLUE_DEVICE];

    for (int i = 0; i < PyArray_NDIM(call->array); i++)
        if (PyArray_STRIDE(call->array, i) == 0 && PyArray_SIZE(call->array) > MANY) return 0;
    return device == Py_None ||
           (PyUnicode_Check(device) && PyUnicode_CompareWithASCIIString(device, "cpu") == 0);
}

/* Powers that are products: these take a tenth of what NumPy's powers take, and are as accurate.
 * The highest bit that is returned is set where one of them is not finite. */
#define DEFINE_POWERS(name, T, BITS, FABS, DIGITS)                                             \
    static inline BITS make_powers_##name(const T *restrict x, npy_intp count, int power,      \
                                          T *restrict to)                                      \
    {                                                                                          \
        BITS any = 0;                                                                          \
                                                                                               \
        for (npy_intp i = 0; i < count; i++) {                                                 \
            const T magnitude = FABS(x[i]), square = magnitude * magnitude;                    \
            BITS bits;                                                                         \
                                                                                               \
            to[i] = square * (power == 3 ? magnitude : square);                                \
            memcpy(&bits, &to[i], sizeof bits);                                                \
            any |= bits + ((BITS)1 << ((DIGITS) - 1)); /* all bits of the exponent overflow */ \
        }                                                                                      \
        return any;                                                                            \
    }                                                                                          \
    static int powers_##name(const T *x, npy_intp count, int power, T *to)                     \
    {                                                                                          \
        const BITS any = power == 3 ? make_powers_##name(x, count, 3, to)                      \
                                    : make_powers_##name(x, count, 4, to);                     \
                                                                                               \
        if (any >> (8 * sizeof any - 1) == 0) return 1;                                        \
        for (npy_intp i = 0; i < count; i++)                                                   \
            if (isinf(to[i]) && isfinite(x[i])) return 0;                                      \
        return 1;                                                                              \
    }
DEFINE_POWERS(float32, float, uint32_t, fabsf, FLT_MANT_DIG)
DEFINE_POWERS(float64, double, uint64_t, fabs, DBL_MANT_DIG)

/* Makes magnitudes to the power of 3 or 4, of numbers without gaps; 0 if one overflows. */
static int make_products(PyArrayObject *numbers, int power, PyArrayObject *to)
{
    const npy_intp count = PyArray_SIZE(numbers);

    return PyArray_TYPE(numbers) == NPY_FLOAT
               ? powers_float32(PyArray_DATA(numbers), count, power, PyArray_DATA(to))
               : powers_float64(PyArray_DATA(numbers), count, power, PyArray_DATA(to));
}

static int are_floats_without_gaps(PyObject *numbers)
{
    if (!PyArray_CheckExact(numbers)) return 0;
    PyArrayObject *const array = (PyArrayObject *)numbers;

    return (PyArray_TYPE(array) == NPY_FLOAT || PyArray_TYPE(array) == NPY_DOUBLE) &&
           PyArray_ISBEHAVED_RO(array) && PyArray_ISONESEGMENT(array);
}

/* 3 or 4; 0 for all else. */
static int power_of_products(PyObject *power)
{
    const double number = PyFloat_AsDouble(power);

    PyErr_Clear(); /* no double: NumPy says what it is */
    return number == 3 || number == 4 ? (int)number : 0;
}

/* Magnitudes of numbers to a power, in an array of their own. Where one overflows they are NumPy's,
 * which says so. Takes the numbers. */
static PyObject *raise_magnitudes(PyObject *numbers, PyObject *power)
{
    const int of_products = power_of_products(power),
              are_copied = PyArray_ISCOMPLEX((PyArrayObject *)numbers) ||
                           (of_products != 0 && !are_floats_without_gaps(numbers));
    PyObject *made = NULL;

    if (are_copied) Py_SETREF(numbers, PyNumber_Absolute(numbers));
    if (numbers == NULL) return NULL;
    if (of_products != 0 && are_floats_without_gaps(numbers)) {
        made = PyArray_NewLikeArray((PyArrayObject *)numbers, NPY_KEEPORDER, NULL, 0);
        if (made == NULL ||
            make_products((PyArrayObject *)numbers, of_products, (PyArrayObject *)made)) {
            Py_DECREF(numbers);
            return made;
        }
        Py_DECREF(made);
    }
    if (!are_copied) Py_SETREF(numbers, PyNumber_Absolute(numbers));
    if (numbers == NULL) return NULL;
    made = PyNumber_InPlacePower(numbers, power, Py_None);
    Py_DECREF(numbers);
    return made;
}

/* powers_of(numbers, power) */
static PyObject *powers_of(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyArray_Check(from[0]) ||
        !(PyArray_ISFLOAT((PyArrayObject *)from[0]) ||
          PyArray_ISCOMPLEX((PyArrayObject *)from[0]))) {
        PyErr_SetString(PyExc_TypeError, "powers_of takes an array of floats or complex numbers "
                                         "and a power");
        return NULL;
    }
    return raise_magnitudes(Py_NewRef(from[0]), from[1]);
}

/* Reduces an array of magnitudes, to the power of `power` if that is no NULL: of the least integer
 * they are none of its type. */
static PyObject *reduce_magnitudes(const norm_call *call, gpr_operator op, PyObject *power)
{
    const int is_integer = call->factor != call->result && !PyArray_ISCOMPLEX(call->array);
    PyObject *numbers = Py_NewRef((PyObject *)call->array), *magnitudes, *result = NULL;

    if (!makes_magnitudes(call)) {
        Py_DECREF(numbers);
        return Py_NewRef(Py_NotImplemented);
    }
    if (is_integer) numbers = copy_as(numbers, call->result);
    if (numbers == NULL) return NULL;
    if (power != NULL) {
        magnitudes = raise_magnitudes(numbers, power);
    } else {
        magnitudes = PyNumber_Absolute(numbers);
        Py_DECREF(numbers);
    }
    if (magnitudes == NULL) return NULL;
    result = PyArray_CheckExact(magnitudes) ? reduce_by(call, op, (PyArrayObject *)magnitudes)
                                            : Py_NewRef(Py_NotImplemented);
    Py_DECREF(magnitudes);
    return result;
}

/* The root of a sum of powers, by the power of 1 / p in the result's type. */
static PyObject *take_root(const norm_call *call, PyObject *power)
{
    PyObject *sums, *inverse, *result = NULL;
    double wide = 1 / PyFloat_AsDouble(power);
    float single = 1 / (float)PyFloat_AsDouble(power);

    if (PyDataType_ELSIZE(call->result) < (npy_intp)sizeof single)
        return Py_NewRef(Py_NotImplemented); /* powers are float32, then */
    sums = reduce_magnitudes(call, GPR_OP_SUM, power);
    if (sums == NULL || sums == Py_NotImplemented) return sums;
    inverse =
        PyArray_Scalar(PyDataType_ELSIZE(call->result) == sizeof single ? (void *)&single : &wide,
                       call->result, NULL);
    if (inverse != NULL) result = PyNumber_InPlacePower(sums, inverse, Py_None);
    Py_XDECREF(inverse);
    Py_DECREF(sums);
    return result;
}

/* ---------------------------------------------------------------- the call ------------------- */

static PyObject *find_norm(const norm_call *call, norm_order order, PyObject *power)
{
    const int is_complex = PyArray_ISCOMPLEX(call->array);

    switch (order) {
    case TWO: return sum(call, GPR_SQUARES, 1);
    case ONE:
        return is_complex ? reduce_magnitudes(call, GPR_OP_SUM, NULL)
                          : sum(call, GPR_MAGNITUDES, 0);
    case NUMBER: return cast(reduce_by(call, GPR_OP_COUNT_NONZERO, call->array), call->result);
    case LARGEST:
        return is_complex ? reduce_magnitudes(call, GPR_OP_MAX, NULL) : find_largest(call);
    case SMALLEST: return reduce_magnitudes(call, GPR_OP_MIN, NULL);
    default: return take_root(call, power);
    }
}

/* norm(a, order, axis, keepdims, kernel, device, block_size, grid_size, stream): of an exact
 * ndarray with elements; NotImplemented where there are further rules. */
static PyObject *norm(PyObject *module, PyObject *const *from, Py_ssize_t count)
{
    enum { ARRAY, ORDER, AXIS, KEEPDIMS, OPTIONS, COUNT = OPTIONS + GLUE_OPTION_COUNT };
    norm_call call = {.state = glue_state_of(module)};
    PyObject *result = NULL;
    norm_order order;

    if (count != COUNT || !PyArray_CheckExact(from[ARRAY])) {
        PyErr_SetString(PyExc_TypeError, "norm takes an array and eight more arguments");
        return NULL;
    }
    call.array = (PyArrayObject *)from[ARRAY];
    call.axis = from[AXIS];
    call.options = from + OPTIONS;
    order = read_order(from[ORDER]);
    if (order == OTHER || PyArray_SIZE(call.array) == 0) Py_RETURN_NOTIMPLEMENTED;
    if (!has_plain_axes(call.axis, from[ORDER], PyArray_NDIM(call.array))) Py_RETURN_NOTIMPLEMENTED;
    const int keepdims = PyObject_IsTrue(from[KEEPDIMS]);
    if (keepdims < 0) return NULL;
    call.keepdims = keepdims ? Py_True : Py_False;
    result =
        find_types(&call) ? find_norm(&call, order, from[ORDER]) : Py_NewRef(Py_NotImplemented);
    Py_XDECREF(call.factor);
    Py_XDECREF(call.result);
    return result;
}

PyMethodDef glue_norm_methods[] = {
    {"norm", (PyCFunction)(void (*)(void))norm, METH_FASTCALL,
     PyDoc_STR("norm(a, order, axis, keepdims, kernel, device, block_size, grid_size, stream, /)")},
    {"powers_of", (PyCFunction)(void (*)(void))powers_of, METH_FASTCALL,
     PyDoc_STR("powers_of(numbers, power, /)")},
    {NULL, NULL, 0, NULL},
};
