/* Accumulators: the dtype of their numbers; on the host packed in memory, as another type, and
 * those that change nothing. */
#include "lib/rules/accumulators.h"

#include <math.h>
#include <string.h>

#include "lib/base/convert.h"
#include "lib/exact/exact.h"

/* ---------------------------------------------------------------- dtypes --------------------- */

gpr_dtype gpr_accumulator_of(gpr_fold fold, gpr_dtype compute, gpr_dtype narrowest_sum)
{
    const gpr_kind kind = gpr_kind_of(compute);
    const gpr_acc_kind acc_kind = gpr_fold_rows[fold].acc_kind;
    const int summed = fold == GPR_FOLD_sum || fold == GPR_FOLD_prod || fold == GPR_FOLD_sum_count;

    if (gpr_is_truth(fold)) return GPR_UINT32;
    if (fold == GPR_FOLD_count) return GPR_UINT64;
    if (fold == GPR_FOLD_moments) return kind == GPR_KIND_COMPLEX ? GPR_COMPLEX128 : GPR_FLOAT64;
    if (kind == GPR_KIND_COMPLEX)
        return gpr_bytes_of(compute) == 16 || narrowest_sum == GPR_FLOAT64 ? GPR_COMPLEX128
                                                                           : GPR_COMPLEX64;
    /* A position or a count has 8 bytes: with a number of as many beside it there is no gap
     * between them. */
    const int is_wide =
        gpr_bytes_of(compute) == 8 || acc_kind == GPR_ACC_INDEXED || acc_kind == GPR_ACC_SUM_COUNT;
    if (kind == GPR_KIND_FLOAT) {
        if (is_wide) return GPR_FLOAT64;
        return summed ? narrowest_sum : GPR_FLOAT32;
    }
    if (summed) return GPR_UINT64;
    if (gpr_is_bitwise(fold) || kind != GPR_KIND_SIGNED) return is_wide ? GPR_UINT64 : GPR_UINT32;
    return is_wide ? GPR_INT64 : GPR_INT32;
}

/* ---------------------------------------------------------------- packed accumulators -------- */

size_t gpr_acc_bytes(gpr_acc_kind acc_kind, gpr_dtype acc)
{
    switch (acc_kind) {
    case GPR_ACC_NUMBER: return gpr_bytes_of(acc);
    case GPR_ACC_RANGE: return 2 * gpr_bytes_of(acc);
    case GPR_ACC_EXACT:
    case GPR_ACC_EXACT_MOMENTS:
    case GPR_ACC_EXACT_PRODUCTS: return gpr_exact_acc_bytes(acc_kind, acc);
    case GPR_ACC_MOMENTS: return gpr_first_bytes(acc_kind, acc) + 2 * (size_t)GPR_SECOND_BYTES;
    default: return gpr_bytes_of(acc) + GPR_SECOND_BYTES;
    }
}

void gpr_write_acc(gpr_acc_kind acc_kind, gpr_dtype acc, const gpr_value *value, void *packed)
{
    char *second = (char *)packed + gpr_first_bytes(acc_kind, acc);

    memcpy(packed, value->bytes, gpr_first_bytes(acc_kind, acc));
    if (acc_kind == GPR_ACC_RANGE) memcpy(second, value->high, gpr_bytes_of(acc));
    if (acc_kind == GPR_ACC_INDEXED) memcpy(second, &value->position, sizeof value->position);
    if (acc_kind == GPR_ACC_SUM_COUNT) memcpy(second, &value->count, sizeof value->count);
    if (acc_kind == GPR_ACC_MOMENTS) {
        memcpy(second, &value->squares, sizeof value->squares);
        memcpy(second + GPR_SECOND_BYTES, &value->count, sizeof value->count);
    }
}

/* ---------------------------------------------------------------- values --------------------- */

