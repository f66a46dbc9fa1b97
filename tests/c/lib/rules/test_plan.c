/* Plans of random work keep the promises that launches, kernels and buffers rely on. */
#include <string.h>

#include "check.h"
#include "lib/base/registry.h"
#include "lib/exact/exact.h"
#include "lib/rules/accumulators.h"
#include "lib/rules/plan.h"
#include "lib/rules/plan_costs.h"
#include "shared/tuning.h"

typedef struct work {
    int kernel;
    gpr_rule rule;
    uint64_t rows, n;
    uint32_t block, grid;
    gpr_device_facts facts;
} work;

/* A number up to 2^bits - 1, small ones as likely as large ones; edges of blocks and warps
 * often. */
static uint64_t draw_size(int bits)
{
    const uint64_t base = check_random() >> (64 - check_between(1, bits));

    if (check_between(0, 2) != 0) return base > 0 ? base : 1;
    const uint64_t edge =
        (UINT64_C(1) << check_between(0, bits - 1)) + (uint64_t)check_between(0, 2);
    return edge > 1 ? edge - 1 : 1;
}

static void draw_work(work *w)
{
    int row_bits = (int)check_between(1, 40);

    memset(w, 0, sizeof *w);
    w->kernel = (int)check_between(0, GPR_KERNEL_COUNT - 1);
    const gpr_kernel_row *row = &gpr_kernel_rows[w->kernel];
    /* Not every operator takes every dtype. */
    while (gpr_make_rule((gpr_operator)check_between(0, GPR_OP_COUNT - 1),
                         (gpr_dtype)check_between(0, GPR_DTYPE_COUNT - 1), GPR_DTYPE_DEFAULT,
                         &w->rule) != GPR_OK)
        continue;
    gpr_fit_rule(row, &w->rule);
    w->rows = draw_size(row_bits);
    w->n = draw_size(check_between(0, 1) ? 59 - row_bits : 12);
    if (check_between(0, 1) && row->block_rule != GPR_BLOCK_WARP)
        w->block = 32u << check_between(0, 5);
    if (check_between(0, 3) == 0 && row->cover == GPR_STRIDE) w->grid = (uint32_t)draw_size(20);
    w->facts = (gpr_device_facts){.cc = (int)check_between(75, 130),
                                  .multiprocessors = (uint32_t)check_between(1, 200),
                                  .threads_per_multiprocessor = (uint32_t)check_between(1, 64) * 32,
                                  .slow_float64 = (int)check_between(0, 1)};
}

static const char *describe(const work *w)
{
    static char text[200];

    (void)snprintf(text, sizeof text,
                   "%s, %llu rows of %llu, element %zu bytes, block %u, grid %u, %u x %u threads",
                   gpr_kernel_rows[w->kernel].name, (unsigned long long)w->rows,
                   (unsigned long long)w->n, gpr_dtype_bytes(w->rule.element), w->block, w->grid,
                   w->facts.multiprocessors, w->facts.threads_per_multiprocessor);
    return text;
}

/* Whether a kernel of fast makes an exact sum, in pairs of doubles. */
static int is_sum_by_pairs(const gpr_plan *plan, const gpr_rule *rule)
{
    return rule->acc_kind == GPR_ACC_EXACT && strncmp(plan->variant, "fast_", 5) == 0;
}

static void check_array_plan(const gpr_plan *plan, const gpr_rule *rule, const char *what);

static gpr_status make(const work *w, gpr_plan *plan)
{
    gpr_layout layout;

    gpr_contiguous_layout(w->rows, w->n, &layout);
    return gpr_make_plan(w->kernel, &w->rule, &layout, 1, w->block, w->grid, &w->facts, plan);
}

/* Several passes: each reduces what the one before wrote, the last leaves one value a row,
 * scratch holds what lies between. */
static void check_passes(const work *w, const gpr_plan *plan)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[w->kernel];
    uint64_t needed[2] = {0, 0};

    CHECK(plan->passes[0].n == w->n, "%s", describe(w));
    for (int i = 0; i < plan->pass_count; i++) {
        const gpr_pass *pass = &plan->passes[i];
        const int last = i == plan->pass_count - 1;
        CHECK(pass->blocks >= 1 && pass->grid == w->rows * pass->blocks, "%s: pass %d", describe(w),
              i);
        if (i > 0) CHECK(pass->n == plan->passes[i - 1].blocks, "%s: pass %d", describe(w), i);
        if (row->cover == GPR_COVER) {
            const unsigned __int128 per_block = (unsigned __int128)plan->block * row->per_thread;
            CHECK(pass->blocks * per_block >= pass->n && (pass->blocks - 1) * per_block < pass->n,
                  "%s: pass %d", describe(w), i);
        }
        if (row->finish == GPR_PASSES)
            CHECK((pass->blocks == 1) == last, "%s: pass %d of %d", describe(w), i,
                  plan->pass_count);
        /* Passes write to two halves of scratch in turn; a half is not read and written at once. */
        if (!last && pass->grid > needed[i % 2]) needed[i % 2] = pass->grid;
    }
    if (row->finish == GPR_PASSES) {
        CHECK(plan->partials == needed[0] && plan->more_partials == needed[1], "%s", describe(w));
        CHECK(plan->needs_next == (plan->pass_count > 1) && plan->tickets == 0, "%s", describe(w));
    } else {
        CHECK(plan->pass_count == 1 && plan->more_partials == 0 && !plan->needs_next, "%s",
              describe(w));
    }
}

/* Counters of exact sums: for each row, or each group of `across`, a ticket and a gap of its size,
 * and those of its sums; where they are of floats also a partial of each row for each of its
 * blocks. For no more rows than a bounded memory has room for. */
static void check_exact_scratch(const gpr_plan *plan, const gpr_rule *rule, const char *what)
{
    enum { MOST_BYTES = 64 << 20 };
    const uint64_t blocks = plan->passes[0].blocks;
    const uint64_t counters =
        2 * (1 + plan->width * gpr_exact_counters(rule->acc_kind, rule->device_acc));
    const uint64_t partials =
        blocks * plan->width * gpr_exact_partial_bytes(rule->acc_kind, rule->device_acc);
    const uint64_t bytes = counters * sizeof(uint32_t) + partials;
    const uint64_t room = plan->partials * gpr_acc_bytes(rule->acc_kind, rule->device_acc);

    CHECK(plan->tickets == plan->slots * counters, "%s", what);
    CHECK(room >= plan->slots * partials &&
              room < plan->slots * partials + gpr_acc_bytes(rule->acc_kind, rule->device_acc),
          "%s: %llu partials", what, (unsigned long long)plan->partials);
    CHECK((plan->slots > 0) == (blocks > 1) && plan->slots <= plan->rows, "%s: %u slots", what,
          plan->slots);
    CHECK(plan->slots <= 1 || plan->slots * bytes <= MOST_BYTES, "%s: %u slots", what, plan->slots);
    CHECK(blocks <= 1 || plan->slots == plan->rows || (plan->slots + 1) * bytes > MOST_BYTES,
          "%s: %u slots", what, plan->slots);
}

static void check_finish(const work *w, const gpr_plan *plan)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[w->kernel];
    const gpr_pass *pass = &plan->passes[0];

    CHECK(plan->fill == (row->finish == GPR_ATOMIC), "%s", describe(w));
    CHECK(plan->integer_bins == (w->facts.slow_float64 && w->rule.acc_kind == GPR_ACC_EXACT), "%s",
          describe(w));
    if (row->flags & GPR_SUMS_EXACTLY) {
        check_exact_scratch(plan, &w->rule, describe(w));
    } else if (row->finish == GPR_TICKET && pass->blocks > 1) {
        CHECK(plan->partials == w->rows * pass->blocks && plan->tickets == w->rows, "%s",
              describe(w));
    } else {
        CHECK(plan->tickets == 0, "%s", describe(w));
    }
}

/* Loops need no more blocks than fill the GPU, shared among the rows, nor more than the row has
 * work for; those of fast and exact as many as fill it a few times, so that the last wave is full
 * too. */
