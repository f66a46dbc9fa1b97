// title: One float atomic per warp
// verdict: right, within limits
// lesson: Right, and two runs may differ in the last bits: atomics arrive in any order, and sums of floats round in that order.

__global__ void sum(const float *in, float *out, unsigned n)
{
    float v = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        v += in[i];
    for (int s = 16; s > 0; s /= 2) v += __shfl_xor_sync(0xffffffff, v, s);
    if (threadIdx.x % 32 == 0) atomicAdd(out, v);
}
