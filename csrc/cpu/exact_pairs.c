/* Exact sums of rows as two doubles each; see exact_pairs.h. */
#include "cpu/exact_pairs.h"

#include <math.h>
#include <string.h>

#include "lib/base/convert.h"
#include "lib/base/float_bits.h"
#include "lib/rules/accumulators.h"
#include "lib/rules/rules.h"

/* ---------------------------------------------------------------- adding --------------------- */

enum {
    COLUMNS = PAIR_SHORT_ROW / 4, /* of a row that is no short one, added side by side */
    STAGE = 1024,                 /* elements packed at once */
    POSITIONS = 24 /* of rows that are columns of memory: they stay in the first cache */
};
_Static_assert(STAGE *MOST_NUMBER_BYTES <= PAIR_SHORT_ROW * PAIR_LANES * sizeof(double),
               "a piece of a row fits");

int gpr_cpu_has_pairs(gpr_dtype dtype)
{
    const gpr_kind kind = gpr_dtype_rows[dtype].kind;

    return kind == GPR_KIND_FLOAT || kind == GPR_KIND_COMPLEX;
}

uint64_t gpr_cpu_paired_rows(gpr_dtype dtype)
{
    return PAIR_LANES / (uint64_t)gpr_exact_parts(dtype);
}

static void clear(exact_pairs *pairs, uint64_t lanes)
{
    for (uint64_t i = 0; i < lanes; i++) {
        pairs->sums[i] = -0.0; /* the only start from which a row of -0 sums to -0 */
        pairs->rests[i] = pairs->lost[i] = 0;
    }
}

/* How real numbers of elements are converted for the loop that adds them. */
typedef struct reader {
    gpr_widening widen; /* of 16-bit floats */
    gpr_dtype real;     /* as the loop reads them */
    gpr_pairs_loop add;
    gpr_value neutral; /* element, for masks */
} reader;

static reader make_reader(gpr_dtype dtype)
{
    const gpr_loops *loops = gpr_cpu_loops();
    reader how = {.widen = loops->widen[dtype], .real = gpr_real_dtype(dtype)};

    if (how.widen.loop != NULL) how.real = how.widen.to;
    how.add = loops->pairs[how.real];
    how.neutral = gpr_neutral_element(GPR_FOLD_exact, dtype);
    return how;
}

/* Packs elements, STAGE at most, as the loop reads them. */
static const char *prepare(const reader *how, const char *elements, uint64_t count, pair_memory *s)
{
    if (how->widen.loop == NULL) return elements;
    how->widen.loop(elements, s->widened, count);
    return (const char *)s->widened;
}

/* Adds rows that are columns of memory. */
static void sum_columns(const gpr_view *view, const reader *how, uint64_t row, uint64_t rows,
                        uint64_t first, uint64_t end, pair_memory *s, exact_pairs *pairs)
{
    const uint64_t extent = view->axes[view->outer + view->inner - 1].extent,
                   lanes = rows * pairs->components;
    const int in_place = gpr_cpu_columns_in_place(view) && how->widen.loop == NULL;
    gpr_view tile;

    gpr_cpu_make_tile(view, (int64_t)rows, &tile);
    while (first < end) {
        const uint64_t run = gpr_smaller(end - first, extent - first % extent);

        gpr_cpu_locate(view, row, first, &tile);
        for (uint64_t done = 0; done < run; done += POSITIONS) {
            const uint64_t count = gpr_smaller(run - done, POSITIONS);
            const char *elements = tile.data + (int64_t)done * tile.axes[0].in;
            int64_t stride = tile.axes[0].in;

            if (!in_place) {
                gpr_cpu_pack(&tile, done * rows, count * rows, how->neutral.bytes, s->packed);
                elements = prepare(how, s->packed, count * rows, s);
                stride = (int64_t)(lanes * gpr_dtype_bytes(how->real));
            }
            how->add(elements, stride, count, lanes, pairs->sums, pairs->rests, pairs->lost);
        }
        first += run;
    }
}

/* Transposes rows of `width` numbers of type T into columns of doubles. */
#define DEFINE_TURN(name, T)                                                         \
    static void turn_##name(const char *elements, uint64_t rows, uint64_t positions, \
                            uint64_t components, double *to)                         \
    {                                                                                \
        const T *from = (const T *)(const void *)elements;                           \
        const uint64_t width = positions * components;                               \
                                                                                     \
        for (uint64_t i = 0; i < positions; i++) {                                   \
            for (uint64_t p = 0; p < components; p++) {                              \
                for (uint64_t r = 0; r < rows; r++)                                  \
                    to[i * PAIR_PITCH + r * components + p] =                        \
                        from[r * width + i * components + p];                        \
            }                                                                        \
        }                                                                            \
    }
