// title: Warp shuffles, then one warp over the warps' sums
// verdict: right, within limits
// lesson: The reduction that most courses end with. Any multiple of 32 threads will do.

__inline__ __device__ double warp_sum(double v)
{
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        v += __shfl_down_sync(0xffffffff, v, offset);
    return v;
}

__global__ void device_reduce(const double *in, double *out, int N)
{
    static __shared__ double shared[32];
    int lane = threadIdx.x % warpSize, wid = threadIdx.x / warpSize;
    double sum = 0;

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += blockDim.x * gridDim.x)
        sum += in[i];
    sum = warp_sum(sum);
    if (lane == 0) shared[wid] = sum;
    __syncthreads();
    sum = threadIdx.x < blockDim.x / warpSize ? shared[lane] : 0;
    if (wid == 0) sum = warp_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
