/* Whether this machine has an NVIDIA GPU, as far as the system tells without NVIDIA's driver. */
#ifndef GPR_LIB_NVIDIA_HARDWARE_H
#define GPR_LIB_NVIDIA_HARDWARE_H

#include <stddef.h>

typedef enum {
    GPR_HARDWARE_UNKNOWN, /* the system does not list its devices */
    GPR_HARDWARE_NONE,    /* it lists them, and none is NVIDIA's */
    GPR_HARDWARE_GPU,     /* a PCI device of NVIDIA's, with no kernel module's files */
    GPR_HARDWARE_MODULE,  /* the driver's kernel module, or Windows' below, is running */
} gpr_hardware;

/* What the files below `root` tell: "" for those of this machine, else a folder (tests). */
gpr_hardware gpr_find_nvidia(const char *root);

/* Writes why there is no GPU where libcuda cannot be opened, and what helps on that machine.
 * `detail` is dlopen's reason. */
void gpr_explain_no_driver(gpr_hardware hardware, const char *detail, char *text, size_t room);

#endif
