// exact_rows: exact sums of many short rows, wherever their elements lie.
//
// Problem: to clear, renormalize and search a superaccumulator of 68 words takes as long as to read
// a thousand elements. But the sum of a few elements is hardly longer than an element: the bins of
// a thread, three integers of 51 bits, hold all of it. So `lanes` lanes share a row, with bins at
// one position that are not emptied before the end. The integers are summed over the lanes; one
// lane makes limbs of them, carries, rounds and stores, all in registers.
//
// But first lanes add real floats to a pair of doubles each, and prove that no addition is rounded
// (exact_double_double.cuh), where results leave the kernel and the GPU adds float64 quickly. That
// takes hardly longer than a sum that rounds; of elements narrower than a double one number is
// enough. Most rows are done then, and bins are for those that a pair does not hold.
//
// A thread that has whole rows of a few elements sums them as double-doubles, without bins
// (exact_few_terms.cuh): several rows, whose loads are in flight together. Rows that bins do
// not hold are added again, one after another, by the whole warp, as `exact` adds them.
//
//   Launch: per_thread rows for each lane group; blocks serve BLOCK / lanes * per_thread rows each,
//   and rows.n <= lanes * most_adds. No scratch. BLOCK is at most most_rows_block<In>. `item`
//   vectors are a tile.
//
// Still paid: a row that bins do not hold takes as long as many others.
#pragma once

#include "exact_any_row.cuh"
#include "exact_few_terms.cuh"

