/* The host path. A chunk's way:
 *
 *     array -pack-> slot.staged -copy-> slot.elements -kernel-> slot.results -collect-> result
 *         threads    (pinned)   stream     (device)     stream      (pinned)     host
 *
 * GPR_SLOTS chunks are under way at once: while the host packs one, the copy engine moves the one
 * before and the kernel reduces the one before that. Pinned arrays skip the packing. Device arrays
 * do not come here: see device_path.c. A chunk is either whole rows or a piece of one row; the
 * pieces' accumulators are folded on the host in the order of the array, so the bits depend on the
 * chunk size alone, never on timing. */
#include "lib/run/host_pipeline.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/integers.h"
#include "lib/base/limits.h"
#include "lib/base/progress.h"
#include "lib/base/threads.h"
#include "lib/exact/exact.h"
#include "lib/rules/accumulators.h"
#include "lib/run/launch.h"
#include "lib/run/poll_results.h"
#include "shared/tuning.h"

enum {
    PAGE = 4096,             /* bytes; chunks are whole ones */
    LEAST_CHUNK = 256 << 10, /* bytes: launches and copies of less cost more than overlap gains */
    MOST_STAGED_CHUNK = 8 << 20, /* four of these stay in the caches between packing and copying */
    MOST_PINNED_CHUNK = 32 << 20,
    CHUNKS_WANTED = 8,         /* pieces a middling array is cut into */
    SMALLEST_CHUNK = 64 << 10, /* where halving after an out-of-memory ends */
    PACK_PIECE = 256 << 10,    /* bytes a packing task copies */
    DIRECT_RESULTS = 4 << 10   /* bytes of results that a kernel writes straight to pinned memory */
};

static const double INTERRUPT_SECONDS = 0.02;

typedef enum source_sort { FROM_MEMORY, FROM_PINNED } source_sort;

/* Consecutive elements of the view: rows [row, row + rows) entire, or count elements of one row
 * from `first` on. */
typedef struct chunk {
    uint64_t row, rows;
    uint64_t first, count;
    int whole;
} chunk;

/* Members that only some jobs need: apart from the job, since every small call would clear their 9
 * KiB, and on the heap, since stacks may be small. */
typedef struct job_memory {
    gpr_view unmasked, mask; /* of a job that sends its mask */
    gpr_exact_part exact[GPR_EXACT_MOST_PARTS];
} job_memory;

/* One reduction under way. */
typedef struct job {
    gpr_device *device;
    const gpr_resolved *call;
    const gpr_view *view;
    const gpr_view *second;    /* of the other array where there are two */
    const gpr_view *elements;  /* in a chunk's memory, and behind it: */
    const gpr_view *companion; /* the other array, or the mask if it is sent; else NULL */
    int sends_mask; /* no neutral element can replace those left out: the kernel reads the mask */
    uint64_t unit;  /* bytes of a chunk for each element */
    const gpr_rule *rule;
    gpr_run *run;
    source_sort source;
    CUstream compute;
    gpr_value neutral;
    size_t acc_bytes, result_bytes;
    unsigned generation;     /* of the limits */
    gpr_slot_bytes most;     /* that a slot's parts may take, by the limits */
    uint64_t chunk_elements; /* most elements in a chunk */
    uint64_t chunk_rows;     /* most rows in one */
    uint32_t block;          /* the first chunk's, and so all others' */
    gpr_value *pieces;       /* accumulators (host_acc) of the current row's pieces */
    uint64_t piece_count, piece_room;
    gpr_exact_part *exact;    /* of the current row's pieces */
    chunk pending[GPR_SLOTS]; /* the chunk of each slot; rows 0: none */
    int polls;                /* the chunk's accumulators are polled for */
    double checked;           /* time of the last call of the interrupt callback */
} job;

/* ---------------------------------------------------------------- chunks --------------------- */

