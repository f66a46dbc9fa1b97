// Layouts: where rows begin, where their elements are and where results go, for arrays whose rows
// do not follow each other in memory.
//
// A layout is a parameter of the kernels of `fast` and `exact`, beside those of rows.cuh. The
// numbers of axes are constants of the program, so that the most frequent array, with one axis of
// each kind, costs one multiplication, and no array a loop. The host has merged axes that continue
// each other and dropped those of extent 1.
//
//   array (4, 5, 6), axis = 1:   kept axes (4, 6) count rows, reduced axis (5) elements of a row
//
//   element p of row (i, j):     in + i * kept[0].in + j * kept[1].in + p * reduced[0].in
//
// Threads divide only once: to find their row and their first position in it. From then on they
// carry from axis to axis, as one adds numbers by hand.
#pragma once

#include "rows.cuh"
#include "vector.cuh"

namespace gpr {

// Constants of the program, which come before any include: kept_axes and reduced_axes, both 1 at
// least; masked, whether there is a mask; item, how many neighbouring elements a thread loads at
// once in fast_columns, fast_narrow and fast_strided.
static_assert(kept_axes >= 1 && reduced_axes >= 1, "an array without an axis has one of extent 1");
static_assert(item >= 1 && item <= GPR_VECTOR_BYTES && (item & (item - 1)) == 0,
              "items are loaded by one instruction");

// Where a row begins, in elements and in bytes of the mask, and where its result goes, in results.
struct RowOffsets {
    long long in, mask, out;
};

// Where an element is in its row: in elements and in bytes of the mask; and its position in the
// caller's order.
struct ElementOffsets {
    long long in, mask;
    uint64 position;
};

struct Layout : gpr_layout_params {
    gpr_axis kept[kept_axes];       // the last one varies fastest
    gpr_axis reduced[reduced_axes]; // also

    // Returns where the row begins that is `further` rows after row `index`, which begins at
    // `start`.
    GPR_DEVICE RowOffsets row_offsets_after(const RowOffsets &start, uint64 index,
                                            unsigned further) const
    {
        if constexpr (kept_axes > 1) return row_offsets(index + further);
        return RowOffsets{start.in + further * kept[0].in, start.mask + further * kept[0].mask,
                     start.out + further * kept[0].out};
    }

    GPR_DEVICE RowOffsets row_offsets(uint64 index) const
    {
        RowOffsets start{0, 0, 0};
#pragma unroll
        for (unsigned a = kept_axes; a-- > 0;) {
            // The first axis gets what is left of the index, without a division.
            const uint64 i = a > 0 ? index % kept[a].extent : index;
            start.in += static_cast<long long>(i) * kept[a].in;
            start.out += static_cast<long long>(i) * kept[a].out;
            if (masked) start.mask += static_cast<long long>(i) * kept[a].mask;
            if (a > 0) index /= kept[a].extent;
        }
        return start;
    }
};

static_assert(sizeof(Layout) ==
                  sizeof(gpr_layout_params) + (kept_axes + reduced_axes) * sizeof(gpr_axis),
              "axes follow what every layout has, as the host writes them");

// Visits elements first, first + step, first + 2 * step, ... of a row in the order of memory. The
// step is a number whose digits are steps along the axes; advance() adds it and carries. The first
// axis never carries, so that advance() needs no index of it; the host makes an axis the first one
// whose extent has more than 32 bits.
class StridedIterator {
public:
    GPR_DEVICE StridedIterator(const Layout &layout, uint64 first, uint64 step)
        : here{0, 0, layout.first_position}, further{0, 0, 0}, axes(layout.reduced)
    {
#pragma unroll
        for (unsigned a = reduced_axes; a-- > 1;) {
            const uint64 extent = axes[a].extent;
            index[a] = static_cast<unsigned>(first % extent);
            digit[a] = static_cast<unsigned>(step % extent);
            first /= extent, step /= extent;
            add(here, along(a, index[a]));
            add(further, along(a, digit[a]));
            // One step along the axis before, and back along this one.
            wrap[a] = along(a, 0 - extent);
            add(wrap[a], along(a - 1, 1));
        }
        add(here, along(0, first));
        add(further, along(0, step));
        along_first = step;
    }
    // Takes the step of fast_columns and fast_strided from the host, which spares a register.
    GPR_DEVICE void take_step(const Layout &layout)
    {
        if constexpr (reduced_axes == 1) further.in = layout.step;
    }

    GPR_DEVICE const ElementOffsets &offsets() const { return here; }

