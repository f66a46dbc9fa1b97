/* Sums of products with a bound on their error; see product_sums.h. */
#include "cpu/product_sums.h"

#include <math.h>
#include <string.h>

#include "cpu/job.h"
#include "lib/base/convert.h"
#include "lib/base/integers.h"
#include "lib/base/registry.h"
#include "lib/rules/rules.h"

/* Factors that a loop multiplies at once where they are read in place: a loop of real numbers has 8
 * lanes at least, one of complex numbers 2 for the products of two parts. */
enum { IN_PLACE_TILE = 8192, COMPLEX_TILE = 2048 };

/* Bounds on errors, in shares of `size`: the sum of magnitudes, or what loops have in its place. A
 * lane adds 2^10 products at most.
 *   products of float32  are added plainly: 2^10 roundings of 2^-53, and the lanes' sum
 *   products of float64  are added as two doubles: the second one, which is less than 2^10 * 2^-52
 *                        of the sum, is rounded twice per product: 2^11 * 2^10 * 2^-52 * 2^-53
 * Biased lanes of m <= 2^9 float64 products, 2^13 in all, and a bias of 2^k have a `size` of 2^(k +
 * 2) or more. Each product is rounded by 2^(k - 106) and added to a rest of m * 2^(k - 53): 2^13 *
 * (1 + 2^9) * 2^(k - 106) < 2^(k - 83) < 2^-85 of `size`.
 * Merging rounds the second double once or twice, by 2^-105 each. Underflow loses less than 2^-1070
 * per product: nothing beside LEAST_SIZE. All bounds are twice as large or more, for the rounding
 * of magnitudes and of what is computed here. */
#define NARROW_ERROR 0x1p-41
#define WIDE_ERROR 0x1p-81
#define MERGE_ERROR 0x1p-102
#define LEAST_SIZE 0x1p-800
#define MOST_SIZE 0x1p1000

static int is_integer(gpr_dtype dtype)
{
    return !gpr_is_inexact(dtype) && dtype != GPR_BOOL;
}

/* Whether loops of float64 multiply the factors. */
static int is_wide(const gpr_cpu_factors *factors)
{
    return gpr_real_dtype(factors->dtype) == GPR_FLOAT64 || !gpr_is_inexact(factors->dtype);
}

int gpr_cpu_wraps_products(const gpr_rule *rule)
{
    return rule->products == GPR_PRODUCTS && is_integer(rule->compute) && is_integer(rule->result);
}

/* Whether numbers of the view stay as they are in the dtype, and in wider ones. */
static int is_held(const gpr_view *view, gpr_dtype dtype)
{
    const gpr_dtype from = gpr_real_dtype(view->dtype), to = gpr_real_dtype(dtype);

    return from == to || (gpr_is_inexact(from) && gpr_dtype_bytes(from) < gpr_dtype_bytes(to));
}

gpr_dtype gpr_cpu_dtype_of_factors(const gpr_rule *rule, const gpr_view *first,
                                   const gpr_view *second)
{
    const gpr_dtype own = rule->compute;

    if (!gpr_is_inexact(own) || gpr_real_dtype(rule->result) != GPR_FLOAT64) return own;
    if (!is_held(first, own) || (second != NULL && !is_held(second, own))) return own;
    return gpr_kind_of(own) == GPR_KIND_COMPLEX ? GPR_COMPLEX128 : GPR_FLOAT64;
}

int gpr_cpu_may_sum_products(const gpr_cpu_factors *factors, const gpr_rule *rule)
{
    const gpr_kind kind = gpr_kind_of(factors->dtype), of_result = gpr_kind_of(rule->result);

    if (factors->wraps) return 1;
    if (rule->divide) return 0;
    if (!gpr_is_inexact(factors->dtype)) return of_result == GPR_KIND_FLOAT;
    if (of_result != kind) return 0;
    return is_wide(factors) || gpr_real_dtype(rule->result) != GPR_FLOAT64;
}

