// Vectors of 16 bytes from wherever the row begins.
// kernel: shfl_two_pass
// block: 64
// finds: misaligned access; a multiple of 16
#pragma once

#include "block.cuh"
#include "runs.cuh"

namespace gpr {

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
shfl_two_pass(const typename Cell::In *in, typename Cell::Acc *out, Rows rows, Scratch<typename Cell::Acc>)
{
    using Acc = typename Cell::Acc;
    const Row row = row_of(rows, blockIdx.x);
    const unsigned tid = threadIdx.x;
    const Vector *vectors = reinterpret_cast<const Vector *>(in + row.begin);
    Acc value = Cell::identity();

    for (uint64 i = row.block * BLOCK + tid; i < row.n / vector_elements<typename Cell::In>; i += row.blocks * BLOCK) {
        const Vector v[1] = {load_vector(vectors + i)}; // HERE
        value = Cell::combine(value, fold_tile<Cell>(v));
    }
    const uint64 rest = row.n - row.n % vector_elements<typename Cell::In>;
    for (uint64 i = rest + row.block * BLOCK + tid; i < row.n; i += row.blocks * BLOCK)
        value = Cell::combine(value, Cell::lift(in[row.begin + i], i));
    value = block_reduce<Cell, BLOCK>(value);
    if (tid == 0) out[row.virtual_block] = value;
}

} // namespace gpr
