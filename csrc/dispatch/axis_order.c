/* Rows that lie crosswise in memory are read as columns, many at a time, if the kept axes follow
 * each other as in memory; so are short rows, in which positions are found side by side. Axes of a
 * permuted array do not, nor those of a reversed one: their rows would be copied first, or be read
 * a few at a time. Results are copied instead, one for each row. */
#include "dispatch/axis_order.h"

#include <stdlib.h>

#include "lib/base/registry.h"

enum {
    LEAST_ELEMENTS = 4096,  /* of an array: below, a copy takes less than another order, ... */
    LEAST_SEARCHED = 1024,  /* ... but of positions, whose rows are copied one by one */
    MOST_OF_SHORT_ROW = 16, /* elements: as long as a row is read side by side with others */
};

/* Whether a sum depends on the order in which rows are read, by its last bits: not one of integers
 * that 64 bits hold. */
static int is_rounded_sum(const gpr_rule *rule)
{
    const int adds = rule->fold == GPR_FOLD_sum || rule->fold == GPR_FOLD_sum_count ||
                     rule->fold == GPR_FOLD_prod;
    const int rounds =
        gpr_is_inexact(rule->element) || gpr_dtype_rows[rule->element].bytes == sizeof(int64_t);

    return adds && rounds && gpr_is_inexact(rule->compute) &&
           (rule->acc_kind == GPR_ACC_NUMBER || rule->acc_kind == GPR_ACC_SUM_COUNT);
}

/* How far apart an axis' elements are. Those that are broadcast, which are read once, count as the
 * farthest. */
static int64_t distance(const gpr_request *request, int axis)
{
    return request->strides[axis] != 0 ? llabs(request->strides[axis]) : INT64_MAX;
}

/* The shortest step of axes first .. end - 1 that are longer than 1; INT64_MAX without any. */
static int64_t shortest_step(const gpr_request *request, int first, int end)
{
    int64_t shortest = INT64_MAX;

    for (int i = first; i < end; i++) {
        const int64_t step = distance(request, i);

        if (request->shape[i] > 1 && step < shortest) shortest = step;
    }
    return shortest;
}

/* Whether kept axes that are longer than 1 are forward, the farther ones first. */
static int are_ordered(const gpr_request *request, int kept)
{
    int64_t before = INT64_MAX;

    for (int i = 0; i < kept; i++) {
        if (request->shape[i] <= 1 || request->strides[i] == 0) continue;
        if (request->strides[i] < 0 || request->strides[i] > before) return 0;
        before = request->strides[i];
    }
    return 1;
}

/* Whether rows lie crosswise, or are short, and another order of them is worth the copies of their
 * results. */
static int is_worth_it(const gpr_request *request, const gpr_rule *rule, int kept)
{
    const int finds = rule->acc_kind == GPR_ACC_INDEXED;
    int64_t rows = 1, n = 1;

    for (int i = 0; i < kept; i++) rows *= request->shape[i];
    for (int i = kept; i < request->ndim; i++) n *= request->shape[i];
    if (rows < 2 || n < 1 || rows < (finds ? LEAST_SEARCHED : LEAST_ELEMENTS) / n) return 0;
    if (n > 1 && is_rounded_sum(rule)) return 0;
    if (finds && n > 1 && n <= MOST_OF_SHORT_ROW) return 1;
    return shortest_step(request, 0, kept) < shortest_step(request, kept, request->ndim);
}

int gpr_order_kept_axes(const gpr_request *request, const gpr_rule *rule,
                        gpr_ordered_request *ordered)
{
    const int kept = request->ndim - request->reduced, outputs = rule->outputs > 1;
    const int64_t bytes = (int64_t)gpr_dtype_rows[rule->result].bytes;
    gpr_request *to = &ordered->request;
    int64_t steps[GPR_MAX_NDIM], step = bytes;
    int order[GPR_MAX_NDIM];

    if (request->strides == NULL || request->has_given_mean) return 0;
    if (are_ordered(request, kept) || !is_worth_it(request, rule, kept)) return 0;
    for (int i = kept - 1; i >= 0; i--) {
        steps[i] = request->result_strides != NULL ? request->result_strides[i + outputs] : step;
        step *= request->shape[i];
    }
    *to = *request;
    if (outputs)
        ordered->result_strides[0] =
            request->result_strides != NULL ? request->result_strides[0] : step;
    for (int i = 0; i < kept; i++) { /* insertion keeps the order of equal steps */
        int at = i;

        while (at > 0 && distance(request, order[at - 1]) < distance(request, i)) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    for (int i = 0; i < request->ndim; i++) {
        const int from = i < kept ? order[i] : i;
        const int64_t last = request->shape[from] - 1;
        const int turns = i < kept && request->strides[from] < 0;

        ordered->shape[i] = request->shape[from];
        ordered->strides[i] = turns ? -request->strides[from] : request->strides[from];
        if (turns) to->data = (const char *)to->data + last * request->strides[from];
        if (request->mask != NULL) {
            ordered->mask_strides[i] =
                turns ? -request->mask_strides[from] : request->mask_strides[from];
            if (turns) to->mask += last * request->mask_strides[from];
        }
        if (i >= kept) continue;
        ordered->result_strides[i + outputs] = turns ? -steps[from] : steps[from];
        if (turns) to->result = (char *)to->result + last * steps[from];
    }
    to->shape = ordered->shape;
    to->strides = ordered->strides;
    to->mask_strides = request->mask != NULL ? ordered->mask_strides : NULL;
    to->result_strides = ordered->result_strides;
    return 1;
}
