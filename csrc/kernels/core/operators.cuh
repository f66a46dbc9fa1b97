// Folds: the associative functions that reductions are made of, and their atomic forms.
//
// The registry (folds.def) lists them; shared/folds.h has the expressions that the host evaluates,
// too. A fold is a type with
//   identity<Acc, Compute>()    combine(identity, a) is a, for every a that an element of type
//                               Compute can become
//   lift<Acc>(x)                an element, converted to its compute type, as an accumulator; a
//                               positional fold also gets the element's position in its row
//   combine(a, b)               where a comes before b in the array
// Acc is a built-in number for the folds below. Kernels do not depend on that: they only call
// members of their traits, so a fold over a structure (any type that can be copied as bytes and has
// no constructor, for shared memory) needs no other kernels.
//
// Integers are summed and multiplied unsigned in 64 bits: they wrap, and a sum of signed elements
// is right modulo 2^64.
#pragma once

#include "ordering.cuh"

namespace gpr {

// The identities that the registry lists. No variables: PTX would declare each of them.
#define GPR_FOLD(name, commutes, once, acc_kind, identity) enum { identity_of_##name = identity };
#include "folds.def"
#undef GPR_FOLD

// A fold of elements as they are. Derived folds have the registry's identity and combine().
template <int IDENTITY> struct FoldOfNumbers {
    template <class Acc, class Compute> static GPR_DEVICE Acc identity()
    {
        if constexpr (IDENTITY == GPR_IDENTITY_ONE) return element_of<Acc>(1);
        else if constexpr (IDENTITY == GPR_IDENTITY_ALL_BITS) return ~Acc(0);
        else if constexpr (IDENTITY == GPR_IDENTITY_LARGEST) return largest_of<Compute, Acc>();
        else if constexpr (IDENTITY == GPR_IDENTITY_SMALLEST) return smallest_of<Compute, Acc>();
        else if constexpr (IDENTITY == GPR_IDENTITY_NAN) {
            const Acc infinity = largest_of<Compute, Acc>();
            return infinity - infinity;
        } else {
            static_assert(IDENTITY == GPR_IDENTITY_ZERO, "a number of this kind is not known");
            return element_of<Acc>(0);
        }
    }
    template <class Acc, class Compute> static GPR_DEVICE Acc lift(Compute x)
    {
        return element_of<Acc>(value_of(x));
    }
};

// A fold of whether elements are not zero, as 1 or 0.
template <int IDENTITY> struct FoldOfTruths : FoldOfNumbers<IDENTITY> {
    template <class Acc, class Compute> static GPR_DEVICE Acc lift(Compute x)
    {
        return Acc(is_true(value_of(x)));
    }
};

struct fold_sum : FoldOfNumbers<identity_of_sum> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return GPR_COMBINE_sum(a, b);
    }
};

struct fold_prod : FoldOfNumbers<identity_of_prod> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        if constexpr (is_complex<Acc>) { // one times an infinity would have a NaN part
            if (a.re == 1 && a.im == 0) return b;
            if (b.re == 1 && b.im == 0) return a;
        }
        return GPR_COMBINE_prod(a, b);
    }
};

// NaN wins: the result is NaN if any element is (smaller_of and larger_of in ordering.cuh). Among
// zeros of different sign either may be the result.
struct fold_min : FoldOfNumbers<identity_of_min> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b) { return smaller_of(a, b); }
};

struct fold_max : FoldOfNumbers<identity_of_max> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b) { return larger_of(a, b); }
};

// Minimum and maximum that skip NaN. The result is NaN where all elements are, so the identity is
// NaN.
struct fold_fmin : FoldOfNumbers<identity_of_fmin> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return smaller_number(a, b);
    }
};

struct fold_fmax : FoldOfNumbers<identity_of_fmax> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b) { return larger_number(a, b); }
};

// Accumulators of any and all are 0 or 1.
struct fold_any : FoldOfTruths<identity_of_any> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return GPR_COMBINE_any(a, b);
    }
};

struct fold_all : FoldOfTruths<identity_of_all> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return GPR_COMBINE_all(a, b);
    }
};

// logical_xor: whether an odd number of elements is true.
struct fold_odd : FoldOfTruths<identity_of_odd> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return GPR_COMBINE_odd(a, b);
    }
};

// How many elements are not zero.
struct fold_count : FoldOfTruths<identity_of_count> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return GPR_COMBINE_count(a, b);
    }
};

// Bits of integers. Accumulators are at least as wide as elements; their upper bits are not part of
// the result.
struct fold_bit_and : FoldOfNumbers<identity_of_bit_and> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return GPR_COMBINE_bit_and(a, b);
    }
};

struct fold_bit_or : FoldOfNumbers<identity_of_bit_or> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return GPR_COMBINE_bit_or(a, b);
    }
};

struct fold_bit_xor : FoldOfNumbers<identity_of_bit_xor> {
    template <class Acc> static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return GPR_COMBINE_bit_xor(a, b);
    }
};

// ---------------------------------------------------------------- atomics -----------------------

// atomic_fold(fold, address, value): *address = combine(*address, value) as one step, in global or
// shared memory.
//
// This overload serves folds and types without an atomic instruction. It computes the new value
// from the expected content of the word and swaps it in if the word still has that content;
// otherwise the swap returns the content to retry with. The first expected content is a guess: a
// plain load would race with other threads' swaps.
template <class Fold, class Acc> GPR_DEVICE void atomic_fold(Fold, Acc *address, Acc value)
{
    Word<Acc> *word = reinterpret_cast<Word<Acc> *>(address);
    Word<Acc> held = 0, believed;
    do {
        believed = held;
        held = atomicCAS(word, believed,
                         bit_copy<Word<Acc>>(Fold::combine(bit_copy<Acc>(believed), value)));
    } while (held != believed);
}

