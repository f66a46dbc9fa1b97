// Sums of products, exactly: what exact_dot and exact_moments share.
//
// A product of two float16, bfloat16 or float32 is a float64, and products are summed as float64. A
// product of two float64 is p + r: p the product rounded, r the rest, which a fused multiply-add
// computes and which is a float64 where |p| >= 2^-967 (GPR_LEAST_SPLIT_PRODUCT). Both have bins of
// their own.
//
// Integer units find beforehand whether bins hold a tile, from the exponents of its factors: the
// largest bound the products, the smallest that are not 0 bound their last bits. So the last bin's
// remainder is not computed. Where two bins suffice, the third is not added to.
//
// Where bins do not hold a tile, products that are float64 go to wider bins, which hold all of
// them. Products of float64 are added limb by limb, as integers of 106 bits.
#pragma once

#include "exact_adders.cuh"

namespace gpr {

// ---------------------------------------------------------------- numbers -----------------------

// The type of products of two T that are no float64: multiples of 2^(2 lowest_exponent<T>).
template <class T> struct Product;
template <class T> constexpr bool is_float<Product<T>> = is_float<T>;
template <class T> constexpr int lowest_exponent<Product<T>> = 2 * lowest_exponent<T>;
template <class T> constexpr int highest_exponent<Product<T>> = 2 * highest_exponent<T>;
template <class T> constexpr int deepest_field<Product<T>> = deepest_field<T> + lowest_exponent<T>;

template <class T>
constexpr bool is_narrow = gpr_product_is_float64(Format<T>::fraction, Format<T>::exponent);
// The type in which products of two T are summed; gpr_exact_product_dtype on the host.
template <class T> using ProductOf = typename Select<is_narrow<T>, dt_float64, Product<T>>::type;

// An element as the double that it is. widen's float32 is too small by a power of two.
template <class T> GPR_DEVICE double number_of(T x)
{
    if constexpr (same<T, dt_float32>) return __dmul_rn(widen(x), 0x1p896);
    else return widen(x);
}

// ---------------------------------------------------------------- exponents ---------------------

// Exponent fields, as they are.
template <class T, unsigned VECTORS> GPR_DEVICE Extent extent_of(const Vector (&v)[VECTORS])
{
    constexpr int fraction = key_fraction<T>;
    const Magnitudes found = magnitudes_of<T>(v);
    return Extent{static_cast<int>(found.largest >> fraction),
                  static_cast<int>(found.smallest_minus_one >> fraction)};
}

// ---------------------------------------------------------------- bins -----------------------

template <class T> constexpr int exponent_bias = (1 << (Format<T>::exponent - 1)) - 1;
constexpr int double_bias = exponent_bias<dt_float64>;

constexpr unsigned fewer_product_bins = 2; // that most tiles need
template <class T> constexpr unsigned product_bins = one_bin_suffices<T> ? 2 : 3;

// Places from a product's first bit to the last bit that goes to the same bins.
template <class T> constexpr int product_fraction =
    2 * Format<T>::fraction < double_fraction ? 2 * Format<T>::fraction : double_fraction;
// from bins of products to those of their rests, as from a product to its rest's room
constexpr int rest_depth = 54;

// Where the first bias of products may have its exponent. Down to here a product in range of the
// bins is 0 or 2^-967 at least, and no bin of rests lies deeper than numbers do.
constexpr int least_rounded = GPR_LEAST_SPLIT_PRODUCT, deepest_top = least_rounded + 2 * bin_step;
constexpr int highest_top = most_double_field - double_bias;
static_assert(deepest_top - rest_depth - 2 * bin_step >= 1 - double_bias,
              "biases of rests are normal numbers");
// 1024 products of float16 are below 2^43, and a bin's room is half its bias.
constexpr int float16_top = 44;
static_assert(float16_top - bin_step - double_fraction <= 2 * lowest_exponent<dt_float16>,
              "two bins hold all of them");

template <class T> struct ProductBins {
    using Number = ProductOf<T>;
    static constexpr bool has_rests = !is_narrow<T>;
    Bins<Number, product_bins<T>, bin_step> products;
    Bins<Number, has_rests ? product_bins<T> : 1, bin_step> rests;

    // For products below 2^(exponent + 1).
    GPR_DEVICE void begin_for(int exponent)
    {
        const int top = exponent + headroom_bits;
        begin(one_bin_suffices<T> ? float16_top
              : top < deepest_top ? deepest_top
              : top < highest_top ? top
                                  : highest_top);
    }
    GPR_DEVICE void begin(int top)
    {
        products.begin(top + double_bias);
        rests.begin(top - rest_depth + double_bias);
    }
    GPR_DEVICE int top() const { return products.top - double_bias; }

    // Of two factors in the bins' range the exponent fields together, if USED bins are to hold
    // their product.
    GPR_DEVICE int highest_fields() const
    {
        return one_bin_suffices<T> ? 2 * static_cast<int>(last_field<T> - 1)
                                 : top() - least_headroom - 1 + 2 * exponent_bias<T>;
    }
    template <unsigned USED> GPR_DEVICE int lowest_fields() const
    {
        constexpr int depth = static_cast<int>(USED - 1) * bin_step + double_fraction;
        return one_bin_suffices<T> ? 0 : top() - depth + product_fraction<T> + 2 * exponent_bias<T>;
    }

    // Adds x * y to the first USED bins.
    template <unsigned USED> GPR_DEVICE void add(double x, double y)
    {
        if constexpr (has_rests) {
            // rounded: not to be contracted with the additions of bins
            const double product = __dmul_rn(x, y);
            (void)products.template add<USED>(product);
            (void)rests.template add<USED>(__fma_rn(x, y, -product));
        } else {
            (void)products.template add_product<USED>(x, y);
        }
    }
    // Adds the integers of bins to the limbs of a part. The whole group must call together.
    template <class Group> static GPR_CALLED void flush(Group group, int *limb, ProductBins bins)
    {
        flush_bins(group, bins.products, limb);
        if constexpr (has_rests) flush_bins(group, bins.rests, limb);
    }
};

// Bins that hold every product of two float32 or bfloat16, for a few additions.
constexpr int wide_product_top = 256 + 6; // for as many of the largest
template <class T>
using WideProductBins =
    Bins<dt_float64,
         (wide_product_top - double_fraction - 2 * lowest_exponent<T> + wide_step - 1) / wide_step +
             1,
         wide_step>;

// ---------------------------------------------------------------- limbs ------------------------

// Adds the product of two finite numbers to a part of those.
template <class T> GPR_DEVICE void add_product_to_limbs(int *limb, T x, T y)
{
    if constexpr (is_narrow<T>) {
        add_to_limbs(limb, __dmul_rn(number_of(x), number_of(y)));
    } else {
        constexpr int fraction = double_fraction, bits = 2 * (fraction + 1), half = 64;
        constexpr int pieces = (bits + limb_bits - 2) / limb_bits + 1;
        constexpr uint64 implied = 1ull << fraction;
        const uint64 a = bit_copy<uint64>(x), b = bit_copy<uint64>(y);
        const unsigned field_a = field_of_key<T>(magnitude_key(x)),
                       field_b = field_of_key<T>(magnitude_key(y));
        const uint64 of_a = (a & (implied - 1)) | (field_a != 0 ? implied : 0);
        const uint64 of_b = (b & (implied - 1)) | (field_b != 0 ? implied : 0);
        const uint64 low = of_a * of_b, high = __umul64hi(of_a, of_b);
        const unsigned place = (field_a != 0 ? field_a - 1 : 0) + (field_b != 0 ? field_b - 1 : 0);
        const int shift = static_cast<int>(place % limb_bits);

        limb += place / limb_bits;
#pragma unroll 1
        for (int i = 0; i < pieces; i++) {
            const int at = i * limb_bits - shift; // of the piece's first bit
            const uint64 shifted = at < 0      ? low << -at
                                   : at == 0   ? low
                                   : at < half ? low >> at | high << (half - at)
                                               : high >> (at - half);
            const int value = static_cast<int>(shifted) & limb_mask;
            add_to_limb(limb + i, ((a ^ b) >> 63) != 0 ? -value : value);
        }
    }
}

template <class T> GPR_DEVICE bool is_finite(T x)
{
    return field_of_key<T>(magnitude_key(x)) != last_field<T>;
}

// ---------------------------------------------------------------- integers ----------------------

// Products of integers, cut into pieces of 32 bits. A thread may add most_integers of them.
template <class In> struct IntegerProducts {
    static constexpr unsigned count = sizeof(In) < 4 ? 1 : sizeof(In) == 4 ? 2 : 4;
    long long piece[count] = {};

    static GPR_DEVICE long long lower(uint64 x) { return static_cast<long long>(x & 0xffffffffu); }

    GPR_DEVICE void add(In a, In b)
    {
        if constexpr (count == 1) {
            piece[0] += static_cast<long long>(value_of(a)) * static_cast<long long>(value_of(b));
        } else if constexpr (count == 2) {
            using Wide = typename Select<is_signed<In>, long long, uint64>::type;
            const Wide product = static_cast<Wide>(a) * static_cast<Wide>(b);
            piece[0] += lower(static_cast<uint64>(product));
            // the sign is the highest piece's
            piece[1] += static_cast<long long>(product >> word_bits);
        } else {
            const uint64 low = static_cast<uint64>(a) * static_cast<uint64>(b);
            piece[0] += lower(low);
            piece[1] += lower(low >> word_bits);
            if constexpr (is_signed<In>) {
                const long long high = __mul64hi(a, b);
                piece[2] += lower(static_cast<uint64>(high));
                piece[3] += high >> word_bits;
            } else {
                const uint64 high = __umul64hi(a, b);
                piece[2] += lower(high);
                piece[3] += lower(high >> word_bits);
            }
        }
    }
    // Adds the pieces' sums to the limbs of a part, and clears them. The whole group must call
    // together.
    template <class Group> GPR_DEVICE void flush_into(const Group &group, int *limb)
    {
        int place[count];
#pragma unroll
        for (unsigned p = 0; p < count; p++) place[p] = static_cast<int>(p) * word_bits;
        group.add(limb, piece, place);
#pragma unroll
        for (unsigned p = 0; p < count; p++) piece[p] = 0;
    }
};

} // namespace gpr
