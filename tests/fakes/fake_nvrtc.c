/* A stand-in for NVRTC: reads a program's text the way lib/driver/program.c writes it, and
 * "compiles" it to a line of words that contract.c runs. A program it does not understand is
 * refused with a log, so that a change of the text is noticed.
 *
 * Steered by fake_nvrtc_*, or by FAKE_NVRTC=key=value,...:
 *   version (11080), archs (75:80:90), refuse (programs whose entries contain the word do not
 *   compile), count (a file that grows by one byte for each compile, so that several processes can
 *   be counted), fail=FUNCTION:NTH:CODE. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/nvrtc_abi.h"
#include "emu/steering.h"

enum { MOST_ARCHS = 32, MOST_ENTRIES = 8, TEXT_ROOM = 512, WORD_ROOM = 64 };
enum { DESCRIPTION_ROOM = 2560, TRAITS_ROOM = 160, TYPE_ROOM = 16, HEAD_ROOM = 32 };

typedef struct program {
    char *text;
    int headers, entry_count, compiled, machine_code;
    char entries[MOST_ENTRIES][TEXT_ROOM], lowered[MOST_ENTRIES][TEXT_ROOM];
    char image[HEAD_ROOM + DESCRIPTION_ROOM], log[TEXT_ROOM];
} *nvrtcProgram;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int version, arch_count, archs[MOST_ARCHS];
    char refuse[WORD_ROOM], count[TEXT_ROOM];
} compiler = {.version = 13000, .arch_count = 6, .archs = {75, 80, 86, 89, 90, 120}};
static steering_fault fault;
static int compiles, programs;

/* Counts a call; not 0: it is to fail with that code. */
static int enter(const char *function)
{
    pthread_mutex_lock(&lock);
    const int code = steering_meet(&fault, function);
    pthread_mutex_unlock(&lock);
    return code;
}

#define ENTER()                                 \
    do {                                        \
        const int entered = enter(__func__);    \
        if (entered != SUCCESS) return entered; \
    } while (0)

API const char *nvrtcGetErrorString(int result)
{
    return nvrtc_error_name(result);
}

API int nvrtcVersion(int *major, int *minor)
{
    ENTER();
    *major = compiler.version / 1000;
    *minor = compiler.version % 1000 / 10;
    return SUCCESS;
}

API int nvrtcGetNumSupportedArchs(int *count)
{
    ENTER();
    *count = compiler.arch_count;
    return SUCCESS;
}

API int nvrtcGetSupportedArchs(int *archs)
{
    ENTER();
    memcpy(archs, compiler.archs, (size_t)compiler.arch_count * sizeof *archs);
    return SUCCESS;
}

API int nvrtcCreateProgram(nvrtcProgram *result, const char *text, const char *name, int headers,
                           const char *const *texts, const char *const *names)
{
    ENTER();
    struct program *made = calloc(1, sizeof *made);
    if (made == NULL || text == NULL || name == NULL || texts == NULL || names == NULL) {
        free(made);
        return INVALID_INPUT;
    }
    made->text = strdup(text);
    made->headers = headers;
    pthread_mutex_lock(&lock);
    programs++;
    pthread_mutex_unlock(&lock);
    *result = made;
    return SUCCESS;
}

API int nvrtcDestroyProgram(nvrtcProgram *program)
{
    const int entered = enter(__func__); /* a failed one frees all the same */

    free((*program)->text);
    free(*program);
    *program = NULL;
    pthread_mutex_lock(&lock);
    programs--;
    pthread_mutex_unlock(&lock);
    return entered;
}

API int nvrtcAddNameExpression(nvrtcProgram program, const char *name)
{
    ENTER();
    if (program->entry_count == MOST_ENTRIES) return INVALID_INPUT;
    (void)snprintf(program->entries[program->entry_count++], TEXT_ROOM, "%s", name);
    return SUCCESS;
}

static int refuse(struct program *program, const char *why, const char *what)
{
    (void)snprintf(program->log, sizeof program->log,
                   "fake.cu(1): error: %.100s: %.200s\n1 error detected", why, what);
    return COMPILATION;
}

