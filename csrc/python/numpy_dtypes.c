/* Dtypes of the registry as NumPy's: those that it has itself by its numbers, others by the scalar
 * types of ml_dtypes. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "python/glue.h"
#include "shared/dtype_kinds.h"

typedef struct dtype_row {
    gpr_kind kind;
    int fraction, exponent;
} dtype_row;

static const dtype_row rows[GPR_DTYPE_COUNT] = {
#define GPR_DTYPE(ID, name, bytes, kind, c_type, fraction, exponent) \
    [GPR_##ID] = {kind, fraction, exponent},
#include "registry/dtypes.def"
#undef GPR_DTYPE
};

/* Integers in one word, others by their names. */
#define TEXT_GPR_KIND_BOOL(name) #name ", integers"
#define TEXT_GPR_KIND_SIGNED(name)
#define TEXT_GPR_KIND_UNSIGNED(name)
#define TEXT_GPR_KIND_FLOAT(name) ", " #name
#define TEXT_GPR_KIND_COMPLEX(name) ", " #name

const char glue_supported_dtypes[] = ""
#define GPR_DTYPE(ID, name, bytes, kind, c_type, fraction, exponent) TEXT_##kind(name)
#include "registry/dtypes.def"
#undef GPR_DTYPE
                                     " are";

static const int numbers[GPR_DTYPE_COUNT] = {
    [GPR_BOOL] = NPY_BOOL,       [GPR_INT8] = NPY_INT8,        [GPR_INT16] = NPY_INT16,
    [GPR_INT32] = NPY_INT32,     [GPR_INT64] = NPY_INT64,      [GPR_UINT8] = NPY_UINT8,
    [GPR_UINT16] = NPY_UINT16,   [GPR_UINT32] = NPY_UINT32,    [GPR_UINT64] = NPY_UINT64,
    [GPR_FLOAT16] = NPY_FLOAT16, [GPR_BFLOAT16] = NPY_NOTYPE,  [GPR_FLOAT32] = NPY_FLOAT32,
    [GPR_FLOAT64] = NPY_FLOAT64, [GPR_COMPLEX64] = NPY_CFLOAT, [GPR_COMPLEX128] = NPY_CDOUBLE,
};

int glue_is_inexact(gpr_dtype dtype)
{
    return rows[dtype].kind == GPR_KIND_FLOAT || rows[dtype].kind == GPR_KIND_COMPLEX;
}

int glue_is_numpys(gpr_dtype dtype)
{
    return numbers[dtype] != NPY_NOTYPE;
}

/* Whether the kept bits of all results are below a limit: those of finite floats without the sign
 * are less than infinity's, and the sign of integers that are not negative is 0. What reaches the
 * limit carries into the highest bit: processors compare few kinds of integers, but add all. */
