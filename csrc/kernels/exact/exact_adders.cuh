// Exact sums: adders, which add the elements of a row, a thread together with its warp or without
// it.
//
// Who holds what, of the floats of a row:
//
//     thread   bins: one to three doubles per part, which are full after 1024 additions
//       |        full bins: renormalize()                  bins that move, or cannot spill: flush()
//     warp     spilled integers, one per bin (RunGroup, ColumnThread): 32 spills, each below 2^56
//       |        the 33rd spill
//     block    a superaccumulator: elements that bins do not hold, bins that were moved, later
//              spills; flags of infinities and NaN; one outlier (RunGroup)
//
// `outside` lists which of the block's are in use. If none is, bins and spilled integers are the
// sum, and the limbs of the superaccumulator are never read (exact_limb_partial.cuh).
//
// Invariant of FloatAdder::add: a tile is either added to the bins as a whole and no bit is lost,
// or the bins return to their values before it and add_otherwise() adds it, each element once. The
// whole group votes: on magnitudes that integer instructions find beforehand, or on the first bin's
// range and the last bin's remainders afterwards.
#pragma once

#include "exact_bin_placement.cuh"
#include "exact_integer_bins.cuh"
#include "tile.cuh"

namespace gpr {

// ---------------------------------------------------------------- groups -------------------------

// A warp that adds to one of the sums of a block's ACCUMULATORS rows. All its lanes call together.
template <unsigned ACCUMULATORS> struct WarpGroup {
    static constexpr bool spills = false, keeps_outlier = false;
    static constexpr unsigned size = warp_lanes;
    using Outside = unsigned;
    unsigned index = 0;

    template <class In> GPR_DEVICE RowSum<In> &sum() const
    {
        return block_superaccumulators<In, ACCUMULATORS>()[ACCUMULATORS == 1 ? 0 : index];
    }
    static GPR_DEVICE bool is_leader() { return threadIdx.x % warp_lanes == 0; }
    static GPR_DEVICE bool any(bool is_so) { return __any_sync(all_lanes, is_so) != 0; }
    static GPR_DEVICE unsigned any_bits(unsigned bits) { return warp_or(bits); }
    static GPR_DEVICE unsigned max(unsigned x) { return warp_max(x); }
    static GPR_DEVICE unsigned min(unsigned x) { return warp_min(x); }
    // of numbers below 2^51 in magnitude
    static GPR_DEVICE long long total(long long x) { return warp_sum(x); }
    static GPR_DEVICE void sync() { __syncwarp(); }
    template <unsigned COUNT>
    static GPR_DEVICE void add(int *limb, const long long (&numbers)[COUNT],
                               const int (&place)[COUNT])
    {
        if constexpr (COUNT <= most_integers_at_once) {
            add_integers(limb, numbers, place);
        } else {
            add_some<0, most_integers_at_once>(limb, numbers, place);
            add_some<most_integers_at_once, COUNT - most_integers_at_once>(limb, numbers, place);
        }
    }
    // Adds SOME of the numbers, from number FIRST on.
    template <unsigned FIRST, unsigned SOME, unsigned COUNT>
    static GPR_DEVICE void add_some(int *limb, const long long (&numbers)[COUNT],
                                    const int (&place)[COUNT])
    {
        long long some[SOME];
        int places[SOME];
#pragma unroll
        for (unsigned i = 0; i < SOME; i++) {
            some[i] = numbers[FIRST + i];
            places[i] = place[FIRST + i];
        }
        add_integers(limb, some, places);
    }
};

// A warp that adds to a row that is a run. Full bins spill to integers of the warp in shared
// memory, which are merged with the bins' integers at the end (exact_limb_partial.cuh). There is
// one integer per bin, in units of the bin's last place; lane w adds to the integer of bin w.
//
// Bound: the integer of a lane's bin is below 2^51, the sum over 32 lanes is below 2^56, and the
// sum of 32 spills is below 2^61.
template <class In> struct Spilled { long long limb[parts_of<In>][bin_count<PartType<In>>]; };
constexpr unsigned most_spills = 32; // before spilled integers go to the superaccumulator
constexpr unsigned most_warps = GPR_MOST_BLOCK / warp_lanes;
struct RunGroup : WarpGroup<1> {
    static constexpr bool spills = true, keeps_outlier = true;
    template <class In> static GPR_DEVICE long long &spilled(unsigned p, unsigned w)
    {
        __shared__ Spilled<In> of_warp[most_warps];
        return of_warp[threadIdx.x / warp_lanes].limb[p][w];
    }
    // The bits of part p's outlier of the block; 0: there is none.
    template <class In> static GPR_DEVICE uint64 *outlier() { return block_state<In, 1>().outlier; }
};

// A thread that adds to one of the sums of a block's ACCUMULATORS rows, without its warp.
template <unsigned ACCUMULATORS> struct SingleThread {
    static constexpr bool spills = false, keeps_outlier = false;
    static constexpr unsigned size = 1;
    using Outside = unsigned;
    unsigned index = 0;

    static GPR_DEVICE SingleThread of_row(unsigned row) { return SingleThread{row}; }
    template <class In> GPR_DEVICE RowSum<In> &sum() const
    {
        return block_superaccumulators<In, ACCUMULATORS>()[index];
    }
    static GPR_DEVICE bool is_leader() { return true; }
    static GPR_DEVICE bool any(bool is_so) { return is_so; }
    static GPR_DEVICE unsigned any_bits(unsigned bits) { return bits; }
    static GPR_DEVICE unsigned max(unsigned x) { return x; }
    static GPR_DEVICE unsigned min(unsigned x) { return x; }
    static GPR_DEVICE long long total(long long x) { return x; }
    static GPR_DEVICE void sync() {}
    template <unsigned COUNT>
    static GPR_DEVICE void add(int *limb, const long long (&numbers)[COUNT],
                               const int (&place)[COUNT])
    {
#pragma unroll
        for (unsigned i = 0; i < COUNT; i++) {
#pragma unroll 1
            for (unsigned piece = 0; piece < pieces && numbers[i] != 0; piece++) {
                add_piece(limb, numbers[i], place[i], piece);
            }
        }
    }
};

// Counts the elements that a group's threads left out. The whole group must call.
template <class Group>
GPR_DEVICE void count_left_out(const Group &group, uint64 *counter, unsigned left_out)
{
    const uint64 all = static_cast<uint64>(group.total(static_cast<long long>(left_out)));
    if (group.is_leader() && all != 0) add_to_counter(counter, all);
}

// Adds a thread's number, below 2^62 in magnitude. A thread adds `pieces` limbs at most: the number
// is added in two halves.
GPR_DEVICE void add_long(int *limb, long long number, int place)
{
    const long long halves[2] = {number & ((1ll << half_bits) - 1), number >> half_bits};
    const int places[2] = {place, place + half_bits};
    SingleThread<1>::add(limb, halves, places);
}

// Which parts of a row's sum are outside of the bins and the spilled integers, in shared memory.
constexpr unsigned saw_limbs = 1u << 8;    // the superaccumulator: elements, or bins that moved
constexpr unsigned saw_specials = 1u << 9; // flags of infinities and NaN
constexpr unsigned saw_outlier = 1u << 10; // an outlier, which is not in the limbs (RunGroup)

// Adds the integers of bins to the limbs of a part.
template <class Group, class AnyBins>
GPR_DEVICE void flush_bins(const Group &group, const AnyBins &bins, int *limb)
{
    long long number[AnyBins::count];
    int place[AnyBins::count];
    bins.read(number, place);
    group.add(limb, number, place);
}

// ---------------------------------------------------------------- adding floats -----------------

// Adds the floats of a row, together with its group. A tile is VECTORS vectors of elements, of
// which the first `used` have elements; all threads of the group add their tiles at the same time.
template <class Traits, unsigned VECTORS, class Group = WarpGroup<1>> struct FloatAdder {
    using In = typename Traits::In;
    using T = PartType<In>;
    static constexpr unsigned vectors = VECTORS, parts = parts_of<In>,
                              per_vector = vector_elements<In>;
    static constexpr unsigned elements = VECTORS * per_vector;
    static constexpr bool skips_nan = Traits::skips_nan;
    // Binary orders of magnitude by which bins move for a few elements.
    static constexpr int little_above = bin_count<T> > 1 ? 16 : 0;
    // Whether a tile's magnitudes are found by integer instructions before it is added: that saves
    // two additions per element. Bins of integers need it, as nothing is left of an addition.
    static constexpr bool prechecks =
        integer_bins || same<T, dt_float32> || (same<T, dt_bfloat16> && GPR_HAS_HALVES);
    // Whether the elements of a tile are summed before bins get them. The sum of a few float32 is a
    // double, unless their exponents lie far apart; so most elements cost a conversion and an
    // addition, where splitting each among bins is four additions.
    static constexpr bool sums_tiles = same<T, dt_float32> && !integer_bins;
    using PartBins = RowBins<T>;
    struct Tile { Vector v[VECTORS]; };
    // Results of adding a tile element by element. The first three are the same in the whole group.
    struct Findings {
        unsigned largest;         // key
        unsigned outside;         // saw_limbs, saw_specials, saw_outlier
        bool are_mostly_outliers; // of some thread more than a quarter is not in the bins
        unsigned others;
    };

    Group group;
    PartBins bins[parts];
    unsigned adds = 0;                 // since the bins began; from bit spill_shift on, spills
    BinPlacement placement;            // the same in the whole group
    typename Group::Outside outside{}; // saw_limbs, saw_specials, saw_outlier
    unsigned others = 0;               // bits that are 0 as long as all elements were -0
    unsigned left_out = 0;             // elements, of which tiles have -0 instead

    GPR_DEVICE explicit FloatAdder(Group in = {}) : group(in)
    {
        placement.is_placed = one_bin_suffices<T>;
        begin(least_top<T>);
    }

    // Part p of element j of a vector.
    static GPR_DEVICE T part_of(const Vector &v, unsigned j, unsigned p)
    {
        const In x = element<In>(v, j);
        if constexpr (parts == 1) return x;
        else return p == 0 ? x.re : x.im;
    }
    // A vector of -0, which changes no sum.
    static GPR_DEVICE Vector nothing()
    {
        Vector v;
#pragma unroll
        for (unsigned w = 0; w < 4; w++) {
            v.word[w] = sizeof(T) == 2 ? 0x80008000u : sizeof(T) == 4 || w % 2 == 1 ? sign_bit : 0;
        }
        return v;
    }

    GPR_DEVICE void begin(int top)
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) bins[p].begin(top);
        adds = placement.strikes = 0;
    }
    static constexpr int spill_shift = 16;
    static_assert(most_adds < 1u << spill_shift && most_spills < 1u << spill_shift,
                  "both fit a word");
    GPR_DEVICE unsigned times_spilled() const { return adds >> spill_shift; }
    GPR_DEVICE bool is_full() const
    {
        return (adds & ((1u << spill_shift) - 1)) > most_adds - elements;
    }

    struct BinsOfParts { PartBins of[parts]; };
    GPR_DEVICE BinsOfParts all_bins() const
    {
        BinsOfParts now;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) now.of[p] = bins[p];
        return now;
    }
    GPR_DEVICE void take(const BinsOfParts &other)
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) bins[p] = other.of[p];
    }
    // Empties the bins: into the spilled integers, or into the limbs.
    GPR_DEVICE void renormalize()
    {
        if constexpr (Group::spills) {
            const unsigned times = times_spilled();
            spill(group, all_bins(), times);
            begin(bins[0].top);
            outside |= times == most_spills ? saw_limbs : 0;
            adds = (times % most_spills + 1) << spill_shift;
        } else {
            flush();
        }
    }
    // Adds bins and spilled integers to the superaccumulator.
    GPR_DEVICE void flush()
    {
        outside |= saw_limbs;
        flush_parts(group, all_bins(), times_spilled());
        begin(bins[0].top);
    }
    static GPR_CALLED void flush_parts(Group group, BinsOfParts bins, unsigned times)
    {
        if constexpr (Group::spills) {
            if (times > 0) flush_spilled(group, bins.of[0].top);
        }
#pragma unroll
        for (unsigned p = 0; p < parts; p++)
            flush_bins(group, bins.of[p], group.template sum<In>().limb[p]);
    }
    // Adds the group's bins to its spilled integers, which `times` spills went to before. Lane w
    // sums the lanes' integers of bin w.
    static GPR_CALLED void spill(Group group, BinsOfParts bins, unsigned times)
    {
        const unsigned member = threadIdx.x % Group::size;
        if (times == most_spills) flush_spilled(group, bins.of[0].top);
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            long long number[bin_count<T>];
            int place[bin_count<T>];
            bins.of[p].read(number, place);
#pragma unroll
            for (unsigned w = 0; w < bin_count<T>; w++) number[w] = group.total(number[w]);
#pragma unroll
            for (unsigned w = 0; w < bin_count<T>; w++) {
                if (w % Group::size != member) continue;
                long long &spilled = group.template spilled<In>(p, w);
                spilled = times % most_spills == 0 ? number[w] : spilled + number[w];
            }
        }
    }
    // Adds the spilled integers to the superaccumulator.
    static GPR_CALLED void flush_spilled(Group group, int top)
    {
#pragma unroll 1
        for (unsigned w = threadIdx.x % Group::size; w < bin_count<T>; w += Group::size) {
            const int place = DoubleBins<T>::place_at(top, w);
#pragma unroll
            for (unsigned p = 0; p < parts; p++)
                add_long(group.template sum<In>().limb[p], group.template spilled<In>(p, w), place);
        }
    }

    // Bins for numbers like those with this key; not for infinities and NaN.
    GPR_DEVICE void place_for(unsigned key)
    {
        if (one_bin_suffices<T> || field_of_key<T>(key) == last_field<T>) return;
        if (adds != 0) flush();
        begin(PartBins::top_for(key));
        placement.is_placed = true;
    }
    // The magnitudes of a tile, if they are needed before it is added (prechecks).
    static GPR_DEVICE Magnitudes measure(const Vector (&v)[VECTORS])
    {
        if constexpr (prechecks) return magnitudes_of<T>(v);
        else return Magnitudes{0, 0};
    }
    static GPR_DEVICE unsigned largest_key(const Vector (&v)[VECTORS], const Magnitudes &measured)
    {
        if constexpr (prechecks) return measured.largest;
        else return largest_key(v);
    }
    template <unsigned COUNT>
    static GPR_DEVICE unsigned largest_key(const Vector (&v)[COUNT], unsigned used = COUNT)
    {
        unsigned key = 0;
#pragma unroll
        // per vector first: a shorter chain of dependent instructions
        for (unsigned k = 0; k < COUNT; k++) {
            if (k >= used) break;
            unsigned of_vector = 0;
#pragma unroll
            for (unsigned j = 0; j < per_vector * parts; j++) {
                const unsigned of_part = magnitude_key(part_of(v[k], j / parts, j % parts));
                if (of_part > of_vector) of_vector = of_part;
            }
            if (of_vector > key) key = of_vector;
        }
        return key;
    }

    // Adds a tile, AT_ONCE elements at a time: with more, additions of one wait less for those of
    // another, and take more registers. The whole group must call together.
    template <unsigned AT_ONCE = 1>
    GPR_DEVICE void accumulate(const Vector (&v)[VECTORS], unsigned used = VECTORS)
    {
        make_room();
        add<AT_ONCE>(v, used);
    }
    // accumulate() in two steps. make_room() is called before a tile is loaded, so that the tile
    // needs no registers while bins are emptied.
    GPR_DEVICE void make_room()
    {
        if (is_full()) renormalize();
    }
    template <unsigned AT_ONCE = 1>
    GPR_DEVICE void add(const Vector (&v)[VECTORS], unsigned used = VECTORS)
    {
        const Magnitudes measured = measure(v);
        unsigned key = 0;
        if (!placement.is_placed) {
            key = largest_key(v, measured);
            place_for(group.max(key));
        }
        if (placement.skips_tile()) return add_otherwise(v, false);
        if (!try_add<AT_ONCE>(v, measured, used)) return add_otherwise(v, true);
        placement.note_fit();
        adds += elements;
        if constexpr (parts == 1) others |= key; // more than a zero
        // until each part has some
        if (parts == 1 ? others == 0 : others != (1u << parts) - 1) note_others(v);
    }
    // Adds a tile to the bins if they hold all of it. Returns whether they do, to the whole group.
    template <unsigned AT_ONCE = 1>
    GPR_DEVICE bool try_add(const Vector (&v)[VECTORS], const Magnitudes &measured,
                            unsigned used = VECTORS)
    {
        if constexpr (prechecks) {
            if (group.any(!holds(bins, measured))) return false;
            if constexpr (sums_tiles) {
                if (is_sum_exact(measured)) add_sums(v, used);
                else take(add_elements(all_bins(), bit_copy<Tile>(v)));
            } else {
                add_all<AT_ONCE>(v, used);
            }
            return true;
        } else {
            PartBins grown[parts];
            Fit fit(bins);

#pragma unroll
            for (unsigned p = 0; p < parts; p++) grown[p] = bins[p];
            fit.template add<AT_ONCE>(v, used, grown);
            if (group.any(!fit.holds(grown))) return false;
#pragma unroll
            for (unsigned p = 0; p < parts; p++) bins[p] = grown[p];
            return true;
        }
    }

    // Whether a double holds every sum of some of a tile's elements. These are multiples of the
    // smallest one's last place, and all of them together are below
    // elements * 2^(largest exponent + 1).
    static GPR_DEVICE bool is_sum_exact(const Magnitudes &found)
    {
        constexpr int most_apart = double_fraction - Format<T>::fraction - bits_of(elements);
        return static_cast<int>(field_of_key<T>(found.largest)) -
                   static_cast<int>(field_of_key<T>(found.smallest_minus_one)) <=
               most_apart;
    }
    // Binary digits of the numbers below n.
    static GPR_DEVICE constexpr int bits_of(unsigned n)
    {
        return n > 1 ? 1 + bits_of((n + 1) / 2) : 0;
    }
    // Adds the sums of a tile's elements to bins that hold the tile, if is_sum_exact().
    GPR_DEVICE void add_sums(const Vector (&v)[VECTORS], unsigned used)
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            double sum = 0;
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) {
                if (k >= used) break;
                double two[2] = {number_of(v[k], 0, p), number_of(v[k], 1, p)};
#pragma unroll
                for (unsigned j = 2; j < per_vector; j++) two[j % 2] += number_of(v[k], j, p);
                sum = k == 0 ? two[0] + two[1] : sum + (two[0] + two[1]);
            }
            (void)bins[p].add(sum * widening_factor<T>());
        }
    }
    static GPR_DEVICE double number_of(const Vector &v, unsigned j, unsigned p)
    {
        return static_cast<double>(value_of(part_of(v, j, p)));
    }
    // Adds the elements of a tile, which the bins hold, one by one.
    static GPR_CALLED BinsOfParts add_elements(BinsOfParts bins, Tile tile)
    {
#pragma unroll
        for (unsigned i = 0; i < elements; i += per_vector) {
#pragma unroll
            for (unsigned p = 0; p < parts; p++)
                bins.of[p].add_elements(some_parts<per_vector>(tile.v, i, p).x);
        }
        return bins;
    }
    // Adds a tile that the bins hold.
    template <unsigned AT_ONCE> GPR_DEVICE void add_all(const Vector (&v)[VECTORS], unsigned used)
    {
#pragma unroll
        for (unsigned i = 0; i < elements; i += AT_ONCE) {
            if (i / per_vector >= used) break;
#pragma unroll
            for (unsigned p = 0; p < parts; p++)
                bins[p].add_elements(some_parts<AT_ONCE>(v, i, p).x);
        }
    }

    // Part p of AT_ONCE elements, from element i on.
    template <unsigned AT_ONCE> struct Parts { T x[AT_ONCE]; };
    template <unsigned AT_ONCE, unsigned COUNT>
    static GPR_DEVICE Parts<AT_ONCE> some_parts(const Vector (&v)[COUNT], unsigned i, unsigned p)
    {
        Parts<AT_ONCE> found;
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; j++)
            found.x[j] = part_of(v[(i + j) / per_vector], (i + j) % per_vector, p);
        return found;
    }

    // Adds vectors to bins, and finds from the remainders and the first bin's range whether the
    // bins hold them.
    class Fit {
    public:
        GPR_DEVICE explicit Fit(const PartBins (&bins)[parts])
        {
#pragma unroll
            for (unsigned p = 0; p < parts; p++) before[p] = upper_bits(bins[p].sum[0]);
        }
        template <unsigned AT_ONCE, unsigned COUNT>
        GPR_DEVICE void add(const Vector (&v)[COUNT], unsigned used, PartBins (&bins)[parts])
        {
#pragma unroll
            for (unsigned i = 0; i < COUNT * per_vector; i += AT_ONCE) {
                if (i / per_vector >= used) break;
#pragma unroll
                for (unsigned p = 0; p < parts; p++) {
                    const Parts<AT_ONCE> some = some_parts<AT_ONCE>(v, i, p);
                    if constexpr (one_bin_suffices<T>) {
                        bins[p].add_elements(some.x);
                    } else {
                        double x[AT_ONCE];
                        bins[p].add_elements(some.x, x, [&] {
                            left_range |= upper_bits(bins[p].sum[0]) ^ before[p];
                        });
#pragma unroll
                        for (unsigned j = 0; j < AT_ONCE; j++) {
                            rest |= upper_bits(x[j]);
                            // of subnormal numbers
                            if constexpr (!is_converted<T>) lower_rest |= lower_bits(x[j]);
                        }
                    }
                }
            }
        }
        GPR_DEVICE bool holds(const PartBins (&bins)[parts])
        {
            constexpr unsigned exponent_and_sign = 0xfff00000u;
            if constexpr (one_bin_suffices<T>) { // but for infinities and NaN, which stay
#pragma unroll
                for (unsigned p = 0; p < parts; p++)
                    left_range |= upper_bits(bins[p].sum[0]) ^ before[p];
            }
            return ((left_range & exponent_and_sign) | (rest & ~sign_bit) | lower_rest) == 0;
        }

    private:
        unsigned before[parts], left_range = 0, rest = 0, lower_rest = 0; // bits
    };

    // Whether bins hold a tile of these magnitudes.
    static GPR_DEVICE bool holds(const PartBins (&bins)[parts], const Magnitudes &found)
    {
        // without a branch between them
        const bool fits = is_in_reach(bins[0], found), has = has_room(bins);
        return fits && has;
    }
    static GPR_DEVICE bool has_room(const PartBins (&bins)[parts])
    {
        bool has = true;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) has = has && bins[p].has_room();
        return has;
    }
    // By a tile's largest magnitude, and its smallest that is not 0.
    static GPR_DEVICE bool is_in_reach(const PartBins &bins, const Magnitudes &found)
    {
        static_assert(elements <= most_tile_adds, "the first bin has room for a tile");
        constexpr int fraction = key_fraction<T>;
        // Of numbers that begin at the last bin's last place.
        const int lowest = bins.top - least_top<T> + 1;
        // Less the smallest number there is. Of float64 that makes a number with nothing in its
        // lower half too small.
        const unsigned least =
            lowest > 1 ? (static_cast<unsigned>(lowest) << fraction) - (sizeof(T) == 8 ? 0 : 1) : 0;
        return static_cast<int>(found.largest >> fraction) <= bins.highest() &&
               found.smallest_minus_one >= least;
    }

    GPR_DEVICE void note_others(const Vector (&v)[VECTORS])
    {
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) others |= others_of(v[k]);
    }
    static GPR_DEVICE unsigned others_of(const Vector &v)
    {
        constexpr unsigned period = sizeof(T) == 8 ? 2 : 1; // words of a part
        const Vector zeros = nothing();
        unsigned found = 0;
#pragma unroll
        for (unsigned w = 0; w < 4; w++) {
            if constexpr (parts == 1) found |= v.word[w] ^ zeros.word[w];
            else found |= (v.word[w] ^ zeros.word[w]) != 0 ? 1u << (w / period % parts) : 0;
        }
        return found;
    }

    // Adds a tile that the bins do not hold as a whole: elements that they do hold go to the bins,
    // the others to the limbs, or the first one to the outlier. The whole group must call together.
    GPR_DEVICE void add_otherwise(const Vector (&v)[VECTORS], bool is_miss)
    {
        const bool tries = placement.misses == 0; // not after a tile that was mostly outside
        const Grown grown = add_any_tile(group, all_bins(), adds == 0, tries, bit_copy<Tile>(v));
        const Findings &found = grown.found;

        take(grown.bins);
        placement.is_placed = placement.is_placed || found.largest != 0;
        adds += tries ? elements : 0;
        outside |= found.outside;
        others |= found.others;
        if (!found.are_mostly_outliers) placement.note_partial_fit();
        else if (is_miss) placement.note_miss();
        // Numbers that are only a little too large may come again.
        const int above = static_cast<int>(field_of_key<T>(found.largest)) - bins[0].highest();
        if (!found.are_mostly_outliers && (above <= 0 || above > little_above)) return;
        placement.strikes += is_miss ? 1 : 0;
        if (placement.should_move()) place_for(found.largest);
    }

    // Adds a tile of any elements. If `tries`, elements that the bins hold go to the bins. Bins
    // that are new hold nothing: they are placed for the elements of most threads first. The whole
    // group must call together.
    struct Grown {
        BinsOfParts bins;
        Findings found;
    };
    static GPR_CALLED Grown add_any_tile(Group group, BinsOfParts bins, bool are_new, bool tries,
                                         Tile tile)
    {
        Superaccumulator<In> &total = group.template sum<In>();
        Grown grown = {bins, {0, 0, false, 0}};
        Findings &found = grown.found;
        unsigned outliers = 0; // elements, of this thread

        if (are_new && tries && !one_bin_suffices<T>) {
            const unsigned common = group.min(largest_finite_key(tile));
#pragma unroll
            for (unsigned p = 0; p < parts && common != ~0u; p++)
                grown.bins.of[p].begin(PartBins::top_for(common));
        }
        if (has_wide_bins<T> && !tries) {
            if constexpr (has_wide_bins<T>) add_to_wide_bins(group, tile, total, &found);
            found.outside |= saw_limbs;
            outliers = elements;
        } else {
#pragma unroll 1
            for (unsigned k = 0; k < VECTORS; k++) {
                const Vector vector = tile.v[k];
                if (tries && add_if_fits(grown.bins, vector, &found)) continue;
#pragma unroll 1
                for (unsigned j = 0; j < per_vector; j++) {
                    inspect(total, vector, j, &found);
                    unsigned where = 0;
#pragma unroll
                    for (unsigned p = 0; p < parts; p++) {
                        const T x = part_of(vector, j, p);
                        if (!is_finite(x) || (tries && add_if_fits(grown.bins.of[p], x))) continue;
                        where |= add_outlier(total, p, x, tries);
                    }
                    found.outside |= where;
                    outliers += where == 0 ? 0 : 1;
                }
            }
        }
        found.outside = group.any_bits(found.outside);
        found.are_mostly_outliers = group.any(outliers > elements / 4);
        found.largest = group.max(found.largest);
        return grown;
    }

    // Keeps a finite element as the block's outlier, if `may_be_first` and there is none yet, or
    // adds it to the limbs. Returns saw_outlier or saw_limbs.
    static GPR_DEVICE unsigned add_outlier(Superaccumulator<In> &total, unsigned p, T x,
                                           bool may_be_first)
    {
        if constexpr (Group::keeps_outlier) {
            const uint64 bits = bit_copy<Bits<T>>(x);
            if (may_be_first && atomicCAS(Group::template outlier<In>() + p, 0ull, bits) == 0)
                return saw_outlier;
        }
        add_to_limbs(total.limb[p], x);
        return saw_limbs;
    }

    // The key of the largest finite element, 2^spare times as large; ~0 if all are 0.
    static GPR_DEVICE unsigned largest_finite_key(const Tile &tile)
    {
        constexpr unsigned spare = 4; // binary orders of magnitude
        unsigned largest = 0;
#pragma unroll 1
        for (unsigned i = 0; i < elements * parts; i++) {
            const unsigned key = magnitude_key(
                part_of(tile.v[i / parts / per_vector], i / parts % per_vector, i % parts));
            if (field_of_key<T>(key) != last_field<T> && key > largest) largest = key;
        }
        const unsigned more = largest + (spare << key_fraction<T>);
        return largest == 0 ? ~0u : field_of_key<T>(more) < last_field<T> ? more : largest;
    }

    // Adds a tile to bins that hold every finite number, and these to the limbs.
    static GPR_DEVICE void add_to_wide_bins(Group group, const Tile &tile,
                                            Superaccumulator<In> &total, Findings *found)
    {
        static_assert(elements <= most_wide_adds, "wide bins have room for a tile");
        WideBins<T> wide[parts];
#pragma unroll
        for (unsigned p = 0; p < parts; p++) wide[p].begin(wide_top<T>);
#pragma unroll 1
        for (unsigned k = 0; k < VECTORS; k++) {
            const Vector vector = tile.v[k];
#pragma unroll
            for (unsigned j = 0; j < per_vector; j++) {
                inspect(total, vector, j, found);
#pragma unroll
                for (unsigned p = 0; p < parts; p++) {
                    const T x = part_of(vector, j, p);
                    (void)wide[p].add(is_finite(x) ? widen(x) : 0.0);
                }
            }
        }
#pragma unroll
        for (unsigned p = 0; p < parts; p++) flush_bins(group, wide[p], total.limb[p]);
    }

    // Adds a vector to the bins if they hold all of it. Returns whether they do.
    static GPR_DEVICE bool add_if_fits(BinsOfParts &bins, const Vector &vector, Findings *found)
    {
        const Vector single[1] = {vector};
        if constexpr (prechecks) {
            const Magnitudes measured = magnitudes_of<T>(single);
            if (!holds(bins.of, measured)) return false;
#pragma unroll
            for (unsigned p = 0; p < parts; p++)
                bins.of[p].add_elements(some_parts<per_vector>(single, 0, p).x);
            found->largest = measured.largest > found->largest ? measured.largest : found->largest;
        } else {
            BinsOfParts grown = bins;
            Fit fit(bins.of);
            fit.template add<1>(single, 1, grown.of);
            if (!fit.holds(grown.of)) return false;
            bins = grown;
            const unsigned key = largest_key(single);
            found->largest = key > found->largest ? key : found->largest;
        }
        found->others |= others_of(vector);
        return true;
    }
    // Adds a finite element to the bins if they hold it. Returns whether they do.
    static GPR_DEVICE bool add_if_fits(PartBins &bins, T x)
    {
        if constexpr (prechecks) {
            Vector single[1] = {nothing()};
            store_element(single[0], 0, x);
            if (!bins.has_room() || !is_in_reach(bins, magnitudes_of<T>(single))) return false;
            const T one[1] = {x};
            bins.add_elements(one);
        } else {
            constexpr unsigned exponent_and_sign = 0xfff00000u;
            PartBins grown = bins;
            const double rest = grown.add(widen(x));
            const unsigned left_range =
                (upper_bits(grown.sum[0]) ^ upper_bits(bins.sum[0])) & exponent_and_sign;
            if (left_range != 0 || rest != 0) return false;
            bins = grown;
        }
        return true;
    }

    static GPR_DEVICE bool is_finite(T x)
    {
        return field_of_key<T>(magnitude_key(x)) != last_field<T>;
    }

    // Notes an element's magnitude and whether it is -0, and stores the flags of infinities and
    // NaN.
    static GPR_DEVICE void inspect(Superaccumulator<In> &total, const Vector &v, unsigned j,
                                   Findings *found)
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            const T x = part_of(v, j, p);
            const Bits<T> bits = bit_copy<Bits<T>>(x);
            const unsigned key = magnitude_key(x);
            if (bits != sign_of<T>) found->others |= parts == 1 ? ~0u : 1u << p;
            if (is_finite(x)) {
                if (key > found->largest) found->largest = key;
            } else {
                const uint64 saw = is_nan(value_of(x))        ? saw_nan
                                   : (bits & sign_of<T>) != 0 ? saw_minus_infinity
                                                              : saw_infinity;
                atomicOr(&total.flags[p], static_cast<unsigned>(saw));
                found->outside |= saw_specials;
            }
        }
    }

    GPR_DEVICE void finalize()
    {
        Superaccumulator<In> &total = group.template sum<In>();
        if (adds != 0) flush();
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            const bool has_others = (parts == 1 ? others : others >> p & 1) != 0;
            if (group.any(has_others) && group.is_leader()) {
                atomicOr(&total.flags[p], static_cast<unsigned>(saw_not_minus_zero));
            }
        }
        add_left_out();
    }
    // The whole group must call.
    GPR_DEVICE void add_left_out() const
    {
        if constexpr (masked || skips_nan)
            count_left_out(group, &group.template sum<In>().left_out, left_out);
    }
};

