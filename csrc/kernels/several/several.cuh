// several: several reductions of an array in one pass over memory.
//
// Removed: a pass over memory per operator. A thread loads a tile once, and each accumulator adds
// it from registers. Memory is the bound of every operator alone, so a few of them together take
// the time of one.
//
//     memory --tile--> registers --+--> ThreadAccumulator of min      --> block --> row --> results
//                                  +--> ThreadAccumulator of argmax   --> block --> row
//                                  +--> pair of the exact sum         --> block --> row
//
// The bits are those of calls of their own. Accumulators are the ones of fast_stream, and a thread
// adds the same elements in the same order as there, if the launch has the blocks of that call;
// which the plan sees to for operators whose bits depend on it (lib/rules/plan_several.c). Exact
// sums, positions, truths, counts and integers have the same bits in any order.
//
// Operators that differ only in how an accumulator becomes a result share one: sum and mean, var
// and std, ptp and minmax.
//
// An exact sum is a pair of doubles (exact_fast.cuh). Where a block's pair is not the sum of its
// share, the block reads that again, as in fast_stream. On GPUs that are slow with doubles, bins of
// integers add a tile instead: at most one such sum, as its superaccumulator and spilled integers
// are shared memory that depends on the elements' type alone.
//
// Still paid: registers for all accumulators, and a tree per accumulator at a block's end.
//
// Launch: BLOCK a multiple of 32; rows * blocks blocks of it. With all_blocks above 1, tickets and
// counters are zero before a row's first launch and after its last. A thread adds at most
// GPR_PAIR_SHARE float16 to a pair.
#pragma once