static void check_grid(const work *w, const gpr_plan *plan)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[w->kernel];
    const uint32_t threads = (row->flags & GPR_COOPERATIVE) != 0
                                 ? GPR_RESIDENT_THREADS
                                 : w->facts.threads_per_multiprocessor;
    const uint32_t per = threads / plan->block;
    const int fills = row->family == GPR_FAMILY_PLANNER || (row->flags & GPR_SUMS_EXACTLY);
    const uint64_t waves = fills ? 4 : 1;
    const uint64_t resident = waves * w->facts.multiprocessors * (per > 0 ? per : 1);
    const uint64_t blocks = plan->passes[0].blocks;

    if (row->cover == GPR_ONE) CHECK(blocks == 1 && plan->pass_count == 1, "%s", describe(w));
    if (row->cover != GPR_STRIDE) return;
    if (w->grid != 0) {
        CHECK(blocks == w->grid, "%s: %llu blocks", describe(w), (unsigned long long)blocks);
    } else {
        CHECK(blocks == 1 || (blocks - 1) * w->rows < resident, "%s: %llu blocks, %llu fit",
              describe(w), (unsigned long long)blocks, (unsigned long long)resident);
        CHECK(blocks == 1 || (blocks - 1) * plan->block < w->n, "%s: %llu blocks", describe(w),
              (unsigned long long)blocks);
    }
}

/* Blocks that wait for each other are in one launch with all others of their row, and no more than
 * the GPU holds at once: 1024 threads of a multiprocessor, in 16 blocks at most. Clusters are as
 * large as they can be and do not straddle rows. */
static void check_kind(const work *w, const gpr_plan *plan)
{
    enum { THREADS = 1024, PLACES = 16, CLUSTER = 8 };
    const gpr_kernel_row *row = &gpr_kernel_rows[w->kernel];
    const uint64_t blocks = plan->passes[0].blocks;
    const uint32_t places = THREADS / plan->block < PLACES ? THREADS / plan->block : PLACES;
    const uint64_t most = (uint64_t)places * w->facts.multiprocessors;

    if ((row->flags & GPR_COOPERATIVE) == 0) {
        CHECK(!plan->cooperative, "%s", describe(w));
    } else {
        CHECK(plan->cooperative == (blocks > 1), "%s", describe(w));
        if (blocks > 1)
            CHECK(plan->slots >= 1 && plan->slots <= w->rows && plan->slots * blocks <= most &&
                      (plan->slots == w->rows || (plan->slots + 1) * blocks > most),
                  "%s: %u rows of %llu blocks", describe(w), plan->slots,
                  (unsigned long long)blocks);
    }
    if (strcmp(row->name, "cluster") == 0)
        CHECK((plan->cluster == CLUSTER || blocks % (2ull * plan->cluster) != 0 ||
               2ull * plan->cluster > blocks) &&
                  plan->cluster <= CLUSTER && (plan->cluster & (plan->cluster - 1)) == 0 &&
                  blocks % plan->cluster == 0,
              "%s: clusters of %u of %llu blocks", describe(w), plan->cluster,
              (unsigned long long)blocks);
    else
        CHECK(plan->cluster == 1, "%s: clusters of %u", describe(w), plan->cluster);
}

/* Rows that share blocks: lanes are a power of two in a warp, and every row has its own. */
static void check_shared_blocks(const work *w, const gpr_plan *plan)
{
    const uint64_t per_block = (uint64_t)(plan->block / plan->lanes) * plan->per_thread;

    CHECK(plan->lanes >= 1 && plan->lanes <= 32 && (plan->lanes & (plan->lanes - 1)) == 0,
          "%s: %u lanes", describe(w), plan->lanes);
    CHECK(plan->pass_count == 1 && plan->passes[0].blocks == 0 && plan->passes[0].n == w->n, "%s",
          describe(w));
    CHECK(plan->passes[0].grid * per_block >= w->rows &&
              (plan->passes[0].grid - 1) * per_block < w->rows,
          "%s", describe(w));
    CHECK(plan->partials == 0 && plan->more_partials == 0 && plan->tickets == 0 && !plan->fill &&
              !plan->needs_next,
          "%s", describe(w));
    CHECK(w->rows > 1 && w->grid == 0, "%s", describe(w));
}

/* Exact variances of short rows: a block has several of them. */
static void check_short_variances(const work *w, const gpr_plan *plan)
{
    enum { SHORT_BYTES = 2048 };
    const gpr_pass *pass = &plan->passes[0];

    CHECK(w->rule.acc_kind == GPR_ACC_EXACT_MOMENTS && w->grid == 0 && w->rows > 1 &&
              w->n * gpr_dtype_bytes(w->rule.element) <= SHORT_BYTES,
          "%s", describe(w));
    CHECK(plan->width >= 1 && plan->rows == (w->rows + plan->width - 1) / plan->width &&
              plan->pass_count == 1 && pass->grid == plan->rows * pass->blocks,
          "%s: %u across", describe(w), plan->width);
    check_exact_scratch(plan, &w->rule, describe(w));
}

/* What exact_rows relies on: bins that need not be emptied, and warps whose numbers fit shared
 * memory. */
static void check_exact_rows(const gpr_plan *plan, const char *what)
{
    enum { MOST_ADDS = 1024, MOST_BLOCK = 1024, MOST_VECTORS = 4 };

    CHECK(plan->passes[0].n <= (uint64_t)plan->lanes * MOST_ADDS, "%s: %u lanes", what,
          plan->lanes);
    CHECK(plan->block <= MOST_BLOCK, "%s: block %u", what, plan->block);
    CHECK(plan->row_elements == 0 || (plan->row_elements == plan->passes[0].n && plan->lanes == 1 &&
                                      plan->row_elements <= 16),
          "%s: made for %u elements", what, plan->row_elements);
    CHECK(plan->per_thread == 1 || (plan->row_elements != 0 && plan->per_thread <= 4),
          "%s: %u rows a thread", what, plan->per_thread);
    CHECK(plan->item <= MOST_VECTORS && (plan->item & (plan->item - 1)) == 0, "%s: %u vectors",
          what, plan->item);
}

static void test_random_plans_keep_their_promises(int count)
{
    int shared = 0, several = 0, planned = 0;

    for (int i = 0; i < count; i++) {
        work w;
        gpr_plan plan;
        draw_work(&w);
        const gpr_status status = make(&w, &plan);
        if (status != GPR_OK) {
            /* The good reasons left: an old GPU, more blocks than can wait for each other, and more
             * than can be numbered. */
            const gpr_kernel_row *row = &gpr_kernel_rows[w.kernel];
            const uint64_t per_block =
                (uint64_t)(w.block != 0 ? w.block : row->block) * row->per_thread;
            if (w.facts.cc < row->min_cc) {
                CHECK(status == GPR_ERROR_KERNEL &&
                          strstr(gpr_last_error()->message, "needs compute capability") != NULL,
                      "%s: %s", describe(&w), gpr_last_error()->message);
                continue;
            }
            if ((row->flags & GPR_COOPERATIVE) != 0) {
                CHECK(status == GPR_ERROR_VALUE && w.grid != 0 &&
                          strstr(gpr_last_error()->message, "this GPU holds at once") != NULL,
                      "%s: %s", describe(&w), gpr_last_error()->message);
                continue;
            }
            CHECK(status == GPR_ERROR_VALUE &&
                      strstr(gpr_last_error()->message, "can number") != NULL,
                  "%s: %s", describe(&w), gpr_last_error()->message);
            CHECK(w.grid != 0 || w.n / per_block >= UINT32_MAX, "%s: %s", describe(&w),
                  gpr_last_error()->message);
            continue;
        }
        planned++;
        if (strcmp(plan.variant, "exact_moments_strided") == 0) {
            check_short_variances(&w, &plan);
            continue;
        }
        if (strcmp(plan.variant, "fast_empty") == 0) {
            CHECK(w.n == 1 && w.rule.acc_kind == GPR_ACC_INDEXED, "%s", describe(&w));
            CHECK(plan.rows == w.rows && plan.pass_count == 1, "%s", describe(&w));
            continue;
        }
        /* Rows of one element are columns, too. */
        const int are_columns = w.n == 1 && (strcmp(plan.variant, "fast_columns") == 0 ||
                                             strcmp(plan.variant, "fast_few") == 0);
        if (are_columns ||
            (is_sum_by_pairs(&plan, &w.rule) && strcmp(plan.variant, "fast_rows") != 0)) {
            check_array_plan(&plan, &w.rule, describe(&w));
            continue;
        }
        CHECK(plan.kernel == w.kernel && plan.rows == w.rows, "%s", describe(&w));
        CHECK(w.block == 0 || plan.block == w.block, "%s: block %u", describe(&w), plan.block);
        CHECK(gpr_check_block_size(&gpr_kernel_rows[w.kernel], plan.block) == GPR_OK,
              "%s: block %u", describe(&w), plan.block);
        if (strcmp(plan.variant, "fast_rows") == 0 || strcmp(plan.variant, "fast_counted") == 0 ||
            strcmp(plan.variant, "exact_rows") == 0) {
            check_shared_blocks(&w, &plan);
            if (plan.variant[0] == 'e') check_exact_rows(&plan, describe(&w));
            shared++;
            continue;
        }
        CHECK(plan.lanes == 32, "%s: %u lanes", describe(&w), plan.lanes);
        several += plan.pass_count > 2;
        check_passes(&w, &plan);
        check_finish(&w, &plan);
        check_grid(&w, &plan);
        check_kind(&w, &plan);
    }
    /* The draw reaches the corners. */
    CHECK(planned > count / 2 && shared > count / 1000 && several > count / 1000,
          "%d planned, %d shared, %d with many passes", planned, shared, several);
}

