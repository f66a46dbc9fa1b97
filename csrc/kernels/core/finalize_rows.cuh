// finalize_rows: turns accumulators into results after a named kernel whose results stay on the
// device. The kernels of `fast` and `exact` store results themselves.
#pragma once

#include "layout.cuh"
#include "finalize.cuh"

namespace gpr {

// One thread per row; any grid, any block size.
template <class Traits>
__global__ void finalize_rows(const typename Traits::Acc *accumulators, typename Traits::Out *out,
                              const __grid_constant__ Layout layout,
                              typename Traits::AllParams params)
{
    const uint64 threads = static_cast<uint64>(gridDim.x) * blockDim.x;
    for (uint64 i = static_cast<uint64>(blockIdx.x) * blockDim.x + threadIdx.x; i < layout.count;
         i += threads) {
        Traits::store(out + layout.row_offsets(i).out, accumulators[i], layout.elements,
                      params.of_row(layout, i, 0));
    }
}

} // namespace gpr
