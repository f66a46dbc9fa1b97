// title: The last block adds the partials
// verdict: right, within limits
// lesson: One launch: partial, fence, ticket; the block with the last ticket reads what the others fenced, and sets the counter back.

__device__ unsigned int retired = 0;

__global__ void sum_once(const float *in, float *out, unsigned n)
{
    __shared__ float s[128];
    __shared__ bool last;
    const unsigned t = threadIdx.x;
    float v = 0;

    for (unsigned i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) v += in[i];
    s[t] = v;
    __syncthreads();
    for (unsigned h = 64; h > 0; h >>= 1) {
        if (t < h) s[t] += s[t + h];
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(&retired, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        __threadfence();
        float total = 0;
        for (unsigned b = 0; b < gridDim.x; b++) total += out[b];
        out[0] = total;
        retired = 0;
    }
}
