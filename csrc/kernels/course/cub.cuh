// cub: NVIDIA CUB's reduction agents, the library to beat.
//
// CUB's DeviceReduce is a host function around a block-wide agent: threads load tiles of their
// share, 16 items or so at a time and by vectors where the address allows, fold them in registers,
// and the block combines. This kernel runs that agent itself, with DeviceReduce's policy scaled to
// the accumulator, so that the same machinery is measured under our launch.
//
// What is ours: the element conversion (CUB's transform) and the operator. CUB's own
// cuda::std::plus would select its packed sums, which fail in CUB 3.0 under NVRTC: a float sum ends
// in a device-side assertion.
//
// Still paid: CUB's headers to compile against, and the seconds that takes.
//
// Launch: any number of blocks per row, where DeviceReduce would take five times as many as fit the
// GPU at once; BLOCK a multiple of 32; thread 0 writes the block's partial to out[virtual block],
// and the caller runs the kernel over the partials again until one is left. Include path: the
// directory of CCCL that holds cub/, cuda/ and thrust/.
//
// Reference: "Faster Parallel Reductions on Kepler"; CUB, DeviceReduce::TransformReduce.
#pragma once

#include <cub/agent/agent_reduce.cuh>

#include "rows.cuh"

// Where AgentReduce lives changed with CUB's version; both places are looked at.
CUB_NAMESPACE_BEGIN
namespace detail {
namespace reduce {}
} // namespace detail
CUB_NAMESPACE_END

namespace gpr {
namespace cub_parts {

using namespace ::cub;
using namespace ::cub::detail::reduce;

// DeviceReduce's policy: 16 items of 4 bytes per thread, or as many bytes of wider ones; vectors of
// 4 items.
template <class Acc, unsigned BLOCK> struct Policy {
    static constexpr int BLOCK_THREADS = BLOCK;
    static constexpr int ITEMS_PER_THREAD = sizeof(Acc) <= 4    ? 16
                                            : sizeof(Acc) <= 64 ? 64 / sizeof(Acc)
                                                                : 1;
    static constexpr int VECTOR_LOAD_LENGTH =
        ITEMS_PER_THREAD < 4 ? ITEMS_PER_THREAD : 4; // not into the next thread's
    static constexpr ::cub::BlockReduceAlgorithm BLOCK_ALGORITHM =
        ::cub::BLOCK_REDUCE_WARP_REDUCTIONS;
    static constexpr ::cub::CacheLoadModifier LOAD_MODIFIER = ::cub::LOAD_LDG;
};

// CUB loads built-in types by vectors: elements that are structures of ours go in as the integers
// they are made of.
template <class In> struct Stored { using type = In; };
template <> struct Stored<dt_bool> { using type = unsigned char; };
template <> struct Stored<dt_float16> { using type = unsigned short; };
template <> struct Stored<dt_bfloat16> { using type = unsigned short; };
template <> struct Stored<dt_complex64> { using type = uint64; };

template <class Traits> struct Lift {
    GPR_DEVICE typename Traits::Acc operator()(typename Stored<typename Traits::In>::type x) const
    {
        return Traits::lift(bit_copy<typename Traits::In>(x), 0);
    }
};

template <class Traits> struct Combine {
    using Acc = typename Traits::Acc;
    GPR_DEVICE Acc operator()(Acc a, Acc b) const { return Traits::combine(a, b); }
};

// The agent for kernel traits. Older versions also ask for the type of the output.
template <class Traits, unsigned BLOCK, template <class...> class Template> struct Versions {
    using Acc = typename Traits::Acc;
    using Input = const typename Stored<typename Traits::In>::type *;
    template <class... Output>
    using With =
        Template<Policy<Acc, BLOCK>, Input, Output..., uint64, Combine<Traits>, Acc, Lift<Traits>>;
};

template <class V, class = void> struct Fitting { using type = typename V::template With<>; };
template <class V> struct Fitting<V, Void<typename V::template With<typename V::Acc *>>> {
    using type = typename V::template With<typename V::Acc *>;
};

template <class Traits, unsigned BLOCK>
using Agent = typename Fitting<Versions<Traits, BLOCK, AgentReduce>>::type;

} // namespace cub_parts

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
cub(const typename Traits::In *in, typename Traits::Acc *out, Rows rows,
    Scratch<typename Traits::Acc>)
{
    using Agent = cub_parts::Agent<Traits, BLOCK>;
    using Stored = typename cub_parts::Stored<typename Traits::In>::type;
    constexpr uint64 tile =
        BLOCK * cub_parts::Policy<typename Traits::Acc, BLOCK>::ITEMS_PER_THREAD;
    __shared__ typename Agent::TempStorage storage;
    const Row row = row_of(rows, blockIdx.x);
    Agent agent(storage, reinterpret_cast<const Stored *>(in + row.begin), {}, {});
    typename Traits::Acc value = Traits::identity(); // of blocks beyond the last tile

    if (rows.count == 1 && rows.first == 0) { // as DeviceReduce does: blocks take turns at tiles
        ::cub::GridEvenShare<uint64> share;
        share.DispatchInit(row.n, static_cast<int>(row.blocks), static_cast<int>(tile));
        if (row.block < static_cast<unsigned>(share.grid_size)) value = agent.ConsumeTiles(share);
    } else { // blocks own runs of tiles: the turns are for rows that begin with block 0 of the grid
        const uint64 tiles = (row.n + tile - 1) / tile,
                     run = (tiles + row.blocks - 1) / row.blocks * tile;
        const uint64 begin = row.block * run;
        if (begin < row.n)
            value = agent.ConsumeRange(begin, row.n - begin < run ? row.n : begin + run);
    }
    if (threadIdx.x == 0) out[row.virtual_block] = value;
}

} // namespace gpr
