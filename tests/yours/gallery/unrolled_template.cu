// title: Templated on type and block size, completely unrolled
// verdict: right, within limits
// lesson: The staircase's last step before shuffles, with the warp barriers that its first version lacked. Its last warp reads 32 slots ahead, so a block has 64 threads at least.

template <class T, unsigned int blockSize, bool nIsPow2>
__global__ void reduce6(const T *__restrict__ g_idata, T *__restrict__ g_odata, unsigned int n)
{
    extern __shared__ T sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockSize * 2 + threadIdx.x;
    unsigned int gridSize = blockSize * 2 * gridDim.x;
    T mine = 0;

    while (i < n) {
        mine += g_idata[i];
        if (nIsPow2 || i + blockSize < n) mine += g_idata[i + blockSize];
        i += gridSize;
    }
    sdata[tid] = mine;
    __syncthreads();
    if (blockSize >= 512 && tid < 256) sdata[tid] = mine = mine + sdata[tid + 256];
    __syncthreads();
    if (blockSize >= 256 && tid < 128) sdata[tid] = mine = mine + sdata[tid + 128];
    __syncthreads();
    if (blockSize >= 128 && tid < 64) sdata[tid] = mine = mine + sdata[tid + 64];
    __syncthreads();
    if (tid < 32) {
        mine += sdata[tid + 32];
        for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(0xffffffff, mine, step);
    }
    if (tid == 0) g_odata[blockIdx.x] = mine;
}
