// Exact sums of a row that is a run: from the bins of threads to the result, by limb partials.
//
// Bins that were never moved hold, with what they spilled, all that was added to them: one integer
// per bin, 42 bits apart, in units that the bins' place tells. A limb partial is these integers,
// and one more above them for carries:
//
//     limb[p][0]   limb[p][1]   limb[p][2] ...   of part p; bin w is limb w + 1
//     above bins   bin 0        bin 1            each in units 2^42 times those of the next one
//
//     warp     the lanes' bins are summed into a partial             (partial_of, partial_of_tile)
//     block    warp 0 merges those of all warps                      (merge_warps)
//     row      a block that has its row alone rounds its partial in registers; of several each
//              publishes its partial, and the last one to arrive merges them (merge_partials)
//
// Bounds. Every limb stays below 2^62 in magnitude, which ShortSum takes. A partial is small if its
// limbs are below 2^57 and there is nothing above the bins: 32 small ones at one place are added as
// they are, below 2^62. Others are shifted to the units of the lowest bins among them, by s <= 40:
// carried first, so that limbs are below 2^42, then shifted and carried to below 2^43; the limb
// above must be below 2^(56 - s) before, so that it is below 2^57 after it. What does not fit is
// added to the block's superaccumulator.
//
// That takes too what bins do not hold, and what bins held before they were moved. If there is any,
// it goes by the row's counters in global memory, limb by limb (exact_merge.cuh), and the row takes
// longer. Infinities and NaN are flags alone; and a row's only element that bins do not hold stays
// by itself until the sum is rounded.
#pragma once

#include "exact_block.cuh"

