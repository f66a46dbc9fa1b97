/* The glue between CPython, NumPy and gpureduce.h: declarations that its files share.
 *
 * The glue turns Python objects into requests and results and statuses back into Python objects. It
 * has no rules of reducing: src/gpureduce has NumPy's, and the library has the arithmetic.
 */
#ifndef GLUE_H
#define GLUE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL gpureduce_array_api
#ifndef GLUE_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <stdatomic.h>

#include "gpureduce.h"
#include "shared/dtype_kinds.h"

#ifndef Py_BEGIN_CRITICAL_SECTION /* before Python 3.13 there is a GIL */
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

/* Attributes of other libraries' arrays and objects, which state->names[GLUE_NAME_...] has as
 * str. */
#define GLUE_NAMES(NAME)            \
    NAME(__array_function__)        \
    NAME(__array_namespace__)       \
    NAME(__array_ufunc__)           \
    NAME(__cuda_array_interface__)  \
    NAME(__dlpack__)                \
    NAME(__dlpack_c_exchange_api__) \
    NAME(__dlpack_device__)         \
    NAME(__enter__)                 \
    NAME(__exit__)                  \
    NAME(__gpureduce_wrap__)        \
    NAME(__module__)                \
    NAME(__mro__)                   \
    NAME(copy_)                     \
    NAME(cuda_stream)               \
    NAME(data)                      \
    NAME(data_ptr)                  \
    NAME(device)                    \
    NAME(device_id)                 \
    NAME(devices)                   \
    NAME(dtype)                     \
    NAME(element_size)              \
    NAME(from_dlpack)               \
    NAME(index)                     \
    NAME(is_conj)                   \
    NAME(is_cuda)                   \
    NAME(is_neg)                    \
    NAME(is_nested)                 \
    NAME(is_quantized)              \
    NAME(layout)                    \
    NAME(max_version)               \
    NAME(new_empty)                 \
    NAME(platform)                  \
    NAME(ptr)                       \
    NAME(requires_grad)             \
    NAME(resolve_conj)              \
    NAME(resolve_neg)               \
    NAME(shape)                     \
    NAME(stream)                    \
    NAME(stride)                    \
    NAME(strides)

typedef enum glue_name {
#define GLUE_NAME(name) GLUE_NAME_##name,
    GLUE_NAMES(GLUE_NAME)
#undef GLUE_NAME
        GLUE_NAME_COUNT
} glue_name;

/* More than the rows of the table of array libraries. */
enum { GLUE_MOST_LIBRARIES = 16 };

typedef struct glue_state {
    PyObject *cuda_error; /* the exception classes of gpureduce._exceptions */
    PyObject *device_unavailable_error;
    PyObject *kernel_unavailable_error;
    PyObject *no_device_warning;
    PyObject *axis_error;         /* numpy.exceptions.AxisError */
    PyObject *device_array_type;  /* gpureduce._core.DeviceArray */
    PyObject *device_buffer_type; /* gpureduce._core.DeviceBuffer */
    PyObject *library_type;       /* gpureduce._core.Library */
    PyObject *names[GLUE_NAME_COUNT];
    PyObject *kernels; /* kernels' indices by the names that calls gave so far */
    int fast;          /* the index of kernel "fast" */
    PyObject *dtype_keyword, *stream_keyword, *stream_and_version_keywords; /* tuples of names */
    _Atomic(PyObject *) libraries[GLUE_MOST_LIBRARIES]; /* by row; NULL: no array seen */
    _Atomic(struct glue_loan *) loans;                  /* loans.c */
    atomic_int ends_loans;                              /* the end of the process ends loans */
    atomic_int located;                                 /* NVRTC and CCCL were looked for */
    atomic_int warned;                                  /* NoDeviceWarning was given */
} glue_state;

