// title: Shuffles by the lanes that have elements
// verdict: right, within limits
// lesson: A shuffle from a lane without an element has an undefined value, which is not added.

__global__ void reduce(const float *in, float *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    float v = i < n ? in[i] : 0;
    unsigned mask = __ballot_sync(0xffffffff, i < n);
    if (i < n) {
        for (int s = 16; s > 0; s /= 2) {
            float other = __shfl_down_sync(mask, v, s);
            if (lane + s < __popc(mask)) v += other;
        }
        if (lane == 0) atomicAdd(out, v);
    }
}
