/* The emulator: kernels on the CPU, one fiber per CUDA thread, watched at every step.
 *
 * One launch runs at a time, on the thread of its stream. Each file uses only those above it:
 *
 *   table.c      numbers to numbers
 *   fiber.c      a thread of control with a stack of its own
 *   settings.c   options
 *   module.c     a loaded shared object: entries, shared variables, source lines
 *   copies.c     asynchronous copies that are under way
 *   mbarriers.c  barriers in shared memory, and copies that arrive there
 *   finding.c    the first broken rule of a launch
 *   check.c      the rules of memory: bounds, alignment, initialized reads, no races
 *   count.c      events of a launch, counted as the hardware counts them, for the report
 *   mbarrier_ops.c
 *                what threads do with mbarriers
 *   run.c        blocks, warps and threads: which one runs next, and what each waits for
 *   driver_state.c, driver_memory.c
 *                what the stand-in driver's files share (driver_state.h), and its allocations
 *   engine.c     the launches of the stand-in driver (engine.h)
 *   driver_*.c   libcuda's functions: streams, events, copies, captures, modules, devices
 *   compiler.c   NVRTC's functions: g++ compiles a program's text to a shared object */
#ifndef GPR_EMU_EMU_H
#define GPR_EMU_EMU_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "emu/abi.h"
#include "emu/engine.h"
#include "shared/tuning.h"

enum {
    WARP_LANES = GPR_WARP_LANES,
    MOST_THREADS = GPR_MOST_BLOCK,
    WORD_BYTES = 4,
    MOST_MBARRIERS = 64, /* of a block */
    SEVERAL_BLOCKS = 4   /* that a random schedule has under way, in whole clusters */
};

/* ---------------------------------------------------------------- settings.c ----------------- */

typedef enum schedule { FORWARD, REVERSE, RANDOM } schedule;

/* In either half of a value of 8 bytes, and as an integer or a float: far above all elements that
 * tests use, far below, zero, or each time zero or any bits. */
typedef enum garbage { GARBAGE_LARGE, GARBAGE_SMALL, GARBAGE_ZERO, GARBAGE_RANDOM } garbage;

typedef struct emu_settings {
    schedule schedule;
    uint64_t seed;
    char report[512];   /* file; "": none */
    char overlay[512];  /* folder of files that replace kernel sources of their names; "": none */
    char compiler[256]; /* "": CXX, g++ or clang++ */
    uint64_t limit;     /* most steps of a thread in a launch; 0: none */
    int lockstep;       /* lanes of a warp do not race, so that races of several warps are found */
    unsigned strict;    /* STRICT_* bits */
    garbage garbage;    /* what shuffles return whose value CUDA leaves undefined */
} emu_settings;

/* What CUDA allows, and is a finding where a bit asks for it. */
enum {
    STRICT_BARRIERS = 1, /* a barrier goes on without a thread that has returned */
    STRICT_MASKS = 2,    /* an operation of a warp goes on without a lane that has returned */
    STRICT_VALUES = 4    /* a shuffle reads a value that is undefined */
};

extern emu_settings emu_settings_now;

/* ---------------------------------------------------------------- table.c -------------------- */

/* Open addressing; keys other than ~0. Zero-initialised it is empty. */
typedef struct table {
    struct {
        uint64_t key, value;
    } *slots;
    size_t room, count;
} table;

/* The value for a key, made 0 and *is_new 1 if there was none. NULL: out of memory. It stays
 * where it is until the next call. */
uint64_t *table_at(table *table, uint64_t key, int *is_new);
void table_clear(table *table); /* keeps the memory */
void table_free(table *table);

/* Makes room for one more of `bytes` each at the end of an array; 0: out of memory. */
int grow(void **array, size_t *room, size_t count, size_t bytes);

/* ---------------------------------------------------------------- fiber.c -------------------- */

typedef struct fiber fiber;

fiber *fiber_create(void);
void fiber_free(fiber *fiber);
/* Lets a fiber run until it calls fiber_yield or its function ends. A fiber that is new, or
 * whose function has ended, begins function(argument). */
