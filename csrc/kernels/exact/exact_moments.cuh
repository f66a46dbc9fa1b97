// exact_moments: the exact sums of the elements and of their squares, of which variances and standard deviations are made.
//
// Removed: a second pass, and rounding. With the number of elements n, their sum S and their squares' sum Q, the variance
// is (n Q - S^2) / (n (n - ddof)): nothing was rounded on the way to S and Q, so that nothing is lost where the two
// cancel, and one pass brings both.
//
// Elements go to windows as in exact, their squares to those of exact_products.cuh. Of complex elements each part has a
// sum, and the squares of both go to one.
//
// Still paid: of a float32 nine operations on doubles where `exact` has four: five, for Q, are too few to wait for on cards
// whose float64 units are as wide as memory, and more than one can hide on others.
//
// Launch: as exact. The last block of a row divides (exact_variance.cuh), or leaves the accumulator.
#pragma once

#include "exact_join.cuh"
#include "exact_products.cuh"
#include "exact_run.cuh"
#include "exact_variance.cuh"

namespace gpr {

// What a block has found.
template <class In> struct BlockMoments {
    using T = PartType<In>;
    int sum[parts_of<In>][digits_of<T>];
    int squares[digits_of<ProductOf<T>>];
    unsigned flags; // of the squares: an element that is no number makes them none
    uint64 left_out;
};
// Of NUMBERS rows.
template <class In, unsigned NUMBERS> GPR_DEVICE BlockMoments<In> *block_moments()
{
    __shared__ BlockMoments<In> moments[NUMBERS];
    return moments;
}
// Those that a team adds to.
template <class In, template <unsigned> class Team, unsigned NUMBERS>
GPR_DEVICE BlockMoments<In> &moments_of(const Team<NUMBERS> &team)
{
    return block_moments<In, NUMBERS>()[NUMBERS == 1 ? 0 : team.number];
}

// The words of an accumulator: those of each part's sum, then those of the squares, each with a count and flags behind them.
template <class In> struct MomentWords {
    using T = PartType<In>;
    static constexpr unsigned tail = 2, of_sum = grid_words<T>, of_squares = grid_words<ProductOf<T>>;
    static constexpr unsigned sums = parts_of<In> * (of_sum + tail), all = sums + of_squares + tail;

    static GPR_DEVICE bool is_flags(unsigned i) { return i == all - 1; } // the sums' stay 0
    // Word i of what a block has found, of `count` elements or fewer.
    static GPR_DEVICE uint64 word(const BlockMoments<In> &found, unsigned i, uint64 count)
    {
        const bool is_sum = i < sums;
        const unsigned words = is_sum ? of_sum : of_squares;
        const unsigned p = is_sum ? i / (of_sum + tail) : 0, w = is_sum ? i % (of_sum + tail) : i - sums;
        if (w == words) return count - found.left_out;
        if (w > words) return is_sum ? 0 : found.flags;
        return static_cast<uint64>(is_sum ? word_of<T>(found.sum[p], static_cast<int>(w))
                                          : word_of<ProductOf<T>>(found.squares, static_cast<int>(w)));
    }
};

// Where the digits are that a block has found.
template <unsigned PARTS> struct MomentBounds {
    Bounds sum[PARTS], squares;
};
// All lanes of a warp must call, and get it.
template <class In> GPR_DEVICE MomentBounds<parts_of<In>> bounds_of(const BlockMoments<In> &found)
{
    using T = PartType<In>;
    MomentBounds<parts_of<In>> used;

#pragma unroll
    for (unsigned p = 0; p < parts_of<In>; p++) {
        used.sum[p] = bounds_where<digits_of<T>>([&](int i) { return found.sum[p][i] != 0; });
    }
    used.squares = bounds_where<digits_of<ProductOf<T>>>([&](int i) { return found.squares[i] != 0; });
    return used;
}
// The first bits of what it has found. Says whether there are enough of them.
template <class In, unsigned PARTS>
GPR_DEVICE bool take_first_bits(MomentBrackets<PARTS> *brackets, const BlockMoments<In> &found, const MomentBounds<PARTS> &used)
{
    using T = PartType<In>;
    bool is_taken = take_first_bits<digit_bits>(&brackets->squares, found.squares, used.squares, grid_lowest<ProductOf<T>>);

#pragma unroll
    for (unsigned p = 0; p < PARTS; p++) {
        is_taken = is_taken && take_first_bits<digit_bits>(&brackets->sum[p], found.sum[p], used.sum[p], grid_lowest<T>);
    }
    return is_taken;
}

// ---------------------------------------------------------------- floats ------------------------

// What a thread adds the floats of a row to, and their squares, together with its team.
template <class Traits, unsigned VECTORS, class Team = WarpTeam<1>> struct FloatMoments {
    using In = typename Traits::In;
    using T = PartType<In>;
    static constexpr unsigned parts = parts_of<In>, per_vector = vector_elements<In>, elements = VECTORS * per_vector;
    // Windows of sums that hold what few windows of squares do.
    static constexpr unsigned few_sums = near_windows<T> < 2 ? near_windows<T> : 2;
    struct Tile { Vector v[VECTORS]; };
    struct Findings {
        unsigned largest; // key
        unsigned left_out;
    };

    Team team;
    NearWindows<T> sums[parts];
    ProductWindows<T> squares;
    Trial<elements * parts> trial;
    unsigned left_out = 0;

    GPR_DEVICE explicit FloatMoments(Team in = {}) : team(in)
    {
        begin(deepest_field<T>, 0);
        trial.is_placed = is_always_near<T>;
        trial.limits = limits();
    }

    // All elements 0, which changes neither sum.
    static GPR_DEVICE Vector nothing() { return Vector{{0, 0, 0, 0}}; }
    static GPR_DEVICE T part_of(const Vector &v, unsigned j, unsigned p)
    {
        const In x = element<In>(v, j);
        if constexpr (parts == 1) return x;
        else return p == 0 ? x.re : x.im;
    }

    // The whole team must call together.
    GPR_DEVICE void take(const Vector (&v)[VECTORS]) { trial.take(*this, v); }

    // ---- what a trial asks for: exponent fields of elements ----

    static GPR_DEVICE Extent range_of(const Vector (&v)[VECTORS]) { return extent_of<T>(v); }

    GPR_DEVICE void begin(int sum_field, int square_exponent)
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) sums[p].begin(sum_field);
        squares.begin_for(square_exponent);
    }
    GPR_DEVICE bool place(int largest, bool is_placed)
    {
        const int top = field_offset<T> + largest + headroom_bits;
        if (is_always_near<T> || largest == static_cast<int>(last_field<T>)) return false;
        if (is_placed) flush();
        begin(top < highest_field<T> ? top : highest_field<T>, 2 * (largest - exponent_bias<T>) + 1);
        return true;
    }
    GPR_DEVICE Limits limits() const
    {
        if constexpr (is_always_near<T>) return Limits{static_cast<int>(last_field<T>) - 1, 0, 0};
        const int of_sums = sums[0].top - least_headroom - field_offset<T>, of_squares = squares.highest_fields() / 2;
        return Limits{of_sums < of_squares ? of_sums : of_squares, lowest<few_sums, few_products>(),
                      lowest<near_windows<T>, all_products<T>>()};
    }
    template <unsigned SUMS, unsigned SQUARES> GPR_DEVICE int lowest() const
    {
        // Of numbers that begin where their last place is the last window's. Deeper than the smallest number no window lies.
        const int of_sums = sums[0].top - static_cast<int>(SUMS - 1) * window_step - double_fraction - field_offset<T>
                            + Format<T>::fraction;
        const int of_squares = (squares.template lowest_fields<SQUARES>() + 1) / 2;
        return of_sums > 1 && of_sums > of_squares ? of_sums : of_squares;
    }
    GPR_DEVICE void add_few(const Vector (&v)[VECTORS]) { add<few_sums, few_products>(v); }
    GPR_DEVICE void add_all(const Vector (&v)[VECTORS]) { add<near_windows<T>, all_products<T>>(v); }
    template <unsigned SUMS, unsigned SQUARES> GPR_DEVICE void add(const Vector (&v)[VECTORS])
    {
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
#pragma unroll
            for (unsigned p = 0; p < parts; p++) {
                const T x = part_of(v[i / per_vector], i % per_vector, p);
                const double number = number_of(x);
                (void)sums[p].template add<SUMS>(widen(x));
                squares.template add<SQUARES>(number, number);
            }
        }
    }
    GPR_DEVICE void flush()
    {
        BlockMoments<In> &total = moments_of<In>(team);
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            close_sums(team, total.sum[p], sums[p]);
            sums[p].begin(sums[p].top);
        }
        ProductWindows<T>::close(team, total.squares, squares);
        squares.begin(squares.top());
    }
    static GPR_CALLED void close_sums(Team team, int *digit, NearWindows<T> windows) { close_windows(team, windows, digit); }

    GPR_DEVICE int add_anything(const Vector (&v)[VECTORS])
    {
        const Findings found = add_tile(team, bit_copy<Tile>(v));
        left_out += found.left_out;
        return static_cast<int>(field_of_key<T>(found.largest));
    }

    // ---- tiles that windows do not hold ----

    // Adds a tile of anything. The whole team must call together.
    static GPR_CALLED Findings add_tile(Team team, Tile tile)
    {
        BlockMoments<In> &total = moments_of<In>(team);
        Findings found = {0, 0};
        unsigned counted = 0; // bits of elements that are there and finite
        static_assert(elements <= 8 * sizeof counted, "a bit for each");

#pragma unroll 1
        for (unsigned i = 0; i < elements; i++) {
            if (look_at(total, tile.v[i / per_vector], i % per_vector, &found)) counted |= 1u << i;
        }
        if constexpr (has_wide_windows<T>) {
            static_assert(elements * parts <= most_wide_adds, "wide windows have room for a tile");
            add_wide<false>(team, tile, counted);
            add_wide<true>(team, tile, counted);
        } else {
#pragma unroll 1
            for (unsigned i = 0; i < elements; i++) {
                if ((counted >> i & 1) == 0) continue;
#pragma unroll
                for (unsigned p = 0; p < parts; p++) {
                    const T x = part_of(tile.v[i / per_vector], i % per_vector, p);
                    add_digits(total.sum[p], x);
                    add_product_digits(total.squares, x, x);
                }
            }
        }
        return found;
    }

    // A tile's elements, or their squares, through windows that hold all of them.
    template <bool SQUARED> static GPR_DEVICE void add_wide(const Team &team, const Tile &tile, unsigned counted)
    {
        BlockMoments<In> &total = moments_of<In>(team);
        WideWindows<T> wide[SQUARED ? 1 : parts];
        WideProducts<T> wide_squares;

#pragma unroll
        for (unsigned p = 0; p < parts && !SQUARED; p++) wide[p].begin(wide_top<T>);
        if constexpr (SQUARED) wide_squares.begin(wide_product_top + double_bias);
#pragma unroll 1
        for (unsigned k = 0; k < VECTORS; k++) {
            const Vector vector = tile.v[k];
#pragma unroll
            for (unsigned j = 0; j < per_vector; j++) {
                const bool counts = (counted >> (k * per_vector + j) & 1) != 0;
#pragma unroll
                for (unsigned p = 0; p < parts; p++) {
                    const T x = part_of(vector, j, p);
                    if constexpr (SQUARED) {
                        const double number = counts ? number_of(x) : 0.0;
                        (void)wide_squares.add_product(number, number);
                    } else {
                        (void)wide[p].add(counts ? widen(x) : 0.0);
                    }
                }
            }
        }
#pragma unroll
        for (unsigned p = 0; p < parts && !SQUARED; p++) close_windows(team, wide[p], total.sum[p]);
        if constexpr (SQUARED) close_windows(team, wide_squares, total.squares);
    }

    // Takes note of an element. Returns whether its numbers are to be added: one that is left out or no number is not.
    static GPR_DEVICE bool look_at(BlockMoments<In> &total, const Vector &v, unsigned j, Findings *found)
    {
        bool has_nan = false, has_infinity = false;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            const T x = part_of(v, j, p);
            const unsigned key = magnitude_key(x);
            if (is_finite(x)) found->largest = key > found->largest ? key : found->largest;
            else if (is_nan(value_of(x))) has_nan = true;
            else has_infinity = true;
        }
        if (Traits::skips_nan && has_nan) {
            found->left_out++;
            return false;
        }
        if (!has_nan && !has_infinity) return true;
        atomicOr(&total.flags, static_cast<unsigned>(saw_nan)); // no variance then
        return false;
    }

    GPR_DEVICE void close()
    {
        if (trial.is_placed) flush();
        if (left_out != 0) atomicAdd(&moments_of<In>(team).left_out, static_cast<uint64>(left_out));
    }
};

