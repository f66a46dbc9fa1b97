// title: All threads of a block add to one shared word with +=
// verdict: wrong: one word
// lesson: No barrier orders threads at one line: add by atomicAdd, or by a tree.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    __shared__ float total;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (i < n) total += in[i]; // HERE
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}
