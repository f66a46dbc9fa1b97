/* Plans of random work keep the promises that launches, kernels and buffers rely on. */
#include <string.h>

#include "check.h"
#include "plan.h"
#include "registry.h"

typedef struct work {
    int kernel;
    gpr_rule rule;
    uint64_t rows, n;
    uint32_t block, grid;
    gpr_device_facts facts;
} work;

/* A number up to 2^bits - 1, small ones as likely as large ones; edges of blocks and warps often. */
static uint64_t draw_size(int bits)
{
    const uint64_t base = check_random() >> (64 - check_between(1, bits));

    if (check_between(0, 2) != 0) return base > 0 ? base : 1;
    const uint64_t edge = (UINT64_C(1) << check_between(0, bits - 1)) + (uint64_t)check_between(0, 2);
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
                         (gpr_dtype)check_between(0, GPR_DTYPE_COUNT - 1), GPR_DTYPE_DEFAULT, &w->rule) != GPR_OK)
        continue;
    gpr_fit_rule(row, &w->rule);
    w->rows = draw_size(row_bits);
    w->n = draw_size(check_between(0, 1) ? 59 - row_bits : 12);
    if (check_between(0, 1) && row->block_rule != GPR_BLOCK_WARP) w->block = 32u << check_between(0, 5);
    if (check_between(0, 3) == 0 && row->cover == GPR_STRIDE) w->grid = (uint32_t)draw_size(20);
    w->facts = (gpr_device_facts){.cc = (int)check_between(75, 130),
                                  .multiprocessors = (uint32_t)check_between(1, 200),
                                  .threads_per_multiprocessor = (uint32_t)check_between(1, 64) * 32};
}

static const char *describe(const work *w)
{
    static char text[200];

    (void)snprintf(text, sizeof text, "%s, %llu rows of %llu, element %zu bytes, block %u, grid %u, %u x %u threads",
                   gpr_kernel_rows[w->kernel].name, (unsigned long long)w->rows, (unsigned long long)w->n,
                   gpr_dtype_bytes(w->rule.element), w->block, w->grid, w->facts.multiprocessors,
                   w->facts.threads_per_multiprocessor);
    return text;
}

static gpr_status make(const work *w, gpr_plan *plan)
{
    return gpr_make_plan(w->kernel, &w->rule, w->rows, w->n, w->block, w->grid, &w->facts, plan);
}

/* Several passes: each reduces what the one before wrote, the last leaves one value a row, scratch holds what lies between. */
static void check_passes(const work *w, const gpr_plan *plan)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[w->kernel];
    uint64_t needed[2] = {0, 0};

    CHECK(plan->passes[0].n == w->n, "%s", describe(w));
    for (int i = 0; i < plan->pass_count; i++) {
        const gpr_pass *pass = &plan->passes[i];
        const int last = i == plan->pass_count - 1;
        CHECK(pass->blocks >= 1 && pass->grid == w->rows * pass->blocks, "%s: pass %d", describe(w), i);
        if (i > 0) CHECK(pass->n == plan->passes[i - 1].blocks, "%s: pass %d", describe(w), i);
        if (row->cover == GPR_COVER) {
            const unsigned __int128 per_block = (unsigned __int128)plan->block * row->per_thread;
            CHECK(pass->blocks * per_block >= pass->n && (pass->blocks - 1) * per_block < pass->n, "%s: pass %d",
                  describe(w), i);
        }
        if (row->finish == GPR_PASSES)
            CHECK((pass->blocks == 1) == last, "%s: pass %d of %d", describe(w), i, plan->pass_count);
        /* Passes write to two halves of scratch in turn; a half is not read and written at once. */
        if (!last && pass->grid > needed[i % 2]) needed[i % 2] = pass->grid;
    }
    if (row->finish == GPR_PASSES) {
        CHECK(plan->partials == needed[0] && plan->more_partials == needed[1], "%s", describe(w));
        CHECK(plan->needs_next == (plan->pass_count > 1) && plan->tickets == 0, "%s", describe(w));
    } else {
        CHECK(plan->pass_count == 1 && plan->more_partials == 0 && !plan->needs_next, "%s", describe(w));
    }
}

