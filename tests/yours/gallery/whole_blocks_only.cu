// title: Only whole blocks are read
// verdict: wrong: result
// lesson: n / blockDim.x rounds down: the elements of the last block are left out.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    extern __shared__ float s[];
    unsigned tid = threadIdx.x;
    s[tid] = blockIdx.x < n / blockDim.x ? in[blockIdx.x * blockDim.x + tid] : 0;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (tid < half) s[tid] += s[tid + half];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
