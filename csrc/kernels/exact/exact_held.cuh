// Exact sums of a row that is a run: from what threads hold in windows to the result, the short way.
//
// Windows that were never moved hold all that was added to them, with what was kept of them when they were full: as many
// integers as there are windows, in units that their place tells. So these integers are summed over a warp, and over the block,
// in units of the windows that lie lowest; and a block that has its row alone makes the result of them at once, in registers.
// Where blocks share a row each leaves them as its partial, and the last block to arrive sums the partials in the same way. What
// the first one has no room for goes to one more integer above it.
//
// What does not go so goes into the block's number in shared memory: elements that windows do not hold, what windows held before
// they were moved, and integers whose units are too far apart. If there is such a number, it goes to the row's counters in
// global memory, digit by digit, and the row takes longer. Infinities and NaN are flags alone; and a row's only element that windows
// do not hold stays by itself until the sum is rounded.
#pragma once

#include "exact_block.cuh"

namespace gpr {

constexpr int held_bits = 62; // as ShortSum takes them
constexpr int small_bits = held_bits - 5;
constexpr int held_flag_bits = 4;
static_assert(saw_digits == 1u << (2 * held_flag_bits), "behind the flags of two parts");

// What windows at one place hold, of some threads: number 0 of a part is above the first window, as that is above the second.
template <class In> struct Held {
    using T = PartType<In>;
    static constexpr unsigned parts = parts_of<In>, windows = near_windows<T>, numbers = windows + 1;
    static constexpr unsigned usual = windows > 1 ? 2 : 1; // the first number in which there usually is something
    using Short = ShortSum<windows, window_step>;
    long long number[parts][numbers]; // below 2^held_bits in magnitude
    int top;
    unsigned flags; // part p's from bit p * held_flag_bits on, saw_digits, saw_specials and saw_alone

    GPR_DEVICE bool is_zero() const
    {
        long long bits = 0;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
#pragma unroll
            for (unsigned w = 0; w < numbers; w++) bits |= number[p][w];
        }
        return bits == 0;
    }
    // Whether there is something in number w of a part.
    GPR_DEVICE bool has(unsigned w) const
    {
        long long bits = 0;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) bits |= number[p][w];
        return bits != 0;
    }
    // The place of number w of a part.
    static GPR_DEVICE int place_at(int top, unsigned w)
    {
        return NearWindows<T>::place_at(top, 0) + window_step - static_cast<int>(w) * window_step;
    }
    GPR_DEVICE void clear()
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
#pragma unroll
            for (unsigned w = 0; w < numbers; w++) number[p][w] = 0;
        }
    }
    // Takes the flags that are in the number of its row.
    GPR_DEVICE void take_flags(const BlockSum<In> &sum)
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) flags |= sum.flags[p] << p * held_flag_bits;
    }
    GPR_DEVICE unsigned flags_of(unsigned p) const
    {
        constexpr unsigned all = saw_infinity | saw_minus_infinity | saw_nan | saw_not_minus_zero;
        return flags >> p * held_flag_bits & all;
    }
    // What a part's windows hold, if it has nothing above them.
    GPR_DEVICE Short sum_of(unsigned p) const
    {
        Short sum;
#pragma unroll
        for (unsigned w = 0; w < windows; w++) sum.number[w] = number[p][w + 1];
        sum.unit = grid_lowest<T> + NearWindows<T>::place_at(top, windows - 1);
        return sum;
    }
    // Whether 32 of them can be added, and none has anything above its windows: as is mostly so.
    GPR_DEVICE bool is_small() const
    {
        uint64 beyond = 0;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            beyond |= static_cast<uint64>(number[p][0]);
#pragma unroll
            for (unsigned w = 1; w < numbers; w++) {
                beyond |= (static_cast<uint64>(number[p][w]) + (1ull << small_bits)) >> (small_bits + 1);
            }
        }
        return beyond == 0;
    }
    // The same in units 2^by smaller, if that can be. What is too much for a number goes to the one before.
    GPR_DEVICE bool shift(unsigned by)
    {
        constexpr unsigned most_shift = window_step - 2;
        const unsigned shift = by < most_shift ? by : most_shift;
        const long long most = 1ll << (small_bits - 1 - shift);
        bool fits = shift == by;

#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            carry(p, 0);
            fits = fits && number[p][0] > -most && number[p][0] < most;
            carry(p, shift);
        }
        return fits;
    }
    GPR_DEVICE void carry(unsigned p, unsigned shift)
    {
        const unsigned kept = window_step - shift; // bits that stay in their number
        long long carried = 0;

#pragma unroll
        for (unsigned w = numbers - 1; w > 0; w--) {
            const long long whole = number[p][w];
            number[p][w] = ((whole & ((1ll << kept) - 1)) << shift) + carried;
            carried = whole >> kept;
        }
        number[p][0] = static_cast<long long>(static_cast<uint64>(number[p][0]) << shift) + carried;
    }
    // Adds what others hold, if there is room; says whether there was.
    GPR_DEVICE bool join(const Held &other)
    {
        if (top != other.top || !is_small() || !other.is_small()) {
            const Joined joined = join_any(*this, other);
            *this = joined.held; // as it was, if not: to ask first takes registers that the loop over tiles has
            return joined.fits;
        }
        flags |= other.flags;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
#pragma unroll
            for (unsigned w = 1; w < numbers; w++) number[p][w] += other.number[p][w];
        }
        return true;
    }

    // Takes what is above the windows into the first one, if then it is small.
    GPR_DEVICE void lower()
    {
        constexpr long long most = 1ll << (small_bits - 1 - window_step);
        bool fits = true;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            carry(p, 0);
            fits = fits && number[p][0] > -most && number[p][0] < most;
        }
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            number[p][1] += fits ? static_cast<long long>(static_cast<uint64>(number[p][0]) << window_step) : 0;
            number[p][0] = fits ? 0 : number[p][0];
        }
    }

    // What is seldom needed comes by calls, and the program of what is needed is short: it is fetched as it is run.
    struct Joined;
    static GPR_CALLED Joined join_any(Held mine, Held other);
};
template <class In> struct Held<In>::Joined {
    Held held;
    bool fits;
};
template <class In> GPR_CALLED typename Held<In>::Joined Held<In>::join_any(Held mine, Held other)
{
    const Held before = mine;
    if (mine.is_zero()) mine.top = other.top;
    if (other.is_zero()) other.top = mine.top;
    const int lower = mine.top < other.top ? mine.top : other.top;
    const bool fits = mine.shift(static_cast<unsigned>(mine.top - lower));
    if (!other.shift(static_cast<unsigned>(other.top - lower)) || !fits) return Joined{before, false};
    mine.top = lower;
    mine.flags |= other.flags;
#pragma unroll
    for (unsigned p = 0; p < parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < numbers; w++) mine.number[p][w] += other.number[p][w];
    }
    return Joined{mine, true};
}

