/* Part of loops_template.h: squared distances from means, of rows and of columns. */

/* Squared distances of rows from their means, minus what the rounding of the mean adds. Rows of up
 * to SHORT_MOMENTS elements in four chains. */
enum { SHORT_MOMENTS = 32 };
#define DEFINE_MOMENTS(name, T)                                                             \
    INLINE double short_moments_##name(const T *p, uint64_t n)                              \
    {                                                                                       \
        const double mean = short_sum_##name(p, n) / (double)n;                             \
        double distances[4] = {0}, squares[4] = {0};                                        \
        uint64_t i = 0;                                                                     \
        for (; i + 4 <= n; i += 4) {                                                        \
            UNROLLED                                                                        \
            for (int k = 0; k < 4; k++) {                                                   \
                const double distance = (double)p[i + (uint64_t)k] - mean;                  \
                distances[k] += distance;                                                   \
                squares[k] += distance * distance;                                          \
            }                                                                               \
        }                                                                                   \
        for (int k = 0; i < n; i++, k++) {                                                  \
            const double distance = (double)p[i] - mean;                                    \
            distances[k] += distance;                                                       \
            squares[k] += distance * distance;                                              \
        }                                                                                   \
        return gpr_squares_about_mean(                                                      \
            (squares[0] + squares[1]) + (squares[2] + squares[3]),                          \
            (distances[0] + distances[1]) + (distances[2] + distances[3]), n);              \
    }                                                                                       \
    static void moments_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n, \
                               double *squares)                                             \
    {                                                                                       \
        for (uint64_t r = 0; r < rows; r++, data += stride) {                               \
            const T *row = (const T *)(const void *)data;                                   \
            double center[2], distance;                                                     \
            lanes_f64 lanes;                                                                \
            if (n <= SHORT_MOMENTS) {                                                       \
                squares[r] = short_moments_##name(row, n);                                  \
                continue;                                                                   \
            }                                                                               \
            center[0] = center[1] = sum_##name(row, n) / (double)n;                         \
            squares[r] = squares_##name(row, n, center);                                    \
            if (sizeof(T) < sizeof(double)) continue; /* a double has digits to spare */    \
            lanes_distances_##name(row, n, center, &lanes);                                 \
            combine_lanes_sum(&lanes, 1, &distance);                                        \
            squares[r] = gpr_squares_about_mean(squares[r], distance, n);                   \
        }                                                                                   \
    }

/* Squared distances of complex numbers are those of both parts: lanes alternate between parts. */
#define DEFINE_PAIR_MOMENTS(name, T, part)                                                  \
    INLINE double short_moments_##name(const T *p, uint64_t n)                              \
    {                                                                                       \
        double re = 0, im = 0, squares[2] = {0};                                            \
        for (uint64_t i = 0; i < n; i++) {                                                  \
            re += (double)p[2 * i];                                                         \
            im += (double)p[2 * i + 1];                                                     \
        }                                                                                   \
        re /= (double)n;                                                                    \
        im /= (double)n;                                                                    \
        for (uint64_t i = 0; i < n; i++) {                                                  \
            const double x = (double)p[2 * i] - re, y = (double)p[2 * i + 1] - im;          \
            squares[0] += x * x;                                                            \
            squares[1] += y * y;                                                            \
        }                                                                                   \
        return squares[0] + squares[1];                                                     \
    }                                                                                       \
    static void moments_##name(const char *data, int64_t stride, uint64_t rows, uint64_t n, \
                               double *squares)                                             \
    {                                                                                       \
        const double zero[2] = {0, 0};                                                      \
        for (uint64_t r = 0; r < rows; r++, data += stride) {                               \
            const T *row = (const T *)(const void *)data;                                   \
            double center[2];                                                               \
            lanes_f64 lanes;                                                                \
            if (2 * n <= SHORT_MOMENTS) {                                                   \
                squares[r] = short_moments_##name(row, n);                                  \
                continue;                                                                   \
            }                                                                               \
            lanes_sum_##part(row, 2 * n, zero, &lanes);                                     \
            combine_lanes_sum(&lanes, 2, center);                                           \
            center[0] /= (double)n;                                                         \
            center[1] /= (double)n;                                                         \
            squares[r] = squares_##part(row, 2 * n, center);                                \
        }                                                                                   \
    }

