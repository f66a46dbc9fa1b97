/* Facts of devices, for plans and for users. No device is opened for them. */
#include "lib/driver/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/environment.h"
#include "lib/driver/measured_costs.h"
#include "lib/rules/plan_costs.h"

/* ---------------------------------------------------------------- facts for plans ------------ */

static gpr_status read_attribute(CUdevice handle, int attribute, int *value)
{
    return gpr_check(gpr_cuda.cuDeviceGetAttribute(value, attribute, handle),
                     "cuDeviceGetAttribute");
}

static gpr_status read_capability(CUdevice handle, int *cc)
{
    int major = 0, minor = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
    *cc = 10 * major + minor;
done:
    return status;
}

/* Whether exact sums are sooner made of integers on a GPU that adds so many float32 in the time of
 * a float64: 2 on GPUs for computing, 32 or 64 on others. The environment variable overrides the
 * ratio. */
static int is_float64_slow(int ratio)
{
    enum { SLOW_RATIO = 8 };
    const char *word = gpr_environment("GPUREDUCE_SLOW_FLOAT64");

    if (word != NULL && (strcmp(word, "0") == 0 || strcmp(word, "1") == 0)) return *word == '1';
    return ratio >= SLOW_RATIO;
}

/* Of data that move on both edges of the memory's clock. */
static gpr_status read_bandwidth(CUdevice handle, double *bytes_per_ns)
{
    int khz = 0, bits = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &khz));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &bits));
    *bytes_per_ns = 2.0 * khz * 1e-6 * bits / 8;
done:
    return status;
}

static gpr_status read_attributes(CUdevice handle, gpr_device_facts *facts)
{
    int value = 0;
    gpr_status status = GPR_OK;

    *facts = (gpr_device_facts){0};
    GPR_TRY(read_capability(handle, &facts->cc));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &value));
    facts->multiprocessors = (uint32_t)value;
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &value));
    facts->threads_per_multiprocessor = (uint32_t)value;
    GPR_TRY(
        read_attribute(handle, CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, &value));
    facts->slow_float64 = is_float64_slow(value);
    GPR_TRY(read_bandwidth(handle, &facts->memory_bytes_per_ns));
done:
    return status;
}

/* Costs measured on a GPU of this name, or else estimated from its attributes. */
static gpr_status read_costs(CUdevice handle, const gpr_device_facts *facts, gpr_costs_info *info)
{
    char name[sizeof((gpr_device_info){0}.name)];
    gpr_status status = GPR_OK;

    *info = (gpr_costs_info){.is_measured = 0};
    GPR_CU(cuDeviceGetName, name, (int)sizeof name, handle);
    gpr_read_measured_costs(name, info);
    if (!info->is_measured) gpr_costs_of(facts, &info->costs);
done:
    return status;
}

gpr_status gpr_read_facts(CUdevice handle, gpr_device_facts *facts)
{
    gpr_costs_info costs;
    gpr_status status = GPR_OK;

    GPR_TRY(read_attributes(handle, facts));
    GPR_TRY(read_costs(handle, facts, &costs));
    facts->costs = costs.costs;
done:
    return status;
}

/* GPUs that many have, one for each generation. */
static const struct {
    int cc;
    uint32_t multiprocessors, threads_per_multiprocessor;
    int slow_float64;
    double memory_bytes_per_ns;
} typical_gpus[] = {
    {75, 40, 1024, 1, 320},    /* T4 */
    {80, 108, 2048, 0, 1555},  /* A100 */
    {86, 82, 1536, 1, 936},    /* RTX 3090 */
    {89, 128, 1536, 1, 1008},  /* RTX 4090 */
    {90, 132, 2048, 0, 3352},  /* H100 */
    {100, 148, 2048, 0, 8000}, /* B200 */
    {120, 170, 1536, 1, 1792}, /* RTX 5090 */
};

gpr_status gpr_typical_facts(int cc, gpr_device_facts *facts)
{
    enum { OLDEST = 50, NEWEST = 999 };

    if (cc < OLDEST || cc > NEWEST)
        return gpr_fail(GPR_ERROR_VALUE, "there is no compute capability %d.%d", cc / 10, cc % 10);
    size_t i = sizeof typical_gpus / sizeof *typical_gpus - 1;
    while (i > 0 && typical_gpus[i].cc > cc) i--;
    *facts =
        (gpr_device_facts){.multiprocessors = typical_gpus[i].multiprocessors,
                           .threads_per_multiprocessor = typical_gpus[i].threads_per_multiprocessor,
                           .slow_float64 = typical_gpus[i].slow_float64,
                           .memory_bytes_per_ns = typical_gpus[i].memory_bytes_per_ns};
    facts->cc = cc;
    gpr_costs_of(facts, &facts->costs);
    return GPR_OK;
}