static void check_finish(const work *w, const gpr_plan *plan)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[w->kernel];
    const gpr_pass *pass = &plan->passes[0];

    CHECK(plan->fill == (row->finish == GPR_ATOMIC), "%s", describe(w));
    if (row->finish == GPR_TICKET && pass->blocks > 1) {
        CHECK(plan->partials == w->rows * pass->blocks && plan->tickets == w->rows, "%s", describe(w));
    } else {
        CHECK(plan->tickets == 0, "%s", describe(w));
    }
}

/* Loops need no more blocks than fill the card, shared among the rows, nor more than the row has work for. */
static void check_grid(const work *w, const gpr_plan *plan)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[w->kernel];
    const uint32_t per = w->facts.threads_per_multiprocessor / plan->block;
    const uint64_t resident = (uint64_t)w->facts.multiprocessors * (per > 0 ? per : 1);
    const uint64_t blocks = plan->passes[0].blocks;

    if (row->cover == GPR_ONE) CHECK(blocks == 1 && plan->pass_count == 1, "%s", describe(w));
    if (row->cover != GPR_STRIDE) return;
    if (w->grid != 0) {
        CHECK(blocks == w->grid, "%s: %llu blocks", describe(w), (unsigned long long)blocks);
    } else {
        CHECK(blocks == 1 || (blocks - 1) * w->rows < resident, "%s: %llu blocks, %llu fit", describe(w),
              (unsigned long long)blocks, (unsigned long long)resident);
        CHECK(blocks == 1 || (blocks - 1) * plan->block < w->n, "%s: %llu blocks", describe(w),
              (unsigned long long)blocks);
    }
}

/* Rows that share blocks: lanes are a power of two in a warp, and every row has its own. */
static void check_shared_blocks(const work *w, const gpr_plan *plan)
{
    const uint64_t per_block = plan->block / plan->lanes;

    CHECK(plan->lanes >= 1 && plan->lanes <= 32 && (plan->lanes & (plan->lanes - 1)) == 0, "%s: %u lanes", describe(w),
          plan->lanes);
    CHECK(plan->pass_count == 1 && plan->passes[0].blocks == 0 && plan->passes[0].n == w->n, "%s", describe(w));
    CHECK(plan->passes[0].grid * per_block >= w->rows && (plan->passes[0].grid - 1) * per_block < w->rows, "%s",
          describe(w));
    CHECK(plan->partials == 0 && plan->more_partials == 0 && plan->tickets == 0 && !plan->fill && !plan->needs_next,
          "%s", describe(w));
    CHECK(w->rows > 1 && w->grid == 0, "%s", describe(w));
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
            /* The one good reason left: more blocks than can be numbered. */
            const gpr_kernel_row *row = &gpr_kernel_rows[w.kernel];
            const uint64_t per_block = (uint64_t)(w.block != 0 ? w.block : row->block) * row->per_thread;
            CHECK(status == GPR_ERROR_VALUE && strstr(gpr_last_error()->message, "can number") != NULL, "%s: %s",
                  describe(&w), gpr_last_error()->message);
            CHECK(w.grid != 0 || w.n / per_block >= UINT32_MAX, "%s: %s", describe(&w), gpr_last_error()->message);
            continue;
        }
        planned++;
        CHECK(plan.kernel == w.kernel && plan.rows == w.rows, "%s", describe(&w));
        CHECK(w.block == 0 || plan.block == w.block, "%s: block %u", describe(&w), plan.block);
        CHECK(gpr_check_block_size(&gpr_kernel_rows[w.kernel], plan.block) == GPR_OK, "%s: block %u", describe(&w),
              plan.block);
        if (strcmp(plan.variant, "auto_rows") == 0) {
            check_shared_blocks(&w, &plan);
            shared++;
            continue;
        }
        CHECK(plan.lanes == 32, "%s: %u lanes", describe(&w), plan.lanes);
        several += plan.pass_count > 2;
        check_passes(&w, &plan);
        check_finish(&w, &plan);
        check_grid(&w, &plan);
    }
    /* The draw reaches the corners. */
    CHECK(planned > count / 2 && shared > count / 1000 && several > count / 1000,
          "%d planned, %d shared, %d with many passes", planned, shared, several);
}

