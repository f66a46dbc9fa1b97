// Vectors of 16 bytes from wherever the row begins.
// kernel: shfl_two_pass
// block: 64
// finds: misaligned access; a multiple of 16
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_two_pass(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
              Scratch<typename Traits::Acc>)
{
    using Acc = typename Traits::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    const Vector *vectors = reinterpret_cast<const Vector *>(in + row.begin);
    Acc value = Traits::identity();

    for (uint64 i = row.block * BLOCK + tid; i < row.n / vector_elements<typename Traits::In>;
         i += row.blocks * BLOCK) {
        const Vector v[1] = {load_vector(vectors + i)}; // HERE
        value = Traits::combine(value, fold_tile<Traits>(v));
    }
    const uint64 rest = row.n - row.n % vector_elements<typename Traits::In>;
    for (uint64 i = rest + row.block * BLOCK + tid; i < row.n; i += row.blocks * BLOCK)
        value = Traits::combine(value, Traits::lift(in[row.begin + i], i));
    value = block_reduce<Traits, BLOCK>(value);
    if (tid == 0) out[row.virtual_block] = value;
}

} // namespace gpr
