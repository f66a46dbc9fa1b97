// Clusters: blocks that run at the same time on neighbouring multiprocessors and may access each
// other's shared memory, which is then called distributed (compute capability 9.0).
//
//   rank 0           rank 1           rank 2           rank 3          blocks of a cluster
//   partial <------- partial <------- partial <------- partial         shared variables
//
// A block's shared memory is there from the block's beginning to its end. So a cluster barrier
// lies before the first access to another block's variable, and another one between the last access
// and the end of the variable's block. A launch without clusters has clusters of one block.
#pragma once

#include "vector.cuh"

namespace gpr {

// Returns the number of blocks in this block's cluster.
GPR_DEVICE unsigned cluster_blocks()
{
#ifdef __CUDACC__
    unsigned count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return count;
#else
    return gpr_emu_cluster_blocks();
#endif
}

// Returns which of them this block is.
GPR_DEVICE unsigned cluster_rank()
{
#ifdef __CUDACC__
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#else
    return gpr_emu_cluster_rank();
#endif
}

// Waits until all threads of all blocks of the cluster have called. What any of them stored before,
// to shared or to global memory, all of them may load afterwards.
GPR_DEVICE void cluster_barrier()
{
#ifdef __CUDACC__
    asm volatile("barrier.cluster.arrive.release;" : : : "memory");
    asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
#else
    gpr_emu_cluster_barrier();
#endif
}

// Returns where the shared variable `mine` of this block is in the block of another rank.
template <class T> GPR_DEVICE const T *shared_of(const T *mine, unsigned rank)
{
#ifdef __CUDACC__
    const T *theirs;
    asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
    return theirs;
#else
    return static_cast<const T *>(gpr_emu_shared_of(mine, rank));
#endif
}

} // namespace gpr
