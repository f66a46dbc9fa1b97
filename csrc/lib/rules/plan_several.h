/* The plan of several reductions in one pass (kernels/several/several.cuh). Pure. */
#ifndef GPR_LIB_PLAN_SEVERAL_H
#define GPR_LIB_PLAN_SEVERAL_H

#include "lib/rules/plan.h"

/* The rule and kernel of a member's own call, by kernel "auto". Errors: those of the call. */
gpr_status gpr_member_rule(gpr_dtype dtype, const gpr_member *member, gpr_rule *rule, int *kernel);

#endif
