// Exact sums: the superaccumulators of a block in shared memory, and adding floats and integers.
//
// Floats go to a superaccumulator of limbs in radix 2^20, of 32 bits with a sign, so that one
// atomic adds to a limb. (An accumulator that leaves the kernel has words in radix 2^32, of 64
// bits: exact_superaccumulator_layout.cuh.)
//
//     limb        i + 1              i
//              | sign, 11 spare | 20 bits |     value = sum of limb[i] * 2^(20 i)
//
// in units of 2^lowest_exponent.
//
// Any thread may add less than 2^20 in magnitude to a limb at any time. The thread that finds
// |limb| >= 2^29 before its own addition carries: it exchanges the limb for 0, adds the lower 20
// bits of the old value to it, and the rest, below 2^11, to the next limb. 2^29 leaves room for one
// more addition by each of the 1024 threads of a block meanwhile: 2^29 + 2^10 * 2^20 < 2^31.
// Integers go to 128 bits (IntegerSum).
#pragma once

#include "exact_results.cuh"
#include "vector.cuh"
#include "warp.cuh"

namespace gpr {

// ---------------------------------------------------------------- bits of floats ----------------

// Grows with the magnitude. Of a double the upper half: enough to say where bins should lie.
template <class T> GPR_DEVICE unsigned magnitude_key(T x)
{
    if constexpr (sizeof(T) == 8) return upper_bits(x) & ~sign_bit;
    else return bit_copy<Bits<T>>(x) & (sign_of<T> - 1u);
}
template <class T>
constexpr int key_fraction = sizeof(T) == 8 ? Format<T>::fraction - 32 : Format<T>::fraction;
template <class T> GPR_DEVICE unsigned field_of_key(unsigned key) { return key >> key_fraction<T>; }

// Of the floats in the first few of some vectors the largest magnitude, and the smallest that is
// not 0, less the smallest number there is: 0 is the largest there. Of doubles the upper halves.
struct Magnitudes { unsigned largest, smallest_minus_one; };

// The larger one of a magnitude and that of a float32, as bits. From compute capability 8.0 on it
// is one instruction, as a number's magnitude costs nothing there; NaN is larger than all others.
GPR_DEVICE unsigned larger_magnitude(unsigned a, unsigned bits)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const float magnitude = bit_copy<float>(bits & ~sign_bit);
    return bit_copy<unsigned>(larger_of(bit_copy<float>(a), magnitude));
#else
    return a > (bits & ~sign_bit) ? a : bits & ~sign_bit;
#endif
}

template <class T, unsigned VECTORS>
GPR_DEVICE Magnitudes magnitudes_of(const Vector (&v)[VECTORS], unsigned used = VECTORS)
{
    // of every other vector: that is fewer steps one after another
    unsigned larges[2] = {0, 0}, smalls[2] = {~0u, ~0u};

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
        if (k >= used) break;
        unsigned &large = larges[k % 2], &small = smalls[k % 2];
#pragma unroll
        for (unsigned w = 0; w < 4; w += sizeof(T) == 8 ? 2 : 1) {
            if constexpr (sizeof(T) == 8) {
                const unsigned upper = v[k].word[w + 1] & ~sign_bit;
                const uint64 less = (static_cast<uint64>(upper) << 32 | v[k].word[w]) - 1;
                large = large > upper ? large : upper;
                small = small < less >> 32 ? small : static_cast<unsigned>(less >> 32);
            } else if constexpr (sizeof(T) == 2) {
                const unsigned both = v[k].word[w] & 0x7fff7fffu;
                large = larger_halves(large, both);
                small = smaller_halves_less_one(small, both);
            } else {
                const unsigned bits = v[k].word[w], less = 2 * bits - 1; // without the sign
                large = larger_magnitude(large, bits);
                small = small < less ? small : less;
            }
        }
    }
    if constexpr (sizeof(T) == 2) {
        constexpr unsigned half = 0xffffu;
        const unsigned large = larger_halves(larges[0], larges[1]),
                       small = smaller_halves(smalls[0], smalls[1]);
        return Magnitudes{larger_halves(large, large >> 16) & half,
                          smaller_halves(small, small >> 16 | half << 16) & half};
    } else {
        const unsigned small = smalls[0] < smalls[1] ? smalls[0] : smalls[1];
        return Magnitudes{larges[0] > larges[1] ? larges[0] : larges[1],
                          sizeof(T) == 4 ? small / 2 : small};
    }
}

// ---------------------------------------------------------------- the block's superaccumulator
// ------

constexpr int limb_bits = GPR_EXACT_LIMB_BITS;
constexpr int limb_mask = (1 << limb_bits) - 1;
constexpr int full_limb = 1 << 29; // all threads of a block may add once more
template <class T> constexpr int limbs_of = gpr_exact_limbs(accumulator_words<T>);