/* NaN elements add 0 to sums and nothing to counts; complex ones have two parts that are NaN. Rows
 * are folded in lanes side by side, few numbers in fewer of them; columns row by row. */
enum { SKIPPING_LANES = 16, FEW_SKIPPING_LANES = 4 };
#define DEFINE_SKIPPING_ROW(name, T, PARTS, LANES)                                                \
    INLINE double skipping_squares_##name##_##LANES(const T *p, uint64_t n, uint64_t *count)      \
    {                                                                                             \
        double sums[LANES] = {0}, numbers[LANES] = {0}, rests[LANES] = {0}, squares[LANES] = {0}; \
        double means[PARTS] = {0}, part_rests[PARTS] = {0}, part_squares[PARTS] = {0};            \
        double number = 0, all = 0;                                                               \
        uint64_t i = 0;                                                                           \
        for (; i + LANES <= n; i += LANES)                                                        \
            for (int k = 0; k < LANES; k++) ADD_NUMBER(p[i + (uint64_t)k], sums[k], numbers[k]);  \
        for (int k = 0; i < n; i++, k++) ADD_NUMBER(p[i], sums[k], numbers[k]);                   \
        for (int k = 0; k < LANES; k++) {                                                         \
            means[k % (PARTS)] += sums[k];                                                        \
            number += numbers[k];                                                                 \
        }                                                                                         \
        number /= PARTS;                                                                          \
        *count = (uint64_t)number;                                                                \
        if (*count == 0) return 0;                                                                \
        for (int part = 0; part < (PARTS); part++) means[part] /= number;                         \
        for (i = 0; i + LANES <= n; i += LANES)                                                   \
            for (int k = 0; k < LANES; k++)                                                       \
                ADD_DISTANCE(p[i + (uint64_t)k], means[k % (PARTS)], rests[k], squares[k]);       \
        for (int k = 0; i < n; i++, k++)                                                          \
            ADD_DISTANCE(p[i], means[k % (PARTS)], rests[k], squares[k]);                         \
        for (int k = 0; k < LANES; k++) {                                                         \
            part_squares[k % (PARTS)] += squares[k];                                              \
            part_rests[k % (PARTS)] += rests[k];                                                  \
        }                                                                                         \
        for (int part = 0; part < (PARTS); part++)                                                \
            all += gpr_squares_about_mean(part_squares[part], part_rests[part], *count);          \
        return all;                                                                               \
    }
#define ADD_NUMBER(element, sum, number)    \
    do {                                    \
        const double x = (double)(element); \
        sum += x == x ? x : 0.0;            \
        number += x == x ? 1.0 : 0.0;       \
    } while (0)
#define ADD_DISTANCE(element, mean, rest, squares)                        \
    do {                                                                  \
        const double x = (double)(element);                               \
        const double apart = x - (mean), distance = x == x ? apart : 0.0; \
        rest += distance;                                                 \
        squares += distance * distance;                                   \
    } while (0)

#define DEFINE_SKIPPING_ROWS(name, T, PARTS)                                                    \
    DEFINE_SKIPPING_ROW(name, T, PARTS, SKIPPING_LANES)                                         \
    DEFINE_SKIPPING_ROW(name, T, PARTS, FEW_SKIPPING_LANES)                                     \
    static void skipping_moments_##name(const char *data, int64_t stride, uint64_t rows,        \
                                        uint64_t n, double *squares, uint64_t *counts)          \
    {                                                                                           \
        n *= PARTS;                                                                             \
        for (uint64_t r = 0; r < rows; r++) {                                                   \
            const T *row = (const T *)(const void *)(data + (int64_t)r * stride);               \
            squares[r] = n <= SHORT_MOMENTS                                                     \
                             ? skipping_squares_##name##_FEW_SKIPPING_LANES(row, n, &counts[r]) \
                             : skipping_squares_##name##_SKIPPING_LANES(row, n, &counts[r]);    \
        }                                                                                       \
    }