enum { ORDINARY_STRETCH = 512 }; /* results between two checks, after which others are not read */
#define DEFINE_ORDINARY(BITS)                                                              \
    static int are_ordinary_##BITS(const void *results, npy_intp count, uint64_t kept,     \
                                   uint64_t limit)                                         \
    {                                                                                      \
        const uint##BITS##_t *bits = results, highest = (uint##BITS##_t)1 << ((BITS) - 1), \
                             missing = (uint##BITS##_t)(highest - limit),                  \
                             all = (uint##BITS##_t)kept;                                   \
        uint##BITS##_t sums = 0;                                                           \
                                                                                           \
        for (npy_intp i = 0, end; i < count && (sums & highest) == 0; i = end) {           \
            end = count - i < ORDINARY_STRETCH ? count : i + ORDINARY_STRETCH;             \
            for (npy_intp k = i; k < end; k++)                                             \
                sums |= (uint##BITS##_t)((bits[k] & all) + missing);                       \
        }                                                                                  \
        return (sums & highest) == 0;                                                      \
    }
DEFINE_ORDINARY(8)
DEFINE_ORDINARY(16)
DEFINE_ORDINARY(32)
DEFINE_ORDINARY(64)

int glue_are_ordinary(gpr_dtype dtype, const void *results, npy_intp count)
{
    const gpr_dtype part = dtype == GPR_COMPLEX64    ? GPR_FLOAT32
                           : dtype == GPR_COMPLEX128 ? GPR_FLOAT64
                                                     : dtype;
    const size_t bytes = gpr_dtype_bytes(part);
    const int is_float = rows[part].kind == GPR_KIND_FLOAT;
    const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    const uint64_t infinity = ((UINT64_C(1) << rows[part].exponent) - 1) << rows[part].fraction;
    if (rows[part].kind == GPR_KIND_BOOL || rows[part].kind == GPR_KIND_UNSIGNED) return 1;
    const uint64_t kept = is_float ? sign - 1 : sign, limit = is_float ? infinity : sign;

    if (part != dtype) count *= 2;
    switch (bytes) {
    case 1: return are_ordinary_8(results, count, kept, limit);
    case 2: return are_ordinary_16(results, count, kept, limit);
    case 4: return are_ordinary_32(results, count, kept, limit);
    default: return are_ordinary_64(results, count, kept, limit);
    }
}

/* Whether a narrower float type holds a start as it is, 0 or a normal number: then its bits are the
 * epilogue's integer. */
static int read_start_bits(gpr_dtype dtype, glue_epilogue *epilogue)
{
    const int fraction = rows[dtype].fraction, bias = (1 << (rows[dtype].exponent - 1)) - 1,
              double_fraction = rows[GPR_FLOAT64].fraction, double_bias = DBL_MAX_EXP - 1,
              below = double_fraction - fraction;
    uint64_t bits;

    memcpy(&bits, &epilogue->number, sizeof bits);
    const uint64_t sign = bits >> 63, magnitude = bits & INT64_MAX;
    const int64_t exponent = (int64_t)(magnitude >> double_fraction) - double_bias;

    epilogue->integer = (int64_t)(sign << (fraction + rows[dtype].exponent));
    if (magnitude == 0) return 1;
    if (magnitude << (64 - below) != 0 || exponent < 1 - bias || exponent > bias) return 0;
    epilogue->integer |=
        (int64_t)((magnitude >> below) - ((uint64_t)(double_bias - bias) << fraction));
    return 1;
}

int glue_read_start(PyObject *initial, gpr_dtype dtype, glue_epilogue *epilogue)
{
    const gpr_kind kind = rows[dtype].kind;
    int overflows = 0;

    if (PyLong_CheckExact(initial))
        epilogue->integer = PyLong_AsLongLongAndOverflow(initial, &overflows);
    else if (!PyFloat_CheckExact(initial))
        return 0;
    if (overflows != 0) return 0;
    epilogue->number =
        PyFloat_CheckExact(initial) ? PyFloat_AS_DOUBLE(initial) : (double)epilogue->integer;
    switch (dtype) {
    case GPR_FLOAT16:
    case GPR_BFLOAT16: return epilogue->has_start = read_start_bits(dtype, epilogue);
    case GPR_FLOAT32:
    case GPR_COMPLEX64: return epilogue->has_start = fabs(epilogue->number) <= FLT_MAX;
    case GPR_FLOAT64:
    case GPR_COMPLEX128: return epilogue->has_start = isfinite(epilogue->number);
    default: break;
    }
    if (!PyLong_CheckExact(initial)) return 0;
    if (kind == GPR_KIND_SIGNED) {
        const int64_t most = INT64_MAX >> (64 - 8 * gpr_dtype_bytes(dtype));
        epilogue->has_start = epilogue->integer <= most && epilogue->integer >= -most - 1;
    } else if (kind == GPR_KIND_UNSIGNED) {
        const uint64_t most = UINT64_MAX >> (64 - 8 * gpr_dtype_bytes(dtype));
        epilogue->has_start = epilogue->integer >= 0 && (uint64_t)epilogue->integer <= most;
    } else if (kind == GPR_KIND_BOOL) {
        epilogue->integer = epilogue->integer != 0;
        epilogue->has_start = 1;
    }
    return epilogue->has_start;
}

/* NaN stay, unless the start takes the place of rows of which nothing else is left. */
#define DEFINE_FOLD_START(name, c_type, given)                                                   \
    static void fold_start_##name(gpr_operator op, const glue_epilogue *epilogue, void *results, \
                                  npy_intp count)                                                \
    {                                                                                            \
        const c_type start = (c_type)epilogue->given;                                            \
        c_type *extremes = results;                                                              \
                                                                                                 \
        for (npy_intp i = 0; i < count; i++) {                                                   \
            const c_type x = extremes[i];                                                        \
            if ((op == GPR_OP_MAX ? x < start : x > start) || (epilogue->skips_nan && x != x))   \
                extremes[i] = start;                                                             \
        }                                                                                        \
    }
/* Bits of floats without their sign are in the order of the floats; negative ones are turned. */
#define DEFINE_FOLD_START_BITS(name, infinite)                                                   \
    static void fold_start_##name(gpr_operator op, const glue_epilogue *epilogue, void *results, \
                                  npy_intp count)                                                \
    {                                                                                            \
        const uint16_t start = (uint16_t)epilogue->integer;                                      \
        const int16_t start_place = PLACE_OF_BITS(start);                                        \
        uint16_t *extremes = results;                                                            \
                                                                                                 \
        for (npy_intp i = 0; i < count; i++) {                                                   \
            const uint16_t x = extremes[i];                                                      \
            const int16_t place = PLACE_OF_BITS(x);                                              \
            const int is_nan = (x & INT16_MAX) > (infinite),                                     \
                      loses = op == GPR_OP_MAX ? place < start_place : place > start_place;      \
            if (is_nan ? epilogue->skips_nan : loses) extremes[i] = start;                       \
        }                                                                                        \
    }
#define PLACE_OF_BITS(x) ((int16_t)((x) > INT16_MAX ? INT16_MIN - (x) : (x)))

/* Complex numbers are compared by their real parts, of equals by the others; the start's is 0. */
#define DEFINE_FOLD_START_PAIR(name, part)                                                       \
    static void fold_start_##name(gpr_operator op, const glue_epilogue *epilogue, void *results, \
                                  npy_intp count)                                                \
    {                                                                                            \
        const part start = (part)epilogue->number;                                               \
        part *extremes = results;                                                                \
                                                                                                 \
        for (npy_intp i = 0; i < count; i++, extremes += 2) {                                    \
            const part re = extremes[0], im = extremes[1];                                       \
            const int is_nan = re != re || im != im,                                             \
                      loses = op == GPR_OP_MAX ? re < start || (re == start && im < 0)           \
                                               : re > start || (re == start && im > 0);          \
            if (!(is_nan ? epilogue->skips_nan : loses)) continue;                               \
            extremes[0] = start;                                                                 \
            extremes[1] = 0;                                                                     \
        }                                                                                        \
    }

