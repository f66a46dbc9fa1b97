/* Dtypes of the registry as NumPy's: those that it has itself by its numbers, others by the scalar
 * types of ml_dtypes. */
#include <string.h>

#include "python/glue.h"

const glue_dtype_row glue_dtype_rows[GPR_DTYPE_COUNT] = {
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
    return glue_dtype_rows[dtype].kind == GPR_KIND_FLOAT ||
           glue_dtype_rows[dtype].kind == GPR_KIND_COMPLEX;
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
    const int is_float = glue_dtype_rows[part].kind == GPR_KIND_FLOAT;
    const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    const uint64_t infinity = ((UINT64_C(1) << glue_dtype_rows[part].exponent) - 1)
                              << glue_dtype_rows[part].fraction;
    if (glue_dtype_rows[part].kind == GPR_KIND_BOOL ||
        glue_dtype_rows[part].kind == GPR_KIND_UNSIGNED)
        return 1;
    const uint64_t kept = is_float ? sign - 1 : sign, limit = is_float ? infinity : sign;

    if (part != dtype) count *= 2;
    switch (bytes) {
    case 1: return are_ordinary_8(results, count, kept, limit);
    case 2: return are_ordinary_16(results, count, kept, limit);
    case 4: return are_ordinary_32(results, count, kept, limit);
    default: return are_ordinary_64(results, count, kept, limit);
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
        PyObject *row =
            Py_BuildValue("(iiiO)", (int)gpr_dtype_bytes(dtype), glue_dtype_rows[i].fraction,
                          glue_dtype_rows[i].exponent, glue_is_numpys(dtype) ? Py_True : Py_False);
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