template <class In> struct Superaccumulator {
    using T = PartType<In>;
    int limb[parts_of<In>][limbs_of<T>];
    unsigned flags[parts_of<In>];
    uint64 left_out;
};

// The sum of a row's integers: 128 bits in two's complement, with room for 2^63 elements of 64
// bits. Any thread may add to it at any time, from the lowest word up. An addition that makes a
// word wrap sees that by the old value, and carries 1 to the next word. However the additions of
// threads interleave, a word makes as many carries as it wraps, so that the sum is right after all
// threads have added, modulo 2^128.
template <class In> struct IntegerSum {
    static constexpr int words = 4;
    unsigned word[words];
    uint64 left_out;
};

// Adds lower + upper * 2^32, where upper + lower / 2^32 has 64 bits.
GPR_DEVICE void add_to_integer(unsigned *word, long long lower, long long upper)
{
    const long long above = upper + (lower >> word_bits);
    const unsigned pieces[] = {static_cast<unsigned>(lower), static_cast<unsigned>(above),
                               static_cast<unsigned>(above >> word_bits), above < 0 ? ~0u : 0u};
    unsigned carry = 0;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned addend = pieces[i] + carry;
        if (addend == 0) continue; // and a full word that was carried to carries on
        carry = atomicAdd(word + i, addend) > ~addend ? 1 : 0;
    }
}

// Adds to a counter in shared memory, by its words: atomic additions of 64 bits are loops there,
// which take microseconds where a whole block adds.
GPR_DEVICE void add_to_counter(uint64 *counter, uint64 number)
{
    unsigned *word = reinterpret_cast<unsigned *>(counter);
    const unsigned lower = static_cast<unsigned>(number);
    const unsigned carry = atomicAdd(word, lower) > ~lower ? 1 : 0;
    const unsigned upper = static_cast<unsigned>(number >> word_bits) + carry;

    if (upper != 0) atomicAdd(word + 1, upper);
}

// The sum of a row in shared memory.
template <class In> using RowSum =
    typename Select<is_float<PartType<In>>, Superaccumulator<In>, IntegerSum<In>>::type;

// The sums of COUNT rows of a block; and the bits of the outlier of each part (RunGroup), or 0.
template <class In, unsigned COUNT> struct BlockSuperaccumulators {
    RowSum<In> of[COUNT];
    uint64 outlier[parts_of<In>];
};
template <class In, unsigned COUNT> GPR_DEVICE BlockSuperaccumulators<In, COUNT> &block_state()
{
    __shared__ BlockSuperaccumulators<In, COUNT> sums;
    return sums;
}
template <class In, unsigned COUNT> GPR_DEVICE RowSum<In> *block_superaccumulators()
{
    return block_state<In, COUNT>().of;
}
// The sum of a block that has one row.
template <class In> GPR_DEVICE Superaccumulator<In> &block_superaccumulator()
{
    return *block_superaccumulators<In, 1>();
}

GPR_CALLED void carry_limb(int *limb)
{
    const int all = atomicExch(limb, 0); // another thread that carries gets later additions
    atomicAdd(limb, all & limb_mask);
    atomicAdd(limb + 1, all >> limb_bits);
}
// |value| < 2^limb_bits
GPR_DEVICE void add_to_limb(int *limb, int value)
{
    if (value == 0) return;
    const int old = atomicAdd(limb, value);
    if (old >= full_limb || old <= -full_limb) carry_limb(limb);
}

// The limbs that begin in word i of a part: below 2^60 in magnitude.
template <class T> GPR_DEVICE long long limbs_in_word(const int *limb, int i)
{
    const int first = (i * word_bits + limb_bits - 1) / limb_bits,
              shift = first * limb_bits - i * word_bits;
    long long word = static_cast<long long>(limb[first]) << shift;
    if (shift + limb_bits < word_bits && first + 1 < limbs_of<T>) {
        word += static_cast<long long>(limb[first + 1]) << (shift + limb_bits);
    }
    return word;
}
// Word i of a part: below 2^33 in magnitude, so that the words of any number of blocks can be
// added. The last one takes all that is left.
template <class T> GPR_DEVICE long long word_of(const int *limb, int i)
{
    const long long own = limbs_in_word<T>(limb, i);
    const long long below = i > 0 ? limbs_in_word<T>(limb, i - 1) >> word_bits : 0;
    return below + (i < accumulator_words<T> - 1 ? own & 0xffffffffll : own);
}

