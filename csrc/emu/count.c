/* The events of a launch, counted as the hardware counts them.
 *
 * Threads leave events. When a block's phase ends they are sorted into requests, which are what a
 * warp's lanes do at the same instruction for the same time since they last met; of each request
 * the memory's work is counted: passes over the banks, sectors. docs/explain.md has the words;
 * docs/emulator.md the format of the report. */
#include <stdlib.h>
#include <string.h>

#include "emu/emu.h"

enum {
    BANKS = 32,
    SECTOR_BYTES = GPR_SECTOR_BYTES,
    MOST_WORDS = GPR_VECTOR_BYTES / WORD_BYTES,
    MOST_MAPPED = 512,
    MOST_WARPS = MOST_THREADS / WARP_LANES,
    FORMAT = 2
};

/* The events of a thread in a column of the map, a bit per kind. */
static const uint8_t did_bit[EVENT_KINDS] = {4, 8, 16, 1, 2, 32, 128, 64, 64, 64, 0, 0, 0, 0};
static const char *const kind_names[EVENT_KINDS] = {
    "shared_load",   "shared_store", "shared_atomic", "global_load", "global_store",
    "global_atomic", "copy",         "shuffle",       "vote",        "reduce",
    "warp_barrier",  "barrier",      "copy_wait",     "fence"};

typedef struct tally {
    uint64_t requests, threads, bytes;
    uint64_t passes, ideal; /* over banks, or sectors */
} tally;

typedef struct column {
    uint32_t phase, step;
    int ends; /* event_kind, or EVENT_KINDS: the threads returned */
    unsigned site;
    uint64_t blocks, warps, threads;
    tally of[EVENT_KINDS];
} column;

typedef struct mapped {
    uint32_t phase, step;
    uint8_t did[MOST_THREADS], ways[MOST_THREADS];
    uint8_t there[MOST_WARPS]; /* whether a lane of the warp did anything, or came to a barrier */
    uint64_t conflicts;        /* passes over the banks beyond the ideal ones */
    uint64_t atomics;
} mapped;

struct counts {
    column *columns;
    size_t column_room, column_count;
    table column_at; /* phase and step to index + 1 */
    tally *lines;    /* EVENT_KINDS for each site */
    size_t line_sites;
    table atomics[2];         /* operations on each address; shared, global */
    uint32_t *turns, *stamps; /* per thread and site: events in the phase and step of the stamp */
    size_t turn_sites;
    uint32_t stamp;
    mapped *map;
    size_t map_room, map_count;
    size_t shared_bytes; /* of the variables that were touched */
    int shared_seen_count;
    int *shared_seen;
};

counts *counts_create(const engine_launch *launch)
{
    counts *made = calloc(1, sizeof *made);

    if (made == NULL) return NULL;
    made->shared_seen = calloc(launch->module->shared_count + 1, sizeof *made->shared_seen);
    if (made->shared_seen != NULL) return made;
    free(made);
    return NULL;
}

void counts_free(counts *counts)
{
    if (counts == NULL) return;
    free(counts->columns);
    table_free(&counts->column_at);
    free(counts->lines);
    table_free(&counts->atomics[0]);
    table_free(&counts->atomics[1]);
    free(counts->turns);
    free(counts->stamps);
    free(counts->map);
    free(counts->shared_seen);
    free(counts);
}

/* ---------------------------------------------------------------- events --------------------- */

static void note_shared(engine_launch *launch, uintptr_t address)
{
    const shared_variable *variable = module_shared(launch->module, address);
    int *seen = &launch->counts->shared_seen[variable - launch->module->shared];

    if (!*seen) launch->counts->shared_bytes += variable->bytes;
    *seen = 1;
}

static void count_atomic(engine_launch *launch, table *atomics, uintptr_t address)
{
    int is_new = 0;
    uint64_t *operations = table_at(atomics, address, &is_new);

    if (operations == NULL)
        launch->out_of_memory = 1;
    else
        ++*operations;
}

void count_event(engine_launch *launch, emu_thread *thread, event_kind kind, uintptr_t address,
                 unsigned bytes, const void *pc)
{
    emu_block *block = thread->block;

    if (!grow((void **)&block->events, &block->event_room, block->event_count,
              sizeof *block->events)) {
        launch->out_of_memory = 1;
        return;
    }
    block->events[block->event_count++] = (event){.address = address,
                                                  .site = module_site(launch->module, pc),
                                                  .step = thread->step,
                                                  .thread = thread->index,
                                                  .kind = (uint8_t)kind,
                                                  .bytes = bytes};
    if (kind <= SHARED_ATOMIC) note_shared(launch, address);
    /* A shared word is another one in each block. */
    if (kind == SHARED_ATOMIC)
        count_atomic(launch, &launch->counts->atomics[0], address ^ (uintptr_t)block->index << 40);
    if (kind == GLOBAL_ATOMIC) count_atomic(launch, &launch->counts->atomics[1], address);
}