void fiber_run(fiber *fiber, void (*function)(void *), void *argument);
int fiber_ended(const fiber *fiber);
/* Back to fiber_run's caller. */
void fiber_yield(void);
/* Forgets what a fiber was doing. */
void fiber_abandon(fiber *fiber);
/* Whether an address is on the stack of the fiber that runs. */
int fiber_owns(uintptr_t address);

/* ---------------------------------------------------------------- module.c ------------------- */

typedef struct shared_variable {
    uintptr_t start;
    size_t bytes;
    char name[48];
} shared_variable;

/* A variable in global memory that a program declares. */
typedef struct device_variable {
    driver_allocation memory;
    char name[48];
} device_variable;

typedef struct source_line {
    char file[48];
    int line;
} source_line;

/* An instruction of a module with an event: an access, a barrier, an operation of a warp. */
typedef struct site {
    uintptr_t pc;
    int looked_up;
    source_line where; /* in the function that does it, helpers of numbers aside */
    source_line from;  /* in the kernel's file, the innermost one */
    source_line call;  /* of the function that does it; line 0: it is the kernel */
} site;

struct engine_kernel {
    engine_module *module;
    const gpr_emu_entry *entry;
};

struct engine_module {
    void *handle;
    char *image;
    size_t image_bytes;
    const gpr_emu_module *code;
    engine_kernel *kernels;
    uintptr_t base, low, high;         /* load address; extent in memory */
    uintptr_t shared_low, shared_high; /* of all shared variables */
    shared_variable *shared;           /* sorted by address */
    unsigned shared_count;
    size_t shared_bytes;      /* of all together */
    shared_variable *dynamic; /* among them: dynamic shared memory; NULL: none */
    device_variable *variables;
    unsigned variable_count;
    site *sites;
    size_t site_room;
    unsigned site_count;
    table site_of; /* pc to index + 1 */
};

/* Sets the size of dynamic shared memory for the launch that begins. */
void module_set_dynamic(engine_module *module, unsigned bytes);
/* The __device__ variable that holds `address`; NULL: none. */
const driver_allocation *module_variable(const engine_module *module, uintptr_t address);
/* Index of the site at `pc`. */
unsigned module_site(engine_module *module, const void *pc);
/* Finds the lines of all sites that have none yet, by addr2line; without it they stay "" and 0. */
void module_look_up(engine_module *module);
/* The shared variable that contains `address`, or the one before it, to which an address past an
 * end belongs. NULL: none. */
const shared_variable *module_shared(const engine_module *module, uintptr_t address);
/* Bytes of the shared variables before `end` in arrays that describe shared memory byte by byte:
 * each variable begins a multiple of 8 there. */
size_t module_shared_before(const engine_module *module, const shared_variable *end);

/* ---------------------------------------------------------------- other programs ------------- */

enum { FOLDER_ROOM = 640, PATH_ROOM = FOLDER_ROOM + 128 };

/* Makes a folder that only this user can enter, in TMPDIR or /tmp. 0: it cannot be made. */
int make_folder(char folder[FOLDER_ROOM]);
/* Removes it with the files in it. */
void remove_folder(const char *folder);
/* Runs a program that writes no other files than in `folder`, there its output in the file
 * `output`; its exit status, or -1. */
int run_program(char *const *arguments, const char *folder, const char *output);

/* ---------------------------------------------------------------- a launch ------------------- */

/* An access that later ones must be ordered after. */
typedef struct record {
    uint32_t next; /* index + 1 */
    uint32_t block, epoch, clock;
    uint16_t thread;
    uint8_t bytes; /* of the word, a bit each */
    uint64_t time;
    const void *pc;
} record;

/* The accesses to a word: lists of records. */
typedef struct word_history {
    uint32_t epoch;
    uint32_t reads, writes, atomics;
} word_history;

typedef struct records {
    record *all;
    size_t room;
    uint32_t count;
} records;

/* The accesses that a thread has made visible to other blocks: of `block`, all that its thread
 * `thread` did before `fence`, all that any of its threads did before `barrier`, and of the
 * thread's warp all that its lanes had seen each other do. */
typedef struct release {
    uint32_t block;
    uint16_t thread;
    uint64_t fence, barrier;
    uint32_t seen[WARP_LANES];
} release;

