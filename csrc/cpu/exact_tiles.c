/* Adding tiles exactly; see exact_tiles.h. */
#include "cpu/exact_tiles.h"

#include "lib/base/float_bits.h"

enum {
    SLOW_ELEMENTS = 128, /* up to this, placing bins costs more than they save */
    MOST_BIAS = 1021,    /* 1.5 * 2^p and twice that are finite */
    SKIPPED_TILES = 7,   /* after a tile that bins do not hold: neighbours tend to be alike */
    MOST_PATIENCE = 64   /* tiles: looking for fewer bins is little beside them */
};

/* ---------------------------------------------------------------- bins -------------------- */

/* A tile's sums in bins, in units of 2^units[w]. */
typedef struct bin_sums {
    int64_t sums[GPR_EXACT_BINS];
} bin_sums;

/* Bins for a float type. */
static exact_bins make_bins(gpr_dtype dtype)
{
    const gpr_loops *loops = gpr_cpu_loops();

    return (exact_bins){.dtype = dtype,
                        .loops = &loops->exact[dtype],
                        .widen = loops->widen[dtype],
                        .lowest = gpr_exact_layout_of(dtype).lowest,
                        .patience = 1};
}

static int level_exists(const exact_bins *how, int level)
{
    return level < GPR_EXACT_LEVELS && how->loops->level[level].loop != NULL;
}

/* Sets the bins of a level, below a largest exponent; 0 if they would overflow. */
static int set_bins(exact_bins *how, int level, int largest)
{
    const gpr_exact_level *l = &how->loops->level[level];
    int bias = largest + l->headroom;

    if (bias > MOST_BIAS) return 0;
    for (int w = 0; w < l->bins; w++) {
        /* No bin has a last place below the smallest number. */
        if (bias < how->lowest + 52) bias = how->lowest + 52;
        how->biases[w] = gpr_double_of_bits((uint64_t)(bias + 1023) << 52 | UINT64_C(1) << 51);
        how->units[w] = bias - 52;
        bias -= GPR_EXACT_BIN_BITS;
    }
    how->level = level;
    return 1;
}

/* Places bins for a tile: those of the first level that is certain to hold it, else those of the
 * last level. Returns 0 if there is no place for bins: an element is infinite, NaN or too large. */
static int place_bins(exact_bins *how, const void *elements, uint64_t count)
{
    const int fraction = gpr_dtype_rows[how->dtype].fraction;
    /* Exponent fields 0 and 1 mean the same exponent: the smallest number is taken to have field
     * 1. */
    const int least_exponent = how->lowest + fraction;
    uint64_t largest, smallest;
    int most_field, least_field, level = 0;

    how->loops->extent(elements, count, &largest, &smallest);
    most_field = (int)(largest >> fraction);
    least_field = (int)(smallest >> fraction);
    how->placed = 0;
    /* Exponents lie around 0: the largest field, of infinities and NaN, stands for what would be
     * 1 above the largest. */
    if (most_field + least_exponent - 1 > 1 - least_exponent) return 0;
    do {
        if (!set_bins(how, level, most_field + least_exponent - 1)) return 0;
        if (how->units[how->loops->level[level].bins - 1] <=
            (least_field > 0 ? least_field : 1) + least_exponent - 1 - fraction)
            break;
    } while (level_exists(how, ++level));
    how->placed = 1;
    return 1;
}

static int sum_as_placed(const exact_bins *how, const void *elements, uint64_t count,
                         tile_memory *memory, bin_sums *found)
{
    const gpr_exact_level *level = &how->loops->level[how->level];

    if (level->widened) {
        how->widen.loop(elements, memory->widened, count);
        elements = memory->widened;
    }
    return level->loop(elements, count, how->biases, found->sums);
}

/* Whether placed bins are to be placed anew, as a lower level may hold the next tile. */
static int may_need_fewer(exact_bins *how)
{
    if (how->level == 0) return 0;
    if (how->stays > 0) {
        how->stays--;
        return 0;
    }
    return 1;
}

/* After a tile placed the bins, sets for how many tiles they stay. A tile that needs a higher level
 * soon after the last doubles that number: data that alternate between two levels do not pay for
 * both. */
