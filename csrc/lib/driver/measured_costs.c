/* The files of measured costs; see measured_costs.h. A file is text, so that users can read it:
 *
 *     gpureduce plan costs 1
 *     device NVIDIA H100 80GB HBM3
 *     bytes_per_ns 3115.500
 *     ... a line per member of gpr_plan_costs, in its order
 *
 * Numbers have three digits after a point in every locale. The format's number changes with the
 * model that the costs are for (plan_costs.h). */
#include "lib/driver/measured_costs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/sha256.h"
#include "lib/base/text.h"
#include "lib/driver/cache.h"

enum { FORMAT = 1, LARGEST_FILE = 4096, THOUSANDTHS = 1000 };
enum { NAME_ROOM = GPR_SHA256_HEX + sizeof GPR_COSTS_SUFFIX };
static const char TITLE[] = "gpureduce plan costs ";

/* The least and the most of any cost, far from those of any GPU. */
static const double LEAST_COST = 0.01, MOST_COST = 1e6;

static const char *const names[GPR_PLAN_COST_COUNT] = {
    "bytes_per_ns", "sm_bytes_per_ns", "instructions_per_ns", "load_ns", "block_ns",
    "step_ns",      "merge_ns",        "partial_ns"};

const char *gpr_plan_cost_name(int index)
{
    return index >= 0 && index < GPR_PLAN_COST_COUNT ? names[index] : NULL;
}

static int is_plausible(double cost)
{
    return cost >= LEAST_COST && cost <= MOST_COST; /* not NaN */
}

gpr_status gpr_check_costs(const gpr_plan_costs *costs)
{
    double values[GPR_PLAN_COST_COUNT];

    memcpy(values, costs, sizeof values);
    for (int i = 0; i < GPR_PLAN_COST_COUNT; i++) {
        if (!is_plausible(values[i]))
            return gpr_fail(GPR_ERROR_VALUE, "%s is %g: a cost is between %g and %g", names[i],
                            values[i], LEAST_COST, MOST_COST);
    }
    return GPR_OK;
}

/* The file's name: a GPU's own name may hold any bytes. */
static void name_file(const char *gpu, char name[NAME_ROOM])
{
    gpr_sha256_of_text(gpu, name);
    memcpy(name + GPR_SHA256_HEX - 1, GPR_COSTS_SUFFIX, sizeof GPR_COSTS_SUFFIX);
}

/* ---------------------------------------------------------------- reading -------------------- */

/* Why a file's costs are not used. */
__attribute__((format(printf, 2, 3))) static void set_reason(gpr_costs_info *info,
                                                             const char *format, ...)
{
    va_list values;

    va_start(values, format);
    (void)vsnprintf(info->reason, sizeof info->reason, format, values);
    va_end(values);
}

/* Digits, a point, digits. Returns what follows, or NULL. */
static const char *parse_number(const char *at, double *value)
{
    char *end = NULL;
    double unit = 1;

    if (*at < '0' || *at > '9') return NULL;
    errno = 0;
    *value = (double)strtoull(at, &end, 10);
    if (errno != 0 || *end != '.') return NULL;
    for (at = end + 1; *at >= '0' && *at <= '9'; at++) {
        unit /= 10;
        *value += unit * (*at - '0');
    }
    return at;
}

/* Moves *at behind `word`, if the text begins with it. */
static int skip(const char **at, const char *word)
{
    const size_t length = strlen(word);

    if (strncmp(*at, word, length) != 0) return 0;
    *at += length;
    return 1;
}

static void parse_costs(const char *text, const char *gpu, gpr_costs_info *info)
{
    enum { FIRST_COST_LINE = 3 };
    double values[GPR_PLAN_COST_COUNT];
    const size_t gpu_length = strlen(gpu);
    const char *at = text;
    char *end = NULL;

    if (!skip(&at, TITLE)) {
        set_reason(info, "it does not begin with '%s'", TITLE);
        return;
    }
    const long format = strtol(at, &end, 10);
    if (format != FORMAT || *end != '\n') {
        set_reason(info, "its format is not %d, which this version reads: measure again", FORMAT);
        return;
    }
    at = end + 1;
    if (!skip(&at, "device ") || strncmp(at, gpu, gpu_length) != 0 || at[gpu_length] != '\n') {
        set_reason(info, "line 2 is not 'device %.120s'", gpu);
        return;
    }
    at += gpu_length + 1;
    for (int i = 0; i < GPR_PLAN_COST_COUNT; i++) {
        const char *after = NULL;
        if (skip(&at, names[i]) && *at == ' ') after = parse_number(at + 1, &values[i]);
        if (after == NULL || *after != '\n') {
            set_reason(info, "line %d is not '%s' and a number", FIRST_COST_LINE + i, names[i]);
            return;
        }
        if (!is_plausible(values[i])) {
            set_reason(info, "line %d: %s is not from %g to %g", FIRST_COST_LINE + i, names[i],
                       LEAST_COST, MOST_COST);
            return;
        }
        at = after + 1;
    }
    if (*at != '\0') {
        set_reason(info, "there are lines after '%s'", names[GPR_PLAN_COST_COUNT - 1]);
        return;
    }
    memcpy(&info->costs, values, sizeof values);
    info->is_measured = 1;
}

