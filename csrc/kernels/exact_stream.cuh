// exact_stream: exact, for float64 in rows so long that nothing counts but how fast memory brings them.
//
// Removed: the second tile in registers. Where a tile is read while one is added, each of them stays there until windows are known
// to hold it. Here a vector's place is asked for anew as soon as the vector has been taken from it; the few tiles that windows do not
// hold are read again. With registers for one tile instead of two a multiprocessor has room for as many threads as auto_stream has
// there, and as many loads under way.
//
// Still paid: a thread's second tile is not under way before its first one is there. Where blocks have few tiles each, that takes
// longer than it saves.
//
// Launch: as exact; a multiprocessor holds blocks of resident_threads threads together for sure.
#pragma once

#include "exact_held.cuh"
#include "exact_run.cuh"

namespace gpr {

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
exact_stream(const typename Cell::In *in, typename Cell::Out *out, Rows rows, Scratch<typename Cell::Acc> scratch,
             const __grid_constant__ Layout layout)
{
    using In = typename Cell::In;
    using Adder = FloatAdder<Cell, 4>;
    const Row row = rows.mine(blockIdx.x);
    const Start start = layout.row(row.index);
    const Run<In> run(in + start.in, row.n);
    const Vector nothing = Adder::nothing();
    Tiles<Adder::vectors, BLOCK, warp_lanes, In> tiles(run, row);
    typename Adder::Tile tile;
    Adder adder;

    tiles.fetch(tile.v, nothing);
    clear_sums<In, 1, BLOCK>();
    while (!tiles.is_done()) {
        const bool has_next = tiles.is_next_full();
        const auto refill = [&](unsigned k) {
            if (has_next) tile.v[k] = tiles.load_next(k);
        };
        const auto again = [&] {
            typename Adder::Tile read;
            tiles.fetch(read.v, nothing);
            return read;
        };
        adder.take_streamed(tile, refill, again);
        tiles.advance();
        if (!has_next) tiles.fetch(tile.v, nothing);
    }
    finish_run<Cell, BLOCK>(hold(adder), row, scratch, layout.slots, out + start.out);
}

} // namespace gpr
