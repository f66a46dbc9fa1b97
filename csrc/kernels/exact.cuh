// exact: the real sum of the elements, rounded once. The same bits in any order, by any grid, on any card.
//
// Removed: rounding on the way. A double that begins at 1.5 * 2^p and stays between 2^p and 2^(p + 1) has its last place
// at 2^(p - 52) all the time: what is added to it is cut to multiples of that, and what the sum grew by is found exactly
// by one subtraction. So three additions split an element in two without an error: the part above 2^(p - 53), which is
// in the sum, and the rest, which goes on to the next such window, 42 bits below. Where the last rest is zero, the
// windows hold every digit. Three of them hold float64 over 68 binary orders of magnitude, two of them float32 over 55;
// one is enough for 16-bit floats, whose numbers have few digits.
//
// A window less what it began with is an integer, and integers are added without regard to order: over a warp, and into
// a fixed-point number that has room for every element there is (exact_sum.cuh). That happens every thousand elements of
// a thread, before a window could overflow, and at the end.
//
// Whether elements fit the windows is asked once for a tile: whether the first window ever left its range (an element is
// too large, infinite or NaN), and whether a rest was left. If so, the windows go back to what they were before the
// tile, and the warp adds it slowly: with windows placed at its largest element, then at the largest rest, until nothing
// is left. Then the windows are placed anew, as the next tile is likely to be like this one. Where windows lie changes
// the time that is taken, never the sum.
//
// Still paid: three additions a window for each element, where a sum has one; and a little more at a block's end.
//
// Launch: any number of blocks a row; BLOCK a multiple of 32; out[row] is written by one block. With more than one block
// a row, a row's counters are its ticket, a gap, and an accumulator: zero before and after.
//
// Reference: the windows are those of Rump's extraction of vectors, and of the binned sums of Demmel, Ahrens and Nguyen
// (ReproBLAS), which round; the fixed-point number is Kulisch's. Neither was made to be checked by the tile.
#pragma once

#include "block.cuh"
#include "exact_sum.cuh"
#include "tile.cuh"

