// exact: the real sum of the elements, rounded once. The same bits in any order, by any grid, on any card.
//
// Removed: rounding on the way. A double that begins at 1.5 * 2^p and stays between 2^p and 2^(p + 1) has its last place
// at 2^(p - 52) all the time: what is added to it is cut to multiples of that, and what the sum grew by is found exactly
// by one subtraction. So three additions split an element in two without an error: the part above 2^(p - 53), which is
// in the sum, and the rest, which goes on to the next such window, 42 bits below. Where the last rest is zero, the
// windows hold every digit. Three of them hold float64 over 68 binary orders of magnitude, two of them float32 over 55;
// one is enough for 16-bit floats, whose numbers have few digits.
//
// A window less what it began with is an integer, and integers are added without regard to order: over a warp, then into
// the block's number in shared memory, and from there into the row's (exact_sum.cuh). That happens every thousand
// elements of a thread, before a window could overflow, and at the end.
//
// Whether elements fit the windows is asked once for a tile: whether the first window ever left its range (an element is
// too large, infinite or NaN), and whether a rest was left. If so, the tile does not count, and is added another way:
// float32 and bfloat16 by windows that hold every number they have, the others digit by digit. After the second such tile
// since the windows began, they move to where it lies. Where windows lie changes the time that is taken, never the sum.
// Of float32 and bfloat16, integer instructions tell beforehand: that is cheaper than to look at what was left.
//
// Still paid: three additions a window for each element, where a sum has one; and a little more at a block's end.
//
// Launch: any number of blocks a row; BLOCK a multiple of 32; out[row] is written by one block: the accumulator, or the
// result. With more than one block a row, a row's counters are its ticket, a gap, and an accumulator: zero before and
// after.
//
// Reference: the windows are those of Rump's extraction of vectors, and of the binned sums of Demmel, Ahrens and Nguyen
// (ReproBLAS), which round; the fixed-point number is Kulisch's. Neither was made to be checked by the tile.
#pragma once

#include "block.cuh"
#include "exact_sum.cuh"
#include "layout.cuh"
#include "tile.cuh"

