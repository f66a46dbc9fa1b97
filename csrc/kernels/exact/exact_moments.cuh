// exact_moments: the exact sums of the elements and of their squares, of which variances and
// standard deviations are made.
//
// Removed: a second pass, and rounding. With n elements, their sum S and the sum Q of their
// squares, the variance is (n Q - S^2) / (n (n - ddof)). S and Q are exact, so that nothing is lost
// where the two terms cancel, and one pass computes both.
//
// Elements go to bins as in exact, their squares to those of exact_products.cuh. Of complex
// elements each part has a sum, and the squares of both go to one.
//
// Still paid: nine operations on doubles per float32, where `exact` has four. Memory hides the five
// for Q on GPUs with fast float64, not on others.
//
// Launch: as exact. The last block of a row divides (exact_variance.cuh), or leaves the
// accumulator.
#pragma once

#include "exact_merge.cuh"
#include "exact_products.cuh"
#include "exact_run.cuh"
#include "exact_variance.cuh"

namespace gpr {

// The sums of a block.
template <class In> struct MomentSuperaccumulators {
    using T = PartType<In>;
    int sum[parts_of<In>][limbs_of<T>];
    int squares[limbs_of<ProductOf<T>>];
    unsigned flags; // of the squares: an element that is no number makes them none
    uint64 left_out;
};
// Of ACCUMULATORS rows.
template <class In, unsigned ACCUMULATORS> GPR_DEVICE MomentSuperaccumulators<In> *block_moments()
{
    __shared__ MomentSuperaccumulators<In> moments[ACCUMULATORS];
    return moments;
}
// Those that a group adds to.
template <class In, template <unsigned> class Group, unsigned ACCUMULATORS>
GPR_DEVICE MomentSuperaccumulators<In> &moments_of(const Group<ACCUMULATORS> &group)
{
    return block_moments<In, ACCUMULATORS>()[ACCUMULATORS == 1 ? 0 : group.index];
}

// The words of an accumulator: those of each part's sum, then those of the squares, each with a
// count and flags behind them.
template <class In> struct MomentWords {
    using T = PartType<In>;
    static constexpr unsigned tail = GPR_EXACT_ACC_TAIL, of_sum = accumulator_words<T>,
                              of_squares = accumulator_words<ProductOf<T>>;
    static constexpr unsigned sums = parts_of<In> * (of_sum + tail), all = sums + of_squares + tail;

    static GPR_DEVICE bool is_flags(unsigned i) { return i == all - 1; } // the sums' stay 0
    // Word i of a block's sums, of `count` elements or fewer.
    static GPR_DEVICE uint64 word(const MomentSuperaccumulators<In> &found, unsigned i,
                                  uint64 count)
    {
        const bool is_sum = i < sums;
        const unsigned words = is_sum ? of_sum : of_squares;
        const unsigned p = is_sum ? i / (of_sum + tail) : 0,
                       w = is_sum ? i % (of_sum + tail) : i - sums;
        if (w == words) return count - found.left_out;
        if (w > words) return is_sum ? 0 : found.flags;
        return static_cast<uint64>(is_sum
                                       ? word_of<T>(found.sum[p], static_cast<int>(w))
                                       : word_of<ProductOf<T>>(found.squares, static_cast<int>(w)));
    }
};

// Addresses of the limbs of a block's sums.
template <unsigned PARTS> struct MomentBounds {
    Bounds sum[PARTS], squares;
};
// All lanes of a warp must call, and get it.
template <class In>
GPR_DEVICE MomentBounds<parts_of<In>> bounds_of(const MomentSuperaccumulators<In> &found)
{
    using T = PartType<In>;
    MomentBounds<parts_of<In>> used;

#pragma unroll
    for (unsigned p = 0; p < parts_of<In>; p++) {
        used.sum[p] = bounds_where<limbs_of<T>>([&](int i) { return found.sum[p][i] != 0; });
    }
    used.squares =
        bounds_where<limbs_of<ProductOf<T>>>([&](int i) { return found.squares[i] != 0; });
    return used;
}
// The first bits of a block's sums. Returns whether there are enough of them.
template <class In, unsigned PARTS>
GPR_DEVICE bool load_leading_bits(MomentIntervals<PARTS> *intervals,
                                  const MomentSuperaccumulators<In> &found,
                                  const MomentBounds<PARTS> &used)
{
    using T = PartType<In>;
    bool is_taken = load_leading_bits<limb_bits>(&intervals->squares, found.squares, used.squares,
                                                 lowest_exponent<ProductOf<T>>);

#pragma unroll
    for (unsigned p = 0; p < PARTS; p++) {
        is_taken = is_taken && load_leading_bits<limb_bits>(&intervals->sum[p], found.sum[p],
                                                            used.sum[p], lowest_exponent<T>);
    }
    return is_taken;
}

// ---------------------------------------------------------------- floats ------------------------

// Adds the floats of a row and their squares, together with its group.
template <class Traits, unsigned VECTORS, class Group = WarpGroup<1>> struct FloatMoments {
    using In = typename Traits::In;
    using T = PartType<In>;
    static constexpr bool skips_nan = Traits::skips_nan;
    static constexpr unsigned parts = parts_of<In>, per_vector = vector_elements<In>,
                              elements = VECTORS * per_vector;
    // Bins of sums that hold what few bins of squares do.
    static constexpr unsigned fewer_sum_bins = bin_count<T> < 2 ? bin_count<T> : 2;
    struct Tile { Vector v[VECTORS]; };

    Group group;
    DoubleBins<T> sums[parts];
    ProductBins<T> squares;
    MeasuredPlacement<elements * parts> placement;
    unsigned left_out = 0; // elements, of which tiles have 0 instead

    GPR_DEVICE explicit FloatMoments(Group in = {}) : group(in)
    {
        begin(deepest_field<T>, 0);
        placement.is_placed = one_bin_suffices<T>;
        placement.limits = limits();
    }

    // All elements 0, which changes neither sum.
    static GPR_DEVICE Vector nothing() { return Vector{{0, 0, 0, 0}}; }
    static GPR_DEVICE T part_of(const Vector &v, unsigned j, unsigned p)
    {
        const In x = element<In>(v, j);
        if constexpr (parts == 1) return x;
        else return p == 0 ? x.re : x.im;
    }

    // The whole group must call together.
    GPR_DEVICE void accumulate(const Vector (&v)[VECTORS]) { placement.accumulate(*this, v); }

    // ---- the interface of a placement: exponent fields of elements ----

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
        if (one_bin_suffices<T> || largest == static_cast<int>(last_field<T>)) return false;
        if (is_placed) flush();
        begin(top < highest_field<T> ? top : highest_field<T>, 2 * (largest - exponent_bias<T>)+1);
        return true;
    }
    GPR_DEVICE Limits limits() const
    {
        if constexpr (one_bin_suffices<T>) return Limits{static_cast<int>(last_field<T>) - 1, 0, 0};
        const int of_sums = sums[0].top - least_headroom - field_offset<T>,
                  of_squares = squares.highest_fields() / 2;
        return Limits{of_sums < of_squares ? of_sums : of_squares,
                      lowest<fewer_sum_bins, fewer_product_bins>(),
                      lowest<bin_count<T>, product_bins<T>>()};
    }
    template <unsigned SUMS, unsigned SQUARES> GPR_DEVICE int lowest() const
    {
        // The lowest exponent field of elements whose last bits both last bins hold: that of sums
        // and that of squares. No bin is deeper than the smallest number needs.
        const int of_sums = sums[0].top - static_cast<int>(SUMS - 1) * bin_step - double_fraction -
                            field_offset<T> + Format<T>::fraction;
        const int of_squares = (squares.template lowest_fields<SQUARES>() + 1) / 2;
        return of_sums > 1 && of_sums > of_squares ? of_sums : of_squares;
    }
    GPR_DEVICE void add_to_fewer(const Vector (&v)[VECTORS])
    {
        add<fewer_sum_bins, fewer_product_bins>(v);
    }
    GPR_DEVICE void add_to_all(const Vector (&v)[VECTORS])
    {
        add<bin_count<T>, product_bins<T>>(v);
    }
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
        MomentSuperaccumulators<In> &total = moments_of<In>(group);
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            flush_sums(group, total.sum[p], sums[p]);
            sums[p].begin(sums[p].top);
        }
        ProductBins<T>::flush(group, total.squares, squares);
        squares.begin(squares.top());
    }
    static GPR_CALLED void flush_sums(Group group, int *limb, DoubleBins<T> bins)
    {
        flush_bins(group, bins, limb);
    }

    GPR_DEVICE int add_any_tile(const Vector (&v)[VECTORS])
    {
        return static_cast<int>(field_of_key<T>(add_tile(group, bit_copy<Tile>(v))));
    }

    // ---- tiles that bins do not hold ----

    // Adds a tile of any elements. Returns the key of the largest finite one. The whole group must
    // call together.
    static GPR_CALLED unsigned add_tile(Group group, Tile tile)
    {
        MomentSuperaccumulators<In> &total = moments_of<In>(group);
        unsigned largest = 0; // key
        unsigned counted = 0; // bits of elements that are finite
        static_assert(elements <= 8 * sizeof counted, "a bit for each");

#pragma unroll 1
        for (unsigned i = 0; i < elements; i++) {
            if (inspect(total, tile.v[i / per_vector], i % per_vector, &largest))
                counted |= 1u << i;
        }
        if constexpr (has_wide_bins<T>) {
            static_assert(elements * parts <= most_wide_adds, "wide bins have room for a tile");
            add_wide<false>(group, tile, counted);
            add_wide<true>(group, tile, counted);
        } else {
#pragma unroll 1
            for (unsigned i = 0; i < elements; i++) {
                if ((counted >> i & 1) == 0) continue;
#pragma unroll
                for (unsigned p = 0; p < parts; p++) {
                    const T x = part_of(tile.v[i / per_vector], i % per_vector, p);
                    add_to_limbs(total.sum[p], x);
                    add_product_to_limbs(total.squares, x, x);
                }
            }
        }
        return largest;
    }

    // A tile's elements, or their squares, through bins that hold all of them.
    template <bool SQUARED>
    static GPR_DEVICE void add_wide(const Group &group, const Tile &tile, unsigned counted)
    {
        MomentSuperaccumulators<In> &total = moments_of<In>(group);
        WideBins<T> wide[SQUARED ? 1 : parts];
        WideProductBins<T> wide_squares;

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
        for (unsigned p = 0; p < parts && !SQUARED; p++) flush_bins(group, wide[p], total.sum[p]);
        if constexpr (SQUARED) flush_bins(group, wide_squares, total.squares);
    }

    // Notes an element's magnitude and flags. Returns whether its numbers are to be added: not if
    // it is infinite or NaN.
    static GPR_DEVICE bool inspect(MomentSuperaccumulators<In> &total, const Vector &v, unsigned j,
                                   unsigned *largest)
    {
        bool all_finite = true;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            const T x = part_of(v, j, p);
            const unsigned key = magnitude_key(x);
            if (is_finite(x)) *largest = key > *largest ? key : *largest;
            else all_finite = false;
        }
        if (!all_finite) atomicOr(&total.flags, static_cast<unsigned>(saw_nan)); // no variance then
        return all_finite;
    }

    GPR_DEVICE void finalize()
    {
        if (placement.is_placed) flush();
        if constexpr (masked || skips_nan)
            count_left_out(group, &moments_of<In>(group).left_out, left_out);
    }
};