/* The chunk after `last` ({0} before the first); 0 if there is none. */
static int next_chunk(const job *job, chunk *last)
{
    const gpr_view *view = job->view;
    uint64_t row = last->row + last->rows, first = 0;

    if (last->rows > 0 && !last->whole && last->first + last->count < view->n) {
        row = last->row;
        first = last->first + last->count;
    }
    if (row >= view->rows) return 0;
    if (view->n <= job->chunk_elements) {
        const uint64_t rows = gpr_smaller(
            gpr_smaller(job->chunk_elements / view->n, job->chunk_rows), view->rows - row);
        *last = (chunk){.row = row, .rows = rows, .count = rows * view->n, .whole = 1};
    } else {
        *last = (chunk){.row = row,
                        .rows = 1,
                        .first = first,
                        .count = gpr_smaller(job->chunk_elements, view->n - first)};
    }
    return 1;
}

/* ---------------------------------------------------------------- packing -------------------- */

typedef struct pack_task {
    const gpr_view *view;
    const void *neutral;
    char *destination;
    uint64_t first, count, piece;
} pack_task;

static int pack_piece(void *context, uint64_t index, void *memory)
{
    const pack_task *task = context;
    const uint64_t skip = index * task->piece;

    (void)memory;
    gpr_pack(task->view, task->first + skip, gpr_smaller(task->piece, task->count - skip),
             task->neutral, task->destination + skip * task->view->bytes);
    return 1;
}

static void pack_view(const job *job, const gpr_view *view, const chunk *part, char *destination)
{
    pack_task task = {.view = view,
                      .neutral = &job->neutral,
                      .destination = destination,
                      .first = part->row * view->n + part->first,
                      .count = part->count,
                      .piece = PACK_PIECE / view->bytes};

    if (task.count <= task.piece) {
        gpr_pack(task.view, task.first, task.count, task.neutral, destination);
    } else {
        (void)gpr_parallel_for((task.count + task.piece - 1) / task.piece, pack_piece, &task, NULL);
    }
}

/* Where in a chunk's memory of `count` elements the companion begins, and where that ends. */
static uint64_t companion_offset(const job *job, uint64_t count)
{
    return (count * job->view->bytes + GPR_VECTOR_BYTES - 1) & ~(uint64_t)(GPR_VECTOR_BYTES - 1);
}

static uint64_t content_bytes(const job *job, uint64_t count)
{
    if (job->companion == NULL) return count * job->view->bytes;
    return companion_offset(job, count) + count * job->companion->bytes;
}

static void pack_content(const job *job, const chunk *part, char *destination)
{
    pack_view(job, job->elements, part, destination);
    if (job->companion != NULL)
        pack_view(job, job->companion, part, destination + companion_offset(job, part->count));
}

static void pack_chunk(job *job, const chunk *part, char *destination)
{
    const double start = gpr_seconds();

    pack_content(job, part, destination);
    job->run->stage_seconds[GPR_STAGE_STAGE] += gpr_seconds() - start;
}

/* Whether chunks contain the mask too: where no neutral element can replace those that are left
 * out. */
static int must_send_mask(const gpr_resolved *call)
{
    const gpr_acc_kind acc_kind = call->rule.acc_kind;

    return call->view.mask != NULL && (acc_kind == GPR_ACC_MOMENTS ||
                                       acc_kind == GPR_ACC_SUM_COUNT || acc_kind == GPR_ACC_RANGE);
}

/* Decides the content of chunks. */
static void choose_content(job *job, job_memory *memory)
{
    job->elements = job->view;
    job->companion = job->second;
    job->unit = job->view->bytes;
    if (job->sends_mask) {
        memory->unmasked = *job->view;
        memory->unmasked.mask = NULL;
        gpr_mask_view(job->view, &memory->mask);
        job->elements = &memory->unmasked;
        job->companion = &memory->mask;
    }
    if (job->companion != NULL) job->unit += job->companion->bytes;
}

/* ---------------------------------------------------------------- kernels and results -------- */

/* Most bytes of accumulators of a kind that are polled for. Every 4 bytes of these kinds are stored
 * once; others have gaps, or are stored in parts. */
static uint64_t most_awaited(gpr_acc_kind acc_kind)
{
    if (acc_kind == GPR_ACC_EXACT) return GPR_MOST_AWAITED;
    return acc_kind == GPR_ACC_NUMBER ? GPR_AWAITED_RESULTS : 0;
}

