/* Programs: the text and the key of traits, when NVRTC compiles and when the disk cache is read,
 * and the target.
 *
 * Keys are read from the cache's own files. NVRTC is the fake one, opened anew in a child process
 * for each setting. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "fakes/fakes.h"
#include "lib/driver/cache.h"
#include "lib/driver/program.h"

enum { HEADER_BYTES = 56, KEY_ROOM = 8192 };

static char root[200];

/* Hides files that are installed on this machine, so that tests do not depend on them. The build
 * reads the second column. */
#define WRAPS(WRAP)                                          \
    WRAP(OWN, dlopen, void *, (const char *path, int flags)) \
    WRAP(OWN, stat, int, (const char *path, struct stat *about))
#define WRAP(kind, name, result, parameters) \
    extern result __real_##name parameters;  \
    extern result __wrap_##name parameters;
WRAPS(WRAP)
#undef WRAP

static int is_installed(const char *path)
{
    return strchr(path, '/') == NULL ||
           strncmp(path, "/usr/local/cuda", strlen("/usr/local/cuda")) == 0;
}

void *__wrap_dlopen(const char *path, int flags)
{
    return is_installed(path) ? NULL : __real_dlopen(path, flags);
}

int __wrap_stat(const char *path, struct stat *about)
{
    return is_installed(path) ? -1 : __real_stat(path, about);
}

/* Runs a body in a process with FAKE_NVRTC=setting and a cache of its own. */
static void in_child(void (*body)(void), const char *name, const char *setting)
{
    int status = 0;

    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        char directory[300];
        (void)snprintf(directory, sizeof directory, "%s/%s", root, name);
        REQUIRE(setenv("FAKE_NVRTC", setting, 1) == 0 &&
                setenv("GPUREDUCE_CACHE_DIR", directory, 1) == 0);
        load_fakes();
        body();
        exit(0);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(status == 0, "%s", name);
}

static void make_traits(gpr_kernel_traits *traits, const char *kernel, gpr_operator op,
                        gpr_dtype dtype, uint32_t block)
{
    gpr_rule rule;

    memset(traits, 0, sizeof *traits);
    REQUIRE(gpr_make_rule(op, dtype, GPR_DTYPE_DEFAULT, &rule) == GPR_OK);
    REQUIRE(gpr_find_kernel(kernel, &traits->kernel) == GPR_OK);
    traits->fold = rule.fold;
    traits->element = rule.element;
    traits->compute = rule.compute;
    traits->acc = rule.device_acc;
    traits->block = block;
    traits->lanes = 32;
    traits->per_thread = gpr_kernel_rows[traits->kernel].per_thread;
    traits->item = 1;
    traits->kept = traits->reduced = 1;
    traits->variant =
        strcmp(kernel, "auto") == 0 ? "fast_stream" : gpr_kernel_rows[traits->kernel].name;
}

/* Makes the object; returns 1 if it was compiled, 0 if the cache had it. */
static int make(const gpr_kernel_traits *traits, int cc, int use_cache)
{
    gpr_object object;
    int compiled = -1;
    const int before = fake.compiles();

    REQUIRE(gpr_make_object(traits, cc, use_cache, &object, &compiled) == GPR_OK);
    REQUIRE(fake.compiles() - before == compiled && object.bytes > 0 && object.entry_count >= 1);
    gpr_object_clear(&object);
    return compiled;
}

static uint64_t count_entries(void)
{
    gpr_cache_info info;

    REQUIRE(gpr_cache_get_info(&info) == GPR_OK);
    return info.entries;
}

/* The key of the only entry. */
static void read_key(char key[KEY_ROOM])
{
    char path[700];
    DIR *listing = opendir(getenv("GPUREDUCE_CACHE_DIR"));
    struct dirent *item = NULL;

    REQUIRE(listing != NULL);
    while ((item = readdir(listing)) != NULL && item->d_name[0] == '.') continue;
    REQUIRE(item != NULL);
    (void)snprintf(path, sizeof path, "%s/%s", getenv("GPUREDUCE_CACHE_DIR"), item->d_name);
    (void)closedir(listing);
    FILE *file = fopen(path, "rb");
    REQUIRE(file != NULL && fseek(file, HEADER_BYTES, SEEK_SET) == 0);
    key[fread(key, 1, KEY_ROOM - 1, file)] = '\0';
    (void)fclose(file);
}