namespace gpr {

constexpr int partial_bits = 62; // as ShortSum takes them
constexpr int small_bits = partial_bits - 5;
constexpr int part_flag_bits = 4;
static_assert(saw_limbs == 1u << (2 * part_flag_bits), "behind the flags of two parts");

// What the bins of some threads hold, which lie at one place.
template <class In> struct LimbPartial {
    using T = PartType<In>;
    static constexpr unsigned parts = parts_of<In>, bins = bin_count<T>, limbs = bins + 1;
    // the first limb in which there usually is something
    static constexpr unsigned usual = bins > 1 ? 2 : 1;
    using Short = ShortSum<bins, bin_step>;
    long long limb[parts][limbs]; // below 2^partial_bits in magnitude
    int top;
    unsigned flags; // of part p from bit p * part_flag_bits on; saw_limbs and the like

    GPR_DEVICE bool is_zero() const
    {
        long long bits = 0;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
#pragma unroll
            for (unsigned w = 0; w < limbs; w++) bits |= limb[p][w];
        }
        return bits == 0;
    }
    // Whether there is something in limb w of a part.
    GPR_DEVICE bool has(unsigned w) const
    {
        long long bits = 0;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) bits |= limb[p][w];
        return bits != 0;
    }
    // The place of limb w of a part.
    static GPR_DEVICE int place_at(int top, unsigned w)
    {
        return DoubleBins<T>::place_at(top, 0) + bin_step - static_cast<int>(w) * bin_step;
    }
    GPR_DEVICE void clear()
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
#pragma unroll
            for (unsigned w = 0; w < limbs; w++) limb[p][w] = 0;
        }
    }
    // Loads the flags that are in the superaccumulator of its row.
    GPR_DEVICE void load_flags(const Superaccumulator<In> &sum)
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) flags |= sum.flags[p] << p * part_flag_bits;
    }
    GPR_DEVICE unsigned flags_of(unsigned p) const
    {
        constexpr unsigned all = saw_infinity | saw_minus_infinity | saw_nan | saw_not_minus_zero;
        return flags >> p * part_flag_bits & all;
    }
    // What a part's bins hold, if it has nothing above them.
    GPR_DEVICE Short sum_of(unsigned p) const
    {
        Short sum;
#pragma unroll
        for (unsigned w = 0; w < bins; w++) sum.limb[w] = limb[p][w + 1];
        sum.unit = lowest_exponent<T> + DoubleBins<T>::place_at(top, bins - 1);
        return sum;
    }
    // Whether 32 of them can be added, and none has anything above its bins: as is mostly so.
    GPR_DEVICE bool is_small() const
    {
        uint64 beyond = 0;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            beyond |= static_cast<uint64>(limb[p][0]);
#pragma unroll
            for (unsigned w = 1; w < limbs; w++) {
                beyond |=
                    (static_cast<uint64>(limb[p][w]) + (1ull << small_bits)) >> (small_bits + 1);
            }
        }
        return beyond == 0;
    }
    // The same in units 2^by smaller, if that can be. What is too much for a number goes to the one
    // before.
    GPR_DEVICE bool shift(unsigned by)
    {
        constexpr unsigned most_shift = bin_step - 2;
        const unsigned shift = by < most_shift ? by : most_shift;
        const long long most = 1ll << (small_bits - 1 - shift);
        bool fits = shift == by;

#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            carry(p, 0);
            fits = fits && limb[p][0] > -most && limb[p][0] < most;
            carry(p, shift);
        }
        return fits;
    }
    GPR_DEVICE void carry(unsigned p, unsigned shift)
    {
        const unsigned kept = bin_step - shift; // bits that stay in their number
        long long carried = 0;

#pragma unroll
        for (unsigned w = limbs - 1; w > 0; w--) {
            const long long whole = limb[p][w];
            limb[p][w] = ((whole & ((1ll << kept) - 1)) << shift) + carried;
            carried = whole >> kept;
        }
        limb[p][0] = static_cast<long long>(static_cast<uint64>(limb[p][0]) << shift) + carried;
    }
    // Adds what others hold, if there is room; says whether there was.
    GPR_DEVICE bool merge(const LimbPartial &other)
    {
        if (top != other.top || !is_small() || !other.is_small()) {
            const Merged merged = merge_any(*this, other);
            // as it was, if not: to ask first takes registers that the loop over tiles has
            *this = merged.partial;
            return merged.fits;
        }
        flags |= other.flags;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
#pragma unroll
            for (unsigned w = 1; w < limbs; w++) limb[p][w] += other.limb[p][w];
        }
        return true;
    }

    // Takes what is above the bins into the first one, if then it is small.
    GPR_DEVICE void absorb_carry()
    {
        constexpr long long most = 1ll << (small_bits - 1 - bin_step);
        bool fits = true;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            carry(p, 0);
            fits = fits && limb[p][0] > -most && limb[p][0] < most;
        }
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            limb[p][1] +=
                fits ? static_cast<long long>(static_cast<uint64>(limb[p][0]) << bin_step) : 0;
            limb[p][0] = fits ? 0 : limb[p][0];
        }
    }

    // What is seldom needed comes by calls, and the program of what is needed is short: it is
    // fetched as it is run.
    struct Merged;
    static GPR_CALLED Merged merge_any(LimbPartial mine, LimbPartial other);
};
template <class In> struct LimbPartial<In>::Merged {
    LimbPartial partial;
    bool fits;
};
template <class In>
GPR_CALLED typename LimbPartial<In>::Merged LimbPartial<In>::merge_any(LimbPartial mine,
                                                                       LimbPartial other)
{
    const LimbPartial before = mine;
    if (mine.is_zero()) mine.top = other.top;
    if (other.is_zero()) other.top = mine.top;
    const int lower = mine.top < other.top ? mine.top : other.top;
    const bool fits = mine.shift(static_cast<unsigned>(mine.top - lower));
    if (!other.shift(static_cast<unsigned>(other.top - lower)) || !fits)
        return Merged{before, false};
    mine.top = lower;
    mine.flags |= other.flags;
#pragma unroll
    for (unsigned p = 0; p < parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < limbs; w++) mine.limb[p][w] += other.limb[p][w];
    }
    return Merged{mine, true};
}

// What is seldom needed: the same as partial.absorb_carry().
template <class In> GPR_CALLED LimbPartial<In> with_absorbed_carry(LimbPartial<In> partial)
{
    partial.absorb_carry();
    return partial;
}

