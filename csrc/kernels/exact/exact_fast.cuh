// Exact sums by the kernels of `fast`: an accumulator for them, and what is done about rows that it
// does not hold.
//
// Problem: bins take registers and instructions that a plain sum has not, and kernels of their own
// for each layout. But the sum of most rows is two doubles: a sum and the errors of its additions,
// each of which is a double too (Knuth's two-sum). Mostly all errors are zero, as the doubles have
// 29 binary places that float32 elements lack. So an accumulator is a double, and another one that
// is touched only where an error is not zero. Errors are added up, too; if one of these additions
// has an error itself, the two doubles are not the sum, and the second one becomes NaN: the proof
// is part of the number, and lasts through every addition and shuffle.
//
//     element --added, up and down--> sum
//             --if the two differ, two-sum--> sum
//                                   error --added, up and down--> rest
//                                                     if the two differ: rest = NaN
//
// Whether an addition is exact takes one more: it is if and only if its result rounded up is that
// rounded down (add_exactly in exact_double_double.cuh).
//
// The sum of at most GPR_PAIR_SHARE = 2^13 float16 has 53 bits and needs no proof.
//
// bfloat16 have 8 bits, so that the sum of many is a float32, which is added twice as fast. A
// thread adds them to a float32 in front of its double as long as that is exact.
//
// A row whose rest is NaN is added again by its blocks, to superaccumulators in shared memory
// (exact_again.cuh).
//
//   Launch: a kernel of `fast` with the traits SumByPairs; a thread adds at most GPR_PAIR_SHARE
//   float16 to one accumulator. Where several blocks share a group of rows, and elements are not
//   float16, tickets are slots with counters for each row (exact_merge.cuh).
//
// Still paid: two additions per element where a sum has one; eight of float64, which mostly have
// errors.
#pragma once

#include "exact_again.cuh"
#include "exact_double_double.cuh"
#include "fast.cuh"

namespace gpr {

// The sum of `sum` and `rest`; none if `rest` is NaN and `sum` finite. COUNTS: of so many elements,
// where some are left out of a mean.
template <bool COUNTS> struct PairSum { double sum, rest; };
template <> struct PairSum<true> {
    double sum, rest;
    uint64 count;
};
static_assert(sizeof(PairSum<false>) == gpr_pair_bytes(0) &&
                  sizeof(PairSum<true>) == gpr_pair_bytes(1),
              "as much scratch as the plan has for it");

// Bits that are 0 if a rest is.
GPR_DEVICE unsigned bits_of_rest(double rest)
{
    return (upper_bits(rest) & ~sign_bit) | lower_bits(rest);
}
constexpr uint64 nan_bits = infinity_bits<dt_float64> | 1ull << (double_fraction - 1);
// A rest, or NaN if an addition to it had an error. Of an infinity or NaN it is NaN, too.
GPR_DEVICE double proved_rest(double rest, unsigned lost)
{
    return is_exact(lost) ? rest : bit_copy<double>(nan_bits);
}

// A sum of doubles. It starts at +0, as sums do.
struct Pair {
    double sum = 0, rest = 0;

