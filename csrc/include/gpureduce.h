/* gpureduce.h: reduce arrays on NVIDIA GPUs, or on all cores of a CPU.
 *
 * The only public header. It is in three parts, simple first:
 *   1. one call for an array in ordinary memory: gpr_reduce_array
 *   2. a request with strides, masks, kernel, device and limits: gpr_reduce
 *   3. looking inside: kernels, their sources, devices, timing, compiling, the cache
 *
 * Every function that can fail returns a gpr_status; gpr_last_error() then holds the detail for the
 * calling thread. Nothing here exits, prints or throws. All functions may be called from any
 * thread. libcuda and NVRTC are opened at first use: a program that links this library runs, and
 * reduces on the CPU, on a machine that has neither.
 *
 * Sizes are in elements unless a name says bytes. Strides are in bytes and may be zero or negative.
 *
 * A call takes at most GPR_STACK_BYTES of the calling thread's stack; on a GPU, what the driver
 * takes comes on top. NVRTC runs in a thread of its own.
 */
#ifndef GPUREDUCE_H
#define GPUREDUCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GPR_API __attribute__((visibility("default")))
#else
#define GPR_API
#endif

enum { GPR_STACK_BYTES = 48 * 1024 };

/* ---------------------------------------------------------------- statuses and errors ------- */

typedef enum gpr_status {
    GPR_OK = 0,
    GPR_ERROR_VALUE,       /* an argument's value: unknown name, block size, axis, empty input */
    GPR_ERROR_TYPE,        /* an argument's type: a dtype that does not reduce */
    GPR_ERROR_MEMORY,      /* host or device memory ran out, also in small chunks */
    GPR_ERROR_CUDA,        /* the driver refused a call; see gpr_error.call, .code, .name */
    GPR_ERROR_COMPILE,     /* NVRTC refused a program; see gpr_error.log */
    GPR_ERROR_DEVICE,      /* no usable CUDA device: no driver, too old, no NVRTC, after fork */
    GPR_ERROR_KERNEL,      /* this kernel cannot run here: GPU too old, headers not installed */
    GPR_ERROR_INTERRUPTED, /* the request's interrupt callback returned not 0 */
    GPR_ERROR_SYSTEM       /* the operating system refused something: a thread, a file */
} gpr_status;

typedef struct gpr_error {
    gpr_status status;
    char message[1024]; /* one or two sentences in UTF-8: what is wrong and what to do */
    char call[64];      /* driver or NVRTC function that failed, "" if none did */
    int code;           /* its result */
    char name[64];      /* its result's name, as CUDA_ERROR_OUT_OF_MEMORY */
    const char *log;    /* the compiler's log, or NULL; valid until this thread's next gpr_ call */
} gpr_error;

/* The calling thread's last failure. Never NULL; .status is GPR_OK if nothing failed yet. */
GPR_API const gpr_error *gpr_last_error(void);

/* "GPR_ERROR_VALUE" and so on; never NULL. */
GPR_API const char *gpr_status_name(gpr_status status);

/* The library's version, as "0.2.0". */
GPR_API const char *gpr_version(void);

/* ---------------------------------------------------------------- dtypes and operators ------ */

typedef enum gpr_dtype {
    GPR_DTYPE_DEFAULT = -1, /* in a request: the type NumPy would choose */
    GPR_BOOL = 0,
    GPR_INT8,
    GPR_INT16,
    GPR_INT32,
    GPR_INT64,
    GPR_UINT8,
    GPR_UINT16,
    GPR_UINT32,
    GPR_UINT64,
    GPR_FLOAT16,  /* IEEE binary16 in 2 bytes */
    GPR_BFLOAT16, /* the upper half of a float32 */
    GPR_FLOAT32,
    GPR_FLOAT64,
    GPR_COMPLEX64, /* two float32: real part, imaginary part */
    GPR_COMPLEX128,
    GPR_DTYPE_COUNT
} gpr_dtype;

typedef enum gpr_operator {
    GPR_OP_SUM = 0,
    GPR_OP_PROD,
    GPR_OP_MIN,
    GPR_OP_MAX,
    GPR_OP_MEAN,
    GPR_OP_ANY,
    GPR_OP_ALL,
    GPR_OP_ARGMIN,
    GPR_OP_ARGMAX,
    GPR_OP_VAR,
    GPR_OP_STD,
    GPR_OP_COUNT_NONZERO,
    GPR_OP_PTP,
    GPR_OP_MINMAX,
    GPR_OP_BITWISE_AND,
    GPR_OP_BITWISE_OR,
    GPR_OP_BITWISE_XOR,
    GPR_OP_LOGICAL_XOR,
    GPR_OP_COUNT
} gpr_operator;

GPR_API const char *gpr_dtype_name(gpr_dtype dtype); /* "float32"; NULL if out of range */
GPR_API size_t gpr_dtype_bytes(gpr_dtype dtype);     /* element size; 0 if out of range */
GPR_API gpr_dtype gpr_find_dtype(const char *name);  /* GPR_DTYPE_DEFAULT if there is none */
GPR_API const char *gpr_operator_name(gpr_operator op);
GPR_API int gpr_find_operator(const char *name); /* a gpr_operator, or -1 */

/* Type of the result of reducing `dtype` with `op` when elements are first converted to `compute`
 * (GPR_DTYPE_DEFAULT: NumPy's choice: int64 or uint64 for sums and products of integers, float64
 * for their mean and variance, bool for any, all and logical_xor, int64 for positions and counts, a
 * variance of complex elements is real, otherwise the element type). GPR_DTYPE_DEFAULT if op does
 * not take the types: gpr_last_error has the reason. */
GPR_API gpr_dtype gpr_result_dtype(gpr_operator op, gpr_dtype dtype, gpr_dtype compute);

/* ---------------------------------------------------------------- 1. one call --------------- */

/* Reduces `n` contiguous elements in ordinary memory with kernel "auto", on the first CUDA device
 * if there is one, else on the CPU. `result` receives one element of
 * gpr_result_dtype(op, dtype, GPR_DTYPE_DEFAULT), or two of them for minmax.
 * GPR_ERROR_VALUE: n is 0 and op has no identity (min, max, ...). */