/* The lowered name of an entry: "fake <variant> <First|Next|Last|Traits> <block>"; a fill,
 * finalize_rows and copy_results have no block. */
static int lower(const char *entry, char *lowered)
{
    char variant[WORD_ROOM] = "", stage[WORD_ROOM] = "";
    unsigned block = 0, resident = 0;
    int end = 0;

    if (sscanf(entry, "gpr::several<Traits, %uu, %uu>%n", &block, &resident, &end) == 2 &&
        end != 0 && entry[end] == '\0') {
        (void)snprintf(lowered, TEXT_ROOM, "fake several Traits %u", block);
        return block != 0 && resident >= block;
    }
    if (sscanf(entry, "gpr::%63[a-z_0-9]<%63[A-Za-z], %uu>%n", variant, stage, &block, &end) != 3 ||
        entry[end] != '\0') {
        end = 0;
        if (sscanf(entry, "gpr::%63[a-z_0-9]<%63[A-Za-z]>%n", variant, stage, &end) != 2 ||
            end == 0 ||
            (strcmp(variant, "fill_identity") != 0 && strcmp(variant, "finalize_rows") != 0 &&
             strcmp(variant, "copy_results") != 0))
            return 0;
    }
    (void)snprintf(lowered, TEXT_ROOM, "fake %s %s %u", variant, stage, block);
    return 1;
}

/* What follows the name of a program's last traits; NULL: accumulators leave it. Traits of another
 * name are refused by what reads this. */
static const char *last_traits(const char *text)
{
    static const char start[] = "using Last = gpr::";
    static const char *const names[] = {"Finished", "SumByPairs"};
    const char *last = strstr(text, start);

    if (last == NULL) return NULL;
    last += strlen(start);
    if (strncmp(last, "Unfinished<", strlen("Unfinished<")) == 0) return NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t length = strlen(names[i]);
        if (strncmp(last, names[i], length) == 0 && last[length] == '<') return last + length;
    }
    return last;
}

/* What traits are that begin here, in words that contract.c reads; 0: they are not understood. */
static int describe_traits(const char *traits, char *words)
{
    char fold[TYPE_ROOM], element[TYPE_ROOM], compute[TYPE_ROOM], acc[40], skips[8];

    if (sscanf(traits,
               "gpr::KernelTraits<gpr::fold_%15[a-z_], gpr::dt_%15[a-z0-9], gpr::dt_%15[a-z0-9], "
               "%39[^,], %7[a-z]>",
               fold, element, compute, acc, skips) != 5)
        return 0;
    char *number = strstr(acc, "dt_");
    if (number == NULL) return 0;
    number += strlen("dt_");
    number[strspn(number, "abcdefghijklmnopqrstuvwxyz0123456789")] = '\0';
    (void)snprintf(words, TRAITS_ROOM, "fold %s element %s compute %s acc %s skips %s", fold,
                   element, compute, number, skips);
    return 1;
}