namespace gpr {

// ---------------------------------------------------------------- bits of floats ----------------

constexpr unsigned sign_bit = 0x80000000u;

template <class T> using Bits =
    typename Select<sizeof(T) == 8, uint64, typename Select<sizeof(T) == 4, unsigned, unsigned short>::type>::type;
template <class T> constexpr Bits<T> sign_of = static_cast<Bits<T>>(Bits<T>(1) << (8 * sizeof(T) - 1));
template <class T> constexpr unsigned last_field = (1u << Format<T>::exponent) - 1; // of infinities and NaN

GPR_DEVICE unsigned upper_bits(double x) { return static_cast<unsigned>(bit_copy<uint64>(x) >> 32); }
GPR_DEVICE unsigned lower_bits(double x) { return static_cast<unsigned>(bit_copy<uint64>(x)); }

// Grows with the magnitude. Of a double the upper half: enough to say where windows should lie.
template <class T> GPR_DEVICE unsigned magnitude_key(T x)
{
    if constexpr (sizeof(T) == 8) return upper_bits(x) & ~sign_bit;
    else return bit_copy<Bits<T>>(x) & (sign_of<T> - 1u);
}
template <class T> constexpr int key_fraction = sizeof(T) == 8 ? Format<T>::fraction - 32 : Format<T>::fraction;
template <class T> GPR_DEVICE unsigned field_of_key(unsigned key) { return key >> key_fraction<T>; }

// ---------------------------------------------------------------- the block's number ------------

// A block adds to a number of smaller digits, which shared memory adds by one instruction: 32 bits with a sign, in radix
// 2^20. Whoever finds a digit nearly full carries.
constexpr int digit_bits = 20;
constexpr int digit_mask = (1 << digit_bits) - 1;
constexpr int full_digit = 1 << 29; // all threads of a block may add once more
template <class T> constexpr int digits_of = (grid_words<T> * word_bits + digit_bits - 1) / digit_bits;

template <class In> struct BlockSum {
    using T = PartType<In>;
    int digit[parts_of<In>][digits_of<T>];
    unsigned flags[parts_of<In>];
    uint64 left_out;
};
template <class In> GPR_DEVICE BlockSum<In> &block_sum()
{
    __shared__ BlockSum<In> sum;
    return sum;
}

GPR_CALLED void carry_digit(int *digit)
{
    const int all = atomicExch(digit, 0); // whoever else carries takes what came after
    atomicAdd(digit, all & digit_mask);
    atomicAdd(digit + 1, all >> digit_bits);
}
// |value| < 2^digit_bits
GPR_DEVICE void add_to_digit(int *digit, int value)
{
    if (value == 0) return;
    const int old = atomicAdd(digit, value);
    if (old >= full_digit || old <= -full_digit) carry_digit(digit);
}

// The digits that begin in word i of a part: below 2^60 in magnitude.
template <class T> GPR_DEVICE long long digits_in_word(const int *digit, int i)
{
    const int first = (i * word_bits + digit_bits - 1) / digit_bits, shift = first * digit_bits - i * word_bits;
    long long word = static_cast<long long>(digit[first]) << shift;
    if (shift + digit_bits < word_bits && first + 1 < digits_of<T>) {
        word += static_cast<long long>(digit[first + 1]) << (shift + digit_bits);
    }
    return word;
}
// Word i of a part: below 2^33 in magnitude, so that the words of any number of blocks can be added. The last one takes
// all that is left.
template <class T> GPR_DEVICE long long word_of(const int *digit, int i)
{
    const long long own = digits_in_word<T>(digit, i);
    const long long below = i > 0 ? digits_in_word<T>(digit, i - 1) >> word_bits : 0;
    return below + (i < grid_words<T> - 1 ? own & 0xffffffffll : own);
}

// A number of each lane, below 2^51 in magnitude, summed over the warp. All lanes must call, and get it.
GPR_DEVICE long long warp_sum(long long number)
{
#if GPR_HAS_REDUX
    constexpr int half = 26; // bits: 32 numbers of them fit 32 bits
    const unsigned lower = __reduce_add_sync(all_lanes, static_cast<unsigned>(number) & ((1u << half) - 1));
    const int upper = __reduce_add_sync(all_lanes, static_cast<int>(number >> half));
    return (static_cast<long long>(upper) << half) + lower;
#else
#pragma unroll
    for (unsigned mask = warp_lanes / 2; mask > 0; mask /= 2) number += shuffle_xor(number, mask);
    return number;
#endif
}

// Adds COUNT integers a lane, summed over the warp, to a part: number i in units of 2^(grid_lowest + place[i]). The
// numbers' magnitudes are below 2^51. All lanes of the warp must call.
template <unsigned COUNT>
GPR_DEVICE void add_numbers(int *digit, const long long (&number)[COUNT], const int (&place)[COUNT])
{
    constexpr unsigned pieces = 4; // digits that a shifted sum of 56 bits reaches
    static_assert(pieces * COUNT <= warp_lanes, "a lane adds one piece");
    const unsigned lane = threadIdx.x % warp_lanes;
    long long mine = 0;
    int first = 0;

#pragma unroll
    for (unsigned i = 0; i < COUNT; i++) {
        const long long sum = warp_sum(number[i]);
        if (lane / pieces == i) {
            mine = sum;
            first = place[i];
        }
    }
    if (mine != 0) {
        const int piece = static_cast<int>(lane % pieces), shift = first % digit_bits - piece * digit_bits;
        const uint64 magnitude = mine < 0 ? 0 - static_cast<uint64>(mine) : static_cast<uint64>(mine);
        const int value = static_cast<int>(shift < 0 ? magnitude >> -shift : magnitude << shift) & digit_mask;
        add_to_digit(digit + first / digit_bits + piece, mine < 0 ? -value : value);
    }
}

// Adds a finite number.
template <class T> GPR_DEVICE void add_digits(int *digit, T x)
{
    constexpr int fraction = Format<T>::fraction, pieces = (fraction + digit_bits) / digit_bits + 1;
    constexpr Bits<T> implied = static_cast<Bits<T>>(Bits<T>(1) << fraction);
    const Bits<T> bits = bit_copy<Bits<T>>(x);
    const unsigned field = static_cast<unsigned>(bits >> fraction) & last_field<T>;
    const uint64 significand = (bits & (implied - 1u)) | (field != 0 ? implied : 0u);
    const unsigned place = field != 0 ? field - 1 : 0;
    const int shift = static_cast<int>(place % digit_bits);

    digit += place / digit_bits;
#pragma unroll
    for (int i = 0; i < pieces; i++) {
        const uint64 shifted = i == 0 ? significand << shift : significand >> (i * digit_bits - shift);
        const int value = static_cast<int>(shifted) & digit_mask;
        add_to_digit(digit + i, (bits & sign_of<T>) != 0 ? -value : value);
    }
}

// ---------------------------------------------------------------- windows -----------------------

// Elements as doubles for windows. float32 is made smaller by 2^(1023 - 127), so that its exponent field is the
// double's: shifts do that, where a conversion would take as long as four additions. 16-bit floats are converted, which
// two of them in a word make the quicker way.
template <class T> constexpr bool is_converted = sizeof(T) == 2;
template <class T> constexpr int field_offset = is_converted<T> ? 1024 - (1 << (Format<T>::exponent - 1)) : 0;

template <class T> GPR_DEVICE double widen(T x)
{
    if constexpr (is_converted<T>) {
        return static_cast<double>(value_of(x));
    } else if constexpr (sizeof(T) == 4) {
        const unsigned bits = bit_copy<unsigned>(x);
        const unsigned upper = static_cast<unsigned>(static_cast<int>(bits) >> 3) & 0x8fffffffu;
        return bit_copy<double>(static_cast<uint64>(upper) << 32 | bits << 29);
    } else {
        return x;
    }
}

constexpr int double_fraction = 52, most_double_field = 2044; // 1.5 * 2^p and twice that are finite
// The exponent field of a window whose last place is the smallest number of T.
template <class T> constexpr int deepest_field = field_offset<T> + double_fraction + 1 - Format<T>::fraction;
// No window lies higher, so that infinities and NaN leave it.
template <class T> constexpr int highest_field =
    sizeof(T) == 8 ? most_double_field : field_offset<T> + static_cast<int>(last_field<T>);

// COUNT windows for elements of type T, STEP bits apart. The first bias has the exponent field `top`.
template <class T, unsigned COUNT, int STEP> struct Windows {
    double sum[COUNT];
    int top; // the same in all lanes of a warp

    // No window lies deeper than the smallest number needs.
    GPR_DEVICE int field(unsigned w) const
    {
        const int e = top - static_cast<int>(w) * STEP;
        return e > deepest_field<T> ? e : deepest_field<T>;
    }
    GPR_DEVICE double bias(unsigned w) const
    {
        return bit_copy<double>(static_cast<uint64>(field(w)) << double_fraction | 1ull << (double_fraction - 1));
    }
    GPR_DEVICE void begin(int at)
    {
        top = at;
#pragma unroll
        for (unsigned w = 0; w < COUNT; w++) sum[w] = bias(w);
    }
    // Adds x. Returns what no window took.
    GPR_DEVICE double add(double x)
    {
#pragma unroll
        for (unsigned w = 0; w < COUNT; w++) {
            const double grown = sum[w] + x, taken = grown - sum[w];
            x -= taken;
            sum[w] = grown;
        }
        return x;
    }
    // Adds what the windows hold to a part. All lanes of a warp must call.
    GPR_DEVICE void close(int *digit) const
    {
        long long number[COUNT];
        int place[COUNT];
#pragma unroll
        for (unsigned w = 0; w < COUNT; w++) {
            number[w] = bit_copy<long long>(sum[w]) - bit_copy<long long>(bias(w));
            place[w] = field(w) - deepest_field<T>;
        }
        add_numbers(digit, number, place);
    }
};

// The windows that a thread has all the time.
constexpr int window_step = 42;
constexpr unsigned most_adds = 1024;  // to a window: 2^(52 - window_step)
constexpr int headroom_bits = 16;     // from a tile's largest exponent to the first bias's: for most_adds, and larger ones
constexpr int least_headroom = 12;    // for most_adds
template <class T> constexpr unsigned near_windows = sizeof(T) == 8 ? 3 : sizeof(T) == 4 ? 2 : 1;
template <class T> using NearWindows = Windows<T, near_windows<T>, window_step>;

// One window holds every float16 there is.
template <class T> constexpr bool is_always_near = same<T, dt_float16>;

// Windows that hold every finite float32 or bfloat16, for a few additions: where others do not hold a tile.
template <class T> constexpr bool has_wide_windows = same<T, dt_float32> || same<T, dt_bfloat16>;
constexpr int wide_step = 47;
constexpr unsigned most_wide_adds = 32; // 2^(52 - wide_step)
template <class T> constexpr int wide_top = field_offset<T> + static_cast<int>(last_field<T>) + 7; // for as many of the largest
template <class T> using WideWindows =
    Windows<T, (wide_top<T> - deepest_field<T> + wide_step - 1) / wide_step + 1, wide_step>;

// ---------------------------------------------------------------- adding floats -----------------

// What a thread adds the floats of a row to, together with its warp. A tile is VECTORS vectors of elements.
template <class Cell, unsigned VECTORS> struct FloatAdder {
    using In = typename Cell::In;
    using T = PartType<In>;
    static constexpr unsigned parts = parts_of<In>, per_vector = vector_elements<In>, elements = VECTORS * per_vector;
    static constexpr unsigned most_skipped = 7; // tiles, after some that did not fit
    // Elements of which integer instructions tell quickly how large they are: that saves two additions of an element.
    static constexpr bool asks_before = same<T, dt_float32> || (same<T, dt_bfloat16> && GPR_HAS_HALVES);
    struct Tile { Vector v[VECTORS]; };
    // What adding a tile the other way has found out.
    struct Findings {
        unsigned largest; // key
        unsigned others, left_out;
    };

    NearWindows<T> near[parts];
    unsigned adds = 0;                    // to the windows since they began
    bool is_placed = is_always_near<T>;   // the same in all lanes, as are:
    unsigned misses = 0, skipped = 0;     // tiles that are added the other way at once, after the last that did not fit
    unsigned strikes = 0;                 // tiles that did not fit since the windows began
    unsigned others = 0;                  // bits that are 0 as long as all elements were -0
    unsigned left_out = 0;

    GPR_DEVICE FloatAdder() { begin(deepest_field<T>); }

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
    GPR_DEVICE void flush()
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) close_near(p, near[p]);
        begin(near[0].top);
    }
    static GPR_CALLED void close_near(unsigned p, NearWindows<T> windows) { windows.close(block_sum<In>().digit[p]); }

    // Windows for numbers like those with this key; not for infinities and NaN.
    GPR_DEVICE void place_for(unsigned key)
    {
        const int field = static_cast<int>(field_of_key<T>(key)), top = field_offset<T> + field + headroom_bits;
        if (is_always_near<T> || field == static_cast<int>(last_field<T>)) return;
        if (is_placed) flush();
        begin(top < highest_field<T> ? top : highest_field<T>);
        is_placed = true;
    }
    static GPR_DEVICE unsigned largest_key(const Vector (&v)[VECTORS])
    {
        unsigned key = 0;
#pragma unroll
        for (unsigned i = 0; i < elements * parts; i++) {
            const unsigned k = magnitude_key(part_of(v[i / parts / per_vector], i / parts % per_vector, i % parts));
            if (k > key) key = k;
        }
        return warp_max(key);
    }

    // All lanes of a warp must call together.
    GPR_DEVICE void take(const Vector (&v)[VECTORS])
    {
        if (!is_placed) place_for(largest_key(v));
        if (!is_placed || skipped > 0) {
            skipped -= skipped > 0 ? 1 : 0;
            return take_anything(v);
        }
        if (adds > most_adds - elements) flush();
        if (!take_near(v)) {
            strikes++;
            skipped = misses;
            misses = misses < most_skipped ? 2 * misses + 1 : misses;
            return take_anything(v);
        }
        misses = 0;
        adds += elements;
        if (others == 0) note_others(v);
    }

    // Adds a tile to the windows if they hold all of it, and says so.
    GPR_DEVICE bool take_near(const Vector (&v)[VECTORS])
    {
        if constexpr (asks_before) {
            if (__any_sync(all_lanes, !is_near(v))) return false;
            (void)add_near(v, near);
        } else {
            NearWindows<T> grown[parts];
#pragma unroll
            for (unsigned p = 0; p < parts; p++) grown[p] = near[p];
            if (__any_sync(all_lanes, !add_near(v, grown))) return false;
#pragma unroll
            for (unsigned p = 0; p < parts; p++) near[p] = grown[p];
        }
        return true;
    }

    // Adds a tile to windows, and says whether they hold it, if that is not asked before.
    static GPR_DEVICE bool add_near(const Vector (&v)[VECTORS], NearWindows<T> (&windows)[parts])
    {
        constexpr unsigned exponent_and_sign = 0xfff00000u;
        unsigned before[parts], left_range = 0, rest = 0, lower_rest = 0;

#pragma unroll
        for (unsigned p = 0; p < parts; p++) before[p] = upper_bits(windows[p].sum[0]);
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
#pragma unroll
            for (unsigned p = 0; p < parts; p++) {
                const double x = windows[p].add(widen(part_of(v[i / per_vector], i % per_vector, p)));
                if constexpr (!is_always_near<T> && !asks_before) {
                    left_range |= upper_bits(windows[p].sum[0]) ^ before[p];
                    rest |= upper_bits(x);
                    if constexpr (!is_converted<T>) lower_rest |= lower_bits(x); // of subnormal numbers
                }
            }
        }
        if constexpr (is_always_near<T>) { // but for infinities and NaN, which stay
#pragma unroll
            for (unsigned p = 0; p < parts; p++) left_range |= upper_bits(windows[p].sum[0]) ^ before[p];
        }
        return ((left_range & exponent_and_sign) | (rest & ~sign_bit) | lower_rest) == 0;
    }

    // Whether windows hold a tile: by its largest magnitude, and its smallest that is not 0.
    GPR_DEVICE bool is_near(const Vector (&v)[VECTORS]) const
    {
        constexpr int fraction = Format<T>::fraction, windows = static_cast<int>(near_windows<T>);
        // Of the windows' last places, and of numbers that begin there.
        const int last_place = near[0].top - (windows - 1) * window_step - double_fraction - field_offset<T>;
        const int lowest = last_place + fraction, highest = near[0].top - least_headroom - field_offset<T>;
        const unsigned least = lowest > 1 ? static_cast<unsigned>(lowest) << fraction : 1;
        unsigned large = 0, small = ~0u; // less 1: 0 is the largest there

#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
            for (unsigned w = 0; w < 4; w++) {
                if constexpr (sizeof(T) == 2) {
                    constexpr unsigned magnitudes = 0x7fff7fffu;
                    const unsigned both = v[k].word[w] & magnitudes;
                    large = larger_halves(large, both);
                    small = smaller_halves(small, (both + magnitudes) ^ ~magnitudes);
                } else {
                    const unsigned magnitude = v[k].word[w] & ~sign_bit;
                    large = large > magnitude ? large : magnitude;
                    small = small < magnitude - 1 ? small : magnitude - 1;
                }
            }
        }
        if constexpr (sizeof(T) == 2) {
            constexpr unsigned half = 0xffffu;
            large = larger_halves(large, large >> 16) & half;
            small = smaller_halves(small, small >> 16 | half << 16) & half;
        }
        return static_cast<int>(large >> fraction) <= highest && small >= least - 1;
    }

    GPR_DEVICE void note_others(const Vector (&v)[VECTORS])
    {
        const Vector zeros = nothing();
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
            for (unsigned w = 0; w < 4; w++) {
                constexpr unsigned period = sizeof(T) == 8 ? 2 : 1; // words of a part
                if constexpr (parts == 1) others |= v[k].word[w] ^ zeros.word[w];
                else others |= (v[k].word[w] ^ zeros.word[w]) != 0 ? 1u << (w / period % parts) : 0;
            }
        }
    }

    GPR_DEVICE void take_anything(const Vector (&v)[VECTORS])
    {
        const bool moves = !is_placed || strikes > 1; // a single outlier leaves the windows where they are
        const Findings found = add_anything(bit_copy<Tile>(v));
        others |= found.others;
        left_out += found.left_out;
        if (moves) place_for(found.largest);
    }

    // Adds a tile of anything. All lanes of a warp must call together.
    static GPR_CALLED Findings add_anything(Tile tile)
    {
        BlockSum<In> &total = block_sum<In>();
        Findings found = {0, 0, 0};

        if constexpr (has_wide_windows<T>) {
            static_assert(elements <= most_wide_adds, "wide windows have room for a tile");
            WideWindows<T> wide[parts];
#pragma unroll
            for (unsigned p = 0; p < parts; p++) wide[p].begin(wide_top<T>);
#pragma unroll 1
            for (unsigned k = 0; k < VECTORS; k++) {
                const Vector vector = tile.v[k];
#pragma unroll
                for (unsigned j = 0; j < per_vector; j++) {
                    const bool is_there = look_at(vector, j, &found);
#pragma unroll
                    for (unsigned p = 0; p < parts; p++) {
                        const T x = part_of(vector, j, p);
                        (void)wide[p].add(is_there && is_finite(x) ? widen(x) : 0.0);
                    }
                }
            }
#pragma unroll
            for (unsigned p = 0; p < parts; p++) wide[p].close(total.digit[p]);
        } else {
#pragma unroll 1
            for (unsigned i = 0; i < elements; i++) {
                if (!look_at(tile.v[i / per_vector], i % per_vector, &found)) continue;
#pragma unroll
                for (unsigned p = 0; p < parts; p++) {
                    const T x = part_of(tile.v[i / per_vector], i % per_vector, p);
                    if (is_finite(x)) add_digits(total.digit[p], x);
                }
            }
        }
        found.largest = warp_max(found.largest);
        return found;
    }

    static GPR_DEVICE bool is_finite(T x) { return field_of_key<T>(magnitude_key(x)) != last_field<T>; }

    // Takes note of an element, and of what is no number. Returns whether it counts.
    static GPR_DEVICE bool look_at(const Vector &v, unsigned j, Findings *found)
    {
        if constexpr (Cell::skips_nan) {
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
                atomicOr(&block_sum<In>().flags[p], static_cast<unsigned>(saw));
            }
        }
        return true;
    }

    GPR_DEVICE void close()
    {
        BlockSum<In> &total = block_sum<In>();
        if (is_placed) flush();
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            const bool has_others = (parts == 1 ? others : others >> p & 1) != 0;
            if (has_others) atomicOr(&total.flags[p], static_cast<unsigned>(saw_not_minus_zero));
        }
        if (left_out != 0) atomicAdd(&total.left_out, static_cast<uint64>(left_out));
    }
};

