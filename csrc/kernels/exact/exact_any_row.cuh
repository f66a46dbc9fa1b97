// Exact sums: rows that the accumulators of other kernels do not hold, each added again as `exact`
// adds rows, to superaccumulators in shared memory.
//
// exact_rows calls this for rows that bins at one position do not hold, the kernels of `fast` for
// those that are no pair of doubles (exact_fast.cuh).
//
// Who adds what, in a block of four warps, each of which has a superaccumulator:
//
//     rows of at most GPR_WARP_ROW_ELEMENTS       longer rows, one after another
//
//     warp    0      1      2      3              warp    0       1       2       3
//     row     a      b      c      d              row a   share   share   share   share
//     then    e      f                            barrier; warp 0 adds the other three's limbs to
//                                                 its own, and stores the sum
#pragma once

#include "exact_block.cuh"
#include "exact_strided_tiles.cuh"

namespace gpr {

// Adds a share of a row of n items of RUN elements to the warp's superaccumulator: the items of
// number 32 * share + lane, and so on by steps of 32 * shares. The warp is number `group_index` of
// GROUPS that have shared memory for it. All lanes of a warp must call, for the same row.
template <class Traits, unsigned GROUPS, unsigned RUN>
GPR_CALLED void add_any_row(const typename Traits::In *in, const unsigned char *mask,
                            const Layout &layout, uint64 n, unsigned group_index, unsigned share,
                            unsigned shares)
{
    using In = typename Traits::In;
    using Group = WarpGroup<GROUPS>;
    constexpr unsigned vectors = strided_vectors<In>;
    using Tiles = StridedTiles<Traits, vectors, RUN>;
    const unsigned lane = threadIdx.x % warp_lanes, apart = shares * warp_lanes;
    const Group group{group_index};
    RowSum<In> &sum = group.template sum<In>();
    unsigned *cleared = reinterpret_cast<unsigned *>(&sum);

    __syncwarp(); // the row before has been stored
    for (unsigned i = lane; i < sizeof sum / sizeof *cleared; i += warp_lanes) cleared[i] = 0;
    __syncwarp(); // the sum is zero
    Adder<Traits, vectors, Group> adder(group);
    Tiles tiles(in, mask, layout, share * warp_lanes + lane, apart, n);
    const Vector nothing = adder.nothing();
#pragma unroll 1
    for (uint64 done = 0; done < n; done += apart * Tiles::steps) {
        Vector v[vectors];
        tiles.fetch(v, nothing);
        adder.accumulate(v);
    }
    adder.left_out += tiles.left_out;
    adder.finalize();
}

// Adds a row of n items of RUN elements, and stores its sum. All lanes of a warp must call, for the
// same row.
template <class Traits, unsigned GROUPS, unsigned RUN>
GPR_DEVICE void store_any_row(const typename Traits::In *in, const unsigned char *mask,
                              typename Traits::Out *out, const Layout &layout, uint64 n,
                              unsigned group_index)
{
    using In = typename Traits::In;
    __shared__ typename Traits::Acc room[GROUPS];

    add_any_row<Traits, GROUPS, RUN>(in, mask, layout, n, group_index, 0, 1);
    store_sum<Traits>(out, room[group_index], WarpGroup<GROUPS>{group_index}.template sum<In>(),
                      n * RUN);
}

// Adds `from` to `to`, which nobody else adds to. All lanes of a warp must call. A limb is below
// 2^30 in magnitude (exact_superaccumulator.cuh): its lower bits and what is above them are two
// additions to limbs. Nothing is above the last limb, which has spare bits for it.
template <class In>
GPR_DEVICE void add_superaccumulator(Superaccumulator<In> &to, const Superaccumulator<In> &from)
{
    constexpr int limbs = limbs_of<PartType<In>>;
    const unsigned lane = threadIdx.x % warp_lanes;

#pragma unroll
    for (unsigned p = 0; p < parts_of<In>; p++) {
        for (int i = static_cast<int>(lane); i < limbs; i += static_cast<int>(warp_lanes)) {
            const int limb = from.limb[p][i];
            if (i + 1 < limbs) {
                add_to_limb(&to.limb[p][i], limb & limb_mask);
                add_to_limb(&to.limb[p][i + 1], limb >> limb_bits);
            } else {
                atomicAdd(&to.limb[p][i], limb);
            }
        }
        if (lane == 0) to.flags[p] |= from.flags[p];
    }
    if (lane == 0) to.left_out += from.left_out;
    __syncwarp(); // the limbs are added
}

// Stores the sums of a block's rows that are left, of n items of RUN elements each: bit k of a
// thread's `left` is set for its k-th row, which offsets_of(thread, k) gives. All threads must
// call.
template <class Traits, unsigned BLOCK, unsigned RUN, class OffsetsOf>
GPR_CALLED void store_rows_left(unsigned left, const typename Traits::In *in,
                                typename Traits::Out *out, const Layout &layout, uint64 n,
                                const OffsetsOf &offsets_of)
{
    using In = typename Traits::In;
    constexpr unsigned warps = BLOCK / warp_lanes, groups = warps < most_rooms ? warps : most_rooms;
    // The same in all of the program's kernels: integers are added by warps alone.
    constexpr bool may_share = groups > 1 && is_float<PartType<In>>;
    __shared__ unsigned left_of[BLOCK];
    __shared__ typename Traits::Acc room;
    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;
    const bool share_rows = may_share && n * RUN > GPR_WARP_ROW_ELEMENTS;
    unsigned row = 0;

    left_of[threadIdx.x] = left;
    __syncthreads(); // all threads' are there
    if (warp >= groups && !share_rows) return;
#pragma unroll 1
    for (unsigned first = 0; first < BLOCK; first += warp_lanes) {
        const unsigned bits = left_of[first + lane];
        unsigned any = __ballot_sync(all_lanes, bits != 0);
        while (any != 0) {
            const int owner = static_cast<int>(warp_lanes) - 1 - leading_zeros(any);
            any ^= 1u << owner;
            unsigned of_owner = shuffle_from(bits, owner);
            for (unsigned k = 0; of_owner != 0; k++, of_owner >>= 1) {
                if (of_owner % 2 == 0) continue;
                const RowOffsets start = offsets_of(first + static_cast<unsigned>(owner), k);
                if constexpr (may_share) {
                    if (share_rows) {
                        if (warp < groups)
                            add_any_row<Traits, groups, RUN>(in + start.in,
                                                             layout.mask + start.mask, layout, n,
                                                             warp, warp, groups);
                        __syncthreads(); // the shares are added
                        if (warp == 0) {
                            Superaccumulator<In> *sums = block_superaccumulators<In, groups>();
                            for (unsigned g = 1; g < groups; g++)
                                add_superaccumulator<In>(sums[0], sums[g]);
                            store_sum<Traits>(out + start.out, room, sums[0], n * RUN);
                        }
                        __syncthreads(); // the sums have been read
                        continue;
                    }
                }
                if (row++ % groups != warp) continue;
                store_any_row<Traits, groups, RUN>(in + start.in, layout.mask + start.mask,
                                                   out + start.out, layout, n, warp);
            }
        }
    }
}

} // namespace gpr
