/* Adding tiles exactly; see exact_tiles.h. */
#include "exact_tiles.h"

#include <string.h>

enum {
    SLOW_ELEMENTS = 128, /* up to this, placing windows costs more than they save */
    /* From the largest element's exponent to the first bias's: room for a tile's sum, and for elements of later tiles
     * that are a little larger. */
    HEADROOM_BITS = 16,
    MOST_BIAS = 1021, /* 1.5 * 2^p and twice that are finite */
    SKIPPED_TILES = 7 /* after one that windows do not hold: its neighbours are likely to be like it */
};

/* ---------------------------------------------------------------- windows -------------------- */

/* A tile's sums in windows, in units of 2^units[w]. */
typedef struct window_sums {
    int count;
    int64_t sums[GPR_EXACT_WINDOWS];
} window_sums;

/* Windows for a float type that has loops of its own. */
static exact_windows make_windows(gpr_dtype dtype, int lowest)
{
    return (exact_windows){.dtype = dtype, .loops = gpr_cpu_loops()->exact[dtype], .lowest = lowest};
}

/* The largest exponent field in a tile of floats. */
static int largest_exponent_field(gpr_dtype dtype, const void *elements, uint64_t count)
{
    const uint32_t *b32 = elements;
    const uint64_t *b64 = elements;
    uint32_t most32 = 0;
    uint64_t most64 = 0;

    if (dtype == GPR_FLOAT32) {
        for (uint64_t i = 0; i < count; i++) most32 = (b32[i] & INT32_MAX) > most32 ? b32[i] & INT32_MAX : most32;
        return (int)(most32 >> 23);
    }
    for (uint64_t i = 0; i < count; i++) most64 = (b64[i] & INT64_MAX) > most64 ? b64[i] & INT64_MAX : most64;
    return (int)(most64 >> 52);
}

/* Places the windows for a tile. Returns 0 if there is no place for it: something is infinite or NaN, or too large. */
static int place_windows(exact_windows *how, const void *elements, uint64_t count)
{
    const int is_single = how->dtype == GPR_FLOAT32;
    const int field = largest_exponent_field(how->dtype, elements, count);
    int bias = field - (is_single ? 127 : 1023) + HEADROOM_BITS;

    if (field == (is_single ? 255 : 2047) || bias > MOST_BIAS) return 0;
    for (int w = 0; w < GPR_EXACT_WINDOWS; w++) {
        /* No window lies deeper than the smallest number needs. */
        if (bias < how->lowest + 52) bias = how->lowest + 52;
        const uint64_t bits = (uint64_t)(bias + 1023) << 52 | UINT64_C(1) << 51;
        memcpy(&how->biases[w], &bits, sizeof bits);
        how->units[w] = bias - 52;
        bias -= GPR_EXACT_WINDOW_BITS;
    }
    how->placed = 1;
    return 1;
}

/* Sums a tile in few windows, or in all of them, as they lie; 0 if they do not hold it. */
static int sum_as_placed(exact_windows *how, int all, const void *elements, uint64_t count, window_sums *found)
{
    if (!(all ? how->loops.all : how->loops.few)(elements, count, how->biases, found->sums)) return 0;
    found->count = all ? GPR_EXACT_WINDOWS : how->loops.few_count;
    how->all = all;
    return 1;
}

/* Sums a tile in windows: as the last one was, or else in windows placed for it. 0 if none hold it. */
static int sum_in_windows(exact_windows *how, const void *elements, uint64_t count, window_sums *found)
{
    if (how->placed && sum_as_placed(how, how->all, elements, count, found)) return 1;
    if (place_windows(how, elements, count) &&
        (sum_as_placed(how, 0, elements, count, found) || sum_as_placed(how, 1, elements, count, found)))
        return 1;
    how->skipped = SKIPPED_TILES;
    return 0;
}

/* Whether windows are worth a try. */
static int tries_windows(exact_windows *how, uint64_t count)
{
    if (how->skipped > 0) {
        how->skipped--;
        return 0;
    }
    return how->loops.few != NULL && count > SLOW_ELEMENTS;
}

static void add_sums(gpr_exact_part *part, const exact_windows *how, const window_sums *found)
{
    for (int w = 0; w < found->count; w++) gpr_exact_add_integer(part, found->sums[w], how->units[w]);
}