namespace gpr {

// ---------------------------------------------------------------- elements ----------------------

// Elements as they are added: the number, exactly, in a type that also holds what windows leave of it.
template <class T> struct AddedAs { using type = float; };
template <> struct AddedAs<dt_float64> { using type = double; };

// A float's exponent field and what lies above its fraction, without the sign: in the upper 32 bits of a double.
GPR_DEVICE unsigned upper_bits(float x) { return bit_copy<unsigned>(x); }
GPR_DEVICE unsigned upper_bits(double x) { return static_cast<unsigned>(bit_copy<uint64>(x) >> 32); }
GPR_DEVICE unsigned lower_bits(float) { return 0; }
GPR_DEVICE unsigned lower_bits(double x) { return static_cast<unsigned>(bit_copy<uint64>(x)); }
constexpr unsigned sign_bit = 0x80000000u;

template <class Float> constexpr int stored_fraction = same<Float, double> ? 20 : 23; // bits of it in the upper ones
template <class Float> constexpr int exponent_bias = same<Float, double> ? 1023 : 127;
template <class Float> constexpr unsigned last_field = same<Float, double> ? 2047 : 255; // of infinities and NaN

// Grows with the magnitude, and is 0 for zero alone.
template <class Float> GPR_DEVICE unsigned magnitude_key(Float x)
{
    return (upper_bits(x) & ~sign_bit) | (lower_bits(x) != 0 ? 1 : 0);
}
template <class Float> GPR_DEVICE unsigned field_of_key(unsigned key) { return key >> stored_fraction<Float>; }

template <class T> GPR_DEVICE T warp_max(T value)
{
#pragma unroll
    for (unsigned mask = warp_lanes / 2; mask > 0; mask /= 2) {
        const T other = shuffle_xor(value, mask);
        if (other > value) value = other;
    }
    return value;
}

// ---------------------------------------------------------------- words -------------------------

// Adds COUNT integers a lane, summed over the warp, to a part: number i in units of 2^(grid_lowest + place[i]). The
// numbers' magnitudes are below 2^58. All lanes of the warp must call; the part is shared memory.
template <unsigned COUNT, class T>
GPR_DEVICE void add_to_words(ExactPart<T> &part, long long (&number)[COUNT], const int (&place)[COUNT])
{
    constexpr unsigned pieces = 3; // words that a shifted number reaches
    static_assert(pieces * COUNT <= warp_lanes, "a lane adds one piece");
    const unsigned lane = threadIdx.x % warp_lanes;
    long long mine = 0;
    int first = 0;

#pragma unroll
    for (unsigned mask = warp_lanes / 2; mask > 0; mask /= 2) {
#pragma unroll
        for (unsigned i = 0; i < COUNT; i++) number[i] += shuffle_xor(number[i], mask);
    }
#pragma unroll
    for (unsigned i = 0; i < COUNT; i++) {
        if (lane / pieces == i) {
            mine = number[i];
            first = place[i];
        }
    }
    if (mine != 0) {
        const unsigned piece = lane % pieces;
        const int shift = first % word_bits;
        const uint64 magnitude = mine < 0 ? 0 - static_cast<uint64>(mine) : static_cast<uint64>(mine);
        const uint64 low = magnitude << shift, high = magnitude >> 1 >> (63 - shift);
        const uint64 digit = piece == 0 ? low & 0xffffffffu : piece == 1 ? low >> word_bits : high;
        uint64 *word = reinterpret_cast<uint64 *>(&part.word[first / word_bits + static_cast<int>(piece)]);
        if (digit != 0) atomicAdd(word, mine < 0 ? 0 - digit : digit);
    }
}

// ---------------------------------------------------------------- windows -----------------------

template <class T> constexpr unsigned windows_of = sizeof(T) == 8 ? 3 : sizeof(T) == 4 ? 2 : 1;
constexpr int window_bits = 42;           // from a window to the next
constexpr unsigned most_adds = 1024;      // to a window: 2^(52 - window_bits)
constexpr int headroom_bits = 16;         // from a tile's largest exponent to the first bias's: most_adds, and for larger ones
constexpr int most_bias = 1021;           // 1.5 * 2^p and twice that are finite
constexpr int double_fraction = 52;

// COUNT windows for elements of type T. The first bias is 1.5 * 2^top.
template <class T, unsigned COUNT = windows_of<T>> struct Windows {
    double sum[COUNT];
    int top; // the same in all lanes of a warp

    // No window lies deeper than the smallest number needs.
    GPR_DEVICE int exponent(unsigned w) const
    {
        constexpr int deepest = grid_lowest<T> + double_fraction;
        const int e = top - static_cast<int>(w) * window_bits;
        return e > deepest ? e : deepest;
    }
    GPR_DEVICE double bias(unsigned w) const
    {
        return bit_copy<double>(static_cast<uint64>(exponent(w) + 1023) << 52 | 1ull << 51);
    }
    GPR_DEVICE void begin(int at)
    {
        top = at;
#pragma unroll
        for (unsigned w = 0; w < COUNT; w++) sum[w] = bias(w);
    }
    // Adds x. Returns what no window took.
    GPR_DEVICE double add(double x)
    {
#pragma unroll
        for (unsigned w = 0; w < COUNT; w++) {
            const double grown = sum[w] + x, taken = grown - sum[w];
            x -= taken;
            sum[w] = grown;
        }
        return x;
    }
};

// Adds what windows hold to a part in shared memory, `shift` places up. All lanes of a warp must call.
template <class T, unsigned COUNT> GPR_CALLED void add_windows(ExactPart<T> *part, Windows<T, COUNT> windows, int shift)
{
    long long number[COUNT];
    int place[COUNT];

#pragma unroll
    for (unsigned w = 0; w < COUNT; w++) {
        number[w] = bit_copy<long long>(windows.sum[w]) - bit_copy<long long>(windows.bias(w));
        place[w] = windows.exponent(w) - double_fraction - grid_lowest<T> + shift;
    }
    add_to_words(*part, number, place);
}

// ---------------------------------------------------------------- adding floats -----------------

// What a thread adds the floats of a row to, together with its warp. A tile is VECTORS vectors of elements.
template <class Cell, unsigned VECTORS> struct FloatAdder {
    using In = typename Cell::In;
    using T = PartType<In>;
    using Added = typename AddedAs<T>::type;
    static constexpr unsigned parts = parts_of<In>, elements = VECTORS * vector_elements<In>;
    static constexpr bool is_half = same<T, dt_float16>; // one window holds every number of theirs
    static constexpr int half_top = grid_lowest<dt_float16> + double_fraction;

    ExactSum<In> &total; // shared memory
    Windows<T> windows[parts];
    unsigned adds = 0;     // to the windows since they began
    bool is_placed = false; // the same in all lanes
    unsigned others = 0;   // bits that are 0 as long as all elements were -0
    uint64 left_out = 0;

    GPR_DEVICE explicit FloatAdder(ExactSum<In> &sum) : total(sum)
    {
        if constexpr (is_half) {
            place(half_top);
        } else {
            place(0);
            is_placed = false;
        }
    }

    struct Tile { Vector v[VECTORS]; };
    // What adding a tile slowly has found out.
    struct Findings {
        unsigned largest; // key
        unsigned others, left_out;
    };

    // Part p of element i of a tile.
    static GPR_DEVICE Added part_of(const Tile &tile, unsigned i, unsigned p)
    {
        const In x = element<In>(tile.v[i / vector_elements<In>], i % vector_elements<In>);
        if constexpr (parts == 1) return value_of(x);
        else return p == 0 ? x.re : x.im;
    }
    // All elements -0, which changes no sum.
    static GPR_DEVICE Vector nothing()
    {
        Vector v;
#pragma unroll
        for (unsigned w = 0; w < 4; w++) {
            v.word[w] = sizeof(T) == 2 ? 0x80008000u : sizeof(T) == 4 || w % 2 == 1 ? sign_bit : 0;
        }
        return v;
    }

    GPR_DEVICE void place(int top)
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) windows[p].begin(top);
        adds = 0;
        is_placed = true;
    }
    // Windows for numbers like those with this key; not for infinities and NaN.
    GPR_DEVICE void place_for(unsigned key)
    {
        const unsigned field = field_of_key<Added>(key);
        const int top = static_cast<int>(field) - exponent_bias<Added> + headroom_bits;
        if (is_half || field == last_field<Added>) return;
        place(top < most_bias ? top : most_bias);
    }
    GPR_DEVICE void flush()
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            add_windows(&total.part[p], windows[p], 0);
            windows[p].begin(windows[p].top);
        }
        adds = 0;
    }

    // All lanes of a warp must call together.
    GPR_DEVICE void take(const Vector (&v)[VECTORS])
    {
        Windows<T> before[parts];
        unsigned left_range = 0, rest = 0;

        const Tile tile = bit_copy<Tile>(v);

        if (!is_placed) place_for(largest_key(tile));
        if (!is_placed) return take_slowly(tile);
        if (adds > most_adds - elements) flush();
#pragma unroll
        for (unsigned p = 0; p < parts; p++) before[p] = windows[p];
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
#pragma unroll
            for (unsigned p = 0; p < parts; p++) {
                const double x = windows[p].add(static_cast<double>(part_of(tile, i, p)));
                left_range |= upper_bits(windows[p].sum[0]) ^ upper_bits(before[p].sum[0]);
                if constexpr (!is_half) rest |= (upper_bits(x) & ~sign_bit) | lower_bits(x);
            }
        }
        adds += elements;
        constexpr unsigned exponent_and_sign = 0xfff00000u;
        if (__any_sync(all_lanes, (left_range & exponent_and_sign) != 0 || rest != 0)) {
#pragma unroll
            for (unsigned p = 0; p < parts; p++) windows[p] = before[p];
            return take_slowly(tile);
        }
        if (others == 0) note_others(v);
    }

    static GPR_CALLED unsigned largest_key(Tile tile)
    {
        unsigned key = 0;
#pragma unroll
        for (unsigned i = 0; i < elements * parts; i++) {
            const unsigned k = magnitude_key(part_of(tile, i / parts, i % parts));
            if (k > key) key = k;
        }
        return warp_max(key);
    }
    GPR_DEVICE void note_others(const Vector (&v)[VECTORS])
    {
        const Vector zeros = nothing();
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
#pragma unroll
            for (unsigned w = 0; w < 4; w++) {
                constexpr unsigned period = sizeof(T) == 8 ? 2 : 1; // words of a part
                if constexpr (parts == 1) others |= v[k].word[w] ^ zeros.word[w];
                else others |= (v[k].word[w] ^ zeros.word[w]) != 0 ? 1u << (w / period % parts) : 0;
            }
        }
    }

    GPR_DEVICE void take_slowly(const Tile &tile)
    {
        flush();
        const Findings found = add_anything(&total, tile);
        others |= found.others;
        left_out += found.left_out;
        place_for(found.largest);
    }

    // Adds a tile of anything.
    static GPR_CALLED Findings add_anything(ExactSum<In> *total, Tile tile)
    {
        Added x[parts][elements];
        unsigned flags[parts] = {};
        Findings found = {0, 0, 0};

#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
            bool is_skipped = false;
#pragma unroll
            for (unsigned p = 0; p < parts; p++) {
                x[p][i] = part_of(tile, i, p);
                is_skipped = is_skipped || (Cell::skips_nan && is_nan(x[p][i]));
            }
            found.left_out += is_skipped ? 1 : 0;
#pragma unroll
            for (unsigned p = 0; p < parts; p++) {
                if (is_skipped) x[p][i] = -Added(0);
                const unsigned upper = upper_bits(x[p][i]), key = magnitude_key(x[p][i]);
                if (upper != sign_bit || lower_bits(x[p][i]) != 0) found.others |= parts == 1 ? ~0u : 1u << p;
                if (field_of_key<Added>(key) == last_field<Added>) {
                    flags[p] |= static_cast<unsigned>(is_nan(x[p][i])               ? saw_nan
                                                      : (upper & sign_bit) != 0 ? saw_minus_infinity
                                                                                  : saw_infinity);
                    x[p][i] = 0;
                } else if (key > found.largest) {
                    found.largest = key;
                }
            }
        }
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            if (flags[p] != 0) atomicOr(&total->part[p].flags, static_cast<uint64>(flags[p]));
        }
        found.largest = warp_max(found.largest);
