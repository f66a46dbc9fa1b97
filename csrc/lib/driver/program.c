/* From kernel traits to machine code: the program's text, then the disk cache (cache.c, which makes
 * the key too) or NVRTC (nvrtc.c). */
#include "lib/driver/program.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/environment.h"
#include "lib/base/fork_locks.h"
#include "lib/base/text.h"
#include "lib/driver/cache.h"
#include "lib/rules/accumulators.h"
#include "shared/tuning.h"

enum { PATH_ROOM = 1024, MINIMAL_SINCE = 12040 };

/* ---------------------------------------------------------------- CUB's headers -------------- */

static pthread_mutex_t cccl_lock = PTHREAD_MUTEX_INITIALIZER;
static char *cccl_path; /* from gpr_set_cccl_path */

static void watch_forks(void)
{
    gpr_hold_forks_by(&cccl_lock, 1);
}

static void lock_cccl_path(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, watch_forks);
    pthread_mutex_lock(&cccl_lock);
}

gpr_status gpr_set_cccl_path(const char *directory)
{
    char *copy = NULL;

    if (directory != NULL) {
        copy = strdup(directory);
        if (copy == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    }
    lock_cccl_path();
    free(cccl_path);
    cccl_path = copy;
    pthread_mutex_unlock(&cccl_lock);
    return GPR_OK;
}

/* Whether `root`/`folder` holds CUB; then its include directory is in `path`. */
static int has_cub(const char *root, const char *folder, char path[PATH_ROOM])
{
    char header[PATH_ROOM + 32];
    struct stat about;

    if (root == NULL || snprintf(path, PATH_ROOM, "%s%s", root, folder) >= PATH_ROOM) return 0;
    (void)snprintf(header, sizeof header, "%s/cub/version.cuh", path);
    return stat(header, &about) == 0;
}

/* Directory to include CUB from. */
static gpr_status find_cccl(char path[PATH_ROOM])
{
    const char *const roots[] = {gpr_environment("CUDA_HOME"), gpr_environment("CUDA_PATH"),
                                 "/usr/local/cuda"};
    int found = has_cub(gpr_environment("GPUREDUCE_CCCL"), "", path);

    lock_cccl_path();
    if (!found) found = has_cub(cccl_path, "", path);
    pthread_mutex_unlock(&cccl_lock);
    for (size_t i = 0; i < sizeof roots / sizeof roots[0] && !found; i++) {
        found = has_cub(roots[i], "/include/cccl", path) || has_cub(roots[i], "/include", path);
    }
    if (found) return GPR_OK;
    return gpr_fail(
        GPR_ERROR_KERNEL,
        "kernel 'cub' compiles NVIDIA's CUB headers, which are not installed. Install them with "
        "pip install 'gpureduce[cub]', or set GPUREDUCE_CCCL to the directory that holds cub/");
}

gpr_status gpr_kernel_headers(int kernel)
{
    char path[PATH_ROOM];

    return (gpr_kernel_rows[kernel].flags & GPR_NEEDS_CCCL) != 0 ? find_cccl(path) : GPR_OK;
}

/* ---------------------------------------------------------------- the text ------------------- */

gpr_entries gpr_program_entries(const gpr_kernel_traits *traits)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[traits->kernel];
    const int same = traits->element == traits->acc && traits->compute == traits->acc &&
                     !traits->skip_nan && traits->fold != GPR_FOLD_count &&
                     gpr_fold_rows[traits->fold].acc_kind == GPR_ACC_NUMBER;
    gpr_entries entries = {.first = 0, .next = -1, .fill = -1, .finish = -1, .copy = -1};

    if (row->finish == GPR_ATOMIC) entries.fill = 1;
    if (row->finish == GPR_PASSES && row->cover != GPR_ONE) entries.next = same ? 0 : 1;
    if (traits->finish != NULL && !gpr_is_planned(row))
        entries.finish = entries.fill > 0 || entries.next > 0 ? 2 : 1;
    if (traits->copies) entries.copy = 1; /* of kernels that make results: they have one entry */
    return entries;
}

/* A translation and the memory it points to. */
typedef struct program_text {
    gpr_text text, entries[GPR_MAX_ENTRIES], include;
    gpr_text header_stamp; /* of CUB: size and time of its version file */
    gpr_translation translation;
} program_text;

