/* What is told of a machine's NVIDIA GPU by its files, and what is not known. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkdtemp */
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "lib/driver/nvidia_hardware.h"

static char root[200];

/* A file of a machine, with its folders. */
static void make(const char *folder, const char *name, const char *text)
{
    char command[700];

    (void)snprintf(command, sizeof command, "mkdir -p %s%s && echo '%s' > %s%s/%s", root, folder,
                   text, root, folder, name);
    CHECK(system(command) == 0, "%s", root);
}

static void begin(void)
{
    const char *temporary = getenv("TMPDIR");

    (void)snprintf(root, sizeof root, "%.150s/gpr-hardware-XXXXXX",
                   temporary != NULL ? temporary : "/tmp");
    CHECK(mkdtemp(root) != NULL, "%s", root);
}

static void end(void)
{
    char command[300];

    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    CHECK(system(command) == 0, "%s", root);
}

/* A container without /sys, and a machine without a PCI bus, may have a GPU. */
static void nothing_is_known_without_a_list_of_devices(void)
{
    begin();
    CHECK(gpr_find_nvidia(root) == GPR_HARDWARE_UNKNOWN, "%s", root);
    make("/sys/bus/pci/devices", "no-device", "");
    CHECK(gpr_find_nvidia(root) == GPR_HARDWARE_UNKNOWN, "%s", root);
    make("/sys/bus/pci/devices/0000:00:00.0", "vendor", "");
    CHECK(gpr_find_nvidia(root) == GPR_HARDWARE_UNKNOWN, "%s", root);
    end();
}

static void vendors_tell_a_gpu_of_nvidia_from_others(void)
{
    begin();
    make("/sys/bus/pci/devices/0000:00:00.0", "vendor", "0x8086");
    make("/sys/bus/pci/devices/0000:03:00.0", "vendor", "0x1002");
    CHECK(gpr_find_nvidia(root) == GPR_HARDWARE_NONE, "%s", root);
    make("/sys/bus/pci/devices/0000:01:00.0", "vendor", "0x10de");
    CHECK(gpr_find_nvidia(root) == GPR_HARDWARE_GPU, "%s", root);
    end();
}

static void files_of_a_module_come_before_the_bus(void)
{
    static const char *const files[][2] = {
        {"/dev", "nvidiactl"}, {"/proc/driver", "nvidia"}, {"/dev", "nvmap"}, {"/dev", "dxg"}};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        begin();
        make("/sys/bus/pci/devices/0000:00:00.0", "vendor", "0x8086");
        make(files[i][0], files[i][1], "");
        CHECK(gpr_find_nvidia(root) == GPR_HARDWARE_MODULE, "%s/%s", files[i][0], files[i][1]);
        end();
    }
}

static void the_files_of_this_machine_are_read(void)
{
    CHECK(gpr_find_nvidia("") <= GPR_HARDWARE_MODULE, "%s", root);
    if (access("/dev/nvidiactl", F_OK) == 0)
        CHECK(gpr_find_nvidia("") == GPR_HARDWARE_MODULE, "%s", root);
}

/* Each machine has advice of its own; tables show what is before the first colon. */
static void advice_fits_the_machine(void)
{
    static const struct {
        gpr_hardware hardware;
        const char *words, *not_words;
    } cases[] = {
        {GPR_HARDWARE_NONE, "no NVIDIA GPU on this machine;", "nstall"},
        {GPR_HARDWARE_GPU, "(not found). Install the NVIDIA driver,", "hosted"},
        {GPR_HARDWARE_MODULE, "docker run --gpus all", "hosted"},
        {GPR_HARDWARE_UNKNOWN, "if this machine has an NVIDIA GPU", "hosted"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[900];
        gpr_explain_no_driver(cases[i].hardware, "not found", text, sizeof text);
        CHECK(strstr(text, cases[i].words) != NULL, "%s", text);
        CHECK(strstr(text, cases[i].not_words) == NULL, "%s", text);
        CHECK(strstr(text, "device=\"cpu\"") != NULL, "%s", text);
        CHECK(strcspn(text, ":;") < 80, "%s", text);
    }
}

int main(void)
{
    check_begin();
    nothing_is_known_without_a_list_of_devices();
    vendors_tell_a_gpu_of_nvidia_from_others();
    files_of_a_module_come_before_the_bus();
    the_files_of_this_machine_are_read();
    advice_fits_the_machine();
    return check_end();
}