    // Advances by one step. Past the row's end the offsets are not those of any element.
    GPR_DEVICE void advance()
    {
        unsigned carry = 0;
        add(here, further);
#pragma unroll
        for (unsigned a = reduced_axes; a-- > 1;) {
            const unsigned extent = static_cast<unsigned>(axes[a].extent),
                           without_step = index[a] + carry;
            const bool wraps = without_step >= extent - digit[a]; // no sum overflows
            index[a] = without_step + (wraps ? digit[a] - extent : digit[a]);
            add(here, wraps ? wrap[a] : ElementOffsets{0, 0, 0});
            carry = wraps ? 1 : 0;
        }
    }

    // For programs with one reduced axis: the offsets between two steps, and an advance by several
    // steps.
    GPR_DEVICE ElementOffsets step() const { return further; }
    GPR_DEVICE void advance(unsigned steps) { add(here, along(0, along_first * steps)); }

private:
    ElementOffsets here, further; // now, and of a step without carries
    const gpr_axis *axes;         // the row's
    uint64 along_first;           // the step's first digit
    // The other axes: the step's digits, and what a carry adds.
    unsigned index[reduced_axes], digit[reduced_axes];
    ElementOffsets wrap[reduced_axes];

    static GPR_DEVICE void add(ElementOffsets &to, const ElementOffsets &offsets)
    {
        to.in += offsets.in;
        to.mask += offsets.mask;
        to.position += offsets.position;
    }
    // The offsets of some steps along an axis; fewer than none are in two's complement.
    GPR_DEVICE ElementOffsets along(unsigned a, uint64 steps) const
    {
        const long long many = static_cast<long long>(steps);
        return ElementOffsets{many * axes[a].in, masked ? many * axes[a].mask : 0,
                              steps * static_cast<uint64>(axes[a].position)};
    }
};

// ---------------------------------------------------------------- items -------------------------

// Neighbouring bytes that one instruction loads.
template <unsigned BYTES> struct alignas(BYTES) Packed { unsigned word[BYTES / 4]; };
template <> struct Packed<2> { unsigned short half; };
template <> struct Packed<1> { unsigned char byte; };

// Loads an item of global memory that is aligned to its size and that no thread writes while the
// kernel runs.
template <unsigned BYTES> GPR_DEVICE Packed<BYTES> load_packed(const void *address)
{
    if constexpr (BYTES == 16) {
        return bit_copy<Packed<16>>(load_vector(static_cast<const Vector *>(address)));
    } else if constexpr (BYTES == 8) {
        const uint64 both =
            *static_cast<const uint64 *>(address); // a copy of bytes would be loaded byte by byte
        return Packed<8>{{static_cast<unsigned>(both), static_cast<unsigned>(both >> 32)}};
    } else if constexpr (BYTES == 4) {
        return Packed<4>{{*static_cast<const unsigned *>(address)}};
    } else {
        return *static_cast<const Packed<BYTES> *>(address);
    }
}

// Returns element j of an item. Where j is a compile-time constant this is a shift or no
// instruction.
template <class In, unsigned BYTES> GPR_DEVICE In piece(const Packed<BYTES> &items, unsigned j)
{
    if constexpr (BYTES == sizeof(In)) {
        return bit_copy<In>(items);
    } else if constexpr (BYTES == 2) {
        return bit_copy<In>(static_cast<unsigned char>(items.half >> (8 * j)));
    } else if constexpr (sizeof(In) == 1) {
        return bit_copy<In>(static_cast<unsigned char>(items.word[j / 4] >> (8 * (j % 4))));
    } else if constexpr (sizeof(In) == 2) {
        return bit_copy<In>(static_cast<unsigned short>(items.word[j / 2] >> (16 * (j % 2))));
    } else if constexpr (sizeof(In) == 4) {
        return bit_copy<In>(items.word[j]);
    } else {
        static_assert(sizeof(In) == 8, "elements are of 1, 2, 4, 8 or 16 bytes");
        return bit_copy<In>(static_cast<uint64>(items.word[2 * j + 1]) << 32 | items.word[2 * j]);
    }
}

// An item of elements and their bytes of the mask, which are neighbours too.
template <class In> struct Item {
    Packed<item * sizeof(In)> elements;
    Packed<masked ? item : 1> keep;

    GPR_DEVICE In element(unsigned j) const { return piece<In>(elements, j); }
    GPR_DEVICE bool kept(unsigned j) const { return !masked || piece<unsigned char>(keep, j) != 0; }
};

template <class In>
GPR_DEVICE Item<In> load_item(const In *in, const unsigned char *mask, const ElementOffsets &place)
{
    Item<In> loaded;
    loaded.elements = load_packed<item * sizeof(In)>(in + place.in);
    if constexpr (masked) loaded.keep = load_packed<item>(mask + place.mask);
    return loaded;
}

} // namespace gpr
