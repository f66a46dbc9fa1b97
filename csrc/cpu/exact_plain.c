/* Exact sums as plain ones that the processor watches; see exact_plain.h. */
#include "cpu/exact_plain.h"

#include <stddef.h>
#include <string.h>

#include "cpu/float_environment.h"
#include "lib/base/convert.h"

/* ---------------------------------------------------------------- the flag ------------------- */

/* Whether an addition that is rounded raises the flag, and one that is not does not. Programs that
 * run others' instructions by software, Valgrind for one, may have no flag. */
static int has_flag(void)
{
    volatile double one = 1, below = 0x1p-60, sum;
    int is_silent;

    lower_flags();
    sum = one + one;
    is_silent = !was_inexact();
    sum = one + below;
    (void)sum;
    return is_silent && was_inexact();
}

/* ---------------------------------------------------------------- adding --------------------- */

enum { GROUPED_ELEMENTS = 32768 }; /* of short columns that are added by one call of the loops */

_Static_assert(offsetof(plain_pairs, rests) ==
                   offsetof(plain_pairs, sums) + GPR_COLUMN_BLOCK * sizeof(double),
               "halves are where the loops put them");

/* Lets loops leave out signs, where they can. */
static void leave_out_signs(const gpr_view *view, plain_adder *how)
{
    const gpr_loops *loops = gpr_cpu_loops();
    recipe *sum = &how->work.how[0];

    if ((view->encoding & GPR_WITHOUT_SIGN) == 0 || !sum->direct) return;
    gpr_copy_view(&how->other, view);
    gpr_view_with_signs(&how->other);
    how->work.view = sum->view = &how->other;
    sum->loop = how->is_halved ? loops->magnitude_halves : loops->magnitudes;
    if (how->is_halved && gpr_cpu_reads_every_second(sum))
        how->fold_every_second = loops->gapped_magnitude_halves;
}

int gpr_cpu_make_plain_adder(const gpr_view *view, const gpr_rule *rule, plain_adder *how)
{
    const gpr_loops *loops = gpr_cpu_loops();
    recipe *sum = &how->work.how[0];

    if (!gpr_cpu_has_pairs(view->dtype) || view->dtype == GPR_COMPLEX128 || !has_flag()) return 0;
    memset(&how->work, 0, sizeof how->work);
    how->rule = *rule;
    how->rule.fold = GPR_FOLD_sum;
    how->rule.acc_kind = GPR_ACC_NUMBER;
    how->rule.compute = view->dtype;
    how->components = (uint64_t)gpr_exact_parts(view->dtype);
    how->is_halved = view->dtype == GPR_FLOAT64;
    how->fold_every_second = NULL;
    how->work.view = view;
    how->work.recipes = 1;
    *sum = gpr_cpu_recipe(&how->rule, view, GPR_FOLD_sum);
    if (how->is_halved) {
        sum->loop = rule->skip_nan ? loops->skipping_halves : loops->halves;
        sum->combine = loops->combine_halves;
        if (gpr_cpu_reads_every_second(sum))
            how->fold_every_second =
                rule->skip_nan ? loops->gapped_skipping_halves : loops->gapped_halves;
    }
    if (rule->divide && (rule->skip_nan || view->mask != NULL)) {
        gpr_mask_view(view, &how->other);
        how->work.how[how->work.recipes++] = gpr_cpu_count_recipe(&how->rule, view, &how->other);
    }
    leave_out_signs(view, how);
    how->work.columns_direct =
        gpr_cpu_lies_crosswise(view) && sum->direct && gpr_cpu_columns_in_place(how->work.view);
    return 1;
}

gpr_cpu_units gpr_cpu_cut_plain_columns(plain_adder *how)
{
    const gpr_view *view = how->work.view;
    const uint64_t lanes = PLAIN_LANES / how->components;
    gpr_cpu_units units = gpr_cpu_cut_units(view, lanes);
    const uint64_t copies = gpr_cpu_copies(units.rows, view->n);

    how->work.copies = copies * units.rows <= lanes ? copies : 1;
    if (how->work.copies > 1 || units.rows < units.width) return units;
    /* Sums of short columns are few: those of several indices of the axes before are added
     * together. Columns that loops cannot read in place are packed side by side for that. */
    units.rows *= gpr_smaller(lanes / units.width, 1 + GROUPED_ELEMENTS / (units.width * view->n));
    units.width = view->rows;
    units.blocks = units.count = gpr_divide_up(view->rows, units.rows);
    how->work.columns_wide = gpr_cpu_columns_are_narrow(view) && !gpr_cpu_columns_in_place(view);
    return units;
}

