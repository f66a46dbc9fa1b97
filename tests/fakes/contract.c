/* The engine of quick tests: kernels by contract. What a program is comes from the image that fake_nvrtc.c makes, what its kernel does
 * with blocks from the registry, and what comes out from the rules of the host; no kernel's own code runs. */
#include <complex.h>
#include <math.h>
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
    gpr_form form;
    gpr_dtype element, compute, acc;
    int skip_nan;
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

    if (sscanf(image, "FAKE %7s %d per_thread %u lanes %u fold %15s element %15s compute %15s acc %15s skip_nan %d",
               kind, &cc, &module->per_thread, &module->lanes, fold, element, compute, acc, &module->skip_nan) != 9) {
        return INVALID_IMAGE;
    }
    if (strcmp(kind, "sm") == 0 && (cc / 10 != card / 10 || cc > card)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (strcmp(kind, "compute") == 0 && cc > card) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (int i = 0; i < GPR_FOLD_COUNT; i++) {
        if (strcmp(fold, gpr_fold_rows[i].name) == 0) module->fold = (gpr_fold)i;
    }
    module->form = gpr_fold_rows[module->fold].form;
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

static size_t acc_bytes(const engine_module *m)
{
    return gpr_acc_bytes(m->form, m->acc);
}

static size_t in_bytes(const engine_kernel *function)
{
    const engine_module *m = function->module;

    return function->stage == FIRST ? gpr_dtype_bytes(m->element) : acc_bytes(m);
}

/* Whether an element, real or complex, is NaN or has a part that is. */
static int is_nan(gpr_dtype dtype, const void *element)
{
    double _Complex wide;

    gpr_convert(dtype, element, GPR_COMPLEX128, &wide, 1);
    return isnan(creal(wide)) || isnan(cimag(wide));
}

/* What becomes of one element, at `position` of its row, before it is folded. */
static gpr_value lift(const engine_module *m, const char *element, uint64_t position)
{
    const int truth = m->fold == GPR_FOLD_any || m->fold == GPR_FOLD_all || m->fold == GPR_FOLD_odd;
    gpr_value computed = {.bytes = {0}}, value = {.bytes = {0}};

    if (m->skip_nan && is_nan(m->element, element)) return gpr_identity(m->fold, m->compute, m->acc);
    if (truth || m->fold == GPR_FOLD_count) {
        uint8_t is_true;
        gpr_convert(m->element, element, GPR_BOOL, &is_true, 1);
        gpr_convert(GPR_BOOL, &is_true, m->acc, value.bytes, 1);
        return value;
    }
    gpr_convert(m->element, element, m->compute, computed.bytes, 1);
    gpr_convert(m->compute, computed.bytes, m->acc, value.bytes, 1);
    if (m->form == GPR_FORM_RANGE) memcpy(value.high, value.bytes, sizeof value.high);
    if (m->form == GPR_FORM_FOUND) value.position = position;
    if (m->form == GPR_FORM_TALLY || m->form == GPR_FORM_MOMENTS) value.count = 1;
    return value;
}

/* Folds `count` elements (or, after the first pass, accumulators) from `in` on, the first at `position` of its row. */
static gpr_value fold_share(const engine_kernel *function, const char *in, uint64_t position, uint64_t count)
{
    const engine_module *m = function->module;
    const size_t bytes = in_bytes(function);
    gpr_value all = gpr_identity(m->fold, m->compute, m->acc);

    for (uint64_t i = 0; i < count; i++) {
        const gpr_value value = function->stage == FIRST ? lift(m, in + i * bytes, position + i)
                                                         : gpr_read_acc(m->form, m->acc, in + i * bytes);
        all = gpr_fold_acc(m->fold, m->acc, all, value);
    }
    return all;
}

static gpr_value load(const engine_module *m, uintptr_t array, uint64_t index)
{
    return gpr_read_acc(m->form, m->acc, (const char *)array + index * acc_bytes(m));
}

static void store(const engine_module *m, uintptr_t array, uint64_t index, gpr_value value)
{
    gpr_write_acc(m->form, m->acc, &value, (char *)array + index * acc_bytes(m));
}

/* Block `block` of the blocks of one row: folds its share and finishes as the kernel's row in the registry says. */
static void run_block(const engine_launch *op, uint64_t row, uint32_t block)
{
    const engine_kernel *f = op->kernel;
    const engine_module *m = f->module;
    const uint64_t n = op->rows.n, blocks = op->rows.blocks;
    const uint64_t extra = n % blocks, first = n / blocks * block + (block < extra ? block : extra);
    const uint64_t count = n / blocks + (block < extra);
    gpr_value value = fold_share(f, (const char *)op->from + (row * n + first) * in_bytes(f), first, count);

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
            store(m, op->to, row, fold_share(f, (const char *)op->from + row * row_bytes, 0, op->rows.n));
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------- what kernels may do -------- */

/* Accumulators lie as aligned as their widest member; counts and positions have 8 bytes. */
static size_t aligned_to(gpr_dtype acc, size_t acc_bytes)
{
    const size_t number = gpr_dtype_bytes(acc);

    return number == acc_bytes || number >= sizeof(uint64_t) ? number : sizeof(uint32_t);
}

static const char *check_array(uintptr_t start, uint64_t count, size_t bytes, size_t align, const char *what)
{
    if (start % align != 0) return what;
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
    const size_t to_bytes = acc_bytes(m), from_bytes = in_bytes(f);
    const size_t to_align = aligned_to(m->acc, to_bytes);
    const size_t from_align = f->stage == FIRST ? gpr_dtype_bytes(m->element) : to_align;
    const uint64_t rows = op->rows.count, n = op->rows.n, blocks = op->rows.blocks;
    const char *wrong = NULL;

    if (f->stage == FILL)
        return check_array(op->to, op->count, to_bytes, to_align,
                           "fill_identity writes outside live memory or unaligned");
    if (rows == 0 || n == 0) return "launch over nothing";
    wrong = check_array(op->from, rows * n, from_bytes, from_align,
                        "kernel reads elements outside live memory or unaligned");
    if (wrong != NULL) return wrong;
    if (f->shares_blocks) {
        const uint64_t per_block = f->block / m->lanes;
        if (blocks != 0) return "auto_rows with blocks per row";
        if (op->rows.first + op->grid > (rows + per_block - 1) / per_block) return "grid beyond the rows";
        return check_array(op->to, rows, to_bytes, to_align, "kernel writes results outside live memory or unaligned");
    }
    if (blocks == 0) return "no blocks per row";
    if (op->rows.first + op->grid > rows * blocks) return "grid beyond the rows";
    if (f->row->cover == GPR_ONE && blocks != 1) return "several blocks for a kernel that is one block";
    if (f->row->cover == GPR_COVER) {
        const uint64_t per_block = (uint64_t)f->block * m->per_thread;
        if (blocks != n / per_block + (n % per_block != 0)) return "blocks that do not cover the row exactly";
    }
    if (f->row->finish == GPR_TICKET && blocks > 1) {
        wrong = check_array((uintptr_t)op->scratch.partials, rows * blocks, to_bytes, to_align,
                            "partials outside live memory or unaligned");
        if (wrong == NULL)
            wrong = check_array((uintptr_t)op->scratch.tickets, rows, 4, 4, "tickets outside live memory or unaligned");
        if (wrong != NULL) return wrong;
    }
    const uint64_t results = f->row->finish == GPR_PASSES ? rows * blocks : rows;
    if (overlaps(op->from, rows * n * from_bytes, op->to, results * to_bytes))
        return "kernel writes over what it reads";
    return check_array(op->to, results, to_bytes, to_align, "kernel writes results outside live memory or unaligned");
}
