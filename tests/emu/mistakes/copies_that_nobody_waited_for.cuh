// The last rounds begin copies of which no round is left to wait for.
// kernel: async_copy
// block: 64
// finds: asynchronous copy whose thread returns without waiting for it
#pragma once

#include "async_copy_groups.cuh"
#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <unsigned BLOCK> constexpr unsigned copies_in_flight = BLOCK <= 512 ? 4 : 2;

template <class Traits, unsigned BLOCK>
GPR_DEVICE void add_copies(ThreadAccumulator<Traits> &accumulator, const typename Traits::In *in,
                           const Vector *vectors, uint64 count, ThreadGroup group)
{
    constexpr unsigned places = copies_in_flight<BLOCK>;
    __shared__ Vector copies[places][BLOCK];
    uint64 begun = group.rank;
    unsigned place = 0;
    const auto begin_next = [&](unsigned at) {
        if (begun < count) begin_copy(&copies[at][threadIdx.x], vectors + begun); // TESTS
        end_group();
        begun += group.size;
    };

    for (unsigned at = 0; at < places - 1; at++) begin_next(at);
    for (uint64 i = group.rank; i < count; i += group.size) {
        begun = begun < count ? begun : i; // copies something in the last rounds, too
        begin_next((place + places - 1) % places);
        wait_for_groups<places - 1>();
        const Vector v[1] = {copies[place][threadIdx.x]};
        accumulator.add_tile(v, in, position_of(vectors + i, in), 0);
        place = (place + 1) % places;
    }
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
async_copy(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
           Scratch<typename Traits::Acc>)
{
    using In = typename Traits::In;
    const Row row = row_of(rows, blockIdx.x);
    const ThreadGroup group = grid_of<BLOCK>(row);
    const In *row_in = in + row.begin;
    ThreadAccumulator<Traits> accumulator;
    uint64 head = row.n, tail = row.n;

    if constexpr (sizeof(Vector) % sizeof(In) == 0) {
        if (reinterpret_cast<uint64>(row_in) % sizeof(In) == 0) {
            const unsigned to_aligned = elements_to_aligned(row_in);
            head = to_aligned < row.n ? to_aligned : row.n;
            const uint64 vectors = (row.n - head) / vector_elements<In>;
            tail = head + vectors * vector_elements<In>;
            add_copies<Traits, BLOCK>(accumulator, row_in,
                                      reinterpret_cast<const Vector *>(row_in + head), vectors,
                                      group);
        }
    }
    for (uint64 i = group.rank; i < head; i += group.size) accumulator.add(row_in[i], i);
    for (uint64 i = tail + group.rank; i < row.n; i += group.size) accumulator.add(row_in[i], i);
    const typename Traits::Acc value = block_reduce<Traits, BLOCK>(accumulator.finalize());
    if (threadIdx.x == 0) out[row.virtual_block] = value;
}

} // namespace gpr
