/* The engine of quick tests: kernels by contract. What a program is comes from the image that fake_nvrtc.c makes, what its kernel does
 * with blocks from the registry, and what comes out from the rules of the host; no kernel's own code runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "emu/engine.h"
#include "rules.h"

const char engine_variable[] = "FAKE_CUDA";
const char engine_device_name[] = "Fake";
const int engine_tracks_writes = 0;

enum { INVALID_IMAGE = 200, NOT_FOUND = 500, NAME_ROOM = 64 };

struct engine_module {
    unsigned per_thread, lanes;
    gpr_fold fold;
    gpr_dtype element, compute, acc;
    engine_kernel *kernels; /* that were asked for */
};

typedef enum stage { FIRST, NEXT, FILL } stage;

struct engine_kernel {
    const engine_module *module;
    const gpr_kernel_row *row;
    stage stage;
    int shares_blocks; /* auto_rows */
    unsigned block;
    engine_kernel *next;
};

/* The kernels' parameters, as kernels/rows.cuh has them. */
typedef struct rows_parameter {
    uint64_t n, count, first;
    uint32_t blocks;
} rows_parameter;

typedef struct scratch_parameter {
    CUdeviceptr partials, tickets;
} scratch_parameter;

struct engine_launch {
    const engine_kernel *kernel;
    uintptr_t to, from;
    unsigned grid;
    rows_parameter rows;
    scratch_parameter scratch;
    uint64_t count; /* of a fill */
};

void engine_set(const char *key, const char *value)
{
    (void)key;
    (void)value;
}

/* ---------------------------------------------------------------- modules -------------------- */

static int parse_dtype(const char *name, gpr_dtype *dtype)
{
    *dtype = gpr_find_dtype(name);
    return *dtype != GPR_DTYPE_DEFAULT;
}

