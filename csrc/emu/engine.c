/* The engine of the emulator: launches, from their arguments to their findings. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "emu/emu.h"

const char engine_variable[] = "GPUREDUCE_EMULATOR";
const char engine_device_name[] = "Emulated GPU";
const int engine_tracks_writes = 1;

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
/* Blocks, and the stacks of their threads: allocated once, for as many as a launch ever had at a
 * time. */
static emu_block *blocks;
static unsigned block_count;
static char message[2048]; /* of the last finding */
static unsigned relied;    /* STRICT_* bits of launches */

/* ---------------------------------------------------------------- arguments ------------------ */

const char *engine_prepare(engine_kernel *kernel, engine_shape shape, void **arguments,
                           engine_launch **prepared)
{
    const gpr_emu_entry *entry = kernel->entry;
    engine_launch *launch = calloc(1, sizeof *launch);

    *prepared = NULL;
    if (launch == NULL) return NULL;
    launch->kernel = kernel;
    launch->module = kernel->module;
    launch->shape = shape;
    launch->arguments = calloc(entry->argument_count + 1, sizeof *launch->arguments);
    if (launch->arguments == NULL) goto fail;
    for (unsigned i = 0; i < entry->argument_count; i++) {
        /* aligned as a parameter in a GPU's memory */
        if (posix_memalign(&launch->arguments[i], 16, entry->argument_bytes[i]) != 0) goto fail;
        memcpy(launch->arguments[i], arguments[i], entry->argument_bytes[i]);
    }
    *prepared = launch;
    return NULL;
fail:
    engine_drop(launch);
    return NULL;
}

int engine_again(const engine_launch *launch, engine_launch **copy)
{
    (void)engine_prepare(launch->kernel, launch->shape, launch->arguments, copy);
    return *copy != NULL;
}

void engine_drop(engine_launch *launch)
{
    for (unsigned i = 0; launch->arguments != NULL && i < launch->kernel->entry->argument_count;
         i++) {
        free(launch->arguments[i]);
    }
    free(launch->arguments);
    free((void *)launch->allocations);
    table_free(&launch->word_of);
    free(launch->words);
    free(launch->records.all);
    table_free(&launch->released_at);
    for (size_t i = 0; i < launch->released_count; i++) free(launch->released[i].all);
    free(launch->released);
    counts_free(launch->counts);
    free(launch);
}

const char *engine_check(const engine_launch *launch)
{
    (void)launch; /* every access is checked when it is made */
    return NULL;
}

/* ---------------------------------------------------------------- before a launch ------------ */

static int by_start(const void *a, const void *b)
{
    const driver_allocation *x = *(const driver_allocation *const *)a,
                            *y = *(const driver_allocation *const *)b;

    return (x->start > y->start) - (x->start < y->start);
}

static int list_allocations(engine_launch *launch)
{
    size_t room = 0;
    int good = 1;

    driver_lock_memory();
    for (const driver_allocation *a = driver_allocations(); a != NULL && good; a = a->next) {
        good = grow((void **)&launch->allocations, &room, launch->allocation_count, sizeof(void *));
        if (good) launch->allocations[launch->allocation_count++] = a;
    }
    driver_unlock_memory();
    for (unsigned i = 0; i < launch->module->variable_count && good; i++) {
        good = grow((void **)&launch->allocations, &room, launch->allocation_count, sizeof(void *));
        if (good)
            launch->allocations[launch->allocation_count++] = &launch->module->variables[i].memory;
    }
    if (launch->allocation_count > 0)
        qsort(launch->allocations, launch->allocation_count, sizeof(void *), by_start);
    return good;
}

static void free_block(emu_block *block)
{
    for (unsigned i = 0; block->thread != NULL && i < MOST_THREADS; i++) {
        fiber_free(block->thread[i].fiber);
        free(block->thread[i].known.all);
        free(block->thread[i].copies.all);
        table_free(&block->thread[i].pending);
    }
    free(block->thread);
    free(block->shared);
    free(block->written);
    free(block->histories);
    free(block->records.all);
    free(block->known.all);
    mbarriers_free(block);
    free(block->events);
    *block = (emu_block){0};
}

/* Room for a block of this launch; its content is undefined. */
static int prepare_block(const engine_launch *launch, emu_block *block)
{
    const engine_module *module = launch->module;
    /* One more, so that none of them is empty. */
    const size_t bytes =
        sizeof(uint64_t) + module_shared_before(module, module->shared + module->shared_count);

    free(block->shared);
    free(block->written);
    free(block->histories);
    /* Variables are as far from each other as in the module. */
    block->shared_room = module->shared_high - module->shared_low + 1;
    block->shared = malloc(block->shared_room);
    block->written = calloc(bytes, 1);
    block->histories = calloc(bytes / WORD_BYTES, sizeof *block->histories);
    if (block->thread == NULL) block->thread = calloc(MOST_THREADS, sizeof *block->thread);
    if (block->shared == NULL || block->written == NULL || block->histories == NULL ||
        block->thread == NULL)
        return 0;
    block->live = 0;
    block->threads = launch->shape.block;
    block->cluster_size = launch->shape.kind.cluster;
    block->event_count = 0;
    for (unsigned i = 0; i < block->threads; i++) {
        if (block->thread[i].fiber == NULL) block->thread[i].fiber = fiber_create();
        if (block->thread[i].fiber == NULL) return 0;
        block->thread[i].block = block;
        block->thread[i].index = (uint16_t)i;
        block->thread[i].lane = (uint16_t)(i % WARP_LANES);
        block->thread[i].warp = (uint16_t)(i / WARP_LANES);
    }
    return 1;
}

