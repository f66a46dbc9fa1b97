/* Opening and calling NVRTC. A lock covers the opening; any number of threads compile at the same
 * time. */
#include "lib/driver/nvrtc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/environment.h"

enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_OUT_OF_MEMORY = 1, OLDEST_NVRTC = 12000 };
enum { COMPILER_STACK_BYTES = 8 << 20 };

static struct {
#define RT(member, arguments) int(*member) arguments;
    GPR_NVRTC_FUNCTIONS(RT)
#undef RT
    const char *(*GetErrorString)(int result);
} nvrtc;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int version;  /* not 0: open */
static atomic_int unusable; /* looked for in vain: not looked for again until a path is set */
static char reason[900];    /* why, under lock */
static char *set_path;      /* from gpr_set_nvrtc_path, under lock */
static int archs[64], arch_count;

/* ---------------------------------------------------------------- opening -------------------- */

static gpr_status check(int result, const char *call)
{
    char name[64];

    if (result == NVRTC_SUCCESS) return GPR_OK;
    (void)snprintf(name, sizeof name, "nvrtc%s", call);
    (void)gpr_fail(result == NVRTC_ERROR_OUT_OF_MEMORY ? GPR_ERROR_MEMORY : GPR_ERROR_COMPILE,
                   "%s failed: %s (%d)", name, nvrtc.GetErrorString(result), result);
    return gpr_fail_call(name, result, nvrtc.GetErrorString(result));
}

#define RT_TRY(function, ...) GPR_TRY(check(nvrtc.function(__VA_ARGS__), #function))

