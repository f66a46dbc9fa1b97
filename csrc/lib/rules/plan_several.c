/* Several reductions in one pass: which of them share it, and how it cuts rows into blocks.
 *
 * A member whose bits depend on the order in which elements are folded is in the pass if its own
 * call would be one of fast_stream with the block size and the number of blocks that the pass has:
 * then each thread folds the same elements in the same order. The pass has those that most of these
 * members would have. Other members' bits do not depend on it. */
#include "lib/rules/plan_several.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/integers.h"
#include "lib/base/status.h"
#include "lib/exact/exact.h"
#include "lib/rules/accumulators.h"
#include "lib/rules/plan_grid.h"
#include "shared/exact_format.h"
#include "shared/several_params.h"
#include "shared/tuning.h"

_Static_assert((int)GPR_MOST_SEVERAL == (int)GPR_MOST_MEMBERS, "a launch has every member");

enum {
    OWN_BLOCK = 512,
    SMALL_BLOCK = 256,
    LEAST_BLOCK = 64, /* of rows that are worth more than a warp */
    WARP_ROW_BYTES = 20 << 10,
    WAVES = 2,                     /* that small blocks are at least, one per row */
    THREADS_OF_MANY_PLACES = 2048, /* of a multiprocessor, if it has places for 32 blocks */
    SMALL_ROW_BYTES = 16 << 10,    /* rows up to these have less than two vectors per thread else */
    LEAST_ROW_BYTES = 2048,
    MIN_NAN_CC = 80 /* from here on minima of float32 that may be NaN are an instruction */
};

/* Threads that a multiprocessor holds beside an exact sum: the fewer, the more registers have
 * accumulators; FEWEST have registers for the next tile, too. */
enum { FEWEST = 512, FEW = 768, MANY = GPR_RESIDENT_THREADS };

/* A member's own call. */
typedef struct own_call {
    gpr_rule rule;
    int kernel, is_run; /* rows are runs of memory */
    int is_free;        /* its bits do not depend on the order of elements */
    uint64_t rows, n;
    int64_t row_step, out_step;
    uint32_t block, blocks; /* of fast_stream; 0: cut otherwise */
} own_call;

/* What finding it takes: on the heap, as it is too large for small stacks. */
typedef struct planning {
    gpr_view view;
    gpr_layout layout;
    gpr_plan plan;
} planning;

gpr_status gpr_member_rule(gpr_dtype dtype, const gpr_member *member, gpr_rule *rule, int *kernel)
{
    const gpr_operator op = member->counts_nan ? GPR_OP_COUNT_NONZERO : member->op;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_make_rule(op, dtype, GPR_DTYPE_DEFAULT, rule));
    *kernel = gpr_kernel_for(GPR_KERNEL_auto, rule);
    GPR_TRY(gpr_leave_out(rule, member->counts_nan ? 0 : member->skip_nan, 0));
    gpr_fit_rule(&gpr_kernel_rows[*kernel], rule);
    GPR_TRY(gpr_check_kernel_folds(&gpr_kernel_rows[*kernel], rule));
done:
    return status;
}

/* Whether a fold gives the same bits in any order. Of equal floats a minimum may be a zero of
 * either sign, and of several NaN any, but for float32, of which instructions prefer -0 and make
 * one NaN of all. */
static int is_free_of_order(const gpr_rule *rule, int pieces, int cc)
{
    const int is_float = gpr_kind_of(rule->device_acc) == GPR_KIND_FLOAT;
    const int is_extreme =
        rule->fold == GPR_FOLD_min || rule->fold == GPR_FOLD_max || rule->fold == GPR_FOLD_range;
    const int skips = rule->fold == GPR_FOLD_fmin || rule->fold == GPR_FOLD_fmax;

    switch (rule->acc_kind) {
    case GPR_ACC_EXACT:
    case GPR_ACC_INDEXED: return 1;
    case GPR_ACC_NUMBER:
    case GPR_ACC_RANGE:
        if (!is_float) return 1;
        if (rule->device_acc == GPR_FLOAT32 && (skips || (is_extreme && cc >= MIN_NAN_CC)))
            return 1;
        return pieces && (is_extreme || skips);
    default: return 0;
    }
}

static gpr_status find_own_call(const gpr_request *array, const gpr_member *member, int pieces,
                                const gpr_device_facts *facts, planning *way, own_call *own)
{
    const gpr_layout *layout = &way->layout;
    gpr_status status = GPR_OK;

    *own = (own_call){.kernel = 0};
    GPR_TRY(gpr_member_rule(array->dtype, member, &own->rule, &own->kernel));
    GPR_TRY(gpr_make_view(array, &own->rule, &way->view));
    own->rows = way->view.rows;
    own->n = way->view.n;
    if (own->rows == 0 || own->n == 0) goto done;
    gpr_view_layout(&way->view, NULL, &way->layout);
    /* of rows that are the same, their own calls read one */
    own->is_run = gpr_rows_are_runs(layout) && layout->kept == 1 &&
                  (own->rows == 1 || layout->axes[0].in != 0);
    own->row_step = layout->axes[0].in;
    own->out_step = layout->axes[0].out;
    own->is_free = is_free_of_order(&own->rule, pieces, facts->cc);
    /* host arrays' own calls cut rows in ways of their own */
    if (!own->is_run || own->rule.acc_kind == GPR_ACC_EXACT || pieces) goto done;
    GPR_TRY(gpr_make_plan(own->kernel, &own->rule, layout, 1, array->block_size, array->grid_size,
                          facts, &way->plan));
    if (strcmp(way->plan.variant, "fast_stream") == 0) {
        own->block = way->plan.block;
        own->blocks = way->plan.passes[0].blocks;
    }
done:
    return status;
}

