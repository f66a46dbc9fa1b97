/* From a request to a result: results of no elements, results with steps, the backend, the record
 * of the run. */
#include "dispatch/reduce.h"

#include <string.h>

#include "cpu/cpu.h"
#include "dispatch/axis_order.h"
#include "dispatch/broadcast_rows.h"
#include "dispatch/resolve.h"
#include "dispatch/result_steps.h"
#include "lib/base/clock.h"
#include "lib/base/status.h"
#include "lib/driver/device.h"
#include "lib/rules/accumulators.h"
#include "lib/run/device_path.h"
#include "lib/run/host_pipeline.h"

static _Thread_local gpr_run last_run;
static _Thread_local int has_run;

const gpr_run *gpr_last_run(void)
{
    return has_run ? &last_run : NULL;
}

void gpr_begin_run(gpr_run *run, int kernel)
{
    *run = (gpr_run){.device = GPR_DEVICE_CPU, .kernel = kernel, .variant = "none"};
    for (int i = 0; i < GPR_STAGE_COUNT; i++) run->stage_seconds[i] = -1;
    run->seconds = gpr_seconds(); /* when it began */
}

void gpr_end_run(gpr_run *run)
{
    run->seconds = gpr_seconds() - run->seconds;
    last_run = *run;
    has_run = 1;
}

void gpr_forget_run(void)
{
    has_run = 0;
}

/* ---------------------------------------------------------------- reducing ------------------- */

static gpr_status check_identity(const gpr_operator_row *row, gpr_acc_kind acc_kind)
{
    if (row->has_identity) return GPR_OK;
    if (acc_kind == GPR_ACC_INDEXED)
        return gpr_fail(GPR_ERROR_VALUE, "attempt to get %s of an empty sequence", row->ufunc);
    return gpr_fail(GPR_ERROR_VALUE,
                    "zero-size array to reduction operation %s which has no identity", row->ufunc);
}

/* Rows without elements become the operator's identity, if it has one. */
static gpr_status fill_empty(const gpr_resolved *call)
{
    const gpr_rule *rule = &call->rule;
    const gpr_value identity = gpr_identity(rule->fold, rule->compute, rule->host_acc);
    const size_t bytes = gpr_dtype_bytes(rule->result);
    uint8_t packed[sizeof identity];
    char *at = call->result;
    gpr_status status = GPR_OK;

    gpr_write_acc(rule->acc_kind, rule->host_acc, &identity, packed);
    gpr_finish_results(rule, rule->host_acc, packed, 1, 0, at, 0);
    for (uint64_t i = 1; i < call->view.rows; i++) {
        if (i % GPR_MANY_RESULTS == 0)
            GPR_TRY(gpr_check_interrupt(call->interrupted, call->interrupted_arg));
        memcpy(at + i * bytes, at, bytes);
    }
done:
    return status;
}

/* One reduction of one row or more, by the backend that the call comes to. */
static gpr_status run_on_backend(const gpr_resolved *call, gpr_run *run)
{
    if (call->on_device) return gpr_array_reduce(call, run);
    if (call->device >= 0) return gpr_stream_reduce(call, run);
    run->chunks = 1;
    return gpr_cpu_reduce(call, run);
}

/* The same of rows that may have no elements, or may be the same. */
static gpr_status run_call(const gpr_resolved *call, gpr_run *run)
{
    if (call->view.n == 0 && !call->result_on_device) return fill_empty(call);
    const uint64_t axes = gpr_broadcast_axes(call);

    return axes != 0 ? gpr_reduce_distinct_rows(call, axes, run_on_backend, run)
                     : run_on_backend(call, run);
}

/* ---------------------------------------------------------------- the calls ------------------ */

/* Elements of the array, also those that are not read again. */
static uint64_t elements_of(const gpr_request *request)
{
    uint64_t elements = 1;

    for (int i = 0; i < request->ndim; i++) elements *= (uint64_t)request->shape[i];
    return elements;
}

