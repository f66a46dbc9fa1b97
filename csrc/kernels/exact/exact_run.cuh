// Exact sums: a row that is a run of memory, read by vectors, and a warp's share of it, tile by
// tile.
#pragma once

#include "exact_block.cuh"

namespace gpr {

// A vector of which only the first element is one.
template <class In> GPR_DEVICE Vector lone(Vector nothing, In x)
{
    store_element(nothing, 0, x);
    return nothing;
}

// A row as vectors, and the elements before the first and after the last that are no whole one.
template <class In> struct Run {
    const In *in;
    uint64 n, head, vectors;

    GPR_DEVICE Run(const In *first, uint64 count) : in(first), n(count)
    {
        const unsigned past = static_cast<unsigned>(reinterpret_cast<uint64>(in) % sizeof(Vector));
        const uint64 to_aligned =
            past == 0 || sizeof(In) == sizeof(Vector) ? 0 : (sizeof(Vector) - past) / sizeof(In);
        head = to_aligned < n ? to_aligned : n;
        vectors = (n - head) / vector_elements<In>;
    }
    // One of the row's vectors, by its address.
    GPR_DEVICE Vector load(const Vector *at) const
    {
        // elements of 16 bytes may begin where vectors do not
        if constexpr (sizeof(In) == sizeof(Vector)) {
            if (reinterpret_cast<uint64>(in) % sizeof(Vector) != 0) {
                return bit_copy<Vector>(*reinterpret_cast<const In *>(at));
            }
        }
        return load_vector(at);
    }
    GPR_DEVICE const Vector *begin() const { return reinterpret_cast<const Vector *>(in + head); }
    GPR_DEVICE bool has_edges() const { return vectors * vector_elements<In> < n; }
    // A lane's element of the edges, the only one in its vector: fewer than 16 come before, fewer
    // than 16 after.
    GPR_DEVICE Vector edge(unsigned lane, const Vector &nothing) const
    {
        const uint64 tail = head + vectors * vector_elements<In>;
        if (lane < head) return lone(nothing, in[lane]);
        if (lane >= warp_lanes / 2 && lane - warp_lanes / 2 < n - tail)
            return lone(nothing, in[tail + lane - warp_lanes / 2]);
        return nothing;
    }
};

// A warp's share of a row: tiles of VECTORS vectors a thread, each a run of memory, in strides of
// the row's blocks; and for the first warp the edges.
template <unsigned VECTORS, unsigned BLOCK, class In> class Tiles {
public:
  GPR_DEVICE Tiles(const Run<In> &of_run, const Row &row)
      : run(of_run), at(run.begin() + first_of(row) + lane()),
        left(static_cast<long long>(run.vectors - first_of(row))),
        step(static_cast<long long>(static_cast<uint64>(row.blocks) * (VECTORS * BLOCK))),
        has_edges(row.block == 0 && threadIdx.x < warp_lanes && run.has_edges())
  {
  }
    GPR_DEVICE bool is_done() const { return left <= 0 && !has_edges; }
    // The next tile; vectors that it lacks are `nothing`. After the last one, the edges.
    GPR_DEVICE void fetch(Vector (&v)[VECTORS], const Vector &nothing) const
    {
        if (left >= full) {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) v[k] = run.load(at + k * warp_lanes);
            return;
        }
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
            v[k] = static_cast<long long>(lane() + k * warp_lanes) < left
                       ? run.load(at + k * warp_lanes)
                       : nothing;
        }
        if (left <= 0 && has_edges) v[0] = run.edge(lane(), nothing);
    }
    GPR_DEVICE void advance()
    {
        has_edges = has_edges && left > 0;
        left -= step;
        at += step;
        keep(at);
    }

private:
    static constexpr long long full = VECTORS * warp_lanes; // vectors of a tile
    const Run<In> &run;
    const Vector *at;
    long long left; // vectors from the warp's next one on
    const long long step;
    bool has_edges; // and they are still to come

    static GPR_DEVICE unsigned lane() { return threadIdx.x % warp_lanes; }
    static GPR_DEVICE uint64 first_of(const Row &row) // the warp's
    {
        return (static_cast<uint64>(row.block) * BLOCK + threadIdx.x - lane()) * VECTORS;
    }
};

// A thread's only tile of a row whose threads have one at most. Neighbouring threads of a block
// have neighbouring vectors, so that the shortest rows are shared by all of its warps. The edges
// come behind the tile of the row's last warp, which mostly has room for them.
template <unsigned VECTORS, unsigned BLOCK, class In> struct OnlyTile {
    Vector v[VECTORS];
    unsigned used; // vectors of which a lane of the warp has any
    Vector edges;
    bool has_edges; // and they are not in the tile

    GPR_DEVICE OnlyTile(const Run<In> &run, const Row &row, const Vector &nothing) : edges(nothing)
    {
        constexpr long long last = (VECTORS - 1) * BLOCK;
        const unsigned lane = threadIdx.x % warp_lanes;
        const uint64 mine = static_cast<uint64>(row.block) * (VECTORS * BLOCK) + threadIdx.x - lane;
        const long long left = static_cast<long long>(run.vectors - mine);
        const Vector *at = run.begin() + mine + lane;

        if (left >= last + warp_lanes) {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) v[k] = run.load(at + k * BLOCK);
        } else {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++)
                v[k] = lane + k * BLOCK < left ? run.load(at + k * BLOCK) : nothing;
        }
        used = left > last ? VECTORS
               : left > 0  ? (static_cast<unsigned>(left) + BLOCK - 1) / BLOCK
                           : 0;
        has_edges = row.block == row.blocks - 1 && threadIdx.x - lane == BLOCK - warp_lanes &&
                    run.has_edges();
        if (!has_edges) return;
        edges = run.edge(lane, nothing);
        if (used == VECTORS) return;
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) v[k] = k == used ? edges : v[k];
        used++;
        has_edges = false;
    }
    // Puts `nothing` in place of NaNs. Returns how many they are.
    GPR_DEVICE unsigned leave_out_nans(const Vector &nothing)
    {
        Vector only_edges[1] = {edges};
        const unsigned in_edges = has_edges ? gpr::leave_out_nans<In>(only_edges, nothing) : 0;
        edges = only_edges[0];
        return may_have_nan<In>(v) ? in_edges + gpr::leave_out_nans<In>(v, nothing) : in_edges;
    }
};

// Adds all tiles. The next one is under way while one is added, and the first one while prepare()
// does what must come before.
template <unsigned VECTORS, unsigned BLOCK, class In, class Adder, class Prepare>
GPR_DEVICE void accumulate_tiles(Adder &adder, const Run<In> &run, const Row &row,
                                 const Prepare &prepare)
{
    const Vector nothing = adder.nothing();
    Tiles<VECTORS, BLOCK, In> tiles(run, row);
    Vector now[VECTORS], next[VECTORS];

    tiles.fetch(now, nothing);
    prepare();
    while (!tiles.is_done()) {
        tiles.advance();
        tiles.fetch(next, nothing);
        if constexpr (Adder::skips_nan) {
            // after the first one, each tile is expected to have some
            if (adder.left_out != 0 || may_have_nan<In>(now))
                adder.left_out += leave_out_nans<In>(now, nothing);
        }
        adder.accumulate(now);
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) now[k] = next[k];
    }
}

} // namespace gpr