// As words that lie `step` words from each other.
template <class In>
constexpr unsigned words_of_partial = gpr_limb_partial_words(parts_of<In>, sizeof(PartType<In>));
template <class In>
GPR_DEVICE void store_partial(uint64 *at, uint64 step, const LimbPartial<In> &partial)
{
#pragma unroll
    for (unsigned p = 0; p < partial.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < partial.limbs; w++)
            at[(p * partial.limbs + w) * step] = static_cast<uint64>(partial.limb[p][w]);
    }
    at[(words_of_partial<In> - 1) * step] =
        static_cast<uint64>(partial.flags) << word_bits | static_cast<unsigned>(partial.top);
}
template <class In> GPR_DEVICE LimbPartial<In> load_partial(const uint64 *at, uint64 step)
{
    LimbPartial<In> partial;
#pragma unroll
    for (unsigned p = 0; p < partial.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < partial.limbs; w++)
            partial.limb[p][w] = static_cast<long long>(at[(p * partial.limbs + w) * step]);
    }
    const uint64 last = at[(words_of_partial<In> - 1) * step];
    partial.top = static_cast<int>(last);
    partial.flags = static_cast<unsigned>(last >> word_bits);
    return partial;
}

// ---------------------------------------------------------------- a group's ----------------------

// What a group's bins hold with what was kept of them. The whole group must call.
template <class Group, class In> GPR_CALLED LimbPartial<In> with_spilled(LimbPartial<In> partial)
{
    Group::sync(); // what was kept can be read
#pragma unroll
    for (unsigned p = 0; p < partial.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < partial.bins; w++)
            partial.limb[p][w + 1] += Group::template spilled<In>(p, w);
    }
    partial.absorb_carry();
    return partial;
}

// What a group's bins hold, and what was kept of them. There may be more in its row's
// superaccumulator, if flags say so. The whole group must call, and gets it.
template <class Adder> GPR_DEVICE LimbPartial<typename Adder::In> partial_of(Adder &adder)
{
    using Group = decltype(adder.group);
    LimbPartial<typename Adder::In> partial = {};

    if (adder.adds == 0 && adder.outside == 0) return partial; // no element came here

    partial.top = adder.bins[0].top;
    partial.flags = adder.outside;
#pragma unroll
    for (unsigned p = 0; p < partial.parts; p++) {
        long long number[partial.bins];
        int place[partial.bins];
        adder.bins[p].read(number, place);
#pragma unroll
        for (unsigned w = 0; w < partial.bins; w++)
            partial.limb[p][w + 1] = Group::total(number[w]);
        const bool has_others = (partial.parts == 1 ? adder.others : adder.others >> p & 1) != 0;
        if (Group::any(has_others))
            partial.flags |= static_cast<unsigned>(saw_not_minus_zero) << p * part_flag_bits;
    }
    if constexpr (masked || Adder::skips_nan) adder.add_left_out();
    if constexpr (Group::spills)
        return adder.times_spilled() > 0 ? with_spilled<Group>(partial) : partial;
    else return partial;
}

// ---------------------------------------------------------------- those of several --------------

// Adds what all lanes of a warp hold, once, to the block's superaccumulator. All lanes must call.
template <class In>
GPR_DEVICE void add_partial(Superaccumulator<In> &sum, const LimbPartial<In> &partial)
{
    constexpr unsigned limbs = LimbPartial<In>::limbs, halves = 2;
    static_assert(limbs * halves <= most_integers_at_once, "a lane adds one piece");
    const unsigned lane = threadIdx.x % warp_lanes, mine = lane / pieces / halves;
    const bool is_upper = lane / pieces % halves != 0;

#pragma unroll
    for (unsigned p = 0; p < LimbPartial<In>::parts; p++) {
        long long number = 0;
#pragma unroll
        for (unsigned w = 0; w < limbs; w++) number = w == mine ? partial.limb[p][w] : number;
        number = is_upper ? number >> half_bits : number & ((1ll << half_bits) - 1);
        const int place = LimbPartial<In>::place_at(partial.top, mine) + (is_upper ? half_bits : 0);
        if (number != 0) add_piece(sum.limb[p], number, place, lane % pieces);
        if (partial.flags_of(p) != 0 && lane == p) atomicOr(&sum.flags[p], partial.flags_of(p));
    }
}