/* As `reduce`, on the CPU, of kept axes in the order of memory. Not inlined: its request would
 * enlarge the frame of every call. */
static __attribute__((noinline)) gpr_status reduce_in_order(const gpr_request *request,
                                                            gpr_resolved *call, gpr_run *run,
                                                            int *is_done)
{
    gpr_ordered_request ordered;
    gpr_result_axes axes;
    gpr_status status = GPR_OK;

    *is_done = gpr_order_kept_axes(request, &call->rule, &ordered);
    if (!*is_done) return GPR_OK;
    GPR_TRY(gpr_make_view(&ordered.request, &call->rule, &call->view));
    (void)gpr_results_have_steps(&ordered.request, &call->rule, &axes);
    status = gpr_run_with_steps(&ordered.request, call, &axes, run_call, run);
done:
    return status;
}

static gpr_status reduce(const gpr_request *request, gpr_run *run)
{
    gpr_resolved call;
    gpr_result_axes axes;
    int is_done = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_resolve_call(request, &call));
    const gpr_view *view = &call.view;
    run->elements = elements_of(request);
    run->bytes = run->elements * view->bytes;
    /* Without elements there is no result, even if there are no rows: as in NumPy. */
    if (view->n == 0) GPR_TRY(check_identity(&gpr_operator_rows[request->op], call.rule.acc_kind));
    if (view->rows == 0) return GPR_OK;
    if (call.device == GPR_DEVICE_CPU && !call.on_device && view->n > 0 && view->outer > 0)
        GPR_TRY(reduce_in_order(request, &call, run, &is_done));
    if (is_done) return GPR_OK;
    status = gpr_results_have_steps(request, &call.rule, &axes)
                 ? gpr_run_with_steps(request, &call, &axes, run_call, run)
                 : run_call(&call, run);
done:
    return status;
}

gpr_status gpr_reduce(const gpr_request *request)
{
    gpr_run run;
    gpr_status status = GPR_OK;

    gpr_begin_run(&run, request->kernel < 0 ? GPR_KERNEL_auto : request->kernel);
    GPR_TRY(reduce(request, &run));
    gpr_end_run(&run);
done:
    return status;
}

gpr_status gpr_reduce_array(gpr_operator op, gpr_dtype dtype, const void *data, uint64_t n,
                            void *result)
{
    const int64_t shape = (int64_t)n;
    gpr_request request = {.op = op,
                           .dtype = dtype,
                           .compute = GPR_DTYPE_DEFAULT,
                           .ndim = 1,
                           .reduced = 1,
                           .shape = &shape,
                           .data = data,
                           .kernel = -1,
                           .device = GPR_DEVICE_DEFAULT,
                           .result = result};

    if (n > INT64_MAX) return gpr_fail(GPR_ERROR_VALUE, "an array has at most 2^63 - 1 elements");
    return gpr_reduce(&request);
}

int gpr_count_few(gpr_dtype dtype, const void *data, uint64_t n, int kernel, int device,
                  int64_t *count)
{
    if (device != GPR_DEVICE_CPU && gpr_cuda_usable()) return 0;
    const double start = gpr_seconds();

    *count = (int64_t)gpr_cpu_count_nonzero(dtype, data, n);
    last_run = (gpr_run){.device = GPR_DEVICE_CPU,
                         .kernel = kernel < 0 ? GPR_KERNEL_auto : kernel,
                         .variant = gpr_cpu_isa(),
                         .block_size = 1,
                         .grid_size = 1,
                         .chunks = 1,
                         .elements = n,
                         .bytes = n * gpr_dtype_bytes(dtype)};
    for (int i = 0; i < GPR_STAGE_COUNT; i++) last_run.stage_seconds[i] = -1;
    last_run.seconds = gpr_seconds() - start;
    has_run = 1;
    return 1;
}
