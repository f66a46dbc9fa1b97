// title: The barrier is where the elements are
// verdict: wrong: divergent barrier
// lesson: Threads without elements skip the barrier: a store may be in a branch, a barrier not.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    extern __shared__ float s[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = 0;
    if (i < n) {
        s[tid] = in[i];
        __syncthreads(); // HERE
    }
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (tid < half) s[tid] += s[tid + half];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
