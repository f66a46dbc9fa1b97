// title: Shuffles behind the bounds check
// verdict: wrong: warp mask
// lesson: In the last warp, lanes beyond n are not there to answer.

__global__ void reduce(const int *in, int *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int v = in[i];
        for (int s = 16; s > 0; s /= 2) v += __shfl_down_sync(0xffffffff, v, s); // HERE
        if (threadIdx.x % 32 == 0) atomicAdd(out, v);
    }
}
