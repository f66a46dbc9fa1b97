// Tiles: how a thread folds the vectors that it loaded, 16 bytes at a time.
//
// fold_tile folds a few vectors in registers by the fastest instructions for the traits, and is the
// only place where these are chosen. Operands are reordered.
//
//   float32 in 4 vectors: chains     c0 = v0.x + v1.x + v2.x + v3.x     c1, c2, c3 for y, z, w
//                         then       (c0 + c2) + (c1 + c3)
//   int8 in 4 vectors:               16 dot-product instructions, of 4 elements each
#pragma once

#include "kernel_traits.cuh"
#include "vector.cuh"

namespace gpr {

// ---------------------------------------------------------------- folds of a tile ---------------

// For all traits without positions: a few independent chains, so that combines overlap, then a tree
// over the chains.
template <class Traits, unsigned VECTORS>
GPR_DEVICE typename Traits::Acc fold_each(const Vector (&v)[VECTORS])
{
    using In = typename Traits::In;
    constexpr unsigned elements = vector_elements<In>;
    constexpr unsigned chains = elements < 4 ? elements : 4;
    typename Traits::Acc chain[chains];

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
        for (unsigned j = 0; j < elements; j++) {
            const typename Traits::Acc x = Traits::lift(element<In>(v[k], j), 0);
            chain[j % chains] = k == 0 && j < chains ? x : Traits::combine(chain[j % chains], x);
        }
    }
#pragma unroll
    for (unsigned s = chains / 2; s > 0; s /= 2) {
#pragma unroll
        for (unsigned j = 0; j < s; j++) chain[j] = Traits::combine(chain[j], chain[j + s]);
    }
    return chain[0];
}

// Sums of integers of 1 or 2 bytes: four or two elements in one instruction, in 32 bits, which a
// tile does not overflow. For a float accumulator that is exact where adding one by one would
// round.
template <class Traits> GPR_DEVICE constexpr bool sums_words()
{
    using In = typename Traits::In;
    using Compute = typename Traits::Compute;
    constexpr bool small = sizeof(In) <= 2 && (is_integer<In> || same<In, dt_bool>);

    if constexpr (!same<typename Traits::Fold, fold_sum> || !small) return false;
    else if constexpr (is_signed<Compute>)
        return sizeof(Compute) > sizeof(In) || is_signed<In> || same<In, dt_bool>;
    else if constexpr (is_unsigned<Compute>) return sizeof(Compute) == 8 || !is_signed<In>;
    else
        return same<Compute, dt_float32> ||
               same<Compute, dt_float64>; // these hold every element exactly
}

// Sums of 16-bit floats in double: a tile is summed in float32, whose digits suffice for a tile.
template <class Traits> GPR_DEVICE constexpr bool sums_halves()
{
    using In = typename Traits::In;
    return same<typename Traits::Fold, fold_sum> && sizeof(In) == 2 &&
           same<typename Traits::Compute, In> && same<typename Traits::Acc, double>;
}

// Returns bit 7 set in each byte that is not zero.
GPR_DEVICE unsigned true_bytes(unsigned word)
{
    return (((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u;
}

template <class Traits, unsigned VECTORS>
GPR_DEVICE typename Traits::Acc sum_words(const Vector (&v)[VECTORS])
{
    using In = typename Traits::In;
    using Partial = typename Select<is_signed<In>, int, unsigned>::type;
    static_assert(VECTORS * 8 * 65535ull < 1ull << 31, "a tile must not overflow 32 bits");
    Partial partial = 0;

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
        for (unsigned w = 0; w < 4; w++) {
            if constexpr (same<In, dt_bool>)
                partial = add_bytes(true_bytes(v[k].word[w]) >> 7, partial);
            else if constexpr (sizeof(In) == 1) partial = add_bytes(v[k].word[w], partial);
            else partial = add_halves(v[k].word[w], partial);
        }
    }
    return static_cast<typename Traits::Acc>(partial);
}

// any: the bits that decide whether an element is true: all but the sign of a zero.
template <class In> GPR_DEVICE constexpr unsigned truth_mask(unsigned word)
{
    constexpr unsigned bytes = is_complex<In> ? sizeof(In) / 2 : sizeof(In); // of what has a sign
    if constexpr (!is_float<In> && !is_complex<In>) return ~0u;
    else if constexpr (bytes == 2) return 0x7fff7fffu;
    else if constexpr (bytes == 4) return 0x7fffffffu;
    else return word % 2 == 0 ? ~0u : 0x7fffffffu;
}

template <class Traits, unsigned VECTORS>
GPR_DEVICE typename Traits::Acc or_words(const Vector (&v)[VECTORS])
{
    unsigned bits = 0;

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
        for (unsigned w = 0; w < 4; w++) bits |= v[k].word[w] & truth_mask<typename Traits::In>(w);
    }
    return bits != 0;
}

// all, for elements of one byte: four per instruction.
template <class Traits, unsigned VECTORS>
GPR_DEVICE typename Traits::Acc and_bytes(const Vector (&v)[VECTORS])
{
    unsigned all_true = 0x80808080u;

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
        for (unsigned w = 0; w < 4; w++) all_true &= true_bytes(v[k].word[w]);
    }
    return all_true == 0x80808080u;
}

