// Kernels for an operator of the user's own, which keep the order of the array.
//
//   custom_rows      rows whose elements follow each other in memory, by vectors of 16 bytes
//   custom_strided   rows of any layout, with or without a mask; columns by a thread per row
//   custom_merge     partials of rows that several groups of threads folded
//
// A part of a row belongs to a group of `lanes` neighbouring threads: a thread, some lanes of a
// warp, a warp, or several warps of a block. Within it each warp, and each thread, has a contiguous
// share. So values are merged with their neighbours alone: over a warp lane 0 with lane 1, then
// with lane 2 and so on in doubling steps, over a block by its first thread, over blocks by
// custom_merge in a launch of its own.
//
// Contiguous shares of threads would be loads that no two lanes have in common. So a warp loads a
// tile as it is in memory, vector by vector, and exchanges it in shared memory: then each lane has
// a contiguous piece of the tile. The lanes' values are merged once per tile. An operator that says
// it is commutative needs none of that: lanes fold what they loaded, and the warps of all parts of
// a row take its tiles in turn, so that what the GPU reads at a time lies together in memory.
#pragma once

#include "custom_operator.cuh"
#include "vector.cuh"
#include "warp.cuh"

namespace gpr {

// Vectors that a lane has of a tile: a tile is 4 KiB.
constexpr unsigned custom_vectors = 8;

// ---------------------------------------------------------------- groups of threads -------------

// A partial where threads leave it to each other: words, of which all are stored, padding too.
using CustomWords = Words<CustomPartial>;

GPR_DEVICE CustomWords custom_words(const CustomPartial &value)
{
    CustomWords words = bit_copy<CustomWords>(value);
#if !defined(__CUDA_ARCH__)
    asm("" : "+m"(words)); // or the compiler leaves out words that are padding
#endif
    return words;
}

// Merges the values of groups of `lanes` neighbouring lanes of a warp, at most 32, in their order;
// the first lane of a group holds the result. All lanes of the warp call.
GPR_DEVICE CustomPartial custom_merge_lanes(CustomPartial value, unsigned lanes)
{
    for (unsigned delta = 1; delta < lanes; delta *= 2) {
        const CustomPartial right = shuffle_down(value, delta, lanes);
        if (threadIdx.x % (2 * delta) == 0) value = custom_combine(value, right);
    }
    return value;
}

// The same for groups of up to BLOCK threads. All threads of the block call; `of_warp` is shared
// memory, free again afterwards.
template <unsigned BLOCK>
GPR_DEVICE CustomPartial custom_merge_group(CustomPartial value, unsigned lanes,
                                            CustomWords (&of_warp)[BLOCK / warp_lanes])
{
    const unsigned warp = threadIdx.x / warp_lanes;

    value = custom_merge_lanes(value, lanes < warp_lanes ? lanes : warp_lanes);
    if (lanes <= warp_lanes) return value;
    if (threadIdx.x % warp_lanes == 0) of_warp[warp] = custom_words(value);
    __syncthreads(); // the first thread of a group reads what the others wrote
    if (threadIdx.x % lanes == 0) {
        for (unsigned i = 1; i < lanes / warp_lanes; i++)
            value = custom_combine(value, bit_copy<CustomPartial>(of_warp[warp + i]));
    }
    __syncthreads(); // the next group of values overwrites these words
    return value;
}

// A group's part of a row. Neighbouring groups serve neighbouring rows.
struct CustomUnit {
    uint64 row, part;
    uint64 begin, end; // elements
    bool works;        // a group past the end does not
};

GPR_DEVICE CustomUnit custom_unit(const CustomParams &p, uint64 unit)
{
    CustomUnit made = {0, 0, 0, 0, unit < p.rows * p.parts};
    if (!made.works) return made;
    made.part = p.parts == 1 ? 0 : unit / p.rows;
    made.row = unit - made.part * p.rows;
    made.begin = made.part * p.share;
    made.end = p.n - made.begin < p.share ? p.n : made.begin + p.share;
    return made;
}

// Narrows begin .. end to share number `index` of `count`.
GPR_DEVICE void custom_narrow(uint64 &begin, uint64 &end, uint64 index, uint64 count)
{
    const uint64 n = end - begin, each = (n + count - 1) / count;
    const uint64 first = index * each < n ? index * each : n;
    end = begin + (n - first < each ? n : first + each);
    begin += first;
}

// Stores what a part of a row has come to. One thread per part calls.
GPR_DEVICE void custom_store(const CustomParams &p, CustomPartial *partials, const CustomUnit &unit,
                             const CustomPartial &value)
{
    if (p.parts > 1) custom_put(partials + unit.row * p.parts + unit.part, value);
    else custom_deliver(p, unit.row, value);
}

// ---------------------------------------------------------------- rows of any layout ------------

template <unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK) custom_strided(CustomParams p, CustomPartial *partials)
{
    __shared__ CustomWords of_warp[BLOCK / warp_lanes];
    const unsigned groups = BLOCK / p.lanes, lane = threadIdx.x % p.lanes;

    for (uint64 block = blockIdx.x; block < p.units; block += gridDim.x) {
        const CustomUnit unit = custom_unit(p, block * groups + threadIdx.x / p.lanes);
        CustomPartial value = custom_empty();
        if (unit.works) {
            const CustomRow row = custom_row(p, unit.row);
            uint64 begin = unit.begin, end = unit.end;
            const gpr_axis &axis = p.axes[p.kept];
            if (custom_is_commutative && p.reduced == 1) { // lanes side by side
                for (uint64 i = begin + lane; i < end; i += p.lanes) {
                    const long long place = static_cast<long long>(i);
                    if (custom_keeps(p.mask + row.mask + place * axis.mask))
                        custom_add(value, custom_load(p.in + row.in + place * axis.in),
                                   p.first + static_cast<uint64>(place * axis.position));
                }
            } else {
                custom_narrow(begin, end, lane, p.lanes);
                value = custom_fold(p, row, begin, end, value);
            }
        }
        value = custom_merge_group<BLOCK>(value, p.lanes, of_warp);
        if (unit.works && lane == 0) custom_store(p, partials, unit, value);
    }
}

