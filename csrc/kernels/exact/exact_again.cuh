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
// Rows of float64 with an infinity or NaN are read again, but not added: these alone determine the
// sum.
//
// Still paid: the elements are read twice, the second time with two to four atomics each.
#pragma once

#include "exact_block.cuh"

namespace gpr {

// Whether a row is left to add again; SETTLED: it has infinities or NaN, which alone determine it.
enum { NOT_LEFT, LEFT, SETTLED };

template <class In> struct Room {
    Superaccumulator<In> sum;
    uint64 kept; // elements, where some are left out
    unsigned is_left; // NOT_LEFT ...
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

template <class In> GPR_DEVICE bool is_infinity_or_nan(In x)
{
    return (bit_copy<Bits<In>>(x) >> Format<In>::fraction & last_field<In>) == last_field<In>;
}
// Notes that an infinity or NaN is among the elements. A single thread's, as the next two.
template <class In> GPR_DEVICE void note_special(Superaccumulator<In> *sum, In x)
{
    const uint64 saw = is_nan(value_of(x))                          ? saw_nan
                       : (bit_copy<Bits<In>>(x) & sign_of<In>) != 0 ? saw_minus_infinity
                                                                    : saw_infinity;
    atomicOr(&sum->flags[0], static_cast<unsigned>(saw));
}
// Adds an element to a superaccumulator.
template <class In> GPR_CALLED void add_element(Superaccumulator<In> *sum, In x)
{
    if (is_infinity_or_nan(x)) note_special(sum, x);
    else add_to_limbs(sum->limb[0], x);
}
// Adds one of the numbers of a pair, which is a multiple of In's smallest number.
template <class In> GPR_DEVICE void add_number(Superaccumulator<In> *sum, double x)
{
    add_to_limbs<double, lowest_exponent<In>>(sum->limb[0], x);
}

// What threads add their shares to again: rows `first` to `first + here - 1` of their block, which
// have `copies` rooms each.
template <class Traits> struct Again {
    using In = typename Traits::In;
    static constexpr bool adds = true; // elements, and does not only look at them
    Room<In> *rooms;
    unsigned first, here, copies;

    // Whether a row of the block is one that these rooms are for.
    GPR_DEVICE bool wants(unsigned row) const
    {
        return row - first < here && rooms[(row - first) * copies].is_left == LEFT;
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

// Whether pairs are no sums where elements are infinite or NaN: those of doubles, whose sums may
// overflow, too. Others are special then (exact_fast.cuh).
template <class In> constexpr bool looks_for_specials = sizeof(In) == sizeof(double);

// What threads look for in their shares before they add them again.
template <class Traits> struct Specials {
    using In = typename Traits::In;
    static constexpr bool adds = false;
    const Again<Traits> &again;

    GPR_DEVICE bool wants(unsigned row) const { return again.wants(row); }
    GPR_DEVICE void add(unsigned row, In x) const
    {
        if (!is_infinity_or_nan(x) || (Traits::skips_nan && is_nan(value_of(x)))) return;
        note_special(&again.rooms[(row - again.first) * again.copies].sum, x);
    }
};

// Settles the rows that have infinities or NaN: reading them takes a fraction of the time that
// adding them to superaccumulators does. All threads must call.
template <class Traits, unsigned BLOCK, class Share>
GPR_DEVICE void settle_specials(const Again<Traits> &again, const Share &share)
{
    share.visit(Specials<Traits>{again});
    __syncthreads(); // all are noted
    for (unsigned row = threadIdx.x; row < again.here; row += BLOCK) {
        Room<typename Traits::In> &room = again.rooms[row * again.copies];
        if (room.is_left == NOT_LEFT || room.sum.flags[0] == 0) continue;
        room.is_left = SETTLED;
        room.kept = 1; // which is more than none
    }
    __syncthreads(); // all threads see which rows are settled
}

template <class In, unsigned BLOCK> GPR_DEVICE Room<In> *block_rooms()
{
    __shared__ Room<In> rooms[rooms_of<In, BLOCK>];
    return rooms;
}
constexpr unsigned most_copies = 32; // rooms of a row

// Adds rows' other rooms to their first ones. All threads must call; a block barrier is passed.
template <class Traits, unsigned BLOCK> GPR_CALLED void merge_copies(const Again<Traits> &again)
{
    using In = typename Traits::In;
    constexpr unsigned limbs = limbs_of<In>;
    const unsigned others = again.copies - 1, count = again.here * others;

#pragma unroll 1
    for (unsigned i = threadIdx.x; i < count * limbs; i += BLOCK) {
        const unsigned room = i / limbs, d = i - room * limbs, row = room / others;
        const Room<In> &other = again.rooms[room + row + 1];
        int *to = again.rooms[row * again.copies].sum.limb[0] + d;
        const int limb = other.sum.limb[0][d];
        const bool is_last = d + 1 == limbs; // nothing is above it, and it has room
        add_to_limb(to, is_last ? limb : limb & limb_mask);
        if (!is_last) add_to_limb(to + 1, limb >> limb_bits);
    }
#pragma unroll 1
    for (unsigned room = threadIdx.x; room < count; room += BLOCK) {
        const unsigned row = room / others;
        const Room<In> &other = again.rooms[room + row + 1];
        Room<In> &first = again.rooms[row * again.copies];
        if (other.sum.flags[0] != 0) atomicOr(&first.sum.flags[0], other.sum.flags[0]);
        if constexpr (Traits::counts) add_to_counter(&first.kept, other.kept);
    }
    __syncthreads(); // the first rooms have all
}

// Calls fill(again) and finish(again), by all threads, for the block's rows that are left: bit k of
// a thread's `left` is set for row share.number_of(k). finish() finds a row's sum in the first of
// its rooms. All threads must call.
template <class Traits, unsigned BLOCK, class Share, class Fill, class Finish>
GPR_DEVICE void for_rows_left(unsigned left, const Share &share, const Fill &fill,
                              const Finish &finish)
{
    using In = typename Traits::In;
    constexpr unsigned most = rooms_of<In, BLOCK>;
    const unsigned count = share.count();
    Room<In> *rooms = block_rooms<In, BLOCK>();

#pragma unroll 1
    for (unsigned first = 0; first < count; first += most) {
        const unsigned here = count - first < most ? count - first : most;
        const unsigned fit = most / here, copies = fit < most_copies ? fit : most_copies;
        const Again<Traits> again = {rooms, first, here, copies};
        unsigned own = 0; // bits of the thread's rows among these
        for (unsigned bits = left, k = 0; bits != 0; bits >>= 1, k++) {
            if (bits % 2 != 0 && share.number_of(k) - first < here) own |= 1u << k;
        }
        if (!__syncthreads_or(own != 0)) continue; // and the rooms before have been read
        clear_shared<BLOCK>(rooms, here * copies);
        for (unsigned k = 0; own != 0; own >>= 1, k++) {
            if (own % 2 != 0) rooms[(share.number_of(k) - first) * copies].is_left = LEFT;
        }
        __syncthreads(); // all threads see which rows are left
        fill(again);
        __syncthreads(); // all threads have added
        if (copies > 1) merge_copies<Traits, BLOCK>(again);
        finish(again);
    }
}

// A sum's limbs, carried and packed to words by the thread that rounds it, where they are.
template <class T> struct ThreadLimbs {
    static constexpr int unit = lowest_exponent<T>; // exponent of the number's last bit
    const int *word; // of the magnitude; 0 but from the lowest to the highest
    int lowest, highest = -1;
    bool negative;

    GPR_DEVICE explicit ThreadLimbs(int *limb) : word(limb)
    {
        constexpr int limbs = limbs_of<T>, words = accumulator_words<T>;
        long long carry = 0; // limbs have 31 bits, and are shifted by 31 at most
        int bits = 0, w = 0;
#pragma unroll 4
        for (int d = 0; d < limbs; d++) {
            carry += static_cast<long long>(static_cast<uint64>(static_cast<long long>(limb[d]))
                                            << bits);
            bits += limb_bits;
            if (bits < word_bits || w == words) continue;
            limb[w++] = static_cast<int>(carry); // a word never is behind the limbs it is made of
            carry >>= word_bits;
            bits -= word_bits;
        }
        if (w < words) {
            limb[w] = static_cast<int>(carry);
            carry >>= word_bits;
        }
        negative = carry < 0;
        lowest = words;
        unsigned one = 1; // that two's complement adds
#pragma unroll 4
        for (int i = 0; i < words; i++) {
            if (negative) {
                limb[i] = static_cast<int>(~static_cast<unsigned>(limb[i]) + one);
                one = one != 0 && limb[i] == 0 ? 1 : 0;
            }
            if (limb[i] == 0) continue;
            if (highest < 0) lowest = i;
            highest = i;
        }
    }
    GPR_DEVICE unsigned operator[](int i) const
    {
        return i < lowest || i > highest ? 0 : static_cast<unsigned>(word[i]);
    }
};

// Stores a row's result from its room, which is used up. A single thread's.
template <class Traits>
GPR_CALLED void store_room(typename Traits::Out *out, Room<typename Traits::In> *room,
                           uint64 elements)
{
    using In = typename Traits::In;
    const ThreadLimbs<In> limbs(room->sum.limb[0]);
    Traits::store_limbs(out, limbs, Traits::counts ? room->kept : elements,
                        room->sum.flags[0] | start_at_zero);
}

// Stores the results of all rows of these rooms.
template <class Traits, unsigned BLOCK, class Share>
GPR_DEVICE void store_rooms(const Again<Traits> &again, uint64 elements, const Share &share)
{
    for (unsigned row = threadIdx.x; row < again.here; row += BLOCK) {
        Room<typename Traits::In> *room = again.rooms + row * again.copies;
        if (room->is_left != NOT_LEFT)
            store_room<Traits>(share.result_of(again.first + row), room, elements);
    }
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
        if (room.is_left == NOT_LEFT) continue;
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

// Adds a block's pair, if it is the sum of a share. A single thread's.
template <class Traits>
GPR_CALLED void add_pair(Room<typename Traits::In> *room, const typename Traits::Acc pair)
{
    if constexpr (Traits::counts) add_to_counter(&room->kept, pair.count);
    if (Traits::is_special(pair)) {
        const uint64 saw = is_nan(pair.sum) ? saw_nan
                           : pair.sum < 0   ? saw_minus_infinity
                                            : saw_infinity;
        atomicOr(&room->sum.flags[0], static_cast<unsigned>(saw));
    } else if (Traits::is_pair(pair)) {
#pragma unroll 1
        for (int i = 0; i < 2; i++) add_number(&room->sum, i == 0 ? pair.sum : pair.rest);
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
            if (again.rooms[row[u] * again.copies].is_left != NOT_LEFT)
                add_pair<Traits>(&again.rooms[row[u] * again.copies], pair[u]);
        }
    }
}

// Adds the sums of these rooms to the counters of their rows. All threads of the block must call.
template <class Traits, unsigned BLOCK>
GPR_DEVICE void publish_rooms(const Again<Traits> &again, uint64 *counters)
{
    using In = typename Traits::In;
    constexpr unsigned each = counters_of_row<In>, limbs = limbs_of<In>;

#pragma unroll 1
    for (unsigned i = threadIdx.x; i < again.here * each; i += BLOCK) {
        const unsigned row = i / each, d = i - row * each;
        const Superaccumulator<In> &sum = again.rooms[row * again.copies].sum;
        uint64 *to = counters + static_cast<uint64>(again.first) * each + i;
        if (d < limbs && sum.limb[0][d] != 0)
            atomicAdd(to, static_cast<uint64>(static_cast<long long>(sum.limb[0][d])));
        if (d == limbs + 1 && sum.flags[0] != 0) atomicOr(to, static_cast<uint64>(sum.flags[0]));
    }
}

// What a block does with rows of its group that are left.
template <class Acc> struct RowsAgain {
    unsigned left;       // bit k: the thread's row number_of(k)
    uint64 elements;     // of a row
    bool publishes;      // adds the block's shares to the counters; otherwise stores results
    uint64 *counters;    // of the group, if several blocks share it
    const Acc *partials; // also: of its first block
};

// Adds a block's rows or shares again. One function, as it takes longer to compile than all else.
// All threads must call.
template <class Traits, unsigned BLOCK, class Share>
GPR_CALLED void add_again(RowsAgain<typename Traits::Acc> what, Share share)
{
    const bool merges = share.blocks() > 1 && !what.publishes;

    for_rows_left<Traits, BLOCK>(
        what.left, share,
        [&](const Again<Traits> &again) {
            if (merges) {
                load_counters<Traits, BLOCK>(again, what.counters);
                load_pairs<Traits, BLOCK>(again, what.partials, share.blocks(), share.count());
            } else {
                if constexpr (looks_for_specials<typename Traits::In>)
                    settle_specials<Traits, BLOCK>(again, share);
                share.visit(again);
            }
        },
        [&](const Again<Traits> &again) {
            if (what.publishes) publish_rooms<Traits, BLOCK>(again, what.counters);
            else store_rooms<Traits, BLOCK>(again, what.elements, share);
        });
    if (what.publishes)
        __syncthreads(); // whoever takes the ticket does so after all have published
}

} // namespace gpr
