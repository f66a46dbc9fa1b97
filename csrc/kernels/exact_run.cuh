// Exact sums: a row that is a run of memory, read by vectors, and a warp's share of it, tile by tile.
#pragma once

#include "exact_block.cuh"

namespace gpr {

// A vector of which only the first element is one.
template <class In> GPR_DEVICE Vector lone(Vector nothing, In x)
{
    put_element(nothing, 0, x);
    return nothing;
}

// A row as vectors, and the elements before the first and after the last that are no whole one.
template <class In> struct Run {
    const In *in;
    uint64 n, head, vectors;

    GPR_DEVICE Run(const In *first, uint64 count) : in(first), n(count)
    {
        const unsigned past = static_cast<unsigned>(reinterpret_cast<uint64>(in) % sizeof(Vector));
        const uint64 to_aligned = past == 0 || sizeof(In) == sizeof(Vector) ? 0 : (sizeof(Vector) - past) / sizeof(In);
        head = to_aligned < n ? to_aligned : n;
        vectors = (n - head) / vector_elements<In>;
    }
    // One of the row's vectors, by its address.
    GPR_DEVICE Vector load(const Vector *at) const
    {
        if constexpr (sizeof(In) == sizeof(Vector)) { // elements of 16 bytes may begin where vectors do not
            if (reinterpret_cast<uint64>(in) % sizeof(Vector) != 0) {
                return bit_copy<Vector>(*reinterpret_cast<const In *>(at));
            }
        }
        return load_vector(at);
    }
    GPR_DEVICE const Vector *begin() const { return reinterpret_cast<const Vector *>(in + head); }
    GPR_DEVICE bool has_edges() const { return vectors * vector_elements<In> < n; }
    // A lane's element of the edges, the only one in its vector: fewer than 16 come before, fewer than 16 after.
    GPR_DEVICE Vector edge(unsigned lane, const Vector &nothing) const
    {
        const uint64 tail = head + vectors * vector_elements<In>;
        if (lane < head) return lone(nothing, in[lane]);
        if (lane >= warp_lanes / 2 && lane - warp_lanes / 2 < n - tail) return lone(nothing, in[tail + lane - warp_lanes / 2]);
        return nothing;
    }
};

// A warp's share of a row: tiles of VECTORS vectors a thread, in strides of the row's blocks, and for the first warp the
// edges. WIDTH neighbours, a warp or a block, have VECTORS * WIDTH vectors in a row: of a warp, the largest arrays are read a
// little faster; of a block, the shortest ones are shared by all of its warps.
template <unsigned VECTORS, unsigned BLOCK, unsigned WIDTH, class In> class Tiles {
public:
    GPR_DEVICE Tiles(const Run<In> &of_run, const Row &row)
        : run(of_run), at(run.begin() + first_of(row) + lane()), left(static_cast<long long>(run.vectors - first_of(row))),
          step(static_cast<long long>(static_cast<uint64>(row.blocks) * (VECTORS * BLOCK))),
          has_edges(row.block == 0 && threadIdx.x < warp_lanes && run.has_edges())
    {
    }
    GPR_DEVICE bool is_done() const { return left <= 0 && !has_edges; }
    GPR_DEVICE bool is_full() const { return left >= full; }
    GPR_DEVICE bool is_next_full() const { return left - step >= full; }
    GPR_DEVICE Vector load_next(unsigned k) const { return run.load(at + step + k * WIDTH); } // vector k of that
    // The next tile; what it has no vector for is `nothing`. After the last one, the edges.
    GPR_DEVICE void fetch(Vector (&v)[VECTORS], const Vector &nothing) const
    {
        if (is_full()) {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) v[k] = run.load(at + k * WIDTH);
            return;
        }
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
            v[k] = static_cast<long long>(lane() + k * WIDTH) < left ? run.load(at + k * WIDTH) : nothing;
        }
        if (left <= 0 && has_edges) v[0] = run.edge(lane(), nothing);
    }
    // The only tile and, if there is room, the edges behind it. Says how many vectors there are of which a lane has any.
    GPR_DEVICE unsigned fetch_only(Vector (&v)[VECTORS], const Vector &nothing)
    {
        fetch(v, nothing);
        const bool has_vectors = left > 0;
        unsigned used = left > static_cast<long long>(last) ? VECTORS : (static_cast<unsigned>(left) + WIDTH - 1) / WIDTH;
        if (!has_vectors) used = has_edges ? 1 : 0;
        left = 0;
        if (!has_edges || used == VECTORS) return used;
        if (has_vectors) {
            const Vector edges = edge(nothing);
#pragma unroll
            for (unsigned k = 1; k < VECTORS; k++) v[k] = k == used ? edges : v[k];
            used++;
        }
        has_edges = false;
        return used;
    }
    GPR_DEVICE Vector edge(const Vector &nothing) const { return run.edge(lane(), nothing); }
    GPR_DEVICE void advance()
    {
        has_edges = has_edges && left > 0;
        left -= step;
        at += step;
        keep(at);
    }

private:
    static constexpr unsigned last = (VECTORS - 1) * WIDTH;
    static constexpr long long full = last + warp_lanes; // vectors, from a full tile on
    const Run<In> &run;
    const Vector *at;
    long long left; // vectors from the warp's next one on
    const long long step;
    bool has_edges; // and they are still to come

    static GPR_DEVICE unsigned lane() { return threadIdx.x % warp_lanes; }
    static GPR_DEVICE uint64 first_of(const Row &row) // the warp's
    {
        const uint64 team = static_cast<uint64>(row.block) * (BLOCK / WIDTH) + threadIdx.x / WIDTH;
        return team * (VECTORS * WIDTH) + (threadIdx.x % WIDTH - lane());
    }
};

// Adds all tiles. The next one is under way while one is added, and the first one while prepare() does what must come before.
template <unsigned VECTORS, unsigned BLOCK, class In, class Adder, class Prepare>
GPR_DEVICE void take_tiles(Adder &adder, const Run<In> &run, const Row &row, const Prepare &prepare)
{
    const Vector nothing = adder.nothing();
    Tiles<VECTORS, BLOCK, warp_lanes, In> tiles(run, row);
    Vector now[VECTORS], next[VECTORS];

    tiles.fetch(now, nothing);
    prepare();
    while (!tiles.is_done()) {
        tiles.advance();
        tiles.fetch(next, nothing);
        adder.take(now);
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) now[k] = next[k];
    }
}

} // namespace gpr
