// What fast_stream and fast_short share, whose blocks read rows that are runs of memory.
#pragma once

#include "block.cuh"
#include "layout.cuh"
#include "runs.cuh"

namespace gpr {

constexpr unsigned stream_vectors = GPR_STREAM_VECTORS; // in flight per thread

// Finds the extreme of a block's threads, then its position: only threads that hold the extreme
// search their tile for it. All threads must call; thread 0 holds the result.
template <class Traits, unsigned BLOCK>
GPR_DEVICE typename Traits::Acc find_in_block(const ThreadAccumulator<Traits> &accumulator)
{
    using Tile = typename ThreadAccumulator<Traits>::Tile;
    constexpr unsigned warps = BLOCK / warp_lanes;
    __shared__ typename Tile::Acc best_of_warp[warps];
    __shared__ uint64 position;
    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
    typename Tile::Acc best = warp_all_reduce<Tile>(accumulator.best);

    if (lane == 0) best_of_warp[warp] = best;
    if (threadIdx.x == 0) position = GPR_NOWHERE;
    __syncthreads(); // all threads see the best of all warps
    best = warp_all_reduce<Tile>(lane < warps ? best_of_warp[lane] : Tile::identity());
    if (accumulator.first != GPR_NOWHERE && !Traits::Fold::prefers(best, accumulator.best))
        atomicMin(&position, accumulator.position());
    __syncthreads(); // the smallest position is there
    return {element_of<typename Traits::Acc::Number>(best), position};
}

// A thread's share of a block's only row, for traits that add it again (kernel_traits.cuh).
// The block's elements are those of add_whole_vectors, dealt out to its threads otherwise.
template <class Traits, unsigned BLOCK> struct StreamShare {
    using In = typename Traits::In;
    using Out = typename Traits::Out;
    const In *in;
    Row row;
    Out *result;

    // Of row `row`.
    static GPR_DEVICE StreamShare of(const In *in, Out *out, const Layout &layout, const Row &row)
    {
        const RowOffsets start = layout.row_offsets(row.index);
        return {in + start.in, row, out + start.out};
    }
    GPR_DEVICE unsigned blocks() const { return row.blocks; }
    GPR_DEVICE uint64 group() const { return row.index; }
    static GPR_DEVICE unsigned count() { return 1; }
    static GPR_DEVICE unsigned number_of(unsigned) { return 0; } // which thread 0 has
    GPR_DEVICE Out *result_of(unsigned) const { return result; }
    template <class Again> GPR_DEVICE void visit(const Again &again) const
    {
        constexpr unsigned each = vector_elements<In>, wide = BLOCK * stream_vectors;
        if (!again.wants(0)) return;
        const unsigned past =
            static_cast<unsigned>(reinterpret_cast<uint64>(in) % sizeof(Vector) / sizeof(In));
        const uint64 head = smaller_of(past == 0 ? 0 : each - past, row.n);
        const uint64 vectors = (row.n - head) / each, tail = head + vectors * each;
        const uint64 rounds = vectors / (row.blocks * static_cast<uint64>(wide)),
                     round = row.blocks * static_cast<uint64>(wide) * each,
                     step = row.blocks * static_cast<uint64>(BLOCK) * each;

        for (uint64 k = 0; k < rounds; k++)
            add(again, head + k * round + row.block * wide * each, wide * each, tail);
        for (uint64 i = head + rounds * round + row.block * BLOCK * each; i < tail; i += step)
            add(again, i, BLOCK * each, tail);
        if (row.block == 0) add(again, 0, each, head);
        if (row.block == row.blocks - 1) add(again, tail, each, row.n);
    }

private:
    static GPR_DEVICE uint64 smaller_of(uint64 a, uint64 b) { return a < b ? a : b; }
    // Adds elements first to first + count - 1 that are below n.
    template <class Again>
    GPR_CALLED void add(const Again &again, uint64 first, unsigned count, uint64 n) const
    {
        constexpr unsigned under_way = 4;
#pragma unroll 1
        for (unsigned begin = threadIdx.x; begin < count; begin += under_way * BLOCK) {
            In x[under_way];
            unsigned there = 0;
#pragma unroll
            for (unsigned u = 0; u < under_way; u++) { // all loads first
                const unsigned i = begin + u * BLOCK;
                if (i >= count || first + i >= n) continue;
                x[u] = in[first + i];
                there = u + 1;
            }
#pragma unroll
            for (unsigned u = 0; u < under_way; u++) {
                if (u < there) again.add(0, x[u]);
            }
        }
    }
};

} // namespace gpr
