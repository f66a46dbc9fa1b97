// title: A full mask in half a warp
// verdict: wrong: warp mask
// lesson: The mask promises 32 lanes; 16 come.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    float v = i < n ? in[i] : 0;
    v += __shfl_down_sync(0xffffffff, v, 16);
    if (lane < 16)
        for (int s = 8; s > 0; s /= 2) v += __shfl_down_sync(0xffffffff, v, s); // HERE
    if (lane == 0) atomicAdd(out, v);
}
