/* The mbarriers of a block, their copies, and the order that they bring about.
 *
 * Who does something in a block is an actor: a thread, or the copies of an mbarrier, which write
 * shared memory themselves. A clock has a time for each actor: what it did before that time comes
 * before what the clock's owner does next. Each thread has one, and each mbarrier two: of the
 * phases that have completed, and of those that have arrived in the current one. */
#include <stdlib.h>
#include <string.h>

#include "emu/emu.h"

static size_t width(const emu_block *block)
{
    return (size_t)block->threads + MOST_MBARRIERS;
}

/* From one clock to the next: behind a thread's there are, for each mbarrier, how many of its
 * phases had completed when the thread last passed a wait there. */
static size_t stride(const emu_block *block)
{
    return width(block) + MOST_MBARRIERS;
}

/* The clock of a thread, and behind those of all threads two for each mbarrier. */
static uint64_t *clock_at(const emu_block *block, size_t place)
{
    return block->mbarriers.clocks + place * stride(block);
}

static uint64_t *passed(const emu_thread *thread, const mbarrier *barrier)
{
    const emu_block *block = thread->block;

    return clock_at(block, thread->index) + width(block) + (barrier - block->mbarriers.all);
}

static uint64_t *completed(const emu_block *block, const mbarrier *barrier)
{
    return clock_at(block, block->threads + 2 * (size_t)(barrier - block->mbarriers.all));
}

static uint64_t *gathered(const emu_block *block, const mbarrier *barrier)
{
    return completed(block, barrier) + stride(block);
}

static size_t place_of(const emu_block *block, unsigned actor)
{
    return actor < MOST_THREADS ? actor : block->threads + (actor - MOST_THREADS);
}

static void advance(uint64_t *clock, const uint64_t *other, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (other[i] > clock[i]) clock[i] = other[i];
    }
}

mbarrier *mbarriers_find(emu_block *block, uintptr_t address)
{
    for (unsigned i = 0; i < block->mbarriers.count; i++) {
        if (block->mbarriers.all[i].address == address) return &block->mbarriers.all[i];
    }
    return NULL;
}

mbarrier *mbarriers_add(emu_block *block, const mbarrier *made)
{
    mbarriers *of_block = &block->mbarriers;
    const size_t count = (block->threads + 2 * (size_t)MOST_MBARRIERS) * stride(block);

    if (of_block->clocks == NULL || of_block->clock_room < count) {
        free(of_block->clocks);
        of_block->clock_room = count;
        of_block->clocks = malloc(count * sizeof *of_block->clocks);
        if (of_block->clocks == NULL) return NULL;
    }
    if (of_block->count == 0) memset(of_block->clocks, 0, count * sizeof *of_block->clocks);
    of_block->all[of_block->count] = *made;
    return &of_block->all[of_block->count++];
}

unsigned mbarriers_actor(const emu_block *block, const mbarrier *barrier)
{
    return MOST_THREADS + (unsigned)(barrier - block->mbarriers.all);
}

int mbarriers_order(const emu_thread *thread, const record *earlier)
{
    const emu_block *block = thread->block;

    return block->mbarriers.count > 0 &&
           earlier->time < clock_at(block, thread->index)[place_of(block, earlier->thread)];
}

void mbarriers_meet(emu_thread *lanes, unsigned mask, uint64_t now)
{
    const emu_block *block = lanes->block;
    const size_t count = width(block);
    uint64_t *all = NULL;

    if (block->mbarriers.count == 0) return;
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if ((mask >> lane & 1) == 0) continue;
        uint64_t *clock = clock_at(block, lanes[lane].index);
        clock[lanes[lane].index] = now;
        if (all == NULL)
            all = clock;
        else
            advance(all, clock, count);
    }
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
        if ((mask >> lane & 1) == 0 || clock_at(block, lanes[lane].index) == all) continue;
        memcpy(clock_at(block, lanes[lane].index), all, count * sizeof *all);
    }
}

void mbarriers_gather(const emu_thread *thread, const mbarrier *barrier, uint64_t now)
{
    const emu_block *block = thread->block;
    uint64_t *clock = gathered(block, barrier);

    advance(clock, clock_at(block, thread->index), width(block));
    clock[thread->index] = now;
}

void mbarriers_complete(const emu_block *block, mbarrier *barrier, uint64_t now)
{
    uint64_t *clock = gathered(block, barrier);

    clock[place_of(block, mbarriers_actor(block, barrier))] = now;
    advance(completed(block, barrier), clock, width(block));
    memset(clock, 0, width(block) * sizeof *clock);
    barrier->phase++;
    barrier->missing = barrier->arrivals;
    barrier->expected = barrier->begun = 0;
}

void mbarriers_acquire(const emu_thread *thread, mbarrier *barrier)
{
    const emu_block *block = thread->block;

    advance(clock_at(block, thread->index), completed(block, barrier), width(block));
    *passed(thread, barrier) = barrier->phase;
    barrier->waited = barrier->phase;
}

uint64_t mbarriers_passed(const emu_thread *thread, const mbarrier *barrier)
{
    return *passed(thread, barrier);
}

int mbarriers_begin(emu_block *block, const bulk_copy *copy)
{
    mbarriers *of_block = &block->mbarriers;

    if (!grow((void **)&of_block->copies, &of_block->copy_room, of_block->copy_count,
              sizeof *of_block->copies))
        return 0;
    of_block->copies[of_block->copy_count++] = *copy;
    return 1;
}

int mbarriers_take(emu_block *block, const mbarrier *barrier, bulk_copy *copy)
{
    mbarriers *of_block = &block->mbarriers;

    for (size_t i = 0; i < of_block->copy_count; i++) {
        if (of_block->copies[i].barrier != barrier) continue;
        *copy = of_block->copies[i];
        memmove(&of_block->copies[i], &of_block->copies[i + 1],
                (--of_block->copy_count - i) * sizeof *copy);
        return 1;
    }
    return 0;
}

const bulk_copy *mbarriers_copy_to(const emu_block *block, uintptr_t address, unsigned bytes)
{
    for (size_t i = 0; i < block->mbarriers.copy_count; i++) {
        const bulk_copy *copy = &block->mbarriers.copies[i];
        if (address < copy->to + copy->bytes && copy->to < address + bytes) return copy;
    }
    return NULL;
}

void mbarriers_clear(emu_block *block)
{
    block->mbarriers.count = 0;
    block->mbarriers.copy_count = 0;
}

void mbarriers_free(emu_block *block)
{
    free(block->mbarriers.clocks);
    free(block->mbarriers.copies);
}
