/* From a traits to machine code: the program's text, its key, the disk cache, NVRTC. */
#include "lib/driver/program.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/sha256.h"
#include "lib/driver/cache.h"
#include "shared/tuning.h"

enum {
    TEXT_ROOM = 1024,
    LAST_ROOM = 128,
    PAIR_ROOM = 32,
    FINISH_ROOM = 64,
    ENTRY_ROOM = 96,
    KEY_ROOM = 8192,
    PATH_ROOM = 1024,
    MINIMAL_SINCE = 12040
};

/* ---------------------------------------------------------------- CUB's headers -------------- */

static pthread_mutex_t cccl_lock = PTHREAD_MUTEX_INITIALIZER;
static char *cccl_path; /* from gpr_set_cccl_path */

gpr_status gpr_set_cccl_path(const char *directory)
{
    char *copy = NULL;

    if (directory != NULL) {
        copy = strdup(directory);
        if (copy == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    }
    pthread_mutex_lock(&cccl_lock);
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
    const char *const roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    int found = has_cub(getenv("GPUREDUCE_CCCL"), "", path);

    pthread_mutex_lock(&cccl_lock);
    if (!found) found = has_cub(cccl_path, "", path);
    pthread_mutex_unlock(&cccl_lock);
    for (size_t i = 0; i < sizeof roots / sizeof roots[0] && !found; i++) {
        found = has_cub(roots[i], "/include/cccl", path) || has_cub(roots[i], "/include", path);
    }
    if (found) return GPR_OK;
    return gpr_fail(GPR_ERROR_KERNEL,
                    "kernel 'cub' compiles NVIDIA's CUB headers, which are not installed. Install them with pip "
                    "install 'gpureduce[cub]', or set GPUREDUCE_CCCL to the directory that holds cub/");
}

gpr_status gpr_kernel_headers(int kernel)
{
    char path[PATH_ROOM];

    return (gpr_kernel_rows[kernel].flags & GPR_NEEDS_CCCL) != 0 ? find_cccl(path) : GPR_OK;
}

/* ---------------------------------------------------------------- the text ------------------- */

/* Whether the kernel itself makes results of what it sums, rather than finalize_rows after it. */
static int makes_results(const gpr_kernel_row *row)
{
    return row->family == GPR_FAMILY_PLANNER || (row->flags & GPR_SUMS_EXACTLY) != 0;
}

gpr_entries gpr_program_entries(const gpr_kernel_traits *traits)
{
    const gpr_kernel_row *row = &gpr_kernel_rows[traits->kernel];
    const int same = traits->element == traits->acc && traits->compute == traits->acc && !traits->skip_nan &&
                     traits->fold != GPR_FOLD_count && gpr_fold_rows[traits->fold].acc_kind == GPR_ACC_NUMBER;
    gpr_entries entries = {.first = 0, .next = -1, .fill = -1, .finish = -1};

    if (row->finish == GPR_ATOMIC) entries.fill = 1;
    if (row->finish == GPR_PASSES && row->cover != GPR_ONE) entries.next = same ? 0 : 1;
    if (traits->finish != NULL && !makes_results(row)) entries.finish = entries.fill > 0 || entries.next > 0 ? 2 : 1;
    return entries;
}

/* A translation and the memory it points to. */
typedef struct program_text {
    char text[TEXT_ROOM];
    char entries[GPR_MAX_ENTRIES][ENTRY_ROOM];
    char include[PATH_ROOM + 16];
    char header_stamp[64]; /* of CUB: size and time of its version file */
    gpr_translation translation;
} program_text;

static gpr_status add_cccl(program_text *program)
{
    char path[PATH_ROOM], header[PATH_ROOM + 32];
    struct stat about = {0};
    gpr_status status = find_cccl(path);

    if (status != GPR_OK) return status;
    (void)snprintf(program->include, sizeof program->include, "--include-path=%s", path);
    (void)snprintf(header, sizeof header, "%s/cub/version.cuh", path);
    (void)stat(header, &about);
    (void)snprintf(program->header_stamp, sizeof program->header_stamp, "%lld %lld", (long long)about.st_size,
                   (long long)about.st_mtime);
    program->translation.options[program->translation.option_count++] = program->include;
    return GPR_OK;
}

/* The file that a traits's program includes: each variant of a kernel that sums exactly has its own, or is in the kernel's. */
static void find_file(const gpr_kernel_traits *traits, char file[ENTRY_ROOM])
{
    const gpr_kernel_row *row = &gpr_kernel_rows[traits->kernel];

    if (gpr_is_exact(gpr_fold_rows[traits->fold].acc_kind))
        (void)snprintf(file, ENTRY_ROOM, "%s.cuh", traits->variant);
    else
        (void)snprintf(file, ENTRY_ROOM, "%s", row->file);
}

/* What comes before and after the traits of one array, where there are two. */
static void write_pairing(const gpr_kernel_traits *traits, char before[PAIR_ROOM], char after[PAIR_ROOM])
{
    before[0] = after[0] = '\0';
    if (gpr_fold_rows[traits->fold].acc_kind != GPR_ACC_EXACT_PRODUCTS) return;
    (void)snprintf(before, PAIR_ROOM, "gpr::Paired<");
    (void)snprintf(after, PAIR_ROOM, ", gpr::dt_%s>", gpr_dtype_name(traits->second));
}

/* The way from accumulators to results. */
static void write_finish(const gpr_kernel_traits *traits, char finish[FINISH_ROOM])
{
    if (traits->has_given_mean)
        (void)snprintf(finish, FINISH_ROOM, "gpr::GivenMean<gpr::finish_%s, gpr::dt_%s>", traits->finish,
                       gpr_dtype_name(traits->mean));
    else
        (void)snprintf(finish, FINISH_ROOM, "gpr::finish_%s", traits->finish);
}

static gpr_status write_program(const gpr_kernel_traits *traits, program_text *program)
{
    static const char *const structures[] = {
        [GPR_ACC_NUMBER] = "",
        [GPR_ACC_INDEXED] = "gpr::Indexed<",
        [GPR_ACC_MOMENTS] = "gpr::Moments<",
        [GPR_ACC_RANGE] = "gpr::Range<",
        [GPR_ACC_SUM_COUNT] = "gpr::SumCount<",
        [GPR_ACC_EXACT] = "gpr::ExactSum<",
        [GPR_ACC_EXACT_MOMENTS] = "gpr::ExactMoments<",
        [GPR_ACC_EXACT_PRODUCTS] = "gpr::ExactProducts<",
    };
    const gpr_kernel_row *row = &gpr_kernel_rows[traits->kernel];
    const char *structure = structures[gpr_fold_rows[traits->fold].acc_kind];
    const gpr_entries entries = gpr_program_entries(traits);
    gpr_translation *translation = &program->translation;

    char last[LAST_ROOM] = "", finish[FINISH_ROOM], file[ENTRY_ROOM], before[PAIR_ROOM], after[PAIR_ROOM];

    memset(program, 0, sizeof *program);
    find_file(traits, file);
    write_pairing(traits, before, after);
    if (traits->finish != NULL) {
        write_finish(traits, finish);
        (void)snprintf(last, sizeof last, "using Last = gpr::Finished<First, gpr::dt_%s, %s>;\n",
                       gpr_dtype_name(traits->result), finish);
    } else if (makes_results(row)) {
        (void)snprintf(last, sizeof last, "using Last = gpr::Unfinished<First>;\n");
    }
    (void)snprintf(program->text, sizeof program->text,
                   "namespace gpr {\n"
                   "constexpr unsigned per_thread = %u;\n"
                   "constexpr unsigned lanes = %u;\n"
                   "constexpr unsigned kept_axes = %d;\n"
                   "constexpr unsigned reduced_axes = %d;\n"
                   "constexpr bool masked = %s;\n"
                   "constexpr unsigned item = %u;\n"
                   "constexpr unsigned row_elements = %u;\n"
                   "constexpr bool integer_bins = %s;\n"
                   "}\n"
                   "#include \"%s\"\n"
                   "%s"
                   "using First = %sgpr::KernelTraits<gpr::fold_%s, gpr::dt_%s, gpr::dt_%s, %sgpr::dt_%s%s, %s>%s;\n"
                   "using Next = gpr::Next<First>;\n"
                   "%s",
                   traits->per_thread, traits->lanes, traits->kept, traits->reduced, traits->masked ? "true" : "false",
                   traits->item, traits->row_elements, traits->integer_bins ? "true" : "false", file,
                   entries.finish > 0 ? "#include \"finalize_rows.cuh\"\n" : "", before,
                   gpr_fold_rows[traits->fold].name, gpr_dtype_name(traits->element), gpr_dtype_name(traits->compute),
                   structure, gpr_dtype_name(traits->acc), structure[0] != '\0' ? ">" : "",
                   traits->skip_nan ? "true" : "false", after, last);
    (void)snprintf(program->entries[0], ENTRY_ROOM, "gpr::%s<%s, %uu>", traits->variant,
                   makes_results(row) ? "Last" : "First", traits->block);
    translation->entry_count = 1;
    if (entries.next > 0) {
        (void)snprintf(program->entries[entries.next], ENTRY_ROOM, "gpr::%s<Next, %uu>", traits->variant,
                       traits->block);
        translation->entry_count++;
    }
    if (entries.fill > 0) {
        (void)snprintf(program->entries[entries.fill], ENTRY_ROOM, "gpr::fill_identity<First>");
        translation->entry_count++;
    }
    if (entries.finish > 0) {
        (void)snprintf(program->entries[entries.finish], ENTRY_ROOM, "gpr::finalize_rows<Last>");
        translation->entry_count++;
    }
    for (int i = 0; i < translation->entry_count; i++) translation->entries[i] = program->entries[i];
    translation->text = program->text;
    translation->name = row->name; /* not the file it includes: NVRTC would take it for that */
    translation->source_count = gpr_program_sources(traits->kernel, translation->sources);
    translation->options[translation->option_count++] = "--std=c++17";
    if ((row->flags & GPR_NEEDS_CCCL) != 0) return add_cccl(program);
    /* Our own files need nothing of the CUDA runtime's declarations: without them a program compiles 5 to 10 ms sooner. */
    if (gpr_nvrtc_version() >= MINIMAL_SINCE) translation->options[translation->option_count++] = "--minimal";
    return GPR_OK;
}

/* ---------------------------------------------------------------- the key -------------------- */

/* Everything that decides the machine code, as text. */
static void write_key(const program_text *program, const char *target, char key[KEY_ROOM])
{
    const gpr_translation *translation = &program->translation;
    uint8_t digest[GPR_SHA256_BYTES];
    char hex[GPR_SHA256_HEX];
    gpr_sha256 hash;
    int length = 0;

    gpr_sha256_begin(&hash);
    for (int i = 0; i < translation->source_count; i++) {
        gpr_sha256_add(&hash, translation->sources[i].name, strlen(translation->sources[i].name) + 1);
        gpr_sha256_add(&hash, translation->sources[i].text, strlen(translation->sources[i].text) + 1);
    }
    gpr_sha256_end(&hash, digest);
    gpr_sha256_hex(digest, hex);
    length = snprintf(key, KEY_ROOM, "gpureduce %s\nnvrtc %d\ntarget %s\nsources %s\nheaders %s\n", gpr_version(),
                      gpr_nvrtc_version(), target, hex, program->header_stamp);
    for (int i = 0; i < translation->option_count; i++) {
        length += snprintf(key + length, (size_t)(KEY_ROOM - length), "option %s\n", translation->options[i]);
    }
    for (int i = 0; i < translation->entry_count; i++) {
        length += snprintf(key + length, (size_t)(KEY_ROOM - length), "entry %s\n", translation->entries[i]);
    }
    (void)snprintf(key + length, (size_t)(KEY_ROOM - length), "%s", program->text);
}

_Static_assert(KEY_ROOM > TEXT_ROOM + GPR_MAX_ENTRIES * ENTRY_ROOM + 2 * PATH_ROOM + 1024,
               "KEY_ROOM is too small for a key");

gpr_status gpr_make_object(const gpr_kernel_traits *traits, int cc, int use_cache, gpr_object *object, int *compiled)
{
    program_text *program = malloc(sizeof *program);
    char *key = malloc(KEY_ROOM);
    char target[GPR_TARGET_ROOM];
    gpr_status status = GPR_OK;

    *object = (gpr_object){0};
    *compiled = 0;
    if (program == NULL || key == NULL) {
        status = gpr_fail(GPR_ERROR_MEMORY, "out of memory");
        goto done;
    }
    GPR_TRY(gpr_nvrtc_target(cc, target)); /* NVRTC is open from here on, and its version known */
    GPR_TRY(write_program(traits, program));
    write_key(program, target, key);
    if (use_cache && gpr_cache_read(key, object)) {
        if (object->entry_count == program->translation.entry_count) goto done;
        gpr_object_clear(object);
    }
    GPR_TRY(gpr_nvrtc_compile(&program->translation, target, object));
    *compiled = 1;
    if (use_cache) gpr_cache_write(key, object);
done:
    free(key);
    free(program);
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

/* A program among those that a kernel has for layouts, as a call of it that is not simple at all. */
typedef struct sample {
    const char *name;
    int kept, reduced, masked;
    uint32_t item_bytes, lanes;
    int integer_bins;
} sample;

/* How many of them row `kernel` has; *samples: the first. A kernel without layouts is its own one. */
static int samples_of(const gpr_kernel_row *row, gpr_acc_kind acc_kind, const sample **samples)
{
    static const sample planned[] = {{"fast_stream", 1, 1, 0, 0, 32, 0},   {"fast_rows", 2, 1, 0, 0, 32, 0},
                                     {"fast_columns", 2, 2, 1, 8, 32, 0},  {"fast_narrow", 1, 1, 0, 8, 32, 0},
                                     {"fast_strided", 3, 3, 1, 16, 32, 0}, {"fast_empty", 2, 1, 0, 0, 32, 0},
                                     {"fast_counted", 1, 1, 0, 16, 32, 0}, {"fast_columns", 1, 1, 0, 16, 32, 0},
                                     {"fast_strided", 1, 1, 0, 16, 32, 0}};
    static const sample exact[] = {{"exact", 1, 1, 0, 0, 32, 0},          {"exact", 1, 1, 0, 0, 32, 1},
                                   {"exact_strided", 3, 3, 1, 0, 32, 0},  {"exact_strided", 1, 1, 0, 0, 32, 1},
                                   {"exact_strided", 1, 2, 0, 16, 32, 0}, {"exact_strided", 2, 2, 1, 4, 32, 0},
                                   {"exact_rows", 2, 2, 1, 0, 4, 0},      {"exact_rows", 2, 1, 0, 0, 8, 1},
                                   {"exact_rows", 1, 1, 0, 16, 1, 0}};
    static const sample moments[] = {{"exact_moments", 2, 1, 0, 0, 32, 0},
                                     {"exact_moments_strided", 3, 3, 1, 0, 32, 0}};
    static const sample only = {NULL, 1, 1, 0, 0, 32, 0};

    if (row->family == GPR_FAMILY_PLANNER) {
        *samples = planned;
        return sizeof planned / sizeof planned[0];
    }
    if (acc_kind == GPR_ACC_EXACT) {
        *samples = exact;
        return sizeof exact / sizeof exact[0];
    }
    if (acc_kind == GPR_ACC_EXACT_MOMENTS) {
        *samples = moments;
        return sizeof moments / sizeof moments[0];
    }
    *samples = &only;
    return 1;
}

gpr_status gpr_compile_program(int kernel, gpr_operator op, gpr_dtype dtype, gpr_dtype compute, uint32_t block_size,
                               int variant, int cc, uint64_t *machine_code_bytes)
{
    enum { SAMPLE_ROW = 3 }; /* elements */
    uint64_t unasked = 0;
    const sample *samples = NULL;
    gpr_kernel_traits traits;
    gpr_rule rule;
    gpr_status status = GPR_OK;

    if (machine_code_bytes != NULL) *machine_code_bytes = 0;
    if (kernel < 0 || kernel >= GPR_KERNEL_COUNT) return gpr_fail(GPR_ERROR_VALUE, "no kernel has index %d", kernel);
    if (variant < -1) return gpr_fail(GPR_ERROR_VALUE, "a variant is counted from 0, or -1 for all, not %d", variant);
    if (kernel == GPR_KERNEL_auto) kernel = GPR_KERNEL_fast; /* what it has beside those of exact */
    const gpr_kernel_row *row = &gpr_kernel_rows[kernel];
    const int is_planned = row->family == GPR_FAMILY_PLANNER;
    GPR_TRY(gpr_make_rule(op, dtype, compute, &rule));
    gpr_fit_rule(row, &rule);
    GPR_TRY(gpr_check_kernel_folds(row, &rule));
    if (block_size == 0) block_size = row->block;
    GPR_TRY(gpr_check_block_size(row, block_size));
    const int layouts = samples_of(row, rule.acc_kind, &samples);
    const uint32_t most_rows_block = gpr_most_exact_rows_block((unsigned)gpr_exact_parts(dtype));
    /* A variance's programs come twice: about rows' own means, and about given ones. */
    const int count = rule.acc_kind == GPR_ACC_MOMENTS ? 2 * layouts : layouts;
    for (int i = 0; i < count; i++) {
        const sample *chosen = &samples[i % layouts];
        if (variant >= 0 && i != variant % count) continue;
        const int is_of_rows = chosen->name != NULL && strcmp(chosen->name, "exact_rows") == 0;
        uint64_t item = chosen->item_bytes / gpr_dtype_bytes(dtype);
        while (is_planned && item > 1 &&
               item * block_size * gpr_acc_bytes(rule.acc_kind, rule.device_acc) > GPR_BLOCK_ACC_BYTES)
            item /= 2;
        if (chosen->lanes == 1 && item > GPR_TILE_VECTORS) item = GPR_TILE_VECTORS;
        memset(&traits, 0, sizeof traits);
        traits.kernel = kernel;
        traits.fold = rule.fold;
        traits.element = rule.element;
        traits.compute = rule.compute;
        traits.acc = rule.device_acc;
        traits.finish = gpr_operator_rows[op].finish;
        traits.result = rule.result;
        traits.skip_nan = rule.skip_nan;
        traits.block = block_size;
        if (is_of_rows && traits.block > most_rows_block) traits.block = most_rows_block;
        traits.lanes = chosen->lanes;
        traits.per_thread = row->per_thread;
        traits.item = item > 1 ? (uint32_t)item : 1;
        traits.kept = chosen->kept;
        traits.reduced = chosen->reduced;
        traits.masked = chosen->masked;
        traits.has_given_mean = i >= layouts;
        traits.mean = rule.element;
        traits.row_elements = is_planned || chosen->lanes == 1 ? SAMPLE_ROW : 0;
        traits.integer_bins = chosen->integer_bins;
        traits.variant = chosen->name != NULL ? chosen->name : row->name;
        GPR_TRY(gpr_add_machine_code(&traits, cc, machine_code_bytes != NULL ? machine_code_bytes : &unasked));
    }
done:
    return status;
}
