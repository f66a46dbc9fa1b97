/* Blocks, warps and threads: which thread runs next, which threads wait for each other at barriers
 * and operations of warps, and the results when all have arrived.
 *
 * Barriers of a block or a cluster, and operations of a warp, wait for the threads that have not
 * returned (CUDA's programming guide, and PTX for clusters). What a thread did before it returned
 * comes before the barrier that goes on without it. A barrier at which some threads wait while
 * others wait elsewhere, or a mask that names a lane which waits elsewhere, is a finding. A shuffle
 * returns garbage where CUDA leaves its value undefined: from a lane that the mask does not name,
 * or that has returned.
 *
 * A thread runs until it has to wait; nothing interrupts it. `forward` lets threads run in the
 * order of their numbers, block after block; `reverse` the other way round; `random` draws the next
 * thread each time, keeps several blocks under way, and lets a thread wait at atomics and fences
 * too, where blocks meet. The blocks of a cluster, and those of a cooperative launch, are under way
 * together. */
#include <stdlib.h>
#include <string.h>

#include "emu/emu.h"

static engine_launch *running; /* for the hooks, which are called by kernels */

static uint64_t draw(engine_launch *launch, uint64_t below)
{
    launch->random ^= launch->random << 13;
    launch->random ^= launch->random >> 7;
    launch->random ^= launch->random << 17;
    return (launch->random >> 11) % below;
}

/* ---------------------------------------------------------------- barriers ------------------- */

static const char *op_name(int op)
{
    switch (op) {
    case GPR_EMU_WARP_BARRIER: return "warp barrier";
    case GPR_EMU_SHUFFLE_INDEX:
    case GPR_EMU_SHUFFLE_UP:
    case GPR_EMU_SHUFFLE_DOWN:
    case GPR_EMU_SHUFFLE_XOR: return "shuffle";
    case GPR_EMU_BALLOT: return "vote";
    default: return "warp reduction";
    }
}

/* Whether two sites are the same place in the source: the compiler may have copied it. */
static int same_place(engine_launch *launch, const void *a, const void *b)
{
    if (a == b) return 1;
    const unsigned i = module_site(launch->module, a), j = module_site(launch->module, b);
    module_look_up(launch->module);
    const source_line *x = &launch->module->sites[i].where, *y = &launch->module->sites[j].where;
    return x->line == y->line && strcmp(x->file, y->file) == 0;
}

/* The first thread of a block whose threads that have not returned all wait. */
static emu_thread *first_waiting(const emu_block *block)
{
    emu_thread *thread = block->thread;

    while (thread->state == EXITED) thread++;
    return thread;
}

/* The predicates' result, of threads that have not returned. */
static unsigned block_result(const emu_block *block)
{
    unsigned count = 0;

    for (unsigned i = 0; i < block->threads; i++)
        count += block->thread[i].state != EXITED && block->thread[i].value != 0;
    switch (first_waiting(block)->op) {
    case GPR_EMU_BARRIER_COUNT: return count;
    case GPR_EMU_BARRIER_AND: return count == block->waiting;
    case GPR_EMU_BARRIER_OR: return count > 0;
    default: return 0;
    }
}

static unsigned first_thread(const emu_block *block)
{
    return emu_settings_now.schedule == REVERSE ? block->threads - 1 : 0;
}

static const char *barrier_name(int op)
{
    return op == GPR_EMU_CLUSTER_BARRIER ? "cluster barrier" : "barrier";
}

/* The blocks that a barrier of `block` is of: from the one that is returned, *count of them. */
static emu_block *blocks_of(engine_launch *launch, emu_block *block, int op, unsigned *count)
{
    const unsigned size = launch->shape.kind.cluster;

    *count = op == GPR_EMU_CLUSTER_BARRIER ? size : 1;
    if (*count == 1) return block;
    return launch->blocks + (block - launch->blocks) / size * size;
}

static void release_block(engine_launch *launch, emu_block *block)
{
    const unsigned result = block_result(block);

    count_phase(launch, block);
    block->waiting = 0;
    for (unsigned i = 0; i < block->threads; i++) {
        if (block->thread[i].state == EXITED) continue;
        block->thread[i].result = result;
        block->thread[i].step = 0;
        block->thread[i].state = READY;
    }
    block->next_thread = first_thread(block);
}

/* Whether all threads of a block that have not returned wait at barriers; some do. */
static int all_wait(const emu_block *block)
{
    return block->waiting > 0 && block->waiting + block->exited == block->threads;
}

/* Whether all threads of all blocks that have not returned wait at this barrier, too; at another
 * one is a finding. */
