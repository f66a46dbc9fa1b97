/* Arrays that NumPy broadcast: axes of a row along which all elements are the same are read once,
 * and the accumulator of what was read becomes that of all of them. Private to csrc/cpu. */
#ifndef GPR_CPU_REPEATS_H
#define GPR_CPU_REPEATS_H

#include "lib/base/registry.h"
#include "lib/rules/nd_view.h"
#include "lib/rules/rules.h"

/* Elements of a row from which on reading them takes longer than what is done for each row to read
 * some once: where they are multiplied, where they are folded, and where they are added exactly. */
enum {
    GPR_CPU_LEAST_MULTIPLIED = 1 << 6,
    GPR_CPU_LEAST_FOLDED = 1 << 10,
    GPR_CPU_LEAST_ADDED = 1 << 12
};

/* The axes to read once, as gpr_view_repeats returns them, along which the elements of `second` are
 * the same, too, if it is not NULL; 0 where rows have less than `least` elements, or these come so
 * few times, that nothing is gained. */
uint64_t gpr_cpu_repeats(const gpr_view *view, const gpr_view *second, uint64_t least);

/* Whether elements that a rule folds as numbers, positions or moments may be read once: not those
 * of float products, whose rounding errors would be raised to a power, and not integers that are
 * summed in 64 bits for a float, whose sum may be longer. */
int gpr_cpu_may_repeat(const gpr_rule *rule);

/* Makes `count` accumulators of numbers, of type acc, those of every element `times` times. */
void gpr_cpu_repeat(gpr_fold fold, gpr_dtype acc, uint64_t times, char *accumulators,
                    uint64_t count);

#endif
