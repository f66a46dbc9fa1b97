// What csrc/kernels/exact_brackets.cuh does in one thread, to be called from Python: it needs no warp, and no emulator.
#include "cuda_on_cpu.h"

namespace gpr {
constexpr unsigned kept_axes = 1; // as a program begins
}
#include "exact_brackets.cuh"

using namespace gpr;

#define EXPORTED extern "C" __attribute__((visibility("default")))

struct FoundBracket {
    uint64 high, low, width;
    long long exponent;
};

// Of `count` digits.
template <int RADIX, class Digit> static bool first_bits(Bracket *bracket, const Digit *digit, int count, int unit)
{
    Bounds used = {count, -1};
    for (int i = 0; i < count; i++) {
        if (digit[i] == 0) continue;
        if (used.last < 0) used.first = i;
        used.last = i;
    }
    return take_first_bits<RADIX>(bracket, digit, used, unit);
}

static FoundBracket found_of(const Bracket &bracket)
{
    return FoundBracket{bracket.least.high, bracket.least.low, bracket.width, bracket.exponent};
}

EXPORTED int first_bits_of_digits(const int *digit, int count, FoundBracket *found)
{
    Bracket bracket;
    if (!first_bits<20>(&bracket, digit, count, 0)) return 0;
    *found = found_of(bracket);
    return 1;
}

EXPORTED int first_bits_of_words(const long long *word, int count, FoundBracket *found)
{
    Bracket bracket;
    if (!first_bits<word_bits>(&bracket, word, count, 0)) return 0;
    *found = found_of(bracket);
    return 1;
}

// n Q - S^2 of a complex sum S, whose parts' digits are 2^unit, and of squares, whose digits are 2^(2 unit).
EXPORTED int numerator(const int *const *digits, int count, int unit, uint64 n, FoundBracket *found)
{
    Bracket sums[2], squares;
    if (!first_bits<20>(&squares, digits[2], count, 2 * unit)) return 0;
    Bracket whole = times(squares, n);
    for (int p = 0; p < 2; p++) {
        if (!first_bits<20>(&sums[p], digits[p], count, unit) || !take_square(&whole, sums[p])) return 0;
    }
    *found = found_of(whole);
    return 1;
}

template <class Float, bool IS_ROOT>
static int vary(const int *const *digits, int count, int unit, uint64 n, double ddof, uint64 *bits)
{
    MomentBrackets<2> moments;
    if (!first_bits<20>(&moments.squares, digits[2], count, 2 * unit)) return 0;
    for (int p = 0; p < 2; p++) {
        if (!first_bits<20>(&moments.sum[p], digits[p], count, unit)) return 0;
    }
    const QuickResult result = vary_quickly<Float, IS_ROOT>(moments, n, ddof);
    *bits = result.bits;
    return result.is_sure;
}

#define VARY(op, root, name)                                                                                    \
    EXPORTED int op##_##name(const int *const *digits, int count, int unit, uint64 n, double ddof, uint64 *bits) \
    {                                                                                                           \
        return vary<dt_##name, root>(digits, count, unit, n, ddof, bits);                                       \
    }
#define VARY_BOTH(name) VARY(var, false, name) VARY(std, true, name)
VARY_BOTH(float16)
VARY_BOTH(bfloat16)
VARY_BOTH(float32)
VARY_BOTH(float64)