// Adds what each lane holds to the block's superaccumulator. All lanes must call.
template <class In> GPR_CALLED void add_each(Superaccumulator<In> &sum, LimbPartial<In> mine)
{
    for (unsigned lane = 0; lane < warp_lanes; lane++)
        add_partial(sum, shuffle_from(mine, static_cast<int>(lane)));
}

// The sum of what the lanes of a warp hold, in all of them. What cannot be summed so is added to
// the block's superaccumulator. All lanes must call.
template <class In>
GPR_CALLED LimbPartial<In> merge_any_lanes(Superaccumulator<In> &sum, LimbPartial<In> mine)
{
    LimbPartial<In> all = mine;
    const bool counts = !mine.is_zero();

    all.top = static_cast<int>(warp_min(counts ? static_cast<unsigned>(mine.top) : ~0u));
    all.flags = warp_or(mine.flags);
    if (__any_sync(all_lanes, !all.shift(counts ? static_cast<unsigned>(mine.top - all.top) : 0))) {
        add_each(sum, mine);
        all.clear();
        all.flags = saw_limbs | (all.flags & saw_outlier);
        return all;
    }
#pragma unroll
    for (unsigned p = 0; p < all.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < all.limbs; w++) all.limb[p][w] = warp_total(all.limb[p][w]);
    }
    all.absorb_carry();
    return all;
}

// The same, of which the first SOME lanes hold something, mostly in bins at the first one's place,
// and often nothing in the first bins. It is summed before it is known whether it may be, so that
// nobody waits for that.
template <unsigned SOME, class In>
GPR_DEVICE LimbPartial<In> merge_lanes(Superaccumulator<In> &sum, const LimbPartial<In> &mine)
{
    LimbPartial<In> all = mine;
    const auto add_number = [&](unsigned p, unsigned w) {
        all.limb[p][w] = SOME <= first_lanes ? warp_sum_of_first<small_bits>(mine.limb[p][w])
                                             : warp_total(mine.limb[p][w]);
    };

    all.top = shuffle_from(mine.top, 0);
    const bool are_alike =
        __all_sync(all_lanes, (mine.top == all.top || mine.is_zero()) && mine.is_small());
    const bool has_first = all.usual > 1 && __any_sync(all_lanes, mine.has(1));
    all.flags = warp_or(mine.flags);
#pragma unroll
    for (unsigned p = 0; p < all.parts; p++) {
#pragma unroll
        for (unsigned w = all.usual; w < all.limbs; w++) add_number(p, w);
    }
    if (!are_alike) return merge_any_lanes(sum, mine);
    if (has_first) {
#pragma unroll
        for (unsigned p = 0; p < all.parts; p++) add_number(p, 1);
    }
    return all;
}

// ---------------------------------------------------------------- a row's -----------------------

// use(p, d, counter) for the limbs d of a sum's parts p, which are that counter of their row's. The
// lanes of one warp must call.
template <class In, class Use> GPR_DEVICE void for_each_limb(const Use &use)
{
    constexpr unsigned limbs = limbs_of<PartType<In>>;
#pragma unroll 1
    for (unsigned i = threadIdx.x % warp_lanes; i < parts_of<In> * limbs; i += warp_lanes) {
        const unsigned p = parts_of<In> == 1 ? 0 : i / limbs, d = i - p * limbs;
        use(p, d, p * counters_of_part<PartType<In>> + d);
    }
}

// The element that a row's blocks have by itself, of part p: its bits, where other kernels have
// that part's flags.
template <class In> GPR_DEVICE uint64 *outlier_of_row(uint64 *counters, unsigned p)
{
    return counters + p * counters_of_part<PartType<In>> + limbs_of<PartType<In>> + 1;
}
// The one that the block has.
template <class In> GPR_DEVICE PartType<In> outlier_value(unsigned p)
{
    using T = PartType<In>;
    return bit_copy<T>(static_cast<Bits<T>>(RunGroup::outlier<In>()[p]));
}