/* Blocks as most of the members have whose bits depend on them. Returns whether there are any. */
static int find_blocks(const own_call *own, int count, gpr_several_plan *plan)
{
    int most = 0;

    for (int i = 0; i < count; i++) {
        int alike = 0;
        if (own[i].is_free || own[i].block == 0) continue;
        for (int j = 0; j < count; j++)
            alike +=
                !own[j].is_free && own[j].block == own[i].block && own[j].blocks == own[i].blocks;
        if (alike <= most) continue;
        most = alike;
        plan->block = own[i].block;
        plan->blocks = own[i].blocks;
    }
    return most > 0;
}

/* Threads of a block. Of many rows each has a small one, which ends and begins beside others that
 * read; a short one is a warp's on GPUs with places for as many blocks. 15 sets of members in rows
 * of 4 to 400 KB took 0.24 to 1.01 of the time of blocks of 256 and 512 on an H200. */
static uint32_t choose_block(const gpr_several_plan *plan, const gpr_device_facts *facts)
{
    const uint64_t row_bytes = plan->n * gpr_dtype_bytes(plan->dtype),
                   threads = (uint64_t)WAVES * facts->multiprocessors * plan->resident;
    const int is_small = plan->resident % OWN_BLOCK != 0 || row_bytes < SMALL_ROW_BYTES,
              is_warps = row_bytes < WARP_ROW_BYTES &&
                         facts->threads_per_multiprocessor >= THREADS_OF_MANY_PLACES;

    for (uint32_t block = is_warps ? GPR_WARP_LANES : LEAST_BLOCK; block <= SMALL_BLOCK; block *= 2)
        if (plan->rows * block >= threads) return block;
    return is_small ? SMALL_BLOCK : OWN_BLOCK;
}

/* Whether a thread's share is too long for a pair without a proof. */
static int is_share_too_long(const gpr_several_plan *plan, uint64_t blocks)
{
    return plan->adds_pairs && gpr_pair_sum_is_float64(plan->dtype) &&
           gpr_most_of_stream(plan->n, gpr_dtype_bytes(plan->dtype), blocks * plan->block) >
               GPR_PAIR_SHARE;
}

/* Blocks where no member's bits depend on them: a wave of them, or a block per row; more where a
 * thread's share would be too long. */
static void choose_blocks(const gpr_request *array, const gpr_device_facts *facts,
                          gpr_several_plan *plan)
{
    const uint64_t bytes = plan->n * gpr_dtype_bytes(plan->dtype);

    plan->block = array->block_size != 0 ? array->block_size : choose_block(plan, facts);
    if (array->grid_size != 0) {
        plan->blocks = array->grid_size;
        return;
    }
    const uint64_t wave = gpr_resident_blocks(facts, plan->resident, plan->block);
    const uint64_t tiles = gpr_divide_up(bytes, (uint64_t)plan->block * GPR_STREAM_BYTES);
    plan->blocks = (uint32_t)gpr_smaller(tiles, gpr_divide_up(wave, plan->rows));
    while (is_share_too_long(plan, plan->blocks)) plan->blocks *= 2;
}

/* Whether an earlier member in the pass has the accumulator of this one. */
static int is_shared(const gpr_several_plan *plan, const own_call *own, int i)
{
    for (int j = 0; j < i; j++) {
        const gpr_rule *a = &own[i].rule, *b = &own[j].rule;
        if ((plan->in_pass >> j & 1) != 0 &&
            plan->members[i].counts_nan == plan->members[j].counts_nan && a->fold == b->fold &&
            a->compute == b->compute && a->device_acc == b->device_acc &&
            a->skip_nan == b->skip_nan)
            return 1;
    }
    return 0;
}

/* Chooses the members of the pass: of exact sums, those that leave out what the first one does, as
 * a row has counters of one. */
static void choose_members(const own_call *own, gpr_several_plan *plan)
{
    const own_call *exact = NULL;

    for (int i = 0; i < plan->count; i++) {
        const int is_exact = own[i].rule.acc_kind == GPR_ACC_EXACT;
        if (!own[i].is_run || own[i].rows != plan->rows || own[i].n != plan->n) continue;
        if (!own[i].is_free && (own[i].block != plan->block || own[i].blocks != plan->blocks ||
                                (uint64_t)plan->block * plan->blocks >= GPR_MANY_THREADS))
            continue;
        if (is_exact && exact != NULL && exact->rule.skip_nan != own[i].rule.skip_nan) continue;
        if (is_exact && is_share_too_long(plan, plan->blocks)) continue;
        if (is_exact) exact = &own[i];
        plan->in_pass |= 1u << i;
    }
}