gpr_status gpr_check_ordinal(int ordinal)
{
    int count = 0;
    gpr_status status = GPR_OK;

    GPR_CU(cuDeviceGetCount, &count);
    if (ordinal < 0 || ordinal >= count || ordinal >= GPR_MAX_DEVICES) {
        return gpr_fail(GPR_ERROR_VALUE,
                        "there is no device \"cuda:%d\": this machine has %d CUDA device%s",
                        ordinal, count, count == 1 ? "" : "s");
    }
done:
    return status;
}

static gpr_status find_handle(int ordinal, CUdevice *handle)
{
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_driver_ready());
    GPR_TRY(gpr_check_ordinal(ordinal));
    GPR_CU(cuDeviceGet, handle, ordinal);
done:
    return status;
}

gpr_status gpr_facts_at(int ordinal, gpr_device_facts *facts)
{
    CUdevice handle = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(find_handle(ordinal, &handle));
    GPR_TRY(gpr_read_facts(handle, facts));
done:
    return status;
}

gpr_status gpr_costs_at(int ordinal, gpr_costs_info *info)
{
    CUdevice handle = 0;
    gpr_device_facts facts;
    gpr_status status = GPR_OK;

    *info = (gpr_costs_info){.is_measured = 0};
    GPR_TRY(find_handle(ordinal, &handle));
    GPR_TRY(read_attributes(handle, &facts));
    GPR_TRY(read_costs(handle, &facts, info));
done:
    return status;
}

/* ---------------------------------------------------------------- facts for users ------------ */

int gpr_cuda_usable(void)
{
    return gpr_driver_usable() && gpr_nvrtc_usable();
}

gpr_status gpr_cuda_available(void)
{
    const gpr_status status = gpr_driver_ready();

    return status == GPR_OK ? gpr_nvrtc_ready() : status;
}

void gpr_cuda_versions(int *driver, int *nvrtc)
{
    (void)gpr_driver_usable();
    (void)gpr_nvrtc_usable();
    *driver = gpr_driver_version();
    *nvrtc = gpr_nvrtc_version();
}

gpr_status gpr_device_count(int *count)
{
    gpr_status status = GPR_OK;

    *count = 0;
    if (gpr_driver_usable()) GPR_CU(cuDeviceGetCount, count);
done:
    return status;
}

gpr_status gpr_device_info_at(int ordinal, gpr_device_info *info)
{
    CUdevice handle = 0;
    CUuuid uuid = {{0}};
    size_t bytes = 0;
    int value = 0;
    gpr_status status = GPR_OK;

    *info = (gpr_device_info){.ordinal = ordinal};
    GPR_TRY(find_handle(ordinal, &handle));
    GPR_CU(cuDeviceGetName, info->name, (int)sizeof info->name, handle);
    GPR_CU(cuDeviceTotalMem, &bytes, handle);
    info->memory_bytes = bytes;
    GPR_TRY(read_capability(handle, &info->compute_capability));
    GPR_TRY(
        read_attribute(handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->multiprocessors));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, &info->memory_clock_khz));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
                           &info->memory_bus_bits));
    GPR_TRY(read_attribute(handle, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &value));
    info->l2_bytes = (uint64_t)value;
    GPR_CU(cuDeviceGetUuid, &uuid, handle);
    const unsigned char *b = uuid.bytes;
    (void)snprintf(info->uuid, sizeof info->uuid,
                   "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
done:
    return status;
}

gpr_status gpr_kernel_available(int index, int ordinal)
{
    gpr_device_info info;
    gpr_status status = GPR_OK;

    if (index < 0 || index >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", index);
    const gpr_kernel_row *row = &gpr_kernel_rows[index];
    GPR_TRY(gpr_kernel_headers(index));
    GPR_TRY(gpr_cuda_available());
    GPR_TRY(gpr_device_info_at(ordinal >= 0 ? ordinal : 0, &info));
    if (info.compute_capability < row->min_cc) {
        status =
            gpr_fail(GPR_ERROR_KERNEL, "kernel '%s' needs compute capability %d.%d, %s has %d.%d",
                     row->name, row->min_cc / 10, row->min_cc % 10, info.name,
                     info.compute_capability / 10, info.compute_capability % 10);
    }
done:
    return status;
}
