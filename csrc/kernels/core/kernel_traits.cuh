// Kernel traits: the types that a kernel reads, computes in and accumulates in, and the functions
// of its operator. Every kernel is a template over its traits and uses nothing else about numbers.
//
//   element In --convert--> Compute --lift--> Acc --combine--> Acc --store--> result Out
#pragma once

#include "accumulators.cuh"

namespace gpr {

template <class...> using Void = void;

// Whether a fold uses the positions of elements.
template <class Fold, class = void> constexpr bool is_positional = false;
template <class Fold> constexpr bool is_positional<Fold, Void<decltype(Fold::positional)>> = true;

// Whether a fold leaves NaN out itself.
template <class Fold>
constexpr bool skips_in_combine = same<Fold, fold_fmin> || same<Fold, fold_fmax>;

// Elements are converted to ComputeType, lifted to Accumulator, and combined there. Where SKIP_NAN,
// a NaN element is lifted to the identity, if it is no NaN itself.
template <class FoldType, class Element, class ComputeType, class Accumulator,
          bool SKIP_NAN = false>
struct KernelTraits {
    using Fold = FoldType;
    using In = Element;
    using Compute = ComputeType;
    using Acc = Accumulator;
    static constexpr bool positional = is_positional<Fold>;
    static constexpr bool skips_nan = SKIP_NAN;
    // Traits of the same elements with another fold.
    template <class OtherFold, class OtherAcc>
    using With = KernelTraits<OtherFold, In, Compute, OtherAcc, SKIP_NAN>;

    static GPR_DEVICE Acc identity() { return Fold::template identity<Acc, Compute>(); }
    // Element number i of its row as an accumulator.
    static GPR_DEVICE Acc lift(In x, uint64 i)
    {
        if constexpr (SKIP_NAN && (!skips_in_combine<Fold> || is_complex<In>)) {
            if (is_nan(value_of(x))) return identity();
        }
        if constexpr (positional) return Fold::template lift<Acc>(convert<Compute>(x), i);
        else return Fold::template lift<Acc>(convert<Compute>(x));
    }
    // a comes before b in the array.
    static GPR_DEVICE Acc combine(Acc a, Acc b) { return Fold::combine(a, b); }
    // *address = combine(*address, value) as one step; global or shared memory.
    static GPR_DEVICE void atomic_combine(Acc *address, Acc value)
    {
        atomic_fold(Fold{}, address, value);
    }
};

// Whether traits have a thread's accumulator of their own (thread_accumulator.cuh), which need not
// hold every row: then store() returns whether it did, publish_left() publishes a block's shares of
// rows that it does not hold, and store_left() stores their results (exact_fast.cuh). Both get a
// function that makes a thread's share of its block's rows:
//
//   count()             rows of the block, numbered from 0
//   number_of(k)        the row that bit k of what is left stands for
//   result_of(number)   where a row's result goes
//   visit(again)        adds the thread's share of elements to those rows that `again` wants
//   blocks(), group()   blocks that share these rows, and the number of the group of rows
//
// It is made where rows are left, from the numbers of thread and block (anew). That is seldom, and
// what a kernel kept for it would take registers from its loop.
template <class Traits, class = void> constexpr bool has_own_accumulator = false;
template <class Traits>
constexpr bool has_own_accumulator<Traits, Void<typename Traits::Accumulator>> = true;

// Whether such an accumulator may turn out not to hold a row.
template <class Traits, class = void> constexpr bool proves_sums = false;
template <class Traits>
constexpr bool proves_sums<Traits, Void<typename Traits::Accumulator>> = Traits::proves;

// Whether accumulators can mostly be reduced by less than `combine`: by try_reduce() and
// combine_both(), which such traits have (exact_fast.cuh).
template <class Traits, class = void> constexpr bool has_quick_reduction = false;
template <class Traits>
constexpr bool has_quick_reduction<Traits, Void<decltype(Traits::reduces_quickly)>> =
    Traits::reduces_quickly;

// The traits of a later pass: its elements are the accumulators of First.
template <class First> struct Next {
    using Fold = typename First::Fold;
    using In = typename First::Acc;
    using Compute = typename First::Acc;
    using Acc = typename First::Acc;
    static constexpr bool positional = false; // accumulators carry their positions
    static constexpr bool skips_nan = false;

    static GPR_DEVICE Acc identity() { return First::identity(); }
    static GPR_DEVICE Acc lift(In x, uint64) { return x; }
    static GPR_DEVICE Acc combine(Acc a, Acc b) { return First::combine(a, b); }
    static GPR_DEVICE void atomic_combine(Acc *address, Acc value)
    {
        First::atomic_combine(address, value);
    }
};

} // namespace gpr
