/* Factors on their way to the loops; see factors.h. */
#include "cpu/factors.h"

#include <string.h>

#include "cpu/job.h"
#include "lib/base/convert.h"

#define DEFINE_SPLIT(bytes, type)                                                                \
    static void split_##bytes(const char *elements, uint64_t count, char *real, char *imaginary) \
    {                                                                                            \
        type *to[GPR_EXACT_PARTS] = {(type *)(void *)real, (type *)(void *)imaginary};           \
                                                                                                 \
        for (uint64_t i = 0; i < count; i++) {                                                   \
            memcpy(&to[0][i], elements + 2 * i * (bytes), bytes);                                \
            memcpy(&to[1][i], elements + (2 * i + 1) * (bytes), bytes);                          \
        }                                                                                        \
    }
DEFINE_SPLIT(4, uint32_t)
DEFINE_SPLIT(8, uint64_t)

void gpr_cpu_split_parts(const char *elements, size_t part_bytes, uint64_t count, char *real,
                         char *imaginary)
{
    if (part_bytes == sizeof(float))
        split_4(elements, count, real, imaginary);
    else
        split_8(elements, count, real, imaginary);
}

uint64_t gpr_cpu_run_in_place(const gpr_cpu_factors *factors, const gpr_view *view)
{
    enum { SHORTEST = 256 }; /* shorter ones are better copied to a tile */
    const gpr_axis *last = &view->axes[view->outer + view->inner - 1];

    if (view->dtype != factors->dtype) return 0;
    if (view->rows_contiguous) return view->n;
    if (view->inner == 0 || last->in != (int64_t)view->bytes || last->extent < SHORTEST) return 0;
    return view->mask == NULL && view->encoding == 0 && gpr_view_is_aligned(view) ? last->extent
                                                                                  : 0;
}

/* Converts real numbers. */
static void convert_reals(gpr_dtype from, const void *elements, gpr_dtype to, void *converted,
                          uint64_t count)
{
    const gpr_widening how = gpr_cpu_loops()->widen[from];

    if (how.loop != NULL && how.to == to)
        how.loop(elements, converted, count);
    else
        gpr_convert(from, elements, to, converted, count);
}

/* Makes complex numbers of real ones, whose imaginary parts are 0. */
#define DEFINE_JOIN(bytes, T)                                                    \
    static void join_##bytes(const void *reals, uint64_t count, char *converted) \
    {                                                                            \
        for (uint64_t i = 0; i < count; i++) {                                   \
            T parts[GPR_EXACT_PARTS] = {0};                                      \
            memcpy(parts, (const char *)reals + i * (bytes), bytes);             \
            memcpy(converted + i * sizeof parts, parts, sizeof parts);           \
        }                                                                        \
    }
DEFINE_JOIN(4, float)
DEFINE_JOIN(8, double)

static void convert_to_complex(gpr_dtype from, const char *elements, gpr_dtype to, char *converted,
                               uint64_t count)
{
    enum { AT_ONCE = 128 };
    const gpr_dtype part = gpr_real_dtype(to);
    const size_t bytes = gpr_dtype_bytes(part), of_element = gpr_dtype_bytes(from);
    double reals[AT_ONCE];

    for (uint64_t done = 0, some; done < count; done += some) {
        some = gpr_smaller(count - done, AT_ONCE);
        convert_reals(from, elements + done * of_element, part, reals, some);
        if (bytes == sizeof(float))
            join_4(reals, some, converted + done * 2 * bytes);
        else
            join_8(reals, some, converted + done * 2 * bytes);
    }
}

void gpr_cpu_convert_factors(gpr_dtype from, const void *elements, gpr_dtype to, void *converted,
                             uint64_t count)
{
    const int is_complex = gpr_kind_of(from) == GPR_KIND_COMPLEX;

    if (from == to || gpr_kind_of(to) != GPR_KIND_COMPLEX)
        convert_reals(from, elements, to, converted, count);
    else if (is_complex)
        convert_reals(gpr_real_dtype(from), elements, gpr_real_dtype(to), converted, 2 * count);
    else
        convert_to_complex(from, elements, to, converted, count);
}

static int is_in_run(const gpr_cpu_factors *factors, const gpr_view *view, uint64_t at,
                     uint64_t count)
{
    const uint64_t run = gpr_cpu_run_in_place(factors, view);

    return run > 0 && at % run + count <= run;
}

