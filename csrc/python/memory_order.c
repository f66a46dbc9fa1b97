/* The order in which the axes of a result are in memory: that of the array's axes, as NumPy's
 * results have it.
 *
 * NumPy's iterator sorts the axes of its operands by their steps and allocates the result in that
 * order; some functions reduce a copy of the array, or its distances from the mean, which NumPy has
 * allocated in an order of their own. Operands here are steps per axis of an array, and an order is
 * a list of axes from the nearest in memory to the farthest. */
#include <stdlib.h>

#include "python/glue.h"

enum { MOST_OPERANDS = 2 };

typedef struct operands {
    int ndim, count;
    const int64_t *shape;
    int64_t steps[MOST_OPERANDS][GPR_MAX_NDIM]; /* never negative; 0 where the extent is 1 */
} operands;

static void add_operand(operands *all, const int64_t *steps)
{
    if (steps == NULL) return;
    for (int i = 0; i < all->ndim; i++) {
        all->steps[all->count][i] = all->shape[i] == 1 ? 0 : llabs(steps[i]);
    }
    all->count++;
}

/* Whether `axis` is nearer in memory than `other`, which is before it in the order: 1, 0, or -1 if
 * no operand has steps along both. Where operands disagree, C order wins. */
static int is_nearer(const operands *all, int axis, int other)
{
    int nearer = -1;

    for (int i = 0; i < all->count; i++) {
        const int64_t own = all->steps[i][axis], others = all->steps[i][other];
        if (own == 0 || others == 0) continue;
        if (others <= own) {
            nearer = 0;
        } else if (nearer < 0) {
            nearer = 1;
        }
    }
    return nearer;
}

/* The order of the iterator: an insertion sort from C order, because axes that cannot be compared
 * make the outcome depend on the way. */
static void sort_axes(const operands *all, int *order)
{
    for (int i = 0; i < all->ndim; i++) order[i] = all->ndim - 1 - i;
    for (int i = 1; i < all->ndim; i++) {
        const int axis = order[i];
        int to = i;
        for (int k = i - 1; k >= 0; k--) {
            const int nearer = is_nearer(all, axis, order[k]);
            if (nearer == 0) break;
            if (nearer > 0) to = k;
        }
        memmove(order + to + 1, order + to, (size_t)(i - to) * sizeof *order);
        order[to] = axis;
    }
}

/* Steps of an array of `shape` that is allocated in an order: none if it has no elements. */
static void allocate(int ndim, const int64_t *shape, const int *order, int64_t *steps)
{
    int64_t step = 1;

    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 0) step = 0;
    }
    for (int i = 0; i < ndim; i++) {
        steps[order[i]] = step;
        step *= shape[order[i]];
    }
}

/* Steps of a copy that keeps the array's order: axes without steps are the nearest there. */
static void copy_in_order(int ndim, const int64_t *shape, const int64_t *from, int64_t *steps)
{
    int order[GPR_MAX_NDIM];

    for (int i = 0; i < ndim; i++) {
        const int axis = ndim - 1 - i;
        int to = i;
        while (to > 0 && llabs(from[order[to - 1]]) > llabs(from[axis])) to--;
        memmove(order + to + 1, order + to, (size_t)(i - to) * sizeof *order);
        order[to] = axis;
    }
    allocate(ndim, shape, order, steps);
}

/* Steps of the array of distances from the means, which are allocated first. */
static void subtract_means(const glue_call *call, const operands *given, int64_t *steps)
{
    operands both = {given->ndim, 0, given->shape, {{0}}};
    int64_t kept[GPR_MAX_NDIM], means[GPR_MAX_NDIM];
    int order[GPR_MAX_NDIM];

    for (int i = 0; i < given->ndim; i++) kept[i] = call->reduced[i] ? 1 : given->shape[i];
    sort_axes(given, order);
    allocate(given->ndim, kept, order, means);
    for (int i = 0; i < given->ndim; i++) means[i] = kept[i] == 1 ? 0 : means[i];
    add_operand(&both, given->steps[0]);
    add_operand(&both, means);
    sort_axes(&both, order);
    allocate(given->ndim, given->shape, order, steps);
}

