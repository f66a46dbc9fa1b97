// A cell of the table kernel x operator x dtype, as kernels see it: the types they read and hold, and what to do with
// them. Kernels use nothing else about numbers.
#pragma once

#include "operators.cuh"

namespace gpr {

// Elements are converted to ComputeType, lifted to Accumulator, and combined there.
template <class FoldType, class Element, class ComputeType, class Accumulator> struct Cell {
    using Fold = FoldType;
    using In = Element;
    using Compute = ComputeType;
    using Acc = Accumulator;
    static constexpr bool commutative = Fold::commutative;

    static GPR_DEVICE Acc identity() { return Fold::template identity<Acc, Compute>(); }
    static GPR_DEVICE Acc lift(In x) { return Fold::template lift<Acc>(convert<Compute>(x)); }
    // a comes before b in the array.
    static GPR_DEVICE Acc combine(Acc a, Acc b) { return Fold::combine(a, b); }
    // *address = combine(*address, value) as one step; global or shared memory.
    static GPR_DEVICE void atomic_combine(Acc *address, Acc value) { atomic_fold(Fold{}, address, value); }
};

// The cell of a later pass: its elements are the accumulators of First.
template <class First> struct Next {
    using Fold = typename First::Fold;
    using In = typename First::Acc;
    using Compute = typename First::Acc;
    using Acc = typename First::Acc;
    static constexpr bool commutative = First::commutative;

    static GPR_DEVICE Acc identity() { return First::identity(); }
    static GPR_DEVICE Acc lift(In x) { return x; }
    static GPR_DEVICE Acc combine(Acc a, Acc b) { return First::combine(a, b); }
    static GPR_DEVICE void atomic_combine(Acc *address, Acc value) { First::atomic_combine(address, value); }
};

} // namespace gpr