// ---------------------------------------------------------------- integers ----------------------

template <class Traits, unsigned VECTORS, class Group = WarpGroup<1>> struct IntegerMoments {
    using In = typename Traits::In;
    static constexpr bool skips_nan = false; // there is none
    static constexpr unsigned elements = VECTORS * vector_elements<In>;
    static constexpr unsigned most_tiles = most_integers / elements;

    Group group;
    IntegerSums<In> sums;
    IntegerProducts<In> squares;
    unsigned tiles = 0;
    unsigned left_out = 0;

    GPR_DEVICE explicit IntegerMoments(Group in = {}) : group(in) {}

    static GPR_DEVICE Vector nothing() { return Vector{{0, 0, 0, 0}}; }

    GPR_DEVICE void flush()
    {
        MomentSuperaccumulators<In> &total = moments_of<In>(group);
        sums.flush_into(group, total.sum[0]);
        squares.flush_into(group, total.squares);
        tiles = 0;
    }
    GPR_DEVICE void accumulate(const Vector (&v)[VECTORS])
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
    GPR_DEVICE void finalize()
    {
        flush();
        if constexpr (masked) count_left_out(group, &moments_of<In>(group).left_out, left_out);
    }
};

// ---------------------------------------------------------------- the kernel --------------------

template <class Traits, unsigned VECTORS, class Group = WarpGroup<1>>
using MomentsAdder = typename Select<adds_floats<Traits>, FloatMoments<Traits, VECTORS, Group>,
                                     IntegerMoments<Traits, VECTORS, Group>>::type;

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact_moments(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
              Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
              FinalizeParams params)
{
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    using Words = MomentWords<In>;
    constexpr unsigned vectors = GPR_STREAM_VECTORS, all_words = sizeof(Acc) / sizeof(uint64);
    static_assert(all_words == Words::all, "words, a count and flags of each");
    __shared__ Acc whole;
    MomentSuperaccumulators<In> *part = block_moments<In, 1>();
    const Row row = row_of(rows, blockIdx.x);
    const RowOffsets start = layout.row_offsets(row.index);

    MomentsAdder<Traits, vectors> adder;
    accumulate_tiles<vectors, BLOCK>(adder, Run<In>(in + start.in, row.n), row,
                                     [&] { clear_shared<BLOCK>(part, 1); });
    adder.finalize();
    __syncthreads(); // all warps have added

    const uint64 counted = row.block == 0 ? row.n : 0; // each element by one block
    const auto found = [&](unsigned i) { return Words::word(*part, i, counted); };
    const auto is_flags = [](unsigned i) { return Words::is_flags(i); };
    if (!merge_words<BLOCK>(reinterpret_cast<uint64(&)[all_words]>(whole), row, scratch.tickets,
                            layout.slots, found, is_flags)) {
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
