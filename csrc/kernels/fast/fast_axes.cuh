// Rectangles of threads: how fast_columns and fast_strided map a block to several rows at once.
//
//   width = 4, BLOCK = 12          x = 0   1   2   3
//                           y = 0      t0  t1  t2  t3      each x has outputs of its own
//                           y = 1      t4  t5  t6  t7      each y reads every height-th position
//                           y = 2      t8  t9  t10 t11
//
// `width` threads are side by side, each with its own outputs. BLOCK / width threads are below each
// other and share those outputs: each reads every height-th position of the rows. Their
// accumulators are reduced along y in shared memory, or by warps (GPR_ROW_BY_LANES). Where
// several blocks share rows, the last of them to finish combines the partials of all in the order
// of the blocks. The launch alone determines which thread combines what.
#pragma once

#include "block.cuh"
#include "ticket.cuh"
#include "layout.cuh"
#include "thread_accumulator.cuh"
#include "finalize.cuh"

namespace gpr {

// Items in flight per thread: with 1024 threads per multiprocessor these are 64 KiB, as in
// fast_stream, and less where items have less than 8 bytes.
template <class In> constexpr unsigned items_under_way =
    gpr_items_under_way(item * sizeof(In), reduced_axes, masked);

// Items at the end of a row that are loaded together if one of them exists.
constexpr unsigned loaded_together = 4;

// A thread's place in its block's rectangle. Threads outside the rectangle have y == height and
// only pass barriers.
struct Rectangle {
    unsigned width, height;
    unsigned x, y;
    bool by_lanes; // the threads of each x are lanes of a warp, or whole warps

