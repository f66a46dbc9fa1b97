// Exact sums by the kernels of `fast`: an accumulator for them, and what is done about rows that it
// does not hold.
//
// Problem: bins take registers and instructions that a plain sum has not, and kernels of their own
// for each layout. But the sum of most rows is two doubles: a sum and the errors of its additions,
// each of which is a double too (Knuth's two-sum). Mostly all errors are zero, as the doubles have
// 29 binary places that float32 elements lack. So an accumulator is a double, and another one that
// is touched only where an error is not zero. Errors are added up by two-sums as well; if one of
// these has an error itself, the two doubles are not the sum, and the second one becomes NaN: the
// proof is part of the number, and lasts through every addition and shuffle.
//
//     element --two-sum--> sum
//                 error --if any is not 0, two-sum--> rest
//                                          error --if it is not 0--> rest = NaN
//
// The sum of at most GPR_PAIR_SHARE = 2^13 float16 has 53 bits and needs no proof.
//
// bfloat16 have 8 bits, so that the sum of many is a float32, which is added twice as fast. A
// thread adds them to a float32 in front of its double as long as that has no error:
//
//     element --float32 addition--> front
//               if s - a != b or s - b != a: front and element --two-sums--> sum, rest
//
// One of the two differences is computed without an error, that from the number of the larger
// magnitude; so both are as they should be if and only if s = a + b is exact.
//
// A row whose rest is NaN is added again by its blocks, to superaccumulators in shared memory
// (exact_again.cuh).
//
//   Launch: a kernel of `fast` with the traits SumByPairs; a thread adds at most GPR_PAIR_SHARE
//   float16 to one accumulator. Where several blocks share a group of rows, and elements are not
//   float16, tickets are slots with counters for each row (exact_merge.cuh).
//
// Still paid: six additions per element, or three in float32, where a sum has one.
#pragma once

#include "exact_again.cuh"
#include "exact_double_double.cuh"
#include "fast.cuh"