    GPR_DEVICE void add(double x)
    {
        unsigned lost = 0;
        add_with_error(sum, rest, x, &lost);
        rest = proved_rest(rest, lost);
    }
};

// What a thread adds its shares of OUTPUTS rows to.
template <class Traits, unsigned OUTPUTS> class PairAccumulators {
public:
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    static constexpr bool proves = !gpr_sum_is_float64(Format<In>::fraction, Format<In>::exponent,
                                                       GPR_PAIR_SHARE_BITS),
                          counts = Traits::counts, has_front = proves && sizeof(In) == 2,
                          has_errors = sizeof(In) == sizeof(double); // most additions
    using Number = typename Select<has_front, float, double>::type;
    static constexpr bool skips_nan = Traits::skips_nan, leaves_out = masked || skips_nan;
    // Elements of a thread's row that are tested together. Where an iterator over axes takes
    // registers, they would be spilled.
    static constexpr unsigned added_together = has_front || reduced_axes == 1 ? 4 : 1;

    // Adds the elements of items 0 to COUNT - 1, of those that exist, to their rows: one, or one
    // per element of an item. item_at(k) returns item k.
    template <unsigned COUNT, class ItemAt, class Exists>
    GPR_DEVICE void add_items(const ItemAt &item_at, const Exists &exists)
    {
        // Of several rows a thread would have too many numbers under way.
        constexpr unsigned together = OUTPUTS > 1 ? 1 : COUNT, each = item / OUTPUTS;
#pragma unroll
        for (unsigned k = 0; k < COUNT && counts; k++) {
            if (!exists(k)) continue;
#pragma unroll
            for (unsigned e = 0; e < item; e++)
                count[e / each] += is_part(item_at(k).element(e), item_at(k).kept(e)) ? 1 : 0;
        }
#pragma unroll
        for (unsigned first = 0; first < COUNT; first += together) {
            if (together == 1 && !exists(first)) continue;
            add_numbers<together * each>([&](unsigned j, unsigned k) {
                const unsigned i = first + k / each, e = j + k % each;
                return exists(i) ? number_of(item_at(i).element(e), item_at(i).kept(e)) : Number(0);
            });
        }
    }
    GPR_DEVICE void add(In x, uint64)
    {
        static_assert(OUTPUTS == 1, "of which row it is");
        if constexpr (counts) count[0] += is_part(x, true) ? 1 : 0;
        add_numbers<1>([&](unsigned, unsigned) { return number_of(x, true); });
    }
    template <unsigned VECTORS>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *, uint64, uint64)
    {
        constexpr unsigned together = has_front ? 1 : VECTORS;
        Vector kept[VECTORS];
        unsigned left_out = 0;

#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) kept[k] = v[k];
        if (skips_nan && may_have_nan<In>(v)) left_out = leave_out_nans<In>(kept, Vector{});
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k += together) add_vectors<together>(kept, k);
        end_tile(VECTORS * vector_elements<In> - left_out);
    }
    // A tile's vectors, with 0 in place of NaN that are left out, one after the other; and then how
    // many elements were added.
    GPR_DEVICE void add_vector(const Vector &kept)
    {
        const Vector one[1] = {kept};
        add_vectors<1>(one, 0);
    }
    GPR_DEVICE void end_tile(unsigned added)
    {
        if constexpr (counts) count[0] += added;
    }
    GPR_DEVICE void renormalize() {}
    GPR_DEVICE Acc finalize(unsigned j = 0) const
    {
        Pair pair = {has_front ? others[j].sum : static_cast<double>(first[j]), others[j].rest};
        if constexpr (has_front) pair.add(first[j]);
        if constexpr (has_errors) pair.rest = proved_rest(pair.rest, lost[j]);
        if constexpr (counts) return Acc{pair.sum, pair.rest, count[j]};
        else return Acc{pair.sum, pair.rest};
    }

