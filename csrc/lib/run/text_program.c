/* Kernels of the caller's own: compiled from their text, loaded, launched as the caller says.
 * Nothing here knows what they compute. */
#include <stdlib.h>
#include <string.h>

#include "lib/run/text_program.h"

_Static_assert((int)GPR_MOST_SYMBOLS == (int)GPR_MAX_ENTRIES, "an image has a program's entries");

struct gpr_loaded_image {
    int device, count;
    CUmodule module;
    CUfunction functions[GPR_MOST_SYMBOLS];
};

void gpr_free_image(gpr_image *image)
{
    for (int i = 0; i < image->symbol_count; i++) free(image->symbols[i]);
    free(image->data);
    *image = (gpr_image){0};
}

gpr_status gpr_compile_text(const char *name, const char *text, const char *const *entries,
                            int entry_count, const char *const *options, int option_count, int cc,
                            gpr_image *image)
{
    gpr_translation translation = {.text = text, .name = name};
    gpr_object object = {0};
    char target[GPR_TARGET_ROOM];
    gpr_status status = GPR_OK;

    *image = (gpr_image){0};
    if (entry_count < 1 || entry_count > GPR_MAX_ENTRIES)
        return gpr_fail(GPR_ERROR_VALUE, "a program has 1 to %d kernels, not %d", GPR_MAX_ENTRIES,
                        entry_count);
    if (option_count < 0 || option_count > GPR_MAX_OPTIONS)
        return gpr_fail(GPR_ERROR_VALUE, "the compiler takes up to %d options, not %d",
                        GPR_MAX_OPTIONS, option_count);
    for (int i = 0; i < entry_count; i++) translation.entries[i] = entries[i];
    for (int i = 0; i < option_count; i++) translation.options[i] = options[i];
    translation.entry_count = entry_count;
    translation.option_count = option_count;
    GPR_TRY(gpr_nvrtc_target(cc, target));
    GPR_TRY(gpr_nvrtc_compile(&translation, target, &object));
    *image = (gpr_image){
        .data = object.image, .bytes = object.bytes, .symbol_count = object.entry_count};
    memcpy(image->symbols, object.lowered, sizeof image->symbols);
done:
    return status;
}

static gpr_status load(const gpr_image *image, gpr_loaded_image *loaded)
{
    gpr_status status = GPR_OK;

    GPR_CU(cuModuleLoadData, &loaded->module, image->data);
    for (int i = 0; i < image->symbol_count; i++)
        GPR_CU(cuModuleGetFunction, &loaded->functions[i], loaded->module, image->symbols[i]);
    loaded->count = image->symbol_count;
done:
    if (status != GPR_OK && loaded->module != NULL) (void)gpr_cuda.cuModuleUnload(loaded->module);
    return status;
}

gpr_status gpr_load_image(int device, const gpr_image *image, gpr_loaded_image **loaded)
{
    gpr_loaded_image *made = calloc(1, sizeof *made);
    gpr_device *on = NULL;
    gpr_status status = GPR_OK;

    *loaded = NULL;
    if (made == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    made->device = device;
    GPR_TRY(gpr_device_enter(device, &on));
    status = load(image, made);
    gpr_device_leave(on);
done:
    if (status == GPR_OK)
        *loaded = made;
    else
        free(made);
    return status;
}

gpr_status gpr_unload_image(gpr_loaded_image *loaded)
{
    gpr_device *on = NULL;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_device_enter(loaded->device, &on));
    status = gpr_check(gpr_cuda.cuModuleUnload(loaded->module), "cuModuleUnload");
    gpr_device_leave(on);
    free(loaded);
done:
    return status;
}