GPR_API gpr_status gpr_reduce_array(gpr_operator op, gpr_dtype dtype, const void *data, uint64_t n,
                                    void *result);

/* ---------------------------------------------------------------- 2. requests --------------- */

enum {
    GPR_DEVICE_CPU = -1,
    GPR_DEVICE_DEFAULT = -2, /* CUDA device 0 if it is usable, else the CPU */
    GPR_DEVICE_FASTEST = -3, /* for host arrays: wherever a measured cost model expects it sooner */
    GPR_DEVICE_CUDA = -4     /* CUDA device 0, or an error */
    /* 0, 1, ...: that CUDA device, or an error */
};

enum { GPR_MAX_NDIM = 64 };

/* The part of a resolved request that its operator, types, extents and kernel decide: found before
 * there is memory for the result. */
typedef struct gpr_resolution {
    gpr_dtype result;  /* type of the results */
    int outputs;       /* results per kept index: two of minmax, else one */
    int kernel;        /* that runs: never "auto" */
    uint64_t rule[12]; /* the library's own */
} gpr_resolution;

/* One reduction: its array, operator and device. Zero-initialise it, then set the members that you
 * need; the comments give the meaning of 0. The array has `ndim` axes; the last `reduced` of them
 * are reduced, so other axes are reduced by passing shape and strides in another order. */
typedef struct gpr_request {
    gpr_operator op;
    /* of the elements */
    gpr_dtype dtype;
    /* elements are converted to it first; GPR_DTYPE_DEFAULT (not 0!): NumPy's choice */
    gpr_dtype compute;

    int ndim;
    int reduced;
    /* ndim extents */
    const int64_t *shape;
    /* ndim steps in bytes; NULL: C-contiguous */
    const int64_t *strides;
    /* first element: host memory, or device memory if on_device */
    const void *data;
    /* bool, one byte each: where false, the element is left out (not for positions); or NULL */
    const uint8_t *mask;
    /* ndim steps in bytes; required with mask */
    const int64_t *mask_strides;
    /* elements are in the other byte order */
    int byteswapped;
    /* int64 are dates, of which NaT, the smallest, is to be the largest: they are reduced less 1,
     * which wraps, and results that are elements are less 1, too; not in device memory */
    int nat_last;

    /* NaN elements are left out: sum, prod, min, max, mean, var, std, argmin, argmax. A variance
     * whose divisor is 0 is NaN then, else the result of the division */
    int skip_nan;
    /* var, std: the divisor is the number of elements less this, and not below 0 */
    double ddof;

    /* data and mask are memory of CUDA device `device`: any strides, elements aligned to their
     * size, native byte order. Kernels other than "exact" and "fast" read contiguous rows without a
     * mask only */
    int on_device;
    /* from gpr_find_kernel; a negative number: "auto", which is "exact" for sums and means of
     * floats, and else "fast" */
    int kernel;
    /* GPR_DEVICE_* or a CUDA ordinal */
    int device;
    /* threads per block; 0: the kernel's own */
    uint32_t block_size;
    /* blocks per row, for kernels that loop; 0: the planner's */
    uint32_t grid_size;
    /* CUstream the work is ordered on; NULL: one of the library's own; 1 and 2: CUDA's legacy and
     * per-thread default streams */
    void *stream;

    /* one element of the result type per kept index, host memory. minmax: all minima, then all
     * maxima, as if along a first axis. argmin, argmax: the position in the row, the reduced axes
     * in C order; -1 if skip_nan left nothing */
    void *result;
    /* a step in bytes per kept axis, of minmax after one from minima to maxima; NULL: C order */
    const int64_t *result_strides;
    /* result is memory of CUDA device `device`: the work is queued on `stream`, and the call
     * returns without waiting for it. For on_device arrays */
    int result_on_device;
    /* with result_on_device: the caller allocated that memory there and holds it; the driver is not
     * called to check it */
    int vouches_for_result;

    /* var, std of on_device arrays: squared distances are from given means, not from those of the
     * rows. `compute` is then the type of the result alone (of complex elements a complex one).
     * Infinite elements make NaN. Not with "exact" */
    int has_given_mean;
    /* of the given means; complex of complex elements only */
    gpr_dtype mean_dtype;
    /* the first given mean, device memory, aligned to its size; NULL: mean_value for every row */
    const void *mean;
    /* a step in bytes per kept axis, 0 along those that share a mean; required with mean */
    const int64_t *mean_strides;
    /* real and imaginary part */
    double mean_value[2];

    /* min, max of on_device arrays: an element that rows have beside their own, which may be none;
     * NULL: there is none. With "fast", or "auto", which runs it */
    const void *start;

    /* called between chunks of long work, on the calling thread: not 0 stops */
    int (*interrupted)(void *);
    void *interrupted_arg;

    /* of this request, by gpr_resolve; NULL: gpr_reduce finds it */
    const gpr_resolution *resolution;
} gpr_request;

/* Resolves a request without data, results, stream and device. Reads op, dtype, compute, extents,
 * skip_nan, ddof, kernel, block and grid size, has_given_mean, mean_dtype, and whether there is a
 * mask and a start. Calls no CUDA function. Errors: those of gpr_reduce that these members cause.
 */
GPR_API gpr_status gpr_resolve(const gpr_request *request, gpr_resolution *resolution);

/* Share of the calling thread's request that has begun, from 0 to 1: for its callback
 * `interrupted`, to show progress. Rises in steps of the request's chunks or tasks; work of a
 * single task stays at 0. */
GPR_API double gpr_progress(void);

/* Carries out a request and waits for it, unless the result stays on the device. A stream that is
 * being captured into a graph takes requests whose result stays on the device: their device memory
 * belongs to the graph. On failure *result is unspecified and nothing leaks; the next call works.
 * Errors: see gpr_status. */
GPR_API gpr_status gpr_reduce(const gpr_request *request);

enum {
    GPR_STAGE_STAGE,
    GPR_STAGE_UPLOAD,
    GPR_STAGE_KERNEL,
    GPR_STAGE_DOWNLOAD,
    GPR_STAGE_COMPILE,
    GPR_STAGE_COUNT
};

