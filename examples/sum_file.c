/* Sums a file of floats: sum_file FILE
 *
 * FILE holds float32 numbers in this machine's byte order and nothing else, as numpy.ndarray.tofile
 * writes them. The sum is made on the GPU if there is one, else on the CPU. Build:
 *
 *     cc sum_file.c $(pkg-config --cflags --libs gpureduce) -o sum_file
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gpureduce.h>

/* Maps a file of whole floats for reading; *count is their number. MAP_FAILED, with a message
 * printed, if it cannot. */
static void *map_floats(const char *path, size_t *count)
{
    struct stat about;
    void *floats = MAP_FAILED;
    const int file = open(path, O_RDONLY);

    *count = 0;
    if (file < 0 || fstat(file, &about) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    } else if (about.st_size == 0) {
        floats = NULL; /* an empty file cannot be mapped, and need not be */
    } else if ((size_t)about.st_size % sizeof(float) != 0) {
        fprintf(stderr, "%s: %lld bytes are no whole number of floats\n", path,
                (long long)about.st_size);
    } else {
        *count = (size_t)about.st_size / sizeof(float);
        floats = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (floats == MAP_FAILED) fprintf(stderr, "%s: %s\n", path, strerror(errno));
    }
    if (file >= 0) close(file);
    return floats;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    float sum = 0;
    void *floats = MAP_FAILED;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    floats = map_floats(argv[1], &count);
    if (floats == MAP_FAILED) return 1;

    const gpr_status status = gpr_reduce_array(GPR_OP_SUM, GPR_FLOAT32, floats, count, &sum);
    if (floats != NULL) munmap(floats, count * sizeof(float));
    if (status != GPR_OK) {
        fprintf(stderr, "%s: %s\n", gpr_status_name(status), gpr_last_error()->message);
        return 1;
    }
    const gpr_run *run = gpr_last_run();
    printf("%.9g\n", (double)sum);
    fprintf(stderr, "%zu floats on the %s\n", count, run->device == GPR_DEVICE_CPU ? "CPU" : "GPU");
    return 0;
}
