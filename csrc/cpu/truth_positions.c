/* Positions of the first true or false of rows of bools; see truth_positions.h. */
#include "cpu/truth_positions.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include <string.h>

#include "cpu/loops.h"
#include "lib/base/integers.h"

enum {
    FEW_TRUTHS = 1024,  /* bools that are searched without a call of a loop ... */
    TRUTHS = 2048,      /* ... those of one call, ... */
    MANY_TRUTHS = 65536 /* ... and of later calls */
};

/* Marks the bytes of a word that are not 0, or those that are, in their highest bits. */
static uint64_t mark_truths(uint64_t word, int wanted)
{
    const uint64_t highest = UINT64_C(0x8080808080808080),
                   truths = (((word & ~highest) + ~highest) | word) & highest;

    return wanted ? truths : truths ^ highest;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte of a word is the lowest");

/* Which of 16 bools are true, a bit each. */
static uint64_t truths_of_16(const char *bools)
{
#if defined(__SSE2__)
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)bools);

    return ~(uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())) & UINT16_MAX;
#else
    const uint64_t to_highest = UINT64_C(0x0102040810204080); /* bits of bytes, without carries */
    uint64_t words[2];

    memcpy(words, bools, sizeof words);
    return (mark_truths(words[0], 1) >> 7) * to_highest >> 56 |
           (mark_truths(words[1], 1) >> 7) * to_highest >> 56 << 8;
#endif
}

/* Whether one of 64 bools is true if true is wanted, or false. */
enum { STRETCH = 64 };
static inline int is_any_of_64(const char *bools, int wanted)
{
#if defined(__SSE2__)
    const __m128i *from = (const __m128i *)(const void *)bools;
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1),
                  c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3),
                  folded = wanted ? _mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d))
                                  : _mm_min_epu8(_mm_min_epu8(a, b), _mm_min_epu8(c, d));
    const int falses = _mm_movemask_epi8(_mm_cmpeq_epi8(folded, _mm_setzero_si128()));

    return wanted ? falses != UINT16_MAX : falses != 0;
#else
    uint64_t marks = wanted ? 0 : UINT16_MAX;

    for (int i = 0; i < STRETCH; i += 16) {
        const uint64_t truths = truths_of_16(bools + i);
        marks = wanted ? marks | truths : marks & truths;
    }
    return marks != (wanted ? 0 : UINT16_MAX);
#endif
}

/* Position of the first of n >= AT_ONCE bools that decides, or 0: without branches on single bools,
 * which cannot be predicted. */
enum { AT_ONCE = 16 };
static uint64_t find_by_vectors(const char *row, uint64_t n, int wanted)
{
    const uint64_t others = wanted ? 0 : UINT16_MAX;
    uint64_t marks = 0, i = 0;

    if (n > STRETCH) marks = truths_of_16(row) ^ others; /* often */
    if (marks != 0) return (uint64_t)__builtin_ctzll(marks);
    if (wanted) /* a loop for each, in which it is a constant */
        while (i + STRETCH <= n && !is_any_of_64(row + i, 1)) i += STRETCH;
    else
        while (i + STRETCH <= n && !is_any_of_64(row + i, 0)) i += STRETCH;
    for (; marks == 0 && i < n; i += AT_ONCE) {
        if (i + AT_ONCE > n) i = n - AT_ONCE; /* the bools before do not decide */
        marks = truths_of_16(row + i) ^ others;
    }
    return marks != 0 ? i - AT_ONCE + (uint64_t)__builtin_ctzll(marks) : 0;
}

/* The same of fewer, by words. `readable` bytes are memory of the array, n at least. */
static uint64_t find_by_words(const char *row, uint64_t n, uint64_t readable, int wanted)
{
    uint64_t word = 0, marks;

    if (readable >= sizeof word)
        memcpy(&word, row, sizeof word);
    else
        for (uint64_t k = 0; k < n; k++) word |= (uint64_t)(uint8_t)row[k] << (8 * k);
    marks = mark_truths(word, wanted);
    if (n < sizeof word) marks &= (UINT64_C(1) << (8 * n)) - 1;
    if (marks != 0) return (uint64_t)__builtin_ctzll(marks) / 8;
    if (n <= sizeof word) return 0;
    memcpy(&word, row + n - sizeof word, sizeof word);
    marks = mark_truths(word, wanted);
    return marks != 0 ? n - sizeof word + (uint64_t)__builtin_ctzll(marks) / 8 : 0;
}