/* The same work on the same GPU is the same plan: bits repeat. */
static void test_plans_depend_on_their_arguments_alone(void)
{
    for (int i = 0; i < 1000; i++) {
        work w;
        gpr_plan first, second;
        memset(&first, 0x55, sizeof first);
        memset(&second, 0xaa, sizeof second);
        draw_work(&w);
        if (make(&w, &first) != GPR_OK || make(&w, &second) != GPR_OK) continue;
        CHECK(first.variant == second.variant && first.block == second.block &&
                  first.lanes == second.lanes && first.pass_count == second.pass_count &&
                  first.partials == second.partials && first.tickets == second.tickets,
              "%s", describe(&w));
        for (int j = 0; j < first.pass_count; j++) {
            CHECK(first.passes[j].n == second.passes[j].n &&
                      first.passes[j].blocks == second.passes[j].blocks &&
                      first.passes[j].grid == second.passes[j].grid,
                  "%s", describe(&w));
        }
    }
}

static gpr_status plan_rows(int kernel, const gpr_rule *rule, uint64_t rows, uint64_t n,
                            uint32_t block, uint32_t grid, const gpr_device_facts *facts,
                            gpr_plan *plan)
{
    gpr_layout layout;

    gpr_contiguous_layout(rows, n, &layout);
    return gpr_make_plan(kernel, rule, &layout, 1, block, grid, facts, plan);
}

static void test_what_cannot_be_planned_is_refused(void)
{
    const gpr_device_facts facts = {
        .cc = 80, .multiprocessors = 100, .threads_per_multiprocessor = 2048};
    gpr_rule rule;
    gpr_plan plan;
    int kernel = 0;

    CHECK(gpr_make_rule(GPR_OP_SUM, GPR_FLOAT32, GPR_DTYPE_DEFAULT, &rule) == GPR_OK, "rule");
    CHECK(gpr_find_kernel("sequential", &kernel) == GPR_OK, "kernel");
    CHECK(plan_rows(kernel, &rule, 1, 1000, 48, 0, &facts, &plan) == GPR_ERROR_VALUE,
          "a block of 48 threads for a tree");
    CHECK(plan_rows(kernel, &rule, 1, 1000, 0, 5, &facts, &plan) == GPR_ERROR_VALUE,
          "a grid for a kernel that covers");
    CHECK(strstr(gpr_last_error()->message, "the length decides") != NULL, "%s",
          gpr_last_error()->message);
    CHECK(plan_rows(kernel, &rule, 1, UINT64_C(1) << 60, 32, 0, &facts, &plan) == GPR_ERROR_VALUE,
          "2^54 blocks for a row");
    CHECK(gpr_find_kernel("single_block", &kernel) == GPR_OK, "kernel");
    CHECK(plan_rows(kernel, &rule, 1, 1000, 0, 5, &facts, &plan) == GPR_ERROR_VALUE,
          "a grid for one block");
    CHECK(strstr(gpr_last_error()->message, "one block") != NULL, "%s", gpr_last_error()->message);
    CHECK(gpr_find_kernel("two_kernel", &kernel) == GPR_OK, "kernel");
    CHECK(plan_rows(kernel, &rule, UINT64_C(1) << 40, 8, 0, UINT32_MAX, &facts, &plan) ==
              GPR_ERROR_VALUE,
          "2^72 blocks");
}

/* ---------------------------------------------------------------- layouts -------------------- */

enum { MOST_AXES = 5 };

/* An H200. */
static const gpr_device_facts device = {
    .cc = 90, .multiprocessors = 132, .threads_per_multiprocessor = 2048};

/* Plans an array of float32 (or of another type) at an address that is as aligned as memory ever
 * is. NULL strides: C order. */
static gpr_status plan_array_on(const gpr_device_facts *facts, int kernel, gpr_operator op,
                                gpr_dtype dtype, int ndim, int reduced, const int64_t *shape,
                                const int64_t *strides, const uint8_t *mask,
                                const int64_t *mask_strides, uintptr_t address, gpr_plan *plan)
{
    const gpr_request request = {.op = op,
                                 .dtype = dtype,
                                 .compute = GPR_DTYPE_DEFAULT,
                                 .ndim = ndim,
                                 .reduced = reduced,
                                 .shape = shape,
                                 .strides = strides,
                                 .data = (const void *)address,
                                 .mask = mask,
                                 .mask_strides = mask_strides,
                                 .on_device = 1};
    gpr_layout layout;
    gpr_rule rule;
    gpr_view view;

    CHECK(gpr_make_rule(op, dtype, GPR_DTYPE_DEFAULT, &rule) == GPR_OK &&
              gpr_make_view(&request, &rule, &view) == GPR_OK,
          "%s", gpr_last_error()->message);
    gpr_fit_rule(&gpr_kernel_rows[kernel], &rule);
    gpr_view_layout(&view, NULL, &layout);
    return gpr_make_plan(kernel, &rule, &layout, 1, 0, 0, facts, plan);
}

static gpr_status plan_array(int kernel, gpr_operator op, gpr_dtype dtype, int ndim, int reduced,
                             const int64_t *shape, const int64_t *strides, const uint8_t *mask,
                             const int64_t *mask_strides, uintptr_t address, gpr_plan *plan)
{
    return plan_array_on(&device, kernel, op, dtype, ndim, reduced, shape, strides, mask,
                         mask_strides, address, plan);
}

typedef struct layout_case {
    const char *what, *variant;
    gpr_dtype dtype;
    int ndim, reduced;
    int64_t shape[MOST_AXES],
        strides[MOST_AXES]; /* kept axes first; strides in elements, all 0: C order of that shape */
    uintptr_t address;
    uint32_t item;       /* 0: not looked at */
    uint64_t least_grid; /* of blocks */
} layout_case;

enum { MIBI = 1 << 20, AT = 1 << 12 };