// The number of bytes that are not zero, or whether it is odd.
template <class Traits, unsigned VECTORS>
GPR_DEVICE typename Traits::Acc count_bytes(const Vector (&v)[VECTORS])
{
    unsigned count = 0;

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
        for (unsigned w = 0; w < 4; w++) count += __popc(true_bytes(v[k].word[w]));
    }
    return same<typename Traits::Fold, fold_odd> ? count & 1 : count;
}

// Bits of integers: whole words first, then their halves or bytes.
template <class Traits, unsigned VECTORS>
GPR_DEVICE typename Traits::Acc fold_words(const Vector (&v)[VECTORS])
{
    using Fold = typename Traits::Fold;
    constexpr unsigned bytes = sizeof(typename Traits::In);
    unsigned even = v[0].word[0], odd = v[0].word[1];

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
        for (unsigned w = k == 0 ? 2 : 0; w < 4; w += 2) {
            even = Fold::combine(even, v[k].word[w]);
            odd = Fold::combine(odd, v[k].word[w + 1]);
        }
    }
    if constexpr (bytes == 8) {
        return static_cast<uint64>(odd) << 32 | even;
    } else {
        unsigned word = Fold::combine(even, odd);
        if constexpr (bytes <= 2) word = Fold::combine(word >> 16, word);
        if constexpr (bytes == 1) word = Fold::combine(word >> 8, word);
        return word; // bits above the element's are not part of the result
    }
}

// The number of true elements, in one word.
template <class Traits, unsigned VECTORS>
GPR_DEVICE unsigned count_elements(const Vector (&v)[VECTORS])
{
    using In = typename Traits::In;
    unsigned count = 0;

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
        for (unsigned j = 0; j < vector_elements<In>; j++)
            count += Traits::lift(element<In>(v[k], j), 0) != 0 ? 1 : 0;
    }
    return count;
}

// Returns the number of elements that are not skipped as NaN.
template <class Traits, unsigned VECTORS>
GPR_DEVICE unsigned count_present(const Vector (&v)[VECTORS])
{
    using In = typename Traits::In;
    unsigned count = VECTORS * vector_elements<In>;

    if constexpr (Traits::skips_nan) {
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
            for (unsigned j = 0; j < vector_elements<In>; j++)
                count -= is_nan(value_of(element<In>(v[k], j)));
        }
    }
    return count;
}

// Whether a tile may have a NaN: an instruction per element, two per float64. A sum of elements is
// NaN if one of them is, or if there are infinities. Halves without their signs compare as
// integers, and so do the upper halves of float64.
template <class In, unsigned VECTORS> GPR_DEVICE bool may_have_nan(const Vector (&v)[VECTORS])
{
    if constexpr (same<In, float>) {
        float sum[2] = {0, 0};
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
            for (unsigned j = 0; j < vector_elements<In>; j++) sum[j % 2] += element<In>(v[k], j);
        }
        return is_nan(sum[0] + sum[1]);
    } else if constexpr (GPR_HAS_HALVES && sizeof(In) == 2) {
        constexpr unsigned infinity = same<In, dt_float16> ? 0x7c00u : 0x7f80u;
        unsigned largest = 0;
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
            for (unsigned w = 0; w < 4; w++)
                largest = larger_halves(largest, v[k].word[w] & 0x7fff7fffu);
        }
        return largest >> 16 > infinity || (largest & 0xffffu) > infinity;
    } else if constexpr (same<In, double>) {
        unsigned largest = 0;
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
            for (unsigned w = 1; w < 4; w += 2) {
                const unsigned upper = v[k].word[w] & 0x7fffffffu;
                largest = upper > largest ? upper : largest;
            }
        }
        return largest >= 0x7ff00000u;
    } else {
        return true;
    }
}

// Puts `none`, a zero, in place of both halves of a word that are NaN. Returns how many are. Below
// the sign, an infinity and what its fraction has room for end at the sign's bit.
template <class In> GPR_DEVICE unsigned leave_out_nan_halves(unsigned *word, unsigned none)
{
    constexpr unsigned both = 0x00010001u, signs = 0x8000u * both;
    constexpr unsigned most_fraction = (1u << Format<In>::fraction) - 1;
    const unsigned nans = ((*word & ~signs) + most_fraction * both) & signs;
    const unsigned left_out = (nans >> 15) * 0xffffu; // all bits of these halves
    *word = (*word & ~left_out) | (none & left_out);
    return static_cast<unsigned>(__popc(nans));
}
// Puts `nothing` in place of elements that are NaN. Returns how many these are. So a tile with NaNs
// that do not count is as quick to add as any other.
template <class In, unsigned VECTORS>
GPR_DEVICE unsigned leave_out_nans(Vector (&v)[VECTORS], const Vector &nothing)
{
    constexpr unsigned per_vector = vector_elements<In>;
    const In none = element<In>(nothing, 0);
    unsigned count = 0;
    if constexpr (sizeof(In) == 2) {
#pragma unroll
        for (unsigned w = 0; w < VECTORS * 4; w++)
            count += leave_out_nan_halves<In>(&v[w / 4].word[w % 4], nothing.word[w % 4]);
        return count;
    }
#pragma unroll
    for (unsigned i = 0; i < VECTORS * per_vector; i++) {
        const In x = element<In>(v[i / per_vector], i % per_vector);
        const bool is_left_out = is_nan(value_of(x));
        store_element(v[i / per_vector], i % per_vector, is_left_out ? none : x);
        count += is_left_out ? 1 : 0;
    }
    return count;
}

