// title: += into an output that nobody set
// verdict: wrong: output unwritten
// lesson: cudaMalloc does not clear memory.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0;
    for (int s = 16; s > 0; s /= 2) v += __shfl_down_sync(0xffffffff, v, s);
    if (threadIdx.x % 32 == 0) atomicAdd(&out[blockIdx.x], v); // HERE
}
