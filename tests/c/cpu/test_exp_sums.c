/* Sums of exponentials: the loops of each instruction set, and calls that are refused. Values of
 * whole calls against decimal arithmetic are tests/api/test_logsumexp.py's. */
#include <math.h>

#include "check.h"
#include "cpu/loops.h"
#include "lib/base/status.h"
#include "request.h"

static const char *const isas[] = {"avx512", "avx2", "baseline"};
enum { ISAS = sizeof isas / sizeof isas[0] };

#define HOLDS(condition) CHECK(condition, "%s", #condition)

static double uniform(double most)
{
    return ldexp((double)(check_random() >> 11), -53) * most;
}

/* One exponential of a block, exp(x) / 2^unit, has an error of two units of 2^-53; of a float32
 * 2^-37. */
static void check_one(double largest, double below)
{
    const double x = largest - below, unit = rint(largest / 0.6931471805599453);
    const float single = (float)x;
    const long double log2 = 0.693147180559945309417232121458176568L;
    gpr_exp_sum sum;

    gpr_cpu_loops()->exp_sums[GPR_FLOAT64](&x, 1, largest, 0, unit, &sum);
    long double wanted = expl((long double)x - (long double)unit * log2);
    HOLDS(sum.largest == 0);
    HOLDS(fabsl((long double)sum.high + sum.low - wanted) <= wanted * 0x1p-52L);
    if ((double)single > largest) return;
    gpr_cpu_loops()->exp_sums[GPR_FLOAT32](&single, 1, largest, 0, unit, &sum);
    wanted = (double)single == largest ? 0 : expl((long double)single - (long double)unit * log2);
    HOLDS(fabsl((long double)sum.high + sum.low - wanted) <= wanted * 0x1p-37L);
}

/* A block of any length leaves out all that are the largest, counts them, and reads nothing behind
 * its end. */
static void check_block(uint64_t n)
{
    double x[GPR_EXP_BLOCK + 1];
    const double largest = 3.5;
    double wanted = 0;
    uint64_t count = 0;
    gpr_exp_sum sum;

    for (uint64_t i = 0; i < n; i++) {
        x[i] = check_random() % 5 == 0 ? largest : largest - uniform(20);
        if (check_random() % 7 == 0) x[i] = -INFINITY;
        if (x[i] == largest)
            count++;
        else
            wanted += exp(x[i] - largest);
    }
    x[n] = NAN;
    gpr_cpu_loops()->exp_sums[GPR_FLOAT64](x, n, largest, largest, 0, &sum);
    HOLDS(sum.largest == count);
    HOLDS(fabs(sum.high + sum.low - wanted) <= wanted * 0x1p-48);
}

/* Columns of any width: the loop reads and writes nothing beside them. */
static void check_columns(uint64_t n, uint64_t width)
{
    enum { MOST = 40 };
    double x[MOST * MOST + MOST], largest[MOST + 1], others[MOST + 1];
    const double scale = ldexp(1, (int)check_between(-3, 24));

    for (uint64_t i = 0; i < n * width; i++) {
        x[i] = (uniform(2) - 1) * scale;
        if (check_random() % 9 == 0) x[i] = x[0];
        if (check_random() % 30 == 0) x[i] = -INFINITY;
    }
    largest[width] = others[width] = 7;
    gpr_cpu_loops()->exp_columns[GPR_FLOAT64]((const char *)x, (int64_t)(width * sizeof *x), n,
                                              width, largest, others);
    for (uint64_t c = 0; c < width; c++) {
        long double wanted = -1;
        double most = -INFINITY;

        for (uint64_t i = 0; i < n; i++) most = fmax(most, x[i * width + c]);
        HOLDS(largest[c] == most);
        if (most == -INFINITY) {
            HOLDS(others[c] == 0);
            continue;
        }
        for (uint64_t i = 0; i < n; i++) wanted += expl((long double)x[i * width + c] - most);
        HOLDS(fabsl(others[c] - wanted) <= wanted * 0x1p-50L + 0x1p-60L);
    }
    HOLDS(largest[width] == 7 && others[width] == 7);
    x[(n - 1) * width] = NAN;
    if (width > 1) x[(n - 1) * width + 1] = INFINITY;
    gpr_cpu_loops()->exp_columns[GPR_FLOAT64]((const char *)x, (int64_t)(width * sizeof *x), n,
                                              width, largest, others);
    HOLDS(isnan(largest[0]));
    HOLDS(width == 1 || (largest[1] == INFINITY && others[1] == 0));
}

static void test_loops(void)
{
    for (int k = 0; k < ISAS; k++) {
        if (gpr_set_cpu_isa(isas[k]) != GPR_OK) continue;
        for (int i = 0; i < 20000; i++) check_one(uniform(2) - 1, uniform(600));
        for (int i = 0; i < 2000; i++) check_one(uniform(1000) - 500, uniform(30));
        for (uint64_t n = 1; n <= GPR_EXP_BLOCK; n++) check_block(n);
        for (uint64_t n = 1; n <= 40; n++) check_columns(n, 1 + check_random() % 40);
    }
    HOLDS(gpr_set_cpu_isa(NULL) == GPR_OK);
}

static void test_calls(void)
{
    const int64_t shape[] = {2, 3}, empty[] = {2, 0};
    const double x[] = {0, 0, -INFINITY, 1000, -INFINITY, -INFINITY};
    const uint8_t mask[] = {1, 1, 1, 0, 1, 1};
    const int64_t steps[] = {3, 1};
    double result[2];
    gpr_request request = sums_of(GPR_FLOAT64, 2, shape, x, result);

    request.device = GPR_DEVICE_CPU;
    HOLDS(gpr_logsumexp(&request) == GPR_OK);
    HOLDS(fabs(result[0] - log(2)) < 0x1p-52 && result[1] == 1000);
    HOLDS(gpr_last_run()->elements == 6);
    request.mask = mask;
    request.mask_strides = steps;
    HOLDS(gpr_logsumexp(&request) == GPR_OK);
    HOLDS(fabs(result[0] - log(2)) < 0x1p-52 && result[1] == -INFINITY);
    request.mask = NULL;
    request.shape = empty;
    HOLDS(gpr_logsumexp(&request) == GPR_OK);
    HOLDS(result[0] == -INFINITY && result[1] == -INFINITY);
}

static void refuse(gpr_request request, gpr_status status)
{
    HOLDS(gpr_logsumexp(&request) == status);
}

static void test_refusals(void)
{
    const int64_t shape[] = {4}, steps[] = {8};
    const double x[8] = {0};
    double result;
    gpr_request request = sums_of(GPR_FLOAT64, 1, shape, x, &result), other;

    request.device = GPR_DEVICE_CPU;
    other = request;
    other.dtype = GPR_COMPLEX64;
    refuse(other, GPR_ERROR_TYPE);
    other.dtype = GPR_DTYPE_COUNT;
    refuse(other, GPR_ERROR_TYPE);
    other = request;
    other.compute = GPR_INT32;
    refuse(other, GPR_ERROR_TYPE);
    other = request;
    other.device = 0;
    refuse(other, GPR_ERROR_VALUE);
    other = request;
    other.on_device = 1;
    refuse(other, GPR_ERROR_VALUE);
    other = request;
    other.result_strides = steps;
    refuse(other, GPR_ERROR_VALUE);
    other = request;
    other.ndim = -1;
    refuse(other, GPR_ERROR_VALUE);
}

int main(void)
{
    check_begin();
    test_loops();
    test_calls();
    test_refusals();
    return check_end();
}