static int have_all_come(engine_launch *launch, emu_block *block, emu_block *blocks, unsigned count)
{
    emu_thread *first = first_waiting(block);

    for (unsigned i = 0; i < count; i++) {
        const emu_block *other = &blocks[i];
        if (!other->live) continue;
        if (!all_wait(other)) return 0;
        const emu_thread *theirs = first_waiting(other);
        if (theirs->op == first->op && same_place(launch, theirs->pc, first->pc)) continue;
        launch->finding.other_pc = theirs->pc;
        (void)snprintf(launch->finding.other, sizeof launch->finding.other,
                       ", while block %u waits", other->index);
        report_waiting(launch, first, "%s that not all blocks reach: it waits",
                       barrier_name(first->op));
        return 0;
    }
    return 1;
}

/* All threads of a block that have not returned wait at barriers. */
static void pass_barrier(engine_launch *launch, emu_block *block)
{
    const emu_thread *first = first_waiting(block);
    const int op = first->op;
    unsigned count = 0;
    char room[48];

    for (unsigned i = first->index + 1u; i < block->threads; i++) {
        emu_thread *thread = &block->thread[i];
        if (thread->state == EXITED) continue;
        if (thread->op == op && same_place(launch, thread->pc, first->pc)) continue;
        launch->finding.other_pc = first->pc;
        (void)snprintf(launch->finding.other, sizeof launch->finding.other, ", while %s waits",
                       thread_name(first->index, room));
        report_waiting(launch, thread, "%s that not all threads reach: it waits",
                       barrier_name(thread->op));
        return;
    }
    emu_block *blocks = blocks_of(launch, block, op, &count);
    if (!have_all_come(launch, block, blocks, count)) return;
    for (unsigned i = 0; i < count; i++) {
        if (blocks[i].exited > 0) launch->relied |= STRICT_BARRIERS;
        if (blocks[i].live) release_block(launch, &blocks[i]);
    }
    if (op == GPR_EMU_CLUSTER_BARRIER)
        check_cluster_met(launch, blocks);
    else
        check_block_met(launch, block);
}

/* ---------------------------------------------------------------- warps ---------------------- */

/* The lane that a shuffle of `lane` reads; its own where the source is outside its group. */
static unsigned shuffle_source(const emu_thread *thread, unsigned lane)
{
    const unsigned width = thread->width, first = lane & ~(width - 1), last = first + width - 1;
    unsigned from = lane;

    switch (thread->op) {
    case GPR_EMU_SHUFFLE_INDEX: return first | (thread->argument & (width - 1));
    case GPR_EMU_SHUFFLE_UP:
        return lane - first < thread->argument ? lane : lane - thread->argument;
    case GPR_EMU_SHUFFLE_DOWN:
        return thread->argument > last - lane ? lane : lane + thread->argument;
    default: from = lane ^ (thread->argument & (WARP_LANES - 1)); return from > last ? lane : from;
    }
}

static unsigned reduce_two(int op, unsigned a, unsigned b)
{
    switch (op) {
    case GPR_EMU_REDUCE_ADD: return a + b;
    case GPR_EMU_REDUCE_MIN_SIGNED: return (int)a < (int)b ? a : b;
    case GPR_EMU_REDUCE_MAX_SIGNED: return (int)a > (int)b ? a : b;
    case GPR_EMU_REDUCE_MIN_UNSIGNED: return a < b ? a : b;
    case GPR_EMU_REDUCE_MAX_UNSIGNED: return a > b ? a : b;
    case GPR_EMU_REDUCE_AND: return a & b;
    case GPR_EMU_REDUCE_OR: return a | b;
    default: return a ^ b;
    }
}

/* The value of a shuffle from a lane that takes no part: CUDA leaves it undefined. A kernel whose
 * result does not depend on it is right. */
static unsigned garbage_word(engine_launch *launch)
{
    switch (emu_settings_now.garbage) {
    case GARBAGE_LARGE: return 0x7f7fffffu; /* the largest float, a large positive integer */
    case GARBAGE_SMALL: return 0xff7fffffu; /* the smallest float, a negative integer */
    case GARBAGE_ZERO: return 0;
    default: return draw(launch, 2) == 0 ? 0 : (unsigned)draw(launch, (uint64_t)1 << 32);
    }
}

/* The lanes of `mask`, none of which has returned, have met: computes the result of each. `named`
 * is their own mask. */