/* What a call does with results of an array of the host. */
typedef struct glue_epilogue {
    int only_ordinary; /* NumPy has further rules for others ... */
    int has_others;    /* ... which were found among the results */
    int out_waits;     /* for these rules: results are made apart from `out`, and copied to it */
    int has_start;     /* results are folded with a start, a float or an integer as they are */
    int on_cpu;        /* these results were made there */
    int skips_nan;     /* NaN are results of rows of nothing else: the start is theirs, too */
    int is_wide;       /* results are made as float64, and rounded when the start is in them ... */
    gpr_dtype rounded; /* ... to this type */
    double number;
    int64_t integer;
} glue_epilogue;

/* A request and the memory that its pointers point to. */
typedef struct glue_call {
    gpr_request request;
    gpr_resolution resolution; /* of the request, once glue_resolve found it */
    int64_t shape[GPR_MAX_NDIM], strides[GPR_MAX_NDIM], mask_strides[GPR_MAX_NDIM],
        mean_strides[GPR_MAX_NDIM];
    char reduced[GPR_MAX_NDIM]; /* whether an axis of the array is, in the array's order */
    int axes[GPR_MAX_NDIM];     /* the array's axes in the request's order */
    int order[GPR_MAX_NDIM];    /* the array's axes, the nearest in a result's memory first */
    int keepdims;
    int64_t result_shape[GPR_MAX_NDIM + 1]; /* minmax has an axis of two before the others */
    int result_ndim;
    PyArray_Descr *result_descr;    /* owned */
    int names_kernel;               /* the call names a kernel that only GPUs have */
    struct glue_epilogue *epilogue; /* or NULL */
    PyArrayObject *out;             /* that takes the result as it is, borrowed; or NULL */
} glue_call;

/* The arguments of a function that reduces, besides the array and the result's place; mask None:
 * all elements count; mean None: each row's own. */
typedef struct glue_arguments {
    PyObject *op, *axis, *dtype, *keepdims, *mask, *skip_nan, *ddof, *mean, *start;
    PyObject *const *options;
} glue_arguments;

/* The options after NumPy's own: five consecutive arguments of every function that reduces. */
enum { GLUE_KERNEL, GLUE_DEVICE, GLUE_BLOCK_SIZE, GLUE_GRID_SIZE, GLUE_STREAM, GLUE_OPTION_COUNT };

/* The positions of the arguments that every function that reduces begins with. */
enum {
    GLUE_AT_OP,
    GLUE_AT_ARRAY,
    GLUE_AT_AXIS,
    GLUE_AT_DTYPE,
    GLUE_AT_KEEPDIMS,
    GLUE_AT_MASK,
    GLUE_AT_OPTIONS,
    GLUE_AT_SKIP_NAN = GLUE_AT_OPTIONS + GLUE_OPTION_COUNT,
    GLUE_AT_DDOF,
    GLUE_AT_END
};

static inline glue_arguments glue_arguments_at(PyObject *const *from)
{
    return (glue_arguments){from[GLUE_AT_OP],
                            from[GLUE_AT_AXIS],
                            from[GLUE_AT_DTYPE],
                            from[GLUE_AT_KEEPDIMS],
                            from[GLUE_AT_MASK],
                            from[GLUE_AT_SKIP_NAN],
                            from[GLUE_AT_DDOF],
                            Py_None,
                            Py_None,
                            from + GLUE_AT_OPTIONS};
}

/* ---- numpy_api.c ---- */

/* Fills in the table of NumPy's C API, once per process. 0, or -1 with an exception. */
int glue_import_numpy(void);

/* ---- failures.c. Every function here needs the GIL. ---- */

/* Raises the exception for this thread's last gpr_ failure; an exception that is set already stays.
 * Always NULL. */
PyObject *glue_raise(const glue_state *state);
/* Makes an exception that was fetched the cause of the one that is set. Takes its three parts
 * over. */
void glue_set_cause(PyObject *class, PyObject *value, PyObject *traceback);
/* Gives NoDeviceWarning, the first time in a process; -1 if the filters made it an exception. */
int glue_warn_no_device(glue_state *state, const char *what);

/* ---- sequences.c: new references, NULL with an exception ---- */

