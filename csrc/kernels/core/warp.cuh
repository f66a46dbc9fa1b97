// Warp reductions: 32 lanes exchange registers by shuffles, or reduce them by one instruction,
// without shared memory and without a block barrier.
//
//   delta = 4    lane 0 += lane 4    lane 1 += lane 5    lane 2 += lane 6    lane 3 += lane 7
//   delta = 2    lane 0 += lane 2    lane 1 += lane 3
//   delta = 1    lane 0 += lane 1
//
// Every function here must be called by all 32 lanes of a warp together.
#pragma once

#include "kernel_traits.cuh"
#include "tuning.h"

namespace gpr {

constexpr unsigned warp_lanes = GPR_WARP_LANES;
constexpr unsigned all_lanes = 0xffffffffu;

// ---------------------------------------------------------------- shuffles ----------------------

// An accumulator as 32-bit words, the unit of shuffles.
template <class T> struct Words {
    static_assert(sizeof(T) % 4 == 0, "shuffles move whole words");
    unsigned word[sizeof(T) / 4];
};

// Returns the value of the lane `delta` above, within groups of `width` lanes; lanes without such a
// lane get their own value.
template <class T> GPR_DEVICE T shuffle_down(T value, unsigned delta, unsigned width = warp_lanes)
{
    Words<T> words = bit_copy<Words<T>>(value);
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 4; i++) {
        words.word[i] = __shfl_down_sync(all_lanes, words.word[i], delta, width);
    }
    return bit_copy<T>(words);
}

// Returns the value of the lane whose number differs in the bits of `mask`.
template <class T> GPR_DEVICE T shuffle_xor(T value, unsigned mask)
{
    Words<T> words = bit_copy<Words<T>>(value);
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 4; i++) {
        words.word[i] = __shfl_xor_sync(all_lanes, words.word[i], mask);
    }
    return bit_copy<T>(words);
}

// Returns the value of the lane below; lane 0 gets its own value.
template <class T> GPR_DEVICE T shuffle_up(T value)
{
    Words<T> words = bit_copy<Words<T>>(value);
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 4; i++)
        words.word[i] = __shfl_up_sync(all_lanes, words.word[i], 1);
    return bit_copy<T>(words);
}

// Returns the value of one lane to all lanes.
template <class T> GPR_DEVICE T shuffle_from(T value, int lane)
{
    Words<T> words = bit_copy<Words<T>>(value);
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / 4; i++)
        words.word[i] = __shfl_sync(all_lanes, words.word[i], lane);
    return bit_copy<T>(words);
}

// Reduces each group of LANES neighbouring lanes (a power of two). The first lane of a group holds
// its result, the others hold partial results. Operands are reordered: the upper half is combined
// with the lower half.
template <class Traits, unsigned LANES = warp_lanes>
GPR_DEVICE typename Traits::Acc warp_reduce(typename Traits::Acc value)
{
    if constexpr (has_quick_reduction<Traits>) {
        typename Traits::Acc values[1] = {value};
        if (Traits::template try_reduce<LANES>(values)) return values[0];
    }
#pragma unroll
    for (unsigned delta = LANES / 2; delta > 0; delta /= 2) {
        value = Traits::combine(value, shuffle_down(value, delta, LANES));
    }
    return value;
}

// The butterfly of shfl_xor.cuh: every lane of a group of LANES holds the group's result, and all
// the same bits of it.
template <class Traits, unsigned LANES = warp_lanes>
GPR_DEVICE typename Traits::Acc warp_all_reduce(typename Traits::Acc value)
{
    using Acc = typename Traits::Acc;
#pragma unroll
    for (unsigned mask = LANES / 2; mask > 0; mask /= 2) {
        const Acc other = shuffle_xor(value, mask);
        value = (threadIdx.x & mask) == 0 ? Traits::combine(value, other)
                                          : Traits::combine(other, value);
    }
    return value;
}