/* The layout of a chunk's memory. */
static void describe_chunk(const job *job, const chunk *part, gpr_layout *layout)
{
    gpr_contiguous_layout(part->rows, part->whole ? job->view->n : part->count, layout);
    if (job->sends_mask) gpr_mask_layout(layout);
}

static gpr_status make_plan(const job *job, const gpr_device_facts *facts, const chunk *part,
                            gpr_plan *plan)
{
    gpr_layout layout;

    describe_chunk(job, part, &layout);
    return gpr_make_plan(job->call->kernel, job->rule, &layout, 0, job->block, job->call->grid_size,
                         facts, plan);
}

/* Makes chunks a quarter smaller than `part`. Returns whether that makes their scratch smaller: the
 * pieces of a row need as many partials as the row where the caller chose the grid. */
static int shrink_chunks(job *job, const chunk *part)
{
    enum { CUT = 4 };

    if (part->rows > 1) {
        job->chunk_rows = part->rows - gpr_divide_up(part->rows, CUT);
        return 1;
    }
    if (job->call->grid_size != 0 || part->count == 1) return 0;
    job->chunk_elements = part->count - gpr_divide_up(part->count, CUT);
    return 1;
}

/* Plans *part, the chunk after `last`. If the plan needs more scratch than gpr_slot_limits leaves,
 * chunks become smaller, and so does *part.
 *
 * Per chunk of E bytes of elements, scratch is at most
 *
 *     partials: accumulators of A bytes, one for 32 elements of B bytes, and one for the rest of
 *               each row: A / (32 B) E, and 31 / 32 A for each row, of which there are no more than
 *               E / (4 A). A variance of bools has A = 32, B = 1: 1.24 E
 *     those of a second pass: a 32nd of the first, and one for the rest of each row: 0.06 E
 *     counters: 4 bytes for each row of 33 or more elements, 0.12 E; of exact sums 8 bytes for 20
 *               bits of a superaccumulator, whose words of 32 bits take 8 bytes of A: 0.4 E
 *
 * so few kernels, dtypes and shapes need more than E, and little more. */
static gpr_status plan_chunk(job *job, const gpr_device_facts *facts, const chunk *last,
                             chunk *part, gpr_plan *plan)
{
    gpr_status status = GPR_OK;

    for (;;) {
        GPR_TRY(make_plan(job, facts, part, plan));
        if (gpr_scratch_bytes(plan, job->rule) <= job->most.elements || !shrink_chunks(job, part))
            break;
        *part = *last;
        (void)next_chunk(job, part);
    }
    job->block = plan->block;
done:
    return status;
}

/* Queues the chunk's kernel: elements on the device to accumulators in `results` (pinned), through
 * `device_results` where a kernel cannot or should not write to host memory. */
static gpr_status reduce_chunk(job *job, const chunk *part, const gpr_plan *plan,
                               CUdeviceptr elements, void *results, CUdeviceptr device_results)
{
    gpr_device *device = job->device;
    const uint64_t bytes = part->rows * job->acc_bytes;
    gpr_work work = {.elements = elements, .stream = job->compute};
    gpr_program *program = NULL;
    uint32_t launches = 0;
    gpr_status status = GPR_OK;

    if (job->sends_mask) work.mask = elements + companion_offset(job, part->count);
    if (job->second != NULL) {
        work.second = elements + companion_offset(job, part->count);
        work.second_step = 1;
    }
    const gpr_kernel_traits traits = gpr_plan_traits(plan, job->rule, 0);
    GPR_TRY(gpr_load_program(device, &traits, job->run, &program));
    GPR_TRY(gpr_ensure_scratch(device, plan, job->rule, job->most.elements, &work));
    const int direct = !plan->fill && bytes <= DIRECT_RESULTS;
    work.outputs = direct ? (CUdeviceptr)(uintptr_t)results : device_results;
    status = gpr_launch_plan(plan, program, &work, &launches);
    if (status != GPR_OK) {
        /* Tickets that only a part of a grid drew would mislead the next plan: the next one
         * begins with new ones. */
        gpr_buffer_clear(&device->tickets);
        goto done;
    }
    if (!direct) GPR_CU(cuMemcpyDtoHAsync, results, work.outputs, bytes, job->compute);
    if (job->run->chunks++ == 0) {
        job->run->variant = plan->variant;
        job->run->block_size = plan->block;
        job->run->grid_size = plan->passes[0].grid;
    }
    job->run->launches = launches;
    job->polls = device->polls && direct && bytes <= most_awaited(job->rule->acc_kind) &&
                 gpr_writes_once(plan);
done:
    return status;
}