static void set_patience(exact_bins *how)
{
    if (how->level == 0) return;
    how->stays = how->patience;
    if (how->patience < MOST_PATIENCE) how->patience *= 2;
}

/* Sums a tile in the bins of the tile before, or else in bins placed for it. Returns 0 if neither
 * hold it. */
static int sum_in_bins(exact_bins *how, const void *elements, uint64_t count, tile_memory *memory,
                       bin_sums *found)
{
    if (how->placed && !may_need_fewer(how) && sum_as_placed(how, elements, count, memory, found)) {
        if (how->level == 0 && how->patience > 1) how->patience--;
        return 1;
    }
    if (place_bins(how, elements, count) && sum_as_placed(how, elements, count, memory, found)) {
        set_patience(how);
        return 1;
    }
    how->skipped = SKIPPED_TILES;
    return 0;
}

/* Whether bins are tried for the next tile. */
static int may_try_bins(exact_bins *how, uint64_t count)
{
    if (how->skipped > 0) {
        how->skipped--;
        return 0;
    }
    return how->loops != NULL && count > SLOW_ELEMENTS;
}

static void add_sums(gpr_exact_part *part, const exact_bins *how, const bin_sums *found)
{
    for (int w = 0; w < how->loops->level[how->level].bins; w++)
        gpr_exact_add_integer(part, found->sums[w], how->units[w]);
}

/* ---------------------------------------------------------------- elements ------------------- */

exact_adder gpr_cpu_exact_adder(gpr_exact_part *part, gpr_dtype dtype, tile_memory *memory)
{
    const gpr_loops *loops = gpr_cpu_loops();
    const gpr_dtype_row *row = &gpr_dtype_rows[dtype];
    exact_adder how = {.part = part, .memory = memory, .dtype = dtype};

    if (row->kind != GPR_KIND_FLOAT) {
        if (row->bytes < 8) how.sum = loops->loop[GPR_FOLD_sum][dtype].rows;
        return how;
    }
    /* A float without loops for bins is added element by element. */
    if (loops->exact[dtype].extent != NULL) how.bins = make_bins(dtype);
    return how;
}

static int add_in_bins(exact_adder *how, const void *elements, uint64_t count)
{
    bin_sums found;

    if (!may_try_bins(&how->bins, count)) return 0;
    if (!sum_in_bins(&how->bins, elements, count, how->memory, &found)) return 0;
    add_sums(how->part, &how->bins, &found);
    return 1;
}

/* Bits without their sign that are more than an infinity's are NaN. */
#define DEFINE_HAS_NAN(name, BITS, fraction, exponent)                                      \
    static int has_nan_##name(const BITS *bits, uint64_t count)                             \
    {                                                                                       \
        const BITS magnitude = (BITS)((BITS) - 1 >> 1),                                     \
                   infinity = (BITS)((((BITS)1 << (exponent)) - 1) << (fraction));          \
        int any = 0;                                                                        \
                                                                                            \
        for (uint64_t i = 0; i < count; i++) any |= (BITS)(bits[i] & magnitude) > infinity; \
        return any;                                                                         \
    }
#define BITS_1 uint8_t
#define BITS_2 uint16_t
#define BITS_4 uint32_t
#define BITS_8 uint64_t
#define HAS_NAN_GPR_KIND_BOOL(...)
#define HAS_NAN_GPR_KIND_SIGNED(...)
#define HAS_NAN_GPR_KIND_UNSIGNED(...)
#define HAS_NAN_GPR_KIND_COMPLEX(...)
#define HAS_NAN_GPR_KIND_FLOAT(name, BITS, fraction, exponent) \
    DEFINE_HAS_NAN(name, BITS, fraction, exponent)
#define GPR_DTYPE(ID, name, bytes, kind, c_type, fraction, exponent) \
    HAS_NAN_##kind(name, BITS_##bytes, fraction, exponent)
#include "dtypes.def"
#undef GPR_DTYPE