static void measure_scratch(const own_call *own, gpr_several_plan *plan)
{
    for (int i = 0; i < plan->count; i++) {
        const gpr_rule *rule = &own[i].rule;
        if ((plan->in_pass >> i & 1) == 0 || is_shared(plan, own, i)) continue;
        const int is_exact = rule->acc_kind == GPR_ACC_EXACT;
        if (is_exact && plan->adds_pairs)
            plan->partial_words += gpr_partial_words(gpr_pair_bytes(rule->skip_nan));
        else if (is_exact)
            plan->limb_words =
                gpr_partial_words(gpr_exact_partial_bytes(rule->acc_kind, rule->device_acc));
        else
            plan->partial_words +=
                gpr_partial_words(gpr_acc_bytes(rule->acc_kind, rule->device_acc));
        if (is_exact)
            plan->counters = gpr_exact_tickets(
                plan->rows, (uint32_t)gpr_exact_counters(rule->acc_kind, rule->device_acc));
    }
}

/* The same beside pairs. Of many rows blocks begin and end beside others that read. */
static uint32_t resident_of_pairs(const gpr_several_plan *plan, int positions, int moments)
{
    const size_t bytes = gpr_dtype_bytes(plan->dtype);

    if (plan->rows > 1 && bytes >= 4) return bytes == 8 && positions == 0 ? MANY : FEW;
    if (moments > 0) return FEWEST;
    if (positions > 0 && !gpr_pair_sum_is_float64(plan->dtype)) return FEWEST;
    return bytes == 4 ? FEW : MANY;
}

/* Threads of a multiprocessor for these accumulators, as measured on an H200. */
static uint32_t choose_resident(const own_call *own, const gpr_several_plan *plan)
{
    const size_t bytes = gpr_dtype_bytes(plan->dtype);
    int positions = 0, moments = 0, sums = 0;

    for (int i = 0; i < plan->count; i++) {
        const gpr_acc_kind kind = own[i].rule.acc_kind;
        positions += kind == GPR_ACC_INDEXED;
        moments += kind == GPR_ACC_MOMENTS;
        sums += kind == GPR_ACC_EXACT;
    }
    if (sums == 0) return MANY;
    if (plan->adds_pairs) return resident_of_pairs(plan, positions, moments);
    if (moments > 0) return FEWEST;
    if (positions == 0) return MANY;
    return bytes == 8 ? FEWEST : bytes == 4 ? FEW : MANY;
}

/* The plan of members whose own calls are known. */
static void make_plan(const gpr_request *array, const own_call *own, uint32_t resident,
                      const gpr_device_facts *facts, gpr_several_plan *plan)
{
    for (int i = 0; i < plan->count; i++) {
        plan->results[i] = own[i].rule.result;
        plan->outputs[i] = own[i].rule.outputs;
        if (!own[i].is_run || plan->n != 0) continue;
        plan->rows = own[i].rows;
        plan->n = own[i].n;
        plan->row_step = own[i].row_step;
        plan->out_step = own[i].out_step;
    }
    if (gpr_kind_of(plan->dtype) == GPR_KIND_COMPLEX ||
        plan->n * gpr_dtype_bytes(plan->dtype) < LEAST_ROW_BYTES)
        return;
    plan->adds_pairs = gpr_kind_of(plan->dtype) == GPR_KIND_FLOAT && !facts->slow_float64;
    plan->integer_bins = facts->slow_float64;
    plan->resident = resident != 0 ? resident : choose_resident(own, plan);
    if (!find_blocks(own, plan->count, plan)) choose_blocks(array, facts, plan);
    if (plan->resident < plan->block) plan->resident = plan->block;
    choose_members(own, plan);
    if ((plan->in_pass & (plan->in_pass - 1)) == 0 || plan->rows * plan->blocks > GPR_MAX_GRID)
        plan->in_pass = 0;
    measure_scratch(own, plan);
}

gpr_status gpr_plan_several(const gpr_request *array, const gpr_member *members, int count,
                            int pieces, uint32_t resident, const gpr_device_facts *facts,
                            gpr_several_plan *plan)
{
    own_call own[GPR_MOST_SEVERAL];
    planning *way = NULL;
    int are_known = 1;

    memset(plan, 0, sizeof *plan);
    if (count < 1 || count > GPR_MOST_SEVERAL)
        return gpr_fail(GPR_ERROR_VALUE, "1 to %d reductions share a pass, not %d",
                        (int)GPR_MOST_SEVERAL, count);
    plan->dtype = array->dtype;
    plan->count = count;
    memcpy(plan->members, members, (size_t)count * sizeof *members);
    way = malloc(sizeof *way);
    if (way == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    /* an error is that of a call of its own, which the caller makes then */
    for (int i = 0; i < count && are_known; i++)
        are_known = find_own_call(array, &members[i], pieces, facts, way, &own[i]) == GPR_OK;
    if (are_known) make_plan(array, own, resident, facts, plan);
    free(way);
    return GPR_OK;
}
