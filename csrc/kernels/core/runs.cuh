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

// Adds the elements of in[begin .. begin + n) before the first whole vector, which are `head`, and
// those behind the last one, from `tail` on: less than a vector each. A group of `size` threads, at
// least as many as a vector has elements, has one for each of them: the first ones and the last
// ones. Size is an unsigned type that holds n + size.
template <class Traits, class Size>
GPR_DEVICE void add_ends(ThreadAccumulator<Traits> &accumulator, const typename Traits::In *in,
                         uint64 begin, Size head, Size tail, Size n, Size rank, Size size)
{
    using In = typename Traits::In;
    const In *run = in + begin;
    const Size last = tail + (size - 1 - rank);
    In first_element = {}, last_element = {};

    if (rank < head) first_element = run[rank]; // both loads first
    if (last < n) last_element = run[last];
    if (rank < head) accumulator.add(first_element, begin + rank);
    if (last < n) accumulator.add(last_element, begin + last);
}

// Adds this thread's share of in[begin .. begin + n), which is less than a round of the group
// (add_whole_vectors): VECTORS vectors at most, and elements before the first one and behind the
// last. Sizes have 32 bits: where a row is not more than this, no load hides how long it takes to
// compute where to load from.
//
// As many threads as a vector has elements have one at each end at most: all loads are under way at
// once. Less than a warp has added the elements before the first vector.
template <class Traits, unsigned VECTORS, unsigned WIDTH, bool WHOLE>
GPR_DEVICE void add_short_run(ThreadAccumulator<Traits> &accumulator,
                              const typename Traits::In *in, uint64 begin, unsigned n,
                              unsigned rank, unsigned size)
{
    using In = typename Traits::In;
    constexpr unsigned each = vector_elements<In>;
    constexpr bool has_ends = !WHOLE, is_warp = WIDTH >= GPR_WARP_LANES,
                   one_each = has_ends && WIDTH >= each;
    const In *run = in + begin;
    const unsigned to_aligned = has_ends && is_warp ? elements_to_aligned(run) : 0;
    const unsigned head = to_aligned < n ? to_aligned : n;
    const unsigned vectors = (n - head) / each, tail = head + vectors * each;
    const Vector *first = reinterpret_cast<const Vector *>(run + head);
    Vector v[VECTORS][1];

    if constexpr (has_ends && !one_each) {
        for (unsigned i = tail + (size - 1 - rank); i < n; i += size)
            accumulator.add(run[i], begin + i);
    }
#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
        if (rank + k * size < vectors) v[k][0] = load_vector(first + (rank + k * size));
    }
    if constexpr (one_each)
        add_ends<Traits>(accumulator, in, begin, head, tail, n, rank, size);
#pragma unroll
    for (unsigned k = 0; k < VECTORS; k++) {
        const unsigned place = rank + k * size;
        if (place < vectors) accumulator.add_tile(v[k], in, begin + (head + place * each), 0);
    }
}

// Adds this thread's share of in[0 .. n), by 16-byte vectors of which up to VECTORS are in flight
// at once. `in` is aligned to its elements only: those before the first multiple of 16 bytes are
// added by the group's first threads, those after the last whole vector by its last threads.
//
// WIDTH divides the group's size and is how many of its threads are neighbours: a block, or the
// lanes of a row. While whole rounds are left, WIDTH neighbours load VECTORS * WIDTH consecutive
// vectors: a thread's loads are constant distances apart, so that one address register serves all
// of them. The rest is dealt out one vector per thread, so that no thread loads more than one
// vector more than another.
//
// WHOLE: the run begins at a multiple of 16 bytes and ends there.
//
// The elements' size must divide a vector's; add_run below has no such condition.
template <class Traits, unsigned VECTORS, unsigned WIDTH, bool WHOLE = false>
GPR_DEVICE void add_whole_vectors(ThreadAccumulator<Traits> &accumulator,
                                  const typename Traits::In *in, uint64 n, ThreadGroup group)
{
    using In = typename Traits::In;
    constexpr unsigned each = vector_elements<In>;
    constexpr bool is_warp = WIDTH >= GPR_WARP_LANES, one_each = !WHOLE && WIDTH >= each;
    uint64 done = 0; // elements of which the thread has added its share

    if (!is_warp || n >= VECTORS * each * group.size) {
        const uint64 round = VECTORS * group.size;
        const uint64 place = VECTORS == 1
                                 ? group.rank
                                 : group.rank / WIDTH * (WIDTH * VECTORS) + group.rank % WIDTH;
        const unsigned to_aligned = WHOLE ? 0 : elements_to_aligned(in);
        const uint64 head = to_aligned < n ? to_aligned : n;
        const Vector *mine = reinterpret_cast<const Vector *>(in + head) + place;
        uint64 left = (n - head) / each; // vectors
        In before = {};                  // under way while whole rounds are

        if constexpr (one_each) {
            if (group.rank < head) before = in[group.rank];
        } else {
            for (uint64 i = group.rank; i < head; i += group.size) accumulator.add(in[i], i);
        }
#pragma unroll 1
        for (; left >= round; left -= round, mine += round) {
            Vector v[VECTORS];
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) v[k] = load_vector(mine + k * WIDTH);
            accumulator.add_tile(v, in, position_of(mine, in), WIDTH * each);
        }
        if (one_each && group.rank < head) accumulator.add(before, group.rank);
        done = head + ((n - head) / each - left) * each;
    }
    if (is_warp && group.size >= GPR_MANY_THREADS) {
#pragma unroll 1
        for (uint64 i = done + group.rank; i < n; i += group.size) accumulator.add(in[i], i);
        return;
    }
    add_short_run<Traits, VECTORS, WIDTH, WHOLE>(
        accumulator, in, done, static_cast<unsigned>(n - done), static_cast<unsigned>(group.rank),
        static_cast<unsigned>(group.size));
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