/* The record of the calling thread's last gpr_reduce. */
typedef struct gpr_run {
    int device;          /* CUDA ordinal, or GPR_DEVICE_CPU */
    int kernel;          /* index, see gpr_kernel_info_at; "auto" stays "auto" */
    const char *variant; /* template that ran, as "fast_rows"; on the CPU the instruction set */
    uint32_t block_size; /* threads; on the CPU the number of threads that took part */
    uint64_t grid_size;  /* blocks of the first launch; on the CPU the number of tasks */
    uint32_t launches;   /* kernel launches for the last chunk, fills included */
    uint64_t chunks;     /* pieces the array was streamed in; 1 if in one */
    uint64_t elements;
    uint64_t bytes;                        /* read from the array */
    double seconds;                        /* wall time of the call */
    double stage_seconds[GPR_STAGE_COUNT]; /* wall time of the host in each; negative: not timed */
    int compiled;                          /* programs NVRTC compiled for this call */
    int cache_hits;                        /* programs read from the disk cache */
} gpr_run;

/* The calling thread's last successful gpr_reduce, or NULL if it made none. */
GPR_API const gpr_run *gpr_last_run(void);
/* Lets gpr_last_run return NULL to the calling thread until its next gpr_reduce: after work that
 * has no record, such as gpr_run_launches. */
GPR_API void gpr_forget_run(void);

/* gpr_reduce of GPR_OP_COUNT_NONZERO where checks would take longer than counting: on the CPU, on
 * the calling thread, of n contiguous elements, aligned and in native byte order, in ordinary
 * memory. `kernel`: -1 for "auto", or an index; `device`: GPR_DEVICE_CPU or GPR_DEVICE_DEFAULT.
 * Returns 0, and does nothing, if a device is there that GPR_DEVICE_DEFAULT selects. */
GPR_API int gpr_count_few(gpr_dtype dtype, const void *data, uint64_t n, int kernel, int device,
                          int64_t *count);

/* ---------------------------------------------------------------- products ------------------- */

/* One of two arrays that are multiplied. */
typedef struct gpr_factor {
    gpr_dtype dtype;
    const void *data;       /* first element */
    int64_t stride;         /* in bytes, from element to element; may be zero or negative */
    const int64_t *strides; /* in bytes, per axis, where the request has a shape */
    int byteswapped;        /* elements are in the other byte order; not in device memory */
} gpr_factor;

/* What is summed. */
typedef enum gpr_products {
    GPR_PRODUCTS = 0, /* a[i] * b[i] */
    GPR_SQUARES,      /* a[i] * a[i], of real numbers; b is not read */
    GPR_MAGNITUDES    /* |a[i]|, of real numbers; b is not read */
} gpr_products;

/* The sum of products of elements. Zero-initialise it, then set the members that you need. */
typedef struct gpr_dot_request {
    gpr_factor a, b;
    gpr_dtype factor;  /* both arrays' elements are converted to it before they are multiplied */
    gpr_dtype compute; /* type of the result; GPR_DTYPE_DEFAULT (not 0!): `factor` */
    uint64_t n;        /* elements of each array */
    int kernel; /* from gpr_find_kernel: "exact"; a negative number: "auto", which is "exact" */
    int device; /* this and the members below: as in gpr_request */
    uint32_t block_size, grid_size;
    void *stream;
    int on_device;        /* both arrays are in memory of the device */
    int result_on_device; /* with on_device: the call queues the work and returns */
    void *result;         /* one element per kept index, in C order */
    int (*interrupted)(void *);
    void *interrupted_arg;
    /* Arrays of several axes: sums run along the last `reduced` ones. `shape` NULL: one axis of n
     * elements. The CPU sums host arrays that have a shape, and squares and magnitudes of host
     * arrays. */
    int ndim, reduced;
    const int64_t *shape;
    gpr_products products;
    int conjugate; /* complex a[i] are conjugated */
    int root;      /* with GPR_SQUARES: the root of the sum, rounded once to a float type */
    /* of a result on a device: a stride in bytes per kept axis; NULL: C order */
    const int64_t *result_strides;
    /* Host arrays with a shape: sums are rounded to float64, or to complex128, divided by these
     * and rounded to the result's type. In C order, or one for all results; NULL: no division. */
    const double *divisors;
    int has_one_divisor;
} gpr_dot_request;

/* Sums a[i] * b[i], on all cores or on a CUDA device; both give equal bits. A sum of floats is
 * exact and is rounded once, to the result's type: no product and no partial sum overflows or
 * underflows. Infinity times 0 is NaN, and so is the sum of infinities of both signs. A sum whose
 * products are all -0 is -0; every other zero, also the sum of no elements, is +0. Integers wrap at
 * the end; a bool tells whether any product is true. Real and imaginary parts of a complex result
 * are sums of their own. GPR_ERROR_VALUE: another kernel; a block size that the kernel does not
 * take; too many elements; memory that is not the device's. GPR_ERROR_TYPE: a result type that
 * cannot hold values of `factor`: a real one for complex products, an integer for floats, bool for
 * numbers.
 * GPR_ERROR_MEMORY, GPR_ERROR_INTERRUPTED. gpr_last_run has its record. */
GPR_API gpr_status gpr_dot(const gpr_dot_request *request);

/* ---------------------------------------------------------------- exponentials --------------- */

/* log(sum(exp(a))) of each row of a host array of real numbers, under the request's mask if it has
 * one, on all cores. The call ignores op, skip_nan, ddof, kernel, block_size and grid_size.
 * `compute` is the float type of the results: by default the elements', or float64 for integers and
 * bool. A row without elements, or with elements of -infinity only, gives -infinity. The error is
 * below one unit in the last place of the result, plus that of log(n), plus 2^-50.
 * GPR_ERROR_TYPE: complex elements.
 * GPR_ERROR_VALUE: arrays or results in device memory, results with steps. GPR_ERROR_MEMORY,
 * GPR_ERROR_INTERRUPTED. gpr_last_run has its record. */
GPR_API gpr_status gpr_logsumexp(const gpr_request *request);

/* ---------------------------------------------------------------- limits -------------------- */

