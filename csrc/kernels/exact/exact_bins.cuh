// Exact sums: bins, the doubles with a bias that split elements without an error, and how elements
// become doubles.
#pragma once

#include "exact_superaccumulator.cuh"

namespace gpr {

// Elements as doubles for bins. float32 is made smaller by 2^(1023 - 127), so that its exponent
// field is the double's: shifts do that, where a conversion would take as long as four additions.
// 16-bit floats are converted, which is faster for the two in a word.
template <class T> constexpr bool is_converted = sizeof(T) == 2;
template <class T>
constexpr int field_offset = is_converted<T> ? 1024 - (1 << (Format<T>::exponent - 1)) : 0;

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

// What widen() multiplies a number by.
template <class T> GPR_DEVICE double widening_factor()
{
    constexpr uint64 one = (1u << (Format<T>::exponent - 1)) - 1; // the exponent field of 1
    return is_converted<T> || sizeof(T) == 8 ? 1.0 : bit_copy<double>(one << double_fraction);
}

// widen(), sooner: every 16-bit float is a float32. Of converted ones, smaller by a power of two.
template <class T>
constexpr int quick_offset =
    is_converted<T> ? field_offset<dt_float32> + 128 - (1 << (Format<T>::exponent - 1))
                    : field_offset<T>;
template <class T> GPR_DEVICE double widen_quickly(T x)
{
    if constexpr (is_converted<T>) return widen(static_cast<dt_float32>(value_of(x)));
    else return widen(x);
}

constexpr int most_double_field = 2044; // 1.5 * 2^p and twice that are finite
// The exponent field of a bin whose last place is the smallest number of T.
template <class T>
constexpr int deepest_field = field_offset<T> + double_fraction + 1 - Format<T>::fraction;
// The highest exponent field of a bias: infinities and NaN leave its range.
template <class T> constexpr int highest_field =
    sizeof(T) == 8 ? most_double_field : field_offset<T> + static_cast<int>(last_field<T>);

// COUNT bins for elements of type T, STEP bits apart. The first bias has the exponent field `top`.
template <class T, unsigned COUNT, int STEP, bool QUICK = false> struct Bins {
    static constexpr unsigned count = COUNT;
    double sum[COUNT];
    int top; // the same in all lanes of a warp

    static GPR_DEVICE constexpr int deepest()
    {
        if constexpr (QUICK) return deepest_field<T> - field_offset<T> + quick_offset<T>;
        else return deepest_field<T>;
    }
    // Of bin w. None lies deeper than the smallest number needs.
    static GPR_DEVICE int field_at(int top, unsigned w)
    {
        const int e = top - static_cast<int>(w) * STEP;
        return e > deepest() ? e : deepest();
    }
    // Its unit is 2^(lowest_exponent + place).
    static GPR_DEVICE int place_at(int top, unsigned w) { return field_at(top, w) - deepest(); }
    GPR_DEVICE int field(unsigned w) const { return field_at(top, w); }
    GPR_DEVICE double bias(unsigned w) const
    {
        return bit_copy<double>(static_cast<uint64>(field(w)) << double_fraction |
                                1ull << (double_fraction - 1));
    }
    GPR_DEVICE void begin(int at)
    {
        top = at;
#pragma unroll
        for (unsigned w = 0; w < COUNT; w++) sum[w] = bias(w);
    }
    GPR_DEVICE bool is_empty() const
    {
        bool is_so = true;
#pragma unroll
        for (unsigned w = 0; w < COUNT; w++) is_so = is_so && sum[w] == bias(w);
        return is_so;
    }
    // Adds to bin w the part of x that it can hold, and returns the remainder.
    GPR_DEVICE double extract(unsigned w, double x)
    {
        const double grown = sum[w] + x, taken = grown - sum[w];
        sum[w] = grown;
        return x - taken;
    }
    // extract(w, a * b) for a product that is a double: fused, without a multiplication.
    GPR_DEVICE double extract_product(unsigned w, double a, double b)
    {
        const double grown = __fma_rn(a, b, sum[w]), taken = grown - sum[w];
        sum[w] = grown;
        return __fma_rn(a, b, -taken);
    }
    // Adds x to the first USED bins. Returns the last bin's remainder.
    template <unsigned USED = COUNT> GPR_DEVICE double add(double x)
    {
#pragma unroll
        for (unsigned w = 0; w < USED; w++) x = extract(w, x);
        return x;
    }
    // Adds N elements bin by bin, so that additions of one element do not wait for those of
    // another. The last bin's remainders are in `rest`; watch() is called after each addition to
    // the first bin.
    template <unsigned N, class Watch>
    GPR_DEVICE void add_elements(const T (&x)[N], double (&rest)[N], const Watch &watch)
    {
#pragma unroll
        for (unsigned i = 0; i < N; i++) {
            if constexpr (QUICK) rest[i] = widen_quickly(x[i]);
            else rest[i] = widen(x[i]);
        }
#pragma unroll
        for (unsigned w = 0; w < COUNT; w++) {
#pragma unroll
            for (unsigned i = 0; i < N; i++) {
                rest[i] = extract(w, rest[i]);
                if (w == 0) watch();
            }
        }
    }
    template <unsigned N> GPR_DEVICE void add_elements(const T (&x)[N])
    {
        double rest[N];
        add_elements(x, rest, [] {});
    }
    template <unsigned USED = COUNT> GPR_DEVICE double add_product(double a, double b)
    {
        double x = extract_product(0, a, b);
#pragma unroll
        for (unsigned w = 1; w < USED; w++) x = extract(w, x);
        return x;
    }
    // The integers that the bins hold, below 2^51 in magnitude.
    GPR_DEVICE void read(long long (&number)[COUNT], int (&place)[COUNT]) const
    {
#pragma unroll
        for (unsigned w = 0; w < COUNT; w++) {
            number[w] = bit_copy<long long>(sum[w]) - bit_copy<long long>(bias(w));
            place[w] = place_at(top, w);
        }
    }
};

// The bins of a thread for the usual tiles.
constexpr int bin_step = GPR_BIN_STEP_BITS;
constexpr unsigned most_adds = GPR_BIN_ADDS; // to a bin
// From a tile's largest exponent to the first bias's: for most_adds, and larger ones.
constexpr int headroom_bits = 16;
constexpr int least_headroom = 12; // for most_adds
// for a tile, where the sum is in the middle half of its range before
constexpr int tile_headroom = 8;
constexpr unsigned most_tile_adds = 1u << (tile_headroom - 3);
// Two or three bins are placed at multiples of so many bits: so the bins of most warps are at one
// position, and their integers are added as they are. A single bin has no bits to spare for that.
constexpr int place_step = 4;
template <class T> constexpr unsigned bin_count = gpr_exact_bins(sizeof(T));
// The lowest exponent field of the first bias: the last bin's last place is the smallest number.
// Bins are never lower, so that the distances between them are constant.
template <class T>
constexpr int least_top = deepest_field<T> + (static_cast<int>(bin_count<T>) - 1) * bin_step;

template <class T> struct DoubleBins : Bins<T, bin_count<T>, bin_step> {
    // Where bins begin for numbers like those with this key.
    static GPR_DEVICE int top_for(unsigned key)
    {
        constexpr int step = bin_count<T> > 1 ? place_step : 1;
        const int needed = field_offset<T> + static_cast<int>(field_of_key<T>(key)) + headroom_bits;
        const int top = (needed + step - 1) / step * step;
        return top < least_top<T> ? least_top<T> : top < highest_field<T> ? top : highest_field<T>;
    }
    // The largest exponent field of numbers of which a tile stays in range, if there is room.
    GPR_DEVICE int highest() const { return this->top - tile_headroom - field_offset<T>; }
    // Whether the first bin's sum is in the middle half of its range: the first two bits of the
    // fraction differ.
    GPR_DEVICE bool has_room() const
    {
        constexpr unsigned first_bit = 1u << 19;
        const unsigned upper = upper_bits(this->sum[0]);
        return ((upper ^ upper << 1) & first_bit) != 0;
    }
};

// One bin holds every float16 there is.
template <class T> constexpr bool one_bin_suffices = same<T, dt_float16>;

// Bins that hold every finite float32 or bfloat16, for a few additions: where others do not hold a
// tile.
template <class T> constexpr bool has_wide_bins =
    !integer_bins && (same<T, dt_float32> || same<T, dt_bfloat16>);
constexpr int wide_step = 47;
constexpr unsigned most_wide_adds = 32; // 2^(52 - wide_step)
// for as many of the largest
template <class T> constexpr int wide_top = field_offset<T> + static_cast<int>(last_field<T>) + 7;
template <class T> using WideBins =
    Bins<T, (wide_top<T> - deepest_field<T> + wide_step - 1) / wide_step + 1, wide_step>;

} // namespace gpr
