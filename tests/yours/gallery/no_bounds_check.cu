// title: No bounds check
// verdict: wrong: bounds
// lesson: Right for the array of the exercise, whose length is a multiple of the block.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    __shared__ float s[256];
    s[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x]; // HERE
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
