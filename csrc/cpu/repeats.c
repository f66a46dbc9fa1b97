/* Accumulators of elements that come several times; see repeats.h. */
#include "cpu/repeats.h"

#include <string.h>

#include "lib/base/integers.h"

enum { LEAST_TIMES = 16 }; /* in rows of the fewest elements; of longer rows, fewer are enough */

uint64_t gpr_cpu_repeats(const gpr_view *view, const gpr_view *second, uint64_t least)
{
    uint64_t repeats = 0, times = 1;

    if (view->n < least || view->rows == 0) return 0;
    repeats = gpr_view_repeats(view);
    if (second != NULL) repeats &= gpr_view_repeats(second);
    for (int i = 0; i < view->inner && repeats != 0; i++)
        if (repeats >> i & 1) times *= view->axes[view->outer + i].extent;
    return times < 2 || times < LEAST_TIMES * least / view->n ? 0 : repeats;
}

int gpr_cpu_may_repeat(const gpr_rule *rule)
{
    if (!gpr_is_inexact(rule->compute)) return 1;
    if (rule->fold == GPR_FOLD_sum && !rule->divide) return gpr_is_inexact(rule->element);
    return rule->fold != GPR_FOLD_prod;
}

static uint64_t to_power(uint64_t x, uint64_t exponent)
{
    uint64_t product = 1;

    for (; exponent > 0; exponent /= 2, x *= x)
        if (exponent % 2 == 1) product *= x;
    return product;
}

/* An integer accumulator of up to 8 bytes; arithmetic that wraps serves all of them. */
static void repeat_integer(gpr_fold fold, size_t bytes, uint64_t times, char *accumulator)
{
    uint64_t x = 0;

    memcpy(&x, accumulator, bytes); /* the lowest bytes are first */
    if (fold == GPR_FOLD_prod)
        x = to_power(x, times);
    else
        x *= fold == GPR_FOLD_bit_xor || fold == GPR_FOLD_odd ? times % 2 : times;
    memcpy(accumulator, &x, bytes);
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte is the lowest");

void gpr_cpu_repeat(gpr_fold fold, gpr_dtype acc, uint64_t times, char *accumulators,
                    uint64_t count)
{
    const size_t bytes = gpr_dtype_rows[acc].bytes;
    double numbers[2];

    switch (fold) {
    case GPR_FOLD_sum:
    case GPR_FOLD_count:
    case GPR_FOLD_prod:
    case GPR_FOLD_bit_xor:
    case GPR_FOLD_odd: break;
    default: return; /* an element that comes again changes nothing */
    }
    for (uint64_t i = 0; i < count; i++, accumulators += bytes) {
        if (!gpr_is_inexact(acc)) {
            repeat_integer(fold, bytes, times, accumulators);
            continue;
        }
        memcpy(numbers, accumulators, bytes); /* sums of doubles, or pairs of them */
        for (size_t k = 0; k < bytes / sizeof *numbers; k++) numbers[k] *= (double)times;
        memcpy(accumulators, numbers, bytes);
    }
}
