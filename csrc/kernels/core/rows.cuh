// The launch contract: the parameters of every kernel, and which row a block serves.
//
// A call reduces `count` rows of `n` elements each, which follow each other in memory, to `count`
// accumulators. `blocks` blocks serve each row. Virtual blocks are numbered through all rows, row
// by row; a launch may hold only some of them (a grid has at most 2^31 - 1 blocks), beginning with
// `first`. The numbers of rows and of elements are never zero, and no launch has a block without a
// row.
//
//   rows.blocks = 3     row          0        1        2
//                       blocks     0  1  2  3  4  5  6  7  8       virtual block
//                                  0  1  2  0  1  2  0  1  2       block of its row
//
// Every kernel is
//   template <class Traits, unsigned BLOCK> __global__ void name(in, out, rows, scratch)
// launched with BLOCK threads. Where its results go depends on the kernel's finish, a column of the
// registry:
//   passes   out[v] for virtual block v; the caller reduces these again where a row has several
//   atomic   out[row], which fill_identity has set before
//   ticket   out[row], by way of scratch; see ticket.cuh
// Kernels of `fast` and `exact` have more parameters after these, in this order: the array's layout
// (layout.cuh), what results depend on (finalize.cuh), and the second array where there are two.
#pragma once

#include "kernel_traits.cuh"
#include "launch_params.h"
#include "tuning.h"
#include "vector.cuh"

namespace gpr {

// Constants of the program, which come before any include: per_thread is the kernel's from the
// registry, lanes is how many lanes of a warp serve a row in fast_rows.
static_assert(per_thread >= 1, "a thread takes at least one element");
static_assert(lanes >= 1 && lanes <= GPR_WARP_LANES && (lanes & (lanes - 1)) == 0,
              "a power of two, up to a warp");

// The row that a block serves, and which of the row's blocks it is.
struct Row {
    uint64 n;             // elements of the row
    uint64 begin;         // index of its first element
    uint64 index;         // of the row
    uint64 virtual_block; // among the blocks of all rows
    unsigned block;       // among the blocks of this row
    unsigned blocks;      // that serve this row
};

using Rows = gpr_rows_params;

// Returns the row of a block of the grid.
GPR_DEVICE Row row_of(const Rows &rows, unsigned block_of_grid)
{
    Row row;
    row.n = rows.n;
    row.blocks = rows.blocks;
    row.virtual_block = rows.first + block_of_grid;
    if (rows.blocks == 1) { // saves short rows a division of 64 bits
        row.index = row.virtual_block;
        row.block = 0;
    } else if (rows.count == 1) {
        row.index = 0;
        row.block = static_cast<unsigned>(row.virtual_block);
    } else {
        row.index = row.virtual_block / rows.blocks;
        row.block = static_cast<unsigned>(row.virtual_block % rows.blocks);
    }
    row.begin = row.index * rows.n;
    return row;
}

// The same of a launch of one block per row, for kernels that have no others.
GPR_DEVICE Row only_block_row(const Rows &rows, unsigned block_of_grid)
{
    const uint64 index = rows.first + block_of_grid;
    return Row{rows.n, index * rows.n, index, index, 0, 1};
}

// Returns the row and hides its number and its block's (types.cuh): what several blocks of a row
// need is computed behind this, and not where rows have one.
GPR_DEVICE Row anew(Row row)
{
    row.virtual_block = anew(row.virtual_block);
    row.index = anew(row.index);
    return row;
}

// Threads that fit a multiprocessor of every supported GPU, with 64 registers each.
constexpr unsigned resident_threads = GPR_RESIDENT_THREADS;
static_assert(sizeof(Vector) == GPR_VECTOR_BYTES, "the most that one instruction loads");

template <class Acc> struct Scratch : gpr_scratch_params {
    GPR_DEVICE Acc *partials() const { return static_cast<Acc *>(gpr_scratch_params::partials); }
};

// Returns element i of the row that begins at `in`, lifted; past the row's end, the identity.
template <class Traits>
GPR_DEVICE typename Traits::Acc load_or_identity(const typename Traits::In *in, uint64 i, uint64 n)
{
    return i < n ? Traits::lift(in[i], i) : Traits::identity();
}

// Returns elements i and j, lifted and combined: the first add of a tree, done while loading.
template <class Traits>
GPR_DEVICE typename Traits::Acc load_pair(const typename Traits::In *in, uint64 i, uint64 j,
                                          uint64 n)
{
    return Traits::combine(load_or_identity<Traits>(in, i, n), load_or_identity<Traits>(in, j, n));
}

// Stores the identity to `count` outputs, for kernels that finish by atomics. Any grid, any block
// size.
template <class Traits> __global__ void fill_identity(typename Traits::Acc *out, uint64 count)
{
    const uint64 threads = static_cast<uint64>(gridDim.x) * blockDim.x;
    for (uint64 i = static_cast<uint64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += threads) {
        out[i] = Traits::identity();
    }
}

} // namespace gpr
