// Exact sums of a row that is a run: from the bins of threads to the result, by limb partials.
//
// Bins that were never moved and their spilled integers hold all that was added: one integer per
// bin, 42 bits apart, in units that follow from the bins' position. A limb partial is these
// integers, and one more above them for carries:
//
//     limb[p][0]   limb[p][1]   limb[p][2] ...   of part p; bin w is limb w + 1
//     above bins   bin 0        bin 1            units of each are 2^42 times those of the next
//
//     warp     the lanes' bins are summed into a partial             (partial_of, partial_of_tile)
//     block    warp 0 merges those of all warps                      (merge_warps)
//     row      a block that has its row alone rounds its partial in registers; of several each
//              publishes its partial, and the last one to arrive merges them (merge_partials)
//
// Bounds. Every limb stays below 2^62 in magnitude, the most that ShortSum rounds.
//
//     small partial      limbs below 2^57, limb 0 is 0: the sum of 32 at one position is below 2^62
//     any others         are shifted to the units of the lowest position among them, by s <= 40:
//       carry            limbs are below 2^42; limb 0 must be below 2^(56 - s), or it does not fit
//       shift and carry  limbs are below 2^42 + 2^(s+1) <= 2^43, limb 0 is below 2^57
//     does not fit       is added to the block's superaccumulator
//
// Elements that bins do not hold, and bins that were moved, are in the superaccumulator, too.
// Blocks that share a row add it to the row's counters in global memory, limb by limb
// (exact_merge.cuh). Infinities and NaN are flags. A row's first outlier stays outside of all limbs
// until the sum is rounded.
#pragma once

#include "exact_block.cuh"

