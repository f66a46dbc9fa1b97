// async_copy: grid stride, loads by asynchronous copies to shared memory.
//
// Removed: registers that wait for loads. A load holds its destination register from the moment it
// is issued until the data arrive, so that a thread with many loads in flight needs many registers.
// Here a thread has several vectors in flight and no register for any of them: each goes to a place
// of shared memory of the thread's own, and the thread reads it from there when it has arrived.
//
//   round      0    1    2    3    4          begin: the copy for round i + 3
//   begin    0123   4    5    6    7          wait:  until the copy of round i has arrived
//   fold       0    1    2    3    4          places are used again, round by round
//
// No thread reads another one's places, so no barrier is needed, only the thread's own wait.
//
// Still paid: each element passes through shared memory, one store and one load more than
// shfl_two_pass_vec has. A reduction uses each element once and needs few registers, and enough
// loads are in flight without copies; they pay off where threads share what they load, as in a
// matrix product.
//
// Launch: as shfl_two_pass_vec; compute capability 8.0. A launch's second pass runs the kernel over
// the partials.
//
// Reference: CUDA C++ Programming Guide, asynchronous data copies.
#pragma once

#include "async_copy_groups.cuh"
#include "block.cuh"
#include "runs.cuh"

namespace gpr {

// Vectors in flight per thread; of the largest blocks few enough for 48 KiB of shared memory.
template <unsigned BLOCK> constexpr unsigned copies_in_flight = BLOCK <= 512 ? 4 : 2;

// Adds vectors[rank], vectors[rank + size] and so on below `count`; `in` is the run's first
// element.
template <class Traits, unsigned BLOCK>
GPR_DEVICE void add_copies(ThreadAccumulator<Traits> &accumulator, const typename Traits::In *in,
                           const Vector *vectors, uint64 count, ThreadGroup group)
{
    constexpr unsigned places = copies_in_flight<BLOCK>;
    __shared__ Vector copies[places][BLOCK];
    uint64 begun = group.rank;
    unsigned place = 0;
    const auto begin_next = [&](unsigned at) {
        if (begun < count) begin_copy(&copies[at][threadIdx.x], vectors + begun);
        end_group(); // also where no copy is left: rounds count groups
        begun += group.size;
    };

    for (unsigned at = 0; at < places - 1; at++) begin_next(at);
    for (uint64 i = group.rank; i < count; i += group.size) {
        begin_next((place + places - 1) % places); // the place that the round before has read
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
    uint64 head = row.n, tail = row.n; // vectors lie between them

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