namespace gpr {

// The sum of `sum` and `rest`; none if `rest` is NaN and `sum` finite. COUNTS: of so many elements,
// where some are left out.
template <bool COUNTS> struct PairSum { double sum, rest; };
template <> struct PairSum<true> {
    double sum, rest;
    uint64 count;
};
static_assert(sizeof(PairSum<false>) == gpr_pair_bytes(0) &&
                  sizeof(PairSum<true>) == gpr_pair_bytes(1),
              "as much scratch as the plan has for it");

GPR_DEVICE double two_sum(double a, double b, double *error)
{
    const double sum = a + b, of_b = sum - a, of_a = sum - of_b;
    *error = (a - of_a) + (b - of_b);
    return sum;
}
// Bits that are 0 if two numbers have the same ones.
GPR_DEVICE unsigned different_bits(float a, float b)
{
    return bit_copy<unsigned>(a) ^ bit_copy<unsigned>(b);
}
GPR_DEVICE unsigned different_bits(double a, double b)
{
    return (upper_bits(a) ^ upper_bits(b)) | (lower_bits(a) ^ lower_bits(b));
}
// The sum of two numbers, and bits that are 0 if it has no error. A zero with another sign counts
// as one. Of the two differences that from the number of the larger magnitude has no error, so both
// are as they should be if and only if the sum is exact. It has half the additions of two_sum, and
// none of them waits for more than one other.
template <class T> GPR_DEVICE T add_exactly(T a, T b, unsigned *lost)
{
    const T sum = a + b, of_b = sum - a, of_a = sum - b;
    *lost |= different_bits(of_b, b);
    *lost |= different_bits(of_a, a);
    return sum;
}
// Bits that are 0 if the error of an addition is.
GPR_DEVICE unsigned bits_of_error(double error)
{
    return (upper_bits(error) & ~sign_bit) | lower_bits(error);
}
constexpr uint64 nan_bits = infinity_bits<dt_float64> | 1ull << (double_fraction - 1);
// Adds an error to a rest. An infinity or NaN makes the rest NaN, as a lost bit does.
GPR_DEVICE double add_to_rest(double rest, double error)
{
    double lost;
    const double sum = two_sum(rest, error, &lost);
    return lost == 0 ? sum : bit_copy<double>(nan_bits);
}
GPR_DEVICE bool is_nan_or_infinity(double x)
{
    constexpr unsigned exponent = 0x7ff00000u;
    return (upper_bits(x) & exponent) == exponent;
}

// Errors of additions. Adding them, and rests, by a function that is called makes programs smaller,
// and columns take a third longer: many a warp has an error.
template <unsigned COUNT> struct Errors { double of[COUNT]; };

GPR_DEVICE double sum_of_rests(double a, double b, double error)
{
    double lost;
    const double rest = two_sum(a, b, &lost);
    return add_to_rest(lost == 0 ? rest : bit_copy<double>(nan_bits), error);
}

// What a thread adds its share of a row to. It starts at +0, as sums do.
template <class Traits> struct PairAccumulator {
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    static constexpr bool proves = !gpr_sum_is_float64(Format<In>::fraction, Format<In>::exponent,
                                                       GPR_PAIR_SHARE_BITS),
                          counts = Traits::counts, has_front = proves && sizeof(In) == 2;
    using Number = typename Select<has_front, float, double>::type;
    // Elements of a thread's row that are tested together. Where an iterator over axes takes
    // registers, they would be spilled.
    static constexpr unsigned added_together = has_front || reduced_axes == 1 ? 4 : 1;
    double sum = 0, rest = 0;
    float front = 0; // also part of the sum
    unsigned count = 0;

    // The number of an element that may be left out.
    GPR_DEVICE Number number_of(In x, bool is_kept)
    {
        const auto number = value_of(x);
        if constexpr (Traits::skips_nan) is_kept = is_kept && number == number;
        if constexpr (counts) {
            count += is_kept ? 1 : 0;
            return is_kept ? static_cast<Number>(number) : 0;
        }
        return static_cast<Number>(number);
    }
    // Adds the front to the sum, and clears it.
    GPR_DEVICE void empty_front()
    {
        const Errors<1> error = {{add_number(front)}};
        front = 0;
        keep_errors(error);
    }
    // Adds a number; returns the error that is left.
    GPR_DEVICE double add_number(double x)
    {
        double error = 0;
        if constexpr (proves) sum = two_sum(sum, x, &error);
        else sum += x;
        return error;
    }
    template <unsigned COUNT> GPR_DEVICE void keep_errors(const Errors<COUNT> &error)
    {
#pragma unroll
        for (unsigned i = 0; i < COUNT; i++) rest = add_to_rest(rest, error.of[i]);
    }

    template <unsigned COUNT> GPR_DEVICE void add_numbers(const Number (&x)[COUNT])
    {
        Errors<COUNT> error;
        unsigned found = 0;
        if constexpr (has_front) {
            float grown = front;
#pragma unroll
            for (unsigned i = 0; i < COUNT; i++) grown = add_exactly(grown, x[i], &found);
            if (found == 0) {
                front = grown;
                return;
            }
            empty_front();
        }
#pragma unroll
        for (unsigned i = 0; i < COUNT; i++) {
            error.of[i] = add_number(x[i]);
            if constexpr (proves) found |= bits_of_error(error.of[i]);
        }
        if (proves && found != 0) keep_errors(error);
    }
    GPR_DEVICE void add(In x, uint64)
    {
        const Number number[1] = {number_of(x, true)};
        add_numbers(number);
    }
    template <unsigned VECTORS>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *, uint64, uint64)
    {
        constexpr unsigned per_vector = vector_elements<In>;
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
            Number x[per_vector];
#pragma unroll
            for (unsigned j = 0; j < per_vector; j++)
                x[j] = number_of(element<In>(v[k], j), true);
            add_numbers(x);
        }
    }
    GPR_DEVICE void renormalize() {}
    GPR_DEVICE Acc finalize() const
    {
        PairAccumulator all = *this;
        if constexpr (has_front) all.empty_front();
        if constexpr (counts) return Acc{all.sum, all.rest, all.count};
        else return Acc{all.sum, all.rest};
    }
};