static void clear_program(program_text *program)
{
    gpr_text_clear(&program->text);
    for (int i = 0; i < GPR_MAX_ENTRIES; i++) gpr_text_clear(&program->entries[i]);
    gpr_text_clear(&program->include);
    gpr_text_clear(&program->header_stamp);
}

static gpr_status add_cccl(program_text *program)
{
    char path[PATH_ROOM], header[PATH_ROOM + 32];
    struct stat about = {0};
    gpr_status status = GPR_OK;

    GPR_TRY(find_cccl(path));
    (void)snprintf(header, sizeof header, "%s/cub/version.cuh", path);
    (void)stat(header, &about);
    gpr_text_add(&program->include, "--include-path=%s", path);
    gpr_text_add(&program->header_stamp, "%lld %lld", (long long)about.st_size,
                 (long long)about.st_mtime);
    GPR_TRY(gpr_text_status(&program->include));
    GPR_TRY(gpr_text_status(&program->header_stamp));
    program->translation.header_stamp = program->header_stamp.text;
    program->translation.options[program->translation.option_count++] = program->include.text;
done:
    return status;
}

static const char *truth(int value)
{
    return value ? "true" : "false";
}

void gpr_write_constants(const gpr_kernel_traits *traits, gpr_text *text)
{
    gpr_text_add(text, "namespace gpr {\n");
    gpr_text_add(text, "constexpr unsigned per_thread = %u;\n", traits->per_thread);
    gpr_text_add(text, "constexpr unsigned lanes = %u;\n", traits->lanes);
    gpr_text_add(text, "constexpr unsigned kept_axes = %d;\n", traits->kept);
    gpr_text_add(text, "constexpr unsigned reduced_axes = %d;\n", traits->reduced);
    gpr_text_add(text, "constexpr bool masked = %s;\n", truth(traits->masked));
    gpr_text_add(text, "constexpr unsigned item = %u;\n", traits->item);
    gpr_text_add(text, "constexpr unsigned row_elements = %u;\n", traits->row_elements);
    gpr_text_add(text, "constexpr bool integer_bins = %s;\n", truth(traits->integer_bins));
    gpr_text_add(text, "}\n");
}

/* Whether an exact sum is made by a kernel of fast. */
static int is_sum_by_pairs(const gpr_kernel_traits *traits)
{
    return gpr_fold_rows[traits->fold].acc_kind == GPR_ACC_EXACT &&
           strncmp(traits->variant, "fast_", strlen("fast_")) == 0;
}

/* The files that a program includes: each variant of a kernel of exact sums has its own, or is in
 * the kernel's. */
static void write_includes(const gpr_kernel_traits *traits, const gpr_entries *at, gpr_text *text)
{
    if (gpr_is_exact(gpr_fold_rows[traits->fold].acc_kind))
        gpr_text_add(text, "#include \"%s.cuh\"\n",
                     is_sum_by_pairs(traits) ? "exact_fast" : traits->variant);
    else
        gpr_text_add(text, "#include \"%s\"\n", gpr_kernel_rows[traits->kernel].file);
    if (at->finish > 0) gpr_text_add(text, "#include \"finalize_rows.cuh\"\n");
    if (at->copy > 0) gpr_text_add(text, "#include \"copy_results.cuh\"\n");
}

/* Writes the role of a product's second factors. */
static void write_second(const gpr_kernel_traits *traits, gpr_text *text)
{
    if (traits->products == GPR_SQUARES)
        gpr_text_add(text, "gpr::Itself");
    else if (traits->products == GPR_MAGNITUDES)
        gpr_text_add(text, "gpr::SignOfFirst");
    else
        gpr_text_add(text, traits->conjugates ? "gpr::AfterConjugate<gpr::dt_%s>" : "gpr::dt_%s",
                     gpr_dtype_name(traits->second));
}

