// Exact sums: tiles of elements that lie anywhere.
#pragma once

#include "fast_axes.cuh"
#include "exact_adders.cuh"

namespace gpr {

// Vectors of a tile that is made element by element.
template <class In> constexpr unsigned strided_vectors = gpr_tile_vectors(sizeof(In), reduced_axes);
// Vectors of a tile of a thread with bins of its own: more where it loads items, or where additions
// are so few that loads limit the speed.
constexpr unsigned most_strip_vectors = GPR_TILE_VECTORS;
template <class In>
constexpr unsigned strip_vectors =
    item > 1 || (reduced_axes == 1 && same<In, dt_float16>) ? most_strip_vectors
                                                            : strided_vectors<In>;

// A thread's way through a row of n elements, or items of RUN neighbouring ones: tiles of number
// first, first + step, first + 2 * step, ...
template <class Traits, unsigned VECTORS, unsigned RUN = 1> class StridedTiles {
public:
    using In = typename Traits::In;
    static constexpr unsigned elements = VECTORS * vector_elements<In>, steps = elements / RUN;
    static_assert(RUN == 1 || RUN == item, "items are what load_item loads");
    // elements so far that are in no tile: masked, or NaN that does not count
    unsigned left_out = 0;

    GPR_DEVICE StridedTiles(const In *row, const unsigned char *row_mask, const Layout &layout,
                            uint64 first, uint64 step, uint64 n)
        : in(row), mask(row_mask), iterator(layout, first, step), left(steps_of(n, first, step))
    {
    }
    GPR_DEVICE StridedTiles(const In *row, const unsigned char *row_mask, const Layout &layout,
                            const ShareOfRow &share)
        : in(row), mask(row_mask), iterator(layout, share.begin, share.step), left(share.count)
    {
    }
    GPR_DEVICE bool is_done() const { return left == 0; }

    // The next tile; what it has no element for is `nothing`.
    GPR_DEVICE void fetch(Vector (&v)[VECTORS], const Vector &nothing)
    {
        const unsigned count = take();
        if constexpr (RUN > 1) fill_from_items(v, count, nothing);
        else if (reduced_axes == 1 && count == elements) fill<true>(v, count, nothing);
        else fill<false>(v, count, nothing);
    }
    // The same by all lanes of a warp, in one of the ways: else whole tiles, and those that lack an
    // element, would wait for memory one after the other.
    GPR_DEVICE void fetch_by_warp(Vector (&v)[VECTORS], const Vector &nothing)
    {
        static_assert(RUN == 1, "elements, of which not all lanes have as many");
        const unsigned count = take();
        if (reduced_axes == 1 && __all_sync(all_lanes, count == elements))
            fill<true>(v, count, nothing);
        else fill<false>(v, count, nothing);
    }
    // The same of a row that is hardly ever a whole tile.
    GPR_DEVICE void fetch_part(Vector (&v)[VECTORS], const Vector &nothing)
    {
        fill<false>(v, left < elements ? static_cast<unsigned>(left) : elements, nothing);
        left = 0;
    }

private:
    const In *in;
    const unsigned char *mask;
    StridedIterator iterator;
    uint64 left; // elements, or items

    // How many of them are the next tile's.
    GPR_DEVICE unsigned take()
    {
        const unsigned count = left < steps ? static_cast<unsigned>(left) : steps;
        left -= count;
        return count;
    }

    // All loads come first.
    GPR_DEVICE void load_some(In (&x)[elements], bool (&keep)[elements], unsigned count)
    {
        for_addresses<elements>(in, mask, iterator, count,
                                [&](unsigned i, const Addresses<In> &at) {
                                    x[i] = *at.in;
                                    if constexpr (masked) keep[i] = *at.mask != 0;
                                });
#pragma unroll
        for (unsigned i = 0; i < elements; i++) keep[i] = i < count && (!masked || keep[i]);
    }
    // The same of a whole tile along one axis: its elements are at even distances.
    GPR_DEVICE void load_even(In (&x)[elements], bool (&keep)[elements])
    {
        const ElementOffsets step = iterator.step();
        const In *at = in + iterator.offsets().in;
        const unsigned char *mask_at = mask + iterator.offsets().mask;
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
            x[i] = *at;
            keep[i] = true;
            if constexpr (masked) keep[i] = *mask_at != 0;
            at += step.in;
            mask_at += step.mask;
        }
        iterator.advance(elements);
    }

