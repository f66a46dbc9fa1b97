/* The registry: dtypes, folds, operators and kernels, read from csrc/registry/ and from nowhere
 * else. */
#ifndef GPR_LIB_REGISTRY_H
#define GPR_LIB_REGISTRY_H

#include "gpureduce.h"
#include "shared/dtype_kinds.h"
#include "shared/folds.h"

typedef struct gpr_dtype_row {
    const char *name;
    size_t bytes;
    gpr_kind kind;
    int fraction, exponent; /* of a float: stored bits of the significand, bits of the exponent */
} gpr_dtype_row;

typedef enum gpr_fold {
#define GPR_FOLD(name, ...) GPR_FOLD_##name,
#include "folds.def"
#undef GPR_FOLD
    GPR_FOLD_COUNT
} gpr_fold;

/* The members of an accumulator. */
typedef enum gpr_acc_kind {
    GPR_ACC_NUMBER,        /* a number */
    GPR_ACC_INDEXED,       /* a number and the position it was found at */
    GPR_ACC_MOMENTS,       /* a mean, the sum of squared distances from it, a count */
    GPR_ACC_RANGE,         /* the smallest and the largest number */
    GPR_ACC_SUM_COUNT,     /* a sum, and how many elements it is of */
    GPR_ACC_EXACT,         /* the parts of an exact sum; see exact.h */
    GPR_ACC_EXACT_MOMENTS, /* those of the elements' sum, then the one of their squares */
    GPR_ACC_EXACT_PRODUCTS /* those of a sum of products of two arrays' elements */
} gpr_acc_kind;

/* Whether accumulators are those of exact sums. */
static inline int gpr_is_exact(gpr_acc_kind acc_kind)
{
    return acc_kind == GPR_ACC_EXACT || acc_kind == GPR_ACC_EXACT_MOMENTS ||
           acc_kind == GPR_ACC_EXACT_PRODUCTS;
}

/* How often elements that repeat count: `idempotent`. */
enum { GPR_EACH = 0, GPR_ONCE = 1 };

typedef struct gpr_fold_row {
    const char *name;
    int commutative;
    int idempotent;
    gpr_acc_kind acc_kind;
    gpr_identity_kind identity;
} gpr_fold_row;

typedef struct gpr_operator_row {
    const char *name;
    const char *ufunc;
    const char *finish;
    const char *summary;
    gpr_fold fold;
    int has_identity;
} gpr_operator_row;

typedef enum gpr_family {
    GPR_FAMILY_ATOMIC,
    GPR_FAMILY_TREE,
    GPR_FAMILY_SHUFFLE,
    GPR_FAMILY_BLOCK,
    GPR_FAMILY_WARP,
    GPR_FAMILY_LIBRARY,
    GPR_FAMILY_PLANNER
} gpr_family;
typedef enum gpr_cover { GPR_COVER, GPR_STRIDE, GPR_ONE } gpr_cover;
typedef enum gpr_finish { GPR_PASSES, GPR_ATOMIC, GPR_TICKET } gpr_finish;
typedef enum gpr_block_rule { GPR_BLOCK_POW2, GPR_BLOCK_WARPS, GPR_BLOCK_WARP } gpr_block_rule;
enum {
    GPR_ORDERED = 1,
    GPR_VARIES = 2,
    GPR_NEEDS_CCCL = 4,
    GPR_SUMS_EXACTLY = 8,
    GPR_COOPERATIVE = 16,
    GPR_CLUSTER_UNIT = 32 /* flags from here on are the blocks of a cluster */
};
#define GPR_CLUSTERS_OF(blocks) ((blocks) * GPR_CLUSTER_UNIT)

typedef enum gpr_kernel_id {
#define GPR_KERNEL(name, ...) GPR_KERNEL_##name,
#include "kernels.def"
#undef GPR_KERNEL
    GPR_KERNEL_COUNT
} gpr_kernel_id;

typedef struct gpr_kernel_row {
    const char *name;
    const char *file;
    gpr_family family;
    gpr_cover cover;
    uint32_t per_thread;
    gpr_finish finish;
    gpr_block_rule block_rule;
    uint32_t block;
    int flags;
    int min_cc;
    const char *aliases;
    const char *summary, *removes, *pays, *source;
} gpr_kernel_row;

/* Whether the kernel is planned for each layout, and stores results itself, rather than
 * finalize_rows after it: those of `fast` and `exact`. */
static inline int gpr_is_planned(const gpr_kernel_row *row)
{
    return row->family == GPR_FAMILY_PLANNER || (row->flags & GPR_SUMS_EXACTLY) != 0;
}

/* Most blocks of a cluster; 1 for kernels without clusters. */
static inline uint32_t gpr_most_cluster(const gpr_kernel_row *row)
{
    const int blocks = row->flags / GPR_CLUSTER_UNIT;

    return blocks > 0 ? (uint32_t)blocks : 1;
}

extern const gpr_dtype_row gpr_dtype_rows[GPR_DTYPE_COUNT];
extern const gpr_operator_row gpr_operator_rows[GPR_OP_COUNT];
extern const gpr_fold_row gpr_fold_rows[GPR_FOLD_COUNT];
extern const gpr_kernel_row gpr_kernel_rows[GPR_KERNEL_COUNT];

static inline gpr_kind gpr_kind_of(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].kind;
}

static inline size_t gpr_bytes_of(gpr_dtype dtype)
{
    return gpr_dtype_rows[dtype].bytes;
}

/* Whether the numbers have a fraction, an infinity and NaN. */
static inline int gpr_is_inexact(gpr_dtype dtype)
{
    return gpr_kind_of(dtype) == GPR_KIND_FLOAT || gpr_kind_of(dtype) == GPR_KIND_COMPLEX;
}

static inline gpr_acc_kind gpr_acc_kind_of(gpr_fold fold)
{
    return gpr_fold_rows[fold].acc_kind;
}

static inline int gpr_is_bitwise(gpr_fold fold)
{
    return fold == GPR_FOLD_bit_and || fold == GPR_FOLD_bit_or || fold == GPR_FOLD_bit_xor;
}

/* Whether elements become true or false. */
static inline int gpr_is_truth(gpr_fold fold)
{
    return fold == GPR_FOLD_any || fold == GPR_FOLD_all || fold == GPR_FOLD_odd;
}

/* The dtype of the real numbers in an element: that of both halves of a complex one. */
static inline gpr_dtype gpr_real_dtype(gpr_dtype dtype)
{
    if (dtype == GPR_COMPLEX64) return GPR_FLOAT32;
    return dtype == GPR_COMPLEX128 ? GPR_FLOAT64 : dtype;
}

/* Bytes of a real number in an element. */
static inline size_t gpr_part_bytes(gpr_dtype dtype)
{
    return gpr_bytes_of(gpr_real_dtype(dtype));
}

#endif
