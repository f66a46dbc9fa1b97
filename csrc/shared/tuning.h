/* Tuning constants that the plan and the kernels both depend on: the plan chooses grids by them,
 * kernels are written for them. What only one side needs is there. */
#ifndef GPR_SHARED_TUNING_H
#define GPR_SHARED_TUNING_H

#include "language.h"

/* ---------------------------------------------------------------- GPUs ----------------------- */

enum {
    GPR_WARP_LANES = 32,
    GPR_MOST_BLOCK = 1024, /* threads */
    GPR_VECTOR_BYTES = 16, /* that one instruction loads for a thread, from a multiple of them on */
    GPR_SECTOR_BYTES = 32  /* the least that memory delivers */
};

/* Threads that kernels let a multiprocessor hold for every dtype and operator: the compiler may
 * take 64 registers for each. With more blocks than fit at once the last wave of them would leave
 * the GPU half empty. Kernels of exact sums have two tiles in registers: fewer threads. */
enum { GPR_RESIDENT_THREADS = 1024, GPR_EXACT_RESIDENT_THREADS = 768 };

/* Blocks of a cooperative launch that a multiprocessor of every GPU holds at once: as many threads
 * as above, in no more blocks than the GPUs with the fewest places for blocks have. */
enum { GPR_LEAST_BLOCK_PLACES = 16 };
GPR_CONSTANT_FUNCTION unsigned gpr_cooperative_blocks(unsigned block)
{
    return GPR_RESIDENT_THREADS / block < GPR_LEAST_BLOCK_PLACES ? GPR_RESIDENT_THREADS / block
                                                                 : (unsigned)GPR_LEAST_BLOCK_PLACES;
}

/* ---------------------------------------------------------------- fast ----------------------- */

/* Vectors that a thread has under way where rows are runs of memory: with GPR_RESIDENT_THREADS
 * 64 KiB per multiprocessor, where 24 KiB keep the memory of an H200 busy (4.6 TB/s for the 0.7 us
 * that a load takes). Twice as many cost registers that the compiler does not find. */
enum { GPR_STREAM_VECTORS = 4, GPR_STREAM_BYTES = GPR_STREAM_VECTORS * GPR_VECTOR_BYTES };

/* Threads of a row from which on what is less than a round is read element by element: a round of
 * fewer has less than 2^32 elements. */
enum { GPR_MANY_THREADS = 1 << 24 };

/* Items that a thread has under way where rows are no runs of memory: 64 bytes, but no more items
 * than registers hold beside their addresses: fewer where several axes are iterated over and a mask
 * is read too. */
enum { GPR_ITEMS_UNDER_WAY = 4, GPR_MOST_UNDER_WAY = 16 };
GPR_CONSTANT_FUNCTION unsigned gpr_items_under_way(unsigned item_bytes, unsigned reduced_axes,
                                                   int is_masked)
{
    const unsigned most =
        reduced_axes > 1 && is_masked ? GPR_MOST_UNDER_WAY / 2 : (unsigned)GPR_MOST_UNDER_WAY;
    const unsigned wanted = item_bytes >= GPR_VECTOR_BYTES ? (unsigned)GPR_ITEMS_UNDER_WAY
                            : item_bytes >= 4              ? 2 * (unsigned)GPR_ITEMS_UNDER_WAY
                                                           : (unsigned)GPR_MOST_UNDER_WAY;

    return wanted < most ? wanted : most;
}
/* And where accumulators are pairs of doubles or have positions, which take registers too. */
GPR_CONSTANT_FUNCTION unsigned gpr_fewer_under_way(unsigned items, int is_masked)
{
    const unsigned most = (unsigned)GPR_MOST_UNDER_WAY / 2, fewer = items < most ? items : most;

    return is_masked ? fewer / 2 : fewer;
}

/* Bytes of a block's accumulators in shared memory, and of a thread's, there and in registers: with
 * these a multiprocessor holds as many blocks as without. */
enum { GPR_BLOCK_ACC_BYTES = 32 << 10, GPR_THREAD_ACC_BYTES = 64 };

