// Exact sums: bins of integers, for GPUs that have few units for float64.
//
// An element is an integer of a few bits times a power of two. It is shifted to its position in a
// bin, an integer of 64 or 128 bits, and added. Nothing is ever cut off, so the magnitudes of a
// tile are checked before it is added. A bin's position is given as that of bins of doubles
// (exact_bins.cuh), and its contents are read as theirs are: as integers 42 bits apart.
#pragma once

#include "exact_bins.cuh"

namespace gpr {

template <class T> struct IntegerBins {
    static constexpr unsigned count = bin_count<T>;
    static constexpr int fraction = Format<T>::fraction, pair_bits = 64;
    // Bits below the sign: of one integer that is read, of 64, of 128 bits; and those that
    // most_adds take.
    static constexpr int room = count == 1 ? 51 : count == 2 ? 62 : 126, bits_of_adds = 10;
    // places that an element can be shifted by
    static constexpr int reach = room - bits_of_adds - (fraction + 1);
    // of them are for larger elements than the first tile's
    static constexpr int spare = reach / 6;
    static_assert(reach < pair_bits, "an element is in two neighbouring pairs of limbs");
    uint64 low, high; // of a sum in two's complement; high only where there is room for it
    int top;

    GPR_DEVICE void begin(int at)
    {
        top = at;
        low = high = 0;
    }
    GPR_DEVICE bool is_empty() const { return (low | high) == 0; }
    // Its unit is 2^(lowest_exponent + place), as that of the last bin of doubles.
    GPR_DEVICE int place() const { return top - least_top<T>; }
    static GPR_DEVICE int top_for(unsigned key)
    {
        const int field = static_cast<int>(field_of_key<T>(key)), place = field - 1 + spare - reach;
        return least_top<T> + (place > 0 ? place : 0);
    }
    // The largest exponent field in reach; infinities and NaN are not.
    GPR_DEVICE int highest() const
    {
        const int field = place() + reach + 1;
        return field < static_cast<int>(last_field<T>) ? field
                                                       : static_cast<int>(last_field<T>) - 1;
    }
    // There is, for most_adds.
    static GPR_DEVICE bool has_room() { return true; }
    GPR_DEVICE void add_element(T x)
    {
        constexpr Bits<T> implied = static_cast<Bits<T>>(Bits<T>(1) << fraction);
        const Bits<T> bits = bit_copy<Bits<T>>(x);
        const int field = static_cast<int>(static_cast<unsigned>(bits >> fraction) & last_field<T>);
        const uint64 significand = (bits & (implied - 1u)) | (field != 0 ? implied : 0u);
        // of 0: any
        const unsigned shift =
            static_cast<unsigned>((field > 1 ? field : 1) - 1 - place()) % pair_bits;
        const uint64 negative = (bits & sign_of<T>) != 0 ? 1 : 0, flip = 0 - negative;
        const uint64 addend = ((significand << shift) ^ flip) + negative;

        low += addend;
        if constexpr (count > 2) {
            const uint64 upper = (significand >> 1 >> (pair_bits - 1 - shift)) ^ flip;
            // A number whose lower word is 0 carries into the upper one when it is negated.
            high += upper + (low < addend ? 1 : 0) + (addend == 0 ? negative : 0);
        }
    }
    template <unsigned N> GPR_DEVICE void add_elements(const T (&x)[N])
    {
#pragma unroll
        for (unsigned i = 0; i < N; i++) add_element(x[i]);
    }
    // The integers that the bin holds, below 2^51 in magnitude.
    GPR_DEVICE void read(long long (&number)[count], int (&places)[count]) const
    {
        constexpr uint64 piece = (1ull << bin_step) - 1;
#pragma unroll
        for (unsigned w = 0; w < count; w++)
            places[w] = place() + static_cast<int>(count - 1 - w) * bin_step;
        if constexpr (count == 1) {
            number[0] = static_cast<long long>(low);
        } else if constexpr (count == 2) {
            number[0] = static_cast<long long>(low) >> bin_step;
            number[1] = static_cast<long long>(low & piece);
        } else {
            number[0] = static_cast<long long>(high) >> (2 * bin_step - pair_bits);
            number[1] =
                static_cast<long long>((high << (pair_bits - bin_step) | low >> bin_step) & piece);
            number[2] = static_cast<long long>(low & piece);
        }
    }
};

// The bins that a thread sums a row with. integer_bins is a constant of the program, which comes
// before any include.
template <class T> using RowBins =
    typename Select<integer_bins, IntegerBins<T>, DoubleBins<T>>::type;

} // namespace gpr