typedef struct releases {
    release *all;
    size_t room, count;
} releases;

/* An asynchronous copy to shared memory for which its thread has not waited. */
typedef struct pending_copy {
    uintptr_t to, from;
    unsigned bytes;
    uint64_t group;
    const void *pc;
} pending_copy;

typedef struct copy_queue {
    pending_copy *all; /* in the order in which they began */
    size_t room, count;
    uint64_t groups; /* that have ended */
} copy_queue;

/* A barrier of 8 bytes in shared memory. Its current phase completes when no arrival is missing and
 * copies of as many bytes have begun as the arrivals have announced: these arrive then. */
typedef struct mbarrier {
    uintptr_t address;
    unsigned arrivals, missing; /* of each phase; of the current one */
    uint64_t phase;             /* how many have completed */
    uint64_t waited;            /* for as many some thread has waited */
    uint64_t expected, begun;   /* bytes of the current phase */
    int is_published;           /* to copies */
    int has_copies;             /* some copy has counted for it */
    record made;                /* its initialization */
} mbarrier;

/* A copy to shared memory that counts for the current phase of an mbarrier. */
typedef struct bulk_copy {
    uintptr_t to, from;
    unsigned bytes;
    uint16_t thread; /* that began it */
    mbarrier *barrier;
    uint64_t phase;
    const void *pc;
} bulk_copy;

typedef struct mbarriers {
    mbarrier all[MOST_MBARRIERS];
    unsigned count;
    uint64_t *clocks; /* mbarriers.c */
    size_t clock_room;
    bulk_copy *copies; /* under way */
    size_t copy_room, copy_count;
} mbarriers;

typedef enum thread_state {
    READY,
    AT_BARRIER,
    AT_WARP_OP,
    AT_ACTIVE_MASK,
    AT_MBARRIER,
    AT_WORD, /* until it changes */
    EXITED
} thread_state;

typedef struct emu_block emu_block;

typedef struct emu_thread {
    emu_block *block;
    fiber *fiber;
    uint16_t index, lane, warp;
    thread_state state;
    const void *pc; /* where it waits */
    int op;
    unsigned mask, value, argument, width, result;
    const unsigned *word; /* AT_WORD: that had `value` */
    uint32_t step;        /* warp operations, and waits for copies, passed in this phase */
    uint64_t steps;       /* accesses, barriers and warp operations of the launch */
    uint32_t clock;       /* warp barriers passed, and 1 */
    uint32_t seen[WARP_LANES];
    release fence;  /* of its last device fence; fence.fence 0: none */
    releases known; /* of other blocks, since the block's last barrier */
    table pending;  /* words of its atomics since its last fence: the releases it saw there */
    copy_queue copies;
    mbarrier *barrier; /* AT_MBARRIER: where it waits, for the parity `argument` */
} emu_thread;

typedef struct event {
    uintptr_t address;
    uint32_t site, step, turn, bytes;
    uint16_t thread;
    uint8_t kind;
} event;

struct emu_block {
    int live;
    uint32_t index, threads, waiting, exited, next_thread;
    uint32_t epoch; /* block barriers passed, and 1 */
    uint64_t barrier_time;
    uint32_t cluster_size; /* blocks of each cluster */
    releases known;
    emu_thread *thread;
    unsigned char *shared;   /* a copy while another block is in */
    size_t shared_room;      /* bytes */
    unsigned char *written;  /* a byte for each byte of shared memory */
    word_history *histories; /* one for each word of it */
    uint32_t shared_epoch;   /* that histories are of: all who may access them have met since */
    records records;
    mbarriers mbarriers;
    event *events;
    size_t event_room, event_count;
};

/* A broken rule: two places and three pieces of text around them. */
typedef struct finding {
    int found;
    char what[400], other[240], end[240];
    const void *pc, *other_pc;
} finding;

typedef struct counts counts;

