// title: A maximum that starts at zero
// verdict: wrong: result
// lesson: Zero is larger than every negative number. Start from the first element, or from minus infinity.

__global__ void largest(const float *in, float *out, unsigned n)
{
    extern __shared__ float m[];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    m[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) m[t] = fmaxf(m[t], m[t + s]);
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = m[0];
}