const void *gpr_cpu_read_elements(const gpr_cpu_factors *factors, const gpr_view *view,
                                  uint64_t row, uint64_t at, uint64_t count, factor_stage *s)
{
    const char *elements = s->packed;
    gpr_view located;

    if (view->rows_contiguous) {
        elements = gpr_view_row(view, row) + at * view->bytes;
    } else if (is_in_run(factors, view, at, count)) {
        gpr_cpu_locate(view, row, at, &located);
        elements = located.data;
    } else {
        gpr_cpu_pack(view, row * view->n + at, count, NULL, s->packed);
    }
    if (view->dtype != factors->dtype) {
        gpr_cpu_convert_factors(view->dtype, elements, factors->dtype, s->converted, count);
        elements = s->converted;
    }
    return elements;
}

void gpr_cpu_read_factors(const gpr_cpu_factors *factors, const gpr_view *view, uint64_t row,
                          uint64_t at, uint64_t count, factor_stage *s,
                          const void *components[GPR_EXACT_PARTS])
{
    const void *elements = gpr_cpu_read_elements(factors, view, row, at, count, s);

    components[0] = elements;
    if (factors->components == 1) return;
    gpr_cpu_split_parts(elements, gpr_part_bytes(factors->dtype), count, s->split[0], s->split[1]);
    for (int p = 0; p < GPR_EXACT_PARTS; p++) components[p] = s->split[p];
}

/* A float 1 has the bias for its exponent field. */
#define FLOAT_ONE(BITS, fraction, exponent) \
    (BITS)((((BITS)1 << ((exponent) - 1)) - 1) << (fraction))
#define SIGN_BIT(BITS) (BITS)((BITS)1 << (8 * sizeof(BITS) - 1))

#define DEFINE_SIGNS(name, BITS, MADE)                                         \
    static void signs_##name(const BITS *numbers, uint64_t count, BITS *signs) \
    {                                                                          \
        for (uint64_t i = 0; i < count; i++) {                                 \
            const BITS x = numbers[i];                                         \
            signs[i] = (BITS)(MADE);                                           \
        }                                                                      \
    }
/* All bits of a signed integer are those of -1 if its sign bit is set. */
#define SIGNS_GPR_KIND_BOOL(name, BITS, fraction, exponent)
#define SIGNS_GPR_KIND_UNSIGNED(name, BITS, fraction, exponent)
#define SIGNS_GPR_KIND_COMPLEX(name, BITS, fraction, exponent)
#define SIGNS_GPR_KIND_SIGNED(name, BITS, fraction, exponent) \
    DEFINE_SIGNS(name, BITS, (BITS)(0 - (x >> (8 * sizeof(BITS) - 1))) | 1)
#define SIGNS_GPR_KIND_FLOAT(name, BITS, fraction, exponent) \
    DEFINE_SIGNS(name, BITS, (x & SIGN_BIT(BITS)) | FLOAT_ONE(BITS, fraction, exponent))
#define BITS_1 uint8_t
#define BITS_2 uint16_t
#define BITS_4 uint32_t
#define BITS_8 uint64_t
#define GPR_DTYPE(ID, name, bytes, kind, c_type, fraction, exponent) \
    SIGNS_##kind(name, BITS_##bytes, fraction, exponent)
#include "dtypes.def"
#undef GPR_DTYPE

static void make_ones(size_t bytes, uint64_t count, void *ones)
{
    uint16_t *b16 = ones;
    uint32_t *b32 = ones;
    uint64_t *b64 = ones;

    if (bytes == 1) memset(ones, 1, count);
    for (uint64_t i = 0; i < count && bytes == sizeof *b16; i++) b16[i] = 1;
    for (uint64_t i = 0; i < count && bytes == sizeof *b32; i++) b32[i] = 1;
    for (uint64_t i = 0; i < count && bytes == sizeof *b64; i++) b64[i] = 1;
}

void gpr_cpu_read_signs(gpr_dtype dtype, const void *numbers, uint64_t count, void *signs)
{
    switch (dtype) {
#define CASE_GPR_KIND_BOOL(...)
#define CASE_GPR_KIND_UNSIGNED(...)
#define CASE_GPR_KIND_SIGNED(ID, name) \
    case GPR_##ID: signs_##name(numbers, count, signs); break;
#define CASE_GPR_KIND_FLOAT CASE_GPR_KIND_SIGNED
#define CASE_GPR_KIND_COMPLEX(...)
#define GPR_DTYPE(ID, name, bytes, kind, ...) CASE_##kind(ID, name)
#include "dtypes.def"
#undef GPR_DTYPE
    default: make_ones(gpr_dtype_bytes(dtype), count, signs); break; /* none is negative */
    }
}
