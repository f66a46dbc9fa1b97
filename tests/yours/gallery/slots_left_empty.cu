// title: Threads without elements store nothing
// verdict: wrong: shared unwritten
// lesson: Their slots hold what the block before left there.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    extern __shared__ float s[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    if (i < n) s[tid] = in[i];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (tid < half) s[tid] += s[tid + half]; // HERE
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