static void warp_results(engine_launch *launch, emu_thread *lanes, unsigned mask, unsigned named,
                         int op)
{
    unsigned all = 0, some = 0;

    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if ((mask >> lane & 1) == 0) continue;
        if (op == GPR_EMU_BALLOT)
            all |= lanes[lane].value << lane;
        else if (op >= GPR_EMU_REDUCE_ADD)
            all = some++ == 0 ? lanes[lane].value : reduce_two(op, all, lanes[lane].value);
    }
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if ((mask >> lane & 1) == 0) continue;
        lanes[lane].result = all;
        if (op < GPR_EMU_SHUFFLE_INDEX || op > GPR_EMU_SHUFFLE_XOR) continue;
        const unsigned from = shuffle_source(&lanes[lane], lane);
        if ((mask >> from & 1) != 0) {
            lanes[lane].result = lanes[from].value;
        } else if ((emu_settings_now.strict & STRICT_VALUES) != 0) {
            report_waiting(launch, &lanes[lane],
                           (named >> from & 1) == 0
                               ? "shuffle that reads lane %u, which its mask 0x%08x does not name"
                               : "shuffle that reads lane %u, which has returned, with mask 0x%08x",
                           from, named);
            return;
        } else {
            launch->relied |= STRICT_VALUES;
            lanes[lane].result = garbage_word(launch);
        }
    }
}

/* A lane waits at a warp operation: if all that its mask names and that have not returned do, they
 * go on. */
static void meet_in_warp(engine_launch *launch, emu_thread *thread)
{
    emu_thread *lanes = thread - thread->lane;
    unsigned mask = thread->mask;

    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        const emu_thread *other = &lanes[lane];
        if ((thread->mask >> lane & 1) == 0) continue;
        if (other->state == EXITED)
            mask &= ~(1u << lane);
        else if (other->state != AT_WARP_OP || other->op != thread->op ||
                 other->mask != thread->mask)
            return;
    }
    if (mask != thread->mask) launch->relied |= STRICT_MASKS;
    warp_results(launch, lanes, mask, thread->mask, thread->op);
    if (launch->finding.found) return;
    if (thread->op == GPR_EMU_WARP_BARRIER) { /* lanes that have returned did it before */
        check_warp_met(lanes, thread->mask);
        mbarriers_meet(lanes, thread->mask, ++launch->now);
    }
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if ((mask >> lane & 1) == 0) continue;
        lanes[lane].step++;
        lanes[lane].state = READY;
    }
}

/* Lanes that have called __activemask() get a mask once no lane of their warp can go on: those that
 * wait at the same place of the source are active together. A GPU may have any part of them
 * converged; all of them is what programs hope for, and does not depend on the schedule. */
static void meet_active(engine_launch *launch, emu_block *block, unsigned warp)
{
    emu_thread *lanes = &block->thread[(size_t)warp * WARP_LANES];
    const unsigned left = block->threads - warp * WARP_LANES;
    const unsigned count = left < WARP_LANES ? left : WARP_LANES;
    unsigned waiting = 0;

    for (unsigned lane = 0; lane < count; lane++) {
        if (lanes[lane].state == READY) return;
        if (lanes[lane].state == AT_ACTIVE_MASK) waiting |= 1u << lane;
    }
    for (unsigned lane = 0; lane < count; lane++) {
        if ((waiting >> lane & 1) == 0) continue;
        unsigned together = 0;
        for (unsigned other = lane; other < count; other++) {
            if ((waiting >> other & 1) != 0 && same_place(launch, lanes[lane].pc, lanes[other].pc))
                together |= 1u << other;
        }
        for (unsigned other = lane; other < count; other++) {
            if ((together >> other & 1) == 0) continue;
            lanes[other].result = together;
            lanes[other].state = READY;
        }
        waiting &= ~together;
    }
}

/* ---------------------------------------------------------------- what never comes ----------- */

/* Ends the launch if a thread that has returned is one that another thread waits for, where that is
 * a finding. */
static void check_nobody_waits(engine_launch *launch, const emu_thread *thread)
{
    emu_block *block = thread->block;
    char room[48];

    (void)thread_name(thread->index, room);
    for (unsigned i = 0; i < block->threads; i++) {
        emu_thread *other = &block->thread[i];
        if (other->state == AT_BARRIER && (emu_settings_now.strict & STRICT_BARRIERS) != 0) {
            report_waiting(launch, other,
                           "%s that not all threads reach: %s has returned, and it waits",
                           barrier_name(other->op), room);
        } else if (other->state == AT_WARP_OP && other->warp == thread->warp &&
                   (other->mask >> thread->lane & 1) != 0 &&
                   (emu_settings_now.strict & STRICT_MASKS) != 0) {
            report_waiting(launch, other, "%s whose mask 0x%08x names lane %u, which has returned",
                           op_name(other->op), other->mask, thread->lane);
        }
    }
}

