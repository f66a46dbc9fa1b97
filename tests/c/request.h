/* The request that most tests begin with, and the rule and the view of a request. */
#ifndef GPR_TEST_REQUEST_H
#define GPR_TEST_REQUEST_H

#include "lib/base/status.h"
#include "lib/rules/nd_view.h"
#include "lib/rules/rules.h"

/* Sums along the last of `ndim` axes of a C-ordered host array, by "auto" on CUDA device 0. */
static inline gpr_request sums_of(gpr_dtype dtype, int ndim, const int64_t *shape, const void *data,
                                  void *result)
{
    return (gpr_request){.op = GPR_OP_SUM,
                         .dtype = dtype,
                         .compute = GPR_DTYPE_DEFAULT,
                         .ndim = ndim,
                         .reduced = 1,
                         .shape = shape,
                         .data = data,
                         .kernel = -1,
                         .device = 0,
                         .result = result};
}

/* The rule of a request, fitted to no kernel. */
static inline gpr_status rule_of(const gpr_request *request, gpr_rule *rule)
{
    gpr_status status;

    GPR_TRY(gpr_make_rule(request->op, request->dtype, request->compute, rule));
    GPR_TRY(gpr_leave_out(rule, request->skip_nan, request->mask != NULL));
    rule->ddof = request->ddof;
    if (request->has_given_mean) GPR_TRY(gpr_take_mean(rule, request->mean_dtype));
done:
    return status;
}

static inline gpr_status view_of(const gpr_request *request, gpr_view *view)
{
    gpr_rule rule;
    gpr_status status;

    GPR_TRY(rule_of(request, &rule));
    status = gpr_make_view(request, &rule, view);
done:
    return status;
}

#endif
