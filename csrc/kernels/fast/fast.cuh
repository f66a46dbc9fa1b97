// fast_stream, fast_rows: the kernels of `fast` for rows that are contiguous in memory.
//
// The layout (layout.cuh) gives where rows begin and where results go. Rows that are not contiguous
// are read by fast_columns, fast_few, fast_narrow and fast_strided, which this file includes, very
// short ones by fast_counted, and those that a block reads in one round by fast_short.
//
// Both kernels combine what the course's steps showed: 16-byte loads with several in flight per
// thread, folds of whole tiles by the fastest instructions for the types (tile.cuh), a reduction by
// warps, and one launch that the last block finishes. The launch alone determines which thread
// combines what, so the same input on the same GPU gives the same bits.
//
// fast_stream: rows of any length, one or more blocks per row.
//
//             row 0                       row 1
//   |  block 0  |  block 1  |   |  block 2  |  block 3  |     rows.blocks = 2
//   each block strides over its row by tiles of BLOCK * stream_vectors vectors
//
//   Launch: any number of blocks per row; BLOCK a multiple of 32; one thread writes out[row]. With
//   more than one block per row, scratch has one partial per virtual block and one ticket per row,
//   zero before and after; with one block per row scratch is not used. A multiprocessor can always
//   hold blocks of resident_threads threads at once, so a grid of that many threads per
//   multiprocessor, or a small multiple of it, fills the GPU in whole waves.
//
// fast_rows: many short rows, `lanes` lanes per row (1, 2, 4, ... 32; a constant of the program).
//
//   lanes = 8, per_thread = 2:   lanes   0..7    8..15   16..23  24..31
//                                k = 0   row 0   row 1   row 2   row 3     of warp 0
//                                k = 1   row G   row G+1 row G+2 row G+3   G = BLOCK / lanes
//
//   Launch: rows.blocks is 0, and virtual block v serves rows v * R to v * R + R - 1, where R =
//   BLOCK * per_thread / lanes. Few lanes with several loads each are faster than many lanes with
//   one. Where row_elements is not 0, rows follow each other in memory and have no more elements
//   than that: the block copies its rows through shared memory by 16-byte loads; per_thread makes
//   that copy long enough. Where item is a whole vector, all rows begin and end at multiples of 16
//   bytes; with more than one row per lane they have no more vectors than lanes then.
//
// Still paid: one atomic on a counter per block where several blocks share a row.
#pragma once

#include "fast_columns.cuh"
#include "fast_counted.cuh"
#include "fast_few.cuh"
#include "fast_narrow.cuh"
#include "fast_short.cuh"
#include "fast_strided.cuh"
#include "fast_block.cuh"
#include "block.cuh"
#include "layout.cuh"
#include "finalize.cuh"
#include "runs.cuh"
#include "ticket.cuh"

