/* Costs of plans: constants of GPUs, and the time of equal blocks. */
#include "lib/rules/plan_costs.h"

#include "lib/exact/exact.h"
#include "shared/tuning.h"

/* Fitted to 3500 measurements on an H100 and an H200, for which the same constants are best; a
 * third more or less of each changes the choice's time by less than a percent. GPUs differ in
 * bandwidth and multiprocessors, which drivers report, far more than in latencies. */
static const gpr_plan_costs typical = {.sm_bytes_per_ns = 55,
                                       .load_ns = 750,
                                       .block_ns = 700,
                                       .step_ns = 20,
                                       .merge_ns = 1800,
                                       .partial_ns = 500};

void gpr_costs_of(const gpr_device_facts *facts, gpr_plan_costs *costs)
{
    /* The share of the bandwidth by clock and width that kernels reach; and bounds of a
     * multiprocessor's bandwidth, where the driver reports none or nonsense. */
    const double reached = 0.93, least = 4, usual = 25, most = 60;
    /* instructions of all lanes in a nanosecond, at the clocks of the last years */
    const double issued = 4 * GPR_WARP_LANES * 1.6;
    const double sms = facts->multiprocessors;
    double share = facts->memory_bytes_per_ns / sms;

    if (facts->costs.bytes_per_ns > 0) {
        *costs = facts->costs;
        return;
    }
    if (share <= 0) share = usual;
    if (share < least) share = least;
    *costs = typical;
    costs->bytes_per_ns = reached * gpr_lesser(share, most) * sms;
    costs->instructions_per_ns = issued * sms;
}

/* Pairs of doubles, as measured on an H200: 600 random arrays in up to eleven ways each; of float64
 * again when additions were proved by rounding, 89 arrays. The errors of float64 are mostly not 0,
 * and have to be added, too. */
static gpr_fold_costs pair_costs(const gpr_rule *rule)
{
    enum { NAN_TEST = 4, COMBINE = 14, COMBINE_FLOAT64 = 10 };
    const double element = gpr_pair_sum_is_float64(rule->element) ? 9
                           : rule->element == GPR_BFLOAT16        ? 12
                           : rule->element == GPR_FLOAT32         ? 10
                                                                  : 14;

    return (gpr_fold_costs){.element = element + (rule->skip_nan ? NAN_TEST : 0),
                            .combine = rule->element == GPR_FLOAT64 ? COMBINE_FLOAT64 : COMBINE};
}

gpr_fold_costs gpr_fold_costs_of(const gpr_rule *rule, uint64_t acc_bytes)
{
    const double words = (double)(acc_bytes + 3) / 4;
    const int is_half = gpr_is_inexact(rule->element) && gpr_dtype_bytes(rule->element) == 2;

    switch (rule->acc_kind) {
    case GPR_ACC_MOMENTS: return (gpr_fold_costs){.element = 10, .combine = 100};
    case GPR_ACC_INDEXED: return (gpr_fold_costs){.element = is_half ? 28 : 10, .combine = 12};
    case GPR_ACC_SUM_COUNT: return (gpr_fold_costs){.element = 6, .combine = 6};
    case GPR_ACC_RANGE: return (gpr_fold_costs){.element = 4, .combine = 6};
    case GPR_ACC_EXACT: return pair_costs(rule);
    default: return (gpr_fold_costs){.element = 1 + 1.5 * words, .combine = 2 * words};
    }
}

double gpr_time_of(const gpr_plan_costs *costs, const gpr_load *load)
{
    /* From so many waves on, blocks end at different times and waves are no longer in step. */
    const double out_of_step = 8;
    const double waves = load->blocks / load->slots;
    const double turns = waves <= 1 ? 1 : waves < out_of_step ? gpr_whole(waves) : waves + 0.5;
    const double busy = gpr_lesser(load->blocks, load->sms);
    const double bandwidth = gpr_lesser(costs->bytes_per_ns, busy * costs->sm_bytes_per_ns);
    const double reading = load->bytes / bandwidth;
    const double arithmetic = load->instructions * load->sms / (costs->instructions_per_ns * busy);
    const double chain = turns * load->block_ns;
    const double larger = reading > arithmetic ? reading : arithmetic;
    const double largest = larger > chain ? larger : chain;

    return largest + load->beside * (reading + arithmetic + chain - largest);
}