// Leaves the element that the block has by itself to its row, or adds it to the block's
// superaccumulator if the row has one already. Says whether it did that. The lanes of one warp must
// call.
template <class In> GPR_DEVICE bool publish_outlier(Superaccumulator<In> &sum, uint64 *counters)
{
    const unsigned p = threadIdx.x % warp_lanes;
    bool is_added = false;

    if (p < parts_of<In>) {
        const uint64 bits = RunGroup::outlier<In>()[p];
        is_added = bits != 0 && atomicCAS(outlier_of_row<In>(counters, p), 0ull, bits) != 0;
        if (is_added) add_to_limbs(sum.limb[p], outlier_value<In>(p));
    }
    __syncwarp(); // lane 0 takes the ticket after all have left theirs
    return __any_sync(all_lanes, is_added) != 0;
}

// Takes the element that the row's blocks have by itself, and leaves zero. The lanes of one warp
// must call.
template <class In> GPR_DEVICE void load_outlier(uint64 *counters)
{
    const unsigned p = threadIdx.x % warp_lanes;
    if (p < parts_of<In>) {
        RunGroup::outlier<In>()[p] = *outlier_of_row<In>(counters, p);
        *outlier_of_row<In>(counters, p) = 0;
    }
    __syncwarp(); // it can be read
}

// Adds the block's superaccumulator to its row's counters; then it is zero. The lanes of one warp
// must call, after all have added.
template <class In>
GPR_DEVICE void publish_superaccumulator(Superaccumulator<In> &sum, uint64 *counters)
{
    __syncwarp(); // what was added to it is there
    const uint64 left_out = sum.left_out;
    for_each_limb<In>([&](unsigned p, unsigned d, unsigned counter) {
        const long long limb = sum.limb[p][d];
        if (limb != 0) atomicAdd(counters + counter, static_cast<uint64>(limb));
        sum.limb[p][d] = 0;
    });
    __syncwarp(); // the count has been read; and lane 0 takes the ticket after all have added
    if (threadIdx.x % warp_lanes < parts_of<In>) sum.flags[threadIdx.x % warp_lanes] = 0;
    if (threadIdx.x % warp_lanes != 0) return;
    if (left_out != 0) atomicAdd(counters + limbs_of<PartType<In>>, left_out);
    sum.left_out = 0;
}

// Adds the counters of a row to the block's superaccumulator, and leaves them zero. The lanes of
// one warp must call.
template <class In>
GPR_DEVICE void load_superaccumulator(Superaccumulator<In> &sum, uint64 *counters)
{
    using T = PartType<In>;
    constexpr unsigned limbs = limbs_of<T>, chunks = (limbs + warp_lanes - 1) / warp_lanes;
    const unsigned lane = threadIdx.x % warp_lanes;

#pragma unroll 1
    for (unsigned p = 0; p < parts_of<In>; p++, counters += counters_of_part<T>) {
        long long number[chunks];
#pragma unroll
        for (unsigned c = 0; c < chunks; c++) { // all loads first
            const unsigned d = c * warp_lanes + lane;
            number[c] = d < limbs ? static_cast<long long>(counters[d]) : 0;
        }
#pragma unroll
        for (unsigned c = 0; c < chunks; c++) {
            const unsigned d = c * warp_lanes + lane;
            if (number[c] == 0) continue;
            const long long one[1] = {number[c]};
            const int place[1] = {static_cast<int>(d) * limb_bits};
            counters[d] = 0;
            SingleThread<1>::add(sum.limb[p], one, place);
        }
        if (p != 0 || lane != 0) continue;
        if (counters[limbs] == 0) continue;
        sum.left_out = counters[limbs];
        counters[limbs] = 0;
    }
}

// Something of a row is not in the bins, which is seldom so: what comes of it then.
constexpr unsigned saw_outside = saw_limbs | saw_specials | saw_outlier;

// What a block holds, with the flags in its number. What is neither goes where the last block finds
// it, if there are several: among the row's `counters`, or NULL. The lanes of one warp must call,
// after all have added.
template <class In>
GPR_CALLED LimbPartial<In> publish_outside(Superaccumulator<In> &sum, LimbPartial<In> partial,
                                           uint64 *counters)
{
    __syncwarp(); // what this warp added last is there
    partial.load_flags(sum);
    partial.flags &= ~saw_specials;
    __syncwarp(); // all lanes have read them
    if (counters == nullptr) return partial;
    if ((partial.flags & saw_outlier) != 0 && publish_outlier(sum, counters))
        partial.flags |= saw_limbs;
    if ((partial.flags & saw_limbs) != 0) publish_superaccumulator(sum, counters);
    return partial;
}