void gpr_write_base(const gpr_kernel_traits *traits, gpr_text *text)
{
    static const char *const structures[] = {
        [GPR_ACC_NUMBER] = NULL,
        [GPR_ACC_INDEXED] = "gpr::Indexed",
        [GPR_ACC_MOMENTS] = "gpr::Moments",
        [GPR_ACC_RANGE] = "gpr::Range",
        [GPR_ACC_SUM_COUNT] = "gpr::SumCount",
        [GPR_ACC_EXACT] = "gpr::ExactSum",
        [GPR_ACC_EXACT_MOMENTS] = "gpr::ExactMoments",
        [GPR_ACC_EXACT_PRODUCTS] = "gpr::ExactProducts",
    };
    const gpr_fold_row *fold = &gpr_fold_rows[traits->fold];
    const char *structure = structures[fold->acc_kind];
    const int has_infinities = traits->has_given_mean && gpr_is_inexact(traits->element);

    gpr_text_add(text, "gpr::KernelTraits<gpr::fold_%s%s, gpr::dt_%s, gpr::dt_%s, ", fold->name,
                 has_infinities ? "_about" : "", gpr_dtype_name(traits->element),
                 gpr_dtype_name(traits->compute));
    if (structure != NULL) gpr_text_add(text, "%s<", structure);
    gpr_text_add(text, "gpr::dt_%s%s, %s>", gpr_dtype_name(traits->acc),
                 structure != NULL ? ">" : "", truth(traits->skip_nan));
}

/* First: the traits of the first pass, of one array or of two. */
static void write_first(const gpr_kernel_traits *traits, gpr_text *text)
{
    const int has_two_arrays = gpr_fold_rows[traits->fold].acc_kind == GPR_ACC_EXACT_PRODUCTS;

    gpr_text_add(text, "using First = ");
    if (has_two_arrays) gpr_text_add(text, "gpr::Paired<");
    gpr_write_base(traits, text);
    if (has_two_arrays) {
        gpr_text_add(text, ", ");
        write_second(traits, text);
        gpr_text_add(text, ">");
    }
    gpr_text_add(text, ";\n");
}

/* Last: the traits of a kernel that writes results, or that could. */
static void write_last(const gpr_kernel_traits *traits, gpr_text *text)
{
    if (traits->finish == NULL) {
        if (gpr_is_planned(&gpr_kernel_rows[traits->kernel]))
            gpr_text_add(text, "using Last = gpr::Unfinished<First>;\n");
        return;
    }
    gpr_text_add(text, "using Last = gpr::%s<First, gpr::dt_%s, ",
                 is_sum_by_pairs(traits) ? "SumByPairs" : "Finished",
                 gpr_dtype_name(traits->result));
    if (traits->has_given_mean)
        gpr_text_add(text, "gpr::GivenMean<gpr::finish_%s, gpr::dt_%s>", traits->finish,
                     gpr_dtype_name(traits->mean));
    else
        gpr_text_add(text, traits->has_start ? "gpr::FromStart<gpr::finish_%s>" : "gpr::finish_%s",
                     traits->finish);
    gpr_text_add(text, ">;\n");
}

/* The instances of templates in the program; gpr_program_entries has their positions. */
static gpr_status write_entries(const gpr_kernel_traits *traits, const gpr_entries *at,
                                program_text *program)
{
    gpr_translation *translation = &program->translation;
    const char *first = gpr_is_planned(&gpr_kernel_rows[traits->kernel]) ? "Last" : "First";
    gpr_status status = GPR_OK;

    gpr_text_add(&program->entries[0], "gpr::%s<%s, %uu>", traits->variant, first, traits->block);
    if (at->next > 0)
        gpr_text_add(&program->entries[at->next], "gpr::%s<Next, %uu>", traits->variant,
                     traits->block);
    if (at->fill > 0) gpr_text_add(&program->entries[at->fill], "gpr::fill_identity<First>");
    if (at->finish > 0) gpr_text_add(&program->entries[at->finish], "gpr::finalize_rows<Last>");
    if (at->copy > 0) gpr_text_add(&program->entries[at->copy], "gpr::copy_results<Last>");
    translation->entry_count =
        1 + (at->next > 0) + (at->fill > 0) + (at->finish > 0) + (at->copy > 0);
    for (int i = 0; i < translation->entry_count; i++) {
        GPR_TRY(gpr_text_status(&program->entries[i]));
        translation->entries[i] = program->entries[i].text;
    }
done:
    return status;
}

void gpr_add_language(gpr_translation *translation, int is_minimal)
{
    translation->options[translation->option_count++] = "--std=c++17";
    if (is_minimal && gpr_nvrtc_version() >= MINIMAL_SINCE)
        translation->options[translation->option_count++] = "--minimal";
}

