// title: Too few slots for the warps
// verdict: wrong: bounds
// lesson: 256 threads are 8 warps.

#define THREADS 256

__global__ void reduce(const int *in, int *out, unsigned n)
{
    __shared__ int sums[4];
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    int v = i < n ? in[i] : 0;
    for (int s = 16; s > 0; s /= 2) v += __shfl_down_sync(0xffffffff, v, s);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v; // HERE
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; w++) v += sums[w];
        out[blockIdx.x] = v;
    }
}
