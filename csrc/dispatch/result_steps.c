/* Copies results to where their steps lead; see result_steps.h. */
#include "dispatch/result_steps.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/registry.h"
#include "lib/base/status.h"

gpr_status gpr_check_interrupt(int (*interrupted)(void *), void *arg)
{
    if (interrupted == NULL || interrupted(arg) == 0) return GPR_OK;
    return gpr_fail(GPR_ERROR_INTERRUPTED, "the reduction was interrupted");
}

int gpr_results_have_steps(const gpr_request *request, const gpr_rule *rule, gpr_result_axes *axes)
{
    const int kept = request->ndim - request->reduced;
    int64_t step = 0;
    int differs = 0;

    if (request->result_strides == NULL || request->result_on_device) return 0;
    axes->count = 0;
    axes->bytes = gpr_dtype_bytes(rule->result);
    axes->results = 1;
    if (rule->outputs > 1) axes->shape[axes->count++] = rule->outputs;
    for (int i = 0; i < kept; i++) axes->shape[axes->count++] = request->shape[i];
    step = (int64_t)axes->bytes;
    for (int i = axes->count - 1; i >= 0; i--) {
        differs |= axes->shape[i] != 1 && request->result_strides[i] != step;
        axes->results *= (uint64_t)axes->shape[i];
        step *= axes->shape[i];
    }
    return differs;
}

/* Copies `count` contiguous results to memory by steps. Compilers make vectors of a loop whose step
 * is one result backwards, if they know that. */
#define COPY_RESULTS(label, bytes)                                                               \
    label:                                                                                       \
    if (step == -(int64_t)(bytes))                                                               \
        for (int64_t i = 0; i < count; i++) memcpy(to - i * (bytes), from + i * (bytes), bytes); \
    else                                                                                         \
        for (int64_t i = 0; i < count; i++) memcpy(to + i * step, from + i * (bytes), bytes);    \
    break;
static void copy_results(char *to, int64_t step, const char *from, int64_t count, uint64_t bytes)
{
    if (step == (int64_t)bytes) {
        memcpy(to, from, (uint64_t)count * bytes);
        return;
    }
    switch (bytes) {
        COPY_RESULTS(case 1, 1)
        COPY_RESULTS(case 2, 2)
        COPY_RESULTS(case 4, 4)
        COPY_RESULTS(case 8, 8)
        COPY_RESULTS(default, 16) /* there are no others */
    }
}

gpr_status gpr_spread_results(const gpr_request *request, const gpr_result_axes *axes,
                              const char *results)
{
    int last = axes->count - 1;
    const int64_t step = request->result_strides[last];
    int64_t run = axes->shape[last]; /* of axes that continue each other */
    int64_t index[GPR_MAX_NDIM + 1] = {0};
    char *to = request->result;
    int64_t unchecked = 0;
    gpr_status status = GPR_OK;

    for (; last > 0 && request->result_strides[last - 1] == run * step; last--)
        run *= axes->shape[last - 1];
    for (uint64_t done = 0; done < axes->results; done += (uint64_t)run) {
        for (int64_t i = 0; i < run; i += GPR_MANY_RESULTS) {
            const int64_t count = run - i < GPR_MANY_RESULTS ? run - i : GPR_MANY_RESULTS;

            copy_results(to + i * step, step, results + (done + (uint64_t)i) * axes->bytes, count,
                         axes->bytes);
            unchecked += count;
            if (unchecked < GPR_MANY_RESULTS) continue;
            GPR_TRY(gpr_check_interrupt(request->interrupted, request->interrupted_arg));
            unchecked = 0;
        }
        for (int a = last - 1; a >= 0; a--) {
            to += request->result_strides[a];
            if (++index[a] < axes->shape[a]) break;
            to -= axes->shape[a] * request->result_strides[a];
            index[a] = 0;
        }
    }
done:
    return status;
}

gpr_status gpr_run_with_steps(const gpr_request *request, gpr_resolved *call,
                              const gpr_result_axes *axes,
                              gpr_status (*run_call)(const gpr_resolved *, gpr_run *), gpr_run *run)
{
    char *results = malloc(axes->results * axes->bytes);
    gpr_status status = GPR_OK;

    if (results == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    call->result = results;
    status = run_call(call, run);
    if (status == GPR_OK) status = gpr_spread_results(request, axes, results);
    free(results);
    return status;
}
