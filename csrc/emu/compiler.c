/* NVRTC's functions: a program's text becomes a shared object for this machine, by g++ (or the
 * compiler that CXX or the setting `compiler` names). The text is what lib/driver/program.c wrote
 * for the GPU, between cuda_on_cpu.h and a list of the requested entries; its headers are written
 * out beside it. */
#define _GNU_SOURCE /* secure_getenv */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/emu.h"
#include "emu/nvrtc_abi.h"

enum { MOST_HEADERS = 96, MOST_ENTRIES = 8, NAME_ROOM = 64 };

/* The files that this library carries for the compiler. */
#define EMBED(name, file)               \
    __asm__(".pushsection .rodata\n"    \
            "gpr_emu_text_" #name ":\n" \
            ".incbin \"" file "\"\n"    \
            ".byte 0\n"                 \
            ".popsection\n");           \
    extern const char gpr_emu_text_##name[] __attribute__((visibility("hidden")));
EMBED(device, "emu/cuda_on_cpu.h")
EMBED(abi, "emu/abi.h")
EMBED(plain, "emu/plain_cuda.h")
EMBED(groups, "emu/cooperative_groups.h")

typedef struct nvrtc_program {
    char *text;
    char *header_names[MOST_HEADERS], *header_texts[MOST_HEADERS];
    int header_count;
    char *entries[MOST_ENTRIES];
    int entry_count;
    char *image, *log;
    size_t image_bytes;
} *nvrtcProgram;

API const char *nvrtcGetErrorString(int result)
{
    return nvrtc_error_name(result);
}

/* A version that no NVRTC has and that changes with cuda_on_cpu.h, so that the cache mixes nothing
 * up: programs are cached by it. */
API int nvrtcVersion(int *major, int *minor)
{
    uint32_t hash = 2166136261u;

    for (const char *c = gpr_emu_text_device; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    *major = 1000 + (int)(hash % 100000);
    *minor = (int)GPR_EMU_ABI;
    return SUCCESS;
}

static const int compute_capabilities[] = {75, 80, 86, 89, 90, 100, 120};

API int nvrtcGetNumSupportedArchs(int *count)
{
    *count = sizeof compute_capabilities / sizeof compute_capabilities[0];
    return SUCCESS;
}

API int nvrtcGetSupportedArchs(int *archs)
{
    memcpy(archs, compute_capabilities, sizeof compute_capabilities);
    return SUCCESS;
}

/* ---------------------------------------------------------------- programs ------------------- */

API int nvrtcDestroyProgram(nvrtcProgram *program)
{
    nvrtcProgram p = *program;

    for (int i = 0; i < p->header_count; i++) {
        free(p->header_names[i]);
        free(p->header_texts[i]);
    }
    for (int i = 0; i < p->entry_count; i++) free(p->entries[i]);
    free(p->text);
    free(p->image);
    free(p->log);
    free(p);
    *program = NULL;
    return SUCCESS;
}

API int nvrtcCreateProgram(nvrtcProgram *result, const char *text, const char *name, int headers,
                           const char *const *texts, const char *const *names)
{
    (void)name;
    if (headers > MOST_HEADERS) return INVALID_INPUT;
    nvrtcProgram made = calloc(1, sizeof *made);
    if (made == NULL) return OUT_OF_MEMORY;
    made->text = strdup(text);
    int good = made->text != NULL;
    for (int i = 0; i < headers && good; i++) {
        made->header_names[i] = strdup(names[i]);
        made->header_texts[i] = strdup(texts[i]);
        made->header_count++;
        good = made->header_names[i] != NULL && made->header_texts[i] != NULL;
    }
    if (!good) (void)nvrtcDestroyProgram(&made);
    *result = made;
    return good ? SUCCESS : OUT_OF_MEMORY;
}

API int nvrtcAddNameExpression(nvrtcProgram program, const char *name)
{
    if (program->entry_count == MOST_ENTRIES) return INVALID_INPUT;
    program->entries[program->entry_count] = strdup(name);
    if (program->entries[program->entry_count] == NULL) return OUT_OF_MEMORY;
    program->entry_count++;
    return SUCCESS;
}

/* ---------------------------------------------------------------- files ---------------------- */

static int write_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_ROOM];

    if (strchr(name, '/') != NULL || strlen(name) >= NAME_ROOM) return 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL) return 0;
    const int good = fputs(text, file) >= 0;
    return fclose(file) == 0 && good;
}

/* The whole of a file, with a 0 behind it; NULL if it cannot be read. */
static char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    long size = -1;

    if (file == NULL) return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 &&
        fseek(file, 0, SEEK_SET) == 0) {
        text = malloc((size_t)size + 1);
        if (text != NULL && fread(text, 1, (size_t)size, file) != (size_t)size) {
            free(text);
            text = NULL;
        }
        if (text != NULL) text[size] = '\0';
    }
    (void)fclose(file);
    if (text != NULL && bytes != NULL) *bytes = (size_t)size;
    return text;
}

