// Exact sums: rows that the accumulators of other kernels do not hold, each added again by a warp,
// as `exact` adds rows, to a superaccumulator in shared memory.
//
// exact_rows calls this for rows that bins at one position do not hold, the kernels of `fast` for
// those that are no pair of doubles (exact_fast.cuh).
#pragma once

#include "exact_block.cuh"
#include "exact_strided_tiles.cuh"

namespace gpr {

// Adds a row of n items of RUN elements, and stores its sum. The warp is number `group` of GROUPS
// that have shared memory for it. All lanes of a warp must call, for the same row.
template <class Traits, unsigned GROUPS, unsigned RUN>
GPR_CALLED void store_any_row(const typename Traits::In *in, const unsigned char *mask,
                              typename Traits::Out *out, const Layout &layout, uint64 n,
                              unsigned group_index)
{
    using In = typename Traits::In;
    using Group = WarpGroup<GROUPS>;
    constexpr unsigned vectors = strided_vectors<In>;
    using Tiles = StridedTiles<Traits, vectors, RUN>;
    __shared__ typename Traits::Acc room[GROUPS];
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
    store_sum<Traits>(out, room[group_index], sum, n * RUN);
}

// Stores the sums of a block's rows that are left, of n items of RUN elements each: bit k of a
// thread's `left` is set for its k-th row, which offsets_of(thread, k) gives. All threads must
// call.
template <class Traits, unsigned BLOCK, unsigned RUN, class OffsetsOf>
GPR_CALLED void store_rows_left(unsigned left, const typename Traits::In *in,
                                typename Traits::Out *out, const Layout &layout, uint64 n,
                                const OffsetsOf &offsets_of)
{
    constexpr unsigned warps = BLOCK / warp_lanes, groups = warps < most_rooms ? warps : most_rooms;
    __shared__ unsigned left_of[BLOCK];
    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
    unsigned row = 0;

    left_of[threadIdx.x] = left;
    __syncthreads(); // all threads' are there
    if (warp >= groups) return;
#pragma unroll 1
    for (unsigned first = 0; first < BLOCK; first += warp_lanes) {
        const unsigned bits = left_of[first + lane];
        unsigned any = __ballot_sync(all_lanes, bits != 0);
        while (any != 0) {
            const int owner = static_cast<int>(warp_lanes) - 1 - leading_zeros(any);
            any ^= 1u << owner;
            unsigned of_owner = shuffle_from(bits, owner);
            for (unsigned k = 0; of_owner != 0; k++, of_owner >>= 1) {
                if (of_owner % 2 == 0 || row++ % groups != warp) continue;
                const RowOffsets start = offsets_of(first + static_cast<unsigned>(owner), k);
                store_any_row<Traits, groups, RUN>(in + start.in, layout.mask + start.mask,
                                                   out + start.out, layout, n, warp);
            }
        }
    }
}

} // namespace gpr