/* The same work on the same card is the same plan: bits repeat. */
static void test_plans_depend_on_their_arguments_alone(void)
{
    for (int i = 0; i < 1000; i++) {
        work w;
        gpr_plan first, second;
        memset(&first, 0x55, sizeof first);
        memset(&second, 0xaa, sizeof second);
        draw_work(&w);
        if (make(&w, &first) != GPR_OK || make(&w, &second) != GPR_OK) continue;
        CHECK(first.variant == second.variant && first.block == second.block && first.lanes == second.lanes &&
                  first.pass_count == second.pass_count && first.partials == second.partials &&
                  first.tickets == second.tickets,
              "%s", describe(&w));
        for (int j = 0; j < first.pass_count; j++) {
            CHECK(first.passes[j].n == second.passes[j].n && first.passes[j].blocks == second.passes[j].blocks &&
                      first.passes[j].grid == second.passes[j].grid,
                  "%s", describe(&w));
        }
    }
}

static void test_what_cannot_be_planned_is_refused(void)
{
    const gpr_device_facts facts = {.cc = 80, .multiprocessors = 100, .threads_per_multiprocessor = 2048};
    gpr_rule rule;
    gpr_plan plan;
    int kernel = 0;

    CHECK(gpr_make_rule(GPR_OP_SUM, GPR_FLOAT32, GPR_DTYPE_DEFAULT, &rule) == GPR_OK, "rule");
    CHECK(gpr_find_kernel("sequential", &kernel) == GPR_OK, "kernel");
    CHECK(gpr_make_plan(kernel, &rule, 1, 1000, 48, 0, &facts, &plan) == GPR_ERROR_VALUE,
          "a block of 48 threads for a tree");
    CHECK(gpr_make_plan(kernel, &rule, 1, 1000, 0, 5, &facts, &plan) == GPR_ERROR_VALUE,
          "a grid for a kernel that covers");
    CHECK(strstr(gpr_last_error()->message, "the length decides") != NULL, "%s", gpr_last_error()->message);
    CHECK(gpr_make_plan(kernel, &rule, 1, UINT64_C(1) << 60, 32, 0, &facts, &plan) == GPR_ERROR_VALUE,
          "2^54 blocks for a row");
    CHECK(gpr_find_kernel("single_block", &kernel) == GPR_OK, "kernel");
    CHECK(gpr_make_plan(kernel, &rule, 1, 1000, 0, 5, &facts, &plan) == GPR_ERROR_VALUE, "a grid for one block");
    CHECK(strstr(gpr_last_error()->message, "one block") != NULL, "%s", gpr_last_error()->message);
    CHECK(gpr_find_kernel("two_kernel", &kernel) == GPR_OK, "kernel");
    CHECK(gpr_make_plan(kernel, &rule, UINT64_C(1) << 40, 8, 0, UINT32_MAX, &facts, &plan) == GPR_ERROR_VALUE,
          "2^72 blocks");
}

int main(int count, char **arguments)
{
    check_begin();
    test_random_plans_keep_their_promises(count > 1 ? atoi(arguments[1]) : 200000);
    test_plans_depend_on_their_arguments_alone();
    test_what_cannot_be_planned_is_refused();
    return check_end();
}