// ---------------------------------------------------------------- adding integers ---------------

// Integers have no windows: sums of their lower and upper halves.
template <class Cell, unsigned VECTORS> struct IntegerAdder {
    using In = typename Cell::In;
    static constexpr unsigned elements = VECTORS * vector_elements<In>;
    static constexpr unsigned most_tiles = (1u << 18) / elements; // each half's sum is then below 2^51

    long long lower = 0, upper = 0;
    unsigned tiles = 0;

    static GPR_DEVICE Vector nothing() { return Vector{{0, 0, 0, 0}}; }

    GPR_DEVICE void flush()
    {
        const long long halves[2] = {lower, upper};
        const int place[2] = {0, word_bits};
        add_numbers(block_sum<In>().digit[0], halves, place);
        lower = upper = 0;
        tiles = 0;
    }
    GPR_DEVICE void take(const Vector (&v)[VECTORS])
    {
        if (tiles++ == most_tiles) flush();
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
            const In x = element<In>(v[i / vector_elements<In>], i % vector_elements<In>);
            if constexpr (sizeof(In) < 8) {
                lower += static_cast<long long>(value_of(x));
            } else {
                lower += static_cast<long long>(static_cast<uint64>(x) & 0xffffffffu);
                upper += static_cast<long long>(x >> word_bits); // the sign is the upper half's
            }
        }
    }
    GPR_DEVICE void close()
    {
        flush();
        if (threadIdx.x == 0) atomicOr(&block_sum<In>().flags[0], static_cast<unsigned>(saw_not_minus_zero));
    }
};

