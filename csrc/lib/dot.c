/* Sums of products: from a request to a result. */
#include "../cpu/cpu.h"
#include "clock.h"
#include "reduce.h"
#include "registry.h"
#include "status.h"

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
    if (request->kernel >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", request->kernel);
    if (request->kernel >= 0 && (gpr_kernel_rows[request->kernel].flags & GPR_SUMS_EXACTLY) == 0 &&
        request->kernel != GPR_KERNEL_auto)
        return gpr_fail(GPR_ERROR_VALUE, "kernel '%s' has no dot: 'exact' does, which is 'auto' here",
                        gpr_kernel_rows[request->kernel].name);
    if (request->device < GPR_DEVICE_CUDA)
        return gpr_fail(GPR_ERROR_VALUE, "unknown device number %d", request->device);
    if (request->device >= 0 || request->device == GPR_DEVICE_CUDA)
        return gpr_fail(GPR_ERROR_VALUE,
                        "dot runs on the CPU alone: pass device='cpu', with device arrays copied to the host");
    return GPR_OK;
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

gpr_status gpr_dot(const gpr_dot_request *request)
{
    const double start = gpr_seconds();
    const gpr_dtype result = request->compute == GPR_DTYPE_DEFAULT ? request->factor : request->compute;
    gpr_run run = {.device = GPR_DEVICE_CPU, .variant = gpr_cpu_isa(), .kernel = GPR_KERNEL_exact, .chunks = 1};
    gpr_exact_part parts[GPR_EXACT_PARTS];
    gpr_view a, b;
    gpr_status status = GPR_OK;

    GPR_TRY(check_way(request));
    GPR_TRY(check_types(request, result));
    GPR_TRY(view_factor(&request->a, request->n, &a));
    GPR_TRY(view_factor(&request->b, request->n, &b));
    GPR_TRY(gpr_cpu_multiply_exactly(&a, &b, request->factor, request->interrupted, request->interrupted_arg, parts));
    gpr_exact_finish(parts, request->factor, 0, result, request->result);
    run.elements = request->n;
    run.bytes = request->n * (a.bytes + b.bytes);
    run.block_size = run.grid_size = 1;
    for (int i = 0; i < GPR_STAGE_COUNT; i++) run.stage_seconds[i] = -1;
    run.seconds = gpr_seconds() - start;
    gpr_record_run(&run);
done:
    return status;
}