static gpr_status write_program(const gpr_kernel_traits *traits, program_text *program)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[traits->kernel];
    const gpr_entries entries = gpr_program_entries(traits);
    gpr_translation *translation = &program->translation;
    gpr_text *text = &program->text;
    gpr_status status = GPR_OK;

    gpr_write_constants(traits, text);
    write_includes(traits, &entries, text);
    write_first(traits, text);
    gpr_text_add(text, "using Next = gpr::Next<First>;\n");
    write_last(traits, text);
    GPR_TRY(gpr_text_status(text));
    GPR_TRY(write_entries(traits, &entries, program));
    translation->text = text->text;
    translation->name = row->name; /* not the file it includes: NVRTC would take it for that */
    translation->source_count = gpr_program_sources(traits->kernel, translation->sources);
    gpr_program_digest(traits->kernel, translation->source_digest);
    gpr_add_language(translation, (row->flags & GPR_NEEDS_CCCL) == 0);
    if ((row->flags & GPR_NEEDS_CCCL) != 0) GPR_TRY(add_cccl(program));
done:
    return status;
}

/* ---------------------------------------------------------------- the machine code ----------- */

gpr_status gpr_translate(const gpr_translation *translation, const char *target, int use_cache,
                         gpr_object *object, int *compiled)
{
    gpr_text key = {.text = NULL};
    gpr_status status = GPR_OK;

    *object = (gpr_object){0};
    *compiled = 0;
    GPR_TRY(gpr_write_cache_key(translation, target, &key));
    if (use_cache && gpr_cache_read(key.text, object)) {
        if (object->entry_count == translation->entry_count) goto done;
        gpr_object_clear(object);
    }
    GPR_TRY(gpr_nvrtc_compile(translation, target, object));
    *compiled = 1;
    if (use_cache) gpr_cache_write(key.text, object);
done:
    gpr_text_clear(&key);
    return status;
}

gpr_status gpr_make_object(const gpr_kernel_traits *traits, int cc, int use_cache,
                           gpr_object *object, int *compiled)
{
    program_text program = {.translation = {.text = NULL}};
    char target[GPR_TARGET_ROOM];
    gpr_status status = GPR_OK;

    *object = (gpr_object){0};
    *compiled = 0;
    GPR_TRY(gpr_nvrtc_target(cc, target)); /* NVRTC is open from here on, and its version known */
    GPR_TRY(write_program(traits, &program));
    status = gpr_translate(&program.translation, target, use_cache, object, compiled);
done:
    clear_program(&program);
    return status;
}

gpr_status gpr_add_machine_code(const gpr_kernel_traits *traits, int cc, uint64_t *bytes)
{
    gpr_object object = {0};
    int compiled = 0;
    gpr_status status = GPR_OK;

    GPR_TRY(gpr_make_object(traits, cc, 0, &object, &compiled));
    *bytes += object.bytes;
done:
    gpr_object_clear(&object);
    return status;
}

/* A program among those that a kernel has for layouts, as a call of it that is not simple at
 * all. */
typedef struct sample {
    const char *name;
    int kept, reduced, masked;
    uint32_t item_bytes, lanes;
    int integer_bins;
} sample;

/* How many of them row `kernel` has; *samples: the first. A kernel without layouts is its own
 * one. */