#define CASE_FOLD_START(ID, name) \
    case GPR_##ID: fold_start_##name(op, epilogue, results, count); break;
#define START_GPR_KIND_BOOL_1(EACH, ID, name, c_type) EACH(ID, name, c_type, integer)
#define START_GPR_KIND_SIGNED_1 START_GPR_KIND_BOOL_1
#define START_GPR_KIND_SIGNED_2 START_GPR_KIND_SIGNED_1
#define START_GPR_KIND_SIGNED_4 START_GPR_KIND_SIGNED_1
#define START_GPR_KIND_SIGNED_8 START_GPR_KIND_SIGNED_1
#define START_GPR_KIND_UNSIGNED_1 START_GPR_KIND_SIGNED_1
#define START_GPR_KIND_UNSIGNED_2 START_GPR_KIND_SIGNED_1
#define START_GPR_KIND_UNSIGNED_4 START_GPR_KIND_SIGNED_1
#define START_GPR_KIND_UNSIGNED_8 START_GPR_KIND_SIGNED_1
#define START_GPR_KIND_FLOAT_2(...)
#define START_GPR_KIND_FLOAT_4(EACH, ID, name, c_type) EACH(ID, name, c_type, number)
#define START_GPR_KIND_FLOAT_8 START_GPR_KIND_FLOAT_4
#define START_GPR_KIND_COMPLEX_8(...)
#define START_GPR_KIND_COMPLEX_16(...)

#define DEFINE_FOLD_START_OF(ID, name, c_type, given) DEFINE_FOLD_START(name, c_type, given)
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    START_##kind##_##bytes(DEFINE_FOLD_START_OF, ID, name, c_type)
#include "registry/dtypes.def"
#undef GPR_DTYPE
DEFINE_FOLD_START_BITS(float16, 0x7c00)
DEFINE_FOLD_START_BITS(bfloat16, 0x7f80)
DEFINE_FOLD_START_PAIR(complex64, float)
DEFINE_FOLD_START_PAIR(complex128, double)

void glue_fold_start(gpr_operator op, gpr_dtype dtype, const glue_epilogue *epilogue, void *results,
                     npy_intp count)
{
    switch (dtype) {
#define CASE_FOLD_START_OF(ID, name, c_type, given) CASE_FOLD_START(ID, name)
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    START_##kind##_##bytes(CASE_FOLD_START_OF, ID, name, c_type)
#include "registry/dtypes.def"
#undef GPR_DTYPE
        CASE_FOLD_START(FLOAT16, float16)
        CASE_FOLD_START(BFLOAT16, bfloat16)
        CASE_FOLD_START(COMPLEX64, complex64)
        CASE_FOLD_START(COMPLEX128, complex128)
    default: break; /* there are no others */
    }
}

/* ml_dtypes registers its dtypes with NumPy under numbers that differ from process to process:
 * their scalar types' names identify them, without importing ml_dtypes. */
