// Exact sums: what a thread adds the elements of a row to, together with its warp or alone.
#pragma once

#include "exact_fixed.cuh"
#include "tile.cuh"

namespace gpr {

// ---------------------------------------------------------------- teams -------------------------

// A warp that adds to one of a block's NUMBERS numbers. All its lanes call together.
template <unsigned NUMBERS> struct WarpTeam {
    static constexpr bool keeps = false, has_alone = false;
    static constexpr unsigned size = warp_lanes;
    using Elsewhere = unsigned;
    unsigned number = 0;

    template <class In> GPR_DEVICE BlockSum<In> &sum() const
    {
        return block_sums<In, NUMBERS>()[NUMBERS == 1 ? 0 : number];
    }
    static GPR_DEVICE bool leads() { return threadIdx.x % warp_lanes == 0; }
    static GPR_DEVICE bool any(bool is_so) { return __any_sync(all_lanes, is_so) != 0; }
    static GPR_DEVICE unsigned any_of(unsigned bits) { return warp_or(bits); }
    static GPR_DEVICE unsigned max(unsigned x) { return warp_max(x); }
    static GPR_DEVICE unsigned min(unsigned x) { return warp_min(x); }
    static GPR_DEVICE long long total(long long x) { return warp_sum(x); } // of numbers below 2^51 in magnitude
    static GPR_DEVICE void meet() { __syncwarp(); }
    template <unsigned COUNT>
    static GPR_DEVICE void add(int *digit, const long long (&numbers)[COUNT], const int (&place)[COUNT])
    {
        if constexpr (COUNT <= most_numbers) {
            add_numbers(digit, numbers, place);
        } else {
            add_some<0, most_numbers>(digit, numbers, place);
            add_some<most_numbers, COUNT - most_numbers>(digit, numbers, place);
        }
    }
    // FEW of the numbers, from number FIRST on.
    template <unsigned FIRST, unsigned FEW, unsigned COUNT>
    static GPR_DEVICE void add_some(int *digit, const long long (&numbers)[COUNT], const int (&place)[COUNT])
    {
        long long some[FEW];
        int places[FEW];
#pragma unroll
        for (unsigned i = 0; i < FEW; i++) {
            some[i] = numbers[FIRST + i];
            places[i] = place[FIRST + i];
        }
        add_numbers(digit, some, places);
    }
};

// The same, of a row that is a run: what full windows held is kept, and put with what they hold at the end (exact_held.cuh). Of a
// warp, it is as many integers as there are windows, in units of their last places; 2^56 for each time. Lane w has window w's.
template <class In> struct Kept { long long number[parts_of<In>][near_windows<PartType<In>>]; };
constexpr unsigned most_kept = 32; // times, before it goes to the block's number
constexpr unsigned most_warps = 1024 / warp_lanes;
struct RunTeam : WarpTeam<1> {
    static constexpr bool keeps = true, has_alone = true;
    template <class In> static GPR_DEVICE long long &kept(unsigned p, unsigned w)
    {
        __shared__ Kept<In> of_warp[most_warps];
        return of_warp[threadIdx.x / warp_lanes].number[p][w];
    }
    // Of each part the block's one element that windows do not hold, as bits; 0: there is none.
    template <class In> static GPR_DEVICE uint64 *alone() { return all_block_sums<In, 1>().alone; }
};

// A thread that adds to one of a block's NUMBERS numbers, alone or beside others.
template <unsigned NUMBERS> struct LoneThread {
    static constexpr bool keeps = false, has_alone = false;
    static constexpr unsigned size = 1;
    using Elsewhere = unsigned;
    unsigned number = 0;

    static GPR_DEVICE LoneThread of_row(unsigned number) { return LoneThread{number}; }
    template <class In> GPR_DEVICE BlockSum<In> &sum() const { return block_sums<In, NUMBERS>()[number]; }
    static GPR_DEVICE bool leads() { return true; }
    static GPR_DEVICE bool any(bool is_so) { return is_so; }
    static GPR_DEVICE unsigned any_of(unsigned bits) { return bits; }
    static GPR_DEVICE unsigned max(unsigned x) { return x; }
    static GPR_DEVICE unsigned min(unsigned x) { return x; }
    static GPR_DEVICE long long total(long long x) { return x; }
    static GPR_DEVICE void meet() {}
    template <unsigned COUNT>
    static GPR_DEVICE void add(int *digit, const long long (&numbers)[COUNT], const int (&place)[COUNT])
    {
#pragma unroll
        for (unsigned i = 0; i < COUNT; i++) {
#pragma unroll 1
            for (unsigned piece = 0; piece < pieces && numbers[i] != 0; piece++) {
                add_piece(digit, numbers[i], place[i], piece);
            }
        }
    }
};

// Adds a number of a thread's, below 2^62 in magnitude, in halves, which have no more pieces than a thread adds.
GPR_DEVICE void add_long(int *digit, long long number, int place)
{
    const long long halves[2] = {number & ((1ll << half_bits) - 1), number >> half_bits};
    const int places[2] = {place, place + half_bits};
    LoneThread<1>::add(digit, halves, places);
}

// What there is of a row beside the windows, in the number in shared memory.
constexpr unsigned saw_digits = 1u << 8;   // of elements, or of windows that were emptied
constexpr unsigned saw_specials = 1u << 9; // flags of infinities and NaN
constexpr unsigned saw_alone = 1u << 10;   // an element by itself, not in that number (RunTeam)

// Adds what windows hold to a part.
template <class Team, class AnyWindows>
GPR_DEVICE void close_windows(const Team &team, const AnyWindows &windows, int *digit)
{
    long long number[AnyWindows::count];
    int place[AnyWindows::count];
    windows.read(number, place);
    team.add(digit, number, place);
}

// ---------------------------------------------------------------- adding floats -----------------

// What a thread adds the floats of a row to, together with its team. A tile is VECTORS vectors of elements, of which the
// first `used` have any; the team has the same tiles.
template <class Traits, unsigned VECTORS, class Team = WarpTeam<1>> struct FloatAdder {
    using In = typename Traits::In;
    using T = PartType<In>;
    static constexpr unsigned vectors = VECTORS, parts = parts_of<In>, per_vector = vector_elements<In>;
    static constexpr unsigned elements = VECTORS * per_vector;
    static constexpr bool skips_nan = Traits::skips_nan;
    static constexpr unsigned most_skipped = 7; // tiles, after some that did not fit
    static constexpr int little_above = near_windows<T> > 1 ? 16 : 0; // orders of magnitude that windows move for a few elements
    // Elements of which integer instructions tell quickly how large they are: that saves two additions of an element.
    // Integers as windows cut nothing, and must know.
    static constexpr bool asks_before =
        integer_windows || same<T, dt_float32> || (same<T, dt_bfloat16> && GPR_HAS_HALVES);
    using Near = RowWindows<T>;
    struct Tile { Vector v[VECTORS]; };
    // What adding a tile the other way has found out; the first three are the same in the whole team.
    struct Findings {
        unsigned largest;   // key
        unsigned elsewhere; // where there is something of it beside the windows
        bool is_apart;      // much of it is not in the windows
        unsigned others, left_out;
    };

    Team team;
    Near near[parts];
    unsigned adds = 0;                    // to the windows since they began; from bit kept_shift on, how often that was kept
    bool is_placed = is_always_near<T>;   // the same in the whole team, as are:
    unsigned misses = 0, skipped = 0;     // tiles that are added the other way at once, after the last that did not fit
    unsigned strikes = 0;                 // tiles that did not fit since the windows began
    typename Team::Elsewhere elsewhere{}; // what there is beside the windows: saw_digits, saw_specials, saw_alone
    unsigned others = 0;                  // bits that are 0 as long as all elements were -0
    unsigned left_out = 0;

    GPR_DEVICE explicit FloatAdder(Team in = {}) : team(in) { begin(least_top<T>); }

    // Part p of element j of a vector.
    static GPR_DEVICE T part_of(const Vector &v, unsigned j, unsigned p)
    {
        const In x = element<In>(v, j);
        if constexpr (parts == 1) return x;
        else return p == 0 ? x.re : x.im;
    }
    // All elements -0, which changes no sum.
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
        for (unsigned p = 0; p < parts; p++) near[p].begin(top);
        adds = strikes = 0;
    }
    static constexpr int kept_shift = 16;
    static_assert(most_adds < 1u << kept_shift && most_kept < 1u << kept_shift, "both fit a word");
    GPR_DEVICE unsigned times_kept() const { return adds >> kept_shift; }
    GPR_DEVICE bool is_full() const { return (adds & ((1u << kept_shift) - 1)) > most_adds - elements; }