static const layout_case layout_cases[] = {
    {"everything", "fast_stream", GPR_FLOAT32, 1, 1, {MIBI}, {0}, AT, 1, 100},
    {"long rows", "fast_stream", GPR_FLOAT32, 2, 1, {16384, 16384}, {0}, AT, 1, 16384},
    {"long rows with a pitch",
     "fast_stream",
     GPR_FLOAT32,
     2,
     1,
     {16384, 16000},
     {16384, 1},
     AT,
     1,
     16384},
    {"rows of a few", "fast_counted", GPR_FLOAT32, 2, 1, {100000000, 3}, {0}, AT, 4, 90000},
    {"rows of a few anywhere",
     "fast_rows",
     GPR_FLOAT32,
     2,
     1,
     {100000000, 3},
     {0},
     AT + 4,
     1,
     90000},
    {"short rows", "fast_rows", GPR_FLOAT32, 2, 1, {100000000, 9}, {0}, AT, 1, 90000},
    {"two long rows", "fast_stream", GPR_FLOAT32, 2, 1, {3, 100000000}, {0}, AT, 1, 132},
    {"short rows with a pitch",
     "fast_rows",
     GPR_FLOAT32,
     2,
     1,
     {1000000, 256},
     {300, 1},
     AT,
     4,
     1000},
    {"axis 0 of 17 rows anywhere",
     "fast_few",
     GPR_INT16,
     2,
     1,
     {8000001, 17},
     {1, 8000001},
     AT,
     1,
     30000},
    {"axis 0 of 17 aligned rows",
     "fast_columns",
     GPR_INT16,
     2,
     1,
     {8000000, 17},
     {1, 8000000},
     AT,
     8,
     3000},
    {"axis 0 of 25 rows anywhere",
     "fast_strided",
     GPR_FLOAT32,
     2,
     1,
     {8000001, 25},
     {1, 8000001},
     AT,
     1,
     30000},
    {"axis 0 of a matrix",
     "fast_columns",
     GPR_FLOAT32,
     2,
     1,
     {16384, 16384},
     {1, 16384},
     AT,
     4,
     128},
    {"axis 0 of wide rows",
     "fast_few",
     GPR_FLOAT32,
     2,
     1,
     {100000000, 3},
     {1, 100000000},
     AT,
     4,
     10000},
    {"axis 0 of many rows",
     "fast_columns",
     GPR_FLOAT32,
     2,
     1,
     {256, 1000000},
     {1, 256},
     AT,
     4,
     132},
    {"axis 1 of three",
     "fast_columns",
     GPR_FLOAT32,
     3,
     1,
     {512, 1024, 512},
     {524288, 1, 1024},
     AT,
     4,
     512},
    {"axes 0 and 1 of three",
     "fast_columns",
     GPR_FLOAT32,
     3,
     2,
     {1024, 512, 512},
     {1, 524288, 1024},
     AT,
     4,
     132},
    {"columns of bytes", "fast_columns", GPR_UINT8, 2, 1, {4096, 4096}, {1, 4096}, AT, 8, 100},
    {"columns that are not aligned",
     "fast_strided",
     GPR_FLOAT32,
     2,
     1,
     {4096, 4096},
     {1, 4096},
     AT + 4,
     1,
     100},
    {"three columns", "fast_narrow", GPR_FLOAT32, 2, 1, {3, 100000000}, {1, 3}, AT, 4, 132},
    {"255 columns", "fast_narrow", GPR_FLOAT32, 2, 1, {255, 1000000}, {1, 255}, AT, 4, 132},
    {"three columns anywhere",
     "fast_narrow",
     GPR_FLOAT32,
     2,
     1,
     {3, 100000000},
     {1, 3},
     AT + 4,
     4,
     132},
    {"pictures of three colours",
     "fast_narrow",
     GPR_UINT8,
     3,
     1,
     {100, 3, 50000},
     {150000, 1, 3},
     AT,
     0,
     100},
    {"axes 0 and 2 of three",
     "fast_strided",
     GPR_FLOAT32,
     3,
     2,
     {512, 512, 1024},
     {1024, 524288, 1},
     AT,
     4,
     512},
    {"every other element", "fast_strided", GPR_FLOAT32, 1, 1, {MIBI}, {2}, AT, 1, 100},
    {"a repeated element", "fast_strided", GPR_FLOAT32, 1, 1, {MIBI}, {0}, AT, 0, 1},
    {"a few short columns",
     "fast_strided",
     GPR_FLOAT32,
     3,
     1,
     {100000, 7, 3},
     {21, 1, 7},
     AT,
     1,
     132},
};

/* The same for exact sums; `item` is vectors of a tile. */
static const layout_case exact_cases[] = {
    {"everything", "exact", GPR_FLOAT32, 1, 1, {MIBI}, {0}, AT, 1, 100},
    {"a GiB of float64", "exact", GPR_FLOAT64, 1, 1, {128 * MIBI}, {0}, AT, 1, 396},
    {"a GiB of float32", "exact", GPR_FLOAT32, 1, 1, {256 * MIBI}, {0}, AT, 1, 396},
    {"some of float64", "exact", GPR_FLOAT64, 1, 1, {32 * MIBI}, {0}, AT, 1, 396},
    {"a few long rows of float64", "exact", GPR_FLOAT64, 2, 1, {16, 32 * MIBI}, {0}, AT, 1, 384},
    {"long rows", "exact", GPR_FLOAT32, 2, 1, {16384, 16384}, {0}, AT, 1, 16384},
    {"long rows of float16", "fast_stream", GPR_FLOAT16, 2, 1, {16384, 16384}, {0}, AT, 1, 16384},
    {"long rows anywhere", "fast_stream", GPR_FLOAT32, 2, 1, {16384, 16383}, {0}, AT, 1, 16384},
    {"axis 0 of 17 rows", "fast_few", GPR_BFLOAT16, 2, 1, {MIBI, 17}, {1, MIBI}, AT, 1, 1000},
    {"axes 0 and 2 of three, bfloat16",
     "exact_strided",
     GPR_BFLOAT16,
     3,
     2,
     {512, 512, 512},
     {512, 262144, 1},
     AT,
     8,
     512},
    {"rows of a few", "exact_rows", GPR_FLOAT64, 2, 1, {100000000, 3}, {0}, AT, 2, 90000},
    {"short rows", "fast_rows", GPR_FLOAT32, 2, 1, {1000000, 256}, {0}, AT, 4, 31250},
    {"a hundred short rows with a pitch",
     "fast_short",
     GPR_FLOAT32,
     2,
     1,
     {100, 256},
     {300, 1},
     AT,
     4,
     13},
    {"a hundred short rows of few vectors",
     "fast_rows",
     GPR_FLOAT32,
     2,
     1,
     {100, 32},
     {32, 1},
     AT,
     4,
     4},
    {"short columns", "exact_rows", GPR_FLOAT32, 2, 1, {64, 400}, {1, 64}, AT, 4, 32},
    {"more of them", "exact_rows", GPR_BFLOAT16, 2, 1, {6000, 60}, {1, 6000}, AT, 1, 188},
    {"columns too long for lanes", "fast_strided", GPR_FLOAT32, 2, 1, {64, 900}, {1, 64}, AT, 1, 0},
    {"axis 0 of a matrix",
     "fast_columns",
     GPR_FLOAT32,
     2,
     1,
     {16384, 16384},
     {1, 16384},
     AT,
     2,
     384},
    {"axis 0 of wide rows",
     "exact_rows",
     GPR_FLOAT32,
     2,
     1,
     {100000000, 3},
     {1, 100000000},
     AT,
     1,
     90000},
    {"axis 0 of many rows",
     "fast_columns",
     GPR_FLOAT64,
     2,
     1,
     {256, 1000000},
     {1, 256},
     AT,
     2,
     300},
    {"axis 1 of three",
     "exact_rows",
     GPR_FLOAT32,
     3,
     1,
     {512, 1024, 512},
     {524288, 1, 1024},
     AT,
     4,
     2000},
    {"three columns", "fast_narrow", GPR_FLOAT32, 2, 1, {3, 100000000}, {1, 3}, AT, 4, 200},
    {"axes 0 and 2 of three, float64",
     "fast_strided",
     GPR_FLOAT64,
     3,
     2,
     {512, 512, 1024},
     {1024, 524288, 1},
     AT,
     2,
     512},
    {"axes 0 and 2 of three",
     "fast_strided",
     GPR_FLOAT32,
     3,
     2,
     {512, 512, 1024},
     {1024, 524288, 1},
     AT,
     4,
     512},
    {"many rows of axes 0 and 2",
     "exact_rows",
     GPR_FLOAT64,
     3,
     2,
     {20000, 9, 99},
     {99, 1980000, 1},
     AT,
     0,
     100},
    {"rows of every other element",
     "exact_rows",
     GPR_FLOAT16,
     2,
     1,
     {80000, 455},
     {910, 2},
     AT,
     0,
     100},
    {"every other element", "fast_strided", GPR_FLOAT32, 1, 1, {MIBI}, {2}, AT, 1, 100},
    {"bytes backwards", "exact", GPR_INT8, 1, 1, {MIBI}, {-1}, AT + MIBI, 1, 10},
};

static void check_cases(int kernel, const layout_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const layout_case *c = &cases[i];
        int64_t strides[MOST_AXES];
        int plain = strcmp(c->what, "a repeated element") != 0;
        gpr_plan plan;
        for (int a = 0; a < c->ndim; a++) {
            strides[a] = c->strides[a] * (int64_t)gpr_dtype_bytes(c->dtype);
            plain = plain && c->strides[a] == 0;
        }
        const gpr_status status =
            plan_array(kernel, GPR_OP_SUM, c->dtype, c->ndim, c->reduced, c->shape,
                       plain ? NULL : strides, NULL, NULL, c->address, &plan);
        CHECK(status == GPR_OK, "%s: %s", c->what, gpr_last_error()->message);
        if (status != GPR_OK) continue;
        CHECK(strcmp(plan.variant, c->variant) == 0, "%s: %s", c->what, plan.variant);
        CHECK(c->item == 0 || plan.item == c->item, "%s: items of %u", c->what, plan.item);
        CHECK(plan.passes[0].grid >= c->least_grid, "%s: %llu blocks", c->what,
              (unsigned long long)plan.passes[0].grid);
    }
}

