// title: i <= n
// verdict: wrong: bounds
// lesson: One element too many, in one thread of all.

__global__ void sum(const int *in, int *out, int n)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i <= n) atomicAdd(out, in[i]); // HERE
}