// min and max of integers of one byte, two 16-bit halves per instruction. Halves compare by their
// upper bytes first, so one chain over the words finds the extreme of the upper bytes; a second
// chain over the lower bytes alone finds theirs. Signed bytes sort as unsigned ones with their sign
// bit flipped.
GPR_DEVICE unsigned fold_halves(fold_min, unsigned a, unsigned b) { return smaller_halves(a, b); }
GPR_DEVICE unsigned fold_halves(fold_max, unsigned a, unsigned b) { return larger_halves(a, b); }

template <class Traits, unsigned VECTORS>
GPR_DEVICE typename Traits::Acc extreme_byte(const Vector (&v)[VECTORS])
{
    using Fold = typename Traits::Fold;
    using In = typename Traits::In;
    constexpr unsigned flip = is_signed<In> ? 0x80808080u : 0u;
    unsigned upper = v[0].word[0] ^ flip, lower = upper & 0x00ff00ffu;

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
        for (unsigned w = k == 0 ? 1 : 0; w < 4; w++) {
            upper = fold_halves(Fold{}, upper, v[k].word[w] ^ flip);
            lower = fold_halves(Fold{}, lower, (v[k].word[w] ^ flip) & 0x00ff00ffu);
        }
    }
    const unsigned halves = fold_halves(Fold{}, upper >> 8 & 0x00ff00ffu, lower);
    const unsigned best = Fold::combine(halves >> 16, halves & 0xffffu);
    return static_cast<typename Traits::Acc>(static_cast<In>(best ^ (flip & 0xffu)));
}

// Folds vectors in registers. Traits with positions: see thread_accumulator.cuh.
template <class Traits, unsigned VECTORS>
GPR_DEVICE typename Traits::Acc fold_tile(const Vector (&v)[VECTORS])
{
    using Fold = typename Traits::Fold;
    using In = typename Traits::In;
    using Compute = typename Traits::Compute;
    using Acc = typename Traits::Acc;
    constexpr bool lifts = !same<In, Acc>; // elements are not accumulators of an earlier pass
    constexpr bool is_bits =
        same<Fold, fold_bit_and> || same<Fold, fold_bit_or> || same<Fold, fold_bit_xor>;
    constexpr bool as_it_is = same<Compute, In> || same<Compute, dt_bool>;
    constexpr bool is_any = same<Fold, fold_any> || (same<Fold, fold_max> && same<In, dt_bool>);
    constexpr bool is_all = same<Fold, fold_all> || (same<Fold, fold_min> && same<In, dt_bool>);
    constexpr bool is_extreme = same<Fold, fold_min> || same<Fold, fold_max>;

    if constexpr (same<Fold, fold_range> && lifts) {
        using Number = typename Acc::Number;
        return Acc{fold_tile<typename Traits::template With<fold_min, Number>>(v),
                   fold_tile<typename Traits::template With<fold_max, Number>>(v)};
    } else if constexpr (same<Fold, fold_sum_count> && lifts) {
        using Number = typename Acc::Number;
        return Acc{fold_tile<typename Traits::template With<fold_sum, Number>>(v),
                   count_present<Traits>(v)};
    } else if constexpr (sums_halves<Traits>()) {
        return fold_each<typename Traits::template With<fold_sum, float>>(v);
    } else if constexpr (sizeof(In) == 1 && (same<Fold, fold_count> || same<Fold, fold_odd>)) {
        return count_bytes<Traits>(v);
    } else if constexpr (same<Fold, fold_count> && lifts) {
        return count_elements<Traits>(v);
    } else if constexpr (is_bits && same<Compute, In> && !same<In, dt_bool>) {
        return fold_words<Traits>(v);
    } else if constexpr (sums_words<Traits>()) return sum_words<Traits>(v);
    else if constexpr (is_any && as_it_is) return or_words<Traits>(v);
    else if constexpr (is_all && as_it_is && sizeof(In) == 1) return and_bytes<Traits>(v);
    else if constexpr (GPR_HAS_HALVES && is_extreme && as_it_is && sizeof(In) == 1)
        return extreme_byte<Traits>(v);
    else return fold_each<Traits>(v);
}

} // namespace gpr