static gpr_status check_launches(const gpr_loaded_image *loaded, const gpr_launch *launches,
                                 int count)
{
    for (int i = 0; i < count; i++) {
        const gpr_launch *each = &launches[i];
        if (each->symbol < 0 || each->symbol >= loaded->count)
            return gpr_fail(GPR_ERROR_VALUE, "kernel %d of a program of %d", each->symbol,
                            loaded->count);
        if (each->grid == 0 || each->grid > GPR_MAX_GRID || each->block == 0 ||
            each->block > GPR_MOST_BLOCK)
            return gpr_fail(GPR_ERROR_VALUE, "a launch of %u blocks of %u threads", each->grid,
                            each->block);
        if (each->cluster > 1 && each->grid % each->cluster != 0)
            return gpr_fail(GPR_ERROR_VALUE, "a launch of %u blocks in clusters of %u", each->grid,
                            each->cluster);
    }
    return GPR_OK;
}

static gpr_status queue(gpr_loaded_image *loaded, const gpr_launch *launches, int count,
                        CUstream stream)
{
    gpr_status status = GPR_OK;

    for (int i = 0; i < count; i++) {
        const gpr_launch *each = &launches[i];
        const gpr_launch_kind kind = {each->cooperative, each->cluster};
        GPR_TRY(gpr_launch_blocks(loaded->functions[each->symbol], each->grid, each->block,
                                  each->shared_bytes, kind, stream, each->arguments));
    }
done:
    return status;
}

static gpr_status run_once(gpr_device *device, gpr_loaded_image *loaded, const gpr_launch *launches,
                           int count, CUstream stream, uint64_t flush_bytes, float *milliseconds)
{
    gpr_status status = GPR_OK;

    if (flush_bytes != 0) GPR_CU(cuMemsetD8Async, device->flush.address, 0, flush_bytes, stream);
    GPR_CU(cuEventRecord, device->started, stream);
    GPR_TRY(queue(loaded, launches, count, stream));
    GPR_CU(cuEventRecord, device->stopped, stream);
    GPR_CU(cuEventSynchronize, device->stopped);
    GPR_CU(cuEventElapsedTime, milliseconds, device->started, device->stopped);
done:
    return status;
}

/* Runs launches `repeats` times, each after `flush_bytes` of other memory have been written. */
static gpr_status run_timed(gpr_device *device, gpr_loaded_image *loaded,
                            const gpr_launch *launches, int count, CUstream stream,
                            uint64_t flush_bytes, int repeats, float *milliseconds)
{
    gpr_status status = GPR_OK;

    /* Allocated once: memory that is freed between two runs makes the second one slower. */
    if (flush_bytes != 0) status = gpr_buffer_ensure(&device->flush, flush_bytes, 0, stream);
    for (int i = 0; i < repeats && status == GPR_OK; i++)
        status = run_once(device, loaded, launches, count, stream, flush_bytes, &milliseconds[i]);
    gpr_settle_stream(stream, status);
    gpr_buffer_clear(&device->flush);
    return status;
}

gpr_status gpr_run_launches(gpr_loaded_image *loaded, const gpr_launch *launches, int count,
                            void *stream, uint64_t flush_bytes, int repeats, float *milliseconds)
{
    gpr_device *device = NULL;
    gpr_status status = GPR_OK;

    GPR_TRY(check_launches(loaded, launches, count));
    GPR_TRY(gpr_device_enter(loaded->device, &device));
    status = run_timed(device, loaded, launches, count, gpr_stream_of(device, stream), flush_bytes,
                       repeats, milliseconds);
    gpr_device_leave(device);
done:
    return status;
}

/* Queues launches that share scratch: partials of 8 bytes to those who keep it. */
static gpr_status queue_with_scratch(gpr_device *device, gpr_loaded_image *loaded,
                                     const gpr_launch *launches, int count, CUstream stream,
                                     uint64_t bytes, const gpr_scratch_pointer *pointers,
                                     int pointer_count)
{
    const gpr_rule rule = {.acc_kind = GPR_ACC_NUMBER, .device_acc = GPR_UINT64};
    const gpr_plan plan = {.partials = (bytes + 7) / 8};
    gpr_work work = {.stream = stream};
    gpr_scratch *scratch = NULL;
    gpr_status status = GPR_OK, released = GPR_OK;

    GPR_TRY(gpr_scratch_acquire(device, &plan, &rule, 0, &work, &scratch));
    for (int i = 0; i < pointer_count; i++) {
        const uint64_t address = work.partials + pointers[i].offset;
        memcpy(pointers[i].place, &address, sizeof address);
    }
    status = queue(loaded, launches, count, stream);
done:
    released = gpr_scratch_release(scratch, &work, status == GPR_OK);
    return status != GPR_OK ? status : released;
}