// ---------------------------------------------------------------- rows of vectors ---------------

// A warp's share of a row, in vectors. Vector 0 holds the row's first element, which is not its own
// first one where the row begins at no multiple of 16 bytes.
struct CustomRun {
    const unsigned char *base; // of vector 0
    uint64 low, high;          // elements of the share, counted from element 0 of vector 0
    uint64 begin, end;         // vectors
    uint64 stride;             // from tile to tile, in vectors
};

constexpr unsigned custom_tile_vectors = warp_lanes * custom_vectors;

template <class Element> constexpr bool custom_is_vectorable =
    sizeof(Element) <= sizeof(Vector) && (sizeof(Element) & (sizeof(Element) - 1)) == 0;

// Folds the elements of a vector, number `first` and following ones from element 0 of vector 0 on.
// `shift` is that element's index in the row.
template <class Element>
GPR_DEVICE void custom_add_vector(CustomPartial &value, const Vector &v, uint64 first, uint64 shift,
                                  long long step)
{
#pragma unroll
    for (unsigned j = 0; j < vector_elements<Element>; j++)
        custom_add(value, custom_number(element<Element>(v, j)),
                   shift + (first + j) * static_cast<uint64>(step));
}

// Elements that an operator folds at once have registers for so many.
constexpr unsigned custom_most_at_once = 32;

// Folds a lane's vectors of a tile, some of them at once.
template <class Element, class Op = CustomOp>
GPR_DEVICE void custom_fold_vectors(CustomPartial &value, const Vector (&v)[custom_vectors])
{
    constexpr unsigned per = vector_elements<Element>;
    constexpr unsigned many = custom_most_at_once / per;
    constexpr unsigned some = many < custom_vectors ? many : custom_vectors;

#pragma unroll
    for (unsigned i = 0; i < custom_vectors; i += some) {
        CustomNumber x[some * per];
#pragma unroll
        for (unsigned j = 0; j < some * per; j++)
            x[j] = custom_number(element<Element>(v[i + j / per], j % per));
        value.state = Op::fold(value.state, x);
    }
}

// Folds a tile that belongs to the share as a whole. Returns the lane's part of it, and, unless the
// operator is commutative, the tile's value to lane 0. All lanes of the warp call.
template <class Element>
GPR_DEVICE CustomPartial custom_fold_tile(const CustomRun &run, uint64 first, uint64 shift,
                                          long long step, Vector *tile, CustomPartial value)
{
    constexpr unsigned per = vector_elements<Element>;
    const Vector *vectors = reinterpret_cast<const Vector *>(run.base) + first;
    const unsigned lane = threadIdx.x % warp_lanes;
    Vector v[custom_vectors];

#pragma unroll
    for (unsigned i = 0; i < custom_vectors; i++)
        v[i] = load_vector(vectors + i * warp_lanes + lane);
    if constexpr (custom_is_commutative && has_fold<CustomOp> && !custom_counts) {
        custom_fold_vectors<Element>(value, v);
    } else if constexpr (custom_is_commutative) {
#pragma unroll
        for (unsigned i = 0; i < custom_vectors; i++)
            custom_add_vector<Element>(value, v[i], (first + i * warp_lanes + lane) * per, shift,
                                       step);
    } else {
        // Vector c of lane r is at slot (r, (c + r) % custom_vectors): neither eight lanes that
        // store nor eight that load meet in a bank.
#pragma unroll
        for (unsigned i = 0; i < custom_vectors; i++) {
            const unsigned j = i * warp_lanes + lane, r = j / custom_vectors;
            tile[r * custom_vectors + (j + r) % custom_vectors] = v[i];
        }
        __syncwarp(); // lanes load what others stored
#pragma unroll(per > 4 ? 1 : custom_vectors)
        for (unsigned c = 0; c < custom_vectors; c++)
            custom_add_vector<Element>(
                value, tile[lane * custom_vectors + (c + lane) % custom_vectors],
                (first + lane * custom_vectors + c) * per, shift, step);
        __syncwarp(); // the next tile overwrites this one
        value = custom_merge_lanes(value, warp_lanes);
    }
    return value;
}

