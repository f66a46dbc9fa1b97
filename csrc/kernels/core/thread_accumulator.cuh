// A thread's accumulator: what a thread folds its share of a row into. For most traits this is the
// traits' accumulator; some have a form that is faster, or more accurate, while one thread owns it.
//
//   add(x, i)                        adds element number i of the row
//   add_tile(v, in, first, step)     adds vectors in registers: element j of v[k] is
//                                    in[first + k * step + j]
//   renormalize()                    restores accuracy; called between batches, at little cost
//   finalize()                       returns the traits' accumulator of all that was added
//
// Elements are added in any order. Every function is a single thread's.
#pragma once

#include "tile.cuh"

namespace gpr {

// ---------------------------------------------------------------- sums that remember their errors

// A sum in two numbers: Knuth's two-sum gives the rounding error of each addition exactly, and the
// errors are summed. The error of the result then hardly grows with the number of terms. It serves
// elements as wide as the sum; a sum of float32 in double has digits to spare.
template <class T> struct Compensated {
    T sum, error;
};

GPR_DEVICE void add_to(Compensated<double> &total, double x)
{
    const double sum = total.sum + x, shifted = sum - total.sum;
    total.error += (total.sum - (sum - shifted)) + (x - shifted);
    total.sum = sum;
}

// An infinite sum makes the error NaN; the sum itself is right.
GPR_DEVICE double value_of(Compensated<double> total)
{
    return total.error == total.error ? total.sum + total.error : total.sum;
}

GPR_DEVICE void add_to(Compensated<dt_complex128> &total, dt_complex128 x)
{
    Compensated<double> re{total.sum.re, total.error.re}, im{total.sum.im, total.error.im};
    add_to(re, x.re);
    add_to(im, x.im);
    total = {{re.sum, im.sum}, {re.error, im.error}};
}

GPR_DEVICE dt_complex128 value_of(Compensated<dt_complex128> total)
{
    return {value_of(Compensated<double>{total.sum.re, total.error.re}),
            value_of(Compensated<double>{total.sum.im, total.error.im})};
}

template <class T> constexpr bool is_compensated = same<T, double> || same<T, dt_complex128>;

// ---------------------------------------------------------------- the ways to fold --------------

// Which of these the traits use. Later passes (In is Acc) over structures use the first. Traits may
// have one of their own.
enum class AccumulationWay { ACCUMULATOR, SUM, SUM_COUNT, MOMENTS, INDEXED, OWN };

template <class Traits> GPR_DEVICE constexpr AccumulationWay accumulation_way()
{
    using Fold = typename Traits::Fold;
    using Acc = typename Traits::Acc;
    using Compute = typename Traits::Compute;

    if constexpr (has_own_accumulator<Traits>) return AccumulationWay::OWN;
    else if constexpr (same<Fold, fold_sum> && is_compensated<Acc> && same<Compute, Acc>)
        return AccumulationWay::SUM;
    else if constexpr (same<typename Traits::In, Acc>) return AccumulationWay::ACCUMULATOR;
    else if constexpr (same<Fold, fold_moments> || same<Fold, fold_moments_about>)
        return AccumulationWay::MOMENTS;
    else if constexpr (Traits::positional) return AccumulationWay::INDEXED;
    else if constexpr (same<Fold, fold_sum_count>)
        return is_compensated<Compute> ? AccumulationWay::SUM_COUNT : AccumulationWay::ACCUMULATOR;
    else return AccumulationWay::ACCUMULATOR;
}

template <class Traits, AccumulationWay WAY = accumulation_way<Traits>()> struct ThreadAccumulator {
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    Acc value = Traits::identity();

    GPR_DEVICE void add(In x, uint64 i) { value = Traits::combine(value, Traits::lift(x, i)); }
    template <unsigned VECTORS>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *, uint64, uint64)
    {
        value = Traits::combine(value, fold_tile<Traits>(v));
    }
    GPR_DEVICE void renormalize() {}
    GPR_DEVICE Acc finalize() const { return value; }
};

template <class Traits>
struct ThreadAccumulator<Traits, AccumulationWay::OWN> : Traits::Accumulator {};