/* Reads an image of fake_nvrtc.c. */
static CUresult parse_image(const char *image, int card, engine_module *module)
{
    char kind[8] = "", fold[16] = "", element[16] = "", compute[16] = "", acc[16] = "";
    int cc = 0;

    if (sscanf(image, "FAKE %7s %d per_thread %u lanes %u fold %15s element %15s compute %15s acc %15s", kind, &cc,
               &module->per_thread, &module->lanes, fold, element, compute, acc) != 8) {
        return INVALID_IMAGE;
    }
    if (strcmp(kind, "sm") == 0 && (cc / 10 != card / 10 || cc > card)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (strcmp(kind, "compute") == 0 && cc > card) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (int i = 0; i < GPR_FOLD_COUNT; i++) {
        if (strcmp(fold, gpr_fold_rows[i].name) == 0) module->fold = (gpr_fold)i;
    }
    return parse_dtype(element, &module->element) && parse_dtype(compute, &module->compute) &&
                   parse_dtype(acc, &module->acc)
               ? CUDA_SUCCESS
               : INVALID_IMAGE;
}

CUresult engine_load(const void *image, int cc, engine_module **loaded)
{
    engine_module *made = calloc(1, sizeof *made);
    const CUresult result = made != NULL ? parse_image(image, cc, made) : CUDA_ERROR_OUT_OF_MEMORY;

    if (result == CUDA_SUCCESS)
        *loaded = made;
    else
        free(made);
    return result;
}

void engine_unload(engine_module *module)
{
    while (module->kernels != NULL) {
        engine_kernel *first = module->kernels;
        module->kernels = first->next;
        free(first);
    }
    free(module);
}

CUresult engine_find(engine_module *module, const char *name, engine_kernel **kernel)
{
    char variant[NAME_ROOM] = "", stage_name[NAME_ROOM] = "";
    const gpr_kernel_row *row = NULL;
    unsigned block = 0;

    if (sscanf(name, "fake %63s %63s %u", variant, stage_name, &block) != 3) return NOT_FOUND;
    const char *row_name = strncmp(variant, "auto_", 5) == 0 ? "auto" : variant;
    for (int i = 0; i < GPR_KERNEL_COUNT; i++) {
        if (strcmp(gpr_kernel_rows[i].name, row_name) == 0) row = &gpr_kernel_rows[i];
    }
    const int fill = strcmp(variant, "fill_identity") == 0;
    if (row == NULL && !fill) return NOT_FOUND;
    engine_kernel *made = calloc(1, sizeof *made);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    made->module = module;
    made->row = row;
    made->stage = fill ? FILL : strcmp(stage_name, "Next") == 0 ? NEXT : FIRST;
    made->shares_blocks = strcmp(variant, "auto_rows") == 0;
    made->block = block;
    made->next = module->kernels;
    module->kernels = made;
    *kernel = made;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- launches ------------------- */

const char *engine_prepare(engine_kernel *kernel, unsigned grid, unsigned block, void **arguments,
                           engine_launch **prepared)
{
    if (kernel->stage != FILL && block != kernel->block) return "launch with another block size than was compiled";
    engine_launch *made = calloc(1, sizeof *made);
    *prepared = made;
    if (made == NULL) return NULL;
    made->kernel = kernel;
    made->grid = grid;
    if (kernel->stage == FILL) {
        made->to = (uintptr_t)*(CUdeviceptr *)arguments[0];
        made->count = *(uint64_t *)arguments[1];
    } else {
        made->from = (uintptr_t)*(CUdeviceptr *)arguments[0];
        made->to = (uintptr_t)*(CUdeviceptr *)arguments[1];
        memcpy(&made->rows, arguments[2], sizeof made->rows);
        memcpy(&made->scratch, arguments[3], sizeof made->scratch);
    }
    return NULL;
}

void engine_drop(engine_launch *launch)
{
    free(launch);
}

/* ---------------------------------------------------------------- what kernels do ------------ */

/* Folds `count` elements (or, after the first pass, accumulators) from `in` on. */
static gpr_value fold_share(const engine_kernel *function, const char *in, uint64_t count)
{
    enum { BATCH = 256 };
    const engine_module *m = function->module;
    const gpr_dtype from = function->stage == FIRST ? m->element : m->acc;
    const size_t from_bytes = gpr_dtype_bytes(from), acc_bytes = gpr_dtype_bytes(m->acc);
    gpr_value all = gpr_identity(m->fold, m->compute, m->acc);
    uint64_t computed[BATCH], lifted[BATCH];

    for (uint64_t done = 0; done < count; done += BATCH) {
        const uint64_t some = count - done < BATCH ? count - done : BATCH;
        const void *values = in + done * from_bytes;
        if (function->stage == FIRST) {
            gpr_convert(from, values, m->compute, computed, some);
            gpr_convert(m->compute, computed, m->acc, lifted, some);
            values = lifted;
        }
        for (uint64_t i = 0; i < some; i++) {
            gpr_value value = {.u64 = 0};
            memcpy(&value, (const char *)values + i * acc_bytes, acc_bytes);
            all = gpr_fold_acc(m->fold, m->acc, all, value);
        }
    }
    return all;
}

static gpr_value load(const engine_module *m, uintptr_t array, uint64_t index)
{
    const size_t bytes = gpr_dtype_bytes(m->acc);
    gpr_value value = {.u64 = 0};

    memcpy(&value, (const char *)array + index * bytes, bytes);
    return value;
}

static void store(const engine_module *m, uintptr_t array, uint64_t index, gpr_value value)
{
    const size_t bytes = gpr_dtype_bytes(m->acc);

    memcpy((char *)array + index * bytes, &value, bytes);
}

/* Block `block` of the blocks of one row: folds its share and finishes as the kernel's row in the registry says. */
static void run_block(const engine_launch *op, uint64_t row, uint32_t block)
{
    const engine_kernel *f = op->kernel;
    const engine_module *m = f->module;
    const uint64_t n = op->rows.n, blocks = op->rows.blocks;
    const uint64_t extra = n % blocks, first = n / blocks * block + (block < extra ? block : extra);
    const uint64_t count = n / blocks + (block < extra);
    const size_t bytes = gpr_dtype_bytes(f->stage == FIRST ? m->element : m->acc);
    gpr_value value = fold_share(f, (const char *)op->from + (row * n + first) * bytes, count);

    if (f->row->finish == GPR_ATOMIC) {
        store(m, op->to, row, gpr_fold_acc(m->fold, m->acc, load(m, op->to, row), value));
    } else if (f->row->finish == GPR_TICKET && blocks > 1) {
        uint32_t *ticket = (uint32_t *)(uintptr_t)op->scratch.tickets + row;
        store(m, (uintptr_t)op->scratch.partials, row * blocks + block, value);
        if (++*ticket != blocks) return;
        *ticket = 0;
        value = gpr_identity(m->fold, m->compute, m->acc);
        for (uint64_t i = 0; i < blocks; i++) {
            value = gpr_fold_acc(m->fold, m->acc, value, load(m, (uintptr_t)op->scratch.partials, row * blocks + i));
        }
        store(m, op->to, row, value);
    } else {
        store(m, op->to, row * blocks + block, value);
    }
}

const char *engine_run(engine_launch *op)
{
    const engine_kernel *f = op->kernel;
    const engine_module *m = f->module;

    if (f->stage == FILL) {
        for (uint64_t i = 0; i < op->count; i++) store(m, op->to, i, gpr_identity(m->fold, m->compute, m->acc));
        return NULL;
    }
    for (uint64_t v = op->rows.first; v < op->rows.first + op->grid; v++) {
        if (!f->shares_blocks) {
            run_block(op, v / op->rows.blocks, (uint32_t)(v % op->rows.blocks));
            continue;
        }
        const uint64_t per_block = f->block / m->lanes, start = v * per_block;
        const size_t row_bytes = op->rows.n * gpr_dtype_bytes(m->element);
        for (uint64_t row = start; row < start + per_block && row < op->rows.count; row++) {
            store(m, op->to, row, fold_share(f, (const char *)op->from + row * row_bytes, op->rows.n));
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------- what kernels may do -------- */

static const char *check_array(uintptr_t start, uint64_t count, size_t bytes, const char *what)
{
    if (start % bytes != 0) return what;
    return driver_find_allocation(start, count * bytes) != NULL ? NULL : what;
}

/* Whether a launch writes over what it reads: its blocks run in any order. */
static int overlaps(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

const char *engine_check(const engine_launch *op)
{
    const engine_kernel *f = op->kernel;
    const engine_module *m = f->module;
    const size_t acc_bytes = gpr_dtype_bytes(m->acc),
                 in_bytes = f->stage == FIRST ? gpr_dtype_bytes(m->element) : acc_bytes;
    const uint64_t rows = op->rows.count, n = op->rows.n, blocks = op->rows.blocks;
    const char *wrong = NULL;

    if (f->stage == FILL)
        return check_array(op->to, op->count, acc_bytes, "fill_identity writes outside live memory or unaligned");
    if (rows == 0 || n == 0) return "launch over nothing";
    wrong = check_array(op->from, rows * n, in_bytes, "kernel reads elements outside live memory or unaligned");
    if (wrong != NULL) return wrong;
    if (f->shares_blocks) {
        const uint64_t per_block = f->block / m->lanes;
        if (blocks != 0) return "auto_rows with blocks per row";
        if (op->rows.first + op->grid > (rows + per_block - 1) / per_block) return "grid beyond the rows";
        return check_array(op->to, rows, acc_bytes, "kernel writes results outside live memory or unaligned");
    }
    if (blocks == 0) return "no blocks per row";
    if (op->rows.first + op->grid > rows * blocks) return "grid beyond the rows";
    if (f->row->cover == GPR_ONE && blocks != 1) return "several blocks for a kernel that is one block";
    if (f->row->cover == GPR_COVER) {
        const uint64_t per_block = (uint64_t)f->block * m->per_thread;
        if (blocks != n / per_block + (n % per_block != 0)) return "blocks that do not cover the row exactly";
    }
    if (f->row->finish == GPR_TICKET && blocks > 1) {
        wrong = check_array((uintptr_t)op->scratch.partials, rows * blocks, acc_bytes,
                            "partials outside live memory or unaligned");
        if (wrong == NULL)
            wrong = check_array((uintptr_t)op->scratch.tickets, rows, 4, "tickets outside live memory or unaligned");
        if (wrong != NULL) return wrong;
    }
    const uint64_t results = f->row->finish == GPR_PASSES ? rows * blocks : rows;
    if (overlaps(op->from, rows * n * in_bytes, op->to, results * acc_bytes)) return "kernel writes over what it reads";
    return check_array(op->to, results, acc_bytes, "kernel writes results outside live memory or unaligned");
}
