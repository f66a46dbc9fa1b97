// exact: the real sum of the elements, rounded once. The same bits in any order, by any grid, on any card.
//
// Removed: rounding on the way. A double that begins at 1.5 * 2^p and stays between 2^p and 2^(p + 1) has its last place
// at 2^(p - 52) all the time: what is added to it is cut to multiples of that, and what the sum grew by is found exactly
// by one subtraction. So three additions split an element in two without an error: the part above 2^(p - 53), which is
// in the sum, and the rest, which goes on to the next such window, 42 bits below. Where the last rest is zero, the
// windows hold every digit. Three of them hold float64 over 68 binary orders of magnitude, two of them float32 over 55;
// one is enough for 16-bit floats, whose numbers have few digits.
//
// A window less what it began with is an integer, and integers are added without regard to order: over a warp, then into
// the block's number in shared memory, and from there into the row's (exact_sum.cuh). That happens every thousand
// elements of a thread, before a window could overflow, and at the end.
//
// Whether elements fit the windows is asked once for a tile: whether the first window ever left its range (an element is
// too large, infinite or NaN), and whether a rest was left. If so, the tile does not count, and is added another way:
// float32 and bfloat16 by windows that hold every number they have, the others digit by digit. After the second such tile
// since the windows began, they move to where it lies. Where windows lie changes the time that is taken, never the sum.
// Of float32 and bfloat16, integer instructions tell beforehand: that is cheaper than to look at what was left.
//
// Still paid: three additions a window for each element, where a sum has one; and a little more at a block's end.
//
// Where a warp has one tile of its row, that has windows of its own (exact_tile.cuh).
//
// This kernel reads rows that are runs of memory, by vectors. Those that lie otherwise are exact_across.cuh's, and short
// ones exact_rows.cuh's.
//
// Launch: any number of blocks a row; BLOCK a multiple of 32; out[row] is written by one block: the accumulator, or the
// result. With more than one block a row, a row's counters are its ticket, a gap, and an accumulator: zero before and
// after. layout.slots rows have them, row i those of row i % slots; no two of one slot are under way together.
//
// Reference: the windows are those of Rump's extraction of vectors, and of the binned sums of Demmel, Ahrens and Nguyen
// (ReproBLAS), which round; the fixed-point number is Kulisch's. Neither was made to be checked by the tile.
#pragma once

#include "exact_across.cuh"
#include "exact_block.cuh"
#include "exact_held.cuh"
#include "exact_rows.cuh"
#include "exact_tile.cuh"

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
    // The next tile; what it has no vector for is `nothing`. After the last one, the edges.
    GPR_DEVICE void fetch(Vector (&v)[VECTORS], const Vector &nothing) const
    {
        if (left >= static_cast<long long>(last + warp_lanes)) {
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

// What a warp holds after one tile, of which the first `used` vectors have elements, and a vector of edges behind it, if it
// has some: whatever they are. All lanes must call.
template <class Cell, unsigned VECTORS>
GPR_CALLED Held<typename Cell::In> hold_anything(typename FloatAdder<Cell, VECTORS>::Tile tile, unsigned used, Vector edges,
                                                 bool has_edges)
{
    constexpr unsigned at_once = 4; // there are registers for them
    FloatAdder<Cell, VECTORS> adder;
#pragma unroll 1
    for (;;) {
        adder.template take<at_once>(tile.v, used);
        if (!has_edges) return hold(adder);
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) tile.v[k] = k == 0 ? edges : adder.nothing();
        used = 1;
        has_edges = false;
    }
}

// What a warp holds of a row whose threads have one tile each. Nobody waits for memory meanwhile, so that instructions count.
// Or puts the sum, if the block has the row alone, and says that it has. All threads must call.
template <class Cell, unsigned VECTORS, unsigned BLOCK>
GPR_DEVICE bool sum_one_tile(const Run<typename Cell::In> &run, const Row &row, typename Cell::Out *out,
                             Held<typename Cell::In> *held)
{
    using In = typename Cell::In;
    using Adder = FloatAdder<Cell, VECTORS>;
    const Vector nothing = Adder::nothing();
    Tiles<VECTORS, BLOCK, BLOCK, In> tiles(run, row);
    Vector v[VECTORS];
    const unsigned used = tiles.fetch_only(v, nothing);
    bool is_held = used == 0;

    *held = {};
    clear_sums<In, 1, BLOCK>();
    if constexpr (has_tile_windows<Cell>) {
        if (used > 0 && tiles.is_done()) is_held = hold_tile<Cell>(v, used, held);
        if (finish_alone<Cell, BLOCK>(*held, is_held, row, out)) return true;
    }
    if (!is_held) {
        const bool has_edges = !tiles.is_done();
        const Vector edges = has_edges ? tiles.edge(nothing) : nothing;
        *held = hold_anything<Cell, VECTORS>(bit_copy<typename Adder::Tile>(v), used, edges, has_edges);
    }
    return false;
}

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact(const typename Cell::In *in, typename Cell::Out *out, Rows rows, Scratch<typename Cell::Acc> scratch,
      const __grid_constant__ Layout layout)
{
    using In = typename Cell::In;
    constexpr unsigned vectors = 4;
    const Row row = rows.mine(blockIdx.x);
    const Start start = layout.row(row.index);
    const Run<In> run(in + start.in, row.n);
    const auto prepare = [] { clear_sums<In, 1, BLOCK>(); };
    Adder<Cell, vectors> adder;

    if constexpr (adds_floats<Cell>) {
        Held<In> held;
        if (run.vectors <= static_cast<uint64>(row.blocks) * (vectors * BLOCK)) {
            if (sum_one_tile<Cell, vectors, BLOCK>(run, row, out + start.out, &held)) return;
        } else {
            take_tiles<vectors, BLOCK>(adder, run, row, prepare);
            held = hold(adder);
        }
        finish_run<Cell, BLOCK>(held, row, scratch, layout.slots, out + start.out);
    } else {
        take_tiles<vectors, BLOCK>(adder, run, row, prepare);
        adder.close();
        finish_sums<Cell, 1, BLOCK>(1, 1, row, scratch, layout.slots, [&](unsigned) { return out + start.out; });
    }
}

} // namespace gpr