private:
    // A row's sum is that of `first`, others.rest and, behind a front, others.sum.
    Number first[OUTPUTS] = {};
    Pair others[OUTPUTS];
    unsigned lost[OUTPUTS] = {}; // by additions to a rest; if has_errors, otherwise that is NaN
    unsigned count[OUTPUTS] = {};

    // Whether an element is part of the sum, of those that may be; and its number, or 0.
    static GPR_DEVICE bool is_part(In x, bool is_kept)
    {
        if constexpr (Traits::skips_nan) return is_kept && !is_nan(value_of(x));
        else return is_kept;
    }
    static GPR_DEVICE Number number_of(In x, bool is_kept)
    {
        const Number number = static_cast<Number>(value_of(x));
        if constexpr (leaves_out) return is_part(x, is_kept) ? number : 0;
        else return number;
    }

    // Adds all elements of vectors `first` to first + COUNT - 1.
    template <unsigned COUNT, unsigned VECTORS>
    GPR_DEVICE void add_vectors(const Vector (&v)[VECTORS], unsigned first)
    {
        static_assert(OUTPUTS == 1, "of which row it is");
        constexpr unsigned per_vector = vector_elements<In>;
        add_numbers<COUNT * per_vector>([&](unsigned, unsigned i) {
            const In x = element<In>(v[first + i / per_vector], i % per_vector);
            return static_cast<Number>(value_of(x));
        });
    }

    // Adds numbers 0 to COUNT - 1 of each row. number(j, k) returns number k of row j.
    template <unsigned COUNT, class NumberAt> GPR_DEVICE void add_numbers(const NumberAt &number)
    {
        if constexpr (!proves || has_errors) {
#pragma unroll
            for (unsigned k = 0; k < COUNT; k++) {
#pragma unroll
                for (unsigned j = 0; j < OUTPUTS; j++) {
                    if constexpr (proves)
                        add_with_error(first[j], others[j].rest, number(j, k), &lost[j]);
                    else
                        first[j] += number(j, k);
                }
            }
        } else {
            Number grown[OUTPUTS];
            unsigned inexact[OUTPUTS], any = 0;
#pragma unroll
            for (unsigned j = 0; j < OUTPUTS; j++) {
                grown[j] = first[j];
                inexact[j] = 0;
#pragma unroll
                for (unsigned k = 0; k < COUNT; k++)
                    grown[j] = add_exactly(grown[j], number(j, k), &inexact[j]);
                any |= inexact[j];
            }
            if (!is_exact(any)) add_with_errors<COUNT>(number, grown, inexact);
#pragma unroll
            for (unsigned j = 0; j < OUTPUTS; j++) first[j] = grown[j];
        }
    }
    // The same for numbers whose additions to `first` are not exact, where inexact[j] tells so.
    // Sets what `first` becomes then.
    template <unsigned COUNT, class NumberAt>
    GPR_DEVICE void add_with_errors(const NumberAt &number, Number (&grown)[OUTPUTS],
                                    const unsigned (&inexact)[OUTPUTS])
    {
#pragma unroll
        for (unsigned j = 0; j < OUTPUTS; j++) {
            if (has_front && is_exact(inexact[j])) continue;
            Pair pair = others[j];
            if constexpr (has_front) pair.add(first[j]);
            else pair.sum = first[j];
#pragma unroll
            for (unsigned k = 0; k < COUNT; k++) pair.add(number(j, k));
            others[j] = pair;
            if constexpr (has_front) grown[j] = 0;
            else grown[j] = pair.sum;
        }
    }
};

// How sums that are pairs, or limbs, become results of type Result. First: traits of `exact`; Way:
// what a sum is divided by.
template <class First, class Result, class Way> struct ResultOfPairs {
    using Any = Finished<First, Result, Way>;
    using Fold = typename Any::Fold;
    using In = typename Any::In;
    using Out = Result;
    static constexpr bool is_mean = Any::is_mean, skips_nan = Any::skips_nan,
                          counts = is_mean && (masked || skips_nan);
    static_assert(is_float<In> && is_float<Result>, "sums of real floats");

    // Stores the result of a row of n elements, if the pair has it. Returns whether it does.
    template <bool COUNTS>
    static GPR_DEVICE bool store(Out *out, const PairSum<COUNTS> &acc, uint64 n)
    {
        if constexpr (COUNTS) n = acc.count;
        return store_pair<In, is_mean, COUNTS && is_mean>(out, acc.sum, acc.rest, n);
    }
    template <class AnyLimbs>
    static GPR_DEVICE void store_limbs(Out *out, const AnyLimbs &limbs, uint64 n, uint64 flags)
    {
        *out = finalize_limbs<Out, is_mean>(limbs, n, flags);
    }
};