    struct NearParts { Near of[parts]; };
    GPR_DEVICE NearParts windows() const
    {
        NearParts now;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) now.of[p] = near[p];
        return now;
    }
    // Makes room in the windows.
    GPR_DEVICE void flush()
    {
        if constexpr (Team::keeps) {
            const unsigned times = times_kept();
            keep(team, windows(), times);
            begin(near[0].top);
            elsewhere |= times == most_kept ? saw_digits : 0;
            adds = (times % most_kept + 1) << kept_shift;
        } else {
            empty();
        }
    }
    // Adds all that there is to the number in shared memory.
    GPR_DEVICE void empty()
    {
        elsewhere |= saw_digits;
        close_near(team, windows(), times_kept());
        begin(near[0].top);
    }
    static GPR_CALLED void close_near(Team team, NearParts windows, unsigned times)
    {
        if constexpr (Team::keeps) {
            if (times > 0) close_kept(team, windows.of[0].top);
        }
#pragma unroll
        for (unsigned p = 0; p < parts; p++) close_windows(team, windows.of[p], team.template sum<In>().digit[p]);
    }
    // What windows hold is kept for the team, with what was before, of so many times.
    static GPR_CALLED void keep(Team team, NearParts windows, unsigned times)
    {
        const unsigned member = threadIdx.x % Team::size;
        if (times == most_kept) close_kept(team, windows.of[0].top);
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            long long number[near_windows<T>];
            int place[near_windows<T>];
            windows.of[p].read(number, place);
#pragma unroll
            for (unsigned w = 0; w < near_windows<T>; w++) number[w] = team.total(number[w]);
#pragma unroll
            for (unsigned w = 0; w < near_windows<T>; w++) {
                if (w % Team::size != member) continue;
                long long &kept = team.template kept<In>(p, w);
                kept = times % most_kept == 0 ? number[w] : kept + number[w];
            }
        }
    }
    // Adds what was kept to the number.
    static GPR_CALLED void close_kept(Team team, int top)
    {
#pragma unroll 1
        for (unsigned w = threadIdx.x % Team::size; w < near_windows<T>; w += Team::size) {
            const int place = NearWindows<T>::place_at(top, w);
#pragma unroll
            for (unsigned p = 0; p < parts; p++) add_long(team.template sum<In>().digit[p], team.template kept<In>(p, w), place);
        }
    }

    // Windows for numbers like those with this key; not for infinities and NaN.
    GPR_DEVICE void place_for(unsigned key)
    {
        if (is_always_near<T> || field_of_key<T>(key) == last_field<T>) return;
        if (adds != 0) empty();
        begin(Near::top_for(key));
        is_placed = true;
    }
    // What must be known beforehand, of elements that are asked; and this thread's largest key.
    static GPR_DEVICE Magnitudes ask(const Vector (&v)[VECTORS])
    {
        if constexpr (asks_before) return magnitudes_of<T>(v);
        else return Magnitudes{0, 0};
    }
    static GPR_DEVICE unsigned largest_key(const Vector (&v)[VECTORS], const Magnitudes &asked)
    {
        if constexpr (asks_before) return asked.largest;
        else return largest_key(v);
    }
    template <unsigned COUNT> static GPR_DEVICE unsigned largest_key(const Vector (&v)[COUNT], unsigned used = COUNT)
    {
        unsigned key = 0;
#pragma unroll
        for (unsigned k = 0; k < COUNT; k++) { // vectors by themselves first: that is fewer steps one after another
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

    // Adds a tile, AT_ONCE elements at a time: with more, additions of one wait less for those of another, and take more
    // registers. The whole team must call together.
    template <unsigned AT_ONCE = 1> GPR_DEVICE void take(const Vector (&v)[VECTORS], unsigned used = VECTORS)
    {
        make_room();
        add<AT_ONCE>(v, used);
    }
    // The same in two steps; the first one before a tile is there, which else had to stay in registers meanwhile.
    GPR_DEVICE void make_room()
    {
        if (is_full()) flush();
    }
    template <unsigned AT_ONCE = 1> GPR_DEVICE void add(const Vector (&v)[VECTORS], unsigned used = VECTORS)
    {
        const Magnitudes asked = ask(v);
        unsigned key = 0;
        if (!is_placed) {
            key = largest_key(v, asked);
            place_for(team.max(key));
        }
        if (!is_placed || skipped > 0) {
            skipped -= skipped > 0 ? 1 : 0;
            return take_anything(v, false);
        }
        if (!take_near<AT_ONCE>(v, asked, used)) return take_anything(v, true);
        note_fit();
        if constexpr (parts == 1) others |= key; // more than a zero
        if (parts == 1 ? others == 0 : others != (1u << parts) - 1) note_others(v); // until each part has some
    }
    GPR_DEVICE void note_fit()
    {
        misses = 0;
        adds += elements;
    }
    GPR_DEVICE void skip_some()
    {
        skipped = misses;
        misses = misses < most_skipped ? 2 * misses + 1 : misses;
    }

    // Adds a tile to the windows if they hold all of it, and says so.
    template <unsigned AT_ONCE = 1>
    GPR_DEVICE bool take_near(const Vector (&v)[VECTORS], const Magnitudes &asked, unsigned used = VECTORS)
    {
        if constexpr (asks_before) {
            if (team.any(!holds(near, asked))) return false;
            add_all<AT_ONCE>(v, used);
            return true;
        } else {
            Near grown[parts];
            Fit fit(near);

#pragma unroll
            for (unsigned p = 0; p < parts; p++) grown[p] = near[p];
            fit.template add<AT_ONCE>(v, used, grown);
            if (team.any(!fit.holds(grown))) return false;
#pragma unroll
            for (unsigned p = 0; p < parts; p++) near[p] = grown[p];
            return true;
        }
    }

    // Adds a tile that the windows hold.
    template <unsigned AT_ONCE> GPR_DEVICE void add_all(const Vector (&v)[VECTORS], unsigned used)
    {
#pragma unroll
        for (unsigned i = 0; i < elements; i += AT_ONCE) {
            if (i / per_vector >= used) break;
#pragma unroll
            for (unsigned p = 0; p < parts; p++) near[p].add_elements(some_parts<AT_ONCE>(v, i, p).x);
        }
    }

    // Part p of AT_ONCE elements, from element i on.
    template <unsigned AT_ONCE> struct Parts { T x[AT_ONCE]; };
    template <unsigned AT_ONCE, unsigned COUNT>
    static GPR_DEVICE Parts<AT_ONCE> some_parts(const Vector (&v)[COUNT], unsigned i, unsigned p)
    {
        Parts<AT_ONCE> found;
#pragma unroll
        for (unsigned j = 0; j < AT_ONCE; j++) found.x[j] = part_of(v[(i + j) / per_vector], (i + j) % per_vector, p);
        return found;
    }

    // Adds vectors to windows, and looks whether these hold them: by what was left.
    class Fit {
    public:
        GPR_DEVICE explicit Fit(const Near (&windows)[parts])
        {
#pragma unroll
            for (unsigned p = 0; p < parts; p++) before[p] = upper_bits(windows[p].sum[0]);
        }
        template <unsigned AT_ONCE, unsigned COUNT>
        GPR_DEVICE void add(const Vector (&v)[COUNT], unsigned used, Near (&windows)[parts])
        {
#pragma unroll
            for (unsigned i = 0; i < COUNT * per_vector; i += AT_ONCE) {
                if (i / per_vector >= used) break;
#pragma unroll
                for (unsigned p = 0; p < parts; p++) {
                    const Parts<AT_ONCE> some = some_parts<AT_ONCE>(v, i, p);
                    if constexpr (is_always_near<T>) {
                        windows[p].add_elements(some.x);
                    } else {
                        double x[AT_ONCE];
                        windows[p].add_elements(some.x, x, [&] { left_range |= upper_bits(windows[p].sum[0]) ^ before[p]; });
#pragma unroll
                        for (unsigned j = 0; j < AT_ONCE; j++) {
                            rest |= upper_bits(x[j]);
                            if constexpr (!is_converted<T>) lower_rest |= lower_bits(x[j]); // of subnormal numbers
                        }
                    }
                }
            }
        }
        GPR_DEVICE bool holds(const Near (&windows)[parts])
        {
            constexpr unsigned exponent_and_sign = 0xfff00000u;
            if constexpr (is_always_near<T>) { // but for infinities and NaN, which stay
#pragma unroll
                for (unsigned p = 0; p < parts; p++) left_range |= upper_bits(windows[p].sum[0]) ^ before[p];
            }
            return ((left_range & exponent_and_sign) | (rest & ~sign_bit) | lower_rest) == 0;
        }

    private:
        unsigned before[parts], left_range = 0, rest = 0, lower_rest = 0; // bits
    };

    // Whether windows hold a tile of which they are told beforehand.
    static GPR_DEVICE bool holds(const Near (&windows)[parts], const Magnitudes &found)
    {
        const bool fits = is_near(windows[0], found), has = has_room(windows); // without a branch between them
        return fits && has;
    }
    static GPR_DEVICE bool has_room(const Near (&windows)[parts])
    {
        bool has = true;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) has = has && windows[p].has_room();
        return has;
    }
    // By a tile's largest magnitude, and its smallest that is not 0.
    static GPR_DEVICE bool is_near(const Near &windows, const Magnitudes &found)
    {
        static_assert(elements <= most_tile_adds, "the first window has room for a tile");
        constexpr int fraction = key_fraction<T>;
        // Of numbers that begin at the last window's last place.
        const int lowest = windows.top - least_top<T> + 1;
        // Less the smallest number there is. Of float64 that makes a number with nothing in its lower half too small.
        const unsigned least = lowest > 1 ? (static_cast<unsigned>(lowest) << fraction) - (sizeof(T) == 8 ? 0 : 1) : 0;
        return static_cast<int>(found.largest >> fraction) <= windows.highest() && found.least_less >= least;
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

    // A few elements that the windows do not hold leave them where they are: they go to the number by themselves.
    GPR_DEVICE void take_anything(const Vector (&v)[VECTORS], bool is_miss)
    {
        const bool tries = misses == 0; // in vain after a tile that was mostly elsewhere
        const Grown grown = add_anything(team, windows(), adds == 0, tries, bit_copy<Tile>(v));
        const Findings &found = grown.found;

#pragma unroll
        for (unsigned p = 0; p < parts; p++) near[p] = grown.windows.of[p];
        is_placed = is_placed || found.largest != 0;
        adds += tries ? elements : 0;
        elsewhere |= found.elsewhere;
        others |= found.others;
        left_out += found.left_out;
        if (!found.is_apart) misses = skipped = 0;
        else if (is_miss) skip_some();
        // Numbers that are only a little too large may come again.
        const int above = static_cast<int>(field_of_key<T>(found.largest)) - near[0].highest();
        if (!found.is_apart && (above <= 0 || above > little_above)) return;
        strikes += is_miss ? 1 : 0;
        if (strikes > 1) place_for(found.largest);
    }

    // Adds a tile of anything: to the windows what they hold of it, if they are to be tried. Those that are new, and hold nothing,
    // are placed for what most of the team has. The whole team must call together.
    struct Grown {
        NearParts windows;
        Findings found;
    };
    static GPR_CALLED Grown add_anything(Team team, NearParts windows, bool are_new, bool tries, Tile tile)
    {
        BlockSum<In> &total = team.template sum<In>();
        Grown grown = {windows, {0, 0, false, 0, 0}};
        Findings &found = grown.found;
        unsigned apart = 0; // elements, of this thread

        if (are_new && tries && !is_always_near<T>) {
            const unsigned common = team.min(largest_finite_key(tile));
#pragma unroll
            for (unsigned p = 0; p < parts && common != ~0u; p++) grown.windows.of[p].begin(Near::top_for(common));
        }
        if (has_wide_windows<T> && !tries) {
            if constexpr (has_wide_windows<T>) add_widely(team, tile, total, &found);
            found.elsewhere |= saw_digits;
            apart = elements;
        } else {
#pragma unroll 1
            for (unsigned k = 0; k < VECTORS; k++) {
                const Vector vector = tile.v[k];
                if (tries && add_if_near(grown.windows, vector, &found)) continue;
#pragma unroll 1
                for (unsigned j = 0; j < per_vector; j++) {
                    if (!look_at(total, vector, j, &found)) continue;
                    unsigned where = 0;
#pragma unroll
                    for (unsigned p = 0; p < parts; p++) {
                        const T x = part_of(vector, j, p);
                        if (!is_finite(x) || (tries && add_if_near(grown.windows.of[p], x))) continue;
                        where |= put_apart(total, p, x, tries);
                    }
                    found.elsewhere |= where;
                    apart += where == 0 ? 0 : 1;
                }
            }
        }
        found.elsewhere = team.any_of(found.elsewhere | (Traits::skips_nan ? saw_digits : 0));
        found.is_apart = team.any(apart > elements / 4);
        found.largest = team.max(found.largest);
        return grown;
    }

    // Adds a finite element that windows do not hold to the number, or leaves the first one of a row's block by itself. Returns
    // which it was. Of many nobody asks for the first: `may_be_first`.
    static GPR_DEVICE unsigned put_apart(BlockSum<In> &total, unsigned p, T x, bool may_be_first)
    {
        if constexpr (Team::has_alone) {
            const uint64 bits = bit_copy<Bits<T>>(x);
            if (may_be_first && atomicCAS(Team::template alone<In>() + p, 0ull, bits) == 0) return saw_alone;
        }
        add_digits(total.digit[p], x);
        return saw_digits;
    }

    // With some to spare for larger ones; ~0 if there is none but zeros.
    static GPR_DEVICE unsigned largest_finite_key(const Tile &tile)
    {
        constexpr unsigned spare = 4; // binary orders of magnitude
        unsigned largest = 0;
#pragma unroll 1
        for (unsigned i = 0; i < elements * parts; i++) {
            const unsigned key = magnitude_key(part_of(tile.v[i / parts / per_vector], i / parts % per_vector, i % parts));
            if (field_of_key<T>(key) != last_field<T> && key > largest) largest = key;
        }
        const unsigned more = largest + (spare << key_fraction<T>);
        return largest == 0 ? ~0u : field_of_key<T>(more) < last_field<T> ? more : largest;
    }

    // Adds a tile to windows that hold everything.
    static GPR_DEVICE void add_widely(Team team, const Tile &tile, BlockSum<In> &total, Findings *found)
    {
        static_assert(elements <= most_wide_adds, "wide windows have room for a tile");
        WideWindows<T> wide[parts];
#pragma unroll
        for (unsigned p = 0; p < parts; p++) wide[p].begin(wide_top<T>);
#pragma unroll 1
        for (unsigned k = 0; k < VECTORS; k++) {
            const Vector vector = tile.v[k];
#pragma unroll
            for (unsigned j = 0; j < per_vector; j++) {
                const bool is_there = look_at(total, vector, j, found);
#pragma unroll
                for (unsigned p = 0; p < parts; p++) {
                    const T x = part_of(vector, j, p);
                    (void)wide[p].add(is_there && is_finite(x) ? widen(x) : 0.0);
                }
            }
        }
#pragma unroll
        for (unsigned p = 0; p < parts; p++) close_windows(team, wide[p], total.digit[p]);
    }

    // Adds a vector to windows that hold all of it, and says whether they do.
    static GPR_DEVICE bool add_if_near(NearParts &windows, const Vector &vector, Findings *found)
    {
        const Vector alone[1] = {vector};
        if constexpr (asks_before) {
            const Magnitudes asked = magnitudes_of<T>(alone);
            if (!holds(windows.of, asked)) return false;
#pragma unroll
            for (unsigned p = 0; p < parts; p++) windows.of[p].add_elements(some_parts<per_vector>(alone, 0, p).x);
            found->largest = asked.largest > found->largest ? asked.largest : found->largest;
        } else {
            NearParts grown = windows;
            Fit fit(windows.of);
            fit.template add<1>(alone, 1, grown.of);
            if (!fit.holds(grown.of)) return false;
            windows = grown;
            const unsigned key = largest_key(alone);
            found->largest = key > found->largest ? key : found->largest;
        }
        found->others |= others_of(vector);
        return true;
    }
    // Adds a finite element to windows that hold it, and says whether they do.
    static GPR_DEVICE bool add_if_near(Near &windows, T x)
    {
        if constexpr (asks_before) {
            Vector alone[1] = {nothing()};
            store_element(alone[0], 0, x);
            if (!windows.has_room() || !is_near(windows, magnitudes_of<T>(alone))) return false;
            const T one[1] = {x};
            windows.add_elements(one);
        } else {
            constexpr unsigned exponent_and_sign = 0xfff00000u;
            Near grown = windows;
            const double rest = grown.add(widen(x));
            const unsigned left_range = (upper_bits(grown.sum[0]) ^ upper_bits(windows.sum[0])) & exponent_and_sign;
            if (left_range != 0 || rest != 0) return false;
            windows = grown;
        }
        return true;
    }

    static GPR_DEVICE bool is_finite(T x) { return field_of_key<T>(magnitude_key(x)) != last_field<T>; }

    // Takes note of an element, and of what is no number. Returns whether it counts.
    static GPR_DEVICE bool look_at(BlockSum<In> &total, const Vector &v, unsigned j, Findings *found)
    {
        if constexpr (Traits::skips_nan) {
            bool is_skipped = false;
#pragma unroll
            for (unsigned p = 0; p < parts; p++) is_skipped = is_skipped || is_nan(value_of(part_of(v, j, p)));
            found->left_out += is_skipped ? 1 : 0;
            if (is_skipped) return false;
        }
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
                found->elsewhere |= saw_specials;
            }
        }
        return true;
    }

    GPR_DEVICE void close()
    {
        BlockSum<In> &total = team.template sum<In>();
        if (adds != 0) empty();
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            const bool has_others = (parts == 1 ? others : others >> p & 1) != 0;
            if (team.any(has_others) && team.leads()) {
                atomicOr(&total.flags[p], static_cast<unsigned>(saw_not_minus_zero));
            }
        }
        leave_left_out();
    }
    GPR_DEVICE void leave_left_out() const
    {
        if (left_out != 0) atomicAdd(&team.template sum<In>().left_out, static_cast<uint64>(left_out));
    }
};