// A number of each lane, summed over the warp. All lanes must call, and get it.
GPR_DEVICE long long warp_total(long long number)
{
#if GPR_HAS_REDUX
    return static_cast<long long>(redux(fold_sum{}, static_cast<uint64>(number)));
#else
#pragma unroll
    for (unsigned mask = warp_lanes / 2; mask > 0; mask /= 2) number += shuffle_xor(number, mask);
    return number;
#endif
}

// The same of numbers below 2^51 in magnitude.
GPR_DEVICE long long warp_sum(long long number)
{
#if GPR_HAS_REDUX
    constexpr int half = 26; // bits: 32 numbers of them fit 32 bits
    const unsigned lower =
        __reduce_add_sync(all_lanes, static_cast<unsigned>(number) & ((1u << half) - 1));
    const int upper = __reduce_add_sync(all_lanes, static_cast<int>(number >> half));
    return (static_cast<long long>(upper) << half) + lower;
#else
    return warp_total(number);
#endif
}

// The same of numbers below 2^BITS in magnitude that the first few lanes have; others have 0.
constexpr unsigned first_lanes = 8;
template <int BITS> GPR_DEVICE long long warp_sum_of_first(long long number)
{
#if GPR_HAS_REDUX
    constexpr int half = 29; // bits: 8 numbers of them fit 32 bits
    static_assert(BITS - half <= 28, "and so do 8 of the upper ones");
    const unsigned lower =
        __reduce_add_sync(all_lanes, static_cast<unsigned>(number) & ((1u << half) - 1));
    const int upper = __reduce_add_sync(all_lanes, static_cast<int>(number >> half));
    return static_cast<long long>((static_cast<uint64>(static_cast<long long>(upper)) << half) +
                                  lower);
#else
    return warp_total(number);
#endif
}

// limbs that a shifted number of 56 bits reaches
constexpr unsigned pieces = 4;
// that a warp adds at once: a lane adds one piece
constexpr unsigned most_integers_at_once = warp_lanes / pieces;
// of longer numbers, which are added in halves
constexpr int half_bits = 40;

// Adds piece i < pieces of a number below 2^56 in magnitude, in units of 2^(lowest_exponent +
// place), to a part.
GPR_DEVICE void add_piece(int *limb, long long number, int place, unsigned i)
{
    const int shift = place % limb_bits - static_cast<int>(i) * limb_bits;
    const uint64 magnitude =
        number < 0 ? 0 - static_cast<uint64>(number) : static_cast<uint64>(number);
    const int value =
        static_cast<int>(shift < 0 ? magnitude >> -shift : magnitude << shift) & limb_mask;
    add_to_limb(limb + place / limb_bits + i, number < 0 ? -value : value);
}

// Adds COUNT integers a lane, summed over the warp, to a part: number i in units of
// 2^(lowest_exponent + place[i]). The numbers' magnitudes are below 2^51. All lanes of the warp
// must call.
template <unsigned COUNT>
GPR_DEVICE void add_integers(int *limb, const long long (&number)[COUNT], const int (&place)[COUNT])
{
    static_assert(COUNT <= most_integers_at_once, "a lane adds one piece");
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
    if (mine != 0) add_piece(limb, mine, first, lane % pieces);
}

// Adds a finite number to limbs in units of 2^LOWEST, of which it is a multiple.
template <class T, int LOWEST = lowest_exponent<T>> GPR_DEVICE void add_to_limbs(int *limb, T x)
{
    static_assert(LOWEST >= lowest_exponent<T>, "limbs hold no more than x has");
    constexpr int fraction = Format<T>::fraction, pieces = (fraction + limb_bits) / limb_bits + 1;
    constexpr Bits<T> implied = static_cast<Bits<T>>(Bits<T>(1) << fraction);
    const Bits<T> bits = bit_copy<Bits<T>>(x);
    const unsigned field = static_cast<unsigned>(bits >> fraction) & last_field<T>;
    uint64 significand = (bits & (implied - 1u)) | (field != 0 ? implied : 0u);
    unsigned place = field != 0 ? field - 1 : 0;
    if constexpr (LOWEST > lowest_exponent<T>) {
        constexpr unsigned below = LOWEST - lowest_exponent<T>;
        if (place < below) { // these bits are 0
            significand = below - place <= fraction ? significand >> (below - place) : 0;
            place = below;
        }
        place -= below;
    }
    const int shift = static_cast<int>(place % limb_bits);

    limb += place / limb_bits;
#pragma unroll
    for (int i = 0; i < pieces; i++) {
        const uint64 shifted =
            i == 0 ? significand << shift : significand >> (i * limb_bits - shift);
        const int value = static_cast<int>(shifted) & limb_mask;
        add_to_limb(limb + i, (bits & sign_of<T>) != 0 ? -value : value);
    }
}

} // namespace gpr