/* What a program is, in words that contract.c reads; 0: it is not understood. */
static int describe(const char *text, char *description)
{
    char masked[8], words[TRAITS_ROOM], second[TYPE_ROOM] = "-", result[TYPE_ROOM] = "-",
                                        finish[TYPE_ROOM] = "-", mean[TYPE_ROOM] = "-";
    unsigned per_thread = 0, lanes = 0, kept = 0, reduced = 0, items = 0;
    int has_start = 0;
    const char *traits = strstr(text, "gpr::KernelTraits<"),
               *pair = strstr(text, "using First = gpr::Paired<gpr::KernelTraits<"),
               *last = last_traits(text);

    if (traits == NULL ||
        sscanf(
            text,
            "namespace gpr {\nconstexpr unsigned per_thread = %u;\nconstexpr unsigned lanes = %u;\n"
            "constexpr unsigned kept_axes = %u;\nconstexpr unsigned reduced_axes = %u;\n"
            "constexpr bool masked = %7[a-z];\nconstexpr unsigned item = %u;\n"
            "constexpr unsigned row_elements = %*u;\n",
            &per_thread, &lanes, &kept, &reduced, masked, &items) != 6 ||
        !describe_traits(traits, words))
        return 0;
    if (last != NULL)
        has_start = sscanf(last, "<First, gpr::dt_%15[a-z0-9], gpr::FromStart<gpr::finish_%15[a-z]",
                           result, finish) == 2;
    if (last != NULL && !has_start &&
        sscanf(last,
               "<First, gpr::dt_%15[a-z0-9], "
               "gpr::GivenMean<gpr::finish_%15[a-z], gpr::dt_%15[a-z0-9]>>;",
               result, finish, mean) != 3 &&
        sscanf(last, "<First, gpr::dt_%15[a-z0-9], gpr::finish_%15[a-z]>;", result, finish) != 2)
        return 0;
    if (pair != NULL) { /* the last type before the end is the other array's */
        const char *end = strchr(pair, ';');
        while (end > pair && strncmp(end, "gpr::dt_", strlen("gpr::dt_")) != 0) end--;
        if (sscanf(end, "gpr::dt_%15[a-z0-9]>;", second) != 1) return 0;
    }
    (void)snprintf(description, DESCRIPTION_ROOM,
                   "per_thread %u lanes %u kept %u reduced %u masked %s item %u %s second %s "
                   "result %s finish %s mean %s start %s",
                   per_thread, lanes, kept, reduced, masked, items, words, second, result, finish,
                   mean, has_start ? "true" : "false");
    return 1;
}

/* ---------------------------------------------------------------- several reductions --------- */

/* What follows the traits that begin here, templates of templates too; NULL if they do not end. */
static const char *end_of_traits(const char *text)
{
    int depth = 0;

    for (; *text != '\0' && *text != '\n'; text++) {
        depth += (*text == '<') - (*text == '>');
        if (*text == '>' && depth == 0) return text + 1;
    }
    return NULL;
}

/* The group that lists member `name`, whose accumulator has the same traits and is a pair if the
 * member is; -1: none. */
static int group_of(const char *text, unsigned name, int is_pair, const char *base,
                    size_t base_length)
{
    char listed[2][WORD_ROOM], form[8];
    int group = -1;

    (void)snprintf(listed[0], WORD_ROOM, ", Member%u,", name);
    (void)snprintf(listed[1], WORD_ROOM, ", Member%u>", name);
    for (const char *at = text; (at = strstr(at, "using Group")) != NULL; at++) {
        int start = 0;
        if (sscanf(at, "using Group%d = gpr::Shared%7[Pairs<]%n", &group, form, &start) != 2 ||
            (strcmp(form, "Pairs<") != 0 && strcmp(form, "<") != 0))
            return -1;
        const char *end = strchr(at, '\n');
        if (end == NULL || strncmp(at + start, base, base_length) != 0) continue;
        if ((form[0] == 'P') != is_pair) return -1;
        for (int i = 0; i < 2; i++) {
            const char *found = strstr(at, listed[i]);
            if (found != NULL && found < end) return group;
        }
    }
    return -1;
}

/* Whether the program's traits list the exact sum, and then all other groups, in their order. */
static int lists_groups(const char *text, const char *element)
{
    char expected[TEXT_ROOM];
    const char *exact = strstr(text, "using Exact = Group");
    int exact_group = -1, group = 0, length = 0;

    if (exact != NULL && sscanf(exact, "using Exact = Group%d;", &exact_group) != 1) return 0;
    length = snprintf(expected, sizeof expected, "using Traits = gpr::SeveralTraits<gpr::dt_%s, %s",
                      element, exact != NULL ? "Exact" : "void");
    for (const char *at = text; (at = strstr(at, "using Group")) != NULL; at++, group++) {
        if (group != exact_group)
            length +=
                snprintf(expected + length, sizeof expected - (size_t)length, ", Group%d", group);
    }
    (void)snprintf(expected + length, sizeof expected - (size_t)length, ">;\n");
    return strstr(text, expected) != NULL;
}