/* Takes over the accumulators of a finished chunk of an exact sum. Pieces merge without rounding.
 * Elements that a mask leaves out came as -0, which changes no sum of other elements; means and
 * variances need their number, and so do sums that may have no elements. */
static void collect_exact(job *job, const chunk *part, const char *results)
{
    const gpr_rule *rule = job->rule;
    const gpr_view *view = job->view;
    const uint64_t n = part->whole ? view->n : part->count;
    gpr_exact_part sums[GPR_EXACT_MOST_PARTS];

    for (uint64_t i = 0; i < part->rows; i++) {
        const uint64_t row = part->row + i;
        char *destination = (char *)job->call->result + row * job->result_bytes;
        const int parts = gpr_exact_read_acc(rule->acc_kind, rule->device_acc,
                                             results + i * job->acc_bytes, sums);
        int is_counted = rule->divide || rule->acc_kind == GPR_ACC_EXACT_MOMENTS;
        uint64_t left_out = 0;

        for (int p = 0; p < parts; p++) is_counted |= gpr_exact_may_be_nothing(&sums[p]);
        if (view->mask != NULL && is_counted)
            left_out = gpr_count_left_out(view, row * view->n + part->first, n);
        if (part->first == 0)
            (void)gpr_exact_clear_acc(rule->acc_kind, rule->device_acc, job->exact);
        for (int p = 0; p < parts; p++) {
            sums[p].count -= left_out;
            /* fewer than 2^63 elements: there is room */
            (void)gpr_exact_add_part(&job->exact[p], &sums[p]);
        }
        if (!part->whole && part->first + n < view->n) return;
        gpr_finish_exact(rule, job->exact, destination);
    }
}

/* Takes over the accumulators of a finished chunk. Chunks come in the order of the array. */
static void collect_chunk(job *job, const chunk *part, const void *results)
{
    const gpr_rule *rule = job->rule;
    char *destination = (char *)job->call->result + part->row * job->result_bytes;

    const uint64_t output_stride = job->view->rows * job->result_bytes;

    if (gpr_is_exact(rule->acc_kind)) {
        collect_exact(job, part, results);
        return;
    }
    if (part->whole) {
        gpr_finish_results(rule, rule->device_acc, results, part->rows, job->view->n, destination,
                           output_stride);
        return;
    }
    gpr_value value = gpr_read_acc(rule->acc_kind, rule->device_acc, results);
    if (rule->acc_kind == GPR_ACC_INDEXED && value.position != GPR_NOWHERE)
        value.position += part->first;
    job->pieces[job->piece_count++] =
        gpr_convert_acc(rule->fold, value, rule->device_acc, rule->host_acc);
    if (part->first + part->count < job->view->n) return;
    value =
        gpr_fold_partials(rule->fold, rule->compute, rule->host_acc, job->pieces, job->piece_count);
    uint8_t packed[sizeof value];
    gpr_write_acc(rule->acc_kind, rule->host_acc, &value, packed);
    gpr_finish_results(rule, rule->host_acc, packed, 1, job->view->n, destination, output_stride);
    job->piece_count = 0;
}

/* ---------------------------------------------------------------- streaming ------------------ */

/* Runs the interrupt callback if it is due; `next` is the first chunk that has not begun. */
static gpr_status check_interrupt(job *job, const chunk *next)
{
    const gpr_resolved *call = job->call;
    const double now = gpr_seconds();

    if (call->interrupted == NULL || now - job->checked < INTERRUPT_SECONDS) return GPR_OK;
    job->checked = now;
    gpr_note_progress(next->row * job->view->n + next->first, job->view->rows * job->view->n);
    if (call->interrupted(call->interrupted_arg) == 0) return GPR_OK;
    return gpr_fail(GPR_ERROR_INTERRUPTED, "the reduction was interrupted");
}