/* Makes the item of an index out of what the maker of a sequence was given. */
typedef PyObject *glue_item_maker(const void *from, Py_ssize_t i);
PyObject *glue_new_tuple(Py_ssize_t count, glue_item_maker *make, const void *from);
PyObject *glue_new_list(Py_ssize_t count, glue_item_maker *make, const void *from);
PyObject *glue_tuple_of_integers(const int64_t *integers, Py_ssize_t count);
/* The glue_item_maker of an array of doubles. */
PyObject *glue_make_float(const void *from, Py_ssize_t i);

/* ---- dict_items.c ---- */

/* A new reference to an item of a dict, from which another thread may take it at any time; NULL in
 * *value where there is none. 0, or -1 with an exception. */
int glue_find_item(PyObject *dict, PyObject *key, PyObject **value);

/* ---- numpy_dtypes.c ---- */

typedef struct glue_dtype_row {
    gpr_kind kind;
    int fraction, exponent; /* of a float: stored bits of the significand, bits of the exponent */
} glue_dtype_row;

extern const glue_dtype_row glue_dtype_rows[GPR_DTYPE_COUNT];
/* Which dtypes are reduced, at the end of every message about one that is not. */
extern const char glue_supported_dtypes[];
/* Whether the numbers are floats or complex: NaN is among them. */
int glue_is_inexact(gpr_dtype dtype);
/* Whether NumPy itself has a dtype; ml_dtypes has the others. */
int glue_is_numpys(gpr_dtype dtype);
/* Whether all of `count` results are finite, or not negative if they are integers. */
int glue_are_ordinary(gpr_dtype dtype, const void *results, npy_intp count);
/* A gpr_dtype for a descriptor; `what` begins the TypeError for one that is not supported. 0 or
 * -1. */
int glue_find_dtype(PyArray_Descr *descr, const char *what, gpr_dtype *dtype);
/* The descriptor of a dtype, NumPy's or that of ml_dtypes, which is imported. New reference; NULL
 * with an exception. */
PyArray_Descr *glue_descr_of(gpr_dtype dtype);
/* DTYPES: name -> (bytes, fraction bits, exponent bits, whether NumPy has it), in the registry's
 * order. */
int glue_add_dtypes(PyObject *module);

/* ---- starts.c ---- */

/* Whether a start is taken by the core: results of `op` begin with it. It is a Python number that
 * NumPy converts to the result's type without a word, and is in *epilogue then, with the type that
 * such results are made in before. Never an exception. */
int glue_read_start(gpr_operator op, gpr_dtype element, PyObject *initial, PyObject *kernel,
                    glue_epilogue *epilogue);
/* Folds each of `count` results with the start. */
void glue_fold_start(gpr_operator op, gpr_dtype dtype, glue_epilogue *epilogue, void *results,
                     npy_intp count);

/* ---- arguments.c: each returns 0, or -1 with an exception. ---- */

/* An operator's number or its name. */
int glue_read_operator(PyObject *object, gpr_operator *op);
/* A kernel's index; "auto" is -1. */
int glue_read_kernel(const glue_state *state, PyObject *object, int *kernel);
int glue_read_device(PyObject *object, int *device);
/* The CUstream handle of an int or of another library's stream object; None is NULL. */
int glue_read_stream(const glue_state *state, PyObject *object, void **stream);
int glue_read_options(const glue_state *state, PyObject *const *options, glue_call *call);
/* Whether options leave a call to the CPU as it is: kernel "auto" or "fast", no GPU; then these two
 * are read. Never an exception. */
int glue_needs_no_request(const glue_state *state, PyObject *const *options, int *kernel,
                          int *device);
/* The dtype= argument: NULL for None, else a new reference; refuses byte orders other than the
 * machine's, as NumPy does. */
int glue_read_descr(PyObject *object, PyArray_Descr **descr);
/* The descriptor of the result; new reference in call->result_descr. */
int glue_set_result_descr(glue_call *call, gpr_dtype result, PyArray_Descr *element,
                          PyArray_Descr *requested);
/* The request has its operator. */
int glue_read_keepdims(PyObject *object, glue_call *call);
/* Whether NaN is left out, and by how much variances' divisors are less. */
int glue_read_leave_out(PyObject *skip_nan, PyObject *ddof, gpr_request *request);
/* Marks the axes that are reduced in call->reduced. The request has its operator, its elements'
 * type and whether NaN are left out; `masked`: there is a mask. */