// Tiles are summed without compensation, which adds the errors of a few additions, and the tiles'
// sums with it.
template <class Traits> struct ThreadAccumulator<Traits, AccumulationWay::SUM> {
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    Compensated<Acc> total = {Traits::identity(), Traits::identity()};

    GPR_DEVICE void add(In x, uint64 i) { add_to(total, Traits::lift(x, i)); }
    template <unsigned VECTORS>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *, uint64, uint64)
    {
        add_to(total, fold_tile<Traits>(v));
    }
    GPR_DEVICE void renormalize() {}
    GPR_DEVICE Acc finalize() const { return value_of(total); }
};

template <class Traits> struct ThreadAccumulator<Traits, AccumulationWay::SUM_COUNT> {
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    using Number = typename Acc::Number;
    Compensated<Number> total = {Traits::identity().sum, Traits::identity().sum};
    uint64 count = 0;

    GPR_DEVICE void add_part(Acc part)
    {
        add_to(total, part.sum);
        count += part.count;
    }
    GPR_DEVICE void add(In x, uint64 i) { add_part(Traits::lift(x, i)); }
    template <unsigned VECTORS>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *, uint64, uint64)
    {
        add_part(fold_tile<Traits>(v));
    }
    GPR_DEVICE void renormalize() {}
    GPR_DEVICE Acc finalize() const { return Acc{value_of(total), count}; }
};

// The narrowest type of at least 32 bits in which min and max of a type are computed.
template <class T> struct NarrowOf {
    using Integer = typename Select<is_signed<T>, int, unsigned>::type;
    using type = typename Select<is_float<T>, float, Integer>::type;
};
template <class T>
using Narrow = typename Select<sizeof(T) < 8, NarrowOf<T>, Select<true, T, T>>::type::type;

// Extremes with positions. A tile's extreme is found as min and max are; only the place of the best
// tile is kept. So no lane searches for a position while the others of its warp wait: one search of
// one tile at the end finds it.
template <class Traits> struct ThreadAccumulator<Traits, AccumulationWay::INDEXED> {
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    using Fold = typename Traits::Fold;
    using Tile =
        typename Traits::template With<typename Fold::Extreme, Narrow<typename Traits::Compute>>;
    static constexpr unsigned most_vectors = 4;
    const In *row = nullptr;
    Narrow<typename Traits::Compute> best = Tile::identity();
    uint64 first = GPR_NOWHERE; // of the tile, or where the element itself is
    unsigned vectors = 0;   // of the tile; 0: it was an element
    unsigned distance = 0;  // from vector to vector, in elements

    GPR_DEVICE void keep_better(Narrow<typename Traits::Compute> number, uint64 at, unsigned count,
                                unsigned step)
    {
        // Most numbers fail the first two comparisons.
        if (!Fold::prefers(number, best) && (Fold::prefers(best, number) || at >= first)) return;
        best = number;
        first = at;
        vectors = count;
        distance = step;
    }
    GPR_DEVICE void add(In x, uint64 i)
    {
        if (!Traits::skips_nan || !is_nan(value_of(x))) keep_better(Tile::lift(x, i), i, 0, 0);
    }
    template <unsigned VECTORS>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *in, uint64 at, uint64 step)
    {
        static_assert(VECTORS <= most_vectors, "a tile is looked through at the end");
        row = in;
        if (Traits::skips_nan && count_present<Traits>(v) == 0)
            return; // its extreme would be an infinity that is no element
        keep_better(fold_tile<Tile>(v), at, VECTORS, static_cast<unsigned>(step));
    }
    // Returns the position of the first element of the best tile that equals the extreme. Called
    // once, where an element was added. Whoever has the tile gives it to position_in().
    GPR_DEVICE uint64 position() const
    {
        if (vectors == 0) return first;
        Vector v[most_vectors]; // again all loads first
#pragma unroll
        for (unsigned k = 0; k < most_vectors; k++) {
            if (k < vectors) v[k] = *reinterpret_cast<const Vector *>(row + first + k * distance);
        }
        return position_in(v);
    }
    template <unsigned VECTORS> GPR_DEVICE uint64 position_in(const Vector (&v)[VECTORS]) const
    {
        unsigned found = 0;
#pragma unroll
        for (unsigned i = VECTORS * vector_elements<In>; i-- > 0;) {
            const unsigned k = i / vector_elements<In>;
            const In x = element<In>(v[k], i % vector_elements<In>);
            const bool is_there = k < vectors && (!Traits::skips_nan || !is_nan(value_of(x)));
            if (is_there && !Fold::prefers(best, Tile::lift(x, 0))) found = i;
        }
        return first + found / vector_elements<In> * distance + found % vector_elements<In>;
    }
    GPR_DEVICE void renormalize() {}
    GPR_DEVICE Acc finalize() const
    {
        if (first == GPR_NOWHERE) return Traits::identity();
        return Acc{element_of<typename Acc::Number>(best), position()};
    }
};