// ---------------------------------------------------------------- integers ----------------------

template <class Traits, unsigned VECTORS, class Team = WarpTeam<1>> struct IntegerMoments {
    using In = typename Traits::In;
    static constexpr unsigned elements = VECTORS * vector_elements<In>;
    static constexpr unsigned most_tiles = most_integers / elements;

    Team team;
    IntegerSums<In> sums;
    IntegerProducts<In> squares;
    unsigned tiles = 0;
    unsigned left_out = 0;

    GPR_DEVICE explicit IntegerMoments(Team in = {}) : team(in) {}

    static GPR_DEVICE Vector nothing() { return Vector{{0, 0, 0, 0}}; }

    GPR_DEVICE void flush()
    {
        BlockMoments<In> &total = moments_of<In>(team);
        sums.empty_into(team, total.sum[0]);
        squares.empty_into(team, total.squares);
        tiles = 0;
    }
    GPR_DEVICE void take(const Vector (&v)[VECTORS])
    {
        if (tiles == most_tiles) flush();
        tiles++;
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
            const In x = element<In>(v[i / vector_elements<In>], i % vector_elements<In>);
            sums.add_element(x);
            squares.add(x, x);
        }
    }
    GPR_DEVICE void close()
    {
        flush();
        if (left_out != 0) atomicAdd(&moments_of<In>(team).left_out, static_cast<uint64>(left_out));
    }
};