static void expect_in(const char *key, const char *part)
{
    if (strstr(key, part) == NULL) (void)fprintf(stderr, "no \"%s\" in:\n%s\n", part, key);
    REQUIRE(strstr(key, part) != NULL);
}

/* ---------------------------------------------------------------- keys ----------------------- */

static void the_key_has_everything(void)
{
    char key[KEY_ROOM];
    gpr_kernel_traits traits;

    make_traits(&traits, "multi_add_chunks", GPR_OP_SUM, GPR_INT8, 128);
    REQUIRE(make(&traits, 90, 1) == 1);
    read_key(key);
    expect_in(key, "gpureduce " GPR_VERSION "\n");
    expect_in(key, "nvrtc 12060\n");
    expect_in(key, "target sm_90\n");
    expect_in(key, "option --std=c++17\n");
    expect_in(key, "entry gpr::multi_add_chunks<First, 128u>\n");
    expect_in(key, "entry gpr::multi_add_chunks<Next, 128u>\n");
    expect_in(key, "constexpr unsigned per_thread = 8;\n");
    expect_in(key, "constexpr unsigned lanes = 32;\n");
    expect_in(key, "#include \"multi_add_chunks.cuh\"\n");
    expect_in(key, "using First = gpr::KernelTraits<gpr::fold_sum, gpr::dt_int8, gpr::dt_int64, "
                   "gpr::dt_uint64, false>;\n");
    expect_in(key, "constexpr unsigned kept_axes = 1;\n");
}

/* Each thing that traits can differ in makes another entry; nothing else does. */
static void traits_that_differ_have_keys_that_differ(void)
{
    static const char *const kernels[] = {"sequential",  "first_add",       "first_add_halves",
                                          "shfl_atomic", "shfl_atomic_vec", "auto"};
    static const int ccs[] = {75, 90};
    uint64_t programs = 0;

    for (int k = 0; k < 6; k++) {
        /* sum, min, mean, all, argmax, std, ptp, ... */
        for (int op = 0; op < GPR_OP_COUNT; op += 2) {
            for (int dtype = 0; dtype < GPR_DTYPE_COUNT; dtype += 5) {
                if (gpr_result_dtype((gpr_operator)op, (gpr_dtype)dtype, GPR_DTYPE_DEFAULT) ==
                    GPR_DTYPE_DEFAULT)
                    continue;
                for (uint32_t block = 64; block <= 128; block *= 2) {
                    for (int c = 0; c < 2; c++) {
                        gpr_kernel_traits traits;
                        make_traits(&traits, kernels[k], (gpr_operator)op, (gpr_dtype)dtype, block);
                        const int compiled = make(&traits, ccs[c], 1);
                        REQUIRE(make(&traits, ccs[c], 1) == 0); /* the second time it is there */
                        programs += (uint64_t)compiled;
                        /* A mean is a sum: only these may share. */
                        if (op != GPR_OP_MEAN && op != GPR_OP_ANY && op != GPR_OP_ALL)
                            REQUIRE(compiled == 1);
                        REQUIRE(count_entries() == programs);
                    }
                }
            }
        }
    }
    gpr_kernel_traits traits;
    make_traits(&traits, "auto", GPR_OP_SUM, GPR_FLOAT32, 256);
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.variant = "fast_rows";
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.lanes = 8;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.per_thread = 4;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.kept = 2;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.reduced = 2;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.masked = 1;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.item = 4;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.finish = "number";
    traits.result = GPR_FLOAT32;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.finish = "mean";
    REQUIRE(make(&traits, 90, 1) == 1);
    make_traits(&traits, "auto", GPR_OP_VAR, GPR_FLOAT32, 256);
    traits.finish = "variance";
    traits.result = GPR_FLOAT32;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.has_given_mean = 1;
    traits.mean = GPR_FLOAT64;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.mean = GPR_COMPLEX128;
    REQUIRE(make(&traits, 90, 1) == 1 && make(&traits, 90, 1) == 0);
    make_traits(&traits, "auto", GPR_OP_MAX, GPR_FLOAT32, 256);
    traits.finish = "number";
    traits.result = GPR_FLOAT32;
    REQUIRE(make(&traits, 90, 1) == 1);
    traits.has_start = 1;
    REQUIRE(make(&traits, 90, 1) == 1 && make(&traits, 90, 1) == 0);
}

