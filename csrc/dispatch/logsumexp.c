/* Logarithms of sums of exponentials: from a request to a result. */
#include "cpu/cpu.h"
#include "dispatch/reduce.h"
#include "dispatch/resolve.h"
#include "lib/base/status.h"

static gpr_dtype result_of(const gpr_request *request)
{
    if (request->compute != GPR_DTYPE_DEFAULT) return request->compute;
    return gpr_kind_of(request->dtype) == GPR_KIND_FLOAT ? request->dtype : GPR_FLOAT64;
}

static gpr_status check(const gpr_request *request)
{
    if ((unsigned)request->dtype >= GPR_DTYPE_COUNT)
        return gpr_fail(GPR_ERROR_TYPE, "no dtype has number %d", (int)request->dtype);
    if (gpr_kind_of(request->dtype) == GPR_KIND_COMPLEX)
        return gpr_fail(GPR_ERROR_TYPE,
                        "logsumexp is not defined for dtype %s: it takes real "
                        "numbers",
                        gpr_dtype_rows[request->dtype].name);
    if (request->compute != GPR_DTYPE_DEFAULT && ((unsigned)request->compute >= GPR_DTYPE_COUNT ||
                                                  gpr_kind_of(request->compute) != GPR_KIND_FLOAT))
        return gpr_fail(GPR_ERROR_TYPE, "results of logsumexp are of a float dtype");
    if (request->on_device || request->result_on_device || request->device >= 0 ||
        request->device == GPR_DEVICE_CUDA)
        return gpr_fail(GPR_ERROR_VALUE, "logsumexp of the library runs on the CPU, with arrays of "
                                         "the host");
    if (request->result_strides != NULL)
        return gpr_fail(GPR_ERROR_VALUE, "results of logsumexp follow each other in C order");
    return GPR_OK;
}

static gpr_status compute(const gpr_request *request, gpr_run *run)
{
    gpr_resolved call = {.device = GPR_DEVICE_CPU,
                         .result = request->result,
                         .interrupted = request->interrupted,
                         .interrupted_arg = request->interrupted_arg};
    gpr_status status = GPR_OK;

    GPR_TRY(check(request));
    /* As far as axes go it is a sum. */
    GPR_TRY(gpr_make_rule(GPR_OP_SUM, request->dtype, GPR_FLOAT64, &call.rule));
    GPR_TRY(gpr_make_view(request, &call.rule, &call.view));
    run->elements = call.view.rows * call.view.n;
    run->bytes = run->elements * call.view.bytes;
    run->chunks = 1;
    GPR_TRY(gpr_cpu_logsumexp(&call, result_of(request), run));
done:
    return status;
}

gpr_status gpr_logsumexp(const gpr_request *request)
{
    gpr_run run;
    gpr_status status = GPR_OK;

    gpr_begin_run(&run, GPR_KERNEL_auto);
    GPR_TRY(compute(request, &run));
    gpr_end_run(&run);
done:
    return status;
}