DEFINE_TURN(float32, float)
DEFINE_TURN(float64, double)

static void add_turned(uint64_t positions, uint64_t lanes, pair_memory *s, exact_pairs *pairs)
{
    gpr_cpu_loops()->pairs[GPR_FLOAT64]((const char *)s->turned, PAIR_PITCH * sizeof(double),
                                        positions, lanes, pairs->sums, pairs->rests, pairs->lost);
}

/* Copies columns of numbers of type T side by side as doubles. */
#define DEFINE_PLACE(name, T)                                                                     \
    static void place_##name(const char *elements, int64_t stride, uint64_t positions,            \
                             uint64_t lanes, double *to)                                          \
    {                                                                                             \
        for (uint64_t i = 0; i < positions; i++) {                                                \
            const T *from = (const T *)(const void *)(elements + (int64_t)i * stride);            \
                                                                                                  \
            for (uint64_t lane = 0; lane < lanes; lane++) to[i * PAIR_PITCH + lane] = from[lane]; \
        }                                                                                         \
    }
DEFINE_PLACE(float32, float)
DEFINE_PLACE(float64, double)

/* Adds rows that are columns of memory, under several indices of the axes before theirs: of fewer
 * than PAIR_SHORT_ROW elements. */
static void sum_narrow_columns(const gpr_view *view, const reader *how, uint64_t row, uint64_t rows,
                               uint64_t first, uint64_t end, pair_memory *s, exact_pairs *pairs)
{
    const uint64_t width = view->axes[view->outer - 1].extent,
                   extent = view->axes[view->outer + view->inner - 1].extent;
    const int in_place = gpr_cpu_columns_in_place(view) && how->widen.loop == NULL;
    double *column = s->turned;
    gpr_view tile;

    for (uint64_t done = 0, some; done < rows; done += some) {
        some = gpr_smaller(rows - done, width - (row + done) % width);
        const uint64_t lanes = some * pairs->components;
        double *to = column;

        gpr_cpu_make_tile(view, (int64_t)some, &tile);
        for (uint64_t at = first, run; at < end; at += run) {
            const char *elements;
            int64_t stride = tile.axes[0].in;

            run = gpr_smaller(end - at, extent - at % extent);
            gpr_cpu_locate(view, row + done, at, &tile);
            if (in_place) {
                elements = tile.data;
            } else {
                gpr_cpu_pack(&tile, 0, run * some, how->neutral.bytes, s->packed);
                elements = prepare(how, s->packed, run * some, s);
                stride = (int64_t)(lanes * gpr_dtype_bytes(how->real));
            }
            if (how->real == GPR_FLOAT32)
                place_float32(elements, stride, run, lanes, to);
            else
                place_float64(elements, stride, run, lanes, to);
            to += run * PAIR_PITCH;
        }
        column += lanes;
    }
    add_turned(end - first, rows * pairs->components, s, pairs);
}

/* Adds rows of fewer than PAIR_SHORT_ROW elements. */
static void sum_short_rows(const gpr_view *view, const reader *how, uint64_t row, uint64_t rows,
                           pair_memory *s, exact_pairs *pairs)
{
    const char *elements = s->packed;

    if (view->contiguous)
        elements = view->data + row * view->n * view->bytes;
    else
        gpr_cpu_pack(view, row * view->n, rows * view->n, how->neutral.bytes, s->packed);
    elements = prepare(how, elements, rows * view->n, s);
    if (how->real == GPR_FLOAT32)
        turn_float32(elements, rows, view->n, pairs->components, s->turned);
    else
        turn_float64(elements, rows, view->n, pairs->components, s->turned);
    add_turned(view->n, rows * pairs->components, s, pairs);
}

/* Adds every sixteenth number of a row's elements [first, end) to a column of `mine`. */
static void sum_in_columns(const gpr_view *view, const reader *how, uint64_t row, uint64_t first,
                           uint64_t end, pair_memory *s, exact_pairs *mine)
{
    clear(mine, COLUMNS);
    for (uint64_t at = first; at < end; at += STAGE) {
        const uint64_t count = gpr_smaller(end - at, STAGE), numbers = count * mine->components;
        const uint64_t whole = numbers / COLUMNS, left = numbers % COLUMNS;
        const int64_t stride = (int64_t)(COLUMNS * gpr_dtype_bytes(how->real));
        const char *elements = s->packed;

        if (view->rows_contiguous)
            elements = gpr_view_row(view, row) + at * view->bytes;
        else
            gpr_cpu_pack(view, row * view->n + at, count, how->neutral.bytes, s->packed);
        elements = prepare(how, elements, count, s);
        how->add(elements, stride, whole, COLUMNS, mine->sums, mine->rests, mine->lost);
        how->add(elements + (int64_t)whole * stride, stride, 1, left, mine->sums, mine->rests,
                 mine->lost);
    }
}

