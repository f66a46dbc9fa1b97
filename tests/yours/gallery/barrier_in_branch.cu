// title: A barrier inside the branch
// verdict: wrong: divergent barrier
// lesson: The threads that do not add never come to it.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    extern __shared__ float s[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (tid < half) {
            s[tid] += s[tid + half];
            __syncthreads(); // HERE
        }
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
