// Asynchronous copies: bytes go from global to shared memory without passing through registers,
// while the thread that started them goes on (compute capability 8.0).
//
//   begin_copy   begin_copy   end_group   begin_copy   end_group   wait_for_groups<1>
//   `-------- group 0 ------------------' `--- group 1 --------'   group 0 has arrived
//
// Groups arrive in the order in which they ended. A thread waits for its own copies; a block
// barrier after the wait lets other threads read them, too.
#pragma once

#include "vector.cuh"

namespace gpr {

// Begins to copy 16 aligned bytes of global memory to 16 aligned bytes of shared memory, which no
// thread may access until the copy's thread has waited. The bytes are not allocated in L1.
GPR_DEVICE void begin_copy(Vector *shared, const Vector *global)
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "l"(global)
                 : "memory");
#elif !defined(__CUDACC__)
    __pipeline_memcpy_async(shared, global, sizeof(Vector));
#endif
}

// Ends the thread's group of copies; it may be empty.
GPR_DEVICE void end_group()
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.commit_group;" : : : "memory");
#elif !defined(__CUDACC__)
    __pipeline_commit();
#endif
}

// Waits until all of the thread's groups but the NEWEST last ones have arrived.
template <unsigned NEWEST> GPR_DEVICE void wait_for_groups()
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_group %0;" : : "n"(NEWEST) : "memory");
#elif !defined(__CUDACC__)
    __pipeline_wait_prior(NEWEST);
#endif
}

} // namespace gpr
