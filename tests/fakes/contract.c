/* The engine of quick tests: kernels by contract. What a program is comes from the image that
 * fake_nvrtc.c makes, what its kernel does with blocks from the registry, and what comes out from
 * the rules of the host; no kernel's own code runs. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/driver_memory.h"
#include "emu/engine.h"
#include "lib/base/convert.h"
#include "lib/exact/exact.h"
#include "lib/rules/accumulators.h"
#include "lib/rules/rules.h"
#include "shared/launch_params.h"
#include "shared/several_params.h"
#include "shared/tuning.h"

const char engine_variable[] = "FAKE_CUDA";
const char engine_device_name[] = "Fake";
const int engine_tracks_writes = 0;

enum { INVALID_IMAGE = 200, NOT_FOUND = 500, NAME_ROOM = 64 };

typedef struct member member;

struct engine_module {
    unsigned per_thread, lanes, kept, reduced, item;
    int masked;
    gpr_fold fold;
    gpr_acc_kind acc_kind;
    gpr_dtype element, compute, acc;
    gpr_dtype second; /* of the other array; GPR_DTYPE_DEFAULT: there is none */
    int skips_nan;
    gpr_dtype result;       /* GPR_DTYPE_DEFAULT: accumulators leave the program */
    gpr_operator finisher;  /* an operator that finishes so */
    gpr_dtype mean;         /* of given means; GPR_DTYPE_DEFAULT: the rows' own */
    int has_start;          /* rows have one element more */
    int counts_nan;         /* of nothing else */
    engine_kernel *kernels; /* that were asked for */
    unsigned member_count;  /* of several reductions in one pass; 0: there is one reduction */
    member *members;
};

/* One of several reductions, as a program of its own. Those of a group share an accumulator. */
struct member {
    engine_module module;
    unsigned place, group;
    int is_pair; /* an exact sum whose blocks have pairs of doubles, not limbs */
};

typedef enum stage { FIRST, NEXT, FILL, FINISH, COPY } stage;

/* What is special about the kernels that know layouts; RUN: every other one. */
typedef enum shape {
    RUN,
    STREAM,
    ROWS,
    COLUMNS,
    NARROW,
    STRIDED,
    EMPTY,
    EXACT,
    EXACT_STRIDED,
    EXACT_ROWS,
    SEVERAL
} shape;

struct engine_kernel {
    const engine_module *module;
    const gpr_kernel_row *row;
    stage stage;
    shape shape;
    unsigned block;
    engine_kernel *next;
};

enum { MOST_AXES = GPR_MAX_NDIM + 2 };

struct engine_launch {
    const engine_kernel *kernel;
    uintptr_t to, from;
    unsigned grid;
    gpr_launch_kind kind;
    gpr_rows_params rows;
    gpr_scratch_params scratch;
    gpr_layout_params layout;
    gpr_axis axes[MOST_AXES];
    gpr_finalize_params finalize;
    gpr_given_mean_params given_mean;
    int64_t mean_steps[GPR_MAX_NDIM];
    gpr_second_params second;
    gpr_several_params several;
    gpr_copy_params copies;
    uint64_t count; /* of a fill */
};

unsigned engine_relied(void)
{
    return 0; /* no threads run */
}

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

/* Fills in what traits have, and what makes results of their accumulators. */
static int set_traits(engine_module *module, const char *fold, const char *const *dtypes,
                      const char *skips, const char *result, const char *finish)
{
    for (int i = 0; i < GPR_FOLD_COUNT; i++) {
        if (strcmp(fold, gpr_fold_rows[i].name) == 0) module->fold = (gpr_fold)i;
    }
    if (strcmp(fold, "moments_about") == 0) module->fold = GPR_FOLD_moments; /* of finite numbers */
    module->counts_nan = strcmp(fold, "nan") == 0;
    if (module->counts_nan) module->fold = GPR_FOLD_count;
    for (int i = GPR_OP_COUNT - 1; i >= 0; i--) {
        if (strcmp(finish, gpr_operator_rows[i].finish) == 0) module->finisher = (gpr_operator)i;
    }
    module->acc_kind = gpr_fold_rows[module->fold].acc_kind;
    module->skips_nan = strcmp(skips, "true") == 0;
    module->result = gpr_find_dtype(result);
    return parse_dtype(dtypes[0], &module->element) && parse_dtype(dtypes[1], &module->compute) &&
           parse_dtype(dtypes[2], &module->acc);
}