/* ---------------------------------------------------------------- elements ------------------- */

exact_adder gpr_cpu_exact_adder(gpr_exact_part *part, gpr_dtype dtype)
{
    const gpr_loops *loops = gpr_cpu_loops();
    const gpr_dtype_row *row = &gpr_dtype_rows[dtype];
    exact_adder how = {.part = part, .dtype = dtype};

    if (row->kind != GPR_KIND_FLOAT) {
        if (row->bytes < 8) how.sum = loops->loop[GPR_FOLD_sum][dtype].rows;
        return how;
    }
    if (loops->exact[dtype].few == NULL) how.widen = loops->widen[dtype];
    how.windows = make_windows(how.widen.loop != NULL ? how.widen.to : dtype, gpr_exact_grid_of(dtype).lowest);
    return how;
}

static int add_in_windows(exact_adder *how, const void *elements, uint64_t count)
{
    _Alignas(64) float widened[GPR_EXACT_TILE];
    window_sums found;

    if (!tries_windows(&how->windows, count)) return 0;
    if (how->widen.loop != NULL) {
        how->widen.loop(elements, widened, count);
        elements = widened;
    }
    if (!sum_in_windows(&how->windows, elements, count, &found)) return 0;
    add_sums(how->part, &how->windows, &found);
    return 1;
}

void gpr_cpu_add_tile(exact_adder *how, const void *elements, uint64_t count)
{
    if (how->sum != NULL) {
        uint64_t sum = 0;

        how->sum(elements, 0, 1, count, &sum);
        gpr_exact_add_integer(how->part, (int64_t)sum, 0);
    } else if (!add_in_windows(how, elements, count)) {
        gpr_exact_add_elements(how->part, how->dtype, elements, count);
        return;
    }
    how->part->count += count;
    if ((how->part->flags & GPR_EXACT_NOT_MINUS_ZERO) == 0)
        how->part->flags |= gpr_exact_zero_flag(how->dtype, elements, count);
}

/* ---------------------------------------------------------------- products ------------------- */

product_adder gpr_cpu_product_adder(gpr_exact_part *part, gpr_dtype dtype)
{
    const gpr_loops *loops = gpr_cpu_loops();
    product_adder how = {.part = part, .dtype = dtype};

    if (gpr_dtype_rows[dtype].kind != GPR_KIND_FLOAT) return how;
    if (loops->products[dtype] == NULL) how.widen = loops->widen[dtype];
    how.multiply = loops->products[how.widen.loop != NULL ? how.widen.to : dtype];
    how.doubles = gpr_cpu_exact_adder(part, GPR_FLOAT64);
    how.high = how.low = how.doubles.windows;
    return how;
}

/* Adds products of doubles as two doubles each; 0 if they are not, or windows do not hold them. */
static int add_product_pairs(product_adder *how, const double *a, const double *b, uint64_t count)
{
    _Alignas(64) double high[PRODUCT_TILE], low[PRODUCT_TILE];
    window_sums found_high, found_low;

    if (!tries_windows(&how->high, count)) return 0;
    if (!how->multiply(a, b, count, high, low)) {
        how->high.skipped = SKIPPED_TILES;
        return 0;
    }
    if (!sum_in_windows(&how->high, high, count, &found_high)) return 0;
    if (!sum_in_windows(&how->low, low, count, &found_low)) {
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
    _Alignas(64) double products[PRODUCT_TILE];
    _Alignas(64) float widened_a[PRODUCT_TILE], widened_b[PRODUCT_TILE];

    if (how->multiply == NULL || (how->dtype == GPR_FLOAT64 && !add_product_pairs(how, a, b, count))) {
        gpr_exact_add_products(how->part, how->dtype, a, b, count);
        return;
    }
    if (how->dtype == GPR_FLOAT64) return;
    if (how->widen.loop != NULL) {
        how->widen.loop(a, widened_a, count);
        a = widened_a;
        how->widen.loop(b, widened_b, count);
        b = widened_b;
    }
    how->multiply(a, b, count, products, NULL);
    gpr_cpu_add_tile(&how->doubles, products, count);
}