static uint64_t find_among_few(const char *row, uint64_t n, uint64_t readable, int wanted)
{
    return n >= AT_ONCE ? find_by_vectors(row, n, wanted) : find_by_words(row, n, readable, wanted);
}

/* The same of n > FEW_TRUTHS bools, of which the first does not decide. Where none of the next ones
 * does either, loops that end early look for the stretch that does. */
static uint64_t find_among_many(const char *row, uint64_t n, int wanted)
{
    enum { SOON = 64 };
    const gpr_rows_loop look =
        gpr_cpu_loops()->loop[wanted ? GPR_FOLD_any : GPR_FOLD_all][GPR_BOOL].rows;
    const uint64_t at = find_by_vectors(row, SOON, wanted);
    uint64_t at_once = TRUTHS, end;

    if (at > 0) return at;
    for (uint64_t first = SOON; first < n; first = end) {
        uint8_t found;

        end = first + gpr_smaller(n - first, at_once);
        look(row + first, 0, 1, end - first, &found);
        at_once = found == wanted ? TRUTHS : MANY_TRUTHS;
        if (found != wanted) continue;
        if (end - first > TRUTHS) /* once more, by shorter stretches */
            end = first;
        else
            return first + find_among_few(row + first, end - first, end - first, wanted);
    }
    return 0;
}

/* The same of rows of 1 to 16, at each of which 8 bytes are memory of the array. */
static void find_in_words(const char *rows, int64_t stride, uint64_t count, uint64_t n, int wanted,
                          int64_t *positions)
{
    enum { WORD = sizeof(uint64_t) };
    const uint64_t first = n < WORD ? n : WORD, second = n - first, /* where the other word is */
        of_row = UINT64_MAX >> (64 - 8 * first), others = wanted ? 0 : UINT64_C(0x8080808080808080);
    uint64_t words[2];

    for (uint64_t i = 0; i < count; i++, rows += stride) {
        memcpy(&words[0], rows, WORD);
        memcpy(&words[1], rows + second, WORD);
        const uint64_t marks = (mark_truths(words[0], 1) ^ others) & of_row,
                       more = (mark_truths(words[1], 1) ^ others) & of_row;
        const int64_t at = more != 0 ? (int64_t)second + __builtin_ctzll(more) / 8 : 0;
        positions[i] = marks != 0 ? __builtin_ctzll(marks) / 8 : at;
    }
}

/* Which of AT_ONCE to STRETCH bools decide, a bit each. */
static inline uint64_t marks_of_stretch(const char *bools, uint64_t n, int wanted)
{
    const uint64_t last = n - AT_ONCE, second = gpr_smaller(AT_ONCE, last),
                   third = gpr_smaller(2 * AT_ONCE, last),
                   truths = truths_of_16(bools) | truths_of_16(bools + second) << second |
                            truths_of_16(bools + third) << third |
                            truths_of_16(bools + last) << last;

    return (wanted ? truths : ~truths) & UINT64_MAX >> (STRETCH - n);
}

/* The same of rows of more than AT_ONCE, up to STRETCH. */
static void find_in_stretches(const char *rows, int64_t stride, uint64_t count, uint64_t n,
                              int wanted, int64_t *positions)
{
    for (uint64_t i = 0; i < count; i++, rows += stride) {
        uint64_t marks = truths_of_16(rows) ^ (wanted ? 0 : UINT16_MAX); /* often enough */

        if (marks == 0) marks = marks_of_stretch(rows, n, wanted);
        positions[i] = marks != 0 ? __builtin_ctzll(marks) : 0;
    }
}

void gpr_cpu_find_truths(const char *elements, int64_t stride, uint64_t rows, uint64_t n,
                         int wanted, int64_t *positions)
{
    const int has_more = stride >= (int64_t)n; /* memory behind a row: the next ones */
    uint64_t i = 0;

    if (n <= 2 * sizeof(uint64_t) && has_more) {
        const uint64_t short_of = n < sizeof(uint64_t) ? sizeof(uint64_t) - n : 0,
                       behind = gpr_divide_up(short_of, (uint64_t)stride);
        if (rows > behind) i = rows - behind;
        find_in_words(elements, stride, i, n, wanted, positions);
    }
    if (n > AT_ONCE && n <= STRETCH) {
        find_in_stretches(elements, stride, rows, n, wanted, positions);
        return;
    }
    for (; i < rows; i++) {
        const char *row = elements + (int64_t)i * stride;

        if (n >= AT_ONCE && n <= FEW_TRUTHS) {
            positions[i] = (int64_t)find_by_vectors(row, n, wanted);
        } else if (n < AT_ONCE) {
            const uint64_t behind = has_more ? (rows - 1 - i) * (uint64_t)stride : 0;
            positions[i] = (int64_t)find_by_words(row, n, n + behind, wanted);
        } else if ((*row != 0) == wanted) { /* often */
            positions[i] = 0;
        } else {
            positions[i] = (int64_t)find_among_many(row, n, wanted);
        }
    }
}