/* program.cc: the text, behind the header that makes CUDA of C++ and before the entries. */
static int write_program(nvrtcProgram program, const char *folder)
{
    char path[PATH_ROOM];

    (void)snprintf(path, sizeof path, "%s/program.cc", folder);
    FILE *file = fopen(path, "w");
    if (file == NULL) return 0;
    (void)fprintf(file, "#include \"cuda_on_cpu.h\"\n%s\nGPR_EMU_ENTRIES(", program->text);
    for (int i = 0; i < program->entry_count; i++) {
        (void)fprintf(file, "%sGPR_EMU_ENTRY((%s))", i > 0 ? ", " : "", program->entries[i]);
    }
    (void)fprintf(file, ")\n");
    return fclose(file) == 0;
}

/* A header's text: from the overlay, if there is one that has it. */
static int write_header(const char *folder, const char *name, const char *text)
{
    char path[sizeof emu_settings_now.overlay + NAME_ROOM];
    char *other = NULL;

    if (emu_settings_now.overlay[0] != '\0' && strlen(name) < NAME_ROOM) {
        (void)snprintf(path, sizeof path, "%s/%s", emu_settings_now.overlay, name);
        other = read_file(path, NULL);
    }
    const int good = write_file(folder, name, other != NULL ? other : text);
    free(other);
    return good;
}

static int write_files(nvrtcProgram program, const char *folder)
{
    int good = write_file(folder, "cuda_on_cpu.h", gpr_emu_text_device) &&
               write_file(folder, "abi.h", gpr_emu_text_abi) &&
               write_file(folder, "plain_cuda.h", gpr_emu_text_plain) &&
               write_file(folder, "cooperative_groups.h", gpr_emu_text_groups) &&
               write_program(program, folder);

    for (int i = 0; i < program->header_count && good; i++) {
        good = write_header(folder, program->header_names[i], program->header_texts[i]);
    }
    return good;
}

/* ---------------------------------------------------------------- compiling ------------------ */

/* Local variables begin with a pattern, not with what the thread before left on this stack, which
 * is often what a variable should have been set to. */
#define FILL "-ftrivial-auto-var-init=pattern"

/* What some compilers take and others refuse, before they compile anything. */
typedef enum dialect { GCC, GCC_BEFORE_12, CLANG, DIALECTS } dialect;
static const char *const options_of[DIALECTS][8] = {
    /* No jump is threaded: a copy of the code for one thread would be another instruction than its
     * neighbours'. */
    [GCC] = {FILL, "-fno-thread-jumps", NULL},
    [GCC_BEFORE_12] = {"-fno-thread-jumps", NULL},
    /* A read of a word that is written right after it is an access, too. Copies of whole structures
     * would be calls of functions. No operation of several threads is made two. */
    [CLANG] = {"-mllvm", "-tsan-instrument-read-before-write=1", "-mllvm",
               "-tsan-instrument-memintrinsics=0", "-Xclang", "-fconvergent-functions", FILL, NULL},
};

enum { MOST_OPTIONS = 40 };

/* Compiles `folder`/program.cc to program.so by a compiler; its exit status, or -1. */
static int compile_by(const char *compiler, dialect dialect, const char *folder, int arch)
{
    char source[PATH_ROOM], object[PATH_ROOM], include[PATH_ROOM], define[32];

    (void)snprintf(source, sizeof source, "%s/program.cc", folder);
    (void)snprintf(object, sizeof object, "%s/program.so", folder);
    (void)snprintf(include, sizeof include, "-I%s", folder);
    (void)snprintf(define, sizeof define, "-DGPR_ARCH=%d", 10 * arch);
    /* -O1: accesses stay where the text has them, and their lines are known. Nothing is linked
     * in but the mathematical library. */
    const char *const common[] = {compiler,
                                  "-std=c++17",
                                  "-O1",
                                  "-g1",
                                  "-fsanitize=thread",
                                  "-fvisibility=hidden",
                                  "-fno-exceptions",
                                  "-fno-rtti",
                                  "-fno-strict-aliasing",
                                  "-fwrapv",
                                  "-ffp-contract=off",
                                  "-fno-math-errno",
                                  "-fPIC",
                                  "-shared",
                                  "-nostdlib",
                                  "-w",
                                  define,
                                  include,
                                  source,
                                  "-o",
                                  object,
                                  "-lm"};
    const char *arguments[MOST_OPTIONS] = {NULL};
    size_t count = sizeof common / sizeof common[0];
    memcpy((void *)arguments, common, sizeof common);
    for (const char *const *option = options_of[dialect]; *option != NULL; option++)
        arguments[count++] = *option;
    return run_program((char *const *)arguments, folder, "log");
}

/* Whether the compiler has refused an option of `dialect`: its message names it. */
static int refuses(const char *folder, dialect dialect)
{
    char path[PATH_ROOM];
    int refused = 0;

    (void)snprintf(path, sizeof path, "%s/log", folder);
    char *log = read_file(path, NULL);
    for (const char *const *option = options_of[dialect]; log != NULL && *option != NULL; option++)
        refused |= strstr(log, *option) != NULL;
    free(log);
    return refused;
}

/* Compiles by `compiler`, in the dialect *known or another one that it takes, which becomes
 * *known. */