static void merge(gpr_product_sum *sum, double upper, double lower, double size)
{
    const double total = sum->upper + upper, of_second = total - sum->upper,
                 lost = (sum->upper - (total - of_second)) + (upper - of_second),
                 rest = sum->lower + lower + lost;

    /* the larger one first: what remains is what rounding takes from their sum */
    sum->upper = total + rest;
    sum->lower =
        fabs(total) >= fabs(rest) ? rest - (sum->upper - total) : total - (sum->upper - rest);
    sum->size += size;
}

void gpr_cpu_merge_product_sums(product_sums *sums, const product_sums *others)
{
    for (int p = 0; p < GPR_EXACT_PARTS; p++)
        merge(&sums->of[p], others->of[p].upper, others->of[p].lower, others->of[p].size);
    sums->wrapped += others->wrapped;
    sums->is_inexact |= others->is_inexact;
    sums->merged += others->merged + 1;
}

static void add(gpr_product_sum *sum, gpr_product_sum other, int is_subtracted)
{
    merge(sum, is_subtracted ? -other.upper : other.upper,
          is_subtracted ? -other.lower : other.lower, other.size);
}

/* Whether factors are complex numbers and their own conjugates: of their products, imaginary parts
 * cancel each other. */
static int are_conjugates(const gpr_cpu_factors *factors)
{
    const gpr_view *a = factors->first, *b = factors->second;
    int same = factors->conjugates && a->data == b->data && a->dtype == b->dtype &&
               a->encoding == b->encoding;

    for (int i = 0; i < a->outer + a->inner && same; i++) same = a->axes[i].in == b->axes[i].in;
    return same;
}

/* The sum of the squares of all parts. */
static void sum_squares_of_parts(const gpr_cpu_factors *factors, uint64_t row, uint64_t first,
                                 uint64_t end, product_sums_memory *memory, product_sums *sums)
{
    const gpr_product_sum_loop loop =
        gpr_cpu_loops()->product_sums[GPR_SQUARES][gpr_real_dtype(factors->dtype)];
    const int in_place = gpr_cpu_has_elements_in_place(factors, factors->first);
    const uint64_t tile = (in_place ? IN_PLACE_TILE : PRODUCT_TILE) / GPR_EXACT_PARTS;

    for (uint64_t at = first; at < end; at += tile) {
        const uint64_t count = end - at < tile ? end - at : tile;

        add(&sums->of[0],
            loop(gpr_cpu_read_elements(factors, factors->first, row, at, count, &memory->stages[0]),
                 NULL, GPR_EXACT_PARTS * count),
            0);
        sums->merged += 2;
    }
}

static void sum_complex_products(const gpr_cpu_factors *factors, uint64_t row, uint64_t first,
                                 uint64_t end, product_sums_memory *memory, product_sums *sums)
{
    const gpr_complex_product_sums_loop loop =
        gpr_cpu_loops()->complex_product_sums[factors->dtype];
    const int in_place = gpr_cpu_has_elements_in_place(factors, factors->first) &&
                         gpr_cpu_has_elements_in_place(factors, factors->second);
    const uint64_t tile = in_place ? COMPLEX_TILE : PRODUCT_TILE / 2;

    for (uint64_t at = first; at < end; at += tile) {
        const uint64_t count = end - at < tile ? end - at : tile;
        gpr_product_sum of_parts[GPR_PART_PRODUCTS];

        loop(gpr_cpu_read_elements(factors, factors->first, row, at, count, &memory->stages[0]),
             gpr_cpu_read_elements(factors, factors->second, row, at, count, &memory->stages[1]),
             count, of_parts);
        add(&sums->of[0], of_parts[0], 0);
        add(&sums->of[0], of_parts[1], !factors->conjugates);
        add(&sums->of[1], of_parts[2], 0);
        add(&sums->of[1], of_parts[3], factors->conjugates);
        sums->merged += 2;
    }
}

