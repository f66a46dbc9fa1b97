/* Sums of products: from a request to a result. */
#include "cpu/cpu.h"
#include "dispatch/device_select.h"
#include "dispatch/reduce.h"
#include "dispatch/resolve.h"
#include "lib/base/clock.h"
#include "lib/run/device_path.h"
#include "lib/run/host_pipeline.h"
#include "lib/run/launch.h"

static gpr_status check_way(const gpr_dot_request *request)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[GPR_KERNEL_exact];
    gpr_status status = GPR_OK;

    if (request->kernel >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", request->kernel);
    if (request->kernel >= 0 && request->kernel != GPR_KERNEL_exact &&
        request->kernel != GPR_KERNEL_auto)
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' has no dot: 'exact' does, which is 'auto' here",
                        gpr_kernel_rows[request->kernel].name);
    if (request->block_size != 0) GPR_TRY(gpr_check_block_size(row, request->block_size));
    if (request->grid_size != 0) GPR_TRY(gpr_check_grid_size(row));
done:
    return status;
}

/* A factor as a request of one row, for checks of one array. */
static gpr_request request_of(const gpr_dot_request *request, const gpr_factor *factor,
                              const int64_t *shape)
{
    return (gpr_request){.dtype = factor->dtype,
                         .ndim = 1,
                         .reduced = 1,
                         .shape = shape,
                         .strides = &factor->stride,
                         .data = factor->data,
                         .byteswapped = factor->byteswapped,
                         .on_device = request->on_device,
                         .result = request->result,
                         .result_on_device = request->result_on_device};
}

/* The record of a call, and in it the two arrays as views of one row, read side by side. */
static gpr_status resolve(const gpr_dot_request *request, gpr_resolved *call, gpr_view *second)
{
    const int64_t shape = request->n <= INT64_MAX ? (int64_t)request->n : -1;
    const gpr_request a = request_of(request, &request->a, &shape),
                      b = request_of(request, &request->b, &shape);
    gpr_status status = GPR_OK;

    *call = (gpr_resolved){.kernel = GPR_KERNEL_exact,
                           .second = second,
                           .on_device = request->on_device,
                           .block_size = request->block_size,
                           .grid_size = request->grid_size,
                           .stream = request->stream,
                           .result = request->result,
                           .result_on_device = request->result_on_device,
                           .interrupted = request->interrupted,
                           .interrupted_arg = request->interrupted_arg};
    GPR_TRY(gpr_make_product_rule(request->a.dtype, request->b.dtype, request->factor,
                                  request->compute, &call->rule));
    GPR_TRY(gpr_make_view(&a, &call->rule, &call->view));
    GPR_TRY(gpr_make_view(&b, &call->rule, second));
    GPR_TRY(gpr_select_device(request->device, &call->view, &call->rule, &call->device));
    GPR_TRY(gpr_check_places(&a, call->device));
    if (call->device >= 0) GPR_TRY(gpr_cuda_available());
    if (request->on_device) {
        GPR_TRY(gpr_check_device_array(&a, &call->view, &call->rule));
        GPR_TRY(gpr_check_device_array(&b, second, &call->rule));
    }
done:
    return status;
}

/* The sum of no products is that of no elements. On the device the planner writes it. */
static gpr_status sum_nothing(const gpr_dot_request *request, gpr_dtype result)
{
    const int64_t shape = 0;
    const gpr_request empty = {.op = GPR_OP_SUM,
                               .dtype = result,
                               .compute = result,
                               .ndim = 1,
                               .reduced = 1,
                               .shape = &shape,
                               .data = request->a.data,
                               .on_device = 1,
                               .kernel = GPR_KERNEL_fast,
                               .device = request->device,
                               .stream = request->stream,
                               .result = request->result,
                               .result_on_device = 1};

    return gpr_reduce(&empty);
}

static gpr_status multiply(const gpr_dot_request *request, gpr_run *run)
{
    gpr_resolved call;
    gpr_exact_part parts[GPR_EXACT_PARTS];
    gpr_view second;
    gpr_status status = GPR_OK;

    GPR_TRY(resolve(request, &call, &second));
    run->bytes = request->n * (call.view.bytes + second.bytes);
    if (request->n == 0 && request->result_on_device) {
        GPR_TRY(sum_nothing(request, call.rule.result));
    } else if (request->n == 0 || call.device == GPR_DEVICE_CPU) {
        run->variant = gpr_cpu_isa();
        run->chunks = run->block_size = run->grid_size = 1;
        GPR_TRY(gpr_cpu_multiply_exactly(&call.view, &second, request->factor, request->interrupted,
                                         request->interrupted_arg, parts));
        gpr_finish_exact(&call.rule, parts, request->result);
    } else if (request->on_device) {
        GPR_TRY(gpr_array_reduce(&call, run));
    } else {
        GPR_TRY(gpr_stream_reduce(&call, run));
    }
done:
    return status;
}

gpr_status gpr_dot(const gpr_dot_request *request)
{
    const double start = gpr_seconds();
    gpr_run run = {.device = GPR_DEVICE_CPU,
                   .kernel = GPR_KERNEL_exact,
                   .variant = "none",
                   .elements = request->n};
    gpr_status status = GPR_OK;

    for (int i = 0; i < GPR_STAGE_COUNT; i++) run.stage_seconds[i] = -1;
    GPR_TRY(check_way(request));
    GPR_TRY(multiply(request, &run));
    run.seconds = gpr_seconds() - start;
    gpr_record_run(&run);
done:
    return status;
}

gpr_status gpr_compile_dot(gpr_dtype a, gpr_dtype b, gpr_dtype factor, gpr_dtype compute,
                           uint32_t block_size, int cc, uint64_t *machine_code_bytes)
{
    const gpr_device_facts facts = {
        .cc = cc, .multiprocessors = 1, .threads_per_multiprocessor = 1024};
    uint64_t unasked = 0;
    gpr_rule rule;
    gpr_layout layout;
    gpr_plan plan;
    gpr_status status = GPR_OK;

    if (machine_code_bytes != NULL) *machine_code_bytes = 0;
    GPR_TRY(gpr_make_product_rule(a, b, factor, compute, &rule));
    gpr_contiguous_layout(1, 1, &layout);
    GPR_TRY(gpr_make_plan(GPR_KERNEL_exact, &rule, &layout, 1, block_size, 0, &facts, &plan));
    for (int finishes = 0; finishes <= 1; finishes++) {
        const gpr_kernel_traits traits = gpr_plan_traits(&plan, &rule, finishes);
        GPR_TRY(gpr_add_machine_code(&traits, cc,
                                     machine_code_bytes != NULL ? machine_code_bytes : &unasked));
    }
done:
    return status;
}
