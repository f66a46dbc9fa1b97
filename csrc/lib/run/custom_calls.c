/* What operators of users' own need of the library: threads for programs of the CPU, and the cache
 * of compiled programs. */
#include <string.h>

#include "lib/base/threads.h"
#include "lib/driver/cache.h"

void gpr_run_custom_tasks(const gpr_custom_tasks *tasks)
{
    (void)gpr_parallel_for(tasks->count, tasks->run, tasks->context, NULL);
}

int gpr_find_cached_image(const char *key, gpr_image *image)
{
    gpr_object object;
    const int found = gpr_cache_read(key, &object);

    *image = (gpr_image){
        .data = object.image, .bytes = object.bytes, .symbol_count = object.entry_count};
    memcpy(image->symbols, object.lowered, sizeof image->symbols);
    return found;
}

void gpr_cache_image(const char *key, const gpr_image *image)
{
    gpr_object object = {
        .entry_count = image->symbol_count, .image = image->data, .bytes = image->bytes};

    memcpy(object.lowered, image->symbols, sizeof object.lowered);
    gpr_cache_write(key, &object);
}