    // layout.row_major: neighbouring threads read neighbouring positions of a row; otherwise
    // neighbouring rows.
    template <unsigned BLOCK> static GPR_DEVICE Rectangle of_block(const Layout &layout)
    {
        return of_thread<BLOCK>(threadIdx.x, layout);
    }
    template <unsigned BLOCK>
    static GPR_DEVICE Rectangle of_thread(unsigned thread, const Layout &layout)
    {
        static_assert(BLOCK <= 1024, "gpr_inverse divides up to this number");
        const bool row_major = layout.row_major != 0;
        const unsigned quotient = thread * layout.inverse >> GPR_INVERSE_BITS,
                       rest = thread - quotient * (row_major ? layout.height : layout.width);
        Rectangle r = {layout.width, layout.height, rest, quotient,
                       layout.row_major == GPR_ROW_BY_LANES};
        if (row_major) r.x = quotient, r.y = rest;
        if (row_major && r.x >= r.width) r.x = 0, r.y = r.height;
        return r;
    }
    GPR_DEVICE bool works() const { return y < height; }
};

// Outputs per thread that are reduced at once: as many as 64 bytes of shared memory per thread
// hold, and 32 KiB per block, so that shared memory does not limit how many blocks are resident.
template <class Traits, unsigned BLOCK, unsigned OUTPUTS>
GPR_DEVICE constexpr unsigned outputs_together()
{
    constexpr unsigned long of_thread = GPR_THREAD_ACC_BYTES, of_block = GPR_BLOCK_ACC_BYTES;
    constexpr unsigned long most = BLOCK * of_thread <= of_block ? of_thread : of_block / BLOCK;
    unsigned together = OUTPUTS;
    while (together > 1 && together * sizeof(typename Traits::Acc) > most) together /= 2;
    return together;
}

// Partials that a step of a tree in shared memory combines: each step costs a barrier.
constexpr unsigned tree_fan = 4;

// Combines the partials of a thread with those of tree_fan - 1 others, `apart` from each other, as
// far as there are some, for each of COUNT outputs.
template <class Traits, unsigned BLOCK, unsigned COUNT, class Exists>
GPR_DEVICE void combine_column(typename Traits::Acc *partial, unsigned apart, const Exists &exists)
{
    using Acc = typename Traits::Acc;

    if constexpr (has_quick_reduction<Traits> && COUNT % 2 == 0) {
        // Two outputs at once, whose additions do not wait for each other.
#pragma unroll 1
        for (unsigned k = 0; k < COUNT; k += 2, partial += 2 * BLOCK) {
            Acc mine[2] = {partial[0], partial[BLOCK]};
#pragma unroll
            for (unsigned q = 1; q < tree_fan; q++) {
                if (!exists(q)) continue;
                const Acc other[2] = {partial[q * apart], partial[BLOCK + q * apart]};
                Traits::combine_both(mine, other);
            }
            partial[0] = mine[0];
            partial[BLOCK] = mine[1];
        }
        return;
    }
#pragma unroll
    for (unsigned k = 0; k < COUNT; k++) {
        Acc mine = partial[k * BLOCK];
#pragma unroll
        for (unsigned q = 1; q < tree_fan; q++) {
            if (exists(q)) mine = Traits::combine(mine, partial[k * BLOCK + q * apart]);
        }
        partial[k * BLOCK] = mine;
    }
}

// Reduces the values of threads along y, which are lanes of a warp or whole warps: each warp
// reduces what its lanes have, then the first warp of each row what is left.
template <class Traits>
GPR_DEVICE void reduce_by_lanes(typename Traits::Acc *partial, typename Traits::Acc &value,
                                const Rectangle &r)
{
    const unsigned lane = threadIdx.x % warp_lanes, warps = r.height / warp_lanes;

    if (warps == 0) {
#pragma unroll 1
        for (unsigned delta = r.height / 2; delta > 0; delta /= 2)
            value = Traits::combine(value, shuffle_down(value, delta, r.height));
        return;
    }
    value = warp_reduce<Traits>(value);
    if (warps == 1) return;
    if (lane == 0) partial[threadIdx.x / warp_lanes] = value;
    __syncthreads(); // partials are there
    if (r.y >= warp_lanes) return;
    value = lane < warps ? partial[r.x * warps + lane] : Traits::identity();
    value = warp_reduce<Traits>(value);
}

// Reduces the values of threads along y; the threads with y == 0 hold the results. All threads of
// the block must call. `partial` is shared memory of BLOCK accumulators per output that is reduced
// at once. Before another call with the same rectangle comes a barrier.
template <class Traits, unsigned BLOCK, unsigned OUTPUTS>
GPR_DEVICE void reduce_rectangle(typename Traits::Acc *partial,
                                 typename Traits::Acc (&value)[OUTPUTS], const Rectangle &r)
{
    constexpr unsigned together = outputs_together<Traits, BLOCK, OUTPUTS>();
    const unsigned slot = r.y * r.width + r.x;

    if (r.height == 1) return;
    if (OUTPUTS == 1 && r.by_lanes) {
        reduce_by_lanes<Traits>(partial, value[0], r);
        return;
    }
#pragma unroll
    for (unsigned first = 0; first < OUTPUTS; first += together) {
        if (r.works()) {
#pragma unroll
            for (unsigned k = 0; k < together; k++) partial[k * BLOCK + slot] = value[first + k];
        }
        __syncthreads(); // partials are there
        for (unsigned left = r.height; left > 1;) {
            const unsigned part = (left + tree_fan - 1) / tree_fan;
            if (r.y < part && r.y + part < left) {
                combine_column<Traits, BLOCK, together>(
                    partial + slot, part * r.width,
                    [=](unsigned q) { return r.y + q * part < left; });
            }
            __syncthreads(); // the next step reads what this one wrote
            left = part;
        }
        if (r.y == 0) {
#pragma unroll
            for (unsigned k = 0; k < together; k++) value[first + k] = partial[k * BLOCK + slot];
        }
    }
}

// A thread's accumulators for OUTPUTS outputs. OUTPUTS is 1 where the elements of an item belong to
// one row, and `item` where each belongs to its own row.
//
//   add(items, position, layout)    an item, and the position of its first element
//   renormalize()                         as of a ThreadAccumulator
//   finalize(k)                         the accumulator of output k
template <class Traits, unsigned OUTPUTS> struct EachOutput {
    using In = typename Traits::In;
    ThreadAccumulator<Traits> of[OUTPUTS];

    GPR_DEVICE void add(const Item<In> &items, uint64 position, const Layout &layout)
    {
#pragma unroll
        for (unsigned j = 0; j < item; j++) {
            // Elements of one row differ in position, those of several rows do not.
            const uint64 own =
                OUTPUTS == 1 ? static_cast<uint64>(j * layout.item_position) : uint64(0);
            if (items.kept(j)) of[OUTPUTS == 1 ? 0 : j].add(items.element(j), position + own);
        }
    }
    GPR_DEVICE void renormalize()
    {
#pragma unroll
        for (unsigned k = 0; k < OUTPUTS; k++) of[k].renormalize();
    }
    GPR_DEVICE typename Traits::Acc finalize(unsigned k) const { return of[k].finalize(); }
};

// Moments of columns without a mask or skipped NaNs: one count serves all columns, which saves
// registers.
template <class Traits> struct MomentsTogether {
    using In = typename Traits::In;
    DistancesOf<Traits> of[item];
    MomentCount taken;

    GPR_DEVICE void add(const Item<In> &items, uint64, const Layout &)
    {
        if (taken.count++ == 0) {
#pragma unroll
            for (unsigned j = 0; j < item; j++) of[j].centre = number_of<Traits>(items.element(j));
        }
#pragma unroll
        for (unsigned j = 0; j < item; j++) of[j].add(number_of<Traits>(items.element(j)));
    }
    GPR_DEVICE void renormalize()
    {
        if (!taken.is_due()) return;
#pragma unroll
        for (unsigned j = 0; j < item; j++) of[j].move_centre(taken.count);
        taken.move();
    }
    GPR_DEVICE typename Traits::Acc finalize(unsigned k) const
    {
        return taken.count == 0 ? Traits::identity() : of[k].finalize(taken.count);
    }
};

// Those of traits that have their own, or EachOutput.
template <class Traits, unsigned OUTPUTS, bool = has_own_accumulator<Traits>> struct OwnOrEach {
    using type = EachOutput<Traits, OUTPUTS>;
};
template <class Traits, unsigned OUTPUTS> struct OwnOrEach<Traits, OUTPUTS, true> {
    using type = typename Traits::template Accumulators<OUTPUTS>;
};
template <class Traits, unsigned OUTPUTS>
using OwnOrEachOutput = typename OwnOrEach<Traits, OUTPUTS>::type;

template <class Traits, unsigned OUTPUTS>
using Outputs = typename Select<accumulation_way<Traits>() == AccumulationWay::MOMENTS &&
                                    OUTPUTS == item && !masked && !Traits::skips_nan,
                                MomentsTogether<Traits>, OwnOrEachOutput<Traits, OUTPUTS>>::type;

// ---------------------------------------------------------------- folding -----------------------

// Returns how many of begin, begin + step, ... are below n.
GPR_DEVICE uint64 steps_of(uint64 n, uint64 begin, uint64 step)
{
    if (begin >= n) return 0;
    if (step == 1) return n - begin;
    return n - begin <= step ? 1 : (n - begin - 1) / step + 1; // spares short rows a division
}

// The items of a row that a thread of a rectangle reads: the first is row.block * r.height + r.y,
// and the next ones follow at row.blocks * r.height items.
struct ShareOfRow {
    uint64 begin, step, count;

