// The launch contract: what every kernel is told, and which part of it is a block's.
//
// A call reduces `count` rows of `n` elements each, one row after another in memory, to `count` accumulators. Each row
// is served by `blocks` blocks. Blocks are numbered through all rows, row by row; a launch may hold only some of them
// (a grid ends at 2^31 - 1 blocks), which is what `first` is for. Rows and elements are never zero in number, and a
// launch has no block that serves no row.
//
// Every kernel is
//   template <class Cell, unsigned BLOCK> __global__ void name(in, out, rows, scratch)
// launched with BLOCK threads. Where the result goes is the kernel's finish, in its row of the registry:
//   passes   out[v] for virtual block v; the caller reduces these again if there were several to a row
//   atomic   out[row], which fill_identity filled before
//   ticket   out[row], by way of scratch; see block.cuh
// The planner's kernels, and those of exact sums, are told more, after that and in this order: the array's layout
// (layout.cuh), what results depend on (finalize.cuh), and the second array where there are two.
#pragma once

#include "kernel_traits.cuh"

namespace gpr {

// Constants of the program, which come before any include: per_thread is the kernel's from the registry, lanes is how
// many lanes of a warp serve a row in auto_rows.
static_assert(per_thread >= 1, "a thread takes at least one element");
static_assert(lanes >= 1 && lanes <= 32 && (lanes & (lanes - 1)) == 0, "a power of two, up to a warp");

// One block's share of the work.
struct Row {
    uint64 n;             // elements of the row
    uint64 begin;         // index of its first element
    uint64 index;         // of the row
    uint64 virtual_block; // among the blocks of all rows
    unsigned block;       // among the blocks of this row
    unsigned blocks;      // that serve this row
};

struct Rows {
    uint64 n;        // elements in a row
    uint64 count;    // rows
    uint64 first;    // virtual block that block 0 of the grid is
    unsigned blocks; // per row; 0: a block serves several rows (auto_rows only)

    GPR_DEVICE Row mine(unsigned block_of_grid) const
    {
        Row row;
        row.n = n;
        row.blocks = blocks;
        row.virtual_block = first + block_of_grid;
        if (blocks == 1) { // spares a block of a short row a division of 64 bits
            row.index = row.virtual_block;
            row.block = 0;
        } else if (count == 1) {
            row.index = 0;
            row.block = static_cast<unsigned>(row.virtual_block);
        } else {
            row.index = row.virtual_block / blocks;
            row.block = static_cast<unsigned>(row.virtual_block % blocks);
        }
        row.begin = row.index * n;
        return row;
    }
};

// Threads that every supported card has room for on a multiprocessor: the compiler may take 64 registers for each.
constexpr unsigned resident_threads = 1024;

// Memory for kernels whose last block combines; other kernels do not look at it.
template <class Acc> struct Scratch {
    Acc *partials;     // one a virtual block
    unsigned *tickets; // one a row, zero before and after
};

// Element i of the row that starts at `in`, lifted; past the end of the row, the identity.
template <class Cell> GPR_DEVICE typename Cell::Acc load_or_identity(const typename Cell::In *in, uint64 i, uint64 n)
{
    return i < n ? Cell::lift(in[i], i) : Cell::identity();
}

// The second of two arrays, whose elements meet the first one's in pairs.
struct SecondArray {
    const void *in; // elements of the cell's type for them
    long long step; // from one to the next, in elements
};

// Elements i and j, lifted and combined: the first add of a tree, done while loading.
template <class Cell>
GPR_DEVICE typename Cell::Acc load_pair(const typename Cell::In *in, uint64 i, uint64 j, uint64 n)
{
    return Cell::combine(load_or_identity<Cell>(in, i, n), load_or_identity<Cell>(in, j, n));
}

// Prepares `count` outputs for kernels that finish by atomics. Any grid, any block size.
template <class Cell> __global__ void fill_identity(typename Cell::Acc *out, uint64 count)
{
    const uint64 threads = static_cast<uint64>(gridDim.x) * blockDim.x;
    for (uint64 i = static_cast<uint64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads) {
        out[i] = Cell::identity();
    }
}

} // namespace gpr
