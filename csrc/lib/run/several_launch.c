/* From a plan of several reductions in one pass to its launch: parameters and scratch.
 *
 *     tickets, zero before and after   | a ticket per row | counters of an exact sum |
 *     other scratch                    | partials of folds | limb partials |
 *
 * Rows of one block have neither. */
#include "lib/run/several_launch.h"

#include <string.h>

#include "lib/base/integers.h"
#include "shared/several_params.h"

/* Tickets of rows: whole words of 8 bytes, as counters follow. */
static uint64_t row_tickets(const gpr_several_plan *plan)
{
    return gpr_divide_up(plan->rows, 2) * 2;
}

static gpr_scratch_places needs_of(const gpr_several_plan *plan, uint32_t pieces)
{
    const uint64_t blocks = (uint64_t)plan->blocks * pieces;

    if (blocks == 1) return (gpr_scratch_places){.tickets = 0};
    /* whole vectors, as partials may follow */
    return (gpr_scratch_places){.tickets = gpr_divide_up(row_tickets(plan) + plan->counters, 4) * 4,
                                .bytes = 8 * gpr_partials_of(plan->rows * blocks) *
                                         (plan->partial_words + plan->limb_words)};
}

uint64_t gpr_scratch_of_pieces(const gpr_several_plan *plan, uint32_t pieces)
{
    const gpr_scratch_places needs = needs_of(plan, pieces);

    return needs.tickets * sizeof(uint32_t) + needs.bytes;
}

typedef struct arguments {
    gpr_several_params params;
    const gpr_several_plan *plan;
} arguments;

static void place_scratch(void *context, gpr_scratch_places at)
{
    arguments *given = context;
    gpr_several_params *params = &given->params;

    params->tickets = at.tickets;
    params->counters = at.tickets + row_tickets(given->plan) * sizeof(uint32_t);
    params->partials = at.bytes;
    params->limb_partials = at.bytes + 8 * gpr_partials_of(params->rows * params->all_blocks) *
                                           given->plan->partial_words;
}

static gpr_status check(const gpr_several_plan *plan, const gpr_several_launch *launch)
{
    if (plan->in_pass == 0)
        return gpr_fail(GPR_ERROR_VALUE, "these reductions have no pass in common");
    if (launch->n == 0) return GPR_OK;
    if (plan->rows != 1 || launch->piece >= launch->pieces || launch->n > launch->total ||
        launch->first > launch->total - launch->n)
        return gpr_fail(GPR_ERROR_VALUE, "a piece is of an array of one row, and within it");
    if (launch->scratch == NULL)
        return gpr_fail(GPR_ERROR_VALUE, "pieces of a row share scratch, and there is none");
    return GPR_OK;
}

/* The parameters of a launch; scratch has no address yet. */
static void describe(const gpr_several_plan *plan, const gpr_several_launch *launch,
                     arguments *given)
{
    const int is_piece = launch->n != 0;
    const uint32_t pieces = is_piece ? launch->pieces : 1;

    *given = (arguments){
        .params = {.in = (uintptr_t)launch->data,
                   .rows = plan->rows,
                   .n = is_piece ? launch->n : plan->n,
                   .total = is_piece ? launch->total : plan->n,
                   .first_position = is_piece ? launch->first : 0,
                   .row_step = plan->row_step,
                   .out_step = plan->out_step,
                   .blocks = plan->blocks,
                   .first_block = is_piece ? launch->piece * plan->blocks : 0,
                   .all_blocks = pieces * plan->blocks,
                   .finalize = {.ddof = launch->ddof, .output_stride = launch->output_stride}},
        .plan = plan};
    for (int i = 0; i < plan->count; i++) given->params.out[i] = (uintptr_t)launch->out[i];
}

static gpr_launch grid_of(const gpr_several_plan *plan, void **pointers)
{
    return (gpr_launch){
        .grid = (uint32_t)(plan->rows * plan->blocks), .block = plan->block, .arguments = pointers};
}

gpr_status gpr_launch_several(gpr_loaded_image *loaded, const gpr_several_plan *plan,
                              const gpr_several_launch *launch)
{
    arguments given;
    void *pointers[] = {&given.params};
    const gpr_launch made = grid_of(plan, pointers);
    gpr_status status = GPR_OK;

    GPR_TRY(check(plan, launch));
    describe(plan, launch, &given);
    if (launch->n != 0) {
        const gpr_scratch_places needs = needs_of(plan, launch->pieces);
        const uint64_t at = (uintptr_t)launch->scratch;
        place_scratch(&given, (gpr_scratch_places){.tickets = at,
                                                   .bytes = at + needs.tickets * sizeof(uint32_t)});
        status = gpr_queue_launches(loaded, &made, 1, launch->stream, 0, NULL, 0);
    } else {
        const gpr_ticket_launch queued = {made, needs_of(plan, 1), place_scratch, &given};
        status = gpr_queue_with_tickets(loaded, &queued, launch->stream);
    }
done:
    return status;
}

gpr_status gpr_time_several(gpr_loaded_image *loaded, const gpr_several_plan *plan,
                            const gpr_several_launch *launch, uint64_t flush_bytes, int repeats,
                            float *milliseconds)
{
    arguments given;
    void *pointers[] = {&given.params};
    const gpr_ticket_launch timed = {grid_of(plan, pointers), needs_of(plan, 1), place_scratch,
                                     &given};
    gpr_status status = GPR_OK;

    GPR_TRY(check(plan, launch));
    if (launch->n != 0) return gpr_fail(GPR_ERROR_VALUE, "a piece of an array is not timed");
    if (repeats < 1) return gpr_fail(GPR_ERROR_VALUE, "numbers of runs are positive");
    describe(plan, launch, &given);
    status =
        gpr_run_with_tickets(loaded, &timed, launch->stream, flush_bytes, repeats, milliseconds);
done:
    return status;
}