/* A thread has ended: threads that waited for it alone go on. */
static void check_exit(engine_launch *launch, emu_thread *thread)
{
    emu_block *block = thread->block;
    emu_thread *lanes = thread - thread->lane;

    if (thread->copies.count > 0) {
        thread->pc = thread->copies.all[0].pc;
        report_waiting(launch, thread,
                       "asynchronous copy whose thread returns without waiting for it: it begins");
    }
    check_nobody_waits(launch, thread);
    for (unsigned lane = 0; lane < WARP_LANES && !launch->finding.found; lane++) {
        if (thread->index - thread->lane + lane < block->threads &&
            lanes[lane].state == AT_WARP_OP && (lanes[lane].mask >> thread->lane & 1) != 0)
            meet_in_warp(launch, &lanes[lane]);
    }
}

/* A block of the cluster of `ended`, which has, whose threads wait at a cluster barrier; NULL: none
 * does. */
static emu_block *find_waiting_block(engine_launch *launch, emu_block *ended)
{
    unsigned count = 0;
    emu_block *blocks = blocks_of(launch, ended, GPR_EMU_CLUSTER_BARRIER, &count);

    for (unsigned i = 0; i < count; i++) {
        if (blocks[i].live && all_wait(&blocks[i]) &&
            first_waiting(&blocks[i])->op == GPR_EMU_CLUSTER_BARRIER)
            return &blocks[i];
    }
    return NULL;
}

/* The last thread of a block has returned: other blocks that waited for it alone go on. */
static void end_block(engine_launch *launch, emu_thread *last)
{
    emu_block *block = last->block;

    mbarrier_check_end(launch, last);
    count_phase(launch, block);
    block->live = 0;
    emu_block *other = find_waiting_block(launch, block);
    if (other != NULL && (emu_settings_now.strict & STRICT_BARRIERS) != 0) {
        report_waiting(launch, first_waiting(other),
                       "cluster barrier that not all blocks reach: block %u has returned, and it "
                       "waits",
                       block->index);
    }
    check_block_ends(launch, last);
    if (other != NULL && !launch->finding.found) pass_barrier(launch, other);
}

/* A thread waits for a word that nothing will change: all threads wait, and blocks that have not
 * begun have no place. */
static void report_word(engine_launch *launch, emu_thread *thread)
{
    unsigned live = 0;

    for (unsigned i = 0; i < launch->resident; i++) live += launch->blocks[i].live != 0;
    if (launch->begun < launch->shape.grid) {
        report_waiting(launch, thread,
                       "wait for a block that may never begin: %u of %u blocks have begun, and the "
                       "launch is not a cooperative one: it waits",
                       launch->begun, launch->shape.grid);
    } else {
        report_waiting(launch, thread,
                       "wait that does not end: %u of %u blocks have returned, and no thread is "
                       "left that could change the word: it waits",
                       launch->shape.grid - live, launch->shape.grid);
    }
}

/* No thread of the block can go on. */
static void report_deadlock(engine_launch *launch, emu_block *block)
{
    char room[48];

    for (unsigned i = 0; i < block->threads; i++) {
        if (block->thread[i].state != AT_WORD) continue;
        report_word(launch, &block->thread[i]);
        return;
    }

    for (unsigned i = 0; i < block->threads; i++) {
        emu_thread *thread = &block->thread[i], *lanes = thread - thread->lane;
        if (thread->state != AT_WARP_OP) continue;
        for (unsigned lane = 0; lane < WARP_LANES; lane++) {
            if ((thread->mask >> lane & 1) == 0 || lane == thread->lane) continue;
            const emu_thread *other = &lanes[lane];
            if ((other->state == AT_WARP_OP && other->op == thread->op &&
                 other->mask == thread->mask) ||
                other->state == AT_MBARRIER)
                continue;
            launch->finding.other_pc = other->pc;
            (void)snprintf(launch->finding.other, sizeof launch->finding.other,
                           ", while %s waits in a %s", thread_name(other->index, room),
                           other->state == AT_WARP_OP ? op_name(other->op) : "block barrier");
            if (other->state == AT_WARP_OP && other->op == thread->op) {
                (void)snprintf(launch->finding.end, sizeof launch->finding.end, " with mask 0x%08x",
                               other->mask);
            }
            report_waiting(launch, thread,
                           "%s whose mask 0x%08x names a lane that does not come: it waits",
                           op_name(thread->op), thread->mask);
            return;
        }
    }
    for (unsigned i = 0; i < block->threads; i++) {
        if (block->thread[i].state != AT_MBARRIER) continue;
        mbarrier_report_wait(launch, &block->thread[i]);
        return;
    }
}

/* ---------------------------------------------------------------- hooks ---------------------- */

/* Where a launch has a limit, a thread that takes very many steps does not end; others have their
 * turn before, since it may wait for them. */
