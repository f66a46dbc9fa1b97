/* Starts: `initial` of an array of the host, which its results begin with. Extremes, sums, products
 * and bits take numbers that NumPy converts without a word; rules in Python take all others. */
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "lib/base/convert.h"
#include "lib/base/integers.h"
#include "lib/base/threads.h"
#include "python/glue.h"

/* ---------------------------------------------------------------- reading -------------------- */

/* Whether a narrower float type holds a start as it is, 0, a normal number or an infinity: then its
 * bits are the epilogue's integer. */
static int read_bits(gpr_dtype dtype, glue_epilogue *epilogue)
{
    const int fraction = glue_dtype_rows[dtype].fraction,
              bias = (1 << (glue_dtype_rows[dtype].exponent - 1)) - 1,
              double_fraction = glue_dtype_rows[GPR_FLOAT64].fraction,
              double_bias = DBL_MAX_EXP - 1, below = double_fraction - fraction;
    uint64_t bits;

    memcpy(&bits, &epilogue->number, sizeof bits);
    const uint64_t sign = bits >> 63, magnitude = bits & INT64_MAX;
    const int64_t exponent = (int64_t)(magnitude >> double_fraction) - double_bias,
                  infinite = (int64_t)(2 * bias + 1) << fraction;

    epilogue->integer = (int64_t)(sign << (fraction + glue_dtype_rows[dtype].exponent));
    if (magnitude == 0) return 1;
    if (isinf(epilogue->number)) {
        epilogue->integer |= infinite;
        return 1;
    }
    if (magnitude << (64 - below) != 0 || exponent < 1 - bias || exponent > bias) return 0;
    epilogue->integer |=
        (int64_t)((magnitude >> below) - ((uint64_t)(double_bias - bias) << fraction));
    return 1;
}

typedef enum number_kind { NO_NUMBER, INTEGER, REAL } number_kind;

/* The kind of a number of Python's or NumPy's, which is then in *epilogue. */
static number_kind read_scalar(PyObject *initial, glue_epilogue *epilogue)
{
    int overflows = 0;

    if (PyFloat_Check(initial) || PyArray_IsScalar(initial, Float) ||
        PyArray_IsScalar(initial, Half)) {
        epilogue->number = PyFloat_AsDouble(initial);
        return REAL;
    }
    if (!PyLong_Check(initial) &&
        (!PyArray_IsScalar(initial, Integer) || PyArray_IsScalar(initial, Timedelta)))
        return NO_NUMBER;
    epilogue->integer = PyLong_AsLongLongAndOverflow(initial, &overflows);
    epilogue->number = (double)epilogue->integer;
    return overflows == 0 ? INTEGER : NO_NUMBER;
}

/* Whether NumPy converts a number to `dtype` without a word; then it is in *epilogue. */
static int read_number(PyObject *initial, gpr_dtype dtype, glue_epilogue *epilogue)
{
    const gpr_kind kind = glue_dtype_rows[dtype].kind;
    const number_kind given = read_scalar(initial, epilogue);

    if (given == NO_NUMBER) return 0;
    switch (dtype) {
    case GPR_FLOAT16:
    case GPR_BFLOAT16: return read_bits(dtype, epilogue);
    case GPR_FLOAT32:
    case GPR_COMPLEX64: return fabs(epilogue->number) <= FLT_MAX || isinf(epilogue->number);
    case GPR_FLOAT64:
    case GPR_COMPLEX128: return !isnan(epilogue->number);
    default: break;
    }
    if (given != INTEGER) return 0;
    if (kind == GPR_KIND_SIGNED) {
        const int64_t most = INT64_MAX >> (64 - 8 * gpr_dtype_bytes(dtype));
        return epilogue->integer <= most && epilogue->integer >= -most - 1;
    }
    if (kind == GPR_KIND_UNSIGNED) {
        const uint64_t most = UINT64_MAX >> (64 - 8 * gpr_dtype_bytes(dtype));
        return epilogue->integer >= 0 && (uint64_t)epilogue->integer <= most;
    }
    epilogue->integer = epilogue->integer != 0;
    return 1;
}

static int is_named(PyObject *kernel, const char *name)
{
    return PyUnicode_CompareWithASCIIString(kernel, name) == 0;
}

/* Whether a start is added to an exact sum, or multiplied by a product in double precision, before
 * the result is rounded: other kernels compute in the result's type, as their names promise. */