typedef struct gpr_limits {
    /* device memory for streaming host arrays, per device: default 256 MiB. Scratch for
     * reductions of device arrays comes on top: a few MiB per stream */
    uint64_t device_bytes;
    /* pinned host memory for streaming host arrays: default 128 MiB */
    uint64_t pinned_bytes;
    /* threads of the CPU backend and the staging copy: default all cores */
    uint32_t cpu_threads;
} gpr_limits;

GPR_API void gpr_get_limits(gpr_limits *limits);
/* GPR_ERROR_VALUE: a memory limit under 1 MiB, or no threads, or more than 1024. Buffers that are
 * too large for new limits are given back before the next request. Environment:
 * GPUREDUCE_DEVICE_BYTES, GPUREDUCE_PINNED_BYTES, GPUREDUCE_THREADS set the initial values. */
GPR_API gpr_status gpr_set_limits(const gpr_limits *limits);

/* ---------------------------------------------------------------- exact sums ---------------- */

/* The exact sum of all elements added so far. Only gpr_exact_result and gpr_exact_mean round, once,
 * to nearest, ties to even. The bits of a state depend on its elements alone, not on the grouping
 * or order of updates and merges; it holds up to 2^64 - 1 elements of any magnitude. Infinities and
 * NaN propagate as in IEEE additions. A sum of elements that are all -0 is -0; every other zero,
 * also the empty sum, is +0.
 *
 * Any thread may use any state at any time: updates and merges are atomic, and a failed one changes
 * nothing. */
typedef struct gpr_exact gpr_exact;

/* An empty sum of elements of type `dtype`, freed by gpr_exact_destroy. GPR_ERROR_VALUE,
 * GPR_ERROR_MEMORY. */
GPR_API gpr_status gpr_exact_create(gpr_dtype dtype, gpr_exact **sum);
GPR_API void gpr_exact_destroy(gpr_exact *sum); /* NULL: nothing */
GPR_API gpr_dtype gpr_exact_dtype(const gpr_exact *sum);
GPR_API uint64_t gpr_exact_count(const gpr_exact *sum); /* elements added */

/* Adds every element of an array: on all cores in host memory, by kernel `exact` if on_device. The
 * call reads dtype, ndim, shape, strides, data, byteswapped and interrupted of the request; for
 * device arrays also device, stream, block_size and grid_size, and it waits for the stream. mask
 * must be NULL. Elements of another type than the sum's are converted without rounding: the sum's
 * type must be at least as fine and as wide (float64 takes int64 and float32, float16 takes int8).
 * GPR_ERROR_TYPE: it is not; GPR_ERROR_VALUE: a bad shape, more than 2^64 - 1 elements, a stream
 * that is being captured into a graph, or an error of gpr_reduce for device arrays;
 * GPR_ERROR_MEMORY; GPR_ERROR_INTERRUPTED; for device arrays also errors of the driver and of
 * NVRTC. */
GPR_API gpr_status gpr_exact_update(gpr_exact *sum, const gpr_request *array);
/* Adds `n` contiguous elements of the sum's type. */
GPR_API gpr_status gpr_exact_update_array(gpr_exact *sum, const void *data, uint64_t n);
/* Adds `other`, which may be `sum` itself. GPR_ERROR_TYPE: its dtype differs;
 * GPR_ERROR_VALUE: more than 2^64 - 1 elements. */
GPR_API gpr_status gpr_exact_merge(gpr_exact *sum, const gpr_exact *other);

/* The sum rounded once to an element of type `result`: a float type, or, for sums of integers and
 * bools, GPR_INT64 or GPR_UINT64. GPR_DTYPE_DEFAULT: as gpr_result_dtype of GPR_OP_SUM. A sum
 * beyond the float type is infinite. GPR_ERROR_VALUE: it does not fit in the integer type;
 * GPR_ERROR_TYPE: another type. */
GPR_API gpr_status gpr_exact_result(const gpr_exact *sum, gpr_dtype result, void *value);
/* The sum divided by the number of elements, rounded once to a float type (GPR_DTYPE_DEFAULT: as
 * gpr_result_dtype of GPR_OP_MEAN). Of no elements: NaN. GPR_ERROR_TYPE: not a float type. */
GPR_API gpr_status gpr_exact_mean(const gpr_exact *sum, gpr_dtype result, void *value);

/* A state as bytes (docs/exact-format.md): equal states have equal bytes on every machine.
 * gpr_exact_bytes returns their number for a dtype, 0 for an unknown one. gpr_exact_load makes a
 * new sum; GPR_ERROR_VALUE: the bytes are damaged, and the message says where. */
GPR_API size_t gpr_exact_bytes(gpr_dtype dtype);
GPR_API void gpr_exact_store(const gpr_exact *sum, void *bytes);
GPR_API gpr_status gpr_exact_load(const void *bytes, size_t size, gpr_exact **sum);

/* ---------------------------------------------------------------- 3. kernels ---------------- */

typedef struct gpr_kernel_info {
    const char *name;
    const char *aliases; /* space-separated, may be "" */
    const char *family;  /* "atomic", "tree", "shuffle", "block", "warp", "library", "planner" */
    const char *summary;
    const char *removes;          /* the problem that this step removes */
    const char *pays;             /* the cost that remains */
    const char *source;           /* where it was first taught */
    const char *file;             /* of its CUDA source */
    const char *block_rule;       /* "power of two", "multiple of 32", "32" */
    uint32_t block_size;          /* default */
    uint32_t elements_per_thread; /* at least, of a block that is full */
    int takes_grid_size;
    int commutative_only;       /* reorders operands */
    int deterministic;          /* same input, same GPU: same bits, floats included */
    int min_compute_capability; /* 10 * major + minor; 0: any supported */
    int is_on_cpu;              /* names how sums are rounded, which the CPU backend does, too */
} gpr_kernel_info;

GPR_API int gpr_kernel_count(void);
/* Row `index` of the catalogue, in course order. GPR_ERROR_VALUE: no such row. */
GPR_API gpr_status gpr_kernel_info_at(int index, gpr_kernel_info *info);
/* Index of the kernel with this name or alias. GPR_ERROR_VALUE: none; the message has near
 * matches. */