// ---------------------------------------------------------------- the kernel --------------------

template <class Cell> constexpr bool adds_floats = is_float<PartType<typename Cell::In>>;
template <class Cell, unsigned VECTORS> using Adder =
    typename Select<adds_floats<Cell>, FloatAdder<Cell, VECTORS>, IntegerAdder<Cell, VECTORS>>::type;

// A vector of which only the first element is one.
template <class In> GPR_DEVICE Vector lone(Vector nothing, In x)
{
    if constexpr (sizeof(In) == 1) {
        nothing.word[0] = bit_copy<unsigned char>(x);
    } else if constexpr (sizeof(In) == 2) {
        nothing.word[0] = (nothing.word[0] & 0xffff0000u) | bit_copy<unsigned short>(x);
    } else if constexpr (sizeof(In) == 4) {
        nothing.word[0] = bit_copy<unsigned>(x);
    } else if constexpr (sizeof(In) == 8) {
        nothing.word[0] = static_cast<unsigned>(bit_copy<uint64>(x));
        nothing.word[1] = static_cast<unsigned>(bit_copy<uint64>(x) >> 32);
    } else {
        nothing = bit_copy<Vector>(x);
    }
    return nothing;
}

// A row as vectors, and the elements before the first and after the last that are no whole one.
template <class In> struct Run {
    const In *in;
    uint64 n, head, vectors;

    GPR_DEVICE Run(const In *first, uint64 count) : in(first), n(count)
    {
        const unsigned past = static_cast<unsigned>(reinterpret_cast<uint64>(in) % sizeof(Vector));
        const uint64 to_aligned = past == 0 || sizeof(In) == sizeof(Vector) ? 0 : (sizeof(Vector) - past) / sizeof(In);
        head = to_aligned < n ? to_aligned : n;
        vectors = (n - head) / vector_elements<In>;
    }
    GPR_DEVICE Vector vector(uint64 i) const
    {
        if constexpr (sizeof(In) == sizeof(Vector)) { // elements of 16 bytes may begin where vectors do not
            if (reinterpret_cast<uint64>(in) % sizeof(Vector) != 0) return bit_copy<Vector>(in[i]);
        }
        return load_vector(reinterpret_cast<const Vector *>(in + head) + i);
    }
    GPR_DEVICE bool has_edges() const { return vectors * vector_elements<In> < n; }
    // A lane's element of the edges, the only one in its vector: fewer than 16 come before, fewer than 16 after.
    GPR_DEVICE Vector edge(unsigned lane, const Vector &nothing) const
    {
        const uint64 tail = head + vectors * vector_elements<In>;
        if (lane < head) return lone(nothing, in[lane]);
        if (lane >= warp_lanes / 2 && lane - warp_lanes / 2 < n - tail) return lone(nothing, in[tail + lane - warp_lanes / 2]);
        return nothing;
    }
};