int glue_read_axes(const glue_state *state, PyObject *axis, int ndim, int masked, glue_call *call);
/* Finds NVRTC and CUB's headers once, if there is a driver or `always`. */
int glue_locate(glue_state *state, int always);

/* ---- call_axes.c ---- */

/* Gives the request the axes of an array, reduced ones last; call->reduced has been filled in.
 * `strides` NULL: C order; `mask_strides` NULL: there is no mask, or it has its steps. Results are
 * in memory in `order`, from the nearest axis to the farthest, and so do the request's kept axes;
 * NULL: in C order. */
void glue_set_axes(glue_call *call, int ndim, const int64_t *shape, const int64_t *strides,
                   const int64_t *mask_strides, const int *order);
/* The shape of the result, which has an axis for the outputs if they are several. */
void glue_set_result_shape(glue_call *call, int outputs);
/* Resolves the request, which has all of its types, axes and options: the type of the result is in
 * call->resolution then, its shape in call->result_shape. */
gpr_status glue_resolve(glue_call *call);
/* Steps of a result that is in memory in the call's order, without gaps; returns its bytes. */
int64_t glue_get_result_strides(const glue_call *call, int64_t bytes, int64_t *strides);
/* The request's steps of results, of kept axes, from those of all axes of a resolved call's result.
 * `steps` has room for an axis more than the array has. */
void glue_set_result_strides(glue_call *call, const int64_t *strides, int64_t *steps);
int glue_has_result_shape(const glue_call *call, const int64_t *shape, int ndim);
/* How many elements make one result. */
double glue_count_reduced(const glue_call *call);

/* ---- memory_order.c ---- */

/* Whether NumPy's result of a call lies in memory in another order than C's: `order` has the
 * array's axes then, the nearest first. The request has its operator and its elements' type,
 * call->reduced has been filled in. */
int glue_find_order(const glue_call *call, int ndim, const int64_t *shape, const int64_t *steps,
                    const int64_t *mask_steps, int *order);
/* The same of a resolved call: `order` has the axes of its result then, the farthest first. */
int glue_find_result_order(const glue_call *call, int *order);

/* ---- run_call.c ---- */

/* A thread that has released the GIL. */
typedef struct glue_pause {
    PyThreadState *thread;
} glue_pause;

/* Releases the GIL, until PyEval_RestoreThread(pause->thread), and sets a request's interrupt
 * callback: it takes the GIL back and runs Python's signal handlers. */
void glue_release_gil(glue_pause *pause, int (**interrupted)(void *), void **argument);
/* Warns if a GPU kernel was named, the device was left open and there is no GPU. 0, or -1 with
 * an exception. */
int glue_warn_if_none(glue_state *state, const glue_call *call);
/* gpr_reduce, of more than a few elements, and gpr_dot with the GIL released; Ctrl-C interrupts
 * them. */
gpr_status glue_reduce_unlocked(gpr_request *request);
gpr_status glue_dot_unlocked(gpr_dot_request *request);
/* Carries out a filled-in call for an array of the host with the GIL released; its result, or NULL.
 * Releases call->result_descr. */
PyObject *glue_run(glue_state *state, glue_call *call);
/* Whether a variance has no more elements per result than ddof. */
int glue_lacks_freedom(const glue_call *call);

/* ---- host_reduce.c ---- */

/* Whether the core takes `where` as it is. */
int glue_is_mask_of(PyObject *where, PyArrayObject *array);
/* The result of an exact ndarray, after `epilogue`; `out` is None or receives it. NotImplemented
 * where NumPy has further rules, or `out` does not take the result as it is. */
PyObject *glue_reduce_plain_ndarray(glue_state *state, PyArrayObject *array,
                                    const glue_arguments *given, glue_epilogue *epilogue,
                                    PyObject *out);
/* The same by another operator than the arguments'. */
PyObject *glue_reduce_by(glue_state *state, gpr_operator op, PyArrayObject *array,
                         const glue_arguments *given);