static void count_step(engine_launch *launch, emu_thread *thread, const void *pc)
{
    enum { TURN = 1024 };
    const uint64_t limit = emu_settings_now.limit;

    if (limit == 0) return;
    if (++thread->steps > limit) {
        report_finding(launch, pc,
                       "thread that does not end: it has taken %llu steps (accesses, barriers and "
                       "operations of its warp)",
                       (unsigned long long)limit);
    }
    if (thread->steps % TURN == 0) fiber_yield();
}

static void hook_access(const void *address, unsigned bytes, int access, const void *pc)
{
    engine_launch *launch = running;
    emu_thread *thread = launch->current;

    count_step(launch, thread, pc);
    if (access == GPR_EMU_ATOMIC && emu_settings_now.schedule == RANDOM) fiber_yield();
    const place place = check_access(launch, thread, (uintptr_t)address, bytes, access, pc);
    if (place == OTHER_MEMORY || launch->counts == NULL) return;
    uintptr_t counted = (uintptr_t)address;
    (void)check_find_owner(launch, thread, &counted);
    count_event(launch, thread,
                (event_kind)((place == SHARED_MEMORY ? SHARED_LOAD : GLOBAL_LOAD) + access),
                counted, bytes, pc);
}

/* Ends the launch if a thread comes to a barrier of several blocks of which one has returned, where
 * that is a finding. */
static void check_barrier(engine_launch *launch, emu_thread *thread, int op, const void *pc)
{
    unsigned count = 0;
    const emu_block *blocks = blocks_of(launch, thread->block, op, &count);

    for (unsigned i = 0; i < count && op == GPR_EMU_CLUSTER_BARRIER; i++) {
        if (blocks[i].live || (emu_settings_now.strict & STRICT_BARRIERS) == 0) continue;
        report_finding(launch, pc,
                       "%s that not all blocks reach: block %u has returned, and it waits",
                       barrier_name(op), blocks[i].index);
    }
}

static unsigned hook_block_op(int op, unsigned predicate, const void *pc)
{
    engine_launch *launch = running;
    emu_thread *thread = launch->current;
    char room[48];

    count_step(launch, thread, pc);
    check_barrier(launch, thread, op, pc);
    if (launch->counts != NULL) count_event(launch, thread, BARRIER, 0, 0, pc);
    if (thread->block->exited > 0 && (emu_settings_now.strict & STRICT_BARRIERS) != 0) {
        for (unsigned i = 0; i < thread->block->threads; i++) {
            if (thread->block->thread[i].state != EXITED) continue;
            report_finding(launch, pc,
                           "%s that not all threads reach: %s has returned, and it waits",
                           barrier_name(op), thread_name(i, room));
        }
    }
    thread->op = op;
    thread->value = predicate;
    thread->pc = pc;
    thread->state = AT_BARRIER;
    thread->block->waiting++;
    fiber_yield();
    return thread->result;
}

static event_kind kind_of(int op)
{
    if (op == GPR_EMU_WARP_BARRIER) return WARP_BARRIER;
    if (op == GPR_EMU_BALLOT) return VOTE;
    return op >= GPR_EMU_REDUCE_ADD ? REDUCE : SHUFFLE;
}

static unsigned hook_warp_op(int op, unsigned mask, unsigned value, unsigned argument,
                             unsigned width, const void *pc)
{
    engine_launch *launch = running;
    emu_thread *thread = launch->current, *lanes = thread - thread->lane;

    count_step(launch, thread, pc);
    if (launch->counts != NULL) count_event(launch, thread, kind_of(op), 0, 0, pc);
    if ((mask >> thread->lane & 1) == 0) {
        report_finding(launch, pc, "%s whose mask 0x%08x does not name the lane that calls it",
                       op_name(op), mask);
    }
    if (width == 0 || width > WARP_LANES || (width & (width - 1)) != 0) {
        report_finding(launch, pc, "shuffle of width %u, which is not 1, 2, 4, 8, 16 or 32", width);
    }
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if ((mask >> lane & 1) == 0) continue;
        if (thread->index - thread->lane + lane >= thread->block->threads) {
            report_finding(launch, pc, "%s whose mask 0x%08x names lane %u, which is not there",
                           op_name(op), mask, lane);
        }
        if (lanes[lane].state == EXITED && (emu_settings_now.strict & STRICT_MASKS) != 0) {
            report_finding(launch, pc, "%s whose mask 0x%08x names lane %u, which has returned",
                           op_name(op), mask, lane);
        }
    }
    thread->op = op;
    thread->mask = mask;
    thread->value = value;
    thread->argument = argument;
    thread->width = width;
    thread->pc = pc;
    thread->state = AT_WARP_OP;
    fiber_yield();
    return thread->result;
}

