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
 * per product: nothing beside GPR_LEAST_SUM_SIZE. All bounds are twice as large or more, for the
 * rounding of magnitudes and of what is computed here. */
#define NARROW_ERROR 0x1p-41
#define WIDE_ERROR 0x1p-81
#define MERGE_ERROR 0x1p-102

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
    const size_t bytes = gpr_dtype_bytes(from), of_float = gpr_dtype_bytes(to);

    if (from == to) return 1;
    /* A float has more bits than an integer of half its size; any one has those of a byte. */
    return bytes < of_float && (gpr_is_inexact(from) || bytes == 1 || 2 * bytes <= of_float);
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
    if (factors->products == GPR_MAGNITUDES && !is_wide(factors))
        return 0; /* nearly all of these are sums of numbers without signs: there is no loop */
    if (!gpr_is_inexact(factors->dtype)) return of_result == GPR_KIND_FLOAT;
    if (of_result != kind) return 0;
    return is_wide(factors) || gpr_real_dtype(rule->result) != GPR_FLOAT64;
}

/* x + y, and *lost what rounding takes from it. */
static double add_two(double x, double y, double *lost)
{
    const double sum = x + y, of_y = sum - x;

    *lost = (x - (sum - of_y)) + (y - of_y);
    return sum;
}

static void merge(gpr_product_sum *sum, double upper, double lower, double size)
{
    double lost;
    const double total = add_two(sum->upper, upper, &lost), rest = sum->lower + lower + lost;

    /* the larger one first: what remains is what rounding takes from their sum; -0 stays */
    sum->upper = rest == 0 ? total : total + rest;
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

/* How many elements of a row are read at once. Both views have the same axes. */
typedef struct pieces {
    uint64_t most;
    uint64_t run; /* that are read in place; 0: they are copied */
} pieces;

static pieces find_pieces(const gpr_cpu_factors *factors, uint64_t in_place, uint64_t copied)
{
    const int has_second = factors->products == GPR_PRODUCTS;
    const uint64_t first = gpr_cpu_run_in_place(factors, factors->first),
                   second = has_second ? gpr_cpu_run_in_place(factors, factors->second) : first,
                   run = gpr_smaller(first, second);

    return (pieces){run > 0 ? in_place : copied, run};
}

/* Elements from `at` on that are one piece, of those before `end`. */
static uint64_t piece_at(const pieces *how, uint64_t at, uint64_t end)
{
    const uint64_t count = gpr_smaller(end - at, how->most);

    return how->run > 0 ? gpr_smaller(count, how->run - at % how->run) : count;
}

/* The sum of the squares of all parts. */
static void sum_squares_of_parts(const gpr_cpu_factors *factors, uint64_t row, uint64_t first,
                                 uint64_t end, product_sums_memory *memory, product_sums *sums)
{
    const gpr_product_sum_loop loop =
        gpr_cpu_loops()->product_sums[GPR_SQUARES][gpr_real_dtype(factors->dtype)];
    const pieces how =
        find_pieces(factors, IN_PLACE_TILE / GPR_EXACT_PARTS, PRODUCT_TILE / GPR_EXACT_PARTS);

    for (uint64_t at = first, count; at < end; at += count) {
        count = piece_at(&how, at, end);
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
    const pieces how = find_pieces(factors, COMPLEX_TILE, PRODUCT_TILE / GPR_EXACT_PARTS);

    for (uint64_t at = first, count; at < end; at += count) {
        gpr_product_sum of_parts[GPR_PART_PRODUCTS];

        count = piece_at(&how, at, end);
        loop(gpr_cpu_read_elements(factors, factors->first, row, at, count, &memory->stages[0]),
             gpr_cpu_read_elements(factors, factors->second, row, at, count, &memory->stages[1]),
             count, of_parts);
        add(&sums->of[0], of_parts[0], 0);
        add(&sums->of[0], of_parts[1], !factors->conjugates);
        add(&sums->of[1], of_parts[2], 0);
        add(&sums->of[1], of_parts[3], factors->conjugates);
        sums->merged += 2;
        if (isnan(sums->of[0].size) && isnan(sums->of[1].size)) return;
    }
}

/* The dtype that loops of real numbers read: the factors', or what that is widened to. */
static gpr_dtype dtype_of_loops(const gpr_cpu_factors *factors)
{
    const gpr_widening how = gpr_cpu_loops()->widen[factors->dtype];

    return how.loop != NULL ? how.to : factors->dtype;
}

/* Whether some of the numbers are integers of 54 bits or more, which doubles may not hold. */
static int have_more_bits(gpr_dtype dtype, const void *numbers, uint64_t count)
{
    enum { BITS = 53 };

    /* from -2^53 to 2^53 - 1, signed integers become less than 2^54 by an addition */
    if (dtype == GPR_UINT64) return gpr_cpu_loops()->any_bits(numbers, count, 0) >> BITS != 0;
    if (dtype == GPR_INT64)
        return gpr_cpu_loops()->any_bits(numbers, count, UINT64_C(1) << BITS) >> (BITS + 1) != 0;
    return 0;
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

/* Whether squares are of integers of 16 bits or less: their sums in a tile are integers that a
 * double holds. */
static int squares_are_small(const gpr_cpu_factors *factors)
{
    return factors->products == GPR_SQUARES && is_integer(factors->dtype) && !factors->wraps &&
           gpr_dtype_bytes(factors->dtype) <= 2;
}

static gpr_product_sum sum_of_small_squares(gpr_dtype dtype, const void *numbers, uint64_t count)
{
    const double sum = (double)gpr_cpu_loops()->wrapped_products[dtype](numbers, numbers, count);

    return (gpr_product_sum){sum, 0, sum};
}

void gpr_cpu_sum_products(const gpr_cpu_factors *factors, uint64_t row, uint64_t first,
                          uint64_t end, product_sums_memory *memory, product_sums *sums)
{
    const gpr_loops *loops = gpr_cpu_loops();
    const int has_second = factors->products == GPR_PRODUCTS;
    const gpr_dtype dtype = factors->dtype, read = dtype_of_loops(factors);
    const int has_squares = squares_are_small(factors),
              is_widened = !factors->wraps && !has_squares && read != dtype;
    const pieces how =
        find_pieces(factors, is_widened ? PRODUCT_TILE : IN_PLACE_TILE, PRODUCT_TILE);

    if (factors->components > 1 && are_conjugates(factors)) {
        sum_squares_of_parts(factors, row, first, end, memory, sums);
        return;
    }
    if (factors->components > 1) {
        sum_complex_products(factors, row, first, end, memory, sums);
        return;
    }
    const gpr_product_sum_loop loop = loops->product_sums[factors->products][read];

    for (uint64_t at = first, count; at < end; at += count) {
        const void *x[GPR_EXACT_PARTS], *y[GPR_EXACT_PARTS] = {NULL};

        count = piece_at(&how, at, end);
        gpr_cpu_read_factors(factors, factors->first, row, at, count, &memory->stages[0], x);
        if (has_second)
            gpr_cpu_read_factors(factors, factors->second, row, at, count, &memory->stages[1], y);
        if (factors->wraps) {
            sums->wrapped += loops->wrapped_products[dtype](x[0], y[0], count);
            continue;
        }
        if (has_squares) {
            add(&sums->of[0], sum_of_small_squares(dtype, x[0], count), 0);
            continue; /* nothing is rounded */
        }
        x[0] = widen(factors, x[0], count, memory->widened[0], sums);
        if (has_second) y[0] = widen(factors, y[0], count, memory->widened[1], sums);
        add(&sums->of[0], loop(x[0], y[0], count), 0);
        sums->merged += 2;
        if (isnan(sums->of[0].size)) return; /* whatever the other products are */
    }
}

/* ---------------------------------------------------------------- rows side by side ---------- */

/* How the loop reads one of the views. */
typedef struct rows_reader {
    const gpr_view *view;
    int in_place;
    int is_one; /* all rows have the same factors */
    factor_stage *stage;
    double *tile;        /* of numbers that are not read in place */
    const char **starts; /* where rows begin that are not read in place */
    int64_t *offsets;
    const char **rows;     /* where they begin, in place or in the tile */
    int64_t stride, block; /* bytes */
} rows_reader;

/* Numbers that the loop reads: float32 or float64. Sums of float32 to doubles are read as such. */
static gpr_dtype dtype_of_rows(const gpr_cpu_factors *factors)
{
    const int has_second = factors->products == GPR_PRODUCTS;

    if (has_second && factors->dtype == GPR_FLOAT64 && is_held(factors->first, GPR_FLOAT32) &&
        is_held(factors->second, GPR_FLOAT32))
        return GPR_FLOAT32;
    return dtype_of_loops(factors);
}

static int is_in_place(const gpr_view *view, gpr_dtype dtype)
{
    return view->dtype == dtype && view->encoding == 0 && gpr_view_is_aligned(view);
}

/* Whether a sum of magnitude 0 is one of zeros: no product of others is rounded to it. */
static int zero_is_zero(const gpr_cpu_factors *factors)
{
    const gpr_view *a = factors->first, *b = factors->second;

    if (factors->are_parts || factors->components > 1) return 0;
    if (factors->products == GPR_MAGNITUDES || dtype_of_rows(factors) == GPR_FLOAT32) return 1;
    return !gpr_is_inexact(a->dtype) ||
           (factors->products == GPR_PRODUCTS && !gpr_is_inexact(b->dtype));
}

/* Whether rows that have to be packed are neighbours then: columns of which so many are beside each
 * other that runs of them are packed, or rows of one element. */
static int packs_columns(const gpr_view *view)
{
    enum { SHORTEST_RUN = 16 };

    return view->n == 1 ||
           (gpr_cpu_lies_crosswise(view) && view->axes[view->outer - 1].extent >= SHORTEST_RUN);
}

int gpr_cpu_has_rows_beside(const gpr_view *view)
{
    enum { SHORT_ROW = 256 };

    return gpr_cpu_lies_crosswise(view) || view->n <= SHORT_ROW;
}

/* How many rows are packed at once, `fewest` or more. Both parts of a complex number are in one
 * unit: the exact sum stores both where one is undecided. */
static uint64_t packed_width(const gpr_view *view, uint64_t fewest)
{
    const uint64_t width =
        gpr_smaller(gpr_larger(PRODUCT_TILE / view->n, fewest), MOST_PRODUCT_ROWS);

    return width - width % GPR_EXACT_PARTS;
}

int gpr_cpu_cut_product_rows(const gpr_cpu_factors *factors, uint64_t most, gpr_cpu_units *units)
{
    enum { FEWEST = 3, PACKED_ROWS = 64 };
    const gpr_view *view = factors->first;
    const gpr_dtype dtype = dtype_of_rows(factors);
    const int in_place = is_in_place(view, dtype) &&
                         (factors->products != GPR_PRODUCTS || is_in_place(factors->second, dtype));
    uint64_t width = MOST_PRODUCT_ROWS;

    if (factors->components > 1 || factors->wraps || view->rows < FEWEST) return 0;
    if (!factors->are_parts && !gpr_cpu_has_rows_beside(view)) return 0;
    if (!in_place && packs_columns(view)) {
        width = packed_width(view, PACKED_ROWS);
        *units = gpr_cpu_cut_units(view, gpr_smaller(most, width));
        return 1;
    }
    if (!in_place) width = packed_width(view, GPR_ROW_LANES);
    *units = gpr_cpu_cut_rows(view, gpr_smaller(width, most));
    return 1;
}

/* Whether all rows have the same factors. */
static int has_one_row(const gpr_view *view)
{
    int is_one = 1;

    for (int i = 0; i < view->outer; i++) is_one &= view->axes[i].in == 0;
    return is_one;
}

/* Whether `width` rows from `row` on are neighbours, in memory or where they are packed. */
static int lie_beside(const gpr_view *view, gpr_dtype dtype, uint64_t row, uint64_t width,
                      int by_columns)
{
    const gpr_axis *last = &view->axes[view->outer - 1];

    if (!is_in_place(view, dtype)) return by_columns && !has_one_row(view);
    return view->outer > 0 && last->in == (int64_t)view->bytes &&
           row % last->extent + width <= last->extent;
}

/* Finds where `width` rows, from `row` on, begin in memory, of the first `outer` axes. */
static void find_rows_of(const gpr_view *view, int outer, uint64_t row, uint64_t width,
                         const char **rows)
{
    const gpr_axis *last = &view->axes[outer - 1];
    uint64_t index[GPR_MAX_NDIM], j = 0;
    const char *at = view->data;

    for (int i = outer - 1; i >= 0; i--) {
        index[i] = row % view->axes[i].extent;
        row /= view->axes[i].extent;
        at += (int64_t)index[i] * view->axes[i].in;
    }
    for (;;) {
        const uint64_t some = gpr_smaller(width - j, last->extent - index[outer - 1]);

        for (uint64_t k = 0; k < some; k++, at += last->in) rows[j + k] = at;
        j += some;
        if (j == width) return;
        index[outer - 1] = 0;
        at -= (int64_t)last->extent * last->in;
        for (int i = outer - 2; i >= 0; i--) {
            at += view->axes[i].in;
            if (++index[i] < view->axes[i].extent) break;
            at -= (int64_t)view->axes[i].extent * view->axes[i].in;
            index[i] = 0;
        }
    }
}

/* Finds where rows begin, of all axes. The last one's two rows, as parts of complex ones are, take
 * longer to step over than to add. */
static void find_rows(const gpr_view *view, uint64_t row, uint64_t width, const char **rows)
{
    const gpr_axis *last = &view->axes[view->outer - 1];

    if (view->outer < 2 || last->extent != 2 || row % 2 != 0 || width % 2 != 0) {
        find_rows_of(view, view->outer, row, width, rows);
        return;
    }
    find_rows_of(view, view->outer - 1, row / 2, width / 2, rows);
    for (uint64_t k = width / 2; k-- > 0;) {
        const char *first = rows[k];

        rows[2 * k] = first;
        rows[2 * k + 1] = first + last->in;
    }
}

static void repeat_last(uint64_t width, const char **rows)
{
    for (uint64_t j = width; j % GPR_ROW_LANES != 0; j++) rows[j] = rows[width - 1];
}

/* Converts `count` elements to numbers of the dtype that the loop reads. */
static void convert(const gpr_cpu_factors *factors, const rows_reader *how, const void *elements,
                    uint64_t count, gpr_dtype to, char *numbers, product_sums *all)
{
    const gpr_dtype from = how->view->dtype;

    if (from == to) {
        if (elements != numbers) memcpy(numbers, elements, count * gpr_dtype_bytes(to));
        return;
    }
    if (factors->dtype == to || gpr_is_inexact(factors->dtype)) {
        gpr_cpu_convert_factors(from, elements, to, numbers, count);
        return;
    }
    if (from != factors->dtype) { /* integers, first to their common type */
        gpr_convert(from, elements, factors->dtype, how->stage->converted, count);
        elements = how->stage->converted;
    }
    all->is_inexact |= have_more_bits(factors->dtype, elements, count);
    gpr_cpu_convert_factors(factors->dtype, elements, to, numbers, count);
}

/* Copies elements of rows, `offsets` from where each begins, of any alignment, as they are or in
 * the other byte order: runs may be of one element, for which a call each takes too long. */
#define DEFINE_GATHER(bytes, T, SWAP)                                                           \
    static void gather_##bytes(const char *const *rows, uint64_t width, const int64_t *offsets, \
                               uint64_t count, int is_swapped, char *to)                        \
    {                                                                                           \
        for (uint64_t j = 0; j < width; j++) {                                                  \
            const char *row = rows[j];                                                          \
                                                                                                \
            for (uint64_t i = 0; i < count; i++, to += (bytes)) {                               \
                T x;                                                                            \
                memcpy(&x, row + offsets[i], bytes);                                            \
                if (is_swapped) x = (T)SWAP(x);                                                 \
                memcpy(to, &x, bytes);                                                          \
            }                                                                                   \
        }                                                                                       \
    }
DEFINE_GATHER(1, uint8_t, )
DEFINE_GATHER(2, uint16_t, __builtin_bswap16)
DEFINE_GATHER(4, uint32_t, __builtin_bswap32)
DEFINE_GATHER(8, uint64_t, __builtin_bswap64)

static void gather(const gpr_view *view, const char *const *rows, uint64_t width,
                   const int64_t *offsets, uint64_t count, char *to)
{
    const int is_swapped = view->encoding == GPR_SWAPPED;

    switch (view->bytes) {
    case 1: gather_1(rows, width, offsets, count, is_swapped, to); break;
    case 2: gather_2(rows, width, offsets, count, is_swapped, to); break;
    case 4: gather_4(rows, width, offsets, count, is_swapped, to); break;
    default: gather_8(rows, width, offsets, count, is_swapped, to); break;
    }
}

/* Finds how far `count` positions of rows, from `first` on, are from the first one. */
static void find_offsets(const gpr_view *view, uint64_t first, uint64_t count, int64_t *offsets)
{
    const gpr_axis *last = &view->axes[view->outer + view->inner - 1];
    gpr_view at;

    if (view->inner == 0) offsets[0] = 0; /* there is one */
    for (uint64_t i = 0; i < count && view->inner > 0;) {
        const uint64_t position = first + i,
                       some = gpr_smaller(count - i, last->extent - position % last->extent);

        gpr_cpu_locate(view, 0, position, &at);
        for (uint64_t k = 0; k < some; k++)
            offsets[i + k] = at.data - view->data + (int64_t)k * last->in;
        i += some;
    }
}

/* Copies elements of a view to the tile, as the loop reads them. */
static void pack(const gpr_cpu_factors *factors, const rows_reader *how, const gpr_view *view,
                 uint64_t first, uint64_t count, gpr_dtype to, char *numbers, product_sums *all)
{
    char *packed = view->dtype == to ? numbers : how->stage->packed;

    gpr_cpu_pack(view, first, count, NULL, packed);
    convert(factors, how, packed, count, to, numbers, all);
}

/* Reads `count` positions, from `first` on, of rows to the tile: a row's numbers `pitch` apart from
 * the next one's, or of columns position by position. */
static void read_tile(const gpr_cpu_factors *factors, const rows_reader *how, uint64_t row,
                      uint64_t width, uint64_t first, uint64_t count, uint64_t pitch,
                      int by_columns, gpr_dtype to, product_sums *all)
{
    const gpr_view *view = how->view;
    const size_t bytes = gpr_dtype_bytes(to);
    char *tile = (char *)how->tile;

    if (how->is_one) width = 1;
    if (view->n == 1) {
        pack(factors, how, view, row, width, to, tile, all);
        return;
    }
    if (by_columns && !how->is_one) {
        gpr_view columns;

        gpr_cpu_make_tile(view, width, &columns);
        gpr_cpu_locate(view, row, first, &columns);
        if (!gpr_cpu_columns_in_place(view)) {
            columns.rows_contiguous = 0;
            pack(factors, how, &columns, 0, count * width, to, tile, all);
            return;
        }
        for (uint64_t i = 0; i < count; i++)
            convert(factors, how, columns.data + (int64_t)i * columns.axes[0].in, width, to,
                    tile + i * width * bytes, all);
        return;
    }
    if (count == view->n && pitch == view->n && view->contiguous) {
        convert(factors, how, view->data + row * view->n * view->bytes, width * count, to, tile,
                all);
        return;
    }
    for (uint64_t j = 0; j < width && view->rows_contiguous; j++)
        convert(factors, how, gpr_view_row(view, row + j) + first * view->bytes, count, to,
                tile + j * pitch * bytes, all);
    if (view->rows_contiguous) return;
    find_offsets(view, first, count, how->offsets);
    if (count == pitch) { /* rows behind each other */
        char *packed = view->dtype == to ? tile : how->stage->packed;

        gather(view, how->starts, width, how->offsets, count, packed);
        convert(factors, how, packed, width * count, to, tile, all);
        return;
    }
    for (uint64_t j = 0; j < width; j++) {
        char *numbers = tile + j * pitch * bytes,
             *packed = view->dtype == to ? numbers : how->stage->packed;

        gather(view, how->starts + j, 1, how->offsets, count, packed);
        convert(factors, how, packed, count, to, numbers, all);
    }
}

/* Of the first factors or the second ones. Finds where `found` rows begin. */
static rows_reader make_reader(const gpr_view *view, int which, gpr_dtype dtype, uint64_t row,
                               uint64_t width, uint64_t pitch, int by_columns, uint64_t found,
                               product_rows_memory *memory)
{
    const char **rows = memory->rows[which];
    const double *tile = memory->read.widened[which];
    const int along = view->outer + view->inner - 1;
    const int64_t bytes = (int64_t)gpr_dtype_bytes(dtype);
    rows_reader how = {.view = view,
                       .in_place = is_in_place(view, dtype),
                       .is_one = has_one_row(view),
                       .stage = &memory->read.stages[which],
                       .tile = memory->read.widened[which],
                       .starts = memory->starts[which],
                       .offsets = memory->offsets,
                       .rows = rows};

    if (how.in_place) {
        how.stride = view->inner > 0 ? view->axes[along].in : 0;
        how.block = view->inner > 1 ? view->axes[along - 1].in : 0;
        find_rows(view, row, found, rows);
    } else {
        by_columns &= !how.is_one;
        if (!by_columns && !view->rows_contiguous)
            find_rows(view, row, how.is_one ? 1 : width, memory->starts[which]);
        how.stride = by_columns ? (int64_t)width * bytes : bytes;
        for (uint64_t j = 0; j < found; j++)
            rows[j] = (const char *)tile + (how.is_one   ? 0
                                            : by_columns ? j
                                                         : j * pitch) *
                                               (uint64_t)bytes;
    }
    repeat_last(found, rows);
    return how;
}

/* Bytes from a row's first factor in place to that at a position. */
static int64_t offset_of(const rows_reader *how, uint64_t position)
{
    gpr_view at;

    if (!how->in_place || position == 0) return 0;
    gpr_cpu_locate(how->view, 0, position, &at);
    return at.data - how->view->data;
}

/* Merges the sums of the loop into the others. */
static void merge_rows(uint64_t width, product_rows_memory *memory, product_sums *all)
{
    for (uint64_t j = 0; j < width; j++) {
        gpr_product_sum *sum = &memory->merged[j];

        if (all->merged == 0) *sum = (gpr_product_sum){-0.0, 0, 0};
        merge(sum, memory->upper[j], memory->lower[j], memory->sizes[j]);
        memory->upper[j] = sum->upper;
        memory->lower[j] = sum->lower;
        memory->sizes[j] = sum->size;
    }
    all->merged += 2;
}

void gpr_cpu_store_product_rows(const product_rows_memory *memory, uint64_t width,
                                gpr_product_sum *sums)
{
    for (uint64_t j = 0; j < width; j++)
        sums[j] = (gpr_product_sum){memory->upper[j], memory->lower[j], memory->sizes[j]};
}

void gpr_cpu_merge_product_rows(product_rows_memory *memory, uint64_t width, product_sums *all,
                                const gpr_product_sum *others, const product_sums *of_others)
{
    for (uint64_t j = 0; j < width; j++) {
        gpr_product_sum sum = {memory->upper[j], memory->lower[j], memory->sizes[j]};

        merge(&sum, others[j].upper, others[j].lower, others[j].size);
        memory->upper[j] = sum.upper;
        memory->lower[j] = sum.lower;
        memory->sizes[j] = sum.size;
    }
    all->merged += of_others->merged + 1;
    all->is_inexact |= of_others->is_inexact;
}

void gpr_cpu_clear_product_rows(product_rows_memory *memory, uint64_t width)
{
    for (uint64_t j = 0; j < width; j++) {
        memory->upper[j] = -0.0; /* as a sum of -0 is */
        memory->lower[j] = memory->sizes[j] = 0;
    }
}

/* How a unit's rows are read. */
typedef struct unit_reader {
    const gpr_cpu_factors *factors;
    rows_reader first, second;
    gpr_dtype dtype; /* as loops read it */
    uint64_t row, width, pitch;
    int by_columns;
    gpr_product_rows rows; /* as the loop gets them, but for how many */
} unit_reader;

/* Finds where rows begin that are not neighbours; also those, where loops ask for it. */
static void make_unit_reader(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                             int asks_for_all, product_rows_memory *memory, unit_reader *unit)
{
    const gpr_view *view = factors->first, *other = factors->second;
    const int has_second = factors->products == GPR_PRODUCTS;
    const gpr_dtype dtype = dtype_of_rows(factors);
    const uint64_t pitch =
        gpr_smaller(view->n, gpr_smaller(PRODUCT_TILE / width, GPR_PRODUCT_ROWS));
    const int by_columns = packs_columns(view);
    const int are_beside =
        lie_beside(view, dtype, row, width, by_columns) &&
        (!has_second || has_one_row(other) || lie_beside(other, dtype, row, width, by_columns));
    const uint64_t found = are_beside && !asks_for_all ? 1 : width;

    *unit = (unit_reader){
        .factors = factors,
        .first = make_reader(view, 0, dtype, row, width, pitch, by_columns, found, memory),
        .second = {.in_place = 1},
        .dtype = dtype,
        .row = row,
        .width = width,
        .pitch = pitch,
        .by_columns = by_columns};
    if (has_second)
        unit->second = make_reader(other, 1, dtype, row, width, pitch, by_columns, found, memory);
    unit->rows = (gpr_product_rows){.p = memory->rows[0],
                                    .p_stride = unit->first.stride,
                                    .p_block = unit->first.block,
                                    .q = memory->rows[1],
                                    .q_stride = unit->second.stride,
                                    .q_block = unit->second.block,
                                    .q_is_one = unit->second.is_one,
                                    .are_beside = are_beside,
                                    .width = width,
                                    .blocks = 1};
}

/* How many of `most` positions from `at` on are read at once. */
static uint64_t run_of_unit(const unit_reader *unit, uint64_t at, uint64_t most)
{
    const gpr_view *view = unit->factors->first;
    const uint64_t extent = view->inner > 0 ? view->axes[view->outer + view->inner - 1].extent : 1;
    const int in_place = unit->first.in_place && unit->second.in_place;
    uint64_t run = gpr_smaller(most, GPR_PRODUCT_ROWS);

    if (!in_place) run = gpr_smaller(run, unit->pitch);
    if (unit->first.in_place || unit->second.in_place || unit->by_columns)
        run = gpr_smaller(run, extent - at % extent);
    return run;
}

/* Reads `run` positions from `at` on, if they are not read in place. */
static void read_unit(unit_reader *unit, uint64_t at, uint64_t run, product_sums *all)
{
    unit->rows.p_first = offset_of(&unit->first, at);
    if (unit->factors->products == GPR_PRODUCTS) unit->rows.q_first = offset_of(&unit->second, at);
    if (!unit->first.in_place)
        read_tile(unit->factors, &unit->first, unit->row, unit->width, at, run, unit->pitch,
                  unit->by_columns, unit->dtype, all);
    if (!unit->second.in_place)
        read_tile(unit->factors, &unit->second, unit->row, unit->width, at, run, unit->pitch,
                  unit->by_columns, unit->dtype, all);
}

/* Sums positions begin .. end - 1 of a unit, or of `width` of its rows, whose addresses are the
 * first ones. */
static void sum_unit(unit_reader *unit, gpr_product_rows_loop loop, uint64_t width, uint64_t begin,
                     uint64_t end, product_rows_memory *memory, product_sums *all)
{
    const gpr_view *view = unit->factors->first;
    const int along = view->outer + view->inner - 1;
    const uint64_t extent = view->inner > 0 ? view->axes[along].extent : 1,
                   blocks = view->inner > 1 ? view->axes[along - 1].extent : 1;
    gpr_product_rows *rows = &unit->rows;
    uint64_t added = 0, run;

    *all = (product_sums){.merged = 0};
    rows->width = width;
    for (uint64_t at = begin; at < end; at += run) {
        run = run_of_unit(unit, at, end - at);
        rows->n = run;
        rows->blocks = 1;
        if (unit->first.in_place && unit->second.in_place && run == extent) {
            rows->blocks = gpr_smaller(gpr_smaller(GPR_PRODUCT_ROWS, end - at) / extent,
                                       blocks - at / extent % blocks);
            run *= rows->blocks;
        }
        read_unit(unit, at, run, all);
        if (added + run > GPR_PRODUCT_ROWS) {
            merge_rows(width, memory, all);
            added = 0;
        }
        rows->continues = added > 0;
        loop(rows, memory->upper, memory->lower, memory->sizes);
        added += run;
    }
    if (all->merged > 0) merge_rows(width, memory, all);
}

enum { CALLED_ROW = 32 }; /* elements: worth a call for each row */

static void sum_rows_of_small_squares(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                                      uint64_t begin, uint64_t end, product_rows_memory *memory)
{
    const gpr_view *view = factors->first;

    for (uint64_t j = 0; j < width; j++) {
        const char *numbers = gpr_view_row(view, row + j) + begin * view->bytes;
        const gpr_product_sum sum = sum_of_small_squares(factors->dtype, numbers, end - begin);

        memory->upper[j] = memory->sizes[j] = sum.upper;
        memory->lower[j] = 0;
    }
}

static void sum_rows(const gpr_cpu_factors *factors, uint64_t row, uint64_t width, uint64_t begin,
                     uint64_t end, product_rows_memory *memory, product_sums *all)
{
    const gpr_dtype dtype = dtype_of_rows(factors);
    const int is_wide_sum = factors->dtype == GPR_FLOAT64 && dtype == GPR_FLOAT32;
    const gpr_product_rows_loop loop =
        is_wide_sum ? gpr_cpu_loops()->wide_product_rows
                    : gpr_cpu_loops()->product_rows[factors->products][dtype];
    unit_reader unit;

    if (squares_are_small(factors) && factors->first->rows_contiguous &&
        end - begin >= CALLED_ROW && end - begin <= IN_PLACE_TILE) {
        sum_rows_of_small_squares(factors, row, width, begin, end, memory);
        *all = gpr_cpu_no_products();
        return;
    }
    make_unit_reader(factors, row, width, 1, memory, &unit);
    sum_unit(&unit, loop, width, begin, end, memory, all);
}

/* What products of a row of parts by imaginary parts add to it: (re re - im im, re im + im re). */
static gpr_product_sum by_imaginary(gpr_product_sum sum, uint64_t row)
{
    if (row % GPR_EXACT_PARTS != 0) return sum;
    return (gpr_product_sum){-sum.upper, -sum.lower, sum.size};
}

void gpr_cpu_sum_product_rows(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                              uint64_t begin, uint64_t end, product_rows_memory *memory,
                              product_sums *all)
{
    product_sums others;

    if (factors->of_imaginary == NULL) {
        sum_rows(factors, row, width, begin, end, memory, all);
        return;
    }
    sum_rows(factors->of_imaginary, row, width, begin, end, memory, &others);
    for (uint64_t j = 0; j < width; j++)
        memory->of_imaginary[j] = by_imaginary(
            (gpr_product_sum){memory->upper[j], memory->lower[j], memory->sizes[j]}, row + j);
    sum_rows(factors, row, width, begin, end, memory, all);
    gpr_cpu_merge_product_rows(memory, width, all, memory->of_imaginary, &others);
}

int gpr_cpu_store_few_products(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                               const gpr_rule *rule, product_rows_memory *memory, char *results)
{
    const uint64_t n = factors->first->n;
    const gpr_dtype result = factors->are_parts ? gpr_real_dtype(rule->result) : rule->result;
    const int is_divided = factors->divisors != NULL,
              has_many = is_divided && !factors->has_one_divisor;
    const gpr_few_rule how = {.start = gpr_is_inexact(factors->dtype) ? -0.0 : 0,
                              .divisor = factors->has_one_divisor ? factors->divisors[0] : 1,
                              .divisors = has_many ? factors->divisors + row : NULL,
                              .is_divided = is_divided,
                              .is_inverted = factors->are_parts,
                              .is_single = result == GPR_FLOAT32,
                              .takes_root = rule->takes_root};
    const int is_float = result == GPR_FLOAT32 || result == GPR_FLOAT64,
              is_root = rule->takes_root && result == GPR_FLOAT32 &&
                        dtype_of_rows(factors) == GPR_FLOAT32 && !is_divided;
    product_sums all = {.merged = 0};
    unit_reader unit;

    if (n > GPR_FEW_PRODUCTS || (factors->are_parts && has_many) || factors->of_imaginary != NULL ||
        (factors->products != GPR_PRODUCTS && !is_root) || factors->times != 1 || !is_float ||
        (uintptr_t)results % gpr_dtype_bytes(result) != 0)
        return 0;
    make_unit_reader(factors, row, width, 0, memory, &unit);
    if (run_of_unit(&unit, 0, n) < n) return 0;
    read_unit(&unit, 0, n, &all);
    unit.rows.n = n;
    return !all.is_inexact && gpr_cpu_loops()->few_products[unit.dtype](&unit.rows, &how, results);
}

/* ---------------------------------------------------------------- results -------------------- */

static double divisor_of(const gpr_cpu_factors *factors, uint64_t row)
{
    return factors->divisors[factors->has_one_divisor ? 0 : row];
}

/* Divides a number's components, as NumPy does: complex ones by those of the divisor, whose
 * imaginary part is 0, which makes other zeros than a product with the reciprocal alone. */
static void divide(double *number, uint64_t components, double divisor)
{
    const double ratio = 0 / divisor, reciprocal = 1 / divisor, re = number[0], im = number[1];

    if (components == 1) {
        number[0] /= divisor;
        return;
    }
    number[0] = (re + im * ratio) * reciprocal;
    number[1] = (im - re * ratio) * reciprocal;
}

void gpr_cpu_finish_quotient(const gpr_cpu_factors *factors, uint64_t row, const gpr_rule *rule,
                             gpr_exact_part *parts, char *result)
{
    const uint64_t components = (uint64_t)factors->components;
    gpr_rule wide = *rule;
    double number[GPR_EXACT_PARTS] = {0};

    wide.result = components > 1 ? GPR_COMPLEX128 : GPR_FLOAT64;
    gpr_finish_exact(&wide, parts, number);
    divide(number, components, divisor_of(factors, row));
    gpr_convert(wide.result, number, rule->result, result, 1);
}

/* Stores the result of a row of which two doubles are the sum, as gpr_cpu_finish_quotient does of
 * finite sums; 0 where that rounds twice. */
static int store_exact_row(const gpr_cpu_factors *factors, uint64_t row, double upper, double lower,
                           gpr_dtype dtype, char *result)
{
    double lost;
    const double sum = add_two(upper, lower, &lost);
    double value = sum;

    /* +0 if a product is +0, or if others cancel; otherwise zeros that are not multiplied here, of
     * a complex number's other part, decide its sign */
    if (upper == 0 && signbit(upper)) return 0;
    if (factors->divisors == NULL && lost != 0 && dtype != GPR_FLOAT64) return 0;
    if (factors->are_parts && factors->divisors != NULL)
        value = sum * (1 / divisor_of(factors, row / GPR_EXACT_PARTS));
    else if (factors->divisors != NULL)
        value = sum / divisor_of(factors, row);
    gpr_convert(GPR_FLOAT64, &value, dtype, result, 1);
    return 1;
}

/* Makes two doubles of each sum of all products of some rows of a unit, and its size NaN where they
 * are not the sum. 0: factors are no doubles. */
static int sum_exactly(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                       const uint16_t *chosen, uint64_t count, product_rows_memory *memory)
{
    unit_reader unit;
    product_sums all;

    make_unit_reader(factors, row, width, 1, memory, &unit);
    unit.rows.are_beside = 0;
    for (int i = 0; i < 2; i++) {
        for (uint64_t k = 0; k < count; k++) memory->rows[i][k] = memory->rows[i][chosen[k]];
        repeat_last(count, memory->rows[i]);
    }
    sum_unit(&unit, gpr_cpu_loops()->exact_product_rows[unit.dtype], count, 0, factors->first->n,
             memory, &all);
    return !all.is_inexact;
}

/* Merges sums that two doubles hold. The size becomes NaN if two do not hold their sum. */
static void merge_exactly(gpr_product_sum *sum, gpr_product_sum other)
{
    double of_upper, of_lower, of_both;

    sum->upper = add_two(sum->upper, other.upper, &of_upper);
    sum->lower = add_two(add_two(sum->lower, other.lower, &of_lower), of_upper, &of_both);
    sum->size = of_lower == 0 && of_both == 0 ? fmax(sum->size, other.size) : NAN;
}

uint64_t gpr_cpu_finish_exact_rows(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                                   const gpr_rule *rule, product_rows_memory *memory, char *results,
                                   uint16_t *undecided, uint64_t left)
{
    const gpr_dtype part = factors->are_parts ? gpr_real_dtype(rule->result) : rule->result;
    const gpr_cpu_factors *others = factors->of_imaginary;
    uint64_t still = 0;

    if (left == 0 || factors->first->n > GPR_PRODUCT_ROWS || factors->times != 1 ||
        factors->products != GPR_PRODUCTS)
        return left;
    if (others != NULL) {
        if (!sum_exactly(others, row, width, undecided, left, memory)) return left;
        gpr_cpu_store_product_rows(memory, left, memory->of_imaginary);
    }
    if (!sum_exactly(factors, row, width, undecided, left, memory)) return left;
    for (uint64_t k = 0; k < left; k++) {
        const uint64_t j = undecided[k];
        gpr_product_sum sum = {memory->upper[k], memory->lower[k], memory->sizes[k]};

        if (others != NULL) merge_exactly(&sum, by_imaginary(memory->of_imaginary[k], row + j));
        if (!(sum.size <= GPR_MOST_SUM_SIZE) ||
            !store_exact_row(factors, row + j, sum.upper, sum.lower, part,
                             results + j * gpr_dtype_bytes(part)))
            undecided[still++] = (uint16_t)j;
    }
    return still;
}

/* How sums of rows from `row` on become intervals. A narrow result of a division rounds as it is
 * found by the reciprocal, if numbers that differ from it by a few roundings of doubles do. */
static gpr_interval_rule interval_rule(const gpr_cpu_factors *factors, uint64_t row,
                                       const product_sums *sums, const gpr_rule *rule)
{
    const double rounded_once = 0x1p-52, rounded_thrice = 0x1p-49;
    const int is_narrow = gpr_real_dtype(rule->result) != GPR_FLOAT64;
    gpr_interval_rule how = {.times = (double)factors->times,
                             .share = (is_wide(factors) ? WIDE_ERROR : NARROW_ERROR) +
                                      (double)sums->merged * MERGE_ERROR,
                             .divisor = 1,
                             .takes_root = rule->takes_root,
                             .zero_is_zero = zero_is_zero(factors),
                             .zero_has_sign = gpr_is_inexact(factors->dtype),
                             .are_integers = !gpr_is_inexact(factors->dtype)};

    if (factors->divisors == NULL) {
        how.step = is_narrow ? rounded_once : 0;
    } else if (is_narrow && factors->has_one_divisor && factors->components == 1) {
        how.times /= factors->divisors[0];
        how.are_integers = 0;
        how.step = rounded_thrice;
    } else if (factors->components == 1 && !factors->are_parts) {
        if (factors->has_one_divisor)
            how.divisor = factors->divisors[0];
        else
            how.divisors = factors->divisors + row;
    }
    return how;
}

/* Divides the ends of intervals of parts of complex numbers, of numbers that are not 0. */
static void divide_parts(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                         const gpr_interval_rule *how, double *low, double *high)
{
    if (!factors->are_parts || factors->divisors == NULL || how->step > 0) return;
    for (uint64_t j = 0; j < width; j++) {
        const double reciprocal = 1 / divisor_of(factors, (row + j) / GPR_EXACT_PARTS);

        low[j] *= reciprocal;
        high[j] *= reciprocal;
    }
}

/* Stores numbers whose intervals' ends are the same number of a type; 0 at the first one that is
 * not. */
static int store_ends(const double *low, const double *high, uint64_t components, gpr_dtype dtype,
                      char *result)
{
    const size_t bytes = gpr_dtype_bytes(dtype);
    gpr_wide_block ends;
    char stored[2 * sizeof(double _Complex)];

    for (uint64_t p = 0; p < components; p++) {
        ends.f64[p] = low[p];
        ends.f64[components + p] = high[p];
        if (isnan(low[p])) return 0;
    }
    gpr_store_wide(components > 1 ? GPR_WIDE_COMPLEX : GPR_WIDE_FLOAT, &ends, 2, dtype, stored);
    if (memcmp(stored, stored + bytes, bytes) != 0) return 0;
    memcpy(result, stored, bytes);
    return 1;
}

int gpr_cpu_finish_product_sums(const gpr_cpu_factors *factors, uint64_t row,
                                const product_sums *sums, const gpr_rule *rule, char *result)
{
    const gpr_interval_rule how = interval_rule(factors, row, sums, rule);
    const int components = factors->components;
    const gpr_dtype part = gpr_real_dtype(rule->result);
    double low[GPR_EXACT_PARTS] = {0}, high[GPR_EXACT_PARTS] = {0};

    if (factors->wraps) {
        const uint64_t wrapped = sums->wrapped * factors->times;

        memcpy(result, &wrapped, gpr_dtype_bytes(rule->result));
        return 1;
    }
    if (sums->is_inexact) return 0;
    if (isnan(sums->of[0].size) && isnan(sums->of[components - 1].size)) { /* so are products */
        for (int p = 0; p < components; p++)
            gpr_exact_store_nan(part, result + (size_t)p * gpr_dtype_bytes(part));
        return 1;
    }
    for (int p = 0; p < components; p++) {
        const gpr_product_sum *sum = &sums->of[p];

        if (p > 0 && are_conjugates(factors))
            continue; /* all of them are finite, and their sum 0 */
        gpr_cpu_loops()->intervals(&sum->upper, &sum->lower, &sum->size, 1, &how, &low[p],
                                   &high[p]);
    }
    if (factors->divisors != NULL && components > 1) {
        divide(low, GPR_EXACT_PARTS, divisor_of(factors, row));
        divide(high, GPR_EXACT_PARTS, divisor_of(factors, row));
    }
    return store_ends(low, high, (uint64_t)components, rule->result, result);
}

/* Stores NaN for both parts of complex numbers one of whose products is NaN: what is multiplied by
 * the second factors' imaginary zeros is, too. Where these have imaginary parts, of numbers both of
 * whose parts have such products. Returns how many other rows are undecided. */
static uint64_t store_nan_of_parts(const gpr_cpu_factors *factors, const double *sizes,
                                   gpr_dtype part, char *results, uint16_t *undecided,
                                   uint64_t left)
{
    const int least = factors->of_imaginary != NULL ? GPR_EXACT_PARTS : 1;
    uint64_t others = 0;

    for (uint64_t i = 0; i < left; i++) {
        const uint64_t first = undecided[i] - undecided[i] % GPR_EXACT_PARTS;

        if ((isnan(sizes[first]) != 0) + (isnan(sizes[first + 1]) != 0) < least) {
            undecided[others++] = undecided[i];
            continue;
        }
        for (uint64_t p = 0; p < GPR_EXACT_PARTS; p++)
            gpr_exact_store_nan(part, results + (first + p) * gpr_dtype_bytes(part));
    }
    return others;
}

uint64_t gpr_cpu_finish_product_rows(const gpr_cpu_factors *factors, uint64_t row, uint64_t width,
                                     product_rows_memory *memory, const product_sums *all,
                                     const gpr_rule *rule, char *results, uint16_t *undecided)
{
    const gpr_interval_rule how = interval_rule(factors, row, all, rule);
    const gpr_dtype dtype = factors->are_parts ? gpr_real_dtype(rule->result) : rule->result;
    const size_t bytes = gpr_dtype_bytes(dtype);
    double *low = memory->low, *high = memory->high;
    uint64_t doubtful = 0, left = 0;

    gpr_cpu_loops()->intervals(memory->upper, memory->lower, memory->sizes, width, &how, low, high);
    divide_parts(factors, row, width, &how, low, high);
    for (uint64_t j = 0; j < width && all->is_inexact; j++) low[j] = (double)NAN;
    if (dtype == GPR_FLOAT64) {
        for (uint64_t j = 0; j < width; j++) doubtful += low[j] != high[j];
        memcpy(results, low, width * bytes);
    } else if (dtype == GPR_FLOAT32) {
        float *to = (float *)(void *)results;

        for (uint64_t j = 0; j < width; j++) {
            to[j] = (float)low[j];
            doubtful += to[j] != (float)high[j];
        }
    } else {
        doubtful = width;
    }
    for (uint64_t j = 0; j < width && doubtful > 0; j++) {
        if (dtype == GPR_FLOAT64 && low[j] == high[j]) continue;
        if (dtype == GPR_FLOAT32 && (float)low[j] == (float)high[j]) continue;
        if (store_ends(&low[j], &high[j], 1, dtype, results + j * bytes)) continue;
        if (isnan(memory->sizes[j]) && !factors->are_parts && !all->is_inexact) {
            gpr_exact_store_nan(dtype, results + j * bytes);
            continue;
        }
        undecided[left++] = (uint16_t)j;
    }
    if (!factors->are_parts) return left;
    return store_nan_of_parts(factors, memory->sizes, dtype, results, undecided, left);
}
