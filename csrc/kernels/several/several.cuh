// several: several reductions of an array in one pass over memory.
//
// Removed: a pass over memory per operator. A thread loads a tile once, and each accumulator adds
// it from registers. Memory is the bound of every operator alone, so a few of them together take
// the time of one.
//
//     memory --tile--> registers --+--> ThreadAccumulator of min      --> block --> row --> results
//                                  +--> ThreadAccumulator of argmax   --> block --> row
//                                  +--> bins of the exact sum         --> block --> row
//
// The bits are those of calls of their own. Accumulators are the ones of fast_stream, and a thread
// adds the same elements in the same order as there, if the launch has the blocks of that call;
// which the plan sees to for operators whose bits depend on it (lib/rules/plan_several.c). Exact
// sums, positions, truths, counts and integers have the same bits in any order.
//
// Operators that differ only in how an accumulator becomes a result share one: sum and mean, var
// and std, ptp and minmax. There is at most one exact sum, as its superaccumulator and spilled
// integers are shared memory that depends on the elements' type alone.
//
// Still paid: registers for all accumulators, and a tree per accumulator at a block's end.
//
// Launch: BLOCK a multiple of 32; rows * blocks blocks of it. With all_blocks above 1, tickets and
// counters are zero before a row's first launch and after its last.
#pragma once

#include "exact_limb_partial.cuh"
#include "exact_results.cuh"
#include "fast.cuh"
#include "several_params.h"

namespace gpr {

// ---------------------------------------------------------------- results ------------------------

// Where a row's results go: result i to out[i], at this distance.
struct Places {
    void *const *out;
    long long distance;
};

// Member INDEX of the tuple, whose results Last makes.
template <unsigned INDEX, class Last> struct Member {
    template <class... Values> static GPR_DEVICE void store(Places *to, Values &&...values)
    {
        Last::store(static_cast<typename Last::Out *>(to->out[INDEX]) + to->distance, values...);
    }
};

// The number of NaN among the elements.
template <class Element> struct CountNan {
    using Fold = fold_count;
    using In = Element;
    using Compute = Element;
    using Acc = uint64;
    static constexpr bool positional = false, skips_nan = false;

    static GPR_DEVICE Acc identity() { return 0; }
    static GPR_DEVICE Acc lift(In x, uint64) { return is_nan(value_of(x)) ? 1 : 0; }
    static GPR_DEVICE Acc combine(Acc a, Acc b) { return a + b; }
};

// Traits of members that share an accumulator: Base makes it, and each member a result of it.
template <class Base, class... OfMembers> struct Shared : Base {
    using Out = Places;
    static constexpr bool is_mean = false, is_rounded = false; // members round

    template <class... Values> static GPR_DEVICE void store(Places *to, Values &&...values)
    {
        (OfMembers::store(to, values...), ...);
    }
};

// ---------------------------------------------------------------- accumulators -------------------

// NaN are counted in tiles that may have some.
template <class Element, class... Members>
struct ThreadAccumulator<Shared<CountNan<Element>, Members...>, AccumulationWay::ACCUMULATOR> {
    using Traits = CountNan<Element>;
    uint64 value = 0;

    GPR_DEVICE void add(Element x, uint64) { value += Traits::lift(x, 0); }
    template <unsigned VECTORS>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const Element *, uint64, uint64)
    {
        if (may_have_nan<Element>(v)) value += fold_tile<Traits>(v);
    }
    GPR_DEVICE uint64 finalize() const { return value; }
};

// Accumulators of a thread, one per traits, in registers; and of its block and row.
template <unsigned BLOCK, class... Traits> struct Accumulators {
    static constexpr unsigned words = 0; // of a block's partials
    template <class In> GPR_DEVICE void add(In, uint64) {}
    template <unsigned VECTORS, class In>
    GPR_DEVICE void add_tile(const Vector (&)[VECTORS], const In *, uint64, uint64)
    {
    }
    GPR_DEVICE void reduce_block(uint64) {}
    GPR_DEVICE void publish(uint64 *, uint64, uint64) const {}
    GPR_DEVICE void merge(const uint64 *, uint64, const Row &) {}
    GPR_DEVICE void store(Places *, uint64, FinalizeParams) const {}
};

