/* Looking for an NVIDIA GPU where there is no driver to ask: the files of kernel modules, then the
 * PCI devices' vendors; and what to tell users then. A failure to look is no error: then nothing is
 * known. */
#include "lib/driver/nvidia_hardware.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_ROOM = 512, NVIDIA = 0x10de };

/* NVIDIA's kernel module; the modules of its boards for embedded systems, whose GPU is no PCI
 * device; Windows' GPU in WSL. */
static const char *const module_files[] = {"/dev/nvidiactl", "/proc/driver/nvidia", "/dev/nvmap",
                                           "/dev/dxg"};

/* Vendor of a PCI device; 0 if its file cannot be read. */
static long read_vendor(const char *devices, const char *name)
{
    char path[2 * PATH_ROOM], text[16];
    long vendor = 0;

    (void)snprintf(path, sizeof path, "%s/%.255s/vendor", devices, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    if (fgets(text, sizeof text, file) != NULL) vendor = strtol(text, NULL, 16);
    (void)fclose(file);
    return vendor;
}

gpr_hardware gpr_find_nvidia(const char *root)
{
    char path[PATH_ROOM];
    int is_read = 0, found = 0;

    for (size_t i = 0; i < sizeof module_files / sizeof *module_files; i++) {
        (void)snprintf(path, sizeof path, "%s%s", root, module_files[i]);
        if (access(path, F_OK) == 0) return GPR_HARDWARE_MODULE;
    }
    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    DIR *devices = opendir(path);
    if (devices == NULL) return GPR_HARDWARE_UNKNOWN;
    for (const struct dirent *each; !found && (each = readdir(devices)) != NULL;) {
        const long vendor = each->d_name[0] == '.' ? 0 : read_vendor(path, each->d_name);
        is_read |= vendor != 0;
        found = vendor == NVIDIA;
    }
    (void)closedir(devices);
    return found ? GPR_HARDWARE_GPU : is_read ? GPR_HARDWARE_NONE : GPR_HARDWARE_UNKNOWN;
}

void gpr_explain_no_driver(gpr_hardware hardware, const char *detail, char *text, size_t room)
{
    switch (hardware) {
    case GPR_HARDWARE_NONE:
        (void)snprintf(text, room,
                       "no NVIDIA GPU on this machine; device=\"cpu\" computes results here, "
                       "gpureduce.explain shows kernels on an emulated GPU, and a hosted notebook "
                       "with an NVIDIA GPU runs them");
        break;
    case GPR_HARDWARE_GPU:
        (void)snprintf(text, room,
                       "no NVIDIA driver for this machine's NVIDIA GPU: libcuda cannot be opened "
                       "(%.400s). Install the NVIDIA driver, or use device=\"cpu\"",
                       detail);
        break;
    case GPR_HARDWARE_MODULE:
        (void)snprintf(text, room,
                       "no NVIDIA driver within reach, though its kernel module is loaded: libcuda "
                       "cannot be opened (%.400s). Install the driver's libcuda of the module's "
                       "version, start a container with its GPUs (docker run --gpus all), or use "
                       "device=\"cpu\"",
                       detail);
        break;
    case GPR_HARDWARE_UNKNOWN:
    default:
        (void)snprintf(text, room,
                       "no NVIDIA driver: libcuda cannot be opened (%.400s). Install the NVIDIA "
                       "driver if this machine has an NVIDIA GPU, or use device=\"cpu\"",
                       detail);
        break;
    }
}
