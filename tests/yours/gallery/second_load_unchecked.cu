// title: First add during load, second load unchecked
// verdict: wrong: bounds
// lesson: The check of i is not the check of i + blockDim.x.

__global__ void reduce3(const float *g_idata, float *g_odata, unsigned n)
{
    extern __shared__ float sdata[];
    unsigned tid = threadIdx.x, i = blockIdx.x * (blockDim.x * 2) + threadIdx.x;
    sdata[tid] = i < n ? g_idata[i] + g_idata[i + blockDim.x] : 0; // HERE
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}