static int is_rounded_once(gpr_operator op, PyObject *kernel)
{
    return is_named(kernel, "auto") || is_named(kernel, op == GPR_OP_SUM ? "exact" : "fast");
}

static int read_start(gpr_operator op, gpr_dtype element, PyObject *initial, PyObject *kernel,
                      glue_epilogue *epilogue)
{
    const gpr_kind kind = glue_dtype_rows[element].kind;

    switch (op) {
    case GPR_OP_MIN:
    case GPR_OP_MAX: return read_number(initial, element, epilogue);
    case GPR_OP_BITWISE_AND:
    case GPR_OP_BITWISE_OR:
    case GPR_OP_BITWISE_XOR:
        return (kind == GPR_KIND_SIGNED || kind == GPR_KIND_UNSIGNED) &&
               read_number(initial, element, epilogue);
    case GPR_OP_SUM:
    case GPR_OP_PROD: break;
    default: return 0;
    }
    if (kind == GPR_KIND_UNSIGNED) return read_number(initial, GPR_UINT64, epilogue);
    if (!glue_is_inexact(element)) return read_number(initial, GPR_INT64, epilogue);
    if (glue_dtype_rows[element].kind == GPR_KIND_FLOAT && is_rounded_once(op, kernel)) {
        epilogue->is_wide = 1;
        epilogue->rounded = element;
    }
    if (!read_number(initial, element, epilogue) || isinf(epilogue->number)) return 0;
    if (element == GPR_FLOAT32) epilogue->number = (float)epilogue->number;
    /* -0.0 is a start of its own: a sum of nothing else is -0.0, too. */
    return op == GPR_OP_PROD || epilogue->number != 0 || !signbit(epilogue->number);
}

int glue_read_start(gpr_operator op, gpr_dtype element, PyObject *initial, PyObject *kernel,
                    glue_epilogue *epilogue)
{
    epilogue->has_start = read_start(op, element, initial, kernel, epilogue);
    return epilogue->has_start;
}

/* ---------------------------------------------------------------- folding -------------------- */

#define FOLD_EACH(fold)                    \
    for (npy_intp i = 0; i < count; i++) { \
        const number x = folded[i];        \
        folded[i] = (number)(fold);        \
    }
/* Integers wrap, as NumPy's do. The operator is chosen once: compilers make vectors of a loop. */
#define DEFINE_FOLD_START_INTEGER(name, c_type)                                                  \
    static void fold_start_##name(gpr_operator op, const glue_epilogue *epilogue, void *results, \
                                  npy_intp count)                                                \
    {                                                                                            \
        typedef c_type number;                                                                   \
        const number start = (number)epilogue->integer;                                          \
        number *folded = results;                                                                \
                                                                                                 \
        switch (op) {                                                                            \
        case GPR_OP_MAX: FOLD_EACH(x < start ? start : x) break;                                 \
        case GPR_OP_MIN: FOLD_EACH(x > start ? start : x) break;                                 \
        case GPR_OP_BITWISE_AND: FOLD_EACH(x & start) break;                                     \
        case GPR_OP_BITWISE_OR: FOLD_EACH(x | start) break;                                      \
        case GPR_OP_BITWISE_XOR: FOLD_EACH(x ^ start) break;                                     \
        case GPR_OP_PROD: FOLD_EACH((uint64_t)x * (uint64_t)start) break;                        \
        default: FOLD_EACH((uint64_t)x + (uint64_t)start) break;                                 \
        }                                                                                        \
    }