static int has_nan(gpr_dtype dtype, const void *elements, uint64_t count)
{
    switch (dtype) {
#define CASE_HAS_NAN_GPR_KIND_BOOL(...)
#define CASE_HAS_NAN_GPR_KIND_SIGNED(...)
#define CASE_HAS_NAN_GPR_KIND_UNSIGNED(...)
#define CASE_HAS_NAN_GPR_KIND_COMPLEX(...)
#define CASE_HAS_NAN_GPR_KIND_FLOAT(ID, name) \
    case GPR_##ID: return has_nan_##name(elements, count);
#define GPR_DTYPE(ID, name, bytes, kind, ...) CASE_HAS_NAN_##kind(ID, name)
#include "dtypes.def"
#undef GPR_DTYPE
    default: return 0; /* no other number is NaN */
    }
}

void gpr_cpu_add_tile(exact_adder *how, const void *elements, uint64_t count)
{
    if (how->sum != NULL) {
        uint64_t sum = 0;

        how->sum(elements, 0, 1, count, &sum);
        gpr_exact_add_integer(how->part, (int64_t)sum, 0);
    } else if (!add_in_bins(how, elements, count)) {
        if (how->ends_at_nan && has_nan(how->dtype, elements, count)) {
            how->part->flags |= GPR_EXACT_NAN;
            how->part->count += count;
        } else {
            gpr_exact_add_elements(how->part, how->dtype, elements, count);
        }
        return;
    }
    how->part->count += count;
    if ((how->part->flags & GPR_EXACT_NOT_MINUS_ZERO) == 0)
        how->part->flags |= gpr_exact_zero_flag(how->dtype, elements, count);
}

/* ---------------------------------------------------------------- products ------------------- */

product_adder gpr_cpu_product_adder(gpr_exact_part *part, gpr_dtype dtype, tile_memory *memory)
{
    const gpr_loops *loops = gpr_cpu_loops();
    product_adder how = {.part = part, .memory = memory, .dtype = dtype};

    if (gpr_dtype_rows[dtype].kind != GPR_KIND_FLOAT) return how;
    if (loops->products[dtype] == NULL) how.widen = loops->widen[dtype];
    how.multiply = loops->products[how.widen.loop != NULL ? how.widen.to : dtype];
    how.doubles = gpr_cpu_exact_adder(part, GPR_FLOAT64, memory);
    how.high = how.low = how.doubles.bins;
    return how;
}

/* Adds products of doubles as two doubles each. Returns 0 if a product needs more, or bins do not
 * hold them. */
static int add_product_pairs(product_adder *how, const double *a, const double *b, uint64_t count)
{
    double *const high = how->memory->high, *const low = how->memory->low;
    bin_sums found_high, found_low;

    if (!may_try_bins(&how->high, count)) return 0;
    if (!how->multiply(a, b, count, high, low)) {
        how->high.skipped = SKIPPED_TILES;
        return 0;
    }
    if (!sum_in_bins(&how->high, high, count, how->memory, &found_high)) return 0;
    if (!sum_in_bins(&how->low, low, count, how->memory, &found_low)) {
        how->high.skipped = SKIPPED_TILES;
        return 0;
    }
    add_sums(how->part, &how->high, &found_high);
    add_sums(how->part, &how->low, &found_low);
    how->part->count += count;
    if ((how->part->flags & GPR_EXACT_NOT_MINUS_ZERO) == 0)
        how->part->flags |= gpr_exact_product_zero_flag(a, b, count);
    return 1;
}

void gpr_cpu_add_products(product_adder *how, const void *a, const void *b, uint64_t count)
{
    tile_memory *memory = how->memory;

    if (how->multiply == NULL ||
        (how->dtype == GPR_FLOAT64 && !add_product_pairs(how, a, b, count))) {
        gpr_exact_add_products(how->part, how->dtype, a, b, count);
        return;
    }
    if (how->dtype == GPR_FLOAT64) return;
    if (how->widen.loop != NULL) {
        how->widen.loop(a, memory->widened_factors[0], count);
        a = memory->widened_factors[0];
        how->widen.loop(b, memory->widened_factors[1], count);
        b = memory->widened_factors[1];
    }
    how->multiply(a, b, count, memory->products, NULL);
    gpr_cpu_add_tile(&how->doubles, memory->products, count);
}
