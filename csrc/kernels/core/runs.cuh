// Runs: how a group of threads folds neighbouring elements. fold_vectors loads 16 bytes at a time;
// fold_elements loads one element at a time, for the kernels that show why vectors help. Both
// reorder operands.
//
//   in = 4 bytes past a multiple of 16, n = 14 float32:
//
//            | e0 e1 e2 | e3 .. e6 | e7 .. e10 | e11 e12 e13 |
//              head       vectors, aligned       tail
#pragma once

#include "thread_accumulator.cuh"
#include "rows.cuh"

namespace gpr {

// A thread's rank in a group of `size` threads that share a run.
struct ThreadGroup {
    uint64 rank, size;
};

// Returns the group of all threads of the blocks that serve a row.
template <unsigned BLOCK> GPR_DEVICE ThreadGroup grid_of(const Row &row)
{
    return ThreadGroup{static_cast<uint64>(row.block) * BLOCK + threadIdx.x,
                       static_cast<uint64>(row.blocks) * BLOCK};
}

// Folds this thread's share of in[0 .. n), one element at a time, with a stride of the group's
// size. Each thread holds its own partial.
template <class Traits>
GPR_DEVICE typename Traits::Acc fold_elements(const typename Traits::In *in, uint64 n,
                                              ThreadGroup group)
{
    typename Traits::Acc value = Traits::identity();
    for (uint64 i = group.rank; i < n; i += group.size)
        value = Traits::combine(value, Traits::lift(in[i], i));
    return value;
}

// Returns the position of a vector's first element in the run `in`.
template <class In> GPR_DEVICE uint64 position_of(const Vector *vector, const In *in)
{
    return static_cast<uint64>(reinterpret_cast<const In *>(vector) - in);
}

// Returns how many elements lie before the first multiple of 16 bytes. `in` is aligned to its
// elements, whose size divides a vector's.
template <class In> GPR_DEVICE unsigned elements_to_aligned(const In *in)
{
    const unsigned past =
        static_cast<unsigned>(reinterpret_cast<uint64>(in) % sizeof(Vector) / sizeof(In));
    return past == 0 ? 0 : vector_elements<In> - past;
}

// Adds the elements before in[head] and those from in[tail] on, which are less than a vector each:
// the first ones by the group's first threads, the last ones by its last threads. WIDTH divides the
// group's size.
template <class Traits, unsigned WIDTH>
GPR_DEVICE void add_ends(ThreadAccumulator<Traits> &accumulator, const typename Traits::In *in,
                         uint64 head, uint64 tail, uint64 n, ThreadGroup group)
{
    using In = typename Traits::In;
    const uint64 first = group.rank, last = tail + group.size - group.rank - 1;

    if constexpr (WIDTH >= GPR_WARP_LANES) { // one of each at most: both loads first
        In first_element = {}, last_element = {};
        if (first < head) first_element = in[first];
        if (last < n) last_element = in[last];
        if (first < head) accumulator.add(first_element, first);
        if (last < n) accumulator.add(last_element, last);
    } else {
        for (uint64 i = first; i < head; i += group.size) accumulator.add(in[i], i);
        for (uint64 i = last; i < n; i += group.size) accumulator.add(in[i], i);
    }
}

// Adds this thread's share of a run that is a round of the group (add_whole_vectors) or less:
// VECTORS vectors at most, and one element at either end, which are all under way at once. Sizes
// have 32 bits: with a row or two for a block, no load hides how long a place takes to compute.
template <class Traits, unsigned VECTORS, bool WHOLE>
GPR_DEVICE void add_short_run(ThreadAccumulator<Traits> &accumulator,
                              const typename Traits::In *in, unsigned n, unsigned rank,
                              unsigned size)
{
    using In = typename Traits::In;
    constexpr unsigned each = vector_elements<In>;
    const unsigned to_aligned = WHOLE ? 0 : elements_to_aligned(in);
    const unsigned head = to_aligned < n ? to_aligned : n;
    const unsigned vectors = (n - head) / each, tail = head + vectors * each,
                   last = tail + (size - 1 - rank);
    const Vector *first = reinterpret_cast<const Vector *>(in + head);
    Vector v[VECTORS][1];
    In before = {}, behind = {};

#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
        if (rank + k * size < vectors) v[k][0] = load_vector(first + (rank + k * size));
    }
    if (!WHOLE && rank < head) before = in[rank];
    if (!WHOLE && last < n) behind = in[last];
    if (!WHOLE && rank < head) accumulator.add(before, rank);
    if (!WHOLE && last < n) accumulator.add(behind, last);
#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
        const unsigned place = rank + k * size;
        if (place < vectors) accumulator.add_tile(v[k], in, head + place * each, 0);
    }
}