#pragma unroll
        for (unsigned p = 0; p < parts; p++) add_slowly(x[p], total->part[p]);
        return found;
    }

    // Adds finite numbers: windows at the largest, then at what is left, until nothing is.
    static GPR_DEVICE void add_slowly(Added (&x)[elements], ExactPart<T> &part)
    {
        constexpr unsigned windows_at_once = 3;
        constexpr int room_bits = 9; // 2^(room_bits - 2) numbers of a tile, and one bit, below the first bias
        static_assert(elements <= 1u << (room_bits - 2), "a tile does not leave the first window");
        constexpr int big = 900, scale = 128; // numbers of 2^big and above are scaled down where biases would overflow

        for (;;) {
            Windows<T, windows_at_once> wide;
            unsigned key = 0;
#pragma unroll
            for (unsigned i = 0; i < elements; i++) {
                const unsigned k = magnitude_key(x[i]);
                if (k > key) key = k;
            }
            key = warp_max(key);
            if (key == 0) return;
            const int exponent = static_cast<int>(field_of_key<Added>(key)) - exponent_bias<Added>;
            if (same<Added, double> && exponent + room_bits > most_bias) {
                wide.begin(exponent - scale + room_bits);
#pragma unroll
                for (unsigned i = 0; i < elements; i++) {
                    const int e = static_cast<int>(field_of_key<Added>(magnitude_key(x[i]))) - exponent_bias<Added>;
                    const double rest = wide.add(e >= big ? static_cast<double>(x[i]) * 0x1p-128 : 0.0);
                    if (e >= big) x[i] = static_cast<Added>(rest * 0x1p128);
                }
                add_windows(&part, wide, scale);
            } else {
                wide.begin(exponent + room_bits);
#pragma unroll
                for (unsigned i = 0; i < elements; i++) x[i] = static_cast<Added>(wide.add(static_cast<double>(x[i])));
                add_windows(&part, wide, 0);
            }
        }
    }

    GPR_DEVICE void close()
    {
        flush();
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            if ((parts == 1 ? others : others >> p & 1) != 0) atomicOr(&total.part[p].flags, saw_not_minus_zero);
            if (left_out != 0) atomicAdd(&total.part[p].count, 0 - left_out);
        }
    }
};