/* Folds elements [first, end) of a row to one accumulator, of two halves where sums have them. */
static void fold_run(const plain_adder *how, const recipe *r, uint64_t row, uint64_t first,
                     uint64_t end, plain_memory *memory, void *sum)
{
    const gpr_view *view = r->view;
    stage *s = &memory->staged.s;

    if (gpr_cpu_is_direct(r)) {
        r->loop.rows(gpr_view_row(view, row) + first * view->bytes, 0, 1, end - first, sum);
        return;
    }
    if (how->fold_every_second != NULL && r == &how->work.how[0] &&
        end - first >= GPR_FEWEST_GAPPED) {
        how->fold_every_second(gpr_view_row(view, row) +
                                   (int64_t)first * view->axes[view->outer].in,
                               end - first, sum);
        return;
    }
    if (gpr_cpu_run_of(r) > 0) {
        gpr_cpu_fold_layers(r, row, 1, first, end, sum, (char *)memory->part.sums);
        return;
    }
    for (uint64_t at = first; at < end; at += STAGE_ELEMENTS) {
        const uint64_t count = gpr_smaller(end - at, STAGE_ELEMENTS);
        const char *elements = s->packed;

        if (view->rows_contiguous)
            elements = gpr_view_row(view, row) + at * view->bytes;
        else
            gpr_cpu_pack(view, row * view->n + at, count, r->neutral.bytes, s->packed);
        r->loop.rows(gpr_cpu_prepare(r, elements, count, s), 0, 1, count,
                     at == first ? sum : memory->part.sums);
        if (at != first) r->combine((const char *)memory->part.sums, 0, 1, 1, 0, sum);
    }
}

/* Folds to an accumulator of each row, 8 bytes or 16. */
static void fold(const plain_adder *how, const recipe *r, uint64_t row, uint64_t rows,
                 uint64_t first, uint64_t end, plain_memory *memory, void *sums)
{
    const gpr_view *view = how->work.view;
    const uint64_t n = view->n;

    if (gpr_cpu_lies_crosswise(view)) {
        const uint64_t copies = how->work.copies;
        const uint64_t extent = how->work.columns_wide ? gpr_cpu_wide_columns(view)
                                                       : view->axes[view->outer - 1].extent;
        const int is_halved = how->is_halved && r == &how->work.how[0];

        for (uint64_t some; rows > 0; rows -= some, row += some) {
            char *to = sums;

            some = gpr_smaller(rows, extent - row % extent);
            if (is_halved && copies > 1)
                memset(to + GPR_COLUMN_BLOCK * sizeof(double), 0, some * copies * sizeof(double));
            gpr_cpu_fold_columns(&how->work, r, row, some, first, end, to, &memory->staged.s);
            sums = to + some * r->acc_bytes;
        }
    } else if (gpr_cpu_lies_in_layers(r)) {
        const uint64_t extent = view->axes[view->outer - 1].extent;

        for (uint64_t some; rows > 0; rows -= some, row += some) {
            some = gpr_smaller(rows, extent - row % extent);
            gpr_cpu_fold_layers(r, row, some, first, end, sums, (char *)memory->part.sums);
            sums = (char *)sums + some * r->acc_bytes;
        }
    } else if (end - first == n && gpr_cpu_run_of(r) == 0 &&
               (gpr_cpu_is_direct(r) || n <= STAGE_ELEMENTS)) {
        gpr_cpu_fold_rows(r, row, rows, sums, &memory->staged);
    } else {
        for (uint64_t i = 0; i < rows; i++)
            fold_run(how, r, row + i, first, end, memory, (char *)sums + i * r->acc_bytes);
    }
}

void gpr_cpu_clear_plain(plain_pairs *pairs)
{
    pairs->lanes = 0;
    pairs->has_rests = pairs->has_lost = pairs->is_counted = 0;
}

/* Makes pairs of a number and its rounding error of single sums or of halves of sums. Pairs hold
 * sums of more elements. */
