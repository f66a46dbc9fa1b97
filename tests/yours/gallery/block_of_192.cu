// title: A block that is no power of two
// verdict: wrong: result
// lesson: Halving 192 gives 96, 48, 24, 12, 6, 3, 1: at 3 a slot is left out.

const int threads = 192;

__global__ void reduce(const int *in, int *out, unsigned n)
{
    __shared__ int s[threads];
    unsigned i = blockIdx.x * threads + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int half = threads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
