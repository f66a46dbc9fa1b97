// Exact sums: a warp's only tile.
//
// Where a row is so short that each warp has one tile of it, no load hides the instructions: their
// number and latency count. The tile's own largest number places the bins, which need no room for
// later tiles, and are one fewer: one bin holds float32 over some twenty binary orders of
// magnitude, two hold float64 over twenty to thirty. They are the last bins of DoubleBins, placed
// so high that nothing reaches the first one: their integers are limbs of a LimbPartial as they
// are.
//
// The longer a row, the likelier one of its tiles has a smaller number: every second row of a
// million normal float32 does. That tile is added again, and its partial merged by the slow path.
// So tiles of long rows have all bins.
#pragma once

#include "exact_limb_partial.cuh"

namespace gpr {

template <class T> constexpr unsigned tile_bins = bin_count<T> > 1 ? bin_count<T> - 1 : 1;
// Least blocks of a row whose tiles have all bins.
template <class T> constexpr unsigned many_blocks = sizeof(T) == 8 ? 128 : 16;

// COUNT bins for ADDS additions of numbers that are at most as large as one that is known. They are
// placed at multiples of so many bits that those of different warps mostly lie at one place.
template <class T, unsigned ADDS, unsigned COUNT> struct TileBins : Bins<T, COUNT, bin_step, true> {
    static constexpr unsigned count = COUNT;
    // 2 bits, and those of ADDS. A single bin needs more, as no other takes what blocks have
    // together; with so many, numbers whose largest is from 1 to 16 are at one place.
    static constexpr int headroom = bin_count<T> == 1 ? 18 : ADDS <= 8 ? 5 : 6;
    static_assert(ADDS <= (bin_count<T> == 1 ? most_adds : 16u), "sums stay within a bin");
    static constexpr int step = sizeof(T) == 8 ? 4 * place_step : place_step;
    // by so much smaller than those of DoubleBins
    static constexpr int moved = field_offset<T> - quick_offset<T>;
    static constexpr int least = deepest_field<T> - moved + static_cast<int>(count - 1) * bin_step;

    static GPR_DEVICE int top_for(unsigned key)
    {
        const int needed = quick_offset<T> + static_cast<int>(field_of_key<T>(key)) + headroom;
        const int top = (needed + step - 1) / step * step;
        return one_bin_suffices<T> || top < least ? least : top;
    }
    GPR_DEVICE bool has_place_for(unsigned key) const
    {
        return field_of_key<T>(key) != last_field<T> &&
               (one_bin_suffices<T> || this->top <= highest_field<T> - moved);
    }
    // The top of DoubleBins of which these are the last.
    GPR_DEVICE int row_top() const
    {
        return this->top + moved + static_cast<int>(bin_count<T> - count) * bin_step;
    }
    // The smallest key, less one, of numbers without a limb below the last bin.
    GPR_DEVICE unsigned smallest_minus_one() const
    {
        const int lowest = this->top - least + 1;
        return lowest > 1 ? (static_cast<unsigned>(lowest) << key_fraction<T>) - 1 : 0;
    }
};

template <class Traits>
constexpr bool has_tile_bins = !integer_bins && !is_complex<typename Traits::In>;

// Sums a warp's tile in *partial, in all lanes, if COUNT bins hold it. Returns whether they do. All
// lanes must call. The first `used` vectors of the tile have elements.
template <class Traits, unsigned COUNT, unsigned VECTORS>
GPR_DEVICE bool partial_of_tile(const Vector (&v)[VECTORS], unsigned used,
                                LimbPartial<typename Traits::In> *partial)
{
    using T = typename Traits::In;
    using Adder = FloatAdder<Traits, VECTORS, RunGroup>;
    using Tile = TileBins<T, Adder::elements, COUNT>;
    constexpr bool prechecks = sizeof(T) < 8; // as an adder does
    constexpr unsigned at_once = 4, above = LimbPartial<T>::limbs - Tile::count;
    Magnitudes found = {0, 0};
    Tile bins;
    unsigned rest = 0; // bits of the last bin's remainders

    if constexpr (prechecks) found = magnitudes_of<T>(v, used);
    else found.largest = Adder::largest_key(v, used);
    const unsigned largest = warp_max(found.largest);
    bins.begin(Tile::top_for(largest));
#pragma unroll
    for (unsigned i = 0; i < Adder::elements; i += at_once) {
        if (i / Adder::per_vector >= used) break;
        double x[at_once];
        bins.add_elements(Adder::template some_parts<at_once>(v, i, 0).x, x, [] {});
#pragma unroll
        for (unsigned j = 0; j < at_once && !prechecks; j++)
            rest |= (upper_bits(x[j]) & ~sign_bit) | lower_bits(x[j]);
    }
    // The bins are summed before the vote on the remainders is known, so that its latency is
    // hidden.
    const bool all_fit = __all_sync(
        all_lanes, prechecks ? found.smallest_minus_one >= bins.smallest_minus_one() : rest == 0);
    long long number[Tile::count];
    int place[Tile::count];
    bins.read(number, place);
    *partial = {};
#pragma unroll
    for (unsigned w = 0; w < Tile::count; w++) partial->limb[0][above + w] = warp_sum(number[w]);
    partial->top = bins.row_top();
    partial->flags = saw_not_minus_zero; // zeros alone may all be -0, and go another way
    return all_fit && largest != 0 && bins.has_place_for(largest);
}

} // namespace gpr
