// title: A homework file with main()
// verdict: right, within limits
// lesson: The host's half of the file is left out. The kernel itself is a sequential tree with a bounds check.

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                              \
    do {                                                         \
        cudaError_t status = (call);                             \
        if (status != cudaSuccess) {                             \
            fprintf(stderr, "%s\n", cudaGetErrorString(status)); \
            exit(1);                                             \
        }                                                        \
    } while (0)

__device__ float take(const float *x, unsigned i, unsigned n)
{
    return i < n ? x[i] : 0.0f;
}

__global__ void block_sums(const float *x, float *sums, unsigned n)
{
    extern __shared__ float cache[];
    const unsigned t = threadIdx.x;

    cache[t] = take(x, blockIdx.x * blockDim.x + t, n);
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half >>= 1) {
        if (t < half) cache[t] += cache[t + half];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = cache[0];
}

int main(int argc, char **argv)
{
    const unsigned n = argc > 1 ? atoi(argv[1]) : 1 << 20, block = 256;
    const unsigned grid = (n + block - 1) / block;
    std::vector<float> x(n, 1.0f), sums(grid);
    float *dx, *dsums, total = 0;

    CHECK(cudaMalloc(&dx, n * sizeof(float)));
    CHECK(cudaMalloc(&dsums, grid * sizeof(float)));
    CHECK(cudaMemcpy(dx, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    block_sums<<<grid, block, block * sizeof(float)>>>(dx, dsums, n);
    CHECK(cudaMemcpy(sums.data(), dsums, grid * sizeof(float), cudaMemcpyDeviceToHost));
    for (float s : sums) total += s;
    printf("%f\n", total);
}