// ---------------------------------------------------------------- adding integers ---------------

// Integers have no windows: sums of their lower and upper halves.
template <class Cell, unsigned VECTORS> struct IntegerAdder {
    using In = typename Cell::In;
    static constexpr unsigned elements = VECTORS * vector_elements<In>;
    static constexpr unsigned most_tiles = (1u << 20) / elements; // each half's sum over a warp is then below 2^57

    ExactSum<In> &total; // shared memory
    long long lower = 0, upper = 0;
    unsigned tiles = 0;

    GPR_DEVICE explicit IntegerAdder(ExactSum<In> &sum) : total(sum) {}
    static GPR_DEVICE Vector nothing() { return Vector{{0, 0, 0, 0}}; }

    GPR_DEVICE void flush()
    {
        long long halves[2] = {lower, upper};
        const int place[2] = {0, word_bits};
        add_to_words(total.part[0], halves, place);
        lower = upper = 0;
        tiles = 0;
    }
    GPR_DEVICE void take(const Vector (&v)[VECTORS])
    {
        if (tiles++ == most_tiles) flush();
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
            const In x = element<In>(v[i / vector_elements<In>], i % vector_elements<In>);
            if constexpr (sizeof(In) < 8) {
                lower += static_cast<long long>(value_of(x));
            } else {
                lower += static_cast<long long>(static_cast<uint64>(x) & 0xffffffffu);
                upper += static_cast<long long>(x >> word_bits); // the sign is the upper half's
            }
        }
    }
    GPR_DEVICE void close()
    {
        flush();
        if (threadIdx.x == 0) atomicOr(&total.part[0].flags, saw_not_minus_zero);
    }
};

