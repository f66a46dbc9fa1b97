// Exact sums: when a group of threads tries its bins on a tile, and when it moves them. The one
// policy of all adders.
//
// Where bins lie is a guess: it costs time when it is wrong and never changes a bit of the sum. So
// the policy only has to be cheap where tiles fit, and not much slower than no bins at all where
// they do not:
//
//     tile fits ------> misses = 0
//         The usual case: no state changes but a counter.
//     tile misses ----> skipped = misses, misses = 2 misses + 1 (7 at most)
//         The next `skipped` tiles are added otherwise, without a try. After k misses in a row
//         these are at most 2^k - 1, so that data that never fits pays for one try in eight.
//     second strike --> bins move
//         A strike is a miss since the bins began: a single outlier leaves them where they are, two
//         tiles move them.
//
// All threads of a group have the same placement: every decision is made by what the whole group
// has voted for.
#pragma once

#include "exact_bins.cuh"

namespace gpr {

struct BinPlacement {
    static constexpr unsigned most_skipped = 7, most_strikes = 1;
    bool is_placed = false;           // bins lie where some tile's elements are
    unsigned misses = 0, skipped = 0; // since the last tile that fitted; tiles to add otherwise
    unsigned strikes = 0;             // misses since the bins began

    // Whether the next tile is added otherwise, without a try.
    GPR_DEVICE bool skips_tile()
    {
        if (is_placed && skipped == 0) return false;
        skipped -= skipped > 0 ? 1 : 0;
        return true;
    }
    GPR_DEVICE void note_fit() { misses = 0; }
    // Of a tile of which bins held the most, after all.
    GPR_DEVICE void note_partial_fit() { misses = skipped = 0; }
    GPR_DEVICE void note_miss()
    {
        skipped = misses;
        misses = misses < most_skipped ? 2 * misses + 1 : misses;
    }
    GPR_DEVICE bool should_move() const { return strikes > most_strikes; }
};

// Exponents of the largest of some numbers and of the smallest that is not 0: the latter may be one
// too small, and is larger than any where all are 0.
struct Extent { int largest, smallest; };
// Exponents that bins hold: up to `highest`; down to `fewer_lowest` in the first bins, down to
// `all_lowest` in all.
struct Limits { int highest, fewer_lowest, all_lowest; };

// The policy for adders that know beforehand, from a tile's exponents alone, whether bins hold it.
// An Adder has
//   group                   threads that decide together
//   range_of(tile)          its Extent, in the unit of the Limits
//   place(largest, ...)     begins bins anew for numbers like the largest, and flushes them before
//                           if they were in use. Returns whether there is a place
//   limits()                of the bins
//   add_to_fewer(tile)      adds a tile that the first bins hold
//   add_to_all(tile)        adds a tile that all bins hold
//   add_any_tile(tile)      adds a tile otherwise, and returns the exponent of its largest number
//   flush()                 empties the bins, which stay where they are
// A tile brings ADDS additions to each bin.
template <unsigned ADDS> struct MeasuredPlacement : BinPlacement {
    unsigned adds = 0; // to the bins since they began
    Limits limits = {0, 0, 0};

    // The whole group must call together.
    template <class Adder, class Tile> GPR_DEVICE void accumulate(Adder &adder, const Tile &tile)
    {
        const Extent range = adder.range_of(tile);
        if (!is_placed) place(adder, group_largest(adder, range.largest));
        if (skips_tile()) return add_otherwise(adder, tile);
        if (adds > most_adds - ADDS) {
            adder.flush();
            adds = strikes = 0;
        }
        const bool is_in_reach = range.largest <= limits.highest;
        if (!adder.group.any(!is_in_reach || range.smallest < limits.fewer_lowest)) {
            adder.add_to_fewer(tile);
        } else if (!adder.group.any(!is_in_reach || range.smallest < limits.all_lowest)) {
            adder.add_to_all(tile);
        } else {
            strikes++;
            note_miss();
            return add_otherwise(adder, tile);
        }
        note_fit();
        adds += ADDS;
    }

private:
    template <class Adder> GPR_DEVICE void place(Adder &adder, int largest)
    {
        if (!adder.place(largest, is_placed)) return;
        is_placed = true;
        limits = adder.limits();
        adds = strikes = 0;
    }
    template <class Adder, class Tile> GPR_DEVICE void add_otherwise(Adder &adder, const Tile &tile)
    {
        const bool moves = !is_placed || should_move();
        const int largest = group_largest(adder, adder.add_any_tile(tile));
        if (moves) place(adder, largest);
    }
    template <class Adder> static GPR_DEVICE int group_largest(const Adder &adder, int field)
    {
        return static_cast<int>(adder.group.max(static_cast<unsigned>(field)));
    }
};

} // namespace gpr