namespace gpr {

// ---------------------------------------------------------------- long rows ---------------------

// The same for groups of LANES neighbouring lanes, whose rows have fewer than 2^32 elements.
// position() returns that of the lane's own extreme. All lanes of a warp must call, and the first
// one of a group has the result.
template <class Traits, unsigned LANES, class Position>
GPR_DEVICE typename Traits::Acc find_in_lanes(const ThreadAccumulator<Traits> &accumulator,
                                              const Position &position)
{
    using Tile = typename ThreadAccumulator<Traits>::Tile;
    constexpr unsigned nowhere = ~0u;
    const typename Tile::Acc best = warp_all_reduce<Tile, LANES>(accumulator.best);
    unsigned place = nowhere;

    if (accumulator.first != GPR_NOWHERE && !Traits::Fold::prefers(best, accumulator.best))
        place = static_cast<unsigned>(position());
#pragma unroll
    for (unsigned delta = LANES / 2; delta > 0; delta /= 2) {
        const unsigned other = shuffle_down(place, delta, LANES);
        place = other < place ? other : place;
    }
    return {element_of<typename Traits::Acc::Number>(best),
            place == nowhere ? GPR_NOWHERE : place};
}

// add_whole_vectors for accumulators that take so long to add to that a thread's next vectors are
// under way meanwhile: each vector's place is loaded again before the vector is added, with one of
// the next round or, in the last one, of the rest.
template <class Traits, unsigned VECTORS, unsigned WIDTH>
GPR_DEVICE void add_vectors_ahead(ThreadAccumulator<Traits> &accumulator,
                                  const typename Traits::In *in, uint64 n, ThreadGroup group)
{
    using In = typename Traits::In;
    const unsigned to_aligned = elements_to_aligned(in);
    const uint64 head = to_aligned < n ? to_aligned : n;
    const Vector *vectors = reinterpret_cast<const Vector *>(in + head);
    uint64 left = (n - head) / vector_elements<In>; // vectors whose round has not been added
    const uint64 round = VECTORS * group.size;
    const Vector *end = vectors + left;
    const Vector *mine = vectors + group.rank / WIDTH * (WIDTH * VECTORS) + group.rank % WIDTH;
    uint64 apart = WIDTH;
    unsigned there = VECTORS; // of a thread's next vectors
    Vector v[VECTORS];

    const uint64 tail = head + left * vector_elements<In>;
    const auto find_rest = [&] {
        mine = end - left + group.rank;
        apart = group.size;
        there = 0;
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) there += mine + k * apart < end ? 1 : 0;
    };
    if (left < round) find_rest();
#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
        if (k < there) v[k] = load_vector(mine + k * apart);
    }
    add_ends<Traits>(accumulator, in, uint64(0), head, tail, n, group.rank, group.size);
#pragma unroll 1
    while (left >= round) {
        left -= round;
        mine += round;
        if (left < round) find_rest();
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
            const Vector tile[1] = {v[k]};
            if (k < there) v[k] = load_vector(mine + k * apart);
            accumulator.add_tile(tile, in, 0, 0);
        }
    }
#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
        const Vector tile[1] = {v[k]};
        if (k < there) accumulator.add_tile(tile, in, 0, 0);
    }
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
fast_stream(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
            Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
            typename Traits::AllParams params)
{
    using Acc = typename Traits::Acc;
    using Share = StreamShare<Traits, BLOCK>;
    Share share = Share::of(in, out, layout, row_of(rows, blockIdx.x));
    [[maybe_unused]] const auto share_of = [&] {
        return Share::of(in, out, layout, row_of(rows, anew(blockIdx.x)));
    };
    ThreadAccumulator<Traits> accumulator;

    if constexpr (has_own_accumulator<Traits>)
        add_vectors_ahead<Traits, stream_vectors, BLOCK>(accumulator, share.in, share.row.n,
                                                         grid_of<BLOCK>(share.row));
    else
        add_run<Traits, stream_vectors, BLOCK>(accumulator, share.in, share.row.n,
                                               grid_of<BLOCK>(share.row));
    constexpr bool is_found = accumulation_way<Traits>() == AccumulationWay::INDEXED;
    Acc value;
    if constexpr (is_found) value = find_in_block<Traits, BLOCK>(accumulator);
    else value = accumulator.finalize();
    unsigned left = 0; // bit 0: the row
    // Twice in the last block of several: a loop, as the code for it takes long to compile.
#pragma unroll 1
    for (bool is_merged = false;; is_merged = true) {
        if (!is_found || is_merged) value = block_redux<Traits, BLOCK>(value);
        if (share.row.blocks == 1 || is_merged) break;
        Row row = anew(share.row);
        if constexpr (has_own_accumulator<Traits>) {
            const Acc values[1] = {value};
            left = threadIdx.x == 0 ? Traits::to_publish(values) : 0;
            Traits::template publish_left<BLOCK>(left, scratch, share_of);
        }
        if (!is_last_block(scratch.partials() + row.virtual_block, value,
                           ticket_of<Traits>(scratch, row, 1), row.blocks))
            return;
        if constexpr (proves_sums<Traits>) {
            share = share_of();
            row = share.row;
        }
        const Acc *partials = scratch.partials() + row.index * row.blocks;
        value = Traits::identity();
        for (unsigned i = threadIdx.x; i < row.blocks; i += BLOCK)
            value = Traits::combine(value, partials[i]);
    }
    left = threadIdx.x == 0 && !store_result<Traits>(share.result, value, layout.elements,
                                                     params.of_row(layout, share.row.index, 0));
    if constexpr (has_own_accumulator<Traits>) {
        const Acc values[1] = {value};
        if (share.row.blocks > 1 && threadIdx.x == 0) left |= Traits::no_pairs(values);
        Traits::template store_left<BLOCK>(left, layout.elements, scratch, share_of);
    }
}

