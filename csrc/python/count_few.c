/* Counts of a few elements: NumPy's takes a fifth of a microsecond in all, less than a request. */
#include "python/glue.h"

#include <numpy/arrayscalars.h>

_Static_assert(sizeof(npy_intp) == sizeof(npy_long), "counts are of NumPy's type of indices");

enum {
    FEW_BYTES = 16384, /* counted before another thread could use the GIL */
    FEW_APART = 64     /* elements with gaps, copied side by side first */
};

/* Copies the elements of an array that has some. */
static void copy_elements(PyArrayObject *array, char *to)
{
    const int last = PyArray_NDIM(array) - 1;
    const npy_intp *shape = PyArray_DIMS(array), *steps = PyArray_STRIDES(array);
    const size_t bytes = (size_t)PyArray_ITEMSIZE(array);
    const char *from = PyArray_DATA(array);
    npy_intp index[GPR_MAX_NDIM] = {0};

    for (npy_intp i = PyArray_SIZE(array); i > 0; i--) {
        memcpy(to, from, bytes);
        to += bytes;
        for (int axis = last; axis >= 0; axis--) {
            from += steps[axis];
            if (++index[axis] < shape[axis]) break;
            from -= shape[axis] * steps[axis];
            index[axis] = 0;
        }
    }
}

PyObject *glue_count_few(const glue_state *state, PyArrayObject *array, PyObject *const *options)
{
    const npy_intp count = PyArray_SIZE(array);
    const int flags = PyArray_FLAGS(array),
              is_dense = (flags & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS)) != 0 &&
                         (flags & NPY_ARRAY_ALIGNED) != 0;
    _Alignas(16) char elements[FEW_APART * sizeof(npy_complex128)];
    const void *data = PyArray_DATA(array);
    PyObject *result = NULL;
    gpr_dtype dtype;
    int64_t found = 0;
    int kernel, device;

    if (count == 0 || PyArray_ISBYTESWAPPED(array) || PyArray_NDIM(array) > GPR_MAX_NDIM)
        return NULL;
    if (is_dense ? PyArray_NBYTES(array) > FEW_BYTES : count > FEW_APART) return NULL;
    for (int i = GLUE_BLOCK_SIZE; i <= GLUE_STREAM; i++)
        if (options[i] != Py_None) return NULL;
    if (glue_find_dtype(PyArray_DESCR(array), "reducing an array of dtype", &dtype) < 0 ||
        glue_read_kernel(state, options[GLUE_KERNEL], &kernel) < 0 ||
        glue_read_device(options[GLUE_DEVICE], &device) < 0) {
        PyErr_Clear(); /* the general way raises it again */
        return NULL;
    }
    if (kernel >= 0 && kernel != state->fast) return NULL;
    if (device != GPR_DEVICE_CPU && device != GPR_DEVICE_DEFAULT) return NULL;
    if (!is_dense) {
        copy_elements(array, elements);
        data = elements;
    }
    if (!gpr_count_few(dtype, data, (uint64_t)count, kernel, device, &found)) return NULL;
    result = PyArrayScalar_New(Long);
    if (result != NULL) PyArrayScalar_ASSIGN(result, Long, found);
    return result;
}