/* Waits for a slot's chunk, if it has one, and takes its results. */
static gpr_status drain_slot(job *job, int index)
{
    gpr_slot *slot = &job->device->ring.slots[index];
    chunk *part = &job->pending[index];
    gpr_status status = GPR_OK;

    if (part->rows == 0) return GPR_OK;
    GPR_CU(cuEventSynchronize, slot->reduced);
    collect_chunk(job, part, slot->results);
    part->rows = 0;
done:
    return status;
}

/* Queues the copy of a chunk of a pinned array. */
static gpr_status copy_pinned(const job *job, const chunk *part, const gpr_view *view,
                              CUdeviceptr destination)
{
    gpr_status status = GPR_OK;

    GPR_CU(cuMemcpyHtoDAsync, destination,
           gpr_view_row(view, part->row) + part->first * view->bytes, part->count * view->bytes,
           job->device->copy);
done:
    return status;
}

/* Queues everything for one chunk in a drained slot. */
static gpr_status fill_slot(job *job, int index, const chunk *part, const gpr_plan *plan)
{
    gpr_device *device = job->device;
    gpr_slot *slot = &device->ring.slots[index];
    gpr_status status = GPR_OK;

    if (job->source == FROM_MEMORY) {
        pack_chunk(job, part, slot->staged);
        GPR_CU(cuMemcpyHtoDAsync, slot->elements, slot->staged, content_bytes(job, part->count),
               device->copy);
    } else {
        GPR_TRY(copy_pinned(job, part, job->view, slot->elements));
        if (job->second != NULL)
            GPR_TRY(copy_pinned(job, part, job->second,
                                slot->elements + companion_offset(job, part->count)));
    }
    GPR_CU(cuEventRecord, slot->uploaded, device->copy);
    GPR_CU(cuStreamWaitEvent, job->compute, slot->uploaded, 0);
    GPR_TRY(reduce_chunk(job, part, plan, slot->elements, slot->results, slot->device_results));
    GPR_CU(cuEventRecord, slot->reduced, job->compute);
    job->pending[index] = *part;
done:
    return status;
}

/* Makes room for the accumulators of a row's pieces. There are no more of them than if all had the
 * size that they have now: they only become smaller. */