// ---------------------------------------------------------------- short rows --------------------

// Vectors in flight per lane where lanes read their rows directly.
constexpr unsigned row_vectors = 4;
// Copies in[0 .. n), at most MOST elements, to shared memory and returns its address there: as far
// from a multiple of 16 bytes as in global memory, so that whole vectors are copied. All threads
// must call; a block barrier is passed. `staged` has room for MOST elements and 16 bytes.
template <class In, unsigned BLOCK, unsigned MOST>
GPR_DEVICE const In *stage(const In *in, unsigned n, Vector *staged)
{
    constexpr unsigned rounds = (MOST / vector_elements<In> + BLOCK) / BLOCK,
                       at_once = rounds < row_vectors ? rounds : row_vectors;
    const unsigned past =
        static_cast<unsigned>(reinterpret_cast<uint64>(in) % sizeof(Vector)) / sizeof(In);
    const Vector *from =
        reinterpret_cast<const Vector *>(in - past); // its first vector may begin before `in`
    In *elements = reinterpret_cast<In *>(staged);
    const unsigned begin = past == 0 ? 0 : 1; // first whole vector
    const unsigned end = (past + n) / vector_elements<In>;
    const unsigned head =
        begin * vector_elements<In> < past + n ? begin * vector_elements<In> : past + n;
    const unsigned tail = end * vector_elements<In> > head ? end * vector_elements<In> : head;
    // Elements before the first whole vector are those of the first threads, and those behind the
    // last one are of the last threads.
    static_assert(2 * vector_elements<In> <= BLOCK, "a thread has one of either");
    const bool is_first = past + threadIdx.x < head;
    const unsigned edge = is_first ? past + threadIdx.x : tail + (BLOCK - 1 - threadIdx.x);
    const bool has_edge = is_first || edge < past + n;
    In element = {};

    if (has_edge) element = in[edge - past];
#pragma unroll 1
    for (unsigned next = begin + threadIdx.x; next < end; next += at_once * BLOCK) {
        Vector v[at_once];
#pragma unroll
        for (unsigned k = 0; k < at_once; k++) {
            if (next + k * BLOCK < end) v[k] = load_vector(from + next + k * BLOCK);
        }
#pragma unroll
        for (unsigned k = 0; k < at_once; k++) {
            if (next + k * BLOCK < end) staged[next + k * BLOCK] = v[k];
        }
    }
    if (has_edge) elements[edge] = element;
    __syncthreads(); // all elements are there
    return elements + past;
}

