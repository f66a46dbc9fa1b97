/* Part of loops_template.h: elements with gaps between them, repeated ones, those of the other byte
 * order, or less 1, copied side by side. */

/* Every second element of 4, 8 or 16 bytes: two vectors of memory are one of elements. The last
 * vector is not read to its end, behind which there may be no memory. */
#define DEFINE_EVERY_SECOND(size)                                                               \
    static void every_second_##size(const char *restrict source, uint64_t count,                \
                                    char *restrict destination)                                 \
    {                                                                                           \
        enum { LANES = VECTOR_BYTES / (size) };                                                 \
        uint64_t i = 0;                                                                         \
        for (; i + LANES < count; i += LANES) {                                                 \
            const char *from = source + 2 * i * (size);                                         \
            vec_u64 x, y;                                                                       \
            memcpy(&x, from, sizeof x);                                                         \
            memcpy(&y, from + VECTOR_BYTES, sizeof y);                                          \
            x = EVEN_LANES_##size(x, y);                                                        \
            memcpy(destination + i * (size), &x, sizeof x);                                     \
        }                                                                                       \
        for (; i < count; i++) memcpy(destination + i * (size), source + 2 * i * (size), size); \
    }

/* Where no instruction chooses among two vectors. */
#ifndef EVEN_LANES_4
#define EVEN_LANES_4(x, y) even_lanes_4(x, y)
INLINE vec_u64 even_lanes_4(vec_u64 x, vec_u64 y)
{
    const vec_u32 low = (vec_u32)x, high = (vec_u32)y;
    vec_u32 even;

    UNROLLED
    for (size_t k = 0; k < VECTOR_BYTES / 8; k++) {
        even[k] = low[2 * k];
        even[k + VECTOR_BYTES / 8] = high[2 * k];
    }
    return (vec_u64)even;
}
#endif
#ifndef EVEN_LANES_8
#define EVEN_LANES_8(x, y) ((vec_u64){(x)[0], (y)[0]})
_Static_assert(VECTOR_BYTES == 16, "a vector of two");
#endif
#ifndef EVEN_LANES_16
#define EVEN_LANES_16(x, y) ((void)(y), x)
_Static_assert(VECTOR_BYTES == 16, "a vector of one");
#endif

DEFINE_EVERY_SECOND(4)
DEFINE_EVERY_SECOND(8)
DEFINE_EVERY_SECOND(16)

/* The same element again and again. */
#define DEFINE_REPEATED(size)                                                      \
    static void repeated_##size(const char *restrict source, uint64_t count,       \
                                char *restrict destination)                        \
    {                                                                              \
        enum { LANES = VECTOR_BYTES / (size) };                                    \
        char copies[VECTOR_BYTES];                                                 \
        uint64_t i = 0;                                                            \
        for (int k = 0; k < LANES; k++) memcpy(copies + k * (size), source, size); \
        for (; i + LANES <= count; i += LANES)                                     \
            memcpy(destination + i * (size), copies, VECTOR_BYTES);                \
        memcpy(destination + i * (size), copies, (count - i) * (size));            \
    }
DEFINE_REPEATED(1)
DEFINE_REPEATED(2)
DEFINE_REPEATED(4)
DEFINE_REPEATED(8)
DEFINE_REPEATED(16)

/* Compilers make shuffles of vectors of it. */
#define DEFINE_SWAPPED(size, type, swap)                                    \
    static void swapped_##size(const char *restrict source, uint64_t count, \
                               char *restrict destination)                  \
    {                                                                       \
        for (uint64_t i = 0; i < count; i++) {                              \
            type bits;                                                      \
            memcpy(&bits, source + i * (size), size);                       \
            bits = swap(bits);                                              \
            memcpy(destination + i * (size), &bits, size);                  \
        }                                                                   \
    }
DEFINE_SWAPPED(2, uint16_t, __builtin_bswap16)
DEFINE_SWAPPED(4, uint32_t, __builtin_bswap32)
DEFINE_SWAPPED(8, uint64_t, __builtin_bswap64)

static void less_one(const char *restrict source, uint64_t count, char *restrict destination)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, source + i * sizeof bits, sizeof bits);
        bits--;
        memcpy(destination + i * sizeof bits, &bits, sizeof bits);
    }
}
