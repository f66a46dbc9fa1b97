// title: The first block clears the result, all add to it
// verdict: wrong: grid race
// lesson: No block is first. Clear the result before the launch.

__global__ void reduce(const int *in, int *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) *out = 0;
    __syncthreads();
    if (i < n) atomicAdd(out, in[i]); // HERE
}
