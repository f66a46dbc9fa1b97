/* Checks of block sizes, grid sizes, operators and dtypes that kernels take. Every error names
 * kernels or sizes that are accepted. */
#include "lib/base/status.h"
#include "lib/rules/accumulators.h"
#include "lib/rules/rules.h"
#include "shared/tuning.h"

/* ---------------------------------------------------------------- blocks and grids ----------- */

gpr_status gpr_check_block_size(const gpr_kernel_row *row, uint32_t block_size)
{
    const int in_range = block_size >= GPR_WARP_LANES && block_size <= GPR_MOST_BLOCK;

    /* which a call need not have named: `auto` is one of them */
    if (gpr_is_planned(row)) {
        if (in_range && block_size % GPR_WARP_LANES == 0) return GPR_OK;
        return gpr_fail(GPR_ERROR_VALUE,
                        "block_size must be a multiple of 32 from 32 to 1024, not %u", block_size);
    }
    switch (row->block_rule) {
    case GPR_BLOCK_POW2:
        if (in_range && (block_size & (block_size - 1)) == 0) return GPR_OK;
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' takes a block size that is a power of two from 32 to 1024, "
                        "not %u%s",
                        row->name, block_size,
                        in_range ? ": its tree halves the block at every step" : "");
    case GPR_BLOCK_WARPS:
        if (in_range && block_size % GPR_WARP_LANES == 0) return GPR_OK;
        return gpr_fail(
            GPR_ERROR_VALUE,
            "kernel '%s' takes a block size that is a multiple of 32 from 32 to 1024, not %u",
            row->name, block_size);
    case GPR_BLOCK_WARP: break;
    }
    if (block_size == GPR_WARP_LANES) return GPR_OK;
    return gpr_fail(GPR_ERROR_VALUE, "kernel '%s' is one warp: it takes block size 32, not %u",
                    row->name, block_size);
}

gpr_status gpr_check_grid_size(const gpr_kernel_row *row)
{
    if (row->cover == GPR_STRIDE) return GPR_OK;
    return gpr_fail(GPR_ERROR_VALUE, "kernel '%s' takes no grid_size: %s", row->name,
                    row->cover == GPR_ONE ? "it runs one block" : "the length decides its grid");
}

/* ---------------------------------------------------------------- folds ---------------------- */

/* Whether an exact sum of the rule's elements becomes the rule's result by one rounding, or
 * none. */
static gpr_status check_exact(const gpr_kernel_row *row, const gpr_rule *rule)
{
    const gpr_kind from = gpr_kind_of(rule->element), to = gpr_kind_of(rule->result);
    const int is_narrower = (from == GPR_KIND_COMPLEX && to != GPR_KIND_COMPLEX) ||
                            (from == GPR_KIND_FLOAT && !gpr_is_inexact(rule->result));

    if (rule->has_given_mean)
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' makes variances about the exact mean, not about one that is "
                        "given; 'auto' does",
                        row->name);
    /* results of variances are float types, and real */
    if (rule->acc_kind == GPR_ACC_EXACT_MOMENTS) return GPR_OK;
    if (rule->acc_kind != GPR_ACC_EXACT)
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' sums numbers: it takes sum, mean, var and std, not %s of %s "
                        "as %s; 'auto' does",
                        row->name, gpr_operator_rows[rule->op].name, gpr_dtype_name(rule->element),
                        gpr_dtype_name(rule->result));
    if (is_narrower)
        return gpr_fail(GPR_ERROR_TYPE,
                        "kernel '%s' does not make a sum of %s one of %s: convert the elements",
                        row->name, gpr_dtype_name(rule->element), gpr_dtype_name(rule->result));
    return GPR_OK;
}

gpr_status gpr_check_kernel_folds(const gpr_kernel_row *row, const gpr_rule *rule)
{
    enum { MOST_SWAPPED_BYTES = 8 };
    const char *operator_name = gpr_operator_rows[rule->op].name;

    if ((row->flags & GPR_SUMS_EXACTLY) != 0) return check_exact(row, rule);
    if (rule->has_start && !gpr_is_planned(row))
        return gpr_fail(GPR_ERROR_VALUE, "kernel '%s' gives rows no start; 'fast' and 'auto' do",
                        row->name);
    const size_t bytes = gpr_acc_bytes(rule->acc_kind, rule->device_acc);
    if (row->finish == GPR_ATOMIC && bytes > MOST_SWAPPED_BYTES && rule->fold != GPR_FOLD_sum &&
        rule->fold != GPR_FOLD_sum_count)
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' folds by atomics, which swap %d bytes: %s of %s accumulates "
                        "in %zu. Kernels that write partials take it, as 'shfl_two_pass', "
                        "'last_block' and 'auto' do",
                        row->name, MOST_SWAPPED_BYTES, operator_name, gpr_dtype_name(rule->element),
                        bytes);
    if (row->family == GPR_FAMILY_LIBRARY && rule->acc_kind == GPR_ACC_INDEXED)
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' does not track positions of elements, which %s needs; "
                        "'shfl_two_pass', 'last_block' and 'auto' do",
                        row->name, operator_name);
    return GPR_OK;
}
