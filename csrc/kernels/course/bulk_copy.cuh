// bulk_copy: grid stride, tiles loaded by bulk copies to shared memory.
//
// Removed: address arithmetic and load instructions of all threads. One thread asks for a tile of
// 16 bytes per thread of the block, by one instruction, and the GPU's copy engine (the Tensor
// Memory Accelerator) does the rest. async_copy still has an instruction per thread and vector.
//
//   round     0    1    2    3    4      stage: the tile of round i is in stages[i % 4]
//   begin   0123   4    5    6    7      thread 0: when all warps have read the round before
//   wait      0    1    2    3    4      all threads: full[i % 4], until the tile is there
//   fold      0    1    2    3    4      each thread its vector of the tile
//   arrive    0    1    2    3    4      lane 0 of each warp: at empty[i % 4]
//
// Two mbarriers per stage replace block barriers: `full` completes a phase when the bytes of a tile
// are there, `empty` when all warps have read them. Threads wait for what they need and for nothing
// else: warps may be a round or more apart.
//
// Still paid: shared memory, as in async_copy, and two mbarriers per tile. Bulk copies need
// multiples of 16 bytes at addresses that are multiples of 16, so ordinary loads add the elements
// before the first such address and after the last whole vector.
//
// Launch: as shfl_two_pass_vec, with 256 threads per block by default: a copy has 16 bytes per
// thread, and copies of 1 or 2 KiB are slow where many blocks wait for them. Compute capability
// 9.0. A launch's second pass runs the kernel over the partials.
//
// Reference: CUDA C++ Programming Guide, asynchronous data copies using the Tensor Memory
// Accelerator; PTX ISA, mbarrier and cp.async.bulk.
#pragma once

#include "block.cuh"
#include "bulk_copies.cuh"
#include "runs.cuh"

namespace gpr {

// Tiles in flight per block; of the largest blocks few enough for 48 KiB of shared memory.
template <unsigned BLOCK> constexpr unsigned tile_stages = BLOCK <= 512 ? 4 : 2;

// Adds this block's share of vectors[0 .. count): tiles of BLOCK vectors, with a stride of the
// row's blocks. All threads of the block call this, once. `in` is the run's first element.
template <class Traits, unsigned BLOCK>
GPR_DEVICE void add_tiles(ThreadAccumulator<Traits> &accumulator, const typename Traits::In *in,
                          const Vector *vectors, uint64 count, const Row &row)
{
    constexpr unsigned stages = tile_stages<BLOCK>;
    __shared__ Vector tile[stages][BLOCK];
    __shared__ Mbarrier full[stages], empty[stages];
    const auto first_of = [&](unsigned round) {
        return (row.block + static_cast<uint64>(round) * row.blocks) * BLOCK;
    };
    const auto parity_of = [](unsigned round) { return round / stages % 2; };
    const auto begin_round = [&](unsigned round) {
        const unsigned stage = round % stages;
        const uint64 first = first_of(round);
        if (first >= count) return;
        if (round >= stages) wait_for_phase(&empty[stage], parity_of(round - stages));
        const unsigned bytes = static_cast<unsigned>(
            (count - first < BLOCK ? count - first : BLOCK) * sizeof(Vector));
        arrive_expecting(&full[stage], bytes);
        begin_bulk_copy(tile[stage], vectors + first, bytes, &full[stage]);
    };

    if (threadIdx.x == 0) {
        for (unsigned stage = 0; stage < stages; stage++) {
            init_mbarrier(&full[stage], 1);
            init_mbarrier(&empty[stage], BLOCK / warp_lanes);
        }
        publish_mbarriers();
        for (unsigned round = 0; round < stages - 1; round++) begin_round(round);
    }
    __syncthreads(); // all threads may use the mbarriers
    for (unsigned round = 0; first_of(round) < count; round++) {
        const unsigned stage = round % stages;
        const uint64 i = first_of(round) + threadIdx.x;
        if (threadIdx.x == 0) begin_round(round + stages - 1); // in the stage of the round before
        wait_for_phase(&full[stage], parity_of(round));
        if (i < count) {
            const Vector v[1] = {tile[stage][threadIdx.x]};
            accumulator.add_tile(v, in, position_of(vectors + i, in), 0);
        }
        __syncwarp(); // the warp has read its part
        if (threadIdx.x % warp_lanes == 0) arrive(&empty[stage]);
    }
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
bulk_copy(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
          Scratch<typename Traits::Acc>)
{
    using In = typename Traits::In;
    const Row row = row_of(rows, blockIdx.x);
    const ThreadGroup group = grid_of<BLOCK>(row);
    const In *row_in = in + row.begin;
    ThreadAccumulator<Traits> accumulator;
    uint64 head = row.n, tail = row.n; // vectors lie between them

    if constexpr (sizeof(Vector) % sizeof(In) == 0) {
        if (reinterpret_cast<uint64>(row_in) % sizeof(In) == 0) {
            const unsigned to_aligned = elements_to_aligned(row_in);
            head = to_aligned < row.n ? to_aligned : row.n;
            const uint64 vectors = (row.n - head) / vector_elements<In>;
            tail = head + vectors * vector_elements<In>;
            add_tiles<Traits, BLOCK>(accumulator, row_in,
                                     reinterpret_cast<const Vector *>(row_in + head), vectors, row);
        }
    }
    for (uint64 i = group.rank; i < head; i += group.size) accumulator.add(row_in[i], i);
    for (uint64 i = tail + group.rank; i < row.n; i += group.size) accumulator.add(row_in[i], i);
    const typename Traits::Acc value = block_reduce<Traits, BLOCK>(accumulator.finalize());
    if (threadIdx.x == 0) out[row.virtual_block] = value;
}

} // namespace gpr