// Steps of lanes through a row of n elements.
GPR_DEVICE unsigned steps_of_lanes(unsigned n)
{
    return (n + lanes - 1) / lanes;
}
// The step that a row in shared memory begins with. Rows of an even number of words begin at few of
// the banks, so lanes of different rows begin at different elements.
template <class In> GPR_DEVICE unsigned first_step(unsigned n, unsigned group)
{
    constexpr unsigned banks = 32;
    // Of `banks` rows, so many begin at one bank.
    const unsigned words = n * sizeof(In) / 4;
    const unsigned alike = words == 0 ? 1 : words & (0u - words);
    constexpr unsigned in_word = sizeof(In) < 4 ? 4 / sizeof(In) : 1;
    if (alike == 1) return 0;
    return group * (alike < banks ? alike : banks) / banks * in_word % steps_of_lanes(n);
}
// Folds this lane's share of a row of n elements in shared memory, from step i on. Some are loaded
// before they are folded, as one after the other takes longer to load than to fold; not elements of
// eight bytes, for which there are no registers left.
template <class Traits>
GPR_DEVICE typename Traits::Acc fold_staged(const typename Traits::In *row, unsigned n,
                                            unsigned lane, unsigned i)
{
    constexpr unsigned some = sizeof(typename Traits::In) < 8 ? 4 : 1;
    const unsigned steps = steps_of_lanes(n);
    ThreadAccumulator<Traits> accumulator;

    const auto fold_one = [&] {
        const unsigned at = i * lanes + lane;
        if (at < n) accumulator.add(row[at], at);
        i = i + 1 < steps ? i + 1 : 0;
    };
    if constexpr (some == 1) {
        for (unsigned k = 0; k < steps; k++) fold_one();
        return accumulator.finalize();
    }
    unsigned left = steps;
    for (; left >= some; left -= some) {
        typename Traits::In x[some];
        unsigned at[some];
#pragma unroll
        for (unsigned u = 0; u < some; u++) {
            at[u] = i * lanes + lane;
            if (lanes == 1 || at[u] < n) x[u] = row[at[u]];
            i = i + 1 < steps ? i + 1 : 0;
        }
#pragma unroll
        for (unsigned u = 0; u < some; u++) {
            if (lanes == 1 || at[u] < n) accumulator.add(x[u], at[u]);
        }
    }
#pragma unroll 1
    for (; left > 0; left--) fold_one();
    return accumulator.finalize();
}

