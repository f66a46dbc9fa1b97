// Cooperative groups on the emulator: the block, tiles of a warp and the lanes that are active.
//
// Groups are made of the barriers and shuffles of cuda_on_cpu.h, so that the emulator finds the
// same mistakes in kernels that use them. The grid's group is left out: its barrier needs a
// cooperative launch.
#ifndef GPR_EMU_COOPERATIVE_GROUPS_H
#define GPR_EMU_COOPERATIVE_GROUPS_H

namespace cooperative_groups
{

class thread_block
{
  public:
    static void sync()
    {
        __syncthreads();
    }
    static unsigned thread_rank()
    {
        return threadIdx.x;
    }
    static unsigned size()
    {
        return blockDim.x;
    }
    static unsigned num_threads()
    {
        return blockDim.x;
    }
    static gpr_emu_dim group_index()
    {
        return blockIdx;
    }
    static gpr_emu_dim thread_index()
    {
        return threadIdx;
    }
    static gpr_emu_dim dim_threads()
    {
        return blockDim;
    }
};

__forceinline__ thread_block this_thread_block()
{
    return {};
}

template <unsigned SIZE, class Parent = thread_block> class thread_block_tile
{
    static_assert(SIZE >= 1 && SIZE <= 32 && (SIZE & (SIZE - 1)) == 0,
                  "a tile has 1, 2, 4, 8, 16 or 32 threads");
    static unsigned mask()
    {
        return SIZE == 32 ? ~0u : ((1u << (SIZE % 32)) - 1) << (threadIdx.x % 32 / SIZE * SIZE);
    }

  public:
    static void sync()
    {
        __syncwarp(mask());
    }
    static unsigned thread_rank()
    {
        return threadIdx.x % SIZE;
    }
    static constexpr unsigned size()
    {
        return SIZE;
    }
    static constexpr unsigned num_threads()
    {
        return SIZE;
    }
    static unsigned meta_group_rank()
    {
        return threadIdx.x / SIZE;
    }
    static unsigned meta_group_size()
    {
        return (blockDim.x + SIZE - 1) / SIZE;
    }
    template <class T> T shfl(T value, int rank) const
    {
        return __shfl_sync(mask(), value, rank, SIZE);
    }
    template <class T> T shfl_down(T value, unsigned delta) const
    {
        return __shfl_down_sync(mask(), value, delta, SIZE);
    }
    template <class T> T shfl_up(T value, unsigned delta) const
    {
        return __shfl_up_sync(mask(), value, delta, SIZE);
    }
    template <class T> T shfl_xor(T value, int ranks) const
    {
        return __shfl_xor_sync(mask(), value, ranks, SIZE);
    }
    int any(int p) const
    {
        return __any_sync(mask(), p);
    }
    int all(int p) const
    {
        return __all_sync(mask(), p);
    }
    unsigned ballot(int p) const
    {
        return __ballot_sync(mask(), p) >> (threadIdx.x % 32 / SIZE * SIZE);
    }
};

template <unsigned SIZE, class Parent>
__forceinline__ thread_block_tile<SIZE, Parent> tiled_partition(const Parent &)
{
    return {};
}

// The lanes of a warp that call coalesced_threads() together.
class coalesced_group
{
    unsigned mask;

    unsigned lane_of(unsigned rank) const
    {
        unsigned left = mask;
        for (unsigned i = 0; i < rank && left != 0; i++) left &= left - 1;
        return left != 0 ? static_cast<unsigned>(__builtin_ctz(left)) : threadIdx.x % 32;
    }

  public:
    explicit coalesced_group(unsigned lanes) : mask(lanes)
    {
    }
    void sync() const
    {
        __syncwarp(mask);
    }
    unsigned size() const
    {
        return static_cast<unsigned>(__popc(mask));
    }
    unsigned num_threads() const
    {
        return size();
    }
    unsigned thread_rank() const
    {
        return static_cast<unsigned>(__popc(mask & ((1u << threadIdx.x % 32) - 1)));
    }
    template <class T> T shfl(T value, int rank) const
    {
        return __shfl_sync(mask, value, static_cast<int>(lane_of(static_cast<unsigned>(rank))));
    }
    template <class T> T shfl_down(T value, unsigned delta) const
    {
        return __shfl_sync(mask, value, static_cast<int>(lane_of(thread_rank() + delta)));
    }
};

__forceinline__ coalesced_group coalesced_threads()
{
    return coalesced_group(__activemask());
}

template <class Group> __forceinline__ void sync(const Group &group)
{
    group.sync();
}

template <class T> struct plus {
    T operator()(T a, T b) const
    {
        return a + b;
    }
};
template <class T> struct less {
    T operator()(T a, T b) const
    {
        return b < a ? b : a;
    }
};
template <class T> struct greater {
    T operator()(T a, T b) const
    {
        return a < b ? b : a;
    }
};

// Every thread of the tile gets the result.
template <unsigned SIZE, class Parent, class T, class Op>
__forceinline__ T reduce(const thread_block_tile<SIZE, Parent> &tile, T value, Op op)
{
    for (unsigned ranks = SIZE / 2; ranks > 0; ranks /= 2)
        value = op(value, tile.shfl_xor(value, static_cast<int>(ranks)));
    return value;
}

} // namespace cooperative_groups

#endif