    template <bool FULL>
    GPR_DEVICE void fill(Vector (&v)[VECTORS], unsigned count, const Vector &nothing)
    {
        In x[elements];
        bool keep[elements];

        if constexpr (FULL) load_even(x, keep);
        else load_some(x, keep, count);
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) v[k] = nothing;
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
            if constexpr (Traits::skips_nan) keep[i] = keep[i] && !is_nan(value_of(x[i]));
            if constexpr (masked || Traits::skips_nan)
                left_out += !keep[i] && (FULL || i < count) ? 1 : 0;
            if (keep[i]) store_element(v[i / vector_elements<In>], i % vector_elements<In>, x[i]);
        }
    }

    GPR_DEVICE void fill_from_items(Vector (&v)[VECTORS], unsigned count, const Vector &nothing)
    {
        Item<In> items[steps];
        uint64 positions[steps];

        if (count > 0) load_items(items, positions, in, mask, iterator, count);
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) v[k] = nothing;
#pragma unroll
        for (unsigned i = 0; i < steps; i++) {
            if (i >= count) break;
            if constexpr (RUN == vector_elements<In> && !masked && !Traits::skips_nan) {
                v[i] = bit_copy<Vector>(items[i].elements);
            } else {
#pragma unroll
                for (unsigned j = 0; j < RUN; j++) {
                    const In x = items[i].element(j);
                    const bool counts =
                        items[i].kept(j) && !(Traits::skips_nan && is_nan(value_of(x)));
                    if (counts)
                        store_element(v[(i * RUN + j) / vector_elements<In>],
                                      (i * RUN + j) % vector_elements<In>, x);
                    else left_out++;
                }
            }
        }
    }
};

// The rows that lie across a block: row v of `rows` is layout.width rows of the array, of which the
// first `count` exist.
template <unsigned BLOCK> struct Strip {
    Row row;
    Rectangle r;
    uint64 first;
    unsigned count;

    GPR_DEVICE Strip(const Rows &rows, const Layout &layout)
        : row(row_of(rows, blockIdx.x)),
          r(Rectangle::of_block<BLOCK>(layout)),
          first(row.index * layout.width),
          count(layout.count - first < layout.width ? static_cast<unsigned>(layout.count - first)
                                                    : layout.width)
    {
    }
    // Whether this thread has a row: number r.x of the block's.
    GPR_DEVICE bool has_row() const { return r.works() && r.x < count; }
    // Adds what this thread has of its row, by tiles of VECTORS: make_room() comes before one is
    // loaded, add(v) after that. Returns how many of its elements are left out. All threads must
    // call.
    template <class Traits, unsigned VECTORS, class MakeRoom, class Add>
    GPR_DEVICE unsigned for_each_tile(const typename Traits::In *in, const Layout &layout,
                                      const Vector &nothing, const MakeRoom &make_room,
                                      const Add &add) const
    {
        const unsigned together = __ballot_sync(all_lanes, has_row()); // who waits for each other
        if (!has_row()) return 0;
        const RowOffsets start = layout.row_offsets(first + r.x);
        StridedTiles<Traits, VECTORS, item> tiles(in + start.in, layout.mask + start.mask, layout,
                                                  ShareOfRow(layout, row, r));

        // Lanes whose tiles did not fit, or whose bins were full, wait here for the others: else
        // they would go on by themselves to the end, each with loads of its own.
        while (__any_sync(together, !tiles.is_done())) {
            if (tiles.is_done()) continue;
            Vector v[VECTORS];
            make_room();
            tiles.fetch(v, nothing);
            add(v);
        }
        return tiles.left_out;
    }
};

} // namespace gpr
