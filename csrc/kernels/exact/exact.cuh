// exact: the real sum of the elements, rounded once. The same bits in any order, by any grid, on
// any GPU.
//
// Removed: rounding after every addition. A double that begins at 1.5 * 2^p and stays between 2^p
// and 2^(p + 1) has its last bit at 2^(p - 52) all the time. An element that is added to it is
// rounded to a multiple of 2^(p - 52), and one subtraction finds exactly by how much the sum grew.
// So three additions split an element in two without an error:
//
//     element = grown part (in the sum) + remainder (goes to the next bin, 42 bits lower)
//
// Where the last remainder is zero, the bins hold every bit. Three bins hold float64 over 68 binary
// orders of magnitude, two hold float32 over 55; one is enough for 16-bit floats, whose range is
// small.
//
// A bin less its bias is an integer, and integers are added in any order: over a warp, over the
// block and over the row's blocks (exact_limb_partial.cuh). After 1024 elements of a thread, before
// a bin could overflow, bins spill to integers of the warp and begin anew.
//
// Whether elements fit is checked once per tile: whether the first bin ever left its range (an
// element is too large, infinite or NaN), and whether the last bin left a remainder. If so, the
// tile is undone, and its elements are added one by one: to the bins, or limb by limb. If that
// happens to much of a tile, and again, the bins move to the tile's magnitude; meanwhile float32
// and bfloat16 are added to wide bins, which hold every number of these types. The bins' position
// changes the time, never the sum. For float32 and bfloat16 integer instructions check a tile
// before it is added: that is cheaper than to collect remainders.
//
// Still paid: three additions per bin and element, where a sum has one; and some time at a block's
// end.
//
// A warp that has one tile of its row sums it in bins of their own (exact_single_tile.cuh).
//
// This kernel reads rows that are runs of memory, by vectors. exact_strided.cuh reads other rows,
// exact_rows.cuh short ones.
//
// Launch: any number of blocks per row; BLOCK a multiple of 32; out[row] is written by one block:
// the accumulator, or the result. With more than one block per row, a row has counters in scratch,
// zero before and after (exact_merge.cuh). layout.slots rows have counters, row i those of slot i %
// slots; no two rows of a slot are in flight together.
//
// Reference: the bins are those of Rump's extraction of vectors, and of the binned sums of Demmel,
// Ahrens and Nguyen (ReproBLAS), which round; the superaccumulator is Kulisch's. Neither checks
// tiles.
#pragma once

#include "exact_run.cuh"
#include "exact_single_tile.cuh"

namespace gpr {

// The partial of a warp after one tile of any elements, of which the first `used` vectors have
// elements, and a vector of edges, if it has some. All lanes must call.
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

// Adds a warp's edges to the partial of its tile, if bins of their own hold them. Returns whether
// they do. All lanes must call.
template <class Traits>
GPR_CALLED bool add_edges(Vector edges, LimbPartial<typename Traits::In> *partial)
{
    // as many vectors as bins take at once
    constexpr unsigned vectors = vector_elements<typename Traits::In> < 4 ? 2 : 1;
    LimbPartial<typename Traits::In> more;
    Vector v[vectors];
#pragma unroll
    for (unsigned k = 0; k < vectors; k++)
        v[k] = k == 0 ? edges : FloatAdder<Traits, vectors, RunGroup>::nothing();
    const bool fits = partial_of_tile<Traits, tile_bins<typename Traits::In>>(v, 1, &more);
    return fits && partial->merge(more);
}

// Sums a row whose threads have one tile each. No load hides the instructions, so their number
// counts. Returns true if the block has the row to itself and has stored the result; otherwise
// *partial is the warp's partial. All threads must call.
template <class Traits, unsigned VECTORS, unsigned BLOCK>
GPR_DEVICE bool sum_one_tile(const Run<typename Traits::In> &run, const Row &row,
                             typename Traits::Out *out, LimbPartial<typename Traits::In> *partial)
{
    using In = typename Traits::In;
    using Adder = FloatAdder<Traits, VECTORS, RunGroup>;
    const Vector nothing = Adder::nothing();
    OnlyTile<VECTORS, BLOCK, In> tile(run, row, nothing);
    bool is_complete = tile.used == 0;

    *partial = {};
    clear_superaccumulators<In, 1, BLOCK>();
    if constexpr (Traits::skips_nan) {
        count_left_out(RunGroup{}, &block_superaccumulator<In>().left_out,
                       tile.leave_out_nans(nothing));
    }
    if constexpr (has_tile_bins<Traits>) {
        const bool is_long = tile_bins<In> < bin_count<In> && row.blocks >= many_blocks<In>;
        if (tile.used > 0 && !is_long)
            is_complete = partial_of_tile<Traits, tile_bins<In>>(tile.v, tile.used, partial);
        if (tile.used > 0 && is_long)
            is_complete = partial_of_tile<Traits, bin_count<In>>(tile.v, tile.used, partial);
        if (tile.has_edges) {
            LimbPartial<In> with_edges = *partial; // memory that a function has the address of
            is_complete = is_complete && add_edges<Traits>(tile.edges, &with_edges);
            *partial = with_edges;
        }
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
