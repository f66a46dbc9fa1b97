// title: No barrier between load and tree
// verdict: wrong: block race
// lesson: Warps may be at the tree while others have yet to store.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    extern __shared__ float sdata[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    sdata[tid] = i < n ? in[i] : 0;
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s]; // HERE
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sdata[0];
}