// ---------------------------------------------------------------- the kernel --------------------

template <class Cell> constexpr bool adds_floats = is_float<PartType<typename Cell::In>>;
template <class Cell, unsigned VECTORS> using Adder =
    typename Select<adds_floats<Cell>, FloatAdder<Cell, VECTORS>, IntegerAdder<Cell, VECTORS>>::type;

// A vector of which only the first element is one.
template <class In> GPR_DEVICE Vector lone(Vector nothing, In x)
{
    if constexpr (sizeof(In) == 1) {
        nothing.word[0] = bit_copy<unsigned char>(x);
    } else if constexpr (sizeof(In) == 2) {
        nothing.word[0] = (nothing.word[0] & 0xffff0000u) | bit_copy<unsigned short>(x);
    } else if constexpr (sizeof(In) == 4) {
        nothing.word[0] = bit_copy<unsigned>(x);
    } else if constexpr (sizeof(In) == 8) {
        nothing.word[0] = static_cast<unsigned>(bit_copy<uint64>(x));
        nothing.word[1] = static_cast<unsigned>(bit_copy<uint64>(x) >> 32);
    } else {
        nothing = bit_copy<Vector>(x);
    }
    return nothing;
}

// A row as vectors, and the elements before the first and after the last that are no whole one.
template <class In> struct Run {
    const In *in;
    uint64 n, head, vectors;

    GPR_DEVICE Run(const In *first, uint64 count) : in(first), n(count)
    {
        const unsigned past = static_cast<unsigned>(reinterpret_cast<uint64>(in) % sizeof(Vector));
        const uint64 to_aligned = past == 0 || sizeof(In) == sizeof(Vector) ? 0 : (sizeof(Vector) - past) / sizeof(In);
        head = to_aligned < n ? to_aligned : n;
        vectors = (n - head) / vector_elements<In>;
    }
    GPR_DEVICE Vector vector(uint64 i) const
    {
        if constexpr (sizeof(In) == sizeof(Vector)) { // elements of 16 bytes may begin where vectors do not
            if (reinterpret_cast<uint64>(in) % sizeof(Vector) != 0) return bit_copy<Vector>(in[i]);
        }
        return load_vector(reinterpret_cast<const Vector *>(in + head) + i);
    }
    GPR_DEVICE bool has_edges() const { return vectors * vector_elements<In> < n; }
    // A lane's element of the edges, the only one in its vector: fewer than 16 come before, fewer than 16 after.
    GPR_DEVICE Vector edge(unsigned lane, const Vector &nothing) const
    {
        const uint64 tail = head + vectors * vector_elements<In>;
        if (lane < head) return lone(nothing, in[lane]);
        if (lane >= warp_lanes / 2 && lane - warp_lanes / 2 < n - tail) return lone(nothing, in[tail + lane - warp_lanes / 2]);
        return nothing;
    }
};

