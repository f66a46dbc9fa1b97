/* Sums of products: from a request to a result. */
#include "cpu/cpu.h"
#include "dispatch/reduce.h"
#include "lib/base/clock.h"
#include "lib/driver/device.h"
#include "lib/run/device_path.h"
#include "lib/run/host_pipeline.h"
#include "lib/run/launch.h"

static int valid_dtype(gpr_dtype dtype)
{
    return (int)dtype >= 0 && (int)dtype < GPR_DTYPE_COUNT;
}

/* How much an exact sum's result must be able to hold: integers, then fractions, then two numbers. */
static int rank_of(gpr_dtype dtype)
{
    switch (gpr_dtype_rows[dtype].kind) {
    case GPR_KIND_COMPLEX: return 2;
    case GPR_KIND_FLOAT: return 1;
    default: return 0;
    }
}

static gpr_status check_types(const gpr_dot_request *request, gpr_dtype result)
{
    const gpr_dtype factor = request->factor, dtypes[] = {request->a.dtype, request->b.dtype, factor, result};

    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (!valid_dtype(dtypes[i])) return gpr_fail(GPR_ERROR_VALUE, "there is no dtype %d", (int)dtypes[i]);
    if (rank_of(result) < rank_of(factor) || (result == GPR_BOOL && factor != GPR_BOOL))
        return gpr_fail(GPR_ERROR_TYPE, "dot does not make a sum of products of %s one of %s: convert the elements",
                        gpr_dtype_rows[factor].name, gpr_dtype_rows[result].name);
    return GPR_OK;
}

static gpr_status check_way(const gpr_dot_request *request)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[GPR_KERNEL_exact];
    gpr_status status = GPR_OK;

    if (request->kernel >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", request->kernel);
    if (request->kernel >= 0 && request->kernel != GPR_KERNEL_exact && request->kernel != GPR_KERNEL_auto)
        return gpr_fail(GPR_ERROR_VALUE, "kernel '%s' has no dot: 'exact' does, which is 'auto' here",
                        gpr_kernel_rows[request->kernel].name);
    if (request->block_size != 0) GPR_TRY(gpr_check_block_size(row, request->block_size));
    if (request->grid_size != 0) GPR_TRY(gpr_check_grid_size(row));
done:
    return status;
}

/* The factors as a view of one row, walked as they are given. */
static gpr_status view_factor(const gpr_factor *factor, uint64_t n, gpr_view *view)
{
    const int64_t shape = n <= INT64_MAX ? (int64_t)n : -1;
    /* An operator that asks for positions: rows of others may be walked backwards. */
    const gpr_request request = {.op = GPR_OP_ARGMAX,
                                 .dtype = factor->dtype,
                                 .compute = GPR_DTYPE_DEFAULT,
                                 .ndim = 1,
                                 .reduced = 1,
                                 .shape = &shape,
                                 .strides = &factor->stride,
                                 .data = factor->data,
                                 .byteswapped = factor->byteswapped};

    return gpr_make_view(&request, view);
}

/* The same pairs as a sum of the first factors: what the paths of one array ask of a request. */
static gpr_request as_reduction(const gpr_dot_request *request, const int64_t *shape)
{
    return (gpr_request){.op = GPR_OP_SUM,
                         .dtype = request->a.dtype,
                         .compute = GPR_DTYPE_DEFAULT,
                         .ndim = 1,
                         .reduced = 1,
                         .shape = shape,
                         .strides = &request->a.stride,
                         .data = request->a.data,
                         .on_device = request->on_device,
                         .kernel = GPR_KERNEL_exact,
                         .device = request->device,
                         .block_size = request->block_size,
                         .grid_size = request->grid_size,
                         .stream = request->stream,
                         .result = request->result,
                         .result_on_device = request->result_on_device,
                         .interrupted = request->interrupted,
                         .interrupted_arg = request->interrupted_arg};
}

static gpr_rule make_rule(const gpr_dot_request *request, gpr_dtype result)
{
    return (gpr_rule){.op = GPR_OP_SUM,
                      .fold = GPR_FOLD_exact_products,
                      .acc_kind = GPR_ACC_EXACT_PRODUCTS,
                      .element = request->a.dtype,
                      .second = request->b.dtype,
                      .compute = request->factor,
                      .device_acc = request->factor,
                      .host_acc = request->factor,
                      .result = result,
                      .outputs = 1};
}