// warp_reduce for several values per lane at once: shuffles of different values overlap.
template <class Traits, unsigned LANES, unsigned VALUES>
GPR_DEVICE void warp_reduce_all(typename Traits::Acc (&value)[VALUES])
{
    if constexpr (has_quick_reduction<Traits>) {
        if (Traits::template try_reduce<LANES>(value)) return;
    }
#pragma unroll
    for (unsigned delta = LANES / 2; delta > 0; delta /= 2) {
        typename Traits::Acc other[VALUES];
#pragma unroll
        for (unsigned k = 0; k < VALUES; k++) other[k] = shuffle_down(value[k], delta, LANES);
#pragma unroll
        for (unsigned k = 0; k < VALUES; k++) value[k] = Traits::combine(value[k], other[k]);
    }
}

// ---------------------------------------------------------------- redux -------------------------

// Whether the GPU reduces 32 bits over a warp by one instruction (compute capability 8.0).
#if GPR_ARCH >= 800
#define GPR_HAS_REDUX 1
#else
#define GPR_HAS_REDUX 0
#endif

// warp_redux(fold, value) overloads, best first: one instruction; a few; the shuffles above for the
// rest. All lanes hold the result, except from the last, where only lane 0 does.
#if GPR_HAS_REDUX

GPR_DEVICE unsigned redux(fold_any, unsigned value) { return __reduce_or_sync(all_lanes, value); }
GPR_DEVICE unsigned redux(fold_all, unsigned value) { return __reduce_and_sync(all_lanes, value); }
GPR_DEVICE int redux(fold_min, int value) { return __reduce_min_sync(all_lanes, value); }
GPR_DEVICE int redux(fold_max, int value) { return __reduce_max_sync(all_lanes, value); }
GPR_DEVICE unsigned redux(fold_min, unsigned value) { return __reduce_min_sync(all_lanes, value); }
GPR_DEVICE unsigned redux(fold_max, unsigned value) { return __reduce_max_sync(all_lanes, value); }

// A sum of 32 pieces of 27 bits fits a word, so a 64-bit sum is three of those: bits 0-26, 27-53
// and 54-63. The last one may wrap only where the sum itself wraps.
GPR_DEVICE uint64 redux(fold_sum, uint64 value)
{
    constexpr unsigned piece = (1u << 27) - 1;
    const uint64 low = __reduce_add_sync(all_lanes, static_cast<unsigned>(value) & piece);
    const uint64 middle = __reduce_add_sync(all_lanes, static_cast<unsigned>(value >> 27) & piece);
    const uint64 high = __reduce_add_sync(all_lanes, static_cast<unsigned>(value >> 54));
    return low + (middle << 27) + (high << 54);
}

GPR_DEVICE uint64 redux(fold_count, uint64 value) { return redux(fold_sum{}, value); }
GPR_DEVICE unsigned redux(fold_odd, unsigned value) { return __reduce_xor_sync(all_lanes, value); }

// 64 bits are reduced as two words.
GPR_DEVICE unsigned redux(fold_bit_and, unsigned value)
{
    return __reduce_and_sync(all_lanes, value);
}
GPR_DEVICE unsigned redux(fold_bit_or, unsigned value)
{
    return __reduce_or_sync(all_lanes, value);
}
GPR_DEVICE unsigned redux(fold_bit_xor, unsigned value)
{
    return __reduce_xor_sync(all_lanes, value);
}
template <class Fold> GPR_DEVICE uint64 redux(Fold fold, uint64 value)
{
    const uint64 upper = redux(fold, static_cast<unsigned>(value >> 32));
    return upper << 32 | redux(fold, static_cast<unsigned>(value));
}

// 64 bits in two steps: first the upper words, then the lower words of the lanes that hold the best
// upper word.
template <class Fold, class Upper>
GPR_DEVICE uint64 redux_in_two(Fold fold, uint64 value, unsigned loser)
{
    const Upper upper = static_cast<Upper>(value >> 32);
    const Upper best = redux(fold, upper);
    const unsigned lower = redux(fold, upper == best ? static_cast<unsigned>(value) : loser);
    return static_cast<uint64>(static_cast<unsigned>(best)) << 32 | lower;
}

