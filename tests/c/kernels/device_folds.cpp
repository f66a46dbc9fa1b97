// The kernels' folds (csrc/kernels/core), compiled for the CPU and called by test_folds.c.
//
// One thread calls them, so atomics are ordinary loads and stores. float32's minimum is one
// instruction of the device there, and the portable expression here.
#include "device_folds.h"

#define __device__
#define __forceinline__ inline
#define __noinline__
#define memcpy __builtin_memcpy
#define GPR_ARCH 900

template <class T> static T atomicAdd(T *address, T value)
{
    const T old = *address;
    *address = old + value;
    return old;
}
template <class T> static T atomicMin(T *address, T value)
{
    const T old = *address;
    if (value < old) *address = value;
    return old;
}
template <class T> static T atomicMax(T *address, T value)
{
    const T old = *address;
    if (value > old) *address = value;
    return old;
}
template <class T> static T atomicAnd(T *address, T value)
{
    const T old = *address;
    *address = old & value;
    return old;
}
template <class T> static T atomicOr(T *address, T value)
{
    const T old = *address;
    *address = old | value;
    return old;
}
template <class T> static T atomicXor(T *address, T value)
{
    const T old = *address;
    *address = old ^ value;
    return old;
}
template <class T> static T atomicCAS(T *address, T expected, T value)
{
    const T old = *address;
    if (old == expected) *address = value;
    return old;
}

#include "accumulators.cuh"
#include "kernel_traits.cuh"

using namespace gpr;

namespace {

template <class T> struct Type { using type = T; };

template <class Number> using AsNumber = Number;

// Numbers of dtypes.def, and folds of folds.def, in the order of their rows.
enum {
#define GPR_DTYPE(ID, ...) DTYPE_##ID,
#include "dtypes.def"
#undef GPR_DTYPE
};
enum {
#define GPR_FOLD(name, ...) FOLD_##name,
#include "folds.def"
#undef GPR_FOLD
};

template <class Fold>
constexpr bool is_of_truths = same<Fold, fold_any> || same<Fold, fold_all> || same<Fold, fold_odd>;
template <class Fold>
constexpr bool is_of_bits =
    same<Fold, fold_bit_and> || same<Fold, fold_bit_or> || same<Fold, fold_bit_xor>;
template <class Fold>
constexpr bool is_of_positions = same<Fold, fold_argmin> || same<Fold, fold_argmax>;

// Whether there are accumulators of numbers of this type.
template <class Fold, class Number> constexpr bool has_number()
{
    if (is_of_truths<Fold>) return same<Number, dt_uint32>;
    if (same<Fold, fold_count>) return same<Number, dt_uint64>;
    if (same<Fold, fold_moments>) return same<Number, dt_float64> || same<Number, dt_complex128>;
    if (is_of_bits<Fold>) return is_integer<Number>;
    if (same<Fold, fold_fmin> || same<Fold, fold_fmax>) return !is_integer<Number>;
    if (same<Fold, fold_sum_count> || is_of_positions<Fold>) return sizeof(Number) >= 8;
    return true;
}

// Whether elements of type Compute become such accumulators.
template <class Fold, class Compute, class Number> constexpr bool has_lift()
{
    if (is_of_truths<Fold> || same<Fold, fold_count>) return true;
    if (same<Fold, fold_moments> && same<Number, dt_float64>) return is_float<Compute>;
    return is_complex<Compute> == is_complex<Number> && is_float<Compute> == is_float<Number>;
}

template <class Fold, class Acc>
constexpr bool has_atomic =
    sizeof(Acc) == 4 || sizeof(Acc) == 8 || same<Fold, fold_sum> || same<Fold, fold_sum_count>;

template <class F> int with_number(int acc, F f)
{
    switch (acc) {
    case DTYPE_INT32: return f(Type<dt_int32>{});
    case DTYPE_UINT32: return f(Type<dt_uint32>{});
    case DTYPE_INT64: return f(Type<dt_int64>{});
    case DTYPE_UINT64: return f(Type<dt_uint64>{});
    case DTYPE_FLOAT32: return f(Type<dt_float32>{});
    case DTYPE_FLOAT64: return f(Type<dt_float64>{});
    case DTYPE_COMPLEX64: return f(Type<dt_complex64>{});
    case DTYPE_COMPLEX128: return f(Type<dt_complex128>{});
    default: return 0;
    }
}

template <class Fold, template <class> class Structure, class F> int with_accumulator(int acc, F f)
{
    return with_number(acc, [&](auto number) {
        using Number = typename decltype(number)::type;
        if constexpr (has_number<Fold, Number>())
            return f(Type<Fold>{}, number, Type<Structure<Number>>{});
        else return 0;
    });
}

#define CASE_OF(name, Structure) \
    case FOLD_##name: return with_accumulator<fold_##name, Structure>(acc, f);
#define CASE_GPR_ACC_NUMBER(name) CASE_OF(name, AsNumber)
#define CASE_GPR_ACC_INDEXED(name) CASE_OF(name, Indexed)
#define CASE_GPR_ACC_MOMENTS(name) CASE_OF(name, Moments)
#define CASE_GPR_ACC_RANGE(name) CASE_OF(name, Range)
#define CASE_GPR_ACC_SUM_COUNT(name) CASE_OF(name, SumCount)
// Exact sums have tests of their own.
#define CASE_GPR_ACC_EXACT(name)
#define CASE_GPR_ACC_EXACT_MOMENTS(name)
#define CASE_GPR_ACC_EXACT_PRODUCTS(name)

template <class F> int with_fold(int fold, int acc, F f)
{
    switch (fold) {
#define GPR_FOLD(name, commutative, idempotent, acc_kind, identity) CASE_##acc_kind(name)
#include "folds.def"
#undef GPR_FOLD
    default: return 0;
    }
}

template <class F> int with_compute(int compute, F f)
{
    switch (compute) {
#define GPR_DTYPE(ID, name, ...) \
    case DTYPE_##ID: return f(Type<dt_##name>{});
#include "dtypes.def"
#undef GPR_DTYPE
    default: return 0;
    }
}

// Calls f(compute dtype, fold, accumulator).
template <class F> int with_lift(int fold, int compute, int acc, F f)
{
    return with_fold(fold, acc, [&](auto its_fold, auto number, auto accumulator) {
        return with_compute(compute, [&](auto dtype) {
            using Fold = typename decltype(its_fold)::type;
            using Compute = typename decltype(dtype)::type;
            using Number = typename decltype(number)::type;
            if constexpr (has_lift<Fold, Compute, Number>())
                return f(dtype, its_fold, accumulator);
            else return 0;
        });
    });
}

template <class T> T read(const void *packed)
{
    T value;
    memcpy(&value, packed, sizeof value);
    return value;
}

template <class T> int write(void *packed, T value)
{
    memcpy(packed, &value, sizeof value);
    return 1;
}

} // namespace

