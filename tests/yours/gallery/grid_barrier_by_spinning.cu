// title: A barrier of the grid by hand
// verdict: wrong: hang
// lesson: A block that waits for a block which has no multiprocessor yet waits for ever.

__device__ unsigned arrived = 0;

__global__ void sum(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0;
    for (int s = 16; s > 0; s /= 2) v += __shfl_down_sync(0xffffffff, v, s);
    if (threadIdx.x % 32 == 0) atomicAdd(out, v);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(&arrived, 1u);
        while (atomicAdd(&arrived, 0u) < gridDim.x) { // HERE
        }
    }
    __syncthreads();
}