static void test_each_layout_gets_the_kernel_that_reads_it_best(void)
{
    check_cases(GPR_KERNEL_auto, layout_cases, sizeof layout_cases / sizeof layout_cases[0]);
    check_cases(GPR_KERNEL_exact, exact_cases, sizeof exact_cases / sizeof exact_cases[0]);
}

/* Blocks share columns only as far as their partials are few beside the rows that each of them
 * reads. */
static void test_strips_of_short_columns_leave_few_partials_a_thread(void)
{
    enum { FEW = 4, PARTIAL_ROWS = 2 };
    static const gpr_dtype dtypes[] = {GPR_UINT8, GPR_FLOAT16, GPR_FLOAT32, GPR_INT64,
                                       GPR_COMPLEX128};
    static const gpr_operator operators[] = {GPR_OP_PROD, GPR_OP_COUNT_NONZERO, GPR_OP_MAX,
                                             GPR_OP_ARGMAX};
    int split = 0;

    for (int i = 0; i < 4000; i++) {
        const gpr_dtype dtype = dtypes[check_between(0, sizeof dtypes / sizeof *dtypes - 1)];
        const gpr_operator op =
            operators[check_between(0, sizeof operators / sizeof *operators - 1)];
        const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype),
                      columns = 64 * (int64_t)check_between(8, 1000);
        const int64_t shape[2] = {columns, (int64_t)check_between(1, 40000)},
                      strides[2] = {bytes, columns * bytes};
        gpr_plan plan;

        CHECK(plan_array(GPR_KERNEL_fast, op, dtype, 2, 1, shape, strides, NULL, NULL, AT, &plan) ==
                  GPR_OK,
              "%s", gpr_last_error()->message);
        if (strcmp(plan.variant, "fast_columns") != 0) continue;
        const uint64_t blocks = plan.passes[0].blocks, down = plan.block / plan.width;
        const uint64_t partials = blocks > 1 ? (blocks + down - 1) / down : 0;
        const uint64_t each = ((uint64_t)shape[1] + blocks * down - 1) / (blocks * down);
        CHECK(partials <= FEW || PARTIAL_ROWS * partials <= each,
              "%s of %s, %lld columns of %lld: %llu partials a thread, %llu rows",
              gpr_operator_name(op), gpr_dtype_name(dtype), (long long)columns, (long long)shape[1],
              (unsigned long long)partials, (unsigned long long)each);
        split += blocks > 1;
    }
    CHECK(split > 100, "%d plans of several blocks a strip", split);
}

/* Where all blocks share a row, none of those that run at once has much more work than the others.
 * */
static void test_blocks_share_the_tiles_of_an_exact_sum_evenly(void)
{
    /* elements; blocks of a multiprocessor */
    enum { TILE = 4096, MOST_EACH = 3, MOST_TILES = 1 << 16, PAIRED = 1 << 16 };
    static const struct {
        uint64_t tiles, blocks;
    } cases[] = {{17, 17},    {100, 100},  {256, 256},  {512, 264},
                 {1024, 264}, {1188, 396}, {4096, 396}, {65536, 396}};
    const uint64_t all = device.multiprocessors;
    gpr_plan plan;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t n = (int64_t)cases[i].tiles * TILE;
        CHECK(plan_array(GPR_KERNEL_exact, GPR_OP_SUM, GPR_FLOAT32, 1, 1, &n, NULL, NULL, NULL, AT,
                         &plan) == GPR_OK &&
                  plan.passes[0].blocks == cases[i].blocks,
              "%llu tiles: %llu blocks", (unsigned long long)cases[i].tiles,
              (unsigned long long)plan.passes[0].blocks);
    }
    for (int i = 0; i < 1000; i++) {
        const int64_t n = (int64_t)check_between(PAIRED + 1, (uint64_t)MOST_TILES * TILE);
        const uint64_t tiles = ((uint64_t)n + TILE - 1) / TILE;
        CHECK(plan_array(GPR_KERNEL_exact, GPR_OP_SUM, GPR_FLOAT32, 1, 1, &n, NULL, NULL, NULL, AT,
                         &plan) == GPR_OK,
              "%s", gpr_last_error()->message);
        const uint64_t blocks = plan.passes[0].blocks, each = (blocks + all - 1) / all;
        /* tiles that a multiprocessor reads */
        const uint64_t time = (tiles + blocks - 1) / blocks * each;
        const uint64_t full = (tiles + MOST_EACH * all - 1) / (MOST_EACH * all) * MOST_EACH;
        CHECK(blocks >= 1 && blocks <= tiles && each <= MOST_EACH && time <= full,
              "%llu tiles: %llu blocks", (unsigned long long)tiles, (unsigned long long)blocks);
    }
}

/* Variances of rows that are runs and of others, and products of two arrays at any step, by
 * blocks that add to one number. */
static void test_exact_moments_and_products_have_kernels_of_their_own(void)
{
    const int64_t rows[2] = {4, MIBI}, apart[2] = {4, 16}, mask[2] = {MIBI, 1}, n = MIBI;
    const int64_t tall[2] = {100000000, 64}, columns[2] = {16, 1600000000};
    const gpr_device_facts facts = {
        .cc = 90, .multiprocessors = 132, .threads_per_multiprocessor = 2048};
    gpr_rule rule = {.fold = GPR_FOLD_exact_products,
                     .acc_kind = GPR_ACC_EXACT_PRODUCTS,
                     .element = GPR_FLOAT32,
                     .second = GPR_FLOAT64,
                     .compute = GPR_FLOAT64,
                     .device_acc = GPR_FLOAT64,
                     .host_acc = GPR_FLOAT64,
                     .result = GPR_FLOAT64,
                     .outputs = 1};
    gpr_layout layout;
    gpr_plan plan;

    for (int op = GPR_OP_VAR; op <= GPR_OP_STD; op++) {
        CHECK(plan_array(GPR_KERNEL_exact, (gpr_operator)op, GPR_FLOAT32, 2, 1, rows, NULL, NULL,
                         NULL, AT, &plan) == GPR_OK &&
                  strcmp(plan.variant, "exact_moments") == 0 && plan.passes[0].blocks > 10 &&
                  plan.slots == 4,
              "%s, %u blocks", plan.variant, plan.passes[0].blocks);
        CHECK(plan.tickets == 4 * (2 + gpr_exact_acc_bytes(GPR_ACC_EXACT_MOMENTS, GPR_FLOAT32) /
                                           sizeof(uint32_t)),
              "%llu counters", (unsigned long long)plan.tickets);
        CHECK(plan_array(GPR_KERNEL_exact, (gpr_operator)op, GPR_FLOAT32, 2, 1, rows, apart, NULL,
                         NULL, AT, &plan) == GPR_OK &&
                  strcmp(plan.variant, "exact_moments_strided") == 0 && plan.width == 4 &&
                  plan.rows == 1 && plan.passes[0].blocks > 10 && plan.slots == 1,
              "%s, %u across, %u blocks", plan.variant, plan.width, plan.passes[0].blocks);
        CHECK(plan_array(GPR_KERNEL_exact, (gpr_operator)op, GPR_FLOAT32, 2, 1, rows, NULL,
                         (const uint8_t *)AT, mask, AT, &plan) == GPR_OK &&
                  strcmp(plan.variant, "exact_moments_strided") == 0 && plan.row_major &&
                  plan.width == 1,
              "%s of masked runs, %u across", plan.variant, plan.width);
    }
    CHECK(plan_array(GPR_KERNEL_exact, GPR_OP_STD, GPR_COMPLEX128, 2, 1, tall, columns, NULL, NULL,
                     AT, &plan) == GPR_OK &&
              plan.width == 8 && !plan.row_major && plan.rows == 12500000 &&
              plan.passes[0].blocks == 1 && plan.slots == 0,
          "%u across, %u blocks", plan.width, plan.passes[0].blocks);
    gpr_contiguous_layout(1, (uint64_t)n, &layout);
    for (int step = -2; step <= 2; step++) {
        layout.axes[1].in = step;
        CHECK(gpr_make_plan(GPR_KERNEL_exact, &rule, &layout, 1, 0, 0, &facts, &plan) == GPR_OK &&
                  strcmp(plan.variant, "exact_dot") == 0 && plan.passes[0].blocks > 100 &&
                  plan.layout.axes[1].in == step,
              "step %d: %s, %u blocks", step, plan.variant, plan.passes[0].blocks);
    }
    CHECK(gpr_make_plan(GPR_KERNEL_exact, &rule, &layout, 1, 96, 7, &facts, &plan) == GPR_OK &&
              plan.block == 96 && plan.passes[0].grid == 7,
          "as asked");
}