static gpr_status ensure_pieces(job *job)
{
    const uint64_t room = job->view->n / job->chunk_elements + 1;

    if (job->view->n <= job->chunk_elements || room <= job->piece_room) return GPR_OK;
    gpr_value *pieces = malloc(room * sizeof *pieces);
    if (pieces == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    if (job->piece_count > 0) memcpy(pieces, job->pieces, job->piece_count * sizeof *pieces);
    free(job->pieces);
    job->pieces = pieces;
    job->piece_room = room;
    return GPR_OK;
}

static gpr_status stream_chunks(job *job)
{
    chunk last = {0}, part = {0};
    gpr_plan plan;
    int index = 0;
    gpr_status status = GPR_OK;

    for (; next_chunk(job, &part); last = part) {
        GPR_TRY(check_interrupt(job, &part));
        GPR_TRY(plan_chunk(job, &job->device->facts, &last, &part, &plan));
        GPR_TRY(ensure_pieces(job));
        GPR_TRY(drain_slot(job, index));
        GPR_TRY(fill_slot(job, index, &part, &plan));
        index = (index + 1) % GPR_SLOTS;
    }
    for (int i = 0; i < GPR_SLOTS; i++) GPR_TRY(drain_slot(job, (index + i) % GPR_SLOTS));
done:
    if (status != GPR_OK) {
        /* Nothing may go on reading the caller's memory, or writing to slots that the next call
         * will use. The failure that brought us here is the one to report. */
        (void)gpr_cuda.cuStreamSynchronize(job->device->copy);
        (void)gpr_cuda.cuStreamSynchronize(job->compute);
    }
    return status;
}

/* Most rows that one chunk may hold so that the partials of a grid which the caller chose take
 * `bytes` bytes; at least one. */
static uint64_t rows_within(const job *job, uint64_t bytes)
{
    const uint64_t row_bytes = job->call->grid_size * (uint64_t)job->acc_bytes;

    return row_bytes > 0 ? gpr_larger(1, bytes / row_bytes) : UINT64_MAX;
}

/* The ring's memory that a job would like, which is within the limits. */
static gpr_slot_bytes wanted_room(const job *job)
{
    const gpr_slot_bytes *most = &job->most;
    const uint64_t total = job->view->rows * job->view->n * job->unit;
    const int is_staged = job->source == FROM_MEMORY;
    /* not a byte less: that would be a chunk more */
    uint64_t bytes = gpr_larger(LEAST_CHUNK, total / CHUNKS_WANTED + PAGE);

    if (is_staged) {
        bytes = gpr_smaller(gpr_smaller(bytes, MOST_STAGED_CHUNK),
                            gpr_smaller(most->elements, most->staged));
    } else {
        bytes = gpr_smaller(gpr_smaller(bytes, MOST_PINNED_CHUNK),
                            gpr_smaller(most->elements, most->staged * GPR_RESULT_SHARE));
    }
    bytes &= ~(uint64_t)(PAGE - 1);
    return (gpr_slot_bytes){.staged = is_staged ? bytes : 0,
                            .elements = bytes,
                            .results = gpr_smaller(bytes / GPR_RESULT_SHARE, most->results),
                            .device_results = bytes / GPR_RESULT_SHARE};
}

/* Chooses chunk sizes by the room there is, which may be more or less than was wanted. */
static void choose_chunk_sizes(job *job, const gpr_slot_bytes *wanted, const gpr_slot_bytes *room)
{
    const uint64_t result_bytes =
        gpr_smaller(wanted->results, gpr_smaller(room->results, room->device_results));
    uint64_t bytes = gpr_smaller(wanted->elements, room->elements);

    if (job->source == FROM_MEMORY) bytes = gpr_smaller(bytes, room->staged);
    job->chunk_elements = (bytes - GPR_VECTOR_BYTES) / job->unit;
    job->chunk_rows =
        gpr_smaller(result_bytes / job->acc_bytes, rows_within(job, job->most.elements / 2));
}

/* Makes the ring, within the limits. */
static gpr_status prepare_ring(job *job)
{
    const gpr_slot_bytes wanted = wanted_room(job);
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_ring_ensure(job->device, job->generation, &wanted, SMALLEST_CHUNK));
    choose_chunk_sizes(job, &wanted, &job->device->ring.room);
done:
    return status;
}

/* ---------------------------------------------------------------- small arrays --------------- */

/* Whether an array is one chunk, in pinned memory that the kernel reads over the bus. */
static int is_small(const job *job)
{
    const gpr_view *view = job->view;

    return content_bytes(job, view->rows * view->n) <= GPR_SMALL_BYTES &&
           view->rows * job->acc_bytes <= GPR_SMALL_RESULTS &&
           view->rows <= rows_within(job, GPR_SMALL_SCRATCH);
}

/* One launch and one wait, no copy engine. */
static gpr_status reduce_small(job *job)
{
    gpr_device *device = job->device;
    char *results = (char *)device->small + GPR_SMALL_BYTES;
    const chunk all = {
        .rows = job->view->rows, .count = job->view->rows * job->view->n, .whole = 1};
    const uint64_t bytes = all.rows * job->acc_bytes;
    _Alignas(8) uint8_t taken[GPR_MOST_AWAITED];
    gpr_plan plan;
    gpr_status status = GPR_OK;

    GPR_TRY(make_plan(job, &device->facts, &all, &plan));
    pack_content(job, &all, device->small);
    if (bytes <= sizeof taken) gpr_mark_results(results, bytes);
    GPR_TRY(reduce_chunk(job, &all, &plan, (CUdeviceptr)(uintptr_t)device->small, results,
                         device->small_outputs));
    if (job->polls) {
        GPR_TRY(gpr_await_results(job->compute, results, bytes, sizeof(uint32_t), taken));
        collect_chunk(job, &all, taken);
    } else {
        GPR_CU(cuStreamSynchronize, job->compute);
        collect_chunk(job, &all, results);
    }
done:
    if (status != GPR_OK) (void)gpr_cuda.cuStreamSynchronize(job->compute);
    return status;
}

