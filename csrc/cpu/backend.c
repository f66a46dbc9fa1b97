/* A call of the CPU backend: which of its ways makes the results.
 *
 *     rows of one element      sums and means of floats, and magnitudes, are stored here
 *     exact sums of integers   exact_integers.c, where 64 bits hold what they follow from
 *     other exact sums         exact_add.c
 *     sums of magnitudes       as exact sums of elements without signs
 *     sums of other products   exact_add.c
 *     all others               cpu.c */
#include <math.h>

#include "cpu/cpu.h"
#include "cpu/exact_integers.h"
#include "cpu/factors.h"
#include "cpu/job.h"
#include "lib/base/convert.h"
#include "lib/base/integers.h"
#include "lib/base/status.h"

/* Sums of one element each: a sum starts at 0, which makes -0 of it 0, and all NaN are alike. */
static void add_singly_float32(const char *elements, uint64_t count, char *results)
{
    const float *x = (const float *)(const void *)elements;
    float *to = (float *)(void *)results;
    int has_nan = 0;

    for (uint64_t i = 0; i < count; i++) {
        has_nan |= isnan(x[i]) != 0;
        to[i] = 0 + x[i];
    }
    for (uint64_t i = 0; i < count && has_nan; i++) to[i] = isnan(to[i]) ? NAN : to[i];
}

/* The same of 16-bit floats, of which `infinity` has the largest magnitude but NaN. */
static void add_singly_float_of_16(const char *elements, uint64_t count, uint16_t infinity,
                                   uint16_t nan, char *results)
{
    const uint16_t sign = UINT16_C(0x8000), *x = (const uint16_t *)(const void *)elements;
    uint16_t *to = (uint16_t *)(void *)results;

    for (uint64_t i = 0; i < count; i++) {
        const uint16_t sum = x[i] == sign ? 0 : x[i], magnitude = sum & (uint16_t)~sign;
        to[i] = (int16_t)magnitude > (int16_t)infinity ? nan : sum;
    }
}

/* Stores sums of one element each, of a type. */
static void add_singly(gpr_dtype real, const char *elements, uint64_t count, char *results)
{
    const gpr_narrow_format any = {0};

    switch (real) {
    case GPR_FLOAT16:
        add_singly_float_of_16(elements, count, gpr_double_to_half(INFINITY),
                               gpr_double_to_half(NAN), results);
        break;
    case GPR_BFLOAT16:
        add_singly_float_of_16(elements, count, gpr_double_to_bfloat(INFINITY),
                               gpr_double_to_bfloat(NAN), results);
        break;
    case GPR_FLOAT32: add_singly_float32(elements, count, results); break;
    default:
        (void)gpr_cpu_loops()->round_sums((const double *)(const void *)elements, NULL, 1, count,
                                          &any, 0, (void *)results);
        break;
    }
}

/* Stores sums and means of rows of one element each, if elements are results. 0, and nothing done,
 * for other rows. */
static int adds_singly(const gpr_resolved *call)
{
    const gpr_view *view = &call->view;
    const gpr_rule *rule = &call->rule;
    const gpr_dtype real = gpr_real_dtype(rule->element);
    const int is_dense =
        view->outer == 0 || (view->outer == 1 && view->axes[0].in == (int64_t)view->bytes);

    if (view->n != 1 || view->inner > 0 || !is_dense || view->mask != NULL || view->encoding != 0 ||
        rule->skip_nan || rule->result != rule->element ||
        (rule->op != GPR_OP_SUM && rule->op != GPR_OP_MEAN) || !gpr_view_is_aligned(view) ||
        (uintptr_t)call->result % gpr_part_bytes(real) != 0 || !gpr_is_inexact(real))
        return 0;
    add_singly(real, view->data, view->rows * (uint64_t)gpr_exact_parts(rule->element),
               call->result);
    return 1;
}

/* gpr_cpu_reduce of elements whose largest magnitude is known, or 0. */
static gpr_status reduce(const gpr_resolved *call, uint64_t largest, gpr_run *run)
{
    const gpr_rule *rule = &call->rule;
    gpr_status status = GPR_OK;
    int is_done = 0;

    if (adds_singly(call)) {
        run->variant = gpr_cpu_isa();
        run->block_size = run->grid_size = 1;
        return GPR_OK;
    }
    if (!gpr_is_exact(rule->acc_kind)) return gpr_cpu_reduce_by_folds(call, run);
    if (!gpr_is_inexact(rule->element))
        status = gpr_cpu_reduce_integers_exactly(call, largest, run, &is_done);
    return status != GPR_OK || is_done ? status : gpr_cpu_reduce_exactly(call, run);
}

gpr_status gpr_cpu_reduce(const gpr_resolved *call, gpr_run *run)
{
    return reduce(call, 0, run);
}

enum { DOUBLE_BITS = 53 };

/* Whether factors are of a type that has every number of the elements', or of theirs at least that
 * are integers of its bits. */