namespace gpr {

constexpr int partial_bits = 62; // of a limb's magnitude: as many as ShortSum rounds
constexpr int small_bits = partial_bits - 5;
constexpr int part_flag_bits = 4;
static_assert(saw_limbs == 1u << (2 * part_flag_bits), "behind the flags of two parts");

// The sum of the bins of some threads, which are at one position.
template <class In> struct LimbPartial {
    using T = PartType<In>;
    static constexpr unsigned parts = parts_of<In>, bins = bin_count<T>, limbs = bins + 1;
    // the first limb that usually is not 0
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
    // Whether limb w of a part is not 0.
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
    // The integers of a part's bins. Limb 0 is 0.
    GPR_DEVICE Short sum_of(unsigned p) const
    {
        Short sum;
#pragma unroll
        for (unsigned w = 0; w < bins; w++) sum.limb[w] = limb[p][w + 1];
        sum.unit = lowest_exponent<T> + DoubleBins<T>::place_at(top, bins - 1);
        return sum;
    }
    // Whether limb 0 is 0 and the others are below 2^small_bits: the usual case. 32 small partials
    // can be added as they are.
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
    // Makes units smaller by 2^by, and carries each limb's upper bits to the limb before. Returns
    // whether limb 0 has room for that.
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
        const unsigned kept = bin_step - shift; // bits that stay in their limb
        long long carried = 0;

#pragma unroll
        for (unsigned w = limbs - 1; w > 0; w--) {
            const long long whole = limb[p][w];
            limb[p][w] = ((whole & ((1ll << kept) - 1)) << shift) + carried;
            carried = whole >> kept;
        }
        limb[p][0] = static_cast<long long>(static_cast<uint64>(limb[p][0]) << shift) + carried;
    }
    // Adds another partial, if there is room. Returns whether there is; otherwise nothing changes.
    GPR_DEVICE bool merge(const LimbPartial &other)
    {
        if (top != other.top || !is_small() || !other.is_small()) {
            const Merged merged = merge_any(*this, other);
            // unchanged if it does not fit: a check before would take registers of the tiles' loop
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

    // Adds limb 0 to limb 1, where limb 0 is below 2^(56 - bin_step) = 2^14 in all parts.
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

    // Rare work is in functions that are called, so that the usual path stays short in the
    // instruction cache.
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

// partial.absorb_carry() as a function that is called: rarely needed.
template <class In> GPR_CALLED LimbPartial<In> with_absorbed_carry(LimbPartial<In> partial)
{
    partial.absorb_carry();
    return partial;
}

// Partials in memory: words that are `step` words from each other. The format is in
// shared/exact_format.h.
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

// Adds a group's spilled integers to the sum of its bins. The whole group must call.
template <class Group, class In> GPR_CALLED LimbPartial<In> with_spilled(LimbPartial<In> partial)
{
    Group::sync(); // the spilled integers can be read
#pragma unroll
    for (unsigned p = 0; p < partial.parts; p++) {
#pragma unroll
        for (unsigned w = 0; w < partial.bins; w++)
            partial.limb[p][w + 1] += Group::template spilled<In>(p, w);
    }
    partial.absorb_carry();
    return partial;
}

// Sums a group's bins and spilled integers. Where flags has saw_limbs or saw_outlier, more of the
// row is in its superaccumulator or outlier. The whole group must call; all its threads get the
// result.
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
    adder.add_left_out();
    if constexpr (Group::spills)
        return adder.times_spilled() > 0 ? with_spilled<Group>(partial) : partial;
    else return partial;
}

// ---------------------------------------------------------------- merging lanes ----------------

// Adds a partial, which all lanes of a warp have, to the block's superaccumulator once. All lanes
// must call.
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

// Adds each lane's partial to the block's superaccumulator. All lanes must call.
template <class In> GPR_CALLED void add_each(Superaccumulator<In> &sum, LimbPartial<In> mine)
{
    for (unsigned lane = 0; lane < warp_lanes; lane++)
        add_partial(sum, shuffle_from(mine, static_cast<int>(lane)));
}

// Sums the partials of a warp's lanes, which may be at different positions. Where they are too far
// apart all of them are added to the block's superaccumulator. All lanes must call, and get the
// sum.
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

// Sums the partials of a warp's first SOME lanes; the others are zero. Usually all are at the
// position of the first lane's, and often their first bins are 0. They are summed before the vote
// on that is known, so that the vote's latency is hidden. All lanes must call, and get the sum.
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

// Calls use(p, d, counter) for each limb d of each part p, with the index of its counter among its
// row's. The lanes of one warp must call.
template <class In, class Use> GPR_DEVICE void for_each_limb(const Use &use)
{
    constexpr unsigned limbs = limbs_of<PartType<In>>;
#pragma unroll 1
    for (unsigned i = threadIdx.x % warp_lanes; i < parts_of<In> * limbs; i += warp_lanes) {
        const unsigned p = parts_of<In> == 1 ? 0 : i / limbs, d = i - p * limbs;
        use(p, d, p * counters_of_part<PartType<In>> + d);
    }
}

// The row's outlier of part p, as bits: the counter that other kernels use for the part's flags.
template <class In> GPR_DEVICE uint64 *outlier_of_row(uint64 *counters, unsigned p)
{
    return counters + p * counters_of_part<PartType<In>> + limbs_of<PartType<In>> + 1;
}
// The block's outlier of part p.
template <class In> GPR_DEVICE PartType<In> outlier_value(unsigned p)
{
    using T = PartType<In>;
    return bit_copy<T>(static_cast<Bits<T>>(RunGroup::outlier<In>()[p]));
}

// Publishes the block's outliers for its row, or adds them to the block's superaccumulator if the
// row has some already. Returns whether one was added. The lanes of one warp must call.
template <class In> GPR_DEVICE bool publish_outlier(Superaccumulator<In> &sum, uint64 *counters)
{
    const unsigned p = threadIdx.x % warp_lanes;
    bool is_added = false;

    if (p < parts_of<In>) {
        const uint64 bits = RunGroup::outlier<In>()[p];
        is_added = bits != 0 && atomicCAS(outlier_of_row<In>(counters, p), 0ull, bits) != 0;
        if (is_added) add_to_limbs(sum.limb[p], outlier_value<In>(p));
    }
    __syncwarp(); // lane 0 takes the ticket after all have published theirs
    return __any_sync(all_lanes, is_added) != 0;
}

// Loads the row's outliers into the block's, and clears the row's. The lanes of one warp must call.
template <class In> GPR_DEVICE void load_outlier(uint64 *counters)
{
    const unsigned p = threadIdx.x % warp_lanes;
    if (p < parts_of<In>) {
        RunGroup::outlier<In>()[p] = *outlier_of_row<In>(counters, p);
        *outlier_of_row<In>(counters, p) = 0;
    }
    __syncwarp(); // it can be read
}

// Adds the block's superaccumulator to its row's counters, and clears it. The lanes of one warp
// must call, after all have added.
template <class In>
GPR_DEVICE void publish_superaccumulator(Superaccumulator<In> &sum, uint64 *counters)
{
    __syncwarp(); // all additions to it are visible
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

// Adds how many elements the block left out, if any, to the row's counter. One thread calls. The
// load is volatile: a compiler may load what it knows to be there before it tests which thread
// calls, and another warp's load would race with the clearing in publish_superaccumulator.
template <class In>
GPR_DEVICE void publish_left_out(const Superaccumulator<In> &sum, uint64 *counter)
{
    const uint64 left_out = *static_cast<const volatile uint64 *>(&sum.left_out);
    if (left_out != 0) atomicAdd(counter, left_out);
}

// Loads how many elements the blocks of a row left out, if any, and clears their counter. One
// thread calls.
template <class In> GPR_DEVICE void load_left_out(Superaccumulator<In> &sum, uint64 *counters)
{
    uint64 &counter = counters[limbs_of<PartType<In>>];
    if (counter == 0) return;
    sum.left_out = counter;
    counter = 0;
}

// Adds the counters of a row to the block's superaccumulator, and clears them. The lanes of one
// warp must call.
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
        if (p == 0 && lane == 0) load_left_out(sum, counters);
    }
}

// Flags of rows of which something is outside of the bins: rare.
constexpr unsigned saw_outside = saw_limbs | saw_specials | saw_outlier;

// Adds the superaccumulator's flags to a block's partial. Where several blocks share the row, the
// block's outlier and superaccumulator are added to the row's `counters` for the last block; NULL:
// the block has the row to itself. The lanes of one warp must call, after all have added.
template <class In>
GPR_CALLED LimbPartial<In> publish_outside(Superaccumulator<In> &sum, LimbPartial<In> partial,
                                           uint64 *counters)
{
    __syncwarp(); // this warp's last additions are visible
    partial.load_flags(sum);
    partial.flags &= ~saw_specials;
    __syncwarp(); // all lanes have read them
    if (counters == nullptr) return partial;
    if ((partial.flags & saw_outlier) != 0 && publish_outlier(sum, counters))
        partial.flags |= saw_limbs;
    if ((partial.flags & saw_limbs) != 0) publish_superaccumulator(sum, counters);
    return partial;
}

// Loads what blocks published by publish_outside. The lanes of one warp must call.
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
    unsigned left_flags = 0; // of partials that did not fit
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

// Stores the result of a row from its partial, the block's superaccumulator and the outlier. All
// lanes of the first warp must call.
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
// Whether results leave the kernel; otherwise accumulators do, as words.
template <class Traits>
constexpr bool stores_short = !same<typename Traits::Out, typename Traits::Acc>;
// Stores the result of a row of which nothing is in the superaccumulator, if stores_short. One
// thread calls. ONE: the row has an outlier.
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
// Stores the result of a row by the shortest way that its flags allow. ANY: it may have an outlier.
// The first warp must call.
template <class Traits, bool ANY>
GPR_DEVICE void store_result(typename Traits::Out *out, Superaccumulator<typename Traits::In> &sum,
                             const LimbPartial<typename Traits::In> &all, uint64 n)
{
    if constexpr (stores_short<Traits>) {
        if ((all.flags & saw_limbs) == 0 && !all.has(0)) {
            if (threadIdx.x != 0) return;
            const uint64 counted = Traits::skips_nan ? n - sum.left_out : n;
            if (ANY && (all.flags & saw_outlier) != 0)
                store_with_outlier<Traits>(out, all, counted);
            else store_short<Traits, false>(out, all, counted);
            return;
        }
    }
    store_from_limbs<Traits>(out, sum, all, n);
}

// Shared memory for the partials of a block's warps, one each.
template <class In, unsigned BLOCK> GPR_DEVICE LimbPartial<In> *partials_of_warps()
{
    __shared__ LimbPartial<In> all[BLOCK / warp_lanes];
    return all;
}

// Sums the partials of a block's warps. The first warp gets the sum, others zero. All threads must
// call, after all partials are in shared memory.
template <unsigned BLOCK, class In>
GPR_DEVICE LimbPartial<In> merge_warps(Superaccumulator<In> &sum)
{
    constexpr unsigned warps = BLOCK / warp_lanes;
    const unsigned lane = threadIdx.x;
    if (lane >= warp_lanes) return LimbPartial<In>{};
    return merge_lanes<warps>(sum, lane < warps ? partials_of_warps<In, BLOCK>()[lane]
                                                : LimbPartial<In>{});
}

// Stores the result of a row that the block has to itself, if the partials of all its warps are
// complete: the usual case. Returns whether it did. All threads must call; a block barrier is
// passed.
template <class Traits, unsigned BLOCK>
GPR_DEVICE bool finalize_row_of_block(const LimbPartial<typename Traits::In> &partial,
                                      bool is_complete, const Row &row, typename Traits::Out *out)
{
    using In = typename Traits::In;
    Superaccumulator<In> &sum = block_superaccumulator<In>();

    if (row.blocks > 1) return false;
    if (threadIdx.x % warp_lanes == 0)
        partials_of_warps<In, BLOCK>()[threadIdx.x / warp_lanes] = partial;
    if (!__syncthreads_and(is_complete)) return false; // all partials are there
    const LimbPartial<In> all = merge_warps<BLOCK>(sum);
    // complete partials are of tiles that bins hold: there is no outlier
    if (threadIdx.x < warp_lanes) store_result<Traits, false>(out, sum, all, row.n);
    return true;
}

// Merges the partials of the block's warps. A block that has its row to itself stores the result;
// where several share it each publishes its partial, and the last one to arrive merges them and
// stores the result. All threads must call. Scratch has counters and partials for `slots` rows.
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
    __syncthreads(); // all partials are there
    LimbPartial<In> all = merge_warps<BLOCK>(sum);
    if (row.blocks == 1) {
        if (warp == 0 && (all.flags & saw_outside) != 0) all = publish_outside(sum, all, nullptr);
    } else {
        const uint64 slot = slot_of(row, slots);
        const RowCounters totals(scratch.tickets, slot,
                                 parts_of<In> * counters_of_part<PartType<In>>);
        if (warp == 0 && (all.flags & saw_outside) != 0)
            all = publish_outside(sum, all, totals.at(0));
        if (Traits::skips_nan && threadIdx.x == 0) // what was not published with limbs
            publish_left_out(sum, totals.at(limbs_of<PartType<In>>));
        LimbPartial<In> *partials =
            reinterpret_cast<LimbPartial<In> *>(scratch.partials()) + slot * row.blocks;
        if (!is_last_block(partials + row.block, all, totals.ticket(), row.blocks)) return;
        all = merge_partials<BLOCK>(sum, partials, row.blocks);
        if (row.blocks > warp_lanes) { // if not, the first warp has them
            if (lane == 0) by_warps[warp] = all;
            __syncthreads(); // all warps have merged their share
            all = merge_warps<BLOCK>(sum);
        }
        if (warp == 0 && (all.flags & saw_outside) != 0) load_outside(sum, all.flags, totals.at(0));
        if (Traits::skips_nan && threadIdx.x == 0) load_left_out(sum, totals.at(0));
    }
    if (warp == 0) store_result<Traits, true>(out, sum, all, row.n);
}

} // namespace gpr
