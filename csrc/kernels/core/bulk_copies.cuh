// Bulk copies: one thread asks for a whole tile of global memory, and the GPU's copy engine (the
// Tensor Memory Accelerator) brings it to shared memory. A barrier in shared memory, an mbarrier,
// tells all threads that wait there when the bytes are there (compute capability 9.0).
//
//   mbarrier of one arrival           phase 0            phase 1            phase 2
//   thread 0    expects bytes, copies   |  expects, copies |  expects, copies |
//   copies              bytes arrive ---'     arrive ------'     arrive ------'
//   all threads wait for parity         0                  1                  0
//
// A phase completes when the arrivals that it was initialized with have come and as many bytes as
// arrivals have announced; the next phase begins at once. Threads name a phase by its parity: the
// wait for parity p returns if the current phase has the other parity. So a thread that waits for
// every phase, one after the other, never confuses two of them.
#pragma once

#include "vector.cuh"

namespace gpr {

// 8 bytes of shared memory, which only the functions below may access.
struct alignas(8) Mbarrier { uint64 state; };

#if defined(__CUDA_ARCH__)
// Returns a shared variable's address as instructions for shared memory take it.
GPR_DEVICE unsigned shared_address(const void *shared)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
#endif

// Begins phase 0 of an mbarrier whose phases take `arrivals` each. One thread calls this, then
// publish_mbarriers; a block barrier lets the others use it.
GPR_DEVICE void init_mbarrier(Mbarrier *barrier, unsigned arrivals)
{
#if defined(__CUDA_ARCH__)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
#elif !defined(__CUDACC__)
    gpr_emu_mbarrier_init(&barrier->state, arrivals);
#endif
}

// Lets copies use the mbarriers that this thread has initialized: copies reach shared memory by
// another way (the async proxy) than the thread's stores.
GPR_DEVICE void publish_mbarriers()
{
#if defined(__CUDA_ARCH__)
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#elif !defined(__CUDACC__)
    gpr_emu_mbarrier_publish();
#endif
}

// Arrives: what the thread has done before is done for those who wait for this phase.
GPR_DEVICE void arrive(Mbarrier *barrier)
{
#if defined(__CUDA_ARCH__)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 :
                 : "r"(shared_address(barrier))
                 : "memory");
#elif !defined(__CUDACC__)
    gpr_emu_mbarrier_arrive(&barrier->state, 0);
#endif
}

// Announces `bytes` of copies to the current phase, and arrives.
GPR_DEVICE void arrive_expecting(Mbarrier *barrier, unsigned bytes)
{
#if defined(__CUDA_ARCH__)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
#elif !defined(__CUDACC__)
    gpr_emu_mbarrier_arrive(&barrier->state, bytes);
#endif
}

// Waits until the phase of this parity has completed: the one before the current phase, or the
// current one.
GPR_DEVICE void wait_for_phase(Mbarrier *barrier, unsigned parity)
{
#if defined(__CUDA_ARCH__)
    unsigned is_complete = 0;
    do { // an attempt ends unsuccessfully after a time that the GPU chooses
        asm volatile("{\n"
                     ".reg .pred complete;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, complete;\n"
                     "}"
                     : "=r"(is_complete)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (is_complete == 0);
#elif !defined(__CUDACC__)
    gpr_emu_mbarrier_wait(&barrier->state, parity);
#endif
}

// Begins to copy `bytes` of global to shared memory: both aligned to 16 bytes, `bytes` a multiple
// of 16. Their arrival counts for the current phase of `barrier`; until it has completed no thread
// may access them, and all other accesses to the shared ones must be done.
GPR_DEVICE void begin_bulk_copy(Vector *shared, const Vector *global, unsigned bytes,
                                Mbarrier *barrier)
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(bytes),
                   "r"(shared_address(barrier))
                 : "memory");
#elif !defined(__CUDACC__)
    gpr_emu_bulk_copy(shared, global, bytes, &barrier->state);
#endif
}

} // namespace gpr
