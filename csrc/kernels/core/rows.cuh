// The launch contract: what every kernel is told, and which part of it is a block's.
//
// A call reduces `count` rows of `n` elements each, one row after another in memory, to `count` accumulators. Each row
// is served by `blocks` blocks. Blocks are numbered through all rows, row by row; a launch may hold only some of them
// (a grid ends at 2^31 - 1 blocks), which is what `first` is for. Rows and elements are never zero in number, and a
// launch has no block that serves no row.
//
// Every kernel is
//   template <class Traits, unsigned BLOCK> __global__ void name(in, out, rows, scratch)
// launched with BLOCK threads. Where the result goes is the kernel's finish, in its row of the registry:
//   passes   out[v] for virtual block v; the caller reduces these again if there were several to a row
//   atomic   out[row], which fill_identity filled before
//   ticket   out[row], by way of scratch; see ticket.cuh
// The planner's kernels, and those of exact sums, are told more, after that and in this order: the array's layout
// (layout.cuh), what results depend on (finalize.cuh), and the second array where there are two.
#pragma once

#include "kernel_traits.cuh"
#include "launch_params.h"
#include "tuning.h"

namespace gpr {

// Constants of the program, which come before any include: per_thread is the kernel's from the registry, lanes is how
// many lanes of a warp serve a row in fast_rows.
static_assert(per_thread >= 1, "a thread takes at least one element");
static_assert(lanes >= 1 && lanes <= GPR_WARP_LANES && (lanes & (lanes - 1)) == 0, "a power of two, up to a warp");

// One block's share of the work.
struct Row {
    uint64 n;             // elements of the row
    uint64 begin;         // index of its first element
    uint64 index;         // of the row
    uint64 virtual_block; // among the blocks of all rows
    unsigned block;       // among the blocks of this row
    unsigned blocks;      // that serve this row
};

using Rows = gpr_rows_params;

// The share of a block of the grid.
GPR_DEVICE Row row_of(const Rows &rows, unsigned block_of_grid)
{
    Row row;
    row.n = rows.n;
    row.blocks = rows.blocks;
    row.virtual_block = rows.first + block_of_grid;
    if (rows.blocks == 1) { // spares a block of a short row a division of 64 bits
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

// Threads that every supported GPU has room for on a multiprocessor.
constexpr unsigned resident_threads = GPR_RESIDENT_THREADS;
static_assert(sizeof(Vector) == GPR_VECTOR_BYTES, "what one instruction loads");

template <class Acc> struct Scratch : gpr_scratch_params {
    GPR_DEVICE Acc *partials() const { return static_cast<Acc *>(gpr_scratch_params::partials); }
};

// Element i of the row that starts at `in`, lifted; past the end of the row, the identity.
template <class Traits> GPR_DEVICE typename Traits::Acc load_or_identity(const typename Traits::In *in, uint64 i, uint64 n)
{
    return i < n ? Traits::lift(in[i], i) : Traits::identity();
}

// Elements i and j, lifted and combined: the first add of a tree, done while loading.
template <class Traits>
GPR_DEVICE typename Traits::Acc load_pair(const typename Traits::In *in, uint64 i, uint64 j, uint64 n)
{
    return Traits::combine(load_or_identity<Traits>(in, i, n), load_or_identity<Traits>(in, j, n));
}

// Prepares `count` outputs for kernels that finish by atomics. Any grid, any block size.
template <class Traits> __global__ void fill_identity(typename Traits::Acc *out, uint64 count)
{
    const uint64 threads = static_cast<uint64>(gridDim.x) * blockDim.x;
    for (uint64 i = static_cast<uint64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads) {
        out[i] = Traits::identity();
    }
}

} // namespace gpr