struct engine_launch {
    engine_kernel *kernel;
    engine_module *module;
    engine_shape shape;
    void **arguments;
    uint64_t random;
    uint64_t now;      /* counts everything that happens */
    emu_block *blocks; /* resident ones: whole clusters, one after the other */
    unsigned resident;
    unsigned begun; /* blocks */
    emu_block *in;  /* whose shared memory is in place */
    emu_thread *current;
    const driver_allocation **allocations; /* sorted */
    size_t allocation_count;
    const driver_allocation *last_allocation;
    table word_of; /* global words: to index + 1 in `words` */
    word_history *words;
    size_t word_room, word_count;
    records records;   /* of global words */
    table released_at; /* words of atomics: to index + 1 in `released` */
    releases *released;
    size_t released_room, released_count;
    finding finding;
    unsigned relied; /* STRICT_* bits of what happened and was no finding */
    counts *counts;  /* NULL: not wanted */
    int out_of_memory;
};

/* ---------------------------------------------------------------- copies.c ------------------- */

/* 0: out of memory. */
int copies_begin(emu_thread *thread, pending_copy copy);
/* Takes the oldest copy out of the queue if its group is none of the `newest` last ones that have
 * ended; 0: there is none. */
int copies_arrive(emu_thread *thread, unsigned newest, pending_copy *copy);
/* The copy of any thread of the block that will write one of the bytes; NULL: none. */
const pending_copy *copies_find(const emu_block *block, uintptr_t address, unsigned bytes);

/* ---------------------------------------------------------------- mbarriers.c ---------------- */

/* NULL: there is none. */
mbarrier *mbarriers_find(emu_block *block, uintptr_t address);
/* One more than there are, of which there are fewer than MOST_MBARRIERS. NULL: out of memory. */
mbarrier *mbarriers_add(emu_block *block, const mbarrier *made);
/* What records of the barrier's copies have in place of a thread. */
unsigned mbarriers_actor(const emu_block *block, const mbarrier *barrier);
/* Whether mbarriers order an access of the thread's block before what the thread does. */
int mbarriers_order(const emu_thread *thread, const record *earlier);
/* The lanes of `mask` have met at a barrier of their warp. */
void mbarriers_meet(emu_thread *lanes, unsigned mask, uint64_t now);
/* The thread arrives. */
void mbarriers_gather(const emu_thread *thread, const mbarrier *barrier, uint64_t now);
/* The current phase completes. */
void mbarriers_complete(const emu_block *block, mbarrier *barrier, uint64_t now);
/* The thread has waited for the last phase that has completed. */
void mbarriers_acquire(const emu_thread *thread, mbarrier *barrier);
/* How many phases had completed when it did so last; 0: never. */
uint64_t mbarriers_passed(const emu_thread *thread, const mbarrier *barrier);
/* 0: out of memory. */
int mbarriers_begin(emu_block *block, const bulk_copy *copy);
/* Takes the oldest copy that counts for the barrier; 0: there is none. */
int mbarriers_take(emu_block *block, const mbarrier *barrier, bulk_copy *copy);
/* The copy under way that will write one of the bytes; NULL: none. */
const bulk_copy *mbarriers_copy_to(const emu_block *block, uintptr_t address, unsigned bytes);
void mbarriers_clear(emu_block *block);
void mbarriers_free(emu_block *block);

/* ---------------------------------------------------------------- finding.c ------------------ */

/* Ends the launch: `what` (printf) happened at pc. Called by the running thread; it does not
 * return. */