// What is seldom needed: the same as held.lower().
template <class In> GPR_CALLED Held<In> lowered(Held<In> held)
{
    held.lower();
    return held;
}

// As words that lie `step` words from each other.
template <class In> constexpr unsigned words_of_held = Held<In>::parts * Held<In>::numbers + 1;
template <class In> GPR_DEVICE void store_held(uint64 *at, uint64 step, const Held<In> &held)
{
#pragma unroll
    for (unsigned p = 0; p < held.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < held.numbers; w++) at[(p * held.numbers + w) * step] = static_cast<uint64>(held.number[p][w]);
    }
    at[(words_of_held<In> - 1) * step] = static_cast<uint64>(held.flags) << word_bits | static_cast<unsigned>(held.top);
}
template <class In> GPR_DEVICE Held<In> load_held(const uint64 *at, uint64 step)
{
    Held<In> held;
#pragma unroll
    for (unsigned p = 0; p < held.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < held.numbers; w++) held.number[p][w] = static_cast<long long>(at[(p * held.numbers + w) * step]);
    }
    const uint64 last = at[(words_of_held<In> - 1) * step];
    held.top = static_cast<int>(last);
    held.flags = static_cast<unsigned>(last >> word_bits);
    return held;
}

// ---------------------------------------------------------------- a team's ----------------------

// What a team's windows hold with what was kept of them. The whole team must call.
template <class Team, class In> GPR_CALLED Held<In> with_kept(Held<In> held)
{
    Team::meet(); // what was kept can be read
#pragma unroll
    for (unsigned p = 0; p < held.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < held.windows; w++) held.number[p][w + 1] += Team::template kept<In>(p, w);
    }
    held.lower();
    return held;
}

