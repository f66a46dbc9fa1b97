// title: A total that is cleared without a barrier
// verdict: wrong: block race
// lesson: Thread 0 clears the word before other threads add to it only if a barrier says so.

__global__ void reduce(const int *in, int *out, unsigned n)
{
    __shared__ int total;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) total = 0;
    if (i < n) atomicAdd(&total, in[i]); // HERE
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, total);
}
