// title: Threads without elements store 0 and return
// verdict: right, within limits
// lesson: The barrier waits for the threads that are left. The others would only add zeros.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    extern __shared__ float s[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = 0;
    if (i >= n) return;
    s[tid] = in[i];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (tid < half) s[tid] += s[tid + half];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