/* The sum of no products is that of no elements. On the device the planner writes it. */
static gpr_status sum_nothing(const gpr_request *reduction, gpr_dtype result)
{
    gpr_request empty = *reduction;

    empty.dtype = empty.compute = result;
    empty.kernel = GPR_KERNEL_fast;
    empty.block_size = empty.grid_size = 0;
    return gpr_reduce(&empty);
}

static gpr_status multiply(const gpr_dot_request *request, gpr_dtype result, int device, gpr_run *run)
{
    const int64_t shape = (int64_t)request->n;
    const gpr_request reduction = as_reduction(request, &shape);
    gpr_resolved resolved = {.rule = make_rule(request, result), .kernel = GPR_KERNEL_exact, .device = device};
    const gpr_view *a = &resolved.view;
    gpr_exact_part parts[GPR_EXACT_PARTS];
    gpr_view b;
    gpr_status status = GPR_OK;

    GPR_TRY(view_factor(&request->a, request->n, &resolved.view));
    GPR_TRY(view_factor(&request->b, request->n, &b));
    GPR_TRY(gpr_check_places(&reduction, device));
    if (device >= 0) GPR_TRY(gpr_cuda_available());
    if (request->on_device) {
        GPR_TRY(gpr_check_array(&reduction, a, &resolved.rule));
        GPR_TRY(gpr_check_array(&reduction, &b, &resolved.rule));
    }
    run->bytes = request->n * (a->bytes + b.bytes);
    if (request->n == 0 && request->result_on_device) {
        GPR_TRY(sum_nothing(&reduction, result));
    } else if (request->n == 0 || device == GPR_DEVICE_CPU) {
        run->variant = gpr_cpu_isa();
        run->chunks = run->block_size = run->grid_size = 1;
        GPR_TRY(
            gpr_cpu_multiply_exactly(a, &b, request->factor, request->interrupted, request->interrupted_arg, parts));
        gpr_finish_exact(&resolved.rule, parts, request->result);
    } else if (request->on_device) {
        GPR_TRY(gpr_array_reduce(&reduction, &resolved, &b, run));
    } else {
        GPR_TRY(gpr_stream_reduce(&reduction, &resolved, &b, run));
    }
done:
    return status;
}

gpr_status gpr_dot(const gpr_dot_request *request)
{
    const double start = gpr_seconds();
    const gpr_dtype result = request->compute == GPR_DTYPE_DEFAULT ? request->factor : request->compute;
    gpr_run run = {.device = GPR_DEVICE_CPU, .kernel = GPR_KERNEL_exact, .variant = "none", .elements = request->n};
    int device = GPR_DEVICE_CPU;
    gpr_status status = GPR_OK;

    for (int i = 0; i < GPR_STAGE_COUNT; i++) run.stage_seconds[i] = -1;
    GPR_TRY(check_way(request));
    GPR_TRY(check_types(request, result));
    GPR_TRY(gpr_resolve_device(request->device,
                               request->n * (gpr_dtype_bytes(request->a.dtype) + gpr_dtype_bytes(request->b.dtype)),
                               &device));
    GPR_TRY(multiply(request, result, device, &run));
    run.seconds = gpr_seconds() - start;
    gpr_record_run(&run);
done:
    return status;
}

gpr_status gpr_compile_dot(gpr_dtype a, gpr_dtype b, gpr_dtype factor, gpr_dtype compute, uint32_t block_size, int cc,
                           uint64_t *machine_code_bytes)
{
    const gpr_dot_request request = {.a.dtype = a, .b.dtype = b, .factor = factor, .compute = compute};
    const gpr_dtype result = compute == GPR_DTYPE_DEFAULT ? factor : compute;
    const gpr_device_facts facts = {.cc = cc, .multiprocessors = 1, .threads_per_multiprocessor = 1024};
    uint64_t unasked = 0;
    gpr_layout layout;
    gpr_plan plan;
    gpr_status status = GPR_OK;

    if (machine_code_bytes != NULL) *machine_code_bytes = 0;
    GPR_TRY(check_types(&request, result));
    const gpr_rule rule = make_rule(&request, result);
    gpr_contiguous_layout(1, 1, &layout);
    GPR_TRY(gpr_make_plan(GPR_KERNEL_exact, &rule, &layout, block_size, 0, &facts, &plan));
    for (int finishes = 0; finishes <= 1; finishes++) {
        const gpr_kernel_traits traits = gpr_plan_traits(&plan, &rule, finishes);
        GPR_TRY(gpr_add_machine_code(&traits, cc, machine_code_bytes != NULL ? machine_code_bytes : &unasked));
    }
done:
    return status;
}
