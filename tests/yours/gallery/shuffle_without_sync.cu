// title: Shuffles of old tutorials
// verdict: refused: GPUs of compute capability 7.0 and newer have no __shfl_down
// lesson: The instruction needs a mask of the lanes that take part.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0;
    for (int s = 16; s > 0; s /= 2) v += __shfl_down(v, s); // HERE
    if (threadIdx.x % 32 == 0) atomicAdd(out, v);
}
