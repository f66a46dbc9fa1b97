// title: A counter that is never set back
// verdict: wrong: state
// lesson: The first launch is right. In the second no block is the last one.

__device__ unsigned tickets = 0;

__global__ void sum_once(const int *in, int *out, unsigned n)
{
    __shared__ int s[64];
    const unsigned t = threadIdx.x, i = blockIdx.x * 64 + t;

    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned h = 32; h > 0; h >>= 1) {
        if (t < h) s[t] += s[t + h];
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = s[0];
        __threadfence();
        if (atomicAdd(&tickets, 1u) == gridDim.x - 1) {
            __threadfence();
            int total = 0;
            for (unsigned b = 0; b < gridDim.x; b++) total += out[b];
            out[0] = total;
        }
    }
}
