/* Between a kernel compiled for the CPU (cuda_on_cpu.h) and the emulator: the hooks that the
 * emulator has for it, and the description that a module exports. C and C++ read this file. A
 * module carries its own copy: GPR_EMU_ABI shows whether both agree. */
#ifndef GPR_EMU_ABI_H
#define GPR_EMU_ABI_H

#define GPR_EMU_ABI 5u

/* Bytes from one shared variable to the next. None is larger than 48 KiB, so that the bytes behind
 * each belong to no variable. */
#define GPR_EMU_SHARED_SPACING 65536

/* Most dynamic shared memory of a launch that asks for no more than every GPU grants. A module
 * that has any has room for all of it under the name gpr_emu_dynamic_shared. */
#define GPR_EMU_DYNAMIC_BYTES 49152

/* Most blocks of a cluster that every GPU with clusters takes. */
#define GPR_EMU_MOST_CLUSTER 8u

enum gpr_emu_access { GPR_EMU_LOAD, GPR_EMU_STORE, GPR_EMU_ATOMIC };

/* Operations of all threads of a block. The result is that of their predicates. The last one is of
 * all threads of a cluster. */
enum gpr_emu_block_op {
    GPR_EMU_BARRIER,
    GPR_EMU_BARRIER_COUNT,
    GPR_EMU_BARRIER_AND,
    GPR_EMU_BARRIER_OR,
    GPR_EMU_CLUSTER_BARRIER
};

/* Operations of the lanes of a warp. */
enum gpr_emu_warp_op {
    GPR_EMU_WARP_BARRIER,
    GPR_EMU_SHUFFLE_INDEX,
    GPR_EMU_SHUFFLE_UP,
    GPR_EMU_SHUFFLE_DOWN,
    GPR_EMU_SHUFFLE_XOR,
    GPR_EMU_BALLOT,
    GPR_EMU_REDUCE_ADD,
    GPR_EMU_REDUCE_MIN_SIGNED,
    GPR_EMU_REDUCE_MAX_SIGNED,
    GPR_EMU_REDUCE_MIN_UNSIGNED,
    GPR_EMU_REDUCE_MAX_UNSIGNED,
    GPR_EMU_REDUCE_AND,
    GPR_EMU_REDUCE_OR,
    GPR_EMU_REDUCE_XOR
};

enum gpr_emu_fence { GPR_EMU_FENCE_BLOCK, GPR_EMU_FENCE_DEVICE };

typedef struct gpr_emu_dim {
    unsigned x, y, z;
} gpr_emu_dim;

/* Each is called by a thread; `pc` is its address in the kernel's code. Those that wait return when
 * all threads have arrived. */
typedef struct gpr_emu_hooks {
    void (*access)(const void *address, unsigned bytes, int access, const void *pc);
    unsigned (*block_op)(int op, unsigned predicate, const void *pc);
    unsigned (*warp_op)(int op, unsigned mask, unsigned value, unsigned argument, unsigned width,
                        const void *pc);
    unsigned (*active_lanes)(const void *pc);
    void (*fence)(int scope, const void *pc);
    /* Copies of a thread from global to shared memory, which arrive at a wait: each belongs to the
     * thread's next group; the wait is for all groups but the `newest` last ones. */
    void (*copy_async)(void *to, const void *from, unsigned bytes, const void *pc);
    void (*end_group)(void);
    void (*wait_groups)(unsigned newest, const void *pc);
    /* Barriers in shared memory, of 8 bytes. An arrival announces `bytes` of copies before. */
    void (*mbarrier_init)(void *barrier, unsigned arrivals, const void *pc);
    void (*mbarrier_publish)(const void *pc); /* to copies: those that the thread initialized */
    void (*mbarrier_arrive)(void *barrier, unsigned bytes, const void *pc);
    void (*mbarrier_wait)(void *barrier, unsigned parity, const void *pc);
    /* A copy from global to shared memory that counts for the barrier's current phase. */
    void (*copy_bulk)(void *to, const void *from, unsigned bytes, void *barrier, const void *pc);
    /* Where a shared variable is in the block of another rank of the cluster. */
    const void *(*shared_of)(const void *mine, unsigned rank, const void *pc);
    /* Lets other threads run until a word of global memory is another than `seen`. */
    void (*wait_for_change)(const unsigned *word, unsigned seen, const void *pc);
} gpr_emu_hooks;

typedef struct gpr_emu_entry {
    const char *name; /* the name expression */
    void (*run)(void *const *arguments);
    unsigned argument_count;
    const unsigned *argument_bytes;
} gpr_emu_entry;

/* A module's export, under the name gpr_emu_exports. */
typedef struct gpr_emu_module {
    unsigned abi;
    const gpr_emu_hooks **hooks; /* set when blocks run */
    gpr_emu_dim *thread, *block, *block_dim, *grid_dim;
    unsigned *cluster_rank, *cluster_blocks;
    const gpr_emu_entry *entries;
    unsigned entry_count;
} gpr_emu_module;

#endif