static unsigned hook_active_lanes(const void *pc)
{
    emu_thread *thread = running->current;

    count_step(running, thread, pc);
    thread->pc = pc;
    thread->state = AT_ACTIVE_MASK;
    fiber_yield();
    return thread->result;
}

static void hook_fence(int scope, const void *pc)
{
    engine_launch *launch = running;

    if (launch->counts != NULL) count_event(launch, launch->current, FENCE, 0, 0, pc);
    if (emu_settings_now.schedule == RANDOM) fiber_yield();
    if (scope == GPR_EMU_FENCE_DEVICE) check_fence(launch, launch->current);
}

/* A thread has waited for copies, of which these bytes have arrived meanwhile. */
static void count_wait(engine_launch *launch, emu_thread *thread, unsigned bytes, const void *pc)
{
    if (launch->counts != NULL) count_event(launch, thread, COPY_WAIT, 0, bytes, pc);
    thread->step++;
}

static void hook_copy_async(void *to, const void *from, unsigned bytes, const void *pc)
{
    engine_launch *launch = running;
    emu_thread *thread = launch->current;
    const pending_copy copy = {(uintptr_t)to, (uintptr_t)from, bytes, 0, pc};

    count_step(launch, thread, pc);
    if (bytes != 4 && bytes != 8 && bytes != 16)
        report_finding(launch, pc, "asynchronous copy of %u bytes, not of 4, 8 or 16", bytes);
    if (check_access(launch, thread, copy.from, bytes, GPR_EMU_LOAD, pc) != GLOBAL_MEMORY ||
        check_access(launch, thread, copy.to, bytes, GPR_EMU_STORE, pc) != SHARED_MEMORY ||
        module_shared(launch->module, copy.to) == NULL)
        report_finding(launch, pc, "asynchronous copy that is not from global to shared memory");
    check_copy_begins(launch, thread->block, copy.to, bytes);
    if (launch->counts != NULL) count_event(launch, thread, COPY, copy.from, bytes, pc);
    if (!copies_begin(thread, copy)) launch->out_of_memory = 1;
}

static void hook_end_group(void)
{
    running->current->copies.groups++;
}

static void hook_wait_groups(unsigned newest, const void *pc)
{
    engine_launch *launch = running;
    emu_thread *thread = launch->current;
    pending_copy copy;
    unsigned bytes = 0;

    count_step(launch, thread, pc);
    if (emu_settings_now.schedule == RANDOM) fiber_yield();
    while (copies_arrive(thread, newest, &copy)) {
        (void)check_access(launch, thread, copy.to, copy.bytes, GPR_EMU_STORE, copy.pc);
        memcpy((void *)copy.to, (const void *)copy.from, copy.bytes);
        bytes += copy.bytes;
    }
    count_wait(launch, thread, bytes, pc);
}

static const void *hook_shared_of(const void *mine, unsigned rank, const void *pc)
{
    engine_launch *launch = running;
    const emu_thread *thread = launch->current;
    const unsigned size = launch->shape.kind.cluster,
                   own = (unsigned)(thread->block - launch->blocks) % size;

    if (rank >= size) {
        report_finding(launch, pc,
                       "shared memory of a block that is not there: rank %u of a cluster "
                       "of %u: it asks",
                       rank, size);
    }
    if (module_shared(launch->module, (uintptr_t)mine) == NULL)
        report_finding(launch, pc,
                       "address of another block's variable for one that is not shared");
    if (rank == own) return mine;
    return (thread->block - own + rank)->shared + ((uintptr_t)mine - launch->module->shared_low);
}

static void hook_wait_for_change(const unsigned *word, unsigned seen, const void *pc)
{
    engine_launch *launch = running;
    emu_thread *thread = launch->current;

    count_step(launch, thread, pc);
    thread->word = word;
    thread->value = seen;
    thread->pc = pc;
    thread->state = AT_WORD;
    fiber_yield();
}

static void hook_mbarrier_init(void *barrier, unsigned arrivals, const void *pc)
{
    count_step(running, running->current, pc);
    mbarrier_init(running, running->current, (uintptr_t)barrier, arrivals, pc);
}

static void hook_mbarrier_publish(const void *pc)
{
    if (running->counts != NULL) count_event(running, running->current, FENCE, 0, 0, pc);
    mbarrier_publish(running->current);
}

static void hook_mbarrier_arrive(void *barrier, unsigned bytes, const void *pc)
{
    count_step(running, running->current, pc);
    if (emu_settings_now.schedule == RANDOM) fiber_yield();
    mbarrier_arrive(running, running->current, (uintptr_t)barrier, bytes, pc);
}