// The traits of sums that become results of type Result. First: those of `exact`; Way: how a sum
// becomes a result.
template <class First, class Result, class Way> struct SumByPairs {
    using Any = Finished<First, Result, Way>;
    using Fold = typename Any::Fold;
    using In = typename Any::In;
    using Compute = In;
    using Out = Result;
    using AllParams = FinalizeParams;
    static constexpr bool positional = false, is_mean = Any::is_mean, skips_nan = Any::skips_nan,
                          counts = masked || skips_nan;
    using Acc = PairSum<counts>;
    using Accumulator = PairAccumulator<SumByPairs>;
    static constexpr bool proves = Accumulator::proves;
    // Elements narrower than a double leave errors so seldom that trying pays.
    static constexpr bool reduces_quickly = sizeof(In) < sizeof(double);
    static_assert(is_float<In> && is_float<Result>, "sums of real floats");

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
            unsigned lost = 0;
            both.sum = add_without_rest(a, b, &lost);
            both.rest = 0;
            if (lost != 0) both = combine_rests(a, b);
        } else {
            both = combine_rests(a, b);
        }
        if constexpr (counts) both.count = a.count + b.count;
        return both;
    }
    // Combines two accumulators with two others.
    static GPR_DEVICE void combine_both(Acc (&to)[2], const Acc (&with)[2])
    {
        unsigned lost = 0;
        const double sum[2] = {add_without_rest(to[0], with[0], &lost),
                               add_without_rest(to[1], with[1], &lost)};
#pragma unroll
        for (unsigned k = 0; k < 2; k++) {
            const Acc both = lost == 0 ? Acc{sum[k], 0} : combine_rests(to[k], with[k]);
            to[k].sum = both.sum;
            to[k].rest = both.rest;
            if constexpr (counts) to[k].count += with[k].count;
        }
    }
    // Reduces groups of LANES neighbouring lanes, as warp_reduce does, where no lane has a rest and
    // no addition an error. Returns whether that is so; otherwise nothing has changed. Then a step
    // waits for a shuffle and one addition: the errors are on nobody's way. All lanes of a warp
    // must call.
    template <unsigned LANES, unsigned VALUES>
    static GPR_DEVICE bool try_reduce(Acc (&value)[VALUES])
    {
        const unsigned lane = threadIdx.x % LANES;
        double sum[VALUES];
        unsigned lost = 0;

#pragma unroll
        for (unsigned k = 0; k < VALUES; k++) {
            sum[k] = value[k].sum;
            lost |= bits_of_error(value[k].rest);
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
        if (__any_sync(all_lanes, lost != 0)) return false;
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
    // Adds items 0 to COUNT - 1 of a row, of which `there` exist.
    template <unsigned COUNT, class ItemAt>
    static GPR_DEVICE void add_items(ThreadAccumulator<SumByPairs> &of, unsigned there,
                                     const ItemAt &item_at)
    {
        typename Accumulator::Number x[COUNT * item];
#pragma unroll
        for (unsigned k = 0; k < COUNT; k++) {
#pragma unroll
            for (unsigned j = 0; j < item; j++) {
                x[k * item + j] = 0;
                if (k < there)
                    x[k * item + j] = of.number_of(item_at(k).element(j), item_at(k).kept(j));
            }
        }
        of.add_numbers(x);
    }
    // Adds the elements of an item to the accumulators of their rows: one, or one per element.
    template <unsigned OUTPUTS>
    static GPR_DEVICE void add_item(ThreadAccumulator<SumByPairs> (&of)[OUTPUTS],
                                    const Item<In> &items)
    {
        if constexpr (OUTPUTS == 1) {
            typename Accumulator::Number x[item];
#pragma unroll
            for (unsigned j = 0; j < item; j++)
                x[j] = of[0].number_of(items.element(j), items.kept(j));
            of[0].add_numbers(x);
        } else if constexpr (Accumulator::has_front) {
            float x[item], grown[item];
            unsigned lost[item], found = 0;
#pragma unroll
            for (unsigned j = 0; j < item; j++) {
                x[j] = of[j].number_of(items.element(j), items.kept(j));
                lost[j] = 0;
                grown[j] = add_exactly(of[j].front, x[j], &lost[j]);
                found |= lost[j];
            }
#pragma unroll
            for (unsigned j = 0; j < item; j++) {
                if (found == 0 || lost[j] == 0) {
                    of[j].front = grown[j];
                } else {
                    of[j].empty_front();
                    of[j].keep_errors(Errors<1>{{of[j].add_number(x[j])}});
                }
            }
        } else {
            Errors<item> error;
            unsigned found = 0;
#pragma unroll
            for (unsigned j = 0; j < item; j++) {
                error.of[j] = of[j].add_number(of[j].number_of(items.element(j), items.kept(j)));
                if constexpr (proves) found |= bits_of_error(error.of[j]);
            }
            if (!proves || found == 0) return;
#pragma unroll
            for (unsigned j = 0; j < item; j++) of[j].keep_errors(Errors<1>{{error.of[j]}});
        }
    }

    // Stores the result of a row of n elements, if the accumulator has it. Returns whether it does.
    static GPR_DEVICE bool store(Out *out, const Acc &acc, uint64 n, const FinalizeParams &)
    {
        constexpr uint64 sign = 1ull << (8 * sizeof(Out) - 1);
        if constexpr (counts) n = acc.count;
        if (is_nan_or_infinity(acc.sum)) {
            // Sums of narrower elements do not overflow: there was an infinity or NaN among them.
            if constexpr (sizeof(In) == sizeof(double)) return false;
            const uint64 quiet = 1ull << (Format<Out>::fraction - 1);
            *out = float_of_bits<Out>(infinity_bits<Out> | (is_nan(acc.sum) ? quiet
                                                            : acc.sum < 0   ? sign
                                                                            : 0));
            return true;
        }
        if (is_nan(acc.rest)) return false;
        if constexpr (sizeof(In) == sizeof(double)) {
            if (is_nan_or_infinity(acc.sum + acc.rest)) return false;
        }
        if constexpr (counts) {
            if (n == 0) {
                *out = float_of_bits<Out>(
                    is_mean ? infinity_bits<Out> | 1ull << (Format<Out>::fraction - 1) : 0);
                return true;
            }
        }
        DoubleDouble<double> total = DoubleDouble<double>::of_pair(acc.sum, acc.rest);
        if constexpr (is_mean) {
            const double divisor = static_cast<double>(n);
            if (!total.divide(divisor, 1 / divisor)) return false;
        }
        *out = total.template rounded<Out>();
        return true;
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
    static GPR_DEVICE void publish_left(unsigned left, const Layout &layout,
                                        const Scratch<Acc> &scratch, const ShareOf &share_of)
    {
        if constexpr (proves) add_left<BLOCK>(left, true, layout, scratch, share_of);
    }
    // Stores the results of rows that the block has alone, or that it is the last block of.
    template <unsigned BLOCK, class ShareOf>
    static GPR_DEVICE void store_left(unsigned left, const Layout &layout,
                                      const Scratch<Acc> &scratch, const ShareOf &share_of)
    {
        if constexpr (proves) add_left<BLOCK>(left, false, layout, scratch, share_of);
    }

private:
    // The sum of two pairs without a rest, and bits that are 0 if it is that: exact, and they are.
    static GPR_DEVICE double add_without_rest(const Acc &a, const Acc &b, unsigned *lost)
    {
        *lost |= bits_of_error(a.rest) | bits_of_error(b.rest);
        return add_exactly(a.sum, b.sum, lost);
    }
    // The sum of two pairs, but for their counts.
    static GPR_DEVICE Acc combine_rests(const Acc &a, const Acc &b)
    {
        double error;
        Acc both;
        both.sum = two_sum(a.sum, b.sum, &error);
        both.rest = sum_of_rests(a.rest, b.rest, error);
        return both;
    }
    template <unsigned BLOCK, class ShareOf>
    static GPR_DEVICE void add_left(unsigned left, bool publishes, const Layout &layout,
                                    const Scratch<Acc> &scratch, const ShareOf &share_of)
    {
        if (!__syncthreads_or(left != 0)) return;
        const auto share = share_of();
        RowsAgain<Acc> what = {left, layout.elements, publishes, nullptr, nullptr};
        if (share.blocks() > 1) {
            what.counters = counters_of(scratch.tickets, share.group(), share.count()).at(0);
            what.partials = scratch.partials() + share.group() * share.blocks() * share.count();
        }
        add_again<SumByPairs, BLOCK>(what, share);
    }
};

} // namespace gpr