// What a team's windows hold, and what was kept of them. There may be more in its row's number, if flags say so. The whole team
// must call, and gets it.
template <class Adder> GPR_DEVICE Held<typename Adder::In> hold(Adder &adder)
{
    using Team = decltype(adder.team);
    Held<typename Adder::In> held = {};

    if (adder.adds == 0 && adder.elsewhere == 0) return held; // no element came here

    held.top = adder.near[0].top;
    held.flags = adder.elsewhere;
#pragma unroll
    for (unsigned p = 0; p < held.parts; p++) {
        long long number[held.windows];
        int place[held.windows];
        adder.near[p].read(number, place);
#pragma unroll
        for (unsigned w = 0; w < held.windows; w++) held.number[p][w + 1] = Team::total(number[w]);
        const bool has_others = (held.parts == 1 ? adder.others : adder.others >> p & 1) != 0;
        if (Team::any(has_others)) held.flags |= static_cast<unsigned>(saw_not_minus_zero) << p * held_flag_bits;
    }
    if constexpr (masked || Adder::skips_nan) adder.leave_left_out();
    if constexpr (Team::keeps) return adder.times_kept() > 0 ? with_kept<Team>(held) : held;
    else return held;
}

// ---------------------------------------------------------------- those of several --------------

// Adds what all lanes of a warp hold, once, to the block's number. All lanes must call.
template <class In> GPR_DEVICE void add_held(BlockSum<In> &sum, const Held<In> &held)
{
    constexpr unsigned numbers = Held<In>::numbers, halves = 2;
    static_assert(numbers * halves <= most_numbers, "a lane adds one piece");
    const unsigned lane = threadIdx.x % warp_lanes, mine = lane / pieces / halves;
    const bool is_upper = lane / pieces % halves != 0;

#pragma unroll
    for (unsigned p = 0; p < Held<In>::parts; p++) {
        long long number = 0;
#pragma unroll
        for (unsigned w = 0; w < numbers; w++) number = w == mine ? held.number[p][w] : number;
        number = is_upper ? number >> half_bits : number & ((1ll << half_bits) - 1);
        const int place = Held<In>::place_at(held.top, mine) + (is_upper ? half_bits : 0);
        if (number != 0) add_piece(sum.digit[p], number, place, lane % pieces);
        if (held.flags_of(p) != 0 && lane == p) atomicOr(&sum.flags[p], held.flags_of(p));
    }
}

// Adds what each lane holds to the block's number. All lanes must call.
template <class In> GPR_CALLED void add_each(BlockSum<In> &sum, Held<In> mine)
{
    for (unsigned lane = 0; lane < warp_lanes; lane++) add_held(sum, shuffle_from(mine, static_cast<int>(lane)));
}

// The sum of what the lanes of a warp hold, in all of them. What cannot be summed so is added to the block's number. All
// lanes must call.
template <class In> GPR_CALLED Held<In> sum_of_any_lanes(BlockSum<In> &sum, Held<In> mine)
{
    Held<In> all = mine;
    const bool counts = !mine.is_zero();

    all.top = static_cast<int>(warp_min(counts ? static_cast<unsigned>(mine.top) : ~0u));
    all.flags = warp_or(mine.flags);
    if (__any_sync(all_lanes, !all.shift(counts ? static_cast<unsigned>(mine.top - all.top) : 0))) {
        add_each(sum, mine);
        all.clear();
        all.flags = saw_digits | (all.flags & saw_alone);
        return all;
    }
#pragma unroll
    for (unsigned p = 0; p < all.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < all.numbers; w++) all.number[p][w] = warp_total(all.number[p][w]);
    }
    all.lower();
    return all;
}

// The same, of which the first SOME lanes hold something, mostly in windows at the first one's place, and often nothing in
// the first windows. It is summed before it is known whether it may be, so that nobody waits for that.
template <unsigned SOME, class In> GPR_DEVICE Held<In> sum_of_lanes(BlockSum<In> &sum, const Held<In> &mine)
{
    Held<In> all = mine;
    const auto add_number = [&](unsigned p, unsigned w) {
        all.number[p][w] = SOME <= few_lanes ? sum_of_few<small_bits>(mine.number[p][w]) : warp_total(mine.number[p][w]);
    };

    all.top = shuffle_from(mine.top, 0);
    const bool are_alike = __all_sync(all_lanes, (mine.top == all.top || mine.is_zero()) && mine.is_small());
    const bool has_first = all.usual > 1 && __any_sync(all_lanes, mine.has(1));
    all.flags = warp_or(mine.flags);
#pragma unroll
    for (unsigned p = 0; p < all.parts; p++) {
#pragma unroll
        for (unsigned w = all.usual; w < all.numbers; w++) add_number(p, w);
    }
    if (!are_alike) return sum_of_any_lanes(sum, mine);
    if (has_first) {
#pragma unroll
        for (unsigned p = 0; p < all.parts; p++) add_number(p, 1);
    }
    return all;
}