static void the_cache_is_bypassed_when_asked(void)
{
    gpr_kernel_traits traits;

    make_traits(&traits, "sequential", GPR_OP_SUM, GPR_FLOAT32, 256);
    REQUIRE(make(&traits, 90, 0) == 1 && count_entries() == 0);
    REQUIRE(make(&traits, 90, 1) == 1 && make(&traits, 90, 0) == 1 && count_entries() == 1);
}

/* An entry of the wrong shape under the right key is compiled anew. */
static void an_entry_with_other_names_is_not_used(void)
{
    char key[KEY_ROOM];
    gpr_object odd = {.entry_count = 1, .bytes = 4};
    gpr_kernel_traits traits;

    make_traits(&traits, "sequential", GPR_OP_SUM, GPR_INT16, 256);
    REQUIRE(make(&traits, 90, 1) == 1);
    read_key(key);
    char *end = strstr(key, "using Next = gpr::Next<First>;\n");
    REQUIRE(end != NULL);
    end[strlen("using Next = gpr::Next<First>;\n")] = '\0';
    odd.lowered[0] = strdup("name");
    odd.image = strdup("odd");
    gpr_cache_write(key, &odd);
    gpr_object_clear(&odd);
    REQUIRE(count_entries() == 1); /* it is the same key */
    REQUIRE(make(&traits, 90, 1) == 1 && make(&traits, 90, 1) == 0);
}

/* ---------------------------------------------------------------- targets -------------------- */

static void expect_target(int cc, const char *target)
{
    char found[GPR_TARGET_ROOM] = "";

    REQUIRE(gpr_nvrtc_target(cc, found) == GPR_OK);
    if (strcmp(found, target) != 0)
        (void)fprintf(stderr, "%d: %s, expected %s\n", cc, found, target);
    REQUIRE(strcmp(found, target) == 0);
}

static void known_gpus_get_machine_code_and_new_ones_the_nearest_older_ptx(void)
{
    gpr_kernel_traits traits;

    expect_target(80, "sm_80");
    expect_target(86, "compute_80");
    expect_target(90, "sm_90");
    expect_target(121, "compute_90");
    make_traits(&traits, "sequential", GPR_OP_SUM, GPR_INT16, 256);
    REQUIRE(make(&traits, 121, 1) == 1);
}

static void gpus_older_than_nvrtc_compiles_for_are_refused(void)
{
    char target[GPR_TARGET_ROOM];

    REQUIRE(gpr_nvrtc_target(61, target) == GPR_ERROR_DEVICE);
    expect_in(gpr_last_error()->message, "compute capability 8.0 and newer, this GPU has 6.1");
    expect_in(gpr_last_error()->message, "gpureduce[cu12]");
}

static void an_old_nvrtc_is_refused_time_and_again(void)
{
    for (int i = 0; i < 3; i++) {
        REQUIRE(gpr_nvrtc_ready() == GPR_ERROR_DEVICE);
        expect_in(gpr_last_error()->message, "NVRTC 11.8 is too old");
        REQUIRE(!gpr_nvrtc_usable() && gpr_nvrtc_version() == 0);
    }
}

static void expect_no_nvrtc(const char *why)
{
    REQUIRE(gpr_nvrtc_ready() == GPR_ERROR_DEVICE && gpr_nvrtc_version() == 0);
    expect_in(gpr_last_error()->message, why);
}

static void an_nvrtc_without_architectures_is_refused(void)
{
    expect_no_nvrtc("NVRTC reports 0 architectures");
}

static void a_path_that_names_no_library_is_named(void)
{
    REQUIRE(setenv("GPUREDUCE_LIBNVRTC", "/nowhere/libnvrtc.so", 1) == 0);
    expect_no_nvrtc("/nowhere/libnvrtc.so");
}

static void a_library_without_the_functions_is_too_old(void)
{
    REQUIRE(setenv("GPUREDUCE_LIBNVRTC", getenv("GPUREDUCE_LIBCUDA"), 1) == 0);
    expect_no_nvrtc("too old: CUDA 12.0 or newer is needed");
}

