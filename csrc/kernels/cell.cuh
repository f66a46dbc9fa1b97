// A cell of the table kernel x operator x dtype, as kernels see it: the types they read and hold, and what to do with
// them. Kernels use nothing else about numbers.
#pragma once

#include "operators.cuh"

namespace gpr {

// What makes a result of an accumulator, beside its types.
struct Ending {
    double ddof;
};

// Elements are converted to ComputeType, lifted to Accumulator, and combined there.
template <class FoldType, class Element, class ComputeType, class Accumulator, bool = false> struct Cell {
    using Fold = FoldType;
    using In = Element;
    using Compute = ComputeType;
    using Acc = Accumulator;
    static constexpr bool commutative = Fold::commutative;

    static GPR_DEVICE Acc identity() { return Fold::template identity<Acc, Compute>(); }
    // Element number i of its row.
    static GPR_DEVICE Acc lift(In x, uint64 = 0) { return Fold::template lift<Acc>(convert<Compute>(x)); }
    // a comes before b in the array.
    static GPR_DEVICE Acc combine(Acc a, Acc b) { return Fold::combine(a, b); }
    // *address = combine(*address, value) as one step; global or shared memory.
    static GPR_DEVICE void atomic_combine(Acc *address, Acc value) { atomic_fold(Fold{}, address, value); }

    // What a thread folds its own elements in, one after the other: opened, then any number taken, then closed.
    using Local = Acc;
    static GPR_DEVICE Local open() { return identity(); }
    static GPR_DEVICE void take(Local &local, In x, uint64 i) { local = combine(local, lift(x, i)); }
    static GPR_DEVICE Acc close(const Local &local) { return local; }

    // What a kernel of the planner's writes: accumulators, which the host makes results of.
    using Out = Acc;
    static GPR_DEVICE Out finish(Acc value, uint64, Ending) { return value; }
};

// The cell of a call whose results stay on the device: the kernel writes those. DIVIDE: by the number of elements.
template <class Base, class Result, bool DIVIDE> struct Finished : Base {
    using Out = Result;
    using Acc = typename Base::Acc;
    static GPR_DEVICE Out finish(Acc value, uint64 n, Ending)
    {
        if constexpr (DIVIDE) {
            // A sum of integers is read as the type it was computed in, and its sign is not the accumulator's.
            return element_of<Result>(static_cast<double>(value_of(convert<typename Base::Compute>(value))) /
                                      static_cast<double>(n));
        } else {
            return convert<Result>(value);
        }
    }
};

// The cell of a later pass: its elements are the accumulators of First.
template <class First> struct Next {
    using Fold = typename First::Fold;
    using In = typename First::Acc;
    using Compute = typename First::Acc;
    using Acc = typename First::Acc;
    static constexpr bool commutative = First::commutative;

    static GPR_DEVICE Acc identity() { return First::identity(); }
    static GPR_DEVICE Acc lift(In x, uint64 = 0) { return x; }
    static GPR_DEVICE Acc combine(Acc a, Acc b) { return First::combine(a, b); }
    static GPR_DEVICE void atomic_combine(Acc *address, Acc value) { First::atomic_combine(address, value); }
};

} // namespace gpr
