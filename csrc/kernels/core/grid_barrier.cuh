// A barrier of the blocks that serve a row, by a counter in global memory.
//
// A thread of each block adds 1 when the block arrives and reads the counter until all blocks have;
// then it adds 1 again, and the last one to leave sets the counter to zero for the next launch.
//
//   block 0   store   arrive: 1   wait ......   leave: 5   load what blocks have stored
//   block 1   store   arrive: 3   leave: 4
//   block 2   store   arrive: 2   wait ......   leave: 6: the last, sets 0
//
// A block that waits keeps its place on a multiprocessor: blocks that have no place yet would never
// come. All blocks of the launch must be resident at once, which the driver promises of a
// cooperative launch only.
#pragma once

#include "ticket.cuh"

namespace gpr {

// Blocks that a multiprocessor holds at once, at least: the second argument of __launch_bounds__.
template <unsigned BLOCK> constexpr unsigned cooperative_blocks = gpr_cooperative_blocks(BLOCK);

// Waits until the counter has reached `least`. One thread calls; it may then load what other blocks
// stored before they counted.
GPR_DEVICE void wait_until(unsigned *counter, unsigned least)
{
#ifdef __CUDACC__
    unsigned now;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while (now < least);
#else
    unsigned now;
    while ((now = atomicAdd(counter, 0u)) < least) gpr_emu_wait_for_change(counter, now);
    __threadfence(); // the thread sees the stores of the blocks that it has waited for
#endif
}

// Waits until `blocks` blocks have called this with the same counter, which is zero before and
// after. What threads of any of them stored to global memory before, all their threads may load
// afterwards. All threads must call. Block barriers are passed.
GPR_DEVICE void grid_barrier(unsigned *counter, unsigned blocks)
{
    __syncthreads(); // all threads have stored
    if (threadIdx.x == 0) {
        count_arrival(counter);
        wait_until(counter, blocks);
        const bool is_last = count_arrival(counter) == 2 * blocks - 1;
        if (is_last) *counter = 0; // no other block reads it again
    }
    __syncthreads(); // all threads see what thread 0 sees
}

} // namespace gpr