/* NaN stay, unless the start takes the place of rows of which nothing else is left. */
#define DEFINE_FOLD_START_FLOAT(name, c_type)                                                    \
    static void fold_start_##name(gpr_operator op, const glue_epilogue *epilogue, void *results, \
                                  npy_intp count)                                                \
    {                                                                                            \
        typedef c_type number;                                                                   \
        const number start = (number)epilogue->number;                                           \
        number *folded = results;                                                                \
                                                                                                 \
        if (op == GPR_OP_MAX && epilogue->skips_nan) {                                           \
            FOLD_EACH(x >= start ? x : start)                                                    \
        } else if (op == GPR_OP_MAX) {                                                           \
            FOLD_EACH(x < start ? start : x)                                                     \
        } else if (epilogue->skips_nan) {                                                        \
            FOLD_EACH(x <= start ? x : start)                                                    \
        } else {                                                                                 \
            FOLD_EACH(x > start ? start : x)                                                     \
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
#define OF_GPR_KIND_BOOL_1(INTEGER, FLOAT, ID, name, c_type) INTEGER(ID, name, c_type)
#define OF_GPR_KIND_SIGNED_1 OF_GPR_KIND_BOOL_1
#define OF_GPR_KIND_SIGNED_2 OF_GPR_KIND_BOOL_1
#define OF_GPR_KIND_SIGNED_4 OF_GPR_KIND_BOOL_1
#define OF_GPR_KIND_SIGNED_8 OF_GPR_KIND_BOOL_1
#define OF_GPR_KIND_UNSIGNED_1 OF_GPR_KIND_BOOL_1
#define OF_GPR_KIND_UNSIGNED_2 OF_GPR_KIND_BOOL_1
#define OF_GPR_KIND_UNSIGNED_4 OF_GPR_KIND_BOOL_1
#define OF_GPR_KIND_UNSIGNED_8 OF_GPR_KIND_BOOL_1
#define OF_GPR_KIND_FLOAT_2(...)
#define OF_GPR_KIND_FLOAT_4(INTEGER, FLOAT, ID, name, c_type) FLOAT(ID, name, c_type)
#define OF_GPR_KIND_FLOAT_8 OF_GPR_KIND_FLOAT_4
#define OF_GPR_KIND_COMPLEX_8(...)
#define OF_GPR_KIND_COMPLEX_16(...)

#define DEFINE_INTEGER(ID, name, c_type) DEFINE_FOLD_START_INTEGER(name, c_type)
#define DEFINE_FLOAT(ID, name, c_type) DEFINE_FOLD_START_FLOAT(name, c_type)
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    OF_##kind##_##bytes(DEFINE_INTEGER, DEFINE_FLOAT, ID, name, c_type)
#include "registry/dtypes.def"
#undef GPR_DTYPE
DEFINE_FOLD_START_BITS(float16, 0x7c00)
DEFINE_FOLD_START_BITS(bfloat16, 0x7f80)
DEFINE_FOLD_START_PAIR(complex64, float)
DEFINE_FOLD_START_PAIR(complex128, double)

/* Whether a number is a double with all its bits. */
static int is_normal(double re, double im)
{
    const double size = im != 0 ? hypot(re, im) : fabs(re);

    return size >= DBL_MIN && size <= DBL_MAX;
}

/* Whether a start may lead a result back to numbers, so that rules in Python have it: an infinite
 * sum, and a product that is no normal double. On the CPU NaN stay, unless the other part is
 * infinite: sums of what is narrower than a double, and products, do not leave the range on their
 * way. A sum of doubles may have met both infinities there, unless it is exact, and wide. */
static int may_lead_back(gpr_operator op, const glue_epilogue *epilogue, int is_narrow, double re,
                         double im)
{
    const int is_nan = isnan(re) || isnan(im), is_infinite = isinf(re) || isinf(im);

    if (op != GPR_OP_SUM)
        return !is_normal(re, im) && !(is_nan && !is_infinite && epilogue->on_cpu);
    if (is_nan) return !epilogue->is_wide && !(is_narrow && epilogue->on_cpu);
    return is_infinite;
}

#define DEFINE_ACCUMULATE(name, part, parts)                                                     \
    static int accumulate_start_##name(gpr_operator op, const glue_epilogue *epilogue,           \
                                       part *results, npy_intp count)                            \
    {                                                                                            \
        const part start = (part)epilogue->number;                                               \
        int has_others = 0;                                                                      \
                                                                                                 \
        for (npy_intp i = 0; i < count; i++, results += (parts)) {                               \
            const part re = results[0], im = (parts) > 1 ? results[(parts) - 1] : 0;             \
            has_others |= may_lead_back(op, epilogue, sizeof(part) < sizeof(double), (double)re, \
                                        (double)im);                                             \
            results[0] = op == GPR_OP_SUM ? re + start : re * start - im * 0;                    \
            if ((parts) > 1)                                                                     \
                results[(parts) - 1] = op == GPR_OP_SUM ? im + 0 : re * 0 + im * start;          \
        }                                                                                        \
        return has_others;                                                                       \
    }
DEFINE_ACCUMULATE(float32, float, 1)
DEFINE_ACCUMULATE(float64, double, 1)
DEFINE_ACCUMULATE(complex64, float, 2)
DEFINE_ACCUMULATE(complex128, double, 2)

/* Halves are added and multiplied as doubles, which lose nothing, and rounded. */
static int accumulate_start_halves(gpr_operator op, gpr_dtype dtype, const glue_epilogue *epilogue,
                                   uint16_t *results, npy_intp count)
{
    const int is_bfloat = dtype == GPR_BFLOAT16;
    int has_others = 0;

    for (npy_intp i = 0; i < count; i++) {
        const double x = is_bfloat ? (double)gpr_bfloat_to_float(results[i])
                                   : (double)gpr_half_to_float(results[i]),
                     made = op == GPR_OP_SUM ? x + epilogue->number : x * epilogue->number;

        has_others |= may_lead_back(op, epilogue, 1, x, 0);
        results[i] = is_bfloat ? gpr_double_to_bfloat(made) : gpr_double_to_half(made);
    }
    return has_others;
}

/* Folds the start into some results; whether rules in Python have some of them. */
static int fold_into(gpr_operator op, gpr_dtype dtype, const glue_epilogue *epilogue, void *results,
                     npy_intp count)
{
    const int accumulates = op == GPR_OP_SUM || op == GPR_OP_PROD;

    switch (accumulates ? dtype : GPR_BOOL) {
    case GPR_FLOAT16:
    case GPR_BFLOAT16: return accumulate_start_halves(op, dtype, epilogue, results, count);
    case GPR_FLOAT32: return accumulate_start_float32(op, epilogue, results, count);
    case GPR_FLOAT64: return accumulate_start_float64(op, epilogue, results, count);
    case GPR_COMPLEX64: return accumulate_start_complex64(op, epilogue, results, count);
    case GPR_COMPLEX128: return accumulate_start_complex128(op, epilogue, results, count);
    default: break;
    }
    switch (dtype) {
#define CASE(ID, name, c_type) CASE_FOLD_START(ID, name)
#define GPR_DTYPE(ID, name, bytes, kind, c_type, ...) \
    OF_##kind##_##bytes(CASE, CASE, ID, name, c_type)
#include "registry/dtypes.def"
#undef GPR_DTYPE
        CASE_FOLD_START(FLOAT16, float16)
        CASE_FOLD_START(BFLOAT16, bfloat16)
        CASE_FOLD_START(COMPLEX64, complex64)
        CASE_FOLD_START(COMPLEX128, complex128)
    default: break; /* there are no others */
    }
    return 0;
}

/* Results that threads share. */
typedef struct shared_fold {
    gpr_operator op;
    gpr_dtype dtype;
    const glue_epilogue *epilogue;
    char *results;
    uint64_t count;
    atomic_int has_others;
} shared_fold;

enum { RESULTS_OF_A_TASK = 1 << 15 };

static int fold_task(void *context, uint64_t index, void *memory)
{
    shared_fold *fold = context;
    const uint64_t first = index * RESULTS_OF_A_TASK,
                   count = gpr_smaller(fold->count - first, RESULTS_OF_A_TASK);
    char *results = fold->results + first * gpr_dtype_bytes(fold->dtype);

    (void)memory;
    if (fold_into(fold->op, fold->dtype, fold->epilogue, results, (npy_intp)count))
        atomic_store_explicit(&fold->has_others, 1, memory_order_relaxed);
    return 1;
}

void glue_fold_start(gpr_operator op, gpr_dtype dtype, glue_epilogue *epilogue, void *results,
                     npy_intp count)
{
    const gpr_run *run = gpr_last_run();
    shared_fold fold = {.op = op,
                        .dtype = dtype,
                        .epilogue = epilogue,
                        .results = results,
                        .count = (uint64_t)count};

    epilogue->on_cpu = run != NULL && run->device == GPR_DEVICE_CPU;
    if (count < 4 * RESULTS_OF_A_TASK) {
        epilogue->has_others |= fold_into(op, dtype, epilogue, results, count);
        return;
    }
    (void)gpr_parallel_for(gpr_divide_up(fold.count, RESULTS_OF_A_TASK), fold_task, &fold, NULL);
    epilogue->has_others |= fold.has_others;
}