// Moments by distances from a centre near the mean: their sum and the sum of their squares take two
// additions per element and no division. With centre c, n elements and distances d, the sum of
// squared distances from the mean is sum(d^2) - sum(d)^2 / n, which cancels only as far as c is
// from the mean, in standard deviations. The first element may be an outlier, so the mean so far
// replaces the centre after 16 elements and then ever more rarely. Its cost is bounded: an element
// far from the others adds the square of its distance to the result in any case.
template <class Acc> struct Distances {
    using Number = typename Acc::Number;
    Number centre = element_of<Number>(0);
    Number sum = element_of<Number>(0); // of distances from the centre
    double squares = 0;

    GPR_DEVICE void add(Number y)
    {
        const Number distance = y - centre;
        sum = sum + distance;
        squares += squared(distance);
    }
    GPR_DEVICE void move_centre(unsigned count)
    {
        const Number nearer = centre + scaled(sum, 1.0 / count);
        const Number step = nearer - centre;
        const double left = squares - 2 * inner(step, sum) + count * squared(step);
        squares = left < 0 ? 0 : left; // rounding may go below 0, NaN stays
        sum = sum - scaled(step, count);
        centre = nearer;
    }
    GPR_DEVICE Acc finalize(unsigned count) const
    {
        const double share = 1.0 / count;
        const double left = squares - squared(sum) * share;
        return Acc{moved(mean_of(centre), scaled(sum, share)), left < 0 ? 0 : left, count};
    }
};

// Distances that become a variance about a given mean (fold_moments_about). Elements that are
// infinite or NaN are noted; the squares are infinite or NaN then, and the sum is not read.
template <class Acc> struct DistancesAbout : Distances<Acc> {
    using Number = typename Acc::Number;
    enum : unsigned { NOT_A_NUMBER = 1, PLUS = 2, MINUS = 4, PER_PART = 3 };
    unsigned noted = 0; // PER_PART bits of each part

    static GPR_DEVICE unsigned note_of(double x)
    {
        return x != x ? NOT_A_NUMBER : x > 0 ? PLUS : MINUS;
    }
    GPR_DEVICE void note(double x)
    {
        if (is_special(x)) noted |= note_of(x);
    }
    GPR_DEVICE void note(dt_complex128 x)
    {
        note(x.re);
        if (is_special(x.im)) noted |= note_of(x.im) << PER_PART;
    }
    GPR_DEVICE void add(Number y)
    {
        note(y);
        Distances<Acc>::add(y);
    }
    // The sum of a part's infinities.
    static GPR_DEVICE double sum_of(unsigned part)
    {
        const double infinity = largest_of<double, double>();
        return ((part & PLUS) != 0 ? infinity : 0) - ((part & MINUS) != 0 ? infinity : 0);
    }
    GPR_DEVICE Acc finalize(unsigned count) const
    {
        const double infinity = largest_of<double, double>();
        constexpr unsigned nan = NOT_A_NUMBER | NOT_A_NUMBER << PER_PART;
        const Acc found = Distances<Acc>::finalize(count);
        Number sum;

        if (!is_special(found.squares)) return found;
        if constexpr (is_complex<Number>) sum = Number{sum_of(noted), sum_of(noted >> PER_PART)};
        else sum = sum_of(noted);
        return Acc{mean_of(sum), (noted & nan) != 0 ? infinity - infinity : infinity, count};
    }
};

