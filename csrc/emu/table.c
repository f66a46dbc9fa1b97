#include <stdlib.h>
#include <string.h>

#include "emu/emu.h"

enum { FEWEST_SLOTS = 64 };
static const uint64_t NO_KEY = ~0ull;

static size_t slot_of(const table *table, uint64_t key)
{
    size_t slot = (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (table->room - 1);

    while (table->slots[slot].key != key && table->slots[slot].key != NO_KEY)
        slot = (slot + 1) & (table->room - 1);
    return slot;
}

static int enlarge(table *table)
{
    struct table old = *table;

    table->room = old.room == 0 ? FEWEST_SLOTS : 2 * old.room;
    table->slots = malloc(table->room * sizeof *table->slots);
    if (table->slots == NULL) {
        *table = old;
        return 0;
    }
    for (size_t i = 0; i < table->room; i++) table->slots[i].key = NO_KEY;
    for (size_t i = 0; i < old.room; i++) {
        if (old.slots[i].key != NO_KEY)
            table->slots[slot_of(table, old.slots[i].key)] = old.slots[i];
    }
    free(old.slots);
    return 1;
}

uint64_t *table_at(table *table, uint64_t key, int *is_new)
{
    if (2 * (table->count + 1) > table->room && !enlarge(table)) return NULL;
    const size_t slot = slot_of(table, key);
    *is_new = table->slots[slot].key == NO_KEY;
    if (*is_new) {
        table->slots[slot].key = key;
        table->slots[slot].value = 0;
        table->count++;
    }
    return &table->slots[slot].value;
}

void table_clear(table *table)
{
    if (table->count == 0) return;
    for (size_t i = 0; i < table->room; i++) table->slots[i].key = NO_KEY;
    table->count = 0;
}

void table_free(table *table)
{
    free(table->slots);
    *table = (struct table){0};
}

int grow(void **array, size_t *room, size_t count, size_t bytes)
{
    const size_t more = *room == 0 ? 64 : 2 * *room;

    if (count < *room) return 1;
    void *larger = realloc(*array, more * bytes);
    if (larger == NULL) return 0;
    *array = larger;
    *room = more;
    return 1;
}