/* Reads what follows " several" in an image: the elements' type and the members. */
static CUresult parse_several(const char *words, engine_module *module)
{
    char element[16] = "";
    int end = 0;

    if (sscanf(words, "%15s%n", element, &end) != 1 || !parse_dtype(element, &module->element))
        return INVALID_IMAGE;
    module->members = calloc(GPR_MOST_MEMBERS, sizeof *module->members);
    if (module->members == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    for (words += end; *words != '\0'; words += end) {
        member *made = &module->members[module->member_count];
        char fold[16] = "", types[3][16] = {""}, skips[8] = "", result[16] = "", finish[16] = "";
        const char *const dtypes[] = {types[0], types[1], types[2]};
        if (module->member_count == GPR_MOST_MEMBERS ||
            sscanf(words,
                   " member %u group %u pair %d fold %15s element %15s compute %15s acc %15s "
                   "skips %7s result %15s finish %15s%n",
                   &made->place, &made->group, &made->is_pair, fold, types[0], types[1], types[2],
                   skips, result, finish, &end) != 10 ||
            made->place >= GPR_MOST_MEMBERS || made->group > module->member_count ||
            !set_traits(&made->module, fold, dtypes, skips, result, finish) ||
            made->module.element != module->element || made->module.result == GPR_DTYPE_DEFAULT ||
            (made->is_pair && made->module.acc_kind != GPR_ACC_EXACT))
            return INVALID_IMAGE;
        module->member_count++;
    }
    return module->member_count > 0 ? CUDA_SUCCESS : INVALID_IMAGE;
}

/* Reads an image of fake_nvrtc.c. */
static CUresult parse_image(const char *image, int device_cc, engine_module *module)
{
    char kind[8] = "", masked[8] = "", fold[16] = "", element[16] = "", compute[16] = "",
         acc[16] = "", skips[8] = "", second[16] = "", result[16] = "", finish[16] = "",
         mean[16] = "", start[8] = "";
    const char *const dtypes[] = {element, compute, acc};
    int cc = 0, several = 0;

    if (sscanf(image, "FAKE %7s %d several %n", kind, &cc, &several) != 2) return INVALID_IMAGE;
    if (strcmp(kind, "sm") == 0 && (cc / 10 != device_cc / 10 || cc > device_cc))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (strcmp(kind, "compute") == 0 && cc > device_cc) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (several != 0) return parse_several(image + several, module);
    if (sscanf(image,
               "FAKE %*s %*d per_thread %u lanes %u kept %u reduced %u masked %7s item %u fold "
               "%15s element %15s compute %15s acc %15s skips %7s second %15s result %15s finish "
               "%15s mean %15s start %7s",
               &module->per_thread, &module->lanes, &module->kept, &module->reduced, masked,
               &module->item, fold, element, compute, acc, skips, second, result, finish, mean,
               start) != 16)
        return INVALID_IMAGE;
    module->has_start = strcmp(start, "true") == 0;
    module->masked = strcmp(masked, "true") == 0;
    module->second = gpr_find_dtype(second);
    module->mean = gpr_find_dtype(mean);
    return set_traits(module, fold, dtypes, skips, result, finish) ? CUDA_SUCCESS : INVALID_IMAGE;
}

CUresult engine_load(const void *image, int cc, engine_module **loaded)
{
    engine_module *made = calloc(1, sizeof *made);
    const CUresult result = made != NULL ? parse_image(image, cc, made) : CUDA_ERROR_OUT_OF_MEMORY;

    if (result == CUDA_SUCCESS)
        *loaded = made;
    else if (made != NULL)
        engine_unload(made);
    return result;
}

void engine_unload(engine_module *module)
{
    while (module->kernels != NULL) {
        engine_kernel *first = module->kernels;
        module->kernels = first->next;
        free(first);
    }
    free(module->members);
    free(module);
}

static shape shape_of(const char *variant)
{
    static const struct {
        const char *name;
        shape shape;
    } shapes[] = {{"fast_stream", STREAM},
                  {"fast_short", STREAM},
                  {"fast_rows", ROWS},
                  {"fast_counted", ROWS},
                  {"fast_columns", COLUMNS},
                  {"fast_few", COLUMNS},
                  {"fast_narrow", NARROW},
                  {"fast_strided", STRIDED},
                  {"fast_empty", EMPTY},
                  {"exact", EXACT},
                  {"exact_strided", EXACT_STRIDED},
                  {"exact_rows", EXACT_ROWS},
                  {"exact_moments", EXACT},
                  {"exact_dot", EXACT},
                  {"exact_moments_strided", EXACT_STRIDED},
                  {"several", SEVERAL}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (strcmp(variant, shapes[i].name) == 0) return shapes[i].shape;
    }
    return RUN;
}

CUresult engine_find(engine_module *module, const char *name, engine_kernel **kernel)
{
    char variant[NAME_ROOM] = "", stage_name[NAME_ROOM] = "";
    const gpr_kernel_row *row = NULL;
    unsigned block = 0;

    if (sscanf(name, "fake %63s %63s %u", variant, stage_name, &block) != 3) return NOT_FOUND;
    const char *row_name = strncmp(variant, "fast_", 5) == 0    ? "fast"
                           : strncmp(variant, "exact_", 6) == 0 ? "exact"
                                                                : variant;
    for (int i = 0; i < GPR_KERNEL_COUNT; i++) {
        if (strcmp(gpr_kernel_rows[i].name, row_name) == 0) row = &gpr_kernel_rows[i];
    }
    const int fill = strcmp(variant, "fill_identity") == 0,
              finish = strcmp(variant, "finalize_rows") == 0,
              copy = strcmp(variant, "copy_results") == 0;
    const int several = shape_of(variant) == SEVERAL;
    if (row == NULL && !fill && !finish && !copy && !several) return NOT_FOUND;
    if (several != (module->member_count > 0)) return NOT_FOUND;
    engine_kernel *made = calloc(1, sizeof *made);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    made->module = module;
    made->row = row;
    made->stage = fill                              ? FILL
                  : finish                          ? FINISH
                  : copy                            ? COPY
                  : strcmp(stage_name, "Next") == 0 ? NEXT
                                                    : FIRST;
    made->shape = shape_of(variant);
    made->block = block;
    made->next = module->kernels;
    module->kernels = made;
    *kernel = made;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- launches ------------------- */

/* Parameters are read as far as the program has axes, and given means where it has them. */
static void read_layout(engine_launch *op, const void *argument)
{
    const engine_module *m = op->kernel->module;

    memcpy(&op->layout, argument, sizeof op->layout);
    memcpy(op->axes, (const char *)argument + sizeof op->layout,
           (m->kept + m->reduced) * sizeof *op->axes);
}

static void read_finalizing(engine_launch *op, const void *argument)
{
    const engine_module *m = op->kernel->module;
    const char *mean = (const char *)argument + sizeof op->finalize;

    memcpy(&op->finalize, argument, sizeof op->finalize);
    if (m->mean == GPR_DTYPE_DEFAULT) return;
    memcpy(&op->given_mean, mean, sizeof op->given_mean);
    memcpy(op->mean_steps, mean + sizeof op->given_mean, m->kept * sizeof *op->mean_steps);
}

const char *engine_prepare(engine_kernel *kernel, engine_shape shape, void **arguments,
                           engine_launch **prepared)
{
    const engine_module *m = kernel->module;

    if (shape.shared_bytes != 0) return "launch with dynamic shared memory";
    if (kernel->stage <= NEXT && shape.block != kernel->block)
        return "launch with another block size than was compiled";
    if (m->kept + m->reduced > MOST_AXES) return "a program of too many axes";
    engine_launch *made = calloc(1, sizeof *made);
    *prepared = made;
    if (made == NULL) return NULL;
    made->kernel = kernel;
    made->grid = shape.grid;
    made->kind = shape.kind;
    if (kernel->stage == FILL) {
        made->to = (uintptr_t)*(CUdeviceptr *)arguments[0];
        made->count = *(uint64_t *)arguments[1];
        return NULL;
    }
    if (kernel->stage == COPY) {
        made->to = (uintptr_t)*(CUdeviceptr *)arguments[0];
        memcpy(&made->copies, arguments[1], sizeof made->copies);
        return NULL;
    }
    if (kernel->shape == SEVERAL) {
        memcpy(&made->several, arguments[0], sizeof made->several);
        return NULL;
    }
    made->from = (uintptr_t)*(CUdeviceptr *)arguments[0];
    made->to = (uintptr_t)*(CUdeviceptr *)arguments[1];
    if (kernel->stage == FINISH) {
        read_layout(made, arguments[2]);
        read_finalizing(made, arguments[3]);
        return NULL;
    }
    memcpy(&made->rows, arguments[2], sizeof made->rows);
    memcpy(&made->scratch, arguments[3], sizeof made->scratch);
    if (kernel->shape != RUN) {
        read_layout(made, arguments[4]);
        read_finalizing(made, arguments[5]);
        memcpy(&made->second, arguments[6], sizeof made->second);
    }
    return NULL;
}

int engine_again(const engine_launch *launch, engine_launch **copy)
{
    *copy = malloc(sizeof **copy);
    if (*copy != NULL) **copy = *launch;
    return *copy != NULL;
}

void engine_drop(engine_launch *launch)
{
    free(launch);
}

/* ---------------------------------------------------------------- numbers -------------------- */

static size_t acc_bytes(const engine_module *m)
{
    return gpr_acc_bytes(m->acc_kind, m->acc);
}

static gpr_value load(const engine_module *m, uintptr_t array, uint64_t index)
{
    return gpr_read_acc(m->acc_kind, m->acc, (const char *)array + index * acc_bytes(m));
}

static void store(const engine_module *m, uintptr_t array, uint64_t index, gpr_value value)
{
    gpr_write_acc(m->acc_kind, m->acc, &value, (char *)array + index * acc_bytes(m));
}

static gpr_value identity(const engine_module *m)
{
    return gpr_identity(m->fold, m->compute, m->acc);
}

static int is_nan(gpr_dtype dtype, const void *element)
{
    double parts[2] = {0, 0};

    gpr_convert(dtype, element, GPR_COMPLEX128, parts, 1);
    return parts[0] != parts[0] || parts[1] != parts[1];
}

/* An element at `position` of its row as an accumulator. */
static gpr_value lift(const engine_module *m, const void *element, uint64_t position)
{
    uint8_t computed[16], truth = 0;
    gpr_value value;

    memset(&value, 0, sizeof value);
    if (m->skips_nan && is_nan(m->element, element)) return identity(m);
    if (m->counts_nan) {
        value.u64 = (uint64_t)is_nan(m->element, element);
        return value;
    }
    gpr_convert(m->element, element, m->compute, computed, 1);
    gpr_convert(m->compute, computed, m->acc, value.bytes, 1);
    gpr_convert(m->compute, computed, GPR_BOOL, &truth, 1);
    if (m->fold == GPR_FOLD_count) value.u64 = truth;
    if (m->fold == GPR_FOLD_odd || m->fold == GPR_FOLD_any || m->fold == GPR_FOLD_all)
        value.u32 = truth;
    if (m->acc_kind == GPR_ACC_INDEXED) value.position = position;
    if (m->acc_kind == GPR_ACC_RANGE) memcpy(value.high, value.bytes, sizeof value.high);
    if (m->acc_kind == GPR_ACC_SUM_COUNT || m->acc_kind == GPR_ACC_MOMENTS) value.count = 1;
    if (m->acc_kind == GPR_ACC_MOMENTS) { /* 0, but NaN for an infinity or NaN */
        const double zeros[2] = {value.mean[0] - value.mean[0], value.mean[1] - value.mean[1]};
        value.squares = zeros[0] * zeros[0] + zeros[1] * zeros[1];
    }
    return value;
}

static gpr_value fold(const engine_module *m, gpr_value a, gpr_value b)
{
    return gpr_fold_acc(m->fold, m->acc, a, b);
}

/* Writes the result of a packed accumulator; `index` counts results. */
static void finish_result(const engine_launch *op, int64_t index, const void *packed)
{
    const engine_module *m = op->kernel->module;
    const gpr_rule rule = {.op = m->finisher,
                           .fold = m->fold,
                           .acc_kind = m->acc_kind,
                           .element = m->element,
                           .compute = m->compute,
                           .device_acc = m->acc,
                           .host_acc = m->acc,
                           .result = m->result,
                           .outputs = m->finisher == GPR_OP_MINMAX ? 2 : 1,
                           .divide = m->finisher == GPR_OP_MEAN,
                           .skip_nan = m->skips_nan,
                           .ddof = op->finalize.ddof};
    const size_t bytes = gpr_dtype_bytes(m->result);

    if (gpr_is_exact(m->acc_kind)) {
        gpr_exact_part parts[GPR_EXACT_MOST_PARTS];
        gpr_exact_read_acc(m->acc_kind, m->acc, packed, parts);
        gpr_finish_exact(&rule, parts, (char *)op->to + index * (int64_t)bytes);
        return;
    }
    gpr_finish_results(&rule, m->acc, packed, 1, op->layout.elements,
                       (char *)op->to + index * (int64_t)bytes, op->finalize.output_stride * bytes);
}

/* An output of a row of the launch: where its elements, its result and its given mean are. */
typedef struct output {
    int exists;
    int64_t in, mask, out, mean;
} output;

/* Makes the squares' sum one of distances from the output's given mean. */
static void move_mean(const engine_launch *op, const output *o, gpr_value *value)
{
    const engine_module *m = op->kernel->module;
    double given[2] = {op->given_mean.for_all[0], op->given_mean.for_all[1]};

    if (value->count == 0) return;
    if (op->given_mean.means != 0) {
        const char *means = (const char *)(uintptr_t)op->given_mean.means;
        gpr_convert(m->mean, means + o->mean * (int64_t)gpr_dtype_bytes(m->mean), GPR_COMPLEX128,
                    given, 1);
    }
    double apart[2] = {given[0] - value->mean[0] - value->mean[1], 0};
    if (m->acc == GPR_COMPLEX128) {
        apart[0] = given[0] - value->mean[0];
        apart[1] = given[1] - value->mean[1];
    }
    value->squares += (apart[0] * apart[0] + apart[1] * apart[1]) * (double)value->count;
}

/* Writes what the program makes of an accumulator. */
static void store_result(const engine_launch *op, const output *o, gpr_value value)
{
    const engine_module *m = op->kernel->module;
    uint8_t packed[sizeof value];

    if (m->result == GPR_DTYPE_DEFAULT) {
        store(m, op->to, (uint64_t)o->out, value);
        return;
    }
    if (m->mean != GPR_DTYPE_DEFAULT) move_mean(op, o, &value);
    if (m->has_start) value = fold(m, value, lift(m, (const char *)op->finalize.start, 0));
    gpr_write_acc(m->acc_kind, m->acc, &value, packed);
    finish_result(op, o->out, packed);
}

/* ---------------------------------------------------------------- kernels over runs ---------- */

/* Whether lifting is converting, which is quicker for many at once. */
static int lifts_plainly(const engine_module *m)
{
    return m->acc_kind == GPR_ACC_NUMBER && !m->skips_nan && m->fold != GPR_FOLD_count &&
           m->fold != GPR_FOLD_odd && m->fold != GPR_FOLD_any && m->fold != GPR_FOLD_all;
}

/* Folds `count` elements that are neighbours. Most tests sum integers. */
static gpr_value fold_run(const engine_module *m, const char *in, uint64_t count)
{
    enum { BATCH = 256 };
    const size_t from_bytes = gpr_dtype_bytes(m->element), bytes = gpr_dtype_bytes(m->acc);
    const int adds = m->fold == GPR_FOLD_sum && (m->acc == GPR_INT64 || m->acc == GPR_UINT64);
    gpr_value all = identity(m), value;
    uint8_t computed[BATCH * 16], lifted[BATCH * 16];

    memset(&value, 0, sizeof value);
    for (uint64_t done = 0; done < count; done += BATCH) {
        const uint64_t some = count - done < BATCH ? count - done : BATCH;
        gpr_convert(m->element, in + done * from_bytes, m->compute, computed, some);
        gpr_convert(m->compute, computed, m->acc, lifted, some);
        for (uint64_t i = 0; i < some; i++) {
            memcpy(value.bytes, lifted + i * bytes, bytes);
            if (adds)
                all.u64 += value.u64;
            else
                all = fold(m, all, value);
        }
    }
    return all;
}

/* Folds `count` elements (or, after the first pass, accumulators) from `in` on; the first is at
 * `position` of its row. */
static gpr_value fold_share(const engine_kernel *function, const char *in, uint64_t count,
                            uint64_t position)
{
    const engine_module *m = function->module;
    const size_t bytes = function->stage == FIRST ? gpr_dtype_bytes(m->element) : acc_bytes(m);
    gpr_value all = identity(m);

    if (function->stage == FIRST && lifts_plainly(m)) return fold_run(m, in, count);
    for (uint64_t i = 0; i < count; i++) {
        all = fold(m, all,
                   function->stage == FIRST ? lift(m, in + i * bytes, position + i)
                                            : load(m, (uintptr_t)in, i));
    }
    return all;
}

/* What part `part` of `parts` takes of n. */
static void share_of(uint64_t n, uint64_t part, uint64_t parts, uint64_t *first, uint64_t *count)
{
    const uint64_t extra = n % parts;

    *first = n / parts * part + (part < extra ? part : extra);
    *count = n / parts + (part < extra);
}

/* Block `block` of the blocks of one row: folds its share and finishes as the kernel's row in
 * the registry says. */
static void run_block(const engine_launch *op, uint64_t row, uint32_t block)
{
    const engine_kernel *f = op->kernel;
    const engine_module *m = f->module;
    const uint64_t n = op->rows.n, blocks = op->rows.blocks;
    const size_t bytes = f->stage == FIRST ? gpr_dtype_bytes(m->element) : acc_bytes(m);
    uint64_t first = 0, count = 0;

    share_of(n, block, blocks, &first, &count);
    gpr_value value =
        fold_share(f, (const char *)op->from + (row * n + first) * bytes, count, first);

    if (f->row->finish == GPR_ATOMIC) {
        store(m, op->to, row, fold(m, load(m, op->to, row), value));
    } else if (f->row->finish == GPR_TICKET && blocks > 1) {
        uint32_t *ticket = (uint32_t *)(uintptr_t)op->scratch.tickets + row;
        store(m, (uintptr_t)op->scratch.partials, row * blocks + block, value);
        if (++*ticket != blocks) return;
        *ticket = 0;
        value = identity(m);
        for (uint64_t i = 0; i < blocks; i++)
            value = fold(m, value, load(m, (uintptr_t)op->scratch.partials, row * blocks + i));
        store(m, op->to, row, value);
    } else {
        store(m, op->to, row * blocks + block, value);
    }
}

/* ---------------------------------------------------------------- the planner's kernels ------ */

/* Adds the steps of index `i` along `count` axes, of which the last varies fastest. */
static void step_to(const gpr_axis *axes, unsigned count, uint64_t i, output *o, uint64_t *position)
{
    for (unsigned a = count; a-- > 0;) {
        const int64_t at = (int64_t)(a > 0 ? i % axes[a].extent : i);
        o->in += at * axes[a].in;
        o->mask += at * axes[a].mask;
        if (position != NULL) *position += (uint64_t)(at * axes[a].position);
        if (position == NULL) o->out += at * axes[a].out;
        i /= axes[a].extent;
    }
}

/* A thread of fast_few has several items of a strip; one of fast_columns has one. */
static uint64_t columns_of_strip(const engine_launch *op)
{
    const engine_module *m = op->kernel->module;
    return (uint64_t)op->layout.width * m->item * m->per_thread;
}

static uint64_t outputs_of_row(const engine_launch *op)
{
    const gpr_layout_params *l = &op->layout;

    switch (op->kernel->shape) {
    case COLUMNS: return columns_of_strip(op);
    case NARROW: return l->columns;
    case STRIDED:
    case EXACT_STRIDED: return l->width;
    default: return 1;
    }
}

static output output_at(const engine_launch *op, uint64_t row, uint64_t k)
{
    const engine_module *m = op->kernel->module;
    const gpr_layout_params *l = &op->layout;
    output o = {.exists = 1};
    uint64_t index = row, column = 0;

    if (op->kernel->shape == COLUMNS && l->strips == 0) {
        const uint64_t number = row * columns_of_strip(op) + k;
        index = number / l->columns;
        column = number % l->columns;
        o.exists = number < l->count;
    } else if (op->kernel->shape == COLUMNS) {
        index = row / l->strips;
        column = row % l->strips * columns_of_strip(op) + k;
    } else if (op->kernel->shape == NARROW) {
        column = k;
    } else if (op->kernel->shape == STRIDED || op->kernel->shape == EXACT_STRIDED) {
        index = row * l->width + k;
        o.exists = index < l->count;
    }
    if (op->kernel->shape == COLUMNS || op->kernel->shape == NARROW)
        o.exists = o.exists && column < l->columns;
    if (!o.exists) return o;
    step_to(op->axes, m->kept, index, &o, NULL);
    o.in += (int64_t)column;
    o.mask += (int64_t)column;
    o.out += (int64_t)column * l->column_out;
    o.mean = (int64_t)column * op->given_mean.column;
    for (unsigned a = m->kept; a-- > 0; index /= op->axes[a].extent)
        o.mean += (int64_t)(a > 0 ? index % op->axes[a].extent : index) * op->mean_steps[a];
    return o;
}

/* Neighbouring elements at a position of a row. */
static unsigned elements_at_position(const engine_launch *op)
{
    return op->kernel->shape == STRIDED || op->kernel->shape == EXACT_STRIDED
               ? op->kernel->module->item
               : 1;
}

/* Folds positions [first, first + count) of an output's row. */
static gpr_value fold_output(const engine_launch *op, const output *o, uint64_t first,
                             uint64_t count)
{
    const engine_module *m = op->kernel->module;
    const gpr_layout_params *l = &op->layout;
    const unsigned elements = elements_at_position(op);
    const size_t bytes = gpr_dtype_bytes(m->element);
    const gpr_axis *row = &op->axes[m->kept];
    gpr_value value = identity(m);

    if (m->reduced == 1 && row->in == 1 && elements == 1 && !m->masked && lifts_plainly(m))
        return fold_run(m, (const char *)op->from + (o->in + (int64_t)first) * (int64_t)bytes,
                        count);
    for (uint64_t p = first; p < first + count; p++) {
        uint64_t position = l->first_position;
        output at = *o;
        step_to(op->axes + m->kept, m->reduced, p, &at, &position);
        for (unsigned j = 0; j < elements; j++) {
            if (m->masked && *((const uint8_t *)(uintptr_t)l->mask + at.mask + j) == 0) continue;
            value = fold(m, value,
                         lift(m, (const char *)op->from + (at.in + (int64_t)j) * (int64_t)bytes,
                              position + (uint64_t)((int64_t)j * l->item_position)));
        }
    }
    return value;
}

/* Whether an exact sum is made by a kernel of fast, whose accumulators are pairs of doubles. */
static int is_sum_by_pairs(const engine_launch *op)
{
    const shape shape = op->kernel->shape;

    return op->kernel->module->acc_kind == GPR_ACC_EXACT &&
           (shape == STREAM || shape == ROWS || shape == COLUMNS || shape == NARROW ||
            shape == STRIDED); /* COLUMNS: fast_few, too */
}

static void store_exact_row(const engine_launch *op, const output *o);

/* The same for an exact sum: the last block adds all that the others would have left to it. */
static void run_pairs_block(const engine_launch *op, uint64_t row)
{
    uint32_t *ticket = (uint32_t *)(uintptr_t)op->scratch.tickets + row;

    if (op->rows.blocks > 1) {
        if (++*ticket != op->rows.blocks) return;
        *ticket = 0;
    }
    for (uint64_t k = 0; k < outputs_of_row(op); k++) {
        const output o = output_at(op, row, k);
        if (o.exists) store_exact_row(op, &o);
    }
}

static void run_planned_block(const engine_launch *op, uint64_t row, uint32_t block)
{
    const engine_module *m = op->kernel->module;
    const uint64_t blocks = op->rows.blocks, width = outputs_of_row(op);
    const uintptr_t partials = (uintptr_t)op->scratch.partials;
    uint32_t *ticket = (uint32_t *)(uintptr_t)op->scratch.tickets + row;
    uint64_t first = 0, count = 0;

    share_of(op->rows.n, block, blocks, &first, &count);
    for (uint64_t k = 0; k < width; k++) {
        const output o = output_at(op, row, k);
        if (!o.exists) continue;
        const gpr_value value = fold_output(op, &o, first, count);
        if (blocks == 1)
            store_result(op, &o, value);
        else
            store(m, partials, (row * blocks + block) * width + k, value);
    }
    if (blocks == 1 || ++*ticket != blocks) return;
    *ticket = 0;
    for (uint64_t k = 0; k < width; k++) {
        const output o = output_at(op, row, k);
        gpr_value value = identity(m);
        if (!o.exists) continue;
        for (uint64_t b = 0; b < blocks; b++)
            value = fold(m, value, load(m, partials, (row * blocks + b) * width + k));
        store_result(op, &o, value);
    }
}

/* Rows that a block of fast_rows or fast_empty serves. */
static uint64_t rows_of_block(const engine_kernel *f)
{
    return f->shape == EMPTY ? f->block
                             : (uint64_t)f->block / f->module->lanes * f->module->per_thread;
}

static void run_shared_block(const engine_launch *op, uint64_t v)
{
    const engine_kernel *f = op->kernel;
    const uint64_t per_block = rows_of_block(f), start = v * per_block;

    for (uint64_t row = start; row < start + per_block && row < op->rows.count; row++) {
        const output o = output_at(op, row, 0);
        if (f->shape == EXACT_ROWS || is_sum_by_pairs(op))
            store_exact_row(op, &o);
        else
            store_result(
                op, &o,
                fold_output(op, &o, 0, f->shape == EMPTY ? op->layout.elements : op->rows.n));
    }
}

/* ---------------------------------------------------------------- exact sums ----------------- */

/* Tickets that the slot of a row, or of a group of rows, takes. Its counters have room for packed
 * accumulators, which are not longer. */
static uint64_t slot_tickets(const engine_launch *op)
{
    const engine_module *m = op->kernel->module;

    const uint64_t counters = outputs_of_row(op) * gpr_exact_counters(m->acc_kind, m->acc);

    return gpr_exact_tickets(1, (uint32_t)counters);
}

/* Adds a product of two real numbers of a type to a part for those. */
static void add_product(gpr_exact_part *part, gpr_dtype dtype, const void *x, const void *y)
{
    double a = 0, b = 0;

    if (gpr_exact_product_dtype(dtype) == dtype) {
        gpr_exact_add_products(part, dtype, x, y, 1);
        return;
    }
    gpr_convert(dtype, x, GPR_FLOAT64, &a, 1);
    gpr_convert(dtype, y, GPR_FLOAT64, &b, 1);
    a *= b;
    gpr_exact_add_elements(part, GPR_FLOAT64, &a, 1);
}

/* Adds an element, and its square where those are summed too. */
static void add_element(const engine_module *m, const char *element, gpr_exact_part *parts)
{
    const gpr_dtype real = gpr_real_dtype(m->element);
    const int components = gpr_exact_parts(m->element);

    for (int p = 0; p < components; p++) {
        const char *number = element + (size_t)p * gpr_dtype_bytes(real);
        gpr_exact_add_elements(&parts[p], real, number, 1);
        if (m->acc_kind != GPR_ACC_EXACT_MOMENTS) continue;
        add_product(&parts[components], real, number, number);
        parts[components].count = parts[0].count;
    }
}

/* Adds the product of two factors, each converted to the type of both. */
static void add_pair(const engine_module *m, const char *element, const char *other,
                     gpr_exact_part *parts)
{
    const gpr_dtype real = gpr_real_dtype(m->acc);
    const size_t bytes = gpr_dtype_bytes(real);
    char x[16], y[16], minus[16];
    const double one = -1;

    gpr_convert(m->element, element, m->acc, x, 1);
    gpr_convert(m->second, other, m->acc, y, 1);
    add_product(&parts[0], real, x, y);
    if (gpr_exact_parts(m->acc) == 1) return;
    gpr_convert(real, x + bytes, GPR_FLOAT64, minus, 1);
    *(double *)minus *= one;
    gpr_convert(GPR_FLOAT64, minus, real, minus + 8, 1);
    add_product(&parts[0], real, minus + 8, y + bytes);
    add_product(&parts[1], real, x, y + bytes);
    add_product(&parts[1], real, x + bytes, y);
    for (int p = 0; p < 2; p++) parts[p].count--;
}

static void pack_parts(const gpr_exact_part *parts, int count, char *at)
{
    for (int p = 0; p < count; p++) {
        const size_t words = (size_t)parts[p].layout.words * sizeof(int64_t);
        const uint64_t tail[GPR_EXACT_ACC_TAIL] = {parts[p].count, parts[p].flags};

        memcpy(at, parts[p].words, words);
        memcpy(at + words, tail, sizeof tail);
        at += words + sizeof tail;
    }
}

/* Adds elements to a packed accumulator; with other ones, the products of both. */
static void add_exactly(const engine_module *m, const char *in, const char *others, int64_t step,
                        uint64_t count, void *packed)
{
    const size_t bytes = gpr_dtype_bytes(m->element);
    gpr_exact_part parts[GPR_EXACT_MOST_PARTS];
    const int part_count = gpr_exact_read_acc(m->acc_kind, m->acc, packed, parts);

    for (uint64_t i = 0; i < count; i++) {
        const char *element = in + i * bytes;

        if (m->skips_nan && is_nan(m->element, element)) continue;
        if (others == NULL)
            add_element(m, element, parts);
        else
            add_pair(m, element, others + (int64_t)i * step, parts);
    }
    for (int p = 0; p < part_count; p++) gpr_exact_carry(&parts[p]);
    pack_parts(parts, part_count, packed);
}

/* Adds positions [first, first + count) of an output's row. */
static void add_exact_output(const engine_launch *op, const output *o, uint64_t first,
                             uint64_t count, void *packed)
{
    enum { MOST = 256 };
    const engine_module *m = op->kernel->module;
    const gpr_layout_params *l = &op->layout;
    const unsigned elements = elements_at_position(op);
    const size_t bytes = gpr_dtype_bytes(m->element);
    const int64_t step =
        m->second == GPR_DTYPE_DEFAULT ? 0 : op->second.step * (int64_t)gpr_dtype_bytes(m->second);
    const char *others =
        m->second == GPR_DTYPE_DEFAULT ? NULL : (const char *)(uintptr_t)op->second.in;
    char gathered[MOST * 16];
    uint64_t held = 0;

    for (uint64_t p = first; p < first + count; p++) {
        uint64_t position = 0;
        output at = *o;
        step_to(op->axes + m->kept, m->reduced, p, &at, &position);
        for (unsigned j = 0; j < elements; j++) {
            if (m->masked && *((const uint8_t *)(uintptr_t)l->mask + at.mask + j) == 0) continue;
            memcpy(gathered + held * bytes,
                   (const char *)op->from + (at.in + (int64_t)j) * (int64_t)bytes, bytes);
            held++;
        }
        if (held + elements > MOST || p + 1 == first + count) {
            add_exactly(m, gathered,
                        others == NULL ? NULL : others + (int64_t)(p + 1 - held) * step, step, held,
                        packed);
            held = 0;
        }
    }
}

static void store_exactly(const engine_launch *op, const output *o, const void *packed)
{
    const engine_module *m = op->kernel->module;

    if (m->result == GPR_DTYPE_DEFAULT)
        memcpy((char *)op->to + o->out * (int64_t)acc_bytes(m), packed, acc_bytes(m));
    else
        finish_result(op, o->out, packed);
}

static void store_exact_row(const engine_launch *op, const output *o)
{
    uint64_t sum[GPR_EXACT_MOST_PARTS * (GPR_EXACT_WORDS + GPR_EXACT_ACC_TAIL)] = {0};

    add_exact_output(op, o, 0, op->rows.n, sum);
    store_exactly(op, o, sum);
}

/* Rows that a block of exact_strided has numbers for. */
static uint64_t most_strip_rows(const engine_launch *op)
{
    return gpr_strip_rows(GPR_MOST_STRIP_BYTES,
                          (unsigned)gpr_dtype_bytes(op->kernel->module->element),
                          op->kernel->block);
}

static void run_exact_block(const engine_launch *op, uint64_t row, uint32_t block)
{
    const engine_module *m = op->kernel->module;
    const uint64_t width = outputs_of_row(op);
    uint64_t first = 0, count = 0;
    uint32_t *ticket = NULL;

    share_of(op->rows.n, block, op->rows.blocks, &first, &count);
    if (op->rows.blocks > 1) {
        ticket =
            (uint32_t *)(uintptr_t)op->scratch.tickets + row % op->layout.slots * slot_tickets(op);
        ++*ticket;
    }
    for (uint64_t k = 0; k < width; k++) {
        const output o = output_at(op, row, k);
        uint64_t own[GPR_EXACT_MOST_PARTS * (GPR_EXACT_WORDS + GPR_EXACT_ACC_TAIL)] = {0};
        char *total = ticket != NULL ? (char *)(ticket + GPR_COUNTER_TICKETS) + k * acc_bytes(m)
                                     : (char *)own;
        if (!o.exists) continue;
        add_exact_output(op, &o, first, count, total);
        if (ticket == NULL || *ticket == op->rows.blocks) store_exactly(op, &o, total);
    }
    if (ticket != NULL && *ticket == op->rows.blocks)
        memset(ticket, 0, slot_tickets(op) * sizeof *ticket);
}

/* ---------------------------------------------------------------- several reductions --------- */

/* What a block of kernel `several` reads: a share of a row, or of a piece of it. */
typedef struct share {
    uint64_t row, block; /* of all blocks of the row */
    const char *in;
    uint64_t count, position;
} share;

/* Whether a member is the first one with its accumulator. */
static int makes_accumulator(const engine_module *m, unsigned i)
{
    for (unsigned j = 0; j < i; j++) {
        if (m->members[j].group == m->members[i].group) return 0;
    }
    return 1;
}

static int is_exact_member(const member *of)
{
    return of->module.acc_kind == GPR_ACC_EXACT;
}

/* Makes results of a row's accumulator: one for each member of the group. */
static void store_members(const engine_launch *op, unsigned group, uint64_t row, const void *packed)
{
    const engine_module *m = op->kernel->module;
    const gpr_several_params *p = &op->several;

    for (unsigned i = 0; i < m->member_count; i++) {
        const engine_kernel as = {.module = &m->members[i].module};
        const engine_launch one = {.kernel = &as,
                                   .to = (uintptr_t)p->out[m->members[i].place],
                                   .layout = {.elements = p->total},
                                   .finalize = p->finalize};
        if (m->members[i].group == group) finish_result(&one, (int64_t)row * p->out_step, packed);
    }
}

/* Words of 8 bytes of a block's partial: of a fold or of a sum by pairs, or of one by bins. */
static uint64_t partial_words(const member *of)
{
    const engine_module *m = &of->module;

    if (of->is_pair) return gpr_partial_words(gpr_pair_bytes(m->skips_nan));
    return is_exact_member(of) ? 0 : gpr_partial_words(acc_bytes(m));
}
static uint64_t limb_words(const member *of)
{
    const engine_module *m = &of->module;

    if (!is_exact_member(of) || of->is_pair) return 0;
    return gpr_partial_words(gpr_exact_partial_bytes(m->acc_kind, m->acc));
}

/* Partials of a group: those of earlier ones, of all blocks, come before. */
static uint64_t *partials_of(const engine_launch *op, unsigned group)
{
    const engine_module *m = op->kernel->module;
    const gpr_several_params *p = &op->several;
    uint64_t words = 0;

    for (unsigned i = 0; i < m->member_count; i++) {
        const member *of = &m->members[i];
        if (of->group < group && makes_accumulator(m, i)) words += partial_words(of);
    }
    return (uint64_t *)(uintptr_t)p->partials + gpr_partials_of(p->rows * p->all_blocks) * words;
}

/* A block's part of the exact sum, added to the row's counters. */
static void add_exact_share(const engine_launch *op, const member *of, const share *part)
{
    const engine_module *m = &of->module;
    const gpr_several_params *p = &op->several;
    const uint32_t counters = (uint32_t)gpr_exact_counters(m->acc_kind, m->acc);
    const uint64_t words = of->is_pair ? partial_words(of) : limb_words(of);
    uint64_t *const partials =
        of->is_pair ? partials_of(op, of->group) : (uint64_t *)(uintptr_t)p->limb_partials;
    uint64_t own[GPR_EXACT_MOST_PARTS * (GPR_EXACT_WORDS + GPR_EXACT_ACC_TAIL)] = {0};
    uint32_t *ticket = (uint32_t *)(uintptr_t)p->counters + gpr_exact_tickets(part->row, counters);

    if (p->all_blocks == 1) {
        add_exactly(m, part->in, NULL, 0, part->count, own);
        store_members(op, of->group, part->row, own);
        return;
    }
    /* what is there may be nothing else's */
    memset(partials + (part->row * p->all_blocks + part->block) * words, -1,
           words * sizeof(uint64_t));
    add_exactly(m, part->in, NULL, 0, part->count, ticket + GPR_COUNTER_TICKETS);
    if (++*ticket != p->all_blocks) return;
    store_members(op, of->group, part->row, ticket + GPR_COUNTER_TICKETS);
    memset(ticket, 0, gpr_exact_tickets(1, counters) * sizeof *ticket);
}

static void fold_member_share(const engine_launch *op, const member *of, const share *part)
{
    const engine_kernel as = {.module = &of->module, .stage = FIRST};
    const gpr_several_params *p = &op->several;
    const uint64_t words = gpr_partial_words(acc_bytes(&of->module));
    const gpr_value value = fold_share(&as, part->in, part->count, part->position);
    uint64_t packed[sizeof value / sizeof(uint64_t) + 1] = {0};

    gpr_write_acc(of->module.acc_kind, of->module.acc, &value, packed);
    if (p->all_blocks == 1)
        store_members(op, of->group, part->row, packed);
    else
        memcpy(partials_of(op, of->group) + (part->row * p->all_blocks + part->block) * words,
               packed, words * sizeof *packed);
}

/* The last block of a row combines what all of them have left. */
static void merge_member(const engine_launch *op, const member *of, uint64_t row)
{
    const engine_module *m = &of->module;
    const gpr_several_params *p = &op->several;
    const uint64_t words = gpr_partial_words(acc_bytes(m));
    gpr_value value = identity(m);
    uint8_t packed[sizeof value];

    for (uint64_t block = 0; block < p->all_blocks; block++) {
        const uint64_t *at = partials_of(op, of->group) + (row * p->all_blocks + block) * words;
        value = fold(m, value, gpr_read_acc(m->acc_kind, m->acc, at));
    }
    gpr_write_acc(m->acc_kind, m->acc, &value, packed);
    store_members(op, of->group, row, packed);
}

static const char *run_several(const engine_launch *op)
{
    const engine_module *m = op->kernel->module;
    const gpr_several_params *p = &op->several;
    uint32_t *tickets = (uint32_t *)(uintptr_t)p->tickets;
    int has_folds = 0;

    for (unsigned i = 0; i < m->member_count; i++) has_folds |= !is_exact_member(&m->members[i]);
    for (uint64_t row = 0; row < p->rows && p->all_blocks > 1 && p->first_block == 0; row++) {
        if (tickets[row] != 0) return "tickets that are not zero before a row's first launch";
    }
    for (uint32_t v = 0; v < op->grid; v++) {
        share part = {.row = v / p->blocks, .block = p->first_block + v % p->blocks};
        uint64_t first = 0;
        share_of(p->n, v % p->blocks, p->blocks, &first, &part.count);
        part.position = p->first_position + first;
        part.in =
            (const char *)(uintptr_t)p->in + ((int64_t)part.row * p->row_step + (int64_t)first) *
                                                 (int64_t)gpr_dtype_bytes(m->element);
        for (unsigned i = 0; i < m->member_count; i++) {
            const member *of = &m->members[i];
            if (!makes_accumulator(m, i)) continue;
            if (is_exact_member(of))
                add_exact_share(op, of, &part);
            else
                fold_member_share(op, of, &part);
        }
        if (!has_folds || p->all_blocks == 1 || ++tickets[part.row] != p->all_blocks) continue;
        tickets[part.row] = 0;
        for (unsigned i = 0; i < m->member_count; i++) {
            if (makes_accumulator(m, i) && !is_exact_member(&m->members[i]))
                merge_member(op, &m->members[i], part.row);
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------- a launch ------------------- */

/* Copies results to those of rows that are the same. */
static void run_copies(const engine_launch *op)
{
    const gpr_copy_params *p = &op->copies;
    const size_t bytes = gpr_dtype_bytes(op->kernel->module->result);

    for (uint64_t i = 0; i < p->count; i++) {
        int64_t to = 0, from = 0;
        uint64_t left = i;
        for (uint32_t a = p->axes; a-- > 0; left /= p->axis[a].extent) {
            const int64_t index = (int64_t)(left % p->axis[a].extent);
            to += index * p->axis[a].out;
            from += index * p->axis[a].from;
        }
        if (to != from)
            memcpy((char *)op->to + to * (int64_t)bytes, (char *)op->to + from * (int64_t)bytes,
                   bytes);
    }
}

const char *engine_run(engine_launch *op)
{
    const engine_kernel *f = op->kernel;
    const engine_module *m = f->module;

    if (f->stage == FILL) {
        for (uint64_t i = 0; i < op->count; i++) store(m, op->to, i, identity(m));
        return NULL;
    }
    if (f->stage == FINISH) {
        for (uint64_t i = 0; i < op->layout.count; i++) {
            const output o = output_at(op, i, 0);
            store_result(op, &o, load(m, op->from, i));
        }
        return NULL;
    }
    if (f->stage == COPY) {
        run_copies(op);
        return NULL;
    }
    if (f->shape == SEVERAL) return run_several(op);
    for (uint64_t v = op->rows.first; v < op->rows.first + op->grid; v++) {
        if (op->rows.blocks == 0)
            run_shared_block(op, v);
        else if (is_sum_by_pairs(op))
            run_pairs_block(op, v / op->rows.blocks);
        else if (f->shape == EXACT || f->shape == EXACT_STRIDED)
            run_exact_block(op, v / op->rows.blocks, (uint32_t)(v % op->rows.blocks));
        else if (f->shape == RUN)
            run_block(op, v / op->rows.blocks, (uint32_t)(v % op->rows.blocks));
        else
            run_planned_block(op, v / op->rows.blocks, (uint32_t)(v % op->rows.blocks));
    }
    return NULL;
}

/* ---------------------------------------------------------------- what kernels may do -------- */

static const char *check_array(uintptr_t start, uint64_t count, size_t bytes, size_t alignment,
                               const char *what)
{
    if (start % alignment != 0) return what;
    return driver_find_allocation(start, count * bytes) != NULL ? NULL : what;
}

/* Whether a launch writes over what it reads: its blocks run in any order. */
static int overlaps(uintptr_t a, uint64_t a_bytes, uintptr_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* The alignment of accumulators: of the numbers in them. */
static size_t acc_alignment(const engine_module *m)
{
    const size_t bytes = acc_bytes(m);

    return bytes % 8 == 0 ? 8 : 4;
}

/* Where offsets through `axes` end, beside where they begin. */
static void extend(const gpr_axis *axes, unsigned count, int64_t *low, int64_t *high, size_t member)
{
    for (unsigned a = 0; a < count; a++) {
        const int64_t step = *(const int64_t *)((const char *)&axes[a] + member);
        const int64_t last = axes[a].extent > 0 ? (int64_t)(axes[a].extent - 1) * step : 0;
        *(last < 0 ? low : high) += last;
    }
}

/* Whether all that the layout leads to is live memory. `axes` of it: kept ones, and reduced ones
 * too for what is read. */
static const char *check_reach(const engine_launch *op, uintptr_t start, unsigned axes,
                               size_t member, uint64_t run, size_t bytes, const char *what)
{
    const gpr_axis column = {
        .extent = op->layout.columns, .in = 1, .mask = 1, .out = op->layout.column_out};
    int64_t low = 0, high = 0;

    extend(op->axes, axes, &low, &high, member);
    extend(&column, column.extent > 0, &low, &high, member);
    return check_array(start + (uintptr_t)(low * (int64_t)bytes), (uint64_t)(high - low) + run,
                       bytes, bytes & (0 - bytes),
                       what); /* an accumulator of 24 bytes is aligned to 8 */
}

/* Whether the means that are given lie in live memory. */
static const char *check_means(const engine_launch *op)
{
    const engine_module *m = op->kernel->module;
    const size_t bytes = gpr_dtype_bytes(m->mean);
    const gpr_axis column = {.extent = op->layout.columns, .in = op->given_mean.column};
    int64_t low = 0, high = 0;

    if (m->mean == GPR_DTYPE_DEFAULT || op->given_mean.means == 0) return NULL;
    for (unsigned a = 0; a < m->kept; a++) {
        const gpr_axis kept = {.extent = op->axes[a].extent, .in = op->mean_steps[a]};
        extend(&kept, 1, &low, &high, offsetof(gpr_axis, in));
    }
    extend(&column, column.extent > 0, &low, &high, offsetof(gpr_axis, in));
    return check_array((uintptr_t)op->given_mean.means + (uintptr_t)(low * (int64_t)bytes),
                       (uint64_t)(high - low) + 1, bytes, bytes & (0 - bytes),
                       "kernel reads means outside live memory or unaligned");
}

static const char *check_results(const engine_launch *op)
{
    const engine_module *m = op->kernel->module;
    const size_t bytes = m->result == GPR_DTYPE_DEFAULT ? acc_bytes(m) : gpr_dtype_bytes(m->result);
    const char *wrong = check_means(op);

    if (wrong != NULL) return wrong;
    return check_reach(op, op->to, m->kept, offsetof(gpr_axis, out), 1, bytes,
                       "kernel writes results outside live memory or unaligned");
}

static const char *check_planned(const engine_launch *op)
{
    const engine_kernel *f = op->kernel;
    const engine_module *m = f->module;
    const uint64_t rows = op->rows.count, blocks = op->rows.blocks, width = outputs_of_row(op);
    const unsigned run = f->shape == STRIDED || f->shape == EXACT_STRIDED ? m->item : 1,
                   axes = m->kept + m->reduced;
    const char *wrong = check_results(op);

    if (wrong != NULL) return wrong;
    if (wrong == NULL && m->second != GPR_DTYPE_DEFAULT) {
        const gpr_axis row = {.extent = op->rows.n, .in = op->second.step};
        int64_t low = 0, high = 0;

        extend(&row, 1, &low, &high, offsetof(gpr_axis, in));
        const size_t bytes = gpr_dtype_bytes(m->second);
        wrong = check_array((uintptr_t)(op->second.in + (CUdeviceptr)(low * (int64_t)bytes)),
                            (uint64_t)(high - low) + 1, bytes, bytes & (0 - bytes),
                            "kernel reads a second array outside live memory or unaligned");
        if (wrong != NULL) return wrong;
    }
    if (f->shape == EMPTY) {
        const int is_known = op->layout.elements == 1 && m->acc_kind == GPR_ACC_INDEXED;
        if (op->layout.elements == 0) return NULL;
        if (!is_known) return "results of nothing for rows of something";
        return check_reach(op, op->from, axes, offsetof(gpr_axis, in), 1,
                           gpr_dtype_bytes(m->element), "a row of one element has none");
    }
    wrong =
        check_reach(op, op->from, axes, offsetof(gpr_axis, in), run, gpr_dtype_bytes(m->element),
                    "kernel reads elements outside live memory or unaligned");
    if (wrong == NULL && m->masked)
        wrong = check_reach(op, (uintptr_t)op->layout.mask, axes, offsetof(gpr_axis, mask), run, 1,
                            "kernel reads a mask outside live memory");
    if (wrong != NULL) return wrong;
    if (is_sum_by_pairs(op) && m->result == GPR_DTYPE_DEFAULT)
        return "accumulators of pairs of doubles";
    if (f->shape == ROWS || f->shape == EXACT_ROWS) {
        const uint64_t per_block = rows_of_block(f);
        if (blocks != 0) return "rows that share blocks with blocks per row";
        if (f->shape == EXACT_ROWS &&
            (op->rows.n > (uint64_t)m->lanes * GPR_BIN_ADDS ||
             f->block > gpr_most_exact_rows_block((unsigned)gpr_exact_parts(m->element))))
            return "exact_rows with longer rows or larger blocks than it has room for";
        return op->rows.first + op->grid > (rows + per_block - 1) / per_block
                   ? "grid beyond the rows"
                   : NULL;
    }
    if (blocks == 0) return "no blocks per row";
    if (op->rows.first + op->grid > rows * blocks) return "grid beyond the rows";
    if (f->shape == EXACT_STRIDED && (width == 0 || width > most_strip_rows(op)))
        return "exact_strided with more rows than a block has numbers for";
    if (blocks == 1) return NULL;
    if (f->shape == EXACT || f->shape == EXACT_STRIDED) {
        const uint64_t first = op->rows.first / blocks,
                       last = (op->rows.first + op->grid - 1) / blocks;
        if (last - first >= op->layout.slots)
            return "more rows under way than there are counters for";
        wrong = check_array((uintptr_t)op->scratch.tickets, op->layout.slots * slot_tickets(op), 4,
                            8, "counters outside live memory or unaligned");
        const uint64_t partial = gpr_exact_partial_bytes(m->acc_kind, m->acc);
        if (wrong != NULL || partial == 0) return wrong;
        return check_array((uintptr_t)op->scratch.partials, op->layout.slots * blocks * width,
                           partial, 8, "partials of exact sums outside live memory or unaligned");
    }
    wrong =
        check_array((uintptr_t)op->scratch.partials, rows * blocks * width,
                    is_sum_by_pairs(op) ? gpr_pair_bytes(m->masked || m->skips_nan) : acc_bytes(m),
                    acc_alignment(m), "partials outside live memory or unaligned");
    if (wrong != NULL) return wrong;
    return check_array((uintptr_t)op->scratch.tickets, rows, 4, 4,
                       "tickets outside live memory or unaligned");
}

/* Blocks that wait for each other are resident together, and no cluster is divided. */
static const char *check_kind(const engine_launch *op)
{
    const engine_kernel *f = op->kernel;
    const int waits = (f->row->flags & GPR_COOPERATIVE) != 0 && op->rows.blocks > 1;

    if (op->kind.cooperative != waits) return "cooperative launch of blocks that do not wait";
    if (waits && op->grid % op->rows.blocks != 0)
        return "blocks that wait for others of their row in another launch";
    if (op->kind.cluster > gpr_most_cluster(f->row)) return "larger clusters than the kernel takes";
    if (op->rows.blocks % op->kind.cluster != 0) return "cluster of blocks of two rows";
    return NULL;
}

/* Arrays of a launch of several reductions. */
typedef struct claims {
    struct {
        uintptr_t start;
        uint64_t bytes;
    } of[GPR_MOST_MEMBERS + 5];
    unsigned count;
} claims;

/* Whether an array is live memory that none of those before it shares. */
static const char *claim(claims *all, uintptr_t start, uint64_t count, size_t bytes,
                         size_t alignment, const char *what)
{
    for (unsigned i = 0; i < all->count; i++) {
        if (overlaps(all->of[i].start, all->of[i].bytes, start, count * bytes))
            return "several reductions in memory that overlaps";
    }
    all->of[all->count].start = start;
    all->of[all->count++].bytes = count * bytes;
    return check_array(start, count, bytes, alignment, what);
}

/* Scratch of rows that blocks share, as gpr_several_params has it. */
static const char *check_shared_rows(const engine_launch *op, claims *all)
{
    const engine_module *m = op->kernel->module;
    const gpr_several_params *p = &op->several;
    const uint64_t partials = gpr_partials_of(p->rows * p->all_blocks);
    uint64_t words = 0;
    const member *exact = NULL;
    const char *wrong = NULL;

    for (unsigned i = 0; i < m->member_count; i++) {
        const member *of = &m->members[i];
        if (is_exact_member(of)) exact = of;
        if (makes_accumulator(m, i)) words += partial_words(of);
    }
    wrong = claim(all, (uintptr_t)p->tickets, p->rows, 4, 4, "tickets outside live memory");
    if (wrong == NULL && words != 0)
        wrong = claim(all, (uintptr_t)p->partials, partials * words, 8, 16,
                      "partials outside live memory");
    if (wrong != NULL || exact == NULL) return wrong;
    const int counters = gpr_exact_counters(exact->module.acc_kind, exact->module.acc);
    wrong = claim(all, (uintptr_t)p->counters, gpr_exact_tickets(p->rows, (uint32_t)counters), 4, 8,
                  "counters outside live memory");
    if (wrong == NULL && limb_words(exact) != 0)
        wrong = claim(all, (uintptr_t)p->limb_partials, partials * limb_words(exact), 8, 8,
                      "limb partials outside live memory");
    return wrong;
}

/* Where `rows` things begin that are `step` apart, and how far they reach. */
static uintptr_t reach_of(uintptr_t start, uint64_t rows, int64_t step, size_t bytes,
                          uint64_t *count)
{
    const int64_t last = (int64_t)(rows - 1) * step;

    *count += (uint64_t)(last < 0 ? -last : last);
    return start + (uintptr_t)(last < 0 ? last * (int64_t)bytes : 0);
}

static const char *check_several(const engine_launch *op)
{
    const engine_module *m = op->kernel->module;
    const gpr_several_params *p = &op->several;
    const size_t bytes = gpr_dtype_bytes(m->element);
    uint64_t count = p->n;
    claims all = {.count = 0};
    const char *wrong = NULL;

    if (op->kind.cooperative || op->kind.cluster > 1) return "blocks of `several` do not wait";
    if (p->rows == 0 || p->n == 0 || p->blocks == 0) return "launch over nothing";
    if (op->grid != p->rows * p->blocks) return "another grid than a row's blocks for each row";
    if (p->first_position + p->n > p->total || p->first_block + p->blocks > p->all_blocks)
        return "a piece that is not within its row";
    if (p->rows > 1 && (p->n != p->total || p->blocks != p->all_blocks))
        return "pieces of more than one row";
    const uintptr_t in = reach_of((uintptr_t)p->in, p->rows, p->row_step, bytes, &count);
    wrong = claim(&all, in, count, bytes, bytes, "several reads elements outside live memory");
    for (unsigned i = 0; i < m->member_count && wrong == NULL; i++) {
        const member *of = &m->members[i];
        const size_t each = gpr_dtype_bytes(of->module.result);
        uint64_t results =
            1 + (of->module.finisher == GPR_OP_MINMAX ? p->finalize.output_stride : 0);
        const uintptr_t out =
            reach_of((uintptr_t)p->out[of->place], p->rows, p->out_step, each, &results);
        wrong = claim(&all, out, results, each, each, "several writes results outside live memory");
    }
    if (wrong != NULL || p->all_blocks == 1) return wrong;
    return check_shared_rows(op, &all);
}

/* Axes count all results, which are in live memory; steps to what is copied are those to copies
 * or none. */
static const char *check_copies(const engine_launch *op)
{
    const gpr_copy_params *p = &op->copies;
    const size_t bytes = gpr_dtype_bytes(op->kernel->module->result);
    uint64_t count = 1, reach = 1;
    uintptr_t first = op->to;

    if (p->axes == 0 || p->axes > GPR_MOST_COPY_AXES) return "copies along no axes, or too many";
    for (uint32_t a = 0; a < p->axes; a++) {
        const gpr_copy_axis *axis = &p->axis[a];
        if (axis->from != 0 && axis->from != axis->out) return "copies of results beside others";
        count *= axis->extent;
        first = reach_of(first, axis->extent, axis->out, bytes, &reach);
    }
    if (count != p->count || count == 0) return "another number of copies than axes have results";
    return check_array(first, reach, bytes, bytes, "copies of results outside live memory");
}

const char *engine_check(const engine_launch *op)
{
    const engine_kernel *f = op->kernel;
    const engine_module *m = f->module;
    const size_t bytes = acc_bytes(m), alignment = acc_alignment(m);
    const size_t in_bytes = f->stage == FIRST ? gpr_dtype_bytes(m->element) : bytes;
    const size_t in_alignment = f->stage == FIRST ? in_bytes : alignment;
    const uint64_t rows = op->rows.count, n = op->rows.n, blocks = op->rows.blocks;
    const char *wrong = NULL;

    if (f->stage == FILL) {
        return check_array(op->to, op->count, bytes, alignment,
                           "fill_identity writes outside live memory or unaligned");
    }
    if (f->stage == FINISH) {
        wrong = check_array(op->from, op->layout.count, bytes, alignment,
                            "accumulators outside live memory");
        return wrong != NULL ? wrong : check_results(op);
    }
    if (f->stage == COPY) return check_copies(op);
    if (f->shape == SEVERAL) return check_several(op);
    if (rows == 0) return "launch over nothing";
    wrong = check_kind(op);
    if (wrong != NULL) return wrong;
    if (f->shape != RUN) return check_planned(op);
    if (n == 0) return "launch over nothing";
    wrong = check_array(op->from, rows * n, in_bytes, in_alignment,
                        "kernel reads elements outside live memory or unaligned");
    if (wrong != NULL) return wrong;
    if (blocks == 0) return "no blocks per row";
    if (op->rows.first + op->grid > rows * blocks) return "grid beyond the rows";
    if (f->row->cover == GPR_ONE && blocks != 1)
        return "several blocks for a kernel that is one block";
    if (f->row->cover == GPR_COVER) {
        const uint64_t per_block = (uint64_t)f->block * m->per_thread;
        if (blocks != n / per_block + (n % per_block != 0))
            return "blocks that do not cover the row exactly";
    }
    if (f->row->finish == GPR_TICKET && blocks > 1) {
        wrong = check_array((uintptr_t)op->scratch.partials, rows * blocks, bytes, alignment,
                            "partials outside live memory or unaligned");
        if (wrong == NULL)
            wrong = check_array((uintptr_t)op->scratch.tickets, rows, 4, 4,
                                "tickets outside live memory or unaligned");
        if (wrong != NULL) return wrong;
    }
    const uint64_t results = f->row->finish == GPR_PASSES ? rows * blocks : rows;
    if (overlaps(op->from, rows * n * in_bytes, op->to, results * bytes))
        return "kernel writes over what it reads";
    return check_array(op->to, results, bytes, alignment,
                       "kernel writes results outside live memory or unaligned");
}