template <class> constexpr bool notes_special = false;
template <class Acc> constexpr bool notes_special<DistancesAbout<Acc>> = true;

template <class Traits>
using DistancesOf =
    typename Select<same<typename Traits::Fold, fold_moments_about>,
                    DistancesAbout<typename Traits::Acc>, Distances<typename Traits::Acc>>::type;

// The number of elements, and when the centre moves next.
struct MomentCount {
    static constexpr unsigned first_move = 16,
                              move_factor = 16; // elements until it does, and then again
    unsigned count = 0;
    unsigned next_move = first_move;

    GPR_DEVICE bool is_due() const { return count >= next_move; }
    GPR_DEVICE void move() { next_move = count > ~0u / move_factor ? ~0u : count * move_factor; }
};

template <class Traits> GPR_DEVICE auto number_of(typename Traits::In x)
{
    return element_of<typename Traits::Acc::Number>(value_of(convert<typename Traits::Compute>(x)));
}

template <class Traits> struct ThreadAccumulator<Traits, AccumulationWay::MOMENTS> {
    using In = typename Traits::In;
    using Acc = typename Traits::Acc;
    DistancesOf<Traits> distances;
    MomentCount taken;

    GPR_DEVICE void add(In x, uint64)
    {
        if (Traits::skips_nan && is_nan(value_of(x))) return;
        const auto y = number_of<Traits>(x);
        if (taken.count++ == 0) distances.centre = y;
        distances.add(y);
    }
    GPR_DEVICE void renormalize()
    {
        if (!taken.is_due()) return;
        distances.move_centre(taken.count);
        taken.move();
    }
    template <unsigned VECTORS>
    GPR_DEVICE void add_tile(const Vector (&v)[VECTORS], const In *, uint64, uint64)
    {
        Vector kept[VECTORS];
        unsigned left_out = 0;

#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) kept[k] = v[k];
        begin_tile(v);
        if (Traits::skips_nan && may_have_nan<In>(v)) {
            left_out = leave_out_nans<In>(kept, Vector{});
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) add_vector<true>(v[k], kept[k]);
        } else {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) add_vector<false>(v[k], v[k]);
        }
        end_tile(VECTORS * vector_elements<In> - left_out);
    }
    // A tile's vectors: begin_tile() gets all, add_vector() one after the other, and end_tile() how
    // many elements were added. HAS_NAN: elements that are NaN in v are 0 in `kept`, and left out.
    template <unsigned VECTORS> GPR_DEVICE void begin_tile(const Vector (&v)[VECTORS])
    {
        if (taken.count > 0) return;
        // a thread's first element is the centre until that moves
#pragma unroll
        for (unsigned i = VECTORS * vector_elements<In>; i-- > 0;) {
            const In x = element<In>(v[i / vector_elements<In>], i % vector_elements<In>);
            if (!Traits::skips_nan || !is_nan(value_of(x)))
                distances.centre = number_of<Traits>(x);
        }
    }
    template <bool HAS_NAN> GPR_DEVICE void add_vector(const Vector &v, const Vector &kept)
    {
#pragma unroll
        for (unsigned j = 0; j < vector_elements<In>; j++) {
            const bool is_added = !HAS_NAN || !is_nan(value_of(element<In>(v, j)));
            const auto y = number_of<Traits>(element<In>(kept, j));
            // 0 is added for an element that is left out: that takes fewer instructions than not to
            // add. An infinite centre would be noted.
            if constexpr (notes_special<DistancesOf<Traits>>) {
                if (is_added) distances.add(y);
            } else {
                distances.add(is_added ? y : distances.centre);
            }
        }
    }
    GPR_DEVICE void end_tile(unsigned count)
    {
        taken.count += count;
        renormalize();
    }
    GPR_DEVICE Acc finalize() const
    {
        return taken.count == 0 ? Traits::identity() : distances.finalize(taken.count);
    }
};

} // namespace gpr