static void make_pairs(plain_pairs *pairs, uint64_t lanes)
{
    if (pairs->lanes == 0) memset(pairs->sums, 0, lanes * sizeof *pairs->sums);
    if (!pairs->has_rests) memset(pairs->rests, 0, lanes * sizeof *pairs->rests);
    if (!pairs->has_lost) memset(pairs->lost, 0, lanes * sizeof *pairs->lost);
    for (uint64_t i = 0; pairs->has_rests && !pairs->has_lost && i < lanes; i++) {
        const double a = pairs->sums[i], b = pairs->rests[i], sum = a + b, of_b = sum - a;

        pairs->sums[i] = sum;
        pairs->rests[i] = (a - (sum - of_b)) + (b - of_b);
    }
    pairs->lanes = lanes;
    pairs->has_rests = pairs->has_lost = 1;
}

void gpr_cpu_merge_pairs(plain_pairs *pairs, uint64_t lane, const exact_pairs *others,
                         uint64_t lanes, uint64_t all)
{
    const gpr_pairs_loop add = gpr_cpu_loops()->pairs[GPR_FLOAT64];
    double *lost = pairs->lost + lane;

    make_pairs(pairs, all);
    add((const char *)others->sums, 0, 1, lanes, pairs->sums + lane, pairs->rests + lane, lost);
    add((const char *)others->rests, 0, 1, lanes, pairs->sums + lane, pairs->rests + lane, lost);
    for (uint64_t i = 0; i < lanes; i++) lost[i] += others->lost[i];
}

void gpr_cpu_copy_pairs(plain_pairs *pairs, uint64_t lane, const exact_pairs *others,
                        uint64_t lanes, uint64_t all)
{
    const size_t bytes = lanes * sizeof(double);

    memcpy(pairs->sums + lane, others->sums, bytes);
    memcpy(pairs->rests + lane, others->rests, bytes);
    memcpy(pairs->lost + lane, others->lost, bytes);
    pairs->lanes = all;
    pairs->has_rests = pairs->has_lost = 1;
}

void gpr_cpu_copy_plain(plain_pairs *to, const plain_pairs *from, uint64_t rows)
{
    const size_t bytes = from->lanes * sizeof(double);

    to->lanes = from->lanes;
    to->has_rests = from->has_rests;
    to->has_lost = from->has_lost;
    to->is_counted = from->is_counted;
    memcpy(to->sums, from->sums, bytes);
    if (from->has_rests) memcpy(to->rests, from->rests, bytes);
    if (from->has_lost) memcpy(to->lost, from->lost, bytes);
    if (from->is_counted) memcpy(to->counts, from->counts, rows * sizeof *to->counts);
}

/* Adds exact sums, of two doubles each if the pairs' are, to exact ones. Returns 0, with the pairs
 * unchanged, if an addition was rounded. */
static int add_exact(plain_pairs *pairs, const plain_pairs *others, plain_pairs *before)
{
    const gpr_columns_loop add = gpr_cpu_loops()->loop[GPR_FOLD_sum][GPR_FLOAT64].columns;
    const size_t bytes = pairs->lanes * sizeof(double);

    memcpy(before->sums, pairs->sums, bytes);
    if (pairs->has_rests) memcpy(before->rests, pairs->rests, bytes);
    lower_flags();
    add((const char *)others->sums, 0, 1, pairs->lanes, 0, pairs->sums);
    if (pairs->has_rests) add((const char *)others->rests, 0, 1, pairs->lanes, 0, pairs->rests);
    if (!was_inexact()) return 1;
    memcpy(pairs->sums, before->sums, bytes);
    if (pairs->has_rests) memcpy(pairs->rests, before->rests, bytes);
    return 0;
}

/* Adds sums of as many lanes, of the same rows. */
static void merge_sums(plain_pairs *pairs, const plain_pairs *others, plain_memory *memory)
{
    const gpr_pairs_loop add = gpr_cpu_loops()->pairs[GPR_FLOAT64];
    const uint64_t lanes = others->lanes;

    if (!pairs->has_lost && !others->has_lost && add_exact(pairs, others, &memory->before)) return;
    make_pairs(pairs, lanes);
    add((const char *)others->sums, 0, 1, lanes, pairs->sums, pairs->rests, pairs->lost);
    if (others->has_rests)
        add((const char *)others->rests, 0, 1, lanes, pairs->sums, pairs->rests, pairs->lost);
    for (uint64_t i = 0; others->has_lost && i < lanes; i++) pairs->lost[i] += others->lost[i];
}