#include "exact_fast.cuh"
#include "exact_limb_partial.cuh"
#include "exact_results.cuh"
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
    static GPR_DEVICE typename Last::Out *place(const Places *to)
    {
        return static_cast<typename Last::Out *>(to->out[INDEX]) + to->distance;
    }
    template <class... Values> static GPR_DEVICE auto store(Places *to, Values &&...values)
    {
        return Last::store(place(to), values...);
    }
    template <class... Values> static GPR_DEVICE void store_limbs(Places *to, Values &&...values)
    {
        Last::store_limbs(place(to), values...);
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

template <class Traits> constexpr bool counts_nan = false;

// Traits of members that share an accumulator: Base makes it, and each member a result of it.
template <class Base, class... OfMembers> struct Shared : Base {
    using Out = Places;
    static constexpr bool is_mean = false, is_rounded = false; // members round

    template <class... Values> static GPR_DEVICE void store(Places *to, Values &&...values)
    {
        (OfMembers::store(to, values...), ...);
    }
};

// Members that are made of one exact sum, by pairs; Base: traits of `exact`. The elements of a sum
// are counted where NaN are left out, as one of the members may be their mean.
template <class Base, class... OfMembers> struct ResultsOfPairs {
    using Fold = typename Base::Fold;
    using In = typename Base::In;
    using Out = Places;
    static constexpr bool skips_nan = Base::skips_nan, counts = skips_nan;

    // Whether all members are stored.
    static GPR_DEVICE bool store(Places *to, const PairSum<counts> &acc, uint64 n)
    {
        return (OfMembers::store(to, acc, n) && ...);
    }
    template <class AnyLimbs>
    static GPR_DEVICE void store_limbs(Places *to, const AnyLimbs &limbs, uint64 n, uint64 flags)
    {
        (OfMembers::store_limbs(to, limbs, n, flags), ...);
    }
};
template <class Base, class... OfMembers>
using SharedPairs = PairTraits<ResultsOfPairs<Base, OfMembers...>>;

template <class Element, class... OfMembers>
constexpr bool counts_nan<Shared<CountNan<Element>, OfMembers...>> = true;

// ---------------------------------------------------------------- accumulators -------------------

// A block of the launch, and where its row's results go.
template <unsigned BLOCK> struct BlockOfPass {
    const gpr_several_params &p;
    Places *places;

    // A thread's share of the row, for sums that are added again (kernel_traits.cuh): of the
    // elements of this launch, in a row that other launches may share.
    template <class Traits> struct Share : StreamShare<Traits, BLOCK> {
        unsigned all_blocks;
        GPR_DEVICE unsigned blocks() const { return all_blocks; }
        template <class Again> GPR_DEVICE void visit(const Again &again) const;
    };
    GPR_DEVICE Row row() const
    {
        return row_of(Rows{p.n, p.rows, 0, p.blocks}, anew(blockIdx.x));
    }
    template <class Traits> GPR_DEVICE Share<Traits> share() const
    {
        const Row here = row();
        const typename Traits::In *in = static_cast<const typename Traits::In *>(p.in) +
                                        static_cast<long long>(here.index) * p.row_step;
        return {{in, here, places}, p.all_blocks};
    }
    template <class Acc> GPR_DEVICE Scratch<Acc> scratch(uint64 *partials) const
    {
        return {{partials, p.counters}};
    }
};

// The number of NaN, which Accumulators adds up by tiles.
template <class Element, class... Members>
struct ThreadAccumulator<Shared<CountNan<Element>, Members...>, AccumulationWay::ACCUMULATOR> {
    using Traits = CountNan<Element>;
    uint64 value = 0;

    GPR_DEVICE void add(Element x, uint64) { value += Traits::lift(x, 0); }
    GPR_DEVICE uint64 finalize() const { return value; }
};

// Accumulators of a thread, one per traits, in registers; and of its block and row.
template <unsigned BLOCK, class... Traits> struct Accumulators {
    static constexpr unsigned words = 0; // of a block's partials
    static constexpr bool takes_kept = false;
    template <class In> GPR_DEVICE void add(In, uint64) {}
    template <bool FULL, unsigned VECTORS, class In>
    GPR_DEVICE void add_tile(const Vector (&)[VECTORS], const In *, uint64, uint64)
    {
    }
    template <unsigned VECTORS, class In>
    GPR_DEVICE void begin_tile(const Vector (&)[VECTORS], const In *, uint64, uint64)
    {
    }
    GPR_DEVICE void add_to_sums(const Vector &, const Vector &) {}
    template <bool HAS_NAN> GPR_DEVICE void add_to_moments(const Vector &, const Vector &) {}
    GPR_DEVICE void end_tile(unsigned, unsigned) {}
    using Block = BlockOfPass<BLOCK>;
    GPR_DEVICE void reduce_block(uint64) {}
    GPR_DEVICE void publish(uint64 *, uint64, uint64, const Block &) const {}
    GPR_DEVICE void merge(const uint64 *, uint64, const Row &) {}
    GPR_DEVICE void store(uint64 *, uint64, const Block &, uint64) const {}
};

template <unsigned BLOCK, class First, class... Rest> struct Accumulators<BLOCK, First, Rest...> {
    using Acc = typename First::Acc;
    using Others = Accumulators<BLOCK, Rest...>;
    using Block = BlockOfPass<BLOCK>;
    static constexpr unsigned own_words = gpr_partial_words(sizeof(Acc));
    static constexpr unsigned words = own_words + Others::words;
    static constexpr AccumulationWay way = accumulation_way<First>();
    static constexpr bool is_found = way == AccumulationWay::INDEXED;
    static constexpr bool has_moments = way == AccumulationWay::MOMENTS,
                          is_pair = way == AccumulationWay::OWN;
    // Whether an accumulator gets a tile without its NaN: this one or another.
    static constexpr bool takes_kept = counts_nan<First> ||
                                       (First::skips_nan && (has_moments || is_pair)) ||
                                       Others::takes_kept;

    ThreadAccumulator<First> accumulator;
    Others others;
    Acc value; // of the block, then of the row; thread 0 holds it

    template <class In> GPR_DEVICE void add(In x, uint64 i)
    {
        accumulator.add(x, i);
        others.add(x, i);
    }
    // Adds a tile. FULL: all lanes of the warp call. Pairs and moments get one vector after the
    // other: its elements are converted once, as there are registers for so many doubles.
    template <bool FULL, unsigned VECTORS, class In>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *in, uint64 first, uint64 step)
    {
        unsigned left_out = 0;

        begin_tile(v, in, first, step);
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
            Vector kept[1] = {v[k]};
            bool has_nan = false;
            if constexpr (takes_kept) {
                has_nan = may_have_nan<In>(kept);
                if (FULL) has_nan = __any_sync(all_lanes, has_nan); // so that no lanes wait
                if (has_nan) left_out += leave_out_nans<In>(kept, Vector{});
            }
            add_to_sums(v[k], kept[0]);
            if (has_nan) add_to_moments<true>(v[k], kept[0]);
            else add_to_moments<false>(v[k], kept[0]);
        }
        end_tile(VECTORS * vector_elements<In>, left_out);
    }
    template <unsigned VECTORS, class In>
    GPR_DEVICE void begin_tile(const Vector (&v)[VECTORS], const In *in, uint64 first, uint64 step)
    {
        if constexpr (has_moments) accumulator.begin_tile(v);
        else if constexpr (!is_pair && !counts_nan<First>)
            accumulator.add_tile(v, in, first, step);
        others.begin_tile(v, in, first, step);
    }
    // `kept` is v with 0 in place of NaN.
    GPR_DEVICE void add_to_sums(const Vector &v, const Vector &kept)
    {
        if constexpr (is_pair) accumulator.add_vector(First::skips_nan ? kept : v);
        others.add_to_sums(v, kept);
    }
    template <bool HAS_NAN> GPR_DEVICE void add_to_moments(const Vector &v, const Vector &kept)
    {
        if constexpr (has_moments) {
            constexpr bool leaves_out = HAS_NAN && First::skips_nan;
            accumulator.template add_vector<leaves_out>(v, leaves_out ? kept : v);
        }
        others.template add_to_moments<HAS_NAN>(v, kept);
    }
    GPR_DEVICE void end_tile(unsigned all, unsigned left_out)
    {
        if constexpr (counts_nan<First>) accumulator.value += left_out;
        else if constexpr (has_moments || is_pair)
            accumulator.end_tile(First::skips_nan ? all - left_out : all);
        others.end_tile(all, left_out);
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
    // Stores the block's values as number `at` of those that have room for `count`. All threads
    // must call.
    GPR_DEVICE void publish(uint64 *partials, uint64 count, uint64 at, const Block &block) const
    {
        if constexpr (has_own_accumulator<First>) {
            const Acc values[1] = {value};
            First::template publish_left<BLOCK>(threadIdx.x == 0 ? First::to_publish(values) : 0,
                                                block.template scratch<Acc>(partials),
                                                [&] { return block.template share<First>(); });
        }
        if (threadIdx.x == 0) *reinterpret_cast<Acc *>(partials + at * own_words) = value;
        others.publish(partials + count * own_words, count, at, block);
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
    // Stores the results of a row of n elements. All threads must call.
    GPR_DEVICE void store(uint64 *partials, uint64 count, const Block &block, uint64 n) const
    {
        const FinalizeParams params{block.p.finalize};
        const bool is_first = threadIdx.x == 0;
        [[maybe_unused]] unsigned left =
            is_first && !store_result<First>(block.places, value, n, params) ? 1 : 0;
        if constexpr (has_own_accumulator<First>) {
            const Acc values[1] = {value};
            if (is_first && block.p.all_blocks > 1) left |= First::no_pairs(values);
            First::template store_left<BLOCK>(left, n, block.template scratch<Acc>(partials),
                                              [&] { return block.template share<First>(); });
        }
        others.store(partials + count * own_words, count, block, n);
    }
};

// The exact sum of a warp's elements, by bins. All lanes of the warp must call. Traits: those of
// the sum, or of one by pairs.
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
    // Adds the block's sum to another one, which other threads may add to. All threads of the block
    // must call.
    template <unsigned BLOCK> GPR_DEVICE void add_to(Superaccumulator<In> *to)
    {
        const LimbPartial<In> partial = partial_of(adder);
        const bool has_outlier = __syncthreads_or((partial.flags & saw_outlier) != 0) != 0;
        const Superaccumulator<In> &rest = block_superaccumulator<In>();
        add_partial(*to, partial);
        for (unsigned i = threadIdx.x; i < limbs_of<In>; i += BLOCK) {
            const bool is_last = i + 1 == limbs_of<In>; // nothing is above it, and it has room
            add_to_limb(to->limb[0] + i, is_last ? rest.limb[0][i] : rest.limb[0][i] & limb_mask);
            if (!is_last) add_to_limb(to->limb[0] + i + 1, rest.limb[0][i] >> limb_bits);
        }
        if (threadIdx.x != 0) return;
        if (rest.flags[0] != 0) atomicOr(&to->flags[0], rest.flags[0]);
        if (has_outlier) add_to_limbs(to->limb[0], outlier_value<In>(0));
        to->left_out = rest.left_out;
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

// Where no member is an exact sum by bins.
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
            folds.template add_tile<true>(v, in, first, BLOCK * each);
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
                const Vector one[1] = {v[k]}, *place = at + k * group.size;
                if (place < end)
                    folds.template add_tile<false>(one, in, position_of(place, in), 0);
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

// The elements are added by bins here: the other kernels add them to superaccumulators one by one,
// which takes longer, but not to compile.
template <unsigned BLOCK>
template <class Traits>
template <class Again>
GPR_DEVICE void BlockOfPass<BLOCK>::Share<Traits>::visit(const Again &again) const
{
    if constexpr (!Again::adds) {
        StreamShare<Traits, BLOCK>::visit(again);
    } else if (again.wants(0)) {
        Room<typename Traits::In> &room = again.rooms[0];
        Accumulators<BLOCK> no_folds;
        ExactAccumulator<Traits> exact;
        exact.template prepare<BLOCK>();
        add_share<BLOCK, false>(no_folds, exact, this->in, this->row.n,
                                grid_of<BLOCK>(this->row));
        exact.template add_to<BLOCK>(&room.sum);
        // of a row that the block has alone; otherwise the blocks' pairs have counts
        if (threadIdx.x == 0) room.kept = this->row.n - room.sum.left_out;
    }
}

// Elements of type In; Exact: traits of an exact sum by bins, or void; the others: of folds.
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
    Places places{p.out, 0};
    const BlockOfPass<BLOCK> block{p, &places};
    const Row here = block.row();
    Row row = here;
    const In *in = static_cast<const In *>(p.in) + static_cast<long long>(here.index) * p.row_step;
    typename Traits::template OfThread<BLOCK> folds;
    typename Traits::ExactSum exact;

    places.distance = static_cast<long long>(here.index) * p.out_step;
    row.n = p.total;
    row.block = p.first_block + here.block;
    row.blocks = p.all_blocks;
    exact.template prepare<BLOCK>();
    add_share<BLOCK, 2 * RESIDENT <= resident_threads>(folds, exact, in, p.n, grid_of<BLOCK>(here));
    exact.template finalize<BLOCK>(row, p, &places);
    if constexpr (folds.words > 0) {
        const uint64 count = gpr_partials_of(p.rows * row.blocks);
        folds.reduce_block(p.first_position);
        if (row.blocks > 1) {
            folds.publish(p.partials, count, here.index * row.blocks + row.block, block);
            if (!is_last_to_arrive(p.tickets + here.index, row.blocks)) return;
            folds.merge(p.partials, count, row);
        }
        folds.store(p.partials, count, block, row.n);
    }
}

} // namespace gpr