GPR_API gpr_status gpr_find_kernel(const char *name, int *index);
/* The kernel that runs for `kernel`. For "auto", or a negative number: "exact" for sums and means
 * of floats whose result is a float, "fast" for all else. Any other kernel: itself. `compute` as in
 * gpr_request. */
GPR_API int gpr_choose_kernel(int kernel, gpr_operator op, gpr_dtype dtype, gpr_dtype compute);
/* Whether the kernel could run on `device` now; if not, the error's message has the remedy. */
GPR_API gpr_status gpr_kernel_available(int index, int device);
/* The CUDA source file of kernel `index`, NUL-terminated, static. NULL: no such kernel. */
GPR_API const char *gpr_kernel_source(int index);
/* Number of source files that programs are made of, and the i-th one's name and text. */
GPR_API int gpr_source_count(void);
GPR_API gpr_status gpr_source_at(int index, const char **name, const char **text);

/* ---------------------------------------------------------------- devices ------------------- */

typedef struct gpr_device_info {
    int ordinal;
    char name[128];
    int compute_capability; /* 10 * major + minor */
    int multiprocessors;
    uint64_t memory_bytes;
    uint64_t l2_bytes;
    int memory_clock_khz;
    int memory_bus_bits;
    char uuid[48];
} gpr_device_info;

/* Number of CUDA devices; 0 with GPR_OK when there is no usable driver. */
GPR_API gpr_status gpr_device_count(int *count);
GPR_API gpr_status gpr_device_info_at(int ordinal, gpr_device_info *info);
/* GPR_OK if CUDA work can run in this process; else why not (GPR_ERROR_DEVICE). */
GPR_API gpr_status gpr_cuda_available(void);
/* Driver and NVRTC versions as 1000 * major + 10 * minor; 0 where there is none. */
GPR_API void gpr_cuda_versions(int *driver, int *nvrtc);
/* Where to look for NVRTC and for CUB's headers before the usual places; NULL forgets. Copied. */
GPR_API gpr_status gpr_set_nvrtc_path(const char *path);
GPR_API gpr_status gpr_set_cccl_path(const char *directory);
/* Instruction set the CPU backend chose ("avx512", "avx2", "baseline"). */
GPR_API const char *gpr_cpu_isa(void);
/* Forces an instruction set for tests and measurements; NULL: the best there is.
 * GPR_ERROR_VALUE: unknown, or not on this machine. */
GPR_API gpr_status gpr_set_cpu_isa(const char *isa);

/* ---------------------------------------------------------------- memory -------------------- */

/* Pinned host memory of the default device, which streams to it without a staging copy. Freed by
 * gpr_free_pinned. */
GPR_API gpr_status gpr_alloc_pinned(uint64_t bytes, void **data);
GPR_API gpr_status gpr_free_pinned(void *data);

/* Device memory for gpr_request.on_device: allocate, fill from the host, free. */
GPR_API gpr_status gpr_alloc_device(int device, uint64_t bytes, void **data);
GPR_API gpr_status gpr_upload(int device, void *destination, const void *source, uint64_t bytes);
GPR_API gpr_status gpr_free_device(int device, void *data);
/* Copies device memory to host memory behind all work on `stream` (as in gpr_request), and waits
 * for the copy. */
GPR_API gpr_status gpr_download(int device, void *stream, void *destination, const void *source,
                                uint64_t bytes);

/* The CUDA device whose memory `data` points to, managed memory included. GPR_ERROR_VALUE: it
 * points to no device's memory. */
GPR_API gpr_status gpr_find_memory(const void *data, int *device);

/* Queues on `stream` a copy from host memory. The caller must not change or free the host memory
 * before the stream has passed the copy. The host waits at most until the driver has copied the
 * bytes to a buffer of its own; it does not wait for up to 64 KiB, or for pinned memory.
 * GPR_ERROR_VALUE: the stream is being captured into a graph, which would read host memory again
 * whenever it is replayed. */
GPR_API gpr_status gpr_queue_upload(int device, void *destination, const void *source,
                                    uint64_t bytes, void *stream);

/* Queues on `stream` the writing of `count` copies of an element to device memory. */
GPR_API gpr_status gpr_fill_device(int device, void *data, gpr_dtype dtype, const void *element,
                                   uint64_t count, void *stream);

/* ---------------------------------------------------------------- streams ------------------- */

/* For callers whose device arrays come from other libraries' streams. A stream is a CUstream, or
 * CUDA's own (void *)1, the legacy default stream, and (void *)2, the calling thread's; NULL is the
 * library's own stream of the device. */

/* The library's own stream of a device, which no default stream waits for. */
GPR_API gpr_status gpr_device_stream(int device, void **stream);
/* Work queued on `then` from now on waits for work queued on `first` before. Nothing waits on the
 * host; under capture it is an edge of the graph. */
GPR_API gpr_status gpr_order_streams(int device, void *first, void *then);

/* A point in a stream's work: whether the device has passed it, and waiting on the host until it
 * has. */
typedef struct gpr_mark gpr_mark;
GPR_API gpr_status gpr_mark_stream(int device, void *stream, gpr_mark **mark);
GPR_API gpr_status gpr_mark_passed(const gpr_mark *mark, int *passed);
GPR_API gpr_status gpr_mark_wait(const gpr_mark *mark);
GPR_API void gpr_mark_destroy(gpr_mark *mark); /* NULL: nothing */

/* ---------------------------------------------------------------- plans --------------------- */

/* Costs of kernels on a GPU, for the model by which a plan of `fast` chooses among the ways to read
 * an array. With other costs it may choose another way, which changes the bits of float sums by
 * kernel `fast`, never those of exact sums. */
typedef struct gpr_plan_costs {
    double bytes_per_ns;        /* of memory, as far as kernels reach it */
    double sm_bytes_per_ns;     /* that a multiprocessor takes in */
    double instructions_per_ns; /* of a thread, on all multiprocessors */
    double load_ns;             /* a round of loads from memory */
    double block_ns;            /* a block's start, until its first load */
    double step_ns;             /* a step of a tree, barriers included */
    double merge_ns;            /* publishing partials and taking a ticket */
    double partial_ns;          /* a round of loads of partials */
} gpr_plan_costs;