/* Whether NumPy has floats whose NaN it leaves out of this function in a copy of the array. */
static int copies_without_nan(const gpr_request *request)
{
    const int may_be_nan = glue_is_inexact(request->dtype) && glue_is_numpys(request->dtype);

    return request->skip_nan && may_be_nan && request->op != GPR_OP_MIN &&
           request->op != GPR_OP_MAX;
}

static int is_c_order(int ndim, const int64_t *shape, const int64_t *steps)
{
    int64_t inner = 0;

    for (int i = ndim - 1; i >= 0; i--) {
        if (shape[i] == 1) continue;
        if (steps[i] == 0 || llabs(steps[i]) < inner) return 0;
        inner = llabs(steps[i]);
    }
    return 1;
}

/* Per axis of the array, from values in a request's order. */
static const int64_t *put_back(const glue_call *call, const int64_t *from, int64_t *to)
{
    if (from == NULL) return NULL;
    for (int i = 0; i < call->request.ndim; i++) to[call->axes[i]] = from[i];
    return to;
}

/* The order that NumPy's iterator finds; whether it is another than C's. */
static int find_iterator_order(const glue_call *call, int ndim, const int64_t *shape,
                               const int64_t *steps, const int64_t *mask_steps, int *order)
{
    const gpr_request *request = &call->request;
    operands all = {ndim, 0, shape, {{0}}};
    int64_t made[GPR_MAX_NDIM];

    const int copies = copies_without_nan(request) ||
                       (request->op == GPR_OP_COUNT_NONZERO && request->dtype != GPR_BOOL);
    if (copies) {
        copy_in_order(ndim, shape, steps, made);
        steps = made;
    }
    add_operand(&all, steps);
    add_operand(&all, mask_steps);
    if (!copies && (request->op == GPR_OP_VAR || request->op == GPR_OP_STD)) {
        subtract_means(call, &all, made);
        all.count = 0;
        add_operand(&all, made);
        add_operand(&all, mask_steps);
    }
    sort_axes(&all, order);
    for (int i = 0; i < ndim; i++) {
        if (order[i] != ndim - 1 - i) return 1;
    }
    return 0;
}

int glue_find_order(const glue_call *call, int ndim, const int64_t *shape, const int64_t *steps,
                    const int64_t *mask_steps, int *order)
{
    int kept = 0;

    for (int i = 0; i < ndim; i++) kept += !call->reduced[i] && shape[i] != 1;
    if (kept < 2 || is_c_order(ndim, shape, steps)) return 0;
    if (call->request.op == GPR_OP_ARGMIN || call->request.op == GPR_OP_ARGMAX) return 0;
    return find_iterator_order(call, ndim, shape, steps, mask_steps, order);
}

int glue_find_result_order(const glue_call *call, int *order)
{
    const gpr_request *request = &call->request;
    int64_t shape[GPR_MAX_NDIM], steps[GPR_MAX_NDIM], mask_steps[GPR_MAX_NDIM];
    int axes[GPR_MAX_NDIM], places[GPR_MAX_NDIM], at = 0;

    if (call->result_ndim < 2 || request->strides == NULL) return 0;
    (void)put_back(call, request->shape, shape);
    (void)put_back(call, request->strides, steps);
    const int64_t *masked =
        request->mask != NULL ? put_back(call, request->mask_strides, mask_steps) : NULL;
    if (!glue_find_order(call, request->ndim, shape, steps, masked, axes)) return 0;
    if (call->resolution.outputs > 1) order[at++] = 0;
    for (int i = 0, place = at; i < request->ndim; i++)
        places[i] = !call->reduced[i] || call->keepdims ? place++ : -1;
    for (int i = request->ndim - 1; i >= 0; i--) {
        if (places[axes[i]] >= 0) order[at++] = places[axes[i]];
    }
    return 1;
}
