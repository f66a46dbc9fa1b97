/* The rules of memory. Barriers that some threads do not reach, and masks of warps that name other
 * lanes than arrive, are found where threads wait: in run.c.
 *
 * Every access is inside a shared variable or an allocation, aligned to its size, and reads only
 * bytes that have been written. Two accesses to a word by two threads, one of them a write and not
 * both atomic, race unless they are ordered:
 *   - in a block, a block barrier between them;
 *   - in a warp, a warp barrier of both lanes between them (a shuffle is none);
 *   - between blocks, a device fence after the first, then an atomic on some word; then an atomic
 *     on that word by the other block, a fence, and the second. A barrier passes the order that one
 *     thread has acquired in this way to all threads of its block;
 *   - by an atomic of the second thread on that word, after the first thread's atomic on it;
 *   - in a block, an mbarrier: the first thread, or one that is ordered after it, arrives, and the
 *     second waits for the phase. Copies write before their phase completes;
 *   - by a barrier of all threads of a cluster between them.
 * The order does not depend on which thread happened to run first, so one schedule finds a race
 * that another would show as a wrong result. */
#include <stdlib.h>
#include <string.h>

#include "emu/emu.h"

/* ---------------------------------------------------------------- finding the place ---------- */

static const driver_allocation *find_allocation(engine_launch *launch, uintptr_t address)
{
    const driver_allocation *last = launch->last_allocation;
    size_t low = 0, high = launch->allocation_count;

    if (last != NULL && address - last->start < last->bytes) return last;
    while (high > low) {
        const size_t middle = (low + high) / 2;
        const driver_allocation *a = launch->allocations[middle];
        if (address - a->start < a->bytes) return launch->last_allocation = a;
        if (a->start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static const char *verb(int access)
{
    return access == GPR_EMU_LOAD     ? "reads"
           : access == GPR_EMU_ATOMIC ? "updates atomically"
                                      : "writes";
}

/* A shared word for people: "partial[17]" if it is an element of that size, else with its byte. */
static void name_shared(const shared_variable *variable, uintptr_t address, unsigned bytes,
                        char room[SHARED_NAME_ROOM])
{
    const size_t offset = address - variable->start;

    if (variable->bytes == bytes)
        (void)snprintf(room, SHARED_NAME_ROOM, "%s", variable->name);
    else if (offset % bytes == 0)
        (void)snprintf(room, SHARED_NAME_ROOM, "%s[%zu]", variable->name, offset / bytes);
    else
        (void)snprintf(room, SHARED_NAME_ROOM, "%s, byte %zu", variable->name, offset);
}

void check_name_shared(const engine_module *module, uintptr_t address, unsigned bytes,
                       char room[SHARED_NAME_ROOM])
{
    const shared_variable *variable = module_shared(module, address);

    room[0] = '\0';
    if (variable != NULL) name_shared(variable, address, bytes, room);
}

enum { GLOBAL_ROOM = 96 + LABEL_ROOM };

/* The same for global memory: how far into its allocation. */
static void name_global(const driver_allocation *a, uintptr_t address, char room[GLOBAL_ROOM])
{
    if (a->name != NULL)
        (void)snprintf(room, GLOBAL_ROOM, "the __device__ variable %s", a->name);
    else if (a->label[0] != '\0')
        (void)snprintf(room, GLOBAL_ROOM, "byte %zu of the array %s of %zu bytes",
                       (size_t)(address - a->start), a->label, a->bytes);
    else
        (void)snprintf(room, GLOBAL_ROOM, "byte %zu of a global allocation of %zu bytes",
                       (size_t)(address - a->start), a->bytes);
}

static void out_of_shared(engine_launch *launch, const shared_variable *variable, uintptr_t address,
                          unsigned bytes, int access, const void *pc)
{
    report_finding(launch, pc,
                   "out-of-bounds access to shared memory: it %s %u bytes at byte %zu of %s, which "
                   "has %zu bytes",
                   verb(access), bytes, (size_t)(address - variable->start), variable->name,
                   variable->bytes);
}

/* "the array in" or "an allocation". */
static void name_array(const driver_allocation *a, char room[GLOBAL_ROOM])
{
    const int has_label = a->label[0] != '\0';

    (void)snprintf(room, GLOBAL_ROOM, "%s%s", has_label ? "the array " : "an allocation", a->label);
}

/* Describes how far from an allocation an address outside all of them is. */
static void out_of_global(engine_launch *launch, uintptr_t address, unsigned bytes, int access,
                          const void *pc)
{
    const driver_allocation *before = NULL, *after = NULL;

    for (size_t i = 0; i < launch->allocation_count; i++) {
        if (launch->allocations[i]->start <= address)
            before = launch->allocations[i];
        else if (after == NULL)
            after = launch->allocations[i];
    }
    const size_t past = before != NULL ? address - before->start - before->bytes : ~(size_t)0;
    const size_t short_of = after != NULL ? after->start - address : ~(size_t)0;
    enum { NEAR = 1 << 20 };
    char array[GLOBAL_ROOM];
    if (before != NULL && past <= NEAR && past <= short_of) {
        name_array(before, array);
        report_finding(launch, pc,
                       "out-of-bounds access to global memory: it %s %u bytes, %zu past the end of "
                       "%s of %zu",
                       verb(access), bytes, past, array, before->bytes);
    } else if (after != NULL && short_of <= NEAR) {
        name_array(after, array);
        report_finding(launch, pc,
                       "out-of-bounds access to global memory: it %s %u bytes, %zu before %s "
                       "of %zu",
                       verb(access), bytes, short_of, array, after->bytes);
    }
    report_finding(launch, pc,
                   "out-of-bounds access: it %s %u bytes at an address that is not the device's",
                   verb(access), bytes);
}

/* ---------------------------------------------------------------- order ---------------------- */

static int is_in_release(const release *r, const record *earlier)
{
    if (r->block != earlier->block) return 0;
    if (earlier->time < r->barrier || (earlier->thread == r->thread && earlier->time < r->fence))
        return 1;
    return earlier->thread / WARP_LANES == r->thread / WARP_LANES &&
           earlier->clock <= r->seen[earlier->thread % WARP_LANES];
}

static int is_known(const releases *known, const record *earlier)
{
    for (size_t i = known->count; i-- > 0;) {
        if (is_in_release(&known->all[i], earlier)) return 1;
    }
    return 0;
}

static int is_ordered(const record *earlier, const emu_thread *thread)
{
    const emu_block *block = thread->block;

    if (earlier->block != block->index)
        return is_known(&thread->known, earlier) || is_known(&block->known, earlier);
    if (earlier->thread == thread->index || earlier->epoch < block->epoch) return 1;
    if (earlier->thread / WARP_LANES == thread->warp &&
        (emu_settings_now.lockstep || earlier->clock <= thread->seen[earlier->thread % WARP_LANES]))
        return 1;
    return mbarriers_order(thread, earlier);
}

int check_is_ordered(const record *earlier, const emu_thread *thread)
{
    return is_ordered(earlier, thread);
}

record check_record(engine_launch *launch, const emu_thread *thread, const void *pc)
{
    return (record){.block = thread->block->index,
                    .epoch = thread->block->epoch,
                    .clock = thread->clock,
                    .thread = thread->index,
                    .time = launch->now,
                    .pc = pc};
}

/* The first access of a list that is not ordered before the thread's access to `bytes` of the
 * word. */
static const record *find_unordered(const records *records, uint32_t list, const emu_thread *thread,
                                    unsigned bytes)
{
    for (uint32_t i = list; i != 0; i = records->all[i - 1].next) {
        const record *r = &records->all[i - 1];
        if ((r->bytes & bytes) != 0 && !is_ordered(r, thread)) return r;
    }
    return NULL;
}

/* As above, for atomics: those before one of the thread's own on this word precede it in the order
 * of the word's atomics. */
static const record *find_unordered_atomic(const records *records, uint32_t list,
                                           const emu_thread *thread, unsigned bytes)
{
    for (uint32_t i = list; i != 0; i = records->all[i - 1].next) {
        const record *r = &records->all[i - 1];
        if (r->thread == thread->index && r->block == thread->block->index) return NULL;
        if ((r->bytes & bytes) != 0 && !is_ordered(r, thread)) return r;
    }
    return NULL;
}

static int add_record(records *records, uint32_t *list, const record *what)
{
    if (*list != 0) { /* a thread that accesses the word repeatedly needs one record */
        record *head = &records->all[*list - 1];
        if (head->block == what->block && head->thread == what->thread &&
            head->bytes == what->bytes) {
            const uint32_t next = head->next;
            *head = *what;
            head->next = next;
            return 1;
        }
    }
    if (!grow((void **)&records->all, &records->room, records->count, sizeof *records->all))
        return 0;
    records->all[records->count] = *what;
    records->all[records->count].next = *list;
    *list = ++records->count;
    return 1;
}

/* Which phase a copy belongs to, and for which one the thread has waited. */
static void say_phases(engine_launch *launch, const emu_thread *thread, const mbarrier *barrier,
                       uint64_t phase)
{
    const uint64_t passed = mbarriers_passed(thread, barrier);
    char room[SHARED_NAME_ROOM], waited[80] = "has not waited there";

    check_name_shared(launch->module, barrier->address, sizeof(uint64_t), room);
    if (passed > 0) {
        (void)snprintf(waited, sizeof waited, "has waited there for phase %llu, parity %llu",
                       (unsigned long long)passed - 1, (unsigned long long)(passed - 1) % 2);
    }
    (void)snprintf(launch->finding.end, sizeof launch->finding.end,
                   ": it arrives with phase %llu, parity %llu, of mbarrier %s, and the thread %s",
                   (unsigned long long)phase, (unsigned long long)phase % 2, room, waited);
}

static void report_race(engine_launch *launch, const emu_thread *thread, const record *earlier,
                        const char *did, const char *what, int access, const void *pc)
{
    finding *finding = &launch->finding;
    char room[48];
    const uint32_t size = thread->block->cluster_size, own = thread->block->index;
    const int other_block = earlier->block != own;

    if (earlier->thread >= MOST_THREADS) {
        const mbarrier *barrier = &thread->block->mbarriers.all[earlier->thread - MOST_THREADS];
        (void)snprintf(finding->other, sizeof finding->other, ", and a bulk copy began");
        say_phases(launch, thread, barrier, barrier->phase - 1);
    } else if (other_block) {
        (void)snprintf(finding->other, sizeof finding->other, ", and %s of block %u %s before",
                       thread_name(earlier->thread, room), earlier->block, did);
        (void)snprintf(
            finding->end, sizeof finding->end,
            earlier->block / size == own / size
                ? ": no cluster barrier lies between"
                : ": no device fence and atomic of the one, atomic and fence of the other, lie "
                  "between");
    } else {
        (void)snprintf(finding->other, sizeof finding->other, ", and %s %s before",
                       thread_name(earlier->thread, room), did);
        (void)snprintf(finding->end, sizeof finding->end, ": no %sbarrier%s lies between",
                       earlier->thread / WARP_LANES == thread->warp ? "warp or block " : "block ",
                       thread->block->mbarriers.count > 0 ? " or mbarrier" : "");
    }
    finding->other_pc = earlier->pc;
    report_finding(launch, pc, "race on %s: it %s", what,
                   access == GPR_EMU_LOAD    ? "reads it"
                   : access == GPR_EMU_STORE ? "writes it"
                   : access == COPY_STORE    ? "begins a bulk copy to it"
                                             : "updates it atomically");
}

/* Looks for a race on one word and notes the access for later ones. */
static void check_word(engine_launch *launch, emu_thread *thread, word_history *history,
                       records *records, uintptr_t word, uintptr_t address, unsigned size,
                       int access, const void *pc, const char *(*name)(void *), void *named)
{
    const unsigned first = address > word ? (unsigned)(address - word) : 0;
    const unsigned end =
        address + size < word + WORD_BYTES ? (unsigned)(address + size - word) : WORD_BYTES;
    const unsigned bytes = (1u << end) - (1u << first);
    const record *other = find_unordered(records, history->writes, thread, bytes);
    const char *did = "wrote it";

    if (other == NULL && access != GPR_EMU_LOAD) {
        other = find_unordered(records, history->reads, thread, bytes);
        did = "read it";
    }
    if (other == NULL && access != GPR_EMU_ATOMIC) {
        other = find_unordered_atomic(records, history->atomics, thread, bytes);
        did = "updated it atomically";
    }
    if (other != NULL) report_race(launch, thread, other, did, name(named), access, pc);

    if (access == COPY_STORE) return;
    record made = check_record(launch, thread, pc);
    made.bytes = (uint8_t)bytes;
    uint32_t *list = access == GPR_EMU_LOAD    ? &history->reads
                     : access == GPR_EMU_STORE ? &history->writes
                                               : &history->atomics;
    if (!add_record(records, list, &made)) launch->out_of_memory = 1;
}

/* ---------------------------------------------------------------- shared memory -------------- */

typedef struct shared_name {
    const shared_variable *variable;
    uintptr_t address;
    unsigned bytes;
    const emu_block *other; /* whose variable it is; NULL: the running block's */
    char room[SHARED_NAME_ROOM], text[SHARED_NAME_ROOM + 32];
} shared_name;

static const char *say_shared(void *argument)
{
    shared_name *name = argument;

    name_shared(name->variable, name->address, name->bytes, name->room);
    if (name->other != NULL)
        (void)snprintf(name->text, sizeof name->text, "shared %s of block %u", name->room,
                       name->other->index);
    else
        (void)snprintf(name->text, sizeof name->text, "shared %s", name->room);
    return name->text;
}

/* Where the flags of a byte of shared memory are, among those of all variables. */
static size_t shared_offset(const engine_module *module, const shared_variable *variable,
                            uintptr_t address)
{
    return module_shared_before(module, variable) + (address - variable->start);
}

/* Ends the launch if a bulk copy to the place is under way. */
static void check_bulk_copy(engine_launch *launch, const emu_thread *thread, shared_name *name,
                            int access, const void *pc)
{
    const bulk_copy *copy = mbarriers_copy_to(thread->block, name->address, name->bytes);
    char room[48];

    if (copy == NULL) return;
    launch->finding.other_pc = copy->pc;
    (void)snprintf(launch->finding.other, sizeof launch->finding.other, ", and %s began the copy",
                   thread_name(copy->thread, room));
    say_phases(launch, thread, copy->barrier, copy->phase);
    report_finding(launch, pc, "access to %s, to which a bulk copy is under way: it %s",
                   say_shared(name), verb(access));
}

static void read_unwritten(engine_launch *launch, const emu_thread *thread, shared_name *name,
                           const void *pc)
{
    check_bulk_copy(launch, thread, name, GPR_EMU_LOAD, pc);
    const pending_copy *copy = copies_find(thread->block, name->address, name->bytes);

    if (copy == NULL) {
        report_finding(launch, pc, "read of %s, which no thread of the block has written",
                       say_shared(name));
    }
    launch->finding.other_pc = copy->pc;
    (void)snprintf(launch->finding.other, sizeof launch->finding.other, ", and the copy has begun");
    report_finding(launch, pc,
                   "read of %s, to which an asynchronous copy is under way that its thread has not "
                   "waited for: it reads",
                   say_shared(name));
}

/* An access to a shared variable of `block`: the thread's own, or another of its cluster. */
static void check_shared(engine_launch *launch, emu_thread *thread, emu_block *block,
                         uintptr_t address, unsigned bytes, int access, const void *pc)
{
    const shared_variable *variable = module_shared(launch->module, address);
    shared_name name = {.variable = variable,
                        .address = address,
                        .bytes = bytes,
                        .other = block != thread->block ? block : NULL};

    if (address - variable->start + bytes > variable->bytes)
        out_of_shared(launch, variable, address, bytes, access, pc);
    const size_t offset = shared_offset(launch->module, variable, address);
    const int reads = access == GPR_EMU_LOAD || access == GPR_EMU_ATOMIC;
    if (reads && memchr(block->written + offset, 0, bytes) != NULL)
        read_unwritten(launch, thread, &name, pc);
    if (access != GPR_EMU_LOAD && block->mbarriers.copy_count > 0)
        check_bulk_copy(launch, thread, &name, access, pc);
    memset(block->written + offset, 1, bytes);
    for (size_t w = offset / WORD_BYTES; w <= (offset + bytes - 1) / WORD_BYTES; w++) {
        word_history *history = &block->histories[w];
        if (history->epoch != block->shared_epoch) /* a barrier orders all before it */
            *history = (struct word_history){.epoch = block->shared_epoch};
        check_word(launch, thread, history, &block->records, w * WORD_BYTES, offset, bytes, access,
                   pc, say_shared, &name);
    }
}

void check_copy_begins(engine_launch *launch, emu_block *block, uintptr_t to, unsigned bytes)
{
    const shared_variable *variable = module_shared(launch->module, to);

    memset(block->written + shared_offset(launch->module, variable, to), 0, bytes);
}

void check_copy_arrives(engine_launch *launch, emu_block *block, const bulk_copy *copy,
                        unsigned actor)
{
    const size_t offset =
        shared_offset(launch->module, module_shared(launch->module, copy->to), copy->to);
    const record made = {.block = block->index,
                         .epoch = block->epoch,
                         .thread = (uint16_t)actor,
                         .bytes = (1u << WORD_BYTES) - 1,
                         .time = ++launch->now,
                         .pc = copy->pc};

    memset(block->written + offset, 1, copy->bytes);
    for (size_t w = offset / WORD_BYTES; w < (offset + copy->bytes) / WORD_BYTES; w++) {
        word_history *history = &block->histories[w];
        if (history->epoch != block->shared_epoch)
            *history = (struct word_history){.epoch = block->shared_epoch};
        if (!add_record(&block->records, &history->writes, &made)) launch->out_of_memory = 1;
    }
}

/* ---------------------------------------------------------------- global memory -------------- */

typedef struct global_name {
    const driver_allocation *allocation;
    uintptr_t address;
    char text[GLOBAL_ROOM];
} global_name;

static const char *say_global(void *argument)
{
    global_name *name = argument;

    name_global(name->allocation, name->address, name->text);
    return name->text;
}

static word_history *global_history(engine_launch *launch, uintptr_t word)
{
    int is_new = 0;
    uint64_t *index = table_at(&launch->word_of, word, &is_new);

    if (index == NULL) return NULL;
    if (is_new) {
        if (!grow((void **)&launch->words, &launch->word_room, launch->word_count,
                  sizeof *launch->words))
            return NULL;
        launch->words[launch->word_count] = (word_history){0};
        *index = ++launch->word_count;
    }
    return &launch->words[*index - 1];
}

static releases *releases_at(engine_launch *launch, uintptr_t word)
{
    int is_new = 0;
    uint64_t *index = table_at(&launch->released_at, word, &is_new);

    if (index == NULL) return NULL;
    if (is_new) {
        if (!grow((void **)&launch->released, &launch->released_room, launch->released_count,
                  sizeof *launch->released))
            return NULL;
        launch->released[launch->released_count] = (releases){0};
        *index = ++launch->released_count;
    }
    return &launch->released[*index - 1];
}

/* Adds a release to those at a word, if it is not there: a thread may update a word again and again
 * while it waits. */
static int add_release(releases *releases, const release *what)
{
    for (size_t i = releases->count; i-- > 0;) {
        const release *r = &releases->all[i];
        if (r->block == what->block && r->thread == what->thread && r->fence == what->fence &&
            r->barrier == what->barrier)
            return 1;
    }
    if (!grow((void **)&releases->all, &releases->room, releases->count, sizeof *releases->all))
        return 0;
    releases->all[releases->count++] = *what;
    return 1;
}

/* An atomic releases, to later atomics on the word, everything that its thread had made visible by
 * a fence; and at its next fence the thread acquires what others had released there. */
static void pass_through(engine_launch *launch, emu_thread *thread, uintptr_t word)
{
    int is_new = 0;
    releases *here = releases_at(launch, word);
    uint64_t *seen = table_at(&thread->pending, word, &is_new);
    int good = here != NULL && seen != NULL;

    if (good) *seen = here->count;
    if (good && thread->fence.fence > 0) {
        good = add_release(here, &thread->fence);
        for (size_t i = 0; i < thread->known.count && good; i++)
            good = add_release(here, &thread->known.all[i]);
        for (size_t i = 0; i < thread->block->known.count && good; i++)
            good = add_release(here, &thread->block->known.all[i]);
    }
    if (!good) launch->out_of_memory = 1;
}

static void check_global(engine_launch *launch, emu_thread *thread, const driver_allocation *a,
                         uintptr_t address, unsigned bytes, int access, const void *pc)
{
    const size_t offset = address - a->start;
    global_name name = {.allocation = a, .address = address};

    if (offset + bytes > a->bytes) out_of_global(launch, a->start + a->bytes, bytes, access, pc);
    if (access != GPR_EMU_STORE && memchr(a->written + offset, 0, bytes) != NULL) {
        report_finding(launch, pc, "read of %s, which nobody has written", say_global(&name));
    }
    for (uintptr_t word = address / WORD_BYTES * WORD_BYTES; word < address + bytes;
         word += WORD_BYTES) {
        word_history *history = global_history(launch, word);
        if (history == NULL) {
            launch->out_of_memory = 1;
            return;
        }
        check_word(launch, thread, history, &launch->records, word, address, bytes, access, pc,
                   say_global, &name);
    }
    if (access != GPR_EMU_LOAD) memset(a->written + offset, 1, bytes);
    if (access == GPR_EMU_ATOMIC) pass_through(launch, thread, address);
}

/* An access of another block to shared memory of `block`, which its last thread's return does not
 * follow; NULL: none. */
static const record *find_pending(const emu_block *block, const emu_thread *last, size_t words,
                                  size_t *at)
{
    for (*at = 0; *at < words; ++*at) {
        const word_history *history = &block->histories[*at];
        const uint32_t lists[] = {history->reads, history->writes, history->atomics};
        if (history->epoch != block->shared_epoch) continue;
        for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
            for (uint32_t k = lists[i]; k != 0; k = block->records.all[k - 1].next) {
                const record *r = &block->records.all[k - 1];
                if (r->block != block->index && !is_ordered(r, last)) return r;
            }
        }
    }
    return NULL;
}

void check_block_ends(engine_launch *launch, emu_thread *last)
{
    const emu_block *block = last->block;
    const shared_variable *variable = launch->module->shared;
    const size_t words =
        module_shared_before(launch->module, variable + launch->module->shared_count) / WORD_BYTES;
    size_t at = 0;
    char room[48];

    if (block->cluster_size == 1) return;
    const record *pending = find_pending(block, last, words, &at);
    if (pending == NULL) return;
    while (variable + 1 < launch->module->shared + launch->module->shared_count &&
           module_shared_before(launch->module, variable + 1) <= at * WORD_BYTES)
        variable++;
    last->pc = pending->pc;
    report_waiting(launch, last,
                   "return of a block whose shared memory others may access still: %s of block %u "
                   "accesses %s, and no cluster barrier follows:",
                   thread_name(pending->thread, room), pending->block, variable->name);
}

/* ---------------------------------------------------------------- all of it ------------------ */

emu_block *check_find_owner(const engine_launch *launch, const emu_thread *thread,
                            uintptr_t *address)
{
    const size_t size = launch->shape.kind.cluster,
                 first = (size_t)(thread->block - launch->blocks) / size * size;

    for (size_t i = first; i < first + size && size > 1; i++) {
        emu_block *block = &launch->blocks[i];
        const uintptr_t offset = *address - (uintptr_t)block->shared;
        if (offset >= block->shared_room) continue;
        *address = launch->module->shared_low + offset;
        return block;
    }
    return NULL;
}

/* An access to the shared memory of a block of the cluster that has returned. */
static void report_ended(engine_launch *launch, const emu_block *owner, uintptr_t address,
                         unsigned bytes, int access, const void *pc)
{
    shared_name name = {.variable = module_shared(launch->module, address),
                        .address = address,
                        .bytes = bytes,
                        .other = owner};

    report_finding(launch, pc, "shared memory of a block that has returned: it %s %s", verb(access),
                   say_shared(&name));
}

place check_access(engine_launch *launch, emu_thread *thread, uintptr_t address, unsigned bytes,
                   int access, const void *pc)
{
    const engine_module *module = launch->module;
    const driver_allocation *variable = module_variable(module, address);
    const int shared =
        variable == NULL && address - module->shared_low < module->shared_high - module->shared_low;
    uintptr_t theirs = address;
    emu_block *owner = shared ? thread->block : check_find_owner(launch, thread, &theirs);
    const driver_allocation *a =
        variable != NULL ? variable : (owner != NULL ? NULL : find_allocation(launch, address));

    if (owner == NULL && a == NULL) {
        /* A thread's own variables, and constants. */
        if (fiber_owns(address)) return OTHER_MEMORY;
        if (address >= module->low && address < module->high && access == GPR_EMU_LOAD)
            return OTHER_MEMORY;
        out_of_global(launch, address, bytes, access, pc);
    }
    if (address % bytes != 0) {
        report_finding(
            launch, pc,
            "misaligned access: it %s %u bytes at an address that is %u past a multiple of %u",
            verb(access), bytes, (unsigned)(address % bytes), bytes);
    }
    launch->now++;
    if (owner == NULL)
        check_global(launch, thread, a, address, bytes, access, pc);
    else if (owner->live)
        check_shared(launch, thread, owner, theirs, bytes, access, pc);
    else
        report_ended(launch, owner, theirs, bytes, access, pc);
    return owner != NULL ? SHARED_MEMORY : GLOBAL_MEMORY;
}

/* Adds a release to what a thread or a block knows: of each other thread the newest. */
static int learn(releases *known, const release *what)
{
    for (size_t i = 0; i < known->count; i++) {
        release *r = &known->all[i];
        if (r->block != what->block || r->thread != what->thread) continue;
        if (what->fence > r->fence) r->fence = what->fence;
        if (what->barrier > r->barrier) r->barrier = what->barrier;
        for (unsigned lane = 0; lane < WARP_LANES; lane++) {
            if (what->seen[lane] > r->seen[lane]) r->seen[lane] = what->seen[lane];
        }
        return 1;
    }
    return add_release(known, what);
}

static int take_over(releases *to, const releases *from)
{
    for (size_t i = 0; i < from->count; i++) {
        if (!learn(to, &from->all[i])) return 0;
    }
    return 1;
}

void check_fence(engine_launch *launch, emu_thread *thread)
{
    launch->now++;
    for (size_t i = 0; i < thread->pending.room && thread->pending.count > 0; i++) {
        if (thread->pending.slots[i].key == ~0ull) continue;
        const releases *here = releases_at(launch, thread->pending.slots[i].key);
        const releases seen = {.all = here->all, .count = thread->pending.slots[i].value};
        if (!take_over(&thread->known, &seen)) launch->out_of_memory = 1;
    }
    table_clear(&thread->pending);
    thread->fence = (release){.block = thread->block->index,
                              .thread = thread->index,
                              .fence = launch->now,
                              .barrier = thread->block->barrier_time};
    memcpy(thread->fence.seen, thread->seen, sizeof thread->seen);
}

/* Accesses to a block's shared memory before this are ordered before all later ones. */
static void begin_shared_epoch(emu_block *block)
{
    block->shared_epoch++;
    block->records.count = 0; /* histories of the epoch before are not looked at */
}

void check_block_met(engine_launch *launch, emu_block *block)
{
    block->epoch++;
    block->barrier_time = ++launch->now;
    if (block->cluster_size == 1) begin_shared_epoch(block);
    for (unsigned i = 0; i < block->threads; i++) {
        emu_thread *thread = &block->thread[i];
        if (!take_over(&block->known, &thread->known)) launch->out_of_memory = 1;
        thread->known.count = 0;
    }
}

void check_cluster_met(engine_launch *launch, emu_block *first)
{
    const unsigned size = launch->shape.kind.cluster;
    int good = 1;

    for (unsigned i = 0; i < size; i++) {
        check_block_met(launch, &first[i]);
        begin_shared_epoch(&first[i]);
    }
    for (unsigned i = 0; i < size; i++) {
        /* What the others' threads have done, and what had been made visible to them. */
        for (unsigned k = 0; k < size && good; k++) {
            const release met = {.block = first[k].index, .barrier = launch->now};
            if (k == i) continue;
            good = learn(&first[i].known, &met);
            for (size_t r = 0; r < first[k].known.count && good; r++)
                good = first[k].known.all[r].block == first[i].index ||
                       learn(&first[i].known, &first[k].known.all[r]);
        }
    }
    if (!good) launch->out_of_memory = 1;
}

void check_warp_met(emu_thread *threads, unsigned mask)
{
    uint32_t seen[WARP_LANES] = {0};

    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if ((mask >> lane & 1) == 0) continue;
        for (unsigned i = 0; i < WARP_LANES; i++) {
            if (threads[lane].seen[i] > seen[i]) seen[i] = threads[lane].seen[i];
        }
    }
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if ((mask >> lane & 1) != 0) seen[lane] = threads[lane].clock;
    }
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if ((mask >> lane & 1) == 0) continue;
        memcpy(threads[lane].seen, seen, sizeof seen);
        threads[lane].clock++;
    }
}

void check_block_starts(engine_launch *launch, emu_block *block)
{
    const engine_module *module = launch->module;
    const size_t bytes = module_shared_before(module, module->shared + module->shared_count);

    if (bytes > 0) {
        memset(block->written, 0, bytes);
        memset(block->histories, 0, bytes / WORD_BYTES * sizeof *block->histories);
    }
    block->records.count = 0;
    block->known.count = 0;
    block->barrier_time = 0;
    block->epoch = 1;
    block->shared_epoch = 1;
}
