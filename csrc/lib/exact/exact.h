/* Exact sums: superaccumulators, wide enough for the sum of any 2^64 - 1 elements or products of
 * two elements.
 *
 * A part holds the sum of some elements as an integer in units of the smallest number of its dtype,
 * in radix 2^32; a sum of products has the smallest product for its unit. A word is 64 bits wide,
 * so that additions need not carry: carries are propagated before a word could overflow. Adding is
 * integer addition, which no order or grouping changes; a part with its carries propagated is
 * therefore a function of the elements alone. Infinities and NaN are flags beside the number.
 *
 * A part has no lock and no memory of its own: copy it as a value. gpr_exact of gpureduce.h is a
 * part with a lock. */
#ifndef GPR_LIB_EXACT_H
#define GPR_LIB_EXACT_H

#include "lib/base/registry.h"
#include "shared/exact_format.h"
#include "shared/float_formats.h"
#include "shared/tuning.h"

enum {
    GPR_EXACT_WORDS = 134, /* of the widest number, a sum of products of float64 */
    GPR_EXACT_PARTS = 2,   /* of a complex sum */
    GPR_EXACT_MOST_PARTS = GPR_EXACT_PARTS + 1 /* with the sum of squares */
};

/* Where the bits of numbers are in a superaccumulator: each number is a multiple of 2^lowest below
 * 2^highest. */
typedef struct gpr_exact_layout {
    int lowest, highest;
    int words;    /* of a part */
    int negative; /* numbers may be negative */
} gpr_exact_layout;

typedef struct gpr_exact_part {
    gpr_dtype dtype; /* of the numbers that are added */
    gpr_exact_layout layout;
    uint32_t flags;
    uint64_t count;
    uint64_t pending; /* numbers added to a word, at most, since carries were propagated */
    int64_t words[GPR_EXACT_WORDS];
} gpr_exact_part;

gpr_exact_layout gpr_exact_layout_of(gpr_dtype dtype); /* of a dtype's elements */

/* Whether every element of type `element` is a multiple of the unit of a part of type `dtype`, and
 * none is larger than the part has room for. */
int gpr_exact_accepts(gpr_dtype dtype, gpr_dtype element);

void gpr_exact_clear(gpr_exact_part *part, gpr_dtype dtype);

/* The dtype that holds every product of two elements: float64 for narrower floats. `element` itself
 * where there is no such dtype. */
gpr_dtype gpr_exact_product_dtype(gpr_dtype element);

/* Whether the sum of any GPR_PAIR_SHARE elements is a float64, so that a thread that adds them to a
 * pair of doubles needs no proof that the pair is their sum. */
int gpr_pair_sum_is_float64(gpr_dtype element);

/* Makes a part for products of two elements. Where gpr_exact_product_dtype(element) is another
 * dtype the part is of that dtype, and products are added as elements; otherwise it has twice the
 * range of `element`, and gpr_exact_add_products adds to it. */
void gpr_exact_clear_products(gpr_exact_part *part, gpr_dtype element);

/* Adds value * 2^exponent, a multiple of the part's unit that the part has room for. Neither
 * count nor flags change. */
void gpr_exact_add_integer(gpr_exact_part *part, int64_t value, int exponent);

/* Adds elements, in native byte order and at any address, of a type the part takes. Integer
 * arithmetic throughout: no setting of the floating point unit matters. */
void gpr_exact_add_elements(gpr_exact_part *part, gpr_dtype element, const void *elements,
                            uint64_t count);

/* Adds the products a[i] * b[i] of integers or of float64, in native byte order and at any
 * address, to a part for them. */
void gpr_exact_add_products(gpr_exact_part *part, gpr_dtype element, const void *a, const void *b,
                            uint64_t count);

/* The flag GPR_EXACT_NOT_MINUS_ZERO if an element is anything else than -0. */
uint32_t gpr_exact_zero_flag(gpr_dtype element, const void *elements, uint64_t count);

/* As above, for a product of two float64. */
uint32_t gpr_exact_product_zero_flag(const double *a, const double *b, uint64_t count);

/* Adds a part of the same layout. GPR_ERROR_VALUE, with nothing added: more than 2^64 - 1
 * elements. */
gpr_status gpr_exact_add_part(gpr_exact_part *part, const gpr_exact_part *other);

/* Makes the part one of each of its elements `times` times: no more than 2^64 - 1 elements. */
void gpr_exact_repeat(gpr_exact_part *part, uint64_t times);

/* Adds a part of elements of a type that this one takes, to a part with no elements yet. */
void gpr_exact_widen_part(gpr_exact_part *part, const gpr_exact_part *other);

/* Propagates carries: every word but the highest is then in 0 .. 2^32 - 1, the highest a signed
 * 32-bit number. */
void gpr_exact_carry(gpr_exact_part *part);

