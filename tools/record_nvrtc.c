/* NVRTC as it is, but every cubin that a caller fetches is written to a file too, and its PTX
 * beside it (tools/compare_programs.py).
 *
 * Built as a library that is linked to the real one: the loader finds all other functions there.
 * REAL_NVRTC is the path of the real library, as a string. One thread at a time, as the callers of
 * the library that records do. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { PATH_ROOM = 4096, NVRTC_ERROR_INTERNAL = 11 };

typedef struct nvrtc_program *nvrtc_program;

static char prefix[PATH_ROOM];
static int count;

/* Files are named `path`0.cubin, `path`1.cubin, ... from now on. Returns how many the earlier
 * prefix got. */
int record_to(const char *path)
{
    const int written = count;

    (void)snprintf(prefix, sizeof prefix, "%s", path);
    count = 0;
    return written;
}

/* Writes what a pair of NVRTC's functions gives. */
static int write_result(void *library, nvrtc_program program, const char *size_name,
                        const char *name, const char *ending)
{
    char path[PATH_ROOM + 32];
    int (*get_size)(nvrtc_program, size_t *) = NULL;
    int (*get)(nvrtc_program, char *) = NULL;
    size_t bytes = 0, written = 0;
    char *text = NULL;
    FILE *file = NULL;
    int result = NVRTC_ERROR_INTERNAL;

    *(void **)&get_size = dlsym(library, size_name);
    *(void **)&get = dlsym(library, name);
    if (get_size == NULL || get == NULL || get_size(program, &bytes) != 0) return result;
    text = malloc(bytes);
    if (text == NULL || get(program, text) != 0) goto done;
    (void)snprintf(path, sizeof path, "%s%d.%s", prefix, count, ending);
    file = fopen(path, "wb");
    if (file == NULL) goto done;
    written = fwrite(text, 1, bytes, file);
    if (fclose(file) == 0 && written == bytes) result = 0;
done:
    free(text);
    return result;
}

int nvrtcGetCUBIN(nvrtc_program program, char *image)
{
    void *library = dlopen(REAL_NVRTC, RTLD_NOW);
    int (*get)(nvrtc_program, char *) = NULL;
    int result = 0;

    if (library == NULL) return NVRTC_ERROR_INTERNAL;
    *(void **)&get = dlsym(library, "nvrtcGetCUBIN");
    if (get == NULL) return NVRTC_ERROR_INTERNAL;
    result = get(program, image);
    if (result != 0 || prefix[0] == '\0') return result;
    result = write_result(library, program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN", "cubin");
    if (result == 0)
        result = write_result(library, program, "nvrtcGetPTXSize", "nvrtcGetPTX", "ptx");
    if (result == 0) count++;
    return result;
}