/* The blocks that are under way at a time: all of a cooperative launch; else a cluster, or several
 * where the schedule is random. */
static unsigned resident_blocks(const engine_shape *shape)
{
    const unsigned cluster = shape->kind.cluster;
    unsigned several = cluster;

    if (shape->kind.cooperative) return shape->grid;
    while (several < SEVERAL_BLOCKS) several += cluster;
    if (cluster > 1 && several == cluster) several += cluster;
    return emu_settings_now.schedule == RANDOM && shape->grid > cluster ? several : cluster;
}

/* Makes room for `count` blocks. */
static int make_blocks(unsigned count)
{
    if (count <= block_count) return 1;
    emu_block *more = realloc(blocks, count * sizeof *blocks);
    if (more == NULL) return 0;
    memset(more + block_count, 0, (count - block_count) * sizeof *blocks);
    blocks = more;
    block_count = count;
    return 1;
}

static int prepare(engine_launch *launch)
{
    const emu_settings *s = &emu_settings_now;

    launch->random = (s->seed + 1) * 0x9e3779b97f4a7c15ull;
    launch->resident = resident_blocks(&launch->shape);
    if (!make_blocks(launch->resident)) return 0;
    launch->blocks = blocks;
    module_set_dynamic(launch->module, launch->shape.shared_bytes);
    if (!list_allocations(launch)) return 0;
    for (unsigned i = 0; i < launch->resident; i++) {
        if (!prepare_block(launch, &blocks[i])) return 0;
    }
    if (s->report[0] == '\0') return 1;
    launch->counts = counts_create(launch);
    return launch->counts != NULL;
}

/* ---------------------------------------------------------------- after a launch ------------- */

unsigned engine_relied(void)
{
    (void)pthread_mutex_lock(&one_at_a_time);
    const unsigned found = relied;
    relied = 0;
    (void)pthread_mutex_unlock(&one_at_a_time);
    return found;
}

enum { PLACE_ROOM = 144 };

/* " at warp.cuh:27, called at sequential.cuh:45" */
static void say_where(engine_module *module, const void *pc, char room[PLACE_ROOM])
{
    room[0] = '\0';
    if (pc == NULL) return;
    const site *site = &module->sites[module_site(module, pc)];
    if (site->where.line == 0) return;
    const int length = snprintf(room, PLACE_ROOM, " at %s:%d", site->where.file, site->where.line);
    /* from the kernel's file; within it, one call further out */
    const source_line *call =
        strcmp(site->from.file, site->where.file) != 0 ? &site->from : &site->call;
    if (call->line != 0) {
        (void)snprintf(room + length, (size_t)(PLACE_ROOM - length), ", called at %s:%d",
                       call->file, call->line);
    }
}

static const char *describe(engine_launch *launch)
{
    const finding *f = &launch->finding;
    const emu_thread *thread = launch->current;
    char room[48], here[PLACE_ROOM], there[PLACE_ROOM], seed[64] = "";

    (void)module_site(launch->module, f->pc);
    if (f->other_pc != NULL) (void)module_site(launch->module, f->other_pc);
    module_look_up(launch->module);
    say_where(launch->module, f->pc, here);
    say_where(launch->module, f->other_pc, there);
    if (emu_settings_now.schedule == RANDOM) {
        (void)snprintf(seed, sizeof seed, " [schedule=random,seed=%llu]",
                       (unsigned long long)emu_settings_now.seed);
    } else if (emu_settings_now.schedule == REVERSE) {
        (void)snprintf(seed, sizeof seed, " [schedule=reverse]");
    }
    (void)snprintf(message, sizeof message, "kernel %s, block %u, %s, phase %u: %s%s%s%s%s%s",
                   launch->kernel->entry->name, thread->block->index,
                   thread_name(thread->index, room), thread->block->epoch - 1, f->what, here,
                   f->other, there, f->end, seed);
    return message;
}

const char *engine_run(engine_launch *launch)
{
    const char *wrong = NULL;

    (void)pthread_mutex_lock(&one_at_a_time);
    if (!prepare(launch)) {
        launch->out_of_memory = 1;
    } else {
        run_blocks(launch);
        relied |= launch->relied;
        if (launch->finding.found) wrong = describe(launch);
    }
    if (launch->out_of_memory && wrong == NULL) wrong = "the emulator is out of memory";
    if (wrong != NULL) {
        for (unsigned i = 0; i < block_count; i++) {
            for (unsigned k = 0; blocks[i].thread != NULL && k < MOST_THREADS; k++) {
                if (blocks[i].thread[k].fiber != NULL) fiber_abandon(blocks[i].thread[k].fiber);
            }
        }
    } else if (launch->counts != NULL) {
        counts_write(launch, emu_settings_now.report);
    }
    (void)pthread_mutex_unlock(&one_at_a_time);
    return wrong;
}

/* Frees the memory that launches share, so that leaks can be counted. */
__attribute__((destructor)) static void free_all(void)
{
    for (unsigned i = 0; i < block_count; i++) free_block(&blocks[i]);
    free(blocks);
}
