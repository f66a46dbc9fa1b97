// title: A product, its own operator
// verdict: right, within limits
// lesson: Threads without an element bring 1, not 0.

__global__ void product(const double *in, double *out, unsigned n)
{
    extern __shared__ double p[];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    p[t] = i < n ? in[i] : 1.0;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) p[t] *= p[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = p[0];
}