// ---------------------------------------------------------------- adding integers ---------------

// Integers have no windows: sums of their lower and upper halves, of which so many are below 2^51.
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
    // Adds what there is to a part, and begins anew. The whole team must call together.
    template <class Team> GPR_DEVICE void empty_into(const Team &team, int *digit)
    {
        const long long halves[2] = {lower, upper};
        const int place[2] = {0, word_bits};
        team.add(digit, halves, place);
        lower = upper = 0;
    }
};

template <class Traits, unsigned VECTORS, class Team = WarpTeam<1>>
struct IntegerAdder : IntegerSums<typename Traits::In> {
    using In = typename Traits::In;
    static constexpr unsigned elements = VECTORS * vector_elements<In>;
    static constexpr unsigned most_tiles = most_integers / elements;

    Team team;
    unsigned tiles = 0;
    unsigned left_out = 0;

    GPR_DEVICE explicit IntegerAdder(Team in = {}) : team(in) {}

    static GPR_DEVICE Vector nothing() { return Vector{{0, 0, 0, 0}}; }

    GPR_DEVICE void flush()
    {
        this->empty_into(team, team.template sum<In>().digit[0]);
        tiles = 0;
    }
    GPR_DEVICE void take(const Vector (&v)[VECTORS])
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
    GPR_DEVICE void close()
    {
        BlockSum<In> &total = team.template sum<In>();
        flush();
        if (team.leads()) atomicOr(&total.flags[0], static_cast<unsigned>(saw_not_minus_zero));
        if (left_out != 0) atomicAdd(&total.left_out, static_cast<uint64>(left_out));
    }
};

// ---------------------------------------------------------------- either -----------------------

template <class Traits> constexpr bool adds_floats = is_float<PartType<typename Traits::In>>;
template <class Traits, unsigned VECTORS, class Team = WarpTeam<1>> using Adder =
    typename Select<adds_floats<Traits>, FloatAdder<Traits, VECTORS, Team>, IntegerAdder<Traits, VECTORS, Team>>::type;

} // namespace gpr