// Takes what blocks left there. The lanes of one warp must call.
template <class In>
GPR_CALLED void load_outside(Superaccumulator<In> &sum, unsigned flags, uint64 *counters)
{
    if ((flags & saw_outlier) != 0) load_outlier<In>(counters);
    if ((flags & saw_limbs) != 0) load_superaccumulator(sum, counters);
}

// Sums a warp's share of the partials of a row's blocks. All lanes must call, and get it.
template <unsigned BLOCK, class In>
GPR_DEVICE LimbPartial<In> merge_partials(Superaccumulator<In> &sum,
                                          const LimbPartial<In> *partials, unsigned blocks)
{
    using Partial = LimbPartial<In>;
    const unsigned warp_begin = threadIdx.x / warp_lanes * warp_lanes;
    const auto load = [&](unsigned b) { return b < blocks ? partials[b] : Partial{}; };

    if (warp_begin >= blocks) return Partial{};
    Partial all = load(threadIdx.x), next = load(threadIdx.x + BLOCK);
    unsigned left_flags = 0; // of those that there was no room for
#pragma unroll 1
    for (unsigned first = BLOCK; warp_begin + first < blocks; first += BLOCK) {
        const Partial now = next;
        next = load(threadIdx.x + first + BLOCK);
        const bool fits = threadIdx.x + first >= blocks || all.merge(now);
        if (__any_sync(all_lanes, !fits)) {
            add_each(sum, fits ? Partial{} : now);
            left_flags |= saw_limbs | (now.flags & saw_outlier);
        }
    }
    all.flags |= left_flags;
    return merge_lanes<warp_lanes>(sum, all);
}

// Stores what the first warp has of a whole row, and what is in the block's superaccumulator or by
// itself. All its lanes must call.
template <class Traits>
GPR_CALLED void store_from_limbs(typename Traits::Out *out,
                                 Superaccumulator<typename Traits::In> &sum,
                                 const LimbPartial<typename Traits::In> all, uint64 n)
{
    __shared__ typename Traits::Acc room;
    const unsigned p = threadIdx.x % warp_lanes;
    add_partial(sum, all);
    if ((all.flags & saw_outlier) != 0 && p < parts_of<typename Traits::In>) {
        add_to_limbs(sum.limb[p], outlier_value<typename Traits::In>(p));
    }
    store_sum<Traits>(out, room, sum, n);
}
// which leave as limbs
template <class Traits>
constexpr bool stores_short = !same<typename Traits::Out, typename Traits::Acc>;
// The same by one thread, of a row that has nothing in a number, if stores_short. ONE: something is
// by itself.
template <class Traits, bool ONE>
GPR_DEVICE void store_short(typename Traits::Out *out, const LimbPartial<typename Traits::In> &all,
                            uint64 n)
{
    using In = typename Traits::In;
    using Short = typename LimbPartial<In>::Short;
    typename Select<ONE, ShortSum<far_limbs, bin_step>, Short>::type sums[LimbPartial<In>::parts];
    uint64 flags[LimbPartial<In>::parts];
#pragma unroll
    for (unsigned p = 0; p < LimbPartial<In>::parts; p++) {
        if constexpr (ONE) sums[p] = with_outlier(all.sum_of(p), outlier_value<In>(p));
        else sums[p] = all.sum_of(p);
        flags[p] = all.flags_of(p);
    }
    Traits::store(out, sums, n, flags);
}
template <class Traits>
GPR_CALLED void store_with_outlier(typename Traits::Out *out,
                                   const LimbPartial<typename Traits::In> all, uint64 n)
{
    store_short<Traits, true>(out, all, n);
}
// Whichever it is; none is by itself unless ANY is.
template <class Traits, bool ANY>
GPR_DEVICE void store_result(typename Traits::Out *out, Superaccumulator<typename Traits::In> &sum,
                             const LimbPartial<typename Traits::In> &all, uint64 n)
{
    if constexpr (stores_short<Traits>) {
        if ((all.flags & saw_limbs) == 0 && !all.has(0)) {
            if (threadIdx.x != 0) return;
            if (ANY && (all.flags & saw_outlier) != 0) store_with_outlier<Traits>(out, all, n);
            else store_short<Traits, false>(out, all, n);
            return;
        }
    }
    store_from_limbs<Traits>(out, sum, all, n);
}