/* A few elements a row: a lane takes several rows, so that a block has enough loads in flight. */
static void test_lanes_take_several_rows_where_rows_are_short(void)
{
    const int64_t many[2] = {100000000, 9}, few[2] = {2000, 9};
    gpr_plan plan;

    CHECK(plan_array(GPR_KERNEL_auto, GPR_OP_SUM, GPR_FLOAT32, 2, 1, many, NULL, NULL, NULL, AT,
                     &plan) == GPR_OK &&
              plan.per_thread >= 2,
          "%u rows a lane", plan.per_thread);
    CHECK(plan_array(GPR_KERNEL_auto, GPR_OP_SUM, GPR_FLOAT32, 2, 1, few, NULL, NULL, NULL, AT,
                     &plan) == GPR_OK &&
              plan.per_thread == 1,
          "%u rows a lane", plan.per_thread);
}

/* Windows that begin at each element: neighbouring lanes read nearly the same sectors. Those that
 * follow each other are read by a few lanes each. */
static void test_lanes_have_windows_of_their_own(void)
{
    static const int64_t extents[][2] = {{541285, 12}, {3000000, 20}};
    gpr_plan plan;

    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++) {
        const int64_t step = (int64_t)gpr_dtype_bytes(GPR_INT64),
                      strides[][2] = {{step, step}, {extents[i][1] * step, step}};
        for (int k = 0; k < 2; k++) {
            const gpr_status status = plan_array(GPR_KERNEL_auto, GPR_OP_MAX, GPR_INT64, 2, 1,
                                                 extents[i], strides[k], NULL, NULL, AT, &plan);
            const int is_own = status == GPR_OK && strcmp(plan.variant, "fast_rows") == 0 &&
                               plan.lanes == 1 && plan.row_elements == 0;
            CHECK(is_own == (k == 0), "%lld elements, layout %d: %s, %u lanes",
                  (long long)extents[i][1], k, plan.variant, plan.lanes);
        }
    }
}

/* Masked rows of an odd number of halves are read element by element. Blocks that share rows take
 * turns, so that neighbours in a block read whole sectors there: a block with less would read those
 * of all others. */
static void test_blocks_that_take_turns_read_whole_sectors(void)
{
    static const gpr_dtype dtypes[] = {GPR_FLOAT16, GPR_BFLOAT16};
    const int64_t shape[] = {19263, 11821}, mask[] = {11821, 1};
    gpr_device_facts fast = device;
    gpr_plan plan;

    fast.memory_bytes_per_ns = 4814;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        const gpr_status status =
            plan_array_on(&fast, GPR_KERNEL_exact, GPR_OP_SUM, dtypes[i], 2, 1, shape, NULL,
                          (const uint8_t *)AT, mask, AT, &plan);
        const uint64_t run = plan.block / plan.width * gpr_dtype_bytes(dtypes[i]);

        CHECK(status == GPR_OK && strcmp(plan.variant, "fast_strided") == 0 && plan.item == 1 &&
                  (plan.passes[0].blocks == 1 || run >= GPR_SECTOR_BYTES),
              "%s: %u blocks, runs of %llu bytes", plan.variant, plan.passes[0].blocks,
              (unsigned long long)run);
    }
}

/* A block that has a row of a few rounds reads nothing while it combines: small ones end and begin
 * beside others that read. An array that does not fill the GPU with them is read by large ones. */
static void test_rows_of_a_few_rounds_have_small_blocks(void)
{
    static const struct {
        gpr_operator op;
        gpr_dtype dtype;
        int64_t shape[2];
        int is_small;
    } cases[] = {
        {GPR_OP_ARGMAX, GPR_FLOAT32, {15527, 4322}, 1},
        {GPR_OP_VAR, GPR_FLOAT32, {23274, 4325}, 1},
        {GPR_OP_PROD, GPR_FLOAT64, {16434, 3062}, 1},
        {GPR_OP_SUM, GPR_FLOAT32, {3879, 4325}, 1},
        {GPR_OP_SUM, GPR_BFLOAT16, {11842, 17000}, 1},
        {GPR_OP_ARGMAX, GPR_FLOAT32, {167, 100000}, 0},
        {GPR_OP_VAR, GPR_FLOAT32, {62, 50000}, 0},
    };
    gpr_device_facts fast = device;
    gpr_plan plan;

    fast.memory_bytes_per_ns = 4814;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int kernel = cases[i].op == GPR_OP_SUM ? GPR_KERNEL_exact : GPR_KERNEL_fast;
        const gpr_status status = plan_array_on(&fast, kernel, cases[i].op, cases[i].dtype, 2, 1,
                                                cases[i].shape, NULL, NULL, NULL, AT, &plan);

        CHECK(status == GPR_OK && plan.passes[0].blocks == 1 &&
                  (plan.block <= 128) == cases[i].is_small,
              "case %zu: %s, %u blocks of %u threads a row", i, plan.variant, plan.passes[0].blocks,
              plan.block);
    }
}

/* Whole vectors, and one per lane where lanes take several rows; or rows one after another that
 * shared memory has room for. */
static void check_rows_plan(const gpr_plan *plan, uint64_t bytes, const char *what)
{
    enum { ROOM = 32 << 10 };
    const gpr_layout *layout = &plan->layout;
    const uint64_t rows = (uint64_t)(plan->block / plan->lanes) * plan->per_thread;

    if (plan->row_elements != 0) {
        CHECK(plan->item == 1 && layout->n <= plan->row_elements && layout->kept == 1 &&
                  (layout->rows == 1 || layout->axes[0].in == (int64_t)layout->n) &&
                  rows * plan->row_elements * bytes <= ROOM,
              "%s: room for %u elements", what, plan->row_elements);
    } else if (plan->item > 1) {
        CHECK(plan->item * bytes == 16 && layout->aligned == 16 && layout->n % plan->item == 0 &&
                  (plan->per_thread == 1 || layout->n <= (uint64_t)plan->lanes * plan->item),
              "%s: items of %u, %u lanes", what, plan->item, plan->lanes);
        for (int a = 0; a < layout->kept; a++)
            CHECK(layout->axes[a].extent == 1 || llabs(layout->axes[a].in) % plan->item == 0,
                  "%s: a row that begins within a vector", what);
    } else {
        CHECK(plan->per_thread == 1, "%s: %u rows", what, plan->per_thread);
    }
}

/* A block per row, which reads it in one round; or whole vectors at multiples of one. */
static void check_short_plan(const gpr_plan *plan, uint64_t bytes, const char *what)
{
    enum { THREAD_BYTES = 64 };
    const gpr_layout *layout = &plan->layout;
    const int last = layout->kept + layout->reduced - 1;

    CHECK(plan->passes[0].blocks == 1 && plan->rows == layout->rows && bytes <= 8 &&
              layout->n * bytes <= (uint64_t)plan->block * THREAD_BYTES,
          "%s: %u threads for %llu elements", what, plan->block, (unsigned long long)layout->n);
    CHECK(!layout->masked && (layout->n == 1 || layout->axes[last].in == 1), "%s: no run", what);
    if (plan->item == 1) return;
    CHECK(plan->item * bytes == 16 && layout->aligned == 16 && layout->n % plan->item == 0,
          "%s: items of %u", what, plan->item);
    for (int a = 0; a < layout->kept; a++)
        CHECK(layout->axes[a].extent == 1 || llabs(layout->axes[a].in) % plan->item == 0,
              "%s: a row that begins within a vector", what);
}