// ---------------------------------------------------------------- adding integers ---------------

// Integers need no bins. A thread sums the lower and the upper 32 bits of its elements: 2^18 of
// them are below 2^50 in magnitude.
constexpr unsigned most_integers = 1u << 18;
template <class In> struct IntegerSums {
    long long lower = 0, upper = 0;

    GPR_DEVICE void add_element(In x)
    {
        if constexpr (sizeof(In) < 8) {
            lower += static_cast<long long>(value_of(x));
        } else {
            lower += static_cast<long long>(static_cast<uint64>(x) & 0xffffffffu);
            upper += static_cast<long long>(x >> word_bits); // the sign is the upper half's
        }
    }
    // Adds both sums to the limbs of a part, and clears them. The whole group must call together.
    template <class Group> GPR_DEVICE void flush_into(const Group &group, int *limb)
    {
        const long long halves[2] = {lower, upper};
        const int place[2] = {0, word_bits};
        group.add(limb, halves, place);
        lower = upper = 0;
    }
};

template <class Traits, unsigned VECTORS, class Group = WarpGroup<1>>
struct IntegerAdder : IntegerSums<typename Traits::In> {
    using In = typename Traits::In;
    static constexpr bool skips_nan = false; // there is none
    static constexpr unsigned elements = VECTORS * vector_elements<In>;
    static constexpr unsigned most_tiles = most_integers / elements;