enum { GPR_PLAN_COST_COUNT = sizeof(gpr_plan_costs) / sizeof(double) };

/* The name of the i-th member, "bytes_per_ns" and so on; NULL: there is none. */
GPR_API const char *gpr_plan_cost_name(int index);

/* Facts of a GPU that plans depend on. */
typedef struct gpr_device_facts {
    int cc; /* compute capability, 10 * major + minor */
    uint32_t multiprocessors;
    uint32_t threads_per_multiprocessor;
    int slow_float64;           /* few units add float64: exact sums add integers */
    double memory_bytes_per_ns; /* by clock and width; 0: the driver does not report it */
    gpr_plan_costs costs;       /* measured; bytes_per_ns 0: estimated from the facts above */
    uint32_t way; /* of kernel `fast`, for measuring: 1 is the first that the plan considers; 0: the
                     cheapest */
} gpr_device_facts;

/* Costs of a device's plans, and where they come from. */
typedef struct gpr_costs_info {
    gpr_plan_costs costs;
    int is_measured;  /* they come from the file */
    char path[1100];  /* of the file for GPUs of this name, whether it exists or not; "": none */
    char reason[256]; /* why the file is not used; "" if it is */
} gpr_costs_info;

/* Costs that plans for the device use. It is not opened. GPR_ERROR_VALUE, GPR_ERROR_DEVICE. */
GPR_API gpr_status gpr_costs_at(int device, gpr_costs_info *info);
/* Writes measured costs into the cache's folder, for all GPUs of the device's name, and has this
 * process use them. NULL: removes the file; plans use estimates again. Other processes read the
 * file when they open the device. GPR_ERROR_VALUE: a cost that is not positive or not plausible;
 * GPR_ERROR_SYSTEM: there is no cache folder, or it cannot be written to. */
GPR_API gpr_status gpr_store_costs(int device, const gpr_plan_costs *costs);
/* Has this process use costs for a device, without a file; NULL: the file's, or estimates. */
GPR_API gpr_status gpr_use_costs(int device, const gpr_plan_costs *costs);

/* Facts of a device; those of a GPU that is typical of a compute capability. GPR_ERROR_VALUE,
 * GPR_ERROR_DEVICE. */
GPR_API gpr_status gpr_facts_at(int device, gpr_device_facts *facts);
GPR_API gpr_status gpr_typical_facts(int cc, gpr_device_facts *facts);

/* Prices of the ways that kernel `fast` has for a request of a device array, as gpr_device_facts
 * counts them, in nanoseconds: at most `room`; *count is how many there are. Nothing is read from
 * the array, and no GPU is needed. GPR_ERROR_VALUE: an empty array; as gpr_reduce. */
GPR_API gpr_status gpr_price_ways(const gpr_request *request, const gpr_device_facts *facts,
                                  uint32_t room, double *ns, uint32_t *count);

/* ---------------------------------------------------------------- measuring ----------------- */

/* Device time of an on_device request, by events around all its launches: `warmup` untimed runs,
 * then `repeats` timed ones whose milliseconds go to `milliseconds`. Compiling stays outside. If
 * flush_bytes is not 0, that much device memory is written before each timed run, so that L2 holds
 * nothing of the array. */
GPR_API gpr_status gpr_measure(const gpr_request *request, int warmup, int repeats,
                               uint64_t flush_bytes, float *milliseconds);
/* As gpr_measure, by one of the ways of kernel `fast`, counted from 1 in the order of
 * gpr_price_ways. GPR_ERROR_VALUE: an unknown way. */
GPR_API gpr_status gpr_measure_way(const gpr_request *request, uint32_t way, int warmup,
                                   int repeats, uint64_t flush_bytes, float *milliseconds);

/* ---------------------------------------------------------------- kernels of the caller's own */

enum { GPR_MOST_SYMBOLS = 4 };

/* Machine code of a caller's text, with the symbols of its kernels. */
typedef struct gpr_image {
    void *data; /* cubin, or NUL-terminated PTX; malloc'ed */
    uint64_t bytes;
    char *symbols[GPR_MOST_SYMBOLS]; /* malloc'ed, in the order of the entries */
    int symbol_count;
} gpr_image;

/* An image that is loaded on a device. */
typedef struct gpr_loaded_image gpr_loaded_image;

/* One launch of a loaded kernel over blocks of one axis. `arguments` as cuLaunchKernel takes
 * them. */
typedef struct gpr_launch {
    int symbol;
    uint32_t grid, block, shared_bytes;
    void **arguments;
    int cooperative;  /* all blocks are resident at once */
    uint32_t cluster; /* blocks of a cluster, which divides the grid; 0 or 1: there are none */
} gpr_launch;

/* Compiles CUDA C++ with NVRTC for compute capability `cc`; needs no GPU and reads no cache.
 * `name` stands for the text in the compiler's messages; `entries` are name expressions of
 * kernels, `options` of the compiler; with "-dlto" the image is LTO-IR, which nvJitLink makes
 * machine code of. GPR_ERROR_COMPILE with the log; GPR_ERROR_VALUE: no entries or too many;
 * GPR_ERROR_DEVICE. */
GPR_API gpr_status gpr_compile_text(const char *name, const char *text, const char *const *entries,
                                    int entry_count, const char *const *options, int option_count,
                                    int cc, gpr_image *image);
GPR_API void gpr_free_image(gpr_image *image);

/* Loads an image on a device, until gpr_unload_image. No launch may be under way then. If that
 * fails before the driver is asked to unload, the image is still there, and another call can unload
 * it. GPR_ERROR_DEVICE, GPR_ERROR_CUDA, GPR_ERROR_MEMORY. */
GPR_API gpr_status gpr_load_image(int device, const gpr_image *image, gpr_loaded_image **loaded);
GPR_API gpr_status gpr_unload_image(gpr_loaded_image *loaded);

/* Launches kernels one after the other on `stream`, NULL for the device's own, and waits until they
 * have ended, `repeats` times. milliseconds: as many device times of them all, by events around
 * them. If flush_bytes is not 0, that much device memory is written before each time, so that L2
 * holds nothing of their arrays. GPR_ERROR_VALUE: no such kernel, no blocks; GPR_ERROR_CUDA. */
