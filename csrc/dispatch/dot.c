/* Sums of products: from a request to a result. */
#include <stdlib.h>

#include "cpu/cpu.h"
#include "dispatch/axis_order.h"
#include "dispatch/broadcast_rows.h"
#include "dispatch/device_select.h"
#include "dispatch/reduce.h"
#include "dispatch/resolve.h"
#include "dispatch/result_steps.h"
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

/* Whether the kernel of host arrays, and of two arrays of one axis, serves the call. */
static int is_plain(const gpr_dot_request *request)
{
    return request->shape == NULL && request->products == GPR_PRODUCTS && !request->conjugate &&
           !request->root;
}

/* A call's arrays, and descriptions of arrays of one axis that replace the caller's. */
typedef struct factors {
    gpr_request a, b;
    gpr_view second;
    int64_t shape;
} factors;

/* A factor as a request, for checks of one array. */
static gpr_request request_of(const gpr_dot_request *request, const gpr_factor *factor,
                              const int64_t *shape)
{
    const int has_shape = request->shape != NULL;

    return (gpr_request){.dtype = factor->dtype,
                         .ndim = has_shape ? request->ndim : 1,
                         .reduced = has_shape ? request->reduced : 1,
                         .shape = has_shape ? request->shape : shape,
                         .strides = has_shape ? factor->strides : &factor->stride,
                         .data = factor->data,
                         .byteswapped = factor->byteswapped,
                         .on_device = request->on_device,
                         .result = request->result,
                         .result_strides = request->result_strides,
                         .result_on_device = request->result_on_device};
}

/* The device of a call that is not plain: the arrays', or the CPU. */
static gpr_status select_device(const gpr_dot_request *request, gpr_resolved *call)
{
    const int names_gpu = request->device >= 0 || request->device == GPR_DEVICE_CUDA;

    if (is_plain(request) || request->on_device)
        return gpr_select_device(request->device, &call->view, &call->rule, &call->device);
    call->device = GPR_DEVICE_CPU;
    if (names_gpu)
        return gpr_fail(GPR_ERROR_VALUE,
                        "products of host arrays are summed along axes on the CPU: pass "
                        "device=\"cpu\", or arrays in the memory of the GPU");
    return GPR_OK;
}

/* The views of both arrays, which are read side by side. */
static gpr_status make_views(const gpr_dot_request *request, gpr_resolved *call, factors *given)
{
    const int has_second = request->products == GPR_PRODUCTS,
              encoding = request->b.byteswapped ? GPR_SWAPPED : 0;
    gpr_status status = GPR_OK;

    if (is_plain(request)) {
        GPR_TRY(gpr_make_view(&given->a, &call->rule, &call->view));
        GPR_TRY(gpr_make_view(&given->b, &call->rule, &given->second));
        call->second = &given->second;
        return GPR_OK;
    }
    if (has_second) {
        given->a.mask = given->b.data;
        given->a.mask_strides = given->b.strides;
    }
    GPR_TRY(gpr_make_view(&given->a, &call->rule, &call->view));
    if (!has_second) return GPR_OK;
    if (request->on_device) {
        gpr_view first;
        gpr_copy_view(&first, &call->view);
        gpr_split_view(&first, request->b.dtype, encoding, &given->second);
    } else {
        gpr_split_view(&call->view, request->b.dtype, encoding, &given->second);
        call->second = &given->second;
    }
done:
    return status;
}