void report_finding(engine_launch *launch, const void *pc, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
/* The same when no thread runs: `thread` waits for something that never comes. The first finding
 * stays. */
void report_waiting(engine_launch *launch, emu_thread *thread, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
/* "thread 33 (warp 1, lane 1)" */
const char *thread_name(unsigned index, char room[48]);

/* ---------------------------------------------------------------- check.c -------------------- */

/* What a bulk copy does to its destination when it begins: as a store it must come after all other
 * accesses, but it is none of the thread's own. An access beside those of abi.h. */
enum { COPY_STORE = GPR_EMU_ATOMIC + 1 };

/* Ends the launch if the running thread may not make this access; notes it for later ones. Returns
 * the kind of memory, for counting. */
/* The block of the running thread's cluster in whose shared memory, kept while others run, an
 * address lies; NULL: none. *address becomes that of the variable. */
emu_block *check_find_owner(const engine_launch *launch, const emu_thread *thread,
                            uintptr_t *address);
typedef enum place { SHARED_MEMORY, GLOBAL_MEMORY, OTHER_MEMORY } place;
place check_access(engine_launch *launch, emu_thread *thread, uintptr_t address, unsigned bytes,
                   int access, const void *pc);
/* An asynchronous copy to shared memory has begun: the bytes must not be read. */
void check_copy_begins(engine_launch *launch, emu_block *block, uintptr_t to, unsigned bytes);
/* The bytes of a bulk copy have arrived: `actor` has written them. */
void check_copy_arrives(engine_launch *launch, emu_block *block, const bulk_copy *copy,
                        unsigned actor);
/* An event of a thread, at this time. */
record check_record(engine_launch *launch, const emu_thread *thread, const void *pc);
/* Whether it comes before what the thread does now. */
int check_is_ordered(const record *earlier, const emu_thread *thread);
/* Shared memory for people: "partial[17]". */
enum { SHARED_NAME_ROOM = 96 };
void check_name_shared(const engine_module *module, uintptr_t address, unsigned bytes,
                       char room[SHARED_NAME_ROOM]);
void check_fence(engine_launch *launch, emu_thread *thread);
/* All threads of a block, of a cluster (whose blocks follow `first`), or the lanes of `mask` in the
 * thread's warp, have met. */
void check_block_met(engine_launch *launch, emu_block *block);
void check_cluster_met(engine_launch *launch, emu_block *first);
void check_warp_met(emu_thread *threads, unsigned mask);
/* The last thread of a block has returned. */
void check_block_ends(engine_launch *launch, emu_thread *last);
void check_block_starts(engine_launch *launch, emu_block *block);

/* ---------------------------------------------------------------- count.c -------------------- */

typedef enum event_kind {
    SHARED_LOAD,
    SHARED_STORE,
    SHARED_ATOMIC,
    GLOBAL_LOAD,
    GLOBAL_STORE,
    GLOBAL_ATOMIC,
    COPY, /* an asynchronous one begins */
    SHUFFLE,
    VOTE,
    REDUCE,
    WARP_BARRIER,
    BARRIER,
    COPY_WAIT, /* which ends a step; its bytes are those that arrive by it */
    FENCE,
    EVENT_KINDS
} event_kind;

counts *counts_create(const engine_launch *launch);
void counts_free(counts *counts);
void count_event(engine_launch *launch, emu_thread *thread, event_kind kind, uintptr_t address,
                 unsigned bytes, const void *pc);
/* A phase of a block has ended, by a barrier or with the block. */
void count_phase(engine_launch *launch, emu_block *block);
/* Appends the launch to the report. */
void counts_write(engine_launch *launch, const char *path);

/* ---------------------------------------------------------------- mbarrier_ops.c ------------- */

/* Each is called for the running thread, and ends the launch if a rule is broken. */
void mbarrier_init(engine_launch *launch, emu_thread *thread, uintptr_t address, unsigned arrivals,
                   const void *pc);
void mbarrier_publish(emu_thread *thread);
void mbarrier_arrive(engine_launch *launch, emu_thread *thread, uintptr_t address, unsigned bytes,
                     const void *pc);
/* `copy` has its ends, bytes and pc. */
void mbarrier_copy(engine_launch *launch, emu_thread *thread, bulk_copy copy, uintptr_t address);
mbarrier *mbarrier_to_wait_for(engine_launch *launch, emu_thread *thread, uintptr_t address,
                               unsigned parity, const void *pc);
/* Whether the thread need not wait any longer. Sets *bytes to those of copies that arrive by its
 * wait, if any do. */
int mbarrier_passes(engine_launch *launch, emu_thread *thread, mbarrier *barrier, unsigned parity,
                    unsigned *bytes);
/* No thread of the block can go on, and this one waits for an mbarrier. */
void mbarrier_report_wait(engine_launch *launch, emu_thread *thread);
/* The last thread of a block has returned. */
void mbarrier_check_end(engine_launch *launch, emu_thread *last);

/* ---------------------------------------------------------------- run.c ---------------------- */

/* Runs all blocks of a launch. */
void run_blocks(engine_launch *launch);

#endif