// Adds this thread's share of in[0 .. n), by 16-byte vectors of which up to VECTORS are in flight
// at once. `in` is aligned to its elements only: add_ends adds those before the first multiple of
// 16 bytes and those after the last whole vector.
//
// WIDTH divides the group's size and is how many of its threads are neighbours: a block, or the
// lanes of a row. While whole rounds are left, WIDTH neighbours load VECTORS * WIDTH consecutive
// vectors: a thread's loads are constant distances apart, so that one address register serves all
// of them. The rest is dealt out one vector per thread, so that no thread loads more than one
// vector more than another. A run that is a round or less is added at once: but by a few lanes,
// which have other rows beside them, and for which the registers that this takes cost more.
//
// WHOLE: the run begins at a multiple of 16 bytes and ends there.
//
// The elements' size must divide a vector's; add_run below has no such condition.
template <class Traits, unsigned VECTORS, unsigned WIDTH, bool WHOLE = false>
GPR_DEVICE void add_whole_vectors(ThreadAccumulator<Traits> &accumulator,
                                  const typename Traits::In *in, uint64 n, ThreadGroup group)
{
    using In = typename Traits::In;
    if constexpr (WIDTH >= GPR_WARP_LANES) {
        constexpr uint64 most = 1u << 26; // of either, so that their products have 32 bits
        constexpr unsigned of_thread = VECTORS * vector_elements<In>;
        if (n < most && group.size < most && n <= of_thread * group.size) {
            add_short_run<Traits, VECTORS, WHOLE>(
                accumulator, in, static_cast<unsigned>(n), static_cast<unsigned>(group.rank),
                static_cast<unsigned>(group.size));
            return;
        }
    }
    const unsigned to_aligned = WHOLE ? 0 : elements_to_aligned(in);
    const uint64 head = to_aligned < n ? to_aligned : n;
    const Vector *vectors = reinterpret_cast<const Vector *>(in + head);
    uint64 left = (n - head) / vector_elements<In>; // vectors that no thread has loaded
    const uint64 tail = head + left * vector_elements<In>;
    const uint64 round = VECTORS * group.size;
    const uint64 place =
        VECTORS == 1 ? group.rank : group.rank / WIDTH * (WIDTH * VECTORS) + group.rank % WIDTH;
    const Vector *end = vectors + left;
    const Vector *mine = vectors + place;
    Vector rest[VECTORS][1];

    if constexpr (!WHOLE) add_ends<Traits, WIDTH>(accumulator, in, head, tail, n, group);
#pragma unroll 1
    for (; left >= round; left -= round, mine += round) {
        Vector v[VECTORS];
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) v[k] = load_vector(mine + k * WIDTH);
        accumulator.add_tile(v, in, position_of(mine, in), WIDTH * vector_elements<In>);
    }
    mine = end - left + group.rank;
#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) { // again all loads first
        if (mine + k * group.size < end) rest[k][0] = load_vector(mine + k * group.size);
    }
#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
        if (mine + k * group.size < end)
            accumulator.add_tile(rest[k], in, position_of(mine + k * group.size, in), 0);
    }
}

// add_whole_vectors for any elements. Accumulators of an earlier pass may have a size that does not
// divide a vector's, and elements of 16 bytes may not be aligned to vectors: those are added one by
// one.
template <class Traits, unsigned VECTORS, unsigned WIDTH, bool WHOLE = false>
GPR_DEVICE void add_run(ThreadAccumulator<Traits> &accumulator, const typename Traits::In *in,
                        uint64 n, ThreadGroup group)
{
    constexpr unsigned bytes = sizeof(typename Traits::In);
    const auto add_elements = [&] {
        for (uint64 i = group.rank; i < n; i += group.size) accumulator.add(in[i], i);
    };

    if constexpr (sizeof(Vector) % bytes != 0) add_elements();
    else if (bytes == sizeof(Vector) && reinterpret_cast<uint64>(in) % sizeof(Vector) != 0)
        add_elements();
    else add_whole_vectors<Traits, VECTORS, WIDTH, WHOLE>(accumulator, in, n, group);
}

// Folds this thread's share. Each thread holds its own partial.
template <class Traits, unsigned VECTORS, unsigned WIDTH, bool WHOLE = false>
GPR_DEVICE typename Traits::Acc fold_vectors(const typename Traits::In *in, uint64 n,
                                             ThreadGroup group)
{
    ThreadAccumulator<Traits> accumulator;
    add_run<Traits, VECTORS, WIDTH, WHOLE>(accumulator, in, n, group);
    return accumulator.finalize();
}

} // namespace gpr