/* Numbers the times that each thread was at each site in this phase and step. */
static int number_turns(counts *counts, const engine_module *module, emu_block *block)
{
    const size_t sites = module->site_count;
    uint32_t last_step = 0;

    if (sites > counts->turn_sites) {
        free(counts->turns);
        free(counts->stamps);
        counts->turns = calloc(sites * MOST_THREADS, sizeof *counts->turns);
        counts->stamps = calloc(sites * MOST_THREADS, sizeof *counts->stamps);
        counts->turn_sites = counts->turns != NULL && counts->stamps != NULL ? sites : 0;
        counts->stamp = 0;
        if (counts->turn_sites == 0) return 0;
    }
    for (size_t i = 0; i < block->event_count; i++) {
        event *e = &block->events[i];
        const size_t at = e->thread * counts->turn_sites + e->site;
        const uint32_t stamp = counts->stamp + 1 + e->step;
        if (counts->stamps[at] != stamp) counts->turns[at] = 0;
        counts->stamps[at] = stamp;
        e->turn = counts->turns[at]++;
        if (e->step > last_step) last_step = e->step;
    }
    counts->stamp += last_step + 1;
    return 1;
}

/* Requests side by side: by step, warp, site and turn; then by lane. */
static int in_order(const void *a, const void *b)
{
    const event *x = a, *y = b;
    const unsigned x_warp = x->thread / WARP_LANES, y_warp = y->thread / WARP_LANES;

    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x_warp != y_warp) return x_warp < y_warp ? -1 : 1;
    if (x->site != y->site) return x->site < y->site ? -1 : 1;
    if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
    return (int)x->thread - (int)y->thread;
}

static int same_request(const event *a, const event *b)
{
    return a->step == b->step && a->thread / WARP_LANES == b->thread / WARP_LANES &&
           a->site == b->site && a->turn == b->turn;
}

/* ---------------------------------------------------------------- requests ------------------- */

/* Passes over the banks that a request takes: a bank serves one of its words at a time, to all
 * that want it, so the bank with most different words decides. Atomics on one word go one after
 * the other. `ideal` is what the passes would be without conflicts, as the counters of a GPU
 * have it: for a load, as many as its words fill; for a store, one for each group of
 * neighbouring lanes that together would fill the banks. */
static void count_banks(const event *e, size_t n, uint64_t *passes, uint64_t *ideal)
{
    const unsigned words = e->bytes <= WORD_BYTES ? 1 : e->bytes / WORD_BYTES;
    static _Thread_local uintptr_t wanted[BANKS][WARP_LANES * MOST_WORDS]; /* no stack's: 32 KiB */
    unsigned queue[BANKS] = {0}, longest = 0, all = 0, groups = 0;

    for (size_t i = 0; i < n * words; i++) {
        const uintptr_t word = e[i / words].address / WORD_BYTES + i % words;
        unsigned *length = &queue[word % BANKS], known = 0;
        while (known < *length && wanted[word % BANKS][known] != word) known++;
        if (known < *length && e->kind != SHARED_ATOMIC) continue;
        wanted[word % BANKS][(*length)++] = word;
        if (*length > longest) longest = *length;
        all++;
    }
    for (size_t i = 0; i < n; i++) groups |= 1u << e[i].thread % WARP_LANES * words / BANKS;
    *passes = longest;
    *ideal = e->kind == SHARED_ATOMIC  ? 1
             : e->kind == SHARED_STORE ? (uint64_t)__builtin_popcount(groups)
                                       : (all + BANKS - 1) / BANKS;
    if (*ideal > *passes) *ideal = *passes; /* lanes of several groups that store to one word */
}

/* Sectors that a request touches, and as many as its different addresses would fill side by
 * side. */
