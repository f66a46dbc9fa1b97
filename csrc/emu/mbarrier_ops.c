/* What threads do with mbarriers, and bulk copies. A GPU may write a copy's bytes at any time until
 * the phase completes; here they arrive when the first thread waits for the phase, and until then
 * count as not written. */
#include <string.h>

#include "emu/emu.h"

enum { MOST_ARRIVALS = (1 << 20) - 1, COPY_UNIT = GPR_VECTOR_BYTES };

/* "full[2]" */
typedef struct barrier_name {
    char text[SHARED_NAME_ROOM];
} barrier_name;

static barrier_name name_of(const engine_launch *launch, uintptr_t address)
{
    barrier_name name;

    check_name_shared(launch->module, address, sizeof(uint64_t), name.text);
    return name;
}

/* The initialized mbarrier of the running thread's `what`; otherwise the launch ends. */
static mbarrier *find_barrier(engine_launch *launch, emu_thread *thread, uintptr_t address,
                              const char *what, const void *pc)
{
    mbarrier *barrier = mbarriers_find(thread->block, address);

    if (module_shared(launch->module, address) == NULL)
        report_finding(launch, pc, "%s at an mbarrier that is not in shared memory: it is", what);
    if (barrier == NULL) {
        report_finding(launch, pc, "%s at mbarrier %s, which no thread has initialized: it is",
                       what, name_of(launch, address).text);
    }
    if (!check_is_ordered(&barrier->made, thread)) {
        char room[48];
        launch->finding.other_pc = barrier->made.pc;
        (void)snprintf(launch->finding.other, sizeof launch->finding.other,
                       ", and %s has initialized it", thread_name(barrier->made.thread, room));
        (void)snprintf(launch->finding.end, sizeof launch->finding.end,
                       ": no barrier of the block lies between");
        report_finding(launch, pc, "%s at mbarrier %s, whose initialization the thread may not see",
                       what, name_of(launch, address).text);
    }
    return barrier;
}

/* Threads that wait for the barrier look again. */
static void wake(emu_block *block, const mbarrier *barrier)
{
    for (unsigned i = 0; i < block->threads; i++) {
        emu_thread *thread = &block->thread[i];
        if (thread->state == AT_MBARRIER && thread->barrier == barrier) thread->state = READY;
    }
}

/* The current phase's copies arrive, and the next phase begins. Returns the copies' bytes. */
static unsigned complete(engine_launch *launch, emu_block *block, mbarrier *barrier)
{
    const unsigned bytes = (unsigned)barrier->begun;
    bulk_copy copy;

    while (mbarriers_take(block, barrier, &copy)) {
        memcpy((void *)copy.to, (const void *)copy.from, copy.bytes);
        check_copy_arrives(launch, block, &copy, mbarriers_actor(block, barrier));
    }
    mbarriers_complete(block, barrier, ++launch->now);
    wake(block, barrier);
    return bytes;
}

static int is_ready(const mbarrier *barrier)
{
    return barrier->missing == 0 && barrier->begun == barrier->expected;
}

/* After an arrival or a copy. All arrivals have announced all bytes. */
static void look_at_phase(engine_launch *launch, emu_block *block, mbarrier *barrier,
                          const void *pc)
{
    if (barrier->missing == 0 && barrier->begun > barrier->expected) {
        report_finding(
            launch, pc,
            "copies of %llu bytes for phase %llu of mbarrier %s, to which its arrivals have "
            "announced %llu: the last of both is",
            (unsigned long long)barrier->begun, (unsigned long long)barrier->phase,
            name_of(launch, barrier->address).text, (unsigned long long)barrier->expected);
    }
    if (!is_ready(barrier)) return;
    /* A thread that comes to wait for the phase before would wait for the one after this. */
    if (barrier->waited < barrier->phase) {
        report_finding(launch, pc,
                       "mbarrier %s whose phase %llu completes before any thread has waited for "
                       "phase %llu: its last arrival is",
                       name_of(launch, barrier->address).text, (unsigned long long)barrier->phase,
                       (unsigned long long)barrier->phase - 1);
    }
    if (barrier->begun == 0)
        (void)complete(launch, block, barrier);
    else
        wake(block, barrier);
}

void mbarrier_init(engine_launch *launch, emu_thread *thread, uintptr_t address, unsigned arrivals,
                   const void *pc)
{
    emu_block *block = thread->block;

    if (module_shared(launch->module, address) == NULL)
        report_finding(launch, pc, "mbarrier that is not in shared memory: its initialization is");
    if (arrivals == 0 || arrivals > MOST_ARRIVALS) {
        report_finding(launch, pc, "mbarrier %s whose phases take %u arrivals, not 1 to %d: it is",
                       name_of(launch, address).text, arrivals, MOST_ARRIVALS);
    }
    if (mbarriers_find(block, address) != NULL) {
        report_finding(launch, pc, "mbarrier %s is initialized a second time",
                       name_of(launch, address).text);
    }
    (void)check_access(launch, thread, address, sizeof(uint64_t), GPR_EMU_STORE, pc);
    if (block->mbarriers.count == MOST_MBARRIERS) {
        report_finding(launch, pc, "more than %d mbarriers in a block, the most of the emulator",
                       MOST_MBARRIERS);
    }
    const mbarrier made = {.address = address,
                           .arrivals = arrivals,
                           .missing = arrivals,
                           .made = check_record(launch, thread, pc)};
    if (mbarriers_add(block, &made) == NULL) launch->out_of_memory = 1;
}