/* The moments of VECTORS vectors of columns. */
enum { SKIPPING_VECTORS = 2 };
#define DEFINE_SKIPPING_TILES(tiles, name, T, LOAD, VECTORS)                                    \
    INLINE uint64_t tiles##_skipping_##name(const char *data, int64_t stride, uint64_t rows,    \
                                            uint64_t j, uint64_t width, double *squares,        \
                                            uint64_t *counts)                                   \
    {                                                                                           \
        enum { LANES = (VECTORS) * VECTOR_LANES };                                              \
        for (; j + LANES <= width; j += LANES) {                                                \
            const char *at = data + j * sizeof(T);                                              \
            vec_f64 sum[VECTORS] = {{0}}, rest[VECTORS] = {{0}}, square[VECTORS] = {{0}};       \
            vec_i64 number[VECTORS] = {{0}};                                                    \
            double all_squares[LANES], all_rests[LANES];                                        \
            for (uint64_t r = 0; r < rows; r++, at += stride) {                                 \
                UNROLLED                                                                        \
                for (int k = 0; k < (VECTORS); k++) {                                           \
                    const vec_f64 x =                                                           \
                        (vec_f64)LOAD((const T *)(const void *)at + k * VECTOR_LANES);          \
                    const vec_i64 is_number = x == x;                                           \
                    sum[k] += (vec_f64)((vec_i64)x & is_number);                                \
                    number[k] -= is_number;                                                     \
                }                                                                               \
            }                                                                                   \
            UNROLLED                                                                            \
            for (int k = 0; k < (VECTORS); k++)                                                 \
                sum[k] /= __builtin_convertvector(number[k] - (number[k] == 0), vec_f64);       \
            at = data + j * sizeof(T);                                                          \
            for (uint64_t r = 0; r < rows; r++, at += stride) {                                 \
                UNROLLED                                                                        \
                for (int k = 0; k < (VECTORS); k++) {                                           \
                    const vec_f64 x =                                                           \
                        (vec_f64)LOAD((const T *)(const void *)at + k * VECTOR_LANES);          \
                    const vec_f64 apart = (vec_f64)((vec_i64)(x - sum[k]) & (vec_i64)(x == x)); \
                    rest[k] += apart;                                                           \
                    square[k] += apart * apart;                                                 \
                }                                                                               \
            }                                                                                   \
            memcpy(all_squares, square, sizeof square);                                         \
            memcpy(all_rests, rest, sizeof rest);                                               \
            memcpy(counts + j, number, sizeof number);                                          \
            for (uint64_t k = 0; k < LANES; k++)                                                \
                squares[j + k] =                                                                \
                    counts[j + k] > 0                                                           \
                        ? gpr_squares_about_mean(all_squares[k], all_rests[k], counts[j + k])   \
                        : 0.0;                                                                  \
        }                                                                                       \
        return j;                                                                               \
    }

#define DEFINE_SKIPPING_MOMENTS(name, T, LOAD)                                                  \
    DEFINE_SKIPPING_ROWS(name, T, 1)                                                            \
    DEFINE_SKIPPING_TILES(tiles, name, T, LOAD, SKIPPING_VECTORS)                               \
    DEFINE_SKIPPING_TILES(vectors, name, T, LOAD, 1)                                            \
    static void skipping_columns_##name(const char *data, int64_t stride, uint64_t rows,        \
                                        uint64_t width, double *squares, uint64_t *counts)      \
    {                                                                                           \
        uint64_t j = tiles_skipping_##name(data, stride, rows, 0, width, squares, counts);      \
        j = vectors_skipping_##name(data, stride, rows, j, width, squares, counts);             \
        for (; j < width; j++) {                                                                \
            const char *at = data + j * sizeof(T);                                              \
            double sum = 0, number = 0, rest = 0, square = 0;                                   \
            for (uint64_t r = 0; r < rows; r++)                                                 \
                ADD_NUMBER(*(const T *)(const void *)(at + (int64_t)r * stride), sum, number);  \
            sum /= number > 0 ? number : 1.0;                                                   \
            for (uint64_t r = 0; r < rows; r++)                                                 \
                ADD_DISTANCE(*(const T *)(const void *)(at + (int64_t)r * stride), sum, rest,   \
                             square);                                                           \
            counts[j] = (uint64_t)number;                                                       \
            squares[j] = counts[j] > 0 ? gpr_squares_about_mean(square, rest, counts[j]) : 0.0; \
        }                                                                                       \
    }

