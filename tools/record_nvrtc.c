/* NVRTC as it is, but every cubin that a caller fetches is written to a file too (tools/compare_programs.py).
 *
 * Built as a library that is linked to the real one: the loader finds all other functions there. REAL_NVRTC is the path of
 * the real library, as a string. One thread at a time, as the callers of the library that records do. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

enum { PATH_ROOM = 4096, NVRTC_ERROR_INTERNAL = 11 };

typedef struct nvrtc_program *nvrtc_program;

static char prefix[PATH_ROOM];
static int count;

/* Files are named `path`0.cubin, `path`1.cubin, ... from now on. Returns how many the earlier prefix got. */
int record_to(const char *path)
{
    const int written = count;

    (void)snprintf(prefix, sizeof prefix, "%s", path);
    count = 0;
    return written;
}

int nvrtcGetCUBIN(nvrtc_program program, char *image)
{
    char path[PATH_ROOM + 32];
    void *library = dlopen(REAL_NVRTC, RTLD_NOW);
    int (*get_cubin)(nvrtc_program, char *) = NULL;
    int (*get_size)(nvrtc_program, size_t *) = NULL;
    size_t bytes = 0, written = 0;
    FILE *file = NULL;
    int result = 0;

    if (library == NULL) return NVRTC_ERROR_INTERNAL;
    *(void **)&get_cubin = dlsym(library, "nvrtcGetCUBIN");
    *(void **)&get_size = dlsym(library, "nvrtcGetCUBINSize");
    if (get_cubin == NULL || get_size == NULL) return NVRTC_ERROR_INTERNAL;
    result = get_cubin(program, image);
    if (result != 0 || prefix[0] == '\0') return result;
    result = get_size(program, &bytes);
    if (result != 0) return result;
    (void)snprintf(path, sizeof path, "%s%d.cubin", prefix, count);
    file = fopen(path, "wb");
    if (file == NULL) return NVRTC_ERROR_INTERNAL;
    written = fwrite(image, 1, bytes, file);
    if (fclose(file) != 0 || written != bytes) return NVRTC_ERROR_INTERNAL;
    count++;
    return 0;
}