/* The most elements that a thread of a kernel of fast adds to one accumulator. */
static uint64_t elements_of_thread(const gpr_plan *plan)
{
    const uint64_t n = plan->layout.n, blocks = plan->passes[0].blocks;
    const char *variant = plan->variant;
    uint64_t threads = blocks * (plan->block / plan->width), of_item = 1;

    if (strcmp(variant, "fast_few") == 0) return n;
    if (strcmp(variant, "fast_rows") == 0) threads = plan->lanes;
    if (strcmp(variant, "fast_stream") == 0) threads = blocks * plan->block, of_item = 8;
    if (strcmp(variant, "fast_short") == 0) threads = plan->block, of_item = 8;
    if (strcmp(variant, "fast_strided") == 0) of_item = plan->item;
    if (strcmp(variant, "fast_narrow") == 0) /* whose items are of several columns */
        return (n * plan->column.extent / plan->item + blocks * plan->width - 1) /
               (blocks * plan->width);
    return (n + threads * of_item - 1) / (threads * of_item) * of_item;
}

/* Which layout gets which kernel may change; what kernels rely on may not. */
static void check_array_plan(const gpr_plan *plan, const gpr_rule *rule, const char *what)
{
    const gpr_pass *pass = &plan->passes[0];
    const int is_by_pairs = is_sum_by_pairs(plan, rule);
    const uint64_t exact_acc = gpr_acc_bytes(rule->acc_kind, rule->device_acc),
                   acc = is_by_pairs
                             ? (uint64_t)gpr_pair_bytes(plan->layout.masked || rule->skip_nan)
                             : exact_acc,
                   bytes = gpr_dtype_bytes(rule->element);
    uint64_t width = 1;

    CHECK(plan->pass_count == 1 && plan->layout.kept >= 1 && plan->layout.reduced >= 1, "%s", what);
    CHECK(plan->item >= 1 && (plan->item & (plan->item - 1)) == 0, "%s: item %u", what, plan->item);
    CHECK(plan->kernel == GPR_KERNEL_exact || plan->item * bytes <= 16, "%s: item %u", what,
          plan->item);
    if (strcmp(plan->variant, "fast_columns") == 0) {
        width = (uint64_t)plan->width * plan->item;
        CHECK(plan->width >= 1 && plan->width <= plan->block, "%s: %u across", what, plan->width);
        CHECK(plan->column.in == 1 && plan->column.extent % plan->item == 0, "%s", what);
        if (plan->strips == 0) { /* on in the next groups */
            CHECK(plan->rows * width >= plan->layout.rows &&
                      (plan->rows - 1) * width < plan->layout.rows && width > plan->column.extent,
                  "%s", what);
        } else {
            CHECK(plan->strips * width >= plan->column.extent &&
                      (plan->strips - 1) * width < plan->column.extent,
                  "%s", what);
        }
        CHECK(plan->item == 1 || plan->item * acc <= (pass->n <= 4 ? 128 : 64),
              "%s: %u accumulators a thread", what, plan->item);
    } else if (strcmp(plan->variant, "fast_narrow") == 0) {
        width = plan->column.extent;
        CHECK(plan->width >= 1 && plan->width <= plan->block, "%s: %u threads", what, plan->width);
        CHECK((uint64_t)plan->width * plan->item % width == 0, "%s: %u threads", what, plan->width);
        CHECK((uint64_t)plan->block * plan->item * acc <= 40 << 10, "%s: block %u", what,
              plan->block);
    } else if (strcmp(plan->variant, "exact_strided") == 0 ||
               strcmp(plan->variant, "exact_moments_strided") == 0) {
        const uint64_t some = 512 / bytes > 32 ? 512 / bytes : 32,
                       few = 128 / bytes < 32 ? 128 / bytes : 32;
        const uint64_t strip = rule->acc_kind == GPR_ACC_EXACT_MOMENTS ? few : some;
        CHECK(plan->width >= 1 && plan->width <= strip && plan->width <= plan->block,
              "%s: %u across", what, plan->width);
        CHECK(plan->rows * plan->width >= plan->layout.rows &&
                  (plan->rows - 1) * plan->width < plan->layout.rows,
              "%s", what);
        CHECK(pass->n * plan->item == plan->layout.n && pass->grid == plan->rows * pass->blocks,
              "%s", what);
        CHECK(plan->item == 1 || (plan->row_major && rule->acc_kind == GPR_ACC_EXACT),
              "%s: items of %u", what, plan->item);
    } else if (strcmp(plan->variant, "exact_rows") == 0) {
        check_exact_rows(plan, what);
    } else if (strcmp(plan->variant, "fast_few") == 0) {
        const uint64_t strip = (uint64_t)plan->block * plan->item * plan->per_thread;
        const uint64_t room = pass->n <= 8 ? pass->n : (pass->n + 3) / 4 * 4;
        CHECK(plan->row_elements == room && room <= 24 && pass->blocks == 1 &&
                  plan->layout.reduced == 1 && !plan->layout.masked,
              "%s: %u elements", what, plan->row_elements);
        CHECK(pass->n <= 8 || plan->item * bytes <= 8, "%s: items of %u", what, plan->item);
        CHECK(plan->column.in == 1 && plan->column.extent % plan->item == 0 &&
                  plan->strips * strip >= plan->column.extent &&
                  (plan->strips - 1) * strip < plan->column.extent,
              "%s", what);
    } else if (strcmp(plan->variant, "fast_rows") == 0) {
        check_rows_plan(plan, bytes, what);
    } else if (strcmp(plan->variant, "fast_short") == 0) {
        check_short_plan(plan, bytes, what);
    } else if (strcmp(plan->variant, "fast_strided") == 0) {
        width = plan->width;
        CHECK(plan->width >= 1 && plan->width <= plan->block, "%s: %u across", what, plan->width);
        CHECK(plan->rows * width >= plan->layout.rows &&
                  (plan->rows - 1) * width < plan->layout.rows,
              "%s", what);
        CHECK(pass->n * plan->item == plan->layout.n, "%s", what);
        const uint32_t height = plan->block / plan->width;
        CHECK(plan->row_major != GPR_ROW_BY_LANES ||
                  (plan->block % GPR_WARP_LANES == 0 &&
                   (height <= GPR_WARP_LANES ? (height & (height - 1)) == 0
                                             : height % GPR_WARP_LANES == 0)),
              "%s: %u threads of a row, blocks of %u", what, height, plan->block);
    }
    if (is_by_pairs) {
        const uint64_t partials = pass->blocks > 1 ? plan->rows * pass->blocks * width : 0;
        /* Sums of float16 need no counters: they are pairs always. */
        const uint64_t counters = width * gpr_exact_counters(rule->acc_kind, rule->device_acc);
        const uint64_t tickets = rule->element == GPR_FLOAT16
                                     ? plan->rows
                                     : gpr_exact_tickets(plan->rows, (uint32_t)counters);
        CHECK(plan->slots == 0, "%s", what);
        /* Sums of float16 are not proved: 40 bits of each, and 13 of their number, are 53. */
        CHECK(rule->element != GPR_FLOAT16 || elements_of_thread(plan) <= 8192,
              "%s: a thread adds %llu", what, (unsigned long long)elements_of_thread(plan));
        CHECK(strcmp(plan->variant, "fast_few") != 0 || plan->item * plan->per_thread <= 32,
              "%s: a thread has more columns than bits", what);
        CHECK(plan->partials == (partials * acc + exact_acc - 1) / exact_acc &&
                  plan->tickets == (pass->blocks > 1 ? tickets : 0),
              "%s", what);
        CHECK(plan->tickets * sizeof(uint32_t) <= 64 << 20, "%s", what);
    } else if (plan->kernel == GPR_KERNEL_exact) {
        check_exact_scratch(plan, rule, what);
        for (int a = 1; a < plan->layout.kept; a++)
            CHECK(llabs(plan->layout.axes[a - 1].in) >= llabs(plan->layout.axes[a].in),
                  "%s: the nearest rows come last", what);
    } else if (pass->blocks > 1) {
        CHECK(plan->partials == plan->rows * pass->blocks * width && plan->tickets == plan->rows,
              "%s", what);
        CHECK(pass->blocks <= pass->n * (width > 0 ? width : 1), "%s: %u blocks", what,
              pass->blocks);
    } else {
        CHECK(plan->partials == 0 && plan->tickets == 0, "%s", what);
    }
}

