// title: A maximum by atomicMax in shared memory
// verdict: right, within limits
// lesson: The identity of a maximum is the smallest number, here INT_MIN.

#include <climits>

__global__ void largest(const int *values, int *result, unsigned n)
{
    __shared__ int best;

    if (threadIdx.x == 0) best = INT_MIN;
    __syncthreads();
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMax(&best, values[i]);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(result, best);
}