// Folds a share. Of a commutative operator each lane holds a value, of any other lane 0 holds the
// warp's. All lanes of the warp call. `tile` is shared memory of the warp.
template <class Element>
GPR_DEVICE CustomPartial custom_fold_share(const CustomRun &run, uint64 shift, long long step,
                                           Vector *tile)
{
    constexpr unsigned tile_vectors = custom_tile_vectors, per = vector_elements<Element>;
    const unsigned lane = threadIdx.x % warp_lanes;
    CustomPartial total = custom_empty();

    for (uint64 first = run.begin; first < run.end; first += run.stride) {
        const uint64 last = run.end - first < tile_vectors ? run.end : first + tile_vectors;
        uint64 begin = first * per, end = last * per;
        CustomPartial value = custom_is_commutative ? total : custom_empty();
        if (begin >= run.low && end <= run.high && last - first == tile_vectors) {
            value = custom_fold_tile<Element>(run, first, shift, step, tile, value);
        } else { // at an end of the share: element by element
            if (begin < run.low) begin = run.low;
            if (end > run.high) end = run.high;
            unsigned stride = warp_lanes;
            if constexpr (custom_is_commutative) {
                begin += lane;
            } else {
                custom_narrow(begin, end, lane, warp_lanes);
                stride = 1;
            }
            for (uint64 i = begin; i < end; i += stride)
                custom_add(value, custom_load(run.base + i * sizeof(Element)),
                           shift + i * static_cast<uint64>(step));
            if constexpr (!custom_is_commutative) value = custom_merge_lanes(value, warp_lanes);
        }
        if constexpr (custom_is_commutative) total = value;
        else if (lane == 0) total = custom_combine(total, value);
    }
    return total;
}

template <unsigned BLOCK, class Element = CustomElement>
__global__ void __launch_bounds__(BLOCK) custom_rows(CustomParams p, CustomPartial *partials)
{
    if constexpr (custom_is_vectorable<Element>) {
        constexpr unsigned per = vector_elements<Element>;
        constexpr unsigned tile_vectors = custom_is_commutative ? 1 : custom_tile_vectors;
        __shared__ CustomWords of_warp[BLOCK / warp_lanes];
        __shared__ Vector tiles[BLOCK / warp_lanes][tile_vectors];
        const unsigned groups = BLOCK / p.lanes, lane = threadIdx.x % p.lanes;
        const gpr_axis &axis = p.axes[p.kept];

        for (uint64 block = blockIdx.x; block < p.units; block += gridDim.x) {
            const CustomUnit unit = custom_unit(p, block * groups + threadIdx.x / p.lanes);
            CustomPartial value = custom_empty();
            if (unit.works) { // the same for all lanes of a warp
                const unsigned char *in = p.in + custom_row(p, unit.row).in;
                const uint64 before = reinterpret_cast<uint64>(in) % sizeof(Vector);
                const uint64 low = before / sizeof(Element);
                const uint64 warp = lane / warp_lanes, warps = p.lanes / warp_lanes;
                CustomRun run = {in - before, low, p.n + low, 0, 0, custom_tile_vectors};
                if constexpr (custom_is_commutative) {
                    run.end = (run.high + per - 1) / per;
                    run.begin = (unit.part * warps + warp) * run.stride;
                    run.stride *= p.parts * warps;
                } else {
                    run.low += unit.begin;
                    run.high = unit.end + low;
                    run.begin = run.low / per;
                    run.end = (run.high + per - 1) / per;
                    custom_narrow(run.begin, run.end, warp, warps);
                }
                const uint64 shift = p.first - low * static_cast<uint64>(axis.position);
                value = custom_fold_share<Element>(run, shift, axis.position,
                                                   tiles[threadIdx.x / warp_lanes]);
            }
            value = custom_merge_group<BLOCK>(value, p.lanes, of_warp);
            if (unit.works && lane == 0) custom_store(p, partials, unit, value);
        }
    }
}

// ---------------------------------------------------------------- partials ----------------------

template <unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK) custom_merge(CustomParams p, const CustomPartial *partials)
{
    __shared__ CustomWords of_warp[BLOCK / warp_lanes];
    const unsigned groups = BLOCK / p.lanes, lane = threadIdx.x % p.lanes;

    for (uint64 block = blockIdx.x; block < p.units; block += gridDim.x) {
        const uint64 row = block * groups + threadIdx.x / p.lanes;
        const bool works = row < p.rows;
        CustomPartial value = custom_empty();
        if (works) {
            uint64 begin = 0, end = p.parts;
            custom_narrow(begin, end, lane, p.lanes);
            for (uint64 i = begin; i < end; i++)
                value = custom_combine(value, custom_get(partials + row * p.parts + i));
        }
        value = custom_merge_group<BLOCK>(value, p.lanes, of_warp);
        if (works && lane == 0) custom_deliver(p, row, value);
    }
}

// One thread tells the host what it needs to know of the operator.
template <class Facts> __global__ void custom_facts(Facts *facts) { custom_tell(facts); }

} // namespace gpr