static void hook_mbarrier_wait(void *address, unsigned parity, const void *pc)
{
    engine_launch *launch = running;
    emu_thread *thread = launch->current;

    count_step(launch, thread, pc);
    if (emu_settings_now.schedule == RANDOM) fiber_yield();
    mbarrier *barrier = mbarrier_to_wait_for(launch, thread, (uintptr_t)address, parity, pc);
    unsigned bytes = 0;
    while (!mbarrier_passes(launch, thread, barrier, parity, &bytes)) {
        thread->barrier = barrier;
        thread->argument = parity;
        thread->pc = pc;
        thread->state = AT_MBARRIER;
        fiber_yield();
    }
    if (barrier->has_copies) count_wait(launch, thread, bytes, pc);
}

static void hook_copy_bulk(void *to, const void *from, unsigned bytes, void *barrier,
                           const void *pc)
{
    const bulk_copy copy = {.to = (uintptr_t)to, .from = (uintptr_t)from, .bytes = bytes, .pc = pc};

    count_step(running, running->current, pc);
    if (emu_settings_now.schedule == RANDOM) fiber_yield();
    mbarrier_copy(running, running->current, copy, (uintptr_t)barrier);
}

static const gpr_emu_hooks hooks = {
    hook_access,        hook_block_op,         hook_warp_op,         hook_active_lanes,
    hook_fence,         hook_copy_async,       hook_end_group,       hook_wait_groups,
    hook_mbarrier_init, hook_mbarrier_publish, hook_mbarrier_arrive, hook_mbarrier_wait,
    hook_copy_bulk,     hook_shared_of,        hook_wait_for_change};

/* ---------------------------------------------------------------- blocks --------------------- */

/* The content of shared memory before a thread writes it. */
enum { POISON = 0xc3 };

/* Where a shared variable is kept for a block. */
static unsigned char *kept_variable(const engine_module *module, const emu_block *block,
                                    const shared_variable *variable)
{
    return block->shared + (variable->start - module->shared_low);
}

/* Copies all shared variables to or from where they are kept for a block. */
static void move_shared(const engine_module *module, const emu_block *block, int in)
{
    for (unsigned i = 0; i < module->shared_count; i++) {
        const shared_variable *v = &module->shared[i];
        unsigned char *kept = kept_variable(module, block, v);
        if (in)
            memcpy((void *)v->start, kept, v->bytes);
        else
            memcpy(kept, (const void *)v->start, v->bytes);
    }
}

static void enter_block(engine_launch *launch, emu_block *block)
{
    if (launch->in == block) return;
    if (launch->in != NULL && launch->in->live) move_shared(launch->module, launch->in, 0);
    move_shared(launch->module, block, 1);
    launch->in = block;
}

static void start_block(engine_launch *launch, emu_block *block, uint32_t index)
{
    block->live = 1;
    block->index = index;
    block->waiting = block->exited = 0;
    block->next_thread = first_thread(block);
    if (launch->in == block) launch->in = NULL;
    for (unsigned i = 0; i < launch->module->shared_count; i++) {
        const shared_variable *v = &launch->module->shared[i];
        memset(kept_variable(launch->module, block, v), POISON, v->bytes);
    }
    check_block_starts(launch, block);
    mbarriers_clear(block);
    for (unsigned i = 0; i < block->threads; i++) {
        emu_thread *thread = &block->thread[i];
        thread->state = READY;
        thread->step = 0;
        thread->steps = 0;
        thread->clock = 1;
        memset(thread->seen, 0, sizeof thread->seen);
        thread->fence.fence = 0;
        thread->known.count = 0;
        table_clear(&thread->pending);
        thread->copies.count = 0;
        thread->copies.groups = 0;
    }
}

static void thread_main(void *argument)
{
    const engine_launch *launch = argument;

    launch->kernel->entry->run((void *const *)launch->arguments);
}

static int can_go_on(emu_thread *thread)
{
    if (thread->state == AT_WORD && *thread->word != thread->value) thread->state = READY;
    return thread->state == READY;
}

/* The thread that runs next, or NULL: all wait. */
static emu_thread *next_thread(engine_launch *launch, emu_block *block)
{
    const unsigned n = block->threads, from = emu_settings_now.schedule == RANDOM
                                                  ? (unsigned)draw(launch, n)
                                                  : block->next_thread;

    for (unsigned i = 0; i < n; i++) {
        const unsigned at =
            emu_settings_now.schedule == REVERSE ? (from + n - i) % n : (from + i) % n;
        if (!can_go_on(&block->thread[at])) continue;
        block->next_thread = emu_settings_now.schedule == REVERSE ? (at + n - 1) % n : (at + 1) % n;
        return &block->thread[at];
    }
    return NULL;
}