int device_combine(int fold, int acc, const void *a, const void *b, void *result)
{
    return with_fold(fold, acc, [&](auto its_fold, auto, auto accumulator) {
        using Acc = typename decltype(accumulator)::type;
        return write(result, decltype(its_fold)::type::combine(read<Acc>(a), read<Acc>(b)));
    });
}

int device_atomic_combine(int fold, int acc, void *result, const void *b)
{
    return with_fold(fold, acc, [&](auto its_fold, auto, auto accumulator) {
        using Fold = typename decltype(its_fold)::type;
        using Acc = typename decltype(accumulator)::type;
        if constexpr (has_atomic<Fold, Acc>) {
            Acc value = read<Acc>(result);
            atomic_fold(Fold{}, &value, read<Acc>(b));
            return write(result, value);
        } else return 0;
    });
}

int device_identity(int fold, int compute, int acc, void *result)
{
    return with_lift(fold, compute, acc, [&](auto dtype, auto its_fold, auto accumulator) {
        using Compute = typename decltype(dtype)::type;
        using Acc = typename decltype(accumulator)::type;
        return write(result, decltype(its_fold)::type::template identity<Acc, Compute>());
    });
}

int device_lift(int fold, int compute, int acc, const void *element, uint64_t position,
                void *result)
{
    return with_lift(fold, compute, acc, [&](auto dtype, auto its_fold, auto accumulator) {
        using Fold = typename decltype(its_fold)::type;
        using Compute = typename decltype(dtype)::type;
        using Acc = typename decltype(accumulator)::type;
        const Compute x = read<Compute>(element);
        if constexpr (is_positional<Fold>)
            return write(result, Fold::template lift<Acc>(x, position));
        else return write(result, Fold::template lift<Acc>(x));
    });
}