static void test_random_layouts_keep_the_kernels_promises(int count)
{
    enum { VARIANTS = 12, AGAIN = 8, WIDE = 1 << 18, FEW = 40 };
    static const char *const variants[VARIANTS] = {
        "fast_stream",   "fast_short",   "fast_rows",     "fast_columns",
        "fast_narrow",   "fast_strided", "fast_few",      "exact",
        "exact_strided", "exact_rows",   "exact_moments", "exact_moments_strided"};
    /* from there an array may go either way and leave no address space */
    const uintptr_t middle = UINTPTR_MAX / 4 + 1;
    int seen[VARIANTS] = {0};

    for (int i = 0; i < count; i++) {
        const int kernel = check_between(0, 3) == 0 ? GPR_KERNEL_exact : GPR_KERNEL_auto;
        gpr_operator op = kernel != GPR_KERNEL_exact
                              ? (gpr_operator)check_between(0, GPR_OP_COUNT - 1)
                          : check_between(0, 1) == 0 ? GPR_OP_MEAN
                                                     : GPR_OP_VAR;
        const gpr_dtype dtype = (gpr_dtype)check_between(0, GPR_DTYPE_COUNT - 1);
        const int ndim = (int)check_between(1, MOST_AXES), reduced = (int)check_between(1, ndim);
        const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype);
        int64_t shape[MOST_AXES], strides[MOST_AXES], mask_strides[MOST_AXES], step = bytes,
                                                                               mask_step = 1;
        const int is_wide = check_between(0, 3) == 0; /* along what varies fastest, of few rows */
        const int masked = !is_wide && check_between(0, 4) == 0, shift = (int)check_between(0, 4);
        const uintptr_t address = middle + (uintptr_t)(check_between(0, 16) * bytes);
        char what[200];
        gpr_rule rule;
        gpr_plan plan, again;

        while (gpr_make_rule(op, dtype, GPR_DTYPE_DEFAULT, &rule) != GPR_OK) op = GPR_OP_SUM;
        for (int a = 0; a < ndim; a++)
            shape[a] = is_wide ? (int64_t)check_between(1, FEW) : (int64_t)draw_size(10);
        for (int k = 0; k < ndim; k++) {
            const int a = (int)((k + (unsigned)shift) % (unsigned)ndim);
            if (is_wide && k == 0) shape[a] = WIDE + (int64_t)check_between(0, WIDE);
            strides[a] = check_between(0, 8) == 0 ? 0 : step;
            mask_strides[a] = check_between(0, 8) == 0 ? 0 : mask_step;
            step *= shape[a];
            mask_step *= shape[a];
            if (check_between(0, 4) == 0) step += bytes * check_between(1, 9);
            if (check_between(0, 4) == 0) strides[a] = -strides[a];
        }
        (void)snprintf(what, sizeof what, "%s %s of %lld %lld %lld ndim %d reduced %d masked %d",
                       gpr_operator_name(op), gpr_dtype_name(dtype), (long long)shape[0],
                       (long long)(ndim > 1 ? shape[1] : 0), (long long)(ndim > 2 ? shape[2] : 0),
                       ndim, reduced, masked);
        gpr_fit_rule(&gpr_kernel_rows[kernel], &rule);
        if (plan_array(kernel, op, dtype, ndim, reduced, shape, strides,
                       masked ? (const uint8_t *)(uintptr_t)AT : NULL, masked ? mask_strides : NULL,
                       address, &plan) != GPR_OK) {
            CHECK(strstr(gpr_last_error()->message, "can number") != NULL, "%s: %s", what,
                  gpr_last_error()->message);
            continue;
        }
        check_array_plan(&plan, &rule, what);
        if (i % AGAIN == 0) {
            (void)plan_array(kernel, op, dtype, ndim, reduced, shape, strides,
                             masked ? (const uint8_t *)(uintptr_t)AT : NULL,
                             masked ? mask_strides : NULL, address, &again);
            CHECK(again.variant == plan.variant && again.block == plan.block &&
                      again.item == plan.item && again.width == plan.width &&
                      again.passes[0].blocks == plan.passes[0].blocks,
                  "%s: another plan for the same call", what);
        }
        for (int v = 0; v < VARIANTS; v++) seen[v] += strcmp(plan.variant, variants[v]) == 0;
    }
    for (int v = 0; v < VARIANTS; v++)
        CHECK(seen[v] > count / 2000, "%s was drawn %d times", variants[v], seen[v]);
}

/* Random device arrays in C order: the plan is the cheapest of the ways that are priced, each can
 * be chosen by its number, and measured costs replace estimates. */
static void test_each_way_has_a_price_and_can_be_asked_for(void)
{
    enum { ARRAYS = 300, MOST_WAYS = 1024, WAYS_TRIED = 20 };
    static double ns[MOST_WAYS], slower[MOST_WAYS];

    for (int i = 0; i < ARRAYS; i++) {
        gpr_device_facts facts = device;
        gpr_layout layout;
        gpr_rule rule;
        gpr_plan chosen, asked;
        uint32_t count = 0, cheapest = 0;

        CHECK(gpr_make_rule(GPR_OP_MAX, GPR_FLOAT32, GPR_DTYPE_DEFAULT, &rule) == GPR_OK, "rule");
        gpr_fit_rule(&gpr_kernel_rows[GPR_KERNEL_fast], &rule);
        gpr_contiguous_layout(1u << check_between(0, 20), (uint64_t)check_between(1, 100000),
                              &layout);
        CHECK(gpr_list_prices(&rule, &layout, &facts, MOST_WAYS, ns, &count) == GPR_OK &&
                  count > 0 && count <= MOST_WAYS,
              "%u ways", count);
        for (uint32_t k = 1; k < count; k++)
            if (ns[k] < ns[cheapest]) cheapest = k;
        CHECK(gpr_make_plan(GPR_KERNEL_fast, &rule, &layout, 1, 0, 0, &facts, &chosen) == GPR_OK,
              "%s", gpr_last_error()->message);
        facts.way = cheapest + 1;
        CHECK(gpr_make_plan(GPR_KERNEL_fast, &rule, &layout, 1, 0, 0, &facts, &asked) == GPR_OK &&
                  asked.variant == chosen.variant && asked.block == chosen.block &&
                  asked.lanes == chosen.lanes && asked.passes[0].grid == chosen.passes[0].grid,
              "the cheapest of %u ways is not the plan", count);
        for (int k = 0; k < WAYS_TRIED; k++) {
            facts.way = (uint32_t)check_between(1, (int)count);
            CHECK(gpr_make_plan(GPR_KERNEL_fast, &rule, &layout, 1, 0, 0, &facts, &asked) == GPR_OK,
                  "way %u: %s", facts.way, gpr_last_error()->message);
        }
        facts.way = count + 1;
        CHECK(gpr_make_plan(GPR_KERNEL_fast, &rule, &layout, 1, 0, 0, &facts, &asked) ==
                      GPR_ERROR_VALUE &&
                  strstr(gpr_last_error()->message, "ways to read") != NULL,
              "way %u of %u", facts.way, count);
        facts.way = 0;
        gpr_costs_of(&device, &facts.costs);
        CHECK(gpr_list_prices(&rule, &layout, &facts, MOST_WAYS, slower, &count) == GPR_OK &&
                  memcmp(ns, slower, count * sizeof *ns) == 0,
              "estimates that are given are other prices");
        facts.costs.block_ns *= 3;
        facts.costs.load_ns *= 3;
        facts.costs.bytes_per_ns /= 3;
        CHECK(gpr_list_prices(&rule, &layout, &facts, MOST_WAYS, slower, &count) == GPR_OK,
              "costs");
        for (uint32_t k = 0; k < count; k++)
            CHECK(slower[k] > ns[k], "way %u costs no more on a slower GPU", k + 1);
    }
}

int main(int count, char **arguments)
{
    check_begin();
    test_random_plans_keep_their_promises(count > 1 ? atoi(arguments[1]) : 200000);
    test_plans_depend_on_their_arguments_alone();
    test_what_cannot_be_planned_is_refused();
    test_each_layout_gets_the_kernel_that_reads_it_best();
    test_strips_of_short_columns_leave_few_partials_a_thread();
    test_blocks_share_the_tiles_of_an_exact_sum_evenly();
    test_exact_moments_and_products_have_kernels_of_their_own();
    test_lanes_take_several_rows_where_rows_are_short();
    test_lanes_have_windows_of_their_own();
    test_blocks_that_take_turns_read_whole_sectors();
    test_rows_of_a_few_rounds_have_small_blocks();
    test_each_way_has_a_price_and_can_be_asked_for();
    test_random_layouts_keep_the_kernels_promises(count > 1 ? atoi(arguments[1]) : 100000);
    return check_end();
}