int gpr_cpu_sum_plain(const plain_adder *how, uint64_t row, uint64_t rows, uint64_t first,
                      uint64_t end, plain_memory *memory, plain_pairs *pairs)
{
    plain_pairs *sums = pairs->lanes == 0 ? pairs : &memory->more;

    lower_flags();
    fold(how, &how->work.how[0], row, rows, first, end, memory, sums->sums);
    if (was_inexact()) return 0;
    sums->lanes = rows * how->components;
    sums->has_rests = how->is_halved;
    sums->has_lost = 0;
    if (sums != pairs) merge_sums(pairs, sums, memory);
    return 1;
}

int gpr_cpu_sum_few_plain(const plain_adder *how, uint64_t row, uint64_t rows, uint64_t first,
                          uint64_t end, plain_memory *memory, exact_pairs *pairs)
{
    plain_pairs *sums = &memory->more;
    const size_t bytes = rows * how->components * sizeof(double);

    lower_flags();
    fold(how, &how->work.how[0], row, rows, first, end, memory, sums->sums);
    if (was_inexact()) return 0;
    pairs->components = how->components;
    memcpy(pairs->sums, sums->sums, bytes);
    if (how->is_halved)
        memcpy(pairs->rests, sums->rests, bytes);
    else
        memset(pairs->rests, 0, bytes);
    memset(pairs->lost, 0, bytes);
    return 1;
}

static void merge_counts(plain_pairs *pairs, const plain_pairs *others, uint64_t rows)
{
    for (uint64_t i = 0; i < rows; i++) pairs->counts[i] += others->counts[i];
}

void gpr_cpu_count_plain(const plain_adder *how, uint64_t row, uint64_t rows, uint64_t first,
                         uint64_t end, plain_memory *memory, plain_pairs *pairs)
{
    plain_pairs *counts = pairs->is_counted ? &memory->more : pairs;

    if (how->work.recipes == 1) return;
    fold(how, &how->work.how[1], row, rows, first, end, memory, counts->counts);
    if (counts != pairs) merge_counts(pairs, counts, rows);
    pairs->is_counted = 1;
}

void gpr_cpu_merge_plain(plain_pairs *pairs, const plain_pairs *others, uint64_t rows,
                         plain_memory *memory)
{
    merge_sums(pairs, others, memory);
    if (pairs->is_counted) merge_counts(pairs, others, rows);
}

/* ---------------------------------------------------------------- results -------------------- */

static gpr_narrow_format narrow_format_of(gpr_dtype real)
{
    const gpr_dtype_row *row = &gpr_dtype_rows[real];
    const int bits = 52 - row->fraction;

    return (gpr_narrow_format){.below = (UINT64_C(1) << bits) - 1,
                               .midpoint = bits > 0 ? UINT64_C(1) << (bits - 1) : 1, /* never */
                               .least_field = 1023 - ((1u << (row->exponent - 1)) - 2)};
}

/* Rounds `count` sums from a lane on, divided by divisors, or by `divisor` where that is NULL, to
 * results if these are float32 or float64, otherwise to values for `store`. Returns 0 where a
 * rounding is not certain. */
static int round_lanes(const plain_pairs *pairs, gpr_dtype real, uint64_t lane, uint64_t count,
                       const double *divisors, double divisor, void *results)
{
    const gpr_loops *loops = gpr_cpu_loops();
    const double *sums = pairs->sums + lane, *lost = pairs->has_lost ? pairs->lost + lane : NULL;
    const gpr_narrow_format format = narrow_format_of(real);

    if (!pairs->has_rests)
        return loops->round_sums(sums, divisors, divisor, count, &format, real == GPR_FLOAT32,
                                 results);
    if (real == GPR_FLOAT32)
        return loops->round_pairs_to_single(sums, pairs->rests + lane, lost, divisors, divisor,
                                            count, results);
    return real == GPR_FLOAT64 &&
           loops->round_pairs(sums, pairs->rests + lane, lost, divisors, divisor, count, results);
}