/* The record of a call. Not inlined, as its view would be in the frame of the whole call. */
static __attribute__((noinline)) gpr_status resolve(const gpr_dot_request *request,
                                                    gpr_resolved *call, factors *given)
{
    const int has_second = request->products == GPR_PRODUCTS;
    const gpr_factor *b = has_second ? &request->b : &request->a;
    gpr_status status = GPR_OK;

    given->shape = request->n <= INT64_MAX ? (int64_t)request->n : -1;
    given->a = request_of(request, &request->a, &given->shape);
    if (has_second) given->b = request_of(request, b, &given->shape);
    gpr_clear_call(call);
    call->kernel = GPR_KERNEL_exact;
    call->on_device = request->on_device;
    call->block_size = request->block_size;
    call->grid_size = request->grid_size;
    call->stream = request->stream;
    call->result = request->result;
    call->result_on_device = request->result_on_device;
    call->divisors = request->divisors;
    call->has_one_divisor = request->has_one_divisor;
    call->interrupted = request->interrupted;
    call->interrupted_arg = request->interrupted_arg;
    GPR_TRY(gpr_make_product_rule(request->a.dtype, b->dtype, request->factor, request->compute,
                                  &call->rule));
    GPR_TRY(gpr_choose_products(request->products, request->conjugate, request->root, &call->rule));
    GPR_TRY(make_views(request, call, given));
    GPR_TRY(select_device(request, call));
    GPR_TRY(gpr_check_places(&given->a, call->device));
    if (call->device >= 0) GPR_TRY(gpr_cuda_available());
    if (request->on_device) {
        GPR_TRY(gpr_check_device_array(&given->a, &call->view, &call->rule));
        if (has_second) GPR_TRY(gpr_check_device_array(&given->b, &given->second, &call->rule));
    }
done:
    return status;
}

/* The sum of no products is that of no elements. On the device the planner writes it. */
static gpr_status sum_nothing(const gpr_dot_request *request, gpr_dtype result)
{
    const int64_t shape = 0;
    const int has_shape = request->shape != NULL;
    const gpr_request empty = {.op = GPR_OP_SUM,
                               .dtype = result,
                               .compute = result,
                               .ndim = has_shape ? request->ndim : 1,
                               .reduced = has_shape ? request->reduced : 1,
                               .shape = has_shape ? request->shape : &shape,
                               .data = request->a.data,
                               .on_device = 1,
                               .kernel = GPR_KERNEL_fast,
                               .device = request->device,
                               .stream = request->stream,
                               .result = request->result,
                               .result_strides = request->result_strides,
                               .result_on_device = 1};

    return gpr_reduce(&empty);
}

/* Divisors of results whose kept axes are in another order, from those in the caller's: `first` is
 * where the first result belongs in the caller's memory. */
static void order_divisors(const gpr_request *ordered, const gpr_result_axes *axes,
                           const char *first, const double *divisors, double *in_order)
{
    int64_t index[GPR_MAX_NDIM + 1] = {0};
    const char *at = ordered->result;

    for (uint64_t i = 0; i < axes->results; i++) {
        in_order[i] = divisors[(uint64_t)(at - first) / axes->bytes];
        for (int a = axes->count - 1; a >= 0; a--) {
            at += ordered->result_strides[a];
            if (++index[a] < axes->shape[a]) break;
            at -= axes->shape[a] * ordered->result_strides[a];
            index[a] = 0;
        }
    }
}

/* Sums products of host arrays, those of rows that are the same once. */
static gpr_status multiply_rows(const gpr_resolved *call, gpr_run *run)
{
    const uint64_t axes = gpr_broadcast_axes(call);

    return axes != 0 ? gpr_reduce_distinct_rows(call, axes, gpr_cpu_reduce_products, run)
                     : gpr_cpu_reduce_products(call, run);
}

/* Sums products of host arrays whose kept axes are brought into the order of memory. Not inlined:
 * its request would enlarge the frame of every call. */