    GPR_DEVICE ShareOfRow(const Layout &layout, const Row &row, const Rectangle &r)
        : begin(static_cast<uint64>(row.block) * r.height + r.y),
          step(static_cast<uint64>(row.blocks) * r.height),
          count(layout.steps + (begin < layout.longer ? 1 : 0))
    {
    }
};

// Where a thread's elements are, and their bytes of the mask. Along one axis they are at even
// distances: an address is the one before and a step.
template <class In> struct Addresses {
    const In *in;
    const unsigned char *mask;

    static GPR_DEVICE Addresses of(const In *row, const unsigned char *row_mask,
                                   const ElementOffsets &offsets)
    {
        return {row + offsets.in, masked ? row_mask + offsets.mask : row_mask};
    }
    // Those after one step of an iterator, of which these are the ones before.
    GPR_DEVICE Addresses next(const In *row, const unsigned char *row_mask,
                              const StridedIterator &iterator) const
    {
        if constexpr (reduced_axes > 1) return of(row, row_mask, iterator.offsets());
        const ElementOffsets step = iterator.step();
        return {in + step.in, masked ? mask + step.mask : mask};
    }
};

// Calls load(u, at) for items u of 0 to COUNT - 1, of which the first `there` exist, by groups of
// some, and not for groups that lack all. Items behind the end have the first one's addresses:
// else each needs a predicate until it is added, of which there are seven, and where these run out,
// a load waits until another one has been added. `next` are the iterator's addresses.
template <unsigned COUNT, class In, class Load>
GPR_DEVICE void for_addresses(const In *in, const unsigned char *mask, StridedIterator &iterator,
                              Addresses<In> &next, unsigned there, const Load &load)
{
    constexpr unsigned together = COUNT < loaded_together ? COUNT : loaded_together;
    const Addresses<In> first = next;
#pragma unroll
    for (unsigned k = 0; k < COUNT; k += together) {
        if (k >= there) continue;
#pragma unroll
        for (unsigned u = k; u < k + together; u++) {
            const bool exists = u < there;
            load(u, Addresses<In>{exists ? next.in : first.in, exists ? next.mask : first.mask});
            iterator.advance();
            next = next.next(in, mask, iterator);
        }
    }
}
template <unsigned COUNT, class In, class Load>
GPR_DEVICE void for_addresses(const In *in, const unsigned char *mask, StridedIterator &iterator,
                              unsigned there, const Load &load)
{
    Addresses<In> next = Addresses<In>::of(in, mask, iterator.offsets());
    for_addresses<COUNT>(in, mask, iterator, next, there, load);
}

// Loads the next `there` items of an iterator, at least one and at most COUNT, and notes their
// positions. All are under way at once.
template <unsigned COUNT, class In>
GPR_DEVICE void load_items(Item<In> (&items)[COUNT], uint64 (&positions)[COUNT], const In *in,
                           const unsigned char *mask, StridedIterator &iterator, unsigned there)
{
    for_addresses<COUNT>(in, mask, iterator, there, [&](unsigned u, const Addresses<In> &at) {
        positions[u] = iterator.offsets().position;
        items[u] = load_item(at.in, at.mask, ElementOffsets{0, 0, 0});
    });
}

// Folds rows that begin at `in`; each thread gets the accumulators of its own items.
template <class Traits, unsigned OUTPUTS>
GPR_DEVICE void fold_strided(const typename Traits::In *in, const unsigned char *mask,
                             const Layout &layout, const Row &row, const Rectangle &r,
                             typename Traits::Acc (&value)[OUTPUTS])
{
    using In = typename Traits::In;
    static_assert(OUTPUTS == 1 || OUTPUTS == item,
                  "an item is of one row or of as many as it has elements");
    // Positions take two registers each, and accumulators with a proof many.
    constexpr bool is_masked_pair = has_own_accumulator<Traits> && masked,
                   is_large = Traits::positional || proves_sums<Traits> || is_masked_pair;
    constexpr unsigned under_way =
        is_large ? gpr_fewer_under_way(items_under_way<In>, is_masked_pair) : items_under_way<In>;
    const ShareOfRow mine(layout, row, r);
    uint64 left = mine.count;
    StridedIterator iterator(layout, mine.begin, mine.step);
    Outputs<Traits, OUTPUTS> outputs;
    iterator.take_step(layout);

    if constexpr (has_own_accumulator<Traits> && OUTPUTS == 1) {
        // These take so long to add to that the next items are under way meanwhile; an item's place
        // is loaded again before it is added. Some items are added together (exact_fast.cuh).
        constexpr unsigned wanted = Traits::Accumulator::added_together,
                           together = item < wanted ? wanted / item : 1;
        static_assert(under_way % together == 0, "items under way are added in whole groups");
        Item<In> items[under_way];
        uint64 positions[under_way];
        if (left > 0)
            load_items(items, positions, in, mask, iterator,
                       left < under_way ? static_cast<unsigned>(left) : under_way);
        Addresses<In> next = Addresses<In>::of(in, mask, iterator.offsets());
        for (; left >= under_way; left -= under_way) {
            const unsigned further = // items that are not under way, if they are few
                left < 2 * under_way ? static_cast<unsigned>(left - under_way) : under_way;
#pragma unroll
            for (unsigned u = 0; u < under_way; u += together) {
                Item<In> loaded[together];
                const auto load = [&](unsigned k, const Addresses<In> &at) {
                    items[u + k] = load_item(at.in, at.mask, ElementOffsets{0, 0, 0});
                };
#pragma unroll
                for (unsigned k = 0; k < together; k++) loaded[k] = items[u + k];
                // Mostly all exist: then there is no predicate, and addresses are a step apart.
                if (further == under_way)
                    for_addresses<together>(in, mask, iterator, next, together, load);
                else if (u < further)
                    for_addresses<together>(in, mask, iterator, next, further - u, load);
                outputs.template add_items<together>([&](unsigned k) { return loaded[k]; },
                                                     [](unsigned) { return true; });
            }
            outputs.renormalize();
        }
#pragma unroll
        for (unsigned u = 0; u < under_way; u += together) {
            if (u < left)
                outputs.template add_items<together>([&](unsigned k) { return items[u + k]; },
                                                     [&](unsigned k) { return u + k < left; });
        }
    } else {
        Item<In> items[under_way];
        uint64 positions[under_way];
        // Adds `there` items; the compiler knows their number in all calls but the last.
        const auto add_some = [&](unsigned there) {
            if constexpr (has_own_accumulator<Traits>) {
                outputs.template add_items<under_way>([&](unsigned u) { return items[u]; },
                                                      [&](unsigned u) { return u < there; });
            } else {
                constexpr unsigned together =
                    under_way < loaded_together ? under_way : loaded_together;
#pragma unroll
                for (unsigned k = 0; k < under_way; k += together) {
                    if (k >= there) continue;
#pragma unroll
                    for (unsigned u = k; u < k + together; u++) {
                        if (u == 0 || u < there) outputs.add(items[u], positions[u], layout);
                    }
                }
            }
        };
        for (; left >= under_way; left -= under_way) {
            load_items(items, positions, in, mask, iterator, under_way);
            add_some(under_way);
            outputs.renormalize();
        }
        if (left > 0) {
            load_items(items, positions, in, mask, iterator, static_cast<unsigned>(left));
            add_some(static_cast<unsigned>(left));
        }
    }
#pragma unroll
    for (unsigned k = 0; k < OUTPUTS; k++) value[k] = outputs.finalize(k);
}

// Extremes of neighbouring columns without a mask or skipped NaNs, read in ascending positions. It
// keeps the best number per column and the step at which it was read, updated once per batch of
// items in flight.
template <class Traits> struct Extremes {
    using Fold = typename Traits::Fold;
    using Tile = typename ThreadAccumulator<Traits>::Tile;
    using Number = typename Tile::Acc;
    Number best[item];
    unsigned at[item]; // steps until there, if there was one

    GPR_DEVICE Extremes()
    {
#pragma unroll
        for (unsigned j = 0; j < item; j++) {
            best[j] = Tile::identity(); // which the first element is as good as
            at[j] = 0;
        }
    }
    // Adds COUNT steps that begin with step `first`. element(u, j) returns the element of column j
    // in step first + u.
    template <unsigned COUNT, class Element>
    GPR_DEVICE void add(unsigned first, const Element &element)
    {
#pragma unroll
        for (unsigned j = 0; j < item; j++) {
            Number number[COUNT], extreme = Tile::identity();
#pragma unroll
            for (unsigned u = 0; u < COUNT; u++) {
                number[u] = Tile::lift(element(u, j), 0);
                extreme = u == 0 ? number[u] : Tile::combine(extreme, number[u]);
            }
            unsigned further = COUNT - 1; // the first that is as good as the extreme
#pragma unroll
            for (unsigned u = COUNT - 1; u-- > 0;)
                further = Fold::prefers(extreme, number[u]) ? further : u;
            const bool is_better = Fold::prefers(extreme, best[j]);
            best[j] = is_better ? extreme : best[j];
            at[j] = is_better ? first + further : at[j];
        }
    }
    GPR_DEVICE typename Traits::Acc finalize(unsigned j, uint64 position) const
    {
        return {element_of<typename Traits::Acc::Number>(best[j]), position};
    }
};

// Whether Extremes serve these traits where positions ascend.
template <class Traits> constexpr bool finds_extremes =
    accumulation_way<Traits>() == AccumulationWay::INDEXED && !masked && !Traits::skips_nan;

// fold_strided by Extremes. Rows have fewer than 2^32 elements.
template <class Traits>
GPR_DEVICE void fold_strided_extremes(const typename Traits::In *in, const Layout &layout,
                                      const Row &row, const Rectangle &r,
                                      typename Traits::Acc (&value)[item])
{
    using In = typename Traits::In;
    constexpr unsigned under_way = items_under_way<In>;
    const ShareOfRow mine(layout, row, r);
    const unsigned steps = static_cast<unsigned>(mine.count);
    StridedIterator iterator(layout, mine.begin, mine.step);
    Extremes<Traits> extremes;

    if (steps == 0) return;
    iterator.take_step(layout);
    const auto add_some = [&](unsigned first, unsigned there) {
        Item<In> items[under_way];
        // All loads first; behind the end the first one again.
#pragma unroll
        for (unsigned u = 0; u < under_way; u++) {
            items[u] =
                u == 0 || u < there ? load_item(in, layout.mask, iterator.offsets()) : items[0];
            iterator.advance();
        }
        extremes.template add<under_way>(
            first, [&](unsigned u, unsigned j) { return items[u].element(j); });
    };
    unsigned taken = 0;
    for (; steps - taken >= under_way; taken += under_way) add_some(taken, under_way);
    if (taken < steps) add_some(taken, steps - taken);
#pragma unroll
    for (unsigned j = 0; j < item; j++) {
        const StridedIterator there(layout, mine.begin + extremes.at[j] * mine.step, 0);
        value[j] = extremes.finalize(j, there.offsets().position);
    }
}

// The ticket of a group of `count` rows. Traits whose blocks publish more than partials have their
// tickets elsewhere.
template <class Traits>
GPR_DEVICE unsigned *ticket_of(const Scratch<typename Traits::Acc> &scratch, const Row &row,
                               [[maybe_unused]] unsigned count)
{
    if constexpr (has_own_accumulator<Traits>)
        return Traits::ticket(scratch.tickets, row.index, count);
    else
        return scratch.tickets + row.index;
}

// A thread's share of its outputs, which are rows r.x * OUTPUTS and so on of its block.
template <class Traits, unsigned OUTPUTS> struct StridedShare {
    using In = typename Traits::In;
    const In *in; // the thread's first output
    const unsigned char *mask;
    const Layout *layout;
    Row row;
    Rectangle r;
    bool has_rows; // the thread's outputs exist

    // For traits that add their rows again (kernel_traits.cuh).
    GPR_DEVICE unsigned blocks() const { return row.blocks; }
    GPR_DEVICE uint64 group() const { return row.index; }
    GPR_DEVICE unsigned count() const { return r.width * OUTPUTS; }
    GPR_DEVICE unsigned number_of(unsigned k) const { return r.x * OUTPUTS + k; }
    template <class Again> GPR_DEVICE void visit(const Again &again) const
    {
        constexpr unsigned under_way = 4;
        const unsigned first = r.x * OUTPUTS;
        unsigned wanted = 0; // bit k: output k

        if (!has_rows || !r.works()) return;
#pragma unroll
        for (unsigned k = 0; k < OUTPUTS; k++) wanted |= again.wants(first + k) ? 1u << k : 0;
        if (wanted == 0) return;
        const ShareOfRow mine(*layout, row, r);
        StridedIterator iterator(*layout, mine.begin, mine.step);
        uint64 left = mine.count;
#pragma unroll 1
        for (; left > 0; left -= left < under_way ? left : under_way) {
            Item<In> items[under_way];
#pragma unroll
            for (unsigned u = 0; u < under_way; u++) { // all loads first
                if (u < left) items[u] = load_item(in, mask, iterator.offsets());
                iterator.advance();
            }
#pragma unroll
            for (unsigned u = 0; u < under_way; u++) {
                if (u >= left) continue;
#pragma unroll
                for (unsigned j = 0; j < item; j++) {
                    const unsigned k = OUTPUTS == 1 ? 0 : j;
                    if ((wanted >> k & 1) != 0 && items[u].kept(j))
                        again.add(first + k, items[u].element(j));
                }
            }
        }
    }
};

// Stores this block's values as its partials; the threads with y == 0 hold them.
template <class Traits, unsigned OUTPUTS>
GPR_DEVICE void store_partials(const Scratch<typename Traits::Acc> &scratch, const Row &row,
                               const Rectangle &r, const typename Traits::Acc (&value)[OUTPUTS])
{
    const uint64 width = static_cast<uint64>(r.width) * OUTPUTS;
    typename Traits::Acc *mine =
        scratch.partials() + row.virtual_block * width + r.x * OUTPUTS;

    if (r.y != 0) return;
#pragma unroll
    for (unsigned k = 0; k < OUTPUTS; k++) mine[k] = value[k];
}

// Loads the partials of all blocks that share the block's rows: each thread gets the fold of some
// of them.
template <class Traits, unsigned OUTPUTS>
GPR_DEVICE void load_partials(const Scratch<typename Traits::Acc> &scratch, const Row &row,
                              const Rectangle &r, typename Traits::Acc (&value)[OUTPUTS])
{
    using Acc = typename Traits::Acc;
    const uint64 width = static_cast<uint64>(r.width) * OUTPUTS;
    const Acc *first = scratch.partials() + row.index * row.blocks * width + r.x * OUTPUTS;

#pragma unroll
    for (unsigned k = 0; k < OUTPUTS; k++) value[k] = Traits::identity();
    if (!r.works()) return;
    if constexpr (has_own_accumulator<Traits>) { // of several registers: one output after the other
#pragma unroll
        for (unsigned k = 0; k < OUTPUTS; k++) {
#pragma unroll 4
            for (unsigned b = r.y; b < row.blocks; b += r.height)
                value[k] = Traits::combine(value[k], first[b * width + k]);
        }
        return;
    }
#pragma unroll 4
    for (unsigned b = r.y; b < row.blocks; b += r.height) {
#pragma unroll
        for (unsigned k = 0; k < OUTPUTS; k++)
            value[k] = Traits::combine(value[k], first[b * width + k]);
    }
}

// Neighbouring results that one instruction stores.
template <class Out> constexpr unsigned stored_together =
    16 % sizeof(Out) != 0 ? 1 : 16 / sizeof(Out) < item ? 16 / sizeof(Out) : item;
template <class Out> constexpr unsigned store_alignment =
    16 % sizeof(Out) != 0 ? alignof(Out) : stored_together<Out> * sizeof(Out);
template <class Out> struct alignas(store_alignment<Out>) Together {
    Out of[stored_together<Out>];
};

// Stores the results of `item` neighbouring columns. The first one is column `column` of group
// `row` and is stored to *to. Returns bit k for column k if its accumulator does not have it.
template <class Traits>
GPR_DEVICE unsigned store_item(typename Traits::Out *to,
                               const typename Traits::Acc (&value)[item], const Layout &layout,
                               const typename Traits::AllParams &params, uint64 row, uint64 column)
{
    using Out = typename Traits::Out;
    unsigned left = 0;

    if (layout.packed != 0) {
#pragma unroll
        for (unsigned k = 0; k < item; k += stored_together<Out>) {
            Together<Out> together;
            unsigned found = 0;
#pragma unroll
            for (unsigned j = 0; j < stored_together<Out>; j++) {
                const bool is_stored =
                    store_result<Traits>(&together.of[j], value[k + j], layout.elements,
                                         params.of_row(layout, row, column + k + j));
                found |= is_stored ? 0 : 1u << (k + j);
            }
            if (found == 0) {
                *reinterpret_cast<Together<Out> *>(to + k) = together;
                continue;
            }
            left |= found;
#pragma unroll
            for (unsigned j = 0; j < stored_together<Out>; j++) {
                if ((found >> (k + j) & 1) == 0) to[k + j] = together.of[j];
            }
        }
    } else {
#pragma unroll
        for (unsigned k = 0; k < item; k++) {
            const bool is_stored =
                store_result<Traits>(to + k * layout.column_out, value[k], layout.elements,
                                     params.of_row(layout, row, column + k));
            left |= is_stored ? 0 : 1u << k;
        }
    }
    return left;
}

// Folds a block's share of its rows and merges it with those of other blocks. Returns whether this
// block holds results; if so its threads with y == 0 hold them. All threads must call. `share_of`
// makes `share` again, which is done where blocks merge: it would take registers until then.
template <class Traits, unsigned BLOCK, unsigned OUTPUTS, class Share, class ShareOf>
GPR_DEVICE bool fold_rows_of_block(Share &share, [[maybe_unused]] const ShareOf &share_of,
                                   const Scratch<typename Traits::Acc> &scratch,
                                   typename Traits::Acc (&value)[OUTPUTS])
{
    __shared__ typename Traits::Acc partial[BLOCK * outputs_together<Traits, BLOCK, OUTPUTS>()];
    const Layout &layout = *share.layout;

#pragma unroll
    for (unsigned k = 0; k < OUTPUTS; k++) value[k] = Traits::identity();
    if (share.has_rows && share.r.works()) {
        bool is_done = false;
        if constexpr (OUTPUTS == item && finds_extremes<Traits>) {
            is_done = layout.ascends != 0;
            if (is_done)
                fold_strided_extremes<Traits>(share.in, layout, share.row, share.r, value);
        }
        if (!is_done)
            fold_strided<Traits, OUTPUTS>(share.in, share.mask, layout, share.row, share.r, value);
    }
    // Twice in the last block of several: a loop, as the code for it takes long to compile.
#pragma unroll 1
    for (bool is_merged = false;; is_merged = true) {
        reduce_rectangle<Traits, BLOCK>(partial, value, share.r);
        if (share.row.blocks == 1 || is_merged) return true;
        Row row = anew(share.row);
        store_partials<Traits>(scratch, row, share.r, value);
        unsigned *ticket = ticket_of<Traits>(scratch, row, share.r.width * OUTPUTS);
        if constexpr (has_own_accumulator<Traits>) {
            const bool has_values = share.has_rows && share.r.y == 0;
            const unsigned left =
                has_values ? Traits::to_publish(value) : 0;
            Traits::template publish_left<BLOCK>(left, scratch, share_of);
        }
        if (!is_last_to_arrive(ticket, row.blocks)) return false;
        if constexpr (proves_sums<Traits>) {
            share = share_of();
            row = share.row;
        }
        load_partials<Traits>(scratch, row, share.r, value);
    }
}

// What a kernel does whose blocks are rectangles. share_of(thread, block) is a thread's share of
// its outputs: a StridedShare with store(), which stores their results and returns bit k for output
// k if its accumulator does not have it.
template <class Traits, unsigned BLOCK, unsigned OUTPUTS, class ShareOf>
GPR_DEVICE void reduce_rows_of_block(const ShareOf &share_of, const Layout &layout,
                                     const Scratch<typename Traits::Acc> &scratch,
                                     const typename Traits::AllParams &params)
{
    auto share = share_of(threadIdx.x, blockIdx.x);
    const auto share_again = [&] { return share_of(anew(threadIdx.x), anew(blockIdx.x)); };
    typename Traits::Acc value[OUTPUTS];

    if (!fold_rows_of_block<Traits, BLOCK>(share, share_again, scratch, value)) return;
    const bool has_results = share.has_rows && share.r.y == 0;
    unsigned left = has_results ? share.store(value, params) : 0;
    if constexpr (has_own_accumulator<Traits>) {
        if (share.row.blocks > 1 && has_results)
            left |= Traits::no_pairs(value);
        Traits::template store_left<BLOCK>(left, layout.elements, scratch, share_again);
    }
}

} // namespace gpr