/* Stores results of 16 bits. */
static void store(const double *values, gpr_dtype result, uint64_t count, char *results)
{
    gpr_wide_block block;

    memcpy(block.f64, values, count * sizeof *values);
    gpr_store_wide(GPR_WIDE_FLOAT, &block, count, result, results);
}

/* Makes pairs of those of `rows` rows from `row` on, as many as fit. */
static void take_pairs(const plain_pairs *pairs, uint64_t row, uint64_t rows, uint64_t components,
                       exact_pairs *some)
{
    const uint64_t lane = row * components, bytes = rows * components * sizeof(double);

    *some = (exact_pairs){.components = components};
    memcpy(some->sums, pairs->sums + lane, bytes);
    if (pairs->has_rests) memcpy(some->rests, pairs->rests + lane, bytes);
    if (pairs->has_lost) memcpy(some->lost, pairs->lost + lane, bytes);
}

/* Finishes rows, as many as exact_pairs has room for, one by one. */
static void finish_carefully(const plain_pairs *pairs, const plain_adder *how, const gpr_rule *rule,
                             uint64_t row, uint64_t rows, uint64_t n, char *results, uint8_t *hold)
{
    exact_pairs some;

    take_pairs(pairs, row, rows, how->components, &some);
    gpr_cpu_pairs_hold(&some, rows, 0, hold);
    gpr_cpu_finish_pairs(&some, rule, rows, n, results, hold);
}

/* Elements of a row that count. */
static uint64_t count_of(const plain_pairs *pairs, uint64_t row, uint64_t n)
{
    return pairs->is_counted ? pairs->counts[row] : n;
}

int gpr_cpu_add_plain(const plain_pairs *pairs, uint64_t row, uint64_t components, uint64_t n,
                      gpr_exact_part *parts)
{
    const uint64_t count = count_of(pairs, row, n);
    exact_pairs some;
    uint8_t holds;

    if (count == 0) return 1;
    take_pairs(pairs, row, 1, components, &some);
    gpr_cpu_pairs_hold(&some, 1, 0, &holds);
    if (holds) gpr_cpu_add_pairs(&some, 0, count, parts);
    return holds;
}

int gpr_cpu_finish_plain(const plain_pairs *pairs, const plain_adder *how, const gpr_rule *rule,
                         uint64_t rows, uint64_t n, char *results, uint8_t *hold)
{
    const size_t bytes = gpr_dtype_bytes(rule->result);
    const gpr_dtype real = gpr_real_dtype(rule->result);
    const uint64_t components = how->components, most = GPR_WIDE_ELEMENTS / components,
                   few = pairs->is_counted ? 1 : PAIR_LANES / components;
    /* complex results of real elements, and the other way round, are not stored as they are */
    const int is_alike = gpr_exact_parts(rule->result) == (int)components;
    const int is_stored = real == GPR_FLOAT32 || real == GPR_FLOAT64;
    const int is_counted = rule->divide && pairs->is_counted;
    const double divisor = rule->divide ? (double)n : 1;
    double values[GPR_WIDE_ELEMENTS], divisors[GPR_WIDE_ELEMENTS];
    int all = 1;

    for (uint64_t row = 0; row < rows;) {
        const uint64_t some = gpr_smaller(rows - row, most), count = some * components;
        char *to = results + row * bytes;

        for (uint64_t i = 0; i < count && is_counted; i++) {
            const uint64_t number = i / components; /* of this result */
            divisors[i] = (double)pairs->counts[row + number];
        }
        memset(hold + row, 1, some);
        if (is_alike &&
            round_lanes(pairs, real, row * components, count, is_counted ? divisors : NULL, divisor,
                        is_stored ? (void *)to : values)) {
            if (!is_stored) store(values, rule->result, some, to);
        } else {
            for (uint64_t done = 0; done < some; done += few) {
                const uint64_t now = gpr_smaller(some - done, few), at = row + done;

                finish_carefully(pairs, how, rule, at, now, count_of(pairs, at, n),
                                 results + at * bytes, hold + at);
                if (count_of(pairs, at, n) == 0) hold[at] = 0;
            }
            for (uint64_t r = 0; r < some; r++) all &= hold[row + r];
        }
        row += some;
    }
    return all;
}
