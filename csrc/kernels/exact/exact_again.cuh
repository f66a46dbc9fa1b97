// Exact sums by the kernels of `fast`: rows that pairs of doubles do not hold, added again by the
// same threads, to superaccumulators in shared memory.
//
// Problem: where the numbers of a row are far from each other, a pair is not their sum
// (exact_fast.cuh), mostly in all rows of an array at once. If one block added such a row again,
// all others would wait for it. So each block adds again what it has read itself.
//
//     one block per row     rooms: the sums of the block's rows               -> results
//     several blocks        rooms: the sums of the block's shares             -> the row's counters
//     the last of them      rooms: the counters, and the pairs of the blocks
//                           whose pairs were the sums of their shares         -> results
//
// A room is a superaccumulator. A block has few, and takes its rows in turns. Where it has fewer
// rows than rooms, a row has several, so that neighbouring threads add to different ones.
//
//     block's rows     0 1 2 3 4 5 6          rooms 0 1 2 3: rows 0 to 3, then rows 4 to 6
//     one row          0                      rooms 0 1 2 3: row 0, of threads 0 4 8, 1 5 9, ...
//
// Counters of a row are those of exact_merge.cuh: its limbs, one that is not used, and the flags of
// infinities and NaN. A group's counters follow its ticket.
//
// Still paid: the elements are read twice, the second time with two to four atomics each.
#pragma once

#include "exact_block.cuh"