    Group group;
    unsigned tiles = 0;
    unsigned left_out = 0;

    GPR_DEVICE explicit IntegerAdder(Group in = {}) : group(in) {}

    static GPR_DEVICE Vector nothing() { return Vector{{0, 0, 0, 0}}; }

    // Adds the group's sums to the row's integer.
    GPR_DEVICE void flush()
    {
        const long long lower = group.total(this->lower), upper = group.total(this->upper);
        if (group.is_leader()) add_to_integer(group.template sum<In>().word, lower, upper);
        this->lower = this->upper = 0;
        tiles = 0;
    }
    GPR_DEVICE void accumulate(const Vector (&v)[VECTORS])
    {
        make_room();
        add(v);
    }
    GPR_DEVICE void make_room()
    {
        if (tiles++ == most_tiles) flush();
    }
    GPR_DEVICE void add(const Vector (&v)[VECTORS])
    {
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
            this->add_element(element<In>(v[i / vector_elements<In>], i % vector_elements<In>));
        }
    }
    GPR_DEVICE void finalize()
    {
        flush();
        if constexpr (masked)
            count_left_out(group, &group.template sum<In>().left_out, left_out);
    }
};

// ---------------------------------------------------------------- either -----------------------

template <class Traits> constexpr bool adds_floats = is_float<PartType<typename Traits::In>>;
template <class Traits, unsigned VECTORS, class Group = WarpGroup<1>>
using Adder = typename Select<adds_floats<Traits>, FloatAdder<Traits, VECTORS, Group>,
                              IntegerAdder<Traits, VECTORS, Group>>::type;

} // namespace gpr
