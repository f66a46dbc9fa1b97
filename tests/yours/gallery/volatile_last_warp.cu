// title: The volatile last warp
// verdict: wrong: warp race
// lesson: Right when the slides were written, when the lanes of a warp ran in lockstep. Since compute capability 7.0 they do not.

__device__ void warpReduce(volatile int *sdata, unsigned tid)
{
    sdata[tid] += sdata[tid + 32]; // HERE
    sdata[tid] += sdata[tid + 16];
    sdata[tid] += sdata[tid + 8];
    sdata[tid] += sdata[tid + 4];
    sdata[tid] += sdata[tid + 2];
    sdata[tid] += sdata[tid + 1];
}

__global__ void reduce4(const int *g_idata, int *g_odata, unsigned n)
{
    extern __shared__ int sdata[];
    unsigned tid = threadIdx.x, i = blockIdx.x * (blockDim.x * 2) + threadIdx.x;
    int mine = i < n ? g_idata[i] : 0;
    if (i + blockDim.x < n) mine += g_idata[i + blockDim.x];
    sdata[tid] = mine;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 32; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid < 32) warpReduce(sdata, tid);
    if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}