/* The same for a program that makes several reductions in one pass. */
static int describe_several(const char *text, char *description)
{
    static const char start[] = "using Traits = gpr::SeveralTraits<gpr::dt_";
    const char *traits = strstr(text, start);
    char element[TYPE_ROOM], words[TRAITS_ROOM], result[TYPE_ROOM], finish[TYPE_ROOM];
    int length = 0;

    if (traits == NULL || sscanf(traits + strlen(start), "%15[a-z0-9]", element) != 1 ||
        !lists_groups(text, element))
        return 0;
    length = snprintf(description, DESCRIPTION_ROOM, "several %s", element);
    for (const char *at = text; (at = strstr(at, "using Member")) != NULL; at++) {
        unsigned name = 0, place = 0;
        int begin = 0;
        char form[TYPE_ROOM] = "";
        if (sscanf(at, "using Member%u = gpr::Member<%u, gpr::%15[A-Za-z]<%n", &name, &place, form,
                   &begin) != 3 ||
            begin == 0)
            return 0;
        const int is_pair = strcmp(form, "ResultOfPairs") == 0;
        if (!is_pair && strcmp(form, "Finished") != 0) return 0;
        const char *base = at + begin, *end = end_of_traits(base);
        if (end == NULL ||
            sscanf(end, ", gpr::dt_%15[a-z0-9], gpr::finish_%15[a-z]>>;\n", result, finish) != 2)
            return 0;
        const int group = group_of(text, name, is_pair, base, (size_t)(end - base));
        if (group < 0) return 0;
        if (strncmp(base, "gpr::CountNan<", strlen("gpr::CountNan<")) == 0)
            (void)snprintf(words, sizeof words,
                           "fold nan element %s compute %s acc uint64 skips false", element,
                           element);
        else if (!describe_traits(base, words))
            return 0;
        if (length >= DESCRIPTION_ROOM) return 0;
        length += snprintf(description + length, DESCRIPTION_ROOM - (size_t)length,
                           " member %u group %d pair %d %s result %s finish %s", place, group,
                           is_pair, words, result, finish);
    }
    return length < DESCRIPTION_ROOM;
}

/* ---------------------------------------------------------------- compiling ------------------ */

static int arch_option(int count, const char *const *options, char *kind, int *arch)
{
    for (int i = 0; i < count; i++) {
        if (sscanf(options[i], "--gpu-architecture=%7[a-z]_%d", kind, arch) == 2) {
            for (int j = 0; j < compiler.arch_count; j++) {
                if (compiler.archs[j] == *arch) return 1;
            }
        }
    }
    return 0;
}

API int nvrtcCompileProgram(nvrtcProgram program, int option_count, const char *const *options)
{
    char kind[8] = "", description[DESCRIPTION_ROOM];
    int arch = 0;

    ENTER();
    if (!arch_option(option_count, options, kind, &arch)) {
        (void)refuse(program, "invalid value for --gpu-architecture", kind);
        return INVALID_OPTION;
    }
    if (!(strstr(program->text, "#include \"several.cuh\"") != NULL
              ? describe_several(program->text, description)
              : describe(program->text, description)))
        return refuse(program, "cannot understand the program", program->text);
    for (int i = 0; i < program->entry_count; i++) {
        if (compiler.refuse[0] != '\0' && strstr(program->entries[i], compiler.refuse) != NULL) {
            return refuse(program, "refused", program->entries[i]);
        }
        if (!lower(program->entries[i], program->lowered[i]))
            return refuse(program, "cannot instantiate", program->entries[i]);
    }
    (void)snprintf(program->image, sizeof program->image, "FAKE %s %d %s", kind, arch, description);
    program->compiled = 1;
    program->machine_code = strcmp(kind, "sm") == 0;
    pthread_mutex_lock(&lock);
    compiles++;
    if (compiler.count[0] != '\0') {
        FILE *file = fopen(compiler.count, "a");
        if (file != NULL) {
            (void)fputc('.', file);
            (void)fclose(file);
        }
    }
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API int nvrtcGetLoweredName(nvrtcProgram program, const char *name, const char **lowered)
{
    ENTER();
    for (int i = 0; i < program->entry_count; i++) {
        if (strcmp(program->entries[i], name) != 0 || !program->compiled) continue;
        *lowered = program->lowered[i];
        return SUCCESS;
    }
    return INVALID_INPUT;
}

/* Both kinds of image are NUL-terminated text here; asking for the kind that the target does not
 * give is refused. */
static int image_size(nvrtcProgram program, int machine_code, size_t *bytes)
{
    if (!program->compiled || program->machine_code != machine_code) return INVALID_PROGRAM;
    *bytes = strlen(program->image) + 1;
    return SUCCESS;
}

static int copy_image(nvrtcProgram program, int machine_code, char *image)
{
    if (!program->compiled || program->machine_code != machine_code) return INVALID_PROGRAM;
    memcpy(image, program->image, strlen(program->image) + 1);
    return SUCCESS;
}

API int nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes)
{
    ENTER();
    return image_size(program, 1, bytes);
}