/* Transposes the columns of a row, their rests behind their sums. */
static inline void turn_columns(const exact_pairs *columns, uint64_t components, uint64_t row,
                                double *turned, double *lost)
{
    const uint64_t groups = COLUMNS / components;
    double sums_lost[GPR_EXACT_PARTS] = {0};

    for (uint64_t i = 0; i < groups; i++) {
        for (uint64_t p = 0; p < components; p++) {
            const uint64_t from = i * components + p, lane = row * components + p;

            turned[i * PAIR_PITCH + lane] = columns->sums[from];
            turned[(groups + i) * PAIR_PITCH + lane] =
                columns->rests[from] != 0 ? columns->rests[from] : -0.0;
            sums_lost[p] += columns->lost[from];
        }
    }
    for (uint64_t p = 0; p < components; p++) lost[row * components + p] = sums_lost[p];
}

/* Adds other rows: elements to columns, then the transposed columns to lanes. */
static void sum_rows(const gpr_view *view, const reader *how, uint64_t row, uint64_t rows,
                     uint64_t first, uint64_t end, pair_memory *s, exact_pairs *pairs)
{
    const uint64_t components = pairs->components;
    exact_pairs mine = {.components = components};

    for (uint64_t r = 0; r < rows; r++) {
        sum_in_columns(view, how, row + r, first, end, s, &mine);
        if (components == 1) /* known when this is compiled: there is no division */
            turn_columns(&mine, 1, r, s->turned, pairs->lost);
        else
            turn_columns(&mine, GPR_EXACT_PARTS, r, s->turned, pairs->lost);
    }
    add_turned(2 * COLUMNS / components, rows * components, s, pairs);
}

void gpr_cpu_sum_pairs(const gpr_view *view, uint64_t row, uint64_t rows, uint64_t first,
                       uint64_t end, pair_memory *memory, exact_pairs *pairs)
{
    const reader how = make_reader(view->dtype);

    pairs->components = (uint64_t)gpr_exact_parts(view->dtype);
    clear(pairs, PAIR_LANES);
    if (gpr_cpu_lies_crosswise(view) &&
        row % view->axes[view->outer - 1].extent + rows > view->axes[view->outer - 1].extent)
        sum_narrow_columns(view, &how, row, rows, first, end, memory, pairs);
    else if (gpr_cpu_lies_crosswise(view))
        sum_columns(view, &how, row, rows, first, end, memory, pairs);
    else if (view->n < PAIR_SHORT_ROW)
        sum_short_rows(view, &how, row, rows, memory, pairs);
    else
        sum_rows(view, &how, row, rows, first, end, memory, pairs);
}

/* ---------------------------------------------------------------- what they come to ---------- */

void gpr_cpu_pairs_hold(const exact_pairs *pairs, uint64_t rows, int is_masked, uint8_t *hold)
{
    uint8_t is_sum[PAIR_LANES];

    for (int i = 0; i < PAIR_LANES; i++) {
        const double sum = pairs->sums[i], rest = pairs->rests[i];

        is_sum[i] = pairs->lost[i] == 0 && isfinite(sum) && isfinite(rest);
        if (is_masked && sum == 0 && rest == 0 && signbit(sum)) is_sum[i] = 0;
    }
    if (pairs->components == 1) {
        memcpy(hold, is_sum, rows);
        return;
    }
    for (uint64_t r = 0; r < rows; r++) hold[r] = is_sum[2 * r] & is_sum[2 * r + 1];
}

/* Adds a double that is a multiple of the part's unit. */
static void add_double(gpr_exact_part *part, double x)
{
    enum { FRACTION = 53 };
    int exponent = 0;
    const int64_t number = (int64_t)ldexp(frexp(x, &exponent), FRACTION);

    gpr_exact_add_integer(part, number, exponent - FRACTION);
}

