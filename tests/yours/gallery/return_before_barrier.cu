// title: Threads without elements return
// verdict: wrong: divergent barrier
// lesson: The line that every element-wise kernel begins with does not belong in a reduction.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    extern __shared__ float s[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    if (i >= n) return;
    s[tid] = in[i];
    __syncthreads(); // HERE
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (tid < half) s[tid] += s[tid + half];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