/* The dtype that loops of real numbers read: the factors', or what that is widened to. */
static gpr_dtype dtype_of_loops(const gpr_cpu_factors *factors)
{
    const gpr_widening how = gpr_cpu_loops()->widen[factors->dtype];

    return how.loop != NULL ? how.to : factors->dtype;
}

/* Whether some of the numbers are integers that no double holds. */
static int have_more_bits(gpr_dtype dtype, const void *numbers, uint64_t count)
{
    const uint64_t *x = numbers;
    uint64_t any = 0;

    if (dtype == GPR_UINT64)
        for (uint64_t i = 0; i < count; i++) any |= x[i];
    if (dtype == GPR_INT64)
        for (uint64_t i = 0; i < count; i++) any |= x[i] ^ (0 - (x[i] >> 63));
    return any >> 53 != 0;
}

/* Factors as the loops read them. */
static const void *widen(const gpr_cpu_factors *factors, const void *numbers, uint64_t count,
                         void *widened, product_sums *sums)
{
    const gpr_widening how = gpr_cpu_loops()->widen[factors->dtype];

    if (how.loop == NULL) return numbers;
    sums->is_inexact |= have_more_bits(factors->dtype, numbers, count);
    how.loop(numbers, widened, count);
    return widened;
}

void gpr_cpu_sum_products(const gpr_cpu_factors *factors, uint64_t row, uint64_t first,
                          uint64_t end, product_sums_memory *memory, product_sums *sums)
{
    const gpr_loops *loops = gpr_cpu_loops();
    const int has_second = factors->products == GPR_PRODUCTS;
    const gpr_dtype dtype = factors->dtype, read = dtype_of_loops(factors);
    const int in_place = (factors->wraps || read == dtype) &&
                         gpr_cpu_reads_factors_in_place(factors, factors->first) &&
                         (!has_second || gpr_cpu_reads_factors_in_place(factors, factors->second));
    const uint64_t tile = in_place ? IN_PLACE_TILE : PRODUCT_TILE;

    if (factors->components > 1 && are_conjugates(factors)) {
        sum_squares_of_parts(factors, row, first, end, memory, sums);
        return;
    }
    if (factors->components > 1) {
        sum_complex_products(factors, row, first, end, memory, sums);
        return;
    }
    const gpr_product_sum_loop loop = loops->product_sums[factors->products][read];

    for (uint64_t at = first; at < end; at += tile) {
        const uint64_t count = end - at < tile ? end - at : tile;
        const void *x[GPR_EXACT_PARTS], *y[GPR_EXACT_PARTS] = {NULL};

        gpr_cpu_read_factors(factors, factors->first, row, at, count, &memory->stages[0], x);
        if (has_second)
            gpr_cpu_read_factors(factors, factors->second, row, at, count, &memory->stages[1], y);
        if (factors->wraps) {
            sums->wrapped += loops->wrapped_products[dtype](x[0], y[0], count);
            continue;
        }
        x[0] = widen(factors, x[0], count, memory->widened[0], sums);
        if (has_second) y[0] = widen(factors, y[0], count, memory->widened[1], sums);
        add(&sums->of[0], loop(x[0], y[0], count), 0);
        sums->merged += 2;
    }
}

/* ---------------------------------------------------------------- columns -------------------- */

/* Whether float32 are read where sums of doubles are wanted. */
static int reads_narrow(const gpr_cpu_factors *factors)
{
    return factors->dtype == GPR_FLOAT64 && factors->products == GPR_PRODUCTS &&
           factors->first->dtype == GPR_FLOAT32 && factors->second->dtype == GPR_FLOAT32;
}

/* Whether the loops read a view's columns, or what stands for all of them, where they are. */
static int is_in_place(const gpr_view *view, gpr_dtype dtype)
{
    return view->dtype == dtype &&
           (gpr_cpu_columns_in_place(view) || (view->axes[view->outer - 1].in == 0 &&
                                               view->encoding == 0 && gpr_view_is_aligned(view)));
}

/* The loop for columns of memory as they are, which are read as of *dtype; NULL: some have to be
 * packed, and are read as of dtype_of_loops. */