#define DEFINE_SQUARES(name, T, LOAD)                                                  \
    DEFINE_LANES(squares, name, T, LOAD, sum, 0.0)                                     \
    static double squares_##name(const void *data, uint64_t n, const double center[2]) \
    {                                                                                  \
        lanes_f64 lanes;                                                               \
        double sum;                                                                    \
        lanes_squares_##name(data, n, center, &lanes);                                 \
        combine_lanes_sum(&lanes, 1, &sum);                                            \
        return sum;                                                                    \
    }

/* Four rows at a time, to save loads and stores. */
#define DEFINE_DISTANCES(name, T)                                                                 \
    static void distances_##name(const char *data, int64_t stride, uint64_t rows, uint64_t width, \
                                 int64_t ahead, const double *restrict centers,                   \
                                 double *restrict distances, double *restrict squares)            \
    {                                                                                             \
        for (; rows >= 4; rows -= 4, data += 4 * stride) {                                        \
            const T *restrict a = (const T *)(const void *)data;                                  \
            const T *restrict b = (const T *)(const void *)(data + stride);                       \
            const T *restrict c = (const T *)(const void *)(data + 2 * stride);                   \
            const T *restrict d = (const T *)(const void *)(data + 3 * stride);                   \
            if (ahead != 0)                                                                       \
                for (int r = 0; r < 4; r++)                                                       \
                    PREFETCH_AT(data + r * stride, width * sizeof(T), ahead, 2);                  \
            for (uint64_t j = 0; j < width; j++) {                                                \
                const double center = centers[j], da = (double)a[j] - center,                     \
                             db = (double)b[j] - center;                                          \
                const double dc = (double)c[j] - center, dd = (double)d[j] - center;              \
                distances[j] += (da + db) + (dc + dd);                                            \
                squares[j] += (da * da + db * db) + (dc * dc + dd * dd);                          \
            }                                                                                     \
        }                                                                                         \
        for (; rows > 0; rows--, data += stride) {                                                \
            const T *restrict a = (const T *)(const void *)data;                                  \
            for (uint64_t j = 0; j < width; j++) {                                                \
                const double da = (double)a[j] - centers[j];                                      \
                distances[j] += da;                                                               \
                squares[j] += da * da;                                                            \
            }                                                                                     \
        }                                                                                         \
    }

/* See gpr_variances_loop. Roots are rounded to double first, as variances are. */
#define DEFINE_VARIANCES(name, T)                                                                \
    INLINE void variances_##name(const double *restrict squares, double divisor, uint64_t count, \
                                 int takes_root, T *restrict results)                            \
    {                                                                                            \
        for (uint64_t i = 0; i < count && !takes_root; i++)                                      \
            results[i] = (T)(squares[i] / divisor);                                              \
        for (uint64_t i = 0; i < count && takes_root; i++)                                       \
            results[i] = (T)sqrt(squares[i] / divisor);                                          \
    }
DEFINE_VARIANCES(float32, float)
DEFINE_VARIANCES(float64, double)

static void variances(const double *squares, double divisor, uint64_t count, int takes_root,
                      int is_single, void *results)
{
    if (is_single)
        variances_float32(squares, divisor, count, takes_root, results);
    else
        variances_float64(squares, divisor, count, takes_root, results);
}