void mbarrier_publish(emu_thread *thread)
{
    mbarriers *of_block = &thread->block->mbarriers;

    for (unsigned i = 0; i < of_block->count; i++) {
        if (of_block->all[i].made.thread == thread->index) of_block->all[i].is_published = 1;
    }
}

void mbarrier_arrive(engine_launch *launch, emu_thread *thread, uintptr_t address, unsigned bytes,
                     const void *pc)
{
    mbarrier *barrier = find_barrier(launch, thread, address, "arrival", pc);

    if (barrier->missing == 0) {
        report_finding(launch, pc,
                       "arrival at mbarrier %s, whose phase %llu has all its arrivals and still "
                       "waits for copies: the thread has not waited for it. It arrives",
                       name_of(launch, address).text, (unsigned long long)barrier->phase);
    }
    mbarriers_gather(thread, barrier, ++launch->now);
    barrier->expected += bytes;
    barrier->missing--;
    look_at_phase(launch, thread->block, barrier, pc);
}

mbarrier *mbarrier_to_wait_for(engine_launch *launch, emu_thread *thread, uintptr_t address,
                               unsigned parity, const void *pc)
{
    mbarrier *barrier = find_barrier(launch, thread, address, "wait", pc);

    if (parity > 1) {
        report_finding(launch, pc, "wait for parity %u of mbarrier %s, which is neither 0 nor 1",
                       parity, name_of(launch, address).text);
    }
    return barrier;
}

int mbarrier_passes(engine_launch *launch, emu_thread *thread, mbarrier *barrier, unsigned parity,
                    unsigned *bytes)
{
    if (barrier->phase % 2 == parity && is_ready(barrier))
        *bytes = complete(launch, thread->block, barrier);
    if (barrier->phase % 2 == parity) return 0;
    mbarriers_acquire(thread, barrier);
    return 1;
}

/* ---------------------------------------------------------------- bulk copies ---------------- */

static void check_aligned(engine_launch *launch, const bulk_copy *copy)
{
    const struct {
        const char *name;
        uintptr_t address;
    } ends[] = {{"source", copy->from}, {"destination", copy->to}};

    if (copy->bytes % COPY_UNIT != 0) {
        report_finding(launch, copy->pc, "bulk copy of %u bytes, which is no multiple of %d: it is",
                       copy->bytes, COPY_UNIT);
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (ends[i].address % COPY_UNIT == 0) continue;
        report_finding(launch, copy->pc,
                       "misaligned bulk copy: its %s is %u past a multiple of %d bytes. It begins",
                       ends[i].name, (unsigned)(ends[i].address % COPY_UNIT), COPY_UNIT);
    }
}

void mbarrier_copy(engine_launch *launch, emu_thread *thread, bulk_copy copy, uintptr_t address)
{
    const void *pc = copy.pc;
    emu_block *block = thread->block;

    check_aligned(launch, &copy);
    copy.barrier = find_barrier(launch, thread, address, "bulk copy", pc);
    copy.phase = copy.barrier->phase;
    copy.thread = thread->index;
    if (!copy.barrier->is_published) {
        launch->finding.other_pc = copy.barrier->made.pc;
        (void)snprintf(launch->finding.other, sizeof launch->finding.other,
                       ", and the initialization is");
        report_finding(launch, pc,
                       "bulk copy to mbarrier %s, which no fence of the thread that has "
                       "initialized it has made visible to copies: it begins",
                       name_of(launch, address).text);
    }
    for (unsigned i = 0; i < copy.bytes; i += COPY_UNIT) {
        if (check_access(launch, thread, copy.from + i, COPY_UNIT, GPR_EMU_LOAD, pc) !=
                GLOBAL_MEMORY ||
            check_access(launch, thread, copy.to + i, COPY_UNIT, COPY_STORE, pc) != SHARED_MEMORY)
            report_finding(launch, pc, "bulk copy that is not from global to shared memory");
    }
    check_copy_begins(launch, block, copy.to, copy.bytes);
    if (launch->counts != NULL) count_event(launch, thread, COPY, copy.from, copy.bytes, pc);
    if (!mbarriers_begin(block, &copy)) launch->out_of_memory = 1;
    copy.barrier->has_copies = 1;
    copy.barrier->begun += copy.bytes;
    look_at_phase(launch, block, copy.barrier, pc);
}

/* ---------------------------------------------------------------- what never comes ----------- */

void mbarrier_report_wait(engine_launch *launch, emu_thread *thread)
{
    const mbarrier *barrier = thread->barrier;
    finding *finding = &launch->finding;
    const unsigned long long phase = barrier->phase;
    char before[64] = "";

    if (phase > 0)
        (void)snprintf(before, sizeof before, "phase %llu has completed, and ", phase - 1);
    if (barrier->missing > 0) {
        (void)snprintf(finding->end, sizeof finding->end, ": %sphase %llu lacks %u of %u arrivals",
                       before, phase, barrier->missing, barrier->arrivals);
    } else {
        (void)snprintf(finding->end, sizeof finding->end,
                       ": %sto phase %llu %llu bytes are announced, and copies of %llu have begun",
                       before, phase, (unsigned long long)barrier->expected,
                       (unsigned long long)barrier->begun);
    }
    report_waiting(launch, thread, "wait for parity %u of mbarrier %s that does not end: it waits",
                   thread->argument, name_of(launch, barrier->address).text);
}

void mbarrier_check_end(engine_launch *launch, emu_thread *last)
{
    const mbarriers *of_block = &last->block->mbarriers;

    if (of_block->copy_count == 0) return;
    last->pc = of_block->copies[0].pc;
    report_waiting(launch, last,
                   "bulk copy that no thread waits for: the block ends, and the copy begins");
}