/* The number's bits without its sign, and whether it is below zero. */
int gpr_exact_bit_length(const gpr_exact_part *part, int *negative);

/* The sum, or the mean, rounded once to one element of type `result`; the mean of nothing is NaN.
 * GPR_ERROR_TYPE: no such result; GPR_ERROR_VALUE: the sum of integers does not fit. */
gpr_status gpr_exact_round(const gpr_exact_part *part, gpr_dtype result, int mean, void *value);

/* ---- numbers on their way to a result ---- */

enum {
    GPR_EXACT_QUOTIENT_WORDS = 4,
    /* Room for the numerator of a variance of float64 (exact_variance.c), which is the longest. */
    GPR_EXACT_NUMBER_WORDS = GPR_EXACT_WORDS + GPR_EXACT_QUOTIENT_WORDS + 2
};

/* A number without its sign: words * 2^exponent, and a little more if `inexact`. Words beyond
 * `count` mean nothing. */
typedef struct gpr_exact_number {
    uint32_t words[GPR_EXACT_NUMBER_WORDS];
    int count;
    int exponent;
    int inexact;
    int negative;
} gpr_exact_number;

gpr_exact_number gpr_exact_number_of(const gpr_exact_part *part);

/* Number of bits up to the highest that is set; 0 for zero. */
int gpr_exact_number_length(const gpr_exact_number *number);

/* Stores an element of a float type: the number rounded once, to nearest, ties to even; or the
 * one NaN; or an infinity. */
void gpr_exact_store_rounded(const gpr_exact_number *number, gpr_dtype result, void *value);
void gpr_exact_store_nan(gpr_dtype result, void *value);
void gpr_exact_store_infinity(gpr_dtype result, void *value);

/* Whether an infinity or a NaN was added. */
static inline int gpr_exact_has_special(const gpr_exact_part *part)
{
    return (part->flags & (GPR_EXACT_INFINITY | GPR_EXACT_MINUS_INFINITY | GPR_EXACT_NAN)) != 0;
}

/* Whether no float was added but -0, if any: then the count decides whether the sum is -0 or, of
 * nothing, +0. */
static inline int gpr_exact_may_be_nothing(const gpr_exact_part *part)
{
    return (part->flags & GPR_EXACT_NOT_MINUS_ZERO) == 0 &&
           gpr_dtype_rows[part->dtype].kind == GPR_KIND_FLOAT;
}

/* ---- variances (exact_variance.c) ---- */

/* The variance of `sums[0].count` elements less ddof, or its root, rounded once to a float type:
 * sums has a part for each of the elements' `parts` real numbers, `squares` holds the sum of all
 * their squares. NaN with infinities and NaN among the elements, and of no elements; of no more
 * than ddof, infinite or NaN, as what is divided by 0. */
void gpr_exact_variance(const gpr_exact_part *sums, int parts, const gpr_exact_part *squares,
                        double ddof, int root, gpr_dtype result, void *value);

/* The root of a sum of squares, rounded once to a float type. */
void gpr_exact_root(const gpr_exact_part *squares, gpr_dtype result, void *value);

/* ---- sums of elements of any dtype: one part, or two of a complex one ---- */

int gpr_exact_parts(gpr_dtype element);

/* Empties the parts of an accumulator of an exact kind, and returns how many they are: one for each
 * real number of an element, or of a product of two; of GPR_ACC_EXACT_MOMENTS one more, for all
 * squares. */
int gpr_exact_clear_acc(gpr_acc_kind acc_kind, gpr_dtype element, gpr_exact_part *parts);

/* A packed accumulator, as kernels store it (shared/exact_format.h). gpr_exact_read_acc returns the
 * number of parts. */
size_t gpr_exact_acc_bytes(gpr_acc_kind acc_kind, gpr_dtype element);
int gpr_exact_read_acc(gpr_acc_kind acc_kind, gpr_dtype element, const void *packed,
                       gpr_exact_part *parts);

/* Counters of 8 bytes that the blocks of a row add to (kernels/exact/exact_merge.cuh): of sums of
 * floats the limbs, the count and the flags of each part, of all others a packed accumulator. */
uint64_t gpr_exact_counters(gpr_acc_kind acc_kind, gpr_dtype element);

/* Bytes that each block of a row of floats publishes for the last block
 * (kernels/exact/exact_limb_partial.cuh); 0 where blocks have counters alone. */
uint64_t gpr_exact_partial_bytes(gpr_acc_kind acc_kind, gpr_dtype element);

/* The sum, or with `divide` the mean, as one element of type `result`, which has room for elements:
 * rounded once, integers modulo a power of two, bool by whether it is not 0. The mean of nothing is
 * NaN. */
void gpr_exact_finish(const gpr_exact_part *parts, gpr_dtype element, int divide, gpr_dtype result,
                      void *value);

#endif