gpr_status gpr_queue_launches(gpr_loaded_image *loaded, const gpr_launch *launches, int count,
                              void *stream, uint64_t scratch_bytes,
                              const gpr_scratch_pointer *pointers, int pointer_count)
{
    gpr_device *device = NULL;
    gpr_status status = GPR_OK;

    GPR_TRY(check_launches(loaded, launches, count));
    for (int i = 0; i < pointer_count; i++)
        if (pointers[i].offset >= scratch_bytes)
            GPR_TRY(gpr_fail(GPR_ERROR_VALUE, "byte %llu of scratch of %llu",
                             (unsigned long long)pointers[i].offset,
                             (unsigned long long)scratch_bytes));
    GPR_TRY(gpr_device_enter(loaded->device, &device));
    const CUstream on = gpr_stream_of(device, stream);
    if (scratch_bytes == 0)
        status = queue(loaded, launches, count, on);
    else
        status = queue_with_scratch(device, loaded, launches, count, on, scratch_bytes, pointers,
                                    pointer_count);
    gpr_settle_stream(on, status);
    gpr_device_leave(device);
done:
    return status;
}

/* What is done with a launch whose arguments are complete, on the work's stream. */
typedef struct ticket_run {
    uint64_t flush_bytes;
    int repeats; /* timed; 0: it is queued once */
    float *milliseconds;
} ticket_run;

static gpr_status run_filled(gpr_device *device, gpr_loaded_image *loaded, const gpr_launch *launch,
                             CUstream stream, const ticket_run *run)
{
    if (run->repeats == 0) return queue(loaded, launch, 1, stream);
    return run_timed(device, loaded, launch, 1, stream, run->flush_bytes, run->repeats,
                     run->milliseconds);
}

static gpr_status run_with_tickets(gpr_loaded_image *loaded, const gpr_ticket_launch *given,
                                   void *stream, const ticket_run *run)
{
    const gpr_rule rule = {.acc_kind = GPR_ACC_NUMBER, .device_acc = GPR_UINT64};
    const gpr_plan plan = {.partials = (given->needs.bytes + 7) / 8,
                           .tickets = given->needs.tickets};
    gpr_device *device = NULL;
    gpr_scratch *scratch = NULL;
    gpr_work work = {0};
    gpr_status status = GPR_OK, released = GPR_OK;

    GPR_TRY(check_launches(loaded, &given->launch, 1));
    GPR_TRY(gpr_device_enter(loaded->device, &device));
    work.stream = gpr_stream_of(device, stream);
    status = gpr_scratch_acquire(device, &plan, &rule, 0, &work, &scratch);
    if (status == GPR_OK) {
        given->fill(given->context,
                    (gpr_scratch_places){.tickets = work.tickets, .bytes = work.partials});
        status = run_filled(device, loaded, &given->launch, work.stream, run);
    }
    released = gpr_scratch_release(scratch, &work, status == GPR_OK);
    if (status == GPR_OK) status = released;
    gpr_settle_stream(work.stream, status);
    gpr_device_leave(device);
done:
    return status;
}

gpr_status gpr_queue_with_tickets(gpr_loaded_image *loaded, const gpr_ticket_launch *given,
                                  void *stream)
{
    const ticket_run once = {.repeats = 0};

    return run_with_tickets(loaded, given, stream, &once);
}

gpr_status gpr_run_with_tickets(gpr_loaded_image *loaded, const gpr_ticket_launch *given,
                                void *stream, uint64_t flush_bytes, int repeats,
                                float *milliseconds)
{
    const ticket_run timed = {
        .flush_bytes = flush_bytes, .repeats = repeats, .milliseconds = milliseconds};

    return run_with_tickets(loaded, given, stream, &timed);
}
