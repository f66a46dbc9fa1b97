// Exact sums: rows that bins at one position do not hold (exact_rows.cuh), each added again by a
// warp as `exact` adds rows, to a superaccumulator in shared memory.
#pragma once

#include "exact_block.cuh"
#include "exact_strided_tiles.cuh"

namespace gpr {

// Adds a row of n elements to the warp's superaccumulator. The warp is number `group_index` of
// GROUPS that have shared memory for it. All lanes of a warp must call, for the same row.
template <class Traits, unsigned GROUPS>
GPR_CALLED void add_any_row(const typename Traits::In *in, const unsigned char *mask,
                            const Layout &layout, uint64 n, unsigned group_index)
{
    using In = typename Traits::In;
    using Group = WarpGroup<GROUPS>;
    constexpr unsigned vectors = strided_vectors<In>;
    using Tiles = StridedTiles<Traits, vectors, 1>;
    const unsigned lane = threadIdx.x % warp_lanes;
    const Group group{group_index};
    RowSum<In> &sum = group.template sum<In>();
    unsigned *cleared = reinterpret_cast<unsigned *>(&sum);

    __syncwarp(); // the row before has been stored
    for (unsigned i = lane; i < sizeof sum / sizeof *cleared; i += warp_lanes) cleared[i] = 0;
    __syncwarp(); // the sum is zero
    Adder<Traits, vectors, Group> adder(group);
    Tiles tiles(in, mask, layout, lane, warp_lanes, n);
    const Vector nothing = adder.nothing();
#pragma unroll 1
    for (uint64 done = 0; done < n; done += warp_lanes * Tiles::steps) {
        Vector v[vectors];
        tiles.fetch(v, nothing);
        adder.accumulate(v);
    }
    adder.left_out += tiles.left_out;
    adder.finalize();
}

// Adds a row of n elements, and stores its sum. All lanes of a warp must call, for the same row.
template <class Traits, unsigned GROUPS>
GPR_DEVICE void store_any_row(const typename Traits::In *in, const unsigned char *mask,
                              typename Traits::Out *out, const Layout &layout, uint64 n,
                              unsigned group_index)
{
    using In = typename Traits::In;
    __shared__ typename Traits::Acc room[GROUPS];

    add_any_row<Traits, GROUPS>(in, mask, layout, n, group_index);
    store_sum<Traits>(out, room[group_index], WarpGroup<GROUPS>{group_index}.template sum<In>(), n);
}

} // namespace gpr
