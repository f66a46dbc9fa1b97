// exact_dot: the real sum of the products of two arrays' elements, rounded once.
//
// Removed: rounding of each product and of each addition. A product is one or two doubles
// (exact_products.cuh), which go to bins as elements go in exact; of complex numbers there are two
// sums, and each pair brings two products to each.
//
// Elements are converted to the type that both arrays have in common. Where they have it already,
// follow each other in memory, and both arrays begin at the same place between 16-byte boundaries,
// they are read by vectors; else one by one, at any step: neighbours still share what memory
// brings.
//
// Still paid: for each product of float32 two operations on doubles that bring factors to their
// scale, and four to seven for the bins.
//
// Launch: as exact, with one row and a second array: the last parameter.
#pragma once

#include "exact_merge.cuh"
#include "exact_products.cuh"
#include "exact_run.cuh"

namespace gpr {

// In shared memory, and as kernels store it for the host: a part per real number of a product.
template <class T> struct ExactProducts {
    ExactPart<ProductOf<PartType<T>>> part[parts_of<T>];
};

struct fold_exact_products {
};

// Traits of two arrays: elements of type SecondElement are the other one's.
template <class BaseTraits, class SecondElement> struct Paired : BaseTraits {
    using Second = SecondElement;
};

// Sums that become results. A warp stores one, from shared memory.
template <class Element, class Compute, class Number, bool SKIP_NAN, class Second, class Result,
          class Way>
struct Finished<
    Paired<KernelTraits<fold_exact_products, Element, Compute, ExactProducts<Number>, SKIP_NAN>,
           Second>,
    Result, Way>
    : Paired<KernelTraits<fold_exact_products, Element, Compute, ExactProducts<Number>, SKIP_NAN>,
             Second> {
    using Out = Result;

    static GPR_DEVICE void store(Out *out, ExactProducts<Number> &sum)
    {
        store_parts<Result, false, no_start>(out, sum.part);
    }
};

// The sums of a block.
template <class Factor> struct ProductSuperaccumulators {
    using T = PartType<Factor>;
    int limb[parts_of<Factor>][limbs_of<ProductOf<T>>];
    unsigned flags[parts_of<Factor>];
};
template <class Factor> GPR_DEVICE ProductSuperaccumulators<Factor> &block_products()
{
    __shared__ ProductSuperaccumulators<Factor> products;
    return products;
}

// Elements of both arrays as vectors of factors, and a bit per pair: set where it exists. Others
// are 0.
template <unsigned VECTORS> struct Pairs {
    Vector x[VECTORS], y[VECTORS];
    unsigned present;
};

// ---------------------------------------------------------------- floats ------------------------

template <class Factor, unsigned VECTORS> struct FloatProducts {
    using T = PartType<Factor>;
    using Tile = Pairs<VECTORS>;
    static constexpr unsigned parts = parts_of<Factor>, per_vector = vector_elements<Factor>;
    static constexpr unsigned elements = VECTORS * per_vector;

    WarpGroup<1> group;
    ProductBins<T> sums[parts];
    // a complex pair brings two products to each part
    MeasuredPlacement<elements * parts> placement;
    unsigned others = 0;           // bits of parts to which another product than -0 was added

    GPR_DEVICE FloatProducts()
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) sums[p].begin_for(0);
        placement.is_placed = one_bin_suffices<T>;
        placement.limits = limits();
    }

    static GPR_DEVICE T part_of(const Vector &v, unsigned j, unsigned p)
    {
        const Factor x = element<Factor>(v, j);
        if constexpr (parts == 1) return x;
        else return p == 0 ? x.re : x.im;
    }
    // The factors of product k of part p of a pair: a c - b d, and a d + b c.
    static GPR_DEVICE void factors_of(const Tile &tile, unsigned i, unsigned p, unsigned k, T *a,
                                      T *b)
    {
        const Vector &x = tile.x[i / per_vector], &y = tile.y[i / per_vector];
        *a = part_of(x, i % per_vector, k);
        *b = part_of(y, i % per_vector, k ^ p);
        if constexpr (parts == 2) {
            if (p == 0 && k == 1) *a = -*a;
        }
    }

    // All lanes of a warp must call together.
    GPR_DEVICE void accumulate(const Tile &tile)
    {
        placement.accumulate(*this, tile);
        if (others != (1u << parts) - 1) others |= inspect_zeros(tile);
    }

    // ---- the interface of a placement: exponent fields of both factors together ----

    static GPR_DEVICE Extent range_of(const Tile &tile)
    {
        constexpr int beyond = 4 * static_cast<int>(last_field<T>); // what no bins reach
        const Extent x = extent_of<T>(tile.x), y = extent_of<T>(tile.y);
        const bool is_number = x.largest < static_cast<int>(last_field<T>) &&
                               y.largest < static_cast<int>(last_field<T>);
        // The exponent field of a subnormal number does not determine its first bit, and so not the
        // last bit of a rounded product.
        const bool is_known = !ProductBins<T>::has_rests || (x.smallest > 0 && y.smallest > 0);
        return Extent{is_number ? x.largest + y.largest : beyond,
                      is_known ? x.smallest + y.smallest : -beyond};
    }
    GPR_DEVICE bool place(int largest, bool is_placed)
    {
        if (one_bin_suffices<T> || largest > 2 * static_cast<int>(last_field<T>)) return false;
        if (is_placed) flush();
#pragma unroll
        for (unsigned p = 0; p < parts; p++) sums[p].begin_for(largest - 2 * exponent_bias<T> + 1);
        return true;
    }
    GPR_DEVICE Limits limits() const
    {
        return Limits{sums[0].highest_fields(),
                      sums[0].template lowest_fields<fewer_product_bins>(),
                      sums[0].template lowest_fields<product_bins<T>>()};
    }
    GPR_DEVICE void add_to_fewer(const Tile &tile) { add<fewer_product_bins>(tile); }
    GPR_DEVICE void add_to_all(const Tile &tile) { add<product_bins<T>>(tile); }
    template <unsigned USED> GPR_DEVICE void add(const Tile &tile)
    {
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
#pragma unroll
            for (unsigned p = 0; p < parts; p++) {
#pragma unroll
                for (unsigned k = 0; k < parts; k++) {
                    T a, b;
                    factors_of(tile, i, p, k, &a, &b);
                    sums[p].template add<USED>(number_of(a), number_of(b));
                }
            }
        }
    }
    GPR_DEVICE void flush()
    {
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            ProductBins<T>::flush(group, block_products<Factor>().limb[p], sums[p]);
            sums[p].begin(sums[p].top());
        }
    }
    GPR_DEVICE int add_any_tile(const Tile &tile) { return add_tile(tile); }

    // ---- tiles that bins do not hold ----

    // Adds a tile of any elements, and returns the exponent fields of its largest finite product.
    // All lanes of a warp must call together.
    static GPR_CALLED int add_tile(Tile tile)
    {
        ProductSuperaccumulators<Factor> &total = block_products<Factor>();
        int largest = 0;

#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            [[maybe_unused]] WideProductBins<T> wide;
            if constexpr (has_wide_bins<T>) {
                static_assert(elements * parts <= most_wide_adds, "wide bins have room for a tile");
                wide.begin(wide_product_top + double_bias);
            }
#pragma unroll 1
            for (unsigned i = 0; i < elements * parts; i++) {
                T a, b;
                factors_of(tile, i / parts, p, i % parts, &a, &b);
                const bool are_numbers = is_finite(a) && is_finite(b);
                if (!are_numbers) {
                    atomicOr(&total.flags[p], static_cast<unsigned>(special_product(a, b)));
                } else {
                    const int fields = static_cast<int>(field_of_key<T>(magnitude_key(a)) +
                                                        field_of_key<T>(magnitude_key(b)));
                    largest = fields > largest ? fields : largest;
                }
                if constexpr (has_wide_bins<T>) {
                    (void)wide.add_product(are_numbers ? number_of(a) : 0.0,
                                           are_numbers ? number_of(b) : 0.0);
                } else {
                    if (are_numbers) add_product_to_limbs(total.limb[p], a, b);
                }
            }
            if constexpr (has_wide_bins<T>) flush_bins(WarpGroup<1>{}, wide, total.limb[p]);
        }
        return largest;
    }

    // The product of two factors of which one is infinite or NaN.
    static GPR_DEVICE uint64 special_product(T a, T b)
    {
        const Bits<T> bits_a = bit_copy<Bits<T>>(a), bits_b = bit_copy<Bits<T>>(b);
        const bool is_zero = magnitude_bits(a) == 0 || magnitude_bits(b) == 0;
        if (is_nan(value_of(a)) || is_nan(value_of(b)) || is_zero) return saw_nan;
        return ((bits_a ^ bits_b) & sign_of<T>) != 0 ? saw_minus_infinity : saw_infinity;
    }
    static GPR_DEVICE Bits<T> magnitude_bits(T x)
    {
        return bit_copy<Bits<T>>(x) & static_cast<Bits<T>>(sign_of<T> - 1u);
    }

    // Bits of the parts to which a tile brings another product than -0: than that of a zero and a
    // number of other signs.
    static GPR_CALLED unsigned inspect_zeros(Tile tile)
    {
        unsigned found = 0;
#pragma unroll 1
        for (unsigned i = 0; i < elements; i++) {
            if ((tile.present >> i & 1) == 0) continue;
#pragma unroll
            for (unsigned p = 0; p < parts; p++) {
#pragma unroll
                for (unsigned k = 0; k < parts; k++) {
                    T a, b;
                    factors_of(tile, i, p, k, &a, &b);
                    const bool is_zero = (magnitude_bits(a) == 0 || magnitude_bits(b) == 0) &&
                                         is_finite(a) && is_finite(b);
                    const bool is_below =
                        ((bit_copy<Bits<T>>(a) ^ bit_copy<Bits<T>>(b)) & sign_of<T>) != 0;
                    if (!is_zero || !is_below) found |= 1u << p;
                }
            }
        }
        return found;
    }

    GPR_DEVICE void finalize()
    {
        if (placement.is_placed) flush();
#pragma unroll
        for (unsigned p = 0; p < parts; p++) {
            if ((others >> p & 1) != 0)
                atomicOr(&block_products<Factor>().flags[p],
                         static_cast<unsigned>(saw_not_minus_zero));
        }
    }
};