static void run_thread(engine_launch *launch, emu_thread *thread)
{
    emu_block *block = thread->block;

    launch->current = thread;
    *launch->module->code->thread = (gpr_emu_dim){thread->index, 0, 0};
    *launch->module->code->block = (gpr_emu_dim){block->index, 0, 0};
    *launch->module->code->cluster_rank = block->index % launch->shape.kind.cluster;
    fiber_run(thread->fiber, thread_main, launch);
    if (launch->finding.found) return;
    if (fiber_ended(thread->fiber)) {
        thread->state = EXITED;
        block->exited++;
        check_exit(launch, thread);
        if (launch->finding.found) return;
        if (block->exited == block->threads) {
            end_block(launch, thread);
        } else if (all_wait(block)) {
            pass_barrier(launch, block);
        }
    } else if (thread->state == AT_WARP_OP) {
        meet_in_warp(launch, thread);
    } else if (all_wait(block)) {
        pass_barrier(launch, block);
    }
    if (!launch->finding.found && block->live) meet_active(launch, block, thread->warp);
}

/* The order in which clusters begin: `place` of all of them. A random one visits each once, by
 * steps that share no factor with their number. */
typedef struct cluster_order {
    uint64_t first, step, count;
} cluster_order;

static uint64_t common_factor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static cluster_order choose_order(engine_launch *launch)
{
    const uint64_t count = launch->shape.grid / launch->shape.kind.cluster;
    cluster_order order = {0, 1, count};

    if (emu_settings_now.schedule == REVERSE) order = (cluster_order){count - 1, count - 1, count};
    if (emu_settings_now.schedule == RANDOM) {
        order.first = draw(launch, order.count);
        do order.step = 1 + draw(launch, order.count);
        while (common_factor(order.step, order.count) != 1);
    }
    return order;
}

/* Lets clusters begin where all blocks of one before have ended; the number of blocks that did. */
static unsigned start_clusters(engine_launch *launch, const cluster_order *order)
{
    const unsigned size = launch->shape.kind.cluster;
    unsigned started = 0;

    for (unsigned at = 0; at < launch->resident; at += size) {
        const uint64_t next = launch->begun / size;
        unsigned live = 0;
        for (unsigned i = 0; i < size; i++) live += launch->blocks[at + i].live;
        if (live > 0 || next == order->count) continue;
        const uint64_t cluster = (order->first + next * order->step) % order->count;
        for (unsigned i = 0; i < size; i++)
            start_block(launch, &launch->blocks[at + i], (uint32_t)(cluster * size + i));
        launch->begun += size;
        started += size;
    }
    return started;
}

/* The thread that runs next, of any block that has begun; NULL: all wait. */
static emu_thread *choose_thread(engine_launch *launch)
{
    const unsigned n = launch->resident,
                   from = emu_settings_now.schedule == RANDOM ? (unsigned)draw(launch, n) : 0;

    for (unsigned i = 0; i < n; i++) {
        const unsigned at = emu_settings_now.schedule == REVERSE ? n - 1 - i : (from + i) % n;
        emu_block *block = &launch->blocks[at];
        emu_thread *thread = block->live ? next_thread(launch, block) : NULL;
        if (thread != NULL) return thread;
    }
    return NULL;
}

/* No thread can go on. */
static void report_all_wait(engine_launch *launch)
{
    for (unsigned i = 0; i < launch->resident && !launch->finding.found; i++) {
        if (launch->blocks[i].live) report_deadlock(launch, &launch->blocks[i]);
    }
    for (unsigned i = 0; i < launch->resident && !launch->finding.found; i++) {
        if (!launch->blocks[i].live) continue;
        emu_thread *thread = first_waiting(&launch->blocks[i]);
        report_waiting(launch, thread, "%s that not all blocks reach: it waits",
                       barrier_name(thread->op));
    }
}

void run_blocks(engine_launch *launch)
{
    const cluster_order order = choose_order(launch);
    unsigned live = 0;

    running = launch;
    *launch->module->code->hooks = &hooks;
    *launch->module->code->block_dim = (gpr_emu_dim){launch->shape.block, 1, 1};
    *launch->module->code->grid_dim = (gpr_emu_dim){launch->shape.grid, 1, 1};
    *launch->module->code->cluster_blocks = launch->shape.kind.cluster;
    while (!launch->finding.found && !launch->out_of_memory) {
        live += start_clusters(launch, &order);
        if (live == 0) break;
        emu_thread *thread = choose_thread(launch);
        if (thread == NULL) {
            report_all_wait(launch);
            break;
        }
        enter_block(launch, thread->block);
        run_thread(launch, thread);
        live -= !thread->block->live;
    }
    running = NULL;
}