// The traits of sums by pairs. Results: how they become results, as above.
template <class Results> struct PairTraits {
    using Fold = typename Results::Fold;
    using In = typename Results::In;
    using Compute = In;
    using Out = typename Results::Out;
    using AllParams = FinalizeParams;
    static constexpr bool positional = false, skips_nan = Results::skips_nan,
                          counts = Results::counts;
    using Acc = PairSum<counts>;
    template <unsigned OUTPUTS> using Accumulators = PairAccumulators<PairTraits, OUTPUTS>;
    using Accumulator = Accumulators<1>;
    static constexpr bool proves = Accumulator::proves;
    // Elements narrower than a double leave errors so seldom that trying pays.
    static constexpr bool reduces_quickly = sizeof(In) < sizeof(double);

    static GPR_DEVICE Acc identity()
    {
        if constexpr (counts) return Acc{0, 0, 0};
        else return Acc{0, 0};
    }
    static GPR_DEVICE Acc lift(In x, uint64 i)
    {
        Accumulator one;
        one.add(x, i);
        return one.finalize();
    }
    static GPR_DEVICE Acc combine(const Acc &a, const Acc &b)
    {
        Acc both;
        if constexpr (reduces_quickly) {
            // Mostly there is no rest, and the additions for one, which wait for each other, are
            // left out.
            WithoutRest found;
            both.sum = found.add(a, b);
            both.rest = 0;
            if (!found.is_sum()) both = combine_rests(a, b);
        } else {
            both = combine_rests(a, b);
        }
        if constexpr (counts) both.count = a.count + b.count;
        return both;
    }
    // Combines two accumulators with two others.
    static GPR_DEVICE void combine_both(Acc (&to)[2], const Acc (&with)[2])
    {
        WithoutRest found;
        const double sum[2] = {found.add(to[0], with[0]), found.add(to[1], with[1])};
        const bool is_sum = found.is_sum();
#pragma unroll
        for (unsigned k = 0; k < 2; k++) {
            const Acc both = is_sum ? Acc{sum[k], 0} : combine_rests(to[k], with[k]);
            to[k].sum = both.sum;
            to[k].rest = both.rest;
            if constexpr (counts) to[k].count += with[k].count;
        }
    }
    // Reduces groups of LANES neighbouring lanes, as warp_reduce does, where no lane has a rest and
    // no addition an error. Returns whether that is so; otherwise nothing has changed. Then a step
    // waits for a shuffle and one addition: the proofs are on nobody's way. All lanes of a warp
    // must call.
    template <unsigned LANES, unsigned VALUES>
    static GPR_DEVICE bool try_reduce(Acc (&value)[VALUES])
    {
        const unsigned lane = threadIdx.x % LANES;
        double sum[VALUES];
        unsigned rests = 0, lost = 0;

#pragma unroll
        for (unsigned k = 0; k < VALUES; k++) {
            sum[k] = value[k].sum;
            rests |= bits_of_rest(value[k].rest);
        }
#pragma unroll
        for (unsigned delta = LANES / 2; delta > 0; delta /= 2) {
            double other[VALUES];
#pragma unroll
            for (unsigned k = 0; k < VALUES; k++) other[k] = shuffle_down(sum[k], delta, LANES);
#pragma unroll
            for (unsigned k = 0; k < VALUES; k++) {
                unsigned found = 0;
                sum[k] = add_exactly(sum[k], other[k], &found);
                lost |= lane < delta ? found : 0; // upper lanes have no result
            }
        }
        if (__any_sync(all_lanes, rests != 0 || !is_exact(lost))) return false;
#pragma unroll
        for (unsigned k = 0; k < VALUES; k++) {
            value[k].sum = sum[k];
            if constexpr (counts) {
#pragma unroll
                for (unsigned delta = LANES / 2; delta > 0; delta /= 2)
                    value[k].count += shuffle_down(static_cast<unsigned>(value[k].count), delta,
                                                   LANES);
            }
        }
        return true;
    }
    // Stores the result of a row of n elements, if the accumulator has it. Returns whether it does.
    static GPR_DEVICE bool store(Out *out, const Acc &acc, uint64 n, const FinalizeParams &)
    {
        return Results::store(out, acc, n);
    }
    // Stores it from the row's limbs, which always have it.
    template <class AnyLimbs>
    static GPR_DEVICE void store_limbs(Out *out, const AnyLimbs &limbs, uint64 n, uint64 flags)
    {
        Results::store_limbs(out, limbs, n, flags);
    }

    // Whether an accumulator is the sum of what was added.
    static GPR_DEVICE bool is_pair(const Acc &acc)
    {
        return !proves || !is_nan(acc.rest);
    }
    // Whether an infinity or NaN among the elements alone determines the sum: those narrower than a
    // double do not overflow.
    static GPR_DEVICE bool is_special(const Acc &acc)
    {
        return sizeof(In) < sizeof(double) && is_nan_or_infinity(acc.sum);
    }
    // Bits of the accumulators that are no pairs; and of those whose elements must be added again.
    template <unsigned VALUES> static GPR_DEVICE unsigned no_pairs(const Acc (&value)[VALUES])
    {
        unsigned found = 0;
#pragma unroll
        for (unsigned k = 0; k < VALUES; k++) found |= is_pair(value[k]) ? 0 : 1u << k;
        return found;
    }
    template <unsigned VALUES> static GPR_DEVICE unsigned to_publish(const Acc (&value)[VALUES])
    {
        unsigned found = 0;
#pragma unroll
        for (unsigned k = 0; k < VALUES; k++)
            found |= is_pair(value[k]) || is_special(value[k]) ? 0 : 1u << k;
        return found;
    }

    // What a block does with rows that its accumulators do not hold: bit k of a thread's `left` is
    // set for row number_of(k) of the share that share_of() makes (kernel_traits.cuh). All threads
    // must call.

    // The counters of a group of rows, and their ticket.
    static GPR_DEVICE RowCounters counters_of(unsigned *tickets, uint64 group, unsigned count)
    {
        return RowCounters(tickets, group, count * counters_of_row<In>);
    }
    static GPR_DEVICE unsigned *ticket(unsigned *tickets, uint64 group, unsigned count)
    {
        if constexpr (proves)
            return counters_of(tickets, group, count).ticket();
        else
            return tickets + group;
    }
    // Publishes the block's shares of rows that other blocks share, beside its partials.
    template <unsigned BLOCK, class ShareOf>
    static GPR_DEVICE void publish_left(unsigned left, const Scratch<Acc> &scratch,
                                        const ShareOf &share_of)
    {
        if constexpr (proves) add_left<BLOCK>(left, true, 0, scratch, share_of);
    }
    // Stores the results of rows that the block has alone, or that it is the last block of. Rows
    // have `elements` elements.
    template <unsigned BLOCK, class ShareOf>
    static GPR_DEVICE void store_left(unsigned left, uint64 elements, const Scratch<Acc> &scratch,
                                      const ShareOf &share_of)
    {
        if constexpr (proves) add_left<BLOCK>(left, false, elements, scratch, share_of);
    }

private:
    // Sums of pairs that have no rest; is_sum() tells whether none had one, nor has a sum.
    struct WithoutRest {
        unsigned rests = 0, lost = 0;

        GPR_DEVICE double add(const Acc &a, const Acc &b)
        {
            rests |= bits_of_rest(a.rest) | bits_of_rest(b.rest);
            return add_exactly(a.sum, b.sum, &lost);
        }
        GPR_DEVICE bool is_sum() const { return rests == 0 && is_exact(lost); }
    };
    // The sum of two pairs, but for their counts.
    static GPR_DEVICE Acc combine_rests(const Acc &a, const Acc &b)
    {
        double error;
        unsigned lost = 0;
        Acc both;
        both.sum = two_sum(a.sum, b.sum, &error);
        both.rest = add_exactly(add_exactly(a.rest, b.rest, &lost), error, &lost);
        both.rest = proved_rest(both.rest, lost);
        return both;
    }
    template <unsigned BLOCK, class ShareOf>
    static GPR_DEVICE void add_left(unsigned left, bool publishes, uint64 elements,
                                    const Scratch<Acc> &scratch, const ShareOf &share_of)
    {
        if (!__syncthreads_or(left != 0)) return;
        const auto share = share_of();
        RowsAgain<Acc> what = {left, elements, publishes, nullptr, nullptr};
        if (share.blocks() > 1) {
            what.counters = counters_of(scratch.tickets, share.group(), share.count()).at(0);
            what.partials = scratch.partials() + share.group() * share.blocks() * share.count();
        }
        add_again<PairTraits, BLOCK>(what, share);
    }
};

template <class First, class Result, class Way>
using SumByPairs = PairTraits<ResultOfPairs<First, Result, Way>>;

} // namespace gpr