// ---------------------------------------------------------------- integers ----------------------

template <class Factor, unsigned VECTORS> struct IntegerDot {
    static constexpr unsigned elements = VECTORS * vector_elements<Factor>;
    static constexpr unsigned most_tiles = most_integers / elements;

    IntegerProducts<Factor> products;
    unsigned tiles = 0;

    GPR_DEVICE void accumulate(const Pairs<VECTORS> &tile)
    {
        if (tiles == most_tiles) flush();
        tiles++;
#pragma unroll
        for (unsigned i = 0; i < elements; i++) {
            constexpr unsigned per_vector = vector_elements<Factor>;
            products.add(element<Factor>(tile.x[i / per_vector], i % per_vector),
                         element<Factor>(tile.y[i / per_vector], i % per_vector));
        }
    }
    GPR_DEVICE void flush()
    {
        products.flush_into(WarpGroup<1>{}, block_products<Factor>().limb[0]);
        tiles = 0;
    }
    GPR_DEVICE void finalize()
    {
        flush();
        if (threadIdx.x == 0)
            atomicOr(&block_products<Factor>().flags[0], static_cast<unsigned>(saw_not_minus_zero));
    }
};

// ---------------------------------------------------------------- two arrays --------------------

// Both arrays as vectors of factors.
template <class A, class B, class Factor> struct TwoRuns {
    static constexpr unsigned per_vector = vector_elements<Factor>;
    const A *a;
    const B *b;
    long long step_a, step_b; // elements
    uint64 n, head, vectors;  // before the first vector; whole ones
    bool is_vectors;          // in memory too

    GPR_DEVICE TwoRuns(const A *first_a, long long step_of_a, const B *first_b, long long step_of_b,
                       uint64 count)
        : a(first_a), b(first_b), step_a(step_of_a), step_b(step_of_b), n(count), head(0),
          is_vectors(false)
    {
        if constexpr (same<A, Factor> && same<B, Factor>) {
            const Run<Factor> run(a, n);
            const uint64 between = reinterpret_cast<uint64>(a) - reinterpret_cast<uint64>(b);
            is_vectors = step_a == 1 && step_b == 1 && between % sizeof(Vector) == 0;
            if (is_vectors) head = run.head;
        }
        vectors = (n - head) / per_vector;
    }
    // Factor i, as the first of a vector.
    GPR_DEVICE Vector factor_of_a(uint64 i) const
    {
        return lone(Vector{{0, 0, 0, 0}}, convert<Factor>(a[offset(i, step_a)]));
    }
    GPR_DEVICE Vector factor_of_b(uint64 i) const
    {
        return lone(Vector{{0, 0, 0, 0}}, convert<Factor>(b[offset(i, step_b)]));
    }
    static GPR_DEVICE long long offset(uint64 i, long long step)
    {
        return static_cast<long long>(i) * step;
    }

    GPR_DEVICE void load(uint64 i, Vector *x, Vector *y) const
    {
        const uint64 first = head + i * per_vector;
        if constexpr (same<A, Factor> && same<B, Factor>) {
            if (is_vectors) {
                *x = whole_vector(a + first);
                *y = whole_vector(b + first);
                return;
            }
        }
        *x = gather(a, first, step_a);
        *y = gather(b, first, step_b);
    }
    static GPR_DEVICE Vector whole_vector(const Factor *in)
    {
        // elements of 16 bytes may begin where vectors do not
        if constexpr (sizeof(Factor) == sizeof(Vector)) {
            if (reinterpret_cast<uint64>(in) % sizeof(Vector) != 0) return bit_copy<Vector>(*in);
        }
        return load_vector(reinterpret_cast<const Vector *>(in));
    }
    template <class In> static GPR_DEVICE Vector gather(const In *in, uint64 first, long long step)
    {
        struct Factors { Factor factor[per_vector]; } factors;
#pragma unroll
        for (unsigned j = 0; j < per_vector; j++)
            factors.factor[j] = convert<Factor>(in[offset(first + j, step)]);
        return bit_copy<Vector>(factors);
    }

    GPR_DEVICE bool has_edges() const { return vectors * per_vector < n; }
    // A lane's pair of the edges: fewer than 16 come before, fewer than 16 after. Returns whether
    // there is one.
    GPR_DEVICE bool edge(unsigned lane, Vector *x, Vector *y) const
    {
        const uint64 tail = head + vectors * per_vector;
        const bool is_before = lane < head,
                   is_after = lane >= warp_lanes / 2 && lane - warp_lanes / 2 < n - tail;
        if (!is_before && !is_after) return false;
        const uint64 i = is_before ? lane : tail + lane - warp_lanes / 2;
        *x = factor_of_a(i);
        *y = factor_of_b(i);
        return true;
    }
};