/* ---------------------------------------------------------------- the whole ------------------ */

/* Whether all of [data, data + bytes) is pinned host memory. */
static int is_pinned(const char *data, uint64_t bytes)
{
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)data;
    CUdeviceptr start = 0;
    size_t size = 0;
    unsigned type = 0;
    int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&type, &start, &size};

    /* For memory that it did not allocate, the driver returns zeros here; reading a single
     * attribute would be an error. */
    if (gpr_cuda.cuPointerGetAttributes(3, attributes, values, address) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_HOST)
        return 0;
    return address >= start && address - start + bytes <= size;
}

static int is_pinned_run(const gpr_view *view)
{
    return view->contiguous && is_pinned(view->data, view->rows * view->n * view->bytes);
}

static source_sort find_source(const job *job)
{
    const int is_second_pinned = job->second == NULL || is_pinned_run(job->second);

    return is_second_pinned && is_pinned_run(job->view) ? FROM_PINNED : FROM_MEMORY;
}

/* Starts the record of a job; the caller frees *memory, which may become NULL. */
static gpr_status begin_job(job *job, const gpr_resolved *call, job_memory **memory)
{
    const gpr_rule *rule = &call->rule;
    gpr_limits limits;

    /* before the limits: a change in between is seen by the next call */
    job->generation = gpr_limits_generation();
    gpr_get_limits(&limits);
    job->most = gpr_slot_limits(&limits);
    job->call = call;
    job->view = &call->view;
    job->second = call->second;
    job->rule = rule;
    job->sends_mask = must_send_mask(call);
    if (job->sends_mask || gpr_is_exact(rule->acc_kind)) {
        *memory = malloc(sizeof **memory);
        if (*memory == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
        job->exact = (*memory)->exact;
    }
    choose_content(job, *memory);
    job->neutral = gpr_neutral_element(rule->fold, rule->element);
    job->acc_bytes = gpr_acc_bytes(rule->acc_kind, rule->device_acc);
    job->result_bytes = gpr_dtype_bytes(rule->result);
    job->block = call->block_size;
    return GPR_OK;
}

gpr_status gpr_stream_reduce(const gpr_resolved *call, gpr_run *run)
{
    job_memory *memory = NULL;
    job job = {.run = run, .checked = gpr_seconds()};
    gpr_status status = gpr_device_enter(call->device, &job.device);

    if (status != GPR_OK) return status;
    GPR_TRY(begin_job(&job, call, &memory));
    job.compute = gpr_stream_of(job.device, call->stream);
    run->device = call->device;
    if (is_small(&job)) {
        status = reduce_small(&job);
    } else {
        job.source = find_source(&job);
        run->stage_seconds[GPR_STAGE_STAGE] = 0;
        status = prepare_ring(&job);
        if (status == GPR_OK) status = stream_chunks(&job);
    }
done:
    free(job.pieces);
    free(memory);
    gpr_device_leave(job.device);
    return status;
}

gpr_status gpr_plan_stream(const gpr_resolved *call, const gpr_device_facts *facts, int pinned,
                           gpr_status (*take)(void *context, const gpr_plan *plan), void *context)
{
    job_memory *memory = NULL;
    job job = {.source = pinned ? FROM_PINNED : FROM_MEMORY};
    gpr_plan plan;
    chunk part = {0}, last = {0};
    gpr_status status = GPR_OK;

    GPR_TRY(begin_job(&job, call, &memory));
    if (is_small(&job)) {
        job.chunk_elements = job.chunk_rows = UINT64_MAX;
    } else {
        const gpr_slot_bytes wanted = wanted_room(&job);
        choose_chunk_sizes(&job, &wanted, &wanted);
    }
    for (; next_chunk(&job, &part); last = part) {
        if (!part.whole && part.row > 0) break; /* rows are cut alike */
        if (part.rows == last.rows && part.count == last.count) continue;
        GPR_TRY(plan_chunk(&job, facts, &last, &part, &plan));
        GPR_TRY(take(context, &plan));
    }
done:
    free(memory);
    return status;
}
