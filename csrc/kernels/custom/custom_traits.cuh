// Kernel traits of an operator of the user's own: with them the kernels of the course, which are
// templates over their traits, fold by it.
//
// An accumulator is a CustomPartial as words. Words have no constructor, so shared memory holds
// them; no padding, so copies of them store all that is read later; and their size is a multiple of
// 4 bytes, which shuffles move.
#pragma once

#include "custom_operator.cuh"
#include "kernel_traits.cuh"
#include "rows.cuh"
#include "vector.cuh"

namespace gpr
{

// Pieces as wide as the partial's alignment, so that the accumulator has the partial's layout.
template <unsigned ALIGNMENT> struct CustomWordOf {
    using type = unsigned;
};
template <> struct CustomWordOf<8> {
    using type = uint64;
};
template <> struct CustomWordOf<16> {
    using type = uint64;
};

struct alignas(CustomPartial) CustomAcc {
    typename CustomWordOf<alignof(CustomPartial)>::type
        word[sizeof(CustomPartial) / sizeof(typename CustomWordOf<alignof(CustomPartial)>::type)];
};
static_assert(sizeof(CustomAcc) == sizeof(CustomPartial), "whole words");

GPR_DEVICE CustomAcc custom_acc(const CustomPartial &value)
{
    CustomAcc acc = bit_copy<CustomAcc>(value);
#if !defined(__CUDA_ARCH__)
    asm("" : "+m"(acc)); // or the compiler leaves out words that are padding
#endif
    return acc;
}

#if defined(GPR_CUSTOM_MASKED_BYTES)
// An element and whether it counts, as the host packs both for kernels that take no mask.
struct GPR_CUSTOM_ALIGNED(GPR_CUSTOM_MASKED_ALIGNMENT) CustomIn {
    unsigned char bytes[GPR_CUSTOM_MASKED_BYTES];
};
GPR_DEVICE CustomElement custom_element_of(const CustomIn &in)
{
    CustomElement element;
    memcpy(&element, in.bytes, sizeof element);
    return element;
}
GPR_DEVICE bool custom_counts_in(const CustomIn &in)
{
    return in.bytes[sizeof(CustomElement)] != 0;
}
#else
using CustomIn = CustomElement;
GPR_DEVICE CustomElement custom_element_of(const CustomIn &in)
{
    return in;
}
GPR_DEVICE bool custom_counts_in(const CustomIn &)
{
    return true;
}
#endif

// What the folds of the registry are told apart by: this one is none of them.
struct CustomFold {};

struct CustomTraits {
    using Fold = CustomFold;
    using In = CustomIn;
    using Compute = CustomIn;
    using Acc = CustomAcc;
    static constexpr bool positional = has_lift_of_index<CustomOp>;
    static constexpr bool skips_nan = false;

    static GPR_DEVICE Acc identity()
    {
        return custom_acc(custom_empty());
    }
    static GPR_DEVICE Acc lift(const In &x, uint64 i)
    {
        CustomPartial value = custom_empty();
        if (custom_counts_in(x)) {
            value.state = custom_lift(custom_number(custom_element_of(x)), i);
            custom_set_count(value, 1);
        }
        return custom_acc(value);
    }
    static GPR_DEVICE Acc combine(Acc a, Acc b)
    {
        return custom_acc(custom_combine(bit_copy<CustomPartial>(a), bit_copy<CustomPartial>(b)));
    }
    // The host refuses kernels that finish by atomics where an accumulator is no word.
    template <class Word> static GPR_DEVICE void atomic_combine(Word *address, const Word &value)
    {
        if constexpr (sizeof(Word) == 4 || sizeof(Word) == 8)
            atomic_fold<CustomTraits, Word>(CustomTraits{}, address, value);
    }

    // A thread's accumulator (thread_accumulator.cuh): elements of vectors keep their indices.
    struct Accumulator {
        Acc value = identity();

        GPR_DEVICE void add(const In &x, uint64 i)
        {
            value = combine(value, lift(x, i));
        }
        template <unsigned VECTORS>
        GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *, uint64 first, uint64 step)
        {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++)
                for (unsigned j = 0; j < vector_elements<In>; j++)
                    add(element<In>(v[k], j), first + k * step + j);
        }
        GPR_DEVICE void renormalize()
        {
        }
        GPR_DEVICE Acc finalize() const
        {
            return value;
        }
    };
};

// Sets counters to zero. Any grid, any block size.
template <class Counter> __global__ void custom_clear(Counter *counters, uint64 count)
{
    const uint64 threads = static_cast<uint64>(gridDim.x) * blockDim.x;
    for (uint64 i = static_cast<uint64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += threads) {
        counters[i] = 0;
    }
}

} // namespace gpr

using First = gpr::CustomTraits;
using Next = gpr::Next<First>;