// A warp's share: tiles of neighbouring vectors, in strides of all warps, and for the first one the
// edges. The next tile is under way while one is added.
template <unsigned VECTORS, class Runs, class Adder>
GPR_DEVICE void accumulate_pairs(Adder &adder, const Runs &runs, uint64 warp, uint64 warps)
{
    constexpr unsigned tile = VECTORS * warp_lanes,
                       of_vector = (1u << (Runs::per_vector - 1)) * 2 - 1;
    const unsigned lane = threadIdx.x % warp_lanes;
    uint64 first = warp * tile;
    bool has_edges = warp == 0 && runs.has_edges(); // and they are still to come
    Pairs<VECTORS> now, next;

    const auto fetch = [&](Pairs<VECTORS> &pairs) {
        pairs.present = 0;
        if (first + tile <= runs.vectors) {
#pragma unroll
            for (unsigned k = 0; k < VECTORS; k++)
                runs.load(first + lane + k * warp_lanes, &pairs.x[k], &pairs.y[k]);
            pairs.present = ~0u;
            return;
        }
#pragma unroll
        for (unsigned k = 0; k < VECTORS; k++) {
            const uint64 i = first + lane + k * warp_lanes;
            pairs.x[k] = pairs.y[k] = Vector{{0, 0, 0, 0}};
            if (i >= runs.vectors) continue;
            runs.load(i, &pairs.x[k], &pairs.y[k]);
            pairs.present |= of_vector << k * Runs::per_vector;
        }
        if (first >= runs.vectors && has_edges && runs.edge(lane, &pairs.x[0], &pairs.y[0]))
            pairs.present = 1;
    };

    fetch(now);
    while (first < runs.vectors || has_edges) {
        has_edges = has_edges && first < runs.vectors;
        first += warps * tile;
        fetch(next);
        adder.accumulate(now);
        now = next;
    }
}

