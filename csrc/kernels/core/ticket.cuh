// Tickets: how the last block of a row learns that it is the last.
//
// Each block of a row makes what it found visible to the whole device, then takes a ticket: one
// atomic add on the row's counter. Blocks finish in any order, and whichever takes the last ticket
// combines what all of them found.
//
//   block 0   store partial   fence   ticket 1
//   block 2   store partial   fence   ticket 2
//   block 1   store partial   fence   ticket 3: the last   fence   load all partials
//
// The first fence orders a block's stores before its ticket; the second one orders the last block's
// loads behind the last ticket. Without either a block may read partials from before they were
// written. On a GPU the atomic itself releases and acquires: two fences for all memory would take
// longer than a small array's whole reduction.
#pragma once

#include "rows.cuh"

namespace gpr {

// Adds 1 to a counter and returns its value before. A thread that reads the new value also sees
// what the block stored; the caller sees what all blocks stored that added before it.
GPR_DEVICE unsigned count_arrival(unsigned *counter)
{
#if defined(__CUDA_ARCH__)
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    return before;
#else
    __threadfence(); // a thread that reads the new value also sees the block's stores
    const unsigned before = atomicAdd(counter, 1u);
    __threadfence(); // the thread with the last ticket sees the stores of all blocks
    return before;
#endif
}

// Takes a ticket of the row, and returns whether it was the last one. One thread per block calls,
// after its own stores, or after a block barrier that follows all threads' stores. The last block's
// caller may then load what every block stored, and the counter is zero again for the next launch.
GPR_DEVICE bool take_ticket(unsigned *ticket, unsigned blocks)
{
    const bool is_last = count_arrival(ticket) == blocks - 1;
    if (is_last) *ticket = 0; // no other block of the row reads it again
    return is_last;
}

// Publishes this block's partial and returns in all threads whether the block is the row's last
// one. If it is, all threads may load all partials of the row. All threads must call; thread 0
// holds the partial. A block barrier is passed. `blocks` is 2 or more.
template <class Partial>
GPR_DEVICE bool is_last_block(Partial *place, const Partial &partial, unsigned *ticket,
                              unsigned blocks)
{
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        *place = partial;
        is_last = take_ticket(ticket, blocks);
    }
    __syncthreads(); // all threads see what thread 0 sees
    return is_last;
}
template <class Acc>
GPR_DEVICE bool is_last_block(const Row &row, const Scratch<Acc> &scratch, const Acc &partial)
{
    return is_last_block(scratch.partials() + row.virtual_block, partial,
                         scratch.tickets + row.index, row.blocks);
}

// Returns in all threads whether all other blocks of the row have called this before. What threads
// stored to global memory before they called, the threads of the last block may load. All threads
// must call. Block barriers are passed.
GPR_DEVICE bool is_last_to_arrive(unsigned *ticket, unsigned blocks)
{
    __shared__ bool is_last;
    __syncthreads(); // all threads have stored
    if (threadIdx.x == 0) is_last = take_ticket(ticket, blocks);
    __syncthreads(); // all threads see what thread 0 sees
    return is_last;
}

} // namespace gpr