GPR_API gpr_status gpr_run_launches(gpr_loaded_image *loaded, const gpr_launch *launches, int count,
                                    void *stream, uint64_t flush_bytes, int repeats,
                                    float *milliseconds);
/* A place of 8 bytes in a launch's arguments that receives the address of byte `offset` of
 * scratch. */
typedef struct gpr_scratch_pointer {
    void *place;
    uint64_t offset;
} gpr_scratch_pointer;

/* As gpr_run_launches, without the wait, the flush and the time. The caller keeps the image loaded
 * and the arrays allocated until the stream has passed the launches. If scratch_bytes is not 0, the
 * launches share that much device memory, whose address the places of `pointers` receive. The
 * library frees it after the launches; if the stream is being captured, with the graph. After a
 * failure none of them is under way. GPR_ERROR_VALUE, too: a pointer beyond the end of scratch. */
GPR_API gpr_status gpr_queue_launches(gpr_loaded_image *loaded, const gpr_launch *launches,
                                      int count, void *stream, uint64_t scratch_bytes,
                                      const gpr_scratch_pointer *pointers, int pointer_count);

/* ---------------------------------------------------------------- several reductions --------- */

/* Several reductions of a device array in one pass over memory: a plan, a program of its own, a
 * launch. Results have the bits that gpr_reduce gives with kernel "auto". */
enum { GPR_MOST_SEVERAL = 12 };

/* One of the reductions. */
typedef struct gpr_member {
    gpr_operator op;
    int skip_nan;
    int counts_nan; /* not 0: the number of NaN among the elements, as int64; op is not read */
} gpr_member;

/* How the pass is made. No pointers: equal bytes are equal plans. */
typedef struct gpr_several_plan {
    gpr_dtype dtype;
    int32_t count;
    gpr_member members[GPR_MOST_SEVERAL];
    gpr_dtype results[GPR_MOST_SEVERAL]; /* dtypes */
    int32_t outputs[GPR_MOST_SEVERAL];   /* results per row: of minmax 2 */
    uint32_t in_pass;  /* bit i: the pass makes member i; others take calls of their own */
    uint32_t block;    /* threads */
    uint32_t resident; /* threads that a multiprocessor holds at least */
    uint32_t blocks;   /* per row */
    int32_t integer_bins;
    int32_t adds_pairs; /* exact sums are pairs of doubles, not bins */
    uint64_t rows, n;
    int64_t row_step, out_step; /* from row to row, in elements and in results */
    uint64_t partial_words;     /* of 8 bytes: of folds, per block */
    uint64_t limb_words;        /* of an exact sum by bins, per block */
    uint64_t counters;          /* of an exact sum, in tickets, of all rows */
} gpr_several_plan;

/* Plans `count` reductions of a device array. Reads dtype, shape, strides, data (for alignment),
 * reduced, block_size and grid_size of the request. A member is in the pass if rows are runs of
 * memory of 2 KiB or more, elements are real, and either its bits do not depend on how the row is
 * cut, or the pass cuts it as the member's own call would. `pieces`: rows come in pieces, or some
 * at a time, and the caller checks extremes of floats, whose zeros and NaN may be others'.
 * resident: 0 for the plan's own choice. in_pass is 0 where less than two members are left, and
 * where a call of its own would fail. GPR_ERROR_VALUE: no members, or too many. */
GPR_API gpr_status gpr_plan_several(const gpr_request *array, const gpr_member *members, int count,
                                    int pieces, uint32_t resident, const gpr_device_facts *facts,
                                    gpr_several_plan *plan);

/* The program of a plan for compute capability `cc`, from the disk cache or compiled; needs no GPU.
 * *compiled: whether it was compiled. Free the image by gpr_free_image. GPR_ERROR_COMPILE,
 * GPR_ERROR_DEVICE. */
GPR_API gpr_status gpr_compile_several(const gpr_several_plan *plan, int cc, gpr_image *image,
                                       int *compiled);

/* One launch of a plan's program. */
typedef struct gpr_several_launch {
    const void *data;            /* of the array, or of a piece of its only row */
    void *out[GPR_MOST_SEVERAL]; /* of members in the pass: results, on the device */
    double ddof;                 /* of variances */
    uint64_t output_stride;      /* results from a row's first output to its second */
    uint64_t n;                  /* elements of the piece; 0: there are no pieces */
    uint64_t first, total;       /* of the row: index of the piece's first one, and all */
    uint32_t piece, pieces;      /* number of the piece, and of all */
    void *scratch; /* of pieces: gpr_several_scratch bytes, zero before the first; NULL: none */
    void *stream;  /* as in gpr_request */
} gpr_several_launch;

/* Bytes of scratch that a row of so many pieces takes. */
GPR_API uint64_t gpr_several_scratch(const gpr_several_plan *plan, uint32_t pieces);

/* Queues a launch and does not wait; after a failure it is not under way. Pieces are queued in one
 * stream. `loaded` is the program of gpr_compile_several on the device. GPR_ERROR_VALUE: a plan
 * without a pass; pieces of several rows or without scratch. */
GPR_API gpr_status gpr_queue_several(gpr_loaded_image *loaded, const gpr_several_plan *plan,
                                     const gpr_several_launch *launch);

/* Device times of the launch of a whole array, `repeats` of them in milliseconds, by events around
 * each. If flush_bytes is not 0, that much device memory is written before each. GPR_ERROR_VALUE:
 * as gpr_queue_several; a piece. */
GPR_API gpr_status gpr_measure_several(gpr_loaded_image *loaded, const gpr_several_plan *plan,
                                       const gpr_several_launch *launch, uint64_t flush_bytes,
                                       int repeats, float *milliseconds);

/* ---------------------------------------------------------------- custom operators ----------- */

/* The work of an operator of the user's own on the CPU: calls run(context, i, NULL) for i < count
 * of a program that the machine's compiler made. `run` returns 1; 0: no task that has not begun
 * needs to run. A task may run twice, in a child that is forked meanwhile. */
typedef struct gpr_custom_tasks {
    int (*run)(void *, uint64_t, void *);
    void *context;
    uint64_t count;
} gpr_custom_tasks;

enum { GPR_MOST_PASSES = 16 };