static void nvrtc_is_found_where_a_toolkit_has_it(void)
{
    char home[300], path[400], fake_path[600];

    (void)snprintf(fake_path, sizeof fake_path, "%s", getenv("GPUREDUCE_LIBNVRTC"));
    REQUIRE(unsetenv("GPUREDUCE_LIBNVRTC") == 0 && unsetenv("CUDA_PATH") == 0);
    (void)snprintf(home, sizeof home, "%s/toolkit", root);
    REQUIRE(setenv("CUDA_HOME", home, 1) == 0);
    expect_no_nvrtc("pip install 'gpureduce[cu13]'");
    (void)snprintf(path, sizeof path, "%s/lib64", home);
    REQUIRE(mkdir(home, 0700) == 0 && mkdir(path, 0700) == 0);
    (void)snprintf(path, sizeof path, "%s/lib64/libnvrtc.so", home);
    REQUIRE(symlink(fake_path, path) == 0);
    REQUIRE(gpr_set_nvrtc_path(NULL) == GPR_OK); /* look again */
    REQUIRE(gpr_nvrtc_ready() == GPR_OK && gpr_nvrtc_version() == 12090);
}

static void a_path_that_was_set_goes_before_the_usual_places(void)
{
    char path[600];

    (void)snprintf(path, sizeof path, "%s", getenv("GPUREDUCE_LIBNVRTC"));
    REQUIRE(unsetenv("GPUREDUCE_LIBNVRTC") == 0);
    REQUIRE(gpr_set_nvrtc_path(path) == GPR_OK);
    REQUIRE(gpr_nvrtc_ready() == GPR_OK && gpr_nvrtc_version() == 12080);
}

/* ---------------------------------------------------------------- CUB ------------------------ */

static void make_header(const char *directory, const char *text)
{
    char path[500];

    (void)snprintf(path, sizeof path, "%s/cub/version.cuh", directory);
    FILE *header = fopen(path, "w");
    REQUIRE(header != NULL && fputs(text, header) >= 0 && fclose(header) == 0);
}

/* The directory of CUB's headers is found in three ways; which version they are is part of the
 * key. */
static void cub_is_compiled_with_the_headers_that_are_found(void)
{
    char include[400], path[500], option[500];
    gpr_object object;
    gpr_kernel_traits traits;
    int compiled = 0;

    REQUIRE(unsetenv("GPUREDUCE_CCCL") == 0 && unsetenv("CUDA_HOME") == 0 &&
            unsetenv("CUDA_PATH") == 0);
    make_traits(&traits, "cub", GPR_OP_SUM, GPR_INT16, 256);
    REQUIRE(gpr_make_object(&traits, 90, 1, &object, &compiled) == GPR_ERROR_KERNEL);
    expect_in(gpr_last_error()->message, "GPUREDUCE_CCCL");
    REQUIRE(gpr_kernel_available(traits.kernel, 0) == GPR_ERROR_KERNEL);
    (void)snprintf(path, sizeof path, "%s/cuda", root);
    REQUIRE(mkdir(path, 0700) == 0);
    (void)snprintf(include, sizeof include, "%s/cuda/include", root);
    (void)snprintf(path, sizeof path, "%s/cub", include);
    REQUIRE(mkdir(include, 0700) == 0 && mkdir(path, 0700) == 0);
    make_header(include, "one");
    REQUIRE(setenv("GPUREDUCE_CCCL", include, 1) == 0 && make(&traits, 90, 1) == 1);
    REQUIRE(unsetenv("GPUREDUCE_CCCL") == 0);
    REQUIRE(gpr_set_cccl_path(include) == GPR_OK && make(&traits, 90, 1) == 0);
    REQUIRE(gpr_set_cccl_path(NULL) == GPR_OK);
    (void)snprintf(path, sizeof path, "%s/cuda", root);
    REQUIRE(setenv("CUDA_HOME", path, 1) == 0 && make(&traits, 90, 1) == 0);
    char key[KEY_ROOM];
    read_key(key);
    (void)snprintf(option, sizeof option, "option --include-path=%s\n", include);
    expect_in(key, option);
    expect_in(key, "headers 3 "); /* bytes; then when */
    make_header(include, "two, and longer");
    REQUIRE(make(&traits, 90, 1) == 1 && count_entries() == 2);
}

/* ---------------------------------------------------------------- compile errors ------------- */

