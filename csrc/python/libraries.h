/* Array libraries: one table of how the arrays of each are found, read, made and written. */
#ifndef GLUE_LIBRARIES_H
#define GLUE_LIBRARIES_H

#include "python/device_buffer.h"

/* The parts of a library that its ways use. A row of the table has the place of each:
 * "module:attribute.attribute", or several places separated by '|', of which the first that exists
 * counts. A part without a place is NULL. */
typedef enum glue_part {
    /* base of the types of its arrays; without it, any type that has the CUDA array interface */
    GLUE_ARRAY_TYPE,
    /* base of arrays that have no memory */
    GLUE_TRACER_TYPE,
    /* type of its dtypes, which the module has under NumPy's names; without it they are NumPy's */
    GLUE_DTYPE_TYPE,
    /* empty(shape, dtype), on the current device */
    GLUE_EMPTY,
    /* contexts that make a device the current one: called with, or indexed by, its ordinal */
    GLUE_CONTEXTS,
    /* () -> ordinal */
    GLUE_CURRENT_DEVICE,
    /* (ordinal) -> handle or object */
    GLUE_CURRENT_STREAM,
    /* copyto(out, array, casting) */
    GLUE_COPYTO,
    /* from_dlpack(array) */
    GLUE_FROM_DLPACK,
    /* from_cuda_array_interface(interface, owner, sync) */
    GLUE_FROM_INTERFACE,
    /* () -> bool */
    GLUE_HAS_GRADIENTS,
    /* whether its default stream is the thread's */
    GLUE_IS_PER_THREAD,
    /* layout of arrays that have strides */
    GLUE_STRIDED_LAYOUT,
    GLUE_PART_COUNT
} glue_part;

typedef struct glue_library glue_library;

/* A row of the table. The functions are in library_ways.c. */
typedef struct glue_ways {
    /* in messages */
    const char *name;
    /* that define the types of its arrays, separated by spaces; NULL: any */
    const char *packages;
    /* where they are */
    const char *parts[GLUE_PART_COUNT];
    /* Whether the array is in the memory of a CUDA device; -1 with an exception. */
    int (*holds)(const glue_state *state, const glue_library *library, PyObject *array);
    /* Where the array is, and the stream that it is ready on. */
    glue_device_array *(*read)(const glue_state *state, const glue_library *library,
                               PyObject *array);
    /* Makes an array beside `like`, which is `beside` in memory, for work on its stream. */
    PyObject *(*make)(const glue_state *state, const glue_library *library, PyObject *like,
                      const glue_device_array *beside, PyObject *shape, gpr_dtype dtype,
                      glue_device_array **memory);
    /* name of the method that returns an array's view with its axes in another order; NULL: its
     * arrays are in C order */
    const char *transpose;
    /* Hands the new array over to the caller, once its writing is queued; NULL: nothing is to be
     * done. */
    PyObject *(*finish)(const glue_state *state, const glue_library *library, PyObject *like,
                        PyObject *made);
    /* A pair of the subarrays 0 and 1 of an array's first axis; NULL: by indexing. */
    PyObject *(*split)(const glue_state *state, const glue_library *library, PyObject *array);
    /* Writes `array` into `out`, converted as NumPy's unsafe casting does, in order on the
     * library's stream; NULL: it has no conversion on the device. */
    int (*assign)(const glue_state *state, const glue_library *library, PyObject *out,
                  PyObject *array);
    /* Replaces the exception by one that names the kind of array; returns whether it did. NULL: it
     * never does. */
    int (*explain)(const glue_state *state, const glue_library *library, PyObject *array);
    /* the library does not order the memory's reuse by our stream: keep it until it is passed */
    unsigned char lends;
    /* its arrays are never written */
    unsigned char read_only;
} glue_ways;

/* Types of a library's arrays that are found without looking at their bases. */
enum { GLUE_MOST_TYPES = 4 };

/* gpureduce._core.Library: a row whose library was met. Its contents stay; types are added. */
struct glue_library {
    PyObject_HEAD const glue_ways *ways;
    PyObject *parts[GLUE_PART_COUNT];
    /* the library's own, by gpr_dtype, None where it has none; NULL: they are NumPy's */
    PyObject *dtypes;
    _Atomic(PyTypeObject *) types[GLUE_MOST_TYPES];
};

