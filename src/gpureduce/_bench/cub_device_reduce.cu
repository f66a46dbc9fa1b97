// NVIDIA CUB's own cub::DeviceReduce, compiled ahead of time by nvcc: the library to beat, as its users call it.
//
//     nvcc -O3 -std=c++17 -arch=native -shared -Xcompiler -fPIC cub_device_reduce.cu -o cub_device_reduce.so
//
// cub_measure times `repeats` reductions of n elements in device memory with events and returns a CUDA error code.
#include <cub/device/device_reduce.cuh>
#include <cstdint>
#include <cstring>

namespace {

template <class T, class Out> struct Widen {
    __host__ __device__ Out operator()(T x) const { return static_cast<Out>(x); }
};

struct Measurement {
    int warmup, repeats;
    std::uint64_t flush_bytes;
    float *milliseconds;
};

template <class Launch> cudaError_t measure(Launch launch, const Measurement &m)
{
    cudaEvent_t start{}, stop{};
    void *flush = nullptr;
    cudaError_t error = cudaEventCreate(&start);
    if (error == cudaSuccess) error = cudaEventCreate(&stop);
    if (error == cudaSuccess && m.flush_bytes > 0) error = cudaMalloc(&flush, m.flush_bytes);
    for (int i = 0; i < m.warmup + m.repeats && error == cudaSuccess; i++) {
        if (flush != nullptr) error = cudaMemsetAsync(flush, i, m.flush_bytes);
        if (error == cudaSuccess) error = cudaEventRecord(start);
        if (error == cudaSuccess) error = launch();
        if (error == cudaSuccess) error = cudaEventRecord(stop);
        if (error == cudaSuccess) error = cudaEventSynchronize(stop);
        float ms = 0;
        if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, start, stop);
        if (i >= m.warmup) m.milliseconds[i - m.warmup] = ms;
    }
    cudaFree(flush);
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    return error;
}

// Asks CUB for its scratch, then times `call(scratch, bytes)`.
template <class Call> cudaError_t with_scratch(Call call, const Measurement &m)
{
    void *scratch = nullptr;
    std::size_t bytes = 0;
    cudaError_t error = call(nullptr, bytes);
    if (error == cudaSuccess) error = cudaMalloc(&scratch, bytes);
    if (error == cudaSuccess) error = measure([&] { return call(scratch, bytes); }, m);
    cudaFree(scratch);
    return error;
}

// Out is the accumulator of NumPy's result type: int64 for a sum of int32.
template <class T, class Out>
cudaError_t reduce(const char *op, const void *data, std::uint64_t n, void *result, const Measurement &m)
{
    const T *in = static_cast<const T *>(data);
    Out *out = nullptr;
    cudaError_t error = cudaMalloc(&out, sizeof(Out));
    if (error != cudaSuccess) return error;
    const auto count = static_cast<std::int64_t>(n);
    if (std::strcmp(op, "sum") == 0) {
        error = with_scratch([&](void *s, std::size_t &b) {
            return cub::DeviceReduce::TransformReduce(s, b, in, out, count, cuda::std::plus<>{}, Widen<T, Out>{}, Out{0});
        }, m);
    } else if (std::strcmp(op, "min") == 0) {
        error = with_scratch([&](void *s, std::size_t &b) { return cub::DeviceReduce::Min(s, b, in, (T *)out, count); }, m);
    } else if (std::strcmp(op, "max") == 0) {
        error = with_scratch([&](void *s, std::size_t &b) { return cub::DeviceReduce::Max(s, b, in, (T *)out, count); }, m);
    } else {
        error = cudaErrorInvalidValue;
    }
    if (error == cudaSuccess) error = cudaMemcpy(result, out, sizeof(Out), cudaMemcpyDeviceToHost);
    cudaFree(out);
    return error;
}

} // namespace

extern "C" int cub_measure(const char *op, const char *dtype, const void *data, std::uint64_t n, int warmup, int repeats,
                           std::uint64_t flush_bytes, float *milliseconds, void *result)
{
    const Measurement m{warmup, repeats, flush_bytes, milliseconds};
    if (std::strcmp(dtype, "float32") == 0) return reduce<float, float>(op, data, n, result, m);
    if (std::strcmp(dtype, "float64") == 0) return reduce<double, double>(op, data, n, result, m);
    if (std::strcmp(dtype, "int32") == 0) return reduce<std::int32_t, std::int64_t>(op, data, n, result, m);
    if (std::strcmp(dtype, "int64") == 0) return reduce<std::int64_t, std::int64_t>(op, data, n, result, m);
    if (std::strcmp(dtype, "uint8") == 0) return reduce<std::uint8_t, std::uint64_t>(op, data, n, result, m);
    if (std::strcmp(dtype, "int16") == 0) return reduce<std::int16_t, std::int64_t>(op, data, n, result, m);
    return cudaErrorInvalidValue;
}
