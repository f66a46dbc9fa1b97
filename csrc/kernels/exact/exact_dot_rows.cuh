// exact_dot_rows: exact_dot along axes: of each row of two arrays, of a row's squares, or of its
// magnitudes.
//
//     second factor            sum                        result
//     of another array         of products                dot products, weighted sums
//     the first one itself     of squares                 with its root: 2-norms
//     1 of the first's sign    of magnitudes              1-norms
//
// Removed: an array of products, squares or magnitudes, and a pass over memory for it. Rows may lie
// anywhere, and either array may repeat elements (stride 0), as weights of rows do.
//
// The other array's address and steps, in bytes, are where a layout has those of a mask. Conjugates
// are made as elements are loaded. A root is a deviation's (exact_variance.cuh): that of one
// element whose sum is 0, so that it is rounded once and no square overflows.
//
// Still paid: a block per row, however short; elements of rows that are no runs are found by
// divisions, one load each.
//
// Launch: as exact_moments.
#pragma once

#include "exact_dot.cuh"
#include "exact_variance.cuh"

namespace gpr {

// ---------------------------------------------------------------- second factors ----------------

// What stands for the second array's element type: the second factors are
struct Itself {
};                                       // the first ones
struct SignOfFirst {
};                                       // 1 of the first ones' signs
template <class Second> struct AfterConjugate {
}; // of Second, and the first ones are conjugated

template <class Second> struct SecondOf {
    using type = Second;
    static constexpr bool is_array = true, conjugates = false;
};
template <> struct SecondOf<Itself> {
    using type = unsigned char;
    static constexpr bool is_array = false, conjugates = false;
};
template <> struct SecondOf<SignOfFirst> : SecondOf<Itself> {
};
template <class Second> struct SecondOf<AfterConjugate<Second>> {
    using type = Second;
    static constexpr bool is_array = true, conjugates = true;
};

template <class Factor> GPR_DEVICE Factor sign_as_number(Factor x)
{
    if constexpr (is_float<Factor>) {
        const Factor one = element_of<Factor>(1.0f);
        return bit_copy<Factor>(static_cast<Bits<Factor>>(
            bit_copy<Bits<Factor>>(one) | (bit_copy<Bits<Factor>>(x) & sign_of<Factor>)));
    } else if constexpr (same<Factor, dt_bool>) {
        return x; // which is its own square
    } else if constexpr (is_signed<Factor>) {
        return static_cast<Factor>(x < 0 ? -1 : 1);
    } else {
        return static_cast<Factor>(1);
    }
}

// Each element of a vector by `change`.
template <class Factor, class Change>
GPR_DEVICE Vector changed(const Vector &v, const Change &change)
{
    struct Factors { Factor factor[vector_elements<Factor>]; } factors;
#pragma unroll
    for (unsigned j = 0; j < vector_elements<Factor>; j++)
        factors.factor[j] = change(element<Factor>(v, j));
    return bit_copy<Vector>(factors);
}

// ---------------------------------------------------------------- rows --------------------------

// A row's pairs as vectors of factors.
template <class Traits> struct RowPairs {
    using In = typename Traits::In;
    using Kind = SecondOf<typename Traits::Second>;
    using Second = typename Kind::type;
    using Factor = typename Traits::Compute;
    static constexpr unsigned per_vector = vector_elements<Factor>;
    static_assert(Kind::is_array == masked, "another array's steps are a mask's");

    const Layout &layout;
    const In *a;
    const unsigned char *b; // address of the other array's first element of the row
    uint64 n, head, vectors; // before the first vector; whole ones
    bool is_vectors;         // in memory too

    GPR_DEVICE RowPairs(const Layout &of_layout, const In *first, const unsigned char *second,
                        uint64 count)
        : layout(of_layout), a(first), b(second), n(count), head(0), is_vectors(false)
    {
        constexpr bool are_alike =
            same<In, Factor> && (!Kind::is_array || same<Second, Factor>);
        if constexpr (are_alike && reduced_axes == 1) {
            const uint64 between = reinterpret_cast<uint64>(a) - reinterpret_cast<uint64>(b);
            is_vectors = layout.reduced[0].in == 1;
            if constexpr (Kind::is_array) {
                is_vectors = is_vectors && between % sizeof(Vector) == 0 &&
                             layout.reduced[0].mask == static_cast<long long>(sizeof(Factor));
            }
            if (is_vectors) head = Run<Factor>(a, n).head;
        }
        vectors = (n - head) / per_vector;
    }

    struct Pair {
        Factor x, y;
    };
    // Pair i of the row.
    GPR_DEVICE Pair pair(uint64 i) const
    {
        long long in = 0, second = 0;
#pragma unroll
        for (unsigned axis = reduced_axes; axis-- > 0;) {
            const gpr_axis &along = layout.reduced[axis];
            const uint64 k = axis > 0 ? i % along.extent : i;
            in += static_cast<long long>(k) * along.in;
            if constexpr (Kind::is_array) second += static_cast<long long>(k) * along.mask;
            if (axis > 0) i /= along.extent;
        }
        const Factor x = convert<Factor>(a[in]);
        if constexpr (Kind::is_array) {
            return Pair{conjugated(x),
                        convert<Factor>(*reinterpret_cast<const Second *>(b + second))};
        } else {
            return Pair{x, second_of(x)};
        }
    }
    static GPR_DEVICE Factor conjugated(Factor x)
    {
        if constexpr (Kind::conjugates) x.im = -x.im;
        return x;
    }
    static GPR_DEVICE Factor second_of(Factor x)
    {
        if constexpr (same<typename Traits::Second, SignOfFirst>) return sign_as_number(x);
        else return x;
    }

    GPR_DEVICE void load(uint64 i, Vector *x, Vector *y) const
    {
        using Whole = TwoRuns<Factor, Factor, Factor>;
        const uint64 first = head + i * per_vector;
        if constexpr (same<In, Factor> && (!Kind::is_array || same<Second, Factor>)) {
            if (is_vectors) {
                *x = Whole::whole_vector(a + first);
                if constexpr (Kind::is_array) {
                    *y = Whole::whole_vector(reinterpret_cast<const Factor *>(b) + first);
                    if constexpr (Kind::conjugates)
                        *x = changed<Factor>(*x, [](Factor e) { return conjugated(e); });
                } else {
                    *y = changed<Factor>(*x, [](Factor e) { return second_of(e); });
                }
                return;
            }
        }
        struct Factors { Factor factor[per_vector]; } of_x, of_y;
#pragma unroll
        for (unsigned j = 0; j < per_vector; j++) {
            const Pair both = pair(first + j);
            of_x.factor[j] = both.x;
            of_y.factor[j] = both.y;
        }
        *x = bit_copy<Vector>(of_x);
        *y = bit_copy<Vector>(of_y);
    }

    GPR_DEVICE bool has_edges() const { return vectors * per_vector < n; }
    // As TwoRuns::edge.
    GPR_DEVICE bool edge(unsigned lane, Vector *x, Vector *y) const
    {
        const uint64 tail = head + vectors * per_vector;
        const bool is_before = lane < head,
                   is_after = lane >= warp_lanes / 2 && lane - warp_lanes / 2 < n - tail;
        if (!is_before && !is_after) return false;
        const Pair both = pair(is_before ? lane : tail + lane - warp_lanes / 2);
        *x = lone(Vector{{0, 0, 0, 0}}, both.x);
        *y = lone(Vector{{0, 0, 0, 0}}, both.y);
        return true;
    }
};

// ---------------------------------------------------------------- roots -------------------------

struct finish_root {
};

// Sums of squares that become their roots. A warp stores one, from shared memory.
template <class Element, class Compute, class Number, bool SKIP_NAN, class Second, class Result>
struct Finished<
    Paired<KernelTraits<fold_exact_products, Element, Compute, ExactProducts<Number>, SKIP_NAN>,
           Second>,
    Result, finish_root>
    : Paired<KernelTraits<fold_exact_products, Element, Compute, ExactProducts<Number>, SKIP_NAN>,
             Second> {
    using Out = Result;

    static GPR_DEVICE void store(Out *out, ExactProducts<Number> &squares)
    {
        __shared__ VarianceWork<Number> work;
        __shared__ ExactPart<Number> nothing[1]; // the sum of one element
        unsigned *cleared = reinterpret_cast<unsigned *>(nothing);
        const unsigned lane = threadIdx.x % warp_lanes;
        const uint64 flags = squares.part[0].flags;

        for (unsigned i = lane; i < sizeof nothing / sizeof *cleared; i += warp_lanes)
            cleared[i] = 0;
        __syncwarp(); // it is zero
        if (lane == 0) nothing[0].count = 1;
        __syncwarp(); // and counted
        uint64 bits = infinity_bits<Result>;
        if ((flags & saw_nan) != 0 || (flags & saw_infinity) == 0)
            bits = finalize_variance_bits<Result, true>(nothing, squares.part[0], work, 0.0);
        if (lane == 0) *out = float_of_bits<Result>(bits);
    }
};

// ---------------------------------------------------------------- the kernel --------------------

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact_dot_rows(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
               Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
               FinalizeParams)
{
    using Factor = typename Traits::Compute;
    using Number = ProductOf<PartType<Factor>>;
    using Acc = typename Traits::Acc;
    constexpr unsigned vectors = GPR_STREAM_VECTORS / 2; // of each factor
    constexpr unsigned warps = BLOCK / warp_lanes;
    constexpr unsigned words = accumulator_words<Number>, part_words = words + GPR_EXACT_ACC_TAIL;
    constexpr unsigned all_words = sizeof(Acc) / sizeof(uint64);
    static_assert(all_words == parts_of<Factor> * part_words, "words, a count and flags");
    __shared__ Acc whole;
    ProductSuperaccumulators<Factor> &part = block_products<Factor>();
    const Row row = row_of(rows, blockIdx.x);
    const RowOffsets start = layout.row_offsets(row.index);

    clear_shared<BLOCK>(&part, 1);
    ProductAdder<Factor, vectors> adder;
    const RowPairs<Traits> pairs(layout, in + start.in, layout.mask + start.mask, row.n);
    accumulate_pairs<vectors>(adder, pairs,
                              static_cast<uint64>(row.block) * warps + threadIdx.x / warp_lanes,
                              static_cast<uint64>(row.blocks) * warps);
    adder.finalize();
    __syncthreads(); // all warps have added

    // Word i of the block's sums: as in exact_dot. Shared, as a function or as a structure of both
    // lambdas, it leaves the numbers of instructions and registers and changes their order.
    const auto found = [&](unsigned i) -> uint64 {
        const unsigned p = i / part_words, w = i % part_words;
        if (w < words)
            return static_cast<uint64>(word_of<Number>(part.limb[p], static_cast<int>(w)));
        return w > words ? part.flags[p] : row.block == 0 ? row.n : 0;
    };
    const auto is_flags = [](unsigned i) { return i % part_words == words + 1; };
    if (!merge_words<BLOCK>(reinterpret_cast<uint64(&)[all_words]>(whole), row, scratch.tickets,
                            layout.slots, found, is_flags)) {
        return;
    }
    __syncthreads(); // the sum is there
    if (threadIdx.x < warp_lanes) Traits::store(out + start.out, whole);
}

} // namespace gpr