// What the block's warps hold, a place for each.
template <class In, unsigned BLOCK> GPR_DEVICE LimbPartial<In> *partials_of_warps()
{
    __shared__ LimbPartial<In> all[BLOCK / warp_lanes];
    return all;
}

// Sums them. The result is the first warp's. All threads must call, after all have found what they
// have.
template <unsigned BLOCK, class In>
GPR_DEVICE LimbPartial<In> merge_warps(Superaccumulator<In> &sum)
{
    constexpr unsigned warps = BLOCK / warp_lanes;
    const unsigned lane = threadIdx.x;
    if (lane >= warp_lanes) return LimbPartial<In>{};
    return merge_lanes<warps>(sum, lane < warps ? partials_of_warps<In, BLOCK>()[lane]
                                                : LimbPartial<In>{});
}

// Stores the sum of the block's row, if it has that alone and all its warps know what they hold, as
// is mostly so; says whether it did. All threads must call; a block barrier is passed.
template <class Traits, unsigned BLOCK>
GPR_DEVICE bool finalize_row_of_block(const LimbPartial<typename Traits::In> &partial,
                                      bool is_complete, const Row &row, typename Traits::Out *out)
{
    using In = typename Traits::In;
    Superaccumulator<In> &sum = block_superaccumulator<In>();

    if (row.blocks > 1) return false;
    if (threadIdx.x % warp_lanes == 0)
        partials_of_warps<In, BLOCK>()[threadIdx.x / warp_lanes] = partial;
    if (!__syncthreads_and(is_complete)) return false; // what all warps hold is there
    const LimbPartial<In> all = merge_warps<BLOCK>(sum);
    // of tiles that bins hold
    if (threadIdx.x < warp_lanes) store_result<Traits, false>(out, sum, all, row.n);
    return true;
}

// Stores the sum of the block's row, of which each warp holds some, or leaves what the block has
// found where the last block stores it. All threads must call. Counters and partials of `slots`
// rows are in scratch.
template <class Traits, unsigned BLOCK>
GPR_DEVICE void finalize_run(const LimbPartial<typename Traits::In> &partial, const Row &row,
                             const Scratch<typename Traits::Acc> &scratch, unsigned slots,
                             typename Traits::Out *out)
{
    using In = typename Traits::In;
    Superaccumulator<In> &sum = block_superaccumulator<In>();
    LimbPartial<In> *by_warps = partials_of_warps<In, BLOCK>();
    const unsigned warp = threadIdx.x / warp_lanes, lane = threadIdx.x % warp_lanes;

    if (lane == 0) by_warps[warp] = partial;
    __syncthreads(); // all warps have found what they have
    LimbPartial<In> all = merge_warps<BLOCK>(sum);
    if (row.blocks == 1) {
        if (warp == 0 && (all.flags & saw_outside) != 0) all = publish_outside(sum, all, nullptr);
    } else {
        const uint64 slot = slot_of(row, slots);
        const RowCounters totals(scratch.tickets, slot,
                                 parts_of<In> * counters_of_part<PartType<In>>);
        if (warp == 0 && (all.flags & saw_outside) != 0)
            all = publish_outside(sum, all, totals.at(0));
        LimbPartial<In> *partials =
            reinterpret_cast<LimbPartial<In> *>(scratch.partials()) + slot * row.blocks;
        if (!is_last_block(partials + row.block, all, totals.ticket(), row.blocks)) return;
        all = merge_partials<BLOCK>(sum, partials, row.blocks);
        if (row.blocks > warp_lanes) { // if not, the first warp has them
            if (lane == 0) by_warps[warp] = all;
            __syncthreads(); // all warps have their share
            all = merge_warps<BLOCK>(sum);
        }
        if (warp == 0 && (all.flags & saw_outside) != 0) load_outside(sum, all.flags, totals.at(0));
    }
    if (warp == 0) store_result<Traits, true>(out, sum, all, row.n);
}

} // namespace gpr