GPR_DEVICE uint64 redux(fold_min f, uint64 value)
{
    return redux_in_two<fold_min, unsigned>(f, value, ~0u);
}
GPR_DEVICE uint64 redux(fold_max f, uint64 value)
{
    return redux_in_two<fold_max, unsigned>(f, value, 0u);
}
GPR_DEVICE long long redux(fold_min f, long long value)
{
    return static_cast<long long>(redux_in_two<fold_min, int>(f, static_cast<uint64>(value), ~0u));
}
GPR_DEVICE long long redux(fold_max f, long long value)
{
    return static_cast<long long>(redux_in_two<fold_max, int>(f, static_cast<uint64>(value), 0u));
}

// Floats by integers that sort alike. The smallest and the largest key are those of NaNs: a NaN
// gets the key that wins.
template <class Float> GPR_DEVICE Float redux_ordered(fold_min f, Float value)
{
    return from_ordered<Float>(redux(f, value != value ? Word<Float>(0) : to_ordered(value)));
}
template <class Float> GPR_DEVICE Float redux_ordered(fold_max f, Float value)
{
    return from_ordered<Float>(redux(f, value != value ? ~Word<Float>(0) : to_ordered(value)));
}
GPR_DEVICE float redux(fold_min f, float value) { return redux_ordered(f, value); }
GPR_DEVICE float redux(fold_max f, float value) { return redux_ordered(f, value); }
GPR_DEVICE double redux(fold_min f, double value) { return redux_ordered(f, value); }
GPR_DEVICE double redux(fold_max f, double value) { return redux_ordered(f, value); }

template <class Fold, class Acc>
constexpr bool has_redux =
    (same<Fold, fold_sum> && same<Acc, uint64>) || (same<Fold, fold_min> && !is_complex<Acc>) ||
    (same<Fold, fold_max> && !is_complex<Acc>) || same<Fold, fold_any> || same<Fold, fold_all> ||
    same<Fold, fold_odd> || same<Fold, fold_count> || same<Fold, fold_bit_and> ||
    same<Fold, fold_bit_or> || same<Fold, fold_bit_xor>;

#endif

// Returns the largest value of a warp to all lanes.
GPR_DEVICE unsigned warp_max(unsigned value)
{
#if GPR_HAS_REDUX
    return __reduce_max_sync(all_lanes, value);
#else
#pragma unroll
    for (unsigned mask = warp_lanes / 2; mask > 0; mask /= 2) {
        const unsigned other = shuffle_xor(value, mask);
        if (other > value) value = other;
    }
    return value;
#endif
}

// Returns the smallest value of a warp to all lanes.
GPR_DEVICE unsigned warp_min(unsigned value) { return ~warp_max(~value); }

// Returns the bits that are set in any lane to all lanes.
GPR_DEVICE unsigned warp_or(unsigned value)
{
#if GPR_HAS_REDUX
    return __reduce_or_sync(all_lanes, value);
#else
#pragma unroll
    for (unsigned mask = warp_lanes / 2; mask > 0; mask /= 2) value |= shuffle_xor(value, mask);
    return value;
#endif
}

// Whether the GPU has instructions that reduce such a fold and type over a warp.
#if GPR_HAS_REDUX
template <class Traits>
constexpr bool has_warp_redux = has_redux<typename Traits::Fold, typename Traits::Acc>;
#else
template <class Traits> constexpr bool has_warp_redux = false;
#endif

// Reduces a warp by them, otherwise by shuffles; lane 0 holds the result.
template <class Traits> GPR_DEVICE typename Traits::Acc warp_redux(typename Traits::Acc value)
{
    if constexpr (has_warp_redux<Traits>) return redux(typename Traits::Fold{}, value);
    else return warp_reduce<Traits>(value);
}

} // namespace gpr