/* A pass of a kernel over rows: the first one over elements, later ones over partials. */
typedef struct gpr_kernel_pass {
    uint64_t n;      /* elements in a row */
    uint64_t grid;   /* blocks of all rows */
    uint32_t blocks; /* per row */
} gpr_kernel_pass;

/* How a kernel of the course is applied to rows that follow each other in memory. */
typedef struct gpr_kernel_plan {
    const char *finish;         /* "passes", "atomic", "ticket": kernels.def */
    uint32_t block, per_thread; /* threads; elements that one takes at least */
    uint64_t partials;          /* accumulators of scratch: of the first pass */
    uint64_t more_partials;     /* of the second pass, where there is a third one */
    uint64_t tickets;           /* counters that are zero before and after */
    int pass_count;
    gpr_kernel_pass passes[GPR_MOST_PASSES];
    uint64_t launch_blocks; /* that a launch has at most */
    int cooperative;        /* a launch's blocks must be resident at once, as gpr_launch has it */
    uint32_t cluster;       /* blocks of a cluster; 1: there are none */
} gpr_kernel_plan;

/* Plans `rows` rows of `n` elements, each at least 1; block, grid: 0 for the plan's own choice. The
 * plan depends on no operator. GPR_ERROR_VALUE: a kernel that has several programs ("auto", "fast",
 * "exact"), or a block or grid size that it does not take. GPR_ERROR_KERNEL: the GPU is too old for
 * it. GPR_ERROR_DEVICE. */
GPR_API gpr_status gpr_plan_kernel(int kernel, int device, uint64_t rows, uint64_t n,
                                   uint32_t block, uint32_t grid, gpr_kernel_plan *plan);

/* Runs tasks on the threads of the CPU backend, and returns when all are done. */
GPR_API void gpr_run_custom_tasks(const gpr_custom_tasks *tasks);

/* Machine code of the caller's own in the cache of compiled programs, under a key of the caller's:
 * text that names everything that decides the code. Returns whether there is an undamaged entry;
 * *image is to be freed by gpr_free_image. */
GPR_API int gpr_find_cached_image(const char *key, gpr_image *image);
/* Stores an image if it can. */
GPR_API void gpr_cache_image(const char *key, const gpr_image *image);

/* ---------------------------------------------------------------- compiling ----------------- */

/* Compiles one kernel for an operator, a dtype and compute capability `cc` with NVRTC, bypassing
 * every cache; needs no GPU. The planner has several programs for each: all are compiled if
 * `variant` is -1, else one of them, counted round; other kernels have one. `machine_code_bytes`
 * (may be NULL) receives the size of the machine code. GPR_ERROR_COMPILE with the log if it does
 * not compile. */
GPR_API gpr_status gpr_compile_program(int kernel, gpr_operator op, gpr_dtype dtype,
                                       gpr_dtype compute, uint32_t block_size, int variant, int cc,
                                       uint64_t *machine_code_bytes);

/* Writes the text of the program of gpr_compile_program to `size` bytes at `text`: the text that
 * NVRTC receives beside the kernel files, then one comment line per instance of a template, and one
 * each for the kernel's cover and finish, by their names in kernels.def, and for a launch that is
 * cooperative or in clusters. The kernel stores accumulators, not results. GPR_ERROR_VALUE: the
 * planner or `exact`, which have several programs; `size` is too small. */
GPR_API gpr_status gpr_write_program(int kernel, gpr_operator op, gpr_dtype dtype,
                                     uint32_t block_size, char *text, uint64_t size);

/* As gpr_compile_program, of the kernel of gpr_dot: for arrays of types `a` and `b`, whose common
 * type is `factor`, and a result of type `compute` (GPR_DTYPE_DEFAULT: `factor`). Compiles both
 * programs, for device arrays and for chunks of host arrays. block_size 0: the kernel's default.
 * GPR_ERROR_VALUE, GPR_ERROR_TYPE: as gpr_dot. */
GPR_API gpr_status gpr_compile_dot(gpr_dtype a, gpr_dtype b, gpr_dtype factor, gpr_dtype compute,
                                   uint32_t block_size, int cc, uint64_t *machine_code_bytes);

/* As gpr_compile_dot, of the kernel for rows of device arrays. Reads both arrays' dtypes, factor,
 * compute, products, conjugate, root and block_size of the request. */
GPR_API gpr_status gpr_compile_dot_along(const gpr_dot_request *request, int cc,
                                         uint64_t *machine_code_bytes);

/* Compiles into the disk cache the programs that gpr_reduce will need for a request, on a GPU of
 * these facts; needs no GPU, and reads neither the array nor the mask. A device array whose
 * address is NULL counts as aligned. For a host array it compiles the programs for ordinary and for
 * pinned memory, under the present limits. *compiled: the number of programs that were not cached;
 * 0 for an array without results. Thread-safe. GPR_ERROR_VALUE, GPR_ERROR_TYPE:
 * as gpr_reduce; GPR_ERROR_KERNEL, GPR_ERROR_DEVICE: the GPU is too old for the kernel, or for
 * NVRTC, or there is no NVRTC; GPR_ERROR_COMPILE. */
GPR_API gpr_status gpr_warm(const gpr_request *request, const gpr_device_facts *facts,
                            int *compiled);

typedef struct gpr_cache_info {
    char directory[1024]; /* "" if the cache is off */
    const char *reason;   /* why it is off, or NULL */
    uint64_t entries;
    uint64_t bytes;
    uint64_t limit_bytes;
    uint64_t hits, misses, writes, faults; /* of this process */
} gpr_cache_info;

/* The disk cache of compiled programs: GPUREDUCE_CACHE_DIR (default: XDG_CACHE_HOME or ~/.cache,
 * /gpureduce), GPUREDUCE_CACHE_BYTES (default 256 MiB; 0: off). Its troubles are misses, never
 * errors. */
GPR_API gpr_status gpr_cache_get_info(gpr_cache_info *info);
/* Removes every entry, and forgets programs loaded in this process if `loaded` is not 0. */
GPR_API gpr_status gpr_cache_clear(int loaded);

#ifdef __cplusplus
}
#endif
#endif /* GPUREDUCE_H */
