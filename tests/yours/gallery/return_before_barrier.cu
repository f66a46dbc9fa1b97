// title: Threads without elements return
// verdict: wrong: shared unwritten
// lesson: The barrier waits for the threads that are left. The slots of the others stay empty.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    extern __shared__ float s[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    if (i >= n) return;
    s[tid] = in[i];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (tid < half) s[tid] += s[tid + half]; // HERE
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