/* Reads the costs in an open file. */
static void read_file(int file, const char *gpu, gpr_costs_info *info)
{
    char text[LARGEST_FILE + 1];
    struct stat about;
    size_t length = 0;
    ssize_t got = 0;

    if (fstat(file, &about) != 0) {
        set_reason(info, "its attributes cannot be read");
        return;
    }
    if (!S_ISREG(about.st_mode) || !gpr_is_ours_alone(&about)) {
        set_reason(info, "it is not a regular file that this user alone can write");
        return;
    }
    do {
        got = read(file, text + length, sizeof text - length);
        if (got > 0) length += (size_t)got;
    } while ((got > 0 && length < sizeof text) || (got < 0 && errno == EINTR));
    if (got < 0)
        set_reason(info, "it cannot be read");
    else if (length == sizeof text || memchr(text, '\0', length) != NULL)
        set_reason(info, "it is not a text of a few lines");
    else {
        text[length] = '\0';
        parse_costs(text, gpu, info);
    }
}

void gpr_read_measured_costs(const char *gpu, gpr_costs_info *info)
{
    char name[NAME_ROOM], folder_path[sizeof info->path - NAME_ROOM];
    const char *reason = NULL;

    *info = (gpr_costs_info){.is_measured = 0};
    name_file(gpu, name);
    if (gpr_cache_path(folder_path, sizeof folder_path, &reason) != NULL)
        (void)snprintf(info->path, sizeof info->path, "%s/%s", folder_path, name);
    const int folder = gpr_cache_folder(0, &reason);
    if (folder < 0) {
        set_reason(info, "%s", reason);
        return;
    }
    const int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        set_reason(info, errno == ENOENT ? "nothing was measured on a GPU of this name"
                                         : "it cannot be opened, or is a link");
    } else {
        read_file(file, gpu, info);
        close(file);
    }
    close(folder);
}

/* ---------------------------------------------------------------- writing -------------------- */

static gpr_status open_folder(int make, int *folder)
{
    const char *reason = NULL;

    *folder = gpr_cache_folder(make, &reason);
    if (*folder >= 0) return GPR_OK;
    return gpr_fail(GPR_ERROR_SYSTEM, "measured costs are kept beside compiled programs: %s",
                    reason);
}

gpr_status gpr_write_measured_costs(const char *gpu, const gpr_plan_costs *costs)
{
    double values[GPR_PLAN_COST_COUNT];
    char name[NAME_ROOM];
    gpr_text text = {.text = NULL};
    int folder = -1;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_check_costs(costs));
    if (strchr(gpu, '\n') != NULL)
        GPR_TRY(gpr_fail(GPR_ERROR_VALUE, "the GPU's name is more than a line"));
    memcpy(values, costs, sizeof values);
    gpr_text_add(&text, "%s%d\ndevice %s\n", TITLE, FORMAT, gpu);
    for (int i = 0; i < GPR_PLAN_COST_COUNT; i++) {
        const unsigned long long parts = (unsigned long long)(values[i] * THOUSANDTHS + 0.5);
        gpr_text_add(&text, "%s %llu.%03llu\n", names[i], parts / THOUSANDTHS, parts % THOUSANDTHS);
    }
    GPR_TRY(gpr_text_status(&text));
    GPR_TRY(open_folder(1, &folder));
    name_file(gpu, name);
    if (!gpr_cache_store(folder, name, text.text, text.length))
        status =
            gpr_fail(GPR_ERROR_SYSTEM, "measured costs cannot be written to the cache's folder");
done:
    if (folder >= 0) close(folder);
    gpr_text_clear(&text);
    return status;
}

gpr_status gpr_remove_measured_costs(const char *gpu)
{
    char name[NAME_ROOM];
    const char *reason = NULL;
    const int folder = gpr_cache_folder(0, &reason);
    gpr_status status = GPR_OK;

    if (folder < 0) return GPR_OK;
    name_file(gpu, name);
    if (unlinkat(folder, name, 0) != 0 && errno != ENOENT)
        status =
            gpr_fail(GPR_ERROR_SYSTEM, "measured costs cannot be removed: %s", strerror(errno));
    close(folder);
    return status;
}