static __attribute__((noinline)) gpr_status multiply_in_order(const factors *given,
                                                              gpr_resolved *call, gpr_run *run,
                                                              int *is_done)
{
    const int has_second = call->second != NULL,
              has_many = call->divisors != NULL && !call->has_one_divisor;
    gpr_ordered_request ordered;
    gpr_result_axes axes;
    gpr_view second;
    double *divisors = NULL;
    gpr_status status = GPR_OK;

    *is_done = gpr_order_kept_axes(&given->a, &call->rule, &ordered);
    if (!*is_done) return GPR_OK;
    GPR_TRY(gpr_make_view(&ordered.request, &call->rule, &call->view));
    if (has_second) {
        gpr_split_view(&call->view, given->second.dtype, given->second.encoding, &second);
        call->second = &second;
    }
    (void)gpr_results_have_steps(&ordered.request, &call->rule, &axes);
    if (has_many) {
        divisors = malloc(axes.results * sizeof *divisors);
        if (divisors == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
        order_divisors(&ordered.request, &axes, call->result, call->divisors, divisors);
        call->divisors = divisors;
    }
    status = gpr_run_with_steps(&ordered.request, call, &axes, multiply_rows, run);
done:
    free(divisors);
    return status;
}

static gpr_status multiply(const gpr_dot_request *request, gpr_run *run)
{
    gpr_resolved call;
    factors given;
    int is_done = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(resolve(request, &call, &given));
    const gpr_view *view = &call.view;
    run->elements = view->rows * view->n;
    run->bytes = run->elements * view->bytes;
    if (request->products == GPR_PRODUCTS) run->bytes += run->elements * given.second.bytes;
    if (view->rows == 0) return GPR_OK;
    if (view->n == 0 && request->result_on_device) {
        GPR_TRY(sum_nothing(request, call.rule.result));
    } else if (view->n == 0 || call.device == GPR_DEVICE_CPU) {
        run->chunks = 1;
        if (view->n > 0 && view->outer > 1)
            GPR_TRY(multiply_in_order(&given, &call, run, &is_done));
        if (!is_done) GPR_TRY(multiply_rows(&call, run));
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
    gpr_run run;
    gpr_status status = GPR_OK;

    gpr_begin_run(&run, GPR_KERNEL_exact);
    GPR_TRY(check_way(request));
    GPR_TRY(multiply(request, &run));
    gpr_end_run(&run);
done:
    return status;
}

/* Compiles the kernel of a rule and a layout: for results, and, with `for_partials`, for partials
 * too. */
static gpr_status compile(const gpr_rule *rule, const gpr_layout *layout, int for_partials,
                          uint32_t block_size, int cc, uint64_t *machine_code_bytes)
{
    const gpr_device_facts facts = {
        .cc = cc, .multiprocessors = 1, .threads_per_multiprocessor = 1024};
    uint64_t bytes = 0;
    gpr_plan plan;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_make_plan(GPR_KERNEL_exact, rule, layout, 1, block_size, 0, &facts, &plan));
    for (int finishes = for_partials ? 0 : 1; finishes <= 1; finishes++) {
        const gpr_kernel_traits traits = gpr_plan_traits(&plan, rule, finishes);
        GPR_TRY(gpr_add_machine_code(&traits, cc, &bytes));
    }
done:
    if (machine_code_bytes != NULL) *machine_code_bytes = bytes;
    return status;
}

gpr_status gpr_compile_dot(gpr_dtype a, gpr_dtype b, gpr_dtype factor, gpr_dtype compute,
                           uint32_t block_size, int cc, uint64_t *machine_code_bytes)
{
    gpr_rule rule;
    gpr_layout layout;
    gpr_status status = GPR_OK;

    if (machine_code_bytes != NULL) *machine_code_bytes = 0;
    GPR_TRY(gpr_make_product_rule(a, b, factor, compute, &rule));
    gpr_contiguous_layout(1, 1, &layout);
    GPR_TRY(compile(&rule, &layout, 1, block_size, cc, machine_code_bytes));
done:
    return status;
}

gpr_status gpr_compile_dot_along(const gpr_dot_request *request, int cc,
                                 uint64_t *machine_code_bytes)
{
    enum { ROWS = 2, ELEMENTS = 1000 };
    const gpr_dtype b = request->products == GPR_PRODUCTS ? request->b.dtype : request->a.dtype;
    gpr_rule rule;
    gpr_layout layout;
    gpr_status status = GPR_OK;

    if (machine_code_bytes != NULL) *machine_code_bytes = 0;
    GPR_TRY(gpr_make_product_rule(request->a.dtype, b, request->factor, request->compute, &rule));
    GPR_TRY(gpr_choose_products(request->products, request->conjugate, request->root, &rule));
    gpr_contiguous_layout(ROWS, ELEMENTS, &layout);
    if (request->products == GPR_PRODUCTS) gpr_mask_layout(&layout);
    GPR_TRY(compile(&rule, &layout, 0, request->block_size, cc, machine_code_bytes));
done:
    return status;
}