static void count_sectors(const event *e, size_t n, uint64_t *sectors, uint64_t *ideal)
{
    uintptr_t touched[2 * WARP_LANES], addresses[WARP_LANES];
    size_t count = 0, different = 0;

    if (e->bytes > GPR_VECTOR_BYTES) { /* bulk copies: sectors that follow each other */
        *sectors = *ideal = 0;
        for (size_t i = 0; i < n; i++) {
            *sectors +=
                (e[i].address + e[i].bytes - 1) / SECTOR_BYTES - e[i].address / SECTOR_BYTES + 1;
            *ideal += (e[i].bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t known = 0;
        while (known < different && addresses[known] != e[i].address) known++;
        if (known == different) addresses[different++] = e[i].address;
        for (uintptr_t s = e[i].address / SECTOR_BYTES;
             s <= (e[i].address + e[i].bytes - 1) / SECTOR_BYTES; s++) {
            size_t at = 0;
            while (at < count && touched[at] != s) at++;
            if (at == count) touched[count++] = s;
        }
    }
    *sectors = count;
    *ideal = (different * e->bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;
}

static void add_request(tally *to, const event *e, size_t n, uint64_t passes, uint64_t ideal)
{
    to->requests++;
    to->threads += n;
    for (size_t i = 0; i < n; i++) to->bytes += e[i].bytes;
    to->passes += passes;
    to->ideal += ideal;
}

static tally *line_tally(counts *counts, const engine_module *module, unsigned site, unsigned kind)
{
    if (site >= counts->line_sites) {
        const size_t more = module->site_count;
        tally *larger = realloc(counts->lines, more * EVENT_KINDS * sizeof *larger);
        if (larger == NULL) return NULL;
        memset(larger + counts->line_sites * EVENT_KINDS, 0,
               (more - counts->line_sites) * EVENT_KINDS * sizeof *larger);
        counts->lines = larger;
        counts->line_sites = more;
    }
    return &counts->lines[(size_t)site * EVENT_KINDS + kind];
}

static column *column_at(counts *counts, uint32_t phase, uint32_t step)
{
    int is_new = 0;
    uint64_t *index = table_at(&counts->column_at, (uint64_t)phase << 32 | step, &is_new);

    if (index == NULL) return NULL;
    if (is_new) {
        if (!grow((void **)&counts->columns, &counts->column_room, counts->column_count,
                  sizeof *counts->columns))
            return NULL;
        counts->columns[counts->column_count] =
            (column){.phase = phase, .step = step, .ends = EVENT_KINDS};
        *index = ++counts->column_count;
    }
    return &counts->columns[*index - 1];
}

/* One step of a block's phase: events[0 .. count). */
static int count_step(engine_launch *launch, const emu_block *block, const event *events,
                      size_t count)
{
    counts *counts = launch->counts;
    mapped now = {.phase = block->epoch - 1, .step = events->step};
    column *column = column_at(counts, now.phase, now.step);
    uint64_t warps = 0;

    if (column == NULL) return 0;
    for (size_t from = 0, to = 0; from < count; from = to) {
        const event *e = &events[from];
        uint64_t passes = 0, ideal = 0;
        while (to < count && same_request(e, &events[to])) to++;
        if (e->kind <= SHARED_ATOMIC)
            count_banks(e, to - from, &passes, &ideal);
        else if (e->kind <= COPY)
            count_sectors(e, to - from, &passes, &ideal);
        else if (e->kind != FENCE && (column->ends == EVENT_KINDS || column->ends == BARRIER)) {
            /* operations of a whole warp, while others wait for it at a barrier */
            column->ends = e->kind;
            column->site = e->site;
        }
        tally *line = line_tally(counts, launch->module, e->site, e->kind);
        if (line == NULL) return 0;
        add_request(line, e, to - from, passes, ideal);
        add_request(&column->of[e->kind], e, to - from, passes, ideal);
        const uint8_t ways = e->kind <= SHARED_ATOMIC ? (uint8_t)((passes + ideal - 1) / ideal) : 0;
        now.there[e->thread / WARP_LANES] = 1;
        if (e->kind <= SHARED_ATOMIC) now.conflicts += passes - ideal;
        if (e->kind == SHARED_ATOMIC || e->kind == GLOBAL_ATOMIC) now.atomics += to - from;
        for (const event *lane = e; lane < &events[to]; lane++) {
            now.did[lane->thread] |= did_bit[e->kind];
            if (ways > now.ways[lane->thread]) now.ways[lane->thread] = ways;
        }
    }
    column->blocks++;
    for (unsigned i = 0; i < block->threads; i++) {
        column->threads += now.did[i] != 0;
        if (i % WARP_LANES == 0) warps = 0;
        if (now.did[i] != 0 && warps++ == 0) column->warps++;
    }
    if (block->index != 0 || counts->map_count == MOST_MAPPED) return 1;
    if (!grow((void **)&counts->map, &counts->map_room, counts->map_count, sizeof *counts->map))
        return 0;
    counts->map[counts->map_count++] = now;
    return 1;
}

void count_phase(engine_launch *launch, emu_block *block)
{
    counts *counts = launch->counts;
    int good = 1;

    if (counts == NULL || block->event_count == 0) return;
    good = number_turns(counts, launch->module, block);
    qsort(block->events, block->event_count, sizeof *block->events, in_order);
    for (size_t from = 0, to = 0; from < block->event_count && good; from = to) {
        while (to < block->event_count && block->events[to].step == block->events[from].step) to++;
        good = count_step(launch, block, &block->events[from], to - from);
    }
    block->event_count = 0;
    if (!good) launch->out_of_memory = 1;
}

/* ---------------------------------------------------------------- the report ----------------- */

static int by_time(const void *a, const void *b)
{
    const column *x = a, *y = b;

    if (x->phase != y->phase) return x->phase < y->phase ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

static void write_tally(FILE *file, unsigned kind, const tally *t)
{
    (void)fprintf(file, "\"requests\": %llu, \"threads\": %llu", (unsigned long long)t->requests,
                  (unsigned long long)t->threads);
    if (kind == COPY_WAIT) (void)fprintf(file, ", \"bytes\": %llu", (unsigned long long)t->bytes);
    if (kind > COPY) return;
    const char *passes = kind <= SHARED_ATOMIC ? "wavefronts" : "sectors";
    const char *ideal = kind <= SHARED_ATOMIC ? "ideal" : "ideal_sectors";
    (void)fprintf(file, ", \"bytes\": %llu, \"%s\": %llu, \"%s\": %llu",
                  (unsigned long long)t->bytes, passes, (unsigned long long)t->passes, ideal,
                  (unsigned long long)t->ideal);
}

/* Where something is: in its own function, and in the kernel that the function is part of. */
static void write_place(FILE *file, const site *at)
{
    (void)fprintf(file,
                  "\"file\": \"%s\", \"line\": %d, \"from_file\": \"%s\", \"from_line\": %d, ",
                  at->where.file, at->where.line, at->from.file, at->from.line);
}

static void write_columns(FILE *file, const engine_launch *launch)
{
    static const char *const ends[] = {"shuffle",      "vote",    "reduce",
                                       "warp_barrier", "barrier", "copy_wait"};
    const counts *counts = launch->counts;

    (void)fprintf(file, "\"columns\": [");
    for (size_t i = 0; i < counts->column_count; i++) {
        const column *c = &counts->columns[i];
        static const site nowhere;
        const site *at = c->ends < EVENT_KINDS ? &launch->module->sites[c->site] : &nowhere;
        const char *separator = "";
        (void)fprintf(file, "%s{\"phase\": %u, \"step\": %u, \"ends\": \"%s\", ", i > 0 ? ", " : "",
                      c->phase, c->step, c->ends < EVENT_KINDS ? ends[c->ends - SHUFFLE] : "exit");
        write_place(file, at);
        (void)fprintf(file, "\"blocks\": %llu, \"warps\": %llu, \"threads\": %llu, \"ops\": {",
                      (unsigned long long)c->blocks, (unsigned long long)c->warps,
                      (unsigned long long)c->threads);
        for (unsigned kind = 0; kind < EVENT_KINDS; kind++) {
            if (c->of[kind].requests == 0) continue;
            (void)fprintf(file, "%s\"%s\": {", separator, kind_names[kind]);
            write_tally(file, kind, &c->of[kind]);
            (void)fprintf(file, "}");
            separator = ", ";
        }
        (void)fprintf(file, "}}");
    }
    (void)fprintf(file, "]");
}

static int same_line(const source_line *a, const source_line *b)
{
    return a->line == b->line && strcmp(a->file, b->file) == 0;
}

/* Sites of one line are one entry: the compiler may have made several of it. */
static void write_lines(FILE *file, const engine_launch *launch)
{
    const counts *counts = launch->counts;
    const site *sites = launch->module->sites;
    const char *separator = "";

    (void)fprintf(file, "\"lines\": [");
    for (size_t i = 0; i < counts->line_sites; i++) {
        for (unsigned kind = 0; kind < EVENT_KINDS; kind++) {
            tally sum = {0};
            int first = 1;
            for (size_t j = 0; j < counts->line_sites; j++) {
                const tally *t = &counts->lines[j * EVENT_KINDS + kind];
                if (t->requests == 0 || !same_line(&sites[j].where, &sites[i].where) ||
                    !same_line(&sites[j].from, &sites[i].from))
                    continue;
                if (j < i) first = 0;
                sum.requests += t->requests;
                sum.threads += t->threads;
                sum.bytes += t->bytes;
                sum.passes += t->passes;
                sum.ideal += t->ideal;
            }
            if (sum.requests == 0 || !first || counts->lines[i * EVENT_KINDS + kind].requests == 0)
                continue;
            (void)fprintf(file, "%s{\"op\": \"%s\", ", separator, kind_names[kind]);
            write_place(file, &sites[i]);
            write_tally(file, kind, &sum);
            (void)fprintf(file, "}");
            separator = ", ";
        }
    }
    (void)fprintf(file, "]");
}

static void write_atomics(FILE *file, const table *atomics)
{
    uint64_t operations = 0, most = 0;

    for (size_t i = 0; i < atomics->room && atomics->count > 0; i++) {
        if (atomics->slots[i].key == ~0ull) continue;
        operations += atomics->slots[i].value;
        if (atomics->slots[i].value > most) most = atomics->slots[i].value;
    }
    (void)fprintf(file, "{\"operations\": %llu, \"addresses\": %zu, \"most\": %llu}",
                  (unsigned long long)operations, atomics->count, (unsigned long long)most);
}

/* A list of numbers per column of the map. */
static void write_numbers(FILE *file, const char *name, const counts *counts, size_t from,
                          unsigned count)
{
    (void)fprintf(file, ", \"%s\": [", name);
    for (size_t i = 0; i < counts->map_count; i++) {
        const uint8_t *of = (const uint8_t *)&counts->map[i] + from;
        (void)fprintf(file, "%s[", i > 0 ? ", " : "");
        for (unsigned k = 0; k < count; k++) (void)fprintf(file, "%s%u", k > 0 ? "," : "", of[k]);
        (void)fprintf(file, "]");
    }
    (void)fprintf(file, "]");
}

static void write_map(FILE *file, const engine_launch *launch)
{
    const counts *counts = launch->counts;
    const unsigned threads = launch->shape.block;

    (void)fprintf(file, "\"map\": {\"block\": 0, \"threads\": %u, \"columns\": %zu", threads,
                  counts->map_count);
    write_numbers(file, "did", counts, offsetof(mapped, did), threads);
    write_numbers(file, "ways", counts, offsetof(mapped, ways), threads);
    write_numbers(file, "there", counts, offsetof(mapped, there),
                  (threads + WARP_LANES - 1) / WARP_LANES);
    for (int atomics = 0; atomics < 2; atomics++) {
        (void)fprintf(file, ", \"%s\": [", atomics ? "atomics" : "conflicts");
        for (size_t i = 0; i < counts->map_count; i++) {
            const mapped *m = &counts->map[i];
            (void)fprintf(file, "%s%llu", i > 0 ? "," : "",
                          (unsigned long long)(atomics ? m->atomics : m->conflicts));
        }
        (void)fprintf(file, "]");
    }
    (void)fprintf(file, "}");
}

void counts_write(engine_launch *launch, const char *path)
{
    static const char *const schedules[] = {"forward", "reverse", "random"};
    counts *counts = launch->counts;
    FILE *file = fopen(path, "a");

    if (file == NULL) return;
    module_look_up(launch->module);
    if (counts->column_count > 0)
        qsort(counts->columns, counts->column_count, sizeof *counts->columns, by_time);
    (void)fprintf(
        file,
        "{\"format\": %d, \"entry\": \"%s\", \"grid\": %u, \"block\": %u, \"shared_bytes\": %zu, ",
        FORMAT, launch->kernel->entry->name, launch->shape.grid, launch->shape.block,
        counts->shared_bytes);
    (void)fprintf(file, "\"schedule\": \"%s\", \"seed\": %llu, ",
                  schedules[emu_settings_now.schedule], (unsigned long long)emu_settings_now.seed);
    write_columns(file, launch);
    (void)fprintf(file, ", ");
    write_lines(file, launch);
    (void)fprintf(file, ", \"atomics\": {\"shared\": ");
    write_atomics(file, &counts->atomics[0]);
    (void)fprintf(file, ", \"global\": ");
    write_atomics(file, &counts->atomics[1]);
    (void)fprintf(file, "}, ");
    write_map(file, launch);
    (void)fprintf(file, "}\n");
    (void)fclose(file);
}
