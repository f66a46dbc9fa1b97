/* Asynchronous copies from global to shared memory, between their beginning and the wait of their
 * thread. A GPU may write the bytes at any time in between; here they arrive at the wait, and until
 * then count as not written. */
#include <string.h>

#include "emu/emu.h"

int copies_begin(emu_thread *thread, pending_copy copy)
{
    copy_queue *queue = &thread->copies;

    copy.group = queue->groups;
    if (!grow((void **)&queue->all, &queue->room, queue->count, sizeof *queue->all)) return 0;
    queue->all[queue->count++] = copy;
    return 1;
}

int copies_arrive(emu_thread *thread, unsigned newest, pending_copy *copy)
{
    copy_queue *queue = &thread->copies;

    if (queue->count == 0 || queue->all[0].group + newest >= queue->groups) return 0;
    *copy = queue->all[0];
    memmove(queue->all, queue->all + 1, --queue->count * sizeof *queue->all);
    return 1;
}

const pending_copy *copies_find(const emu_block *block, uintptr_t address, unsigned bytes)
{
    for (unsigned i = 0; i < block->threads; i++) {
        const copy_queue *queue = &block->thread[i].copies;
        for (size_t k = 0; k < queue->count; k++) {
            const pending_copy *copy = &queue->all[k];
            if (address < copy->to + copy->bytes && copy->to < address + bytes) return copy;
        }
    }
    return NULL;
}