GPR_DEVICE void atomic_fold(fold_sum, dt_uint64 *address, dt_uint64 value)
{
    atomicAdd(address, value);
}
GPR_DEVICE void atomic_fold(fold_sum, dt_float32 *address, dt_float32 value)
{
    atomicAdd(address, value);
}
GPR_DEVICE void atomic_fold(fold_sum, dt_float64 *address, dt_float64 value)
{
    atomicAdd(address, value);
}

GPR_DEVICE void atomic_fold(fold_min, dt_int32 *address, dt_int32 value)
{
    atomicMin(address, value);
}
GPR_DEVICE void atomic_fold(fold_min, dt_uint32 *address, dt_uint32 value)
{
    atomicMin(address, value);
}
GPR_DEVICE void atomic_fold(fold_min, dt_int64 *address, dt_int64 value)
{
    atomicMin(address, value);
}
GPR_DEVICE void atomic_fold(fold_min, dt_uint64 *address, dt_uint64 value)
{
    atomicMin(address, value);
}

GPR_DEVICE void atomic_fold(fold_max, dt_int32 *address, dt_int32 value)
{
    atomicMax(address, value);
}
GPR_DEVICE void atomic_fold(fold_max, dt_uint32 *address, dt_uint32 value)
{
    atomicMax(address, value);
}
GPR_DEVICE void atomic_fold(fold_max, dt_int64 *address, dt_int64 value)
{
    atomicMax(address, value);
}
GPR_DEVICE void atomic_fold(fold_max, dt_uint64 *address, dt_uint64 value)
{
    atomicMax(address, value);
}

GPR_DEVICE void atomic_fold(fold_any, dt_uint32 *address, dt_uint32 value)
{
    atomicOr(address, value);
}
GPR_DEVICE void atomic_fold(fold_all, dt_uint32 *address, dt_uint32 value)
{
    atomicAnd(address, value);
}
GPR_DEVICE void atomic_fold(fold_odd, dt_uint32 *address, dt_uint32 value)
{
    atomicXor(address, value);
}
GPR_DEVICE void atomic_fold(fold_count, dt_uint64 *address, dt_uint64 value)
{
    atomicAdd(address, value);
}

template <class Acc> GPR_DEVICE void atomic_fold(fold_bit_and, Acc *address, Acc value)
{
    atomicAnd(address, value);
}
template <class Acc> GPR_DEVICE void atomic_fold(fold_bit_or, Acc *address, Acc value)
{
    atomicOr(address, value);
}
template <class Acc> GPR_DEVICE void atomic_fold(fold_bit_xor, Acc *address, Acc value)
{
    atomicXor(address, value);
}

// The parts of a complex sum are added separately. No thread sees one part without the other:
// outputs are read after all additions.
GPR_DEVICE void atomic_fold(fold_sum, dt_complex64 *address, dt_complex64 value)
{
    atomicAdd(&address->re, value.re);
    atomicAdd(&address->im, value.im);
}
GPR_DEVICE void atomic_fold(fold_sum, dt_complex128 *address, dt_complex128 value)
{
    atomicAdd(&address->re, value.re);
    atomicAdd(&address->im, value.im);
}

// Floats by integer instructions. As signed integers, positive floats sort correctly and above all
// negative ones; as unsigned integers, negative floats sort in reverse and above all positive ones.
// So a positive value uses the signed instruction, a negative one the opposite unsigned
// instruction, and the two give the same result in any order. A NaN is stored as the bit pattern
// that neither instruction replaces.
template <class Signed, class Float> GPR_DEVICE void atomic_smallest(Float *address, Float value)
{
    const Word<Float> bits = value != value ? ~Word<Float>(0) : bit_copy<Word<Float>>(value);
    if (static_cast<Signed>(bits) >= 0)
        atomicMin(reinterpret_cast<Signed *>(address), static_cast<Signed>(bits));
    else atomicMax(reinterpret_cast<Word<Float> *>(address), bits);
}

template <class Signed, class Float> GPR_DEVICE void atomic_largest(Float *address, Float value)
{
    const Word<Float> bits = value != value ? ~Word<Float>(0) >> 1 : bit_copy<Word<Float>>(value);
    if (static_cast<Signed>(bits) >= 0)
        atomicMax(reinterpret_cast<Signed *>(address), static_cast<Signed>(bits));
    else atomicMin(reinterpret_cast<Word<Float> *>(address), bits);
}

GPR_DEVICE void atomic_fold(fold_min, dt_float32 *address, dt_float32 value)
{
    atomic_smallest<dt_int32>(address, value);
}
GPR_DEVICE void atomic_fold(fold_min, dt_float64 *address, dt_float64 value)
{
    atomic_smallest<dt_int64>(address, value);
}
GPR_DEVICE void atomic_fold(fold_max, dt_float32 *address, dt_float32 value)
{
    atomic_largest<dt_int32>(address, value);
}
GPR_DEVICE void atomic_fold(fold_max, dt_float64 *address, dt_float64 value)
{
    atomic_largest<dt_int64>(address, value);
}

} // namespace gpr