// A warp's share of a row: tiles of neighbouring vectors, in strides of the row's warps, and for the first one the edges.
// The next tile is under way while one is added.
template <class Cell, unsigned VECTORS>
GPR_DEVICE void take_row(Adder<Cell, VECTORS> &adder, const Run<typename Cell::In> &run, uint64 warp, uint64 warps)
{
    constexpr unsigned tile = VECTORS * warp_lanes;
    const unsigned lane = threadIdx.x % warp_lanes;
    const Vector nothing = adder.nothing();
    uint64 first = warp * tile;
    bool has_edges = warp == 0 && run.has_edges(); // and they are still to come
    Vector now[VECTORS], next[VECTORS];

    const auto fetch = [&](Vector(&v)[VECTORS]) {
        if (first + tile <= run.vectors) {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) v[k] = run.vector(first + lane + k * warp_lanes);
            return;
        }
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
            const uint64 i = first + lane + k * warp_lanes;
            v[k] = i < run.vectors ? run.vector(i) : nothing;
        }
        if (first >= run.vectors && has_edges) v[0] = run.edge(lane, nothing);
    };

    fetch(now);
    while (first < run.vectors || has_edges) {
        has_edges = has_edges && first < run.vectors;
        first += warps * tile;
        fetch(next);
        adder.take(now);
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) now[k] = next[k];
    }
}

