// Block reductions: trees in shared memory, and reductions by warps.
//
// Every function here must be called by all BLOCK threads of a block together, unless it names
// fewer.
#pragma once

#include "rows.cuh"
#include "warp.cuh"

namespace gpr {

// ---------------------------------------------------------------- trees in shared memory --------

// Accumulators of shared memory for a tree of BLOCK partials: last_warp_tree reads 64 of them.
template <unsigned BLOCK> constexpr unsigned tree_words = BLOCK < 64 ? 64 : BLOCK;

// One step: combines partial[0 .. S) with partial[S .. 2S).
template <class Traits, unsigned S> GPR_DEVICE void halve(typename Traits::Acc *partial)
{
    if (threadIdx.x < S)
        partial[threadIdx.x] = Traits::combine(partial[threadIdx.x], partial[threadIdx.x + S]);
    __syncthreads(); // the next step reads what this one wrote
}

// The last six steps, which all lanes of the first warp alone call: reduces partial[0 .. 64) to
// partial[0]. All lanes combine in every step; the upper lanes produce values that no lane reads.
template <class Traits> GPR_DEVICE void last_warp_tree(typename Traits::Acc *partial)
{
    const unsigned lane = threadIdx.x;
#pragma unroll
    for (unsigned s = 32; s > 0; s /= 2) {
        const typename Traits::Acc folded = Traits::combine(partial[lane], partial[lane + s]);
        __syncwarp(); // partial[lane] has been read by the lane it is the operand of
        partial[lane] = folded;
        __syncwarp(); // and is there for the next step
    }
}

// Reduces one value per thread with the tree of `unrolled`; thread 0 holds the result. BLOCK is a
// power of two; `partial` is shared memory of tree_words<BLOCK>. A second call in the same kernel
// needs a block barrier before it: the first warp may still be working. Operands are reordered.
template <class Traits, unsigned BLOCK>
GPR_DEVICE typename Traits::Acc unrolled_tree(typename Traits::Acc *partial,
                                              typename Traits::Acc value)
{
    partial[threadIdx.x] = value;
    if constexpr (BLOCK < 64) partial[threadIdx.x + 32] = Traits::identity();
    __syncthreads(); // partials are there
    if constexpr (BLOCK >= 1024) halve<Traits, 512>(partial);
    if constexpr (BLOCK >= 512) halve<Traits, 256>(partial);
    if constexpr (BLOCK >= 256) halve<Traits, 128>(partial);
    if constexpr (BLOCK >= 128) halve<Traits, 64>(partial);
    if (threadIdx.x < warp_lanes) {
        last_warp_tree<Traits>(partial);
        value = partial[0];
    }
    return value;
}

// The tree with neighbours first: reduces one value per thread; only adjacent operands are
// combined, the earlier one on the left. Thread 0 holds the result. `partial` is shared memory of
// BLOCK accumulators, free again afterwards.
template <class Traits, unsigned BLOCK>
GPR_DEVICE typename Traits::Acc neighbour_tree(typename Traits::Acc *partial,
                                               typename Traits::Acc value)
{
    partial[threadIdx.x] = value;
    __syncthreads(); // partials are there
#pragma unroll
    for (unsigned s = 1; s < BLOCK; s *= 2) {
        const unsigned left = 2 * s * threadIdx.x;
        if (left < BLOCK) {
            value = Traits::combine(partial[left], partial[left + s]);
            partial[left] = value;
        }
        __syncthreads(); // the next step, or the next tree, reads or overwrites these words
    }
    return value;
}

// ---------------------------------------------------------------- by warps ----------------------

// Reduces one value per thread; thread 0 holds the result. Operands are reordered. A second call in
// the same kernel needs a block barrier before it: the first warp may still be reading the first
// call's partials.
template <class Traits, unsigned BLOCK>
GPR_DEVICE typename Traits::Acc block_reduce(typename Traits::Acc value)
{
    using Acc = typename Traits::Acc;
    constexpr unsigned warps = BLOCK / warp_lanes;
    static_assert(BLOCK % warp_lanes == 0 && warps <= warp_lanes,
                  "one warp holds the results of a block's warps");

    value = warp_reduce<Traits>(value);
    if constexpr (warps > 1) {
        __shared__ Acc of_warp[warps];
        const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
        if (lane == 0) of_warp[warp] = value;
        __syncthreads(); // the first warp reads what the others wrote
        if (warp == 0)
            value = warp_reduce<Traits>(lane < warps ? of_warp[lane] : Traits::identity());
    }
    return value;
}

// The power of two that `count` lanes of a warp fit.
GPR_DEVICE constexpr unsigned lanes_of(unsigned count)
{
    unsigned lanes = 2;
    while (lanes < count) lanes *= 2;
    return lanes;
}

// block_reduce by the fewest steps that fold, type and GPU have: warps reduce by one instruction
// where there is one, and the first warp has no steps for warps that the block does not have. The
// same promises as block_reduce.
template <class Traits, unsigned BLOCK>
GPR_DEVICE typename Traits::Acc block_redux(typename Traits::Acc value)
{
    using Acc = typename Traits::Acc;
    constexpr unsigned warps = BLOCK / warp_lanes;
    // of whose results shuffles are as fast, in any case
    constexpr unsigned few = has_warp_redux<Traits> ? 4 : warp_lanes;
    static_assert(BLOCK % warp_lanes == 0 && warps <= warp_lanes,
                  "one warp holds the results of a block's warps");

    value = warp_redux<Traits>(value);
    if constexpr (warps > 1) {
        __shared__ Acc of_warp[warps];
        const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
        if (lane == 0) of_warp[warp] = value;
        __syncthreads(); // the first warp reads what the others wrote
        if (warp == 0) {
            value = lane < warps ? of_warp[lane] : Traits::identity();
            if constexpr (warps <= few) value = warp_reduce<Traits, lanes_of(warps)>(value);
            else value = warp_redux<Traits>(value);
        }
    }
    return value;
}

} // namespace gpr