// A warp's share of a row: tiles of neighbouring vectors, in strides of the row's warps, and for the first one the edges.
template <class Cell, unsigned VECTORS>
GPR_DEVICE void take_row(Adder<Cell, VECTORS> &adder, const Run<typename Cell::In> &run, uint64 warp, uint64 warps)
{
    constexpr unsigned tile = VECTORS * warp_lanes;
    const unsigned lane = threadIdx.x % warp_lanes;
    const Vector nothing = adder.nothing();
    bool has_edges = warp == 0 && run.has_edges();

    for (uint64 first = warp * tile; first < run.vectors || has_edges; first += warps * tile) {
        Vector v[VECTORS];
        if (first + tile <= run.vectors) {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) v[k] = run.vector(first + lane + k * warp_lanes);
        } else if (first < run.vectors) {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) {
                const uint64 i = first + lane + k * warp_lanes;
                v[k] = i < run.vectors ? run.vector(i) : nothing;
            }
        } else {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++) v[k] = nothing;
            v[0] = run.edge(lane, nothing);
            has_edges = false;
        }
        adder.take(v);
    }
}

template <class Cell, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, resident_threads / BLOCK)
exact(const typename Cell::In *in, typename Cell::Acc *out, Rows rows, Scratch<typename Cell::Acc> scratch)
{
    using Acc = typename Cell::Acc;
    constexpr unsigned vectors = 4;
    constexpr unsigned words = sizeof(Acc) / sizeof(uint64), counters = sizeof(uint64) / sizeof(unsigned) * (words + 1);
    __shared__ Acc sum;
    uint64 *found = reinterpret_cast<uint64 *>(&sum);
    const Row row = rows.mine(blockIdx.x);
    const unsigned warps = BLOCK / warp_lanes;

    for (unsigned i = threadIdx.x; i < words; i += BLOCK) found[i] = 0;
    __syncthreads(); // the sum is zero
    if (row.block == 0 && threadIdx.x < parts_of<typename Cell::In>) {
        atomicAdd(&sum.part[threadIdx.x].count, row.n);
    }
    Adder<Cell, vectors> adder(sum);
    take_row<Cell, vectors>(adder, Run<typename Cell::In>(in + row.begin, row.n),
                            static_cast<uint64>(row.block) * warps + threadIdx.x / warp_lanes,
                            static_cast<uint64>(row.blocks) * warps);
    adder.close();
    __syncthreads(); // all warps have added

    uint64 *result = reinterpret_cast<uint64 *>(out + row.index);
    if (row.blocks == 1) {
        for (unsigned i = threadIdx.x; i < words; i += BLOCK) result[i] = found[i];
        return;
    }
    unsigned *ticket = scratch.tickets + row.index * counters;
    uint64 *total = reinterpret_cast<uint64 *>(ticket) + 1;
    for (unsigned i = threadIdx.x; i < words; i += BLOCK) {
        const bool is_flags = i % (words / parts_of<typename Cell::In>) == words / parts_of<typename Cell::In> - 1;
        if (found[i] != 0 && is_flags) atomicOr(total + i, found[i]);
        else if (found[i] != 0) atomicAdd(total + i, found[i]);
    }
    if (!is_last_to_arrive(ticket, row.blocks)) return;
    for (unsigned i = threadIdx.x; i < words; i += BLOCK) {
        result[i] = total[i];
        total[i] = 0;
    }
}

} // namespace gpr