static void failures_are_not_cached_and_leave_no_program(void)
{
    static const char *const functions[] = {"nvrtcCreateProgram",  "nvrtcAddNameExpression",
                                            "nvrtcCompileProgram", "nvrtcGetLoweredName",
                                            "nvrtcGetCUBINSize",   "nvrtcGetCUBIN"};
    gpr_object object;
    gpr_kernel_traits traits;
    int compiled = 0;

    make_traits(&traits, "sequential", GPR_OP_SUM, GPR_INT16, 256);
    for (int i = 0; i < 6; i++) {
        fake.nvrtc_fail(functions[i], 1, i % 2 ? 11 : 1);
        const gpr_status status = gpr_make_object(&traits, 90, 1, &object, &compiled);
        REQUIRE(status == (i % 2 || i == 2 ? GPR_ERROR_COMPILE : GPR_ERROR_MEMORY));
        REQUIRE(strcmp(gpr_last_error()->call, functions[i]) == 0);
        REQUIRE(object.image == NULL && object.entry_count == 0 && count_entries() == 0 &&
                fake.programs() == 0);
    }
    fake.refuse("Next");
    REQUIRE(gpr_make_object(&traits, 90, 1, &object, &compiled) == GPR_ERROR_COMPILE);
    expect_in(gpr_last_error()->log, "refused: gpr::sequential<Next, 256u>");
    REQUIRE(count_entries() == 0);
    fake.refuse("");
    REQUIRE(make(&traits, 90, 1) == 1);
}

static void text_of_a_program_is_what_the_compiler_receives(void)
{
    char text[4096];

    REQUIRE(gpr_write_program(GPR_KERNEL_last_block, GPR_OP_MAX, GPR_INT16, 64, text,
                              sizeof text) == GPR_OK);
    expect_in(text, "#include \"last_block.cuh\"\n");
    expect_in(text, "gpr::KernelTraits<gpr::fold_max, gpr::dt_int16, ");
    expect_in(text, "// gpr::last_block<First, 64u>\n// cover: stride, finish: ticket\n");
    REQUIRE(gpr_write_program(GPR_KERNEL_last_block, GPR_OP_MAX, GPR_INT16, 64, text,
                              strlen(text)) == GPR_ERROR_VALUE);
    REQUIRE(gpr_write_program(GPR_KERNEL_last_block, GPR_OP_MAX, GPR_INT16, 65, text,
                              sizeof text) == GPR_ERROR_VALUE);
    REQUIRE(gpr_write_program(-1, GPR_OP_SUM, GPR_INT8, 0, text, sizeof text) == GPR_ERROR_VALUE);
    REQUIRE(gpr_write_program(GPR_KERNEL_exact, GPR_OP_SUM, GPR_FLOAT32, 0, text, sizeof text) ==
            GPR_ERROR_VALUE);
}

