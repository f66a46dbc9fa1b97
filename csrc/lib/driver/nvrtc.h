/* NVRTC, opened at run time: CUDA C++ in, machine code out. Needs no GPU. */
#ifndef GPR_LIB_NVRTC_H
#define GPR_LIB_NVRTC_H

#include "lib/base/status.h"
#include "lib/driver/sources.h"

typedef struct nvrtc_program *nvrtc_program;

/* RT(member, arguments): every NVRTC function the library calls; the symbol is "nvrtc" and the
 * member's name. */
#define GPR_NVRTC_FUNCTIONS(RT)                                                                 \
    RT(Version, (int *major, int *minor))                                                       \
    RT(GetNumSupportedArchs, (int *count))                                                      \
    RT(GetSupportedArchs, (int *archs))                                                         \
    RT(CreateProgram, (nvrtc_program *program, const char *text, const char *name, int headers, \
                       const char *const *texts, const char *const *names))                     \
    RT(DestroyProgram, (nvrtc_program *program))                                                \
    RT(AddNameExpression, (nvrtc_program program, const char *name))                            \
    RT(CompileProgram, (nvrtc_program program, int count, const char *const *options))          \
    RT(GetLoweredName, (nvrtc_program program, const char *name, const char **lowered))         \
    RT(GetCUBINSize, (nvrtc_program program, size_t *bytes))                                    \
    RT(GetCUBIN, (nvrtc_program program, char *image))                                          \
    RT(GetPTXSize, (nvrtc_program program, size_t *bytes))                                      \
    RT(GetPTX, (nvrtc_program program, char *image))                                            \
    RT(GetLTOIRSize, (nvrtc_program program, size_t *bytes))                                    \
    RT(GetLTOIR, (nvrtc_program program, char *image))                                          \
    RT(GetProgramLogSize, (nvrtc_program program, size_t *bytes))                               \
    RT(GetProgramLog, (nvrtc_program program, char *log))

enum { GPR_MAX_ENTRIES = 4, GPR_MAX_OPTIONS = 8, GPR_TARGET_ROOM = 24 };

/* A program to compile: text, the files it may include, template instances wanted, compiler
 * options. */
typedef struct gpr_translation {
    const char *text;
    const char *name; /* shown in the compiler's messages */
    gpr_source sources[GPR_PROGRAM_SOURCES];
    int source_count;
    char source_digest[GPR_SHA256_HEX];   /* of gpr_program_digest */
    const char *entries[GPR_MAX_ENTRIES]; /* name expressions, as "gpr::sequential<First, 256u>" */
    int entry_count;
    const char *options[GPR_MAX_OPTIONS];
    int option_count;
    const char *header_stamp; /* which headers of others it includes; NULL: none */
} gpr_translation;

/* A compiled program: one malloc'ed image. Free it with gpr_object_clear. */
typedef struct gpr_object {
    char *lowered[GPR_MAX_ENTRIES]; /* symbol of each entry, malloc'ed */
    int entry_count;
    void *image; /* cubin, NUL-terminated PTX, or LTO-IR */
    size_t bytes;
} gpr_object;

void gpr_object_clear(gpr_object *object);

/* Opens NVRTC once it can be: GPUREDUCE_LIBNVRTC alone if it is set, else the path set by
 * gpr_set_nvrtc_path, then the loader's libnvrtc.so.13, .12, then CUDA_HOME or CUDA_PATH, then
 * /usr/local/cuda. GPR_ERROR_DEVICE with the remedy if there is none; a failure is kept until a
 * path is set, so that asking again costs next to nothing. */
gpr_status gpr_nvrtc_ready(void);

/* Whether gpr_nvrtc_ready() would return GPR_OK; records no failure when it is known not to. */
int gpr_nvrtc_usable(void);

/* 1000 * major + 10 * minor; 0 before gpr_nvrtc_ready() succeeded. */
int gpr_nvrtc_version(void);

/* The target to compile for so that a GPU of compute capability `cc` can run the result: "sm_90",
 * or "compute_90" where this NVRTC is older than the GPU and the driver must finish the job.
 * GPR_ERROR_DEVICE: the GPU is older than NVRTC compiles for. */
gpr_status gpr_nvrtc_target(int cc, char target[GPR_TARGET_ROOM]);

/* Compiles for `target`; with option "-dlto" to LTO-IR, which a linker makes machine code of.
 * GPR_ERROR_COMPILE with the log. Threads may compile at once: NVRTC allows
 * it from its first version that is taken on, though older ones work on one program at a time. */
gpr_status gpr_nvrtc_compile(const gpr_translation *translation, const char *target,
                             gpr_object *object);

#endif