/* ---- library_ways.c: the ways that rows are made of ---- */

int glue_is_always_held(const glue_state *state, const glue_library *library, PyObject *array);
int glue_is_held_by_attribute(const glue_state *state, const glue_library *library,
                              PyObject *array);
int glue_is_held_by_dlpack(const glue_state *state, const glue_library *library, PyObject *array);
int glue_is_held_by_platform(const glue_state *state, const glue_library *library, PyObject *array);

glue_device_array *glue_read_tensor(const glue_state *state, const glue_library *library,
                                    PyObject *tensor);
glue_device_array *glue_read_attributes(const glue_state *state, const glue_library *library,
                                        PyObject *array);
glue_device_array *glue_read_interface(const glue_state *state, const glue_library *library,
                                       PyObject *array);
glue_device_array *glue_read_dlpack(const glue_state *state, const glue_library *library,
                                    PyObject *array);
glue_device_array *glue_read_exchange(const glue_state *state, const glue_library *library,
                                      PyObject *array);

PyObject *glue_make_tensor(const glue_state *state, const glue_library *library, PyObject *like,
                           const glue_device_array *beside, PyObject *shape, gpr_dtype dtype,
                           glue_device_array **memory);
PyObject *glue_make_empty(const glue_state *state, const glue_library *library, PyObject *like,
                          const glue_device_array *beside, PyObject *shape, gpr_dtype dtype,
                          glue_device_array **memory);
PyObject *glue_make_on_stream(const glue_state *state, const glue_library *library, PyObject *like,
                              const glue_device_array *beside, PyObject *shape, gpr_dtype dtype,
                              glue_device_array **memory);
PyObject *glue_make_by_exchange(const glue_state *state, const glue_library *library,
                                PyObject *like, const glue_device_array *beside, PyObject *shape,
                                gpr_dtype dtype, glue_device_array **memory);
PyObject *glue_make_own(const glue_state *state, const glue_library *library, PyObject *like,
                        const glue_device_array *beside, PyObject *shape, gpr_dtype dtype,
                        glue_device_array **memory);

PyObject *glue_finish_by_dlpack(const glue_state *state, const glue_library *library,
                                PyObject *like, PyObject *made);
PyObject *glue_split_interface(const glue_state *state, const glue_library *library,
                               PyObject *array);

int glue_assign_by_method(const glue_state *state, const glue_library *library, PyObject *out,
                          PyObject *array);
int glue_assign_by_copyto(const glue_state *state, const glue_library *library, PyObject *out,
                          PyObject *array);
int glue_assign_items(const glue_state *state, const glue_library *library, PyObject *out,
                      PyObject *array);

int glue_explain_tensor(const glue_state *state, const glue_library *library, PyObject *tensor);

/* ---- libraries.c: the table ---- */

/* Makes the type, once per module. */
int glue_add_library_type(PyObject *module);
int glue_visit_libraries(const glue_state *state, visitproc visit, void *arg);
void glue_clear_libraries(glue_state *state);

/* The library of an array in the memory of a CUDA device: borrowed. NULL without an exception:
 * it is anything else. */
glue_library *glue_find_library(glue_state *state, PyObject *array);
/* Whether it has a row of its own: its arrays have no rules but NumPy's. */
int glue_is_known(const glue_library *library);
/* Whether the type of an array that is no ndarray overrides NumPy's functions, or has
 * __gpureduce_wrap__: Python handles it. -1 with an exception. */
int glue_has_own_rules(const glue_state *state, PyObject *array);
/* The row's way to read, and a TypeError that names the dtype where it is one that is not
 * reduced. */
glue_device_array *glue_read_array(const glue_state *state, const glue_library *library,
                                   PyObject *array);
/* The row's way to make an array. Its axes are in memory in `order`, the farthest first, where the
 * library has orders; NULL: in C order. */
PyObject *glue_make_array(const glue_state *state, const glue_library *library, PyObject *like,
                          const glue_device_array *beside, PyObject *shape, const int *order,
                          gpr_dtype dtype, glue_device_array **memory);
PyObject *glue_finish_array(const glue_state *state, const glue_library *library, PyObject *like,
                            PyObject *made);
PyObject *glue_split_array(const glue_state *state, const glue_library *library, PyObject *array);

extern PyMethodDef glue_library_methods[];

#endif