template <unsigned BLOCK, class First, class... Rest> struct Accumulators<BLOCK, First, Rest...> {
    using Acc = typename First::Acc;
    using Others = Accumulators<BLOCK, Rest...>;
    static constexpr unsigned own_words = gpr_partial_words(sizeof(Acc));
    static constexpr unsigned words = own_words + Others::words;
    static constexpr bool is_found = accumulation_way<First>() == AccumulationWay::INDEXED;

    ThreadAccumulator<First> accumulator;
    Others others;
    Acc value; // of the block, then of the row; thread 0 holds it

    template <class In> GPR_DEVICE void add(In x, uint64 i)
    {
        accumulator.add(x, i);
        others.add(x, i);
    }
    template <unsigned VECTORS, class In>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *in, uint64 first, uint64 step)
    {
        accumulator.add_tile(v, in, first, step);
        others.add_tile(v, in, first, step);
    }
    // Positions count from first_position. All threads must call.
    GPR_DEVICE void reduce_block(uint64 first_position)
    {
        if constexpr (is_found) {
            value = find_in_block<First, BLOCK>(accumulator);
            if (value.position != GPR_NOWHERE) value.position += first_position;
        } else {
            value = block_redux<First, BLOCK>(accumulator.finalize());
        }
        others.reduce_block(first_position);
    }
    // Stores the block's values as number `at` of `count`. One thread calls.
    GPR_DEVICE void publish(uint64 *partials, uint64 count, uint64 at) const
    {
        *reinterpret_cast<Acc *>(partials + at * own_words) = value;
        others.publish(partials + count * own_words, count, at);
    }
    // Combines what the row's blocks have published. All threads must call.
    GPR_DEVICE void merge(const uint64 *partials, uint64 count, const Row &row)
    {
        const uint64 *own = partials + row.index * row.blocks * own_words;
        value = First::identity();
        for (unsigned i = threadIdx.x; i < row.blocks; i += BLOCK) {
            value = First::combine(
                value,
                *reinterpret_cast<const Acc *>(own + static_cast<uint64>(i) * own_words));
        }
        value = block_redux<First, BLOCK>(value);
        others.merge(partials + count * own_words, count, row);
    }
    // Stores the results of a row of n elements. One thread calls.
    GPR_DEVICE void store(Places *to, uint64 n, FinalizeParams params) const
    {
        First::store(to, value, n, params);
        others.store(to, n, params);
    }
};

// The exact sum of a warp's elements. All lanes of the warp must call.
template <class Traits> struct ExactAccumulator {
    using In = typename Traits::In;
    using Warp = FloatAdder<Traits, stream_vectors, RunGroup>;
    Warp adder;

    template <unsigned BLOCK> GPR_DEVICE void prepare()
    {
        clear_superaccumulators<In, 1, BLOCK>();
    }
    static GPR_DEVICE Vector nothing() { return Warp::nothing(); }
    // Adds a tile, unless no lane has some of it. `is_full`: all threads of the row have one.
    GPR_DEVICE void add(Vector (&v)[stream_vectors], bool is_full, bool has_some)
    {
        if (!is_full && !__any_sync(all_lanes, has_some)) return;
        if constexpr (Warp::skips_nan) {
            if (may_have_nan<In>(v)) adder.left_out += leave_out_nans<In>(v, nothing());
        }
        adder.accumulate(v);
    }
    // All threads of the block must call.
    template <unsigned BLOCK>
    GPR_DEVICE void finalize(const Row &row, const gpr_several_params &p, Places *to)
    {
        const Scratch<typename Traits::Acc> scratch{{p.limb_partials, p.counters}};
        finalize_run<Traits, BLOCK>(partial_of(adder), row, scratch,
                                    static_cast<unsigned>(p.rows), to);
    }
};

// Where no member is an exact sum.
struct NoExactSum {
    template <unsigned BLOCK> GPR_DEVICE void prepare() {}
    static GPR_DEVICE Vector nothing() { return Vector{{0, 0, 0, 0}}; }
    GPR_DEVICE void add(Vector (&)[stream_vectors], bool, bool) {}
    template <unsigned BLOCK>
    GPR_DEVICE void finalize(const Row &, const gpr_several_params &, Places *)
    {
    }
};
template <class Traits> struct ExactAccumulatorOf { using type = ExactAccumulator<Traits>; };
template <> struct ExactAccumulatorOf<void> { using type = NoExactSum; };

// ---------------------------------------------------------------- a thread's share ---------------

