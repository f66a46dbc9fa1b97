// exact: the real sum of the elements, rounded once. The same bits in any order, by any grid, on
// any GPU.
//
// Removed: rounding on the way. A double that begins at 1.5 * 2^p and stays between 2^p and 2^(p +
// 1) has its last place at 2^(p - 52) all the time: what is added to it is cut to multiples of
// that, and what the sum grew by is found exactly by one subtraction. So three additions split an
// element in two without an error: the part above 2^(p - 53), which is in the sum, and the rest,
// which goes on to the next such bin, 42 bits below. Where the last rest is zero, the bins hold
// every bit. Three of them hold float64 over 68 binary orders of magnitude, two of them float32
// over 55; one is enough for 16-bit floats, whose range is small.
//
// A bin less what it began with is an integer, and integers are added without regard to order: over
// a warp, over the block and over the row's blocks (exact_limb_partial.cuh). Every thousand
// elements of a thread, before a bin could overflow, it begins anew, and the warp keeps what it
// held.
//
// Whether elements fit the bins is asked once for a tile: whether the first bin ever left its range
// (an element is too large, infinite or NaN), and whether a rest was left. If so, the tile does not
// count, and its elements are added one by one: to the bins, or limb by limb. Where that is much of
// a tile, and again, the bins move to where it lies; meanwhile float32 and bfloat16 have bins that
// hold every number they have. Where bins lie changes the time that is taken, never the sum. Of
// float32 and bfloat16, integer instructions tell beforehand: that is cheaper than to look at what
// was left.
//
// Still paid: three additions a bin for each element, where a sum has one; and a little more at a
// block's end.
//
// Where a warp has one tile of its row, that has bins of its own (exact_single_tile.cuh).
//
// This kernel reads rows that are runs of memory, by vectors. Those that lie otherwise are
// exact_strided.cuh's, and short ones exact_rows.cuh's.
//
// Launch: any number of blocks a row; BLOCK a multiple of 32; out[row] is written by one block: the
// accumulator, or the result. With more than one block per row, a row has counters in scratch, zero
// before and after (exact_merge.cuh). layout.slots rows have them, row i those of row i % slots; no
// two of one slot are under way together.
//
// Reference: the bins are those of Rump's extraction of vectors, and of the binned sums of Demmel,
// Ahrens and Nguyen (ReproBLAS), which round; the fixed-point number is Kulisch's. Neither was made
// to be checked by the tile.
#pragma once

#include "exact_run.cuh"
#include "exact_single_tile.cuh"

namespace gpr {

// What a warp holds after one tile, of which the first `used` vectors have elements, and a vector
// of edges behind it, if it has some: whatever they are. All lanes must call.
template <class Traits, unsigned VECTORS>
GPR_CALLED LimbPartial<typename Traits::In> partial_of_any_tile(
    typename FloatAdder<Traits, VECTORS, RunGroup>::Tile tile, unsigned used, Vector edges,
    bool has_edges)
{
    constexpr unsigned at_once = 4; // there are registers for them
    FloatAdder<Traits, VECTORS, RunGroup> adder;
#pragma unroll 1
    for (;;) {
        adder.template accumulate<at_once>(tile.v, used);
        if (!has_edges) return partial_of(adder);
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) tile.v[k] = k == 0 ? edges : adder.nothing();
        used = 1;
        has_edges = false;
    }
}

// What a warp holds of a row whose threads have one tile each. Nobody waits for memory meanwhile,
// so that instructions count. Or stores the sum, if the block has the row alone, and says that it
// has. All threads must call.
template <class Traits, unsigned VECTORS, unsigned BLOCK>
GPR_DEVICE bool sum_one_tile(const Run<typename Traits::In> &run, const Row &row,
                             typename Traits::Out *out, LimbPartial<typename Traits::In> *partial)
{
    using In = typename Traits::In;
    using Adder = FloatAdder<Traits, VECTORS, RunGroup>;
    const Vector nothing = Adder::nothing();
    const OnlyTile<VECTORS, BLOCK, In> tile(run, row, nothing);
    bool is_complete = tile.used == 0;

    *partial = {};
    clear_superaccumulators<In, 1, BLOCK>();
    if constexpr (has_tile_bins<Traits>) {
        if (tile.used > 0 && !tile.has_edges)
            is_complete = partial_of_tile<Traits>(tile.v, tile.used, partial);
        if (finalize_row_of_block<Traits, BLOCK>(*partial, is_complete, row, out)) return true;
    }
    if (!is_complete) {
        const typename Adder::Tile any = bit_copy<typename Adder::Tile>(tile.v);
        *partial = partial_of_any_tile<Traits, VECTORS>(any, tile.used, tile.edges, tile.has_edges);
    }
    return false;
}

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
      Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout)
{
    using In = typename Traits::In;
    constexpr unsigned vectors = GPR_STREAM_VECTORS;
    const Row row = row_of(rows, blockIdx.x);
    const RowOffsets start = layout.row_offsets(row.index);
    const Run<In> run(in + start.in, row.n);
    const auto prepare = [] { clear_superaccumulators<In, 1, BLOCK>(); };
    Adder<Traits, vectors, RunGroup> adder;

    if constexpr (adds_floats<Traits>) {
        LimbPartial<In> partial;
        if (run.vectors <= static_cast<uint64>(row.blocks) * (vectors * BLOCK)) {
            if (sum_one_tile<Traits, vectors, BLOCK>(run, row, out + start.out, &partial)) return;
        } else {
            accumulate_tiles<vectors, BLOCK>(adder, run, row, prepare);
            partial = partial_of(adder);
        }
        finalize_run<Traits, BLOCK>(partial, row, scratch, layout.slots, out + start.out);
    } else {
        accumulate_tiles<vectors, BLOCK>(adder, run, row, prepare);
        adder.finalize();
        finalize_integers<Traits, 1, BLOCK>(1, 1, row, scratch, layout.slots,
                                            [&](unsigned) { return out + start.out; });
    }
}

} // namespace gpr
