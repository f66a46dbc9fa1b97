// What csrc/kernels/exact/exact_interval.cuh does in one thread, to be called from Python: it needs
// no warp, and no emulator.
#include "cuda_on_cpu.h"

namespace gpr
{
constexpr unsigned kept_axes = 1; // as a program begins
}
#include "exact_interval.cuh"

using namespace gpr;

#define EXPORTED extern "C" __attribute__((visibility("default")))

struct FoundInterval {
    uint64 high, low, width;
    long long exponent;
};

// Of `count` limbs.
template <int RADIX, class Limb>
static bool leading_bits(Interval *interval, const Limb *limb, int count, int unit)
{
    Bounds used = {count, -1};
    for (int i = 0; i < count; i++) {
        if (limb[i] == 0) continue;
        if (used.last < 0) used.first = i;
        used.last = i;
    }
    return load_leading_bits<RADIX>(interval, limb, used, unit);
}

static FoundInterval found_of(const Interval &interval)
{
    return FoundInterval{interval.least.high, interval.least.low, interval.width,
                         interval.exponent};
}

EXPORTED int leading_bits_of_limbs(const int *limb, int count, FoundInterval *found)
{
    Interval interval;
    if (!leading_bits<20>(&interval, limb, count, 0)) return 0;
    *found = found_of(interval);
    return 1;
}

EXPORTED int leading_bits_of_words(const long long *word, int count, FoundInterval *found)
{
    Interval interval;
    if (!leading_bits<word_bits>(&interval, word, count, 0)) return 0;
    *found = found_of(interval);
    return 1;
}

// n Q - S^2 of a complex sum S, whose parts' limbs are 2^unit, and of squares, whose limbs are 2^(2
// unit).
EXPORTED int numerator(const int *const *limbs, int count, int unit, uint64 n, FoundInterval *found)
{
    Interval sums[2], squares;
    if (!leading_bits<20>(&squares, limbs[2], count, 2 * unit)) return 0;
    Interval whole = times(squares, n);
    for (int p = 0; p < 2; p++) {
        if (!leading_bits<20>(&sums[p], limbs[p], count, unit) || !subtract_square(&whole, sums[p]))
            return 0;
    }
    *found = found_of(whole);
    return 1;
}

template <class Float, bool IS_ROOT>
static int vary(const int *const *limbs, int count, int unit, uint64 n, double ddof, uint64 *bits)
{
    MomentIntervals<2> moments;
    if (!leading_bits<20>(&moments.squares, limbs[2], count, 2 * unit)) return 0;
    for (int p = 0; p < 2; p++) {
        if (!leading_bits<20>(&moments.sum[p], limbs[p], count, unit)) return 0;
    }
    const ZivResult result = variance_from_intervals<Float, IS_ROOT>(moments, n, ddof);
    *bits = result.bits;
    return result.is_certain;
}

#define VARY(op, root, name)                                                                      \
    EXPORTED int op##_##name(const int *const *limbs, int count, int unit, uint64 n, double ddof, \
                             uint64 *bits)                                                        \
    {                                                                                             \
        return vary<dt_##name, root>(limbs, count, unit, n, ddof, bits);                          \
    }
#define VARY_BOTH(name) VARY(var, false, name) VARY(std, true, name)
VARY_BOTH(float16)
VARY_BOTH(bfloat16)
VARY_BOTH(float32)
VARY_BOTH(float64)