static gpr_dtype dtype_of_package(const PyArray_Descr *descr)
{
    const char *name = descr->typeobj->tp_name;
    const char *dot = strrchr(name, '.');
    const gpr_dtype found = PyTypeNum_ISUSERDEF(descr->type_num)
                                ? gpr_find_dtype(dot != NULL ? dot + 1 : name)
                                : GPR_DTYPE_DEFAULT;

    if (found == GPR_DTYPE_DEFAULT || glue_is_numpys(found)) return GPR_DTYPE_DEFAULT;
    return (size_t)PyDataType_ELSIZE(descr) == gpr_dtype_bytes(found) ? found : GPR_DTYPE_DEFAULT;
}

int glue_find_dtype(PyArray_Descr *descr, const char *what, gpr_dtype *dtype)
{
    enum { MOST_BYTES = 8 };
    static const gpr_dtype signed_of[MOST_BYTES + 1] = {
        [1] = GPR_INT8, [2] = GPR_INT16, [4] = GPR_INT32, [8] = GPR_INT64};
    static const gpr_dtype unsigned_of[MOST_BYTES + 1] = {
        [1] = GPR_UINT8, [2] = GPR_UINT16, [4] = GPR_UINT32, [8] = GPR_UINT64};
    const npy_intp bytes = PyDataType_ELSIZE(descr);

    if (PyDataType_ISSIGNED(descr) && PyDataType_ISINTEGER(descr)) {
        *dtype = signed_of[bytes];
    } else if (PyDataType_ISUNSIGNED(descr)) {
        *dtype = unsigned_of[bytes];
    } else if (descr->type_num == NPY_FLOAT) {
        *dtype = GPR_FLOAT32;
    } else if (descr->type_num == NPY_DOUBLE) {
        *dtype = GPR_FLOAT64;
    } else if (descr->type_num == NPY_CFLOAT) {
        *dtype = GPR_COMPLEX64;
    } else if (descr->type_num == NPY_CDOUBLE) {
        *dtype = GPR_COMPLEX128;
    } else if (descr->type_num == NPY_HALF) {
        *dtype = GPR_FLOAT16;
    } else if (descr->type_num == NPY_BOOL) {
        *dtype = GPR_BOOL;
    } else {
        *dtype = dtype_of_package(descr);
    }
    if (*dtype == GPR_DTYPE_DEFAULT) {
        PyErr_Format(PyExc_TypeError, "%s %S is not supported: %s", what, descr,
                     glue_supported_dtypes);
        return -1;
    }
    return 0;
}

PyArray_Descr *glue_descr_of(gpr_dtype dtype)
{
    PyObject *module = NULL, *type = NULL;
    PyArray_Descr *descr = NULL;

    if (glue_is_numpys(dtype)) return PyArray_DescrFromType(numbers[dtype]);
    module = PyImport_ImportModule("ml_dtypes");
    type = module != NULL ? PyObject_GetAttrString(module, gpr_dtype_name(dtype)) : NULL;
    if (module == NULL && PyErr_ExceptionMatches(PyExc_ImportError))
        PyErr_Format(PyExc_ImportError, "%s is a dtype of ml_dtypes: pip install 'gpureduce[bf16]'",
                     gpr_dtype_name(dtype));
    if (type != NULL) (void)PyArray_DescrConverter(type, &descr);
    Py_XDECREF(module);
    Py_XDECREF(type);
    return descr;
}

int glue_add_dtypes(PyObject *module)
{
    PyObject *dtypes = PyDict_New();
    int failed = dtypes == NULL;

    for (int i = 0; i < GPR_DTYPE_COUNT && !failed; i++) {
        const gpr_dtype dtype = (gpr_dtype)i;
        PyObject *row = Py_BuildValue("(iiiO)", (int)gpr_dtype_bytes(dtype), rows[i].fraction,
                                      rows[i].exponent, glue_is_numpys(dtype) ? Py_True : Py_False);
        failed = row == NULL || PyDict_SetItemString(dtypes, gpr_dtype_name(dtype), row) < 0;
        Py_XDECREF(row);
    }
    if (!failed) failed = PyModule_AddObjectRef(module, "DTYPES", dtypes) < 0;
    Py_XDECREF(dtypes);
    return failed ? -1 : 0;
}

static PyObject *numpy_dtype(PyObject *Py_UNUSED(module), PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    const gpr_dtype dtype = text != NULL ? gpr_find_dtype(text) : GPR_DTYPE_DEFAULT;

    if (text == NULL) return NULL;
    if (dtype == GPR_DTYPE_DEFAULT)
        return PyErr_Format(PyExc_ValueError, "DTYPES has no dtype named '%s'", text);
    return (PyObject *)glue_descr_of(dtype);
}

PyMethodDef glue_dtype_methods[] = {
    {"numpy_dtype", numpy_dtype, METH_O,
     PyDoc_STR("numpy_dtype(name of DTYPES) -> dtype of NumPy, or of ml_dtypes, which is "
               "imported")},
    {NULL, NULL, 0, NULL},
};