/* The same in columns without gaps, of AT_ONCE to STRETCH bools in all, which are marked at once;
 * `nowhere` for columns in which none decides. */
static void find_in_block(const char *bools, int is_backward, uint64_t rows, uint64_t width,
                          int wanted, int64_t nowhere, int64_t *positions)
{
    const uint64_t marks = marks_of_stretch(bools, rows * width, wanted);
    uint64_t first_column = 1;

    for (uint64_t j = 0; j < width; j++) positions[j] = nowhere;
    if (marks == 0) return;
    for (uint64_t shift = width; shift < STRETCH; shift *= 2) first_column |= first_column << shift;
    for (uint64_t j = 0; j < width; j++) {
        const uint64_t column = marks & first_column << j;
        if (column == 0) continue;
        positions[j] = is_backward ? (int64_t)rows - 1 - (63 - __builtin_clzll(column)) / (int)width
                                   : __builtin_ctzll(column) / (int)width;
    }
}

static int is_small_block(uint64_t rows, uint64_t width)
{
    return rows <= STRETCH && rows * width >= AT_ONCE && rows * width <= STRETCH;
}

int gpr_cpu_finds_truths_in_blocks(uint64_t rows, uint64_t width)
{
    return width <= GPR_MOST_TRUTH_COLUMNS && is_small_block(rows, width);
}

void gpr_cpu_find_truths_in_blocks(const char *elements, int64_t stride, uint64_t blocks,
                                   uint64_t rows, uint64_t width, int wanted, int64_t *positions)
{
    for (uint64_t b = 0; b < blocks; b++, elements += stride, positions += width)
        find_in_block(elements, 0, rows, width, wanted, 0, positions);
}

/* 16 bytes hold several rows of few columns. Their marks are a bit each, those of one column
 * `width` bits apart; of a backward stride the first row is the highest. */
void gpr_cpu_find_truths_in_columns(const char *elements, int64_t stride, uint64_t rows,
                                    uint64_t width, int wanted, int64_t *positions)
{
    const uint64_t at_once = AT_ONCE / width, others = wanted ? 0 : UINT16_MAX;
    const int is_backward = stride < 0;
    uint64_t left = width, first_column = 0;

    if (is_small_block(rows, width)) {
        find_in_block(is_backward ? elements + (int64_t)(rows - 1) * stride : elements, is_backward,
                      rows, width, wanted, -1, positions);
        return;
    }
    for (uint64_t j = 0; j < width; j++) positions[j] = -1;
    for (uint64_t k = 0; k < at_once; k++) first_column |= UINT64_C(1) << (k * width);
    for (uint64_t row = 0; row < rows && left > 0; row += at_once) {
        const uint64_t some = gpr_smaller(rows - row, at_once), bytes = some * width;
        const char *block = elements + (int64_t)(is_backward ? row + some - 1 : row) * stride;
        const uint64_t readable = (is_backward ? row + some : rows - row) * width;
        char copy[AT_ONCE] = {0};
        uint64_t marks;

        if (readable < AT_ONCE) {
            memcpy(copy, block, bytes);
            block = copy;
        }
        marks = (truths_of_16(block) ^ others) & ((UINT64_C(1) << bytes) - 1);
        for (uint64_t j = 0; j < width && marks != 0; j++) {
            const uint64_t column = marks & (first_column << j);
            if (column == 0 || positions[j] >= 0) continue;
            const uint64_t bit =
                (uint64_t)(is_backward ? 63 - __builtin_clzll(column) : __builtin_ctzll(column));
            const uint64_t place = bit / width;
            positions[j] = (int64_t)(row + (is_backward ? some - 1 - place : place));
            left--;
        }
    }
}
