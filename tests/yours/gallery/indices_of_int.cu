// title: int n and int i
// verdict: right, within limits
// lesson: Right until an array has 2^31 elements: then i is negative and the bounds check passes.

__global__ void count_all(const unsigned char *in, unsigned long long *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, (unsigned long long)in[i]);
}