// Adds this thread's share of in[0 .. n) to all accumulators. Folds get the elements in the order
// of add_whole_vectors (runs.cuh); an exact sum gets whole tiles: vectors that a lane lacks are
// `nothing`. One loop, as the code that adds a tile to an exact sum is long:
//
//     EDGES    elements before the first whole vector and after the last, one each per thread, to
//              an exact sum
//     ROUNDS   while all of the row's threads have a tile
//     REST     these elements to folds; vectors that are left, up to stream_vectors per thread
//
// AHEAD: the next tile is loaded while one is added. Where few threads fit a multiprocessor, they
// have the registers for it, and nothing else hides the time that adding takes.
template <unsigned BLOCK, bool AHEAD, class In, class Folds, class Exact>
GPR_DEVICE void add_share(Folds &folds, Exact &exact, const In *in, uint64 n, ThreadGroup group)
{
    enum { EDGES, ROUNDS, REST };
    constexpr unsigned each = vector_elements<In>;
    const unsigned to_aligned = elements_to_aligned(in);
    const uint64 head = to_aligned < n ? to_aligned : n;
    const Vector *vectors = reinterpret_cast<const Vector *>(in + head);
    uint64 left = (n - head) / each; // vectors that no thread has loaded
    const uint64 tail = head + left * each, round = stream_vectors * group.size,
                 last = tail + group.size - group.rank - 1;
    const Vector *end = vectors + left;
    const Vector *mine = vectors + group.rank / BLOCK * (BLOCK * stream_vectors) +
                         group.rank % BLOCK;

    Vector next[AHEAD ? stream_vectors : 1];
    const auto load = [&](Vector *to) {
#pragma unroll
        for (unsigned k = 0; k < stream_vectors; k++) to[k] = load_vector(mine + k * BLOCK);
    };

    if constexpr (AHEAD) {
        if (left >= round) load(next);
    }
#pragma unroll 1
    for (unsigned stage = EDGES; stage <= REST;) {
        const Vector nothing = Exact::nothing();
        Vector v[stream_vectors];
        bool has_some = false;

        if (stage == ROUNDS && left < round) stage = REST;
        if (stage == ROUNDS) {
            const uint64 first = position_of(mine, in);
            if constexpr (AHEAD) {
#pragma unroll
                for (unsigned k = 0; k < stream_vectors; k++) v[k] = next[k];
            } else {
                load(v);
            }
            left -= round;
            mine += round;
            if constexpr (AHEAD) {
                if (left >= round) load(next);
            }
            folds.add_tile(v, in, first, BLOCK * each);
        } else if (stage == REST) {
            const Vector *at = end - left + group.rank;
            has_some = at < end;
#pragma unroll
            for (unsigned k = 0; k < stream_vectors; k++) // all loads first
                v[k] = at + k * group.size < end ? load_vector(at + k * group.size) : nothing;
            if (group.rank < head) folds.add(in[group.rank], group.rank);
            if (last < n) folds.add(in[last], last);
#pragma unroll
            for (unsigned k = 0; k < stream_vectors; k++) {
                const Vector one[1] = {v[k]};
                if (at + k * group.size < end)
                    folds.add_tile(one, in, position_of(at + k * group.size, in), 0);
            }
        } else {
#pragma unroll
            for (unsigned k = 0; k < stream_vectors; k++) v[k] = nothing;
            // either are fewer than a vector's
            if (group.rank < head) store_element(v[0], 0, in[group.rank]);
            if (last < n) store_element(v[1], 0, in[last]);
            has_some = group.rank < head || last < n;
        }
        exact.add(v, stage == ROUNDS, has_some);
        stage += stage == ROUNDS ? 0 : 1;
    }
}

// Elements of type In; Exact: traits of the exact sum, or void; the others: of folds.
template <class In, class Exact, class... Folds> struct SeveralTraits {
    using Element = In;
    using ExactSum = typename ExactAccumulatorOf<Exact>::type;
    template <unsigned BLOCK> using OfThread = Accumulators<BLOCK, Folds...>;
};

// A multiprocessor can hold blocks of RESIDENT threads at once: as many as fast_stream's where the
// launch has the blocks of that kernel, fewer where accumulators need the registers.
template <class Traits, unsigned BLOCK, unsigned RESIDENT>
__global__ void __launch_bounds__(BLOCK, RESIDENT / BLOCK)
several(const __grid_constant__ gpr_several_params p)
{
    using In = typename Traits::Element;
    Row here = row_of(Rows{p.n, p.rows, 0, p.blocks}, blockIdx.x), row = here;
    Places places{p.out, static_cast<long long>(here.index) * p.out_step};
    const In *in = static_cast<const In *>(p.in) + static_cast<long long>(here.index) * p.row_step;
    typename Traits::template OfThread<BLOCK> folds;
    typename Traits::ExactSum exact;

    row.n = p.total;
    row.block = p.first_block + here.block;
    row.blocks = p.all_blocks;
    exact.template prepare<BLOCK>();
    add_share<BLOCK, 2 * RESIDENT <= resident_threads>(folds, exact, in, p.n, grid_of<BLOCK>(here));
    exact.template finalize<BLOCK>(row, p, &places);
    if constexpr (folds.words > 0) {
        folds.reduce_block(p.first_position);
        if (row.blocks > 1) {
            const uint64 count = p.rows * row.blocks;
            if (threadIdx.x == 0)
                folds.publish(p.partials, count, here.index * row.blocks + row.block);
            if (!is_last_to_arrive(p.tickets + here.index, row.blocks)) return;
            folds.merge(p.partials, count, row);
        }
        if (threadIdx.x == 0) folds.store(&places, row.n, FinalizeParams{p.finalize});
    }
}

} // namespace gpr
