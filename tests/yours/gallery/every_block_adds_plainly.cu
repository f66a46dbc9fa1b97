// title: Every block adds to one result with +=
// verdict: wrong: grid race
// lesson: Read, add and write are three steps; another block comes in between.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    __shared__ float s[64];
    unsigned t = threadIdx.x, i = blockIdx.x * 64 + t;
    if (i == 0) out[0] = 0;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int h = 32; h > 0; h /= 2) {
        if (t < h) s[t] += s[t + h];
        __syncthreads();
    }
    if (t == 0) out[0] += s[0]; // HERE
}