// ---------------------------------------------------------------- a row's -----------------------

// use(p, d, counter) for the digits d of a sum's parts p, which are that counter of their row's. The lanes of one warp must
// call.
template <class In, class Use> GPR_DEVICE void for_each_digit(const Use &use)
{
    constexpr unsigned digits = digits_of<PartType<In>>;
#pragma unroll 1
    for (unsigned i = threadIdx.x % warp_lanes; i < parts_of<In> * digits; i += warp_lanes) {
        const unsigned p = parts_of<In> == 1 ? 0 : i / digits, d = i - p * digits;
        use(p, d, p * counters_of_part<PartType<In>> + d);
    }
}

// The element that a row's blocks have by itself, of part p: its bits, where other kernels have that part's flags.
template <class In> GPR_DEVICE uint64 *alone_among(uint64 *counters, unsigned p)
{
    return counters + p * counters_of_part<PartType<In>> + digits_of<PartType<In>> + 1;
}
// The one that the block has.
template <class In> GPR_DEVICE PartType<In> number_alone(unsigned p)
{
    using T = PartType<In>;
    return bit_copy<T>(static_cast<Bits<T>>(RunTeam::alone<In>()[p]));
}

// Leaves the element that the block has by itself to its row, or adds it to the block's number if the row has one already. Says
// whether it did that. The lanes of one warp must call.
template <class In> GPR_DEVICE bool leave_alone(BlockSum<In> &sum, uint64 *counters)
{
    const unsigned p = threadIdx.x % warp_lanes;
    bool is_added = false;

    if (p < parts_of<In>) {
        const uint64 bits = RunTeam::alone<In>()[p];
        is_added = bits != 0 && atomicCAS(alone_among<In>(counters, p), 0ull, bits) != 0;
        if (is_added) add_digits(sum.digit[p], number_alone<In>(p));
    }
    __syncwarp(); // lane 0 takes the ticket after all have left theirs
    return __any_sync(all_lanes, is_added) != 0;
}

// Takes the element that the row's blocks have by itself, and leaves zero. The lanes of one warp must call.
template <class In> GPR_DEVICE void take_alone(uint64 *counters)
{
    const unsigned p = threadIdx.x % warp_lanes;
    if (p < parts_of<In>) {
        RunTeam::alone<In>()[p] = *alone_among<In>(counters, p);
        *alone_among<In>(counters, p) = 0;
    }
    __syncwarp(); // it can be read
}

// Adds the block's number to its row's counters; then it is zero. The lanes of one warp must call, after all have added.
template <class In> GPR_DEVICE void leave_number(BlockSum<In> &sum, uint64 *counters)
{
    __syncwarp(); // what was added to it is there
    const uint64 left_out = sum.left_out;
    for_each_digit<In>([&](unsigned p, unsigned d, unsigned counter) {
        const long long digit = sum.digit[p][d];
        if (digit != 0) atomicAdd(counters + counter, static_cast<uint64>(digit));
        sum.digit[p][d] = 0;
    });
    __syncwarp(); // the count has been read; and lane 0 takes the ticket after all have added
    if (threadIdx.x % warp_lanes < parts_of<In>) sum.flags[threadIdx.x % warp_lanes] = 0;
    if (threadIdx.x % warp_lanes != 0) return;
    if (left_out != 0) atomicAdd(counters + digits_of<PartType<In>>, left_out);
    sum.left_out = 0;
}

// Adds the counters of a row to the block's number, and leaves them zero. The lanes of one warp must call.
template <class In> GPR_DEVICE void take_number(BlockSum<In> &sum, uint64 *counters)
{
    using T = PartType<In>;
    constexpr unsigned digits = digits_of<T>, chunks = (digits + warp_lanes - 1) / warp_lanes;
    const unsigned lane = threadIdx.x % warp_lanes;

#pragma unroll 1
    for (unsigned p = 0; p < parts_of<In>; p++, counters += counters_of_part<T>) {
        long long number[chunks];
#pragma unroll
        for (unsigned c = 0; c < chunks; c++) { // all loads first
            const unsigned d = c * warp_lanes + lane;
            number[c] = d < digits ? static_cast<long long>(counters[d]) : 0;
        }
#pragma unroll
        for (unsigned c = 0; c < chunks; c++) {
            const unsigned d = c * warp_lanes + lane;
            if (number[c] == 0) continue;
            const long long one[1] = {number[c]};
            const int place[1] = {static_cast<int>(d) * digit_bits};
            counters[d] = 0;
            LoneThread<1>::add(sum.digit[p], one, place);
        }
        if (p != 0 || lane != 0) continue;
        if (counters[digits] == 0) continue;
        sum.left_out = counters[digits];
        counters[digits] = 0;
    }
}