static int samples_of(const gpr_kernel_row *row, const gpr_rule *rule, const sample **samples)
{
    enum { BY_PAIRS = 8 }; /* of exact's, of real floats */
    const gpr_acc_kind acc_kind = rule->acc_kind;
    static const sample planned[] = {
        {"fast_stream", 1, 1, 0, 0, 32, 0},   {"fast_rows", 2, 1, 0, 0, 32, 0},
        {"fast_columns", 2, 2, 1, 8, 32, 0},  {"fast_narrow", 1, 1, 0, 8, 32, 0},
        {"fast_strided", 3, 3, 1, 16, 32, 0}, {"fast_empty", 2, 1, 0, 0, 32, 0},
        {"fast_counted", 1, 1, 0, 16, 32, 0}, {"fast_columns", 1, 1, 0, 16, 32, 0},
        {"fast_strided", 1, 1, 0, 16, 32, 0}, {"fast_few", 2, 1, 0, 16, 32, 0},
        {"fast_short", 1, 1, 0, 0, 32, 0},    {"fast_short", 2, 1, 0, 16, 32, 0}};
    static const sample exact[] = {
        {"exact", 1, 1, 0, 0, 32, 0},          {"exact", 1, 1, 0, 0, 32, 1},
        {"exact_strided", 3, 3, 1, 0, 32, 0},  {"exact_strided", 1, 1, 0, 0, 32, 1},
        {"exact_strided", 1, 2, 0, 16, 32, 0}, {"exact_strided", 2, 2, 1, 4, 32, 0},
        {"exact_rows", 2, 2, 1, 0, 4, 0},      {"exact_rows", 2, 1, 0, 0, 8, 1},
        {"exact_rows", 1, 1, 0, 16, 1, 0},     {"fast_stream", 1, 1, 0, 0, 32, 0},
        {"fast_rows", 1, 1, 0, 0, 8, 0},       {"fast_columns", 1, 1, 0, 16, 32, 0},
        {"fast_narrow", 1, 1, 0, 16, 32, 0},   {"fast_few", 1, 1, 0, 16, 32, 0},
        {"fast_strided", 3, 2, 1, 8, 32, 0},   {"fast_short", 1, 1, 0, 0, 32, 0},
        {"fast_short", 1, 1, 0, 16, 32, 0}};
    static const sample moments[] = {{"exact_moments", 2, 1, 0, 0, 32, 0},
                                     {"exact_moments_strided", 3, 3, 1, 0, 32, 0}};
    static const sample only = {NULL, 1, 1, 0, 0, 32, 0};

    if (row->family == GPR_FAMILY_PLANNER) {
        *samples = planned;
        return sizeof planned / sizeof planned[0];
    }
    if (acc_kind == GPR_ACC_EXACT) {
        const int all = sizeof exact / sizeof exact[0];
        *samples = exact;
        return gpr_dtype_rows[rule->element].kind == GPR_KIND_FLOAT ? all : all - BY_PAIRS;
    }
    if (acc_kind == GPR_ACC_EXACT_MOMENTS) {
        *samples = moments;
        return sizeof moments / sizeof moments[0];
    }
    *samples = &only;
    return 1;
}

/* Traits that follow from a kernel, an operator's rule and a block size, whatever the layout;
 * accumulators are not finalized. */
static gpr_kernel_traits traits_of_rule(int kernel, const gpr_rule *rule, uint32_t block_size)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[kernel];

    return (gpr_kernel_traits){.kernel = kernel,
                               .fold = rule->fold,
                               .element = rule->element,
                               .compute = rule->compute,
                               .acc = rule->device_acc,
                               .result = rule->result,
                               .skip_nan = rule->skip_nan,
                               .block = block_size,
                               .lanes = GPR_WARP_LANES,
                               .per_thread = row->per_thread,
                               .item = 1,
                               .kept = 1,
                               .reduced = 1,
                               .variant = row->name};
}