// A lane's share of a block's rows, for traits that add it again (kernel_traits.cuh).
template <class Traits, unsigned BLOCK> struct RowsShare {
    using In = typename Traits::In;
    using Out = typename Traits::Out;
    static constexpr unsigned groups = BLOCK / lanes;
    const In *in;
    Out *out;
    const Layout *layout;
    uint64 first, n; // the block's first row, and elements of a row
    unsigned there;  // rows

    static GPR_DEVICE RowsShare of(const In *in, Out *out, const Rows &rows, const Layout &layout,
                                   unsigned block)
    {
        constexpr unsigned most = groups * per_thread;
        const uint64 first = (rows.first + block) * most, left = rows.count - first;
        const unsigned there = left < most ? static_cast<unsigned>(left) : most;
        return {in, out, &layout, first, rows.n, there};
    }
    static GPR_DEVICE unsigned blocks() { return 1; }
    static GPR_DEVICE uint64 group() { return 0; }
    static GPR_DEVICE unsigned count() { return groups * per_thread; }
    static GPR_DEVICE unsigned number_of(unsigned k) { return k * groups + threadIdx.x / lanes; }
    GPR_DEVICE Out *result_of(unsigned r) const
    {
        return out + layout->row_offsets_after(layout->row_offsets(first), first, r).out;
    }
    template <class Again> GPR_DEVICE void visit(const Again &again) const
    {
        const RowOffsets base = layout->row_offsets(first);
#pragma unroll 1
        for (unsigned r = threadIdx.x / lanes; r < there; r += groups) {
            if (!again.wants(r)) continue;
            const auto *row_in = in + layout->row_offsets_after(base, first, r).in;
#pragma unroll 4
            for (uint64 i = threadIdx.x % lanes; i < n; i += lanes) again.add(r, row_in[i]);
        }
    }
};

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK)
fast_rows(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
          [[maybe_unused]] Scratch<typename Traits::Acc> scratch,
          const __grid_constant__ Layout layout, typename Traits::AllParams params)
{
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    using Share = RowsShare<Traits, BLOCK>;
    constexpr unsigned groups = Share::groups;
    constexpr bool is_staged = row_elements != 0 && kept_axes == 1;
    constexpr bool is_whole = item * sizeof(In) == sizeof(Vector) && item > 1;
    constexpr bool is_single = is_whole && per_thread > 1;
    // Only the lane with a row's extreme looks for its place.
    constexpr bool is_found =
        accumulation_way<Traits>() == AccumulationWay::INDEXED && !is_staged;
    const Share share = Share::of(in, out, rows, layout, blockIdx.x);
    const uint64 first = share.first;
    const unsigned count = share.there;
    const unsigned group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const RowOffsets base = layout.row_offsets(first);
    const In *staged_in = nullptr;
    unsigned begin[per_thread]; // steps, of staged rows
    RowOffsets start[per_thread];
    Acc value[per_thread];
    Vector loaded[is_single ? per_thread : 1];

    if constexpr (is_single) {
#pragma unroll
        for (unsigned k = 0; k < per_thread; k++) { // all loads first
            const unsigned r = k * groups + group;
            start[k] = layout.row_offsets_after(base, first, r < count ? r : 0);
            if (lane * vector_elements<In> < rows.n)
                loaded[k] = load_vector(reinterpret_cast<const Vector *>(in + start[k].in) + lane);
        }
    }
    if constexpr (is_staged) {
        constexpr unsigned most = groups * per_thread * row_elements;
        __shared__ Vector staged[most * sizeof(In) / sizeof(Vector) + 2]; // one may begin before
        const unsigned n = static_cast<unsigned>(rows.n);
#pragma unroll
        for (unsigned k = 0; k < per_thread; k++)
            begin[k] = first_step<In>(n, k * groups + group); // while loads are under way
        staged_in = stage<In, BLOCK, most>(in + base.in, count * n, staged);
    }
#pragma unroll
    for (unsigned k = 0; k < per_thread; k++) {
        const unsigned r = k * groups + group;
        value[k] = Traits::identity();
        start[k] = layout.row_offsets_after(base, first, r < count ? r : 0);
        if constexpr (is_found) {
            const In *row_in = in + start[k].in;
            ThreadAccumulator<Traits> accumulator;
            if constexpr (is_single) {
                const Vector tile[1] = {loaded[k]};
                if (r < count && lane * vector_elements<In> < rows.n)
                    accumulator.add_tile(tile, row_in, lane * vector_elements<In>, 0);
                value[k] = find_in_lanes<Traits, lanes>(
                    accumulator, [&] { return accumulator.position_in(tile); });
            } else {
                if (r < count)
                    add_run<Traits, row_vectors, lanes, is_whole>(accumulator, row_in, rows.n,
                                                                  ThreadGroup{lane, lanes});
                value[k] = find_in_lanes<Traits, lanes>(accumulator,
                                                        [&] { return accumulator.position(); });
            }
            continue;
        }
        if (r >= count) continue;
        if constexpr (is_staged) {
            const unsigned n = static_cast<unsigned>(rows.n);
            value[k] = fold_staged<Traits>(staged_in + r * n, n, lane, begin[k]);
        } else if constexpr (is_single) {
            ThreadAccumulator<Traits> accumulator;
            const Vector tile[1] = {loaded[k]};
            if (lane * vector_elements<In> < rows.n)
                accumulator.add_tile(tile, in + start[k].in, lane * vector_elements<In>, 0);
            value[k] = accumulator.finalize();
        } else {
            value[k] = fold_vectors<Traits, row_vectors, lanes, is_whole>(
                in + start[k].in, rows.n, ThreadGroup{lane, lanes});
        }
    }
    // Every lane takes part, with or without a row.
    if constexpr (!is_found && lanes == warp_lanes && per_thread == 1)
        value[0] = warp_redux<Traits>(value[0]);
    else if constexpr (!is_found) warp_reduce_all<Traits, lanes>(value);
    unsigned unstored = 0; // bit k: row k of the lanes
#pragma unroll
    for (unsigned k = 0; k < per_thread; k++) {
        const unsigned r = k * groups + group;
        if (r < count && lane == 0) {
            const bool is_stored = store_result<Traits>(out + start[k].out, value[k],
                                                        layout.elements,
                                                        params.of_row(layout, first + r, 0));
            unstored |= is_stored ? 0 : 1u << k;
        }
    }
    if constexpr (has_own_accumulator<Traits>) {
        Traits::template store_left<BLOCK>(unstored, layout.elements, scratch,
                                           [&] { return share; });
    }
}

} // namespace gpr
