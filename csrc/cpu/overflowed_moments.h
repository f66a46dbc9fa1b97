/* Variances of finite numbers so large that the sums of one pass left the range of doubles. Private
 * to csrc/cpu. */
#ifndef GPR_CPU_OVERFLOWED_MOMENTS_H
#define GPR_CPU_OVERFLOWED_MOMENTS_H

#include "lib/rules/resolved.h"

/* Whether gpr_cpu_vary_again may change results of the call: variances in doubles. */
int gpr_cpu_moments_may_overflow(const gpr_rule *rule);

/* Computes those results of the call again, by exact sums, that are infinite or NaN although all
 * elements of their rows are finite. Rows that have other elements, or none that is large, are left
 * as they are. `view` is the call's, or that of the elements that differ. GPR_ERROR_MEMORY,
 * GPR_ERROR_INTERRUPTED. */
gpr_status gpr_cpu_vary_again(const gpr_resolved *call, const gpr_view *view);

#endif