namespace gpr {

template <class In> struct Room {
    Superaccumulator<In> sum;
    uint64 kept; // elements, where some are left out
    unsigned is_left;
    // An odd multiple of 8 bytes: neighbouring rooms' limbs are in different banks.
    unsigned unused[(sizeof(Superaccumulator<In>) + sizeof(uint64)) / 8 % 2 == 0 ? 1 : 3];
};
static_assert(sizeof(Room<double>) % 16 == 8 && sizeof(Room<float>) % 16 == 8, "odd");

// As much shared memory as the kernels leave.
constexpr unsigned long room_bytes_of_thread = 32, room_bytes_of_block = 10 << 10;
template <class In, unsigned BLOCK>
constexpr unsigned rooms_of = static_cast<unsigned>(
    (BLOCK * room_bytes_of_thread < room_bytes_of_block ? BLOCK * room_bytes_of_thread
                                                        : room_bytes_of_block) /
    sizeof(Room<In>));

// Counters of a row.
template <class In>
constexpr unsigned counters_of_row = static_cast<unsigned>(counters_of_part<PartType<In>>);

// Adds an element to a superaccumulator. A single thread's, as the next one.
template <class In> GPR_CALLED void add_element(Superaccumulator<In> *sum, In x)
{
    const Bits<In> bits = bit_copy<Bits<In>>(x);
    if ((bits >> Format<In>::fraction & last_field<In>) != last_field<In>) {
        add_to_limbs(sum->limb[0], x);
    } else {
        const uint64 saw = is_nan(value_of(x))         ? saw_nan
                           : (bits & sign_of<In>) != 0 ? saw_minus_infinity
                                                       : saw_infinity;
        atomicOr(&sum->flags[0], static_cast<unsigned>(saw));
    }
}
// Adds one of the numbers of a pair, which is a multiple of In's smallest number.
template <class In> GPR_CALLED void add_number(Superaccumulator<In> *sum, double x)
{
    add_to_limbs<double, lowest_exponent<In>>(sum->limb[0], x);
}

// What threads add their shares to again: rows `first` to `first + here - 1` of their block, which
// have `copies` rooms each.
template <class Traits> struct Again {
    using In = typename Traits::In;
    Room<In> *rooms;
    unsigned first, here, copies;

    // Whether a row of the block is one that these rooms are for.
    GPR_DEVICE bool wants(unsigned row) const
    {
        return row - first < here && rooms[(row - first) * copies].is_left != 0;
    }
    // Adds an element of such a row.
    GPR_DEVICE void add(unsigned row, In x) const
    {
        if constexpr (Traits::skips_nan) {
            if (is_nan(value_of(x))) return;
        }
        Room<In> &room = rooms[(row - first) * copies + threadIdx.x % copies];
        add_element(&room.sum, x);
        if constexpr (Traits::counts) add_to_counter(&room.kept, 1);
    }
};

template <class In, unsigned BLOCK> GPR_DEVICE Room<In> *block_rooms()
{
    __shared__ Room<In> rooms[rooms_of<In, BLOCK>];
    return rooms;
}
constexpr unsigned most_copies = 32; // rooms of a row
// Warps that finish rows.
template <unsigned BLOCK>
constexpr unsigned finishing_warps =
    BLOCK / warp_lanes < most_rooms ? BLOCK / warp_lanes : most_rooms;

// Calls fill(again), by all threads, then finish(row, rooms, copies), by a warp per row, for the
// block's rows that are left, of `count`: bit k of a thread's `left` is set for row number_of(k).
// All threads must call.
template <class Traits, unsigned BLOCK, class NumberOf, class Fill, class Finish>
GPR_DEVICE void for_rows_left(unsigned left, unsigned count, const NumberOf &number_of,
                              const Fill &fill, const Finish &finish)
{
    using In = typename Traits::In;
    constexpr unsigned most = rooms_of<In, BLOCK>, warps = finishing_warps<BLOCK>;
    Room<In> *rooms = block_rooms<In, BLOCK>();
    const unsigned warp = threadIdx.x / warp_lanes;

#pragma unroll 1
    for (unsigned first = 0; first < count; first += most) {
        const unsigned here = count - first < most ? count - first : most;
        const unsigned fit = most / here, copies = fit < most_copies ? fit : most_copies;
        unsigned own = 0; // bits of the thread's rows among these
        for (unsigned bits = left, k = 0; bits != 0; bits >>= 1, k++) {
            if (bits % 2 != 0 && number_of(k) - first < here) own |= 1u << k;
        }
        if (!__syncthreads_or(own != 0)) continue; // and the rooms before have been read
        clear_shared<BLOCK>(rooms, here * copies);
        for (unsigned k = 0; own != 0; own >>= 1, k++) {
            if (own % 2 != 0) rooms[(number_of(k) - first) * copies].is_left = 1;
        }
        __syncthreads(); // all threads see which rows are left
        fill(Again<Traits>{rooms, first, here, copies});
        __syncthreads(); // all threads have added
#pragma unroll 1
        for (unsigned row = warp; warp < warps && row < here; row += warps) {
            Room<In> *of_row = rooms + row * copies;
            if (of_row->is_left != 0) finish(first + row, of_row, copies);
        }
    }
}

// The sum of limb d over a row's rooms.
template <class In>
GPR_DEVICE long long limb_of_rooms(const Room<In> *rooms, unsigned copies, unsigned d)
{
    long long limb = 0;
#pragma unroll 1
    for (unsigned c = 0; c < copies; c++) limb += rooms[c].sum.limb[0][d];
    return limb;
}
template <class In> GPR_DEVICE unsigned flags_of_rooms(const Room<In> *rooms, unsigned copies)
{
    unsigned flags = 0;
#pragma unroll 1
    for (unsigned c = threadIdx.x % warp_lanes; c < copies; c += warp_lanes)
        flags |= rooms[c].sum.flags[0];
    return warp_or(flags);
}

// Adds a row's rooms to the first one. At most 32 limbs below 2^31 in magnitude are below 2^36;
// the first 20 bits stay, the others are carried. All lanes of a warp must call.
template <class In> GPR_DEVICE void merge_rooms(Room<In> *rooms, unsigned copies)
{
    constexpr unsigned limbs = limbs_of<In>;
    const unsigned lane = threadIdx.x % warp_lanes;
    int *limb = rooms->sum.limb[0];

    if (copies == 1) return;
    const unsigned flags = flags_of_rooms(rooms, copies);
#pragma unroll 1
    for (unsigned begin = 0; begin < limbs; begin += warp_lanes) {
        const unsigned d = begin + lane;
        const long long all = d < limbs ? limb_of_rooms(rooms, copies, d) : 0;
        const bool carries = d + 1 < limbs; // nothing is above the last limb
        __syncwarp();                       // all lanes have read their limbs
        if (d < limbs) limb[d] = static_cast<int>(carries ? all & limb_mask : all);
        __syncwarp(); // lower bits are there
        if (carries) limb[d + 1] += static_cast<int>(all >> limb_bits);
        __syncwarp(); // carries are there
    }
    if (lane == 0) {
        rooms->sum.flags[0] = flags;
        for (unsigned c = 1; c < copies; c++) rooms->kept += rooms[c].kept;
    }
    __syncwarp(); // the first room has all
}

// Stores a row's result from its rooms. All lanes of a warp must call.
template <class Traits, unsigned BLOCK>
GPR_CALLED void store_rooms(typename Traits::Out *out, Room<typename Traits::In> *rooms,
                            unsigned copies, uint64 elements)
{
    using Any = typename Traits::Any;
    // Sums are rounded in registers.
    constexpr bool needs_room = !rounds_limbs<Any>;
    __shared__ typename Any::Acc room[needs_room ? finishing_warps<BLOCK> : 1];

    merge_rooms(rooms, copies);
    store_sum<Any>(out, room[needs_room ? threadIdx.x / warp_lanes : 0], rooms->sum,
                   Traits::counts ? rooms->kept : elements);
}

// Adds the numbers of a group's counters that are for these rooms, and clears them. A counter is
// below 2^62 in magnitude. All threads of the block must call.
template <class Traits, unsigned BLOCK>
GPR_DEVICE void load_counters(const Again<Traits> &again, uint64 *counters)
{
    using In = typename Traits::In;
    constexpr unsigned each = counters_of_row<In>, limbs = limbs_of<In>;

#pragma unroll 1
    for (unsigned i = threadIdx.x; i < again.here * each; i += BLOCK) {
        const unsigned row = i / each, d = i - row * each;
        uint64 &counter = counters[again.first * each + i];
        Room<In> &room = again.rooms[row * again.copies];
        if (room.is_left == 0) continue;
        const uint64 number = counter;
        if (number == 0) continue;
        counter = 0;
        if (d < limbs)
            add_long(room.sum.limb[0], static_cast<long long>(number),
                     static_cast<int>(d) * limb_bits);
        else
            atomicOr(&room.sum.flags[0], static_cast<unsigned>(number));
    }
}

// Adds the pairs of a group's blocks that are sums of shares: `partials` begins with those of the
// first block, `count` per block. All threads of the block must call.
template <class Traits, unsigned BLOCK>
GPR_DEVICE void load_pairs(const Again<Traits> &again, const typename Traits::Acc *partials,
                           unsigned blocks, unsigned count)
{
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    constexpr unsigned under_way = 4;
    const unsigned all = blocks * again.here; // no more than partials, which scratch has room for

#pragma unroll 1
    for (unsigned begin = threadIdx.x; begin < all; begin += under_way * BLOCK) {
        Acc pair[under_way];
        unsigned row[under_way];
#pragma unroll
        for (unsigned u = 0; u < under_way; u++) { // all loads first
            const unsigned i = begin + u * BLOCK, b = i / again.here;
            row[u] = i - b * again.here;
            pair[u] = Traits::identity();
            if (i < all) pair[u] = partials[static_cast<uint64>(b) * count + again.first + row[u]];
        }
#pragma unroll
        for (unsigned u = 0; u < under_way; u++) {
            Room<In> &room = again.rooms[row[u] * again.copies];
            if (room.is_left == 0) continue;
            if constexpr (Traits::counts) add_to_counter(&room.kept, pair[u].count);
            if (Traits::is_special(pair[u])) {
                const uint64 saw = is_nan(pair[u].sum) ? saw_nan
                                   : pair[u].sum < 0   ? saw_minus_infinity
                                                       : saw_infinity;
                atomicOr(&room.sum.flags[0], static_cast<unsigned>(saw));
            } else if (Traits::is_pair(pair[u])) {
                add_number(&room.sum, pair[u].sum);
                add_number(&room.sum, pair[u].rest);
            }
        }
    }
}

// ---------------------------------------------------------------- for kernels ------------------
//
// visit(again) adds the elements of a thread's share that belong to rows that `again` wants.
// Functions that are called, and get copies of what kernels know, which keep it in registers. Code
// that two of them need is called in turn: it takes longer to compile than all others.
template <class Traits, class Visit>
GPR_CALLED void add_share(const Visit &visit, const Again<Traits> &again)
{
    visit(again);
}

// Adds the shares of a block's rows again, to the counters of their group.
template <class Traits, unsigned BLOCK, class NumberOf, class Visit>
GPR_CALLED void publish_again(unsigned left, unsigned count, uint64 *counters, NumberOf number_of,
                              Visit visit)
{
    using In = typename Traits::In;
    constexpr unsigned limbs = limbs_of<In>;
    const auto add = [&](const Again<Traits> &again) { add_share(visit, again); };
    const auto publish = [&](unsigned row, Room<In> *rooms, unsigned copies) {
        uint64 *to = counters + static_cast<uint64>(row) * counters_of_row<In>;
        for (unsigned d = threadIdx.x % warp_lanes; d < limbs; d += warp_lanes) {
            const long long limb = limb_of_rooms(rooms, copies, d);
            if (limb != 0) atomicAdd(to + d, static_cast<uint64>(limb));
        }
        const unsigned flags = flags_of_rooms(rooms, copies);
        if (flags != 0 && threadIdx.x % warp_lanes == 0)
            atomicOr(to + limbs + 1, static_cast<uint64>(flags));
    };
    for_rows_left<Traits, BLOCK>(left, count, number_of, add, publish);
    __syncthreads(); // whoever takes the ticket does so after all have published
}

// Adds a block's rows again, of `elements` each, and stores the results to *result_of(row).
template <class Traits, unsigned BLOCK, class NumberOf, class ResultOf, class Visit>
GPR_CALLED void store_again(unsigned left, unsigned count, uint64 elements, NumberOf number_of,
                            ResultOf result_of, Visit visit)
{
    const auto add = [&](const Again<Traits> &again) { add_share(visit, again); };
    const auto finish = [&](unsigned row, Room<typename Traits::In> *rooms, unsigned copies) {
        store_rooms<Traits, BLOCK>(result_of(row), rooms, copies, elements);
    };
    for_rows_left<Traits, BLOCK>(left, count, number_of, add, finish);
}

// Stores the results of rows that several blocks share, in the last one.
template <class Traits, unsigned BLOCK, class NumberOf, class ResultOf>
GPR_CALLED void store_merged_again(unsigned left, unsigned count, uint64 elements, unsigned blocks,
                                   uint64 *counters, const typename Traits::Acc *partials,
                                   NumberOf number_of, ResultOf result_of)
{
    const auto merge = [&](const Again<Traits> &again) {
        load_counters<Traits, BLOCK>(again, counters);
        load_pairs<Traits, BLOCK>(again, partials, blocks, count);
    };
    const auto finish = [&](unsigned row, Room<typename Traits::In> *rooms, unsigned copies) {
        store_rooms<Traits, BLOCK>(result_of(row), rooms, copies, elements);
    };
    for_rows_left<Traits, BLOCK>(left, count, number_of, merge, finish);
}

} // namespace gpr