static gpr_product_columns_loop loop_in_place(const gpr_cpu_factors *factors)
{
    const int is_narrow = reads_narrow(factors);
    const gpr_dtype dtype = is_narrow ? GPR_FLOAT32 : factors->dtype;

    if (!is_in_place(factors->first, dtype)) return NULL;
    if (factors->products == GPR_PRODUCTS && !is_in_place(factors->second, dtype)) return NULL;
    if (is_narrow) return gpr_cpu_loops()->wide_product_columns;
    return gpr_cpu_loops()->product_columns[factors->products][dtype];
}

uint64_t gpr_cpu_product_columns(const gpr_cpu_factors *factors)
{
    enum { FEWEST = 8, SHORTEST_RUN = 16, PACKED_COLUMNS = 64 };
    const gpr_view *view = factors->first;
    const int across = view->outer - 1, along = view->outer + view->inner - 1;

    if (factors->components > 1 || factors->wraps) return 0;
    if (!gpr_cpu_lies_crosswise(view) || view->axes[across].extent < FEWEST) return 0;
    if (view->axes[along].extent < SHORTEST_RUN && view->axes[along].extent < view->n) return 0;
    return loop_in_place(factors) != NULL ? PRODUCT_COLUMNS : PACKED_COLUMNS;
}

/* Packs factors of `rows` positions, from `first` on, of `width` columns, as loops read them. */
static const void *pack_columns(const gpr_cpu_factors *factors, const gpr_view *view, uint64_t row,
                                uint64_t width, uint64_t first, uint64_t rows, factor_stage *s,
                                double *widened, product_sums *all)
{
    const uint64_t count = rows * width;
    gpr_view tile;

    gpr_cpu_make_tile(view, width, &tile);
    gpr_cpu_locate(view, row, first, &tile);
    tile.rows_contiguous = 0;
    tile.n = count;
    return widen(factors, gpr_cpu_read_elements(factors, &tile, 0, 0, count, s), count, widened,
                 all);
}

void gpr_cpu_sum_product_columns(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                                 product_columns_memory *memory, product_sums *all)
{
    const gpr_view *view = factors->first, *second = factors->second;
    const int across = view->outer - 1, along = view->outer + view->inner - 1,
              has_second = factors->products == GPR_PRODUCTS,
              is_one = has_second && second->axes[across].in == 0;
    const gpr_dtype dtype = dtype_of_loops(factors);
    const gpr_product_columns_loop in_place = loop_in_place(factors);
    const gpr_product_columns_loop loop =
        in_place != NULL ? in_place : gpr_cpu_loops()->product_columns[factors->products][dtype];
    const uint64_t extent = view->axes[along].extent,
                   most = in_place != NULL ? GPR_PRODUCT_ROWS : PRODUCT_TILE / width;
    const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype);
    gpr_product_columns columns = {.width = width, .q_is_one = is_one};
    gpr_view at;

    *all = (product_sums){.merged = 0};
    columns.p_stride = in_place != NULL ? view->axes[along].in : bytes * (int64_t)width;
    columns.q_stride = in_place == NULL ? bytes * (int64_t)(is_one ? 1 : width)
                       : has_second     ? second->axes[along].in
                                        : 0;
    memset(memory->sums, 0, width * sizeof *memory->sums);
    for (uint64_t first = 0; first < view->n; first += columns.n) {
        columns.n = gpr_smaller(view->n - first, extent - first % extent);
        columns.n = gpr_smaller(columns.n, most);
        if (in_place != NULL) {
            gpr_cpu_locate(view, row, first, &at);
            columns.p = columns.q = at.data;
            if (has_second) gpr_cpu_locate(second, row, first, &at);
            columns.q = at.data;
        } else {
            columns.p = columns.q =
                pack_columns(factors, view, row, width, first, columns.n, &memory->read.stages[0],
                             memory->read.widened[0], all);
            if (has_second)
                columns.q = pack_columns(factors, second, row, is_one ? 1 : width, first, columns.n,
                                         &memory->read.stages[1], memory->read.widened[1], all);
        }
        loop(&columns, memory->upper, memory->lower, memory->sizes);
        for (uint64_t j = 0; j < width; j++)
            merge(&memory->sums[j], memory->upper[j], memory->lower[j], memory->sizes[j]);
        all->merged += 2;
    }
}