API int nvrtcGetCUBIN(nvrtcProgram program, char *image)
{
    ENTER();
    return copy_image(program, 1, image);
}

API int nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes)
{
    ENTER();
    return image_size(program, 0, bytes);
}

API int nvrtcGetPTX(nvrtcProgram program, char *image)
{
    ENTER();
    return copy_image(program, 0, image);
}

/* LTO-IR is the image of machine code here. */
API int nvrtcGetLTOIRSize(nvrtcProgram program, size_t *bytes)
{
    ENTER();
    return image_size(program, 1, bytes);
}

API int nvrtcGetLTOIR(nvrtcProgram program, char *image)
{
    ENTER();
    return copy_image(program, 1, image);
}

API int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes)
{
    ENTER();
    *bytes = strlen(program->log) + 1;
    return SUCCESS;
}

API int nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
    ENTER();
    memcpy(log, program->log, strlen(program->log) + 1);
    return SUCCESS;
}

/* ---------------------------------------------------------------- for tests ------------------ */

/* See steering_fail. */
API void fake_nvrtc_fail(const char *function, int nth, int code)
{
    pthread_mutex_lock(&lock);
    steering_fail(&fault, function, nth, code);
    pthread_mutex_unlock(&lock);
}

API const char *fake_nvrtc_failed(void)
{
    return fault.failed;
}

/* Programs whose entries contain `word` do not compile from now on; "": all do. */
API void fake_nvrtc_refuse(const char *word)
{
    (void)snprintf(compiler.refuse, sizeof compiler.refuse, "%s", word);
}

/* Reads a counter that other threads may be changing. */
static int read_counter(const int *counter)
{
    pthread_mutex_lock(&lock);
    const int value = *counter;
    pthread_mutex_unlock(&lock);
    return value;
}

API int fake_nvrtc_compiles(void)
{
    return read_counter(&compiles);
}

/* Programs created and not destroyed. */
API int fake_nvrtc_programs(void)
{
    return read_counter(&programs);
}

static void set_option(const char *key, const char *value)
{
    char function[STEERING_NAME_ROOM];
    int nth = 0, code = 0;

    if (strcmp(key, "version") == 0) compiler.version = atoi(value);
    if (strcmp(key, "refuse") == 0) fake_nvrtc_refuse(value);
    if (strcmp(key, "count") == 0)
        (void)snprintf(compiler.count, sizeof compiler.count, "%s", value);
    if (strcmp(key, "fail") == 0 && steering_parse(value, function, &nth, &code))
        fake_nvrtc_fail(function, nth, code);
    if (strcmp(key, "archs") == 0) {
        compiler.arch_count = 0;
        for (const char *item = value;
             item != NULL && *item != '\0' && compiler.arch_count < MOST_ARCHS;) {
            compiler.archs[compiler.arch_count++] = atoi(item);
            item = strchr(item, ':');
            if (item != NULL) item++;
        }
    }
}

__attribute__((constructor)) static void read_environment(void)
{
    steering_read("FAKE_NVRTC", set_option);
}