gpr_status gpr_write_program(int kernel, gpr_operator op, gpr_dtype dtype, uint32_t block_size,
                             char *text, uint64_t size)
{
    static const char *const covers[] = {
        [GPR_COVER] = "cover", [GPR_STRIDE] = "stride", [GPR_ONE] = "one"};
    static const char *const finishes[] = {
        [GPR_PASSES] = "passes", [GPR_ATOMIC] = "atomic", [GPR_TICKET] = "ticket"};
    program_text program = {.translation = {.text = NULL}};
    gpr_text all = {.text = NULL};
    gpr_rule rule;
    gpr_status status = GPR_OK;

    if (kernel < 0 || kernel >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", kernel);
    const gpr_kernel_row *row = &gpr_kernel_rows[kernel];
    if (gpr_is_planned(row))
        return gpr_fail(GPR_ERROR_VALUE,
                        "kernel '%s' has several programs: each layout has its own", row->name);
    GPR_TRY(gpr_make_rule(op, dtype, GPR_DTYPE_DEFAULT, &rule));
    gpr_fit_rule(row, &rule);
    GPR_TRY(gpr_check_kernel_folds(row, &rule));
    if (block_size == 0) block_size = row->block;
    GPR_TRY(gpr_check_block_size(row, block_size));
    const gpr_kernel_traits traits = traits_of_rule(kernel, &rule, block_size);
    GPR_TRY(write_program(&traits, &program));
    gpr_text_add(&all, "%s", program.text.text);
    for (int i = 0; i < program.translation.entry_count; i++)
        gpr_text_add(&all, "// %s\n", program.entries[i].text);
    gpr_text_add(&all, "// cover: %s, finish: %s\n", covers[row->cover], finishes[row->finish]);
    if ((row->flags & GPR_COOPERATIVE) != 0) gpr_text_add(&all, "// launch: cooperative\n");
    if (gpr_most_cluster(row) > 1)
        gpr_text_add(&all, "// launch: clusters of %u\n", gpr_most_cluster(row));
    GPR_TRY(gpr_text_status(&all));
    if (strlen(all.text) >= size)
        GPR_TRY(gpr_fail(GPR_ERROR_VALUE, "the program takes %zu bytes", strlen(all.text) + 1));
    memcpy(text, all.text, strlen(all.text) + 1);
done:
    gpr_text_clear(&all);
    clear_program(&program);
    return status;
}

gpr_status gpr_compile_program(int kernel, gpr_operator op, gpr_dtype dtype, gpr_dtype compute,
                               uint32_t block_size, int variant, int cc,
                               uint64_t *machine_code_bytes)
{
    enum { SAMPLE_ROW = 3 }; /* elements */
    uint64_t unasked = 0;
    const sample *samples = NULL;
    gpr_kernel_traits traits;
    gpr_rule rule;
    gpr_status status = GPR_OK;

    if (machine_code_bytes != NULL) *machine_code_bytes = 0;
    if (kernel < 0 || kernel >= GPR_KERNEL_COUNT)
        return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", kernel);
    if (variant < -1)
        return gpr_fail(GPR_ERROR_VALUE, "a variant is counted from 0, or -1 for all, not %d",
                        variant);
    if (kernel == GPR_KERNEL_auto) kernel = GPR_KERNEL_fast; /* what it has beside those of exact */
    const gpr_kernel_row *row = &gpr_kernel_rows[kernel];
    const int is_planned = row->family == GPR_FAMILY_PLANNER;
    GPR_TRY(gpr_make_rule(op, dtype, compute, &rule));
    gpr_fit_rule(row, &rule);
    GPR_TRY(gpr_check_kernel_folds(row, &rule));
    if (block_size == 0) block_size = row->block;
    GPR_TRY(gpr_check_block_size(row, block_size));
    const int layouts = samples_of(row, &rule, &samples);
    const uint32_t most_rows_block = gpr_most_exact_rows_block((unsigned)gpr_exact_parts(dtype));
    /* A variance's programs come twice: about rows' own means, and about given ones. */
    const int count = rule.acc_kind == GPR_ACC_MOMENTS ? 2 * layouts : layouts;
    for (int i = 0; i < count; i++) {
        const sample *chosen = &samples[i % layouts];
        if (variant >= 0 && i != variant % count) continue;
        const int is_of_rows = chosen->name != NULL && strcmp(chosen->name, "exact_rows") == 0;
        const int is_of_fast =
            chosen->name != NULL && strncmp(chosen->name, "fast_", strlen("fast_")) == 0;
        const uint64_t acc_bytes =
            is_planned ? gpr_acc_bytes(rule.acc_kind, rule.device_acc)
                       : gpr_pair_bytes(rule.divide && (chosen->masked || rule.skip_nan));
        uint64_t item = chosen->item_bytes / gpr_dtype_bytes(dtype);
        while (is_of_fast && item > 1 && item * block_size * acc_bytes > GPR_BLOCK_ACC_BYTES)
            item /= 2;
        if (chosen->lanes == 1 && item > GPR_TILE_VECTORS) item = GPR_TILE_VECTORS;
        traits = traits_of_rule(kernel, &rule, block_size);
        traits.finish = gpr_operator_rows[op].finish;
        if (is_of_rows && traits.block > most_rows_block) traits.block = most_rows_block;
        traits.lanes = chosen->lanes;
        traits.per_thread =
            is_of_fast ? gpr_kernel_rows[GPR_KERNEL_fast].per_thread : row->per_thread;
        traits.item = item > 1 ? (uint32_t)item : 1;
        traits.kept = chosen->kept;
        traits.reduced = chosen->reduced;
        traits.masked = chosen->masked;
        traits.has_given_mean = i >= layouts;
        traits.mean = rule.element;
        traits.row_elements = is_of_fast || chosen->lanes == 1 ? SAMPLE_ROW : 0;
        traits.integer_bins = chosen->integer_bins;
        traits.variant = chosen->name != NULL ? chosen->name : row->name;
        traits.copies = i == 0 && gpr_is_planned(row); /* one of them has these, too */
        GPR_TRY(gpr_add_machine_code(&traits, cc,
                                     machine_code_bytes != NULL ? machine_code_bytes : &unasked));
    }
done:
    return status;
}
