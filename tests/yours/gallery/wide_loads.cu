// title: Four elements per load
// verdict: right, within limits
// lesson: The tail that fills no float4 is loaded one by one. The array's address must be a multiple of 16.

__global__ void wide(const float *in, float *out, unsigned n)
{
    const float4 *quads = reinterpret_cast<const float4 *>(in);
    const unsigned first = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    float sum = 0;

    for (unsigned q = first; q < n / 4; q += all) {
        const float4 x = quads[q];
        sum += x.x + x.y + x.z + x.w;
    }
    for (unsigned i = n / 4 * 4 + first; i < n; i += all) sum += in[i];
    atomicAdd(out, sum);
}