/* ---- dates.c: arrays of datetime64 or timedelta64 ---- */

/* Whether the core reduces dates by the request's operator: then the request has their type, and
 * how it takes NaT. */
int glue_read_dates(gpr_request *request);
/* Makes results of such a request, which follow each other, those of its dates. */
void glue_restore_dates(const gpr_request *request, npy_intp count);
int glue_have_nat(const npy_int64 *dates, npy_intp count);
/* Whether a NaT is near the beginning of memory without gaps, of int64 in the place of dates. */
int glue_begins_with_nat(PyArrayObject *integers);
/* As glue_read_start, for extremes of dates: a date of their type. */
int glue_read_date_start(gpr_operator op, int skips_nat, PyArrayObject *dates, PyObject *initial,
                         glue_epilogue *epilogue);
/* The position, or those of rows, of the first NaT, if all rows begin with one or soon have one;
 * else NULL. Dates have elements. */
PyObject *glue_find_nat(const glue_state *state, PyArrayObject *dates, const glue_arguments *given);

/* ---- date_calls.c ---- */

/* The difference of the extremes; the sum and the mean of times that are some, NaT of what NaT is
 * among, the mean without a mask. NotImplemented where NumPy has further rules. */
PyObject *glue_ptp_dates(glue_state *state, PyArrayObject *dates, const glue_arguments *given);
PyObject *glue_sum_times(glue_state *state, PyArrayObject *times, const glue_arguments *given);
PyObject *glue_mean_of_times(glue_state *state, PyArrayObject *times, const glue_arguments *given);

/* ---- given_means.c ---- */

/* var or std of an array that has elements about `mean`, with the function's ddof. NotImplemented
 * where NumPy has further rules, and of arrays that are not float32 or float64. */
PyObject *glue_vary_about(glue_state *state, gpr_operator op, PyArrayObject *array,
                          const glue_arguments *given, PyObject *mean);

/* ---- count_few.c ---- */

/* The number of an array's elements that are not 0, for a call with such options. NULL without an
 * exception: a request has to count them. */
PyObject *glue_count_few(const glue_state *state, PyArrayObject *array, PyObject *const *options);

/* ---- function_type.c ---- */

/* Function, the type of the package's functions. 0, or -1 with an exception. */
int glue_add_function_type(PyObject *module);

/* ---- costs.c ---- */

/* Facts of a GPU from a tuple, as device_facts returns it. 0, or -1 with an exception. */
int glue_read_facts(PyObject *object, gpr_device_facts *facts);
/* PLAN_COSTS: the names of the costs, in order. 0, or -1 with an exception. */
int glue_add_cost_names(PyObject *module);

/* ---- launch_text.c, several_call.c ---- */

/* Name of capsules that hold a loaded image. */
#define GLUE_LOADED_IMAGE "gpureduce.loaded_image"

/* ---- dot_arrays.c ---- */

/* The sum of squares or magnitudes of an array of the host along axes, or the root of that. `types`
 * are dtypes of what is summed and of the result. */
PyObject *glue_sum_one_array(glue_state *state, PyArrayObject *array, PyObject *const *types,
                             PyObject *axis, PyObject *keepdims, gpr_products products, int root,
                             PyObject *const *options);

/* ---- the functions that core.c puts into the module ---- */

extern PyMethodDef glue_run_methods[];
extern PyMethodDef glue_host_reduce_methods[];
extern PyMethodDef glue_dot_methods[];
extern PyMethodDef glue_norm_methods[];
extern PyMethodDef glue_inspect_methods[];
extern PyMethodDef glue_memory_methods[];
extern PyMethodDef glue_cost_methods[];
extern PyMethodDef glue_dtype_methods[];
extern PyMethodDef glue_text_methods[];
extern PyMethodDef glue_exact_methods[];
extern PyMethodDef glue_exp_sums_methods[];
extern PyMethodDef glue_several_methods[];

static inline glue_state *glue_state_of(PyObject *module)
{
    return (glue_state *)PyModule_GetState(module);
}

#endif
