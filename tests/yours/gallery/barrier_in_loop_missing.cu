// title: No barrier between the steps of the tree
// verdict: wrong: block race
// lesson: It is right on many GPUs on many days: the warps of a small block happen to keep step.

#define BLOCK 256

__global__ void reduce(const int *in, int *out, unsigned n)
{
    __shared__ int s[BLOCK];
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned half = BLOCK / 2; half > 0; half /= 2)
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half]; // HERE
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