gpr_value gpr_convert_acc(gpr_fold fold, gpr_value value, gpr_dtype from, gpr_dtype to)
{
    gpr_value converted = value;

    if (from == to) return value;
    gpr_convert(from, value.bytes, to, converted.bytes, 1);
    if (gpr_acc_kind_of(fold) == GPR_ACC_RANGE)
        gpr_convert(from, value.high, to, converted.high, 1);
    return converted;
}

/* Largest or smallest element, as a wide value: infinities for floats. */
static gpr_wide extreme(gpr_dtype dtype, int largest, gpr_wide_block *block)
{
    const uint64_t bits = gpr_bytes_of(dtype) * 8;
    const double infinity = largest ? INFINITY : -INFINITY;

    switch (gpr_kind_of(dtype)) {
    case GPR_KIND_COMPLEX: block->c128[0] = gpr_complex(infinity, infinity); break;
    case GPR_KIND_FLOAT: block->f64[0] = infinity; break;
    case GPR_KIND_SIGNED: block->u64[0] = (UINT64_C(1) << (bits - 1)) - (largest ? 1 : 0); break;
    default: block->u64[0] = largest ? UINT64_MAX : 0; break;
    }
    return gpr_wide_of(dtype);
}

static void store_extreme(gpr_dtype dtype, int largest, uint8_t *element)
{
    gpr_wide_block block;
    const gpr_wide wide = extreme(dtype, largest, &block);

    gpr_store_wide(wide, &block, 1, dtype, element);
}

/* NaN of a float or complex type. */
static void store_nan(gpr_dtype dtype, uint8_t *element)
{
    gpr_wide_block block;

    block.f64[0] = NAN;
    gpr_store_wide(GPR_WIDE_FLOAT, &block, 1, dtype, element);
}

/* The element that changes no sum, not even -0. */
static void store_minus_zero(gpr_dtype element, uint8_t *bytes)
{
    const size_t part = gpr_part_bytes(element);

    for (size_t end = part; end <= gpr_bytes_of(element); end += part) bytes[end - 1] = 0x80;
}

gpr_value gpr_neutral_element(gpr_fold fold, gpr_dtype element)
{
    const gpr_identity_kind identity = gpr_fold_rows[fold].identity;
    gpr_value value = {.bytes = {0}};
    gpr_wide_block block;

    switch (identity) {
    case GPR_IDENTITY_MINUS_ZERO:
        if (gpr_is_inexact(element)) store_minus_zero(element, value.bytes);
        break;
    case GPR_IDENTITY_LARGEST: store_extreme(element, 1, value.bytes); break;
    case GPR_IDENTITY_SMALLEST: store_extreme(element, 0, value.bytes); break;
    case GPR_IDENTITY_NAN: store_nan(element, value.bytes); break;
    case GPR_IDENTITY_ONE:
    case GPR_IDENTITY_ALL_BITS:
        block.u64[0] = identity == GPR_IDENTITY_ONE ? 1 : UINT64_MAX;
        gpr_store_wide(GPR_WIDE_UNSIGNED, &block, 1, element, value.bytes);
        break;
    case GPR_IDENTITY_ZERO:
    case GPR_IDENTITY_STRUCTURE: break;
    }
    return value;
}

gpr_value gpr_identity(gpr_fold fold, gpr_dtype compute, gpr_dtype acc)
{
    gpr_value value = gpr_neutral_element(fold, compute);

    if (gpr_fold_rows[fold].identity == GPR_IDENTITY_ALL_BITS) { /* not the element's alone */
        memset(value.bytes, 0xff, gpr_bytes_of(acc));
        return value;
    }
    if (gpr_acc_kind_of(fold) == GPR_ACC_RANGE) {
        store_extreme(compute, 1, value.bytes);
        store_extreme(compute, 0, value.high);
    }
    /* Nothing was summed, and counts and squares are 0: the sums' types do not matter. */
    if (fold == GPR_FOLD_moments) return (gpr_value){.bytes = {0}};
    value = gpr_convert_acc(fold, value, compute, acc);
    if (gpr_acc_kind_of(fold) == GPR_ACC_INDEXED) value.position = GPR_NOWHERE;
    return value;
}
