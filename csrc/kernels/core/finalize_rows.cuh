// finalize_rows: accumulators to results, where a kernel that was named left accumulators and results stay on the device.
// The planner's kernels write results themselves.
#pragma once

#include "layout.cuh"
#include "finalize.cuh"

namespace gpr {

// A thread a row; any grid, any block size.
template <class Traits>
__global__ void finalize_rows(const typename Traits::Acc *accumulators, typename Traits::Out *out, const __grid_constant__ Layout layout,
                            typename Traits::AllParams params)
{
    const uint64 threads = static_cast<uint64>(gridDim.x) * blockDim.x;
    for (uint64 i = static_cast<uint64>(blockIdx.x) * blockDim.x + threadIdx.x; i < layout.count; i += threads) {
        Traits::store(out + layout.row_offsets(i).out, accumulators[i], layout.elements, params.of_row(layout, i, 0));
    }
}

} // namespace gpr
