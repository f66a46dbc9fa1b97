/* Accumulators on the host: partial results of rows, packed in memory and folded. */
#ifndef GPR_LIB_ACCUMULATORS_H
#define GPR_LIB_ACCUMULATORS_H

#include <string.h>

#include "lib/base/registry.h"
#include "shared/packed_accumulators.h"

/* Room for one accumulator of any kind but those of exact sums, or one element. A number is the
 * first member of every kind; `acc_kind` of the fold decides which members follow. Arrays of
 * accumulators, on the device too, have them packed (shared/packed_accumulators.h). */
typedef struct gpr_value {
    union {
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        float f32;
        double f64;
        float _Complex c64;
        double _Complex c128;
        double mean[2]; /* moments of real numbers: a number near their mean, and the rest */
        uint8_t bytes[16];
    };
    union {
        uint64_t position; /* indexed: in the row; GPR_NOWHERE if none was found */
        uint64_t count;    /* sum and count, moments: of elements */
        double high_f64;   /* range: the largest, where the first is the smallest */
        uint8_t high[16];
    };
    double squares; /* moments */
} gpr_value;

/* Bytes of an accumulator's first member. */
static inline size_t gpr_first_bytes(gpr_acc_kind acc_kind, gpr_dtype acc)
{
    return acc_kind == GPR_ACC_MOMENTS ? GPR_MEAN_BYTES : gpr_bytes_of(acc);
}

static inline gpr_value gpr_read_acc(gpr_acc_kind acc_kind, gpr_dtype acc, const void *packed)
{
    const char *second = (const char *)packed + gpr_first_bytes(acc_kind, acc);
    gpr_value value = {.bytes = {0}};

    memcpy(value.bytes, packed, gpr_first_bytes(acc_kind, acc));
    if (acc_kind == GPR_ACC_RANGE) memcpy(value.high, second, gpr_bytes_of(acc));
    if (acc_kind == GPR_ACC_INDEXED) memcpy(&value.position, second, sizeof value.position);
    if (acc_kind == GPR_ACC_SUM_COUNT) memcpy(&value.count, second, sizeof value.count);
    if (acc_kind == GPR_ACC_MOMENTS) {
        memcpy(&value.squares, second, sizeof value.squares);
        memcpy(&value.count, second + GPR_SECOND_BYTES, sizeof value.count);
    }
    return value;
}

/* The dtype of the numbers in an accumulator of `fold` over elements of `compute`: of a sum, of a
 * mean too, at least as wide as `narrowest_sum` where they are floats. */
gpr_dtype gpr_accumulator_of(gpr_fold fold, gpr_dtype compute, gpr_dtype narrowest_sum);

/* Bytes of a packed accumulator. */
size_t gpr_acc_bytes(gpr_acc_kind acc_kind, gpr_dtype acc);
void gpr_write_acc(gpr_acc_kind acc_kind, gpr_dtype acc, const gpr_value *value, void *packed);

/* The fold's identity as an accumulator of type `acc` for elements computed in `compute` (the
 * identity of min over int8 is 127, not the accumulator's largest). */
gpr_value gpr_identity(gpr_fold fold, gpr_dtype compute, gpr_dtype acc);

/* The element of type `element` that leaves the fold unchanged; masked elements are replaced by it.
 * Moments, ranges and sums with counts have none: those leave masked elements out by themselves. */
gpr_value gpr_neutral_element(gpr_fold fold, gpr_dtype element);

/* Converts an accumulator from one accumulator type to another (device_acc to host_acc). */
gpr_value gpr_convert_acc(gpr_fold fold, gpr_value value, gpr_dtype from, gpr_dtype to);

/* a fold b, both of type acc; NaN wins in min and max; integers wrap. */
gpr_value gpr_fold_acc(gpr_fold fold, gpr_dtype acc, gpr_value a, gpr_value b);

/* Folds `count` accumulators of type acc as a balanced tree over their order, so that floats err
 * little and the same way each time; destroys `values`. count 0: identity of `compute`. */
gpr_value gpr_fold_partials(gpr_fold fold, gpr_dtype compute, gpr_dtype acc, gpr_value *values,
                            uint64_t count);

#endif