void gpr_cpu_add_pairs(const exact_pairs *pairs, uint64_t row, uint64_t count,
                       gpr_exact_part *parts)
{
    for (uint64_t p = 0; p < pairs->components; p++) {
        const uint64_t lane = row * pairs->components + p;
        const double sum = pairs->sums[lane], rest = pairs->rests[lane];

        add_double(&parts[p], sum);
        add_double(&parts[p], rest);
        parts[p].count += count;
        if (sum != 0 || rest != 0 || !signbit(sum)) parts[p].flags |= GPR_EXACT_NOT_MINUS_ZERO;
    }
}

/* A number as two doubles: the number rounded, and the error. */
typedef struct double_double {
    double upper, lower;
} double_double;

static double_double double_double_of(double a, double b)
{
    const double sum = a + b, of_b = sum - a;

    return (double_double){sum, (a - (sum - of_b)) + (b - of_b)};
}

/* The number rounded to odd: rounding that to a type with two bits less, or fewer, is rounding
 * the number. */
static double round_to_odd(double_double number)
{
    uint64_t bits = gpr_bits_of_double(number.upper);

    if (number.lower == 0) return number.upper;
    if (bits % 2 == 0) bits += (number.lower < 0) == (number.upper < 0) ? 1 : -UINT64_C(1);
    return gpr_double_of_bits(bits);
}

/* Numbers so far from the ends of the range that nothing of what follows is subnormal or
 * infinite. */
static int is_moderate(double x)
{
    return fabs(x) > 0x1p-900 && fabs(x) < 0x1p900;
}

/* Makes *mean a number that rounds as the exact quotient of the number, which is not 0, and n does:
 * to double, or (`narrow`) to a type with two bits less or fewer. Returns 0 where the quotient's
 * error leaves the rounding open. */
static int divide_double_double(double_double number, uint64_t n, int narrow, double *mean)
{
    const double divisor = (double)n, quotient = number.upper / divisor;
    /* of `error`, below, relatively: more than a few roundings of doubles */
    const double doubt = 0x1p-48;

    if (!is_moderate(number.upper) || !is_moderate(quotient)) return 0;
    if ((n & (n - 1)) == 0) { /* the bits do not change */
        *mean = (narrow ? round_to_odd(number) : number.upper) / divisor;
        return 1;
    }
    /* upper - quotient * n is a double: what a division leaves. */
    const double_double remainder =
        double_double_of(fma(-quotient, divisor, number.upper), number.lower);
    const double error = remainder.upper / divisor;
    if (remainder.upper == 0) {
        *mean = quotient;
        return 1;
    }
    if (narrow) {
        const double_double exactly = double_double_of(quotient, error);
        /* the quotient may be on either side of the upper double */
        if (fabs(exactly.lower) <= fabs(error) * doubt) return 0;
        *mean = round_to_odd(exactly);
        return 1;
    }
    *mean = quotient + error * (1 - doubt);
    return *mean == quotient + error * (1 + doubt);
}

void gpr_cpu_finish_pairs(const exact_pairs *pairs, const gpr_rule *rule, uint64_t rows, uint64_t n,
                          char *results, uint8_t *hold)
{
    const int is_complex = gpr_dtype_rows[rule->result].kind == GPR_KIND_COMPLEX;
    const int narrow = gpr_part_bytes(rule->result) < sizeof(double);
    const uint64_t components = pairs->components, lanes = rows * components;
    double value[PAIR_LANES];
    gpr_wide_block block;

    for (uint64_t i = 0; i < lanes; i++) {
        const double_double number = double_double_of(pairs->sums[i], pairs->rests[i]);
        const double rounded = narrow ? round_to_odd(number) : number.upper;

        value[i] = pairs->rests[i] == 0 ? pairs->sums[i] + 0.0 : rounded; /* a sum starts at +0 */
        hold[i / components] &= isfinite(number.upper) != 0;
    }
    for (uint64_t i = 0; rule->divide && i < lanes; i++) {
        const double_double number = double_double_of(pairs->sums[i], pairs->rests[i]);

        if (value[i] == 0) {
            value[i] /= (double)n;
        } else if (hold[i / components]) {
            hold[i / components] = (uint8_t)divide_double_double(number, n, narrow, &value[i]);
        }
    }
    for (uint64_t r = 0; r < rows; r++) {
        if (!is_complex)
            block.f64[r] = value[r];
        else
            block.c128[r] = components > 1 ? gpr_complex(value[2 * r], value[2 * r + 1])
                                           : gpr_complex(value[r], 0);
    }
    gpr_store_wide(is_complex ? GPR_WIDE_COMPLEX : GPR_WIDE_FLOAT, &block, rows, rule->result,
                   results);
}