// Threads that a multiprocessor holds together for sure: so few that two tiles fit their registers.
constexpr unsigned exact_threads = 768;

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, BLOCK < exact_threads ? exact_threads / BLOCK : 1)
exact(const typename Cell::In *in, typename Cell::Out *out, Rows rows, Scratch<typename Cell::Acc> scratch,
      const __grid_constant__ Layout layout)
{
    using In = typename Cell::In;
    using T = PartType<In>;
    using Acc = typename Cell::Acc;
    constexpr unsigned vectors = 4, warps = BLOCK / warp_lanes;
    constexpr unsigned words = grid_words<T>, part_words = words + 2, all_words = sizeof(Acc) / sizeof(uint64);
    constexpr unsigned counters = sizeof(uint64) / sizeof(unsigned) * (all_words + 1);
    static_assert(all_words == parts_of<In> * part_words, "words, a count and flags");
    __shared__ Acc sum;
    BlockSum<In> &part_sum = block_sum<In>();
    unsigned *cleared = reinterpret_cast<unsigned *>(&part_sum);
    uint64 *whole = reinterpret_cast<uint64 *>(&sum);
    const Row row = rows.mine(blockIdx.x);
    const Start start = layout.row(row.index);

    for (unsigned i = threadIdx.x; i < sizeof part_sum / sizeof(unsigned); i += BLOCK) cleared[i] = 0;
    __syncthreads(); // the sum is zero
    Adder<Cell, vectors> adder;
    take_row<Cell, vectors>(adder, Run<In>(in + start.in, row.n),
                            static_cast<uint64>(row.block) * warps + threadIdx.x / warp_lanes,
                            static_cast<uint64>(row.blocks) * warps);
    adder.close();
    __syncthreads(); // all warps have added

    // Word i of what the block has found.
    const auto found = [&](unsigned i) -> uint64 {
        const unsigned p = i / part_words, w = i % part_words;
        if (w < words) return static_cast<uint64>(word_of<T>(part_sum.digit[p], static_cast<int>(w)));
        return w == words ? (row.block == 0 ? row.n : 0) - part_sum.left_out : part_sum.flags[p];
    };
    if (row.blocks == 1) {
        for (unsigned i = threadIdx.x; i < all_words; i += BLOCK) whole[i] = found(i);
    } else {
        unsigned *ticket = scratch.tickets + row.index * counters;
        uint64 *total = reinterpret_cast<uint64 *>(ticket) + 1;
        for (unsigned i = threadIdx.x; i < all_words; i += BLOCK) {
            const uint64 word = found(i);
            if (word != 0 && i % part_words == words + 1) atomicOr(total + i, word);
            else if (word != 0) atomicAdd(total + i, word);
        }
        if (!is_last_to_arrive(ticket, row.blocks)) return;
        for (unsigned i = threadIdx.x; i < all_words; i += BLOCK) {
            whole[i] = total[i];
            total[i] = 0;
        }
    }
    __syncthreads(); // the sum is there
    if constexpr (same<typename Cell::Out, Acc>) {
        uint64 *result = reinterpret_cast<uint64 *>(out + start.out);
        for (unsigned i = threadIdx.x; i < all_words; i += BLOCK) result[i] = whole[i];
    } else {
        if (threadIdx.x < warp_lanes) Cell::put(out + start.out, sum);
    }
}

} // namespace gpr