/* ---------------------------------------------------------------- results -------------------- */

/* The ends of an interval that contains the real number. */
typedef struct interval {
    double low, high;
} interval;

/* The interval of a sum, or of its root. Returns 0 if there is none. */
static int find_interval(const gpr_product_sum *sum, double share, int takes_root, interval *found)
{
    double upper = sum->upper, lower = sum->lower, error = sum->size * share;

    if (!(sum->size >= LEAST_SIZE && sum->size <= MOST_SIZE)) return 0; /* nor if it is NaN */
    if (takes_root) {
        const double root = sqrt(upper), rest = fma(-root, root, upper) + lower;

        if (!(error < upper / 2)) return 0;
        /* root + rest / (2 root) is the root but for rest^2 / (8 root^3), less than 2^-100 of it */
        upper = root;
        lower = rest / (2 * root);
        error = error / root + 0x1p-100 * root;
    }
    *found = (interval){upper + (lower - error), upper + (lower + error)};
    return 1;
}

/* No less than from a double to the next one. */
static double step_of(double x)
{
    return fabs(x) * 0x1p-52 + 0x1p-1074;
}

int gpr_cpu_finish_product_sums(const gpr_cpu_factors *factors, const product_sums *sums,
                                const gpr_rule *rule, char *result)
{
    const int is_narrow = gpr_real_dtype(rule->result) != GPR_FLOAT64;
    const double share =
        (is_wide(factors) ? WIDE_ERROR : NARROW_ERROR) + (double)sums->merged * MERGE_ERROR;
    const size_t bytes = gpr_dtype_bytes(rule->result);
    const uint64_t components = (uint64_t)factors->components;
    gpr_wide_block ends;
    char stored[2 * sizeof(double _Complex)];

    if (factors->wraps) {
        memcpy(result, &sums->wrapped, bytes);
        return 1;
    }
    if (sums->is_inexact) return 0;
    if (components == 1 && isnan(sums->of[0].size)) { /* so is one of the products */
        gpr_exact_store_nan(rule->result, result);
        return 1;
    }
    for (uint64_t p = 0; p < components; p++) {
        interval found;

        if (p > 0 && are_conjugates(factors)) { /* all of them are finite */
            ends.f64[p] = ends.f64[components + p] = 0;
            continue;
        }
        if (!find_interval(&sums->of[p], share, rule->takes_root, &found)) return 0;
        /* both are doubles, rounded to nearest: narrower results need the real ends' side */
        ends.f64[p] = is_narrow ? found.low - step_of(found.low) : found.low;
        ends.f64[components + p] = is_narrow ? found.high + step_of(found.high) : found.high;
        /* zeros have a sign that the products decide */
        if (!(ends.f64[p] > 0) && !(ends.f64[components + p] < 0)) return 0;
    }
    if (rule->result == GPR_FLOAT64) { /* these two as below, but in fewer steps */
        if (ends.f64[0] != ends.f64[1]) return 0;
        memcpy(result, &ends.f64[0], bytes);
        return 1;
    }
    if (rule->result == GPR_FLOAT32) {
        const float low = (float)ends.f64[0], high = (float)ends.f64[1];

        if (low != high) return 0;
        memcpy(result, &low, bytes);
        return 1;
    }
    gpr_store_wide(components > 1 ? GPR_WIDE_COMPLEX : GPR_WIDE_FLOAT, &ends, 2, rule->result,
                   stored);
    if (memcmp(stored, stored + bytes, bytes) != 0) return 0;
    memcpy(result, stored, bytes);
    return 1;
}