// Something of a row is not in the windows, which is seldom so: what comes of it then.
constexpr unsigned saw_apart = saw_digits | saw_specials | saw_alone;

// What a block holds, with the flags in its number. What is neither goes where the last block finds it, if there are several: among
// the row's `counters`, or NULL. The lanes of one warp must call, after all have added.
template <class In> GPR_CALLED Held<In> leave_apart(BlockSum<In> &sum, Held<In> held, uint64 *counters)
{
    __syncwarp(); // what this warp added last is there
    held.take_flags(sum);
    held.flags &= ~saw_specials;
    __syncwarp(); // all lanes have read them
    if (counters == nullptr) return held;
    if ((held.flags & saw_alone) != 0 && leave_alone(sum, counters)) held.flags |= saw_digits;
    if ((held.flags & saw_digits) != 0) leave_number(sum, counters);
    return held;
}

// Takes what blocks left there. The lanes of one warp must call.
template <class In> GPR_CALLED void take_apart(BlockSum<In> &sum, unsigned flags, uint64 *counters)
{
    if ((flags & saw_alone) != 0) take_alone<In>(counters);
    if ((flags & saw_digits) != 0) take_number(sum, counters);
}

// Sums a warp's share of the partials of a row's blocks. All lanes must call, and get it.
template <unsigned BLOCK, class In>
GPR_DEVICE Held<In> take_partials(BlockSum<In> &sum, const Held<In> *partials, unsigned blocks)
{
    using Partial = Held<In>;
    const unsigned warp_begin = threadIdx.x / warp_lanes * warp_lanes;
    const auto load = [&](unsigned b) { return b < blocks ? partials[b] : Partial{}; };

    if (warp_begin >= blocks) return Partial{};
    Partial all = load(threadIdx.x), next = load(threadIdx.x + BLOCK);
    unsigned left_flags = 0; // of those that there was no room for
#pragma unroll 1
    for (unsigned first = BLOCK; warp_begin + first < blocks; first += BLOCK) {
        const Partial now = next;
        next = load(threadIdx.x + first + BLOCK);
        const bool fits = threadIdx.x + first >= blocks || all.join(now);
        if (__any_sync(all_lanes, !fits)) {
            add_each(sum, fits ? Partial{} : now);
            left_flags |= saw_digits | (now.flags & saw_alone);
        }
    }
    all.flags |= left_flags;
    return sum_of_lanes<warp_lanes>(sum, all);
}

// Puts what the first warp has of a whole row, and what is in the block's number or by itself. All its lanes must call.
template <class Traits>
GPR_CALLED void put_digits(typename Traits::Out *out, BlockSum<typename Traits::In> &sum, const Held<typename Traits::In> all, uint64 n)
{
    __shared__ typename Traits::Acc room;
    const unsigned p = threadIdx.x % warp_lanes;
    add_held(sum, all);
    if ((all.flags & saw_alone) != 0 && p < parts_of<typename Traits::In>) {
        add_digits(sum.digit[p], number_alone<typename Traits::In>(p));
    }
    put_sum<Traits>(out, room, sum, n);
}
template <class Traits> constexpr bool puts_short = !same<typename Traits::Out, typename Traits::Acc>; // which leave as digits
// The same by one thread, of a row that has nothing in a number, if puts_short. ONE: something is by itself.
template <class Traits, bool ONE>
GPR_DEVICE void put_short(typename Traits::Out *out, const Held<typename Traits::In> &all, uint64 n)
{
    using In = typename Traits::In;
    using Short = typename Held<In>::Short;
    typename Select<ONE, ShortSum<far_numbers, window_step>, Short>::type sums[Held<In>::parts];
    uint64 flags[Held<In>::parts];
#pragma unroll
    for (unsigned p = 0; p < Held<In>::parts; p++) {
        if constexpr (ONE) sums[p] = with_one(all.sum_of(p), number_alone<In>(p));
        else sums[p] = all.sum_of(p);
        flags[p] = all.flags_of(p);
    }
    Traits::store(out, sums, n, flags);
}
template <class Traits> GPR_CALLED void put_with_one(typename Traits::Out *out, const Held<typename Traits::In> all, uint64 n)
{
    put_short<Traits, true>(out, all, n);
}
// Whichever it is; none is by itself unless ANY is.
template <class Traits, bool ANY>
GPR_DEVICE void put_held(typename Traits::Out *out, BlockSum<typename Traits::In> &sum, const Held<typename Traits::In> &all, uint64 n)
{
    if constexpr (puts_short<Traits>) {
        if ((all.flags & saw_digits) == 0 && !all.has(0)) {
            if (threadIdx.x != 0) return;
            if (ANY && (all.flags & saw_alone) != 0) put_with_one<Traits>(out, all, n);
            else put_short<Traits, false>(out, all, n);
            return;
        }
    }
    put_digits<Traits>(out, sum, all, n);
}