static int compile_in_dialect(const char *compiler, atomic_int *known, const char *folder, int arch)
{
    const dialect first = (dialect)atomic_load(known);
    int status = -1;

    for (int i = 0; i < DIALECTS; i++) {
        const dialect tried = (dialect)(((int)first + i) % DIALECTS);
        status = compile_by(compiler, tried, folder, arch);
        if (status == 0 && tried != first) atomic_store(known, (int)tried);
        if (status <= 0 || status == 127 || !refuses(folder, tried)) break;
    }
    return status;
}

/* Compiles by the first compiler that there is, whose name becomes `used`; 0 on success, -1 if no
 * compiler could be run. */
static int compile(const char *folder, int arch, const char **used)
{
    const char *const compilers[] = {emu_settings_now.compiler, secure_getenv("CXX"), "g++", "c++",
                                     "clang++"};
    enum { COMPILERS = sizeof compilers / sizeof compilers[0] };
    static atomic_int known[COMPILERS]; /* the dialect that the last program was compiled in */
    int status = -1;

    for (size_t i = 0; i < COMPILERS && (status == -1 || status == 127); i++) {
        if (compilers[i] == NULL || compilers[i][0] == '\0') continue;
        *used = compilers[i];
        status = compile_in_dialect(compilers[i], &known[i], folder, arch);
    }
    return status == 127 ? -1 : status;
}

/* A compiler's messages; where it failed, a last line names it. */
static char *read_log(const char *path, const char *compiler)
{
    char *log = read_file(path, NULL), *longer = NULL;

    if (log == NULL || compiler == NULL) return log;
    const size_t bytes = strlen(log) + strlen(compiler) + 64;
    longer = malloc(bytes);
    if (longer == NULL) return log;
    (void)snprintf(longer, bytes, "%s\nthe emulator's C++ compiler is %s\n", log, compiler);
    free(log);
    return longer;
}

static int arch_of(int count, const char *const *options)
{
    static const char option[] = "--gpu-architecture=sm_";

    for (int i = 0; i < count; i++) {
        if (strncmp(options[i], option, sizeof option - 1) == 0)
            return (int)strtol(options[i] + sizeof option - 1, NULL, 10);
    }
    return 0;
}

API int nvrtcCompileProgram(nvrtcProgram program, int option_count, const char *const *options)
{
    const int arch = arch_of(option_count, options);
    char folder[FOLDER_ROOM], path[PATH_ROOM];
    int result = INTERNAL_ERROR;

    if (arch == 0) return INVALID_OPTION;
    if (!make_folder(folder)) {
        program->log = strdup("the emulator cannot make a folder for temporary files; set TMPDIR");
        return INTERNAL_ERROR;
    }
    if (write_files(program, folder)) {
        const char *used = "";
        const int status = compile(folder, arch, &used);
        (void)snprintf(path, sizeof path, "%s/log", folder);
        program->log = status == -1 ? strdup("the emulator needs a C++ compiler, and there is no "
                                             "g++ or clang++: install g++ "
                                             "(Debian and Ubuntu: apt install g++), or set CXX")
                                    : read_log(path, status == 0 ? NULL : used);
        (void)snprintf(path, sizeof path, "%s/program.so", folder);
        if (status == 0) program->image = read_file(path, &program->image_bytes);
        result = status == 0 && program->image != NULL ? SUCCESS : COMPILATION;
    }
    remove_folder(folder);
    return result;
}

API int nvrtcGetLoweredName(nvrtcProgram program, const char *name, const char **lowered)
{
    for (int i = 0; i < program->entry_count; i++) {
        if (strcmp(program->entries[i], name) != 0) continue;
        *lowered = program->entries[i];
        return SUCCESS;
    }
    return INVALID_INPUT;
}

API int nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes)
{
    *bytes = program->image_bytes;
    return program->image != NULL ? SUCCESS : INVALID_PROGRAM;
}

API int nvrtcGetCUBIN(nvrtcProgram program, char *image)
{
    if (program->image == NULL) return INVALID_PROGRAM;
    memcpy(image, program->image, program->image_bytes);
    return SUCCESS;
}

/* There is no PTX here: every target that is offered is one for machine code. */
API int nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes)
{
    (void)program;
    (void)bytes;
    return INVALID_PROGRAM;
}

API int nvrtcGetPTX(nvrtcProgram program, char *image)
{
    (void)program;
    (void)image;
    return INVALID_PROGRAM;
}

/* Nor is there LTO-IR. */
API int nvrtcGetLTOIRSize(nvrtcProgram program, size_t *bytes)
{
    return nvrtcGetPTXSize(program, bytes);
}

API int nvrtcGetLTOIR(nvrtcProgram program, char *image)
{
    return nvrtcGetPTX(program, image);
}

API int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes)
{
    *bytes = program->log != NULL ? strlen(program->log) + 1 : 1;
    return SUCCESS;
}

API int nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
    if (program->log != NULL)
        memcpy(log, program->log, strlen(program->log) + 1);
    else
        log[0] = '\0';
    return SUCCESS;
}