/* Rows of fast_few that have more elements than GPR_COUNTED_ELEMENTS share programs that have room
 * for the next multiple of GPR_FEW_STEP. */
enum { GPR_COUNTED_ELEMENTS = 8, GPR_FEW_STEP = 4 };

/* The most columns of a thread of fast_few whose sums are pairs of doubles: a word has a bit for
 * each that is left. */
enum { GPR_FEW_COLUMNS = 32 };

/* Elements of a short row that a lane reads at least, so that few lanes idle. */
enum { GPR_LEAST_LANE_ELEMENTS = 4 };

/* Bytes of a block's short rows together: enough to be under way at once, and as many as shared
 * memory takes where rows come through it. */
enum { GPR_BLOCK_ROWS_BYTES = 32 << 10 };

/* ---------------------------------------------------------------- exact sums ----------------- */

/* Bytes of neighbouring rows that a block of strided exact sums adds side by side. A warp reads
 * whole runs of memory: the first are enough, more up to the second where the last blocks would
 * leave the GPU half empty otherwise. A row of a variance takes more shared memory. */
enum { GPR_STRIP_BYTES = 256, GPR_MOST_STRIP_BYTES = 512, GPR_MOMENTS_STRIP_BYTES = 128 };

/* Rows whose elements of `element` bytes are so many bytes side by side: at least one per lane, at
 * most one per thread. */
GPR_CONSTANT_FUNCTION unsigned gpr_strip_rows(unsigned bytes, unsigned element, unsigned block)
{
    const unsigned rows = bytes / element;
    const unsigned wanted = rows > GPR_WARP_LANES ? rows : (unsigned)GPR_WARP_LANES;

    return wanted < block ? wanted : block;
}

/* Rows of a variance: at most one per lane. */
GPR_CONSTANT_FUNCTION unsigned gpr_moments_strip_rows(unsigned element_bytes)
{
    const unsigned rows = GPR_MOMENTS_STRIP_BYTES / element_bytes;

    return rows < GPR_WARP_LANES ? rows : (unsigned)GPR_WARP_LANES;
}

/* Vectors of a tile whose elements are loaded one by one: of 16 elements, whose loads are under way
 * together; of fewer where rows have several axes, and each takes many instructions to find. */
enum { GPR_TILE_VECTORS = 4, GPR_MANY_AXES_TILE_VECTORS = 2 };

GPR_CONSTANT_FUNCTION unsigned gpr_tile_vectors(unsigned element_bytes, unsigned reduced_axes)
{
    const unsigned most = reduced_axes == 1 ? GPR_TILE_VECTORS : GPR_MANY_AXES_TILE_VECTORS;

    return element_bytes < most ? element_bytes : most;
}

/* Most threads of a block of exact_rows: shared memory has a superaccumulator per warp and real
 * number of an element. */
GPR_CONSTANT_FUNCTION unsigned gpr_most_exact_rows_block(unsigned parts)
{
    return parts > 1 ? GPR_MOST_BLOCK / 2 : (unsigned)GPR_MOST_BLOCK;
}

/* Most elements of a row that is summed as two floats or two doubles: the errors of so few
 * additions add up sooner than bins are placed. More of float32, as additions of floats take half
 * as long as the doubles of bins. */
GPR_CONSTANT_FUNCTION unsigned gpr_most_double_double(unsigned element_bytes)
{
    return element_bytes == 8 ? 4 : element_bytes == 4 ? 16 : 8;
}

/* Exact sums by the kernels of fast, whose accumulators are pairs of doubles. A thread adds float16
 * without a proof, and at most GPR_PAIR_SHARE of them: an element has 40 bits, their number has 13,
 * and a double has 53. */
enum { GPR_PAIR_SHARE_BITS = 13, GPR_PAIR_SHARE = 1 << GPR_PAIR_SHARE_BITS };

/* Bytes of such an accumulator; `counts`: it counts elements, as some are left out of a mean. */
GPR_CONSTANT_FUNCTION unsigned gpr_pair_bytes(int counts)
{
    return counts ? 24 : 16;
}

#endif