// What the block's warps hold, a place for each.
template <class In, unsigned BLOCK> GPR_DEVICE Held<In> *held_by_warps()
{
    __shared__ Held<In> held[BLOCK / warp_lanes];
    return held;
}

// Sums them. The result is the first warp's. All threads must call, after all have found what they have.
template <unsigned BLOCK, class In> GPR_DEVICE Held<In> sum_of_warps(BlockSum<In> &sum)
{
    constexpr unsigned warps = BLOCK / warp_lanes;
    const unsigned lane = threadIdx.x;
    if (lane >= warp_lanes) return Held<In>{};
    return sum_of_lanes<warps>(sum, lane < warps ? held_by_warps<In, BLOCK>()[lane] : Held<In>{});
}

// Puts the sum of the block's row, if it has that alone and all its warps know what they hold, as is mostly so; says whether
// it did. All threads must call; a block barrier is passed.
template <class Traits, unsigned BLOCK>
GPR_DEVICE bool finish_alone(const Held<typename Traits::In> &held, bool is_held, const Row &row, typename Traits::Out *out)
{
    using In = typename Traits::In;
    BlockSum<In> &sum = block_sum<In>();

    if (row.blocks > 1) return false;
    if (threadIdx.x % warp_lanes == 0) held_by_warps<In, BLOCK>()[threadIdx.x / warp_lanes] = held;
    if (!__syncthreads_and(is_held)) return false; // what all warps hold is there
    const Held<In> all = sum_of_warps<BLOCK>(sum);
    if (threadIdx.x < warp_lanes) put_held<Traits, false>(out, sum, all, row.n); // of tiles that windows hold
    return true;
}

// Puts the sum of the block's row, of which each warp holds some, or leaves what the block has found where the last block
// puts it. All threads must call. Counters and partials of `slots` rows are in scratch.
template <class Traits, unsigned BLOCK>
GPR_DEVICE void finish_run(const Held<typename Traits::In> &held, const Row &row, const Scratch<typename Traits::Acc> &scratch,
                           unsigned slots, typename Traits::Out *out)
{
    using In = typename Traits::In;
    BlockSum<In> &sum = block_sum<In>();
    Held<In> *by_warps = held_by_warps<In, BLOCK>();
    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;

    if (lane == 0) by_warps[warp] = held;
    __syncthreads(); // all warps have found what they have
    Held<In> all = sum_of_warps<BLOCK>(sum);
    if (row.blocks == 1) {
        if (warp == 0 && (all.flags & saw_apart) != 0) all = leave_apart(sum, all, nullptr);
    } else {
        constexpr unsigned words = sizeof(uint64) / sizeof(unsigned);
        constexpr unsigned counters = parts_of<In> * counters_of_part<PartType<In>>;
        const uint64 slot = row.index < slots ? row.index : row.index % slots;
        unsigned *ticket = scratch.tickets + slot * words * (1 + counters);
        uint64 *totals = reinterpret_cast<uint64 *>(ticket) + 1;
        if (warp == 0 && (all.flags & saw_apart) != 0) all = leave_apart(sum, all, totals);
        Held<In> *partials = reinterpret_cast<Held<In> *>(scratch.partials()) + slot * row.blocks;
        if (!is_last_block(partials + row.block, all, ticket, row.blocks)) return;
        all = take_partials<BLOCK>(sum, partials, row.blocks);
        if (row.blocks > warp_lanes) { // if not, the first warp has them
            if (lane == 0) by_warps[warp] = all;
            __syncthreads(); // all warps have their share
            all = sum_of_warps<BLOCK>(sum);
        }
        if (warp == 0 && (all.flags & saw_apart) != 0) take_apart(sum, all.flags, totals);
    }
    if (warp == 0) put_held<Traits, true>(out, sum, all, row.n);
}

} // namespace gpr
