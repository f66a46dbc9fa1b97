// An operator of the user's own as the kernels of this folder, and the loops of the CPU, use it.
//
// The program has defined before, in namespace gpr:
//   CustomOp        the user's structure
//   CustomNumber    what it reads as T: a built-in type, a complex number or a structure
//   CustomElement   an element in memory
//   custom_number   (const CustomElement &) -> CustomNumber
//   custom_element  (CustomNumber) -> the type that a result of type T has in memory
//   custom_is_commutative, custom_is_masked
//
// The structure has combine; State, identity, lift and finish are optional. What blocks and threads
// leave to each other is a CustomPartial: the state, and where it is needed the number of elements
// in it. That is where there is no identity, so that a value of no elements is known, and where a
// mask leaves out elements that `finish` does not count.
#pragma once

#include "conversions.cuh"
#include "custom_params.h"

namespace gpr {

template <class...> struct CustomVoidOf { using type = void; };
template <class... Any> using CustomVoid = typename CustomVoidOf<Any...>::type;

// A value of a type, in expressions that are not evaluated.
template <class T> GPR_DEVICE T custom_value();

// ---------------------------------------------------------------- what the structure has --------

template <class Op, class = void> struct CustomStateOf { using type = CustomNumber; };
template <class Op> struct CustomStateOf<Op, CustomVoid<typename Op::State>> {
    using type = typename Op::State;
};
using CustomState = typename CustomStateOf<CustomOp>::type;

template <class Op, class = void> constexpr bool has_combine = false;
template <class Op>
constexpr bool has_combine<Op, CustomVoid<decltype(Op::combine(custom_value<CustomState>(),
                                                               custom_value<CustomState>()))>> =
    true;
static_assert(has_combine<CustomOp>,
              "the operator has no `static State combine(State left, State right)`");

template <class Op, class = void> constexpr bool has_identity = false;
template <class Op>
constexpr bool has_identity<Op, CustomVoid<decltype(Op::identity())>> = true;

template <class Op, class = void> constexpr bool has_lift_of_index = false;
template <class Op>
constexpr bool has_lift_of_index<
    Op, CustomVoid<decltype(Op::lift(custom_value<CustomNumber>(), uint64(0)))>> = true;
template <class Op, class = void> constexpr bool has_lift = false;
template <class Op>
constexpr bool has_lift<Op, CustomVoid<decltype(Op::lift(custom_value<CustomNumber>()))>> = true;
static_assert(has_lift<CustomOp> || has_lift_of_index<CustomOp> || same<CustomState, CustomNumber>,
              "the operator's State is another type than T: it needs `static State lift(T x)` or "
              "`static State lift(T x, uint64 index)`");

template <class Op, class = void> constexpr bool has_finish_of_count = false;
template <class Op>
constexpr bool has_finish_of_count<
    Op, CustomVoid<decltype(Op::finish(custom_value<CustomState>(), uint64(0)))>> = true;
template <class Op, class = void> constexpr bool has_finish = false;
template <class Op>
constexpr bool has_finish<Op, CustomVoid<decltype(Op::finish(custom_value<CustomState>()))>> = true;

// Whether it folds an array of elements after a state at once: fold(state, x). Of the package's own
// operators, whose elements share work.
template <class Op, class = void> constexpr bool has_fold = false;
template <class Op>
constexpr bool has_fold<Op, CustomVoid<decltype(Op::fold(custom_value<CustomState>(),
                                                         custom_value<CustomNumber (&)[2]>()))>> =
    true;

template <class T> struct CustomPlain { using type = T; };
template <class T> struct CustomPlain<T &> { using type = T; };
template <class T> struct CustomPlain<const T &> { using type = T; };
template <class T> struct CustomPlain<const T> { using type = T; };

template <class Op> GPR_DEVICE auto custom_finish(const CustomState &state, uint64 n)
{
    if constexpr (has_finish_of_count<Op>) return Op::finish(state, n);
    else if constexpr (has_finish<Op>) return Op::finish(state);
    else return state;
}
using CustomResult =
    typename CustomPlain<decltype(custom_finish<CustomOp>(custom_value<CustomState>(), 0))>::type;

// ---------------------------------------------------------------- partials ----------------------

constexpr bool custom_has_identity = has_identity<CustomOp>;
constexpr bool custom_counts =
    !custom_has_identity || (custom_is_masked && has_finish_of_count<CustomOp>);

template <bool COUNTS> struct CustomParts { CustomState state; };
template <> struct CustomParts<true> {
    CustomState state;
    uint64 count; // of elements in the state
};
// Shuffles move whole words.
struct alignas(alignof(CustomParts<custom_counts>) < 4 ? 4 : alignof(CustomParts<custom_counts>))
    CustomPartial : CustomParts<custom_counts> {};
static_assert(__is_trivially_copyable(CustomPartial),
              "the operator's State is copied as bytes: it can have no constructor of copies, no "
              "destructor and no virtual function");

// Number of elements in a value; without a count any but 0.
GPR_DEVICE uint64 custom_count(const CustomParts<true> &value) { return value.count; }
GPR_DEVICE uint64 custom_count(const CustomParts<false> &) { return 1; }
GPR_DEVICE void custom_set_count(CustomParts<true> &value, uint64 count) { value.count = count; }
GPR_DEVICE void custom_set_count(CustomParts<false> &, uint64) {}

// Rows side by side that a task of the CPU takes.
constexpr unsigned custom_columns = sizeof(CustomPartial) < GPR_CUSTOM_COLUMN_BYTES
                                        ? GPR_CUSTOM_COLUMN_BYTES / sizeof(CustomPartial)
                                        : 1;

// The value of no elements.
template <class Op = CustomOp> GPR_DEVICE CustomPartial custom_empty()
{
    CustomPartial value{}; // its count, if there is one, is 0
    if constexpr (has_identity<Op>) value.state = Op::identity();
    return value;
}

template <class Op = CustomOp, class Number = CustomNumber>
GPR_DEVICE CustomState custom_lift(Number x, uint64 index)
{
    if constexpr (has_lift_of_index<Op>) return Op::lift(x, index);
    else if constexpr (has_lift<Op>) return Op::lift(x);
    else return x;
}

// left comes before right in the row.
GPR_DEVICE CustomPartial custom_combine(const CustomPartial &left, const CustomPartial &right)
{
    if constexpr (!custom_has_identity) {
        if (custom_count(right) == 0) return left;
        if (custom_count(left) == 0) return right;
    }
    CustomPartial both;
    both.state = CustomOp::combine(left.state, right.state);
    custom_set_count(both, custom_count(left) + custom_count(right));
    return both;
}

// Combines `value`, of the elements before, with element number `index` of the row.
GPR_DEVICE void custom_add(CustomPartial &value, CustomNumber x, uint64 index)
{
    const CustomState state = custom_lift(x, index);
    if (!custom_has_identity && custom_count(value) == 0) value.state = state;
    else value.state = CustomOp::combine(value.state, state);
    custom_set_count(value, custom_count(value) + 1);
}

// Loads and stores a structure in memory of the device.
#if defined(__CUDA_ARCH__) || GPR_ARCH == 0
template <class T> GPR_DEVICE T custom_get(const T *from) { return *from; }
template <class T> GPR_DEVICE void custom_put(T *to, const T &value) { *to = value; }
#else
// Piece by piece: for the emulator, to which a structure that the CPU's compiler copies by 16 bytes
// would be an access at no multiple of 16.
template <unsigned ALIGNMENT> struct CustomPieceOf { using type = unsigned char; };
template <> struct CustomPieceOf<2> { using type = unsigned short; };
template <> struct CustomPieceOf<4> { using type = unsigned; };
template <> struct CustomPieceOf<8> { using type = uint64; };
template <> struct CustomPieceOf<16> { using type = uint64; };

template <class T> GPR_DEVICE T custom_get(const T *from)
{
    using Piece = typename CustomPieceOf<alignof(T)>::type;
    Piece piece[sizeof(T) / sizeof(Piece)];
    for (unsigned i = 0; i < sizeof(T) / sizeof(Piece); i++)
        piece[i] = reinterpret_cast<const Piece *>(from)[i];
    T value{};
    memcpy(&value, piece, sizeof value);
    return value;
}
template <class T> GPR_DEVICE void custom_put(T *to, const T &value)
{
    using Piece = typename CustomPieceOf<alignof(T)>::type;
    Piece piece[sizeof(T) / sizeof(Piece)];
    memcpy(piece, &value, sizeof value);
    for (unsigned i = 0; i < sizeof(T) / sizeof(Piece); i++)
        reinterpret_cast<Piece *>(to)[i] = piece[i];
}
#endif

// ---------------------------------------------------------------- rows --------------------------

using CustomParams = gpr_custom_params;

// Where a row begins, and where its result goes: both in bytes.
struct CustomRow {
    long long in, mask, out;
};

GPR_DEVICE CustomRow custom_row(const CustomParams &p, uint64 row)
{
    CustomRow at = {0, 0, 0};
    for (unsigned i = p.kept; i-- > 0;) {
        const gpr_axis &axis = p.axes[i];
        const uint64 before = row / axis.extent;
        const long long place = static_cast<long long>(row - before * axis.extent);
        at.in += place * axis.in;
        at.mask += place * axis.mask;
        at.out += place * axis.out;
        row = before;
    }
    return at;
}

// Calls visit(address, mask, index) for elements begin .. end of a row in order.
template <class Visit>
GPR_DEVICE void custom_visit(const CustomParams &p, const CustomRow &row, uint64 begin, uint64 end,
                             Visit visit)
{
    const gpr_axis &inner = p.axes[p.kept + p.reduced - 1];
    while (begin < end) { // a run along the innermost axis
        uint64 outer = begin / inner.extent;
        const uint64 place = begin - outer * inner.extent, left = inner.extent - place;
        const uint64 count = end - begin < left ? end - begin : left;
        long long in = row.in + static_cast<long long>(place) * inner.in;
        long long mask = row.mask + static_cast<long long>(place) * inner.mask;
        long long index = static_cast<long long>(p.first) +
                          static_cast<long long>(place) * inner.position;
        for (unsigned i = p.kept + p.reduced - 1; i-- > p.kept;) {
            const gpr_axis &axis = p.axes[i];
            const uint64 before = outer / axis.extent;
            const long long there = static_cast<long long>(outer - before * axis.extent);
            in += there * axis.in;
            mask += there * axis.mask;
            index += there * axis.position;
            outer = before;
        }
        visit(p.in + in, p.mask + mask, index, count, inner);
        begin += count;
    }
}

// Whether an element counts.
GPR_DEVICE bool custom_keeps(const unsigned char *mask)
{
    if constexpr (custom_is_masked) return *mask != 0;
    else return true;
}

GPR_DEVICE CustomNumber custom_load(const unsigned char *address)
{
    return custom_number(custom_get(reinterpret_cast<const CustomElement *>(address)));
}

// Folds elements begin .. end of a row in order, after `value`.
GPR_DEVICE CustomPartial custom_fold(const CustomParams &p, const CustomRow &row, uint64 begin,
                                     uint64 end, CustomPartial value)
{
    custom_visit(p, row, begin, end,
                 [&](const unsigned char *in, const unsigned char *mask, long long index,
                     uint64 count, const gpr_axis &axis) {
                     for (uint64 i = 0; i < count; i++) {
                         if (custom_keeps(mask))
                             custom_add(value, custom_load(in), static_cast<uint64>(index));
                         in += axis.in;
                         mask += axis.mask;
                         index += axis.position;
                     }
                 });
    return value;
}

// ---------------------------------------------------------------- results -----------------------

template <class T> constexpr unsigned custom_kind = GPR_CUSTOM_RESULT_STRUCT;
template <> constexpr unsigned custom_kind<bool> = GPR_KIND_BOOL;
template <> constexpr unsigned custom_kind<float> = GPR_KIND_FLOAT;
template <> constexpr unsigned custom_kind<double> = GPR_KIND_FLOAT;
template <> constexpr unsigned custom_kind<dt_complex64> = GPR_KIND_COMPLEX;
template <> constexpr unsigned custom_kind<dt_complex128> = GPR_KIND_COMPLEX;
template <> constexpr unsigned custom_kind<signed char> = GPR_KIND_SIGNED;
template <> constexpr unsigned custom_kind<short> = GPR_KIND_SIGNED;
template <> constexpr unsigned custom_kind<int> = GPR_KIND_SIGNED;
template <> constexpr unsigned custom_kind<long> = GPR_KIND_SIGNED;
template <> constexpr unsigned custom_kind<long long> = GPR_KIND_SIGNED;
template <> constexpr unsigned custom_kind<unsigned char> = GPR_KIND_UNSIGNED;
template <> constexpr unsigned custom_kind<unsigned short> = GPR_KIND_UNSIGNED;
template <> constexpr unsigned custom_kind<unsigned> = GPR_KIND_UNSIGNED;
template <> constexpr unsigned custom_kind<unsigned long> = GPR_KIND_UNSIGNED;
template <> constexpr unsigned custom_kind<unsigned long long> = GPR_KIND_UNSIGNED;
template <>
constexpr unsigned custom_kind<char> = char(-1) < char(0) ? GPR_KIND_SIGNED : GPR_KIND_UNSIGNED;

// A result in memory: a result of type T is an element.
constexpr bool custom_result_is_element = same<CustomResult, CustomNumber>;

template <class Result = CustomResult>
GPR_DEVICE auto custom_result(const CustomPartial &value, uint64 n)
{
    const Result result = custom_finish<CustomOp>(value.state, n);
    if constexpr (same<Result, CustomNumber>) return custom_element(result);
    else return result;
}
using CustomStored =
    typename CustomPlain<decltype(custom_result(custom_value<CustomPartial>(), 0))>::type;

GPR_DEVICE void custom_tell(gpr_custom_facts *facts)
{
    facts->partial_bytes = sizeof(CustomPartial);
    facts->state_bytes = sizeof(CustomState);
    facts->result_bytes = sizeof(CustomStored);
    facts->result_kind = custom_result_is_element ? static_cast<unsigned>(GPR_CUSTOM_RESULT_ELEMENT)
                                                  : custom_kind<CustomResult>;
    facts->has_identity = custom_has_identity;
    facts->takes_index = has_lift_of_index<CustomOp>;
    facts->columns = custom_columns;
}

// Ends a row of which `value` is folded: stores its state or its result. One thread per row calls.
GPR_DEVICE void custom_deliver(const CustomParams &p, uint64 row, CustomPartial value)
{
    CustomPartial *states = static_cast<CustomPartial *>(p.states);
    if (p.flags & GPR_CUSTOM_CONTINUES) value = custom_combine(custom_get(states + row), value);
    if ((p.flags & GPR_CUSTOM_ENDS) == 0) {
        custom_put(states + row, value);
        return;
    }
    uint64 n = p.total;
    if (custom_counts) n = custom_count(value);
    if (p.flags & GPR_CUSTOM_STARTS) {
        CustomPartial start = custom_empty();
        custom_add(start, custom_load(p.initial), ~uint64(0));
        value = custom_combine(start, value);
    }
    custom_put<CustomStored>(reinterpret_cast<CustomStored *>(p.out + custom_row(p, row).out),
                             custom_result(value, n));
}

} // namespace gpr