static void programs_that_do_not_exist_are_refused(void)
{
    uint64_t bytes = 1;

    REQUIRE(gpr_compile_program(-1, GPR_OP_SUM, GPR_INT8, GPR_DTYPE_DEFAULT, 0, -1, 90, &bytes) ==
                GPR_ERROR_VALUE &&
            bytes == 0);
    REQUIRE(gpr_compile_program(GPR_KERNEL_COUNT, GPR_OP_SUM, GPR_INT8, GPR_DTYPE_DEFAULT, 0, -1,
                                90, NULL) == GPR_ERROR_VALUE);
    REQUIRE(gpr_compile_program(GPR_KERNEL_sequential, GPR_OP_SUM, GPR_INT8, GPR_DTYPE_DEFAULT, 33,
                                -1, 90, NULL) == GPR_ERROR_VALUE);
    REQUIRE(gpr_compile_program(GPR_KERNEL_sequential, GPR_OP_MIN, GPR_INT8, GPR_INT16, 0, -1, 90,
                                NULL) == GPR_ERROR_TYPE);
    REQUIRE(gpr_compile_program(GPR_KERNEL_auto, GPR_OP_SUM, GPR_INT8, GPR_DTYPE_DEFAULT, 0, -1, 90,
                                &bytes) == GPR_OK &&
            bytes > 0);
    uint64_t one = 0, sum = 0, again = 0;
    int variants = 0;
    for (; sum < bytes; variants++) {
        REQUIRE(gpr_compile_program(GPR_KERNEL_auto, GPR_OP_SUM, GPR_INT8, GPR_DTYPE_DEFAULT, 0,
                                    variants, 90, &one) == GPR_OK &&
                one > 0);
        sum += one;
    }
    REQUIRE(sum == bytes && variants > 1);
    REQUIRE(gpr_compile_program(GPR_KERNEL_auto, GPR_OP_SUM, GPR_INT8, GPR_DTYPE_DEFAULT, 0,
                                2 * variants - 1, 90, &again) == GPR_OK &&
            again == one);
    /* Variances have each program twice: about means that are given, too. */
    REQUIRE(gpr_compile_program(GPR_KERNEL_auto, GPR_OP_VAR, GPR_INT8, GPR_DTYPE_DEFAULT, 0, -1, 90,
                                &bytes) == GPR_OK);
    sum = 0;
    for (int i = 0; i < 2 * variants; i++) {
        REQUIRE(gpr_compile_program(GPR_KERNEL_auto, GPR_OP_VAR, GPR_INT8, GPR_DTYPE_DEFAULT, 0, i,
                                    90, &one) == GPR_OK);
        sum += one;
    }
    REQUIRE(sum == bytes);
    REQUIRE(gpr_compile_program(GPR_KERNEL_auto, GPR_OP_SUM, GPR_INT8, GPR_DTYPE_DEFAULT, 0, -2, 90,
                                NULL) == GPR_ERROR_VALUE);
    REQUIRE(gpr_compile_program(GPR_KERNEL_exact, GPR_OP_VAR, GPR_FLOAT64, GPR_DTYPE_DEFAULT, 0, -1,
                                90, &bytes) == GPR_OK &&
            gpr_compile_program(GPR_KERNEL_exact, GPR_OP_VAR, GPR_FLOAT64, GPR_DTYPE_DEFAULT, 0, 1,
                                90, &one) == GPR_OK &&
            bytes > one && one > 0);
    REQUIRE(gpr_compile_dot(GPR_FLOAT32, GPR_INT8, GPR_FLOAT32, GPR_DTYPE_DEFAULT, 0, 90, &bytes) ==
                GPR_OK &&
            bytes > 0);
    REQUIRE(gpr_compile_dot(GPR_FLOAT32, GPR_INT8, GPR_FLOAT32, GPR_COMPLEX64, 96, 90, NULL) ==
            GPR_OK);
    REQUIRE(gpr_compile_dot(GPR_FLOAT32, GPR_INT8, GPR_FLOAT32, GPR_DTYPE_DEFAULT, 33, 90,
                            &bytes) == GPR_ERROR_VALUE &&
            bytes == 0);
    REQUIRE(gpr_compile_dot(GPR_FLOAT32, GPR_INT8, GPR_FLOAT32, GPR_INT8, 0, 90, NULL) ==
            GPR_ERROR_TYPE);
    REQUIRE(gpr_compile_dot(GPR_FLOAT32, GPR_DTYPE_COUNT, GPR_FLOAT32, GPR_DTYPE_DEFAULT, 0, 90,
                            NULL) == GPR_ERROR_VALUE);
    REQUIRE(count_entries() == 0); /* the cache is not for these */
}

int main(void)
{
    const char *temporary = getenv("TMPDIR");
    char command[300];

    check_begin();
    (void)snprintf(root, sizeof root, "%s/gpureduce-program-XXXXXX",
                   temporary != NULL ? temporary : "/tmp");
    REQUIRE(mkdtemp(root) != NULL && unsetenv("GPUREDUCE_CACHE_BYTES") == 0);
    in_child(the_key_has_everything, "the key has everything", "version=12060");
    in_child(traits_that_differ_have_keys_that_differ, "traits that differ have keys that differ",
             "");
    in_child(the_cache_is_bypassed_when_asked, "the cache is bypassed when asked", "");
    in_child(an_entry_with_other_names_is_not_used, "an entry with other names is not used", "");
    in_child(known_gpus_get_machine_code_and_new_ones_the_nearest_older_ptx, "targets",
             "archs=75:80:90");
    in_child(gpus_older_than_nvrtc_compiles_for_are_refused, "old GPUs", "archs=80:90");
    in_child(an_old_nvrtc_is_refused_time_and_again, "old nvrtc", "version=11080");
    in_child(an_nvrtc_without_architectures_is_refused, "no architectures", "archs=");
    in_child(a_path_that_names_no_library_is_named, "no library", "");
    in_child(a_library_without_the_functions_is_too_old, "no functions", "");
    in_child(nvrtc_is_found_where_a_toolkit_has_it, "toolkit's", "version=12090");
    in_child(a_path_that_was_set_goes_before_the_usual_places, "path", "version=12080");
    in_child(cub_is_compiled_with_the_headers_that_are_found, "cub", "");
    in_child(failures_are_not_cached_and_leave_no_program, "failures are not cached", "");
    in_child(text_of_a_program_is_what_the_compiler_receives,
             "the text of a program is what the compiler receives", "");
    in_child(programs_that_do_not_exist_are_refused, "programs that do not exist are refused", "");
    (void)snprintf(command, sizeof command, "rm -r '%s'", root);
    CHECK(system(command) == 0, "%s", command);
    return check_end();
}