static int holds_elements(const gpr_rule *rule)
{
    const gpr_dtype_row *element = &gpr_dtype_rows[rule->element],
                        *factor = &gpr_dtype_rows[rule->compute];

    if (rule->compute == rule->element) return 1;
    if (factor->kind != GPR_KIND_FLOAT) return 0;
    if (element->kind == GPR_KIND_FLOAT) return factor->bytes > element->bytes;
    return 8 * element->bytes <= (size_t)factor->fraction + 1 ||
           factor->fraction == DOUBLE_BITS - 1;
}

/* Whether magnitudes of the call's elements, real numbers, can be added as what they are. */
static int adds_magnitudes(const gpr_resolved *call)
{
    const gpr_rule *rule = &call->rule;

    return rule->products == GPR_MAGNITUDES && call->view.n > 0 && call->divisors == NULL &&
           gpr_kind_of(rule->result) == GPR_KIND_FLOAT && holds_elements(rule);
}

/* Adds magnitudes, of which the largest may be known. Not inlined, as the other call would be in
 * the frame of every call. */
static __attribute__((noinline)) gpr_status add_magnitudes(const gpr_resolved *call,
                                                           uint64_t largest, gpr_run *run)
{
    gpr_resolved sum;
    gpr_status status = GPR_OK;

    gpr_copy_settings(&sum, call);
    gpr_copy_view(&sum.view, &call->view);
    gpr_view_magnitudes(&sum.view);
    GPR_TRY(gpr_make_rule(GPR_OP_SUM, sum.view.dtype, call->rule.result, &sum.rule));
    gpr_fit_rule(&gpr_kernel_rows[GPR_KERNEL_exact], &sum.rule);
    GPR_TRY(reduce(&sum, largest, run));
done:
    return status;
}

/* Whether rows are one real number each, whose magnitude is the sum of magnitudes, and the root of
 * the sum of squares. */
static int has_single_magnitudes(const gpr_resolved *call)
{
    const gpr_view *view = &call->view;
    const gpr_rule *rule = &call->rule;
    const int is_magnitude =
        rule->products == GPR_MAGNITUDES || (rule->products == GPR_SQUARES && rule->takes_root);

    return is_magnitude && view->n == 1 && view->inner == 0 && call->divisors == NULL &&
           rule->compute == rule->element && view->dtype == rule->element &&
           (uintptr_t)call->result % gpr_dtype_bytes(rule->result) == 0 &&
           rule->result == (gpr_is_inexact(rule->element) ? rule->element : GPR_FLOAT64);
}

/* Stores the magnitudes of such rows. Not inlined: what it packs would enlarge the frame of every
 * call. */
static __attribute__((noinline)) gpr_status store_magnitudes(const gpr_resolved *call, gpr_run *run)
{
    enum { PACKED_BYTES = 4096, BLOCKS_TO_ASK = 64 };
    const gpr_dtype result = call->rule.result;
    const uint64_t rows = call->view.rows, at_once = PACKED_BYTES / call->view.bytes;
    _Alignas(MOST_NUMBER_BYTES) char packed[PACKED_BYTES];
    gpr_view magnitudes;
    gpr_cpu_stop stop;

    gpr_copy_view(&magnitudes, &call->view);
    gpr_view_magnitudes(&magnitudes);
    gpr_cpu_watch(&stop, call->interrupted, call->interrupted_arg);
    for (uint64_t done = 0; done < rows; done += at_once) {
        const uint64_t some = gpr_smaller(rows - done, at_once);
        char *to = (char *)call->result + done * gpr_dtype_bytes(result);

        if (done / at_once % BLOCKS_TO_ASK == BLOCKS_TO_ASK - 1 && gpr_cpu_must_stop(&stop))
            return gpr_fail(GPR_ERROR_INTERRUPTED, "the norm was interrupted");
        gpr_cpu_pack(&magnitudes, done, some, NULL, packed);
        if (magnitudes.dtype == result)
            add_singly(result, packed, some, to);
        else
            gpr_cpu_convert_factors(magnitudes.dtype, packed, result, to, some);
    }
    run->variant = gpr_cpu_isa();
    run->block_size = run->grid_size = 1;
    return GPR_OK;
}

gpr_status gpr_cpu_reduce_products(const gpr_resolved *call, gpr_run *run)
{
    const gpr_dtype element = call->rule.element;
    uint64_t largest = 0;
    gpr_status status = GPR_OK;

    if (has_single_magnitudes(call)) return store_magnitudes(call, run);
    if (!adds_magnitudes(call)) return gpr_cpu_reduce_by_products(call, run);
    if (!gpr_is_inexact(element) && 8 * gpr_dtype_bytes(element) > DOUBLE_BITS)
        GPR_TRY(gpr_cpu_find_largest(call, run, &largest));
    if (largest > UINT64_C(1) << DOUBLE_BITS) /* some are rounded to the factors' type */
        GPR_TRY(gpr_cpu_reduce_by_products(call, run));
    else
        GPR_TRY(add_magnitudes(call, largest, run));
done:
    return status;
}