// ---------------------------------------------------------------- the kernel --------------------

template <class Factor, unsigned VECTORS>
using ProductAdder = typename Select<is_float<PartType<Factor>>, FloatProducts<Factor, VECTORS>,
                                     IntegerDot<Factor, VECTORS>>::type;

template <class Traits, unsigned BLOCK>
__global__ void __launch_bounds__(BLOCK, exact_blocks<BLOCK>)
exact_dot(const typename Traits::In *in, typename Traits::Out *out, Rows rows,
          Scratch<typename Traits::Acc> scratch, const __grid_constant__ Layout layout,
          FinalizeParams, gpr_second_params second)
{
    using Factor = typename Traits::Compute;
    using Number = ProductOf<PartType<Factor>>;
    using Acc = typename Traits::Acc;
    constexpr unsigned vectors = GPR_STREAM_VECTORS / 2; // of each array
    constexpr unsigned warps = BLOCK / warp_lanes;
    constexpr unsigned words = accumulator_words<Number>, part_words = words + GPR_EXACT_ACC_TAIL;
    constexpr unsigned all_words = sizeof(Acc) / sizeof(uint64);
    static_assert(all_words == parts_of<Factor> * part_words, "words, a count and flags");
    __shared__ Acc whole;
    ProductSuperaccumulators<Factor> &part = block_products<Factor>();
    const Row row = row_of(rows, blockIdx.x);

    clear_shared<BLOCK>(&part, 1);
    ProductAdder<Factor, vectors> adder;
    const TwoRuns<typename Traits::In, typename Traits::Second, Factor> runs(
        in, layout.reduced[0].in, static_cast<const typename Traits::Second *>(second.in),
        second.step, row.n);
    accumulate_pairs<vectors>(adder, runs,
                              static_cast<uint64>(row.block) * warps + threadIdx.x / warp_lanes,
                              static_cast<uint64>(row.blocks) * warps);
    adder.finalize();
    __syncthreads(); // all warps have added

    // Word i of the block's sums.
    const auto found = [&](unsigned i) -> uint64 {
        const unsigned p = i / part_words, w = i % part_words;
        if (w < words)
            return static_cast<uint64>(word_of<Number>(part.limb[p], static_cast<int>(w)));
        return w > words ? part.flags[p] : row.block == 0 ? row.n : 0;
    };
    const auto is_flags = [](unsigned i) { return i % part_words == words + 1; };
    if (!merge_words<BLOCK>(reinterpret_cast<uint64(&)[all_words]>(whole), row, scratch.tickets,
                            layout.slots, found, is_flags)) {
        return;
    }
    __syncthreads(); // the sum is there
    if constexpr (same<typename Traits::Out, Acc>) {
        store_words<BLOCK>(out, whole);
    } else {
        if (threadIdx.x < warp_lanes) Traits::store(out, whole);
    }
}

} // namespace gpr
