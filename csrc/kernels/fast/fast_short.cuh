// fast_short: rows that are contiguous in memory, and so short that a block reads one in a single
// round.
//
// Problem: a small array takes as long as a warp's instructions one after another. fast_stream has
// two hundred of them, most of which find out which row a block serves, how many rounds it reads,
// and whether others share the row.
//
//             row 0             row 1             row 2
//   |        block 0       | block 1          | block 2          |
//    t0 t1 .. t0 t1 .. t0 t1                                        stream_vectors each, at most
//
//   Launch: a block per row, BLOCK a multiple of 32; a row has at most BLOCK * stream_vectors
//   vectors. Where item is a whole vector, rows begin and end at multiples of 16 bytes. Elements
//   are narrower than a vector.
//
// Still paid: a tree and a barrier for each row.
#pragma once

#include "fast_block.cuh"
#include "finalize.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_short(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
           [[maybe_unused]] Scratch<typename Traits::Acc> scratch,
           const __grid_constant__ Layout layout, typename Traits::AllParams params)
{
    using Acc = typename Traits::Acc;
    using Share = StreamShare<Traits, BLOCK>;
    constexpr bool is_whole = item == vector_elements<typename Traits::In>;
    const auto share_of = [&](unsigned block) {
        return Share::of(in, out, layout, only_block_row(rows, block));
    };
    ThreadAccumulator<Traits> accumulator;

    add_short_run<Traits, stream_vectors, BLOCK, is_whole>(
        accumulator, share_of(blockIdx.x).in, 0, static_cast<unsigned>(rows.n), threadIdx.x, BLOCK);
    constexpr bool is_found = accumulation_way<Traits>() == AccumulationWay::INDEXED;
    Acc value;
    if constexpr (is_found) value = find_in_block<Traits, BLOCK>(accumulator);
    else value = block_redux<Traits, BLOCK>(accumulator.finalize());
    unsigned left = 0; // bit 0: the row
    if (threadIdx.x == 0) {
        // What only a result needs is computed here, not before the loads.
        const Share share = share_of(anew(blockIdx.x));
        left = !store_result<Traits>(share.result, value, layout.elements,
                                     params.of_row(layout, share.row.index, 0));
    }
    if constexpr (has_own_accumulator<Traits>)
        Traits::template store_left<BLOCK>(left, layout.elements, scratch,
                                           [&] { return share_of(anew(blockIdx.x)); });
}

} // namespace gpr