// ---------------------------------------------------------------- the kernel --------------------

template <class Traits, unsigned VECTORS, class Team = WarpTeam<1>> using MomentsAdder =
    typename Select<adds_floats<Traits>, FloatMoments<Traits, VECTORS, Team>, IntegerMoments<Traits, VECTORS, Team>>::type;

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact_moments(const typename Traits::In *in, typename Traits::Out *out, Rows rows, Scratch<typename Traits::Acc> scratch,
              const __grid_constant__ Layout layout, FinalizeParams params)
{
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    using Words = MomentWords<In>;
    constexpr unsigned vectors = 4, all_words = sizeof(Acc) / sizeof(uint64);
    static_assert(all_words == Words::all, "words, a count and flags of each");
    __shared__ Acc whole;
    BlockMoments<In> *part = block_moments<In, 1>();
    const Row row = row_of(rows, blockIdx.x);
    const RowOffsets start = layout.row_offsets(row.index);

    MomentsAdder<Traits, vectors> adder;
    take_tiles<vectors, BLOCK>(adder, Run<In>(in + start.in, row.n), row, [&] { clear_shared<BLOCK>(part, 1); });
    adder.close();
    __syncthreads(); // all warps have added

    const uint64 counted = row.block == 0 ? row.n : 0; // each element by one block
    const auto found = [&](unsigned i) { return Words::word(*part, i, counted); };
    const auto is_flags = [](unsigned i) { return Words::is_flags(i); };
    if (!join_words<BLOCK>(reinterpret_cast<uint64 (&)[all_words]>(whole), row, scratch.tickets, layout.slots, found,
                           is_flags)) {
        return;
    }
    __syncthreads(); // the sums are there
    if constexpr (same<typename Traits::Out, Acc>) {
        store_words<BLOCK>(out + start.out, whole);
    } else {
        __shared__ VarianceWork<PartType<In>> work;
        if (threadIdx.x < warp_lanes) Traits::store(out + start.out, whole, work, params);
    }
}

} // namespace gpr