static void *open_in(const char *root, const char *folder)
{
    char path[1024];
    void *library = NULL;

    if (root != NULL &&
        snprintf(path, sizeof path, "%s/%s/libnvrtc.so", root, folder) < (int)sizeof path) {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* Opens NVRTC, or records why it cannot. */
static void *open_library(void)
{
    const char *named = gpr_environment("GPUREDUCE_LIBNVRTC");
    const char *const roots[] = {gpr_environment("CUDA_HOME"), gpr_environment("CUDA_PATH"),
                                 "/usr/local/cuda"};
    void *library = NULL;

    if (named != NULL) {
        library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            (void)snprintf(reason, sizeof reason,
                           "GPUREDUCE_LIBNVRTC names no NVRTC that can be opened: %.600s. Correct "
                           "it, or unset it",
                           dlerror());
        return library;
    }
    if (set_path != NULL) library = dlopen(set_path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) library = dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) library = dlopen("libnvrtc.so.12", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof roots / sizeof roots[0] && library == NULL; i++)
        library = open_in(roots[i], "lib64");
    if (library == NULL) {
        (void)snprintf(reason, sizeof reason,
                       "NVRTC, which compiles the kernels, is not installed. Install it with pip "
                       "install 'gpureduce[cu13]' (driver 580 or newer) or 'gpureduce[cu12]', or "
                       "install the CUDA toolkit");
    }
    return library;
}

/* Fills in the table, or records why it cannot. */
static int open_locked(void)
{
    int major = 0, minor = 0, count = 0;
    void *library = open_library();
    gpr_status status = GPR_OK;

    if (library == NULL) return 0;
#define RT(member, arguments) *(void **)&nvrtc.member = dlsym(library, "nvrtc" #member);
    GPR_NVRTC_FUNCTIONS(RT)
    RT(GetErrorString, )
#undef RT
#define RT(member, arguments) || nvrtc.member == NULL
    if (nvrtc.GetErrorString == NULL GPR_NVRTC_FUNCTIONS(RT)) {
#undef RT
        (void)snprintf(
            reason, sizeof reason,
            "the NVRTC that was found is too old: CUDA 12.0 or newer is needed. Install it with "
            "pip install 'gpureduce[cu13]' or 'gpureduce[cu12]'");
        dlclose(library);
        return 0;
    }
    RT_TRY(Version, &major, &minor);
    if (1000 * major + 10 * minor < OLDEST_NVRTC) {
        status = gpr_fail(
            GPR_ERROR_DEVICE,
            "NVRTC %d.%d is too old: CUDA 12.0 or newer is needed. Install it with pip install "
            "'gpureduce[cu13]' or 'gpureduce[cu12]'",
            major, minor);
        goto done;
    }
    RT_TRY(GetNumSupportedArchs, &count);
    if (count < 1 || count > (int)(sizeof archs / sizeof archs[0])) {
        status = gpr_fail(GPR_ERROR_COMPILE, "NVRTC reports %d architectures", count);
        goto done;
    }
    RT_TRY(GetSupportedArchs, archs);
    arch_count = count;
    atomic_store_explicit(&version, 1000 * major + 10 * minor, memory_order_release);
done:
    if (status != GPR_OK) {
        (void)snprintf(reason, sizeof reason, "%.*s", (int)sizeof reason - 1,
                       gpr_last_error()->message);
        dlclose(library);
    }
    return status == GPR_OK;
}

/* A child that was forked while another thread was at work here has a lock that nobody will
 * release. */
static void after_fork_in_child(void)
{
    (void)pthread_mutex_init(&lock, NULL);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

static void take_lock(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
}

gpr_status gpr_nvrtc_ready(void)
{
    gpr_status status = GPR_OK;

    if (gpr_nvrtc_version() != 0) return GPR_OK;
    take_lock();
    if (gpr_nvrtc_version() == 0) {
        if (!atomic_load(&unusable)) atomic_store(&unusable, !open_locked());
        if (atomic_load(&unusable)) status = gpr_fail(GPR_ERROR_DEVICE, "%s", reason);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int gpr_nvrtc_usable(void)
{
    return !atomic_load(&unusable) && gpr_nvrtc_ready() == GPR_OK;
}

int gpr_nvrtc_version(void)
{
    return atomic_load_explicit(&version, memory_order_acquire);
}

gpr_status gpr_set_nvrtc_path(const char *path)
{
    char *copy = NULL;

    if (path != NULL) {
        copy = strdup(path);
        if (copy == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    }
    take_lock();
    free(set_path);
    set_path = copy;
    atomic_store(&unusable, 0);
    pthread_mutex_unlock(&lock);
    return GPR_OK;
}

/* ---------------------------------------------------------------- compiling ------------------ */

gpr_status gpr_nvrtc_target(int cc, char target[GPR_TARGET_ROOM])
{
    int newest_older = 0, oldest = 1 << 20;
    gpr_status status = gpr_nvrtc_ready();

    if (status != GPR_OK) return status;
    for (int i = 0; i < arch_count; i++) {
        if (archs[i] == cc) {
            (void)snprintf(target, GPR_TARGET_ROOM, "sm_%d", cc);
            return GPR_OK;
        }
        if (archs[i] < cc && archs[i] > newest_older) newest_older = archs[i];
        if (archs[i] < oldest) oldest = archs[i];
    }
    if (newest_older == 0) {
        return gpr_fail(GPR_ERROR_DEVICE,
                        "NVRTC %d.%d compiles for compute capability %d.%d and newer, this GPU has "
                        "%d.%d. Install an older NVRTC with pip install 'gpureduce[cu12]'",
                        gpr_nvrtc_version() / 1000, gpr_nvrtc_version() % 1000 / 10, oldest / 10,
                        oldest % 10, cc / 10, cc % 10);
    }
    (void)snprintf(target, GPR_TARGET_ROOM, "compute_%d", newest_older);
    return GPR_OK;
}

void gpr_object_clear(gpr_object *object)
{
    for (int i = 0; i < object->entry_count; i++) free(object->lowered[i]);
    free(object->image);
    *object = (gpr_object){0};
}

static void record_log(nvrtc_program program)
{
    size_t bytes = 0;
    char *log = NULL;

    if (nvrtc.GetProgramLogSize(program, &bytes) != NVRTC_SUCCESS || bytes == 0) return;
    log = malloc(bytes + 1);
    if (log == NULL) return;
    if (nvrtc.GetProgramLog(program, log) != NVRTC_SUCCESS) {
        free(log);
        return;
    }
    log[bytes] = '\0';
    gpr_fail_log(log);
}

static int has_option(const gpr_translation *translation, const char *option)
{
    int found = 0;

    for (int i = 0; i < translation->option_count; i++)
        found |= strcmp(translation->options[i], option) == 0;
    return found;
}

static gpr_status take_object(nvrtc_program program, const gpr_translation *translation,
                              int machine_code, gpr_object *object)
{
    const int is_linked = has_option(translation, "-dlto");
    gpr_status status = GPR_OK;

    for (int i = 0; i < translation->entry_count; i++) {
        const char *lowered = NULL;
        RT_TRY(GetLoweredName, program, translation->entries[i], &lowered);
        object->lowered[i] = strdup(lowered);
        if (object->lowered[i] == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
        object->entry_count = i + 1;
    }
    if (is_linked) {
        RT_TRY(GetLTOIRSize, program, &object->bytes);
    } else if (machine_code) {
        RT_TRY(GetCUBINSize, program, &object->bytes);
    } else {
        RT_TRY(GetPTXSize, program, &object->bytes);
    }
    object->image = malloc(object->bytes + 1);
    if (object->image == NULL) return gpr_fail(GPR_ERROR_MEMORY, "out of memory");
    if (is_linked) {
        RT_TRY(GetLTOIR, program, object->image);
    } else if (machine_code) {
        RT_TRY(GetCUBIN, program, object->image);
    } else {
        RT_TRY(GetPTX, program, object->image);
    }
done:
    return status;
}

/* A call of nvrtcCompileProgram. */
typedef struct compilation {
    nvrtc_program program;
    int option_count;
    const char *const *options;
    int result;
} compilation;

static void *run_compiler(void *argument)
{
    compilation *work = argument;

    work->result = nvrtc.CompileProgram(work->program, work->option_count, work->options);
    return NULL;
}

/* Compiles in a thread of its own: the compiler needs more stack than callers may have. Signals
 * stay with the program's threads. Without such a thread, in the caller's. */
static int compile_program(compilation *work)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    int is_started = 0;

    if (pthread_attr_init(&attributes) == 0) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        is_started = pthread_attr_setstacksize(&attributes, COMPILER_STACK_BYTES) == 0 &&
                     pthread_create(&thread, &attributes, run_compiler, work) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
    }
    if (is_started)
        (void)pthread_join(thread, NULL);
    else
        (void)run_compiler(work);
    return work->result;
}

static gpr_status compile_translation(const gpr_translation *translation, const char *target,
                                      gpr_object *object)
{
    const char *names[GPR_PROGRAM_SOURCES], *texts[GPR_PROGRAM_SOURCES],
        *options[GPR_MAX_OPTIONS + 2];
    char architecture[40];
    nvrtc_program program = NULL;
    int option_count = 0;
    gpr_status status = GPR_OK;

    for (int i = 0; i < translation->source_count; i++) {
        names[i] = translation->sources[i].name;
        texts[i] = translation->sources[i].text;
    }
    (void)snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", target);
    options[option_count++] = architecture;
    for (int i = 0; i < translation->option_count; i++)
        options[option_count++] = translation->options[i];

    RT_TRY(CreateProgram, &program, translation->text, translation->name, translation->source_count,
           texts, names);
    for (int i = 0; i < translation->entry_count; i++)
        RT_TRY(AddNameExpression, program, translation->entries[i]);

    compilation work = {.program = program, .option_count = option_count, .options = options};
    const int result = compile_program(&work);
    if (result != NVRTC_SUCCESS) {
        (void)gpr_fail(
            GPR_ERROR_COMPILE,
            "NVRTC cannot compile %s for %s: %s; the exception's log has the compiler's messages",
            translation->name, target, nvrtc.GetErrorString(result));
        status = gpr_fail_call("nvrtcCompileProgram", result, nvrtc.GetErrorString(result));
        record_log(program);
        goto done;
    }
    GPR_TRY(take_object(program, translation, strncmp(target, "sm_", 3) == 0, object));
done:
    if (program != NULL) (void)nvrtc.DestroyProgram(&program);
    return status;
}

gpr_status gpr_nvrtc_compile(const gpr_translation *translation, const char *target,
                             gpr_object *object)
{
    gpr_status status = gpr_nvrtc_ready();

    *object = (gpr_object){0};
    if (status != GPR_OK) return status;
    status = compile_translation(translation, target, object);
    if (status != GPR_OK) gpr_object_clear(object);
    return status;
}