namespace gpr {

// Each warp has a superaccumulator in shared memory, and room for an accumulator to store.
template <class In> constexpr unsigned most_rows_block = gpr_most_exact_rows_block(parts_of<In>);
// Blocks of a multiprocessor: of float64 three bins and a large tile want more registers than as
// many threads have as fit otherwise, and what does not find one goes to memory and back for every
// tile.
template <class T, unsigned BLOCK> constexpr unsigned rows_blocks =
    sizeof(T) == 8 && item > 2 ? exact_blocks<BLOCK> : resident_threads / BLOCK;

// ---------------------------------------------------------------- lane groups -------------------

// Over the lanes of a group. All lanes of a warp must call.
template <class T, class Fold> GPR_DEVICE T fold_group(T value, const Fold &fold)
{
#pragma unroll
    for (unsigned mask = lanes / 2; mask > 0; mask /= 2)
        value = fold(value, shuffle_xor(value, mask));
    return value;
}
GPR_DEVICE unsigned group_max(unsigned value)
{
    return fold_group(value, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
GPR_DEVICE unsigned group_or(unsigned value)
{
    return fold_group(value, [](unsigned a, unsigned b) { return a | b; });
}
GPR_DEVICE unsigned group_sum(unsigned value)
{
    return fold_group(value, [](unsigned a, unsigned b) { return a + b; });
}
GPR_DEVICE long long group_sum(long long value)
{
    return fold_group(value, [](long long a, long long b) { return a + b; });
}

// ---------------------------------------------------------------- a lane's share ----------------

// A lane's bins for the floats of a row, at one position in its lane group.
template <class Traits, unsigned VECTORS> struct ShortFloats {
    using In = typename Traits::In;
    using T = PartType<In>;
    static constexpr unsigned parts = parts_of<In>, bins = bin_count<T>;
    using Short = ShortSum<bins, bin_step>;

    FloatAdder<Traits, VECTORS, SingleThread<1>> adder;
    bool is_placed = false; // by something that is not zero; the same in the group
    bool fits = true;

    GPR_DEVICE bool is_empty() const
    {
        bool is_so = true;
#pragma unroll
        for (unsigned p = 0; p < parts; p++) is_so = is_so && adder.bins[p].is_empty();
        return is_so;
    }
    // All lanes of a warp must call. Whether more tiles follow is the same for all.
    GPR_DEVICE void accumulate(const Vector (&v)[VECTORS], bool more_follow)
    {
        const bool seeks = __any_sync(all_lanes, !is_placed) != 0; // whoever has a place goes along
        const Magnitudes measured = adder.measure(v);
        unsigned key = 0;
        if (seeks) {
            key = group_max(adder.largest_key(v, measured));
            if (!is_placed)
                adder.begin(one_bin_suffices<T> ? least_top<T> : RowBins<T>::top_for(key));
        }
        fits = fits && adder.try_add(v, measured);
        if (seeks && more_follow)
            is_placed = group_or(key != 0 || !is_empty() ? 1 : 0) != 0 || is_placed;
        adder.note_others(v);
    }
    // The group's sum of part p, in all of its lanes.
    GPR_DEVICE Short sum(unsigned p) const
    {
        Short found;
        int place[bins];
        adder.bins[p].read(found.limb, place);
#pragma unroll
        for (unsigned w = 0; w < bins; w++) found.limb[w] = group_sum(found.limb[w]);
        found.unit = lowest_exponent<T> + place[bins - 1];
        return found;
    }
    GPR_DEVICE uint64 flags(unsigned p) const
    {
        const unsigned others = group_or(adder.others);
        return (parts == 1 ? others : others >> p & 1) != 0 ? saw_not_minus_zero : 0;
    }
};

// As above, of integers.
template <class Traits, unsigned VECTORS> struct ShortIntegers {
    using Short = ShortSum<2, word_bits>;
    static constexpr bool fits = true;
    IntegerAdder<Traits, VECTORS, SingleThread<1>> adder;

    GPR_DEVICE void accumulate(const Vector (&v)[VECTORS], bool) { adder.add(v); }
    GPR_DEVICE Short sum(unsigned) const
    {
        return Short{{group_sum(adder.upper), group_sum(adder.lower)}, 0};
    }
    GPR_DEVICE uint64 flags(unsigned) const { return saw_not_minus_zero; }
};

template <class Traits, unsigned VECTORS>
using ShortRow = typename Select<adds_floats<Traits>, ShortFloats<Traits, VECTORS>,
                                 ShortIntegers<Traits, VECTORS>>::type;

// ---------------------------------------------------------------- rows --------------------------

// Whether rows are summed as double-doubles: rows of as few floats as the program is made for. In
// place of NaN that are left out there are zeros, which a mean would have to count. Double-doubles
// of float64 are for GPUs that add float64 quickly.
template <class Traits, class F> GPR_DEVICE constexpr bool sums_double_double()
{
    using In = typename Traits::In;
    constexpr bool are_floats = is_float<In> && makes_floats<Traits>;
    constexpr bool is_short = lanes == 1 && row_elements > 0 && row_elements <= most_terms<In>;
    constexpr bool is_quick = !integer_bins || sizeof(F) == sizeof(float);
    return are_floats && is_short && row_elements <= StridedTiles<Traits, item>::elements &&
           is_quick && !masked && !(Traits::skips_nan && makes_means<Traits>);
}

// Stores the sums of ROWS of a thread's rows: row `index`, and those STEP rows further. Returns for
// which rows two numbers are not the sum: bit r for the r-th.
template <class Traits, unsigned ROWS, unsigned STEP>
GPR_DEVICE unsigned store_double_double_rows(const typename Traits::In *in,
                                             typename Traits::Out *out, const Layout &layout,
                                             uint64 index)
{
    using In = typename Traits::In;
    Vector v[ROWS][item];
    unsigned left = 0;

#pragma unroll
    for (unsigned r = 0; r < ROWS; r++) { // all loads first
        StridedTiles<Traits, item> only(in + layout.row_offsets(index + r * STEP).in, nullptr,
                                        layout, 0, 1, row_elements);
        only.fetch_part(v[r], FloatAdder<Traits, item, SingleThread<1>>::nothing());
    }
#pragma unroll
    for (unsigned r = 0; r < ROWS; r++) {
        const bool is_stored = store_double_double<Traits, Term<Traits>, row_elements>(
            v[r], out + layout.row_offsets(index + r * STEP).out);
        left |= is_stored ? 0 : 1u << r;
    }
    return left;
}

// Adds a group's row and stores its sum if bins hold it. Returns whether they do. All lanes of a
// warp must call.
template <class Traits, unsigned VECTORS>
GPR_DEVICE bool store_short_row(const typename Traits::In *in, typename Traits::Out *out,
                                const Layout &layout, const RowOffsets &start, bool has_row,
                                uint64 n)
{
    using In = typename Traits::In;
    const unsigned lane = threadIdx.x % lanes;
    // too far apart for two floats
    if constexpr (sums_double_double<Traits, double>() && sizeof(Term<Traits>) < sizeof(double)) {
        StridedTiles<Traits, VECTORS> only(in + start.in, nullptr, layout, 0, 1, has_row ? n : 0);
        Vector v[VECTORS];
        only.fetch(v, FloatAdder<Traits, VECTORS, SingleThread<1>>::nothing());
        if (__all_sync(all_lanes, !has_row || store_double_double<Traits, double, row_elements>(
                                                  v, out + start.out)))
            return true;
    }
    ShortRow<Traits, VECTORS> row;
    StridedTiles<Traits, VECTORS> tiles(in + start.in, layout.mask + start.mask, layout, lane,
                                        lanes, has_row ? n : 0);
    const Vector nothing = row.adder.nothing();
    typename ShortRow<Traits, VECTORS>::Short sum[parts_of<In>];
    uint64 flags[parts_of<In>];

#pragma unroll 1
    for (uint64 done = 0; done < n;) {
        Vector v[VECTORS];
        tiles.fetch_by_warp(v, nothing);
        done += lanes * tiles.elements;
        row.accumulate(v, done < n);
    }
    const bool fits = __any_sync(all_lanes, !row.fits) == 0 || group_or(row.fits ? 0 : 1) == 0;
    uint64 count = n;
    if constexpr (masked || Traits::skips_nan) count -= group_sum(tiles.left_out);
#pragma unroll
    for (unsigned p = 0; p < parts_of<In>; p++) {
        sum[p] = row.sum(p);
        flags[p] = row.flags(p);
    }
    if (fits && has_row && lane == 0) Traits::store(out + start.out, sum, count, flags);
    return fits;
}

// Whether rows are first added to a pair of doubles per lane.
template <class Traits> GPR_DEVICE constexpr bool tries_pairs()
{
    using In = typename Traits::In;
    if constexpr (same<typename Traits::Out, typename Traits::Acc>) return false;
    else return is_float<In> && is_float<typename Traits::Out> && !integer_bins;
}

// Adds a group's row, and stores its sum if a pair holds it. Returns whether it is stored, to all
// of the row's lanes. All lanes of a warp must call.
template <class Traits, unsigned VECTORS>
GPR_DEVICE bool store_pair_of_row(const typename Traits::In *in, typename Traits::Out *out,
                                  const Layout &layout, const RowOffsets &start, bool has_row,
                                  uint64 n)
{
    using In = typename Traits::In;
    constexpr bool has_rest = sizeof(In) == sizeof(double), // narrower elements leave it 0
        counts = Traits::is_mean && (masked || Traits::skips_nan);
    constexpr unsigned per_vector = vector_elements<In>,
                       whole_group = all_lanes >> (warp_lanes - lanes);
    const unsigned lane = threadIdx.x % lanes, first_of_group = threadIdx.x % warp_lanes - lane;
    StridedTiles<Traits, VECTORS> tiles(in + start.in, layout.mask + start.mask, layout, lane,
                                        lanes, has_row ? n : 0);
    double sum = 0, rest = 0; // a sum starts at +0
    unsigned lost = 0;

#pragma unroll 1
    for (uint64 done = 0; done < n;) {
        Vector v[VECTORS];
        tiles.fetch_by_warp(v, Vector{});
        done += lanes * tiles.elements;
#pragma unroll
        for (unsigned i = 0; i < tiles.elements; i++) {
            const In element_i = element<In>(v[i / per_vector], i % per_vector);
            const double x = static_cast<double>(value_of(element_i));
            if constexpr (has_rest) add_with_error(sum, rest, x, &lost);
            else sum = add_exactly(sum, x, &lost);
        }
    }
    uint64 count = n;
    if constexpr (counts) count -= group_sum(tiles.left_out);
#pragma unroll
    for (unsigned delta = lanes / 2; delta > 0; delta /= 2) {
        const double other = shuffle_down(sum, delta, lanes);
        unsigned found = 0;
        if constexpr (has_rest) {
            const double other_rest = shuffle_down(rest, delta, lanes);
            add_with_error(sum, rest, other, &found);
            rest = add_exactly(rest, other_rest, &found);
        } else {
            sum = add_exactly(sum, other, &found);
        }
        lost |= lane < delta ? found : 0; // upper lanes have no result
    }
    const unsigned inexact = __ballot_sync(all_lanes, !is_exact(lost));
    bool is_stored = (inexact >> first_of_group & whole_group) == 0;
    if (is_stored && has_row && lane == 0) {
        is_stored = store_pair<In, Traits::is_mean, counts>(out + start.out, sum, rest, count);
    }
    if constexpr (Traits::is_mean || has_rest) { // which cannot always be stored
        const unsigned stored = __ballot_sync(all_lanes, is_stored);
        is_stored = (stored >> first_of_group & 1) != 0;
    }
    return is_stored;
}

// The first row of a lane group; the others are BLOCK / lanes rows further each.
template <unsigned BLOCK> GPR_DEVICE uint64 first_row(uint64 first_block)
{
    return (first_block + blockIdx.x) * (BLOCK / lanes * per_thread) + threadIdx.x / lanes;
}

// Stores the sums of a group's rows, of n elements each: of the r-th where bit r of `left` is set.
// All lanes of a warp must call.
template <class Traits, unsigned BLOCK>
GPR_DEVICE void store_rows(const typename Traits::In *in, typename Traits::Out *out,
                           const Layout &layout, uint64 first_block, uint64 n, unsigned left)
{
    const uint64 first = first_row<BLOCK>(first_block);

#pragma unroll 1
    for (unsigned r = 0; r < per_thread; r++) {
        const uint64 index = first + r * (BLOCK / lanes);
        const bool has_row = (left >> r & 1) != 0 && index < layout.count;
        if (!__any_sync(all_lanes, has_row)) continue;
        const RowOffsets start = layout.row_offsets(has_row ? index : 0);
        bool fits = false; // of accumulators that leave the kernel all words are wanted
        if constexpr (!same<typename Traits::Out, typename Traits::Acc>) {
            fits = store_short_row<Traits, item>(in, out, layout, start, has_row, n);
        }
        unsigned any = __ballot_sync(all_lanes, has_row && !fits && threadIdx.x % lanes == 0);
        while (any != 0) {
            // the first of the row's
            const unsigned lane = warp_lanes - 1 - static_cast<unsigned>(leading_zeros(any));
            any ^= 1u << lane;
            const RowOffsets of_row =
                layout.row_offsets(index - threadIdx.x % warp_lanes / lanes + lane / lanes);
            store_any_row<Traits, BLOCK / warp_lanes>(in + of_row.in, layout.mask + of_row.mask,
                                                      out + of_row.out, layout, n,
                                                      threadIdx.x / warp_lanes);
        }
    }
}
// store_rows as a function that is called: the usual path needs none of its registers.
template <class Traits, unsigned BLOCK>
GPR_CALLED void store_rows_left(const typename Traits::In *in, typename Traits::Out *out,
                                const Layout &layout, uint64 first_block, uint64 n, unsigned left)
{
    store_rows<Traits, BLOCK>(in, out, layout, first_block, n, left);
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, rows_blocks<PartType<typename Traits::In>, BLOCK>)
exact_rows(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
           Scratch<typename Traits::Acc>, const __grid_constant__ Layout layout)
{
    using In = typename Traits::In;
    static_assert(BLOCK <= most_rows_block<In>,
                  "shared memory has room for the numbers of these warps");
    [[maybe_unused]] constexpr unsigned groups = BLOCK / lanes;

    if constexpr (sums_double_double<Traits, Term<Traits>>()) {
        const uint64 first = first_row<BLOCK>(rows.first);
        unsigned left = 0;
        if (per_thread > 1 && first - threadIdx.x + groups * per_thread <= layout.count) {
            left = store_double_double_rows<Traits, per_thread, groups>(in, out, layout, first);
        } else { // not all rows exist
#pragma unroll 1
            for (unsigned r = 0; r < per_thread && first + r * groups < layout.count; r++)
                left |= store_double_double_rows<Traits, 1, groups>(in, out, layout,
                                                                    first + r * groups) << r;
        }
        if (__any_sync(all_lanes, left != 0))
            store_rows_left<Traits, BLOCK>(in, out, layout, rows.first, rows.n, left);
    } else if constexpr (tries_pairs<Traits>()) {
        const uint64 first = first_row<BLOCK>(rows.first);
        unsigned left = 0;
#pragma unroll 1
        for (unsigned r = 0; r < per_thread; r++) {
            const uint64 index = first + r * groups;
            const bool has_row = index < layout.count;
            const RowOffsets start = layout.row_offsets(has_row ? index : 0);
            const bool is_stored =
                store_pair_of_row<Traits, item>(in, out, layout, start, has_row, rows.n);
            left |= is_stored ? 0 : 1u << r;
        }
        if (__any_sync(all_lanes, left != 0))
            store_rows_left<Traits, BLOCK>(in, out, layout, rows.first, rows.n, left);
    } else {
        constexpr unsigned all = (1u << per_thread) - 1;
        store_rows<Traits, BLOCK>(in, out, layout, rows.first, rows.n, all);
    }
}

} // namespace gpr
