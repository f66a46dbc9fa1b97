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

/* NaN elements add 0 to sums and nothing to counts. Rows are folded in lanes side by side, few
 * elements in fewer of them; columns row by row. */
enum { SKIPPING_LANES = 16, FEW_SKIPPING_LANES = 4 };
#define DEFINE_SKIPPING_ROW(name, T, LANES)                                                       \
    INLINE double skipping_squares_##name##_##LANES(const T *p, uint64_t n, uint64_t *count)      \
    {                                                                                             \
        double sums[LANES] = {0}, numbers[LANES] = {0}, rests[LANES] = {0}, squares[LANES] = {0}; \
        double mean, sum = 0, number = 0, rest = 0;                                               \
        uint64_t i = 0;                                                                           \
        for (; i + LANES <= n; i += LANES)                                                        \
            for (int k = 0; k < LANES; k++) ADD_NUMBER(p[i + (uint64_t)k], sums[k], numbers[k]);  \
        for (int k = 0; i < n; i++, k++) ADD_NUMBER(p[i], sums[k], numbers[k]);                   \
        for (int k = 0; k < LANES; k++) {                                                         \
            sum += sums[k];                                                                       \
            number += numbers[k];                                                                 \
        }                                                                                         \
        *count = (uint64_t)number;                                                                \
        if (*count == 0) return 0;                                                                \
        mean = sum / number;                                                                      \
        for (i = 0; i + LANES <= n; i += LANES)                                                   \
            for (int k = 0; k < LANES; k++)                                                       \
                ADD_DISTANCE(p[i + (uint64_t)k], mean, rests[k], squares[k]);                     \
        for (int k = 0; i < n; i++, k++) ADD_DISTANCE(p[i], mean, rests[k], squares[k]);          \
        sum = 0;                                                                                  \
        for (int k = 0; k < LANES; k++) {                                                         \
            sum += squares[k];                                                                    \
            rest += rests[k];                                                                     \
        }                                                                                         \
        return gpr_squares_about_mean(sum, rest, *count);                                         \
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

#define DEFINE_SKIPPING_MOMENTS(name, T)                                                        \
    DEFINE_SKIPPING_ROW(name, T, SKIPPING_LANES)                                                \
    DEFINE_SKIPPING_ROW(name, T, FEW_SKIPPING_LANES)                                            \
    static void skipping_moments_##name(const char *data, int64_t stride, uint64_t rows,        \
                                        uint64_t n, double *squares, uint64_t *counts)          \
    {                                                                                           \
        for (uint64_t r = 0; r < rows; r++) {                                                   \
            const T *row = (const T *)(const void *)(data + (int64_t)r * stride);               \
            squares[r] = n <= SHORT_MOMENTS                                                     \
                             ? skipping_squares_##name##_FEW_SKIPPING_LANES(row, n, &counts[r]) \
                             : skipping_squares_##name##_SKIPPING_LANES(row, n, &counts[r]);    \
        }                                                                                       \
    }                                                                                           \
    static void skipping_columns_##name(const char *data, int64_t stride, uint64_t rows,        \
                                        uint64_t width, double *restrict squares,               \
                                        uint64_t *restrict counts)                              \
    {                                                                                           \
        double sums[GPR_COLUMN_BLOCK], numbers[GPR_COLUMN_BLOCK], rests[GPR_COLUMN_BLOCK];      \
        for (uint64_t j = 0; j < width; j++) sums[j] = numbers[j] = 0;                          \
        for (uint64_t r = 0; r < rows; r++) {                                                   \
            const T *p = (const T *)(const void *)(data + (int64_t)r * stride);                 \
            for (uint64_t j = 0; j < width; j++) ADD_NUMBER(p[j], sums[j], numbers[j]);         \
        }                                                                                       \
        for (uint64_t j = 0; j < width; j++) {                                                  \
            sums[j] /= numbers[j] > 0 ? numbers[j] : 1.0;                                       \
            rests[j] = squares[j] = 0;                                                          \
        }                                                                                       \
        for (uint64_t r = 0; r < rows; r++) {                                                   \
            const T *p = (const T *)(const void *)(data + (int64_t)r * stride);                 \
            for (uint64_t j = 0; j < width; j++)                                                \
                ADD_DISTANCE(p[j], sums[j], rests[j], squares[j]);                              \
        }                                                                                       \
        for (uint64_t j = 0; j < width; j++) {                                                  \
            counts[j] = (uint64_t)numbers[j];                                                   \
            squares[j] =                                                                        \
                counts[j] > 0 ? gpr_squares_about_mean(squares[j], rests[j], counts[j]) : 0.0;  \
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
                                 const double *restrict centers, double *restrict distances,      \
                                 double *restrict squares)                                        \
    {                                                                                             \
        for (; rows >= 4; rows -= 4, data += 4 * stride) {                                        \
            const T *restrict a = (const T *)(const void *)data;                                  \
            const T *restrict b = (const T *)(const void *)(data + stride);                       \
            const T *restrict c = (const T *)(const void *)(data + 2 * stride);                   \
            const T *restrict d = (const T *)(const void *)(data + 3 * stride);                   \
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
